"""Means of the probabilities of classifiers, and calibrated classifiers.

A mean of probabilities is a weighted sum of margins if all members add up probabilities, such as forests.
Otherwise it is a sum of functions of the members' margins (``link_sums.py``), which is explained against
background data as ``model_output="probability"``: the values are the weighted sums of the values of the
members' probabilities.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import is_classifier

from ..errors import UnsupportedModelError
from .link_sums import Isotonic, LinkSum, Sigmoid, Term, added
from .schema import AdaptedModel
from .sklearn_members import (
    Fitted,
    fitted_member,
    probabilities_of,
    require_margin,
    require_one_output,
    with_classes,
)
from .sums import Rounded, weighted_sum


def class_weights(
    name: str, member: Fitted, positions: np.ndarray, n_classes: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return weights and an offset that turn a member's outputs into the probabilities of all classes.

    ``positions`` are the numbers of the member's classes among the classes of the ensemble.
    """
    n_own = len(positions)
    if member.model.n_outputs != (n_own if n_own != 2 else 1):
        raise UnsupportedModelError(
            f"cannot explain a {name} of {type(member.estimator).__name__} with several targets: explain "
            "each of its members"
        )
    weights, offset = np.zeros((n_classes, member.model.n_outputs)), np.zeros(n_classes)
    if n_own == 2:  # the output is the probability of the second class
        weights[positions] = [[-1.0], [1.0]]
        offset[positions[0]] = 1.0
    else:
        weights[positions, np.arange(n_own)] = 1.0
    return weights, offset


