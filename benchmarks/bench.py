"""Throughput of SHAP values, ours and other libraries', on models that are checked before they are timed.

    python benchmarks/bench.py values --quick
    python benchmarks/bench.py values --models "*-med" "rf-*" --data DIR
    python benchmarks/bench.py values --device cuda --train-device cuda
    python benchmarks/bench.py interactions
    python benchmarks/bench.py background
    python benchmarks/bench.py background-pairs
    python benchmarks/bench.py tables
    python benchmarks/bench.py top-pairs
    python benchmarks/bench.py triples
    python benchmarks/bench.py partial-dependence
    python benchmarks/bench.py owen
    python benchmarks/bench.py covers
    python benchmarks/bench.py loading
    python benchmarks/bench.py single-row
    python benchmarks/bench.py serving
    python benchmarks/bench.py first-call
    python benchmarks/bench.py plans
    python benchmarks/bench.py cross-validation
    python benchmarks/bench.py drift
    python benchmarks/bench.py selection
    python benchmarks/bench.py sums
    python benchmarks/bench.py distributed
    python benchmarks/bench.py latency
    python benchmarks/bench.py packing
    python benchmarks/bench.py scaling --device cuda
    python benchmarks/bench.py scaling --threads
    python benchmarks/bench.py revisions --other DIR
    python benchmarks/bench.py progress --other DIR
    python benchmarks/bench.py walk --other DIR

README.md in this folder describes the measurements and how to read them.
"""

# ruff: noqa: E402
from __future__ import annotations

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_variable] = "1"  # before the imports that read them

import argparse
import warnings
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from pathlib import Path
from types import ModuleType
from typing import Any

import background
import background_pairs
import covers
import cross_validation
import distributed_engines
import drift
import first_call
import gpu
import interactions
import loading
import models
import options
import owen
import partial_dependence
import peers
import plans
import progress
import progress_models
import reports
import revisions
import scaling
import selection
import serving
import serving_http
import single_row
import sums
import tables
import threads
import top_pairs
import triples
import values
import walk

from skshapgpu import cuda_info


def main() -> None:
    arguments, refuse = options.parse(__doc__.partition("\n")[0])
    run = {
        "values": run_values,
        "interactions": run_interactions,
        "background": run_background,
        "background-pairs": run_background_pairs,
        "tables": run_tables,
        "top-pairs": run_top_pairs,
        "triples": run_triples,
        "partial-dependence": run_partial_dependence,
        "owen": run_owen,
        "covers": run_covers,
        "loading": run_loading,
        "single-row": run_single_row,
        "serving": run_serving,
        "first-call": run_first_call,
        "plans": run_plans,
        "cross-validation": run_cross_validation,
        "drift": run_drift,
        "selection": run_selection,
        "sums": run_sums,
        "distributed": run_distributed,
        "latency": run_latency,
        "packing": run_packing,
        "scaling": run_scaling,
        "revisions": run_revisions,
        "progress": run_progress,
        "walk": run_walk,
    }[arguments.command]
    run(arguments, refuse)


def run_values(arguments: argparse.Namespace, refuse: Callable[[str], None]) -> None:
    """Measure all models; ``refuse`` ends the program with a message."""
    on_gpu, quick = arguments.device == "cuda", arguments.quick
    if on_gpu and not arguments.train_only:
        require_gpu("--device", refuse)
    arguments.seconds = arguments.seconds or (0.1 if quick else 10.0 if on_gpu else 1.5)
    if (arguments.rows or 1) < 1 or arguments.repeats < 1 or arguments.seconds < 0:
        refuse("--rows, --repeats and --seconds must be positive")
    defaults = values.QUICK_MODELS if quick else gpu.DEFAULT_MODELS if on_gpu else values.DEFAULT_MODELS
    report = reports.start_report("values-cuda" if on_gpu else "values", arguments)
    report["tolerance"] = gpu.TOLERANCE if on_gpu else values.TOLERANCE
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
        result = (gpu.measure if on_gpu else values.measure)(case, ensemble, arguments)
        report["models"].append(result)
        (gpu.print_model if on_gpu else values.print_model)(result)
        reports.write(report, arguments)


