"""Columns of the data frames of pandas, polars and PyArrow, read in batches of rows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import ref

import numpy as np

from .._common.lazy import computed_once
from ..adapters.schema import FEW_ROWS
from .arrow import is_text
from .real_numbers import has_categories, is_long, is_real, is_wide, require_real

#: Function that returns a column's values in the rows start to stop, and its codes if it is categorical.
ColumnSource = Callable[[int, int], tuple[np.ndarray, np.ndarray | None]]


@dataclass(frozen=True)
class Frame:
    """The columns of a data frame."""

    names: Sequence[Any]
    columns: Sequence[Any]
    source_of: Callable[[Any], ColumnSource]
    single: bool  # whether all columns are float32
    string_columns: frozenset[int]  # positions of columns of strings
    long_columns: frozenset[int]  # positions of columns of 64-bit integers or floats of more than 64 bits
    coded_columns: frozenset[int]  # positions of columns with codes
    array: np.ndarray | None = None  # the array whose views all columns are, if there is one
    is_sparse: bool = False  # whether scikit-learn reads the frame as a sparse matrix

    @computed_once
    def sources(self) -> list[ColumnSource]:
        """Sources of the columns."""
        return [self.source_of(column) for column in self.columns]

    @property
    def stores(self) -> Sequence[Any]:
        """Objects that hold the numbers: the columns, or the array of which they are views."""
        is_view = self.array is not None and self.array.base is self.columns[0].base
        return [self.array] if is_view else self.columns


class SeenCategories:
    """Categories of pandas that earlier calls of an explainer have read, by the index that holds them.

    pandas takes longer to read a category from Arrow than a small call takes. An index of pandas is
    immutable. Threads may use the object at the same time.
    """

    #: Largest number of indexes whose categories are kept.
    _MOST = 256

    def __init__(self) -> None:
        self._seen: dict[int, tuple[Any, dict[int, Any]]] = {}  # by id: a reference to the index, categories

    def of(self, index: Any) -> dict[int, Any]:
        """Return the categories that were read from an index, by code; the caller adds to them."""
        reference, categories = self._seen.get(id(index), (None, {}))
        if reference is None or reference() is not index:
            categories = {}
            if len(self._seen) >= self._MOST:
                self._seen = {}
            self._seen[id(index)] = ref(index), categories
        return categories


def _positions(columns: Sequence[Any], condition: Callable[[Any], bool]) -> frozenset[int]:
    return frozenset(i for i, column in enumerate(columns) if condition(column))


def _pandas_frame(frame: Any, seen: SeenCategories) -> Frame:
    arrays = arrays_of_pandas(frame)
    dtypes = [array.dtype for array in arrays]
    distinct = {id(dtype): dtype for dtype in dtypes}  # pandas takes long to compare dtypes

    def columns_where(condition: Callable[[Any], bool]) -> frozenset[int]:
        chosen = {key for key, dtype in distinct.items() if condition(dtype)}
        return _positions(dtypes, lambda dtype: id(dtype) in chosen) if chosen else frozenset()

    for dtype in distinct.values():
        if dtype.type is not str and not is_real(dtype.kind):
            position = next(i for i, other in enumerate(dtypes) if other is dtype)
            require_real(dtype.kind, f"column {frame.columns[position]}")
    block = None
    # If all columns are views of one array, to_numpy returns that array without a copy.
    if arrays and all(isinstance(array, np.ndarray) for array in arrays):
        if len({(id(array.base), array.dtype) for array in arrays}) == 1 and arrays[0].base is not None:
            block = frame.to_numpy()
    return Frame(
        frame.columns,
        arrays,
        partial(pandas_source, seen=seen),
        single=all(dtype.kind == "f" and getattr(dtype, "itemsize", 8) == 4 for dtype in distinct.values()),
        string_columns=frozenset(i for i in columns_where(_may_be_text) if _holds_strings(arrays[i])),
        long_columns=columns_where(is_long),
        coded_columns=columns_where(has_categories),
        array=block,
        is_sparse=all(type(dtype).__name__ == "SparseDtype" for dtype in distinct.values()),
    )


def arrays_of_pandas(frame: Any) -> list[Any]:
    """Return the columns of a data frame of pandas: arrays of NumPy, or of pandas for its own dtypes.

    ``DataFrame.items``, which has the same arrays, makes a series of each column first.
    """
    arrays = getattr(frame, "_iter_column_arrays", None)
    return [array_of_series(series) for _, series in frame.items()] if arrays is None else list(arrays())


def array_of_series(series: Any) -> Any:
    """Return a series of pandas as an item of :func:`arrays_of_pandas`."""
    return series.to_numpy() if isinstance(series.dtype, np.dtype) else series.array


def _may_be_text(dtype: Any) -> bool:
    return dtype.type is str or dtype == np.dtype(object) or _is_arrow_dictionary(dtype)


def _holds_strings(array: Any) -> bool:
    dtype = array.dtype
    if _is_arrow_dictionary(dtype):
        return is_text(dtype.pyarrow_dtype.value_type)
    if dtype != np.dtype(object):
        return dtype.type is str
    return isinstance(next((value for value in array if not _is_missing(value)), None), str)


def _is_missing(value: Any) -> bool:
    return value is None or type(value).__name__ == "NAType" or (isinstance(value, float) and value != value)


def pandas_source(array: Any, seen: SeenCategories) -> ColumnSource:
    """Return the source of a column, an item of :func:`arrays_of_pandas`."""
    dtype = array.dtype
    if isinstance(array, np.ndarray):
        return lambda start, stop: (array[start:stop], None)
    if has_categories(dtype):
        return _categorical_source(array, seen)
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


def _categorical_source(array: Any, seen: SeenCategories) -> ColumnSource:
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
        values, category_of = np.empty(len(row_codes), object), seen.of(categories)
        for row, code in enumerate(row_codes.tolist()):
            if code >= 0 and code not in category_of:
                category_of[code] = categories[code]
            values[row] = category_of[code] if code >= 0 else np.nan
        return values, row_codes

    return categorical


def _is_arrow_dictionary(dtype: Any) -> bool:
    return type(dtype).__name__ == "ArrowDtype" and str(dtype).startswith("dictionary")


def _polars_frame(frame: Any, seen: SeenCategories) -> Frame:
    columns = frame.get_columns()
    for series in columns:
        if series.dtype.is_temporal():
            require_real("M", f"column {series.name}")
    single = all(str(series.dtype) == "Float32" for series in columns)
    polars = sys.modules["polars"]
    # The codes of a Categorical depend on other data that the process has read.
    string_columns = _positions(columns, lambda series: series.dtype in (polars.String, polars.Categorical))
    long_columns = _positions(columns, lambda series: series.dtype in (polars.Int64, polars.UInt64))
    coded_columns = _positions(columns, lambda series: series.dtype == polars.Enum)
    return Frame(frame.columns, columns, _polars_source, single, string_columns, long_columns, coded_columns)


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


def _arrow_frame(table: Any, seen: SeenCategories) -> Frame:
    types = sys.modules["pyarrow"].types
    for name, column in zip(table.column_names, table.columns, strict=True):
        if types.is_temporal(column.type):
            require_real("M", f"column {name}")
    single = all(types.is_float32(column.type) for column in table.columns)
    string_columns = _positions(table.columns, lambda column: is_text(column.type))
    long_columns = _positions(table.columns, lambda c: types.is_int64(c.type) or types.is_uint64(c.type))
    coded_columns = _positions(table.columns, lambda column: types.is_dictionary(column.type))
    return Frame(
        table.column_names, table.columns, _arrow_source, single, string_columns, long_columns, coded_columns
    )


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


#: Functions that open data frames, by their package.
OPENERS: dict[str, Callable[[Any, SeenCategories], Frame]] = {
    "pandas": _pandas_frame,
    "polars": _polars_frame,
    "pyarrow": _arrow_frame,
}
