"""Values of a ``shap.TreeExplainer``, in its shapes, computed by :class:`skshapgpu.TreeExplainer`.

This module reads the attributes of an explainer of shap, and does not import shap.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np

from ..adapters import AdaptedModel, adapt
from ..explainer import TreeExplainer

#: Libraries that compute SHAP values themselves. shap returns their values if they are path-dependent.
_WITH_OWN_VALUES = ("xgboost", "lightgbm", "catboost")

#: Errors of this package for models, options and data that it does not explain.
REFUSALS = (NotImplementedError, ValueError, TypeError)


class HasStandIn:
    """Marker of classes of explainers that make their stand-in themselves."""


class StandIn:
    """Replacement of the computations of one ``shap.TreeExplainer``, whose options and model it copies.

    It keeps no reference to the explainer, which was constructed with ``model``. ``NotImplementedError``,
    ``ValueError`` or ``TypeError`` is raised if this package does not explain the model, or not with the
    options of the explainer.
    """

    def __init__(self, explainer: Any, model: Any) -> None:
        trees, kind = explainer.model, explainer.model.model_output
        self._trees, self._data, self._perturbation = trees, explainer.data, explainer.feature_perturbation
        self._kind, self._n_trees, self._limit = kind, _n_trees(trees), trees.tree_limit
        self._path_dependent = explainer.feature_perturbation == "tree_path_dependent"
        self._by_library = calls_library(explainer)
        self._type = trees.model_type
        model = _explained_part(model, trees)
        if self._by_library:
            _require_explained_rounds(trees)
            self._library_state = _state_of_library(trees, self._limit)
        if self._path_dependent and explainer.data is not None:
            _require_rows_everywhere(trees)
        doubled = kind == "probability_doubled"
        n_outputs = None if self._by_library else int(trees.num_outputs)
        adapted = adapt(model)
        adapted = replace(adapted, schema=replace(adapted.schema, warns_as=None))  # shap keeps no names
        # The masker keeps only the values of a data frame.
        if explainer.data is not None and getattr(explainer.masker, "feature_names", None) is not None:
            _require_numbers(adapted)
        self._explainers: dict[bool, TreeExplainer] = {}
        self._options = {
            "model": adapted,  # a copy of the model, as an explainer may be compiled much later
            "data": deepcopy(explainer.data),
            "feature_perturbation": explainer.feature_perturbation,
            "model_output": "probability" if doubled else kind,
            "outputs": "all" if doubled or (n_outputs == 2 and kind != "log_loss") else "auto",
            "precision": "double",
            "n_jobs": -1,
        }
        self.base_value, self._model_name = self._explainer(True).expected_value, type(model).__name__
        if n_outputs is not None and not doubled:
            self._require_outputs(n_outputs)
        if self._path_dependent and not self._by_library:
            self._require_base_value(explainer.expected_value)

    def difference(self, explainer: Any) -> str | None:
        """Return how the explainer has changed since its construction, or None if it has not."""
        if not (
            explainer.model is self._trees
            and explainer.data is self._data
            and explainer.feature_perturbation == self._perturbation
        ):
            return "attributes of the explainer have been replaced"
        if self._by_library and _state_of_library(self._trees, self._limit) != self._library_state:
            return "the model has changed since the explainer was made"
        return None

    def values(
        self,
        X: Any,
        y: Any = None,
        tree_limit: int | None = None,
        approximate: bool = False,
        check_additivity: bool = True,
        from_call: bool = False,
    ) -> np.ndarray:
        """Return SHAP values of shape ([n_rows,] n_features[, n_outputs]), in float64.

        The arguments are the arguments of shap. ``from_call`` has no effect.
        """
        if approximate:
            raise NotImplementedError("skshapgpu is exact: approximate=True is for shap.TreeExplainer")
        self._require_limit(tree_limit)
        rows, single = _as_rows(X)
        labels = y if self._kind == "log_loss" else None
        values = self._explainer(check_additivity).shap_values(rows, labels)
        return values[0] if single else values

    def interaction_values(self, X: Any, y: Any = None, tree_limit: int | None = None) -> Any:
        """Return SHAP interaction values of shape ([n_rows,] n_features, n_features[, n_outputs]).

        For several outputs of CatBoost, return a list of arrays, as shap does. Like shap, ignore ``y``.
        """
        self._require_limit(tree_limit)
        if self._type == "lightgbm" and self._trees.trees:  # shap computes interactions from its own trees
            self._require_outputs(int(self._trees.num_outputs))
        rows, single = _as_rows(X)
        values = self._explainer(True).shap_interaction_values(rows)
        if values.ndim == 4 and self._type == "catboost" and self._path_dependent:
            return list(np.moveaxis(values, -1, 0))
        return values[0] if single else values

    def base_value_like(self, original: Any) -> Any:
        """Return the base value in the form of ``original``, an ``expected_value`` of shap or None."""
        if self._kind == "log_loss":
            return original  # a function of the label
        if np.ndim(self.base_value) == 0:
            value = np.float64(self.base_value)
            return np.full(original.shape, value) if np.ndim(original) else value
        return self.base_value.copy() if isinstance(original, np.ndarray) else list(self.base_value)

    def base_value_after(self, original: Any, interactions: bool) -> Any:
        """Return shap's ``expected_value`` after a call; ``original`` is its value before the call."""
        renewed = self._by_library
        if interactions:
            several = np.ndim(self.base_value) > 0 and self._type != "catboost"
            renewed = several or (self._type == "xgboost" and self._path_dependent)
        return self.base_value_like(None if renewed else original)

    def _require_outputs(self, n_outputs: int) -> None:
        """Raise ``NotImplementedError`` unless shap explains as many outputs of the model."""
        n_ours = 1 if self._kind == "log_loss" else np.size(self.base_value)
        if n_ours != n_outputs:
            raise NotImplementedError(
                f"skshapgpu explains {n_ours} outputs of {self._model_name}, and shap {n_outputs}"
            )

    def _require_base_value(self, original: Any) -> None:
        """Raise ``NotImplementedError`` unless both packages explain the same function of the model."""
        if original is not None and not np.allclose(self.base_value, original, rtol=1e-3, atol=1e-6):
            raise NotImplementedError(
                f"the base value of skshapgpu is {self.base_value}, and shap's is {original}: they explain "
                "different outputs of the model"
            )

    def _explainer(self, check_additivity: bool) -> TreeExplainer:
        """Return the explainer with or without the check, compiled when it is first used."""
        if check_additivity not in self._explainers:
            explainer = TreeExplainer(**self._options, check_additivity=check_additivity)
            self._explainers[check_additivity] = explainer
        return self._explainers[check_additivity]

    def _require_limit(self, tree_limit: int | None) -> None:
        def trees(limit: int | None) -> int | None:
            if limit is None or limit < 0:
                return self._n_trees
            return limit if self._n_trees is None else min(limit, self._n_trees)

        limit = self._trees.tree_limit if tree_limit is None else tree_limit
        if trees(limit) == trees(self._limit):
            return
        raise NotImplementedError(
            f"skshapgpu explains the trees that shap explains without a limit, not tree_limit={limit}: "
            "cut the model, or use shap.TreeExplainer"
        )


