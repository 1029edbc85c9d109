"""SHAP values and interactions as scikit-learn transformers."""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any, Self

import numpy as np
from sklearn import get_config
from sklearn.base import BaseEstimator, MetaEstimatorMixin, OneToOneFeatureMixin, TransformerMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils import Tags, get_tags
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from .background import require_perturbation
from .devices import on_gpu
from .explainer import TreeExplainer
from .explanation import Explanation, column_names
from .inputs import select, table
from .interaction_explanation import InteractionExplanation, set_names
from .interactions import Request
from .model_output import require_model_output

#: Training rows that importances are taken from, at most: their standard error is then 1 % of the
#: spread of a feature's values, and fit stays quick however large the data is.
_IMPORTANCE_ROWS = 10_000

#: Rows explained at once for the importances.
_IMPORTANCE_CHUNK = 1_000


def _estimator_has(method: str) -> Callable[[Any], bool]:
    def check(self: ExplainingTransformer) -> bool:
        getattr(getattr(self, "estimator_", self.estimator), method)
        return True

    return check


class ExplainingTransformer(MetaEstimatorMixin, TransformerMixin, BaseEstimator, metaclass=ABCMeta):
    """What turns rows into explanations of the predictions that a tree model makes of them.

    The base of the public transformers, which say what :meth:`transform` gives. It fits or freezes
    the model and stands for it: predictions, scores, parameters of ``fit``, tags.
    """

    def __init__(
        self,
        estimator: Any,
        *,
        algorithm: str = "auto",
        device: str | Sequence[str] = "auto",
        precision: str = "single",
        outputs: str = "auto",
        n_jobs: int | None = None,
        memory_limit: int | str | None = None,
        check_additivity: bool = True,
    ) -> None:
        self.estimator = estimator
        self.algorithm = algorithm
        self.device = device
        self.precision = precision
        self.outputs = outputs
        self.n_jobs = n_jobs
        self.memory_limit = memory_limit
        self.check_additivity = check_additivity

    @classmethod
    def from_fitted(cls, model: Any, **options: Any) -> Self:
        """A fitted transformer around a fitted model, which is frozen and used as it is.

        Parameters
        ----------
        model : fitted model
            As for :class:`TreeExplainer`; native boosters, too.
        **options
            Further arguments of the transformer.

        Returns
        -------
        transformer
            Ready to transform, except that what the transformer learns from rows waits for ``fit``.
        """
        frozen = model if isinstance(model, FrozenEstimator) else FrozenEstimator(model)
        self = cls(frozen, **options)
        self._check_options()
        self.estimator_ = frozen
        self._compile()
        # The first step of a pipeline knows its columns, if X has any; else the model's adapter does.
        explainer = self.explainer_
        names = getattr(model, "feature_names_in_", None) if explainer.steps else explainer.feature_names_in
        if not explainer.steps or hasattr(model, "n_features_in_"):
            self.n_features_in_ = model.n_features_in_ if explainer.steps else explainer.n_features
        if names is not None:
            self.feature_names_in_ = np.asarray(names, dtype=object)
        self._learn(None)
        return self

    def fit(self, X: Any, y: Any = None, **params: Any) -> Self:
        """Fit the model, and compile it.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_samples, n_features)
        y : array-like, default=None
        **params
            For the model's ``fit``: routed if metadata routing is enabled, else passed on.

        Returns
        -------
        transformer
            Itself.
        """
        self._check_options()
        validate_data(self, X, y, skip_check_array=True)
        if y is not None and get_tags(self).estimator_type == "classifier":
            y = column_or_1d(y, warn=True)  # several targets would be refused only after training
        self.estimator_ = clone(self.estimator)
        self.estimator_.fit(X, y, **self._routed("fit", params))
        self._compile()
        self._learn(X)
        return self

    def _check_options(self) -> None:
        """Refuse arguments that have no such value, before any work starts; those of the explainer do it."""

    @abstractmethod
    def _learn(self, X: Any) -> None:
        """Set what ``fit`` learns from rows; X is None where there are none."""

    def _compile(self) -> None:
        self.explainer_ = TreeExplainer(self.estimator_, **self._explainer_options())
        self.base_values_ = self.explainer_.expected_value

    def _explainer_options(self) -> dict[str, Any]:
        return {
            "algorithm": self.algorithm,
            "device": self.device,
            "precision": self.precision,
            "outputs": self.outputs,
            "n_jobs": self.n_jobs,
            "memory_limit": self.memory_limit,
            "check_additivity": self.check_additivity,
        }

    def _checked(self, X: Any) -> Any:
        check_is_fitted(self)
        X = self._as_table(X)
        validate_data(self, X, reset=False, skip_check_array=True)
        return X

    def _as_table(self, X: Any) -> Any:
        """X in a known form, unless it lies on a GPU or the first step of a pipeline is to judge it."""
        return X if self.explainer_.steps or on_gpu(X) else table(X)

    def _names_seen(self, input_features: Any = None) -> tuple[str, ...]:
        """Names of the columns that the model sees, after a check of those of X."""
        if hasattr(self, "n_features_in_"):  # not where X is a list of texts
            input_features = OneToOneFeatureMixin.get_feature_names_out(self, input_features)
        return self.explainer_.names_seen(input_features)

    @property
    def classes_(self) -> np.ndarray:
        """Class labels of a classifier."""
        return self.estimator_.classes_

    @property
    def offset_(self) -> float:
        """Where an outlier detector draws the line: ``score_samples`` minus ``decision_function``."""
        return self.estimator_.offset_

    @available_if(_estimator_has("predict"))
    def predict(self, X: Any) -> np.ndarray:
        """Predictions of the model."""
        check_is_fitted(self)
        return self.estimator_.predict(X)

    @available_if(_estimator_has("predict_proba"))
    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities of the model."""
        check_is_fitted(self)
        return self.estimator_.predict_proba(X)

    @available_if(_estimator_has("predict_log_proba"))
    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Logarithms of the class probabilities of the model."""
        check_is_fitted(self)
        return self.estimator_.predict_log_proba(X)

    @available_if(_estimator_has("decision_function"))
    def decision_function(self, X: Any) -> np.ndarray:
        """Decision function of the model."""
        check_is_fitted(self)
        return self.estimator_.decision_function(X)

    @available_if(_estimator_has("score_samples"))
    def score_samples(self, X: Any) -> np.ndarray:
        """How normal the model finds each row, of an outlier detector."""
        check_is_fitted(self)
        return self.estimator_.score_samples(X)

    @available_if(_estimator_has("score"))
    def score(self, X: Any, y: Any = None, **params: Any) -> float:
        """Score of the model; ``params`` are for its ``score``."""
        check_is_fitted(self)
        return self.estimator_.score(X, y, **self._routed("score", params))

    def _routed(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        if not get_config()["enable_metadata_routing"]:
            return params
        return process_routing(self, method, **params)["estimator"][method]

    def get_metadata_routing(self) -> MetadataRouter:
        """Where ``fit`` and ``score`` send their parameters: to the methods of the model."""
        mapping = MethodMapping().add(caller="fit", callee="fit").add(caller="score", callee="score")
        return MetadataRouter(owner=self).add(estimator=self.estimator, method_mapping=mapping)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        try:
            of_model = deepcopy(get_tags(self.estimator))
        except (AttributeError, TypeError):  # a native booster, frozen
            return tags
        tags.estimator_type = of_model.estimator_type
        tags.classifier_tags = of_model.classifier_tags
        tags.regressor_tags = of_model.regressor_tags
        tags.target_tags = of_model.target_tags
        tags.input_tags = of_model.input_tags
        tags.non_deterministic = of_model.non_deterministic
        if isinstance(self.estimator, FrozenEstimator):
            tags.target_tags.required = False
        if tags.classifier_tags is not None:
            tags.target_tags.multi_output = False
            tags.classifier_tags.multi_label = False
        return tags


class ShapTransformer(ExplainingTransformer):
    """Turns rows into the SHAP values that a tree model gives them.

    ``fit`` fits a clone of the model, ``transform`` gives SHAP values as columns; predictions and
    scores are the model's own. A ``FrozenEstimator`` is used as it is, see also
    :meth:`from_fitted`.

    SHAP values of training rows know y: a model trained on ``fit_transform(X, y)`` of the same
    rows sees more than it will on new rows.

    Parameters
    ----------
    estimator : estimator
        A tree model, or a ``Pipeline`` or search around one; see :class:`TreeExplainer`.
    data, feature_perturbation, data_weights
        Background rows with the columns of X, for interventional SHAP values, and their weights; as
        for :class:`TreeExplainer`.
    model_output : {"raw", "probability"}, default="raw"
        What the values are of; as for :class:`TreeExplainer`.
    algorithm, device, precision, outputs, n_jobs, memory_limit, check_additivity
        Options of :class:`TreeExplainer`.

    Attributes
    ----------
    estimator_ : estimator
        The fitted model.
    explainer_ : TreeExplainer
    base_values_ : float or ndarray of shape (n_outputs,)
        Expected margin of the model, with ``data`` its mean margin, or probability, there.
    feature_importances_ : ndarray of float64, shape (n_features,)
        Mean magnitude of the SHAP values of the rows given to ``fit``, summed over the outputs,
        for ``SelectFromModel``, ``RFE`` and the like. Of more than 10,000 rows, evenly spaced
        ones are taken. Missing after :meth:`from_fitted`, until ``fit`` is called.
    classes_ : ndarray
        Of a classifier.
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
        data: Any = None,
        feature_perturbation: str = "auto",
        data_weights: Any = None,
        model_output: str = "raw",
        algorithm: str = "auto",
        device: str | Sequence[str] = "auto",
        precision: str = "single",
        outputs: str = "auto",
        n_jobs: int | None = None,
        memory_limit: int | str | None = None,
        check_additivity: bool = True,
    ) -> None:
        super().__init__(
            estimator,
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
        self.data_weights = data_weights
        self.model_output = model_output

    def _check_options(self) -> None:
        require_perturbation(self.feature_perturbation, self.data, self.data_weights)
        require_model_output(self.model_output, self.data, self.device)
        if self.model_output == "log_loss":
            raise ValueError(
                "model_output='log_loss' needs labels, which transform does not get: use TreeExplainer"
            )

    def _explainer_options(self) -> dict[str, Any]:
        return super()._explainer_options() | {
            "data": self.data,
            "feature_perturbation": self.feature_perturbation,
            "data_weights": self.data_weights,
            "model_output": self.model_output,
        }

    def _learn(self, X: Any) -> None:
        if X is not None:
            self.feature_importances_ = self._importances(X)

    def _importances(self, X: Any) -> np.ndarray:
        X = self._as_table(X)
        n_rows = X.shape[0] if hasattr(X, "shape") else len(X)
        rows = np.arange(0, n_rows, max(1, -(-n_rows // _IMPORTANCE_ROWS)))
        total = np.zeros(())
        for start in range(0, len(rows), _IMPORTANCE_CHUNK):
            values = self.explainer_.shap_values(select(X, rows[start : start + _IMPORTANCE_CHUNK]))
            total = total + np.abs(values).reshape(*values.shape[:2], -1).sum(axis=(0, 2), dtype=np.float64)
        return total / len(rows)

    def transform(self, X: Any) -> np.ndarray:
        """SHAP values as columns.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_samples, n_features)

        Returns
        -------
        ndarray of float32 or float64, shape (n_samples, n_features * n_outputs)
            float32 for float32 X. With several outputs, those of a feature lie side by side:
            ``explain(X).values.reshape(len(X), -1)``.
        """
        X = self._checked(X)
        values = self.explainer_.shap_values(X)
        return values.reshape(len(values), int(np.prod(values.shape[1:])))

    def explain(self, X: Any) -> Explanation:
        """SHAP values with names, data, row labels and base values.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_samples, n_features)

        Returns
        -------
        Explanation
        """
        X = self._checked(X)
        return self.explainer_.explain(X)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of the columns that ``transform`` gives.

        Parameters
        ----------
        input_features : array-like of str or None, default=None
            Names of the columns of X; must match ``feature_names_in_`` where that is known.

        Returns
        -------
        ndarray of str objects
            The names of the features, with one output; else ``feature__class`` for each.
        """
        check_is_fitted(self)
        names = self._names_seen(input_features)
        return np.asarray(column_names(names, self.explainer_.output_names), dtype=object)


