"""Results that compare each row with each background row, on all cores and, if there is one, on a GPU.

Interventional interactions, SHAP values and Banzhaf values, and SHAP values of the probability and the log
loss, which shap computes as well. With deep trees of many features (``--depth 14 --features 30``), the leaves
have patterns of the background data instead of tables.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from skshapgpu import TreeExplainer, cuda_info

#: Number of rows whose values in single precision are compared with the CPU's values in double precision.
CHECKED_ROWS = 64

#: Rows that shap explains; its time is proportional to their number.
SHAP_ROWS = 20

#: name: (what is explained, the timed call of an explainer, rows and targets).
CALLS: dict[str, tuple[Any, Callable[[TreeExplainer, np.ndarray, np.ndarray], Any]]] = {
    "matrices": ("raw", lambda explainer, X, y: explainer.shap_interaction_values(X)),
    "occurring": (
        "raw",
        lambda explainer, X, y: explainer.explain_interactions(X, interactions="occurring").values,
    ),
    "Banzhaf matrices": (
        "raw",
        lambda explainer, X, y: explainer.explain_interactions(X, index="BII").matrices(),
    ),
    "SHAP values": ("raw", lambda explainer, X, y: explainer.shap_values(X)),
    "Banzhaf values": ("raw", lambda explainer, X, y: explainer.explain(X, index="BV").values),
    "probability": ("probability", lambda explainer, X, y: explainer.shap_values(X)),
    "log loss": ("log_loss", lambda explainer, X, y: explainer.shap_values(X, y)),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, default=100_000, help="rows to explain (100000)")
    parser.add_argument("--background", type=int, default=1_000, help="background rows (1000)")
    parser.add_argument("--features", type=int, default=12, help="(12)")
    parser.add_argument("--depth", type=int, default=6, help="of XGBoost's trees (6)")
    parser.add_argument("--rounds", type=int, default=100, help="of boosting (100)")
    parser.add_argument("--repeats", type=int, default=5, help="timed calls after the first (5)")
    parser.add_argument(
        "--calls", nargs="+", choices=CALLS, default=list(CALLS), metavar="NAME", help="(all)"
    )
    parser.add_argument("--shap", action="store_true", help="time shap's probability and log loss, too")


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Train on generated data, and time calls from and to NumPy with the additivity check."""
    import xgboost

    rng = np.random.default_rng(0)
    X = rng.normal(size=(max(arguments.rows, 20_000), arguments.features)).astype(np.float32)
    y = X[:, 0] * X[:, 1] + np.sin(X[:, -1]) * X[:, 0] + 0.3 * X.sum(axis=1)
    positive = (y + rng.normal(size=len(y)) > 0).astype(int)
    parameters = {"max_depth": arguments.depth, "eta": 0.1}
    boosters = {
        objective: xgboost.train(
            parameters | {"objective": objective},
            xgboost.DMatrix(X[:20_000], target[:20_000]),
            arguments.rounds,
        )
        for objective, target in (("reg:squarederror", y), ("binary:logistic", positive))
    }
    background, rows, targets = X[: arguments.background], X[: arguments.rows], positive[: arguments.rows]
    names = ("rows", "background", "features", "depth", "rounds", "repeats")
    result: dict[str, Any] = {name: getattr(arguments, name) for name in names}
    result["calls"] = {}
    for name in arguments.calls:
        output, call = CALLS[name]
        booster = boosters["reg:squarederror" if output == "raw" else "binary:logistic"]
        double = TreeExplainer(booster, background, device="cpu", precision="double", model_output=output)
        truth = call(double, rows[:CHECKED_ROWS].astype(np.float64), targets[:CHECKED_ROWS])
        figures: dict[str, Any] = {"leaves": double.model_info()["n_leaves"]}
        device: Any
        for device in ["cpu", "cuda"] if cuda_info()["available"] else ["cpu"]:
            explainer = TreeExplainer(booster, background, device=device, n_jobs=-1, model_output=output)
            figures[device] = time_calls(partial(call, explainer, rows, targets), truth, arguments.repeats)
        if output != "raw" and arguments.shap:
            figures["shap"] = time_shap(booster, background, rows, targets, output, truth, arguments.repeats)
        result["calls"][name] = figures
    return result


def time_calls(call: Callable[[], np.ndarray], truth: np.ndarray, repeats: int) -> dict[str, Any]:
    """Return the seconds of calls, the seconds of the first call, and the largest error.

    The error is the largest difference divided by the largest magnitude.
    """
    values, first = timed(call)
    seconds = [timed(call)[1] for _ in range(repeats)]
    n = min(len(truth), len(values))
    return {
        "seconds": {"median": median(seconds), "min": min(seconds), "max": max(seconds)},
        "first_seconds": first,
        "error": float(np.abs(values[:n] - truth[:n]).max() / np.abs(truth[:n]).max()),
    }


def time_shap(
    booster: Any,
    background: np.ndarray,
    rows: np.ndarray,
    targets: np.ndarray,
    output: str,
    truth: np.ndarray,
    repeats: int,
) -> dict[str, Any]:
    """Time shap on a few rows, and extrapolate to all rows: shap's time is proportional to the rows."""
    import shap

    # Without a masker, shap would take 100 background rows only.
    masker = shap.maskers.Independent(background, max_samples=len(background))
    explainer = shap.TreeExplainer(booster, masker, model_output=output)
    some, target = rows[:SHAP_ROWS], targets[:SHAP_ROWS] if output == "log_loss" else None
    call = partial(explainer.shap_values, some, target, check_additivity=False)
    figures = time_calls(call, truth, repeats)
    factor = len(rows) / len(some)
    figures["seconds"] = {name: factor * seconds for name, seconds in figures["seconds"].items()}
    return figures | {"rows": len(some), "version": shap.__version__}


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    result = call()
    return result, time.perf_counter() - start


def print_result(result: dict[str, Any]) -> None:
    print(json.dumps(result, indent=1))
    for name, entry in result["calls"].items():
        for slower, faster in (("cpu", "cuda"), ("shap", "cpu")):
            if slower in entry and faster in entry:
                ratio = entry[slower]["seconds"]["median"] / entry[faster]["seconds"]["median"]
                print(f"{name}: {slower} takes {ratio:.1f} times as long as {faster}")
