"""Where rows come from: files, tables, arrays and iterators, as pieces of a number of rows that is the same
in every run.

A source knows the names and types of its columns, or that it has numbers without names, before its first
row is read; and it can begin at any row, by skipping files and row groups where these say how many rows
they have, else by reading and dropping rows.
"""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..inputs import table
from ..record_batches import require_arrow

#: What is read of a column of a Parquet file at once, so that large row groups are not held as a whole.
_BUFFER_BYTES = 2**18

#: Batches that pyarrow may read ahead of those that it gives.
_READAHEAD = 2

#: Bytes that are assumed for a value whose type does not say them, such as a text.
_TEXT_BYTES = 32

#: Rows of an array that are compared to tell whether it is the same: evenly spaced ones.
_COMPARED_ROWS = 64

#: How files begin, or end in their name, by format.
_MAGIC = {b"PAR1": "parquet", b"ARROW1": "arrow", b"\x93NUMPY": "npy"}
_SUFFIXES = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".csv": "csv",
    ".tsv": "tsv",
}
_COMPRESSED = (".gz", ".bz2", ".zst", ".lz4")


class Source(ABC):
    """Rows to explain.

    Attributes
    ----------
    n_rows : int or None
        None: not known beforehand.
    schema : pyarrow.Schema or None
        Of the record batches that it gives; None: it gives arrays or CSR matrices.
    single : bool
        Whether these are float32.
    """

    n_rows: int | None = None
    schema: Any = None
    single: bool = False

    @abstractmethod
    def row_bytes(self, columns: Sequence[str]) -> int:
        """Bytes of a row of these columns, about."""

    @abstractmethod
    def fingerprint(self, columns: Sequence[str]) -> dict[str, Any]:
        """What tells the source from others, as JSON has it."""

    @abstractmethod
    def _pieces(self, columns: Sequence[str], start: int, n: int) -> Iterator[Any]:
        """The rows from ``start`` on, in pieces of any size; about ``n`` is best."""

    def read(self, columns: Sequence[str], start: int, n: int) -> Iterator[Any]:
        """The rows from ``start`` on, n in each piece but the last; of a table these columns."""
        held: list[Any] = []
        n_held = 0
        for piece in self._pieces(columns, start, n):
            begin, size = 0, piece.shape[0]
            while begin < size:
                taken = min(n - n_held, size - begin)
                held.append(piece if taken == size else _slice(piece, begin, taken))
                begin, n_held = begin + taken, n_held + taken
                if n_held == n:
                    yield _joined(held)
                    held, n_held = [], 0
        if held:
            yield _joined(held)


def open_source(source: Any, floats: Any = None) -> Source:
    """The source that the argument of ``explain_batches`` means.

    Parameters
    ----------
    source
        As there.
    floats : callable or None
        Of the names of the columns of a CSV file: those that are read as float64 where they begin with whole
        numbers.

    Raises
    ------
    ValueError, TypeError
        It is no source, or a path is that of nothing that can be read.
    """
    if _is_path(source):
        return _of_path(Path(source), floats)
    if isinstance(source, (list, tuple)) and source and all(map(_is_path, source)):
        return _of_files([Path(p) for p in source], None, floats)
    if isinstance(source, np.ndarray):
        return MatrixSource(table(source))
    if sp.issparse(source):
        return MatrixSource(table(source))
    arrow = require_arrow()
    import pyarrow.dataset

    if isinstance(source, pyarrow.dataset.Dataset):
        return DatasetSource(source)
    if isinstance(source, (arrow.Table, arrow.RecordBatch)):
        return TableSource(_as_table(source))
    if isinstance(source, arrow.RecordBatchReader):
        return StreamSource(source.schema, source)
    if hasattr(source, "collect"):
        raise TypeError(f"source is a {type(source).__qualname__}: collect it first, or write it to files")
    if hasattr(source, "columns") or hasattr(source, "__dataframe__"):
        return TableSource(_as_table(source))
    if isinstance(source, Iterable) and not isinstance(source, (bytes, dict, set)):
        return _of_iterator(iter(source))
    raise TypeError(
        "source must be a path, paths, a dataset, table or reader of pyarrow, an array, a CSR matrix, a data "
        f"frame or an iterator of such, not a {type(source).__qualname__}"
    )


