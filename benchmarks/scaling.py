"""Time and memory of explain_batches from Parquet to Parquet: with more rows, only the time may grow.

Each run is a fresh process. Rows are generated and written in row groups, so no process ever holds all rows.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from skshapgpu import TreeExplainer, _core
from skshapgpu._files import saving
from skshapgpu.adapters.ensemble import attributes_of

#: Largest permitted difference between the output and values in double precision, relative to the largest
#: magnitude.
TOLERANCE = 1e-5

ROWS, CUDA_ROWS = (50_000, 200_000, 800_000), (10**6, 4 * 10**6, 16 * 10**6)
TRAINING_ROWS = 20_000
ROW_GROUP = 65_536
CHECKED_ROWS = 64

PROCESS = Path(__file__).parent / "scaling_process.py"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--rows", type=int, nargs="+", help="rows of each run (50000 200000 800000; GPU: 1, 4 and 16 million)"
    )
    parser.add_argument("--features", type=int, default=64, help="(64)")
    parser.add_argument("--trees", type=int, default=400, help="of a random forest (400)")
    parser.add_argument("--depth", type=int, default=12, help="of its trees (12)")
    parser.add_argument("--jobs", type=int, default=1, help="threads of a process (1)")
    parser.add_argument("--reasons", type=int, help="number of reasons per row; default: all values")
    parser.add_argument("--batch-size", type=int, help="rows of a batch (auto)")
    parser.add_argument(
        "--gpus", type=int, nargs="+", default=[1], help="with --device cuda: numbers of GPUs to measure (1)"
    )
    parser.add_argument(
        "--from-memory", action="store_true", help="also measure calls of shap_values with so many rows"
    )
    parser.add_argument(
        "--threads",
        type=int,
        nargs="*",
        help="instead of files, measure calls with these numbers of threads (1 2 4 8 16 32)",
    )
    parser.add_argument("--repeats", type=int, default=1, help="rounds of runs for each number of rows (1)")
    parser.add_argument("--folder", type=Path, help="where rows and values are stored (a temporary folder)")
    parser.add_argument("--cache", type=Path, default=Path(__file__).parent / ".cache", help="trained models")


def measure(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure each number of rows in one process, and the largest one on several GPUs or in two processes.

    A run with several processes divides the rows among them; they work at the same time.
    """
    model = _model(arguments)
    root = Path(tempfile.mkdtemp(dir=arguments.folder))
    results = []
    try:
        for n_rows in arguments.rows:
            folder = root / str(n_rows)
            _write_rows(folder, n_rows, arguments.features, arguments.gpus)
            layouts = _layouts(arguments, n_rows == max(arguments.rows))
            for _ in range(arguments.repeats):
                for devices in layouts:
                    result = _from_files(model, devices, folder, root, arguments)
                    print_result(result)
                    results.append(result)
                    if arguments.from_memory and len(devices) == 1:
                        result = _in_processes(model, devices, [None], [None], n_rows, arguments)
                        print_result(result)
                        results.append(result)
            shutil.rmtree(folder)
    finally:
        shutil.rmtree(root)
    return results


def _layouts(arguments: argparse.Namespace, largest: bool) -> list[list[str | list[str]]]:
    """Return the devices of the processes of each run."""
    if arguments.device == "cpu":
        return [["cpu"], ["cpu"] * 2] if largest else [["cpu"]]
    layouts: list[list[str | list[str]]] = []
    for n_gpus in arguments.gpus if largest else arguments.gpus[:1]:
        names = [f"cuda:{index}" for index in range(n_gpus)]
        layouts += [[names], [*names]] if n_gpus > 1 else [[*names]]
    return layouts


