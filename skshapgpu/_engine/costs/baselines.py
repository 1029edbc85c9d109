"""Estimated times of the algorithms for comparison, which ``TreeExplainer.plan`` reports."""

from __future__ import annotations

from collections.abc import Sequence

from . import trees as tree_costs
from .trees import TreeGroup

#: Seconds on one core of a server with AVX-512 for each row and leaf of trees that need n quadrature nodes,
#: paths of about 2 n features: times n, and times n squared. And for each call.
_CPU_LEAF = {"treeshap": (1.53e-8, 1.8e-9), "fast_v1": (1.35e-8, 5e-10)}
_CPU_CALL = 3.5e-5

#: Seconds on an H200 for each call and, times n, for each row and leaf; each further output takes a part of
#: the latter. One of the algorithms runs there.
_CUDA_CALL, _CUDA_LEAF, _CUDA_OUTPUT = 1.2e-3, 2e-11, 0.3


def comparison_seconds(algorithm: str, groups: Sequence[TreeGroup], n_rows: int, n_threads: int) -> float:
    """Return the seconds of a call on the CPU, without those of reading rows.

    ``groups`` has the quadrature nodes that trees would need.
    """
    linear, square = _CPU_LEAF[algorithm]
    of_row = sum(g.n_leaves * (linear * g.n_nodes + square * g.n_nodes**2) for g in groups)
    return _CPU_CALL + n_rows * of_row / max(1, min(n_threads, -(-n_rows // tree_costs.BLOCK_ROWS)))


def cuda_comparison_seconds(groups: Sequence[TreeGroup], n_rows: int, n_outputs: int) -> float:
    """Return the seconds of a call on a GPU, without those of transferring rows and values."""
    of_row = sum(g.n_leaves * g.n_nodes for g in groups) * _CUDA_LEAF * (1 + _CUDA_OUTPUT * (n_outputs - 1))
    return _CUDA_CALL + n_rows * of_row
