"""Grids of partial dependence: scikit-learn's, every breakpoint of the trees, or given values."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from numbers import Real
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.stats.mstats import mquantiles

from .._common.checks import require_count, with_article
from .._common.distinct import distinct_numbers
from .._common.positions import is_integer, listed, read_position, require_position
from .._engine.features import Group
from .._rows.columns import read_column
from .._rows.inputs import read
from .._rows.real_numbers import is_missing
from .._rows.tables import names_of, package_of, row_labels, select, to_array
from ..adapters.ensemble import ZERO_MAGNITUDE, Ensemble
from ..adapters.schema import Column, category_codes
from .computation import Axis, Computation

#: Probabilities of the quantiles of a feature that displays mark.
_DECILES = np.arange(0.1, 1.0, 0.1)


@dataclass(frozen=True)
class GridOptions:
    """Options of a grid, which :func:`partial_dependence` describes."""

    percentiles: Any
    grid_resolution: Any
    categorical: frozenset[int] | None
    custom: Mapping[int, Any]

    @classmethod
    def read(
        cls,
        players: Players,
        features: tuple[int, ...],
        percentiles: Any,
        grid_resolution: Any,
        categorical_features: Any,
        custom_values: Any,
    ) -> GridOptions:
        """Check the options; raise an error if one is invalid or names an unknown column."""
        if not isinstance(percentiles, Collection) or len(percentiles) != 2:
            raise ValueError(f"percentiles must be two numbers, not {percentiles!r}")
        low, high = percentiles
        if not (0 <= low < high <= 1):
            raise ValueError(f"percentiles must be ascending, and from 0 to 1, not {percentiles!r}")
        require_count("grid_resolution", grid_resolution, 2, ("exact",))
        custom: dict[int, Any] = {}
        if not isinstance(custom_values, Mapping | None):
            raise TypeError(f"custom_values must be a dict or None, not {with_article(custom_values)}")
        for key, values in (custom_values or {}).items():
            feature = players.number("custom_values", key)
            if feature in custom:
                name = players.names[feature]
                raise ValueError(f"custom_values has {name!r} twice, by name and by position")
            custom[feature] = values
        unused = [players.names[i] for i in custom if i not in features]
        if unused:
            raise ValueError(f"custom_values has {unused[0]!r}, which is not among the features")
        return cls((low, high), grid_resolution, _categorical(categorical_features, players), custom)

    def is_categorical(self, feature: int, by_default: Callable[[], bool]) -> bool:
        """Return whether the user says that a feature is categorical, or whether it is so by default."""
        return by_default() if self.categorical is None else feature in self.categorical


class Players:
    """The features whose dependence can be computed: by name, or by the position of a column of X.

    ``groups`` are the columns of each feature, whose names are ``names``. Without groups, each column that
    the model receives is a feature.

    Attributes
    ----------
    names : tuple of str
        Names of the features, followed by the names of the columns of X that the leading steps of a pipeline
        drop.
    dropped : dict of int to int
        Position in X of each column that the steps drop, by its number among the features.
    columns : list of str
        Names of the columns of X.
    n_columns : int
        Number of columns of X.
    """

    def __init__(
        self, computation: Computation, groups: Sequence[Group] | None = None, names: tuple[str, ...] = ()
    ) -> None:
        self._computation, self._groups = computation, groups
        feature_names = names if groups is not None else computation.names
        origins = computation.origins
        self.names, self.dropped, self.n_columns = feature_names, dict[int, int](), len(computation.names)
        self.columns = list(computation.names)
        if origins is None or origins.columns is None:
            return
        self.n_columns = origins.n_inputs
        labels = None if origins.data is None else names_of(origins.data)
        self.columns = list(labels or origins.names)
        self.names = (*feature_names, *(self.columns[i] for i in origins.dropped))
        self.dropped = {len(feature_names) + i: column for i, column in enumerate(origins.dropped)}

    def number(self, argument: str, feature: Any, *, with_values: bool = True) -> int:
        """Return the number of a feature, given by its name or by the position of a column of X.

        With ``with_values``, the values of the feature must be the values of the column. Raise ``ValueError``
        or ``TypeError`` if there is no such feature, a position does not stand for a single feature, or
        ``feature`` is neither a name nor a position.
        """
        if is_integer(feature):
            return self._number_of_column(argument, int(feature), with_values)
        if self.names.count(feature) > 1:  # a step made up the name that a dropped column of X has
            raise ValueError(
                f"{argument}: {feature!r} is the name of a column that the model receives, and of another "
                "column of X, which the steps drop: give the position of one in X"
            )
        return read_position(argument, feature, self.names, "feature")

    def _number_of_column(self, argument: str, position: int, with_values: bool) -> int:
        origins, groups = self._computation.origins, self._groups
        if origins is None:
            columns = [require_position(argument, position, self.n_columns, "column")]
        else:
            columns = origins.made_from(argument, position).tolist()
            if not columns:
                return next(number for number, column in self.dropped.items() if column == position)
        if groups is not None:
            numbers = [i for i, group in enumerate(groups) if set(group.columns) & set(columns)]
            if len(numbers) == 1 and groups[numbers[0]].columns == tuple(columns):
                return numbers[0]
            raise ValueError(
                f"{argument}: {position} is the position of a column of X, which is no feature by itself: "
                f"give names, such as {listed([self.names[i] for i in numbers])}"
            )
        if origins is not None:
            number = origins.made_alone_from(argument, position, self.names)
            assert number is not None and origins.changed is not None
            if with_values and origins.changed[number]:
                raise ValueError(
                    f"{argument}: {position} is the position of a column of X, whose values the steps "
                    f"change: give the name of the column that they make, {self.names[number]!r}, or "
                    "feature_groups='input' for the column of X"
                )
            return number
        return position


def _categorical(features: Any, players: Players) -> frozenset[int] | None:
    """Return the numbers of the features that ``categorical_features`` names or masks."""
    if features is None:
        return None
    keys = np.atleast_1d(features)  # the letters of a single name are not names
    if keys.dtype.kind == "b":
        if keys.shape != (players.n_columns,):
            raise ValueError(
                f"categorical_features as a mask must have {players.n_columns} elements, one for each column "
                f"of X, not the shape {keys.shape}"
            )
        index, columns = row_labels(features), players.columns
        if index is not None and index.dtype.kind not in "iu" and list(map(str, index)) != columns:
            raise ValueError(
                "categorical_features: the index of the mask must be the columns of X, in order: select with "
                ".loc[X.columns], or pass a NumPy array"
            )
        keys = np.flatnonzero(keys)
    return frozenset(players.number("categorical_features", key, with_values=False) for key in keys.tolist())


@dataclass(frozen=True, eq=False)
class GridFeature:
    """A feature of a grid."""

    axis: Axis
    #: (n_points,): value at each point. The last value of a categorical feature is NaN if the feature is
    #: missing in a row.
    values: np.ndarray
    is_categorical: bool
    #: (9,): deciles of the feature's values in the rows, for displays. None if the feature is categorical.
    deciles: np.ndarray | None


def read_dropped(
    computation: Computation, column: int, name: str, feature: int, options: GridOptions
) -> GridFeature:
    """Return a column of X, with its grid, that the leading steps drop, so that no tree tests it."""
    data = require_data(computation)
    column_values = column_of(data, column, False)
    is_categorical = options.is_categorical(feature, lambda: holds_categories(data, column, column_values))
    custom, deciles = options.custom.get(feature), None
    if is_categorical:
        values = categories_of(column_values)[0] if custom is None else np.asarray(custom, object)
    else:
        numbers = numbers_of(column_values, name)
        deciles = deciles_of(numbers)
        values = numeric_grid(numbers, name, options, custom, lambda low, high: np.array([low, high]))
    adapted = computation.adapted
    points = np.zeros((len(values), adapted.schema.n_columns), adapted.ensemble.x_dtype)
    return GridFeature(Axis((), points), values, is_categorical, deciles)


def require_data(computation: Computation) -> Any:
    """Return X before the leading steps, to change a column of it; raise ``ValueError`` if X is no table."""
    assert computation.origins is not None
    if computation.origins.data is None:
        raise ValueError("a column of X before the steps needs X as an array or a data frame, to change it")
    return computation.origins.data


def holds_categories(data: Any, column: int, column_values: np.ndarray) -> bool:
    """Return whether a column of X has categories, or holds anything that is not a number."""
    return read_column(data, column, np.arange(1)).categories is not None or not are_numbers(column_values)


def read_feature(computation: Computation, feature: int, options: GridOptions) -> GridFeature:
    """Return a feature with its grid; raise an error if the model does not accept a value of the grid."""
    columns = computation.columns_of(feature)
    name, rows = computation.names[feature], computation.rows
    column_values = column_of(rows.data, feature, computation.adapted.schema.sparse_zero_missing)
    custom = options.custom.get(feature)
    if not options.is_categorical(feature, lambda: _is_categorical(computation, feature, column_values)):
        numbers = numbers_of(column_values, name)
        values = numeric_grid(numbers, name, options, custom, partial(_breakpoints, computation, feature))
        if package_of(rows.data) is not None and rows.rules.has_encoder(feature):
            grid = f"the grid of {name!r}, which is not in categorical_features,"
            points = _points_of_categories(computation, values, grid, *categories_of(column_values))
        else:
            points = _points(computation, feature, values)
        return GridFeature(Axis(columns, points), values, False, deciles_of(numbers))
    values, first_rows = categories_of(column_values)
    if custom is not None:
        return _custom_categories(
            computation, feature, np.asarray(custom, object), columns, values, first_rows
        )
    return GridFeature(Axis(columns, computation.points_of_rows(first_rows)), values, True, None)


def deciles_of(numbers: np.ndarray) -> np.ndarray | None:
    """Return the deciles of the numbers that are not missing; None if all are."""
    present = numbers[~np.isnan(numbers)]
    return np.asarray(mquantiles(present, prob=_DECILES)) if len(present) else None


def column_of(data: Any, feature: int, absent_is_missing: bool) -> np.ndarray:
    """Return a column of any ``HostRows.data``."""
    column_data = select(data, slice(None), np.array([feature]))
    if not sp.issparse(column_data):
        return to_array(column_data).ravel()
    stored = column_data.tocoo()
    column = np.full(column_data.shape[0], np.nan if absent_is_missing else 0.0)
    column[stored.row] = stored.data
    return column


def _is_categorical(computation: Computation, feature: int, column_values: np.ndarray) -> bool:
    """Return whether the model treats a feature as a category, or not all of its values are numbers."""
    ensemble = computation.adapted.ensemble
    tested = (ensemble.left >= 0) & (ensemble.feature == feature)
    return (
        _splits_by_category(ensemble, tested)
        or feature in computation.adapted.schema.encoders
        or computation.rows.rules.is_categorical(feature)
        or not are_numbers(column_values)
    )


def are_numbers(column_values: np.ndarray) -> bool:
    """Return whether all values of a column that are not missing are numbers."""
    if column_values.dtype.kind in "mM":  # NumPy's time spans are instances of Real
        return False
    if column_values.dtype.kind in "fiub":
        return True
    return all(is_missing(value) or isinstance(value, Real) for value in column_values)


def _splits_by_category(ensemble: Ensemble, nodes: np.ndarray) -> bool:
    return bool(len(ensemble.category_set)) and bool((ensemble.category_set[nodes] >= 0).any())


def numbers_of(column_values: np.ndarray, name: str) -> np.ndarray:
    """Return a column as floats, NaN where missing; float32 stays float32."""
    if column_values.dtype.kind == "f":
        return column_values
    if column_values.dtype.kind in "iub":
        return column_values.astype(np.float64)
    try:
        return np.array([np.nan if is_missing(value) else value for value in column_values], np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"column {name!r} holds no numbers: name it in categorical_features") from error


def custom_numbers(values: Any, name: str) -> np.ndarray:
    """Return ``custom_values`` of a feature that holds numbers.

    Raise ``ValueError`` if they are not a list of numbers.
    """
    try:
        numbers = np.asarray(values, np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"custom_values of {name!r} must be numbers: {error}") from error
    if numbers.ndim != 1 or not len(numbers):
        raise ValueError(f"custom_values of {name!r} must be a list of values, not the shape {numbers.shape}")
    return numbers


def numeric_grid(
    numbers: np.ndarray,
    name: str,
    options: GridOptions,
    custom: Any,
    exact: Callable[[float, float], np.ndarray] | None = None,
) -> np.ndarray:
    """Return the custom values, the exact grid between two limits, or scikit-learn's grid.

    The latter has evenly spaced numbers, or all distinct numbers if there are fewer of them. Raise
    ``ValueError`` if the percentiles leave no room for it.
    """
    if custom is not None:
        return custom_numbers(custom, name)
    if options.grid_resolution == "exact":
        assert exact is not None
        return exact(*_limits(numbers, name, options))
    distinct = distinct_numbers(numbers)
    if len(distinct) < options.grid_resolution:
        return distinct
    low, high = _limits(numbers, name, options)
    if np.allclose(low, high):
        raise ValueError(
            f"percentiles of column {name!r} are too close to each other: choose others, give custom_values, "
            "or use grid_resolution='exact'"
        )
    return np.linspace(low, high, num=options.grid_resolution, endpoint=True)


def _limits(numbers: np.ndarray, name: str, options: GridOptions) -> tuple[float, float]:
    present = numbers[~np.isnan(numbers)]
    if not len(present):
        raise ValueError(f"column {name!r} is missing in all rows: give custom_values")
    low, high = mquantiles(present, prob=options.percentiles)
    if not np.isfinite([low, high]).all():
        raise ValueError(f"percentiles of column {name!r} are not finite: give custom_values, or others")
    return low, high


def _breakpoints(computation: Computation, feature: int, low: float, high: float) -> np.ndarray:
    """Return the two limits, and the numbers next to each threshold between them, on both of its sides."""
    ensemble = computation.adapted.ensemble
    tested = (ensemble.left >= 0) & (ensemble.feature == feature)
    if _splits_by_category(ensemble, tested):
        raise ValueError(
            f"the model splits column {computation.names[feature]!r} by categories, not at numbers: name it "
            "in categorical_features"
        )
    # The numbers that a column of X can hold and the trees can tell apart.
    single = ensemble.x_dtype == "float32" or computation.rows.dtype == np.float32 or _rounds(computation)
    dtype = np.float32 if single else np.float64
    exact = distinct_numbers(ensemble.threshold[tested])
    with np.errstate(over="ignore"):
        before = exact.astype(dtype)
    largest = before.astype(np.float64)
    down, up = dtype(-np.inf), dtype(np.inf)
    if ensemble.strict:
        before = np.nextafter(np.where(largest < exact, np.nextafter(before, up), before), down)
    else:
        before = np.where(largest > exact, np.nextafter(before, down), before)
    if len(ensemble.zero_missing) and ensemble.zero_missing[feature]:
        zero = dtype(ZERO_MAGNITUDE)
        before = np.concatenate([before, [np.nextafter(-zero, down), zero]])
    after = np.nextafter(before, up)
    pairs = np.stack([before, after]).astype(np.float64)
    inside = (pairs[0] >= low) & (pairs[1] <= high)
    return distinct_numbers(np.concatenate([[low, high], *pairs[:, inside]]))


def _points(computation: Computation, feature: int, values: np.ndarray) -> np.ndarray:
    """Return encoded rows with numbers in a column, read as X would be if it held them."""
    schema, ensemble = computation.adapted.schema, computation.adapted.ensemble
    with np.errstate(over="ignore"):
        column = values.astype(computation.rows.dtype)
    if _rounds(computation):
        column = _in_type_of(computation.rows.data, column)
    encoder = schema.encoders.get(feature)
    if encoder is not None:
        encoded = category_codes(encoder, Column(computation.names[feature], column))
    else:
        single_column = replace(
            schema,
            n_features=1,
            feature_names=None,
            encoders={},
            frame_encoder=None,
            n_categorical=None,
            derived=None,
        )
        encoded = read(column[:, np.newaxis], single_column, ensemble.x_dtype).chunk(0, len(column))[:, 0]
    points = np.zeros((len(column), schema.n_columns), ensemble.x_dtype)
    with np.errstate(over="ignore"):
        points[:, feature] = encoded
    return points


def _rounds(computation: Computation) -> bool:
    """Return whether the library rounds the numbers of X because of the type of the array."""
    data, schema = computation.rows.data, computation.adapted.schema
    if not isinstance(data, np.ndarray):
        return False
    if data.dtype == object:
        return schema.object_dtype is not None
    return schema.array_dtype is not None and not (data.dtype.char in "fd" and data.dtype.isnative)


def _in_type_of(data: np.ndarray, column: np.ndarray) -> np.ndarray:
    """Return numbers in the type of an array, so that they are read alike, if the type can hold them all."""
    if data.dtype == object:
        return column.astype(object)
    with np.errstate(over="ignore", invalid="ignore"):
        converted = column.astype(data.dtype)
    return converted if np.array_equal(converted, column, equal_nan=True) else column


def categories_of(column_values: np.ndarray) -> tuple[np.ndarray, list[int]]:
    """Return the distinct values of a column and the first row of each, in ascending order, missing last."""
    first_rows: dict[Any, int] = {}
    missing = None
    for row, value in enumerate(_scalars(column_values)):
        if is_missing(value):
            missing = row if missing is None else missing
        else:
            first_rows.setdefault(value, row)
    try:
        ordered = sorted(first_rows)
    except TypeError:  # values of several types have no order
        ordered = sorted(first_rows, key=str)
    rows = [first_rows[value] for value in ordered]
    values = np.asarray(ordered, object if any(isinstance(value, str) for value in ordered) else None)
    if missing is not None:
        if values.dtype.kind != "O":
            values = values.astype(np.float64)
        values, rows = np.append(values, np.nan), [*rows, missing]
    return values, rows


def _scalars(column_values: np.ndarray) -> list[Any]:
    """Return a column as a list.

    Dates and time spans become objects of Python if microseconds are precise enough: from nanoseconds, NumPy
    would make integers.
    """
    if column_values.dtype.kind not in "mM":
        return column_values.tolist()
    rounded = column_values.astype(f"{column_values.dtype.kind}8[us]")
    return rounded.tolist() if np.array_equal(rounded, column_values, equal_nan=True) else list(column_values)


def _custom_categories(
    computation: Computation,
    feature: int,
    custom: np.ndarray,
    columns: tuple[int, ...],
    values: np.ndarray,
    first_rows: list[int],
) -> GridFeature:
    """Return a feature with custom categories, each of which must occur in X if X is a data frame."""
    name, rows = computation.names[feature], computation.rows
    if custom.ndim != 1 or not len(custom):
        raise ValueError(f"custom_values of {name!r} must be a list of values, not the shape {custom.shape}")
    if isinstance(rows.data, np.ndarray) and rows.data.dtype.kind in "fiub" and len(columns) == 1:
        numbers = custom_numbers(custom, name)
        return GridFeature(Axis(columns, _points(computation, feature, numbers)), numbers, True, None)
    points = _points_of_categories(computation, custom, f"custom_values of {name!r}", values, first_rows)
    return GridFeature(Axis(columns, points), custom, True, None)


def _points_of_categories(
    computation: Computation, custom: np.ndarray, source: str, values: np.ndarray, first_rows: list[int]
) -> np.ndarray:
    """Return encoded rows with custom categories, given the first row with each of ``values``.

    Raise ``ValueError`` if a category occurs in no row; ``source`` begins the message.
    """
    row_of = {None if is_missing(value) else value: row for value, row in zip(values.tolist(), first_rows)}
    keys = [None if is_missing(value) else value for value in custom.tolist()]
    unknown = [key for key in keys if key not in row_of]
    if unknown:
        raise ValueError(
            f"{source} has {unknown[0]!r}, which occurs in no row of X: the code of a category is known only "
            "from a row that has it"
        )
    return computation.points_of_rows([row_of[key] for key in keys])
