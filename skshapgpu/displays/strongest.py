"""Search for the feature that interacts most with a feature."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .._common.distinct import distinct_numbers
from .._rows.columns import NumericColumn
from .._rows.gpu_arrays import copied_to_host
from .._rows.tables import select, table
from ..explainer import TreeExplainer

#: Number of rows whose interactions are computed: enough to rank features by their mean magnitudes.
_SAMPLE = 200

#: Maximum number of bins of the feature's own values, and minimum number of rows in a bin.
_BINS, _ROWS_IN_BIN = 20, 20

#: Number of classes of another feature's values.
_CLASSES = 4

#: A feature counts if its sum of squares exceeds the sum of squares of random classes by this number of
#: standard deviations, and by this fraction of the total sum of squares; less may be due to rounding.
_DEVIATIONS, _ROUNDING = 4.0, 1e-9


def strongest_by_interactions(
    explainer: TreeExplainer, X: Any, feature: int, output: int | None
) -> int | None:
    """Return the feature with the largest mean |SHAP interaction value|, or None if all are zero.

    The mean is over at most 200 evenly spaced rows of X.
    """
    pairs = explainer.occurring_interactions()
    pairs = pairs[(pairs == feature).any(axis=1)]
    if not len(pairs):
        return None
    X = table(copied_to_host(X))
    rows = slice(None, None, -(-X.shape[0] // _SAMPLE))
    explanation = explainer._without_warnings.explain_interactions(select(X, rows), interactions=pairs)
    strength = explanation.importance()
    if strength.ndim > 1:
        strength = strength[:, output]
    best = int(strength.argmax())
    first, second = pairs[best]
    return int(second if first == feature else first) if strength[best] > 0 else None


def strongest_by_variance(
    values: np.ndarray, read: Callable[[int], NumericColumn], feature: int, n_features: int
) -> int | None:
    """Return the feature that best explains the SHAP values of another one beyond its own value.

    This is an approximation for explanations whose model is not available. Rows are divided into up to 20
    bins with similar values of the feature; within a bin its SHAP values would follow a line if it acted
    alone. Every other feature divides the residuals into four classes (quartiles or categories), with missing
    values as a class of their own. The best feature has the largest sum of squares between its classes, less
    the sum that as many random classes would have (analysis of variance). The result is None if no feature
    explains clearly more than random classes.

    ``values`` are the SHAP values of ``feature``, and ``read`` returns the column of a feature by its
    position.
    """
    column = read(feature)
    n_bins = int(np.clip(len(values) // _ROWS_IN_BIN, 1, _BINS))
    bins = _quantile_classes(column, n_bins)
    residuals = _residuals(values.astype(np.float64), column, bins)
    total, n_filled = float(residuals @ residuals), len(distinct_numbers(bins))
    best, best_score = None, 0.0
    for other in range(n_features):
        if other == feature:
            continue
        classes = _quantile_classes(read(other), _CLASSES)
        _, cells = np.unique(bins * (classes.max() + 1) + classes, return_inverse=True)
        counts = np.bincount(cells)
        between = float((np.bincount(cells, residuals) ** 2 / counts).sum())
        freedom = len(values) - len(counts)
        if freedom < 1:
            continue
        variance, extra_freedom = (total - between) / freedom, len(counts) - n_filled
        score = between - extra_freedom * variance
        if score > max(best_score, _DEVIATIONS * np.sqrt(2 * extra_freedom) * variance, _ROUNDING * total):
            best, best_score = other, score
    return best


def _quantile_classes(column: NumericColumn, n: int) -> np.ndarray:
    """Return the number of each row's class: its category or one of about n quantiles.

    Missing values are the last class.
    """
    missing = column.missing
    classes = np.zeros(len(missing), np.int64)
    present = column.numbers[~missing]
    if column.categories is not None:
        classes[~missing] = present.astype(np.int64)
    elif len(present):
        cuts = distinct_numbers(np.quantile(present, np.arange(1, n) / n, method="lower"))
        classes[~missing] = np.searchsorted(cuts, present)
    classes[missing] = classes.max() + 1
    return classes


def _residuals(values: np.ndarray, column: NumericColumn, bins: np.ndarray) -> np.ndarray:
    """Subtract a line from the values of each bin or, for categories and missing values, their mean."""
    counts = np.maximum(np.bincount(bins), 1)
    residuals = values - (np.bincount(bins, values) / counts)[bins]
    if column.categories is not None:
        return residuals
    x = np.where(np.isfinite(column.numbers), column.numbers, 0.0)
    x -= (np.bincount(bins, x) / counts)[bins]
    square = np.bincount(bins, x * x)
    slope = np.bincount(bins, x * residuals) / np.where(square > 0, square, 1.0)
    return residuals - slope[bins] * x
