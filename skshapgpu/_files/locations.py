"""Places of files: local paths, and paths in other file systems, such as object stores.

A path with a scheme (``s3://bucket/rows.parquet``) is opened by pyarrow if pyarrow knows the scheme, and by
fsspec otherwise. Other paths are local, unless the caller passes a file system. A URL may hold
credentials, so it is never shown as it is: :func:`shown` returns it without its user and query.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

import numpy as np

from .._common.regular_files import open_regular, read_regular

#: The beginning of a path with a scheme. A single letter is not a scheme but a drive of Windows.
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]+)://")

#: Characters of a URL that are not percent-encoded before pyarrow parses it.
_SAFE = "%/:?[]@!$&'()*+,;=~-._"

#: Schemes in whose URLs the user is not a credential but the container of the data.
_CONTAINER_AS_USER = ("abfs", "abfss")

#: Types of file systems, as pyarrow names them, in which a file appears only when it is complete. These file
#: systems do not have folders.
_OBJECT_STORES = {
    *("s3", "gcs", "abfs"),
    *(f"py::fsspec+{name}" for name in ("s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "oss")),
}

#: Bytes that are copied at once.
_COPIED_BYTES = 2**23

#: Multiple of bytes at which the content of a file in memory begins. Arrays in explainer files need it.
_CONTENT_ALIGNMENT = 64

#: Attempts to delete a folder in which another call renames files.
_DELETE_TRIES = 10

#: Keys, in fsspec's descriptions of files, of the time of the last change.
_TIMES = ("mtime", "LastModified", "last_modified", "updated", "created")


class RemotePath:
    """Path in a file system of pyarrow, with the methods of ``pathlib.Path`` that this package uses."""

    def __init__(self, filesystem: Any, path: str, shown: str) -> None:
        self.filesystem, self.path, self._shown = filesystem, path, shown

    def __str__(self) -> str:
        return self._shown

    def __truediv__(self, name: str) -> RemotePath:
        path = f"{self.path.rstrip('/')}/{name}" if self.path else name
        return RemotePath(self.filesystem, path, f"{self._shown.rstrip('/')}/{name}")

    @property
    def name(self) -> str:
        """Last part of the path."""
        return self.path.rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """Last extension of the name."""
        return Path(self.name).suffix

    @property
    def suffixes(self) -> list[str]:
        """Extensions of the name."""
        return Path(self.name).suffixes

    @property
    def parent(self) -> RemotePath:
        """Folder of the file."""
        above, shown = self.path.rpartition("/")[0], self._shown.rstrip("/").rpartition("/")[0]
        return RemotePath(self.filesystem, above, shown)

    @property
    def appears_whole(self) -> bool:
        """Whether a file that is being written is visible only when it is complete, as in an object store."""
        filesystem = self.filesystem
        while filesystem.type_name == "subtree":
            filesystem = filesystem.base_fs
        return filesystem.type_name in _OBJECT_STORES

    def _info(self) -> Any:
        self._forget_listings()
        return self.filesystem.get_file_info(self.path)

    def _forget_listings(self) -> None:
        """Have fsspec ask the file system again, instead of answering from a cache."""
        if (fsspec := _fsspec_of(self.filesystem)) is not None:
            fsspec.invalidate_cache()

    def exists(self) -> bool:
        """Return whether there is a file or a folder."""
        return self._info().type.name != "NotFound"

    def is_dir(self) -> bool:
        """Return whether there is a folder."""
        return self._info().type.name == "Directory"

    def is_file(self) -> bool:
        """Return whether there is a file."""
        return self._info().type.name == "File"

    def stamp(self) -> tuple[int, int | None]:
        """Return the size of the file, and the time of its last change in nanoseconds or None.

        Raise ``FileNotFoundError`` if there is no file.
        """
        info = self._info()
        if info.type.name != "File":
            raise FileNotFoundError(f"there is no file {str(self)!r}")
        return info.size, _time_of(self.filesystem, info)

    def _require_regular(self) -> None:
        """Raise ``ValueError`` for a device or a FIFO, which a mounted or local file system may have."""
        if not self.appears_whole and self._info().type.name == "Unknown":
            raise ValueError(f"{str(self)!r} is not a regular file")

    def open(self) -> Any:
        """Open the file for reading at any position; only what is read is transferred."""
        self._require_regular()
        self._forget_listings()
        return self.filesystem.open_input_file(self.path)

    def stream(self) -> Any:
        """Open the file for reading it once, uncompressed according to its name."""
        self._require_regular()
        return self.filesystem.open_input_stream(self.path, compression="detect")

    def read_bytes(self) -> bytes:
        """Return the content of the file."""
        with self.open() as file:
            return file.read()

    def read_array(self) -> np.ndarray:
        """Return the content of the file as a read-only array of bytes, aligned like a memory-mapped one."""
        import pyarrow

        with self.open() as file:
            content = np.frombuffer(pyarrow.allocate_buffer(file.size()), np.uint8)
            n_read = 0
            while n_read < len(content):
                n_new = file.readinto(content[n_read : n_read + _COPIED_BYTES].data)
                if not n_new:
                    raise OSError(f"{str(self)!r} ended early while it was read")
                n_read += n_new
        content.flags.writeable = False
        return content

    def write_bytes(self, content: bytes) -> None:
        """Write a small file."""
        with tempfile.TemporaryDirectory() as folder:
            local = Path(folder, "content")
            local.write_bytes(content)
            self.upload(local)

    def upload(self, local: Path, upload_folder: RemotePath | None = None) -> None:
        """Copy a local file to this path, where it appears when it is complete.

        ``upload_folder`` is for the incomplete file, if the file system shows incomplete files. None means
        the folder of this path.
        """
        if not self.appears_whole:
            self.parent.make()
            upload_folder = upload_folder or self.parent
            upload_folder.make()
            temporary = upload_folder / f".{self.name}.{secrets.token_hex(4)}"
            try:
                self.filesystem.move(_upload_to(local, temporary).path, self.path)
            except BaseException:
                with contextlib.suppress(OSError):
                    temporary.delete()
                raise
            return
        before = self.stamp() if self.is_file() else None
        try:
            _upload_to(local, self)
        except BaseException:
            with contextlib.suppress(OSError):  # a stream that an error closes may leave a fragment
                after = self.stamp()
                if after != before and after[0] != local.stat().st_size:
                    self.delete()
            raise

    def make(self) -> None:
        """Make the folder, where the file system has folders."""
        if not self.appears_whole and self.path:
            self.filesystem.create_dir(self.path, recursive=True)

    def delete(self) -> None:
        """Delete the file, or the folder with all files in it, if it exists."""
        for tries_left in reversed(range(_DELETE_TRIES)):
            kind = self._info().type.name
            try:
                if kind == "File":
                    self.filesystem.delete_file(self.path)
                elif kind == "Directory":
                    self.filesystem.delete_dir(self.path)
                return
            except OSError as error:
                has_changed = isinstance(error, FileNotFoundError) or error.errno == errno.ENOTEMPTY
                if not has_changed or not tries_left:  # another call may change files after the listing
                    raise

    def entries(self, recursive: bool = False) -> dict[str, tuple[int, int | None] | None]:
        """Return the contents of the folder by their paths in it: stamps of files, and None for folders.

        With ``recursive``, the contents of the folders in it are included. See :meth:`stamp`.
        """
        import pyarrow.fs

        self._forget_listings()
        selector = pyarrow.fs.FileSelector(self.path, recursive=recursive, allow_not_found=True)
        stamps: dict[str, tuple[int, int | None] | None] = {}
        begin = len(self.path.strip("/")) + 1 if self.path.strip("/") else 0
        for info in self.filesystem.get_file_info(selector):
            name = info.path.strip("/")[begin:]
            if name and info.type.name != "File":
                stamps[name] = None
            elif name:
                with contextlib.suppress(FileNotFoundError):  # deleted or renamed since it was listed
                    stamps[name] = info.size, _time_of(self.filesystem, info)
        return stamps


class Content:
    """Content of a file, which a user passes instead of its path."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def read_array(self) -> np.ndarray:
        """Return the content as a read-only array of bytes, aligned like a memory-mapped one."""
        padded = np.empty(len(self.content) + _CONTENT_ALIGNMENT, np.uint8)
        begin = -padded.ctypes.data % _CONTENT_ALIGNMENT
        content = padded[begin : begin + len(self.content)]
        content[:] = np.frombuffer(self.content, np.uint8)
        content.flags.writeable = False
        return content