class MatrixSource(Source):
    """An array or a CSR matrix in memory, or memory-mapped by the user."""

    def __init__(self, array: Any) -> None:
        self._array = array
        self.n_rows = array.shape[0]
        self.single = array.dtype.char == "f"

    def row_bytes(self, columns: Sequence[str]) -> int:
        return self._array.shape[1] * max(self._array.dtype.itemsize, 1)

    def fingerprint(self, columns: Sequence[str]) -> dict[str, Any]:
        array = self._array
        kind = "matrix" if sp.issparse(array) else "array"
        rows = array[_places(array.shape[0])]
        rows = rows.toarray() if sp.issparse(rows) else np.ascontiguousarray(rows)
        content = repr(rows.tolist()).encode() if rows.dtype.hasobject else rows.tobytes()
        return {
            "kind": kind,
            "dtype": array.dtype.str,
            "shape": list(array.shape),
            "content": hashlib.sha256(content).hexdigest(),
        }

    def _pieces(self, columns: Sequence[str], start: int, n: int) -> Iterator[Any]:
        for first in range(start, self._array.shape[0], n):
            yield self._array[first : first + n]


class NpySource(Source):
    """A ``.npy`` file, mapped anew for each piece, so that pages that were read are given back."""

    def __init__(self, path: Path) -> None:
        self._path = path
        array = self._map()
        if array.ndim != 2:
            raise ValueError(f"{str(path)!r} has an array of shape {array.shape}, not a two-dimensional one")
        self._shape, self._dtype = array.shape, array.dtype
        self.n_rows, self.single = array.shape[0], array.dtype.char == "f"

    def _map(self) -> np.ndarray:
        try:
            if os.path.getsize(self._path) < 2**12:  # an array without rows cannot be mapped
                return np.load(self._path, allow_pickle=False)
            return np.load(self._path, mmap_mode="r", allow_pickle=False)
        except (ValueError, EOFError) as error:
            raise ValueError(f"{str(self._path)!r} cannot be read: {error}") from error

    def row_bytes(self, columns: Sequence[str]) -> int:
        return self._shape[1] * self._dtype.itemsize

    def fingerprint(self, columns: Sequence[str]) -> dict[str, Any]:
        return {"kind": "npy", "dtype": self._dtype.str, "shape": list(self._shape), **_of_stat([self._path])}

    def _pieces(self, columns: Sequence[str], start: int, n: int) -> Iterator[Any]:
        for first in range(start, self._shape[0], n):
            array = self._map()
            if (array.shape, array.dtype) != (self._shape, self._dtype):
                raise ValueError(f"{str(self._path)!r} was changed while it was read")
            yield np.array(array[first : first + n])


class TableSource(Source):
    """A table in memory."""

    def __init__(self, whole: Any) -> None:
        self._table, self.schema, self.n_rows = whole, whole.schema, whole.num_rows

    def row_bytes(self, columns: Sequence[str]) -> int:
        return _row_bytes(self.schema, columns)

    def fingerprint(self, columns: Sequence[str]) -> dict[str, Any]:
        chosen = self._table.select(list(columns))
        some = [chosen.slice(place, 1).to_pylist() for place in _places(self._table.num_rows)]
        content = hashlib.sha256(repr(some).encode()).hexdigest()
        return {
            "kind": "table",
            "n_rows": self.n_rows,
            "content": content,
            **_of_schema(self.schema, columns),
        }

    def _pieces(self, columns: Sequence[str], start: int, n: int) -> Iterator[Any]:
        yield from self._table.select(list(columns)).slice(start).to_batches(max_chunksize=n)


