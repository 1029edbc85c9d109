"""Sources of rows: files, tables, datasets, arrays and iterators."""

from __future__ import annotations

import hashlib
import math
import os
import pickle
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.lib import format as npy

from .._files.locations import Place, RemotePath, is_path, locate, locate_all
from .._rows.arrow import is_dictionary, is_text, require_arrow
from .._rows.pandas_types import UNKNOWN_NULLS, TypesScan, columns_of, same_dtype
from .._rows.tables import row_labels, table
from .csv_files import CsvFormat
from .files import READAHEAD, files_in, format_of, info_of, open_files
from .frame_rows import FrameRows, frame_schema, one_batch
from .index_levels import levels_to_keep
from .source import (
    SCANNED_ROWS,
    TEXT_BYTES,
    Source,
    Wanted,
    of_listing,
    of_schema,
    part,
    require_same_names,
    row_bytes,
)
from .types import fitted, is_number, wider

#: Number of evenly spaced rows that are compared to recognize an array.
_COMPARED_ROWS = 64

_NO_OPTIONS = CsvFormat()

#: Name, in messages, of the item of an iterator that determines the columns of the output.
_FIRST = "the first item"


def open_source(
    source: Any, csv: CsvFormat = _NO_OPTIONS, filesystem: Any = None, keep: Sequence[str] = ()
) -> Source:
    """Return the source that the argument of ``explain_batches`` specifies.

    Parameters
    ----------
    source
        See :func:`explain_batches`.
    csv : CsvFormat
        Options of CSV files, ignored for other sources.
    filesystem : file system of pyarrow or fsspec, or None
        File system of paths without a scheme.
    keep : sequence of str
        Names of columns to keep, which may be levels of the index of pandas.

    Raises
    ------
    ValueError, TypeError
        ``source`` is not a supported source, or a path cannot be read.
    """
    if is_path(source):
        return _of_path(locate(source, filesystem), csv, keep)
    if isinstance(source, (list, tuple)) and source and all(map(is_path, source)):
        return open_files(locate_all(source, filesystem), None, csv, keep)
    if isinstance(source, np.ndarray):
        return MatrixSource(table(source))
    if sp.issparse(source):
        return MatrixSource(table(source))
    arrow = require_arrow()
    import pyarrow.dataset

    if isinstance(source, pyarrow.dataset.Dataset):
        return DatasetSource(source)
    if isinstance(source, (arrow.Table, arrow.RecordBatch)):
        return TableSource(_as_table(source)[0])
    if isinstance(source, arrow.RecordBatchReader):
        return StreamSource(source.schema, iter(source))
    if hasattr(source, "collect"):
        raise TypeError(f"source is a {type(source).__qualname__}: collect it first, or write it to files")
    if row_labels(source) is not None and hasattr(source, "columns"):
        return FrameSource(source, keep, "the data frame")
    if hasattr(source, "columns") or hasattr(source, "__dataframe__"):
        return TableSource(_as_table(source)[0])
    if isinstance(source, Iterable) and not isinstance(source, (bytes, dict, set)):
        return _of_iterator(iter(source), keep)
    raise TypeError(
        "source must be a path, paths, a pyarrow dataset, table or reader, an array, a CSR matrix, a data "
        f"frame or an iterator over such objects, not a {type(source).__qualname__}"
    )


