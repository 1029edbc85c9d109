"""explain_batches: runs that are killed and resumed, and files that are changed in between."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.batches import ALONE, ARRAY, KEPT, MODEL, TABLE, check, content, files, same
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier

import skshapgpu
from skshapgpu import TreeExplainer, explain_batches
from skshapgpu.batches import encoding as encoding_module
from skshapgpu.batches import folders as folders_module
from skshapgpu.batches import parts as parts_module
from skshapgpu.batches import sinks as sinks_module
from skshapgpu.batches import source as source_module
from skshapgpu.batches.schema_explainer import SchemaExplainer

pa = pytest.importorskip("pyarrow")
pc = pytest.importorskip("pyarrow.compute")
pq = pytest.importorskip("pyarrow.parquet")
dataset = pytest.importorskip("pyarrow.dataset")

IRIS, SPECIES = load_iris(return_X_y=True, as_frame=True)


class Killed(BaseException):
    """Exception that no handler catches."""


def guarded(function: Callable[..., Any], turns: list[int], at: int) -> Callable[..., Any]:
    """Return a function that raises at the ``at``-th call of all functions that share ``turns``."""

    def step(*args: Any, **kwargs: Any) -> Any:
        with _lock:
            turns[0] += 1
            is_killed = turns[0] == at
        if is_killed:
            raise Killed
        return function(*args, **kwargs)

    return step


_lock = threading.Lock()


def killing(monkeypatch: pytest.MonkeyPatch, where: Any, name: str, at: int) -> None:
    """Make the ``at``-th call of a function raise."""
    monkeypatch.setattr(where, name, guarded(getattr(where, name), [0], at))


def crashing(monkeypatch: pytest.MonkeyPatch, at: int) -> list[int]:
    """Make every externally visible step raise at its ``at``-th call; return the number of calls."""
    turns = [0]
    for module, name in (
        (os, "replace"),
        (os, "link"),
        (os, "unlink"),
        (folders_module, "flush"),
        (parts_module, "flush"),
        (sinks_module, "flush"),
        (folders_module, "flush_folder"),
        (encoding_module, "write"),
        (SchemaExplainer, "values"),
        (source_module, "_joined"),
    ):
        monkeypatch.setattr(module, name, guarded(getattr(module, name), turns, at))
    return turns


@pytest.mark.parametrize("sink", ["out", "out.parquet", "out.npy"])
def test_resumes_after_a_crash_at_every_step(
    sink: str, tmp_path: Path, explainer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept_columns = [] if sink == "out.npy" else KEPT

    def run(folder: Path) -> Any:
        return explain_batches(explainer, TABLE, folder / sink, keep=kept_columns, batch_size=50)

    (tmp_path / "whole").mkdir()
    want = content(run(tmp_path / "whole").path)
    resumed = set()
    for at in range(1, 1000):
        folder = tmp_path / str(at)
        folder.mkdir()
        with monkeypatch.context() as patched:
            turns = crashing(patched, at)
            try:
                run(folder)
            except Killed:
                pass
            if turns[0] < at:
                break
        assert at < 20 or folder.exists()
        if sink != "out":
            assert not (folder / sink).exists() or same(content(folder / sink), want)
        result = run(folder)
        resumed.add(result.n_resumed)
        assert result.n_rows == 150 and same(content(result.path), want)
    assert at > 10 and {0, 50, 100} <= resumed
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("skshapgpu")]


#: The program forks a process for each run and kills it with SIGKILL after a random time; no thread was
#: started before.
LAUNCHER = """
import json, os, random, signal, sys, time
import pyarrow.dataset, pyarrow.parquet, pyarrow.csv
import sklearn.ensemble, skshapgpu._core
from skshapgpu import explain_batches
folder, seed = sys.argv[1], int(sys.argv[2])
chance = random.Random(seed)

def start(path):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    child = os.fork()
    if child == 0:
        try:
            keep = [] if path.endswith(".npy") else ["id"]
            explain_batches(f"{folder}/model", f"{folder}/rows.parquet", path, keep=keep, batch_size=40)
            os._exit(0)
        finally:
            os._exit(1)
    return child

