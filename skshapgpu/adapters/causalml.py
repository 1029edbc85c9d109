"""CausalML: causal trees and forests, uplift trees and forests, whose trees are built as scikit-learn's are.

=================================  ===========================================================================
model                              margin
=================================  ===========================================================================
``CausalTreeRegressor``            ``predict``: the outcome of each treatment minus that of the control
``CausalRandomForestRegressor``    ``predict``: the mean of the trees
``UpliftTreeClassifier``           ``predict``: the probability of each group, the control first
``UpliftRandomForestClassifier``   ``predict``: the mean probability of each treatment minus the control's
=================================  ===========================================================================
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..errors import UnsupportedModelError
from ._subclasses import require_own_method
from .ensemble import Ensemble
from .schema import AdaptedModel, counts_of
from .sklearn_trees import accepts_nan, input_schema, nodes_of, tree_of_nodes
from .wrappers import is_a


def adapt(model: Any) -> AdaptedModel:
    """Read a fitted tree or forest of CausalML.

    Raise ``UnsupportedModelError`` if the model is of another class, ``NotFittedError`` if it is not fitted.
    """
    name = type(model).__name__
    require_own_method(name, type(model), "predict", "causalml")
    if is_a(model, "causalml", "CausalTreeRegressor"):
        check_is_fitted(model, "tree_")
        return _mean_of_trees(model, [model], [_effects(model.tree_.value[:, :, 0])])
    if is_a(model, "causalml", "CausalRandomForestRegressor"):
        check_is_fitted(model, "estimators_")
        values = [_effects(member.tree_.value[:, :, 0]) for member in model.estimators_]
        return _mean_of_trees(model, model.estimators_, values)
    if is_a(model, "causalml", "UpliftTreeClassifier") and is_a(model, "causalml", "BaseUpliftDecisionTree"):
        check_is_fitted(model, "tree_")
        return _mean_of_trees(model, [model], [_rates(model.tree_)], tuple(model.classes_))
    if is_a(model, "causalml", "UpliftRandomForestClassifier") and hasattr(type(model), "_make_estimator"):
        check_is_fitted(model, "estimators_")
        groups = list(model.classes_)
        values = [_effects(_aligned(member, groups)) for member in model.estimators_]
        return _mean_of_trees(model, model.estimators_, values, tuple(groups[1:]))
    raise UnsupportedModelError(
        f"cannot explain a {name} of causalml: it is none of the trees and forests of causalml 0.18 and "
        "later. Explain the models inside, or a forest of scikit-learn that predicts its effects from X"
    )


def _effects(outcomes: np.ndarray) -> np.ndarray:
    """Return the outcomes of the treatments minus the outcome of the control, which is the first column."""
    effects: np.ndarray = outcomes[:, 1:] - outcomes[:, :1]
    return effects


def _rates(tree: Any) -> np.ndarray:
    """Return the rate of each group at each node; a rate without rows counts as 0, as in ``predict``."""
    return np.nan_to_num(tree.value[:, :, 0], nan=0.0)


def _aligned(tree: Any, groups: list[Any]) -> np.ndarray:
    """Return the rates of a member for all groups of the forest: 0 for a group that it has not seen."""
    rates = _rates(tree.tree_)
    aligned = np.zeros((len(rates), len(groups)))
    aligned[:, [groups.index(group) for group in tree.classes_]] = rates
    return aligned


def _mean_of_trees(
    model: Any, members: list[Any], values: list[np.ndarray], names: tuple[Any, ...] | None = None
) -> AdaptedModel:
    """Return the mean over the members of the values of their nodes; ``names`` are those of the outputs."""
    n_outputs, name, kind = values[0].shape[1], type(model).__name__, type(members[0].tree_)
    trees = []
    for member, value in zip(members, values, strict=True):
        nodes = nodes_of(f"the {name}", member.tree_, kind)
        mean = value / len(members)
        trees.append(tree_of_nodes(nodes, mean[:, 0] if n_outputs == 1 else mean))
    return AdaptedModel(
        Ensemble.from_trees(trees, n_features=model.n_features_in_, intercept=np.zeros(n_outputs)),
        input_schema(model, accepts_nan(members[0])),
        family="causalml",
        output_names=names if n_outputs > 1 else None,
        cover_kind="weight",
        other_covers=counts_of(trees),
        predictions={"raw": partial(_predict, model, n_outputs)},
    )


def _predict(model: Any, n_outputs: int, X: Any) -> np.ndarray:
    """Return the outputs; after ``predict(X, with_outcomes=True)``, a forest returns outcomes before them."""
    predictions = np.asarray(model.predict(np.asarray(X)))
    return predictions.reshape(len(predictions), -1)[:, -n_outputs:]
