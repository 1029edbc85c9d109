"""SHAP values of single rows, ours and other libraries', checked and then timed in turn."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import replace
from typing import Any

import models
import numpy as np
import peers

from skshapgpu import TreeExplainer, _core, reference
from skshapgpu.adapters.ensemble import attributes_of

DEFAULT_MODELS = (
    "cal_housing-med",
    "adult-med",
    "covtype-med",
    "rf-adult-8",
    "rf-superconductor-8",
    "lightgbm-adult",
    "histgb-adult",
    "catboost-adult",
)

#: --quick adds one of each kind of small model.
QUICK_MODELS = (
    "cal_housing-small",
    "adult-small",
    "covtype-small",
    "rf-adult-4",
    "lightgbm-adult",
    "histgb-adult",
    "catboost-adult",
)

#: name: (precision, threads, forced instruction set). Ratios refer to the first.
OURS: dict[str, tuple[str, int, str | None]] = {
    "ours": ("single", 1, None),
    "ours-double": ("double", 1, None),
    "ours-2-threads": ("single", 2, None),
    "ours-avx2": ("single", 1, "avx2"),
}

#: Largest error at which a system is still timed: the largest difference divided by the largest magnitude.
#: "definition": our double precision against the definition. "single": our single precision against our
#: double. "additivity": base value plus values against the model's margin, which libraries add up in float32.
#: "peer": other libraries, some of which compute in float32 or with a fixed number of quadrature nodes,
#: against our double precision.
TOLERANCE = {"definition": 1e-11, "single": 1e-5, "additivity": 1e-5, "peer": 1e-3}

#: Rows on which all systems are checked.
CHECKED_ROWS = 16

#: Limit on nodes x subsets of features of the trees that are checked against the definition, which is
#: evaluated for all subsets.
MAX_DEFINITION_WORK = 2e7


def measure(case: models.Case, ensemble: Any, arguments: argparse.Namespace) -> dict[str, Any]:
    """Check one model, then time all systems on it in turn."""
    result: dict[str, Any] = {**peers.describe(case, ensemble), "rows": len(case.X), "systems": {}}
    truth, result["accuracy"] = check_ours(case, ensemble)
    errors = result["accuracy"].items()
    wrong = [name for name, error in errors if error is not None and not error <= TOLERANCE[name]]
    if wrong:
        result["refused"] = f"not timed: {', '.join(wrong)} beyond tolerance"
        return result
    runners: dict[str, Any] = {}
    systems = result["systems"]
    try:
        able = [name for name in arguments.peers if peers.FAMILY.get(name, case.family) == case.family]
        for name in [*OURS, *able]:
            entry: dict[str, Any] = {}
            systems[name] = entry
            try:
                runner = runners[name] = start(name, case, arguments)
                allowed = TOLERANCE["single" if name in OURS else "peer"]
                peers.check(runner, truth, allowed, arguments.slowest, entry)
                entry |= peers.plan_calls(runner, len(case.X), arguments.seconds)
                if name in OURS:  # a single row fills a vector of many: no fixed cost to subtract
                    entry["extrapolated"] = False
            except Exception as error:
                if name == "ours":
                    raise
                entry["refused"] = peers.reason(error)
                if name in runners:
                    runners.pop(name).close()
        seconds = peers.time_in_turn(runners, systems, len(case.X), arguments.repeats)
        peers.add_ratios(systems, seconds, "ours", "seconds_over_ours")
    finally:
        for runner in runners.values():
            runner.close()
    return result


def start(name: str, case: models.Case, arguments: argparse.Namespace) -> peers.Runner | peers.RemoteRunner:
    """Start a runner of one system, in a process of its own if the environment or interpreter differs."""
    if name in OURS:
        precision, threads, instruction_set = OURS[name]
        payload = {"model": case.model, "device": "cpu", "precision": precision, "n_jobs": threads}
        if instruction_set is None:
            return peers.Runner(peers.BUILDERS["ours"](payload), case.X)
        environment = {"SKSHAPGPU_ISA": instruction_set, "PYTHONPATH": os.pathsep.join(sys.path)}
        return peers.RemoteRunner(sys.executable, environment, "ours", payload, case.X)
    if name == "fasttreeshap":
        trees = peers.plain_trees(case.model)
        return peers.RemoteRunner(arguments.fasttreeshap_python, {}, name, trees, case.X)
    return peers.Runner(peers.BUILDERS[name](case), case.X)


def check_ours(
    case: models.Case, ensemble: Any, algorithm: str = "auto"
) -> tuple[np.ndarray, dict[str, float | None]]:
    """Compute our values of the first rows in double precision, and our errors.

    The error against the definition is None if no tree is small enough for it.
    """
    X = case.X[:CHECKED_ROWS]
    options: dict[str, Any] = {"device": "cpu", "check_additivity": False, "algorithm": algorithm}
    double = TreeExplainer(case.model, precision="double", **options)
    truth = peers.outputs_second(double.shap_values(X.astype(np.float64)))
    single = peers.outputs_second(TreeExplainer(case.model, **options).shap_values(X))
    total = truth.sum(axis=2) + double.expected_value
    return truth, {
        "definition": definition_error(ensemble, X[:4]),
        "single": peers.relative_error(single, truth),
        "additivity": peers.relative_error(total, models.margin(case, X)),
    }


def definition_error(ensemble: Any, X: np.ndarray) -> float | None:
    """Compute our error in double precision on the first, middle and last tree that is small enough."""

    def feasible(tree: int) -> bool:
        nodes = slice(ensemble.tree_offsets[tree], ensemble.tree_offsets[tree + 1])
        used = len(np.unique(ensemble.feature[nodes][ensemble.left[nodes] >= 0]))
        work = (nodes.stop - nodes.start) * 2.0**used
        return used <= reference.MAX_USED_FEATURES and work <= MAX_DEFINITION_WORK

    trees = [tree for tree in range(ensemble.n_trees) if feasible(tree)]
    if not trees:
        return None
    worst = 0.0
    for tree in {trees[0], trees[len(trees) // 2], trees[-1]}:
        part = one_tree(ensemble, tree)
        expected = reference.path_dependent(part, X).values
        computed = np.empty_like(expected)
        plan = _core.Plan(attributes_of(part), "double")
        plan.explain(X.astype(np.float64), computed, None, 1)
        worst = max(worst, peers.relative_error(computed, expected))
    return worst


def one_tree(ensemble: Any, tree: int) -> Any:
    """Return an ensemble of only this tree."""
    start, stop = ensemble.tree_offsets[tree : tree + 2]
    per_node = ("left", "right", "feature", "threshold", "missing_left", "cover", "value", "category_set")
    return replace(
        ensemble,
        tree_offsets=np.array([0, stop - start]),
        tree_output=ensemble.tree_output[tree : tree + 1],
        **{name: getattr(ensemble, name)[start:stop] for name in per_node if len(getattr(ensemble, name))},
    )


def print_model(result: dict[str, Any]) -> None:
    peers.print_head(result)
    if "refused" in result:
        return
    print(
        f"{'':16}{'rows/s':>12}{'min':>12}{'max':>12}{'time/ours':>11}{'error':>9}{'rows':>7}"
        f"{'1 row, s':>10}{'cpu':>6}"
    )
    for name, entry in result["systems"].items():
        if "refused" in entry:
            print(f"{name:16}{entry['refused'][:100]}")
            continue
        rate = entry["rows_per_second"]
        print(
            f"{name:16}{rate['median']:12,.1f}{rate['min']:12,.1f}{rate['max']:12,.1f}"
            f"{entry['seconds_over_ours']['median']:11.2f}{entry['error']:9.1e}"
            f"{entry['call_rows']:>6}{'*' if entry['extrapolated'] else ' '}"
            f"{entry['one_row_seconds']:10.4f}{entry['cpu_over_wall']:6.2f}  {entry['note']}"
        )
    sys.stdout.flush()
