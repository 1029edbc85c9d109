"""Data and model files for the tests of the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor

from helpers.families import library, regressor

X, Y = load_diabetes(return_X_y=True, as_frame=False)
NAMES = ("age", "sex", "bmi", "bp", "s1", "s2", "s3", "s4", "s5", "s6")


def frame() -> Any:
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame(X, columns=list(NAMES), copy=True)  # pandas 2 would share the memory of X


def model_file(family: str, folder: Path, frame_names: bool = False) -> tuple[Any, Path]:
    """Write a small model of a family to a file; return both."""
    data = frame() if frame_names else X
    if family == "treelite":
        sklearn = pytest.importorskip("treelite.sklearn")
        model = sklearn.import_model(RandomForestRegressor(3, max_depth=3, random_state=0).fit(X, Y))
        model.serialize(folder / "model.tl")
        return model, folder / "model.tl"
    library(family)
    model = regressor(family).fit(data, Y)
    path = folder / {"xgboost": "model.ubj", "lightgbm": "model.txt", "catboost": "model.json"}[family]
    if family == "lightgbm":
        model.booster_.save_model(str(path))
    elif family == "catboost":
        model.save_model(str(path), format="json")
    else:
        model.save_model(path)
    return model, path
