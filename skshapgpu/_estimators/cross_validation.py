"""Cross-validation with explanations: SHAP values of rows by models that were not trained on them.

scikit-learn's ``cross_validate`` fits the models and scores them, in ``n_jobs`` jobs. The models then explain
their test rows one after another in this process, with ``n_jobs`` threads, so that no model is sent to a
worker a second time.
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

from .._common.checks import checks_options, require_explain_params, require_n_jobs, require_options
from .._common.distinct import distinct_numbers
from .._common.types import CrossValidation, ExplainerOptions, Table, Vector
from .._engine.features import have_positions
from .._engine.options import Options
from .._rows.gpu_arrays import on_gpu
from .._rows.origins import names_are_known
from .._rows.pipelines import Prepared, steps_before
from .._rows.tables import collected, n_rows_of, require_same_rows, row_labels, select
from ..adapters import adapt
from ..adapters.schema import pair_names
from ..adapters.wrappers import is_self_training, nest
from ..errors import UnsupportedModelError
from ..explainer import TreeExplainer, as_explainer, model_of
from .base import ExplainingTransformer
from .out_of_fold import OutOfFold, Split
from .scoring import KeepingScorer
from .splits import CheckedSplitter


@checks_options
def cross_val_explain(
    estimator: Any,
    X: Table,
    y: Vector | None = None,
    *,
    groups: Any = None,
    cv: CrossValidation = None,
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
        See :func:`sklearn.model_selection.cross_validate`. Splits without rows, or with rows that X does not
        have, are rejected before any fit.
    return_estimator, return_indices : bool, default=False
        Whether to return the fitted models, and the row positions of each split.
    error_score : "raise" or number, default=nan
        See :func:`sklearn.model_selection.cross_validate`.
    explain_params : dict or None, default=None
        Options of :class:`TreeExplainer`, including ``data``, the background for all splits. They take
        precedence over the options of a :class:`ShapTransformer` at the end of the model; ``n_jobs`` defaults
        to the argument ``n_jobs`` above.

    Returns
    -------
    dict
        The result of ``cross_validate`` (``fit_time``, ``score_time``, ``test_score`` or one array for each
        metric, and ``estimator`` and ``indices`` if requested) with these additions:

        explanation : Explanation
            SHAP values of all rows of X, in their order, with their labels. Values and base values of a row
            come from the model that was tested on the row. If several models were tested on it, they are
            means, which add up to the mean margin. Rows that were never tested, or only in splits that
            failed, have NaN.
        values_std : ndarray of the shape of the values, or None
            If rows were tested more than once, as in repeated cross-validation: standard deviation of the
            values of each row over the models that were tested on the row, with ``n_tests - 1`` in the
            denominator; NaN for rows that were tested less than twice. Otherwise None.
        base_values : ndarray of float64, shape (n_splits[, n_outputs])
            Base values of the model of each split; for a log loss, their mean over its test rows.
        fold : ndarray of int64, shape (n_rows,) or (n_rows, n_tests)
            Number of the split in which each row was tested; -1 if the row was not tested. If rows were
            tested more than once, as in repeated cross-validation, all splits of each row in ascending order,
            padded with -1.
        n_tests : ndarray of int64, shape (n_rows,)
            Number of splits over which the values of each row are averaged.
        importances : ndarray of float64, shape (n_splits, n_features)
            :meth:`Explanation.importance` over the test rows of each split, summed over the outputs; NaN if
            the training rows of the split lack a class.
        explain_time : ndarray of float64, shape (n_splits,)
            Seconds taken to explain each split.

        Splits whose fit failed have NaN and an ``explain_time`` of zero.

    Raises
    ------
    UnsupportedModelError
        The model cannot be explained exactly. If the class of the model shows this, the error is raised
        before any fit.
    ValueError, TypeError
        See ``cross_validate`` and :class:`TreeExplainer`; or the models of the splits see different columns
        that have no names.

    Notes
    -----
    **Features.** The features of a ``Pipeline`` are the columns that its last step sees. They may differ
    between splits, for example because of rare categories. Features are aligned by name. If the model of a
    split does not know a feature, its SHAP values in this split are zero, as the model does not depend on it.
    Columns of steps without ``get_feature_names_out`` are aligned by position. ``explanation.data`` has the
    rows as the last step saw them, in the last split that tested them: an array, or a sparse matrix if they
    were sparse and nothing is missing. Without leading steps it is X itself.

    **Classes.** If the training rows of a split lack a class of y, the model of the split has no output for
    the class, whose values and base values are NaN in the split. If a model was trained on only one class,
    its test rows are not explained. If a model was trained on only two of several classes, its test rows are
    explained only if it adds up probabilities, as forests do: the margins of other models for two classes,
    and the values of their probabilities, differ in kind from margins and values for more classes. A warning
    names the splits whose test rows are not explained; stratified splits avoid the problem.

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
        raise TypeError(
            "X is on a GPU, where its rows cannot be merged after the splits: copy it to the host"
        )
    X, y = indexable(collected(X), y)
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
    merged: OutOfFold | None = None
    for number, split in enumerate(splits):
        if split.explanation is not None:
            if merged is None:
                merged = OutOfFold(n_rows, len(tests), fold.ndim > 1, split)
            merged.add(number, split)
    if merged is None:
        raise ValueError("no split could be explained: the warnings say why")
    return results | {"fold": fold} | merged.results(X)


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
    # This import takes a third of the time of importing this package.
    from sklearn.model_selection import check_cv, cross_validate

    require_n_jobs(n_jobs)
    require_explain_params(explain_params)
    requested = {"n_jobs": n_jobs, **(explain_params or {})}
    require_explainable(estimator, requested)
    if explainer_options(estimator, requested).get("model_output") == "log_loss":
        require_same_rows(y, row_labels(X), "y", "X", "X.index")
    transformed: dict[int, Any] = {}
    if KeepingScorer.fits(estimator, scoring, others.get("params")):
        scoring = KeepingScorer(scoring)
        transformed = scoring.transformed
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
    has_error_score = np.zeros(len(models), bool)
    if error_score != "raise":
        has_error_score = np.isclose(scores, error_score, rtol=0, atol=0, equal_nan=True).all(axis=0)
    failed = has_error_score & (results["score_time"] == 0)  # zero only if the fit failed
    tests = results["indices"]["test"]
    return results, _explain(models, X, y, tests, transformed, has_error_score, failed, requested)


def require_explainable(estimator: Any, requested: dict[str, Any]) -> None:
    """Reject invalid options of the explainer, and unfitted models of unsupported classes."""
    options = explainer_options(estimator, requested)
    if have_positions(options.get("feature_groups")) and any(
        steps_before(layer) for layer in nest(estimator)
    ):
        raise ValueError(
            "feature_groups: after steps of a pipeline, positions of columns may differ between splits: give "
            "names, or feature_groups='input'"
        )
    require_options(TreeExplainer, options)
    Options.parse(**options)
    *_, model = nest(clone(estimator))
    with suppress(NotFittedError):  # an unsupported class is another error
        adapt(model)


def _explain(
    models: list[Any],
    X: Any,
    y: Any,
    tests: Sequence[np.ndarray],
    transformed: dict[int, Any],
    has_error_score: np.ndarray,
    failed: np.ndarray,
    requested: dict[str, Any],
) -> Iterator[Split]:
    """Explain the test rows of each split, at the positions in ``tests``, by the fitted model of the split.

    Each model is removed from the list, so that its memory is freed after the rows of its split are
    explained. ``transformed`` has the test rows that were transformed for scoring, by the ``id`` of the
    model. ``has_error_score`` and ``failed`` say for each split whether its score is ``error_score``, and
    whether the fit failed. ``requested`` are the options that the user requested.
    """
    classes = _all_classes([model for model, has_failed in zip(models, failed) if not has_failed], y)
    n_unnamed = None
    for number, rows in enumerate(tests):
        model, models[number] = models[number], None
        split = Split(rows)
        if not failed[number]:
            try:
                split = _explain_split(
                    model, X, y, rows, transformed.pop(id(model), None), classes, requested
                )
                _warn_of_missing_classes(number, model, classes)
            except Exception as error:
                # With an error_score, the user accepts that the model cannot predict these rows.
                is_accepted = has_error_score[number] and not isinstance(error, UnsupportedModelError)
                if not is_accepted and not isinstance(error, _OtherOutputsError):
                    error.add_note(f"The error is about split {number} of the cross-validation.")
                    raise
                warnings.warn(f"the test rows of split {number} are not explained: {error}", stacklevel=4)
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
    requested: dict[str, Any],
) -> Split:
    """Explain the test rows of a split, whose positions are ``rows``.

    ``transformed`` is the result of the leading steps for the test rows; None if it is not known. ``classes``
    are the labels of all classes; see :func:`_all_classes`. ``requested`` are the options that the user
    requested.
    """
    start = perf_counter()
    options = explainer_options(model, requested)
    model_classes = () if classes is None else _labels(_classes_by_target(model))
    lacks_class = len(model_classes) < len(classes or ())
    if lacks_class and len(model_classes) == 1:
        raise _OtherOutputsError(f"all of its training rows are of class {model_classes[0]!r}")
    if lacks_class and len(model_classes) == 2:
        options["outputs"] = "all"
        difference = {
            "raw": "so its model has one margin, which is of another kind than the margins of more classes",
            "probability": "whose probabilities are explained by the rescale rule, but probabilities of more "
            "classes are explained by their definition",
        }.get(options.get("model_output", "raw"))
        if difference is not None and model_of(model)[1].link != "identity":
            raise _OtherOutputsError(
                f"its training rows are of 2 of {len(classes or ())} classes, {difference}"
            )
    explainer = as_explainer(model, options, copies_steps=False)
    labels = select(y, rows) if explainer.model_output == "log_loss" else None
    test_rows = select(X, rows)
    rows_to_explain: Any = test_rows if transformed is None else Prepared(test_rows, transformed)
    explanation = explainer.explain(rows_to_explain, labels)
    names = explanation.output_names
    outputs = np.arange(1 if names is None else len(names))
    if lacks_class and set(names or ()) != set(model_classes):
        raise _OtherOutputsError(
            f"its training rows lack a class, and its outputs, {names}, are not its classes"
        )
    if classes is not None and names is not None and (lacks_class or set(names) == set(classes)):
        outputs = np.array([classes.index(label) for label in names])
        names = classes
    reader = explainer._reader
    columns = explanation.feature_names if explainer.group_columns is None else reader.names_seen()
    named, seconds = names_are_known(reader.steps, columns), perf_counter() - start
    return Split(rows, explanation, seconds, names, outputs, bool(reader.steps), named)


def _warn_of_missing_classes(number: int, model: Any, classes: tuple[Any, ...] | None) -> None:
    if classes is None:
        return
    model_classes = _labels(_classes_by_target(model))
    missing = [label for label in classes if label not in model_classes]
    if missing:
        listed = ", ".join(map(repr, missing))
        warnings.warn(
            f"the training rows of split {number} have none of class {listed}: the values of its test rows "
            "are NaN for that class, and so are the split's importances; stratified splits avoid the problem",
            stacklevel=5,
        )


def _all_classes(models: Sequence[Any], y: Any) -> tuple[Any, ...] | None:
    """Return the labels of all classes of y and of the models; see :func:`_labels`. None: no classes."""
    classes_by_model = [_classes_by_target(model) for model in models]
    n_targets_by_model = {len(targets) for targets in classes_by_model}
    if not classes_by_model or not all(classes_by_model) or len(n_targets_by_model) > 1:
        return None
    n_targets = len(classes_by_model[0])
    y_columns = [np.ravel(np.asarray(y))] if n_targets == 1 else list(np.asarray(y).T)
    if len(y_columns) != n_targets:
        return None
    unlabelled = {-1} if any(is_self_training(layer) for layer in nest(models[0])) else set()
    merged = []
    for target, column in enumerate(y_columns):
        labels = {label for targets in classes_by_model for label in targets[target]}
        y_labels = set(column.tolist())
        if labels <= y_labels:  # otherwise a model has other names for its classes
            labels |= y_labels - unlabelled
        merged.append(sorted(labels))
    return _labels(merged)


def _classes_by_target(model: Any) -> list[list[Any]]:
    """Return the class labels of each target of a model; an empty list if it has none."""
    classes = getattr(model, "classes_", None)
    by_target: list[Any] = classes if isinstance(classes, list) else [classes]
    # CatBoostRegressor has an empty array.
    if not all(isinstance(labels, np.ndarray) and labels.ndim == 1 and len(labels) for labels in by_target):
        return []
    return [labels.tolist() for labels in by_target]


def _labels(by_target: Sequence[Sequence[Any]]) -> tuple[Any, ...]:
    """Return the class labels of the only target, or the names of the outputs of several targets."""
    if len(by_target) == 1:
        return tuple(by_target[0])
    return pair_names((target, label) for target, labels in enumerate(by_target) for label in labels)


def explainer_options(model: Any, requested: dict[str, Any]) -> dict[str, Any]:
    """Return the options of the explainer of a model.

    If the model ends with a transformer of this package, it has the options of this transformer, unless the
    user requested others. All columns have values, because the models of two splits use different columns.
    """
    if requested.get("columns") == "used":
        raise ValueError(
            "columns='used': cross-validation, importances and selection need the values of all columns, as "
            "different models use different columns: leave the option out"
        )
    outer_steps = False
    for layer in nest(model):
        if isinstance(layer, ExplainingTransformer):
            break
        outer_steps |= bool(steps_before(layer))
    else:
        return dict(requested)
    own = layer.get_params(deep=False)
    own = {name: own[name] for name in signature(TreeExplainer).parameters if own.get(name) is not None}
    own.pop("columns", None)
    if outer_steps and "data" in own and "data" not in requested:
        raise ValueError(
            f"data of {type(layer).__name__} has columns that earlier steps make, and the steps are fitted "
            "anew in each split: give background with the columns of X instead, as "
            "explain_params={'data': ...}"
        )
    return requested | own | {name: value for name, value in requested.items() if value is not None}


def _fold(tests: Sequence[np.ndarray], n_rows: int) -> np.ndarray:
    """Return the splits of each row, padded with -1; without the second axis if no row was tested twice."""
    n_tests = np.zeros(n_rows, np.int64)
    fold = np.full((n_rows, 1), -1)
    for number, rows in enumerate(tests):
        rows = distinct_numbers(rows)
        if n_tests[rows].max(initial=0) == fold.shape[1]:
            fold = np.pad(fold, ((0, 0), (0, 1)), constant_values=-1)
        fold[rows, n_tests[rows]] = number
        n_tests[rows] += 1
    return fold[:, 0] if fold.shape[1] == 1 else fold
