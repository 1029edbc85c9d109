"""A model as a dictionary of trees, in the form in which ``shap.TreeExplainer`` takes custom models.

``{"trees": [...], "base_offset": ..., "tree_output": ..., "objective": ..., "input_dtype": ...,
"internal_dtype": ...}``; only the trees are required. Each tree is a dictionary of arrays with an entry for
each node, the root first:

=======================================  =================================================================
``children_left``, ``children_right``    numbers of the children; -1 in leaves
``children_default``                     number of the child to which missing values go; ignored in leaves
``features``, ``thresholds``             a row goes left if its value of the feature is <= the threshold;
                                         ignored in leaves
``values``                               (n_nodes, n_outputs), or (n_nodes,) for one output; of leaves only
``node_sample_weight``                   weight of the training rows in the node
=======================================  =================================================================

The margin is the sum of the trees and of ``base_offset``. X is rounded to ``input_dtype``, thresholds and
values to ``internal_dtype``; both are float64 by default, as in shap. The form does not say how many columns
X has. The entry ``"n_features"``, which shap ignores, says it; without it, the last column that a tree tests
is the last column of X.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from ..errors import UnsupportedModelError
from ._known import require_known
from .ensemble import Ensemble, Tree
from .schema import AdaptedModel, InputSchema

_MODEL_KEYS = frozenset(
    "trees base_offset tree_output objective input_dtype internal_dtype n_features".split()
)
_TREE_KEYS = (
    "children_left",
    "children_right",
    "children_default",
    "features",
    "thresholds",
    "values",
    "node_sample_weight",
)

#: The link, by ``tree_output``: what the trees add up to, as shap calls it.
_LINKS: dict[Any, Literal["identity", "logistic"] | None] = {
    None: None,
    "raw_value": None,
    "log_odds": "logistic",
    "probability": "identity",
}
_OBJECTIVES = frozenset((None, "squared_error", "absolute_error", "binary_crossentropy"))


def adapt(model: Mapping[str, Any]) -> AdaptedModel:
    """Read a dictionary of trees.

    Raise ``ValueError`` if an entry is missing or contradicts another one, and ``UnsupportedModelError`` if
    an entry or its value is unknown.
    """
    name = "the dictionary of trees"
    require_known(name, "entries", model, _MODEL_KEYS)
    require_known(name, "values of tree_output", [model.get("tree_output")], frozenset(_LINKS))
    require_known(name, "objectives", [model.get("objective")], _OBJECTIVES)
    x_dtype, dtype = (_dtype(model, key) for key in ("input_dtype", "internal_dtype"))
    listed = model["trees"]
    if not isinstance(listed, (list, tuple)) or not listed:
        raise ValueError("trees must be a list of at least one dictionary")
    trees = [_tree(number, tree, dtype) for number, tree in enumerate(listed)]
    n_outputs = {np.shape(tree.value)[1] for tree in trees}
    if len(n_outputs) > 1:
        raise ValueError(
            f"the trees have values of {sorted(n_outputs)} outputs: all must have the same number"
        )
    (k,) = n_outputs
    offset = np.asarray(model.get("base_offset", 0.0), np.float64)
    if offset.shape not in ((), (1,), (k,)) or not np.isfinite(offset).all():
        raise ValueError(f"base_offset must be a finite number, or one for each of the {k} outputs")
    if k == 1:
        trees = [replace(tree, value=np.ravel(tree.value)) for tree in trees]
    ensemble = Ensemble.from_trees(
        trees, n_features=_n_features(model, trees), intercept=np.broadcast_to(offset, k), x_dtype=x_dtype
    )
    link = _LINKS[model.get("tree_output")]
    is_binary = k == 1 and link is not None
    return AdaptedModel(
        ensemble,
        InputSchema(n_features=ensemble.n_features),
        family="shap",
        binary=None if not is_binary else "margin" if link == "logistic" else "probability",
        class_names=(0, 1) if is_binary else None,
        link=link if is_binary or link == "identity" else None,
        squared_error=k == 1 and link is None and model.get("objective") == "squared_error",
        cover_kind="weight",
    )


def _dtype(model: Mapping[str, Any], key: str) -> str:
    dtype = np.dtype(model.get(key, np.float64)).name
    if dtype not in ("float32", "float64"):
        raise UnsupportedModelError(f"cannot explain a dictionary of trees with {key}={dtype}: pass float64")
    return dtype


def _tree(number: int, tree: Any, dtype: str) -> Tree:
    if not isinstance(tree, Mapping):
        raise ValueError(f"tree {number} must be a dictionary of arrays, not {type(tree).__name__}")
    if missing := [key for key in _TREE_KEYS if key not in tree]:
        raise ValueError(
            f"tree {number} has no {missing[0]!r}; a tree has the entries {', '.join(_TREE_KEYS)}"
        )
    require_known(f"tree {number} of the dictionary", "entries", tree, frozenset(_TREE_KEYS))
    arrays = {key: _array(number, key, tree[key]) for key in _TREE_KEYS}
    left, right = arrays["children_left"], arrays["children_right"]
    for key, array in arrays.items():
        if len(array) != len(left):
            raise ValueError(
                f"{key} of tree {number} must have {len(left)} entries, like children_left, not {len(array)}"
            )
    leaf, default = left < 0, arrays["children_default"]
    astray = ~leaf & (default != left) & (default != right)
    if astray.any():
        raise ValueError(
            f"children_default of node {np.argmax(astray)} of tree {number} is neither its left nor its "
            "right child"
        )
    values = arrays["values"].astype(dtype).astype(np.float64)
    return Tree(
        left=np.where(leaf, -1, left),
        right=np.where(right < 0, -1, right),
        feature=np.where(leaf, 0, arrays["features"]),
        threshold=np.where(leaf, 0.0, arrays["thresholds"].astype(dtype).astype(np.float64)),
        missing_left=~leaf & (default == left),
        cover=arrays["node_sample_weight"].astype(np.float64),
        value=np.where(leaf[:, np.newaxis], values, 0.0),
    )


def _array(number: int, key: str, entry: Any) -> np.ndarray:
    """Return an entry of a tree as an array with a row for each node."""
    array, is_integer = np.asarray(entry), key.startswith("children") or key == "features"
    if array.dtype.kind not in ("iu" if is_integer else "iuf"):
        raise ValueError(
            f"{key} of tree {number} must hold {'integers' if is_integer else 'numbers'}, not {array.dtype}"
        )
    if key == "values" and array.ndim == 1:
        array = array[:, np.newaxis]
    if array.ndim != (2 if key == "values" else 1) or not array.size:
        raise ValueError(
            f"{key} of tree {number} must have an entry for each node, not the shape {array.shape}"
        )
    return array.astype(np.int64) if is_integer else array


def _n_features(model: Mapping[str, Any], trees: list[Tree]) -> int:
    least = 1 + max(int(np.asarray(tree.feature).max()) for tree in trees)
    n_features = model.get("n_features", least)
    if not isinstance(n_features, (int, np.integer)) or n_features < least:
        raise ValueError(f"n_features must be an integer of at least {least}, the columns that trees test")
    return int(n_features)
