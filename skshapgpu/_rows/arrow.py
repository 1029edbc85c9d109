"""Types and columns of Arrow: strings, categories, and numbers by column and by row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from .._common.lazy import import_for

#: Key and value in the metadata of a field whose nulls become NaN in a pandas column of objects. Without
#: them, nulls become None. Some transformers treat NaN and None differently.
MISSING_KEY, MISSING_NAN = b"skshapgpu missing", b"nan"

#: Number of rows that are transposed at once, so that a few columns of them fit into a cache.
_TILE_ROWS = 512


def require_arrow() -> Any:
    """Return the module pyarrow; raise ``ImportError``, which says how to install it, if it is missing."""
    return import_for("record batches and files of them need pyarrow", "pyarrow", "pyarrow")


def stream_reader(stream: Any, argument: str = "X") -> Any:
    """Return a reader of the record batches that an object exports as a stream, which may be only once.

    Raise ``ImportError`` if PyArrow is missing, and ``ValueError`` if the object cannot be read. ``argument``
    is its name in messages.
    """
    what = f"{argument} is a {type(stream).__module__.partition('.')[0]}.{type(stream).__qualname__}, which"
    arrow = import_for(f"{what} is read by PyArrow", "pyarrow", "pyarrow")
    with _named_errors(what):
        return arrow.RecordBatchReader.from_stream(stream)


def table_of_stream(stream: Any) -> Any:
    """Return the rows of :func:`stream_reader` as a table."""
    reader = stream_reader(stream)
    with _named_errors("X"):  # rows are often computed only now
        return reader.read_all()


@contextmanager
def _named_errors(what: str) -> Iterator[None]:
    """Raise errors of any library as ``ValueError``, with the name of the object that is read."""
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:
        if "non-struct type" in str(error):
            raise ValueError(f"{what} is a single column: pass a table with named columns") from error
        raise ValueError(f"{what} cannot be read: {type(error).__name__}: {error}") from error


def is_text(kind: Any) -> bool:
    """Return whether a type of Arrow is a string type without a dictionary."""
    return str(kind) in ("string", "large_string", "string_view")


def is_category(kind: Any) -> bool:
    return is_dictionary(kind) or is_text(kind)


def decoded(name: str, column: Any) -> Any:
    """Return a column with its dictionary codes, if it has any, replaced by values.

    Raise ``ValueError`` if Arrow does not know the type of the values, as that of the intervals of pandas.
    """
    if not is_dictionary(column.type):
        return column
    try:
        return column.cast(column.type.value_type)
    except NotImplementedError as error:  # pyarrow.lib.ArrowNotImplementedError is one
        raise categories_error(name, column.type.value_type) from error


def categories_error(name: str, kind: Any) -> ValueError:
    """Return the error for a column with categories of this type, which cannot be read back."""
    return ValueError(
        f"column {name!r} has categories of type {kind}, which pandas cannot read: pass strings or numbers"
    )


def is_dictionary(kind: Any) -> bool:
    return str(kind).startswith("dictionary")


def require_columns(schema: Any, names: Sequence[str]) -> None:
    """Raise ``ValueError`` unless the schema has exactly one column of each name."""
    columns, n_times = list(schema.names), Counter(schema.names)
    if missing := [name for name in names if name not in n_times]:
        listed = ", ".join(map(repr, columns[:20])) + ", ..." * (len(columns) > 20)
        raise ValueError(f"there is no column {missing[0]!r}: the columns are {listed}")
    if repeated := [name for name in names if n_times[name] > 1]:
        raise ValueError(f"there are several columns {repeated[0]!r}")


def rows_of_columns(columns: Sequence[Any], dtype: Any) -> np.ndarray:
    """Return columns of the same type as a column-major array [row][column]. Nulls become NaN."""
    block = np.empty((len(columns), len(columns[0])), dtype)
    for out, column in zip(block, columns):
        out[...] = column.to_numpy(zero_copy_only=False)
    return block.T


def columns_of_rows(values: np.ndarray, dtype: Any) -> np.ndarray:
    """Return rows as an array [column][row], in which each column is contiguous."""
    columns = np.empty(values.shape[::-1], dtype)
    for start in range(0, len(values), _TILE_ROWS):
        columns[:, start : start + _TILE_ROWS] = values[start : start + _TILE_ROWS].T
    return columns
