"""scikit-learn's estimators that combine other models, if the result is a weighted sum of their margins.

=========================================  ====================================================
model                                      margin
=========================================  ====================================================
``VotingRegressor``                        ``predict``
``VotingClassifier``, soft                 ``predict_proba``
``StackingRegressor``                      ``predict``, if the final estimator is linear
``StackingClassifier``                     ``decision_function``, if the final estimator is linear
``AdaBoostClassifier`` of trees            ``decision_function``
``Bagging*`` of other models than trees    ``predict``, or ``predict_proba``
``MultiOutputRegressor``                   ``predict``
``MultiOutputClassifier``                  the margins of the members, or their probabilities
``OneVsRestClassifier``                    the margins of the members, or their probabilities
``CalibratedClassifierCV``, sigmoid        log-odds of ``predict_proba``
=========================================  ====================================================

What an ensemble adds up is a method of its members. A member is supported if this method returns its margin:
a regressor without a link, a classifier that adds up probabilities, such as a forest, or, where the ensemble
takes ``decision_function``, boosting of scikit-learn. Means of other probabilities have no margin: see
``sklearn_probabilities.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.linear_model._base import LinearClassifierMixin
from sklearn.model_selection._search import BaseSearchCV
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from ..errors import UnsupportedModelError
from ._subclasses import require_own_method
from .ensemble import Ensemble
from .link_sums import LinkSum, Term
from .schema import AdaptedModel, counts_of, pair_names
from .sklearn_members import (
    Fitted,
    fitted_member,
    members_of,
    probabilities_of,
    require_one_output,
    rounded,
    steps_of,
    with_classes,
)
from .sklearn_probabilities import calibrated_classifier, class_weights, mean_of_probabilities
from .sklearn_trees import input_schema, read_tree, require_trees
from .sums import weighted_sum
from .wrappers import is_a, nest

_INSTEAD_OF_STACKING = "explain its final_estimator_ on the output of transform, or each of its estimators_"


def _normalised(name: str, model: Any, n_members: int) -> np.ndarray:
    """Return the weight of each fitted member of a voting model; they add up to 1."""
    weights = model._weights_not_none
    weights = np.ones(n_members) if weights is None else np.asarray(weights, np.float64)
    if weights.shape != (n_members,):
        raise UnsupportedModelError(
            f"cannot explain a {name} with {len(weights)} weights for {n_members} fitted members: it was "
            "changed after it was fitted; fit it again"
        )
    with np.errstate(over="ignore", invalid="ignore"):
        total = weights.sum()
    if not np.isfinite(total) or total == 0:
        raise ValueError(f"the sum of the weights of the {name} must be finite, and not zero")
    return weights / total


def voting_regressor(model: Any) -> AdaptedModel:
    """Return the weighted mean of the predictions of regressors."""
    name = type(model).__name__
    members = members_of(name, model.estimators_, ["predict"] * len(model.estimators_))
    for member in members:
        require_one_output(name, member)
    weights = _normalised(name, model, len(members))
    parts = [m.part(np.full((1, 1), weight)) for m, weight in zip(members, weights)]
    return replace(
        weighted_sum(name, parts, np.zeros(1)), predictions={"raw": rounded(model.predict, members)}
    )


def voting_classifier(model: Any) -> AdaptedModel:
    """Return the weighted mean of the probabilities of classifiers."""
    name = type(model).__name__
    if model.voting != "soft":
        raise UnsupportedModelError(
            f"cannot explain a {name} with voting={model.voting!r}: it counts votes, which are no sum of "
            "trees; use voting='soft', or explain each of its estimators_"
        )
    members = members_of(name, model.estimators_)
    n_classes = len(model.classes_)
    for member in members:  # members are trained on the numbers of the classes
        if not np.array_equal(member.estimator.classes_, np.arange(n_classes)):
            raise UnsupportedModelError(
                f"cannot explain a {name} of {type(member.estimator).__name__}, whose classes are not the "
                f"numbers 0 to {n_classes - 1}: train the members by its fit"
            )
    classes = [np.arange(n_classes)] * len(members)
    return mean_of_probabilities(name, model, members, _normalised(name, model, len(members)), classes)


def adaboost_classifier(model: Any) -> AdaptedModel:
    """Return the decision of AdaBoost: each tree adds its weight to the class of the leaf.

    It subtracts the weight, divided by the number of other classes, from the other classes. The sums are
    divided by the sum of the weights. For two classes, the only output is the difference of both.
    """
    name, classes = type(model).__name__, model.classes_
    estimators = require_trees(model, model.estimators_, DecisionTreeClassifier, "predict")
    weights = np.asarray(model.estimator_weights_, np.float64)[: len(estimators)]
    total, n_classes = model.estimator_weights_.sum(), len(classes)
    if len(weights) < len(estimators) or not total > 0:
        raise ValueError(f"the {name} has {len(estimators)} trees, and weights that add up to {total}")
    schema = input_schema(model, allow_nan=False)
    if n_classes == 1:
        trees = []
        ensemble = Ensemble.from_trees([], n_features=model.n_features_in_, intercept=0.0)
    else:
        trees = [
            read_tree(estimator, _votes(estimator, classes) * (weight / total))
            for estimator, weight in zip(estimators, weights)
        ]
        n_outputs = n_classes if n_classes > 2 else 1
        ensemble = Ensemble.from_trees(trees, n_features=model.n_features_in_, intercept=np.zeros(n_outputs))
    predictions = {"raw": model.decision_function, "probability": partial(probabilities_of, model)}
    adapted = AdaptedModel(ensemble, schema, "sklearn", cover_kind="weight", other_covers=counts_of(trees))
    adapted = with_classes(model, adapted, "margin", predictions)
    if n_classes == 1:
        return replace(adapted, predictions={"raw": model.decision_function})
    if n_classes == 2:
        return replace(adapted, link="logistic")
    return replace(adapted, link="softmax", link_scale=1 / (n_classes - 1))


def _votes(estimator: Any, classes: np.ndarray) -> np.ndarray:
    """Return what each node adds to the outputs, before weighting: (n_nodes, n_classes), or (n_nodes,)."""
    predicted = estimator.classes_.take(estimator.tree_.value[:, 0, :].argmax(axis=1))
    is_predicted = predicted[:, np.newaxis] == classes
    if len(classes) == 2:
        return np.where(is_predicted[:, 1], 2.0, -2.0)
    return np.where(is_predicted, 1.0, -1.0 / (len(classes) - 1))


def bagging(model: Any, method: str | None = None) -> AdaptedModel:
    """Return the mean of a method of members that take some columns each.

    Without a method, it is ``predict`` for regressors, and the probabilities for classifiers.
    """
    name, n_members = type(model).__name__, len(model.estimators_)
    columns = [np.asarray(own_columns) for own_columns in model.estimators_features_]
    if method is None and not is_classifier(model):
        method = "predict"
    members = members_of(name, model.estimators_, None if method is None else [method] * n_members)
    weights = np.full(n_members, 1 / n_members)
    if method is None:  # members are trained on the numbers of the classes
        classes = [member.estimator.classes_.astype(np.intp) for member in members]
        adapted = mean_of_probabilities(name, model, members, weights, classes, columns)
    else:
        n_outputs = members[0].model.ensemble.n_outputs
        parts = [
            member.part(weight * np.eye(n_outputs), own_columns)
            for member, weight, own_columns in zip(members, weights, columns)
        ]
        adapted = weighted_sum(name, parts, np.zeros(n_outputs), model.n_features_in_)
        adapted = replace(adapted, predictions={"raw": getattr(model, method)})
    # Bagging turns X into an array, and data frames of integers into arrays of integers.
    schema = adapted.schema
    names = input_schema(model, schema.allow_nan)
    schema = replace(
        schema,
        feature_names=names.feature_names,
        warns_as=names.warns_as,
        frames_have_names=False,
        array_dtype=None,
        frames_are_arrays=True,
        exact_arrays=schema.exact_arrays or schema.array_dtype is not None,
    )
    return replace(adapted, schema=schema)


def multi_output_regressor(model: Any) -> AdaptedModel:
    """Return the predictions of all targets as outputs."""
    name, n_targets = type(model).__name__, len(model.estimators_)
    members = members_of(name, model.estimators_, ["predict"] * n_targets)
    for member in members:
        require_one_output(name, member)
    unit = np.eye(n_targets)
    parts = [member.part(unit[:, [i]]) for i, member in enumerate(members)]
    adapted = weighted_sum(name, parts, np.zeros(n_targets))
    return replace(adapted, predictions={"raw": rounded(model.predict, members)})


def multi_output_classifier(model: Any) -> AdaptedModel:
    """Return the probabilities of all classes of all targets, or the margins of the members, as outputs."""
    name = type(model).__name__
    members = [fitted_member(name, estimator) for estimator in model.estimators_]
    labels = [member.estimator.classes_.tolist() for member in members]
    if all(member.returns_margin("predict_proba") for member in members):
        terms = [
            class_weights(name, member, np.arange(len(own)), len(own)) for member, own in zip(members, labels)
        ]
        adapted = _beside_each_other(name, members, [w for w, _ in terms], [shift for _, shift in terms])
        names = [(target, label) for target, own in enumerate(labels) for label in own]
        raw = rounded(partial(_all_probabilities, model), members)
        return _with_outputs(adapted, pair_names(names), "identity", 1.0, {"raw": raw, "probability": raw})
    outputs = [own[1:] if len(own) == 2 else own for own in labels]
    for member, own in zip(members, outputs):
        _require_margins(name, member, len(own))
    adapted = _beside_each_other(
        name, members, [np.eye(len(own)) for own in outputs], [np.zeros(len(own)) for own in outputs]
    )
    names = [(target, label) for target, own in enumerate(outputs) for label in own]
    margins = [member.model.predictions["raw"] for member in members]
    predictions: dict[str, Callable[[Any], Any]] = {"raw": partial(_margins, margins)}
    link, scale = _common_link(members) if all(len(own) == 1 for own in outputs) else (None, 1.0)
    if link is not None:
        predictions["probability"] = partial(_positive_probabilities, model)
    return _with_outputs(adapted, pair_names(names), link, scale, predictions)


def _beside_each_other(
    name: str, members: Sequence[Fitted], weights: Sequence[np.ndarray], offsets: Sequence[np.ndarray]
) -> AdaptedModel:
    """Return a model with the outputs of all members, one after the other; each has its own weights."""
    ends = np.cumsum([len(own) for own in weights])
    parts = []
    for member, own, end in zip(members, weights, ends):
        full = np.zeros((ends[-1], own.shape[1]))
        full[end - len(own) : end] = own
        parts.append(member.part(full))
    return weighted_sum(name, parts, np.concatenate(offsets))


def _with_outputs(
    adapted: AdaptedModel, names: Sequence[Any], link: Any, scale: float, predictions: Any
) -> AdaptedModel:
    return replace(
        adapted,
        output_names=tuple(names) if len(names) > 1 else None,
        link=link,
        link_scale=scale,
        squared_error=False,
        predictions=predictions,
    )


def _require_margins(name: str, member: Fitted, n_outputs: int) -> None:
    if member.model.ensemble.n_outputs != n_outputs or "raw" not in member.model.predictions:
        raise UnsupportedModelError(
            f"cannot explain a {name} of {type(member.estimator).__name__}: explain each of its members"
        )


def _common_link(members: Iterable[Fitted]) -> tuple[Any, float]:
    """Return the link of all members and its scale; None if they have different ones, or no logistic link."""
    links = {(member.model.link, member.model.link_scale) for member in members}
    link, scale = links.pop()
    return (link, scale) if not links and link in ("logistic", "identity") else (None, 1.0)


def _margins(functions: Sequence[Callable[[Any], Any]], X: Any) -> np.ndarray:
    """Return the margins of several models beside each other, in the dtype of the least precise one."""
    margins = [np.asarray(function(X)) for function in functions]
    dtype = np.float32 if any(margin.dtype == np.float32 for margin in margins) else np.float64
    return np.hstack([margin.reshape(len(margin), -1) for margin in margins]).astype(dtype)


def _all_probabilities(model: Any, X: Any) -> np.ndarray:
    return np.hstack(model.predict_proba(X))


def _positive_probabilities(model: Any, X: Any) -> np.ndarray:
    return np.hstack([probabilities[:, 1:] for probabilities in model.predict_proba(X)])


def one_vs_rest_classifier(model: Any) -> AdaptedModel:
    """Return the margin of each class or label, or its probability if it is a sum.

    The probabilities of more than two classes are normalised, so they are functions of all margins.
    """
    name, classes = type(model).__name__, model.classes_.tolist()
    is_constant = [is_a(e, "sklearn", "_ConstantPredictor") for e in model.estimators_]
    if all(is_constant):  # each label is one of all training rows, or of none
        raise UnsupportedModelError(f"cannot explain a {name} all of whose predictions are constant")
    offset, unit = np.zeros(len(is_constant)), np.eye(len(is_constant))
    members, parts, margins = [], [], []
    for number, estimator in enumerate(model.estimators_):
        if is_constant[number]:
            offset[number] = estimator.y_[0]
            margins.append(estimator.decision_function)
            continue
        member = fitted_member(name, estimator)
        _require_margins(name, member, 1)
        members.append(member)
        parts.append(member.part(unit[:, [number]]))
        margins.append(member.model.predictions["raw"])
    adapted = weighted_sum(name, parts, offset)
    predictions: dict[str, Callable[[Any], Any]] = {"raw": partial(_margins, margins)}
    link, scale = _common_link(members)
    if len(offset) == 1:
        predictions["probability"] = partial(probabilities_of, model)
        binary = "probability" if link == "identity" else "margin"
        adapted = with_classes(model, adapted, binary, predictions)
        return replace(adapted, link=link, link_scale=scale)
    if not model.multilabel_ and len(members) == len(offset) and link == "logistic":
        # The probabilities are divided by their sum, so they depend on the margins of all classes.
        term = Term(link, scale, np.eye(len(offset)), is_normalised=True)
        function = LinkSum((term,), np.zeros(len(offset)))
        predictions["probability"] = model.predict_proba
        adapted = _with_outputs(adapted, classes, None, 1.0, predictions)
        return replace(adapted, functions={"probability": function})
    if not model.multilabel_ or len(members) < len(offset):
        return _with_outputs(adapted, classes, None, 1.0, predictions)
    predictions["probability"] = model.predict_proba
    return _with_outputs(adapted, classes, link, scale, predictions)


def stacking(model: Any) -> AdaptedModel:
    """Return the linear function of the members' predictions that the final estimator learned."""
    name, final = type(model).__name__, model.final_estimator_
    require_own_method(name, type(model), "transform", "sklearn")
    if model.passthrough:
        raise UnsupportedModelError(
            f"cannot explain a {name} with passthrough=True: its final_estimator_ also takes X; use "
            f"passthrough=False, or {_INSTEAD_OF_STACKING}"
        )
    coefficients, intercept, linear_model = _linear_function(name, final, is_classifier(model))
    members = members_of(name, model.estimators_, model.stack_method_)
    ends = np.cumsum([member.model.ensemble.n_outputs for member in members])
    if coefficients.shape[1] != ends[-1]:
        raise UnsupportedModelError(
            f"cannot explain a {name} whose final_estimator_ takes {coefficients.shape[1]} columns, not the "
            f"{ends[-1]} outputs of its members: explain each of its estimators_"
        )
    blocks = np.split(coefficients, ends[:-1], axis=1)
    parts = [member.part(block) for member, block in zip(members, blocks)]
    adapted = replace(weighted_sum(name, parts, intercept), squared_error=False)
    if not is_classifier(model):
        return replace(adapted, predictions={"raw": rounded(model.predict, members)})
    predictions: dict[str, Any] = {"raw": rounded(model.decision_function, members)}
    link, scale = _link_of_logistic(linear_model, len(model.classes_))
    if link is not None:
        predictions["probability"] = partial(probabilities_of, model)
    return replace(with_classes(model, adapted, "margin", predictions), link=link, link_scale=scale)


