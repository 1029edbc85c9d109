"""Plans of calls, which ``TreeExplainer.plan`` returns: what a call would do, and what it would take."""

from __future__ import annotations

from .._common import memory
from .._explanations.interactions import INDEX_NAMES
from .._rows.inputs import HostRows
from .algorithms import BANZHAF_VALUES, OWEN_VALUES, SHAP_VALUES, Kind
from .calls import HostRun, value_row_bytes
from .costs import CallPlan
from .pairs import Request, row_bytes
from .plans import CompiledModel

_VALUES = {SHAP_VALUES: "SHAP values", BANZHAF_VALUES: "Banzhaf values", OWEN_VALUES: "Owen values"}


def call_plan(compiled: CompiledModel, X: HostRows, kind: Kind, request: Request | None) -> CallPlan:
    """Plan a call for values, or for the requested interactions; only the number of rows of X is used."""
    execution, options = compiled.plan_execution(kind, X.n_rows), compiled.options
    run, n_sets = HostRun(compiled, kind, X, execution, None), 0
    if request is None:
        name = _VALUES[kind]
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
    seconds, reason = compiled.estimate(kind, X.n_rows, execution)
    if seconds is not None and request is not None and request.form == "strongest" and size < X.n_rows:
        seconds *= 2  # the first pass finds the strongest
    by_group = compiled.is_estimated(kind) and not compiled.is_tiled(kind)
    return CallPlan(
        n_rows=X.n_rows,
        device=run.device,
        groups=execution.groups if by_group else (),
        table_bytes=sum(group.table_bytes for group in execution.groups),
        result_bytes=need.result,
        peak_bytes=need.peak(size),
        cpu_reason=None if execution.indices else compiled.cpu_reason(kind),
        refusal=refusal,
        build_seconds=execution.building,
        seconds=seconds,
        result=name,
        no_seconds_reason=reason,
    )
