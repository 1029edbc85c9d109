"""Time to load a file with large tables and explain a first row, in freshly started processes."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from skshapgpu import TreeExplainer

#: Measurements of a process: times in milliseconds, and the page faults during ``explain_ms``.
TIMES = ("load_ms", "explain_ms", "total_ms", "next_row_ms")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--depth", type=int, default=16, help="of XGBoost's trees (16)")
    parser.add_argument("--rounds", type=int, default=3, help="of boosting (3)")
    parser.add_argument("--features", type=int, default=100, help="of X (100); on few, tables are smaller")
    parser.add_argument("--min-weight", type=float, default=1.0, help="min_child_weight of a leaf (1)")
    parser.add_argument("--repeats", type=int, default=9, help="processes (9)")


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Train on generated data, fill the tables, save them, and load the file in one process after another.

    The file has just been written, so it is in the page cache.
    """
    import xgboost

    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, arguments.features)).astype(np.float32)
    y = X[:, 0] * X[:, 1] + np.sin(X[:, 2]) * X[:, 3] + 0.3 * X[:, 4:].sum(axis=1)
    parameters = {
        "max_depth": arguments.depth,
        "min_child_weight": arguments.min_weight,
        "eta": 0.1,
        "nthread": 1,
    }
    booster = xgboost.train(parameters, xgboost.DMatrix(X, y), arguments.rounds)
    start = time.perf_counter()
    explainer = TreeExplainer(booster, algorithm="fast_v2", device="cpu")
    filled = time.perf_counter()
    with TemporaryDirectory() as folder:
        path, rows = Path(folder) / "explainer.npz", Path(folder) / "rows.npy"
        explainer.save(path)
        saved = time.perf_counter()
        np.save(rows, X[:2])
        runs = [load_elsewhere(path, rows) for _ in range(arguments.repeats)]
        file_bytes = path.stat().st_size
    expected = explainer.shap_values(X[:1])[0].tolist()
    info = explainer.model_info()
    return {
        **{
            name: getattr(arguments, name)
            for name in ("depth", "rounds", "features", "min_weight", "repeats")
        },
        **{name: info[name] for name in ("n_leaves", "n_lookups", "table_bytes")},
        "file_bytes": file_bytes,
        "fill_seconds": filled - start,
        "save_seconds": saved - filled,
        "same_bits": all(run["values"] == expected for run in runs),
        "median": {name: median(run[name] for run in runs) for name in (*TIMES, "page_faults")},
        "runs": [{name: run[name] for name in (*TIMES, "page_faults")} for run in runs],
    }


def load_elsewhere(path: Path, rows: Path) -> dict[str, Any]:
    command = [sys.executable, __file__, str(path), str(rows)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def load_here(path: str, rows: np.ndarray) -> dict[str, Any]:
    """Time this process, after its imports, as it loads a file and explains a first and a second row."""
    import resource

    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    start = time.perf_counter()
    explainer = TreeExplainer.load(path, device="cpu")
    loaded = time.perf_counter()
    values = explainer.shap_values(rows[:1])
    explained = time.perf_counter()
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults
    explainer.shap_values(rows[1:])
    end = time.perf_counter()
    seconds = (loaded - start, explained - loaded, explained - start, end - explained)
    times = {name: 1e3 * value for name, value in zip(TIMES, seconds)}
    return {**times, "page_faults": faults, "values": values[0].tolist()}


def print_result(result: dict[str, Any]) -> None:
    print(json.dumps({name: value for name, value in result.items() if name != "runs"}, indent=1))


if __name__ == "__main__":
    print(json.dumps(load_here(sys.argv[1], np.load(sys.argv[2]))))
