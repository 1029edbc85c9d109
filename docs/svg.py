"""Parts of the charts that are drawn from results as SVG: text, markers, and lines of dots along an axis."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass

TEXT, GREY, GRID, BLUE, ORANGE, GROUND = "#1f2733", "#5b6779", "#e3e7ed", "#1d4f9c", "#d9822b", "#ffffff"

#: Colours on the dark pages of browsers that prefer them, by the colours on light pages.
DARK = {
    TEXT: "#e6eaf0",
    GREY: "#a3afc0",
    GRID: "#39424f",
    BLUE: "#6fa3ea",
    GROUND: "#161b22",
    "#7a5ea8": "#a68ad6",
}

#: Colour and shape of each system of a chart, in their order.
STYLES = (
    (BLUE, "circle"),
    (ORANGE, "square"),
    ("#2a8f82", "triangle"),
    ("#b8405e", "diamond"),
    ("#7a5ea8", "cross"),
)

#: Width of a phone: text is legible there, and pages do not enlarge the charts by much.
WIDTH = 400
_MARGIN, _RIGHT, _LABEL, _LINE, _HEADING, _LETTER = 16, 24, 18, 24, 28, 7.4


def text(
    x: float,
    y: float,
    content: str,
    anchor: str = "start",
    size: int = 13,
    fill: str = TEXT,
    weight: str = "normal",
) -> str:
    """Return a line of text."""
    content = content.replace("&", "&amp;").replace("<", "&lt;")
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" font-weight="{weight}" '
        f'fill="{fill}">{content}</text>'
    )


def picture(height: float, title: str, parts: list[str], width: float = WIDTH) -> str:
    """Return a picture of these parts, on a ground of its own, light or dark as the browser prefers.

    Its size is twice that of its coordinates: pages shrink it to their width, which two pictures beside each
    other share in proportion to their sizes.
    """
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{2 * width:g}" height="{2 * height:g}" '
        f'viewBox="0 0 {width:g} {height:g}" font-family="sans-serif" role="img"><title>{title}</title>'
    )
    rules = "".join(
        f'[fill="{light}"]{{fill:{dark}}}[stroke="{light}"]{{stroke:{dark}}}' for light, dark in DARK.items()
    )
    style = f"<style>@media (prefers-color-scheme: dark){{{rules}}}</style>"
    ground = f'<rect width="{width:g}" height="{height:g}" rx="8" fill="{GROUND}"/>'
    return "\n".join([head, style, ground, *parts, "</svg>", ""])


def marker(x: float, y: float, style: tuple[str, str]) -> str:
    """Return a marker of a system."""
    colour, shape = style
    if shape == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{colour}"/>'
    outlines = {
        "square": "M-4.5 -4.5 h9 v9 h-9 z",
        "triangle": "M0 -5.5 L5.5 4.5 h-11 z",
        "diamond": "M0 -6 L6 0 L0 6 L-6 0 z",
        "cross": "M-5 -2 h3 v-3 h4 v3 h3 v4 h-3 v3 h-4 v-3 h-3 z",
    }
    return f'<path transform="translate({x:.1f} {y:.1f})" d="{outlines[shape]}" fill="{colour}"/>'


@dataclass(frozen=True)
class Axis:
    """An x-axis: its label, the numbers where it begins and ends, its ticks, and how numbers are written."""

    label: str
    low: float
    high: float
    ticks: tuple[float, ...]
    logarithmic: bool = True
    write: Callable[[float], str] = "{:,g}".format

    def part(self, number: float) -> float:
        """Return where a number is, from 0 at the left end to 1 at the right end."""
        if self.logarithmic:
            return math.log(number / self.low) / math.log(self.high / self.low)
        return (number - self.low) / (self.high - self.low)


#: Label of a line, and its number of each system; a line without numbers is a heading.
Lines = list[tuple[str, dict[str, float]]]


def dots(title: str, note: str, axis: Axis, lines: Lines, systems: list[str], bars: bool = False) -> str:
    """Return a chart with a line for each label and a marker, or a bar, for each system."""
    styles = dict(zip(systems, STYLES, strict=False))
    parts = [text(_MARGIN, 26, title, size=16, weight="bold")]
    top = 30
    for line in textwrap.wrap(note, 52):
        top += 16
        parts.append(text(_MARGIN, top, line, size=12, fill=GREY))
    if len(systems) > 1:
        top = _legend(parts, styles, top + 20)
    top += 8
    bottom = top + sum(_LABEL + _LINE if numbers else _HEADING for _, numbers in lines) + 4

    def place(number: float) -> float:
        return _MARGIN + (WIDTH - _MARGIN - _RIGHT) * axis.part(number)

    for tick in axis.ticks:
        x = place(tick)
        parts.append(f'<line x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{bottom}" stroke="{GRID}"/>')
        parts.append(text(x, bottom + 16, axis.write(tick), "middle", 12, GREY))
    parts.append(text(WIDTH / 2, bottom + 36, axis.label, "middle", 12, GREY))
    y = float(top)
    for label, numbers in lines:
        y += _LABEL + _LINE if numbers else _HEADING
        if not numbers:
            parts.append(text(_MARGIN, y - 6, label, weight="bold"))
            continue
        parts.append(text(_MARGIN, y - _LINE - 4, label, size=12))
        ends = {system: place(number) for system, number in numbers.items()}
        parts += _bar(y, ends, numbers, axis) if bars else _line(y, ends, styles)
    return picture(bottom + 50, title, parts)


def _legend(parts: list[str], styles: dict[str, tuple[str, str]], y: int) -> int:
    """Add the legend to the parts, in as many lines as it needs from y on, and return where it ends."""
    x = _MARGIN + 6.0
    for system, style in styles.items():
        width = 14 + _LETTER * len(system)
        if x + width > WIDTH - _MARGIN:
            x, y = _MARGIN + 6.0, y + 18
        parts += [marker(x, y - 4, style), text(x + 11, y, system, size=12)]
        x += width + 16
    return y


def _line(y: float, ends: dict[str, float], styles: dict[str, tuple[str, str]]) -> Iterator[str]:
    centre = y - _LINE / 2
    yield f'<line x1="{_MARGIN}" y1="{centre}" x2="{WIDTH - _RIGHT}" y2="{centre}" stroke="{GRID}"/>'
    drawn: list[float] = []
    for system in (system for system in styles if system in ends):
        x = ends[system]
        hidden = sum(abs(x - other) < 8 for other in drawn)  # if at the same place, below and above it
        drawn.append(x)
        yield marker(x, centre + (0, 7, -7, 0, 0)[hidden], styles[system])


def _bar(y: float, ends: dict[str, float], numbers: dict[str, float], axis: Axis) -> Iterator[str]:
    ((system, x),) = ends.items()
    yield f'<rect x="{_MARGIN}" y="{y - 22}" width="{x - _MARGIN:.1f}" height="15" rx="2" fill="{BLUE}"/>'
    yield text(x + 6, y - 10, axis.write(numbers[system]))
