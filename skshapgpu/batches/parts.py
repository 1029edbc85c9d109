"""Parts of an output: a file for each batch. The metadata of a part identifies the call that wrote it."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._common.regular_files import open_regular
from .._files.storage import require_read
from .._rows.arrow import require_arrow
from . import encoding
from .folders import Folder, LocalFolder, Stamp, checksum, create_file, flush
from .journal import Journal, call_digest

#: Key in the metadata of a part, under which the digest of its call is stored.
_CALL_KEY = b"skshapgpu call"

#: Name of the folder for parts that are being written.
_NEW_FILES = "unwritten"


@dataclass(frozen=True)
class NewPart:
    """A complete part that has no name yet."""

    file: Path  # temporary file
    checksum: str


class Parts:
    """Part files, parquet or arrow, in a folder; ``names`` are the names of the written parts, in order.

    ``is_hidden`` says whether the folder has only files of the journal, none of a user.
    """

    def __init__(self, folder: Folder, journal: Journal, form: str, is_hidden: bool = False) -> None:
        self._folder, self._journal, self._form, self._is_hidden = folder, journal, form, is_hidden
        self.names: list[str] = []
        self._are_intact: dict[str, bool | None] = {}
        self._stamps: dict[str, Stamp | None] = {}
        self._schema: Any = None

    def _name(self, number: int) -> str:
        return f"part-{number:06d}.{self._form}"

    def n_complete(self, n_batch: int) -> int:
        """Count the parts of ``n_batch`` rows up to the first gap, or the first part that was damaged.

        A last part with fewer rows is not counted; it will be written again.
        """
        entries, number, has_lock = self._folder.entries(), 0, self._folder.has_lock
        while (name := self._name(number)) in entries and (self.is_intact(name) or not has_lock):
            number += 1
        if number and self._n_rows(self._name(number - 1)) != n_batch:
            number -= 1
        return number

    def is_intact(self, name: str) -> bool | None:
        """Return whether a part has a checksum of the journal; None if the journal has none for it.

        All of the part is read, at the first call.
        """
        if name not in self._are_intact:
            checksums, path = self._journal.checksums.get(name), self._folder.place / name
            self._are_intact[name] = (
                _has_checksum(path, checksums) if checksums and isinstance(path, Path) else None
            )
        return self._are_intact[name]

    def _n_rows(self, name: str) -> int:
        with self._folder.open(name) as file:
            return encoding.n_rows(file, self._form)

    def open(self, schema: Any, n_batches: int) -> None:
        """Begin the parts, or continue them after ``n_batches`` batches."""
        assert self._journal.call is not None
        call = call_digest(self._journal.call).encode()
        self._schema = schema.with_metadata({**(schema.metadata or {}), _CALL_KEY: call})
        self.names = [self._name(number) for number in range(n_batches)]
        if self._folder.has_lock:
            self._delete_other_parts()
            self._journal.keep_checksums(self.names)
        elif n_batches:
            entries = self._folder.entries()
            self._stamps = {name: entries.get(name) for name in self.names}
        scratch = LocalFolder(self._journal.folder.scratch())
        scratch.delete(_NEW_FILES)  # a run that was killed leaves it
        self._new_files = scratch.place / _NEW_FILES
        self._new_files.mkdir()

    def _delete_other_parts(self) -> None:
        """Delete damaged parts, and parts after a gap, which will be written again."""
        for name in self._folder.entries():
            if name not in self.names:
                if self._is_hidden or (is_part(name) and self._may_replace(name)):
                    self._folder.delete(name)

    def prepare(self, number: int, batch: Any) -> NewPart:
        """Write a batch to a temporary file."""
        temporary_file = self._new_files / self._name(number)
        with create_file(temporary_file) as file:
            with encoding.writer(file, self._schema, self._form) as writer:
                encoding.write(writer, require_arrow().Table.from_batches([batch], self._schema), self._form)
            flush(file)
        return NewPart(temporary_file, _checksum(temporary_file))

    def write(self, part: NewPart, keep: bool = False) -> None:
        """Give the next part its name. After an upload, delete the temporary file unless ``keep``."""
        name = self._name(len(self.names))
        self._journal.require_taken()
        self._journal.add_checksum(name, part.checksum)
        try:
            self._folder.put(part.file, name, self._may_replace)
        except OSError:
            self._journal.require_taken()  # another call may have deleted the folder
            raise
        if not self._folder.has_lock:
            self._journal.require_in_time(lambda: self._withdraw(name))
            self._stamps[name] = self._folder.stamp(name)
            if not keep:
                part.file.unlink()
        self.names.append(name)

    def _withdraw(self, name: str) -> None:
        if self.is_of_call(name):
            self._folder.delete(name)

    def finish(self) -> list[str]:
        """Return the names of all parts. If there are none, write one without rows, which has the schema.

        Raise ``RuntimeError`` if another call has written parts meanwhile.
        """
        arrow = require_arrow()
        if not self.names:
            empty_columns = [arrow.array([], field.type) for field in self._schema]
            self.write(self.prepare(0, arrow.RecordBatch.from_arrays(empty_columns, schema=self._schema)))
        self._journal.require_taken()
        if not self._folder.has_lock:
            self._require_own_parts()
        return self.names

    def _require_own_parts(self) -> None:
        """Delete parts that an earlier run, which read more rows, has left. Reject those of other calls."""
        entries = self._folder.entries()
        for name in entries:
            if name not in self.names and is_part(name) and name.endswith(self._form):
                if not self._may_replace(name):
                    raise self._mixed(name)
                self._folder.delete(name)
        for name, stamp in self._stamps.items():
            if not _same_file(stamp, entries.get(name)):
                raise self._mixed(name)

    def _mixed(self, name: str) -> RuntimeError:
        self._journal.require_taken()
        return RuntimeError(
            f"{str(self._folder.place / name)!r} was written by another call meanwhile: write the "
            "output again, with one call at a time"
        )

    def is_of_call(self, name: str) -> bool:
        """Return whether a part was written by the call in the journal, according to its metadata."""
        return self._was_written_by(name, [self._journal.call])

    def _may_replace(self, name: str) -> bool:
        """Return whether a part was written by the call in the journal, or by the call that it replaced.

        In a folder without a lock, the replaced call may still run and write a part.
        """
        has_lock = self._folder.has_lock
        return self._was_written_by(name, [self._journal.call, None if has_lock else self._journal.replaced])

    def _was_written_by(self, name: str, calls: list[dict[str, Any] | None]) -> bool:
        digests = [call_digest(call).encode() for call in calls if call is not None]
        if not digests:
            return False
        try:
            with self._folder.open(name) as file:
                metadata = encoding.metadata(file, name.rpartition(".")[2])
        except FileNotFoundError:
            return False
        except (ValueError, OSError) as error:  # pyarrow's own errors derive from these
            require_read(error)
            return False
        return metadata.get(_CALL_KEY) in digests

    def _opened(self, name: str) -> Any:
        try:
            return self._folder.open(name)
        except OSError:
            self._journal.require_taken()  # another call may have deleted the part
            raise

    def tables(self, number: int, local_copy: Path | None = None) -> list[Any]:
        """Return the content of an Arrow part, which is read from ``local_copy`` if that is given.

        Raise ``RuntimeError`` if another call wrote the part.
        """
        arrow, name = require_arrow(), self.names[number]
        with arrow.OSFile(os.fspath(local_copy)) if local_copy is not None else self._opened(name) as file:
            with arrow.ipc.open_file(file) as reader:
                if reader.schema.metadata.get(_CALL_KEY) != self._schema.metadata[_CALL_KEY]:
                    raise self._mixed(name)
                batches = [reader.get_batch(i) for i in range(reader.num_record_batches)]
        return [arrow.Table.from_batches([batch]) for batch in batches]


def is_part(name: str) -> bool:
    """Return whether a file may be a part, judging by its name."""
    return name.startswith("part-") and name.endswith((".parquet", ".arrow"))


def _checksum(path: Path) -> str:
    """Return the CRC-32 of a file in hexadecimal digits."""
    with open_regular(path, follow_links=False) as file:
        return f"{checksum(file, os.fstat(file.fileno()).st_size):08x}"


def _has_checksum(path: Path, checksums: Collection[str]) -> bool:
    try:
        return _checksum(path) in checksums
    except ValueError:  # it is no regular file
        return False


def _same_file(first: Stamp | None, second: Stamp | None) -> bool:
    """Return whether two stamps may be of the same version of a file. Listings round times to seconds."""
    if first is None or second is None or first[0] != second[0]:
        return False
    return first[1] is None or second[1] is None or first[1] // 10**9 == second[1] // 10**9
