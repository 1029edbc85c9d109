"""From any X to numeric chunks: the one place where data is checked and converted.

:func:`read` checks what can be known of X as a whole (kind, shape, names); the :class:`Rows` it
returns convert, encode and check values one chunk of rows at a time, so that neither a sparse
matrix nor a data frame is ever held densely as a whole. float32 and float64 arrays are handed on
as they are, whatever their strides.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
import scipy.sparse as sp

from .containers import opened, refuse
from .devices import to_host
from .schema import Column, InputSchema

_FLOAT32 = np.dtype(np.float32)
_FLOAT64 = np.dtype(np.float64)

#: float32 rounds a magnitude from here on to infinity: its largest number plus half its last digit.
FLOAT32_OVERFLOW = 2.0**128 - 2.0**103

#: Values of one column in the rows start to stop, and dictionary codes if it is categorical.
_Source = Callable[[int, int], tuple[np.ndarray, np.ndarray | None]]


class Rows:
    """X as the core can take it, chunk by chunk; made by :func:`read`.

    Attributes
    ----------
    data : array, sparse matrix or data frame
        X itself, except that sequences became arrays and sparse matrices CSR.
    n_rows : int
    dtype : numpy dtype
        What the SHAP values of this X should have: float32 for float32 data, else float64.
    names : tuple of str or None
        Column names of a data frame.
    index : pandas.Index or None
        Row labels of a pandas data frame.
    row_bytes : int
        What :meth:`chunk` allocates for each row, about.
    """

    def __init__(
        self,
        data: Any,
        schema: InputSchema,
        x_dtype: str,
        *,
        names: Sequence[str] | None = None,
        one_rounding: bool = False,
    ) -> None:
        self.n_rows, n_columns = data.shape
        self.data = data
        self.names = None if names is None else tuple(names)
        self.index = None
        self.row_bytes = 0
        self._schema = schema
        self._x_dtype = np.dtype(x_dtype)
        self._package = None if isinstance(data, np.ndarray) else _package(data)
        self._sources: list[_Source] = []
        self._texts: frozenset[int] = frozenset()
        self._long: frozenset[int] = frozenset()
        self._category_numbers: dict[int, int] = {}
        self._array: Any = data if isinstance(data, np.ndarray) else None
        if self._array is not None or sp.issparse(data):
            self.dtype = _FLOAT32 if data.dtype.char == "f" else _FLOAT64
            if self._array is None:
                self.row_bytes = 8 * data.nnz // max(self.n_rows, 1)  # row numbers of the entries
            if _is_long(data.dtype) and not (one_rounding and data.dtype.kind in "iu"):
                self._long = frozenset(range(n_columns))
        else:
            frame = self._open_frame()
            names = frame.names
        if names is not None:
            self._check_names(names)
        if n_columns != schema.n_features:
            raise ValueError(f"X has {n_columns} features, but the model expects {schema.n_features}")
        if self._package is not None and schema.frame_encoder is not None:
            self._number_categories(frame)
        missing = schema.missing_value
        self._as_it_is = False
        decoded = bool(schema.encoders) or schema.derived is not None
        if self._array is not None and not decoded and missing != missing:
            self._as_it_is = self._array.dtype in (_FLOAT32, _FLOAT64) and self._array.flags.aligned
        if not self._as_it_is:  # the row, what is missing in it, and one column before its conversion
            self.row_bytes += (self._x_dtype.itemsize + 1) * schema.n_columns + 32
        if schema.derived is not None:
            self.row_bytes += schema.derived.row_bytes

    def _open_frame(self) -> _Frame:
        assert self._package is not None
        frame = _FRAMES[self._package](self.data)
        self.names = tuple(map(str, frame.names))
        self._sources, self._array = frame.sources, frame.array
        self._texts, self._long = frame.texts, frame.long
        self.index = row_labels(self.data)
        self.dtype = _FLOAT32 if frame.single else _FLOAT64
        return frame

    def _check_names(self, given: Sequence[Any]) -> None:
        names = tuple(map(str, given))
        if len(set(names)) < len(names):
            repeated = sorted({name for name in names if names.count(name) > 1})
            raise ValueError(f"X has several columns of the same name:\n{_listed(repeated)}")
        expected = self._schema.feature_names
        # Names that are no strings are positions, unless the model knows its columns by them.
        if self._schema.blank_as_underscore:
            names = tuple(name.replace(" ", "_") for name in names)
        if expected is not None and (
            any(isinstance(name, str) for name in given) or set(names) == set(expected)
        ):
            check_names(names, expected)

    def _number_categories(self, frame: _Frame) -> None:
        """Count columns of categories, and of text, which stands for categories."""
        categorical = [
            i for i, source in enumerate(frame.sources) if i in frame.texts or source(0, 0)[1] is not None
        ]
        self._category_numbers = {feature: number for number, feature in enumerate(categorical)}
        if categorical:
            self._array = None
        expected_number = self._schema.n_categorical
        if expected_number is not None and len(categorical) != expected_number:
            raise ValueError(
                f"X has {len(categorical)} categorical columns, but the model was trained with "
                f"{expected_number}: columns must have the types that they had in training"
            )

    def _is_sparse(self) -> bool:
        """Tell whether scikit-learn reads X as a sparse matrix."""
        if self._array is not None:
            return False
        if self._package != "pandas":
            return bool(sp.issparse(self.data))
        return all(type(dtype).__name__ == "SparseDtype" for dtype in self.data.dtypes)

    def name(self, feature: int) -> str:
        """The name of a column, or its number, for an error message."""
        names = self.names or self._schema.feature_names
        return names[feature] if names else str(feature)

    def chunk(self, start: int, stop: int) -> np.ndarray:
        """Encoded and checked rows ``start`` to ``stop - 1``.

        Returns
        -------
        ndarray of float32 or float64, shape (stop - start, n_columns)
            NaN is missing; derived columns stand last. A view of X where X can be taken as it is.

        Raises
        ------
        ValueError, TypeError
            A value, named by row and column, is none that the model's library takes.
        """
        if self._as_it_is:
            block = self._array[start:stop]
        else:
            with np.errstate(over="ignore"):  # to infinity, which the check below judges
                block = self._convert(start, stop)
        self._check(block, start)
        return block

    def _convert(self, start: int, stop: int) -> np.ndarray:
        schema = self._schema
        block = np.empty((stop - start, schema.n_columns), self._x_dtype)
        encoded: dict[int, Column] = {}
        if sp.issparse(self.data):
            self._fill_from_sparse(block, start, stop, encoded)
        elif self._array is not None and self._array.dtype.kind in "fiub" and not schema.encoders:
            array = self._array[start:stop]
            if self._long:
                self._require_one_rounding(array)
            as_it_is = array.dtype.char in "fd" and array.dtype.isnative
            if schema.array_dtype is not None and not as_it_is and not self._sources:
                array = array.astype(schema.array_dtype)
            block[:, : schema.n_features] = array
        else:
            self._fill_by_column(block, start, stop, encoded)
            if schema.object_dtype is not None and self._package is None:
                block[:, : schema.n_features] = block[:, : schema.n_features].astype(schema.object_dtype)
        missing = schema.missing_value
        if missing == missing:  # encoders have judged their columns themselves
            is_missing = block == self._x_dtype.type(missing)
            is_missing[:, list(schema.encoders)] = False
            block[is_missing] = np.nan
        if schema.derived is not None:
            schema.derived.fill(block, encoded)
        return block

    def _fill_from_sparse(self, block: np.ndarray, start: int, stop: int, encoded: dict[int, Column]) -> None:
        """Columns of X; ``encoded`` takes those that are needed for derived ones."""
        csr, schema = self.data, self._schema
        block[...] = np.nan if schema.sparse_zero_missing else 0.0
        stored = slice(csr.indptr[start], csr.indptr[stop])
        rows = np.repeat(np.arange(stop - start), np.diff(csr.indptr[start : stop + 1]))
        if self._long:
            self._require_one_rounding(csr.data[stored])
        block[rows, csr.indices[stored]] = csr.data[stored]
        for feature, encoder in schema.encoders.items():
            values = block[:, feature].copy()
            if not schema.sparse_zero_missing:  # integers stay integers, of any size
                values = csr[start:stop, [feature]].toarray().ravel()
            column = Column(self.name(feature), values)
            block[:, feature] = encoder.encode(column)
            self._keep(feature, column, encoded)

    def _fill_by_column(self, block: np.ndarray, start: int, stop: int, encoded: dict[int, Column]) -> None:
        """The same of what is not sparse."""
        for feature in range(self._schema.n_features):
            name = self.name(feature)
            if self._sources:
                values, codes = self._part(feature, start, stop)
            else:
                values, codes = self._array[start:stop, feature], None
            column = Column(name, values, codes, self._package, feature in self._texts)
            try:
                block[:, feature] = self._encoded(feature, column, start)
            except OverflowError as error:
                raise ValueError(f"column {name!r} holds a number that is too large: {error}") from error
            except (LookupError, AttributeError) as error:  # of an encoder that was edited, or registered
                raise ValueError(
                    f"column {name!r} cannot be encoded: {type(error).__name__}: {error}"
                ) from error
            self._keep(feature, column, encoded)

    def _keep(self, feature: int, column: Column, encoded: dict[int, Column]) -> None:
        if self._schema.derived is not None and feature in self._schema.derived.encoded:
            encoded[feature] = column

    def _encoded(self, feature: int, column: Column, start: int) -> np.ndarray:
        number = self._category_numbers.get(feature)
        encoder = self._schema.encoders.get(feature)
        if encoder is None and number is not None:
            encoder = self._schema.frame_encoder
        if encoder is None:
            values = _numbers(column.values, start, column.name)
            if feature in self._long:
                self._require_one_rounding(values, column.name)
            return values
        takes_codes = getattr(encoder, "takes_codes", None)
        if column.is_text and takes_codes is not None:
            if takes_codes:
                raise ValueError(
                    f"the model takes the codes of categories as they are, but column {column.name!r} has "
                    "none of its own: convert it to the type category of pandas, or Enum of polars, with the "
                    "categories in the order of training"
                )
            column = replace(column, codes=_text_codes(column.values))
        return encoder.encode(replace(column, category_number=number or 0))

    def _require_one_rounding(self, values: np.ndarray, name: str = "") -> None:
        """Refuse numbers whose float32 depends on whether they become float64 in between.

        Libraries convert 64-bit integers in both ways, depending on the types of all columns of a frame
        and on whether some are missing; arrays of NumPy become float32 at once.
        """
        if self._x_dtype != _FLOAT32 or not _is_wide(values):
            return
        ties = _rounds_twice(values)
        if ties.any():
            at = tuple(np.argwhere(ties)[0])
            where = f"column {name!r}" if name else "X"
            raise ValueError(
                f"{where} holds {values[at]}, which the model reads as float32: whether it is rounded up or "
                "down depends on the types of the other columns; give X as an array of float64 or float32"
            )

    def _part(self, feature: int, start: int, stop: int) -> tuple[np.ndarray, np.ndarray | None]:
        try:
            return self._sources[feature](start, stop)
        except (ValueError, TypeError, MemoryError):
            raise
        except Exception as error:  # the frame's library has its own
            raise ValueError(f"column {self.name(feature)!r} cannot be read: {error}") from error

    def _check(self, block: np.ndarray, start: int) -> None:
        schema = self._schema
        allow_nan = schema.allow_nan and (schema.allow_sparse_nan or not self._is_sparse())
        if (allow_nan and schema.allow_inf) or not block.size:
            return
        limit = np.inf if schema.allow_inf or self._x_dtype == np.float64 else FLOAT32_OVERFLOW
        # Two passes without a temporary; fmin and fmax skip NaN, minimum and maximum hand it on.
        low, high = (np.fmin, np.fmax) if allow_nan else (np.minimum, np.maximum)
        if -limit < float(low.reduce(block, axis=None)) and float(high.reduce(block, axis=None)) < limit:
            return
        bad = np.zeros(block.shape, bool) if allow_nan else np.isnan(block)
        if not schema.allow_inf:
            bad |= np.isinf(block) if block.dtype == _FLOAT32 else np.abs(block) >= limit
        if bad.any():
            row, feature = np.argwhere(bad)[0]
            is_nan = np.isnan(block[row, feature])
            what = "NaN" if is_nan else f"infinity or a value too large for {self._x_dtype}"
            where = " in a sparse matrix" if is_nan and schema.allow_nan else ""
            raise ValueError(
                f"Input X contains {what}, which the model does not accept{where}: "
                f"row {start + row}, column {self.name(feature)}"
            )


def read(X: Any, schema: InputSchema, x_dtype: str) -> Rows:
    """Check the kind, the shape and the names of X.

    Parameters
    ----------
    X : array-like, sparse matrix or data frame of shape (n_rows, n_features)
        NumPy arrays of any real dtype and order, objects that are numbers, nested sequences,
        SciPy sparse matrices and arrays, data frames of pandas and polars, tables of PyArrow; DMatrix
        of XGBoost, Dataset of LightGBM and Pool of CatBoost where they hold all numbers.
    schema : InputSchema
    x_dtype : {"float32", "float64"}
        Precision in which the model's library reads X.

    Returns
    -------
    Rows

    Raises
    ------
    ValueError
        X is not two-dimensional, is complex, holds text where the model expects numbers, or its
        number of columns or their names are not the model's.
    TypeError
        X holds dates or time spans, is masked, is no table at all, or is a library's own container whose
        numbers cannot be had.
    """
    container = opened(X)
    names = None
    if container is not None:
        X, names = container.data, container.names
    if container is not None and container.missing_apart:
        if not schema.sparse_zero_missing or schema.encoders:
            raise TypeError(
                "X is an xgboost.DMatrix, but the model is none of XGBoost, or has categories: pass the "
                "array or data frame that it was made of"
            )
        schema = replace(schema, missing_value=np.nan)
    is_array = isinstance(X, np.ndarray)
    X = table(X)
    if isinstance(X, np.ndarray):
        _require_real(X.dtype.kind, "X", text=bool(schema.encoders))
    elif sp.issparse(X):
        _require_real(X.dtype.kind, "X")
    return Rows(X, schema, x_dtype, names=names, one_rounding=is_array)


def select(data: Any, rows: Any, columns: np.ndarray | None = None) -> Any:
    """Rows (a slice or numbers), and columns by number, of any X; of a sequence only rows by number."""
    package = _package(data)
    if row_labels(data) is not None:
        return data.iloc[rows] if columns is None else data.iloc[rows, columns]
    if hasattr(data, "iloc"):  # a series, whose own labels are no positions
        return data.iloc[rows]
    if package == "polars":
        part = data[np.arange(data.height)[rows]]
        return part if columns is None else part[:, columns.tolist()]
    if package == "pyarrow":
        part = data.take(np.arange(data.num_rows)[rows])
        return part if columns is None else part.select(columns.tolist())
    if isinstance(data, (list, tuple)):
        return [data[row] for row in rows]
    if sp.issparse(data):
        data = data.tocsr()
    return data[rows] if columns is None else data[rows][:, columns]


def n_rows_of(data: Any) -> int:
    """Rows of any X."""
    return data.shape[0] if hasattr(data, "shape") else len(data)


def names_of(data: Any) -> list[str] | None:
    """Names of the columns of a data frame, else None."""
    package = _package(data)
    if package is None:
        return None
    return [str(name) for name in (data.column_names if package == "pyarrow" else data.columns)]


def to_array(data: Any) -> np.ndarray:
    """Anything that is ``Rows.data`` as one dense array, of objects where columns are no numbers."""
    if sp.issparse(data):
        return data.toarray()
    if _package(data) == "pyarrow":
        data = data.to_pandas()
    return data.to_numpy() if _package(data) else to_host(data)


def row_labels(X: Any) -> Any:
    """The index of a pandas data frame or series, else None."""
    pandas = sys.modules.get("pandas")
    return X.index if pandas is not None and isinstance(X, (pandas.DataFrame, pandas.Series)) else None


def _package(X: Any) -> str | None:
    """Name of the package whose data frame X is, without importing any."""
    for name, classes in _FRAME_CLASSES.items():
        package = sys.modules.get(name)
        if package is not None and isinstance(X, tuple(getattr(package, cls) for cls in classes)):
            return name
    return None


def table(X: Any) -> Any:
    """X as a two-dimensional array, a canonical CSR matrix, or the known data frame that it is.

    Raises ``ValueError`` or ``TypeError`` as :func:`read` does.
    """
    if type(X) is not np.ndarray:
        package = _package(X)
        if package == "pyarrow" and not hasattr(X, "to_batches"):
            return sys.modules["pyarrow"].Table.from_batches([X])
        if package is not None:
            return X
        if sp.issparse(X):
            return _csr(X)
        refuse(X)
        if isinstance(X, np.ma.MaskedArray):
            raise TypeError("X is a masked array: fill it first, with NaN where values are missing")
        if hasattr(X, "collect") or hasattr(X, "columns"):  # its names and types would be lost in an array
            raise TypeError(
                f"X is a {type(X).__module__}.{type(X).__qualname__}: convert it to a data "
                "frame of pandas or polars, a PyArrow table or an array first"
            )
        try:
            X = np.asarray(X)
        except ValueError as error:
            raise ValueError(f"X is no table; its rows may differ in length: {error}") from error
    if X.ndim != 2:
        got = "scalar" if X.ndim == 0 else f"{X.ndim}D"
        raise ValueError(
            f"Expected 2D array, got {got} array instead. Reshape your data using "
            "array.reshape(1, -1) for a single row, array.reshape(-1, 1) for a single feature"
        )
    return X


def _csr(X: Any) -> Any:
    if X.ndim != 2:
        raise ValueError(f"Expected 2D array, got {X.ndim}D sparse array instead. Reshape your data")
    if not _is_whole(X):
        raise ValueError(f"X is a sparse {X.format} matrix whose indices contradict its shape or each other")
    csr = X.tocsr()
    if not csr.has_canonical_format:
        csr = csr.copy()
        csr.sum_duplicates()
    return csr


def _is_whole(X: Any) -> bool:
    """Whether the indices of a sparse matrix lie inside it: SciPy looks at none that are set later."""
    if X.format == "coo":
        parts = list(zip((X.row, X.col), X.shape))
        return all(len(part) == len(X.data) and _is_inside(part, n) for part, n in parts)
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
    """Whether these are whole numbers from 0 to n - 1, in one dimension."""
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        return False
    return not len(numbers) or bool(numbers.min() >= 0 and numbers.max() < n)


def check_names(names: Sequence[str], expected: Sequence[str]) -> None:
    """Refuse, with ``ValueError``, names that are not those of the training data, in their order."""
    if tuple(names) == tuple(expected):
        return
    # The sentences of scikit-learn, so that users meet one wording.
    message = "The feature names should match those that were passed during fit.\n"
    unexpected = sorted(set(names) - set(expected))
    missing = sorted(set(expected) - set(names))
    if unexpected:
        message += f"Feature names unseen at fit time:\n{_listed(unexpected)}\n"
    if missing:
        message += f"Feature names seen at fit time, yet now missing:\n{_listed(missing)}\n"
    if not unexpected and not missing:
        message += "Feature names must be in the same order as they were in fit.\n"
    raise ValueError(message)


def _listed(names: Sequence[str]) -> str:
    return "\n".join([f"- {name}" for name in names[:5]] + (["- ..."] if len(names) > 5 else []))


def _require_real(kind: str, where: str, *, text: bool = False) -> None:
    """Refuse a dtype that holds no real numbers; objects are judged one by one later."""
    if kind in "fiubO" or (kind in "UT" and text):
        return
    if kind == "c":
        raise ValueError(f"Complex data not supported: {where}")
    if kind in "mM":
        raise TypeError(f"{where} holds dates or time spans; convert them to numbers as for training")
    if kind in "UST":
        raise ValueError(
            f"could not convert string to float: {where} holds text, where the model expects numbers"
        )
    raise TypeError(f"{where} holds values that are no numbers")


def _numbers(values: np.ndarray, start: int, name: str) -> np.ndarray:
    """A column without encoder as numbers; None and pandas.NA become NaN."""
    _require_real(values.dtype.kind, f"column {name}")
    if values.dtype.kind != "O":
        return values
    types = set(map(type, values))
    for cls in types:
        if issubclass(cls, (Real, np.bool_, Decimal)) or cls is type(None) or cls.__name__ == "NAType":
            continue
        row = next(i for i, value in enumerate(values) if type(value) is cls)
        where = f"row {start + row} of column {name}"
        if issubclass(cls, (str, bytes)):
            raise ValueError(
                f"could not convert string to float: {where} is {values[row]!r}, "
                "where the model expects numbers"
            )
        raise TypeError(f"{where} holds a {cls.__name__}, where the model expects numbers")
    if any(cls.__name__ == "NAType" for cls in types):
        values = np.array([None if type(value).__name__ == "NAType" else value for value in values], object)
    return values.astype(np.float64)


@dataclass(frozen=True)
class _Frame:
    """The columns of a data frame.

    Attributes
    ----------
    names : sequence
    single : bool
        Whether all columns are float32.
    sources : list of callable
    texts, long : frozenset of int
        Columns of text, and of 64-bit integers or of floats of more bits.
    array : ndarray or None
        All columns in one, if they lie in one.
    """

    names: Sequence[Any]
    single: bool
    sources: list[_Source]
    texts: frozenset[int]
    long: frozenset[int]
    array: np.ndarray | None = None


def _positions(columns: Sequence[Any], condition: Callable[[Any], bool]) -> frozenset[int]:
    return frozenset(i for i, column in enumerate(columns) if condition(column))


def _is_long(dtype: Any) -> bool:
    """Return whether float64 cannot hold all numbers of a type of NumPy or pandas."""
    size = getattr(dtype, "itemsize", 8)
    return (dtype.kind in "iu" and size == 8) or (dtype.kind == "f" and size > 8)


def _is_wide(values: np.ndarray) -> bool:
    """Return whether numbers may need more than the 53 bits of float64."""
    if values.dtype.kind == "f" and values.dtype != _FLOAT64:
        return True
    low, high = (reduce(values, axis=None, initial=0) for reduce in (np.fmin.reduce, np.fmax.reduce))
    return bool(low < -(2**53) or high > 2**53)


def _rounds_twice(values: np.ndarray) -> np.ndarray:
    """Return where float32 differs if numbers become float64 first, or may if they did so already."""
    double = values.astype(np.float64)
    if values.dtype != _FLOAT64:
        return (values.astype(np.float32) != double.astype(np.float32)) & ~np.isnan(double)
    # These were integers: one beyond 2^53 may have been rounded to a number halfway between two of float32.
    return (np.abs(double) > 2.0**53) & (double.view(np.int64) & (2**29 - 1) == 2**28)


def _text_codes(values: np.ndarray) -> np.ndarray:
    """Number texts in the order in which they appear; -1 is missing."""
    numbers: dict[str, int] = {}
    codes = (numbers.setdefault(v, len(numbers)) if isinstance(v, str) else -1 for v in values.tolist())
    return np.fromiter(codes, np.int64, len(values))


def _pandas_frame(frame: Any) -> _Frame:
    columns = [series for _, series in frame.items()]
    for series in columns:
        if series.dtype.type is not str:
            _require_real(series.dtype.kind, f"column {series.name}")
    block = None
    if columns and all(isinstance(series.dtype, np.dtype) for series in columns):
        # Columns that are views of one array lie in one block, which to_numpy then does not copy.
        views = [series.to_numpy() for series in columns]
        if len({(id(view.base), view.dtype) for view in views}) == 1 and views[0].base is not None:
            block = frame.to_numpy()
    single = all(s.dtype.kind == "f" and getattr(s.dtype, "itemsize", 8) == 4 for s in columns)
    sources = [_pandas_source(series) for series in columns]
    long = _positions(columns, lambda series: _is_long(series.dtype))
    return _Frame(frame.columns, single, sources, _positions(columns, _is_pandas_text), long, block)


def _is_pandas_text(series: Any) -> bool:
    if _is_arrow_dictionary(series.dtype):
        return _is_arrow_text(series.dtype.pyarrow_dtype.value_type)
    if series.dtype != object:
        return series.dtype.type is str
    return isinstance(next((value for value in series.array if not _is_missing(value)), None), str)


def _is_missing(value: Any) -> bool:
    return value is None or type(value).__name__ == "NAType" or (isinstance(value, float) and value != value)


def _pandas_source(series: Any) -> _Source:
    dtype, array = series.dtype, series.array
    if isinstance(dtype, np.dtype):
        values = series.to_numpy()
        return lambda start, stop: (values[start:stop], None)
    if type(dtype).__name__ == "CategoricalDtype":
        return lambda start, stop: (np.asarray(array[start:stop]), array.codes[start:stop].astype(np.int64))
    if _is_arrow_dictionary(dtype):  # whose codes no library takes
        column = array.__arrow_array__()
        return _arrow_source(column.cast(column.type.value_type))
    if dtype.kind not in "fiub":
        return lambda start, stop: (np.asarray(array[start:stop], dtype=object), None)

    def numbers(start: int, stop: int) -> tuple[np.ndarray, None]:
        """Return nullable, sparse or Arrow-backed numbers: integers stay integers if none is missing."""
        part = array[start:stop]
        if dtype.kind in "iu" and not np.asarray(part.isna()).any():
            return part.to_numpy(dtype=np.dtype(f"{dtype.kind}8")), None
        return part.to_numpy(dtype=np.float64, na_value=np.nan), None

    return numbers


def _is_arrow_dictionary(dtype: Any) -> bool:
    return type(dtype).__name__ == "ArrowDtype" and str(dtype).startswith("dictionary")


def _polars_frame(frame: Any) -> _Frame:
    columns = frame.get_columns()
    for series in columns:
        if series.dtype.is_temporal():
            _require_real("M", f"column {series.name}")
    single = all(str(series.dtype) == "Float32" for series in columns)
    polars = sys.modules["polars"]
    sources = [_polars_source(series) for series in columns]
    # The codes of a Categorical depend on what else the process has read.
    texts = _positions(columns, lambda series: series.dtype in (polars.String, polars.Categorical))
    long = _positions(columns, lambda series: series.dtype in (polars.Int64, polars.UInt64))
    return _Frame(frame.columns, single, sources, texts, long)


def _polars_source(series: Any) -> _Source:
    polars = sys.modules["polars"]
    if series.dtype == polars.Categorical:
        return lambda start, stop: (
            np.array(series.slice(start, stop - start).cast(polars.String).to_list(), object),
            None,
        )
    if series.dtype != polars.Enum:
        return lambda start, stop: (series.slice(start, stop - start).to_numpy(), None)

    def categorical(start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        part = series.slice(start, stop - start)
        codes = part.to_physical().cast(polars.Int64).fill_null(-1).to_numpy()
        return np.array(part.cast(polars.String).to_list(), object), codes

    return categorical


def _arrow_frame(table: Any) -> _Frame:
    types = sys.modules["pyarrow"].types
    for name, column in zip(table.column_names, table.columns, strict=True):
        if types.is_temporal(column.type):
            _require_real("M", f"column {name}")
    single = all(types.is_float32(column.type) for column in table.columns)
    texts = _positions(table.columns, lambda column: _is_arrow_text(column.type))
    long = _positions(table.columns, lambda c: types.is_int64(c.type) or types.is_uint64(c.type))
    sources = [_arrow_source(column) for column in table.columns]
    return _Frame(table.column_names, single, sources, texts, long)


def _is_arrow_text(kind: Any) -> bool:
    return str(kind) in ("string", "large_string", "string_view")


def _arrow_source(column: Any) -> _Source:
    arrow = sys.modules["pyarrow"]
    if not arrow.types.is_dictionary(column.type):
        return lambda start, stop: (column.slice(start, stop - start).to_numpy(zero_copy_only=False), None)
    if isinstance(column, arrow.ChunkedArray):
        if column.num_chunks > 1 and any(chunk.dictionary.null_count for chunk in column.chunks):
            column = column.cast(column.type.value_type).dictionary_encode()  # those are not unified
        column = column.unify_dictionaries().combine_chunks()

    def categorical(start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        part = column.slice(start, stop - start)
        codes = part.indices.cast(arrow.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
        return part.dictionary_decode().to_numpy(zero_copy_only=False), codes

    return categorical


_FRAME_CLASSES = {"pandas": ("DataFrame",), "polars": ("DataFrame",), "pyarrow": ("Table", "RecordBatch")}
_FRAMES: dict[str, Callable[[Any], _Frame]] = {
    "pandas": _pandas_frame,
    "polars": _polars_frame,
    "pyarrow": _arrow_frame,
}
