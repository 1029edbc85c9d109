"""EconML: its forests that are means of trees, ``RegressionForest``, ``PolicyForest`` and ``PolicyTree``.

A generalized random forest predicts the solution of J(x) theta = A(x), where J and A are means over the
trees. The solution is no mean over the trees, so causal and instrumental forests cannot be explained as sums.
In a ``RegressionForest``, J is the identity in every leaf, and the margin is ``predict``, the mean of A over
the trees. The margin of a policy forest or tree is ``predict_value``, the value of each treatment.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..errors import UnsupportedModelError
from ._known import require_known
from ._subclasses import require_own_method
from .ensemble import Ensemble, Tree
from .schema import AdaptedModel, InputSchema, counts_of
from .wrappers import is_a

_NODE_FIELDS = frozenset(
    "left_child right_child depth feature threshold impurity n_node_samples weighted_n_node_samples "
    "impurity_train n_node_samples_train weighted_n_node_samples_train".split()
)

#: Largest difference of J from the identity, of which it is a mean: some thousand additions are rounded.
_ROUNDING = 1e-12

_MOMENTS = "it solves moment equations that are averaged over the trees, and the solution is no sum over them"


def adapt(model: Any) -> AdaptedModel:
    """Read a fitted forest of EconML, or reject it with the reason why it is no sum of trees."""
    name = type(model).__name__
    if is_a(model, "econml", "RegressionForest"):
        check_is_fitted(model, "estimators_")
        values = [_means_of_targets(name, member.tree_) for member in model.estimators_]
        return _mean_of_trees(model, model.estimators_, values, "predict")
    if is_a(model, "econml", "PolicyForest"):
        check_is_fitted(model, "estimators_")
        values = [member.tree_.value[:, :, 0] for member in model.estimators_]
        return _mean_of_trees(model, model.estimators_, values, "predict_value")
    if is_a(model, "econml", "PolicyTree"):
        check_is_fitted(model, "tree_")
        return _mean_of_trees(model, [model], [model.tree_.value[:, :, 0]], "predict_value")
    if is_a(model, "econml", "ForestDRLearner"):
        reason, advice = "it predicts several effects", "explain model_cate(T=...), the forest of a treatment"
    elif is_a(model, "econml", "DRPolicyForest") or is_a(model, "econml", "DRPolicyTree"):
        reason, advice = "it recommends treatments", "explain policy_model_, which predicts their values"
    else:
        is_forest = is_a(model, "econml", "BaseGRF") or "Forest" in name or "GRF" in name
        reason = _MOMENTS if is_forest else "it does not predict a sum of trees"
        advice = "train a forest of scikit-learn to predict its effects from X, and explain that"
    raise UnsupportedModelError(f"cannot explain a {name}: {reason}; {advice}")


def _means_of_targets(name: str, tree: Any) -> np.ndarray:
    """Return A of each node, (n_nodes, n_outputs); reject a tree whose J differs from the identity."""
    n_outputs = tree.precond.shape[1]
    jacobians = tree.jac.reshape(-1, n_outputs, n_outputs)[tree.children_left < 0]
    if np.abs(jacobians - np.eye(n_outputs)).max() > _ROUNDING:
        raise UnsupportedModelError(f"cannot explain this {name}: {_MOMENTS}; train it anew")
    means: np.ndarray = tree.precond
    return means


def _mean_of_trees(model: Any, members: list[Any], values: list[np.ndarray], method: str) -> AdaptedModel:
    """Return the mean over the members of the values of their nodes, which ``method`` predicts."""
    require_own_method(type(model).__name__, type(model), method, "econml")
    trees = [_tree(member.tree_, value / len(members)) for member, value in zip(members, values, strict=True)]
    n_outputs, n_features = values[0].shape[1], members[0].tree_.n_features
    return AdaptedModel(
        Ensemble.from_trees(trees, n_features=n_features, intercept=np.zeros(n_outputs), x_dtype="float64"),
        InputSchema(n_features=n_features, allow_nan=False, allow_inf=False, allow_sparse=False),
        family="econml",
        cover_kind="weight",
        other_covers=counts_of(trees),
        predictions={"raw": partial(_predict, getattr(model, method))},
    )


def _tree(tree: Any, value: np.ndarray) -> Tree:
    nodes = tree.__getstate__()["nodes"]
    require_known("the forest of EconML", "fields of its trees' nodes", nodes.dtype.names, _NODE_FIELDS)
    leaf = nodes["left_child"] < 0
    return Tree(
        left=nodes["left_child"],
        right=nodes["right_child"],
        feature=nodes["feature"],
        threshold=nodes["threshold"],
        missing_left=np.zeros(len(nodes), bool),
        cover=nodes["weighted_n_node_samples"],
        value=np.where(leaf, value[:, 0], 0.0)
        if value.shape[1] == 1
        else np.where(leaf[:, None], value, 0.0),
        count=nodes["n_node_samples"],
    )


def _predict(predict: Callable[[Any], Any], X: Any) -> np.ndarray:
    predictions: np.ndarray = np.asarray(predict(X))
    return predictions.reshape(len(predictions), -1)
