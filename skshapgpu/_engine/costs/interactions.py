"""Estimated times of interactions, which ``TreeExplainer.plan`` reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..._common.algorithms import Kind
from . import trees as tree_costs
from .trees import TreeGroup

#: By order: work at each leaf and quadrature node, relative to values, of indices that need all nodes.
_WORK = {2: 4.5, 3: 7.0}

#: By order: work at each leaf for Banzhaf indices, relative to values, in addition to the walk with a single
#: node. It is multiplied by the number of nodes that values would need, which grows with the features on the
#: path.
_BANZHAF_WORK = {2: 1.5, 3: 4.0}

#: Seconds for each result that is written. This number and those above were measured on one core of a server
#: with AVX-512.
_RESULT = 5e-9

#: Seconds on a GPU, in addition to the work of trees or tables, for each call and for each result that is
#: transferred. Measured on an H100.
_CUDA_CALL, _CUDA_RESULT = 5.5e-4, 6e-10


def interaction_seconds(
    kind: Kind,
    groups: Sequence[TreeGroup],
    value_groups: Sequence[TreeGroup],
    n_rows: int,
    n_results: int,
    n_threads: int,
    output_work: float,
    precision: str,
) -> float:
    """Return the seconds of a call for path-dependent interactions on a CPU, without the time to read rows.

    ``groups`` and ``value_groups`` are the trees as they are explained for interactions of this kind, and for
    SHAP values. ``n_results`` is the number of results of a row; ``output_work`` is the work for all outputs
    of a leaf, relative to the work for one output.
    """
    work = output_work * (_WORK[kind.order] if kind.adds_up else 1.0)
    seconds = tree_costs.cpu_seconds(groups, n_rows, n_threads, work, precision)
    extra = n_rows * n_results * _RESULT
    if not kind.adds_up:
        walked = [replace(g, algorithm="quadrature", n_walked_leaves=g.n_leaves) for g in value_groups]
        work = output_work * _BANZHAF_WORK[kind.order]
        extra += tree_costs.cpu_seconds(walked, n_rows, 1, work, precision)
        extra -= tree_costs.cpu_seconds(walked, n_rows, 1, 0.0, precision)
    return seconds + extra / max(1, min(n_threads, -(-n_rows // tree_costs.BLOCK_ROWS)))


def cuda_interaction_seconds(n_results: int) -> float:
    """Return the seconds of a call on a GPU besides its work for trees or tables.

    ``n_results`` is the number of results that are transferred, unless their time is counted already.
    """
    return _CUDA_CALL + n_results * _CUDA_RESULT