class MatrixSource(Source):
    """An array or a CSR matrix, in memory or memory-mapped by the user."""

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
    """A ``.npy`` file, memory-mapped again for each piece so that pages already read are released."""

    def __init__(self, path: Path) -> None:
        self._path, self._info, self.places = path, info_of(path), (path,)
        array = self._map()
        self._set_up(array.shape, array.dtype)

    def _set_up(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        if len(shape) != 2:
            raise ValueError(f"{str(self._path)!r} has an array of shape {shape}, not a two-dimensional one")
        self._shape, self._dtype = shape, dtype
        self.n_rows, self.single = shape[0], dtype.char == "f"

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
        about = {"kind": "npy", "dtype": self._dtype.str, "shape": list(self._shape)}
        return about | of_listing([self._info])

    def _rows(self, first: int, n: int) -> np.ndarray:
        array = self._map()
        self._require_unchanged()
        return np.array(array[first : first + n])

    def _require_unchanged(self) -> None:
        if info_of(self._path) != self._info:
            raise ValueError(f"{str(self._path)!r} was changed while it was read")

    def _pieces(self, columns: Sequence[str], start: int, n: int) -> Iterator[Any]:
        for first in range(start, self._shape[0], n):
            yield self._rows(first, n)


class RemoteNpySource(NpySource):
    """A ``.npy`` file in another file system, of which each piece is a range."""

    _path: Any

    def __init__(self, path: RemotePath) -> None:
        self._path, self._info, self.places = path, info_of(path), (path,)
        try:
            with path.open() as file:
                version = npy.read_magic(file)
                read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}.get(version)
                if read is None:
                    raise ValueError(f"its version of the format is {version}")
                shape, self._by_columns, dtype = read(file)
                self._begin = file.tell()
            if dtype.hasobject:
                raise ValueError("it holds Python objects, which only a pickle could restore")
            if self._begin + math.prod(shape) * dtype.itemsize > self._info[1]:
                raise ValueError("it is cut off")
        except (ValueError, EOFError) as error:
            raise ValueError(f"{str(path)!r} cannot be read: {error}") from error
        self._set_up(shape, dtype)

    def _rows(self, first: int, n: int) -> np.ndarray:
        n_rows, n_columns = self._shape
        n, size = min(n, n_rows - first), self._dtype.itemsize
        with self._path.open() as file:
            if self._by_columns:
                ranges = [(self._begin + (n_rows * i + first) * size, n * size) for i in range(n_columns)]
            else:
                ranges = [(self._begin + first * n_columns * size, n * n_columns * size)]
            content = b"".join(file.read_at(length, offset) for offset, length in ranges)
        self._require_unchanged()
        shape = (n_columns, n) if self._by_columns else (n, n_columns)
        found = np.frombuffer(content, self._dtype).reshape(shape)
        return np.ascontiguousarray(found.T) if self._by_columns else found


class FrameSource(Source):
    """A data frame of pandas, whose rows are passed on as they are; only the columns to keep are converted.

    Parameters
    ----------
    frame : pandas.DataFrame
    keep : sequence of str
        Names of columns to keep, which may be levels of the index.
    where : str
        The frame, for messages.

    Attributes
    ----------
    features : pandas.DataFrame
        All columns; after :meth:`settle`, the features.
    kept : pyarrow.Table
    """

    def __init__(self, frame: Any, keep: Sequence[str], where: str) -> None:
        self.features, self.n_rows = frame, len(frame)
        fields = frame_schema(frame)
        columns = frame.iloc[:, [i for i, name in enumerate(fields.names) if name in keep]]
        try:
            self.kept, levels = _with_levels(columns, frame, keep, where)
        except (TypeError, NotImplementedError, require_arrow().ArrowInvalid) as error:
            raise ValueError(
                f"the columns of {where} to keep cannot be converted to Arrow: {error}"
            ) from error
        self.levels = tuple(levels)
        for field in self.kept.schema:
            place = fields.get_field_index(field.name)
            fields = fields.append(field) if place < 0 else fields.set(place, field)
        self.schema = fields

    def settle(self, wanted: Wanted) -> None:
        places = [self.schema.names.index(name) for name in wanted.features]
        self.features = self.features.iloc[:, places]
        self.kept = self.kept.select(list(wanted.kept))

    def row_bytes(self, columns: Sequence[str]) -> int:
        dtypes = self.features.dtypes
        return sum(getattr(dtype, "itemsize", TEXT_BYTES) for dtype in dtypes) + row_bytes(
            self.kept.schema, self.kept.schema.names
        )

    def fingerprint(self, columns: Sequence[str]) -> dict[str, Any]:
        frame = self.features.iloc[_places(len(self.features))]
        content = [series.tolist() for _, series in frame.items()]
        categories = [list(getattr(dtype, "categories", ())) for dtype in frame.dtypes]
        kept = TableSource(self.kept).fingerprint(self.kept.schema.names)
        return {
            "kind": "frame",
            "n_rows": self.n_rows,
            "content": hashlib.sha256(repr([content, categories]).encode()).hexdigest(),
            "columns": [[str(name), str(dtype)] for name, dtype in frame.dtypes.items()],
            "kept": [kept["content"], kept["columns"]],
        }

    def _pieces(self, columns: Sequence[str], start: int, n: int) -> Iterator[Any]:
        for first in range(start, len(self.features), n):
            rows = self.features.iloc[first : first + n]
            yield FrameRows(rows, one_batch(self.kept.slice(first, n)))


