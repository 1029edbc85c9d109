"""Estimated times of values of a probability or a loss, by which ``device="auto"`` chooses."""

from __future__ import annotations

#: Seconds on a CPU for each row, background row and leaf, on one thread; on a GPU for each row and leaf, and
#: for each leaf whose tables are filled. Measured on an H200 and a Xeon with AVX-512.
_CPU_PAIR, _GPU_ROW, _GPU_LEAF = 1.3e-10, 1.5e-11, 4e-5

#: Seconds on a GPU for each row and pattern of background data at leaves without a table: an estimate.
_GPU_PATTERN = 1e-12


def costs_of_link(
    n_leaves: int, n_background: int, n_patterns: int, n_rows: int, n_threads: int
) -> tuple[float, float]:
    """Return the seconds of a call on the CPU, and on a GPU if its tables do not exist yet."""
    cpu = _CPU_PAIR * n_leaves * n_background * n_rows / n_threads
    cuda = (_GPU_ROW * n_rows + _GPU_LEAF) * n_leaves + _GPU_PATTERN * n_patterns * n_rows
    return cpu, cuda