class ShapInteractionTransformer(ExplainingTransformer):
    """Turns rows into the interactions of features that a tree model sees in them.

    ``fit`` fits a clone of the model and settles the pairs, ``transform`` gives a column "a x b" for
    each pair, with its whole index; predictions and scores are the model's own. A
    ``FrozenEstimator`` is used as it is, see also :meth:`from_fitted`.

    Interactions of training rows know y, as SHAP values do: see :class:`ShapTransformer`.

    Parameters
    ----------
    estimator : estimator
        A tree model, or a ``Pipeline`` or search around one; see :class:`TreeExplainer`.
    pairs : {"all", "occurring"}, int or list of pairs, default="all"
        "all" and "occurring" give all pairs that occur on a path of the fitted model; others do not
        interact. A number gives so many of the strongest in the rows given to ``fit``, or all if
        there are fewer. A list gives pairs of names or positions of the columns that the model
        sees, in this order; one that never occurs has zeros.
    index : {"sii", "stii", "bii"}, default="sii"
        As for :meth:`TreeExplainer.explain_interactions`.
    data, feature_perturbation, data_weights
        Background rows with the columns of X, for interventional interactions, and their weights; as
        for :class:`TreeExplainer`.
    algorithm, device, precision, outputs, n_jobs, memory_limit, check_additivity
        Options of :class:`TreeExplainer`.

    Attributes
    ----------
    estimator_ : estimator
        The fitted model.
    explainer_ : TreeExplainer
    base_values_ : float or ndarray of shape (n_outputs,)
        Expected margin of the model, with ``data`` its mean margin there.
    pairs_ : ndarray of int32, shape (n_pairs, 2)
        Features of each pair, by position, in the order of the columns. After :meth:`from_fitted`
        with a number of pairs it is missing until ``fit`` is called.
    classes_ : ndarray
        Of a classifier.
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
    >>> pairs = ShapInteractionTransformer(model, pairs=5).set_output(transform="pandas")
    >>> pairs.fit_transform(X, y).shape
    (442, 5)
    """

    def __init__(
        self,
        estimator: Any,
        *,
        pairs: Any = "all",
        index: str = "sii",
        data: Any = None,
        feature_perturbation: str = "auto",
        data_weights: Any = None,
        algorithm: str = "auto",
        device: str | Sequence[str] = "auto",
        precision: str = "single",
        outputs: str = "auto",
        n_jobs: int | None = None,
        memory_limit: int | str | None = None,
        check_additivity: bool = True,
    ) -> None:
        super().__init__(
            estimator,
            algorithm=algorithm,
            device=device,
            precision=precision,
            outputs=outputs,
            n_jobs=n_jobs,
            memory_limit=memory_limit,
            check_additivity=check_additivity,
        )
        self.pairs = pairs
        self.index = index
        self.data = data
        self.feature_perturbation = feature_perturbation
        self.data_weights = data_weights

    def _check_options(self) -> None:
        Request.parse(self.pairs, self.index)
        require_perturbation(self.feature_perturbation, self.data, self.data_weights)

    def _explainer_options(self) -> dict[str, Any]:
        return super()._explainer_options() | {
            "data": self.data,
            "feature_perturbation": self.feature_perturbation,
            "data_weights": self.data_weights,
        }

    def _learn(self, X: Any) -> None:
        request = Request.parse(self.pairs, self.index)
        self.pairs_: Any
        if request.form == "listed":
            self.pairs_ = request.positions(self._names_seen())
        elif request.form != "strongest":
            self.pairs_ = self.explainer_.occurring_pairs()
        elif X is not None:
            explanation = self.explainer_.explain_interactions(
                self._as_table(X), pairs=self.pairs, index=self.index
            )
            self.pairs_ = explanation.pairs

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "pairs_")

    def transform(self, X: Any) -> np.ndarray:
        """Interactions as columns.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_samples, n_features)

        Returns
        -------
        ndarray of float32 or float64, shape (n_samples, n_pairs * n_outputs)
            float32 for float32 X. With several outputs, those of a pair lie side by side:
            ``explain(X).values.reshape(len(X), -1)``.
        """
        values = self.explain(X).values
        return values.reshape(len(values), int(np.prod(values.shape[1:])))

    def explain(self, X: Any) -> InteractionExplanation:
        """Interactions with names, data, row labels and base values.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_samples, n_features)

        Returns
        -------
        InteractionExplanation
            Of the pairs in ``pairs_``.
        """
        X = self._checked(X)
        pairs = "occurring" if isinstance(self.pairs, str) else self.pairs_
        return self.explainer_.explain_interactions(X, pairs=pairs, index=self.index)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of the columns that ``transform`` gives.

        Parameters
        ----------
        input_features : array-like of str or None, default=None
            Names of the columns of X; must match ``feature_names_in_`` where that is known.

        Returns
        -------
        ndarray of str objects
            "a x b" for each pair, with one output; else "a x b__class" for each.
        """
        check_is_fitted(self)
        names = set_names(self._names_seen(input_features), self.pairs_)
        return np.asarray(column_names(names, self.explainer_.output_names), dtype=object)
