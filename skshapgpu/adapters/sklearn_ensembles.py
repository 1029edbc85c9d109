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
takes ``decision_function``, boosting of scikit-learn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.linear_model._base import LinearClassifierMixin
from sklearn.model_selection._search import BaseSearchCV
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from ..errors import UnsupportedModelError
from . import adapt
from ._subclasses import require_own_method
from .ensemble import Ensemble
from .schema import AdaptedModel, counts_of, pair_names
from .sklearn_trees import input_schema, read_tree, require_trees
from .sums import Member, Rounded, weighted_sum
from .wrappers import is_a, is_self_training, nest

_INSTEAD_OF_STACKING = "explain its final_estimator_ on the output of transform, or each of its estimators_"


@dataclass(frozen=True, eq=False)
class _Fitted:
    """A fitted member of an ensemble."""

    estimator: Any  # the innermost model: pipelines of one step, searches and the like are unwrapped
    model: AdaptedModel

    def returns_margin(self, method: str) -> bool:
        """Return whether a method of the estimator returns the margin of the model."""
        if method == "predict" and self.model.family == "catboost" and self.model.squared_error:
            return True
        if method == "predict_proba":
            return self.model.link == "identity" and is_classifier(self.estimator)
        raw = self.model.predictions.get("raw")
        if isinstance(raw, Rounded):
            raw = raw.predict
        return raw is not None and raw == getattr(self.estimator, method, None)


def _fitted_member(name: str, estimator: Any) -> _Fitted:
    """Read a member of an ensemble whose class is ``name``; raise ``UnsupportedModelError`` if it cannot."""
    *wrappers, model = nest(estimator, fitted=True)
    for wrapper in wrappers:
        if isinstance(wrapper, Pipeline) and _steps(wrapper):
            raise UnsupportedModelError(
                f"cannot explain a {name} of a {type(wrapper).__name__} with steps before its "
                f"{type(model).__name__}: put the steps before the {name}, make_pipeline(step, {name}(...))"
            )
        if is_a(wrapper, "sklearn", "RFE") or is_self_training(wrapper):
            raise UnsupportedModelError(
                f"cannot explain a {name} of {type(wrapper).__name__}: explain each of its members"
            )
    try:
        return _Fitted(model, adapt(model))
    except UnsupportedModelError as error:
        raise UnsupportedModelError(
            f"cannot explain a {name} of {type(model).__name__}: {error}. Explain each of its members"
        ) from error


def adapted_member(name: str, estimator: Any) -> AdaptedModel:
    """Return a member of a sum that messages call ``name``; raise errors as :func:`adapt` does."""
    return _fitted_member(name, estimator).model


def _steps(pipeline: Pipeline) -> list[Any]:
    """Return the steps of a pipeline that transform X; samplers of imbalanced-learn act in training only."""
    steps = [step for _, step in pipeline.steps[:-1] if not (step is None or isinstance(step, str))]
    return [step for step in steps if not hasattr(step, "fit_resample")]


def _require_margin(name: str, member: _Fitted, method: str) -> None:
    """Reject a member if the method that the ensemble calls does not return the member's margin."""
    if member.returns_margin(method):
        return
    kind = type(member.estimator).__name__
    if method == "predict" and is_classifier(member.estimator):
        reason, advice = "takes class labels, which are votes and no sum of trees", ""
    elif method == "predict_proba":
        reason = "takes probabilities, which are a function of a sum of trees, and no sum themselves"
        advice = ", or use members that add up probabilities, such as random forests"
        if name.startswith("Stacking") and hasattr(member.estimator, "decision_function"):
            advice = ", or use stack_method='decision_function'"
    else:
        reason = f"takes {method}, which is not known to be a sum of trees"
        advice = ", or train them on a transformed target with the squared error"
    raise UnsupportedModelError(
        f"cannot explain a {name} of {kind}: the ensemble {reason}; explain each of its members{advice}"
    )


