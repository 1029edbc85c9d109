"""Predictions by the model of the user: its own wrappers and steps around a method of the innermost model.

An explainer reads wrappers and steps by itself (``pipelines.py``). To be compared with what the model
predicts, it needs their own way from X to the innermost model, but the margin of that model instead of its
``predict``.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

from sklearn.pipeline import Pipeline

from .pipelines import is_self_training, nest, steps_before


class _Innermost:
    """A fitted model whose ``predict`` is another function; all else is the model's own."""

    def __init__(self, model: Any, predict: Callable[[Any], Any]) -> None:
        self._model = model
        self.predict = predict

    def fit(self, X: Any, y: Any = None) -> _Innermost:  # pipelines insist that it exists
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


def through_wrappers(model: Any, predict: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function of X as ``model`` takes it.

    Parameters
    ----------
    model : estimator
        A fitted model, or pipelines, selectors and other wrappers around one.
    predict : callable
        Function of X as the innermost model takes it.

    Returns
    -------
    callable
        Function that calls ``predict`` of the wrappers, which transform X, with ``predict`` inside.
    """
    *wrappers, innermost = nest(model, fitted=True)
    inside: Any = None
    for wrapper in reversed(wrappers):
        if isinstance(wrapper, Pipeline):
            outer = copy(wrapper)
            outer.steps = [
                *wrapper.steps[:-1],
                (wrapper.steps[-1][0], inside or _Innermost(innermost, predict)),
            ]
        elif is_self_training(wrapper) or steps_before(wrapper):
            outer = copy(wrapper)
            outer.estimator_ = inside or _Innermost(innermost, predict)
        else:
            continue  # it hands X on as it is
        inside = outer
    return predict if inside is None else inside.predict
