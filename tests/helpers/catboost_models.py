"""Small CatBoost models, their data, and comparisons of models' and ensembles' margins."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.checks import assert_margin, hard_rows
from skshapgpu.adapters import adapt
from skshapgpu.adapters.schema import AdaptedModel, Column

catboost = pytest.importorskip("catboost")

#: CatBoost adds up leaf values in double precision and tree by tree, as we do, but applies the scale in
#: another order.
RTOL = 1e-13
TINY: dict[str, Any] = {
    "iterations": 8,
    "depth": 4,
    "learning_rate": 0.3,
    "thread_count": 1,
    "random_seed": 0,
    "allow_writing_files": False,
    "logging_level": "Silent",
}


def data(n_rows: int = 300, n_features: int = 5, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, n_features))
    return X, X[:, 0] * X[:, 1] + X[:, 2] + 0.1 * rng.normal(size=n_rows)


def raw(model: Any, X: Any) -> np.ndarray:
    """Predict RawFormulaVal; a ranker accepts this prediction type only through the base class."""
    return catboost.CatBoost.predict(model, X, prediction_type="RawFormulaVal")


def check(model: Any, n_rows: int = 2000) -> AdaptedModel:
    adapted = adapt(model)
    X = hard_rows(adapted.ensemble, n_rows)
    assert_margin(adapted.ensemble, X, raw(model, X), RTOL)
    return adapted


def export(model: Any, path: Path) -> dict[str, Any]:
    model.save_model(str(path), format="json")
    return json.loads(path.read_text(encoding="utf-8"))


def regressor(X: Any, y: np.ndarray, **options: Any) -> Any:
    return catboost.CatBoostRegressor(**TINY | options).fit(X, y)


CATEGORIES = ["red", "green", "", "é", "1", "0", "-7", "x" * 40]


def category_model(**options: Any) -> tuple[Any, Any]:
    """Fit a model of one numeric column and two one-hot columns; return it with the training frame."""
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    n_rows = 600
    text = rng.integers(len(CATEGORIES), size=n_rows)
    number = rng.integers(5, size=n_rows)
    x = rng.normal(size=n_rows)
    frame = pd.DataFrame({"text": np.array(CATEGORIES, object)[text], "x": x, "number": number})
    y = np.sqrt(1.0 + text) * 3 + number**2 + x * (number == 3)
    options = TINY | {"iterations": 30, "one_hot_max_size": 20} | options
    return catboost.CatBoostRegressor(cat_features=["text", "number"], **options).fit(frame, y), frame


def encoded(adapted: AdaptedModel, frame: Any, from_frame: bool = True) -> np.ndarray:
    return np.column_stack(
        [
            adapted.schema.encoders[i].encode(
                Column(name, frame[name].to_numpy(), package="pandas" if from_frame else None)
            )
            if i in adapted.schema.encoders
            else frame[name].to_numpy(float)
            for i, name in enumerate(frame)
        ]
    )
