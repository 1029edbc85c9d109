"""How far two samples of values, and two rankings of features, are apart."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from scipy.stats import rankdata

from .._common.distinct import distinct_numbers

#: Smallest fraction of a bin in the population stability index, which would be infinite for an empty bin.
PSI_FLOOR = 1e-4

#: For the population stability index, values are rounded to multiples of this fraction of the largest mean
#: |value|. It is a hundred times the rounding error of single precision.
ROUNDING = 1e-5


class Wasserstein:
    """Wasserstein distance of two samples, from their values in ascending order.

    It is the area between the two distribution functions. The totals are the sums of the weights of each
    sample.
    """

    def __init__(self, reference_total: float, current_total: float) -> None:
        self._totals = reference_total, current_total
        self._below = 0.0, 0.0
        self._last: float | None = None
        self.distance = 0.0

    def add(self, values: np.ndarray, reference: np.ndarray, current: np.ndarray) -> None:
        """Add values that follow the previous ones in ascending order, with their weights in each sample."""
        if not len(values):
            return
        if self._last is not None:
            values = np.concatenate([[self._last], values])
            reference = np.concatenate([[0.0], reference])
            current = np.concatenate([[0.0], current])
        ours, theirs = self._below[0] + reference.cumsum(), self._below[1] + current.cumsum()
        apart = np.abs(ours / self._totals[0] - theirs / self._totals[1])
        self.distance += float(apart[:-1] @ np.diff(values))
        self._below, self._last = (float(ours[-1]), float(theirs[-1])), float(values[-1])


class QuantileBins:
    """Bins of about equal weight in the reference, from its values in ascending order.

    Values are rounded to whole multiples of ``unit``. Quantiles are the smallest values at which the
    distribution function reaches 1/n_bins, 2/n_bins and so on, where the sum of the weights is ``total``.
    Each quantile is the last value of a bin. A value with more than 1/n_bins of the weight has a bin of its
    own. An edge is halfway between two neighbouring values of the reference. Beyond the smallest and largest
    value, it is 1.5 units away from them.
    """

    def __init__(self, n_bins: int, total: float, unit: float) -> None:
        self._unit = unit
        self._frequent = total / n_bins
        self._levels = np.arange(1, n_bins) * total / n_bins
        self._cumulated, self._previous = 0.0, -np.inf
        self._last: tuple[float, float] | None = None  # the last value, and its weight so far
        self._edges: list[tuple[float, float]] = []

    def add(self, values: np.ndarray, weights: np.ndarray) -> None:
        """Add values of the reference that follow the previous ones in ascending order."""
        in_reference = weights > 0
        keys, weights = np.rint(values[in_reference] / self._unit), weights[in_reference]
        if self._last is not None:
            keys = np.concatenate([[self._last[0]], keys])
            weights = np.concatenate([[self._last[1]], weights])
        if not len(keys):
            return
        starts = np.flatnonzero(np.diff(keys, prepend=-np.inf))
        keys, weights = keys[starts], np.add.reduceat(weights, starts)
        self._last = float(keys[-1]), float(weights[-1])
        self._add_edges(keys[:-1], weights[:-1], float(keys[-1]))

    def _add_edges(self, keys: np.ndarray, weights: np.ndarray, following: float) -> None:
        """Add the edges at the quantiles among distinct values; ``following`` is the value after them."""
        if not len(keys):
            return
        cumulated = self._cumulated + weights.cumsum()
        for i in distinct_numbers(np.searchsorted(cumulated, self._levels[self._levels <= cumulated[-1]])):
            key = keys[i]
            above = keys[i + 1] if i + 1 < len(keys) else following
            below = keys[i - 1] if i else self._previous
            upper = key + 1.5 if np.isinf(above) else (key + above) / 2
            lower = key - 1.5 if np.isinf(below) else (key + below) / 2
            self._edges.append((lower if weights[i] > self._frequent else upper, upper))
        self._levels = self._levels[self._levels > cumulated[-1]]
        self._cumulated, self._previous = float(cumulated[-1]), float(keys[-1])

    def edges(self) -> np.ndarray:
        """Return the edges between the bins, in units, after all values were added."""
        if self._last is not None:
            self._add_edges(np.array([self._last[0]]), np.array([self._last[1]]), np.inf)
            self._last = None
        return distinct_numbers(self._edges)

    def count(self, pieces: Iterable[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
        """Return the weight in each bin of the reference, and of the current sample.

        ``pieces`` are pairs of values and weights. Weights of the current sample are negative.
        """
        edges = self.edges()
        ours, theirs = np.zeros((2, len(edges) + 1))
        for values, weights in pieces:
            bins = np.searchsorted(edges, np.rint(values / self._unit))
            ours += np.bincount(bins, np.maximum(weights, 0.0), len(ours))
            theirs += np.bincount(bins, np.maximum(-weights, 0.0), len(ours))
        return ours, theirs


def population_stability(reference: np.ndarray, current: np.ndarray) -> float:
    """Return the population stability index of the weights in each bin."""
    ours, theirs = (np.maximum(weights / weights.sum(), PSI_FLOOR) for weights in (reference, current))
    return float(((theirs - ours) * np.log(theirs / ours)).sum())


def ranks(importances: np.ndarray) -> np.ndarray:
    """Return the rank of each feature: 1 for the largest importance, and the best rank for all in a tie."""
    return rankdata(-importances, method="min").astype(np.int64)


def ndcg(reference: np.ndarray, current: np.ndarray) -> float:
    """Return the nDCG of the ranking by ``current``, with the importances in ``reference`` as gains.

    Tied features share the mean of their discounts. If all importances are zero, the result is 1. If only the
    importances in the reference are zero, it is 0. Rounding errors are removed, so that equal orders give 1.
    """
    if not reference.any():
        return float(not current.any())
    return round(_gain(reference, current) / _gain(reference, reference), 12)


def _gain(gains: np.ndarray, scores: np.ndarray) -> float:
    """Return the discounted cumulative gain of the features in descending order of scores."""
    discounts = np.concatenate([[0.0], (1 / np.log2(np.arange(len(scores)) + 2)).cumsum()])
    _, group, sizes = np.unique(-scores, return_inverse=True, return_counts=True)
    ends = sizes.cumsum()
    return float(gains @ ((discounts[ends] - discounts[ends - sizes]) / sizes)[group])