class TableSource(Source):
    """A table in memory."""

    def __init__(self, whole: Any) -> None:
        self._table, self.schema, self.n_rows = whole, whole.schema, whole.num_rows

    def settle(self, wanted: Wanted) -> None:
        if wanted.frames:
            scan = TypesScan(columns_of(self.schema, wanted.features))
            scan.add(self._table.select(scan.needed))
            self.pandas_types = scan.types()

    def row_bytes(self, columns: Sequence[str]) -> int:
        return row_bytes(self.schema, columns)

    def fingerprint(self, columns: Sequence[str]) -> dict[str, Any]:
        chosen = self._table.select(list(columns))
        some = [chosen.slice(place, 1).to_pylist() for place in _places(self._table.num_rows)]
        content = hashlib.sha256(repr(some).encode()).hexdigest()
        return {
            "kind": "table",
            "n_rows": self.n_rows,
            "content": content,
            **of_schema(self.schema, columns),
        }

    def _pieces(self, columns: Sequence[str], start: int, n: int) -> Iterator[Any]:
        yield from self._table.select(list(columns)).slice(start).to_batches(max_chunksize=n)


class StreamSource(Source):
    """Record batches, data frames or arrays that can be read only once, one after the other.

    Rows of data frames of pandas are passed on as they are to the steps of a pipeline, and are otherwise
    converted to tables. The steps receive all rows with the dtypes of the first item that has rows.
    """

    def __init__(
        self, schema: Any, items: Iterator[Any], first: Any = None, levels: Sequence[str] = ()
    ) -> None:
        self.schema, self._items, self._first, self.levels = schema, items, first, tuple(levels)
        self.single = first is not None and first.dtype.char == "f"
        self._wanted = Wanted(())
        self._frame: Any = None  # features of the first item, if they are passed on as they are
        self._scan: Any = None

    def settle(self, wanted: Wanted) -> None:
        self._wanted = wanted
        if not wanted.frames:
            return
        self._items, first = _begun(self._items)
        if first is None:
            return
        if row_labels(first) is not None:
            self._frame, _ = self._rows_of_frame(first, _FIRST)
            return
        table, _ = _as_table(first)
        self._scan = TypesScan(columns_of(table.schema, wanted.features))
        self._scan.add(table.select(self._scan.needed))
        self.pandas_types = self._scan.types(UNKNOWN_NULLS)

    def row_bytes(self, columns: Sequence[str]) -> int:
        if self.schema is None:
            return self._first.shape[1] * max(self._first.dtype.itemsize, 1)
        return row_bytes(self.schema, columns)

    def fingerprint(self, columns: Sequence[str]) -> dict[str, Any]:
        if self.schema is None:
            return {"kind": "iterator", "dtype": self._first.dtype.str, "n_columns": self._first.shape[1]}
        return {"kind": "iterator", **of_schema(self.schema, columns)}

    def _pieces(self, columns: Sequence[str], start: int, n: int) -> Iterator[Any]:
        for number, item in enumerate(self._items):
            where = f"item {number} of the source"
            if self.schema is None:
                pieces = [self._checked_array(item, where)]
            else:
                pieces = (
                    self._checked(item, where) if self._frame is None else self._checked_frame(item, where)
                )
            for piece in pieces:
                size = piece.shape[0]
                if start < size:
                    yield part(piece, start, size - start) if start else piece
                start = max(0, start - size)

    def _checked_array(self, item: Any, where: str) -> Any:
        """Return a copy of an item if its columns and dtype fit the first item; float dtypes may differ."""
        array, first = table(item), self._first
        if not isinstance(array, np.ndarray) and not sp.issparse(array):
            raise ValueError(f"{where} is a data frame, but {_FIRST} has no names")
        floats = {array.dtype.char, first.dtype.char} <= {"f", "d"}
        if array.shape[1] != first.shape[1] or not (floats or array.dtype == first.dtype):
            raise ValueError(
                f"{where} has {array.shape[1]} columns of {array.dtype}, the first {first.shape[1]} of "
                f"{first.dtype}: give all the same columns and dtype"
            )
        if sp.issparse(array) != sp.issparse(first):
            raise ValueError(f"the source mixes arrays and sparse matrices: {where}")
        return array.copy()  # rows are read ahead, and iterators may fill the same array again

    def _rows_of_frame(self, item: Any, where: str) -> tuple[Any, Any]:
        """Return the features of a data frame of pandas, and a table of the columns to keep."""
        source = FrameSource(item, self._wanted.kept, where)
        require_same_names(source.schema.names, self.schema.names, self._wanted, where, _FIRST)
        source.settle(self._wanted)
        return source.features, source.kept

    def _checked_frame(self, item: Any, where: str) -> list[Any]:
        """Return the rows of an item whose features have the dtypes of the first item, or fit into these."""
        import pandas

        if row_labels(item) is None:
            raise ValueError(
                f"{where} is a {type(item).__qualname__}, but {_FIRST} is a data frame of pandas"
            )
        if not len(item):
            return []
        frame, kept = self._rows_of_frame(item.copy(), where)  # a copy: see _checked_array
        for place, (name, dtype) in enumerate(zip(self._wanted.features, self._frame.dtypes)):
            series = frame.iloc[:, place]
            if same_dtype(series.dtype, dtype):
                continue
            whole = pandas.concat([self._frame.iloc[:, place], series]).dtype
            if str(dtype) == "category" or whole != dtype:
                raise ValueError(_other_type(name, series.dtype, where, dtype))
            frame.isetitem(place, series.astype(dtype))
        return [FrameRows(frame, one_batch(self._converted(kept, self._wanted.kept, where)))]

    def _checked(self, item: Any, where: str) -> list[Any]:
        """Return the columns of an item by name; features may have a wider type than in the first item."""
        wanted = self._wanted
        if hasattr(item, "iloc"):  # of pandas, whose values the table would share: see _checked_array
            item = item.copy()
        whole, _ = _as_table(item, wanted.kept, where)
        require_same_names(whole.schema.names, self.schema.names, wanted, where, _FIRST)
        converted = self._converted(whole, wanted.columns, where)
        if self._scan is not None:
            self._require_types(converted, where)
        return converted.to_batches()

    def _require_types(self, table: Any, where: str) -> None:
        """Reject features whose pandas dtypes are not those of the first item."""
        own = TypesScan(columns_of(table.schema, self._wanted.features))
        own.add_categories(table.select(own.needed))
        for field in self._scan.schema:
            kind = table.schema.field(field.name).type
            texts = is_text(field.type) and is_text(kind.value_type if is_dictionary(kind) else kind)
            if not texts and wider(field.type, kind) != field.type and table.num_rows:
                raise ValueError(_other_type(field.name, kind, where, field.type))
            if is_dictionary(field.type) and own.categories(field.name) != self._scan.categories(field.name):
                raise ValueError(_other_type(field.name, kind, where, field.type))

    def _converted(self, whole: Any, names: Sequence[str], where: str) -> Any:
        """Return columns of a table by name, those to keep with the types of the first item."""
        wanted, arrow = self._wanted, require_arrow()
        fields, columns = [], []
        for name in names:
            column, field = whole.column(name), self.schema.field(name)
            if column.null_count == len(column) and column.type != field.type:  # without values
                column = arrow.chunked_array([arrow.nulls(len(column), field.type)])
            if wider(field.type, column.type) is None:
                raise ValueError(
                    f"column {name!r} is {column.type} in {where}, but {field.type} in {_FIRST}: give it the "
                    "same type in all"
                )
            fields.append(field if name in wanted.kept else whole.schema.field(name).with_type(column.type))
            columns.append(column)
        original = arrow.Table.from_arrays(columns, names=list(names))
        converted = fitted(original, arrow.schema(fields), where)
        for name in wanted.kept:
            was, now = original.column(name), converted.column(name)
            if not is_number(was.type) or wider(was.type, now.type) == now.type:
                continue
            if not np.array_equal(now.to_numpy(), was.to_numpy(), equal_nan=True):
                raise ValueError(
                    f"column {name!r} of {where} is {was.type}, and has values that its type {now.type} in "
                    f"{_FIRST} cannot hold: give it the wider type in all"
                )
        return converted


