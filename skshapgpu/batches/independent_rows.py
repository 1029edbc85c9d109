"""Checks that the steps of a pipeline transform each row by itself, and categories by their values."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._rows.inputs import Reader
from .._rows.pandas_types import PandasTypes
from .._rows.tables import n_rows_of, select

#: Number of rows that are transformed together. Every second row is then transformed again without the rest.
_ROWS = 32

#: Largest difference that rounding can explain, relative to the largest magnitude of a column. There is
#: rounding because libraries add products in another order if a matrix has another size.
_MOST_ROUNDING = 1e-4


def require_independent_rows(reader: Reader, X: Any) -> bool:
    """Raise ``ValueError`` if steps transform a row differently when other rows are in the same call.

    Steps that rank or sort rows, or subtract their mean, do so: values would depend on the batch size. X has
    at least two rows of a batch, and ``reader`` the leading steps of a pipeline. Return whether the rows
    could be compared. They could not if a step rejects a row.
    """
    n_rows = min(n_rows_of(X), _ROWS)
    every_second = np.arange(1, n_rows, 2)
    try:
        together = _transformed(reader, select(X, np.arange(n_rows)))[every_second]
        alone = _transformed(reader, select(X, every_second))
    except (ValueError, TypeError):  # explaining the batch raises an error that names the row
        return False
    row_and_column = _first_difference(together, alone)
    if row_and_column is None:
        return True
    row, column = row_and_column
    raise ValueError(
        f"column {reader.default_names[column]!r} of row {every_second[row]} is "
        f"{together[row, column]:.6g} if the "
        f"steps of the pipeline transform {n_rows} rows, but {alone[row, column]:.6g} if they transform "
        f"{len(every_second)} of them: a step computes a row from other rows, so its values would depend on "
        "the batch size. Transform all rows first, and explain the last step of the pipeline"
    )


def require_values_of_categories(reader: Reader, X: Any, types: PandasTypes) -> None:
    """Raise ``ValueError`` if steps depend on the order of categories, and files have different orders.

    All files together are read with the order of the first file, but pandas would read each single file with
    its own order. The codes of the categories differ, so a step that uses codes returns different numbers. X
    are the rows of a batch, as ``types`` made them, and ``reader`` has the leading steps of a pipeline.
    """
    rows = X.iloc[:_ROWS]
    transformed = _transformed(reader, rows)
    try:
        transformed_otherwise = _transformed(reader, types.read_otherwise(rows))
    except Exception:  # a step of the user may raise anything for an order with which it was not fitted
        return
    if (
        transformed.shape == transformed_otherwise.shape
        and _first_difference(transformed, transformed_otherwise) is None
    ):
        return
    name = next(iter(types.differing))
    raise ValueError(
        f"column {name!r} has other categories in some files than in others, or in another order, and a step "
        "of the pipeline does not transform them by their values alone: write the column with the same "
        "categories to all files, or explain the files one by one"
    )


def _first_difference(first: np.ndarray, second: np.ndarray) -> tuple[int, int] | None:
    """Return the row and the column of the first difference that is larger than rounding, or None."""
    scale = np.nanmax(np.abs(first), axis=0, initial=0.0)
    same = (np.isnan(first) & np.isnan(second)) | (first == second)
    with np.errstate(invalid="ignore"):
        differs = ~same & ~(np.abs(first - second) <= _MOST_ROUNDING * scale)
    if not differs.any():
        return None
    row, column = np.argwhere(differs)[0].tolist()
    return row, column


def _transformed(reader: Reader, X: Any) -> np.ndarray:
    rows = reader.read_on_host(X)
    return rows.chunk(0, rows.n_rows).astype(np.float64)[:, : len(reader.default_names)]
