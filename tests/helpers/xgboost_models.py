"""Data for XGBoost, boosters trained on it, and comparisons of models' and ensembles' margins."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from helpers.checks import assert_margin, hard_rows
from skshapgpu._rows import inputs
from skshapgpu.adapters import adapt
from skshapgpu.adapters.ensemble import Ensemble
from skshapgpu.adapters.schema import AdaptedModel

xgb = pytest.importorskip("xgboost")

VERSION = tuple(int(part) for part in xgb.__version__.split(".")[:2])
#: XGBoost adds its trees up in float32.
RTOL = 1e-5

keeps_categories = pytest.mark.skipif(VERSION < (3, 1), reason="XGBoost keeps categories since 3.1")


def data(n_rows: int = 300, n_features: int = 5, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Draw X with missing values and ties, and a target that needs interactions."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, n_features)).round(2)
    y = X[:, 0] + np.where(X[:, 1] > 0, X[:, 2], -X[:, 3]) + rng.normal(size=n_rows) * 0.1
    X[rng.random(X.shape) < 0.1] = np.nan
    return X.astype(np.float32), y


def train(
    params: dict[str, Any], label: np.ndarray, n_rounds: int = 12, X: np.ndarray | None = None, **options: Any
) -> Any:
    """Train a booster; pass options of ``xgb.train`` to it, and all other options to the matrix."""
    params = {"max_depth": 4, "eta": 0.3, "tree_method": "hist", "nthread": 1, "seed": 0} | params
    training = {key: options.pop(key) for key in ("obj", "xgb_model") if key in options}
    matrix = xgb.DMatrix(data()[0] if X is None else X, label, **options)
    return xgb.train(params, matrix, n_rounds, **training)


def document(booster: Any) -> dict[str, Any]:
    return json.loads(booster.save_raw("json"))["learner"]


def check_booster(booster: Any) -> Ensemble:
    """Check the margin of a booster with numeric features on 2,000 hard rows."""
    ensemble = adapt(booster).ensemble
    X = hard_rows(ensemble, inf=False)
    names = booster.feature_names
    expected = booster.predict(xgb.DMatrix(X, feature_names=names), output_margin=True)
    assert_margin(ensemble, X, expected, RTOL)
    return ensemble


def check_wrapper(model: Any) -> AdaptedModel:
    adapted = adapt(model)
    X = hard_rows(adapted.ensemble, inf=False)
    assert_margin(adapted.ensemble, X, model.predict(X, output_margin=True), RTOL)
    return adapted


def check_input(model: Any, X: Any) -> None:
    """Check the margin like :func:`check_wrapper`, with X as a user passes it."""
    adapted = adapt(model)
    rows = inputs.read(X, adapted.schema, adapted.ensemble.x_dtype)
    encoded = rows.chunk(0, rows.n_rows)
    assert_margin(adapted.ensemble, encoded, model.predict(X, output_margin=True), RTOL)


def category_data() -> tuple[np.ndarray, np.ndarray]:
    """Draw a column of 5 codes, one of 40, and a number."""
    rng = np.random.default_rng(0)
    X = np.stack([rng.integers(5, size=400), rng.integers(40, size=400), rng.normal(size=400)], axis=1)
    y = (X[:, 0] % 2) * 2 + np.sin(X[:, 1] * 3) * 3 + X[:, 2]
    X[rng.random(X.shape) < 0.1] = np.nan
    return X, y
