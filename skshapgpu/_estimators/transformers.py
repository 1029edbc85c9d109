"""SHAP values and interactions as scikit-learn transformers."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from .._common.progress import require_progress
from .._common.types import (
    AlgorithmName,
    Columns,
    Cover,
    Device,
    FeatureGroups,
    FeaturePerturbation,
    InteractionIndex,
    ModelOutput,
    Outputs,
    Precision,
    Progress,
    Table,
    Times,
    Vector,
)
from .._engine.interactions import Request
from .._explanations.interactions import InteractionExplanation, set_names
from .._explanations.values import Explanation, column_names, side_by_side
from .._rows.gpu_arrays import to_host
from .._rows.origins import Origins, summed_by_column
from .._rows.tables import n_rows_of, select
from ..explainer import TreeExplainer
from .base import ExplainingTransformer

#: Maximum number of training rows used for importances: their standard error is then 1 % of the spread of a
#: feature's values, and the time of fit stays bounded for large data.
_IMPORTANCE_ROWS = 10_000

#: Number of rows explained at once for the importances.
_IMPORTANCE_CHUNK = 1_000


class ShapTransformer(ExplainingTransformer):
    """Transformer of rows into the SHAP values of a tree model's predictions.

    ``fit`` fits a clone of the model, and ``transform`` returns SHAP values as columns; predictions and
    scores are those of this model. The model in a ``FrozenEstimator`` is copied as it is at that time; see
    also :meth:`from_fitted`.

    SHAP values of training rows leak y: the model was fitted to y, noise included. A second model trained
    on them sees more than it will in new rows, and its score on them, even cross-validated, is far too
    good. With ``cv``, ``fit_transform`` explains each row by a model that was not fitted on it, as
    scikit-learn's ``TargetEncoder`` does::

        make_pipeline(ShapTransformer(model, cv=5), LogisticRegression()).fit(X, y)

    ``transform`` uses the model fitted on all rows, so ``fit(X, y).transform(X)`` returns other values.

    Parameters
    ----------
    estimator : estimator
        A tree model, or a ``Pipeline`` or search around one; see :class:`TreeExplainer`.
    cv : int, cross-validation splitter, iterable or None, default=None
        Folds in which ``fit_transform`` refits the model, to explain the rows that were left out. A number
        creates this many folds of shuffled rows, stratified for a classifier, always the same. None:
        ``fit_transform(X, y)`` is ``fit(X, y).transform(X)``.
    data, feature_perturbation, data_weight
        Background rows with the columns of X, for interventional SHAP values or for covers, and their
        weights; see :class:`TreeExplainer`.
    cover : {"auto", "count", "weight"}, default="auto"
        Kind of cover at each node; see :class:`TreeExplainer`.
    model_output : {"raw", "probability", "response", "survival", "cumulative_hazard"}, default="raw"
        Quantity that the values explain; see :class:`TreeExplainer`.
    times : float or array-like of shape (n_times,), default=None
        Times of a survival function or cumulative hazard function; see :class:`TreeExplainer`.
    columns : {"all", "used"}, default="all"
        "used" returns values only of the columns that the model fitted on all rows uses, and
        ``get_feature_names_out`` names these. With ``cv``, the values of other columns, which a model of a
        fold may use, are left out. See :class:`TreeExplainer`.
    feature_groups : mapping of str to list, "input" or None, default=None
        Columns that form one feature each, of those that the model sees; see :class:`TreeExplainer`. With
        ``cv`` and a pipeline, name them, or use "input": positions may differ between folds.
    algorithm, device, precision, outputs, n_jobs, memory_limit, check_additivity
        Options of :class:`TreeExplainer`.

    Attributes
    ----------
    estimator_ : estimator
        The fitted model.
    explainer_ : TreeExplainer
    base_values_ : float or ndarray of shape (n_outputs,)
        Expected margin of the model; with ``data``, its mean margin or probability on the background rows.
    feature_importances_ : ndarray of float64, shape (n_features,)
        Mean magnitude of the SHAP values of each column of the X given to ``fit``, summed over the outputs,
        for ``SelectFromModel``, ``RFE`` and the like. Values of the columns that a pipeline makes from a
        column of X are added up first, as by :meth:`Explanation.sum_by` with "input"; a column that it drops
        has 0, and all columns of a group have the importance of the group. Raises ``ValueError`` if a step,
        such as PCA, is not known to make each of its columns from a single one. If there are more than
        10,000 rows, a fixed random sample of this size is used. Missing after :meth:`from_fitted`, until
        ``fit`` is called.
    classes_ : ndarray
        Class labels of a classifier.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        When X has string names.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.ensemble import RandomForestRegressor
    >>> from skshapgpu import ShapTransformer
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> shap = ShapTransformer(RandomForestRegressor(10, random_state=0)).set_output(transform="pandas")
    >>> shap.fit_transform(X, y).shape
    (442, 10)
    """

    def __init__(
        self,
        estimator: Any,
        *,
        cv: Any = None,
        data: Table | None = None,
        feature_perturbation: FeaturePerturbation = "auto",
        data_weight: Vector | None = None,
        cover: Cover = "auto",
        model_output: ModelOutput = "raw",
        times: Times | None = None,
        columns: Columns = "all",
        feature_groups: FeatureGroups | None = None,
        algorithm: AlgorithmName = "auto",
        device: Device = "auto",
        precision: Precision = "single",
        outputs: Outputs = "auto",
        n_jobs: int | None = None,
        memory_limit: int | str | None = None,
        check_additivity: bool = True,
    ) -> None:
        super().__init__(
            estimator,
            cv=cv,
            cover=cover,
            feature_groups=feature_groups,
            algorithm=algorithm,
            device=device,
            precision=precision,
            outputs=outputs,
            n_jobs=n_jobs,
            memory_limit=memory_limit,
            check_additivity=check_additivity,
        )
        self.data = data
        self.feature_perturbation = feature_perturbation
        self.data_weight = data_weight
        self.model_output = model_output
        self.times = times
        self.columns = columns

    def _check_options(self) -> None:
        super()._check_options()
        if self.model_output == "log_loss":
            raise ValueError(
                "model_output='log_loss' needs labels, which transform does not get: use TreeExplainer"
            )

    def _explainer_options(self) -> dict[str, Any]:
        return super()._explainer_options() | {
            "data": self.data,
            "feature_perturbation": self.feature_perturbation,
            "data_weight": self.data_weight,
            "model_output": self.model_output,
            "times": self.times,
            "columns": self.columns,
        }

    def _learn(self, X: Any) -> None:
        if X is None:
            return
        origins = self._origins()
        if origins is None or origins.columns is not None:
            self.feature_importances_ = self._importances(X, origins)
        else:
            self.__dict__.pop("feature_importances_", None)  # left from an earlier fit

    def _origins(self) -> Origins | None:
        """Return the origins of the features; None if they are columns of X, or groups of these."""
        return self.explainer_._origins

    def _importances(self, X: Any, origins: Origins | None) -> np.ndarray:
        columns: Any = self.explainer_.feature_indices
        if origins is not None:
            columns = origins.columns_in(getattr(self, "feature_names_in_", None))
        elif self.explainer_.group_columns is not None:
            columns = self.explainer_.group_columns
        X = self._as_table(X)
        n_rows = n_rows_of(X)
        rows = np.arange(n_rows)
        if n_rows > _IMPORTANCE_ROWS:  # evenly spaced ones would be all of one kind if two kinds alternate
            rows = np.sort(np.random.default_rng(0).choice(n_rows, _IMPORTANCE_ROWS, replace=False))
        total, explainer = np.zeros(()), self._explainer_of_checked
        for start in range(0, len(rows), _IMPORTANCE_CHUNK):
            values = to_host(explainer.shap_values(select(X, rows[start : start + _IMPORTANCE_CHUNK])))
            explainer = explainer._without_warnings
            if columns is not None:
                values = summed_by_column(values, columns, self.n_features_in_)
            total = total + np.abs(values).reshape(*values.shape[:2], -1).sum(axis=(0, 2), dtype=np.float64)
        return total / len(rows)

    def __getattr__(self, name: str) -> Any:
        # Not a property: dir() and notebooks read every attribute of the class, and would fail.
        fitted = "explainer_" in self.__dict__
        if name == "feature_importances_" and fitted and (origins := self._origins()) is not None:
            origins.require(
                "Select the columns that the steps make, with the steps outside: make_pipeline(step, "
                "SelectFromModel(ShapTransformer(model))); or use shap_importance, which ranks these columns"
            )
        return super().__getattribute__(name)  # raises the usual AttributeError

    def transform(self, X: Table) -> np.ndarray:
        """Compute SHAP values as columns.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_samples, n_features)
            Rows to explain.

        Returns
        -------
        ndarray of float32 or float64, shape (n_samples, n_features * n_outputs)
            SHAP values, with ``columns="used"`` of the used columns; float32 for float32 X. With several
            outputs, the columns of a feature are adjacent:
            ``explain(X).values.reshape(len(X), -1)``.
        """
        X = self._checked(X)
        return side_by_side(self._explainer_of_checked.shap_values(X))

    def _values_of(self, explainer: TreeExplainer, X: Any, places: np.ndarray | None) -> np.ndarray:
        values = explainer.shap_values(X)
        places, there = self._places_of_features(explainer, places), values
        values = np.zeros((len(there), self.explainer_._n_explained, *there.shape[2:]), there.dtype)
        values[:, places[places >= 0]] = there[:, places >= 0]
        return side_by_side(values)

    def explain(self, X: Table, *, progress: Progress = False) -> Explanation:
        """Compute SHAP values, with names, data, row labels and base values.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_samples, n_features)
            Rows to explain.
        progress : bool or callable, default=False
            See :meth:`.TreeExplainer.explain`.

        Returns
        -------
        Explanation
            SHAP values of the rows.
        """
        require_progress(progress)
        X = self._checked(X)
        return self._explainer_of_checked.explain(X, progress=progress)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return the names of the columns that ``transform`` returns.

        Parameters
        ----------
        input_features : array-like of str or None, default=None
            Names of the columns of X; they must match ``feature_names_in_`` if that is known.

        Returns
        -------
        ndarray of str objects
            The names of the features if there is one output, otherwise ``feature__class``.
        """
        check_is_fitted(self)
        names = self.explainer_._names_explained(self._names_given(input_features))
        return np.asarray(column_names(names, self.explainer_.output_names), dtype=object)