def _members(name: str, estimators: Iterable[Any], methods: Sequence[str]) -> list[_Fitted]:
    """Return the members, each of which returns its margin by the method with its number."""
    estimators = list(estimators)
    if not estimators:
        raise NotFittedError(f"This {name} instance is not fitted yet: it has no members.")
    members = [_fitted_member(name, estimator) for estimator in estimators]
    for member, method in zip(members, methods, strict=True):
        _require_margin(name, member, method)
    return members


def _rounded(predict: Callable[[Any], Any], members: Iterable[_Fitted]) -> Rounded:
    raws = (member.model.predictions.get("raw") for member in members)
    return Rounded(predict, tuple(raw for raw in raws if raw is not None))


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
    members = _members(name, model.estimators_, ["predict"] * len(model.estimators_))
    for member in members:
        _require_one_output(name, member)
    weights = _normalised(name, model, len(members))
    parts = [Member(m.model, np.full((1, 1), weight)) for m, weight in zip(members, weights)]
    return replace(
        weighted_sum(name, parts, np.zeros(1)), predictions={"raw": _rounded(model.predict, members)}
    )


def _require_one_output(name: str, member: _Fitted) -> None:
    if member.model.ensemble.n_outputs > 1:
        raise UnsupportedModelError(
            f"cannot explain a {name} of {type(member.estimator).__name__} with several outputs: explain "
            "each of its members"
        )


