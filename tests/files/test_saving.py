"""Explainers in files: identical values after loading, and clear errors for damaged files."""

from __future__ import annotations

import gc
import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.checks import corrupt
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.ensemble import (
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skshapgpu import TreeExplainer
from skshapgpu._common.devices import Devices
from skshapgpu._files import saving, storage
from skshapgpu._files.saving import digest

X, Y = load_diabetes(return_X_y=True)
CANCER, BENIGN = load_breast_cancer(return_X_y=True)
IRIS, SPECIES = load_iris(return_X_y=True)


def explainer_of(model: Any, *args: Any, **options: Any) -> TreeExplainer:
    return TreeExplainer(model, *args, device="cpu", **options)


@pytest.fixture(scope="module")
def forest() -> RandomForestRegressor:
    return RandomForestRegressor(5, max_depth=4, random_state=0).fit(X, Y)


@pytest.fixture
def file(tmp_path: Path, forest: Any) -> Path:
    path = tmp_path / "explainer.npz"
    explainer_of(forest).save(path)
    return path


def frame() -> Any:
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    columns = {
        "number": rng.random(200),
        "colour": pandas.Categorical(rng.choice(["red", "green", "blue"], 200)),
        "size": pandas.Categorical(rng.choice([1, 2, 30], 200)),
    }
    return pandas.DataFrame(columns)


def target(rows: Any) -> np.ndarray:
    return rows["number"].to_numpy() + (rows["colour"] == "red") + 2 * (rows["size"] == 30).to_numpy()


def sklearn_categories() -> tuple[Any, Any]:
    rows = frame()
    labels = np.where(target(rows) > 1.5, "high", "low")
    model = HistGradientBoostingClassifier(categorical_features="from_dtype", max_iter=5)
    return model.fit(rows, labels), rows


def xgboost_categories() -> tuple[Any, Any]:
    xgboost = pytest.importorskip("xgboost")
    rows = frame()
    return xgboost.XGBRegressor(n_estimators=5, enable_categorical=True).fit(rows, target(rows)), rows


def lightgbm_categories() -> tuple[Any, Any]:
    lightgbm = pytest.importorskip("lightgbm")
    rows = frame()
    options = {"n_estimators": 5, "verbose": -1, "min_child_samples": 2, "min_data_per_group": 1}
    return lightgbm.LGBMRegressor(**options).fit(rows, target(rows)), rows


def catboost_categories() -> tuple[Any, Any]:
    catboost = pytest.importorskip("catboost")
    rows = frame()
    options = {"iterations": 5, "verbose": 0, "one_hot_max_size": 10, "allow_writing_files": False}
    model = catboost.CatBoostRegressor(cat_features=["colour", "size"], **options)
    return model.fit(rows, target(rows)), rows


def classes() -> tuple[Any, Any]:
    names = np.array(["setosa", "versicolor", "virginica"])
    return RandomForestClassifier(5, random_state=0).fit(IRIS, names[SPECIES]), IRIS


MODELS = [sklearn_categories, xgboost_categories, lightgbm_categories, catboost_categories, classes]


@pytest.mark.parametrize("make", MODELS)
def test_loaded_explainers_are_as_before(make: Any, tmp_path: Path) -> None:
    model, rows = make()
    before = explainer_of(model, precision="double")
    before.save(tmp_path / "file")
    after = TreeExplainer.load(tmp_path / "file", device="cpu")
    expected, explanation = before.explain(rows), after.explain(rows)
    np.testing.assert_array_equal(explanation.values, expected.values)
    np.testing.assert_array_equal(explanation.base_values, expected.base_values)
    assert (
        explanation.feature_names == expected.feature_names
        and explanation.output_names == expected.output_names
    )
    assert repr(after) == repr(before) and explanation.precision == "double"
    assert all(type(a) is type(b) for a, b in zip(after.output_names or (), before.output_names or ()))


@pytest.mark.parametrize(
    "options",
    [
        {"algorithm": "fast_v2"},
        {"algorithm": "fast_v1"},
        {"algorithm": "quadrature", "outputs": "all"},
        {"data": CANCER[:20], "data_weight": np.arange(1, 21)},
        {"data": CANCER[:20], "model_output": "probability"},
        {"data": CANCER[:20], "model_output": "log_loss"},
    ],
)
def test_options_are_kept(options: dict[str, Any], tmp_path: Path) -> None:
    model = HistGradientBoostingClassifier(max_iter=5, max_depth=4).fit(CANCER, BENIGN)
    before = explainer_of(model, **options)
    before.save(tmp_path / "file")
    after = TreeExplainer.load(tmp_path / "file", device="cpu")
    labels = {"y": BENIGN} if options.get("model_output") == "log_loss" else {}
    expected, explanation = before.explain(CANCER, **labels), after.explain(CANCER, **labels)
    np.testing.assert_array_equal(explanation.values, expected.values)
    np.testing.assert_array_equal(explanation.base_values, expected.base_values)
    assert repr(after) == repr(before) and after.feature_perturbation == before.feature_perturbation
    assert after._compiled.options.algorithm.name == options.get("algorithm", "auto")


def test_loading_needs_no_library_of_the_model(tmp_path: Path) -> None:
    model, rows = xgboost_categories()
    explainer_of(model).save(tmp_path / "file")
    rows.to_pickle(tmp_path / "rows")
    np.save(tmp_path / "values.npy", explainer_of(model).shap_values(rows))
    code = """
import os, sys, numpy, pandas
sys.modules["xgboost"] = None
from skshapgpu import TreeExplainer
folder = sys.argv[1]
explainer = TreeExplainer.load(os.path.join(folder, "file"), device="cpu")
values = explainer.shap_values(pandas.read_pickle(os.path.join(folder, "rows")))
assert (values == numpy.load(os.path.join(folder, "values.npy"))).all()
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)


def test_options_of_loading(file: Path, forest: Any) -> None:
    explainer = TreeExplainer.load(file, device="cpu", n_jobs=2, memory_limit="1GB", check_additivity=False)
    options = explainer._compiled.options
    assert (options.n_jobs, options.memory_limit, options.check_additivity) == (2, 10**9, False)
    np.testing.assert_array_equal(explainer.shap_values(X), explainer_of(forest).shap_values(X))
    for wrong in ({"n_jobs": 0}, {"memory_limit": -1}, {"device": "gpu"}):
        with pytest.raises(ValueError):
            TreeExplainer.load(file, **wrong)


def test_algorithms_of_the_cpu_stay_there(
    tmp_path: Path, forest: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    explainer_of(forest, algorithm="fast_v1").save(tmp_path / "file")
    monkeypatch.setattr(Devices, "parse", lambda device: Devices(indices=(0,)))
    with pytest.raises(ValueError, match="algorithm='fast_v1' is computed on the CPU only"):
        TreeExplainer.load(tmp_path / "file", device="cuda")


def test_what_files_cannot_keep(tmp_path: Path) -> None:
    pipeline = make_pipeline(StandardScaler(), GradientBoostingRegressor(n_estimators=2)).fit(X, Y)
    with pytest.raises(ValueError, match="leading steps of a Pipeline, which a file cannot keep"):
        explainer_of(pipeline).save(tmp_path / "file")
    model = RandomForestClassifier(2).fit(
        IRIS, np.array(["2020-01-01", "2021-01-01", "2022-01-01"], "M8[D]")[SPECIES]
    )
    with pytest.raises(ValueError, match="cannot save the model: it holds"):
        explainer_of(model).save(tmp_path / "file")
    pandas = pytest.importorskip("pandas")
    days = pandas.Categorical(np.datetime64("2020-01-01", "ns") + SPECIES.astype("m8[D]"))
    rows = pandas.DataFrame({"day": days, "width": IRIS[:, 1]})
    model = HistGradientBoostingRegressor(categorical_features="from_dtype", max_iter=2)
    model.fit(rows, IRIS[:, 2])
    with pytest.raises(ValueError, match="cannot save the model: it holds array"):
        explainer_of(model).save(tmp_path / "file")
    assert not list(tmp_path.iterdir())


def test_categories_in_another_byte_order(tmp_path: Path) -> None:
    rows = np.column_stack([SPECIES, IRIS[:, 1]]).astype(">f8")
    model = HistGradientBoostingRegressor(max_iter=5, categorical_features=[0]).fit(rows, IRIS[:, 2])
    explainer_of(model).save(tmp_path / "file")
    explanation = TreeExplainer.load(tmp_path / "file").explain(rows)
    margins = explanation.base_values + explanation.values.sum(axis=1)
    np.testing.assert_allclose(margins, model.predict(rows), atol=1e-5)


def test_files_appear_complete_or_not_at_all(
    file: Path, forest: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = file.read_bytes()

    def full(*args: Any, **options: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("skshapgpu._files.storage.npy.write_array", full)
    with pytest.raises(OSError, match="No space left"):
        explainer_of(forest).save(file)
    assert file.read_bytes() == before and os.listdir(file.parent) == [file.name]


def test_files_in_use_are_not_replaced_on_windows(
    file: Path, forest: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = file.read_bytes()

    def refuse(*args: Any) -> None:  # as Windows does for a file that is memory-mapped
        raise PermissionError(13, "Access is denied")

    monkeypatch.setattr("skshapgpu._files.storage.os.replace", refuse)
    other = explainer_of(RandomForestRegressor(3, random_state=1).fit(X, Y))
    with pytest.raises(
        PermissionError, match=r"cannot replace .*explainer\.npz.*Access is denied.*On Windows"
    ):
        other.save(file)
    assert file.read_bytes() == before and os.listdir(file.parent) == [file.name]
    monkeypatch.undo()
    other.save(file)
    assert file.read_bytes() != before


def test_files_are_those_of_numpy(file: Path, forest: Any) -> None:
    with np.load(file) as arrays:
        header = json.loads(arrays["header.json"])
        assert sum(name.startswith("a") for name in arrays) == len(header["arrays"])
    assert header["digest"] == digest(explainer_of(forest)._adapted.ensemble)
    assert header["format"] == "skshapgpu explainer" and header["library"]


def test_saving_twice_gives_the_same_bytes(file: Path, forest: Any, tmp_path: Path) -> None:
    explainer_of(forest).save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == file.read_bytes()


# Modified files


def test_random_corruptions(file: Path, forest: Any, tmp_path: Path) -> None:
    whole, damaged = file.read_bytes(), tmp_path / "damaged"
    expected = explainer_of(forest).shap_values(X[:5])
    rng = np.random.default_rng(0)
    n_errors = 0
    for i in range(1_000):
        damaged.write_bytes(corrupt(rng, whole, i % 4))
        try:
            explainer = TreeExplainer.load(damaged, device="cpu")
        except ValueError as error:
            assert str(damaged) in str(error)
            n_errors += 1
        else:
            np.testing.assert_array_equal(explainer.shap_values(X[:5]), expected)
    assert n_errors > 500


@pytest.mark.parametrize("content", [b"", b"PK", b"no file of ours" * 100])
def test_other_files(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(ValueError, match="is not an explainer file, or it is damaged"):
        TreeExplainer.load(tmp_path / "file")


def test_missing_files(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        TreeExplainer.load(tmp_path / "file")


def test_pickles_are_not_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "file.npz", a=np.array([object()]))
    with pytest.raises(ValueError, match="does not begin with a header"):
        TreeExplainer.load(tmp_path / "file.npz")


@pytest.mark.parametrize(
    "change, message",
    [
        ({"format": "another"}, "holds no explainer"),
        ({"version": 3}, "has version 3 of the format, written by skshapgpu"),
        ({"options": {"mapping": []}}, "must be one of"),
        ({"ensemble": {"mapping": []}}, "is damaged"),
        ({"ensemble": {"array": "none"}}, "is damaged"),
        ({"ensemble": [1]}, "is damaged"),
        ({"model": {"encoder": "builtins", "fields": {}}}, "is damaged"),
        ({"background": {"list": [{"array": "a0"}, {"array": "a0"}]}}, "is damaged"),
        ({"background": {"unknown": 1}}, "is damaged"),
    ],
)
def test_files_that_were_written_wrongly(
    change: dict[str, Any], message: str, file: Path, tmp_path: Path
) -> None:
    header, arrays = storage.read(file)
    storage.write(tmp_path / "changed", header | change, arrays)
    with pytest.raises(ValueError, match=message):
        TreeExplainer.load(tmp_path / "changed", device="cpu")


@pytest.mark.parametrize("name", ["ensemble", "model", "options", "background"])
def test_nested_values(name: str, file: Path, tmp_path: Path) -> None:
    """Python 3.12 and later parse JSON of a greater depth than their own functions can descend."""
    header, arrays = storage.read(file)
    nested: Any = 1
    for _ in range(600):
        nested = {"tuple": [nested]}
    recursion_limit = sys.getrecursionlimit()
    sys.setrecursionlimit(10_000)
    try:
        storage.write(tmp_path / "nested", header | {name: nested}, arrays)
    finally:
        sys.setrecursionlimit(recursion_limit)
    with pytest.raises(ValueError, match="maximum recursion depth exceeded"):
        TreeExplainer.load(tmp_path / "nested", device="cpu")


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("calibrated") / "explainer.npz"
    forest = RandomForestClassifier(2, max_depth=2, random_state=0)
    model = CalibratedClassifierCV(forest, method="isotonic", cv=2).fit(CANCER, BENIGN)
    explainer_of(model, data=CANCER[:5], model_output="probability").save(path)
    return path


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"functions": {"mapping": []}}, "neither a margin nor functions"),
        ({"functions": {"mapping": [["probability", 1]]}}, "is damaged"),
        ({"terms": {"tuple": []}}, "has no terms"),
        ({"terms": {"tuple": [1]}}, "terms of a sum"),
        ({"terms": {"list": []}}, "terms of a sum"),
        ({"offset": {"mapping": []}}, "an offset"),
        ({"link": 0.5}, "link of a function of margins is 0.5, which is unknown"),
        ({"link": None}, "link of a function of margins is None, which is unknown"),
        ({"scale": float("nan")}, "a scale"),
        ({"scale": True}, "a scale"),
        ({"is_normalised": 1}, "division by the sum"),
        ({"weights": 1.0}, "weights of a function of margins"),
        ({"calibrators": {"tuple": ["x"]}}, "calibrator for each of the 1 margins"),
        ({"calibrators": "x"}, "calibrator for each of the 1 margins"),
        ({"x": "x"}, "points of an isotonic calibrator"),
    ],
)
def test_functions_of_margins_are_checked(
    wrong: dict[str, Any], message: str, calibrated: Path, tmp_path: Path
) -> None:
    """Otherwise, loading or explaining would raise an ``AttributeError`` or a ``KeyError``."""
    header, arrays = storage.read(calibrated)

    def replaced(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: wrong[key] if key in wrong else replaced(item) for key, item in value.items()}
        if isinstance(value, list):
            if len(value) == 2 and value[0] == "functions":
                return [value[0], wrong.get("functions", replaced(value[1]))]
            return [replaced(item) for item in value]
        return value

    storage.write(tmp_path / "changed", header | {"model": replaced(header["model"])}, arrays)
    with pytest.raises(ValueError, match=f"changed' is damaged: .*{message}|changed' {message}"):
        TreeExplainer.load(tmp_path / "changed", device="cpu")


@pytest.mark.parametrize("name", ["x", "y"])
@pytest.mark.parametrize("change", ["descending", "nan"])
def test_points_of_calibrators_are_checked(name: str, change: str, calibrated: Path, tmp_path: Path) -> None:
    header, arrays = storage.read(calibrated)
    array = re.findall(rf'"{name}": {{"array": "(\w+)"}}', json.dumps(header["model"]))[0]
    points = arrays[array][::-1] if change == "descending" else np.full_like(arrays[array], np.nan)
    storage.write(tmp_path / "changed", header, arrays | {array: np.ascontiguousarray(points)})
    with pytest.raises(ValueError, match="changed' is damaged: the points of an isotonic calibrator"):
        TreeExplainer.load(tmp_path / "changed", device="cpu")


def test_trees_are_checked(file: Path, tmp_path: Path) -> None:
    """Trees are validated even if the checksums of the file are right."""
    header, arrays = storage.read(file)
    for name in arrays:
        if arrays[name].dtype == np.int32 and len(arrays[name]) > 50:
            wrong = arrays | {name: np.full_like(arrays[name], 10**6)}
            storage.write(tmp_path / "changed", header, wrong)
            with pytest.raises(ValueError, match=r"is damaged: (?!.*digest)"):
                TreeExplainer.load(tmp_path / "changed", device="cpu")


@pytest.mark.parametrize("verify", [False, True])
def test_trees_are_compared_with_their_digest(verify: bool, file: Path, tmp_path: Path) -> None:
    """Other trees are noticed even if they are valid and the checksums of the file are right."""
    header, arrays = storage.read(file)
    name = dict(header["ensemble"]["mapping"])["value"]["array"]
    for wrong_header, wrong_arrays in (
        (header, arrays | {name: arrays[name] * 2}),
        (header | {"digest": header["digest"][::-1]}, arrays),
        (header | {"digest": None}, arrays),
    ):
        storage.write(tmp_path / "changed", wrong_header, wrong_arrays)
        with pytest.raises(ValueError, match="changed' is damaged: its trees do not match the digest"):
            TreeExplainer.load(tmp_path / "changed", device="cpu", verify=verify)
    del header["digest"]
    storage.write(tmp_path / "none", header, arrays)
    with pytest.raises(ValueError, match="none' is damaged: 'digest'"):
        TreeExplainer.load(tmp_path / "none", device="cpu")


def test_files_without_later_fields_are_read(file: Path, forest: Any, tmp_path: Path) -> None:
    """The digest is that of the fields in the file: an earlier release may have written fewer."""
    header, arrays = storage.read(file)
    earlier_fields = [[name, value] for name, value in header["ensemble"]["mapping"] if name != "player"]
    assert len(earlier_fields) == len(header["ensemble"]["mapping"]) - 1
    header["ensemble"] = {"mapping": earlier_fields}
    header["digest"] = saving._digest(saving._Unpacker(arrays).unpack(header["ensemble"]))
    storage.write(tmp_path / "earlier", header, arrays)
    values = TreeExplainer.load(tmp_path / "earlier", device="cpu").shap_values(X)
    np.testing.assert_array_equal(values, explainer_of(forest).shap_values(X))


def test_compressed_files(file: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(tmp_path / "new", "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    with pytest.raises(ValueError, match="is compressed"):
        TreeExplainer.load(tmp_path / "new")


def test_arrays_are_mapped(tmp_path: Path) -> None:
    tables = np.arange(1_000_000, dtype=np.float32)
    storage.write(tmp_path / "file", {}, {"tables": tables, "small": tables[:3]})
    _, arrays = storage.read(tmp_path / "file")
    assert not arrays["tables"].flags.owndata and not arrays["tables"].flags.writeable
    assert arrays["tables"].ctypes.data % 64 == 0 and (arrays["small"] == [0, 1, 2]).all()
    np.testing.assert_array_equal(arrays["tables"], tables)
    data = bytearray((tmp_path / "file").read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "damaged").write_bytes(data)
    with pytest.raises(ValueError, match="'tables' does not match its checksum"):
        storage.read(tmp_path / "damaged")


@pytest.mark.parametrize("existing", [False, True])
def test_an_interrupt_within_a_member(
    existing: bool, forest: RandomForestRegressor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interrupt itself is raised, not an error of the archive that it leaves open."""
    path, explainer = tmp_path / "file", explainer_of(forest)
    if existing:
        explainer.save(path)
    before = path.read_bytes() if existing else None

    def interrupted(member: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("zipfile._ZipWriteFile.close", interrupted)
        with pytest.raises(KeyboardInterrupt):
            explainer.save(path)
    gc.collect()
    assert os.listdir(tmp_path) == (["file"] if existing else [])
    assert not existing or path.read_bytes() == before


def test_files_of_before_the_first_release_are_refused(file: Path, tmp_path: Path) -> None:
    """Such files have groups of features under another name; without groups, the values would be wrong."""
    header, arrays = storage.read(file)
    options = header["options"]["mapping"]
    named = [["groups" if name == "feature_groups" else name, value] for name, value in options]
    assert named != options
    storage.write(tmp_path / "old", header | {"options": {"mapping": named}}, arrays)
    with pytest.raises(ValueError, match=r"was written before the first release: save the explainer again"):
        TreeExplainer.load(tmp_path / "old", device="cpu")
