"""Groups of columns or features: a mapping of names to lists, or "input"."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from .checks import with_article


def require_groups(argument: str, groups: Any, noun: str) -> None:
    """Reject groups that are invalid whatever the names of the columns or features are.

    Raise ``ValueError`` or ``TypeError`` if the groups are neither "input" nor a mapping of names to lists,
    or a group is empty.
    """
    if isinstance(groups, str) and groups == "input":
        return
    if not isinstance(groups, Mapping):
        problem = f"{argument} must be 'input' or map names to lists of {noun}s"
        if isinstance(groups, str):
            raise ValueError(f"{problem}, not {groups!r}")
        raise TypeError(f"{problem}, not {with_article(groups)}")
    for name, members in groups.items():
        if not isinstance(name, str):
            raise TypeError(f"{argument}: the name {name!r:.80} is not a string")
        if isinstance(members, str) or not isinstance(members, Collection | np.ndarray) or not len(members):
            raise ValueError(f"{argument}: {name!r} must be a list of {noun}s, not {members!r:.80}")


def group_of_each(
    argument: str,
    groups: Mapping[str, Any],
    names: Sequence[str],
    noun: str,
    read: Callable[[str, Any], Sequence[int]],
) -> list[str | None]:
    """Return the group of each column or feature with one of ``names``; None if it is in no group.

    ``read`` is a function of the name and the members of a group. It returns the positions of the members.
    Raise ``ValueError`` if a column or feature is in two groups or twice in one, or its name is the name of
    another group.
    """
    group_of: list[str | None] = [None] * len(names)
    for group, members in groups.items():
        for position in read(group, members):
            other = group_of[position]
            if other is not None:
                place = f"is twice in {group!r}" if other == group else f"is in {other!r} and in {group!r}"
                raise ValueError(f"{argument}: {noun} {names[position]!r} {place}")
            group_of[position] = group
    for name, its_group in zip(names, group_of):
        if its_group is None and name in groups:
            raise ValueError(f"{argument}: {name!r} is the name of a {noun} that is not in the group")
    return group_of
