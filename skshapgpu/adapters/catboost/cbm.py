"""Reader of the CTRs in CatBoost's own file format (.cbm), and of the sizes of the trees.

Unlike the JSON export, this format distinguishes CTRs that differ only in how the target is binarized, such
as the CTRs of several targets.

A file consists of "CBM1", the size of a FlatBuffers buffer, this buffer, and further parts. The first of
the further parts contains the tables of the CTRs: the number of tables, then for each table the size of a
buffer, and the buffer. In FlatBuffers (https://flatbuffers.dev/internals) a reference to a table or vector is
an offset, forward from the position of the reference. A table begins with the distance back to its list of
fields, which contains the offset of each field from the table, or 0 if the field is absent. Fields are
numbered in the order of CatBoost's schema.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

_MAGIC = b"CBM1"

#: Numbers of fields on the way to the base of a CTR: the trees in the root table, the CTR features in the
#: trees, the CTR in a CTR feature, and the base in a CTR.
_TREES, _CTR_FEATURES, _CTR, _CTR_BASE = 1, 7, 0, 0
#: Numbers of the fields of the trees: the splits of all trees, the number of splits of each tree, and the
#: position of its first split.
_SPLITS, _SIZES, _STARTS = 1, 2, 3
#: Numbers of the fields of the trees: one-hot features, and features computed from text or embeddings.
_ONE_HOT, _ESTIMATED = 6, 13
#: Numbers of the fields of a base.
_COMBINATION, _TYPE, _BINARIZATION = 0, 1, 2
#: Numbers of the fields of a CTR table.
_BASE, _HASHES, _NUMBERS, _DENOMINATOR, _CLASSES = 0, 1, 2, 3, 4

#: Formats of the elements of a combination's vectors: categorical features, numeric splits, one-hot splits.
_ELEMENTS = ("<i", "<if", "<ii")

#: CTR types in the order of CatBoost's enumeration, with the dtype of the numbers that a table has for a key.
_TYPES = {
    "Borders": "<i4",
    "Buckets": "<i4",
    "BinarizedTargetMeanValue": "<f4,<i4",
    "FloatTargetMeanValue": "<f4,<i4",
    "Counter": "<i4",
    "FeatureFreq": "<i4",
}


class Base(NamedTuple):
    """The properties of a CTR by which its table is found; CTRs with the same properties share a table."""

    kind: str
    binarization: int
    combination: tuple[tuple[Any, ...], ...]


class CbmFile:
    """The base of each CTR of a file, ``ctrs``, in the order of the JSON export.

    ``n_one_hot`` is the number of its one-hot features, ``n_estimated`` the number of its features that are
    computed from text or embeddings.

    ``ValueError`` is raised if the file does not have the expected format, or the sizes of its trees do not
    fit the positions of their splits. CatBoost predicts by the sizes, but exports splits by the positions.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        try:
            if data[:4] != _MAGIC:
                raise ValueError("it does not begin as CatBoost's files do")
            self._end = 8 + struct.unpack_from("<I", data, 4)[0]
            buffer = _Buffer(data[8 : self._end])
            trees = buffer.table(buffer.reference(0), _TREES)
            sizes, starts = buffer.integers(trees, _SIZES), buffer.integers(trees, _STARTS)
            limits = np.append(starts, len(buffer.integers(trees, _SPLITS)))
            if limits[0] or not np.array_equal(np.diff(limits), sizes):
                raise ValueError("the sizes of its trees do not fit the positions of their splits")
            self.n_one_hot, self.n_estimated = (
                len(buffer.references(trees, field)) for field in (_ONE_HOT, _ESTIMATED)
            )
            ctrs = buffer.references(trees, _CTR_FEATURES)
            self.ctrs = [_base(buffer, buffer.table(buffer.table(ctr, _CTR), _CTR_BASE)) for ctr in ctrs]
        except (struct.error, LookupError, ValueError) as error:
            raise ValueError(f"cannot read CatBoost's file of the model: {error}") from error

    def tables(self) -> dict[Base, dict[str, Any]]:
        """Return the tables in the form of the JSON export; raise ``ValueError`` as the class does."""
        try:
            return dict(self._tables())
        except (struct.error, LookupError, ValueError) as error:
            raise ValueError(f"cannot read the CTRs in CatBoost's file of the model: {error}") from error

    def _tables(self) -> Iterator[tuple[Base, dict[str, Any]]]:
        n_tables, position = struct.unpack_from("<I", self._data, self._end)[0], self._end + 4
        for _ in range(n_tables):
            size = struct.unpack_from("<I", self._data, position)[0]
            buffer = _Buffer(self._data[position + 4 : position + 4 + size])
            position += 4 + size
            table = buffer.reference(0)
            base = _base(buffer, buffer.table(table, _BASE))
            hashes = np.frombuffer(buffer.bytes(table, _HASHES), "<u8,<u4")
            hashes = hashes[hashes["f0"] != np.iinfo(np.uint64).max]  # without empty slots
            numbers = np.frombuffer(buffer.bytes(table, _NUMBERS), _TYPES[base.kind])
            if numbers.dtype.names:
                columns = [numbers[name] for name in numbers.dtype.names]
            else:
                columns = list(numbers.reshape(-1, buffer.number(table, _CLASSES, "<i") or 1).T)
            if len(hashes) > len(columns[0]):
                raise ValueError("a table has more keys than numbers")
            items = zip(hashes["f0"].tolist(), *(column[hashes["f1"]].tolist() for column in columns))
            yield (
                base,
                {
                    "hash_map": [number for item in items for number in item],
                    "hash_stride": 1 + len(columns),
                    "counter_denominator": buffer.number(table, _DENOMINATOR, "<i"),
                },
            )


