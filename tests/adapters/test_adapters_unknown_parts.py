"""Objectives, losses, kinds of nodes and fields that no adapter knows are rejected; errors name them."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers import onnx_models
from numpy.lib import recfunctions
from sklearn.ensemble import (
    BaggingRegressor,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    HistGradientBoostingRegressor,
    IsolationForest,
    RandomForestClassifier,
)
from sklearn.tree import DecisionTreeRegressor
from sklearn.tree._tree import Tree

from skshapgpu import TreeExplainer, UnsupportedModelError
from skshapgpu.adapters import adapt
from skshapgpu.adapters.catboost.model import adapt_document

RNG = np.random.default_rng(0)
X = RNG.normal(size=(80, 3))
Y = X[:, 0] + X[:, 1] * X[:, 2]
HIGH = (Y > 0).astype(int)


# Trees of scikit-learn


class LaterTree(Tree):
    """Tree whose nodes have fields that no release has."""

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        nodes = state["nodes"]
        return state | {
            "nodes": recfunctions.append_fields(nodes, "slope", np.zeros(len(nodes)), usemask=False)
        }


class StatefulTree(Tree):
    """Tree with another part."""

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"projections": np.zeros(3)}


class OtherTree(Tree):
    """Tree of another kind."""


def replaced(tree: Tree, kind: type) -> Tree:
    other = kind(tree.n_features, tree.n_classes, tree.n_outputs)
    other.__setstate__(Tree.__getstate__(tree))
    return other


def forests() -> dict[str, Callable[[], tuple[Any, list[Any]]]]:
    """Return functions, each of which fits a model of scikit-learn and returns it with its trees."""

    def of_estimators(model: Any) -> tuple[Any, list[Any]]:
        return model, list(np.ravel(model.estimators_))

    def imbalanced() -> tuple[Any, list[Any]]:
        ensemble = pytest.importorskip("imblearn.ensemble")
        return of_estimators(ensemble.BalancedRandomForestClassifier(3, random_state=0).fit(X, HIGH))

    def quantiles() -> tuple[Any, list[Any]]:
        quantile_forest = pytest.importorskip("quantile_forest")
        return of_estimators(quantile_forest.RandomForestQuantileRegressor(3).fit(X, Y))

    def survival(name: str) -> Callable[[], tuple[Any, list[Any]]]:
        def make() -> tuple[Any, list[Any]]:
            sksurv = pytest.importorskip("sksurv")
            target = pytest.importorskip("sksurv.util").Surv.from_arrays(HIGH == 1, np.exp(Y))
            pytest.importorskip("sksurv.ensemble")
            return of_estimators(getattr(sksurv.ensemble, name)(n_estimators=3).fit(X, target))

        return make

    def natural() -> tuple[Any, list[Any]]:
        model = pytest.importorskip("ngboost").NGBRegressor(n_estimators=3, verbose=False).fit(X, Y)
        return model, [member for members in model.base_models for member in members]

    def one() -> tuple[Any, list[Any]]:
        model = DecisionTreeRegressor(max_depth=3).fit(X, Y)
        return model, [model]

    return {
        "tree": one,
        "forest": lambda: of_estimators(RandomForestClassifier(3).fit(X, HIGH)),
        "extra trees": lambda: of_estimators(ExtraTreesRegressor(3).fit(X, Y)),
        "boosting": lambda: of_estimators(GradientBoostingClassifier(n_estimators=3).fit(X, HIGH)),
        "isolation forest": lambda: of_estimators(IsolationForest(n_estimators=3).fit(X)),
        "bagging": lambda: of_estimators(BaggingRegressor(n_estimators=3).fit(X, Y)),
        "imbalanced-learn": imbalanced,
        "quantile-forest": quantiles,
        "survival forest": survival("RandomSurvivalForest"),
        "survival boosting": survival("GradientBoostingSurvivalAnalysis"),
        "NGBoost": natural,
    }


@pytest.mark.parametrize("name", forests())
def test_trees_of_a_later_scikit_learn(name: str) -> None:
    model, members = forests()[name]()
    TreeExplainer(model)
    members[-1].tree_ = replaced(members[-1].tree_, LaterTree)
    with pytest.raises(UnsupportedModelError, match=r"nodes .*: 'slope'; .*later"):
        TreeExplainer(model)


@pytest.mark.parametrize(
    "kind, message",
    [(StatefulTree, "fields of its tree .*: 'projections'"), (OtherTree, "kinds of trees .*OtherTree")],
)
def test_trees_of_another_kind(kind: type, message: str) -> None:
    model = RandomForestClassifier(3).fit(X, HIGH)
    model.estimators_[1].tree_ = replaced(model.estimators_[1].tree_, kind)
    with pytest.raises(UnsupportedModelError, match=message):
        adapt(model)


def test_nodes_of_hist_gradient_boosting() -> None:
    model = HistGradientBoostingRegressor(max_iter=3).fit(X, Y)
    predictor = model._predictors[1][0]
    predictor.nodes = recfunctions.append_fields(
        predictor.nodes, "slope", np.zeros(len(predictor.nodes)), usemask=False
    )
    with pytest.raises(UnsupportedModelError, match=r"fields of its nodes .*: 'slope'"):
        adapt(model)


@pytest.mark.parametrize("model", [HistGradientBoostingRegressor(max_iter=3), GradientBoostingClassifier()])
def test_losses_of_scikit_learn(model: Any) -> None:
    model = copy.deepcopy(model).fit(X, HIGH)
    kind = type(model._loss)
    model._loss.__class__ = type("CauchyLoss", (kind,), {"__module__": kind.__module__})
    with pytest.raises(UnsupportedModelError, match=r"has losses .*: 'CauchyLoss'"):
        adapt(model)
    model._loss.__class__ = type("CauchyLoss", (kind,), {"__module__": "mine"})  # a user's own
    adapted = adapt(model)
    assert adapted.link is None and not adapted.squared_error
    margin = model.decision_function(X) if hasattr(model, "classes_") else model._raw_predict(X)[:, 0]
    np.testing.assert_allclose(adapted.ensemble.margin(X.astype(np.float32))[:, 0], margin, atol=0.01)


# Files


def edited(document: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Return a copy of a document with another value at a place such as "trees.0.name"."""
    document = copy.deepcopy(document)
    *keys, last = [int(key) if key.isdecimal() else key for key in path.split(".")]
    owner: Any = document
    for key in keys:
        owner = owner[key]
    owner[last] = value
    return document


