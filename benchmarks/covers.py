"""Time to count covers from data, and of the model's own predictions of the same rows, on one thread."""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import models
import numpy as np
import peers

from skshapgpu import TreeExplainer

DEFAULT_MODELS = (
    "cal_housing-d6-0.1",
    "adult-med-0.1",
    "rf-adult-8",
    "rf-adult-16",
    "lightgbm-adult",
    "histgb-adult",
    "catboost-adult",
    "catboost-adult-6",
)

#: Largest difference of the base value from the mean margin of the rows, relative to the largest margin. With
#: covers counted from these rows, the base value equals the mean margin, but the margins of most libraries
#: are float32.
TOLERANCE = 2e-6


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, default=100_000, help="rows that are counted (100000)")
    parser.add_argument("--repeats", type=int, default=5, help="rounds (5)")


def measure(case: models.Case, ensemble: Any, arguments: argparse.Namespace) -> dict[str, Any]:
    """Compare the base value with the mean margin, then time explainers with and without data and predict."""
    common: dict[str, Any] = {
        "feature_perturbation": "tree_path_dependent",
        "precision": "double",
        "n_jobs": 1,
        "device": "cpu",
    }
    margin = models.margin(case, case.X)
    base_values = np.atleast_1d(TreeExplainer(case.model, case.X, **common).expected_value)
    expected = margin.mean(axis=0)[-len(base_values) :]  # of both classes of a forest, the second
    error = float(np.abs(base_values - expected).max() / np.abs(margin).max())
    if not error <= TOLERANCE:
        raise AssertionError(f"not timed: the base value is not the mean margin: {error}")
    calls = {
        "explainer": lambda: TreeExplainer(case.model, **common),
        "explainer_with_covers": lambda: TreeExplainer(case.model, case.X, **common),
        "predict": lambda: models.margin(case, case.X),
    }
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(arguments.repeats):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            seconds[name].append(time.perf_counter() - start)
    counting = np.subtract(seconds["explainer_with_covers"], seconds["explainer"])
    return {
        **peers.describe(case, ensemble),
        "rows": len(case.X),
        "accuracy": {"base value": error},
        "seconds": {name: statistics.median(measured) for name, measured in seconds.items()},
        "counting_over_predict": statistics.median((counting / seconds["predict"]).tolist()),
    }


def print_model(result: dict[str, Any]) -> None:
    peers.print_head(result)
    counting = result["seconds"]["explainer_with_covers"] - result["seconds"]["explainer"]
    print(
        f"counting {counting:.4f} s, predict {result['seconds']['predict']:.4f} s: "
        f"{result['counting_over_predict']:.2f} times",
        flush=True,
    )