class DatasetSource(Source):
    """A pyarrow dataset of the user, with any filter, partitioning and file system."""

    def __init__(self, dataset: Any) -> None:
        self._dataset, self.schema = dataset, dataset.schema
        self.places = tuple(_places_of(dataset))
        self._wanted = Wanted(())

    def settle(self, wanted: Wanted) -> None:
        self._wanted = wanted
        try:
            fragments = self._dataset.get_fragments()
        except ValueError:  # a dataset with a filter does not list its fragments before it is read
            fragments = ()
        for fragment in fragments:
            self._require_columns(fragment)
        if wanted.frames:
            scan = TypesScan(columns_of(self.schema, wanted.features))
            for fragment, rows in self._scanned(scan.needed, SCANNED_ROWS) if scan.needed else ():
                scan.add(rows, getattr(fragment, "path", None))
            self.pandas_types = scan.types()

    def _require_columns(self, fragment: Any) -> None:
        """Reject a fragment that pyarrow would fill with nulls or cast to a narrower type."""
        import pyarrow.dataset

        declared, wanted = self.schema, self._wanted
        where = repr(getattr(fragment, "path", "a part of the dataset"))
        keys = pyarrow.dataset.get_partition_keys(fragment.partition_expression)
        there = fragment.physical_schema
        require_same_names([*there.names, *keys], declared.names, wanted, where, "the dataset's schema")
        if isinstance(getattr(fragment, "format", None), pyarrow.dataset.CsvFileFormat):
            return  # it is read with the types of the schema
        for name in wanted.columns:
            if name in keys:
                continue
            kind, found = declared.field(name).type, there.field(name).type
            widest = wider(kind, found)
            if widest is None or (is_number(widest) and widest != kind):
                raise ValueError(
                    f"column {name!r} is {found} in {where}, but {kind} in the dataset's schema: pass the "
                    "paths of the files, which widens numbers, or make the dataset with a schema= that holds "
                    "the values of all files"
                )

    def row_bytes(self, columns: Sequence[str]) -> int:
        return row_bytes(self.schema, columns)

    def fingerprint(self, columns: Sequence[str]) -> dict[str, Any]:
        return {**_of_dataset(self._dataset), **of_schema(self.schema, columns)}

    def _pieces(self, columns: Sequence[str], start: int, n: int) -> Iterator[Any]:
        seen = None
        for fragment, piece in self._scanned(columns, n):
            if str(fragment) != seen:
                self._require_columns(fragment)
                seen = str(fragment)
            size = piece.num_rows
            if start < size:
                yield piece.slice(start) if start else piece
            start = max(0, start - size)

    def _scanned(self, columns: Sequence[str], n: int) -> Iterator[tuple[Any, Any]]:
        """Yield fragments and record batches of them."""
        arrow = require_arrow()
        scanner = self._dataset.scanner(
            columns=list(columns), batch_size=n, batch_readahead=READAHEAD, fragment_readahead=1
        )
        try:
            for tagged in scanner.scan_batches():
                yield tagged.fragment, tagged.record_batch
        except (arrow.ArrowInvalid, arrow.ArrowTypeError, arrow.ArrowNotImplementedError) as error:
            raise ValueError(
                f"the dataset cannot be read: {error}; for CSV files, pass their paths, so that the types "
                "of columns are determined from all rows, or give the types when creating the dataset"
            ) from error


