"""Feature importances from SHAP values, in the format of ``permutation_importance``."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from sklearn.utils import Bunch, indexable
from sklearn.utils.validation import _num_features

from .._common.checks import (
    checks_options,
    require_bool,
    require_count,
    require_explain_params,
    require_one_of,
)
from .._common.types import Aggregation, ExplainerOptions, Table, Vector
from .._explanations.grouping import require_sum_by
from .._explanations.values import Explanation
from .._rows.gpu_arrays import to_host
from .._rows.origins import summed_by_column
from .._rows.tables import collected, names_of
from ..explainer import TreeExplainer
from .cross_validation import explained_splits, explainer_options
from .out_of_fold import Split, aligned, merged_names

#: Functions from values (n_rows, n_features, n_outputs) to float64 importances (n_features, n_outputs).
_AGGREGATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "mean_abs": lambda values: np.abs(values).mean(axis=0, dtype=np.float64),
    "rms": lambda values: np.sqrt(np.square(values, dtype=np.float64).mean(axis=0)),
    "max_abs": lambda values: np.abs(values).max(axis=0).astype(np.float64),
}


@checks_options
def shap_importance(
    estimator: Any,
    X: Table,
    y: Vector | None = None,
    *,
    aggregation: Aggregation = "mean_abs",
    per_output: bool = False,
    n_parts: int = 5,
    sum_by: Literal["input"] | None = None,
    n_jobs: int | None = None,
    explain_params: ExplainerOptions | None = None,
) -> Bunch:
    """Measure how much each feature moves the predictions of a tree model.

    The result has the format of :func:`sklearn.inspection.permutation_importance`, but another meaning.
    Permutation importance says how much worse the model predicts without a feature. The importances of this
    function say how much the feature moves the predictions, whether it makes them better or worse. For
    out-of-fold importances, see ``cross_val_explain(...)["importances"]``.

    Parameters
    ----------
    estimator : fitted model, str, path, bytes or TreeExplainer
        A fitted model or its file, or an explainer or its file: see :class:`TreeExplainer`.
    X : array-like, sparse matrix or data frame of shape (n_rows, n_features)
        Rows to explain. Rows that the model was not trained on show how it treats new data.
    y : array-like of shape (n_rows,), default=None
        Labels, if ``model_output`` is "log_loss".
    aggregation : {"mean_abs", "rms", "max_abs"}, default="mean_abs"
        How to aggregate the SHAP values of a feature over the rows: mean magnitude; root mean square, which
        gives more weight to rare large values; or largest magnitude.
    per_output : bool, default=False
        Whether to keep the outputs as the last axis. Otherwise importances are summed over them.
    n_parts : int, default=5
        Number of parts into which the rows are divided. The importances of the parts show how much
        importances depend on the rows. Row ``i`` is in part ``i % n_parts``.
    sum_by : {"input"} or None, default=None
        "input": features are the columns of X, and a column's value is the sum of the values of the columns
        that the leading steps of a pipeline made from it, as in :meth:`Explanation.sum_by`. The option
        ``feature_groups="input"`` in ``explain_params`` instead computes the Shapley values of the columns of
        X, each of them known or unknown as a whole.
    n_jobs : int or None, default=None
        Number of threads.
    explain_params : dict or None, default=None
        Options of :class:`TreeExplainer`.

    Returns
    -------
    Bunch
        Importances and the names that belong to them:

        importances_mean : ndarray of float64, shape (n_features,)
            Importances over all rows.
        importances_std : ndarray of float64, shape (n_features,)
            Standard deviation of ``importances`` over the parts.
        importances : ndarray of float64, shape (n_features, n_parts)
            Importances over the rows of each part.
        feature_names : tuple of str
            Names of the features. For a ``Pipeline``, they are the columns that its last step sees or, with
            ``sum_by``, the columns of X.
        output_names : tuple or None
            None if there is one output.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.ensemble import RandomForestRegressor
    >>> from skshapgpu import shap_importance
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> model = RandomForestRegressor(10, random_state=0).fit(X, y)
    >>> shap_importance(model, X).importances.shape
    (10, 5)
    """
    require_bool("per_output", per_output)
    importances = find_importances(
        estimator,
        X,
        y,
        aggregation=aggregation,
        n_parts=n_parts,
        sum_by=sum_by,
        n_jobs=n_jobs,
        explain_params=explain_params,
    )
    return as_bunch(importances, per_output)


def as_bunch(importances: Importances, per_output: bool) -> Bunch:
    """Return importances in the form of :func:`shap_importance`."""
    if not per_output or importances.output_names is None:
        importances = importances.summed()
    return Bunch(
        importances_mean=importances.mean,
        importances_std=importances.std,
        importances=importances.importances,
        feature_names=importances.feature_names,
        output_names=importances.output_names,
    )


@dataclass(frozen=True, eq=False)
class Importances:
    """Importances over parts of the rows or over splits; NaN for splits and classes without values."""

    importances: npt.NDArray[np.float64]  # float64, (n_features, n_parts[, n_outputs])
    #: float64, (n_features[, n_outputs]): importances over all rows; None if there are splits.
    overall: npt.NDArray[np.float64] | None
    feature_names: tuple[str, ...]
    output_names: tuple[Any, ...] | None
    #: float64, (n_splits,): score of each split; None without splits.
    scores: npt.NDArray[np.float64] | None = None

    @property
    def mean(self) -> npt.NDArray[np.float64]:
        """Importances over all rows, or their mean over the splits."""
        return np.nanmean(self.importances, axis=1) if self.overall is None else self.overall

    @property
    def std(self) -> npt.NDArray[np.float64]:
        """Standard deviation of the importances over the parts or splits, NaN if no split has all classes."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            return np.nanstd(self.importances, axis=1)

    def summed(self) -> Importances:
        """Return the importances summed over the outputs.

        A split that lacks a class is left out of the mean of this class only. Raise ``ValueError`` if a class
        or a feature has no importance in any split.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # about means of nothing
            overall = self.mean.sum(axis=1)
        if np.isnan(overall).any():
            raise ValueError(
                "a column has no importance: no test row that is explained has a weight above 0, or a class "
                "is in the training rows of no split"
            )
        return replace(self, importances=self.importances.sum(axis=2), overall=overall)


def no_score(estimator: Any, X: Any, y: Any = None) -> float:
    """Return a constant score: the caller uses the models of ``cross_validate``, not their scores."""
    return 0.0


def find_importances(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    aggregation: str = "mean_abs",
    n_parts: int = 5,
    groups: Any = None,
    cv: Any = None,
    n_jobs: int | None = None,
    params: dict[str, Any] | None = None,
    explain_params: Mapping[str, Any] | None = None,
    sum_by: Literal["input"] | None = None,
    by_input: bool = False,
    weights: np.ndarray | None = None,
    scoring: Any = no_score,
) -> Importances:
    """Compute importances for each output.

    With ``cv``, clones of the model are fitted, and each clone explains the test rows of its split. For
    parameters not listed here, see :func:`shap_importance` and :func:`cross_val_explain`. With ``by_input``,
    the features are all columns of X, in their order. Otherwise they are the columns that the model sees
    after the steps of a pipeline or, with ``sum_by``, the columns of X from which the steps made these
    columns. ``weights`` of the rows, for means of magnitudes, and ``scoring`` are used only with ``cv``.
    """
    require_one_of("aggregation", aggregation, tuple(_AGGREGATIONS))
    require_sum_by(sum_by)
    aggregate, X = _AGGREGATIONS[aggregation], collected(X)
    if cv is None:
        if groups is not None or params is not None:
            raise ValueError(
                "groups and params are for fits with cv=: without cv=, the model is not fitted again"
            )
        require_explain_params(explain_params)
        options = ({} if n_jobs is None else {"n_jobs": n_jobs}) | dict(explain_params or {})
        read_features = partial(_features, X=X, sum_by=sum_by, by_input=by_input)
        return _fitted_importances(estimator, X, y, aggregate, n_parts, options, read_features)
    X, y = indexable(X, y)
    results, splits = explained_splits(
        estimator,
        X,
        y,
        groups=groups,
        cv=cv,
        scoring=scoring,
        n_jobs=n_jobs,
        params=params,
        return_estimator=False,
        error_score="raise",
        explain_params=explain_params,
    )
    first: Split | None = None
    features: tuple[str, ...] = ()
    importances_by_split: dict[int, tuple[tuple[str, ...], np.ndarray]] = {}
    for number, split in enumerate(splits):
        if split.explanation is None:
            continue
        first = first or split
        names, values = _features(split.explanation, X, sum_by, by_input)
        features = merged_names(features, names)
        own_outputs = aggregate(values) if weights is None else _weighted_mean(values, weights[split.rows])
        all_outputs = np.full((len(names), len(split.output_names or (None,))), np.nan)
        all_outputs[:, split.outputs] = own_outputs
        importances_by_split[number] = names, all_outputs
    if first is None:
        raise ValueError("no split could be explained: the warnings say why")
    importances = aligned(importances_by_split, features, len(results["fit_time"])).transpose(1, 0, 2)
    return Importances(importances, None, features, first.output_names, results["test_score"])


def _fitted_importances(
    model: Any,
    X: Any,
    y: Any,
    aggregate: Callable[[np.ndarray], np.ndarray],
    n_parts: int,
    requested: dict[str, Any],
    read_features: Callable[[Explanation], tuple[tuple[str, ...], np.ndarray]],
) -> Importances:
    """Return importances of a fitted model.

    ``read_features`` returns the names of the features of an explanation, and their values.
    """
    require_count("n_parts", n_parts)
    explainer = TreeExplainer(model, **explainer_options(model, requested))
    explanation = explainer.explain(X, y if explainer.model_output == "log_loss" else None)
    if len(explanation) < n_parts:
        raise ValueError(f"X has {len(explanation)} rows, fewer than n_parts={n_parts}")
    names, values = read_features(explanation)
    return Importances(
        np.stack([aggregate(values[part::n_parts]) for part in range(n_parts)], axis=1),
        aggregate(values),
        names,
        explanation.output_names,
    )


def _features(
    explanation: Explanation, X: Any, sum_by: Literal["input"] | None, by_input: bool
) -> tuple[tuple[str, ...], np.ndarray]:
    """Return the names of the features, and their values (n_rows, n_features, n_outputs)."""
    if sum_by is not None:
        explanation = explanation.sum_by(sum_by)
    values = to_host(explanation.values)
    if explanation.output_names is None:
        values = values[..., np.newaxis]
    origins = explanation.origins
    if not by_input or (origins is None and explanation.group_columns is None):
        return explanation.feature_names, values
    n_columns = _num_features(X)
    names = tuple(f"x{i}" for i in range(n_columns))
    if origins is None:
        assert explanation.group_columns is not None
        return names, summed_by_column(values, explanation.group_columns, n_columns)
    origins.require("Put the steps before the selector, so that it selects the columns that they make")
    return names, summed_by_column(values, origins.columns_in(names_of(X)), n_columns)


def _weighted_mean(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return weighted means of magnitudes (n_features, n_outputs); NaN if all weights are zero."""
    if not weights.any():
        return np.full(values.shape[1:], np.nan)
    return np.average(np.abs(values), axis=0, weights=weights)
