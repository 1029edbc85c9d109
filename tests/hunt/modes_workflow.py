"""Modes that save explainers, cross-validate, transform and select: their results, and whether they agree."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError
from sklearn.feature_selection import RFE, SelectFromModel
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import KFold, ShuffleSplit, StratifiedKFold
from sklearn.pipeline import Pipeline

from skshapgpu import (
    ShapSelector,
    ShapTransformer,
    TreeExplainer,
    cross_val_explain,
    explain,
    shap_importance,
)

from . import containers, data, many, models, readers, tolerance, wrappers
from .case import Case
from .margins import is_probability, library_of, margin_of
from .modes import adds_up, background, explainer_of, outputs_last, steps_keep_bits, values
from .refusals import NO_COLUMN
from .report import NotDrawnError, Report

#: Options that transformers and cross-validation accept.
_COMMON = ("precision", "n_jobs", "memory_limit", "outputs", "algorithm", "columns")

#: Positions of the rows that a split tests, the fitted steps, and the fitted model proper.
_Split = tuple[np.ndarray, list[Any], Any]


def options_of(case: Case) -> dict[str, Any]:
    return {
        "device": case.device,
        **{name: value for name, value in case.draw.options.items() if name in _COMMON},
    }


def saved(case: Case, report: Report) -> None:
    """Check that an explainer from a file, a pickle or a copy returns correct values, equal to the bit."""
    with_background = case.draw.form in ("matrices", "list")
    explainer = explainer_of(case, background=with_background)
    others = {"pickle": pickle.loads(pickle.dumps(explainer)), "copy": copy.deepcopy(explainer)}
    if case.fitted.steps:
        try:
            explainer.save(Path(wrappers.FOLDER or ".") / "explainer.npz")
            report.true("file with steps is refused", False)
        except ValueError:
            report.true("file with steps is refused", True)
    else:
        path = Path(wrappers.FOLDER or ".") / "explainer.npz"
        explainer.save(path, tables=case.draw.index != "BII")
        options = {n: v for n, v in options_of(case).items() if n in ("device", "n_jobs", "memory_limit")}
        others["file"] = TreeExplainer.load(path, **options, verify=case.draw.index == "SII")
    right = explainer.explain(case.X)
    for name, other in others.items():
        again = other.explain(case.X)
        report.equal(f"values of the {name}", again.values, right.values)
        report.equal(f"base values of the {name}", again.base_values, right.base_values)
        report.equal(f"names of the {name}", again.feature_names, right.feature_names)
    (background if with_background else values)(case, report)


def permuted(case: Case, report: Report) -> None:
    """Check that reordering the columns of X changes nothing if a first step undoes it."""
    order = case.rng.permutation(len(case.draw.columns))
    back = np.argsort(order)

    def moved(X: Any) -> Any:
        return X.iloc[:, order] if isinstance(X, pd.DataFrame) else X[:, order]

    step = ColumnTransformer([("back", "passthrough", back.tolist())], verbose_feature_names_out=False)
    X = case.converted.plain
    if not isinstance(X, (np.ndarray, pd.DataFrame)) or case.draw.outer in wrappers.NATIVE:
        raise NotDrawnError("permuted: sparse X, and models that are no estimators")
    if isinstance(X, pd.DataFrame):
        step.set_output(transform="pandas")
    pipeline = Pipeline([("back", step.fit(moved(X))), ("model", FrozenEstimator(case.fitted.top))])
    case.library("permuted", lambda: pipeline[:-1].transform(moved(X)))
    options = {"device": case.device, **case.draw.options}
    right = explain(case.fitted.top, X, **options)
    got = explain(pipeline, moved(X), **options)
    report.equal("permuted values", got.values, right.values)
    report.equal("permuted base value", got.base_values, right.base_values)
    values(case, report)


def grouped(case: Case, report: Report) -> None:
    """Check sums of values by the columns of X from which the model's columns are derived."""
    explanation = explainer_of(case).explain(case.X)
    adds_up(case, report, explanation)
    by_input = None
    try:
        by_input = explanation.sum_by("input")
    except ValueError as error:
        has_known_origins = case.draw.steps in wrappers.KNOWN_ORIGINS
        report.true("origins are known", not has_known_origins and "not known" in str(error), str(error))
        return
    origins = [case.fitted.origins[j] for j in case.kept]
    if None in origins:
        report.true("mixed columns are refused", False, str(by_input.feature_names))
        return
    total = summed(case, explanation.values, origins)
    seen = list(dict.fromkeys(origins))
    report.equal("number of columns", len(by_input.feature_names), len(seen))
    report.close("values by input", by_input.values, total[:, seen], 1e-6 * np.abs(total).max(initial=0))
    if isinstance(case.X, pd.DataFrame) and containers.is_frame(case.draw.trained_on):
        names = [str(case.data.train.columns[i]) for i in seen]
        report.equal("names by input", list(by_input.feature_names), names)


