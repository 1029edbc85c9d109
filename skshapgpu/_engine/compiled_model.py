"""A compiled model: its plans by kind of results, the memory of their tables, and the calls that it rejects.

A *kind* of results is an order and an index; ``kind_plans.py`` has its plans. ``execution.py`` decides which
plan a call uses, and ``runs.py`` runs it on the rows.
"""

from __future__ import annotations

import os
from dataclasses import replace
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, Any
from weakref import proxy

import numpy as np

from .. import _core
from .._common import memory
from .._common.algorithms import AUTO, OWEN_VALUES, SHAP_VALUES, Algorithm, Kind, Results
from .._common.devices import Devices
from .._rows.background import Background
from ..adapters.ensemble import Ensemble
from . import additivity
from .background_plans import no_linear_leaves, plan_of
from .features import TwoLevelGame
from .kind_plans import NO_INTERVALS, Intervals, KindPlan
from .links import Link
from .options import Options
from .sharing import Sharing

if TYPE_CHECKING:
    from .execution import ExecutionPlan

#: Largest number of bytes of the tables and patterns that only GPUs need: for values of a link, and for
#: interventional interactions.
_GPU_TABLE_BYTES = 4 * 2**30

#: Attributes of a compiled model that are computed again when it is unpickled.
_NOT_PICKLED = (
    "_viewed",
    "_locks",
    "_kind_plans",
    "table_sizes",
    "small_calls",
    "_allowed_gaps",
    "gpus",
    "results",
    "checked_kinds",
)


@cache
def _keep_memory() -> None:
    """Let the core keep the memory of deleted large tables and results, and use it for the next ones."""
    _core.keep_memory(memory.kept_bytes())


