"""Throughput of SHAP values, ours and other libraries', on models that are checked before they are timed.

    python benchmarks/bench.py values --quick
    python benchmarks/bench.py values --models "*-med" "rf-*" --data DIR
    python benchmarks/bench.py values --device cuda --train-device cuda
    python benchmarks/bench.py interactions
    python benchmarks/bench.py background
    python benchmarks/bench.py tables
    python benchmarks/bench.py top-pairs
    python benchmarks/bench.py loading
    python benchmarks/bench.py cross-validation
    python benchmarks/bench.py distributed
    python benchmarks/bench.py latency
    python benchmarks/bench.py packing
    python benchmarks/bench.py scaling --device cuda
    python benchmarks/bench.py revisions --other DIR

README.md in this folder describes the measurements and how to read them.
"""

# ruff: noqa: E402
from __future__ import annotations

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_variable] = "1"  # before the imports that read them

import argparse
import importlib.metadata
import platform
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from datetime import datetime
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import background
import cross_validation
import distributed_engines
import gpu
import interactions
import loading
import models
import numpy as np
import peers
import revisions
import scaling
import store
import tables
import top_pairs

from skshapgpu import TreeExplainer, _core, cuda_info
from skshapgpu.reference import MAX_USED_FEATURES, path_dependent_shap

HERE = Path(__file__).resolve().parent

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
#: Ours in double precision against the definition and in single against double, and the model's margin
#: against base value plus values (libraries add margins up in float32); other libraries, some of which
#: compute in float32 or with a fixed number of quadrature nodes, against ours in double.
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
    "shap-cuda",
    "shapiq",
    "woodelf_explainer",
    "treelite",
    "fasttreeshap",
    "cupy",
    "pyarrow",
    "dask",
    "pyspark",
    "ray",
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
    add_common(values)
    add_device(values)
    values.add_argument(
        "--rows",
        type=int,
        help="rows to explain (10000; 300 with --quick; on a GPU by the model, 1000000 or 100000)",
    )
    values.add_argument("--repeats", type=int, default=5, help="rounds (5)")
    values.add_argument(
        "--peers",
        nargs="*",
        choices=peers.PEERS,
        default=list(peers.PEERS),
        metavar="NAME",
        help=f"of: {' '.join(peers.PEERS)}; on a GPU: {' '.join(gpu.PEERS)}",
    )
    values.add_argument(
        "--seconds", type=float, help="aim for the length of a call (1.5; 10 on a GPU; 0.1 with --quick)"
    )
    add_slowest(values)
    values.add_argument("--train-only", action="store_true", help="fill the cache, measure nothing")
    add_fasttreeshap(values)
    pairs = commands.add_parser("interactions", help="SHAP interaction values of the same models")
    add_common(pairs)
    add_device(pairs)
    pairs.add_argument("--rows", type=int, help="rows to explain (2000; on a GPU 20000, or as fit 8 GB)")
    pairs.add_argument("--repeats", type=int, default=5, help="rounds (5)")
    pairs.add_argument("--seconds", type=float, default=1.5, help="aim for the length of a call (1.5)")
    add_slowest(pairs)
    against = commands.add_parser("background", help="SHAP values against background data")
    add_common(against)
    add_device(against)
    against.add_argument(
        "--rows", type=int, nargs="+", help="rows to explain (1000 10000; 100 with --quick; GPU: 1000000)"
    )
    against.add_argument(
        "--backgrounds",
        type=int,
        nargs="+",
        help="background rows (100 1000 10000; 20 100 with --quick; GPU: 1000 1000000)",
    )
    against.add_argument("--repeats", type=int, default=5, help="rounds (5)")
    against.add_argument("--seconds", type=float, default=1.0, help="aim for the length of a call (1)")
    add_slowest(against, default=120.0)  # a call of Woodelf takes 20 s on an idle machine
    precomputed = commands.add_parser("tables", help="tables made beforehand: making and using them, apart")
    add_common(precomputed)
    precomputed.add_argument("--rows", type=int, help="rows to explain (10000; 300 with --quick)")
    precomputed.add_argument("--repeats", type=int, default=5, help="rounds (5)")
    precomputed.add_argument(
        "--seconds", type=float, help="aim for the length of a call beyond tables (0.5; 0.05 with --quick)"
    )
    add_slowest(precomputed)
    add_fasttreeshap(precomputed)
    top = commands.add_parser("top-pairs", help="peak memory of the strongest pairs of many rows")
    top_pairs.add_arguments(top)
    add_output(top)
    stored = commands.add_parser("loading", help="from a file with large tables to a first row")
    loading.add_arguments(stored)
    add_output(stored)
    validation = commands.add_parser("cross-validation", help="what explaining adds to a cross-validation")
    cross_validation.add_arguments(validation)
    add_output(validation)
    engines = commands.add_parser("distributed", help="Dask, Spark and Ray, with one and two workers")
    distributed_engines.add_arguments(engines)
    add_output(engines)
    latency = commands.add_parser("latency", help="seconds of small calls, CPU against GPU")
    add_common(latency)
    latency.add_argument(
        "--rows", type=int, nargs="+", default=list(gpu.LATENCY_ROWS), help="rows of a call (1 to 100000)"
    )
    latency.add_argument(
        "--seconds", type=float, help="spend this on the calls of each number of rows (5; 0.1 with --quick)"
    )
    packing = commands.add_parser("packing", help="how well the paths of a model fill GPUTreeShap's warps")
    add_common(packing)
    batches = commands.add_parser("scaling", help="many rows from Parquet to Parquet: time and peak memory")
    scaling.add_arguments(batches)
    add_device(batches)
    add_output(batches)
    compared = commands.add_parser("revisions", help="this checkout against another one")
    add_common(compared)
    add_device(compared)
    revisions.add_arguments(compared)
    arguments = parser.parse_args()
    run = {
        "values": run_values,
        "interactions": run_interactions,
        "background": run_background,
        "tables": run_tables,
        "top-pairs": run_top_pairs,
        "loading": run_loading,
        "cross-validation": run_cross_validation,
        "distributed": run_distributed,
        "latency": run_latency,
        "packing": run_packing,
        "scaling": run_scaling,
        "revisions": run_revisions,
    }[arguments.command]
    run(arguments, parser.error)


