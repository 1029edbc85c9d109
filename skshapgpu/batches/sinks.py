"""Sinks for explained rows: a folder of part files, or a single file that appears when it is complete.

A part has the rows of one batch. It is written under a temporary name, flushed to disk and renamed, so an
existing part is always complete; a resumed run keeps the unbroken sequence of parts from the first on. A
single Parquet or Arrow file is assembled from such parts, in a temporary file that each run begins anew; a
NumPy file grows from batch to batch, and a small file beside it records how many of its rows are complete.

Only output that this package wrote is ever replaced or deleted, as its content proves: a part names its
call in its metadata, and a single file has the digest that the journal recorded before the file got its
name.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

from .._files.storage import put
from .._rows.arrow import require_arrow
from .journal import INSIDE, Journal, call_digest, flush, flush_folder

_SUFFIXES = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".npy": "npy",
}
FORMATS = ("parquet", "arrow", "npy")

#: Metadata key of a part for the digest of its call.
_CALL_KEY = b"skshapgpu call"

#: Number of bytes that a digest reads at each place, and number of places: together, files of up to 4 MiB are
#: read completely.
_DIGEST_BYTES, _DIGEST_PLACES = 2**16, 64


class Sink(ABC):
    """Output to which batches are written in order, after several threads have prepared them.

    Attributes
    ----------
    path : Path
    kind : str
        Kind of output, as the journal records it.
    journal : Journal
    """

    kind: str

    def __init__(self, path: Path, state: Path) -> None:
        self.path = path
        self.journal = Journal(state, path)

    @abstractmethod
    def require_ours(self) -> None:
        """Raise an error if the destination contains anything that is not output of this package.

        Raises
        ------
        ValueError
            There are files that ``explain_batches`` did not write, or that were changed since.
        """

    @abstractmethod
    def is_gone(self) -> bool:
        """Return whether nothing is left of the output of the journal's call."""

    @abstractmethod
    def clear(self) -> None:
        """Delete earlier output."""

    @abstractmethod
    def n_whole(self, n_batch: int) -> int:
        """Return the number of complete batches of ``n_batch`` rows before the first gap."""

    @abstractmethod
    def open(self, schema: Any, n_batches: int) -> None:
        """Begin the output, or continue it after ``n_batches`` batches."""

    @abstractmethod
    def prepare(self, number: int, batch: Any) -> Any:
        """Do whatever work for a batch with this number does not depend on other batches; thread-safe."""

    @abstractmethod
    def write(self, prepared: Any) -> None:
        """Append a batch that was prepared."""

    @abstractmethod
    def finish(self, n_rows: int) -> list[Path]:
        """Complete the output, and return its files in the order of the rows."""

    @abstractmethod
    def is_there(self, finished: dict[str, Any]) -> bool:
        """Return whether a complete output is unchanged."""

    def close(self) -> None:  # noqa: B027 - most sinks have nothing open
        """Close open files, complete or not."""


class PartsSink(Sink):
    """A folder of part files."""

    def __init__(self, path: Path, form: str) -> None:
        super().__init__(path, path / INSIDE)
        self.kind = f"folder of {form}"
        self._parts = _Parts(path, self.journal.folder, form)

    def require_ours(self) -> None:
        known, call = {self.journal.folder.name}, self.journal.call
        foreign = [
            path.name for path in self.path.iterdir() if path.name not in known and not _is_part(path.name)
        ]
        if not foreign:
            sizes = None if self.journal.finished is None else dict(self.journal.finished["files"])
            foreign = [
                name
                for name in self._all_parts()
                if not _is_of(self.path / name, call)
                or (sizes is not None and sizes.get(name) != (self.path / name).stat().st_size)
            ]
        if foreign:
            raise ValueError(
                f"{str(self.path)!r} holds files that explain_batches did not write, or that were changed "
                f"since, such as {foreign[0]!r}: name an empty folder, or one that does not exist yet"
            )

    def is_gone(self) -> bool:
        return not self._all_parts()

    def _all_parts(self) -> list[str]:
        return sorted(path.name for path in self.path.iterdir() if _is_part(path.name))

    def clear(self) -> None:
        for name in self._all_parts():
            (self.path / name).unlink()

    def n_whole(self, n_batch: int) -> int:
        return self._parts.n_whole(n_batch)

    def open(self, schema: Any, n_batches: int) -> None:
        self._parts.open(schema, n_batches, self.journal.call)

    def prepare(self, number: int, batch: Any) -> Path:
        return self._parts.prepare(number, batch)

    def write(self, prepared: Path) -> None:
        self._parts.write(prepared)

    def finish(self, n_rows: int) -> list[Path]:
        return self._parts.finish()

    def is_there(self, finished: dict[str, Any]) -> bool:
        return [[name, (self.path / name).stat().st_size] for name in self._all_parts()] == finished["files"]


