"""Interventional interactions and Banzhaf values, on all cores of the CPU and, if there is one, on a GPU."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np

from skshapgpu import TreeExplainer, cuda_info

#: Rows whose values in single precision are compared with those of the CPU in double precision.
CHECKED_ROWS = 64

#: name: the timed call.
CALLS: dict[str, Callable[[TreeExplainer, np.ndarray], Any]] = {
    "matrices": lambda explainer, X: explainer.shap_interaction_values(X),
    "occurring": lambda explainer, X: explainer.explain_interactions(X, interactions="occurring").values,
    "Banzhaf matrices": lambda explainer, X: explainer.explain_interactions(X, index="BII").values,
    "Banzhaf values": lambda explainer, X: explainer.explain(X, index="BV").values,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, default=100_000, help="rows to explain (100000)")
    parser.add_argument("--background", type=int, default=1_000, help="background rows (1000)")
    parser.add_argument("--features", type=int, default=12, help="(12)")
    parser.add_argument("--depth", type=int, default=6, help="of XGBoost's trees (6)")
    parser.add_argument("--rounds", type=int, default=100, help="of boosting (100)")
    parser.add_argument("--repeats", type=int, default=5, help="timed calls after the first (5)")


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Train on generated data, and time calls from and to NumPy with the additivity check."""
    import xgboost

    rng = np.random.default_rng(0)
    X = rng.normal(size=(max(arguments.rows, 20_000), arguments.features)).astype(np.float32)
    y = X[:, 0] * X[:, 1] + np.sin(X[:, -1]) * X[:, 0] + 0.3 * X.sum(axis=1)
    parameters = {"max_depth": arguments.depth, "eta": 0.1}
    booster = xgboost.train(parameters, xgboost.DMatrix(X[:20_000], y[:20_000]), arguments.rounds)
    background, rows = X[: arguments.background], X[: arguments.rows]
    double = TreeExplainer(booster, background, device="cpu", precision="double")
    truth = {name: call(double, rows[:CHECKED_ROWS].astype(np.float64)) for name, call in CALLS.items()}
    names = ("rows", "background", "features", "depth", "rounds", "repeats")
    result = {name: getattr(arguments, name) for name in names}
    result |= {"leaves": double.model_info()["n_leaves"], "pairs": len(double.occurring_interactions())}
    devices = ["cpu", "cuda"] if cuda_info()["available"] else ["cpu"]
    result["devices"] = {
        device: time_device(booster, background, rows, device, truth, arguments.repeats) for device in devices
    }
    return result


def time_device(
    booster: Any,
    background: np.ndarray,
    rows: np.ndarray,
    device: str,
    truth: dict[str, np.ndarray],
    repeats: int,
) -> dict[str, Any]:
    """Return, for each kind of call, its seconds, those of the first call, and the largest error.

    The error is the largest difference divided by the largest magnitude.
    """
    found = {}
    for name, call in CALLS.items():
        explainer = TreeExplainer(booster, background, device=device, n_jobs=-1)
        values, first = timed(call, explainer, rows)
        seconds = [timed(call, explainer, rows)[1] for _ in range(repeats)]
        error = np.abs(values[:CHECKED_ROWS] - truth[name]).max() / np.abs(truth[name]).max()
        found[name] = {
            "seconds": {"median": median(seconds), "min": min(seconds), "max": max(seconds)},
            "first_seconds": first,
            "error": float(error),
        }
    return found


def timed(call: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
    start = time.perf_counter()
    result = call(*arguments)
    return result, time.perf_counter() - start


def print_result(result: dict[str, Any]) -> None:
    print(json.dumps(result, indent=1))
    on_cpu, on_gpu = (result["devices"].get(device) for device in ("cpu", "cuda"))
    if on_cpu is None or on_gpu is None:
        return
    for name, entry in on_cpu.items():
        ratio = entry["seconds"]["median"] / on_gpu[name]["seconds"]["median"]
        print(f"{name}: the CPU takes {ratio:.1f} times as long as the GPU")