def add_device(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--device",
        choices=("cpu", "cuda"),
        default="cpu",
        help="time one thread of the CPU, or the first GPU (cpu)",
    )


def add_slowest(parser: argparse.ArgumentParser, default: float = 30.0) -> None:
    parser.add_argument(
        "--slowest",
        type=float,
        default=default,
        metavar="SECONDS",
        help=f"leave out systems that take longer for a single row ({default:g})",
    )


def add_fasttreeshap(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--fasttreeshap-python",
        default=sys.executable,
        metavar="FILE",
        help="an interpreter with fasttreeshap and NumPy 1",
    )


def add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", metavar="DIR", help="directory with load.py and data; default: generated")
    parser.add_argument(
        "--models", nargs="+", metavar="NAME", help=f"names or patterns of: {' '.join(models.names())}"
    )
    parser.add_argument("--full", action="store_true", help="1,000 boosting rounds for large models, not 100")
    parser.add_argument(
        "--train-device",
        choices=("cpu", "cuda"),
        default="cpu",
        help="where XGBoost models are trained (cpu)",
    )
    parser.add_argument("--cache", type=Path, default=HERE / ".cache", metavar="DIR", help="trained models")
    add_output(parser)


def add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="small models, few rows: tries everything")
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help="default: results/<benchmark>.json beside this file; none with --quick",
    )


def run_values(arguments: argparse.Namespace, refuse: Callable[[str], None]) -> None:
    """Measure all models; ``refuse`` ends the program with a message."""
    on_gpu, quick = arguments.device == "cuda", arguments.quick
    if on_gpu and not arguments.train_only:
        require_gpu("--device", refuse)
    arguments.seconds = arguments.seconds or (0.1 if quick else 10.0 if on_gpu else 1.5)
    if (arguments.rows or 1) < 1 or arguments.repeats < 1 or arguments.seconds < 0:
        refuse("--rows, --repeats and --seconds must be positive")
    defaults = QUICK_MODELS if quick else gpu.DEFAULT_MODELS if on_gpu else DEFAULT_MODELS
    report = start_report("values-cuda" if on_gpu else "values", arguments)
    report["tolerance"] = gpu.TOLERANCE if on_gpu else TOLERANCE
    for case in cases(arguments, defaults, report, refuse):
        if arguments.train_only:
            print(f"{case.name}: {case.note}", flush=True)
            continue
        ensemble = peers.ensemble_of(case.model)
        if on_gpu:
            rows = arguments.rows or (3000 if quick else gpu.default_rows(ensemble))
        else:
            rows = arguments.rows or (300 if quick else models.SAMPLE_ROWS)
        case.X = models.take_rows(case.X, rows)
        result = (gpu.measure if on_gpu else measure)(case, ensemble, arguments)
        report["models"].append(result)
        (gpu.print_model if on_gpu else print_model)(result)
        write(report, arguments)


