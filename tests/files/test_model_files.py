"""Model files: a path gives the same result as the saved model, whatever the file's name is."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import threading
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.checks import assert_margin, hard_rows, refused_when_damaged
from helpers.families import classifier, frame_with_categories, library, regressor, with_categories

from skshapgpu import TreeExplainer, UnsupportedModelError, explain
from skshapgpu.adapters import adapt
from skshapgpu.adapters.schema import AdaptedModel


def data(n_classes: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4))
    y = X[:, 0] + X[:, 1] * np.where(X[:, 2] > 0, 2.0, -1.0)
    X[rng.random(X.shape) < 0.05] = np.nan
    return X, np.digitize(y, np.quantile(y, np.arange(1, n_classes) / n_classes)) if n_classes else y


def save(model: Any, family: str, path: Path) -> Path:
    """Save a model as a user of the library would; the path's ending determines the format."""
    if family == "lightgbm":
        getattr(model, "booster_", model).save_model(str(path))
    elif family == "catboost":
        model.save_model(str(path), format=path.suffix[1:])
    else:
        model.save_model(path)
    return path


def assert_same(actual: AdaptedModel, expected: AdaptedModel) -> None:
    """Check that trees, columns and explanations are equal to the last bit."""
    assert expected.ensemble.n_leaves > 2 * expected.ensemble.n_trees > 0
    for f in fields(expected.ensemble):
        np.testing.assert_array_equal(getattr(actual.ensemble, f.name), getattr(expected.ensemble, f.name))
    assert actual.schema == expected.schema or np.isnan(expected.schema.missing_value)
    assert actual.schema.feature_names == expected.schema.feature_names
    assert actual.schema.encoders.keys() == expected.schema.encoders.keys()
    for name in ("family", "binary", "link", "link_scale", "squared_error", "has_cover"):
        assert getattr(actual, name) == getattr(expected, name), name


FORMATS = [
    ("xgboost", "json"),
    ("xgboost", "ubj"),
    ("lightgbm", "txt"),
    ("catboost", "cbm"),
    ("catboost", "json"),
]


@pytest.mark.parametrize("family, suffix", FORMATS)
@pytest.mark.parametrize("n_classes", [0, 2, 3])
def test_file_is_read_as_its_model(family, suffix, n_classes, tmp_path):
    X, y = data(n_classes)
    model = (classifier if n_classes else regressor)(family).fit(X, y)
    path = save(model, family, tmp_path / f"model.{suffix}")
    adapted, expected = adapt(path), adapt(model)
    assert_same(adapted, expected)
    if family != "lightgbm" or n_classes == 0:  # LightGBM's text does not have the labels
        assert (adapted.output_names, adapted.class_names) == (expected.output_names, expected.class_names)
    explanation = explain(str(path), X)
    np.testing.assert_array_equal(explanation.values, explain(model, X).values)
    assert np.ptp(explanation.values) > 0


@pytest.mark.parametrize("family, suffix", FORMATS)
def test_file_predicts_as_the_library_that_loads_it(family, suffix, tmp_path):
    X, y = data()
    path = save(regressor(family).fit(X, y), family, tmp_path / f"model.{suffix}")
    ensemble = adapt(path).ensemble
    rows = hard_rows(ensemble, inf=family != "xgboost")
    package = library(family)
    if family == "xgboost":
        booster = package.Booster(model_file=str(path))
        expected = booster.predict(package.DMatrix(rows), output_margin=True)
    elif family == "lightgbm":
        expected = package.Booster(model_file=str(path)).predict(rows, raw_score=True)
    else:
        expected = package.CatBoost().load_model(str(path), format=suffix).predict(rows)
    assert_margin(ensemble, rows, expected, 1e-5 if family == "xgboost" else 1e-12)


@pytest.mark.parametrize("family, suffix", FORMATS)
def test_content_decides_whatever_the_name(family, suffix, tmp_path):
    X, y = data()
    path = save(regressor(family).fit(X, y), family, tmp_path / f"model.{suffix}")
    expected = adapt(path)
    for name in ("model.pickle", "mödel with blanks"):
        other = tmp_path / name
        other.write_bytes(path.read_bytes())
        assert_same(adapt(other), expected)


