"""Where values are computed: the one place where a device is chosen.

The module ``_cuda`` is imported at the first use of a GPU only; it imports without a driver, and its
errors are the sentences that users read.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import lru_cache
from types import ModuleType
from typing import Any

#: Overrides ``device="auto"``.
DEVICE_VARIABLE = "SKSHAPGPU_DEVICE"


def cuda_info() -> dict[str, Any]:
    """What ``device="cuda"`` would find.

    Returns
    -------
    dict
        ``available``: bool; ``reason``: str that says why not, else None; ``driver`` and ``runtime``: CUDA
        versions such as "13.0" that the driver supports and that the package was built with, None where
        there is none; ``devices``: a dict for each device with its ``name``, ``memory`` in bytes,
        ``compute_capability`` and ``multiprocessors``.
    """
    info: dict[str, Any] = {
        "available": False,
        "reason": None,
        "driver": None,
        "runtime": None,
        "devices": [],
    }
    try:
        cuda = load_cuda()
        info["runtime"] = _version(cuda.runtime_version())
        info["driver"] = _version(cuda.driver_version())
        devices = cuda.devices()
    except RuntimeError as error:
        return info | {"reason": str(error)}
    names = ("name", "memory", "compute_capability", "multiprocessors")
    info["devices"] = [{name: getattr(device, name) for name in names} for device in devices]
    return info | {"available": True}


def _version(number: int) -> str | None:
    return f"{number // 1000}.{number % 1000 // 10}" if number else None


def load_cuda() -> ModuleType:
    try:
        from . import _cuda
    except ImportError as error:
        raise RuntimeError(
            "this skshapgpu was built without its GPU half: install it where there is a CUDA toolkit (nvcc)"
        ) from error
    return _cuda


#: Whether options are read for another process, which has GPUs and an environment of its own.
_elsewhere: ContextVar[bool] = ContextVar("_elsewhere", default=False)


@contextmanager
def elsewhere() -> Iterator[None]:
    """Options ``device`` are read for other processes: neither GPUs nor the environment of this one count."""
    token = _elsewhere.set(True)
    try:
        yield
    finally:
        _elsewhere.reset(token)


@dataclass(frozen=True)
class Devices:
    """What the option ``device`` asks for.

    Attributes
    ----------
    auto : bool
        Use the first GPU when it is there and pays.
    indices : tuple of int
        GPUs to use; empty: the CPU.
    by_default : bool
        Whether the option is "auto", even if the environment says what that is. It is pickled as "auto",
        and the process that loads it asks its own environment.
    """

    auto: bool = False
    indices: tuple[int, ...] = ()
    by_default: bool = field(default=False, compare=False)

    @classmethod
    def parse(cls, device: Any) -> Devices:
        """Read the option, and make sure that GPUs named in it are there.

        Raises
        ------
        ValueError, TypeError
            The option has no such value.
        RuntimeError
            A GPU is asked for that cannot be had; the message says why.
        """
        by_default = isinstance(device, str) and device == "auto"
        if by_default:
            device = "auto" if _elsewhere.get() else _default_device()
        found = cls._read(device, by_default)
        if not found.indices or _elsewhere.get():
            return found
        try:
            n_devices = len(load_cuda().devices())
        except RuntimeError as error:
            raise RuntimeError(
                f"device={device!r}, but {error}; use device='cpu', or 'auto', which falls back to it"
            ) from error
        if max(found.indices) >= n_devices:
            raise RuntimeError(f"device={device!r}, but there are only {n_devices} CUDA devices")
        return found

    @classmethod
    def _read(cls, device: Any, by_default: bool) -> Devices:
        if isinstance(device, str) and device == "auto":
            return cls(auto=True, by_default=by_default)
        names = [device] if isinstance(device, str) else device
        if not isinstance(names, Sequence) or not names or not all(isinstance(name, str) for name in names):
            raise TypeError(f"device must be a str or a list of them, not {device!r}")
        if list(names) == ["cpu"]:
            return cls(by_default=by_default)
        matches = [re.fullmatch(r"cuda(?::(\d+))?", name) for name in names]
        if not all(matches):
            raise ValueError(
                f"device must be 'auto', 'cpu', 'cuda', 'cuda:N' or a list of the last, not {device!r}"
            )
        indices = tuple(int(match[1] or 0) for match in matches if match)
        if len(set(indices)) < len(indices):
            raise ValueError(f"device names a GPU twice: {device!r}")
        return cls(indices=indices, by_default=by_default)

    @classmethod
    def default_here(cls) -> Devices:
        """What "auto" stands for in this process; its GPUs are looked for when they are used."""
        return cls._read(_default_device(), True)

    def __reduce__(self) -> tuple[Any, ...]:
        return (Devices.default_here, ()) if self.by_default else (Devices, (self.auto, self.indices))

    def insist(self, what: str) -> Devices:
        """Return the GPUs for something that runs on GPUs only.

        Raises
        ------
        ValueError
            The option is the CPU.
        RuntimeError
            There is no GPU.
        """
        if self.auto:
            return Devices.parse("cuda")
        if not self.indices:
            raise ValueError(f"{what} runs on GPUs only, but device is 'cpu'")
        return self

    @property
    def none(self) -> bool:
        """Whether :meth:`choose` gives no GPU, whatever the seconds, as far as is known."""
        return _available is False if self.auto else not self.indices

    def choose(self, cpu: float, cuda: float) -> tuple[int, ...]:
        """GPUs for a call that takes so many seconds on the CPU, and on a GPU; empty: the CPU."""
        if not self.auto:
            return self.indices
        return (0,) if cuda <= cpu and cuda_available() else ()


def _default_device() -> str | list[str]:
    """What ``device="auto"`` stands for in this process."""
    forced = os.environ.get(DEVICE_VARIABLE, "") or "auto"
    return forced.split(",") if "," in forced else forced


def require_cpu(device: Any, what: str) -> None:
    """Refuse an option ``device`` that insists on a GPU.

    Raises
    ------
    ValueError
    """
    if not (isinstance(device, str) and device in ("auto", "cpu")):
        raise ValueError(f"{what} is computed on the CPU only: use device='cpu' or 'auto'")


def cuda_available() -> bool:
    """Whether there is a GPU; asked once."""
    global _available
    if _available is None:
        _available = cuda_info()["available"]
    return _available


_available: bool | None = None


@lru_cache(64)
def label(indices: tuple[int, ...]) -> str:
    """Name of the devices as users give them."""
    return ", ".join(f"cuda:{index}" for index in indices) or "cpu"


def is_cuda_error(error: BaseException) -> bool:
    """Whether an error came from a GPU, or from looking for one."""
    cuda = sys.modules.get(f"{__package__}._cuda")
    return cuda is not None and isinstance(error, (cuda.CudaError, cuda.CudaMemoryError))


def compile_on(plan: Any, index: int, method: str) -> Any:
    """Return the plan on a GPU: ``_cuda.CudaPlan``, which explains by the method "walk" or "gputreeshap"."""
    return _load().CudaPlan(plan, index, method == "gputreeshap")


# Arrays on a GPU


@dataclass(frozen=True)
class Numbers:
    """What the numbers of an array on a GPU mean, and which are refused.

    Attributes
    ----------
    missing : float
        Means missing, besides NaN.
    allow_nan : bool
        Whether missing values are allowed.
    limit : float
        Magnitudes from here on are refused; NaN: none.
    """

    missing: float
    allow_nan: bool
    limit: float


class RefusedNumberError(ValueError):
    """An array on a GPU has a number that is refused, at ``row`` and ``feature``."""

    def __init__(self, row: int, feature: int) -> None:
        super().__init__(row, feature)
        self.row, self.feature = row, feature


@dataclass(frozen=True)
class GpuArray:
    """A two-dimensional float32 or float64 array of another library on a GPU."""

    given: Any  # X
    array: Any  # the same as an array of PyTorch or CuPy
    index: int
    stream: int
    view: Any  # _cuda.DeviceArray
    shape: tuple[int, int]
    dtype: np.dtype

    def give(self, values: Any) -> Any:
        """Values made by :meth:`empty` as an array of the library that X came from."""
        if _root(self.given) in (_root(values), "numba"):  # Numba takes CuPy's arrays as they are
            return values
        namespace = import_module(_root(self.given))
        convert = getattr(getattr(namespace, "dlpack", namespace), "from_dlpack", None)
        return values if convert is None else convert(values)

    def empty(self, shape: tuple[int, ...]) -> Any:
        """An array of this kind and dtype beside it."""
        if _root(self.array) == "torch":
            import torch

            return torch.empty(shape, dtype=getattr(torch, self.dtype.name), device=self.array.device)
        import cupy

        if cupy.cuda.runtime.getDevice() == self.index:
            return cupy.empty(shape, self.dtype)
        with cupy.cuda.Device(self.index):
            return cupy.empty(shape, self.dtype)

    def rows(self, start: int, stop: int) -> GpuArray:
        """Some rows of it, without a copy."""
        if start == 0 and stop == self.shape[0]:
            return self
        return replace(take(self.array[start:stop]), given=self.given)


def _root(X: Any) -> str:
    return type(X).__module__.partition(".")[0]


def on_gpu(X: Any) -> bool:
    """Whether X lies in the memory of a GPU."""
    if isinstance(X, np.ndarray):
        return False
    if _root(X) == "torch":
        return bool(getattr(X, "is_cuda", False))
    if hasattr(type(X), "__cuda_array_interface__"):
        return True
    describe = getattr(type(X), "__dlpack_device__", None)
    return describe is not None and int(X.__dlpack_device__()[0]) in (2, 13)  # CUDA, CUDA managed


def take(X: Any, others: str = "float64") -> GpuArray:
    """Take an array on a GPU, without a copy unless its dtype needs one.

    Arrays of CuPy and PyTorch are taken as they are; others, by ``__cuda_array_interface__`` or
    DLPack, through CuPy, which must be installed then. Numbers that are neither float32 nor float64, such
    as integers, are rounded to the dtype ``others``, as those of an array on the host are.

    Raises
    ------
    ValueError
        X is not two-dimensional.
    TypeError
        X holds no real numbers, or it cannot be read without CuPy.
    """
    cuda, given = _load(), X
    if _root(X) == "torch":
        import torch

        X = X.detach()
        index, stream = X.device.index, torch.cuda.current_stream(X.device).cuda_stream
        if X.dtype not in (torch.float32, torch.float64):
            if X.is_complex():
                raise TypeError("X must hold real numbers")
            X = X.to(getattr(torch, others)).to(torch.float64)
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
                X = X.astype(others).astype(np.float64)
        dtype, strides, address = np.dtype(X.dtype), X.strides, X.data.ptr
    if X.ndim != 2:
        raise ValueError(f"Expected 2D array, got {X.ndim}D array instead")
    n_rows, n_features = (int(n) for n in X.shape)
    view = cuda.DeviceArray(int(address), dtype == np.float32, n_rows, *(int(stride) for stride in strides))
    return GpuArray(given, X, int(index), int(stream), view, (n_rows, n_features), dtype)


def address(array: Any) -> int:
    """Where the elements of an array made by :meth:`GpuArray.empty` lie."""
    return array.data_ptr() if _root(array) == "torch" else array.data.ptr


def magnitudes(values: Any) -> np.ndarray:
    """Sums of the magnitudes over all axes but the last of three, of any library, as float64 of NumPy."""
    double = sys.modules["torch"].float64 if _root(values) == "torch" else np.float64
    flat = abs(values).reshape(values.shape[0] * values.shape[1], values.shape[2])
    return to_host(flat.sum(0, dtype=double))


def to_host(values: Any) -> np.ndarray:
    """An array of any library as NumPy's."""
    if isinstance(values, np.ndarray):
        return values
    if _root(values) == "torch":
        return values.detach().cpu().numpy()
    return values.get() if hasattr(values, "get") else np.asarray(values)
