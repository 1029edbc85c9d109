"""A tree of scikit-learn without its estimator: ``sklearn.tree._tree.Tree``, as ``tree_`` holds it.

The margin is the result of ``Tree.predict``. The leaves of a tree for regression hold the value of each
target. The leaves of a tree for classes hold their fractions; for two classes, the only output is the
fraction of the second class. The tree knows no names: columns have positions, and classes have numbers.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from sklearn.exceptions import NotFittedError

from ..errors import UnsupportedModelError
from .ensemble import Ensemble
from .schema import AdaptedModel, InputSchema, counts_of, pair_names
from .sklearn_trees import nodes_of, tree_of_nodes

#: Largest difference from 1 of the sum of fractions, which scikit-learn computes by as many additions as
#: there are classes, in float64.
_MOST_ROUNDING = 1e-9


def adapt(tree: Any) -> AdaptedModel:
    """Read a tree; raise ``UnsupportedModelError`` if its leaves do not hold fractions of classes.

    Raise ``NotFittedError`` if the tree has no nodes.
    """
    if not tree.node_count:
        raise NotFittedError("this Tree has no nodes: fit the estimator that it belongs to")
    n_classes = np.asarray(tree.n_classes).tolist()
    values, is_binary = _values(tree.value, n_classes), n_classes == [2]
    names: tuple[Any, ...] | None = None
    if len(n_classes) > 1 and max(n_classes) > 1:
        names = pair_names((target, label) for target, n in enumerate(n_classes) for label in range(n))
    elif len(n_classes) == 1 and n_classes[0] > 2:
        names = tuple(range(n_classes[0]))
    n_outputs = 1 if is_binary else values.shape[1]
    node_values = values[:, -1] if n_outputs == 1 else values
    read = tree_of_nodes(nodes_of("the Tree", tree), node_values)
    return AdaptedModel(
        Ensemble.from_trees([read], n_features=tree.n_features, intercept=np.zeros(n_outputs)),
        InputSchema(n_features=tree.n_features, allow_nan=True, allow_inf=True, allow_sparse_nan=False),
        family="sklearn",
        output_names=names,
        binary="probability" if is_binary else None,
        class_names=(0, 1) if is_binary else None,
        link="identity" if max(n_classes) > 1 else None,
        cover_kind="weight",
        other_covers=counts_of([read]),
        predictions={"raw": partial(_predict, tree, n_classes)},
    )


def _values(value: np.ndarray, n_classes: list[int]) -> np.ndarray:
    """Return the outputs of each node, for each class of each target: (n_nodes, n_outputs)."""
    if max(n_classes) > 1:
        sums = value.sum(axis=2)
        if (value < 0).any() or np.abs(sums - 1).max() > _MOST_ROUNDING:
            raise UnsupportedModelError(
                "cannot explain a Tree for classes whose values are no fractions of the classes, so that it "
                "is not known what they are: pass the estimator that the tree belongs to"
            )
    return _beside_each_other(value, n_classes)


def _predict(tree: Any, n_classes: list[int], X: Any) -> np.ndarray:
    with np.errstate(over="ignore"):
        values = tree.predict(np.asarray(X, np.float32))
    if len(n_classes) == 1:
        return values[:, 1] if n_classes == [2] else values
    return _beside_each_other(values.reshape(len(values), len(n_classes), -1), n_classes)


def _beside_each_other(values: np.ndarray, n_classes: list[int]) -> np.ndarray:
    """Return the values (n, n_targets, most classes) beside each other, without those of missing classes."""
    return np.hstack([values[:, target, :n] for target, n in enumerate(n_classes)])
