"""Base class of the sources of rows, which yield pieces with the same rows in every run.

A source knows the names of its columns, or that its columns have no names, before its first row is read.
:meth:`Source.settle` tells it which columns are read; the source then determines and checks their types. It
can begin at any row. It skips files and row groups that record their number of rows; other rows it reads and
drops.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from .._files.locations import Place
from .._rows.arrow import require_arrow
from .._rows.pandas_types import PandasTypes
from .frame_rows import FrameRows, one_batch
from .types import cast_to_schema, common_schema

#: Bytes assumed for a value whose type has no fixed size, such as text.
TEXT_BYTES = 32

#: Rows that are read at once to determine the pandas types of columns.
SCANNED_ROWS = 2**16


@dataclass(frozen=True)
class SelectedColumns:
    """Columns to read from a source."""

    features: tuple[str, ...]
    kept_columns: tuple[str, ...] = ()  # columns that are copied to the output
    #: Whether the features are all columns that are not kept. A file must then have no other columns.
    all_columns: bool = False
    only_numbers: bool = False  # whether the model accepts only numbers
    through_pandas: bool = False  # whether the features are passed through pandas, to the steps of a pipeline

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns, the kept ones first."""
        return (*self.kept_columns, *(name for name in self.features if name not in self.kept_columns))


class Source(ABC):
    """Rows to explain."""

    #: Columns to keep that are levels of the index of data frames. They cannot be features.
    levels: tuple[str, ...] = ()
    #: Files that are read, as far as they are known; the output must not replace them.
    places: tuple[Place, ...] = ()
    n_rows: int | None = None  # number of rows; None if it is not known beforehand
    #: Schema of the record batches that the source yields; None if it yields arrays or CSR matrices.
    schema: Any = None
    single: bool = False  # whether the source yields float32 arrays
    #: The pandas types of the features. None before :meth:`settle`, if the features are not passed through
    #: pandas, or if the source yields rows of a data frame.
    pandas_types: PandasTypes | None = None

    def settle(self, selected: SelectedColumns) -> None:  # noqa: B027 - in a table, each column has one type
        """Check that all rows have the columns, and determine a type for each column that holds its values.

        It is called before rows are read. Before the call, ``schema`` has the types of the first rows. It
        raises ``ValueError`` if a file or item lacks a column or has values of another kind in it.
        """

    def row_bytes(self, columns: Sequence[str]) -> int:
        """Estimate the bytes per row of these columns."""
        return row_bytes(self.schema, columns)

    @abstractmethod
    def fingerprint(self, columns: Sequence[str]) -> dict[str, Any]:
        """Return a JSON-compatible fingerprint: sources with equal fingerprints have the same rows."""

    @abstractmethod
    def _pieces(self, columns: Sequence[str], start: int, n: int) -> Iterator[Any]:
        """Yield the rows from ``start`` on, in pieces of any size, preferably of about ``n`` rows."""

    def read(self, columns: Sequence[str], start: int, n: int) -> Iterator[Any]:
        """Yield these columns of the rows from ``start`` on, in pieces of n rows; the last may be smaller."""
        pieces: list[Any] = []
        n_rows = 0
        for piece in self._pieces(columns, start, n):
            begin, size = 0, piece.shape[0]
            while begin < size:
                n_added = min(n - n_rows, size - begin)
                pieces.append(piece if n_added == size else slice_piece(piece, begin, n_added))
                begin, n_rows = begin + n_added, n_rows + n_added
                if n_rows == n:
                    yield _joined(pieces)
                    pieces, n_rows = [], 0
        if pieces:
            yield _joined(pieces)


def require_same_names(
    names: Sequence[str], expected: Sequence[str], selected: SelectedColumns, where: str, first: str
) -> None:
    """Raise ``ValueError`` if a part of a source lacks a column, has it twice or has one too many.

    ``names`` are the names of the columns of the part, which is a file or an item, and ``expected`` those of
    the source. ``where`` and ``first`` are the names, for messages, of the part and of the first part, which
    determines the columns.
    """
    n_times, expected_names = Counter(names), set(expected)
    unexpected = [name for name in names if name not in expected_names]
    for name in selected.columns:
        if name not in n_times:
            instead = f", but it has {unexpected[0]!r}" if unexpected else ""
            raise ValueError(
                f"{where} does not have the columns of {first}: there is no {name!r}{instead}; give it "
                "the same columns, or explain it by itself"
            )
        if n_times[name] > 1:
            raise ValueError(f"{where} has several columns {name!r}")
    if selected.all_columns and unexpected:
        raise ValueError(
            f"{where} does not have the columns of {first}: {unexpected[0]!r} is additional, and the "
            "model knows no names; name the columns to use in features="
        )


def slice_piece(piece: Any, begin: int, size: int) -> Any:
    """Return ``size`` rows of a piece, from row ``begin`` on."""
    if hasattr(piece, "num_rows"):
        return piece.slice(begin, size)
    return piece[begin : begin + size]


def _joined(pieces: list[Any]) -> Any:
    if len(pieces) == 1:
        return pieces[0]
    if isinstance(pieces[0], np.ndarray):
        return np.concatenate(pieces)
    if sp.issparse(pieces[0]):
        return sp.vstack(pieces, format="csr")
    if isinstance(pieces[0], FrameRows):
        import pandas

        return FrameRows(
            pandas.concat([rows.frame for rows in pieces]), _joined([rows.kept_columns for rows in pieces])
        )
    schema = common_schema([piece.schema for piece in pieces])
    batches = [cast_to_schema(piece, schema, "the source") for piece in pieces]
    return one_batch(require_arrow().Table.from_batches(batches, schema))


def row_bytes(schema: Any, columns: Sequence[str]) -> int:
    """Estimate the bytes per row of some columns."""
    total = 0
    for name in columns:
        try:
            total += max(schema.field(name).type.bit_width // 8, 1)
        except ValueError:  # a type of variable length
            total += TEXT_BYTES
    return total


def columns_fingerprint(schema: Any, columns: Sequence[str]) -> dict[str, Any]:
    """Return the names and types of columns, as a part of a fingerprint."""
    return {"columns": [[name, str(schema.field(name).type)] for name in columns]}


def files_fingerprint(listing: Sequence[tuple[str, int | None, int | None]]) -> dict[str, Any]:
    """Return the paths, sizes and modification times of files, as a part of a fingerprint.

    It holds the number of files, the path of the first file, and a digest of all files in the order in which
    their rows are read.
    """
    return {
        "n_files": len(listing),
        "first_file": listing[0][0] if listing else None,
        "bytes": sum(size or 0 for _, size, _ in listing),
        "files": hashlib.sha256(repr(list(listing)).encode()).hexdigest(),
    }
