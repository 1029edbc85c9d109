"""SHAP values and interactions as scikit-learn transformers."""

from __future__ import annotations

from typing import Any, Self, Unpack

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from .._common.progress import require_progress
from .._common.types import (
    AlgorithmName,
    Columns,
    Cover,
    CrossValidation,
    Device,
    FeatureGroups,
    FeaturePerturbation,
    InteractionIndex,
    Interactions,
    InteractionTransformerOptions,
    Model,
    ModelOutput,
    Outputs,
    Precision,
    Progress,
    Table,
    Times,
    TransformerOptions,
    Values,
    Vector,
    lists_options,
)
from .._engine.interactions import Request
from .._explanations.interactions import InteractionExplanation, set_names
from .._explanations.values import Explanation, column_names, side_by_side
from .._rows.gpu_arrays import to_host
from .._rows.origins import Origins, summed_by_column
from .._rows.tables import n_rows_of, select
from ..explainer import TreeExplainer
from .base import ExplainingTransformer

#: Maximum number of training rows from which importances are computed. With 10,000 rows, the standard error
#: of an importance is 1 % of the spread of the feature's values, and larger data take no more time.
_IMPORTANCE_ROWS = 10_000

#: Number of rows explained at once for the importances.
_IMPORTANCE_CHUNK = 1_000


