"""Code that the engines share: a process opens a parcel once, for its own devices."""

from __future__ import annotations

import pickle
import sys
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from sklearn.ensemble import RandomForestRegressor

from skshapgpu import TreeExplainer
from skshapgpu._common.devices import elsewhere
from skshapgpu._engine.compiled_model import CompiledModel
from skshapgpu.distributed import explain_dask, explain_ray, explain_spark
from skshapgpu.distributed._parcel import _N_OPEN, Parcel

X = np.random.default_rng(0).normal(size=(50, 3))
MODEL = RandomForestRegressor(5, random_state=0).fit(X, X[:, 0])


def test_parcel_is_opened_once_by_all_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    explainer, compiled = TreeExplainer(MODEL), []
    parcel = pickle.loads(pickle.dumps(Parcel(explainer, pickle.dumps)))
    compile_model = CompiledModel._compile
    monkeypatch.setattr(CompiledModel, "_compile", lambda *a: compiled.append(1) or compile_model(*a))
    with ThreadPoolExecutor(8) as pool:
        opened = list(pool.map(lambda _: parcel.open(), range(32)))
    assert len(compiled) == 1
    assert {id(result) for result in opened} == {id(opened[0])}
    assert opened[0] is not explainer
    np.testing.assert_array_equal(opened[0].shap_values(X), explainer.shap_values(X))
    assert sys.getsizeof(parcel) > len(parcel.payload)


def test_a_process_keeps_the_last_parcels_only() -> None:
    parcels = [Parcel({"number": number}, pickle.dumps) for number in range(_N_OPEN + 1)]
    first = parcels[0].open()
    assert parcels[0].open() is first
    for parcel in parcels[1:]:
        parcel.open()
    assert parcels[0].open() is not first
    assert parcels[-1].open() is parcels[-1].open()


def test_auto_is_decided_where_it_is_unpickled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKSHAPGPU_DEVICE", "graphics")
    with elsewhere():
        explainer = TreeExplainer(MODEL)
    monkeypatch.setenv("SKSHAPGPU_DEVICE", "cpu")
    pickled = pickle.dumps(explainer)
    assert pickle.loads(pickled)._compiled.options.devices.indices == ()
    assert not pickle.loads(pickled)._compiled.options.devices.auto
    monkeypatch.delenv("SKSHAPGPU_DEVICE")
    assert pickle.loads(pickled)._compiled.options.devices.auto
    monkeypatch.setenv("SKSHAPGPU_DEVICE", "cuda:1,cuda:3")
    assert pickle.loads(pickled)._compiled.options.devices.indices == (1, 3)
    monkeypatch.setenv("SKSHAPGPU_DEVICE", "graphics")
    with pytest.raises(ValueError, match=r"device must be 'auto', 'cpu'.*not 'graphics'"):
        pickle.loads(pickled)


def test_a_device_that_was_named_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKSHAPGPU_DEVICE", "graphics")
    on_cpu = TreeExplainer(MODEL, device="cpu")
    assert pickle.loads(pickle.dumps(on_cpu))._compiled.options.devices.indices == ()
    with elsewhere():  # GPUs that this machine lacks
        elsewhere_on = TreeExplainer(MODEL, device=["cuda:70", "cuda:71"])
        with pytest.raises(ValueError, match="device must be"):
            TreeExplainer(MODEL, device="graphics")
    assert elsewhere_on.shap_values(X[:0]).shape == (0, 3)
    assert pickle.loads(pickle.dumps(elsewhere_on))._compiled.options.devices.indices == (70, 71)
    with pytest.raises(RuntimeError):
        pickle.loads(pickle.dumps(elsewhere_on)).shap_values(X)


def test_reasons_for_and_against_as_workers_compute_them() -> None:
    """The functions that Spark's tasks and Ray's actors run, without either."""
    pytest.importorskip("pandas")
    pa = pytest.importorskip("pyarrow")
    from helpers.clusters import FEATURES, assert_reasons, classifier, flowers

    from skshapgpu.batches import BatchExplainer
    from skshapgpu.distributed._ray import _Actor
    from skshapgpu.distributed._spark import _explaining

    rows = flowers(40).reset_index(drop=True)
    model = classifier(rows[FEATURES])
    batches = BatchExplainer(model, keep=["id"], features=FEATURES, reasons=2, by_sign=True)
    parcel, table = Parcel(batches, pickle.dumps), pa.Table.from_pandas(rows)
    explanation = TreeExplainer(model).explain(rows[FEATURES])
    assert_reasons(_Actor(parcel)(table).to_pandas(), explanation, 2)
    explain = _explaining(SimpleNamespace(value=parcel), ["id", *FEATURES])
    result = list(explain(iter(table.select(["id", *FEATURES]).to_batches(max_chunksize=15))))
    assert len(result) == 3
    assert_reasons(pa.Table.from_batches(result).to_pandas(), explanation, 2)


def test_by_sign_reaches_batches_of_spark_and_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark and Ray reject ``by_sign`` without ``reasons``, like batches; their modules are stand-ins."""
    pytest.importorskip("pyarrow")

    def module(name: str, **contents: object) -> None:
        stand_in = ModuleType(name)
        vars(stand_in).update(contents)
        monkeypatch.setitem(sys.modules, name, stand_in)

    dataset, frame = type("Dataset", (), {}), type("DataFrame", (), {"mapInArrow": None})
    frame.__module__ = "pyspark.sql.dataframe"
    module("ray", cloudpickle=pickle)
    module("ray.data", ActorPoolStrategy=None, Dataset=dataset)
    module("pyspark", cloudpickle=pickle)
    module("pyspark.sql.functions", col=None)
    module("pyspark.sql.pandas.types", from_arrow_schema=None)
    module("pyspark.sql.types", StructType=None)
    for explain, rows in ((explain_ray, dataset()), (explain_spark, frame())):
        with pytest.raises(
            ValueError, match="by_sign= splits the strongest features of each row: give reasons="
        ):
            explain(MODEL, rows, by_sign=True)


@pytest.mark.parametrize(
    ("explain", "module", "packages"),
    [
        (explain_dask, "dask.array", r"'dask\[array,dataframe\]' distributed"),
        (explain_spark, "pyspark", "pyspark pyarrow"),
        (explain_ray, "ray", r"'ray\[data\]'"),
    ],
)
def test_missing_engine(explain: object, module: str, packages: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=f"pip install {packages}$"):
        explain(MODEL, X)  # type: ignore[operator]
