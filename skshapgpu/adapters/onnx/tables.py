"""The nodes and leaf weights of a tree ensemble operator, in one form for all operators.

``TreeEnsembleRegressor`` and ``TreeEnsembleClassifier`` list nodes and weights of leaves, which refer to
nodes by the numbers of tree and node. ``TreeEnsemble`` lists inner nodes and leaves, which have one output
each, and refers to them by position.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..._common.distinct import distinct_numbers
from ...errors import UnsupportedModelError
from .messages import Tensor

#: Modes of nodes, in the order of their numbers in ``TreeEnsemble``: comparisons, which lead to the true
#: child if they hold, and leaves.
LEQ, LT, GTE, GT, EQ, NEQ, MEMBER, LEAF = range(8)
_MODES = {
    b"BRANCH_LEQ": LEQ,
    b"BRANCH_LT": LT,
    b"BRANCH_GTE": GTE,
    b"BRANCH_GT": GT,
    b"BRANCH_EQ": EQ,
    b"BRANCH_NEQ": NEQ,
    b"LEAF": LEAF,
}

Attributes = Mapping[str, Any]


@dataclass(frozen=True)
class NodeTable:
    """Nodes of all trees, tree by tree, the root first."""

    offsets: np.ndarray  # int64, (n_trees + 1,): first node of each tree, and the number of nodes
    mode: np.ndarray  # int64, (n_nodes,)
    feature: np.ndarray  # int64, (n_nodes,)
    threshold: np.ndarray  # float64, (n_nodes,): not NaN, except at leaves
    #: bool, (n_nodes,): whether missing values go to the true child, whatever the comparison.
    tracks_true: np.ndarray
    true: np.ndarray  # int64, (n_nodes,): true child, numbered over all trees; undefined at leaves
    false: np.ndarray  # int64, (n_nodes,): false child, numbered over all trees; undefined at leaves
    members: dict[int, np.ndarray]  # values of each node with the mode MEMBER
    weight_node: np.ndarray  # int64, (n_weights,)
    weight_output: np.ndarray  # int64, (n_weights,)
    #: float64, (n_weights,): weights of leaves. A weight is for one output, and a leaf has at most one weight
    #: for an output.
    weight: np.ndarray
    dtypes: set[np.dtype[Any]]  # types of the tensors that hold thresholds and weights

    def __post_init__(self) -> None:
        if ((self.mode != LEAF) & np.isnan(self.threshold)).any():
            raise ValueError("a node has a NaN threshold")

    @property
    def n_trees(self) -> int:
        return len(self.offsets) - 1


def read_listed(attributes: Attributes, kind: str) -> NodeTable:
    """Read the attributes of a regressor (kind "target") or a classifier (kind "class")."""
    tree_id, node_id = (integers(attributes, f"nodes_{name}") for name in ("treeids", "nodeids"))
    for name, numbers in (("treeids", tree_id), ("nodeids", node_id)):
        if (numbers != numbers.astype(np.int32)).any():
            raise ValueError(f"its nodes_{name} have a number outside the range of int32")
    n_nodes = len(tree_id)
    modes = attributes["nodes_modes"]
    if not isinstance(modes, list) or len(modes) != n_nodes or not n_nodes:
        raise ValueError("its nodes_modes do not fit its nodes_treeids")
    unknown = set(modes) - _MODES.keys()
    if unknown:
        raise ValueError(f"it has a node of the unknown mode {min(unknown)!r:.80}")
    mode = np.array([_MODES[name] for name in modes], np.int64)
    tracks = attributes.get("nodes_missing_value_tracks_true", np.empty(0, np.int64))
    tracks_true = integers({"tracks": tracks}, "tracks", n_nodes if len(tracks) else 0) == 1
    threshold, threshold_dtype = _reals(attributes, "nodes_values", n_nodes)
    changes = np.flatnonzero(np.diff(tree_id)) + 1
    offsets = np.concatenate([[0], changes, [n_nodes]])
    if len(distinct_numbers(tree_id[offsets[:-1]])) != len(offsets) - 1:
        raise ValueError("the nodes of a tree are not side by side")
    positions = _NodePositions(tree_id, node_id)
    inner = np.flatnonzero(mode != LEAF)
    children = []
    for name in ("truenodeids", "falsenodeids"):
        child = np.full(n_nodes, -1, np.int64)
        child[inner] = positions.find(tree_id[inner], integers(attributes, f"nodes_{name}", n_nodes)[inner])
        children.append(child)
    weight_tree = integers(attributes, f"{kind}_treeids")
    n_weights = len(weight_tree)
    weight_node = positions.find(weight_tree, integers(attributes, f"{kind}_nodeids", n_weights))
    output = integers(attributes, f"{kind}_ids", n_weights)
    weight, weight_dtype = _reals(attributes, f"{kind}_weights", n_weights)
    # Old converters gave weights to inner nodes, too, which have no effect.
    is_leaf_weight = mode[weight_node] == LEAF
    without_weight = mode == LEAF
    without_weight[weight_node] = False
    if (without_weight & (threshold != 0)).any():
        raise UnsupportedModelError(
            "the ONNX model has a leaf with a threshold but no weight: some runtimes add the threshold"
        )
    return NodeTable(
        offsets=offsets,
        mode=mode,
        feature=integers(attributes, "nodes_featureids", n_nodes),
        threshold=threshold,
        tracks_true=tracks_true if len(tracks) else np.zeros(n_nodes, bool),
        true=children[0],
        false=children[1],
        members={},
        weight_node=weight_node[is_leaf_weight],
        weight_output=output[is_leaf_weight],
        weight=weight[is_leaf_weight],
        dtypes={dtype for dtype in (threshold_dtype, weight_dtype) if dtype is not None},
    )


class _NodePositions:
    """The position of each node, by the numbers of tree and node."""

    def __init__(self, tree_id: np.ndarray, node_id: np.ndarray) -> None:
        self._tree_ids, self._node_ids = distinct_numbers(tree_id), distinct_numbers(node_id)
        keys = self._keys(tree_id, node_id)
        self._order = np.argsort(keys, kind="stable")
        self._sorted_keys = keys[self._order]
        if (np.diff(self._sorted_keys) == 0).any():
            raise ValueError("two of its nodes have the same numbers")

    def _keys(self, tree_id: np.ndarray, node_id: np.ndarray) -> np.ndarray:
        keys = np.zeros(len(tree_id), np.int64)
        for distinct, ids, factor in (
            (self._tree_ids, tree_id, len(self._node_ids)),
            (self._node_ids, node_id, 1),
        ):
            rank = np.minimum(np.searchsorted(distinct, ids), len(distinct) - 1)
            self._require(distinct[rank] == ids, tree_id, node_id)
            keys += rank * factor
        return keys

    @staticmethod
    def _require(exists: np.ndarray, tree_id: np.ndarray, node_id: np.ndarray) -> None:
        if not exists.all():
            first = int(np.argmin(exists))
            raise ValueError(
                f"it refers to node {node_id[first]} of tree {tree_id[first]}, which it does not have"
            )

    def find(self, tree_id: np.ndarray, node_id: np.ndarray) -> np.ndarray:
        keys = self._keys(tree_id, node_id)
        position = np.minimum(np.searchsorted(self._sorted_keys, keys), len(self._sorted_keys) - 1)
        self._require(self._sorted_keys[position] == keys, tree_id, node_id)
        return self._order[position]


def read_indexed(attributes: Attributes) -> NodeTable:
    """Read the attributes of a ``TreeEnsemble``."""
    roots = integers(attributes, "tree_roots")
    feature = integers(attributes, "nodes_featureids")
    n_inner = len(feature)
    mode = _tensor(attributes, "nodes_modes", n_inner, np.uint8).astype(np.int64)
    splits = _tensor(attributes, "nodes_splits", n_inner)
    weights = _tensor(attributes, "leaf_weights")
    output = integers(attributes, "leaf_targetids", len(weights))
    tracks = attributes.get("nodes_missing_value_tracks_true", np.zeros(n_inner, np.int64))
    tracks_true = integers({"tracks": tracks}, "tracks", n_inner) == 1
    if (
        not len(roots)
        or ((roots < 0) | (roots >= n_inner)).any()
        or len(distinct_numbers(roots)) < len(roots)
    ):
        raise ValueError("its tree_roots are not different nodes")
    if ((mode < 0) | (mode > MEMBER)).any():
        raise ValueError("it has a node of an unknown mode")
    child, is_leaf = (
        np.stack([integers(attributes, f"nodes_{side}{kind}", n_inner) for side in ("true", "false")])
        for kind in ("nodeids", "leafs")
    )
    is_leaf = is_leaf != 0
    if ((child < 0) | (child >= np.where(is_leaf, len(weights), n_inner))).any():
        raise ValueError("a node has a child that does not exist")
    tree = _trees_of_nodes(roots, child, is_leaf)
    below_roots = tree >= 0
    below_roots[roots] = False
    order = np.concatenate([roots, np.flatnonzero(below_roots)])
    # Leaves are numbered after the inner nodes. Several nodes may share a leaf: it then has several numbers.
    side, index = np.nonzero(is_leaf[:, order])
    parent = order[index]
    leaf_item = child[side, parent]
    leaf = n_inner + np.arange(len(parent))
    child[side, parent] = leaf
    child[:, tree < 0] = 0  # these nodes are in no tree, and are left out
    number, tree_of_number = np.concatenate([order, leaf]), np.concatenate([tree[order], tree[parent]])
    position = np.full(n_inner + len(leaf), -1)
    position[number[np.argsort(tree_of_number, kind="stable")]] = np.arange(len(number))

    def placed(values: np.ndarray, leaf_entry: Any) -> np.ndarray:
        entries = np.full(len(number), leaf_entry, values.dtype)
        entries[position[order]] = values[order]
        return entries

    members = _members(attributes, np.flatnonzero(mode == MEMBER), splits.dtype)
    return NodeTable(
        offsets=np.concatenate([[0], np.cumsum(np.bincount(tree_of_number, minlength=len(roots)))]),
        mode=placed(mode, LEAF),
        feature=placed(feature, 0),
        threshold=placed(np.where(mode == MEMBER, 0.0, splits).astype(np.float64), 0.0),
        tracks_true=placed(tracks_true, False),
        true=placed(position[child[0]], -1),
        false=placed(position[child[1]], -1),
        members={int(position[node]): values for node, values in members.items() if position[node] >= 0},
        weight_node=position[leaf],
        weight_output=output[leaf_item],
        weight=weights.astype(np.float64)[leaf_item],
        dtypes={splits.dtype, weights.dtype},
    )


def _trees_of_nodes(roots: np.ndarray, child: np.ndarray, is_leaf: np.ndarray) -> np.ndarray:
    """Return the number of the tree of each inner node; -1 if it is in no tree."""
    n_nodes = child.shape[1]
    side, parent = np.nonzero(~is_leaf)
    children = child[side, parent]
    if (np.bincount(np.concatenate([roots, children]), minlength=n_nodes) > 1).any():
        raise ValueError("a node is reached in more than one way")
    ancestor = np.arange(n_nodes)
    ancestor[children] = parent
    for _ in range(n_nodes.bit_length()):  # a round doubles the distance; from a cycle, no root is reached
        ancestor = ancestor[ancestor]
    tree = np.full(n_nodes, -1)
    tree[roots] = np.arange(len(roots))
    return tree[ancestor]


def _members(attributes: Attributes, nodes: np.ndarray, dtype: np.dtype[Any]) -> dict[int, np.ndarray]:
    """Return the values of each node with the mode MEMBER; in the attribute, NaN separates the nodes."""
    if not len(nodes):
        return {}
    values = _tensor(attributes, "membership_values", dtype=dtype).astype(np.float64)
    ends = np.flatnonzero(np.isnan(values))
    lists = np.split(values, ends)
    if len(lists) > len(nodes) and not len(lists[-1][1:]):  # the last list may end with NaN, too
        lists.pop()
    if len(lists) != len(nodes):
        raise ValueError(f"its membership_values are {len(lists)} lists for {len(nodes)} nodes")
    sets = [items[~np.isnan(items)] for items in lists]
    if not all(map(len, sets)):
        raise ValueError("its membership_values have a list without values")
    return dict(zip(nodes.tolist(), sets))


def integers(attributes: Attributes, name: str, length: int | None = None) -> np.ndarray:
    """Return a list of integers; raise ``KeyError`` if it is missing, ``ValueError`` if it does not fit."""
    items = attributes[name]
    if type(items) is not np.ndarray or items.dtype != np.int64:
        raise ValueError(f"its {name} are not a list of integers")
    return _fitting(items, name, length)


def _reals(attributes: Attributes, name: str, length: int) -> tuple[np.ndarray, np.dtype[Any] | None]:
    """Return a list of floats or a tensor as float64, and the dtype of the tensor, None for a list."""
    items, tensor = attributes.get(name), attributes.get(f"{name}_as_tensor")
    if tensor is not None and (len(tensor) or items is None):
        if items is not None and len(items):
            raise ValueError(f"it has both {name} and {name}_as_tensor")
        items = _tensor(attributes, f"{name}_as_tensor", length)
        return items.astype(np.float64), items.dtype
    if items is None:
        raise KeyError(name)
    if type(items) is not np.ndarray or items.dtype != np.float32:
        raise ValueError(f"its {name} are not a list of floats")
    return _fitting(items, name, length).astype(np.float64), None


def base_values(attributes: Attributes) -> np.ndarray:
    """Return the base values as float64, empty if there are none."""
    forms = [attributes[name] for name in ("base_values", "base_values_as_tensor") if name in attributes]
    length = next((len(items) for items in forms if isinstance(items, np.ndarray) and len(items)), 0)
    values = _reals(attributes, "base_values", length)[0] if forms else np.empty(0)
    if not np.isfinite(values).all():
        raise ValueError("a base value is not finite")
    return values


def _tensor(
    attributes: Attributes, name: str, length: int | None = None, dtype: npt.DTypeLike | None = None
) -> np.ndarray:
    items = attributes[name]
    if not isinstance(items, Tensor):
        raise ValueError(f"its {name} are not a tensor")
    if dtype is not None and items.dtype != dtype:
        raise ValueError(f"its {name} are of {items.dtype} instead of {np.dtype(dtype)}")
    return _fitting(items.view(np.ndarray), name, length)


def _fitting(items: np.ndarray, name: str, length: int | None) -> np.ndarray:
    if length is not None and len(items) != length:
        raise ValueError(f"its {name} have {len(items)} items instead of {length}")
    return items
