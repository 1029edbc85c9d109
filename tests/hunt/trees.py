"""One tree, read independently of the package, and the path-dependent coalition values.

The value of a coalition is computed by walking down each tree: at a node of a known column, the walk follows
the row; at any other node, both children are averaged by their covers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp


@dataclass(frozen=True, eq=False)
class Tree:
    """One tree: a leaf has no children (-1); ``goes_left(node, column)`` decides for many rows."""

    left: np.ndarray
    right: np.ndarray
    feature: np.ndarray
    cover: np.ndarray
    value: np.ndarray  # (n_nodes, n_outputs)
    threshold: np.ndarray  # NaN where a node asks for a category
    goes_left: Callable[[int, np.ndarray], np.ndarray]


def coalition_values(trees: list[Tree], X: np.ndarray, n_outputs: int) -> np.ndarray:
    """Compute the values of all coalitions of columns, without the intercept: (2^p, n_rows, n_outputs)."""
    p = X.shape[1]
    masks = np.arange(2**p)
    is_known = [((masks >> j) & 1 == 1)[:, None, None] for j in range(p)]
    total = np.zeros((len(masks), len(X), n_outputs))
    for tree in trees:
        total += _expected(tree, 0, X, is_known)
    return total


def _expected(tree: Tree, node: int, X: np.ndarray, is_known: list[np.ndarray]) -> np.ndarray:
    left, right = tree.left[node], tree.right[node]
    if left < 0:
        return tree.value[node][None, None, :]
    j = tree.feature[node]
    first, second = _expected(tree, left, X, is_known), _expected(tree, right, X, is_known)
    left_cover, right_cover = tree.cover[left], tree.cover[right]
    share = 0.5 if left_cover + right_cover == 0 else left_cover / (left_cover + right_cover)
    follows = np.asarray(tree.goes_left(node, X[:, j]))[None, :, None]
    return np.where(is_known[j], np.where(follows, first, second), share * first + (1 - share) * second)


def counted(trees: list[Tree], X: np.ndarray, weights: np.ndarray | None) -> list[Tree]:
    """Return the trees with covers counted from rows; nodes below a node without rows keep their covers."""
    weights = np.ones(len(X)) if weights is None else weights
    # If a model has a negative sum of hessians, it has no covers; both children then have the same weight.
    has_covers = all((tree.cover >= 0).all() for tree in trees)
    counted_trees = []
    for tree in trees:
        weight, cover = np.zeros(len(tree.left)), tree.cover.astype(np.float64) * has_covers
        pending = [(0, np.arange(len(X)))]
        while pending:
            node, rows = pending.pop()
            weight[node] = weights[rows].sum()
            if tree.left[node] >= 0:
                left = np.asarray(tree.goes_left(node, X[rows, tree.feature[node]]), bool)
                pending += [(tree.left[node], rows[left]), (tree.right[node], rows[~left])]
        for parent in np.flatnonzero((tree.left >= 0) & (weight > 0)):
            for child in (tree.left[parent], tree.right[parent]):
                cover[child] = weight[child]
        counted_trees.append(replace(tree, cover=cover))
    return counted_trees


def used_columns(trees: list[Tree]) -> set[int]:
    """Return the columns that some node splits on."""
    return {int(j) for tree in trees for j in tree.feature[tree.left >= 0]}


def is_encodable(transformed: Any) -> bool:
    """Return whether :func:`encoded` can read X."""
    return isinstance(transformed, (np.ndarray, pd.DataFrame)) or sp.issparse(transformed)


def encoded(transformed: Any, categories: dict[int, list[Any]], absent: float = 0.0) -> np.ndarray:
    """Return X as float64, with categories as their positions in training; unknown categories are NaN."""
    if sp.issparse(transformed):
        coo = transformed.tocoo()
        dense = np.full(transformed.shape, absent)
        dense[coo.row, coo.col] = coo.data
        return dense
    if not isinstance(transformed, pd.DataFrame):
        if transformed.dtype == object:  # a union may stack columns with missing values of pandas
            transformed = np.where(pd.isna(transformed), np.nan, transformed)
        return np.asarray(transformed, np.float64)
    columns = []
    for j in range(transformed.shape[1]):
        series = transformed.iloc[:, j]
        if j in categories:
            code = {value: float(i) for i, value in enumerate(categories[j])}
            columns.append(np.array([code.get(value, np.nan) for value in series], np.float64))
        else:
            columns.append(series.to_numpy(np.float64, na_value=np.nan))
    return np.column_stack(columns) if columns else np.zeros((len(transformed), 0))
