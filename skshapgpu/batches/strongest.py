"""Columns of the strongest values of each row: names, feature values as text, and the values themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._explanations.reasons import SIGNS, by_feature, largest, of_sign
from .._explanations.values import column_names
from .._rows.arrow import require_arrow
from .._rows.columns import read_column

#: Whole numbers below this one are exact in float64.
_EXACT = 2.0**53


@dataclass(frozen=True)
class Strongest:
    """The strongest values of each row, for each output.

    Attributes
    ----------
    n : int
        Number of values, or of values of each sign.
    names : tuple of str
        Names of the features or pairs.
    output_names : tuple or None
    value : {"shap", "banzhaf", "interaction"}
        Name of the values.
    prefix : str
        Beginning of the names of all columns.
    by_sign : bool
        Whether positive and negative values are listed separately.
    """

    n: int
    names: tuple[str, ...]
    output_names: tuple[Any, ...] | None
    value: str
    prefix: str = ""
    by_sign: bool = False

    @property
    def _n_kept(self) -> int:
        return min(self.n, len(self.names))

    @property
    def _has_data(self) -> bool:
        """Whether there are columns of feature values: a pair has no single one."""
        return self.value != "interaction"

    def fields(self, value_type: Any) -> list[Any]:
        """Return the fields of the columns: for each list, rank and kind of column, one for each output."""
        arrow = require_arrow()
        noun, nullable = "feature" if self._has_data else "pair", self.by_sign
        found = []
        for start in [sign for sign, _ in SIGNS] if self.by_sign else [""]:
            inner = f"{start}_" if start else ""
            kinds = [(start or noun, arrow.string(), nullable)]
            if self._has_data:
                kinds.append((f"{inner}value", arrow.string(), True))
            kinds.append((f"{inner}{self.value}", value_type, nullable))
            for rank in range(1, self._n_kept + 1):
                for name, kind, is_nullable in kinds:
                    of_outputs = column_names([f"{self.prefix}{name}_{rank}"], self.output_names)
                    found += [arrow.field(column, kind, nullable=is_nullable) for column in of_outputs]
        return found

    def columns(self, values: np.ndarray, data: Any, dtype: Any) -> list[Any]:
        """Return the columns for some rows.

        Parameters
        ----------
        values : ndarray of shape (n_rows, len(names) * n_outputs)
        data : any ``Explanation.data``
            None: feature values are null.
        dtype : numpy dtype
            Type of the values in the columns.
        """
        arrow = require_arrow()
        names, n_outputs = arrow.array(self.names, arrow.string()), len(self.output_names or (None,))
        values = values.reshape(len(values), len(self.names), n_outputs)
        outputs = [values[:, :, output].astype(dtype, copy=False) for output in range(n_outputs)]
        columns = []
        for factor in [factor for _, factor in SIGNS] if self.by_sign else [None]:
            places = [self._places(output, factor) for output in outputs]
            texts = [_texts(data, at) for at in places] if self._has_data else []
            for rank in range(self._n_kept):
                ranked = [arrow.array(at[:, rank], mask=at[:, rank] < 0) for at in places]
                columns += [names.take(at) for at in ranked]
                columns += [of_output[rank] for of_output in texts]
                for output, at in zip(outputs, places):
                    chosen = np.take_along_axis(output, at[:, rank : rank + 1], axis=1)[:, 0]
                    columns.append(arrow.array(np.ascontiguousarray(chosen), mask=at[:, rank] < 0))
        return columns

    def _places(self, values: np.ndarray, factor: int | None) -> np.ndarray:
        """Return the positions of the strongest values of each row; -1: none."""
        return largest(values, self._n_kept) if factor is None else of_sign(values, factor, self._n_kept)


def _texts(data: Any, features: np.ndarray) -> list[Any]:
    """Return for each column of ``features`` an array of the values of these features as text.

    Numbers are as short as their type allows, whole numbers without a decimal point. Null: there is no
    feature (-1), or its value is missing or unknown.
    """
    arrow = require_arrow()
    parts, places, n_texts = [arrow.array([], arrow.string())], np.full(features.shape, -1), 0
    if data is not None:
        single = getattr(data, "dtype", None) == np.float32
        for feature, rows, ranks in by_feature(features):
            column = read_column(data, feature, rows)
            parts.append(_as_text(column.numbers, column.categories, single))
            places[rows, ranks] = n_texts + np.arange(len(rows))
            n_texts += len(rows)
    texts = arrow.concat_arrays(parts)
    return [texts.take(arrow.array(at, mask=at < 0)) for at in places.T]


def _as_text(numbers: np.ndarray, categories: Sequence[str] | None, single: bool) -> Any:
    import pyarrow as arrow
    import pyarrow.compute

    missing = np.isnan(numbers)
    if categories is not None:
        codes = np.where(missing, 0, numbers).astype(np.int64)
        return arrow.array(categories, arrow.string()).take(arrow.array(codes, mask=missing))
    with np.errstate(invalid="ignore"):
        whole = np.where(np.abs(numbers) < _EXACT, numbers, 0).astype(np.int64)
    as_given = arrow.array(numbers.astype(np.float32) if single else numbers, mask=missing)
    is_whole = arrow.array(whole == numbers, mask=missing)
    texts = arrow.array(whole).cast(arrow.string()), as_given.cast(arrow.string())
    return pyarrow.compute.if_else(is_whole, *texts)
