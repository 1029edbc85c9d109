"""Check that the steps of a pipeline transform each row by itself, as batches of any size require."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._rows.inputs import Reader
from .._rows.tables import n_rows_of, select

#: Number of rows that are transformed together; half of them are then transformed again, without the others.
_ROWS = 32

#: Difference, in units of the largest magnitude of a column, that rounding cannot explain: libraries multiply
#: matrices of other sizes in another order.
_ROUNDING = 1e-4


def require_independent_rows(reader: Reader, X: Any) -> None:
    """Reject steps that make other numbers of a row if other rows are beside it.

    Ranks, means and sorting within the rows of a call are such steps: values would depend on the batch size.

    Parameters
    ----------
    reader : Reader
        Reader of the explainer, with the leading steps of a pipeline.
    X : array, sparse matrix or data frame
        Rows of a batch, at least two.

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
        return
    scale = np.nanmax(np.abs(together), axis=0, initial=0.0)
    same = (np.isnan(together) & np.isnan(alone)) | (together == alone)
    with np.errstate(invalid="ignore"):
        differs = ~same & ~(np.abs(together - alone) <= _ROUNDING * scale)
    if not differs.any():
        return
    row, column = np.argwhere(differs)[0].tolist()
    raise ValueError(
        f"column {reader.default_names[column]!r} of row {some[row]} is {together[row, column]:.6g} if the "
        f"steps of the pipeline transform {n_rows} rows, but {alone[row, column]:.6g} if they transform "
        f"{len(some)} of them: a step computes a row from other rows, so its values would depend on the "
        "batch size. Transform all rows first, and explain the last step of the pipeline"
    )


def _transformed(reader: Reader, X: Any) -> np.ndarray:
    rows = reader.read_on_host(X)
    return rows.chunk(0, rows.n_rows).astype(np.float64)[:, : len(reader.default_names)]
