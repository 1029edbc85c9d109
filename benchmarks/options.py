"""Options of the commands of bench.py."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

import background_pairs
import covers
import cross_validation
import distributed_engines
import drift
import first_call
import gpu
import loading
import models
import owen
import partial_dependence
import peers
import plans
import progress
import progress_models
import revisions
import scaling
import selection
import serving
import single_row
import sums
import top_pairs
import triples
import walk

HERE = Path(__file__).resolve().parent


def parse(description: str) -> tuple[argparse.Namespace, Callable[[str], NoReturn]]:
    """Read the command line; the function returned ends the program with a message."""
    parser = argparse.ArgumentParser(description=description)
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
    pairs_against = commands.add_parser(
        "background-pairs", help="interactions against background data, on all cores and on a GPU"
    )
    background_pairs.add_arguments(pairs_against)
    add_output(pairs_against)
    top = commands.add_parser("top-pairs", help="peak memory of the strongest pairs of many rows")
    top_pairs.add_arguments(top)
    add_output(top)
    thirds = commands.add_parser("triples", help="interactions of triples: a GPU against all cores")
    triples.add_arguments(thirds)
    add_output(thirds)
    dependence = commands.add_parser(
        "partial-dependence", help="partial dependence: ours, scikit-learn's brute force, Woodelf's"
    )
    partial_dependence.add_arguments(dependence)
    add_output(dependence)
    owen_values = commands.add_parser("owen", help="Owen values against SHAP values of the same model")
    add_common(owen_values)
    add_device(owen_values)
    owen.add_arguments(owen_values)
    counted = commands.add_parser("covers", help="covers counted from data against predict")
    add_common(counted)
    covers.add_arguments(counted)
    stored = commands.add_parser("loading", help="from a file with large tables to a first row")
    loading.add_arguments(stored)
    add_output(stored)
    single = commands.add_parser("single-row", help="a call for one row, by the form of X")
    single_row.add_arguments(single)
    add_output(single)
    served = commands.add_parser(
        "serving", help="latencies in a process that serves, in one and in 8 threads"
    )
    serving.add_arguments(served)
    add_output(served)
    first = commands.add_parser("first-call", help="the comparison with the model's own prediction")
    first_call.add_arguments(first)
    add_output(first)
    estimates = commands.add_parser("plans", help="estimates of plan beside measured times")
    add_device(estimates)
    plans.add_arguments(estimates)
    add_output(estimates)
    validation = commands.add_parser("cross-validation", help="what explaining adds to a cross-validation")
    cross_validation.add_arguments(validation)
    add_output(validation)
    changes = commands.add_parser("drift", help="planted changes that compare_explanations finds")
    drift.add_arguments(changes)
    add_output(changes)
    choice = commands.add_parser("selection", help="known relevant columns, found by us and by others")
    selection.add_arguments(choice)
    add_output(choice)
    members = commands.add_parser("sums", help="sums of models against their members")
    sums.add_arguments(members)
    add_output(members)
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
    progressed = commands.add_parser("progress", help="many models: an older checkout, predicting, XGBoost")
    add_common(progressed, progress_models.names())
    progress.add_arguments(progressed)
    walked = commands.add_parser("walk", help="the walk alone, for a row and leaf; against another checkout")
    add_common(walked, progress_models.names())
    walk.add_arguments(walked)
    return parser.parse_args(), parser.error


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


def add_common(parser: argparse.ArgumentParser, names: Sequence[str] = models.names()) -> None:
    parser.add_argument("--data", metavar="DIR", help="folder with load.py and data; default: generated")
    parser.add_argument(
        "--models", nargs="+", metavar="NAME", help=f"names or patterns of: {' '.join(names)}"
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
