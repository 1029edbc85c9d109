"""The strongest values of each row, and those of each sign: the reasons for and against a high output."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from .._rows.columns import read_column

#: Names of the two signs of values, and the factor that makes them positive.
SIGNS = (("for", 1), ("against", -1))

#: Up to this many of the largest numbers of a row are found faster one by one than by sorting the row.
_FEW = 12


def largest(values: np.ndarray, n: int) -> np.ndarray:
    """Find the n numbers of largest magnitude in each row, the largest first, and ties in their order.

    Parameters
    ----------
    values : ndarray of shape (n_rows, n_columns)
    n : int
        At most n_columns.

    Returns
    -------
    ndarray of int64, shape (n_rows, n)
        Positions of the numbers.
    """
    magnitudes = np.abs(values)
    if n > _FEW:
        return np.argsort(-magnitudes, axis=1, kind="stable")[:, :n]
    rows, places = np.arange(len(values)), np.empty((len(values), n), np.int64)
    for rank in range(n):
        places[:, rank] = found = magnitudes.argmax(axis=1)
        magnitudes[rows, found] = -1.0
    return places


def of_sign(values: np.ndarray, factor: int, n: int) -> np.ndarray:
    """Find the n largest values of one sign in each row.

    Parameters
    ----------
    values : ndarray of shape (n_rows, n_features)
        NaN counts as 0.
    factor : {1, -1}
        Sign of the values.
    n : int
        At most n_features.

    Returns
    -------
    ndarray of int64, shape (n_rows, n)
        Features, the strongest first; -1 where a row has no more values of this sign.
    """
    known = np.where(np.isnan(values), 0, values)
    those = np.maximum(factor * known, 0)
    places = largest(those, n)
    return np.where(np.take_along_axis(those, places, axis=1) > 0, places, -1)


def by_feature(features: np.ndarray) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Yield each feature with the rows and ranks that have it, given its positions (n_rows, n); -1: none."""
    flat = features.ravel()
    order = np.argsort(flat, kind="stable")
    found, starts = np.unique(flat[order], return_index=True)
    for feature, places in zip(found.tolist(), np.split(order, starts[1:])):
        if feature >= 0:
            yield feature, *np.divmod(places, features.shape[1])


def feature_values(data: Any, features: np.ndarray) -> list[list[Any]]:
    """Return for each row the values of some features.

    Parameters
    ----------
    data : any ``Explanation.data``
        None: no value is known.
    features : ndarray of int, shape (n_rows, n)
        Positions; -1: none.

    Returns
    -------
    list of list
        Numbers, texts of categories, and None where there is no feature or its value is missing.
    """
    found = np.full(features.shape, None, object)
    for feature, rows, ranks in () if data is None else by_feature(features):
        column = read_column(data, feature, rows)
        for row, rank, number in zip(rows.tolist(), ranks.tolist(), column.numbers.tolist()):
            if number == number:
                known = column.categories
                found[row, rank] = number if known is None else known[int(number)]
    return found.tolist()


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
        lists = [of_sign(values, factor, n) for _, factor in SIGNS]
    else:
        known = np.where(np.isnan(values), 0, values)
        places = largest(known, n)
        lists = [np.where(np.take_along_axis(known, places, axis=1) != 0, places, -1)]
    (above, _), (below, _) = SIGNS
    with_data = [(features, feature_values(data, features)) for features in lists]
    for row, label in enumerate(row_names):
        for features, known_values in with_data:
            for rank, feature in enumerate(features[row].tolist()):
                if feature >= 0:
                    value = float(values[row, feature])
                    yield {
                        "row": label,
                        **extra,
                        "reason": above if value > 0 else below,
                        "rank": rank + 1,
                        "feature": names[feature],
                        "value": known_values[row][rank],
                        "shap_value": value,
                    }
