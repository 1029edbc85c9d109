"""Calls: rows processed in batches on the CPU or on GPUs, and checked for additivity.

A function of a :class:`Run`, such as :func:`shap_values` and the functions of ``interactions.py``, decides on
the layout and the lifetime of results. A run has the same interface for rows from the host and for rows on a
GPU. Arrays have the layout of the core, [row][output]..., until ``calls.py`` returns them to the user.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from functools import lru_cache
from threading import Event
from typing import Any, NamedTuple, TypeVar

import numpy as np

from .. import _core
from .._common import devices, memory
from .._common.algorithms import Kind
from .._common.digits import counted
from .._common.interrupts import check, stoppable
from .._common.progress import ProgressTracker, watched
from .._rows import gpu_arrays
from .._rows.gpu_arrays import GpuArray
from .._rows.inputs import HostRows
from .._rows.rows import Rows
from . import additivity
from .compiled_model import CompiledModel
from .costs.trees import BLOCK_ROWS, cell_build_bytes, cell_scratch_bytes
from .execution import ExecutionPlan, intervals_on_gpu, plan_execution, plan_on_cpu
from .kind_plans import CELLS, Intervals

T = TypeVar("T")

# The core ends calls of threads whose results are no longer wanted.
_core.check_calls_with(check)

#: Bytes of rows and results up to which a call without a memory limit needs no account of its memory.
_SMALL_BYTES = 2**14

#: Bytes per row and output of the margin, sum, gap and temporary arrays that the additivity check needs for
#: functions of the margin and for models with linear leaves. For all other values, the core and GPUs return
#: only the gaps.
_CHECK_BYTES = 40


def execute(
    compiled: CompiledModel,
    rows: Rows,
    kind: Kind,
    work: Callable[[Run], T],
    labels: np.ndarray | None = None,
    progress: Any = False,
) -> tuple[T, Run]:
    """Return the result of ``work`` and the run that it received.

    Rows on a GPU are explained on this GPU. If ``device="auto"`` sends rows from the host to a GPU, and the
    run fails on the GPU, it is repeated on the CPU. ``labels`` are the labels that the link needs, and
    ``progress`` is the user's option.
    """
    if not progress:  # small calls do without the generator that draws the progress
        return _execute(compiled, rows, kind, work, labels, None)
    with watched(progress, rows.n_rows) as tracker:
        return _execute(compiled, rows, kind, work, labels, tracker)


def _execute(
    compiled: CompiledModel,
    rows: Rows,
    kind: Kind,
    work: Callable[[Run], T],
    labels: np.ndarray | None,
    tracker: ProgressTracker | None,
) -> tuple[T, Run]:
    """Do the work of :func:`execute`, and report to ``tracker``."""
    run: Run
    if isinstance(rows, GpuArray):
        run = DeviceRun(compiled, kind, rows, labels)
    else:
        assert isinstance(rows, HostRows)
        run = HostRun(compiled, kind, rows, plan_execution(compiled, kind, rows.n_rows), labels)
    try:
        run.compile(tracker)
        return work(run), run
    except (MemoryError, RuntimeError) as error:
        is_chosen = compiled.options.devices.auto and isinstance(rows, HostRows)
        if not (is_chosen and devices.is_cuda_error(error)):
            raise
    assert isinstance(rows, HostRows)
    run = HostRun(compiled, kind, rows, plan_on_cpu(compiled.of(kind), rows.n_rows), labels)
    run.compile(tracker)
    return work(run), run


class RowBytes(NamedTuple):
    """Memory of each row, and the strings for :class:`memory.Need`."""

    result: int  # bytes of a row of the result
    work: int  # bytes of a row of the buffers
    what: str  # name of the result
    advice: str  # what the user can do if memory does not suffice


class Run(ABC):
    """A call: its rows, its device, and its plan, which :meth:`compile` sets.

    Attributes
    ----------
    n_rows, n_features, n_outputs : int
        ``n_outputs`` includes the output that ``widen`` adds.
    n_computed_outputs : int
        Number of outputs that the core computes, without the output that ``widen`` adds.
    dtype : numpy dtype
        Type of the results.
    plans : KindPlan
    gap : float or None
        Largest additivity gap so far; None if additivity is not checked.
    """

    device: str  # name of the device, as users write it
    plan: Any
    progress: ProgressTracker | None = None  # object that is told the number of computed rows
    passes = 1  # how often each row is computed
    #: Number of threads that read rows and write results; 0: as many as are useful, as for copies to a GPU.
    memory_threads = 0
    #: Whether the caller passed the memory of the result, which then does not count towards a memory limit.
    is_given = False
    _n_computed = 0

    def __init__(self, compiled: CompiledModel, kind: Kind, rows: Rows, intervals: Intervals) -> None:
        compiled.require_range_of(rows.dtype, "give X in float64")
        self._rows, self.n_rows, self.dtype = rows, rows.n_rows, rows.dtype
        self._compiled, self.plans, self._intervals = compiled, compiled.of(kind), intervals
        self.n_features, self.n_outputs = self.plans.n_features, compiled.n_outputs
        self.n_computed_outputs = compiled.n_computed_outputs
        self._checked = kind in compiled.checked_kinds
        self.gap: float | None = 0.0 if self._checked else None

    def compile(self, progress: ProgressTracker | None = None) -> None:
        """Compile the plan and its tables, unless an earlier run did; calls then report to ``progress``."""
        self.progress = progress
        self.plan = self.plans.plan(self._intervals)

    @abstractmethod
    def new(self, *shape: int) -> tuple[Any, bool]:
        """Return a new array of the library and dtype of the results, and whether all elements are 0."""

    def empty(self, *shape: int) -> Any:
        """Return a new array, as :meth:`new` does; its elements are undefined."""
        return self.new(*shape)[0]

    @property
    def skips_unused(self) -> bool:
        """Whether the core leaves out the values of features that no tree uses if an array has only zeros."""
        return False

    @abstractmethod
    def to_native(self, values: Any) -> Any:
        """Convert an array made by :meth:`empty` to an array of the library that the user receives."""

    @abstractmethod
    def chunk_rows(self, row: RowBytes) -> int:
        """Return the number of rows to process at once; errors are those of ``Need.rows_at_once``."""

    @property
    def compute(self) -> Callable[..., None]:
        """Function that fills C-contiguous arrays with the results of rows, as :meth:`_compute` does."""
        return self._compute if self.progress is None else self._compute_in_steps

    @property
    def fill(self) -> Callable[..., None]:
        """Function that fills arrays as :attr:`compute` does, but with the results of all outputs."""
        return self._fill_widened if self._compiled.widen else self.compute

    @abstractmethod
    def _compute(self, start: int, values: Any, *, zeroed: bool = False, **parts: Any) -> None:
        """Fill C-contiguous arrays with the results of rows from ``start`` on, as many as the arrays have.

        The arrays have the outputs that the core computes. ``parts`` are further arrays for ``Plan.explain``;
        ``zeroed`` says that ``values`` is full of zeros.
        """

    def _compute_in_steps(self, start: int, values: Any, *, zeroed: bool = False, **parts: Any) -> None:
        """Do the work of :meth:`_compute` in steps, and report each to ``progress``."""
        assert self.progress is not None
        first = 0
        while first < len(values):
            rows = slice(first, min(first + self.progress.step, len(values)))
            chunk_parts = {name: out[rows] for name, out in parts.items()}
            self._compute(start + first, values[rows], zeroed=zeroed, **chunk_parts)
            self._n_computed += rows.stop - first
            self.progress.done(self._n_computed // self.passes)
            first = rows.stop

    def _fill_widened(self, start: int, values: Any, *, zeroed: bool = False, **parts: Any) -> None:
        """Compute the results of the core's output, and those of the output that ``widen`` adds."""
        results = {"values": values, **parts}
        computed = {name: self.empty(len(out), 1, *out.shape[2:]) for name, out in results.items()}
        self.compute(start, **computed)
        for name, out in results.items():
            self.spread(computed[name], out)

    def _accept(
        self,
        gaps: np.ndarray,
        dtype: Any,
        start: int,
        margins: Callable[[], tuple[np.ndarray, np.ndarray]],
    ) -> None:
        """Record the largest additivity gap of rows from ``start`` on, whose values have this dtype.

        ``gaps`` has the largest gap of each output. If a gap is larger than rounding can explain, ``margins``
        returns the values on the host and the margins of the rows, and a ``RuntimeError`` names the row.
        """
        largest = gaps.item() if gaps.size == 1 else float(np.maximum.reduce(gaps, axis=None))
        allowed, least = self._compiled.allowed_gaps(dtype)
        if not largest <= least and not (gaps <= allowed).all():
            additivity.check(self._compiled, *margins(), self._rows.row_labels, start)
        self.gap = max(self.gap or 0.0, largest)

    def spread(self, computed: Any, out: Any) -> None:
        """Expand results for the core's outputs to all outputs; ``computed`` is overwritten."""
        if not self._compiled.widen:
            out[...] = computed
            return
        out[:, 1] = computed[:, 0]
        computed *= -1
        out[:, 0] = computed[:, 0]


