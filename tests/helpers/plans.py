"""Plans of the core with each kind of tables."""

from __future__ import annotations

from typing import Any

from skshapgpu import _core
from skshapgpu.adapters.ensemble import Ensemble, attributes_of

#: Kinds of tables: of level-uniform trees only, by intervals, or of all leaves, as in Fast TreeSHAP v2.
KINDS = ("level_uniform", "intervals", "fast_v2")

#: Prices of walks and lookups with which every tree that can have tables gets some.
ALWAYS_TABLES = {
    "leaf": 1.0,
    "leaf_node": 1.0,
    "table": 1.0,
    "lookup": 0.0,
    "doubling": 0.0,
    "small_bytes": 1.0,
    "line_bytes": 64.0,
    "built_leaf": 5.0,
    "built_table": 1.0,
    "unit_node": 0.0,
    "entry": 0.0,
    "byte": 0.0,
    "least_leaves": 1.0,
}

#: Prices with which no tree gets tables, but all trees that begin alike are merged.
NEVER_TABLES = ALWAYS_TABLES | {"lookup": 1e9}


def interval_plan(
    ensemble: Ensemble,
    precision: str = "double",
    *,
    index: str = "SII",
    most_entries: int = 4096,
    n_threads: int = 1,
) -> Any:
    """Compile a plan with tables by intervals for every tree that can have them."""
    return with_intervals(
        _core.Plan(attributes_of(ensemble), precision, index=index), most_entries, n_threads
    )


def with_intervals(plan: Any, most_entries: int = 4096, n_threads: int = 1) -> Any:
    """Compile a plan with tables by intervals from one without."""
    return _core.interval_plan(plan, _core.IntervalLayout(plan, most_entries, 1e9, ALWAYS_TABLES), n_threads)


def merged_plan(plan: Any, n_threads: int = 1, on_gpu: bool = False) -> Any:
    """Compile a plan whose trees are merged where they begin alike; optionally within GPUs' limits."""
    layout = _core.IntervalLayout(plan, 1, 1e9, NEVER_TABLES, on_gpu=on_gpu)
    return _core.interval_plan(plan, layout, n_threads)


def plan_with_tables(ensemble: Ensemble, precision: str, kind: str, **options: Any) -> Any:
    """Compile a plan with a kind of tables; all kinds take the options of ``_core.Plan``."""
    if kind == "intervals":
        return interval_plan(ensemble, precision, **options)
    options |= {"tables": "level_uniform"} if kind == "level_uniform" else {"method": "fast_v2"}
    return _core.Plan(attributes_of(ensemble), precision, **options)


def least_table_bytes(plan: Any) -> int:
    """Return the fewest bytes of tables and patterns that a plan for GPUs needs, within a factor of 2.

    The plan is a ``_core.BackgroundPairsPlan`` or ``_core.RescaledPlan``. With so few bytes, few leaves have
    tables.
    """
    n_bytes = 1
    while plan.table_costs(n_bytes) is None:
        n_bytes *= 2
    return n_bytes
