"""Rejection of parts of models that no adapter has been written for."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ..errors import UnsupportedModelError


def require_known(model: str, noun: str, names: Collection[Any], known: frozenset[Any]) -> None:
    """Reject names that are not known, instead of taking what they stand for as something else.

    Parameters
    ----------
    model : str
        Model in the message, such as "the XGBoost model".
    noun : str
        What is named, in the plural, such as "objectives".
    names : collection
        Names that the model has.
    known : frozenset
        Names that the adapter knows.

    Raises
    ------
    UnsupportedModelError
        The message lists the other names.
    """
    if not known.issuperset(names):
        listed = ", ".join(f"{name!r:.80}" for name in [name for name in names if name not in known][:8])
        raise UnsupportedModelError(
            f"{model} has {noun} that this version of skshapgpu does not know: {listed}; its predictions may "
            "depend on them, so it is rejected: use a later version of skshapgpu, or an earlier one of the "
            "model's library"
        )
