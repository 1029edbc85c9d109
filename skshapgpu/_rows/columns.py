"""Columns of the explained rows as numbers, which determine the positions and colours of points in plots."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from numbers import Integral, Real
from typing import Any

import numpy as np
import scipy.sparse as sp

from .._common.digits import number
from .gpu_arrays import copied_to_host
from .real_numbers import is_missing
from .tables import n_rows_of, package_of, select, to_array

#: Pairs of percentiles between which colours change, tried in this order, from robust to all values.
_PERCENTILES = ((5, 95), (1, 99), (0, 100))


@dataclass(frozen=True)
class NumericColumn:
    """A feature's values in some rows."""

    numbers: np.ndarray  # float64, (n_rows,): numbers, or positions in ``categories``; NaN where missing
    #: Names of the categories, in the order of the column's type or else sorted; None for numbers.
    categories: tuple[str, ...] | None = None
    #: The values before they became float64, if they are integers, booleans or objects. An entry whose number
    #: is missing may hold anything.
    exact: np.ndarray | None = None
    #: Whether the categories have an order: those of an ordered categorical column of pandas.
    is_ordered: bool = False

    @property
    def missing(self) -> np.ndarray:
        return np.isnan(self.numbers)

    def values(self) -> list[Any]:
        """Return the values as int, bool or float, as X has them, or names of categories; None if missing."""
        numbers, categories = self.numbers.tolist(), self.categories
        if categories is not None:
            return [None if code != code else categories[int(code)] for code in numbers]
        values = numbers if self.exact is None else map(_python_number, self.exact.tolist())
        return [value if number == number else None for number, value in zip(numbers, values)]

    def as_strings(self, form: Callable[[float], str] = lambda value: number(value, 5)) -> list[str]:
        """Return the values as strings: "missing", names, "True" and "False", and numbers by ``form``."""
        return [
            "missing" if value is None else str(value) if isinstance(value, (str, bool)) else form(value)
            for value in self.values()
        ]

    def limits(self) -> tuple[float, float] | None:
        """Return the numbers between which colours change; None if there are no numbers."""
        finite = self.numbers[np.isfinite(self.numbers)]
        if not len(finite):
            return None
        if self.categories is not None:
            return 0.0, max(len(self.categories) - 1.0, 0.0)
        low = high = 0.0
        for percentiles in _PERCENTILES:
            low, high = np.percentile(finite, percentiles)
            if low < high:
                break
        return float(low), float(high)

    def scaled(self) -> np.ndarray:
        """Return numbers from 0 (low) to 1 (high); 0.5 if all are equal; NaN where missing."""
        limits = self.limits()
        if limits is None or limits[0] == limits[1]:
            return np.where(self.missing, np.nan, 0.5)
        low, high = limits
        return (np.clip(self.numbers, low, high) - low) / (high - low)

    def most_frequent(self, n: int) -> NumericColumn:
        """Return the column with at most n categories, of which the last one combines the rarest."""
        categories = self.categories
        if categories is None or len(categories) <= n:
            return self
        present = self.numbers[~self.missing].astype(np.int64)
        counts = np.bincount(present, minlength=len(categories))
        frequent = np.sort(np.argsort(-counts, kind="stable")[: n - 1])
        new_code = np.full(len(categories), n - 1.0)
        new_code[frequent] = np.arange(n - 1)
        numbers = np.full(len(self.numbers), np.nan)
        numbers[~self.missing] = new_code[present]
        names = tuple(categories[i] for i in frequent)
        return NumericColumn(numbers, (*names, f"{len(categories) - len(frequent)} others"))


@dataclass(frozen=True, eq=False)
class GroupedRows:
    """Rows of a table in which some columns form groups: the ``data`` of an explanation with such features.

    ``data[rows]`` and ``data[:, features]`` select, and NumPy reads it as an array of objects. The value of a
    group in a row is a string with the values of its columns.
    """

    rows: Any  # all columns
    groups: tuple[tuple[int, ...], ...]  # columns of each feature
    names: tuple[str, ...]  # names of the columns

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and features."""
        return n_rows_of(self.rows), len(self.groups)

    @property
    def dtype(self) -> Any:
        """Dtype of all columns; None if each column has its own."""
        return getattr(self.rows, "dtype", None)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> GroupedRows:
        rows, features = key if isinstance(key, tuple) else (key, slice(None))
        groups = self.groups if isinstance(features, slice) else tuple(self.groups[i] for i in features)
        return replace(self, rows=select(self.rows, rows), groups=groups)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        values, rows = np.empty(self.shape, object), np.arange(len(self))
        for feature in range(self.shape[1]):
            column = read_column(self, feature, rows)
            values[:, feature] = column.values()
            values[column.missing, feature] = np.nan
        return values if dtype is None else values.astype(dtype)

    def is_group(self, feature: int) -> bool:
        """Return whether a feature has several columns."""
        return len(self.groups[feature]) > 1

    def column(self, feature: int, rows: np.ndarray) -> NumericColumn:
        """Return the values of a feature in some rows. The values of a group are categories."""
        columns = [read_column(self.rows, column, rows) for column in self.groups[feature]]
        if not self.is_group(feature):
            return columns[0]
        names = [self.names[column] for column in self.groups[feature]]
        strings = [
            [f"{name}={value}" for value in column.as_strings()] for name, column in zip(names, columns)
        ]
        return _column_of_values(np.array([", ".join(members) for members in zip(*strings)], object))


def is_group(data: Any, feature: int) -> bool:
    """Return whether a feature of any ``Explanation.data`` is a group of columns."""
    return isinstance(data, GroupedRows) and data.is_group(feature)


def read_column(data: Any, feature: int, rows: np.ndarray) -> NumericColumn:
    """Return a feature's values in rows of any ``Explanation.data``."""
    if isinstance(data, GroupedRows):
        return data.column(feature, rows)
    if package_of(data) == "pandas":  # the rows of a column take a tenth of the time of the rows of a frame
        series = data.iloc[:, feature]
        if isinstance(series.dtype, np.dtype):
            return _column_of_values(series.to_numpy()[rows])
        return _column_of_series(series.iloc[rows])
    if hasattr(data, "iloc") or hasattr(data, "get_columns") or hasattr(data, "column_names"):
        return _column_of_frame(select(data, rows, np.array([feature])))
    if sp.issparse(data):
        return _column_of_values(select(data, rows, np.array([feature])).toarray().ravel())
    return _column_of_values(to_array(data)[rows, feature])


