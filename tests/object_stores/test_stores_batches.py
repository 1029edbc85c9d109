"""explain_batches in other file systems: sources and sinks of each kind, compared with local ones."""

from __future__ import annotations

import io
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.batches import ARRAY, IRIS, KEPT, MODEL, TABLE, content, files, same
from helpers.stores import Store

from skshapgpu import TreeExplainer, explain_batches
from skshapgpu._files.locations import RemotePath
from skshapgpu.batches import encoding, parts
from skshapgpu.batches.schema_explainer import SchemaExplainer

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")
pq = pytest.importorskip("pyarrow.parquet")

SINKS = ["out.parquet", "out.arrow", "out.csv", "out.npy", "out", "out/"]


def kept_for(sink: str) -> list[str]:
    return [] if sink == "out.npy" else KEPT


def found_in(store: Store, sink: str, folder: Path) -> Any:
    """Return the content of an output."""
    name = sink.rstrip("/")
    local = store.fetch(name, folder / "fetched" / name)
    return local.read_bytes() if sink == "out.csv" else content(local)


def equal(a: Any, b: Any) -> bool:
    return a == b if isinstance(a, bytes) else same(a, b)


@pytest.fixture
def local(tmp_path: Path, explainer: Any) -> Any:
    """Function that returns the content of the output of a local run."""

    def run(sink: str) -> Any:
        path = tmp_path / "local" / sink
        path.parent.mkdir(exist_ok=True)
        result = explain_batches(explainer, TABLE, path, keep=kept_for(sink), batch_size=40)
        return path.read_bytes() if sink == "out.csv" else content(Path(result.path))

    return run


@pytest.mark.parametrize("kind", ["parquet", "arrow", "csv", "tsv.gz", "npy", "folder", "list"])
def test_sources(kind: str, store: Store, tmp_path: Path, explainer: Any) -> None:
    if kind == "npy":
        np.save(tmp_path / "rows.npy", ARRAY)
        source: Any = tmp_path / "rows.npy"
    else:
        source = files(tmp_path, kind)
    keep = [] if kind == "npy" else KEPT
    want = explain_batches(explainer, source, tmp_path / "want.parquet", keep=keep, batch_size=40)
    paths = source if isinstance(source, list) else [source]
    remote = [store.copy(Path(path), f"in/{Path(path).name}") for path in paths]
    result = explain_batches(
        explainer,
        remote if kind == "list" else remote[0],
        (tmp_path / "found.parquet").as_uri(),  # local, whatever the file system
        keep=keep,
        batch_size=40,
        **store.given,
    )
    assert result.path == tmp_path / "found.parquet" and result.n_rows == want.n_rows == 150
    assert same(content(tmp_path / "found.parquet"), content(tmp_path / "want.parquet"))


@pytest.mark.parametrize("sink", SINKS)
def test_sinks(sink: str, store: Store, tmp_path: Path, explainer: Any, local: Any) -> None:
    seen: list[list[str]] = []
    result = explain_batches(
        explainer,
        TABLE,
        store.place(sink),
        keep=kept_for(sink),
        batch_size=40,
        progress=lambda done, n_rows: seen.append(store.names()),
        **store.given,
    )
    assert equal(found_in(store, sink, tmp_path), local(sink))
    assert (result.n_rows, result.n_resumed, result.path) == (150, 0, store.place(sink))
    names = [str(path).removeprefix(store.place("")) for path in result.paths]
    folder = "out/.skshapgpu" if "." not in sink else f".{sink}.skshapgpu"
    assert store.names() == sorted([*names, f"{folder}/journal.json", f"{folder}/owner"])
    if "." in sink:
        assert names == [sink] and not any(sink in there for there in seen[:-1])
    else:
        assert names == [f"out/part-00000{i}.parquet" for i in range(4)]
    again = explain_batches(
        explainer, TABLE, store.place(sink), keep=kept_for(sink), batch_size=40, **store.given
    )
    assert (again.n_resumed, again.paths) == (150, result.paths)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_npy_is_read_in_ranges(order: Any, dtype: Any, store: Store, tmp_path: Path, explainer: Any) -> None:
    array, file = np.asarray(ARRAY, dtype, order=order), io.BytesIO()
    np.save(file, array)
    source = store.write("rows.npy", file.getvalue())
    result = explain_batches(
        explainer, source, store.place("out.npy"), batch_size=40, dtype="float64", **store.given
    )
    table = content(store.fetch("out.npy", tmp_path / "out.npy"))
    np.testing.assert_array_equal(table, explainer.shap_values(array))
    assert result.n_rows == 150
    for wrong, message in (
        (file.getvalue()[:-1], "cut off"),
        (b"\x93NUMPY\x01", "cannot be read"),
        (pickled(), "Python objects"),
    ):
        source = store.write("wrong.npy", wrong)
        with pytest.raises(ValueError, match=message):
            explain_batches(explainer, source, store.place("out2.npy"), **store.given)