def _from_files(
    model: Path, devices: list[str | list[str]], folder: Path, root: Path, arguments: argparse.Namespace
) -> dict[str, Any]:
    """Explain the files of a folder in as many processes as there are ``devices``; check the output."""
    files, n = sorted(folder.iterdir()), len(devices)
    sources = [
        [os.fspath(path) for path in files[i * len(files) // n : (i + 1) * len(files) // n]] for i in range(n)
    ]
    sinks = [root / f"values-{i}" for i in range(n)]
    result = _in_processes(model, devices, sources, sinks, 0, arguments)
    result["error"] = _error(model, folder, sinks, arguments)
    for sink in sinks:
        shutil.rmtree(sink)
    return result


def print_result(result: dict[str, Any]) -> None:
    where = "files" if "stage_seconds" in result else "memory"
    print(
        f"{result['rows']:>12,} rows from {where}, processes on {' and on '.join(result['devices'])}: "
        f"{result['wall_seconds']:8.1f} s, {result['rows_per_second']:>12,.0f} rows/s without starting, "
        f"peak {result['peak_mib']:,.0f} MiB",
        flush=True,
    )


def _model(arguments: argparse.Namespace) -> Path:
    """Return the file of a forest's explainer; train the forest first if the file is missing."""
    from sklearn.ensemble import RandomForestRegressor

    name = f"scaling-{arguments.trees}-{arguments.depth}-{arguments.features}.npz"
    path = arguments.cache / name
    if not path.exists():
        rng = np.random.default_rng(0)
        X = rng.normal(size=(TRAINING_ROWS, arguments.features)).astype(np.float32)
        n_first = min(8, arguments.features)
        y = X[:, 0] * X[:, 1 % n_first] + np.sin(X[:, :n_first]).sum(axis=1) + 0.3 * X.sum(axis=1)
        forest = RandomForestRegressor(
            arguments.trees, max_depth=arguments.depth, max_features=1 / 3, n_jobs=-1, random_state=0
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        TreeExplainer(forest.fit(X, y), device="cpu").save(path)
    return path


def _write_rows(folder: Path, n_rows: int, n_features: int, gpus: list[int]) -> None:
    """Write files of equally many rows, in row groups; as many files as processes can share equally."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir()
    names = [f"x{i}" for i in range(n_features)]
    schema = pa.schema([("id", pa.int64()), *((name, pa.float32()) for name in names)])
    bounds = np.linspace(0, n_rows, math.lcm(2, *gpus) + 1).astype(int)
    for number, (begin, end) in enumerate(pairwise(bounds)):
        path = folder / f"rows-{number:03d}.parquet"
        with pq.ParquetWriter(path, schema, use_dictionary=False) as writer:
            for start in range(begin, end, ROW_GROUP):
                n = min(ROW_GROUP, end - start)
                columns = np.random.default_rng(start).standard_normal((n_features, n), np.float32)
                writer.write_table(
                    pa.Table.from_arrays([pa.array(np.arange(start, start + n)), *columns], schema=schema)
                )


def _in_processes(
    model: Path,
    devices: list[str | list[str]],
    sources: list[list[str]] | list[None],
    sinks: list[Path] | list[None],
    n_rows: int,
    arguments: argparse.Namespace,
) -> dict[str, Any]:
    """Run one process per source at the same time; return all times and the largest peak of memory.

    Without a source, a process explains ``n_rows`` rows from memory.
    """
    begin = time.perf_counter()
    running = []
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    for device, source, sink in zip(devices, sources, sinks, strict=True):
        call = {
            "model": os.fspath(model),
            "source": source,
            "sink": None if sink is None else os.fspath(sink),
            "rows": n_rows,
            "device": device,
            "n_jobs": arguments.jobs,
            "reasons": arguments.reasons,
            "batch_size": arguments.batch_size or "auto",
        }
        command = [sys.executable, os.fspath(PROCESS), json.dumps(call)]
        running.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment))
    outputs = [process.communicate()[0] for process in running]
    if any(process.returncode for process in running):
        raise RuntimeError("a process that explains has failed; what it said stands above")
    parts = [json.loads(output) for output in outputs]
    if sources[0] is None:
        more = {"all_seconds": parts[0]["all_seconds"]}
    else:
        written = [path.stat().st_size for sink in sinks if sink for path in sink.glob("part-*")]
        more = {name: [part[name] for part in parts] for name in ("stage_seconds", "processor_seconds")}
        more |= {"batch_rows": parts[0]["batch_rows"], "output_mib": sum(written) / 2**20}
    return {
        "rows": sum(part["rows"] for part in parts),
        "processes": len(devices),
        "devices": [device if isinstance(device, str) else ", ".join(device) for device in devices],
        "wall_seconds": time.perf_counter() - begin,
        "seconds": max(part["seconds"] for part in parts),
        "loading_seconds": max(part["loading_seconds"] for part in parts),
        "rows_per_second": sum(part["rows"] for part in parts) / max(part["seconds"] for part in parts),
        "peak_mib": max(part["peak_mib"] for part in parts),
        **more,
    }


def _error(model: Path, folder: Path, sinks: list[Path], arguments: argparse.Namespace) -> float:
    """Return the largest relative difference of the output from double precision; check all ids."""
    import pyarrow.dataset as ds

    total = 0
    for sink in sinks:
        for batch in ds.dataset(sink).to_batches(columns=["id"]):
            ids = batch.column("id").to_numpy()
            if not (ids == np.arange(total, total + len(ids))).all():
                raise RuntimeError("rows of the output are lost, doubled or out of order")
            total += len(ids)
    rows, made = (ds.dataset(path).head(CHECKED_ROWS).drop_columns(["id"]) for path in (folder, sinks[0]))
    X = np.column_stack(rows.columns).astype(np.float64)
    truth = _double(model, X)
    if arguments.reasons is not None:
        written = made.column("shap_1").to_numpy()
        truth = truth[np.arange(len(truth)), np.abs(truth).argmax(axis=1)]
    else:
        written = np.column_stack(made.columns)
    error = float(np.abs(written - truth).max() / np.abs(truth).max())
    if not (error <= TOLERANCE and total == sum(f.count_rows() for f in ds.dataset(folder).get_fragments())):
        raise RuntimeError(f"the output is wrong: {total} rows, an error of {error}")
    return error


def _double(model: Path, X: np.ndarray) -> np.ndarray:
    """Compute values in double precision from the trees in the file."""
    ensemble = saving.load(model).adapted.ensemble
    values = np.empty((len(X), 1, X.shape[1]))
    plan = _core.Plan(attributes_of(ensemble), "double")
    plan.explain(X.astype(ensemble.x_dtype).astype(np.float64), values, None, 1)
    return values[:, 0]
