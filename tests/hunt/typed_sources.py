"""Sources of explain_batches for frames of all types, and the frames that pandas itself reads from them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from packaging.version import Version


class Source(NamedTuple):
    """A source for the package, and the frames that a user of pandas reads from it.

    Attributes
    ----------
    rows : object
        Argument of ``explain_batches``.
    whole : DataFrame
        All rows, as pandas reads them at once.
    parts : list of DataFrame
        The rows of each file, as pandas reads it alone.
    """

    rows: Any
    whole: pd.DataFrame
    parts: list[pd.DataFrame]


def _halves(X: pd.DataFrame) -> list[pd.DataFrame]:
    """Return two parts of X; the categories of the second part are in another order."""
    first, second = X.iloc[: len(X) // 2], X.iloc[len(X) // 2 :].copy()
    for name, dtype in second.dtypes.items():
        if isinstance(dtype, pd.CategoricalDtype) and not dtype.ordered:
            second[name] = second[name].cat.reorder_categories(list(dtype.categories)[::-1])
    return [first, second.reset_index(drop=True)]


def _table(X: pd.DataFrame) -> Any:
    import pyarrow

    return pyarrow.Table.from_pandas(X, preserve_index=False)


def _write(table: Any, path: Path) -> Path:
    import pyarrow.parquet

    pyarrow.parquet.write_table(table, path, row_group_size=6)
    return path


def _parquet(X: pd.DataFrame, folder: Path, *, metadata: bool = True, order: Any = None) -> Source:
    table = _table(X if order is None else X[order])
    path = _write(table if metadata else table.replace_schema_metadata(None), folder / "rows.parquet")
    read = pd.read_parquet(path)
    return Source(path, read, [read])


def _several(X: pd.DataFrame, folder: Path, *, metadata: bool = True, as_folder: bool = False) -> Source:
    paths = []
    (folder / "parts").mkdir(exist_ok=True)
    for number, part in enumerate(_halves(X)):
        table = _table(part)
        table = table if metadata else table.replace_schema_metadata(None)
        paths.append(_write(table, folder / "parts" / f"{number}.parquet"))
    parts = [pd.read_parquet(path) for path in paths]
    return Source(folder / "parts" if as_folder else paths, pd.read_parquet(paths), parts)


def _feather(X: pd.DataFrame, folder: Path) -> Source:
    path = folder / "rows.feather"
    X.reset_index(drop=True).to_feather(path)
    read = pd.read_feather(path)
    return Source(path, read, [read])


def _of_table(X: pd.DataFrame, folder: Path) -> Source:
    table = _table(X)
    read = table.to_pandas()
    return Source(table, read, [read])


def _reader(X: pd.DataFrame, folder: Path) -> Source:
    import pyarrow

    table = _table(X)
    read = table.to_pandas()
    batches = table.to_batches(max_chunksize=5)
    return Source(pyarrow.RecordBatchReader.from_batches(table.schema, batches), read, [read])


def _record_batches(X: pd.DataFrame, folder: Path) -> Source:
    table = _table(X)
    read = table.to_pandas()
    return Source(iter(table.to_batches(max_chunksize=5)), read, [read])


def _frames(X: pd.DataFrame, folder: Path) -> Source:
    return Source(iter([X.iloc[:4], X.iloc[4:9], X.iloc[9:]]), X, [X])


def _read_csv(path: Path) -> pd.DataFrame:
    """Read numbers as the nearest float64, as the package does; pandas before 3.1 may miss the last digit."""
    exact = {} if Version(pd.__version__) >= Version("3.1") else {"float_precision": "round_trip"}
    return pd.read_csv(path, **exact)


def _csv(X: pd.DataFrame, folder: Path) -> Source:
    path = folder / "rows.csv"
    X.to_csv(path, index=False)
    read = _read_csv(path)
    return Source(path, read, [read])


def _several_csv(X: pd.DataFrame, folder: Path) -> Source:
    paths = [folder / "part-0.csv", folder / "part-1.csv"]
    for path, part in zip(paths, _halves(X)):
        part.to_csv(path, index=False)
    parts = [_read_csv(path) for path in paths]
    return Source(paths, pd.concat(parts, ignore_index=True), parts)


def _polars_frames(X: pd.DataFrame, folder: Path) -> Source:
    import polars

    frame = polars.from_pandas(X)
    read = frame.to_pandas()
    return Source(iter([frame[:5], frame[5:]]), read, [read])


#: Sources by name; each function takes the rows and a folder for files.
SOURCES: dict[str, Callable[[pd.DataFrame, Path], Source]] = {
    "frame": lambda X, folder: Source(X, X, [X]),
    "frame with an index": lambda X, folder: Source(X.set_axis(range(5, 5 + len(X))), X, [X]),
    "parquet": lambda X, folder: _parquet(X, folder),
    "parquet without pandas": lambda X, folder: _parquet(X, folder, metadata=False),
    "parquet in another order": lambda X, folder: _parquet(X, folder, order=list(X.columns)[::-1]),
    "several parquet": lambda X, folder: _several(X, folder),
    "several parquet without pandas": lambda X, folder: _several(X, folder, metadata=False),
    "folder of parquet": lambda X, folder: _several(X, folder, as_folder=True),
    "feather": _feather,
    "table": _of_table,
    "reader of record batches": _reader,
    "record batches": _record_batches,
    "frames": _frames,
    "csv": _csv,
    "several csv": _several_csv,
    "polars frames": _polars_frames,
}
