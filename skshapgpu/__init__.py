"""Exact SHAP values for tree ensembles."""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ._versions import __version__, show_versions

if find_spec(f"{__name__}._core") is None:
    # A checkout in the current folder takes precedence over an installed package.
    raise ImportError(
        f"skshapgpu in {__path__[0]!r} has not been compiled: run 'pip install -e .' in the folder above, or "
        "start Python in another folder if skshapgpu is installed"
    )

if TYPE_CHECKING:
    from ._common.devices import cuda_info
    from ._dependence.friedman import friedman_h
    from ._dependence.partial import partial_dependence
    from ._drift.comparing import compare_explanations
    from ._drift.comparison import ExplanationComparison
    from ._engine.call_plans import CallPlan
    from ._estimators.boruta import ShapBoruta
    from ._estimators.cross_validation import cross_val_explain
    from ._estimators.elimination import ShapRFECV
    from ._estimators.importance import shap_importance
    from ._estimators.selector import ShapSelector
    from ._estimators.transformers import ShapInteractionTransformer, ShapTransformer
    from ._explanations.cohorts import Cohorts
    from ._explanations.interactions import InteractionExplanation
    from ._explanations.values import Explanation
    from ._shap.patch import ShapPatch, patch_shap
    from .adapters import register_adapter
    from .batches import BatchesResult, explain_batches
    from .displays import (
        ShapBarDisplay,
        ShapBeeswarmDisplay,
        ShapComparisonDisplay,
        ShapDependenceDisplay,
        ShapInteractionDisplay,
        ShapWaterfallDisplay,
    )
    from .errors import PredictionMismatchError, ShapFallbackWarning, UnsupportedModelError
    from .explainer import TreeExplainer, explain, explain_interactions

__all__ = [
    "BatchesResult",
    "CallPlan",
    "Cohorts",
    "Explanation",
    "ExplanationComparison",
    "InteractionExplanation",
    "PredictionMismatchError",
    "ShapBarDisplay",
    "ShapBeeswarmDisplay",
    "ShapBoruta",
    "ShapComparisonDisplay",
    "ShapDependenceDisplay",
    "ShapFallbackWarning",
    "ShapInteractionDisplay",
    "ShapInteractionTransformer",
    "ShapPatch",
    "ShapRFECV",
    "ShapSelector",
    "ShapTransformer",
    "ShapWaterfallDisplay",
    "TreeExplainer",
    "UnsupportedModelError",
    "__version__",
    "compare_explanations",
    "cross_val_explain",
    "cuda_info",
    "explain",
    "explain_batches",
    "explain_interactions",
    "friedman_h",
    "partial_dependence",
    "patch_shap",
    "register_adapter",
    "shap_importance",
    "show_versions",
]


#: Modules of the public names. Each is imported when one of its names is first used: importing scikit-learn
#: takes a second, which the command line need not wait for to print its help.
_MODULES = {
    "BatchesResult": "batches",
    "CallPlan": "_engine.call_plans",
    "Cohorts": "_explanations.cohorts",
    "Explanation": "_explanations.values",
    "ExplanationComparison": "_drift.comparison",
    "InteractionExplanation": "_explanations.interactions",
    "PredictionMismatchError": "errors",
    "ShapBarDisplay": "displays",
    "ShapBeeswarmDisplay": "displays",
    "ShapBoruta": "_estimators.boruta",
    "ShapComparisonDisplay": "displays",
    "ShapDependenceDisplay": "displays",
    "ShapFallbackWarning": "errors",
    "ShapInteractionDisplay": "displays",
    "ShapInteractionTransformer": "_estimators.transformers",
    "ShapPatch": "_shap.patch",
    "ShapRFECV": "_estimators.elimination",
    "ShapSelector": "_estimators.selector",
    "ShapTransformer": "_estimators.transformers",
    "ShapWaterfallDisplay": "displays",
    "TreeExplainer": "explainer",
    "UnsupportedModelError": "errors",
    "compare_explanations": "_drift.comparing",
    "cross_val_explain": "_estimators.cross_validation",
    "cuda_info": "_common.devices",
    "explain": "explainer",
    "explain_batches": "batches",
    "explain_interactions": "explainer",
    "friedman_h": "_dependence.friedman",
    "partial_dependence": "_dependence.partial",
    "patch_shap": "_shap.patch",
    "register_adapter": "adapters",
    "shap_importance": "_estimators.importance",
}


#: Modules with further public names, which ``skshapgpu.batches`` and the like import as well.
_PUBLIC_MODULES = ("adapters", "batches", "distributed", "mlflow", "reference")


def __getattr__(name: str) -> Any:
    if name in _PUBLIC_MODULES:
        return import_module(f".{name}", __name__)
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f".{_MODULES[name]}", __name__), name)
    return value


def __dir__() -> list[str]:
    return [*__all__, *_PUBLIC_MODULES]
