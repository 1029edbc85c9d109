"""keep= of levels of the index of pandas: in data frames, iterators of them, and files that pandas wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skshapgpu import TreeExplainer, explain_batches
from skshapgpu.batches import BatchExplainer

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")
pq = pytest.importorskip("pyarrow.parquet")
feather = pytest.importorskip("pyarrow.feather")

RNG = np.random.default_rng(0)
X = pd.DataFrame(RNG.normal(size=(120, 3)), columns=["a", "b", "c"])
Y = X["a"] * X["b"] + X["c"]
MODEL = HistGradientBoostingRegressor(max_iter=8, min_samples_leaf=4).fit(X, Y)
NAMELESS = HistGradientBoostingRegressor(max_iter=8, min_samples_leaf=4).fit(X.to_numpy(), Y)
PIPELINE = make_pipeline(StandardScaler(), HistGradientBoostingRegressor(max_iter=3)).fit(X, Y)
VALUES = TreeExplainer(MODEL).shap_values(X)

INDICES = {
    "numbers": pd.Index(np.arange(120)[::-1] * 7, name="patient"),
    "texts": pd.Index([f"p{i}" for i in range(120)], name="patient"),
    "dates": pd.date_range("2026-01-01", periods=120, name="patient"),
    "categories": pd.CategoricalIndex(list("xyz") * 40, name="patient"),
    "missing": pd.Index(["p", None] * 60, name="patient"),
    "range": pd.RangeIndex(5, 365, 3, name="patient"),
}


def check(path: Path, kept: list[str], frame: Any) -> None:
    table = pq.read_table(path)
    assert table.column_names == [*kept, "a", "b", "c"]
    np.testing.assert_array_equal(np.column_stack(table.columns[len(kept) :]), VALUES)
    for name in kept:
        level = frame.index.get_level_values(name) if name in frame.index.names else frame[name]
        want = pd.Series(level).astype(object)
        got = table.column(name).to_pandas().astype(object)
        assert got.where(got.notna(), None).tolist() == want.where(want.notna(), None).tolist()


@pytest.mark.parametrize("model", [MODEL, NAMELESS], ids=["names", "no names"])
@pytest.mark.parametrize("name", INDICES)
@pytest.mark.parametrize("form", ["frame", "iterator", "parquet", "files"])
def test_levels_are_kept(form: str, name: str, model: Any, tmp_path: Path) -> None:
    frame = X.set_axis(INDICES[name])
    source: Any = frame
    if form == "iterator":
        source = iter([frame[:50], frame[50:]])
    elif form == "parquet":
        source = tmp_path / "rows.parquet"
        frame.to_parquet(source, row_group_size=17)
    elif form == "files":
        source = [tmp_path / "0.parquet", tmp_path / "1.parquet"]
        for path, part in zip(source, (frame[:50], frame[50:])):
            part.to_parquet(path)
    result = explain_batches(model, source, tmp_path / "out.parquet", keep=["patient"], batch_size=32)
    check(result.path, ["patient"], frame)


@pytest.mark.parametrize("form", ["frame", "parquet"])
def test_a_multiindex(form: str, tmp_path: Path) -> None:
    index = pd.MultiIndex.from_arrays([np.arange(120) // 10, list("xy") * 60], names=["clinic", "arm"])
    frame: Any = X.assign(note="n").set_axis(index)
    source = frame
    if form == "parquet":
        source = tmp_path / "rows.parquet"
        frame.to_parquet(source)
    explain_batches(MODEL, source, tmp_path / "out.parquet", keep=["arm", "note", "clinic"])
    check(tmp_path / "out.parquet", ["arm", "note", "clinic"], frame)


def test_a_range_resumes_and_may_differ_from_file_to_file(tmp_path: Path) -> None:
    """One file has a range, whose labels are only in its metadata; the next has a column of labels."""
    frame = X.set_axis(INDICES["range"])
    parts = [frame[:50], frame[50:80].iloc[::-1], frame[80:]]
    paths = [tmp_path / f"{i}.parquet" for i in range(3)]
    for path, part in zip(paths, parts):
        part.to_parquet(path, row_group_size=7)
    kinds = [pq.read_schema(path).names[-1] for path in paths]
    assert kinds == ["c", "c", "c"]  # pandas stores a reversed range as one, too
    frame[50:80].sample(frac=1, random_state=0).to_parquet(paths[1])
    assert pq.read_schema(paths[1]).names[-1] == "patient"
    all_rows = pd.concat([parts[0], pd.read_parquet(paths[1]), parts[2]])
    want = TreeExplainer(MODEL).shap_values(all_rows)

    def stop(done: int, n_rows: int | None) -> None:
        if done >= 64:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        explain_batches(MODEL, paths, tmp_path / "out", keep=["patient"], batch_size=16, progress=stop)
    result = explain_batches(MODEL, paths, tmp_path / "out", keep=["patient"], batch_size=16)
    assert result.n_resumed >= 64
    table = pa.concat_tables([pq.read_table(path) for path in result.paths])
    assert table.column("patient").to_pylist() == all_rows.index.tolist()
    np.testing.assert_array_equal(np.column_stack(table.columns[1:]), want)


def test_the_index_is_no_feature(tmp_path: Path) -> None:
    frame = X.set_axis(INDICES["numbers"])
    frame.to_parquet(tmp_path / "rows.parquet")
    for source in (frame, tmp_path / "rows.parquet"):  # without keep=, too, though nothing names the features
        result = explain_batches(NAMELESS, source, tmp_path / "out.npy", if_exists="overwrite")
        np.testing.assert_array_equal(np.load(result.path), VALUES)
    of_index = X.rename(columns={"c": "patient"})
    model = HistGradientBoostingRegressor(max_iter=3).fit(of_index, Y)
    indexed = of_index.set_index("patient")
    for arguments in ({}, {"features": ["a", "b", "patient"]}):
        with pytest.raises(
            ValueError, match=r"feature 'patient' is a level of the index, not a column: use X"
        ):
            explain_batches(model, indexed, tmp_path / "out2", keep=["patient"], **arguments)
    batch = pa.RecordBatch.from_pandas(frame)
    assert BatchExplainer(NAMELESS).input_names(batch.schema) == ("a", "b", "c")
    assert BatchExplainer(NAMELESS, keep=["patient"])(batch).column_names[0] == "patient"


def test_what_is_refused(tmp_path: Path) -> None:
    both = X.assign(patient=1).set_axis(INDICES["range"])
    with pytest.raises(ValueError, match="the data frame has a column 'patient' and a level of the index"):
        explain_batches(MODEL, both, tmp_path / "out", keep=["patient"])
    with pytest.raises(ValueError, match="the first item has a column 'patient' and a level of the index"):
        explain_batches(MODEL, iter([both]), tmp_path / "out", keep=["patient"])
    both.to_parquet(tmp_path / "rows.parquet")
    with pytest.raises(ValueError, match=r"rows\.parquet' has a column 'patient' and a level of the index"):
        explain_batches(MODEL, tmp_path / "rows.parquet", tmp_path / "out", keep=["patient"])
    with pytest.raises(ValueError, match=r"no column 'patient'.*name it by X\.index\.name = 'patient'"):
        explain_batches(MODEL, X, tmp_path / "out", keep=["patient"])
    named = X.set_axis(INDICES["texts"])
    with pytest.raises(ValueError, match="there is no column 'patients'"):
        explain_batches(MODEL, named, tmp_path / "out", keep=["patients"])
    twice = X.set_axis(pd.MultiIndex.from_arrays([range(120), range(120)], names=["p", "p"]))
    with pytest.raises(ValueError, match="several levels 'p': rename them"):
        explain_batches(MODEL, twice, tmp_path / "out", keep=["p"])
    with pytest.raises(ValueError, match=r"item 1 of the source.*no column 'patient'|no column 'patient'"):
        explain_batches(MODEL, iter([named[:9], X[9:]]), tmp_path / "out", keep=["patient"])


@pytest.mark.parametrize(
    "change",
    [{"start": 0.5}, {"start": 10**30}, {"start": None}, {"start": True}, {"step": 0}, {"stop": 126}],
)
@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_ranges_that_are_none(form: str, change: dict[str, Any], tmp_path: Path) -> None:
    level = {"kind": "range", "name": "patient", "start": 7, "stop": 127, "step": 1}
    for wrong in (level | change, {key: value for key, value in level.items() if key not in change}):
        metadata = {b"pandas": json.dumps({"index_columns": [wrong], "columns": []}).encode()}
        table = pa.Table.from_pandas(X, preserve_index=False).replace_schema_metadata(metadata)
        path = tmp_path / f"rows.{form}"
        (pq.write_table if form == "parquet" else feather.write_feather)(table, path)
        with pytest.raises(
            ValueError, match=r"rows.* say that the level 'patient' .*: store the labels in a"
        ):
            explain_batches(MODEL, path, tmp_path / "out.parquet", keep=["patient"])


def test_rows_that_were_filtered_have_lost_their_range(tmp_path: Path) -> None:
    """pyarrow keeps the metadata: labels that are counted from the first one would be those of other rows."""
    table = pa.Table.from_pandas(X.set_axis(INDICES["range"]))
    path = tmp_path / "rows.parquet"
    pq.write_table(table, path)
    explain_batches(MODEL, path, tmp_path / "out.parquet", keep=["patient"])
    kept = pq.read_table(tmp_path / "out.parquet").column("patient").to_pylist()
    assert kept == INDICES["range"].tolist()
    pq.write_table(table.filter(np.arange(120) % 3 > 0), path)
    with pytest.raises(
        ValueError, match="has no label for each of the 80 rows: store the labels in a column"
    ):
        explain_batches(MODEL, path, tmp_path / "other.parquet", keep=["patient"])
    assert explain_batches(MODEL, path, tmp_path / "other.parquet").n_rows == 80


def test_metadata_that_no_json_reader_takes(tmp_path: Path) -> None:
    """The metadata come with the rows, perhaps from a stranger. Without them, the rows are the same."""
    for metadata in (
        b"[" * 100_000,
        b"\xff",
        b"null",
        b'{"columns": [{"field_name": "a", "numpy_type": "x"}]}',
    ):
        table = pa.Table.from_pandas(X, preserve_index=False).replace_schema_metadata({b"pandas": metadata})
        path, out = tmp_path / "rows.parquet", tmp_path / "out.npy"
        pq.write_table(table, path)
        for model in (MODEL, PIPELINE):
            for source in (path, table):
                explain_batches(model, source, out, if_exists="overwrite")
                np.testing.assert_array_equal(np.load(out), TreeExplainer(model).shap_values(X))
            values = BatchExplainer(model)(table.to_batches()[0])
            np.testing.assert_array_equal(np.column_stack(values.columns), np.load(out))
