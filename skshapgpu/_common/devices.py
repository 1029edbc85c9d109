"""Devices: the only place that decides where values are computed.

The module ``_cuda`` is imported at the first use of a GPU. It can be imported without a driver, and its error
messages are shown to users as they are.
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

from . import interrupts, memory

#: Environment variable that overrides ``device="auto"``.
DEVICE_VARIABLE = "SKSHAPGPU_DEVICE"


def cuda_info() -> dict[str, Any]:
    """Describe the GPUs that ``device="cuda"`` can use, or say why there are none.

    Returns
    -------
    dict
        ``available``: whether a GPU can be used. ``reason``: str that says why none can be used, else None.
        ``driver``: the CUDA version that the driver supports, such as "13.0", or None without a driver.
        ``runtime``: the CUDA version with which the package was built, or None if it was built without.
        ``compute_capabilities``: list of those for which the package was built, such as ``[(9, 0)]``; empty
        if it was built without.
        ``devices``: a dict for each device with its ``name``, ``memory`` in bytes, ``compute_capability`` and
        ``multiprocessors``.
    """
    info: dict[str, Any] = {
        "available": False,
        "reason": None,
        "driver": None,
        "runtime": None,
        "compute_capabilities": [],
        "devices": [],
    }
    try:
        cuda = load_cuda()
        info["runtime"] = _version(cuda.runtime_version())
        info["compute_capabilities"] = cuda.compute_capabilities()
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
        from .. import _cuda
    except ImportError as error:
        raise RuntimeError(
            "this skshapgpu was built without its GPU module: install it where a GPU and a CUDA toolkit are"
        ) from error
    _cuda.check_calls_with(interrupts.check)
    return _cuda


#: Whether options are parsed for another process, which has its own GPUs and environment.
_elsewhere: ContextVar[bool] = ContextVar("_elsewhere", default=False)


@contextmanager
def elsewhere() -> Iterator[None]:
    """Parse ``device`` options for other processes: ignore the GPUs and environment variables of this one."""
    token = _elsewhere.set(True)
    try:
        yield
    finally:
        _elsewhere.reset(token)


@dataclass(frozen=True)
class Devices:
    """Value of the option ``device``."""

    auto: bool = False  # whether to use the first GPU if there is one and it is faster
    indices: tuple[int, ...] = ()  # GPUs to use; empty for the CPU
    #: Whether the option is "auto", even if the environment overrides it. Then it is pickled as "auto", and
    #: the process that unpickles it consults its own environment.
    by_default: bool = field(default=False, compare=False)

    @classmethod
    def parse(cls, device: Any) -> Devices:
        """Parse the option, and check that the GPUs that it names are available.

        Raise ``ValueError`` or ``TypeError`` if the option has an invalid value. Raise ``RuntimeError`` if a
        requested GPU is not available; the message says why.
        """
        by_default = isinstance(device, str) and device == "auto"
        if by_default:
            device = "auto" if _elsewhere.get() else _default_device()
        devices = cls._read(device, by_default)
        if not devices.indices or _elsewhere.get():
            return devices
        try:
            n_devices = len(load_cuda().devices())
        except RuntimeError as error:
            raise RuntimeError(
                f"device={device!r}, but {error}; use device='cpu', or 'auto', which falls back to it"
            ) from error
        if max(devices.indices) >= n_devices:
            raise RuntimeError(f"device={device!r}, but there are only {n_devices} CUDA devices")
        return devices

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
        """Return the devices for "auto" in this process. GPUs are detected only when they are needed."""
        return cls._read(_default_device(), True)

    def __reduce__(self) -> tuple[Any, ...]:
        return (Devices.default_here, ()) if self.by_default else (Devices, (self.auto, self.indices))

    def insist(self, algorithm: str) -> Devices:
        """Return the GPUs for an algorithm that runs on GPUs only; ``algorithm`` names it in messages.

        Raise ``ValueError`` if the option requests the CPU, and ``RuntimeError`` if there is no GPU.
        """
        if self.auto:
            return Devices.parse("cuda")
        if not self.indices:
            raise ValueError(f"{algorithm} runs on GPUs only, but device is 'cpu'")
        return self

    @property
    def none(self) -> bool:
        """Whether it is already known that :meth:`choose` never returns a GPU."""
        return _available is False if self.auto else not self.indices

    def choose(self, cpu: float, cuda: float) -> tuple[int, ...]:
        """Return the GPUs for a call, given its seconds on the CPU and on a GPU; empty for the CPU."""
        if not self.auto:
            return self.indices
        return (0,) if cuda <= cpu and cuda_available() else ()


def _default_device() -> str | list[str]:
    """Return the value that ``device="auto"`` stands for in this process."""
    forced = os.environ.get(DEVICE_VARIABLE, "") or "auto"
    return forced.split(",") if "," in forced else forced


def require_cpu(device: Any, option: str) -> None:
    """Raise ``ValueError``, whose message begins with ``option``, if ``device`` requires a GPU."""
    if not (isinstance(device, str) and device in ("auto", "cpu")):
        raise ValueError(f"{option} is computed on the CPU only: use device='cpu' or 'auto'")


def cuda_available() -> bool:
    """Return whether there is a GPU, and remember the answer."""
    global _available
    if _available is None:
        _available = cuda_info()["available"]
    return _available


def missing() -> str | None:
    """Say why there is no GPU; None if there is one."""
    info = cuda_info()
    return None if info["available"] else info["reason"]


_available: bool | None = None


@lru_cache(64)
def label(indices: tuple[int, ...]) -> str:
    """Return the name of the devices, as users write it."""
    return ", ".join(f"cuda:{index}" for index in indices) or "cpu"


def is_cuda_error(error: BaseException) -> bool:
    """Return whether an error was raised by a GPU, or while detecting one."""
    cuda = sys.modules.get("skshapgpu._cuda")
    return cuda is not None and isinstance(error, (cuda.CudaError, cuda.CudaMemoryError))


def hold_tables(indices: tuple[int, ...]) -> bool:
    """Return whether tables by intervals fit the shared memory of these GPUs."""
    return _hold_tables(load_cuda(), indices)


@lru_cache(64)
def _hold_tables(cuda: Any, indices: tuple[int, ...]) -> bool:
    devices = cuda.devices()
    return all(devices[index].holds_tables for index in indices)


def new_array(shape: tuple[int, ...], dtype: Any) -> Any:
    """Return a new array in page-locked memory, or None in the cases that ``_cuda.pyi`` lists."""
    return load_cuda().new_array(shape, dtype)


def compile_tables_on(plan: Any, index: int) -> Any:
    """Return a plan on a GPU, a ``_cuda.CudaPlan``. Only this GPU needs the tables of the plan."""
    cuda = load_cuda()
    cuda.limit_page_locked(memory.locked_bytes())
    return cuda.CudaPlan.with_tables(plan, index)


def compile_on(plan: Any, index: int, method: str) -> Any:
    """Return a plan on a GPU, a ``_cuda.CudaPlan``.

    The method "leaves" becomes small chunks if the plan has no leaf chunks.
    """
    cuda = load_cuda()
    cuda.limit_page_locked(memory.locked_bytes())
    if method == "leaves" and not cuda.has_leaf_chunks(plan):
        method = "small_chunks"
    return cuda.CudaPlan(plan, index, method)
