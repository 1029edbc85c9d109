"""The nodes of Spark's trees, as its ``NodeData`` has them, and the :class:`Ensemble` of them.

A numeric split sends x left if x <= threshold, in float64, and so NaN right. A categorical split lists the
categories that go left. Spark keeps the shorter list of the two sides: if no more than half of all
categories go left, every other value goes right, whether it is another category, a number that is none, or
NaN; else, every value that is not among the categories to the right goes left.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..ensemble import Ensemble
from ..schema import Column

#: Fields of Spark's ``NodeData`` and of the splits in it.
FIELDS = {
    "nodes": frozenset(
        "gain id impurity impurityStats leftChild prediction rawCount rightChild split".split()
    ),
    "splits": frozenset({"featureIndex", "leftCategoriesOrThreshold", "numCategories"}),
}


@dataclass(frozen=True)
class Lists:
    """A list of numbers for each node, in one array."""

    start: np.ndarray
    length: np.ndarray
    values: np.ndarray

    @classmethod
    def of(cls, length: np.ndarray, values: np.ndarray) -> Lists:
        """Return lists that follow one another."""
        return cls(np.cumsum(length) - length, length, values)

    def of_node(self, node: Any) -> np.ndarray:
        """Return the list of a node."""
        start = self.start[node]
        return self.values[start : start + self.length[node]]


@dataclass(frozen=True)
class Nodes:
    """The nodes of all trees, in order.

    Attributes
    ----------
    tree : ndarray of int64, shape (n_nodes,)
    left, right : ndarray of int64, shape (n_nodes,)
        Children within the tree, -1 at leaves.
    feature : ndarray of int64, shape (n_nodes,)
    n_categories : ndarray of int64, shape (n_nodes,)
        -1 at a numeric split.
    split : Lists
        The threshold of a numeric split, and the categories that go left of others; undefined at leaves.
    prediction : ndarray of float64, shape (n_nodes,)
    stats : Lists
        Sums of weights of training rows: of each class, or one, which sums of targets follow.
    count : ndarray of int64, shape (n_nodes,), or None
        Numbers of training rows, if they are known.
    """

    tree: np.ndarray
    left: np.ndarray
    right: np.ndarray
    feature: np.ndarray
    n_categories: np.ndarray
    split: Lists
    prediction: np.ndarray
    stats: Lists
    count: np.ndarray | None

    @property
    def n_trees(self) -> int:
        return int(self.tree[-1]) + 1

    @classmethod
    def sorted(
        cls, tree: np.ndarray, node: np.ndarray, split: Lists, stats: Lists, columns: dict[str, np.ndarray]
    ) -> Nodes:
        """Return nodes in the order of their trees and numbers.

        ``columns`` are the other attributes, and "count" if there is one.

        Raises
        ------
        ValueError
            Trees and nodes are not numbered from 0 on.
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
        found = {name: values[order] for name, values in columns.items()}
        count = found.pop("count", None)
        return cls(
            tree=tree,
            split=Lists(split.start[order], split.length[order], split.values),
            stats=Lists(stats.start[order], stats.length[order], stats.values),
            count=None if count is None or (count < 0).any() else count,  # -1 in models of Spark 2
            **found,
        )


@dataclass(frozen=True)
class Categories:
    """Encoder of a categorical column: Spark knows categories only by their numbers."""

    def encode(self, column: Column) -> np.ndarray:
        """Return float64 codes, -1 where a number is no category, NaN where it is NaN.

        Raises
        ------
        ValueError
            The column does not contain numbers.
        """
        try:
            texts = column.values.tolist() if column.values.dtype.kind == "O" else ()
            if column.codes is not None or any(isinstance(text, (str, bytes)) for text in texts):
                raise TypeError
            codes = np.array(column.values, np.float64)
        except (TypeError, ValueError):
            raise ValueError(
                f"column {column.name!r} is categorical or text, but a model of Spark knows only the numbers "
                "of categories, as StringIndexer returns them: pass these"
            ) from None
        is_other = (codes < 0) | (codes > np.iinfo(np.int32).max) | (codes != np.floor(codes))
        codes[is_other & ~np.isnan(codes)] = -1.0
        return codes


def ensemble(
    nodes: Nodes, value: np.ndarray, cover: np.ndarray, n_features: int
) -> tuple[Ensemble, dict[int, Categories]]:
    """Return the trees, whose leaves have some values, and the encoders of categorical columns.

    Parameters
    ----------
    nodes : Nodes
    value : ndarray of float64, shape (n_nodes,) or (n_nodes, n_outputs)
        Values of the leaves, of one output or of all; those of other nodes are ignored.
    cover : ndarray of float64, shape (n_nodes,)
    n_features : int

    Raises
    ------
    ValueError
        The nodes are not trees, or their splits are not valid.
    """
    inner = nodes.left >= 0
    categorical = inner & (nodes.n_categories != -1)
    numeric = inner & ~categorical
    if (nodes.split.length[numeric] != 1).any():
        raise ValueError("a numeric split does not have one threshold")
    both = np.intersect1d(nodes.feature[categorical], nodes.feature[numeric])
    if len(both):
        raise ValueError(f"feature {both[0]} has numeric and categorical splits")
    threshold = np.zeros(len(inner))
    threshold[numeric] = nodes.split.values[nodes.split.start[numeric]]
    value = value.reshape(len(inner), -1)
    sets, others_left = _category_sets(nodes, np.flatnonzero(categorical))
    missing_left = np.zeros(len(inner), bool)
    missing_left[categorical] = others_left
    found = Ensemble(
        n_features=n_features,
        tree_offsets=np.concatenate([[0], np.cumsum(np.bincount(nodes.tree))]),
        tree_output=np.full(nodes.n_trees, -1 if value.shape[1] > 1 else 0, np.int32),
        left=nodes.left,
        right=nodes.right,
        feature=np.where(inner, nodes.feature, 0),
        threshold=threshold,
        missing_left=missing_left,
        cover=cover,
        value=np.where(inner[:, None], 0.0, value),
        intercept=np.zeros(value.shape[1]),
        x_dtype="float64",
        **sets,
    )
    return found, {int(feature): Categories() for feature in np.unique(nodes.feature[categorical])}


def _category_sets(nodes: Nodes, categorical: np.ndarray) -> tuple[dict[str, Any], np.ndarray]:
    """Return the category attributes of :class:`Ensemble`, and which nodes send unknown values left."""
    if not len(categorical):
        return {}, np.empty(0, bool)
    category_set = np.full(len(nodes.left), -1, np.int32)
    category_set[categorical] = np.arange(len(categorical))
    lists, others_left = [], []
    for node in categorical:
        n_categories = int(nodes.n_categories[node])
        left = np.unique(nodes.split.of_node(node))
        if n_categories < 1:
            raise ValueError(f"a categorical split has {n_categories} categories")
        if len(left) < nodes.split.length[node] or not np.isin(left, np.floor(left)).all():
            raise ValueError("a categorical split lists a category twice, or a number that is none")
        if len(left) and not (left[0] >= 0 and left[-1] < n_categories):
            raise ValueError(f"a categorical split lists a category outside 0..{n_categories - 1}")
        are_left = len(left) > n_categories // 2
        lists.append(np.setdiff1d(np.arange(n_categories), left) if are_left else left.astype(np.int64))
        others_left.append(are_left)
    return {
        "category_set": category_set,
        "category_offsets": np.concatenate([[0], np.cumsum([len(each) for each in lists])]),
        "category_values": np.concatenate(lists),
        "category_listed_left": ~np.array(others_left),
    }, np.array(others_left)
