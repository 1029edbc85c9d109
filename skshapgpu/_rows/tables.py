"""Tables of any library as X: checks of whole tables, and access to rows, columns, names and labels."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from .arrow import table_of_stream
from .containers import refuse, rows_of_container
from .gpu_arrays import copied_to_host, on_gpu, to_host


def select(data: Any, rows: Any, columns: np.ndarray | None = None) -> Any:
    """Select rows (slice or positions) and columns (positions) of any X. Of a sequence, select only rows."""
    package = package_of(data)
    if row_labels(data) is not None:
        return data.iloc[rows] if columns is None else data.iloc[rows, columns]
    if package is None and hasattr(data, "iloc"):  # a series, whose own labels are not positions
        return data.iloc[rows]
    if package == "polars":
        selection = data[np.arange(data.height)[rows]]
        return selection if columns is None else selection[:, columns.tolist()]
    if package == "cudf":
        return data.iloc[rows] if columns is None else data.iloc[rows, columns.tolist()]
    if package == "pyarrow":
        selection = data.take(np.arange(data.num_rows)[rows])
        return selection if columns is None else selection.select(columns.tolist())
    if isinstance(data, (list, tuple)):
        return [data[row] for row in rows]
    if sp.issparse(data):
        data = data.tocsr()
    return data[rows] if columns is None else data[rows][:, columns]


def n_rows_of(data: Any) -> int:
    """Return the number of rows of any X."""
    return data.shape[0] if hasattr(data, "shape") else len(data)


def names_of(data: Any) -> list[str] | None:
    """Return the names of the columns of a data frame; None for any other X."""
    package = package_of(data)
    if package is None:
        return None
    return [str(name) for name in (data.column_names if package == "pyarrow" else data.columns)]


def to_array(data: Any) -> np.ndarray:
    """Return any ``HostRows.data`` as a dense array, which holds objects if some columns are not numbers."""
    if sp.issparse(data):
        return data.toarray()
    data = data.to_pandas() if package_of(data) == "pyarrow" else copied_to_host(data)
    return data.to_numpy() if package_of(data) else to_host(data)


def row_labels(X: Any) -> Any:
    """Return the index of a pandas data frame or series; None for any other X."""
    pandas = sys.modules.get("pandas")
    return X.index if pandas is not None and isinstance(X, (pandas.DataFrame, pandas.Series)) else None


def require_same_rows(
    series: Any,
    index: Any,
    name: str,
    rows_name: str = "the explanation",
    index_name: str = "explanation.row_labels",
) -> None:
    """Raise ``ValueError`` for a pandas series with other row labels than ``index``, or in another order.

    Any other type than a series passes. The message calls the series ``name``, the rows ``rows_name``, and
    their index ``index_name``.
    """
    labels = row_labels(series)
    if labels is not None and index is not None and not (len(labels) == len(index) and labels.equals(index)):
        raise ValueError(
            f"{name}: the index differs from that of {rows_name}, or has another order: select with "
            f".loc[{index_name}], or pass a NumPy array"
        )


def package_of(X: Any) -> str | None:
    """Return the package whose data frame X is, or None if it is none, without importing any package."""
    if isinstance(X, np.ndarray):  # small calls need not look through the packages
        return None
    for name, classes in _FRAME_CLASSES.items():
        package = sys.modules.get(name)
        if package is not None and isinstance(X, tuple(getattr(package, cls) for cls in classes)):
            return name
    return None


def is_stream(X: Any) -> bool:
    """Return whether X is a table that only offers its rows as a stream of Arrow.

    Such are relations of DuckDB, tables of Ibis and readers of record batches of PyArrow. Series
    and the data frames of :data:`_FRAME_CLASSES` may export streams, too, but are read by their own methods.
    """
    if type(X) is np.ndarray or not hasattr(type(X), "__arrow_c_stream__"):
        return False
    return type(X).__name__ != "Series" and package_of(X) is None


def collected(X: Any) -> Any:
    """Return the rows of a stream as a table of PyArrow, and any other X as it is.

    Functions that read X more than once call this function first, because a stream may offer its rows only
    once. Raise errors as :func:`.arrow.stream_reader` does.
    """
    return table_of_stream(X) if is_stream(X) else X


class HostTable(NamedTuple):
    """X from the host as one table."""

    data: Any
    package: str | None  # "pandas", "polars" or "pyarrow", the library of a data frame
    names: Sequence[str] | None  # names of the columns that a container stores separately from its data
    row_labels: Any
    absent_is_missing: bool  # as for :class:`ContainerRows`
    was_array: bool  # whether X, or the content of a container, is an array of NumPy


def open_table(X: Any) -> HostTable:
    """Return X, or the content of a container, as a table.

    Raises ``ValueError`` or ``TypeError`` as :func:`.inputs.read` does.
    """
    if type(X) is np.ndarray:
        return HostTable(table(X), None, None, None, False, True)
    container, names, absent_is_missing = rows_of_container(X), None, False
    if container is not None:
        X, names, absent_is_missing = container.data, container.names, container.absent_is_missing
    was_array, data = isinstance(X, np.ndarray), table(X)
    return HostTable(data, package_of(data), names, row_labels(data), absent_is_missing, was_array)


def table(X: Any) -> Any:
    """Return X from the host as a two-dimensional array or CSR matrix. A data frame is returned as it is.

    Raises ``ValueError`` or ``TypeError`` as :func:`.inputs.read` does.
    """
    if type(X) is not np.ndarray:
        if on_gpu(X):
            raise TypeError("X is on a GPU, which this function does not support: copy it to the host")
        X = collected(X)
        package = package_of(X)
        if package == "pyarrow" and not hasattr(X, "to_batches"):
            return sys.modules["pyarrow"].Table.from_batches([X])
        if package is not None:
            return X
        if sp.issparse(X):
            return _csr(X)
        refuse(X)
        _refuse_one_row(X)
        if isinstance(X, np.ma.MaskedArray):
            raise TypeError("X is a masked array: fill it first, with NaN where values are missing")
        if hasattr(X, "collect") or hasattr(X, "columns"):  # an array would lose its names and types
            raise TypeError(
                f"X is a {type(X).__module__}.{type(X).__qualname__}: convert it to a data "
                "frame of pandas or polars, a PyArrow table or an array first"
            )
        try:
            array = np.asarray(X)
            if array.dtype.kind == "U" and isinstance(X, (list, tuple)):
                array = np.asarray(X, object)  # else, numbers beside strings would become strings
            X = array
        except ValueError as error:
            raise ValueError(f"X is not a table; its rows may differ in length: {error}") from error
    if X.ndim != 2:
        got = "scalar" if X.ndim == 0 else f"{X.ndim}D"
        raise ValueError(
            f"Expected 2D array, got {got} array instead. Reshape your data using "
            "array.reshape(1, -1) for a single row, array.reshape(-1, 1) for a single feature"
        )
    return X


def _refuse_one_row(X: Any) -> None:
    """Raise ``ValueError``, which says what to pass, if X is a row with names: a mapping or a series."""
    if isinstance(X, Mapping):
        raise ValueError("X is a mapping: pass a data frame, of one row by pd.DataFrame([row])")
    if type(X).__name__ == "Series":
        package = type(X).__module__.partition(".")[0]
        raise ValueError(
            f"X is a series of {package}, which may be a row or a column: pass a data frame, of one row by "
            "frame.iloc[[i]] or frame.loc[[label]] in pandas and frame[i] in polars"
        )


def _csr(X: Any) -> Any:
    if X.ndim != 2:
        raise ValueError(f"Expected 2D array, got {X.ndim}D sparse array instead. Reshape your data")
    if not _has_valid_indices(X):
        raise ValueError(f"X is a sparse {X.format} matrix whose indices contradict its shape or each other")
    csr = X.tocsr()
    if not csr.has_canonical_format:
        csr = csr.copy()
        csr.sum_duplicates()
    return csr


def _has_valid_indices(X: Any) -> bool:
    """Return whether the indices of a sparse matrix are valid. SciPy checks them only in the constructor."""
    if X.format == "coo":
        axes = list(zip((X.row, X.col), X.shape))
        return all(len(coordinates) == len(X.data) and _is_inside(coordinates, n) for coordinates, n in axes)
    if X.format not in ("csr", "csc", "bsr"):
        return True
    block = X.blocksize if X.format == "bsr" else ()
    rows, columns = (n // size for n, size in zip(X.shape, block or (1, 1)))
    major, minor = (columns, rows) if X.format == "csc" else (rows, columns)
    starts, indices, data = X.indptr, X.indices, X.data
    return (
        data.ndim == 1 + len(block)
        and data.shape[1:] == block
        and starts.shape == (major + 1,)
        and _is_inside(starts, min(len(indices), len(data)) + 1)
        and starts[0] == 0
        and bool((starts[1:] >= starts[:-1]).all())
        and _is_inside(indices, minor)
    )


def _is_inside(numbers: np.ndarray, n: int) -> bool:
    """Return whether numbers are integers from 0 to n - 1 in one dimension."""
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        return False
    return not len(numbers) or bool(numbers.min() >= 0 and numbers.max() < n)


def check_names(names: Sequence[str], expected: Sequence[str]) -> None:
    """Raise ``ValueError`` unless the names are the names in training, in the same order."""
    if tuple(names) == tuple(expected):
        return
    # The wording of scikit-learn, so that users see the same message everywhere.
    message = "The feature names should match those that were passed during fit.\n"
    unexpected = sorted(set(names) - set(expected))
    missing = sorted(set(expected) - set(names))
    if unexpected:
        message += f"Feature names unseen at fit time:\n{listed(unexpected)}\n"
    if missing:
        message += f"Feature names seen at fit time, yet now missing:\n{listed(missing)}\n"
    if not unexpected and not missing:
        message += "Feature names must be in the same order as they were in fit.\n"
        pairs = enumerate(zip(names, expected))
        column, name, expected_name = next((i, *pair) for i, pair in pairs if pair[0] != pair[1])
        message += f"Column {column} is {name!r}, but in fit it was {expected_name!r}.\n"
    raise ValueError(message)


def check_known_names(names: Sequence[str], known_names: Mapping[int, str]) -> None:
    """Raise ``ValueError`` unless the columns have the names that are known from training."""
    for column, name in known_names.items():
        if column < len(names) and names[column] != name:
            raise ValueError(
                f"column {column} of X is {names[column]!r}, but the model knows it as {name!r}: columns "
                "must have the names and the order that they had in training"
            )


def listed(names: Sequence[str]) -> str:
    return "\n".join([f"- {name}" for name in names[:5]] + (["- ..."] if len(names) > 5 else []))


_FRAME_CLASSES = {
    "pandas": ("DataFrame",),
    "polars": ("DataFrame",),
    "pyarrow": ("Table", "RecordBatch"),
    "cudf": ("DataFrame",),  # on a GPU
}
