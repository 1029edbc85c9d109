"""Types and columns of Arrow: those of texts and categories, and numbers by column and by row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

#: Key of the metadata of a field that tells what a null of it is among objects of a pandas frame, and its
#: values. Some transformers tell one from the other.
MISSING_KEY, MISSING_NAN, MISSING_NONE = b"skshapgpu missing", b"nan", b"None"

#: Rows that are turned from columns into rows at once, or back: so many of some columns fit into a cache.
_TILE = 512


def require_arrow() -> Any:
    """Return the module pyarrow.

    Raises
    ------
    ImportError
        It is not installed; the message says how to install it.
    """
    try:
        import pyarrow
    except ImportError as error:
        raise ImportError(
            "record batches and files of them need pyarrow: pip install skshapgpu[arrow]"
        ) from error
    return pyarrow


def is_text(kind: Any) -> bool:
    """Tell whether a type of Arrow is one of texts, without a dictionary."""
    return str(kind) in ("string", "large_string", "string_view")


def is_category(kind: Any) -> bool:
    return is_dictionary(kind) or is_text(kind)


def decoded(column: Any) -> Any:
    """Return the values of a column that has a dictionary."""
    return column.cast(column.type.value_type) if is_dictionary(column.type) else column


def is_dictionary(kind: Any) -> bool:
    return str(kind).startswith("dictionary")


def require_columns(schema: Any, names: Sequence[str]) -> None:
    there = list(schema.names)
    if missing := [name for name in names if name not in there]:
        raise ValueError(f"there is no column {missing[0]!r}; there are {', '.join(map(repr, there[:20]))}")
    if twice := [name for name in names if there.count(name) > 1]:
        raise ValueError(f"there are several columns {twice[0]!r}")


def to_pandas(batch: Any) -> Any:
    try:
        import pandas
    except ImportError as error:
        raise ImportError(
            "the steps of a Pipeline that was fitted on a data frame take one: pip install pandas"
        ) from error
    frame = batch.to_pandas()
    for field in batch.schema:
        column, missing = frame[field.name], (field.metadata or {}).get(MISSING_KEY)
        if missing == MISSING_NONE or (missing == MISSING_NAN and column.dtype == object):
            values = column.to_numpy(object, copy=True)
            values[column.isna()] = np.nan if missing == MISSING_NAN else None
            frame[field.name] = pandas.Series(values, dtype=object)
    return frame


def rows_of_columns(columns: Sequence[Any], dtype: Any) -> np.ndarray:
    """Return columns of one type side by side, a row in one piece; a null is NaN."""
    parts = [column.to_numpy(zero_copy_only=False) for column in columns]
    n_rows = len(parts[0])
    block = np.empty((n_rows, len(parts)), dtype)
    for start in range(0, n_rows, _TILE):
        tile = slice(start, start + _TILE)
        for i, part in enumerate(parts):
            block[tile, i] = part[tile]
    return block


def columns_of_rows(values: np.ndarray) -> np.ndarray:
    """Return rows as columns: [column][row], each column in one piece."""
    columns = np.empty(values.shape[::-1], values.dtype)
    for start in range(0, len(values), _TILE):
        columns[:, start : start + _TILE] = values[start : start + _TILE].T
    return columns
