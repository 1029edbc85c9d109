"""Reader of the protobuf messages of ONNX models, written from the schema; ONNX need not be installed.

A message is a sequence of fields, each with a number and a value. Lists of numbers, which may have millions
of items, become arrays without a loop over their items. Every length is compared with the number of bytes
that remain: for any input, the result is a :class:`Graph`, a ``ValueError`` or an ``UnsupportedModelError``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ...errors import UnsupportedModelError

#: Numbers of tensor types.
FLOAT, INT32, INT64, DOUBLE = 1, 6, 7, 11

#: For each number of a tensor type: the dtype, and the field that holds the items unless they are raw bytes.
_TENSORS = {
    FLOAT: ("<f4", 4),
    2: ("u1", 5),
    3: ("i1", 5),
    INT32: ("<i4", 5),
    INT64: ("<i8", 7),
    DOUBLE: ("<f8", 10),
}

_TYPE_NAMES = {
    FLOAT: "float", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", INT32: "int32", INT64: "int64",
    8: "string", 9: "bool", 10: "float16", DOUBLE: "double",
}  # fmt: skip

#: The field that holds the value of an attribute, by the number of the attribute's type.
_VALUES = {1: 2, 2: 3, 3: 4, 4: 5, 6: 7, 7: 8, 8: 9}

#: Latest version of the operators in the domain "ai.onnx.ml" that the adapter knows.
_LATEST_OPSET = 5

#: Limits far above the numbers in any converted tree ensemble.
_MOST_OPERATORS = 10_000
_MOST_ATTRIBUTES = 100

#: Wire types of fields: how a value is encoded.
_VARINT, _EIGHT_BYTES, _LENGTH, _FOUR_BYTES = 0, 1, 2, 5


class Tensor(np.ndarray):
    """The items of a tensor, in one dimension. Lists of numbers are arrays of the base class."""


@dataclass(frozen=True, eq=False)
class Operator:
    """A node of a graph: the kind of operator, such as "Cast", and names of its inputs and outputs."""

    kind: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    raw_attributes: tuple[memoryview, ...] = field(repr=False)

    @cached_property
    def attributes(self) -> dict[str, Any]:
        """Values by name: numbers, bytes, lists of bytes, arrays, and tensors."""
        attributes = dict(map(_attribute, self.raw_attributes))
        if len(attributes) < len(self.raw_attributes):
            raise ValueError(f"its operator {self.kind!r:.80} has two attributes of the same name")
        return attributes


@dataclass(frozen=True)
class Input:
    """An input of a graph: the number of its type, and its shape. None if unknown, or if it is no tensor."""

    element: int | None
    shape: tuple[int | None, ...] | None


@dataclass(frozen=True)
class Graph:
    """Operators in their order, inputs by name, and names of outputs and constants."""

    operators: list[Operator]
    inputs: dict[str, Input]
    outputs: list[str]
    constants: set[str]


def type_name(element: int | None) -> str:
    """Return the name of a tensor type."""
    return _TYPE_NAMES.get(element or 0, f"of type {element}")


def loads(content: bytes) -> Graph:
    """Decode a model.

    Raise ``ValueError`` if the bytes are not the messages of a model. Raise ``UnsupportedModelError`` if the
    model has too many operators or attributes, or operators for trees of a later version; or it defines
    functions, which may replace operators of the same name.
    """
    graph = None
    for number, value in _fields(memoryview(content)):
        if number == 7:
            if graph is not None:
                raise ValueError("it has two graphs")
            graph = _message(value)
        elif number == 8:
            _require_known_opset(_message(value))
        elif number == 25:
            raise UnsupportedModelError("the ONNX model defines functions of its own")
    if graph is None:
        raise ValueError("it has no graph")
    operators: list[Operator] = []
    inputs: dict[str, Input] = {}
    outputs: list[str] = []
    constants: set[str] = set()
    for number, value in _fields(graph):
        if number == 1:
            operators.append(_operator(_message(value)))
            if len(operators) > _MOST_OPERATORS:
                raise UnsupportedModelError(f"the ONNX model has more than {_MOST_OPERATORS:,} operators")
        elif number == 5:
            constants.update(_string(name) for name in _values(_message(value), 8))
        elif number == 11:
            name, input_ = _input(_message(value))
            inputs[name] = input_
        elif number == 12:
            outputs += [_string(name) for name in _values(_message(value), 1)]
    variable_inputs = {name: input_ for name, input_ in inputs.items() if name not in constants}
    return Graph(operators, variable_inputs, outputs, constants)


def _require_known_opset(message: memoryview) -> None:
    """Reject operators for trees whose version is later than the latest known version."""
    domains = [_string(domain) for domain in _values(message, 1)]
    versions = [number for number in _values(message, 2) if isinstance(number, int)]
    if "ai.onnx.ml" in domains and max(versions, default=0) > _LATEST_OPSET:
        raise UnsupportedModelError(
            f"the ONNX model has operators of version {max(versions)} of ai.onnx.ml; versions up to "
            f"{_LATEST_OPSET} are known: convert it with target_opset={{'ai.onnx.ml': {_LATEST_OPSET}}}"
        )


def _operator(message: memoryview) -> Operator:
    values: dict[int, list[Any]] = {1: [], 2: [], 4: [""], 5: [], 7: [""]}
    for number, value in _fields(message):
        if number in values:
            values[number].append(_message(value) if number == 5 else _string(value))
    if len(values[5]) > _MOST_ATTRIBUTES:
        raise UnsupportedModelError(
            f"the ONNX model has an operator with more than {_MOST_ATTRIBUTES} attributes"
        )
    domain = values[7][-1]
    return Operator(
        values[4][-1],
        "" if domain == "ai.onnx" else domain,
        tuple(values[1]),
        tuple(values[2]),
        tuple(values[5]),
    )


def _input(message: memoryview) -> tuple[str, Input]:
    name, element, shape = "", None, None
    for number, value in _fields(message):
        if number == 1:
            name = _string(value)
        elif number == 2:
            for tensor in _values(_message(value), 1):
                element, shape = _tensor_type(_message(tensor))
    return name, Input(element, shape)


def _tensor_type(message: memoryview) -> tuple[int | None, tuple[int | None, ...] | None]:
    """Return the number of an element type, and a shape."""
    element, shape = None, None
    for number, value in _fields(message):
        if number == 1 and isinstance(value, int):
            element = value
        elif number == 2:
            shape = tuple(_dimension(_message(dim)) for dim in _values(_message(value), 1))
    return element, shape


def _dimension(message: memoryview) -> int | None:
    return next((_signed(n) for n in _values(message, 1) if isinstance(n, int)), None)


def _attribute(message: memoryview) -> tuple[str, Any]:
    """Return the name and value of an attribute. The value is None if its type is not read."""
    values: dict[int, Any] = {}
    position = 0
    while position < len(message):
        tag, after = _varint(message, position)
        number, wire = tag >> 3, tag & 7
        if number in values:
            raise ValueError("an attribute has a field twice, or a list whose items are not side by side")
        if (number, wire) in _LISTS and after == position + 1:
            values[number], position = _LISTS[number, wire](message, position)
        else:
            values[number], position = _value(message, after, wire)
            if number in (7, 8):  # the list is packed
                values[number] = (_floats if number == 7 else _varints)(_message(values[number]))
    name, kind = _string(values.get(1, memoryview(b""))), values.get(20)
    if kind is None:  # the file was written before this field existed
        fields_with_value = [number for number in _VALUES.values() if number in values]
        kind = next((k for k, number in _VALUES.items() if fields_with_value == [number]), 0)
    number = _VALUES.get(kind, 0)
    if number in (7, 8, 9):
        empty = {7: np.empty(0, np.float32), 8: np.empty(0, np.int64), 9: []}
        return name, values.get(number, empty[number])
    if number not in values:
        return name, None
    return name, _SINGLE[number](values[number])


def _tensor(message: memoryview) -> Tensor:
    dims: list[int] = []
    element, items, raw = 0, {}, None
    for number, value in _fields(message):
        if number == 1:
            dims += _varints(value).tolist() if isinstance(value, memoryview) else [_signed(value)]
        elif number == 2 and isinstance(value, int):
            element = value
        elif number == 9:
            raw = _message(value)
        elif number == 13 or (number == 14 and value == 1):
            raise UnsupportedModelError(
                "the ONNX model keeps data in another file: save it with save_as_external_data=False"
            )
        else:
            items[number] = value
    if element not in _TENSORS:
        raise ValueError(f"it has a tensor {type_name(element)}, which no tree ensemble uses")
    dtype, number = _TENSORS[element]
    if raw is None:
        raw = _message(items.get(number, memoryview(b"")))
        if number in (5, 7):
            return _sized(_varints(raw).astype(dtype), dims)
    if len(raw) % np.dtype(dtype).itemsize:
        raise ValueError("it has a tensor that ends within an item")
    return _sized(np.frombuffer(raw, dtype), dims)


def _sized(items: np.ndarray, dims: list[int]) -> Tensor:
    if dims != [len(items)]:
        raise ValueError(f"it has a tensor of {len(items)} items and shape {dims!r:.80}")
    return items.view(Tensor)


def _fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Yield the number and the value of each field; a value is an unsigned integer, or bytes."""
    position = 0
    while position < len(message):
        tag, position = _varint(message, position)
        value, position = _value(message, position, tag & 7)
        yield tag >> 3, value


