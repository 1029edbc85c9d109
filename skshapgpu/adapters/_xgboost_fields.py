"""The fields of an XGBoost model, checked as XGBoost's own loader checks them, and further.

A field has the type that XGBoost writes, in JSON and in UBJSON, and fields that say the same thing agree: the
number of nodes and the lengths of the arrays, children and parents, the number of trees and the ends of the
rounds. XGBoost itself reads some files that contradict themselves, and predicts other numbers from them or
crashes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .._common.distinct import distinct_numbers
from ._known import require_known
from ._numbers import reals, whole_in_string, whole_number, whole_numbers

#: Arrays of a tree with an item for each node, by name.
_NODE_ARRAYS: dict[str, npt.DTypeLike] = {
    **dict.fromkeys(("left_children", "right_children", "parents", "split_indices"), np.int32),
    **dict.fromkeys(("default_left", "split_type"), np.uint8),
    "split_conditions": np.float32,
}

#: Further arrays with an item for each node. Trees with several outputs in a leaf have them, and
#: leaf_weights, since XGBoost 3.2.
_STATISTICS: dict[str, npt.DTypeLike] = dict.fromkeys(("loss_changes", "sum_hessian"), np.float32)

#: Arrays of a tree that list the categories of its categorical nodes.
_CATEGORY_ARRAYS: dict[str, npt.DTypeLike] = {
    **dict.fromkeys(("categories", "categories_nodes"), np.int32),
    **dict.fromkeys(("categories_segments", "categories_sizes"), np.int64),
}

#: Last version of XGBoost, major and minor, that stores the weights of DART beside a gbtree, not in it.
_LAST_WRAPPING = (3, 2)

#: Parents of a root, the second one in trees with several outputs in a leaf.
_NO_PARENT = (2**31 - 1, -1)

#: Feature of a node that pruning has deleted, whose default_left is 1.
_DELETED = 2**31 - 1

#: XGBoost takes no larger number for a category, as float32 does not hold all of them.
_LARGEST_CATEGORY = 2**24

#: Known values of split_type: 0 is numeric, 1 is categorical.
_SPLIT_TYPES = frozenset({0, 1})


def strings(values: Any, name: str) -> list[str]:
    """Return a list of strings."""
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ValueError(f"{name} is {values!r:.80}, not a list of strings")
    return values


def strings_by_name(values: Any, name: str) -> dict[str, str]:
    """Return an object of strings."""
    if not isinstance(values, dict) or not all(isinstance(value, str) for value in values.values()):
        raise ValueError(f"{name} is {values!r:.80}, not an object of strings")
    return values


def require_objective(objective: dict[str, Any], n_classes: int) -> None:
    """Raise unless the parameters of the objective are strings, and its number of classes is the model's."""
    for name, value in objective.items():
        if name != "name":
            strings_by_name(value, name)
    if objective["name"].startswith("multi:"):
        n = whole_in_string(objective["softmax_multiclass_param"], "num_class")
        if n != n_classes:
            raise ValueError(f"num_class is {n_classes}, but {n} for the objective")


def version(document: dict[str, Any]) -> tuple[int, ...]:
    """Return the version of XGBoost that wrote the document."""
    numbers = whole_numbers(document["version"], "version", np.int32, low=0)
    if len(numbers) != 3:
        raise ValueError(f"version is {numbers.tolist()!r:.80}, not three numbers")
    return tuple(numbers.tolist())


def forest(booster: dict[str, Any], version: tuple[int, ...]) -> tuple[dict[str, Any], Any]:
    """Return the model with the trees, and the list of their weights, which are 1 without DART.

    Up to XGBoost 3.2, a DART booster wraps a gbtree, and XGBoost ignores weights in other places; later
    versions store them in the gbtree itself.
    """
    is_wrapped = booster["name"] == "dart"
    fits = booster.keys() == ({"gbtree", "name", "weight_drop"} if is_wrapped else {"model", "name"})
    gbtree = booster["gbtree"] if is_wrapped and fits else booster
    if not fits or gbtree.keys() != {"model", "name"} or gbtree["name"] != "gbtree":
        raise ValueError(f"the fields of the gradient_booster do not fit its name, {booster['name']!r}")
    model = gbtree["model"]
    if "weight_drop" in model and (is_wrapped or version[:2] <= _LAST_WRAPPING):
        raise ValueError("the model of a gradient_booster has a weight_drop, which XGBoost would ignore")
    if is_wrapped:
        return model, booster["weight_drop"]
    return model, model.get("weight_drop", [1.0] * len(model["trees"]))


