"""An explainer as an MLflow model: called over HTTP from MLflow's server, and as a Spark UDF."""

# ruff: noqa: E402
from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import numpy as np
import pytest

pd = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")
mlflow = pytest.importorskip("mlflow")
pytest.importorskip("skops")

from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils.fixes import parse_version

import skshapgpu
from skshapgpu import TreeExplainer
from skshapgpu.mlflow import save_model

pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Hint. Inferred schema contains integer:UserWarning"),
]

#: Folder from which this process imports the package; the server must import it from there, too.
PACKAGES = Path(skshapgpu.__file__).parents[1]

#: Seconds after which a server that does not answer is taken for dead.
_PATIENCE = 120

RNG = np.random.default_rng(5)
X = pd.DataFrame(
    {
        "mass": RNG.normal(70, 15, 200),
        "visits": RNG.integers(0, 9, 200),
        "ward": RNG.choice(["north", "south", "west"], 200),
    }
)
Y = np.array(["cat", "dog", "emu"])[
    pd.qcut(X["mass"] + 20 * X["visits"] * (X["ward"] == "west"), 3, labels=False)
]


@pytest.fixture(scope="module", autouse=True)
def own_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Change to an empty folder, because MLflow writes files to the current one."""
    with contextlib.chdir(tmp_path_factory.mktemp("current")):
        yield


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Any]:
    """Folder of a model, and the frame of SHAP values that it must return."""
    steps = make_column_transformer((OneHotEncoder(), ["ward"]), (StandardScaler(), ["visits", "mass"]))
    forest = RandomForestClassifier(5, max_depth=4, random_state=0)
    explainer = TreeExplainer(make_pipeline(steps, forest).fit(X, Y), feature_groups="input")
    path = tmp_path_factory.mktemp("mlflow") / "model"
    save_model(explainer, path, input_example=X.head(3))
    save_model(explainer, path.with_name("without_an_example"))
    return str(path), explainer.explain(X).to_frame()


@pytest.fixture(scope="module")
def address(saved: tuple[str, Any]) -> Iterator[str]:
    fastapi = pytest.importorskip("fastapi")
    if parse_version(mlflow.__version__) < parse_version("3.12") and not hasattr(fastapi.FastAPI, "route"):
        pytest.skip("the server of MLflow before 3.12 does not start with Starlette 1")
    if shutil.which("bash") is None:
        pytest.skip("MLflow starts its server with bash, which is not on the path")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = os.environ | {
        "PATH": os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join([str(PACKAGES), os.environ.get("PYTHONPATH", "")]),
    }
    command = ["mlflow", "models", "serve", "-m", saved[0], "-p", str(port), "--env-manager", "local"]
    server = subprocess.Popen(
        [sys.executable, "-m", *command], cwd=Path(saved[0]).parent, env=environment, start_new_session=True
    )
    address = f"http://127.0.0.1:{port}"
    try:
        wait_for_ping(server, address)
        yield address
    finally:
        with contextlib.suppress(ProcessLookupError):  # it may have ended by itself
            os.killpg(server.pid, signal.SIGTERM)
        server.wait(_PATIENCE)


def wait_for_ping(server: Any, address: str) -> None:
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end and server.poll() is None:
        try:
            urlopen(f"{address}/ping", timeout=5).close()
            return
        except (URLError, ConnectionError, TimeoutError):
            time.sleep(0.2)
    raise RuntimeError("the server of MLflow does not answer")


def answer(address: str, request: dict[str, Any]) -> Any:
    """Return the frame that the server answers with."""
    body = Request(
        f"{address}/invocations", json.dumps(request).encode(), {"Content-Type": "application/json"}
    )
    with urlopen(body, timeout=_PATIENCE) as response:
        return pd.DataFrame(json.load(response)["predictions"])


def test_server(address: str, saved: tuple[str, Any]) -> None:
    expected = saved[1]
    for rows in (X, X[["ward", "mass", "visits"]]):
        split = rows.to_dict(orient="split", index=False)
        result = answer(address, {"dataframe_split": split})
        pd.testing.assert_frame_equal(result, expected, check_exact=True)
    result = answer(address, {"dataframe_records": X.head(5).to_dict(orient="records")})
    pd.testing.assert_frame_equal(result, expected.head(5), check_exact=True)
    result = answer(
        address, {"dataframe_records": X.head(5).to_dict(orient="records"), "params": {"reasons": 1}}
    )
    assert result.columns[0] == "feature_1__cat" and len(result) == 5
    with pytest.raises(HTTPError) as refused:
        answer(address, {"dataframe_records": X.head(5).drop(columns="ward").to_dict(orient="records")})
    assert refused.value.code == 400
    assert "missing inputs ['ward']" in refused.value.read().decode()


def test_spark_udf(saved: tuple[str, Any]) -> None:
    sql = pytest.importorskip("pyspark.sql")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    try:
        session = (
            sql.SparkSession.builder.master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.memory", "1g")
            .config("spark.log.level", "OFF")
            .getOrCreate()
        )
    except Exception as error:  # the session's own, of many kinds
        pytest.skip(f"no Spark session, which needs Java: {error}")
    try:
        explain = mlflow.pyfunc.spark_udf(session, saved[0], env_manager="local")
        table = session.createDataFrame(X.assign(id=range(len(X)))).repartition(3)
        columns = [table[name] for name in ("ward", "mass", "visits")]
        struct = sql.functions.struct(*columns)
        frame = table.select("id", explain(struct).alias("shap")).select("id", "shap.*").toPandas()
        default = table.select("id", explain().alias("shap")).select("id", "shap.*").toPandas()
        path = str(Path(saved[0]).with_name("without_an_example"))
        explain = mlflow.pyfunc.spark_udf(session, path, env_manager="local")
        of_struct = table.select("id", explain(struct).alias("shap")).select("id", "shap.*").toPandas()
    finally:
        session.stop()
    for collected in (frame, default, of_struct):
        collected = collected.sort_values("id", ignore_index=True)
        pd.testing.assert_frame_equal(collected[list(saved[1])], saved[1], check_exact=True)
