"""Covers counted from rows by a slow and simple loop, one row and one node at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from skshapgpu.adapters.ensemble import Ensemble


def counted(
    ensemble: Ensemble, X: np.ndarray, weights: Any = None, *, has_cover: bool = True
) -> tuple[Ensemble, np.ndarray]:
    """Return the ensemble with covers counted from encoded rows, and the weight of the rows at each node.

    ``has_cover`` says whether the ensemble has covers, which nodes below a node without rows keep.
    """
    weights = np.ones(len(X)) if weights is None else np.asarray(weights, np.float64)
    with np.errstate(over="ignore"):
        X = np.asarray(X, np.float64).astype(ensemble.x_dtype)
    weight = np.zeros(ensemble.n_nodes)
    for root in ensemble.tree_offsets[:-1]:
        for row, w in zip(X, weights, strict=True):
            node = root
            weight[node] += w
            while ensemble.left[node] >= 0:
                x = row[ensemble.feature[node]]
                left = ensemble.goes_left(np.array([node]), np.array([x]))[0]
                node = root + (ensemble.left if left else ensemble.right)[node]
                weight[node] += w
    cover = weight.copy()
    for root, end in zip(ensemble.tree_offsets, ensemble.tree_offsets[1:]):
        for node in range(root, end):
            if ensemble.left[node] >= 0 and weight[node] == 0:
                children = [root + ensemble.left[node], root + ensemble.right[node]]
                cover[children] = ensemble.cover[children] if has_cover else 1.0
    return replace(ensemble, cover=cover), weight
