"""explain_batches: sources, sinks, errors, memory, threads."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from helpers.batches import ALONE, ARRAY, KEPT, ROWS, TABLE, check, content, files
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_diabetes, load_iris
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import skshapgpu
from skshapgpu import TreeExplainer, explain_batches
from skshapgpu.batches import encoding as encoding_module
from skshapgpu.batches import sources as sources_module

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")
pq = pytest.importorskip("pyarrow.parquet")

IRIS, SPECIES = load_iris(return_X_y=True, as_frame=True)


SOURCES: dict[str, Callable[[Path], Any]] = {
    **{
        kind: lambda folder, kind=kind: files(folder, kind)
        for kind in ("parquet", "arrow", "csv", "tsv.gz", "folder", "list", "dataset")
    },
    "table": lambda folder: TABLE,
    "reader": lambda folder: TABLE.to_reader(max_chunksize=19),
    "pandas": lambda folder: ROWS,
    "frames": lambda folder: (ROWS.iloc[i : i + 41] for i in range(0, 150, 41)),
    "batches": lambda folder: TABLE.to_batches(max_chunksize=64),
    "tables": lambda folder: iter([TABLE.slice(0, 0), TABLE.slice(0, 149), TABLE.slice(149)]),
}


def npy(folder: Path, array: np.ndarray) -> Path:
    folder.mkdir(exist_ok=True)
    np.save(folder / "rows.npy", array)
    return folder / "rows.npy"


ARRAYS: dict[str, Callable[[Path], Any]] = {
    "array": lambda folder: ARRAY,
    "npy": lambda folder: npy(folder, ARRAY),
    "npy-fortran": lambda folder: npy(folder, np.asfortranarray(ARRAY)),
    "npy-large": lambda folder: npy(folder, ARRAY),
    "memmap": lambda folder: np.load(npy(folder, ARRAY), mmap_mode="r"),
    "csr": lambda folder: sp.csr_matrix(ARRAY),
    "csc": lambda folder: sp.csc_array(ARRAY),
    "arrays": lambda folder: (ARRAY[i : i + 41] for i in range(0, 150, 41)),
    "matrices": lambda folder: iter([sp.csr_array(ARRAY[:77]), sp.csr_array(ARRAY[77:])]),
}
SINKS = ("out", "out/", "out.parquet", "out.arrow", "out.npy")


@pytest.mark.parametrize("kind", SOURCES)
def test_sources_with_names(kind: str, tmp_path: Path, explainer: Any, values: np.ndarray) -> None:
    result = explain_batches(
        explainer, SOURCES[kind](tmp_path / "in"), tmp_path / "out", keep=KEPT, batch_size=32
    )
    assert [pq.read_metadata(path).num_rows for path in result.paths] == [32, 32, 32, 32, 22]
    assert (result.n_rows, result.n_resumed, result.batch_rows) == (150, 0, 32)
    assert result.feature_names == tuple(IRIS.columns) and result.output_names == (0, 1, 2)
    assert result.rows_per_second > 0
    check(tmp_path / "out", values)
    again = explain_batches(
        explainer, SOURCES[kind](tmp_path / "in2"), tmp_path / "o2", keep=KEPT, batch_size=150
    )
    check(again.path, values)


@pytest.mark.parametrize("kind", ARRAYS)
@pytest.mark.parametrize("sink", ["out", "out.npy"])
def test_sources_without_names(
    kind: str, sink: str, tmp_path: Path, explainer: Any, values: np.ndarray
) -> None:
    result = explain_batches(explainer, ARRAYS[kind](tmp_path / "in"), tmp_path / sink, batch_size=32)
    assert result.n_rows == 150
    check(result.path, values, [])


@pytest.mark.parametrize("sink", SINKS)
def test_sinks(sink: str, tmp_path: Path, explainer: Any, values: np.ndarray) -> None:
    source = files(tmp_path / "in", "parquet")
    kept_columns = [] if sink.endswith("npy") else KEPT
    result = explain_batches(explainer, source, f"{tmp_path}/{sink}", keep=kept_columns, batch_size=32)
    check(result.path, values, kept_columns)
    again = explain_batches(explainer, source, f"{tmp_path}/{sink}", keep=kept_columns)
    assert (again.n_rows, again.n_resumed, again.batch_rows) == (150, 150, 32)
    assert again.paths == result.paths
    if sink.endswith("arrow"):  # the beginning and the end of the file, once each
        assert result.path.read_bytes().count(b"ARROW1") == 2
    hidden = {path.name for path in tmp_path.rglob(".*skshapgpu/*")}
    assert hidden == {"journal.json", "lock"} | ({"checksums"} if result.path.is_dir() else set())


def test_a_folder_of_arrow_files(tmp_path: Path, explainer: Any, values: np.ndarray) -> None:
    result = explain_batches(explainer, TABLE, tmp_path / "out", keep=KEPT, batch_size=100, format="arrow")
    assert [path.name for path in result.paths] == ["part-000000.arrow", "part-000001.arrow"]
    check(result.path, values)


@pytest.mark.parametrize("n_rows", [0, 1, 32, 33])
@pytest.mark.parametrize("sink", SINKS)
def test_few_rows(n_rows: int, sink: str, tmp_path: Path, explainer: Any, values: np.ndarray) -> None:
    for source in (TABLE.slice(0, n_rows), ARRAY[:n_rows], npy(tmp_path / "in", ARRAY[:n_rows])):
        result = explain_batches(
            explainer, source, f"{tmp_path}/{sink}", batch_size=32, if_exists="overwrite"
        )
        assert result.n_rows == n_rows
        check(result.path, values[:n_rows], [])
        assert explain_batches(explainer, source, f"{tmp_path}/{sink}", batch_size=32).n_resumed == n_rows


def test_one_output_float32_interactions_and_top(tmp_path: Path) -> None:
    X, y = load_diabetes(return_X_y=True)
    X = X.astype(np.float32)
    model = RandomForestRegressor(3, max_depth=4, random_state=0).fit(X, y)
    want = TreeExplainer(model).shap_values(X)
    assert want.dtype == np.float32
    check(explain_batches(model, X, tmp_path / "a.npy", batch_size=99).path, want)
    check(explain_batches(model, X, tmp_path / "b.npy", dtype="float64").path, want.astype(float))
    pairs = TreeExplainer(model).explain_interactions(X, interactions="occurring")
    check(
        explain_batches(model, X, tmp_path / "c.npy", interactions="occurring", batch_size=99).path,
        pairs.values,
    )
    table = content(explain_batches(model, X, tmp_path / "d.parquet", reasons=2, batch_size=99).path)
    assert table.column_names == ["feature_1", "value_1", "shap_1", "feature_2", "value_2", "shap_2"]
    np.testing.assert_array_equal(np.abs(table.column("shap_1")), np.abs(want).max(axis=1))


def test_a_pipeline_and_nulls(tmp_path: Path) -> None:
    frame = IRIS.assign(color=np.where(np.arange(150) % 2, "red", "blue")).iloc[::-1]
    frame.iloc[::7, 1] = np.nan
    steps = make_column_transformer((OneHotEncoder(), ["color"]), remainder="passthrough")
    model = make_pipeline(steps, RandomForestClassifier(3, max_depth=4, random_state=0)).fit(frame, SPECIES)
    frame.to_parquet(tmp_path / "rows.parquet", index=False, row_group_size=20)
    want = TreeExplainer(model).explain(frame)
    result = explain_batches(model, tmp_path / "rows.parquet", tmp_path / "out.parquet", batch_size=32)
    check(result.path, want.values, [])
    assert content(result.path).column_names[0] == "onehotencoder__color_blue__0"
    assert result.feature_names == want.feature_names


def test_kept_columns_of_all_types(tmp_path: Path, explainer: Any) -> None:
    n = 150
    table = TABLE.append_column("when", pa.array(pd.date_range("2020", periods=n)))
    table = table.append_column("list", pa.array([[i] * (i % 3) for i in range(n)]))
    table = table.append_column("gaps", pa.array([None if i % 2 else i for i in range(n)]))
    # Another dictionary in each chunk.
    chunks = [pa.array([f"c{i // 50}", None] * 25).dictionary_encode() for i in (0, 50, 100)]
    table = table.append_column("kind", pa.chunked_array(chunks))
    kept_columns = ["when", "list", "gaps", "kind"]
    for sink in ("out", "out.parquet", "out.arrow"):
        result = content(
            explain_batches(explainer, table, tmp_path / sink, keep=kept_columns, batch_size=60).path
        )
        for name in kept_columns:
            assert result.column(name).to_pylist() == table.column(name).to_pylist()


def test_kept_categories_stay_categories(tmp_path: Path, explainer: Any) -> None:
    """Categories also agree in a single Arrow file, which has one dictionary for each column."""
    polars = pytest.importorskip("polars")
    names = np.array([f"c{i // 50}" for i in range(150)], object)
    many = [pa.array([f"{i}-{k}" for k in range(50)]).dictionary_encode() for i in range(3)]
    kinds = {
        "same": pa.array(names).dictionary_encode(),
        "other": pa.chunked_array([pa.array(names[i : i + 50]).dictionary_encode() for i in (100, 50, 0)]),
        "many": pa.chunked_array([part.cast(pa.dictionary(pa.int8(), pa.string())) for part in many]),
        "numbers": pa.array([None, 7, 3] * 50).dictionary_encode(),
        "ordered": pa.array(pd.Categorical(names, ["c2", "c0", "c1"], ordered=True)),
        "orders": pa.chunked_array(
            [
                pa.array(pd.Categorical(names[i : i + 75], list(order), ordered=True))
                for i, order in ((0, ["c0", "c1"]), (75, ["c2", "c1"]))
            ]
        ),
    }
    table = TABLE
    for name, column in kinds.items():
        table = table.append_column(name, column)
    for batch_size in (50, 1000):
        path = explain_batches(
            explainer, table, tmp_path / f"{batch_size}.arrow", keep=list(kinds), batch_size=batch_size
        ).path
        result = content(path)
        for name in kinds:
            assert result.column(name).to_pylist() == table.column(name).to_pylist()
        types = {name: result.schema.field(name).type for name in kinds}
        if batch_size == 50:
            assert types.pop("orders") == table.schema.field("orders").type.value_type  # no order of all
            assert all(str(kind).startswith("dictionary<values=") for kind in types.values())
            assert polars.read_ipc(path, columns=["other"])["other"].to_list() == table["other"].to_pylist()
            frame = pd.read_feather(path)
            assert frame["ordered"].dtype == pd.CategoricalDtype(["c2", "c0", "c1"], ordered=True)
    empty = explain_batches(explainer, table.slice(0, 0), tmp_path / "empty.arrow", keep=["same"]).path
    assert content(empty).schema.field("same").type == kinds["same"].type
    with pytest.raises(ValueError, match="cannot be combined"):  # so its codes must become wider
        table.select(["many"]).unify_dictionaries()


@pytest.mark.parametrize("sink", ["out.parquet", "out.npy", "out"])
def test_a_link_to_nothing_is_no_sink(sink: str, tmp_path: Path, explainer: Any) -> None:
    (tmp_path / sink).symlink_to(tmp_path / "gone")
    with pytest.raises(
        ValueError, match=rf"{sink}' is a link to '.*gone', and links are not replaced: pass the path"
    ):
        explain_batches(explainer, IRIS, tmp_path / sink)
    assert [path.name for path in tmp_path.iterdir()] == [sink]


def test_partitions_and_files_that_differ(tmp_path: Path, explainer: Any, values: np.ndarray) -> None:
    """Folder names define a column, and one file has different types and another order of columns."""
    for year, part in (
        (2020, TABLE.slice(0, 70)),
        (2021, TABLE.slice(70).select([*TABLE.column_names[::-1]])),
    ):
        (tmp_path / f"in/year={year}").mkdir(parents=True)
        if year == 2021:
            part = part.set_column(1, "id", part.column("id").cast(pa.int32()))
        pq.write_table(part, tmp_path / f"in/year={year}/rows.parquet")
    result = explain_batches(
        explainer, tmp_path / "in", tmp_path / "out", keep=["year", *KEPT], batch_size=32
    )
    table = content(result.path)
    assert table.column("year").to_pylist() == [2020] * 70 + [2021] * 80
    check_without_year = table.drop_columns(["year"])
    assert check_without_year.column("id").to_pylist() == TABLE.column("id").to_pylist()
    np.testing.assert_array_equal(np.column_stack(table.columns[3:]), values.reshape(150, -1))


def test_csv_whose_numbers_begin_whole(tmp_path: Path, explainer: Any) -> None:
    frame = pd.concat([ROWS.round(0).astype({name: int for name in IRIS}), ROWS] * 400, ignore_index=True)
    text = frame.astype({name: object for name in IRIS}).to_csv(index=False)
    (tmp_path / "rows.csv").write_text(text)
    result = explain_batches(explainer, tmp_path / "rows.csv", tmp_path / "out.npy")
    check(result.path, explainer.shap_values(pd.read_csv(tmp_path / "rows.csv")[IRIS.columns]))


def test_a_large_row_group_is_read_in_pieces(tmp_path: Path, explainer: Any) -> None:
    pq.write_table(pa.concat_tables([TABLE] * 1000), tmp_path / "rows.parquet", row_group_size=10**6)
    source = sources_module.open_source(tmp_path / "rows.parquet")
    sizes = [piece.num_rows for piece in source.read(list(IRIS), 1001, 4096)]
    assert sum(sizes) == 150_000 - 1001 and set(sizes[:-1]) == {4096}


# Errors, threads, progress


def test_what_fails_ends_everything(tmp_path: Path, explainer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any failing part raises its error; earlier batches are kept, and no thread is left running."""

    def bad(wrong: Any) -> Iterator[Any]:
        yield from (ARRAY[:50], ARRAY[50:100])
        yield wrong

    wrong = ARRAY[:40].copy()
    wrong[7, 2] = np.inf
    for item, error, message in (
        (
            wrong,
            ValueError,
            "in rows 100 to 139 of the source, counted from row 100: .*infinity.*row 7, column",
        ),
        (ARRAY[:, :3], ValueError, "item 2 of the source has 3 columns of float64, but the first item has 4"),
        (sp.csr_array(ARRAY), ValueError, "mixes arrays and sparse matrices: item 2"),
    ):
        with pytest.raises(error, match=message):
            explain_batches(explainer, bad(item), tmp_path / "out", batch_size=50, if_exists="overwrite")
        assert len(list((tmp_path / "out").glob("part-*"))) == 2
    frames = iter([ROWS[:50], ROWS[50:].rename(columns={IRIS.columns[0]: "x"})])
    with pytest.raises(ValueError, match="item 1 of the source does not have the columns of the first"):
        explain_batches(explainer, frames, tmp_path / "out", batch_size=50, if_exists="overwrite")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(encoding_module, "write", full)
        with pytest.raises(OSError, match="No space left"):
            explain_batches(explainer, TABLE, tmp_path / "out", batch_size=10, if_exists="overwrite")

    def interrupt(done: int, n_rows: int | None) -> None:
        if done >= 60:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        explain_batches(explainer, TABLE, tmp_path / "out2", batch_size=10, progress=interrupt)
    assert explain_batches(explainer, TABLE, tmp_path / "out2").n_resumed >= 60
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("skshapgpu")]


