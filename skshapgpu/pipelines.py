"""What a fitted pipeline, search or frozen estimator stands for."""

from __future__ import annotations

from typing import Any

from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline

from .errors import UnsupportedModelError


def unwrap(model: Any) -> tuple[list[Any], Any]:
    """The steps that transform X, and the model proper, of any nest of pipelines and searches.

    Raises
    ------
    NotFittedError
        A search is not fitted.
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
        elif hasattr(model, "best_estimator_"):
            model = model.best_estimator_
        elif any(base.__name__ == "BaseSearchCV" for base in type(model).__mro__):
            if hasattr(model, "cv_results_"):
                raise UnsupportedModelError(f"this {type(model).__name__} kept no model: use refit=True")
            raise NotFittedError(f"this {type(model).__name__} is not fitted yet: call fit first")
        else:
            return steps, model
