"""Exact SHAP values for tree ensembles."""

from typing import TYPE_CHECKING, Any

from ._versions import __version__, show_versions
from .adapters import register_adapter
from .devices import cuda_info
from .displays import (
    ShapBarDisplay,
    ShapBeeswarmDisplay,
    ShapDependenceDisplay,
    ShapInteractionDisplay,
    ShapWaterfallDisplay,
)
from .errors import UnsupportedModelError
from .explainer import TreeExplainer, explain
from .explanation import Explanation
from .importance import shap_importance
from .interaction_explanation import InteractionExplanation
from .model_selection import cross_val_explain
from .transformers import ShapInteractionTransformer, ShapTransformer

if TYPE_CHECKING:
    from .selection import ShapSelector

__all__ = [
    "Explanation",
    "InteractionExplanation",
    "ShapBarDisplay",
    "ShapBeeswarmDisplay",
    "ShapDependenceDisplay",
    "ShapInteractionDisplay",
    "ShapInteractionTransformer",
    "ShapSelector",
    "ShapTransformer",
    "ShapWaterfallDisplay",
    "TreeExplainer",
    "UnsupportedModelError",
    "__version__",
    "cross_val_explain",
    "cuda_info",
    "explain",
    "register_adapter",
    "shap_importance",
    "show_versions",
]


def __getattr__(name: str) -> Any:
    # scikit-learn's selectors, on which ours is built, take as long to import as all of the above.
    if name == "ShapSelector":
        from .selection import ShapSelector

        return ShapSelector
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
