"""Distinct numbers, found without what ends the process."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike


def distinct_numbers(numbers: ArrayLike) -> np.ndarray:
    """Return the distinct numbers of an array, or of what becomes one, ascending.

    ``np.unique`` without its options calls a function of NumPy 2.3 and later that aborts the process if the
    interpreter (before Python 3.14) ends while a daemon thread is in it. With counts, it sorts instead.
    """
    return np.unique(numbers, return_counts=True)[0]
