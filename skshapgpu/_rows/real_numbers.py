"""Checks that values are real numbers, and that their rounding to float32 is unambiguous."""

from __future__ import annotations

from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np

_FLOAT64 = np.dtype(np.float64)


def is_missing(value: Any) -> bool:
    """Return whether a value is None, NaN, NaT or pandas' NA."""
    return value is None or type(value).__name__ == "NAType" or bool(value != value)


def is_real(kind: str) -> bool:
    """Return whether a dtype of this kind may hold real numbers. Objects are checked one by one later."""
    return kind in "fiubO"


def require_real(kind: str, where: str, *, text: bool = False) -> None:
    """Raise an error for a dtype that does not hold real numbers."""
    if is_real(kind) or (kind in "UT" and text):
        return
    if kind == "c":
        raise ValueError(f"Complex data not supported: {where}")
    if kind in "mM":
        raise TypeError(f"{where} holds dates or time spans; convert them to numbers as for training")
    if kind in "UST":
        raise ValueError(
            f"could not convert string to float: {where} holds text, where the model expects numbers"
        )
    raise TypeError(f"{where} holds values that are not numbers")


def real_numbers(values: np.ndarray, start: int | None, name: str) -> np.ndarray:
    """Return a column without an encoder as numbers; None and pandas.NA become NaN.

    ``start`` is the row of X in which the values begin, for error messages; None if they are not rows.
    """
    require_real(values.dtype.kind, f"column {name}")
    if values.ndim > 1:  # of polars: structures, and arrays of a fixed length
        raise TypeError(f"column {name} holds values that are not numbers")
    if values.dtype.kind != "O":
        return values
    types = set(map(type, values))
    for cls in types:
        if issubclass(cls, (Real, np.bool_, Decimal)) or cls is type(None) or cls.__name__ == "NAType":
            continue
        row = next(i for i, value in enumerate(values) if type(value) is cls)
        where = f"column {name}" if start is None else f"row {start + row} of column {name}"
        if issubclass(cls, (str, bytes)):
            raise ValueError(
                f"could not convert string to float: {where} is {values[row]!r}, "
                "where the model expects numbers"
            )
        raise TypeError(f"{where} holds a {cls.__name__}, where the model expects numbers")
    if any(cls.__name__ == "NAType" for cls in types):
        values = np.array([None if type(value).__name__ == "NAType" else value for value in values], object)
    return values.astype(np.float64)


def has_categories(dtype: Any) -> bool:
    """Return whether a type of pandas or cuDF is categorical."""
    return type(dtype).__name__ == "CategoricalDtype"


def is_long(dtype: Any) -> bool:
    """Return whether float64 cannot hold all numbers of a type of NumPy or pandas."""
    size = getattr(dtype, "itemsize", 8)
    return (dtype.kind in "iu" and size == 8) or (dtype.kind == "f" and size > 8)


def is_wide(values: np.ndarray) -> bool:
    """Return whether numbers may need more than the 53 bits of float64."""
    if values.dtype.kind == "f" and values.dtype != _FLOAT64:
        return True
    low, high = (reduce(values, axis=None, initial=0) for reduce in (np.fmin.reduce, np.fmax.reduce))
    return bool(low < -(2**53) or high > 2**53)


def rounds_twice(values: np.ndarray) -> np.ndarray:
    """Mark values whose rounding to float32 changes, or may change, if they pass through float64."""
    double = values.astype(np.float64)
    if values.dtype != _FLOAT64:
        return (values.astype(np.float32) != double.astype(np.float32)) & ~np.isnan(double)
    # The values were integers. A value beyond 2^53 may have been rounded to the midpoint of two float32
    # numbers.
    return (np.abs(double) > 2.0**53) & (double.view(np.int64) & (2**29 - 1) == 2**28)
