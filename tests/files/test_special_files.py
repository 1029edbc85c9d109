"""Paths that name no regular file: devices, FIFOs, sockets, folders and links. Nothing hangs or is replaced.

Each test runs its calls in a process of its own, with limits of time and of memory.
"""

from __future__ import annotations

import json
import os
import resource
import socket
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers import TESTS
from helpers.batches import ALONE
from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor

from skshapgpu import TreeExplainer
from skshapgpu.mlflow import _flavor

pytest.importorskip("pyarrow.parquet")
pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="FIFOs")

X, Y = load_diabetes(return_X_y=True)

#: Seconds for all calls of a test, and bytes of memory. A call that hangs needs more.
SECONDS, MOST_BYTES = 120, 2**33

#: The program evaluates expressions, and prints for each the type and the message of the error.
CALLS = """
import contextlib, io, json, os, sys
from pathlib import Path
import numpy as np
import pyarrow.dataset, pyarrow.fs, pyarrow.parquet
import skshapgpu
from skshapgpu import TreeExplainer, explain_batches
from skshapgpu.command_line import main

def errors_of(arguments):
    with contextlib.redirect_stderr(io.StringIO()) as errors:
        main(arguments)
    return errors.getvalue()

folder = Path(sys.argv[1])
model = folder / "model.npz"
explainer = TreeExplainer.load(model)
rows = np.load(folder / "rows.npy")
store = pyarrow.fs.SubTreeFileSystem(str(folder), pyarrow.fs.LocalFileSystem())
for expression in json.loads(sys.argv[2]):
    try:
        result = ["", str(eval(expression))]
    except Exception as error:
        result = [type(error).__name__, str(error)]
    print(json.dumps([expression, *result]), flush=True)
"""


def limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))