def run_interactions(arguments: argparse.Namespace, refuse: Callable[[str], None]) -> None:
    if (arguments.rows or 1) < 1 or arguments.repeats < 1 or arguments.seconds < 0:
        refuse("--rows, --repeats and --seconds must be positive")
    on_gpu = arguments.device == "cuda"
    if on_gpu:
        require_gpu("--device", refuse)
    report = reports.start_report("interactions-cuda" if on_gpu else "interactions", arguments)
    report["tolerance"] = interactions.TOLERANCE
    defaults = interactions.CUDA_MODELS if on_gpu else interactions.DEFAULT_MODELS
    for case in cases(arguments, defaults, report, refuse):
        ensemble = peers.ensemble_of(case.model)
        rows = arguments.rows or interactions.default_rows(ensemble, arguments.device)
        case.X = models.take_rows(case.X, 100 if arguments.quick else rows)
        result = interactions.measure(case, ensemble, arguments, values.one_tree)
        report["models"].append(result)
        interactions.print_model(result)
        reports.write(report, arguments)


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
    report = reports.start_report("background" if arguments.device == "cpu" else "background-cuda", arguments)
    report["tolerance"] = background.TOLERANCE
    for case in cases(arguments, defaults, report, refuse):
        result = background.measure(case, peers.ensemble_of(case.model), arguments, values.one_tree)
        report["models"].append(result)
        background.print_model(result)
        reports.write(report, arguments)


def run_tables(arguments: argparse.Namespace, refuse: Callable[[str], None]) -> None:
    arguments.rows = arguments.rows or (300 if arguments.quick else models.SAMPLE_ROWS)
    arguments.seconds = arguments.seconds or (0.05 if arguments.quick else 0.5)
    if arguments.rows < 1 or arguments.repeats < 1 or arguments.seconds < 0:
        refuse("--rows, --repeats and --seconds must be positive")
    report = reports.start_report("tables", arguments)
    report["tolerance"] = tables.TOLERANCE
    defaults = tables.QUICK_MODELS if arguments.quick else tables.DEFAULT_MODELS
    for case in cases(arguments, defaults, report, refuse):
        case.X = models.take_rows(case.X, arguments.rows)
        result = tables.measure(case, peers.ensemble_of(case.model), arguments, values.check_ours)
        report["models"].append(result)
        tables.print_model(result)
        reports.write(report, arguments)


def run_background_pairs(arguments: argparse.Namespace, refuse: Callable[[str], None]) -> None:
    if arguments.quick:
        arguments.rows, arguments.background, arguments.rounds, arguments.repeats = 1_000, 100, 10, 1
    numbers = ("rows", "background", "features", "depth", "rounds", "repeats")
    if min(getattr(arguments, name) for name in numbers) < 1 or arguments.features < 2:
        refuse("all numbers must be positive, and at least two features are needed")
    report = reports.start_report("background-pairs", arguments)
    result = background_pairs.measure(arguments)
    report["models"].append(result)
    background_pairs.print_result(result)
    reports.write(report, arguments)


def run_top_pairs(arguments: argparse.Namespace, refuse: Callable[[str], None]) -> None:
    if arguments.quick:
        arguments.rows, arguments.rounds = 1_000, 10
    if min(arguments.rows, arguments.features, arguments.depth, arguments.rounds, arguments.pairs) < 1:
        refuse("all numbers must be positive")
    report = reports.start_report("top-pairs", arguments)
    result = top_pairs.measure(arguments)
    report["models"].append(result)
    top_pairs.print_result(result)
    reports.write(report, arguments)


