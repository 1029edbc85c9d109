"""URLs: which paths are URLs, which parts are shown, and errors for URLs that nothing opens."""

from __future__ import annotations

import builtins
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest
from helpers import stores

from skshapgpu._files import locations
from skshapgpu._files.locations import RemotePath, is_inside, is_url, locate, locate_all, shown

fs = pytest.importorskip("pyarrow.fs")


@pytest.mark.parametrize(
    "url, want",
    [
        ("s3://bucket/a b/x.parquet", "s3://bucket/a b/x.parquet"),
        ("s3://bucket/values/", "s3://bucket/values/"),
        ("s3://bucket", "s3://bucket"),
        ("s3://key:secret@bucket/x?region=y", "s3://bucket/x"),
        ("s3://key:secret@bucket?region=y", "s3://bucket"),
        ("s3://key:sec/ret@bucket/x", "s3://bucket/x"),
        ("s3://host:9000/x@y#z", "s3://host:9000/x@y#z"),
        (
            "abfs://container:secret@account.dfs.core.windows.net/x",
            "abfs://container@account.dfs.core.windows.net/x",
        ),
        ("abfs://:secret@account.blob.core.windows.net/x", "abfs://account.blob.core.windows.net/x"),
        ("gs://bucket/x", "gs://bucket/x"),
        ("C:\\rows.parquet", "C:\\rows.parquet"),
        ("c://rows.parquet", "c://rows.parquet"),
        ("/data/x://y", "/data/x://y"),
    ],
)
def test_what_is_shown(url: str, want: str) -> None:
    assert shown(url) == want
    assert is_url(url) == (not url.lower().startswith(("c:", "/")))


def test_paths_in_file_systems() -> None:
    pytest.importorskip("fsspec")
    place = locate("memory://a/b.csv.gz")
    assert isinstance(place, RemotePath)
    assert (place.path, place.name, place.suffix, place.suffixes) == (
        "/a/b.csv.gz",
        "b.csv.gz",
        ".gz",
        [".csv", ".gz"],
    )
    assert (str(place), str(place.parent), str(place.parent / "c")) == (
        "memory://a/b.csv.gz",
        "memory://a",
        "memory://a/c",
    )
    assert (place.parent / "c").path == "/a/c" and locate(place) is place
    one, other = locate_all(["memory://a/x", "memory://a/y z"])
    assert isinstance(one, RemotePath) and isinstance(other, RemotePath)
    assert (one.path, other.path) == ("/a/x", "/a/y z") and one.filesystem.equals(other.filesystem)
    assert is_inside(one, one) and is_inside(one, locate("memory://a/"))
    assert not is_inside(one, other) and not is_inside(locate("memory://ab"), locate("memory://a"))
    assert not is_inside(one, Path("/a")) and not is_inside(Path("/a/x"), locate("memory://a"))


def test_local_urls(tmp_path: Path) -> None:
    path = tmp_path / "a b%.txt"
    assert locate(path.as_uri()) == path == locate(path) == locate(str(path))
    with pytest.raises(ValueError, match=r"names another machine: a local file is file:///PATH"):
        locate("file://host/x")


