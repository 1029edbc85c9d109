"""Ensembles of scikit-learn that are sums: values equal their definition, through their own predictions."""

from __future__ import annotations

from copy import copy
from functools import cache
from typing import Any

import numpy as np
import pytest
from helpers.families import classifier, forest, forest_classifier, values_by_definition
from helpers.sums import MODELS, boosting, own_margins, rows_only, tree
from helpers.sums_data import FRAME, INDICATORS, LABELS, NUMBERS, TARGETS, THREE, TWO
from sklearn.base import BaseEstimator, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.decomposition import PCA
from sklearn.ensemble import (
    AdaBoostClassifier,
    AdaBoostRegressor,
    BaggingClassifier,
    BaggingRegressor,
    HistGradientBoostingRegressor,
    StackingClassifier,
    StackingRegressor,
    VotingClassifier,
    VotingRegressor,
)
from sklearn.exceptions import NotFittedError
from sklearn.feature_selection import RFE
from sklearn.linear_model import LinearRegression, LogisticRegression, PoissonRegressor
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import ClassifierChain, MultiOutputClassifier, MultiOutputRegressor, RegressorChain
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from skshapgpu import TreeExplainer, explain
from skshapgpu.adapters import adapt
from skshapgpu.errors import PredictionMismatchError, UnsupportedModelError

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")

ROWS, BACKGROUND = FRAME.iloc[5:9], FRAME.iloc[40:46]


@cache
def fitted(name: str) -> Any:
    model, target = MODELS[name]
    return clone(model).fit(FRAME, target)


@pytest.mark.parametrize("name", MODELS)
def test_values_equal_their_definition(name: str) -> None:
    model = fitted(name)
    own = own_margins(model, ROWS)
    tolerance = 1e-10 * max(1.0, np.abs(own).max())
    expected = values_by_definition(lambda X: own_margins(model, X), ROWS, BACKGROUND)
    explanation = TreeExplainer(model, BACKGROUND, precision="double").explain(ROWS)
    assert explanation.checked_against == "model"
    values = explanation.values.reshape(expected.shape)
    assert np.abs(expected).max() > 1e-3
    np.testing.assert_allclose(values, expected, rtol=0, atol=tolerance)
    total = values.sum(axis=1) + np.reshape(explanation.base_values, (1, -1))
    np.testing.assert_allclose(total, own, rtol=0, atol=tolerance)
    path_dependent = TreeExplainer(model, precision="double").explain(ROWS)
    assert path_dependent.checked_against == "model"
    values = path_dependent.values.reshape(expected.shape)
    total = values.sum(axis=1) + np.reshape(path_dependent.base_values, (1, -1))
    np.testing.assert_allclose(total, own, rtol=0, atol=tolerance)


#: Models with a link, or whose margin is the probability.
WITH_PROBABILITIES = [
    "soft voting",
    "soft voting, three classes",
    "AdaBoost",
    "AdaBoost, three classes",
    "classified targets",
    "margins of binary targets",
    "one against the rest, two classes",
    "one against the rest, labels",
    "one against the rest, XGBoost",
    "stack of probabilities",
    "stack of probabilities, three classes",
    "stack of probabilities, scaled",
    "stack of decisions",
    "bag, missing classes",
    "calibrated",
    "calibrated forest",
    "calibrated, frozen",
]


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("name", WITH_PROBABILITIES)
def test_probabilities(name: str) -> None:
    model = fitted(name)
    explainer = TreeExplainer(model, BACKGROUND, model_output="probability", precision="double")
    explanation = explainer.explain(ROWS)
    assert explanation.checked_against == "model"
    proba = model.predict_proba(ROWS)
    if isinstance(proba, list):
        proba = np.hstack([p[:, 1:] for p in proba] if name == "margins of binary targets" else proba)
    elif proba.shape[1] == 2:
        proba = proba[:, 1:]
    total = explanation.values.sum(axis=1) + explanation.base_values
    rtol = 1e-6 if "XGBoost" in name else 1e-10
    np.testing.assert_allclose(total.reshape(len(ROWS), -1), proba, rtol=rtol, atol=1e-12)


