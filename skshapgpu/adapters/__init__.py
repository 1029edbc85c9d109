"""Adapters that read a fitted model into an :class:`~skshapgpu.adapters.AdaptedModel`.

Registered adapters are found by the full class path of a model or of a base class, all others by the
top-level package. A family's module is imported only when a model of that family arrives, so no model
library is ever imported on behalf of another.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import UnsupportedModelError
from .ensemble import Ensemble, Tree
from .schema import AdaptedModel, Column, ColumnEncoder, DerivedColumns, InputSchema

if TYPE_CHECKING:
    from .combined import sum_of_models

#: Names for code that defines an adapter or adds up models. :func:`register_adapter` is in skshapgpu, too.
__all__ = [
    "AdaptedModel",
    "Column",
    "ColumnEncoder",
    "DerivedColumns",
    "Ensemble",
    "InputSchema",
    "Tree",
    "register_adapter",
    "sum_of_models",
]


class Family(NamedTuple):
    """A model library: the module here whose ``adapt`` reads its models, and the package to install."""

    module: str
    distribution: str


#: Model libraries by the top-level package of a model's class.
FAMILIES = {
    "sklearn": Family("sklearn", "scikit-learn"),
    "xgboost": Family("xgboost", "xgboost"),
    "lightgbm": Family("lightgbm", "lightgbm"),
    "catboost": Family("catboost.model", "catboost"),
    "treelite": Family("treelite", "treelite"),
    "cuml": Family("treelite", "cuml"),
    "ngboost": Family("ngboost", "ngboost"),
    "sksurv": Family("sksurv", "scikit-survival"),
    "quantile_forest": Family("quantile_forest", "quantile-forest"),
    "imblearn": Family("imbalanced_learn", "imbalanced-learn"),
    "econml": Family("econml", "econml"),
    "causalml": Family("causalml", "causalml"),
    "gpboost": Family("gpboost", "gpboost"),
    "pyod": Family("pyod", "pyod"),
    "skopt": Family("scikit_optimize", "scikit-optimize"),
    "onnx": Family("onnx.model", "onnx"),
    "pyspark": Family("spark_ml.model", "pyspark"),
}
#: Adapters of :func:`register_adapter`, by class path.
_REGISTERED: dict[str, Callable[[Any], AdaptedModel]] = {}


def register_adapter(class_path: str, adapter: Callable[[Any], AdaptedModel]) -> None:
    """Register an adapter for another family of models.

    Parameters
    ----------
    class_path : str
        ``"package.module.Class"`` of the model, or of one of its base classes.
    adapter : callable
        Takes the fitted model and returns an :class:`~skshapgpu.adapters.AdaptedModel`.

    Raises
    ------
    TypeError
        ``class_path`` is not a string, but for example the class itself; or ``adapter`` cannot be called.
    ValueError
        ``class_path`` does not name a module and a class.
    """
    if not isinstance(class_path, str):
        path = f"{class_path.__module__}.{class_path.__qualname__}" if isinstance(class_path, type) else None
        raise TypeError(
            f"class_path must be the name of a class, {path or 'package.module.Class'!r}, "
            f"not {'the class itself' if path else type(class_path).__name__}"
        )
    if not all(class_path.rpartition(".")):
        raise ValueError(f"class_path must be of the form 'package.module.Class', not {class_path!r:.80}")
    if not callable(adapter):
        raise TypeError(f"adapter must be callable, not {type(adapter).__name__}")
    _REGISTERED[class_path] = adapter


def __getattr__(name: str) -> Any:
    """Import the function for sums of models, which imports the adapters that it needs, at its first use."""
    if name == "sum_of_models":
        return importlib.import_module("skshapgpu.adapters.combined").sum_of_models
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def registered(model: Any) -> Callable[[Any], AdaptedModel] | None:
    """Return the adapter registered for a model's class or one of its base classes, or None."""
    paths = (f"{base.__module__}.{base.__qualname__}" for base in type(model).__mro__)
    return next((_REGISTERED[path] for path in paths if path in _REGISTERED), None)


def adapt(model: Any) -> AdaptedModel:
    """Read a fitted model of any known family, a dictionary of trees, or the path or content of a model file.

    An :class:`~skshapgpu.adapters.AdaptedModel` is returned unchanged.

    Raise ``UnsupportedModelError`` if the family is unknown, or the model uses something that cannot be
    explained exactly; ``NotFittedError`` if the model is not fitted; ``TypeError`` if ``model`` is a class,
    a function or rows instead of a fitted model, or the result of a registered adapter is not an
    ``AdaptedModel``; ``ValueError`` if ``model`` is a path or bytes, but there is no valid model file.
    ``files.adapt`` says which other errors files can raise.
    """
    if isinstance(model, (str, os.PathLike, bytes)):
        return importlib.import_module("skshapgpu.adapters.files").adapt(model)
    if isinstance(model, AdaptedModel):
        return model
    if isinstance(model, dict) and "trees" in model:
        return importlib.import_module("skshapgpu.adapters.tree_dictionary").adapt(model)
    if isinstance(model, type):
        raise TypeError(f"expected a fitted model, got the class {model.__name__}; pass an instance")
    adapter = registered(model)
    if adapter is not None:
        adapted = adapter(model)
        if not isinstance(adapted, AdaptedModel):
            name = getattr(adapter, "__qualname__", repr(adapter))
            raise TypeError(
                f"the adapter {name:.80} of {type(model).__qualname__} returned {type(adapted).__name__}: an "
                "adapter must return a skshapgpu.adapters.AdaptedModel"
            )
        return adapted
    for base in type(model).__mro__:
        package = base.__module__.partition(".")[0]
        if package in FAMILIES:
            return importlib.import_module(f".{FAMILIES[package].module}", __name__).adapt(model)
    if isinstance(model, (MethodType, FunctionType)):
        raise TypeError(
            f"expected a fitted model, got the function {model.__qualname__}: pass the model itself, whose "
            "trees are read"
        )
    if hasattr(model, "shape") and not hasattr(model, "predict"):
        raise TypeError(
            f"expected a fitted model, got a {type(model).__qualname__}: pass the model first, then the rows"
        )
    if type(model).__module__.partition(".")[0] == __name__.partition(".")[0]:
        raise UnsupportedModelError(
            f"cannot explain a {type(model).__qualname__}: pass the fitted model that it was made from"
        )
    raise UnsupportedModelError(
        f"cannot explain a {type(model).__module__}.{type(model).__qualname__}: it is not a tree "
        "model of a supported library, and no adapter is registered for it"
    )
