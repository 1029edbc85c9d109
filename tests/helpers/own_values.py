"""Margins and values as the libraries themselves compute them, and the models of ``cases`` with both."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from sklearn.base import is_classifier
from sklearn.ensemble import IsolationForest

from helpers.cases import CASES, UNEVEN
from helpers.checks import hard_rows
from skshapgpu import TreeExplainer, reference
from skshapgpu._rows import inputs
from skshapgpu.adapters import adapt
from skshapgpu.adapters.schema import AdaptedModel

# The libraries' own results


def own_margin(model: Any, X: Any) -> np.ndarray:
    """Predict with the model's library in the space in which trees add up: (n_rows, n_outputs)."""
    margin = _OWN_MARGIN[type(model).__module__.partition(".")[0]](model, X)
    return np.asarray(margin, np.float64).reshape(len(X), -1)


def _sklearn_margin(model: Any, X: Any) -> np.ndarray:
    if isinstance(model, IsolationForest):  # score = -2^(-depth / average)
        n = model._max_samples
        average = 2 * (np.log(n - 1) + np.euler_gamma) - 2 * (n - 1) / n
        return -np.log2(-model.score_samples(X)) * average
    if hasattr(model, "decision_function"):
        return model.decision_function(X)
    if is_classifier(model):
        probability = model.predict_proba(X)
        return probability[:, 1] if probability.shape[1] == 2 else probability
    return model.predict(X)


def _xgboost_margin(model: Any, X: Any) -> np.ndarray:
    if hasattr(model, "get_booster"):
        return model.predict(X, output_margin=True)
    return model.predict(_matrix(model, X), output_margin=True)


def _lightgbm_margin(model: Any, X: Any) -> np.ndarray:
    booster = getattr(model, "booster_", model)
    margin = model.predict(X, raw_score=True)
    if booster.params.get("boosting", booster.params.get("boosting_type")) == "rf":
        margin = margin / booster.current_iteration()  # raw_score is the sum, LightGBM#6217
    return margin


def _catboost_margin(model: Any, X: Any) -> np.ndarray:
    return model.predict(X, prediction_type="RawFormulaVal")


_OWN_MARGIN = {
    "sklearn": _sklearn_margin,
    "xgboost": _xgboost_margin,
    "lightgbm": _lightgbm_margin,
    "catboost": _catboost_margin,
}


def _matrix(model: Any, X: Any) -> Any:
    """Return X for a native XGBoost call, with the settings of the model if it is a wrapper."""
    xgb = pytest.importorskip("xgboost")
    types = getattr(model, "feature_types", None)
    return xgb.DMatrix(
        X,
        missing=getattr(model, "missing", np.nan),
        enable_categorical=True,
        feature_types=types if isinstance(X, np.ndarray) else None,
    )


def xgboost_values(model: Any, X: Any) -> np.ndarray:
    """Compute XGBoost's pred_contribs, (n_rows, n_features, n_outputs)."""
    booster, rounds = model, (0, 0)
    if hasattr(model, "get_booster"):
        booster = model.get_booster()
        if model.early_stopping_rounds is not None:
            rounds = (0, model.best_iteration + 1)
    own = booster.predict(_matrix(model, X), pred_contribs=True, iteration_range=rounds, strict_shape=True)
    return own[..., :-1].astype(np.float64).transpose(0, 2, 1)


def lightgbm_values(model: Any, X: Any) -> np.ndarray:
    own = model.predict(X, pred_contrib=True)
    return own.reshape(len(X), -1, X.shape[1] + 1)[..., :-1].transpose(0, 2, 1)


def catboost_values(model: Any, X: Any) -> np.ndarray:
    cb = pytest.importorskip("catboost")
    pool = cb.Pool(X, cat_features=model.get_cat_feature_indices())
    own = model.get_feature_importance(pool, type="ShapValues")
    return own.reshape(len(X), -1, X.shape[1] + 1)[..., :-1].transpose(0, 2, 1)


