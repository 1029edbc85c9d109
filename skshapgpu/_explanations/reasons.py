"""The strongest values of each row, in all or of each sign: reasons for and against a high output."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from .._rows.columns import read_column

#: Names of the two signs of values, and the factor that makes them positive.
SIGNS = (("for", 1), ("against", -1))

#: To find up to this many of the largest numbers of a row one by one is faster than to sort the row.
_FEW = 12


def largest(values: np.ndarray, n: int) -> np.ndarray:
    """Return the positions of the n numbers of largest magnitude in each row: int64, (n_rows, n).

    The largest comes first; equal numbers are in the order of their positions.
    """
    magnitudes = np.abs(values)
    if n > _FEW:
        return np.argsort(-magnitudes, axis=1, kind="stable")[:, :n]
    rows, positions = np.arange(len(values)), np.empty((len(values), n), np.int64)
    for rank in range(n):
        positions[:, rank] = largest_left = magnitudes.argmax(axis=1)
        magnitudes[rows, largest_left] = -1.0
    return positions


def largest_of_sign(values: np.ndarray, factor: int, n: int) -> np.ndarray:
    """Find the n largest values of one sign, 1 or -1, in each row: int64, (n_rows, n).

    The features are listed from the strongest on, with -1 where a row has no more values of this sign. NaN
    counts as 0; n is at most the number of features.
    """
    magnitudes = np.maximum(factor * np.where(np.isnan(values), 0, values), 0)
    positions = largest(magnitudes, n)
    return np.where(np.take_along_axis(magnitudes, positions, axis=1) > 0, positions, -1)


def by_feature(features: np.ndarray) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Yield each feature in ``features`` with the rows and ranks at which it is there.

    ``features`` has the position of the feature at each rank of each row; -1: there is none.
    """
    flat = features.ravel()
    order = np.argsort(flat, kind="stable")
    distinct, starts = np.unique(flat[order], return_index=True)
    for feature, entries in zip(distinct.tolist(), np.split(order, starts[1:])):
        if feature >= 0:
            yield feature, *np.divmod(entries, features.shape[1])


def feature_values(data: Any, features: np.ndarray) -> list[list[Any]]:
    """Return for each row the values of the features at some positions: int, (n_rows, n); -1 is no feature.

    ``data`` is that of an explanation; if None, no value is known. Values are int, bool or float, as in the
    data, names of categories, and None where there is no feature or its value is missing.
    """
    values = np.full(features.shape, None, object)
    for feature, rows, ranks in () if data is None else by_feature(features):
        values[rows, ranks] = read_column(data, feature, rows).values()
    return values.tolist()


def records(
    values: np.ndarray,
    data: Any,
    names: Sequence[str],
    n: int,
    by_sign: bool,
    row_names: Sequence[Any],
    extra: dict[str, Any],
) -> Iterator[dict[str, Any]]:
    """Yield the strongest values of all rows, for one output; see :meth:`.Explanation.reasons`."""
    n = min(n, len(names))
    if by_sign:
        lists = [largest_of_sign(values, factor, n) for _, factor in SIGNS]
    else:
        numbers = np.where(np.isnan(values), 0, values)
        positions = largest(numbers, n)
        lists = [np.where(np.take_along_axis(numbers, positions, axis=1) != 0, positions, -1)]
    (for_high, _), (against_high, _) = SIGNS
    lists_with_data = [(features, feature_values(data, features)) for features in lists]
    for row, label in enumerate(row_names):
        for features, data_values in lists_with_data:
            for rank, feature in enumerate(features[row].tolist()):
                if feature >= 0:
                    value = float(values[row, feature])
                    yield {
                        "row": label,
                        **extra,
                        "reason": for_high if value > 0 else against_high,
                        "rank": rank + 1,
                        "feature": names[feature],
                        "value": data_values[row][rank],
                        "shap_value": value,
                    }
