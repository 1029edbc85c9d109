"""Formats of outputs: what writes tables to a file, and what reads how many rows a file has."""

from __future__ import annotations

import io
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.lib import format as npy

from .._rows.arrow import is_text, require_arrow

#: Column of the parts of a NumPy file; each of its lists has the values of a row.
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

    # Floats rarely repeat, so a dictionary does not pay for them.
    others = [field.name for field in schema if not arrow.types.is_floating(field.type)]
    return pyarrow.parquet.ParquetWriter(file, schema, use_dictionary=others)


def write(writer: Any, whole: Any, form: str) -> None:
    """Append a table."""
    if form == "parquet":
        writer.write_table(whole, row_group_size=max(whole.num_rows, 1))
    else:
        writer.write_table(whole)


class NpyWriter:
    """Object that writes tables of a column ``VALUES`` to a NumPy file.

    Parameters
    ----------
    file : binary file
    row : sequence of int
        Shape of the values of a row.
    dtype : numpy dtype
    """

    def __init__(self, file: Any, row: Sequence[int], dtype: Any) -> None:
        self._file, self._row, self._dtype = file, row, dtype
        self._n_rows = 0
        file.write(npy_header(0, row, dtype))

    def write_table(self, whole: Any) -> None:
        """Append rows."""
        for chunk in whole.column(VALUES).chunks:
            self._file.write(np.ascontiguousarray(chunk.flatten(), self._dtype).data)
        self._n_rows += whole.num_rows

    def close(self) -> None:
        """Write the number of rows to the beginning."""
        self._file.seek(0)
        self._file.write(npy_header(self._n_rows, self._row, self._dtype))


def npy_header(n_rows: int, row: Sequence[int], dtype: Any) -> bytes:
    """Return a header; its length is independent of ``n_rows``, as NumPy leaves room for growth."""
    header = io.BytesIO()
    about = {"descr": npy.dtype_to_descr(dtype), "fortran_order": False}
    npy.write_array_header_1_0(header, about | {"shape": (n_rows, *row)})
    return header.getvalue()


def batch_of_values(values: np.ndarray) -> Any:
    """Return values, of shape (n_rows, ...), as a record batch of a column ``VALUES``."""
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
    """Reject columns whose values CSV cannot hold.

    Raises
    ------
    ValueError
    """
    arrow = require_arrow()
    for field in schema:
        kind = field.type
        held = not (arrow.types.is_nested(kind) or "binary" in str(kind))
        if held:
            try:
                none = arrow.table([arrow.nulls(1, kind)], schema=arrow.schema([field.with_nullable(True)]))
                with writer(io.BytesIO(), none.schema, "csv") as csv:
                    csv.write_table(none)
            except (arrow.ArrowInvalid, arrow.ArrowNotImplementedError, arrow.ArrowTypeError):
                held = False
        if not held:
            raise ValueError(
                f"a CSV file cannot hold the column {field.name!r} of {kind}: leave it out of keep=, or "
                "write Parquet or Arrow"
            )


def plain(schema: Any, kept: Collection[str] = ()) -> Any:
    """Replace dictionary types by those of their values, except in the columns ``kept``."""
    arrow = require_arrow()
    return arrow.schema(
        [
            field.with_type(field.type.value_type)
            if arrow.types.is_dictionary(field.type) and field.name not in kept
            else field
            for field in schema
        ],
        schema.metadata,
    )


class Dictionaries:
    """One dictionary for each column of an Arrow file with categories, made of those of its parts.

    Many readers accept only one in a file. Columns of ordered categories become columns of values if the
    parts have different ones, as there is no common order; so do those of categories that are nested.

    Parameters
    ----------
    schema : pyarrow.Schema
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

        for name, known in self._values.items():
            column = table.column(name)
            for chunk in column.chunks:
                own = chunk.dictionary.drop_null().unique()
                if known is not None and not own.equals(known):
                    if column.type.ordered:
                        self._without_order.add(name)
                    others = own.filter(compute.invert(compute.is_in(own, value_set=known)))
                    own = require_arrow().concat_arrays([known, others])
                known = self._values[name] = own

    def schema(self) -> Any:
        """Return the schema of the file."""
        return plain(self._schema, self._values.keys() - self._without_order)

    def recoded(self, table: Any, schema: Any) -> Any:
        """Return a part with the types of :meth:`schema` and with the dictionaries of the file."""
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
