"""SHAP interaction values on one thread of the CPU, ours and other libraries'."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import models
import numpy as np
import peers

from skshapgpu import TreeExplainer, _core
from skshapgpu.reference import MAX_USED_FEATURES, path_dependent_interactions

DEFAULT_MODELS = ("cal_housing-med", "adult-med", "covtype-med", "rf-adult-8")

ROWS = 2_000

#: name: (precision, threads). The first is what ratios refer to.
OURS = {"ours": ("single", 1), "ours-double": ("double", 1), "ours-2-threads": ("single", 2)}

#: Largest error that is still timed: the largest difference over the largest magnitude. Ours in double
#: precision against the definition, in single against double; others against ours in double.
TOLERANCE = {"definition": 1e-10, "single": 5e-6, "peer": 1e-3}


def measure(
    case: models.Case, ensemble: Any, arguments: argparse.Namespace, one_tree: Callable[[Any, int], Any]
) -> dict[str, Any]:
    """Check one model, then time all systems on it in turn."""
    result: dict[str, Any] = {**peers.describe(case, ensemble), "rows": len(case.X), "systems": {}}
    X = case.X[:16]
    double = TreeExplainer(case.model, device="cpu", precision="double")
    truth = outputs_first(double.shap_interaction_values(X.astype(np.float64)))
    single = outputs_first(TreeExplainer(case.model, device="cpu").shap_interaction_values(X))
    result["accuracy"] = {
        "definition": definition_error(one_tree(ensemble, 0), X[:4]),
        "single": peers.relative_error(single, truth),
    }
    errors = result["accuracy"].items()
    wrong = [name for name, error in errors if error is not None and not error <= TOLERANCE[name]]
    if wrong:
        result["refused"] = f"not timed: {', '.join(wrong)} beyond tolerance"
        return result
    runners: dict[str, peers.Runner] = {}
    systems = result["systems"]
    for name in [*OURS, *(name for name in BUILDERS if peers.FAMILY.get(name, case.family) == case.family)]:
        entry = systems[name] = {}
        try:
            system = ours(name, case) if name in OURS else BUILDERS[name](case)
            runner = runners[name] = peers.Runner(system, case.X)
            allowed = TOLERANCE["single" if name in OURS else "peer"]
            peers.check(runner, truth, allowed, arguments.slowest, entry)
            entry |= peers.plan_calls(runner, len(case.X), arguments.seconds)
            if name in OURS:  # its one row fills a vector of many: no fixed cost to take out
                entry["extrapolated"] = False
        except Exception as error:
            if name == "ours":
                raise
            entry["refused"] = peers.reason(error)
            runners.pop(name, None)
    seconds = peers.time_in_turn(runners, systems, len(case.X), arguments.repeats)
    peers.add_ratios(systems, seconds, "ours", "seconds_over_ours")
    return result


def definition_error(tree: Any, X: np.ndarray) -> float | None:
    """Error of our double precision on a tree; None if it is too large for the definition."""
    used = len(np.unique(tree.feature[tree.left >= 0]))
    if used > MAX_USED_FEATURES or len(tree.left) * 2.0**used > 2e7:
        return None
    plan = _core.Plan({f.name: getattr(tree, f.name) for f in fields(tree)}, "double", 2)
    expected = path_dependent_interactions(tree, X)
    found = np.empty_like(expected)
    plan.explain(X.astype(np.float64), np.empty(expected.shape[:3]), None, 1, found)
    return peers.relative_error(found, expected)


def outputs_first(matrices: np.ndarray, _: int = 0) -> np.ndarray:
    """(n_rows, n_outputs, n_features, n_features) of (n_rows, n_features, n_features[, n_outputs])."""
    return matrices[:, np.newaxis] if matrices.ndim == 3 else np.moveaxis(matrices, -1, 1)


def ours(name: str, case: models.Case) -> peers.System:
    precision, n_jobs = OURS[name]
    explainer = TreeExplainer(case.model, device="cpu", precision=precision, n_jobs=n_jobs)
    return peers.System(peers.same, explainer.shap_interaction_values, outputs_first)


def _xgboost(case: models.Case) -> peers.System:
    import xgboost

    booster = case.model.copy()
    booster.set_param({"nthread": 1})

    def values(raw: np.ndarray, n_rows: int) -> np.ndarray:
        n_features = raw.shape[-1] - 1
        return raw.reshape(n_rows, -1, n_features + 1, n_features + 1)[..., :-1, :-1]

    return peers.System(
        lambda X: xgboost.DMatrix(X, nthread=1),
        lambda rows: booster.predict(rows, pred_interactions=True),
        values,
        "matrix made before",
    )


def _shap(case: models.Case) -> peers.System:
    import shap

    native = case.family == "sklearn"
    model = case.model if native else peers.plain_trees(case.model)
    explainer = shap.TreeExplainer(model, feature_perturbation="tree_path_dependent")
    note = "" if native else "its own code, trees as arrays"
    return peers.System(peers.same, explainer.shap_interaction_values, outputs_first, note)


BUILDERS: dict[str, Callable[[models.Case], peers.System]] = {"xgboost": _xgboost, "shap": _shap}


def print_model(result: dict[str, Any]) -> None:
    errors = ", ".join(
        f"{name} {'-' if error is None else format(error, '.1e')}"
        for name, error in result["accuracy"].items()
    )
    print(
        f"\n{result['name']}: {result['trees']:,} trees, {result['leaves']:,} leaves, {result['features']} "
        f"features, {result['outputs']} outputs, {result['rows']:,} rows ({result['note']}); errors: {errors}"
    )
    if "refused" in result:
        print(result["refused"], flush=True)
        return
    print(f"{'':16}{'rows/s':>12}{'min':>12}{'max':>12}{'time/ours':>11}{'error':>9}{'rows':>7}")
    for name, entry in result["systems"].items():
        if "refused" in entry:
            print(f"{name:16}{entry['refused'][:100]}")
            continue
        rate = entry["rows_per_second"]
        print(
            f"{name:16}{rate['median']:12,.1f}{rate['min']:12,.1f}{rate['max']:12,.1f}"
            f"{entry['seconds_over_ours']['median']:11.2f}{entry['error']:9.1e}{entry['call_rows']:>6}"
            f"{'*' if entry['extrapolated'] else ' '}  {entry['note']}"
        )
    sys.stdout.flush()
