"""Calls of two checkouts of this package, timed in turn to compare their speed."""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import median
from typing import Any

import models
import numpy as np
import peers

#: One model of each kind: shallow trees, deep trees, many features, vector leaves, tables.
DEFAULT_MODELS = (
    "cal_housing-med",
    "adult-d6",
    "fashion_mnist-d6",
    "rf-superconductor-8",
    "rf-covtype-8",
    "lightgbm-adult",
    "histgb-adult",
    "catboost-adult-6",
)

#: name: (what the explainer computes, whether it has background data).
RESULTS = {
    "values": ("shap_values", False),
    "interactions": ("shap_interaction_values", False),
    "background": ("shap_values", True),
    "background-banzhaf": ("banzhaf_values", True),
    "owen": ("owen_values", False),
}
BACKGROUND_ROWS = 1000

#: Neighbouring columns in a group of Owen values.
GROUP_SIZE = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument(
        "--other",
        type=Path,
        required=True,
        metavar="DIR",
        help="checkout with a compiled core",
    )
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 10_000], help="rows of a call (1 10000)")
    parser.add_argument(
        "--results",
        nargs="+",
        choices=RESULTS,
        default=["values"],
        metavar="NAME",
        help=f"what to compute, of: {' '.join(RESULTS)} (values)",
    )
    parser.add_argument("--starts", type=int, default=3, help="processes of each checkout (3)")
    parser.add_argument("--repeats", type=int, default=9, help="rounds of each pair of processes (9)")
    parser.add_argument("--seconds", type=float, default=0.5, help="aim for the length of a round (0.5)")


def measure(
    case: models.Case, results: str, checkouts: peers.Checkouts, arguments: argparse.Namespace
) -> dict[str, Any]:
    """Time both checkouts in turn, in all pairs of their processes."""
    case.X = models.take_rows(case.X, max(arguments.rows))
    method, with_background = RESULTS[results]
    payload = {
        "model": case.model,
        "data": case.X[:BACKGROUND_ROWS] if with_background else None,
        "device": arguments.device,
        "precision": "single",
        "n_jobs": 1,
        "method": method,
    }
    if method == "owen_values":
        n_columns = case.X.shape[1]
        payload["feature_groups"] = {
            f"group {first}": list(range(first, min(first + GROUP_SIZE, n_columns)))
            for first in range(0, n_columns, GROUP_SIZE)
        }
    checked = min(max(arguments.rows), 1000)
    differences: list[float] = []
    seconds: dict[int, dict[str, list[float]]] = {
        n_rows: {"this": [], "other": []} for n_rows in arguments.rows
    }
    for pair in checkouts.start(payload, case.X):
        values = {name: runner.values(checked) for name, runner in pair.items()}
        differences.append(np.abs(values["this"] - values["other"]).max() / np.abs(values["other"]).max())
        for n_rows in arguments.rows:
            add_rounds(seconds[n_rows], pair, n_rows, arguments)
    return {
        "name": case.name if results == "values" else f"{case.name} {results}",
        "note": case.note,
        "largest_difference": float(max(differences)),
        "calls": [summary(n_rows, seconds[n_rows]) for n_rows in arguments.rows],
    }


def add_rounds(
    seconds: dict[str, list[float]],
    pair: peers.Pair,
    n_rows: int,
    arguments: argparse.Namespace,
) -> None:
    """Time calls with ``n_rows`` rows in turn, and add the seconds of one call in each round."""
    once = max(runner.time(n_rows)[0] for runner in pair.values())
    n_calls = max(1, round(arguments.seconds / once))
    for number in range(arguments.repeats):
        for name in sorted(pair, reverse=bool(number % 2)):
            seconds[name].append(pair[name].time(n_rows, n_calls)[0])


def summary(n_rows: int, seconds: dict[str, list[float]]) -> dict[str, Any]:
    """Return the seconds of calls with ``n_rows`` rows, and their ratios round by round."""
    ratios = [this / other for this, other in zip(seconds["this"], seconds["other"], strict=True)]
    return {
        "rows": n_rows,
        "seconds": {name: median(times) for name, times in seconds.items()},
        "this_over_other": {"median": median(ratios), "min": min(ratios), "max": max(ratios)},
    }


def print_model(result: dict[str, Any]) -> None:
    """Print a model's ratios."""
    print(f"\n{result['name']}: values differ by at most {result['largest_difference']:.1e} of the largest")
    for call in result["calls"]:
        ratio, seconds = call["this_over_other"], call["seconds"]
        print(
            f"{call['rows']:>8} rows: {seconds['this']:.6f} s, other {seconds['other']:.6f} s, "
            f"ratio {ratio['median']:.3f} ({ratio['min']:.3f} to {ratio['max']:.3f})",
            flush=True,
        )
