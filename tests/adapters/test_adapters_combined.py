"""Weighted sums of any models, such as the difference of two: values equal their definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers.checks import assert_margin, hard_rows
from helpers.definition import assert_values_equal_definition
from helpers.families import forest, forest_classifier, regressor
from helpers.sums_data import FRAME, NUMBERS, TARGETS, THREE, TWO
from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingClassifier, VotingClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skshapgpu import TreeExplainer, UnsupportedModelError, explain
from skshapgpu.adapters import sum_of_models

ROWS, BACKGROUND = FRAME.iloc[5:9], FRAME.iloc[40:46]


def fitted(model: Any, target: np.ndarray = NUMBERS) -> Any:
    return model.fit(FRAME, target)


def test_the_difference_of_two_models() -> None:
    models = [fitted(regressor("sklearn")), fitted(forest(), NUMBERS + 50)]
    difference = sum_of_models(models, [1, -1])

    def predict(rows: Any) -> np.ndarray:
        return models[0].predict(rows) - models[1].predict(rows)

    explanation = assert_values_equal_definition(difference, predict, ROWS, BACKGROUND)
    # SHAP values are linear in the model: each difference of two values is rounded at about 1000
    parts = [explain(model, ROWS, precision="double").values for model in models]
    np.testing.assert_allclose(explanation.values, parts[0] - parts[1], rtol=0, atol=1e-10)
    assert explanation.feature_names == tuple(FRAME)
    rows = hard_rows(difference.ensemble, 500, nan=False, inf=False)
    assert_margin(difference.ensemble, rows, predict(pd.DataFrame(rows, columns=list(FRAME))), rtol=1e-10)


def test_weights_outputs_and_wrappers() -> None:
    search = GridSearchCV(forest(), {"max_depth": [2, 3]}, cv=2)
    models = [
        fitted(search, TARGETS),
        fitted(make_pipeline(forest()), TARGETS),
        fitted(forest(max_depth=2), TARGETS),
    ]
    weights = [0.25, -2.0, 0.0]

    def predict(rows: Any) -> np.ndarray:
        return sum(weight * model.predict(rows) for weight, model in zip(weights, models))

    assert_values_equal_definition(sum_of_models(models, weights), predict, ROWS, BACKGROUND)


def test_differences_of_classifiers() -> None:
    forests = [fitted(forest_classifier(), THREE), fitted(forest_classifier(7), THREE)]
    explanation = assert_values_equal_definition(
        sum_of_models(forests, [1, -1]),
        lambda rows: forests[0].predict_proba(rows) - forests[1].predict_proba(rows),
        ROWS,
        BACKGROUND,
    )
    assert explanation.output_names == ("a", "b", "c")
    boosted = [
        fitted(GradientBoostingClassifier(n_estimators=5, random_state=0), TWO),
        fitted(HistGradientBoostingClassifier(max_iter=5), TWO),
    ]
    difference = sum_of_models(boosted, [1, -1])
    assert_values_equal_definition(
        difference,
        lambda rows: boosted[0].decision_function(rows) - boosted[1].decision_function(rows),
        ROWS,
        BACKGROUND,
    )
    with pytest.raises(ValueError, match="model_output='probability' needs"):
        TreeExplainer(difference, BACKGROUND, model_output="probability")
    with pytest.raises(UnsupportedModelError, match="different units, such as log-odds and probabilities"):
        sum_of_models([boosted[0], fitted(forest_classifier(), TWO)], [1, -1])
    with pytest.raises(UnsupportedModelError, match="different outputs or classes"):
        sum_of_models([forests[0], fitted(forest_classifier(), np.char.upper(THREE))], [1, -1])


def test_models_of_libraries_that_compare_in_other_ways() -> None:
    models = [fitted(regressor("xgboost")), fitted(regressor("lightgbm"))]
    difference = sum_of_models(models, [1, -1])
    explanation = explain(difference, FRAME, precision="double")
    assert explanation.checked_against == "model"
    total = explanation.values.sum(axis=1) + explanation.base_values
    # XGBoost predicts in float32, with rounding relative to numbers of about 1000
    expected = models[0].predict(FRAME).astype(float) - models[1].predict(FRAME)
    np.testing.assert_allclose(total, expected, rtol=0, atol=1e-3)


def test_steps_before_a_model() -> None:
    scaled = fitted(make_pipeline(StandardScaler(), regressor("sklearn")))
    plain = fitted(forest())
    values = explain(sum_of_models([scaled, plain], [1, -1]), ROWS, data=BACKGROUND, precision="double")
    # SHAP values are linear in the model: each difference of two values is rounded at about 1000
    parts = [explain(model, ROWS, data=BACKGROUND, precision="double") for model in (scaled, plain)]
    np.testing.assert_allclose(values.values, parts[0].values - parts[1].values, rtol=0, atol=1e-10)
    expected = scaled.predict(ROWS) - plain.predict(ROWS)
    np.testing.assert_allclose(values.values.sum(axis=1) + values.base_values, expected, rtol=1e-10)


def test_errors() -> None:
    models = [fitted(forest()), fitted(regressor("sklearn"))]
    wrong: Any
    for wrong in ([1], [1, -1, 0], [[1, -1]], [1, np.nan], [1, np.inf], [1, 1j], ["1", "a"], None):
        with pytest.raises(ValueError, match="weights must be a finite number for each of the 2 models"):
            sum_of_models(models, wrong)
    with pytest.raises(ValueError, match="at least one"):
        sum_of_models([], [])
    with pytest.raises(TypeError, match=r"models must be a list .*, not a RandomForestRegressor"):
        sum_of_models(models[0], [1])
    boosted = [
        (name, GradientBoostingClassifier(n_estimators=3, random_state=i)) for i, name in enumerate("ab")
    ]
    votes = fitted(VotingClassifier(boosted, voting="soft"), TWO)
    with pytest.raises(UnsupportedModelError, match="no margin, only a mean of probabilities"):
        sum_of_models([votes, votes], [1, -1])
    renamed = forest().fit(FRAME.rename(columns={"c": "C"}), NUMBERS)
    with pytest.raises(UnsupportedModelError, match="columns of different names"):
        sum_of_models([models[0], renamed], [1, -1])
