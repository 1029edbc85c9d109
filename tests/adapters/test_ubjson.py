"""The reader of Universal Binary JSON: its results, and ValueError for hostile bytes."""

from __future__ import annotations

import json
import tracemalloc

import numpy as np
import pytest
from helpers.ubjson import TAGS, dumps, length

from skshapgpu.adapters._ubjson import loads

DOCUMENT = {
    "name": "größe",
    "": "",
    "numbers": [0, -1, 2**62, 1.5, True, False, None],
    "typed": {name: np.array([0, 1, 100], name) for name in TAGS},
    "empty": [np.empty(0, np.float32), [], {}],
}


def equal(a: object, b: object) -> bool:
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(equal(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype.newbyteorder("=") and np.array_equal(a, b)
    return type(a) is type(b) and a == b


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_round_trip(kind):
    assert equal(DOCUMENT, loads(kind(dumps(DOCUMENT))))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"i\xff", -1),
        (b"U\xff", 255),
        (b"I\xff\xfe", -2),
        (b"l\x00\x00\x01\x00", 256),
        (b"d\x3f\xc0\x00\x00", 1.5),
        (b"[i\x01i\x02]", [1, 2]),
        (b"[]", []),
        (b"[#i\x02TF", [True, False]),
        (b"{i\x01ai\x07}", {"a": 7}),
    ],
)
def test_values(data, expected):
    assert equal(expected, loads(data))


def test_typed_arrays_are_views():
    data = dumps(np.arange(1000, dtype=np.float32))
    array = loads(data)
    assert np.shares_memory(array, np.frombuffer(data, np.uint8))
    assert not array.flags.writeable


def test_every_truncation_is_refused():
    data = dumps(DOCUMENT)
    for end in range(len(data)):
        with pytest.raises(ValueError):
            loads(data[:end])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"x",
        b"N",
        b"Z ",
        b"{}{}",  # nothing, unknown markers, more than one value
        b"S" + length(-1),
        b"S" + length(2**62),
        b"Sd\x00\x00\x00\x00",
        b"SS",  # impossible lengths
        b"[#" + length(2**62),
        b"[#" + length(-1),
        b"[$d#" + length(2**62),
        b"[$d#" + length(-5),
        b"[$S#i\x01",
        b"[$Z#" + length(2**31),
        b"[$d",
        b"[$di\x01",
        b"[$#i\x01",  # typed arrays of no number
        b"{S",
        b"{i\x01a",
        b"{$i#i\x00",
        b"Si\x01\xff",  # objects without keys, no UTF-8
        b"[" * 10**5,
        b"[#i\x01" * 10**5,
        b"{i\x01a" * 10**5,  # deeper than Python's stack
    ],
)
def test_hostile_bytes_are_refused(data):
    tracemalloc.start()
    try:
        with pytest.raises(ValueError):
            loads(data)
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


def test_changed_bytes_never_crash():
    data = np.frombuffer(dumps(DOCUMENT), np.uint8)
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(3000):
        changed = data.copy()
        where = rng.integers(len(data), size=rng.integers(1, 4))
        changed[where] = rng.integers(256, size=len(where))
        try:
            loads(changed.tobytes())
        except ValueError:
            refused += 1
    assert refused > 500


def test_reads_xgboost_as_json_does():
    xgb = pytest.importorskip("xgboost")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 3))
    X[:, 2] = rng.integers(4, size=100)
    data = xgb.DMatrix(
        X,
        X[:, 0] + X[:, 2],
        feature_names=["a", "ß", "c"],
        feature_types=["float", "float", "c"],
        enable_categorical=True,
    )
    booster = xgb.train({"max_depth": 3, "tree_method": "hist"}, data, 3)
    expected = json.loads(booster.save_raw("json"))

    def plain(value):
        if isinstance(value, dict):
            return {key: plain(item) for key, item in value.items()}
        if isinstance(value, list):
            return [plain(item) for item in value]
        if isinstance(value, np.ndarray):  # JSON has the shortest digits that restore the float32
            return [float(str(x)) for x in value] if value.dtype.kind == "f" else value.tolist()
        return value

    # As text, since a categorical split's unused threshold may be NaN.
    assert json.dumps(plain(loads(booster.save_raw("ubj")))) == json.dumps(expected)
