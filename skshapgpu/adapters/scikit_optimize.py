"""scikit-optimize: its forests, whose ``predict`` is the mean of the trees, and its boosted quantiles.

A ``GradientBoostingQuantileRegressor`` trains a model for each quantile, and predicts with the model of the
median. The standard deviations that these models return on request are no sums of trees.
"""

from __future__ import annotations

from typing import Any

from sklearn.utils.validation import check_is_fitted

from ..errors import UnsupportedModelError
from . import sklearn
from ._subclasses import require_own_predictions
from .schema import AdaptedModel
from .wrappers import is_a

_MEDIAN = 0.5


def adapt(model: Any) -> AdaptedModel:
    """Read a fitted model of scikit-optimize; raise errors as ``sklearn.adapt`` does."""
    if not is_a(model, "skopt", "GradientBoostingQuantileRegressor"):
        return sklearn.adapt(model, "skopt")
    check_is_fitted(model, "regressors_")
    require_own_predictions(model, "skopt")
    if _MEDIAN not in model.quantiles:
        raise UnsupportedModelError(
            f"cannot explain a {type(model).__name__} without the quantile 0.5, which its predict needs: "
            "explain each of its regressors_"
        )
    return sklearn.adapt(model.regressors_[list(model.quantiles).index(_MEDIAN)])
