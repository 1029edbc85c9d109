"""Columns of the data frames of pandas, polars and PyArrow, read in batches of rows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..adapters.schema import FEW_ROWS
from .arrow import is_text
from .real_numbers import has_categories, is_long, is_wide, require_real

#: Function that returns a column's values in the rows start to stop, and its codes if it is categorical.
ColumnSource = Callable[[int, int], tuple[np.ndarray, np.ndarray | None]]


@dataclass(frozen=True)
class Frame:
    """The columns of a data frame."""

    names: Sequence[Any]
    single: bool  # whether all columns are float32
    sources: list[ColumnSource]
    string_columns: frozenset[int]  # positions of columns of strings
    long_columns: frozenset[int]  # positions of columns of 64-bit integers or floats of more than 64 bits
    coded_columns: frozenset[int]  # positions of columns with codes
    array: np.ndarray | None = None  # the array whose views all columns are, if there is one


def _positions(columns: Sequence[Any], condition: Callable[[Any], bool]) -> frozenset[int]:
    return frozenset(i for i, column in enumerate(columns) if condition(column))


def _pandas_frame(frame: Any) -> Frame:
    columns = [series for _, series in frame.items()]
    dtypes = [series.dtype for series in columns]  # pandas takes long to find each of them
    for series, dtype in zip(columns, dtypes):
        if dtype.type is not str:
            require_real(dtype.kind, f"column {series.name}")
    block = None
    if columns and all(isinstance(dtype, np.dtype) for dtype in dtypes):
        # If all columns are views of one array, to_numpy returns that array without a copy.
        views = [series.to_numpy() for series in columns]
        if len({(id(view.base), view.dtype) for view in views}) == 1 and views[0].base is not None:
            block = frame.to_numpy()
    single = all(dtype.kind == "f" and getattr(dtype, "itemsize", 8) == 4 for dtype in dtypes)
    sources = [pandas_source(series) for series in columns]
    string_columns = frozenset(i for i, dtype in enumerate(dtypes) if _holds_strings(columns[i], dtype))
    long_columns, coded_columns = _positions(dtypes, is_long), _positions(dtypes, has_categories)
    return Frame(frame.columns, single, sources, string_columns, long_columns, coded_columns, block)


def _holds_strings(series: Any, dtype: Any) -> bool:
    if _is_arrow_dictionary(dtype):
        return is_text(dtype.pyarrow_dtype.value_type)
    if dtype != np.dtype(object):
        return dtype.type is str
    return isinstance(next((value for value in series.array if not _is_missing(value)), None), str)


def _is_missing(value: Any) -> bool:
    return value is None or type(value).__name__ == "NAType" or (isinstance(value, float) and value != value)


def pandas_source(series: Any) -> ColumnSource:
    dtype, array = series.dtype, series.array
    if isinstance(dtype, np.dtype):
        values = series.to_numpy()
        return lambda start, stop: (values[start:stop], None)
    if has_categories(dtype):
        return _categorical_source(array)
    if _is_arrow_dictionary(dtype):  # no library accepts its codes
        column = array.__arrow_array__()
        return _arrow_source(column.cast(column.type.value_type))
    if dtype.kind not in "fiub":
        return lambda start, stop: (np.asarray(array[start:stop], dtype=object), None)

    def numbers(start: int, stop: int) -> tuple[np.ndarray, None]:
        """Return nullable, sparse or Arrow-backed numbers, which are floats if one is missing."""
        batch = array[start:stop]
        if dtype.kind in "iub" and not np.asarray(batch.isna()).any():
            return batch.to_numpy(dtype=np.dtype(bool if dtype.kind == "b" else f"{dtype.kind}8")), None
        return batch.to_numpy(dtype=np.float64, na_value=np.nan), None

    return numbers


def _categorical_source(array: Any) -> ColumnSource:
    """Return the source of a ``Categorical``.

    Two kinds of categories are looked up one by one: strings of a few rows, for which pandas is slow, and
    integers beyond 2^53 beside missing values, because pandas would round them to float64.
    """
    categories, codes = array.categories, array.codes
    strings = categories.dtype.type is str
    integers = isinstance(categories.dtype, np.dtype) and categories.dtype.kind in "iu"
    long = integers and is_wide(categories.to_numpy())

    def categorical(start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        row_codes = codes[start:stop].astype(np.int64)
        if not (long and (row_codes < 0).any()) and not (strings and len(row_codes) <= FEW_ROWS):
            return np.asarray(array[start:stop]), row_codes
        values = np.empty(len(row_codes), object)
        values[:] = [categories[code] if code >= 0 else np.nan for code in row_codes.tolist()]
        return values, row_codes

    return categorical


def _is_arrow_dictionary(dtype: Any) -> bool:
    return type(dtype).__name__ == "ArrowDtype" and str(dtype).startswith("dictionary")


def _polars_frame(frame: Any) -> Frame:
    columns = frame.get_columns()
    for series in columns:
        if series.dtype.is_temporal():
            require_real("M", f"column {series.name}")
    single = all(str(series.dtype) == "Float32" for series in columns)
    polars = sys.modules["polars"]
    sources = [_polars_source(series) for series in columns]
    # The codes of a Categorical depend on other data that the process has read.
    string_columns = _positions(columns, lambda series: series.dtype in (polars.String, polars.Categorical))
    long_columns = _positions(columns, lambda series: series.dtype in (polars.Int64, polars.UInt64))
    coded_columns = _positions(columns, lambda series: series.dtype == polars.Enum)
    return Frame(frame.columns, single, sources, string_columns, long_columns, coded_columns)


def _polars_source(series: Any) -> ColumnSource:
    polars = sys.modules["polars"]
    if series.dtype == polars.Categorical:
        return lambda start, stop: (
            np.array(series.slice(start, stop - start).cast(polars.String).to_list(), object),
            None,
        )
    if series.dtype != polars.Enum:
        return lambda start, stop: (series.slice(start, stop - start).to_numpy(), None)

    def categorical(start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        part = series.slice(start, stop - start)
        codes = part.to_physical().cast(polars.Int64).fill_null(-1).to_numpy()
        return np.array(part.cast(polars.String).to_list(), object), codes

    return categorical


def _arrow_frame(table: Any) -> Frame:
    types = sys.modules["pyarrow"].types
    for name, column in zip(table.column_names, table.columns, strict=True):
        if types.is_temporal(column.type):
            require_real("M", f"column {name}")
    single = all(types.is_float32(column.type) for column in table.columns)
    string_columns = _positions(table.columns, lambda column: is_text(column.type))
    long_columns = _positions(table.columns, lambda c: types.is_int64(c.type) or types.is_uint64(c.type))
    sources = [_arrow_source(column) for column in table.columns]
    coded_columns = _positions(table.columns, lambda column: types.is_dictionary(column.type))
    return Frame(table.column_names, single, sources, string_columns, long_columns, coded_columns)


def _arrow_source(column: Any) -> ColumnSource:
    arrow = sys.modules["pyarrow"]
    if not arrow.types.is_dictionary(column.type):
        return lambda start, stop: (column.slice(start, stop - start).to_numpy(zero_copy_only=False), None)
    if isinstance(column, arrow.ChunkedArray):
        if column.num_chunks > 1 and any(chunk.dictionary.null_count for chunk in column.chunks):
            # Dictionaries with nulls cannot be unified.
            column = column.cast(column.type.value_type).dictionary_encode()
        column = column.unify_dictionaries().combine_chunks()
    dictionary = column.dictionary
    long = arrow.types.is_integer(dictionary.type) and is_wide(dictionary.to_numpy(zero_copy_only=False))

    def categorical(start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        part = column.slice(start, stop - start)
        codes = part.indices.cast(arrow.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
        values = part.dictionary_decode()
        if long and values.null_count:  # NumPy would round them to float64
            return np.array(values.to_pylist(), object), codes
        return values.to_numpy(zero_copy_only=False), codes

    return categorical


OPENERS: dict[str, Callable[[Any], Frame]] = {
    "pandas": _pandas_frame,
    "polars": _polars_frame,
    "pyarrow": _arrow_frame,
}
