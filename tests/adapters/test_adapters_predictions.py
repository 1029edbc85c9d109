"""Effects on predictions besides the trees: subclasses, and parameters of ``predict``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.families import FAMILIES, assert_adds_up, classifier, library, raw_prediction, regressor
from sklearn.ensemble import GradientBoostingClassifier

from skshapgpu import TreeExplainer, UnsupportedModelError, explain

_RNG = np.random.default_rng(0)
X = _RNG.normal(size=(200, 3)).astype(np.float32)
Y = 2 * X[:, 0] + X[:, 1] ** 2
HIGH = (Y > 1).astype(int)


def subclass_of(cls: type, *methods: str) -> type:
    """Return a subclass whose methods return other results."""

    def other(self: Any, X: Any, *args: Any, **options: Any) -> Any:
        return np.zeros(len(X))

    return type("Odd", (cls,), dict.fromkeys(methods, other))


def made(cls: type, model: Any) -> Any:
    """Return a model of a class with the parameters of another."""
    return cls(**model.get_params())


@pytest.mark.parametrize("family", FAMILIES)
def test_subclasses_with_predictions_of_their_own_are_refused(family: str) -> None:
    if family != "sklearn":
        library(family)
    number, label = regressor(family), classifier(family)
    for plain, y in ((number, Y), (label, HIGH)):
        odd = made(subclass_of(type(plain), "score"), plain).fit(X, y)
        assert_adds_up(odd, X, raw_prediction(plain.fit(X, y), X))
    for model, y, method in (
        (number, Y, "predict"),
        (label, HIGH, "predict"),
        (label, HIGH, "predict_proba"),
        (label, HIGH, "decision_function"),
    ):
        odd = made(subclass_of(type(model), method), model).fit(X, y)
        with pytest.raises(UnsupportedModelError, match=f"explain a Odd: .*Odd has a {method} of its own"):
            explain(odd, X)


def test_trees_of_a_subclass_can_be_explained_by_its_booster() -> None:
    for family, name in (("xgboost", "get_booster"), ("lightgbm", "booster_")):
        library(family)
        model = regressor(family)
        odd = made(subclass_of(type(model), "predict"), model).fit(X, Y)
        with pytest.raises(UnsupportedModelError, match=rf"all the same, pass its {name}"):
            explain(odd, X)
        booster = odd.get_booster() if family == "xgboost" else odd.booster_
        assert_adds_up(booster, X, raw_prediction(model.fit(X, Y), X))


@pytest.mark.parametrize("family", ["xgboost", "lightgbm"])
def test_subclasses_of_boosters(family: str) -> None:
    package = library(family)
    model = regressor(family).fit(X, Y)
    if family == "xgboost":
        odd = subclass_of(package.Booster, "inplace_predict")(model_file=model.get_booster().save_raw())
    else:
        odd = subclass_of(package.Booster, "predict")(model_str=model.booster_.model_to_string())
    with pytest.raises(UnsupportedModelError, match="predict of its own"):
        explain(odd, X)


STOPPING = {"pred_early_stop_freq": 1, "pred_early_stop_margin": 0.5}


@pytest.mark.parametrize("stops", [True, "true"])
@pytest.mark.parametrize("late", [False, True], ids=["fit", "set_params"])
def test_lightgbm_that_stops_early_in_predict_is_refused(stops: Any, late: bool) -> None:
    library("lightgbm")
    model = classifier("lightgbm", **STOPPING, **({} if late else {"pred_early_stop": stops}))
    model.fit(X, HIGH).set_params(pred_early_stop=stops)
    booster = model.booster_
    full = booster.predict(X, raw_score=True)
    assert np.abs(raw_prediction(model, X) - full).max() > 0.1
    assert_adds_up(booster, X, full)
    with pytest.raises(UnsupportedModelError, match=r"use set_params\(pred_early_stop=False\)"):
        explain(model, X)
    for off in (False, "false", None):
        assert_adds_up(model.set_params(pred_early_stop=off), X)


@pytest.mark.parametrize(
    "params",
    [
        {"start_iteration_predict": 3},
        {"num_iteration_predict": 3},
        {"predict_raw_score": True, "predict_contrib": True, "predict_leaf_index": True},
        {"predict_disable_shape_check": True},
        {"n_estimators": 3, "learning_rate": 0.7},
        {"sigmoid": 3.0, "objective": "regression"},
        {"use_missing": False, "zero_as_missing": True},
    ],
    ids=lambda params: next(iter(params)),
)
def test_other_parameters_of_lightgbm_are_not_read_by_predict(params: dict[str, Any]) -> None:
    library("lightgbm")
    rows = np.where(X > 1, np.nan, np.where(X < -1, 0, X))
    model = classifier("lightgbm").fit(rows, HIGH)
    before = raw_prediction(model, rows)
    assert_adds_up(model.set_params(**params), rows)
    np.testing.assert_array_equal(raw_prediction(model, rows), before)


@pytest.mark.usefixtures("on_cpu")
def test_parameters_that_are_set_later() -> None:
    """They count, too, if ``predict`` reads them."""
    xgboost = library("xgboost")
    rows = np.where(X > 1, 0, X)
    model = xgboost.XGBRegressor(n_estimators=5, booster="dart", rate_drop=0.5, n_jobs=1).fit(rows, Y)
    before = raw_prediction(model, rows)
    for params, changes in (
        ({"missing": 0.0}, True),
        ({"base_score": 4.0}, True),
        ({"rate_drop": 0.9, "n_estimators": 2, "learning_rate": 0.9}, False),
    ):
        model.set_params(**params)
        assert_adds_up(model, rows)
        assert (np.abs(raw_prediction(model, rows) - before).max() > 0.1) == changes
        before = raw_prediction(model, rows)
    model = GradientBoostingClassifier(n_estimators=8, random_state=0).fit(X, HIGH)
    model.set_params(loss="exponential", learning_rate=0.6)
    explanation = TreeExplainer(model, X[:20], model_output="probability").explain(X)
    total = explanation.base_values + explanation.values.sum(axis=1)
    np.testing.assert_allclose(total, model.predict_proba(X)[:, 1], atol=1e-5)


# Probabilities of CatBoost


CLASSES = np.digitize(Y, [0, 2])
LABELS = np.column_stack([Y > 0, Y > 2, X[:, 2] > 0]).astype(int)


@pytest.mark.parametrize(
    ("loss", "y"),
    [("MultiClassOneVsAll", CLASSES), ("MultiLogloss", LABELS), ("MultiCrossEntropy", LABELS * 0.8 + 0.1)],
)
@pytest.mark.parametrize("of_file", [False, True], ids=["model", "file"])
def test_probability_of_outputs_one_by_one(loss: str, y: np.ndarray, of_file: bool, tmp_path: Path) -> None:
    catboost = library("catboost")
    model = classifier("catboost", loss_function=loss).fit(X, y)
    for fitted in (model, catboost.sum_models([model, model], weights=[1.0, 0.5])):
        path = tmp_path / "model.json"
        fitted.save_model(path, format="json")
        explainer = TreeExplainer(path if of_file else fitted, X[:20], model_output="probability")
        explanation = explainer.explain(X)
        expected = fitted.predict(X, prediction_type="Probability")
        assert expected.shape == (len(X), 3) and np.abs(expected.sum(axis=1) - 1).max() > 0.05
        total = explanation.base_values + explanation.values.sum(axis=1)
        np.testing.assert_allclose(total, expected, atol=1e-5)


def test_probability_of_a_sum_of_different_losses_is_refused() -> None:
    catboost = library("catboost")
    losses = ("MultiClass", "MultiClassOneVsAll")
    softmax, single = (classifier("catboost", loss_function=loss).fit(X, CLASSES) for loss in losses)
    with pytest.raises(ValueError, match="or the softmax of the margins of all outputs"):
        TreeExplainer(catboost.sum_models([softmax, single]), X[:20], model_output="probability")