def shap_values(model: Any, X: Any) -> tuple[np.ndarray, np.ndarray]:
    """Compute shap's values and base values, in our shapes: a binary classifier has one output."""
    shap = pytest.importorskip("shap")
    explainer = shap.TreeExplainer(model, feature_perturbation="tree_path_dependent")
    values = np.asarray(explainer.shap_values(X, check_additivity=False), np.float64)
    values = values.reshape(*X.shape, -1)
    base_value = np.ravel(explainer.expected_value)
    if is_classifier(model) and values.shape[2] == 2:
        return values[..., 1:], base_value[1:]
    return values, base_value


# The checks


@dataclass(frozen=True)
class Fitted:
    model: Any
    X: Any
    adapted: AdaptedModel
    margin: np.ndarray

    def explain(self, precision: Any) -> tuple[np.ndarray, np.ndarray]:
        """Compute values (n_rows, n_features, n_outputs) and base values through the public interface."""
        explainer = TreeExplainer(self.model, precision=precision)
        values = explainer.shap_values(self.X)
        assert values.dtype == np.float64
        return values.reshape(*self.X.shape, -1), np.atleast_1d(explainer.expected_value)

    def encoded(self) -> np.ndarray:
        rows = inputs.read(self.X, self.adapted.schema, self.adapted.ensemble.x_dtype)
        return rows.chunk(0, rows.n_rows)


@functools.cache
def fitted(name: str) -> Fitted:
    """Fit a case; return it with training rows and, if all columns are numbers, rows next to thresholds."""
    model, X = CASES[name]()
    adapted = adapt(model)
    if isinstance(X, np.ndarray) and not (adapted.family == "sklearn" and adapted.schema.encoders):
        schema = adapted.schema
        hard = hard_rows(adapted.ensemble, 40, nan=schema.allow_nan, inf=schema.allow_inf)
        X = np.concatenate([X[:30], hard.astype(np.float64)])
    return Fitted(model, X, adapted, own_margin(model, X))


@functools.cache
def definition(name: str) -> tuple[np.ndarray, np.ndarray]:
    case = fitted(name)
    values, base_value, _ = reference.path_dependent(case.adapted.ensemble, case.encoded())
    return values.transpose(0, 2, 1), base_value


def error(values: np.ndarray, expected: np.ndarray, unit: np.ndarray) -> float:
    """Return the largest difference, in units of each output."""
    assert values.shape == expected.shape
    difference = np.abs(values - expected)
    assert (difference[..., unit == 0] == 0).all()
    return float((difference / np.where(unit == 0, 1.0, unit)).max())


# Values of the libraries themselves, and of shap


def shap_only(model: Any, X: Any) -> np.ndarray:
    return shap_values(model, X)[0]


OWN_VALUES: dict[str, tuple[Callable[[Any, Any], np.ndarray], float]] = {
    # All three libraries compute in float64, as we do: only the order of the additions differs.
    "sklearn": (shap_only, 1e-12),
    "lightgbm": (lightgbm_values, 1e-12),
    "catboost": (catboost_values, 1e-12),
    # XGBoost computes and returns float32. From 3.3 on, it uses 8 quadrature points, which are enough for
    # these models, whose paths have at most 6 features.
    "xgboost": (xgboost_values, 1e-6),
}
#: Cases for which another library has no values, or wrong values. Our values are compared with the definition
#: for all of them. Comments below explain most cases.
NOT_OWN = [
    # shap does not support these models, or reads categorical splits as numeric ones
    "sklearn boosting, huber, from zero",
    "sklearn boosting, three classes",
    "sklearn bagging",
    "sklearn bagging, several targets",
    "sklearn bagging, three classes, subsets of features",
    "sklearn histograms, categories",
    "sklearn histograms, categories, three classes",
    "sklearn histograms, codes",
    "sklearn histograms, codes, three classes",
    # LightGBM sums the trees that it should average
    "lightgbm forest",
    "lightgbm forest, three classes",
    "lightgbm codes, forest",
    # CatBoost's values do not add up if leaves are at different depths, or if the model has a scale
    "catboost one-hot, Lossguide",
    "catboost scale and bias",
    "catboost scale and bias, MultiRMSE",
    *(name for name in CASES if name.startswith(tuple(f"catboost {policy}" for policy in UNEVEN))),
]