def calls_library(explainer: Any) -> bool:
    """Return whether shap leaves SHAP values of this explainer to the library of its model."""
    return (
        explainer.feature_perturbation == "tree_path_dependent"
        and explainer.data is None
        and explainer.model.model_type in _WITH_OWN_VALUES
    )


def is_numeric(data: Any) -> bool:
    """Return False for a data frame of which shap makes an array of objects, such as one with strings."""
    return not hasattr(data, "iloc") or np.asarray(data.iloc[:1]).dtype.kind in "biuf"


def require_loadable(model: Any, data: Any) -> None:
    """Raise ``NotImplementedError`` if shap would end the process when it loads the model with data.

    From a CatBoost model with several outputs, shap reads the value of each output as the value of a further
    leaf, and then writes beyond the end of an array.
    """
    if data is None or not any(base.__module__.startswith("catboost") for base in type(model).__mro__):
        return
    if model.is_fitted() and len(model.get_leaf_values()) != model.get_tree_leaf_counts().sum():
        raise NotImplementedError(
            f"shap cannot load a {type(model).__name__} with several outputs together with background data: "
            "leave data out, or use skshapgpu.TreeExplainer(model, data)"
        )


def _explained_part(model: Any, trees: Any) -> Any:
    """Return the model, or the boosting rounds of a ``Booster`` of XGBoost that shap explains.

    A ``Booster`` predicts with all of its rounds, but shap explains only the rounds up to its best iteration.
    So it does for the wrappers of XGBoost, which predict with these rounds. ``tree_limit`` counts the trees
    of all outputs.
    """
    if isinstance(model, dict):
        raise NotImplementedError("a dictionary of trees does not say how many columns X has")
    if trees.model_type != "xgboost" or model is not trees.original_model or trees.tree_limit is None:
        return model
    missing = getattr(trees, "_xgb_dmatrix_props", {}).get("missing", np.nan)
    if missing is not None and not np.isnan(missing):  # only the wrapper knows it, which is missing here
        raise NotImplementedError("the explainer was made without patch_shap(): make it again")
    n_rounds = trees.tree_limit // trees.num_stacked_models
    return model[:n_rounds] if n_rounds < model.num_boosted_rounds() else model


