"""Sinks for explained rows: a folder of part files, or a single file that appears when it is complete.

A part has the rows of one batch. It is written under a temporary name, flushed to disk and renamed, or
uploaded to an object store, so an existing part is always complete; a resumed run keeps the unbroken sequence
of parts from the first on. A single file is assembled from such parts, in a temporary file that each run
begins anew; a local NumPy file grows from batch to batch instead, and a small file beside it records how many
of its rows are complete. In the local file system, a resumed run keeps only parts and rows that still have
the checksums that were recorded.

Only output that this package wrote is ever replaced or deleted. The content proves who wrote it: the metadata
of a part identifies its call, and the digest of a single file is in the journal, which recorded it before the
file got its name.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import zlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from .._common.regular_files import open_regular
from .._files import storage
from .._files.locations import Place, RemotePath, locate, open_file
from . import encoding
from .encoding import NpyWriter, batch_of_values, npy_header, plain, require_csv, schema_of_values
from .folders import Folder, checksum, create_file, flush, open_folder
from .journal import CHECKSUMS, INSIDE, Journal
from .parts import NewPart, Parts, is_part

_FORMAT_OF_SUFFIX = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".csv": "csv",
    ".npy": "npy",
}
FORMATS = ("parquet", "arrow", "csv", "npy")

#: Formats of the part files of a folder.
_PART_FORMATS = ("parquet", "arrow")

#: Name of the file with the number and the checksum of the rows that a NumPy file has so far.
_ROWS = "rows"

#: Number of bytes that a digest reads at each position, and number of positions. Files of up to 4 MiB, the
#: product, are read completely.
_DIGEST_BYTES, _DIGEST_PLACES = 2**16, 64


class Sink(ABC):
    """Output to which batches are written in order, after several threads have prepared them."""

    kind: str  # kind of output, as the journal records it
    #: Whether the output has only values, and :meth:`prepare` takes arrays: see :meth:`shape`.
    holds_values = False

    def __init__(self, place: Place, state: Folder) -> None:
        self.place = place
        self.journal = Journal(state, place)

    @property
    def path(self) -> Path | str:
        """The path of the output as it is returned to the user."""
        return self.place if isinstance(self.place, Path) else str(self.place)

    @abstractmethod
    def files(self, names: Sequence[str]) -> list[Path | str]:
        """Return the paths of files of the output as they are returned to the user."""

    @abstractmethod
    def sizes(self, names: Sequence[str]) -> list[list[Any]]:
        """Return names and sizes of files, as the journal records them for a complete output."""

    @abstractmethod
    def require_ours(self) -> None:
        """Raise ``ValueError`` if the destination has files that this package did not write.

        Files that were changed since this package wrote them count as such, too.
        """

    def require_types(self, schema: Any) -> None:  # noqa: B027 - most formats hold all types
        """Raise ``ValueError`` if the format cannot hold the values of a column."""

    def shape(self, *row: int, dtype: Any) -> None:
        """Set the shape and dtype of the values of a row. It is called before :meth:`open`."""
        self._row, self._dtype = row, np.dtype(dtype)

    @abstractmethod
    def is_gone(self) -> bool:
        """Return whether nothing is left of the output of the journal's call."""

    @abstractmethod
    def clear(self) -> None:
        """Delete earlier output."""

    @abstractmethod
    def n_complete(self, n_batch: int) -> int:
        """Return the number of complete batches of ``n_batch`` rows before the first gap."""

    @abstractmethod
    def open(self, schema: Any, n_batches: int) -> None:
        """Begin the output, or continue it after ``n_batches`` batches."""

    @abstractmethod
    def prepare(self, number: int, batch: Any) -> Any:
        """Do the work for a batch that does not depend on other batches. It is thread-safe."""

    @abstractmethod
    def write(self, prepared: Any) -> None:
        """Append a batch: what :meth:`prepare` returned for it."""

    @abstractmethod
    def finish(self, n_rows: int) -> list[str]:
        """Complete the output, and return the names of its files in the order of the rows."""

    @abstractmethod
    def is_there(self, finished: dict[str, Any]) -> bool:
        """Return whether a complete output is unchanged."""

    def close(self) -> None:  # noqa: B027 - most sinks have nothing open
        """Close open files, complete or not."""


