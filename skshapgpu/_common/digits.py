"""Numbers in plots, representations and tables."""

from __future__ import annotations

from math import floor, log10

#: From this number on, float64 does not represent all digits before the decimal point.
_NOT_WHOLE = 1e15


def number(value: float, digits: int, *, padded: bool = False) -> str:
    """Format a number with at least ``digits`` significant digits and all digits before the decimal point.

    Only numbers below 1e-4, and from 1e15 on, are in scientific notation. With ``padded``, the result has
    trailing zeros.
    """
    if 10**digits - 0.5 <= abs(value) < _NOT_WHOLE:
        return f"{value:.0f}"
    return f"{value:#.{digits}g}".removesuffix(".") if padded else f"{value:.{digits}g}"


def counted(n: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun: "1 output", or "1,200 outputs"."""
    return f"{n:,} {noun if n == 1 else plural or noun + 's'}"


def digits_for(value: float, width: float) -> int:
    """Return the number of significant digits that resolve a hundredth of ``width``, but at least three."""
    if not value or not width:
        return 3
    digits = floor(log10(abs(value))) - floor(log10(width)) + 3
    return min(max(3, digits), 15)  # float64 always preserves 15 digits