#: A place of a file or folder.
Place = Path | RemotePath


def is_path(value: Any) -> bool:
    """Return whether a value is a path or URL."""
    return isinstance(value, (str, os.PathLike, RemotePath))


def is_url(path: Any) -> bool:
    """Return whether a path has a scheme."""
    return not isinstance(path, RemotePath) and bool(_URL.match(os.fsdecode(path)))


def quoted(place: Place | Content) -> str:
    """Return a file for the beginning of a message: its path in quotes, or "the content"."""
    return "the content" if isinstance(place, Content) else repr(str(place))


def shown(path: Any) -> str:
    """Return a path for messages and records. A URL is shown without its user and its query."""
    if isinstance(path, RemotePath):
        return str(path)
    text = os.fsdecode(path)
    if not (scheme := _URL.match(text)):
        return text
    without_scheme = text[scheme.end() :].partition("?")[0]
    host, slash, path_in_host = without_scheme.partition("/")
    # A secret key may contain a slash that is not encoded.
    if "@" in path_in_host and re.search(r":(?![0-9]*$)", host):
        user, _, without_scheme = without_scheme.rpartition("@")
        host, slash, path_in_host = without_scheme.partition("/")
    else:
        user, _, host = host.rpartition("@")
    if scheme[1].lower() in _CONTAINER_AS_USER and user.partition(":")[0]:
        host = f"{user.partition(':')[0]}@{host}"
    return f"{scheme[0]}{host}{slash}{path_in_host}"