class _KindPlans(dict[Kind, KindPlan]):
    """The plans of a model by kind of results, each of which exists from its first use on."""

    def __init__(self, model: CompiledModel) -> None:
        super().__init__()
        # The model owns its plans. A cycle of references would keep the memory of the tables of a deleted
        # model until Python looks for cycles.
        self._model: Any = proxy(model)

    def __missing__(self, kind: Kind) -> KindPlan:
        return self.setdefault(kind, plan_of(self._model, kind))


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
    has_linear_leaves : bool
        Whether leaves are functions of X.
    checks_rows : bool
        Whether each row has its own limit of the additivity gap; then the core returns margins.
    n_features, n_outputs : int
        Numbers of features and outputs of the results, other than Owen values.
    n_computed_outputs : int
        Number of outputs that the core computes, without the output that ``widen`` adds.
    results : dict of Kind to Results
        Entries of the table of algorithms for the results that the algorithm computes for this model.
    checked_kinds : set of Kind
        Kinds of results whose additivity is checked.
    options : Options
        The options of the parameter, but with double precision if the trees of the ensemble need it.
    largest_gap, largest_gap_of_floats : ndarray of float64, shape (number of margins,)
        Limits of the additivity gap of float64 and float32 values of margins, so that values of trees whose
        leaves cancel add up to the margin, too.
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
        self.two_levels = two_levels
        self.options = options
        self.widen = widen
        self.output_names = output_names
        self.background = background
        self.link = link
        self.sharing = sharing
        self.has_linear_leaves = ensemble.has_linear_leaves
        self.checks_rows = link is not None or self.has_linear_leaves
        self.n_features = ensemble.n_players if sharing is None else sharing.n_features
        self.n_computed_outputs = ensemble.n_outputs if link is None else link.n_outputs(ensemble)
        self.n_outputs = 2 if widen else self.n_computed_outputs
        self._compile(tables)
        gaps = additivity.largest_gaps(self)
        self.largest_gap, self.largest_gap_of_floats = gaps.gap, gaps.gap_of_floats
        if options.precision == "single" and (gaps.cancel or additivity.needs_double(self)):
            self.options = replace(options, precision="double")
            self._compile()

    def _compile(self, tables: dict[str, np.ndarray] | None = None) -> None:
        _keep_memory()
        self._locks: dict[int, Lock] = {}  # by process
        self._kind_plans = _KindPlans(self)
        #: Bytes of the tables of each plan, the oldest plan first.
        self.table_sizes: dict[tuple[Kind, Intervals], int] = {}
        #: How calls of few rows are executed, by kind and number of rows.
        self.small_calls: dict[tuple[Kind, int], ExecutionPlan] = {}
        self._allowed_gaps: dict[np.dtype, tuple[np.ndarray, float]] = {}
        self.gpus = self.options.devices.indices or (0,)  # which all have the same tables
        self.results = self._results_of(self.options.algorithm)
        self.checked_kinds = self._kinds_checked(self.options.check_additivity)
        plan = self.of(SHAP_VALUES).restore(tables or None)
        self.constant, self.leaf_magnitude = plan.constant, plan.leaf_magnitude
        if self.has_linear_leaves and not np.isfinite(self.leaf_magnitude).all():
            raise ValueError("data has numbers so large that a linear leaf overflows")
        self.rounding = additivity.rounding(self, self.leaf_magnitude)
        self._problem_with_float32 = additivity.problem_with_float32(self)
        if self.link is None:
            self._base_value = np.array(plan.base_value, np.float64)
        self.info: dict[str, Any] = plan.info()

    def of(self, kind: Kind) -> KindPlan:
        """Return the plans of a kind of results."""
        return self._kind_plans[kind]

    @property
    def lock(self) -> Lock:
        """Lock of this process: a child process must not wait for a thread that exists only in its parent."""
        return self._locks.setdefault(os.getpid(), Lock())

    def on_gpu(self, index: int) -> CompiledModel:
        """Return this model, with the same plans, for calls on one of its GPUs."""
        options = replace(self.options, devices=Devices(indices=(index,)))
        return self._view(options=options, small_calls={})

    def checking(self, additivity: bool) -> CompiledModel:
        """Return this model, with the same plans, for calls that check additivity, or that do not."""
        return self._view(checked_kinds=self._kinds_checked(additivity))

    def _view(self, **changes: Any) -> CompiledModel:
        """Return this model, with the same plans and caches, but other attributes."""
        view = object.__new__(CompiledModel)
        view.__dict__ = vars(self) | changes | {"_viewed": self}  # whose plans the view uses
        return view

    def _kinds_checked(self, additivity: bool) -> set[Kind]:
        return {kind for kind in self.results if kind.adds_up} if additivity else set()

    def base_value(self, labels: np.ndarray | None) -> np.ndarray:
        """Return base values of the core's outputs: (n_outputs,), or (n_rows, 1) with labels."""
        if self.link is None:
            return self._base_value
        assert self.background is not None
        margin = self.of(SHAP_VALUES).plan().background_margin
        return self.link.base_value(margin, self.background.weights, labels)

    def require_range_of(self, dtype: Any, advice: str) -> None:
        """Raise ``ValueError``, with this advice, if the type cannot hold the values of this model."""
        if self._problem_with_float32 is not None and dtype == np.float32:
            raise ValueError(f"{self._problem_with_float32}: {advice}")

    def allowed_gaps(self, dtype: np.dtype) -> tuple[np.ndarray, float]:
        """Return the largest allowed additivity gap of each output, and the least of these.

        They are those of all rows with values of this type, unless the model :attr:`checks_rows`.
        """
        gaps = self._allowed_gaps.get(dtype)
        if gaps is None:
            allowed = additivity.allowed_gap(self, dtype)
            gaps = self._allowed_gaps[dtype] = allowed, float(allowed.min())
        return gaps

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in _NOT_PICKLED}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._compile()

    def drop_tables(self, kind: Kind, needed: Intervals) -> None:
        """Drop tables by intervals for calls of other sizes, the oldest first, until the tables fit."""
        others = [key for key in self.table_sizes if key[1] != NO_INTERVALS and key != (kind, needed)]
        room = self.interval_room()
        while others and sum(self.table_sizes[key] for key in (*others, (kind, needed))) > room:
            key = others.pop(0)
            self.of(key[0]).drop(key[1])
            del self.table_sizes[key]

    def contents(self) -> dict[str, np.ndarray]:
        """Return the contents of the tables that every call for SHAP values uses; {} without tables."""
        if self.link is not None or self.has_linear_leaves:
            return {}
        return self.of(SHAP_VALUES).plan().contents()

    def _results_of(self, algorithm: Algorithm) -> dict[Kind, Results]:
        """Return the entries of the table of algorithms for the results of this model, by kind."""
        model_output = "raw" if self.link is None else self.link.model_output
        return algorithm.by_kind(self.background is not None, model_output, self.has_linear_leaves)

    def gpu_table_room(self) -> int:
        """Return the bytes that tables and patterns may take if only GPUs need them."""
        return min(memory.table_bytes(self.options.memory_limit, True), _GPU_TABLE_BYTES)

    @property
    def table_bytes(self) -> int:
        """Bytes of memory that tables take as long as the explainer exists; tables in a file take none."""
        return sum(tuple(self.table_sizes.values()))

    @property
    def call_limit(self) -> int | None:
        """Bytes that the memory limit leaves for a call in addition to the tables."""
        limit = self.options.memory_limit
        return None if limit is None else limit - self.table_bytes

    def require(self, kind: Kind, name: str, on_gpu: bool) -> None:
        """Raise an error for results that are not computed with these options, or not for X on a GPU.

        ``name`` is the name of the results in the message of the ``ValueError`` or ``TypeError``.
        """
        results, algorithm = self.results.get(kind), self.options.algorithm
        possible = results is not None or kind in self._results_of(AUTO)
        if not possible and self.link is not None:
            if not self.link.has_margin:
                raise ValueError(
                    f"{name} are computed for the margin only, and this model has no margin: explain() "
                    f"computes SHAP values of the {self.link.noun}"
                )
            raise ValueError(f"{name} are computed for the margin only: use model_output='raw'")
        if not possible and self.has_linear_leaves:
            raise no_linear_leaves(name)
        if kind == OWEN_VALUES and self.two_levels is None:
            raise ValueError(
                "Owen values divide the values of groups among their columns, but there are no groups: pass "
                "feature_groups=, or compute SHAP values, index='SV'"
            )
        plan = self.of(kind)
        plan.require_pairs()
        if not possible:
            raise ValueError(f"{name} are path-dependent only for now: use an explainer without data")
        if results is None:
            computed = " and ".join(kind.values_name for kind in self.results)
            raise ValueError(f"algorithm={algorithm.name!r} computes {computed} only, not {name}: use 'auto'")
        if not (on_gpu or self.options.devices.indices) or plan.is_on_gpus:
            return
        if "cuda" not in algorithm.devices:
            name = f"the values of algorithm={algorithm.name!r}"
        else:
            name = plan.name_without_gpus(name)
        if on_gpu:
            raise TypeError(f"{name} are computed on the CPU only, but X is on a GPU: copy it to the host")
        raise ValueError(f"{name} are computed on the CPU only: use device='cpu' or 'auto'")

    def interval_room(self) -> int:
        """Return the bytes that tables by intervals may take: more with ``expected_rows``."""
        room = memory.table_bytes(None, self.options.expected_rows is not None)
        return room - int(self.info["table_bytes"])
