"""Search for the feature that interacts most with a given one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .._rows.columns import Column
from .._rows.gpu_arrays import copied_to_host
from .._rows.tables import select, table
from ..explainer import TreeExplainer

#: Number of rows whose interactions are computed: enough to rank features by their mean magnitudes.
_SAMPLE = 200

#: Number of groups by the feature's own values, number of groups by another feature, and minimum number of
#: rows in a group of the first kind.
_BINS, _GROUPS, _ROWS_IN_BIN = 20, 4, 20

#: A feature counts if its sum of squares exceeds that of random groups by this number of standard deviations,
#: and by this fraction of the total sum of squares, which may be due to rounding.
_CLEARLY, _ROUNDING = 4.0, 1e-9


def strongest_by_interactions(
    explainer: TreeExplainer, X: Any, feature: int, output: int | None
) -> int | None:
    """Return the feature with the largest mean |SHAP interaction value| in rows of X; None if there is none.

    At most 200 rows, evenly spaced, are explained.
    """
    pairs = explainer.occurring_interactions()
    pairs = pairs[(pairs == feature).any(axis=1)]
    if not len(pairs):
        return None
    X = table(copied_to_host(X))
    rows = slice(None, None, -(-X.shape[0] // _SAMPLE))
    found = explainer._without_warnings.explain_interactions(select(X, rows), interactions=pairs)
    strength = found.importance()
    if strength.ndim > 1:
        strength = strength[:, output]
    best = int(strength.argmax())
    first, second = pairs[best]
    return int(second if first == feature else first) if strength[best] > 0 else None


def strongest_by_variance(
    values: np.ndarray, read: Callable[[int], Column], feature: int, n_features: int
) -> int | None:
    """Return the feature that best explains the SHAP values of the given one beyond its own value.

    This is an approximation for explanations whose model is not available. Rows are divided into up to 20
    groups with similar values of the feature; within a group its SHAP values would follow a line if it
    acted alone. The residuals are divided into four groups (quartiles or categories) by every other feature,
    with missing values as a group of their own. The best feature has the largest sum of squares between
    these groups, less the sum that as many random groups would have (analysis of variance).

    Parameters
    ----------
    values : ndarray of shape (n_rows,)
        SHAP values of the feature.
    read : callable
        Function that returns the column of a feature by its position.
    feature : int
    n_features : int

    Returns
    -------
    int or None
        Position of the feature; None if no feature explains clearly more than random groups.
    """
    own = read(feature)
    n_bins = int(np.clip(len(values) // _ROWS_IN_BIN, 1, _BINS))
    bins = _groups(own, n_bins)
    left = _residuals(values.astype(np.float64), own, bins)
    total, n_filled = float(left @ left), len(np.unique(bins))
    best, best_score = None, 0.0
    for other in range(n_features):
        if other == feature:
            continue
        groups = _groups(read(other), _GROUPS)
        _, cells = np.unique(bins * (groups.max() + 1) + groups, return_inverse=True)
        counts = np.bincount(cells)
        between = float((np.bincount(cells, left) ** 2 / counts).sum())
        freedom = len(values) - len(counts)
        if freedom < 1:
            continue
        chance, extra = (total - between) / freedom, len(counts) - n_filled
        score = between - extra * chance
        if score > max(best_score, _CLEARLY * np.sqrt(2 * extra) * chance, _ROUNDING * total):
            best, best_score = other, score
    return best


def _groups(column: Column, n: int) -> np.ndarray:
    """Assign rows to numbered groups: categories or about n quantiles, and last the missing values."""
    missing = column.missing
    groups = np.zeros(len(missing), np.int64)
    present = column.numbers[~missing]
    if column.categories is not None:
        groups[~missing] = present.astype(np.int64)
    elif len(present):
        cuts = np.unique(np.quantile(present, np.arange(1, n) / n, method="lower"))
        groups[~missing] = np.searchsorted(cuts, present)
    groups[missing] = groups.max() + 1
    return groups


def _residuals(values: np.ndarray, column: Column, bins: np.ndarray) -> np.ndarray:
    """Subtract the line through the values of each bin; for categories and missing values, the mean."""
    counts = np.maximum(np.bincount(bins), 1)
    left = values - (np.bincount(bins, values) / counts)[bins]
    if column.categories is not None:
        return left
    x = np.where(np.isfinite(column.numbers), column.numbers, 0.0)
    x -= (np.bincount(bins, x) / counts)[bins]
    square = np.bincount(bins, x * x)
    slope = np.bincount(bins, x * left) / np.where(square > 0, square, 1.0)
    return left - slope[bins] * x
