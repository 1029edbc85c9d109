"""What a fitted pipeline, search or frozen estimator stands for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline

from .errors import UnsupportedModelError


def unwrap(model: Any) -> tuple[list[Any], Any]:
    """The steps that transform X, and the model proper, of any nest of what stands for a model.

    A transformer of this package stands for its model.

    Raises
    ------
    NotFittedError
        A search, or a transformer of this package, is not fitted.
    UnsupportedModelError
        A pipeline ends without a model, or a search kept none.
    """
    steps: list[Any] = []
    while True:
        if isinstance(model, Pipeline):
            steps += [step for _, step in model.steps[:-1] if not (step is None or isinstance(step, str))]
            model = model.steps[-1][1]
            if model is None or isinstance(model, str):
                raise UnsupportedModelError("cannot explain a Pipeline whose last step is no model")
        elif isinstance(model, FrozenEstimator):
            model = model.estimator
        elif _is_a(model, "ExplainingTransformer"):
            if not hasattr(model, "estimator_"):
                raise NotFittedError(f"this {type(model).__name__} is not fitted yet: call fit first")
            model = model.estimator_
        elif hasattr(model, "best_estimator_"):
            model = model.best_estimator_
        elif _is_a(model, "BaseSearchCV"):
            if hasattr(model, "cv_results_"):
                raise UnsupportedModelError(f"this {type(model).__name__} kept no model: use refit=True")
            raise NotFittedError(f"this {type(model).__name__} is not fitted yet: call fit first")
        else:
            return steps, model


def nest(model: Any) -> Iterator[Any]:
    """A model, fitted or not, and what it stands for, from the outside in."""
    while True:
        yield model
        if isinstance(model, Pipeline):
            model = model.steps[-1][1]
        elif isinstance(model, FrozenEstimator) or _is_a(model, "ExplainingTransformer"):
            model = model.estimator
        elif hasattr(model, "best_estimator_") or _is_a(model, "BaseSearchCV"):
            model = getattr(model, "best_estimator_", model.estimator)
        else:
            return


def _is_a(model: Any, name: str) -> bool:
    """Whether a class of the model has this name; its module may not be known here, or be private."""
    return any(base.__name__ == name for base in type(model).__mro__)


@dataclass(frozen=True, eq=False)
class Prepared:
    """X, and what the leading steps of a pipeline made of it."""

    given: Any
    made: Any


def prepare(steps: Sequence[Any], X: Any) -> Prepared:
    """Send X through the steps."""
    made = X
    for step in steps:
        made = step.transform(made)
    return Prepared(X, made)


def names_behind(steps: Sequence[Any], names: Any) -> list[str] | None:
    """Names of the columns that the steps make of columns with these names; None if they do not say.

    A step that gives no names loses those before it; what comes after it starts with the names that it
    was fitted with, as scikit-learn has it.
    """
    for step in steps:
        try:
            names = step.get_feature_names_out(names)
        except AttributeError:  # not there, or not in a part of the step
            names = None
    return None if names is None else list(map(str, names))


def unique(names: Sequence[str]) -> list[str]:
    """The names, those that occur several times with their positions: "a [0]", "a [2]"."""
    count = Counter(names)
    marked = [f"{name} [{i}]" if count[name] > 1 else name for i, name in enumerate(names)]
    return marked if len(set(marked)) == len(marked) else [f"x{i}" for i in range(len(names))]
