"""Rows in files of one format.

Before any file is read, all files are checked and a common type is determined for each column: a column that
is missing from a file is an error, not a column of missing values, and no number loses digits.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from .._common.regular_files import require_regular
from .._files.locations import Place, RemotePath, head
from .._rows.arrow import MISSING_KEY, MISSING_NAN, is_dictionary, is_text, require_arrow
from .._rows.pandas_types import PandasTypes, TypesScan, columns_of
from .csv_files import COMPRESSIONS, CsvFile, CsvFormat
from .index_levels import RangeLevel, level_columns, range_levels
from .source import (
    SCANNED_ROWS,
    SelectedColumns,
    Source,
    columns_fingerprint,
    files_fingerprint,
    require_same_names,
)
from .types import cast_to_schema, wider

#: Bytes read of a column of a Parquet file at once, so that large row groups are not held in memory.
_BUFFER_BYTES = 2**18

#: Bytes read at once from a file in another file system, where each request takes time: of all columns
#: together, and at most of one column.
_REMOTE_BYTES, _REMOTE_BUFFER_BYTES = 2**26, 2**23

#: Number of files in another file system that are opened at the same time.
_FILES_AT_ONCE = 16

#: Number of batches that pyarrow may read ahead.
READAHEAD = 2

#: First bytes of the files of a format, and extensions of their names.
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


class FilesSource(Source):
    """Files of one format, in the order of the list that the user passed, or of their paths in a folder.

    ``keys`` has for each file the columns that are not stored in it: the columns that the names of its
    folders define, with their values, and the index levels that are ranges. ``schema`` has the columns of the
    first file, followed by the columns in ``keys``.
    """

    def __init__(
        self, files: list[Any], kind: str, keys: list[dict[str, Any]], schema: Any, csv: CsvFormat
    ) -> None:
        self._files, self.kind, self._keys, self._csv = files, kind, keys, csv
        self.schema, self.places = schema, tuple(file.place for file in files)
        self._infos = _map_files(info_of, self.places)

    def fingerprint(self, columns: Sequence[str]) -> dict[str, Any]:
        facts = {
            "kind": self.kind,
            **columns_fingerprint(self.schema, columns),
            **files_fingerprint(self._infos),
        }
        return facts | {"csv": self._csv.non_defaults()} if self._csv.non_defaults() else facts

    def schemas(self) -> list[tuple[str, Any]]:
        """Return the path and the schema of each file. CSV files have no schema: do not call it for them."""
        return [(file.path, file.schema) for file in self._files]

    def settle(self, selected: SelectedColumns) -> None:
        for file, keys in zip(self._files, self._keys):
            self._require_columns(file, keys, selected)
        if self.kind == "csv":
            for file, keys in zip(self._files, self._keys):
                file.scan([name for name in selected.columns if name not in keys])
        fields = []
        for field in self.schema:
            if field.name in selected.columns:
                field = field.with_type(self._type_for_all(field.name, selected))
                # pandas.read_csv represents missing values by NaN.
                if self.kind == "csv" and field.name not in selected.kept_columns:
                    field = field.with_metadata({MISSING_KEY: MISSING_NAN})
            fields.append(field)
        self.schema = require_arrow().schema(fields, self.schema.metadata)
        self.n_rows = sum(file.n_rows for file in self._files)
        if selected.through_pandas:
            self.pandas_types = self._types_for_all(columns_of(self.schema, selected.features))

    def _types_for_all(self, schema: Any) -> PandasTypes:
        """Return the pandas types of columns, which are the same for all files."""
        arrow, scan = require_arrow(), TypesScan(schema)
        file_scans = _map_files(partial(_scanned, scan.needed), list(zip(self._files, self._keys)))
        for number, (with_nulls, batches) in enumerate(file_scans):
            for name in with_nulls:
                scan.add_nulls(name)
            try:
                for batch in batches:
                    scan.add(batch, number)
            except (arrow.ArrowInvalid, arrow.ArrowNotImplementedError, OSError) as error:
                raise unreadable(self._files[number].path, error) from error
        self._require_extension_dtypes(schema.names)
        return scan.types()

    def _require_extension_dtypes(self, names: Sequence[str]) -> None:
        """Reject files for which pandas recorded different extension dtypes, such as Int64 and int64."""
        dtypes: list[dict[str, Any]] = []
        for file, keys in zip(self._files, self._keys):
            if self.kind == "csv" or len(self._files) == 1:
                return
            columns = columns_of(file.schema, [name for name in names if name not in keys])
            dtypes.append(TypesScan(columns).types().extension_dtypes)
            for name in names:
                first_dtype, dtype = dtypes[0].get(name), dtypes[-1].get(name)
                if first_dtype != dtype:
                    raise ValueError(
                        f"pandas wrote column {name!r} as {dtype or 'a NumPy dtype'} to {file.path!r}, but "
                        f"as {first_dtype or 'a NumPy dtype'} to {self._files[0].path!r}: write the "
                        "column with the same dtype to all files, or explain the files one by one"
                    )

    def _require_columns(self, file: Any, keys: dict[str, Any], selected: SelectedColumns) -> None:
        for name in selected.columns:
            if name in file.names and name in keys:
                raise ValueError(
                    f"column {name!r} is in {file.path!r} and in the name of its folder: pass a list of the "
                    "files, so that folder names are not read"
                )
        first = f"the first file, {self._files[0].path!r}"
        names = [name for name in file.names if name not in file.levels or name in selected.columns]
        require_same_names([*names, *keys], self.schema.names, selected, repr(file.path), first)

    def _type_for_all(self, name: str, selected: SelectedColumns) -> Any:
        """Return the type that holds the values of a column in all files."""
        arrow = require_arrow()
        if name in self._keys[0] and not isinstance(self._keys[0][name], RangeLevel):
            return self.schema.field(name).type
        is_feature = name in selected.features
        common_type, first_file = arrow.null(), self._files[0]
        for file, keys in zip(self._files, self._keys):
            kind = arrow.int64() if name in keys else file.type_of(name, exact=not is_feature)
            if self.kind == "csv" and is_feature and selected.only_numbers and is_text(kind):
                row, string = file.first_string(name)
                raise ValueError(
                    f"could not convert string to float: row {row} of column {name!r} of {file.path!r} is "
                    f"{string!r:.60}, where the model expects numbers{_advice(string, self._csv)}"
                )
            if self.kind == "csv" and is_feature and selected.through_pandas and file.exceeds_64_bits(name):
                raise ValueError(
                    f"column {name!r} of {file.path!r} has integers that no 64-bit type holds together, so "
                    "pandas.read_csv reads them as strings or objects: read the file with pandas, and pass "
                    "the data frame"
                )
            widened = wider(common_type, kind)
            both_decimal = _is_decimal(common_type) and _is_decimal(kind)
            if is_feature and selected.through_pandas and both_decimal and common_type != kind:
                widened = None  # a step may look at the digits: 1.5 is not 1.50
            if widened is None and self.kind == "csv" and not is_feature:
                widened = arrow.string()  # keep the characters that the file has
            if widened is None:
                raise ValueError(
                    f"column {name!r} is {kind} in {file.path!r}, but {common_type} in {first_file.path!r}: "
                    "write it with the same type to all files, or explain the files one by one"
                )
            if arrow.types.is_null(common_type):
                first_file = file
            common_type = widened
        if self.kind == "csv" and is_feature:
            if arrow.types.is_null(common_type):
                return arrow.float64()
            if arrow.types.is_integer(common_type) and any(file.has_gaps(name) for file in self._files):
                return arrow.float64()
        return common_type

    def _pieces(self, columns: Sequence[str], start: int, n: int) -> Iterator[Any]:
        arrow = require_arrow()
        schema = arrow.schema([self.schema.field(name) for name in columns])
        for file, keys, info in zip(self._files, self._keys, self._infos):
            if start >= file.n_rows:
                start -= file.n_rows
                continue
            stored = arrow.schema([field for field in schema if field.name not in keys])
            row = 0
            try:
                for piece in file.read(stored, start, n):
                    size = piece.num_rows
                    if start < size and not isinstance(piece, _Skipped):
                        piece = _with_keys(cast_to_schema(piece, stored, repr(file.path)), schema, keys, row)
                        yield piece.slice(start) if start else piece
                    start, row = max(0, start - size), row + size
            except (ValueError, OSError) as error:  # a half-written file may be unreadable
                _require_unchanged(file.place, info)
                if isinstance(error, arrow.ArrowException):
                    raise unreadable(file.path, error) from error
                raise
            _require_unchanged(file.place, info)


def _is_decimal(kind: Any) -> bool:
    return bool(require_arrow().types.is_decimal(kind))


def _require_unchanged(place: Place, info: tuple[str, int, int | None]) -> None:
    if info_of(place) != info:
        raise ValueError(f"{str(place)!r} was changed while it was read: explain it again")


class _ArrowFile:
    """A Parquet or Arrow file."""

    def __init__(self, fragment: Any, place: Place, kind: str) -> None:
        self.place, self.path, self._fragment, self._kind = place, str(place), fragment, kind
        try:
            self.schema = fragment.physical_schema
            self.n_rows = fragment.count_rows()
        except (ValueError, OSError) as error:  # pyarrow's own errors derive from these
            raise unreadable(self.path, error) from error
        self.names, self.levels = self.schema.names, level_columns(self.schema)

    def type_of(self, name: str, exact: bool = False) -> Any:
        return self.schema.field(name).type

    def null_counts(self, names: Sequence[str]) -> dict[str, int]:
        """Return the number of missing values of each column for which every row group records it."""
        if self._kind != "parquet":
            return {}
        import pyarrow.parquet

        file_metadata = pyarrow.parquet.read_metadata(self._source())
        row_groups = [file_metadata.row_group(i) for i in range(file_metadata.num_row_groups)]
        positions = {file_metadata.schema.column(i).path: i for i in range(file_metadata.num_columns)}
        counts = {}
        for name in names:
            columns = [group.column(positions[name]) for group in row_groups] if name in positions else []
            recorded = [column.statistics for column in columns if column.is_stats_set]
            if len(recorded) == len(row_groups) and all(statistics.has_null_count for statistics in recorded):
                counts[name] = sum(statistics.null_count for statistics in recorded)
        return counts

    def _source(self) -> Any:
        """Return what pyarrow opens: a file of another file system, or the path of a regular file."""
        if isinstance(self.place, RemotePath):
            return self.place.open()
        require_regular(self.place)
        return self.path

    def read(self, schema: Any, start: int, n: int) -> Iterator[Any]:
        """Yield all rows in batches. For rows before ``start``, a :class:`_Skipped` may stand instead."""
        if self._kind == "parquet":
            yield from self._read_parquet(schema.names, start, n)
            return
        if isinstance(self.place, Path):
            require_regular(self.place)
        yield from self._fragment.to_batches(
            columns=schema.names, batch_size=n, batch_readahead=READAHEAD, fragment_readahead=1
        )

    def _read_parquet(self, columns: list[str], start: int, n: int) -> Iterator[Any]:
        """Read the file page by page, because a pyarrow scanner would hold whole row groups in memory."""
        import pyarrow.parquet

        buffer_size = _BUFFER_BYTES
        if isinstance(self.place, RemotePath):
            n_bytes = max(buffer_size, _REMOTE_BYTES // max(len(columns), 1))
            buffer_size = min(n_bytes, _REMOTE_BUFFER_BYTES)
        with pyarrow.parquet.ParquetFile(self._source(), pre_buffer=False, buffer_size=buffer_size) as file:
            first_group, n_skipped = 0, 0
            while first_group < file.num_row_groups:
                size = file.metadata.row_group(first_group).num_rows
                if n_skipped + size > start:
                    break
                first_group, n_skipped = first_group + 1, n_skipped + size
            if n_skipped:
                yield _Skipped(n_skipped)
            group_numbers = list(range(first_group, file.num_row_groups))
            if group_numbers:
                for piece in file.iter_batches(n, row_groups=group_numbers, columns=columns):
                    yield piece.select(columns)


def _scanned(
    needed: Sequence[str], file_and_keys: tuple[Any, dict[str, Any]]
) -> tuple[list[str], Iterator[Any]]:
    """Return the columns that are known to have missing values, and batches of the undecided columns.

    A column is undecided if the file does not record whether it has missing values.
    """
    file, keys = file_and_keys
    with_nulls = [name for name in needed if name in keys and keys[name] is None]
    names = [name for name in needed if name not in keys]
    if isinstance(file, CsvFile):
        return [*with_nulls, *(name for name in names if file.has_gaps(name))], iter(())
    counts = file.null_counts([name for name in names if not is_dictionary(file.schema.field(name).type)])
    unknown = [name for name in names if name not in counts]
    batches = file.read(columns_of(file.schema, unknown), 0, SCANNED_ROWS) if unknown else iter(())
    return [*with_nulls, *(name for name, count in counts.items() if count)], batches


class _Skipped:
    """Placeholder for rows that need not be read."""

    def __init__(self, num_rows: int) -> None:
        self.num_rows = num_rows


def _with_keys(piece: Any, schema: Any, keys: dict[str, Any], row: int) -> Any:
    """Add the columns in ``keys``; ``row`` is the number of the first row of ``piece`` in its file."""
    if len(piece.schema) == len(schema):
        return piece
    arrow, n_rows = require_arrow(), piece.num_rows
    columns = []
    for field in schema:
        key = keys.get(field.name)
        if field.name not in keys:
            columns.append(piece.column(field.name))
        elif isinstance(key, RangeLevel):
            columns.append(key.rows(row, n_rows).cast(field.type))
        else:
            columns.append(arrow.repeat(arrow.scalar(key, field.type), n_rows))
    return arrow.RecordBatch.from_arrays(columns, schema=schema)


def files_in(folder: Place) -> list[Place]:
    """Return the files below a folder, in the order of their paths.

    A file is left out if its name, or the name of a folder on its path, begins with a dot or an underscore.
    """
    if isinstance(folder, Path):
        paths = [path.relative_to(folder).parts for path in folder.rglob("*") if path.is_file()]
    else:
        entries = folder.entries(recursive=True)
        paths = [tuple(name.split("/")) for name, stamp in entries.items() if stamp is not None]
    files: list[Place] = []
    for parts in sorted(paths):
        if not any(part[0] in "._" for part in parts):
            files.append(folder / "/".join(parts))
    if not files:
        raise ValueError(f"there are no files in {str(folder)!r}")
    return files


def format_of(path: Place) -> str:
    """Return the format of a file: "parquet", "arrow", "npy", "csv" or "tsv"."""
    if isinstance(path, Path) and path.exists():
        require_regular(path)
    if not path.is_file():
        pattern = ""
        if isinstance(path, Path) and set("*?[") & set(path.name):
            pattern = "; to use a pattern, pass sorted(glob.glob(...))"
        raise ValueError(f"there is no file {str(path)!r}{pattern}")
    begin = head(path, 8)
    for magic, kind in _MAGIC.items():
        if begin.startswith(magic):
            return kind
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in COMPRESSIONS:
        suffixes.pop()
    kind = _SUFFIXES.get(suffixes[-1] if suffixes else "", "")
    if kind not in ("csv", "tsv"):
        raise ValueError(
            f"{str(path)!r} is not a Parquet, Arrow or NumPy file by content, nor a .csv or .tsv file by name"
        )
    return kind


def open_files(
    places: Sequence[Place], folder: Place | None, csv: CsvFormat, keep: Sequence[str] = ()
) -> FilesSource:
    """Return the source for some files.

    With ``folder``, the names of the folders between it and a file may define columns. Raise ``ValueError``
    if the files are not of one format, or not in one file system, or cannot be read.
    """
    arrow = require_arrow()
    import pyarrow.dataset

    places = [place.absolute() if isinstance(place, Path) else place for place in places]
    _require_one_filesystem(places)
    kinds = set(_map_files(format_of, places))
    if len(kinds) > 1:
        raise ValueError(f"the files of a source must be of one format, not of {' and '.join(sorted(kinds))}")
    kind = kinds.pop()
    if kind == "npy":
        raise ValueError(
            "several .npy files cannot be one source: pass one path, or an iterator over the arrays"
        )
    if kind in ("csv", "tsv"):
        files = _map_files(lambda place: CsvFile(place, csv, kind), places)
        columns = [arrow.field(name, arrow.null()) for name in files[0].names]  # the types depend on all rows
        if folder is None:
            return FilesSource(files, "csv", [{} for _ in files], arrow.schema(columns), csv)
        form = pyarrow.dataset.CsvFileFormat(parse_options=files[0].parse_options())
        dataset = _dataset(places, form, folder)
        keys = _keys(dataset)
        key_names = {name for file_keys in keys for name in file_keys} - set(files[0].names)
        key_columns = [field for field in dataset.schema if field.name in key_names]
        return FilesSource(files, "csv", keys, arrow.schema([*columns, *key_columns]), csv)
    dataset = _dataset(places, kind, folder)
    fragments = list(zip(places, dataset.get_fragments()))
    arrow_files = _map_files(lambda item: _ArrowFile(item[1], item[0], kind), fragments)
    keys, schema = _keys(dataset), dataset.schema
    for file, file_keys in zip(arrow_files, keys):
        file_keys |= range_levels(file.schema, keep, repr(file.path), file.n_rows)
    for name, key in keys[0].items():
        if isinstance(key, RangeLevel):
            schema = schema.append(arrow.field(name, arrow.int64()))
    return FilesSource(arrow_files, kind, keys, schema, csv)


def _require_one_filesystem(places: Sequence[Place]) -> None:
    first = places[0]
    for place in places[1:]:
        if isinstance(first, RemotePath) and isinstance(place, RemotePath):
            if place.filesystem is first.filesystem or place.filesystem.equals(first.filesystem):
                continue
        elif type(place) is type(first):
            continue
        raise ValueError(
            f"the files of a source must be in one file system, but {str(first)!r} and {str(place)!r} are "
            "not: explain them one by one"
        )


def _map_files(function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    """Call a function for each file; in another file system, for several files at the same time."""
    place = items[0][0] if isinstance(items[0], tuple) else items[0]
    if not isinstance(place, RemotePath) or len(items) == 1:
        return [function(item) for item in items]
    with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
        return list(pool.map(function, items))


def _dataset(places: Sequence[Place], form: Any, folder: Place | None) -> Any:
    import pyarrow.dataset

    first, root, names = places[0], None, [_path_in_filesystem(place) for place in places]
    if folder is not None:
        root = _path_in_filesystem(folder.absolute() if isinstance(folder, Path) else folder)
    try:
        return pyarrow.dataset.dataset(
            names,
            format=form,
            filesystem=first.filesystem if isinstance(first, RemotePath) else None,
            partitioning=None if root is None else "hive",
            partition_base_dir=root,
        )
    except (ValueError, OSError, TypeError) as error:  # pyarrow's own errors; a type that pandas defines
        raise unreadable(str(first), error) from error


def _path_in_filesystem(place: Place) -> str:
    return os.fspath(place) if isinstance(place, Path) else place.path


def _keys(dataset: Any) -> list[dict[str, Any]]:
    """Return the columns and values that the names of folders define for each file."""
    import pyarrow.dataset

    fragments = dataset.get_fragments()
    return [pyarrow.dataset.get_partition_keys(fragment.partition_expression) for fragment in fragments]


def unreadable(path: str, error: Exception) -> Exception:
    """Return the error to raise for a file that cannot be read: ``error`` itself if the file is missing."""
    if isinstance(error, FileNotFoundError):
        return error
    return ValueError(f"{path!r} cannot be read: {error}")


def info_of(place: Place) -> tuple[str, int, int | None]:
    """Return the path, size and modification time of a file, from which changes are detected."""
    if isinstance(place, RemotePath):
        return str(place), *place.stamp()
    stat = place.stat()
    return os.path.abspath(place), stat.st_size, stat.st_mtime_ns


def _advice(string: str, csv: CsvFormat) -> str:
    """Name the option with which a string could be read as a number or as a missing value."""
    if csv.decimal == "." and re.fullmatch(r"[+-]?[0-9]*,[0-9]+", string.strip()):
        return "; numbers with a decimal comma need the CSV option decimal=','"
    return "; if it means that a value is missing, list it in the CSV option null_values="
