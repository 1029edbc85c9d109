"""File systems besides the local one: S3 on a local server, fsspec's memory, and a subtree of pyarrow."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import pytest

#: Credentials: the server accepts any, and they must not appear in any output.
KEY, SECRET = "AKIAVERYSECRETKEY", "sEcReTsEcReTsEcReTsEcReT"


class Store:
    """A file system with files for a test.

    Attributes
    ----------
    given : dict
        Argument ``filesystem``, if the paths have no scheme.
    """

    def __init__(self, filesystem: Any, root: str, prefix: str, given: dict[str, Any]) -> None:
        self.filesystem, self._root, self._prefix, self.given = filesystem, root, prefix, given

    def place(self, name: str) -> str:
        """Return a path or URL for a user."""
        return self._prefix + name

    def write(self, name: str, content: bytes) -> str:
        path = f"{self._root}/{name}"
        if self.filesystem.type_name != "s3":
            self.filesystem.create_dir(os.path.dirname(path), recursive=True)
        with self.filesystem.open_output_stream(path, compression=None) as file:
            file.write(content)
        return self.place(name)

    def copy(self, local: Path, name: str) -> str:
        """Copy a local file or folder."""
        if local.is_dir():
            for path in local.rglob("*"):
                if path.is_file():
                    self.write(f"{name}/{path.relative_to(local).as_posix()}", path.read_bytes())
        else:
            self.write(name, local.read_bytes())
        return self.place(name)

    def read(self, name: str) -> bytes:
        with self.filesystem.open_input_file(f"{self._root}/{name}") as file:
            return file.read()

    def fetch(self, name: str, local: Path) -> Path:
        """Copy a file, or the files of a folder, to a local path."""
        names = [file_name for file_name in self.names() if file_name.startswith(f"{name}/")]
        for file_name in names or [name]:
            path = local / file_name.removeprefix(f"{name}/") if names else local
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self.read(file_name))
        return local

    def names(self) -> list[str]:
        """Return the names of all files."""
        fs = pytest.importorskip("pyarrow.fs")
        selector = fs.FileSelector(self._root, recursive=True, allow_not_found=True)
        begin = len(self._root.strip("/")) + 1
        infos = self.filesystem.get_file_info(selector)
        return sorted(info.path.strip("/")[begin:] for info in infos if info.type == fs.FileType.File)

    def delete(self, name: str) -> None:
        self.filesystem.delete_file(f"{self._root}/{name}")


def subtree(folder: Path) -> Store:
    """Return a store of a local folder's files that pyarrow does not recognize as local."""
    fs = pytest.importorskip("pyarrow.fs")
    (folder / "data").mkdir(parents=True)
    filesystem = fs.SubTreeFileSystem(os.fspath(folder), fs.LocalFileSystem())
    return Store(filesystem, "data", "data/", {"filesystem": filesystem})


def separate_readers() -> None:
    """Have fsspec's memory give each reader its own file: threads would share one file and its position."""
    from fsspec.implementations.memory import MemoryFileSystem

    shared = MemoryFileSystem._open
    if shared.__name__ == "open_separately":
        return

    def open_separately(self: Any, path: str, mode: str = "rb", **options: Any) -> Any:
        file = shared(self, path, mode, **options)
        return io.BytesIO(file.getvalue()) if mode == "rb" else file

    MemoryFileSystem._open = open_separately


def memory(name: str, by_url: bool = False) -> Store:
    """Return a store in memory, addressed by URLs or as a file system of fsspec."""
    fs, fsspec = pytest.importorskip("pyarrow.fs"), pytest.importorskip("fsspec")
    separate_readers()
    fsspec_memory = fsspec.filesystem("memory")
    filesystem = fs.PyFileSystem(fs.FSSpecHandler(fsspec_memory))
    filesystem.create_dir(f"/{name}")
    prefix = f"memory://{name}/" if by_url else f"{name}/"
    return Store(filesystem, f"/{name}", prefix, {} if by_url else {"filesystem": fsspec_memory})


def s3(bucket: str, query: str = "", user: str = "") -> Store:
    """Return a bucket of the server; the URL or the environment names the server."""
    fs = pytest.importorskip("pyarrow.fs")
    filesystem, _ = fs.FileSystem.from_uri(f"s3://{user}{bucket}/x{query}")
    return Store(filesystem, bucket, f"s3://{user}{bucket}/", {})
