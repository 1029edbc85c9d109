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
    for name, (summary, options) in COMMANDS.items():
        command = commands.add_parser(name, help=summary)
        for add_options in options:
            add_options(command)
    return parser.parse_args(), parser.error


def add_values(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--rows",
        type=int,
        help="rows to explain (10000; 300 with --quick; on a GPU by the model, 1000000 or 100000)",
    )
    parser.add_argument("--repeats", type=int, default=5, help="rounds (5)")
    parser.add_argument(
        "--peers",
        nargs="*",
        choices=peers.PEERS,
        default=list(peers.PEERS),
        metavar="NAME",
        help=f"of: {' '.join(peers.PEERS)}; on a GPU: {' '.join(gpu.PEERS)}",
    )
    parser.add_argument(
        "--seconds", type=float, help="aim for the length of a call (1.5; 10 on a GPU; 0.1 with --quick)"
    )
    add_slowest(parser)
    parser.add_argument("--train-only", action="store_true", help="fill the cache, measure nothing")
    add_fasttreeshap(parser)


def add_interactions(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, help="rows to explain (2000; on a GPU 20000, or as fit 8 GB)")
    parser.add_argument("--repeats", type=int, default=5, help="rounds (5)")
    parser.add_argument("--seconds", type=float, default=1.5, help="aim for the length of a call (1.5)")
    add_slowest(parser)


def add_background(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--rows", type=int, nargs="+", help="rows to explain (1000 10000; 100 with --quick; GPU: 1000000)"
    )
    parser.add_argument(
        "--backgrounds",
        type=int,
        nargs="+",
        help="background rows (100 1000 10000; 20 100 with --quick; GPU: 1000 1000000)",
    )
    parser.add_argument("--repeats", type=int, default=5, help="rounds (5)")
    parser.add_argument("--seconds", type=float, default=1.0, help="aim for the length of a call (1)")
    add_slowest(parser, default=120.0)  # a call of Woodelf takes 20 s on an idle machine


def add_tables(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, help="rows to explain (10000; 300 with --quick)")
    parser.add_argument("--repeats", type=int, default=5, help="rounds (5)")
    parser.add_argument(
        "--seconds", type=float, help="aim for the length of a call beyond tables (0.5; 0.05 with --quick)"
    )
    add_slowest(parser)
    add_fasttreeshap(parser)


def add_latency(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--rows", type=int, nargs="+", default=list(gpu.LATENCY_ROWS), help="rows of a call (1 to 100000)"
    )
    parser.add_argument(
        "--seconds", type=float, help="spend this on the calls of each number of rows (5; 0.1 with --quick)"
    )


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


def add_progress_models(parser: argparse.ArgumentParser) -> None:
    add_common(parser, progress_models.names())


#: Functions that add options to a command, in the order in which its help lists them.
AddOptions = tuple[Callable[[argparse.ArgumentParser], None], ...]

#: The commands: the line about each in the help, and its options.
COMMANDS: dict[str, tuple[str, AddOptions]] = {
    "values": ("SHAP values of the papers' models", (add_common, add_device, add_values)),
    "interactions": (
        "SHAP interaction values of the same models",
        (add_common, add_device, add_interactions),
    ),
    "background": ("SHAP values against background data", (add_common, add_device, add_background)),
    "tables": ("tables made beforehand: making and using them, apart", (add_common, add_tables)),
    "background-pairs": (
        "interactions against background data, on all cores and on a GPU",
        (background_pairs.add_arguments, add_output),
    ),
    "top-pairs": ("peak memory of the strongest pairs of many rows", (top_pairs.add_arguments, add_output)),
    "triples": ("interactions of triples: a GPU against all cores", (triples.add_arguments, add_output)),
    "partial-dependence": (
        "partial dependence: ours, scikit-learn's brute force, Woodelf's",
        (partial_dependence.add_arguments, add_output),
    ),
    "owen": (
        "Owen values against SHAP values of the same model",
        (add_common, add_device, owen.add_arguments),
    ),
    "covers": ("covers counted from data against predict", (add_common, covers.add_arguments)),
    "loading": ("from a file with large tables to a first row", (loading.add_arguments, add_output)),
    "single-row": ("a call for one row, by the form of X", (single_row.add_arguments, add_output)),
    "serving": (
        "latencies in a process that serves, in one and in 8 threads",
        (serving.add_arguments, add_output),
    ),
    "first-call": (
        "the comparison with the model's own prediction",
        (first_call.add_arguments, add_output),
    ),
    "plans": ("estimates of plan beside measured times", (add_device, plans.add_arguments, add_output)),
    "cross-validation": (
        "what explaining adds to a cross-validation",
        (cross_validation.add_arguments, add_output),
    ),
    "drift": ("planted changes that compare_explanations finds", (drift.add_arguments, add_output)),
    "selection": (
        "known relevant columns, found by us and by others",
        (selection.add_arguments, add_output),
    ),
    "sums": ("sums of models against their members", (sums.add_arguments, add_output)),
    "distributed": (
        "Dask, Spark and Ray, with one and two workers",
        (distributed_engines.add_arguments, add_output),
    ),
    "latency": ("seconds of small calls, CPU against GPU", (add_common, add_latency)),
    "packing": ("how well the paths of a model fill GPUTreeShap's warps", (add_common,)),
    "scaling": (
        "many rows from Parquet to Parquet: time and peak memory",
        (scaling.add_arguments, add_device, add_output),
    ),
    "revisions": ("this checkout against another one", (add_common, add_device, revisions.add_arguments)),
    "progress": (
        "many models: an older checkout, predicting, XGBoost",
        (add_progress_models, progress.add_arguments),
    ),
    "walk": (
        "the walk alone, for a row and leaf; against another checkout",
        (add_progress_models, walk.add_arguments),
    ),
}
