"""Importances of cross-validated models, as the selectors compute them."""

from __future__ import annotations

from typing import Any

from sklearn.utils import Bunch

from skshapgpu._estimators.importance import as_bunch, find_importances


def cross_validated_importance(
    estimator: Any, X: Any, y: Any = None, *, per_output: bool = False, **options: Any
) -> Bunch:
    """Fit clones of a model in splits, and return their importances in the form of ``shap_importance``."""
    return as_bunch(find_importances(estimator, X, y, **options), per_output)
