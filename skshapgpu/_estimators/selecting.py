"""Base classes of the selectors: routing and tags, and the fits of selectors that use unseen rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn import get_config
from sklearn.base import BaseEstimator, MetaEstimatorMixin, is_classifier
from sklearn.feature_selection import SelectorMixin
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import check_cv
from sklearn.utils import Tags, get_tags, indexable
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.validation import check_is_fitted, validate_data

from .._common.checks import require_explain_params, require_n_jobs
from .._rows.background import read_weights
from .._rows.gpu_arrays import on_gpu
from .._rows.tables import n_rows_of, table
from .changed_columns import changed_model, changed_params
from .cross_validation import require_explainable
from .doc_links import DocLinkMixin
from .importance import Importances, find_importances
from .splits import checked_splits


class BaseShapSelector(DocLinkMixin, MetaEstimatorMixin, SelectorMixin, BaseEstimator):
    """Base class of selectors around a model, with the parameters ``estimator`` and ``cv``."""

    estimator: Any
    cv: Any

    def get_metadata_routing(self) -> MetadataRouter:
        """Return where ``fit`` sends its parameters.

        Returns
        -------
        MetadataRouter
            Routes to the model's ``fit``, and to the splitter if ``cv`` is one.
        """
        router = MetadataRouter(owner=self).add(estimator=self.estimator, method_mapping=mapping_to("fit"))
        if hasattr(self.cv, "split"):  # numbers and lists of splits take no parameters
            router.add(splitter=self.cv, method_mapping=mapping_to("split"))
        return router

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        assert tags.transformer_tags is not None
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        try:
            model_tags = deepcopy(get_tags(self.estimator))
        except (AttributeError, TypeError):  # a native booster, frozen
            return tags
        tags.input_tags = model_tags.input_tags
        tags.target_tags = model_tags.target_tags
        tags.target_tags.multi_output = False
        tags.non_deterministic = model_tags.non_deterministic
        if isinstance(self.estimator, FrozenEstimator):
            tags.target_tags.required = False
        return tags


def mapping_to(callee: str) -> MethodMapping:
    """Return the mapping of ``fit`` to a method."""
    # A Pipeline of scikit-learn 1.6 looks up the routing of fit_transform, which calls fit.
    return MethodMapping().add(caller="fit", callee=callee).add(caller="fit_transform", callee=callee)


@dataclass(frozen=True, eq=False)
class TrainingRows:
    """Training rows of a selection, and how models are fitted and tested on them."""

    X: Any
    y: Any
    #: Positions of the training rows and the test rows of each split.
    splits: Sequence[tuple[np.ndarray, np.ndarray]]
    params: dict[str, Any]  # parameters for ``cross_validate``
    weights: np.ndarray | None  # float64, (n_rows,): weights of the rows in importances


class OutOfFoldSelector(BaseShapSelector):
    """Base class of selectors by SHAP values of rows that the models were not trained on."""

    n_jobs: int | None
    explain_params: Mapping[str, Any] | None

    def _rows(self, X: Any, y: Any, params: dict[str, Any], *, reset: bool = True) -> TrainingRows:
        """Return the training rows after all checks that need no fit."""
        require_n_jobs(self.n_jobs)
        require_explain_params(self.explain_params)
        if on_gpu(X):
            raise TypeError("X is on a GPU, where cv= cannot split it: copy it to the host")
        if isinstance(self.estimator, FrozenEstimator):
            raise ValueError("the model is refitted to other columns, but it is frozen: pass it unfrozen")
        if (self.explain_params or {}).get("feature_groups") not in (None, "input"):
            raise ValueError(
                "explain_params: feature_groups would group columns, which change in a selection: leave the "
                "option out"
            )
        X, y = indexable(X, y)
        X = table(X)
        validate_data(self, X, y, reset=reset, skip_check_array=True)
        n_rows, n_columns = n_rows_of(X), X.shape[1]
        for size, noun in ((n_rows, "sample"), (n_columns, "feature")):
            if not size:
                raise ValueError(
                    f"Found array with 0 {noun}(s) (shape={X.shape}) while a minimum of 1 is required."
                )
        require_explainable(self.estimator, {"n_jobs": self.n_jobs, **(self.explain_params or {})})
        changed_model(self.estimator, X, np.arange(n_columns))
        changed_params(params, X, np.arange(n_columns))
        params, fit_params, split_params = self._routed(params)
        splitter = check_cv(self.cv, y, classifier=is_classifier(self.estimator))
        splits = checked_splits(splitter.split(X, y, **split_params), n_rows)
        return TrainingRows(X, y, splits, params, _row_weights(fit_params, self.estimator, n_rows))

    def _routed(self, params: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        """Return the parameters for ``cross_validate``, the model's ``fit`` and the splitter."""
        if not get_config()["enable_metadata_routing"]:
            split_params = {"groups": params["groups"]} if "groups" in params else {}
            fit_params = {name: value for name, value in params.items() if name != "groups"}
            return fit_params, fit_params, split_params
        routed = process_routing(self, "fit", **params)
        fit_params = routed["estimator"]["fit"]
        split_params = routed["splitter"]["split"] if "splitter" in routed else {}
        score_params = routed["scorer"]["score"] if "scorer" in routed else {}
        validation_params = {
            name: value for name, value in params.items() if name in fit_params or name in score_params
        }
        return validation_params, fit_params, split_params

    def _importances(
        self, model: Any, X: Any, sources: np.ndarray, rows: TrainingRows, **options: Any
    ) -> Importances:
        """Return importances of the columns of X, which come from the columns ``sources`` of ``rows.X``."""
        return find_importances(
            changed_model(model, rows.X, sources),
            X,
            rows.y,
            cv=rows.splits,
            params=changed_params(rows.params, rows.X, sources) or None,
            weights=rows.weights,
            n_jobs=self.n_jobs,
            by_input=True,
            **options,
        ).summed()

    def _get_support_mask(self) -> np.ndarray:
        check_is_fitted(self, "support_")
        return self.support_


def _row_weights(fit_params: dict[str, Any], estimator: Any, n_rows: int) -> np.ndarray | None:
    """Return the sample weights with which the model, or the last step of a pipeline, is fitted."""
    last_step_name = f"{estimator.steps[-1][0]}__sample_weight" if hasattr(estimator, "steps") else ""
    sample_weight = fit_params.get("sample_weight")
    sample_weight = fit_params.get(last_step_name) if sample_weight is None else sample_weight
    if sample_weight is None:
        return None
    return read_weights("sample_weight", sample_weight, n_rows, "X")
