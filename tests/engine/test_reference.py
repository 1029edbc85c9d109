"""The definition itself against values computed by hand, Shapley's axioms and exact arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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

from skshapgpu import reference
from skshapgpu.adapters.ensemble import Ensemble, Tree


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
    values, base, _ = reference.path_dependent(and_tree(), [[1.0, 1.0, 0.0]])
    assert base == pytest.approx([105.75], rel=1e-15)
    x0 = ((22 / 3 - 23 / 4) + (10 - 31 / 4)) / 2
    x1 = ((31 / 4 - 23 / 4) + (10 - 22 / 3)) / 2
    np.testing.assert_allclose(values, [[[x0, x1, 0.0]]], rtol=1e-14)
    assert values[0, 0, 2] == 0.0


def test_indices_of_two_features_by_hand():
    """With two players, there is a single second-order difference, to which every index gives weight 1."""
    x, together = [[1.0, 1.0, 0.0]], 10 - 22 / 3 - 31 / 4 + 23 / 4
    np.testing.assert_allclose(
        reference.path_dependent(and_tree(), x, index="BV").values,
        reference.path_dependent(and_tree(), x).values,
        rtol=1e-14,
    )
    alone = np.array([22 / 3 - 23 / 4, 31 / 4 - 23 / 4])
    for index, diagonal in (("SII", alone), ("STII", alone), ("BII", alone + together / 2)):
        matrix = reference.path_dependent(and_tree(), x, index=index).values[0, 0]
        np.testing.assert_allclose(np.diag(matrix), [*diagonal, 0], rtol=1e-13)
        assert matrix[0, 1] == matrix[1, 0] == pytest.approx(together / 2, rel=1e-13)
        assert (matrix[2] == 0).all() and (matrix[:, 2] == 0).all()
    with pytest.raises(ValueError, match="index must be one of"):
        reference.path_dependent(and_tree(), x, index="fsii")


def test_indices_of_three_features_by_hand():
    """All three features must be 1 to reach the leaf of 8; half of the cover follows each branch."""
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
    np.testing.assert_allclose(
        reference.path_dependent(ensemble, x, index="BV").values, [[[9 / 4] * 3]], rtol=1e-14
    )
    for index, pair, alone in (
        ("SII", (1 + 2) / 2, 7 / 3 - 3 / 2),
        ("STII", 2 / 3 * (1 + 2 / 2), 1),
        ("BII", (1 + 2) / 2, 9 / 4),
    ):
        matrix = reference.path_dependent(ensemble, x, index=index).values[0, 0]
        np.testing.assert_allclose(matrix[other], pair / 2, rtol=1e-14)
        np.testing.assert_allclose(np.diag(matrix), alone, rtol=1e-14)
    for index in ("SII", "BII"):  # there is one difference, of the empty set
        values, _, triples = reference.path_dependent(ensemble, x, index=index, order=3)
        np.testing.assert_allclose(values, [[[1.0]]], rtol=1e-13)
        assert triples.tolist() == [[0, 1, 2]]


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
        values, _, triples = reference.path_dependent(ensemble, np.ones((1, 4)), index=index, order=3)
        np.testing.assert_allclose(values, [[[1.5] * 4]], rtol=1e-14)
        assert triples.tolist() == [[0, 1, 2], [0, 1, 3], [0, 2, 3], [1, 2, 3]]
    values, _, triples = reference.path_dependent(and_tree(), [[1.0, 1.0, 0.0]], index="SII", order=3)
    assert values.shape == (1, 1, 0) and triples.shape == (0, 3)


def test_children_without_cover_weigh_half_each():
    """v() = 1/2 + (2 + 10) / 4 = 7/2; with x0: 1, with x1: 1/2 + 10/2 = 11/2, with both: 1."""
    values, base, _ = reference.path_dependent(and_tree((7, 0, 0, 0, 0)), [[np.nan, np.nan, 0.0]])
    assert base == pytest.approx([103.5], rel=1e-15)
    np.testing.assert_allclose(
        values, [[[((1 - 3.5) + (1 - 5.5)) / 2, ((5.5 - 3.5) + 0) / 2, 0.0]]], rtol=1e-14
    )


def test_a_child_without_cover_weighs_nothing():
    values, base, _ = reference.path_dependent(and_tree((3, 3, 0, 1, 2)), [[0.0, 1.0, 0.0]])
    assert base == pytest.approx([101.0])
    np.testing.assert_array_equal(values, [[[0.0, 0.0, 0.0]]])


def test_parents_cover_is_ignored():
    X = random_rows(0, and_tree(), 20)
    expected = reference.path_dependent(and_tree((4, 1, 3, 1, 2)), X)
    result = reference.path_dependent(and_tree((1e12, 1, 3, 1, 2)), X)
    np.testing.assert_array_equal(result.values, expected.values)
    np.testing.assert_array_equal(result.base_value, expected.base_value)


def test_shares_of_covers_whose_sum_overflows():
    values, base, _ = reference.path_dependent(
        and_tree((4, 1.5e308, 0.5e308, 1.2e308, 1.2e308)), [[0.0, 0.0, 0.0]]
    )
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
        values, base, _ = reference.path_dependent(ensemble, [[0.0], [1.0]])
        np.testing.assert_array_equal(base, [-1.0, 8.0])
        np.testing.assert_array_equal(values, [[[-3.0], [-3.0]], [[1.0], [1.0]]])


@given(ensemble_options())
@settings(max_examples=60)
def test_axioms(options):
    """Values add up to ``margin``, unused features have zeros, and values of trees add up."""
    ensemble = random_ensemble(**options)
    X = random_rows(options["seed"], ensemble, 8)
    values, base, _ = reference.path_dependent(ensemble, X)
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
    values = reference.path_dependent(ensemble, X).values
    scale = leaf_scale(ensemble)[:, np.newaxis]
    for x, row in zip(X, values):
        assert (np.abs(row - exact_shap(ensemble, x)) <= 1e-14 * scale).all()


def test_twelve_features_and_no_more():
    twelve = random_chain(1, depth=30, n_features=12)
    x = np.random.default_rng(1).random((1, 12))
    values = reference.path_dependent(twelve, x).values
    assert np.count_nonzero(values) == 12
    assert np.abs(values[0] - exact_shap(twelve, x[0])).max() <= 1e-14 * leaf_scale(twelve)[0]
    with pytest.raises(ValueError, match="uses 13 features"):
        reference.path_dependent(random_chain(1, depth=13, n_features=13), np.zeros((1, 13)))


def test_no_rows_and_no_trees():
    ensemble = random_ensemble(0, n_outputs=2)
    values, base, _ = reference.path_dependent(ensemble, np.empty((0, 5)))
    assert values.shape == (0, 2, 5)
    np.testing.assert_array_equal(base, reference.path_dependent(ensemble, np.zeros((1, 5))).base_value)
    values, base, _ = reference.path_dependent(random_ensemble(0, n_trees=0), np.zeros((2, 5)))
    np.testing.assert_array_equal(values, np.zeros((2, 1, 5)))
    np.testing.assert_array_equal(base, random_ensemble(0, n_trees=0).intercept)


@pytest.mark.parametrize("shape", [(5,), (2, 4), (2, 6), (2, 5, 1)])
def test_wrong_shape_of_X(shape):
    with pytest.raises(ValueError, match=r"X must have shape \(n_rows, 5\)"):
        reference.path_dependent(random_ensemble(0), np.zeros(shape))


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
    np.testing.assert_array_equal(reference.path_dependent(float64, X).values.ravel(), [-1, 1])
    float32 = Ensemble.from_trees([tree], n_features=1, intercept=0, x_dtype="float32")
    np.testing.assert_array_equal(reference.path_dependent(float32, X).values.ravel(), [1, 1])


# Options and results


def path_dependent(**options: Any) -> reference.ReferenceValues:
    return reference.path_dependent(and_tree(), [[1.0, 1.0, 0.0]], **options)


def interventional(**options: Any) -> reference.ReferenceValues:
    return reference.interventional(and_tree(), [[1.0, 1.0, 0.0]], [[0.0, 0.0, 5.0]], **options)


BOTH = pytest.mark.parametrize("compute", [path_dependent, interventional])


@BOTH
def test_each_index_has_the_same_base_value_and_a_shape_of_its_order(compute: Callable[..., Any]) -> None:
    base_value = compute().base_value
    for index, shape in (
        ("SV", (1, 1, 3)),
        ("BV", (1, 1, 3)),
        ("OV", (1, 1, 3)),
        ("SII", (1, 1, 3, 3)),
        ("STII", (1, 1, 3, 3)),
        ("BII", (1, 1, 3, 3)),
    ):
        result = compute(index=index, player_groups=[0, 0, 1] if index == "OV" else None)
        assert result.values.shape == shape and result.features is None
        np.testing.assert_array_equal(result.base_value, base_value)


def test_the_default_order_may_be_named() -> None:
    for index, order in (("SV", 1), ("BV", 1), ("SII", 2), ("STII", 2), ("BII", 2)):
        values = path_dependent(index=index, order=order).values
        np.testing.assert_array_equal(values, path_dependent(index=index).values)
    values = path_dependent(index="OV", order=1, player_groups=[0, 1, 1]).values
    np.testing.assert_array_equal(values, path_dependent(index="OV", player_groups=[0, 1, 1]).values)


@BOTH
@pytest.mark.parametrize("index", ["sv", "FSII", "", None, 2])
def test_unknown_index(compute: Callable[..., Any], index: Any) -> None:
    message = f"index must be one of 'SV', 'BV', 'OV', 'SII', 'STII', 'BII', not {index!r}"
    with pytest.raises(ValueError, match=message):
        compute(index=index)


@pytest.mark.parametrize(
    ("index", "order", "orders"),
    [
        ("SV", 2, "1"),
        ("BV", 3, "1"),
        ("OV", 2, "1"),
        ("SII", 1, "2 or 3"),
        ("SII", 4, "2 or 3"),
        ("STII", 3, "2"),
        ("BII", 1, "2 or 3"),
        ("BII", "3", "2 or 3"),
    ],
)
def test_order_that_does_not_exist(index: Any, order: Any, orders: str) -> None:
    with pytest.raises(ValueError, match=f"order must be {orders} for index='{index}', not {order!r}"):
        path_dependent(index=index, order=order, player_groups=[0, 0, 1] if index == "OV" else None)


@BOTH
def test_groups_belong_to_owen_values(compute: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match="index='OV' needs player_groups: pass the group of each player"):
        compute(index="OV")
    for index in ("SV", "BV", "SII", "STII", "BII"):
        with pytest.raises(
            ValueError, match=f"index='{index}' has no groups: leave player_groups out, or pass"
        ):
            compute(index=index, player_groups=[0, 0, 1])
    for groups in ([0, 1], [0, 1, 1, 2], [[0, 1, 1]], 0):
        with pytest.raises(
            ValueError, match=r"player_groups must have shape \(3,\), a group for each player, not"
        ):
            compute(index="OV", player_groups=groups)


@BOTH
def test_owen_values_of_one_group_and_of_single_players(compute: Callable[..., Any]) -> None:
    """Both are Shapley values."""
    shapley = compute().values
    for groups in ([0, 0, 0], [2, 0, 1]):
        np.testing.assert_allclose(compute(index="OV", player_groups=groups).values, shapley, rtol=1e-14)


def test_rescaled_by_hand() -> None:
    """The square of the margin: x has 110, the background rows have 101 and 102, with equal weights."""

    def square(margin: np.ndarray, label: float) -> np.ndarray:
        return margin**2 + label

    def derivative(margin: np.ndarray, label: float) -> np.ndarray:
        return 2 * margin

    x, background = [[1.0, 1.0, 0.0]], [[0.0, 0.0, 5.0], [1.0, 0.0, 6.0]]
    result = reference.rescaled(and_tree(), x, background, square, derivative, labels=[3.0])
    first = np.array([((2 - 1) + (10 - 1)) / 2, ((1 - 1) + (10 - 2)) / 2, 0])
    values = ((110 + 101) * first + (110 + 102) * np.array([0, 8, 0])) / 2
    np.testing.assert_allclose(result.values, [[values]], rtol=1e-14)
    np.testing.assert_allclose(result.base_value, [[(101**2 + 102**2) / 2 + 3]], rtol=1e-15)
    assert result.features is None
    weighted = reference.rescaled(and_tree(), x, background, square, derivative, weight=[0, 2])
    np.testing.assert_allclose(weighted.values, [[[0, 212 * 8, 0]]], rtol=1e-14)
    np.testing.assert_allclose(weighted.base_value, [[102**2]], rtol=1e-15)
    for options, message in (
        ({"labels": [1, 0]}, r"labels must have shape \(1,\), a label for each row, not \(2,\)"),
        ({"weight": [1]}, r"weight must have shape \(2,\), .*, not \(1,\)"),
    ):
        with pytest.raises(ValueError, match=message):
            reference.rescaled(and_tree(), x, background, square, derivative, **options)
    with pytest.raises(ValueError, match="background must have at least one row"):
        reference.rescaled(and_tree(), x, np.empty((0, 3)), square, derivative)


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
    values, base, _ = reference.interventional(ensemble, [[1.0, 0.0], [0.0, 0.0]], background)
    np.testing.assert_allclose(base, [103.25], rtol=1e-15)
    np.testing.assert_allclose(values, [[[10 - 13 / 4, 0]], [[1 - 13 / 4, 0]]], rtol=1e-15)
    # With the weights 1, 0, 3, 0 it is v() = 31/4.
    values, base, _ = reference.interventional(ensemble, [[1.0, 0.0]], background, weight=[2, 0, 6, 0])
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
        values, base, _ = reference.interventional(and_tree(), x, rows)
        np.testing.assert_allclose(values, [[expected]], rtol=1e-14)
        np.testing.assert_allclose(base, [base_value], rtol=1e-15)
    values, base, _ = reference.interventional(and_tree(), x, background, weight=[1, 3])
    np.testing.assert_allclose(values, [[(of_first + 3 * of_second) / 4]], rtol=1e-14)
    np.testing.assert_allclose(base, [101.75], rtol=1e-15)
    assert not np.allclose(values, reference.path_dependent(and_tree(), x).values)


def test_interventional_indices_of_two_features_by_hand():
    """The coalition values above give 10 - 2 - 1 + 1 = 8 for both against the first row.

    Against the second row they give 10 - 2 - 10 + 2 = 0, as x1 alone makes the whole difference.
    """
    background = [[0.0, 0.0, 5.0], [1.0, 0.0, 6.0]]
    x, shares = [[1.0, 1.0, 0.0]], np.array([0.25, 0.75])
    together = shares @ [8, 0]
    alone = np.array([shares @ [2 - 1, 2 - 2], shares @ [1 - 1, 10 - 2]])
    for index, diagonal in (("SII", alone), ("STII", alone), ("BII", alone + together / 2)):
        matrix = reference.interventional(and_tree(), x, background, weight=[1, 3], index=index).values[0, 0]
        np.testing.assert_allclose(np.diag(matrix), [*diagonal, 0], rtol=1e-13)
        assert matrix[0, 1] == matrix[1, 0] == pytest.approx(together / 2, rel=1e-13)
        assert (matrix[2] == 0).all() and (matrix[:, 2] == 0).all()
    values = reference.interventional(and_tree(), x, background, weight=[1, 3]).values
    np.testing.assert_allclose(
        reference.interventional(and_tree(), x, background, weight=[1, 3], index="BV").values,
        values,
        rtol=1e-14,
    )
    with pytest.raises(ValueError, match="index must be one of"):
        reference.interventional(and_tree(), x, background, index="fsii")


@given(ensemble_options(max_used=5))
@settings(max_examples=40)
def test_interventional_axioms(options):
    """Additivity, zeros for unused features, zeros for a row that is the background, linearity."""
    ensemble = random_ensemble(**options)
    rows = random_rows(options["seed"], ensemble, 5)
    X, background = rows[:2], rows[2:]
    values, base, _ = reference.interventional(ensemble, X, background)
    scale = leaf_scale(ensemble)
    rounding = 1e-13 * (scale + np.abs(ensemble.intercept))
    assert values.shape == (2, ensemble.n_outputs, ensemble.n_features)
    assert (np.abs(base - ensemble.margin(background).mean(axis=0)) <= rounding).all()
    assert (np.abs(values.sum(axis=2) + base - ensemble.margin(X)) <= rounding).all()
    used = np.unique(ensemble.feature[ensemble.left >= 0])
    assert (np.delete(values, used, axis=2) == 0).all()
    assert (reference.interventional(ensemble, X[:1], X[:1]).values == 0).all()
    for index in ("SII", "STII"):
        matrices = reference.interventional(ensemble, X, background, index=index).values
        assert (np.abs(matrices.sum(axis=3) - values) <= 1e-12 * scale[:, np.newaxis]).all()
        assert (matrices == matrices.swapaxes(2, 3)).all()
    weights = np.array([0.5, 0.0, 1.5])
    weighted = reference.interventional(ensemble, X, background, weight=weights).values
    parts = [reference.interventional(ensemble, X, background[i : i + 1]).values for i in range(3)]
    expected = np.tensordot(weights / 2, parts, 1)
    assert (np.abs(weighted - expected) <= 1e-13 * scale[:, np.newaxis]).all()


def test_interventional_many_subsets_at_once():
    """2^12 subsets of 40 background rows are evaluated in parts, which must all be right to add up."""
    ensemble = random_chain(2, depth=14, n_features=12)
    rows = np.random.default_rng(2).random((41, 12))
    values, base, _ = reference.interventional(ensemble, rows[:1], rows[1:])
    np.testing.assert_allclose(values.sum(axis=2) + base, ensemble.margin(rows[:1]), atol=1e-13)


def test_interventional_errors():
    ensemble = random_ensemble(0)
    with pytest.raises(ValueError, match=r"background must have shape \(n_rows, 5\)"):
        reference.interventional(ensemble, np.zeros((1, 5)), np.zeros((1, 4)))
    with pytest.raises(ValueError, match="background must have at least one row"):
        reference.interventional(ensemble, np.zeros((1, 5)), np.zeros((0, 5)))
    with pytest.raises(ValueError, match=r"weight must have shape \(2,\), .* not \(3,\)"):
        reference.interventional(ensemble, np.zeros((1, 5)), np.zeros((2, 5)), weight=np.ones(3))
    with pytest.raises(ValueError, match="uses 13 features"):
        reference.interventional(
            random_chain(1, depth=13, n_features=13), np.zeros((1, 13)), np.zeros((1, 13))
        )
