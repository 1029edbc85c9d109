"""Arrays of other libraries in the memory of a GPU: X, and the results that are allocated there."""

from __future__ import annotations

import math
import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any

import numpy as np

from .. import _core
from .._common.devices import load_cuda


@dataclass(frozen=True)
class NumberRules:
    """Rules for the numbers of an array on a GPU: which mean missing, and which are rejected."""

    missing: float  # number that means missing, besides NaN
    allow_nan: bool  # whether missing values are allowed
    limit: float  # magnitudes from this one on are rejected; NaN if there is no limit
    x_dtype: str  # "float32" or "float64", the precision in which the model's library reads X
    rounded_to: str  # precision to which the library rounds other numbers, such as integers


@dataclass(frozen=True)
class GpuArray:
    """X on a GPU, as a two-dimensional float32 or float64 array. It satisfies the protocol ``rows.Rows``."""

    data: Any  # X
    array: Any  # the numbers of X, without a copy if possible
    gpu: int
    stream: int
    view: Any
    shape: tuple[int, int]
    dtype: np.dtype  # type of the results; ``array`` may have another
    numbers: NumberRules
    names: tuple[str, ...]
    original: Any = None  # X before the leading steps of a pipeline

    @property
    def n_rows(self) -> int:
        return self.shape[0]

    @cached_property
    def row_labels(self) -> Any:
        """Row labels of a data frame, copied to the host; None for an array."""
        frames = (X for X in (self.original, self.data) if is_frame(X) and len(X) == self.n_rows)
        return next((frame.index.to_pandas() for frame in frames), None)

    def to_native(self, values: Any) -> Any:
        """Convert an array made by :meth:`empty` to the library of X, or to CuPy if X is a data frame."""
        # Numba accepts CuPy's arrays.
        if is_frame(self.data) or _root(self.data) in (_root(values), "numba"):
            return values
        namespace = import_module(_root(self.data))
        convert = getattr(getattr(namespace, "dlpack", namespace), "from_dlpack", None)
        return values if convert is None else convert(values)

    def empty(self, shape: tuple[int, ...]) -> Any:
        """Return a new array of the same library and dtype on the same GPU."""
        if is_torch(self.array):
            import torch

            return torch.empty(shape, dtype=getattr(torch, self.dtype.name), device=self.array.device)
        import cupy

        if cupy.cuda.runtime.getDevice() == self.gpu:
            return cupy.empty(shape, self.dtype)
        with current(self.array):
            return cupy.empty(shape, self.dtype)

    def rows(self, start: int, stop: int) -> GpuArray:
        """Return some of the rows, without a copy."""
        if start == 0 and stop == self.shape[0]:
            return self
        return view(self.array[start:stop], self.data, self.numbers, self.names, self.dtype)


def _root(X: Any) -> str:
    return type(X).__module__.partition(".")[0]


def is_torch(X: Any) -> bool:
    """Return whether X is a tensor of PyTorch, without importing it."""
    return _root(X) == "torch"


def is_frame(X: Any) -> bool:
    """Return whether X is a data frame of cuDF."""
    cudf = sys.modules.get("cudf")
    return cudf is not None and isinstance(X, cudf.DataFrame)


def on_gpu(X: Any) -> bool:
    """Return whether X is in the memory of a GPU."""
    if isinstance(X, np.ndarray):
        return False
    if is_torch(X):
        return bool(getattr(X, "is_cuda", False))
    if hasattr(type(X), "__cuda_array_interface__") or is_frame(X):
        return True
    device_of = getattr(type(X), "__dlpack_device__", None)
    return device_of is not None and int(X.__dlpack_device__()[0]) in (2, 13)  # CUDA, CUDA managed


def require_cupy(X: Any) -> Any:
    """Return the module cupy, which is needed to read X; raise ``TypeError`` if it is not installed."""
    try:
        import cupy
    except ImportError as error:
        raise TypeError(
            f"X is a {type(X).__qualname__} on a GPU; to read it, CuPy must be installed"
        ) from error
    return cupy


def torch_or_cupy(X: Any) -> Any:
    """Return X as an array of PyTorch or CuPy, without a copy.

    Arrays of other libraries are read with ``__cuda_array_interface__`` or DLPack through CuPy. Raise
    ``ValueError`` if X is not two-dimensional, and ``TypeError`` if it does not hold real numbers, or if CuPy
    is needed and not installed.
    """
    if is_torch(X):
        array = X.detach()
        if array.is_complex():
            raise TypeError("X must hold real numbers")
    else:
        cupy, array = require_cupy(X), X
        if not isinstance(X, cupy.ndarray):
            array = cupy.asarray(X) if hasattr(type(X), "__cuda_array_interface__") else cupy.from_dlpack(X)
        if array.dtype.kind not in "fiub":
            raise TypeError(f"X must hold real numbers, not {array.dtype}")
    if array.ndim != 2:
        raise ValueError(f"Expected 2D array, got {array.ndim}D array instead")
    return array