def test_models_without_a_link_have_no_probability() -> None:
    for name in (
        "margins of targets",
        "one against the rest, forests",
        "stack of both",
    ):
        with pytest.raises(ValueError, match="model_output='probability' needs"):
            TreeExplainer(fitted(name), BACKGROUND, model_output="probability")


def test_log_loss_and_squared_error() -> None:
    for name in ("AdaBoost", "calibrated", "stack of probabilities", "voting of float32"):
        model, (_, target) = fitted(name), MODELS[name]
        explainer = TreeExplainer(model, BACKGROUND, model_output="log_loss", precision="double")
        explanation = explainer.explain(ROWS, target[5:9])
        if name == "voting of float32":
            expected = (model.predict(ROWS) - target[5:9]) ** 2
        else:
            proba = model.predict_proba(ROWS)
            expected = -np.log(proba[np.arange(4), (target[5:9] == model.classes_[1]).astype(int)])
        total = explanation.values.sum(axis=1) + explanation.base_values
        np.testing.assert_allclose(total, expected, rtol=1e-9)
    with pytest.raises(ValueError, match="log_loss"):  # the stack was trained on other predictions
        TreeExplainer(fitted("stack"), BACKGROUND, model_output="log_loss")


def test_names_of_outputs() -> None:
    labels = {
        "soft voting, three classes": ("a", "b", "c"),
        "AdaBoost, three classes": ("a", "b", "c"),
        "AdaBoost, learning rate": ("a", "b", "c", "rare"),
        "classified targets": ("0_a", "0_b", "0_c", "1_no", "1_yes"),
        "margins of targets": ("0_a", "0_b", "0_c", "1_yes"),
        "margins of binary targets": ("0_1", "1_1", "2_1"),
        "one against the rest": ("a", "b", "c"),
        "one against the rest, labels": (0, 1, 2),
        "targets": None,
        "bag of targets": None,
    }
    for name, expected in labels.items():
        assert adapt(fitted(name)).output_names == expected, name
    for name in (
        "soft voting",
        "AdaBoost",
        "calibrated",
        "stack of both",
        "one against the rest, two classes",
    ):
        adapted = adapt(fitted(name))
        assert adapted.class_names == ("no", "yes") and adapted.binary is not None, name
        explanation = explain(fitted(name), ROWS, outputs="all", precision="double")
        assert explanation.values.shape == (4, 4, 2)
        np.testing.assert_allclose(
            explanation.values[..., 0], -explanation.values[..., 1], rtol=0, atol=1e-12
        )


def test_classes_that_members_have_not_seen() -> None:
    for name, n_classes in (("bag, missing classes", 4), ("bag of forests", 2)):
        seen = [len(member.classes_) for member in fitted(name).estimators_]
        assert max(seen) == n_classes and (min(seen) < n_classes) == (n_classes == 4)
    y = np.where(np.arange(240) < 3, "first", "last")  # one member sees the last class only
    model = BaggingClassifier(rows_only(forest_classifier(2)), 8, max_samples=20, random_state=0).fit(
        FRAME, y
    )
    assert {len(member.classes_) for member in model.estimators_} == {1, 2}
    explanation = explain(model, FRAME, precision="double")
    total = explanation.values.sum(axis=1) + explanation.base_values
    np.testing.assert_allclose(total, model.predict_proba(FRAME)[:, 1], rtol=1e-12)
    model = BaggingClassifier(forest_classifier(2), 2, random_state=0).fit(FRAME, np.full(240, 7))
    assert explain(model, ROWS).checked_against == "model"


