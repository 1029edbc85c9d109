"""Implementation of ``shap.GPUTreeExplainer``, found by the entry point group ``shap.tree_backends``.

shap looks in this group for ``"cuda"``, then for ``"rocm"``, then for any other entry. The entry of this
package is named ``"skshapgpu"``, so that a backend made for shap takes precedence where it is installed. Only
shap imports this module.
"""

from __future__ import annotations

import os
import warnings
from typing import Any

import shap

from ._common.devices import DEVICE_VARIABLE, cuda_info
from ._shap.stand_in import HasStandIn, StandIn, require_loadable


class GPUTreeExplainer(HasStandIn, shap.TreeExplainer):
    """A ``shap.TreeExplainer`` whose values are computed by :class:`skshapgpu.TreeExplainer`.

    It has the arguments, the shapes and the ``expected_value`` of ``shap.TreeExplainer``, and uses the sample
    that shap draws of large background data. Values are in double precision, and equal to shap's except where
    shap takes another branch than the model: at categorical splits of ``HistGradientBoosting*``, and next to
    thresholds that shap narrows to float32. Several outputs give one array, as in shap.

    The GPU is used if there is one, and if there is enough work for it. Without a GPU, the same values are
    computed on the CPU, and a warning says so. The environment variable ``SKSHAPGPU_DEVICE`` chooses a device
    without a warning.

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
        The explainer requests path-dependent values with the covers of ``data``, or has ``data`` for a
        CatBoost model with several outputs, with which shap crashes.

    Warns
    -----
    RuntimeWarning
        There is no GPU.
    """

    def __init__(self, model: Any, *args: Any, **kwargs: Any) -> None:
        require_loadable(model, args[0] if args else kwargs.get("data"))
        super().__init__(model, *args, **kwargs)
        self._stand_in = StandIn(self, model)
        self.expected_value = self._stand_in.base_value
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
            None, or the number of trees that ``shap.TreeExplainer`` explains without a limit: the trees up to
            the best iteration of XGBoost, or all trees of any other model.
        approximate : bool, default=False
            Must be False, because values are exact.
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
        return self._stand_in.values(X, y, tree_limit, approximate, check_additivity)

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
            ``tree_limit`` is another number of trees.
        """
        return self._stand_in.interaction_values(X, y, tree_limit)
