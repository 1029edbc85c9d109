"""Rows per second of Dask, Spark and Ray with one and two worker processes, and of this process alone."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor

from skshapgpu import TreeExplainer
from skshapgpu.distributed import explain_dask, explain_ray, explain_spark

ENGINES = ("dask", "spark", "ray")
WORKERS = (1, 2)

#: Options with which the arithmetic is the same however many rows a part has.
OPTIONS: dict[str, Any] = {"algorithm": "quadrature", "device": "cpu"}

#: Rows per part in the call that measures the costs independent of rows.
FEW = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--engines", nargs="+", choices=ENGINES, default=ENGINES, metavar="NAME", help=" ".join(ENGINES)
    )
    parser.add_argument("--rows", type=int, default=200_000, help="rows to explain (200000)")
    parser.add_argument("--parts", type=int, default=16, help="partitions (16)")
    parser.add_argument("--rounds", type=int, default=200, help="of boosting (200)")
    parser.add_argument("--repeats", type=int, default=5, help="rounds of all systems (5)")


class Dask:
    """A local cluster; with a single worker, the rows are stored there."""

    def __init__(self, model: Any, frames: dict[str, Any], n_parts: int) -> None:
        import dask.dataframe as dd
        from distributed import Client, LocalCluster

        self._model, self._parts = model, {}
        self._cluster = LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, memory_limit=0
        )
        self._client = Client(self._cluster)
        self._names = list(self._client.scheduler_info(n_workers=-1)["workers"])
        for name, X in frames.items():
            frame = dd.from_pandas(X, npartitions=n_parts)
            for n_workers in WORKERS:
                workers = self._names[:n_workers]
                self._parts[name, n_workers] = self._client.persist(frame, workers=workers)

    def values(self, n_workers: int) -> Any:
        return explain_dask(self._model, self._parts["few", n_workers], **OPTIONS).compute()

    def run(self, name: str, n_workers: int) -> None:
        values = explain_dask(self._model, self._parts[name, n_workers], **OPTIONS)
        self._client.compute(values.map_partitions(len), workers=self._names[:n_workers]).result()

    def stop(self) -> None:
        self._client.close()
        self._cluster.close()


class Spark:
    """``local[2]``; one worker is one partition at a time."""

    def __init__(self, model: Any, frames: dict[str, Any], n_parts: int) -> None:
        from pyspark.sql import SparkSession

        os.environ["PYSPARK_PYTHON"] = sys.executable
        options = {
            "ui.enabled": "false",
            "driver.host": "127.0.0.1",
            "driver.memory": "4g",
            "log.level": "OFF",
            "sql.execution.arrow.pyspark.enabled": "true",
        }
        builder = SparkSession.builder.master("local[2]")
        for name, value in options.items():
            builder = builder.config(f"spark.{name}", value)
        self._session, self._model = builder.getOrCreate(), model
        self._rows = {}
        for name, X in frames.items():
            self._rows[name] = self._session.createDataFrame(X).repartition(n_parts).cache()
            self._rows[name].count()
            self._features = list(X)

    def values(self, n_workers: int) -> Any:
        return self._explained("few", n_workers, self._features).toPandas()

    def run(self, name: str, n_workers: int) -> None:
        self._explained(name, n_workers, ()).write.format("noop").mode("overwrite").save()

    def _explained(self, name: str, n_workers: int, keep: Any) -> Any:
        rows = self._rows[name].coalesce(1) if n_workers == 1 else self._rows[name]
        return explain_spark(self._model, rows, keep=keep, prefix="shap_", **OPTIONS)

    def stop(self) -> None:
        self._session.stop()


class Ray:
    """Blocks in the object store; actors start anew in each run."""

    def __init__(self, model: Any, frames: dict[str, Any], n_parts: int) -> None:
        import logging

        import pyarrow as pa
        import ray

        if not ray.is_initialized():
            ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=2 * 10**9)
        logging.getLogger("ray.data").setLevel(logging.WARNING)
        ray.data.DataContext.get_current().enable_progress_bars = False
        ray.data.DataContext.get_current().execution_options.preserve_order = True
        self._rows, self._model = {}, model
        for name, X in frames.items():
            parts = np.array_split(np.arange(len(X)), n_parts)
            tables = [pa.Table.from_pandas(X.iloc[part], preserve_index=False) for part in parts]
            self._rows[name] = ray.data.from_arrow(tables)

    def values(self, n_workers: int) -> Any:
        return self._explained("few", n_workers).to_pandas()

    def run(self, name: str, n_workers: int) -> None:
        self._explained(name, n_workers).materialize()

    def _explained(self, name: str, n_workers: int) -> Any:
        return explain_ray(self._model, self._rows[name], concurrency=n_workers, **OPTIONS)

    def stop(self) -> None:
        import ray

        ray.shutdown()


_CLASSES: dict[str, Any] = {"dask": Dask, "spark": Spark, "ray": Ray}


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Check that all engines return bit-identical values, then time them in turn, in changing order.

    Each engine has all rows in memory before the clock starts, and explains them all. A call with few rows in
    as many parts measures the overhead.
    """
    import pandas as pd

    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(arguments.rows, 20)), columns=[f"x{i}" for i in range(20)])
    sample = X.iloc[:10_000]
    y = sample["x0"] * sample["x1"] + sample["x2"] ** 2 + rng.normal(size=len(sample))
    model = HistGradientBoostingRegressor(
        max_iter=arguments.rounds, max_leaf_nodes=64, random_state=0, early_stopping=False
    ).fit(sample, y)
    few = X.iloc[: FEW * arguments.parts]

    systems: dict[str, Callable[[], Any]] = {}
    fixed: dict[str, Callable[[], Any]] = {}
    engines: list[Any] = []
    for n_jobs in WORKERS:
        explainer = TreeExplainer(model, n_jobs=n_jobs, **OPTIONS)
        systems[f"local-{n_jobs}"] = partial(explainer.shap_values, X)
    expected = explainer.shap_values(few)
    same_bits = {}
    try:
        for name in arguments.engines:
            engine = _CLASSES[name](model, {"few": few, "all": X}, arguments.parts)
            engines.append(engine)
            for n_workers in WORKERS:
                key = f"{name}-{n_workers}"
                same_bits[key] = _same(engine.values(n_workers), few, expected)
                systems[key] = partial(engine.run, "all", n_workers)
                fixed[key] = partial(engine.run, "few", n_workers)
                systems[key]()  # compiles, and warms up
        runs = [_round(systems, fixed, number) for number in range(arguments.repeats)]
    finally:
        for engine in reversed(engines):
            engine.stop()
    shown = {}
    for key in systems:
        shown[key] = {
            "rows_per_second": median(arguments.rows / run[key]["seconds"] for run in runs),
            "speed_over_local_1": median(run["local-1"]["seconds"] / run[key]["seconds"] for run in runs),
        }
        if key in fixed:
            shown[key]["fixed_over_local_1"] = median(
                run[key]["fixed_seconds"] / run["local-1"]["seconds"] for run in runs
            )
    return {
        **{name: getattr(arguments, name) for name in ("rows", "parts", "rounds", "repeats")},
        "features": 20,
        "leaves": TreeExplainer(model).model_info()["n_leaves"],
        "same_bits": same_bits,
        "systems": shown,
        "runs": runs,
    }


def _round(
    systems: dict[str, Callable[[], Any]], fixed: dict[str, Callable[[], Any]], number: int
) -> dict[str, dict[str, float]]:
    keys = list(systems)
    run: dict[str, dict[str, float]] = {}
    for key in keys[number % len(keys) :] + keys[: number % len(keys)]:
        run[key] = {"seconds": _seconds(systems[key])}
        if key in fixed:
            run[key]["fixed_seconds"] = _seconds(fixed[key])
    return run


def _seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _same(result: Any, X: Any, expected: np.ndarray) -> bool:
    """Return whether values are bit-identical; Spark returns its values with the rows, in any order."""
    names = list(X)
    if len(result.columns) > len(names):
        order = np.lexsort(X.to_numpy().T), np.lexsort(result[names].to_numpy().T)
        result = result[[f"shap_{name}" for name in names]].iloc[order[1]]
        expected = expected[order[0]]
    return bool((result.to_numpy(float) == expected).all())


def print_result(result: dict[str, Any]) -> None:
    print(json.dumps({name: value for name, value in result.items() if name != "runs"}, indent=1))
