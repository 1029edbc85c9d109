"""Base class of the transformers: they wrap a model, to be fitted or frozen, and its explainer."""

from __future__ import annotations

import warnings
from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Collection, Sequence
from copy import deepcopy
from inspect import signature
from typing import Any, Self

import numpy as np
from sklearn import get_config
from sklearn.base import BaseEstimator, MetaEstimatorMixin, OneToOneFeatureMixin, TransformerMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils import Tags, _safe_indexing, get_tags
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _num_samples,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from .._common.algorithms import is_deterministic
from .._common.distinct import distinct_numbers
from .._common.types import OPTION_LINES, AlgorithmName, CrossValidation, Table, Values, Vector
from .._engine.options import Options
from .._rows.gpu_arrays import on_gpu
from .._rows.origins import names_are_known
from .._rows.tables import collected, n_rows_of, select, table
from .._versions import __version__
from ..adapters.copies import copying
from ..adapters.wrappers import nest
from ..explainer import TreeExplainer, is_explainer
from .callbacks import CallbackSupportMixin, Tasks, with_callbacks
from .cross_fit import Fold, folds_of, params_of_rows, positions_of_columns
from .doc_links import DocLinkMixin


def _estimator_has(method: str) -> Callable[[Any], bool]:
    def check(self: ExplainingTransformer) -> bool:
        getattr(getattr(self, "estimator_", self.estimator), method)
        return True

    return check


def fit_model(model: Any, X: Any, y: Any, params: dict[str, Any]) -> None:
    """Fit a model, unless it is frozen.

    scikit-learn refuses to fit a ``FrozenEstimator`` of what is no estimator: of a file, or of an explainer.
    """
    if not isinstance(model, FrozenEstimator):
        model.fit(X, y, **params)


def _copy_of(model: Any) -> Any:
    """Return a copy of a fitted model, so that a transformer predicts with the trees that it explains.

    Explainers keep their own copy of the trees. If the user trained the model further, its predictions would
    come from other trees. Libraries change models in many ways: they add trees, replace leaf values in place,
    or read another file. To notice every change in each call would be slow, so the transformer has a copy.
    Raise ``UnsupportedModelError`` if the model cannot be copied.
    """
    layers = list(nest(model))
    # A model without predict is used by the explainer only. Models of Spark do not change.
    if not hasattr(layers[-1], "predict") or type(layers[-1]).__module__.startswith("pyspark."):
        return model
    copies: dict[int, Any] = {}
    with copying(
        f"cannot copy this {type(layers[-1]).__name__}; the transformer needs a copy because the model may "
        "be trained further",
        "Use TreeExplainer(model) instead",
    ):
        for layer in reversed(layers):
            if isinstance(layer, FrozenEstimator):  # its __deepcopy__ would be the inner model's
                copies[id(layer)] = FrozenEstimator(deepcopy(layer.estimator, copies))
            elif any(base.__module__ == "lightgbm.basic" for base in type(layer).__mro__):
                # A Booster's own __deepcopy__ forgets the best iteration, but keeps the rounds after it.
                copies[id(layer)] = type(layer)(model_str=layer.model_to_string())
        return deepcopy(model, copies)


