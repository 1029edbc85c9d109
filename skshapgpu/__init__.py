"""Exact SHAP values for tree ensembles."""

from ._versions import show_versions
from .adapters import register_adapter
from .devices import cuda_info
from .display import ShapInteractionDisplay
from .errors import UnsupportedModelError
from .explainer import TreeExplainer, explain
from .explanation import Explanation
from .interaction_explanation import InteractionExplanation
from .transformers import ShapInteractionTransformer, ShapTransformer

__version__ = "0.1.0"

__all__ = [
    "Explanation",
    "InteractionExplanation",
    "ShapInteractionDisplay",
    "ShapInteractionTransformer",
    "ShapTransformer",
    "TreeExplainer",
    "UnsupportedModelError",
    "cuda_info",
    "explain",
    "register_adapter",
    "show_versions",
]
