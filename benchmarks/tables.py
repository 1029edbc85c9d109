"""Tables built in advance: the time to build them and to explain with them, on one thread of the CPU.

On forests, it compares the algorithms of tables 3 and 4 of the Fast TreeSHAP paper (arXiv 2109.09847), as
implemented in this package and in the paper's own. On oblivious trees, it compares our tables with
CatBoost's.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import models
import numpy as np
import peers

from skshapgpu import _core
from skshapgpu.adapters.ensemble import attributes_of

DEFAULT_MODELS = (
    "rf-adult-*",
    "rf-superconductor-*",
    "rf-covtype-4",
    "rf-covtype-8",
    "xgb-adult-*",
    "catboost-*-*",
)
QUICK_MODELS = ("rf-adult-4", "catboost-adult-6")

#: Our systems on forests and on oblivious trees, by name: (algorithm, precision). Ratios refer to the first.
#: The paper computes in double precision.
OURS = {
    "fast_v2": ("fast_v2", "single"),
    "auto": ("auto", "single"),
    "treeshap": ("treeshap", "double"),
    "fast_v1-double": ("fast_v1", "double"),
    "fast_v2-double": ("fast_v2", "double"),
    "auto-double": ("auto", "double"),
}
OURS_OBLIVIOUS = {
    "auto": ("auto", "single"),
    "quadrature": ("quadrature", "single"),
    "auto-double": ("auto", "double"),
}

#: Options of the core for each algorithm's tables, and the memory limit of the tables.
TABLES: dict[str, dict[str, Any]] = {"fast_v2": {"method": "fast_v2"}, "auto": {"tables": "level_uniform"}}
TABLE_BYTES = 2**28

#: Seconds for which building tables is repeated, and the maximum number of repetitions.
PREP_SECONDS, PREP_CALLS = 0.05, 25

#: Largest error at which a system is still timed: the largest difference divided by the largest magnitude.
#: The first three are as for `values`. Our other algorithms in double precision, and other libraries, are
#: compared with our quadrature in double precision.
TOLERANCE = {"definition": 1e-11, "single": 1e-5, "additivity": 1e-5, "double": 1e-9, "peer": 1e-3}


#: Explaining the rows must take at least this fraction of the time of building tables; otherwise a call that
#: does both could not tell them apart.
MEASURABLE = 0.1


@dataclass
class Timer:
    """Timed calls of one system in each round."""

    runner: peers.Runner | peers.RemoteRunner
    #: Number of rows of a call that measures the building of tables, for systems that build them in each
    #: call.
    fixed_rows: int | None = None
    #: Measures seconds to build the tables, if the system keeps them.
    prep: Callable[[], float] | None = None
    call_rows: int = 0
    calls: int = 1
    fixed_calls: int = 1

    def plan(self, n_rows: int, seconds: float) -> dict[str, int]:
        """Choose rows that take about ``seconds`` to explain, and no less time than building tables takes."""
        fixed = 0.0 if self.fixed_rows is None else self.runner.time(self.fixed_rows)[0]
        tried = min(8, n_rows)
        while (taken := self.runner.time(tried)[0] - fixed) < max(seconds, fixed) / 5 and tried < n_rows:
            tried = min(n_rows, tried * 4)
        per_row = max(taken / tried, 1e-9)
        self.call_rows = min(n_rows, max(16, math.ceil(max(seconds, fixed) / per_row)))
        self.calls = max(1, math.ceil(seconds / 5 / (fixed + per_row * self.call_rows)))
        # Repeat it as often as ours, so that both systems find their code and data in the caches.
        self.fixed_calls = max(self.calls, min(PREP_CALLS, math.ceil(PREP_SECONDS / max(fixed, 1e-6))))
        return {"call_rows": self.call_rows, "calls": self.calls}

    def time(self) -> tuple[float | None, float, float]:
        """Measure seconds to build tables, seconds to explain a row with them, and CPU over wall time."""
        wall, cpu = self.runner.time(self.call_rows, self.calls)
        if self.fixed_rows is None:
            return self.prep and self.prep(), wall / self.call_rows, cpu / wall
        fixed = self.runner.time(self.fixed_rows, self.fixed_calls)[0]
        return fixed, (wall - fixed) / (self.call_rows - self.fixed_rows), cpu / wall


def measure(
    case: models.Case,
    ensemble: Any,
    arguments: argparse.Namespace,
    check_ours: Callable[..., tuple[np.ndarray, dict[str, float | None]]],
) -> dict[str, Any]:
    """Check one model, then time all systems on it in turn."""
    result: dict[str, Any] = {**peers.describe(case, ensemble), "rows": len(case.X), "systems": {}}
    truth, result["accuracy"] = check_ours(case, ensemble, "quadrature")
    errors = result["accuracy"].items()
    wrong = [name for name, error in errors if error is not None and not error <= TOLERANCE[name]]
    if wrong:
        result["refused"] = f"not timed: {', '.join(wrong)} beyond tolerance"
        return result
    timers: dict[str, Timer] = {}
    systems = result["systems"]
    try:
        for name, (start, allowed) in starters(case, ensemble, arguments).items():
            entry: dict[str, Any] = {}
            systems[name] = entry
            try:
                timer = timers[name] = start()
                peers.check(timer.runner, truth, allowed, arguments.slowest, entry)
                entry |= timer.plan(len(case.X), arguments.seconds)
            except Exception as error:
                entry["refused"] = peers.reason(error)
                if name in timers:
                    timers.pop(name).runner.close()
        time_in_turn(timers, systems, len(case.X), arguments.repeats)
    finally:
        for timer in timers.values():
            timer.runner.close()
    return result


def starters(
    case: models.Case, ensemble: Any, arguments: argparse.Namespace
) -> dict[str, tuple[Callable[[], Timer], float]]:
    """Return, for each name, a function that makes the system's timer, and the largest permitted error."""
    oblivious = case.family == "catboost"
    attributes = attributes_of(ensemble)
    starters: dict[str, tuple[Callable[[], Timer], float]] = {
        name: (partial(ours, case, attributes, algorithm, precision), TOLERANCE[precision])
        for name, (algorithm, precision) in (OURS_OBLIVIOUS if oblivious else OURS).items()
    }
    if oblivious:
        for name, options in CATBOOST.items():
            starters[name] = partial(catboost, case, options), TOLERANCE["peer"]
        return starters
    for version in ("v2", "v1", "v0"):
        start = partial(fasttreeshap, case, version, arguments.fasttreeshap_python)
        starters[f"fasttreeshap-{version}"] = start, TOLERANCE["peer"]
    return starters


