"""Parts of an output: a file for each batch, which names its call in its metadata."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from .._rows.arrow import require_arrow
from . import encoding
from .folders import Folder, Stamp, flush
from .journal import Journal, call_digest

#: Metadata key of a part for the digest of its call.
_CALL_KEY = b"skshapgpu call"


class Parts:
    """Part files in a folder.

    Attributes
    ----------
    names : list of str
        Those that are written, in order.
    """

    def __init__(self, folder: Folder, journal: Journal, form: str) -> None:
        self._folder, self._journal, self._form = folder, journal, form
        self.names: list[str] = []
        self._stamps: dict[str, Stamp | None] = {}
        self._schema: Any = None

    def _name(self, number: int) -> str:
        return f"part-{number:06d}.{self._form}"

    def n_whole(self, n_batch: int) -> int:
        """Count the parts up to the first gap; a shorter last part is not counted, and is written again."""
        there, number = self._folder.entries(), 0
        while self._name(number) in there:
            number += 1
        if number and self._n_rows(self._name(number - 1)) != n_batch:
            number -= 1
        return number

    def _n_rows(self, name: str) -> int:
        with self._folder.open(name) as file:
            return encoding.n_rows(file, self._form)

    def open(self, schema: Any, n_batches: int) -> None:
        """Begin the parts, or continue them after ``n_batches`` batches."""
        assert self._journal.call is not None
        call = call_digest(self._journal.call).encode()
        self._schema = schema.with_metadata({**(schema.metadata or {}), _CALL_KEY: call})
        self.names = [self._name(number) for number in range(n_batches)]
        if not self._folder.has_lock and n_batches:
            there = self._folder.entries()
            self._stamps = {name: there.get(name) for name in self.names}
        self._aside = self._journal.folder.scratch() / "unwritten"
        shutil.rmtree(self._aside, ignore_errors=True)  # left over if a run was killed
        self._aside.mkdir(exist_ok=True)

    def prepare(self, number: int, batch: Any) -> Path:
        """Write a batch to a file with another name, which is returned."""
        beside = self._aside / self._name(number)
        with new(beside) as file:
            with encoding.writer(file, self._schema, self._form) as writer:
                encoding.write(writer, require_arrow().Table.from_batches([batch], self._schema), self._form)
            flush(file)
        return beside

    def write(self, beside: Path, keep: bool = False) -> None:
        """Give the next part its name; with ``keep``, a copy that was uploaded is not deleted."""
        name = self._name(len(self.names))
        self._journal.require_taken()
        try:
            self._folder.put(beside, name, self._may_replace)
        except OSError:
            self._journal.require_taken()  # another call may have deleted the folder
            raise
        if not self._folder.has_lock:
            self._stamps[name] = self._folder.stamp(name)
            if not keep:
                beside.unlink()
        self.names.append(name)

    def finish(self) -> list[str]:
        """Return the names of all parts; if there are none, write one without rows, for its schema.

        Raises
        ------
        RuntimeError
            Another call has written parts meanwhile.
        """
        arrow = require_arrow()
        if not self.names:
            none = [arrow.array([], field.type) for field in self._schema]
            self.write(self.prepare(0, arrow.RecordBatch.from_arrays(none, schema=self._schema)))
        self._journal.require_taken()
        there = self._folder.entries()
        for name in there:  # left over from a run that saw more rows
            if name not in self.names and is_part(name) and name.endswith(self._form):
                if self._may_replace(name):
                    self._folder.delete(name)
                elif not self._folder.has_lock:
                    raise self._mixed(name)
        if not self._folder.has_lock:
            for name, stamp in self._stamps.items():
                if not _same_file(stamp, there.get(name)):
                    raise self._mixed(name)
        return self.names

    def _mixed(self, name: str) -> RuntimeError:
        self._journal.require_taken()
        return RuntimeError(
            f"{str(self._folder.place / name)!r} was written by another call meanwhile: start anew, and "
            "let one call at a time write an output"
        )

    def is_of_call(self, name: str) -> bool:
        """Return whether a part names the call of the journal in its metadata."""
        return self._is_of(name, [self._journal.call])

    def _may_replace(self, name: str) -> bool:
        """Return whether a part is of the call, or was written late by the call that it has replaced."""
        has_lock = self._folder.has_lock
        return self._is_of(name, [self._journal.call, None if has_lock else self._journal.replaced])

    def _is_of(self, name: str, calls: list[dict[str, Any] | None]) -> bool:
        digests = [call_digest(call).encode() for call in calls if call is not None]
        if not digests:
            return False
        try:
            with self._folder.open(name) as file:
                found = encoding.metadata(file, name.rpartition(".")[2])
        except (ValueError, OSError):  # pyarrow's own errors derive from these
            return False
        return found.get(_CALL_KEY) in digests

    def _opened(self, name: str) -> Any:
        try:
            return self._folder.open(name)
        except OSError:
            self._journal.require_taken()  # another call may have deleted the part
            raise

    def tables(self, number: int, beside: Path | None = None) -> list[Any]:
        """Return the content of an Arrow part; ``beside`` may be a local copy of it.

        Raises
        ------
        RuntimeError
            It is the part of another call.
        """
        arrow, name = require_arrow(), self.names[number]
        with arrow.OSFile(os.fspath(beside)) if beside is not None else self._opened(name) as file:
            with arrow.ipc.open_file(file) as reader:
                if reader.schema.metadata.get(_CALL_KEY) != self._schema.metadata[_CALL_KEY]:
                    raise self._mixed(name)
                batches = [reader.get_batch(i) for i in range(reader.num_record_batches)]
        return [arrow.Table.from_batches([batch]) for batch in batches]


def is_part(name: str) -> bool:
    """Return whether a file may be a part, judging by its name."""
    return name.startswith("part-") and name.endswith((".parquet", ".arrow"))


def new(path: Path) -> Any:
    """Open a new file; unlink an existing one first, as it may be a hard link to the output."""
    path.unlink(missing_ok=True)
    return open(path, "xb")


def _same_file(one: Stamp | None, other: Stamp | None) -> bool:
    """Return whether two stamps can be those of one version of a file; listings round times to seconds."""
    if one is None or other is None or one[0] != other[0]:
        return False
    return one[1] is None or other[1] is None or one[1] // 10**9 == other[1] // 10**9
