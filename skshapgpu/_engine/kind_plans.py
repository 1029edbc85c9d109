"""The plans of one kind of results of a model: compiled trees, tables, GPUs, and what the costs depend on.

``CompiledModel.of`` returns the plans of a kind. Path-dependent results have a class, and Owen values have
one; ``background_plans.py`` has those of results against background data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from joblib import effective_n_jobs

from .. import _core
from .._common import devices, memory
from .._common.algorithms import AUTO, BANZHAF_VALUES, SHAP_VALUES, Kind
from .._common.lazy import computed_once
from ..adapters.ensemble import attributes_of
from .costs import trees as tree_costs
from .costs.trees import TableLayout, TreeGroup
from .sharing import PairSharing, Sharing

if TYPE_CHECKING:
    from .compiled_model import CompiledModel

#: By order: how many times the work of a plan for values a plan for interactions does at each leaf. The
#: choice of devices needs only the ratio of CPU and GPU. For triples, the work is 4 to 13 times as much,
#: depending on the depth and on how many triples occur. Each further output of a leaf takes about the
#: fraction _OUTPUT_WORK of the work for the first.
_INTERACTION_WORK, _OUTPUT_WORK = {1: 1, 2: 3, 3: 7}, 0.7


class Intervals(NamedTuple):
    """The tables by intervals of a plan, or what it has instead."""

    #: Largest number of entries of a table. 1: there are no tables, but trees are merged; 0: there are no
    #: tables, and trees are not merged.
    most_entries: int
    on_gpu: bool = False  # whether the tables are within the limits of GPUs
    in_lanes: bool = False  # whether there are leaves in lanes instead of tables, for calls of few rows
    in_cells: bool = False  # whether trees are cut into units whose cells are walked, for calls of many rows


NO_INTERVALS, LANES, CELLS = Intervals(0), Intervals(0, in_lanes=True), Intervals(0, in_cells=True)


class KindPlan:
    """The plans of path-dependent values or interactions.

    Each is compiled, and sent to a GPU, when it is first used. Threads may use them at the same time.

    Attributes
    ----------
    n_features : int
        Number of features of the results.
    sharing : Sharing or None
        How features share the values of players; None if they do not.
    work, layout_work : float
        Work at each leaf, relative to SHAP values of one output: of a plan without tables, and of the trees
        that are laid out for tables by intervals.
    """

    #: Whether the CPU makes tables for each tile of rows, while a GPU has tables for all rows.
    is_tiled = False
    _can_have_tables = _can_have_lanes = _can_have_cells = True

    def __init__(self, model: CompiledModel, kind: Kind) -> None:
        self.model, self.kind, self._ensemble = model, kind, model.ensemble
        self.n_features, self.sharing = model.n_features, model.sharing
        self._plans: dict[Intervals, Any] = {}
        self._cuda_plans: dict[Intervals, dict[tuple[int, str], Any]] = {}  # by GPU and method
        self._layouts: dict[Intervals, TableLayout] = {}
        self._core_layouts: dict[Intervals, Any] = {}  # layouts of tables that do not exist yet
        #: Rows of the last call on the CPU, its layout of tables, and whether its rows look up cells.
        self.last_choice: tuple[int, TableLayout | None, bool] | None = None
        n_leaf_outputs = self._ensemble.value.shape[1]
        self.work = _INTERACTION_WORK[kind.order] * (1 + _OUTPUT_WORK * (n_leaf_outputs - 1))

    def plan(self, intervals: Intervals = NO_INTERVALS) -> Any:
        """Return the ``_core.Plan`` with these tables by intervals."""
        plan = self._plans.get(intervals)
        if plan is not None:
            return plan
        with self.model.lock:
            if intervals not in self._plans:
                self._plans[intervals] = self._compile(intervals)
                if intervals != NO_INTERVALS:
                    self.model.drop_tables(self.kind, intervals)
            return self._plans[intervals]

    def restore(self, tables: dict[str, np.ndarray] | None) -> Any:
        """Compile the plan without tables by intervals, with these tables if they are not None."""
        self._plans[NO_INTERVALS] = self._compile(NO_INTERVALS, tables)
        return self._plans[NO_INTERVALS]

    def drop(self, intervals: Intervals) -> None:
        """Drop a plan with tables by intervals; a later call that needs it compiles it again."""
        del self._plans[intervals]
        self._cuda_plans.pop(intervals, None)

    def _compile(self, intervals: Intervals, tables: dict[str, np.ndarray] | None = None) -> Any:
        if intervals == NO_INTERVALS:
            plan = self._compile_trees(tables)
        elif intervals == LANES:
            plan = self._compile_lanes()
            if plan is None:
                return None
        elif intervals == CELLS:
            plan = _core.cell_plan(self._plans[NO_INTERVALS], self._n_threads)
        else:
            plan = self._compile_tables(intervals)
        info = plan.info()
        self.model.table_sizes[self.kind, intervals] = info["table_bytes"] - info["borrowed_bytes"]
        return plan

    def _compile_lanes(self) -> Any:
        """Return the plan whose leaves are in lanes, or None if they cannot be."""
        return _core.lane_plan(self._plans[NO_INTERVALS], self.model.interval_room())

    def _compile_trees(self, tables: dict[str, np.ndarray] | None) -> Any:
        """Return the plan without tables by intervals."""
        model, kind, algorithm = self.model, self.kind, self.model.options.algorithm
        level_tables = "level_uniform" if algorithm.tables == "worthwhile" and kind.order == 1 else "none"
        # For a kind that the algorithm does not compute, only the list of occurring sets is needed.
        method = "walk" if algorithm.find(kind) is None else algorithm.method
        try:
            return _core.Plan(
                attributes_of(model.ensemble),
                model.options.precision,
                kind.order,
                kind.core_index,
                level_tables,
                self._table_room(),
                self._n_threads,
                method,
                tables,
            )
        except _core.TableMemoryError as error:
            limit = model.options.memory_limit
            most = "a quarter of the machine's memory" if limit is None else "half of memory_limit"
            raise MemoryError(
                f"algorithm={algorithm.name!r}: {error} ({most}): raise memory_limit, or use "
                "algorithm='auto', which can do without tables"
            ) from None
        except ValueError as error:
            if method != AUTO.method and tables is None:
                error.add_note(f"algorithm='auto' has wider limits than algorithm={algorithm.name!r}")
            raise

    def _compile_tables(self, intervals: Intervals) -> Any:
        """Return the plan with tables by intervals."""
        plan, layout = self._laid_out_plan, self._core_layouts.pop(intervals, None)
        if layout is None:
            layout = self.lay_out(plan, intervals)
        is_unwalked = intervals.on_gpu and self.has_owen_leaves
        return _core.interval_plan(plan, layout, self._n_threads, is_unwalked)

    @property
    def _laid_out_plan(self) -> Any:
        """Plan from whose trees tables by intervals are made."""
        return self._plans[NO_INTERVALS]

    @property
    def _n_threads(self) -> int:
        return effective_n_jobs(self.model.options.n_jobs)

    def _table_room(self) -> int:
        """Return the bytes that the tables of a plan may take, whatever the earlier calls were."""
        model, options = self.model, self.model.options
        room = memory.table_bytes(options.memory_limit, options.algorithm.tables == "all")
        if options.memory_limit is None or self.kind == SHAP_VALUES:
            return room
        # Besides the tables of SHAP values, there may be tables of Banzhaf values and, with background data,
        # counts of patterns for three kinds of interactions and, with groups, tables of Owen values.
        other_room = max(0, room - model.table_sizes[SHAP_VALUES, NO_INTERVALS])
        if model.background is None:
            return other_room
        return other_room // (4 if model.two_levels is None else 5)

    def layout(self, intervals: Intervals) -> TableLayout:
        """Return the layout of tables by intervals, which the first call computes."""
        if intervals not in self._layouts:
            self.plan()  # which takes the lock, too
            with self.model.lock:
                if intervals not in self._layouts:
                    layout = self._core_layouts[intervals] = self.lay_out(self._laid_out_plan, intervals)
                    info = layout.info()
                    groups = tree_costs.tree_groups_of(info.pop("groups"))
                    self._layouts[intervals] = TableLayout(intervals.most_entries, groups, **info)
        return self._layouts[intervals]

    def forget_layout(self, intervals: Intervals) -> None:
        """Forget the layout of tables that are not built; it is computed again if a call needs it."""
        self._core_layouts.pop(intervals, None)

    def lay_out(self, plan: Any, intervals: Intervals) -> Any:
        """Return the core's layout of tables by intervals for the trees of a plan."""
        most_entries, on_gpu = intervals.most_entries, intervals.on_gpu
        precision = self.model.options.precision
        prices = tree_costs.gpu_table_prices(precision) if on_gpu else tree_costs.table_prices(precision)
        walk = self.layout_work / self.work
        prices |= {name: walk * prices[name] for name in ("leaf", "leaf_node", "built_leaf")}
        if on_gpu and self.has_owen_leaves:
            prices |= tree_costs.gpu_owen_prices(precision)
        n_rows = tree_costs.GPU_TABLE_ROWS if on_gpu else tree_costs.typical_rows(most_entries)
        return _core.IntervalLayout(plan, most_entries, n_rows, prices, self.model.interval_room(), on_gpu)

    @property
    def _may_have_other_forms(self) -> bool:
        """Whether trees may be explained in other forms than the walk, with these options."""
        options = self.model.options
        return (
            self.kind.order == 1 and options.algorithm.tables == "worthwhile" and options.memory_limit is None
        )

    @property
    def may_have_tables(self) -> bool:
        """Whether there may be tables by intervals."""
        return self._can_have_tables and self._may_have_other_forms

    @property
    def may_have_lanes(self) -> bool:
        """Whether there may be leaves in lanes."""
        return self._can_have_lanes and self._may_have_other_forms

    @computed_once
    def unit_fractions(self) -> tuple[float, float] | None:
        """Fractions of units, and of walked leaves, that remain if trees that are alike share units.

        None if trees cannot be cut into units whose cells are walked.
        """
        allowed = self._can_have_cells and self._may_have_other_forms
        return _core.unit_fractions(self.plan()) if allowed else None

    @computed_once
    def n_sums(self) -> int:
        """Number of the sums of a row to which a tree adds: one for each feature and output of a leaf."""
        return int(self.plan().info()["n_features_used"] * self.leaf_width)

    @property
    def leaf_width(self) -> int:
        """Number of outputs in a leaf."""
        return int(self._ensemble.value.shape[1])

    @computed_once
    def few_rows_seconds(self) -> float:
        """Seconds in which one thread walks few rows."""
        return tree_costs.few_rows_seconds(self.groups)

    @computed_once
    def lane_build_seconds(self) -> float:
        """Seconds to put the leaves into lanes."""
        return tree_costs.lane_build_seconds(self.groups)

    @computed_once
    def lane_steps(self) -> int:
        """Work of a row with leaves in lanes, which the first use makes; 0 if leaves cannot be in lanes."""
        self.plan()  # which takes the lock, too
        with self.model.lock:
            plan = self._plans.get(LANES)
            if plan is None:
                plan = self._compile(LANES)
                if plan is None:
                    return 0
                self._plans[LANES] = plan
                self.model.drop_tables(self.kind, LANES)
        return int(plan.info()["lane_steps"])

    @property
    def layout_work(self) -> float:
        return self.work

    @computed_once
    def groups(self) -> tuple[TreeGroup, ...]:
        """Groups of trees of the plan without tables by intervals."""
        return tree_costs.tree_groups_of(self.plan().info()["groups"])

    @property
    def gpu_groups(self) -> tuple[TreeGroup, ...]:
        """Groups of trees that a GPU explains without tables by intervals."""
        return self.groups

    @computed_once
    def has_owen_leaves(self) -> bool:
        """Whether GPUs explain trees without tables by intervals leaf by leaf, for Owen values."""
        return False

    @computed_once
    def rows_alone(self) -> int:
        """Largest number of rows for which a call uses one thread."""
        model, groups = self.model, self.groups
        only_walks = model.background is None and model.options.algorithm.tables != "all"
        if only_walks and all(group.algorithm != "tables" for group in groups):
            return tree_costs.rows_to_share(groups, self.work, model.options.precision)
        return tree_costs.BLOCK_ROWS

    @property
    def counted_table_bytes(self) -> int:
        """Bytes of existing tables that count towards the memory of a call.

        Without a memory limit, these are the tables that the call uses; otherwise, all tables.
        """
        if self.model.options.memory_limit is None:
            return self.model.table_sizes[self.kind, NO_INTERVALS]
        return self.model.table_bytes

    def sets(self, result: str) -> np.ndarray:
        """Return the sets of columns of X to which results belong: int32, (n_sets, order).

        ``result`` is "pairs" or "triples". Raise ``ValueError`` if triples are requested, but columns share
        values; or the model has linear leaves.
        """
        self.require_pairs()
        return getattr(self.plan(), result) if self.sharing is None else self.pair_sharing.sets

    @computed_once
    def pair_sharing(self) -> PairSharing:
        """How columns of X share the results for pairs of players."""
        assert self.sharing is not None
        return PairSharing(self.sharing, self.plan().pairs, self.kind.adds_up)

    def require_pairs(self) -> None:
        """Raise ``ValueError`` for triples if columns share values."""
        if self.model.sharing is not None and self.kind.order > 2:
            raise ValueError(
                "columns of this model share contributions, as CTRs of CatBoost combine them: only "
                "interactions of pairs are available, order=2"
            )

    @property
    def n_results(self) -> int:
        """Number of results that the core computes for a row."""
        order = self.kind.order
        n_sets = 0 if order == 1 else len(getattr(self.plan(), ("pairs", "triples")[order - 2]))
        return self.model.n_outputs * (self.model.n_features + n_sets)

    @computed_once
    def n_patterns(self) -> int:
        """Number of patterns of background data at leaves without a table."""
        return int(self.plan().info()["n_patterns"])

    @property
    def is_on_gpus(self) -> bool:
        """Whether GPUs compute results of this kind for this model."""
        results = self.model.results.get(self.kind)
        return results is not None and "cuda" in results.devices and self._fits_gpus

    @property
    def _fits_gpus(self) -> bool:
        return True

    def name_without_gpus(self, name: str) -> str:
        """Return a name of the results that says why GPUs do not compute them, given their ordinary name."""
        return name

    def cuda_plan(self, index: int, n_rows: int, intervals: Intervals = NO_INTERVALS) -> Any:
        """Return the ``_cuda.CudaPlan`` on a GPU, for calls of about ``n_rows`` rows."""
        method = self._gpu_method(n_rows, intervals)
        cuda_plan = self._cuda_plans.get(intervals, {}).get((index, method))
        if cuda_plan is not None:
            return cuda_plan
        plan = self._gpu_source(intervals)
        with self.model.lock:
            cuda_plans = self._cuda_plans.setdefault(intervals, {})
            if (index, method) not in cuda_plans:
                cuda_plans[index, method] = self._compile_on(plan, index, method)
            return cuda_plans[index, method]

    def _gpu_source(self, intervals: Intervals) -> Any:
        """Return the ``_core.Plan`` that a GPU explains."""
        return self.plan(intervals)

    def _gpu_method(self, n_rows: int, intervals: Intervals) -> str:
        """Return ``_cuda``'s name of how a GPU explains trees without tables in a call of ``n_rows`` rows."""
        gpu_method = self.model.options.algorithm.gpu_method
        if gpu_method != "walk":
            return gpu_method
        if self.is_tiled or intervals != NO_INTERVALS:
            return "chunks"
        method = tree_costs.cuda_method(self.gpu_groups, n_rows)
        by_leaves = self.kind in (SHAP_VALUES, BANZHAF_VALUES)
        return "small_chunks" if method == "leaves" and not by_leaves else method

    def _compile_on(self, plan: Any, index: int, method: str) -> Any:
        """Return the ``_cuda.CudaPlan`` of a plan on a GPU."""
        return devices.compile_on(plan, index, method)


