"""Splits of rows into training and test rows, in any form that scikit-learn accepts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from sklearn.utils.metadata_routing import get_routing_for_object

from .._rows.tables import n_rows_of


class CheckedSplitter:
    """Splitter that checks the splits of another splitter by :func:`checked_splits`."""

    def __init__(self, splitter: Any) -> None:
        self._splitter = splitter

    def split(self, X: Any, y: Any = None, **params: Any) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return the positions of the training rows and of the test rows of each split."""
        return checked_splits(self._splitter.split(X, y, **params), n_rows_of(X))

    def get_n_splits(self, *args: Any, **params: Any) -> int:
        """Return the number of splits."""
        return self._splitter.get_n_splits(*args, **params)

    def get_metadata_routing(self) -> Any:
        """Return the metadata that ``split`` requests."""
        return get_routing_for_object(self._splitter)


def checked_splits(splits: Iterable[Any], n_rows: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the positions of the training rows and of the test rows of each split.

    In ``splits``, rows are one-dimensional arrays or sequences of positions, which may be negative to count
    from the end, or masks of all rows. Raise ``ValueError`` if there is no split, or rows have another form
    or do not exist, or a split has no training rows or no test rows.
    """
    result = [
        (
            _row_numbers(train, n_rows, f"the training rows of split {number} of cv"),
            _row_numbers(test, n_rows, f"the test rows of split {number} of cv"),
        )
        for number, (train, test) in enumerate(splits)
    ]
    if not result:
        raise ValueError("cv has no splits; a generator can be used only once: give a list of its splits")
    return result


def _row_numbers(rows: Any, n_rows: int, name: str) -> np.ndarray:
    # Nullable arrays of pandas would become objects.
    kind = getattr(getattr(rows, "dtype", None), "kind", "")
    array = np.asarray(rows, {"b": bool, "i": np.int64, "u": np.int64}.get(kind))
    if array.ndim == 1 and not len(array):
        raise ValueError(f"there are no rows in {name}")
    if array.ndim != 1 or array.dtype.kind not in "iub":
        raise ValueError(f"{name} must be given as whole numbers in one dimension, or as a mask of all rows")
    if array.dtype.kind == "b":
        if len(array) != n_rows:
            raise ValueError(f"{name} are given as a mask of {len(array)} rows, but X has {n_rows}")
        array = np.flatnonzero(array)
        if not len(array):
            raise ValueError(f"there are no rows in {name}")
    outside = array[(array < -n_rows) | (array >= n_rows)]
    if len(outside):
        raise ValueError(f"{name} include number {outside[0]}, but X has {n_rows} rows")
    return np.arange(n_rows)[array]
