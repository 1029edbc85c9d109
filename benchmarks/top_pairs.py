"""Peak memory and time of the strongest pairs of many rows, on one thread of the CPU."""

from __future__ import annotations

import argparse
import json
import resource
import time
from typing import Any

import numpy as np

from skshapgpu import TreeExplainer

KIB_OF_GIB = 2**20  # ru_maxrss counts KiB on Linux


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, default=100_000, help="rows to explain (100000)")
    parser.add_argument("--features", type=int, default=54, help="(54)")
    parser.add_argument("--depth", type=int, default=8, help="of XGBoost's trees (8)")
    parser.add_argument("--rounds", type=int, default=100, help="of boosting (100)")
    parser.add_argument("--pairs", type=int, default=50, help="how many (50)")


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Train on generated data and explain it once; the peak includes all memory of the process."""
    import xgboost

    rng = np.random.default_rng(0)
    X = rng.normal(size=(arguments.rows, arguments.features))
    y = X[:, 0] * X[:, 1] + np.sin(X[:, 2]) * X[:, 3] + 0.3 * X[:, 4:].sum(axis=1)
    parameters = {"max_depth": arguments.depth, "eta": 0.1, "nthread": 1}
    booster = xgboost.train(parameters, xgboost.DMatrix(X[:20_000], y[:20_000]), arguments.rounds)
    before = peak_gib()
    explainer = TreeExplainer(booster, device="cpu")
    start = time.perf_counter()
    explanation = explainer.explain_interactions(X, interactions=arguments.pairs)
    return {
        **{name: getattr(arguments, name) for name in ("rows", "features", "depth", "rounds", "pairs")},
        "leaves": explainer.model_info()["n_leaves"],
        "occurring_interactions": len(explainer.occurring_interactions()),
        "seconds": time.perf_counter() - start,
        "result_gib": explanation.values.nbytes / 2**30,
        "peak_gib_before": before,
        "peak_gib": peak_gib(),
    }


def peak_gib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / KIB_OF_GIB


def print_result(result: dict[str, Any]) -> None:
    print(json.dumps(result, indent=1))
