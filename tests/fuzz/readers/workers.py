"""The two processes of a case: one reads the file with our reader, the other with the library's own loader.

A function takes a case's arguments and returns a tuple: "refused" and why, or "read" and what was read.
"""

from __future__ import annotations

import ctypes
import importlib
import multiprocessing
import os
import resource
import signal
from collections.abc import Callable
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from helpers.onnx_models import attribute

#: Bytes of address space that a library may use; a damaged file can ask for any number.
LIBRARY_BYTES = 6 * 2**30

#: Seconds of the processor that a library may use; ten times as many of the clock.
LIBRARY_SECONDS = 3

#: Rows of a case, and the largest number of columns with which margins are compared.
N_ROWS, MOST_COLUMNS = 24, 256

#: Errors that SECURITY.md lists for a file.
DOCUMENTED = ("ValueError", "TypeError", "UnsupportedModelError", "MemoryError")


#: Numbers of SOFTMAX, LOGISTIC, SOFTMAX_ZERO and PROBIT as ``post_transform`` of a ``TreeEnsemble``.
TRANSFORMS = (1, 2, 3, 4)


def die_with_parent() -> None:
    """Have Linux kill this process when its parent ends, however it ends."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def serve(connection: Connection, role: str, folder: str) -> None:
    """Answer requests until the other end is closed; everything that a library prints is dropped.

    A library answers in a process of its own, forked after the import: a crash or a hang costs no new import.
    Spark works in a process of Java.
    """
    die_with_parent()
    os.setpgid(0, 0)
    os.chdir(folder)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    os.environ["OMP_NUM_THREADS"] = "1"
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    while True:
        try:
            name, arguments = connection.recv()
        except EOFError:
            return
        if role == "ours":
            connection.send(_reply({"read": read, "explain": explain}[name], arguments))
        elif name == "spark":
            connection.send(_reply(spark, arguments))
        else:
            connection.send(_forked(name, arguments))


def _reply(function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    try:
        return function(*arguments)  # type: ignore[no-any-return]
    except Exception as error:  # whatever a library raises
        return ("refused", type(error).__name__, f"{error}")


def _forked(name: str, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Call a library's loader in a forked process, with limits of memory and time."""
    module, function = LIBRARIES[name]
    importlib.import_module(module)
    receiver, sender = multiprocessing.Pipe(duplex=False)
    pid = os.fork()
    if pid == 0:
        die_with_parent()
        resource.setrlimit(resource.RLIMIT_AS, (LIBRARY_BYTES, LIBRARY_BYTES))
        resource.setrlimit(resource.RLIMIT_CPU, (LIBRARY_SECONDS, LIBRARY_SECONDS))
        sender.send(_reply(function, arguments))
        os._exit(0)
    sender.close()
    try:
        reply = receiver.recv() if receiver.poll(10 * LIBRARY_SECONDS) else ("hangs",)
    except EOFError:
        reply = ("crashed",)
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    return reply if reply[0] != "crashed" else ("crashed", os.waitstatus_to_exitcode(status))


_model: list[Any] = []


def read(path: str) -> tuple[Any, ...]:
    """Read a file with our reader, and keep the model."""
    from skshapgpu.adapters import adapt

    _model.clear()
    _model.append(adapt(path))
    return ("read", _model[0].ensemble.n_features)


def explain(seed: int) -> tuple[Any, ...]:
    """Return rows, our margins and their scale, after explaining two rows of the model that was read last."""
    from skshapgpu import TreeExplainer
    from skshapgpu._rows.inputs import read as read_rows

    adapted = _model[0]
    ensemble, schema = adapted.ensemble, adapted.schema
    if schema.n_features > MOST_COLUMNS:
        return ("read", None, None, 0.0)
    X = _rows(adapted, np.random.default_rng(seed))
    rows = read_rows(X, schema, ensemble.x_dtype)
    with np.errstate(all="ignore"):
        margins = ensemble.margin(rows.chunk(0, rows.n_rows))
    data = None if adapted.has_cover and not ensemble.has_linear_leaves else X[:4]
    TreeExplainer(adapted, data, device="cpu", n_jobs=1).explain(X[:2])
    scale = np.abs(ensemble.intercept).max(initial=0.0) + np.abs(margins[np.isfinite(margins)]).max(
        initial=0.0
    )
    largest = np.abs(ensemble.value).max(axis=1, initial=0.0)
    if ensemble.n_trees:
        scale += np.maximum.reduceat(largest, ensemble.tree_offsets[:-1]).sum()
    if ensemble.has_linear_leaves:
        scale += np.abs(ensemble.linear_coefficient).sum() * 10 + np.abs(ensemble.linear_intercept).sum()
    return ("read", X, margins, float(scale))


def _rows(adapted: Any, rng: np.random.Generator) -> np.ndarray:
    """Draw rows: thresholds of the model and their neighbours, categories, zeros and missing values."""
    ensemble, schema = adapted.ensemble, adapted.schema
    X = np.round(rng.normal(size=(N_ROWS, schema.n_features)), 1)
    inner = ensemble.left >= 0
    for column in range(schema.n_features):
        thresholds = ensemble.threshold[inner & (ensemble.feature == column)]
        thresholds = thresholds[np.abs(thresholds) < 1e30]
        if len(thresholds):
            near = rng.choice(thresholds, N_ROWS).astype(np.float32)
            step = np.nextafter(near, np.float32(np.inf) * rng.choice([-1, 1], N_ROWS).astype(np.float32))
            X[:, column] = np.where(
                rng.random(N_ROWS) < 0.3, X[:, column], np.where(rng.random(N_ROWS) < 0.5, near, step)
            )
    codes = [*schema.encoders, *([1] if schema.frame_encoder is not None else [])]
    for column in codes:
        if column < schema.n_features:
            X[:, column] = rng.integers(0, 9, N_ROWS)
    X[rng.random(X.shape) < 0.05] = 0.0
    if schema.allow_nan:
        X[rng.random(X.shape) < 0.1] = np.nan
    if adapted.family == "catboost" and schema.encoders:
        mixed = X.astype(object)
        for column in schema.encoders:
            mixed[:, column] = [f"k{code}" for code in rng.integers(0, 9, N_ROWS)]
        return mixed
    return X


