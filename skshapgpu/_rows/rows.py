"""X after reading, on the host or on a GPU: the interface between reading X and computing with it."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np


class Rows(Protocol):
    """Rows of X, on the host (:class:`.inputs.HostRows`) or on a GPU (:class:`.gpu_arrays.GpuArray`).

    Attributes
    ----------
    data : array, sparse matrix or data frame
        X, in the form that explanations keep.
    n_rows : int
    dtype : numpy dtype
        Type of the results: float32 for float32 X, else float64.
    names : tuple of str or None
        Names of the columns. None if X has no names and error messages do not need any.
    row_labels : pandas.Index or None
    """

    @property
    def data(self) -> Any: ...
    @property
    def n_rows(self) -> int: ...
    @property
    def dtype(self) -> np.dtype: ...
    @property
    def names(self) -> tuple[str, ...] | None: ...
    @property
    def row_labels(self) -> Any: ...
