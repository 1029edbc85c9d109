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
        from .. import _cuda
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
    cuda = sys.modules.get("skshapgpu._cuda")
    return cuda is not None and isinstance(error, (cuda.CudaError, cuda.CudaMemoryError))


def compile_on(plan: Any, index: int, method: str) -> Any:
    """Return the plan on a GPU: ``_cuda.CudaPlan``, which explains by the method "walk" or "gputreeshap"."""
    return load_cuda().CudaPlan(plan, index, method == "gputreeshap")
