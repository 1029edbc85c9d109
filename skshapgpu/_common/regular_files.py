"""Opening of local files that others made: regular files only, within the size that they have when opened.

A path may name a device or a FIFO, whose reading never ends, or a link, behind which a file of somebody else
would be replaced. The kind of a file is checked again after the opening, because a path may change its
meaning between a check and the opening.
"""

from __future__ import annotations

import os
import stat
from typing import Any

from .memory import machine_bytes

#: Kinds of files that are not regular; everything else is a device.
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFLNK: "a link",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
}

#: Flags, on systems that have them, with which the opening neither waits nor makes a terminal the process's.
_AT_ONCE = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)

#: Path of a local file.
LocalPath = str | os.PathLike[str]


def open_regular(path: LocalPath, mode: str = "rb", *, follow_links: bool = True) -> Any:
    """Open a regular file. A file that is opened for writing is opened without following links.

    With ``follow_links``, a link to a regular file is opened for reading, too. Raise ``ValueError`` if the
    path is not the path of a regular file, ``OSError`` if the file cannot be opened.
    """
    follows = follow_links and mode == "rb"

    def opened(path: str, flags: int) -> int:
        if os.path.lexists(path):  # opening a device may have effects, so its kind is checked before as well
            require_regular(path, follow_links=follows)
        number = os.open(path, flags | _AT_ONCE | (0 if follows else _NO_LINK), 0o666)
        try:
            _require(path, os.fstat(number))
        except BaseException:
            os.close(number)
            raise
        return number

    return open(path, mode, opener=opened)


def read_regular(path: LocalPath, *, follow_links: bool = True) -> bytes:
    """Return the content of a regular file: as many bytes as it has when it is opened.

    Raise ``ValueError`` if the file is not regular or gets shorter meanwhile, ``OSError`` if it cannot be
    read, and ``MemoryError`` if it is larger than the memory. A file with holes can be much larger than the
    disk.
    """
    with open_regular(path, follow_links=follow_links) as file:
        size, memory = os.fstat(file.fileno()).st_size, machine_bytes()
        try:
            if memory is not None and size > memory:
                raise MemoryError
            content: bytes = file.read(size)
        except MemoryError as error:
            raise MemoryError(
                f"{os.fspath(path)!r} has {size:,} bytes, which do not fit into memory: check that it is the "
                "file that you mean, or raise the memory limit of the process"
            ) from error
    if len(content) < size:
        raise ValueError(f"{os.fspath(path)!r} was shortened while it was read: read it again")
    return content


def require_regular(path: LocalPath, *, follow_links: bool = True) -> None:
    """Raise ``ValueError`` for the path of anything but a regular file, ``OSError`` if there is nothing."""
    _require(path, os.stat(path, follow_symlinks=follow_links))


def _require(path: LocalPath, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "a device")
        raise ValueError(f"{os.fspath(path)!r} is {kind}, not a regular file")
