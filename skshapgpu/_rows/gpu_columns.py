"""X on a GPU, also X that has to be converted: columns with categories, and data frames of cuDF.

Encoders run on the host. An encoder maps each value by itself, so only the distinct values of a column are
copied to the host and encoded. Their codes are copied back, and looked up for each row on the GPU. All
columns are gathered in a new array on the GPU, in the precision in which the model's library reads X.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np

from .._common.devices import Devices, label
from ..adapters.schema import InputSchema
from . import gpu_arrays
from .column_rules import ColumnRules, NameRules, check_number
from .frames import SeenCategories, array_of_series, pandas_source
from .gpu_arrays import GpuArray, NumberRules, cast, dtype_of, to_host
from .real_numbers import has_categories, is_long, require_real

_FLOAT32 = np.dtype(np.float32)


class _Columns(ABC):
    """Columns of X on a GPU."""

    shape: tuple[int, int]
    gpu: int
    dtype: np.dtype  # type of the results
    labels: Sequence[Any] | None = None  # labels of the columns
    #: Package of a data frame, as encoders know it. A data frame of cuDF is read like one of pandas.
    package: str | None = None
    string_columns: frozenset[int] = frozenset()  # positions of columns of strings
    category_columns: frozenset[int] = frozenset()  # positions of categorical columns
    long_columns: frozenset[int] = frozenset()  # positions of columns of 64-bit integers in a data frame

    @abstractmethod
    def numbers(self, feature: int) -> Any:
        """Return a column of numbers as an array of PyTorch or CuPy; nulls become NaN."""

    @abstractmethod
    def distinct(self, feature: int) -> tuple[np.ndarray, np.ndarray | None, Any]:
        """Return a column's distinct values, their category codes, and the position of each row's value."""


class _ArrayColumns(_Columns):
    """Columns of an array of PyTorch or CuPy."""

    def __init__(self, array: Any) -> None:
        self._array = array
        self.shape = (int(array.shape[0]), int(array.shape[1]))
        self.gpu = gpu_arrays.gpu_of(array)
        self.dtype = _FLOAT32 if dtype_of(array) == _FLOAT32 else np.dtype(np.float64)

    def numbers(self, feature: int) -> Any:
        return self._array[:, feature]

    def distinct(self, feature: int) -> tuple[np.ndarray, None, Any]:
        values, positions = distinct(self._array[:, feature])
        return values, None, positions


class _FrameColumns(_Columns):
    """Columns of a data frame of cuDF; its arrays are CuPy's."""

    package = "pandas"

    def __init__(self, frame: Any) -> None:
        cupy = gpu_arrays.require_cupy(frame)
        self.shape = (int(frame.shape[0]), int(frame.shape[1]))
        self.gpu = int(cupy.cuda.runtime.getDevice())  # cuDF works on the current GPU
        self.labels = list(frame.columns)
        self._series = [series for _, series in frame.items()]
        dtypes = [series.dtype for series in self._series]
        self.string_columns = frozenset(i for i, dtype in enumerate(dtypes) if _is_text(dtype))
        self.category_columns = frozenset(i for i, dtype in enumerate(dtypes) if has_categories(dtype))
        self.long_columns = frozenset(
            i for i, dtype in enumerate(dtypes) if _is_number(dtype) and is_long(dtype)
        )
        single = all(dtype.kind == "f" and getattr(dtype, "itemsize", 8) == 4 for dtype in dtypes)
        self.dtype = _FLOAT32 if single else np.dtype(np.float64)
        for i, dtype in enumerate(dtypes):
            if i in self.string_columns | self.category_columns or _is_number(dtype):
                continue
            if getattr(dtype, "kind", "") in ("m", "M"):
                require_real(dtype.kind, f"column {self.labels[i]}")
            raise TypeError(
                f"column {self.labels[i]} has the type {dtype}, which is not read from a GPU: convert it to "
                "numbers, strings or categories"
            )

    def numbers(self, feature: int) -> Any:
        series = self._series[feature]
        if series.null_count:
            return series.astype("float64").to_cupy(na_value=np.nan)
        return series.to_cupy()

    def distinct(self, feature: int) -> tuple[np.ndarray, np.ndarray | None, Any]:
        if feature not in self.string_columns | self.category_columns:
            values, positions = distinct(self.numbers(feature))
            return values, None, positions
        import pandas

        is_text, series = feature in self.string_columns, self._series[feature]
        if is_text:
            series = series.astype("category")
        codes, positions = distinct(series.cat.codes.astype("int64").to_cupy(na_value=-1))
        values = pandas.Series(pandas.Categorical.from_codes(codes, series.cat.categories.to_pandas()))
        column = array_of_series(values.astype(object) if is_text else values)
        return (*pandas_source(column, SeenCategories())(0, len(codes)), positions)


def _is_text(dtype: Any) -> bool:
    """Return whether a dtype of cuDF holds strings. They are the only objects that it can hold."""
    return dtype == np.dtype(object) or getattr(dtype, "type", None) is str


def _is_number(dtype: Any) -> bool:
    return getattr(dtype, "kind", "") in tuple("fiub")


