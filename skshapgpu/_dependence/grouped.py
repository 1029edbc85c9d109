"""Grids of groups of columns, which change together.

The columns that the steps of a pipeline make from one column of X depend on this column alone. So any value
of it gives a point of the grid, by a row of X with this value. The grid of any other group has combinations
of values that occur in X.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace
from typing import Any

import numpy as np

from .._common.groups import require_groups
from .._engine.features import Features, columns_of_group, read_groups
from .._rows.real_numbers import is_missing
from .._rows.tables import names_of, package_of, select
from .computation import Axis, Computation
from .grid import (
    GridFeature,
    GridOptions,
    Players,
    categories_of,
    column_of,
    deciles_of,
    holds_categories,
    numbers_of,
    numeric_grid,
    read_feature,
    require_data,
)


class GroupedFeatures:
    """Features of a grid that are groups of columns, or single columns, with ``players``.

    The groups are those of :class:`TreeExplainer`. ``ValueError`` or ``TypeError`` is raised if they are
    invalid, or it is not known from which columns of X the steps made their columns.
    """

    def __init__(self, computation: Computation, groups: Any) -> None:
        require_groups("feature_groups", groups, "column")
        self._blank_as_underscore = computation.adapted.schema.blank_as_underscore
        self._by_input = isinstance(groups, str)
        self._groups = read_groups(
            groups, computation.names, computation.origins, blank_as_underscore=self._blank_as_underscore
        )
        names = Features(self._groups).names(computation.names)
        self.players = Players(computation, self._groups, names)
        self._members = groups if isinstance(groups, Mapping) else {}
        self._computation = computation

    def read(self, feature: int, options: GridOptions) -> GridFeature:
        """Return a feature with its grid; raise an error if there is no such grid."""
        columns, name = self._groups[feature].columns, self.players.names[feature]
        if self._by_input:
            return _InputColumn(self._computation, columns, name).read(feature, options)
        if len(columns) > 1:
            columns = self._columns_as_listed(feature)
            return _read_combinations(self._computation, columns, name, options, options.custom.get(feature))
        (column,) = columns
        categorical_columns = {column} if feature in (options.categorical or ()) else set()
        custom = {column: options.custom[feature]} if feature in options.custom else {}
        categorical = None if options.categorical is None else frozenset(categorical_columns)
        return read_feature(
            self._computation, column, replace(options, categorical=categorical, custom=custom)
        )

    def _columns_as_listed(self, feature: int) -> tuple[int, ...]:
        """Return the columns of a group in the order of its list, or for a set in the order of X."""
        group, columns = self._groups[feature]
        assert group is not None  # only a group has several columns
        members = self._members[group]
        if isinstance(members, Set):
            return columns
        names, origins = self._computation.names, self._computation.origins
        return columns_of_group(group, members, names, origins, self._blank_as_underscore)


class _InputColumn:
    """A column of X, from which the steps of a pipeline make columns that the model receives."""

    def __init__(self, computation: Computation, columns: tuple[int, ...], name: str) -> None:
        self._computation, self._name, self._data = computation, name, require_data(computation)
        self._columns = computation.columns_of(*columns)
        assert computation.origins is not None
        self._position = int(computation.origins.columns_in(names_of(self._data))[columns[0]])

    def read(self, feature: int, options: GridOptions) -> GridFeature:
        column_values = column_of(self._data, self._position, False)
        is_categorical = options.is_categorical(
            feature, lambda: holds_categories(self._data, self._position, column_values)
        )
        occurring, first_rows = categories_of(column_values)
        row_of = {_key(value): row for value, row in zip(occurring.tolist(), first_rows)}
        custom = options.custom.get(feature)
        if is_categorical:
            values = occurring if custom is None else np.asarray(custom, object)
            points = self._computation.points_of_rows(_rows_with(values.tolist(), row_of, self._name))
            return GridFeature(Axis(self._columns, points), values, True, None)
        numbers = numbers_of(column_values, self._name)
        if custom is None and options.grid_resolution == "exact":
            raise ValueError(
                "grid_resolution='exact' has the jumps at thresholds of the trees, but steps of the pipeline "
                f"transform {self._name!r}: use a number, custom_values, or leave feature_groups out"
            )
        values = numeric_grid(numbers, self._name, options, custom)
        keys = [_key(value) for value in values.tolist()]
        if all(key in row_of for key in keys):
            points = self._computation.points_of_rows([row_of[key] for key in keys])
        else:
            changed = self._computation.reader.without_warnings().read_on_host(self._with_numbers(values))
            points = changed.chunk(0, len(values))
        return GridFeature(Axis(self._columns, points), values, False, deciles_of(numbers))

    def _with_numbers(self, values: np.ndarray) -> Any:
        """Return copies of the first row of X with these numbers in the column.

        A column of floats keeps its type. A sparse column stays sparse, because steps may treat sparse
        columns in their own way: scalers do not center them.
        """
        rows = select(self._data, np.zeros(len(values), np.int64))
        package = package_of(rows)
        if isinstance(rows, np.ndarray):
            rows = rows.astype(np.float64) if rows.dtype.kind in "iub" else rows
            rows[:, self._position] = values
            return rows
        if package == "pandas":
            rows = rows.reset_index(drop=True)
            rows.isetitem(self._position, _like(values, rows.iloc[:, self._position].array))
            return rows
        if package == "polars":
            column = rows.get_column(rows.columns[self._position])
            return rows.with_columns(type(column)(column.name, values))
        raise TypeError(
            f"the grid of {self._name!r} has numbers that do not occur in X, which can be put only into an "
            "array, or a data frame of pandas or polars: convert X, or give custom_values that occur in it"
        )


def _like(values: np.ndarray, column: Any) -> Any:
    """Return numbers in the type of a column of pandas, if they are floats or it is sparse."""
    import pandas as pd

    dtype = column.dtype
    if isinstance(dtype, pd.SparseDtype):
        sparse_dtype = (
            dtype if dtype.subtype.kind == "f" else pd.SparseDtype(np.float64, float(dtype.fill_value))
        )
        return pd.array(values, dtype=sparse_dtype)
    return values.astype(np.float32 if dtype == np.float32 else np.float64)


def _read_combinations(
    computation: Computation, columns: tuple[int, ...], name: str, options: GridOptions, custom: Any
) -> GridFeature:
    """Return a group whose grid has combinations of the values of its columns that occur in X, as tuples."""
    rows, absent_is_missing = computation.rows, computation.adapted.schema.sparse_zero_missing
    columns_of_values = [column_of(rows.data, column, absent_is_missing).tolist() for column in columns]
    row_of: dict[Any, int] = {}
    for row, values in enumerate(zip(*columns_of_values)):
        row_of.setdefault(tuple(map(_key, values)), row)
    if custom is None:
        keys = _in_order(row_of)
        limit = options.grid_resolution
        if limit != "exact" and len(keys) > limit:
            raise ValueError(
                f"the columns of {name!r} have {len(keys):,} different combinations of values in X, more "
                f"than grid_resolution={limit}: give custom_values, a larger number, or 'exact' for all"
            )
    else:
        keys = [_combination(values, columns, name) for values in custom]
    points = computation.points_of_rows(_rows_with(keys, row_of, name))
    combinations = np.empty(len(keys), object)
    combinations[:] = [tuple(np.nan if value is None else value for value in key) for key in keys]
    return GridFeature(Axis(computation.columns_of(*columns), points), combinations, True, None)


def _combination(custom: Any, columns: tuple[int, ...], name: str) -> tuple[Any, ...]:
    values = custom.tolist() if isinstance(custom, np.ndarray) else custom
    if isinstance(values, str) or not hasattr(values, "__len__") or len(values) != len(columns):
        raise ValueError(
            f"custom_values of {name!r} must be a list of combinations of {len(columns)} values, one for "
            f"each column of the group, not of {custom!r:.80}"
        )
    return tuple(map(_key, values))


def _key(value: Any) -> Any:
    return None if is_missing(value) else value


def _in_order(keys: Mapping[Any, int]) -> list[tuple[Any, ...]]:
    """Return combinations in ascending order, missing values last."""
    try:
        return sorted(keys, key=lambda key: [(value is None, 0 if value is None else value) for value in key])
    except TypeError:  # values of several types have no order
        return sorted(keys, key=str)


def _rows_with(keys: list[Any], row_of: Mapping[Any, int], name: str) -> list[int]:
    """Return a row of X with each value or combination; raise ``ValueError`` if a row is missing."""
    clean_keys = [key if isinstance(key, tuple) else _key(key) for key in keys]
    unknown = [key for key in clean_keys if key not in row_of]
    if unknown or not clean_keys:
        problem = f"has {unknown[0]!r}, which occurs in no row of X" if unknown else "has no values"
        raise ValueError(f"custom_values of {name!r} {problem}: give values that occur")
    return [row_of[key] for key in clean_keys]