def open_filesystem(filesystem: Any) -> Any:
    """Return the pyarrow file system for the argument ``filesystem``, or None for the local one.

    Raise ``TypeError`` if ``filesystem`` is not a file system of pyarrow or fsspec.
    """
    if filesystem is None:
        return None
    fs = _pyarrow_fs("filesystem=")
    fsspec = sys.modules.get("fsspec")
    if fsspec is not None and isinstance(filesystem, fsspec.AbstractFileSystem):
        protocols = [filesystem.protocol] if isinstance(filesystem.protocol, str) else filesystem.protocol
        return None if "file" in protocols else fs.PyFileSystem(fs.FSSpecHandler(filesystem))
    if not isinstance(filesystem, fs.FileSystem):
        raise TypeError(
            f"filesystem must be a file system of pyarrow or fsspec, not a {type(filesystem).__qualname__}"
        )
    return None if isinstance(filesystem, fs.LocalFileSystem) else filesystem


def locate(path: Any, filesystem: Any = None) -> Place:
    """Return the place that a path or URL names.

    ``filesystem``, of pyarrow or fsspec, has the paths without a scheme. None means the local one. Raise
    ``ValueError`` if a URL is not valid, or has an unknown scheme; ``ImportError`` if the package for the
    scheme is not installed; ``OSError`` if the file system cannot be reached; ``TypeError`` if ``filesystem``
    is not one of pyarrow or fsspec.
    """
    return locate_all([path], filesystem)[0]


def locate_all(paths: Sequence[Any], filesystem: Any = None) -> list[Place]:
    """Return the places of several paths; URLs of one file system share a connection."""
    default = open_filesystem(filesystem)
    bases: dict[tuple[str, str, str], tuple[Any, str]] = {}
    return [_located(path, default, bases) for path in paths]