def run_interactions(arguments: argparse.Namespace, refuse: Callable[[str], None]) -> None:
    if (arguments.rows or 1) < 1 or arguments.repeats < 1 or arguments.seconds < 0:
        refuse("--rows, --repeats and --seconds must be positive")
    on_gpu = arguments.device == "cuda"
    if on_gpu:
        require_gpu("--device", refuse)
    report = start_report("interactions-cuda" if on_gpu else "interactions", arguments)
    report["tolerance"] = interactions.TOLERANCE
    defaults = interactions.CUDA_MODELS if on_gpu else interactions.DEFAULT_MODELS
    for case in cases(arguments, defaults, report, refuse):
        ensemble = peers.ensemble_of(case.model)
        rows = arguments.rows or interactions.default_rows(ensemble, arguments.device)
        case.X = models.take_rows(case.X, 100 if arguments.quick else rows)
        result = interactions.measure(case, ensemble, arguments, one_tree)
        report["models"].append(result)
        interactions.print_model(result)
        write(report, arguments)


def run_background(arguments: argparse.Namespace, refuse: Callable[[str], None]) -> None:
    defaults: tuple[str, ...] = background.DEFAULT_MODELS
    sizes: tuple[int, ...] = background.BACKGROUNDS
    rows: tuple[int, ...] = background.ROWS
    if arguments.quick:
        defaults, sizes, rows = background.QUICK_MODELS, background.QUICK_BACKGROUNDS, background.QUICK_ROWS
    elif arguments.device == "cuda":
        defaults, sizes, rows = background.CUDA_MODELS, background.CUDA_BACKGROUNDS, background.CUDA_ROWS
    arguments.rows = arguments.rows or list(rows)
    arguments.backgrounds = arguments.backgrounds or list(sizes)
    if min(arguments.rows + arguments.backgrounds) < 1 or arguments.repeats < 1 or arguments.seconds < 0:
        refuse("--rows, --backgrounds, --repeats and --seconds must be positive")
    if arguments.device == "cuda":
        require_gpu("--device cuda", refuse)
    report = start_report("background" if arguments.device == "cpu" else "background-cuda", arguments)
    report["tolerance"] = background.TOLERANCE
    for case in cases(arguments, defaults, report, refuse):
        result = background.measure(case, peers.ensemble_of(case.model), arguments, one_tree)
        report["models"].append(result)
        background.print_model(result)
        write(report, arguments)


def run_tables(arguments: argparse.Namespace, refuse: Callable[[str], None]) -> None:
    arguments.rows = arguments.rows or (300 if arguments.quick else models.SAMPLE_ROWS)
    arguments.seconds = arguments.seconds or (0.05 if arguments.quick else 0.5)
    if arguments.rows < 1 or arguments.repeats < 1 or arguments.seconds < 0:
        refuse("--rows, --repeats and --seconds must be positive")
    report = start_report("tables", arguments)
    report["tolerance"] = tables.TOLERANCE
    defaults = tables.QUICK_MODELS if arguments.quick else tables.DEFAULT_MODELS
    for case in cases(arguments, defaults, report, refuse):
        case.X = models.take_rows(case.X, arguments.rows)
        result = tables.measure(case, peers.ensemble_of(case.model), arguments, check_ours)
        report["models"].append(result)
        tables.print_model(result)
        write(report, arguments)


def run_top_pairs(arguments: argparse.Namespace, refuse: Callable[[str], None]) -> None:
    if arguments.quick:
        arguments.rows, arguments.rounds = 1_000, 10
    if min(arguments.rows, arguments.features, arguments.depth, arguments.rounds, arguments.pairs) < 1:
        refuse("all numbers must be positive")
    report = start_report("top-pairs", arguments)
    result = top_pairs.measure(arguments)
    report["models"].append(result)
    top_pairs.print_result(result)
    write(report, arguments)


