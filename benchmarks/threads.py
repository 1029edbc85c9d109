"""Speed of SHAP values with several threads, from one row of a large model to many rows, and tiny calls."""

from __future__ import annotations

import multiprocessing
import os
import time
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from skshapgpu import TreeExplainer

THREADS = (1, 2, 4, 8, 16, 32)

#: name: (depth of 100 trees, rows, algorithm, rounds)
CASES = {
    "depth-16-1-row": (16, 1, "quadrature", 25),
    "depth-16-100-rows": (16, 100, "quadrature", 11),
    "depth-16-10000-rows-auto": (16, 10_000, "auto", 11),
    "depth-8-1000-rows": (8, 1_000, "quadrature", 15),
    "depth-8-200000-rows": (8, 200_000, "quadrature", 3),
    "depth-8-200000-rows-auto": (8, 200_000, "auto", 3),
}
#: Independent processes show how much faster several threads can be at best on the machine: the number of
#: rows that each process explains again and again, the seconds of a run, and the rounds.
APART_ROWS, APART_SECONDS, APART_ROUNDS = 1_000, 0.5, 9
#: Number of calls, with n_jobs=1 and with n_jobs=-1 in turn, that explain one row of ten trees of depth 3.
TINY_CALLS = 3_000
TRAINING_ROWS, FEATURES = 20_000, 8


def measure(threads: list[int], cache: Path, quick: bool) -> list[dict[str, Any]]:
    """Measure all cases: each round explains once with each number of threads, in alternating order."""
    results = [_tiny(_model(10, 3, "auto", cache), 300 if quick else TINY_CALLS)]
    print_result(results[0])
    for name, (depth, n_rows, algorithm, rounds) in CASES.items():
        path = _model(10 if quick else 100, 5 if quick else depth, algorithm, cache)
        result = {"name": name, "rows": n_rows, "algorithm": algorithm}
        result |= _case(path, min(n_rows, 2_000) if quick else n_rows, threads, rounds)
        results.append(result)
        print_result(result)
    path = _model(10 if quick else 100, 5 if quick else 8, "quadrature", cache)
    results.append(_apart(path, threads, 2 if quick else APART_ROUNDS, 0.1 if quick else APART_SECONDS))
    print_result(results[-1])
    return results


def print_result(result: dict[str, Any]) -> None:
    if result["name"] == "tiny":
        print(
            f"tiny: {result['microseconds']}, -1 less 1: {result['difference']:.1f} microseconds", flush=True
        )
        return
    speeds = ", ".join(f"{n}: {speed:.1f}" for n, speed in result["speed_over_first"].items())
    print(f"{result['name']}: {result['seconds'][0]:.4g} s; times as fast with {speeds}", flush=True)


def _case(path: Path, n_rows: int, threads: list[int], rounds: int) -> dict[str, Any]:
    X = np.random.default_rng(1).standard_normal((n_rows, FEATURES), np.float32)
    explainers = [TreeExplainer.load(path, device="cpu", n_jobs=n) for n in threads]
    first = explainers[0].shap_values(X)
    same = [np.array_equal(explainer.shap_values(X), first) for explainer in explainers]
    if not all(same):
        raise RuntimeError(f"{n_rows} rows: the bits depend on the number of threads")
    seconds: list[list[float]] = [[] for _ in threads]
    for number in range(rounds):
        for i in range(len(threads)) if number % 2 == 0 else reversed(range(len(threads))):
            start = time.perf_counter()
            explainers[i].shap_values(X)
            seconds[i].append(time.perf_counter() - start)
    return {
        "threads": threads,
        "processors": len(os.sched_getaffinity(0)),
        "rounds": rounds,
        "n_leaves": explainers[0].model_info()["n_leaves"],
        "n_chunks": explainers[0].model_info()["n_chunks"],
        "seconds": [median(times) for times in seconds],
        "speed_over_first": {
            n: median(first_time / duration for first_time, duration in zip(seconds[0], times))
            for n, times in zip(threads, seconds)
        },
    }


