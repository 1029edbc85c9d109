"""Small models of every family, their predictions, and SHAP values computed from predictions alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from math import factorial
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.utils.fixes import parse_version

from skshapgpu import Explanation, explain

FAMILIES = ["sklearn", "xgboost", "lightgbm", "catboost"]


def library(name: str) -> Any:
    return pytest.importorskip(name)


def library_with_categories(name: str) -> Any:
    """Import a library whose models keep the categories of their columns; skip the test if they do not."""
    module = library(name)
    if name == "xgboost" and parse_version(module.__version__) < parse_version("3.1"):
        pytest.skip("XGBoost keeps categories since 3.1")
    return module


def regressor(family: str, **options: Any) -> Any:
    """Return a small, unfitted regressor of a family."""
    if family == "sklearn":
        return HistGradientBoostingRegressor(max_iter=8, max_leaf_nodes=8, random_state=0, **options)
    if family == "xgboost":
        return library(family).XGBRegressor(n_estimators=8, max_depth=3, n_jobs=1, **options)
    if family == "lightgbm":
        return library(family).LGBMRegressor(n_estimators=8, num_leaves=8, verbose=-1, n_jobs=1, **options)
    return library(family).CatBoostRegressor(
        iterations=8, depth=3, verbose=False, allow_writing_files=False, thread_count=1, **options
    )


def classifier(family: str, **options: Any) -> Any:
    """Return a small, unfitted classifier of a family."""
    if family == "sklearn":
        return HistGradientBoostingClassifier(max_iter=8, max_leaf_nodes=8, random_state=0, **options)
    if family == "xgboost":
        return library(family).XGBClassifier(n_estimators=8, max_depth=3, n_jobs=1, **options)
    if family == "lightgbm":
        return library(family).LGBMClassifier(n_estimators=8, num_leaves=8, verbose=-1, n_jobs=1, **options)
    return library(family).CatBoostClassifier(
        iterations=8, depth=3, verbose=False, allow_writing_files=False, thread_count=1, **options
    )


def forest(n_trees: int = 4, max_depth: int | None = 4, **options: Any) -> RandomForestRegressor:
    """Return a small, unfitted forest of regression trees."""
    return RandomForestRegressor(n_trees, max_depth=max_depth, random_state=0, **options)


def forest_classifier(n_trees: int = 4, max_depth: int | None = 4, **options: Any) -> RandomForestClassifier:
    """Return a small, unfitted forest of classification trees."""
    return RandomForestClassifier(n_trees, max_depth=max_depth, random_state=0, **options)


def raw_prediction(model: Any, X: Any) -> np.ndarray:
    """Compute the margin with the model's own library."""
    module = type(model).__module__.partition(".")[0]
    if module == "xgboost":
        return model.predict(X, output_margin=True)
    if module == "lightgbm":
        return model.predict(X, raw_score=True)
    if module == "catboost":
        return model.predict(X, prediction_type="RawFormulaVal")
    return model.decision_function(X) if hasattr(model, "decision_function") else model.predict(X)


def assert_adds_up(model: Any, X: Any, expected: Any = None, **options: Any) -> Explanation:
    """Check that base value plus values of each row are the raw prediction, or ``expected``."""
    explanation = explain(model, X, **options)
    expected = raw_prediction(model, X) if expected is None else expected
    total = explanation.base_values + explanation.values.sum(axis=1)
    assert np.ptp(expected) > 0
    np.testing.assert_allclose(total, expected, rtol=2e-5, atol=2e-5 * np.abs(expected).max())
    return explanation


def values_by_definition(
    margin: Callable[[Any], np.ndarray], X: Any, background: Any, groups: Sequence[Sequence[str]] = ()
) -> np.ndarray:
    """Compute a frame's interventional SHAP values from the model's predictions, over all sets of groups.

    Without ``groups``, each column is a group. If margins have the shape (n_rows, n_outputs), values have the
    shape (n_rows, n_groups, n_outputs).
    """
    import pandas as pd

    players = [tuple(group) for group in groups or [[name] for name in X]]
    n, m = len(X), len(background)
    assert sorted(name for player in players for name in player) == sorted(X)
    background_rows = X.iloc[np.repeat(np.arange(n), m)].reset_index(drop=True)
    others = background.iloc[np.tile(np.arange(m), n)].reset_index(drop=True)

    def coalition_value(coalition: tuple[tuple[str, ...], ...]) -> np.ndarray:
        names = {name for player in coalition for name in player}
        mixed = pd.concat([(background_rows if name in names else others)[[name]] for name in X], axis=1)
        margins = np.asarray(margin(mixed), np.float64)
        return margins.reshape(n, m, *margins.shape[1:]).mean(axis=1)

    values = np.zeros((n, len(players), *coalition_value(()).shape[1:]))
    for i, player in enumerate(players):
        other_players = players[:i] + players[i + 1 :]
        for size in range(len(players)):
            weight = factorial(size) * factorial(len(other_players) - size) / factorial(len(players))
            for coalition in combinations(other_players, size):
                values[:, i] += weight * (coalition_value((*coalition, player)) - coalition_value(coalition))
    return values


def frame_with_categories(n_rows: int = 150) -> tuple[Any, np.ndarray]:
    """Draw colours, whose effect no threshold of their codes separates, and two numbers, one with NaN."""
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    color = rng.choice(["amber", "blue", "coral", "denim", "ebony", "fern"], n_rows)
    size, weight = rng.normal(size=(2, n_rows))
    y = np.isin(color, ["amber", "coral", "ebony"]) * (2.0 + size) + 0.5 * weight
    size[rng.random(n_rows) < 0.1] = np.nan
    return pd.DataFrame({"size": size, "color": pd.Categorical(color), "weight": weight}), y


def with_categories(family: str, X: Any, y: np.ndarray) -> Any:
    """Fit a regressor of the family to a frame whose category columns are recognized by their dtype."""
    options: dict[str, dict[str, Any]] = {
        "sklearn": {"categorical_features": "from_dtype", "min_samples_leaf": 5},
        "xgboost": {"enable_categorical": True, "tree_method": "hist", "max_cat_to_onehot": 1},
        "lightgbm": {"min_child_samples": 5, "min_data_per_group": 5, "cat_smooth": 1},
    }
    return regressor(family, **options[family]).fit(X, y)
