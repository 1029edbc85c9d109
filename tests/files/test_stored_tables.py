"""Tables in files: used unchanged, memory-mapped, and rejected if they do not fit the plan."""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.checks import corrupt
from helpers.ensembles import random_chain, random_ensemble, random_rows
from helpers.plans import plan_with_tables
from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor

from skshapgpu import TreeExplainer, _core
from skshapgpu._files import storage
from skshapgpu.adapters.ensemble import Ensemble, attributes_of

X, Y = load_diabetes(return_X_y=True)

Contents = dict[str, np.ndarray]


# The core


def path_plan(
    ensemble: Ensemble, stored: Contents | None = None, kind: str = "fast_v2", **options: Any
) -> Any:
    precision = options.pop("precision", "double")
    if kind == "none":
        return _core.Plan(attributes_of(ensemble), precision, stored=stored, **options)
    return plan_with_tables(ensemble, precision, kind, stored=stored, **options)


def background_plan(
    ensemble: Ensemble, stored: Contents | None = None, table_bytes: int = 3000, precision: str = "double"
) -> Any:
    """Compile a plan of 3,000 bytes, so that some leaves have a table and others patterns."""
    rows = random_rows(9, ensemble, 12)
    attributes = attributes_of(ensemble)
    weights = np.full(len(rows), 1 / len(rows))
    return _core.background_plan(attributes, precision, rows, weights, "SII", table_bytes, stored=stored)