def test_s3_urls(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are parsed without a connection, if they name a region."""
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    query = "?region=eu-west-1&endpoint_override=127.0.0.1%3A1"
    for url, want in (
        ("s3://bucket/a b/#x", "bucket/a b/#x"),
        ("s3://bucket/a%20b/", "bucket/a b"),
        ("s3://bucket", "bucket"),
    ):
        place = locate(url + query)
        assert isinstance(place, RemotePath) and place.path == want and place.appears_whole
        assert place.filesystem.type_name == "s3"


@pytest.mark.parametrize(
    "url, error, message",
    [
        (
            "nonsense://a/b",
            ValueError,
            "'nonsense://a/b': neither pyarrow nor fsspec can open",
        ),
        ("s3://key:secret%ZZ@bucket/x", ValueError, "'s3://bucket/x' is not a valid URL$"),
        ("s3://bucket/x?colour=red", ValueError, "is not a valid URL: Unexpected query parameter"),
        ("https://host/x?signature=secret", ValueError, "'https://host/x' has a query or a user"),
        ("https://user:secret@host/x", ValueError, "'https://host/x' has a query or a user"),
    ],
)
def test_urls_that_nothing_opens(url: str, error: type[Exception], message: str) -> None:
    pytest.importorskip("fsspec")
    with pytest.raises(error, match=message) as raised:
        locate(url)
    assert raised.value.__suppress_context__ or raised.value.__context__ is None


@pytest.mark.parametrize(
    "module, url, message",
    [
        ("pyarrow.fs", "s3://key:secret@bucket/x", r"'s3://bucket/x': .* pip install pyarrow"),
        (
            "fsspec.core",
            "sftp://user:secret@host/x",
            "'sftp://host/x': pyarrow does not know the scheme sftp://",
        ),
    ],
)
def test_packages_that_are_not_installed(
    module: str, url: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported: Any = builtins.__import__

    def without(name: str, *args: Any) -> Any:
        if name == module:
            raise ImportError(name)
        return imported(name, *args)

    monkeypatch.setattr(builtins, "__import__", without)
    monkeypatch.delitem(sys.modules, module, raising=False)
    with pytest.raises(ImportError, match=message):
        locate(url)


def test_an_upload_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = stores.subtree(tmp_path / "store")
    place = locate(store.write("x", b"before"), **store.given)
    assert isinstance(place, RemotePath)
    (tmp_path / "new").write_bytes(b"after")
    monkeypatch.setattr(locations, "_COPIED_BYTES", 1)
    copied = open

    class Failing:
        def __init__(self, path: Any, mode: str) -> None:
            self._file, self._left = copied(path, mode), 3

        def read(self, n: int) -> bytes:
            self._left -= 1
            if not self._left:
                raise OSError("the disk is gone")
            return self._file.read(n)

        def __enter__(self) -> Any:
            return self

        def __exit__(self, *error: Any) -> None:
            self._file.close()

    for is_store in (False, True):
        with monkeypatch.context() as patched:
            patched.setattr(locations, "open", Failing, raising=False)
            patched.setattr(RemotePath, "appears_whole", is_store)
            with pytest.raises(OSError, match="the disk is gone"):
                place.upload(tmp_path / "new")
        if not is_store:
            assert store.names() == ["x"] and store.read("x") == b"before"
    assert store.names() == []  # not a fragment that would look complete
    place.upload(tmp_path / "new")
    assert store.names() == ["x"] and store.read("x") == b"after"


@pytest.mark.parametrize("change", ["renamed", "written"])
def test_a_folder_is_deleted_while_another_call_changes_it(
    change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    place = locate(f"memory://{uuid.uuid4().hex}")
    (tmp_path / "x").write_text("content")
    for name in "abc":
        (place / "in" / name).upload(tmp_path / "x")
    kind, n_changes = type(memory), [0]
    expand, is_file = kind.expand_path, kind.isfile

    def write(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = expand(self, *args, **kwargs)
        if n_changes[0] < 2:
            n_changes[0] += 1
            memory.pipe_file(f"{place.path}/in/{n_changes[0]}", b"late")
        return result

    def rename(self: Any, path: str) -> bool:
        result = is_file(self, path)
        if result and n_changes[0] < 2:
            n_changes[0] += 1
            memory.store.pop(path)
        return result

    monkeypatch.setattr(kind, *{"written": ("expand_path", write), "renamed": ("isfile", rename)}[change])
    place.delete()
    assert n_changes == [2] and not place.exists()


def test_a_file_is_renamed_while_its_folder_is_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    place = locate(f"memory://{uuid.uuid4().hex}")
    (tmp_path / "x").write_text("content")
    for name in ("a", "in/b", "c"):
        (place / name).upload(tmp_path / "x")
    kind = type(memory)
    info = kind.info

    def rename(self: Any, path: str, **kwargs: Any) -> Any:
        if path.endswith("/a"):
            memory.store.pop(f"{place.path}/a", None)
        return info(self, path, **kwargs)

    monkeypatch.setattr(kind, "info", rename)
    stamps = place.entries(recursive=True)
    assert sorted(stamps) == ["c", "in", "in/b"]
    assert stamps["in"] is None and [stamps[name][0] for name in ("c", "in/b")] == [7, 7]
