"""Features, columns, outputs and rows that a user gives by name or by position."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import Any

import numpy as np


def is_integer(value: Any) -> bool:
    """Return whether a value is an integer, which booleans are not."""
    return isinstance(value, Integral) and not isinstance(value, (bool, np.bool_))


def listed(names: Sequence[Any], most: int = 10) -> str:
    """Return the first names, for messages."""
    return ", ".join(map(repr, names[:most])) + ", ..." * (len(names) > most)


def repeated_names(names: Iterable[Any]) -> list[Any]:
    """Return the names that occur more than once, in time in proportion to the number of names."""
    return [name for name, n_times in Counter(names).items() if n_times > 1]


def read_position(argument: str, key: Any, names: Sequence[Any], noun: str, *, from_end: bool = False) -> int:
    """Return the position of the feature that a key names; see :func:`read_positions`."""
    return read_positions(argument, [key], names, noun, from_end=from_end)[0]


def read_positions(
    argument: str, keys: Iterable[Any], names: Sequence[Any], noun: str, *, from_end: bool = False
) -> list[int]:
    """Return the positions of the features, or other things with names, that keys name.

    A key is a name or a position; with ``from_end``, a negative position counts from the end. A name that is
    not a string counts as its string. Messages have the name of the argument, and the noun for a feature.
    Raise ``ValueError`` if no feature has the name, or a position is out of range. Raise ``TypeError`` if a
    key is neither a name nor a position.
    """
    position_of_name = dict[str, int]()
    for position, name in enumerate(names):
        position_of_name.setdefault(str(name), position)
    positions = []
    for key in keys:
        if not isinstance(key, str):
            positions.append(require_position(argument, key, len(names), noun, from_end=from_end))
        elif key in position_of_name:
            positions.append(position_of_name[key])
        else:
            raise ValueError(f"{argument}: there is no {noun} {key!r}, only {listed(list(position_of_name))}")
    return positions


def require_position(argument: str, key: Any, size: int, noun: str, *, from_end: bool = False) -> int:
    """Return a position from 0 on as an int; see :func:`read_positions`."""
    if not is_integer(key):
        raise TypeError(f"{argument}: {key!r:.80} is neither a name nor a position")
    if not (-size if from_end else 0) <= key < size:
        raise ValueError(f"{argument}: {noun} {key} is out of range for {size} {noun}s")
    return int(key) % size
