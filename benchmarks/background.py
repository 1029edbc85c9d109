"""Benchmark of interventional SHAP values, ours and other libraries', on one CPU thread or on a GPU."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

import gpu
import models
import numpy as np
import peers

from skshapgpu import TreeExplainer, _core, reference
from skshapgpu.adapters.ensemble import attributes_of

DEFAULT_MODELS = ("cal_housing-d6", "cal_housing-med")
QUICK_MODELS = ("cal_housing-small",)

#: Background rows, and rows to explain with each of them.
BACKGROUNDS, ROWS = (100, 1_000, 10_000), (1_000, 10_000)
QUICK_BACKGROUNDS, QUICK_ROWS = (20, 100), (100,)

#: Models, backgrounds and rows on a GPU.
CUDA_MODELS, CUDA_BACKGROUNDS, CUDA_ROWS = ("cal_housing-d6",), (1_000, 1_000_000), (1_000_000,)

#: name: (precision, whether the timed call includes making the explainer and its tables).
OURS = {"ours": ("single", False), "ours-with-building": ("single", True), "ours-double": ("double", False)}

#: System that ratios refer to: name of these ratios.
RATIOS = {"ours": "seconds_over_ours", "ours-with-building": "seconds_over_building"}

#: Largest error at which a system is still timed: the largest difference divided by the largest magnitude.
#: "definition": our double precision against the definition. "single": our single precision against our
#: double. "additivity": the mean margin of the background plus the values against the model's own prediction.
#: "peer": other libraries against our double precision.
TOLERANCE = {"definition": 1e-10, "single": 5e-6, "additivity": 1e-5, "peer": 1e-3}

#: Number of rows on which all systems are checked, and of rows and background rows on which the definition is
#: evaluated.
CHECKED_ROWS, DEFINITION_ROWS, DEFINITION_BACKGROUND = 8, 4, 100

#: Memory limit of our tables for the single tree of the definition.
TABLE_BYTES = 2**28


def measure(
    case: models.Case, ensemble: Any, arguments: argparse.Namespace, one_tree: Callable[[Any, int], Any]
) -> dict[str, Any]:
    """Check one model with each background, then time all systems in turn for each number of rows."""
    result: dict[str, Any] = {**peers.describe(case, ensemble), "backgrounds": []}
    sample = case.X
    order = np.random.default_rng(2).permutation(len(sample))
    case.X = models.take_rows(sample, max(arguments.rows))
    for size in arguments.backgrounds:
        background = models.take_rows(sample[order], size)
        result["backgrounds"].append(measure_background(case, ensemble, background, arguments, one_tree))
    return result


def measure_background(
    case: models.Case,
    ensemble: Any,
    background: np.ndarray,
    arguments: argparse.Namespace,
    one_tree: Callable[[Any, int], Any],
) -> dict[str, Any]:
    distinct = len(np.unique(background, axis=0))
    result: dict[str, Any] = {"background_rows": len(background), "distinct_background_rows": distinct}
    truth, result["accuracy"] = check_ours(case, background, one_tree(ensemble, 0))
    errors = result["accuracy"].items()
    wrong = [name for name, error in errors if error is not None and not error <= TOLERANCE[name]]
    if wrong:
        result["refused"] = f"not timed: {', '.join(wrong)} beyond tolerance"
        return result
    runners: dict[str, peers.Runner] = {}
    checked: dict[str, dict[str, Any]] = {}
    builders = CUDA_BUILDERS if arguments.device == "cuda" else BUILDERS
    for name in [*OURS, *builders]:
        entry = checked[name] = {}
        try:
            if name in OURS:
                system = ours(name, case, background, arguments.device)
            else:
                system = builders[name](case, background)
            runner = runners[name] = peers.Runner(system, case.X)
            allowed = TOLERANCE["single" if name in OURS else "peer"]
            peers.check(runner, truth, allowed, arguments.slowest, entry)
        except Exception as error:
            if name == "ours":
                raise
            entry["refused"] = peers.reason(error)
            runners.pop(name, None)
    result["rows"] = []
    for n_rows in arguments.rows:
        systems = {name: dict(entry) for name, entry in checked.items()}
        for name, runner in runners.items():
            if name in OURS or name in WHOLE_CALLS:
                systems[name] |= whole_calls(runner, n_rows, arguments.seconds, systems[name])
            else:
                systems[name] |= some_rows(runner, n_rows, arguments.seconds, systems[name])
        seconds = peers.time_in_turn(runners, systems, n_rows, arguments.repeats)
        for compared_with, ratio in RATIOS.items():
            peers.add_ratios(systems, seconds, compared_with, ratio)
        result["rows"].append({"rows": n_rows, "systems": systems})
    return result


def whole_calls(runner: peers.Runner, n_rows: int, seconds: float, entry: dict[str, Any]) -> dict[str, Any]:
    """Choose calls with all rows, as costs do not grow in proportion; one call if a single row takes long."""
    if entry["one_row_seconds"] > seconds / 20:
        return {"call_rows": n_rows, "calls": 1, "extrapolated": False}
    return gpu.all_rows(runner, n_rows, seconds)


def some_rows(runner: peers.Runner, n_rows: int, seconds: float, entry: dict[str, Any]) -> dict[str, Any]:
    """Choose rows for calls of about ``--seconds``, as the costs are proportional to the rows."""
    if entry["one_row_seconds"] > seconds:
        return {"call_rows": 1, "calls": 1, "extrapolated": False}
    return peers.plan_calls(runner, n_rows, seconds) | {"extrapolated": False}


def check_ours(
    case: models.Case, background: np.ndarray, tree: Any
) -> tuple[np.ndarray, dict[str, float | None]]:
    """Compute our values of the first rows in double precision, and our errors."""
    X = case.X[:CHECKED_ROWS]
    options: dict[str, Any] = {"device": "cpu", "check_additivity": False}
    double = TreeExplainer(case.model, background, precision="double", **options)
    truth = peers.outputs_second(double.shap_values(X.astype(np.float64)))
    single = peers.outputs_second(TreeExplainer(case.model, background, **options).shap_values(X))
    total = truth.sum(axis=2) + models.margin(case, background).mean(axis=0)
    return truth, {
        "definition": definition_error(tree, X[:DEFINITION_ROWS], background[:DEFINITION_BACKGROUND]),
        "single": peers.relative_error(single, truth),
        "additivity": peers.relative_error(total, models.margin(case, X)),
    }


def definition_error(tree: Any, X: np.ndarray, background: np.ndarray) -> float | None:
    """Compute our error in double precision on a tree; None if the definition would take too long on it."""
    used = len(np.unique(tree.feature[tree.left >= 0]))
    if used > reference.MAX_USED_FEATURES or len(tree.left) * 2.0**used > 2e7:
        return None
    weights = np.full(len(background), 1 / len(background))
    attributes = attributes_of(tree)
    plan = _core.background_plan(attributes, "double", background, weights, "SII", TABLE_BYTES)
    expected = reference.interventional(tree, X, background).values
    computed = np.empty_like(expected)
    plan.explain(X.astype(np.float64), computed, None, 1)
    return peers.relative_error(computed, expected)


def ours(name: str, case: models.Case, background: np.ndarray, device: Any) -> peers.System:
    precision: Any
    precision, with_building = OURS[name]
    dtype = np.float64 if precision == "double" else np.float32
    n_jobs = 1 if device == "cpu" else -1

    def explainer() -> TreeExplainer:
        return TreeExplainer(case.model, background, device=device, precision=precision, n_jobs=n_jobs)

    if with_building:
        call, note = lambda X: explainer().shap_values(X), "explainer made in the call"
    else:
        call, note = explainer().shap_values, "explainer made before"
    return peers.System(lambda X: X.astype(dtype), call, peers.outputs_second, note)


def _shap(case: models.Case, background: np.ndarray) -> peers.System:
    import shap

    # Given only rows, it would keep 100 of them.
    masker = shap.maskers.Independent(background, max_samples=len(background))
    explainer = shap.TreeExplainer(case.model, masker, feature_perturbation="interventional")
    return peers.System(
        peers.same, lambda X: explainer.shap_values(X, check_additivity=False), peers.outputs_second
    )


def _shapiq(case: models.Case, background: np.ndarray) -> peers.System:
    from shapiq.tree.interventional import InterventionalTreeSHAPIQ

    n_outputs = peers.ensemble_of(case.model).n_outputs
    classes = range(n_outputs) if n_outputs > 1 else [None]
    explainers = [
        InterventionalTreeSHAPIQ(case.model, background, class_index=i, max_order=1, index="SV")
        for i in classes
    ]
    for explainer in explainers:
        explainer.explain(case.X[0])  # finds its base value

    def call(X: np.ndarray) -> list[list[Any]]:
        return [[explainer.explain(x) for x in X] for explainer in explainers]

    def values(raw: list[list[Any]], n_rows: int) -> np.ndarray:
        return np.array([[row.get_n_order_values(1) for row in rows] for rows in raw]).swapaxes(0, 1)

    return peers.System(peers.same, call, values, "a row at a time")


def _woodelf(case: models.Case, background: np.ndarray) -> peers.System:
    import pandas as pd
    from woodelf import WoodelfExplainer

    columns, trees = peers.woodelf_trees(case)
    data = pd.DataFrame(background, columns=columns)
    explainers = [WoodelfExplainer(tree, data, feature_perturbation="interventional") for tree in trees]
    return peers.System(
        lambda X: pd.DataFrame(X, columns=columns),
        lambda rows: [explainer.shap_values(rows, verbose=False) for explainer in explainers],
        lambda raw, n_rows: np.stack(raw, axis=1),
        "goes through the background in each call" + (", for each output" if len(trees) > 1 else ""),
    )


def _woodelf_on_gpu(case: models.Case, background: np.ndarray) -> peers.System:
    import pandas as pd

    columns, _ = peers.woodelf_trees(case)
    return gpu.woodelf_system(case, pd.DataFrame(background, columns=columns))


CUDA_BUILDERS = {"woodelf": _woodelf_on_gpu}

BUILDERS: dict[str, Callable[[models.Case, np.ndarray], peers.System]] = {
    "shap": _shap,
    "shapiq": _shapiq,
    "woodelf": _woodelf,
}

#: Peers with a cost per call that is not proportional to its rows.
WHOLE_CALLS = ("woodelf",)


def print_model(result: dict[str, Any]) -> None:
    print(
        f"\n{result['name']}: {result['trees']:,} trees, {result['leaves']:,} leaves, {result['features']} "
        f"features, {result['outputs']} outputs ({result['note']})"
    )
    for background in result["backgrounds"]:
        errors = ", ".join(
            f"{name} {'-' if error is None else format(error, '.1e')}"
            for name, error in background["accuracy"].items()
        )
        print(f"\n{background['background_rows']:,} background rows; our errors: {errors}")
        if "refused" in background:
            print(background["refused"])
            continue
        for entry in background["rows"]:
            print_systems(entry["rows"], entry["systems"])
    sys.stdout.flush()


def print_systems(n_rows: int, systems: dict[str, Any]) -> None:
    header = f"{'rows/s':>14}{'min':>14}{'max':>14}{'time/ours':>11}{'/building':>11}{'error':>9}{'rows':>8}"
    print(f"{f'{n_rows:,} rows':20}{header}{'cpu':>6}")
    for name, entry in systems.items():
        if "refused" in entry:
            print(f"{name:20}{entry['refused'][:100]}")
            continue
        rate = entry["rows_per_second"]
        over_ours, over_building = (
            format(entry[ratio]["median"], ".2f") if ratio in entry else "-" for ratio in RATIOS.values()
        )
        print(
            f"{name:20}{rate['median']:14,.1f}{rate['min']:14,.1f}{rate['max']:14,.1f}"
            f"{over_ours:>11}{over_building:>11}{entry['error']:9.1e}{entry['call_rows']:>8}"
            f"{entry['cpu_over_wall']:6.2f}  {entry['note']}"
        )
