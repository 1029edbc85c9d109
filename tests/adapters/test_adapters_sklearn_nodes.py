"""Nodes of scikit-learn 1.10, by stand-ins: numeric trees are read, native categories are rejected."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.sklearn_nodes import nodes_of_later_release
from helpers.sums_data import FRAME, NUMBERS, THREE
from sklearn.ensemble import (
    BaggingRegressor,
    ExtraTreesClassifier,
    GradientBoostingRegressor,
    IsolationForest,
    RandomForestRegressor,
)
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from sklearn.tree._tree import Tree

from skshapgpu import TreeExplainer, UnsupportedModelError, explain
from skshapgpu.adapters import adapt, sklearn_trees

X = FRAME.to_numpy()


class Tree110(Tree):
    """Tree of a release that has the layout of scikit-learn 1.10; ``kind`` is the split of its root."""

    kind = 0

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        nodes = nodes_of_later_release(state["nodes"])
        nodes["split_kind"][0] = self.kind
        return state | {"nodes": nodes}


class TreeOfFloat64(Tree110):
    """Tree whose ``apply`` takes float64."""

    def apply(self, X: Any) -> np.ndarray:
        return super().apply(np.asarray(X, np.float32))


def with_layout(model: Any, monkeypatch: pytest.MonkeyPatch, kind: type = Tree110, split: int = 0) -> Any:
    """Give all trees of a model the layout, as if its release had no other trees."""
    for member in np.ravel(getattr(model, "estimators_", [model])):
        tree = kind(member.tree_.n_features, member.tree_.n_classes, member.tree_.n_outputs)
        tree.__setstate__(Tree.__getstate__(member.tree_))
        tree.kind = split
        member.tree_ = tree
    monkeypatch.setattr(sklearn_trees, "SklearnTree", kind)
    monkeypatch.setattr(sklearn_trees.nodes_of, "__defaults__", (kind,))
    return model


MODELS = [
    DecisionTreeRegressor(max_depth=3, random_state=0),
    RandomForestRegressor(3, max_depth=3, random_state=0),
    BaggingRegressor(n_estimators=3, max_features=3, random_state=0),
    GradientBoostingRegressor(n_estimators=3, random_state=0),
]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_numeric_trees_of_the_layout(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model = model.fit(FRAME, NUMBERS)
    expected = explain(model, FRAME, precision="double")
    read = explain(with_layout(model, monkeypatch), FRAME, precision="double")
    assert read.checked_against == "model"
    np.testing.assert_array_equal(read.values, expected.values)


@pytest.mark.parametrize("split", [1, 2], ids=["bitset", "hash"])
def test_splits_by_native_categories_are_refused(split: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for model, target in (
        (DecisionTreeClassifier(max_depth=3), THREE),
        (ExtraTreesClassifier(3), THREE),
        (IsolationForest(n_estimators=3), None),
    ):
        with monkeypatch.context() as patch:
            later = with_layout(model.fit(X, target), patch, split=split)
            with pytest.raises(
                UnsupportedModelError, match=r"has native categories.*OrdinalEncoder in a pipeline"
            ):
                TreeExplainer(later)
    raw = with_layout(DecisionTreeRegressor().fit(X, NUMBERS), monkeypatch, split=split).tree_
    with pytest.raises(UnsupportedModelError, match="the Tree: it has native categories"):
        TreeExplainer(raw)


def test_an_encoder_inside_the_estimator_is_refused() -> None:
    """A model may encode columns by which no tree splits: then X is still not what the trees compare."""
    for fitted in (DecisionTreeRegressor(max_depth=2), RandomForestRegressor(3, max_depth=2)):
        fitted.fit(X, NUMBERS)
        fitted.is_categorical_ = np.array([False, False, False, True])
        with pytest.raises(UnsupportedModelError, match="has native categories"):
            explain(fitted, X)
        fitted.is_categorical_ = np.zeros(4, bool)
        assert explain(fitted, X).checked_against == "model"


def test_unknown_splits_and_precisions_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = DecisionTreeRegressor(max_depth=3).fit(X, NUMBERS)
    with monkeypatch.context() as patch:
        with pytest.raises(UnsupportedModelError, match=r"kinds of splits .*: 3"):
            adapt(with_layout(model, patch, split=3))
    with monkeypatch.context() as patch:
        with pytest.raises(ValueError, match="a node with children says that it is a leaf"):
            adapt(with_layout(model, patch, split=-1))
    fresh = DecisionTreeRegressor(max_depth=3).fit(X, NUMBERS)
    with pytest.raises(UnsupportedModelError, match="takes float64"):
        adapt(with_layout(fresh, monkeypatch, TreeOfFloat64))
