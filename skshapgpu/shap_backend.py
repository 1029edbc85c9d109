"""Implementation of ``shap.GPUTreeExplainer``, found by the entry point group ``shap.tree_backends``.

shap looks in that group for ``"cuda"``, then ``"rocm"``, then for any other entry. This one is named
``"skshapgpu"``, so that a backend made for shap takes precedence where one is installed. Only shap imports
this module.
"""

from __future__ import annotations

import os
import warnings
from copy import deepcopy
from typing import Any

import numpy as np
import shap

from ._common.devices import DEVICE_VARIABLE, cuda_info
from .adapters import adapt
from .explainer import TreeExplainer


class GPUTreeExplainer(shap.TreeExplainer):
    """A ``shap.TreeExplainer`` whose values are computed by :class:`skshapgpu.TreeExplainer`.

    Arguments, shapes, the sample that shap draws of large background data, and ``expected_value`` are those
    of ``shap.TreeExplainer``. So are the values, in double precision, except where shap takes another branch
    than the model: at categorical splits of ``HistGradientBoosting*``, and next to thresholds that shap
    narrows to float32. Several outputs give one array, as in shap.

    The GPU is used if there is one and enough work for it. Without a GPU, the same values are computed on
    the CPU, and a warning says so; the environment variable ``SKSHAPGPU_DEVICE`` chooses a device without a
    warning.

    Parameters
    ----------
    model : fitted model
        A model that both packages support.
    *args, **kwargs
        As for ``shap.TreeExplainer``: ``data``, ``model_output``, ``feature_perturbation`` and others.

    Raises
    ------
    UnsupportedModelError
        The model cannot be explained exactly; ``shap.TreeExplainer`` may accept it.
    NotImplementedError
        Path-dependent values with the covers of ``data`` are requested.

    Warns
    -----
    RuntimeWarning
        There is no GPU.
    """

    def __init__(self, model: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(model, *args, **kwargs)
        if self.feature_perturbation == "tree_path_dependent" and self.data is not None:
            raise NotImplementedError(
                "GPUTreeExplainer takes the covers of path-dependent values from the model, not from data: "
                "leave data out, or use shap.TreeExplainer or skshapgpu.TreeExplainer"
            )
        kind = self.model.model_output
        doubled = kind == "probability_doubled"
        self._ours: dict[bool, TreeExplainer] = {}
        self._options = {
            "model": adapt(model),  # data is copied, as an explainer may be compiled much later
            "data": deepcopy(self.data),
            "feature_perturbation": self.feature_perturbation,
            "model_output": "probability" if doubled else kind,
            "outputs": "all" if doubled or (self.model.num_outputs == 2 and kind != "log_loss") else "auto",
            "precision": "double",
            "n_jobs": -1,
        }
        self.expected_value = self._explainer(True).expected_value
        info = cuda_info()
        if not info["available"] and not os.environ.get(DEVICE_VARIABLE):
            warnings.warn(
                f"GPUTreeExplainer computes on the CPU, as {info['reason']}; set {DEVICE_VARIABLE}=cpu to "
                "choose that without this warning",
                RuntimeWarning,
                stacklevel=2,
            )

    def shap_values(
        self,
        X: Any,
        y: Any = None,
        tree_limit: int | None = None,
        approximate: bool = False,
        check_additivity: bool = True,
        from_call: bool = False,
    ) -> Any:
        """Compute exact SHAP values.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_rows, n_features), or one row
        y : array-like of shape (n_rows,), default=None
            Labels, for ``model_output="log_loss"``.
        tree_limit : int or None, default=None
            None, or the number of trees that the model itself predicts with.
        approximate : bool, default=False
            True is rejected.
        check_additivity : bool, default=True
            As for :class:`skshapgpu.TreeExplainer`.
        from_call : bool, default=False
            Ignored, as by any backend.

        Returns
        -------
        array of shape (n_rows, n_features[, n_outputs]), without the first axis if X is one row

        Raises
        ------
        NotImplementedError
            ``approximate`` is True, or ``tree_limit`` is another number.
        TypeError
            X is a ``DMatrix`` or ``Pool``.
        """
        if approximate:
            raise NotImplementedError("GPUTreeExplainer is exact: approximate=True is for shap.TreeExplainer")
        self._require_limit(tree_limit)
        rows, single = _as_rows(X)
        labels = y if self.model.model_output == "log_loss" else None
        values = self._explainer(check_additivity).shap_values(rows, labels)
        return values[0] if single else values

    def shap_interaction_values(self, X: Any, y: Any = None, tree_limit: int | None = None) -> Any:
        """Compute exact SHAP interaction values, with background data, too.

        Parameters
        ----------
        X, tree_limit
            As for :meth:`shap_values`.
        y : None
            Ignored.

        Returns
        -------
        array of shape (n_rows, n_features, n_features[, n_outputs]), without the first axis if X is one row

        Raises
        ------
        ValueError
            ``model_output`` is not "raw".
        NotImplementedError
            ``tree_limit`` is not the number of trees that the model predicts with.
        """
        self._require_limit(tree_limit)
        rows, single = _as_rows(X)
        values = self._explainer(True).shap_interaction_values(rows)
        return values[0] if single else values

    def _explainer(self, check_additivity: bool) -> TreeExplainer:
        """Return the explainer without the check, compiled on first use because few calls need it."""
        if check_additivity not in self._ours:
            self._ours[check_additivity] = TreeExplainer(**self._options, check_additivity=check_additivity)
        return self._ours[check_additivity]

    def _require_limit(self, tree_limit: int | None) -> None:
        n_trees = len(self.model.values)

        def trees(limit: int | None) -> int:
            return n_trees if limit is None or limit < 0 else min(limit, n_trees)

        if tree_limit is None or trees(tree_limit) == trees(self.model.tree_limit):
            return
        raise NotImplementedError(
            f"GPUTreeExplainer explains the trees that the model predicts with, not tree_limit={tree_limit}: "
            "cut the model, or use shap.TreeExplainer"
        )


def _as_rows(X: Any) -> tuple[Any, bool]:
    """Return X with an axis of rows, and whether it was a single row."""
    if type(X).__name__ in ("DMatrix", "Pool"):
        raise TypeError(
            f"X is a {type(X).__name__}: GPUTreeExplainer takes the rows as an array or a data frame"
        )
    if getattr(X, "ndim", 2) == 1:
        return np.asarray(X).reshape(1, -1), True
    return X, False