def test_members_of_a_bag_take_some_columns() -> None:
    model = fitted("bag")
    assert {tuple(sorted(columns)) for columns in model.estimators_features_} != {(0, 1, 2, 3)}
    edited = copy(model)
    edited.estimators_features_ = [columns.tolist() for columns in model.estimators_features_]
    np.testing.assert_array_equal(explain(edited, ROWS).values, explain(model, ROWS).values)
    categorical = BaggingRegressor(
        HistGradientBoostingRegressor(max_iter=3, categorical_features=[1], min_samples_leaf=2),
        2,
        random_state=0,
    )
    X = np.column_stack([np.arange(90) % 7, np.arange(90) % 4, np.arange(90) % 5]).astype(float)
    categorical.fit(X, (X[:, 1] % 2) * 3 + X[:, 0])
    explanation = explain(categorical, X, precision="double")
    assert explanation.checked_against == "model" and adapt(categorical).schema.encoders


def test_adaboost_of_one_class_and_of_forests() -> None:
    model = AdaBoostClassifier(n_estimators=3).fit(FRAME, np.zeros(240))
    explanation = explain(model, ROWS)
    assert explanation.checked_against == "model" and not explanation.values.any()
    model = AdaBoostClassifier(forest_classifier(), n_estimators=3).fit(FRAME, TWO)
    with pytest.raises(UnsupportedModelError, match="each member must be a DecisionTreeClassifier"):
        adapt(model)
    model = AdaBoostClassifier(n_estimators=3).fit(FRAME, TWO)
    with pytest.raises(ValueError, match="NaN"):
        explain(model, ROWS.where(ROWS < 1))


@pytest.mark.parametrize("value", [0, 1])
def test_labels_of_all_rows_or_of_none(value: int) -> None:
    y = INDICATORS.copy()
    y[:, 1] = value
    for member in (forest_classifier(), boosting()):
        with pytest.warns(
            UserWarning, match="is (not )?present in all training examples|Label .* is present"
        ):
            model = OneVsRestClassifier(member).fit(FRAME, y)
        explanation = explain(model, ROWS, precision="double")
        assert explanation.checked_against == "model"
        np.testing.assert_array_equal(explanation.base_values[..., 1], value)
        assert not explanation.values[..., 1].any()


def test_weights_that_changed_after_the_fit() -> None:
    model = clone(MODELS["voting of float32"][0]).fit(FRAME, NUMBERS)
    model.set_params(weights=[1, 5])
    assert explain(model, ROWS).checked_against == "model"
    for weights in ([1, -1], [1e308, 1e308], [np.nan, 1]):
        model.set_params(weights=weights)
        with pytest.raises(ValueError, match="must be finite, and not zero"):
            adapt(model)
    model.set_params(weights=[1, 5], tree="drop")
    with pytest.raises(UnsupportedModelError, match="1 weights for 2 fitted members"):
        adapt(model)


def steps(model: Any) -> Any:
    return make_pipeline(StandardScaler(), model)


def ranged(model: Any) -> Any:
    return make_pipeline(MinMaxScaler(), model)


