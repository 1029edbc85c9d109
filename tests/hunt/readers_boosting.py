"""Trees of XGBoost, LightGBM and CatBoost, read from the libraries' own JSON or text formats."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from .trees import Tree


def xgboost_trees(model: Any) -> Iterator[Tree]:
    booster = model if type(model).__name__ == "Booster" else model.get_booster()
    learner = json.loads(bytes(booster.save_raw("json")))["learner"]
    gradient = learner["gradient_booster"]
    forest = gradient.get("gbtree", gradient)["model"]
    factors = gradient.get("weight_drop") or forest.get("weight_drop") or [1.0] * len(forest["trees"])
    param = learner["learner_model_param"]
    n_outputs = max(int(param["num_class"]), int(param["num_target"]), 1)
    stop = len(factors)
    if model is not booster and getattr(model, "best_iteration", None) is not None:  # a Booster uses them all
        stop = forest["iteration_indptr"][model.best_iteration + 1]
    for tree, output, factor in list(zip(forest["trees"], forest["tree_info"], factors, strict=True))[:stop]:
        left = np.array(tree["left_children"])
        leaf = left < 0
        value = np.zeros((len(left), n_outputs))
        if int(tree["tree_param"]["size_leaf_vector"]) > 1:
            weights = _singles(tree["leaf_weights"]).reshape(-1, n_outputs)
            value[leaf] = weights[np.array(tree["right_children"])[leaf]]
        else:
            value[leaf, output] = _singles(tree["split_conditions"])[leaf]
        yield Tree(
            left,
            np.where(leaf, -1, tree["right_children"]),
            np.array(tree["split_indices"]),
            _singles(tree["sum_hessian"]),
            value * float(np.float32(factor)),
            np.where(np.array(tree["split_type"]) == 1, np.nan, tree["split_conditions"]),
            _xgboost_rule(tree),
        )


def _singles(numbers: list[float]) -> np.ndarray:
    """Round to float32, since the numbers are written with just enough digits to tell float32 apart."""
    return np.array(numbers, np.float32).astype(np.float64)


def _xgboost_rule(tree: dict[str, Any]) -> Callable[[int, np.ndarray], np.ndarray]:
    listed = {}
    for node, start, size in zip(
        tree["categories_nodes"], tree["categories_segments"], tree["categories_sizes"], strict=True
    ):
        listed[node] = tree["categories"][start : start + size]

    def goes_left(node: int, x: np.ndarray) -> np.ndarray:
        if node in listed and tree["split_type"][node] == 1:
            left = ~np.isin(np.trunc(x), listed[node])
        else:
            left = x < np.float32(tree["split_conditions"][node])
        return np.where(np.isnan(x), bool(tree["default_left"][node]), left)

    return goes_left


def has_linear_leaves(model: Any) -> bool:
    """Return whether a model of LightGBM has linear leaves."""
    return "\nis_linear=1\n" in getattr(model, "booster_", model).model_to_string()


def linear_magnitude(model: Any, largest: np.ndarray) -> np.ndarray:
    """Sum the terms of each tree's largest linear leaf over the trees of a LightGBM model."""
    document = getattr(model, "booster_", model).dump_model()
    n_outputs = document["num_tree_per_iteration"]
    magnitudes = np.zeros(n_outputs)
    for tree in document["tree_info"]:
        leaf_magnitudes, pending = [0.0], [tree["tree_structure"]]
        while pending:
            node = pending.pop()
            pending += [node[side] for side in ("left_child", "right_child") if side in node]
            terms = np.abs(node.get("leaf_coeff", [])) * largest[node.get("leaf_features", [])]
            leaf_magnitudes.append(abs(node.get("leaf_const", 0.0)) + float(np.sum(terms)))
        magnitudes[tree["tree_index"] % n_outputs] += max(leaf_magnitudes)
    return magnitudes


def lightgbm_trees(model: Any) -> Iterator[Tree]:
    booster = getattr(model, "booster_", model)
    document = booster.dump_model()
    n_outputs = document["num_tree_per_iteration"]
    trees = document["tree_info"]
    averaged = "\naverage_output\n" in booster.model_to_string()
    factor = n_outputs / len(trees) if averaged else 1.0
    for tree in trees:
        yield _lightgbm_tree(tree["tree_structure"], tree["tree_index"] % n_outputs, n_outputs, factor)


