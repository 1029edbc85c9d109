"""The margin of a fitted model, computed by its library."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from . import sums


def library_of(model: Any) -> str:
    """Return the library of a model; classes of the hunt itself belong to the library of their base class."""
    modules = [cls.__module__.partition(".")[0] for cls in type(model).__mro__]
    return next(name for name in modules if name not in ("hunt", "tests"))


def n_rounds(model: Any) -> int:
    """Return a bound on the number of trees that add up to a margin, which bounds the rounding errors."""
    library = library_of(model)
    if library == "xgboost":
        booster = model if type(model).__name__ == "Booster" else model.get_booster()
        return len(booster.get_dump())
    if library == "lightgbm":
        booster = model if type(model).__name__ == "Booster" else model.booster_
        return booster.num_trees()
    if library == "catboost":
        return model.tree_count_
    if sums.is_sum(model):
        return int(np.ceil(sum(map(n_rounds, sums.members_of(model))) * sums.magnification(model)))
    estimators = getattr(model, "estimators_", None)
    if estimators is not None:
        return len(estimators)
    return len(getattr(model, "_predictors", [0]))


def by_output(values: Any) -> np.ndarray:
    """Return predictions as float64 of shape (n_rows, n_outputs)."""
    values = np.asarray(values, np.float64)
    return values.reshape(len(values), -1)


def margin_of(model: Any, X: Any, *, contrast: bool = False) -> np.ndarray:
    """Compute the margin with the library itself, shape (n_rows, n_outputs).

    With ``contrast``, leave out the intercept if the library can and would otherwise add it in float32, so
    that differences between rows keep their digits.
    """
    library = library_of(model)
    if library == "xgboost":
        return by_output(_xgboost_margin(model, X, contrast))
    if library == "lightgbm":
        return by_output(_lightgbm_margin(model, X))
    if library == "catboost":
        return by_output(model.predict(X, prediction_type="RawFormulaVal"))
    if library == "sksurv":
        predictions = model.predict(X)  # of boosting with other losses than Cox's, a time
        return by_output(np.log(predictions) if getattr(model, "loss", "coxph") != "coxph" else predictions)
    return by_output(_sklearn_margin(model, X))


def _xgboost_margin(model: Any, X: Any, contrast: bool) -> Any:
    import xgboost

    is_native = isinstance(model, xgboost.Booster)
    if not is_native and not contrast:
        return model.predict(X, output_margin=True)
    booster = model if is_native else model.get_booster()
    stop = 0 if is_native else getattr(model, "best_iteration", -1) + 1
    missing = np.nan if is_native else model.missing
    # The wrapper passes on an array without names, even if the booster was trained with names.
    names = {} if is_native or hasattr(X, "columns") else {"feature_names": booster.feature_names}
    rows = xgboost.DMatrix(X, missing=missing, enable_categorical=True, **names)
    if contrast:
        rows.set_base_margin(np.zeros((rows.num_row(), _xgboost_outputs(booster))))
    return booster.predict(rows, output_margin=True, iteration_range=(0, stop))


def _xgboost_outputs(booster: Any) -> int:
    param = json.loads(booster.save_config())["learner"]["learner_model_param"]
    return max(int(param["num_class"]), int(param["num_target"]), 1)


def _lightgbm_margin(model: Any, X: Any) -> Any:
    booster = getattr(model, "booster_", model)
    raw = np.asarray(model.predict(X, raw_score=True), np.float64)
    if "\naverage_output\n" in booster.model_to_string():
        raw = raw / (booster.num_trees() / booster.num_model_per_iteration())
    return raw


def _sklearn_margin(model: Any, X: Any) -> Any:
    name = type(model).__name__
    if name.startswith("Hist"):
        return model._raw_predict(X)
    if name == "IsolationForest":
        return -np.log2(-model.score_samples(X)) * average_path(model._max_samples)
    if name == "GradientBoostingClassifier":
        return model.decision_function(X)
    if hasattr(model, "predict_proba"):
        probabilities = model.predict_proba(X)
        return probabilities[:, 1] if probabilities.shape[1] == 2 else probabilities
    return model.predict(X)


def average_path(n: int) -> float:
    """Return the mean depth of an unsuccessful search in a search tree of n items (Liu et al., 2008)."""
    if n <= 1:
        return 0.0
    return 1.0 if n == 2 else 2 * (np.log(n - 1.0) + np.euler_gamma) - 2 * (n - 1) / n


def is_probability(model: Any) -> bool:
    """Return whether the margin of a classifier is already a probability."""
    return library_of(model) == "sklearn" and "Boosting" not in type(model).__name__
