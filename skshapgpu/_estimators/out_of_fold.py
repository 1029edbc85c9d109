"""Out-of-fold explanations: the splits of a cross-validation, merged in the original order of the rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from .._explanations.values import Explanation
from .._rows.columns import GroupedRows
from .._rows.gpu_arrays import to_host
from .._rows.origins import Origins, with_data
from .._rows.tables import row_labels, table, to_array


@dataclass(frozen=True, eq=False)
class Split:
    """Explained split of a cross-validation."""

    rows: np.ndarray  # int64: positions of the test rows
    #: Explanation of the test rows; None if they are not explained. Then the attributes below, other than
    #: ``seconds``, have no meaning.
    explanation: Explanation | None = None
    seconds: float = 0.0  # time taken to explain the split
    output_names: tuple[Any, ...] | None = None  # names of the outputs of all splits
    outputs: Any = None  # int64: positions of the outputs of this split among ``output_names``
    prepared: bool = False  # whether the features are columns that steps made from X
    named: bool = True  # whether the names of the features are more than their positions


class OutOfFold:
    """Explanations of splits, merged in the order of the rows of X.

    ``averaged`` says whether rows may be in several splits. If so, the values of a row are added up in
    float64, and their standard deviations are computed. ``first`` is a split with an explanation, which
    determines the outputs.
    """

    def __init__(self, n_rows: int, n_splits: int, averaged: bool, first: Split) -> None:
        assert first.explanation is not None
        self._first_explanation = replace(  # without the arrays, which are large
            first.explanation, values=np.empty(0), base_values=0.0, data=None, row_labels=None, origins=None
        )
        self._dtype = first.explanation.values.dtype
        self._output_names = first.output_names
        n_outputs = 1 if first.output_names is None else len(first.output_names)
        self._features: tuple[str, ...] = ()
        self._sums = np.zeros((n_rows, 0, n_outputs), np.float64 if averaged else self._dtype)
        self._squares: Any = np.zeros_like(self._sums) if averaged else None  # of deviations from the means
        self._base_sums = np.zeros((n_rows, n_outputs))
        self._counts = np.zeros((n_rows, n_outputs), np.int64)
        self._data = _Data() if first.prepared else None
        self._has_data = first.explanation.data is not None
        is_grouped = self._data is None and isinstance(first.explanation.data, GroupedRows)
        self._grouped = replace(first.explanation.data, rows=None) if is_grouped else None
        self._group_columns: set[Any] = set()
        self._base_values = np.full((n_splits, n_outputs), np.nan)
        self._seconds = np.zeros(n_splits)
        self._importances: dict[int, tuple[tuple[str, ...], np.ndarray]] = {}
        self._origins: dict[tuple[str, ...], Origins] = {}
        self._devices: dict[str, None] = {}
        self._gaps: list[float] = []

    def add(self, number: int, split: Split) -> None:
        """Add the explanation of a split."""
        explanation, rows, outputs = split.explanation, split.rows, split.outputs
        assert explanation is not None
        names = explanation.feature_names
        columns = self._columns(names)
        same_features = names == self._features
        values = to_host(explanation.values).reshape(len(rows), len(names), len(outputs))
        if not same_features or values.shape[2] < self._sums.shape[2]:
            all_values = np.zeros((len(rows), *self._sums.shape[1:]), self._sums.dtype)
            all_values[:, columns[:, np.newaxis], outputs] = values
            values = all_values
        if self._squares is not None:
            self._add_squares(rows, outputs, values)
            self._sums[rows] += values
        else:
            self._sums[rows] = values
        entries = rows[:, np.newaxis], outputs
        base_values = np.reshape(explanation.base_values, (-1, len(outputs)))
        self._base_sums[entries] += base_values
        self._counts[entries] += 1
        self._group_columns.add(explanation.group_columns)
        if self._data is not None and self._has_data:
            self._data.add(rows, names, explanation.data)
        self._base_values[number, outputs] = base_values.mean(axis=0)
        self._seconds[number] = split.seconds
        has_all_outputs = len(outputs) == self._sums.shape[2]
        importances = explanation.importance().reshape(len(names), -1).sum(axis=1)
        self._importances[number] = names, importances if has_all_outputs else np.full(len(names), np.nan)
        if explanation.origins is not None:
            self._origins[names] = replace(explanation.origins, changed=None, data=None)
        self._devices[explanation.device] = None
        if explanation.additivity_error is not None:
            self._gaps.append(explanation.additivity_error)

    def _add_squares(self, rows: np.ndarray, outputs: np.ndarray, values: np.ndarray) -> None:
        """Add squared deviations of values, by Welford's update, before the values are added to the sums."""
        entries = np.ix_(rows, np.arange(values.shape[1]), outputs)
        sums, counts = self._sums[entries], self._counts[rows[:, np.newaxis], outputs][:, np.newaxis]
        deviations = values[:, :, outputs] - sums / np.maximum(counts, 1)
        self._squares[entries] += deviations**2 * (counts / (counts + 1))

    def _columns(self, names: tuple[str, ...]) -> np.ndarray:
        """Return the positions of a split's features among all features. Make room for new features first."""
        merged = merged_names(self._features, names)
        position = {name: i for i, name in enumerate(merged)}
        if merged != self._features:
            new_positions = [position[name] for name in self._features]
            sums = np.zeros((len(self._sums), len(merged), self._sums.shape[2]), self._sums.dtype)
            sums[:, new_positions] = self._sums
            if self._squares is not None:
                squares = np.zeros_like(sums)
                squares[:, new_positions] = self._squares
                self._squares = squares
            self._sums, self._features = sums, merged
        return np.array([position[name] for name in names], np.int64)

    def results(self, X: Any) -> dict[str, Any]:
        """Return the entries of the result of :func:`cross_val_explain` that depend on explanations."""
        counts = self._counts
        if (counts != 1).any():
            with np.errstate(invalid="ignore"):  # 0 / 0 is NaN for rows without values
                self._sums /= counts[:, np.newaxis]
                self._base_sums /= counts
        spread = self._spread()
        values, by_row, by_split = (
            self._sums.astype(self._dtype, copy=False),
            self._base_sums,
            self._base_values,
        )
        if self._output_names is None:
            values, by_row, by_split = values[..., 0], by_row[:, 0], by_split[:, 0]
            spread = None if spread is None else spread[..., 0]
        data = None
        if self._has_data:
            data = table(X) if self._data is None else self._data.merged(len(counts), self._features)
            if self._grouped is not None:
                data = replace(self._grouped, rows=data)
        explanation = replace(
            self._first_explanation,
            values=values,
            base_values=by_row,
            data=data,
            feature_names=self._features,
            group_columns=next(iter(self._group_columns)) if len(self._group_columns) == 1 else None,
            output_names=self._output_names,
            row_labels=row_labels(X),
            device=", ".join(self._devices),
            seconds=float(self._seconds.sum()),
            additivity_error=max(self._gaps, default=None),
            origins=self._merged_origins(X),
        )
        return {
            "explanation": explanation,
            "values_std": spread,
            "base_values": by_split,
            "n_tests": counts.max(axis=1),
            "importances": aligned(self._importances, self._features, len(by_split)),
            "explain_time": self._seconds,
        }

    def _spread(self) -> np.ndarray | None:
        """Return the standard deviation of each row's values over its splits; NaN if there is only one."""
        if self._squares is None:
            return None
        degrees_of_freedom = np.where(self._counts > 1, self._counts - 1.0, np.nan)
        return np.sqrt(self._squares / degrees_of_freedom[:, np.newaxis]).astype(self._dtype, copy=False)

    def _merged_origins(self, X: Any) -> Origins | None:
        """Return the column of X from which each feature was made, if all splits agree."""
        if not self._origins:
            return None
        column_of_feature: dict[str, int] = {}
        for names, origins in self._origins.items():
            if origins.columns is None:
                return origins
            for name, column in zip(names, origins.columns):
                if column_of_feature.setdefault(name, column) != column:
                    return replace(
                        origins, columns=None, reason=f"splits made {name!r} of different input columns"
                    )
        columns = np.array([column_of_feature[name] for name in self._features])
        return with_data(replace(origins, columns=columns), X)


