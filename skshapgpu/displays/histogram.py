"""Histogram of a feature's values along the bottom of a scatter plot."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._rows.columns import Column

#: Number of bins of a numeric feature, at most.
_BINS = 30

#: Part of the height of the axes that the tallest bar takes, and part that no point enters.
_HEIGHT, _ROOM = 0.12, 0.15

#: Width of the bar of a category; columns are 1 apart.
_WIDTH = 0.8

#: Least width of the bar of a number, as a part of the range of the numbers.
_NARROWEST = 0.01

_COLOR = "0.82"


def draw_histogram(ax: Any, column: Column, x: np.ndarray) -> Any:
    """Draw how many rows have which value, in room that is made below the points.

    Parameters
    ----------
    ax : matplotlib Axes
        Axes on which the points are drawn.
    column : Column
        Values of the feature on the x-axis.
    x : ndarray of shape (n_rows,)
        Positions of the points, those of missing values included.

    Returns
    -------
    matplotlib BarContainer
        Bars from left to right, with the missing values' first for numbers and last for categories.
    """
    centres, widths, counts = _category_bars(column) if column.categories is not None else _bins(column, x)
    low, high = ax.get_ylim()
    heights = _HEIGHT * counts / max(counts.max(initial=0), 1)
    # Heights are parts of the axes, so that the bars stay at the bottom when the limits change.
    bars = ax.bar(
        centres, heights, widths, color=_COLOR, linewidth=0, zorder=0.6, transform=ax.get_xaxis_transform()
    )
    ax.set_ylim(low - _ROOM / (1 - _ROOM) * (high - low), high)
    return bars


def _category_bars(column: Column) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    n_categories = len(column.categories or ())
    counts = np.bincount(column.numbers[~column.missing].astype(np.int64), minlength=n_categories)
    if column.missing.any():
        counts = np.append(counts, column.missing.sum())
    return np.arange(len(counts)), np.full(len(counts), _WIDTH), counts


def _bins(column: Column, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return centres, widths and counts of bins of equal width, preceded by a bar of the missing values."""
    shown, beside = x[~column.missing], x[column.missing]
    distinct = np.unique(shown)
    if len(distinct) <= 1:
        centres, counts = distinct, np.full(len(distinct), len(shown))
        widths = np.full(len(distinct), 0.05)
    elif len(distinct) <= _BINS:  # such as whole numbers: a bar for each
        centres, counts = np.unique(shown, return_counts=True)
        width = max(_WIDTH * np.diff(distinct).min(), _NARROWEST * np.ptp(distinct))
        widths = np.full(len(distinct), width)
    else:
        counts, edges = np.histogram(shown, bins=min(_BINS, int(np.sqrt(len(shown)))))
        centres, widths = (edges[:-1] + edges[1:]) / 2, np.diff(edges)
    if len(beside):
        width = 0.04 * (np.ptp(shown) if len(distinct) > 1 else 1.0)
        centres = np.concatenate([[np.median(beside)], centres])
        widths, counts = np.concatenate([[width], widths]), np.concatenate([[len(beside)], counts])
    return centres, widths, counts
