"""quantile-forest: the mean that its random forests and extra-trees forests predict.

A quantile of the training targets in all leaves that a row reaches is not a sum over the trees, so no
method for sums of trees can explain it exactly. The mean is such a sum. The margin is
``predict(X, quantiles="mean", aggregate_leaves_first=False)``: each tree has the mean of the targets that are
stored in the leaf, and the margin is the mean over the trees. By default, ``max_samples_leaf=1``, a leaf
stores one target, drawn at random, and the margin is also equal to ``predict(X, quantiles="mean")``. If
leaves store more targets, ``predict(X, quantiles="mean")`` weights each tree by the number of targets in its
leaf, and is not a sum over the trees either.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from sklearn.tree import DecisionTreeRegressor
from sklearn.utils.validation import check_is_fitted

from ..errors import UnsupportedModelError
from ._subclasses import require_own_predictions
from .ensemble import Ensemble
from .schema import AdaptedModel, counts_of
from .sklearn_trees import accepts_nan, input_schema, read_tree, require_trees


def adapt(model: Any) -> AdaptedModel:
    """Read a fitted forest of quantile-forest.

    Raise ``UnsupportedModelError`` if the class is not a forest of the library, or a third-party subclass has
    its own ``predict``; or a leaf stores no target. Raise ``NotFittedError`` if the model is not fitted.
    """
    from quantile_forest import ExtraTreesQuantileRegressor, RandomForestQuantileRegressor

    name = type(model).__name__
    if not isinstance(model, (ExtraTreesQuantileRegressor, RandomForestQuantileRegressor)):
        raise UnsupportedModelError(f"cannot explain a {name}: it is not a forest of quantile-forest")
    check_is_fitted(model, ["estimators_", "forest_"])
    require_own_predictions(model, "quantile_forest")
    estimators = require_trees(model, model.estimators_, DecisionTreeRegressor, "apply")
    means = _means_of_nodes(model)
    trees = []
    for estimator, values in zip(estimators, means, strict=True):
        leaf = estimator.tree_.children_left < 0
        if np.isnan(values[: len(leaf)][leaf]).any():
            raise UnsupportedModelError(
                f"cannot explain a {name}: a leaf stores no target, so its tree counts for some rows only"
            )
        values = np.where(leaf[:, None], values[: len(leaf)], 0.0) / len(estimators)
        trees.append(read_tree(estimator, values if means.shape[2] > 1 else values[:, 0]))
    return AdaptedModel(
        Ensemble.from_trees(trees, n_features=model.n_features_in_, intercept=np.zeros(means.shape[2])),
        input_schema(model, accepts_nan(estimators[0])),
        family="quantile_forest",
        cover_kind="weight",
        other_covers=counts_of(trees),
        predictions={"raw": partial(model.predict, quantiles="mean", aggregate_leaves_first=False)},
    )


def _means_of_nodes(model: Any) -> np.ndarray:
    """Return the mean of the targets stored in each node, (n_trees, n_nodes, n_outputs); NaN without any."""
    # Numbers of training rows, counted from 1 in order of ascending target; 0 is padding.
    row_numbers = np.asarray(model.forest_.y_train_leaves)  # (n_trees, n_nodes, n_outputs, n_stored)
    targets = np.asarray(model.forest_.y_train)  # (n_outputs, n_rows)
    n_targets = np.count_nonzero(row_numbers, axis=3)
    total = np.zeros(row_numbers.shape[:3])
    for output in range(row_numbers.shape[2]):
        padded = np.concatenate([[0.0], targets[output]])
        for tree, rows_of_nodes in enumerate(row_numbers[:, :, output]):
            total[tree, :, output] = padded[rows_of_nodes].sum(axis=1)
    with np.errstate(invalid="ignore"):
        means = total / n_targets
    if model.monotonic_cst is not None:
        bounds = np.asarray(model.forest_.y_bound_leaves)
        means = np.clip(means, bounds[:, :, :1], bounds[:, :, 1:])
    return means
