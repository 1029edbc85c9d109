"""Benchmarks that need a GPU: SHAP values, and the number of rows from which the GPU pays off.

*Kernel time* is measured by CUDA events around ``shap_values``; rows and result stay on the device. All other
times are measured around a whole call from and to host memory.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from statistics import median
from time import perf_counter, process_time
from typing import Any

import models
import numpy as np
import peers

from skshapgpu import TreeExplainer, cuda_info

DEFAULT_MODELS = (
    "cal_housing-d6",
    "cal_housing-med",
    "cal_housing-large",
    "adult-med",
    "adult-large",
    "covtype-med",
    "fashion_mnist-med",
    "rf-adult-8",
    "lightgbm-adult",
)

#: Number of rows for a model, number of rows for a model with deep trees, and maximum bytes of a result in
#: float64.
ROWS, DEEP_ROWS, DEEP, MAX_RESULT_BYTES = 1_000_000, 100_000, 12, 8e9

#: name: (precision, algorithm, additivity check), timed as kernels. Ratios refer to the first.
KERNELS: dict[str, tuple[str, str, bool]] = {
    "kernel": ("single", "auto", False),
    "kernel-checked": ("single", "auto", True),
    "kernel-double": ("double", "auto", False),
    "kernel-double-checked": ("double", "auto", True),
    "gputreeshap": ("single", "gputreeshap", False),
}

#: Largest error at which a system is still timed: the largest difference divided by the largest magnitude.
#: Our GPU is compared with our CPU, once in single and once in double precision; other systems are compared
#: with our CPU in double precision. The peers' method may lose digits that ours keeps.
TOLERANCE = {"single": 1e-5, "double": 1e-10, "peer": 1e-3}

#: Rows on which our GPU is compared with our CPU, and on which all systems are checked.
COMPARED_ROWS, CHECKED_ROWS = 10_000, 1_000

#: Rows with which both matrices of XGBoost are tried.
TRIED_ROWS = 20_000

#: FMAs per second of an H100 or H200 (132 multiprocessors at 1.98 GHz) in each precision.
FMA_RATE = {"single": 3.35e13, "double": 1.675e13}
FMA_RATE_OF = ("H100", "H200")

LATENCY_MODELS = ("cal_housing-med",)
LATENCY_ROWS = (1, 10, 100, 1_000, 10_000, 100_000)

#: name: options of the explainer. "auto-N" should be as fast as the faster of "cpu-N" and "cuda".
LATENCY: dict[str, dict[str, Any]] = {
    "cpu-1": {"device": "cpu", "n_jobs": 1},
    "cpu-all": {"device": "cpu", "n_jobs": -1},
    "cuda": {"device": "cuda"},
    "auto-1": {"device": "auto", "n_jobs": 1},
    "auto-all": {"device": "auto", "n_jobs": -1},
}

#: Calls of each system with each number of rows.
FEWEST_CALLS, MOST_CALLS = 5, 300


def conditions() -> dict[str, Any]:
    """Return the GPUs and their driver."""
    query = "name,driver_version,clocks.max.sm,power.limit"
    try:
        smi = subprocess.run(
            ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        smi = []
    return {**cuda_info(), "nvidia_smi": [dict(zip(query.split(","), row.split(", "))) for row in smi]}


def default_rows(ensemble: Any) -> int:
    wide = ROWS * ensemble.n_features * ensemble.n_outputs * 8 > MAX_RESULT_BYTES
    return DEEP_ROWS if wide or peers.depths(ensemble).max() > DEEP else ROWS


# Values


class KernelRunner(peers.Runner):
    """A system that accepts rows on the device, timed by CUDA events on the current stream."""

    def time(self, n_rows: int, n_calls: int = 1) -> tuple[float, float]:
        """Measure the seconds between the events, and CPU seconds, of one call, averaged over ``n_calls``."""
        import cupy

        rows, call = self._input(n_rows), self._system.call
        call(rows)  # fills CuPy's pool with the memory of the result
        start, stop = cupy.cuda.Event(), cupy.cuda.Event()
        stream = cupy.cuda.get_current_stream()
        stream.synchronize()
        cpu = process_time()
        start.record(stream)
        for _ in range(n_calls):
            call(rows)
        stop.record(stream)
        stop.synchronize()
        cpu = process_time() - cpu
        seconds = cupy.cuda.get_elapsed_time(start, stop) / 1000
        cupy.get_default_memory_pool().free_all_blocks()  # others need it
        return seconds / n_calls, cpu / n_calls


def measure(case: models.Case, ensemble: Any, arguments: argparse.Namespace) -> dict[str, Any]:
    """Compare our GPU with our CPU on one model, then check all systems and time them in turn."""
    n_rows = len(case.X)
    result: dict[str, Any] = {**peers.describe(case, ensemble), "rows": n_rows}
    result |= {"accuracy": {}, "fma_per_row": fma_per_row(case, ensemble), "systems": {}}
    try:
        truth = compare(case, result["accuracy"])
    except (MemoryError, RuntimeError) as error:
        result["refused"] = peers.reason(error)
        return result
    wrong = [name for name, error in result["accuracy"].items() if not error <= TOLERANCE[name]]
    if wrong:
        result["refused"] = f"not timed: {', '.join(wrong)} beyond tolerance"
        return result
    runners: dict[str, peers.Runner] = {}
    systems = result["systems"]
    able = [name for name in arguments.peers if peers.FAMILY.get(name, case.family) == case.family]
    for name in [*KERNELS, "ours", *(name for name in able if name in BUILDERS)]:
        entry: dict[str, Any] = {}
        systems[name] = entry
        mine = name not in BUILDERS
        try:
            runner = runners[name] = ours(name, case) if mine else BUILDERS[name](case, truth)
            allowed = TOLERANCE["single" if mine and name != "gputreeshap" else "peer"]
            peers.check(runner, truth, allowed, arguments.slowest, entry)
            if mine:
                entry |= all_rows(runner, n_rows, arguments.seconds)
            else:
                entry |= peers.plan_calls(runner, n_rows, arguments.seconds)
                runner.time(entry["call_rows"])  # fails here if memory is short; fills caches
        except Exception as error:
            entry["refused"] = peers.reason(error)
            runners.pop(name, None)
    try:
        seconds = peers.time_in_turn(runners, systems, n_rows, arguments.repeats)
    except Exception as error:  # memory may be short only now; the next model may have enough
        result["refused"] = f"failed while it was timed: {peers.reason(error)}"
        return result
    peers.add_ratios(systems, seconds, "kernel", "seconds_over_kernel")
    peers.add_ratios(systems, seconds, "xgboost", "seconds_over_xgboost")
    for name in runners:
        per_row = median(seconds[name])
        systems[name]["ns_per_row_and_leaf"] = 1e9 * per_row / ensemble.n_leaves
        if KERNELS.get(name, ("", ""))[1] == "auto" and result["fma_per_row"] and known_gpu():
            floor = result["fma_per_row"] / FMA_RATE[KERNELS[name][0]]
            systems[name]["share_of_floor"] = floor / per_row
    return result


def compare(case: models.Case, errors: dict[str, float]) -> np.ndarray:
    """Record the errors of our GPU values; return the first values of our CPU in double precision."""
    X = case.X[:COMPARED_ROWS]
    for precision, rows in (("single", X), ("double", X.astype(np.float64))):
        options: dict[str, Any] = {"precision": precision, "check_additivity": False}
        expected = TreeExplainer(case.model, device="cpu", n_jobs=-1, **options).shap_values(rows)
        values = TreeExplainer(case.model, device="cuda", **options).shap_values(rows)
        errors[precision] = peers.relative_error(values, expected)
    return peers.outputs_second(expected[:CHECKED_ROWS])


def fma_per_row(case: models.Case, ensemble: Any) -> float | None:
    """Count the FMAs that the arithmetic of our kernel needs at least; None if leaves are vectors.

    With K quadrature nodes, an inner node of a tree takes 4.5 K + 3.5 FMAs, the mean over the kinds of nodes.
    """
    if ensemble.tree_output[0] < 0 and ensemble.n_outputs > 1:
        return None
    info = TreeExplainer(case.model, device="cpu").model_info()
    return float(sum((g["n_leaves"] - g["n_trees"]) * (4.5 * g["n_nodes"] + 3.5) for g in info["groups"]))


def known_gpu() -> bool:
    return any(name in device["name"] for device in cuda_info()["devices"][:1] for name in FMA_RATE_OF)


def all_rows(runner: peers.Runner, n_rows: int, seconds: float) -> dict[str, Any]:
    """Plan a call with all rows, repeated if it is short; see :func:`peers.plan_calls`."""
    once = runner.time(n_rows)[0]
    calls = min(20, math.ceil(seconds / 20 / once))
    return {"call_rows": n_rows, "calls": max(1, calls), "extrapolated": False}


def ours(name: str, case: models.Case) -> peers.Runner:
    """Build ours: the kernels alone on CuPy arrays, or a user's whole call on NumPy arrays."""
    if name not in KERNELS:
        explainer = TreeExplainer(case.model, device="cuda")
        return peers.Runner(
            peers.System(peers.same, explainer.shap_values, peers.outputs_second, "from and to NumPy"), case.X
        )
    import cupy

    precision: Any
    algorithm: Any
    precision, algorithm, checked = KERNELS[name]
    dtype = np.float64 if precision == "double" else np.float32
    explainer = TreeExplainer(
        case.model, device="cuda", precision=precision, algorithm=algorithm, check_additivity=checked
    )
    system = peers.System(
        lambda X: cupy.asarray(X, dtype),
        explainer.shap_values,
        lambda raw, _: peers.outputs_second(cupy.asnumpy(raw)),
        "on the device",
    )
    return KernelRunner(system, case.X)