def pickled() -> bytes:
    file = io.BytesIO()
    np.save(file, np.array([[object()]]), allow_pickle=True)
    return file.getvalue()


def test_a_parquet_file_is_not_downloaded(
    store: Store, tmp_path: Path, explainer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the model's columns are read: another column is most of the file."""
    noise = np.random.default_rng(0).bytes(4_000_000)
    rows = TABLE.append_column("noise", pa.array([noise[i::150] for i in range(150)]))
    pq.write_table(rows, tmp_path / "rows.parquet")
    source, n_read = store.copy(tmp_path / "rows.parquet", "rows.parquet"), [0]
    opened = RemotePath.open

    class Counting(io.RawIOBase):
        def __init__(self, file: Any) -> None:
            self._file = file

        def read(self, n: int = -1) -> bytes:
            result = self._file.read(None if n < 0 else n)
            n_read[0] += len(result)
            return result

        def seek(self, *args: Any) -> int:
            return self._file.seek(*args)

        def tell(self) -> int:
            return self._file.tell()

        def readable(self) -> bool:
            return True

        def seekable(self) -> bool:
            return True

    monkeypatch.setattr(RemotePath, "open", lambda self: pa.PythonFile(Counting(opened(self)), "r"))
    explain_batches(explainer, source, store.place("out.parquet"), keep=["id"], **store.given)
    assert 0 < n_read[0] < 100_000


def test_folders_are_columns_and_files_are_compared(store: Store, tmp_path: Path, explainer: Any) -> None:
    for year in (2025, 2026):
        pq.write_table(TABLE.slice(75 * (year - 2025), 75), tmp_path / "rows.parquet")
        store.copy(tmp_path / "rows.parquet", f"in/year={year}/rows.parquet")
    for name in ("_SUCCESS", ".hidden/d.parquet"):
        store.write(f"in/{name}", b"nothing")
    result = explain_batches(
        explainer, store.place("in/"), store.place("out.csv"), keep=["year", "id"], **store.given
    )
    assert result.n_rows == 150
    # pandas 2 reads numbers inexactly unless it is told otherwise.
    frame = pd.read_csv(io.BytesIO(store.read("out.csv")), float_precision="round_trip")
    assert frame["year"].tolist() == [2025] * 75 + [2026] * 75
    np.testing.assert_array_equal(frame.iloc[:, 2:].to_numpy(), explainer.shap_values(IRIS).reshape(150, 12))
    with pytest.raises(ValueError, match="is inside the source folder"):
        explain_batches(explainer, store.place("in"), store.place("in/out"), **store.given)
    pq.write_table(TABLE.drop_columns([IRIS.columns[0]]), tmp_path / "rows.parquet")
    store.copy(tmp_path / "rows.parquet", "in/year=2027/rows.parquet")
    with pytest.raises(ValueError, match=r"year=2027/rows.parquet' does not have the columns of"):
        explain_batches(explainer, store.place("in"), store.place("out2"), **store.given)


def test_changes_of_a_source_are_noticed(store: Store, tmp_path: Path, explainer: Any) -> None:
    pq.write_table(TABLE, tmp_path / "rows.parquet", row_group_size=10)
    content = (tmp_path / "rows.parquet").read_bytes()
    source = store.write("rows.parquet", content)
    explain_batches(explainer, source, store.place("out"), **store.given)
    pq.write_table(TABLE.slice(10), tmp_path / "rows.parquet")
    store.copy(tmp_path / "rows.parquet", "rows.parquet")
    with pytest.raises(ValueError, match=r"output of another call: source\.bytes was"):
        explain_batches(explainer, source, store.place("out"), **store.given)
    store.write("rows.parquet", content)

    def change(done: int, n_rows: int | None) -> None:
        store.write("rows.parquet", content + b"more")

    with pytest.raises(ValueError, match=r"was changed while it was read|cannot be read"):
        explain_batches(explainer, source, store.place("out2"), batch_size=10, progress=change, **store.given)


class Killed(BaseException):
    """Exception that no handler catches."""


def crashing(monkeypatch: pytest.MonkeyPatch, at: int) -> list[int]:
    """Make every externally visible step raise at its ``at``-th call; return the number of calls."""
    turns, lock = [0], threading.Lock()

    def guarded(function: Any) -> Any:
        def step(*args: Any, **kwargs: Any) -> Any:
            with lock:
                turns[0] += 1
                is_killed = turns[0] == at
            if is_killed:
                raise Killed
            return function(*args, **kwargs)

        return step

    for where, name in (
        (RemotePath, "upload"),
        (RemotePath, "delete"),
        (parts, "flush"),
        (encoding, "write"),
        (SchemaExplainer, "values"),
    ):
        monkeypatch.setattr(where, name, guarded(getattr(where, name)))
    return turns


@pytest.mark.parametrize("sink", ["out", "out.parquet", "out.npy"])
def test_resumes_after_a_crash_at_every_step(
    sink: str, store: Store, tmp_path: Path, explainer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(name: str) -> Any:
        return explain_batches(
            explainer, TABLE, store.place(name), keep=kept_for(sink), batch_size=50, **store.given
        )

    run(f"whole-{sink}")
    want, resumed = content(store.fetch(f"whole-{sink}", tmp_path / f"whole-{sink}")), set()
    for at in range(1, 1000):
        name = f"{at}-{sink}"
        with monkeypatch.context() as patched:
            turns = crashing(patched, at)
            try:
                run(name)
            except Killed:
                pass
            if turns[0] < at:
                break
        result = run(name)
        resumed.add(result.n_resumed)
        assert result.n_rows == 150
        assert same(content(store.fetch(name, tmp_path / name)), want)
    assert at > 10 and {0, 50, 100} <= resumed
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("skshapgpu")]


@pytest.mark.parametrize("if_exists", ["resume", "overwrite"])
def test_files_of_others_are_not_touched(if_exists: str, store: Store, explainer: Any) -> None:
    store.write("mine/letter.txt", b"dear")
    store.write("mine.parquet", b"other")
    store.write("parts/part-000000.parquet", b"other")
    before = store.names()
    for sink, message in (
        ("mine", "holds files that explain_batches did not write, .* such as 'letter.txt'"),
        ("mine.parquet", "is no output of explain_batches"),
        ("parts", "such as 'part-000000.parquet'"),
    ):
        with pytest.raises(ValueError, match=message):
            explain_batches(explainer, TABLE, store.place(sink), if_exists=if_exists, **store.given)
    assert store.names() == before and store.read("mine.parquet") == b"other"
    for sink, name in (("out.csv", "out.csv"), ("out", "out/part-000000.parquet")):
        explain_batches(explainer, TABLE, store.place(sink), **store.given)
        store.write(name, store.read(name) + b"changed")
        with pytest.raises(ValueError, match=r"was changed, or written by others|were changed since"):
            explain_batches(explainer, TABLE, store.place(sink), if_exists=if_exists, **store.given)
        assert store.read(name).endswith(b"changed")


@pytest.mark.parametrize("sink", ["out", "out.parquet"])
def test_another_call_is_refused_and_replaces_only_when_told(
    sink: str, store: Store, tmp_path: Path, explainer: Any, local: Any
) -> None:
    call: dict[str, Any] = {"sink": store.place(sink), "batch_size": 40, **store.given}
    explain_batches(explainer, TABLE.slice(0, 90), keep=["id"], **call)
    with pytest.raises(ValueError, match=r"finished output of another call: options\.keep was"):
        explain_batches(explainer, TABLE, keep=KEPT, **call)
    assert explain_batches(explainer, TABLE, keep=KEPT, if_exists="overwrite", **call).n_resumed == 0
    assert same(found_in(store, sink, tmp_path), local(sink))
    store.delete("out/part-000001.parquet" if sink == "out" else sink)
    result = explain_batches(explainer, TABLE, keep=KEPT, **call)
    assert result.n_resumed == (40 if sink == "out" else 0)
    assert same(found_in(store, sink, tmp_path), local(sink))


@pytest.fixture
def call(sink: str, store: Store) -> dict[str, Any]:
    """Arguments of calls that write the same output."""
    return {"sink": store.place(sink), "keep": kept_for(sink), **store.given}


@pytest.mark.parametrize("sink", ["out", "out.parquet", "out.npy"])
@pytest.mark.parametrize("is_same", [False, True])
def test_a_call_notices_that_another_has_taken_over(
    sink: str,
    is_same: bool,
    call: dict[str, Any],
    store: Store,
    tmp_path: Path,
    explainer: Any,
    local: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = {} if is_same else {"if_exists": "overwrite", "batch_size": 40}
    n_others, write, first, is_over = [0], parts.Parts.write, [], threading.Event()

    def meanwhile(done: int, n_rows: int | None) -> None:
        if done and not n_others[0]:
            n_others[0] += 1
            assert explain_batches(explainer, TABLE, **call, **other).n_rows == 150
            is_over.set()

    def write_later(self: parts.Parts, *args: Any, **options: Any) -> None:
        """Have the second part of the first call wait until the other call has ended."""
        first.append(self)
        if self is first[0] and self.names:
            assert is_over.wait(60)
        write(self, *args, **options)

    monkeypatch.setattr(parts.Parts, "write", write_later)
    batch_size = 40 if is_same else 25
    with pytest.raises(RuntimeError, match=r"another call has begun to write .*out"):
        explain_batches(explainer, TABLE, batch_size=batch_size, progress=meanwhile, **call)
    assert n_others == [1]
    assert equal(found_in(store, sink, tmp_path), local(sink))
    # A call that finds its output complete, or is refused, does not stop the call that wrote it.
    assert explain_batches(explainer, TABLE, batch_size=40, **call).n_resumed == 150


@pytest.mark.parametrize("sink", ["out", "out.parquet", "out.npy"])
def test_a_file_that_comes_after_another_call_has_begun_is_withdrawn(
    sink: str,
    call: dict[str, Any],
    store: Store,
    tmp_path: Path,
    explainer: Any,
    local: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    late, upload, n_others = "part-000001.parquet" if sink == "out" else sink, RemotePath.upload, [0]

    def upload_late(self: RemotePath, *args: Any) -> None:
        if self.name == late and not n_others[0]:
            n_others[0] += 1
            other = explain_batches(explainer, TABLE, batch_size=40, if_exists="overwrite", **call)
            assert other.n_rows == 150
        upload(self, *args)

    monkeypatch.setattr(RemotePath, "upload", upload_late)
    with pytest.raises(RuntimeError, match=r"another call has begun to write .*out"):
        explain_batches(explainer, TABLE, batch_size=25, **call)
    is_there = any(name.endswith(late) for name in store.names())
    assert n_others == [1] and is_there == (sink == "out.npy")  # the other call's is equal, byte by byte
    result = explain_batches(explainer, TABLE, batch_size=40, **call)
    assert result.n_resumed == {"out": 40, "out.parquet": 0, "out.npy": 150}[sink]
    assert equal(found_in(store, sink, tmp_path), local(sink))


def test_a_part_that_comes_while_another_call_begins_is_withdrawn(
    store: Store, explainer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload = RemotePath.upload

    def upload_and_lose(self: RemotePath, *args: Any) -> None:
        upload(self, *args)
        if self.name == "part-000001.parquet":
            store.write("out/.skshapgpu/owner", b"token digest")

    monkeypatch.setattr(RemotePath, "upload", upload_and_lose)
    with pytest.raises(RuntimeError, match=r"another call has begun to write .*out"):
        explain_batches(explainer, TABLE, store.place("out"), batch_size=25, **store.given)
    assert [name for name in store.names() if "part-" in name] == ["out/part-000000.parquet"]


def test_a_part_that_another_call_replaces_is_noticed(store: Store, tmp_path: Path, explainer: Any) -> None:
    pq.write_table(TABLE, tmp_path / "other.parquet")

    def meanwhile(done: int, n_rows: int | None) -> None:
        if done == 150:
            store.copy(tmp_path / "other.parquet", "out/part-000001.parquet")

    with monkeypatched_finish(meanwhile), pytest.raises(RuntimeError, match="was written by another call"):
        explain_batches(explainer, TABLE, store.place("out"), batch_size=50, **store.given)
    store.delete("out/part-000001.parquet")

    def further(done: int, n_rows: int | None) -> None:
        store.copy(tmp_path / "other.parquet", "out/part-000007.parquet")

    with monkeypatched_finish(further), pytest.raises(RuntimeError, match="was written by another call"):
        explain_batches(explainer, TABLE, store.place("out"), batch_size=50, **store.given)


def monkeypatched_finish(before: Any) -> Any:
    """Return a context in which a function runs before the parts are finished."""
    patch = pytest.MonkeyPatch.context()

    class Context:
        def __enter__(self) -> None:
            patched, finish = patch.__enter__(), parts.Parts.finish

            def finishing(self: Any) -> Any:
                before(150, None)
                return finish(self)

            patched.setattr(parts.Parts, "finish", finishing)

        def __exit__(self, *error: Any) -> None:
            patch.__exit__(*error)

    return Context()


def test_models_and_errors_of_explain_batches(
    store: Store, tmp_path: Path, explainer: Any, local: Any
) -> None:
    explainer.save(store.place("explainer.npz"), **store.given)
    explain_batches(
        store.place("explainer.npz"),
        TABLE,
        store.place("out.csv"),
        keep=KEPT,
        batch_size=40,
        **store.given,
    )
    assert store.read("out.csv") == local("out.csv")
    store.write("model.json", b"{}")
    for arguments, message in (
        ({"model": store.place("model.json")}, "model.json' is JSON, but neither"),
        ({"model": store.place("nowhere.json")}, "there is no file .*nowhere.json"),
        ({"source": store.place("nowhere.parquet")}, "there is no file .*nowhere.parquet'$"),
        ({"source": store.place("model.json")}, "model.json' is not a Parquet, Arrow or NumPy file"),
        ({"source": store.place("nowhere/")}, "there is no file .*nowhere"),
        ({"source": [store.place("explainer.npz"), (tmp_path / "x").as_uri()]}, "in one file system"),
        ({"sink": store.place("out.txt")}, "out.txt' has none of the extensions of output files"),
        ({"sink": store.place("model.json/")}, "is a file, not a folder"),
    ):
        call = {"model": MODEL, "source": TABLE, "sink": store.place("out3")} | arguments
        with pytest.raises(ValueError, match=message):
            explain_batches(**call, **store.given)
    assert not any(name.startswith("out3") for name in store.names())


def test_filesystem_is_checked(tmp_path: Path, explainer: Any) -> None:
    with pytest.raises(TypeError, match="filesystem must be a file system of pyarrow or fsspec, not a int"):
        explain_batches(explainer, TABLE, "out", filesystem=5)
    fs = pytest.importorskip("pyarrow.fs")
    result = explain_batches(explainer, TABLE, tmp_path / "out", filesystem=fs.LocalFileSystem())
    assert result.path == tmp_path / "out" and (tmp_path / "out" / ".skshapgpu" / "lock").exists()
    fsspec = pytest.importorskip("fsspec")
    result = explain_batches(explainer, TABLE, tmp_path / "out", filesystem=fsspec.filesystem("file"))
    assert result.n_resumed == 150


def test_a_folder_that_does_not_exist_is_refused_where_there_are_folders(
    tmp_path: Path, explainer: TreeExplainer
) -> None:
    from helpers import stores

    store = stores.subtree(tmp_path)
    with pytest.raises(ValueError, match="there is no folder 'data/nowhere'"):
        explain_batches(explainer, TABLE, "data/nowhere/out.csv", **store.given)
    assert not store.names()
