"""Partial dependence and ICE of random trees against their definition by predictions of changed rows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest
from helpers.ensembles import (
    ORDERS,
    SHAPES,
    full_tree,
    leaf_scale,
    random_ensemble,
    random_rows,
    random_weights,
)
from helpers.kernels import assert_within, interrupted

from skshapgpu import _core
from skshapgpu.adapters.ensemble import Ensemble, Tree, attributes_of


def drawn(seed: int, max_leaves: int = 16) -> Ensemble:
    """Draw trees with few features, so that features repeat on paths; the rules depend on the seed."""
    return random_ensemble(
        seed,
        n_trees=4,
        n_features=6,
        n_used=2 + seed % 4,
        n_outputs=1 + seed % 3,
        vector=seed % 4 == 0,
        shapes=SHAPES if seed % 2 else ("oblivious", "random"),
        max_leaves=max_leaves,
        order=ORDERS[seed % 3],
        x_dtype="float64" if seed % 5 < 2 else "float32",
        strict=seed % 7 < 3,
        categorical=seed % 3 == 1,
        zero_missing=seed % 4 == 1,
    )


def by_definition(
    ensemble: Ensemble, X: np.ndarray, columns: Sequence[Sequence[int]], points: Sequence[np.ndarray]
) -> np.ndarray:
    """Predict all rows with each point of the grid in them: (n_outputs, n_rows, ...)."""
    values = np.empty((ensemble.n_outputs, len(X), *(len(each) for each in points)))
    for at in product(*(range(len(each)) for each in points)):
        changed = X.copy()
        for of_axis, of_points, i in zip(columns, points, at):
            changed[:, list(of_axis)] = of_points[i, list(of_axis)]
        values[(slice(None), slice(None), *at)] = ensemble.margin(changed).T
    return values


def compiled(ensemble: Ensemble, columns: Sequence[Sequence[int]], points: Sequence[np.ndarray]) -> Any:
    return _core.DependentTrees(attributes_of(ensemble), list(zip(map(list, columns), points)))


def average(trees: Any, X: np.ndarray, weights: np.ndarray | None = None, n_threads: int = 1) -> np.ndarray:
    weight_at = np.zeros(trees.info()["n_leaves"])
    trees.add_weights(X, weights, weight_at, n_threads)
    return trees.average(weight_at, len(X) if weights is None else weights.sum())


def tolerance(ensemble: Ensemble, n_axes: int) -> np.ndarray:
    """Return the tolerance of each output, for arrays whose first axis is the outputs."""
    return 1e-13 * (leaf_scale(ensemble) + np.abs(ensemble.intercept)).reshape(-1, *[1] * n_axes)


@pytest.mark.parametrize("first", range(0, 120, 20))
def test_random_trees(first: int) -> None:
    """Curves of 120 ensembles for each feature, for pairs, for joint columns, and for no feature."""
    rng = np.random.default_rng(first)
    for seed in range(first, first + 20):
        ensemble = drawn(seed)
        X, points = random_rows(seed, ensemble, 70 + seed), random_rows(seed + 500, ensemble, 9)
        weights = random_weights(seed, len(X)) * 3 if seed % 2 else None
        pair = rng.permutation(6)
        for columns in (
            [],
            *([[f]] for f in range(6)),
            [pair[:1], pair[1:2]],
            [pair[:2]],
            [pair[:2], pair[2:5]],
        ):
            grid = [points[: 9 - 2 * len(columns)]] * len(columns)
            expected = by_definition(ensemble, X, columns, grid)
            trees = compiled(ensemble, columns, grid)
            result = trees.individual(X)
            what = f"seed {seed}, columns {columns}"
            assert_within(result, expected, tolerance(ensemble, len(columns) + 1), f"ICE of {what}")
            mean = np.average(expected, axis=1, weights=weights)
            assert_within(average(trees, X, weights), mean, tolerance(ensemble, len(columns)), what)


def test_large_trees() -> None:
    """Trees of more than 512 inner nodes, whose rows are divided at each node, and smaller ones."""
    n_large = n_small = 0
    for seed in range(12):
        ensemble = drawn(seed, 3000)
        n_inner = np.add.reduceat(ensemble.left >= 0, ensemble.tree_offsets[:-1])
        n_large, n_small = n_large + (n_inner > 600).sum(), n_small + (n_inner < 400).sum()
        X, points = random_rows(seed, ensemble, 150), random_rows(seed + 500, ensemble, 6)
        weights = random_weights(seed, len(X)) if seed % 2 else None
        for columns in ([[0]], [[3]], [[5], [1]]):
            grid = [points] * len(columns)
            expected = by_definition(ensemble, X, columns, grid)
            trees = compiled(ensemble, columns, grid)
            allowed, what = tolerance(ensemble, len(columns)), f"seed {seed}, columns {columns}"
            assert_within(trees.individual(X), expected, allowed[:, np.newaxis], f"ICE of {what}")
            mean = np.average(expected, axis=1, weights=weights)
            assert_within(average(trees, X, weights), mean, allowed, what)
    assert n_large > 10 and n_small > 10


@pytest.mark.parametrize("max_leaves", [16, 3000])
@pytest.mark.parametrize("seed", [0, 1, 4])
def test_threads_and_parts_do_not_change_bits(seed: int, max_leaves: int) -> None:
    ensemble = drawn(seed, max_leaves)
    X, points = random_rows(seed, ensemble, 5000), random_rows(seed + 500, ensemble, 30)
    weights = random_weights(seed, len(X))
    trees = compiled(ensemble, [[1], [2]], [points, points])
    few = compiled(ensemble, [[1]], [points])
    whole, of_rows, equal = average(trees, X, weights), few.individual(X), average(trees, X)
    for n_threads in (2, 3, 64):
        np.testing.assert_array_equal(average(trees, X, weights, n_threads), whole)
        np.testing.assert_array_equal(few.individual(X, n_threads), of_rows)
    np.testing.assert_array_equal(few.individual(X[777:1001]), of_rows[:, 777:1001])
    for of_rows_given, expected, total in ((None, equal, len(X)), (weights, whole, weights.sum())):
        parts = np.zeros(trees.info()["n_leaves"])
        for part in (slice(17), slice(17, 4500), slice(4500, None)):
            given = None if of_rows_given is None else of_rows_given[part]
            trees.add_weights(np.asfortranarray(X[part]), given, parts, 2)
        np.testing.assert_array_equal(trees.average(parts, total), expected)
    mean = average(few, X, weights)
    of_leaves = np.average(of_rows, axis=1, weights=weights)
    assert_within(mean, of_leaves, tolerance(ensemble, 1), "average of ICE")


def test_more_thresholds_than_16_bits() -> None:
    """A chain of 70,000 nodes: codes are 32-bit numbers, and a leaf's region is one of 70,001 cells."""
    n = 70_000
    left, right = np.full(2 * n + 1, -1), np.full(2 * n + 1, -1)
    left[:-1:2], right[:-1:2] = np.arange(1, 2 * n, 2), np.arange(2, 2 * n + 1, 2)
    chain = Tree(
        left=left,
        right=right,
        feature=np.where(left >= 0, np.arange(2 * n + 1) // 2 % 2, 0),
        threshold=np.arange(2 * n + 1) / 4.0,
        missing_left=np.zeros(2 * n + 1, bool),
        cover=np.zeros(2 * n + 1),
        value=np.where(left >= 0, 0.0, np.arange(2 * n + 1) % 7 + 1e3),
    )
    other = full_tree(np.random.default_rng(1), 4, 3)
    single = Ensemble.from_trees([chain, other], n_features=3, intercept=1.0, x_dtype="float64")
    X = np.random.default_rng(2).uniform(0, 3e4, (40, 3))
    X[::9, 0] = np.nan
    points = np.random.default_rng(3).uniform(0, 4e4, (20, 3))
    points[3] = np.nan
    columns = [[0], [1]]
    expected = by_definition(single, X, columns, [points[:4], points[:5]])
    trees = compiled(single, columns, [points[:4], points[:5]])
    np.testing.assert_allclose(trees.individual(X), expected, rtol=0, atol=1e-10)
    np.testing.assert_allclose(average(trees, X), expected.mean(axis=1), rtol=0, atol=1e-10)


def test_cells_are_points_that_trees_cannot_tell_apart() -> None:
    tree = Tree([1, -1, -1], [2, -1, -1], [0] * 3, [0.5] * 3, [False] * 3, np.ones(3), [0.0, 1, 2])
    ensemble = Ensemble.from_trees([tree], n_features=2, intercept=0.0)
    points = np.array([[0.0, 9], [1, 9], [0.5, 8], [np.nan, 7], [7, 7]])
    trees = compiled(ensemble, [[0]], [points])
    np.testing.assert_array_equal(trees.cells(0), [0, 1, 0, 2, 1])
    with pytest.raises(IndexError, match="no such axis"):
        trees.cells(1)
    np.testing.assert_array_equal(compiled(ensemble, [[1]], [points]).cells(0), 0)
    np.testing.assert_array_equal(trees.leaf_magnitude, [0.5])


def test_columns_that_trees_test() -> None:
    ensemble = random_ensemble(8, n_trees=6, n_features=20, n_used=4, zero_missing=True)
    X, points = random_rows(8, ensemble, 100), random_rows(9, ensemble, 5)
    tested = np.unique(ensemble.feature[ensemble.left >= 0])
    assert 1 < len(tested) < 5
    trees = compiled(ensemble, [tested[:1]], [points])
    np.testing.assert_array_equal(trees.individual(X[:, tested]), trees.individual(X))


def test_without_trees_and_huge_leaves() -> None:
    ensemble = random_ensemble(0, n_trees=0, n_features=3)
    trees = compiled(ensemble, [[0]], [np.zeros((2, 3))])
    np.testing.assert_array_equal(average(trees, np.zeros((4, 3))), np.full((1, 2), ensemble.intercept[0]))
    leaf = Tree([-1], [-1], [0], [0.0], [False], [1.0], [1.5e308])
    huge = Ensemble.from_trees([leaf], n_features=3, intercept=-1e308)
    np.testing.assert_allclose(average(compiled(huge, [], []), np.zeros((4, 3))), 5e307)


def test_ends_when_interrupted() -> None:
    tree = full_tree(np.random.default_rng(26), 12, 4)
    ensemble = Ensemble.from_trees([tree] * 50, n_features=4, intercept=0)
    X = np.random.default_rng(26).random((2_000_000, 4), np.float32)
    trees = compiled(ensemble, [[0]], [X[:50]])
    with interrupted(0.2):
        average(trees, X, n_threads=2)
    with interrupted(0.2):
        trees.individual(X[:300_000], 2)


@pytest.mark.parametrize(
    "change, error, message",
    [
        ({"axes": [([0], np.zeros((4, 4)))]}, ValueError, "points must have shape"),
        ({"axes": [([0], np.zeros((0, 5)))]}, ValueError, "at least one point"),
        ({"axes": [([0], np.zeros((4, 5), int))]}, TypeError, "points must be float32 or float64"),
        ({"axes": [([i], np.zeros((1, 5))) for i in range(3)]}, ValueError, "at most two axes"),
        ({"axes": [([0, 1], np.zeros((1, 5))), ([1], np.zeros((1, 5)))]}, ValueError, "different columns"),
        ({"n_threads": 0}, ValueError, "n_threads must be at least 1"),
    ],
)
def test_wrong_grids(change: dict[str, Any], error: type[Exception], message: str) -> None:
    arguments = {"ensemble": attributes_of(random_ensemble(1, n_features=5)), "axes": [], "n_threads": 1}
    with pytest.raises(error, match=message):
        _core.DependentTrees(**arguments | change)


@pytest.mark.parametrize(
    "change, error, message",
    [
        ({"X": np.zeros((4, 4))}, ValueError, "X must have shape"),
        ({"X": np.zeros((4, 5), int)}, TypeError, "X must be float32 or float64"),
        ({"weights": np.ones(3)}, ValueError, "weights must be contiguous, one for each row"),
        ({"weights": np.ones(8)[::2]}, ValueError, "weights must be contiguous"),
        ({"weights": np.ones(4, np.float32)}, TypeError, "weights must be float64"),
        ({"weights": [1.0] * 4}, TypeError, "weights must be float64"),
        ({"weight_at": np.zeros(1)}, ValueError, "weight_at has a wrong shape"),
        ({"weight_at": None}, TypeError, "weight_at must be a float64 array"),
        ({"n_threads": 0}, ValueError, "n_threads must be at least 1"),
    ],
)
def test_wrong_arguments(change: dict[str, Any], error: type[Exception], message: str) -> None:
    trees = _core.DependentTrees(attributes_of(random_ensemble(1, n_features=5)), [])
    weight_at = np.zeros(trees.info()["n_leaves"])
    arguments = {"X": np.zeros((4, 5)), "weights": np.ones(4), "weight_at": weight_at, "n_threads": 1}
    with pytest.raises(error, match=message):
        trees.add_weights(**arguments | change)
