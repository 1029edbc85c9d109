"""Dask: the workers compute the same values as this process, even if a worker is killed."""

# ruff: noqa: E402
from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pandas")
pytest.importorskip("dask.dataframe")
distributed = pytest.importorskip("distributed")

import cloudpickle
import dask.array as da
import dask.dataframe as dd
import pandas as pd
import scipy.sparse as sp
from helpers import clusters
from helpers.clusters import FEATURES, Gate, classifier, flowers, regressor
from sklearn.ensemble import RandomForestRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skshapgpu import ShapInteractionTransformer, ShapTransformer, TreeExplainer
from skshapgpu.distributed import explain_dask

X = flowers()
A = X[FEATURES].to_numpy()

#: Rows of a chunk; the last one is shorter.
CHUNK = 90


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """Two processes with two threads each."""
    for module in (clusters, sys.modules[__name__]):
        cloudpickle.register_pickle_by_value(module)
    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=2, processes=True, dashboard_address=None
    )
    with cluster, distributed.Client(cluster) as client:
        yield client


def array(dtype: Any = np.float64, columns: int = -1) -> Any:
    return da.from_array(A.astype(dtype), chunks=(CHUNK, columns))


def frame(**columns: Any) -> Any:
    return dd.from_pandas(X.assign(**columns), npartitions=5, sort=False)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("make", [regressor, classifier])
def test_array(client: Any, make: Any, dtype: Any) -> None:
    model = make(A)
    expected = TreeExplainer(model).shap_values(A.astype(dtype))
    result = explain_dask(model, array(dtype))
    assert result.shape == expected.shape
    assert result.dtype == expected.dtype == dtype
    assert result.chunks[0] == (90, 90, 90, 90, 40)
    computed = result.compute()
    assert computed.dtype == dtype
    np.testing.assert_array_equal(computed, expected)


def test_columns_in_several_chunks(client: Any) -> None:
    model = regressor(A)
    result = explain_dask(model, array(columns=3))
    assert result.numblocks == (5, 1)
    np.testing.assert_array_equal(result.compute(), TreeExplainer(model).shap_values(A))


def test_chunks_of_unknown_length(client: Any) -> None:
    model, X = classifier(A), array()
    chosen = X[X[:, 0] > 5.5]
    assert np.isnan(chosen.shape[0])
    result = explain_dask(model, chosen)
    assert np.isnan(result.shape[0])
    assert result.shape[1:] == (4, 3)
    rows = A[A[:, 0] > 5.5]
    assert 0 < len(rows) < len(A)
    np.testing.assert_array_equal(result.compute(), TreeExplainer(model).shap_values(rows))


def test_chunks_that_are_sparse_or_empty(client: Any) -> None:
    zeros = np.nan_to_num(A)
    model = RandomForestRegressor(3, random_state=0).fit(zeros, zeros[:, 0] * zeros[:, 2] + zeros[:, 1])
    sparse = da.from_array(zeros, chunks=(CHUNK, -1)).map_blocks(sp.csr_matrix)
    expected = TreeExplainer(model).shap_values(zeros)
    np.testing.assert_array_equal(explain_dask(model, sparse).compute(), expected)
    cut = da.concatenate([da.from_array(zeros[:0], chunks=(1, -1)), da.from_array(zeros, chunks=(CHUNK, -1))])
    np.testing.assert_array_equal(explain_dask(model, cut).compute(), expected)


@pytest.mark.parametrize("make", [regressor, classifier])
@pytest.mark.parametrize("pairs", ["occurring", [(0, 2), (3, 1)]], ids=str)
def test_interactions_of_an_array(client: Any, make: Any, pairs: Any) -> None:
    model = make(A)
    expected = TreeExplainer(model).explain_interactions(A, interactions=pairs, index="STII").values
    result = explain_dask(model, array(), interactions=pairs, index="STII")
    assert result.shape == expected.shape
    np.testing.assert_array_equal(result.compute(), expected)


@pytest.mark.parametrize("make", [regressor, classifier])
def test_matrices_of_an_array(client: Any, make: Any) -> None:
    """docs/distributed.md: workers receive an explainer, which computes the matrices."""
    explainer, rows = TreeExplainer(make(A)), array()
    expected = explainer.shap_interaction_values(A)
    matrices = rows.map_blocks(
        explainer.shap_interaction_values,
        dtype=float,
        chunks=(rows.chunks[0], *expected.shape[1:]),
        new_axis=list(range(2, expected.ndim)),
    )
    assert matrices.shape == expected.shape
    np.testing.assert_array_equal(matrices.compute(), expected)


def test_banzhaf_values_and_options(client: Any) -> None:
    model = regressor(A)
    options = {"data": A[:20], "precision": "double", "device": "cpu"}
    expected = TreeExplainer(model, **options).explain(A, index="BV").values
    np.testing.assert_array_equal(explain_dask(model, array(), index="BV", **options).compute(), expected)


