"""Columns of Arrow as columns of pandas: each column has one pandas dtype in all batches of a source.

pandas holds integers beside missing values as floats, and booleans beside missing values as objects. A batch
may lack categories of its source. So a dtype that is determined from a batch would depend on the size of the
batch. :class:`PandasTypes` holds the dtypes that a frame of all rows of the source has. For a single file,
they are the dtypes of ``pandas.read_parquet``, with the extension dtypes that pandas recorded in the schema.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .._common.lazy import import_for
from .arrow import MISSING_KEY, MISSING_NAN, categories_error, is_dictionary, require_arrow
from .real_numbers import has_categories

#: Key of a schema's metadata in which pandas describes the frame.
_PANDAS = b"pandas"

#: Facts about a column that pandas records. pyarrow fails without them when it converts the column.
_COLUMN_FACTS = ("name", "field_name", "pandas_type", "numpy_type", "metadata")

#: Advice, in messages, about nulls that are not known before rows are read.
UNKNOWN_NULLS = (
    ". Cast it to float64 beforehand, or read the rows from files or a table, in which missing values are "
    "found before any row is explained"
)


class TypesScan:
    """Facts about the rows of a source from which the pandas dtypes of its columns follow.

    ``schema`` has the columns of the source, with the metadata of pandas, if there are any. The attribute
    ``needed`` lists the columns of integers, booleans or with a dictionary, whose rows must be added.
    """

    def __init__(self, schema: Any) -> None:
        types = require_arrow().types
        self.schema = schema
        self.needed = [
            field.name
            for field in schema
            if types.is_integer(field.type) or types.is_boolean(field.type) or is_dictionary(field.type)
        ]
        self._with_nulls: set[str] = set()
        self._dictionaries: dict[str, dict[Any, _Dictionary]] = {}

    def add_nulls(self, name: str) -> None:
        """Record that a column has missing values."""
        self._with_nulls.add(name)

    def add(self, rows: Any, part: Any = None) -> None:
        """Add rows of a part of the source, such as a file. The rows may lack columns that are not needed."""
        for name, column in zip(rows.schema.names, rows.columns):
            if column.null_count:
                self.add_nulls(name)
        self.add_categories(rows, part)

    def add_categories(self, rows: Any, part: Any = None) -> None:
        """Add only the categories of rows, as :meth:`add` does."""
        for name, column in zip(rows.schema.names, rows.columns):
            if is_dictionary(column.type):
                parts = self._dictionaries.setdefault(name, {})
                for chunk in getattr(column, "chunks", [column]):
                    parts.setdefault(part, _Dictionary(column.type)).add(name, chunk.dictionary)

    def categories(self, name: str) -> list[Any]:
        """Return the categories of a column in each part."""
        return [dictionary.content() for dictionary in self._dictionaries.get(name, {}).values()]

    def types(self, advice: str = "") -> PandasTypes:
        """Return the types. In messages, ``advice`` says what to do about a null that was not added."""
        dictionaries, differing = {}, {}
        for name, parts in self._dictionaries.items():
            if not is_dictionary(self.schema.field(name).type):
                continue
            first, *others = parts.values()
            is_same = all(other.content() == first.content() for other in others)
            merged = first.merged_with(others)
            if not is_same:
                differing[name] = merged.content()[0]
            if is_same or not any(part.content()[1] for part in parts.values()):
                dictionaries[name] = merged.array()
        return PandasTypes(self.schema, self._with_nulls, dictionaries, advice, differing)


class _Dictionary:
    """The dictionary of a column in a part of a source, to which its batches add values."""

    def __init__(self, kind: Any) -> None:
        self._kind, self._last = kind, None
        self._values: dict[Any, None] = {}

    def add(self, name: str, dictionary: Any) -> None:
        if self._last is not None and dictionary.equals(self._last):
            return
        self._last = dictionary
        try:
            self._values |= dict.fromkeys(dictionary.to_pylist())
        except TypeError as error:
            raise categories_error(name, dictionary.type) from error

    def content(self) -> tuple[list[Any], bool]:
        """Return the values, and whether their order has a meaning."""
        return list(self._values), self._kind.ordered

    def merged_with(self, others: Sequence[_Dictionary]) -> _Dictionary:
        """Return a dictionary with the values of this dictionary, followed by the values of others."""
        merged = _Dictionary(self._kind)
        for dictionary in (self, *others):
            merged._values |= dictionary._values
        return merged

    def array(self) -> Any:
        """Return all values that are not missing."""
        values = [value for value in self._values if value is not None]
        return require_arrow().array(values, self._kind.value_type)


class PandasTypes:
    """The dtypes with which pandas holds the columns of a source.

    Parameters
    ----------
    schema : pyarrow.Schema
    with_nulls : set of str
        Columns of integers or booleans that have missing values somewhere in the source.
    dictionaries : mapping of str to pyarrow.Array
        All categories of columns with a dictionary. If such a column is not listed, its codes become values.
    advice : str
        What to do about a missing value in another column of integers or booleans, for messages.
    differing : mapping of str to list or None
        Categories of columns whose dictionaries differ between the parts of the source, beginning with the
        categories of the first part. The columns may be in ``dictionaries`` or not.
    """

    def __init__(
        self,
        schema: Any,
        with_nulls: set[str],
        dictionaries: Mapping[str, Any],
        advice: str = "",
        differing: Mapping[str, list[Any]] | None = None,
    ) -> None:
        arrow = require_arrow()
        self.differing = differing or {}
        fields = list(schema)
        for i, field in enumerate(schema):
            if is_dictionary(field.type) and field.name not in dictionaries:  # missing values are NaN
                fields[i] = field.with_type(field.type.value_type).with_metadata({MISSING_KEY: MISSING_NAN})
        self._schema = arrow.schema(fields, _without_levels(schema.metadata))
        self._advice = advice
        row = [_row(field, field.name in with_nulls, dictionaries.get(field.name)) for field in self._schema]
        self._row = _frame(arrow.Table.from_arrays(row, schema=self._schema))

    @property
    def dtypes(self) -> list[Any]:
        """Dtypes of the columns."""
        return list(self._row.dtypes)

    @property
    def extension_dtypes(self) -> dict[str, Any]:
        """Extension dtypes of columns that pandas recorded in the schema, by their names."""
        return {
            field.name: dtype
            for field, dtype in zip(self._schema, self.dtypes)
            if not isinstance(dtype, np.dtype) and not has_categories(dtype)
        }

    def read_otherwise(self, frame: Any) -> Any:
        """Return a frame of :meth:`frame` in which the columns whose categories differ have another order.

        Another part of the source could have this order. Columns whose codes became values have categories
        again.
        """
        frame = frame.copy(deep=False)
        for name, values in self.differing.items():
            series = frame[name].astype("category")  # astype does not change the order of equal categories
            frame[name] = series.cat.set_categories(
                [value for value in reversed(values) if value is not None]
            )
        return frame

    def array(self, rows: Any) -> np.ndarray:
        """Return rows as an array, of the dtype that an array of all rows of the source has.

        Raise ``ValueError`` as :meth:`frame` does. But integers may be missing beside floats, where they
        become floats anyway.
        """
        dtype = self._row.to_numpy().dtype
        return self.frame(rows, floats=dtype.kind == "f").to_numpy(dtype)

    def frame(self, rows: Any, *, floats: bool = False) -> Any:
        """Return rows as a data frame of pandas. If ``floats``, columns of integers may be floats in it.

        The rows have the columns of the schema, in any order and possibly among other columns. Raise
        ``ValueError`` if a column cannot be a column of pandas, or has a missing value that changes its
        dtype.
        """
        arrow = require_arrow()
        columns = []
        for field in self._schema:
            column = rows.column(field.name)
            _require_whole_lists(field, column)
            # Codes keep their type, as pandas compares the categories.
            are_codes = is_dictionary(field.type) and is_dictionary(column.type)
            columns.append(column if are_codes or column.type == field.type else column.cast(field.type))
        fields = [field.with_type(column.type) for field, column in zip(self._schema, columns)]
        frame = _frame(arrow.Table.from_arrays(columns, schema=arrow.schema(fields, self._schema.metadata)))
        for position, (field, dtype) in enumerate(zip(self._schema, self.dtypes)):
            series = frame.iloc[:, position]
            if has_categories(dtype):
                if not series.cat.categories.isin(dtype.categories).all():
                    raise ValueError(
                        f"column {field.name!r} has categories that the source did not have before"
                    )
                series = series.cat.set_categories(dtype.categories, ordered=dtype.ordered)
            elif series.dtype == dtype or (floats and series.dtype.kind == "f"):
                continue
            elif isinstance(dtype, np.dtype) and dtype.kind in "iub":
                raise ValueError(
                    f"column {field.name!r} is {field.type} and has missing values, with which pandas would "
                    f"hold it as {series.dtype}: the values would depend on the size of the "
                    f"batch{self._advice}"
                )
            else:
                series = series.astype(dtype)
            frame.isetitem(position, series)
        return frame


def recorded_nulls(schema: Any) -> set[str]:
    """Return the columns of integers and booleans that were objects or floats when pandas wrote them.

    In pandas, these columns had missing values, even if a batch has none.
    """
    columns = _recorded(schema.metadata).get("columns", [])
    recorded = {column["field_name"]: column["numpy_type"] for column in columns}
    return {name for name in schema.names if recorded.get(name, "").startswith(("object", "float"))}


def _recorded(metadata: Any) -> dict[str, Any]:
    """Return what pandas recorded in the metadata of a schema, or an empty dict if it cannot be read."""
    try:
        recorded = json.loads((metadata or {})[_PANDAS])
        for column in recorded["columns"]:
            facts = {key: column[key] for key in _COLUMN_FACTS}
            has_strings = isinstance(facts["field_name"], str) and isinstance(facts["pandas_type"], str)
            if not has_strings or not isinstance(facts["metadata"], (dict, type(None))):
                return {}
            column["numpy_type"] = str(facts["numpy_type"])
    except (LookupError, ValueError, TypeError, RecursionError):
        return {}
    return recorded


def _without_levels(metadata: Any) -> dict[bytes, bytes] | None:
    """Return the metadata of pandas for a frame in which the levels of the index are ordinary columns."""
    recorded = _recorded(metadata)
    return {_PANDAS: json.dumps({**recorded, "index_columns": []}).encode()} if recorded else None


def _row(field: Any, has_nulls: bool, dictionary: Any) -> Any:
    """Return a column of one row, which is missing if any row of the source may be missing."""
    arrow = require_arrow()
    if dictionary is not None:
        codes = arrow.nulls(1, field.type.index_type)
        return arrow.DictionaryArray.from_arrays(codes, dictionary, ordered=field.type.ordered)
    if not has_nulls and arrow.types.is_boolean(field.type):
        return arrow.array([False])
    if not has_nulls and arrow.types.is_integer(field.type):
        return arrow.array([0], field.type)
    return arrow.nulls(1, field.type)


def _frame(table: Any) -> Any:
    """Convert a table to a data frame, whose index is new.

    Raise ``ImportError`` if pandas is not installed, and ``ValueError``, which names the column, if a column
    cannot be converted.
    """
    what = "a Pipeline whose first step takes data frames needs pandas to transform rows"
    pandas = import_for(what, "pandas", "pandas")
    try:
        frame = table.to_pandas()
    except (ValueError, TypeError, NotImplementedError) as error:  # pyarrow's errors are subclasses of these
        raise ValueError(_unreadable(table, error)) from error
    for position, field in enumerate(table.schema):
        series, missing = frame.iloc[:, position], (field.metadata or {}).get(MISSING_KEY)
        if missing == MISSING_NAN and series.dtype == object:
            values = series.to_numpy(object, copy=True)
            values[series.isna()] = np.nan
            frame.isetitem(position, pandas.Series(values, dtype=object))
    return frame


def _unreadable(table: Any, error: Exception) -> str:
    for name in table.schema.names:
        try:
            table.select([name]).to_pandas()
        except (ValueError, TypeError, NotImplementedError) as reason:
            return (
                f"column {name!r} of type {table.schema.field(name).type} cannot be read by pandas: {reason}"
            )
    return f"the columns cannot be read by pandas: {error}"


def _require_whole_lists(field: Any, column: Any) -> None:
    """Raise ``ValueError`` for lists of integers or booleans with missing values.

    pandas would change the dtype of all lists of the batch.
    """
    types = require_arrow().types
    kind = field.type
    if not (types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)):
        return
    if not (types.is_integer(kind.value_type) or types.is_boolean(kind.value_type)):
        return
    chunks = getattr(column, "chunks", [column])
    if any(chunk.flatten().null_count for chunk in chunks):
        raise ValueError(
            f"column {field.name!r} has lists of {kind.value_type} with missing values, whose dtype in "
            "pandas would depend on the size of the batch: make them lists of double"
        )


def same_dtype(first: Any, second: Any) -> bool:
    """Return whether two dtypes of pandas are equal, including the order of categories."""
    if has_categories(first) and has_categories(second):
        return first.ordered == second.ordered and first.categories.tolist() == second.categories.tolist()
    return bool(first == second)


def columns_of(schema: Any, names: Sequence[str]) -> Any:
    """Return the schema of some columns, in this order, with the metadata of the whole schema."""
    return require_arrow().schema([schema.field(name) for name in names], schema.metadata)
