"""Ensembles of scikit-learn that are sums of other models, their data, and what they predict in float64."""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    BaggingRegressor,
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    StackingClassifier,
    StackingRegressor,
    VotingClassifier,
    VotingRegressor,
)
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge, RidgeClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import MultiOutputClassifier, MultiOutputRegressor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from helpers.families import classifier, forest, forest_classifier, regressor
from helpers.sums_data import FRAME, INDICATORS, LABELS, NUMBERS, RARE, TARGETS, THREE, TWO
from skshapgpu.adapters import adapt

_SMALL = {"max_iter": 6, "max_leaf_nodes": 6, "min_samples_leaf": 5, "random_state": 0}
_BOOST = {"n_estimators": 6, "max_depth": 2, "random_state": 0}


def tree(**options: Any) -> DecisionTreeClassifier:
    return DecisionTreeClassifier(max_depth=3, random_state=0, **options)


def boosting() -> GradientBoostingClassifier:
    return GradientBoostingClassifier(**_BOOST)


def histogram() -> HistGradientBoostingClassifier:
    return HistGradientBoostingClassifier(**_SMALL)


def rows_only(model: Any) -> Pipeline:
    """Return a model that takes no weights, so that bagging trains it on some of the rows."""
    return make_pipeline("passthrough", model)


def _regressors() -> list[tuple[str, Any]]:
    families = [(name, regressor(name)) for name in ("xgboost", "lightgbm", "catboost", "sklearn")]
    return [*families, ("forest", forest()), ("boosting", GradientBoostingRegressor(**_BOOST))]


def _alike() -> list[tuple[str, Any]]:
    """Return regressors that read X as float32 and predict in float64."""
    return [("forest", forest()), ("tree", DecisionTreeRegressor(max_depth=4, random_state=0))]


def _probable() -> list[tuple[str, Any]]:
    extra = ExtraTreesClassifier(4, max_depth=3, random_state=0)
    return [("forest", forest_classifier()), ("tree", tree()), ("extra", extra)]


def _decided() -> list[tuple[str, Any]]:
    return [("boosting", boosting()), ("histogram", histogram())]


def _search(model: Any, **grid: Any) -> GridSearchCV:
    return GridSearchCV(model, grid, cv=2)


