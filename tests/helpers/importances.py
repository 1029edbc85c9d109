"""Importances of cross-validated models, as the selectors compute them."""

from __future__ import annotations

from typing import Any

from sklearn.utils import Bunch

from skshapgpu._estimators.importance import find_importances


def cross_validated_importance(
    estimator: Any, X: Any, y: Any = None, *, per_output: bool = False, **options: Any
) -> Bunch:
    """Return the importances of clones of a model in splits, in the form of ``shap_importance``."""
    computed = find_importances(estimator, X, y, **options)
    if not per_output:
        computed = computed.summed()
    return Bunch(
        importances_mean=computed.mean,
        importances_std=computed.std,
        importances=computed.importances,
        feature_names=computed.feature_names,
        output_names=computed.output_names,
    )
