"""scikit-learn: node arrays of trees with numbers that training never produces."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import harness
import numpy as np
from sklearn.ensemble import (
    BaggingRegressor,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    IsolationForest,
    RandomForestClassifier,
)
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from skshapgpu.adapters import adapt

INSTRUMENT = ("skshapgpu.adapters.sklearn", "skshapgpu.adapters.ensemble")


@cache
def models() -> list[Any]:
    rng = np.random.default_rng(0)
    X = rng.integers(0, 5, size=(60, 3)).astype(float)
    y = X[:, 0] + 3 * (X[:, 1] % 2)
    three = (X.sum(axis=1) % 3).astype(int)
    small = {"n_estimators": 2, "random_state": 0}
    return [
        DecisionTreeClassifier(max_depth=3).fit(X, three),
        DecisionTreeRegressor(max_depth=3).fit(X, np.stack([y, -y], axis=1)),
        RandomForestClassifier(max_depth=3, **small).fit(X, three),
        ExtraTreesRegressor(max_depth=3, **small).fit(X, y),
        BaggingRegressor(max_features=2, **small).fit(X, y),
        GradientBoostingClassifier(max_depth=2, **small).fit(X, three),
        IsolationForest(max_features=2, max_samples=16, **small).fit(X),
        HistGradientBoostingRegressor(max_iter=2, min_samples_leaf=3, categorical_features=[1]).fit(X, y),
        HistGradientBoostingClassifier(max_iter=2, min_samples_leaf=3).fit(X, three),
    ]


def trees_of(model: Any) -> list[Any]:
    """Return the objects whose nodes are changed: trees, or predictors of histogram boosting."""
    if hasattr(model, "_predictors"):
        return [predictor for iteration in model._predictors for predictor in iteration]
    if hasattr(model, "tree_"):
        return [model]
    return list(np.ravel(model.estimators_))


def change(tree: Any, choices: harness.Choices) -> None:
    if hasattr(tree, "raw_left_cat_bitsets"):
        nodes = tree.nodes = tree.nodes.copy()
        _change_nodes(nodes, choices)
        return
    state = tree.tree_.__getstate__()
    nodes = state["nodes"].copy()
    _change_nodes(nodes, choices)
    values = state["values"].copy()
    if not choices.number(4):
        values = harness.changed_array(values.ravel(), choices)[: values.size].astype(float)
        values = np.resize(values, state["values"].shape)
    made = type(tree.tree_)(tree.tree_.n_features, tree.tree_.n_classes, tree.tree_.n_outputs)
    made.__setstate__(state | {"nodes": nodes, "values": values})
    tree.tree_ = made


def _change_nodes(nodes: np.ndarray, choices: harness.Choices) -> None:
    names = nodes.dtype.names
    assert names is not None
    for _ in range(1 + choices.number(4)):
        name = choices.one_of(names)
        changed = harness.changed_array(nodes[name].copy(), choices)
        if changed.shape == nodes[name].shape:
            nodes[name] = changed.astype(nodes.dtype[name])


def test_one(data: bytes) -> None:
    choices = harness.Choices(data)
    model = copy.deepcopy(choices.one_of(models()))
    trees = trees_of(model)
    change(choices.one_of(trees), choices)
    with harness.limits(100_000):
        harness.explain_some(adapt(model), data[-1])
