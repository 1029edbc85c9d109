"""The GPU half of the compiled core: built if there is a CUDA toolkit, importable without a GPU."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ._core import Plan, RescaledTables

class CudaError(RuntimeError):
    """Error of a CUDA call, or because there is no usable device; its message is one sentence."""

class CudaMemoryError(MemoryError):
    """Error raised if the device has too little memory."""

class Device:
    """Properties of a device.

    ``memory`` is in bytes. ``holds_tables`` says whether tables by intervals, and tables for Owen values, fit
    into the shared memory of the device.
    """

    index: int
    name: str
    multiprocessors: int
    memory: int
    holds_tables: bool
    @property
    def compute_capability(self) -> tuple[int, int]: ...

class DeviceArray:
    """Address, type and strides (bytes) of a two-dimensional array on a device."""

    def __init__(
        self, data: int, is_float32: bool, n_rows: int, row_stride: int, column_stride: int
    ) -> None: ...

class CudaPlan:
    """A plan on a device; safe to use from several threads, whose calls wait for each other."""

    def __init__(self, plan: Plan, device: int, method: str = "chunks") -> None:
        """Upload a plan.

        "chunks", "small_chunks" and "leaves" say how trees without tables are explained: walked, walked in a
        call of few rows, or leaf by leaf in a call of very few rows. "fast_v2" and "gputreeshap" are the
        methods of these papers, for all trees. ValueError is raised if the method cannot explain the plan;
        see :func:`has_leaf_chunks`.
        """

    @staticmethod
    def with_tables(plan: Plan, device: int) -> CudaPlan:
        """Upload a plan whose tables only the device needs; the host frees them when ``plan`` is deleted."""

    @staticmethod
    def rescaled(tables: RescaledTables, device: int) -> CudaPlan:
        """Upload the tables of values of a link, which the host does not need afterwards."""

    def explain(
        self,
        X: np.ndarray,
        values: np.ndarray,
        margin: np.ndarray | None,
        gap: np.ndarray | None,
        memory_limit: int,
        matrices: np.ndarray | None = None,
        pairs: np.ndarray | None = None,
        triples: np.ndarray | None = None,
        labels: np.ndarray | None = None,
    ) -> None:
        """Compute values like ``Plan.explain`` or ``RescaledPlan.explain``, from and to host memory.

        A plan of order 3 computes neither ``matrices`` nor ``pairs`` here: they need a plan of order 2.
        ``gap`` (float64, (n_outputs,)) receives the largest absolute difference between the base
        value plus the values of a row and its margin. ``memory_limit`` bounds the bytes of the
        call's buffers on the device; 0 leaves the limit to the core. The GIL is released; Ctrl-C
        interrupts the call.
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
        triples: int = 0,
        margin: np.ndarray | None = None,
        labels: np.ndarray | None = None,
    ) -> int:
        """Compute values of rows on the device in the order of a stream; results are given by address.

        ``gap``, ``margin`` and ``labels`` are on the host.

        Return -1 if all values of X are accepted. Otherwise, return row * n_features + feature of the first
        value that is rejected; the results are then void. NaN, and ``missing``, which means NaN, are rejected
        unless ``allow_nan`` is true. Magnitudes of ``limit`` or more are rejected unless ``limit`` is NaN.
        """

def devices() -> list[Device]:
    """Return the usable devices; raise a ``CudaError`` that says why there are none."""

def pack(sizes: list[int], packing: str) -> tuple[list[int], int]:
    """Return the bin of 32 lanes for each path, and the number of bins; ``sizes`` are the paths' lengths.

    ``packing`` is "none", "next_fit", "first_fit_decreasing" or "best_fit_decreasing".
    """

def path_summary(plan: Plan, packing: str) -> dict[str, Any]:
    """Return the ``lengths`` of paths, ``n_bins``, and ``utilisation`` (path elements divided by lanes)."""

def has_leaf_chunks(plan: Plan) -> bool:
    """Return whether a ``CudaPlan`` can explain a plan by "leaves".

    The plan must have SHAP or Banzhaf values, 16-bit codes and paths of at most 16 features. It must not have
    tables, vector leaves or players of several columns.
    """

def new_array(shape: Sequence[int], dtype: np.dtype) -> np.ndarray | None:
    """Return a new array in page-locked memory, where a GPU writes values without a further copy.

    Return None in three cases: for the first array of about this size, as locking pages takes longer than one
    call saves; if the array would exceed the limit; or if the system cannot lock so much memory. The memory
    of deleted arrays is kept for new ones. The elements may have any value.
    """

def limit_page_locked(most_bytes: int) -> None:
    """Set the limit on page-locked memory of arrays, in use and kept; at first, it is 0."""

def page_locked_bytes() -> int:
    """Return the bytes of page-locked memory of arrays, in use and kept."""

def check_calls_with(check: Callable[[], None]) -> None:
    """Set the function that calls ask periodically: they end with the exception that it raises."""

def allocated_bytes() -> int:
    """Return the bytes of device memory and page-locked memory that the module holds now."""

def driver_version() -> int:
    """Return the CUDA version that the driver supports, 13020 for 13.2; 0 without a driver."""

def runtime_version() -> int:
    """Return the CUDA version that the module was built with."""

def compute_capabilities() -> list[tuple[int, int]]:
    """Return the compute capabilities for which the kernels are compiled."""
