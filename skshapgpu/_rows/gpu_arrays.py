"""Arrays of other libraries in the memory of a GPU: X, and the results that are allocated there."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import numpy as np

from .._common.devices import load_cuda


@dataclass(frozen=True)
class Numbers:
    """Meaning of the numbers of an array on a GPU, and rules for rejecting them.

    Attributes
    ----------
    missing : float
        Number that means missing, besides NaN.
    allow_nan : bool
        Whether missing values are allowed.
    limit : float
        Magnitudes from this one on are rejected; NaN if there is no limit.
    x_dtype : {"float32", "float64"}
        Precision in which the model's library reads X.
    rounded_to : {"float32", "float64"}
        Precision to which the library rounds other numbers, such as integers.
    """

    missing: float
    allow_nan: bool
    limit: float
    x_dtype: str
    rounded_to: str


@dataclass(frozen=True)
class GpuArray:
    """A two-dimensional float32 or float64 array of another library on a GPU: ``rows.Rows``.

    Attributes
    ----------
    data : array
        X.
    array : array of PyTorch or CuPy
        The numbers of X, without a copy if possible.
    gpu, stream : int
    view : _cuda.DeviceArray
    shape : (int, int)
    dtype : numpy dtype
    numbers : Numbers
    names : tuple of str
    """

    data: Any
    array: Any
    gpu: int
    stream: int
    view: Any
    shape: tuple[int, int]
    dtype: np.dtype
    numbers: Numbers
    names: tuple[str, ...]

    @property
    def n_rows(self) -> int:
        return self.shape[0]

    @property
    def row_labels(self) -> None:
        return None

    def to_native(self, values: Any) -> Any:
        """Convert an array made by :meth:`empty` to the library of X."""
        if _root(self.data) in (_root(values), "numba"):  # Numba accepts CuPy's arrays
            return values
        namespace = import_module(_root(self.data))
        convert = getattr(getattr(namespace, "dlpack", namespace), "from_dlpack", None)
        return values if convert is None else convert(values)

    def empty(self, shape: tuple[int, ...]) -> Any:
        """Return a new array of the same library and dtype on the same GPU."""
        if _root(self.array) == "torch":
            import torch

            return torch.empty(shape, dtype=getattr(torch, self.dtype.name), device=self.array.device)
        import cupy

        if cupy.cuda.runtime.getDevice() == self.gpu:
            return cupy.empty(shape, self.dtype)
        with cupy.cuda.Device(self.gpu):
            return cupy.empty(shape, self.dtype)

    def rows(self, start: int, stop: int) -> GpuArray:
        """Return some of the rows, without a copy."""
        if start == 0 and stop == self.shape[0]:
            return self
        return replace(take(self.array[start:stop], self.numbers, self.names), data=self.data)


def _root(X: Any) -> str:
    return type(X).__module__.partition(".")[0]


def on_gpu(X: Any) -> bool:
    """Return whether X is in the memory of a GPU."""
    if isinstance(X, np.ndarray):
        return False
    if _root(X) == "torch":
        return bool(getattr(X, "is_cuda", False))
    if hasattr(type(X), "__cuda_array_interface__"):
        return True
    describe = getattr(type(X), "__dlpack_device__", None)
    return describe is not None and int(X.__dlpack_device__()[0]) in (2, 13)  # CUDA, CUDA managed


def take(X: Any, numbers: Numbers, names: tuple[str, ...]) -> GpuArray:
    """Take an array on a GPU as X, without a copy unless its dtype requires one.

    Arrays of CuPy and PyTorch are taken as they are. Others are read with ``__cuda_array_interface__`` or
    DLPack through CuPy, which must be installed. Numbers that are neither float32 nor float64, such as
    integers, are rounded to ``numbers.rounded_to``, as for an array on the host.

    Raises
    ------
    ValueError
        X is not two-dimensional.
    TypeError
        X does not hold real numbers, or cannot be read without CuPy.
    """
    cuda, original = load_cuda(), X
    if _root(X) == "torch":
        import torch

        X = X.detach()
        index, stream = X.device.index, torch.cuda.current_stream(X.device).cuda_stream
        if X.dtype not in (torch.float32, torch.float64):
            if X.is_complex():
                raise TypeError("X must hold real numbers")
            X = X.to(getattr(torch, numbers.rounded_to)).to(torch.float64)
        dtype = np.dtype(np.float32 if X.dtype == torch.float32 else np.float64)
        strides = tuple(stride * dtype.itemsize for stride in X.stride())
        address = X.data_ptr()
    else:
        try:
            import cupy
        except ImportError as error:
            raise TypeError(
                f"X is a {type(X).__qualname__} on a GPU; to read it, CuPy must be installed"
            ) from error
        if not isinstance(X, cupy.ndarray):
            X = cupy.asarray(X) if hasattr(type(X), "__cuda_array_interface__") else cupy.from_dlpack(X)
        index = X.device.id
        if X.dtype.kind not in "fiub":
            raise TypeError(f"X must hold real numbers, not {X.dtype}")
        stream = cupy.cuda.get_current_stream(index).ptr
        if X.dtype not in (np.float32, np.float64):
            with cupy.cuda.Device(index):
                X = X.astype(numbers.rounded_to).astype(np.float64)
        dtype, strides, address = np.dtype(X.dtype), X.strides, X.data.ptr
    if X.ndim != 2:
        raise ValueError(f"Expected 2D array, got {X.ndim}D array instead")
    n_rows, n_features = (int(n) for n in X.shape)
    view = cuda.DeviceArray(int(address), dtype == np.float32, n_rows, *(int(stride) for stride in strides))
    shape = (n_rows, n_features)
    return GpuArray(original, X, int(index), int(stream), view, shape, dtype, numbers, names)


def address(array: Any) -> int:
    """Return the address of an array made by :meth:`GpuArray.empty`."""
    return array.data_ptr() if _root(array) == "torch" else array.data.ptr


def scale_and_sum(values: Any, factor: float, n_threads: int) -> np.ndarray:
    """Multiply a C-contiguous array of any library in place; return its magnitudes, summed over two axes.

    The axes are the first two of three. The sums are float64 of NumPy; 0 threads are as many as are of use.
    """
    if isinstance(values, np.ndarray):
        from .. import _core

        return _core.scale_and_sum(values, factor, n_threads)
    if factor != 1:
        values *= factor
    double = sys.modules["torch"].float64 if _root(values) == "torch" else np.float64
    flat = abs(values).reshape(values.shape[0] * values.shape[1], values.shape[2])
    return to_host(flat.sum(0, dtype=double))


def to_host(values: Any) -> np.ndarray:
    """Return an array of any library as an array of NumPy."""
    if isinstance(values, np.ndarray):
        return values
    if _root(values) == "torch":
        return values.detach().cpu().numpy()
    return values.get() if hasattr(values, "get") else np.asarray(values)