def _of_dataset(dataset: Any) -> dict[str, Any]:
    """Return part of a fingerprint: the filter of a dataset, and its files, parts or rows in memory."""
    import pyarrow.dataset

    found: dict[str, Any] = {"kind": "dataset"}
    condition = (getattr(dataset, "_scan_options", None) or {}).get("filter")
    if condition is not None:  # its text leaves out the middle of a long list
        found["filter"] = [str(condition), hashlib.sha256(pickle.dumps(condition)).hexdigest()]
    if isinstance(dataset, pyarrow.dataset.UnionDataset):
        found["parts"] = [_of_dataset(child) for child in dataset.children]
    elif isinstance(dataset, pyarrow.dataset.InMemoryDataset):
        rows = TableSource(dataset.to_table())
        found["rows"] = rows.fingerprint(rows.schema.names)
    elif files := getattr(dataset, "files", None):
        infos = dataset.filesystem.get_file_info(files)
        found |= of_listing([(info.path, info.size, info.mtime_ns) for info in infos])
        keys = getattr(dataset, "partitioning", None)
        if keys is not None:
            found["partitioning"] = [type(keys).__name__, keys.schema.names]
    return found


def _places_of(dataset: Any) -> Iterator[Place]:
    """Yield the files of a dataset."""
    for child in getattr(dataset, "children", ()):
        yield from _places_of(child)
    for path in getattr(dataset, "files", ()):
        local = dataset.filesystem.type_name == "local"
        yield Path(path) if local else RemotePath(dataset.filesystem, path, path)


