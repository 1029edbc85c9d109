"""Rows in files of one format.

Before any file is read, all files are checked and a common type is determined for each column: a column that
is missing from a file is an error, not a column of missing values, and no number loses digits.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from .._rows.arrow import MISSING_KEY, MISSING_NAN, is_text, require_arrow
from .csv_files import CsvFile, CsvOptions
from .source import Source, Wanted, of_listing, of_schema, require_same_names, row_bytes
from .types import fitted, wider

#: Bytes read of a column of a Parquet file at once, so that large row groups are not held in memory.
_BUFFER_BYTES = 2**18

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
        For each file, the columns that the names of its folders define.
    schema : pyarrow.Schema
        Schema of the first file and of these columns.
    csv : CsvOptions
    """

    def __init__(
        self, files: list[Any], kind: str, keys: list[dict[str, Any]], schema: Any, csv: CsvOptions
    ) -> None:
        self._files, self.kind, self._keys, self._csv = files, kind, keys, csv
        self.schema = schema
        self._infos = [info_of(file.path) for file in files]

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

    def _require_columns(self, file: Any, keys: dict[str, Any], wanted: Wanted) -> None:
        for name in wanted.columns:
            if name in file.names and name in keys:
                raise ValueError(
                    f"column {name!r} is in {file.path!r} and in the name of its folder: pass a list of the "
                    "files, so that folder names are not read"
                )
        first = f"the first file, {self._files[0].path!r}"
        require_same_names([*file.names, *keys], self.schema.names, wanted, repr(file.path), first)

    def _type_for_all(self, name: str, wanted: Wanted) -> Any:
        """Return the type that holds the values of a column in all files."""
        arrow = require_arrow()
        if name in self._keys[0]:
            return self.schema.field(name).type
        feature = name in wanted.features
        whole, begun = arrow.null(), self._files[0]
        for file in self._files:
            kind = file.type_of(name, exact=not feature)
            if self.kind == "csv" and feature and wanted.numbers and is_text(kind):
                row, text = file.first_text(name)
                raise ValueError(
                    f"could not convert string to float: row {row} of column {name!r} of {file.path!r} is "
                    f"{text!r:.60}, where the model expects numbers{_advice(text, self._csv)}"
                )
            found = wider(whole, kind)
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
            own = arrow.schema([field for field in schema if field.name not in keys])
            try:
                for piece in file.read(own, start, n):
                    size = piece.num_rows
                    if start < size and not isinstance(piece, _Skipped):
                        piece = _with_keys(fitted(piece, own, repr(file.path)), schema, keys)
                        yield piece.slice(start) if start else piece
                    start = max(0, start - size)
            except (ValueError, OSError):  # a half-written file may be unreadable
                _require_unchanged(file.path, info)
                raise
            _require_unchanged(file.path, info)


def _require_unchanged(path: str, info: tuple[str, int, int]) -> None:
    if info_of(path) != info:
        raise ValueError(f"{path!r} was changed while it was read: start anew")


class _ArrowFile:
    """A Parquet or Arrow file."""

    def __init__(self, fragment: Any, kind: str) -> None:
        self.path, self._fragment, self._kind = fragment.path, fragment, kind
        try:
            self.schema = fragment.physical_schema
            self.n_rows = fragment.count_rows()
        except (ValueError, OSError) as error:  # pyarrow's own errors derive from these
            raise unreadable(self.path, error) from error
        self.names = self.schema.names

    def type_of(self, name: str, exact: bool = False) -> Any:
        return self.schema.field(name).type

    def read(self, schema: Any, start: int, n: int) -> Iterator[Any]:
        """Yield all rows in batches; those before ``start`` may come without their content."""
        if self._kind == "parquet":
            return self._read_parquet(schema.names, start, n)
        return self._fragment.to_batches(
            columns=schema.names, batch_size=n, batch_readahead=READAHEAD, fragment_readahead=1
        )

    def _read_parquet(self, columns: list[str], start: int, n: int) -> Iterator[Any]:
        """Yield the pages of a row group one at a time; a pyarrow scanner would hold whole row groups."""
        import pyarrow.parquet

        with pyarrow.parquet.ParquetFile(self.path, pre_buffer=False, buffer_size=_BUFFER_BYTES) as file:
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