def _located(path: Any, default: Any, bases: dict[tuple[str, str, str], tuple[Any, str]]) -> Place:
    if isinstance(path, RemotePath):
        return path
    if is_url(path):
        text = os.fsdecode(path)
        if text[:5].lower() == "file:":
            return _parse_file_url(text)
        parts = _split(text)
        key, below = (parts.scheme, parts.netloc, parts.query), unquote(parts.path).strip("/")
        if key in bases and below:
            filesystem, base = bases[key]
            return RemotePath(filesystem, base + below, shown(text))
        filesystem, path_in_filesystem = _open_url(text)
        if below and path_in_filesystem.endswith(below):
            bases[key] = filesystem, path_in_filesystem.removesuffix(below)
        return RemotePath(filesystem, path_in_filesystem, shown(text))
    if default is None:
        return Path(os.fsdecode(path))
    text = os.fsdecode(path)
    return RemotePath(default, _listed_form(default, text), text)


def _split(url: str) -> SplitResult:
    return urlsplit(url, allow_fragments=False)  # "#" is a character of names


def _parse_file_url(url: str) -> Path:
    parts = _split(url)
    if parts.netloc not in ("", "localhost"):
        raise ValueError(f"{shown(url)!r} names another machine: a local file is file:///PATH")
    from urllib.request import url2pathname

    return Path(url2pathname(parts.path))


def _open_url(url: str) -> tuple[Any, str]:
    """Return the pyarrow file system of a URL and the path in it. Errors do not show secrets of the URL."""
    fs, scheme = _pyarrow_fs(repr(shown(url))), url.partition("://")[0].lower()
    if scheme in ("http", "https") and (_split(url).query or "@" in _split(url).netloc):
        raise ValueError(
            f"{shown(url)!r} has a query or a user, which may be credentials that a message of fsspec would "
            "show: use the URL of the store itself, such as s3://, or download the file"
        )
    try:
        filesystem, path = fs.FileSystem.from_uri(quote(url, safe=_SAFE))
        return filesystem, _listed_form(filesystem, path)
    except (NotImplementedError, ImportError):  # pyarrow was built without the scheme, or lacks a package
        pass
    except ValueError as error:
        if "nrecognized filesystem type" not in str(error):
            raise ValueError(f"{shown(url)!r} is not a valid URL{_error_text(error, url)}") from None
    except OSError as error:
        raise OSError(f"{shown(url)!r} cannot be opened{_error_text(error, url)}") from None
    try:
        import fsspec.core
    except ImportError:
        raise ImportError(
            f"{shown(url)!r}: pyarrow does not know the scheme {scheme}://. fsspec may know it: pip install "
            "fsspec, and the package that fsspec needs for it"
        ) from None
    try:
        fsspec_filesystem, path = fsspec.core.url_to_fs(url)
    except ImportError as error:
        raise ImportError(f"{shown(url)!r} cannot be opened{_error_text(error, url)}") from None
    except ValueError as error:
        raise ValueError(
            f"{shown(url)!r}: neither pyarrow nor fsspec can open {scheme}:// URLs{_error_text(error, url)}"
        ) from None
    except Exception as error:  # the packages that fsspec calls raise any errors
        raise OSError(f"{shown(url)!r} cannot be opened{_error_text(error, url)}") from None
    filesystem = fs.PyFileSystem(fs.FSSpecHandler(fsspec_filesystem))
    return filesystem, _listed_form(filesystem, path)


def _error_text(error: Exception, url: str) -> str:
    """Return the text of an error for the end of a message; nothing if it repeats secrets of the URL."""
    parts, text = _split(url), str(error)
    user = parts.netloc.rpartition("@")[0]
    hidden = [user, *user.split(":"), parts.query, *(value for _, value in parse_qsl(parts.query))]
    hidden += [unquote(secret) for secret in hidden]
    return "" if any(secret and secret in text for secret in hidden) else f": {text}"


def _pyarrow_fs(argument: str) -> Any:
    try:
        import pyarrow.fs
    except ImportError as error:
        raise ImportError(
            f"{argument}: other file systems than the local one need pyarrow: pip install pyarrow"
        ) from error
    return pyarrow.fs


