"""The GPU half of the compiled core; built where there is a CUDA toolkit, imports without a GPU."""

from typing import Any

import numpy as np

from ._core import Plan

class CudaError(RuntimeError):
    """A CUDA call failed, or there is no usable device: one sentence says why."""

class CudaMemoryError(MemoryError):
    """The device has too little memory."""

class Device:
    """Index, name, multiprocessors, memory (bytes) and compute capability of a device."""

    index: int
    name: str
    multiprocessors: int
    memory: int
    @property
    def compute_capability(self) -> tuple[int, int]: ...

class DeviceArray:
    """Address, type and strides (bytes) of a two-dimensional array on a device."""

    def __init__(
        self, data: int, is_float32: bool, n_rows: int, row_stride: int, column_stride: int
    ) -> None: ...

class CudaPlan:
    """A plan on a device; safe to use from several threads, whose calls wait for each other."""

    def __init__(self, plan: Plan, device: int, gputreeshap: bool) -> None:
        """Upload; ``gputreeshap``: explain by that paper's own method instead of the quadrature."""

    def explain(
        self,
        X: np.ndarray,
        values: np.ndarray,
        margin: np.ndarray | None,
        gap: np.ndarray | None,
        memory_limit: int,
        matrices: np.ndarray | None = None,
        pairs: np.ndarray | None = None,
    ) -> None:
        """As ``Plan.explain``, from and to host memory.

        ``gap`` (float64, (n_outputs,)) receives the largest absolute difference between the base
        value plus the values of a row and its margin. ``memory_limit`` bounds the bytes of the
        call's buffers on the device; 0 leaves it to the core. Releases the GIL; Ctrl-C
        interrupts it.
        """

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
        matrices: int = 0,
        pairs: int = 0,
    ) -> int:
        """The same for arrays on the device, results as addresses, in the order of a stream.

        Returns -1, or the first value of X that is refused, as row * n_features + feature: NaN (or
        ``missing``, which means it) unless ``allow_nan``, and magnitudes from ``limit`` on unless
        that is NaN. The results are void then.
        """

def devices() -> list[Device]:
    """Usable devices; raises ``CudaError`` that says why there are none."""

def pack(sizes: list[int], packing: str) -> tuple[list[int], int]:
    """Bin of 32 lanes that each path goes to, given the paths' lengths, and the number of bins.

    ``packing``: "none", "next_fit", "first_fit_decreasing" or "best_fit_decreasing".
    """

def path_summary(plan: Plan, packing: str) -> dict[str, Any]:
    """``lengths`` of the plan's paths, ``n_bins`` and ``utilisation`` (elements over lanes)."""

def allocated_bytes() -> int:
    """Memory on devices, and page-locked memory, that the module holds now."""

def driver_version() -> int:
    """CUDA version that the driver supports, 13020 for 13.2; 0 without a driver."""

def runtime_version() -> int:
    """CUDA version that the module was built with."""