def ours(case: models.Case, attributes: dict[str, Any], algorithm: str, precision: str) -> Timer:
    payload = {"model": case.model, "device": "cpu", "n_jobs": 1}
    options = {"algorithm": algorithm, "precision": precision}
    timer = Timer(peers.Runner(peers.BUILDERS["ours"]({**payload, **options}), case.X))
    if algorithm not in TABLES or not tables_made(attributes, precision, algorithm)[1]:
        return timer

    def prep() -> float:
        times: list[float] = []
        while sum(times) < PREP_SECONDS and len(times) < PREP_CALLS:
            times.append(tables_made(attributes, precision, algorithm)[0])
        return median(times)

    timer.prep = prep
    return timer


def tables_made(attributes: dict[str, Any], precision: str, algorithm: str) -> tuple[float, int]:
    """Return the seconds that it takes to lay out and build a plan's tables, and the bytes of the tables."""
    plan = _core.Plan(attributes, precision, table_bytes=TABLE_BYTES, n_threads=1, **TABLES[algorithm])
    info = plan.info()
    return info["table_seconds"], info["table_bytes"]


def fasttreeshap(case: models.Case, version: str, python: str) -> Timer:
    """Make a timer of FastTreeSHAP, which builds all tables in each call, even in a call without rows."""
    trees = peers.plain_trees(case.model)
    if version == "v2" and trees["table_entries"] > peers.MAX_TABLE_ENTRIES:
        raise peers.NotApplicable(f"not timed: its tables have {trees['table_entries']:,} entries")
    runner = peers.RemoteRunner(python, {}, "fasttreeshap", {**trees, "algorithm": version}, case.X)
    return Timer(runner, fixed_rows=0 if version == "v2" else None)