def _xgboost(case: models.Case, truth: np.ndarray) -> peers.Runner:
    """Build XGBoost with its faster matrix, if the values are right with this matrix."""
    import xgboost

    if not xgboost.build_info().get("USE_CUDA"):
        raise peers.NotApplicable("this XGBoost was built without CUDA")
    booster, threads = case.model.copy(), os.cpu_count()
    booster.set_param({"device": "cuda", "nthread": threads})
    tried: list[tuple[float, peers.System]] = []
    notes = []
    for matrix in (xgboost.DMatrix, xgboost.QuantileDMatrix):
        system = peers.System(
            partial(matrix, nthread=threads),
            lambda rows: booster.predict(rows, pred_contribs=True),
            peers.without_base,
        )
        try:
            runner, n_rows = peers.Runner(system, case.X), min(TRIED_ROWS, len(case.X))
            values = runner.values(n_rows)[: len(truth)]
            error = peers.relative_error(values, truth[: len(values)])
            seconds = runner.time(n_rows)[0]
        except Exception as failure:
            notes.append(f"{matrix.__name__}: {peers.reason(failure)}")
            continue
        if error <= TOLERANCE["peer"]:
            tried.append((seconds, system))
        notes.append(f"{matrix.__name__}: {n_rows / seconds:,.0f} rows/s, error {error:.1e}")
    if not tried:
        raise peers.NotApplicable("; ".join(notes))
    system = min(tried, key=lambda attempt: attempt[0])[1]
    system.note = f"matrix made before; {'; '.join(notes)}"
    return peers.Runner(system, case.X)


