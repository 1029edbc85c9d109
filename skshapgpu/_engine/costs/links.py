"""Estimated times of values of a probability or a loss, by which ``device="auto"`` chooses."""

from __future__ import annotations

from .trees import BLOCK_ROWS

#: Seconds on one thread of a CPU with AVX-512: for each leaf and pair of a row and a background row, whose
#: number is rounded up to whole blocks; and for each leaf.
_CPU_PAIR, _CPU_LEAF = 1.1e-10, 4e-7

#: Seconds on a GPU for each call, for each row and leaf, and for each leaf whose tables are filled, measured
#: on an H200.
_GPU_CALL, _GPU_ROW, _GPU_LEAF = 5e-4, 1.5e-11, 4e-5

#: Seconds on a GPU at leaves without a table: for each row and pattern of background data, and for each
#: pattern whose weights are computed. Measured on an H100.
_GPU_PATTERN, _GPU_WEIGHTS = 3.8e-12, 1.1e-6

#: Seconds on one thread of a CPU with AVX-512 for a softmax: for each row; for each prediction, whose number
#: is rounded up to whole blocks; and for each tree and each leaf of a prediction.
_JOINT_ROW, _PREDICTION, _PREDICTION_TREE, _PREDICTION_LEAF = 2e-5, 2.5e-8, 2e-9, 8.3e-11


def cpu_seconds_of_link(n_leaves: int, n_background: int, n_rows: int, n_threads: int) -> float:
    """Return the seconds of a call on the CPU."""
    n_padded = -(-n_background // BLOCK_ROWS) * BLOCK_ROWS
    return (_CPU_PAIR * n_padded * n_rows / n_threads + _CPU_LEAF) * n_leaves


def build_seconds_of_link(n_leaves: int, n_patterns: int) -> float:
    """Return the seconds in which the tables of a GPU are filled."""
    return _GPU_LEAF * n_leaves + _GPU_WEIGHTS * n_patterns


def cuda_seconds_of_link(n_leaves: int, n_patterns: int, n_rows: int) -> float:
    """Return the seconds of a call on a GPU whose tables exist."""
    return _GPU_CALL + n_rows * (_GPU_ROW * n_leaves + _GPU_PATTERN * n_patterns)


def seconds_of_joint_link(
    n_predictions: int, n_trees: int, n_leaves: int, n_rows: int, n_threads: int
) -> float:
    """Return the seconds of a call for the probabilities of a softmax.

    ``n_predictions`` is the number of predictions for each explained row.
    """
    n_padded = -(-n_predictions // BLOCK_ROWS) * BLOCK_ROWS
    prediction = _PREDICTION + n_trees * _PREDICTION_TREE + n_leaves * _PREDICTION_LEAF
    return n_rows * (_JOINT_ROW + n_padded * prediction / max(1, min(n_threads, n_padded // BLOCK_ROWS)))
