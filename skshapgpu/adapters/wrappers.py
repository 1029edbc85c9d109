"""Models that predict with another model: pipelines, searches, frozen estimators and similar wrappers.

A wrapper predicts with the model inside it; a pipeline applies its other steps first. The table
:data:`_WRAPPERS` lists the classes, and all code walks through them by :func:`nest`. A class of another
package that computes its own predictions is rejected, because they may differ from the predictions of the
model inside.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer

from ..errors import UnsupportedModelError
from . import registered


@dataclass(frozen=True)
class _Wrapper:
    """Description of a wrapper class: the attributes that hold the model that predicts for it."""

    #: Attributes that may hold the fitted model. The first one that exists is used.
    fitted: tuple[str, ...]
    unfitted: str = "estimator"  # attribute that holds the model before it is fitted
    #: Packages whose subclasses and similar classes predict in the same way.
    packages: tuple[str, ...] = ("sklearn",)


_SEARCH = _Wrapper(
    ("best_estimator_",), packages=("sklearn", "skopt", "optuna", "optuna_integration", "dask_ml")
)

#: Wrappers by top-level package and name of the class, so that a lookup imports no module.
_WRAPPERS = {
    ("sklearn", "Pipeline"): _Wrapper(("steps",), "steps", ("sklearn", "imblearn")),
    ("sklearn", "FrozenEstimator"): _Wrapper(("estimator",)),
    ("sklearn", "BaseSearchCV"): _SEARCH,
    ("sklearn", "BaseThresholdClassifier"): _Wrapper(("estimator_", "estimator")),
    ("sklearn", "RFE"): _Wrapper(("estimator_",)),
    ("sklearn", "SelfTrainingClassifier"): _Wrapper(("estimator_",)),
    ("sklearn", "TransformedTargetRegressor"): _Wrapper(("regressor_",), "regressor"),
    ("skshapgpu", "ExplainingTransformer"): _Wrapper(("estimator_",), packages=("sklearn", "skshapgpu")),
}

#: Methods that make predictions, or that scikit-learn's prediction methods call.
_PREDICTING = (
    "predict",
    "predict_proba",
    "predict_log_proba",
    "decision_function",
    "score_samples",
    "transform",
    "_transform",
    "_get_support_mask",
    "_iter",
    "__getattr__",
)


def nest(model: Any, *, fitted: bool = False) -> Iterator[Any]:
    """Yield a model, then the model that it wraps, and so on to the innermost model.

    With ``fitted``, all of these models must be fitted; otherwise, unfitted models are yielded as they are.
    Raise ``NotFittedError`` if a model must be fitted, but is not. Raise ``UnsupportedModelError`` if a class
    of another package computes predictions of its own, a pipeline ends without a model, or a search kept
    none.
    """
    yield model
    while (wrapper := wrapper_of(model)) is not None:
        name = type(model).__name__
        fitted_attribute = next((a for a in wrapper.fitted if hasattr(model, a)), None)
        if fitted_attribute is None and fitted:
            if hasattr(model, "cv_results_"):
                raise UnsupportedModelError(f"this {name} kept no model: use refit=True")
            raise NotFittedError(f"this {name} is not fitted yet: call fit first")
        attribute = fitted_attribute or wrapper.unfitted
        inner_model = getattr(model, attribute)
        if isinstance(model, Pipeline):
            inner_model = inner_model[-1][1] if inner_model else None
            if inner_model is None or isinstance(inner_model, str):
                raise UnsupportedModelError(f"cannot explain a {name} whose last step is no model")
        if (method := overridden(model, _PREDICTING)) is not None:
            inner = "last step" if isinstance(model, Pipeline) else attribute
            raise UnsupportedModelError(
                f"cannot explain a {name}: {method} is its own, so it need not predict what its {inner} "
                f"does. Explain its {inner}, or register an adapter for the class"
            )
        model = inner_model
        yield model


def is_self_training(model: Any) -> bool:
    """Return whether a model is a ``SelfTrainingClassifier``, to which the label -1 means unlabelled."""
    return is_a(model, "sklearn", "SelfTrainingClassifier")


def overridden(model: Any, methods: Sequence[str]) -> str | None:
    """Return the first method of a wrapper that is from an unknown package, or None if there is none."""
    wrapper = wrapper_of(model)
    assert wrapper is not None
    packages = {"builtins", *wrapper.packages}
    for method in methods:
        if method in getattr(model, "__dict__", ()):
            return f"the {method} that was set on it"
        owner = next((base for base in type(model).__mro__ if method in vars(base)), object)
        if owner.__module__.partition(".")[0] not in packages:
            return f"{owner.__module__}.{owner.__qualname__}.{method}"
    return None


def wrapper_of(model: Any) -> _Wrapper | None:
    """Return the description of a model's class, or None if the class is no wrapper."""
    if registered(model) is not None:
        return None
    for base in type(model).__mro__:
        wrapper = _WRAPPERS.get((base.__module__.partition(".")[0], base.__name__))
        if wrapper is not None:
            return wrapper if _keeps_target(model) else None
    return _SEARCH if hasattr(model, "best_estimator_") else None


def _keeps_target(model: Any) -> bool:
    """Return whether a model predicts the target of the model inside without transforming it."""
    if not is_a(model, "sklearn", "TransformedTargetRegressor"):
        return True
    transformer = getattr(model, "transformer_", model.transformer)
    if transformer is None:
        transformer = model  # not fitted yet
    elif type(transformer) is not FunctionTransformer:
        return False
    return transformer.func is None and transformer.inverse_func is None


def is_a(model: Any, package: str, name: str) -> bool:
    """Return whether a class of the model has this name and package, without importing the package."""
    return any(
        base.__name__ == name and base.__module__.partition(".")[0] == package for base in type(model).__mro__
    )
