"""Conversion of any X to numbers: the only place that checks and converts data.

:class:`Reader` reads X for one model, from the host or from the memory of a GPU (``gpu_columns.py``). The
result has the interface of ``rows.py`` in both cases. For X on the host, :func:`read` checks the kind, the
shape and the names of X. The :class:`HostRows` that it returns convert, encode and check values one batch of
rows at a time, so a dense copy of an entire sparse matrix or data frame is never made. float32 and float64
arrays are passed on as they are, whatever their strides.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_array, get_tags

from .. import _core
from .._common.devices import Devices, load_cuda
from .._common.lazy import computed_once
from ..adapters.ensemble import tested_columns
from ..adapters.schema import AdaptedModel, Column, InputSchema, category_codes
from . import gpu_columns
from .column_rules import ColumnRules, NameRules, check_number, warn_of_names
from .containers import is_container
from .frames import OPENERS, Frame, SeenCategories
from .gpu_arrays import GpuArray, NumberRules
from .in_place import any_may_write
from .origins import Origins, origins_of, with_data
from .pipelines import Prepared, names_behind, prepare, prepare_on_gpu, takes_arrays, unique
from .real_numbers import is_long, require_real
from .tables import HostTable, collected, names_of, open_table, row_labels, select

_FLOAT32 = np.dtype(np.float32)
_FLOAT64 = np.dtype(np.float64)

#: Smallest magnitude that float32 rounds to infinity: its largest number plus half a unit in the last place.
FLOAT32_OVERFLOW = 2.0**128 - 2.0**103


class Seen(NamedTuple):
    """Names and categories that earlier calls have read: calls for one row after another have the same."""

    names: NameRules
    categories: SeenCategories


class Reader:
    """Reader of X for one model, after the leading steps of a pipeline, which transform X first.

    ``schema`` describes the columns that the model expects, after the steps.
    """

    def __init__(self, steps: Sequence[Any], adapted: AdaptedModel) -> None:
        self.steps = steps
        self._fixed_columns: tuple[str, ...] = ()
        self._columns_of_data: tuple[str, ...] = ()
        self.schema, self._x_dtype = adapted.schema, adapted.ensemble.x_dtype
        self._tested = tested_columns(adapted.ensemble)

    @computed_once
    def _seen(self) -> Seen:
        """Names and categories of earlier calls, which are not pickled."""
        return Seen(NameRules(self.schema), SeenCategories())

    @computed_once
    def _read_arrays(self) -> dict[tuple[np.dtype, int, bool], HostRows]:
        """Rows of earlier arrays by what decides how an array is read, which are not pickled."""
        return {}

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_seen", "_read_arrays")}

    def read_on_host(self, X: Any, argument: str = "X") -> HostRows:
        """Read X from the host. Its values are checked later, one batch at a time, when they are needed.

        ``argument`` is the name of X in messages.
        """
        if not self.steps:
            return self._read_array(X, argument) if type(X) is np.ndarray else self._read(X, argument)
        X = collected(X)
        if self._fixed_columns:
            self.require_fixed_columns(names_of(X.original if isinstance(X, Prepared) else X), argument)
        prepared = X if isinstance(X, Prepared) else prepare(self.steps, X, self._steps_may_write)
        rows = self._read(prepared.transformed, argument)
        labels = row_labels(prepared.original)
        if labels is not None and len(labels) == rows.n_rows:
            rows.row_labels = labels
        return rows

    def _read_array(self, X: np.ndarray, argument: str) -> HostRows:
        """Read an array; the rules for its type and width take longer than a small call, and are kept."""
        schema = self.schema
        warns = schema.warns_as is not None and schema.feature_names is not None
        # Text has a type for each length, or a type without a hash.
        if X.ndim != 2 or schema.inputs or warns or X.dtype.kind in "SUT":
            return self._read(X, argument)
        key = X.dtype, X.shape[1], X.flags.aligned
        earlier = self._read_arrays.get(key)
        if earlier is not None:
            return earlier.rows_of_array(X)
        rows = self._read(X, argument)
        self._read_arrays[key] = rows.rows_of_array(np.empty((0, X.shape[1]), X.dtype))  # X may be large
        return rows

    def _read(self, X: Any, argument: str) -> HostRows:
        rows = read(X, self.schema, self._x_dtype, self._tested, self._seen)
        if self._columns_of_data:
            self._require_columns_of_data(rows.names)
        for own in self.schema.inputs:
            rows.add(read(prepare(own.steps, X).transformed, own.schema, own.x_dtype))
        if self.schema.warns_as is not None and not is_container(X):
            warn_of_names(
                self.schema, has_names=rows.has_names, is_frame=rows.package is not None, argument=argument
            )
        return rows

    @property
    def expected_columns(self) -> tuple[Sequence[str] | None, int | None, bool]:
        """Names and number of the columns of X, as far as they are known.

        The third item says whether the names have "_" where the columns of X may have blanks.
        """
        if not self.steps:
            return self.schema.feature_names, self.schema.n_features, self.schema.blank_as_underscore
        if self.takes_strings:
            return None, 1, False
        names = getattr(self.steps[0], "feature_names_in_", None)
        names = None if names is None else tuple(map(str, names))
        return names, getattr(self.steps[0], "n_features_in_", None), False

    @cached_property
    def takes_strings(self) -> bool:
        """Whether X is a one-dimensional array of strings, as for CountVectorizer, and not a table."""
        if not self.steps:
            return False
        try:
            tags = get_tags(self.steps[0]).input_tags
        except Exception:  # a transformer of another library may raise anything, and takes tables
            return False
        return tags.string and not tags.two_d_array

    @cached_property
    def takes_arrays(self) -> bool:
        """Whether the model, or the first step, takes arrays of numbers as well as data frames."""
        return not self.steps or takes_arrays(self.steps[0])

    def without_warnings(self) -> Reader:
        """Return a reader that does not warn about names, for rows about which this reader has warned."""
        if self.schema.warns_as is None:
            return self
        view = copy(self)
        view.schema = replace(self.schema, warns_as=None)
        return view

    def read_on_gpu(self, X: Any, devices: Devices) -> GpuArray:
        """Take X on a GPU of ``devices``, which checks its numbers when it explains them."""
        load_cuda()  # raises an error before any work if GPUs cannot be used
        if self._fixed_columns:
            self.require_fixed_columns(names_of(X))
        if self._columns_of_data:
            self._require_columns_of_data(names_of(X))
        transformed = prepare_on_gpu(self.steps, X, self._steps_may_write)
        rows = gpu_columns.read(
            transformed, self.schema, self._x_dtype, self._numbers(), self.default_names, devices
        )
        return replace(rows, original=X) if self.steps else rows

    @cached_property
    def _steps_may_write(self) -> bool:
        return any_may_write(self.steps)

    def fix_columns(self) -> None:
        """Require from now on that X has its columns in the order of training, since positions name them."""
        if self.origins is not None and self.origins.named:
            self._fixed_columns = self.origins.names

    def require_fixed_columns(self, names: Sequence[str] | None, argument: str = "X") -> None:
        """Raise ``ValueError`` unless the names are in the order that :meth:`fix_columns` has fixed."""
        fixed = self._fixed_columns
        if names is None or tuple(names[: len(fixed)]) == fixed:
            return
        i = next(i for i, name in enumerate(fixed) if i >= len(names) or names[i] != name)
        label = repr(names[i]) if i < len(names) else "no column"
        raise ValueError(
            f"feature_groups has columns by position, but column {i} was {fixed[i]!r} in training, "
            f"and {argument} has {label} there: give the names of the columns, or {argument} with its "
            "columns in that order"
        )

    def read_data(self, data: Any) -> HostRows:
        """Read background rows, with whose columns those of X are compared if the model has no names."""
        rows = self.read_on_host(data, "data")
        if not self.steps and self.schema.feature_names is None and rows.names is not None:
            self._columns_of_data = rows.names
        return rows

    def _require_columns_of_data(self, names: Sequence[str] | None) -> None:
        """Raise ``ValueError`` if X has the columns of the background data in another order."""
        expected = self._columns_of_data
        if names is not None and tuple(names) != expected and set(names) == set(expected):
            column = next(i for i, name in enumerate(names) if name != expected[i])
            raise ValueError(
                f"the columns of X and of data are the same in another order: column {column} is "
                f"{names[column]!r} in X and {expected[column]!r} in data"
            )

    def _numbers(self) -> NumberRules:
        schema, x_dtype = self.schema, self._x_dtype
        limit = np.inf if x_dtype == "float64" and not schema.also_float32 else FLOAT32_OVERFLOW
        return NumberRules(
            schema.missing_value,
            schema.allow_nan,
            np.nan if schema.allow_inf else limit,
            x_dtype,
            schema.array_dtype or x_dtype,
        )

    def count(self, n_rows: int, dtype: str) -> HostRows:
        """Return a placeholder for rows on the host, without values, to estimate the costs of a call."""
        rows = read(np.empty((0, self.schema.n_features), dtype), self.schema, self._x_dtype)
        rows.n_rows = n_rows
        return rows

    def names_seen(self, input_features: Any = None) -> tuple[str, ...]:
        """Return the names of the columns that the model receives, after the steps."""
        names, n_features = input_features, self.schema.n_features
        if self.steps:
            names = names_behind(self.steps, names)
        if names is None or len(names) != n_features:
            names = self.schema.feature_names or (f"x{i}" for i in range(n_features))
        return tuple(unique([str(name) for name in names]))

    @cached_property
    def default_names(self) -> tuple[str, ...]:
        """Names of the columns that the model receives if X has no names."""
        return self.names_seen()

    @cached_property
    def origins(self) -> Origins | None:
        """Origins of the columns that the model receives, without data; None if there are no steps."""
        return origins_of(self.steps, self.schema.n_features) if self.steps else None

    def origins_of(self, X: Any) -> Origins | None:
        """Return :attr:`origins` with ``X`` as data."""
        if self.origins is None:
            return None
        return with_data(self.origins, X.original if isinstance(X, Prepared) else X)


class HostRows:
    """X from the host, converted for the core in batches. It satisfies the protocol ``rows.Rows``.

    :func:`read` creates it.

    Attributes
    ----------
    data : array, sparse matrix or data frame
        X itself, except that sequences have become arrays, and sparse matrices CSR.
    n_rows : int
    dtype : numpy dtype
        Type of the results for this X: float32 for float32 data, else float64.
    names : tuple of str or None
        Column names of a data frame.
    has_names : bool
        Whether at least one of the column names is a string and not a number.
    package : str or None
        Library of a data frame.
    row_labels : pandas.Index or None
        Row labels of a pandas data frame.
    row_bytes, packed_row_bytes : int
        Approximate bytes that :meth:`chunk` allocates for each row, without and with ``packed``.
    """

    def __init__(
        self,
        table: HostTable,
        schema: InputSchema,
        x_dtype: str,
        seen: Seen,
        tested: np.ndarray | None = None,
    ) -> None:
        data = table.data
        self.n_rows, n_columns = data.shape
        self.data = data
        self.row_labels = table.row_labels
        self.row_bytes = 0
        self._schema = schema
        self._x_dtype = np.dtype(x_dtype)
        self.package = table.package
        self._frame: Frame | None = None
        self._long_columns: frozenset[int] = frozenset()
        self._array: Any = data if isinstance(data, np.ndarray) else None
        labels: Any = table.names
        if self._array is not None or sp.issparse(data):
            self.dtype = _FLOAT32 if data.dtype.char == "f" else _FLOAT64
            if self._array is None:
                self.row_bytes = 8 * data.nnz // max(self.n_rows, 1)  # row numbers of the entries
            is_rounded_once = table.was_array and data.dtype.kind in "iu" and not schema.also_float32
            if is_long(data.dtype) and not is_rounded_once:
                self._long_columns = frozenset(range(n_columns))
        else:
            assert self.package is not None
            frame = self._frame = OPENERS[self.package](data, seen.categories)
            self._array, self._long_columns, labels = frame.array, frame.long_columns, frame.names
            self.dtype = _FLOAT32 if frame.single else _FLOAT64
        self.names: tuple[str, ...] | None = None
        self.has_names = False
        if labels is not None:
            self.names, self.has_names = seen.names.read(labels)
        check_number(schema, n_columns)
        if self._frame is not None and schema.frame_encoder is not None:
            self.rules.check_categorical()
            if frame.string_columns or frame.coded_columns:
                self._array = None
        missing = schema.missing_value
        self._as_it_is = False
        self._step_rows: list[HostRows] = []  # the result of each of the schema's ``inputs``
        decoded = bool(schema.encoders) or schema.derived is not None or bool(schema.inputs)
        if self._array is not None and not decoded and missing != missing:
            self._as_it_is = self._array.dtype in (_FLOAT32, _FLOAT64) and self._array.flags.aligned
        if not self._as_it_is:  # the row, its mask of missing values, and one column before conversion
            self.row_bytes += (self._x_dtype.itemsize + 1) * schema.n_columns + 32
        if schema.derived is not None:
            self.row_bytes += schema.derived.row_bytes
        self._tested: np.ndarray | None = None
        self.packed_row_bytes = self.row_bytes
        if tested is not None and self._array is None and sp.issparse(data) and not decoded:
            # Values and positions of all entries, and of the entries in tested columns.
            entry_bytes = 40 + 2 * self._x_dtype.itemsize
            packed = entry_bytes * data.nnz // max(self.n_rows, 1) + self._x_dtype.itemsize * len(tested)
            if packed < self.row_bytes:
                self._tested, self.packed_row_bytes = tested, packed

    def rows_of_array(self, X: np.ndarray) -> HostRows:
        """Return the rows of another array, with the dtype, the width and the alignment of this one.

        No step may have added rows to these.
        """
        rows = HostRows.__new__(HostRows)
        rows.__dict__.update(self.__dict__)
        rows.data = rows._array = X
        rows.n_rows = len(X)
        return rows

    def add(self, rows: HostRows) -> None:
        """Add the rows that steps of a member of a sum have made."""
        self._step_rows.append(rows)
        self.row_bytes += rows.row_bytes
        self.packed_row_bytes += rows.row_bytes

    @computed_once
    def rules(self) -> ColumnRules:
        """Rules for the columns, which arrays of floats do not need."""
        frame = self._frame
        sets = () if frame is None else (frame.string_columns, frame.coded_columns)
        return ColumnRules(self._schema, self._x_dtype, self.package, self.names, self._long_columns, *sets)

    @property
    def stores(self) -> Sequence[Any]:
        """Objects that hold the numbers of X: an array, a sparse matrix, or the columns of a data frame."""
        return [self.data] if self._frame is None else self._frame.stores

    def _is_sparse(self) -> bool:
        """Return whether scikit-learn reads X as a sparse matrix."""
        if self._array is not None:
            return False
        return bool(sp.issparse(self.data)) if self._frame is None else self._frame.is_sparse

    @computed_once
    def _becomes_other_array(self) -> bool:
        """Whether X is an array, other than of float32 or float64, or a frame that becomes one."""
        if self.package is None:
            return not sp.issparse(self.data) and self.data.dtype not in (_FLOAT32, _FLOAT64)
        if not self._schema.frames_are_arrays:
            return False
        data = self.data[:0]
        if self._schema.n_categorical and self._frame is not None:  # codes replace the categories
            columns = np.delete(np.arange(data.shape[1]), list(self._frame.coded_columns))
            if not len(columns):
                return True
            data = select(self.data, slice(0, 0), columns)
        array = check_array(
            data, accept_sparse=True, dtype=None, ensure_all_finite=False, ensure_min_samples=0
        )
        return array.dtype not in (_FLOAT32, _FLOAT64)

    def chunk(self, start: int, stop: int, packed: bool = False, n_threads: int = 1) -> np.ndarray:
        """Return rows ``start`` to ``stop - 1``, encoded and checked: float32 or float64, NaN means missing.

        Derived columns come last. The result is a view of X if X needs no conversion. With ``packed``, the
        result may have only the columns that trees test, in ascending order. It has if X is sparse, no column
        has to be encoded, and this takes less memory. ``n_threads`` threads check the numbers; 0: as many as
        are of use. Raise ``ValueError`` or ``TypeError`` if the model's library does not accept a value; the
        message names its row and column.
        """
        if packed and self._tested is not None:
            return self._pack(start, stop, self._tested, n_threads)
        if self._as_it_is:
            block = self._array[start:stop]
        else:
            # Overflow gives infinity, which the check below handles.
            with np.errstate(over="ignore", under="ignore"):
                block = self._convert(start, stop)
        # The columns of steps have been checked by themselves.
        checked = block[:, : self._schema.n_features] if self._schema.inputs else block
        bad = self._first_bad(checked, n_threads)
        if bad is not None:
            self._refuse(block[bad], start + bad[0], bad[1])
        return block

    def _pack(self, start: int, stop: int, tested: np.ndarray, n_threads: int) -> np.ndarray:
        """Return the tested columns of sparse rows; other columns are checked, but take no memory."""
        csr, schema = self.data, self._schema
        stored = slice(csr.indptr[start], csr.indptr[stop])
        columns, values = csr.indices[stored], csr.data[stored]
        if self._long_columns:
            self.rules.require_one_rounding(values)
        with np.errstate(over="ignore", under="ignore"):
            values = values.astype(self._x_dtype)
        missing, absent = self._x_dtype.type(schema.missing_value), 0.0
        values[values == missing] = np.nan
        if schema.sparse_zero_missing or missing == 0:
            absent = np.nan
        bad = self._first_bad(values, n_threads)
        if bad is not None:
            row = np.searchsorted(csr.indptr, csr.indptr[start] + bad[0], side="right") - 1
            self._refuse(values[bad], row, columns[bad])
        position_of_column = np.full(schema.n_features, -1, np.intp)
        position_of_column[tested] = np.arange(len(tested))
        positions = position_of_column[columns]
        tested_entries = np.flatnonzero(positions >= 0)
        rows = np.repeat(np.arange(stop - start), np.diff(csr.indptr[start : stop + 1]))
        block = np.full((stop - start, len(tested)), absent, self._x_dtype)
        block[rows[tested_entries], positions[tested_entries]] = values[tested_entries]
        return block

    def _convert(self, start: int, stop: int) -> np.ndarray:
        schema = self._schema
        block = np.empty((stop - start, schema.n_columns), self._x_dtype)
        encoded: dict[int, Column] = {}
        if not schema.reads_x:
            block[:, : schema.n_features] = 0.0
        elif sp.issparse(self.data):
            self._fill_from_sparse(block, start, stop, encoded)
        elif self._array is not None and self._array.dtype.kind in "fiub" and not schema.encoders:
            array = self._array[start:stop]
            if self._long_columns:
                self.rules.require_one_rounding(array)
            as_it_is = array.dtype.char in "fd" and array.dtype.isnative
            if schema.array_dtype is not None and not as_it_is and self._frame is None:
                array = array.astype(schema.array_dtype)
            block[:, : schema.n_features] = array
        else:
            self._fill_by_column(block, start, stop, encoded)
            if schema.object_dtype is not None and self.package is None:
                block[:, : schema.n_features] = block[:, : schema.n_features].astype(schema.object_dtype)
        if schema.reads_x and schema.exact_arrays and self._becomes_other_array:
            self.rules.require_exact(block[:, : schema.n_features], start)
        missing = schema.missing_value
        if missing == missing:  # encoders have treated missing values themselves
            is_missing = block == self._x_dtype.type(missing)
            is_missing[:, list(schema.encoders)] = False
            block[is_missing] = np.nan
        if schema.derived is not None:
            schema.derived.fill(block, encoded)
        first = schema.n_features
        for rows in self._step_rows:
            made = rows.chunk(start, stop)
            block[:, first : first + made.shape[1]] = made
            first += made.shape[1]
        return block

    def _fill_from_sparse(self, block: np.ndarray, start: int, stop: int, encoded: dict[int, Column]) -> None:
        """Fill the columns of a batch; ``encoded`` receives the columns from which others are derived."""
        csr, schema = self.data, self._schema
        block[...] = np.nan if schema.sparse_zero_missing else 0.0
        stored = slice(csr.indptr[start], csr.indptr[stop])
        rows = np.repeat(np.arange(stop - start), np.diff(csr.indptr[start : stop + 1]))
        if self._long_columns:
            self.rules.require_one_rounding(csr.data[stored])
        block[rows, csr.indices[stored]] = csr.data[stored]
        for feature, encoder in schema.encoders.items():
            values = block[:, feature].copy()
            if not schema.sparse_zero_missing:  # integers stay integers, of any size
                values = csr[start:stop, [feature]].toarray().ravel()
            column = self.rules.column(feature, values, None)
            block[:, feature] = category_codes(encoder, column)
            self._add_encoded(feature, column, encoded)

    def _fill_by_column(self, block: np.ndarray, start: int, stop: int, encoded: dict[int, Column]) -> None:
        """Fill the columns of a batch as :meth:`_fill_from_sparse` does, from X that is not sparse."""
        for feature in range(self._schema.n_features):
            if self._frame is not None:
                values, codes = self._read_column(self._frame, feature, start, stop)
            else:
                values, codes = self._array[start:stop, feature], None
            column = self.rules.column(feature, values, codes)
            self.rules.fill(block[:, feature], feature, column, start)
            self._add_encoded(feature, column, encoded)

    def _add_encoded(self, feature: int, column: Column, encoded: dict[int, Column]) -> None:
        if self._schema.derived is not None and feature in self._schema.derived.encoded:
            encoded[feature] = column

    def _read_column(
        self, frame: Frame, feature: int, start: int, stop: int
    ) -> tuple[np.ndarray, np.ndarray | None]:
        try:
            return frame.sources[feature](start, stop)
        except (ValueError, TypeError, MemoryError):
            raise
        except Exception as error:  # the library of the data frame may raise errors of its own
            raise ValueError(f"column {self.rules.name(feature)!r} cannot be read: {error}") from error

    def _first_bad(self, block: np.ndarray, n_threads: int) -> tuple[Any, ...] | None:
        """Return the position of the first value that the model's library rejects; None if there is none."""
        schema = self._schema
        allow_nan = schema.allow_nan and (schema.allow_sparse_nan or not self._is_sparse())
        if (allow_nan and schema.allow_inf) or not block.size:
            return None
        is_double = self._x_dtype == np.float64 and not schema.also_float32
        limit = np.inf if schema.allow_inf or is_double else FLOAT32_OVERFLOW
        if _core.all_below(block, limit, allow_nan, n_threads):
            return None
        bad = np.zeros(block.shape, bool) if allow_nan else np.isnan(block)
        if not schema.allow_inf:
            bad |= np.isinf(block) if block.dtype == _FLOAT32 else np.abs(block) >= limit
        return tuple(np.argwhere(bad)[0]) if bad.any() else None

    def _refuse(self, value: Any, row: int, feature: int) -> None:
        is_nan = np.isnan(value)
        dtype = "float32" if self._schema.also_float32 else self._x_dtype
        problem = "NaN" if is_nan else f"infinity or a value too large for {dtype}"
        where = " in a sparse matrix" if is_nan and self._schema.allow_nan else ""
        raise ValueError(
            f"Input X contains {problem}, which the model does not accept{where}: "
            f"row {row}, column {self.rules.name(feature)}"
        )