def run_triples(arguments: argparse.Namespace, refuse: Callable[[str], None]) -> None:
    if arguments.quick:
        arguments.rows, arguments.rounds, arguments.repeats = 2_000, 10, 2
    if min(arguments.rows, arguments.depth, arguments.rounds, arguments.repeats) < 1:
        refuse("all numbers must be positive")
    if arguments.features < 5:
        refuse("--features must be at least 5")
    report = reports.start_report("triples-cuda" if cuda_info()["available"] else "triples", arguments)
    report["tolerance"] = triples.TOLERANCE
    result = triples.measure(arguments)
    report["models"].append(result)
    triples.print_result(result)
    reports.write(report, arguments)


def run_partial_dependence(arguments: argparse.Namespace, refuse: Callable[[str], None]) -> None:
    if arguments.quick:
        arguments.rows, arguments.rounds, arguments.repeats, arguments.grid = 2_000, 10, 2, 20
    if min(arguments.rows, arguments.rounds, arguments.repeats) < 1 or arguments.grid < 2:
        refuse("all numbers must be positive, and --grid at least 2")
    if arguments.features < 3:
        refuse("--features must be at least 3")
    report = reports.start_report("partial-dependence", arguments)
    report["tolerance"] = partial_dependence.TOLERANCE
    for name in arguments.models:
        try:
            result = partial_dependence.measure(name, arguments)
        except ImportError as error:
            report["left_out"][name] = peers.reason(error)
            print(f"\n{name}: left out: {report['left_out'][name]}", flush=True)
            continue
        report["models"].append(result)
        partial_dependence.print_model(result)
        reports.write(report, arguments)


def run_owen(arguments: argparse.Namespace, refuse: Callable[[str], None]) -> None:
    on_gpu = arguments.device == "cuda"
    if arguments.quick:
        arguments.rows = 300
    elif arguments.rows is None:
        arguments.rows = 200_000 if on_gpu else models.SAMPLE_ROWS
    if min(arguments.rows, arguments.repeats) < 1:
        refuse("--rows and --repeats must be positive")
    report = reports.start_report("owen-cuda" if on_gpu else "owen", arguments)
    report["tolerance"] = owen.TOLERANCE
    for case in cases(arguments, owen.DEFAULT_MODELS, report, refuse):
        case.X = models.take_rows(case.X, arguments.rows)
        result = owen.measure(case, peers.ensemble_of(case.model), arguments)
        report["models"].append(result)
        owen.print_model(result)
        reports.write(report, arguments)


def run_covers(arguments: argparse.Namespace, refuse: Callable[[str], None]) -> None:
    if arguments.quick:
        arguments.rows, arguments.repeats = 1_000, 1
    if min(arguments.rows, arguments.repeats) < 1:
        refuse("--rows and --repeats must be positive")
    report = reports.start_report("covers", arguments)
    report["tolerance"] = covers.TOLERANCE
    for case in cases(arguments, covers.DEFAULT_MODELS, report, refuse):
        case.X = models.take_rows(case.X, arguments.rows)
        result = covers.measure(case, peers.ensemble_of(case.model), arguments)
        report["models"].append(result)
        covers.print_model(result)
        reports.write(report, arguments)


def run_loading(arguments: argparse.Namespace, refuse: Callable[[str], None]) -> None:
    if arguments.quick:
        arguments.depth, arguments.repeats = 6, 1
    if min(arguments.depth, arguments.rounds, arguments.repeats) < 1 or arguments.min_weight < 0:
        refuse("all numbers must be positive")
    report = reports.start_report("loading", arguments)
    result = loading.measure(arguments)
    report["models"].append(result)
    loading.print_result(result)
    reports.write(report, arguments)


def run_single_row(arguments: argparse.Namespace, refuse: Callable[[str], None]) -> None:
    arguments.rows = 50 if arguments.quick else arguments.rows
    if min(arguments.rows, arguments.trees) < 1:
        refuse("all numbers must be positive")
    if arguments.other is not None:
        require_core(arguments.other, refuse)
    report = reports.start_report("single-row", arguments)
    if arguments.other is not None:
        report["other_commit"] = reports.commit(arguments.other)
    for family, form in single_row.cases() if arguments.other is None else []:
        result = single_row.measure(family, form, arguments.rows, arguments.trees)
        report["models"].append(result)
        single_row.print_result(result)
        reports.write(report, arguments)
    names = single_row.large_models() if arguments.other is None else single_row.compared_models()
    for name in [] if arguments.quick else names:
        if arguments.other is None:
            result = single_row.measure_large(name, arguments.rows)
        else:
            result = single_row.compare(name, arguments.other)
        report["models"].append(result)
        single_row.print_result(result)
        reports.write(report, arguments)