@pytest.mark.parametrize(
    "path, value, message",
    [
        ("objective.name", "reg:cauchy", "objectives .*: 'reg:cauchy'"),
        ("gradient_booster.name", "gbforest", "boosters .*: 'gbforest'"),
        ("gradient_booster.offset", "1", "fields of a gradient_booster .*: 'offset'"),
        ("gradient_booster.model.trees.1.slopes", [1.0], "fields of a tree .*: 'slopes'"),
        ("gradient_booster.model.trees.1.tree_param.kind", "1", "fields of a tree_param .*: 'kind'"),
        ("gradient_booster.model.trees.1.split_type.0", 2, "kinds of splits .*: 2;"),
        ("learner_model_param.num_parts", "1", "fields of a learner_model_param .*: 'num_parts'"),
        ("feature_types", ["float", "text", "c"], "feature_types .*: 'text'"),
        ("scale", 2, "fields of a learner .*: 'scale'"),
    ],
)
def test_xgboost(path: str, value: Any, message: str) -> None:
    xgboost = pytest.importorskip("xgboost")
    model = xgboost.train({"max_depth": 2, "nthread": 1}, xgboost.DMatrix(X, Y), 3)
    document = json.loads(model.save_raw("json"))
    adapt(json.dumps(document).encode())
    with pytest.raises(UnsupportedModelError, match=message):
        adapt(json.dumps(edited(document, f"learner.{path}", value)).encode())


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("objective=regression", "objective=cauchy", "objectives .*: 'cauchy'"),
        ("objective=regression", "objective=regression cube:1", "parameters of the objective .*: 'cube'"),
        ("version=v4", "version=v5", "formats .*: 'v5'"),
        ("label_index=0", "label_index=0\nmedian_output", "fields .*: 'median_output'"),
        ("num_cat=0", "num_cat=0\nslopes=1", "fields of a tree .*: 'slopes'"),
    ],
)
def test_lightgbm(old: str, new: str, message: str) -> None:
    lightgbm = pytest.importorskip("lightgbm")
    text = lightgbm.train({"verbose": -1, "num_threads": 1}, lightgbm.Dataset(X, Y), 2).model_to_string()
    adapt(text.encode())
    assert old in text
    with pytest.raises(UnsupportedModelError, match=message):
        adapt(text.replace(old, new, 1).encode())


