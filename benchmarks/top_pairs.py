"""Peak memory and time of the strongest pairs of many rows: one line of JSON. Needs XGBoost."""

from __future__ import annotations

import argparse
import json
import resource
import time

import numpy as np
import xgboost

from skshapgpu import TreeExplainer

GIB = 2**20  # of ru_maxrss, which counts KiB on Linux


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--features", type=int, default=54)
    parser.add_argument("--depth", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--pairs", type=int, default=50)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()

    rng = np.random.default_rng(0)
    X = rng.normal(size=(arguments.rows, arguments.features))
    y = X[:, 0] * X[:, 1] + np.sin(X[:, 2]) * X[:, 3] + 0.3 * X[:, 4:].sum(axis=1)
    parameters = {"max_depth": arguments.depth, "eta": 0.1, "nthread": arguments.threads}
    booster = xgboost.train(parameters, xgboost.DMatrix(X[:20_000], y[:20_000]), arguments.rounds)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / GIB

    explainer = TreeExplainer(booster, device="cpu", n_jobs=arguments.threads)
    start = time.perf_counter()
    explanation = explainer.explain_interactions(X, pairs=arguments.pairs)
    seconds = time.perf_counter() - start
    result = {
        **vars(arguments),
        "leaves": explainer.plan_info()["n_leaves"],
        "occurring_pairs": len(explainer.occurring_pairs()),
        "seconds": round(seconds, 2),
        "result_gib": round(explanation.values.nbytes / 2**30, 3),
        "peak_gib_before": round(before, 2),
        "peak_gib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / GIB, 2),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