def _of_path(place: Place, csv: CsvFormat, keep: Sequence[str]) -> Source:
    if place.is_dir():
        return open_files(files_in(place), place, csv, keep)
    if format_of(place) == "npy":
        return NpySource(place) if isinstance(place, Path) else RemoteNpySource(place)
    return open_files([place], None, csv, keep)


def _of_iterator(items: Iterator[Any], keep: Sequence[str]) -> Source:
    try:
        first = next(items)
    except StopIteration:
        raise ValueError("source is an iterator without items, so its columns are not known") from None
    if is_path(first):
        raise TypeError("source is an iterator of paths: pass a list of them")
    both = chain([first], items)
    arrow = require_arrow()
    if row_labels(first) is not None and hasattr(first, "columns"):
        frame = FrameSource(first, keep, _FIRST)
        try:
            whole, levels = _as_table(first, keep, _FIRST)
        except ValueError:  # only the steps of a pipeline may take it
            return StreamSource(frame.schema, both, levels=frame.levels)
        return StreamSource(whole.schema, both, levels=levels)
    if isinstance(first, (arrow.Table, arrow.RecordBatch)) or hasattr(first, "columns"):
        return StreamSource(_as_table(first)[0].schema, both)
    array = table(first)
    return StreamSource(None, both, array[:0].copy())


def _begun(items: Iterator[Any]) -> tuple[Iterator[Any], Any]:
    """Return all items, and the first that has rows; None if there is none."""
    taken = []
    for item in items:
        taken.append(item)
        if item.shape[0]:
            return chain(taken, items), item
    return iter(taken), None


def _other_type(name: str, kind: Any, where: str, first: Any) -> str:
    what = f"is {kind} in {where}, but {first} in {_FIRST}"
    if str(kind) == str(first):
        what = f"has other categories in {where} than in {_FIRST}, or in another order"
    return (
        f"column {name!r} {what}, and a step of the pipeline may treat it differently: give it the same type "
        "in all items"
    )


def _as_table(item: Any, keep: Sequence[str] = (), where: str = "the data frame") -> tuple[Any, list[str]]:
    """Convert an object of pyarrow, pandas or polars to a table.

    Returns
    -------
    table : pyarrow.Table
    levels : list of str
        Its last columns, those that are levels of the index of a data frame of pandas.
    """
    arrow = require_arrow()
    if isinstance(item, arrow.Table):
        return item, []
    if isinstance(item, arrow.RecordBatch):
        return arrow.Table.from_batches([item]), []
    try:
        if hasattr(item, "to_arrow"):
            return item.to_arrow(), []
        if hasattr(item, "iloc"):
            return _with_levels(_with_dense_features(item, keep), item, keep, where)
    except (arrow.ArrowInvalid, arrow.ArrowNotImplementedError, TypeError) as error:
        raise ValueError(f"{where} cannot be converted to Arrow: {error}") from error
    raise TypeError(
        f"source has a {type(item).__module__}.{type(item).__qualname__}, which is not a supported table"
    )


def _with_levels(columns: Any, frame: Any, keep: Sequence[str], where: str) -> tuple[Any, list[str]]:
    """Convert columns of a data frame, and the levels of its index that are kept."""
    arrow = require_arrow()
    whole, levels = arrow.Table.from_pandas(columns, preserve_index=False), levels_to_keep(frame, keep, where)
    if levels is None:
        return whole, []
    further = arrow.Table.from_pandas(levels, preserve_index=False)
    schema = arrow.schema([*whole.schema, *further.schema])
    return arrow.Table.from_arrays([*whole.columns, *further.columns], schema=schema), further.schema.names


def _with_dense_features(frame: Any, keep: Sequence[str]) -> Any:
    """Return a data frame of pandas in which sparse columns, but for those to keep, store all values.

    Arrow has no sparse columns.
    """
    dtypes = {
        i: dtype.subtype
        for i, (name, dtype) in enumerate(frame.dtypes.items())
        if hasattr(dtype, "fill_value") and name not in keep
    }
    if not dtypes:
        return frame
    frame = frame.copy(deep=False)
    for place, dtype in dtypes.items():
        frame.isetitem(place, frame.iloc[:, place].astype(dtype))
    return frame


def _places(n_rows: int) -> list[int]:
    """Return the numbers of the rows to compare, evenly spaced."""
    places = np.linspace(0, max(n_rows - 1, 0), min(n_rows, _COMPARED_ROWS)).astype(int)
    return np.unique(places).tolist()