class StreamSource(Source):
    """Record batches, or arrays, that come one after the other, once."""

    def __init__(self, schema: Any, items: Iterable[Any], first: Any = None) -> None:
        self.schema, self._items, self._first = schema, items, first
        self.single = first is not None and first.dtype.char == "f"

    def row_bytes(self, columns: Sequence[str]) -> int:
        if self.schema is None:
            return self._first.shape[1] * max(self._first.dtype.itemsize, 1)
        return _row_bytes(self.schema, columns)

    def fingerprint(self, columns: Sequence[str]) -> dict[str, Any]:
        if self.schema is None:
            return {"kind": "iterator", "dtype": self._first.dtype.str, "n_columns": self._first.shape[1]}
        return {"kind": "iterator", **_of_schema(self.schema, columns)}

    def _pieces(self, columns: Sequence[str], start: int, n: int) -> Iterator[Any]:
        for number, item in enumerate(self._items):
            for piece in self._checked(item, number, columns):
                size = piece.shape[0]
                if start < size:
                    yield _slice(piece, start, size - start) if start else piece
                start = max(0, start - size)

    def _checked(self, item: Any, number: int, columns: Sequence[str]) -> list[Any]:
        """An item in the form of the first."""
        if self.schema is None:
            piece = table(item)
            if not isinstance(piece, np.ndarray) and not sp.issparse(piece):
                raise ValueError(f"item {number} of the source is a data frame, but the first has no names")
            if piece.shape[1] != self._first.shape[1] or piece.dtype != self._first.dtype:
                raise ValueError(
                    f"item {number} of the source has {piece.shape[1]} columns of {piece.dtype}, the first "
                    f"{self._first.shape[1]} of {self._first.dtype}"
                )
            if sp.issparse(piece) != sp.issparse(self._first):
                raise ValueError(f"the source mixes arrays and sparse matrices: item {number}")
            return [piece]
        arrow = require_arrow()
        try:
            piece = _as_table(item).select(list(columns))
            wanted = arrow.schema([self.schema.field(name) for name in columns])
            return (piece if piece.schema.equals(wanted) else piece.cast(wanted)).to_batches()
        except (arrow.ArrowInvalid, arrow.ArrowNotImplementedError, KeyError) as error:
            raise ValueError(
                f"item {number} of the source does not have the columns of the first: {error}"
            ) from error


class DatasetSource(Source):
    """A dataset of pyarrow that the user made, with filters, partitions and file systems of all kinds."""

    def __init__(self, dataset: Any) -> None:
        self._dataset, self.schema = dataset, dataset.schema

    def row_bytes(self, columns: Sequence[str]) -> int:
        return _row_bytes(self.schema, columns)

    def fingerprint(self, columns: Sequence[str]) -> dict[str, Any]:
        found = {"kind": "dataset", **_of_schema(self.schema, columns)}
        files = getattr(self._dataset, "files", None)
        return found if files is None else found | _of_infos(self._dataset.filesystem.get_file_info(files))

    def _pieces(self, columns: Sequence[str], start: int, n: int) -> Iterator[Any]:
        pieces = self._dataset.to_batches(
            columns=list(columns), batch_size=n, batch_readahead=_READAHEAD, fragment_readahead=1
        )
        return _dropped(pieces, start)


class FilesSource(Source):
    """Files of one format, in the order of their paths."""

    def __init__(self, dataset: Any, kind: str, *, in_order: bool) -> None:
        self._kind, self.schema = kind, dataset.schema
        self._fragments = list(dataset.get_fragments())
        if not in_order:
            self._fragments.sort(key=lambda fragment: fragment.path)
        self._filesystem = dataset.filesystem
        self._counted = kind in ("parquet", "arrow")
        if self._counted:
            self._n_rows = [fragment.count_rows() for fragment in self._fragments]
            self.n_rows = sum(self._n_rows)

    def row_bytes(self, columns: Sequence[str]) -> int:
        return _row_bytes(self.schema, columns)

    def fingerprint(self, columns: Sequence[str]) -> dict[str, Any]:
        infos = self._filesystem.get_file_info([fragment.path for fragment in self._fragments])
        return {"kind": self._kind, **_of_schema(self.schema, columns), **_of_infos(infos)}

    def _pieces(self, columns: Sequence[str], start: int, n: int) -> Iterator[Any]:
        for number, fragment in enumerate(self._fragments):
            if self._counted and start >= self._n_rows[number]:
                start -= self._n_rows[number]
                continue
            for piece in self._of_fragment(fragment, columns, start, n):
                size = piece.num_rows
                if start < size:
                    yield piece.slice(start) if start else piece
                start = max(0, start - size)

    def _of_fragment(self, fragment: Any, columns: Sequence[str], start: int, n: int) -> Iterator[Any]:
        """All rows of a file, in batches; those before ``start`` may be given without their content."""
        there = fragment.physical_schema
        same = all(
            name in there.names and there.field(name).type == self.schema.field(name).type for name in columns
        )
        if self._kind == "parquet" and same:
            return self._of_parquet(fragment, columns, start, n)
        return fragment.to_batches(
            schema=self.schema,
            columns=list(columns),
            batch_size=n,
            batch_readahead=_READAHEAD,
            fragment_readahead=1,
        )

    def _of_parquet(self, fragment: Any, columns: Sequence[str], start: int, n: int) -> Iterator[Any]:
        """The pages of a row group one after the other; a scanner would hold row groups as a whole."""
        import pyarrow.parquet

        with pyarrow.parquet.ParquetFile(
            fragment.path, filesystem=fragment.filesystem, pre_buffer=False, buffer_size=_BUFFER_BYTES
        ) as file:
            first, skipped = 0, 0
            while first < file.num_row_groups:
                size = file.metadata.row_group(first).num_rows
                if skipped + size > start:
                    break
                first, skipped = first + 1, skipped + size
            if skipped:
                yield _Skipped(skipped)
            groups = list(range(first, file.num_row_groups))
            if groups:
                for piece in file.iter_batches(n, row_groups=groups, columns=list(columns)):
                    yield piece.select(list(columns))


