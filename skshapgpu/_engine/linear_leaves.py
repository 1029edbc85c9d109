"""Models whose leaves are linear functions of features: which calls are rejected for these models.

Their interventional values have a closed form (``csrc/background/linear_leaves.h``). All other results need
leaves that are numbers.
"""

from __future__ import annotations

from ..adapters.schema import AdaptedModel
from ..errors import UnsupportedModelError


def require_explainable_leaves(adapted: AdaptedModel, interventional: bool, model_output: str | None) -> None:
    """Reject options with which a model with linear leaves cannot be explained.

    ``model_output`` is None if the margin is explained. Raise ``UnsupportedModelError`` if the values would
    be path-dependent. Raise ``ValueError`` if a function of the margin would be explained.
    """
    if not adapted.ensemble.has_linear_leaves:
        return
    if not interventional:
        raise UnsupportedModelError(
            f"this {adapted.family} model has linear leaves (linear_tree=True in LightGBM), for which "
            "path-dependent values are not defined: covers say which leaves a row may reach if features are "
            "unknown, but not what value an unknown feature has in a leaf's function. Give background rows "
            "as data=, for interventional values"
        )
    if model_output is not None:
        raise ValueError(
            f"model_output={model_output!r} is not computed for models with linear leaves: use "
            "model_output='raw'"
        )


def require_constant_leaves(adapted: AdaptedModel, result: str, instead: str) -> None:
    """Raise ``UnsupportedModelError`` if a model has linear leaves, for which ``result`` is not computed."""
    if adapted.ensemble.has_linear_leaves:
        raise UnsupportedModelError(
            f"{result} is not computed for models with linear leaves, such as this {adapted.family} model: "
            f"{instead}"
        )