def compute(plan: Any, ensemble: Ensemble, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    shape = len(rows), ensemble.n_outputs, ensemble.n_features
    values, margin = np.full(shape, np.nan), np.full(shape[:2], np.nan)
    plan.explain(rows, values, margin, 1)
    return values, margin


def copies(contents: Contents) -> Contents:
    return {name: array.copy() for name, array in contents.items()}


@pytest.mark.parametrize("precision", ["single", "double"])
@pytest.mark.parametrize("kind", ["fast_v2", "level_uniform", "background"])
@pytest.mark.parametrize("vector", [False, True])
def test_a_plan_with_stored_tables_is_the_same(kind: str, precision: str, vector: bool) -> None:
    n_borrowed = 0
    for seed in range(10):
        options: dict[str, Any] = {"n_trees": 6, "n_outputs": 2, "vector": vector, "categorical": True}
        ensemble = random_ensemble(seed, shapes=("random", "oblivious", "leaf"), **options)
        rows = random_rows(seed, ensemble, 70)
        if kind == "background":
            filled = background_plan(ensemble, precision=precision)
            # Stored tables are used even if the plan itself may build none.
            again = background_plan(ensemble, copies(filled.contents()) or None, 0, precision)
        else:
            filled = path_plan(ensemble, kind=kind, precision=precision)
            again = path_plan(ensemble, copies(filled.contents()) or None, kind, precision=precision)
        for result, expected in zip(compute(again, ensemble, rows), compute(filled, ensemble, rows)):
            np.testing.assert_array_equal(result, expected)
        np.testing.assert_array_equal(again.base_value, filled.base_value)
        assert filled.info()["borrowed_bytes"] == 0
        ours = {"borrowed_bytes": 0, "table_seconds": 0.0}
        assert again.info() | ours == filled.info() | ours
        n_borrowed += again.info()["borrowed_bytes"]
        gc.collect()
        for name, array in again.contents().items():
            np.testing.assert_array_equal(array, filled.contents()[name])
    assert n_borrowed > 0


def test_contents_keep_their_plan_and_plans_their_contents() -> None:
    ensemble = random_ensemble(1, max_leaves=16)
    rows = random_rows(1, ensemble, 20)
    expected = compute(path_plan(ensemble), ensemble, rows)[0]
    contents = path_plan(ensemble).contents()
    assert not contents["doubles"].flags.writeable and contents["doubles"].base is not None
    again = path_plan(ensemble, contents)
    contents.clear()
    gc.collect()
    np.testing.assert_array_equal(compute(again, ensemble, rows)[0], expected)


def test_no_tables_no_contents() -> None:
    ensemble = random_ensemble(0, shapes=("leaf",))
    assert path_plan(ensemble).contents() == {} == background_plan(ensemble).contents()
    assert path_plan(random_ensemble(0), kind="none").contents() == {}


def changed(change: Callable[[np.ndarray], np.ndarray], *names: str) -> Callable[[Contents], Contents]:
    return lambda contents: contents | {name: change(contents[name]) for name in names}


WRONG: dict[str, tuple[Callable[[Contents], Contents], str]] = {
    "no layout": (lambda c: {n: a for n, a in c.items() if n != "layout"}, "have no layout"),
    "short layout": (changed(lambda a: a[:2], "layout"), "have no layout"),
    "other layout": (changed(lambda a: a ^ np.uint64(1), "layout"), "have another layout"),
    "other leaves": (changed(lambda a: a + np.array([0, 0, 1], np.uint64), "layout"), "another layout"),
    "all leaves": (changed(lambda a: a + np.array([0, 0, 2**63], np.uint64), "layout"), "another layout"),
    "no tables": (lambda c: {n: a for n, a in c.items() if n != "doubles"}, "a wrong size"),
    "short tables": (changed(lambda a: a[:-1], "doubles"), "a wrong size"),
    "long tables": (changed(lambda a: np.append(a, 0.0), "doubles"), "a wrong size"),
    "both precisions": (lambda c: c | {"floats": c["doubles"].astype(np.float32)}, "a wrong size"),
    "float32": (changed(lambda a: a.astype(np.float32), "doubles"), "doubles of another type"),
    "two axes": (changed(lambda a: a[np.newaxis], "doubles"), "doubles of another type"),
    "strided": (changed(lambda a: np.repeat(a, 2)[::2], "doubles"), "doubles of another type"),
    "unaligned": (changed(lambda a: unaligned(a), "doubles"), "doubles of another type"),
    "swapped bytes": (changed(lambda a: a.astype(">f8"), "doubles"), "doubles of another type"),
    "lists": (lambda c: c | {"doubles": c["doubles"].tolist()}, "doubles of another type"),
    "no counts": (lambda c: {n: a for n, a in c.items() if n != "counts"}, "a wrong number of patterns"),
    "count of zero": (changed(lambda a: np.where(np.arange(len(a)), a, 0), "counts"), "wrong number of p"),
    "huge count": (changed(lambda a: a + np.uint64(2**64 - 1), "counts"), "a wrong number of patterns"),
    "larger counts": (changed(lambda a: a + np.uint64(1), "counts"), "a wrong number of patterns"),
    "fewer patterns": (changed(lambda a: a[:-1], "patterns", "weights"), "a wrong number of patterns"),
    "more patterns": (changed(lambda a: np.append(a, a), "patterns", "weights"), "wrong number of patterns"),
    "fewer weights": (changed(lambda a: a[:-1], "weights"), "a wrong number of patterns"),
    "no base value": (lambda c: {n: a for n, a in c.items() if n != "base_value"}, "number of base values"),
    "base value of NaN": (changed(lambda a: a * np.nan, "base_value"), "that is not finite"),
}


def unaligned(array: np.ndarray) -> np.ndarray:
    data = np.frombuffer(b"x" + array.tobytes(), np.uint8)[1:]
    return data.view(array.dtype)


@pytest.mark.parametrize("name", WRONG)
def test_contents_that_do_not_fit(name: str) -> None:
    change, message = WRONG[name]
    ensemble = random_ensemble(4, n_trees=5, max_leaves=16, shapes=("random",))
    contents = background_plan(ensemble).contents()
    assert len(contents["counts"]) > 2 and len(contents["doubles"]) > 100
    with pytest.raises(ValueError, match=message):
        background_plan(ensemble, change(copies(contents)))


def test_contents_of_other_plans() -> None:
    ensemble, other = (random_ensemble(seed, n_trees=5, max_leaves=16) for seed in (3, 4))
    contents = path_plan(ensemble).contents()
    for make in (
        lambda: path_plan(other, contents),
        lambda: path_plan(ensemble, contents, "level_uniform"),
        lambda: path_plan(ensemble, contents, precision="single"),
        lambda: path_plan(ensemble, contents, index="BII"),
        lambda: background_plan(ensemble, contents),
        lambda: path_plan(ensemble, background_plan(ensemble).contents()),
        lambda: path_plan(random_chain(0, 16, 16), contents),
    ):
        with pytest.raises(ValueError, match="the stored tables have another layout"):
            make()
    with pytest.raises(ValueError, match="a plan without tables takes none that were stored"):
        path_plan(ensemble, contents, "none")


def test_any_numbers_are_read_without_harm() -> None:
    """Values are wrong but no access is out of bounds, as patterns and tables contain no positions."""
    ensemble = random_ensemble(4, n_trees=5, max_leaves=16, shapes=("random",))
    rows = random_rows(3, ensemble, 40)
    contents = background_plan(ensemble).contents()
    rng = np.random.default_rng(0)
    for _ in range(20):
        noise = {
            name: np.frombuffer(rng.bytes(contents[name].nbytes), contents[name].dtype)
            for name in ("doubles", "patterns", "weights")
        }
        plan = background_plan(ensemble, contents | noise)
        with np.errstate(all="ignore"):
            compute(plan, ensemble, rows)


# Files


def explainer_of(model: Any, *args: Any, **options: Any) -> TreeExplainer:
    return TreeExplainer(model, *args, device="cpu", **options)


@pytest.fixture(scope="module")
def forest() -> RandomForestRegressor:
    return RandomForestRegressor(5, max_depth=6, random_state=0).fit(X, Y)


def fast_v2(forest: Any) -> TreeExplainer:
    return explainer_of(forest, algorithm="fast_v2")


def against_background(forest: Any) -> TreeExplainer:
    return explainer_of(forest, X[:30], precision="double")


def with_patterns(forest: Any) -> TreeExplainer:
    """Return an explainer in which some leaves have no table."""
    explainer = explainer_of(forest, X[:30], precision="double", memory_limit=50_000)
    explainer._compiled.options = replace(explainer._compiled.options, memory_limit=None)  # for calls
    assert explainer.model_info()["n_leaves_without_table"] > 0
    return explainer


def level_uniform(forest: Any) -> TreeExplainer:
    catboost = pytest.importorskip("catboost")
    options = {"iterations": 20, "depth": 4, "verbose": 0, "thread_count": 1, "allow_writing_files": False}
    return explainer_of(catboost.CatBoostRegressor(**options).fit(X, Y))


both_kinds = pytest.mark.parametrize("make", [fast_v2, against_background])
all_kinds = pytest.mark.parametrize("make", [fast_v2, against_background, with_patterns, level_uniform])


@pytest.fixture
def lazy(monkeypatch: pytest.MonkeyPatch) -> None:
    """All tables are treated as large."""
    monkeypatch.setattr("skshapgpu._files.storage.LAZY_BYTES", 0)


@all_kinds
def test_loading_fills_no_tables(make: Any, forest: Any, tmp_path: Path) -> None:
    before = make(forest)
    before.save(tmp_path / "file")
    after = TreeExplainer.load(tmp_path / "file", device="cpu")
    info = after.model_info()
    assert info["borrowed_bytes"] >= info["table_bytes"] > 0 == before.model_info()["borrowed_bytes"]
    np.testing.assert_array_equal(after.shap_values(X), before.shap_values(X))
    assert after.expected_value == before.expected_value
    contents = after._compiled.contents()
    tables = contents["doubles" if "doubles" in contents else "floats"]
    assert tables.ctypes.data % 64 == 0 and not tables.flags.writeable


@all_kinds
def test_saving_again_and_pickling(make: Any, forest: Any, tmp_path: Path) -> None:
    before = make(forest)
    before.save(tmp_path / "file")
    after = TreeExplainer.load(tmp_path / "file", device="cpu")
    after.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "file").read_bytes()
    expected = before.shap_values(X)
    # Pickles have no tables; loading lays them out again.
    values, wanted = (pickle.loads(pickle.dumps(each)).shap_values(X) for each in (after, before))
    np.testing.assert_array_equal(values, wanted)
    np.testing.assert_allclose(values, expected, rtol=0, atol=1e-9)
    assert len(pickle.dumps(after)) < after.model_info()["table_bytes"] + 100_000
    # The file that it is mapped from is replaced; the mapping keeps the old file until it ends.
    after.save(tmp_path / "file")
    explainer_of(forest).save(tmp_path / "file")
    np.testing.assert_array_equal(after.shap_values(X), expected)