@pytest.mark.parametrize("family, suffix", [pair for pair in FORMATS if pair[1] != "cbm"])
def test_library_is_not_imported(family, suffix, tmp_path):
    X, y = data()
    path = save(regressor(family).fit(X, y), family, tmp_path / f"model.{suffix}")
    code = f"""
import sys
import numpy as np
import skshapgpu
values = skshapgpu.TreeExplainer({str(path)!r}).shap_values(np.zeros((3, 4)))
assert values.shape == (3, 4) and {family!r} not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("suffix", ["json", "ubj"])
def test_xgboost_categories(suffix, tmp_path):
    xgb = library("xgboost")
    if tuple(map(int, xgb.__version__.split(".")[:2])) < (3, 1):
        pytest.skip("XGBoost keeps categories since 3.1")
    X, y = frame_with_categories()
    model = with_categories("xgboost", X, y)
    path = save(model, "xgboost", tmp_path / f"model.{suffix}")
    assert_same(adapt(path), adapt(model))
    assert (
        adapt(path).schema.encoders[1].code_of_category
        == adapt(model).schema.encoders[1].code_of_category
        != {}
    )
    np.testing.assert_array_equal(explain(path, X).values, explain(model, X).values)


@pytest.mark.parametrize("suffix", ["json", "ubj"])
@pytest.mark.parametrize(
    "params",
    [
        {"booster": "dart", "rate_drop": 0.5, "one_drop": 1},
        {"max_depth": 5, "gamma": 3.0, "tree_method": "exact"},  # pruned nodes stay in the file
        {"base_score": 0.123456789},
    ],
    ids=["dart", "pruned", "base score"],
)
def test_xgboost_numbers_keep_their_bits(suffix, params, tmp_path):
    """JSON has the shortest digits that identify a float32; read as float64, they are another number."""
    xgb = library("xgboost")
    X, y = data()
    booster = xgb.train({"nthread": 1, "eta": 0.1} | params, xgb.DMatrix(X, y), 10)
    assert_same(adapt(save(booster, "xgboost", tmp_path / f"model.{suffix}")), adapt(booster))


@pytest.mark.parametrize("suffix", ["json", "ubj"])
def test_xgboost_early_stopping(suffix, tmp_path):
    """A wrapper's file is read up to its best iteration, a Booster's to the end, as predict uses them."""
    xgb = library("xgboost")
    X, y = data()
    model = xgb.XGBRegressor(n_estimators=60, max_depth=4, early_stopping_rounds=2, n_jobs=1)
    model.fit(X[:200], y[:200], eval_set=[(X[200:], y[200:])], verbose=False)
    assert model.best_iteration + 1 < model.get_booster().num_boosted_rounds()
    path = save(model, "xgboost", tmp_path / f"wrapper.{suffix}")
    assert adapt(path).ensemble.n_trees == model.best_iteration + 1
    rows = hard_rows(adapt(path).ensemble, inf=False)
    assert_margin(adapt(path).ensemble, rows, model.predict(rows, output_margin=True), 1e-5)

    matrices = [xgb.DMatrix(X[part], y[part]) for part in (slice(200), slice(200, None))]
    booster = xgb.train(
        {"max_depth": 4, "nthread": 1},
        matrices[0],
        60,
        evals=[(matrices[1], "valid")],
        early_stopping_rounds=2,
        verbose_eval=False,
    )
    path = save(booster, "xgboost", tmp_path / f"booster.{suffix}")
    assert adapt(path).ensemble.n_trees == booster.num_boosted_rounds() > booster.best_iteration + 1


def test_lightgbm_file_of_the_best_iteration(tmp_path):
    lgb = library("lightgbm")
    X, y = data()
    model = lgb.LGBMRegressor(n_estimators=60, verbose=-1, n_jobs=1)
    model.fit(
        X[:200], y[:200], eval_set=[(X[200:], y[200:])], callbacks=[lgb.early_stopping(2, verbose=False)]
    )
    path = save(model, "lightgbm", tmp_path / "model.txt")
    assert adapt(path).ensemble.n_trees == model.best_iteration_ < 60
    assert_same(adapt(path), adapt(model))


@pytest.mark.parametrize("suffix", ["cbm", "json"])
def test_catboost_names_and_one_hot_categories(suffix, tmp_path):
    X, y = frame_with_categories()
    X["color"] = X["color"].astype(str)
    model = regressor("catboost", one_hot_max_size=10, cat_features=["color"]).fit(X, y)
    path = save(model, "catboost", tmp_path / f"model.{suffix}")
    assert_same(adapt(path), adapt(model))
    assert adapt(path).schema.feature_names == ("size", "color", "weight")
    np.testing.assert_array_equal(explain(path, X).values, explain(model, X).values)


def test_catboost_ctrs_in_json(tmp_path):
    """JSON has a single name and a single table for CTRs that differ only in how they binarize the target."""
    X, y = frame_with_categories()
    X["color"] = X["color"].astype(str)
    ctrs = ["Borders:TargetBorderCount=1", "Borders:TargetBorderCount=4"]
    model = regressor("catboost", simple_ctr=ctrs, one_hot_max_size=2, cat_features=["color"]).fit(X, y)
    with pytest.raises(UnsupportedModelError, match=r"save it as \.cbm"):
        adapt(save(model, "catboost", tmp_path / "model.json"))


def test_catboost_labels(tmp_path):
    X, y = data(3)
    for labels in (["no", "yes", "perhaps"], [7, -2, 5]):
        model = classifier("catboost").fit(X, np.array(labels)[y])
        for suffix in ("json", "cbm"):
            path = save(model, "catboost", tmp_path / f"model.{suffix}")
            assert adapt(path).output_names == adapt(model).output_names == tuple(sorted(labels))


def test_explainer_of_a_file_is_saved_like_any_other(tmp_path):
    X, y = data()
    explainer = TreeExplainer(save(regressor("xgboost").fit(X, y), "xgboost", tmp_path / "model.ubj"), X[:10])
    explainer.save(tmp_path / "explainer.npz")
    loaded = TreeExplainer.load(tmp_path / "explainer.npz")
    np.testing.assert_array_equal(loaded.shap_values(X), explainer.shap_values(X))


# ---- files without a model ------------------------------------------------------------------------


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(ValueError, match=r"there is no file '.*nothing\.json'"):
        TreeExplainer(tmp_path / "nothing.json")
    with pytest.raises(
        ValueError, match="is a folder, not a regular file; expected a model file or an explainer file"
    ):
        explain(str(tmp_path), np.zeros((1, 4)))
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(ValueError, match="not the path of a model file"):
        adapt(tmp_path / "file" / "inside")
    with pytest.raises(ValueError, match="not the path of a model file"):
        adapt("tree\nversion=v4\n" * 1000)  # the text of a model instead of its path
    with pytest.raises(ValueError):
        adapt("null\0byte")


def test_pipe_is_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    failures: list[BaseException] = []

    def read() -> None:
        try:
            adapt(tmp_path / "pipe")
        except ValueError as error:
            failures.append(error)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    reader.join(10)
    assert len(failures) == 1 and "is a FIFO, not a regular file; expected a model file" in str(failures[0])


CONTENTS = [
    (b"", "is empty"),
    (b"\x80\x04\x95", "is a pickle"),
    (b"PK\x03\x04rest", "ZIP archive, but not an explainer file"),
    (b"hello", "holds no model of a known kind"),
    (b"\x89PNG\r\n\x1a\n" + bytes(100), "holds no model of a known kind"),
    (b"{", "begins like JSON, but is not valid"),
    (b'{"learner": ', "begins like JSON, but is not valid"),
    (b"[" * 100_000, "begins like JSON, but is not valid"),
    (b"{}", "neither a model of XGBoost nor one of CatBoost"),
    (b'{"tree_info": []}', "dump of LightGBM"),
    (b'[{"nodeid": 0}]', "a list, like a dump of XGBoost"),
    (b'{"learner": {}}', "as a model of XGBoost"),
    (b'{"learner": 3}', "as a model of XGBoost"),
    (
        b'{"learner": {"gradient_booster": {"name": "gbtree", "model": {"trees": 5}}}}',
        "as a model of XGBoost",
    ),
    (b'{"features_info": []}', "as a model of CatBoost"),
    (b"{L\0\0\0\0\0\0\0\x07learner", "as a model of XGBoost"),
    (b"{U\xff", "as a model of XGBoost"),
    (b"tree\n", "as a model of LightGBM"),
    (b"tree\nversion=v4\n\xff\xfe\nend of trees\n", "as a model of LightGBM"),
    (struct.pack("<iii", 4, 8, 1), "as a model of treelite"),
    (struct.pack("<iiiBBQ", 4, 8, 1, 3, 3, 2**63) + bytes(100), "as a model of treelite"),
]


@pytest.mark.parametrize("content, message", CONTENTS, ids=[repr(content[:20]) for content, _ in CONTENTS])
def test_other_content_is_refused(content, message, tmp_path):
    path = tmp_path / "model.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as error:
        TreeExplainer(path)
    assert "model.json" in str(error.value)


def test_linear_booster_is_refused(tmp_path):
    xgb = library("xgboost")
    X, y = data()
    booster = xgb.train({"booster": "gblinear", "nthread": 1}, xgb.DMatrix(np.nan_to_num(X), y), 3)
    for suffix in ("json", "ubj"):
        with pytest.raises(UnsupportedModelError, match="gblinear"):
            adapt(save(booster, "xgboost", tmp_path / f"model.{suffix}"))


@pytest.mark.parametrize("family, suffix", [pair for pair in FORMATS if pair[1] != "cbm"])
def test_damaged_files(family, suffix, tmp_path):
    """A file that is truncated or has any byte changed is either read or rejected with a documented error."""
    X, y = data()
    path = save(regressor(family).fit(X, y), family, tmp_path / f"model.{suffix}")
    assert refused_when_damaged(path, 60) > 60  # at least the truncated ones


@pytest.mark.parametrize("end", [0.3, 0.9, 0.999])
def test_truncated_cbm(end, tmp_path):
    X, y = data()
    path = save(regressor("catboost").fit(X, y), "catboost", tmp_path / "model.cbm")
    content = path.read_bytes()
    path.write_bytes(content[: int(end * len(content))])
    with pytest.raises(ValueError, match=r"cannot be read as a model of CatBoost"):
        adapt(path)


def test_cbm_that_crashes_catboost(tmp_path, monkeypatch):
    """Damaged files crash CatBoost 1.2, which is why a separate process reads them."""
    from skshapgpu.adapters import files

    X, y = data()
    path = save(regressor("catboost").fit(X, y), "catboost", tmp_path / "model.cbm")
    monkeypatch.setattr(files, "_EXPORT_CATBOOST", "import os; os.abort()")
    with pytest.raises(ValueError, match="CatBoost crashes"):
        adapt(path)
    monkeypatch.setattr(files, "_EXPORT_CATBOOST", "import time; time.sleep(60)")
    monkeypatch.setattr(files, "_CATBOOST_SECONDS", 0.5)
    with pytest.raises(ValueError, match="takes too long"):
        adapt(path)


def test_cbm_with_text_and_sum_of_models(tmp_path):
    cb = library("catboost")
    X, y = data()
    words = np.where(y > 0, "high up", "far down")
    model = regressor("catboost", text_features=[1]).fit(np.c_[X[:, :1].astype(object), words], y)
    with pytest.raises(UnsupportedModelError, match="text or embedding features"):
        adapt(save(model, "catboost", tmp_path / "model.cbm"))
    models = [regressor("catboost", random_seed=n).fit(X, y) for n in (2, 3)]
    model = cb.sum_models(models, weights=[0.5, 0.5], ctr_merge_policy="IntersectingCountersAverage")
    assert_same(adapt(save(model, "catboost", tmp_path / "sum.cbm")), adapt(model))


def test_cbm_without_catboost(tmp_path, monkeypatch):
    X, y = data()
    path = save(regressor("catboost").fit(X, y), "catboost", tmp_path / "model.cbm")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match="needs the package catboost: install it"):
        adapt(path)


def test_json_of_catboost_that_misses_columns(tmp_path):
    """A column that no split tests may be absent from the file; then there are no names to compare with."""
    X, y = data()
    path = save(regressor("catboost").fit(X, y), "catboost", tmp_path / "model.json")
    document = json.loads(path.read_text())
    assert [f["flat_feature_index"] for f in document["features_info"]["float_features"]] == [0, 1, 2, 3]
    for f in document["features_info"]["float_features"]:
        f["flat_feature_index"] += 2
        f["feature_id"] = f"column {f['flat_feature_index']}"
    path.write_text(json.dumps(document))
    assert adapt(path).ensemble.n_features == 6
    assert adapt(path).schema.feature_names is None