def summed(case: Case, values: np.ndarray, origins: wrappers.Origins) -> np.ndarray:
    """Sum the values of the model's columns by columns of X; unused columns get zeros."""
    total = np.zeros((len(values), len(case.draw.columns), *values.shape[2:]))
    for j, i in enumerate(origins):
        total[:, i] += values[:, j]
    return total


def transformer(case: Case, report: Report) -> None:
    """Check ShapTransformer's columns, fitted or from a fitted model, and importances in the order of X."""
    if case.draw.outer in ("self-training", "sampler"):
        raise NotDrawnError("transformer: the model alone takes fewer containers or categories")
    if case.draw.outer == "RFE" and case.draw.container == "float16":
        raise NotDrawnError("transformer: the model alone refuses infinite numbers of columns that RFE drops")
    nested = case.nest("none")
    shap = ShapTransformer(nested.estimator, **options_of(case))
    if isinstance(case.train, pd.DataFrame) and case.draw.index != "BII":
        shap.set_output(transform="pandas")
    try:
        shap.fit(case.train, case.y, **nested.routed(case.fit_params))
    except ValueError as error:
        # A model of all columns may be constant where the model of the columns that RFE selects is not.
        if NO_COLUMN not in str(error) or len(np.unique(shap.estimator_.predict(case.train), axis=0)) > 1:
            raise
        raise NotDrawnError("transformer: the model without its outer step is constant") from error
    got = shap.transform(case.X)
    explanation = explain(shap.estimator_, case.X, **options_of(case))
    transforms_many_rows(case, report, shap, explanation)
    report.equal("transformed", np.asarray(got), explanation.values.reshape(len(explanation), -1))
    report.equal("width", np.asarray(got).shape[1], len(shap.get_feature_names_out()))
    if isinstance(got, pd.DataFrame):
        report.equal("columns", list(got.columns), list(shap.get_feature_names_out()))
        if isinstance(case.X, pd.DataFrame):
            report.equal("row labels", list(got.index), list(case.X.index))
    if case.draw.outer in wrappers.SAME_MODEL:
        adds_up(case, report, explanation)
    importances_of_columns(case, report, shap, nested.find_origins(nested.taken_apart(shap.estimator_)[0]))


def transforms_many_rows(case: Case, report: Report, shap: Any, explanation: Any) -> None:
    """Check that rows have about the same values if they are repeated often enough for tables."""
    X, order, repeats = many.repeated(case.X, case.rng, most=400)
    if not steps_keep_bits(case, case.X, [order]):
        return
    with many.tables(case.draw):
        got = np.asarray(shap.transform(X))
        many.count_tables(TreeExplainer(shap.estimator_, **options_of(case)), len(got), report)
    got = got.reshape(repeats, len(explanation), *explanation.values.shape[1:])
    report.true("the same row is transformed alike", bool((got == got[:1]).all()))
    right = outputs_last(explanation.values.astype(float), 3)
    allowed = case.allowed(right, factor=2)
    report.close("transformed many rows", outputs_last(got[0], 3), right, allowed)