def test_progress(tmp_path: Path, explainer: Any, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tqdm")
    told: list[tuple[int, int | None]] = []

    def report(done: int, n_rows: int | None) -> None:
        told.append((done, n_rows))

    explain_batches(explainer, TABLE, tmp_path / "a", batch_size=50, progress=report)
    assert told[-1] == (150, 150) and told == sorted(set(told))
    del told[:]
    explain_batches(explainer, iter([ARRAY]), tmp_path / "b", batch_size=50, progress=report)
    assert told[-1] == (150, None)
    for i, source in enumerate((TABLE, iter([ARRAY]))):
        explain_batches(explainer, source, tmp_path / f"bar{i}", batch_size=50, progress=True)
        assert "rows/s" in capsys.readouterr().err
    for i, wrong in enumerate(("yes", 1.5)):
        with pytest.raises(TypeError, match="progress"):
            explain_batches(explainer, TABLE, tmp_path / f"wrong{i}", progress=wrong)


def test_rich_shows_the_speed(monkeypatch: Any, tmp_path: Path, explainer: Any, capsys: Any) -> None:
    pytest.importorskip("rich")
    monkeypatch.setattr(skshapgpu._common.progress, "_bar_library", lambda: "rich")
    for i, source in enumerate((TABLE, iter([ARRAY]))):
        explain_batches(explainer, source, tmp_path / f"bar{i}", batch_size=50, progress=True)
        assert "rows/s" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"batch_size": 0}, ValueError, "batch_size must be at least 1"),
        ({"batch_size": "big"}, TypeError, "batch_size must be an int or 'auto', not 'big'"),
        ({"batch_size": 1.5}, TypeError, "batch_size must be an int or 'auto'"),
        ({"sink": 5}, TypeError, "sink must be a path"),
        ({"sink": "out.txt"}, ValueError, "has none of the extensions of output files"),
        ({"sink": "nowhere/out.parquet"}, ValueError, "there is no folder"),
        ({"sink": "out.parquet", "format": "arrow"}, ValueError, "is a file of parquet"),
        ({"sink": "out", "format": "npy"}, ValueError, "for a NumPy or CSV file, give sink="),
        ({"sink": "out.npy", "keep": ["id"]}, ValueError, "holds only values"),
        ({"sink": "out.npy", "reasons": 2}, ValueError, "holds only values"),
        ({"format": "csv"}, ValueError, "format"),
        ({"source": ARRAY, "keep": ["id"]}, ValueError, "arrays, without names"),
        ({"source": ARRAY[0]}, ValueError, "Expected 2D array"),
        ({"source": 5}, TypeError, "source must be a path"),
        ({"source": []}, ValueError, "iterator without items"),
        ({"source": iter(["a.parquet"])}, TypeError, "pass a list of them"),
        ({"source": "nowhere.parquet"}, ValueError, "there is no file 'nowhere.parquet'"),
        ({"source": "."}, ValueError, "there are no files"),
        ({"keep": ["nope"]}, ValueError, "no column 'nope'"),
        ({"index": "SII"}, ValueError, "index"),
        ({"model": "nowhere.json"}, ValueError, "nowhere"),
    ],
)
def test_wrong_arguments(
    arguments: Any, error: type[Exception], message: str, tmp_path: Path, monkeypatch: Any, explainer: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    call = {"model": explainer, "source": TABLE, "sink": "out"} | arguments
    with pytest.raises(error, match=message):
        explain_batches(**call)
    assert not list(tmp_path.iterdir())


def test_files_that_cannot_be_read(tmp_path: Path, explainer: Any) -> None:
    files(tmp_path / "in", "parquet")
    (tmp_path / "in" / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="of one format, not of csv and parquet"):
        explain_batches(explainer, tmp_path / "in", tmp_path / "out")
    (tmp_path / "rows").mkdir()
    pq.write_table(TABLE, tmp_path / "rows" / "rows.parquet")
    with pytest.raises(ValueError, match="is inside the source folder"):
        explain_batches(explainer, tmp_path / "rows", tmp_path / "rows" / "out.parquet")
    (tmp_path / "cut.parquet").write_bytes((tmp_path / "in" / "rows.parquet").read_bytes()[:-9])
    with pytest.raises(ValueError, match=r"cut\.parquet' cannot be read"):
        explain_batches(explainer, tmp_path / "cut.parquet", tmp_path / "out")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(ValueError, match="is not a Parquet, Arrow or NumPy file by content"):
        explain_batches(explainer, tmp_path / "text", tmp_path / "out")
    np.save(tmp_path / "objects.npy", np.array([["a", None]], object))
    with pytest.raises(ValueError, match=r"objects\.npy' cannot be read"):
        explain_batches(explainer, tmp_path / "objects.npy", tmp_path / "out")
    assert not (tmp_path / "out").exists()


#: The program prints the peak memory of each run in kilobytes; each run has a process of its own.
MEMORY = """
import json, os, sys
import pyarrow.dataset, pyarrow.parquet
import skshapgpu._core
from skshapgpu import explain_batches
for source, sink in json.loads(sys.argv[2]):
    child = os.fork()
    if child == 0:
        try:
            explain_batches(sys.argv[1], source, sink, batch_size=4096)
            most = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
            print(most.split()[1], flush=True)
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
def test_memory_does_not_grow_with_the_rows(tmp_path: Path) -> None:
    """Explaining eight times as many rows, 31 MB with 31 MB of values, takes about the same memory."""
    chance = np.random.default_rng(0)
    X = chance.random((240_000, 32), np.float32)
    model = RandomForestRegressor(2, max_depth=3, random_state=0).fit(X[:500], X[:500, 0])
    TreeExplainer(model).save(tmp_path / "model")
    calls = []
    for n_rows in (30_000, 240_000):
        np.save(tmp_path / f"{n_rows}.npy", X[:n_rows])
        calls.append([f"{tmp_path}/{n_rows}.npy", f"{tmp_path}/{n_rows}-out.npy"])
        table = pa.Table.from_arrays([*X[:n_rows].T.copy()], names=[f"x{i}" for i in range(32)])
        # The reader holds a page and the dictionary of each column, 1 MB each if there are enough values.
        pq.write_table(table, tmp_path / f"{n_rows}.parquet", row_group_size=10**6, use_dictionary=False)
        calls.append([f"{tmp_path}/{n_rows}.parquet", f"{tmp_path}/{n_rows}-out.parquet"])
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", MEMORY, str(tmp_path / "model"), json.dumps(calls)],
        capture_output=True,
        text=True,
        env=ALONE,
    )
    assert run.returncode == 0, run.stderr
    npy_small, parquet_small, npy_large, parquet_large = (int(line) * 1024 for line in run.stdout.split())
    assert npy_large - npy_small < 8e6
    # Older releases of pyarrow (21 does, 23 does not) keep the pages of the one row group until its end.
    row_group_bytes = X.nbytes if int(pa.__version__.partition(".")[0]) < 23 else 0
    assert parquet_large - parquet_small < 16e6 + row_group_bytes, (parquet_small, parquet_large)
