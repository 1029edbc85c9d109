"""Kinds of containers for X, and rows that mix the columns of several rows of a container.

Each container comes with ``plain``, an array or a pandas frame with the same numbers, which every library
reads. Numbers that the container rounds are rounded in ``plain``, too.
"""

from __future__ import annotations

import tempfile
from importlib import util
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse as sp


class Converted(NamedTuple):
    """X as the package gets it, and the same rows in a container that every library accepts."""

    X: Any
    plain: Any


#: Containers of numbers only.
ARRAYS = [
    "array",
    "fortran",
    "strided",
    "float32",
    "float16",
    "int64",
    "int32",
    "objects",
    "lists",
    "big-endian",
    "memory-mapped",
    "read-only",
]
SPARSE = ["csr", "csc", "coo", "csr array", "csr float32", "csr with zeros"]
FRAMES = [
    "frame",
    "frame float32",
    "frame nullable",
    "frame of arrow",
    "frame of objects",
    "frame sparse",
    "arrow batch",
    "polars",
    "arrow",
    "arrow chunks",
]
#: Containers that also hold categories.
TYPED = [
    "frame",
    "frame shuffled",
    "frame repeated labels",
    "frame of text",
    "frame of arrow dictionaries",
    "polars",
    "polars enum",
    "arrow",
    "arrow text",
]


def choices(data_categories: bool) -> list[str]:
    if data_categories:
        return installed(TYPED)
    frames = [*FRAMES, "frame shuffled", "frame repeated labels", "frame named rows"]
    return [*ARRAYS, *SPARSE, *installed(frames)]


def installed(containers: list[str]) -> list[str]:
    """Return the containers whose package is installed; polars is optional."""
    has_polars = util.find_spec("polars") is not None
    return [container for container in containers if has_polars or not container.startswith("polars")]


#: Containers that models are trained on.
TRAINING = [
    "array",
    "frame",
    "csr",
    "fortran",
    "float32",
    "frame nullable",
    "frame of arrow",
    "frame float32",
    "polars",
]


#: Containers that hold float32, so that results are float32, too.
SINGLE = ("float32", "csr float32", "frame float32")


def is_frame(kind: str) -> bool:
    return kind.startswith("frame") or kind == "polars"


def training(kind: str, frame: pd.DataFrame) -> Any:
    """Return the training data in a container."""
    return _CONVERT[kind](_rounded(kind, frame), np.random.default_rng(0))


def convert(name: str, frame: pd.DataFrame, trained_on: str, rng: np.random.Generator) -> Converted:
    """Convert the rows of a frame to a container; ``plain`` has the kind on which the model was trained."""
    changed = _rounded(name, frame)
    X = _CONVERT[name](changed, rng)
    if name.startswith(("csr", "csc", "coo")):
        return Converted(X, X)
    if is_frame(trained_on):
        plain = changed.reset_index(drop=True)
    else:
        plain = changed.to_numpy(np.float64)
    return Converted(X, plain)


#: Containers that hold float64.
_DOUBLES = {*ARRAYS, *SPARSE[:4]} - {"float32", "float16", "int64", "int32"}


def _rounded(name: str, frame: pd.DataFrame) -> pd.DataFrame:
    """Return the frame with the numbers that the container holds."""
    if (
        name
        in ("array", "fortran", "strided", "objects", "lists", "big-endian", "memory-mapped", "read-only")
        or name in SPARSE[:4]
    ):
        return frame.astype(np.float64) if not _has_categories(frame) else frame
    dtype = {
        "float32": np.float32,
        "float16": np.float16,
        "csr float32": np.float32,
        "csr with zeros": np.float64,
        "frame float32": np.float32,
    }.get(name)
    with np.errstate(over="ignore", invalid="ignore"):
        if dtype is not None:
            return frame.astype(dtype).astype(np.float64)
        if name in ("int64", "int32"):
            limit = 2.0**62 if name == "int64" else 2.0**31 - 129
            values = np.nan_to_num(frame.to_numpy(np.float64), nan=0.0, posinf=limit, neginf=-limit)
            integers = np.clip(np.round(values), -limit, limit).astype(name)
            return pd.DataFrame(integers, columns=frame.columns).astype(np.float64)
    return frame


def _has_categories(frame: pd.DataFrame) -> bool:
    return any(isinstance(dtype, pd.CategoricalDtype) for dtype in frame.dtypes)


