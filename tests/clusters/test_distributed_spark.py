"""Spark: the Python workers compute the same values as this process, even if workers are killed."""

# ruff: noqa: E402
from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

pd = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")
sql = pytest.importorskip("pyspark.sql")

from helpers import clusters
from helpers.clusters import FEATURES, Gate, classifier, flowers, regressor
from pyspark import cloudpickle
from pyspark.sql import functions as F
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skshapgpu import ShapInteractionTransformer, ShapTransformer, TreeExplainer
from skshapgpu.distributed import explain_spark

pytestmark = pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")

X = flowers().set_index("id", drop=False)
A = X[FEATURES].to_numpy()


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    """Two tasks at a time, each tried four times before the job fails."""
    for module in (clusters, sys.modules[__name__]):
        cloudpickle.register_pickle_by_value(module)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    options = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.log.level": "OFF",
    }
    builder = sql.SparkSession.builder.master("local[2,4]")
    for name, value in options.items():
        builder = builder.config(name, value)
    try:
        session = builder.getOrCreate()
    except Exception as error:  # the session's own, of many kinds
        pytest.skip(f"no Spark session, which needs Java: {error}")
    yield session
    session.stop()


@pytest.fixture(scope="module")
def rows(spark: Any) -> Any:
    """Six partitions of shuffled rows; half of the missing values are null, half NaN."""
    table = spark.createDataFrame(X.reset_index(drop=True)).repartition(6).cache()
    for i, name in enumerate(FEATURES):
        column = F.col(f"`{name}`")
        missing = F.lit(None if i % 2 else float("nan")).cast("double")
        table = table.withColumn(name, F.when(column.isNull() | F.isnan(column), missing).otherwise(column))
    return table


def collected(df: Any) -> Any:
    """Collect the rows in the order of X, by their ids."""
    frame = df.toPandas().set_index("id", drop=False)
    assert sorted(frame.index) == sorted(X.index)
    return frame.loc[X.index]


@pytest.mark.parametrize("make", [regressor, classifier])
def test_values(rows: Any, make: Any) -> None:
    model = make(X[FEATURES])
    transformer = ShapTransformer.from_fitted(model).set_output(transform="pandas")
    expected = pd.concat([X[["id"]], transformer.transform(X[FEATURES])], axis=1)
    result = explain_spark(model, rows, keep=["id"])
    assert result.columns == list(expected.columns)
    assert {kind for name, kind in result.dtypes if name != "id"} == {"double"}
    computed = collected(result)
    pd.testing.assert_frame_equal(computed, expected, check_exact=True)


def test_floats_and_prefix(rows: Any) -> None:
    single = rows.select("id", *(F.col(f"`{name}`").cast("float").alias(name) for name in FEATURES))
    model = regressor(X[FEATURES])
    expected = TreeExplainer(model).shap_values(A.astype(np.float32))
    result = explain_spark(model, single, keep=["id", *FEATURES], prefix="shap of ")
    names = [f"shap of {name}" for name in FEATURES]
    assert {dict(result.dtypes)[name] for name in names} == {"float"}
    computed = collected(result)
    np.testing.assert_array_equal(computed[names], expected)
    np.testing.assert_array_equal(computed[FEATURES], A.astype(np.float32))


@pytest.mark.parametrize("make", [regressor, classifier])
def test_top(rows: Any, make: Any) -> None:
    model = make(X[FEATURES])
    computed = collected(explain_spark(model, rows, keep=["id"], reasons=2))
    expected = TreeExplainer(model).shap_values(A).reshape(len(A), 4, -1)
    outputs = [""] if expected.shape[2] == 1 else [f"__{name}" for name in model.classes_]
    for output, suffix in enumerate(outputs):
        values = expected[:, :, output]
        order = np.argsort(-np.abs(values), axis=1, kind="stable")
        for rank in range(2):
            chosen = order[:, rank]
            assert list(computed[f"feature_{rank + 1}{suffix}"]) == [FEATURES[i] for i in chosen]
            np.testing.assert_array_equal(
                computed[f"shap_{rank + 1}{suffix}"], values[np.arange(len(A)), chosen]
            )


@pytest.mark.parametrize("make", [regressor, classifier])
def test_reasons_for_and_against(rows: Any, make: Any) -> None:
    model = make(X[FEATURES])
    result = explain_spark(model, rows, keep=["id"], reasons=2, by_sign=True)
    n_outputs = 1 if make is regressor else 3
    assert [kind for _, kind in result.dtypes[1 : 1 + 3 * n_outputs]] == [
        kind for kind in ("string", "string", "double") for _ in range(n_outputs)
    ]
    explanation = TreeExplainer(model).explain(X[FEATURES].reset_index(drop=True))
    clusters.assert_reasons(collected(result), explanation, 2)


