"""Checks of options that several functions have."""

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from inspect import signature
from numbers import Integral
from typing import Any

import numpy as np


def require_one_of(option: str, value: object, allowed: tuple[str, ...]) -> None:
    """Raise ``ValueError``, naming the option, unless its value is one of the allowed strings."""
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"{option} must be one of {', '.join(map(repr, allowed))}, not {value!r}")


def require_unmasked(name: str, values: object, advice: str) -> None:
    """Raise ``TypeError`` for a masked array: without its mask, it would show the values below the mask."""
    if isinstance(values, np.ma.MaskedArray):
        raise TypeError(f"{name} is a masked array: {advice}")


def require_weights_unmasked(name: str, weights: object) -> None:
    """Raise ``TypeError``, naming the argument, for a masked array of weights."""
    require_unmasked(name, weights, "fill it first, with 0 where rows do not count")


#: Names for options in other libraries or in the documentation, with a hint at the option's own name.
_HINTS = {
    "background": "Did you mean 'data'?",
    "masker": "Did you mean 'data'?",
    "interactions": "explain_interactions computes interactions",
}


def require_options(called: Callable[..., Any], options: Iterable[str]) -> None:
    """Raise ``TypeError`` for an option that a callable does not have; the message names a similar one."""
    parameters = tuple(signature(called).parameters)
    for option in options:
        if option not in parameters:
            similar = get_close_matches(option, parameters, 1)
            hint = _HINTS.get(option) or (f"Did you mean {similar[0]!r}?" if similar else "")
            hint = f". {hint}" if hint else ""
            raise TypeError(f"{called.__name__} got an unexpected keyword argument {option!r}{hint}")


def require_n_jobs(n_jobs: object) -> None:
    """Raise ``TypeError`` or ``ValueError`` unless ``n_jobs`` is None or a number, as in joblib."""
    if n_jobs is None:
        return
    if isinstance(n_jobs, bool) or not isinstance(n_jobs, Integral):
        raise TypeError(f"n_jobs must be an int or None, not {n_jobs!r}")
    if n_jobs == 0:
        raise ValueError("n_jobs must not be 0: None or 1 is one thread, -1 all processors")