def _base(buffer: _Buffer, table: int) -> Base:
    combination = buffer.table(table, _COMBINATION)
    return Base(
        list(_TYPES)[buffer.number(table, _TYPE, "<b")],
        buffer.number(table, _BINARIZATION, "<i"),
        tuple(tuple(buffer.structs(combination, i, form)) for i, form in enumerate(_ELEMENTS)),
    )


class _Buffer:
    """A FlatBuffers buffer; positions are byte offsets from its start."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def reference(self, position: int) -> int:
        """Return the position to which the reference at a position leads."""
        return position + struct.unpack_from("<I", self._data, position)[0]

    def _field(self, table: int, field: int) -> int | None:
        """Return the position of a field of a table; None if the field is absent."""
        fields = table - struct.unpack_from("<i", self._data, table)[0]
        if 4 + 2 * field >= struct.unpack_from("<H", self._data, fields)[0]:
            return None
        distance = struct.unpack_from("<H", self._data, fields + 4 + 2 * field)[0]
        return table + distance if distance else None

    def table(self, table: int, field: int) -> int:
        """Return the position of the table that a field refers to."""
        position = self._field(table, field)
        if position is None:
            raise ValueError(f"field {field} of a table is missing")
        return self.reference(position)

    def _vector(self, table: int, field: int) -> tuple[int, int]:
        """Return the position of a vector's first element, and the number of its elements."""
        position = self._field(table, field)
        if position is None:
            return 0, 0
        vector = self.reference(position)
        return vector + 4, struct.unpack_from("<I", self._data, vector)[0]

    def references(self, table: int, field: int) -> list[int]:
        """Return the positions of the tables that a vector refers to."""
        first, n = self._vector(table, field)
        return [self.reference(first + 4 * i) for i in range(n)]

    def structs(self, table: int, field: int, form: str) -> list[tuple[Any, ...]]:
        first, n = self._vector(table, field)
        size = struct.calcsize(form)
        return list(struct.iter_unpack(form, self._data[first : first + n * size]))

    def integers(self, table: int, field: int) -> np.ndarray:
        first, n = self._vector(table, field)
        return np.frombuffer(self._data[first : first + 4 * n], "<i4").astype(np.int64)

    def bytes(self, table: int, field: int) -> bytes:
        first, n = self._vector(table, field)
        return self._data[first : first + n]

    def number(self, table: int, field: int, form: str) -> int:
        """Return the value of a number field, 0 if it is absent."""
        position = self._field(table, field)
        return 0 if position is None else struct.unpack_from(form, self._data, position)[0]