def importances_of_columns(case: Case, report: Report, shap: Any, origins: wrappers.Origins) -> None:
    has_known_origins = case.draw.steps in wrappers.KNOWN_ORIGINS
    try:
        got = shap.feature_importances_
    except (AttributeError, ValueError) as error:
        report.true("importances are known", not has_known_origins, str(error))
        return
    if None in origins:
        report.true("mixed columns have no importances", False)
        return
    # The importances of columns that the model does not use are zero, whether they have values or not.
    values_of_model = explain(shap.estimator_, case.train, **options_of(case) | {"columns": "all"}).values
    right = np.abs(outputs_last(summed(case, values_of_model, origins), 3)).mean(axis=0).sum(axis=1)
    report.close("importances", got, right, 1e-5 * right.max(initial=0))


def _splitter(case: Case) -> Any:
    classes = models.is_classes(case.draw.task)
    shuffled = KFold(3, shuffle=True, random_state=0)
    return {
        "matrices": KFold(3),
        "occurring": [tuple(map(list, pair)) for pair in shuffled.split(np.zeros(len(case.y)))],
        "number": StratifiedKFold(2) if classes else 2,
        "list": ShuffleSplit(2, test_size=0.3, random_state=1),
    }[case.draw.form]


def _splits(cv: Any, case: Case) -> list[tuple[np.ndarray, np.ndarray]]:
    if isinstance(cv, list):
        return cv
    cv = KFold(cv) if isinstance(cv, int) else cv
    return list(cv.split(np.zeros(len(case.y)), case.y))


def cross_validated(case: Case, report: Report) -> None:
    """Check explanations by models not trained on the rows, against predictions of models fitted here."""
    draw = case.draw
    if draw.task in ("ranking", "outliers"):
        raise NotDrawnError("cross-validation: of rankings and outliers")
    outer = draw.outer if draw.outer in ("search", "transformer") else "none"
    nested, own_nest = case.nest(outer), case.nest("search" if outer == "search" else "none")
    cv = _splitter(case)
    params = own_nest.routed(case.fit_params)
    own = _fitted_splits(case, own_nest, cv)
    if all(_lacks_a_class(last, case) for _, _, last in own):
        raise NotDrawnError("cross-validation: each split lacks a class")
    if draw.family == "catboost" and "infinite" in draw.columns:
        raise NotDrawnError("cross-validation: some splits may have a border between infinite numbers")
    # Splits use different columns, so that all of them get values.
    without_columns: Any = {k: v for k, v in options_of(case).items() if k not in ("n_jobs", "columns")}
    result = cross_val_explain(
        nested.estimator,
        case.train,
        case.y,
        cv=cv,
        params=params or None,
        scoring=lambda model, X, y: 0.0,
        explain_params=without_columns,
    )
    explanation = result["explanation"]
    got = outputs_last(explanation.values.astype(float), 3)
    base = np.reshape(explanation.base_values, (len(got), -1))
    sums = _sums_over_splits(case, report, own, got)
    if sums is None:
        return
    right, tests, allowed = sums
    was_tested = tests > 0
    report.equal("tested rows", result["n_tests"], tests)
    report.true("untested rows are NaN", bool(np.isnan(got[~was_tested]).all()))
    total = (base + got.sum(axis=1))[was_tested]
    report.close("additivity of splits", total, (right / np.maximum(tests, 1)[:, None])[was_tested], allowed)


def _fitted_splits(case: Case, nest: wrappers.Nest, cv: Any) -> list[_Split]:
    """Fit the nest on the training rows of each split."""
    own = []
    for train, test in _splits(cv, case):
        part = case.params_of(nest, train)
        fitted = case.library(
            "fit", clone(nest.estimator).fit, containers.rows(case.train, train), case.y[train], **part
        )
        own.append((test, *nest.taken_apart(fitted)))
    return own


