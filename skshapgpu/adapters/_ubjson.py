"""Reader of the part of Universal Binary JSON (draft 12) that XGBoost writes.

Numbers are big-endian. Typed arrays are returned as read-only views of the input, so that a large
model is not copied. Lengths are checked against the bytes that remain before anything is
allocated, and nesting is bounded: for any input, the result is a value or a ``ValueError``.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

_NUMBERS = {
    tag: (struct.Struct(code), np.dtype(code))
    for tag, code in {"i": ">b", "U": ">B", "I": ">h", "l": ">i", "L": ">q", "d": ">f", "D": ">d"}.items()
}
#: Formats of lengths, by the byte of their marker. A length precedes every name and array, so that reading
#: lengths is most of the work; therefore a length is read in one step.
_LENGTHS = {ord(tag): _NUMBERS[tag][0] for tag in "iUIlL"}
#: The heads of typed arrays and of names as XGBoost writes them, with 64-bit lengths. Nearly all heads of a
#: model are like this, and each is read by one call; all others are read by the grammar below.
_ARRAY_HEAD = struct.Struct(">4sq")
_ARRAY_TYPES = {f"${tag}#L".encode(): dtype for tag, (_, dtype) in _NUMBERS.items()}
_NAME_HEAD = struct.Struct(">cq")
_CONSTANTS = {"Z": None, "T": True, "F": False}

#: XGBoost nests nine levels; the bound keeps hostile input within Python's own recursion limit.
_MAX_DEPTH = 64


def loads(data: bytes | bytearray | memoryview) -> Any:
    """Decode one UBJSON value that fills ``data``, which must not change while the result is in use.

    Typed arrays become one-dimensional big-endian ndarrays, other arrays lists. Raise ``ValueError`` if the
    bytes are truncated, have trailing bytes, or are not UBJSON.
    """
    reader = _UbjsonReader(data)
    value = reader.value(reader.tag(), 0)
    if reader.at != reader.end:
        raise ValueError(f"UBJSON value ends at byte {reader.at} of {reader.end}")
    return value


class _UbjsonReader:
    """A cursor over the bytes, with the grammar as methods that advance it."""

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        self.data = memoryview(data).toreadonly().cast("B")
        self.end = len(self.data)
        self.at = 0
        self.names: dict[bytes, str] = {}

    def skip(self, n_bytes: int) -> int:
        """Advance by some bytes, and return the position of the first of them."""
        start = self.at
        if n_bytes > self.end - start:
            raise ValueError(f"UBJSON is truncated: byte {start} needs {n_bytes} more")
        self.at = start + n_bytes
        return start

    def peek(self) -> str:
        if self.at == self.end:
            raise ValueError(f"UBJSON is truncated at byte {self.at}")
        return chr(self.data[self.at])

    def tag(self) -> str:
        tag = self.peek()
        self.at += 1
        return tag

    def number(self, tag: str) -> int | float:
        form = _NUMBERS[tag][0]
        return form.unpack_from(self.data, self.skip(form.size))[0]

    def length(self) -> int:
        """Read the length of a string or array, which cannot exceed the number of bytes that remain."""
        position = self.at
        form = _LENGTHS.get(self.data[position]) if position < self.end else None
        if form is None:
            raise ValueError(f"UBJSON has no length at byte {position}")
        start = position + 1 + form.size
        if start > self.end:
            raise ValueError(f"UBJSON is truncated: byte {position + 1} needs {form.size} more")
        n = form.unpack_from(self.data, position + 1)[0]
        if not 0 <= n <= self.end - start:
            raise ValueError(f"UBJSON has the impossible length {n} before byte {start}")
        self.at = start
        return n

    def string(self) -> str:
        end = self.length() + self.at
        start, self.at = self.at, end
        return str(self.data[start:end], "utf-8")

    def name(self) -> str:
        """Read a name. A name occurs often, but is decoded only once."""
        start = self.at + _NAME_HEAD.size
        if start <= self.end:
            tag, n = _NAME_HEAD.unpack_from(self.data, self.at)
            if tag == b"L" and 0 <= n <= self.end - start:
                self.at = start + n
                encoded = bytes(self.data[start : self.at])
                name = self.names.get(encoded)
                if name is None:
                    name = self.names[encoded] = str(encoded, "utf-8")
                return name
        return self.string()

    def value(self, tag: str, depth: int) -> Any:
        if tag in _NUMBERS:
            return self.number(tag)
        if tag == "S":
            return self.string()
        if depth == _MAX_DEPTH:
            raise ValueError(f"UBJSON is nested deeper than {_MAX_DEPTH} levels at byte {self.at}")
        if tag == "{":
            return self.members(depth + 1)
        if tag == "[":
            return self.items(depth + 1)
        if tag in _CONSTANTS:
            return _CONSTANTS[tag]
        raise ValueError(f"UBJSON has an unknown marker {tag!r} before byte {self.at}")

    def members(self, depth: int) -> dict[str, Any]:
        result = {}
        while self.peek() != "}":
            key = self.name()
            if key in result:
                raise ValueError(f"UBJSON has the name {key!r:.80} twice in an object, before byte {self.at}")
            result[key] = self.value(self.tag(), depth)
        self.at += 1
        return result

    def items(self, depth: int) -> list[Any] | np.ndarray:
        start = self.at + _ARRAY_HEAD.size
        if start <= self.end:
            head, n = _ARRAY_HEAD.unpack_from(self.data, self.at)
            dtype = _ARRAY_TYPES.get(head)
            if dtype is not None and 0 <= n <= (self.end - start) // dtype.itemsize:
                self.at = start + n * dtype.itemsize
                return np.frombuffer(self.data, dtype, n, start)
        first = self.peek()
        if first == "$":
            self.at += 1
            return self.typed_items(self.tag())
        if first == "#":
            self.at += 1
            return [self.value(self.tag(), depth) for _ in range(self.length())]
        result = []
        while self.peek() != "]":
            result.append(self.value(self.tag(), depth))
        self.at += 1
        return result

    def typed_items(self, tag: str) -> np.ndarray:
        if tag not in _NUMBERS or self.tag() != "#":
            raise ValueError(f"UBJSON has a typed array without type or length before byte {self.at}")
        dtype = _NUMBERS[tag][1]
        n = self.length()
        start = self.skip(n * dtype.itemsize)
        return np.frombuffer(self.data, dtype, n, start)
