"""Numbers in Parquet files of untrusted origin, whose metadata may say anything.

A page that is compressed, or whose numbers are run lengths, can decode to gigabytes. PyArrow trusts the
header of a page, so the headers of all pages that it would decode are read first: they say how many numbers a
page holds, and how many bytes it takes when it is decompressed. Headers and metadata are structures of Thrift
in its compact protocol (https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from .nodes import Lists

#: Limit on the numbers of all columns that are read: for each byte of the files, and in addition. The files
#: of a model with 100 classes have about two numbers for each byte.
_NUMBERS_PER_BYTE, _MORE_NUMBERS = 6, 2**14

#: Limit on the bytes of decompressed pages for each number, which takes at most eight, and its levels.
_BYTES_PER_NUMBER = 10

#: Limit on the structures of the metadata: for each byte, and in addition. PyArrow takes up to 700 bytes for
#: each of them, which in a damaged file has one byte or two.
_STRUCTS_PER_BYTE, _MORE_STRUCTS = 1 / 8, 1000

#: Key of a schema that PyArrow adds to the metadata, and limit on its length. Its fields may have less than
#: one byte each.
_ARROW_SCHEMA, _MOST_SCHEMA = b"ARROW:schema", 2**11

#: Numbers that PyArrow decodes at once. It takes several times their memory.
_NUMBERS_AT_ONCE = 2**12

#: Bytes at the end of a file: the length of the metadata, and "PAR1".
_TAIL = 8

#: Types of Thrift.
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
_DEEPEST = 16

#: Fields of the header of a page, and for each type of page the field that holds its number of values, as
#: field 1. Only pages of data count towards the values of a column.
_PAGE_TYPE, _UNCOMPRESSED, _COMPRESSED = 1, 2, 3
_DATA_PAGES, _DICTIONARY_PAGES = {0: 5, 3: 8}, {2: 7}


class NumberTable:
    """The columns of a table in several Parquet files; fields of a struct are columns, too.

    ``ValueError`` is raised if a file is damaged, or has other columns than the first one.
    """

    def __init__(self, contents: Sequence[bytes]) -> None:
        self._n_bytes = sum(map(len, contents))
        self._numbers_left = _MORE_NUMBERS + _NUMBERS_PER_BYTE * self._n_bytes
        self._bytes_left = _BYTES_PER_NUMBER * self._numbers_left
        self._files = [(content, _opened(content)) for content in contents]
        names = [_names(file.schema_arrow) for _, file in self._files]
        if any(other != names[0] for other in names):
            raise ValueError("its files have different columns")
        self.names: list[str] = names[0]

    def numbers(self, name: str, dtype: str) -> np.ndarray:
        """Return a column of integers ("int32", "int64") or floats ("float64").

        Like Spark, take smaller types of numbers, too, but no larger ones.

        Raise ``KeyError`` if there is no such column, or several. Raise ``ValueError`` if the column has
        another type or nulls, or is damaged, or the table has too many numbers.
        """
        most_numbers = self._most_numbers(name)
        numbers, n = np.empty(most_numbers, dtype), 0
        for column in self._columns(name, most_numbers):
            numbers[n : n + len(column)] = _values(column, name, dtype)
            n += len(column)
        return numbers[:n]

    def lists(self, name: str) -> Lists:
        """Return a column of lists of floats; raise errors like :meth:`numbers`."""
        import pyarrow as pa

        most_numbers = self._most_numbers(name)
        lengths, n_lists = np.empty(most_numbers, np.int64), 0
        values, n_values = np.empty(most_numbers), 0
        for column in self._columns(name, most_numbers):
            if not pa.types.is_list(column.type):
                raise ValueError(f"its column {name!r} has the type {column.type}")
            items = _values(column.flatten(), name, "float64")
            lengths[n_lists : n_lists + len(column)] = column.value_lengths().to_numpy(zero_copy_only=False)
            values[n_values : n_values + len(items)] = items
            n_lists, n_values = n_lists + len(column), n_values + len(items)
        return Lists.consecutive(lengths[:n_lists], values[:n_values])

    def _columns(self, name: str, n_numbers: int) -> Iterator[Any]:
        """Yield a column, a few rows after the other, as arrays of Arrow without nulls."""
        import pyarrow as pa

        n_rows = sum(file.metadata.num_rows for _, file in self._files)
        rows_at_once = max(1, _NUMBERS_AT_ONCE * n_rows // max(n_numbers, 1))
        try:
            for _, file in self._files:
                for batch in file.iter_batches(rows_at_once, columns=[name], use_threads=False):
                    table = pa.Table.from_batches([batch])
                    while any(pa.types.is_struct(field.type) for field in table.schema):
                        table = table.flatten()
                    column = table[name].combine_chunks()
                    if column.null_count:
                        raise ValueError(f"its column {name!r} has nulls")
                    yield column
        except (pa.ArrowException, OSError) as error:
            raise ValueError(f"its column {name!r} is damaged: {error}") from error
        finally:
            pa.default_memory_pool().release_unused()

    def _most_numbers(self, name: str) -> int:
        """Return how many numbers a column may have, and raise the errors of :meth:`numbers`."""
        if self.names.count(name) != 1:
            raise KeyError(name)
        before = self._numbers_left
        for content, file in self._files:
            self._require_size(content, file.metadata, name)
        return before - self._numbers_left

    def _require_size(self, content: bytes, metadata: Any, name: str) -> None:
        """Raise ``ValueError`` if a column is not one of numbers, or would take too much memory."""
        schema = metadata.schema
        indices = [
            i for i in range(metadata.num_columns) if f"{schema.column(i).path}.".startswith(f"{name}.")
        ]
        for i in indices:
            if schema.column(i).physical_type not in ("INT32", "INT64", "FLOAT", "DOUBLE"):
                raise ValueError(f"its column {name!r} has the type {schema.column(i).physical_type}")
            for group in range(metadata.num_row_groups):
                n_numbers, n_bytes = _size(content, metadata.row_group(group).column(i))
                self._numbers_left -= max(n_numbers, metadata.row_group(group).num_rows)
                self._bytes_left -= n_bytes
                if min(self._numbers_left, self._bytes_left) < 0:
                    raise ValueError(
                        f"its column {name!r} would have too many numbers for files of {self._n_bytes:,} "
                        "bytes: if the files are not damaged, pass the model itself"
                    )


def _opened(content: bytes) -> Any:
    """Return a ``ParquetFile`` of PyArrow, if its metadata are not larger than they seem."""
    import pyarrow as pa
    from pyarrow import parquet

    size = int.from_bytes(content[-_TAIL : -_TAIL // 2], "little")
    if len(content) < _TAIL + size or content[-_TAIL // 2 :] != b"PAR1":
        raise ValueError("a file is no Parquet file, or it is cut off")
    footer = _Thrift(content[-_TAIL - size : -_TAIL], 0)
    footer.struct()
    if footer.n_structs > _MORE_STRUCTS + _STRUCTS_PER_BYTE * size:
        raise ValueError("the metadata of a file have too many parts for their size")
    try:
        metadata = parquet.read_metadata(pa.BufferReader(content))
        if len((metadata.metadata or {}).get(_ARROW_SCHEMA, b"")) > _MOST_SCHEMA:
            raise ValueError("the metadata of a file have a schema that Spark does not write")
        return parquet.ParquetFile(pa.BufferReader(content), metadata=metadata, pre_buffer=False)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"a file is damaged: {error}") from error


def _names(schema: Any) -> list[str]:
    """Return the names of the columns of a schema of Arrow; a field of a struct has both names."""
    import pyarrow as pa

    fields = [(field.name, field.type) for field in reversed(schema)]
    names = []
    while fields:
        name, kind = fields.pop()
        if pa.types.is_struct(kind):
            fields += [(f"{name}.{field.name}", field.type) for field in reversed(kind)]
        else:
            names.append(name)
    return names


def _values(column: Any, name: str, dtype: str) -> Any:
    """Return the values of a column of integers or floats without nulls."""
    import pyarrow as pa

    is_number = pa.types.is_floating if dtype == "float64" else pa.types.is_signed_integer
    if not is_number(column.type) or column.type.bit_width > 8 * np.dtype(dtype).itemsize:
        raise ValueError(f"its column {name!r} has the type {column.type}")
    if column.null_count:
        raise ValueError(f"its column {name!r} has nulls")
    return column.to_numpy(zero_copy_only=False)


def _size(content: bytes, chunk: Any) -> tuple[int, int]:
    """Return how many numbers the pages of a column hold, and how many bytes when they are decompressed."""
    position = chunk.data_page_offset
    if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < position:
        position = chunk.dictionary_page_offset
    n_numbers = n_values = n_bytes = 0
    while n_values < chunk.num_values:
        header = _Thrift(content, position)
        fields = header.struct()
        about = fields.get((_DATA_PAGES | _DICTIONARY_PAGES).get(fields.get(_PAGE_TYPE, -1), -1), {})
        n_here = about.get(1, 0) if isinstance(about, dict) else 0
        uncompressed, compressed = fields.get(_UNCOMPRESSED, -1), fields.get(_COMPRESSED, -1)
        if not all(isinstance(size, int) and size >= 0 for size in (uncompressed, compressed, n_here)):
            raise ValueError("a page has no size, or a negative one")
        n_values += n_here if fields.get(_PAGE_TYPE) in _DATA_PAGES else 0
        n_numbers += n_here
        n_bytes += max(uncompressed, compressed)
        position = header.position + compressed
        if position > len(content):
            raise ValueError("a page is cut off")
    return n_numbers, n_bytes


class _Thrift:
    """A cursor over structures, which :meth:`struct` reads as numbers and dictionaries."""

    def __init__(self, data: bytes, position: int) -> None:
        self.data, self.position, self.n_structs = data, position, 0

    def _byte(self) -> int:
        if not 0 <= self.position < len(self.data):
            raise ValueError("the metadata of a file are cut off")
        self.position += 1
        return self.data[self.position - 1]

    def _varint(self) -> int:
        number = shift = 0
        while True:
            byte = self._byte()
            number |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return number
            if shift > 63:
                raise ValueError("the metadata of a file have a number of more than 64 bits")

    def _skip(self, n_bytes: int) -> None:
        if n_bytes > len(self.data) - self.position:
            raise ValueError("the metadata of a file are cut off")
        self.position += n_bytes

    def struct(self, depth: int = 0) -> dict[int, Any]:
        """Return the structures and the integers of 32 bits in a structure, by the numbers of the fields."""
        self.n_structs += 1
        fields: dict[int, Any] = {}
        number = 0
        while (head := self._byte()) & 15:
            number = number + (head >> 4) if head >> 4 else _signed(self._varint())
            fields[number] = self._value(head & 15, depth + 1)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        """Return a value if :meth:`struct` returns values of its type; otherwise skip it."""
        if depth > _DEEPEST:
            raise ValueError("the metadata of a file are nested too deeply")
        if kind == _STRUCT:
            return self.struct(depth)
        if kind == _I32:
            number = self._varint()
            if number >= 2**32:
                raise ValueError("the metadata of a file have a number of more than 32 bits")
            return _signed(number)
        if kind in (_I16, _I64):
            self._varint()
        elif kind == _BYTE:
            self._skip(1)
        elif kind == _DOUBLE:
            self._skip(8)
        elif kind == _BINARY:
            self._skip(self._varint())
        elif kind in (_LIST, _SET):
            head = self._byte()
            self._items(self._varint() if head >> 4 == 15 else head >> 4, [head & 15], depth)
        elif kind == _MAP:
            n_items = self._varint()
            head = self._byte() if n_items else 0
            self._items(n_items, [head >> 4, head & 15], depth)
        elif kind not in (_TRUE, _FALSE):
            raise ValueError("the metadata of a file have a field of an unknown type")
        return None

    def _items(self, n_items: int, kinds: list[int], depth: int) -> None:
        """Skip the items of a list, or of a map, which has items of two types in turn."""
        if n_items > len(self.data) - self.position:  # an item has at least one byte
            raise ValueError("the metadata of a file have a list that is cut off")
        for _ in range(n_items):
            for kind in kinds:
                if kind in (_TRUE, _FALSE):
                    self._skip(1)
                else:
                    self._value(kind, depth + 1)


def _signed(number: int) -> int:
    """Return the integer whose sign is the lowest bit."""
    return (number >> 1) ^ -(number & 1)
