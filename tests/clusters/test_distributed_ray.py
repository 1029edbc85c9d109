"""Ray: the actors compute the same values as this process, even if an actor is killed."""

# ruff: noqa: E402
from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")
ray = pytest.importorskip("ray")
pytest.importorskip("ray.data")

from helpers import clusters
from helpers.clusters import FEATURES, Gate, classifier, flowers, regressor
from ray import cloudpickle

from skshapgpu import ShapTransformer, TreeExplainer
from skshapgpu.distributed import explain_ray

X = flowers().reset_index(drop=True)
A = X[FEATURES].to_numpy()
N_BLOCKS = 8


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    """Two processors, for two actors."""
    for module in (clusters, sys.modules[__name__]):
        cloudpickle.register_pickle_by_value(module)
    ray.init(num_cpus=2, include_dashboard=False, object_store_memory=100 * 2**20, log_to_driver=False)
    context = ray.data.DataContext.get_current()
    context.execution_options.preserve_order = True
    context.enable_progress_bars = False
    yield
    ray.shutdown()


def dataset(frame: Any = X) -> Any:
    bounds = np.linspace(0, len(frame), N_BLOCKS + 1).astype(int)
    parts = [frame.iloc[start:stop] for start, stop in pairwise(bounds)]
    return ray.data.from_arrow([pa.Table.from_pandas(part, preserve_index=False) for part in parts])


def collected(explained: Any) -> Any:
    return pa.concat_tables(ray.get(explained.to_arrow_refs())).to_pandas()


def test_values_of_two_actors_that_compile_once(tmp_path: Path) -> None:
    model, gate = classifier(X[FEATURES]), Gate(str(tmp_path), first=100)
    explained = explain_ray(gate.before(model), dataset(), features=FEATURES, keep=["id"], concurrency=2)
    assert not list(tmp_path.iterdir())  # lazily
    result = collected(explained)
    transformer = ShapTransformer.from_fitted(model).set_output(transform="pandas")
    expected = pd.concat([X[["id"]], transformer.transform(X[FEATURES])], axis=1)
    pd.testing.assert_frame_equal(result, expected, check_exact=True)
    assert len(set(gate.arrivals())) == len(gate.arrivals()) == 2
    assert os.getpid() not in gate.arrivals()
    # Each actor transforms a few rows again, at most three times, to check that they are independent.
    assert N_BLOCKS <= len(list(tmp_path.glob("call-*"))) <= N_BLOCKS + 2 * 3


def test_killed_actor_and_top_of_batches_of_any_size(tmp_path: Path) -> None:
    gate, model = Gate(str(tmp_path), first=3), regressor(A)
    explained = explain_ray(
        gate.before(model),
        dataset(),
        features=FEATURES,
        keep=["id"],
        reasons=2,
        dtype="float32",
        concurrency=2,
        batch_size=30,
        num_cpus=0.5,
    )
    results: list[Any] = []
    job = Thread(target=lambda: results.append(collected(explained)))
    job.start()
    clusters.wait_for(gate.waiting)  # Ray 2.30 gives the first blocks to one of the actors
    assert len(list(tmp_path.glob("call-*"))) == 3
    assert job.is_alive()
    killed = gate.waiting()[0]
    os.kill(killed, signal.SIGKILL)
    gate.open()
    job.join(clusters.PATIENCE)
    assert list(results[0]["id"]) == list(X["id"])
    values = TreeExplainer(model).shap_values(A).astype(np.float32)
    order = np.argsort(-np.abs(values), axis=1, kind="stable")
    for rank in range(2):
        assert list(results[0][f"feature_{rank + 1}"]) == [FEATURES[i] for i in order[:, rank]]
        column = results[0][f"shap_{rank + 1}"]
        assert column.dtype == np.float32
        np.testing.assert_array_equal(column, np.take_along_axis(values, order[:, rank, None], 1)[:, 0])


def test_reasons_for_and_against() -> None:
    model = classifier(X[FEATURES])
    result = collected(explain_ray(model, dataset(), keep=["id"], reasons=2, by_sign=True, concurrency=1))
    assert list(result["id"]) == list(X["id"])
    clusters.assert_reasons(result, TreeExplainer(model).explain(X[FEATURES]), 2)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"keep": ["colour"]}, ValueError, "there is no column 'colour'"),
        ({"keep": FEATURES}, ValueError, "two columns .*use prefix"),
        ({"by_sign": True}, ValueError, "give reasons="),
        ({"interactions": 3}, ValueError, "the strongest depend on all rows"),
        ({"device": "graphics"}, ValueError, "device must be"),
        ({"concurrency": 0}, ValueError, "concurrency must be at least 1"),
        ({"concurrency": (2, 1)}, ValueError, "the first number at most the second"),
        ({"concurrency": "many"}, TypeError, "concurrency must be a number"),
    ],
    ids=str,
)
def test_refused_before_any_work(arguments: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        explain_ray(regressor(X[FEATURES]), dataset(), **arguments)


def test_refused_datasets() -> None:
    with pytest.raises(TypeError, match=r"DataFrame, not a Ray dataset"):
        explain_ray(regressor(X[FEATURES]), X)
    of_pandas = ray.data.from_pandas(X[FEATURES[:3]])
    with pytest.raises(ValueError, match="takes 4 features, but there are 3"):
        explain_ray(regressor(A), of_pandas)
