"""Numbers in documents of JSON and UBJSON: they have the type and the range that a field needs.

A document is untrusted. A boolean is no number, 1.0 is no whole number, and no number is wrapped to fit.
Anything else raises a ``ValueError`` that names the field.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

_LARGEST = float(np.finfo(np.float64).max)

#: Limit of whole numbers that stand for floats.
_LARGEST_WHOLE = 2**63

#: A whole number as libraries write it into a string.
_DIGITS = re.compile(r"-?[0-9]{1,20}", re.ASCII)


def whole_number(value: Any, name: str, low: int = 0, high: int = 2**31 - 1) -> int:
    """Return a whole number from ``low`` to ``high``."""
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"{name} is {value!r:.80}, not a whole number from {low} to {high}")
    return value


def whole_in_string(fields: Mapping[str, Any], name: str, low: int = 0, high: int = 2**31 - 1) -> int:
    """Return a whole number from ``low`` to ``high`` that a field holds as a string."""
    value = fields[name]
    if not isinstance(value, str) or not _DIGITS.fullmatch(value) or not low <= int(value) <= high:
        raise ValueError(f"{name} is {value!r:.80}, not a string of a whole number from {low} to {high}")
    return int(value)


def is_exact(number: int) -> bool:
    """Return whether a whole number of less than 64 bits is equal to a float."""
    return abs(number) < _LARGEST_WHOLE and int(float(number)) == number


def real(value: Any, name: str) -> float:
    """Return a finite number as float; a whole number must have an exact float."""
    exact = type(value) is int and is_exact(value)
    if not exact and not (type(value) is float and abs(value) <= _LARGEST):
        raise ValueError(f"{name} is {value!r:.80}, not a finite number")
    return float(value)


@cache
def _range(dtype: np.dtype[Any]) -> tuple[int, int]:
    return np.iinfo(dtype).min, np.iinfo(dtype).max


def whole_numbers(values: Any, name: str, dtype: npt.DTypeLike, low: int | None = None) -> np.ndarray:
    """Return an array of the whole numbers in a list, or a typed array as it is.

    A typed array must have the dtype, in either byte order. The range of the dtype is the range that is
    allowed, unless ``low`` is the smallest number.
    """
    target = np.dtype(dtype)
    is_typed = isinstance(values, np.ndarray) and values.dtype.newbyteorder("=") == target
    if is_typed and low is None:
        return values
    smallest, largest = _range(target)
    low = smallest if low is None else low
    if is_typed:
        lowest, highest = int(values.min(initial=largest)), low
    elif isinstance(values, list) and {int}.issuperset(map(type, values)):
        lowest, highest = min(values, default=low), max(values, default=low)
    else:
        raise ValueError(f"{name} is {values!r:.80}, not a list of whole numbers of the type {target}")
    if lowest < low or highest > largest:
        outside = lowest if lowest < low else highest
        raise ValueError(f"{name} has the number {outside}, which is not in {low}..{largest}")
    return np.array(values, target) if isinstance(values, list) else values


def reals(values: Any, name: str, dtype: npt.DTypeLike = np.float64, *, strict: bool = False) -> np.ndarray:
    """Return an array of the numbers in a list or in a typed array of floats.

    A typed array must have the dtype, in either byte order. With ``strict``, a list must hold floats: XGBoost
    reads 1 as a whole number, which its fields of floats refuse.
    """
    target = np.dtype(dtype)
    if isinstance(values, np.ndarray) and values.dtype.newbyteorder("=") == target:
        return values
    kinds = set(map(type, values)) if isinstance(values, list) else {None}
    if not kinds <= {float, float if strict else int}:
        kind = "floats" if strict else "numbers"
        raise ValueError(f"{name} is {values!r:.80}, not a list of {kind} of the type {target}")
    if int in kinds and not all(map(is_exact, {value for value in values if type(value) is int})):
        raise ValueError(f"{name} holds a whole number that has no exact float")
    numbers = np.array(values, np.float64)
    return _singles(numbers, name) if target == np.float32 else numbers.astype(target, copy=False)


def finite_reals(values: Any, name: str) -> np.ndarray:
    """Return a float64 array of the finite numbers in a list."""
    array = reals(values, name)
    if not np.isfinite(array).all():
        raise ValueError(f"{name} holds a number that is not finite")
    return array


def _singles(numbers: np.ndarray, name: str) -> np.ndarray:
    """Round the numbers of a document to float32; raise if the digits of a number may round otherwise.

    XGBoost rounds the digits to float32 at once. This differs if the float64 is halfway between two numbers
    of float32, and the digits are not. XGBoost writes at most nine digits, and if they are halfway, the
    float64 is equal to them.
    """
    with np.errstate(all="ignore"):
        rounded = numbers.astype(np.float32)
        opposite = 2 * numbers - rounded
        halfway = (rounded != numbers) & (opposite == opposite.astype(np.float32)) & np.isfinite(rounded)
    for number in numbers[halfway].tolist():
        if Decimal(repr(number)) != Decimal(number):
            raise ValueError(f"{name} holds {number!r}, which is halfway between two numbers of float32")
    return rounded
