"""Permitted deviations of values from the reference, derived from error analysis, not fitted.

**Values** in single precision: trees are walked in float32, which rounds a number by up to 2^-24 = 6e-8 of
its magnitude. A value is a sum of products of a few dozen such numbers, and their errors add up to some tens
of units: the package promises 3e-6 of the largest value. In double precision, as many units of 2^-53 are
6e-15; the additions over trees and columns, and the conversions, add up to 1e-11.

**Largest value**: an output's largest value over all explained rows, or, if it is larger, the range of the
output's predictions over the training rows, which the values divide among the columns. The offset never
counts, since values do not depend on it; nor do other outputs.

**Leaves**: if trees cancel, the largest value says little about the numbers that were rounded. What a tree
adds to a value is rounded by a few units of float32 of the range of the tree's leaves.

**Offset**: predictions c + y with a large c are rounded to 2^-53 c in float64, and so are differences of two
predictions. If the library keeps the offset in its leaves, each added tree has this error. In a library that
adds up in float32 (XGBoost), the error is 2^-24 c. All this matters only if the reference is a prediction
with its offset.

**float32 X**: results are rounded to float32, 2^-24 of each value.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .margins import library_of, n_rounds

SINGLE, DOUBLE = 3e-6, 1e-11

UNIT32, UNIT64 = 2.0**-24, 2.0**-53


def of_values(precision: str, scale: np.ndarray, *, float32: bool = False) -> np.ndarray:
    """Return the permitted deviation from exact values, for outputs with these largest values."""
    return ((SINGLE if precision == "single" else DOUBLE) + (UNIT32 if float32 else 0.0)) * scale


def of_leaves(leaf_range: np.ndarray) -> np.ndarray:
    """Return the permitted deviation of sums over trees, given the sum of the ranges of their leaves."""
    return 8 * UNIT32 * leaf_range


def of_sums(model: Any, magnitude: np.ndarray, *, exact: bool = False) -> np.ndarray:
    """Return the permitted error of sums of terms of this magnitude: one unit per addition.

    The package subtracts the mean of each tree and adds it to the intercept; the library adds up its trees,
    unless ``exact`` says that the library is not involved. A few more additions compute the background's mean
    and the total.
    """
    n = n_rounds(model)
    unit = UNIT64 if exact or library_of(model) != "xgboost" else UNIT32
    return (2 * n + 8) * UNIT64 * magnitude + (n + 8) * unit * magnitude
