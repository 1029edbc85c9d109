"""A writer of Universal Binary JSON as XGBoost writes it."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

TAGS = {"int8": "i", "uint8": "U", "int16": "I", "int32": "l", "int64": "L", "float32": "d", "float64": "D"}


def length(n: int) -> bytes:
    return b"L" + struct.pack(">q", n)


def dumps(value: Any) -> bytes:
    """Write Universal Binary JSON as XGBoost does: NumPy arrays as typed arrays, lists as counted arrays."""
    if value is None:
        return b"Z"
    if isinstance(value, bool):
        return b"T" if value else b"F"
    if isinstance(value, int):
        return length(value)
    if isinstance(value, float):
        return b"D" + struct.pack(">d", value)
    if isinstance(value, str):
        return b"S" + length(len(value.encode())) + value.encode()
    if isinstance(value, np.ndarray):
        tag = TAGS[value.dtype.name].encode()
        return b"[$" + tag + b"#" + length(len(value)) + value.astype(value.dtype.newbyteorder(">")).tobytes()
    if isinstance(value, list):
        return b"[#" + length(len(value)) + b"".join(map(dumps, value))
    members = [length(len(k.encode())) + k.encode() + dumps(v) for k, v in value.items()]
    return b"{" + b"".join(members) + b"}"