class PartsSink(Sink):
    """A folder of part files."""

    def __init__(self, place: Place, form: str) -> None:
        self._folder = open_folder(place, INSIDE)
        super().__init__(place, self._folder / INSIDE)
        self.kind = f"folder of {form}"
        self._parts = Parts(self._folder, self.journal, form)

    def files(self, names: Sequence[str]) -> list[Path | str]:
        paths = [self.place / name for name in names]
        return [path if isinstance(path, Path) else str(path) for path in paths]

    def sizes(self, names: Sequence[str]) -> list[list[Any]]:
        entries = self._folder.entries()
        return [[name, (entries[name] or (0, None))[0]] for name in names]

    def require_ours(self) -> None:
        entries = self._folder.entries()
        foreign = [name for name in entries if name != INSIDE and not is_part(name)]
        if not foreign:
            names = [name for name in entries if is_part(name)]
            are_ours = self._folder.map_files(self._is_ours, names)
            finished = self.journal.finished
            sizes = None if finished is None else dict(finished["files"])
            foreign = [
                name
                for name, is_ours in zip(names, are_ours)
                if not is_ours or (sizes is not None and sizes.get(name) != (entries[name] or (None,))[0])
            ]
        if foreign:
            raise ValueError(
                f"{str(self.place)!r} holds files that explain_batches did not write, or that were changed "
                f"since, such as {foreign[0]!r}: name an empty folder or one that does not exist yet, or "
                "delete these files, after which the same call writes its parts again"
            )

    def _is_ours(self, name: str) -> bool:
        """Return whether a part was written by the call in the journal, and has not been changed since."""
        return self._parts.is_of_call(name) and self._parts.is_intact(name) is not False

    def is_gone(self) -> bool:
        return not self._all_parts()

    def _all_parts(self) -> list[str]:
        return [name for name in self._folder.entries() if is_part(name)]

    def clear(self) -> None:
        for name in self._all_parts():
            self._folder.delete(name)

    def n_complete(self, n_batch: int) -> int:
        return self._parts.n_complete(n_batch)

    def open(self, schema: Any, n_batches: int) -> None:
        self._parts.open(schema, n_batches)

    def prepare(self, number: int, batch: Any) -> NewPart:
        return self._parts.prepare(number, batch)

    def write(self, prepared: NewPart) -> None:
        self._parts.write(prepared)

    def finish(self, n_rows: int) -> list[str]:
        return self._parts.finish()

    def is_there(self, finished: dict[str, Any]) -> bool:
        return self.sizes(self._all_parts()) == finished["files"]


class _FileSink(Sink):
    """A single file; an existing one is kept until the new one is complete."""

    def __init__(self, place: Place) -> None:
        state = f".{place.name}.skshapgpu"
        self._folder = open_folder(place.parent, state)
        super().__init__(place, self._folder / state)

    def files(self, names: Sequence[str]) -> list[Path | str]:
        return [self.path]

    def sizes(self, names: Sequence[str]) -> list[list[Any]]:
        return [[name, (self._folder.stamp(name) or (0, None))[0]] for name in names]

    def require_ours(self) -> None:
        if not self.place.exists() or self._is_ours(self.place.name):
            return
        problem = "exists, and is no output of explain_batches"
        if self.journal.call is not None:
            problem = "was changed, or written by others, since explain_batches wrote a file of that name"
        raise ValueError(f"{str(self.place)!r} {problem}: choose another path, or delete the file")

    def is_gone(self) -> bool:
        call = self.journal.call
        done = self.journal.finished is not None or call is None or not self.n_complete(call["batch_rows"])
        return done and not self.place.exists()

    def clear(self) -> None:
        """Delete nothing: the file stays until :meth:`finish` replaces it."""

    def is_there(self, finished: dict[str, Any]) -> bool:
        return self.place.exists()

    def _is_ours(self, name: str) -> bool:
        try:
            return _digest(self.place.parent / name) in self.journal.ours
        except ValueError:  # it is no regular file
            return False

    def _put(self, complete_file: Path) -> list[str]:
        """Give the complete file its name in the folder, and return that name in a list."""
        digest = _digest(complete_file)
        self.journal.add(digest)
        self.journal.require_taken()
        self._folder.put(complete_file, self.place.name, self._is_ours)
        self.journal.require_in_time(lambda: self._withdraw(digest))
        return [self.place.name]

    def _withdraw(self, digest: str) -> None:
        """Delete the file unless it is another call's, or that call will replace it or wrote the same."""
        with contextlib.suppress(FileNotFoundError):
            if _digest(self.place) == digest and not self.journal.is_recorded(digest):
                self._folder.delete(self.place.name)


