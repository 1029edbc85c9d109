"""Feature selection by the magnitude of SHAP values."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real
from typing import Any, Self

import numpy as np
from sklearn import get_config
from sklearn.base import clone
from sklearn.utils import indexable
from sklearn.utils.metadata_routing import process_routing
from sklearn.utils.validation import check_is_fitted, validate_data

from .._common.checks import require_count
from .._common.types import CrossValidation, ExplainerOptions, Table, Vector
from .._rows.tables import n_rows_of
from ..adapters.step_origins import ONE_TO_ONE, selected
from .base import fit_model
from .importance import Importances, find_importances
from .selecting import BaseShapSelector

#: Number of parts of the rows for the spread of importances without cross-validation, as in
#: ``shap_importance``.
_N_PARTS = 5

_REFERENCES: dict[str, Callable[[np.ndarray], Any]] = {"mean": np.mean, "median": np.median}


class ShapSelector(BaseShapSelector):
    """Feature selector that keeps the columns with the largest effects on a tree model's predictions.

    It works like :class:`sklearn.feature_selection.SelectFromModel`, but ranks columns by mean magnitudes of
    SHAP values; with ``cv``, on rows that the models were not trained on. These importances say how much a
    column moves the predictions, whether it makes them better or worse. How much better a column makes them,
    :func:`sklearn.inspection.permutation_importance` says.

    Parameters
    ----------
    estimator : estimator
        A tree model, or a ``Pipeline``, search or :class:`ShapTransformer` around one; see
        :class:`TreeExplainer`. The steps of a pipeline must make each output column from one input column,
        as for :meth:`Explanation.sum_by` with "input". The model is cloned and fitted, but a
        ``FrozenEstimator`` is used as it is.
    threshold : float, str or None, default=None
        Columns with at least this importance are kept: a number, "mean", "median", or a multiple such as
        "1.25*mean". None: "mean", but no threshold if ``max_features`` is given.
    max_features : int, callable or None, default=None
        Largest number of columns to keep, or a function of X that returns the number. Of equally important
        columns, the first are kept. Without ``threshold``, exactly this many columns are kept, even if some
        have importance 0.
    cv : int, cross-validation generator or iterable, default=None
        Fit the model on each of these splits, and take the mean of the importances over their test rows.
        None: fit it once, and take the importances over the rows given to ``fit``.
    n_jobs : int or None, default=None
        Number of threads, and with ``cv`` of concurrent fits.
    explain_params : dict or None, default=None
        Options of :class:`TreeExplainer`.

    Attributes
    ----------
    importances_ : ndarray of float64, shape (n_features,)
        Mean magnitude of the SHAP values of each column of X, summed over the outputs. If a pipeline makes
        several columns from a column of X, their SHAP values are added up first. A column that the pipeline
        drops has importance 0.
    importances_std_ : ndarray of float64, shape (n_features,)
        Standard deviation of the importances over the splits; without ``cv``, over parts of the rows, as in
        :func:`shap_importance`.
    threshold_ : float
    max_features_ : int or None
    estimator_ : estimator
        The fitted model; only without ``cv``.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        When X has string names.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.ensemble import RandomForestRegressor
    >>> from skshapgpu import ShapSelector
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> selector = ShapSelector(RandomForestRegressor(10, random_state=0), cv=3).fit(X, y)
    >>> selector.get_feature_names_out()
    array(['bmi', 's5'], dtype=object)
    """

    def __init__(
        self,
        estimator: Any,
        *,
        threshold: float | str | None = None,
        max_features: int | Callable[[Any], int] | None = None,
        cv: CrossValidation = None,
        n_jobs: int | None = None,
        explain_params: ExplainerOptions | None = None,
    ) -> None:
        self.estimator = estimator
        self.threshold = threshold
        self.max_features = max_features
        self.cv = cv
        self.n_jobs = n_jobs
        self.explain_params = explain_params

    def fit(self, X: Table, y: Vector | None = None, **params: Any) -> Self:
        """Fit the model and compute importances.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_samples, n_features)
            Training rows.
        y : array-like of shape (n_samples,), default=None
            Target of each row, in a form that the model's ``fit`` accepts.
        **params
            Parameters of the model's ``fit``, and ``groups`` for the splitter: routed if metadata routing
            is enabled, otherwise passed on.

        Returns
        -------
        ShapSelector
            The selector itself.

        Raises
        ------
        ValueError
            A step before the model is not known to make each output column from one input column.
        """
        threshold = self.threshold
        if threshold is None:
            threshold = "mean" if self.max_features is None else -np.inf
        scale, reference = _parse_threshold(threshold)
        max_features = self.max_features(X) if callable(self.max_features) else self.max_features
        require_count("max_features", max_features, 0, (None,))
        self.max_features_ = max_features
        X, y = indexable(X, y)
        validate_data(self, X, y, skip_check_array=True)
        importances = self._find(X, y, params).summed()
        self.importances_, self.importances_std_ = importances.mean, importances.std
        self.threshold_ = scale if reference is None else scale * float(reference(self.importances_))
        return self

    def _find(self, X: Any, y: Any, params: dict[str, Any]) -> Importances:
        common: dict[str, Any] = {
            "n_jobs": self.n_jobs,
            "explain_params": self.explain_params,
            "by_input": True,
        }
        routing = get_config()["enable_metadata_routing"]
        routed = process_routing(self, "fit", **params) if routing else None
        if self.cv is None:
            self.estimator_ = clone(self.estimator)
            fit_model(self.estimator_, X, y, params if routed is None else routed["estimator"]["fit"])
            n_parts = min(_N_PARTS, n_rows_of(X))
            return find_importances(self.estimator_, X, y, n_parts=n_parts, **common)
        groups = None if routing else params.pop("groups", None)
        return find_importances(self.estimator, X, y, groups=groups, cv=self.cv, params=params, **common)

    def _get_support_mask(self) -> np.ndarray:
        check_is_fitted(self)
        mask = self.importances_ >= self.threshold_
        if self.max_features_ is not None:
            mask[np.argsort(-self.importances_, kind="stable")[self.max_features_ :]] = False
        return mask


ONE_TO_ONE[ShapSelector] = selected


def _parse_threshold(threshold: Any) -> tuple[float, Callable[[np.ndarray], Any] | None]:
    """Return a threshold as a number and None, or as a factor and the function whose result it multiplies."""
    if isinstance(threshold, Real) and not np.isnan(float(threshold)):
        return float(threshold), None
    if isinstance(threshold, str):
        factor, star, name = threshold.rpartition("*")
        try:
            return float(factor) if star else 1.0, _REFERENCES[name.strip()]
        except (KeyError, ValueError):
            pass
    raise ValueError(
        f"threshold must be a number, 'mean', 'median' or a multiple such as '1.25*mean', not {threshold!r}"
    )