class ShapTransformer(ExplainingTransformer):
    """Transformer of rows into the SHAP values of a tree model's predictions.

    ``fit`` fits a clone of the model, and ``transform`` returns SHAP values as columns. The transformer
    predicts and scores with this clone. If the model is in a ``FrozenEstimator``, ``fit`` copies it instead
    of fitting it; see also :meth:`from_fitted`.

    SHAP values of training rows leak y, because the model was fitted to y and its noise. A second model that
    is trained on these values sees more than it will see in new rows, and its score on them, even
    cross-validated, is far too good. With ``cv``, ``fit_transform`` explains each row by a model that was not
    fitted on the row, as scikit-learn's ``TargetEncoder`` does::

        make_pipeline(ShapTransformer(model, cv=5), LogisticRegression()).fit(X, y)

    ``transform`` uses the model fitted on all rows, so ``fit(X, y).transform(X)`` returns other values.

    Parameters
    ----------
    estimator : estimator
        A tree model, or a ``Pipeline`` or search around one; see :class:`TreeExplainer`.
    cv : int, cross-validation splitter, iterable or None, default=None
        Folds in which ``fit_transform`` refits the model, to explain the rows that were left out. A number
        creates this many folds of shuffled rows, stratified for a classifier. The same rows give the same
        folds each time. None: ``fit_transform(X, y)`` is ``fit(X, y).transform(X)``.
    data, feature_perturbation, data_weight
        Background rows with the columns of X, for interventional SHAP values or for covers, and their
        weights; see :class:`TreeExplainer`.
    cover : {"auto", "count", "weight"}, default="auto"
        Kind of cover at each node; see :class:`TreeExplainer`.
    model_output : {"raw", "probability", "response", "survival", "cumulative_hazard", "score_samples", \
            "decision_function"}, default="raw"
        Quantity that the values explain; see :class:`TreeExplainer`.
    times : float or array-like of shape (n_times,), default=None
        Times of a survival function or cumulative hazard function; see :class:`TreeExplainer`.
    columns : {"all", "used"}, default="all"
        "used" returns values only of the columns that the model fitted on all rows uses, and
        ``get_feature_names_out`` names these columns. With ``cv``, a model of a fold may use other columns,
        whose values are left out. See :class:`TreeExplainer`.
    feature_groups : mapping of str to list, "input" or None, default=None
        Groups of the columns that the model sees; each group is one feature. See :class:`TreeExplainer`. With
        ``cv`` and a pipeline, give names of columns, or "input": positions may differ between folds.
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
        for ``SelectFromModel``, ``RFE`` and similar classes. If a pipeline makes several columns from a
        column of X, their values are added up first, as by :meth:`Explanation.sum_by` with "input". A column
        that the pipeline drops has importance 0, and all columns of a group have the importance of the
        group. Raises ``ValueError`` if a step, such as PCA, is not known to make each output column from one
        input column. If there are more than 10,000 rows, a fixed random sample of this size is used. Missing
        after :meth:`from_fitted`, until ``fit`` is called.
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
        cv: CrossValidation = None,
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
        self.estimator = estimator
        self.cv = cv
        self.cover = cover
        self.feature_groups = feature_groups
        self.algorithm = algorithm
        self.device = device
        self.precision = precision
        self.outputs = outputs
        self.n_jobs = n_jobs
        self.memory_limit = memory_limit
        self.check_additivity = check_additivity
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

    @classmethod
    @lists_options
    def from_fitted(cls, model: Model, **options: Unpack[TransformerOptions]) -> Self:
        """Return a fitted transformer around a frozen copy of a fitted model.

        If the model is trained further, the transformer still explains the model as it was, and predicts with
        it. Call this method again for the new model.

        Parameters
        ----------
        model : fitted model, str, path, bytes or TreeExplainer
            A fitted model or its file, or an explainer or its file: see :class:`TreeExplainer`.
        **options
            Parameters of :class:`ShapTransformer`:

        Returns
        -------
        ShapTransformer
            Transformer that is ready for ``transform``. It lacks the attributes that only ``fit`` learns from
            rows.

        Raises
        ------
        UnsupportedModelError
            The model cannot be explained, or cannot be copied.
        """
        return cls._from_fitted(model, **options)

    def _learn(self, X: Any) -> None:
        if X is None:
            return
        origins = self.explainer_._origins
        if origins is None or origins.columns is not None:
            self.feature_importances_ = self._importances(X, origins)
        else:
            self.__dict__.pop("feature_importances_", None)  # an earlier fit may have set it

    def _importances(self, X: Any, origins: Origins | None) -> npt.NDArray[np.float64]:
        columns: Any = self.explainer_.feature_indices
        if origins is not None:
            columns = origins.columns_in(getattr(self, "feature_names_in_", None))
        elif self.explainer_.group_columns is not None:
            columns = self.explainer_.group_columns
        X = self._as_table(X)
        n_rows = n_rows_of(X)
        rows = np.arange(n_rows)
        if n_rows > _IMPORTANCE_ROWS:  # if rows of two kinds alternate, evenly spaced rows may be of one kind
            rows = np.sort(np.random.default_rng(0).choice(n_rows, _IMPORTANCE_ROWS, replace=False))
        total, explainer = np.zeros(()), self._explainer_for_checked
        for start in range(0, len(rows), _IMPORTANCE_CHUNK):
            values = to_host(explainer.shap_values(select(X, rows[start : start + _IMPORTANCE_CHUNK])))
            explainer = explainer._without_warnings
            if columns is not None:
                values = summed_by_column(values, columns, self.n_features_in_)
            total = total + np.abs(values).reshape(*values.shape[:2], -1).sum(axis=(0, 2), dtype=np.float64)
        return total / len(rows)

    def __getattr__(self, name: str) -> Any:
        # A property would raise its error in dir() and in notebooks, which read every attribute of the class.
        fitted = "explainer_" in self.__dict__
        if name == "feature_importances_" and fitted and (origins := self.explainer_._origins) is not None:
            origins.require(
                "Put the steps before the transformer, to select among the columns that they make: "
                "make_pipeline(step, SelectFromModel(ShapTransformer(model))); or use shap_importance, which "
                "ranks these columns"
            )
        return super().__getattribute__(name)  # raises the usual AttributeError

    def transform(self, X: Table) -> Values:
        """Compute SHAP values as columns.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_samples, n_features)
            Rows to explain.

        Returns
        -------
        ndarray of float32 or float64, shape (n_samples, n_features * n_outputs)
            SHAP values, with ``columns="used"`` only of the used columns; float32 for float32 X. With several
            outputs, the columns of a feature are adjacent:
            ``explain(X).values.reshape(len(X), -1)``.
        """
        X = self._checked(X)
        return side_by_side(self._explainer_for_checked.shap_values(X))

    def _transformed_by(self, explainer: TreeExplainer, X: Any, positions: np.ndarray | None) -> np.ndarray:
        fold_values = explainer.shap_values(X)
        feature_positions = self._positions_of_features(explainer, positions)
        is_shared = feature_positions >= 0
        shape = (len(fold_values), self.explainer_._compiled.n_features, *fold_values.shape[2:])
        values = np.zeros(shape, fold_values.dtype)
        values[:, feature_positions[is_shared]] = fold_values[:, is_shared]
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
        return self._explainer_for_checked.explain(X, progress=progress)

    def get_feature_names_out(self, input_features: Any = None) -> npt.NDArray[np.object_]:
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
        names = self.explainer_._names_explained(self._input_names(input_features))
        return np.asarray(column_names(names, self.explainer_.output_names), dtype=object)


class ShapInteractionTransformer(ExplainingTransformer):
    """Transformer of rows into the interactions of features in a tree model's predictions.

    ``fit`` fits a clone of the model and selects the pairs, and ``transform`` returns a column "a x b"
    for each pair, with its whole index. The transformer predicts and scores with this clone. If the model is
    in a ``FrozenEstimator``, ``fit`` copies it instead of fitting it; see also :meth:`from_fitted`.

    Interactions of training rows leak y, as SHAP values do: see :class:`ShapTransformer`.

    Parameters
    ----------
    estimator : estimator
        A tree model, or a ``Pipeline`` or search around one; see :class:`TreeExplainer`.
    interactions : "occurring", int or list of pairs, default="occurring"
        "occurring" selects all pairs that occur on a path of the fitted model; other pairs do not interact.
        A number selects this many of the strongest pairs in the rows given to ``fit``, or all pairs if there
        are fewer. A list has the pairs in their order, as for :meth:`TreeExplainer.explain_interactions`: by
        names of the columns that the model sees, or by positions of columns of X. A listed pair that never
        occurs has zeros.
    index : {"SII", "STII", "BII"}, default="SII"
        See :meth:`TreeExplainer.explain_interactions`.
    cv : int, cross-validation splitter, iterable or None, default=None
        See :class:`ShapTransformer`. The model fitted on all rows determines the pairs.
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
        interactions: Interactions = "occurring",
        index: InteractionIndex = "SII",
        cv: CrossValidation = None,
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
        self.estimator = estimator
        self.cv = cv
        self.cover = cover
        self.feature_groups = feature_groups
        self.algorithm = algorithm
        self.device = device
        self.precision = precision
        self.outputs = outputs
        self.n_jobs = n_jobs
        self.memory_limit = memory_limit
        self.check_additivity = check_additivity
        self.interactions = interactions
        self.index = index
        self.data = data
        self.feature_perturbation = feature_perturbation
        self.data_weight = data_weight

    @classmethod
    @lists_options
    def from_fitted(cls, model: Model, **options: Unpack[InteractionTransformerOptions]) -> Self:
        """Return a fitted transformer around a frozen copy of a fitted model.

        If the model is trained further, the transformer still explains the model as it was, and predicts with
        it. Call this method again for the new model.

        Parameters
        ----------
        model : fitted model, str, path, bytes or TreeExplainer
            A fitted model or its file, or an explainer or its file: see :class:`TreeExplainer`.
        **options
            Parameters of :class:`ShapInteractionTransformer`:

        Returns
        -------
        ShapInteractionTransformer
            Transformer that is ready for ``transform``. It lacks the attributes that only ``fit`` learns from
            rows.

        Raises
        ------
        UnsupportedModelError
            The model cannot be explained, or cannot be copied.
        """
        return cls._from_fitted(model, **options)

    def _check_options(self) -> None:
        super()._check_options()
        Request.parse(self.interactions, self.index)

    def _learn(self, X: Any) -> None:
        request = Request.parse(self.interactions, self.index)
        # fit selects the pairs, so a parameter that is set after it takes effect in the next fit.
        self._all_occurring, self._index = request.form == "occurring", self.index
        self.interactions_: npt.NDArray[np.int32]
        if request.form == "listed":
            names = self.explainer_._names_explained(self._input_names())
            self.interactions_ = request.positions(names, self.explainer_._features_are_columns)
        elif request.form != "strongest":
            self.interactions_ = self.explainer_.occurring_interactions()
        elif X is not None:
            explanation = self._explainer_for_checked.explain_interactions(
                self._as_table(X), interactions=self.interactions, index=self.index
            )
            self.interactions_ = explanation.interactions

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "interactions_")

    def transform(self, X: Table) -> Values:
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

    def _transformed_by(self, explainer: TreeExplainer, X: Any, positions: np.ndarray | None) -> np.ndarray:
        """Return the interactions of the pairs in ``interactions_``; pairs that the fold lacks have zeros."""
        pairs: np.ndarray = self.interactions_
        in_fold = np.arange(len(pairs))
        if positions is not None:
            feature_positions = self._positions_of_features(explainer, positions)
            feature_in_fold = np.full(self.explainer_._compiled.n_features, -1)
            feature_in_fold[feature_positions] = np.arange(len(feature_positions))
            pairs = feature_in_fold[pairs]
            in_fold = np.flatnonzero((pairs >= 0).all(axis=1))
        fold_values = explainer.explain_interactions(X, interactions=pairs[in_fold], index=self._index).values
        values = np.zeros((len(fold_values), len(pairs), *fold_values.shape[2:]), fold_values.dtype)
        values[:, in_fold] = fold_values
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
        return self._explainer_for_checked.explain_interactions(
            X,
            interactions="occurring" if self._all_occurring else self.interactions_,
            index=self._index,
            progress=progress,
        )

    def get_feature_names_out(self, input_features: Any = None) -> npt.NDArray[np.object_]:
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
        feature_names = self.explainer_._names_explained(self._input_names(input_features))
        names = set_names(feature_names, self.interactions_)
        return np.asarray(column_names(names, self.explainer_.output_names), dtype=object)