def numbers_of(data: Any) -> tuple[np.ndarray, bool]:
    """Return any ``Explanation.data`` as an array of numbers, and whether any column is categorical."""
    n_rows, n_features = data.shape
    columns = [read_column(data, feature, np.arange(n_rows)) for feature in range(n_features)]
    numbers = [column.numbers for column in columns]
    return np.column_stack(numbers), any(column.categories is not None for column in columns)


def _column_of_frame(frame: Any) -> NumericColumn:
    """Read the only column of a data frame of cuDF or polars, or of a table of PyArrow."""
    frame = copied_to_host(frame)
    if hasattr(frame, "iloc"):
        return _column_of_series(frame.iloc[:, 0])
    if hasattr(frame, "get_columns"):
        return _column_of_polars(frame.get_columns()[0])
    column = frame.column(0)
    kind = str(column.type)
    if kind.startswith(("int", "uint", "bool")):
        present = column.fill_null(False if kind == "bool" else 0)
        missing = column.is_null().to_numpy(zero_copy_only=False)
        return _column_of_integers(present.to_numpy(zero_copy_only=False), missing)
    if kind.startswith(("float", "double")):
        return _column_of_values(column.to_numpy())
    return _column_of_values(_objects(column.to_pylist()))


def _column_of_polars(series: Any) -> NumericColumn:
    kind = type(series.dtype).__name__
    if kind == "Enum":
        names = list(series.dtype.categories)
        position = {name: i for i, name in enumerate(names)}
        return _column_of_codes([position.get(name, -1) for name in series.to_list()], names)
    if series.dtype.is_integer() or kind == "Boolean":
        present = series.fill_null(False if kind == "Boolean" else 0)
        return _column_of_integers(present.to_numpy(), series.is_null().to_numpy())
    return _column_of_values(series.to_numpy() if kind != "Categorical" else _objects(series.to_list()))


def _column_of_series(series: Any) -> NumericColumn:
    """Read a series of pandas."""
    if type(series.dtype).__name__ == "CategoricalDtype":
        column = _column_of_codes(series.cat.codes, series.cat.categories)
        return replace(column, is_ordered=bool(series.cat.ordered))
    if getattr(series.dtype, "kind", "O") in "iub" and series.hasnans:  # to_numpy() would return floats
        dtype = series.dtype.numpy_dtype
        return _column_of_integers(series.to_numpy(dtype, na_value=dtype.type(0)), series.isna().to_numpy())
    return _column_of_values(series.to_numpy())


def _column_of_integers(values: np.ndarray, missing: np.ndarray) -> NumericColumn:
    """Return a column of integers or booleans, some of which are missing, whatever their values are."""
    return NumericColumn(np.where(missing, np.nan, values.astype(np.float64)), exact=values)


def _python_number(value: Any) -> Any:
    """Return a number as bool, int or float, and any other object as it is."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, Integral):
        return int(value)
    return float(value) if isinstance(value, (Real, Decimal)) else value


def _objects(values: list[Any]) -> np.ndarray:
    array = np.empty(len(values), object)
    array[:] = values
    return array


def _column_of_codes(codes: Any, names: Any) -> NumericColumn:
    numbers = np.asarray(codes, np.float64).copy()
    numbers[numbers < 0] = np.nan
    return NumericColumn(numbers, tuple(map(str, names)))


def _column_of_values(values: np.ndarray) -> NumericColumn:
    """Read a column as numbers if all non-missing values are numbers, otherwise as sorted categories."""
    if values.dtype.kind in "fiub":
        return NumericColumn(values.astype(np.float64), exact=values if values.dtype.kind != "f" else None)
    is_present = np.array([not is_missing(value) for value in values], bool)
    numbers = np.full(len(values), np.nan)
    present = values[is_present]
    if all(isinstance(value, (Real, np.bool_, Decimal)) for value in present):
        numbers[is_present] = present.astype(np.float64)
        return NumericColumn(numbers, exact=values)
    names, codes = np.unique([str(value) for value in present], return_inverse=True)
    numbers[is_present] = codes
    return NumericColumn(numbers, tuple(map(str, names)))