for sink, n_kills in json.loads(sys.argv[3]).items():
    begin = time.perf_counter()
    assert os.waitpid(start(f"{folder}/whole/{sink}"), 0)[1] == 0
    seconds = time.perf_counter() - begin
    kills = done = 0
    while not done or kills < n_kills:
        child = start(f"{folder}/killed{done}/{sink}")
        if kills < n_kills:
            time.sleep(chance.uniform(0, 0.4 * seconds))
            os.kill(child, signal.SIGKILL)  # one that has ended, but was not waited for, does not mind
        status = os.waitpid(child, 0)[1]
        if status == signal.SIGKILL:
            kills += 1
        else:
            assert status == 0, status
            done += 1
    print(json.dumps([sink, kills, done, round(seconds, 2)]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_resumes_after_kills(tmp_path: Path, explainer: Any) -> None:
    rows = pa.concat_tables([TABLE] * 12)
    rows = rows.set_column(rows.column_names.index("id"), "id", pa.array(np.arange(len(rows))))
    pq.write_table(rows, tmp_path / "rows.parquet", row_group_size=333)
    explainer.save(tmp_path / "model")
    seed = int.from_bytes(os.urandom(4), "little")
    print(f"{seed=}")
    n_kills = {"out.parquet": 20, "out": 10, "out.npy": 10}
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", LAUNCHER, str(tmp_path), str(seed), json.dumps(n_kills)],
        capture_output=True,
        text=True,
        timeout=200,
        env=ALONE,
    )
    print(run.stdout)
    assert run.returncode == 0, run.stderr
    for sink, kills, done, _ in map(json.loads, run.stdout.splitlines()):
        assert kills == n_kills.pop(sink)
        want = content(tmp_path / "whole" / sink)
        assert len(want) == len(rows)
        if not sink.endswith(".npy"):
            assert want.column("id").to_pylist() == list(range(len(rows)))
        for number in range(done):
            assert same(content(tmp_path / f"killed{number}" / sink), want)
    assert not n_kills


def test_iterators_are_read_again(tmp_path: Path, explainer: Any, values: np.ndarray) -> None:
    read: list[int] = []

    def items(fail_at: int = -1) -> Iterator[Any]:
        for i in range(0, 150, 30):
            if i == fail_at:
                raise OSError("the line broke")
            read.append(i)
            yield TABLE.slice(i, 30)

    with pytest.raises(OSError, match="the line broke"):
        explain_batches(explainer, items(90), tmp_path / "out.parquet", keep=KEPT, batch_size=40)
    assert not (tmp_path / "out.parquet").exists()
    result = explain_batches(explainer, items(), tmp_path / "out.parquet", keep=KEPT, batch_size=40)
    assert result.n_resumed == 80
    check(result.path, values)
    del read[:]
    assert explain_batches(explainer, items(), tmp_path / "out.parquet", keep=KEPT).n_resumed == 150
    assert read == [0]  # its columns only


def other_calls(folder: Path) -> dict[str, tuple[dict[str, Any], str]]:
    other = RandomForestClassifier(3, max_depth=3, random_state=1).fit(IRIS, SPECIES)
    changed = TABLE.set_column(0, IRIS.columns[0], pa.array(IRIS.iloc[:, 0] + 1))
    return {
        "model": ({"model": other}, "model.trees was"),
        "data": ({"model": TreeExplainer(MODEL, data=IRIS[:9])}, "model.background was"),
        "precision": ({"model": TreeExplainer(MODEL, precision="double")}, 'model.precision was "single"'),
        "batch_size": ({"batch_size": 33}, "batch_rows was 32 and is 33"),
        "keep": ({"keep": ["id"]}, "options.keep was"),
        "reasons": ({"reasons": 2}, "options.reasons was null and is 2"),
        "index": ({"index": "BV"}, "options.index was"),
        "dtype": ({"dtype": "float32"}, "options.dtype was"),
        "source": ({"source": TABLE.slice(1)}, "source.n_rows was 150 and is 149"),
        "content": ({"source": changed}, "source.content was"),
    }


@pytest.mark.parametrize("name", other_calls(Path()))
@pytest.mark.parametrize("finished", [False, True])
def test_another_call_is_refused(
    name: str, finished: bool, tmp_path: Path, explainer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    call: dict[str, Any] = {"model": explainer, "source": TABLE, "keep": KEPT, "batch_size": 32}
    sink = tmp_path / "out.parquet"
    with monkeypatch.context() as patched:
        if not finished:
            killing(patched, sinks_module.JoinedSink, "write", 3)
        try:
            explain_batches(sink=sink, **call)
        except Killed:
            assert not finished
    change, message = other_calls(tmp_path)[name]
    state = "finished" if finished else "unfinished"
    with pytest.raises(
        ValueError, match=f"(?s)is the {state} output of another call: {message}.*if_exists='overwrite'"
    ):
        explain_batches(sink=sink, **(call | change))
    with pytest.raises(ValueError, match="of the same call: pass if_exists='resume'"):
        explain_batches(sink=sink, if_exists="error", **call)
    replaced = explain_batches(sink=sink, if_exists="overwrite", **(call | change))
    assert replaced.n_resumed == 0 and replaced.n_rows == len(content(sink))
    assert explain_batches(sink=sink, **(call | change)).n_resumed == replaced.n_rows


@pytest.mark.parametrize("suffix", ["", ".parquet", ".npy"])
def test_a_call_that_wrote_nothing_is_forgotten(
    suffix: str, tmp_path: Path, explainer: Any, values: np.ndarray
) -> None:
    sink, wrong = tmp_path / f"out{suffix}", IRIS.to_numpy(copy=True)
    wrong[3, 0] = np.inf
    with pytest.raises(ValueError, match="in rows 0 to 31 of the source"):
        explain_batches(explainer, wrong, sink, batch_size=32)
    result = explain_batches(explainer, IRIS.to_numpy(), sink, batch_size=50)
    assert (result.n_rows, result.n_resumed, result.batch_rows) == (150, 0, 50)
    check(result.path, values, [])
    wrong[3, 0] = 1.0
    with pytest.raises(ValueError, match="is the finished output of another call"):
        explain_batches(explainer, wrong, sink, batch_size=32)


def test_changed_files_are_noticed(tmp_path: Path, explainer: Any) -> None:
    source, sink = files(tmp_path / "in", "parquet"), tmp_path / "out.parquet"
    explain_batches(explainer, source, sink)
    os.utime(source, ns=(1, 1))
    with pytest.raises(ValueError, match=r"source\.files was"):
        explain_batches(explainer, source, sink)
    explain_batches(explainer, source, sink, if_exists="overwrite")
    sink.unlink()
    assert explain_batches(explainer, source, sink).n_resumed == 0  # and it is there again
    assert len(content(sink)) == 150


def test_files_in_another_order_are_other_rows(tmp_path: Path, explainer: Any, values: np.ndarray) -> None:
    """The output has the rows of the files in the order of the list, so another order is another call."""
    paths = [tmp_path / f"{number}.parquet" for number in range(3)]
    for number, path in enumerate(paths):
        pq.write_table(TABLE.slice(50 * number, 50), path)
    explain_batches(explainer, paths, tmp_path / "out.npy")
    other = [paths[0], paths[2], paths[1]]
    for source in (other, dataset.dataset(other)):
        with pytest.raises(ValueError, match="output of another call: source"):
            explain_batches(explainer, source, tmp_path / "out.npy")
    explain_batches(explainer, other, tmp_path / "out.npy", if_exists="overwrite")
    result = np.load(tmp_path / "out.npy")
    np.testing.assert_array_equal(result, values[np.r_[:50, 100:150, 50:100]])


def test_other_rows_of_a_dataset_are_another_call(tmp_path: Path, explainer: Any, values: np.ndarray) -> None:
    pq.write_table(TABLE, tmp_path / "in.parquet")
    pq.write_table(TABLE.slice(50), tmp_path / "other.parquet")
    all_rows, rest = dataset.dataset(tmp_path / "in.parquet"), dataset.dataset(tmp_path / "other.parquet")
    row, doubled = dataset.field("id"), TABLE.set_column(0, TABLE.field(0), pc.multiply(TABLE.column(0), 2))
    most = [number for number in range(150) if number != 70]
    (tmp_path / "folders" / "1" / "2").mkdir(parents=True)
    pq.write_table(
        TABLE.drop_columns([*IRIS.columns[[1, 2]]]), tmp_path / "folders" / "1" / "2" / "x.parquet"
    )

    def in_folders(names: Any) -> Any:
        keys = dataset.partitioning(TABLE.select([*names]).schema)
        return dataset.dataset(tmp_path / "folders", partitioning=keys).filter(row < 50)

    for number, (before, after) in enumerate(
        [
            (all_rows.filter(row < 50), all_rows.filter(row >= 50)),
            (all_rows.filter(row < 50), all_rows),
            (all_rows.filter(row.isin(range(149))), all_rows.filter(row.isin(most))),
            (dataset.dataset([all_rows, rest]), dataset.dataset([rest, all_rows])),
            (dataset.dataset(TABLE), dataset.dataset(doubled)),
            (in_folders(IRIS.columns[[1, 2]]), in_folders(IRIS.columns[[2, 1]])),
        ]
    ):
        sink = tmp_path / f"{number}.npy"
        n_rows = explain_batches(explainer, before, sink).n_rows
        assert explain_batches(explainer, before, sink).n_resumed == n_rows
        with pytest.raises(ValueError, match="output of another call: source"):
            explain_batches(explainer, after, sink)
    explain_batches(explainer, all_rows.filter(row.isin(most)), tmp_path / "2.npy", if_exists="overwrite")
    np.testing.assert_array_equal(np.load(tmp_path / "2.npy"), values[np.isin(TABLE.column("id"), most)])


@pytest.mark.parametrize("if_exists", ["resume", "overwrite"])
def test_what_others_wrote_is_not_touched(if_exists: str, tmp_path: Path, explainer: Any) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    (tmp_path / "mine.parquet").write_text("other")
    for sink, message in (
        ("mine", "holds files that explain_batches did not write, .* such as 'letter.txt'"),
        ("mine.parquet", "is no output"),
    ):
        with pytest.raises(ValueError, match=message):
            explain_batches(explainer, TABLE, tmp_path / sink, if_exists=if_exists)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["letter.txt", "mine", "mine.parquet"]


@pytest.mark.parametrize("form", ["parquet", "csv", "parts", "list", "dataset", "union"])
def test_the_output_does_not_replace_the_rows(form: str, tmp_path: Path, explainer: Any) -> None:
    """This holds even with if_exists="overwrite", and if the rows are an output of this package."""
    in_parts = form not in ("parquet", "csv")
    sink = tmp_path / ("out" if in_parts else f"out.{form}")
    options: dict[str, Any] = {"batch_size": 50, "if_exists": "overwrite", "prefix": "shap_"}
    explain_batches(explainer, TABLE, sink, keep=[*IRIS], **options)
    paths = sorted(sink.glob("part-*")) if in_parts else [sink]
    before = [path.read_bytes() for path in paths]
    one = dataset.dataset(paths) if in_parts else None
    sources = {
        "parts": lambda: paths[1],
        "list": lambda: paths,
        "dataset": lambda: one.filter(dataset.field(IRIS.columns[0]) > 0),
        "union": lambda: dataset.dataset([one, one]),
    }
    source = sources[form]() if in_parts else sink
    with pytest.raises(ValueError, match="has rows, and would be replaced by the output"):
        explain_batches(explainer, source, sink, **options)
    assert [path.read_bytes() for path in paths] == before


def test_a_second_call_at_once_is_refused(tmp_path: Path, explainer: Any, values: np.ndarray) -> None:
    refused = []

    def meanwhile(done: int, n_rows: int | None) -> None:
        with pytest.raises(RuntimeError, match="another call is writing"):
            explain_batches(explainer, TABLE, tmp_path / "out", keep=KEPT, batch_size=50)
        refused.append(done)

    explain_batches(explainer, TABLE, tmp_path / "out", keep=KEPT, batch_size=50, progress=meanwhile)
    assert refused
    check(tmp_path / "out", values)


def test_batch_size_of_the_first_run_is_kept(tmp_path: Path, explainer: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(skshapgpu.batches.run, "_BATCH_BYTES", 64 * (2 * 4 * 8 + 2 * 12 * 8))
    with monkeypatch.context() as patched:
        killing(patched, sinks_module.PartsSink, "write", 3)
        with pytest.raises(Killed):
            explain_batches(explainer, TABLE.select(list(IRIS)), tmp_path / "out")
    monkeypatch.undo()
    result = explain_batches(explainer, TABLE.select(list(IRIS)), tmp_path / "out")
    assert result.batch_rows == 64 and result.n_resumed == 128


def test_memory_limit_makes_batches_smaller(tmp_path: Path) -> None:
    row = 2 * 4 * 8 + 2 * 12 * 8
    # A GPU needs more for itself.
    limited = TreeExplainer(MODEL, memory_limit=100 * 12 * row, device="cpu")
    assert explain_batches(limited, ARRAY, tmp_path / "out").batch_rows == 100
    assert explain_batches(MODEL, ARRAY, tmp_path / "out2").batch_rows > 100_000