class ExplainingTransformer(
    DocLinkMixin, CallbackSupportMixin, MetaEstimatorMixin, TransformerMixin, BaseEstimator, metaclass=ABCMeta
):
    """Base class of transformers that turn rows into explanations of a tree model's predictions.

    Subclasses define the result of :meth:`transform`. This class fits or freezes the model and acts for it in
    predictions, scores, parameters of ``fit`` and tags.
    """

    # Subclasses have these parameters, and options of an explainer.
    estimator: Any
    cv: CrossValidation
    algorithm: AlgorithmName

    @classmethod
    def _from_fitted(cls, model: Any, **options: Any) -> Self:
        """Return a fitted transformer around a frozen copy of a model, as the public methods document."""
        frozen = model if isinstance(model, FrozenEstimator) else FrozenEstimator(model)
        self = cls(frozen, **options)
        self._check_options()
        self.estimator_ = _copy_of(frozen)
        self._compile(options)
        # The names come from the first step of a pipeline, or, without leading steps, from the adapter.
        explainer = self.explainer_
        steps = explainer._reader.steps
        fitted = steps[0] if steps and isinstance(model, TreeExplainer) else model
        names = getattr(fitted, "feature_names_in_", None) if steps else explainer.feature_names
        if not steps or hasattr(fitted, "n_features_in_"):
            self.n_features_in_ = fitted.n_features_in_ if steps else explainer.n_features
        if names is not None:
            self.feature_names_in_ = np.asarray(names, dtype=object)
        self._learn(None)
        return self

    def fit(self, X: Table, y: Vector | None = None, **params: Any) -> Self:
        """Fit the model and compile it.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_samples, n_features)
            Training rows.
        y : array-like, default=None
            Target of each row, in a form that the model's ``fit`` accepts.
        **params
            Parameters of the model's ``fit``: routed if metadata routing is enabled, otherwise passed on.

        Returns
        -------
        transformer
            The transformer itself.
        """
        self._check_options()
        X = collected(X)
        y = self._check_training(X, y)
        self._fit(X, y, self._routed("fit", params))
        return self

    def fit_transform(self, X: Table, y: Vector | None = None, **params: Any) -> Values:
        """Fit and transform the same rows; with ``cv``, by models that were not fitted on them.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_samples, n_features)
            Training rows.
        y : array-like, default=None
            Target of each row, in a form that the model's ``fit`` accepts.
        **params
            See :meth:`fit`; with ``cv`` also ``groups`` for its ``split``. If metadata routing is enabled,
            the splitter must request ``groups``. In each fold, the model's ``fit`` gets parameters that have
            an entry for each row with the entries of the training rows.

        Returns
        -------
        array, or data frame after ``set_output``
            See :meth:`transform`; with ``cv``, the values differ from those of ``transform``.
        """
        X = collected(X)
        if self.cv is None:
            return super().fit_transform(X, y, **params)
        self._check_options()
        if isinstance(self.estimator, FrozenEstimator):
            raise ValueError("cv= refits the model in each fold, but the model is frozen: use cv=None")
        if on_gpu(X):
            raise TypeError("X is on a GPU, where cv= cannot split it: copy it to the host")
        y, n_rows = self._check_training(X, y), _num_samples(X)
        if get_config()["enable_metadata_routing"]:
            routed = process_routing(self, "fit_transform", **params)
            params, split_params = routed["estimator"]["fit"], routed["splitter"]["split"]
        else:
            split_params = {"groups": params.pop("groups", None)}
        folds = folds_of(
            self.cv,
            X,
            n_rows,
            y,
            classifier=get_tags(self).estimator_type == "classifier",
            split_params=split_params,
        )
        return self._fit(X, y, params, folds)

    @with_callbacks
    def _fit(self, X: Any, y: Any, params: dict[str, Any], folds: Sequence[Fold] = ()) -> Any:
        """Fit the model and learn from X; with folds, return the out-of-fold values."""
        tasks = Tasks(self, X, y, 2 + len(folds))
        if not hasattr(self.estimator, "fit"):
            kind = type(self).__name__
            raise TypeError(
                f"{kind} fits its model, but {self.estimator!r:.200} has no fit: use {kind}.from_fitted"
            )
        self.estimator_ = clone(self.estimator)
        with tasks.task("fit-model", self.estimator_):
            fit_model(self.estimator_, X, y, params)
        parts = (self.estimator_, *self.estimator_.get_params().values())
        if any(isinstance(part, FrozenEstimator) for part in parts):  # ``clone`` does not copy frozen models
            self.estimator_ = _copy_of(self.estimator_)
        with tasks.task("explain"):
            self._compile()
            self._learn(X)
        result = self._cross_fitted(self._as_table(X), y, params, folds, tasks) if folds else None
        tasks.end()
        return result

    def _cross_fitted(
        self, X: Any, y: Any, params: dict[str, Any], folds: Sequence[Fold], tasks: Tasks
    ) -> np.ndarray:
        """Return the result of ``transform``, but explain each row by the model of the fold that tests it."""
        columns, n_rows, result = self._input_names(), n_rows_of(X), np.empty(())
        names = self.explainer_._reader.names_seen(columns)
        for number, (train, test) in enumerate(folds):
            model = clone(self.estimator)
            target = None if y is None else _safe_indexing(y, train)
            with tasks.task(f"fold-{number}", model):
                fit_model(model, select(X, train), target, params_of_rows(params, train, n_rows))
                explainer = TreeExplainer(model, **self._explainer_options())
                if explainer.output_names != self.explainer_.output_names:
                    raise ValueError(
                        f"the model of fold {number} has other outputs than the model of all rows"
                    )
                fold_names = explainer._reader.names_seen(columns)
                has_names = names_are_known(explainer._reader.steps, fold_names)
                positions = positions_of_columns(names, fold_names, number, has_names)
                values = self._transformed_by(explainer, select(X, test), positions)
            if not result.ndim:
                result = np.empty((n_rows, *values.shape[1:]), values.dtype)
            result[test] = values
        return result

    def _positions_of_features(self, explainer: TreeExplainer, positions: np.ndarray | None) -> np.ndarray:
        """Return the position of each feature of a fold's explainer in ``explainer_``; -1: it is not there.

        ``positions`` has the position of each column of the fold's model in the model of all rows; None: the
        columns are the same. Raise ``ValueError`` if groups have other columns.
        """
        feature_in_all = self.explainer_._features.feature_of_column(self.explainer_.n_features)
        feature_in_all = feature_in_all if positions is None else feature_in_all[positions]
        feature_in_fold = explainer._features.feature_of_column(explainer.n_features)
        in_fold = feature_in_fold >= 0
        result = np.full(explainer._compiled.n_features, -1)
        result[feature_in_fold[in_fold]] = feature_in_all[in_fold]
        shared = result[result >= 0]
        differs = (result[feature_in_fold] != feature_in_all)[in_fold]
        if differs.any() or len(distinct_numbers(shared)) < len(shared):
            raise ValueError(
                "the groups of a fold's model have other columns than the groups of the model of all rows: "
                "give feature_groups as names of columns instead of positions, or feature_groups='input'"
            )
        return result

    @abstractmethod
    def _transformed_by(self, explainer: TreeExplainer, X: Any, positions: np.ndarray | None) -> np.ndarray:
        """Return the columns of ``transform``, computed by the explainer of a fold.

        For ``positions``, see :meth:`_positions_of_features`.
        """

    def _check_training(self, X: Any, y: Any) -> Any:
        """Learn the names of the columns, and return y after checks that some libraries do not make."""
        validate_data(self, X, y, skip_check_array=True)
        if isinstance(X, np.ndarray) and X.dtype.kind in "fiub":  # others may have strings for a pipeline
            table(X)
        for size, noun in zip(getattr(X, "shape", ()), ("sample", "feature")):
            if not size:
                raise ValueError(
                    f"Found array with 0 {noun}(s) (shape={X.shape}) while a minimum of 1 is required."
                )
        if getattr(getattr(X, "dtype", None), "kind", "") == "c":
            raise ValueError("Complex data not supported: X")
        if y is None or on_gpu(y):
            return y
        tags = get_tags(self)
        if tags.estimator_type == "classifier":
            if not tags.target_tags.multi_output:
                y = column_or_1d(y, warn=True)  # a library might reject y only after training
            check_classification_targets(y)
        check_consistent_length(X, y)
        return y

    def __getstate__(self) -> dict[str, Any]:
        return dict(super().__getstate__(), _skshapgpu_version=__version__)

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        version = state.pop("_skshapgpu_version", None)
        if version != __version__:
            warnings.warn(
                f"this {type(self).__name__} was stored by version {version} of skshapgpu and is loaded by "
                f"{__version__}: it may be broken or give other values. Refit it",
                UserWarning,
                stacklevel=2,
            )
        super().__setstate__(state)

    def _check_options(self) -> None:
        """Reject arguments with invalid values before any work starts."""
        Options.parse(**self._explainer_options())

    @abstractmethod
    def _learn(self, X: Any) -> None:
        """Set the attributes that ``fit`` learns from the rows X; None: there are no rows."""

    def _compile(self, passed: Collection[str] | None = None) -> None:
        """Set the explainer, and its base values.

        An explainer, or its file, has its own options. It refuses those that were ``passed``; None: those
        that do not have their defaults.
        """
        options = self._explainer_options()
        if is_explainer(self.estimator_):
            defaults = {name: p.default for name, p in signature(type(self)).parameters.items()}
            if passed is None:
                passed = [
                    name
                    for name, value in options.items()
                    if not (value is defaults[name] or (isinstance(value, str) and value == defaults[name]))
                ]
            options = {name: options[name] for name in passed if name in options}
        self.explainer_ = TreeExplainer(self.estimator_, **options)
        self.base_values_: float | Values = self.explainer_.expected_value

    def _explainer_options(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self._get_param_names() if name in OPTION_LINES}

    def _checked(self, X: Any) -> Any:
        check_is_fitted(self)
        X = self._as_table(X)
        validate_data(self, X, reset=False, skip_check_array=True)
        return X

    @property
    def _explainer_for_checked(self) -> TreeExplainer:
        """The explainer for rows that :meth:`_checked` has accepted, with a warning if they have other names.

        The explainer repeats that warning only if the model was fitted with names and the transformer
        without, or the reverse.
        """
        explainer = self.explainer_
        alike = hasattr(self, "feature_names_in_") == (explainer._reader.schema.feature_names is not None)
        return explainer._without_warnings if alike and not explainer._reader.steps else explainer

    def _for_model(self, X: Any) -> Any:
        """Return X for a method of the model, after checks that some libraries do not make."""
        check_is_fitted(self)
        X = collected(X)
        if not self.explainer_._reader.steps:
            if isinstance(X, np.ndarray):
                table(X)  # rejects a single row without its second axis
            validate_data(self, X, reset=False, skip_check_array=True)
        return X

    def _as_table(self, X: Any) -> Any:
        """Return X as an array or data frame, unless it is on a GPU or the steps of a pipeline read it."""
        return collected(X) if self.explainer_._reader.steps or on_gpu(X) else table(X)

    def _input_names(self, input_features: Any = None) -> Any:
        """Return the checked names of the columns of X; None if X is a list of strings, without columns."""
        if not hasattr(self, "n_features_in_"):
            return input_features
        return OneToOneFeatureMixin.get_feature_names_out(self, input_features)

    @property
    def classes_(self) -> np.ndarray:
        """Class labels of a classifier."""
        return self.estimator_.classes_

    @property
    def offset_(self) -> float:
        """Threshold of an outlier detector: ``score_samples`` minus ``decision_function``."""
        return self.estimator_.offset_

    @available_if(_estimator_has("predict"))
    def predict(self, X: Table) -> np.ndarray:
        """Predict with the model.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_samples, n_features)
            Rows, with the columns that ``fit`` was given.

        Returns
        -------
        ndarray
            Predictions of the model.
        """
        X = self._for_model(X)
        return self.estimator_.predict(X)

    @available_if(_estimator_has("predict_proba"))
    def predict_proba(self, X: Table) -> np.ndarray:
        """Predict class probabilities with the model.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_samples, n_features)
            Rows, with the columns that ``fit`` was given.

        Returns
        -------
        ndarray
            Class probabilities of the model.
        """
        X = self._for_model(X)
        return self.estimator_.predict_proba(X)

    @available_if(_estimator_has("predict_log_proba"))
    def predict_log_proba(self, X: Table) -> np.ndarray:
        """Predict logarithms of class probabilities with the model.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_samples, n_features)
            Rows, with the columns that ``fit`` was given.

        Returns
        -------
        ndarray
            Logarithms of the class probabilities of the model.
        """
        X = self._for_model(X)
        return self.estimator_.predict_log_proba(X)

    @available_if(_estimator_has("decision_function"))
    def decision_function(self, X: Table) -> np.ndarray:
        """Evaluate the decision function of the model.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_samples, n_features)
            Rows, with the columns that ``fit`` was given.

        Returns
        -------
        ndarray
            Decision function of the model.
        """
        X = self._for_model(X)
        return self.estimator_.decision_function(X)

    @available_if(_estimator_has("score_samples"))
    def score_samples(self, X: Table) -> np.ndarray:
        """Score rows with the model, an outlier detector.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_samples, n_features)
            Rows, with the columns that ``fit`` was given.

        Returns
        -------
        ndarray
            Scores of the model: the lower, the more abnormal a row.
        """
        X = self._for_model(X)
        return self.estimator_.score_samples(X)

    @available_if(_estimator_has("score"))
    def score(self, X: Table, y: Vector | None = None, **params: Any) -> float:
        """Score the model.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_samples, n_features)
            Rows, with the columns that ``fit`` was given.
        y : array-like, default=None
            Target of each row, in a form that the model's ``score`` accepts.
        **params
            Parameters of the model's ``score``: routed if metadata routing is enabled, otherwise passed on.

        Returns
        -------
        float
            Score of the model.
        """
        X = self._for_model(X)
        return self.estimator_.score(X, y, **self._routed("score", params))

    def _routed(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        if not get_config()["enable_metadata_routing"]:
            return params
        return process_routing(self, method, **params)["estimator"][method]

    def get_metadata_routing(self) -> MetadataRouter:
        """Return where ``fit`` and ``score`` send their parameters.

        Returns
        -------
        MetadataRouter
            Routes to the methods of the model, and of ``cv``.
        """
        mapping = MethodMapping().add(caller="fit", callee="fit").add(caller="score", callee="score")
        mapping.add(caller="fit_transform", callee="fit")
        router = MetadataRouter(owner=self).add(estimator=self.estimator, method_mapping=mapping)
        if self.cv is None:
            return router
        split = MethodMapping().add(caller="fit_transform", callee="split")
        return router.add(splitter=self.cv, method_mapping=split)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        tags.non_deterministic = not is_deterministic(self.algorithm)
        try:
            model_tags = deepcopy(get_tags(self.estimator))
        except (AttributeError, TypeError):  # a native booster, frozen
            return tags
        tags.estimator_type = model_tags.estimator_type
        tags.classifier_tags = model_tags.classifier_tags
        tags.regressor_tags = model_tags.regressor_tags
        tags.target_tags = model_tags.target_tags
        tags.input_tags = model_tags.input_tags
        tags.non_deterministic |= model_tags.non_deterministic
        if isinstance(self.estimator, FrozenEstimator):
            tags.target_tags.required = False
        if tags.classifier_tags is not None:
            tags.classifier_tags.multi_label &= tags.target_tags.multi_output  # as fit checks y
        return tags
