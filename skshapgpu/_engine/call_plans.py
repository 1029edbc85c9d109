"""Plans of calls, which ``TreeExplainer.plan`` returns: what a call would do, and what it would take."""

from __future__ import annotations

import sys

from .._common import memory
from .._explanations.interactions import INDEX_NAMES
from .._rows.inputs import HostRows
from . import costs
from .algorithms import SHAP_VALUES, VALUE_NAMES, Kind
from .calls import HostRun, value_row_bytes
from .comparison_costs import comparison_seconds, cuda_comparison_seconds
from .costs import CallPlan
from .execution import ExecutionPlan, cpu_reason, cpu_seconds_of_link, plan_execution
from .interaction_costs import cuda_interaction_seconds, interaction_seconds
from .interactions import Request, row_bytes
from .linear_costs import linear_seconds
from .link_costs import seconds_of_joint_link
from .plans import CompiledModel


def call_plan(compiled: CompiledModel, X: HostRows, kind: Kind, request: Request | None) -> CallPlan:
    """Plan a call for values, or for the requested interactions; only the number of rows of X is used."""
    execution, options = plan_execution(compiled, kind, X.n_rows), compiled.options
    run, n_sets = HostRun(compiled, kind, X, execution, None), 0
    if request is None:
        name = VALUE_NAMES[kind]
        need = run.need(*value_row_bytes(run))
    else:
        name, n_sets = INDEX_NAMES[kind.index], len(compiled.sets(kind, request.result))
        n_kept = {"strongest": min(request.count, n_sets), "listed": len(request.listed)}
        need = run.need(*row_bytes(run, request, n_sets, n_kept.get(request.form, n_sets)))
    refusal = None
    try:
        size = need.rows_at_once(options.memory_limit, memory.machine_bytes())
    except MemoryError as error:
        size, refusal = 1, str(error)
    seconds, reason = estimate(compiled, kind, X.n_rows, execution)
    if seconds is not None and request is not None and request.form == "strongest" and size < X.n_rows:
        seconds *= 2  # the first pass finds the strongest
    alike = options.algorithm.is_for_comparison or compiled.link is not None or compiled.is_tiled(kind)
    return CallPlan(
        n_rows=X.n_rows,
        device=run.device,
        tree_groups=() if alike else execution.tree_groups,
        table_bytes=sum(group.table_bytes for group in execution.tree_groups),
        result_bytes=need.result,
        peak_bytes=need.peak(size),
        cpu_reason=None if execution.indices else cpu_reason(compiled, kind),
        refusal=refusal,
        build_seconds=execution.building,
        seconds=seconds,
        result=name,
        no_seconds_reason=reason,
    )


def estimate(
    compiled: CompiledModel, kind: Kind, n_rows: int, execution: ExecutionPlan
) -> tuple[float | None, str | None]:
    """Return the estimated seconds of a call; or None, and the reason why there is no estimate."""
    options, info, n_outputs = compiled.options, compiled.info, compiled.n_outputs
    n_threads, precision = execution.n_threads, options.precision
    reading = costs.cpu_row_seconds(n_rows, compiled.n_features, n_outputs, n_threads)
    if options.algorithm.is_for_comparison:
        groups = compiled.tree_groups_of(kind)
        if execution.indices:
            transfer = costs.cuda_row_seconds(n_rows, compiled.n_features, n_outputs)
            of_trees = cuda_comparison_seconds(groups, -(-n_rows // len(execution.indices)), n_outputs)
            return of_trees + transfer, None
        return reading + comparison_seconds(options.algorithm.name, groups, n_rows, n_threads), None
    if compiled.link is not None and compiled.link.is_joint:
        counts = info["n_predictions"], info["n_trees"], info["n_leaves"]
        return reading + seconds_of_joint_link(*counts, n_rows, n_threads), None
    if compiled.link is not None:
        on_cpu = reading + cpu_seconds_of_link(compiled, n_rows, n_threads)
        return execution.seconds if execution.indices else on_cpu, None
    if compiled.has_linear_leaves:
        assert compiled.background is not None
        counts = info["n_leaves"], info["n_patterns"], len(compiled.background.weights)
        return reading + linear_seconds(*counts, n_rows, n_threads), None
    if kind.order == 1 and not compiled.is_tiled(kind):
        return execution.seconds, None
    n_results = compiled.n_results(kind)
    if execution.indices:
        counted = 0 if compiled.is_tiled(kind) else n_rows * n_results  # else they are in the seconds
        return execution.seconds + cuda_interaction_seconds(counted), None
    if compiled.is_tiled(kind):
        tables = compiled.pair_tables(kind) or compiled.pair_tables_within(sys.maxsize, kind)
        if tables is None:
            return None, "the background data have too many patterns"
        element = 4 if precision == "single" else 8
        return reading + tables.cpu_seconds(n_rows, n_results, n_threads, element, kind.order), None
    groups, of_values = compiled.tree_groups_of(kind), compiled.tree_groups_of(SHAP_VALUES)
    output_work = compiled.work(SHAP_VALUES)
    return reading + interaction_seconds(
        kind, groups, of_values, n_rows, n_results, n_threads, output_work, precision
    ), None
