"""Forests of EconML and CausalML that are means of trees; those that solve equations are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers.checks import assert_margin, hard_rows
from helpers.definition import assert_values_equal_definition
from helpers.families import library
from helpers.sums_data import FRAME, NUMBERS, SIGNAL, TARGETS
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression, LogisticRegression

from skshapgpu import UnsupportedModelError, explain
from skshapgpu.adapters import adapt

X = FRAME.to_numpy()
PLAIN = pd.DataFrame(X)
ROWS, BACKGROUND = PLAIN.iloc[5:9], PLAIN.iloc[40:46]
#: Three groups: a control and two treatments, whose effects differ by row.
NUMBERED = np.random.default_rng(3).choice(3, 240, p=[0.4, 0.3, 0.3])
GROUPS = np.array(["control", "first", "second"])[NUMBERED]
TREATED = (GROUPS == "first").astype(int)
WEIGHTS = np.random.default_rng(4).random(240) + 0.1
OUTCOMES = NUMBERS + 300 * X[:, 0] * (NUMBERED == 1) - 200 * X[:, 2] * (NUMBERED == 2)
HIGH = (SIGNAL + TREATED > 0.7).astype(int)

pytestmark = pytest.mark.filterwarnings(
    "ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning"
)

# EconML


def econml(module: str, name: str, **options: Any) -> Any:
    return getattr(library(f"econml.{module}"), name)(random_state=0, n_jobs=1, **options)


@pytest.mark.parametrize("target", [NUMBERS, TARGETS], ids=["one target", "targets"])
@pytest.mark.parametrize("weight", [None, WEIGHTS], ids=["plain", "weighted"])
def test_regression_forests_are_means_of_trees(target: np.ndarray, weight: Any) -> None:
    model = econml("grf", "RegressionForest", n_estimators=8, max_depth=4).fit(
        X, target, sample_weight=weight
    )
    assert_values_equal_definition(model, lambda rows: model.predict(rows), ROWS, BACKGROUND)
    ensemble = adapt(model).ensemble
    rows = hard_rows(ensemble, 1000, nan=False, inf=False)
    assert_margin(ensemble, rows, model.predict(rows), rtol=1e-13)


def test_values_of_policies() -> None:
    gains = np.column_stack([np.zeros(240), SIGNAL * 100, X[:, 2]])
    forest = econml("policy", "PolicyForest", n_estimators=8, max_depth=3).fit(X, gains)
    tree = library("econml.policy").PolicyTree(max_depth=3, random_state=0).fit(X, gains)
    for model in (forest, tree):
        assert_values_equal_definition(model, model.predict_value, ROWS, BACKGROUND)


def test_a_forest_whose_equations_differ_by_leaf_is_refused() -> None:
    model = econml("grf", "RegressionForest", n_estimators=4, max_depth=3).fit(X, NUMBERS)
    state = model.estimators_[1].tree_.__getstate__()
    state["jac"][-1] = 2.0
    model.estimators_[1].tree_.__setstate__(state)
    with pytest.raises(UnsupportedModelError, match="moment equations"):
        explain(model, X)


def test_refusals_of_econml() -> None:
    causal = econml("grf", "CausalForest", n_estimators=4).fit(X, TREATED.reshape(-1, 1), NUMBERS)
    with pytest.raises(
        UnsupportedModelError, match=r"CausalForest: it solves moment equations.*train a forest"
    ):
        explain(causal, X)
    dml = econml("dml", "CausalForestDML", n_estimators=4)
    with pytest.raises(UnsupportedModelError, match=r"CausalForestDML: it solves moment equations"):
        explain(dml.fit(NUMBERS, TREATED.astype(float), X=X), X)
    learner = econml(
        "dr",
        "ForestDRLearner",
        n_estimators=4,
        model_regression=LinearRegression(),
        model_propensity=LogisticRegression(),
    ).fit(NUMBERS, TREATED, X=X)
    with pytest.raises(UnsupportedModelError, match=r"explain model_cate\(T=...\)"):
        explain(learner, X)
    forest = learner.model_cate(T=1)
    np.testing.assert_allclose(forest.predict(X).ravel(), learner.effect(X), rtol=1e-12)
    assert explain(forest, X).checked_against == "model"
    with pytest.raises(NotFittedError):
        explain(econml("grf", "RegressionForest"), X)
    with pytest.raises(ValueError, match="NaN"):
        explain(forest, np.where(X > 2, np.nan, X))


# CausalML


def causalml(name: str, **options: Any) -> Any:
    control: Any = "control" if name.startswith("Uplift") else 0
    return getattr(library("causalml.inference.tree"), name)(random_state=0, control_name=control, **options)


def causal_models() -> dict[str, Any]:
    numbered = {"CausalTreeRegressor": {}, "CausalRandomForestRegressor": {"n_estimators": 4, "n_jobs": 1}}
    models = {
        name: causalml(name, max_depth=4, min_samples_leaf=5, min_group_samples=5, **options).fit(
            X, treatment=NUMBERED, y=OUTCOMES
        )
        for name, options in numbered.items()
    }
    uplift = {"UpliftTreeClassifier": {}, "UpliftRandomForestClassifier": {"n_estimators": 4, "n_jobs": 1}}
    for name, options in uplift.items():
        model = causalml(name, max_depth=4, min_samples_leaf=5, min_samples_treatment=2, **options)
        model.fit(X, treatment=GROUPS, y=HIGH)
        models[name] = model
    return models


@pytest.mark.parametrize(
    "name",
    [
        "CausalTreeRegressor",
        "CausalRandomForestRegressor",
        "UpliftTreeClassifier",
        "UpliftRandomForestClassifier",
    ],
)
def test_values_of_causalml(name: str) -> None:
    model = causal_models()[name]
    explanation = assert_values_equal_definition(
        model, lambda rows: model.predict(np.asarray(rows)), ROWS, BACKGROUND
    )
    names = {
        "UpliftTreeClassifier": ("control", "first", "second"),
        "UpliftRandomForestClassifier": ("first", "second"),
    }
    assert explanation.output_names == names.get(name, (0, 1))
    ensemble = adapt(model).ensemble
    rows = hard_rows(ensemble, 500, nan=False, inf=False)
    assert_margin(ensemble, rows, model.predict(rows), rtol=1e-13)


def test_a_forest_that_returned_outcomes_before() -> None:
    model = causal_models()["CausalRandomForestRegressor"]
    values = explain(model, X).values
    assert model.predict(X, with_outcomes=True).shape == (240, 5)
    explanation = explain(model, X)
    assert explanation.checked_against == "model"
    np.testing.assert_array_equal(explanation.values, values)


def test_members_that_have_not_seen_a_group() -> None:
    groups = np.where(np.arange(240) == 100, "third", GROUPS)
    model = causalml(
        "UpliftRandomForestClassifier", n_estimators=6, max_depth=3, min_samples_treatment=1, n_jobs=1
    )
    model.fit(X, treatment=groups, y=HIGH)
    assert {len(member.classes_) for member in model.estimators_} == {3, 4}
    assert_values_equal_definition(model, lambda rows: model.predict(np.asarray(rows)), ROWS, BACKGROUND)


def test_refusals_of_causalml() -> None:
    learner = library("causalml.inference.meta").BaseSRegressor(LinearRegression())
    with pytest.raises(UnsupportedModelError, match=r"BaseSRegressor of causalml.*Explain the models inside"):
        explain(learner, X)
    for name in ("CausalTreeRegressor", "UpliftRandomForestClassifier"):
        with pytest.raises(NotFittedError):
            explain(causalml(name), X)
