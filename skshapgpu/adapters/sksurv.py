"""scikit-survival: survival trees and forests, and gradient boosting of trees.

========================================  ====================================================
model                                     margin
========================================  ====================================================
``SurvivalTree``, ``ExtraSurvivalTree``,  ``predict``, the risk score: the expected number of
``RandomSurvivalForest``,                 events, which is the sum of the cumulative hazard at
``ExtraSurvivalTrees``                    all event times; a forest takes the mean of its trees
``GradientBoostingSurvivalAnalysis``      ``predict``, the log hazard ratio, for the loss
                                          "coxph"; the logarithm of ``predict``, a time, for
                                          the others
========================================  ====================================================

Each leaf of a survival tree has a survival function and a cumulative hazard function, and a forest takes the
mean of these functions: their values at some times are a vector of margins. For the loss "coxph", both
functions follow from the margin and the baseline hazard H: they are exp(-H exp(margin)) and H exp(margin). As
in scikit-survival, all these functions are step functions, continuous from the right, whose first value also
holds before the first time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from sklearn.tree import DecisionTreeRegressor
from sklearn.utils.validation import check_is_fitted

from ..errors import UnsupportedModelError
from ._known import require_known
from ._subclasses import require_own_predictions
from .ensemble import Ensemble, Tree
from .schema import AdaptedModel, counts_of, predictions_of_mean
from .sklearn_trees import accepts_nan, input_schema, read_tree, require_trees
from .survival import as_margins, by_link, require_times

#: Losses of boosting by the name of their class: the margin is a log hazard ratio, or the log of a time.
_LOSSES = frozenset({"CoxPH", "CensoredSquaredLoss", "IPCWLeastSquaresError"})


def adapt(model: Any) -> AdaptedModel:
    """Read a fitted model of scikit-survival that is made of trees.

    Raise ``UnsupportedModelError`` if the model is not made of trees, or a third-party subclass has its own
    ``predict``; ``NotFittedError`` if the model is not fitted.
    """
    from sksurv import ensemble, tree

    name = type(model).__name__
    if isinstance(model, ensemble.ComponentwiseGradientBoostingSurvivalAnalysis):
        raise UnsupportedModelError(
            f"cannot explain a {name}: its base learners are linear, each in one column, so its coef_ "
            "explain it"
        )
    if isinstance(model, tree.SurvivalTree):
        check_is_fitted(model, "tree_")
        return _risk_score(model, [model], tree.SurvivalTree)
    if isinstance(model, (ensemble.RandomSurvivalForest, ensemble.ExtraSurvivalTrees)):
        check_is_fitted(model, "estimators_")
        return _risk_score(model, model.estimators_, tree.SurvivalTree)
    if isinstance(model, ensemble.GradientBoostingSurvivalAnalysis):
        check_is_fitted(model, "estimators_")
        return _boosting(model)
    raise UnsupportedModelError(f"cannot explain a {name}: it is not a tree model of scikit-survival")


def _risk_score(model: Any, estimators: list[Any], kind: type) -> AdaptedModel:
    require_own_predictions(model, "sksurv")
    require_trees(model, estimators, kind, "predict", "sksurv")
    trees = [read_tree(estimator, _risk_scores(estimator) / len(estimators)) for estimator in estimators]
    adapted = _adapted(model, trees, accepts_nan(estimators[0]))
    return replace(adapted, over_time=partial(_functions_of_leaves, model, estimators))


def _risk_scores(estimator: Any) -> np.ndarray:
    """Return the risk score of each node. With low_memory, nodes store this score instead of hazards."""
    hazard = estimator.tree_.value[:, :, 0]  # (n_nodes, n_times)
    return hazard[:, 0] if estimator.low_memory else hazard[:, estimator.is_event_time_].sum(axis=1)


def _functions_of_leaves(
    model: Any, estimators: list[Any], adapted: AdaptedModel, model_output: str, times: np.ndarray
) -> AdaptedModel:
    if any(estimator.low_memory for estimator in estimators):
        raise ValueError(
            f"model_output={model_output!r}: this {type(model).__name__} stores risk scores only: fit it "
            "with low_memory=False"
        )
    steps = _steps(model, model.unique_times_, times)
    position = 1 if model_output == "survival" else 0
    values = [estimator.tree_.value[:, steps, position] for estimator in estimators]
    leaf = adapted.ensemble.left < 0
    value = np.where(leaf[:, np.newaxis], np.concatenate(values) / len(estimators), 0.0)
    outputs = as_margins(adapted, times, value, np.zeros(len(times)))
    return replace(outputs, predictions=_functions(model, model_output, times))


def _functions(model: Any, model_output: str, times: np.ndarray) -> dict[str, Callable[[Any], Any]]:
    """Return ``AdaptedModel.predictions`` of a function of time."""
    name = "survival" if model_output == "survival" else "cumulative_hazard"
    predict = getattr(model, f"predict_{name}_function")
    return {model_output: lambda X: np.array([function(times) for function in predict(X)])}


def _steps(model: Any, starts: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Return the step of a ``StepFunction`` at each of ``times``; steps begin at ``starts``."""
    why = f"the functions of this {type(model).__name__} end at the last time of its training rows"
    require_times(times, 0.0, float(starts[-1]), why)
    return np.maximum(np.searchsorted(starts, times, side="right") - 1, 0)


def _boosting(model: Any) -> AdaptedModel:
    require_own_predictions(model, "sksurv")
    require_known(f"the {type(model).__name__}", "losses", [type(model._loss).__name__], _LOSSES)
    estimators = require_trees(model, model.estimators_.ravel(), DecisionTreeRegressor, "predict")
    scales = getattr(model, "_scale", np.ones(len(estimators)))  # dropout scales the trees
    trees = [
        read_tree(estimator, model.learning_rate * scale * estimator.tree_.value[:, 0, 0])
        for estimator, scale in zip(estimators, scales, strict=True)
    ]
    adapted = _adapted(model, trees, allow_nan=False)
    if model._baseline_model is None:  # it predicts a time
        adapted = replace(adapted, predictions=predictions_of_mean(model.predict))
    return replace(adapted, link="exp", over_time=partial(_functions_of_hazard, model))


def _functions_of_hazard(
    model: Any, adapted: AdaptedModel, model_output: str, times: np.ndarray
) -> AdaptedModel:
    if model._baseline_model is None:
        raise ValueError(
            f"model_output={model_output!r}: this {type(model).__name__} with loss={model.loss!r} predicts a "
            "time, which model_output='response' explains; functions of time need loss='coxph'"
        )
    baseline = model._baseline_model.cum_baseline_hazard_
    with np.errstate(divide="ignore"):  # there is no hazard before the first event
        log_hazard = np.log(baseline.y[_steps(model, baseline.x, times)])
    if model_output == "survival":
        outputs = by_link(adapted, times, -log_hazard, "gumbel", sign=-1)
    else:
        outputs = by_link(adapted, times, log_hazard, "exp")
    return replace(outputs, predictions=_functions(model, model_output, times))


def _adapted(model: Any, trees: list[Tree], allow_nan: bool) -> AdaptedModel:
    return AdaptedModel(
        Ensemble.from_trees(trees, n_features=model.n_features_in_, intercept=0.0),
        input_schema(model, allow_nan),
        family="sksurv",
        cover_kind="weight",
        other_covers=counts_of(trees),
        predictions={"raw": model.predict},
    )
