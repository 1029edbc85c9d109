"""Data for explain_interactions, and strengths and pairs from matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris

from skshapgpu import TreeExplainer

DIABETES, PROGRESSION = load_diabetes(return_X_y=True)
IRIS, SPECIES = load_iris(return_X_y=True)
CANCER, BENIGN = load_breast_cancer(return_X_y=True)

INDICES = ("SII", "STII", "BII")


def on_cpu(model: Any, **options: Any) -> TreeExplainer:
    return TreeExplainer(model, device="cpu", **options)


#: Model, rows, and the options of the explainer.
CASES = [
    ("regressor", DIABETES, {}),
    ("multiclass", IRIS, {}),
    ("binary", CANCER, {"outputs": "all"}),
    ("regressor", DIABETES.astype(np.float32), {"precision": "double"}),
]


def whole_pairs(matrices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return all pairs of features, occurring or not, and their whole indices from matrices."""
    first, second = np.triu_indices(matrices.shape[1], 1)
    return np.column_stack([first, second]), 2 * matrices[:, first, second]


def brute_strength(values: np.ndarray) -> np.ndarray:
    return np.abs(values).reshape(*values.shape[:2], -1).sum(axis=2, dtype=float).mean(axis=0)