class _Skipped:
    """Rows that need not be read."""

    def __init__(self, num_rows: int) -> None:
        self.num_rows = num_rows


def _dropped(pieces: Iterable[Any], start: int) -> Iterator[Any]:
    for piece in pieces:
        size = piece.num_rows
        if start < size:
            yield piece.slice(start) if start else piece
        start = max(0, start - size)


def _of_path(path: Path, floats: Any) -> Source:
    if path.is_dir():
        return _of_files(_files_in(path), path, floats)
    if not path.exists():
        raise ValueError(f"there is no file {str(path)!r}")
    if _format_of(path) == "npy":
        return NpySource(path)
    return _of_files([path], None, floats)


def _files_in(folder: Path) -> list[Path]:
    """Files below a folder whose name, or folder's name, does not begin with a dot or an underscore."""
    found = [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not any(part[0] in "._" for part in path.relative_to(folder).parts)
    ]
    if not found:
        raise ValueError(f"there are no files in {str(folder)!r}")
    return found


def _format_of(path: Path) -> str:
    if not path.is_file():
        raise ValueError(f"there is no file {str(path)!r}")
    with open(path, "rb") as file:
        begin = file.read(8)
    for magic, kind in _MAGIC.items():
        if begin.startswith(magic):
            return kind
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in _COMPRESSED:
        suffixes.pop()
    kind = _SUFFIXES.get(suffixes[-1] if suffixes else "", "")
    if kind not in ("csv", "tsv"):
        raise ValueError(
            f"{str(path)!r} is no file of Parquet, Arrow or NumPy by its content, and no .csv or .tsv by name"
        )
    return kind


def _of_files(paths: Sequence[Path], folder: Path | None, floats: Any) -> Source:
    require_arrow()
    import pyarrow.csv
    import pyarrow.dataset

    kinds = {_format_of(path) for path in paths}
    if len(kinds) > 1:
        raise ValueError(f"the files of a source must be of one format, not of {' and '.join(sorted(kinds))}")
    kind = kinds.pop()
    if kind == "npy":
        raise ValueError(
            "several .npy files are no source: pass an iterator of the arrays, or one of the paths"
        )
    form: Any = kind
    if kind in ("csv", "tsv"):
        parse = pyarrow.csv.ParseOptions(delimiter="\t" if kind == "tsv" else ",")
        form = pyarrow.dataset.CsvFileFormat(parse_options=parse)
    root = None if folder is None else os.fspath(folder.absolute())
    names = [os.fspath(path.absolute()) for path in paths]

    def dataset(form: Any) -> Any:
        return pyarrow.dataset.dataset(
            names, format=form, partitioning=None if root is None else "hive", partition_base_dir=root
        )

    found = _read(dataset, form, names)
    if kind in ("csv", "tsv") and floats is not None:
        types = _as_floats(found.schema, floats(found.schema))
        if types:
            convert = pyarrow.csv.ConvertOptions(column_types=types)
            form = pyarrow.dataset.CsvFileFormat(parse_options=parse, convert_options=convert)
            found = _read(dataset, form, names)
    return FilesSource(found, "csv" if kind == "tsv" else kind, in_order=folder is None)


