"""Draw the chart of speed on the first page from benchmarks/results: ``python docs/speed.py`` writes it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from svg import BLUE, GREY, GRID, WIDTH, picture, text

DOCS = Path(__file__).resolve().parent
RESULTS = DOCS.parent / "benchmarks" / "results"
PICTURE = DOCS / "images" / "speed.svg"

TITLE = "How many times as long other libraries take for the same exact values"
MODEL = "XGBoost model with 100 trees of depth 8, California housing; logarithmic axis, medians"

#: File of results, systems of a panel, and the panel's title.
PANELS = (
    ("values", ("shap", "fasttreeshap", "xgboost", "woodelf"), "SHAP values, one CPU core"),
    ("interactions", ("shap", "xgboost"), "Interactions of all pairs, one CPU core"),
    (
        "background",
        ("shap", "woodelf"),
        "SHAP values against 1,000 background rows, one CPU core, with making the explainer",
    ),
    ("values-cuda", ("xgboost",), "SHAP values of a million rows, one GPU, NumPy to NumPy"),
)
CASE = "cal_housing-med"
LABELS = {"xgboost": "XGBoost", "shap": "shap", "fasttreeshap": "Fast TreeSHAP", "woodelf": "Woodelf"}
PACKAGES = {"woodelf": "woodelf_explainer"}

_LEFT, _RIGHT, _LINE, _TITLE, _TOP = 150, 70, 24, 34, 62
_MOST = 10_000


def ratios(name: str, systems: tuple[str, ...]) -> list[tuple[str, float]]:
    """Return the time of each system over ours, from a file of results."""
    runs = json.loads((RESULTS / f"{name}.json").read_text())["runs"]
    ((model, versions),) = (
        (model, run["versions"]) for run in runs for model in run["models"] if model["name"] == CASE
    )
    found = _systems(model)
    return [(_label(system, versions), _ratio(found, system)) for system in systems]


def _label(system: str, versions: dict[str, str]) -> str:
    version = versions[PACKAGES.get(system, system)]
    return f"{LABELS[system]} {version.rpartition('.')[0]}"


def _systems(model: dict[str, Any]) -> dict[str, Any]:
    """Return the timed systems; with background data, those of a call of 10,000 rows against 1,000."""
    if "backgrounds" not in model:
        return model["systems"]
    (background,) = (case for case in model["backgrounds"] if case["background_rows"] == 1_000)
    (rows,) = (case for case in background["rows"] if case["rows"] == 10_000)
    return rows["systems"]


def _ratio(systems: dict[str, Any], name: str) -> float:
    found = systems[name]
    if "seconds_over_building" in found:  # the others read the background data in each call
        return found["seconds_over_building"]["median"]
    if "seconds_over_ours" in found:
        return found["seconds_over_ours"]["median"]
    return 1 / systems["ours"]["seconds_over_xgboost"]["median"]


def drawing() -> str:
    """Return the chart as SVG."""
    panels = [(title, ratios(name, systems)) for name, systems, title in PANELS]
    height = _TOP + sum(_TITLE + _LINE * len(bars) for _, bars in panels) + 34
    parts = [text(16, 26, TITLE, size=16, weight="bold"), text(16, 46, MODEL, size=12, fill=GREY)]
    bottom = height - 30
    for tick in (1, 10, 100, 1_000, 10_000):
        x = _place(tick)
        parts.append(f'<line x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{bottom}" stroke="{GRID}"/>')
        parts.append(text(x, bottom + 16, f"{tick:,}", "middle", 12, GREY))
    y = float(_TOP)
    for title, bars in panels:
        parts.append(text(16, y + 22, title, size=13, weight="bold"))
        parts += _bars(bars, y + _TITLE)
        y += _TITLE + _LINE * len(bars)
    return picture(height, TITLE, parts)


def _bars(bars: list[tuple[str, float]], top: float) -> Iterator[str]:
    for number, (label, ratio) in enumerate(bars):
        y, x = top + _LINE * number, _place(ratio)
        yield text(_LEFT - 8, y + 15, label, "end", 13)
        yield f'<rect x="{_LEFT}" y="{y + 4}" width="{x - _LEFT:.1f}" height="15" rx="2" fill="{BLUE}"/>'
        yield text(x + 6, y + 16, f"{ratio:,.0f}", size=13)


def _place(ratio: float) -> float:
    return _LEFT + (WIDTH - _LEFT - _RIGHT) * math.log(ratio) / math.log(_MOST)


if __name__ == "__main__":
    PICTURE.write_text(drawing())
