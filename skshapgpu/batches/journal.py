"""Journal of an output: a folder beside it that records its call, so that a run can be resumed.

The folder holds ``journal.json`` and half-written files. ``journal.json`` is written before the first row,
before a file gets its final name and when the output is complete. A local folder has a file ``checksums``,
with a line for each part, and a file ``lock``. The running process holds the lock, and the operating system
releases it when the process ends, for whatever reason. A folder in another file system has a file ``owner``,
the token and the digest of the call that began last. The output itself shows which rows are done. The folder
may outlive the output, so a journal alone does not prove that a file belongs to its call.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from .._files.locations import Place
from .folders import GUARDS, Folder, LocalFolder, open_folder

_FORMAT, _VERSION = "skshapgpu batches", 1
_JOURNAL = "journal.json"

#: Name of the file with the checksums of parts.
CHECKSUMS = "checksums"

#: Name of the journal's folder inside an output folder.
INSIDE = ".skshapgpu"


class Journal:
    """Folder that records the call of one output.

    Attributes
    ----------
    folder : Folder
    call : dict or None
        Call that was passed to :meth:`begin` for the existing output; None if there is no output.
    finished : dict or None
        Facts that were passed to :meth:`finish`; None if the output is not complete.
    ours : list of str
        Digests of the files written by this package that may exist at the path of the output.
    checksums : dict of str to set of str
        Checksums of the parts that have been written, by the names of the parts. Empty in another file
        system, where a file that was changed has another time.
    replaced : dict or None
        Call whose output was replaced in :meth:`begin`. If it still runs, it may yet write a part.
    """

    def __init__(self, folder: Folder, output: Place) -> None:
        self.folder, self._output = folder, output
        self.call: dict[str, Any] | None = None
        self.finished: dict[str, Any] | None = None
        self.ours: list[str] = []
        self.checksums: dict[str, set[str]] = {}
        self.replaced: dict[str, Any] | None = None

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Read the journal, and keep other processes and calls out of its folder if it has a lock.

        Raise ``RuntimeError`` if another call is writing the output.
        """
        with self.folder.hold(str(self._output)):
            self._read()
            yield

    def require_taken(self) -> None:
        """Raise ``RuntimeError`` if another call has begun to write since :meth:`.Folder.take`."""
        self.folder.require_taken(str(self._output))

    def require_in_time(self, withdraw: Callable[[], None]) -> None:
        """Raise ``RuntimeError`` if another call has begun to write while this one gave a file its name.

        The file may have replaced one of the other call, which might not notice. Then ``withdraw``, which
        deletes the file, leaves a gap that a later call fills. Files of equal calls are equal.
        """
        assert self.call is not None
        try:
            self.require_taken()
        except RuntimeError:
            if self.folder.taken_by() != call_digest(self.call):
                withdraw()
            raise

    def is_recorded(self, digest: str) -> bool:
        """Return whether the journal, as it is in its folder now, has the digest of a file."""
        now = Journal(self.folder, self._output)
        now._read()
        return digest in now.ours

    def _read(self) -> None:
        try:
            content = json.loads(self.folder.read(_JOURNAL))
            if (content["format"], content["version"]) != (_FORMAT, _VERSION):
                raise ValueError(f"it is of version {content['version']!r}")
            call, finished, ours = content["call"], content["finished"], content.get("ours", [])
            if not (_is_call(call) and _is_finished(finished) and _is_list(ours, str)):
                raise ValueError("its fields are not valid")
            self.call, self.finished, self.ours = call, finished, ours
            self.checksums = self._read_checksums()
        except FileNotFoundError:
            return
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            raise ValueError(
                f"{str(self.folder.place / _JOURNAL)!r} cannot be read as the journal of an output: {error}; "
                "choose another path for the output, or delete the journal and the output"
            ) from error

    def _read_checksums(self) -> dict[str, set[str]]:
        checksums: dict[str, set[str]] = {}
        if not isinstance(self.folder, LocalFolder):
            return checksums
        with contextlib.suppress(FileNotFoundError):
            for line in self.folder.read(CHECKSUMS).decode(errors="replace").splitlines():
                name, _, checksum = line.partition(" ")
                checksums.setdefault(name, set()).add(checksum)
        return checksums

    def keep_checksums(self, names: Iterable[str]) -> None:
        """Forget the checksums of all other parts. It is called before :meth:`add_checksum`."""
        if isinstance(self.folder, LocalFolder):
            self.checksums = {name: self.checksums.get(name, set()) for name in names}
            lines = [f"{name} {value}\n" for name, values in self.checksums.items() for value in values]
            self.folder.write(CHECKSUMS, "".join(lines).encode())

    def add_checksum(self, name: str, checksum: str) -> None:
        """Record the checksum of a part that is about to get its name."""
        if isinstance(self.folder, LocalFolder):
            self.folder.append(CHECKSUMS, f"{name} {checksum}\n".encode())

    def begin(self, call: dict[str, Any]) -> None:
        """Forget the rows of an earlier output, and record the call of the new one.

        The journal still records that this package wrote an existing output file.
        """
        for name in self.folder.entries():
            if name not in (*GUARDS, _JOURNAL):
                self.folder.delete(name)
        self.replaced = self.call
        self._write(call, None)

    def add(self, digest: str) -> None:
        """Record the digest of a file that is about to get the name of the output."""
        assert self.call is not None
        if digest not in self.ours:
            self.ours.append(digest)
            self._write(self.call, self.finished)

    def finish(self, facts: dict[str, Any]) -> None:
        """Record that the output is complete: the last file passed to :meth:`add`, or a folder."""
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
        self.require_taken()
        self.folder.write(_JOURNAL, json.dumps(content, indent=1).encode())
        self.call, self.finished = call, finished


def _is_list(value: Any, kind: type) -> bool:
    return isinstance(value, list) and all(isinstance(item, kind) for item in value)


def _is_call(call: Any) -> bool:
    if call is None:
        return True
    n_rows = call.get("batch_rows") if isinstance(call, dict) else None
    return type(n_rows) is int and n_rows > 0


def _is_finished(facts: Any) -> bool:
    if facts is None:
        return True
    if not isinstance(facts, dict) or type(facts["n_rows"]) is not int or not _is_list(facts["files"], list):
        return False
    return all([type(item) for item in file] == [str, int] for file in facts["files"])


def is_unfinished(output: Place) -> bool:
    """Return whether an output is a folder that lacks files of its call."""
    if not output.is_dir():  # a single file appears when it is complete
        return False
    folder = open_folder(output)
    journal = Journal(folder / INSIDE, output)
    journal._read()
    if journal.call is None:
        return False
    if journal.finished is None:
        return True
    entries = folder.entries()
    return not all(name in entries for name, _ in journal.finished["files"])


def call_digest(call: dict[str, Any]) -> str:
    """Return the digest that identifies a call in the metadata of its parts."""
    return hashlib.sha256(json.dumps(call, sort_keys=True).encode()).hexdigest()


def difference(old: Any, new: Any, name: str = "") -> str | None:
    """Describe the first difference between two calls; return None if they are equal."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*new, *(key for key in old if key not in new)]:
            description = difference(old.get(key), new.get(key), f"{name}.{key}" if name else key)
            if description is not None:
                return description
        return None
    if old == new:
        return None
    return f"{name} was {_short(old)} and is {_short(new)}"


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