def _listed_form(filesystem: Any, path: str) -> str:
    """Return a path as the file system itself lists it."""
    fsspec = _fsspec_of(filesystem)
    path = path if fsspec is None else str(fsspec._strip_protocol(path))
    return path.rstrip("/") or path[:1]


def _fsspec_of(filesystem: Any) -> Any:
    """Return the file system of fsspec that a file system of pyarrow wraps, or None."""
    fsspec_filesystem = getattr(getattr(filesystem, "handler", None), "fs", None)
    return fsspec_filesystem if hasattr(fsspec_filesystem, "invalidate_cache") else None


def _time_of(filesystem: Any, info: Any) -> int | None:
    """Return the time of the last change in nanoseconds, or None if it is not known.

    fsspec is asked, too, because pyarrow does not read all of its keys.
    """
    if info.mtime_ns is not None:
        return info.mtime_ns
    if (fsspec := _fsspec_of(filesystem)) is None:
        return None
    facts = fsspec.info(info.path)
    for time in (facts.get(key) for key in _TIMES):
        if isinstance(time, datetime):
            return int(time.timestamp() * 1e6) * 1000
        if isinstance(time, (int, float)):
            return int(time * 1e6) * 1000
    return None


def _upload_to(local: Path, to: RemotePath) -> RemotePath:
    """Copy a local file to a path, which is returned.

    It is copied in a thread, because Ctrl-C would otherwise close the stream early, as if it were complete.
    """

    def copy() -> None:
        with (
            open(local, "rb") as source,
            to.filesystem.open_output_stream(to.path, compression=None) as stream,
        ):
            while piece := source.read(_COPIED_BYTES):
                stream.write(piece)

    with ThreadPoolExecutor(1, "skshapgpu-upload") as pool:
        pool.submit(copy).result()
    return to


def open_file(place: Place, follow_links: bool = True) -> Any:
    """Open a file for reading at any position, or raise ``ValueError`` unless it is a regular file.

    Without ``follow_links``, a link in the local file system is not a regular file.
    """
    return open_regular(place, follow_links=follow_links) if isinstance(place, Path) else place.open()


def read_file(place: Place) -> bytes:
    """Return the content of a file, or raise ``ValueError`` unless it is a regular file."""
    return read_regular(place) if isinstance(place, Path) else place.read_bytes()


def head(place: Place, n: int) -> bytes:
    """Return the first ``n`` bytes of a file."""
    with open_file(place) as file:
        content: bytes = file.read(n)
    return content


@contextlib.contextmanager
def fetched(place: RemotePath) -> Iterator[str]:
    """Copy a file, or a folder of small files, to a temporary folder, and yield the path of the copy.

    The folder is deleted afterwards. If an error names the copy, its message is changed to name the place.
    """
    with tempfile.TemporaryDirectory() as folder:
        local = Path(folder, place.name)
        try:
            if place.is_dir():
                local.mkdir()
                for name, stamp in place.entries(recursive=True).items():
                    if stamp is not None:
                        local.joinpath(name).parent.mkdir(parents=True, exist_ok=True)
                        _copied(place / name, local / name)
            else:
                _copied(place, local)
            yield os.fspath(local)
        except Exception as error:
            shown_local = os.fspath(local)
            error.args = tuple(
                argument.replace(shown_local, str(place)) if isinstance(argument, str) else argument
                for argument in error.args
            )
            raise


def _copied(place: RemotePath, local: Path) -> None:
    with place.open() as source, open(local, "xb") as file:
        while piece := source.read(_COPIED_BYTES):
            file.write(piece)


def is_inside(place: Place, folder: Place) -> bool:
    """Return whether a place is inside a folder, or is the folder itself."""
    if isinstance(place, Path) or isinstance(folder, Path):
        if not (isinstance(place, Path) and isinstance(folder, Path)):
            return False
        return place.resolve().is_relative_to(folder.resolve())
    inside = f"{place.path.strip('/')}/".startswith(f"{folder.path.strip('/')}/")
    return inside and place.filesystem.equals(folder.filesystem)
