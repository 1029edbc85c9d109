"""Stand-ins for ``_cuda`` and CuPy, which hold NumPy arrays and compute with the CPU's plans."""

from __future__ import annotations

import ctypes
import sys
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

import skshapgpu
from skshapgpu._common import devices

#: Numbers of columns of two-dimensional arrays, by address; a ``DeviceArray`` does not have them.
COLUMNS: dict[int, int] = {}

#: Shapes of new arrays, by address, for results whose features are not the columns of X.
SHAPES: dict[int, tuple[int, ...]] = {}


class Array:
    """Replacement for ``cupy.ndarray`` in host memory, with the methods that the package uses."""

    def __init__(self, array: np.ndarray, index: int = 0) -> None:
        self.array, self.device = array, SimpleNamespace(id=index)
        self.dtype, self.shape, self.ndim, self.strides = array.dtype, array.shape, array.ndim, array.strides
        self.flags = array.flags

    @property
    def data(self) -> Any:
        address = self.array.ctypes.data
        if self.ndim == 2:
            COLUMNS[address] = self.shape[1]
        return SimpleNamespace(ptr=address)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self.array.__array_interface__

    def get(self) -> np.ndarray:
        return self.array.copy()

    def astype(self, dtype: Any) -> Array:
        return self._like(self.array.astype(dtype))

    def reshape(self, *shape: int) -> Array:
        return self._like(self.array.reshape(*shape))

    def swapaxes(self, first: int, second: int) -> Array:
        return self._like(self.array.swapaxes(first, second))

    def sum(self, axis: int, dtype: Any) -> Array:
        return self._like(self.array.sum(axis, dtype=dtype))

    def view(self, dtype: Any) -> Array:
        return self._like(self.array.view(dtype))

    def _like(self, array: np.ndarray) -> Array:
        return type(self)(array, self.device.id)

    def __len__(self) -> int:
        return len(self.array)

    def __array__(self, *args: Any, **options: Any) -> np.ndarray:
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()`")

    def __eq__(self, other: object) -> Array:  # type: ignore[override]
        return self._like(self.array == other)

    def __ge__(self, other: float) -> Array:
        return self._like(self.array >= other)

    def __mul__(self, factor: float) -> Array:
        return self._like(self.array * factor)

    def __abs__(self) -> Array:
        return self._like(abs(self.array))

    def __imul__(self, factor: float) -> Array:
        self.array *= factor
        return self

    def __getitem__(self, key: Any) -> Array:
        return self._like(self.array[key.array if isinstance(key, Array) else key])

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(value, np.ndarray):
            raise TypeError("Unsupported type <class 'numpy.ndarray'>")
        with np.errstate(over="ignore"):
            where = key.array if isinstance(key, Array) else key
            self.array[where] = value.array if isinstance(value, Array) else value


Array.__module__, Array.__qualname__ = "cupy._core.core", "ndarray"


class OtherArray(Array):
    """Array of another library, with ``__cuda_array_interface__`` and ``from_dlpack``."""


OtherArray.__module__ = "other_gpu_library.arrays"


class Device:
    """Replacement for ``cupy.cuda.Device``: the current device inside ``with``."""

    current: ClassVar[list[int]] = [0]

    def __init__(self, index: int) -> None:
        self.index = index

    def __enter__(self) -> None:
        self.current.append(self.index)

    def __exit__(self, *error: object) -> None:
        self.current.pop()


def empty(shape: tuple[int, ...], dtype: Any, order: Any = "C") -> Array:
    array = np.empty(shape, dtype, order)
    array[...] = np.nan
    SHAPES[array.ctypes.data] = array.shape
    return Array(array, Device.current[-1])


def asarray(X: Any) -> Array:
    """Return an array of the host on the current device, and any other array on its own device."""
    if isinstance(X, np.ndarray):
        return Array(X.copy(), Device.current[-1])
    return Array(X.array, X.device.id)


def unique(X: Array, return_inverse: bool) -> tuple[Array, Array]:
    assert return_inverse and X.device.id == Device.current[-1]
    values, places = np.unique(X.array, return_inverse=True)
    return X._like(values), X._like(places)


def cupy_module() -> ModuleType:
    module: Any = ModuleType("cupy")
    module.ndarray, module.empty = Array, empty
    module.asarray, module.unique = asarray, unique
    module.ascontiguousarray = lambda X: X._like(np.ascontiguousarray(X.array))
    module.cuda = SimpleNamespace(
        Device=Device,
        runtime=SimpleNamespace(getDevice=lambda: Device.current[-1]),
        get_current_stream=lambda index: SimpleNamespace(ptr=7000 + index),
    )
    return module


class CudaError(RuntimeError):
    pass


class CudaMemoryError(MemoryError):
    pass


def at(
    address: int, shape: tuple[int, ...], dtype: Any, strides: tuple[int, ...] | None = None
) -> np.ndarray:
    """Return the array at an address."""
    item = np.dtype(dtype).itemsize
    steps = strides or tuple(item * int(np.prod(shape[i + 1 :])) for i in range(len(shape)))
    n_bytes = item + sum((n - 1) * step for n, step in zip(shape, steps, strict=True)) if all(shape) else 0
    return np.ndarray(
        shape, dtype, memoryview((ctypes.c_char * n_bytes).from_address(address)), strides=steps
    )


class DeviceArray:
    def __init__(self, data: int, is_float32: bool, n_rows: int, row_stride: int, column_stride: int) -> None:
        dtype = np.float32 if is_float32 else np.float64
        self.array = at(data, (n_rows, COLUMNS[data]), dtype, (row_stride, column_stride))


class CudaPlan:
    """Plan that computes on the CPU; ``calls`` records the calls of all plans."""

    calls: ClassVar[list[dict[str, Any]]] = []
    error: Exception | None = None

    def __init__(self, plan: Any, device: int, gputreeshap: bool) -> None:
        self.plan, self.device, self.gputreeshap = plan, device, gputreeshap

    @classmethod
    def with_tables(cls, plan: Any, device: int) -> CudaPlan:
        return cls(plan, device, False)

    @staticmethod
    def rescaled(plan: Any, device: int) -> RescaledPlan:
        return RescaledPlan(plan, device)

    def explain(
        self,
        X: np.ndarray,
        values: np.ndarray,
        margin: np.ndarray | None,
        gap: np.ndarray | None,
        memory_limit: int,
        **parts: np.ndarray,
    ) -> None:
        self.calls.append({"device": self.device, "n_rows": len(X), "memory_limit": memory_limit})
        if self.error is not None:
            raise self.error
        self._explain(X, values, margin, gap, parts)

    def explain_device(
        self,
        X: DeviceArray,
        missing: float,
        allow_nan: bool,
        limit: float,
        values: int,
        values_float32: bool,
        gap: np.ndarray | None,
        memory_limit: int,
        stream: int,
        **addresses: int,
    ) -> int:
        rows = X.array
        self.calls.append(
            {
                "device": self.device,
                "n_rows": len(rows),
                "missing": missing,
                "allow_nan": allow_nan,
                "limit": limit,
                "values_float32": values_float32,
                "checked": gap is not None,
                "memory_limit": memory_limit,
                "stream": stream,
                "parts": tuple(addresses),
            }
        )
        is_missing = np.isnan(rows) | (rows == missing)
        refused = np.zeros(rows.shape, bool) if allow_nan else is_missing.copy()
        if not np.isnan(limit):
            refused |= np.abs(rows.astype(np.float64)) >= limit
        if refused.any():
            return int(np.flatnonzero(refused)[0])
        dtype, leading = np.dtype("f" if values_float32 else "d"), (len(rows), len(self.plan.base_value))
        n_features = SHAPES.get(values, rows.shape)[-1]
        shapes = {"matrices": (n_features, n_features), "pairs": (len(self.plan.pairs),)}
        parts = {name: at(address, (*leading, *shapes[name]), dtype) for name, address in addresses.items()}
        out = at(values, (*leading, n_features), dtype)
        self._explain(np.where(is_missing, np.nan, rows), out, None, gap, parts)
        return -1

    def _explain(
        self,
        rows: np.ndarray,
        values: np.ndarray,
        margin: np.ndarray | None,
        gap: np.ndarray | None,
        parts: dict[str, np.ndarray],
    ) -> None:
        margins = np.empty(values.shape[:2])
        self.plan.explain(rows, values, margins, 1, **parts)
        if gap is not None and len(rows):
            total = values.sum(axis=2, dtype=np.float64) + self.plan.base_value
            gap[:] = np.abs(total - margins).max(axis=0)
        if margin is not None:
            margin[...] = margins


class RescaledPlan:
    """Like ``CudaPlan``, but for functions of the margin; its tables are the CPU's plan."""

    def __init__(self, plan: Any, device: int) -> None:
        self.plan, self.device = plan, device

    def explain(
        self, X: Any, values: Any, margin: Any, gap: None, memory_limit: int, labels: Any = None
    ) -> None:
        CudaPlan.calls.append({"device": self.device, "n_rows": len(X), "memory_limit": memory_limit})
        self.plan.explain(X, values, margin, 1, labels)

    def explain_device(
        self,
        X: DeviceArray,
        missing: float,
        allow_nan: bool,
        limit: float,
        values: int,
        values_float32: bool,
        gap: None,
        memory_limit: int,
        stream: int,
        margin: Any = None,
        labels: Any = None,
    ) -> int:
        rows = X.array
        refused = np.flatnonzero(~(np.abs(rows) < limit))
        if len(refused):
            return int(refused[0])
        out = at(values, (len(rows), 1, rows.shape[1]), "f" if values_float32 else "d")
        self.explain(np.where(rows == missing, np.nan, rows), out, margin, gap, memory_limit, labels)
        return -1


def cuda_module() -> ModuleType:
    module: Any = ModuleType("skshapgpu._cuda")
    module.CudaError, module.CudaMemoryError = CudaError, CudaMemoryError
    module.DeviceArray, module.CudaPlan = DeviceArray, CudaPlan
    described = {
        "memory": 1 << 34,
        "compute_capability": (9, 0),
        "multiprocessors": 132,
        "holds_tables": False,
    }
    module.devices = lambda: [SimpleNamespace(index=i, name=f"GPU {i}", **described) for i in range(2)]
    module.new_array = lambda shape, dtype: None
    module.check_calls_with = lambda check: None
    module.limit_page_locked = lambda most_bytes: None
    module.driver_version = module.runtime_version = lambda: 13000
    module.compute_capabilities = lambda: [(9, 0)]
    return module


def install(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Install two GPUs, CuPy and another library, and return the calls of the plans on the GPUs."""
    cuda, other = cuda_module(), ModuleType("other_gpu_library")
    monkeypatch.setattr(skshapgpu, "_cuda", cuda, raising=False)
    monkeypatch.setitem(sys.modules, "skshapgpu._cuda", cuda)
    monkeypatch.setitem(sys.modules, "cupy", cupy_module())
    other.from_dlpack = lambda array: OtherArray(array.array, array.device.id)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "other_gpu_library", other)
    monkeypatch.setattr(devices, "_available", None)
    monkeypatch.delenv("SKSHAPGPU_DEVICE", raising=False)
    monkeypatch.setattr(CudaPlan, "calls", [])
    return CudaPlan.calls
