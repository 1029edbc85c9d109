"""Arrays of the caller for results: checked before any work, and viewed in the layout of the core."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

from . import gpu_arrays
from .gpu_arrays import GpuArray
from .inputs import HostRows
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
        dtype = gpu_arrays.dtype_of(out)
    else:
        if not isinstance(out, np.ndarray) or isinstance(out, np.ma.MaskedArray):
            raise TypeError(f"out must be an array of NumPy, not a {type(out).__qualname__}")
        out = np.asarray(out)  # subclasses may have methods of their own
        dtype = out.dtype
    shape = (rows.n_rows, *features, n_outputs) if several_outputs else (rows.n_rows, *features)
    if tuple(out.shape) != shape:
        raise ValueError(f"out must have the shape of the values, {shape}, not {tuple(out.shape)}")
    if dtype is None or dtype != rows.dtype:
        name = str(out.dtype).removeprefix("torch.")
        if dtype is not None and not dtype.isnative:
            name += " of another byte order"
        raise ValueError(f"out must be {rows.dtype}, as the values are for this X, not {name}")
    view = out.swapaxes(1, len(shape) - 1) if several_outputs else out[:, None]
    if gpu_rows is not None:
        contiguous, shared = gpu_arrays.is_contiguous(view), gpu_arrays.shares_memory(view, gpu_rows)
    else:
        flags = view.flags
        if not flags.writeable:
            raise ValueError("out is read-only")
        contiguous = flags.c_contiguous and flags.aligned
        assert isinstance(rows, HostRows)
        shared = _shares(view, rows.stores) or (labels is not None and np.may_share_memory(view, labels))
    if not contiguous:
        raise ValueError(f"out must be {_ADVICE if several_outputs else 'C-contiguous and aligned'}")
    if shared:
        raise ValueError("out shares memory with X or y, which are read while values are written: copy one")
    return view


def _shares(out: np.ndarray, stores: Iterable[Any]) -> bool:
    """Return whether an array may share memory with one of these, which hold numbers."""
    for store in stores:
        for buffer in _buffers(store):
            if np.may_share_memory(out, buffer):
                return True
    return False


def _buffers(store: Any) -> Iterable[np.ndarray]:
    """Return arrays that cover the memory of an item of ``HostRows.stores``."""
    if isinstance(store, np.ndarray):
        return [store]
    if sp.issparse(store):
        return store.data, store.indices, store.indptr
    if hasattr(store, "to_arrow"):  # of polars
        return _buffers_of_arrow(store.to_arrow())
    if hasattr(store, "buffers") or hasattr(store, "chunks"):
        return _buffers_of_arrow(store)
    return _buffers_of_pandas(store)


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
