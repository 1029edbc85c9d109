"""Journal of an output: a folder beside it that records its call, so that a run can be resumed.

The folder holds ``journal.json``, which is written before the first row, before a file gets its final name
and when the output is complete; ``lock``, which a running process holds; and half-written files. The
operating system releases the lock when its process ends, for whatever reason. The output itself shows which
rows are done. The folder may outlive the output, so it does not prove by itself that a file belongs to that
call.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_FORMAT, _VERSION = "skshapgpu batches", 1
_JOURNAL, _LOCK = "journal.json", "lock"

#: Name of the journal's folder inside an output folder.
INSIDE = ".skshapgpu"


class Journal:
    """Folder that records the call of one output.

    Attributes
    ----------
    folder : Path
    call : dict or None
        Call passed to :meth:`begin` for the existing output; None if there is no output.
    finished : dict or None
        Facts passed to :meth:`finish`; None if the output is not complete.
    ours : list of str
        Digests of the files written by this package that may exist at the path of the output.
    """

    def __init__(self, folder: Path, output: Path) -> None:
        self.folder, self._output = folder, output
        self.call: dict[str, Any] | None = None
        self.finished: dict[str, Any] | None = None
        self.ours: list[str] = []

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Lock the output against other processes, and against other calls in this one.

        Raises
        ------
        RuntimeError
            Another call is writing the output.
        ValueError
            The journal is damaged, or was written by a later version.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.folder / _LOCK, "ab") as file:
            if not _locked(file.fileno()):
                raise RuntimeError(
                    f"another call is writing {str(self._output)!r}: wait for it, or name another output"
                )
            self._read()
            yield

    def _read(self) -> None:
        path = self.folder / _JOURNAL
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            if (content["format"], content["version"]) != (_FORMAT, _VERSION):
                raise ValueError(f"it is of version {content['version']!r}")
            self.call, self.finished = content["call"], content["finished"]
            self.ours = content.get("ours", [])
        except FileNotFoundError:
            return
        except (ValueError, LookupError, TypeError) as error:
            raise ValueError(
                f"{str(path)!r} cannot be read as the journal of an output: {error}; use another output, or "
                "delete both"
            ) from error

    def begin(self, call: dict[str, Any]) -> None:
        """Forget the rows of an earlier output, and record the call of the new one.

        An existing output file is still known as written by this package.
        """
        for path in self.folder.iterdir():
            if path.name not in (_LOCK, _JOURNAL):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        self._write(call, None)

    def add(self, digest: str) -> None:
        """Record the digest of a file that is about to get the name of the output."""
        assert self.call is not None
        if digest not in self.ours:
            self.ours.append(digest)
            self._write(self.call, self.finished)

    def finish(self, facts: dict[str, Any]) -> None:
        """Record that the output is complete: the file that was added last, or those of a folder."""
        assert self.call is not None
        self.ours = self.ours[-1:]
        self._write(self.call, facts)

    def _write(self, call: dict[str, Any], finished: dict[str, Any] | None) -> None:
        content = {
            "format": _FORMAT,
            "version": _VERSION,
            "call": call,
            "finished": finished,
            "ours": self.ours,
        }
        beside = self.folder / f"{_JOURNAL}.new"
        with open(beside, "w", encoding="utf-8") as file:
            json.dump(content, file, indent=1)
            flush(file)
        os.replace(beside, self.folder / _JOURNAL)
        flush_folder(self.folder)
        self.call, self.finished = call, finished


def is_unfinished(output: Path) -> bool:
    """Return whether an output is a folder that lacks files of its call."""
    if not output.is_dir():  # a single file appears when it is complete
        return False
    journal = Journal(output / INSIDE, output)
    journal._read()
    if journal.call is None:
        return False
    files = (journal.finished or {"files": []})["files"]
    return journal.finished is None or not all((output / name).exists() for name, _ in files)


def call_digest(call: dict[str, Any]) -> str:
    """Return the digest that identifies a call in the metadata of its parts."""
    return hashlib.sha256(json.dumps(call, sort_keys=True).encode()).hexdigest()


def difference(old: Any, new: Any, name: str = "") -> str | None:
    """Describe the first difference between two calls; return None if they are equal."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*new, *(key for key in old if key not in new)]:
            found = difference(old.get(key), new.get(key), f"{name}.{key}" if name else key)
            if found is not None:
                return found
        return None
    if old == new:
        return None
    return f"{name} was {_short(old)} and is {_short(new)}"


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def flush(file: Any) -> None:
    """Have the operating system write a file to disk."""
    file.flush()
    os.fsync(file.fileno())


def flush_folder(folder: Path) -> None:
    """Have the operating system write the names in a folder to disk, where it supports that."""
    if os.name == "nt":
        return
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


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
