"""Rows for tests of X on a GPU, and models whose X is an array of codes."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor

from .families import library

#: Kinds of models with categories that accept arrays.
CODES = ["sklearn", "xgboost", "lightgbm", "catboost"]


class OnGpu:
    """Array that claims to be on a GPU, and whose numbers are never read."""

    __cuda_array_interface__ = {"shape": (3, 10), "typestr": "<f8", "data": (0, True), "version": 3}  # noqa: RUF012


@cache
def code_models(kind: str) -> tuple[Any, np.ndarray]:
    """Return a fitted model, and rows of integers in which columns 1 and 3 hold categories."""
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 9, (250, 4))
    rows[:, 3] *= 3  # categories are not their positions
    order = np.array([5.0, 0.0, 7.0, 1.0, 6.0, 2.0, 8.0, 3.0, 4.0])
    y = order[rows[:, 1]] + 0.5 * rows[:, 0] + 0.3 * rows[:, 2] * (order[rows[:, 3] // 3] > 4) + 100.0
    if kind == "sklearn":
        model = HistGradientBoostingRegressor(max_iter=6, categorical_features=[1, 3], min_samples_leaf=3)
        return model.fit(rows, y), rows
    if kind == "xgboost":
        options = {"enable_categorical": True, "max_cat_to_onehot": 1, "n_jobs": 1}
        model = library(kind).XGBRegressor(n_estimators=6, max_depth=4, feature_types=list("qcqc"), **options)
        return model.fit(rows, y), rows
    if kind == "lightgbm":
        options = {
            "min_child_samples": 3,
            "min_data_per_group": 3,
            "cat_smooth": 1,
            "verbose": -1,
            "n_jobs": 1,
        }
        return library(kind).LGBMRegressor(n_estimators=6, **options).fit(
            rows, y, categorical_feature=[1, 3]
        ), rows
    options = {"one_hot_max_size": 20, "verbose": 0, "allow_writing_files": False, "thread_count": 1}
    return library(kind).CatBoostRegressor(iterations=8, depth=4, **options).fit(
        rows, y, cat_features=[1, 3]
    ), rows


def numbers_of_categories(rows: np.ndarray) -> np.ndarray:
    """Return rows whose categories are numbers, some of them missing, negative, unknown or not integers."""
    rows = rows.astype(np.float64)
    for column in (1, 3):
        rows[column::20, column] = np.resize([np.nan, -1.0, -0.5, 2.7, 99.0, -0.0, 70_000.0, 1e20], 13)[
            : len(rows[column::20])
        ]
    rows[::17, 0] = np.nan
    return rows