@pytest.mark.parametrize("make", [regressor, classifier])
def test_frame(client: Any, make: Any) -> None:
    model = make(X[FEATURES])
    result = explain_dask(model, frame(), keep=["id"])
    assert result.npartitions == 5
    computed = result.compute()
    pd.testing.assert_frame_equal(computed.iloc[:0], result._meta)
    transformer = ShapTransformer.from_fitted(model).set_output(transform="pandas")
    rows = frame().compute()  # Dask has its own type of labels
    assert list(rows.index) == list(X.index)
    expected = pd.concat([rows[["id"]], transformer.transform(rows[FEATURES])], axis=1)
    pd.testing.assert_frame_equal(computed, expected, check_exact=True)


def test_frame_keeps_its_divisions(client: Any) -> None:
    rows = X.sort_index()
    result = explain_dask(regressor(X[FEATURES]), dd.from_pandas(rows, npartitions=3), features=FEATURES)
    assert result.divisions == dd.from_pandas(rows, npartitions=3).divisions
    assert result.known_divisions
    assert list(result.compute().index) == list(rows.index)


def test_features_are_found_by_name(client: Any) -> None:
    model = regressor(X[FEATURES])
    mixed = frame(colour="red")[["colour", *FEATURES[::-1], "id"]]
    expected = TreeExplainer(model).shap_values(X[FEATURES])
    np.testing.assert_array_equal(explain_dask(model, mixed).compute(), expected)
    nameless = regressor(A)
    result = explain_dask(nameless, mixed, features=FEATURES, keep=["colour"]).compute()
    np.testing.assert_array_equal(result[FEATURES], expected)
    assert (result["colour"] == "red").all()


def test_prefix(client: Any) -> None:
    model = regressor(X[FEATURES])
    result = explain_dask(model, frame(), keep=FEATURES, prefix="shap of ").compute()
    np.testing.assert_array_equal(result[FEATURES], X[FEATURES])
    expected = TreeExplainer(model).shap_values(X[FEATURES])
    np.testing.assert_array_equal(result[[f"shap of {name}" for name in FEATURES]], expected)


def test_frame_of_float32(client: Any) -> None:
    single = X.astype(dict.fromkeys(FEATURES, np.float32))
    model = regressor(X[FEATURES])
    result = explain_dask(model, dd.from_pandas(single, npartitions=2, sort=False)).compute()
    assert set(result.dtypes) == {np.dtype(np.float32)}
    np.testing.assert_array_equal(result, TreeExplainer(model).shap_values(single[FEATURES]))


@pytest.mark.parametrize("pairs", ["occurring", [("petal width", "sepal width")]], ids=str)
def test_interactions_of_a_frame(client: Any, pairs: Any) -> None:
    model = classifier(X[FEATURES])
    transformer = ShapInteractionTransformer.from_fitted(model, interactions=pairs).set_output(
        transform="pandas"
    )
    result = explain_dask(model, frame(), keep=["id"], interactions=pairs).compute()
    rows = frame().compute()
    expected = pd.concat([rows[["id"]], transformer.transform(rows[FEATURES])], axis=1)
    pd.testing.assert_frame_equal(result, expected, check_exact=True)


def test_pipeline(client: Any) -> None:
    model = make_pipeline(StandardScaler(), regressor(A)).fit(X[FEATURES], np.nan_to_num(A[:, 0]))
    expected = TreeExplainer(model).shap_values(X[FEATURES])
    result = explain_dask(model, frame(), features=FEATURES)
    assert set(result._meta.dtypes) == {np.dtype(np.float64)}
    np.testing.assert_array_equal(result.compute(), expected)


def test_categories(client: Any) -> None:
    rows = X.assign(colour=pd.Categorical(np.where(X["id"] % 3, "red", "blue"), ["red", "blue", "green"]))
    y = np.nan_to_num(A[:, 0]) + (rows["id"] % 3)
    columns = [*FEATURES, "colour"]
    from sklearn.ensemble import HistGradientBoostingRegressor

    model = HistGradientBoostingRegressor(max_iter=10, categorical_features="from_dtype")
    model.fit(rows[columns], y)
    expected = TreeExplainer(model).shap_values(rows[columns])
    assert np.abs(expected[:, -1]).max() > 0
    result = explain_dask(model, dd.from_pandas(rows, npartitions=3, sort=False)).compute()
    np.testing.assert_array_equal(result, expected)


