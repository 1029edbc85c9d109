"""CatBoost models with CTRs, their rows, and CatBoost's own margins and values."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from skshapgpu import TreeExplainer
from skshapgpu._rows.inputs import read
from skshapgpu.adapters import adapt
from skshapgpu.adapters.schema import AdaptedModel

catboost = pytest.importorskip("catboost")
pd = pytest.importorskip("pandas")

OPTIONS = {
    "iterations": 40,
    "depth": 5,
    "learning_rate": 0.3,
    "thread_count": 1,
    "random_seed": 0,
    "one_hot_max_size": 3,
    "max_ctr_complexity": 4,
    "model_size_reg": 0,  # otherwise few combinations are found worth their size
    "allow_writing_files": False,
    "logging_level": "Silent",
}
N_ROWS = 600
CATEGORIES = ["colour", "number", "shape", "letter"]


def rows(seed: int = 0, n_rows: int = N_ROWS, *, nan: bool = False) -> Any:
    """Draw four categorical columns, the third small enough for one-hot splits, and two numbers."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "colour": rng.choice(["red", "green", "blue", "é漢", "", "x" * 70, "1", "0"], n_rows),
            "x": rng.normal(size=n_rows),
            "number": rng.integers(-5, 20, n_rows),
            "shape": rng.choice(["round", "flat", "none"], n_rows),
            "letter": rng.choice(list("abcdef"), n_rows),
            "z": rng.choice([0.0, 1.0, 2.5], n_rows),
        }
    )
    if nan:
        frame.loc[rng.random(n_rows) < 0.3, "x"] = np.nan
        frame.loc[rng.random(n_rows) < 0.2, "z"] = np.nan
    return frame


def target(frame: Any) -> np.ndarray:
    """Draw a target that depends on single columns and on combinations of up to four, some with numbers."""
    colour = frame["colour"].map({c: i for i, c in enumerate(["red", "green", "blue", "é漢", "", "1", "0"])})
    colour, letter = colour.fillna(9).to_numpy(), frame["letter"].map(ord).to_numpy()
    signs = np.where(letter % 2, 1.0, -1.0) * np.where(frame["shape"] == "flat", 1.0, -0.5)
    number = frame["number"].to_numpy()
    return (
        (colour % 3 - 1) * (number % 4 - 1.5) * signs + (frame["x"].fillna(1) > 0) * (letter % 3) + colour / 4
    )


def unseen(frame: Any) -> Any:
    """Return rows with categories unseen in training, numbers on borders, and non-finite numbers."""
    frame = frame.copy()
    frame.loc[::7, "colour"] = "new"
    frame.loc[::5, "number"] = 1000
    frame.loc[::11, "shape"] = "unknown"
    frame.loc[::13, "letter"] = "zz"
    frame.loc[::6, "x"] = np.nan
    frame.loc[1::17, "x"] = np.inf
    frame.loc[2::17, "x"] = -np.inf
    return frame


def fit(
    kind: str = "regressor", frame: Any = None, y: np.ndarray | None = None, fit: Any = None, **options: Any
) -> Any:
    frame = rows() if frame is None else frame
    y = target(frame) if y is None else y
    if kind == "classes":
        y = np.digitize(y, [-1, 1])
    elif kind == "binary":
        y = (y > 0).astype(int)
    cls = catboost.CatBoostRegressor if kind == "regressor" else catboost.CatBoostClassifier
    return cls(cat_features=CATEGORIES, **OPTIONS | options).fit(frame, y, **fit or {})


def encoded(adapted: AdaptedModel, X: Any) -> np.ndarray:
    return read(X, adapted.schema, adapted.ensemble.x_dtype).chunk(0, len(X))


def raw(model: Any, X: Any) -> np.ndarray:
    return catboost.CatBoost.predict(model, X, prediction_type="RawFormulaVal").reshape(len(X), -1)


def own_values(model: Any, X: Any) -> np.ndarray:
    """Return CatBoost's ShapValues without the base value; the outputs are the last axis."""
    pool = catboost.Pool(X, cat_features=CATEGORIES)
    values = model.get_feature_importance(pool, type="ShapValues")[..., :-1]
    return values if values.ndim == 2 else values.swapaxes(1, 2)


def shares(adapted: AdaptedModel) -> np.ndarray:
    """Return the share of each player that each column of X receives."""
    n = adapted.schema.n_features
    matrix = np.zeros((adapted.ensemble.n_players, n))
    matrix[range(n), range(n)] = 1
    for player, columns in enumerate(adapted.shared, n):
        matrix[player, list(columns)] = 1 / len(columns)
    return matrix


def assert_margin(model: Any, X: Any) -> AdaptedModel:
    adapted = adapt(model)
    assert adapted.schema.derived is not None
    expected = raw(model, X)
    margin = adapted.ensemble.margin(encoded(adapted, X))
    np.testing.assert_allclose(margin, expected, rtol=0, atol=1e-12 * np.abs(expected).max())
    return adapted


def assert_values(model: Any, X: Any) -> AdaptedModel:
    """Check margins and values against CatBoost's, in both precisions."""
    adapted = assert_margin(model, X)
    expected = own_values(model, X)
    scale = np.abs(expected).max()
    assert (np.abs(expected).max(axis=0) > 1e-6 * scale).any()
    precision: Any
    for precision, tolerance in (("double", 1e-12), ("single", 2e-6)):
        values = TreeExplainer(model, precision=precision).shap_values(X)
        np.testing.assert_allclose(values, expected, rtol=0, atol=tolerance * scale)
    return adapted


def ctr_types(model: Any, folder: Path) -> set[tuple[str, int]]:
    """Return the type and the number of elements of each CTR of the export."""
    ctrs = export(model, folder)["features_info"]["ctrs"]
    return {(ctr["ctr_type"], len(ctr["elements"])) for ctr in ctrs}


def export(model: Any, folder: Path) -> dict[str, Any]:
    path = folder / "model.json"
    model.save_model(str(path), format="json")
    return json.loads(path.read_text(encoding="utf-8"))


def edited_model(model: Any, folder: Path, edit: Callable[[dict[str, Any]], None]) -> Any:
    document = export(model, folder)
    edit(document)
    path = folder / "edited.json"
    path.write_text(json.dumps(document))
    return catboost.CatBoostRegressor().load_model(str(path), format="json")


SEVERAL = ["Borders:TargetBorderCount=1", "Borders:TargetBorderCount=3:TargetBorderType=Uniform"]