def read(
    X: Any, schema: InputSchema, x_dtype: str, numbers: NumberRules, names: tuple[str, ...], devices: Devices
) -> GpuArray:
    """Take X on a GPU of ``devices``, without a copy if it is an array of floats without categories.

    ``x_dtype`` is the precision in which the model's library reads X. ``numbers`` are rules for numbers,
    which are checked when X is explained. ``names`` are the names of the columns if X has none. Raise
    ``ValueError`` or ``TypeError`` if the model does not accept X, as for X on the host; or X is on another
    GPU, or the model derives columns from categories, which is possible only on the host.
    """
    array = None if gpu_arrays.is_frame(X) else gpu_arrays.torch_or_cupy(X)
    columns: _Columns = _FrameColumns(X) if array is None else _ArrayColumns(array)
    labels, dtype = columns.labels, np.dtype(x_dtype)
    column_names = None if labels is None else NameRules(schema).read(labels).names
    check_number(schema, columns.shape[1])
    sets = columns.long_columns, columns.string_columns, columns.category_columns
    rules = ColumnRules(schema, dtype, columns.package, column_names, *sets)
    if labels is not None:
        rules.check_categorical()
    if not devices.auto and columns.gpu not in devices.indices:
        raise ValueError(f"X is on cuda:{columns.gpu}, but device is {label(devices.indices)!r}")
    if schema.inputs:
        raise TypeError("X is on a GPU, but members of the model have steps of their own: copy X to the host")
    if schema.derived is not None:
        raise TypeError(
            "X is on a GPU, but the model tests numbers that are computed from categories on the host, as "
            "CatBoost's target statistics: copy X to the host"
        )
    if array is not None and (schema.also_float32 or schema.exact_arrays):
        if gpu_arrays.dtype_of(array) not in (np.float32, np.float64):
            raise TypeError(
                "X is on a GPU, and members of the model may round its type in different ways: "
                "convert it to float64"
            )
    if array is not None and not schema.encoders:
        return gpu_arrays.view(array, X, numbers, names)
    with nullcontext() if array is None else gpu_arrays.current(array):
        block = _gather(columns, array, rules, schema, dtype)
    # Missing values are NaN now, and codes may be any number.
    return gpu_arrays.view(block, X, replace(numbers, missing=np.nan), column_names or names, columns.dtype)


def _gather(columns: _Columns, array: Any, rules: ColumnRules, schema: InputSchema, dtype: np.dtype) -> Any:
    """Return all columns as an array, encoded; NaN means missing."""
    block = _empty(columns.shape, dtype, array)
    if array is not None:
        block[...] = array
    for feature in range(columns.shape[1]):
        if feature in columns.string_columns | columns.category_columns or rules.has_encoder(feature):
            _look_up(block[:, feature], feature, columns, rules, dtype)
        elif array is None:
            numbers = columns.numbers(feature)
            if feature in columns.long_columns:
                wide = abs(cast(numbers, "float64")) >= 2.0**53  # smaller numbers have only one rounding
                rules.require_one_rounding(to_host(numbers[wide]), rules.name(feature))
            block[:, feature] = numbers
    missing = float(dtype.type(schema.missing_value))
    if missing == missing:
        is_missing = block == missing
        for feature in schema.encoders:  # encoders have treated missing values themselves
            is_missing[:, feature] = False
        block[is_missing] = np.nan
    return block


def _look_up(out: Any, feature: int, columns: _Columns, rules: ColumnRules, dtype: np.dtype) -> None:
    """Write a column on the GPU to ``out``; its distinct values become numbers on the host."""
    values, codes, positions = columns.distinct(feature)
    numbers = np.empty(len(values), dtype)
    with np.errstate(over="ignore"):  # to infinity, which is checked later
        rules.fill(numbers, feature, rules.column(feature, values, codes), None)
    if len(values):
        out[...] = _to_gpu(numbers, positions)[positions]


def _empty(shape: tuple[int, int], dtype: np.dtype, array: Any) -> Any:
    """Return a new column-major array of the same library, on the same GPU as ``array``.

    If ``array`` is None, return an array of CuPy.
    """
    if gpu_arrays.is_torch(array):
        import torch

        return torch.empty(shape[::-1], dtype=getattr(torch, dtype.name), device=array.device).T
    import cupy

    return cupy.empty(shape, dtype, order="F")


def _to_gpu(values: np.ndarray, like: Any) -> Any:
    """Copy an array of NumPy to the GPU of ``like``, as an array of the same library."""
    if gpu_arrays.is_torch(like):
        import torch

        return torch.from_numpy(values).to(like.device)
    import cupy

    return cupy.asarray(values)


def distinct(column: Any) -> tuple[np.ndarray, Any]:
    """Return the distinct numbers of a column on a GPU, and the position of each row's number among them.

    The numbers are on the host, the positions on the GPU. Numbers are compared by their bits, so NaN is a
    number like any other, and 0.0 and -0.0 are two numbers.
    """
    if gpu_arrays.is_torch(column):
        import torch

        if column.is_floating_point() and dtype_of(column) is None:  # such as bfloat16
            column = column.to(torch.float32)
        bits = column.contiguous().view(getattr(torch, f"int{8 * column.element_size()}"))
        distinct_bits, positions = torch.unique(bits, return_inverse=True)
        return to_host(distinct_bits.view(column.dtype)), positions
    import cupy

    bits = cupy.ascontiguousarray(column).view(f"i{column.dtype.itemsize}")
    if not len(bits):
        return np.empty(0, column.dtype), bits
    distinct_bits, positions = cupy.unique(bits, return_inverse=True)
    return to_host(distinct_bits.view(column.dtype)), positions
