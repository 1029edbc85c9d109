"""Covers counted from data: random trees against the definition, and the core's function."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.covers import counted
from helpers.ensemble_model import EnsembleModel
from helpers.ensembles import (
    ORDERS,
    SHAPES,
    full_tree,
    hard_ensemble,
    leaf_scale,
    oblivious_tree,
    random_ensemble,
    random_rows,
    random_weights,
)
from helpers.instruction_sets import each_set, run_again
from helpers.kernels import TOLERANCE, assert_within, interrupted

from skshapgpu import TreeExplainer, _core, reference
from skshapgpu.adapters.ensemble import Ensemble, Tree, attributes_of


def explainer_of(ensemble: Ensemble, data: Any, weights: Any = None, **options: Any) -> TreeExplainer:
    return TreeExplainer(
        EnsembleModel(ensemble),
        data,
        feature_perturbation="tree_path_dependent",
        data_weight=weights,
        device="cpu",
        **options,
    )


def leaf_weights(
    ensemble: Ensemble, X: np.ndarray, weights: np.ndarray | None = None, n_threads: int = 1
) -> np.ndarray:
    values = np.zeros(ensemble.n_nodes)
    weights = np.ones(len(X)) if weights is None else weights
    _core.add_leaf_weights(attributes_of(ensemble), X, weights, values, n_threads)
    return values


def drawn(seed: int) -> Ensemble:
    """Draw five trees with few features, so that features repeat on paths; the rules depend on the seed."""
    return random_ensemble(
        seed,
        n_trees=5,
        n_features=9,
        n_used=1 + seed % 6,
        n_outputs=1 + seed % 3,
        vector=seed % 4 == 0,
        shapes=SHAPES if seed % 2 else ("oblivious", "random"),
        max_leaves=16,
        order=ORDERS[seed % 3],
        x_dtype="float64" if seed % 5 < 2 else "float32",
        strict=seed % 7 < 3,
        categorical=seed % 3 == 1,
        zero_missing=seed % 4 == 1,
    )


def container(X: np.ndarray, seed: int) -> np.ndarray:
    """Return the rows in another layout."""
    layouts = [X, np.asfortranarray(X), np.repeat(X, 2, axis=0)[::2], X[:, ::-1].copy()[:, ::-1]]
    return layouts[seed % len(layouts)]


@pytest.mark.parametrize("precision", ["single", "double"])
@pytest.mark.parametrize("first", range(0, 80, 20))
def test_random_trees(precision: str, first: int) -> None:
    """Values, base values and pairs of 80 ensembles of five trees, with covers counted from a few rows."""
    n_unreached = n_below = 0
    for seed in range(first, first + 20):
        ensemble = drawn(seed)
        data, X = random_rows(seed, ensemble, 3 + seed % 40), random_rows(seed + 1000, ensemble, 12)
        weights = random_weights(seed, len(data)) * 7 if seed % 2 else None
        expected, weight = counted(ensemble, data, weights)
        n_unreached += np.count_nonzero(weight == 0)
        n_below += np.count_nonzero((weight == 0) & (ensemble.left >= 0))
        explainer = explainer_of(ensemble, container(data, seed), weights, precision=precision)
        scale = leaf_scale(ensemble)
        values, base_value, _ = reference.path_dependent(expected, X)
        result = explainer.shap_values(X).reshape(len(X), 9, -1).transpose(0, 2, 1)
        assert_within(result, values, TOLERANCE[precision] * scale[:, np.newaxis], f"values of seed {seed}")
        base = np.ravel(explainer.expected_value)
        largest = scale + np.abs(ensemble.intercept)
        assert_within(base, base_value, 1e-12 * largest, f"base value of seed {seed}")
        mean = np.average(ensemble.margin(data), axis=0, weights=weights)
        assert_within(base, mean, 1e-12 * largest, f"mean of seed {seed}")
        if seed % 4 == 0:
            pairs = reference.path_dependent(expected, X[:3], index="SII").values
            matrices = explainer.shap_interaction_values(X[:3])
            matrices = matrices.reshape(3, 9, 9, -1).transpose(0, 3, 1, 2)
            tolerance = 4 * TOLERANCE[precision] * scale[:, np.newaxis, np.newaxis]
            assert_within(matrices, pairs, tolerance, f"interactions of seed {seed}")
    assert n_unreached > 200 and n_below > 50


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("shape", ["random", "oblivious"])
@pytest.mark.parametrize("vector", [False, True])
def test_many_rows_and_threads(seed: int, shape: str, vector: bool) -> None:
    """Sums of integer weights are exact; all nodes are compared, for rows in several tiles and chunks."""
    ensemble = hard_ensemble(seed, shape, vector, 6)
    data = random_rows(seed, ensemble, 5000)
    weights = np.random.default_rng(seed).integers(0, 9, len(data)).astype(float)
    _, few = counted(ensemble, data[:300], weights[:300])
    leaf = ensemble.left < 0
    result = leaf_weights(ensemble, data[:300], weights[:300])
    np.testing.assert_array_equal(result[leaf], few[leaf])
    assert not result[~leaf].any()
    whole = leaf_weights(ensemble, data, weights)
    for n_threads in (2, 3, 64):
        np.testing.assert_array_equal(leaf_weights(ensemble, data, weights, n_threads), whole)
    parts = leaf_weights(ensemble, data[:17], weights[:17])
    _core.add_leaf_weights(attributes_of(ensemble), data[17:], weights[17:], parts, 2)
    np.testing.assert_array_equal(parts, whole)
    tree = np.repeat(np.arange(ensemble.n_trees), np.diff(ensemble.tree_offsets))
    np.testing.assert_array_equal(np.bincount(tree, whole), weights.sum())


@pytest.mark.parametrize("x_dtype", ["float32", "float64"])
@pytest.mark.parametrize("strict", [False, True])
def test_float32_rows(x_dtype: str, strict: bool) -> None:
    ensemble = random_ensemble(3, n_trees=9, max_leaves=30, x_dtype=x_dtype, strict=strict)
    with np.errstate(over="ignore"):
        data = random_rows(3, ensemble, 200).astype(np.float32)
    _, expected = counted(ensemble, data)
    leaf = ensemble.left < 0
    np.testing.assert_array_equal(leaf_weights(ensemble, data)[leaf], expected[leaf])


def test_columns_that_trees_test() -> None:
    ensemble = random_ensemble(8, n_trees=6, n_features=20, n_used=4, zero_missing=True)
    data = random_rows(8, ensemble, 100)
    tested = np.unique(ensemble.feature[ensemble.left >= 0])
    assert 1 < len(tested) < 5
    np.testing.assert_array_equal(leaf_weights(ensemble, data[:, tested]), leaf_weights(ensemble, data))


def test_one_split_a_level_but_for_one_node() -> None:
    """Trees that are almost symmetric: one node has another split, or one leaf of a full tree is moved."""
    symmetric = oblivious_tree(5, 3, 4)
    other = np.array(symmetric.threshold)
    other[5] += 0.5
    changed = Tree(**vars(symmetric) | {"threshold": other})
    full = full_tree(np.random.default_rng(5), 3, 4)
    chain = Tree([1, -1, 3, -1, 5, -1, -1], [2, -1, 4, -1, 6, -1, -1], np.arange(7) // 2, *[np.zeros(7)] * 4)
    for tree in (symmetric, changed, full, chain):
        ensemble = Ensemble.from_trees([tree, symmetric], n_features=4, intercept=0.0)
        data = random_rows(5, ensemble, 400)
        _, expected = counted(ensemble, data)
        leaf = ensemble.left < 0
        np.testing.assert_array_equal(leaf_weights(ensemble, data)[leaf], expected[leaf])


def test_without_trees() -> None:
    ensemble = random_ensemble(0, n_trees=0, n_features=3)
    assert leaf_weights(ensemble, np.zeros((4, 3))).shape == (0,)
    explainer = explainer_of(ensemble, np.zeros((4, 3)))
    assert explainer.expected_value == ensemble.intercept[0]


def test_shares_below_a_node_that_no_row_reaches() -> None:
    """x0 <= 0 splits the root; the right side, which no row reaches, is split by x1 <= 0, then by x2 <= 0."""
    tree = Tree(
        left=[1, -1, 3, -1, 5, -1, -1],
        right=[2, -1, 4, -1, 6, -1, -1],
        feature=[0, 0, 1, 0, 2, 0, 0],
        threshold=np.zeros(7),
        missing_left=np.zeros(7, bool),
        cover=[100.0, 60, 40, 30, 10, 2, 8],
        value=[0.0, 1000, 0, 1010, 0, 1100, 1300],
    )
    ensemble = Ensemble.from_trees([tree], n_features=3, intercept=0.5)
    data, X = np.array([[-1.0, 0, 0], [-2, 1, 1]]), np.array([[1.0, 1, 1]])
    explainer = explainer_of(ensemble, data, precision="double")
    assert explainer.expected_value == 1000.5
    # x0 alone leads to the right, whose mean is 0.75 * 1010 + 0.25 * (0.2 * 1100 + 0.8 * 1300) = 1072.5; with
    # x1, it is 1260, with x2 0.75 * 1010 + 0.25 * 1300 = 1082.5, and with both 1300. Without x0, it is 1000.
    expected = [
        72.5 / 3 + (260 + 82.5) / 6 + 300 / 3,
        (1260 - 1072.5) / 6 + (1300 - 1082.5) / 3,
        (1082.5 - 1072.5) / 6 + (1300 - 1260) / 3,
    ]
    np.testing.assert_allclose(explainer.shap_values(X), [expected], rtol=0, atol=1e-9)


def test_ends_when_interrupted() -> None:
    tree = full_tree(np.random.default_rng(26), 12, 4)
    ensemble = Ensemble.from_trees([tree] * 50, n_features=4, intercept=0)
    X = np.random.default_rng(26).random((3_000_000, 4), np.float32)
    with interrupted(0.2):
        leaf_weights(ensemble, X, n_threads=2)


@pytest.mark.parametrize(
    "change, error, message",
    [
        ({"rows": np.zeros((4, 4))}, ValueError, "all columns, or those that trees test"),
        ({"rows": np.zeros(5)}, ValueError, "two dimensions"),
        ({"rows": np.zeros((4, 5), int)}, TypeError, "rows must be float32 or float64"),
        ({"weights": np.ones(3)}, ValueError, "weights must be contiguous, one for each row"),
        ({"weights": np.ones(8)[::2]}, ValueError, "weights must be contiguous"),
        ({"weights": np.ones(4, np.float32)}, TypeError, "weights must be float64"),
        ({"weight_at": np.zeros(1)}, ValueError, "weight_at has a wrong shape"),
        ({"weight_at": None}, TypeError, "weight_at must be a float64 array"),
        ({"n_threads": 0}, ValueError, "n_threads must be at least 1"),
    ],
)
def test_wrong_arguments(change: dict[str, Any], error: type[Exception], message: str) -> None:
    ensemble = random_ensemble(1, n_features=5)
    arguments = {
        "ensemble": attributes_of(ensemble),
        "rows": np.zeros((4, 5)),
        "weights": np.ones(4),
        "weight_at": np.zeros(ensemble.n_nodes),
        "n_threads": 1,
    }
    with pytest.raises(error, match=message):
        _core.add_leaf_weights(**arguments | change)


@each_set
def test_other_instruction_sets(isa: str) -> None:
    run_again(isa, __file__, select="many_rows or float32 or one_split")