def run_loading(arguments: argparse.Namespace, refuse: Callable[[str], None]) -> None:
    if arguments.quick:
        arguments.depth, arguments.repeats = 6, 1
    if min(arguments.depth, arguments.rounds, arguments.repeats) < 1 or arguments.min_weight < 0:
        refuse("all numbers must be positive")
    report = start_report("loading", arguments)
    result = loading.measure(arguments)
    report["models"].append(result)
    loading.print_result(result)
    write(report, arguments)


def run_cross_validation(arguments: argparse.Namespace, refuse: Callable[[str], None]) -> None:
    if arguments.quick:
        arguments.rounds, arguments.repeats = 10, 1
    if min(arguments.rounds, arguments.repeats) < 1 or arguments.splits < 2:
        refuse("--rounds and --repeats must be positive, --splits at least 2")
    report = start_report("cross-validation", arguments)
    for encoding in arguments.encodings:
        result = cross_validation.measure(arguments, encoding)
        report["models"].append(result)
        cross_validation.print_result(result)
        write(report, arguments)


def run_distributed(arguments: argparse.Namespace, refuse: Callable[[str], None]) -> None:
    if arguments.quick:
        arguments.rows, arguments.parts, arguments.rounds, arguments.repeats = 2_000, 4, 10, 1
    if min(arguments.rows, arguments.parts, arguments.rounds, arguments.repeats) < 1:
        refuse("all numbers must be positive")
    report = start_report("distributed", arguments)
    result = distributed_engines.measure(arguments)
    report["models"].append(result)
    distributed_engines.print_result(result)
    write(report, arguments)


def run_latency(arguments: argparse.Namespace, refuse: Callable[[str], None]) -> None:
    arguments.seconds = arguments.seconds or (0.1 if arguments.quick else 5.0)
    if min(arguments.rows) < 1 or arguments.seconds < 0:
        refuse("--rows and --seconds must be positive")
    report = start_report("latency", arguments)
    for case in cases(arguments, gpu.LATENCY_MODELS, report, refuse):
        result = gpu.measure_latency(case, arguments.rows, arguments.seconds)
        report["models"].append(result)
        gpu.print_latency(result)
        write(report, arguments)


def run_packing(arguments: argparse.Namespace, refuse: Callable[[str], None]) -> None:
    try:
        import packing
    except ImportError as error:
        refuse(f"packing: the GPU half is not built: {error}")
    report = start_report("packing", arguments)
    for case in cases(arguments, packing.DEFAULT_MODELS, report, refuse):
        result = packing.measure(case)
        report["models"].append(result)
        packing.print_model(result)
        write(report, arguments)


def run_scaling(arguments: argparse.Namespace, refuse: Callable[[str], None]) -> None:
    on_gpu = arguments.device == "cuda"
    if on_gpu:
        require_gpu("--device", refuse)
    arguments.rows = arguments.rows or list(scaling.CUDA_ROWS if on_gpu else scaling.ROWS)
    if arguments.quick:
        arguments.rows, arguments.trees, arguments.depth = [3_000, 12_000], 10, 5
    numbers = (arguments.features, arguments.trees, arguments.depth, arguments.batch_size or 1)
    if min(*numbers, arguments.gpus, arguments.repeats) < 1 or min(arguments.rows) < max(2, arguments.gpus):
        refuse("all numbers must be positive, and --rows at least 2 and --gpus")
    if arguments.gpus > (len(cuda_info()["devices"]) if on_gpu else 1):
        refuse("there are not so many --gpus, or --device is not cuda")
    report = start_report("scaling-cuda" if on_gpu else "scaling", arguments)
    report["tolerance"] = scaling.TOLERANCE
    settings = ("device", "gpus", "features", "trees", "depth", "jobs", "top")
    report["settings"] = {name: getattr(arguments, name) for name in settings}
    report["models"] = scaling.measure(arguments)
    write(report, arguments)