def _class_weights(
    name: str, member: _Fitted, positions: np.ndarray, n_classes: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return weights and an offset that turn a member's margins into the probabilities of all classes.

    ``positions`` are the numbers of the member's classes among the classes of the ensemble.
    """
    n_own = len(positions)
    if member.model.ensemble.n_outputs != (n_own if n_own != 2 else 1):
        raise UnsupportedModelError(
            f"cannot explain a {name} of {type(member.estimator).__name__} with several targets: explain "
            "each of its members"
        )
    weights, offset = np.zeros((n_classes, member.model.ensemble.n_outputs)), np.zeros(n_classes)
    if n_own == 2:  # the output is the probability of the second class
        weights[positions] = [[-1.0], [1.0]]
        offset[positions[0]] = 1.0
    else:
        weights[positions, np.arange(n_own)] = 1.0
    return weights, offset


def _mean_of_probabilities(
    name: str,
    model: Any,
    members: Sequence[_Fitted],
    weights: np.ndarray,
    classes: Sequence[np.ndarray],
    columns: Sequence[np.ndarray] | None = None,
) -> AdaptedModel:
    """Return the weighted mean of probabilities; ``classes`` are the numbers of the members' classes.

    If there are two classes, the only output is the probability of the second one. ``columns`` are the
    columns of X that each member takes; None if all members take all of them.
    """
    n_classes = len(model.classes_)
    outputs = slice(1, None) if n_classes == 2 else slice(None)
    terms = [_class_weights(name, member, own, n_classes) for member, own in zip(members, classes)]
    columns_of_members: list[np.ndarray | None] = list(columns) if columns else [None] * len(members)
    parts = [
        Member(member.model, weight * own[outputs], own_columns)
        for member, weight, (own, _), own_columns in zip(members, weights, terms, columns_of_members)
    ]
    offset = sum((weight * shift[outputs] for weight, (_, shift) in zip(weights, terms)), np.zeros(1))
    adapted = weighted_sum(name, parts, offset, model.n_features_in_ if columns else None)
    probabilities = _rounded(partial(_probabilities, model), () if columns else members)
    return _classifier(model, adapted, "probability", {"raw": probabilities, "probability": probabilities})


def _classifier(model: Any, adapted: AdaptedModel, binary: Any, predictions: Any) -> AdaptedModel:
    """Add the classes; a sum of probabilities has the link "identity"."""
    classes = tuple(model.classes_.tolist())
    return replace(
        adapted,
        output_names=classes if len(classes) > 2 else None,
        class_names=classes if len(classes) == 2 else None,
        binary=binary if len(classes) == 2 else None,
        link="identity" if binary == "probability" else None,
        squared_error=False,
        predictions=predictions,
    )


def _probabilities(model: Any, X: Any) -> np.ndarray:
    """Return the probabilities of the classes that are outputs."""
    probabilities: np.ndarray = model.predict_proba(X)
    return probabilities[:, 1] if probabilities.shape[1] == 2 else probabilities


def voting_classifier(model: Any) -> AdaptedModel:
    """Return the weighted mean of the probabilities of classifiers."""
    name = type(model).__name__
    if model.voting != "soft":
        raise UnsupportedModelError(
            f"cannot explain a {name} with voting={model.voting!r}: it counts votes, which are no sum of "
            "trees; use voting='soft', or explain each of its estimators_"
        )
    members = _members(name, model.estimators_, ["predict_proba"] * len(model.estimators_))
    n_classes = len(model.classes_)
    for member in members:  # members are trained on the numbers of the classes
        if not np.array_equal(member.estimator.classes_, np.arange(n_classes)):
            raise UnsupportedModelError(
                f"cannot explain a {name} of {type(member.estimator).__name__}, whose classes are not the "
                f"numbers 0 to {n_classes - 1}: train the members by its fit"
            )
    classes = [np.arange(n_classes)] * len(members)
    return _mean_of_probabilities(name, model, members, _normalised(name, model, len(members)), classes)


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
    predictions = {"raw": model.decision_function, "probability": partial(_probabilities, model)}
    adapted = AdaptedModel(ensemble, schema, "sklearn", cover_kind="weight", other_covers=counts_of(trees))
    adapted = _classifier(model, adapted, "margin", predictions)
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

    With None, the method is ``predict_proba`` for classifiers, and ``predict`` for regressors.
    """
    name, n_members = type(model).__name__, len(model.estimators_)
    columns = [np.asarray(own_columns) for own_columns in model.estimators_features_]
    if method is None:
        method = "predict_proba" if is_classifier(model) else "predict"
    members = _members(name, model.estimators_, [method] * n_members)
    weights = np.full(n_members, 1 / n_members)
    if method == "predict_proba":  # members are trained on the numbers of the classes
        classes = [member.estimator.classes_.astype(np.intp) for member in members]
        adapted = _mean_of_probabilities(name, model, members, weights, classes, columns)
    else:
        n_outputs = members[0].model.ensemble.n_outputs
        parts = [
            Member(member.model, weight * np.eye(n_outputs), own_columns)
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
    members = _members(name, model.estimators_, ["predict"] * n_targets)
    for member in members:
        _require_one_output(name, member)
    unit = np.eye(n_targets)
    parts = [Member(member.model, unit[:, [i]]) for i, member in enumerate(members)]
    adapted = weighted_sum(name, parts, np.zeros(n_targets))
    return replace(adapted, predictions={"raw": _rounded(model.predict, members)})


def multi_output_classifier(model: Any) -> AdaptedModel:
    """Return the probabilities of all classes of all targets, or the margins of the members, as outputs."""
    name = type(model).__name__
    members = [_fitted_member(name, estimator) for estimator in model.estimators_]
    labels = [member.estimator.classes_.tolist() for member in members]
    if all(member.returns_margin("predict_proba") for member in members):
        terms = [
            _class_weights(name, member, np.arange(len(own)), len(own))
            for member, own in zip(members, labels)
        ]
        adapted = _beside_each_other(name, members, [w for w, _ in terms], [shift for _, shift in terms])
        names = [(target, label) for target, own in enumerate(labels) for label in own]
        raw = _rounded(partial(_all_probabilities, model), members)
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
    name: str, members: Sequence[_Fitted], weights: Sequence[np.ndarray], offsets: Sequence[np.ndarray]
) -> AdaptedModel:
    """Return a model with the outputs of all members, one after the other; each has its own weights."""
    ends = np.cumsum([len(own) for own in weights])
    parts = []
    for member, own, end in zip(members, weights, ends):
        full = np.zeros((ends[-1], own.shape[1]))
        full[end - len(own) : end] = own
        parts.append(Member(member.model, full))
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


def _require_margins(name: str, member: _Fitted, n_outputs: int) -> None:
    if member.model.ensemble.n_outputs != n_outputs or "raw" not in member.model.predictions:
        raise UnsupportedModelError(
            f"cannot explain a {name} of {type(member.estimator).__name__}: explain each of its members"
        )


def _common_link(members: Iterable[_Fitted]) -> tuple[Any, float]:
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

    The probabilities of more than two classes are normalised, so they are no function of one margin.
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
        member = _fitted_member(name, estimator)
        _require_margins(name, member, 1)
        members.append(member)
        parts.append(Member(member.model, unit[:, [number]]))
        margins.append(member.model.predictions["raw"])
    adapted = weighted_sum(name, parts, offset)
    predictions: dict[str, Callable[[Any], Any]] = {"raw": partial(_margins, margins)}
    link, scale = _common_link(members)
    if len(offset) == 1:
        predictions["probability"] = partial(_probabilities, model)
        binary = "probability" if link == "identity" else "margin"
        adapted = _classifier(model, adapted, binary, predictions)
        return replace(adapted, link=link, link_scale=scale)
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
    members = _members(name, model.estimators_, model.stack_method_)
    ends = np.cumsum([member.model.ensemble.n_outputs for member in members])
    if coefficients.shape[1] != ends[-1]:
        raise UnsupportedModelError(
            f"cannot explain a {name} whose final_estimator_ takes {coefficients.shape[1]} columns, not the "
            f"{ends[-1]} outputs of its members: explain each of its estimators_"
        )
    blocks = np.split(coefficients, ends[:-1], axis=1)
    parts = [Member(member.model, block) for member, block in zip(members, blocks)]
    adapted = replace(weighted_sum(name, parts, intercept), squared_error=False)
    if not is_classifier(model):
        return replace(adapted, predictions={"raw": _rounded(model.predict, members)})
    predictions: dict[str, Any] = {"raw": _rounded(model.decision_function, members)}
    link, scale = _link_of_logistic(linear_model, len(model.classes_))
    if link is not None:
        predictions["probability"] = partial(_probabilities, model)
    return replace(_classifier(model, adapted, "margin", predictions), link=link, link_scale=scale)


def _linear_function(name: str, final: Any, classifies: bool) -> tuple[np.ndarray, np.ndarray, Any]:
    """Return coefficients, (n_outputs, n_columns), and intercepts of a final estimator, and its linear model.

    The steps before the linear model may only be scalers.
    """
    *wrappers, model = nest(final, fitted=True)
    scalers = [step for wrapper in wrappers if isinstance(wrapper, Pipeline) for step in _steps(wrapper)]
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


def calibrated_classifier(model: Any) -> AdaptedModel:
    """Return the log-odds of a classifier of two classes, calibrated by one logistic function."""
    name, pairs = type(model).__name__, model.calibrated_classifiers_
    kinds = {type(calibrator).__name__ for pair in pairs for calibrator in pair.calibrators}
    if len(pairs) != 1 or len(model.classes_) != 2 or kinds != {"_SigmoidCalibration"}:
        raise UnsupportedModelError(
            f"cannot explain a {name} unless it calibrates one classifier of two classes by "
            "method='sigmoid': otherwise it averages or normalises probabilities, or is no function of a sum "
            "of trees; use ensemble=False, or explain the estimator of each of its calibrated_classifiers_"
        )
    estimator, calibrator = pairs[0].estimator, pairs[0].calibrators[0]
    method = "decision_function" if hasattr(estimator, "decision_function") else "predict_proba"
    member = _fitted_member(name, estimator)
    _require_margin(name, member, method)
    _require_one_output(name, member)
    slope, shift = float(calibrator.a_), float(calibrator.b_)
    adapted = weighted_sum(name, [Member(member.model, np.full((1, 1), -slope))], np.array([-shift]))
    predictions = {
        "raw": partial(_calibrated, member.model.predictions["raw"], slope, shift),
        "probability": partial(_probabilities, model),
    }
    return replace(_classifier(model, adapted, "margin", predictions), link="logistic")


def _calibrated(raw: Callable[[Any], Any], slope: float, shift: float, X: Any) -> np.ndarray:
    return -(slope * np.asarray(raw(X)) + shift)


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
