"""Draw the results of ``./dev bench progress``, and write their tables into docs/measurements.md.

python docs/progress.py     write docs/progress.svg and the part of the page between the marks
"""

from __future__ import annotations

import json
import math
import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import geometric_mean
from typing import Any

DOCS = Path(__file__).resolve().parent
RESULTS = DOCS.parent / "benchmarks" / "results" / "progress.json"
PICTURE = DOCS / "progress.svg"
PAGE = DOCS / "measurements.md"

START, STOP = "<!-- written by docs/progress.py -->", "<!-- end -->"

CASES = {"in_call": "tables, if any, built in the call", "before": "tables made before, for many rows"}

#: Field of the results, and title of a panel of the picture.
PANELS = {
    "speed_over_other": "rows/s, times those of {other}",
    "explain_over_predict": "seconds, times those of a prediction",
    "speed_over_xgboost": "rows/s, times those of XGBoost",
}

_WIDTH, _LABELS, _PANEL, _GAP, _LINE, _TOP, _BOTTOM = 1080, 230, 250, 33, 18, 64, 40
_COLOURS = {"in_call": "#d9822b", "before": "#1d4f9c"}
#: Ticks of each power of ten, if the axis is shorter than one, and if it is longer.
_FINE, _COARSE = (1, 1.5, 2, 3, 4, 5, 6, 8), (1, 2, 5)


def runs() -> list[dict[str, Any]]:
    """Return the runs of the file of results."""
    return json.loads(RESULTS.read_text())["runs"]


def models() -> list[dict[str, Any]]:
    """Return the results of all models that were timed, ordered by name, with numbers in their order."""

    def key(model: dict[str, Any]) -> list[tuple[int, float, str]]:
        words = re.findall(r"[\d.]+|[^\d.]+", model["name"])
        return [(0, float(word), "") if word[0].isdigit() else (1, 0.0, word) for word in words]

    timed = (model for run in runs() for model in run["models"] if "refused" not in model)
    return sorted(timed, key=key)


def other_commit() -> str:
    """Return the short name of the commit that all runs compare with."""
    commits = {run["other_commit"][:7] for run in runs()}
    if len(commits) != 1:
        raise ValueError(f"the runs compare with different commits: {', '.join(sorted(commits))}")
    return commits.pop()


def drawing() -> str:
    """Return the picture as SVG: a line for each model, with the ratios of both cases in each panel."""
    listed = models()
    height = _TOP + _LINE * len(listed) + _BOTTOM
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        f'viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif">',
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
    ]
    for number, (case, title) in enumerate(CASES.items()):
        x = _LABELS + 260 * number
        parts.append(_dot(x, 14, case, title))
        parts.append(_text(x + 10, 18, title, "start", 12))
    for number, model in enumerate(listed):
        y = _TOP + _LINE * (number + 0.5)
        parts.append(_text(_LABELS - 12, y + 4, model["name"], "end", 11))
        parts.append(f'<line x1="{_LABELS}" y1="{y:.1f}" x2="{_WIDTH - 20}" y2="{y:.1f}" stroke="#eef0f3"/>')
    for number, (field, title) in enumerate(PANELS.items()):
        left = _LABELS + number * (_PANEL + _GAP)
        parts += _panel(listed, field, title.format(other=other_commit()), left)
    return "\n".join([*parts, "</svg>", ""])


def _panel(listed: list[dict[str, Any]], field: str, title: str, left: float) -> Iterator[str]:
    """Yield a panel: a logarithmic axis, and for each model and case the median with its quartiles."""
    spreads = [model[field][case] for model in listed if field in model for case in CASES]
    least = min(spread["lower_quartile"] for spread in spreads)
    low = math.log(min(least, 1.0 if least < 10 else least) / 1.1)  # the axis shows 1 unless that is far away
    high = math.log(max([1.0, *(spread["upper_quartile"] for spread in spreads)]) * 1.1)
    steps = _FINE if high - low < math.log(10) else _COARSE
    ticks = [step * 10.0**power for power in range(-3, 5) for step in steps]
    bottom = _TOP + _LINE * len(listed)

    def place(ratio: float) -> float:
        return left + _PANEL * (math.log(ratio) - low) / (high - low)

    yield _text(left + _PANEL / 2, 40, title, "middle", 12)
    for tick in ticks:
        if low <= math.log(tick) <= high:
            x, colour = place(tick), "#5b6779" if tick == 1 else "#d5dae1"
            yield f'<line x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{bottom}" stroke="{colour}"/>'
            yield _text(x, _TOP - 6, f"{tick:g}", "middle", 10)
            yield _text(x, bottom + 16, f"{tick:g}", "middle", 10)
    for number, model in enumerate(listed):
        for offset, case in zip((-3, 3), CASES):
            if field not in model:
                continue
            spread, y = model[field][case], _TOP + _LINE * (number + 0.5) + offset
            ends = place(spread["lower_quartile"]), place(spread["upper_quartile"])
            yield (
                f'<line x1="{ends[0]:.1f}" y1="{y:.1f}" x2="{ends[1]:.1f}" y2="{y:.1f}" '
                f'stroke="{_COLOURS[case]}" stroke-width="2" stroke-opacity="0.4"/>'
            )
            yield _dot(place(spread["median"]), y, case, f"{model['name']}: {spread['median']:.3g}")