class _FileSink(Sink):
    """A single file; an existing one is kept until the new one is complete."""

    def require_ours(self) -> None:
        if not self.path.exists() or self._is_ours(self.path):
            return
        what = "exists, and is no output of explain_batches"
        if self.journal.call is not None:
            what = "was changed, or written by others, since explain_batches wrote a file of that name"
        raise ValueError(f"{str(self.path)!r} {what}: name another output, or delete it")

    def is_gone(self) -> bool:
        call = self.journal.call
        done = self.journal.finished is not None or call is None or not self.n_whole(call["batch_rows"])
        return done and not self.path.exists()

    def clear(self) -> None:
        """Keep the file: it stays until it is replaced."""

    def is_there(self, finished: dict[str, Any]) -> bool:
        return self.path.exists()

    def _is_ours(self, path: Path) -> bool:
        return _digest(path) in self.journal.ours

    def _put(self, beside: Path) -> list[Path]:
        """Give a complete file its name."""
        self.journal.add(_digest(beside))
        put(beside, self.path, self._is_ours)
        flush_folder(self.path.parent)
        return [self.path]


class JoinedSink(_FileSink):
    """A single file, made of parts."""

    def __init__(self, path: Path, form: str) -> None:
        super().__init__(path, _state_beside(path))
        self.kind, self._form = f"file of {form}", form
        self._folder, self._beside = self.journal.folder / "parts", self.journal.folder / "joined"
        self._parts = _Parts(self._folder, self.journal.folder, "arrow")
        self._file: Any = None
        self._writer: Any = None

    def n_whole(self, n_batch: int) -> int:
        return self._parts.n_whole(n_batch)

    def open(self, schema: Any, n_batches: int) -> None:
        self._folder.mkdir(exist_ok=True)
        self._schema = _plain(schema) if self._form == "arrow" else schema
        self._parts.open(schema, n_batches, self.journal.call)
        self._file = _new(self._beside)
        self._writer = _writer(self._file, self._schema, self._form)
        self._n_joined = 0

    def prepare(self, number: int, batch: Any) -> Path:
        return self._parts.prepare(number, batch)

    def write(self, prepared: Path) -> None:
        self._parts.write(prepared)
        self._join(self._parts.paths)

    def _join(self, paths: Sequence[Path]) -> None:
        """Append parts that are not in the file yet; they are read again, so that all runs do the same."""
        arrow = require_arrow()
        for path in paths[self._n_joined :]:
            with arrow.OSFile(os.fspath(path)) as source, arrow.ipc.open_file(source) as reader:
                for i in range(reader.num_record_batches):
                    whole = arrow.Table.from_batches([reader.get_batch(i)])
                    _write(self._writer, whole.cast(self._schema), self._form)
            self._n_joined += 1

    def finish(self, n_rows: int) -> list[Path]:
        self._join(self._parts.finish())
        self._end()
        flush(self._file)
        self.close()
        return self._put(self._beside)

    def _end(self) -> None:
        """Write the end of the file, once: an Arrow writer would write it again."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    def close(self) -> None:
        if self._file is not None:
            with contextlib.suppress(ValueError, OSError):  # a file that nobody reads
                self._end()
            self._file.close()
            self._file = None

    def is_there(self, finished: dict[str, Any]) -> bool:
        shutil.rmtree(self._folder, ignore_errors=True)  # left over if a run ended just before tidying up
        return super().is_there(finished)


class NpySink(_FileSink):
    """A single ``.npy`` file, which holds the values alone."""

    kind = "file of npy"

    def __init__(self, path: Path) -> None:
        super().__init__(path, _state_beside(path))
        self._beside, self._rows = self.journal.folder / "values", self.journal.folder / "rows"
        self._file: Any = None

    def shape(self, *row: int, dtype: Any) -> None:
        """Set the shape and dtype of a row; called before the file is opened."""
        self._row, self._dtype = row, np.dtype(dtype)

    def n_whole(self, n_batch: int) -> int:
        if self.path.exists() and self._beside.exists() and self.path.samefile(self._beside):
            self._beside.unlink()  # a run ended while the file had both names
        try:
            n_rows = int(self._rows.read_text())
            enough = self._beside.stat().st_size >= self._place(n_rows)
        except (FileNotFoundError, ValueError):
            return 0
        self._kept = n_rows - n_rows % n_batch
        return n_rows // n_batch if enough else 0

    def _header(self, n_rows: int) -> bytes:
        """Return a header; its length is independent of ``n_rows``, as NumPy leaves room for growth."""
        header = io.BytesIO()
        about = {"descr": npy.dtype_to_descr(self._dtype), "fortran_order": False}
        npy.write_array_header_1_0(header, about | {"shape": (n_rows, *self._row)})
        return header.getvalue()

    def _place(self, n_rows: int) -> int:
        return len(self._header(0)) + n_rows * int(np.prod(self._row)) * self._dtype.itemsize

    def open(self, schema: Any, n_batches: int) -> None:
        self._file = open(self._beside, "r+b" if self._beside.exists() else "w+b")
        self._n_rows = self._kept if n_batches else 0
        self._file.truncate(self._place(self._n_rows))
        self._file.seek(self._place(self._n_rows))

    def prepare(self, number: int, batch: Any) -> np.ndarray:
        return np.ascontiguousarray(batch, self._dtype)

    def write(self, prepared: np.ndarray) -> None:
        self._file.write(prepared.data)
        flush(self._file)
        self._n_rows += len(prepared)
        new = self.journal.folder / "rows.new"
        with open(new, "w", encoding="utf-8") as file:
            file.write(str(self._n_rows))
            flush(file)
        os.replace(new, self._rows)

    def finish(self, n_rows: int) -> list[Path]:
        self._file.seek(0)
        self._file.write(self._header(n_rows))
        flush(self._file)
        self.close()
        return self._put(self._beside)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class _Parts:
    """Part files in a folder.

    Attributes
    ----------
    paths : list of Path
        Those that are written, in order.
    """

    def __init__(self, folder: Path, aside: Path, form: str) -> None:
        self._folder, self._aside, self._form = folder, aside / "unwritten", form
        self.paths: list[Path] = []
        self._schema: Any = None

    def _path(self, number: int) -> Path:
        return self._folder / f"part-{number:06d}.{self._form}"

    def n_whole(self, n_batch: int) -> int:
        """Count the parts up to the first gap; a shorter last part is not counted, and is written again."""
        number = 0
        while self._path(number).exists():
            number += 1
        if number and _n_rows(self._path(number - 1), self._form) != n_batch:
            number -= 1
        return number

    def open(self, schema: Any, n_batches: int, call: dict[str, Any] | None) -> None:
        assert call is not None
        self._call = call
        self._schema = schema.with_metadata({**schema.metadata, _CALL_KEY: call_digest(call).encode()})
        self.paths = [self._path(number) for number in range(n_batches)]
        shutil.rmtree(self._aside, ignore_errors=True)  # left over if a run was killed
        self._aside.mkdir(exist_ok=True)

    def prepare(self, number: int, batch: Any) -> Path:
        """Write a batch to a file with another name, which is returned."""
        beside = self._aside / self._path(number).name
        with _new(beside) as file:
            with _writer(file, self._schema, self._form) as writer:
                _write(writer, require_arrow().Table.from_batches([batch], self._schema), self._form)
            flush(file)
        return beside

    def write(self, beside: Path) -> None:
        """Give the next part its name."""
        path = self._path(len(self.paths))
        put(beside, path, lambda there: _is_of(there, self._call))
        flush_folder(self._folder)
        self.paths.append(path)

    def finish(self) -> list[Path]:
        """Return all parts; if there are none, write one without rows, for its schema."""
        arrow = require_arrow()
        if not self.paths:
            none = [arrow.array([], field.type) for field in self._schema]
            self.write(self.prepare(0, arrow.RecordBatch.from_arrays(none, schema=self._schema)))
        for path in self._folder.glob(f"part-*.{self._form}"):  # left over from a run that saw more rows
            if path not in self.paths and _is_of(path, self._call):
                path.unlink()
        return self.paths


def open_sink(sink: Any, form: str | None) -> Sink:
    """Return the sink that the arguments of ``explain_batches`` specify.

    Raises
    ------
    ValueError, TypeError
        ``sink`` is not a path, has the extension of another format, or lies in a folder that does not exist.
    """
    if not isinstance(sink, (str, os.PathLike)):
        raise TypeError(f"sink must be a path, not a {type(sink).__qualname__}")
    path = Path(sink)
    suffix = path.suffix.lower()
    if path.is_dir() or not suffix or os.fspath(sink).endswith(("/", os.sep)):
        if form == "npy":
            raise ValueError(
                "the files of a folder have format 'parquet' or 'arrow'; a NumPy file is named 'NAME.npy'"
            )
        if path.exists() and not path.is_dir():
            raise ValueError(f"{str(path)!r} is a file, not a folder")
        return PartsSink(path, form or "parquet")
    kind = _SUFFIXES.get(suffix)
    if kind is None:
        raise ValueError(
            f"{str(path)!r} has no extension of an output file: {', '.join(_SUFFIXES)}. A folder of part "
            "files has no extension, or its name ends with a slash"
        )
    if form is not None and form != kind:
        raise ValueError(f"{str(path)!r} is a file of {kind}, but format is {form!r}")
    if not path.absolute().parent.is_dir():
        raise ValueError(f"there is no folder {str(path.absolute().parent)!r}")
    return NpySink(path) if kind == "npy" else JoinedSink(path, kind)


def _is_part(name: str) -> bool:
    return name.startswith("part-") and name.endswith((".parquet", ".arrow"))


def _state_beside(path: Path) -> Path:
    return path.parent / f".{path.name}.skshapgpu"


def _new(path: Path) -> Any:
    """Open a new file; unlink an existing one first, as it may be a hard link to the output."""
    path.unlink(missing_ok=True)
    return open(path, "xb")


def _is_of(path: Path, call: dict[str, Any] | None) -> bool:
    """Return whether a part names this call in its metadata."""
    arrow = require_arrow()
    import pyarrow.parquet

    if call is None:
        return False
    try:
        if path.suffix == ".parquet":
            found = pyarrow.parquet.read_schema(path).metadata
        else:
            with arrow.OSFile(os.fspath(path)) as source, arrow.ipc.open_file(source) as reader:
                found = reader.schema.metadata
    except (ValueError, OSError):  # pyarrow's own errors derive from these
        return False
    return (found or {}).get(_CALL_KEY) == call_digest(call).encode()


def _digest(path: Path) -> str:
    """Return a digest of a file's size and of bytes sampled at evenly spaced places."""
    size = path.stat().st_size
    found = hashlib.sha256(str(size).encode())
    with open(path, "rb") as file:
        for place in np.linspace(0, max(size - _DIGEST_BYTES, 0), _DIGEST_PLACES).astype(int).tolist():
            file.seek(place)
            found.update(file.read(_DIGEST_BYTES))
    return found.hexdigest()