def columns(learner: dict[str, Any], n_features: int) -> tuple[list[str], list[str]]:
    """Return the names and the types of the features: of all features, or none."""
    names, types = (strings(learner[f"feature_{kind}"], f"feature_{kind}") for kind in ("names", "types"))
    for noun, items in (("feature_names", names), ("feature_types", types)):
        if len(items) not in (0, n_features):
            raise ValueError(f"{noun} has {len(items)} items, but num_feature is {n_features}")
    return names, types


def rounds(forest: dict[str, Any]) -> np.ndarray:
    """Return the numbers of the trees at which the rounds begin, and the number of trees."""
    n_trees = len(forest["trees"])
    params = strings_by_name(forest["gbtree_model_param"], "gbtree_model_param")
    if (count := whole_in_string(params, "num_trees")) != n_trees:
        raise ValueError(f"num_trees is {count}, but the model has {n_trees} trees")
    whole_in_string(params, "num_parallel_tree", low=1)
    ends = whole_numbers(forest["iteration_indptr"], "iteration_indptr", np.int32, low=0)
    if not len(ends) or ends[0] != 0 or ends[-1] != n_trees or (np.diff(ends) < 0).any():
        raise ValueError(f"iteration_indptr does not rise from 0 to the number of trees, {n_trees}")
    return ends


def trees(forest: dict[str, Any], n_features: int) -> list[dict[str, Any]]:
    """Return the trees with an array for each list of numbers, after checking them."""
    listed = forest["trees"]
    if not isinstance(listed, list):
        raise ValueError(f"trees is {listed!r:.80}, not a list")
    checked = []
    for number, tree in enumerate(listed):
        try:
            checked.append(_tree(tree, number, n_features))
        except ValueError as error:
            raise ValueError(f"tree {number}: {error}") from error
    _require_links(checked)
    return checked


def leaf_width(tree: dict[str, Any]) -> int:
    """Return the number of values in each leaf of a tree."""
    return max(whole_in_string(tree["tree_param"], "size_leaf_vector"), 1)


def _tree(tree: dict[str, Any], number: int, n_features: int) -> dict[str, Any]:
    params = tree["tree_param"]
    n_nodes, width = whole_in_string(params, "num_nodes", low=1), leaf_width(tree)
    if whole_number(tree["id"], "id") != number:
        raise ValueError(f"id is {tree['id']}, not the number of the tree")
    if (n := whole_in_string(params, "num_feature")) != n_features:
        raise ValueError(f"num_feature is {n}, but {n_features} for the whole model")
    checked: dict[str, Any] = {"tree_param": params}
    arrays = {**_NODE_ARRAYS, "base_weights": np.float32}
    if width == 1 or not {"leaf_weights", *_STATISTICS}.isdisjoint(tree):
        arrays |= _STATISTICS
    for name, dtype in arrays.items():
        checked[name] = _array(tree[name], name, dtype)
        length = n_nodes * width if name == "base_weights" else n_nodes
        if len(checked[name]) != length:
            raise ValueError(f"{name} has {len(checked[name])} numbers instead of {length}")
    arrays |= _CATEGORY_ARRAYS
    if width > 1 and "sum_hessian" in tree:
        arrays["leaf_weights"] = np.float32
    for name in arrays.keys() - checked.keys():
        checked[name] = _array(tree[name], name, arrays[name])
    if len({type(tree[name]) for name in arrays}) > 1:
        raise ValueError("some of its arrays are typed, and some are lists")
    whole_in_string(params, "num_deleted")
    _require_categories(checked, n_nodes)
    return checked


def _array(values: Any, name: str, dtype: npt.DTypeLike) -> np.ndarray:
    if np.dtype(dtype).kind == "f":
        return reals(values, name, dtype, strict=True)
    return whole_numbers(values, name, dtype)


def _require_links(trees: list[dict[str, Any]]) -> None:
    """Raise unless children are nodes of their trees, each names its parent, and marks have known values.

    All trees are checked at once, as a model may have thousands of small ones.
    """
    sizes = np.array([len(tree["parents"]) for tree in trees], np.int64)
    tree_of = np.repeat(np.arange(len(trees)), sizes)
    start, n_nodes = np.repeat(np.cumsum(sizes) - sizes, sizes), np.repeat(sizes, sizes)
    names = ("left_children", "right_children", "parents", "split_indices")
    left, right, parent, feature = (joined(trees, name, np.int32) for name in names)
    default_left = joined(trees, "default_left", np.uint8)

    def require(is_right: np.ndarray, nodes: np.ndarray | slice, problem: str) -> None:
        if not is_right.all():
            raise ValueError(f"tree {tree_of[nodes][np.argmin(is_right)]}: {problem}")

    everywhere, number = slice(None), np.arange(len(start)) - start
    is_node = (parent >= 0) & (parent < n_nodes)
    is_node = np.where(number == 0, np.isin(parent, _NO_PARENT), is_node)
    require(is_node, everywhere, "parents has a number that is no node of the tree")
    inner = np.flatnonzero(left != -1)
    for children in (left[inner], right[inner]):
        is_node = (children >= 0) & (children < n_nodes[inner])
        require(is_node, inner, "a node has one child only, or a child outside its tree")
        fits = parent[start[inner] + children] == number[inner]
        require(fits, inner, "left_children and right_children do not fit parents")
    require(default_left <= 1, everywhere, "default_left has a number other than 0 and 1")
    require(feature >= 0, everywhere, "split_indices has a negative number")
    split_types = distinct_numbers(joined(trees, "split_type", np.uint8)).tolist()
    require_known("the XGBoost model", "kinds of splits", split_types, _SPLIT_TYPES)
    marked = np.bincount(tree_of[(feature == _DELETED) & (default_left == 1)], minlength=len(trees))
    for i, (tree, n_marked) in enumerate(zip(trees, marked)):
        if (n := int(tree["tree_param"]["num_deleted"])) != n_marked:
            raise ValueError(f"tree {i}: num_deleted is {n}, but other nodes are marked as deleted")


