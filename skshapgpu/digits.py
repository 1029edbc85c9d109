"""Numbers in pictures, representations and tables."""

from __future__ import annotations

from math import floor, log10

#: From here on float64 does not have all digits before the point.
_NOT_WHOLE = 1e15


def number(value: float, digits: int, *, padded: bool = False) -> str:
    """Return a number with at least so many significant digits, and all that stand before its point.

    Only numbers below 1e-4, and from 1e15 on, are in scientific notation; with ``padded``, zeros at the
    end stay.
    """
    if 10**digits - 0.5 <= abs(value) < _NOT_WHOLE:
        return f"{value:.0f}"
    return f"{value:#.{digits}g}".removesuffix(".") if padded else f"{value:.{digits}g}"


def digits_for(value: float, width: float) -> int:
    """Return how many digits of a number show differences of a hundredth of ``width``: three at least."""
    if not value or not width:
        return 3
    digits = floor(log10(abs(value))) - floor(log10(width)) + 3
    return min(max(3, digits), 15)  # of which float64 is sure
