"""Grids of groups of columns, which change together.

The columns that the steps of a pipeline make from one column of X depend on nothing else, so a row with any
value of that column has them. The grid of any other group has combinations of values that occur in X.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace
from typing import Any

import numpy as np

from .._engine.features import Features, Group, columns_of_group, read_groups, require_groups
from .._rows.real_numbers import is_missing
from .._rows.tables import names_of, package_of, select
from .computation import Axis, Computation
from .grid import (
    GridFeature,
    GridOptions,
    Players,
    categorical_inputs,
    categories_of,
    column_of,
    deciles_of,
    even_grid,
    given_numbers,
    numbers_of,
    read_feature,
    require_data,
)


class GroupedFeatures:
    """Features of a grid that are groups of columns, or single columns.

    Parameters
    ----------
    computation : Computation
    groups : mapping of str to list, or "input"
        As for :class:`TreeExplainer`.

    Attributes
    ----------
    players : Players

    Raises
    ------
    ValueError, TypeError, IndexError
        The groups are invalid, or the columns of X from which steps made others are not known.
    """

    def __init__(self, computation: Computation, groups: Any) -> None:
        require_groups(groups)
        self._blank_as_underscore = computation.adapted.schema.blank_as_underscore
        found = read_groups(
            groups, computation.names, computation.origins, blank_as_underscore=self._blank_as_underscore
        )
        self._by_input = isinstance(groups, str) and found is not None
        columns = (Group(None, (i,)) for i in range(len(computation.names)))
        self._groups = tuple(columns) if found is None else found
        names = Features(self._groups).names(computation.names)
        self.players = Players(computation, self._groups, names)
        self._members = groups if isinstance(groups, Mapping) else {}
        self._computation = computation

    def read(self, feature: int, options: GridOptions) -> GridFeature:
        """Return a feature with its grid.

        Raises
        ------
        ValueError, TypeError
            There is no such grid, or the model does not accept a value.
        """
        columns, name = self._groups[feature].columns, self.players.names[feature]
        if self._by_input:
            return _OfInput(self._computation, columns, name).read(feature, options)
        if len(columns) > 1:
            columns = self._as_listed(feature)
            return _of_combinations(self._computation, columns, name, options, options.custom.get(feature))
        (column,) = columns
        of_column = {column} if feature in (options.categorical or ()) else set()
        custom = {column: options.custom[feature]} if feature in options.custom else {}
        categorical = None if options.categorical is None else frozenset(of_column)
        return read_feature(
            self._computation, column, replace(options, categorical=categorical, custom=custom)
        )

    def _as_listed(self, feature: int) -> tuple[int, ...]:
        """Return the columns of a group in the order in which it lists them; a set has those of X."""
        group, columns = self._groups[feature]
        assert group is not None  # only groups are asked for
        members = self._members[group]
        if isinstance(members, Set):
            return columns
        names, origins = self._computation.names, self._computation.origins
        return columns_of_group(group, members, names, origins, self._blank_as_underscore)


class _OfInput:
    """A column of X, from which the steps of a pipeline make columns that the model receives."""

    def __init__(self, computation: Computation, columns: tuple[int, ...], name: str) -> None:
        self._computation, self._name, self._data = computation, name, require_data(computation)
        self._columns = computation.columns_of(*columns)
        assert computation.origins is not None
        self._place = int(computation.origins.columns_in(names_of(self._data))[columns[0]])

    def read(self, feature: int, options: GridOptions) -> GridFeature:
        of_rows = column_of(self._data, self._place, False)
        is_categorical = feature in (
            categorical_inputs(self._data, self._place, of_rows, feature)
            if options.categorical is None
            else options.categorical
        )
        occurring, first = categories_of(of_rows)
        row_of = {_key(value): row for value, row in zip(occurring.tolist(), first)}
        custom = options.custom.get(feature)
        if is_categorical:
            values = occurring if custom is None else np.asarray(custom, object)
            points = _points_of_rows(self._computation, _rows_with(values.tolist(), row_of, self._name))
            return GridFeature(Axis(self._columns, points), values, True, None)
        numbers = numbers_of(of_rows, self._name)
        if custom is not None:
            values = given_numbers(custom, self._name)
        elif options.grid_resolution == "exact":
            raise ValueError(
                "grid_resolution='exact' has the jumps at thresholds of the trees, but steps of the pipeline "
                f"transform {self._name!r}: use a number, custom_values, or leave feature_groups out"
            )
        else:
            values = even_grid(numbers, self._name, options)
        keys = [_key(value) for value in values.tolist()]
        if all(key in row_of for key in keys):
            points = _points_of_rows(self._computation, [row_of[key] for key in keys])
        else:
            changed = self._computation.reader.without_warnings().read_on_host(self._with_numbers(values))
            points = changed.chunk(0, len(values))
        return GridFeature(Axis(self._columns, points), values, False, deciles_of(numbers))

    def _with_numbers(self, values: np.ndarray) -> Any:
        """Return rows that are the first one of X, with these numbers in the column.

        The column keeps its type if that is one of floats. Steps may transform sparse columns otherwise than
        dense ones, such as scalers, which do not center them, so a sparse column stays one.
        """
        rows = select(self._data, np.zeros(len(values), np.int64))
        package = package_of(rows)
        if isinstance(rows, np.ndarray):
            rows = rows.astype(np.float64) if rows.dtype.kind in "iub" else rows
            rows[:, self._place] = values
            return rows
        if package == "pandas":
            rows = rows.reset_index(drop=True)
            rows.isetitem(self._place, _like(values, rows.iloc[:, self._place].array))
            return rows
        if package == "polars":
            column = rows.get_column(rows.columns[self._place])
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
        kept = dtype if dtype.subtype.kind == "f" else pd.SparseDtype(np.float64, float(dtype.fill_value))
        return pd.array(values, dtype=kept)
    return values.astype(np.float32 if dtype == np.float32 else np.float64)


def _of_combinations(
    computation: Computation, columns: tuple[int, ...], name: str, options: GridOptions, custom: Any
) -> GridFeature:
    """Return a group whose grid has combinations of the values of its columns that occur in X, as tuples."""
    rows, absent_is_missing = computation.rows, computation.adapted.schema.sparse_zero_missing
    of_columns = [column_of(rows.data, column, absent_is_missing).tolist() for column in columns]
    row_of: dict[Any, int] = {}
    for row, values in enumerate(zip(*of_columns)):
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
        keys = [_combination(each, columns, name) for each in custom]
    points = _points_of_rows(computation, _rows_with(keys, row_of, name))
    found = np.empty(len(keys), object)
    found[:] = [tuple(np.nan if value is None else value for value in key) for key in keys]
    return GridFeature(Axis(computation.columns_of(*columns), points), found, True, None)


def _combination(given: Any, columns: tuple[int, ...], name: str) -> tuple[Any, ...]:
    values = given.tolist() if isinstance(given, np.ndarray) else given
    if isinstance(values, str) or not hasattr(values, "__len__") or len(values) != len(columns):
        raise ValueError(
            f"custom_values of {name!r} must be a list of combinations of {len(columns)} values, one for "
            f"each column of the group, not of {given!r:.80}"
        )
    return tuple(map(_key, values))


def _key(value: Any) -> Any:
    return None if is_missing(value) else value


def _in_order(keys: Mapping[Any, int]) -> list[tuple[Any, ...]]:
    """Return combinations in ascending order, missing values last."""
    try:
        return sorted(keys, key=lambda key: [(value is None, 0 if value is None else value) for value in key])
    except TypeError:  # of several types
        return sorted(keys, key=str)


def _rows_with(keys: list[Any], row_of: Mapping[Any, int], name: str) -> list[int]:
    """Return a row of X with each value, or combination of values.

    Raises
    ------
    ValueError
        There are no values, or one that occurs in no row.
    """
    wanted = [key if isinstance(key, tuple) else _key(key) for key in keys]
    unknown = [key for key in wanted if key not in row_of]
    if unknown or not wanted:
        what = f"has {unknown[0]!r}, which occurs in no row of X" if unknown else "has no values"
        raise ValueError(f"custom_values of {name!r} {what}: give values that occur")
    return [row_of[key] for key in wanted]


def _points_of_rows(computation: Computation, rows: list[int]) -> np.ndarray:
    return np.concatenate([computation.rows.chunk(row, row + 1) for row in rows])
