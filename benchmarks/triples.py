"""Time interactions of triples on a GPU and on all cores of its host. Rows and values are NumPy arrays."""

from __future__ import annotations

import argparse
import json
import os
import time
from typing import Any

import numpy as np
import peers

from skshapgpu import TreeExplainer, cuda_info, reference

#: Number of rows on which all results are compared, and on which our double precision is compared with the
#: definition.
COMPARED_ROWS, DEFINED_ROWS = 1_000, 4

#: Largest error of each precision, relative to the largest magnitude, at which a system is still timed.
TOLERANCE = {"single": 5e-6, "double": 1e-10}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, default=100_000, help="rows to explain (100000)")
    parser.add_argument("--features", type=int, default=12, help="(12)")
    parser.add_argument("--depth", type=int, default=6, help="of XGBoost's trees (6)")
    parser.add_argument("--rounds", type=int, default=100, help="of boosting (100)")
    parser.add_argument("--repeats", type=int, default=7, help="calls of each system (7)")


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Train on generated data with missing values, compare all results, then time the systems in turn."""
    import xgboost

    rng = np.random.default_rng(0)
    X = rng.normal(size=(arguments.rows, arguments.features)).astype(np.float32)
    y = 100 + X[:, 0] * X[:, 1] * X[:, 2] + np.sin(3 * X[:, 3]) * X[:, 4] + np.abs(X).sum(axis=1)
    X[rng.random(X.shape) < 0.02] = np.nan
    parameters = {"max_depth": arguments.depth, "nthread": 1}
    booster = xgboost.train(parameters, xgboost.DMatrix(X[:20_000], y[:20_000]), arguments.rounds)
    systems: dict[str, dict[str, Any]] = {"cpu": {"device": "cpu", "n_jobs": -1}}
    if cuda_info()["available"]:
        systems["cuda"] = {"device": "cuda"}
    truth_of = TreeExplainer(booster, device="cpu", precision="double", n_jobs=-1)
    some = X[:COMPARED_ROWS]
    truth = triples(truth_of, some.astype(np.float64))
    result: dict[str, Any] = {
        **{name: getattr(arguments, name) for name in ("rows", "features", "depth", "rounds", "repeats")},
        "leaves": truth_of.model_info()["n_leaves"],
        "triples": truth.shape[1],
        "cores": os.cpu_count(),
        "errors": {"definition": definition_error(booster, truth_of.occurring_interactions(3), some, truth)},
        "systems": {},
    }
    explainers = {}
    for name, options in systems.items():
        explainers[name] = TreeExplainer(booster, **options)
        double = TreeExplainer(booster, precision="double", **options)
        errors = {
            "single": peers.relative_error(triples(explainers[name], some), truth),
            "double": peers.relative_error(triples(double, some.astype(np.float64)), truth),
        }
        result["errors"][name] = errors
        if any(not error <= TOLERANCE[precision] for precision, error in errors.items()):
            raise AssertionError(f"not timed: {name} is beyond tolerance: {errors}")
        triples(explainers[name], X)  # the first call allocates memory
    seconds: dict[str, list[float]] = {name: [] for name in explainers}
    for _ in range(arguments.repeats):
        for name, explainer in explainers.items():
            start = time.perf_counter()
            triples(explainer, X)
            seconds[name].append(time.perf_counter() - start)
    for name, its in seconds.items():
        result["systems"][name] = {"seconds": float(np.median(its)), "min": min(its), "max": max(its)}
    if "cuda" in seconds:
        result["cpu_over_cuda"] = float(np.median(seconds["cpu"]) / np.median(seconds["cuda"]))
    return result


def triples(explainer: TreeExplainer, X: np.ndarray) -> np.ndarray:
    return explainer.explain_interactions(X, interactions="occurring", order=3).values


def definition_error(model: Any, occurring: np.ndarray, X: np.ndarray, values: np.ndarray) -> float | None:
    """Compute the error of the first rows against the definition; None if that would take too long."""
    ensemble = peers.ensemble_of(model)
    if len(np.unique(ensemble.feature[ensemble.left >= 0])) > reference.MAX_USED_FEATURES:
        return None
    expected, _, members = reference.path_dependent(ensemble, X[:DEFINED_ROWS], index="SII", order=3)
    assert members is not None
    column = {tuple(triple): i for i, triple in enumerate(members.tolist())}
    columns = [column[tuple(triple)] for triple in occurring.tolist()]
    return peers.relative_error(values[:DEFINED_ROWS], expected[:, 0, columns])


def print_result(result: dict[str, Any]) -> None:
    print(json.dumps(result, indent=1))
