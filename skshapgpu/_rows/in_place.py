"""Steps that may write into X, which then get a copy of it.

``StandardScaler(copy=False)`` scales the memory of the user. A call reads X more than once (as rows, as
background, to compare with the model's own prediction), so each time it must be as the user passed it.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import numpy as np
from sklearn.preprocessing import FunctionTransformer

#: Packages whose transformers write into X only if a parameter named ``copy`` is False.
_CAREFUL = ("sklearn", "skshapgpu", "imblearn")


def any_may_write(steps: Sequence[Any]) -> bool:
    """Return whether one of the steps may write into X."""
    return any(map(may_write, steps))


def may_write(step: Any) -> bool:
    """Return whether a step, or a transformer in it, may write into the rows that it receives."""
    params = step.get_params(deep=True) if hasattr(step, "get_params") else {}
    if any(value is False and name.rpartition("__")[2] == "copy" for name, value in params.items()):
        return True
    inner = [value for value in params.values() if hasattr(value, "transform")]
    return any(_may_write(transformer) for transformer in (step, *inner))


def _may_write(transformer: Any) -> bool:
    if isinstance(transformer, FunctionTransformer):
        return transformer.func is not None and not isinstance(transformer.func, np.ufunc)
    owner = next((cls for cls in type(transformer).__mro__ if "transform" in vars(cls)), type(transformer))
    return owner.__module__.partition(".")[0] not in _CAREFUL


def copied(X: Any) -> Any:
    """Return a copy of X that shares no memory with it. X itself is returned if nobody can write into it."""
    if isinstance(X, (list, tuple)):
        return deepcopy(X)
    for method in ("copy", "clone"):  # of NumPy, SciPy, pandas and CuPy; of polars and PyTorch
        if callable(copy := getattr(X, method, None)):
            return copy()
    return X