#: Fitted models by name: the unfitted model, and its target.
MODELS: dict[str, tuple[Any, np.ndarray]] = {
    "voting of all libraries": (VotingRegressor(_regressors(), weights=[1, -2, 0.5, 3, 2, 1]), NUMBERS),
    "voting, equal weights": (VotingRegressor(_regressors()), NUMBERS),
    "voting, weight zero": (VotingRegressor(_regressors(), weights=[0, 1, 1, 0, 2, 0]), NUMBERS),
    "voting of float32": (VotingRegressor(_alike(), weights=[3, 1]), NUMBERS),
    "voting, dropped": (VotingRegressor([*_alike(), ("gone", "drop")], weights=[3, 1, 7]), NUMBERS),
    "voting of wrapped models": (
        VotingRegressor(
            [
                ("search", _search(regressor("xgboost"), max_depth=[2, 3])),
                ("pipeline", make_pipeline(None, "passthrough", regressor("lightgbm"))),
                ("voting", VotingRegressor(_alike(), weights=[2, 1])),
                ("bag", BaggingRegressor(regressor("xgboost"), 2, max_features=0.6, random_state=0)),
            ]
        ),
        NUMBERS,
    ),
    "soft voting": (VotingClassifier(_probable(), voting="soft", weights=[1, 0, 3]), TWO),
    "soft voting, three classes": (VotingClassifier(_probable(), voting="soft", weights=[1, 2, -0.5]), THREE),
    "AdaBoost": (AdaBoostClassifier(n_estimators=12, random_state=0), TWO),
    "AdaBoost, three classes": (AdaBoostClassifier(tree(), n_estimators=6, random_state=0), THREE),
    "AdaBoost, learning rate": (AdaBoostClassifier(tree(), n_estimators=6, learning_rate=0.3), RARE),
    "targets": (MultiOutputRegressor(regressor("lightgbm")), TARGETS),
    "targets, float32": (MultiOutputRegressor(GradientBoostingRegressor(**_BOOST)), TARGETS),
    "targets, XGBoost": (MultiOutputRegressor(regressor("xgboost")), TARGETS),
    "classified targets": (MultiOutputClassifier(forest_classifier()), LABELS),
    "margins of targets": (MultiOutputClassifier(boosting()), LABELS),
    "margins of binary targets": (MultiOutputClassifier(histogram()), INDICATORS),
    "one against the rest": (OneVsRestClassifier(boosting()), THREE),
    "one against the rest, two classes": (OneVsRestClassifier(histogram()), TWO),
    "one against the rest, forests": (OneVsRestClassifier(forest_classifier()), THREE),
    "one against the rest, labels": (OneVsRestClassifier(forest_classifier()), INDICATORS),
    "one against the rest, XGBoost": (OneVsRestClassifier(classifier("xgboost")), INDICATORS),
    "stack": (StackingRegressor(_regressors(), cv=2), NUMBERS),
    "stack, least squares": (StackingRegressor(_alike(), LinearRegression(), cv=2), NUMBERS),
    "stack, scaled": (
        StackingRegressor(
            _alike(), make_pipeline(StandardScaler(), StandardScaler(with_mean=False), Ridge()), cv=2
        ),
        NUMBERS,
    ),
    "stack of probabilities": (StackingClassifier(_probable(), cv=2), TWO),
    "stack of probabilities, three classes": (StackingClassifier(_probable(), cv=2), THREE),
    "stack of probabilities, scaled": (
        StackingClassifier(_probable(), make_pipeline(StandardScaler(), LogisticRegression()), cv=2),
        TWO,
    ),
    "stack of decisions": (
        StackingClassifier(_decided(), LogisticRegression(), stack_method="decision_function", cv=2),
        THREE,
    ),
    "stack of both": (
        StackingClassifier(
            [*_decided()[:1], ("ada", AdaBoostClassifier(n_estimators=5))],
            RidgeClassifier(),
            stack_method="decision_function",
            cv=2,
        ),
        TWO,
    ),
    "bag": (BaggingRegressor(regressor("sklearn"), 3, max_features=0.6, random_state=0), NUMBERS),
    "bag of targets": (BaggingRegressor(forest(), 3, max_features=3, random_state=0), TARGETS),
    "bag of forests": (BaggingClassifier(forest_classifier(), 3, max_features=3, random_state=0), TWO),
    "bag, missing classes": (
        BaggingClassifier(rows_only(forest_classifier()), 6, max_samples=30, random_state=0),
        RARE,
    ),
    "calibrated": (CalibratedClassifierCV(boosting(), ensemble=False, cv=2), TWO),
    "calibrated forest": (CalibratedClassifierCV(forest_classifier(), ensemble=False, cv=2), TWO),
    "calibrated, frozen": (CalibratedClassifierCV(FrozenEstimator(histogram().fit(FRAME, TWO))), TWO),
}


class _InFloat64:
    """A model of XGBoost, which predicts in float32, with predictions in float64 from its own trees."""

    def __init__(self, model: Any) -> None:
        self._model, self._ensemble = model, adapt(model).ensemble
        self.classes_ = getattr(model, "classes_", None)

    def predict(self, X: Any) -> np.ndarray:
        return self._ensemble.margin(np.asarray(X))[:, 0]

    decision_function = predict


def in_float64(model: Any) -> Any:
    """Return a fitted model whose predictions are as exact as float64: members of XGBoost are replaced."""
    if type(model).__module__.startswith("xgboost"):
        return _InFloat64(model)
    result = copy(model)
    if isinstance(model, GridSearchCV):
        result.best_estimator_ = in_float64(model.best_estimator_)
    elif hasattr(model, "estimators_") and not isinstance(model, RandomForestClassifier):
        if not isinstance(model, (GradientBoostingClassifier, GradientBoostingRegressor)):
            result.estimators_ = list(map(in_float64, model.estimators_))
    return result


def own_margins(model: Any, X: Any) -> np.ndarray:
    """Predict with the ensemble itself, in the space in which its members add up: (n_rows, n_outputs)."""
    model = in_float64(model)
    if isinstance(model, CalibratedClassifierCV):
        probability = model.predict_proba(X)[:, 1]
        margins = np.log(probability) - np.log1p(-probability)
    elif isinstance(model, MultiOutputClassifier):
        if hasattr(model.estimators_[0], "decision_function"):
            margins = np.column_stack([member.decision_function(X) for member in model.estimators_])
        else:
            margins = np.hstack(model.predict_proba(X))
    elif isinstance(model, OneVsRestClassifier) and not hasattr(model, "decision_function"):
        margins = np.column_stack([member.predict_proba(X)[:, 1] for member in model.estimators_])
    elif not is_classifier(model):
        margins = model.predict(X)
    elif hasattr(model, "decision_function"):
        margins = model.decision_function(X)
    else:
        margins = model.predict_proba(X)
        margins = margins[:, 1] if margins.shape[1] == 2 else margins
    return np.asarray(margins, np.float64).reshape(len(X), -1)
