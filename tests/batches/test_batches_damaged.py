"""explain_batches: parts and rows that were damaged without a change of size, before a run is resumed."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.batches import TABLE, content, same

from skshapgpu import explain_batches
from skshapgpu.batches.journal import CHECKSUMS

SINKS = ("out", "out.parquet", "out.arrow", "out.csv", "out.npy")


class Killed(BaseException):
    """Exception that no handler catches."""


def explain(explainer: Any, sink: Path, n_rows: int | None = None, **options: Any) -> Any:
    """Explain the rows; with ``n_rows``, kill the call when these rows are written."""

    def kill(done: int, _: int | None) -> None:
        if n_rows is not None and done >= n_rows:
            raise Killed

    return explain_batches(explainer, TABLE, sink, batch_size=30, progress=kill, **options)


def hidden_folder(sink: Path) -> Path:
    return sink / ".skshapgpu" if not sink.suffix else sink.with_name(f".{sink.name}.skshapgpu")


def damage(path: Path, place: float = 0.5) -> None:
    """Change a bit of a file, but not its size and not its time."""
    status, data = path.stat(), bytearray(path.read_bytes())
    data[int(place * (len(data) - 1))] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def result_of(sink: Path) -> Any:
    return sink.read_bytes() if sink.suffix == ".csv" else content(sink)


def equal(a: Any, b: Any) -> bool:
    return a == b if isinstance(a, bytes) else same(a, b)


@pytest.mark.parametrize("sink", SINKS[1:])
@pytest.mark.parametrize("place", [0.01, 0.5, 0.99])
def test_hidden_parts_are_computed_again(sink: str, place: float, tmp_path: Path, explainer: Any) -> None:
    (tmp_path / "whole").mkdir()
    explain(explainer, tmp_path / "whole" / sink)
    with pytest.raises(Killed):
        explain(explainer, tmp_path / sink, 90)
    hidden = hidden_folder(tmp_path / sink)
    parts = sorted(hidden.rglob("part-*")) or [hidden / "values"]
    damage(parts[len(parts) // 2], place if parts[0].name != "values" else max(place, 0.2))
    result = explain(explainer, tmp_path / sink)
    assert result.n_resumed in ((0,) if sink.endswith("npy") else (30, 60)) and result.n_rows == 150
    assert equal(result_of(tmp_path / sink), result_of(tmp_path / "whole" / sink))


@pytest.mark.parametrize("form", ["parquet", "arrow"])
@pytest.mark.parametrize("finished", [False, True])
@pytest.mark.parametrize("if_exists", ["resume", "overwrite", "error"])
def test_a_damaged_part_of_a_folder_is_refused(
    form: str, finished: bool, if_exists: str, tmp_path: Path, explainer: Any
) -> None:
    """The folder is the user's, who may have changed the part. The same call writes a deleted part again."""
    sink = tmp_path / "out"
    if finished:
        explain(explainer, sink, format=form)
    else:
        with pytest.raises(Killed):
            explain(explainer, sink, 120, format=form)
    part = sorted(sink.glob("part-*"))[1]
    before = part.read_bytes()
    for place in (0.01, 0.3, 0.6):
        damage(part, place)
        changed = part.read_bytes()
        with pytest.raises(ValueError, match=rf"changed since, such as '{part.name}': .* delete these files"):
            explain(explainer, sink, if_exists=if_exists, format=form)
        assert part.read_bytes() == changed
        part.write_bytes(before)
    part.unlink()
    if if_exists == "resume":
        assert explain(explainer, sink, format=form).n_resumed == 30
        assert part.read_bytes() == before


