"""Room for what is around axes in a grid of subplots, and for numbers beside bars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.text import Annotation

#: Pixels between a label and its neighbours.
_GAP = 4.0

#: Left part of the gap between two columns of subplots, which belongs to the axes on the left; labels of the
#: axes on the right need the rest. The gap between two rows is divided in the middle.
_LEFT_PART = 0.15

#: Smallest width and height of axes that make room, as a fraction of their place in the grid.
_SMALLEST = 0.25


#: For axes that were shrunk: their place in the caller's grid, and their place in a grid inside that place.
_SHRUNK: WeakKeyDictionary[Any, tuple[Any, Any]] = WeakKeyDictionary()


def fit(ax: Axes) -> None:
    """Shrink axes in a grid of subplots until labels, legends and colours around them are in their place.

    Nothing is done if the figure has a layout engine, which does better, or the caller placed the axes.
    """
    figure: Any = ax.figure
    spec = ax.get_subplotspec()
    if spec is None or figure.get_layout_engine() is not None:
        return
    original, ours = _SHRUNK.get(ax, (None, None))
    if ours is spec:
        spec = original
        ax.set_subplotspec(spec)
    place, cell = _place_in_grid(spec, figure), np.array(spec.get_position(figure).get_points())
    box = cell
    for _ in range(4):  # smaller axes have other ticks
        tight = ax.get_tightbbox()
        assert tight is not None
        title = 0 if ax.get_title() else _title_height(ax)
        drawn = np.array([[tight.x0 - _GAP, tight.y0 - _GAP], [tight.x1 + _GAP, tight.y1 + title]])
        drawn = figure.transSubfigure.inverted().transform(drawn)
        excess = np.array([np.maximum(place[0] - drawn[0], 0), -np.maximum(drawn[1] - place[1], 0)])
        if np.abs(excess).max() < 1e-3:
            break
        box = box + excess
        box[1] = np.maximum(box[1], box[0] + _SMALLEST * (cell[1] - cell[0]))
        box = np.clip(box, cell[0], cell[1])
        # A position by itself would mislead a later tight_layout, which looks at places in grids.
        (left, bottom), (right, top) = np.maximum(np.diff([cell[0], *box, cell[1]], axis=0), 0)[
            [0, 2]
        ].tolist()
        width, height = (box[1] - box[0]).tolist()
        grid = spec.subgridspec(
            3, 3, wspace=0, hspace=0, width_ratios=(left, width, right), height_ratios=(top, height, bottom)
        )
        ax.set_subplotspec(grid[1, 1])
        _SHRUNK[ax] = spec, ax.get_subplotspec()


def _place_in_grid(spec: Any, figure: Any) -> np.ndarray:
    """Return the corners of the place of a subplot with its part of the gaps, in fractions of the figure."""
    grid = spec.get_gridspec()
    is_nested = hasattr(grid, "get_topmost_subplotspec")
    outer = (
        _place_in_grid(grid.get_topmost_subplotspec(), figure) if is_nested else np.array([[0, 0], [1, 1]])
    )
    bottoms, tops, lefts, rights = grid.get_grid_positions(figure)
    rows, columns = spec.rowspan, spec.colspan
    (left, bottom), (right, top) = outer.tolist()
    if columns.start:
        left = rights[columns.start - 1] + _LEFT_PART * (lefts[columns.start] - rights[columns.start - 1])
    if columns.stop < len(lefts):
        right = rights[columns.stop - 1] + _LEFT_PART * (lefts[columns.stop] - rights[columns.stop - 1])
    if rows.start:
        top = (tops[rows.start] + bottoms[rows.start - 1]) / 2
    if rows.stop < len(tops):
        bottom = (bottoms[rows.stop - 1] + tops[rows.stop]) / 2
    return np.array([[left, bottom], [right, top]])


def _title_height(ax: Axes) -> float:
    """Return the height of a title that the caller may add, in pixels."""
    from matplotlib import rcParams

    points = 1.2 * float(ax.title.get_fontsize()) + rcParams["axes.titlepad"]
    return float(points * ax.figure.dpi / 72)


def make_room(ax: Axes, texts: Sequence[Annotation]) -> None:
    """Widen the limits of the x-axis until all annotations, anchored to data, are inside the axes."""
    if not texts:
        return
    if hasattr(ax.figure, "draw_without_rendering"):  # a SubFigure does not have it
        ax.figure.draw_without_rendering()
    left, right = ax.get_xlim()
    box = ax.get_window_extent()
    unit = box.width / (right - left)
    reach = []
    for text in texts:
        extent, anchor = text.get_window_extent(), float(text.xy[0])
        pixel = box.x0 + (anchor - left) * unit
        reach.append((anchor, extent.x0 - pixel - _GAP, extent.x1 - pixel + _GAP))
    for _ in range(20):  # wider limits move the anchors; this converges unless a text is wider than the axes
        per_pixel = (right - left) / box.width
        left = min(left, *(anchor + low * per_pixel for anchor, low, _ in reach))
        right = max(right, *(anchor + high * per_pixel for anchor, _, high in reach))
    if right - left < 20 / unit * box.width:
        ax.set_xlim(left, right)
