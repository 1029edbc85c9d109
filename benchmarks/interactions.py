"""SHAP interaction values, ours and other libraries': on one thread of the CPU, or on a GPU."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from typing import Any

import gpu
import models
import numpy as np
import peers

from skshapgpu import TreeExplainer, _core, reference
from skshapgpu.adapters.ensemble import attributes_of

DEFAULT_MODELS = ("cal_housing-med", "adult-med", "covtype-med", "rf-adult-8")

#: Models of table 7 of the GPUTreeShap paper.
CUDA_MODELS = tuple(
    f"{data}-{size}"
    for size in ("med", "small", "large")
    for data in ("cal_housing", "adult", "covtype", "fashion_mnist")
)

ROWS, CUDA_ROWS = 2_000, 20_000

#: Largest result on a GPU; a model whose result would be larger gets fewer rows.
MAX_RESULT_BYTES = 8e9

#: name: (precision, threads). Ratios refer to the first.
OURS = {"ours": ("single", 1), "ours-double": ("double", 1), "ours-2-threads": ("single", 2)}

#: name: (precision, additivity check, whether rows and result are on the GPU). Without a check no margin is
#: computed. Ratios refer to the first.
ON_GPU = {
    "kernel": ("single", False, True),
    "kernel-checked": ("single", True, True),
    "kernel-double": ("double", False, True),
    "ours": ("single", True, False),
}

#: Largest error at which a system is still timed: the largest difference divided by the largest magnitude.
#: "definition": our double precision against the definition. "single": our single precision against our
#: double. "double": on a GPU, our double precision against our CPU's. "peer": other libraries against our
#: double precision.
TOLERANCE = {"definition": 1e-10, "single": 5e-6, "double": 1e-10, "peer": 1e-3}


def measure(
    case: models.Case, ensemble: Any, arguments: argparse.Namespace, one_tree: Callable[[Any, int], Any]
) -> dict[str, Any]:
    """Check one model, then time all systems on it in turn."""
    result: dict[str, Any] = {**peers.describe(case, ensemble), "rows": len(case.X), "systems": {}}
    X = case.X[:16]
    double = TreeExplainer(case.model, device="cpu", precision="double")
    truth = outputs_first(double.shap_interaction_values(X.astype(np.float64)))
    device = arguments.device
    single = outputs_first(TreeExplainer(case.model, device=device).shap_interaction_values(X))
    result["accuracy"] = {
        "definition": definition_error(one_tree(ensemble, 0), X[:4]),
        "single": peers.relative_error(single, truth),
    }
    if device == "cuda":
        explainer = TreeExplainer(case.model, device=device, precision="double")
        values = outputs_first(explainer.shap_interaction_values(X.astype(np.float64)))
        result["accuracy"]["double"] = peers.relative_error(values, truth)
    errors = result["accuracy"].items()
    wrong = [name for name, error in errors if error is not None and not error <= TOLERANCE[name]]
    if wrong:
        result["refused"] = f"not timed: {', '.join(wrong)} beyond tolerance"
        return result
    runners: dict[str, peers.Runner] = {}
    systems = result["systems"]
    mine = ON_GPU if device == "cuda" else OURS
    build = ours_on_gpu if device == "cuda" else ours
    able = [name for name, (_, its_devices) in BUILDERS.items() if device in its_devices]
    for name in [*mine, *(name for name in able if peers.FAMILY.get(name, case.family) == case.family)]:
        entry: dict[str, Any] = {}
        systems[name] = entry
        try:
            runner = runners[name] = build(name, case) if name in mine else BUILDERS[name][0](case, device)
            allowed = TOLERANCE["single" if name in mine else "peer"]
            peers.check(runner, truth, allowed, arguments.slowest, entry)
            if device == "cuda" and name in mine:
                entry |= gpu.all_rows(runner, len(case.X), arguments.seconds)
                continue
            entry |= peers.plan_calls(runner, len(case.X), arguments.seconds)
            if name in mine:  # a single row fills a vector of many: no fixed cost to subtract
                entry["extrapolated"] = False
        except Exception as error:
            if name == "ours":
                raise
            entry["refused"] = peers.reason(error)
            runners.pop(name, None)
    seconds = peers.time_in_turn(runners, systems, len(case.X), arguments.repeats)
    peers.add_ratios(systems, seconds, "ours", "seconds_over_ours")
    peers.add_ratios(systems, seconds, "xgboost", "seconds_over_xgboost")
    return result


def default_rows(ensemble: Any, device: str) -> int:
    if device == "cpu":
        return ROWS
    return min(CUDA_ROWS, int(MAX_RESULT_BYTES / (8 * ensemble.n_outputs * ensemble.n_features**2)))


def definition_error(tree: Any, X: np.ndarray) -> float | None:
    """Compute our error in double precision on a tree; None if the definition would take too long on it."""
    used = len(np.unique(tree.feature[tree.left >= 0]))
    if used > reference.MAX_USED_FEATURES or len(tree.left) * 2.0**used > 2e7:
        return None
    plan = _core.Plan(attributes_of(tree), "double", 2)
    expected = reference.path_dependent(tree, X, index="SII").values
    computed = np.empty_like(expected)
    plan.explain(X.astype(np.float64), np.empty(expected.shape[:3]), None, 1, computed)
    return peers.relative_error(computed, expected)


def outputs_first(matrices: np.ndarray, _: int = 0) -> np.ndarray:
    """Reorder (n_rows, n_features, n_features[, n_outputs]) to (n_rows, n_outputs, ...)."""
    return matrices[:, np.newaxis] if matrices.ndim == 3 else np.moveaxis(matrices, -1, 1)


def ours(name: str, case: models.Case) -> peers.Runner:
    precision: Any
    precision, n_jobs = OURS[name]
    explainer = TreeExplainer(case.model, device="cpu", precision=precision, n_jobs=n_jobs)
    system = peers.System(peers.same, explainer.shap_interaction_values, outputs_first)
    return peers.Runner(system, case.X)


def ours_on_gpu(name: str, case: models.Case) -> peers.Runner:
    precision: Any
    precision, checked, on_device = ON_GPU[name]
    explainer = TreeExplainer(case.model, device="cuda", precision=precision, check_additivity=checked)
    call = explainer.shap_interaction_values
    if not on_device:
        return peers.Runner(peers.System(peers.same, call, outputs_first, "from and to NumPy"), case.X)
    import cupy

    dtype = np.float64 if precision == "double" else np.float32
    system = peers.System(
        lambda X: cupy.asarray(X, dtype),
        call,
        lambda raw, _: outputs_first(cupy.asnumpy(raw)),
        "on the device",
    )
    return gpu.KernelRunner(system, case.X)


def xgboost_values(raw: np.ndarray, n_rows: int) -> np.ndarray:
    """Drop the base value; return (n_rows, n_outputs, n_features, n_features)."""
    n_features = raw.shape[-1] - 1
    return raw.reshape(n_rows, -1, n_features + 1, n_features + 1)[..., :-1, :-1]


def _xgboost(case: models.Case, device: str) -> peers.Runner:
    import xgboost

    threads = 1 if device == "cpu" else os.cpu_count()
    booster = case.model.copy()
    booster.set_param({"device": device, "nthread": threads})
    system = peers.System(
        lambda X: xgboost.DMatrix(X, nthread=threads),
        lambda rows: booster.predict(rows, pred_interactions=True),
        xgboost_values,
        "matrix made before",
    )
    return peers.Runner(system, case.X)


def _shap(case: models.Case, device: str) -> peers.Runner:
    import shap

    native = case.family == "sklearn"
    model = case.model if native else peers.plain_trees(case.model)
    explainer = shap.TreeExplainer(model, feature_perturbation="tree_path_dependent")
    note = "" if native else "its own code, trees as arrays"
    system = peers.System(peers.same, explainer.shap_interaction_values, outputs_first, note)
    return peers.Runner(system, case.X)


#: Peers by name, with the devices that they compute on.
BUILDERS: dict[str, tuple[Callable[[models.Case, str], peers.Runner], tuple[str, ...]]] = {
    "xgboost": (_xgboost, ("cpu", "cuda")),
    "shap": (_shap, ("cpu",)),
}


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
    header = f"{'rows/s':>14}{'min':>14}{'max':>14}{'time/ours':>11}{'x xgboost':>11}{'error':>9}{'rows':>8}"
    print(f"{'':16}{header}")
    for name, entry in result["systems"].items():
        if "refused" in entry:
            print(f"{name:16}{entry['refused'][:100]}")
            continue
        rate, over_xgboost = entry["rows_per_second"], entry.get("seconds_over_xgboost")
        faster = "-" if over_xgboost is None else format(1 / over_xgboost["median"], ".1f")
        print(
            f"{name:16}{rate['median']:14,.1f}{rate['min']:14,.1f}{rate['max']:14,.1f}"
            f"{entry['seconds_over_ours']['median']:11.2f}{faster:>11}{entry['error']:9.1e}"
            f"{entry['call_rows']:>7}"
            f"{'*' if entry['extrapolated'] else ' '}  {entry['note']}"
        )
    sys.stdout.flush()