def _linear_function(name: str, final: Any, classifies: bool) -> tuple[np.ndarray, np.ndarray, Any]:
    """Return coefficients, (n_outputs, n_columns), and intercepts of a final estimator, and its linear model.

    The steps before the linear model may only be scalers.
    """
    *wrappers, model = nest(final, fitted=True)
    scalers = [step for wrapper in wrappers if isinstance(wrapper, Pipeline) for step in steps_of(wrapper)]
    owner = next((base for base in type(model).__mro__ if "predict" in vars(base)), object)
    if classifies:
        is_linear = getattr(type(model), "decision_function", None) is LinearClassifierMixin.decision_function
    else:
        is_linear = any(is_a(model, "sklearn", base) for base in ("LinearModel", "BaseSGDRegressor"))
    if (
        not is_linear
        or not owner.__module__.startswith("sklearn.")
        or not isinstance(model.coef_, np.ndarray)
        or any(type(step) is not StandardScaler for step in scalers)
        or any(not isinstance(wrapper, (Pipeline, BaseSearchCV, FrozenEstimator)) for wrapper in wrappers)
    ):
        raise UnsupportedModelError(
            f"cannot explain a {name} with a final_estimator_ of {type(final).__name__}: it is not a linear "
            f"function of its members, as RidgeCV and LogisticRegression are; {_INSTEAD_OF_STACKING}"
        )
    coefficients = np.atleast_2d(model.coef_).astype(np.float64)
    intercept = np.broadcast_to(model.intercept_, len(coefficients)).astype(np.float64)
    for scaler in reversed(scalers):
        if scaler.with_std:
            coefficients = coefficients / scaler.scale_
        if scaler.with_mean:
            intercept = intercept - coefficients @ scaler.mean_
    return coefficients, intercept, model


