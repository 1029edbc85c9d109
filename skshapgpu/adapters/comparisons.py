"""Exact equivalents of comparisons: thresholds for numbers of another dtype or another strictness.

A node sends x left if x <= t, or if x < t, after x is rounded to float32 or float64. The numbers x that go
left are all numbers up to a largest one, T, so the comparison x <= T is equivalent:

- of the float32 numbers x < t, the largest is the float32 number before t;
- of the float64 numbers x < t, the largest is the float64 number before t;
- the largest float64 number that rounds to a float32 number s, or to a smaller one, is halfway between s and
  the float32 number after s, or just before. The midpoint itself rounds to the neighbor whose last bit is 0,
  so it is the largest number if the last bit of s is 0. From the midpoint of the largest float32 number and
  2^128 on, all numbers round to infinity.
"""

from __future__ import annotations

import numpy as np

#: The number after the largest float32 number, if float32 had a larger exponent.
_AFTER_FLOAT32 = 2.0**128


def at_most(threshold: np.ndarray, x_dtype: str, strict: bool, dtype: str) -> np.ndarray:
    """Return thresholds T such that x <= T, for x in ``dtype``, is the comparison of x with ``threshold``.

    Parameters
    ----------
    threshold : ndarray of float64
        Thresholds with which x is compared after it is rounded to ``x_dtype``. No number is less than -inf:
        with ``strict`` and a threshold of -inf, T is correct only for x that is finite after rounding.
    x_dtype, dtype : {"float32", "float64"}
        ``dtype`` must have all numbers of ``x_dtype``.
    strict : bool
        Whether the comparison is ``x < threshold`` instead of ``x <= threshold``.

    Returns
    -------
    ndarray of float64
    """
    if x_dtype == "float64":
        with np.errstate(over="ignore"):
            return np.nextafter(threshold, -np.inf) if strict else threshold
    largest = _largest_float32(threshold, strict)
    return largest.astype(np.float64) if dtype == "float32" else _largest_that_rounds_to(largest)


def _largest_float32(threshold: np.ndarray, strict: bool) -> np.ndarray:
    """Return the largest float32 number that satisfies the comparison; -inf if there is none."""
    with np.errstate(over="ignore"):
        nearest = threshold.astype(np.float32)
        below = np.nextafter(nearest, np.float32(-np.inf))
    return np.where(nearest >= threshold if strict else nearest > threshold, below, nearest)


def _largest_that_rounds_to(number: np.ndarray) -> np.ndarray:
    """Return the largest float64 number that rounds to a float32 number, or to a smaller one."""
    with np.errstate(over="ignore"):
        above = np.nextafter(number, np.float32(np.inf)).astype(np.float64)
    ends = [np.clip(end, -_AFTER_FLOAT32, _AFTER_FLOAT32) for end in (number.astype(np.float64), above)]
    midpoint = ends[0] / 2 + ends[1] / 2
    is_even = number.view(np.uint32) & 1 == 0
    largest = np.where(is_even, midpoint, np.nextafter(midpoint, -np.inf))
    return np.where(number == np.inf, np.inf, largest)
