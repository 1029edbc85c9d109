"""Errors raised by skshapgpu that have no standard name."""


class UnsupportedModelError(NotImplementedError):
    """The model, or a feature that it uses, cannot be explained exactly.

    Other errors mean something else: ``ValueError`` or ``TypeError`` that data are invalid, and
    ``sklearn.exceptions.NotFittedError`` that a model is not fitted.
    """


class PredictionMismatchError(RuntimeError):
    """The explained prediction differs from the model's own beyond rounding; the message shows both."""


class ShapFallbackWarning(UserWarning):
    """Under :func:`patch_shap`, shap computes a result itself; the message says why."""
