"""Foreign files are never replaced or deleted: outputs of explain_batches, and explainer files."""

from __future__ import annotations

import os
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor

from skshapgpu import TreeExplainer, explain_batches
from skshapgpu._files import storage
from skshapgpu.batches import sinks
from skshapgpu.command_line import main

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")
pq = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("pyarrow.dataset")

X, Y = load_diabetes(return_X_y=True, as_frame=True)
EXPLAINER = TreeExplainer(RandomForestRegressor(3, max_depth=4, random_state=0).fit(X, Y))
OTHER = TreeExplainer(RandomForestRegressor(3, max_depth=4, random_state=1).fit(X, Y))
SINKS = ("out.parquet", "out.arrow", "out.npy", "out")
WANT, OTHER_WANT = EXPLAINER.shap_values(X), OTHER.shap_values(X)


def values_in(path: Path) -> np.ndarray:
    if path.suffix == ".npy":
        return np.load(path)
    if path.suffix == ".arrow":
        return np.column_stack(pa.ipc.open_file(path).read_all().columns)
    return np.column_stack(pq.read_table(path).columns)


def explain(sink: Path, explainer: Any = EXPLAINER, **options: Any) -> Any:
    return explain_batches(explainer, X, sink, batch_size=100, **options)


def of_user(sink: Path) -> Path:
    """Write a user's file at the path of an output or, in a folder, of a part."""
    path = sink / "part-000001.parquet" if sink.suffix == "" else sink
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    frame = pd.DataFrame({"mine": np.arange(100.0)})
    if path.suffix == ".npy":
        np.save(path, frame.to_numpy())
    elif path.suffix == ".arrow":
        with pa.ipc.new_file(path, pa.Schema.from_pandas(frame)) as writer:
            writer.write_table(pa.Table.from_pandas(frame))
    else:
        frame.to_parquet(path)
    return path


class Killed(BaseException):
    """Exception that no handler catches."""


def interrupted(sink: Path, monkeypatch: Any, explainer: Any = EXPLAINER, **options: Any) -> None:
    """Begin an output and kill the call after two batches."""

    def kill(done: int, n_rows: int | None) -> None:
        if done >= 200:
            raise Killed

    with pytest.raises(Killed):
        explain(sink, explainer, progress=kill, **options)