@pytest.mark.parametrize(
    "model, target, reason",
    [
        (VotingClassifier([("a", tree())]), TWO, "voting='hard'"),
        (
            VotingClassifier([("a", boosting())], voting="soft"),
            TWO,
            "use model_output='probability'",
        ),
        (VotingClassifier([("a", LogisticRegression())], voting="soft"), TWO, "of LogisticRegression"),
        (VotingRegressor([("a", LinearRegression())]), NUMBERS, "of LinearRegression"),
        (
            VotingRegressor([("a", make_pipeline(PCA(), forest()))]),
            NUMBERS,
            r"PCA mixes columns.*put the steps before the VotingRegressor",
        ),
        (
            VotingRegressor([("a", VotingRegressor([("b", steps(forest()))]))]),
            NUMBERS,
            "steps inside the members of a member",
        ),
        (VotingRegressor([("a", RFE(forest(), n_features_to_select=2))]), NUMBERS, "of RFE"),
        (VotingRegressor([("a", HistGradientBoostingRegressor(loss="poisson"))]), NUMBERS, "takes predict"),
        (VotingRegressor([("a", AdaBoostRegressor())]), NUMBERS, "of AdaBoostRegressor.*weighted median"),
        (StackingRegressor([("a", forest())], passthrough=True, cv=2), NUMBERS, "passthrough=True"),
        (StackingRegressor([("a", forest())], forest(), cv=2), NUMBERS, "final_estimator_ of RandomF"),
        (
            StackingRegressor([("a", forest())], PoissonRegressor(), cv=2),
            NUMBERS,
            "final_estimator_ of Poisson",
        ),
        (StackingClassifier([("a", boosting())], cv=2), TWO, "use stack_method='decision_function'"),
        (
            StackingClassifier([("a", tree())], stack_method="predict", cv=2),
            INDICATORS[:, 0],
            "takes class labels",
        ),
        (StackingClassifier([("a", tree())], ranged(LogisticRegression()), cv=2), TWO, "of Pipeline"),
        (CalibratedClassifierCV(boosting(), cv=2), TWO, "use model_output='probability'"),
        (CalibratedClassifierCV(boosting(), ensemble=False, cv=2), THREE, "use model_output='probability'"),
        (
            CalibratedClassifierCV(boosting(), method="isotonic", ensemble=False),
            TWO,
            "use model_output='probability'",
        ),
        (
            CalibratedClassifierCV(classifier("xgboost"), ensemble=False, cv=2),
            INDICATORS[:, 0],
            "use model_output='probability'",
        ),
        (MultiOutputRegressor(LinearRegression()), TARGETS, "of LinearRegression"),
        (MultiOutputClassifier(LogisticRegression()), LABELS, "of LogisticRegression"),
        (OneVsRestClassifier(LogisticRegression()), THREE, "of LogisticRegression"),
        (BaggingClassifier(boosting(), 2), TWO, "use model_output='probability'"),
        (BaggingRegressor(steps(forest()), 2), NUMBERS, "put the steps before"),
        (AdaBoostRegressor(n_estimators=2), NUMBERS, "weighted median"),
        (RegressorChain(forest()), TARGETS, "on the columns that it takes"),
        (ClassifierChain(tree()), INDICATORS, "on the columns that it takes"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseEstimator) else "",
)
def test_models_that_are_no_sum(model: Any, target: Any, reason: str) -> None:
    model = clone(model).fit(FRAME, target)
    with pytest.raises(UnsupportedModelError, match=rf"{type(model).__name__}.*{reason}") as error:
        TreeExplainer(model)
    assert "xplain" in str(error.value) or "use " in str(error.value) or "put the steps" in str(error.value)


def test_unfitted_models() -> None:
    for model, _ in MODELS.values():
        with pytest.raises(NotFittedError):
            adapt(clone(model))


class _Doubled(VotingRegressor):
    def predict(self, X: Any) -> np.ndarray:
        return 2 * super().predict(X)


class _DoubledMembers(StackingRegressor):
    def transform(self, X: Any) -> np.ndarray:
        return 2 * super().transform(X)


def test_a_subclass_that_predicts_something_else() -> None:
    with pytest.raises(UnsupportedModelError, match="predict of its own"):
        adapt(_Doubled([("a", forest())]).fit(FRAME, NUMBERS))
    with pytest.raises(UnsupportedModelError, match="transform of its own"):
        adapt(_DoubledMembers([("a", forest())], cv=2).fit(FRAME, NUMBERS))


def test_a_model_that_predicts_something_else() -> None:
    """The first call compares the values with the ensemble's own prediction."""
    model = clone(MODELS["voting of float32"][0]).fit(FRAME, NUMBERS)
    model.predict = lambda X: np.zeros(len(X))
    with pytest.raises(PredictionMismatchError, match="the model itself predicts 0"):
        explain(model, ROWS)
