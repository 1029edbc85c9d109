"""Units of explanations against the model's own predictions, which the sums of the values must equal."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    IsolationForest,
    RandomForestRegressor,
)

from skshapgpu import Explanation, cross_val_explain, explain, explain_interactions

CANCER, BENIGN = load_breast_cancer(return_X_y=True)
WINE, CULTIVAR = load_wine(return_X_y=True)


def sums(explanation: Explanation) -> np.ndarray:
    return np.asarray(explanation.base_values + explanation.values.sum(axis=1))


@pytest.mark.parametrize("outputs", ["auto", "all"])
def test_log_odds(outputs: str) -> None:
    models: list[Any] = [
        HistGradientBoostingClassifier(max_iter=5),
        GradientBoostingClassifier(n_estimators=5),
    ]
    for model in models:
        explanation = explain(model.fit(CANCER, BENIGN), CANCER[:20], outputs=outputs)
        expected = model.predict_proba(CANCER[:20])
        expected = expected if outputs == "all" else expected[:, 1]
        np.testing.assert_allclose(sums(explanation), np.log(expected / (1 - expected)), rtol=1e-4, atol=1e-5)
        assert explanation.unit == explanation[:5].unit == "log-odds"


def test_half_of_the_log_odds_are_a_margin() -> None:
    model = GradientBoostingClassifier(loss="exponential", n_estimators=5).fit(CANCER, BENIGN)
    explanation = explain(model, CANCER[:20])
    probability = model.predict_proba(CANCER[:20])[:, 1]
    np.testing.assert_allclose(2 * sums(explanation), np.log(probability / (1 - probability)), rtol=1e-4)
    assert explanation.unit == "margin"


def test_probabilities() -> None:
    model = ExtraTreesClassifier(5, random_state=0).fit(WINE, CULTIVAR)
    explanation = explain(model, WINE[:20])
    np.testing.assert_allclose(sums(explanation), model.predict_proba(WINE[:20]), atol=1e-6)
    assert explanation.unit == explain_interactions(model, WINE[:3]).unit == "probability"


def test_softmax_scores() -> None:
    model = HistGradientBoostingClassifier(max_iter=5).fit(WINE, CULTIVAR)
    explanation = explain(model, WINE[:20])
    exponentials = np.exp(sums(explanation))
    expected = exponentials / exponentials.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(expected, model.predict_proba(WINE[:20]), rtol=1e-4)
    assert explanation.unit == "softmax score"


@pytest.mark.parametrize(
    ("model_output", "unit"), [("probability", "probability"), ("log_loss", "loss"), ("raw", "log-odds")]
)
def test_other_outputs(model_output: str, unit: str) -> None:
    model = HistGradientBoostingClassifier(max_iter=5).fit(CANCER, BENIGN)
    y = BENIGN[:20] if model_output == "log_loss" else None
    explanation = explain(model, CANCER[:20], y, data=CANCER[20:60], model_output=model_output)
    assert explanation.unit == unit


@pytest.mark.parametrize(
    ("model", "unit"),
    [
        (RandomForestRegressor(5), "prediction"),
        (HistGradientBoostingRegressor(max_iter=5), "prediction"),
        (IsolationForest(n_estimators=5), "margin"),
    ],
    ids=["forest", "boosting", "isolation"],
)
def test_predictions_and_margins(model: Any, unit: str) -> None:
    explanation = explain(model.fit(WINE, CULTIVAR + 1), WINE[:5])
    assert explanation.unit == unit
    assert "mean |SHAP value|:" in repr(explanation), "a prediction and a margin need no unit"


def test_out_of_fold_explanations_have_the_unit_of_their_splits() -> None:
    result = cross_val_explain(HistGradientBoostingClassifier(max_iter=5), CANCER, BENIGN, cv=3)
    assert result["explanation"].unit == "log-odds"


def test_logarithms_of_predictions() -> None:
    xgboost = pytest.importorskip("xgboost")
    for model in (
        xgboost.XGBRegressor(n_estimators=5, objective="count:poisson"),
        HistGradientBoostingRegressor(loss="poisson", max_iter=5),
    ):
        explanation = explain(model.fit(WINE, CULTIVAR + 1), WINE[:20])
        np.testing.assert_allclose(np.exp(sums(explanation)), model.predict(WINE[:20]), rtol=1e-4)
        assert explanation.unit == "log of the prediction"
    binary = xgboost.XGBClassifier(n_estimators=5).fit(CANCER, BENIGN)
    assert explain(binary, CANCER[:20]).unit == "log-odds"