class JoinedSink(_FileSink):
    """A single file, made of parts."""

    def __init__(self, place: Place, form: str) -> None:
        super().__init__(place)
        self.kind, self._form, self.holds_values = f"file of {form}", form, form == "npy"
        self._parts_folder = self.journal.folder / "parts"
        self._parts = Parts(self._parts_folder, self.journal, "arrow", is_hidden=True)
        self._file: Any = None
        self._writer: Any = None

    def require_types(self, schema: Any) -> None:
        if self._form == "csv":
            require_csv(plain(schema))

    def n_complete(self, n_batch: int) -> int:
        return self._parts.n_complete(n_batch)

    def open(self, schema: Any, n_batches: int) -> None:
        self._parts_folder.make()
        if self.holds_values:
            schema = schema_of_values(self._row, self._dtype, schema.metadata)
        self._schema = schema if self._form == "parquet" else plain(schema)
        self._dictionaries = encoding.Dictionaries(schema) if self._form == "arrow" else None
        self._parts.open(schema, n_batches)
        self._joined_file = self.journal.folder.scratch() / "joined"
        self._file = create_file(self._joined_file)
        if self.holds_values:
            self._writer = NpyWriter(self._file, self._row, self._dtype)
        elif not self._dictionaries:
            self._writer = encoding.writer(self._file, self._schema, self._form)
        self._n_joined = 0

    def prepare(self, number: int, batch: Any) -> NewPart:
        if self.holds_values:
            batch = batch_of_values(np.ascontiguousarray(batch, self._dtype))
        return self._parts.prepare(number, batch)

    def write(self, prepared: NewPart) -> None:
        self._parts.write(prepared, keep=True)
        if not self._dictionaries:
            self._join(prepared.file if prepared.file.exists() else None)
        prepared.file.unlink(missing_ok=True)

    def _join(self, last_part: Path | None = None) -> None:
        """Append the parts that are not in the file yet.

        They are read again from their files, as a resumed run must do, so that every run writes the same.
        """
        n_parts = len(self._parts.names)
        for number in range(self._n_joined, n_parts):
            for table in self._parts.tables(number, last_part if number == n_parts - 1 else None):
                if self._dictionaries:
                    table = self._dictionaries.recoded(table, self._schema)
                encoding.write(self._writer, table.cast(self._schema), self._form)
            self._n_joined += 1

    def _begin_with_dictionaries(self, dictionaries: encoding.Dictionaries) -> None:
        """Begin the file, which starts with the dictionaries of all parts, when all parts are complete."""
        for number in range(len(self._parts.names)):
            for table in self._parts.tables(number):
                dictionaries.add(table)
        self._schema = dictionaries.schema()
        self._writer = encoding.writer(self._file, self._schema, self._form)

    def finish(self, n_rows: int) -> list[str]:
        self._parts.finish()
        if self._dictionaries:
            self._begin_with_dictionaries(self._dictionaries)
        self._join()
        self._end()
        flush(self._file)
        self.close()
        return self._put(self._joined_file)

    def _end(self) -> None:
        """Write the end of the file, once. An Arrow writer would write it again at a second call."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    def close(self) -> None:
        if self._file is not None:
            with contextlib.suppress(ValueError, OSError):  # nobody reads the file of a failed run
                self._end()
            self._file.close()
            self._file = None


class NpySink(_FileSink):
    """A single ``.npy`` file of the local file system, which holds the values alone."""

    kind = "file of npy"
    holds_values = True

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        self._values_file = self.journal.folder.scratch() / "values"
        self._file: Any = None

    def n_complete(self, n_batch: int) -> int:
        self._n_kept = self._n_intact - self._n_intact % n_batch
        return self._n_intact // n_batch

    @cached_property
    def _n_intact(self) -> int:
        """Number of rows that are complete and have the checksum that was recorded; 0 if that differs."""
        try:
            n_rows, recorded_checksum = map(int, self.journal.folder.read(_ROWS).split())
            with open_regular(self._values_file, follow_links=False) as file:
                has_one_name = os.fstat(file.fileno()).st_nlink < 2  # a complete output may be the other
                is_intact = n_rows >= 0 and self._checksum(file, n_rows) == recorded_checksum
        except (FileNotFoundError, ValueError):
            return 0
        return n_rows if has_one_name and is_intact else 0

    def _checksum(self, file: Any, n_rows: int) -> int:
        """Return the checksum of the first rows of a file, or raise ``ValueError`` if it has fewer rows."""
        file.seek(self._offset(0))
        return checksum(file, self._offset(n_rows) - self._offset(0))

    def _offset(self, n_rows: int) -> int:
        header = len(npy_header(0, self._row, self._dtype))
        return header + n_rows * int(np.prod(self._row)) * self._dtype.itemsize

    def open(self, schema: Any, n_batches: int) -> None:
        if n_batches:
            self._file = open_regular(self._values_file, "r+b")
            self._n_rows = self._n_kept
        else:
            self._file, self._n_rows = create_file(self._values_file), 0
        self._file.truncate(self._offset(self._n_rows))
        self._checksum_of_rows = self._checksum(self._file, self._n_rows)
        self._file.seek(self._offset(self._n_rows))

    def prepare(self, number: int, batch: Any) -> np.ndarray:
        return np.ascontiguousarray(batch, self._dtype)

    def write(self, prepared: np.ndarray) -> None:
        self._file.write(prepared.data)
        flush(self._file)
        self._n_rows += len(prepared)
        self._checksum_of_rows = zlib.crc32(prepared.data, self._checksum_of_rows)
        self.journal.folder.write(_ROWS, f"{self._n_rows} {self._checksum_of_rows}".encode())

    def finish(self, n_rows: int) -> list[str]:
        self._file.seek(0)
        self._file.write(npy_header(n_rows, self._row, self._dtype))
        flush(self._file)
        self.close()
        return self._put(self._values_file)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def open_sink(sink: Any, form: str | None, filesystem: Any = None) -> Sink:
    """Return the sink for the arguments ``sink``, ``format`` and ``filesystem`` of ``explain_batches``."""
    if not isinstance(sink, (str, os.PathLike)):
        raise TypeError(f"sink must be a path, not a {type(sink).__qualname__}")
    place = locate(sink, filesystem)
    if isinstance(place, Path) and place.is_symlink() and not place.is_dir():
        raise ValueError(f"{str(place)!r} {storage.is_link(place)}")
    suffix = place.suffix.lower()
    is_dir = place.is_dir()
    # A URL may end with a query; the place does not.
    named_folder = os.fspath(sink).endswith(("/", os.sep)) or str(place).endswith("/")
    if is_dir or not suffix or named_folder:
        if form is not None and form not in _PART_FORMATS:
            raise ValueError(
                "the files of a folder have format 'parquet' or 'arrow': for a NumPy or CSV file, give sink= "
                "the name of a file, 'NAME.npy' or 'NAME.csv'"
            )
        if not is_dir and place.exists():
            raise ValueError(f"{str(place)!r} is a file, not a folder: choose another path for the folder")
        _require_utf8(place)
        return PartsSink(place, form or "parquet")
    kind = _FORMAT_OF_SUFFIX.get(suffix)
    if kind is None:
        raise ValueError(
            f"{str(place)!r} has none of the extensions of output files, {', '.join(_FORMAT_OF_SUFFIX)}. To "
            "write a folder of part files, leave out the extension, or end the path with a slash"
        )
    if form is not None and form != kind:
        raise ValueError(f"{str(place)!r} is a file of {kind}, but format is {form!r}: leave out format=")
    folder = place.absolute().parent if isinstance(place, Path) else place.parent
    is_implied = isinstance(folder, RemotePath) and (folder.appears_whole or not folder.path)
    if not is_implied and not folder.is_dir():
        raise ValueError(f"there is no folder {str(folder)!r}: make it first")
    if kind == "npy" and isinstance(place, Path):
        return NpySink(place)
    _require_utf8(place)
    return JoinedSink(place, kind)


def _require_utf8(place: Place) -> None:
    """Raise ``ValueError`` for a name that is not UTF-8, as Linux allows, because pyarrow cannot open it."""
    try:
        str(place).encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{str(place)!r} is not valid UTF-8, and pyarrow opens no other paths: choose another path, or "
            "write a NumPy file, 'NAME.npy'"
        ) from error


def _digest(place: Place) -> str:
    """Return a digest of a file's size and of bytes that are read at evenly spaced positions."""
    with open_file(place, follow_links=False) as file:
        size = file.seek(0, os.SEEK_END)
        if isinstance(place, RemotePath) and size <= _DIGEST_BYTES * _DIGEST_PLACES:  # one request, not many
            file.seek(0)
            file = io.BytesIO(file.read())
        digest = hashlib.sha256(str(size).encode())
        for start in np.linspace(0, max(size - _DIGEST_BYTES, 0), _DIGEST_PLACES).astype(int).tolist():
            file.seek(start)
            digest.update(file.read(_DIGEST_BYTES))
    return digest.hexdigest()


def tidy(sink: Sink) -> None:
    """Delete the temporary files from which a complete output was made."""
    names = ("parts", "unwritten", _ROWS)
    for name in names if isinstance(sink, PartsSink) else (*names, CHECKSUMS):
        with contextlib.suppress(OSError):
            sink.journal.folder.delete(name)
