"""Arrays of the caller for results: checked before any work, and viewed in the layout of the core."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

from . import gpu_arrays
from .frames import arrays_of_pandas
from .gpu_arrays import GpuArray
from .rows import Rows

_ADVICE = (
    "array.swapaxes(1, -1) of a C-contiguous array of shape (n_rows, n_outputs, ...), the layout of earlier "
    "results"
)


def results_view(out: Any, rows: Rows, n_outputs: int, features: tuple[int, ...], labels: Any = None) -> Any:
    """Return a view of ``out``, the caller's array, [row][output][feature]..., which the core can fill.

    ``features`` is the shape of the values of a row and an output. Raise ``TypeError`` if ``out`` is not an
    array of NumPy, or for X on a GPU, not an array of the same library. Raise ``ValueError`` if ``out`` has
    another shape or dtype than the values, or a layout that the core does not write; or it shares memory with
    X or the labels, is read-only, or is on another GPU than X.
    """
    several_outputs, gpu_rows = n_outputs > 1, rows if isinstance(rows, GpuArray) else None
    if gpu_rows is not None:
        gpu_arrays.require_same_place(out, gpu_rows)
        dtype = str(out.dtype).removeprefix("torch.")
    else:
        if not isinstance(out, np.ndarray) or isinstance(out, np.ma.MaskedArray):
            raise TypeError(f"out must be an array of NumPy, not a {type(out).__qualname__}")
        out = np.asarray(out)  # subclasses may have methods of their own
        dtype = str(out.dtype) if out.dtype.isnative else f"{out.dtype} of another byte order"
    shape = (rows.n_rows, *features, *([n_outputs] if several_outputs else []))
    if tuple(out.shape) != shape:
        raise ValueError(f"out must have the shape of the values, {shape}, not {tuple(out.shape)}")
    if dtype != str(rows.dtype):
        raise ValueError(f"out must be {rows.dtype}, as the values are for this X, not {dtype}")
    view = out.swapaxes(1, len(shape) - 1) if several_outputs else out[:, None]
    if gpu_rows is not None:
        contiguous, shared = gpu_arrays.is_contiguous(view), gpu_arrays.shares_memory(view, gpu_rows)
    else:
        if not out.flags.writeable:
            raise ValueError("out is read-only")
        contiguous = view.flags.c_contiguous and view.flags.aligned
        shared = _shares(view, rows.data) or (labels is not None and _shares(view, labels))
    if not contiguous:
        raise ValueError(f"out must be {_ADVICE if several_outputs else 'C-contiguous and aligned'}")
    if shared:
        raise ValueError("out shares memory with X or y, which are read while values are written: copy one")
    return view


def _shares(out: np.ndarray, data: Any) -> bool:
    """Return whether an array may share memory with an array, a sparse matrix or a data frame."""
    return any(np.may_share_memory(out, buffer) for buffer in _buffers(data))


def _buffers(data: Any) -> Iterator[np.ndarray]:
    """Yield arrays that cover the memory of the numbers of a table."""
    if isinstance(data, np.ndarray):
        yield data
    elif sp.issparse(data):
        yield from (data.data, data.indices, data.indptr)
    elif hasattr(data, "iloc"):
        for array in arrays_of_pandas(data):
            yield from [array] if isinstance(array, np.ndarray) else _buffers_of_pandas(array)
    elif hasattr(data, "get_columns"):
        for series in data.get_columns():
            yield from _buffers_of_arrow(series.to_arrow())
    elif hasattr(data, "columns"):
        for column in data.columns:
            yield from _buffers_of_arrow(column)


def _buffers_of_pandas(array: Any) -> Iterator[np.ndarray]:
    """Yield the arrays that hold the numbers of a column."""
    for name in ("_ndarray", "_data", "_mask", "_sparse_values", "sp_values"):
        buffer = getattr(array, name, None)
        if isinstance(buffer, np.ndarray):
            yield buffer
    if "pyarrow" in sys.modules and hasattr(array, "__arrow_array__") and hasattr(array, "_pa_array"):
        yield from _buffers_of_arrow(array._pa_array)


def _buffers_of_arrow(column: Any) -> Iterator[np.ndarray]:
    for chunk in column.chunks if hasattr(column, "chunks") else [column]:
        for buffer in chunk.buffers():
            if buffer is not None and buffer.size:
                yield np.frombuffer(buffer, np.uint8)
