"""Rows in chunks, as the core gets them, and an encoder of codes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from skshapgpu._rows.inputs import read
from skshapgpu.adapters.schema import Column, InputSchema

#: Rows that float16 and every integer type hold exactly.
SMALL = np.array([[0, 1, 2], [3, 4, 5], [6, 7, 8], [120, 0, 1]])


def chunk(X: Any, schema: InputSchema | None = None, x_dtype: str = "float64") -> np.ndarray:
    """Join all rows of X from chunks of two rows."""
    rows = read(X, schema or InputSchema(3), x_dtype)
    parts = [rows.chunk(start, min(start + 2, rows.n_rows)) for start in range(0, rows.n_rows, 2)]
    return np.concatenate(parts) if parts else rows.chunk(0, 0)


class Codes:
    """Encoder that returns its input unchanged."""

    def __init__(self) -> None:
        self.columns: list[Column] = []

    def encode(self, column: Column) -> np.ndarray:
        self.columns.append(column)
        return np.arange(len(column.values), dtype=np.float64)


FRAMES = ["pandas", "polars", "pyarrow"]


def frame(package: str, columns: dict[str, Any]) -> Any:
    module = pytest.importorskip(package)
    return module.table(columns) if package == "pyarrow" else module.DataFrame(columns)
