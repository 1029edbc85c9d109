"""Levels of the index of pandas: in data frames, and in the metadata that pandas adds to Arrow schemas.

The user can keep levels by their names. Levels are not features.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .._rows.arrow import require_arrow


@dataclass(frozen=True)
class RangeLevel:
    """A level that pandas stores as a range in the metadata of a file, not as a column."""

    start: int
    step: int

    def rows(self, first: int, n: int) -> Any:
        """Return the labels of ``n`` rows of the file, from row ``first`` on."""
        import numpy as np

        return require_arrow().array(self.start + self.step * np.arange(first, first + n, dtype=np.int64))


def _recorded_levels(schema: Any) -> list[Any]:
    """Return the levels that pandas recorded in a schema: names of columns, and ranges."""
    try:
        return list(json.loads((schema.metadata or {})[b"pandas"])["index_columns"])
    except (KeyError, ValueError, TypeError, RecursionError):
        return []


def level_columns(schema: Any) -> set[str]:
    """Return the names of the columns of a schema that are levels of the index, as pandas recorded them."""
    return {level for level in _recorded_levels(schema) if isinstance(level, str)} & set(schema.names)


def range_levels(schema: Any, keep: Sequence[str], where: str, n_rows: int) -> dict[str, RangeLevel]:
    """Return the levels to keep that pandas recorded as ranges, by their names.

    Raise ``ValueError`` if a column has the name of such a level, or if the range does not have a label for
    each row, because rows were removed without pandas.
    """
    ranges = {}
    for level in _recorded_levels(schema):
        if isinstance(level, dict) and level.get("kind") == "range" and level.get("name") in keep:
            name = level["name"]
            if name in schema.names:
                raise _ambiguous(name, where)
            ranges[name] = _range_level(level, where, n_rows)
    return ranges


def _range_level(level: dict[str, Any], where: str, n_rows: int) -> RangeLevel:
    limits = [level.get(key) for key in ("start", "stop", "step")]
    are_integers = all(type(limit) is int and -(2**63) <= limit < 2**63 for limit in limits) and limits[2]
    if not are_integers or len(range(*limits)) != n_rows:  # type: ignore[arg-type]
        start, stop, step = limits
        raise ValueError(
            f"the metadata of {where} say that the level {level['name']!r} of the index is the range from "
            f"{start!r:.40} to {stop!r:.40} in steps of {step!r:.40}, which has no label for each of the "
            f"{n_rows} rows: store the labels in a column"
        )
    return RangeLevel(level["start"], level["step"])


def levels_to_keep(frame: Any, keep: Sequence[str], where: str) -> Any:
    """Return the levels of the index of a pandas frame that are kept, as a frame; None if there are none.

    Raise ``ValueError`` if it is not clear what a name stands for: for a column and a level, for several
    levels, or for neither a column nor a level while the index has no name.
    """
    names = list(frame.index.names)
    level_names = []
    for name in keep:
        is_column = name in frame.columns
        if name in names:
            if is_column:
                raise _ambiguous(name, where)
            if names.count(name) > 1:
                raise ValueError(f"the index of {where} has several levels {name!r}: rename them")
            level_names.append(name)
        elif not is_column and None in names:
            columns = ", ".join(map(repr, frame.columns[:20]))
            raise ValueError(
                f"there is no column {name!r} to keep; there are {columns}. The index of {where} has no "
                "name: "
                f"to keep it, name it by X.index.name = {name!r}, or a level of several by X.index.names"
            )
    if not level_names:
        return None
    levels = frame.index.to_frame(index=False)[level_names]
    levels.index = frame.index
    return levels


def require_no_levels(features: Sequence[str], levels: Sequence[str]) -> None:
    """Raise ``ValueError`` if a feature is a level of the index of data frames."""
    if level_features := [name for name in features if name in levels]:
        raise ValueError(
            f"the feature {level_features[0]!r} is a level of the index, not a column: use "
            "X.reset_index(), and keep another column"
        )


def _ambiguous(name: str, where: str) -> ValueError:
    return ValueError(
        f"{where} has a column {name!r} and a level of the index with this name: rename one of them"
    )