def _lightgbm_tree(root: dict[str, Any], output: int, n_outputs: int, factor: float) -> Tree:
    nodes: list[dict[str, Any]] = [root]
    left, right = [], []
    for node in nodes:  # grows during the loop
        if "left_child" in node:
            left.append(len(nodes))
            right.append(len(nodes) + 1)
            nodes += [node["left_child"], node["right_child"]]
        else:
            left.append(-1)
            right.append(-1)
    value = np.zeros((len(nodes), n_outputs))
    value[:, output] = [factor * node.get("leaf_value", 0.0) for node in nodes]
    cover = [node.get("internal_count", node.get("leaf_count", 1)) for node in nodes]

    def goes_left(number: int, x: np.ndarray) -> np.ndarray:
        node = nodes[number]
        if node["decision_type"] == "==":
            codes = [int(code) for code in str(node["threshold"]).split("||")]
            with np.errstate(invalid="ignore"):
                integers = np.trunc(np.where(np.isfinite(x), x, -1.0))
            return (x > -1) & np.isin(integers, codes)
        missing, default = node["missing_type"], bool(node["default_left"])
        x = np.where(np.isnan(x) & (missing != "NaN"), 0.0, x)
        limit = node["threshold"]
        if abs(limit) >= 1e300:  # LightGBM's form of infinities
            limit = np.copysign(np.inf, limit)
        side = np.where(np.abs(x) <= np.float32(1e-35), 0.0, x) <= limit
        if missing == "Zero":
            return np.where(np.abs(x) <= np.float32(1e-35), default, side)
        return np.where(np.isnan(x), default, side)

    feature = np.array([node.get("split_feature", 0) for node in nodes])
    numeric = [node.get("decision_type") == "<=" for node in nodes]
    threshold = np.array(
        [node["threshold"] if is_number else np.nan for node, is_number in zip(nodes, numeric)]
    )
    return Tree(np.array(left), np.array(right), feature, np.array(cover, float), value, threshold, goes_left)


def catboost_trees(model: Any) -> Iterator[Tree]:
    """Read the trees of a model without categories; the last split of a symmetric tree is its root."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.json"
        model.save_model(str(path), format="json")
        document = json.loads(path.read_text())
    floats = {entry["feature_index"]: entry for entry in document["features_info"]["float_features"]}
    scale = document["scale_and_bias"][0]
    for tree in document.get("oblivious_trees") or []:
        splits = tree["splits"] or []
        values = np.reshape(tree["leaf_values"], (2 ** len(splits), -1)) * scale
        yield _catboost_tree(
            _unfolded(splits, values, tree["leaf_weights"], 0, len(splits)), floats, scale=1.0
        )
    for tree in document.get("trees") or []:
        yield _catboost_tree(tree, floats, scale)


def _unfolded(
    splits: list[Any], values: np.ndarray, weights: list[float], leaf: int, level: int
) -> dict[str, Any]:
    """Unfold a symmetric tree into nested nodes; the outcome of split b is bit b of a leaf's number."""
    if level == 0:
        return {"value": values[leaf], "weight": weights[leaf]}
    right = leaf | 1 << (level - 1)
    return {
        "split": splits[level - 1],
        "left": _unfolded(splits, values, weights, leaf, level - 1),
        "right": _unfolded(splits, values, weights, right, level - 1),
    }


def _catboost_tree(root: dict[str, Any], floats: dict[int, Any], scale: float) -> Tree:
    nodes: list[dict[str, Any]] = [root]
    left, right = [], []
    for node in nodes:  # grows during the loop
        is_leaf = "split" not in node
        left.append(-1 if is_leaf else len(nodes))
        right.append(-1 if is_leaf else len(nodes) + 1)
        if not is_leaf:
            nodes += [node["left"], node["right"]]
    n_outputs = max(np.size(node.get("value", 0.0)) for node in nodes)
    value = np.zeros((len(nodes), n_outputs))
    cover = np.zeros(len(nodes))
    for i in reversed(range(len(nodes))):
        if left[i] < 0:
            value[i], cover[i] = np.multiply(nodes[i]["value"], scale), nodes[i]["weight"]
        else:
            cover[i] = cover[left[i]] + cover[right[i]]

    def entry(node: dict[str, Any]) -> dict[str, Any]:
        return floats[node["split"]["float_feature_index"]]

    def goes_left(number: int, x: np.ndarray) -> np.ndarray:
        node = nodes[number]
        missing_left = entry(node)["nan_value_treatment"] != "AsTrue"
        return np.where(np.isnan(x), missing_left, ~(x > np.float32(node["split"]["border"])))

    feature = [entry(node)["flat_feature_index"] if "split" in node else 0 for node in nodes]
    threshold = np.array([node["split"]["border"] if "split" in node else np.nan for node in nodes])
    return Tree(np.array(left), np.array(right), np.array(feature), cover, value, threshold, goes_left)
