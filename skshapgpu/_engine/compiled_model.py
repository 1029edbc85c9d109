"""The compiled plans of a model: their tables, their memory, and the calls that are rejected.

A plan belongs to a *kind* of results: an order and an index. ``execution.py`` decides which plan a call uses,
and ``runs.py`` runs it on the rows.
"""

from __future__ import annotations

import os
from dataclasses import fields, replace
from functools import cache
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from joblib import effective_n_jobs

from .._common import devices, memory
from .._common.devices import Devices
from .._rows.background import Background
from ..adapters.ensemble import Ensemble
from . import additivity
from .algorithms import (
    AUTO,
    BANZHAF_VALUES,
    OWEN_VALUES,
    SHAP_VALUES,
    Algorithm,
    Kind,
    Results,
)
from .costs import trees as tree_costs
from .costs.background_pairs import PairTables
from .costs.trees import TableLayout, TreeGroup
from .features import TwoLevelGame
from .links import Link
from .options import Options
from .sharing import PairSharing, Sharing
from .softmax import SoftmaxPlan

#: By order: how many times the work of a plan for values a plan for interactions does at each leaf. The
#: choice of devices needs only the ratio of CPU and GPU. For triples, the work is 4 to 13 times as much,
#: depending on the depth and on how many triples occur. Each further output of a leaf takes about the
#: fraction _OUTPUT_WORK of the work for the first.
_INTERACTION_WORK, _OUTPUT_WORK = {1: 1, 2: 3, 3: 7}, 0.7

#: Largest number of bytes of the tables and patterns that only GPUs need: for values of a link, and for
#: interventional interactions.
_GPU_TABLE_BYTES = 4 * 2**30


@cache
def _keep_memory() -> None:
    """Let the core keep the memory of deleted large tables and results, and use it for the next ones."""
    from .. import _core

    _core.keep_memory(memory.kept_bytes())


class Intervals(NamedTuple):
    """The tables by intervals of a plan.

    Attributes
    ----------
    most_entries : int
        Largest number of entries of a table. 1: there are no tables, but trees are merged; 0: there are no
        tables, and trees are not merged.
    on_gpu : bool
        Whether the tables are within the limits of GPUs.
    """

    most_entries: int
    on_gpu: bool = False


NO_INTERVALS = Intervals(0)


