"""Models and explainers in other file systems."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import spark_models
from helpers.families import library, regressor
from helpers.stores import Store
from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor

from skshapgpu import TreeExplainer, explain
from skshapgpu.adapters import files

pytest.importorskip("pyarrow")

X, Y = load_diabetes(return_X_y=True)
FOREST = RandomForestRegressor(5, max_depth=6, random_state=0).fit(X, Y)


@pytest.mark.parametrize("family", ["xgboost", "lightgbm", "catboost"])
def test_model_files(family: str, url_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library(family)
    model, path = regressor(family).fit(X, Y), tmp_path / "model"
    if family == "lightgbm":
        model.booster_.save_model(str(path))
    elif family == "catboost":
        model.save_model(str(path), format="json")
    else:
        path = tmp_path / "model.json"
        model.save_model(path)
    url = url_store.copy(path, "models/model.bin")
    want = TreeExplainer(path).shap_values(X)
    np.testing.assert_array_equal(TreeExplainer(url).shap_values(X), want)
    np.testing.assert_array_equal(explain(url, X).values, want)
    np.testing.assert_array_equal(TreeExplainer(path.as_uri()).shap_values(X), want)


def test_spark_folders(url_store: Store, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    trees = [spark_models.random_tree(rng, 0) for _ in range(2)]
    folder = spark_models.write(tmp_path / "spark", "RandomForestRegressionModel", trees)
    rows = rng.normal(size=(20, len(spark_models.N_CATEGORIES)))
    rows[:, np.flatnonzero(spark_models.N_CATEGORIES)] = 0
    url = url_store.copy(folder, "spark")
    want = TreeExplainer(folder).shap_values(rows)
    for each in (url, f"{url}/"):
        np.testing.assert_array_equal(TreeExplainer(each).shap_values(rows), want)
    url_store.write("spark/data/part-00009.snappy.parquet", b"PAR1nothing")
    with pytest.raises(ValueError, match=rf"'{url}' cannot be read as a model of Spark ML"):
        TreeExplainer(url)


def test_errors_of_models_name_the_url(url_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    url_store.write("folder/large", b"")
    for name, content, message in (
        ("a.json", b"{}", "is JSON, but neither"),
        ("b.pkl", b"\x80abc", "is a pickle"),
        ("c", b"", "is empty; expected a model file"),
    ):
        url = url_store.write(name, content)
        with pytest.raises(ValueError, match=f"'{url}' {message}"):
            TreeExplainer(url)
    for name, message in (("nowhere", "there is no file '{}'"), ("folder", "'{}' is a folder")):
        url = url_store.place(name)
        with pytest.raises(ValueError, match=message.format(url)):
            TreeExplainer(url)

    def interrupted(path: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(files, "content_of", interrupted)
    with pytest.raises(KeyboardInterrupt):
        TreeExplainer(url_store.place("a.json"))  # the fixture checks that its copy is deleted


@pytest.mark.parametrize("options", [{}, {"data": X[:50]}, {"algorithm": "fast_v2"}])
def test_explainers(options: dict[str, Any], store: Store) -> None:
    explainer, place = TreeExplainer(FOREST, **options), store.place("explainer.npz")
    explainer.save(place, **store.given)
    want = explainer.shap_values(X)
    loaded = TreeExplainer.load(place, verify=True, **store.given)
    store.delete("explainer.npz")
    np.testing.assert_array_equal(loaded.shap_values(X), want)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(loaded)).shap_values(X), want)
    explainer.save(place, tables=False, **store.given)
    explainer.save(place, tables=False, **store.given)  # replaces its own
    np.testing.assert_array_equal(TreeExplainer.load(place, **store.given).shap_values(X), want)
    assert store.names() == ["explainer.npz"]


def test_a_loaded_explainer_has_aligned_arrays(store: Store, tmp_path: Path) -> None:
    """Tables are aligned as in a memory-mapped file, because vector instructions may rely on it."""
    from skshapgpu._files import saving
    from skshapgpu._files.locations import locate

    place = store.place("explainer.npz")
    TreeExplainer(FOREST, algorithm="fast_v2").save(place, **store.given)
    saved = saving.load(locate(place, **store.given))
    tables = [array for array in saved.tables.values() if array.size]
    assert tables
    for array in tables:
        assert array.ctypes.data % 64 == 0 and not array.flags.writeable


def test_explainer_files_of_others(store: Store) -> None:
    explainer, place = TreeExplainer(FOREST), store.write("mine", b"dear")
    with pytest.raises(FileExistsError, match="mine' exists, and is not a file that skshapgpu would replace"):
        explainer.save(place, **store.given)
    assert store.read("mine") == b"dear"
    for content, message in ((b"dear", "is not an explainer file, or it is damaged"), (b"", "it is empty")):
        store.write("mine", content)
        with pytest.raises(ValueError, match=message):
            TreeExplainer.load(place, **store.given)
    with pytest.raises(OSError):
        TreeExplainer.load(store.place("nowhere"), **store.given)
    explainer.save(store.place("whole"), **store.given)
    store.write("whole", store.read("whole")[:-100])
    with pytest.raises(ValueError, match="whole' is not an explainer file, or it is damaged"):
        TreeExplainer.load(store.place("whole"), **store.given)
