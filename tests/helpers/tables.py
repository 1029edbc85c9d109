"""Data frames of scikit-learn's data sets."""

from __future__ import annotations

from typing import Any

import pytest
from sklearn.datasets import load_diabetes


def diabetes_frame(*, labelled: bool = False) -> tuple[Any, Any]:
    """Return the diabetes data with row labels, and the targets as an array or with the same labels."""
    pytest.importorskip("pandas")
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    X.index = y.index = [f"patient {i}" for i in range(len(X))]
    return X, y if labelled else y.to_numpy()