@pytest.mark.parametrize("sink", ["out", "out.parquet", "out.npy"])
def test_checksums_that_are_gone(sink: str, tmp_path: Path, explainer: Any) -> None:
    """Rows without a checksum are computed again; a finished output needs none."""
    with pytest.raises(Killed):
        explain(explainer, tmp_path / sink, 90)
    checksums = hidden_folder(tmp_path / sink) / ("rows" if sink.endswith("npy") else CHECKSUMS)
    for wrong in (None, b"", b"\xff\x00\n", b"90\n", b"-90 0"):
        shutil.copytree(tmp_path, tmp_path.with_name(f"{tmp_path.name}-copy"))
        folder = tmp_path.with_name(f"{tmp_path.name}-copy")
        path = folder / checksums.relative_to(tmp_path)
        path.unlink()
        if wrong is not None:
            path.write_bytes(wrong)
        result = explain(explainer, folder / sink)
        assert (result.n_resumed, result.n_rows) == (0, 150)
        shutil.rmtree(folder)
    assert explain(explainer, tmp_path / sink).n_resumed >= 90
    if not Path(sink).suffix:
        checksums.unlink()
    assert explain(explainer, tmp_path / sink).n_resumed == 150


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_hard_link_is_not_written_to(tmp_path: Path, explainer: Any) -> None:
    """A copy by hard links, as some backups make it, keeps its content when the other run goes on."""
    for sink in SINKS:
        folder = tmp_path / sink.replace(".", "_")
        folder.mkdir()
        with pytest.raises(Killed):
            explain(explainer, folder / sink, 90)
        shutil.copytree(folder, tmp_path / "copy", copy_function=os.link)
        before = contents(tmp_path / "copy")
        assert explain(explainer, folder / sink).n_rows == 150
        assert contents(tmp_path / "copy") == before
        shutil.rmtree(tmp_path / "copy")


@pytest.mark.parametrize(
    "dtype, shape, message",
    [
        ("<f8", "(-1, 4)", "has the shape"),
        ("<f8", "(-150, -4)", "has the shape"),
        ("<f8", "(True, 4)", "has the shape"),
        ("<f8", "(150, -4)", "has the shape"),
        ("<U0", "(150, 4)", "has the shape"),
        ("|V0", "(150, 4)", "has the shape"),
        (("<f8", (2,)), "(75, 4)", "has the shape"),
        ("|O", "(150, 4)", "holds Python objects"),
        ("<f8", f"({10**30}, 4)", "is cut off"),
        ("<f8", "(151, 4)", "is cut off"),
        ("<f8", "2 * 3", "malformed"),
    ],
)
@pytest.mark.parametrize("by_columns", [False, True])
def test_npy_headers_that_are_none(
    dtype: Any, shape: str, message: str, by_columns: bool, tmp_path: Path, explainer: Any
) -> None:
    header = f"{{'descr': {dtype!r}, 'fortran_order': {by_columns}, 'shape': {shape}, }}\n".encode()
    start = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little")
    (tmp_path / "rows.npy").write_bytes(start + header + np.zeros((150, 4)).tobytes())
    with pytest.raises(ValueError, match=rf"rows\.npy' cannot be read: .*{message}"):
        explain_batches(explainer, tmp_path / "rows.npy", tmp_path / "out.npy")


@pytest.mark.parametrize(
    "change",
    [
        {"call": 5},
        {"call": {}},
        {"call": {"batch_rows": "30"}},
        {"call": {"batch_rows": 0}},
        {"finished": []},
        {"finished": {}},
        {"finished": {"n_rows": 1.5, "files": []}},
        {"finished": {"n_rows": 1, "files": [["a"]]}},
        {"finished": {"n_rows": 1, "files": [5]}},
        {"ours": 5},
        {"ours": [5]},
    ],
)
def test_journals_that_are_none(change: dict[str, Any], tmp_path: Path, explainer: Any) -> None:
    for sink in ("out", "out.npy"):
        explain(explainer, tmp_path / sink)
        journal = hidden_folder(tmp_path / sink) / "journal.json"
        before = journal.read_text()
        journal.write_text(json.dumps(json.loads(before) | change))
        with pytest.raises(ValueError, match="cannot be read as the journal of an output"):
            explain(explainer, tmp_path / sink)
        journal.write_text("[" * 100_000)
        with pytest.raises(ValueError, match="cannot be read as the journal of an output"):
            explain(explainer, tmp_path / sink)
        journal.write_text(before)
