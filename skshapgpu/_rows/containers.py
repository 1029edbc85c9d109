"""Containers of libraries: DMatrix of XGBoost, Dataset of LightGBM, Pool of CatBoost.

They are opened if they hold the numbers with which the library itself would predict. They are rejected if
numbers are binned, freed or kept outside memory, or if there are categories, because their codes are the
library's own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

_INSTEAD = "pass the array or data frame that it was made from"


@dataclass(frozen=True)
class Opened:
    """The rows of a container.

    Attributes
    ----------
    data : array, sparse matrix or data frame
    names : sequence of str or None
        Names of the columns, if the container stores them separately from the data.
    missing_apart : bool
        Whether the missing entries are exactly those that a sparse ``data`` does not store.
    """

    data: Any
    names: Sequence[str] | None = None
    missing_apart: bool = False


def opened(X: Any) -> Opened | None:
    """Return the rows of a container; None if X is not a container.

    Raises
    ------
    TypeError
        The exact numbers are not available.
    ValueError
        The container has a margin to which predictions are added.
    """
    read = _reader_of(X)
    return None if read is None else read(X)


def is_container(X: Any) -> bool:
    """Return whether X is a library's own container of rows."""
    return _reader_of(X) is not None


def refuse(X: Any) -> None:
    """Raise ``TypeError`` if X is a container; callers that do more than explain rows do not support it."""
    if _reader_of(X) is not None:
        raise _refused(X, "cannot be used here")


def _reader_of(X: Any) -> Callable[[Any], Opened] | None:
    """Return the function that opens X if it is a container, without importing any package."""
    if isinstance(X, np.ndarray):
        return None
    for package, name, read in _CONTAINERS:
        module = sys.modules.get(package)
        if module is not None and isinstance(X, getattr(module, name)):
            return read
    return None


def _refused(X: Any, why: str) -> TypeError:
    package = type(X).__module__.partition(".")[0]
    return TypeError(f"X is a {package}.{type(X).__name__}, which {why}: {_INSTEAD}")


def _of_xgboost(X: Any) -> Opened:
    import xgboost

    if type(X) is not xgboost.DMatrix:
        raise _refused(X, "holds bins instead of numbers")
    if "c" in (X.feature_types or ()):
        raise _refused(X, "holds codes of its own for categories")
    if X.get_base_margin().size:
        raise ValueError("X is a DMatrix with a base_margin, from which predictions start: leave it out")
    try:
        data = X.get_data()
    except xgboost.core.XGBoostError as error:
        raise _refused(X, "is kept outside memory") from error
    return Opened(data, X.feature_names, missing_apart=True)


def _of_lightgbm(X: Any) -> Opened:
    data = X.data
    if data is None or X.used_indices is not None:
        try:
            data = X.get_data()  # for a subset, only its rows
        except Exception as error:  # the class is not specific if the Dataset is not constructed
            raise _refused(X, "has no raw data, as free_raw_data=False would keep it") from error
    if not hasattr(data, "shape"):
        raise _refused(X, "was read from a file or in pieces")
    return Opened(data)


def _of_catboost(X: Any) -> Opened:
    import catboost

    if X.get_baseline().size:
        raise ValueError("X is a Pool with a baseline, from which predictions start: leave it out")
    try:
        data = X.get_features()
    except catboost.CatBoostError as error:
        raise _refused(X, "holds categories, texts, embeddings or bins") from error
    names = X.get_feature_names()
    invented = all(name in ("", str(i)) for i, name in enumerate(names))
    return Opened(data, None if invented else names)


_CONTAINERS: tuple[tuple[str, str, Callable[[Any], Opened]], ...] = (
    ("xgboost", "DMatrix", _of_xgboost),
    ("lightgbm", "Dataset", _of_lightgbm),
    ("catboost", "Pool", _of_catboost),
)
