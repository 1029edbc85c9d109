"""Rows per second of SHAP values, ours and other libraries', each model checked before it is timed.

    python benchmarks/bench.py values --quick
    python benchmarks/bench.py values --models "*-med" "rf-*" --data DIR

README.md beside this file says what is measured and how to read it.
"""

# ruff: noqa: E402
from __future__ import annotations

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_variable] = "1"  # before anything that reads them is imported

import argparse
import importlib.metadata
import json
import math
import platform
import subprocess
import sys
import warnings
from dataclasses import fields, replace
from datetime import datetime
from fnmatch import fnmatch
from pathlib import Path
from statistics import median
from typing import Any

import models
import numpy as np
import peers

from skshapgpu import TreeExplainer, _core
from skshapgpu.reference import MAX_USED_FEATURES, path_dependent_shap

HERE = Path(__file__).resolve().parent

DEFAULT_MODELS = (
    "cal_housing-med",
    "adult-med",
    "covtype-med",
    "rf-*-8",
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

#: name: (precision, threads, forced instruction set). The first is what ratios refer to.
OURS: dict[str, tuple[str, int, str | None]] = {
    "ours": ("single", 1, None),
    "ours-double": ("double", 1, None),
    "ours-2-threads": ("single", 2, None),
    "ours-avx2": ("single", 1, "avx2"),
}

#: Largest error that is still timed: the largest difference over the largest magnitude. Ours in double
#: precision against the definition and in single against double, and the model's margin against base value
#: plus values (libraries add margins up in float32); other libraries, some of which compute in float32 or
#: with a fixed number of quadrature nodes, against ours in double.
TOLERANCE = {"definition": 1e-11, "single": 1e-5, "additivity": 1e-5, "peer": 1e-3}

#: Rows on which all systems are checked.
CHECKED_ROWS = 16

#: The definition is evaluated for all subsets of features: nodes x subsets of the trees that are checked.
MAX_DEFINITION_WORK = 2e7

PACKAGES = (
    "skshapgpu",
    "numpy",
    "scikit-learn",
    "xgboost",
    "lightgbm",
    "catboost",
    "shap",
    "shapiq",
    "woodelf_explainer",
    "treelite",
    "fasttreeshap",
)

CPU_FLAGS = (
    "avx2",
    "fma",
    "bmi2",
    "avx512f",
    "avx512bw",
    "avx512dq",
    "avx512vl",
    "avx512_vnni",
    "avx512_vbmi",
    "amx_tile",
    "asimd",
    "sve",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    values = commands.add_parser("values", help="SHAP values of the papers' models")
    values.add_argument("--data", metavar="DIR", help="directory with load.py and data; default: generated")
    values.add_argument(
        "--models", nargs="+", metavar="NAME", help=f"names or patterns of: {' '.join(models.names())}"
    )
    values.add_argument("--rows", type=int, help="rows to explain (10000; 300 with --quick)")
    values.add_argument("--repeats", type=int, default=5, help="rounds (5)")
    values.add_argument(
        "--peers",
        nargs="*",
        choices=peers.PEERS,
        default=list(peers.PEERS),
        metavar="NAME",
        help=f"of: {' '.join(peers.PEERS)}",
    )
    values.add_argument("--seconds", type=float, help="aim for the length of a call (1.5; 0.1 with --quick)")
    values.add_argument(
        "--slowest",
        type=float,
        default=30.0,
        metavar="SECONDS",
        help="leave out systems that take longer for a single row (30)",
    )
    values.add_argument("--full", action="store_true", help="1,000 boosting rounds for large models, not 100")
    values.add_argument("--quick", action="store_true", help="small models, few rows: tries everything")
    values.add_argument("--train-only", action="store_true", help="fill the cache, measure nothing")
    values.add_argument("--cache", type=Path, default=HERE / ".cache", metavar="DIR", help="trained models")
    values.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help="default: results/values-<date>.json beside this file; none with --quick",
    )
    values.add_argument(
        "--fasttreeshap-python",
        default=sys.executable,
        metavar="FILE",
        help="an interpreter with fasttreeshap and NumPy 1",
    )
    arguments = parser.parse_args()
    arguments.rows = arguments.rows or (300 if arguments.quick else models.SAMPLE_ROWS)
    arguments.seconds = arguments.seconds or (0.1 if arguments.quick else 1.5)
    if arguments.rows < 1 or arguments.repeats < 1 or arguments.seconds < 0:
        parser.error("--rows, --repeats and --seconds must be positive")
    patterns = arguments.models or (QUICK_MODELS if arguments.quick else DEFAULT_MODELS)
    chosen = [name for name in models.names() if any(fnmatch(name, pattern) for pattern in patterns)]
    if not chosen:
        parser.error(f"no model is named {' or '.join(patterns)}")
    warnings.simplefilter("ignore")
    run_values(chosen, arguments)


def run_values(chosen: list[str], arguments: argparse.Namespace) -> None:
    options = models.Options(arguments.data, arguments.full, arguments.quick)
    report = {"benchmark": "values", **conditions(arguments), "tolerance": TOLERANCE, "models": []}
    output = arguments.output
    if output is None and not arguments.quick:
        output = HERE / "results" / f"values-{report['date'][:10]}.json"
    for name in chosen:
        case = models.load_case(name, options, arguments.cache)
        if arguments.train_only:
            print(f"{name}: {case.note}", flush=True)
            continue
        case.X = models.take_rows(case.X, arguments.rows)
        report["models"].append(measure(case, arguments))
        print_model(report["models"][-1])
        report["load_average_after"] = os.getloadavg()
        if output is not None:
            output.parent.mkdir(parents=True, exist_ok=True)
            output.write_text(json.dumps(report, indent=1) + "\n")
    if output is not None and not arguments.train_only:
        print(f"\nwritten to {output}")


def measure(case: models.Case, arguments: argparse.Namespace) -> dict[str, Any]:
    """Check one model, then time all systems on it in turn."""
    ensemble = peers.ensemble_of(case.model)
    result: dict[str, Any] = {
        "name": case.name,
        "family": case.family,
        "note": case.note,
        "trees": ensemble.n_trees,
        "leaves": ensemble.n_leaves,
        "max_depth": int(peers.depths(ensemble).max()),
        "features": ensemble.n_features,
        "outputs": ensemble.n_outputs,
        "rows": len(case.X),
        "systems": {},
    }
    truth, result["accuracy"] = check_ours(case, ensemble)
    errors = result["accuracy"].items()
    wrong = [name for name, error in errors if error is not None and not error <= TOLERANCE[name]]
    if wrong:
        result["refused"] = f"not timed: {', '.join(wrong)} beyond tolerance"
        return result
    runners: dict[str, Any] = {}
    try:
        able = [name for name in arguments.peers if peers.FAMILY.get(name, case.family) == case.family]
        for name in [*OURS, *able]:
            entry = result["systems"][name] = {}
            try:
                runner = start(name, case, arguments)
                runners[name] = runner
                entry["note"] = runner.note
                one_row = entry["one_row_seconds"] = runner.time(1)[0]
                if one_row > arguments.slowest:
                    raise peers.NotApplicable(f"not timed: one row takes {one_row:.0f} s")
                entry["error"] = relative_error(runner.values(len(truth)), truth)
                allowed = TOLERANCE["single" if name in OURS else "peer"]
                if not entry["error"] <= allowed:
                    raise peers.NotApplicable(f"not timed: error {entry['error']:.1e} beyond {allowed:g}")
                entry |= plan_calls(runner, len(case.X), arguments.seconds)
                if name in OURS:  # its one row fills a vector of many: no fixed cost to take out
                    entry["extrapolated"] = False
            except Exception as error:
                if name == "ours":
                    raise
                entry["refused"] = peers.reason(error)
                if name in runners:
                    runners.pop(name).close()
        time_in_turn(runners, result["systems"], len(case.X), arguments.repeats)
    finally:
        for runner in runners.values():
            runner.close()
    return result


def start(name: str, case: models.Case, arguments: argparse.Namespace) -> peers.Runner | peers.RemoteRunner:
    """A runner of one system; in a process of its own where the environment or interpreter differs."""
    if name in OURS:
        precision, threads, instruction_set = OURS[name]
        payload = {"model": case.model, "precision": precision, "n_jobs": threads}
        if instruction_set is None:
            return peers.Runner("ours", payload, case.X)
        environment = {"SKSHAPGPU_ISA": instruction_set, "PYTHONPATH": os.pathsep.join(sys.path)}
        return peers.RemoteRunner(sys.executable, environment, "ours", payload, case.X)
    if name == "fasttreeshap":
        trees = peers.plain_trees(case.model)
        return peers.RemoteRunner(arguments.fasttreeshap_python, {}, name, trees, case.X)
    return peers.Runner(name, case, case.X)


def check_ours(case: models.Case, ensemble: Any) -> tuple[np.ndarray, dict[str, float | None]]:
    """Our values of the first rows in double precision, and our errors.

    The error against the definition is None where no tree is small enough for it.
    """
    X = case.X[:CHECKED_ROWS]
    double = TreeExplainer(case.model, precision="double", check_additivity=False)
    truth = peers.outputs_second(double.shap_values(X.astype(np.float64)))
    single = peers.outputs_second(TreeExplainer(case.model, check_additivity=False).shap_values(X))
    total = truth.sum(axis=2) + double.expected_value
    return truth, {
        "definition": definition_error(ensemble, X[:4]),
        "single": relative_error(single, truth),
        "additivity": relative_error(total, models.margin(case, X)),
    }


def definition_error(ensemble: Any, X: np.ndarray) -> float | None:
    """Error of our double precision on the first, middle and last tree that the definition can do."""

    def feasible(tree: int) -> bool:
        nodes = slice(ensemble.tree_offsets[tree], ensemble.tree_offsets[tree + 1])
        used = len(np.unique(ensemble.feature[nodes][ensemble.left[nodes] >= 0]))
        return used <= MAX_USED_FEATURES and (nodes.stop - nodes.start) * 2.0**used <= MAX_DEFINITION_WORK

    trees = [tree for tree in range(ensemble.n_trees) if feasible(tree)]
    if not trees:
        return None
    worst = 0.0
    for tree in {trees[0], trees[len(trees) // 2], trees[-1]}:
        part = one_tree(ensemble, tree)
        expected, _ = path_dependent_shap(part, X)
        found = np.empty_like(expected)
        plan = _core.Plan({f.name: getattr(part, f.name) for f in fields(part)}, "double")
        plan.explain(X.astype(np.float64), found, None, 1)
        worst = max(worst, relative_error(found, expected))
    return worst


def one_tree(ensemble: Any, tree: int) -> Any:
    """The ensemble that has only this tree."""
    start, stop = ensemble.tree_offsets[tree : tree + 2]
    per_node = ("left", "right", "feature", "threshold", "missing_left", "cover", "value", "category_set")
    return replace(
        ensemble,
        tree_offsets=np.array([0, stop - start]),
        tree_output=ensemble.tree_output[tree : tree + 1],
        **{name: getattr(ensemble, name)[start:stop] for name in per_node if len(getattr(ensemble, name))},
    )


def relative_error(found: np.ndarray, expected: np.ndarray) -> float:
    """Largest difference over the largest magnitude."""
    if found.shape != expected.shape:
        raise peers.NotApplicable(f"its result has shape {found.shape}, not {expected.shape}")
    scale = float(np.abs(expected).max())
    return float(np.abs(found - expected).max()) / (scale or 1.0)


def plan_calls(runner: Any, n_rows: int, seconds: float) -> dict[str, Any]:
    """How many rows a timed call has, and how many calls are timed at once.

    So many rows that a call takes about ``--seconds``. A system whose call has a notable fixed cost
    (its time for one row) gets rows enough to outweigh it: all of them where it is long; with fewer
    the time for all is extrapolated from both.
    """
    one_row = runner.time(1)[0]
    if one_row > seconds / 2 and runner.time(min(8, n_rows))[0] < 2 * one_row:
        return {"call_rows": n_rows, "calls": 1, "one_row_seconds": one_row, "extrapolated": False}
    tried, taken = 1, one_row
    while tried < n_rows and taken - one_row < seconds / 5:
        tried = min(n_rows, tried * 8)
        taken = runner.time(tried)[0]
    per_row = max((taken - one_row) / (tried - 1) if tried > 1 else taken, 1e-9)
    wanted = min(n_rows, math.ceil(max(seconds, one_row) / per_row))
    expected = one_row + per_row * (wanted - 1)
    return {
        "call_rows": wanted,
        "calls": max(1, math.ceil(seconds / 5 / expected)),
        "one_row_seconds": one_row,
        "extrapolated": 1 < wanted < n_rows and one_row - per_row > 0.02 * expected,
    }


def time_in_turn(runners: dict[str, Any], systems: dict[str, Any], n_rows: int, repeats: int) -> None:
    """Rounds in which every system is timed once; each round starts with another one."""
    names = list(runners)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    busy: dict[str, list[float]] = {name: [] for name in names}
    for i in range(repeats):
        first = i % len(names)
        for name in names[first:] + names[:first]:
            entry = systems[name]
            wall, cpu = runners[name].time(entry["call_rows"], entry["calls"])
            busy[name].append(cpu / wall)
            per_row = wall / entry["call_rows"]
            if entry["extrapolated"]:
                fixed = runners[name].time(1)[0]
                marginal = max(wall - fixed, 0.0) / (entry["call_rows"] - 1)
                per_row = (fixed + marginal * (n_rows - 1)) / n_rows
            seconds[name].append(per_row)
    for name in names:
        rates = [1 / s for s in seconds[name]]
        ratios = [theirs / ours for theirs, ours in zip(seconds[name], seconds["ours"])]
        systems[name] |= {
            "rows_per_second": {"median": median(rates), "min": min(rates), "max": max(rates)},
            "seconds_over_ours": {"median": median(ratios), "min": min(ratios), "max": max(ratios)},
            "cpu_over_wall": median(busy[name]),
        }


def conditions(arguments: argparse.Namespace) -> dict[str, Any]:
    """Machine, versions, commit and options of this run."""
    cpu = {}
    if os.path.exists("/proc/cpuinfo"):
        lines = Path("/proc/cpuinfo").read_text().partition("\n\n")[0].splitlines()
        cpu = {key.strip(): text.strip() for key, _, text in (line.partition(":") for line in lines)}
    flags = (cpu.get("flags") or cpu.get("Features") or "").split()
    git = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"],
        cwd=HERE,
        capture_output=True,
        text=True,
        check=False,
    )
    return {
        "date": datetime.now().astimezone().isoformat(timespec="seconds"),
        "commit": git.stdout.strip() or None,
        "machine": {
            "cpu": cpu.get("model name") or platform.processor() or platform.machine(),
            "flags": [flag for flag in CPU_FLAGS if flag in flags],
            "cores": os.cpu_count(),
            "platform": platform.platform(),
            "instruction_sets": _core.instruction_sets(),
        },
        "load_average_before": os.getloadavg(),
        "versions": {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}},
        "options": {
            "rows": arguments.rows,
            "repeats": arguments.repeats,
            "seconds": arguments.seconds,
            "data": "given" if arguments.data else "generated",
            "full": arguments.full,
            "quick": arguments.quick,
        },
    }


def version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def print_model(result: dict[str, Any]) -> None:
    print(
        f"\n{result['name']}: {result['trees']:,} trees, {result['leaves']:,} leaves, "
        f"depth {result['max_depth']}, {result['features']} features, {result['outputs']} outputs, "
        f"{result['rows']:,} rows ({result['note']})"
    )
    errors = [
        f"{name} {'-' if error is None else format(error, '.1e')}"
        for name, error in result["accuracy"].items()
    ]
    print(f"our errors: {', '.join(errors)}")
    if "refused" in result:
        print(result["refused"], flush=True)
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


if __name__ == "__main__":
    main()