class _Data:
    """Rows of X as the last steps of the splits saw them."""

    def __init__(self) -> None:
        self._parts: list[tuple[np.ndarray, tuple[str, ...], Any]] = []

    def add(self, rows: np.ndarray, names: tuple[str, ...], data: Any) -> None:
        """Add the rows of a split, with the names of its columns."""
        self._parts.append((rows, names, data))

    def merged(self, n_rows: int, names: tuple[str, ...]) -> Any:
        """Return all rows, each from the last split that has it.

        Rows that no split has, and columns that a split lacks, are NaN. The result is a sparse matrix if the
        rows of all splits are sparse and nothing is missing.
        """
        part_of_row = np.full(n_rows, -1)
        for number, (rows, _, _) in enumerate(self._parts):
            part_of_row[rows] = number
        is_complete = part_of_row.min(initial=0) >= 0 and all(
            part_names == names for _, part_names, _ in self._parts
        )
        if is_complete and all(sp.issparse(data) for _, _, data in self._parts):
            stacked = sp.vstack([data for _, _, data in self._parts], format="csr")
            stacked_row = np.empty(n_rows, np.int64)
            stacked_row[np.concatenate([rows for rows, _, _ in self._parts])] = np.arange(stacked.shape[0])
            return stacked[stacked_row]
        arrays = [to_array(data) for _, _, data in self._parts]
        is_numeric = all(array.dtype.kind in "fiub" for array in arrays)
        result = np.empty((n_rows, len(names)), float if is_numeric else object)
        if not is_complete:
            result.fill(np.nan)
        position = {name: i for i, name in enumerate(names)}
        for number, ((rows, part_names, _), array) in enumerate(zip(self._parts, arrays)):
            is_last = part_of_row[rows] == number
            if not is_last.all():
                rows, array = rows[is_last], array[is_last]
            if part_names == names:
                result[rows] = array
            else:
                result[rows[:, np.newaxis], [position[name] for name in part_names]] = array
        return result


def aligned(
    values_by_split: Mapping[int, tuple[tuple[str, ...], np.ndarray]],
    features: tuple[str, ...],
    n_splits: int,
) -> np.ndarray:
    """Align the values of splits by feature: features that a split lacks are zero, missing splits are NaN.

    ``values_by_split`` has for each split, by its number, the names of its features, and values whose first
    axis has the features. The result has the shape (n_splits, n_features, ...), for all ``features``.
    """
    shape = next((values.shape[1:] for _, values in values_by_split.values()), ())
    rows = np.full((n_splits, len(features), *shape), np.nan)
    position = {name: i for i, name in enumerate(features)}
    for number, (names, values) in values_by_split.items():
        rows[number] = 0.0
        rows[number, [position[name] for name in names]] = values
    return rows


def merged_names(names: tuple[str, ...], others: tuple[str, ...]) -> tuple[str, ...]:
    """Merge names. A name that is only in ``others`` comes after the name that it follows in ``others``."""
    if names == others:
        return names
    following: dict[str | None, str | None] = dict(zip((None, *names), (*names, None)))
    last: str | None = None
    for name in others:
        if name not in following:
            following[name], following[last] = following[last], name
        last = name
    merged = list[str]()
    while (after := following[merged[-1] if merged else None]) is not None:
        merged.append(after)
    return tuple(merged)
