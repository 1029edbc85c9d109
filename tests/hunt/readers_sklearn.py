"""Trees of scikit-learn's models, and rows as these compare them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .margins import average_path
from .trees import Tree, encoded


def rows(model: Any, transformed: Any) -> np.ndarray:
    if type(model).__name__.startswith("Hist"):
        if model._preprocessor is not None:
            coded = np.asarray(model._preprocessor.transform(transformed), np.float64)
            rows = np.empty_like(coded)
            rows[:, _moved(model)] = coded
            return rows
        return encoded(transformed, {})
    with np.errstate(over="ignore"):
        return encoded(transformed, {}).astype(np.float32)


def _moved(model: Any) -> np.ndarray:
    """Reorder columns of X to the order of histogram-based trees, in which categories come first."""
    if model._preprocessor is None:
        return np.arange(model.n_features_in_)
    parts = [np.arange(model.n_features_in_)[columns] for _, _, columns in model._preprocessor.transformers_]
    return np.concatenate(parts)


def trees(model: Any, counts: bool = False) -> Iterator[Tree]:
    """Read the trees of a model; with ``counts``, covers are numbers of rows instead of sums of weights."""
    name = type(model).__name__
    if name.startswith("Hist"):
        yield from _histogram_trees(model)
        return
    if not hasattr(model, "estimators_"):
        yield _sklearn_tree(model, _node_values(model, model), np.arange(model.n_features_in_), counts)
        return
    if name.startswith("GradientBoosting"):
        n_outputs = model.estimators_.shape[1]
        for trees in model.estimators_:
            for k, tree in enumerate(trees):
                value = np.zeros((tree.tree_.node_count, n_outputs))
                value[:, k] = model.learning_rate * tree.tree_.value[:, 0, 0]
                yield _sklearn_tree(tree, value, np.arange(model.n_features_in_), counts)
        return
    n = len(model.estimators_)
    own = getattr(model, "estimators_features_", [np.arange(model.n_features_in_)] * n)
    for tree, columns in zip(model.estimators_, own):
        value = _path_lengths(tree.tree_) if name == "IsolationForest" else _node_values(model, tree)
        yield _sklearn_tree(tree, value / n, np.asarray(columns), counts)


def _node_values(model: Any, tree: Any) -> np.ndarray:
    value = tree.tree_.value
    if not hasattr(model, "classes_"):
        return value[:, :, 0]
    share = np.zeros((len(value), len(model.classes_)))
    own = np.asarray(tree.classes_)
    # The trees of a forest number the classes, and a bootstrap sample may contain only some classes.
    places = np.arange(len(own)) if tree is model else own.astype(int)
    share[:, places] = value[:, 0, :] / value[:, 0, :].sum(axis=1, keepdims=True)
    return share[:, 1:] if share.shape[1] == 2 else share


def _path_lengths(tree: Any) -> np.ndarray:
    depth = np.zeros(tree.node_count)
    for node in range(tree.node_count):
        for child in (tree.children_left[node], tree.children_right[node]):
            if child >= 0:
                depth[child] = depth[node] + 1
    return (depth + [average_path(int(n)) for n in tree.n_node_samples])[:, None]


def _sklearn_tree(estimator: Any, value: np.ndarray, columns: np.ndarray, counts: bool) -> Tree:
    tree = estimator.tree_

    def goes_left(node: int, x: np.ndarray) -> np.ndarray:
        return np.where(
            np.isnan(x), bool(tree.missing_go_to_left[node]), x.astype(np.float64) <= tree.threshold[node]
        )

    feature = columns[np.maximum(tree.feature, 0)]
    cover = tree.n_node_samples.astype(float) if counts else tree.weighted_n_node_samples
    return Tree(tree.children_left, tree.children_right, feature, cover, value, tree.threshold, goes_left)


def _histogram_trees(model: Any) -> Iterator[Tree]:
    order = _moved(model)
    for predictors in model._predictors:
        for k, predictor in enumerate(predictors):
            nodes, sets = predictor.nodes, predictor.raw_left_cat_bitsets
            leaf = nodes["is_leaf"].astype(bool)
            value = np.zeros((len(nodes), len(predictors)))
            value[leaf, k] = nodes["value"][leaf]
            yield Tree(
                np.where(leaf, -1, nodes["left"].astype(int)),
                np.where(leaf, -1, nodes["right"].astype(int)),
                order[np.where(leaf, 0, nodes["feature_idx"].astype(int))],
                nodes["count"].astype(float),
                value,
                np.where(nodes["is_categorical"], np.nan, nodes["num_threshold"]),
                _histogram_rule(nodes, sets),
            )


def _histogram_rule(nodes: np.ndarray, sets: np.ndarray) -> Callable[[int, np.ndarray], np.ndarray]:
    def goes_left(node: int, x: np.ndarray) -> np.ndarray:
        row = nodes[node]
        if not row["is_categorical"]:
            return np.where(np.isnan(x), bool(row["missing_go_to_left"]), x <= row["num_threshold"])
        bits = sets[row["bitset_idx"]]
        code = np.nan_to_num(x, nan=0.0).astype(int)
        listed = (bits[code // 32] >> (code % 32).astype(np.uint32)) & 1 == 1
        return np.where(np.isnan(x), bool(row["missing_go_to_left"]), listed)

    return goes_left
