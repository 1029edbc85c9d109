"""Files that change while they are opened or read: they are read within their size, or named in an error."""

from __future__ import annotations

import os
import stat
import sys
import tracemalloc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor

from skshapgpu import TreeExplainer, explain_batches
from skshapgpu._common import regular_files
from skshapgpu._common.regular_files import open_regular, read_regular, require_regular

X, Y = load_diabetes(return_X_y=True, as_frame=True)
EXPLAINER = TreeExplainer(RandomForestRegressor(2, max_depth=3, random_state=0).fit(X, Y))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="FIFOs")
@pytest.mark.parametrize("mode", ["rb", "r+b", "ab"])
def test_the_kind_is_checked_after_the_opening(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A FIFO or a link may have replaced the file after the check of its path."""
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "mine").write_bytes(b"mine")
    (tmp_path / "link").symlink_to("mine")
    with pytest.raises(ValueError, match="fifo' is a FIFO, not a regular file"):
        open_regular(tmp_path / "fifo", mode)
    if mode != "rb":
        with pytest.raises(ValueError, match="link' is a link, not a regular file"):
            open_regular(tmp_path / "link", mode)
    monkeypatch.setattr(regular_files, "require_regular", lambda *args, **options: None)
    n_open = len(os.listdir("/dev/fd")) if os.path.exists("/dev/fd") else 0
    with pytest.raises((ValueError, OSError), match=r"is a FIFO|No such device"):
        open_regular(tmp_path / "fifo", mode)
    with pytest.raises(OSError, match="link"):
        open_regular(tmp_path / "link", mode, follow_links=False)
    assert not n_open or len(os.listdir("/dev/fd")) == n_open


def test_modes_of_opening(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "file")
    with pytest.raises(FileNotFoundError):
        require_regular(tmp_path / "file")
    with open_regular(tmp_path / "file", "ab") as file:
        file.write(b"abc")
    with open_regular(tmp_path / "file", "r+b") as file:
        file.write(b"x")
    assert read_regular(tmp_path / "file") == b"xbc"
    (tmp_path / "usual").touch()
    assert (tmp_path / "file").stat().st_mode == (tmp_path / "usual").stat().st_mode


@pytest.mark.parametrize("size, content", [(2, b"ab"), (3, b"abc"), (4, None)])
def test_a_file_is_read_within_its_size(
    size: int, content: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The size is that of the opened file; the file may grow or shrink afterwards."""
    (tmp_path / "file").write_bytes(b"abc")
    status = SimpleNamespace(st_size=size, st_mode=stat.S_IFREG)
    monkeypatch.setattr(regular_files.os, "fstat", lambda number: status)
    if content is None:
        with pytest.raises(ValueError, match="file' was shortened while it was read: read it again"):
            read_regular(tmp_path / "file")
    else:
        assert read_regular(tmp_path / "file") == content


def test_a_file_that_is_larger_than_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file with holes takes little of the disk. The error is raised before memory is allocated."""
    path = tmp_path / "model"
    with open(path, "wb") as file:
        file.write(b"tree\n")
        file.truncate(2**30)
    monkeypatch.setattr(regular_files, "machine_bytes", lambda: 2**30 - 1)
    tracemalloc.start()
    try:
        with pytest.raises(MemoryError, match=r"model' has 1,073,741,824 bytes, .* raise the memory limit"):
            TreeExplainer(path)
        assert tracemalloc.get_traced_memory()[1] < 2**24
    finally:
        tracemalloc.stop()


@pytest.mark.skipif(sys.platform != "linux", reason="limits of the address space")
def test_a_file_for_which_no_memory_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system refuses a terabyte even if the machine is said to have more."""
    with open(tmp_path / "model", "wb") as file:
        file.truncate(2**40)
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_AS)
    monkeypatch.setattr(regular_files, "machine_bytes", lambda: None)
    resource.setrlimit(resource.RLIMIT_AS, (2**39, limits[1]))
    try:
        with pytest.raises(MemoryError, match="model' has 1,099,511,627,776 bytes"):
            TreeExplainer(tmp_path / "model")
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


@pytest.mark.parametrize("kind", ["csv", "csv.gz"])
def test_rows_that_are_added_while_a_file_is_read(kind: str, tmp_path: Path) -> None:
    """A program that writes faster than rows are read would otherwise keep the call busy for ever."""
    pytest.importorskip("pyarrow.csv")
    import gzip

    from skshapgpu.batches.csv_files import CsvFile, CsvFormat

    path = tmp_path / f"rows.{kind}"
    rows = b"1.25,abcdefgh\n" * 2**19
    rows = gzip.compress(rows, 0) if kind.endswith("gz") else rows
    path.write_bytes(gzip.compress(b"a,b\n") + rows if kind.endswith("gz") else b"a,b\n" + rows)
    n_rows, n_batches = 0, 0
    for batch in CsvFile(path, CsvFormat(), "csv")._string_batches(["a"]):
        n_rows, n_batches = n_rows + batch.num_rows, n_batches + 1
        assert n_batches < 10
        with open(path, "ab") as file:
            file.write(rows)
    assert n_rows == 2**19


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
@pytest.mark.parametrize("kind", ["parquet", "arrow", "csv", "npy"])
@pytest.mark.parametrize("change", ["cut", "grown", "replaced", "gone", "fifo"])
def test_rows_that_change_between_batches(kind: str, change: str, tmp_path: Path) -> None:
    """The values that were written before are kept; no error is one of the operating system's signals."""
    arrow, feather = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.feather")
    parquet, csv = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow.csv")
    table, path = arrow.Table.from_pandas(X, preserve_index=False), tmp_path / f"rows.{kind}"
    if kind == "npy":
        np.save(path, np.tile(X, (20, 1)))
    else:
        table = arrow.concat_tables([table] * 20)
        write: Any = {"parquet": parquet.write_table, "arrow": feather.write_feather, "csv": csv.write_csv}
        write[kind](table, path)

    changed = False

    def meddle(done: int, n_rows: int | None) -> None:
        nonlocal changed
        if changed or done < 50:
            return
        changed = True
        if change == "cut":
            os.truncate(path, path.stat().st_size // 2)
        elif change == "grown":
            path.write_bytes(path.read_bytes() + b"1" * 100)
        else:
            content = path.read_bytes()
            path.unlink()
            if change == "replaced":
                path.write_bytes(content)
            elif change == "fifo":
                os.mkfifo(path)

    with pytest.raises((ValueError, FileNotFoundError), match=f"rows.{kind}"):
        explain_batches(EXPLAINER, path, tmp_path / "out.npy", batch_size=50, progress=meddle)
    assert not (tmp_path / "out.npy").exists()
