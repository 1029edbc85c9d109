"""Containers of libraries: DMatrix of XGBoost, Dataset of LightGBM, Pool of CatBoost.

A container is read if it holds the numbers with which the library itself would predict. It is rejected if its
numbers are binned, freed or kept outside memory, or if it has categories, because it holds only the library's
own codes of them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

_INSTEAD = "pass the array or data frame that it was made from"


@dataclass(frozen=True)
class ContainerRows:
    """The rows of a container."""

    data: Any
    #: Names of the columns, if the container stores them separately from the data.
    names: Sequence[str] | None = None
    #: Whether ``data`` is sparse, and the entries that it does not store are the missing ones.
    absent_is_missing: bool = False


def rows_of_container(X: Any) -> ContainerRows | None:
    """Return the rows of a container; None if X is not a container.

    Raise ``TypeError`` if the exact numbers are not available, and ``ValueError`` if predictions start from a
    margin that the container holds.
    """
    read = _reader_of(X)
    return None if read is None else read(X)


def is_container(X: Any) -> bool:
    """Return whether X is a library's own container of rows."""
    return _reader_of(X) is not None


def refuse(X: Any) -> None:
    """Raise ``TypeError`` if X is a container, for callers that do more than explain its rows."""
    if _reader_of(X) is not None:
        raise _refusal(X, "this function does not support")


def _reader_of(X: Any) -> Callable[[Any], ContainerRows] | None:
    """Return the function that opens X if it is a container, without importing any package."""
    if isinstance(X, np.ndarray):
        return None
    for package, name, read in _CONTAINERS:
        module = sys.modules.get(package)
        if module is not None and isinstance(X, getattr(module, name)):
            return read
    return None


def _refusal(X: Any, problem: str) -> TypeError:
    package = type(X).__module__.partition(".")[0]
    return TypeError(f"X is a {package}.{type(X).__name__}, which {problem}: {_INSTEAD}")


def _read_dmatrix(X: Any) -> ContainerRows:
    import xgboost

    if type(X) is not xgboost.DMatrix:
        raise _refusal(X, "holds bins instead of numbers")
    if "c" in (X.feature_types or ()):
        raise _refusal(X, "holds codes of its own for categories")
    if X.get_base_margin().size:
        raise ValueError(
            "X is a DMatrix with a base_margin, from which predictions start: leave it out of the DMatrix, "
            "and pass it as explain(..., base_margin=)"
        )
    try:
        data = X.get_data()
    except xgboost.core.XGBoostError as error:
        raise _refusal(X, "is kept outside memory") from error
    return ContainerRows(data, X.feature_names, absent_is_missing=True)


def _read_dataset(X: Any) -> ContainerRows:
    data = X.data
    if data is None or X.used_indices is not None:
        try:
            data = X.get_data()  # for a subset, only its rows
        except Exception as error:  # the class is not specific if the Dataset is not constructed
            raise _refusal(X, "has no raw data, as free_raw_data=False would keep it") from error
    if not hasattr(data, "shape"):
        raise _refusal(X, "was read from a file or in pieces")
    return ContainerRows(data)


def _read_pool(X: Any) -> ContainerRows:
    import catboost

    if X.get_baseline().size:
        raise ValueError("X is a Pool with a baseline, from which predictions start: leave it out")
    try:
        data = X.get_features()
    except catboost.CatBoostError as error:
        raise _refusal(X, "holds categories, texts, embeddings or bins") from error
    names = X.get_feature_names()
    are_positions = all(name in ("", str(i)) for i, name in enumerate(names))
    return ContainerRows(data, None if are_positions else names)


_CONTAINERS: tuple[tuple[str, str, Callable[[Any], ContainerRows]], ...] = (
    ("xgboost", "DMatrix", _read_dmatrix),
    ("lightgbm", "Dataset", _read_dataset),
    ("catboost", "Pool", _read_pool),
)
