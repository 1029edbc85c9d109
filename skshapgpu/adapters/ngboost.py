"""NGBoost: the parameters of the distribution that a regressor, classifier or survival model predicts.

The margin is the result of ``pred_param``. It has one output for each parameter, in the form that the trees
add up to: the location and the logarithm of the scale for a normal distribution, the logarithms of both
parameters for a gamma distribution, and so on. The names of the outputs say which form it is. A classifier
has an output for each class except the first, the log-odds of the class relative to the first class; for two
classes this is one output.

The adapter reads all rounds, as ``predict`` without ``max_iter`` uses all of them. Each tree decides where
NaN goes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from sklearn.exceptions import NotFittedError
from sklearn.tree import DecisionTreeRegressor
from sklearn.utils import check_array

from ..errors import UnsupportedModelError
from ._subclasses import require_own_predictions
from .ensemble import Ensemble
from .schema import AdaptedModel, InputSchema, counts_of
from .sklearn_trees import accepts_nan, read_tree, require_trees

#: Names of the parameters that NGBoost's own distributions take from the trees.
_PARAMETERS = {
    "Normal": ("loc", "log_scale"),
    "LogNormal": ("loc", "log_scale"),
    "Laplace": ("loc", "log_scale"),
    "TFixedDf": ("loc", "log_scale"),
    "T": ("loc", "log_scale", "log_df"),
    "Gamma": ("log_alpha", "log_beta"),
    "Weibull": ("log_shape", "log_scale"),
}


def adapt(model: Any) -> AdaptedModel:
    """Read a fitted model of NGBoost whose base learners are regression trees.

    Raise ``UnsupportedModelError`` if a base learner is not a regression tree, or a third-party subclass has
    its own ``predict``; ``NotFittedError`` if the model is not fitted.
    """
    from ngboost import NGBClassifier
    from ngboost.ngboost import NGBoost

    name = type(model).__name__
    if not isinstance(model, NGBoost):
        raise UnsupportedModelError(f"cannot explain a {name} of ngboost: it is not a model")
    if model.init_params is None:
        raise NotFittedError(f"This {name} instance is not fitted yet: call fit first")
    require_own_predictions(model, "ngboost")
    rounds = list(zip(model.base_models, model.scalings, model.col_idxs, strict=True))
    members = [member for members, _, _ in rounds for member in members]
    if members:
        require_trees(model, members, DecisionTreeRegressor, "predict")
    trees = [
        read_tree(
            member,
            -model.learning_rate * scale * member.tree_.value[:, 0, 0],
            columns=np.asarray(columns),
            output=output,
        )
        for members, scale, columns in rounds
        for output, member in enumerate(members)
    ]
    ensemble = Ensemble.from_trees(trees, n_features=model.n_features, intercept=np.ravel(model.init_params))
    n_outputs = ensemble.n_outputs
    # The meaning of the margin is unknown for a distribution that is not NGBoost's own.
    is_own = model.Dist.__module__.partition(".")[0] == "ngboost"
    is_binary = isinstance(model, NGBClassifier) and n_outputs == 1 and is_own
    return AdaptedModel(
        ensemble,
        InputSchema(
            model.n_features,
            allow_nan=all(map(accepts_nan, members)),
            allow_inf=False,
            allow_sparse_nan=False,
        ),
        family="ngboost",
        cover_kind="weight",
        other_covers=counts_of(trees),
        output_names=_output_names(model.Dist, n_outputs, isinstance(model, NGBClassifier)),
        binary="margin" if is_binary else None,
        class_names=(0, 1) if is_binary else None,
        link="logistic" if is_binary else None,
        predictions=_predictions(model, is_binary),
    )


def _predictions(model: Any, is_binary: bool) -> dict[str, Callable[[Any], Any]]:
    """Return ``AdaptedModel.predictions``."""
    # Unlike predict, pred_param does not turn X into an array.
    as_array = partial(check_array, accept_sparse=True, ensure_all_finite=False)
    predictions: dict[str, Callable[[Any], Any]] = {"raw": lambda X: model.pred_param(as_array(X))}
    if is_binary:
        predictions["probability"] = lambda X: model.predict_proba(X)[:, 1]
    return predictions


def _output_names(distribution: type, n_outputs: int, is_classifier: bool) -> tuple[Any, ...] | None:
    if n_outputs == 1:
        return None
    if is_classifier:
        return tuple(range(1, n_outputs + 1))
    if distribution.__module__.partition(".")[0] == "ngboost":
        for base in distribution.__mro__:
            names = _PARAMETERS.get(base.__name__, ())
            if len(names) == n_outputs:
                return names
    return None
