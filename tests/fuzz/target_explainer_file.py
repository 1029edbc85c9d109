"""Explainer files: call ``TreeExplainer.load`` and, if that succeeds, explain a row."""

from __future__ import annotations

import os
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import harness
import numpy as np

from skshapgpu import TreeExplainer
from skshapgpu._files import saving, storage

INSTRUMENT = (
    "skshapgpu._files.storage",
    "skshapgpu._files.saving",
    "skshapgpu.adapters.schema",
    "skshapgpu.adapters.ensemble",
)

#: In memory, if the system has a file system there.
_FOLDER = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


@cache
def path() -> Path:
    return Path(tempfile.mkdtemp(dir=_FOLDER)) / "file"


@cache
def contents() -> list[tuple[dict[str, Any], dict[str, np.ndarray]]]:
    return [storage.read(file, verify=True) for file in sorted((harness.CORPUS / "explainer_file").iterdir())]


def test_one(data: bytes) -> None:
    """Treat bytes that begin like a ZIP archive as a file, and other bytes as edits with right checksums.

    The digest of edited trees is right, too.
    """
    path().unlink(missing_ok=True)  # a file with arbitrary bytes would not be replaced
    if data[:2] == b"PK":
        path().write_bytes(data)
    else:
        choices = harness.Choices(data)
        header, arrays = choices.one_of(contents())
        arrays = {name: np.array(array) for name, array in arrays.items()}
        header = {name: value for name, value in header.items() if name != "arrays"}
        content = harness.edited({"header": header, "arrays": arrays}, choices)
        try:
            header, arrays = dict(content["header"]), content["arrays"]
            header["digest"] = saving._digest(saving._Unpacker(arrays).unpack(header["ensemble"]))
            storage.write(path(), header, arrays)
        except (LookupError, TypeError, ValueError, AttributeError):
            return  # values that JSON or ZIP cannot store
    with harness.limits(path().stat().st_size):
        explainer = TreeExplainer.load(path(), device="cpu", n_jobs=1, memory_limit=2**28, verify=True)
        if explainer.n_features > 2**10:
            return
        X = np.zeros((2, explainer.n_features))
        X[1:] = np.nan
        try:
            explainer.shap_values(X)
        except RuntimeError as error:  # tables of other numbers, which no check can detect
            if "additivity check failed" not in str(error):
                raise