def view(
    array: Any, data: Any, numbers: NumberRules, names: tuple[str, ...], dtype: np.dtype | None = None
) -> GpuArray:
    """Return X, which is ``data``, with its numbers in ``array``; copy only if the array's dtype requires it.

    Numbers that are neither float32 nor float64, such as integers, are rounded to ``numbers.rounded_to``, as
    for an array on the host. ``dtype`` is the dtype of the results; None: the dtype of the array.
    """
    array_dtype = dtype_of(array)
    if array_dtype is None or array_dtype not in (np.float32, np.float64):
        array, array_dtype = cast(cast(array, numbers.rounded_to), "float64"), np.dtype(np.float64)
    if is_torch(array):
        import torch

        stream = torch.cuda.current_stream(array.device).cuda_stream
        strides: Any = tuple(stride * array_dtype.itemsize for stride in array.stride())
    else:
        import cupy

        stream, strides = cupy.cuda.get_current_stream(gpu_of(array)).ptr, array.strides
    n_rows, n_features = (int(n) for n in array.shape)
    strides = (int(stride) for stride in strides)
    device_view = load_cuda().DeviceArray(int(address(array)), array_dtype == np.float32, n_rows, *strides)
    shape = (n_rows, n_features)
    return GpuArray(
        data, array, gpu_of(array), int(stream), device_view, shape, dtype or array_dtype, numbers, names
    )


def gpu_of(array: Any) -> int:
    """Return the number of the GPU that an array of PyTorch or CuPy is on."""
    return int(array.device.index if is_torch(array) else array.device.id)


def dtype_of(array: Any) -> np.dtype | None:
    """Return the dtype of an array of PyTorch or CuPy; None if NumPy has no such dtype."""
    if not is_torch(array):
        return np.dtype(array.dtype)
    name = str(array.dtype).removeprefix("torch.")
    return np.dtype(name) if name in np.sctypeDict else None


def cast(array: Any, dtype: str) -> Any:
    """Return an array of PyTorch or CuPy in another dtype, on the same GPU."""
    if is_torch(array):
        import torch

        return array.to(getattr(torch, dtype))
    with current(array):
        return array.astype(dtype)


def current(array: Any) -> AbstractContextManager[Any]:
    """Return a context in which CuPy works on the GPU of an array. An array of PyTorch needs no context."""
    if is_torch(array):
        return nullcontext()
    import cupy

    return cupy.cuda.Device(gpu_of(array))


def require_same_place(out: Any, rows: GpuArray) -> None:
    """Raise an error unless an array for results is on the GPU of X, and of the library that reads X."""
    library = _root(rows.array)
    if _root(out) != library or not on_gpu(out):
        raise TypeError(
            f"X is on a GPU and is read by {library}, so out must be an array of {library} on that GPU, "
            f"not a {type(out).__module__}.{type(out).__qualname__}"
        )
    if gpu_of(out) != rows.gpu:
        raise ValueError(f"out is on cuda:{gpu_of(out)}, but X is on cuda:{rows.gpu}")
    if getattr(out, "requires_grad", False):
        raise ValueError("out requires gradients, which writing to it would break: use out.detach()")


def is_contiguous(array: Any) -> bool:
    return bool(array.is_contiguous() if is_torch(array) else array.flags.c_contiguous)


def shares_memory(out: Any, rows: GpuArray) -> bool:
    """Return whether a contiguous array of the dtype of the results may share memory with X."""
    X = rows.array
    item = 4 if dtype_of(X) == np.float32 else 8
    strides = [item * stride for stride in X.stride()] if is_torch(X) else X.strides
    spans = [stride * (n - 1) for stride, n in zip(strides, X.shape)]
    begin = address(X) + sum(span for span in spans if span < 0)
    end = address(X) + sum(span for span in spans if span > 0) + item
    n_bytes = math.prod(out.shape) * rows.dtype.itemsize
    return n_bytes > 0 and address(out) < end and begin < address(out) + n_bytes


def address(array: Any) -> int:
    """Return the address of an array of PyTorch or CuPy."""
    return array.data_ptr() if is_torch(array) else array.data.ptr


def scale_and_sum(values: Any, factor: float, n_threads: int) -> np.ndarray:
    """Multiply a C-contiguous array of any library in place; return its magnitudes, summed over two axes.

    The axes are the first two of three. The sums are a float64 array of NumPy. If ``n_threads`` is 0, as many
    threads are used as make it faster.
    """
    if isinstance(values, np.ndarray):
        return _core.scale_and_sum(values, factor, n_threads)
    if factor != 1:
        values *= factor
    double = sys.modules["torch"].float64 if is_torch(values) else np.float64
    flat = abs(values).reshape(values.shape[0] * values.shape[1], values.shape[2])
    return to_host(flat.sum(0, dtype=double))


def copied_to_host(X: Any) -> Any:
    """Return X on a GPU as an array of NumPy or a data frame of pandas. Any other X is returned as it is."""
    if is_frame(X):
        return X.to_pandas()
    return to_host(X) if on_gpu(X) else X


def to_host(values: Any) -> np.ndarray:
    """Return an array of any library as an array of NumPy."""
    if isinstance(values, np.ndarray):
        return values
    if is_torch(values):
        return values.detach().cpu().numpy()
    return values.get() if hasattr(values, "get") else np.asarray(values)
