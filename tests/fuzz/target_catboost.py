"""CatBoost: its JSON export."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import harness
import numpy as np

from skshapgpu.adapters.catboost import model as catboost
from skshapgpu.adapters.catboost.ctr import CtrColumns
from skshapgpu.adapters.schema import Column
from skshapgpu.errors import UnsupportedModelError

INSTRUMENT = (
    "skshapgpu.adapters.catboost.model",
    "skshapgpu.adapters.catboost.trees",
    "skshapgpu.adapters.catboost.ctr_reader",
    "skshapgpu.adapters.catboost.ctr",
    "skshapgpu.adapters.ensemble",
)


@cache
def documents() -> list[Any]:
    return [json.loads(data) for data in harness.seeds("catboost")]


def test_one(data: bytes) -> None:
    """Treat bytes that begin like a JSON object as a file, and other bytes as edits of a corpus file."""
    if data[:1] == b"{":
        try:
            document = json.loads(data)
        except (ValueError, RecursionError):
            return
        n_bytes = len(data)
    else:
        choices = harness.Choices(data)
        which = choices.number(len(documents()))
        n_bytes = len(data) + len(harness.seeds("catboost")[which])
        document = harness.edited(documents()[which], choices)
    with harness.limits(n_bytes):
        try:
            parts = catboost.read_document(document, 3)
        except UnsupportedModelError:
            return
        if parts.derived is not None:
            fill(parts.derived)
        harness.explain_some(harness.adapted_from(parts.ensemble), data[-1])


def fill(derived: CtrColumns) -> None:
    if derived.n_features <= 100:
        column = Column("any", np.array(["k0", "k1", 7], object))
        block = np.zeros((3, derived.n_features + derived.n_columns), np.float32)
        derived.fill(block, dict.fromkeys(derived.encoded, column))
