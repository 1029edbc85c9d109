"""Fitted models of every family, rows to explain, and the same rows encoded for the models' trees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_diabetes
from sklearn.ensemble import (
    BaggingRegressor,
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    IsolationForest,
    RandomForestRegressor,
)
from sklearn.tree import DecisionTreeRegressor

from skshapgpu._rows.inputs import read
from skshapgpu.adapters import adapt
from skshapgpu.adapters.ensemble import Ensemble

X, Y = load_diabetes(return_X_y=True)
CLASSES = np.digitize(Y, [100, 180])
MISSING = np.where(np.random.default_rng(0).random(X.shape) < 0.15, np.nan, X)
#: The second column holds categories.
CATEGORIES = np.where(np.arange(10) == 1, np.digitize(X[:, 2], np.linspace(-0.1, 0.1, 7))[:, None], X)


def _xgboost(classes: bool = False, **options: Any) -> tuple[Any, np.ndarray]:
    xgboost = pytest.importorskip("xgboost")
    kind = xgboost.XGBClassifier if classes else xgboost.XGBRegressor
    model = kind(n_estimators=6, max_depth=5, n_jobs=1, **options)
    return model.fit(MISSING, CLASSES if classes else Y), MISSING


def _xgboost_categories() -> tuple[Any, np.ndarray]:
    xgboost = pytest.importorskip("xgboost")
    types = ["c" if column == 1 else "q" for column in range(10)]
    matrix = xgboost.DMatrix(CATEGORIES, Y, feature_types=types, enable_categorical=True)
    return xgboost.train({"max_depth": 5, "nthread": 1, "max_cat_to_onehot": 1}, matrix, 6), CATEGORIES


def _lightgbm(classes: bool = False) -> tuple[Any, np.ndarray]:
    lightgbm = pytest.importorskip("lightgbm")
    kind = lightgbm.LGBMClassifier if classes else lightgbm.LGBMRegressor
    model = kind(n_estimators=6, n_jobs=1, verbose=-1)
    rows = MISSING if classes else CATEGORIES
    options = {} if classes else {"categorical_feature": [1]}
    return model.fit(rows, CLASSES if classes else Y, **options), rows


def _catboost(classes: bool = False, **options: Any) -> tuple[Any, np.ndarray]:
    catboost = pytest.importorskip("catboost")
    kind = catboost.CatBoostClassifier if classes else catboost.CatBoostRegressor
    model = kind(iterations=6, depth=5, verbose=0, thread_count=1, allow_writing_files=False, **options)
    return model.fit(MISSING, CLASSES if classes else Y), MISSING


def _hist(classes: bool) -> tuple[Any, np.ndarray]:
    if classes:
        return HistGradientBoostingClassifier(max_iter=4).fit(MISSING, CLASSES), MISSING
    return HistGradientBoostingRegressor(max_iter=6, categorical_features=[1]).fit(CATEGORIES, Y), CATEGORIES


MODELS: dict[str, Callable[[], tuple[Any, np.ndarray]]] = {
    "tree": lambda: (DecisionTreeRegressor(max_depth=8, random_state=0).fit(X, Y), X),
    "forest": lambda: (RandomForestRegressor(4, max_depth=7, random_state=0).fit(X, Y), X),
    "extra trees, vector leaves": lambda: (
        ExtraTreesClassifier(4, max_depth=6, random_state=0).fit(X, CLASSES),
        X,
    ),
    "bagging": lambda: (BaggingRegressor(n_estimators=3, random_state=0).fit(X, Y), X),
    "isolation forest": lambda: (IsolationForest(n_estimators=5, random_state=0).fit(X), X),
    "gradient boosting": lambda: (
        GradientBoostingClassifier(n_estimators=4, random_state=0).fit(X, CLASSES),
        X,
    ),
    "hist, categories": lambda: _hist(False),
    "hist, classes": lambda: _hist(True),
    "xgboost": _xgboost,
    "xgboost, classes": lambda: _xgboost(True),
    "xgboost, categories": _xgboost_categories,
    "xgboost, dart": lambda: _xgboost(booster="dart", rate_drop=0.3),
    "lightgbm, categories": _lightgbm,
    "lightgbm, classes": lambda: _lightgbm(True),
    "catboost": _catboost,
    "catboost, classes": lambda: _catboost(True),
    "catboost, lossguide": lambda: _catboost(grow_policy="Lossguide"),
}


def as_trees_see_them(model: Any, rows: np.ndarray) -> tuple[Ensemble, np.ndarray]:
    """Return the model's ensemble, and the rows with categories encoded as the trees compare them."""
    adapted = adapt(model)
    encoded = read(rows, adapted.schema, adapted.ensemble.x_dtype).chunk(0, len(rows))
    return adapted.ensemble, encoded


def outputs_second(values: np.ndarray, n_axes: int) -> np.ndarray:
    return values[:, np.newaxis] if values.ndim == n_axes else np.moveaxis(values, -1, 1)
