"""Estimates of ``TreeExplainer.plan`` beside measured times and sizes, for each kind of values."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)

from skshapgpu import TreeExplainer

#: Kinds of values: arguments of ``plan``.
KINDS: dict[str, dict[str, Any]] = {
    "SHAP values": {},
    "Banzhaf values": {"index": "BV"},
    "all pairs": {"interactions": "all"},
    "occurring pairs": {"interactions": "occurring"},
    "strongest pairs": {"interactions": 10},
    "Taylor pairs": {"interactions": "occurring", "index": "STII"},
    "Banzhaf pairs": {"interactions": "occurring", "index": "BII"},
    "triples": {"interactions": "occurring", "order": 3},
    "Banzhaf triples": {"interactions": "occurring", "order": 3, "index": "BII"},
}
_PAIRS = {kind: request for kind, request in KINDS.items() if "triples" not in kind}
_OWEN = {"Owen values": {"index": "OV"}}
_GROUPS = {"groups": {"a": [0, 1, 2], "b": [3, 4, 5, 6]}}

#: Options of the explainer, and the kinds of values that are measured with them.
CASES: list[tuple[dict[str, Any], dict[str, dict[str, Any]]]] = [
    ({}, KINDS),
    ({"background": True}, _PAIRS),
    (_GROUPS, _OWEN),
    (_GROUPS | {"background": True}, _OWEN),
    ({"background": True, "model_output": "probability"}, {"Probability": {}}),
]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, nargs="+", default=[100, 3000], help="of a call (100 3000)")
    parser.add_argument("--repeats", type=int, default=5, help="calls, of which the fastest counts (5)")


def models() -> dict[str, tuple[Any, np.ndarray]]:
    """Train small models of different shapes; return each with rows."""
    rng = np.random.default_rng(0)
    X10, X30 = rng.normal(size=(8000, 10)), rng.normal(size=(8000, 30))
    y10, y30 = (X[:, 0] * X[:, 1] + np.sin(X[:, 2]) * X[:, 3] for X in (X10, X30))
    three = np.digitize(X10[:, 0] * X10[:, 1], [-0.3, 0.3])
    return {
        "forest of depth 6": (RandomForestRegressor(50, max_depth=6, random_state=0).fit(X10, y10), X10),
        "deep forest": (
            RandomForestRegressor(10, min_samples_leaf=3, random_state=0).fit(X10[:4000], y10[:4000]),
            X10,
        ),
        "forest, 3 classes": (RandomForestClassifier(20, max_depth=7, random_state=0).fit(X10, three), X10),
        "boosting, 30 columns": (HistGradientBoostingRegressor(random_state=0).fit(X30, y30), X30),
        "boosting, 2 classes": (
            HistGradientBoostingClassifier(max_iter=60, random_state=0).fit(X10, y10 > 0),
            X10,
        ),
    }


def measure(name: str, model: Any, X: np.ndarray, rows: list[int], repeats: int) -> dict[str, Any]:
    """Compare the estimates with the fastest of several calls on one thread."""
    measured = []
    for options, kinds in CASES:
        if "model_output" in options and len(getattr(model, "classes_", ())) != 2:
            continue
        options = dict(options)
        background = X[4000:4100] if options.pop("background", False) else None
        explainer = TreeExplainer(model, background, device="cpu", n_jobs=1, **options)
        for kind, request in kinds.items():
            for n_rows in rows:
                call = call_of(explainer, X[:n_rows], request)
                call()
                plan = explainer.plan(n_rows, **request)
                seconds = min(timed(call) for _ in range(repeats))
                measured.append(
                    {
                        "kind": kind if background is None else f"{kind}, 100 background rows",
                        "rows": n_rows,
                        "estimated_ms": None if plan.seconds is None else 1e3 * plan.seconds,
                        "measured_ms": 1e3 * seconds,
                        "ratio": None if plan.seconds is None else plan.seconds / seconds,
                    }
                )
    return {"name": name, "measured": measured}


def call_of(explainer: TreeExplainer, X: np.ndarray, request: dict[str, Any]) -> Callable[[], Any]:
    if "interactions" in request:
        return lambda: explainer.explain_interactions(X, **request)
    return lambda: explainer.explain(X, **request)


def timed(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def print_result(result: dict[str, Any]) -> None:
    for each in result["measured"]:
        print(json.dumps({"name": result["name"], **each}), flush=True)
