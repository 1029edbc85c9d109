"""Folders for output: local folders, and folders of object stores and other file systems.

In a local folder, only the process that holds the lock on one of its files may write, and a file gets its
final name by a link or a rename. An object store has neither locks nor links. There, a call that begins to
write puts a random token and its digest into the folder, and it stops when it finds the token of another
call. It uploads a file from a local temporary file; the upload appears when it is complete.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
import tempfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from .._common.regular_files import open_regular, read_regular, require_regular
from .._files import storage
from .._files.locations import Place, RemotePath

_LOCK, _OWNER = "lock", "owner"

#: Number of files of a remote folder that are opened at the same time.
_FILES_AT_ONCE = 16

#: Bytes of a file that are read at once for its checksum.
_CHECKED_BYTES = 2**20

#: Size and time of the last change of a file.
Stamp = tuple[int, int | None]


class Folder(ABC):
    """Folder with files of an output."""

    place: Place
    has_lock: bool  # whether :meth:`hold` keeps all other calls from writing into the folder

    @abstractmethod
    def __truediv__(self, name: str) -> Folder:
        """Return a folder in this one."""

    @abstractmethod
    def exists(self) -> bool:
        """Return whether there is such a folder."""

    @abstractmethod
    def make(self) -> None:
        """Make the folder, and the folders above it, unless it exists.

        Raise ``ValueError`` if something else, such as a link to a folder, has its name.
        """

    @abstractmethod
    def entries(self) -> dict[str, Stamp | None]:
        """Return the names in the folder, sorted, with the stamps of files, and None for folders.

        Links are not followed.
        """

    @abstractmethod
    def stamp(self, name: str) -> Stamp | None:
        """Return the stamp of a file; None for a folder, and if there is nothing of that name."""

    @abstractmethod
    def read(self, name: str) -> bytes:
        """Return the content of a small file.

        Raise ``FileNotFoundError`` if there is nothing of that name, and ``ValueError`` if it is no regular
        file.
        """

    @abstractmethod
    def open(self, name: str) -> Any:
        """Open a file for pyarrow, which reads parts of it, or raise ``ValueError`` unless it is regular."""

    @abstractmethod
    def write(self, name: str, content: bytes) -> None:
        """Write a small file, completely or not at all. An existing file is replaced."""

    @abstractmethod
    def put(self, new_file: Path, name: str, is_ours: Callable[[str], bool]) -> None:
        """Give a complete file from :meth:`scratch` its name in this folder.

        A local folder moves the file; another file system copies it. Raise ``FileExistsError`` if the folder
        has a file of that name for which ``is_ours`` is false.
        """

    @abstractmethod
    def delete(self, name: str) -> None:
        """Delete a file, or a folder with its content, if it exists."""

    @abstractmethod
    def map_files(self, function: Callable[[str], bool], names: Iterable[str]) -> list[bool]:
        """Call a function for the names of several files, some at the same time if the folder is remote."""

    @abstractmethod
    def hold(self, output: str) -> contextlib.AbstractContextManager[None]:
        """Keep other calls out of the folder if it has a lock; see :meth:`take` for the other folders.

        Raise ``RuntimeError`` if another call is writing the output.
        """

    def take(self, call: str) -> None:  # noqa: B027 - a lock is enough
        """Declare that a call, given by its digest, writes from now on, which stops an earlier call."""

    def require_taken(self, output: str) -> None:  # noqa: B027 - a lock is enough
        """Raise ``RuntimeError`` if another call has begun to write since :meth:`take`."""

    def taken_by(self) -> str | None:
        """Return the digest of the call that began last; None if the folder has a lock or was deleted."""
        return None

    @abstractmethod
    def scratch(self) -> Path:
        """Return a local folder for files that are being written; it is empty after a crash."""

    def close(self) -> None:  # noqa: B027 - a local folder has nothing to close
        """Delete the folder of :meth:`scratch`, if it is a temporary one."""


class LocalFolder(Folder):
    """Folder of the local file system."""

    place: Path
    has_lock = True

    def __init__(self, place: Path) -> None:
        self.place = place

    def __truediv__(self, name: str) -> LocalFolder:
        return LocalFolder(self.place / name)

    def exists(self) -> bool:
        return self.place.exists()

    def make(self) -> None:
        with contextlib.suppress(FileExistsError):
            self.place.mkdir(parents=True)
        if not stat.S_ISDIR(os.lstat(self.place).st_mode):
            raise ValueError(
                f"{str(self.place)!r} is not a folder, or is a link to one: delete it, or choose another "
                "path for the output"
            )

    def entries(self) -> dict[str, Stamp | None]:
        if not self.place.exists():
            return {}
        return {path.name: _stamp(path) for path in sorted(self.place.iterdir())}

    def stamp(self, name: str) -> Stamp | None:
        try:
            return _stamp(self.place / name)
        except FileNotFoundError:
            return None

    def read(self, name: str) -> bytes:
        return read_regular(self.place / name, follow_links=False)

    def open(self, name: str) -> Any:
        import pyarrow

        require_regular(self.place / name, follow_links=False)
        return pyarrow.OSFile(os.fspath(self.place / name))

    def write(self, name: str, content: bytes) -> None:
        new_file = self.place / f"{name}.new"
        with create_file(new_file) as file:
            file.write(content)
            flush(file)
        os.replace(new_file, self.place / name)
        flush_folder(self.place)

    def append(self, name: str, content: bytes) -> None:
        """Add to the end of a file that :meth:`write` wrote."""
        with open_regular(self.place / name, "ab") as file:
            file.write(content)
            flush(file)

    def put(self, new_file: Path, name: str, is_ours: Callable[[str], bool]) -> None:
        storage.put(new_file, self.place / name, lambda path: is_ours(Path(path).name))
        flush_folder(self.place)

    def delete(self, name: str) -> None:
        path = self.place / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)

    def map_files(self, function: Callable[[str], bool], names: Iterable[str]) -> list[bool]:
        return [function(name) for name in names]

    @contextlib.contextmanager
    def hold(self, output: str) -> Iterator[None]:
        self.make()
        try:
            file = open_regular(self.place / _LOCK, "ab")
        except ValueError as error:
            raise ValueError(f"{error}: delete it, or choose another path for the output") from error
        with file:
            if not _locked(file.fileno()):
                raise RuntimeError(f"another call is writing {output!r}: wait for it, or name another output")
            yield

    def scratch(self) -> Path:
        return self.place


class RemoteFolder(Folder):
    """Folder of another file system."""

    place: RemotePath
    has_lock = False

    def __init__(self, place: RemotePath, upload_folder: RemotePath | None = None) -> None:
        self.place, self._upload_folder = place, upload_folder
        self._token: bytes | None = None
        self._scratch: tempfile.TemporaryDirectory[str] | None = None

    def __truediv__(self, name: str) -> RemoteFolder:
        return RemoteFolder(self.place / name)

    def exists(self) -> bool:
        return self.place.is_dir()

    def make(self) -> None:
        self.place.make()

    def entries(self) -> dict[str, Stamp | None]:
        return dict(sorted(self.place.entries().items()))

    def stamp(self, name: str) -> Stamp | None:
        try:
            return (self.place / name).stamp()
        except FileNotFoundError:
            return None

    def read(self, name: str) -> bytes:
        return (self.place / name).read_bytes()

    def open(self, name: str) -> Any:
        return (self.place / name).open()

    def write(self, name: str, content: bytes) -> None:
        (self.place / name).write_bytes(content)

    def put(self, new_file: Path, name: str, is_ours: Callable[[str], bool]) -> None:
        path = self.place / name
        if path.exists() and not is_ours(name):
            raise storage.not_ours(path)
        path.upload(new_file, self._upload_folder)

    def delete(self, name: str) -> None:
        (self.place / name).delete()

    def map_files(self, function: Callable[[str], bool], names: Iterable[str]) -> list[bool]:
        with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
            return list(pool.map(function, names))

    @contextlib.contextmanager
    def hold(self, output: str) -> Iterator[None]:
        try:
            yield
        finally:
            self.close()

    def take(self, call: str) -> None:
        self._token = f"{secrets.token_hex(16)} {call}".encode()
        self.make()
        self.write(_OWNER, self._token)

    def _last_token(self) -> bytes | None:
        try:
            return self.read(_OWNER)
        except FileNotFoundError:
            return None

    def taken_by(self) -> str | None:
        token = self._last_token()
        return None if token is None else token.decode(errors="replace").partition(" ")[2]

    def require_taken(self, output: str) -> None:
        if self._last_token() != self._token:
            raise RuntimeError(
                f"another call has begun to write {output!r}, so this one stops: let one call at a time "
                "write an output"
            )

    def scratch(self) -> Path:
        if self._scratch is None:
            self._scratch = tempfile.TemporaryDirectory(prefix="skshapgpu-")
        return Path(self._scratch.name)

    def close(self) -> None:
        if self._scratch is not None:
            self._scratch.cleanup()
            self._scratch = None


#: Names of the files, in the folder of a journal, with which calls keep each other out.
GUARDS = (_LOCK, _OWNER)


def open_folder(place: Place, upload_folder: str | None = None) -> Folder:
    """Return the folder at a place. Uploads in progress are kept in its subfolder ``upload_folder``."""
    if isinstance(place, Path):
        return LocalFolder(place)
    return RemoteFolder(place, None if upload_folder is None else place / upload_folder)


def create_file(path: Path) -> Any:
    """Open a new file. An existing file is unlinked, not truncated: it may be a hard link to the output."""
    path.unlink(missing_ok=True)
    return open(path, "xb")


def checksum(file: Any, n_bytes: int) -> int:
    """Return the CRC-32 of the next bytes of an open file, or raise ``ValueError`` if it has fewer."""
    value = 0
    while n_bytes:
        content = file.read(min(n_bytes, _CHECKED_BYTES))
        if not content:
            raise ValueError("the file is shorter than it should be")
        value, n_bytes = zlib.crc32(content, value), n_bytes - len(content)
    return value


def flush(file: Any) -> None:
    """Have the operating system write a file to disk."""
    file.flush()
    os.fsync(file.fileno())


def flush_folder(folder: Path) -> None:
    """Have the operating system write the names in a folder to disk, if it can."""
    if os.name == "nt":
        return
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _stamp(path: Path) -> Stamp | None:
    status = path.lstat()
    return None if stat.S_ISDIR(status.st_mode) else (status.st_size, status.st_mtime_ns)


def _locked(number: int) -> bool:
    """Lock a file for as long as it is open; return False if another process or call holds the lock."""
    try:
        if os.name == "nt":
            import msvcrt

            msvcrt.locking(number, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined, unused-ignore]
        else:
            import fcntl

            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True