def mean_of_probabilities(
    name: str,
    model: Any,
    members: Sequence[Fitted],
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
    terms = []
    for member, weight, positions in zip(members, weights, classes):
        own, shift = class_weights(name, member, positions, n_classes)
        terms.append((weight * own[outputs], weight * shift[outputs]))
    columns_of_members: list[np.ndarray | None] = list(columns) if columns else [None] * len(members)
    n_features = model.n_features_in_ if columns else None
    probabilities = Rounded(partial(probabilities_of, model), _raws(members, columns_of_members))
    if not all(member.returns_margin("predict_proba") for member in members):
        functions = [
            _probability(name, member).scaled(*term) for member, term in zip(members, terms, strict=True)
        ]
        adapted = _margins_beside_each_other(name, members, columns_of_members, n_features)
        return _with_probability(name, model, adapted, added(functions), probabilities)
    parts = [
        member.part(own, own_columns)
        for member, (own, _), own_columns in zip(members, terms, columns_of_members)
    ]
    offset = sum((shift for _, shift in terms), np.zeros(1))
    adapted = weighted_sum(name, parts, offset, n_features)
    return with_classes(model, adapted, "probability", {"raw": probabilities, "probability": probabilities})


def _raws(
    members: Sequence[Fitted], columns: Sequence[np.ndarray | None]
) -> tuple[Callable[[Any], Any], ...]:
    """Return the functions whose dtype says how the members round; each takes the X of the ensemble."""
    functions = []
    for member, own_columns in zip(members, columns, strict=True):
        predictions = member.model.predictions
        raw = predictions.get("raw", predictions.get("probability"))
        if raw is not None:
            functions.append(raw if own_columns is None else partial(_on_columns, raw, own_columns))
    return tuple(functions)


def _on_columns(function: Callable[[Any], Any], columns: np.ndarray, X: Any) -> Any:
    return function((X.tocsc() if sp.issparse(X) else np.asarray(X))[:, columns])


def _probability(name: str, member: Fitted) -> LinkSum:
    """Return the probabilities of a member as a function of its margins."""
    adapted = member.model
    if (function := adapted.functions.get("probability")) is not None:
        return function
    unit = np.eye(adapted.n_outputs)
    is_known = adapted.link in ("identity", "softmax") or (adapted.link == "logistic" and adapted.binary)
    if not (is_known and is_classifier(member.estimator)):
        require_margin(name, member, "predict_proba")
    scale = 1.0 if adapted.link == "identity" else adapted.link_scale
    link: Any = adapted.link
    return LinkSum((Term(link, scale, unit),), np.zeros(len(unit)))


def _margins_beside_each_other(
    name: str, members: Sequence[Fitted], columns: Sequence[np.ndarray | None], n_features: int | None
) -> AdaptedModel:
    """Return a model whose outputs are the margins of all members."""
    counts = [member.model.ensemble.n_outputs for member in members]
    unit = np.split(np.eye(sum(counts)), np.cumsum(counts)[:-1], axis=1)
    parts = [
        member.part(own, own_columns) for member, own, own_columns in zip(members, unit, columns, strict=True)
    ]
    return weighted_sum(name, parts, np.zeros(sum(counts)), n_features)


def _with_probability(
    name: str, model: Any, adapted: AdaptedModel, function: LinkSum, probabilities: Callable[[Any], Any]
) -> AdaptedModel:
    """Return a classifier whose probabilities are a function of the margins of ``adapted``."""
    no_margin = (
        f"this {name} has no margin, because its probabilities are means of functions of the margins of its "
        "members: use model_output='probability' with background rows as data="
    )
    adapted = replace(adapted, functions={"probability": function}, no_margin=no_margin)
    adapted = with_classes(model, adapted, "probability", {"probability": probabilities})
    return replace(adapted, link=None)


def calibrated_classifier(model: Any) -> AdaptedModel:
    """Return the log-odds of a classifier of two classes that is calibrated by one logistic function.

    Other calibrated classifiers have probabilities that are functions of the margins of their members.
    """
    name, pairs = type(model).__name__, model.calibrated_classifiers_
    calibrated = [_Calibrated(name, model, pair) for pair in pairs]
    first = calibrated[0]
    if len(pairs) == 1 and len(model.classes_) == 2 and first.is_margin:
        calibrator = first.calibrators[0]
        if isinstance(calibrator, Sigmoid):
            return _calibrated_margin(name, model, first.member, calibrator)
    functions = [
        own.function.scaled(np.eye(own.n_outputs) / len(pairs), np.zeros(own.n_outputs)) for own in calibrated
    ]
    members = [own.member for own in calibrated]
    adapted = _margins_beside_each_other(name, members, [None] * len(members), None)
    raws = _raws(members, [None] * len(members))
    probabilities = Rounded(partial(probabilities_of, model), raws)
    return _with_probability(name, model, adapted, added(functions), probabilities)


class _Calibrated:
    """A member of a calibrated classifier with its calibrators, which are functions of its margins."""

    def __init__(self, name: str, model: Any, pair: Any) -> None:
        self.member = fitted_member(name, pair.estimator)
        n_classes = len(model.classes_)
        if not np.array_equal(self.member.estimator.classes_, model.classes_):
            raise UnsupportedModelError(
                f"cannot explain a {name} with a member that has seen only some of the {n_classes} classes: "
                "use ensemble=False, or fewer folds, or explain each of its calibrated_classifiers_"
            )
        self.n_outputs = n_classes if n_classes > 2 else 1
        self.calibrators = tuple(_calibrator(name, calibrator) for calibrator in pair.calibrators)
        method = "decision_function" if hasattr(pair.estimator, "decision_function") else "predict_proba"
        self.is_margin = self.member.returns_margin(method)
        link: Any = "identity"
        scale = 1.0
        if method == "decision_function":
            require_margin(name, self.member, method)
        elif not self.is_margin:
            link, scale = self._only_link(name)
        if len(self.calibrators) != self.n_outputs or self.member.model.ensemble.n_outputs != self.n_outputs:
            require_one_output(name, self.member)
        term = Term(link, scale, np.eye(self.n_outputs), self.calibrators, is_normalised=n_classes > 2)
        self.function = LinkSum((term,), np.zeros(self.n_outputs))

    def _only_link(self, name: str) -> tuple[Any, float]:
        """Return the link of the member's probabilities, and its scale."""
        terms = _probability(name, self.member).terms
        if len(terms) > 1 or terms[0].calibrators:
            raise UnsupportedModelError(
                f"cannot explain a {name} of {type(self.member.estimator).__name__}, whose probabilities are "
                "means of functions themselves: explain the estimator of each of its calibrated_classifiers_"
            )
        return terms[0].link, terms[0].scale


def _calibrator(name: str, calibrator: Any) -> Sigmoid | Isotonic:
    kind = type(calibrator).__name__
    if kind == "_SigmoidCalibration":
        return Sigmoid(float(calibrator.a_), float(calibrator.b_))
    if kind == "IsotonicRegression" and calibrator.out_of_bounds == "clip" and calibrator.increasing_:
        x, y = (np.asarray(a, np.float64) for a in (calibrator.X_thresholds_, calibrator.y_thresholds_))
        return Isotonic(x, y)
    raise UnsupportedModelError(
        f"cannot explain a {name} with a calibrator of the class {kind}: use method='sigmoid' or 'isotonic', "
        "or explain the estimator of each of its calibrated_classifiers_"
    )


def _calibrated_margin(name: str, model: Any, member: Fitted, calibrator: Sigmoid) -> AdaptedModel:
    """Return the log-odds, which are a factor and a shift of the margin."""
    slope, shift = calibrator.factor, calibrator.shift
    adapted = weighted_sum(name, [member.part(np.full((1, 1), -slope))], np.array([-shift]))
    predictions = {
        "raw": partial(_calibrated, member.model.predictions["raw"], slope, shift),
        "probability": partial(probabilities_of, model),
    }
    return replace(with_classes(model, adapted, "margin", predictions), link="logistic")


def _calibrated(raw: Callable[[Any], Any], slope: float, shift: float, X: Any) -> np.ndarray:
    return -(slope * np.asarray(raw(X)) + shift)
