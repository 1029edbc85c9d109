"""Script that writes the corpora of the readers: small models of each library, a few kilobytes each.

Run it with PYTHONPATH=tests and the newest versions of the libraries, when a reader supports something new.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import catboost
import lightgbm
import numpy as np
import pandas
import treelite
import xgboost
from harness import CORPUS
from helpers import onnx_models
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier

from skshapgpu import TreeExplainer

RNG = np.random.default_rng(0)
X = np.round(RNG.normal(size=(60, 3)), 1)
X[:, 1] = RNG.integers(0, 6, 60)
Y = X[:, 0] + (X[:, 1] % 2)
CLASSES = np.digitize(Y, [-0.5, 0.5])
WITH_TEXTS = X.astype(object)
WITH_TEXTS[:, 1] = [f"k{int(code)}" for code in X[:, 1]]


def write(target: str, name: str, data: bytes) -> None:
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)
    print(target, name, len(data))


def xgboost_models() -> None:
    def model(y: Any, n_rounds: int = 2, **options: Any) -> bytes:
        types = options.pop("feature_types", None)
        data = xgboost.DMatrix(X, y, feature_types=types, enable_categorical=types is not None)
        options = {"max_depth": 2, "nthread": 1} | options
        return bytes(xgboost.train(options, data, n_rounds).save_raw("ubj"))

    write("xgboost", "regression", model(Y))
    write("xgboost", "categories", model(Y, feature_types=["float", "c", "float"], max_cat_to_onehot=1))
    write("xgboost", "classes", model(CLASSES, 1, objective="multi:softprob", num_class=3))
    write("xgboost", "dart", model(Y > 0, objective="binary:logistic", booster="dart", rate_drop=0.5))
    vector = {"multi_strategy": "multi_output_tree", "tree_method": "hist"}
    write("xgboost", "vector_leaves", model(np.stack([Y, -Y], axis=1), **vector))
    write("xgboost", "pruned", model(Y, tree_method="exact", max_depth=3, gamma=5))
    frame = pandas.DataFrame({"a": X[:, 0], "b": pandas.Categorical([f"k{int(code)}" for code in X[:, 1]])})
    data = xgboost.DMatrix(frame, Y, enable_categorical=True)
    booster = xgboost.train({"max_depth": 2, "nthread": 1, "max_cat_to_onehot": 1}, data, 2)
    write("xgboost", "frame", bytes(booster.save_raw("ubj")))


def lightgbm_models() -> None:
    def model(y: Any, **options: Any) -> bytes:
        options = {"num_leaves": 4, "min_data_in_leaf": 2, "verbose": -1, "num_threads": 1} | options
        categories = options.pop("categories", "auto")
        booster = lightgbm.train(options, lightgbm.Dataset(X, y, categorical_feature=categories), 2)
        text = booster.model_to_string()
        head, _, tail = text.partition("\nparameters:\n")  # long, and not read
        return (head + "\n" + tail.partition("end of parameters\n")[2]).encode()

    small = {"min_data_per_group": 1, "cat_smooth": 1, "max_cat_to_onehot": 1}
    write("lightgbm", "regression", model(Y))
    write("lightgbm", "categories", model(Y, categories=[1], **small))
    write("lightgbm", "sets", model(3 * np.isin(X[:, 1], [1, 3, 4]) + Y, categories=[1], **small))
    write("lightgbm", "classes", model(CLASSES, objective="multiclass", num_class=3))
    write("lightgbm", "zero_as_missing", model(Y, zero_as_missing=True))
    write("lightgbm", "linear", model(Y, linear_tree=True))
    write("lightgbm", "forest", model(Y, boosting="rf", bagging_fraction=0.5, bagging_freq=1))


def catboost_models() -> None:
    def model(y: Any, rows: Any = X, **options: Any) -> bytes:
        small = {"iterations": 2, "depth": 2, "verbose": 0, "thread_count": 1, "allow_writing_files": False}
        fitted = catboost.CatBoost({**small, **options}).fit(rows, y)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.json"
            fitted.save_model(str(path), format="json")
            document = json.loads(path.read_bytes())
        document["model_info"] = {}  # long, and mostly not read
        return json.dumps(document).encode()

    write("catboost", "regression", model(Y))
    write("catboost", "lossguide", model(Y, grow_policy="Lossguide", max_leaves=4))
    write("catboost", "one_hot", model(Y, WITH_TEXTS, cat_features=[1], one_hot_max_size=10))
    ctrs = ["Borders", "Buckets", "Counter", "BinarizedTargetMeanValue"]
    write(
        "catboost",
        "ctrs",
        model(Y, WITH_TEXTS, cat_features=[1], max_ctr_complexity=2, depth=4, simple_ctr=ctrs),
    )
    write("catboost", "classes", model(CLASSES, loss_function="MultiClass"))


def cbm_models() -> None:
    small = {"iterations": 2, "depth": 2, "verbose": 0, "thread_count": 1, "allow_writing_files": False}
    # Three tables of one name, which only the file in CatBoost's own format tells apart.
    ctrs = ["Borders:Prior=0.5:CtrBorderCount=3", "Borders:CtrBorderCount=3:TargetBorderCount=2"]
    ctr_params = {"simple_ctr": ctrs, "max_ctr_complexity": 1, "one_hot_max_size": 2, "cat_features": [1]}
    target = Y + 3 * np.isin(X[:, 1], [1, 3, 4])
    for name, rows, y, options in (
        ("symmetric", X, Y, {}),
        ("lossguide", X, Y, {"grow_policy": "Lossguide", "max_leaves": 4}),
        ("ctrs", WITH_TEXTS, target, {"iterations": 3, **ctr_params}),
    ):
        model = catboost.CatBoost({**small, **options}).fit(rows, y)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.cbm"
            model.save_model(str(path), format="cbm")
            write("cbm", name, path.read_bytes())


def explainer_files() -> None:
    model = HistGradientBoostingClassifier(
        max_iter=2, max_leaf_nodes=4, min_samples_leaf=3, categorical_features=[1]
    ).fit(X, np.array(["low", "high"])[(Y > 0).astype(int)])
    folder = CORPUS / "explainer_file"
    folder.mkdir(parents=True, exist_ok=True)
    options: dict[str, Any]
    for name, data, options in (
        ("tables", None, {"algorithm": "fast_v2"}),
        ("background", X[:5], {}),
        ("plain", None, {"algorithm": "quadrature", "precision": "double", "outputs": "all"}),
    ):
        TreeExplainer(model, data, device="cpu", **options).save(folder / name)
        print("explainer_file", name, (folder / name).stat().st_size)


def model_files() -> None:
    forest = RandomForestClassifier(2, max_depth=2, random_state=0).fit(X, CLASSES)
    write("model_file", "treelite_classes", treelite.sklearn.import_model(forest).serialize_bytes())
    small = {"num_leaves": 4, "min_data_in_leaf": 2, "min_data_per_group": 1, "cat_smooth": 1, "verbose": -1}
    data = lightgbm.Dataset(X, Y, categorical_feature=[1])
    booster = lightgbm.train({"num_threads": 1, "max_cat_to_onehot": 1} | small, data, 2)
    write("model_file", "treelite_categories", treelite.frontend.from_lightgbm(booster).serialize_bytes())
    for name, options in (("dart", {"booster": "dart", "rate_drop": 0.5}), ("regression", {})):
        booster = xgboost.train({"max_depth": 2, "nthread": 1} | options, xgboost.DMatrix(X, Y), 2)
        write("model_file", f"xgboost_{name}", bytes(booster.save_raw("json")))
    trees = onnx_models.random_trees(RNG, onnx_models.MODES[:-1], n_trees=2, depth=2, n_outputs=2)
    labels = {"classlabels_strings": ["a", "b"], "post_transform": "LOGISTIC"}
    write(
        "model_file", "onnx_classes", onnx_models.classifier({**onnx_models.listed(trees, "class"), **labels})
    )
    trees = onnx_models.random_trees(RNG, ["LEQ", "MEMBER"], n_trees=2, depth=2)
    attributes = {**onnx_models.indexed(trees), "n_targets": 1}
    write("model_file", "onnx_sets", onnx_models.ensemble("TreeEnsemble", attributes))


if __name__ == "__main__":
    xgboost_models()
    lightgbm_models()
    catboost_models()
    cbm_models()
    explainer_files()
    model_files()
