"""Columns of the strongest values of each row: names, feature values as strings, and the values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .._explanations.reasons import SIGNS, by_feature, largest, largest_of_sign
from .._explanations.values import column_names
from .._rows.arrow import require_arrow
from .._rows.columns import NumericColumn, read_column

#: Whole numbers below this one are exact in float64.
_EXACT = 2.0**53


@dataclass(frozen=True)
class Strongest:
    """The strongest values of each row, for each output."""

    n: int  # number of values, or of values of each sign
    names: tuple[str, ...]  # names of the features or pairs
    output_names: tuple[Any, ...] | None
    value: str  # "shap", "banzhaf" or "interaction", as in the names of the columns
    prefix: str = ""  # beginning of the names of all columns
    by_sign: bool = False  # whether positive and negative values are listed separately

    @property
    def _n_ranks(self) -> int:
        return min(self.n, len(self.names))

    @property
    def _has_data(self) -> bool:
        """Whether the output has the feature's value beside it. A pair of features has no single value."""
        return self.value != "interaction"

    def fields(self, value_type: Any) -> list[Any]:
        """Return the fields of the columns, ordered by list, rank, kind of column and output."""
        arrow = require_arrow()
        noun, nullable = "feature" if self._has_data else "pair", self.by_sign
        fields = []
        for start in [sign for sign, _ in SIGNS] if self.by_sign else [""]:
            inner = f"{start}_" if start else ""
            kinds = [(start or noun, arrow.string(), nullable)]
            if self._has_data:
                kinds.append((f"{inner}value", arrow.string(), True))
            kinds.append((f"{inner}{self.value}", value_type, nullable))
            for rank in range(1, self._n_ranks + 1):
                for name, kind, is_nullable in kinds:
                    output_columns = column_names([f"{self.prefix}{name}_{rank}"], self.output_names)
                    fields += [arrow.field(column, kind, nullable=is_nullable) for column in output_columns]
        return fields

    def columns(self, values: np.ndarray, data: Any, dtype: Any) -> list[Any]:
        """Return the columns for some rows, whose values have the shape (n_rows, len(names) * n_outputs).

        ``data`` is any ``Explanation.data``; if None, feature values are null. ``dtype`` is the type of the
        values in the columns.
        """
        arrow = require_arrow()
        names, n_outputs = arrow.array(self.names, arrow.string()), len(self.output_names or (None,))
        values = values.reshape(len(values), len(self.names), n_outputs)
        outputs = [values[:, :, output].astype(dtype, copy=False) for output in range(n_outputs)]
        columns = []
        for factor in [factor for _, factor in SIGNS] if self.by_sign else [None]:
            ranked = [self._places(output, factor) for output in outputs]
            feature_values = [_value_strings(data, features) for features in ranked] if self._has_data else []
            for rank in range(self._n_ranks):
                feature_arrays = [
                    arrow.array(features[:, rank], mask=features[:, rank] < 0) for features in ranked
                ]
                columns += [names.take(features) for features in feature_arrays]
                columns += [output_values[rank] for output_values in feature_values]
                for output, features in zip(outputs, ranked):
                    chosen = np.take_along_axis(output, features[:, rank : rank + 1], axis=1)[:, 0]
                    columns.append(arrow.array(np.ascontiguousarray(chosen), mask=features[:, rank] < 0))
        return columns

    def _places(self, values: np.ndarray, factor: int | None) -> np.ndarray:
        """Return the positions of the strongest values of each row; -1 where a row has too few values."""
        if factor is None:
            return largest(values, self._n_ranks)
        return largest_of_sign(values, factor, self._n_ranks)


def _value_strings(data: Any, features: np.ndarray) -> list[Any]:
    """Return for each column of ``features`` an array of the values of these features as strings.

    Numbers are as short as their type allows, and whole numbers have no decimal point. Booleans are "True"
    and "False". A string is null if there is no feature (-1), or if its value is missing or unknown.
    """
    arrow = require_arrow()
    string_arrays, positions, n_strings = [arrow.array([], arrow.string())], np.full(features.shape, -1), 0
    if data is not None:
        single = getattr(data, "dtype", None) == np.float32
        for feature, rows, ranks in by_feature(features):
            column = read_column(data, feature, rows)
            string_arrays.append(_to_strings(column, single))
            positions[rows, ranks] = n_strings + np.arange(len(rows))
            n_strings += len(rows)
    strings = arrow.concat_arrays(string_arrays)
    return [
        strings.take(arrow.array(column_positions, mask=column_positions < 0))
        for column_positions in positions.T
    ]


def _to_strings(column: NumericColumn, single: bool) -> Any:
    import pyarrow as arrow
    import pyarrow.compute

    numbers, missing, exact = column.numbers, column.missing, column.exact
    if column.categories is not None:
        codes = np.where(missing, 0, numbers).astype(np.int64)
        return arrow.array(column.categories, arrow.string()).take(arrow.array(codes, mask=missing))
    if exact is not None and exact.dtype.kind in "iub":
        strings = exact if exact.dtype.kind != "b" else np.where(exact, "True", "False")
        return arrow.array(strings, mask=missing).cast(arrow.string())
    with np.errstate(invalid="ignore"):
        rounded = np.where(np.abs(numbers) < _EXACT, numbers, 0).astype(np.int64)
    unrounded = arrow.array(numbers.astype(np.float32) if single else numbers, mask=missing)
    is_whole = arrow.array(rounded == numbers, mask=missing)
    forms = arrow.array(rounded).cast(arrow.string()), unrounded.cast(arrow.string())
    strings = pyarrow.compute.if_else(is_whole, *forms)
    if exact is None:
        return strings
    integers = [str(value) if isinstance(value, int) else None for value in column.values()]  # and booleans
    return pyarrow.compute.coalesce(arrow.array(integers, arrow.string()), strings)
