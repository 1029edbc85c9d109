"""Cross-validation with explanations: SHAP values of rows by models that were not trained on them.

scikit-learn's ``cross_validate`` fits and scores. Its models then explain their test rows one after another,
with as many threads as it had jobs, so that no model is sent to a worker a second time.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from inspect import signature
from time import perf_counter
from typing import Any

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.utils import indexable

from .._common.checks import require_n_jobs
from .._common.types import ExplainerOptions, Table, Vector
from .._engine.features import have_positions
from .._rows.gpu_arrays import on_gpu
from .._rows.origins import names_are_known
from .._rows.pipelines import NoCopy, Prepared, is_self_training, nest, steps_before
from .._rows.tables import n_rows_of, require_same_rows, row_labels, select
from ..adapters import adapt
from ..adapters.schema import pair_names
from ..errors import UnsupportedModelError
from ..explainer import TreeExplainer, as_explainer
from .base import ExplainingTransformer
from .out_of_fold import OutOfFold, Split
from .scoring import KeepingScorer
from .splits import CheckedSplitter


def cross_val_explain(
    estimator: Any,
    X: Table,
    y: Vector | None = None,
    *,
    groups: Any = None,
    cv: Any = None,
    scoring: Any = None,
    n_jobs: int | None = None,
    verbose: int = 0,
    params: dict[str, Any] | None = None,
    pre_dispatch: int | str = "2*n_jobs",
    return_estimator: bool = False,
    return_indices: bool = False,
    error_score: Any = np.nan,
    explain_params: ExplainerOptions | None = None,
) -> dict[str, Any]:
    """Cross-validate a model, and explain each row by the models that were not trained on it.

    Models are fitted and scored by :func:`sklearn.model_selection.cross_validate`, called with the same
    arguments; the model of each split then explains its test rows.

    Parameters
    ----------
    estimator : estimator
        An unfitted tree model, or a ``Pipeline``, search or :class:`ShapTransformer` around one; see
        :class:`TreeExplainer`.
    X : array-like, sparse matrix or data frame of shape (n_rows, n_features)
        Rows to fit and test on.
    y : array-like of shape (n_rows,), default=None
        Target of each row.
    groups, cv, scoring, n_jobs, verbose, params, pre_dispatch
        See :func:`sklearn.model_selection.cross_validate`. Invalid splits, with no rows or with rows that X
        does not have, are rejected before any fit.
    return_estimator, return_indices : bool, default=False
        Whether to return the fitted models, and the row positions of each split.
    error_score : "raise" or number, default=nan
        See :func:`sklearn.model_selection.cross_validate`.
    explain_params : dict or None, default=None
        Options of :class:`TreeExplainer`, including ``data``, the background for all splits. They take
        precedence over those of a :class:`ShapTransformer` at the end of the model; ``n_jobs`` defaults to
        the argument above.

    Returns
    -------
    dict
        The result of ``cross_validate`` (``fit_time``, ``score_time``, ``test_score`` or one array for each
        metric, and ``estimator`` and ``indices`` if requested) with these additions:

        explanation : Explanation
            SHAP values of all rows of X, in their order, with their labels. Values and base values of a row
            are from the model that was tested on it; if there were several, they are means, so that they
            still add up to the mean margin. Rows that were never tested, or only in splits that failed, are
            NaN.
        values_std : ndarray of the shape of the values, or None
            If rows were tested more than once, as in repeated cross-validation: standard deviation of the
            values of each row over the models that were tested on it, with ``n_tests - 1`` in the
            denominator; NaN for rows tested less than twice. Else None.
        base_values : ndarray of float64, shape (n_splits[, n_outputs])
            Base values of the model of each split; for a log loss, their mean over its test rows.
        fold : ndarray of int64, shape (n_rows,) or (n_rows, n_tests)
            Number of the split in which each row was tested, -1 if in none. If a row was tested more than
            once, as in repeated cross-validation, all of its splits in ascending order, padded with -1.
        n_tests : ndarray of int64, shape (n_rows,)
            Number of splits over which the values of each row are averaged.
        importances : ndarray of float64, shape (n_splits, n_features)
            :meth:`Explanation.importance` over the test rows of each split, summed over the outputs.
        explain_time : ndarray of float64, shape (n_splits,)
            Seconds taken to explain each split.

        Splits whose fit failed have NaN and an ``explain_time`` of zero.

    Raises
    ------
    UnsupportedModelError
        The model cannot be explained exactly; raised before any fit if its class shows that.
    ValueError, TypeError
        See ``cross_validate`` and :class:`TreeExplainer`; or the models of the splits see different columns
        that have no names.

    Notes
    -----
    **Features.** The features of a ``Pipeline`` are the columns that its last step sees. They may differ
    between splits, for example because of rare categories: they are aligned by name, and a feature that a
    model does not know has SHAP values of zero there, as the model does not depend on it. Columns of steps
    without ``get_feature_names_out`` are aligned by position. ``explanation.data`` has the rows as the last
    step saw them, in the last split that tested them: an array, or a sparse matrix if they were sparse and
    nothing is missing. Without leading steps it is X itself.

    **Classes.** A class of y that is missing from the training rows of a split has no output in its model:
    its values and base values are NaN there. The test rows of a split are not explained if its model saw
    only one class, or if it saw only two of several and does not add up probabilities as forests do, because
    margins for two classes, and values of their probabilities, differ in kind from those for more. A warning
    names such splits; stratified splits avoid the problem.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.ensemble import RandomForestRegressor
    >>> from skshapgpu import cross_val_explain
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> results = cross_val_explain(RandomForestRegressor(10, random_state=0), X, y, cv=3)
    >>> results["explanation"].shape, results["importances"].shape, results["test_score"].shape
    ((442, 10), (3, 10), (3,))
    """
    if on_gpu(X):
        raise TypeError("X is on a GPU, where its rows cannot be put together again: copy it to the host")
    X, y = indexable(X, y)
    results, splits = explained_splits(
        estimator,
        X,
        y,
        groups=groups,
        cv=cv,
        scoring=scoring,
        n_jobs=n_jobs,
        verbose=verbose,
        params=params,
        pre_dispatch=pre_dispatch,
        return_estimator=return_estimator,
        error_score=error_score,
        explain_params=explain_params,
    )
    tests = results["indices"]["test"]
    if not return_indices:
        del results["indices"]
    n_rows = n_rows_of(X)
    fold = _fold(tests, n_rows)
    collected: OutOfFold | None = None
    for number, split in enumerate(splits):
        if split.explanation is not None:
            if collected is None:
                collected = OutOfFold(n_rows, len(tests), fold.ndim > 1, split)
            collected.add(number, split)
    if collected is None:
        raise ValueError("no split could be explained: the warnings say why")
    return results | {"fold": fold} | collected.results(X)


def explained_splits(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    cv: Any,
    scoring: Any,
    n_jobs: int | None,
    return_estimator: bool,
    error_score: Any,
    explain_params: Mapping[str, Any] | None,
    **others: Any,
) -> tuple[dict[str, Any], Iterator[Split]]:
    """Return the results of ``cross_validate``, with indices, and an iterator that explains its splits.

    X and y must have passed scikit-learn's ``indexable``.
    """
    from sklearn.model_selection import (
        check_cv,
        cross_validate,
    )  # its import takes a third of the time of importing this package

    require_n_jobs(n_jobs)
    asked = {"n_jobs": n_jobs, **(explain_params or {})}
    require_explainable(estimator, asked)
    if explainer_options(estimator, asked).get("model_output") == "log_loss":
        require_same_rows(y, row_labels(X), "y", "X", "X.index")
    kept: dict[int, Any] = {}
    if KeepingScorer.fits(estimator, scoring, others.get("params")):
        scoring = KeepingScorer(scoring)
        kept = scoring.kept
    results = cross_validate(
        estimator,
        X,
        y,
        cv=CheckedSplitter(check_cv(cv, y, classifier=is_classifier(estimator))),
        scoring=scoring,
        n_jobs=n_jobs,
        return_estimator=True,
        return_indices=True,
        error_score=error_score,
        **others,
    )
    models = list(results["estimator"] if return_estimator else results.pop("estimator"))
    scores = [values for name, values in results.items() if name.startswith("test_")]
    given_up = np.zeros(len(models), bool)
    if error_score != "raise":
        given_up = np.isclose(scores, error_score, rtol=0, atol=0, equal_nan=True).all(axis=0)
    failed = given_up & (results["score_time"] == 0)  # zero only if the fit failed
    return results, _explain(models, X, y, results["indices"]["test"], kept, given_up, failed, asked)


def require_explainable(estimator: Any, asked: dict[str, Any]) -> None:
    """Reject invalid options of the explainer, and unfitted models of unsupported classes."""
    options = explainer_options(estimator, asked)
    if have_positions(options.get("feature_groups")) and any(
        steps_before(layer) for layer in nest(estimator)
    ):
        raise ValueError(
            "feature_groups: after steps of a pipeline, positions of columns may differ between splits: give "
            "names, or feature_groups='input'"
        )
    with suppress(NotFittedError):
        as_explainer(NoCopy(clone(estimator)), options)
    with suppress(NotFittedError):
        *_, model = nest(clone(estimator))
        adapt(model)


def _explain(
    models: list[Any],
    X: Any,
    y: Any,
    tests: Sequence[np.ndarray],
    kept: dict[int, Any],
    given_up: np.ndarray,
    failed: np.ndarray,
    asked: dict[str, Any],
) -> Iterator[Split]:
    """Explain the test rows of each split.

    ``kept`` has the rows that were transformed for scoring, by the ``id`` of the model; ``given_up`` marks
    splits whose score is ``error_score``, and ``failed`` those of them whose fit failed.
    """
    classes = _all_classes([model for model, bad in zip(models, failed) if not bad], y)
    n_unnamed = None
    for number, rows in enumerate(tests):
        model, models[number] = models[number], None  # so that its memory is freed afterwards
        split = Split(rows)
        if not failed[number]:
            try:
                split = _explain_split(model, X, y, rows, kept.pop(id(model), None), classes, asked)
                _warn_of_missing_classes(number, model, classes)
            except Exception as error:
                # error_score has already tolerated that the model cannot predict these rows.
                forgiven = given_up[number] and not isinstance(error, UnsupportedModelError)
                if not forgiven and not isinstance(error, _OtherOutputsError):
                    error.add_note(f"This is about split {number} of the cross-validation.")
                    raise
                warnings.warn(f"the test rows of split {number} are not explained: {error}", stacklevel=3)
        if split.explanation is not None and not split.named:
            n_features = len(split.explanation.feature_names)
            if n_unnamed not in (None, n_features):
                raise ValueError(
                    f"the models of two splits see {n_unnamed} and {n_features} columns, which have no names "
                    "to align them by: a step of the pipeline has no get_feature_names_out"
                )
            n_unnamed = n_features
        yield split


class _OtherOutputsError(ValueError):
    """Error raised if the outputs of a split differ from those of the other splits."""


def _explain_split(
    model: Any,
    X: Any,
    y: Any,
    rows: np.ndarray,
    transformed: Any,
    classes: tuple[Any, ...] | None,
    asked: dict[str, Any],
) -> Split:
    """Explain ``rows`` of X; ``transformed`` is the result of the leading steps for them, if known."""
    start = perf_counter()
    options = explainer_options(model, asked)
    seen = () if classes is None else _labels(_classes_by_target(model))
    few = len(seen) < len(classes or ())
    if few and len(seen) == 1:
        raise _OtherOutputsError(f"all of its training rows are of class {seen[0]!r}")
    if few and len(seen) == 2:
        options["outputs"] = "all"
    explainer = as_explainer(NoCopy(model), options)
    if few and len(seen) == 2 and not explainer._explains_probabilities:
        raise _OtherOutputsError(
            f"its training rows are of 2 of {len(classes or ())} classes, so that its model has one margin, "
            "which is of another kind than those of more classes"
        )
    if (
        few
        and len(seen) == 2
        and explainer.model_output == "probability"
        and not explainer._adds_up_probabilities
    ):
        raise _OtherOutputsError(
            f"its training rows are of 2 of {len(classes or ())} classes, whose probabilities are explained "
            "by the rescale rule, but those of more classes by their definition"
        )
    labels = select(y, rows) if explainer.model_output == "log_loss" else None
    tested = select(X, rows)
    rows_to_explain: Any = tested if transformed is None else Prepared(tested, transformed)
    explanation = explainer.explain(rows_to_explain, labels)
    names = explanation.output_names
    outputs = np.arange(1 if names is None else len(names))
    if few and set(names or ()) != set(seen):
        raise _OtherOutputsError(
            f"its training rows lack a class, and its outputs, {names}, are not its classes"
        )
    if classes is not None and names is not None and (few or set(names) == set(classes)):
        outputs = np.array([classes.index(label) for label in names])
        names = classes
    return Split(
        rows,
        explanation,
        perf_counter() - start,
        names,
        outputs,
        bool(explainer._steps),
        names_are_known(explainer._steps, _names_of_columns(explainer, explanation.feature_names)),
    )


def _names_of_columns(explainer: TreeExplainer, of_features: tuple[str, ...]) -> tuple[str, ...]:
    return of_features if explainer.group_columns is None else explainer._names_seen()


def _warn_of_missing_classes(number: int, model: Any, classes: tuple[Any, ...] | None) -> None:
    if classes is None:
        return
    seen = _labels(_classes_by_target(model))
    missing = [label for label in classes if label not in seen]
    if missing:
        listed = ", ".join(map(repr, missing))
        warnings.warn(
            f"the training rows of split {number} have none of class {listed}: its test rows have no "
            "values, but NaN, for that class; stratified splits avoid the problem",
            stacklevel=4,
        )


def _all_classes(models: Sequence[Any], y: Any) -> tuple[Any, ...] | None:
    """Return the labels of all classes of y and of the models, see :func:`_labels`; None without classes."""
    of_models = [_classes_by_target(model) for model in models]
    if not of_models or not all(of_models) or len({len(found) for found in of_models}) > 1:
        return None
    n_targets = len(of_models[0])
    of_y = [np.ravel(np.asarray(y))] if n_targets == 1 else list(np.asarray(y).T)
    if len(of_y) != n_targets:
        return None
    unlabelled = {-1} if any(is_self_training(layer) for layer in nest(models[0])) else set()
    merged = []
    for target, column in enumerate(of_y):
        labels = {label for found in of_models for label in found[target]}
        of_column = set(column.tolist())
        if labels <= of_column:  # otherwise a model has other names for its classes
            labels |= of_column - unlabelled
        merged.append(sorted(labels))
    return _labels(merged)


def _classes_by_target(model: Any) -> list[list[Any]]:
    """Return the class labels of each target of a model; an empty list if it has none."""
    found = getattr(model, "classes_", None)
    by_target: list[Any] = found if isinstance(found, list) else [found]
    # CatBoostRegressor has an empty array.
    if not all(isinstance(labels, np.ndarray) and labels.ndim == 1 and len(labels) for labels in by_target):
        return []
    return [labels.tolist() for labels in by_target]


def _labels(by_target: Sequence[Sequence[Any]]) -> tuple[Any, ...]:
    """Return the class labels of the only target, or the names of the outputs of several targets."""
    if len(by_target) == 1:
        return tuple(by_target[0])
    return pair_names((target, label) for target, labels in enumerate(by_target) for label in labels)


def explainer_options(model: Any, asked: dict[str, Any]) -> dict[str, Any]:
    """Merge the requested options over those of a transformer of this package at the end of the model.

    Values are of all columns, because the models of two splits use different ones.
    """
    if asked.get("columns") == "used":
        raise ValueError(
            "columns='used': cross-validation, importances and selection need the values of all columns, as "
            "models use different ones: leave columns out"
        )
    outer_steps = False
    for layer in nest(model):
        if isinstance(layer, ExplainingTransformer):
            break
        outer_steps |= bool(steps_before(layer))
    else:
        return dict(asked)
    own = layer.get_params(deep=False)
    own = {name: own[name] for name in signature(TreeExplainer).parameters if own.get(name) is not None}
    own.pop("columns", None)
    if outer_steps and "data" in own and "data" not in asked:
        raise ValueError(
            f"data of {type(layer).__name__} has the columns that earlier steps make, which each split makes "
            "anew: give background with the columns of X as explain_params={'data': ...} instead"
        )
    return asked | own | {name: value for name, value in asked.items() if value is not None}


def _fold(tests: Sequence[np.ndarray], n_rows: int) -> np.ndarray:
    """Return the splits in which each row was tested, padded with -1; one-dimensional if one is enough."""
    n_tests = np.zeros(n_rows, np.int64)
    fold = np.full((n_rows, 1), -1)
    for number, rows in enumerate(tests):
        rows = np.unique(rows)
        if n_tests[rows].max(initial=0) == fold.shape[1]:
            fold = np.pad(fold, ((0, 0), (0, 1)), constant_values=-1)
        fold[rows, n_tests[rows]] = number
        n_tests[rows] += 1
    return fold[:, 0] if fold.shape[1] == 1 else fold