def results(folder: Path, expressions: list[str]) -> dict[str, tuple[str, str]]:
    """Return the type and the message of the error of each expression."""
    run = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", CALLS, str(folder), json.dumps(expressions)],
        # The driver of a GPU needs more memory than the limit.
        env=ALONE | {"OMP_NUM_THREADS": "1", "SKSHAPGPU_DEVICE": "cpu"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=limit_memory,
    )
    try:
        output, errors = run.communicate(timeout=SECONDS)
        problem = errors
    except subprocess.TimeoutExpired:
        run.kill()
        output, problem = run.communicate()[0], "it hangs"
    lines = [json.loads(line) for line in output.splitlines() if line.startswith("[")]
    assert len(lines) == len(expressions), f"{expressions[len(lines)]}: {problem}"
    return {expression: (error, message) for expression, error, message in lines}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with an explainer file and rows, and with files of each special kind."""
    TreeExplainer(RandomForestRegressor(2, max_depth=3, random_state=0).fit(X, Y)).save(
        tmp_path / "model.npz"
    )
    np.save(tmp_path / "rows.npy", X)
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "zero").symlink_to("/dev/zero")
    (tmp_path / "null").symlink_to("/dev/null")
    (tmp_path / "linked_fifo").symlink_to("fifo")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "folder").mkdir()
    working_folder = os.getcwd()
    os.chdir(tmp_path)  # the path of a socket is short
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind("socket")
    finally:
        os.chdir(working_folder)
    return tmp_path


#: Names in the folder that are no regular files.
SPECIAL = ("fifo", "zero", "null", "linked_fifo", "loop", "folder", "socket")


def state(folder: Path) -> dict[str, tuple[int, int]]:
    """Return the number and the kind of each file in a folder."""
    return {
        name: (status.st_ino, stat.S_IFMT(status.st_mode))
        for name in os.listdir(folder)
        for status in [os.lstat(folder / name)]
    }


#: Calls that read the file of a name.
READING = (
    "TreeExplainer.load(folder / {!r})",
    "TreeExplainer(folder / {!r})",
    "TreeExplainer.load({!r}, filesystem=store)",
    "explain_batches(explainer, folder / {!r}, folder / 'out.npy')",
    "explain_batches(explainer, [folder / {!r}], folder / 'out.npy')",
    "explain_batches(explainer, {!r}, 'out.npy', filesystem=store)",
    "explain_batches(folder / {!r}, rows, folder / 'out.npy')",
    "skshapgpu.compare_explanations(folder / {!r}, folder / {!r})",
)


def test_reading_is_refused(folder: Path) -> None:
    names = {call.format(name, name): name for call in READING for name in SPECIAL}
    for call, (error, message) in results(folder, [*names]).items():
        assert error in ("ValueError", "FileNotFoundError", "OSError", "IsADirectoryError"), (call, error)
        assert names[call] in message


def test_saving_replaces_nothing(folder: Path) -> None:
    (folder / "empty").touch()
    before = state(folder)
    calls = [f"explainer.save(folder / {name!r})" for name in (*SPECIAL, "empty")]
    names = [name for name in (*SPECIAL, "empty") if name != "loop"]  # pyarrow sees nothing behind it
    calls += [f"explainer.save({name!r}, filesystem=store)" for name in names]
    for call, (error, message) in results(folder, calls).items():
        assert error in ("FileExistsError", "OSError"), (call, message)
    assert state(folder) == before


def test_a_device_is_not_replaced(tmp_path: Path, folder: Path) -> None:
    """Not even by root, who may."""
    try:
        os.mknod(folder / "device", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    except OSError:
        pytest.skip("only root makes devices")
    before = state(folder)
    calls = [
        "explainer.save(folder / 'device')",
        "main(['save', str(model), '-o', str(folder / 'device')])",
    ]
    outcomes = results(folder, calls)
    assert outcomes[calls[0]][0] == "FileExistsError" and outcomes[calls[1]] == ("", "1")
    assert state(folder) == before


@pytest.mark.parametrize("if_exists", ["resume", "overwrite"])
def test_a_sink_replaces_nothing(if_exists: str, folder: Path) -> None:
    kinds, names = ("npy", "parquet", "arrow", "csv"), ("fifo", "link", "zero", "empty")
    for kind in kinds:
        os.mkfifo(folder / f"fifo.{kind}")
        (folder / f"link.{kind}").symlink_to(f"fifo.{kind}")
        (folder / f"zero.{kind}").symlink_to("/dev/zero")
        (folder / f"empty.{kind}").touch()
    before = state(folder)
    calls = [
        f"explain_batches(explainer, rows, {root}{f'{name}.{kind}'!r}, if_exists={if_exists!r}{options})"
        for kind in kinds
        for name in names
        for root, options in (("folder / ", ""), ("", ", filesystem=store"))
    ]
    for call, (error, message) in results(folder, calls).items():
        assert error == "ValueError" and "choose another path" in message, call
    assert state(folder) == before


def hidden_folder(folder: Path, sink: str) -> Path:
    return folder / (f".{sink}.skshapgpu" if "." in sink else f"{sink}/.skshapgpu")


@pytest.mark.parametrize("suffix", ["", ".npy", ".parquet"])
def test_a_hidden_folder_with_special_files(suffix: str, folder: Path) -> None:
    """A hidden folder may come from a stranger: FIFOs in it do not hang, and links in it are not followed."""
    (folder / "mine").mkdir()
    (folder / "mine" / "part-000000.arrow").write_text("mine")
    (folder / "letter").write_text("dear")
    calls = []
    for name in ("journal.json", "lock", "rows", "values", "parts", "checksums", "unwritten", "joined"):
        for kind in ("fifo", "letter", "mine", "zero"):
            sink = f"{name.partition('.')[0]}_{kind}{suffix}"
            hidden = hidden_folder(folder, sink)
            hidden.mkdir(parents=True)
            if kind == "fifo":
                os.mkfifo(hidden / name)
            else:
                (hidden / name).symlink_to(folder / kind)
            calls.append(f"explain_batches(explainer, rows, folder / {sink!r}, batch_size=99)")
    for call, (error, message) in results(folder, calls).items():
        is_guard = "'journal" in call or "'lock" in call
        assert error == ("ValueError" if is_guard else ""), (call, error, message)
        assert not error or "delete" in message
    assert (folder / "letter").read_text() == "dear"
    assert [path.read_text() for path in (folder / "mine").iterdir()] == ["mine"]


@pytest.mark.parametrize("suffix", ["", ".npy", ".parquet"])
def test_a_hidden_folder_that_is_a_link(suffix: str, folder: Path) -> None:
    """The files of the folder that it names are not deleted."""
    (folder / "mine").mkdir()
    (folder / "mine" / "letter").write_text("dear")
    hidden = hidden_folder(folder, f"out{suffix}")
    hidden.parent.mkdir(exist_ok=True)
    hidden.symlink_to(folder / "mine")
    call = f"explain_batches(explainer, rows, folder / 'out{suffix}')"
    assert results(folder, [call])[call][0] == "ValueError"
    assert [path.read_text() for path in (folder / "mine").iterdir()] == ["dear"]


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_a_folder_with_special_parts(kind: str, folder: Path) -> None:
    calls = []
    for number, name in enumerate(("fifo", "zero", "loop")):
        out = folder / f"out{number}"
        out.mkdir()
        if name == "fifo":
            os.mkfifo(out / f"part-000000.{kind}")
        else:
            (out / f"part-000000.{kind}").symlink_to(folder / name)
        calls.append(f"explain_batches(explainer, rows, {str(out)!r}, format={kind!r})")
    for error, message in results(folder, calls).values():
        assert error == "ValueError" and f"part-000000.{kind}" in message


def test_the_command_line(folder: Path) -> None:
    commands: list[list[str]] = []
    for name in SPECIAL:
        path = str(folder / name)
        commands += [
            ["info", path],
            ["save", path, "-o", str(folder / "new.npz")],
            ["save", str(folder / "model.npz"), "-o", path],
            ["explain", str(folder / "model.npz"), path, "-o", str(folder / "out.npy")],
            ["explain", path, str(folder / "rows.npy"), "-o", str(folder / "out.npy")],
            ["compare", path, path],
        ]
    before = state(folder)
    calls = [f"main({command!r})" for command in commands]
    assert set(results(folder, calls).values()) == {("", "1")}
    assert state(folder) == before


def test_the_rows_of_the_command_line(folder: Path) -> None:
    os.mkfifo(folder / "background.csv")
    options = ["--background", str(folder / "background.csv"), "-o", str(folder / "out.npy")]
    command = ["explain", str(folder / "model.onnx"), str(folder / "rows.npy"), *options]
    (folder / "model.onnx").write_bytes((TESTS / "fuzz/corpus/model_file/xgboost_regression").read_bytes())
    call = f"errors_of({command!r})"
    assert "background.csv' is a FIFO, not a regular file" in results(folder, [call])[call][1]


def test_the_leading_steps_of_a_model_of_mlflow(folder: Path) -> None:
    """Neither a FIFO nor a link to nothing counts as an explainer without steps."""
    calls = []
    for name in ("fifo", "zero", "loop"):
        (folder / f"mlflow_{name}").mkdir()
        (folder / f"mlflow_{name}" / _flavor._EXPLAINER).symlink_to(folder / "model.npz")
        (folder / f"mlflow_{name}" / _flavor._STEPS).symlink_to(folder / name)
        calls.append(f"skshapgpu.mlflow._flavor._load_folder(folder / 'mlflow_{name}', [], {{}})")
    outcomes = results(folder, ["__import__('skshapgpu.mlflow')", *calls])
    assert [error for error, _ in outcomes.values()] == ["", "ValueError", "ValueError", "OSError"]


def test_links_to_regular_files(folder: Path) -> None:
    """A link to a file is read. It is never replaced, even if the file is ours: the error names the file."""
    (folder / "link.npz").symlink_to("model.npz")
    (folder / "rows_link.npy").symlink_to("rows.npy")
    calls = [
        "TreeExplainer.load(folder / 'link.npz')",
        "explain_batches(folder / 'link.npz', folder / 'rows_link.npy', folder / 'out.npy').n_rows",
        "explain_batches(explainer, rows, folder / 'out.parquet').n_rows",
        "os.symlink('out.parquet', folder / 'out_link.parquet')",
        "explainer.save(folder / 'link.npz')",
        "explain_batches(explainer, rows, folder / 'out_link.parquet', if_exists='overwrite')",
    ]
    outcomes = results(folder, calls)
    assert [error for error, _ in outcomes.values()] == ["", "", "", "", "FileExistsError", "ValueError"]
    assert outcomes[calls[1]][1] == outcomes[calls[2]][1] == str(len(X))
    for call in calls[4:]:
        assert "is a link to" in outcomes[call][1]
    assert (folder / "link.npz").is_symlink() and (folder / "out_link.parquet").is_symlink()


def test_a_link_to_a_folder_is_a_folder(folder: Path) -> None:
    (folder / "parts").symlink_to("folder")
    call = "explain_batches(explainer, rows, folder / 'parts').n_rows"
    assert results(folder, [call, call]) == {call: ("", str(len(X)))}
    assert (folder / "folder" / "part-000000.parquet").is_file()


@pytest.mark.skipif(sys.platform != "linux", reason="names of any bytes")
@pytest.mark.parametrize("sink", ["", "out.parquet", "out.arrow", "out.csv"])
def test_names_that_are_not_utf8(sink: str, folder: Path) -> None:
    """pyarrow cannot open them: the error comes before any row, and nothing is left behind."""
    (folder / "a\udcff").mkdir()
    before = state(folder / "a\udcff")
    call = f"explain_batches(explainer, rows, folder / 'a\\udcff' / {sink!r})"
    error, message = results(folder, [call])[call]
    assert error == "ValueError" and "is not valid UTF-8" in message and "choose another path" in message
    assert state(folder / "a\udcff") == before


@pytest.mark.skipif(sys.platform != "linux", reason="names of any bytes")
def test_files_without_pyarrow_may_have_any_name(folder: Path) -> None:
    (folder / "a\udcff").mkdir()
    call = "explain_batches(explainer, rows, folder / 'a\\udcff' / 'out.npy').n_rows"
    outcomes = results(folder, [call, "explainer.save(folder / 'a\\udcff' / 'out.npz')"])
    assert [*outcomes.values()] == [("", str(len(X))), ("", "None")]
