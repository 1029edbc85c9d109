"""Permitted deviations of values from the reference, derived from error analysis, not fitted.

**Values** in single precision: trees are walked in float32, whose half unit in the last place is 2^-24 = 6e-8
of a number. A value is a sum of products of a few dozen such numbers, whose errors add up to some tens of
units: the package promises 3e-6 of the largest value. In double precision the same count of units of 2^-53
is 6e-15; the additions over trees and columns, and the conversions, take up to 1e-11.

**Largest value**: that of an output, over all explained rows, or the range of its predictions over the
training rows, which the values share out. Never the offset: values do not depend on it. Other outputs
do not count either.

**Offset**: float64 holds predictions c + y with a large c to 2^-53 c, and a difference of two of them has
that error, for each added tree if the library keeps the offset in its leaves. The same holds, with 2^-24,
for a library that adds up in float32 (XGBoost), and only if the reference is a prediction with its offset.

**float32 X**: results are rounded to float32, 2^-24 of each value.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .margins import library_of, n_rounds

SINGLE, DOUBLE = 3e-6, 1e-11

UNIT32, UNIT64 = 2.0**-24, 2.0**-53


def of_values(precision: str, scale: np.ndarray, *, float32: bool = False) -> np.ndarray:
    """Return the permitted deviation from exact values, for outputs of the given scale."""
    return ((SINGLE if precision == "single" else DOUBLE) + (UNIT32 if float32 else 0.0)) * scale


def of_sums(model: Any, magnitude: np.ndarray, *, exact: bool = False) -> np.ndarray:
    """Return the permitted error of sums of terms of the given magnitude: one unit per addition.

    The package subtracts the mean of each tree and adds it to the intercept; the library adds up its trees,
    unless ``exact`` says that it is not involved. A few more additions are those of the background's mean,
    and the last ones.
    """
    n = n_rounds(model)
    unit = UNIT64 if exact or library_of(model) != "xgboost" else UNIT32
    return (2 * n + 8) * UNIT64 * magnitude + (n + 8) * unit * magnitude
