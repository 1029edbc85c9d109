"""Rejection of models that have parts for which no adapter has been written."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ..errors import UnsupportedModelError


def require_known(model: str, noun: str, names: Collection[Any], known_names: frozenset[Any]) -> None:
    """Reject a model with fields, options or other parts whose names the adapter does not know.

    An unknown part is never ignored, as predictions may depend on it. ``model`` is the model as the message
    calls it, such as "the XGBoost model"; ``noun`` is the kind of part, in the plural, such as "objectives".
    Raise ``UnsupportedModelError`` if some of the names are unknown; the message lists them.
    """
    if not known_names.issuperset(names):
        unknown_names = [name for name in names if name not in known_names]
        listed = ", ".join(f"{name!r:.80}" for name in unknown_names[:8])
        raise UnsupportedModelError(
            f"{model} has {noun} that this version of skshapgpu does not know: {listed}; its predictions may "
            "depend on them, so it is rejected: use a later version of skshapgpu, or an earlier one of the "
            "model's library"
        )