class ShapInteractionTransformer(ExplainingTransformer):
    """Transformer of rows into the interactions of features in a tree model's predictions.

    ``fit`` fits a clone of the model and selects the pairs, and ``transform`` returns a column "a x b"
    for each pair, with its whole index; predictions and scores are those of this model. The model in a
    ``FrozenEstimator`` is copied as it is at that time; see also :meth:`from_fitted`.

    Interactions of training rows leak y, as SHAP values do: see :class:`ShapTransformer`.

    Parameters
    ----------
    estimator : estimator
        A tree model, or a ``Pipeline`` or search around one; see :class:`TreeExplainer`.
    interactions : "occurring", int or list of pairs, default="occurring"
        "occurring" selects all pairs that occur on a path of the fitted model; others do not interact. A
        number selects this many of the strongest pairs in the rows given to ``fit``, or all if
        there are fewer. A list has pairs of names of the columns that the model sees, or of positions of
        columns of X, as for :meth:`TreeExplainer.explain_interactions`, and determines their order; a pair
        that never occurs has zeros.
    index : {"SII", "STII", "BII"}, default="SII"
        See :meth:`TreeExplainer.explain_interactions`.
    cv : int, cross-validation splitter, iterable or None, default=None
        See :class:`ShapTransformer`. The pairs are those of the model fitted on all rows.
    data, feature_perturbation, data_weight
        Background rows with the columns of X, for interventional interactions or for covers, and their
        weights; see :class:`TreeExplainer`.
    cover : {"auto", "count", "weight"}, default="auto"
        See :class:`TreeExplainer`.
    feature_groups : mapping of str to list, "input" or None, default=None
        See :class:`ShapTransformer`. All pairs are then pairs of groups.
    algorithm, device, precision, outputs, n_jobs, memory_limit, check_additivity
        Options of :class:`TreeExplainer`.

    Attributes
    ----------
    estimator_ : estimator
        The fitted model.
    explainer_ : TreeExplainer
    base_values_ : float or ndarray of shape (n_outputs,)
        Expected margin of the model; with ``data``, its mean margin on the background rows.
    interactions_ : ndarray of int32, shape (n_interactions, 2)
        Features of each pair, by position, in the order of the columns. Missing after :meth:`from_fitted`
        with a number of pairs, until ``fit`` is called.
    classes_ : ndarray
        Class labels of a classifier.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        When X has string names.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.ensemble import RandomForestRegressor
    >>> from skshapgpu import ShapInteractionTransformer
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> model = RandomForestRegressor(10, random_state=0)
    >>> transformer = ShapInteractionTransformer(model, interactions=5)
    >>> transformer.fit_transform(X, y).shape
    (442, 5)
    """

    def __init__(
        self,
        estimator: Any,
        *,
        interactions: Any = "occurring",
        index: InteractionIndex = "SII",
        cv: Any = None,
        data: Table | None = None,
        feature_perturbation: FeaturePerturbation = "auto",
        data_weight: Vector | None = None,
        cover: Cover = "auto",
        feature_groups: FeatureGroups | None = None,
        algorithm: AlgorithmName = "auto",
        device: Device = "auto",
        precision: Precision = "single",
        outputs: Outputs = "auto",
        n_jobs: int | None = None,
        memory_limit: int | str | None = None,
        check_additivity: bool = True,
    ) -> None:
        super().__init__(
            estimator,
            cv=cv,
            cover=cover,
            feature_groups=feature_groups,
            algorithm=algorithm,
            device=device,
            precision=precision,
            outputs=outputs,
            n_jobs=n_jobs,
            memory_limit=memory_limit,
            check_additivity=check_additivity,
        )
        self.interactions = interactions
        self.index = index
        self.data = data
        self.feature_perturbation = feature_perturbation
        self.data_weight = data_weight

    def _check_options(self) -> None:
        super()._check_options()
        Request.parse(self.interactions, self.index)

    def _explainer_options(self) -> dict[str, Any]:
        return super()._explainer_options() | {
            "data": self.data,
            "feature_perturbation": self.feature_perturbation,
            "data_weight": self.data_weight,
        }

    def _learn(self, X: Any) -> None:
        request = Request.parse(self.interactions, self.index)
        # Parameters that are set later take effect in the next fit, which selects the pairs.
        self._all_occurring, self._index = request.form == "occurring", self.index
        self.interactions_: Any
        if request.form == "listed":
            names = self.explainer_._names_explained(self._names_given())
            self.interactions_ = request.positions(names, self.explainer_._features_are_columns)
        elif request.form != "strongest":
            self.interactions_ = self.explainer_.occurring_interactions()
        elif X is not None:
            explanation = self._explainer_of_checked.explain_interactions(
                self._as_table(X), interactions=self.interactions, index=self.index
            )
            self.interactions_ = explanation.interactions

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "interactions_")

    def transform(self, X: Table) -> np.ndarray:
        """Compute interactions as columns.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_samples, n_features)
            Rows to explain.

        Returns
        -------
        ndarray of float32 or float64, shape (n_samples, n_interactions * n_outputs)
            Interactions; float32 for float32 X. With several outputs, the columns of a pair are adjacent:
            ``explain(X).values.reshape(len(X), -1)``.
        """
        return side_by_side(self.explain(X).values)

    def _values_of(self, explainer: TreeExplainer, X: Any, places: np.ndarray | None) -> np.ndarray:
        """Return the interactions of ``interactions_``; zeros for pairs that do not occur in this model."""
        pairs, there = self.interactions_, np.arange(len(self.interactions_))
        if places is not None:
            of_features = self._places_of_features(explainer, places)
            number = np.full(self.explainer_._n_explained, -1)
            number[of_features] = np.arange(len(of_features))
            pairs = number[pairs]
            there = np.flatnonzero((pairs >= 0).all(axis=1))
        found = explainer.explain_interactions(X, interactions=pairs[there], index=self._index).values
        values = np.zeros((len(found), len(pairs), *found.shape[2:]), found.dtype)
        values[:, there] = found
        return side_by_side(values)

    def explain(self, X: Table, *, progress: Progress = False) -> InteractionExplanation:
        """Compute interactions, with names, data, row labels and base values.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_samples, n_features)
            Rows to explain.
        progress : bool or callable, default=False
            See :meth:`.TreeExplainer.explain_interactions`.

        Returns
        -------
        InteractionExplanation
            Interactions of the pairs in ``interactions_``.
        """
        require_progress(progress)
        X = self._checked(X)
        return self._explainer_of_checked.explain_interactions(
            X,
            interactions="occurring" if self._all_occurring else self.interactions_,
            index=self._index,
            progress=progress,
        )

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return the names of the columns that ``transform`` returns.

        Parameters
        ----------
        input_features : array-like of str or None, default=None
            Names of the columns of X; they must match ``feature_names_in_`` if that is known.

        Returns
        -------
        ndarray of str objects
            "a x b" for each pair if there is one output, otherwise "a x b__class".
        """
        check_is_fitted(self)
        of_features = self.explainer_._names_explained(self._names_given(input_features))
        names = set_names(of_features, self.interactions_)
        return np.asarray(column_names(names, self.explainer_.output_names), dtype=object)