def test_worker_compiles_once_and_the_graph_has_one_explainer(client: Any) -> None:
    model = classifier(A)
    size = len(cloudpickle.dumps(TreeExplainer(model)))
    assert size > 20_000
    many = explain_dask(model, da.from_array(A, chunks=(10, -1)))
    few = explain_dask(model, da.from_array(A, chunks=(200, -1)))
    assert many.numblocks[0] == 40
    assert len(cloudpickle.dumps(many.dask)) < len(cloudpickle.dumps(few.dask)) + size / 2
    expected = TreeExplainer(model).shap_values(A)
    client.run(clusters.count_compilations)
    client.run_on_scheduler(clusters.count_compilations)
    for _ in range(2):
        np.testing.assert_array_equal(many.compute(), expected)
    assert set(client.run(clusters.compilations).values()) == {1}
    assert client.run_on_scheduler(clusters.compilations) == 0


def test_nothing_is_computed_in_the_call(tmp_path: Path) -> None:
    def read(block: Any) -> Any:
        raise AssertionError("was read")

    lazy = da.from_array(A, chunks=(CHUNK, -1)).map_blocks(read, dtype=float, meta=np.empty((0, 0)))
    assert explain_dask(regressor(A), lazy).shape == A.shape
    parts = dd.from_pandas(X, npartitions=2, sort=False).map_partitions(read, meta=X.iloc[:0])
    assert len(explain_dask(regressor(X[FEATURES]), parts, keep=["id"]).columns) == 5


def test_workers_look_for_their_own_device(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def set_device(device: str) -> None:
        os.environ["SKSHAPGPU_DEVICE"] = device

    of_the_run = os.environ["SKSHAPGPU_DEVICE"]
    client.run(set_device, "cpu")
    # Not a device of this process: "auto" is resolved only when the rows are explained.
    monkeypatch.setenv("SKSHAPGPU_DEVICE", "graphics")
    lazy = explain_dask(regressor(A), array(), precision="double")
    monkeypatch.setenv("SKSHAPGPU_DEVICE", "cpu")
    np.testing.assert_array_equal(
        lazy.compute(), TreeExplainer(regressor(A), precision="double").shap_values(A)
    )
    client.run(set_device, "graphics")
    try:
        with pytest.raises(ValueError, match=r"device must be 'auto', 'cpu'.*'graphics'"):
            explain_dask(regressor(A), array(), memory_limit="1GB").compute()
    finally:
        client.run(set_device, of_the_run)


def test_killed_worker(client: Any, tmp_path: Path) -> None:
    gate, model = Gate(str(tmp_path), first=3), classifier(A)
    values = explain_dask(gate.before(model), da.from_array(A, chunks=(25, -1)))
    before = set(client.run(os.getpid).values())
    future = client.compute(values)
    clusters.wait_for(lambda: len(gate.waiting()) == 2)
    assert set(gate.waiting()) == before
    assert len(list(tmp_path.glob("call-*"))) == 3
    assert not future.done()
    os.kill(gate.waiting()[0], signal.SIGKILL)
    gate.open()
    result = future.result(timeout=clusters.PATIENCE)
    np.testing.assert_array_equal(result, TreeExplainer(model).shap_values(A))
    client.wait_for_workers(2, timeout=clusters.PATIENCE)
    after = set(client.run(os.getpid).values())
    assert len(before & after) == 1
    assert len(after) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"interactions": 3}, "the strongest depend on all rows"),
        ({"index": "SII"}, "index must be"),
        ({"interactions": "all", "index": "SV"}, "index must be"),
        ({"model_output": "log_loss", "data": A}, "needs labels"),
        ({"precision": "half"}, "precision must be"),
        ({"device": "graphics"}, "device must be"),
        ({"keep": ["id"]}, "for data frames"),
    ],
    ids=str,
)
def test_refused_before_any_work(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        explain_dask(regressor(A), array(), **arguments)


def test_refused_collections() -> None:
    model = regressor(A)
    for unknown in ("reasons", "by_sign", "dtype"):
        for collection in (array(), frame()):
            with pytest.raises(TypeError, match=f"unexpected keyword argument '{unknown}'"):
                explain_dask(model, collection, **{unknown: 2})
    with pytest.raises(ValueError, match="3 features, but the model expects 4"):
        explain_dask(model, array()[:, :3])
    with pytest.raises(ValueError, match="Expected 2D array, got 1D"):
        explain_dask(model, array()[:, 0])
    with pytest.raises(TypeError, match=r"numpy\.ndarray, not a Dask array"):
        explain_dask(model, A)
    with pytest.raises(TypeError, match="Dask series"):
        explain_dask(model, frame()["id"])
    with pytest.raises(ValueError, match="there is no column 'colour'"):
        explain_dask(model, frame(), keep=["colour"])
    with pytest.raises(ValueError, match="takes 4 features, but there are 5 columns"):
        explain_dask(model, frame())
    with pytest.raises(ValueError, match=r"two columns 'sepal width'.*use prefix"):
        explain_dask(model, frame(), features=FEATURES, keep=["sepal width"])
    with pytest.raises(ValueError, match="feature names"):
        explain_dask(regressor(X[FEATURES]), frame(), features=FEATURES[::-1])
