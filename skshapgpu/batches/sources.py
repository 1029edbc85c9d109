"""Sources of rows: files, tables, datasets, arrays and iterators."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from .._common.distinct import distinct_numbers
from .._files.locations import Place, RemotePath, is_path, locate, locate_all
from .._rows.arrow import is_dictionary, is_text, require_arrow, stream_reader
from .._rows.pandas_types import UNKNOWN_NULLS, TypesScan, columns_of, same_dtype
from .._rows.tables import is_stream, row_labels, table
from .csv_files import NO_OPTIONS, CsvFormat
from .files import READAHEAD, files_in, format_of, open_files
from .frame_rows import FrameRows, frame_schema, one_batch
from .index_levels import levels_to_keep
from .npy_files import NpySource
from .source import (
    SCANNED_ROWS,
    TEXT_BYTES,
    SelectedColumns,
    Source,
    columns_fingerprint,
    files_fingerprint,
    require_same_names,
    row_bytes,
    slice_piece,
)
from .types import cast_to_schema, is_number, wider

#: Number of evenly spaced rows that are compared to recognize an array.
_COMPARED_ROWS = 64


#: Name, in messages, of the item of an iterator that determines the columns of the output.
_FIRST = "the first item"


def open_source(
    source: Any, csv: CsvFormat = NO_OPTIONS, filesystem: Any = None, keep: Sequence[str] = ()
) -> Source:
    """Return the source for the argument ``source`` of :func:`explain_batches`.

    Only CSV files need ``csv``. ``filesystem``, of pyarrow or fsspec, has the paths without a scheme.
    ``keep`` are the names of columns to keep, which may be levels of a pandas index.
    """
    if is_path(source):
        return _open_path(locate(source, filesystem), csv, keep)
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
    if is_stream(source):
        reader = stream_reader(source, "source")
        return StreamSource(reader.schema, iter(reader))
    if hasattr(source, "collect"):
        raise TypeError(f"source is a {type(source).__qualname__}: collect it first, or write it to files")
    if row_labels(source) is not None and hasattr(source, "columns"):
        return FrameSource(source, keep, "the data frame")
    if hasattr(source, "columns") or hasattr(source, "__dataframe__"):
        return TableSource(_as_table(source)[0])
    if isinstance(source, Iterable) and not isinstance(source, (bytes, dict, set)):
        return _open_iterator(iter(source), keep)
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
        rows = array[_compared_rows(array.shape[0])]
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


class FrameSource(Source):
    """A data frame of pandas, whose rows are passed on as they are; only the columns to keep are converted.

    ``keep`` are the names of columns to keep, which may be levels of the index; ``where`` is the name of the
    frame in messages. ``features`` are all columns; after :meth:`settle`, the features.
    """

    def __init__(self, frame: Any, keep: Sequence[str], where: str) -> None:
        self.features, self.n_rows = frame, len(frame)
        fields = frame_schema(frame)
        columns = frame.iloc[:, [i for i, name in enumerate(fields.names) if name in keep]]
        try:
            self.kept_columns, levels = _with_levels(columns, frame, keep, where)
        except (TypeError, NotImplementedError, require_arrow().ArrowInvalid) as error:
            raise ValueError(
                f"the columns of {where} to keep cannot be converted to Arrow: {error}"
            ) from error
        self.levels = tuple(levels)
        for field in self.kept_columns.schema:
            position = fields.get_field_index(field.name)
            fields = fields.append(field) if position < 0 else fields.set(position, field)
        self.schema = fields

    def settle(self, selected: SelectedColumns) -> None:
        positions = [self.schema.names.index(name) for name in selected.features]
        self.features = self.features.iloc[:, positions]
        self.kept_columns = self.kept_columns.select(list(selected.kept_columns))

    def row_bytes(self, columns: Sequence[str]) -> int:
        dtypes = self.features.dtypes
        return sum(getattr(dtype, "itemsize", TEXT_BYTES) for dtype in dtypes) + row_bytes(
            self.kept_columns.schema, self.kept_columns.schema.names
        )

    def fingerprint(self, columns: Sequence[str]) -> dict[str, Any]:
        frame = self.features.iloc[_compared_rows(len(self.features))]
        content = [series.tolist() for _, series in frame.items()]
        categories = [list(getattr(dtype, "categories", ())) for dtype in frame.dtypes]
        kept_fingerprint = TableSource(self.kept_columns).fingerprint(self.kept_columns.schema.names)
        return {
            "kind": "frame",
            "n_rows": self.n_rows,
            "content": hashlib.sha256(repr([content, categories]).encode()).hexdigest(),
            "columns": [[str(name), str(dtype)] for name, dtype in frame.dtypes.items()],
            "kept": [kept_fingerprint["content"], kept_fingerprint["columns"]],
        }

    def _pieces(self, columns: Sequence[str], start: int, n: int) -> Iterator[Any]:
        for first in range(start, len(self.features), n):
            rows = self.features.iloc[first : first + n]
            yield FrameRows(rows, one_batch(self.kept_columns.slice(first, n)))


class TableSource(Source):
    """A table in memory."""

    def __init__(self, table: Any) -> None:
        self._table, self.schema, self.n_rows = table, table.schema, table.num_rows

    def settle(self, selected: SelectedColumns) -> None:
        if selected.through_pandas:
            scan = TypesScan(columns_of(self.schema, selected.features))
            scan.add(self._table.select(scan.needed))
            self.pandas_types = scan.types()

    def fingerprint(self, columns: Sequence[str]) -> dict[str, Any]:
        columns_read = self._table.select(list(columns))
        rows = [columns_read.slice(row, 1).to_pylist() for row in _compared_rows(self._table.num_rows)]
        content = hashlib.sha256(repr(rows).encode()).hexdigest()
        return {
            "kind": "table",
            "n_rows": self.n_rows,
            "content": content,
            **columns_fingerprint(self.schema, columns),
        }

    def _pieces(self, columns: Sequence[str], start: int, n: int) -> Iterator[Any]:
        yield from self._table.select(list(columns)).slice(start).to_batches(max_chunksize=n)


class StreamSource(Source):
    """Record batches, data frames or arrays that can be read only once, one after the other.

    For the steps of a pipeline, the rows of pandas data frames are passed on as they are, with the dtypes of
    the first item that has rows. Otherwise, data frames are converted to tables.
    """

    def __init__(
        self, schema: Any, items: Iterator[Any], first: Any = None, levels: Sequence[str] = ()
    ) -> None:
        self.schema, self._items, self._first, self.levels = schema, items, first, tuple(levels)
        self.single = first is not None and first.dtype.char == "f"
        self._selected = SelectedColumns(())
        self._frame: Any = None  # features of the first item, if they are passed on as they are
        self._scan: Any = None

    def settle(self, selected: SelectedColumns) -> None:
        self._selected = selected
        if not selected.through_pandas:
            return
        self._items, first = _first_with_rows(self._items)
        if first is None:
            return
        if row_labels(first) is not None:
            self._frame, _ = self._rows_of_frame(first, _FIRST)
            return
        table, _ = _as_table(first)
        self._scan = TypesScan(columns_of(table.schema, selected.features))
        self._scan.add(table.select(self._scan.needed))
        self.pandas_types = self._scan.types(UNKNOWN_NULLS)

    def row_bytes(self, columns: Sequence[str]) -> int:
        if self.schema is None:
            return self._first.shape[1] * max(self._first.dtype.itemsize, 1)
        return super().row_bytes(columns)

    def fingerprint(self, columns: Sequence[str]) -> dict[str, Any]:
        if self.schema is None:
            return {"kind": "iterator", "dtype": self._first.dtype.str, "n_columns": self._first.shape[1]}
        return {"kind": "iterator", **columns_fingerprint(self.schema, columns)}

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
                    yield slice_piece(piece, start, size - start) if start else piece
                start = max(0, start - size)

    def _checked_array(self, item: Any, where: str) -> Any:
        """Return a copy of an item, or reject it if its columns and dtype do not fit the first item.

        Items of float32 and of float64 fit together.
        """
        array, first = table(item), self._first
        if not isinstance(array, np.ndarray) and not sp.issparse(array):
            raise ValueError(f"{where} is a data frame, but {_FIRST} has no names")
        floats = {array.dtype.char, first.dtype.char} <= {"f", "d"}
        if array.shape[1] != first.shape[1] or not (floats or array.dtype == first.dtype):
            raise ValueError(
                f"{where} has {array.shape[1]} columns of {array.dtype}, but {_FIRST} has {first.shape[1]} "
                f"of {first.dtype}: give all items the same columns and dtype"
            )
        if sp.issparse(array) != sp.issparse(first):
            raise ValueError(f"the source mixes arrays and sparse matrices: {where}")
        return array.copy()  # rows are read ahead, and iterators may fill the same array again

    def _rows_of_frame(self, item: Any, where: str) -> tuple[Any, Any]:
        """Return the features of a data frame of pandas, and a table of the columns to keep."""
        source = FrameSource(item, self._selected.kept_columns, where)
        require_same_names(source.schema.names, self.schema.names, self._selected, where, _FIRST)
        source.settle(self._selected)
        return source.features, source.kept_columns

    def _checked_frame(self, item: Any, where: str) -> list[Any]:
        """Return the rows of an item with the dtypes of the first item, or reject it if they do not fit."""
        import pandas

        if row_labels(item) is None:
            raise ValueError(
                f"{where} is a {type(item).__qualname__}, but {_FIRST} is a data frame of pandas"
            )
        if not len(item):
            return []
        frame, kept_columns = self._rows_of_frame(item.copy(), where)  # a copy: see _checked_array
        for position, (name, dtype) in enumerate(zip(self._selected.features, self._frame.dtypes)):
            series = frame.iloc[:, position]
            if same_dtype(series.dtype, dtype):
                continue
            joined_dtype = pandas.concat([self._frame.iloc[:, position], series]).dtype
            if str(dtype) == "category" or joined_dtype != dtype:
                raise ValueError(_other_type(name, series.dtype, where, dtype))
            frame.isetitem(position, series.astype(dtype))
        return [
            FrameRows(frame, one_batch(self._converted(kept_columns, self._selected.kept_columns, where)))
        ]

    def _checked(self, item: Any, where: str) -> list[Any]:
        """Return the selected columns of an item. Features may have wider types than in the first item."""
        selected = self._selected
        if hasattr(item, "iloc"):  # of pandas, whose values the table would share: see _checked_array
            item = item.copy()
        table, _ = _as_table(item, selected.kept_columns, where)
        require_same_names(table.schema.names, self.schema.names, selected, where, _FIRST)
        converted = self._converted(table, selected.columns, where)
        if self._scan is not None:
            self._require_types(converted, where)
        return converted.to_batches()

    def _require_types(self, table: Any, where: str) -> None:
        """Reject features whose pandas dtypes are not those of the first item."""
        scan = TypesScan(columns_of(table.schema, self._selected.features))
        scan.add_categories(table.select(scan.needed))
        for field in self._scan.schema:
            kind = table.schema.field(field.name).type
            both_strings = is_text(field.type) and is_text(kind.value_type if is_dictionary(kind) else kind)
            if not both_strings and wider(field.type, kind) != field.type and table.num_rows:
                raise ValueError(_other_type(field.name, kind, where, field.type))
            if is_dictionary(field.type) and scan.categories(field.name) != self._scan.categories(field.name):
                raise ValueError(_other_type(field.name, kind, where, field.type))

    def _converted(self, table: Any, names: Sequence[str], where: str) -> Any:
        """Return columns of a table by name. The columns to keep get the types of the first item."""
        selected, arrow = self._selected, require_arrow()
        fields, columns = [], []
        for name in names:
            column, field = table.column(name), self.schema.field(name)
            if column.null_count == len(column) and column.type != field.type:  # without values
                column = arrow.chunked_array([arrow.nulls(len(column), field.type)])
            if wider(field.type, column.type) is None:
                raise ValueError(
                    f"column {name!r} is {column.type} in {where}, but {field.type} in {_FIRST}: give it the "
                    "same type in all items"
                )
            fields.append(
                field if name in selected.kept_columns else table.schema.field(name).with_type(column.type)
            )
            columns.append(column)
        original = arrow.Table.from_arrays(columns, names=list(names))
        converted = cast_to_schema(original, arrow.schema(fields), where)
        for name in selected.kept_columns:
            before, after = original.column(name), converted.column(name)
            if not is_number(before.type) or wider(before.type, after.type) == after.type:
                continue
            if not np.array_equal(after.to_numpy(), before.to_numpy(), equal_nan=True):
                raise ValueError(
                    f"column {name!r} of {where} is {before.type}, and has values that its type {after.type} "
                    f"in {_FIRST} cannot hold: give it the wider type in all items"
                )
        return converted


class DatasetSource(Source):
    """A pyarrow dataset, which may have any filter, partitioning and file system."""

    def __init__(self, dataset: Any) -> None:
        self._dataset, self.schema = dataset, dataset.schema
        self.places = tuple(_dataset_files(dataset))
        self._selected = SelectedColumns(())

    def settle(self, selected: SelectedColumns) -> None:
        self._selected = selected
        try:
            fragments = self._dataset.get_fragments()
        except ValueError:  # a dataset with a filter does not list its fragments before it is read
            fragments = ()
        for fragment in fragments:
            self._require_columns(fragment)
        if selected.through_pandas:
            scan = TypesScan(columns_of(self.schema, selected.features))
            for fragment, rows in self._scanned(scan.needed, SCANNED_ROWS) if scan.needed else ():
                scan.add(rows, getattr(fragment, "path", None))
            self.pandas_types = scan.types()

    def _require_columns(self, fragment: Any) -> None:
        """Reject a fragment that pyarrow would fill with nulls or cast to a narrower type."""
        import pyarrow.dataset

        schema, selected = self.schema, self._selected
        where = repr(getattr(fragment, "path", "a part of the dataset"))
        keys = pyarrow.dataset.get_partition_keys(fragment.partition_expression)
        fragment_schema = fragment.physical_schema
        require_same_names(
            [*fragment_schema.names, *keys], schema.names, selected, where, "the dataset's schema"
        )
        if isinstance(getattr(fragment, "format", None), pyarrow.dataset.CsvFileFormat):
            return  # it is read with the types of the schema
        for name in selected.columns:
            if name in keys:
                continue
            kind, fragment_type = schema.field(name).type, fragment_schema.field(name).type
            widest = wider(kind, fragment_type)
            if widest is None or (is_number(widest) and widest != kind):
                raise ValueError(
                    f"column {name!r} is {fragment_type} in {where}, but {kind} in the dataset's schema: "
                    "pass the paths of the files, which gives numbers a wider type, or make the dataset with "
                    "a schema= that holds the values of all files"
                )

    def fingerprint(self, columns: Sequence[str]) -> dict[str, Any]:
        return {**_dataset_fingerprint(self._dataset), **columns_fingerprint(self.schema, columns)}

    def _pieces(self, columns: Sequence[str], start: int, n: int) -> Iterator[Any]:
        checked = None
        for fragment, piece in self._scanned(columns, n):
            if str(fragment) != checked:
                self._require_columns(fragment)
                checked = str(fragment)
            size = piece.num_rows
            if start < size:
                yield piece.slice(start) if start else piece
            start = max(0, start - size)

    def _scanned(self, columns: Sequence[str], n: int) -> Iterator[tuple[Any, Any]]:
        """Yield record batches, each after the fragment that it is from."""
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


def _dataset_fingerprint(dataset: Any) -> dict[str, Any]:
    """Return, for a fingerprint, the filter of a dataset, and its files, child datasets or rows in memory."""
    import pyarrow.dataset

    facts: dict[str, Any] = {"kind": "dataset"}
    condition = (getattr(dataset, "_scan_options", None) or {}).get("filter")
    if condition is not None:  # str() leaves out the middle of a long list
        facts["filter"] = [str(condition), hashlib.sha256(pickle.dumps(condition)).hexdigest()]
    if isinstance(dataset, pyarrow.dataset.UnionDataset):
        facts["parts"] = [_dataset_fingerprint(child) for child in dataset.children]
    elif isinstance(dataset, pyarrow.dataset.InMemoryDataset):
        rows = TableSource(dataset.to_table())
        facts["rows"] = rows.fingerprint(rows.schema.names)
    elif files := getattr(dataset, "files", None):
        infos = dataset.filesystem.get_file_info(files)
        facts |= files_fingerprint([(info.path, info.size, info.mtime_ns) for info in infos])
        keys = getattr(dataset, "partitioning", None)
        if keys is not None:
            facts["partitioning"] = [type(keys).__name__, keys.schema.names]
    return facts


def _dataset_files(dataset: Any) -> Iterator[Place]:
    """Yield the files of a dataset."""
    for child in getattr(dataset, "children", ()):
        yield from _dataset_files(child)
    for path in getattr(dataset, "files", ()):
        local = dataset.filesystem.type_name == "local"
        yield Path(path) if local else RemotePath(dataset.filesystem, path, path)


def _open_path(place: Place, csv: CsvFormat, keep: Sequence[str]) -> Source:
    if place.is_dir():
        return open_files(files_in(place), place, csv, keep)
    if format_of(place) == "npy":
        return NpySource(place)
    return open_files([place], None, csv, keep)


def _open_iterator(items: Iterator[Any], keep: Sequence[str]) -> Source:
    try:
        first = next(items)
    except StopIteration:
        raise ValueError("source is an iterator without items, so its columns are not known") from None
    if is_path(first):
        raise TypeError("source is an iterator of paths: pass a list of them")
    all_items = chain([first], items)
    arrow = require_arrow()
    if row_labels(first) is not None and hasattr(first, "columns"):
        frame = FrameSource(first, keep, _FIRST)
        try:
            arrow_table, levels = _as_table(first, keep, _FIRST)
        except ValueError:  # only the steps of a pipeline may take it
            return StreamSource(frame.schema, all_items, levels=frame.levels)
        return StreamSource(arrow_table.schema, all_items, levels=levels)
    if isinstance(first, (arrow.Table, arrow.RecordBatch)) or hasattr(first, "columns"):
        return StreamSource(_as_table(first)[0].schema, all_items)
    array = table(first)
    return StreamSource(None, all_items, array[:0].copy())


def _first_with_rows(items: Iterator[Any]) -> tuple[Iterator[Any], Any]:
    """Return an iterator over all items, and the first item that has rows, or None."""
    first_items = []
    for item in items:
        first_items.append(item)
        if item.shape[0]:
            return chain(first_items, items), item
    return iter(first_items), None


def _other_type(name: str, kind: Any, where: str, first: Any) -> str:
    difference = f"is {kind} in {where}, but {first} in {_FIRST}"
    if str(kind) == str(first):
        difference = f"has other categories in {where} than in {_FIRST}, or in another order"
    return (
        f"column {name!r} {difference}, and a step of the pipeline may treat it differently: give it the "
        "same type in all items"
    )


def _as_table(item: Any, keep: Sequence[str] = (), where: str = "the data frame") -> tuple[Any, list[str]]:
    """Convert an object of pyarrow, pandas or polars to a table.

    Return it with the names of its last columns, which are levels of the index of a pandas data frame.
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
    """Convert columns of a data frame, followed by the levels of its index that are kept, to a table."""
    arrow = require_arrow()
    table, levels = arrow.Table.from_pandas(columns, preserve_index=False), levels_to_keep(frame, keep, where)
    if levels is None:
        return table, []
    level_table = arrow.Table.from_pandas(levels, preserve_index=False)
    schema = arrow.schema([*table.schema, *level_table.schema])
    return arrow.Table.from_arrays(
        [*table.columns, *level_table.columns], schema=schema
    ), level_table.schema.names


def _with_dense_features(frame: Any, keep: Sequence[str]) -> Any:
    """Return a pandas data frame whose sparse columns are dense, because Arrow has no sparse columns.

    The columns to keep stay as they are.
    """
    dtypes = {
        i: dtype.subtype
        for i, (name, dtype) in enumerate(frame.dtypes.items())
        if hasattr(dtype, "fill_value") and name not in keep
    }
    if not dtypes:
        return frame
    frame = frame.copy(deep=False)
    for position, dtype in dtypes.items():
        frame.isetitem(position, frame.iloc[:, position].astype(dtype))
    return frame


def _compared_rows(n_rows: int) -> list[int]:
    """Return the numbers of the rows to compare, evenly spaced."""
    rows = np.linspace(0, max(n_rows - 1, 0), min(n_rows, _COMPARED_ROWS)).astype(int)
    return distinct_numbers(rows).tolist()