def _values(message: memoryview, number: int) -> Iterator[int | memoryview]:
    return (value for n, value in _fields(message) if n == number)


def _value(message: memoryview, position: int, wire: int) -> tuple[int | memoryview, int]:
    """Return the value that begins at a position, and the position after it."""
    if wire == _VARINT:
        return _varint(message, position)
    if wire == _LENGTH:
        size, position = _varint(message, position)
    elif wire in (_EIGHT_BYTES, _FOUR_BYTES):
        size = 8 if wire == _EIGHT_BYTES else 4
    else:
        raise ValueError(f"a field has the unknown wire type {wire}")
    if size > len(message) - position:
        raise ValueError(f"it is truncated: a field needs {size} bytes, {len(message) - position} are left")
    return message[position : position + size], position + size


def _varint(message: memoryview, position: int) -> tuple[int, int]:
    if position < len(message) and message[position] < 128:  # the number has one byte, as most have
        return message[position], position + 1
    number = shift = 0
    for byte in message[position : position + 10]:
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return number & 2**64 - 1, position + shift // 7
    raise ValueError("it is truncated, or has a number of more than ten bytes")


def _message(value: Any) -> memoryview:
    if not isinstance(value, memoryview):
        raise ValueError("it has a number where a message or string should be")
    return value


