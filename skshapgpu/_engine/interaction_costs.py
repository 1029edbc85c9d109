"""Estimated times of path-dependent interactions on a CPU, which ``TreeExplainer.plan`` reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from . import costs
from .algorithms import Kind
from .costs import TreeGroup

#: By order: work at each leaf and quadrature node, relative to values, of indices that need all nodes.
_WORK = {2: 4.5, 3: 7.0}

#: By order: the same for Banzhaf indices, in addition to the walk with a single node, for each node that
#: values would need: it stands for the number of features on the path.
_BANZHAF_WORK = {2: 1.5, 3: 4.0}

#: Seconds for each result that is written. All were measured on one core of a server with AVX-512.
_RESULT = 5e-9


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
    """Return the seconds of a call, without those in which rows are read.

    Parameters
    ----------
    kind : Kind
    groups, value_groups : sequence of TreeGroup
        Trees as they are explained for interactions of this kind, and for SHAP values.
    n_rows : int
    n_results : int
        Number of results of a row.
    n_threads : int
    output_work : float
        Work for all outputs of a leaf, relative to that for one.
    precision : {"single", "double"}
    """
    work = output_work * (_WORK[kind.order] if kind.adds_up else 1.0)
    seconds = costs.cpu_seconds(groups, n_rows, n_threads, work, precision)
    extra = n_rows * n_results * _RESULT
    if not kind.adds_up:
        walked = [replace(g, algorithm="quadrature", n_walked_leaves=g.n_leaves) for g in value_groups]
        work = output_work * _BANZHAF_WORK[kind.order]
        extra += costs.cpu_seconds(walked, n_rows, 1, work, precision)
        extra -= costs.cpu_seconds(walked, n_rows, 1, 0.0, precision)
    return seconds + extra / max(1, min(n_threads, -(-n_rows // costs.BLOCK_ROWS)))
