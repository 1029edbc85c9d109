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


def require_unmasked(name: str, given: object, advice: str) -> None:
    """Raise ``TypeError`` for a masked array, which without its mask would have what lies below it."""
    if isinstance(given, np.ma.MaskedArray):
        raise TypeError(f"{name} is a masked array: {advice}")


def require_weights_unmasked(name: str, weights: object) -> None:
    """Raise ``TypeError``, naming the argument, for a masked array of weights."""
    require_unmasked(name, weights, "fill it first, with 0 where rows do not count")


#: Options that users look for under names of other libraries or of these pages, and where they are.
_ELSEWHERE = {
    "background": "Did you mean 'data'?",
    "masker": "Did you mean 'data'?",
    "interactions": "explain_interactions computes interactions",
}


def require_options(called: Callable[..., Any], options: Iterable[str]) -> None:
    """Raise ``TypeError``, which names a similar parameter, for an option that a callable does not have."""
    known = tuple(signature(called).parameters)
    for option in options:
        if option not in known:
            similar = get_close_matches(option, known, 1)
            hint = _ELSEWHERE.get(option) or (f"Did you mean {similar[0]!r}?" if similar else "")
            hint = f". {hint}" if hint else ""
            raise TypeError(f"{called.__name__} got an unexpected keyword argument {option!r}{hint}")


def require_n_jobs(n_jobs: object) -> None:
    """Raise ``TypeError`` or ``ValueError`` unless it is None or a number of threads, as in joblib."""
    if n_jobs is None:
        return
    if isinstance(n_jobs, bool) or not isinstance(n_jobs, Integral):
        raise TypeError(f"n_jobs must be an int or None, not {n_jobs!r}")
    if n_jobs == 0:
        raise ValueError("n_jobs must not be 0: None or 1 is one thread, -1 all processors")