def _apart(path: Path, numbers: list[int], rounds: int, seconds: float) -> dict[str, Any]:
    """Measure how many rows several processes explain at the same time, each on one thread."""
    context = multiprocessing.get_context("spawn")
    workers = []
    for _ in range(max(numbers)):
        ours, theirs = context.Pipe()
        worker = context.Process(target=_explain_apart, args=(theirs, path, seconds), daemon=True)
        worker.start()
        workers.append(ours)
    for connection in workers:
        connection.recv()  # it is ready
    rates: list[list[float]] = [[] for _ in numbers]
    for number in range(rounds):
        for i in range(len(numbers)) if number % 2 == 0 else reversed(range(len(numbers))):
            running = workers[: numbers[i]]
            for connection in running:
                connection.send(True)
            rates[i].append(sum(connection.recv() for connection in running))
    for connection in workers:
        connection.send(False)
    return {
        "name": "depth-8-1000-rows-processes",
        "rows": APART_ROWS,
        "threads": numbers,
        "processors": len(os.sched_getaffinity(0)),
        "rounds": rounds,
        "seconds": [APART_ROWS / median(rates_in_turn) for rates_in_turn in rates],
        "speed_over_first": {
            n: median(rate / first_rate for first_rate, rate in zip(rates[0], rates_in_turn))
            for n, rates_in_turn in zip(numbers, rates)
        },
    }


def _explain_apart(parent: Connection, path: Path, seconds: float) -> None:
    """Explain the same rows for ``seconds``, whenever the parent asks, and send the rows per second."""
    X = np.random.default_rng(1).standard_normal((APART_ROWS, FEATURES), np.float32)
    explainer = TreeExplainer.load(path, device="cpu", n_jobs=1)
    explainer.shap_values(X)
    parent.send(0.0)
    while parent.recv():
        calls, start = 0, time.perf_counter()
        while (elapsed := time.perf_counter() - start) < seconds:
            explainer.shap_values(X)
            calls += 1
        parent.send(calls * APART_ROWS / elapsed)


def _tiny(path: Path, calls: int) -> dict[str, Any]:
    X = np.random.default_rng(1).standard_normal((1, FEATURES), np.float32)
    explainers = {n: TreeExplainer.load(path, device="cpu", n_jobs=n) for n in (1, -1)}
    seconds: dict[int, list[float]] = {n: [] for n in explainers}
    for _ in range(calls):
        for n, explainer in explainers.items():
            start = time.perf_counter()
            explainer.shap_values(X)
            seconds[n].append(time.perf_counter() - start)
    differences = [1e6 * (last_time - first_time) for first_time, last_time in zip(seconds[1], seconds[-1])]
    return {
        "name": "tiny",
        "rows": 1,
        "calls": calls,
        "microseconds": {n: round(1e6 * median(each), 1) for n, each in seconds.items()},
        "difference": median(differences),
    }


def _model(n_trees: int, depth: int, algorithm: Any, cache: Path) -> Path:
    """Return the file of an explainer of XGBoost; train the model first if the file is missing."""
    path = cache / f"threads-{n_trees}-{depth}-{algorithm}.npz"
    if not path.exists():
        import xgboost

        rng = np.random.default_rng(0)
        X = rng.standard_normal((TRAINING_ROWS, FEATURES), np.float32)
        y = X[:, 0] * X[:, 1] + np.sin(X).sum(axis=1) + 0.3 * rng.standard_normal(TRAINING_ROWS)
        parameters = {"max_depth": depth, "eta": 0.1, "nthread": os.cpu_count()}
        booster = xgboost.train(parameters, xgboost.DMatrix(X, y), n_trees)
        path.parent.mkdir(parents=True, exist_ok=True)
        TreeExplainer(booster, device="cpu", algorithm=algorithm).save(path)
    return path
