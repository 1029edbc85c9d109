"""Changes of one field of a document of dicts, lists, arrays and numbers, as a reader of JSON returns it."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

#: Dtypes of typed arrays in UBJSON.
_DTYPES = ("int8", "uint8", "int16", "int32", "int64", "float32", "float64")

#: Values of another JSON type than the one that a document has.
_OTHER_TYPES: tuple[Any, ...] = (None, True, False, "", "x", [], {}, [0], 0, 1, 0.5)


class Doubled(dict[str, Any]):
    """A dict that is written with one of its keys a second time."""

    def __init__(self, members: dict[str, Any], key: str, value: Any) -> None:
        super().__init__(members)
        self.pair = (key, value)

    def items(self) -> Any:
        return [*super().items(), self.pair]


def changed(document: Any, rng: np.random.Generator) -> tuple[Any, str]:
    """Copy a document with one or two changed fields; return it, and a description of the changes."""
    document = copy.deepcopy(document)
    descriptions = [_change(document, rng) for _ in range(1 + (rng.random() < 0.25))]
    return document, "; ".join(descriptions)


def _change(document: Any, rng: np.random.Generator) -> str:
    """Change a field in place; fields of one name are drawn together, however often the name occurs."""
    places: dict[str, list[tuple[Any, Any]]] = {}
    for name, owner, key in _places(document, ""):
        places.setdefault(name, []).append((owner, key))
    name = str(rng.choice(sorted(places)))
    owner, key = places[name][rng.integers(len(places[name]))]
    value = owner[key]
    action = rng.random()
    if action < 0.08:
        del owner[key]
        return f"{name} removed"
    if action < 0.14 and isinstance(owner, dict):
        second = _other(value, document, rng)
        twin = Doubled(owner, key, second)
        if not _put(document, owner, twin):
            return _change(document, rng)
        return f"{name} doubled, the second time {second!r:.60}"
    owner[key] = _other(value, document, rng)
    return f"{name}: {value!r:.60} -> {owner[key]!r:.60}"


def _places(part: Any, name: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield the name, the owner and the key of each field and of each item of a list of fields."""
    items: Any = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
    if isinstance(part, list) and not any(isinstance(item, (dict, list, np.ndarray)) for item in part):
        return
    for key, value in list(items):
        inner = f"{name}.{key}" if isinstance(part, dict) else f"{name}[]"
        yield inner, part, key
        yield from _places(value, inner)


def _put(document: Any, old: Any, new: Any) -> bool:
    """Replace a part of the document by another; return whether the part was found."""
    for _, owner, key in list(_places(document, "")):
        if owner[key] is old:
            owner[key] = new
            return True
    return False


def _other(value: Any, document: Any, rng: np.random.Generator) -> Any:
    """Return another value for a field: most often of the same type."""
    if rng.random() < 0.12:
        return copy.deepcopy(_OTHER_TYPES[rng.integers(len(_OTHER_TYPES))])
    if isinstance(value, (bool, type(None))):
        return [0, 1, 2, "true", None, [], not value][rng.integers(7)]
    if isinstance(value, (int, float)):
        return number(value, rng)
    if isinstance(value, str):
        return string(value, rng)
    if isinstance(value, np.ndarray) and value.dtype.kind == "S":
        return value[: rng.integers(len(value) + 1)]
    if isinstance(value, np.ndarray):
        return _array(value, rng)
    if isinstance(value, list):
        return _list(value, document, rng)
    twin = dict(value)
    if twin and rng.random() < 0.5:
        twin.pop(sorted(twin)[rng.integers(len(twin))])
    else:
        twin["unknown"] = 1
    return twin


def number(value: float, rng: np.random.Generator) -> Any:
    """Return a neighbour of a number, a fraction, a huge or negative number, or a number of another type."""
    integer = int(value) if math.isfinite(value) else 0
    near: list[Any] = [value + 1, value - 1, value + 2, -value, value + 0.5, value * 2 + 3, 0, 1, -1, 2]
    far: list[Any] = [
        2**31 - 1,
        2**31,
        -(2**31),
        2**32 + integer,
        2**32 + integer + 1,
        256 + integer,
        65536 + integer,
    ]
    far += [2**63 - 1, 2**63, -(2**63), 2**64 + integer, 1e5, 1e38, 1e39, -1e39, 1e308, 1e-320, -0.0]
    odd: list[Any] = [
        str(value),
        float(value),
        integer,
        bool(integer),
        None,
        [value],
        math.nan,
        math.inf,
        -math.inf,
    ]
    choices = (near, far, odd)[rng.choice(3, p=[0.55, 0.25, 0.2])]
    return choices[rng.integers(len(choices))]


def string(value: str, rng: np.random.Generator) -> Any:
    """Return another string; a string that holds a number gets another number, or another spelling."""
    try:
        parsed = float(value)
    except ValueError:
        parsed = math.nan
    if not math.isfinite(parsed):
        twins: list[Any] = [
            "",
            value + "x",
            value[:-1],
            value.upper(),
            f" {value}",
            value + "\0",
            None,
            1,
            [value],
        ]
        return twins[rng.integers(len(twins))]
    if rng.random() < 0.3:
        twins = [f" {value}", f"{value} ", f"+{value}", f"0{value}", f"{value}.0", f"{value}_0", f"{value}x"]
        twins += [f"{value}e0", f"0x{value}", f"{value},{value}", "", "nan", "inf", parsed, int(parsed)]
        return twins[rng.integers(len(twins))]
    other = number(int(parsed) if parsed.is_integer() else parsed, rng)
    return str(other)


def _array(value: np.ndarray, rng: np.random.Generator) -> Any:
    action = rng.random()
    if action < 0.1:
        with np.errstate(all="ignore"):
            return value.astype(str(rng.choice(_DTYPES)))
    if action < 0.45 or not len(value):
        items = _list(value.tolist(), None, rng)
        if action < 0.2 or not _fits(items, value.dtype):
            return items
        with np.errstate(over="ignore"):
            return np.array(items, value.dtype)
    twin = value.copy()
    position = rng.integers(len(twin))
    for _ in range(20):
        other = number(twin[position].item(), rng)
        if _fits([other], value.dtype):
            with np.errstate(all="ignore"):
                twin[position] = other
            return twin
    return value.tolist()


def _fits(items: Any, dtype: np.dtype[Any]) -> bool:
    """Return whether an array of this dtype can hold a list of numbers."""
    if not isinstance(items, list) or not all(type(item) in (int, float) for item in items):
        return False
    if dtype.kind == "f":
        return True
    limits = np.iinfo(dtype)
    return all(type(item) is int and limits.min <= item <= limits.max for item in items)


def _list(value: list[Any], document: Any, rng: np.random.Generator) -> Any:
    """Return a list with another item, another length or another order."""
    twin = copy.deepcopy(value)
    position = int(rng.integers(max(len(twin), 1)))
    shapes: list[Callable[[], Any]] = [
        lambda: twin[:-1],
        lambda: twin[1:],
        lambda: twin[:position],
        lambda: [*twin, *twin[-1:]],
        lambda: [*twin, 0],
        lambda: [*twin[:1], *twin],
        lambda: twin + twin,
        lambda: twin[::-1],
        lambda: [twin],
        lambda: [],
        lambda: {str(i): item for i, item in enumerate(twin)},
    ]
    if not twin or rng.random() < 0.4:
        return shapes[rng.integers(len(shapes))]()
    twin[position] = _other(twin[position], document, rng)
    return twin
