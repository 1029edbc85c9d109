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

from .._files.locations import Place, RemotePath, head
from .._rows.arrow import MISSING_KEY, MISSING_NAN, is_dictionary, is_text, require_arrow
from .._rows.pandas_types import PandasTypes, TypesScan, columns_of
from .csv_files import CsvFile, CsvFormat
from .index_levels import RangeLevel, level_columns, range_levels
from .source import SCANNED_ROWS, Source, Wanted, of_listing, of_schema, require_same_names, row_bytes
from .types import fitted, wider

#: Bytes read of a column of a Parquet file at once, so that large row groups are not held in memory.
_BUFFER_BYTES = 2**18

#: Bytes read at once of all columns of a file in another file system, where each request takes its time, and
#: at most of one column.
_REMOTE_BYTES, _REMOTE_BUFFER_BYTES = 2**26, 2**23

#: Number of files in another file system that are looked into at the same time.
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
_COMPRESSED = (".gz", ".bz2", ".zst", ".lz4")


class FilesSource(Source):
    """Files of one format, in the given order or that of their paths.

    Parameters
    ----------
    files : list of CsvFile or _ArrowFile
    kind : str
    keys : list of dict
        For each file, the columns that the names of its folders define, and those that are ranges.
    schema : pyarrow.Schema
        Schema of the first file and of these columns.
    csv : CsvFormat
    """

    def __init__(
        self, files: list[Any], kind: str, keys: list[dict[str, Any]], schema: Any, csv: CsvFormat
    ) -> None:
        self._files, self.kind, self._keys, self._csv = files, kind, keys, csv
        self.schema, self.places = schema, tuple(file.place for file in files)
        self._infos = _each(info_of, self.places)

    def row_bytes(self, columns: Sequence[str]) -> int:
        return row_bytes(self.schema, columns)

    def fingerprint(self, columns: Sequence[str]) -> dict[str, Any]:
        found = {"kind": self.kind, **of_schema(self.schema, columns), **of_listing(self._infos)}
        return found | {"csv": self._csv.non_defaults()} if self._csv.non_defaults() else found

    def schemas(self) -> list[tuple[str, Any]]:
        """Return the path and the schema of each file; not for CSV, which has none."""
        return [(file.path, file.schema) for file in self._files]

    def settle(self, wanted: Wanted) -> None:
        for file, keys in zip(self._files, self._keys):
            self._require_columns(file, keys, wanted)
        if self.kind == "csv":
            for file, keys in zip(self._files, self._keys):
                file.scan([name for name in wanted.columns if name not in keys])
        fields = []
        for field in self.schema:
            if field.name in wanted.columns:
                field = field.with_type(self._type_for_all(field.name, wanted))
                if self.kind == "csv" and field.name not in wanted.kept:  # as pandas.read_csv represents it
                    field = field.with_metadata({MISSING_KEY: MISSING_NAN})
            fields.append(field)
        self.schema = require_arrow().schema(fields, self.schema.metadata)
        self.n_rows = sum(file.n_rows for file in self._files)
        if wanted.frames:
            self.pandas_types = self._types_for_all(columns_of(self.schema, wanted.features))

    def _types_for_all(self, schema: Any) -> PandasTypes:
        """Return the types with which pandas holds columns of all files."""
        arrow, scan = require_arrow(), TypesScan(schema)
        found = _each(partial(_scanned, scan.needed), list(zip(self._files, self._keys)))
        for number, (with_nulls, batches) in enumerate(found):
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
        """Reject files of which pandas recorded different extension dtypes, such as Int64 and int64."""
        dtypes: list[dict[str, Any]] = []
        for file, keys in zip(self._files, self._keys):
            if self.kind == "csv" or len(self._files) == 1:
                return
            columns = columns_of(file.schema, [name for name in names if name not in keys])
            dtypes.append(TypesScan(columns).types().extension_dtypes)
            for name in names:
                first, own = dtypes[0].get(name), dtypes[-1].get(name)
                if first != own:
                    raise ValueError(
                        f"pandas wrote column {name!r} as {own or 'a dtype of NumPy'} to {file.path!r}, but "
                        f"as {first or 'a dtype of NumPy'} to {self._files[0].path!r}: write it with the "
                        "same dtype to all files, or explain them one by one"
                    )

    def _require_columns(self, file: Any, keys: dict[str, Any], wanted: Wanted) -> None:
        for name in wanted.columns:
            if name in file.names and name in keys:
                raise ValueError(
                    f"column {name!r} is in {file.path!r} and in the name of its folder: pass a list of the "
                    "files, so that folder names are not read"
                )
        first = f"the first file, {self._files[0].path!r}"
        names = [name for name in file.names if name not in file.levels or name in wanted.columns]
        require_same_names([*names, *keys], self.schema.names, wanted, repr(file.path), first)

    def _type_for_all(self, name: str, wanted: Wanted) -> Any:
        """Return the type that holds the values of a column in all files."""
        arrow = require_arrow()
        if name in self._keys[0] and not isinstance(self._keys[0][name], RangeLevel):
            return self.schema.field(name).type
        feature = name in wanted.features
        whole, begun = arrow.null(), self._files[0]
        for file, keys in zip(self._files, self._keys):
            kind = arrow.int64() if name in keys else file.type_of(name, exact=not feature)
            if self.kind == "csv" and feature and wanted.numbers and is_text(kind):
                row, text = file.first_text(name)
                raise ValueError(
                    f"could not convert string to float: row {row} of column {name!r} of {file.path!r} is "
                    f"{text!r:.60}, where the model expects numbers{_advice(text, self._csv)}"
                )
            if self.kind == "csv" and feature and wanted.frames and file.exceeds_64_bits(name):
                raise ValueError(
                    f"column {name!r} of {file.path!r} has integers that no 64-bit type holds together, so "
                    "pandas.read_csv reads them as strings or objects: read the file with pandas, and pass "
                    "the data frame"
                )
            found = wider(whole, kind)
            if feature and wanted.frames and _is_decimal(whole) and _is_decimal(kind) and whole != kind:
                found = None  # a step may look at the digits: 1.5 is not 1.50
            if found is None and self.kind == "csv" and not feature:
                found = arrow.string()  # keep the text as it is written
            if found is None:
                raise ValueError(
                    f"column {name!r} is {kind} in {file.path!r}, but {whole} in {begun.path!r}: write it "
                    "with the same type to all files, or explain them one by one"
                )
            if arrow.types.is_null(whole):
                begun = file
            whole = found
        if self.kind == "csv" and feature:
            if arrow.types.is_null(whole):
                return arrow.float64()
            if arrow.types.is_integer(whole) and any(file.has_gaps(name) for file in self._files):
                return arrow.float64()
        return whole

    def _pieces(self, columns: Sequence[str], start: int, n: int) -> Iterator[Any]:
        arrow = require_arrow()
        schema = arrow.schema([self.schema.field(name) for name in columns])
        for file, keys, info in zip(self._files, self._keys, self._infos):
            if start >= file.n_rows:
                start -= file.n_rows
                continue
            own, row = arrow.schema([field for field in schema if field.name not in keys]), 0
            try:
                for piece in file.read(own, start, n):
                    size = piece.num_rows
                    if start < size and not isinstance(piece, _Skipped):
                        piece = _with_keys(fitted(piece, own, repr(file.path)), schema, keys, row)
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
        raise ValueError(f"{str(place)!r} was changed while it was read: start anew")


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
        """Return the numbers of missing values of columns, as far as the file records all of them."""
        if self._kind != "parquet":
            return {}
        import pyarrow.parquet

        source = self.place.open() if isinstance(self.place, RemotePath) else self.path
        about = pyarrow.parquet.read_metadata(source)
        groups = [about.row_group(i) for i in range(about.num_row_groups)]
        places = {about.schema.column(i).path: i for i in range(about.num_columns)}
        counts = {}
        for name in names:
            columns = [group.column(places[name]) for group in groups] if name in places else []
            known = [column.statistics for column in columns if column.is_stats_set]
            if len(known) == len(groups) and all(statistics.has_null_count for statistics in known):
                counts[name] = sum(statistics.null_count for statistics in known)
        return counts

    def read(self, schema: Any, start: int, n: int) -> Iterator[Any]:
        """Yield all rows in batches; those before ``start`` may come without their content."""
        if self._kind == "parquet":
            yield from self._read_parquet(schema.names, start, n)
            return
        yield from self._fragment.to_batches(
            columns=schema.names, batch_size=n, batch_readahead=READAHEAD, fragment_readahead=1
        )

    def _read_parquet(self, columns: list[str], start: int, n: int) -> Iterator[Any]:
        """Yield the pages of a row group one at a time; a pyarrow scanner would hold whole row groups."""
        import pyarrow.parquet

        source, size = self.path, _BUFFER_BYTES
        if isinstance(self.place, RemotePath):
            source = self.place.open()
            size = min(max(size, _REMOTE_BYTES // max(len(columns), 1)), _REMOTE_BUFFER_BYTES)
        with pyarrow.parquet.ParquetFile(source, pre_buffer=False, buffer_size=size) as file:
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
                for piece in file.iter_batches(n, row_groups=groups, columns=columns):
                    yield piece.select(columns)


def _scanned(
    needed: Sequence[str], file_and_keys: tuple[Any, dict[str, Any]]
) -> tuple[list[str], Iterator[Any]]:
    """Return columns of a file with missing values, and batches of the columns of which that is not known."""
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
    """Add the columns that the names of folders define, and ranges; ``row`` is the first row's number."""
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

    Files are left out if their name, or that of a folder, begins with a dot or an underscore.
    """
    if isinstance(folder, Path):
        names = [path.relative_to(folder).parts for path in folder.rglob("*") if path.is_file()]
    else:
        entries = folder.entries(recursive=True)
        names = [tuple(name.split("/")) for name, stamp in entries.items() if stamp is not None]
    found: list[Place] = []
    for parts in sorted(names):
        if not any(part[0] in "._" for part in parts):
            found.append(folder / "/".join(parts))
    if not found:
        raise ValueError(f"there are no files in {str(folder)!r}")
    return found


def format_of(path: Place) -> str:
    """Return the format of a file: "parquet", "arrow", "npy", "csv" or "tsv"."""
    if not path.is_file():
        pattern = ""
        if isinstance(path, Path) and set("*?[") & set(path.name):
            pattern = "; for a pattern pass sorted(glob.glob(...))"
        raise ValueError(f"there is no file {str(path)!r}{pattern}")
    begin = head(path, 8)
    for magic, kind in _MAGIC.items():
        if begin.startswith(magic):
            return kind
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in _COMPRESSED:
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
    """Return the source for some files, whose folders below ``folder`` may define columns.

    Raises
    ------
    ValueError
        The files are not of one format, or of one file system, or cannot be read.
    """
    arrow = require_arrow()
    import pyarrow.dataset

    places = [place.absolute() if isinstance(place, Path) else place for place in places]
    _require_one_filesystem(places)
    kinds = set(_each(format_of, places))
    if len(kinds) > 1:
        raise ValueError(f"the files of a source must be of one format, not of {' and '.join(sorted(kinds))}")
    kind = kinds.pop()
    if kind == "npy":
        raise ValueError(
            "several .npy files cannot be one source: pass an iterator over the arrays, or one of the paths"
        )
    if kind in ("csv", "tsv"):
        files = _each(lambda place: CsvFile(place, csv, kind), places)
        columns = [arrow.field(name, arrow.null()) for name in files[0].names]  # the types depend on all rows
        if folder is None:
            return FilesSource(files, "csv", [{} for _ in files], arrow.schema(columns), csv)
        form = pyarrow.dataset.CsvFileFormat(parse_options=files[0].parse_options())
        whole = _dataset(places, form, folder)
        keys = _keys(whole)
        there = {name for of_file in keys for name in of_file}
        of_folders = [field for field in whole.schema if field.name in there - set(files[0].names)]
        return FilesSource(files, "csv", keys, arrow.schema([*columns, *of_folders]), csv)
    whole = _dataset(places, kind, folder)
    both = list(zip(places, whole.get_fragments()))
    fragments = _each(lambda each: _ArrowFile(each[1], each[0], kind), both)
    keys, schema = _keys(whole), whole.schema
    for file, of_file in zip(fragments, keys):
        of_file |= range_levels(file.schema, keep, repr(file.path))
    for name, key in keys[0].items():
        if isinstance(key, RangeLevel):
            schema = schema.append(arrow.field(name, arrow.int64()))
    return FilesSource(fragments, kind, keys, schema, csv)


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


def _each(function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    """Call a function for each file; for files in another file system at the same time."""
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


def _keys(whole: Any) -> list[dict[str, Any]]:
    """Return the columns and values that the names of folders define for each file."""
    import pyarrow.dataset

    fragments = whole.get_fragments()
    return [pyarrow.dataset.get_partition_keys(fragment.partition_expression) for fragment in fragments]


def unreadable(path: str, error: Exception) -> Exception:
    """Return the error to raise for a file that cannot be read."""
    if isinstance(error, FileNotFoundError):
        return error
    return ValueError(f"{path!r} cannot be read: {error}")


def info_of(place: Place) -> tuple[str, int, int | None]:
    """Return the path, size and modification time of a file, from which changes are detected."""
    if isinstance(place, RemotePath):
        return str(place), *place.stamp()
    stat = place.stat()
    return os.path.abspath(place), stat.st_size, stat.st_mtime_ns


def _advice(text: str, csv: CsvFormat) -> str:
    """Name the option that would make a text readable as a number, if there is one."""
    if csv.decimal == "." and re.fullmatch(r"[+-]?[0-9]*,[0-9]+", text.strip()):
        return "; numbers with a decimal comma need csv_options={'decimal': ','}"
    return "; if it means that a value is missing, list it under null_values in csv_options"
