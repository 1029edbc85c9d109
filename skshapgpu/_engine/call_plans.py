"""Plans of calls, which ``TreeExplainer.plan`` returns: what a call would do, and its memory and time."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from .._common import memory
from .._common.algorithms import SHAP_VALUES, Kind
from .._common.digits import counted, number
from .._common.memory import shown
from .._rows.inputs import HostRows
from .background_plans import TiledPlan
from .compiled_model import CompiledModel
from .costs import trees as tree_costs
from .costs.baselines import comparison_seconds, cuda_comparison_seconds
from .costs.interactions import cuda_interaction_seconds, interaction_seconds
from .costs.linear_leaves import linear_seconds
from .costs.links import seconds_of_joint_link
from .costs.trees import TreeGroup
from .execution import ExecutionPlan, cpu_reason, cpu_seconds_of_link, plan_execution
from .interactions import Request, row_bytes
from .runs import HostRun, value_row_bytes


@dataclass(frozen=True)
class CallPlan:
    """The plan of a call with a given number of rows: device, algorithms, memory and time.

    Its attributes are public; its constructor is private.

    Attributes
    ----------
    n_rows : int
    device : str
        "cpu", a GPU such as "cuda:0", or several GPUs.
    tree_groups : tuple of TreeGroup
        How the trees are explained. Empty for algorithms that treat all trees alike, without tables.
    table_bytes : int
        Size of all tables.
    result_bytes : int
        Size of the values or interactions.
    peak_bytes : int
        Peak memory of the call on the host: values, tables, scratch memory of the threads and buffers. X and
        the compiled model, which exist before the call, do not count. If X is not an array of float32 or
        float64, it is converted in batches, which take up to 256 MiB more.
    cpu_reason : str or None
        Why the call does not run on a GPU; None if it does.
    refusal : str or None
        Message of the ``MemoryError`` that the call raises before any work; None if it raises none.
    build_seconds : float
        Seconds that the first call of this size takes to build tables, to merge trees, to put leaves into
        lanes for few rows, or to cut deep trees into units for many rows. They are included in ``seconds``.
        The number is 0 with a memory limit, because then trees are walked, without tables that are built for
        a size of calls.
    seconds : float or None
        Duration of the call, without the leading steps of a pipeline, estimated by the cost model of
        ``algorithm="auto"`` and ``device="auto"``. For many rows, the estimate is right within a factor of 2
        on the machines where costs were measured, and within a factor of 3 or 4 for Owen values and with
        background data. On other machines, it may be off by another factor of 2 or 3. None if the time cannot
        be estimated; then ``no_seconds_reason`` says why.
    result : str
        What the call computes, such as "SHAP values".
    no_seconds_reason : str or None
        Why ``seconds`` is None.
    """

    n_rows: int
    device: str
    tree_groups: tuple[TreeGroup, ...]
    table_bytes: int
    result_bytes: int
    peak_bytes: int
    cpu_reason: str | None
    refusal: str | None
    build_seconds: float
    seconds: float | None
    result: str = "SHAP values"
    no_seconds_reason: str | None = None

    def __str__(self) -> str:
        seconds = "" if self.seconds is None else f", about {number(self.seconds, 2)} s"
        lines = [
            f"{counted(self.n_rows, 'row')} on {self.device}{seconds}; {shown(self.result_bytes)} of "
            f"{self.result}, at most {shown(self.peak_bytes)} of memory in all"
        ]
        if self.no_seconds_reason is not None:
            lines.append(f"time not estimated: {self.no_seconds_reason}")
        if self.cpu_reason is not None:
            lines.append(f"not on a GPU: {self.cpu_reason}")
        if self.refusal is not None:
            lines.append(f"refused: {self.refusal}")
        for group in self.tree_groups:
            lines.append(
                f"{counted(group.n_trees, 'tree')}, {counted(group.n_leaves, 'leaf', 'leaves')}, "
                f"{counted(group.n_nodes, 'quadrature node')}: {group.algorithm}"
            )
            if group.algorithm == "tables":
                lines[-1] += f", {counted(group.n_lookups, 'table')}, {shown(group.table_bytes)} in all"
            elif group.algorithm in ("lanes", "cells"):
                lines[-1] += f", {shown(group.table_bytes)}"
            elif group.n_walked_leaves < group.n_leaves:
                lines[-1] += f", {counted(group.n_walked_leaves, 'leaf', 'leaves')} once the trees are merged"
        if self.build_seconds:
            work = "building the tables"
            if any(group.algorithm == "lanes" for group in self.tree_groups):
                work = "putting the leaves into lanes"
            elif any(group.algorithm == "cells" for group in self.tree_groups):
                work = "cutting the trees into units"
            elif self.tree_groups and not self.table_bytes:
                work = "merging the trees"
            lines.append(f"{work} takes about {number(self.build_seconds, 2)} s of the time")
        return "\n".join(lines)


def call_plan(compiled: CompiledModel, X: HostRows, kind: Kind, request: Request | None) -> CallPlan:
    """Plan a call for values, or for the requested interactions; only the number of rows of X is used."""
    execution, options = plan_execution(compiled, kind, X.n_rows), compiled.options
    plan = compiled.of(kind)
    run, n_sets = HostRun(compiled, kind, X, execution, None), 0
    if request is None:
        need = run.need(value_row_bytes(run))
    else:
        n_sets = len(plan.sets(request.result))
        n_sets_of_form = {"strongest": min(request.count, n_sets), "listed": len(request.listed)}
        need = run.need(row_bytes(run, request, n_sets, n_sets_of_form.get(request.form, n_sets)))
    refusal = None
    try:
        size = need.rows_at_once(options.memory_limit, memory.machine_bytes())
    except MemoryError as error:
        size, refusal = 1, str(error)
    seconds, reason = estimate(compiled, kind, X.n_rows, execution)
    if seconds is not None and request is not None and request.form == "strongest" and size < X.n_rows:
        seconds *= 2  # the first pass finds the strongest
    treats_trees_alike = options.algorithm.is_for_comparison or compiled.link is not None or plan.is_tiled
    return CallPlan(
        n_rows=X.n_rows,
        device=run.device,
        tree_groups=() if treats_trees_alike else execution.tree_groups,
        table_bytes=sum(group.table_bytes for group in execution.tree_groups),
        result_bytes=need.result,
        peak_bytes=need.peak(size),
        cpu_reason=None if execution.indices else cpu_reason(compiled, kind),
        refusal=refusal,
        build_seconds=execution.building,
        seconds=seconds,
        result=kind.values_name if request is None else request.values_name,
        no_seconds_reason=reason,
    )


def estimate(
    compiled: CompiledModel, kind: Kind, n_rows: int, execution: ExecutionPlan
) -> tuple[float | None, str | None]:
    """Return the estimated seconds of a call; or None, and the reason why there is no estimate."""
    options, info, n_outputs = compiled.options, compiled.info, compiled.n_outputs
    plan = compiled.of(kind)
    n_threads, precision = execution.n_threads, options.precision
    reading = tree_costs.cpu_row_seconds(n_rows, compiled.n_features, n_outputs, n_threads)
    if options.algorithm.is_for_comparison:
        groups = plan.groups
        if execution.indices:
            transfer = tree_costs.cuda_row_seconds(n_rows, compiled.n_features, n_outputs)
            walking = cuda_comparison_seconds(groups, -(-n_rows // len(execution.indices)), n_outputs)
            return walking + transfer, None
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
    if kind.order == 1:
        return execution.seconds, None
    n_results = plan.n_results
    if execution.indices:
        # The seconds of tables include the transfer of results.
        n_transferred = 0 if plan.is_tiled else n_rows * n_results
        return execution.seconds + cuda_interaction_seconds(n_transferred), None
    if isinstance(plan, TiledPlan):
        tables = plan.pair_tables or plan.pair_tables_within(sys.maxsize)
        if tables is None:
            return None, "the background data have too many patterns"
        element = 4 if precision == "single" else 8
        return reading + tables.cpu_seconds(n_rows, n_results, n_threads, element), None
    values = compiled.of(SHAP_VALUES)
    return reading + interaction_seconds(
        kind, plan.groups, values.groups, n_rows, n_results, n_threads, values.work, precision
    ), None
