"""Friedman's H against its definition by predictions of all rows with the values of all rows."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from helpers import catboost_ctrs
from helpers.cases import data
from helpers.ensemble_model import EnsembleModel
from helpers.ensembles import leaf_scale, random_ensemble, random_rows
from helpers.own_values import fitted, own_margin
from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingRegressor, RandomForestRegressor

from skshapgpu import friedman_h
from skshapgpu._rows.inputs import read
from skshapgpu.adapters.ensemble import Ensemble


def by_definition(
    ensemble: Ensemble, X: np.ndarray, pairs: Any, weights: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Compute the mean squares of the interaction and of the joint effect, (n_outputs, n_pairs), and H²."""
    shares = np.full(len(X), 1 / len(X)) if weights is None else weights / weights.sum()

    def effect(features: tuple[int, ...]) -> np.ndarray:
        values = np.empty((len(X), ensemble.n_outputs))
        for i, row in enumerate(X):
            changed = X.copy()
            changed[:, list(features)] = row[list(features)]
            values[i] = shares @ ensemble.margin(changed)
        return values - shares @ values

    numerator, denominator = [], []
    for first, second in pairs:
        both = effect((first, second))
        numerator.append(shares @ (both - effect((first,)) - effect((second,))) ** 2)
        denominator.append(shares @ both**2)
    interaction, whole = np.array(numerator).T, np.array(denominator).T
    return interaction, whole, np.divide(interaction, whole, out=np.zeros_like(whole), where=whole > 0)


@pytest.mark.parametrize("seed", range(12))
def test_random_trees(seed: int) -> None:
    ensemble = random_ensemble(
        seed,
        n_trees=4,
        n_features=5,
        n_used=4,
        n_outputs=1 + seed % 3,
        vector=seed % 2 == 0,
        x_dtype="float64" if seed % 5 < 2 else "float32",
        strict=seed % 7 < 3,
        categorical=seed % 3 == 1,
        zero_missing=seed % 4 == 1,
    )
    X = random_rows(seed, ensemble, 40)
    weights = np.arange(40) % 4 + 0.0 if seed % 2 else None
    strengths = friedman_h(EnsembleModel(ensemble), X, range(5), sample_weight=weights)
    assert strengths.pairs.tolist() == [list(pair) for pair in combinations(range(5), 2)]
    interaction, whole, h_squared = by_definition(ensemble, X, strengths.pairs, weights)
    scale = (leaf_scale(ensemble) + np.abs(ensemble.intercept))[:, np.newaxis]
    assert (np.abs(strengths.interaction - np.sqrt(interaction)) <= 1e-12 * scale).all()
    clear = np.sqrt(whole) > 1e-6 * scale
    assert (np.abs(strengths.h_squared - h_squared)[clear] <= 1e-8).all() and clear.any()
    assert (strengths.h_squared[interaction == 0] == 0).all()


def test_of_libraries() -> None:
    """Encoded categories, missing values, classes and a target far from zero."""
    for name in ("lightgbm categories", "sklearn histograms, categories, three classes", "xgboost codes"):
        case = fitted(name)
        schema, ensemble = case.adapted.schema, case.adapted.ensemble
        strengths = friedman_h(case.model, case.X)
        rows = read(case.X, schema, ensemble.x_dtype)
        _, _, h_squared = by_definition(ensemble, rows.chunk(0, rows.n_rows), strengths.pairs)
        np.testing.assert_allclose(strengths.h_squared, h_squared, rtol=0, atol=1e-10)
        assert 0.001 < strengths.h_squared.max() < 2
    rows, y = data("number")
    model = RandomForestRegressor(5, random_state=0).fit(rows, y + 1e4)
    strengths = friedman_h(model, rows[:60], [0, 3, 5])
    assert strengths.names == [("x0", "x3"), ("x0", "x5"), ("x3", "x5")]

    def predicted(features: list[int]) -> np.ndarray:
        mean = []
        for row in rows[:60]:
            changed = rows[:60].copy()
            changed[:, features] = row[features]
            mean.append(own_margin(model, changed).mean())
        return np.array(mean) - np.mean(mean)

    both = predicted([0, 3])
    expected = np.sum((both - predicted([0]) - predicted([3])) ** 2) / np.sum(both**2)
    np.testing.assert_allclose(strengths.h_squared[0, 0], expected, rtol=1e-8)


def test_what_it_means() -> None:
    """H is 1 for the product of two centered features, and 0 without interaction or common path."""
    X = np.array(np.meshgrid(*[[-1.0, 1.0]] * 4)).reshape(4, 16).T[np.arange(160) % 16]
    model = RandomForestRegressor(3, bootstrap=False, random_state=0)
    model.fit(X, X[:, 0] * X[:, 1] + 3 * X[:, 2] + 1e4)
    strengths = friedman_h(model, X, [0, 1, 2])
    np.testing.assert_allclose(strengths.h_squared, [[1, 0, 0]], rtol=0, atol=1e-12)
    np.testing.assert_allclose(strengths.interaction, [[1, 0, 0]], rtol=0, atol=1e-9)
    stumps = HistGradientBoostingRegressor(max_iter=20, max_depth=1).fit(X, 2 * X[:, 0] + 3 * X[:, 2])
    strengths = friedman_h(stumps, X)
    assert strengths.names == [("x0", "x2")] and not strengths.h_squared.any()
    alone = friedman_h(RandomForestRegressor(2).fit(X, X[:, 1]), X)
    assert alone.names == [] and alone.pairs.shape == (0, 2) and alone.h_squared.shape == (1, 0)
    assert friedman_h(stumps, X, [3, 2]).pairs.tolist() == [[3, 2]]


def test_options() -> None:
    rows, y = data("three")
    model = GradientBoostingClassifier(n_estimators=5).fit(rows, y)
    reports: list[tuple[int, int]] = []
    full_strengths = friedman_h(model, rows)
    strengths = friedman_h(model, rows, n_jobs=3, progress=lambda *n: reports.append(n), memory_limit="50MB")
    np.testing.assert_array_equal(strengths.h_squared, full_strengths.h_squared)
    assert (
        reports[-1] == (len(full_strengths.names), len(full_strengths.names))
        and full_strengths.h_squared.shape[0] == 3
    )
    with pytest.raises(MemoryError, match=r"raise memory_limit above [0-9,]+, which any call needs"):
        friedman_h(model, rows, memory_limit=1000)
    many = np.random.default_rng(0).random((600, 2))
    deep = RandomForestRegressor(10, random_state=0).fit(many, many[:, 0] * many[:, 1])
    with pytest.raises(MemoryError, match=r"joint grid takes .* use a sample of the rows"):
        friedman_h(deep, many, memory_limit="2.5MB")
    assert friedman_h(deep, many, memory_limit="200MB").h_squared.shape == (1, 1)
    for features in ([0], [1, 1], "x0"):
        with pytest.raises(ValueError, match="at least two different features"):
            friedman_h(model, rows, features)
    with pytest.raises(TypeError, match="progress must be"):
        friedman_h(model, rows, progress=3)


def test_ctrs() -> None:
    model = catboost_ctrs.fit("regressor", iterations=20, depth=5)
    with pytest.raises(ValueError, match="a CTR of CatBoost"):
        friedman_h(model, catboost_ctrs.rows(2, 60))
