"""Answer of a command, and the format of numbers in it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from .._common.digits import number

_BYTE_UNITS = ("kB", "MB", "GB", "TB")


@dataclass(frozen=True)
class Answer:
    """Result of a command."""

    facts: dict[str, Any]  # content of the answer, printed with ``--json``
    text: str  # content for human readers; if empty, nothing is printed
    exit_code: int = 0


def aligned(lines: Iterable[tuple[str, str]]) -> str:
    """Format names and values in two columns, a pair on each line."""
    lines = list(lines)
    width = max(len(name) for name, _ in lines) + 2
    return "\n".join(f"{name:<{width}}{value}".rstrip() for name, value in lines)


def bytes_text(n_bytes: float) -> str:
    """Format a number of bytes, such as "1.2 MB"."""
    if n_bytes < 1000:
        return f"{n_bytes:.0f} bytes"
    power = min(int(math.log10(n_bytes)) // 3, len(_BYTE_UNITS))
    return f"{number(n_bytes / 1000**power, 3)} {_BYTE_UNITS[power - 1]}"


def some(items: Sequence[Any], at_most: int = 8) -> str:
    """List the first items, and say how many more there are."""
    shown = ", ".join(str(item) for item in items[:at_most])
    return shown if len(items) <= at_most else f"{shown}, and {len(items) - at_most:,} more"


def base_values_text(base_values: Any) -> str:
    """Format a single base value, or the first of several."""
    values = [base_values] if isinstance(base_values, float) else list(base_values)
    return some([number(value, 6) for value in values])
