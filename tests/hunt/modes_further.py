"""Models that are trained further, or edited in place, after an explainer was made and before it is used."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from skshapgpu import ShapTransformer, TreeExplainer, explain_batches

from . import containers, wrappers
from .case import Case
from .margins import library_of
from .modes import adds_up_probabilities, outputs_last, values, widened_base
from .modes_workflow import options_of
from .report import NotDrawnError, Report

#: Attributes of a case that are computed from the model: those that the permitted deviation depends on, and
#: others.
OF_ALLOWED = ("margins", "contrasts", "spread", "magnitude", "leaf_range")
OF_MODEL = (*OF_ALLOWED, "trees", "path_coalition_values", "unused", "kept")

#: Wrappers whose model inside is the one that is changed.
SHARED = ("none", "frozen", "frozen in a pipeline", "native", "search", "transformer", "fixed threshold")


def trained_further(case: Case, report: Report) -> None:
    """Check that explainers made before the change explain the old model, and later ones the new model."""
    if case.draw.outer not in SHARED:
        raise NotDrawnError("trained further: the model inside is a copy")
    how = case.draw.asked["further"]
    before = case.margins
    if how == "from_fitted":
        _transformer(case, report)
    elif how == "batches":
        _batches(case, report)
    else:
        explainer = TreeExplainer(case.fitted.top, device="cpu")
        path = Path(wrappers.FOLDER or ".") / "explainer.npz"
        if how == "saved" and not case.fitted.steps:
            explainer.save(path)
            explainer = TreeExplainer.load(path)
        right = explainer.explain(case.X)
        change(case)
        again = explainer.explain(case.X)
        report.equal("values of the explainer made before", again.values, right.values)
        report.equal("base value of the explainer made before", again.base_values, right.base_values)
        values(case, report)
    report.checks["margins that changed"] += not np.array_equal(before, case.margins)


def _transformer(case: Case, report: Report) -> None:
    """Check that a transformer of a fitted model explains the predictions of its own ``predict``."""
    shap = case.library("from_fitted", ShapTransformer.from_fitted, case.fitted.top, **options_of(case))
    case.library("transform", shap.transform, case.X)
    top = case.fitted.top
    before = {name: getattr(case, name) for name in OF_ALLOWED}
    old = case.library("predict", top.predict, case.seen)
    change(case)
    new = case.library("predict", top.predict, case.seen)
    after = {name: getattr(case, name) for name in OF_ALLOWED}
    try:
        got = np.asarray(shap.transform(case.X), float)
        base = shap.explain(case.X).base_values
    except (ValueError, RuntimeError, TypeError) as error:
        named = any(word in str(error) for word in ("changed", "trained", "fitted"))
        report.true("the refusal says what happened", named, str(error))
        return
    k = case.n_outputs * (2 if case.draw.options.get("outputs") == "all" else 1)
    total = np.reshape(base, (1, -1)) + got.reshape(len(got), -1, k).sum(axis=1)
    scale = np.abs(got).reshape(len(got), -1, k).sum(axis=1).max(axis=0)
    predicted = shap.predict(case.seen)
    trials = []
    for prediction, attributes in ((old, before), (new, after)):
        if not np.array_equal(predicted, prediction):
            continue
        vars(case).update(attributes)
        right = widened_base(case, attributes["margins"], adds_up_probabilities(case))
        trials.append(Report())
        allowed = case.allowed(right * 0 + scale, whole=True, factor=2)
        trials[-1].close("from_fitted adds up to what it predicts", total, right, allowed)
    vars(case).update(after)
    report.checks["from_fitted adds up to what it predicts"] += 1
    if all(trial.findings for trial in trials):
        report.findings += [text for trial in trials for text in trial.findings] or [
            "from_fitted predicts otherwise"
        ]


def _batches(case: Case, report: Report) -> None:
    """Check that a second call with the same output file does not keep values of the old model."""
    sink = Path(wrappers.FOLDER or ".") / "values.npy"
    X = case.converted.plain
    if not isinstance(X, (np.ndarray, pd.DataFrame)):
        raise NotDrawnError("trained further: batches of sparse X")
    options = {"device": "cpu", "batch_size": 5, **case.draw.options}
    explain_batches(case.fitted.top, X, sink, **options)
    change(case)
    try:
        result = explain_batches(case.fitted.top, X, sink, **options)
    except (ValueError, FileExistsError) as error:
        report.true("another call with the same output", "model" in str(error), str(error))
        return
    got = outputs_last(np.load(sink), 3)
    total = np.reshape(result.base_values, (1, -1)) + got.astype(float).sum(axis=1)
    margins = case.library("predict", case.margin, X)
    right = widened_base(case, margins, adds_up_probabilities(case))
    scale = np.abs(got).sum(axis=1).max(axis=0)
    report.close(
        "batches after the change", total, right, case.allowed(right * 0 + scale, whole=True, factor=2)
    )


def change(case: Case) -> None:
    """Change the model proper in place, and forget everything that was computed from it."""
    model = case.fitted.last
    rows = case.library("transform", case.fitted.transform, case.train)
    case.library("change", _changed, model, rows, case.y, case)
    for name in OF_MODEL:
        case.__dict__.pop(name, None)
    case.transformed = case.library("transform", case.fitted.transform, case.seen)


def _changed(model: Any, rows: Any, y: np.ndarray, case: Case) -> None:
    change: dict[str, Callable[..., None]] = {
        "sklearn": _warm_start,
        "sksurv": _warm_start,
        "xgboost": _boosted,
        "lightgbm": _edited_leaf,
        "catboost": _shrunk,
    }
    change[library_of(model)](model, rows, y, case)


def _warm_start(model: Any, rows: Any, y: np.ndarray, case: Case) -> None:
    """Grow two more trees; change the leaves of a single tree, or fit it again to half of the rows."""
    name = next((name for name in ("n_estimators", "max_iter") if name in model.get_params()), None)
    params = case.fit_params
    if name is None:
        if library_of(model) == "sksurv" or case.rng.random() < 0.5:
            half = np.arange(0, len(y), 2)
            if hasattr(model, "classes_") and len(np.unique(y[half])) < len(np.unique(y)):
                raise NotDrawnError("trained further: half of the rows lack a class")
            model.fit(containers.rows(rows, half), y[half])
        elif hasattr(model, "classes_"):
            model.tree_.value[:] = np.roll(model.tree_.value, 1, axis=2)
        else:
            model.tree_.value[:] *= 2
        return
    model.set_params(**{name: model.get_params()[name] + 2, "warm_start": True})
    model.fit(rows, y, **{key: value for key, value in params.items() if key == "sample_weight"})


def _boosted(model: Any, rows: Any, y: np.ndarray, case: Case) -> None:
    import xgboost

    booster = model if type(model).__name__ == "Booster" else model.get_booster()
    if y.dtype.names is not None or case.draw.task in ("ranking", "outputs"):
        raise NotDrawnError("trained further: labels with bounds, groups or several columns")
    names = {}
    if not hasattr(rows, "columns"):  # an array says neither names nor which columns are codes
        names = {"feature_names": booster.feature_names, "feature_types": booster.feature_types}
    missing = getattr(model, "missing", np.nan)
    number = np.unique(y, return_inverse=True)[1] if case.draw.task in ("binary", "classes") else y
    if case.draw.task in ("rare binary", "rare class"):
        number = np.unique(y, return_inverse=True)[1]
    matrix = xgboost.DMatrix(rows, label=number, missing=missing, enable_categorical=True, **names)
    start = booster.num_boosted_rounds()
    for i in range(2):
        booster.update(matrix, start + i)


def _edited_leaf(model: Any, rows: Any, y: np.ndarray, case: Case) -> None:
    booster = getattr(model, "booster_", model)
    value = booster.get_leaf_output(0, 0)
    booster.set_leaf_output(0, 0, value + 0.25 * (1.0 + abs(value)))


def _shrunk(model: Any, rows: Any, y: np.ndarray, case: Case) -> None:
    if model.tree_count_ < 2:
        raise NotDrawnError("trained further: a single tree of CatBoost")
    model.shrink(model.tree_count_ // 2)


FURTHER = {"trained further": trained_further}