def _dot(x: float, y: float, case: str, title: str) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{_COLOURS[case]}"><title>{title}</title></circle>'


def _text(x: float, y: float, text: str, anchor: str, size: int) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">{text}</text>'


def page() -> str:
    """Return the part of the page that is written from the results."""
    listed = models()
    means = [geometric_mean(m["speed_over_other"][case]["median"] for m in listed) for case in CASES]
    least = [min(m["speed_over_other"][case]["median"] for m in listed) for case in CASES]
    machines = sorted({f"{run['machine']['cpu']}, {_sets(run)}" for run in runs()})
    rounds = " or ".join(map(str, sorted({model["rounds"] for model in listed})))
    summary = (
        f"Measured on {' and '.join(machines)}, in {rounds} rounds. Against commit "
        f"{other_commit()}, the geometric mean of {len(listed)} models is {means[0]:.2f} with tables built "
        f"in the call (least: {least[0]:.2f}), and {means[1]:.2f} with tables built before, for many rows "
        f"(least: {least[1]:.2f}). Single precision differs from double precision by at most "
        f"{max(m['accuracy']['this'] for m in listed):.1e} of the largest value."
    )
    parts = [
        textwrap.fill(summary, 120),
        "### Speed against an earlier commit",
        _table(
            listed,
            {
                "leaves": lambda m: f"{m['leaves']:,}",
                "looked up": lambda m: " / ".join(f"{_looked_up(m, case):.0%}" for case in CASES),
                "rows": lambda m: f"{m['rows']:,}",
                "rows/s": lambda m: _rate(m["rows_per_second"]["this before"]["median"]),
                "in the call": lambda m: f"{m['speed_over_other']['in_call']['median']:.2f}",
                "built before": lambda m: f"{m['speed_over_other']['before']['median']:.2f}",
                "times XGBoost's": lambda m: _median(m, "speed_over_xgboost", "before", ".0f"),
                "error": lambda m: f"{m['accuracy']['this']:.0e}",
            },
        ),
        "### Explaining compared with predicting",
        _table(
            listed,
            {
                "predicted rows/s": lambda m: _rate(m["rows_per_second"]["predict"]["median"]),
                "in the call": lambda m: _median(m, "explain_over_predict", "in_call", ".2f"),
                "built before": lambda m: _median(m, "explain_over_predict", "before", ".2f"),
                "prediction by": lambda m: (
                    f"`{m['prediction'].partition(', ')[0]}`" + "".join(m["prediction"].partition(", ")[1:])
                ),
            },
        ),
    ]
    return "\n\n".join(parts)


def _sets(run: dict[str, Any]) -> str:
    names = sorted({model["instruction_set"] for model in run["models"]})
    return " and ".join(
        {"avx512": "AVX-512", "avx2": "AVX2", "neon": "NEON"}.get(name, name) for name in names
    )


def _looked_up(model: dict[str, Any], case: str) -> float:
    """Return the fraction of leaves that this checkout explains by tables or cells."""
    groups = model["groups"]["this"][case]
    leaves = sum(group["n_leaves"] for group in groups)
    return sum(g["n_leaves"] for g in groups if g["algorithm"] in ("tables", "cells")) / max(leaves, 1)


def _median(model: dict[str, Any], field: str, case: str, form: str) -> str:
    return format(model[field][case]["median"], form) if field in model else ""


def _rate(rows: float) -> str:
    return f"{rows / 1e6:.2f} M" if rows >= 1e6 else f"{rows:,.0f}"


def _table(listed: list[dict[str, Any]], columns: dict[str, Callable[[dict[str, Any]], str]]) -> str:
    lines = [f"| model | {' | '.join(columns)} |", f"|{' --- |' * (len(columns) + 1)}"]
    for model in listed:
        lines.append(f"| {model['name']} | {' | '.join(cell(model) for cell in columns.values())} |")
    return "\n".join(lines)


def with_results(text: str) -> str:
    """Return the text of the page with the present results between the marks."""
    before, start, rest = text.partition(START)
    _, stop, after = rest.partition(STOP)
    if not start or not stop:
        raise ValueError(f"the page has no {START} or no {STOP}")
    return f"{before}{START}\n\n{page()}\n\n{STOP}{after}"


if __name__ == "__main__":
    PICTURE.write_text(drawing())
    PAGE.write_text(with_results(PAGE.read_text()))