def run_serving(arguments: argparse.Namespace, refuse: Callable[[str], None]) -> None:
    if arguments.seconds <= 0:
        refuse("--seconds must be positive")
    seconds = 0.02 if arguments.quick else arguments.seconds
    report = reports.start_report("serving", arguments)
    for library, form in serving.cases():
        for result in serving.measure(library, form, seconds):
            report["models"].append(result)
            serving.print_result(result)
            reports.write(report, arguments)
    for library in serving_http.libraries():
        for result in serving_http.measure(library, seconds):
            report["models"].append(result)
            serving.print_result(result)
            reports.write(report, arguments)


def run_first_call(arguments: argparse.Namespace, refuse: Callable[[str], None]) -> None:
    arguments.repeats = 2 if arguments.quick else arguments.repeats
    if min(arguments.repeats, arguments.trees) < 1:
        refuse("all numbers must be positive")
    report = reports.start_report("first-call", arguments)
    for family, form in single_row.cases():
        for n_rows in first_call.ROWS:
            result = first_call.measure(family, form, n_rows, arguments.trees, arguments.repeats)
            report["models"].append(result)
            first_call.print_result(result)
            reports.write(report, arguments)


def run_plans(arguments: argparse.Namespace, refuse: Callable[[str], None]) -> None:
    if arguments.quick:
        arguments.rows, arguments.repeats = [100], 1
    if min(*arguments.rows, arguments.repeats) < 1:
        refuse("all numbers must be positive")
    on_gpu = arguments.device == "cuda"
    report = reports.start_report("plans-cuda" if on_gpu else "plans", arguments)
    for name, (kind, model, X) in plans.models().items():
        result = plans.measure(name, kind, model, X, arguments)
        report["models"].append(result)
        plans.print_result(result)
        reports.write(report, arguments)


def run_cross_validation(arguments: argparse.Namespace, refuse: Callable[[str], None]) -> None:
    if arguments.quick:
        arguments.rounds, arguments.repeats = 10, 1
    if min(arguments.rounds, arguments.repeats) < 1 or arguments.splits < 2:
        refuse("--rounds and --repeats must be positive, --splits at least 2")
    report = reports.start_report("cross-validation", arguments)
    for encoding in arguments.encodings:
        result = cross_validation.measure(arguments, encoding)
        report["models"].append(result)
        cross_validation.print_result(result)
        reports.write(report, arguments)


def run_drift(arguments: argparse.Namespace, refuse: Callable[[str], None]) -> None:
    if arguments.quick:
        arguments.seeds, arguments.rows = 2, 1_000
    if arguments.seeds < 1 or arguments.rows < 100:
        refuse("--seeds must be positive, --rows at least 100")
    report = reports.start_report("drift", arguments)
    for case in drift.CASES:
        result = drift.measure(case, arguments.seeds, arguments.rows)
        report["models"].append(result)
        drift.print_result(result)
        reports.write(report, arguments)


def run_selection(arguments: argparse.Namespace, refuse: Callable[[str], None]) -> None:
    if arguments.quick:
        arguments.seeds, arguments.rows, arguments.rounds = 1, 200, 12
    if min(arguments.seeds, arguments.rounds) < 1 or arguments.rows < 20:
        refuse("--seeds and --rounds must be positive, --rows at least 20")
    warnings.simplefilter("ignore")
    report = reports.start_report("selection", arguments)
    for name in selection.models():
        result = selection.measure(name, arguments, report["left_out"])
        report["models"].append(result)
        selection.print_result(result)
        reports.write(report, arguments)