def _shap(case: models.Case, truth: np.ndarray) -> peers.Runner:
    import shap

    system = peers.shap_system(case, shap.explainers.GPUTreeExplainer)
    system.note = "; ".join(filter(None, ("shap-cuda", system.note)))
    return peers.Runner(system, case.X)


def _woodelf(case: models.Case, truth: np.ndarray) -> peers.Runner:
    return peers.Runner(woodelf_system(case, None), case.X)


def woodelf_system(case: models.Case, background: Any) -> peers.System:
    """Build Woodelf from its function for GPUs: its explainer would put GPU arrays into a data frame.

    ``background``: a data frame, or None for path-dependent values.
    """
    import cupy
    import pandas as pd
    from woodelf.core.cube_metric import ShapleyValues
    from woodelf.high_depth_woodelf import woodelf_for_high_depth

    columns, trees = peers.woodelf_trees(case)

    def prepare(X: np.ndarray) -> pd.DataFrame:
        return pd.DataFrame(X, columns=columns)

    def call(rows: pd.DataFrame) -> np.ndarray:
        values = np.zeros((len(rows), len(trees), len(columns)), np.float32)
        for output, model in enumerate(trees):
            values_of_column = woodelf_for_high_depth(
                model, rows, background, ShapleyValues(), GPU=True, model_was_loaded=True, verbose=False
            )
            for column, column_values in values_of_column.items():
                values[:, output, columns.index(column)] = cupy.asnumpy(column_values)
        cupy.get_default_memory_pool().free_all_blocks()
        return values

    note = "its function for GPUs" if len(trees) == 1 else "its function for GPUs, for each output"
    return peers.System(prepare, call, lambda raw, _: raw, note)


BUILDERS: dict[str, Callable[[models.Case, np.ndarray], peers.Runner]] = {
    "xgboost": _xgboost,
    "shap": _shap,
    "woodelf": _woodelf,
}

#: Systems of ``peers.PEERS`` that have a GPU mode.
PEERS = tuple(BUILDERS)