def read(
    X: Any,
    schema: InputSchema,
    x_dtype: str,
    tested: np.ndarray | None = None,
    seen: Seen | None = None,
) -> HostRows:
    """Check the kind, the shape and the names of X.

    X may be an array of NumPy, of any order and any real dtype, or of objects that are numbers; a nested
    sequence; a sparse matrix or array of SciPy; a data frame of pandas or polars; a table of PyArrow; another
    table that exports a stream of Arrow; or a DMatrix of XGBoost, a Dataset of LightGBM or a Pool of CatBoost
    if it holds all numbers. ``x_dtype`` is the precision in which the model's library reads X. ``tested`` are
    the columns that trees test, ascending; with None, :meth:`HostRows.chunk` always returns all columns.
    ``seen`` keeps the names and categories of a model for later calls; None: for no other call.

    Raise ``ValueError`` if X is not two-dimensional, is complex, or holds strings where the model expects
    numbers, or the number or the names of its columns are not those of the model. Raise ``TypeError`` if X
    holds dates or time spans, is masked, is not a table at all, or is a library's own container whose numbers
    are not available.
    """
    table = open_table(X)
    if table.absent_is_missing:
        if not schema.sparse_zero_missing or schema.encoders:
            raise TypeError(
                "X is an xgboost.DMatrix, but the model is not from XGBoost, or has categories: pass the "
                "array or data frame that it was made from"
            )
        schema = replace(schema, missing_value=np.nan)
    if isinstance(table.data, np.ndarray):
        require_real(table.data.dtype.kind, "X", text=bool(schema.encoders) or not schema.reads_x)
    elif sp.issparse(table.data):
        if not schema.allow_sparse:
            raise ValueError(
                "X is sparse, which predict does not take, or members of the model read in different ways: "
                "pass X.toarray()"
            )
        # Such entries have been added up in the table.
        is_compressed = sp.issparse(X) and X.format in ("csr", "csc")
        if not schema.adds_repeated_entries and is_compressed and table.data.nnz < X.nnz:
            raise ValueError(
                "X is a sparse matrix that stores some entries more than once, and the model's library does "
                "not add them up, as SciPy does: call X.sum_duplicates() first"
            )
        require_real(table.data.dtype.kind, "X")
    if seen is None:
        seen = Seen(NameRules(schema), SeenCategories())
    return HostRows(table, schema, x_dtype, seen, tested)