class HostRun(Run):
    """Run for rows from the host, on the CPU, or on one or more GPUs, which divide the rows."""

    _rows: HostRows

    def __init__(
        self,
        compiled: CompiledModel,
        kind: Kind,
        rows: HostRows,
        execution: ExecutionPlan,
        labels: np.ndarray | None,
    ) -> None:
        super().__init__(compiled, kind, rows, execution.intervals)
        self.device = devices.label(execution.indices)
        self._labels, self._execution = labels, execution
        self.memory_threads = 0 if execution.indices else execution.n_threads

    def compile(self, progress: ProgressTracker | None = None) -> None:
        super().compile(progress)
        self._gpus = [
            self.plans.cuda_plan(index, self.n_rows, self._intervals) for index in self._execution.indices
        ]

    def new(self, *shape: int) -> tuple[np.ndarray, bool]:
        limited = self._compiled.options.memory_limit is not None  # memory that is kept would count
        if limited or math.prod(shape) * self.dtype.itemsize < memory.LARGE_BYTES:
            return np.empty(shape, self.dtype), False
        if self._execution.indices:
            page_locked = devices.new_array(shape, self.dtype)
            if page_locked is not None:
                return page_locked, False
        return _core.new_array(shape, self.dtype)

    @property
    def skips_unused(self) -> bool:
        is_direct = not (self._execution.indices or self._compiled.widen or self.plans.sharing)
        return is_direct and self._compiled.info["n_features_used"] < self.n_features

    def to_native(self, values: np.ndarray) -> np.ndarray:
        return values

    def chunk_rows(self, row: RowBytes) -> int:
        limit = self._compiled.options.memory_limit
        if limit is None and self.n_rows * (row.result + row.work + self._rows.row_bytes) < _SMALL_BYTES:
            return max(1, self.n_rows)  # no further part of the account is larger for so few numbers
        # Scratch memory, which is counted anew in each call, matters only if there is a limit.
        need = self.need(row, scratch=limit is not None)
        return need.rows_at_once(limit, memory.machine_bytes())

    def need(self, row: RowBytes, *, scratch: bool = True) -> memory.Need:
        """Return the memory that the run takes; ``scratch`` includes the scratch memory of its threads."""
        execution, plans, rows = self._execution, self.plans, self._rows
        # Threads need scratch memory only on the CPU.
        n_threads = 0 if execution.indices else execution.n_threads
        work_row = row.work + (rows.row_bytes if execution.indices else rows.packed_row_bytes)
        if self._checked and self._compiled.checks_rows:
            work_row += _CHECK_BYTES * max(self.n_outputs, self._compiled.ensemble.n_outputs)
        sharing = plans.sharing
        if sharing is not None:
            n_shared = sharing.n_players
            if plans.kind.order > 1:
                pairs = plans.pair_sharing
                n_shared += pairs.n_pairs + len(pairs.sets)
            work_row += self.n_computed_outputs * n_shared * self.dtype.itemsize
        fixed = 0
        if scratch and n_threads:
            info = plans.plan().info()
            shared = info["shared_bytes_per_thread"] if n_threads > 1 else 0
            if not shared:  # a thread takes entire blocks of rows
                n_threads = min(n_threads, -(-self.n_rows // BLOCK_ROWS))
            fixed = n_threads * (info["scratch_bytes_per_thread"] + shared)
            if execution.intervals == CELLS:
                n_outputs, precision = self.n_computed_outputs, self._compiled.options.precision
                fixed = n_threads * cell_scratch_bytes(plans.n_features, n_outputs, precision)
                if (plans.kind, CELLS) not in self._compiled.table_sizes:
                    fixed = max(fixed, cell_build_bytes(plans.groups, plans.leaf_width))
        result_row, table_bytes = 0 if self.is_given else row.result, execution.table_bytes
        return memory.Need(self.n_rows, result_row, work_row, table_bytes, fixed, row.what, row.advice)

    def _compute(self, start: int, values: Any, *, zeroed: bool = False, **parts: Any) -> None:
        stop, packed = start + len(values), not self._gpus
        block = self._rows.chunk(start, stop, packed=packed, n_threads=self.memory_threads)
        sharing = self.plans.sharing
        if sharing is None:
            self._explain(block, start, values, parts, zeroed)
            return
        player_values = np.empty((*values.shape[:2], sharing.n_players), values.dtype)
        if not parts:
            self._explain(block, start, player_values, {})
            sharing.share(player_values, values)
            return
        pairs = self.plans.pair_sharing
        pair_values = np.empty((*values.shape[:2], pairs.n_pairs), values.dtype)
        self._explain(block, start, player_values, {"pairs": pair_values})
        sharing.share(player_values, values)
        pairs.share(player_values, pair_values, values, **parts)

    def _explain(
        self,
        block: np.ndarray,
        start: int,
        values: np.ndarray,
        parts: dict[str, np.ndarray],
        zeroed: bool = False,
    ) -> None:
        """Compute the results of the players for a batch of rows."""
        compiled, n_threads = self._compiled, self._execution.n_threads
        if self._gpus and compiled.link is None:
            self._compute_on_gpus(block, start, values, parts)
            return
        if self._checked and not compiled.checks_rows:
            gaps = self.plan.explain(
                block, values, None, n_threads, base_value=compiled.base_value(None), zeroed=zeroed, **parts
            )

            def margins() -> tuple[np.ndarray, np.ndarray]:
                margin = np.empty(values.shape[:2])
                self.plan.explain(block, np.empty_like(values), margin, n_threads)
                return values, margin

            self._accept(gaps, values.dtype, start, margins)
            return
        margin = np.empty((len(values), compiled.ensemble.n_outputs)) if self._checked else None
        labels = reach = None
        if self._labels is not None:
            labels = parts["labels"] = self._labels[start : start + len(values)]
        if self._checked and compiled.has_linear_leaves:
            reach = parts["reach"] = np.empty(values.shape[:2])
        if self._gpus:
            self._rescale_on_gpus(block, values, margin, labels)
        else:
            self.plan.explain(block, values, margin, n_threads, zeroed=zeroed, **parts)
        if margin is not None:
            gap = additivity.check(compiled, values, margin, self._rows.row_labels, start, labels, reach)
            self.gap = max(self.gap or 0.0, gap)

    def _rescale_on_gpus(
        self,
        block: np.ndarray,
        values: np.ndarray,
        margin: np.ndarray | None,
        labels: np.ndarray | None,
    ) -> None:
        """Compute values of the link for a batch of rows, which the GPUs divide."""
        limit = self._call_limit(values.nbytes)

        def run(i: int, rows: slice) -> None:
            margin_part, labels_part = (None if a is None else a[rows] for a in (margin, labels))
            self._gpus[i].explain(block[rows], values[rows], margin_part, None, limit, labels=labels_part)

        self._on_each_gpu(len(block), run)

    def _call_limit(self, allocated: int) -> int:
        """Return the bytes that a call on a GPU may take besides its results, or 0 to let the core decide."""
        limit = self._compiled.call_limit
        return 0 if limit is None else max(1, (limit - (0 if self.is_given else allocated)) // 2)

    def _on_each_gpu(self, n_rows: int, run: Callable[[int, slice], None]) -> None:
        """Divide the rows among the GPUs, and call ``run`` with the number and the rows of each GPU."""
        n_gpus = len(self._gpus)
        slices = [slice(n_rows * i // n_gpus, n_rows * (i + 1) // n_gpus) for i in range(n_gpus)]
        if len(slices) == 1:
            run(0, slices[0])
            return
        stop = Event()
        with ThreadPoolExecutor(len(slices)) as pool:
            futures = [pool.submit(stoppable(stop, run), i, rows) for i, rows in enumerate(slices)]
            try:
                done = wait(futures, return_when=FIRST_EXCEPTION).done
            finally:
                stop.set()  # neither an interrupt nor an error waits for the other GPUs
            for future in futures:
                if future in done:
                    future.result()

    def _compute_on_gpus(
        self, block: np.ndarray, start: int, values: np.ndarray, parts: dict[str, np.ndarray]
    ) -> None:
        """Compute results for a batch of rows, which the GPUs divide; they also compute additivity gaps."""
        limit = self._call_limit(values.nbytes + sum(part.nbytes for part in parts.values()))
        gaps = np.zeros((len(self._gpus), values.shape[1]))

        def run(i: int, rows: slice) -> None:
            gap = gaps[i] if self._checked else None
            out = {name: part[rows] for name, part in parts.items()}
            self._gpus[i].explain(block[rows], values[rows], None, gap, limit, **out)

        self._on_each_gpu(len(block), run)
        if not self._checked:
            return

        def margins() -> tuple[np.ndarray, np.ndarray]:
            margin = np.empty(values.shape[:2])
            self._gpus[0].explain(block, np.empty_like(values), margin, None, limit)
            return values, margin

        self._accept(gaps, values.dtype, start, margins)


class DeviceRun(Run):
    """Run for rows on a GPU, whose results stay on this GPU."""

    _rows: GpuArray

    def __init__(
        self, compiled: CompiledModel, kind: Kind, array: GpuArray, labels: np.ndarray | None
    ) -> None:
        super().__init__(compiled, kind, array, intervals_on_gpu(compiled.of(kind), array.n_rows))
        self.device = devices.label((array.gpu,))
        self._labels = labels

    def compile(self, progress: ProgressTracker | None = None) -> None:
        super().compile(progress)
        self._gpu = self.plans.cuda_plan(self._rows.gpu, self.n_rows, self._intervals)

    def new(self, *shape: int) -> tuple[Any, bool]:
        return self._rows.empty(shape), False

    def to_native(self, values: Any) -> Any:
        return self._rows.to_native(values)

    def chunk_rows(self, row: RowBytes) -> int:
        if not row.work:  # the plan itself divides the rows into batches
            return max(1, self.n_rows)
        result_row, table_bytes = 0 if self.is_given else row.result, self._compiled.table_bytes
        need = memory.Need(self.n_rows, result_row, row.work, table_bytes, 0, row.what, row.advice)
        return need.rows_at_once(self._compiled.options.memory_limit)

    def _compute(self, start: int, values: Any, *, zeroed: bool = False, **parts: Any) -> None:
        array, compiled = self._rows.rows(start, start + len(values)), self._compiled
        numbers, limit = array.numbers, compiled.call_limit or 0
        arguments = (
            array.view,
            numbers.missing,
            numbers.allow_nan,
            numbers.limit,
            gpu_arrays.address(values),
            array.dtype == np.float32,
        )
        if compiled.link is not None:
            labels = None if self._labels is None else self._labels[start : start + len(values)]
            margin = np.empty(values.shape[:2]) if self._checked else None
            refused = self._gpu.explain_device(
                *arguments, None, limit, array.stream, margin=margin, labels=labels
            )
            self._refuse(refused, array, start)
            if margin is not None:
                link_gap = additivity.check(compiled, gpu_arrays.to_host(values), margin, None, start, labels)
                self.gap = max(self.gap or 0.0, link_gap)
            return
        gap = np.zeros(values.shape[1]) if self._checked else None
        out = {name: gpu_arrays.address(part) for name, part in parts.items()}
        refused = self._gpu.explain_device(*arguments, gap, limit, array.stream, **out)
        self._refuse(refused, array, start)
        if gap is None:
            return

        def margins() -> tuple[np.ndarray, np.ndarray]:
            margin = np.empty(values.shape[:2])
            on_host = np.ascontiguousarray(gpu_arrays.to_host(array.array))
            on_host = np.where(on_host == numbers.missing, np.nan, on_host)
            self._gpu.explain(on_host, np.empty(values.shape, array.dtype), margin, None, limit)
            return gpu_arrays.to_host(values), margin

        self._accept(gap, array.dtype, start, margins)

    def _refuse(self, refused: int, array: GpuArray, start: int) -> None:
        """Raise an error for the number at this position in rows from ``start`` on; -1: there is none."""
        if refused >= 0:
            row, feature = divmod(refused, array.shape[1])
            raise ValueError(
                f"Input X contains NaN, infinity or a value too large for {array.numbers.x_dtype}, "
                f"which the model does not accept: row {start + row}, column {array.names[feature]}"
            )


def shap_values(run: Run, out: Any = None) -> Any:
    """Return the SHAP values, Banzhaf values or Owen values of all rows, [row][output][feature].

    The result is ``out``, if ``out`` is not None.
    """
    run.is_given = out is not None
    size = run.chunk_rows(value_row_bytes(run))
    values, is_zero = (out, False) if run.is_given else run.new(run.n_rows, run.n_outputs, run.n_features)
    zeroed = is_zero and run.skips_unused
    for start in range(0, run.n_rows, size):
        run.fill(start, chunk_of(values, start, size), zeroed=zeroed)
    return values if run.is_given else run.to_native(values)


def value_row_bytes(run: Run) -> RowBytes:
    """Return the memory of a row of values."""
    is_widened = run.n_outputs > run.n_computed_outputs
    return _value_row_bytes(run.n_features, run.n_outputs, is_widened, run.dtype.itemsize)


@lru_cache(64)
def _value_row_bytes(n_features: int, n_outputs: int, is_widened: bool, itemsize: int) -> RowBytes:
    row = n_features * itemsize
    what = f"SHAP values ({counted(n_features, 'feature')}, {counted(n_outputs, 'output')})"
    return RowBytes(n_outputs * row, row if is_widened else 0, what, "or explain fewer rows")


def chunk_of(array: Any, start: int, size: int) -> Any:
    """Return ``size`` elements from ``start`` on, or the array itself if it has no more."""
    return array if size >= len(array) else array[start : start + size]