def _writer(file: Any, schema: Any, form: str) -> Any:
    arrow = require_arrow()
    if form == "arrow":
        return arrow.ipc.new_file(file, schema)
    import pyarrow.parquet

    # Floats rarely repeat, so a dictionary does not pay for them.
    others = [field.name for field in schema if not arrow.types.is_floating(field.type)]
    return pyarrow.parquet.ParquetWriter(file, schema, use_dictionary=others)


def _write(writer: Any, whole: Any, form: str) -> None:
    if form == "arrow":
        writer.write_table(whole)
    else:
        writer.write_table(whole, row_group_size=max(whole.num_rows, 1))


def _plain(schema: Any) -> Any:
    """Replace dictionary types: an Arrow file can have only one dictionary for each column."""
    arrow = require_arrow()
    return arrow.schema(
        [
            field.with_type(field.type.value_type) if arrow.types.is_dictionary(field.type) else field
            for field in schema
        ],
        schema.metadata,
    )


def _n_rows(path: Path, form: str) -> int:
    arrow = require_arrow()
    if form == "parquet":
        import pyarrow.parquet

        return pyarrow.parquet.read_metadata(path).num_rows
    with arrow.OSFile(os.fspath(path)) as source, arrow.ipc.open_file(source) as reader:
        return sum(reader.get_batch(i).num_rows for i in range(reader.num_record_batches))


def files_of(paths: Sequence[Path]) -> list[list[Any]]:
    """Return names and sizes of files, as the journal records them for a complete output."""
    return [[path.name, path.stat().st_size] for path in paths]


def tidy(sink: Sink) -> None:
    """Delete the temporary files from which a complete output was made."""
    for name in ("parts", "unwritten"):
        shutil.rmtree(sink.journal.folder / name, ignore_errors=True)
    with contextlib.suppress(FileNotFoundError):
        (sink.journal.folder / "rows").unlink()
