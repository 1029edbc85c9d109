"""Base class of the sources of rows, which yield pieces with the same rows in every run.

A source knows the names of its columns, or that its columns have no names, before its first row is read. It
knows and has checked their types once :meth:`Source.settle` has told it which columns are read. It can
begin at any row: it skips files and row groups that record their number of rows, and otherwise reads and
drops rows.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from .._files.locations import Place
from .._rows.arrow import require_arrow
from .._rows.pandas_types import PandasTypes
from .frame_rows import FrameRows, one_batch
from .types import fitted, of_all

#: Bytes assumed for a value whose type has no fixed size, such as text.
TEXT_BYTES = 32

#: Rows that are read at once to find out how pandas holds a column.
SCANNED_ROWS = 2**16


@dataclass(frozen=True)
class Wanted:
    """Columns to read from a source.

    Attributes
    ----------
    features : tuple of str
    kept : tuple of str
        Columns that are copied to the output.
    all_others : bool
        Whether the features are all columns that are not kept, so that an additional column matters.
    numbers : bool
        Whether the model accepts only numbers.
    frames : bool
        Whether the features are passed through pandas, to the steps of a pipeline.
    """

    features: tuple[str, ...]
    kept: tuple[str, ...] = ()
    all_others: bool = False
    numbers: bool = False
    frames: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns, the kept ones first."""
        return (*self.kept, *(name for name in self.features if name not in self.kept))


class Source(ABC):
    """Rows to explain.

    Attributes
    ----------
    n_rows : int or None
        Number of rows; None if it is not known beforehand.
    schema : pyarrow.Schema or None
        Schema of the record batches that the source yields; None if it yields arrays or CSR matrices.
    single : bool
        Whether these arrays are float32.
    levels : tuple of str
        Columns that are levels of the index of data frames, to be kept; they are no features.
    places : tuple of Path or RemotePath
        Files that are read, as far as they are known; the output must not replace them.
    pandas_types : PandasTypes or None
        How pandas holds the features; None before :meth:`settle`, or if they are not passed through pandas,
        or are rows of a data frame already.
    """

    levels: tuple[str, ...] = ()
    places: tuple[Place, ...] = ()
    n_rows: int | None = None
    schema: Any = None
    single: bool = False
    pandas_types: PandasTypes | None = None

    def settle(self, wanted: Wanted) -> None:  # noqa: B027 - in a table, each column has one type
        """Check that all rows have the columns, and determine the type that holds all values of each.

        Called before rows are read; until then the types in ``schema`` are those of the first rows.

        Raises
        ------
        ValueError
            A part of the source lacks a column, or has values of another kind in it; the message names the
            part and the column.
        """

    @abstractmethod
    def row_bytes(self, columns: Sequence[str]) -> int:
        """Estimate the bytes per row of these columns."""

    @abstractmethod
    def fingerprint(self, columns: Sequence[str]) -> dict[str, Any]:
        """Return a JSON-compatible fingerprint: sources with equal fingerprints have the same rows."""

    @abstractmethod
    def _pieces(self, columns: Sequence[str], start: int, n: int) -> Iterator[Any]:
        """Yield the rows from ``start`` on, in pieces of any size; about ``n`` rows is best."""

    def read(self, columns: Sequence[str], start: int, n: int) -> Iterator[Any]:
        """Yield these columns of the rows from ``start`` on, in pieces of n rows; the last may be smaller."""
        held: list[Any] = []
        n_held = 0
        for piece in self._pieces(columns, start, n):
            begin, size = 0, piece.shape[0]
            while begin < size:
                taken = min(n - n_held, size - begin)
                held.append(piece if taken == size else part(piece, begin, taken))
                begin, n_held = begin + taken, n_held + taken
                if n_held == n:
                    yield _joined(held)
                    held, n_held = [], 0
        if held:
            yield _joined(held)


def require_same_names(
    names: Sequence[str], expected: Sequence[str], wanted: Wanted, where: str, first: str
) -> None:
    """Reject a part of a source with a missing, duplicate or relevant additional column.

    Parameters
    ----------
    names : sequence of str
        Names of the columns of the part.
    expected : sequence of str
        Names of the columns of the source.
    wanted : Wanted
    where, first : str
        Names, for messages, of the part and of the part that determines the columns.

    Raises
    ------
    ValueError
    """
    others = [name for name in names if name not in expected]
    for name in wanted.columns:
        if name not in names:
            instead = f", but it has {others[0]!r}" if others else ""
            raise ValueError(
                f"{where} does not have the columns of {first}: there is no {name!r}{instead}; give it "
                "the same columns, or explain it by itself"
            )
        if list(names).count(name) > 1:
            raise ValueError(f"{where} has several columns {name!r}")
    if wanted.all_others and others:
        raise ValueError(
            f"{where} does not have the columns of {first}: {others[0]!r} is additional, and the model knows "
            "no names; name the columns to use in features="
        )


def part(piece: Any, begin: int, size: int) -> Any:
    """Return ``size`` rows of a piece, from row ``begin`` on."""
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
    if isinstance(held[0], FrameRows):
        import pandas

        return FrameRows(pandas.concat([rows.frame for rows in held]), _joined([rows.kept for rows in held]))
    schema = of_all([piece.schema for piece in held])
    pieces = [fitted(piece, schema, "the source") for piece in held]
    return one_batch(require_arrow().Table.from_batches(pieces, schema))


def row_bytes(schema: Any, columns: Sequence[str]) -> int:
    """Estimate the bytes per row of some columns."""
    total = 0
    for name in columns:
        try:
            total += max(schema.field(name).type.bit_width // 8, 1)
        except ValueError:  # a type of variable length
            total += TEXT_BYTES
    return total


def of_schema(schema: Any, columns: Sequence[str]) -> dict[str, Any]:
    """Return part of a fingerprint: names and types of columns."""
    return {"columns": [[name, str(schema.field(name).type)] for name in columns]}


def of_listing(listing: Sequence[tuple[str, int | None, int | None]]) -> dict[str, Any]:
    """Return part of a fingerprint: the paths, sizes and modification times of files.

    It holds the number of files, the path of the first, and a digest of all in their order, which is that of
    the rows.
    """
    return {
        "n_files": len(listing),
        "first_file": listing[0][0] if listing else None,
        "bytes": sum(size or 0 for _, size, _ in listing),
        "files": hashlib.sha256(repr(list(listing)).encode()).hexdigest(),
    }
