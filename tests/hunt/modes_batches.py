"""Modes of explain_batches, from all kinds of sources to all kinds of sinks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import scipy.sparse as sp

from skshapgpu import explain, explain_batches

from . import containers, many, wrappers
from .case import Case
from .modes import adds_up_probabilities, outputs_last, steps_keep_bits, widened_base
from .refusals import refusal
from .report import NotDrawnError, Report

OF_FRAMES = [
    "parquet",
    "files that differ",
    "arrow file",
    "csv",
    "csv of strange form",
    "table",
    "frames",
    "frame",
    "frame with an index",
]
OF_ARRAYS = ["npy", "npy float32", "array", "csr", "arrays", "parquet"]
SINKS = ["values.parquet", "values.arrow", "values.csv", "values.npy", "values/"]


def batches(case: Case, report: Report) -> None:
    """Check that files of all kinds have the values of explain, in order, and the kept columns."""
    rng = np.random.default_rng([case.draw.seed, 4])
    folder = Path(wrappers.FOLDER or ".")
    name = _source_name(case.converted.plain, rng)
    X = few = _as_read(name, case.converted.plain)
    margins = case.library("predict", case.margin, X)
    order, repeats = np.arange(containers.n_rows(X)), 1
    if rng.random() < 0.3 and name not in ("files that differ", "a column less"):
        X, order, repeats = many.repeated(X, rng, most=400)
    source, more = SOURCES[name](X, folder, rng)
    keep = _columns_to_keep(name, X, rng)
    sink = folder / SINKS[int(rng.integers(len(SINKS)))]
    if str(sink).endswith(".npy"):
        keep = []
    sizes: list[int | Literal["auto"]] = [3, 5, "auto"] if repeats == 1 else [1024, 2000, "auto"]
    size = sizes[int(rng.integers(3))]
    _require_exact_steps(case, few, order, size)
    options = {"device": case.device, **case.draw.options}
    top, target = case.fitted.top, sink
    if rng.random() < 0.3:  # the same files, in what is another file system to pyarrow
        source, target = _relative(source, folder), Path(sink.name)
        top = Path(top).as_uri() if isinstance(top, (str, Path)) else top
        more = more | {"filesystem": _subtree(folder)}
    try:
        with many.tables(case.draw):
            result = explain_batches(top, source, target, batch_size=size, keep=keep, **more, **options)
    except (ValueError, TypeError) as error:
        text = f"{name}: {type(error).__name__}: {error}"
        may = _may_refuse(case, name, text)
        report.true("batches are explained", may, text)
        return
    if name == "a column less":
        report.true("a missing column is refused", False, str(result))
        return
    values, kept_columns = read_sink(sink, [folder / path for path in result.paths], keep)
    k = case.n_outputs * (2 if options.get("outputs") == "all" else 1)
    direct = np.tile(outputs_last(explain(case.fitted.top, few, **options).values, 3), (repeats, 1, 1))
    if sink.suffix == ".csv":  # the shortest digits of a float32 are another float64
        values = values.astype(direct.dtype)
    got = values.reshape(len(values), -1, k).astype(np.float64)
    if keep:
        report.equal("kept column", kept_columns, list(range(len(got))))
    report.equal("columns of batches", got.shape[1], len(case.kept))
    right = np.tile(widened_base(case, margins, adds_up_probabilities(case)), (repeats, 1))
    _compare(case, report, name, got, direct, result.base_values, right)


def _source_name(X: Any, rng: np.random.Generator) -> str:
    """Draw a kind of source that can have rows like these."""
    if isinstance(X, pd.DataFrame):
        return OF_FRAMES[int(rng.integers(len(OF_FRAMES)))]
    if isinstance(X, np.ndarray):
        return OF_ARRAYS[int(rng.integers(len(OF_ARRAYS)))]
    return "csr"


def _columns_to_keep(name: str, X: Any, rng: np.random.Generator) -> list[str]:
    """Draw which columns of the source the output keeps."""
    has_row_numbers = (
        name in OF_FRAMES
        and name not in ("files that differ", "a column less")
        and isinstance(X, pd.DataFrame)
    )
    return ["row number"] if has_row_numbers and rng.random() < 0.5 else []


def _require_exact_steps(case: Case, few: Any, order: np.ndarray, size: int | Literal["auto"]) -> None:
    """Refuse a case whose steps give a row other bits if they transform it in a batch of this size."""
    rows_of_batches = [order] if size == "auto" else np.split(order, range(size, len(order), size))
    alone = np.split(order, len(order))[:3]  # a run also transforms single rows, and compares them
    if not steps_keep_bits(case, few, [*rows_of_batches, *alone]):
        raise NotDrawnError("batches: the steps round rows differently in batches")


def _compare(
    case: Case,
    report: Report,
    name: str,
    got: np.ndarray,
    direct: np.ndarray,
    base_values: Any,
    right: np.ndarray,
) -> None:
    """Compare values of batches with those of explain, ``direct``, and their sums with the ``right`` ones."""
    float32 = "32" in name
    total = np.reshape(base_values, (1, -1)) + got.sum(axis=1)
    scale = np.abs(got).sum(axis=1).max(axis=0, initial=0)
    allowed = case.allowed(right * 0 + scale, whole=True, factor=2, float32=float32)
    report.close(f"additivity of batches: {name}", total, right, allowed)
    report.close(f"values of batches: {name}", got, direct, case.allowed(direct, factor=2, float32=float32))


def _as_read(name: str, X: Any) -> Any:
    if name == "npy float32":
        with np.errstate(over="ignore"):
            return X.astype(np.float32)
    if name == "files that differ":
        half = len(X) // 2
        return pd.concat([_narrow(X.iloc[:half]).astype(X.dtypes), X.iloc[half:]])
    return sp.csr_matrix(X) if name == "csr" else X


def _may_refuse(case: Case, name: str, text: str) -> bool:
    """Return whether a refusal is documented because a file's types differ from the types in training."""
    if name.startswith("csv") and (case.data.categorical or "infinit" in text):
        if "column" in text:
            return True
    if name in ("files that differ", "a column less") and "column" in text and "part-" in text:
        return True
    return refusal(case.draw, case.accepted, text, "csr" if name == "csr" else "file") is not None