def _sums_over_splits(
    case: Case, report: Report, own: list[_Split], got: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Sum the predictions for each tested row.

    Return the sums, the number of tests of each row, and what values may deviate by. Return None if the
    predictions cannot be compared, which is reported.
    """
    draw = case.draw
    tests = np.zeros(len(got), int)
    right = np.zeros((len(got), got.shape[2]))
    allowed = np.zeros(got.shape[2])
    usable = True
    for test, steps, last in own:
        transformed = containers.rows(case.train, test)
        for step in steps:
            transformed = step.transform(transformed)
        margins = margin_of(last, transformed)
        wide = draw.options.get("outputs") == "all" and margins.shape[1] == 1
        if _lacks_a_class(last, case):
            usable = False
            continue
        if wide:
            total = float(is_probability(last))
            margins = np.concatenate([total - margins, margins], axis=1)
        if margins.shape[1] != got.shape[2]:
            report.true("outputs of a split", False, f"{margins.shape[1]}, not {got.shape[2]}")
            return None
        right[test] += margins
        tests[test] += 1
        single = draw.trained_on in containers.SINGLE
        allowed = np.maximum(allowed, allowed_sum(last, margins, got[test], draw.options, single))
    if not usable:
        report.true("a split lacks a class", True)
        return None
    return right, tests, allowed


def _lacks_a_class(model: Any, case: Case) -> bool:
    """Return whether a classifier was trained on rows without one of the classes."""
    classes = getattr(model, "classes_", None)
    return classes is not None and case.draw.task != "outputs" and len(classes) < len(np.unique(case.y))


def allowed_sum(
    last: Any, margins: np.ndarray, values: np.ndarray, options: dict[str, Any], single: bool
) -> np.ndarray:
    """Return ``Case.allowed`` of a sum, for a model other than the case's."""
    scale = np.nan_to_num(np.abs(values).sum(axis=1)).max(axis=0) + np.ptp(margins, axis=0)
    # The probability of the other class is 1 - p, which is rounded as 1 is.
    offset = 1.0 if library_of(last) == "xgboost" or is_probability(last) else 0.0
    magnitude = np.abs(margins).max(axis=0) + scale + offset
    precision = options.get("precision", "single")
    deviation = 2 * tolerance.of_values(precision, scale, float32=single)
    if readers.readable(last):
        magnitude = magnitude + readers.largest_leaves(last)
        if precision == "single":
            deviation = deviation + 2 * tolerance.of_leaves(readers.leaf_ranges(last))
    return deviation + tolerance.of_sums(last, magnitude)


def selected(case: Case, report: Report) -> None:
    """Check that the only informative column beats noise, wherever the steps put it."""
    draw = case.draw
    rng, n, p = np.random.default_rng([draw.seed, 3]), 150, max(len(draw.columns), 3)
    winner = int(rng.integers(1, p))
    frame = pd.DataFrame(rng.normal(size=(n, p)), columns=data.NAMES[draw.names](p))
    steps = draw.steps if draw.steps not in (*wrappers.WITH_CATEGORIES, "pca") else "reorder"
    classes = models.is_classes(draw.task)
    y = frame.iloc[:, winner].to_numpy()
    # With a larger offset, the target would be lost in XGBoost's float32; with a smaller gain, XGBoost would
    # not split.
    offset = np.clip(draw.offset, -100, 100)
    scale = max(draw.scale, 1e-2)
    y = (y > 0).astype(int) if classes else scale * (offset + y)
    X: Any = frame if containers.is_frame(draw.trained_on) else frame.to_numpy()
    model = _strong_model(draw.family, classes)
    nested = wrappers.nest(steps, "search" if draw.outer == "search" else "none", model, X, [])
    shap = ShapTransformer(nested.estimator, device="cpu")
    plain: dict[str, Any] = {"max_features": 1, "threshold": -np.inf}
    makers: dict[str, Any] = {
        "SelectFromModel": lambda: SelectFromModel(shap, **plain),
        "ShapSelector": lambda: ShapSelector(nested.estimator, **plain, explain_params={"device": "cpu"}),
        "ShapSelector with cv": lambda: ShapSelector(nested.estimator, **plain, cv=3),
    }
    if steps == "none":
        makers["RFE"] = lambda: RFE(shap, n_features_to_select=1)
    chosen = sorted(makers)[int(rng.integers(len(makers)))]
    selectors = {chosen: makers[chosen]()}
    has_known_origins = steps in wrappers.KNOWN_ORIGINS
    for name, selector in selectors.items():
        try:
            support = selector.fit(X, y).get_support()
        except (ValueError, AttributeError) as error:
            report.true(
                f"{name} refuses unknown origins only",
                not has_known_origins,
                f"{type(error).__name__}: {error}",
            )
            continue
        report.equal(f"{name} finds the target", np.flatnonzero(support).tolist(), [winner])
    fitted = case.library("fit", clone(nested.estimator).fit, X, y)
    means = shap_importance(fitted, X, explain_params={"device": "cpu"})
    origins = nested.find_origins(nested.taken_apart(fitted)[0])
    if None not in origins:
        best = origins[int(np.argmax(means.importances_mean))]
        report.equal("shap_importance finds the target", best, winner)


def _strong_model(family: str, classes: bool) -> Any:
    """Return a model strong enough to find the signal."""
    from sklearn import ensemble, tree

    kind = "Classifier" if classes else "Regressor"
    if family in ("xgboost", "lightgbm", "catboost"):
        task = "binary" if classes else "regression"
        options = {
            "xgboost": {"n_estimators": 10, "n_jobs": 1},
            "lightgbm": {"n_estimators": 10, "n_jobs": 1, "verbose": -1},
            "catboost": {"iterations": 10, "verbose": False, "allow_writing_files": False, "thread_count": 1},
        }[family]
        return models.FAMILIES[family].build(task, options, [])
    name, options = {
        "tree": ("tree.DecisionTree", {"max_depth": 4}),
        "boosting": ("ensemble.GradientBoosting", {"n_estimators": 10}),
        "histograms": ("ensemble.HistGradientBoosting", {"max_iter": 10}),
        "extra trees": ("ensemble.ExtraTrees", {"n_estimators": 10}),
    }.get(family, ("ensemble.RandomForest", {"n_estimators": 10}))
    module, _, cls = name.partition(".")
    return getattr({"tree": tree, "ensemble": ensemble}[module], cls + kind)(**options, random_state=0)


def unfitted(case: Case, report: Report) -> None:
    """Check that unfitted models raise NotFittedError, and that a later fit changes no explainer."""
    nested = case.nest(case.draw.outer if case.draw.outer in wrappers.HOLDERS else "none")
    try:
        TreeExplainer(nested.estimator)
        report.true("not fitted", False, "an explainer was made")
    except NotFittedError:
        report.true("not fitted", True)
    fitted = nested.estimator.fit(case.train, case.y, **nested.routed(case.fit_params))
    explainer = TreeExplainer(fitted, device="cpu")
    before = explainer.explain(case.X)
    half = np.arange(len(case.y)) % 2 == 0
    if case.draw.task == "ranking":
        return
    part = case.params_of(nested, half)
    rows = containers.rows(case.train, np.flatnonzero(half))
    case.library("fit", fitted.fit, rows, case.y[half], **part)
    after = explainer.explain(case.X)
    report.equal("values after another fit", after.values, before.values)
    report.equal("base value after another fit", after.base_values, before.base_values)


WORKFLOW = {
    "saved": saved,
    "permuted": permuted,
    "grouped": grouped,
    "transformer": transformer,
    "cross-validated": cross_validated,
    "selected": selected,
    "fitted again": unfitted,
}
