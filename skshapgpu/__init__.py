"""Exact SHAP values for tree ensembles."""

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
from .interaction_explanation import InteractionExplanation
from .transformers import ShapInteractionTransformer, ShapTransformer

__all__ = [
    "Explanation",
    "InteractionExplanation",
    "ShapBarDisplay",
    "ShapBeeswarmDisplay",
    "ShapDependenceDisplay",
    "ShapInteractionDisplay",
    "ShapInteractionTransformer",
    "ShapTransformer",
    "ShapWaterfallDisplay",
    "TreeExplainer",
    "UnsupportedModelError",
    "__version__",
    "cuda_info",
    "explain",
    "register_adapter",
    "show_versions",
]
