"""XGBoost: UBJSON, and the document in it."""

from __future__ import annotations

from functools import cache
from typing import Any

import harness

from skshapgpu.adapters import _ubjson, xgboost

INSTRUMENT = ("skshapgpu.adapters._ubjson", "skshapgpu.adapters.xgboost", "skshapgpu.adapters.ensemble")


@cache
def documents() -> list[Any]:
    return [_ubjson.loads(data) for data in harness.seeds("xgboost")]


def test_one(data: bytes) -> None:
    """Treat bytes that begin like a JSON object as a file, and other bytes as edits of a corpus file."""
    n_bytes, document = len(data), None
    if data[:1] != b"{":
        choices = harness.Choices(data)
        which = choices.number(len(documents()))
        n_bytes += len(harness.seeds("xgboost")[which])
        document = harness.edited(documents()[which], choices)
    with harness.limits(n_bytes):
        adapted = xgboost.read_document(_ubjson.loads(data) if document is None else document)
        harness.explain_some(adapted, data[-1])