class OwenPlan(KindPlan):
    """The plans of Owen values, whose game has other players than that of SHAP values."""

    _can_have_lanes = _can_have_cells = False

    def __init__(self, model: CompiledModel, kind: Kind) -> None:
        super().__init__(model, kind)
        assert model.two_levels is not None
        (self._ensemble, shared), groups, shares = model.two_levels
        self._group_of_player = groups.tolist()
        self.n_features = self._ensemble.n_players - len(shared)
        self.sharing = Sharing(self.n_features, shared, shares) if shared else None


class PathOwenPlan(OwenPlan):
    """The plans of path-dependent Owen values."""

    _column_plan: Any = None  # the plan whose trees are laid out

    def _compile_trees(self, tables: dict[str, np.ndarray] | None) -> Any:
        attributes, precision = attributes_of(self._ensemble), self.model.options.precision
        self._column_plan = _core.owen_plan(attributes, precision, self._group_of_player, self._n_threads)
        # The trees are merged as they are for SHAP values.
        merged_only = Intervals(tree_costs.MERGED_ONLY)
        layout = self.model.of(SHAP_VALUES).lay_out(self._column_plan, merged_only)
        return _core.interval_plan(self._column_plan, layout, self._n_threads)

    @property
    def _laid_out_plan(self) -> Any:
        return self._column_plan

    @property
    def layout_work(self) -> float:
        # A tree is walked several times, with more quadrature nodes.
        precision, rows = self.model.options.precision, tree_costs.LEAST_TABLE_ROWS
        walk_seconds, column_seconds = (
            tree_costs.cpu_seconds(groups, rows, 1, precision=precision) - tree_costs.cpu_seconds((), rows, 1)
            for groups in (self.groups, self._column_groups)
        )
        return self.work * max(1.0, walk_seconds / column_seconds if column_seconds else 1.0)

    @computed_once
    def _column_groups(self) -> tuple[TreeGroup, ...]:
        """Groups of the trees from which tables by intervals are made."""
        self.plan()
        return tree_costs.tree_groups_of(self._column_plan.info()["groups"])

    @property
    def gpu_groups(self) -> tuple[TreeGroup, ...]:
        return self._column_groups if self.has_owen_leaves else self.groups

    @computed_once
    def has_owen_leaves(self) -> bool:
        self.plan()
        return _core.has_owen_leaves(self._column_plan)

    def _gpu_source(self, intervals: Intervals) -> Any:
        plan = self.plan(intervals)
        if intervals == NO_INTERVALS and self.has_owen_leaves and devices.hold_tables(self.model.gpus):
            return self._column_plan
        return plan