def _string(value: Any) -> str:
    return str(_message(value), "utf-8")


def _signed(value: Any) -> int:
    if not isinstance(value, int):
        raise ValueError("it has bytes where a number should be")
    return value - 2**64 if value >= 2**63 else value


def _float(value: Any) -> float:
    if len(_message(value)) != 4:
        raise ValueError("it has a float of other than four bytes")
    return float(struct.unpack("<f", value)[0])


def _floats(raw: memoryview) -> np.ndarray:
    if len(raw) % 4:
        raise ValueError("it has a list of floats that ends within a float")
    return np.frombuffer(raw, "<f4")


def _varints(raw: memoryview) -> np.ndarray:
    octets = np.frombuffer(raw, np.uint8)
    last = np.flatnonzero(octets < 128)
    if not len(octets):
        return np.empty(0, np.int64)
    if not len(last) or last[-1] != len(octets) - 1:
        raise ValueError("it has a list of integers that ends within an integer")
    return _decoded(octets, np.concatenate([[0], last[:-1] + 1]), last)


def _decoded(octets: np.ndarray, first: np.ndarray, last: np.ndarray) -> np.ndarray:
    """Decode varints from their first and last bytes."""
    length = last - first + 1
    most_bytes = int(length.max(initial=0))
    if most_bytes > 10:
        raise ValueError("it has an integer of more than ten bytes")
    numbers = np.zeros(len(first), np.uint64)
    for k in range(most_bytes):
        longer = np.flatnonzero(length > k)
        numbers[longer] |= (octets[first[longer] + k] & 127).astype(np.uint64) << np.uint64(7 * k)
    return numbers.view(np.int64)


def _separate_floats(message: memoryview, position: int) -> tuple[np.ndarray, int]:
    """Return a list of floats that begins at a position and has a tag before each float, and its end."""
    octets = np.frombuffer(message[position:], np.uint8)
    n = len(octets) // 5
    other = np.flatnonzero(octets[: 5 * n : 5] != octets[0])
    n = int(other[0]) if len(other) else n
    if n == 0:
        raise ValueError("it is truncated within a float")
    return octets[: 5 * n].reshape(n, 5)[:, 1:].copy().view("<f4").ravel(), position + 5 * n


def _separate_varints(message: memoryview, position: int) -> tuple[np.ndarray, int]:
    """Return integers like :func:`_separate_floats`."""
    octets = np.frombuffer(message[position:], np.uint8)
    ends = np.flatnonzero(octets < 128)
    ends = ends[: len(ends) // 2 * 2]
    tags, last = ends[::2], ends[1::2]
    after = np.concatenate([[-1], last])[: len(tags)]
    other = np.flatnonzero((octets[tags] != octets[0]) | (tags != after + 1))
    n = int(other[0]) if len(other) else len(tags)
    if n == 0:
        raise ValueError("it is truncated within an integer")
    return _decoded(octets, tags[:n] + 1, last[:n]), position + int(last[n - 1]) + 1


def _separate_strings(message: memoryview, position: int) -> tuple[list[bytes], int]:
    """Return strings like :func:`_separate_floats`. Equal strings are one object."""
    tag, strings = message[position], []
    distinct: dict[bytes, bytes] = {}
    while position < len(message) and message[position] == tag:
        value, position = _value(message, position + 1, _LENGTH)
        string = bytes(_message(value))
        strings.append(distinct.setdefault(string, string))
    return strings, position


#: Readers of lists that have a tag before each item, by field number and wire type.
_LISTS: dict[tuple[int, int], Callable[[memoryview, int], tuple[Any, int]]] = {
    (7, _FOUR_BYTES): _separate_floats,
    (8, _VARINT): _separate_varints,
    (9, _LENGTH): _separate_strings,
}

#: Readers of single values by field number.
_SINGLE: dict[int, Callable[[Any], Any]] = {
    2: _float,
    3: _signed,
    4: lambda value: bytes(_message(value)),
    5: lambda value: _tensor(_message(value)),
}
