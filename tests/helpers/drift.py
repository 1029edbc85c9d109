"""Explanations to compare, and the population stability index by its definition."""

from __future__ import annotations

from fractions import Fraction
from math import log
from typing import Any

import numpy as np

from skshapgpu import Explanation


def explanation(values: Any, **changes: Any) -> Explanation:
    """Return an explanation of given values, (n_rows, n_features[, n_outputs])."""
    values = np.asarray(values)
    facts: dict[str, Any] = {
        "values": values,
        "base_values": 0.0 if values.ndim == 2 else np.zeros(values.shape[2]),
        "data": None,
        "feature_names": tuple(f"f{i}" for i in range(values.shape[1])),
    }
    return Explanation(**facts | changes)


def psi_by_definition(reference: Any, current: Any, n_bins: int, largest: float) -> float:
    """Compute one feature's index from exact fractions, value by value; ``largest`` is an importance."""
    unit = largest * 1e-5
    ours: dict[int, int] = {}
    for value in reference:
        ours[round(value / unit)] = ours.get(round(value / unit), 0) + 1
    ordered, total = sorted(ours), sum(ours.values())
    quantiles: list[int] = []
    for level in range(1, n_bins):
        below = 0
        for key in ordered:
            below += ours[key]
            if Fraction(below, total) >= Fraction(level, n_bins):
                quantiles.append(key)
                break
    edges = set()
    for key in set(quantiles):
        place = ordered.index(key)
        after = ordered[place + 1] if place + 1 < len(ordered) else key + 3
        before = ordered[place - 1] if place else key - 3
        edges.add(Fraction(key + after, 2))
        if ours[key] * n_bins > total:
            edges.add(Fraction(before + key, 2))
    bins = sorted(edges)

    def fractions(values: Any) -> list[float]:
        filled = [0] * (len(bins) + 1)
        for value in values:
            filled[sum(round(value / unit) > edge for edge in bins)] += 1
        return [max(count / len(values), 1e-4) for count in filled]

    return sum((q - p) * log(q / p) for p, q in zip(fractions(reference), fractions(current)))