class CompiledModel:
    """Ensemble with its plans, each of which is compiled, and sent to a GPU, when it is first used.

    Threads may use it at the same time.

    Parameters
    ----------
    ensemble : Ensemble
    options : Options
    widen : bool
        Whether to add an output before the only one: its negative.
    output_names : tuple or None
        Names of several outputs, for error messages.
    background : Background or None
        Background data for interventional values and interactions; None: results are path-dependent.
    link : Link or None
        Function of the margin that SHAP values explain, which needs background data; None: SHAP values
        explain the margin.
    tables : dict of str to ndarray, or None
        Result of :meth:`contents` for the same ensemble, options and background, so that tables are not
        filled again.
    sharing : Sharing or None
        How columns of X share the values of players; None: each column is a player.
    two_levels : TwoLevelGame or None
        Game of the columns within the groups of features, for Owen values; None without groups.

    Attributes
    ----------
    n_features, n_outputs : int
        Numbers of features and outputs of the results, other than Owen values.
    n_computed_outputs : int
        Number of outputs that the core computes, without the output that ``widen`` adds.
    checked_kinds : set of Kind
        Kinds of results whose additivity is checked.
    options : Options
        The options of the parameter, but with double precision if the trees of the ensemble need it.
    largest_gap, largest_gap_of_floats : ndarray of float64, shape (n_computed_outputs,)
        Limits of the additivity gap of float64 and float32 values, so that values of trees whose leaves
        cancel add up to the margin, too.
    """

    def __init__(
        self,
        ensemble: Ensemble,
        options: Options,
        widen: bool,
        output_names: tuple[Any, ...] | None,
        background: Background | None = None,
        link: Link | None = None,
        tables: dict[str, np.ndarray] | None = None,
        sharing: Sharing | None = None,
        two_levels: TwoLevelGame | None = None,
    ) -> None:
        self.ensemble = ensemble
        self._two_levels = two_levels
        self.options = options
        self.widen = widen
        self.output_names = output_names
        self.background = background
        self.link = link
        self.sharing = sharing
        self.n_features = ensemble.n_players if sharing is None else sharing.n_features
        self.n_computed_outputs = ensemble.n_outputs
        self.n_outputs = 2 if widen else self.n_computed_outputs
        self._compile(tables)
        self.largest_gap, self.largest_gap_of_floats = additivity.largest_gaps(self)
        if options.precision == "single" and additivity.needs_double(self):
            self.options = replace(options, precision="double")
            self._compile()

    def _compile(self, tables: dict[str, np.ndarray] | None = None) -> None:
        _keep_memory()
        self._locks: dict[int, Lock] = {}  # by process
        self._plans: dict[tuple[Kind, Intervals], Any] = {}
        # By GPU and method.
        self._cuda_plans: dict[tuple[Kind, Intervals], dict[tuple[int, str], Any]] = {}
        self._pair_sharings: dict[Kind, PairSharing] = {}
        self._link_tables: tuple[dict[str, int] | None] | None = None  # costs; None until they are computed
        self._pair_tables: dict[Kind, PairTables | None] = {}
        self._layouts: dict[tuple[Kind, Intervals], TableLayout] = {}
        self._core_layouts: dict[tuple[Kind, Intervals], Any] = {}  # layouts of tables that do not exist yet
        self._table_bytes: dict[tuple[Kind, Intervals], int] = {}
        self.gpus = self.options.devices.indices or (0,)  # which all have the same tables
        self._results = self._results_of(self.options.algorithm)
        self.checked_kinds = self._kinds_checked(self.options.check_additivity)
        plan = self._plans[SHAP_VALUES, NO_INTERVALS] = self._compile_plan(
            SHAP_VALUES, NO_INTERVALS, tables or None
        )
        self.constant, self.leaf_magnitude = plan.constant, plan.leaf_magnitude
        if self.has_linear_leaves and not np.isfinite(self.leaf_magnitude).all():
            raise ValueError("data has numbers so large that a linear leaf overflows")
        self.rounding = additivity.rounding(self, self.leaf_magnitude)
        if self.link is None:
            self._base_value = np.array(plan.base_value, np.float64)
        self.info: dict[str, Any] = plan.info()
        self._groups = {SHAP_VALUES: tree_costs.tree_groups_of(self.info["groups"])}
        self._rows_alone: dict[Kind, int] = {}
        self._column_plan: Any = None  # for Owen values: the plan whose trees are laid out
        self._owen_leaves: bool | None = None

    @property
    def _lock(self) -> Lock:
        """Lock of this process: a child process must not wait for a thread that exists only in its parent."""
        return self._locks.setdefault(os.getpid(), Lock())

    @property
    def has_linear_leaves(self) -> bool:
        """Whether leaves are functions of X."""
        return self.ensemble.has_linear_leaves

    @property
    def checks_rows(self) -> bool:
        """Whether each row has its own limit of the additivity gap; then the core returns margins."""
        return self.link is not None or self.has_linear_leaves

    def n_features_of(self, kind: Kind) -> int:
        """Return the number of features of results of a kind."""
        if kind != OWEN_VALUES:
            return self.n_features
        assert self._two_levels is not None
        game = self._two_levels.game
        return game.ensemble.n_players - len(game.shared)

    def sharing_of(self, kind: Kind) -> Sharing | None:
        """Return how features share the values of players in results of a kind; None if they do not."""
        if kind != OWEN_VALUES:
            return self.sharing
        assert self._two_levels is not None
        (ensemble, shared), _, shares = self._two_levels
        return Sharing(ensemble.n_players - len(shared), shared, shares) if shared else None

    def _ensemble_of(self, kind: Kind) -> Ensemble:
        if kind != OWEN_VALUES:
            return self.ensemble
        assert self._two_levels is not None
        return self._two_levels.game.ensemble

    def on_gpu(self, index: int) -> CompiledModel:
        """Return this model, with the same plans, for calls on one of its GPUs."""
        return self._view(options=replace(self.options, devices=Devices(indices=(index,))))

    def checking(self, additivity: bool) -> CompiledModel:
        """Return this model, with the same plans, for calls that check additivity, or that do not."""
        return self._view(checked_kinds=self._kinds_checked(additivity))

    def _view(self, **changes: Any) -> CompiledModel:
        """Return this model, with the same plans and caches, but other attributes."""
        view = object.__new__(CompiledModel)
        view.__dict__ = vars(self) | changes
        return view

    def _kinds_checked(self, additivity: bool) -> set[Kind]:
        return {kind for kind in self._results if kind.adds_up} if additivity else set()

    def base_value(self, labels: np.ndarray | None) -> np.ndarray:
        """Return base values of the core's outputs: (n_outputs,), or (n_rows, 1) with labels."""
        if self.link is None:
            return self._base_value
        assert self.background is not None
        margin = self.plan(SHAP_VALUES).background_margin
        return self.link.base_value(margin, self.background.weights, labels)

    def __getstate__(self) -> dict[str, Any]:
        not_pickled = (
            "_locks",
            "_plans",
            "_cuda_plans",
            "_pair_sharings",
            "_link_tables",
            "_pair_tables",
            "_groups",
            "_rows_alone",
            "_column_plan",
            "_owen_leaves",
            "_layouts",
            "_core_layouts",
            "_table_bytes",
            "gpus",
            "_results",
            "checked_kinds",
        )
        return {name: value for name, value in vars(self).items() if name not in not_pickled}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._compile()

    def plan(self, kind: Kind, intervals: Intervals = NO_INTERVALS) -> Any:
        """Return the ``_core.Plan`` of a kind, with these tables by intervals."""
        plan = self._plans.get((kind, intervals))
        if plan is not None:
            return plan
        with self._lock:
            if (kind, intervals) not in self._plans:
                self._plans[kind, intervals] = self._compile_plan(kind, intervals)
                if intervals != NO_INTERVALS:
                    self._drop_tables(kind, intervals)
            return self._plans[kind, intervals]

    def _drop_tables(self, kind: Kind, needed: Intervals) -> None:
        """Drop tables by intervals for calls of other sizes, the oldest first, until the tables fit."""
        others = [key for key in self._plans if key[1] != NO_INTERVALS and key != (kind, needed)]
        room = self.interval_room()
        while others and sum(self._table_bytes[key] for key in (*others, (kind, needed))) > room:
            key = others.pop(0)
            del self._plans[key], self._table_bytes[key]
            self._cuda_plans.pop(key, None)

    def sets(self, kind: Kind, result: str) -> np.ndarray:
        """Return the sets of columns of X to which results of a kind belong: int32, (n_sets, order).

        ``result`` is "pairs" or "triples".

        Raises
        ------
        ValueError
            Triples are requested, but columns share values; or the model has linear leaves.
        """
        self._require_pairs(kind)
        if self.has_linear_leaves:
            raise self._no_linear_leaves(f"interactions of {result}")
        return getattr(self.plan(kind), result) if self.sharing is None else self.pair_sharing(kind).sets

    def pair_sharing(self, kind: Kind) -> PairSharing:
        """Return how columns of X share the results of a kind for pairs of players."""
        assert self.sharing is not None
        if kind not in self._pair_sharings:
            self._pair_sharings[kind] = PairSharing(self.sharing, self.plan(kind).pairs, kind.adds_up)
        return self._pair_sharings[kind]

    def _no_linear_leaves(self, results: str) -> ValueError:
        return ValueError(
            f"{results} are not computed for models with linear leaves: only SHAP values and Banzhaf values "
            "are"
        )

    def _require_pairs(self, kind: Kind) -> None:
        if self.sharing is not None and kind.order > 2:
            raise ValueError(
                "columns of this model share contributions, as CTRs of CatBoost combine them: only "
                "interactions of pairs are available, order=2"
            )

    def contents(self) -> dict[str, np.ndarray]:
        """Return the contents of the tables that every call for SHAP values uses; {} without tables."""
        if self.link is not None or self.has_linear_leaves:
            return {}
        return self.plan(SHAP_VALUES).contents()

    def _compile_plan(
        self, kind: Kind, intervals: Intervals, stored: dict[str, np.ndarray] | None = None
    ) -> Any:
        if intervals == NO_INTERVALS:
            plan = self._core_plan(kind, stored)
        else:
            plan = self._interval_plan(kind, intervals)
        info = plan.info()
        self._table_bytes[kind, intervals] = info["table_bytes"] - info["borrowed_bytes"]
        return plan

    def _attributes(self, kind: Kind = SHAP_VALUES) -> dict[str, Any]:
        ensemble = self._ensemble_of(kind)
        return {f.name: getattr(ensemble, f.name) for f in fields(ensemble)}

    def _interval_plan(self, kind: Kind, intervals: Intervals) -> Any:
        from .. import _core

        plan, layout = self._laid_out(kind), self._core_layouts.pop((kind, intervals), None)
        if layout is None:
            layout = self._lay_out(kind, plan, intervals)
        unwalked = intervals.on_gpu and self.has_owen_leaves(kind)
        return _core.interval_plan(plan, layout, effective_n_jobs(self.options.n_jobs), unwalked)

    def _laid_out(self, kind: Kind) -> Any:
        """Return the plan from whose trees tables by intervals are made."""
        if self._column_plan is not None and kind == OWEN_VALUES:
            return self._column_plan
        return self._plans[kind, NO_INTERVALS]

    def _owen_plan(self) -> Any:
        """Return the plan for path-dependent Owen values without tables."""
        from .. import _core

        assert self._two_levels is not None
        n_threads = effective_n_jobs(self.options.n_jobs)
        attributes, groups = self._attributes(OWEN_VALUES), self._two_levels.groups
        self._column_plan = _core.owen_plan(attributes, self.options.precision, groups.tolist(), n_threads)
        merged_only = Intervals(tree_costs.MERGED_ONLY)
        return _core.interval_plan(
            self._column_plan, self._lay_out(SHAP_VALUES, self._column_plan, merged_only), n_threads
        )

    def _core_plan(self, kind: Kind, stored: dict[str, np.ndarray] | None = None) -> Any:
        from .. import _core

        attributes = self._attributes(kind)
        precision, background = self.options.precision, self.background
        n_threads = effective_n_jobs(self.options.n_jobs)
        algorithm, table_bytes = self.options.algorithm, self._table_room(kind)
        if self.has_linear_leaves:
            assert background is not None
            return _core.LinearPlan(
                attributes,
                precision,
                background.rows,
                background.weights,
                kind.core_index,
                table_bytes,
                n_threads,
            )
        if background is not None and AUTO.find(kind, interventional=True) is not None:
            rows, weights, link = background.rows, background.weights, self.link
            if kind == OWEN_VALUES:
                assert self._two_levels is not None
                return _core.background_plan(
                    attributes,
                    precision,
                    rows,
                    weights,
                    table_bytes,
                    n_threads,
                    groups=self._two_levels.groups.tolist(),
                )
            if kind != SHAP_VALUES:
                return _core.BackgroundPairsPlan(
                    attributes,
                    precision,
                    rows,
                    weights,
                    kind.order,
                    kind.core_index,
                    table_bytes,
                    n_threads,
                )
            if link is not None and link.is_joint:
                return SoftmaxPlan(self.ensemble, precision, background, link)
            if link is not None:
                return _core.RescaledPlan(attributes, precision, rows, weights, link.name, link.scale)
            return _core.background_plan(attributes, precision, rows, weights, table_bytes, n_threads, stored)
        if kind == OWEN_VALUES:
            return self._owen_plan()
        tables = "level_uniform" if algorithm.tables == "worthwhile" and kind.order == 1 else "none"
        # For a kind that the algorithm does not compute, only the list of occurring sets is needed.
        method = "walk" if algorithm.find(kind) is None else algorithm.method
        try:
            return _core.Plan(
                attributes,
                precision,
                kind.order,
                kind.core_index,
                tables,
                table_bytes,
                n_threads,
                method,
                stored,
            )
        except _core.TableMemoryError as error:
            limit = self.options.memory_limit
            most = "a quarter of the machine's memory" if limit is None else "half of memory_limit"
            raise MemoryError(
                f"algorithm={algorithm.name!r}: {error} ({most}): raise memory_limit, or use "
                "algorithm='auto', which can do without tables"
            ) from None
        except ValueError as error:
            if method != AUTO.method and stored is None:
                error.add_note(f"algorithm='auto' has wider limits than algorithm={algorithm.name!r}")
            raise

    def _results_of(self, algorithm: Algorithm) -> dict[Kind, Results]:
        """Return the entries of the table of algorithms for the results of this model, by kind."""
        model_output = "raw" if self.link is None else self.link.model_output
        return algorithm.by_kind(self.background is not None, model_output, self.has_linear_leaves)

    def on_gpus(self, kind: Kind) -> bool:
        """Return whether GPUs compute results of this kind for this model."""
        results = self._results.get(kind)
        if results is None or "cuda" not in results.devices:
            return False
        if self.link is not None:
            return self.link_costs() is not None
        if kind == OWEN_VALUES:
            return not self.n_patterns(kind)
        return not self.is_tiled(kind) or self.pair_tables(kind) is not None

    def link_costs(self) -> dict[str, int] | None:
        """Return the costs of the tables with which GPUs compute values of the link.

        None: the tables do not fit into memory, or the margins of the background data are too far apart.
        """
        if self._link_tables is None:
            self._link_tables = (self.plan(SHAP_VALUES).table_costs(self._gpu_table_room()),)
        return self._link_tables[0]

    def is_tiled(self, kind: Kind) -> bool:
        """Return whether the CPU makes tables for each tile of rows, while a GPU has tables for all rows."""
        if self.background is None or self.link is not None or self.has_linear_leaves:
            return False
        return kind not in (SHAP_VALUES, OWEN_VALUES)

    def pair_tables(self, kind: Kind) -> PairTables | None:
        """Return the costs of the tables with which GPUs compute interventional results of a kind.

        None: the tables do not fit into memory.
        """
        if kind not in self._pair_tables:
            self._pair_tables[kind] = self.pair_tables_within(self._gpu_table_room(), kind)
        return self._pair_tables[kind]

    def pair_tables_within(self, table_bytes: int, kind: Kind) -> PairTables | None:
        """Return the costs of these tables; None if they take more bytes, or have too many entries."""
        costs = self.plan(kind).table_costs(table_bytes)
        return None if costs is None else PairTables(**costs)

    def _gpu_table_room(self) -> int:
        """Return the bytes that tables and patterns may take if only GPUs need them."""
        return min(memory.table_bytes(self.options.memory_limit, True), _GPU_TABLE_BYTES)

    def _table_room(self, kind: Kind) -> int:
        """Return the bytes that the tables of a plan may take, whatever the earlier calls were."""
        limit, wants_all_tables = self.options.memory_limit, self.options.algorithm.tables == "all"
        room = memory.table_bytes(limit, wants_all_tables)
        if limit is None or kind == SHAP_VALUES:
            return room
        # Besides the tables of SHAP values, there may be tables of Banzhaf values, or, with background data,
        # counts of patterns for Banzhaf values and for three kinds of interactions, and, with groups, tables
        # of Owen values.
        other_room = max(0, room - self._table_bytes[SHAP_VALUES, NO_INTERVALS])
        if self.background is None:
            return other_room
        return other_room // (4 if self._two_levels is None else 5)

    @property
    def table_bytes(self) -> int:
        """Bytes of memory that tables take as long as the explainer exists; tables in a file take none."""
        return sum(tuple(self._table_bytes.values()))

    @property
    def call_limit(self) -> int | None:
        """Bytes that the memory limit leaves for a call in addition to the tables."""
        limit = self.options.memory_limit
        return None if limit is None else limit - self.table_bytes

    def cuda_plan(self, kind: Kind, index: int, n_rows: int, intervals: Intervals = NO_INTERVALS) -> Any:
        """Return the ``_cuda.CudaPlan`` of a kind on a GPU, for calls of about ``n_rows`` rows."""
        method = self._gpu_method(kind, n_rows, intervals)
        cuda_plan = self._cuda_plans.get((kind, intervals), {}).get((index, method))
        if cuda_plan is not None:
            return cuda_plan
        plan = self._gpu_source(kind, intervals)
        with self._lock:
            cuda_plans = self._cuda_plans.setdefault((kind, intervals), {})
            if (index, method) not in cuda_plans:
                cuda_plans[index, method] = self._compile_on(kind, plan, index, method)
            return cuda_plans[index, method]

    def _gpu_source(self, kind: Kind, intervals: Intervals) -> Any:
        """Return the ``_core.Plan`` that a GPU explains."""
        plan = self.plan(kind, intervals)
        if intervals != NO_INTERVALS or not self.has_owen_leaves(kind) or not devices.hold_tables(self.gpus):
            return plan
        return self._column_plan

    def has_owen_leaves(self, kind: Kind) -> bool:
        """Return whether GPUs explain trees without tables by intervals leaf by leaf, for Owen values."""
        if kind != OWEN_VALUES or self.background is not None:
            return False
        if self._owen_leaves is None:
            self.plan(kind)
            from .. import _core

            self._owen_leaves = _core.has_owen_leaves(self._column_plan)
        return self._owen_leaves

    def _gpu_method(self, kind: Kind, n_rows: int, intervals: Intervals) -> str:
        """Return ``_cuda``'s name of how a GPU explains trees without tables in a call of ``n_rows`` rows."""
        if self.options.algorithm.gpu_method != "walk":
            return self.options.algorithm.gpu_method
        if self.link is not None or self.is_tiled(kind) or intervals != NO_INTERVALS:
            return "chunks"
        method = tree_costs.cuda_method(self.gpu_tree_groups_of(kind), n_rows)
        by_leaves = kind in (SHAP_VALUES, BANZHAF_VALUES)
        return "small_chunks" if method == "leaves" and not by_leaves else method

    def _compile_on(self, kind: Kind, plan: Any, index: int, method: str) -> Any:
        """Return a plan on a GPU: a ``_cuda.CudaPlan``, or with a link a ``_cuda.CudaRescaledPlan``."""
        room, n_threads = self._gpu_table_room(), effective_n_jobs(self.options.n_jobs)
        if self.is_tiled(kind):
            return devices.compile_tables_on(plan.with_tables(room, n_threads), index)
        if self.link is None:
            return devices.compile_on(plan, index, method)
        from .. import _core

        assert self.background is not None
        tables = _core.RescaledTables(plan, self._attributes(), self.background.rows, room, n_threads)
        return devices.load_cuda().CudaRescaledPlan(tables, index)

    def require(self, kind: Kind, name: str, on_gpu: bool) -> None:
        """Raise an error for results that are not computed with these options, or not for X on a GPU.

        ``name`` is the name of the results in the message of the ``ValueError`` or ``TypeError``.
        """
        results, algorithm = self._results.get(kind), self.options.algorithm
        possible = results is not None or kind in self._results_of(AUTO)
        if not possible and self.link is not None:
            raise ValueError(f"{name} are computed for the margin only: use model_output='raw'")
        if not possible and self.has_linear_leaves:
            raise self._no_linear_leaves(name)
        self._require_pairs(kind)
        if kind == OWEN_VALUES and self._two_levels is None:
            raise ValueError(
                "Owen values divide the values of groups among their columns, but there are no groups: pass "
                "feature_groups=, or compute SHAP values, index='SV'"
            )
        if not possible:
            raise ValueError(f"{name} are path-dependent only for now: use an explainer without data")
        if results is None:
            computed = " and ".join(kind.values_name for kind in self._results)
            raise ValueError(f"algorithm={algorithm.name!r} computes {computed} only, not {name}: use 'auto'")
        if not (on_gpu or self.options.devices.indices) or self.on_gpus(kind):
            return
        if "cuda" not in algorithm.devices:
            name = f"the values of algorithm={algorithm.name!r}"
        elif self.link is not None and ("cuda" not in results.devices or self.link.is_joint):
            name = f"SHAP values of a {self.link.noun}"
        elif self.link is not None:
            name = (
                f"SHAP values of a {self.link.noun} whose tables do not fit into memory or memory_limit, or "
                "are impossible, because the margins of the background rows are too far apart,"
            )
        elif self.has_linear_leaves:
            name = f"{name or 'SHAP values'} of a model with linear leaves"
        elif self.is_tiled(kind):
            name = f"interventional {name} of a model whose tables do not fit into memory or memory_limit"
        elif kind == OWEN_VALUES:
            name = f"interventional {name} of a model with leaves whose paths are too long for tables"
        if on_gpu:
            raise TypeError(f"{name} are computed on the CPU only, but X is on a GPU: copy it to the host")
        raise ValueError(f"{name} are computed on the CPU only: use device='cpu' or 'auto'")

    def n_results(self, kind: Kind) -> int:
        """Return the number of results that the core computes for a row."""
        sets = () if kind.order == 1 else getattr(self.plan(kind), ("pairs", "triples")[kind.order - 2])
        return self.n_outputs * (self.n_features + len(sets))

    def n_patterns(self, kind: Kind) -> int:
        """Return the number of patterns of background data at leaves without a table."""
        if kind == OWEN_VALUES and self.background is not None:
            return int(self.plan(kind).info()["n_patterns"])
        return int(self.info["n_patterns"]) if kind == SHAP_VALUES else 0

    def rows_alone(self, kind: Kind) -> int:
        """Return the largest number of rows for which a call uses one thread."""
        if kind not in self._rows_alone:
            groups, most_rows = self.tree_groups_of(kind), tree_costs.BLOCK_ROWS
            only_walks = self.background is None and self.options.algorithm.tables != "all"
            if only_walks and all(group.algorithm != "tables" for group in groups):
                most_rows = tree_costs.rows_to_share(groups, self.work(kind), self.options.precision)
            self._rows_alone[kind] = most_rows
        return self._rows_alone[kind]

    def counted_table_bytes(self, kind: Kind) -> int:
        """Return the bytes of existing tables that count towards the memory of a call.

        Without a memory limit, these are the tables that the call uses; otherwise, all tables.
        """
        return (
            self._table_bytes[kind, NO_INTERVALS] if self.options.memory_limit is None else self.table_bytes
        )

    def layout(self, kind: Kind, intervals: Intervals) -> TableLayout:
        """Return the layout of tables by intervals, which the first call computes."""
        key = kind, intervals
        if key not in self._layouts:
            self.plan(kind)  # which takes the lock, too
            with self._lock:
                if key not in self._layouts:
                    plan = self._laid_out(kind)
                    layout = self._core_layouts[key] = self._lay_out(kind, plan, intervals)
                    info = layout.info()
                    groups = tree_costs.tree_groups_of(info.pop("groups"))
                    self._layouts[key] = TableLayout(intervals.most_entries, groups, **info)
        return self._layouts[key]

    def forget_layout(self, kind: Kind, intervals: Intervals) -> None:
        """Forget the layout of tables that are not built; it is computed again if a call needs it."""
        self._core_layouts.pop((kind, intervals), None)

    def interval_room(self) -> int:
        """Return the bytes that tables by intervals may take: more with ``expected_rows``."""
        room = memory.table_bytes(None, self.options.expected_rows is not None)
        return room - int(self.info["table_bytes"])

    def _lay_out(self, kind: Kind, plan: Any, intervals: Intervals) -> Any:
        from .. import _core

        (most_entries, on_gpu), precision = intervals, self.options.precision
        prices = tree_costs.gpu_table_prices(precision) if on_gpu else tree_costs.table_prices(precision)
        walk = self.layout_work(kind) / self.work(kind)
        prices |= {name: walk * prices[name] for name in ("leaf", "leaf_node", "built_leaf")}
        if on_gpu and self.has_owen_leaves(kind):
            prices |= tree_costs.gpu_owen_prices(precision)
        n_rows = tree_costs.GPU_TABLE_ROWS if on_gpu else tree_costs.typical_rows(most_entries)
        return _core.IntervalLayout(plan, most_entries, n_rows, prices, self.interval_room(), on_gpu)

    def work(self, kind: Kind) -> float:
        """Return the work at each leaf, relative to SHAP values of one output."""
        n_leaf_outputs = self.ensemble.value.shape[1]
        return _INTERACTION_WORK[kind.order] * (1 + _OUTPUT_WORK * (n_leaf_outputs - 1))

    def layout_work(self, kind: Kind) -> float:
        """Return the work at each leaf of the trees that are laid out, relative to SHAP values.

        For Owen values, a tree is walked several times, with more quadrature nodes.
        """
        if kind != OWEN_VALUES or self.background is not None:
            return self.work(kind)
        precision, rows = self.options.precision, tree_costs.LEAST_TABLE_ROWS
        walk_seconds, column_seconds = (
            tree_costs.cpu_seconds(groups, rows, 1, precision=precision) - tree_costs.cpu_seconds((), rows, 1)
            for groups in (self.tree_groups_of(kind), self._column_tree_groups())
        )
        return self.work(kind) * max(1.0, walk_seconds / column_seconds if column_seconds else 1.0)

    def gpu_tree_groups_of(self, kind: Kind) -> tuple[TreeGroup, ...]:
        """Return the groups of trees that a GPU explains without tables by intervals."""
        return self._column_tree_groups() if self.has_owen_leaves(kind) else self.tree_groups_of(kind)

    def _column_tree_groups(self) -> tuple[TreeGroup, ...]:
        """Return the groups of the trees from which tables by intervals of Owen values are made."""
        return tree_costs.tree_groups_of(self._column_plan.info()["groups"])

    def tree_groups_of(self, kind: Kind) -> tuple[TreeGroup, ...]:
        """Return the groups of trees of a plan without tables by intervals."""
        if kind not in self._groups:
            self._groups[kind] = tree_costs.tree_groups_of(self.plan(kind).info()["groups"])
        return self._groups[kind]
