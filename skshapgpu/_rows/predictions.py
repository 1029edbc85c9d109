"""Predictions by the model of the user: its own wrappers and steps around a function of the innermost model.

An explainer reads wrappers and steps by itself (``pipelines.py``). To compare it with the model, X must pass
through the model's own wrappers and steps, but end in the margin of the innermost model instead of
``predict``.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

from sklearn.pipeline import Pipeline

from ..adapters.wrappers import is_self_training, nest
from .pipelines import steps_before


class _Innermost:
    """A fitted model whose ``predict`` is replaced by a function. Its other attributes are unchanged."""

    def __init__(self, model: Any, predict: Callable[[Any], Any]) -> None:
        self._model = model
        self.predict = predict

    def fit(self, X: Any, y: Any = None) -> _Innermost:  # pipelines require this method
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


def through_wrappers(model: Any, predict: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function of X as ``model`` takes it.

    ``model`` is a fitted model, or pipelines, selectors and other wrappers around one. The function calls
    ``predict`` of the wrappers, which transform X, with ``predict`` inside, which is a function of X as the
    innermost model takes it.
    """
    *wrappers, innermost = nest(model, fitted=True)
    inner: Any = None
    for wrapper in reversed(wrappers):
        if isinstance(wrapper, Pipeline):
            outer = copy(wrapper)
            outer.steps = [
                *wrapper.steps[:-1],
                (wrapper.steps[-1][0], inner or _Innermost(innermost, predict)),
            ]
        elif is_self_training(wrapper) or steps_before(wrapper):
            outer = copy(wrapper)
            outer.estimator_ = inner or _Innermost(innermost, predict)
        else:
            continue  # this wrapper passes X on as it is
        inner = outer
    return predict if inner is None else inner.predict
