"""Estimated times of values of a probability or a loss, by which ``device="auto"`` chooses."""

from __future__ import annotations

#: Seconds on a CPU for each row, background row and leaf, on one thread; on a GPU for each row and leaf, and
#: for each leaf whose tables are filled. Measured on an H200 and a Xeon with AVX-512.
_CPU_PAIR, _GPU_ROW, _GPU_LEAF = 1.3e-10, 1.5e-11, 4e-5

#: Seconds on a GPU at leaves without a table: for each row and pattern of background data, and for each
#: pattern whose weights are found. Measured on an H100.
_GPU_PATTERN, _GPU_WEIGHTS = 3.8e-12, 1.1e-6


def costs_of_link(
    n_leaves: int, n_background: int, n_patterns: int, n_rows: int, n_threads: int
) -> tuple[float, float]:
    """Return the seconds of a call on the CPU, and on a GPU if its tables do not exist yet."""
    cpu = _CPU_PAIR * n_leaves * n_background * n_rows / n_threads
    cuda = (_GPU_ROW * n_rows + _GPU_LEAF) * n_leaves
    cuda += (_GPU_PATTERN * n_rows + _GPU_WEIGHTS) * n_patterns
    return cpu, cuda
