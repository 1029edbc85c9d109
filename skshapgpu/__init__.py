"""Exact SHAP values for tree ensembles."""

from ._versions import show_versions
from .adapters import register_adapter
from .errors import UnsupportedModelError
from .explainer import TreeExplainer, explain
from .explanation import Explanation
from .transformers import ShapTransformer

__version__ = "0.1.0"

__all__ = [
    "Explanation",
    "ShapTransformer",
    "TreeExplainer",
    "UnsupportedModelError",
    "explain",
    "register_adapter",
    "show_versions",
]
