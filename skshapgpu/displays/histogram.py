"""Histogram of a feature's values along the bottom of a scatter plot."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .._common.distinct import distinct_numbers
from .._rows.columns import NumericColumn

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.container import BarContainer

#: Maximum number of bins of a numeric feature.
_BINS = 30

#: Height of the tallest bar, and of the room below the points, as fractions of the height of the axes.
_HEIGHT, _ROOM = 0.12, 0.15

#: Width of the bar of a category. The distance between two categories is 1.
_WIDTH = 0.8

#: Smallest width of the bar of a number, as a fraction of the range of the numbers.
_NARROWEST = 0.01

_COLOR = "0.82"


def draw_histogram(ax: Axes, column: NumericColumn, x: np.ndarray) -> BarContainer:
    """Make room below the points, and draw bars in it that show how many rows have which value of a feature.

    ``x`` has the positions of all points, including the points of rows in which the feature is missing.
    Return the bars from left to right. The bar of the missing values is first for numbers, last for
    categories.
    """
    centres, widths, counts = _category_bars(column) if column.categories is not None else _bins(column, x)
    low, high = ax.get_ylim()
    heights = _HEIGHT * counts / max(counts.max(initial=0), 1)
    # Heights are fractions of the axes, so that the bars stay at the bottom when the limits change.
    bars = ax.bar(
        centres, heights, widths, color=_COLOR, linewidth=0, zorder=0.6, transform=ax.get_xaxis_transform()
    )
    ax.set_ylim(low - _ROOM / (1 - _ROOM) * (high - low), high)
    return bars


def _category_bars(column: NumericColumn) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    n_categories = len(column.categories or ())
    counts = np.bincount(column.numbers[~column.missing].astype(np.int64), minlength=n_categories)
    if column.missing.any():
        counts = np.append(counts, column.missing.sum())
    return np.arange(len(counts)), np.full(len(counts), _WIDTH), counts


def _bins(column: NumericColumn, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return centres, widths and counts of bins of equal width. A bar of the missing values comes first."""
    numbers, missing = x[~column.missing], x[column.missing]
    distinct = distinct_numbers(numbers)
    if len(distinct) <= 1:
        centres, counts = distinct, np.full(len(distinct), len(numbers))
        widths = np.full(len(distinct), 0.05)
    elif len(distinct) <= _BINS:  # a bar for each number
        centres, counts = np.unique(numbers, return_counts=True)
        width = max(_WIDTH * np.diff(distinct).min(), _NARROWEST * np.ptp(distinct))
        widths = np.full(len(distinct), width)
    else:
        counts, edges = np.histogram(numbers, bins=min(_BINS, int(np.sqrt(len(numbers)))))
        centres, widths = (edges[:-1] + edges[1:]) / 2, np.diff(edges)
    if len(missing):
        width = 0.04 * (np.ptp(numbers) if len(distinct) > 1 else 1.0)
        centres = np.concatenate([[np.median(missing)], centres])
        widths, counts = np.concatenate([[width], widths]), np.concatenate([[len(missing)], counts])
    return centres, widths, counts
