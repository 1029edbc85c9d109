"""Trees in CatBoost's JSON export, symmetric ones and others, as arrays of nodes; see ``model.py``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .._numbers import finite_reals, real


class Rule(NamedTuple):
    """A split; ``code`` is -1 if the split is numeric."""

    column: int
    threshold: float
    missing_left: bool
    code: int


_RULE = np.dtype(
    [("column", np.int32), ("threshold", np.float64), ("missing_left", np.bool_), ("code", np.int32)]
)
_NO_RULE = Rule(0, 0.0, True, -1)


class _TreeArrays(NamedTuple):
    """Arrays with an entry, or a row, for each node of a tree; ``cover`` is None without leaf weights."""

    left: np.ndarray
    right: np.ndarray
    rules: np.ndarray
    cover: np.ndarray | None
    value: np.ndarray


def read_trees(
    document: dict[str, Any], rule: Callable[[dict[str, Any]], Rule], n_outputs: int
) -> list[_TreeArrays]:
    """Read the trees, all of them symmetric or none; ``rule`` reads a split."""
    symmetric = "oblivious_trees" in document
    read_tree = _symmetric_tree if symmetric else _nested_tree
    listed_trees = document["oblivious_trees" if symmetric else "trees"]
    if not isinstance(listed_trees, list) or not listed_trees:
        raise ValueError("the CatBoost model has no trees, so that CatBoost itself makes no predictions")
    return [read_tree(tree, rule, n_outputs) for tree in listed_trees]


def _symmetric_tree(
    tree: dict[str, Any], rule: Callable[[dict[str, Any]], Rule], n_outputs: int
) -> _TreeArrays:
    """Expand a symmetric tree into a full binary tree, in which node i has the children 2i + 1 and 2i + 2."""
    splits = [rule(split) for split in tree["splits"] or []]
    leaf_value, weight = finite_reals(tree["leaf_values"], "leaf_values"), tree.get("leaf_weights")
    n_leaves = 1 << len(splits)
    if leaf_value.size != n_leaves * n_outputs:
        raise ValueError(f"a CatBoost tree has {len(splits)} splits but {leaf_value.size} leaf values")
    levels = np.array([*splits[::-1], _NO_RULE], _RULE)
    node = np.arange(2 * n_leaves - 1, dtype=np.int32)
    inner = node < n_leaves - 1
    value = np.zeros((len(node), n_outputs))
    value[~inner] = leaf_value.reshape(n_leaves, n_outputs)
    return _TreeArrays(
        np.where(inner, 2 * node + 1, -1),
        np.where(inner, 2 * node + 2, -1),
        np.repeat(levels, 1 << np.arange(len(levels))),
        None if weight is None else _symmetric_covers(finite_reals(weight, "leaf_weights"), len(splits)),
        value,
    )


def _symmetric_covers(weight: np.ndarray, n_splits: int) -> np.ndarray:
    """Return the covers of all nodes, from the root on, added up from the weights of the leaves."""
    if weight.shape != (1 << n_splits,):
        raise ValueError(f"a CatBoost tree has {n_splits} splits but {weight.size} leaf weights")
    cover = [weight]
    for _ in range(n_splits):
        cover.append(cover[-1].reshape(-1, 2).sum(axis=1))
    return np.concatenate(cover[::-1])


def _nested_tree(tree: dict[str, Any], rule: Callable[[dict[str, Any]], Rule], n_outputs: int) -> _TreeArrays:
    """Flatten a nested tree. Its nodes are numbered breadth first, so that parents precede children."""
    nodes = [tree]
    zeros = [0.0] * n_outputs
    left, rules, cover, value = [], [], [], []
    has_cover = True
    for node in nodes:
        if "split" in node:
            left.append(len(nodes))
            rules.append(rule(node["split"]))
            cover.append(0.0)
            value.append(zeros)
            nodes += [node["left"], node["right"]]
        else:
            left.append(-1)
            rules.append(_NO_RULE)
            has_cover &= "weight" in node
            cover.append(real(node.get("weight", 0.0), "weight"))
            value.append(finite_reals(node["value"] if n_outputs > 1 else [node["value"]], "value").tolist())
    for i in reversed(range(len(nodes))):
        if left[i] >= 0:
            cover[i] = cover[left[i]] + cover[left[i] + 1]
    first = np.array(left)
    return _TreeArrays(
        first,
        np.where(first < 0, -1, first + 1),
        np.array(rules, _RULE),
        np.array(cover) if has_cover else None,
        np.array(value, np.float64).reshape(len(nodes), n_outputs),
    )