#: Options of CatBoost's calls. In each call, CatBoost either computes the values of all leaves or walks the
#: trees for each row. By default, it computes the values of all leaves if there are more rows than leaves in
#: a tree.
CATBOOST = {
    "catboost": {"shap_mode": "UsePreCalc"},
    "catboost-direct": {"shap_mode": "NoPreCalc"},
    "catboost-exact": {"shap_mode": "UsePreCalc", "shap_calc_type": "Exact"},
}


def catboost(case: models.Case, options: dict[str, str]) -> Timer:
    from catboost import Pool

    def call(pool: Any) -> np.ndarray:
        return case.model.get_feature_importance(pool, type="ShapValues", thread_count=1, **options)

    note = ", ".join(["Pool made before", *options.values()])
    system = peers.System(lambda X: Pool(X, thread_count=1), call, peers.without_base, note)
    return Timer(peers.Runner(system, case.X), fixed_rows=1 if "UsePreCalc" in options.values() else None)


def time_in_turn(timers: dict[str, Timer], systems: dict[str, Any], n_rows: int, repeats: int) -> None:
    """Time every system once per round; each round starts with another system."""
    names = list(timers)
    prep: dict[str, list[float]] = {name: [] for name in names}
    score: dict[str, list[float]] = {name: [] for name in names}
    busy: dict[str, list[float]] = {name: [] for name in names}
    for i in range(repeats):
        first = i % max(len(names), 1)
        for name in names[first:] + names[:first]:
            seconds, per_row, cpu_over_wall = timers[name].time()
            score[name].append(per_row * n_rows)
            busy[name].append(cpu_over_wall)
            if seconds is not None:
                prep[name].append(seconds)
    reference = next(iter(systems))
    for name in names:
        entry = systems[name]
        entry["cpu_over_wall"] = median(busy[name])
        # A peer is timed by a whole call, which builds the tables; ours has its tables already.
        made_in_call = timers[name].fixed_rows is not None
        call = [p + s for p, s in zip(prep[name], score[name])] if made_in_call else score[name]
        entry["call_seconds"] = peers.summary(call)
        if reference in timers:
            entry["call_over_ours"] = over(call, score[reference])
        if prep[name]:
            entry["prep_seconds"] = peers.summary(prep[name])
            if prep.get(reference):
                entry["prep_over_ours"] = over(prep[name], prep[reference])
        rows = timers[name].call_rows / n_rows
        if made_in_call and median(score[name]) * rows < MEASURABLE * median(prep[name]):
            continue  # lost in the noise of building the tables
        entry["score_seconds"] = peers.summary(score[name])
        if reference in timers:
            entry["score_over_ours"] = over(score[name], score[reference])
        if "treeshap" in timers:
            entry["treeshap_over_score"] = over(score["treeshap"], score[name])


def over(figures: list[float], others: list[float]) -> dict[str, float]:
    return peers.summary([a / b for a, b in zip(figures, others)])


def print_model(result: dict[str, Any]) -> None:
    peers.print_head(result)
    if "refused" in result:
        return
    print(
        f"{'':16}{'prep, s':>11}{'score, s':>11}{'min':>11}{'max':>11}{'prep/ours':>11}{'score/ours':>11}"
        f"{'call/ours':>11}{'treeshap/':>11}{'error':>9}{'rows':>7}{'cpu':>6}"
    )
    for name, entry in result["systems"].items():
        if "refused" in entry:
            print(f"{name:16}{entry['refused'][:110]}")
            continue

        def figure(key: str, digits: int, of: str = "median", entry: dict[str, Any] = entry) -> str:
            return format(entry[key][of], f"11.{digits}f") if key in entry else f"{'-':>11}"

        print(
            f"{name:16}{figure('prep_seconds', 4)}{figure('score_seconds', 4)}"
            f"{figure('score_seconds', 4, 'min')}{figure('score_seconds', 4, 'max')}"
            f"{figure('prep_over_ours', 2)}{figure('score_over_ours', 2)}{figure('call_over_ours', 2)}"
            f"{figure('treeshap_over_score', 2)}{entry['error']:9.1e}{entry['call_rows']:>7}"
            f"{entry['cpu_over_wall']:6.2f}  {entry['note']}"
        )
    sys.stdout.flush()