@pytest.mark.parametrize("sink", SINKS)
@pytest.mark.parametrize("state", ["none", "finished", "unfinished", "replacing"])
@pytest.mark.parametrize("if_exists", ["resume", "overwrite"])
def test_a_file_of_the_user_stays(
    sink: str, state: str, if_exists: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user's file is kept, even if a hidden folder says that it is an output."""
    path = tmp_path / sink
    if state in ("finished", "replacing"):
        explain(path)
    if state in ("unfinished", "replacing"):
        interrupted(path, monkeypatch, OTHER if state == "replacing" else EXPLAINER, if_exists="overwrite")
    mine = of_user(path)
    content = mine.read_bytes()
    for explainer in (EXPLAINER, OTHER):
        with pytest.raises(ValueError, match=r"out.*: (choose another path|name an empty)") as raised:
            explain(path, explainer, if_exists=if_exists)
        assert mine.name in str(raised.value)
        assert mine.read_bytes() == content


@pytest.mark.parametrize("sink", SINKS[:3])
def test_a_file_that_comes_while_rows_are_explained_stays(sink: str, tmp_path: Path) -> None:
    """A file created after the last check is kept, too; the same call succeeds once the file is gone."""

    def put_there(done: int, n_rows: int | None) -> None:
        of_user(tmp_path / sink)

    with pytest.raises(
        FileExistsError, match=f"{sink}' exists, and is not a file that skshapgpu would replace"
    ):
        explain(tmp_path / sink, progress=put_there)
    content = (tmp_path / sink).read_bytes()
    assert content == of_user(tmp_path / "again" / sink).read_bytes()
    (tmp_path / sink).unlink()
    result = explain(tmp_path / sink)
    assert result.n_resumed >= 400
    np.testing.assert_array_equal(values_in(tmp_path / sink), WANT)


def test_a_file_that_comes_at_the_last_moment_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for sink in ("a.npy", "a.parquet"):
        link = os.link
        moment = [tmp_path / sink]

        def late(source: Any, target: Any, link: Any = link, moment: Any = moment) -> None:
            if Path(target) == moment[0]:
                of_user(Path(target))
            link(source, target)

        with monkeypatch.context() as patched:
            patched.setattr(os, "link", late)
            with pytest.raises(FileExistsError, match="not a file that skshapgpu would replace"):
                explain(tmp_path / sink)
        assert values_in(tmp_path / sink).shape == (100, 1)


def test_a_file_system_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    for sink in SINKS:
        explain(tmp_path / sink)
        np.testing.assert_array_equal(values_in(tmp_path / sink), WANT)
        explain(tmp_path / sink, OTHER, if_exists="overwrite")
        np.testing.assert_array_equal(values_in(tmp_path / sink), OTHER_WANT)


@pytest.mark.parametrize("sink", SINKS)
def test_an_output_of_ours_is_known_by_its_content(sink: str, tmp_path: Path) -> None:
    """A copy that includes the hidden folder counts as an output, unless a byte of it was changed."""
    folder = tmp_path / "first"
    folder.mkdir()
    explain(folder / sink)
    shutil.copytree(folder, tmp_path / "copied")
    assert explain(tmp_path / "copied" / sink).n_resumed == len(X)
    assert explain(tmp_path / "copied" / sink, OTHER, if_exists="overwrite").n_resumed == 0
    np.testing.assert_array_equal(values_in(tmp_path / "copied" / sink), OTHER_WANT)
    path = folder / sink
    if path.is_dir():
        path = path / "part-000002.parquet"
        pq.write_table(pa.table({"x": [1.0]}), path)
    else:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    changed = path.read_bytes()
    for if_exists in ("resume", "overwrite"):
        with pytest.raises(ValueError, match="changed"):
            explain(folder / sink, if_exists=if_exists)
    assert path.read_bytes() == changed


def test_a_digest_sees_large_files(tmp_path: Path) -> None:
    """The digest depends on the size and on bytes from the beginning to the end."""
    size = 3 * sinks._DIGEST_BYTES * sinks._DIGEST_PLACES
    (tmp_path / "large").write_bytes(bytes(size))
    before = sinks._digest(tmp_path / "large")
    assert before == sinks._digest(tmp_path / "large")
    longest = 4 * sinks._DIGEST_BYTES  # more than the distance of two places
    for place, change in ((0, 1), (size // 2, longest), (size - 1, 1), (size, 1)):
        with open(tmp_path / "large", "r+b") as file:
            file.seek(place)
            file.write(b"x" * change)
        result = sinks._digest(tmp_path / "large")
        assert result != before
        before = result


@pytest.mark.parametrize("sink", SINKS)
@pytest.mark.parametrize("if_exists", ["error", "resume"])
def test_an_output_that_was_deleted_is_forgotten(sink: str, if_exists: str, tmp_path: Path) -> None:
    """No data can be lost, so another call starts from scratch, whatever the hidden folder records."""
    path = tmp_path / sink
    for explainer, want in ((EXPLAINER, WANT), (EXPLAINER, WANT), (OTHER, OTHER_WANT)):
        result = explain(path, explainer, if_exists=if_exists)
        assert result.n_resumed == 0
        np.testing.assert_array_equal(values_in(path), want)
        for part in result.paths:
            part.unlink()
    path = tmp_path / f"resized-{sink}"
    assert explain(path).batch_rows == 100
    assert explain_batches(EXPLAINER, X, path).n_resumed == len(X)


def test_parts_that_were_deleted_are_made_again(tmp_path: Path) -> None:
    paths = explain(tmp_path / "out").paths
    for path in (paths[2], paths[4]):
        path.unlink()
    with pytest.raises(ValueError, match="finished output of another call"):
        explain(tmp_path / "out", OTHER)
    assert explain(tmp_path / "out").n_resumed == 200
    np.testing.assert_array_equal(values_in(tmp_path / "out"), WANT)


def test_an_unfinished_output_of_another_call_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for sink in SINKS:
        interrupted(tmp_path / sink, monkeypatch)
        with pytest.raises(ValueError, match="is the unfinished output of another call"):
            explain(tmp_path / sink, OTHER)
        assert explain(tmp_path / sink).n_resumed >= 100
        np.testing.assert_array_equal(values_in(tmp_path / sink), WANT)


def test_explainers_are_saved_over_explainers_only(tmp_path: Path) -> None:
    X.to_csv(tmp_path / "rows.csv")
    np.savez(tmp_path / "arrays.npz", header=np.arange(3), X=X)
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("header.json", '{"format": "another"}')
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    (tmp_path / "cut.npz").write_bytes(b"PK\x03\x04header.json")
    (tmp_path / "empty").touch()
    with zipfile.ZipFile(tmp_path / "packed.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", '{"format": "skshapgpu explainer"' + " " * 10**6 + "}")
    for name in ("rows.csv", "arrays.npz", "other.zip", "cut.npz", "empty", "packed.npz", "nowhere"):
        path = tmp_path / name
        content = path.read_bytes() if path.exists() else b""
        message = "exists, and is not a file that skshapgpu would replace"
        if path.is_symlink():
            message = "is a link to '.*gone', and links are not replaced: pass the path of the file itself"
        with pytest.raises(FileExistsError, match=f"{name}' {message}"):
            EXPLAINER.save(path)
        assert (path.read_bytes() if path.exists() else b"") == content
    assert not list(tmp_path.glob(".*"))
    EXPLAINER.save(tmp_path / "new")
    OTHER.save(tmp_path / "new")
    np.testing.assert_array_equal(TreeExplainer.load(tmp_path / "new").shap_values(X), OTHER_WANT)


def test_a_file_that_comes_while_an_explainer_is_written_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(source: Any, target: Any, link: Any = os.link) -> None:
        Path(target).write_text("mine")
        link(source, target)

    monkeypatch.setattr(os, "link", late)
    with pytest.raises(FileExistsError, match="not a file that skshapgpu would replace"):
        EXPLAINER.save(tmp_path / "explainer.npz")
    assert [path.name for path in tmp_path.iterdir()] == ["explainer.npz"]
    assert (tmp_path / "explainer.npz").read_text() == "mine"


def test_the_command_line_replaces_its_own_files_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    EXPLAINER.save(tmp_path / "model.npz")
    X.to_parquet(tmp_path / "rows.parquet")
    mine = of_user(tmp_path / "out.parquet")
    content = mine.read_bytes()
    arguments = [
        "explain",
        tmp_path / "model.npz",
        tmp_path / "rows.parquet",
        "-o",
        mine,
        "--if-exists",
        "overwrite",
    ]
    assert main([str(argument) for argument in arguments]) == 1
    assert "exists, and is no output of 'skshapgpu explain'" in capsys.readouterr().err
    monkeypatch.setattr(storage, "write", None)  # it is refused before any work
    assert main(["save", str(tmp_path / "model.npz"), "-o", str(mine)]) == 1
    assert "not a file that skshapgpu would replace" in capsys.readouterr().err
    assert mine.read_bytes() == content