def _link_of_logistic(final: Any, n_classes: int) -> tuple[Any, float]:
    """Return the link of a final estimator that classifies, and its scale; None if there is none."""
    if getattr(type(final), "predict_proba", None) is not LogisticRegression.predict_proba:
        return None, 1.0
    kind = getattr(final, "multi_class", "deprecated")  # it was removed in scikit-learn 1.8
    if n_classes == 2:
        return "logistic", 2.0 if kind == "multinomial" else 1.0
    return (None if kind == "ovr" or final.solver == "liblinear" else "softmax"), 1.0


#: For each class, by name: an attribute that only a fitted model has, and the reader.
READERS: dict[str, tuple[str, Callable[[Any], AdaptedModel]]] = {
    "AdaBoostClassifier": ("estimators_", adaboost_classifier),
    "CalibratedClassifierCV": ("calibrated_classifiers_", calibrated_classifier),
    "MultiOutputClassifier": ("estimators_", multi_output_classifier),
    "MultiOutputRegressor": ("estimators_", multi_output_regressor),
    "OneVsRestClassifier": ("estimators_", one_vs_rest_classifier),
    "StackingClassifier": ("final_estimator_", stacking),
    "StackingRegressor": ("final_estimator_", stacking),
    "VotingClassifier": ("estimators_", voting_classifier),
    "VotingRegressor": ("estimators_", voting_regressor),
}
