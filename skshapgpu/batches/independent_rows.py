"""Check that the steps of a pipeline transform each row by itself, and its categories by their values."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._rows.inputs import Reader
from .._rows.pandas_types import PandasTypes
from .._rows.tables import n_rows_of, select

#: Number of rows that are transformed together; half of them are then transformed again, without the others.
_ROWS = 32

#: Difference, in units of the largest magnitude of a column, that rounding cannot explain: libraries multiply
#: matrices of other sizes in another order.
_MOST_ROUNDING = 1e-4


def require_independent_rows(reader: Reader, X: Any) -> bool:
    """Reject steps that make other numbers of a row if other rows are beside it.

    Ranks, means and sorting within the rows of a call are such steps: values would depend on the batch size.

    Parameters
    ----------
    reader : Reader
        Reader of the explainer, with the leading steps of a pipeline.
    X : array, sparse matrix or data frame
        Rows of a batch, at least two.

    Returns
    -------
    bool
        Whether the rows could be compared: a step may refuse some of them.

    Raises
    ------
    ValueError
    """
    n_rows = min(n_rows_of(X), _ROWS)
    some = np.arange(1, n_rows, 2)
    try:
        together = _transformed(reader, select(X, np.arange(n_rows)))[some]
        alone = _transformed(reader, select(X, some))
    except (ValueError, TypeError):  # of a value that is not accepted: the call itself names the row
        return False
    place = _first_difference(together, alone)
    if place is None:
        return True
    row, column = place
    raise ValueError(
        f"column {reader.default_names[column]!r} of row {some[row]} is {together[row, column]:.6g} if the "
        f"steps of the pipeline transform {n_rows} rows, but {alone[row, column]:.6g} if they transform "
        f"{len(some)} of them: a step computes a row from other rows, so its values would depend on the "
        "batch size. Transform all rows first, and explain the last step of the pipeline"
    )


def require_values_of_categories(reader: Reader, X: Any, types: PandasTypes) -> None:
    """Reject steps that make other numbers of categories in another order, if that differs between files.

    pandas gives all files the order of the first, but each file by itself has its own. A step that looks at
    codes gets something else from one than from the other.

    Parameters
    ----------
    reader : Reader
        Reader of the explainer, with the leading steps of a pipeline.
    X : data frame
        Rows of a batch, as ``types`` made them.
    types : PandasTypes

    Raises
    ------
    ValueError
    """
    rows = X.iloc[:_ROWS]
    one = _transformed(reader, rows)
    try:
        other = _transformed(reader, types.read_otherwise(rows))
    except Exception:  # a step of the user may raise anything about what it was not fitted with
        return
    if one.shape == other.shape and _first_difference(one, other) is None:
        return
    name = next(iter(types.differing))
    raise ValueError(
        f"column {name!r} has other categories in some files than in others, or in another order, and a step "
        "of the pipeline does not transform them by their values alone: write the column with the same "
        "categories to all files, or explain the files one by one"
    )


def _first_difference(one: np.ndarray, other: np.ndarray) -> tuple[int, int] | None:
    """Return the row and the column of the first difference that is not rounding."""
    scale = np.nanmax(np.abs(one), axis=0, initial=0.0)
    same = (np.isnan(one) & np.isnan(other)) | (one == other)
    with np.errstate(invalid="ignore"):
        differs = ~same & ~(np.abs(one - other) <= _MOST_ROUNDING * scale)
    if not differs.any():
        return None
    row, column = np.argwhere(differs)[0].tolist()
    return row, column


def _transformed(reader: Reader, X: Any) -> np.ndarray:
    rows = reader.read_on_host(X)
    return rows.chunk(0, rows.n_rows).astype(np.float64)[:, : len(reader.default_names)]