def _strided(values: np.ndarray) -> np.ndarray:
    wide = np.full((2 * len(values), 3 * values.shape[1]), 1e300)
    view = wide[::-2, 1::3]
    view[:] = values
    return view


def _read_only(values: np.ndarray) -> np.ndarray:
    values = values.copy()
    values.flags.writeable = False
    return values


def _with_stored_zeros(values: np.ndarray) -> Any:
    """Store half of the zeros explicitly, so that XGBoost does not read these as missing."""
    stored = (values != 0) | (np.indices(values.shape).sum(axis=0) % 2 == 0)
    return sp.csr_matrix((values[stored], np.nonzero(stored)), shape=values.shape)


def _nullable(frame: pd.DataFrame) -> pd.DataFrame:
    names = {"float64": "Float64", "int64": "Int64", "bool": "boolean"}
    return frame.astype({name: names.get(str(dtype), dtype) for name, dtype in frame.dtypes.items()})


def _of_arrow(frame: pd.DataFrame) -> pd.DataFrame:
    names = {"float64": "double[pyarrow]", "int64": "int64[pyarrow]", "bool": "bool[pyarrow]"}
    return frame.astype({name: names.get(str(dtype), dtype) for name, dtype in frame.dtypes.items()})


def _shuffled(frame: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    return frame.set_axis(rng.permutation(len(frame)) * 3, axis=0)


def _polars(frame: pd.DataFrame, rng: np.random.Generator) -> Any:
    import polars

    return polars.from_pandas(frame)


def _arrow(frame: pd.DataFrame, rng: np.random.Generator) -> Any:
    import pyarrow

    return pyarrow.Table.from_pandas(frame, preserve_index=False)


def _arrow_chunks(frame: pd.DataFrame, rng: np.random.Generator) -> Any:
    import pyarrow

    table = _arrow(frame, rng)
    cut = int(rng.integers(len(frame)))
    return pyarrow.concat_tables([table.slice(0, cut), table.slice(cut)])


def _values(frame: pd.DataFrame) -> np.ndarray:
    return frame.to_numpy(np.float64)


def _memory_mapped(values: np.ndarray) -> np.ndarray:
    with tempfile.TemporaryFile() as file:
        np.save(file, values)
        file.seek(0)
        mapped = np.memmap(file, values.dtype, "c", shape=values.shape)
        mapped[:] = values
        return mapped


def _sparse_columns(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.astype(np.float64).astype(pd.SparseDtype(np.float64, 0.0))


def _of_text(frame: pd.DataFrame) -> pd.DataFrame:
    """Store categories by their values instead of their codes."""
    names = [name for name, dtype in frame.dtypes.items() if isinstance(dtype, pd.CategoricalDtype)]
    return frame.astype({name: frame[name].cat.categories.dtype for name in names})


def _of_dictionaries(frame: pd.DataFrame) -> pd.DataFrame:
    import pyarrow

    kinds = {}
    for name, dtype in frame.dtypes.items():
        if isinstance(dtype, pd.CategoricalDtype):
            of = pyarrow.string() if isinstance(dtype.categories[0], str) else pyarrow.int64()
            kinds[name] = pd.ArrowDtype(pyarrow.dictionary(pyarrow.int32(), of))
    return frame.astype(kinds)


def _polars_enum(frame: pd.DataFrame, rng: np.random.Generator) -> Any:
    import polars

    converted = polars.from_pandas(_of_text(frame))
    kinds = {}
    for name, dtype in frame.dtypes.items():
        if isinstance(dtype, pd.CategoricalDtype) and isinstance(dtype.categories[0], str):
            kinds[name] = polars.Enum(list(dtype.categories))
    return converted.cast(kinds)


def _arrow_batch(frame: pd.DataFrame, rng: np.random.Generator) -> Any:
    import pyarrow

    return pyarrow.RecordBatch.from_pandas(frame, preserve_index=False)


_CONVERT: dict[str, Any] = {
    "array": lambda frame, rng: _values(frame).copy(),
    "fortran": lambda frame, rng: np.asfortranarray(_values(frame)),
    "strided": lambda frame, rng: _strided(_values(frame)),
    "float32": lambda frame, rng: _values(frame).astype(np.float32),
    "float16": lambda frame, rng: _values(frame).astype(np.float16),
    "int64": lambda frame, rng: _values(frame).astype(np.int64),
    "int32": lambda frame, rng: _values(frame).astype(np.int32),
    "objects": lambda frame, rng: _values(frame).astype(object),
    "lists": lambda frame, rng: _values(frame).tolist(),
    "read-only": lambda frame, rng: _read_only(_values(frame)),
    "csr": lambda frame, rng: sp.csr_matrix(_values(frame)),
    "csc": lambda frame, rng: sp.csc_matrix(_values(frame)),
    "coo": lambda frame, rng: sp.coo_matrix(_values(frame)),
    "csr array": lambda frame, rng: sp.csr_array(_values(frame)),
    "csr float32": lambda frame, rng: sp.csr_matrix(_values(frame).astype(np.float32)),
    "csr with zeros": lambda frame, rng: _with_stored_zeros(_values(frame)),
    "big-endian": lambda frame, rng: _values(frame).astype(">f8"),
    "memory-mapped": lambda frame, rng: _memory_mapped(_values(frame)),
    "frame of objects": lambda frame, rng: frame.astype(object),
    "frame sparse": lambda frame, rng: _sparse_columns(frame),
    "frame of text": lambda frame, rng: _of_text(frame),
    "frame of arrow dictionaries": lambda frame, rng: _of_dictionaries(frame),
    "polars enum": _polars_enum,
    "arrow batch": _arrow_batch,
    "arrow text": lambda frame, rng: _arrow(_of_text(frame), rng),
    "frame": lambda frame, rng: frame.copy(),
    "frame float32": lambda frame, rng: frame.astype(np.float32),
    "frame nullable": lambda frame, rng: _nullable(frame),
    "frame of arrow": lambda frame, rng: _of_arrow(frame),
    "frame shuffled": _shuffled,
    "frame repeated labels": lambda frame, rng: frame.set_axis(np.arange(len(frame)) // 2, axis=0),
    "frame named rows": lambda frame, rng: frame.set_axis([f"row {i}" for i in range(len(frame))], axis=0),
    "polars": _polars,
    "arrow": _arrow,
    "arrow chunks": _arrow_chunks,
}


def n_rows(X: Any) -> int:
    return X.shape[0] if hasattr(X, "shape") else len(X)


def n_columns(X: Any) -> int:
    return X.shape[1] if hasattr(X, "shape") else len(X[0])


def rows(X: Any, which: Any) -> Any:
    """Select some rows, by number, from any container."""
    which = np.asarray(which, int)
    if isinstance(X, pd.DataFrame):
        return X.iloc[which]
    if isinstance(X, list):
        return [X[i] for i in which]
    if sp.issparse(X):
        return X.tocsr()[which].asformat(X.format)
    if type(X).__module__.startswith("pyarrow"):
        return X.take(which)
    return X[which]


def stacked(first: Any, second: Any) -> Any:
    """Stack the rows of two containers of one kind."""
    if isinstance(first, pd.DataFrame):
        return pd.concat([first, second], ignore_index=True)
    if isinstance(first, list):
        return [*first, *second]
    if sp.issparse(first):
        return sp.vstack([first, second]).tocsr()
    if type(first).__module__.startswith("polars"):
        import polars

        return polars.concat([first, second])
    if type(first).__module__.startswith("pyarrow"):
        import pyarrow

        return pyarrow.concat_tables([_whole(first), _whole(second)])
    return np.concatenate([first, second]).astype(first.dtype, copy=False)  # other byte orders included


def _whole(table: Any) -> Any:
    import pyarrow

    return table if isinstance(table, pyarrow.Table) else pyarrow.Table.from_batches([table])


def mixture(X: Any, which: np.ndarray) -> Any:
    """Return rows whose entries in column j come from the rows ``which[:, j]`` of X; keep the dtypes."""
    columns = range(which.shape[1])
    if isinstance(X, pd.DataFrame):
        parts = [X.iloc[:, j].iloc[which[:, j]].reset_index(drop=True) for j in columns]
        return pd.concat(parts, axis=1) if parts else pd.DataFrame(index=range(len(which)))
    if isinstance(X, list):
        return [[X[i][j] for j, i in enumerate(row)] for row in which]
    if sp.issparse(X):
        parts = [X.tocsc()[:, [j]].tocsr()[which[:, j]] for j in columns]
        return sp.hstack(parts).tocsr()
    if type(X).__module__.startswith("polars"):
        import polars

        return polars.DataFrame([X[:, j][which[:, j]] for j in columns])
    if type(X).__module__.startswith("pyarrow"):
        import pyarrow

        return pyarrow.table([X.column(j).take(which[:, j]) for j in columns], names=X.column_names)
    return X[which, np.arange(which.shape[1])]
