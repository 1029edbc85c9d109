"""Trees as their libraries store them, read independently of the package.

The readers use only the libraries' own documents, neither the package's adapters nor its formulas. Each
reader is checked: the value of the coalition of all columns must equal the library's margin.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from . import readers_boosting, readers_sklearn, sums
from .margins import library_of
from .trees import Tree, encoded


def leaf_ranges(model: Any) -> np.ndarray:
    """Return the sum over the trees of the range of their leaves, for each output of a leaf."""
    return np.sum([np.ptp(tree.value[tree.left < 0], axis=0) for tree in trees_of(model)], axis=0)


def largest_leaves(model: Any) -> np.ndarray:
    """Return the sum over the trees of the largest magnitude in each tree, for each output of a leaf."""
    return np.sum([np.abs(tree.value).max(axis=0) for tree in trees_of(model)], axis=0)


def readable(model: Any) -> bool:
    """Return whether :func:`trees_of` supports the model.

    It supports no categories of CatBoost, no linear leaves of LightGBM, no model of scikit-survival and no
    sums of models.
    """
    if has_linear_leaves(model) or library_of(model) == "sksurv" or sums.is_sum(model):
        return False
    return library_of(model) != "catboost" or not model.get_cat_feature_indices()


def has_linear_leaves(model: Any) -> bool:
    """Return whether a model's leaves are linear functions of X, as with linear_tree=True in LightGBM."""
    return library_of(model) == "lightgbm" and readers_boosting.has_linear_leaves(model)


def linear_magnitude(model: Any, largest: np.ndarray) -> np.ndarray:
    """Sum the terms of each tree's largest linear leaf over the trees: (n_outputs,).

    ``largest`` has the largest magnitude of each column.
    """
    return readers_boosting.linear_magnitude(model, largest)


def trees_of(model: Any) -> list[Tree]:
    """Read the trees of a model, scaled as they are added."""
    read = {
        "sklearn": readers_sklearn.trees,
        "xgboost": readers_boosting.xgboost_trees,
        "lightgbm": readers_boosting.lightgbm_trees,
        "catboost": readers_boosting.catboost_trees,
    }
    return list(read[library_of(model)](model))


def rows_of(model: Any, transformed: Any, categories: dict[int, list[Any]]) -> np.ndarray:
    """Return rows as a model's trees compare them; ``categories`` are the training frame's, by column."""
    library = library_of(model)
    if library == "sklearn":
        return readers_sklearn.rows(model, transformed)
    if library == "lightgbm":
        if isinstance(transformed, np.ndarray):
            transformed = as_lightgbm_reads(model, transformed)
        return encoded(transformed, categories)
    with np.errstate(over="ignore"):
        if library == "catboost":
            return encoded(transformed, {}).astype(np.float32)
        rows = encoded(transformed, categories, absent=np.nan).astype(np.float32)
    missing = np.float32(getattr(model, "missing", np.nan))
    return np.where(rows == missing, np.nan, rows)


def as_lightgbm_reads(model: Any, X: np.ndarray) -> np.ndarray:
    """Return an array as LightGBM reads it.

    A booster rounds numbers that are not native floats; a wrapper converts objects to float64 first.
    """
    exact = "f4 f8".split() if type(model).__name__ == "Booster" else "f4 f8 O".split()
    return X if X.dtype in [np.dtype(name) for name in exact] else X.astype(np.float32)