def test_mapped_tables_count_for_no_memory_limit(forest: Any, tmp_path: Path) -> None:
    """Nor does the limit change their layout."""
    before = with_patterns(forest)
    before.save(tmp_path / "file")
    for limit in (10**5, 10**9):
        after = TreeExplainer.load(tmp_path / "file", device="cpu", memory_limit=limit)
        assert after._compiled.call_limit == limit
        assert after.model_info()["n_leaves_without_table"] == before.model_info()["n_leaves_without_table"]
    np.testing.assert_array_equal(after.shap_values(X), before.shap_values(X))
    # Tables that a file lacks are laid out again.
    before.save(tmp_path / "file", tables=False)
    assert TreeExplainer.load(tmp_path / "file", device="cpu").model_info()["n_leaves_without_table"] == 0


@both_kinds
def test_small_files_without_tables(make: Any, forest: Any, tmp_path: Path) -> None:
    before = make(forest)
    before.save(tmp_path / "with")
    before.save(tmp_path / "without", tables=False)
    sizes = [(tmp_path / name).stat().st_size for name in ("with", "without")]
    assert sizes[0] - sizes[1] >= before.model_info()["table_bytes"]
    after = TreeExplainer.load(tmp_path / "without", device="cpu")
    assert after.model_info()["borrowed_bytes"] == 0
    np.testing.assert_array_equal(after.shap_values(X), before.shap_values(X))