class _Skipped:
    """Placeholder for rows that need not be read."""

    def __init__(self, num_rows: int) -> None:
        self.num_rows = num_rows


def _with_keys(piece: Any, schema: Any, keys: dict[str, Any]) -> Any:
    """Add the columns that the names of folders define."""
    if len(piece.schema) == len(schema):
        return piece
    arrow, n_rows = require_arrow(), piece.num_rows
    columns = [
        arrow.repeat(arrow.scalar(keys[field.name], field.type), n_rows)
        if field.name in keys
        else piece.column(field.name)
        for field in schema
    ]
    return arrow.RecordBatch.from_arrays(columns, schema=schema)


def files_in(folder: Path) -> list[Path]:
    """Return the files below a folder, in the order of their paths.

    Files are left out if their name, or that of a folder, begins with a dot or an underscore.
    """
    found = [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not any(part[0] in "._" for part in path.relative_to(folder).parts)
    ]
    if not found:
        raise ValueError(f"there are no files in {str(folder)!r}")
    return found


def format_of(path: Path) -> str:
    """Return the format of a file: "parquet", "arrow", "npy", "csv" or "tsv"."""
    if not path.is_file():
        pattern = "; for a pattern pass sorted(glob.glob(...))" if set("*?[") & set(path.name) else ""
        raise ValueError(f"there is no file {str(path)!r}{pattern}")
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
            f"{str(path)!r} is not a Parquet, Arrow or NumPy file by content, nor a .csv or .tsv file by name"
        )
    return kind


def open_files(paths: Sequence[Path], folder: Path | None, csv: CsvOptions) -> FilesSource:
    """Return the source for some files, whose folders below ``folder`` may define columns.

    Raises
    ------
    ValueError
        The files are not of one format, or cannot be read.
    """
    arrow = require_arrow()
    import pyarrow.dataset

    kinds = {format_of(path) for path in paths}
    if len(kinds) > 1:
        raise ValueError(f"the files of a source must be of one format, not of {' and '.join(sorted(kinds))}")
    kind = kinds.pop()
    if kind == "npy":
        raise ValueError(
            "several .npy files cannot be one source: pass an iterator over the arrays, or one of the paths"
        )
    names = [os.fspath(path.absolute()) for path in paths]
    if kind in ("csv", "tsv"):
        files = [CsvFile(name, csv, kind) for name in names]
        columns = [arrow.field(name, arrow.null()) for name in files[0].names]  # the types depend on all rows
        if folder is None:
            return FilesSource(files, "csv", [{} for _ in files], arrow.schema(columns), csv)
        whole = _dataset(names, pyarrow.dataset.CsvFileFormat(parse_options=files[0].parse_options()), folder)
        keys = _keys(whole)
        there = {name for of_file in keys for name in of_file}
        of_folders = [field for field in whole.schema if field.name in there - set(files[0].names)]
        return FilesSource(files, "csv", keys, arrow.schema([*columns, *of_folders]), csv)
    whole = _dataset(names, kind, folder)
    fragments = [_ArrowFile(fragment, kind) for fragment in whole.get_fragments()]
    return FilesSource(fragments, kind, _keys(whole), whole.schema, csv)


def _dataset(names: list[str], form: Any, folder: Path | None) -> Any:
    import pyarrow.dataset

    root = None if folder is None else os.fspath(folder.absolute())
    try:
        return pyarrow.dataset.dataset(
            names, format=form, partitioning=None if root is None else "hive", partition_base_dir=root
        )
    except (ValueError, OSError) as error:  # pyarrow's own errors derive from these
        raise unreadable(names[0], error) from error


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


def info_of(path: str | Path) -> tuple[str, int, int]:
    """Return the path, size and modification time of a file, from which changes are detected."""
    stat = os.stat(path)
    return os.path.abspath(path), stat.st_size, stat.st_mtime_ns


def _advice(text: str, csv: CsvOptions) -> str:
    """Name the option that would make a text readable as a number, if there is one."""
    if csv.decimal == "." and re.fullmatch(r"[+-]?[0-9]*,[0-9]+", text.strip()):
        return "; numbers with a decimal comma need decimal=','"
    return "; if it means that a value is missing, name it in null_values="
