"""Features, columns, outputs and rows that a user gives by name or by position."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import Any

import numpy as np


def is_position(key: Any) -> bool:
    """Return whether a key is an integer, which booleans are not."""
    return isinstance(key, Integral) and not isinstance(key, (bool, np.bool_))


def listed(names: Sequence[Any], most: int = 10) -> str:
    """Return the first names, for messages."""
    return ", ".join(map(repr, names[:most])) + ", ..." * (len(names) > most)


def read_position(
    argument: str, key: Any, names: Sequence[Any], noun: str = "feature", *, from_end: bool = False
) -> int:
    """Return the position of the feature that a key names, or the position that it is.

    Parameters
    ----------
    argument : str
        Name of the argument, for messages.
    key : str or int
        A name, or a position from 0 on.
    names : sequence
        Names of all features. A name that is not a string counts as its string.
    noun : str
        What the names are names of, for messages.
    from_end : bool, default=False
        Whether a negative position counts from the end, as in a list.

    Raises
    ------
    ValueError
        No feature has the name, or the position is out of range.
    TypeError
        ``key`` is neither a name nor a position.
    """
    return read_positions(argument, [key], names, noun, from_end=from_end)[0]


def read_positions(
    argument: str, keys: Iterable[Any], names: Sequence[Any], noun: str = "feature", *, from_end: bool = False
) -> list[int]:
    """Return the positions of features that keys name; see :func:`read_position`."""
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


def require_position(
    argument: str, key: Any, size: int, noun: str = "feature", *, from_end: bool = False
) -> int:
    """Return a position from 0 on as an int; see :func:`read_position`."""
    if not is_position(key):
        raise TypeError(f"{argument}: {key!r:.80} is neither a name nor a position")
    if not (-size if from_end else 0) <= key < size:
        raise ValueError(f"{argument}: {noun} {key} is out of range for {size} {noun}s")
    return int(key) % size
