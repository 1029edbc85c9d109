"""CSV files, read as ``pandas.read_csv`` reads them, with types that hold for the whole file.

A file is read twice, each time as text. The first pass determines the type of each column and counts the
rows, so that a column has one type from its first row to its last even if it begins with whole numbers or
missing values, and so that unreadable files are reported before any work is done. The second pass converts.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from .._common.regular_files import require_regular
from .._files.locations import Place, RemotePath
from .._rows.arrow import is_text, require_arrow

#: Strings that stand for missing values, as in ``pandas.read_csv``.
_NULL_VALUES = (
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>"),
    *("N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"),
)
_TRUE, _FALSE = ("True", "TRUE", "true"), ("False", "FALSE", "false")

#: Delimiters that a file may have instead of the one expected.
_DELIMITERS = (";", "\t", "|", ",")

#: Names, in pyarrow, of the compressions that the last extension of a name may mean.
COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}

#: Bytes that are read at once; no row may be longer.
_BLOCK_BYTES = 2**22


@dataclass(frozen=True)
class CsvFormat:
    """Options of CSV files."""

    #: If None, the delimiter is a comma, or a tab if the name of the file ends in ``.tsv``.
    delimiter: str | None = None
    quote_char: str = '"'  # if empty, nothing is quoted
    null_values: Sequence[str] = ()  # strings that stand for missing values, in addition to ``_NULL_VALUES``
    decimal: str = "."  # the decimal point: "." or ","

    @classmethod
    def parse(cls, options: Any) -> CsvFormat:
        """Return the format that the argument ``csv_options`` describes; ``None`` means the defaults."""
        if options is None:
            return cls()
        if not isinstance(options, Mapping):
            raise TypeError(f"csv_options must be a dict or None, not {options!r:.80}")
        names = [field.name for field in fields(cls)]
        for name in options:
            if name not in names:
                raise ValueError(f"csv_options has no {name!r:.80}; its keys are {', '.join(names)}")
        return cls(**options)

    def __post_init__(self) -> None:
        for name, value in (("delimiter", self.delimiter), ("quote_char", self.quote_char or None)):
            if value is None:
                continue
            if not isinstance(value, str) or len(value) != 1 or not value.isascii() or value in "\r\n":
                raise ValueError(f"{name} must be a single character, not {value!r}")
        if isinstance(self.null_values, str) or not all(isinstance(text, str) for text in self.null_values):
            raise TypeError(f"null_values must be a list of strings, not {self.null_values!r}")
        object.__setattr__(self, "null_values", list(self.null_values))
        if self.decimal not in (".", ","):
            raise ValueError(f"decimal must be '.' or ',', not {self.decimal!r}")

    def non_defaults(self) -> dict[str, Any]:
        """Return the options that differ from their defaults."""
        default = asdict(NO_OPTIONS)
        return {name: value for name, value in asdict(self).items() if value != default[name]}


#: The default options.
NO_OPTIONS = CsvFormat()


class CsvFile:
    """A CSV file, which may be compressed.

    ``path`` is the place as text, for messages. ``n_rows`` is known after :meth:`scan`.
    """

    #: Columns that are levels of an index. Always empty, because CSV files do not record levels.
    levels: frozenset[str] = frozenset()

    def __init__(self, place: Place, options: CsvFormat, kind: str) -> None:
        self.place, self.path, self._options = place, str(place), options
        self._delimiter = options.delimiter or {"csv": ",", "tsv": "\t"}[kind]
        if self._delimiter == options.decimal:
            raise ValueError(
                f"{self.path!r}: delimiter and decimal are both {options.decimal!r}; files with decimal "
                "commas usually separate values by semicolons: use the CSV option delimiter=';'"
            )
        self.names = self._header()
        self.n_rows = 0
        self._scans: dict[str, _ColumnScan] = {}

    def _header(self) -> list[str]:
        quote = self._options.quote_char
        try:
            with self._stream() as stream:
                lines = csv.reader(
                    io.TextIOWrapper(stream, "utf-8-sig", "surrogateescape", newline=""),
                    delimiter=self._delimiter,
                    quotechar=quote or None,
                    quoting=csv.QUOTE_MINIMAL if quote else csv.QUOTE_NONE,
                )
                names = next((names for names in lines if names), None)
        except (ValueError, csv.Error) as error:
            raise _unreadable(self.path, error) from error
        if names is None:
            raise ValueError(f"{self.path!r} cannot be read: it is empty")
        if any("\ud800" <= sign <= "\udfff" for sign in "".join(names)):  # by "surrogateescape"
            raise ValueError(f"the names of columns in {self.path!r} are not UTF-8; save the file as UTF-8")
        other_delimiters = [sign for sign in _DELIMITERS if sign in names[0] and sign != self._delimiter]
        if len(names) == 1 and other_delimiters and self._options.delimiter is None:
            raise ValueError(
                f"{self.path!r} has a single column, {names[0]!r:.60}, if the delimiter is "
                f"{self._delimiter!r}: use the CSV option delimiter={other_delimiters[0]!r}, or "
                f"delimiter={self._delimiter!r} if the file has one column"
            )
        return names

    def _stream(self) -> Any:
        """Open the file as uncompressed bytes."""
        if isinstance(self.place, RemotePath):
            return self.place.stream()
        require_regular(self.path)
        arrow = require_arrow()
        file = arrow.OSFile(self.path)
        # Only the bytes that the file has now are read: reading a file that grows might never end.
        stream = file.get_stream(0, file.size())
        return arrow.input_stream(stream, COMPRESSIONS.get(os.path.splitext(self.path)[1].lower()))

    def parse_options(self) -> Any:
        """Return the pyarrow options for splitting the file into values."""
        import pyarrow.csv

        quote = self._options.quote_char
        return pyarrow.csv.ParseOptions(
            delimiter=self._delimiter, quote_char=quote or False, newlines_in_values=bool(quote)
        )

    def scan(self, columns: Sequence[str]) -> None:
        """Read the whole file to determine its number of rows and the types of some columns."""
        self._scans = {name: _ColumnScan() for name in columns}
        for batch in self._string_batches(columns):
            for name, column_scan in self._scans.items():
                column_scan.add(batch.column(name), self.n_rows, self._options.decimal)
            self.n_rows += batch.num_rows

    def type_of(self, name: str, exact: bool = False) -> Any:
        """Return the type of a column after :meth:`scan`; null if all of its values are missing.

        A column of whole numbers that no 64-bit integer type can hold is float64, or with ``exact`` a string
        column.
        """
        return self._scans[name].type(exact)

    def exceeds_64_bits(self, name: str) -> bool:
        """Return whether a column has whole numbers that no 64-bit integer type holds, after :meth:`scan`."""
        return self._scans[name].exceeds_64_bits

    def has_gaps(self, name: str) -> bool:
        """Return whether a column has missing values, after :meth:`scan`."""
        return self._scans[name].gaps

    def first_string(self, name: str) -> tuple[int, str]:
        """Return the row and the value of the first string that is not a number, after :meth:`scan`."""
        row_and_value = self._scans[name].text
        assert row_and_value is not None
        return row_and_value

    def read(self, schema: Any, start: int, n: int) -> Iterator[Any]:
        """Read columns in record batches, with the types of a schema."""
        arrow = require_arrow()
        for batch in self._string_batches(schema.names):
            try:
                columns = [self._converted(c, field.type) for c, field in zip(batch.columns, schema)]
            except arrow.ArrowInvalid as error:
                raise _unreadable(self.path, error) from error
            yield arrow.RecordBatch.from_arrays(columns, schema=schema)

    def _string_batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """Read columns as strings, with nulls for missing values."""
        arrow, options = require_arrow(), self._options
        import pyarrow.csv

        try:
            yield from pyarrow.csv.open_csv(
                self._stream(),
                # With threads, errors would not name the row.
                read_options=pyarrow.csv.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES),
                parse_options=self.parse_options(),
                convert_options=pyarrow.csv.ConvertOptions(
                    null_values=[*_NULL_VALUES, *options.null_values],
                    strings_can_be_null=True,
                    column_types=dict.fromkeys(columns, arrow.string()),
                    include_columns=list(columns),
                ),
            )
        except (ValueError, LookupError) as error:  # pyarrow's own errors derive from these
            raise _unreadable(self.path, error) from error

    def _converted(self, column: Any, kind: Any) -> Any:
        arrow = require_arrow()
        import pyarrow.compute as compute

        if is_text(kind) or arrow.types.is_null(kind):
            return column.cast(kind)
        if arrow.types.is_boolean(kind):
            is_true = compute.is_in(column, value_set=arrow.array(_TRUE))
            return compute.if_else(column.is_valid(), is_true, None)
        numbers = _numbers(column, kind, self._options.decimal)
        missing = self._missing_numbers()
        if arrow.types.is_floating(kind) and missing:
            is_missing = compute.is_in(numbers, value_set=arrow.array(missing, kind))
            return compute.if_else(is_missing, None, numbers)
        return numbers

    def _missing_numbers(self) -> list[float]:
        """Return the null values that are numbers.

        pandas treats a number as missing however the file writes it: with the null value "-9", also "-9.0".
        """
        numbers = []
        for text in self._options.null_values:
            try:
                numbers.append(float(text.replace(self._options.decimal, ".")))
            except ValueError:
                continue
        return numbers


class _ColumnScan:
    """The kinds of values that a column has in the rows that were scanned so far.

    The kinds are "int" and "negative" for 64-bit integers, "uint" for integers that need an unsigned type,
    "huge" for larger integers, "float", "bool" and "text".
    """

    def __init__(self) -> None:
        self.kinds: set[str] = set()
        self.gaps = False
        self.text: tuple[int, str] | None = None

    def add(self, column: Any, start: int, decimal: str) -> None:
        """Add the values of further rows; ``start`` is the number of the first of these rows."""
        values = column.drop_null()
        self.gaps |= len(values) < len(column)
        if not len(values) or "text" in self.kinds:
            return
        self.kinds |= _kinds(values, decimal, "float" in self.kinds)
        if self.text is None and self.kinds & {"text", "bool"}:
            self.text = next(
                (start + row, value)
                for row, value in enumerate(column.to_pylist())
                if value is not None and not _is_number(value, decimal)
            )

    @property
    def exceeds_64_bits(self) -> bool:
        """Whether all values are whole numbers, and no 64-bit integer type holds all of them."""
        if self.kinds & {"bool", "text", "float"}:
            return False
        return "huge" in self.kinds or {"uint", "negative"} <= self.kinds

    def type(self, exact: bool) -> Any:
        """Return the type that ``pandas.read_csv`` would choose, except for missing and huge numbers."""
        arrow, kinds = require_arrow(), self.kinds
        if not kinds:
            return arrow.null()
        if kinds == {"bool"}:
            return arrow.bool_()
        if kinds & {"bool", "text"}:
            return arrow.string()
        if "float" in kinds:
            return arrow.float64()
        if self.exceeds_64_bits:
            return arrow.string() if exact else arrow.float64()
        return arrow.uint64() if "uint" in kinds else arrow.int64()


def _kinds(values: Any, decimal: str, floats: bool) -> set[str]:
    """Return the kinds of strings, none of which is missing; ``floats``: whether earlier rows had floats."""
    arrow = require_arrow()
    import pyarrow.compute as compute

    if not _fit_type(values, arrow.float64(), decimal):
        boolean_words = arrow.array(_TRUE + _FALSE)
        return {"bool" if compute.all(compute.is_in(values, value_set=boolean_words)).as_py() else "text"}
    if floats:
        return {"float"}
    if _fit_type(values, arrow.int64(), decimal):
        smallest = compute.min(_numbers(values, arrow.int64(), decimal)).as_py()
        return {"int", "negative"} if smallest < 0 else {"int"}
    if not compute.all(compute.match_substring_regex(values, r"^\s*[+-]?[0-9]+\s*$")).as_py():
        return {"float"}
    return {"uint"} if _fit_type(values, arrow.uint64(), decimal) else {"huge"}


def _fit_type(values: Any, kind: Any, decimal: str) -> bool:
    try:
        _numbers(values, kind, decimal)
    except require_arrow().ArrowInvalid:
        return False
    return True


def _is_number(text: str, decimal: str) -> bool:
    return _fit_type(require_arrow().array([text]), require_arrow().float64(), decimal)


def _numbers(strings: Any, kind: Any, decimal: str) -> Any:
    """Convert strings to numbers, or raise ``ArrowInvalid``."""
    import pyarrow.compute as compute

    if decimal != ".":
        # A point separates thousands: pandas does not read such strings as numbers.
        strings = compute.replace_substring(strings, ".", "?")
        strings = compute.replace_substring(strings, decimal, ".")
    try:
        return strings.cast(kind)
    except require_arrow().ArrowInvalid:
        plain = compute.replace_substring_regex(compute.ascii_trim_whitespace(strings), r"^\+", "")
        return plain.cast(kind)


def _unreadable(path: str, error: Exception) -> ValueError:
    hint = ""
    if "UTF8" in str(error):
        hint = "; save the file as UTF-8"
    elif "straddl" in str(error):
        hint = (
            f"; a row is longer than {_BLOCK_BYTES:,} bytes, or a quote is not closed: see the CSV option "
            "quote_char="
        )
    return ValueError(f"{path!r} cannot be read as CSV: {error}{hint}")