def run_sums(arguments: argparse.Namespace, refuse: Callable[[str], None]) -> None:
    if arguments.quick:
        arguments.rows, arguments.rounds, arguments.repeats = 500, 10, 2
    if min(arguments.rows, arguments.rounds, arguments.repeats) < 1:
        refuse("all numbers must be positive")
    warnings.simplefilter("ignore")
    report = reports.start_report("sums", arguments)
    report["tolerance"] = sums.TOLERANCE
    for name in sums.makers(arguments.rounds):
        result = sums.measure(name, arguments)
        report["models"].append(result)
        sums.print_model(result)
        reports.write(report, arguments)


def run_distributed(arguments: argparse.Namespace, refuse: Callable[[str], None]) -> None:
    if arguments.quick:
        arguments.rows, arguments.parts, arguments.rounds, arguments.repeats = 2_000, 4, 10, 1
    if min(arguments.rows, arguments.parts, arguments.rounds, arguments.repeats) < 1:
        refuse("all numbers must be positive")
    report = reports.start_report("distributed", arguments)
    result = distributed_engines.measure(arguments)
    report["models"].append(result)
    distributed_engines.print_result(result)
    reports.write(report, arguments)


def run_latency(arguments: argparse.Namespace, refuse: Callable[[str], None]) -> None:
    arguments.seconds = arguments.seconds or (0.1 if arguments.quick else 5.0)
    if min(arguments.rows) < 1 or arguments.seconds < 0:
        refuse("--rows and --seconds must be positive")
    report = reports.start_report("latency", arguments)
    for case in cases(arguments, gpu.LATENCY_MODELS, report, refuse):
        result = gpu.measure_latency(case, arguments.rows, arguments.seconds)
        report["models"].append(result)
        gpu.print_latency(result)
        reports.write(report, arguments)


def run_packing(arguments: argparse.Namespace, refuse: Callable[[str], None]) -> None:
    try:
        import packing
    except ImportError as error:
        refuse(f"packing: the GPU half is not built: {error}")
    report = reports.start_report("packing", arguments)
    for case in cases(arguments, packing.DEFAULT_MODELS, report, refuse):
        result = packing.measure(case)
        report["models"].append(result)
        packing.print_model(result)
        reports.write(report, arguments)


def run_scaling(arguments: argparse.Namespace, refuse: Callable[[str], None]) -> None:
    on_gpu = arguments.device == "cuda"
    if arguments.threads is not None:
        if on_gpu or min(arguments.threads, default=1) < 1:
            refuse("--threads are positive numbers, for --device cpu")
        report = reports.start_report("threads", arguments)
        numbers = arguments.threads or list(threads.THREADS)
        report["models"] = threads.measure(numbers, arguments.cache, arguments.quick)
        reports.write(report, arguments)
        return
    if on_gpu:
        require_gpu("--device", refuse)
    arguments.rows = arguments.rows or list(scaling.CUDA_ROWS if on_gpu else scaling.ROWS)
    if arguments.quick:
        arguments.rows, arguments.trees, arguments.depth = [3_000, 12_000], 10, 5
    numbers = (arguments.features, arguments.trees, arguments.depth, arguments.batch_size or 1)
    most_gpus = max(arguments.gpus)
    if min(*numbers, *arguments.gpus, arguments.repeats) < 1 or min(arguments.rows) < max(2, most_gpus):
        refuse("all numbers must be positive, and --rows at least 2 and --gpus")
    if most_gpus > (len(cuda_info()["devices"]) if on_gpu else 1):
        refuse("there are not so many --gpus, or --device is not cuda")
    report = reports.start_report("scaling-cuda" if on_gpu else "scaling", arguments)
    report["tolerance"] = scaling.TOLERANCE
    settings = ("device", "gpus", "features", "trees", "depth", "jobs", "top")
    report["settings"] = {name: getattr(arguments, name) for name in settings}
    report["models"] = scaling.measure(arguments)
    reports.write(report, arguments)


