"""Rejection of subclasses whose predictions differ from what the adapters read from the trees."""

from __future__ import annotations

from typing import Any

from ..errors import UnsupportedModelError

#: Methods that return predictions.
_PREDICTION_METHODS = (
    "predict",
    "predict_proba",
    "predict_log_proba",
    "decision_function",
    "score_samples",
    "inplace_predict",  # XGBoost
    "pred_param",  # NGBoost
    "pred_dist",
)


def require_own_predictions(model: Any, package: str, advice: str = "") -> None:
    """Reject a model whose predictions come from a third-party subclass.

    Raise ``UnsupportedModelError`` if a class outside the library, whose top-level package is ``package``,
    and outside scikit-learn defines a method that returns predictions. ``advice`` is the end of the error
    message, which says what to pass instead.
    """
    for method in _PREDICTION_METHODS:
        require_own_method(type(model).__name__, type(model), method, package, advice)


def require_own_method(name: str, cls: type, method: str, package: str, advice: str = "") -> None:
    """Reject a class whose ``method`` a third party has defined; ``name`` is the class in the message."""
    owner = next((base for base in cls.__mro__ if method in vars(base)), None)
    if owner is not None and owner.__module__.partition(".")[0] not in (package, "sklearn"):
        path = f"{owner.__module__}.{owner.__qualname__}"
        raise UnsupportedModelError(f"cannot explain a {name}: {path} has a {method} of its own{advice}")