def _numbered(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(**{"row number": np.arange(len(frame))})


def _table(frame: pd.DataFrame) -> Any:
    import pyarrow

    return pyarrow.Table.from_pandas(frame, preserve_index=False)


def _named(X: Any) -> pd.DataFrame:
    return X if isinstance(X, pd.DataFrame) else pd.DataFrame(X, columns=[f"c{i}" for i in range(X.shape[1])])


def _parquet(X: Any, folder: Path, rng: Any) -> Any:
    import pyarrow.parquet

    frame = _named(X)
    if isinstance(X, pd.DataFrame):
        frame = _numbered(frame)
    pyarrow.parquet.write_table(_table(frame), folder / "rows.parquet", row_group_size=4)
    return folder / "rows.parquet", {}


def _differing(X: pd.DataFrame, folder: Path, rng: Any) -> Any:
    """Write two files, one of which has its columns in another order and of narrower types."""
    import pyarrow.parquet

    half = len(X) // 2
    order = rng.permutation(X.shape[1])
    parts = [_narrow(X.iloc[:half]).iloc[:, order], X.iloc[half:]]
    paths = [folder / "part-0.parquet", folder / "part-1.parquet"]
    for path, part in zip(paths, parts):
        pyarrow.parquet.write_table(_table(part), path)
    return paths, {}


def _narrow(X: pd.DataFrame) -> pd.DataFrame:
    """Narrow numbers to float32, and whole ones to int32."""
    X = X.copy()
    with np.errstate(over="ignore"):
        for name in X:
            if X[name].dtype == np.float64:
                is_integer = np.isfinite(X[name]).all() and (X[name] == X[name].astype(np.int32)).all()
                X[name] = X[name].astype(np.int32 if is_integer else np.float32)
    return X


def _lacking(X: pd.DataFrame, folder: Path, rng: Any) -> Any:
    """Write two files, of which the second lacks a column."""
    import pyarrow.parquet

    paths, more = _differing(X, folder, rng)
    pyarrow.parquet.write_table(_table(X.iloc[len(X) // 2 :, 1:]), paths[1])
    return paths, more


def _arrow_file(X: pd.DataFrame, folder: Path, rng: Any) -> Any:
    import pyarrow

    table = _table(_numbered(X))
    with pyarrow.OSFile(str(folder / "rows.arrow"), "wb") as file:
        with pyarrow.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table, max_chunksize=5)
    return folder / "rows.arrow", {}


def _csv(X: pd.DataFrame, folder: Path, rng: Any) -> Any:
    _numbered(X).to_csv(folder / "rows.csv", index=False)
    return folder / "rows.csv", {}


def _strange_csv(X: pd.DataFrame, folder: Path, rng: Any) -> Any:
    """Write the columns in another order, with an additional column that the model does not know."""
    frame = _numbered(X).assign(other="text")
    frame = frame.iloc[:, rng.permutation(frame.shape[1])]
    frame.to_csv(folder / "rows.csv", index=False)
    return folder / "rows.csv", {"features": [str(name) for name in X.columns]}


def _frames(X: pd.DataFrame, folder: Path, rng: Any) -> Any:
    frame = _numbered(X)

    def parts() -> Iterator[pd.DataFrame]:
        for start in range(0, len(frame), 4):
            yield frame.iloc[start : start + 4]

    return parts(), {}


def _npy(X: np.ndarray, folder: Path, rng: Any) -> Any:
    np.save(folder / "rows.npy", X)
    return folder / "rows.npy", {}


SOURCES: dict[str, Any] = {
    "parquet": _parquet,
    "files that differ": _differing,
    "a column less": _lacking,
    "arrow file": _arrow_file,
    "csv": _csv,
    "csv of strange form": _strange_csv,
    "table": lambda X, folder, rng: (_table(_numbered(X)), {}),
    "frame": lambda X, folder, rng: (_numbered(X), {}),
    "frame with an index": lambda X, folder, rng: (_numbered(X).set_index("row number"), {}),
    "frames": _frames,
    "npy": _npy,
    "npy float32": _npy,
    "array": lambda X, folder, rng: (X, {}),
    "arrays": lambda X, folder, rng: (iter([X[:4], X[4:]]), {}),
    "csr": lambda X, folder, rng: (X, {}),
}


def _subtree(folder: Path) -> Any:
    from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

    return SubTreeFileSystem(str(folder), LocalFileSystem())


def _relative(source: Any, folder: Path) -> Any:
    """Return one or more paths in the file system of a folder; return other sources as they are."""
    if isinstance(source, list):
        return [_relative(path, folder) for path in source]
    return source.relative_to(folder).as_posix() if isinstance(source, Path) else source


def read_sink(sink: Path, paths: list[Path], keep: list[str]) -> tuple[np.ndarray, list[Any]]:
    """Read the values in a sink, one row for each explained row, and the kept columns."""
    if sink.suffix == ".npy":
        values = np.load(sink)
        return values.reshape(len(values), -1), []
    if sink.suffix == ".csv":
        frame = pd.read_csv(sink, dtype=str).map(float)
        return frame.drop(columns=keep).to_numpy(), frame[keep[0]].tolist() if keep else []
    import pyarrow

    tables = []
    for path in paths:
        if path.suffix == ".parquet":
            tables.append(pyarrow.parquet.read_table(path))
        else:
            with pyarrow.OSFile(str(path)) as file:
                tables.append(pyarrow.ipc.open_file(file).read_all())
    table = pyarrow.concat_tables(tables)
    kept_columns = table.column(keep[0]).to_pylist() if keep else []
    columns = [table.column(name).to_numpy() for name in table.column_names if name not in keep]
    return np.column_stack(columns), kept_columns