def print_model(result: dict[str, Any]) -> None:
    errors = ", ".join(f"{name} {error:.1e}" for name, error in result["accuracy"].items())
    print(
        f"\n{result['name']}: {result['trees']:,} trees, {result['leaves']:,} leaves, "
        f"depth {result['max_depth']}, {result['features']} features, {result['outputs']} outputs, "
        f"{result['rows']:,} rows ({result['note']}); GPU against CPU: {errors}"
    )
    if "refused" in result:
        print(result["refused"], flush=True)
        return
    print(
        f"{'':22}{'rows/s':>13}{'ns/row/leaf':>13}{'time/kernel':>12}{'x xgboost':>11}{'of floor':>10}"
        f"{'error':>9}{'rows':>11}"
    )
    for name, entry in result["systems"].items():
        if "refused" in entry:
            print(f"{name:22}{entry['refused'][:100]}")
            continue
        over_kernel, over_xgboost = (
            entry.get(key, {}).get("median") for key in ("seconds_over_kernel", "seconds_over_xgboost")
        )
        faster = "-" if over_xgboost is None else format(1 / over_xgboost, ".1f")
        share = entry.get("share_of_floor")
        print(
            f"{name:22}{entry['rows_per_second']['median']:13,.0f}{entry['ns_per_row_and_leaf']:13.5f}"
            f"{'-' if over_kernel is None else format(over_kernel, '.2f'):>12}{faster:>11}"
            f"{'-' if share is None else format(share, '.1%'):>10}{entry['error']:9.1e}"
            f"{entry['call_rows']:>10,}{'*' if entry['extrapolated'] else ' '}"
        )
    sys.stdout.flush()


# Latency


def measure_latency(case: models.Case, rows: list[int], seconds: float) -> dict[str, Any]:
    """Measure seconds of calls with few and many rows, each explainer in turn."""
    ensemble = peers.ensemble_of(case.model)
    result: dict[str, Any] = {**peers.describe(case, ensemble), "rows": {}, "left_out": {}}
    explainers = {}
    for name, options in LATENCY.items():
        try:
            explainers[name] = TreeExplainer(case.model, **options)
            explainers[name].shap_values(case.X[:1])
        except Exception as error:
            result["left_out"][name] = peers.reason(error)
    for n_rows in sorted(set(rows)):
        result["rows"][n_rows] = time_calls(explainers, models.take_rows(case.X, n_rows), seconds)
    for name in ("cpu-1", "cpu-all"):
        result.setdefault("crossover_rows", {})[name] = crossover(result["rows"], name)
    return result


def time_calls(explainers: dict[str, TreeExplainer], X: np.ndarray, seconds: float) -> dict[str, Any]:
    """Return the median seconds of each explainer's calls, and the device that it chose."""
    results: dict[str, Any] = {name: {"device": its.explain(X).device} for name, its in explainers.items()}
    taken: dict[str, list[float]] = {name: [] for name in explainers}
    names = list(explainers)
    start = perf_counter()
    for i in range(MOST_CALLS):
        if i >= FEWEST_CALLS and perf_counter() - start > seconds:
            break
        first = i % max(len(names), 1)
        for name in names[first:] + names[:first]:
            begin = perf_counter()
            explainers[name].shap_values(X)
            taken[name].append(perf_counter() - begin)
    for name, times in taken.items():
        results[name] |= {"seconds": median(times), "min": min(times), "max": max(times), "calls": len(times)}
    for threads in ("1", "all"):
        able = [results[name]["seconds"] for name in (f"cpu-{threads}", "cuda") if name in results]
        if f"auto-{threads}" in results and able:
            auto = results[f"auto-{threads}"]
            auto["over_better"] = auto["seconds"] / min(able)
    return results


def crossover(rows: dict[int, Any], cpu: str) -> float | None:
    """Interpolate, in logarithms, the number of rows from which the GPU is faster; None if it never is.

    If it always is, return the fewest rows measured.
    """
    before: tuple[int, float] | None = None
    for n_rows, systems in rows.items():
        if "cuda" not in systems or cpu not in systems:
            return None
        gain = math.log(systems[cpu]["seconds"] / systems["cuda"]["seconds"])
        if gain > 0:
            if before is None:
                return float(n_rows)
            part = -before[1] / (gain - before[1])
            return before[0] * (n_rows / before[0]) ** part
        before = n_rows, gain
    return None


def print_latency(result: dict[str, Any]) -> None:
    print(
        f"\n{result['name']}: {result['trees']:,} trees, {result['leaves']:,} leaves ({result['note']}); "
        "microseconds of a call"
    )
    names = [name for name in LATENCY if name not in result["left_out"]]
    print(
        f"{'rows':>9}" + "".join(f"{name:>13}" for name in names) + "   auto chose, its time over the better"
    )
    for n_rows, systems in result["rows"].items():
        chosen = [
            f"{systems[name]['device']} {systems[name].get('over_better', 1):.2f}"
            for name in names
            if name.startswith("auto")
        ]
        times = "".join(f"{1e6 * systems[name]['seconds']:13,.0f}" for name in names)
        print(f"{n_rows:9,}{times}   {', '.join(chosen)}")
    for name, n_rows in result["crossover_rows"].items():
        if n_rows is not None:
            print(f"the GPU is faster than {name} from {n_rows:,.0f} rows on")
    for name, why in result["left_out"].items():
        print(f"{name}: left out: {why}")
    sys.stdout.flush()