def _require_categories(tree: dict[str, Any], n_nodes: int) -> None:
    """Raise unless the categories of the nodes, which are listed in ascending order, lie side by side."""
    nodes, sizes, categories = (tree[f"categories{end}"] for end in ("_nodes", "_sizes", ""))
    starts = tree["categories_segments"]
    if len(nodes) != len(sizes) or len(nodes) != len(starts):
        raise ValueError("categories_nodes, categories_segments and categories_sizes have different lengths")
    if not len(nodes) and not len(categories):
        return
    if (sizes < 1).any() or (sizes > len(categories)).any() or sizes.sum() != len(categories):
        raise ValueError("categories_sizes does not add up to the number of categories")
    if (starts != np.cumsum(sizes) - sizes).any():
        raise ValueError("categories_segments does not fit categories_sizes")
    if nodes[0] < 0 or nodes[-1] >= n_nodes or (np.diff(nodes) <= 0).any():
        raise ValueError("categories_nodes are not nodes in ascending order")
    if categories.min() < 0 or categories.max() > _LARGEST_CATEGORY:
        raise ValueError(f"categories has a number that is not in 0..{_LARGEST_CATEGORY}")


def category_lists(forest: dict[str, Any], n_features: int) -> list[dict[str, Any]]:
    """Return the categories of each feature in training, by code; an empty list if the model has none."""
    if "cats" not in forest:
        return []  # before XGBoost 3.1
    cats = forest["cats"]
    listed = cats["enc"]
    segments, order = (
        whole_numbers(cats[name], name, np.int32, low=0) for name in ("feature_segments", "sorted_idx")
    )
    if not isinstance(listed, list) or len(listed) not in (0, n_features):
        raise ValueError(f"enc does not list the categories of each of {n_features} features")
    lists = [_categories(entry) for entry in listed]
    counts = [_n_categories(entry) for entry in lists]
    if lists and segments.tolist() != np.cumsum([0, *counts]).tolist():
        raise ValueError("feature_segments does not fit the numbers of categories")
    if len(order) != sum(counts):
        raise ValueError(f"sorted_idx has {len(order)} numbers for {sum(counts)} categories")
    return lists


def _categories(entry: dict[str, Any]) -> dict[str, Any]:
    """Return the categories of a feature: numbers, or the bytes of all strings and the offsets of each."""
    values, is_list = entry["values"], isinstance(entry["values"], list)
    if "offsets" not in entry:
        whole_number(entry["type"], "type")
        holds_floats = float in map(type, values) if is_list else values.dtype.kind == "f"
        dtype = values.dtype.newbyteorder("=") if not is_list else np.float64 if holds_floats else np.int64
        return entry | {"values": (reals if holds_floats else whole_numbers)(values, "values", dtype)}
    text = whole_numbers(values, "values", np.int16 if is_list else np.int8, low=-128)
    offsets = whole_numbers(entry["offsets"], "offsets", np.int32, low=0)
    if text.max(initial=0) > 255:
        raise ValueError("values has a number that is no byte")
    if (np.diff(offsets) < 0).any() or offsets[:1].any() or offsets[-1:].sum() != len(text):
        raise ValueError("offsets does not rise from 0 to the number of bytes in values")
    return entry | {"values": text, "offsets": offsets}


def _n_categories(entry: dict[str, Any]) -> int:
    return len(entry["values"]) if "offsets" not in entry else max(len(entry["offsets"]) - 1, 0)


def joined(parts: Sequence[dict[str, Any]], name: str, dtype: npt.DTypeLike) -> np.ndarray:
    """Return the numbers of a field of all trees."""
    return np.concatenate(
        [np.empty(0, dtype), *(part[name] for part in parts)], dtype=dtype, casting="same_kind"
    )
