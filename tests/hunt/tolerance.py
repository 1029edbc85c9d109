"""How far values may be from the truth, derived, not fitted.

**Values** in single precision: trees are walked in float32, whose half unit in the last place is 2^-24 = 6e-8
of a number. A value is a sum of products of a few dozen such numbers, whose errors add up to some tens of
units: the package promises 3e-6 of the largest value. In double precision the same count of units of 2^-53
is 6e-15; summing up over trees and columns, and the conversions, leave room up to 1e-11.

**Largest value**: of an output, over all rows that are explained, or the spread of its predictions over the
training rows, which is what values share out. Never the offset: values do not depend on it. Other outputs
do not count either.

**Offset**: predictions c + y, c large, are held by float64 to 2^-53 c, and what is a difference of two of
these has that error, for each tree that is added up if the library keeps the offset in its leaves. The same
holds, with 2^-24, for a library that adds up in float32 (XGBoost), and only where the truth is a prediction
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
    """By which values may differ from exact ones, for each output of that scale."""
    return ((SINGLE if precision == "single" else DOUBLE) + (UNIT32 if float32 else 0.0)) * scale


def of_sums(model: Any, magnitude: np.ndarray, *, exact: bool = False) -> np.ndarray:
    """By which sums of terms of that magnitude may be off: one unit for each addition.

    The package takes the mean of each tree away, and adds it to the intercept; the library adds up its
    trees, unless ``exact`` says that it has no part in this. A few additions more are those of the
    background's mean, and the last ones.
    """
    n = n_rounds(model)
    unit = UNIT64 if exact or library_of(model) != "xgboost" else UNIT32
    return (2 * n + 8) * UNIT64 * magnitude + (n + 8) * unit * magnitude