def xgboost(path: str, X: np.ndarray | None) -> tuple[Any, ...]:
    import xgboost as xgb

    booster = xgb.Booster({"nthread": 1})
    booster.load_model(path)
    if X is None:
        X = np.zeros((1, min(booster.num_features(), MOST_COLUMNS)))
    margins = booster.predict(
        xgb.DMatrix(X.astype(np.float32), nthread=1), output_margin=True, validate_features=False
    )
    return ("read", margins.reshape(len(X), -1))


def lightgbm(path: str, X: np.ndarray | None) -> tuple[Any, ...]:
    import lightgbm as lgb

    booster = lgb.Booster(model_file=path)
    if X is None:
        X = np.zeros((1, min(booster.num_feature(), MOST_COLUMNS)))
    margins = booster.predict(X, raw_score=True, num_threads=1)
    if "\naverage_output\n" in booster.model_to_string():
        margins = margins / (booster.num_trees() // booster.num_model_per_iteration())
    return ("read", margins.reshape(len(X), -1))


def catboost_json(path: str, X: np.ndarray | None) -> tuple[Any, ...]:
    return _catboost(path, X, "json")


def catboost_cbm(path: str, X: np.ndarray | None) -> tuple[Any, ...]:
    return _catboost(path, X, "cbm")


def _catboost(path: str, X: np.ndarray | None, kind: str) -> tuple[Any, ...]:
    import catboost

    model = catboost.CatBoost()
    model.load_model(path, format=kind)
    if X is None:
        X = np.zeros((1, min(len(model.feature_names_), MOST_COLUMNS)), object)
        X[:, model.get_cat_feature_indices()] = "k0"
    margins = model.predict(X, prediction_type="RawFormulaVal", thread_count=1)
    return ("read", np.reshape(margins, (len(X), -1)))


def treelite(path: str, X: np.ndarray | None) -> tuple[Any, ...]:
    import treelite as tl

    model = tl.Model.deserialize(path)
    dtype = np.float64 if str(model.input_type) == "float64" else np.float32
    if X is None:
        X = np.zeros((1, min(model.num_feature, MOST_COLUMNS)))
    margins = tl.gtil.predict(model, X.astype(dtype), pred_margin=True, nthread=1)
    n_classes = model.get_header_accessor().get_field("num_class")
    outputs = [margins[:, target, :n] for target, n in enumerate(n_classes)]
    return ("read", np.concatenate(outputs, axis=1))


def onnx(path: str, X: np.ndarray | None) -> tuple[Any, ...]:
    """Load the file, and predict the scores before ``post_transform``, which our margins are.

    onnxruntime returns them if the file's transformation is replaced by the one that changes nothing.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    content = untransformed = Path(path).read_bytes()
    for number in TRANSFORMS:
        untransformed = untransformed.replace(
            attribute("post_transform", number), attribute("post_transform", 0)
        )
    for model in dict.fromkeys((content, untransformed)):
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    if X is None:
        X = np.zeros((1, 3))
    scores = session.run(None, {session.get_inputs()[0].name: X.astype(np.float32)})[-1]
    return ("read", np.reshape(scores, (len(X), -1)))


@cache
def spark_session() -> Any:
    from pyspark.sql import SparkSession

    os.environ["JAVA_TOOL_OPTIONS"] = "-XX:ActiveProcessorCount=1 -XX:+UseSerialGC"
    options = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": os.getcwd(),
        "spark.sql.shuffle.partitions": "1",
        "spark.log.level": "OFF",
    }
    return SparkSession.builder.master("local[1]").config(map=options).getOrCreate()


def spark(path: str, X: np.ndarray | None) -> tuple[Any, ...]:
    from pyspark.ml import classification, regression
    from pyspark.ml.linalg import Vectors
    from pyspark.ml.util import DefaultParamsReader

    name = DefaultParamsReader.loadMetadata(path, spark_session())["class"].rpartition(".")[2]
    module = classification if "Classification" in name else regression
    model = getattr(module, name).load(path)
    if X is None:
        X = np.zeros((1, min(model.numFeatures, MOST_COLUMNS)))
    vectors = [Vectors.dense(row) for row in X]
    if module is regression:
        return ("read", np.array([[model.predict(vector)] for vector in vectors]))
    if name.startswith("GBT"):
        return ("read", np.array([[model.predictRaw(vector)[1]] for vector in vectors]))
    return ("read", np.array([model.predictProbability(vector).toArray() for vector in vectors]))


#: The module and the loader of each target.
LIBRARIES: dict[str, tuple[str, Callable[..., Any]]] = {
    "xgboost_json": ("xgboost", xgboost),
    "xgboost_ubjson": ("xgboost", xgboost),
    "lightgbm": ("lightgbm", lightgbm),
    "catboost_json": ("catboost", catboost_json),
    "catboost_cbm": ("catboost", catboost_cbm),
    "treelite": ("treelite", treelite),
    "onnx": ("onnxruntime", onnx),
    "spark": ("pyspark", spark),
}