def run_revisions(arguments: argparse.Namespace, refuse: Callable[[str], None]) -> None:
    if min(*arguments.rows, arguments.repeats) < 1 or arguments.seconds < 0:
        refuse("--rows, --repeats and --seconds must be positive")
    if not list((arguments.other / "skshapgpu").glob("_core*.so")):
        refuse(f"--other: there is no compiled core in {arguments.other / 'skshapgpu'}")
    if arguments.device == "cuda":
        require_gpu("--device", refuse)
    report = start_report("revisions-cuda" if arguments.device == "cuda" else "revisions", arguments)
    report["other_commit"] = commit(arguments.other)
    for case in cases(arguments, revisions.DEFAULT_MODELS, report, refuse):
        for results in arguments.results:
            result = revisions.measure(case, results, arguments)
            report["models"].append(result)
            revisions.print_model(result)
            write(report, arguments)


def require_gpu(option: str, refuse: Callable[[str], None]) -> None:
    if not (info := cuda_info())["available"]:
        refuse(f"{option} cuda: {info['reason']}")


def cases(
    arguments: argparse.Namespace,
    defaults: tuple[str, ...],
    report: dict[str, Any],
    refuse: Callable[[str], None],
) -> Iterator[models.Case]:
    """Yield the requested models, without those whose library is not installed."""
    patterns = arguments.models or defaults
    chosen = [name for name in models.names() if any(fnmatch(name, pattern) for pattern in patterns)]
    if not chosen:
        refuse(f"no model is named {' or '.join(patterns)}")
    if arguments.train_device == "cuda":
        require_gpu("--train-device", refuse)
    warnings.simplefilter("ignore")
    options = models.Options(arguments.data, arguments.full, arguments.quick, arguments.train_device)
    for name in chosen:
        try:
            case = models.load_case(name, options, arguments.cache)
        except ImportError as error:
            report["left_out"][name] = peers.reason(error)
            print(f"\n{name}: left out: {report['left_out'][name]}", flush=True)
            continue
        yield case
    if report["models"] and arguments.output is not None:
        print(f"\nwritten to {arguments.output}")


def start_report(benchmark: str, arguments: argparse.Namespace) -> dict[str, Any]:
    report = {"benchmark": benchmark, **conditions(arguments)}
    if benchmark == "latency" or benchmark.endswith("-cuda"):
        report["gpu"] = gpu.conditions()
    report |= {"models": [], "left_out": {}}
    if arguments.output is None and not arguments.quick:
        arguments.output = HERE / "results" / f"{benchmark}.json"
    return report


def write(report: dict[str, Any], arguments: argparse.Namespace) -> None:
    """Store the results so far."""
    report["versions"] = versions()  # again: versions of carried packages are known once they are imported
    report["load_average_after"] = os.getloadavg()
    if arguments.output is not None:
        store.add_run(arguments.output, report)


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
    """Compute our error in double precision on the first, middle and last tree that the definition can do."""

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
        worst = max(worst, peers.relative_error(found, expected))
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


def conditions(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the machine, versions, commit and options of this run."""
    cpu = {}
    if os.path.exists("/proc/cpuinfo"):
        lines = Path("/proc/cpuinfo").read_text().partition("\n\n")[0].splitlines()
        cpu = {key.strip(): text.strip() for key, _, text in (line.partition(":") for line in lines)}
    flags = (cpu.get("flags") or cpu.get("Features") or "").split()
    names = "command device train_device rows backgrounds repeats seconds full quick".split()
    given = {name: getattr(arguments, name) for name in names if hasattr(arguments, name)}
    return {
        "date": datetime.now().astimezone().isoformat(timespec="seconds"),
        "commit": commit(),
        "machine": {
            "cpu": cpu.get("model name") or platform.processor() or platform.machine(),
            "flags": [flag for flag in CPU_FLAGS if flag in flags],
            "cores": os.cpu_count(),
            "platform": platform.platform(),
            "instruction_sets": _core.instruction_sets(),
        },
        "load_average_before": os.getloadavg(),
        "versions": versions(),
        "options": {**given, "data": "given" if getattr(arguments, "data", None) else "generated"},
    }


def commit(checkout: Path = HERE) -> str | None:
    describe = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        return (
            subprocess.run(describe, cwd=checkout, capture_output=True, text=True, check=False).stdout.strip()
            or None
        )
    except OSError:  # no git
        return None


def versions() -> dict[str, str | None]:
    return {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}}


def version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:  # not installed, or found on the path
        return getattr(sys.modules.get(package), "__version__", None)


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
