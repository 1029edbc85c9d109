"""Estimates of ``TreeExplainer.plan`` beside measured times, for each kind of values and of model."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from models import take_rows
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)

from skshapgpu import TreeExplainer
from skshapgpu._common.algorithms import named

#: Kinds of values: arguments of ``plan``.
KINDS: dict[str, dict[str, Any]] = {
    "SHAP values": {},
    "Banzhaf values": {"index": "BV"},
    "all pairs": {"interactions": "matrices"},
    "occurring pairs": {"interactions": "occurring"},
    "strongest pairs": {"interactions": 10},
    "Taylor pairs": {"interactions": "occurring", "index": "STII"},
    "Banzhaf pairs": {"interactions": "occurring", "index": "BII"},
    "triples": {"interactions": "occurring", "order": 3},
    "Banzhaf triples": {"interactions": "occurring", "order": 3, "index": "BII"},
}
_PAIRS = {kind: request for kind, request in KINDS.items() if "triples" not in kind}
_OWEN = {"Owen values": {"index": "OV"}}
_GROUPS = {"feature_groups": {"a": [0, 1, 2], "b": [3, 4, 5, 6]}}

_VALUES: dict[str, dict[str, Any]] = {"SHAP values": {}}

#: Options of the explainer, and the kinds of values that are measured with these options.
Cases = list[tuple[dict[str, Any], dict[str, dict[str, Any]]]]
_TREES: Cases = [
    ({}, KINDS),
    ({"background": 100}, _PAIRS),
    (_GROUPS, _OWEN),
    (_GROUPS | {"background": 100}, _OWEN),
    *(({"algorithm": algorithm}, _VALUES) for algorithm in ("treeshap", "fast_v1", "gputreeshap")),
]
_PROBABILITY = {"model_output": "probability"}

#: By kind of models.
CASES: dict[str, Cases] = {
    "trees": _TREES,
    "binary": [*_TREES, (_PROBABILITY | {"background": 100}, {"probability": {}})],
    "softmax": [(_PROBABILITY | {"background": n}, {"probability": {}}) for n in (10, 100)],
    "linear": [
        ({"background": n}, {"SHAP values": {}, "Banzhaf values": {"index": "BV"}}) for n in (10, 100, 1000)
    ],
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, nargs="+", default=[100, 3000], help="of a call (100 3000)")
    parser.add_argument("--repeats", type=int, default=5, help="calls, of which the fastest counts (5)")


def models() -> dict[str, tuple[str, Any, np.ndarray]]:
    """Train small models of different shapes; return the kind of each, the model and rows."""
    from lightgbm import LGBMRegressor

    rng = np.random.default_rng(0)
    X10, X30 = rng.normal(size=(8000, 10)), rng.normal(size=(8000, 30))
    y10, y30 = (X[:, 0] * X[:, 1] + np.sin(X[:, 2]) * X[:, 3] for X in (X10, X30))
    three = np.digitize(X10[:, 0] * X10[:, 1], [-0.3, 0.3])
    linear: dict[str, Any] = {"linear_tree": True, "n_jobs": 1, "verbose": -1}
    return {
        "forest of depth 6": (
            "trees",
            RandomForestRegressor(50, max_depth=6, random_state=0).fit(X10, y10),
            X10,
        ),
        "deep forest": (
            "trees",
            RandomForestRegressor(10, min_samples_leaf=3, random_state=0).fit(X10[:4000], y10[:4000]),
            X10,
        ),
        "forest, 3 classes": (
            "trees",
            RandomForestClassifier(20, max_depth=7, random_state=0).fit(X10, three),
            X10,
        ),
        "boosting, 30 columns": ("trees", HistGradientBoostingRegressor(random_state=0).fit(X30, y30), X30),
        "boosting, 2 classes": (
            "binary",
            HistGradientBoostingClassifier(max_iter=60, random_state=0).fit(X10, y10 > 0),
            X10,
        ),
        "boosting, 3 classes": (
            "softmax",
            HistGradientBoostingClassifier(max_iter=60, random_state=0).fit(X10[:, :6], three),
            X10[:, :6],
        ),
        "linear leaves, 10 columns": ("linear", LGBMRegressor(**linear).fit(X10, y10), X10),
        "linear leaves, 30 columns": (
            "linear",
            LGBMRegressor(num_leaves=15, **linear).fit(X30, y30),
            X30,
        ),
    }


def measure(
    name: str, kind_of_model: str, model: Any, X: np.ndarray, arguments: argparse.Namespace
) -> dict[str, Any]:
    """Compare the estimates with the fastest of several calls, on one thread or a GPU."""
    measured, device = [], arguments.device
    for options, kinds in CASES[kind_of_model]:
        options = dict(options)
        n_background = options.pop("background", 0)
        background = X[4000 : 4000 + n_background] if n_background else None
        if not is_computed(options, kind_of_model, device):
            continue
        n_jobs = 1 if device == "cpu" else None
        explainer = TreeExplainer(model, background, device=device, n_jobs=n_jobs, **options)
        for kind, request in kinds.items():
            # Each row of a model with a softmax takes one prediction for each coalition and background row.
            rows = [10, 100] if kind_of_model == "softmax" else arguments.rows
            for n_rows in rows:
                call = call_of(explainer, take_rows(X, n_rows), request)
                try:
                    call()
                except ValueError as error:
                    if "on the CPU only" not in str(error):
                        raise
                    continue  # of models with long paths
                plan = explainer.plan(n_rows, **request)
                seconds = min(timed(call) for _ in range(arguments.repeats))
                # These calls have the tables that a first one builds.
                estimated = None if plan.seconds is None else plan.seconds - plan.build_seconds
                label = ", ".join([kind, *(value for key, value in options.items() if key == "algorithm")])
                measured.append(
                    {
                        "kind": f"{label}, {n_background} background rows" if n_background else label,
                        "rows": n_rows,
                        "device": plan.device,
                        "estimated_ms": None if estimated is None else 1e3 * estimated,
                        "measured_ms": 1e3 * seconds,
                        "ratio": None if estimated is None else estimated / seconds,
                    }
                )
    return {"name": name, "measured": measured}


def is_computed(options: dict[str, Any], kind_of_model: str, device: str) -> bool:
    """Return whether the algorithm computes this model's values on the device."""
    if kind_of_model in ("softmax", "linear"):
        return device == "cpu"
    return device in named(options.get("algorithm", "auto")).devices


def call_of(explainer: TreeExplainer, X: np.ndarray, request: dict[str, Any]) -> Callable[[], Any]:
    if request.get("interactions") == "matrices":
        return lambda: explainer.shap_interaction_values(X)
    if "interactions" in request:
        return lambda: explainer.explain_interactions(X, **request)
    return lambda: explainer.explain(X, **request)


def timed(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def print_result(result: dict[str, Any]) -> None:
    for figures in result["measured"]:
        print(json.dumps({"name": result["name"], **figures}), flush=True)
