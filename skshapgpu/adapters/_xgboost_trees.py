"""Trees of an XGBoost model whose fields have been checked by ``_xgboost_fields.py``, as arrays of nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import UnsupportedModelError
from . import _xgboost_fields as fields

#: Limit on the number of outputs if only some trees have vector leaves. In that case, the nodes of the other
#: trees take memory for all outputs, too.
_MAX_MIXED_OUTPUTS = 64


def outputs_of_tree(tree: dict[str, Any]) -> int:
    """Return the number of outputs of a tree, but not more than it has values."""
    width = fields.leaf_width(tree)
    return min(width, len(_leaf_weights(tree))) if width > 1 else 1


def have_cover(trees: Sequence[dict[str, Any]]) -> bool:
    """Return whether all trees have sums of hessians and no sum is negative, so that they are covers.

    Trees with several outputs in a leaf have sums of hessians since XGBoost 3.2. If the objective is not
    convex, like "survival:cox" and some custom objectives, sums may be negative.
    """
    if not all("sum_hessian" in tree for tree in trees):
        return False
    return not (fields.joined(trees, "sum_hessian", np.float64) < 0).any()


def attributes_of_trees(
    trees: Sequence[dict[str, Any]],
    weights: np.ndarray,
    tree_output: np.ndarray,
    n_outputs: int,
    has_cover: bool,
) -> dict[str, np.ndarray]:
    """Return the attributes of :class:`Ensemble` that describe trees and nodes."""
    sizes = np.array([len(tree["left_children"]) for tree in trees], np.int64)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    left = fields.joined(trees, "left_children", np.int32)
    right = fields.joined(trees, "right_children", np.int32)
    leaf = left == -1
    condition = fields.joined(trees, "split_conditions", np.float64)
    has_vectors = any(fields.leaf_width(tree) > 1 for tree in trees)
    right[leaf] = -1  # in a leaf with several outputs, XGBoost stores the number of the leaf here
    categorical = ~leaf & (fields.joined(trees, "split_type", np.uint8) != 0)
    nodes = {
        "left": left,
        "right": right,
        "feature": fields.joined(trees, "split_indices", np.int32),
        "threshold": np.where(leaf | categorical, 0.0, condition),
        "missing_left": fields.joined(trees, "default_left", np.uint8) != 0,
        "cover": fields.joined(trees, "sum_hessian", np.float64) if has_cover else np.zeros(len(left)),
        "value": _vector_values(trees, weights, tree_output, n_outputs)
        if has_vectors
        else np.where(leaf, condition * np.repeat(weights, sizes), 0.0)[:, None],
    }
    if has_vectors:
        tree_output = np.full(len(trees), -1)
    sets: dict[str, np.ndarray] = {}
    if categorical.any():
        sets = _category_sets(trees, offsets, categorical)
        nodes["category_set"] = sets.pop("category_set")
    nodes, offsets = _without_pruned(nodes, offsets)
    _require_finite(nodes, offsets)
    return {"tree_offsets": offsets, "tree_output": tree_output, **nodes, **sets}


def _require_finite(nodes: dict[str, np.ndarray], offsets: np.ndarray) -> None:
    """Reject trees whose leaf values, or their sums, or Hessian sums overflow because training diverged."""
    finite = np.isfinite(nodes["cover"]) & np.isfinite(nodes["value"]).all(axis=1)
    if not finite.all():
        tree = int(np.searchsorted(offsets, np.argmin(finite), side="right")) - 1
        raise UnsupportedModelError(
            f"training diverged: tree {tree} of this model has leaf values or sums of hessians that are not "
            "finite; train it again with a lower learning_rate, a rescaled target or another base_score"
        )
    if len(offsets) > 1:
        largest = np.maximum.reduceat(np.abs(nodes["value"]).max(axis=1), offsets[:-1]).sum()
        if largest > np.finfo(np.float32).max:
            raise UnsupportedModelError(
                f"training diverged: the largest leaves of this model add up to {largest:.2g}, which "
                "overflows in XGBoost; train it again with a lower learning_rate, a rescaled target or "
                "another base_score"
            )


def _vector_values(
    trees: Sequence[dict[str, Any]], weights: np.ndarray, tree_output: np.ndarray, n_outputs: int
) -> np.ndarray:
    """Return leaf values if some trees have all outputs in a leaf; continued training can mix such trees."""
    n_nodes = sum(len(tree["left_children"]) for tree in trees)
    n_weights = sum(len(_leaf_weights(tree)) for tree in trees if fields.leaf_width(tree) > 1)
    if n_nodes * n_outputs > _MAX_MIXED_OUTPUTS * n_nodes + 4 * n_weights:
        raise ValueError(
            f"only a small part of the model's nodes hold values of its {n_outputs} outputs: trees with one "
            f"output can be explained together with trees of at most {_MAX_MIXED_OUTPUTS}"
        )
    values, begin = np.zeros((n_nodes, n_outputs)), 0
    for tree, weight, output in zip(trees, weights, tree_output):
        leaf = np.flatnonzero(tree["left_children"] == -1)
        value = values[begin : begin + len(tree["left_children"])]
        begin += len(value)
        if fields.leaf_width(tree) == 1:
            if not 0 <= output < n_outputs:
                raise ValueError(f"a tree adds to output {output}, but the model has {n_outputs}")
            value[leaf, output] = tree["split_conditions"][leaf] * weight
        else:
            by_leaf = "leaf_weights" in tree
            n_vectors = len(leaf) if by_leaf else len(value)
            if fields.leaf_width(tree) != n_outputs or len(_leaf_weights(tree)) != n_vectors * n_outputs:
                raise ValueError(f"a tree's leaves do not hold the model's {n_outputs} outputs")
            number = tree["right_children"][leaf] if by_leaf else leaf
            if ((number < 0) | (number >= n_vectors)).any():
                raise ValueError("a leaf has no values")
            value[leaf] = _leaf_weights(tree).reshape(-1, n_outputs)[number] * weight
    return values


def _leaf_weights(tree: dict[str, Any]) -> np.ndarray:
    """Return the values of leaves with several outputs; before XGBoost 3.2, the values of all nodes."""
    weights: np.ndarray = tree["leaf_weights"] if "leaf_weights" in tree else tree["base_weights"]
    return weights


def _category_sets(
    trees: Sequence[dict[str, Any]], offsets: np.ndarray, categorical: np.ndarray
) -> dict[str, np.ndarray]:
    """Return the category attributes of :class:`Ensemble`; the codes that XGBoost lists go right."""
    node = fields.joined(trees, "categories_nodes", np.int64)
    node += np.repeat(offsets[:-1], [len(tree["categories_nodes"]) for tree in trees])
    sizes = fields.joined(trees, "categories_sizes", np.int64)
    category_set = np.full(len(categorical), -1, np.int32)
    category_set[node] = np.arange(len(node))
    if (category_set[categorical] < 0).any():
        raise ValueError("a categorical split lists no categories")
    category_set[~categorical] = -1  # a node that pruning has turned into a leaf still has a list
    return {
        "category_set": category_set,
        "category_offsets": np.concatenate([[0], np.cumsum(sizes)]),
        "category_values": fields.joined(trees, "categories", np.int32),
        "category_listed_left": np.zeros(len(node), bool),
    }


def _without_pruned(
    nodes: dict[str, np.ndarray], offsets: np.ndarray
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Drop pruned nodes, which XGBoost leaves in the arrays."""
    left, right, sizes = nodes["left"], nodes["right"], np.diff(offsets)
    inner = left >= 0
    n_inner = np.diff(np.concatenate([[0], np.cumsum(inner)])[offsets])
    pruned = 2 * n_inner + 1 != sizes
    if not pruned.any():
        return nodes, offsets
    start = np.repeat(offsets[:-1], sizes)
    is_reached = np.repeat(~pruned, sizes)
    level, unvisited = offsets[:-1][pruned], int(sizes[pruned].sum())
    while len(level):
        unvisited -= len(level)
        if unvisited < 0:
            raise ValueError("a tree contains a cycle, or a node with two parents")
        is_reached[level] = True
        level = level[inner[level]]
        level = np.concatenate([left[level] + start[level], right[level] + start[level]])
    number = np.cumsum(is_reached) - 1
    remaining = {name: array[is_reached] for name, array in nodes.items()}
    for name in ("left", "right"):
        remaining[name] = np.where(inner, number[nodes[name] + start] - number[start], -1)[is_reached]
    return remaining, np.concatenate([number[offsets[:-1]], [len(remaining["left"])]])
