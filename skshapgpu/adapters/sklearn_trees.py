"""Trees of scikit-learn, and how its models read X."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.exceptions import NotFittedError
from sklearn.tree._tree import Tree as SklearnTree

from .._common.distinct import distinct_numbers
from ..errors import UnsupportedModelError
from ._known import require_known
from ._subclasses import require_own_method
from .ensemble import Tree
from .schema import ColumnEncoder, InputSchema
from .sklearn_categories import BITSET, HASH, LEAF, NUMERIC, NativeCategories, refuse_categories

#: Known parts of the state of trees, and fields of their nodes. scikit-learn 1.10 has the last two fields.
_TREE_STATE = frozenset(("max_depth", "node_count", "nodes", "values"))
_NODE_FIELDS = frozenset(
    "left_child right_child feature threshold impurity n_node_samples weighted_n_node_samples "
    "missing_go_to_left left_cat_bitset split_kind".split()
)

_SPLIT_KINDS = frozenset((LEAF, NUMERIC, BITSET, HASH))


def require_trees(
    model: Any,
    estimators: Iterable[Any],
    kind: type,
    method: str,
    package: str = "sklearn",
    *,
    has_categories: bool = False,
) -> list[Any]:
    """Return the members as a list; raise unless all are of the ``kind``, with the package's ``method``.

    With ``has_categories``, the caller reads the native categories of the model.
    """
    estimators = list(estimators)
    name = type(model).__name__
    if not estimators or any(e is None for e in estimators):
        raise NotFittedError(f"This {name} instance is not fitted yet: its training did not finish.")
    if not has_categories and any(np.any(getattr(e, "is_categorical_", False)) for e in [model, *estimators]):
        raise refuse_categories(f"a {name}", "which are not read from this kind of model")
    for cls in {type(e) for e in estimators}:
        if not issubclass(cls, kind):
            raise UnsupportedModelError(
                f"cannot explain a {name} of {cls.__name__}: each member must be a {kind.__name__}"
            )
        require_own_method(f"{name} of {cls.__name__}", cls, method, package)
    return estimators


def require_all_members(model: Any) -> None:
    """Reject a bag whose numbers of members contradict each other."""
    n_fitted, n_listed = len(model.estimators_), len(model.estimators_features_)
    if not n_fitted == n_listed == model.n_estimators:
        raise UnsupportedModelError(
            f"this {type(model).__name__} has {n_fitted} estimators_ and {n_listed} estimators_features_ for "
            f"n_estimators={model.n_estimators}: train it anew, or cut all three to the same length"
        )


def read_tree(
    estimator: Any,
    value: np.ndarray,
    *,
    columns: np.ndarray | None = None,
    output: int = 0,
    categories: NativeCategories | None = None,
) -> Tree:
    """Read a tree, and give its nodes a value; ``columns`` are the columns of X that it was trained on."""
    name = f"the {type(estimator).__name__}"
    nodes = nodes_of(name, estimator.tree_, has_categories=categories is not None)
    tree = tree_of_nodes(nodes, value, columns=columns, output=output)
    if categories is None or "split_kind" not in (nodes.dtype.names or ()):
        return tree
    return replace(tree, categories=categories.lists(name, nodes, np.asarray(tree.feature)))


def tree_of_nodes(
    nodes: np.ndarray, value: np.ndarray, *, columns: np.ndarray | None = None, output: int = 0
) -> Tree:
    """Return the tree of :func:`nodes_of`, as :func:`read_tree` does."""
    leaf = nodes["left_child"] < 0
    feature = nodes["feature"]
    # scikit-learn 1.6 can write NaN beside missing values; no number is at most NaN, nor at most -inf.
    threshold = np.where(np.isnan(nodes["threshold"]), -np.inf, nodes["threshold"])
    return Tree(
        left=nodes["left_child"],
        right=nodes["right_child"],
        feature=feature if columns is None else columns[np.where(leaf, 0, feature)],
        threshold=threshold,
        missing_left=nodes["missing_go_to_left"],
        cover=nodes["weighted_n_node_samples"],
        value=np.where(leaf.reshape((-1,) + (1,) * (value.ndim - 1)), value, 0.0),
        output=output,
        count=nodes["n_node_samples"],
    )


def nodes_of(name: str, tree: Any, kind: type = SklearnTree, *, has_categories: bool = False) -> np.ndarray:
    """Return the nodes of a tree; reject unknown kinds of trees and unknown fields.

    ``name`` is the model as messages call it. ``kind`` is the class of trees that the model may have. Only
    with ``has_categories``, the tree may split by native categories.
    """
    state = tree.__getstate__()
    require_known(name, "fields of its tree", state, _TREE_STATE)
    nodes: np.ndarray = state["nodes"]
    require_known(name, "fields of its tree's nodes", nodes.dtype.names or (), _NODE_FIELDS)
    require_known(name, "kinds of trees", (type(tree),), frozenset({kind}))
    if "split_kind" in (nodes.dtype.names or ()):
        _require_known_splits(name, tree, nodes, has_categories)
    return nodes


def _require_known_splits(name: str, tree: Any, nodes: np.ndarray, has_categories: bool) -> None:
    """Reject a tree of scikit-learn 1.10 that compares other than float32 numbers, or splits otherwise."""
    kinds, inner = nodes["split_kind"], nodes["left_child"] >= 0
    require_known(name, "kinds of splits", distinct_numbers(kinds).tolist(), _SPLIT_KINDS)
    if not has_categories and np.isin(kinds[inner], (BITSET, HASH)).any():
        raise refuse_categories(name, "but not their encoder")
    if (kinds[inner] == LEAF).any():
        raise ValueError(f"{name} contradicts itself: a node with children says that it is a leaf")
    try:
        tree.apply(np.zeros((1, tree.n_features)))
    except (TypeError, ValueError):  # as until now, trees take float32 only
        return
    raise UnsupportedModelError(
        f"cannot explain {name}: its tree takes float64, and this version of skshapgpu does not know in "
        "which precision it compares: use a later version of skshapgpu"
    )


def input_schema(
    model: Any, allow_nan: bool, allow_inf: bool = False, encoders: Mapping[int, ColumnEncoder] | None = None
) -> InputSchema:
    """Return how a model, of scikit-learn or with its conventions, reads X."""
    names = getattr(model, "feature_names_in_", None)
    return InputSchema(
        n_features=model.n_features_in_,
        feature_names=None if names is None else tuple(map(str, names)),
        warns_as=type(model).__name__,
        allow_nan=allow_nan,
        allow_inf=allow_inf,
        # Trees refuse NaN in sparse matrices, or send it right whatever they learned (isolation forest).
        allow_sparse_nan=False,
        encoders=encoders or {},
    )


def accepts_nan(tree: Any) -> bool:
    """Return whether a tree accepts NaN.

    This depends on the splitter and, in older releases, on the criterion and on monotonic constraints, so ask
    the tree. It uses X only to check that it is not sparse.
    """
    return tree._support_missing_values(np.empty((0, 0)))
