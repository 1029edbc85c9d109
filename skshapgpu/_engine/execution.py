"""All decisions about a call: its devices, tables by intervals and threads, and its estimated time."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from joblib import effective_n_jobs

from .._common import devices
from .._common.algorithms import OWEN_VALUES, Kind
from .._common.devices import Devices
from .background_plans import LinkPlan, TiledPlan
from .compiled_model import CompiledModel
from .costs import links as link_costs
from .costs import trees as tree_costs
from .costs.trees import TableLayout, TreeGroup
from .kind_plans import CELLS, LANES, NO_INTERVALS, Intervals, KindPlan


class ExecutionPlan(NamedTuple):
    """How a call is executed."""

    indices: tuple[int, ...]  # numbers of its GPUs; empty for a call on the CPU
    intervals: Intervals  # its tables by intervals
    tree_groups: tuple[TreeGroup, ...]  # all trees
    building: float  # seconds to build tables, and to merge trees, that do not exist yet
    seconds: float  # estimated time, which includes ``building``
    n_threads: int
    #: Size of the tables that count towards the memory of the call: the tables that it uses or, with a memory
    #: limit, all tables of the model.
    table_bytes: int


def plan_execution(model: CompiledModel, kind: Kind, n_rows: int) -> ExecutionPlan:
    """Decide how to run a call with ``n_rows`` rows from the host; no other function decides this."""
    kept = model.small_calls.get((kind, n_rows))
    if kept is not None:
        return kept
    execution = _decide(model, kind, n_rows)
    # The number of threads of a larger call can change, and so can the tables that a memory limit counts.
    most_rows = min(model.of(kind).rows_alone, tree_costs.BLOCK_ROWS)
    is_small = n_rows <= most_rows or (execution.intervals == LANES and execution.n_threads == 1)
    if is_small and model.options.memory_limit is None:
        model.small_calls[kind, n_rows] = execution
    return execution


def _decide(model: CompiledModel, kind: Kind, n_rows: int) -> ExecutionPlan:
    """Do the work of :func:`plan_execution`."""
    plan, requested = model.of(kind), model.options.devices
    # A call that the user sends to a GPU does not need lanes, which the choice of lanes would make.
    is_sent_to_gpus = bool(requested.indices) and plan.is_on_gpus
    on_cpu = (_plan_walks_and_tables if is_sent_to_gpus else plan_on_cpu)(plan, n_rows)
    if not n_rows or requested.none or not plan.is_on_gpus:
        return on_cpu
    if isinstance(plan, LinkPlan):
        return _plan_link(plan, requested, on_cpu, n_rows)
    if isinstance(plan, TiledPlan):
        return _plan_pairs(plan, requested, on_cpu, n_rows)
    walk_seconds = _cuda_seconds(plan, plan.gpu_groups, n_rows)
    # Rows and values are transferred, and rows go through patterns, whatever tables there are.
    transfer = tree_costs.cuda_row_seconds(n_rows, plan.n_features, model.n_outputs)
    transfer += tree_costs.cuda_pattern_seconds(n_rows, plan.n_patterns)
    # Tables pay off only in calls for which a GPU is faster without them, too. Lanes serve many calls.
    cpu_seconds = on_cpu.seconds - (on_cpu.building if on_cpu.intervals == LANES else 0.0)
    indices = requested.choose(tree_costs.CPU_BESIDE_GPU * cpu_seconds, walk_seconds + transfer)
    if not indices:
        return on_cpu
    n_threads, table_bytes = on_cpu.n_threads, plan.counted_table_bytes
    layout = _worthwhile_gpu_layout(plan, n_rows)
    if layout is None:
        seconds = (walk_seconds + transfer) / len(indices)
        return ExecutionPlan(indices, NO_INTERVALS, plan.gpu_groups, 0.0, seconds, n_threads, table_bytes)
    building, intervals = layout.build_seconds, Intervals(layout.most_entries, on_gpu=True)
    lookup_seconds = _laid_out_cuda_seconds(plan, layout, n_rows)
    seconds = building + (lookup_seconds + transfer) / len(indices)
    table_bytes += layout.table_bytes
    return ExecutionPlan(indices, intervals, layout.tree_groups, building, seconds, n_threads, table_bytes)


def plan_on_cpu(plan: KindPlan, n_rows: int) -> ExecutionPlan:
    """Decide how to run a call on the CPU, because no GPU is used or a GPU failed."""
    return _plan_lanes(plan, n_rows) or _plan_walks_and_tables(plan, n_rows)


def _plan_walks_and_tables(plan: KindPlan, n_rows: int) -> ExecutionPlan:
    """Decide how to run a call on the CPU without leaves in lanes."""
    options, n_outputs = plan.model.options, plan.model.n_outputs
    # Counting processors takes longer than a small call.
    n_threads = 1 if n_rows <= plan.rows_alone else effective_n_jobs(options.n_jobs)
    groups, intervals, building = plan.groups, NO_INTERVALS, 0.0
    seconds = tree_costs.cpu_seconds(groups, n_rows, n_threads, plan.work, options.precision)
    table_bytes = plan.counted_table_bytes
    choice = plan.last_choice  # which takes longer to make than the rest
    if choice is None or choice[0] != n_rows:
        layout = _worthwhile_tables(plan, n_rows)
        choice = plan.last_choice = n_rows, layout, _cells_are_worthwhile(plan, layout, n_rows)
    _, layout, has_cells = choice
    if has_cells:
        groups, intervals = (_group_of_all(plan, "cells", CELLS),), CELLS
        building = tree_costs.cell_build_seconds(plan.groups) / n_threads
        seconds = building + _cell_seconds(plan, layout, n_rows) / n_threads
        table_bytes += groups[0].table_bytes
    elif layout is not None:
        groups, intervals = layout.tree_groups, Intervals(layout.most_entries)
        building = layout.build_seconds / n_threads
        seconds = building + layout.call_seconds(n_rows, n_threads, plan.layout_work, options.precision)
        table_bytes += layout.table_bytes
    seconds += tree_costs.cpu_row_seconds(n_rows, plan.n_features, n_outputs, n_threads)
    seconds += tree_costs.cpu_pattern_seconds(n_rows, plan.n_patterns, n_threads)
    return ExecutionPlan((), intervals, groups, building, seconds, n_threads, table_bytes)


def _plan_lanes(plan: KindPlan, n_rows: int) -> ExecutionPlan | None:
    """Return how to run a call with leaves in lanes; None if another way takes less time.

    The choice depends neither on earlier calls nor on the number of threads, and so the results do not.
    """
    if not 0 < n_rows <= tree_costs.MOST_LANE_ROWS or not plan.may_have_lanes:
        return None
    options, walking, building = plan.model.options, plan.few_rows_seconds, plan.lane_build_seconds
    if not tree_costs.may_put_into_lanes(walking, building, n_rows, options.expected_rows):
        return None
    n_steps, precision = plan.lane_steps, options.precision
    if not n_steps or not tree_costs.lanes_are_faster(walking, n_steps, n_rows, precision):
        return None
    groups, n_outputs = plan.groups, plan.model.n_outputs
    n_threads = 1 if tree_costs.lanes_are_for_one_thread(groups) else effective_n_jobs(options.n_jobs)
    seconds = building + tree_costs.lane_seconds(n_steps, n_rows, precision)
    seconds += tree_costs.cpu_row_seconds(n_rows, plan.n_features, n_outputs, 1)
    group = _group_of_all(plan, "lanes", LANES)
    return ExecutionPlan((), LANES, (group,), building, seconds, n_threads, group.table_bytes)


def _group_of_all(plan: KindPlan, algorithm: str, intervals: Intervals) -> TreeGroup:
    """Return one group of all trees, which are explained in another form than walks and tables."""
    groups = plan.groups
    table_bytes = plan.model.table_sizes.get((plan.kind, intervals), 0)
    if intervals == CELLS and not table_bytes:
        table_bytes = _cell_bytes(plan)  # which do not exist yet
    return TreeGroup(
        algorithm=algorithm,
        n_nodes=max(group.n_nodes for group in groups),
        n_trees=sum(group.n_trees for group in groups),
        n_leaves=sum(group.n_leaves for group in groups),
        n_walked_leaves=0,
        n_lookups=0,
        n_places=0,
        table_bytes=table_bytes,
    )


def _cells_are_worthwhile(plan: KindPlan, layout: TableLayout | None, n_rows: int) -> bool:
    """Return whether a call takes less time if rows look up the cells of units that occur.

    Otherwise, trees are walked or have the tables of the layout. The choice depends neither on earlier calls
    nor on the number of threads, and so the results do not.
    """
    options = plan.model.options
    groups, work, precision = plan.groups, plan.work, options.precision
    if n_rows < tree_costs.LEAST_CELL_ROWS or not tree_costs.cells_may_pay(groups, plan.n_sums):
        return False
    n_calls = max(1.0, (options.expected_rows or 0) / n_rows)
    if _cell_bytes(plan) > plan.model.interval_room():
        return False
    seconds = tree_costs.cpu_seconds(groups, n_rows, 1, work, precision)
    if layout is not None:
        seconds = layout.seconds(n_rows, n_calls, plan.layout_work, precision)
    over_tables = layout is not None and layout.table_bytes > 0
    least = tree_costs.least_cell_saving(seconds, plan.n_sums, over_tables)
    saved = seconds - tree_costs.cell_build_seconds(groups) / n_calls
    if saved <= least or plan.unit_fractions is None:
        return False
    return saved - _cell_seconds(plan, layout, n_rows) > least


def _cell_bytes(plan: KindPlan) -> int:
    return tree_costs.cell_bytes(plan.groups, plan.leaf_width, plan.model.options.precision)


def _cell_seconds(plan: KindPlan, layout: TableLayout | None, n_rows: int) -> float:
    """Return the seconds that a call spends in trees if rows look up their cells, in one thread."""
    assert plan.unit_fractions is not None
    units, walked = plan.unit_fractions
    if layout is not None:
        walked = min(walked, layout.walked_fraction)  # which is of all trees, not of a sample
    return tree_costs.cell_seconds(
        plan.groups, n_rows, plan.work, plan.model.options.precision, units, walked
    )


def cpu_reason(model: CompiledModel, kind: Kind) -> str:
    """Return the reason why a call that runs on the CPU does so."""
    requested = model.options.devices
    if not (requested.auto or requested.indices):
        return "the device is 'cpu'"
    if not model.of(kind).is_on_gpus:
        return "these values are computed on the CPU only"
    return devices.missing() or "the CPU is estimated to be faster"


def intervals_on_gpu(plan: KindPlan, n_rows: int) -> Intervals:
    """Return the tables by intervals of a call with rows on a GPU."""
    layout = _worthwhile_gpu_layout(plan, n_rows)
    return NO_INTERVALS if layout is None else Intervals(layout.most_entries, on_gpu=True)


def cpu_seconds_of_link(model: CompiledModel, n_rows: int, n_threads: int) -> float:
    """Return the seconds in which the CPU computes values of the link."""
    assert model.background is not None
    n_background = len(model.background.weights)
    return link_costs.cpu_seconds_of_link(int(model.info["n_leaves"]), n_background, n_rows, n_threads)


def _plan_link(plan: LinkPlan, requested: Devices, on_cpu: ExecutionPlan, n_rows: int) -> ExecutionPlan:
    """Choose the GPUs, or the CPU, for values of the link."""
    model, table_costs = plan.model, plan.table_costs
    assert table_costs is not None
    cpu = cpu_seconds_of_link(model, n_rows, on_cpu.n_threads)
    counts = int(model.info["n_leaves"]), table_costs["n_patterns"]
    building = link_costs.build_seconds_of_link(*counts)
    cuda = link_costs.cuda_seconds_of_link(*counts, n_rows)
    cuda += tree_costs.cuda_row_seconds(n_rows, model.n_features, model.n_outputs)
    indices = requested.choose(tree_costs.CPU_BESIDE_GPU * cpu, building + cuda)
    if not indices:
        return on_cpu
    return on_cpu._replace(indices=indices, building=building, seconds=building + cuda / len(indices))


def _plan_pairs(plan: TiledPlan, requested: Devices, on_cpu: ExecutionPlan, n_rows: int) -> ExecutionPlan:
    """Choose the GPUs, or the CPU, for interventional interactions.

    Like the choice of other tables, this one does not depend on earlier calls.
    """
    options, tables = plan.model.options, plan.pair_tables
    assert tables is not None
    element = 4 if options.precision == "single" else 8
    n_threads, n_results = on_cpu.n_threads, plan.n_results
    cpu = tables.cpu_seconds(n_rows, n_results, n_threads, element)
    building = tables.build_seconds(n_threads, element)
    fraction_of_rows = n_rows / max(n_rows, options.expected_rows or 0)
    cuda = tables.cuda_seconds(n_rows, n_results)
    indices = requested.choose(tree_costs.CPU_BESIDE_GPU * cpu, fraction_of_rows * building + cuda)
    if not indices:
        return on_cpu
    return on_cpu._replace(indices=indices, building=building, seconds=building + cuda / len(indices))


def _worthwhile_tables(plan: KindPlan, n_rows: int) -> TableLayout | None:
    """Return the tables by intervals, or the merged trees, that save time in calls of this size.

    The choice depends neither on earlier calls nor on the number of threads, and so the results do not.
    """
    options = plan.model.options
    expected_rows = max(n_rows, options.expected_rows or 0)
    most_entries = tree_costs.table_size(expected_rows)
    if not plan.may_have_tables or not most_entries or n_rows < tree_costs.LEAST_TABLE_ROWS:
        return None
    seconds = tree_costs.cpu_seconds(plan.groups, n_rows, 1, plan.work, options.precision)
    if seconds * expected_rows < tree_costs.LEAST_TABLE_SECONDS * n_rows:
        return None
    sizes, work = (Intervals(most_entries), Intervals(tree_costs.MERGED_ONLY)), plan.layout_work
    n_calls = expected_rows / n_rows

    def seconds_with(layout: TableLayout) -> float:
        if layout.seconds(n_rows, n_calls, work, options.precision) > seconds:
            return math.inf
        return layout.seconds(n_rows, max(n_calls, tree_costs.TABLE_CALLS), work, options.precision)

    return _best_layout(plan, sizes, seconds_with, seconds)


def _best_layout(
    plan: KindPlan,
    sizes: tuple[Intervals, ...],
    seconds_with: Callable[[TableLayout], float],
    seconds_without: float,
) -> TableLayout | None:
    """Return the layout with which a call takes the least time; None if no layout saves time.

    ``seconds_without`` is the time of a call without tables by intervals.
    """
    best, least = None, math.inf
    for intervals in sizes:
        layout = plan.layout(intervals)
        seconds = seconds_with(layout)
        is_worthwhile = not layout.is_empty and seconds < min(
            least, layout.largest_fraction * seconds_without
        )
        if is_worthwhile and layout.table_bytes <= plan.model.interval_room():
            best, least = layout, seconds
        if not layout.table_bytes:
            break
    for intervals in sizes:
        if best is None or intervals.most_entries != best.most_entries:
            plan.forget_layout(intervals)
    return best


def _worthwhile_gpu_layout(plan: KindPlan, n_rows: int) -> TableLayout | None:
    """Return the tables by intervals, or the merged trees, that save time in calls of this size on GPUs.

    The choice depends neither on earlier calls nor on the number of GPUs, and so the results do not.
    """
    expected_rows = max(n_rows, plan.model.options.expected_rows or 0)
    if not n_rows or not plan.may_have_tables:
        return None
    groups = plan.gpu_groups
    n_leaves = sum(group.n_leaves for group in groups)
    walk_seconds = _cuda_seconds(plan, groups, expected_rows)
    if walk_seconds < max(tree_costs.LEAST_TABLE_SECONDS, tree_costs.GPU_MERGED_LEAF * n_leaves):
        return None
    sizes: tuple[Intervals, ...] = (Intervals(tree_costs.MERGED_ONLY, on_gpu=True),)
    if walk_seconds >= tree_costs.GPU_TABLE_LEAF * n_leaves and devices.hold_tables(plan.model.gpus):
        sizes = (Intervals(tree_costs.GPU_TABLE_ENTRIES, on_gpu=True), *sizes)

    def seconds_with(layout: TableLayout) -> float:
        building = layout.build_seconds * n_rows / expected_rows
        return building + _laid_out_cuda_seconds(plan, layout, n_rows)

    return _best_layout(plan, sizes, seconds_with, _cuda_seconds(plan, groups, n_rows))


def _cuda_seconds(plan: KindPlan, groups: tuple[TreeGroup, ...], n_rows: int) -> float:
    """Return the seconds that a call spends in trees on a GPU, without tables by intervals."""
    precision, is_for_owen_values = plan.model.options.precision, plan.kind == OWEN_VALUES
    if plan.has_owen_leaves:
        return tree_costs.cuda_owen_seconds(groups, n_rows, precision)
    return tree_costs.cuda_seconds(
        groups, n_rows, plan.work, precision, is_for_owen_values=is_for_owen_values
    )


def _laid_out_cuda_seconds(plan: KindPlan, layout: TableLayout, n_rows: int) -> float:
    """Return the seconds that a call spends in trees on a GPU once the tables of the layout exist."""
    others, precision = layout.other_groups, plan.model.options.precision
    if plan.has_owen_leaves:
        seconds = tree_costs.cuda_owen_seconds(others, n_rows, precision)
    else:
        seconds = tree_costs.cuda_seconds(others, n_rows, plan.layout_work, precision)
    return seconds + n_rows * layout.lookup_seconds
