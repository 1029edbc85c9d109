"""Model files by their path: checkpoints of treelite, ONNX, the JSON of XGBoost, and other files."""

from __future__ import annotations

import json
import os
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import harness

from skshapgpu.adapters import adapt

INSTRUMENT = (
    "skshapgpu.adapters.files",
    "skshapgpu.adapters.treelite",
    "skshapgpu.adapters._treelite_checkpoint",
    "skshapgpu.adapters.onnx.chains",
    "skshapgpu.adapters.onnx.classes",
    "skshapgpu.adapters.onnx.graph",
    "skshapgpu.adapters.onnx.messages",
    "skshapgpu.adapters.onnx.model",
    "skshapgpu.adapters.onnx.splits",
    "skshapgpu.adapters.onnx.tables",
    "skshapgpu.adapters.ensemble",
)

#: First bytes of content that is used unchanged.
STARTS = (b"{", b"[", b"tree", b"\4\0\0\0", b"\x08")

FOLDER = tempfile.TemporaryDirectory()
PATH = Path(FOLDER.name) / "model"


@cache
def corpus() -> list[tuple[bytes, Any]]:
    """Return each file of the corpus, and its document if the file is JSON."""
    files = harness.seeds("model_file")
    return [(data, json.loads(data) if data[:1] == b"{" else None) for data in files]


def changed(data: bytes, choices: harness.Choices) -> bytes:
    """Truncate a file, or replace up to four numbers of one to eight bytes."""
    if choices.number(8) == 0:
        return data[: choices.number(len(data))]
    changed = bytearray(data)
    for _ in range(1 + choices.number(4)):
        at = choices.number(len(changed))
        number = choices.one_of([b"\0", b"\1", b"\xff", b"\0" * 4, b"\xff" * 4, b"\xff" * 8, b"\0\0\0\x7f"])
        changed[at : at + len(number)] = number
    return bytes(changed)


def test_one(data: bytes) -> None:
    """Treat bytes that begin like a model file as a file, and other bytes as edits of a corpus file."""
    content = data
    if not data.startswith(STARTS):
        choices = harness.Choices(data)
        seed, document = choices.one_of(corpus())
        content = changed(seed, choices)
        if document is not None:
            content = json.dumps(harness.edited(document, choices)).encode()
    if content.startswith(b"CBM1"):  # CatBoost itself reads these, in a process of its own
        return
    PATH.write_bytes(content)
    with harness.limits(len(content)):
        harness.explain_some(adapt(os.fspath(PATH)), data[-1])