def _read(dataset: Any, form: Any, names: Sequence[str]) -> Any:
    try:
        return dataset(form)
    except (ValueError, OSError) as error:  # pyarrow's own errors are such
        if isinstance(error, FileNotFoundError):
            raise
        raise ValueError(f"{names[0]!r} cannot be read: {error}") from error


def _as_floats(schema: Any, names: Sequence[str]) -> dict[str, Any]:
    """The columns among these that begin with whole numbers, or with nothing: more may follow."""
    arrow = require_arrow()
    kinds = (arrow.int64(), arrow.null())
    return {name: arrow.float64() for name in names if schema.field(name).type in kinds}


def _of_iterator(items: Iterator[Any]) -> Source:
    try:
        first = next(items)
    except StopIteration:
        raise ValueError("source is an iterator without items, so that its columns are not known") from None
    if _is_path(first):
        raise TypeError("source is an iterator of paths: pass a list of them")
    both = chain([first], items)
    arrow = require_arrow()
    if isinstance(first, (arrow.Table, arrow.RecordBatch)) or hasattr(first, "columns"):
        return StreamSource(_as_table(first).schema, both)
    array = table(first)
    return StreamSource(None, both, array[:0].copy())


def _as_table(item: Any) -> Any:
    """A table of an item of pyarrow, pandas or polars."""
    arrow = require_arrow()
    if isinstance(item, arrow.Table):
        return item
    if isinstance(item, arrow.RecordBatch):
        return arrow.Table.from_batches([item])
    try:
        if hasattr(item, "to_arrow"):
            return item.to_arrow()
        if hasattr(item, "iloc"):
            return arrow.Table.from_pandas(item, preserve_index=False)
    except (arrow.ArrowInvalid, arrow.ArrowTypeError) as error:
        raise ValueError(f"a data frame cannot be taken as columns of Arrow: {error}") from error
    raise TypeError(
        f"source has a {type(item).__module__}.{type(item).__qualname__}, which is no known table"
    )


def _places(n_rows: int) -> list[int]:
    """Rows that are compared, spread over all."""
    places = np.linspace(0, max(n_rows - 1, 0), min(n_rows, _COMPARED_ROWS)).astype(int)
    return np.unique(places).tolist()


def _is_path(given: Any) -> bool:
    return isinstance(given, (str, os.PathLike))


def _slice(piece: Any, begin: int, size: int) -> Any:
    if hasattr(piece, "num_rows"):
        return piece.slice(begin, size)
    return piece[begin : begin + size]


def _joined(held: list[Any]) -> Any:
    if len(held) == 1:
        return held[0]
    if isinstance(held[0], np.ndarray):
        return np.concatenate(held)
    if sp.issparse(held[0]):
        return sp.vstack(held, format="csr")
    arrow = require_arrow()
    whole = arrow.Table.from_batches(held).unify_dictionaries().combine_chunks()
    return whole.to_batches()[0]


def _row_bytes(schema: Any, columns: Sequence[str]) -> int:
    total = 0
    for name in columns:
        try:
            total += max(schema.field(name).type.bit_width // 8, 1)
        except ValueError:  # of any length
            total += _TEXT_BYTES
    return total


def _of_schema(schema: Any, columns: Sequence[str]) -> dict[str, Any]:
    return {"columns": [[name, str(schema.field(name).type)] for name in columns]}


def _of_infos(infos: Sequence[Any]) -> dict[str, Any]:
    return _of_listing([(info.path, info.size, info.mtime_ns) for info in infos])


def _of_stat(paths: Sequence[Path]) -> dict[str, Any]:
    stats = [(str(path.absolute()), path.stat()) for path in paths]
    return _of_listing([(path, stat.st_size, stat.st_mtime_ns) for path, stat in stats])


def _of_listing(listing: Sequence[tuple[str, int | None, int | None]]) -> dict[str, Any]:
    """Of files: their number, the first, and a digest of all paths, sizes and times of their last change."""
    return {
        "n_files": len(listing),
        "first_file": listing[0][0] if listing else None,
        "bytes": sum(size or 0 for _, size, _ in listing),
        "files": hashlib.sha256(repr(sorted(listing)).encode()).hexdigest(),
    }
