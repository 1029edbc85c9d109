"""compare_explanations of files: the same results as for explanations, in bounded memory."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

from skshapgpu import compare_explanations, explain, explain_batches
from skshapgpu._drift import comparing

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("pandas")

X, SPECIES = load_iris(return_X_y=True, as_frame=True)
CURRENT = X[50:].assign(**{"petal width (cm)": X["petal width (cm)"][50:] * 0.8})
MEASURES = ("reference_importance", "current_importance", "psi", "wasserstein", "ndcg", "current_rank")


@pytest.fixture(scope="module")
def forest() -> Any:
    return RandomForestRegressor(5, max_depth=4, random_state=0).fit(X, SPECIES)


@pytest.fixture
def reference(forest: Any, tmp_path: Path) -> Path:
    explain_batches(forest, X, tmp_path / "reference.parquet")
    return tmp_path / "reference.parquet"


def assert_same(one: Any, other: Any, **tolerance: float) -> None:
    for name in MEASURES:
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), err_msg=name, **tolerance)


@pytest.mark.parametrize("sink", ["a.parquet", "a.arrow", "parts", "arrow parts"])
def test_files_and_explanations_give_the_same(
    forest: Any, reference: Path, sink: str, tmp_path: Path
) -> None:
    options = {"format": "arrow"} if sink.startswith("arrow") else {}
    path = tmp_path / sink
    explain_batches(forest, CURRENT, path, batch_size=30, keep=["sepal width (cm)"], prefix="v_", **options)
    expected = compare_explanations(explain(forest, X), explain(forest, CURRENT))
    assert expected.psi.max() > 0.5
    assert_same(compare_explanations(reference, str(path)), expected)
    assert_same(compare_explanations(explain(forest, X), path), expected)
    if path.is_dir():
        assert_same(compare_explanations(reference, sorted(path.iterdir())[1:]), expected)


def test_all_features_are_kept_beside_their_values(forest: Any, reference: Path, tmp_path: Path) -> None:
    """The columns of values are the last columns, not the columns named like the features."""
    explain_batches(forest, CURRENT, tmp_path / "a.parquet", keep=list(X), prefix="shap_")
    expected = compare_explanations(explain(forest, X), explain(forest, CURRENT))
    assert_same(compare_explanations(reference, tmp_path / "a.parquet"), expected)


def test_features_and_outputs_in_another_order(tmp_path: Path) -> None:
    """The columns have single precision; the model was trained on other columns and fewer rows."""
    model = RandomForestClassifier(5, random_state=0).fit(X, SPECIES)
    other = RandomForestClassifier(5, random_state=0).fit(X.iloc[:, ::-1], SPECIES)
    explain_batches(model, X, tmp_path / "a.parquet")
    rows = CURRENT.iloc[:, ::-1]
    explain_batches(other, rows, tmp_path / "b.parquet", dtype="float32")
    comparison = compare_explanations(tmp_path / "a.parquet", tmp_path / "b.parquet")
    assert comparison.feature_names == tuple(X) and comparison.output_names == (0, 1, 2)
    expected = compare_explanations(explain(model, X), explain(other, rows))
    assert_same(comparison, expected, rtol=1e-5, atol=1e-7)


def test_weights_in_a_column(forest: Any, tmp_path: Path) -> None:
    weights = np.arange(100) % 4
    explain_batches(forest, CURRENT.assign(w=weights), tmp_path / "a.parquet", keep=["w"])
    expected = compare_explanations(explain(forest, X), explain(forest, CURRENT), current_weight=weights)
    comparison = compare_explanations(explain(forest, X), tmp_path / "a.parquet", current_weight="w")
    assert_same(comparison, expected)
    for name, message in (
        ("v", "there is no column 'v' in .*: name it in keep="),
        (X.columns[0], "there is no column .* in .*: name it in keep="),  # these are values
        (weights, "the name of a"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            compare_explanations(explain(forest, X), tmp_path / "a.parquet", current_weight=name)


@pytest.mark.parametrize(
    "column, message",
    [
        (["x"] * 100, "current_weight: column 'w' is .*string, not numbers"),
        ([1.0, None] * 50, "current_weight must be finite and not negative, without missing"),
        ([-1] * 100, "must be finite and not negative, without missing"),
    ],
)
def test_wrong_weights_in_a_column(forest: Any, column: Any, message: str, tmp_path: Path) -> None:
    explain_batches(forest, CURRENT.assign(w=column), tmp_path / "a.parquet", keep=["w"])
    with pytest.raises(ValueError, match=message):
        compare_explanations(explain(forest, X), tmp_path / "a.parquet", current_weight="w")


def rewritten(path: Path, change: Any) -> Path:
    """Write a file again after a change to its table."""
    pq.write_table(change(pq.read_table(path)), path)
    return path


def test_nulls_are_left_out(forest: Any, reference: Path) -> None:
    def change(table: Any) -> Any:
        values = table.column(2).to_pylist()
        schema = pa.schema([field.with_nullable(True) for field in table.schema], table.schema.metadata)
        columns = [*table.columns]
        columns[2] = pa.chunked_array([pa.array([None, None, *values[2:]])])
        return pa.Table.from_arrays(columns, schema=schema)

    values = explain(forest, X).values[2:, 2]
    comparison = compare_explanations(rewritten(reference, change), explain(forest, X))
    assert comparison.reference_importance[2] == pytest.approx(np.abs(values).mean())


def test_an_unfinished_output_is_refused(forest: Any, tmp_path: Path) -> None:
    def stop(n_done: int, n_rows: Any) -> None:
        if n_done > 60:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        explain_batches(forest, X, tmp_path / "parts", batch_size=30, progress=stop)
    message = "current: .*parts' is an unfinished output of explain_batches: repeat that call"
    with pytest.raises(ValueError, match=message):
        compare_explanations(explain(forest, X), tmp_path / "parts")
    explain_batches(forest, X, tmp_path / "parts", batch_size=30)
    assert not compare_explanations(explain(forest, X), tmp_path / "parts").psi.any()
    (tmp_path / "parts" / "part-000002.parquet").unlink()
    with pytest.raises(ValueError, match=message):
        compare_explanations(explain(forest, X), tmp_path / "parts")


def test_files_that_are_refused(forest: Any, reference: Path, tmp_path: Path) -> None:
    explain_batches(forest, X, tmp_path / "top.parquet", reasons=2)
    explain_batches(forest, X, tmp_path / "sign.parquet", reasons=4, by_sign=True)
    explain_batches(forest, X, tmp_path / "pairs.parquet", interactions="occurring")
    explain_batches(forest, X, tmp_path / "banzhaf.parquet", index="BV")
    explain_batches(forest, X, tmp_path / "values.npy")
    explain_batches(forest, X[:0], tmp_path / "none.parquet")
    explain_batches(forest, X, tmp_path / "background.parquet", data=X[::5])
    X.to_parquet(tmp_path / "rows.parquet")
    X.to_csv(tmp_path / "rows.csv")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 and no more")
    (tmp_path / "folder").mkdir()
    for name, message in (
        ("top.parquet", "an output of reasons= holds only the strongest values of each row"),
        ("sign.parquet", "an output of reasons= holds only the strongest values of each row"),
        ("pairs.parquet", "has Shapley interactions; values of features are compared, not interactions"),
        ("banzhaf.parquet", "index='SV', but current 'BV'"),
        ("values.npy", "is no Parquet or Arrow output of explain_batches"),
        ("none.parquet", "current has no rows"),
        ("background.parquet", "feature_perturbation='tree_path_dependent', but current 'interventional'"),
        ("rows.parquet", "was not written by explain_batches, or its metadata was lost"),
        ("rows.csv", "is no Parquet or Arrow output"),
        ("broken.parquet", "cannot be read"),
        ("nothing.parquet", "there is no file"),
        ("folder", "there are no files"),
    ):
        with pytest.raises(ValueError, match=message):
            compare_explanations(reference, tmp_path / name)


def test_files_of_several_calls(forest: Any, reference: Path, tmp_path: Path) -> None:
    explain_batches(forest, CURRENT, tmp_path / "b.parquet")
    both = [reference, tmp_path / "b.parquet"]
    comparison = compare_explanations(both, both)
    assert comparison.n_reference == 250 and not comparison.psi.any()
    explain_batches(forest, CURRENT, tmp_path / "c.parquet", data=X[::5])
    with pytest.raises(ValueError, match=r"c\.parquet' has values of another kind, or other columns, than"):
        compare_explanations([reference, tmp_path / "c.parquet"], reference)


def test_metadata_that_is_damaged(reference: Path) -> None:
    for about in (b"{", b"[]", json.dumps({"index": "SV"}).encode()):
        rewritten(reference, lambda table, about=about: table.replace_schema_metadata({b"skshapgpu": about}))
        with pytest.raises(ValueError, match="was not written by explain_batches, or its metadata was lost"):
            compare_explanations(reference, reference)


@pytest.mark.parametrize("change", [{"feature_names": []}, {"output_names": []}, None])
def test_metadata_without_names(change: dict[str, Any] | None, reference: Path) -> None:
    table = pq.read_table(reference)
    recorded = json.loads(table.schema.metadata[b"skshapgpu"])
    content = b"[" * 100_000 if change is None else json.dumps(recorded | change).encode()
    pq.write_table(table.replace_schema_metadata({b"skshapgpu": content}), reference)
    with pytest.raises(ValueError, match="was not written by explain_batches, or its metadata was lost"):
        compare_explanations(reference, reference)


def test_memory_does_not_grow_with_the_rows(
    forest: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparing, "_VALUES_IN_MEMORY", 2**15)
    monkeypatch.setattr("skshapgpu._drift.samples._BATCH_VALUES", 2**13)
    rng = np.random.default_rng(0)
    n_rows = 200_000
    rows = pa.table({name: np.round(rng.normal(4, 2, n_rows), 3) for name in X})
    explain_batches(forest, rows, tmp_path / "a", batch_size=50_000)
    explain_batches(forest, X, tmp_path / "b.parquet")
    tracemalloc.start()
    before = pa.total_allocated_bytes()
    comparison = compare_explanations(tmp_path / "a", tmp_path / "b.parquet")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 6e6 < n_rows * 4 * 8 and pa.total_allocated_bytes() - before < 1e6
    monkeypatch.undo()
    assert_same(comparison, compare_explanations(tmp_path / "a", tmp_path / "b.parquet"), rtol=1e-9)
