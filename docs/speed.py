"""Draw the chart of speed on the first page from benchmarks/results: ``python docs/speed.py`` writes it.

The figures of a panel come from one run, that is, from one commit on one machine.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from svg import BLUE, GREY, GRID, ORANGE, picture, text

DOCS = Path(__file__).resolve().parent
RESULTS = DOCS.parent / "benchmarks" / "results"
PICTURE = DOCS / "images" / "speed.svg"

TITLE = "Time of other libraries, ours = 1"
NOTES = ("XGBoost models with 100 trees of depth 8;", "medians on a logarithmic axis, shorter is faster")

#: Seconds of ours, and the time of each system as a multiple of ours, from the results of a model.
Figures = tuple[float, dict[str, float]]


@dataclass(frozen=True)
class Panel:
    """A panel: its title, file, model and systems, and the function that reads their figures."""

    title: str
    name: str
    systems: tuple[str, ...]
    read: Callable[[dict[str, Any]], Figures]
    model: str = "cal_housing-med"
    on_gpu: bool = False


LABELS = {"xgboost": "XGBoost", "shap": "shap", "fasttreeshap": "Fast TreeSHAP", "woodelf": "Woodelf"}
PACKAGES = {"woodelf": "woodelf_explainer"}

#: Width of the picture, small so that a telephone shows letters of readable size; height of a line, and of
#: the two lines above the bars of a panel; where the bars begin and end, and where the first panel begins.
_WIDTH, _LINE, _HEADING, _LEFT, _RIGHT, _TOP = 440, 25, 52, 150, 54, 82

#: Where the axis begins and ends. The bar of ours, which ends at 1, is seen because the axis begins before 1.
_LEAST, _MOST = 0.5, 10_000


def _times_of_ours(model: dict[str, Any]) -> Figures:
    """Read a run in which all systems explained the same rows, on the CPU."""
    systems = model["systems"]
    ratios = {name: found["seconds_over_ours"]["median"] for name, found in systems.items()}
    return model["rows"] / systems["ours"]["rows_per_second"]["median"], ratios


def _times_of_building(model: dict[str, Any]) -> Figures:
    """Read a call of 10,000 rows against 1,000. Ours makes the explainer, too: the others always do."""
    (background,) = (case for case in model["backgrounds"] if case["background_rows"] == 1_000)
    (rows,) = (case for case in background["rows"] if case["rows"] == 10_000)
    systems = rows["systems"]
    ratios = {name: found["seconds_over_building"]["median"] for name, found in systems.items()}
    return rows["rows"] / systems["ours-with-building"]["rows_per_second"]["median"], ratios


def _times_on_a_gpu(model: dict[str, Any]) -> Figures:
    ours = model["systems"]["ours"]
    ratio = 1 / ours["seconds_over_xgboost"]["median"]
    return model["rows"] / ours["rows_per_second"]["median"], {"xgboost": ratio}


def _times_of_a_row(model: dict[str, Any]) -> Figures:
    ours = model["beside_library_ms"]
    return ours / 1_000, {"xgboost": model["library_ms"] / ours}


PANELS = (
    Panel("SHAP values of 10,000 rows", "values", tuple(LABELS), _times_of_ours),
    Panel(
        "SHAP values of one row", "single-row", ("xgboost",), _times_of_a_row, "xgboost, 100 trees of depth 8"
    ),
    Panel("Interactions of all pairs, 2,000 rows", "interactions", ("shap", "xgboost"), _times_of_ours),
    Panel("10,000 rows against 1,000 background rows", "background", ("shap", "woodelf"), _times_of_building),
    Panel("SHAP values of a million rows", "values-cuda", ("xgboost",), _times_on_a_gpu, on_gpu=True),
)


def figures(panel: Panel) -> tuple[str, float, list[tuple[str, float]]]:
    """Return the device of a panel, our seconds, and the multiples of other systems, the largest first."""
    runs = json.loads((RESULTS / f"{panel.name}.json").read_text())["runs"]
    ((run, model),) = ((run, m) for run in runs for m in run["models"] if m["name"] == panel.model)
    seconds, ratios = panel.read(model)
    bars = [(_label(system, run["versions"]), ratios[system]) for system in panel.systems]
    return _device(run, panel.on_gpu), seconds, sorted(bars, key=lambda bar: -bar[1])


def _device(run: dict[str, Any], on_gpu: bool) -> str:
    if on_gpu:
        (device,) = run["gpu"]["devices"]
        return f"one GPU: {device['name']}, NumPy to NumPy"
    cpu = (
        run["machine"]["cpu"]
        .replace("(R)", "")
        .replace(" Processor", "")
        .replace(" @", ",")
        .replace("GHz", " GHz")
    )
    return f"one core of a CPU: {cpu}, AVX-512"


def _label(system: str, versions: dict[str, str]) -> str:
    version = versions[PACKAGES.get(system, system)]
    return f"{LABELS[system]} {version.rpartition('.')[0]}"


def drawing() -> str:
    """Return the chart as SVG."""
    panels = [(panel.title, *figures(panel)) for panel in PANELS]
    height = _TOP + sum(_HEADING + _LINE * (1 + len(bars)) for *_, bars in panels) + 34
    parts = [text(16, 28, TITLE, size=18, weight="bold")]
    parts += [text(16, 50 + 18 * i, note, size=13, fill=GREY) for i, note in enumerate(NOTES)]
    bottom = height - 30
    y = float(_TOP)
    for title, device, seconds, bars in panels:
        top, y = y + _HEADING, y + _HEADING + _LINE * (1 + len(bars))
        for tick in (1, 10, 100, 1_000, 10_000):
            x = _place(tick)
            parts.append(f'<line x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{y}" stroke="{GRID}"/>')
        parts.append(text(16, top - 26, title, size=14, weight="bold"))
        parts.append(text(16, top - 8, device, size=12, fill=GREY))
        parts += _bars([("skshapgpu", 1.0), *bars], top, f"1 ({_time(seconds)})")
    for tick in (1, 10, 100, 1_000, 10_000):
        parts.append(text(_place(tick), bottom + 18, f"{tick:,}", "middle", 12, GREY))
    return picture(height, TITLE, parts, _WIDTH)


def _time(seconds: float) -> str:
    return f"{seconds:.2g} s" if seconds >= 0.01 else f"{1_000 * seconds:.2g} ms"


def _bars(bars: list[tuple[str, float]], top: float, ours: str) -> Iterator[str]:
    for number, (label, ratio) in enumerate(bars):
        y, x = top + _LINE * number, _place(ratio)
        fill, weight = (BLUE, "normal") if number else (ORANGE, "bold")
        yield text(_LEFT - 8, y + 17, label, "end", 14, weight=weight)
        yield f'<rect x="{_LEFT}" y="{y + 4}" width="{x - _LEFT:.1f}" height="17" rx="2" fill="{fill}"/>'
        yield text(x + 6, y + 18, f"{ratio:,.0f}" if number else ours, size=14, weight=weight)


def _place(ratio: float) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * math.log(ratio / _LEAST) / math.log(_MOST / _LEAST)


if __name__ == "__main__":
    PICTURE.write_text(drawing())
