"""Formats of outputs: functions that write tables to files, and that read the number of rows of a file."""

from __future__ import annotations

import io
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.lib import format as npy

from .._rows.arrow import is_text, require_arrow

#: Name of the only column of the parts of a NumPy file. Each row of the column is a list of values.
VALUES = "values"


def writer(file: Any, schema: Any, form: str) -> Any:
    """Return an object that writes tables to an open file; see :func:`write`."""
    arrow = require_arrow()
    if form == "arrow":
        return arrow.ipc.new_file(file, schema)
    if form == "csv":
        import pyarrow.csv

        return pyarrow.csv.CSVWriter(file, schema)
    import pyarrow.parquet

    # Floats rarely repeat, so a dictionary would not make their columns smaller.
    dictionary_columns = [field.name for field in schema if not arrow.types.is_floating(field.type)]
    return pyarrow.parquet.ParquetWriter(file, schema, use_dictionary=dictionary_columns)


def write(writer: Any, table: Any, form: str) -> None:
    """Append a table."""
    if form == "parquet":
        writer.write_table(table, row_group_size=max(table.num_rows, 1))
    else:
        writer.write_table(table)


class NpyWriter:
    """Object that writes tables with the single column ``VALUES`` to a NumPy file.

    ``row`` is the shape of the values of a row.
    """

    def __init__(self, file: Any, row: Sequence[int], dtype: Any) -> None:
        self._file, self._row, self._dtype = file, row, dtype
        self._n_rows = 0
        file.write(npy_header(0, row, dtype))

    def write_table(self, table: Any) -> None:
        """Append rows."""
        for chunk in table.column(VALUES).chunks:
            self._file.write(np.ascontiguousarray(chunk.flatten(), self._dtype).data)
        self._n_rows += table.num_rows

    def close(self) -> None:
        """Write the number of rows into the header."""
        self._file.seek(0)
        self._file.write(npy_header(self._n_rows, self._row, self._dtype))


def npy_header(n_rows: int, row: Sequence[int], dtype: Any) -> bytes:
    """Return the header of a NumPy file.

    Its length is independent of ``n_rows``, because NumPy reserves room for more digits.
    """
    header = io.BytesIO()
    description = {"descr": npy.dtype_to_descr(dtype), "fortran_order": False}
    npy.write_array_header_1_0(header, description | {"shape": (n_rows, *row)})
    return header.getvalue()


def batch_of_values(values: np.ndarray) -> Any:
    """Return values of shape (n_rows, ...) as a record batch with the single column ``VALUES``."""
    arrow = require_arrow()
    size = int(np.prod(values.shape[1:]))
    if size:
        lists = arrow.FixedSizeListArray.from_arrays(arrow.array(values.reshape(-1)), size)
    else:
        lists = arrow.array([[]] * len(values), arrow.list_(arrow.from_numpy_dtype(values.dtype), 0))
    return arrow.RecordBatch.from_arrays([lists], names=[VALUES])


def schema_of_values(row: Sequence[int], dtype: Any, metadata: Any) -> Any:
    """Return the schema of :func:`batch_of_values`."""
    arrow = require_arrow()
    kind = arrow.list_(arrow.from_numpy_dtype(dtype), int(np.prod(row)))
    return arrow.schema([(VALUES, kind)], metadata)


def require_csv(schema: Any) -> None:
    """Raise ``ValueError`` if CSV cannot hold the values of a column."""
    arrow = require_arrow()
    for field in schema:
        kind = field.type
        is_supported = not (arrow.types.is_nested(kind) or "binary" in str(kind))
        if is_supported:
            try:
                nullable = arrow.schema([field.with_nullable(True)])
                one_null = arrow.table([arrow.nulls(1, kind)], schema=nullable)
                with writer(io.BytesIO(), one_null.schema, "csv") as csv:
                    csv.write_table(one_null)
            except (arrow.ArrowInvalid, arrow.ArrowNotImplementedError, arrow.ArrowTypeError):
                is_supported = False
        if not is_supported:
            raise ValueError(
                f"a CSV file cannot hold the column {field.name!r} of {kind}: leave it out of keep=, or "
                "write Parquet or Arrow"
            )


def plain(schema: Any, dictionary_columns: Collection[str] = ()) -> Any:
    """Replace dictionary types by the types of their values, except in ``dictionary_columns``."""
    arrow = require_arrow()
    return arrow.schema(
        [
            field.with_type(field.type.value_type)
            if arrow.types.is_dictionary(field.type) and field.name not in dictionary_columns
            else field
            for field in schema
        ],
        schema.metadata,
    )


class Dictionaries:
    """One dictionary for each categorical column of an Arrow file, which joins the dictionaries of its parts.

    Many readers accept only one dictionary for a column. Two kinds of columns become columns of values
    instead: ordered categories that differ between parts, because they have no common order, and nested
    categories.
    """

    def __init__(self, schema: Any) -> None:
        types = require_arrow().types
        self._schema = schema
        self._values: dict[str, Any] = {
            field.name: None
            for field in schema
            if types.is_dictionary(field.type)
            and (types.is_primitive(field.type.value_type) or is_text(field.type.value_type))
        }
        self._without_order: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._values)

    def add(self, table: Any) -> None:
        """Add the categories of a part."""
        import pyarrow.compute as compute

        for name, categories in self._values.items():
            column = table.column(name)
            for chunk in column.chunks:
                chunk_categories = chunk.dictionary.drop_null().unique()
                if categories is None or chunk_categories.equals(categories):
                    categories = self._values[name] = chunk_categories
                    continue
                if column.type.ordered:
                    self._without_order.add(name)
                is_known = compute.is_in(chunk_categories, value_set=categories)
                new_categories = chunk_categories.filter(compute.invert(is_known))
                categories = require_arrow().concat_arrays([categories, new_categories])
                self._values[name] = categories

    def schema(self) -> Any:
        """Return the schema of the file."""
        return plain(self._schema, self._values.keys() - self._without_order)

    def recoded(self, table: Any, schema: Any) -> Any:
        """Return the table of a part with the types of :meth:`schema` and the dictionaries of the file."""
        arrow = require_arrow()
        import pyarrow.compute as compute

        columns = []
        for field, column in zip(schema, table.columns):
            kind = field.type
            if arrow.types.is_dictionary(column.type):
                column = column.cast(column.type.value_type)
            if arrow.types.is_dictionary(kind):
                values = self._values[field.name]
                codes = compute.index_in(column, value_set=values).combine_chunks().cast(kind.index_type)
                column = arrow.DictionaryArray.from_arrays(codes, values, ordered=kind.ordered)
            columns.append(column)
        return arrow.Table.from_arrays(columns, schema=schema)


def n_rows(file: Any, form: str) -> int:
    """Return the number of rows of an open Parquet or Arrow file."""
    if form == "parquet":
        import pyarrow.parquet

        return pyarrow.parquet.read_metadata(file).num_rows
    with require_arrow().ipc.open_file(file) as reader:
        return sum(reader.get_batch(i).num_rows for i in range(reader.num_record_batches))


def metadata(file: Any, form: str) -> dict[bytes, bytes]:
    """Return the metadata of an open Parquet or Arrow file."""
    if form == "parquet":
        import pyarrow.parquet

        return pyarrow.parquet.read_schema(file).metadata or {}
    with require_arrow().ipc.open_file(file) as reader:
        return reader.schema.metadata or {}
