"""The definition itself: hand-computed values, Shapley's axioms, and comparisons with exact arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.ensembles import (
    ensemble_options,
    exact_shap,
    leaf_scale,
    random_chain,
    random_ensemble,
    random_rows,
)
from hypothesis import given, settings

from skshapgpu.adapters.ensemble import Ensemble, Tree
from skshapgpu.reference import (
    interventional_banzhaf,
    interventional_interactions,
    interventional_shap,
    path_dependent_banzhaf,
    path_dependent_interactions,
    path_dependent_shap,
    path_dependent_triples,
)


def and_tree(cover: tuple[float, float, float, float, float] = (4, 1, 3, 1, 2)) -> Ensemble:
    """Build x0 <= 0.5: 1, else x1 <= 0.5: 2, else 10; covers (root, leaf 1, inner, leaf 2, leaf 10)."""
    tree = Tree(
        left=[1, -1, 3, -1, -1],
        right=[2, -1, 4, -1, -1],
        feature=[0, 0, 1, 0, 0],
        threshold=[0.5, 0, 0.5, 0, 0],
        missing_left=[True, False, False, False, False],
        cover=cover,
        value=[0, 1, 0, 2, 10],
    )
    return Ensemble.from_trees([tree], n_features=3, intercept=[100.0])


def test_two_features_by_hand():
    """v() = 1/4 + 3/4 (2/3 + 20/3) = 23/4; with x0: 22/3, with x1: 31/4, with both: 10."""
    values, base = path_dependent_shap(and_tree(), [[1.0, 1.0, 0.0]])
    assert base == pytest.approx([105.75], rel=1e-15)
    x0 = ((22 / 3 - 23 / 4) + (10 - 31 / 4)) / 2
    x1 = ((31 / 4 - 23 / 4) + (10 - 22 / 3)) / 2
    np.testing.assert_allclose(values, [[[x0, x1, 0.0]]], rtol=1e-14)
    assert values[0, 0, 2] == 0.0


def test_indices_of_two_features_by_hand():
    """With two players, there is a single second-order difference, which every index weights with 1."""
    x, together = [[1.0, 1.0, 0.0]], 10 - 22 / 3 - 31 / 4 + 23 / 4
    np.testing.assert_allclose(
        path_dependent_banzhaf(and_tree(), x), path_dependent_shap(and_tree(), x)[0], rtol=1e-14
    )
    alone = np.array([22 / 3 - 23 / 4, 31 / 4 - 23 / 4])
    for index, diagonal in (("SII", alone), ("STII", alone), ("BII", alone + together / 2)):
        matrix = path_dependent_interactions(and_tree(), x, index)[0, 0]
        np.testing.assert_allclose(np.diag(matrix), [*diagonal, 0], rtol=1e-13)
        assert matrix[0, 1] == matrix[1, 0] == pytest.approx(together / 2, rel=1e-13)
        assert (matrix[2] == 0).all() and (matrix[:, 2] == 0).all()
    with pytest.raises(ValueError, match="index must be one of"):
        path_dependent_interactions(and_tree(), x, "fsii")


def test_indices_of_three_features_by_hand():
    """All three must be 1 for the leaf of 8; half of the cover goes each way at every split."""
    tree = Tree(
        left=[1, -1, 3, -1, 5, -1, -1],
        right=[2, -1, 4, -1, 6, -1, -1],
        feature=[0, 0, 1, 0, 2, 0, 0],
        threshold=[0.5] * 7,
        missing_left=[True] * 7,
        cover=[8, 4, 4, 2, 2, 1, 1],
        value=[0, 0, 0, 0, 0, 0, 8],
    )
    ensemble = Ensemble.from_trees([tree], n_features=3, intercept=[0.0])
    # v = 1, 2, 4 or 8 by the number of known features; each difference doubles likewise.
    x, other = [[1.0, 1.0, 1.0]], ~np.eye(3, dtype=bool)
    np.testing.assert_allclose(path_dependent_banzhaf(ensemble, x), [[[9 / 4] * 3]], rtol=1e-14)
    for index, pair, alone in (
        ("SII", (1 + 2) / 2, 7 / 3 - 3 / 2),
        ("STII", 2 / 3 * (1 + 2 / 2), 1),
        ("BII", (1 + 2) / 2, 9 / 4),
    ):
        matrix = path_dependent_interactions(ensemble, x, index)[0, 0]
        np.testing.assert_allclose(matrix[other], pair / 2, rtol=1e-14)
        np.testing.assert_allclose(np.diag(matrix), alone, rtol=1e-14)
    for index in ("SII", "BII"):  # there is one difference, of the empty set
        values, triples = path_dependent_triples(ensemble, x, index)
        np.testing.assert_allclose(values, [[[1.0]]], rtol=1e-13)
        assert triples.tolist() == [[0, 1, 2]]
    with pytest.raises(ValueError, match="index must be 'SII' or 'BII', not 'STII'"):
        path_dependent_triples(ensemble, x, "STII")


def test_triples_of_four_features():
    """v = 2^|S|, so every third-order difference is also 2^|S|, where S is empty or the fourth feature."""
    nodes = np.arange(9)
    inner = (nodes % 2 == 0) & (nodes < 8)
    tree = Tree(
        left=np.where(inner, nodes + 1, -1),
        right=np.where(inner, nodes + 2, -1),
        feature=nodes // 2 * inner,
        threshold=np.full(9, 0.5),
        missing_left=np.zeros(9, bool),
        cover=np.ones(9),
        value=np.where(nodes == 8, 16.0, 0.0),
    )
    ensemble = Ensemble.from_trees([tree], n_features=4, intercept=[0.0])
    for index in ("SII", "BII"):  # two subsets have equal weights in both
        values, triples = path_dependent_triples(ensemble, np.ones((1, 4)), index)
        np.testing.assert_allclose(values, [[[1.5] * 4]], rtol=1e-14)
        assert triples.tolist() == [[0, 1, 2], [0, 1, 3], [0, 2, 3], [1, 2, 3]]
    values, triples = path_dependent_triples(and_tree(), [[1.0, 1.0, 0.0]])
    assert values.shape == (1, 1, 0) and triples.shape == (0, 3)


def test_children_without_cover_weigh_half_each():
    """v() = 1/2 + (2 + 10) / 4 = 7/2; with x0: 1, with x1: 1/2 + 10/2 = 11/2, with both: 1."""
    values, base = path_dependent_shap(and_tree((7, 0, 0, 0, 0)), [[np.nan, np.nan, 0.0]])
    assert base == pytest.approx([103.5], rel=1e-15)
    np.testing.assert_allclose(
        values, [[[((1 - 3.5) + (1 - 5.5)) / 2, ((5.5 - 3.5) + 0) / 2, 0.0]]], rtol=1e-14
    )


def test_a_child_without_cover_weighs_nothing():
    values, base = path_dependent_shap(and_tree((3, 3, 0, 1, 2)), [[0.0, 1.0, 0.0]])
    assert base == pytest.approx([101.0])
    np.testing.assert_array_equal(values, [[[0.0, 0.0, 0.0]]])


def test_parents_cover_is_ignored():
    X = random_rows(0, and_tree(), 20)
    expected = path_dependent_shap(and_tree((4, 1, 3, 1, 2)), X)
    for got, want in zip(path_dependent_shap(and_tree((1e12, 1, 3, 1, 2)), X), expected):
        np.testing.assert_array_equal(got, want)


def test_shares_of_covers_whose_sum_overflows():
    values, base = path_dependent_shap(and_tree((4, 1.5e308, 0.5e308, 1.2e308, 1.2e308)), [[0.0, 0.0, 0.0]])
    assert base == pytest.approx([100 + 3 / 4 + 6 / 4], rel=1e-14)
    assert values.sum() == pytest.approx(1 - 9 / 4, rel=1e-13)


def test_outputs_of_scalar_trees_and_of_vector_leaves():
    split = {
        "left": [1, -1, -1],
        "right": [2, -1, -1],
        "feature": [0] * 3,
        "threshold": [0.0] * 3,
        "missing_left": [False] * 3,
        "cover": [4, 1, 3],
    }
    scalar = Ensemble.from_trees(
        [Tree(**split, value=[0, 4, 8], output=1), Tree(**split, value=[0, -4, 0], output=0)],
        n_features=1,
        intercept=[0, 1],
    )
    vector = Ensemble.from_trees(
        [Tree(**split, value=[[0, 0], [-4, 4], [0, 8]])], n_features=1, intercept=[0, 1]
    )
    for ensemble in (scalar, vector):
        values, base = path_dependent_shap(ensemble, [[0.0], [1.0]])
        np.testing.assert_array_equal(base, [-1.0, 8.0])
        np.testing.assert_array_equal(values, [[[-3.0], [-3.0]], [[1.0], [1.0]]])


@given(ensemble_options())
@settings(max_examples=60)
def test_axioms(options):
    """Additivity against ``margin``; zeros for unused features; values of all trees are sums over trees."""
    ensemble = random_ensemble(**options)
    X = random_rows(options["seed"], ensemble, 8)
    values, base = path_dependent_shap(ensemble, X)
    scale = leaf_scale(ensemble) + np.abs(ensemble.intercept)
    assert values.shape == (8, ensemble.n_outputs, ensemble.n_features)
    assert (np.abs(values.sum(axis=2) + base - ensemble.margin(X)) <= 1e-13 * scale).all()
    used = np.unique(ensemble.feature[ensemble.left >= 0])
    assert (np.delete(values, used, axis=2) == 0).all()


@given(ensemble_options())
@settings(max_examples=40)
def test_equals_exact_path_arithmetic(options):
    ensemble = random_ensemble(**options)
    X = random_rows(options["seed"], ensemble, 2)
    values, _ = path_dependent_shap(ensemble, X)
    scale = leaf_scale(ensemble)[:, np.newaxis]
    for x, row in zip(X, values):
        assert (np.abs(row - exact_shap(ensemble, x)) <= 1e-14 * scale).all()


def test_twelve_features_and_no_more():
    twelve = random_chain(1, depth=30, n_features=12)
    x = np.random.default_rng(1).random((1, 12))
    values, _ = path_dependent_shap(twelve, x)
    assert np.count_nonzero(values) == 12
    assert np.abs(values[0] - exact_shap(twelve, x[0])).max() <= 1e-14 * leaf_scale(twelve)[0]
    with pytest.raises(ValueError, match="uses 13 features"):
        path_dependent_shap(random_chain(1, depth=13, n_features=13), np.zeros((1, 13)))


def test_no_rows_and_no_trees():
    ensemble = random_ensemble(0, n_outputs=2)
    values, base = path_dependent_shap(ensemble, np.empty((0, 5)))
    assert values.shape == (0, 2, 5)
    np.testing.assert_array_equal(base, path_dependent_shap(ensemble, np.zeros((1, 5)))[1])
    values, base = path_dependent_shap(random_ensemble(0, n_trees=0), np.zeros((2, 5)))
    np.testing.assert_array_equal(values, np.zeros((2, 1, 5)))
    np.testing.assert_array_equal(base, random_ensemble(0, n_trees=0).intercept)


@pytest.mark.parametrize("shape", [(5,), (2, 4), (2, 6), (2, 5, 1)])
def test_wrong_shape_of_X(shape):
    with pytest.raises(ValueError, match=r"X must have shape \(n_rows, 5\)"):
        path_dependent_shap(random_ensemble(0), np.zeros(shape))


def test_float64_rows_are_rounded_to_float32_first():
    """0.1 and the next float64 above it round to the same float32."""
    above = np.nextafter(0.1, 1)
    tree = Tree(
        left=[1, -1, -1],
        right=[2, -1, -1],
        feature=[0] * 3,
        threshold=[0.1, 0, 0],
        missing_left=[False] * 3,
        cover=[2, 1, 1],
        value=[0, -1, 1],
    )
    X = [[0.1], [above]]
    float64 = Ensemble.from_trees([tree], n_features=1, intercept=0, x_dtype="float64")
    np.testing.assert_array_equal(path_dependent_shap(float64, X)[0].ravel(), [-1, 1])
    float32 = Ensemble.from_trees([tree], n_features=1, intercept=0, x_dtype="float32")
    np.testing.assert_array_equal(path_dependent_shap(float32, X)[0].ravel(), [1, 1])


# Interventional values


def test_interventional_one_feature_by_hand():
    """A stump of 1 and 10; three of four background rows go left, so that v() = 13/4."""
    tree = Tree(
        left=[1, -1, -1],
        right=[2, -1, -1],
        feature=[0] * 3,
        threshold=[0.5, 0, 0],
        missing_left=[True, False, False],
        cover=[9, 1, 8],  # is not involved
        value=[0, 1, 10],
    )
    ensemble = Ensemble.from_trees([tree], n_features=2, intercept=[100.0])
    background = [[0.0, 7.0], [0.5, 8.0], [1.0, 9.0], [np.nan, 0.0]]
    values, base = interventional_shap(ensemble, [[1.0, 0.0], [0.0, 0.0]], background)
    np.testing.assert_allclose(base, [103.25], rtol=1e-15)
    np.testing.assert_allclose(values, [[[10 - 13 / 4, 0]], [[1 - 13 / 4, 0]]], rtol=1e-15)
    # With the weights 1, 0, 3, 0 it is v() = 31/4.
    values, base = interventional_shap(ensemble, [[1.0, 0.0]], background, [2, 0, 6, 0])
    np.testing.assert_allclose(base, [107.75], rtol=1e-15)
    np.testing.assert_allclose(values, [[[10 - 31 / 4, 0]]], rtol=1e-15)


def test_interventional_two_features_by_hand():
    """x reaches the leaf of 10, the background rows the leaves of 1 and 2.

    Against the first row v() = 1, with x0: 2, with x1: 1, with both: 10; against the second v() = 2, with x0:
    2, with x1: 10, with both: 10.
    """
    background = [[0.0, 0.0, 5.0], [1.0, 0.0, 6.0]]
    of_first = np.array([((2 - 1) + (10 - 1)) / 2, ((1 - 1) + (10 - 2)) / 2, 0])
    of_second = np.array([0, 8, 0])
    x = [[1.0, 1.0, 0.0]]
    for rows, expected, base_value in (
        (background[:1], of_first, 101),
        (background[1:], of_second, 102),
        (background, (of_first + of_second) / 2, 101.5),
    ):
        values, base = interventional_shap(and_tree(), x, rows)
        np.testing.assert_allclose(values, [[expected]], rtol=1e-14)
        np.testing.assert_allclose(base, [base_value], rtol=1e-15)
    values, base = interventional_shap(and_tree(), x, background, [1, 3])
    np.testing.assert_allclose(values, [[(of_first + 3 * of_second) / 4]], rtol=1e-14)
    np.testing.assert_allclose(base, [101.75], rtol=1e-15)
    assert not np.allclose(values, path_dependent_shap(and_tree(), x)[0])


def test_interventional_indices_of_two_features_by_hand():
    """The coalition values above give 10 - 2 - 1 + 1 = 8 for both against the first row.

    Against the second row they give 10 - 2 - 10 + 2 = 0, as x1 alone makes the whole difference.
    """
    background = [[0.0, 0.0, 5.0], [1.0, 0.0, 6.0]]
    x, shares = [[1.0, 1.0, 0.0]], np.array([0.25, 0.75])
    together = shares @ [8, 0]
    alone = np.array([shares @ [2 - 1, 2 - 2], shares @ [1 - 1, 10 - 2]])
    for index, diagonal in (("SII", alone), ("STII", alone), ("BII", alone + together / 2)):
        matrix = interventional_interactions(and_tree(), x, background, [1, 3], index)[0, 0]
        np.testing.assert_allclose(np.diag(matrix), [*diagonal, 0], rtol=1e-13)
        assert matrix[0, 1] == matrix[1, 0] == pytest.approx(together / 2, rel=1e-13)
        assert (matrix[2] == 0).all() and (matrix[:, 2] == 0).all()
    values, _ = interventional_shap(and_tree(), x, background, [1, 3])
    np.testing.assert_allclose(interventional_banzhaf(and_tree(), x, background, [1, 3]), values, rtol=1e-14)
    with pytest.raises(ValueError, match="index must be one of"):
        interventional_interactions(and_tree(), x, background, index="fsii")


@given(ensemble_options(max_used=5))
@settings(max_examples=40)
def test_interventional_axioms(options):
    """Additivity, zeros for unused features, zeros for a row that is the background, linearity."""
    ensemble = random_ensemble(**options)
    rows = random_rows(options["seed"], ensemble, 5)
    X, background = rows[:2], rows[2:]
    values, base = interventional_shap(ensemble, X, background)
    scale = leaf_scale(ensemble)
    rounding = 1e-13 * (scale + np.abs(ensemble.intercept))
    assert values.shape == (2, ensemble.n_outputs, ensemble.n_features)
    assert (np.abs(base - ensemble.margin(background).mean(axis=0)) <= rounding).all()
    assert (np.abs(values.sum(axis=2) + base - ensemble.margin(X)) <= rounding).all()
    used = np.unique(ensemble.feature[ensemble.left >= 0])
    assert (np.delete(values, used, axis=2) == 0).all()
    assert (interventional_shap(ensemble, X[:1], X[:1])[0] == 0).all()
    for index in ("SII", "STII"):
        matrices = interventional_interactions(ensemble, X, background, index=index)
        assert (np.abs(matrices.sum(axis=3) - values) <= 1e-12 * scale[:, np.newaxis]).all()
        assert (matrices == matrices.swapaxes(2, 3)).all()
    weights = np.array([0.5, 0.0, 1.5])
    weighted, _ = interventional_shap(ensemble, X, background, weights)
    parts = [interventional_shap(ensemble, X, background[i : i + 1])[0] for i in range(3)]
    expected = np.tensordot(weights / 2, parts, 1)
    assert (np.abs(weighted - expected) <= 1e-13 * scale[:, np.newaxis]).all()


def test_interventional_many_subsets_at_once():
    """2^12 subsets of 40 background rows are evaluated in parts; additivity holds only if all are right."""
    ensemble = random_chain(2, depth=14, n_features=12)
    rows = np.random.default_rng(2).random((41, 12))
    values, base = interventional_shap(ensemble, rows[:1], rows[1:])
    np.testing.assert_allclose(values.sum(axis=2) + base, ensemble.margin(rows[:1]), atol=1e-13)


def test_interventional_errors():
    ensemble = random_ensemble(0)
    with pytest.raises(ValueError, match=r"background must have shape \(n_rows, 5\)"):
        interventional_shap(ensemble, np.zeros((1, 5)), np.zeros((1, 4)))
    with pytest.raises(ValueError, match="there must be at least one background row"):
        interventional_shap(ensemble, np.zeros((1, 5)), np.zeros((0, 5)))
    with pytest.raises(ValueError, match=r"not 2 rows and weights of shape \(3,\)"):
        interventional_shap(ensemble, np.zeros((1, 5)), np.zeros((2, 5)), np.ones(3))
    with pytest.raises(ValueError, match="uses 13 features"):
        interventional_shap(random_chain(1, depth=13, n_features=13), np.zeros((1, 13)), np.zeros((1, 13)))