def _require_explained_rounds(trees: Any) -> None:
    """Raise ``NotImplementedError`` if shap explains rounds of LightGBM after the best iteration.

    A ``Booster`` keeps these rounds if it was trained with ``keep_training_booster=True``. They are part
    neither of its predictions nor of shap's interactions.
    """
    if trees.model_type != "lightgbm":
        return
    n_best, n_rounds = trees.original_model.best_iteration, trees.original_model.current_iteration()
    if 0 < n_best < n_rounds:
        raise NotImplementedError(
            f"skshapgpu explains the {n_best} rounds up to the best iteration, with which the model "
            f"predicts, and shap all {n_rounds}"
        )


def _state_of_library(trees: Any, limit: int | None) -> Any:
    """Return numbers that differ after a change of the library's model, which shap calls.

    They are compared in every call, which takes less than 1 ms. To compare serialized models instead would
    take 25 ms (XGBoost) to 600 ms (LightGBM) for a thousand trees.
    """
    model = trees.original_model
    if trees.model_type == "lightgbm":
        return model.current_iteration(), model.lower_bound(), model.upper_bound()
    if trees.model_type == "catboost":
        return model.tree_count_, model.get_scale_and_bias(), model.get_leaf_values().tobytes()
    import xgboost

    # shap explains as many rounds as there were, so further rounds change nothing.
    n_rounds = model.num_boosted_rounds()
    if limit is not None:
        n_rounds = min(n_rounds, limit // trees.num_stacked_models)
    rows = np.array([[0.0], [np.nan]]).repeat(model.num_features(), axis=1)
    margins = model.predict(
        xgboost.DMatrix(rows), output_margin=True, iteration_range=(0, n_rounds), validate_features=False
    )
    return n_rounds, margins.tobytes()


def _n_trees(trees: Any) -> int | None:
    """Return the number of trees that shap has read, or None if it has read none."""
    return len(trees.values) if hasattr(trees, "values") else None


def _require_rows_everywhere(trees: Any) -> None:
    """Raise ``NotImplementedError`` if the cover of a node, its number of rows of data, is 0."""
    for tree in trees.trees or ():
        if np.min(tree.node_sample_weight) < 0.5:  # shap may add 1e-6 to numbers of rows
            raise NotImplementedError(
                "no row of data reaches some node, for which shap and skshapgpu use different covers"
            )


def _require_numbers(model: AdaptedModel) -> None:
    """Raise ``NotImplementedError`` if the model would read the categories of an array as codes."""
    schema = model.schema
    # LightGBM counts the categorical columns of its training frame, which may have had none.
    has_categories = schema.has_encoders and (bool(schema.encoders) or schema.n_categorical != 0)
    if has_categories and model.family != "sklearn":
        raise NotImplementedError(
            "the model has categorical columns, and shap keeps only the plain values of a data frame: leave "
            "data out, or use skshapgpu.TreeExplainer"
        )


def _as_rows(X: Any) -> tuple[Any, bool]:
    """Return X as rows for which values are float64, and whether X was a single row."""
    if type(X).__name__ in ("DMatrix", "Pool"):
        raise TypeError(f"X is a {type(X).__name__}: skshapgpu takes the rows as an array or a data frame")
    if getattr(X, "ndim", 2) == 1:
        return _in_double(np.asarray(X).reshape(1, -1)), True
    return _in_double(X), False


def _in_double(X: Any) -> Any:
    """Convert float32 rows to float64. Values get the type of the rows, and shap's are float64."""
    dtypes = list(getattr(X, "dtypes", [getattr(X, "dtype", None)]))
    return X.astype(np.float64) if all(dtype == np.float32 for dtype in dtypes) else X