def run_revisions(arguments: argparse.Namespace, refuse: Callable[[str], None]) -> None:
    if min(*arguments.rows, arguments.starts, arguments.repeats) < 1 or arguments.seconds < 0:
        refuse("--rows, --starts, --repeats and --seconds must be positive")
    require_core(arguments.other, refuse)
    if arguments.device == "cuda":
        require_gpu("--device", refuse)
    report = reports.start_report("revisions-cuda" if arguments.device == "cuda" else "revisions", arguments)
    report["other_commit"] = reports.commit(arguments.other)
    checkouts = peers.Checkouts("ours", arguments.other, arguments.starts)
    try:
        for case in cases(arguments, revisions.DEFAULT_MODELS, report, refuse):
            for results in arguments.results:
                result = revisions.measure(case, results, checkouts, arguments)
                report["models"].append(result)
                revisions.print_model(result)
                reports.write(report, arguments)
    finally:
        checkouts.close()


def run_progress(arguments: argparse.Namespace, refuse: Callable[[str], None]) -> None:
    if min(arguments.rows, arguments.starts, arguments.rounds) < 1 or arguments.seconds <= 0:
        refuse("--rows, --starts, --rounds and --seconds must be positive")
    if arguments.rounds < arguments.starts:
        refuse("--rounds must be at least --starts")
    require_core(arguments.other, refuse)
    if arguments.quick:
        arguments.rows, arguments.starts, arguments.rounds = 1_000, 1, 2
    report = reports.start_report(f"progress-{arguments.isa}" if arguments.isa else "progress", arguments)
    report["other_commit"] = reports.commit(arguments.other)
    report["tolerance"] = progress.TOLERANCE
    checkouts = progress.start_checkouts(arguments)
    print(progress.HEADER, flush=True)
    try:
        for case in cases(arguments, ("*",), report, refuse, progress_models):
            result = progress.measure(case, checkouts, arguments)
            report["models"].append(result)
            progress.print_model(result)
            reports.write(report, arguments)
    finally:
        checkouts.close()
    progress.print_means(report["models"])


def run_walk(arguments: argparse.Namespace, refuse: Callable[[str], None]) -> None:
    if arguments.rounds < 1:
        refuse("--rounds must be positive")
    if arguments.other is not None:
        require_core(arguments.other, refuse)
    report: dict[str, Any] = {"models": [], "left_out": {}}
    for case in cases(arguments, walk.DEFAULT_MODELS, report, refuse, progress_models):
        result = walk.measure(case, arguments)
        report["models"].append(result)
        walk.print_model(result)
    walk.print_mean(report["models"])


def require_core(checkout: Path, refuse: Callable[[str], None]) -> None:
    if not list((checkout / "skshapgpu").glob("_core*.so")):
        refuse(f"--other: there is no compiled core in {checkout / 'skshapgpu'}")


def require_gpu(option: str, refuse: Callable[[str], None]) -> None:
    if not (info := cuda_info())["available"]:
        refuse(f"{option} cuda: {info['reason']}")


def cases(
    arguments: argparse.Namespace,
    defaults: tuple[str, ...],
    report: dict[str, Any],
    refuse: Callable[[str], None],
    catalogue: ModuleType = models,
) -> Iterator[models.Case]:
    """Yield the requested models, without those whose library is not installed."""
    patterns = arguments.models or defaults
    chosen = [name for name in catalogue.names() if any(fnmatch(name, pattern) for pattern in patterns)]
    if not chosen:
        refuse(f"no model is named {' or '.join(patterns)}")
    if arguments.train_device == "cuda":
        require_gpu("--train-device", refuse)
    warnings.simplefilter("ignore")
    training = models.Options(arguments.data, arguments.full, arguments.quick, arguments.train_device)
    for name in chosen:
        try:
            case = catalogue.load_case(name, training, arguments.cache)
        except ImportError as error:
            report["left_out"][name] = peers.reason(error)
            print(f"\n{name}: left out: {report['left_out'][name]}", flush=True)
            continue
        yield case
    if report["models"] and arguments.output is not None:
        print(f"\nwritten to {arguments.output}")


if __name__ == "__main__":
    main()
