"""Types and columns of Arrow: strings, categories, and numbers by column and by row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

#: Key, in the metadata of a field, that says which object represents a null in a pandas frame, and its two
#: values. Some transformers treat NaN and None differently.
MISSING_KEY, MISSING_NAN, MISSING_NONE = b"skshapgpu missing", b"nan", b"None"

#: Number of rows that are transposed at once, so that a few columns of them fit into a cache.
_TILE = 512


def require_arrow() -> Any:
    """Return the module pyarrow.

    Raises
    ------
    ImportError
        pyarrow is not installed; the message says how to install it.
    """
    try:
        import pyarrow
    except ImportError as error:
        raise ImportError(
            "record batches and files of them need pyarrow: pip install skshapgpu[arrow]"
        ) from error
    return pyarrow


def is_text(kind: Any) -> bool:
    """Return whether a type of Arrow is a string type without a dictionary."""
    return str(kind) in ("string", "large_string", "string_view")


def is_category(kind: Any) -> bool:
    return is_dictionary(kind) or is_text(kind)


def decoded(column: Any) -> Any:
    """Return a column with its dictionary codes, if it has any, replaced by values."""
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
            "a Pipeline that was fitted on a data frame needs pandas to transform rows: pip install pandas"
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
    """Return columns of the same type as an array [row][column], contiguous by column; nulls become NaN."""
    block = np.empty((len(columns), len(columns[0])), dtype)
    for out, column in zip(block, columns):
        out[...] = column.to_numpy(zero_copy_only=False)
    return block.T


def columns_of_rows(values: np.ndarray, dtype: Any) -> np.ndarray:
    """Return the transpose of rows, [column][row], contiguous by column."""
    columns = np.empty(values.shape[::-1], dtype)
    for start in range(0, len(values), _TILE):
        columns[:, start : start + _TILE] = values[start : start + _TILE].T
    return columns
