"""Estimated times of the algorithms for comparison, which ``TreeExplainer.plan`` reports."""

from __future__ import annotations

from collections.abc import Sequence

from . import trees as tree_costs
from .trees import TreeGroup

#: Seconds on one core of a server with AVX-512 for each row and leaf of trees that need n quadrature nodes,
#: that is, have paths of about 2 n features: the factor of n, and the factor of n squared. And seconds for
#: each call.
_CPU_LEAF = {"treeshap": (1.53e-8, 1.8e-9), "fast_v1": (1.35e-8, 5e-10)}
_CPU_CALL = 3.5e-5

#: Seconds on an H200 for each call; the factor of n for each row and leaf; and the fraction of it that each
#: further output takes. Only gputreeshap runs on a GPU.
_CUDA_CALL, _CUDA_LEAF, _CUDA_OUTPUT = 1.2e-3, 2e-11, 0.3


def comparison_seconds(algorithm: str, groups: Sequence[TreeGroup], n_rows: int, n_threads: int) -> float:
    """Return the seconds of a call on the CPU, without the time to read rows.

    ``groups`` has the number of quadrature nodes that the trees would need.
    """
    linear, square = _CPU_LEAF.get(algorithm, _CPU_LEAF["treeshap"])  # the slowest, if it was not measured
    row_seconds = sum(g.n_leaves * (linear * g.n_nodes + square * g.n_nodes**2) for g in groups)
    return _CPU_CALL + n_rows * row_seconds / max(1, min(n_threads, -(-n_rows // tree_costs.BLOCK_ROWS)))


def cuda_comparison_seconds(groups: Sequence[TreeGroup], n_rows: int, n_outputs: int) -> float:
    """Return the seconds of a call on a GPU, without the time to transfer rows and values."""
    row_seconds = (
        sum(g.n_leaves * g.n_nodes for g in groups) * _CUDA_LEAF * (1 + _CUDA_OUTPUT * (n_outputs - 1))
    )
    return _CUDA_CALL + n_rows * row_seconds