@pytest.mark.parametrize("pairs", ["occurring", [("petal width", "sepal width")]], ids=str)
def test_interactions(rows: Any, pairs: Any) -> None:
    model = classifier(X[FEATURES])
    transformer = ShapInteractionTransformer.from_fitted(model, interactions=pairs).set_output(
        transform="pandas"
    )
    expected = pd.concat([X[["id"]], transformer.transform(X[FEATURES])], axis=1)
    result = collected(explain_spark(model, rows, keep=["id"], interactions=pairs))
    pd.testing.assert_frame_equal(result, expected, check_exact=True)


def test_pipeline_and_names_of_an_array(rows: Any) -> None:
    model = make_pipeline(StandardScaler(), regressor(A)).fit(A, np.nan_to_num(A[:, 0]))
    expected = TreeExplainer(model).shap_values(A)
    result = collected(explain_spark(model, rows, features=FEATURES, keep=["id"]))
    np.testing.assert_array_equal(result.drop(columns="id"), expected)


def test_types_of_kept_columns(spark: Any) -> None:
    table = spark.createDataFrame(X.head(5).reset_index(drop=True)).select(
        "*",
        F.expr("date'2026-01-31'").alias("day"),
        F.expr("array(1, 2)").alias("a.b"),
        F.expr("cast(id as decimal(12, 3))").alias("exact"),
        F.expr("interval 2 months").alias("no type of Arrow"),
    )
    model, keep = regressor(X[FEATURES]), ["id", "day", "a.b", "exact"]
    result = explain_spark(model, table, keep=keep)
    assert [result.schema[name] for name in keep] == [table.schema[name] for name in keep]
    assert [row[:4] for row in result.collect()] == [
        tuple(row) for row in table.select("id", "day", "`a.b`", "exact").collect()
    ]
    with pytest.raises(TypeError, match="'no type of Arrow' cannot be handed to Python"):
        explain_spark(model, table, keep=["no type of Arrow"])


def test_each_python_worker_compiles_once(rows: Any, tmp_path: Path) -> None:
    gate = Gate(str(tmp_path), first=100)
    explained = explain_spark(gate.before(regressor(X[FEATURES])), rows, features=FEATURES, keep=["id"])
    assert not list(tmp_path.iterdir())  # lazily
    for _ in range(2):
        assert len(explained.toPandas()) == len(X)
    arrivals = gate.arrivals()
    assert os.getpid() not in arrivals
    assert len(set(arrivals)) == len(arrivals)
    assert len(list(tmp_path.glob("call-*"))) > 2 * len(arrivals)


def test_killed_worker(rows: Any, tmp_path: Path) -> None:
    gate, model = Gate(str(tmp_path), first=2), classifier(A)
    explained = explain_spark(gate.before(model), rows, features=FEATURES, keep=["id"])
    results: list[Any] = []
    job = Thread(target=lambda: results.append(collected(explained)))
    job.start()
    clusters.wait_for(lambda: len(gate.waiting()) == 2)
    assert len(list(tmp_path.glob("call-*"))) == 2
    assert job.is_alive()
    killed = gate.waiting()
    for process in killed:
        os.kill(process, signal.SIGKILL)
    gate.open()
    job.join(clusters.PATIENCE)
    expected = TreeExplainer(model).shap_values(A)
    np.testing.assert_array_equal(results[0].drop(columns="id"), expected.reshape(len(A), -1))
    assert set(gate.arrivals()) > set(killed)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"keep": ["colour"]}, ValueError, "there is no column 'colour'"),
        ({"features": FEATURES[:3]}, ValueError, "now missing:\n- petal width"),
        ({"keep": FEATURES}, ValueError, "two columns .*use prefix"),
        ({"interactions": 3}, ValueError, "the strongest depend on all rows"),
        ({"by_sign": True}, ValueError, "give reasons="),
        ({"reasons": 0}, ValueError, "reasons must be at least 1"),
        ({"device": "graphics"}, ValueError, "device must be"),
        ({"model_output": "log_loss", "data": X[FEATURES]}, ValueError, "needs labels"),
    ],
    ids=str,
)
def test_refused_before_any_work(rows: Any, arguments: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        explain_spark(regressor(X[FEATURES]), rows, **arguments)


def test_refused_frames(rows: Any) -> None:
    with pytest.raises(TypeError, match=r"DataFrame, not a Spark data frame"):
        explain_spark(regressor(X[FEATURES]), X)
