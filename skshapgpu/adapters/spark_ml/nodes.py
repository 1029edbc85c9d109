"""The nodes of Spark's trees, as its ``NodeData`` has them, and their conversion to an :class:`Ensemble`.

A numeric split sends x left if x <= threshold, in float64; NaN therefore goes right. A categorical split
lists the categories that go left, but Spark decides by the shorter of the two lists, left or right:

- If at most half of all categories go left, these go left. All other values go right, whether they are
  other categories, numbers that are no category, or NaN.
- If more categories go left, the categories that are not listed go right, and all other values go left.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..._common.distinct import distinct_numbers
from ..ensemble import Ensemble, category_attributes
from ..schema import Column, numbers_of_categories

#: Fields of Spark's ``NodeData`` and of the splits in it.
FIELDS = {
    "nodes": frozenset(
        "gain id impurity impurityStats leftChild prediction rawCount rightChild split".split()
    ),
    "splits": frozenset({"featureIndex", "leftCategoriesOrThreshold", "numCategories"}),
}


@dataclass(frozen=True)
class Lists:
    """A list of numbers for each node; ``values`` contains all lists."""

    start: np.ndarray
    length: np.ndarray
    values: np.ndarray

    @classmethod
    def consecutive(cls, length: np.ndarray, values: np.ndarray) -> Lists:
        """Return lists that follow one another in ``values``."""
        return cls(np.cumsum(length) - length, length, values)

    def items(self, node: Any) -> np.ndarray:
        """Return the list of a node."""
        start = self.start[node]
        return self.values[start : start + self.length[node]]


@dataclass(frozen=True)
class Nodes:
    """The nodes of all trees, in order."""

    tree: np.ndarray  # int64, (n_nodes,)
    left: np.ndarray  # int64, (n_nodes,): left child within the tree, -1 at leaves
    right: np.ndarray  # int64, (n_nodes,): right child within the tree, -1 at leaves
    feature: np.ndarray  # int64, (n_nodes,)
    n_categories: np.ndarray  # int64, (n_nodes,): -1 at a numeric split
    #: The threshold of a numeric split, or the categories that a categorical split sends left; undefined at
    #: leaves.
    split: Lists
    prediction: np.ndarray  # float64, (n_nodes,)
    #: For a classifier, the weight of the training rows of each class. For a regressor, the weight of all
    #: training rows, followed by sums of their targets.
    stats: Lists
    count: np.ndarray | None  # int64, (n_nodes,): numbers of training rows, if they are known

    @property
    def n_trees(self) -> int:
        return int(self.tree[-1]) + 1

    @classmethod
    def sorted(
        cls, tree: np.ndarray, node: np.ndarray, split: Lists, stats: Lists, columns: dict[str, np.ndarray]
    ) -> Nodes:
        """Return nodes in the order of their trees and numbers, which must count from 0.

        ``columns`` contains the other attributes by name; "count" may be missing.
        """
        order = np.lexsort((node, tree))
        tree, node = tree[order], node[order]
        if not len(tree):
            raise ValueError("it has no nodes")
        is_first = np.concatenate([[True], tree[1:] != tree[:-1]])
        starts = np.flatnonzero(is_first)
        if not np.array_equal(tree, np.cumsum(is_first) - 1):
            raise ValueError("its trees are not numbered from 0 on")
        if not np.array_equal(node, np.arange(len(node)) - starts[tree]):
            raise ValueError("the nodes of a tree are not numbered from 0 on")
        attributes = {name: values[order] for name, values in columns.items()}
        count = attributes.pop("count", None)
        return cls(
            tree=tree,
            split=Lists(split.start[order], split.length[order], split.values),
            stats=Lists(stats.start[order], stats.length[order], stats.values),
            count=None if count is None or (count < 0).any() else count,  # -1 in models of Spark 2
            **attributes,
        )


@dataclass(frozen=True)
class Categories:
    """Encoder of a categorical column: Spark knows categories only by their numbers."""

    def encode(self, column: Column) -> np.ndarray:
        """Return float64 codes, -1 where a number is no category; raise ``ValueError`` without numbers."""
        codes = numbers_of_categories(
            column,
            "a model of Spark knows only the numbers of categories that StringIndexer returns: pass these",
        )
        is_other = (codes < 0) | (codes > np.iinfo(np.int32).max) | (codes != np.floor(codes))
        codes[is_other & ~np.isnan(codes)] = -1.0
        return codes


def ensemble(
    nodes: Nodes, value: np.ndarray, cover: np.ndarray, n_features: int
) -> tuple[Ensemble, dict[int, Categories]]:
    """Return the ensemble of some nodes, and the encoders of its categorical columns.

    ``value`` has the values of the leaves, for one output or for all outputs; values of other nodes become 0.
    Raise ``ValueError`` if the nodes are not trees, or their splits are not valid.
    """
    inner = nodes.left >= 0
    categorical = inner & (nodes.n_categories != -1)
    numeric = inner & ~categorical
    if (nodes.split.length[numeric] != 1).any():
        raise ValueError("a numeric split does not have one threshold")
    mixed_features = np.intersect1d(nodes.feature[categorical], nodes.feature[numeric])
    if len(mixed_features):
        raise ValueError(f"feature {mixed_features[0]} has numeric and categorical splits")
    threshold = np.zeros(len(inner))
    threshold[numeric] = nodes.split.values[nodes.split.start[numeric]]
    value = value.reshape(len(inner), -1)
    value[inner] = 0.0
    sets, others_left = _category_sets(nodes, np.flatnonzero(categorical))
    missing_left = np.zeros(len(inner), bool)
    missing_left[categorical] = others_left
    trees = Ensemble(
        n_features=n_features,
        tree_offsets=np.concatenate([[0], np.cumsum(np.bincount(nodes.tree))]),
        tree_output=np.full(nodes.n_trees, -1 if value.shape[1] > 1 else 0, np.int32),
        left=nodes.left,
        right=nodes.right,
        feature=np.where(inner, nodes.feature, 0),
        threshold=threshold,
        missing_left=missing_left,
        cover=cover,
        value=value,
        intercept=np.zeros(value.shape[1]),
        x_dtype="float64",
        **sets,
    )
    return trees, {int(feature): Categories() for feature in distinct_numbers(nodes.feature[categorical])}


def _category_sets(nodes: Nodes, categorical: np.ndarray) -> tuple[dict[str, Any], np.ndarray]:
    """Return the category attributes of :class:`Ensemble`, and which nodes send unknown values left."""
    if not len(categorical):
        return {}, np.empty(0, bool)
    category_set = np.full(len(nodes.left), -1, np.int32)
    category_set[categorical] = np.arange(len(categorical))
    lists, others_left = [], []
    for node in categorical:
        n_categories = int(nodes.n_categories[node])
        left = distinct_numbers(nodes.split.items(node))
        if n_categories < 1:
            raise ValueError(f"a categorical split has {n_categories} categories")
        if len(left) < nodes.split.length[node] or not np.isin(left, np.floor(left)).all():
            raise ValueError("a categorical split lists a category twice, or a number that is no category")
        if len(left) and not (left[0] >= 0 and left[-1] < n_categories):
            raise ValueError(f"a categorical split lists a category outside 0..{n_categories - 1}")
        is_other_left = len(left) > n_categories // 2
        lists.append(np.setdiff1d(np.arange(n_categories), left) if is_other_left else left.astype(np.int64))
        others_left.append(is_other_left)
    return category_attributes(category_set, lists, ~np.array(others_left)), np.array(others_left)