@pytest.mark.parametrize(
    "path, value, message",
    [
        ("model_info.params.loss_function.type", "Cauchy", "losses .*: 'Cauchy'"),
        ("features_info.float_features.0.nan_value_treatment", "AsMaybe", "treatments of NaN .*: 'AsMaybe'"),
        ("features_info.float_features.0.transform", "log", "fields of its float_features .*: 'transform'"),
        ("features_info.image_features", [{}], "fields of its features_info .*: 'image_features'"),
        ("oblivious_trees.0.slopes", [1.0], "fields of its oblivious_trees .*: 'slopes'"),
        ("oblivious_trees.0.splits.0.split_type", "Oblique", "unknown type 'Oblique'"),
        ("calibration", {}, "fields of its export .*: 'calibration'"),
    ],
)
def test_catboost(path: str, value: Any, message: str, tmp_path: Any) -> None:
    catboost = pytest.importorskip("catboost")
    model = catboost.CatBoostRegressor(
        iterations=3, depth=2, verbose=False, allow_writing_files=False, thread_count=1
    ).fit(X, Y)
    model.save_model(str(tmp_path / "model.json"), format="json")
    document = json.loads((tmp_path / "model.json").read_text())
    adapt_document(document)
    with pytest.raises(UnsupportedModelError, match=message):
        adapt_document(edited(document, path, value))


@pytest.mark.parametrize(
    "field, value, message",
    [
        ("postprocessor", "cauchy", "postprocessors .*: 'cauchy'"),
        ("task_type", np.array([9], np.uint8), "tasks .*: 9;"),
        ("node_type", None, "kinds of nodes .*: 3;"),
    ],
)
def test_treelite(field: str, value: Any, message: str) -> None:
    treelite = pytest.importorskip("treelite")
    model = treelite.sklearn.import_model(RandomForestClassifier(2, max_depth=2).fit(X, HIGH))
    adapt(model)
    if value is None:
        tree = model.get_tree_accessor(1)
        kinds = np.array(tree.get_field(field))
        kinds[0] = 3
        tree.set_field(field, kinds)
    else:
        model.get_header_accessor().set_field(field, value)
    with pytest.raises(UnsupportedModelError, match=message):
        adapt(model)


def test_onnx() -> None:
    attributes = {
        "nodes_treeids": [0, 0, 0],
        "nodes_nodeids": [0, 1, 2],
        "nodes_featureids": [0, 0, 0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
        "nodes_values": [0.5, 0.0, 0.0],
        "nodes_truenodeids": [1, 0, 0],
        "nodes_falsenodeids": [2, 0, 0],
        "target_treeids": [0, 0],
        "target_nodeids": [1, 2],
        "target_ids": [0, 0],
        "target_weights": [1.0, 2.0],
        "n_targets": 1,
    }

    def content(opset: int = 3, **more: Any) -> bytes:
        operator = onnx_models.operator("TreeEnsembleRegressor", ["X"], ["Y"], attributes | more, ml=True)
        inputs = [onnx_models.value_info("X", "float32", [None, 2])]
        outputs = [onnx_models.value_info("Y", "float32", [None, None])]
        return onnx_models.model([operator], inputs, outputs, opset=opset)

    adapt(content())
    with pytest.raises(UnsupportedModelError, match=r"attributes of its TreeEnsembleRegressor .*: 'slopes'"):
        adapt(content(slopes=[1.0]))
    with pytest.raises(UnsupportedModelError, match=r"version 6 of ai\.onnx\.ml; versions up to 5"):
        adapt(content(6))
