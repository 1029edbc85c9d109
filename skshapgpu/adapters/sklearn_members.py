"""Members of scikit-learn's ensembles: fitted models, and which of their methods return the margin."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline

from ..errors import UnsupportedModelError
from . import adapt
from .lightgbm import FromFrame
from .schema import AdaptedModel
from .sums import Member, Rounded
from .wrappers import is_a, is_self_training, nest


@dataclass(frozen=True, eq=False)
class Fitted:
    """A fitted member of an ensemble."""

    estimator: Any  # the innermost model: pipelines, searches and the like are unwrapped
    model: AdaptedModel  # its predictions take the X of the ensemble
    steps: tuple[Any, ...]  # the steps of pipelines around it
    raw: Callable[[Any], Any] | None  # prediction of the margin for an X that the steps have transformed

    def part(self, weights: np.ndarray, columns: np.ndarray | None = None) -> Member:
        """Return the member as a sum takes it."""
        return Member(self.model, weights, columns, self.steps)

    def returns_margin(self, method: str) -> bool:
        """Return whether a method of the estimator returns the margin of the model."""
        if method == "predict" and self.model.family == "catboost" and self.model.squared_error:
            return True
        if method == "predict_proba":
            return self.model.link == "identity" and is_classifier(self.estimator)
        raw = self.raw.predict if isinstance(self.raw, FromFrame | Rounded) else self.raw
        return raw is not None and raw == getattr(self.estimator, method, None)


def fitted_member(name: str, estimator: Any) -> Fitted:
    """Read a member of an ensemble whose class is ``name``; raise ``UnsupportedModelError`` if it cannot."""
    *wrappers, model = nest(estimator, fitted=True)
    steps: list[Any] = []
    for wrapper in wrappers:
        if isinstance(wrapper, Pipeline):
            steps += steps_of(wrapper)
        if is_a(wrapper, "sklearn", "RFE") or is_self_training(wrapper):
            raise UnsupportedModelError(
                f"cannot explain a {name} of {type(wrapper).__name__}: explain each of its members"
            )
    try:
        adapted = adapt(model)
    except UnsupportedModelError as error:
        raise UnsupportedModelError(
            f"cannot explain a {name} of {type(model).__name__}: {error}. Explain each of its members"
        ) from error
    raw = adapted.predictions.get("raw")
    if steps:
        behind = {key: partial(_after_steps, own, steps) for key, own in adapted.predictions.items()}
        adapted = replace(adapted, predictions=behind)
    return Fitted(model, adapted, tuple(steps), raw)


def _after_steps(predict: Callable[[Any], Any], steps: Sequence[Any], X: Any) -> Any:
    for step in steps:
        X = step.transform(X)
    return predict(X)


def steps_of(pipeline: Pipeline) -> list[Any]:
    """Return the steps of a pipeline that transform X."""
    steps = (step for _, step in pipeline.steps[:-1] if not (step is None or isinstance(step, str)))
    return [step for step in steps if not hasattr(step, "fit_resample")]  # samplers act in fit only


def require_margin(name: str, member: Fitted, method: str) -> None:
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
        reason, advice = f"takes {method}, which is not known to be a sum of trees", ""
        if method == "predict":
            advice = ", or train them on a transformed target with the squared error"
    raise UnsupportedModelError(
        f"cannot explain a {name} of {kind}: the ensemble {reason}; explain each of its members{advice}"
    )


def members_of(name: str, estimators: Iterable[Any], methods: Sequence[str] | None = None) -> list[Fitted]:
    """Return the members. If there are methods, each member returns its margin by the one with its number."""
    estimators = list(estimators)
    if not estimators:
        raise NotFittedError(f"This {name} instance is not fitted yet: it has no members.")
    members = [fitted_member(name, estimator) for estimator in estimators]
    for member, method in zip(members, methods or (), strict=methods is not None):
        require_margin(name, member, method)
    return members


def rounded(predict: Callable[[Any], Any], members: Iterable[Fitted]) -> Rounded:
    raws = (member.model.predictions.get("raw") for member in members)
    return Rounded(predict, tuple(raw for raw in raws if raw is not None))


def require_one_output(name: str, member: Fitted) -> None:
    if member.model.ensemble.n_outputs > 1:
        raise UnsupportedModelError(
            f"cannot explain a {name} of {type(member.estimator).__name__} with several outputs: explain "
            "each of its members"
        )


def with_classes(model: Any, adapted: AdaptedModel, binary: Any, predictions: Any) -> AdaptedModel:
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


def probabilities_of(model: Any, X: Any) -> np.ndarray:
    """Return the probabilities of the classes that are outputs."""
    probabilities: np.ndarray = model.predict_proba(X)
    return probabilities[:, 1] if probabilities.shape[1] == 2 else probabilities
