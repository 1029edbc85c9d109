"""explain_batches on several GPUs, and workers of Dask and Ray that see one GPU each."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pandas")

from helpers import clusters
from helpers.clusters import FEATURES, classifier, flowers

from skshapgpu import TreeExplainer, cuda_info, explain_batches
from skshapgpu.distributed import explain_dask, explain_ray

pytestmark = pytest.mark.usefixtures("gpu")

#: GPUs that the tests use; two workers share a single GPU, and without a GPU the tests are skipped.
NAMES = [f"cuda:{index}" for index in range(min(2, len(cuda_info()["devices"])))] or ["cuda:0"]

#: Options with which the arithmetic is the same however many rows a part has.
OPTIONS = {"algorithm": "quadrature", "device": "cuda"}

X = flowers().reset_index(drop=True)
A = X[FEATURES].to_numpy()


def n_visible() -> int:
    """Return the number of GPUs that a process sees."""
    return len(cuda_info()["devices"])


@pytest.mark.parametrize("devices", [NAMES[0], NAMES], ids=str)
@pytest.mark.parametrize("batch_size", [70, 9])
def test_batches(devices: Any, batch_size: int, tmp_path: Path) -> None:
    """Few large batches are split between two GPUs; of many batches, each GPU gets entire ones."""
    pa = pytest.importorskip("pyarrow")
    model, sink = classifier(X[FEATURES]), tmp_path / "values.arrow"
    source = pa.Table.from_pandas(X)
    result = explain_batches(
        model, source, sink, keep=["id"], batch_size=batch_size, algorithm="quadrature", device=devices
    )
    assert result.n_rows == len(X)
    with pa.OSFile(str(sink)) as file:
        actual = pa.ipc.open_file(file).read_all()
    assert actual.column("id").to_pylist() == list(X["id"])
    expected = TreeExplainer(model, **OPTIONS).shap_values(X[FEATURES]).reshape(len(X), -1)
    np.testing.assert_array_equal(np.column_stack(actual.columns[1:]), expected)


@pytest.fixture(scope="module")
def dask_client() -> Iterator[Any]:
    """Two worker processes; if there are two GPUs, each has its own."""
    distributed = pytest.importorskip("distributed")
    cloudpickle = pytest.importorskip("cloudpickle")
    for module in (clusters, sys.modules[__name__]):
        cloudpickle.register_pickle_by_value(module)
    workers = {}
    for number in range(2):
        environment = {"CUDA_VISIBLE_DEVICES": str(number % len(NAMES))}
        workers[number] = {"cls": distributed.Nanny, "options": {"nthreads": 1, "env": environment}}
    scheduler = {"cls": distributed.Scheduler, "options": {"dashboard": False}}
    with (
        distributed.SpecCluster(workers=workers, scheduler=scheduler) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dask_array(dask_client: Any, dtype: Any) -> None:
    da = pytest.importorskip("dask.array")
    assert list(dask_client.run(n_visible).values()) == [1, 1]
    model, rows = classifier(A), A.astype(dtype)
    result = explain_dask(model, da.from_array(rows, chunks=(25, -1)), **OPTIONS).compute()
    assert result.dtype == dtype
    np.testing.assert_array_equal(result, TreeExplainer(model, **OPTIONS).shap_values(rows))


def test_dask_frame_and_interactions(dask_client: Any) -> None:
    dd = pytest.importorskip("dask.dataframe")
    model = classifier(X[FEATURES])
    result = explain_dask(
        model, dd.from_pandas(X, npartitions=6), keep=["id"], interactions="occurring", **OPTIONS
    ).compute()
    assert list(result.pop("id")) == list(X["id"])
    expected = (
        TreeExplainer(model, **OPTIONS).explain_interactions(X[FEATURES], interactions="occurring").values
    )
    np.testing.assert_array_equal(result, expected.reshape(len(X), -1))


def test_dask_chunks_that_lie_on_gpus(dask_client: Any) -> None:
    cupy = pytest.importorskip("cupy")
    da = pytest.importorskip("dask.array")
    # Distributed sends arrays of a GPU with one of the two, and waits without an end if both are missing.
    if not any(map(importlib.util.find_spec, ("rmm", "numba"))):
        pytest.skip("needs rmm or numba")
    model = classifier(A)
    rows = da.from_array(A, chunks=(90, -1)).map_blocks(cupy.asarray, meta=cupy.empty((0, 0)))
    lazy = explain_dask(model, rows, **OPTIONS)
    assert isinstance(lazy._meta, cupy.ndarray)
    result = lazy.compute()
    assert isinstance(result, cupy.ndarray)
    np.testing.assert_array_equal(result.get(), TreeExplainer(model, **OPTIONS).shap_values(A))


def test_ray_actors() -> None:
    pa = pytest.importorskip("pyarrow")
    ray = pytest.importorskip("ray")
    pytest.importorskip("ray.data")
    model = classifier(X[FEATURES])
    ray.init(num_cpus=4, include_dashboard=False, object_store_memory=100 * 2**20, log_to_driver=False)
    try:
        assert ray.cluster_resources()["GPU"] >= len(NAMES)
        ray.data.DataContext.get_current().execution_options.preserve_order = True
        tables = [pa.Table.from_pandas(X.iloc[start : start + 50]) for start in range(0, len(X), 50)]
        explained = explain_ray(
            model,
            ray.data.from_arrow(tables),
            features=FEATURES,
            keep=["id"],
            concurrency=len(NAMES),
            num_gpus=1,
            batch_size=50,
            **OPTIONS,
        )
        result = pa.concat_tables(ray.get(explained.to_arrow_refs())).to_pandas()
    finally:
        ray.shutdown()
    assert list(result.pop("id")) == list(X["id"])
    expected = TreeExplainer(model, **OPTIONS).shap_values(X[FEATURES])
    np.testing.assert_array_equal(result, expected.reshape(len(X), -1))