def test_what_has_no_tables(forest: Any, tmp_path: Path) -> None:
    for options in ({"algorithm": "quadrature"}, {"algorithm": "treeshap"}, {}):
        explainer_of(forest, **options).save(tmp_path / "with")
        explainer_of(forest, **options).save(tmp_path / "without", tables=False)
        assert (tmp_path / "with").read_bytes() == (tmp_path / "without").read_bytes()


def test_other_values_of_a_loaded_explainer(forest: Any, tmp_path: Path) -> None:
    """Only the tables of SHAP values are stored."""
    before = fast_v2(forest)
    before.save(tmp_path / "file")
    after = TreeExplainer.load(tmp_path / "file", device="cpu")
    np.testing.assert_array_equal(after.explain(X, index="BV").values, before.explain(X, index="BV").values)


def test_another_process_without_the_library(tmp_path: Path) -> None:
    xgboost = pytest.importorskip("xgboost")
    model = xgboost.XGBRegressor(n_estimators=5, max_depth=6, n_jobs=1).fit(X, Y)
    for name, explainer in (
        ("path", explainer_of(model, algorithm="fast_v2", precision="double")),
        ("background", explainer_of(model, X[:50])),
    ):
        explainer.save(tmp_path / f"{name}.npz")
        np.save(tmp_path / f"{name}.npy", explainer.shap_values(X))
    np.save(tmp_path / "rows", X)
    code = """
import sys, numpy
from pathlib import Path
sys.modules["xgboost"] = None
from skshapgpu import TreeExplainer
folder = Path(sys.argv[1])
for name in ("path", "background"):
    explainer = TreeExplainer.load(folder / f"{name}.npz", device="cpu")
    assert explainer.model_info()["borrowed_bytes"] > 0
    values = explainer.shap_values(numpy.load(folder / "rows.npy"))
    assert (values == numpy.load(folder / f"{name}.npy")).all()
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)


def place_of(path: Path, array: np.ndarray) -> int:
    """Return the position of an array in a file."""
    return path.read_bytes().index(array.tobytes())


@pytest.mark.usefixtures("lazy")
@both_kinds
def test_large_tables_are_neither_filled_nor_read(make: Any, forest: Any, tmp_path: Path) -> None:
    path = tmp_path / "file"
    before = make(forest)
    before.save(path)
    expected, contents = before.shap_values(X), before._compiled.contents()
    tables = contents["floats" if "floats" in contents else "doubles"]
    data, place = bytearray(path.read_bytes()), place_of(path, tables)
    twice = (2 * tables).tobytes()
    data[place : place + len(twice)] = twice
    path.write_bytes(data)
    with pytest.raises(ValueError, match="does not match its checksum"):
        TreeExplainer.load(path, device="cpu", verify=True)
    unchecked = TreeExplainer.load(path, device="cpu", check_additivity=False)
    np.testing.assert_array_equal(unchecked.shap_values(X), 2 * expected)
    with pytest.raises(RuntimeError, match="additivity check failed"):
        TreeExplainer.load(path, device="cpu").shap_values(X)


def test_small_tables_are_compared(forest: Any, tmp_path: Path) -> None:
    path = tmp_path / "file"
    fast_v2(forest).save(path)
    data = bytearray(path.read_bytes())
    data[place_of(path, fast_v2(forest)._compiled.contents()["floats"]) + 100] ^= 1
    path.write_bytes(data)
    with pytest.raises(ValueError, match="'tables_floats' does not match its checksum"):
        TreeExplainer.load(path, device="cpu")


@pytest.mark.usefixtures("lazy")
def test_the_place_of_large_arrays_is_checked(tmp_path: Path) -> None:
    """Flip each bit of the ZIP and NumPy headers in front of the array."""
    large = np.arange(1000, dtype=np.float32)
    storage.write(tmp_path / "file", {}, {"large": large})
    whole = (tmp_path / "file").read_bytes()
    place, n_errors = place_of(tmp_path / "file", large), 0
    for byte in range(place - 256, place):
        for bit in range(8):
            data = bytearray(whole)
            data[byte] ^= 1 << bit
            (tmp_path / "file").write_bytes(data)
            try:
                _, arrays = storage.read(tmp_path / "file", ["large"])
            except ValueError:
                n_errors += 1
            else:
                np.testing.assert_array_equal(arrays["large"], large)
    assert n_errors > 300


@both_kinds
def test_tables_of_another_version(make: Any, forest: Any, tmp_path: Path) -> None:
    make(forest).save(tmp_path / "file")
    header, arrays = storage.read(tmp_path / "file")
    layout = arrays["tables_layout"] + np.array([1, 0, 0], np.uint64)
    storage.write(tmp_path / "file", header, arrays | {"tables_layout": layout})
    with pytest.raises(ValueError, match="cannot be loaded: the stored tables have another layout") as error:
        TreeExplainer.load(tmp_path / "file", device="cpu")
    assert str(tmp_path / "file") in str(error.value)


def test_tables_that_are_none_of_the_model(forest: Any, tmp_path: Path) -> None:
    explainer_of(forest, algorithm="quadrature").save(tmp_path / "file")
    header, arrays = storage.read(tmp_path / "file")
    for extra, message in (
        ({"layout": np.zeros(3, np.uint64)}, "a plan without tables takes none"),
        ({"floats": np.zeros(9, np.float32)}, "have no layout"),
    ):
        tables = {f"tables_{name}": array for name, array in extra.items()}
        storage.write(tmp_path / "other", header, arrays | tables)
        with pytest.raises(ValueError, match=message):
            TreeExplainer.load(tmp_path / "other", device="cpu")


@all_kinds
def test_random_corruptions(make: Any, forest: Any, tmp_path: Path) -> None:
    explainer, damaged = make(forest), tmp_path / "damaged"
    explainer.save(damaged)
    whole, expected = damaged.read_bytes(), explainer.shap_values(X[:5])
    rng = np.random.default_rng(0)
    n_errors = 0
    for i in range(300):
        damaged.write_bytes(corrupt(rng, whole, i % 4))
        try:
            result = TreeExplainer.load(damaged, device="cpu")
        except ValueError as error:
            assert str(damaged) in str(error)
            n_errors += 1
        else:
            np.testing.assert_array_equal(result.shap_values(X[:5]), expected)
    assert n_errors > 150


@pytest.mark.usefixtures("lazy")
@all_kinds
def test_random_corruptions_of_large_tables(make: Any, forest: Any, tmp_path: Path) -> None:
    """Without the additivity check values may be wrong, but loading and explaining never crash."""
    explainer, damaged = make(forest), tmp_path / "damaged"
    explainer.save(damaged)
    whole = damaged.read_bytes()
    rng = np.random.default_rng(1)
    for i in range(200):
        damaged.write_bytes(corrupt(rng, whole, i % 4))
        try:
            result = TreeExplainer.load(damaged, device="cpu", check_additivity=False)
        except ValueError as error:
            assert str(damaged) in str(error)
        else:
            with np.errstate(all="ignore"):
                assert result.shap_values(X[:5]).shape == (5, 10)


def test_files_have_the_usual_permissions(forest: Any, tmp_path: Path) -> None:
    """Other users may load an explainer file."""
    fast_v2(forest).save(tmp_path / "file")
    (tmp_path / "usual").touch()
    assert os.stat(tmp_path / "file").st_mode == os.stat(tmp_path / "usual").st_mode
