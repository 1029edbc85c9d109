"""Reading of DATA and of background data: rows of files, and the columns that a model needs."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable, Sequence
from difflib import SequenceMatcher, get_close_matches
from pathlib import Path
from typing import Any

import numpy as np

from .._files.locations import Place, RemotePath, locate, shown
from ..batches.batch_arguments import rows_for
from ..batches.csv_files import CsvFormat
from ..batches.source import SelectedColumns
from ..batches.sources import open_source
from .answers import some

#: Number of rows that are read at once.
_PIECE = 2**16

_NO_OPTIONS = CsvFormat()


def require_file(path: str, what: str) -> Place:
    """Return the place of a file or folder; reject a missing one, and suggest a local one of a similar name.

    Raises
    ------
    ValueError, ImportError, OSError
        There is no such file, or its file system cannot be opened.
    """
    place = locate(path)
    if isinstance(place, RemotePath):
        if not place.exists():
            raise ValueError(f"{what}: there is no file {str(place)!r}")
    elif not path or not os.path.exists(place):
        raise ValueError(f"{what}: there is no file {path!r}{_like(place)}")
    return place


def csv_options(args: argparse.Namespace) -> CsvFormat:
    """Return the options of CSV files that were given."""
    return CsvFormat(args.delimiter, args.quote_char, args.null_values, args.decimal)


def columns_for(
    args: argparse.Namespace, known: Sequence[str] | None, blanks: bool
) -> Callable[[Any], list[str]]:
    """Return a function that selects the model's columns from an Arrow schema, in the model's order.

    Parameters
    ----------
    args : Namespace
        Arguments: ``features`` names the columns; those in ``keep`` are not features by default.
    known : sequence of str or None
        Names that the model gives its columns.
    blanks : bool
        Whether the model has an underscore where the file may have a space.
    """
    named = getattr(args, "features", None)
    wanted = named or known

    def columns(schema: Any) -> list[str]:
        if wanted is None:
            return [name for name in schema.names if name not in getattr(args, "keep", ())]
        there = {name.replace(" ", "_") if blanks and not named else name: name for name in schema.names}
        missing = [name for name in wanted if name not in there]
        if missing:
            others = [name for name in there if name not in wanted]
            raise ValueError(f"there is no column {some(missing)}{meant(missing[0], others)}")
        return [there[name] for name in wanted]

    return columns


def read_rows(
    path: str,
    what: str,
    columns: Callable[[Any], list[str]],
    *,
    csv: CsvFormat = _NO_OPTIONS,
    categories: bool = False,
    steps: Sequence[Any] = (),
    n_rows: int | None = None,
    at_most: bool = False,
    seed: int = 0,
) -> Any:
    """Read rows of a file that :func:`explain_batches` can read.

    Returns an array from ``.npy``; otherwise a table, or what the first step of a pipeline takes.

    Parameters
    ----------
    path : str
    what : str
        Name of the argument, for error messages.
    columns : callable
        Result of :func:`columns_for`.
    csv : CsvFormat
    categories : bool
        Whether to read text columns as categories.
    steps : sequence of fitted transformers
        Leading steps of a pipeline, if there are any.
    n_rows : int or None
        Number of rows to draw without replacement, returned in their order; None: all.
    at_most : bool
        Whether to take all rows if there are fewer, instead of raising an error.
    seed : int
        Seed of the draw.

    Raises
    ------
    ValueError
        The file or a column does not exist, or the file cannot be read or has too few rows.
    ImportError
        pyarrow, which is needed to read the file, is not installed.
    OSError
        The file cannot be read.
    """
    place = require_file(path, what)
    try:
        source = open_source(place, csv)
        names = [] if source.schema is None else columns(source.schema)
        source.settle(
            SelectedColumns(
                tuple(names), only_numbers=not categories and not steps, through_pandas=bool(steps)
            )
        )
        there, pieces = _drawn(source.read(names, 0, _PIECE), n_rows, seed)
        if n_rows is not None and there < n_rows and not at_most:
            raise ValueError(f"there are only {there:,} rows, not {n_rows:,}")
        if source.pandas_types is not None and pieces:
            return rows_for(steps, _joined(pieces, False), source.pandas_types)
        return _joined(pieces, categories) if pieces else []
    except (ValueError, LookupError, TypeError) as error:  # pyarrow's own errors derive from these
        named = str(error) if repr(shown(path)) in str(error) else f"{shown(path)!r}: {error}"
        raise ValueError(f"{what}: {named}") from error


def _drawn(pieces: Iterable[Any], n_rows: int | None, seed: int) -> tuple[int, list[Any]]:
    """Keep the rows with the smallest random numbers; return the number of all rows, and the pieces kept."""
    random, there = np.random.default_rng(seed), 0
    held: list[tuple[Any, np.ndarray]] = []
    for piece in pieces:
        there += piece.shape[0]
        held.append((piece, random.random(piece.shape[0])))
        if n_rows is not None and sum(len(numbers) for _, numbers in held) > max(2 * n_rows, _PIECE):
            held = _smallest(held, n_rows)
    if n_rows is not None and there > n_rows:
        held = _smallest(held, n_rows)
    return there, [piece for piece, _ in held]


def _smallest(held: list[tuple[Any, np.ndarray]], n_rows: int) -> list[tuple[Any, np.ndarray]]:
    limit = np.partition(np.concatenate([numbers for _, numbers in held]), n_rows - 1)[n_rows - 1]
    chosen = [(piece, numbers, np.flatnonzero(numbers <= limit)) for piece, numbers in held]
    return [
        (piece[rows] if isinstance(piece, np.ndarray) else piece.take(rows), numbers[rows])
        for piece, numbers, rows in chosen
        if len(rows)
    ]


def _joined(pieces: list[Any], categories: bool) -> Any:
    if isinstance(pieces[0], np.ndarray):
        return np.concatenate(pieces)
    import pyarrow

    table = pyarrow.Table.from_batches(pieces)
    if categories:  # as text, whose categories all models know
        texts = (pyarrow.string(), pyarrow.large_string(), pyarrow.string_view())
        columns = [
            column.cast(column.type.value_type)
            if pyarrow.types.is_dictionary(column.type) and column.type.value_type in texts
            else column
            for column in table.columns
        ]
        table = pyarrow.table(columns, names=table.column_names)
    return table.unify_dictionaries().combine_chunks()


def _like(missing: Path) -> str:
    """Suggest a file with a similar name in the same folder."""
    try:
        beside = os.listdir(missing.parent)
    except OSError:
        return f", and no folder {str(missing.parent)!r}"
    return meant(missing.name, beside)


def meant(name: str, known: Sequence[str]) -> str:
    """Ask whether one of the known names is meant, if one is close."""
    lower = {other.lower(): other for other in known}
    close = get_close_matches(name.lower(), lower, 1)
    return f"; did you mean {lower[close[0]]!r}?" if close and _is_slip(name.lower(), close[0]) else ""


def _is_slip(name: str, other: str) -> bool:
    """Return whether two names differ in few characters; "capital-gain" and "capital-loss" do not."""
    steps = SequenceMatcher(None, name, other).get_opcodes()
    changed = sum(max(stop - start, end - begin) for tag, start, stop, begin, end in steps if tag != "equal")
    return changed <= max(1, len(name) // 4)
