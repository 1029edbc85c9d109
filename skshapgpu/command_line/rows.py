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
from ..batches.csv_files import NO_OPTIONS, CsvFormat
from ..batches.source import SelectedColumns
from ..batches.sources import open_source
from .answers import some

#: Number of rows that are read at once.
_PIECE = 2**16


def require_file(path: str, argument: str) -> Place:
    """Return the place of a file or folder.

    If there is none, raise ``ValueError``, which suggests a local file with a similar name.
    """
    place = locate(path)
    if isinstance(place, RemotePath):
        if not place.exists():
            raise ValueError(f"{argument}: there is no file {str(place)!r}")
    elif not path or not os.path.exists(place):
        raise ValueError(f"{argument}: there is no file {path!r}{_similar_file(place)}")
    return place


def csv_options(args: argparse.Namespace) -> CsvFormat:
    """Return the options of CSV files on the command line.

    A tab may be written as Python writes it, and messages do.
    """
    delimiter = "\t" if args.delimiter == "\\t" else args.delimiter
    return CsvFormat(delimiter, args.quote_char, args.null_values, args.decimal)


def columns_for(
    args: argparse.Namespace, model_names: Sequence[str] | None, blanks: bool
) -> Callable[[Any], list[str]]:
    """Return a function that selects the model's columns from an Arrow schema, in the model's order.

    ``args.features`` names the columns; those in ``args.keep`` are not features by default. ``model_names``
    are the names that the model gives its columns. With ``blanks``, the model has an underscore where the
    file may have a blank.
    """
    requested_names = getattr(args, "features", None)
    names = requested_names or model_names

    def columns(schema: Any) -> list[str]:
        if names is None:
            return [name for name in schema.names if name not in getattr(args, "keep", ())]
        column_of_name = {
            name.replace(" ", "_") if blanks and not requested_names else name: name for name in schema.names
        }
        missing = [name for name in names if name not in column_of_name]
        if missing:
            other_names = [name for name in column_of_name if name not in names]
            raise ValueError(f"there is no column {some(missing)}{meant(missing[0], other_names)}")
        return [column_of_name[name] for name in names]

    return columns


def read_rows(
    path: str,
    argument: str,
    columns: Callable[[Any], list[str]],
    *,
    csv: CsvFormat = NO_OPTIONS,
    categories: bool = False,
    steps: Sequence[Any] = (),
    n_rows: int | None = None,
    at_most: bool = False,
    seed: int = 0,
) -> Any:
    """Read rows of a file that :func:`explain_batches` can read.

    Return an array from ``.npy``; otherwise a table, or what the first of ``steps``, the leading steps of a
    pipeline, takes. ``argument`` is the name of the argument, for error messages, and ``columns`` a result of
    :func:`columns_for`. With ``categories``, the model has categorical features, so that columns may be
    strings. ``n_rows`` rows are drawn with ``seed``, without replacement, and returned in their order; None
    means all rows. With ``at_most``, all rows are taken if the file has fewer, instead of raising an error.

    Raise ``ValueError`` if the file or a column does not exist, or the file cannot be read or has too few
    rows; ``ImportError`` if pyarrow, which is needed to read the file, is not installed; ``OSError`` if the
    file cannot be read.
    """
    place = require_file(path, argument)
    try:
        source = open_source(place, csv)
        names = [] if source.schema is None else columns(source.schema)
        source.settle(
            SelectedColumns(
                tuple(names), only_numbers=not categories and not steps, through_pandas=bool(steps)
            )
        )
        n_read, pieces = _drawn(source.read(names, 0, _PIECE), n_rows, seed)
        if n_rows is not None and n_read < n_rows and not at_most:
            raise ValueError(f"there are only {n_read:,} rows, not {n_rows:,}")
        if source.pandas_types is not None and pieces:
            return rows_for(steps, _joined(pieces, False), source.pandas_types)
        return _joined(pieces, categories) if pieces else []
    except (ValueError, LookupError, TypeError) as error:  # pyarrow's own errors derive from these
        message = str(error) if repr(shown(path)) in str(error) else f"{shown(path)!r}: {error}"
        raise ValueError(f"{argument}: {message}") from error


def _drawn(pieces: Iterable[Any], n_rows: int | None, seed: int) -> tuple[int, list[Any]]:
    """Draw the rows with the smallest random numbers; return the number of all rows, and the drawn rows."""
    random, n_read = np.random.default_rng(seed), 0
    drawn: list[tuple[Any, np.ndarray]] = []
    for piece in pieces:
        n_read += piece.shape[0]
        drawn.append((piece, random.random(piece.shape[0])))
        if n_rows is not None and sum(len(numbers) for _, numbers in drawn) > max(2 * n_rows, _PIECE):
            drawn = _smallest(drawn, n_rows)
    if n_rows is not None and n_read > n_rows:
        drawn = _smallest(drawn, n_rows)
    return n_read, [piece for piece, _ in drawn]


def _smallest(drawn: list[tuple[Any, np.ndarray]], n_rows: int) -> list[tuple[Any, np.ndarray]]:
    limit = np.partition(np.concatenate([numbers for _, numbers in drawn]), n_rows - 1)[n_rows - 1]
    chosen = [(piece, numbers, np.flatnonzero(numbers <= limit)) for piece, numbers in drawn]
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
    if categories:  # dictionaries become plain strings, which all models know as categories
        string_types = (pyarrow.string(), pyarrow.large_string(), pyarrow.string_view())
        columns = [
            column.cast(column.type.value_type)
            if pyarrow.types.is_dictionary(column.type) and column.type.value_type in string_types
            else column
            for column in table.columns
        ]
        table = pyarrow.table(columns, names=table.column_names)
    return table.unify_dictionaries().combine_chunks()


def _similar_file(missing: Path) -> str:
    """Suggest a file with a similar name in the same folder."""
    try:
        names = os.listdir(missing.parent)
    except OSError:
        return f", and no folder {str(missing.parent)!r}"
    return meant(missing.name, names)


def meant(name: str, candidates: Sequence[str]) -> str:
    """Ask whether the candidate that is closest to a name was meant; an empty string if none is close."""
    name_of_lower = {other.lower(): other for other in candidates}
    closest = get_close_matches(name.lower(), name_of_lower, 1)
    if not closest or not _is_slip(name.lower(), closest[0]):
        return ""
    return f"; did you mean {name_of_lower[closest[0]]!r}?"


def _is_slip(name: str, other: str) -> bool:
    """Return whether two names differ in few characters; "capital-gain" and "capital-loss" do not."""
    steps = SequenceMatcher(None, name, other).get_opcodes()
    changed = sum(max(stop - start, end - begin) for tag, start, stop, begin, end in steps if tag != "equal")
    return changed <= max(1, len(name) // 4)
