"""Trees with linear leaves: the core against the definition, which evaluates mixtures of rows."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from math import factorial
from typing import Any

import numpy as np
import pytest
from helpers.ensembles import random_ensemble, random_rows, random_weights

from skshapgpu import _core, reference
from skshapgpu.adapters.ensemble import Ensemble, Tree, attributes_of

#: The definition adds up to 2^7 predictions, each of which is rounded; the core computes in double precision.
TOLERANCE = 1e-11

#: Bytes for sums of the background data: enough for all trees of this file.
SUMS = 2**24


def with_linear_leaves(ensemble: Ensemble, seed: int, share: float = 0.7) -> Ensemble:
    """Give some leaves terms of any features, some of them twice."""
    rng = np.random.default_rng(seed)
    is_linear = (ensemble.left < 0) & (rng.random(ensemble.n_nodes) < share)
    n_terms = np.where(is_linear, rng.integers(1, 5, ensemble.n_nodes), 0)
    total = int(n_terms.sum())
    return replace(
        ensemble,
        linear_offsets=np.concatenate([[0], np.cumsum(n_terms)]),
        linear_feature=rng.integers(ensemble.n_features, size=total),
        linear_coefficient=rng.normal(size=total),
        linear_intercept=np.where(is_linear, rng.normal(size=ensemble.n_nodes), 0.0),
    )


def tame_rows(seed: int, ensemble: Ensemble, n_rows: int) -> np.ndarray:
    """Draw rows at the edges of comparisons, without enormous numbers, and with few of them missing."""
    rng = np.random.default_rng(seed)
    X = random_rows(rng, ensemble, n_rows)
    usual = rng.normal(size=X.shape)
    X = np.where(np.isnan(X) & (rng.random(X.shape) < 0.5), usual, X)
    return np.where(np.abs(X) > 1000, usual, X)


def plan_of(
    ensemble: Ensemble,
    background: np.ndarray,
    weights: np.ndarray | None = None,
    *,
    precision: str = "double",
    **options: Any,
) -> _core.LinearPlan:
    if weights is None:
        weights = np.full(len(background), 1 / len(background))
    return _core.LinearPlan(attributes_of(ensemble), precision, background, weights, **options)


def compute(
    plan: _core.LinearPlan, ensemble: Ensemble, rows: np.ndarray, n_threads: int = 1
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Compute values, margins and reach with the core."""
    values = np.full((len(rows), ensemble.n_outputs, ensemble.n_players), np.nan)
    margin, reach = (np.full(values.shape[:2], np.nan) for _ in range(2))
    plan.explain(rows, values, margin, n_threads, reach)
    return values, margin, reach


CASES = [
    {"x_dtype": "float64"},
    {"x_dtype": "float64", "categorical": True, "n_outputs": 3},
    {"x_dtype": "float32", "strict": True, "zero_missing": True},
    {"x_dtype": "float64", "n_used": 2, "max_leaves": 16, "order": "shuffled"},  # features repeat
    {"x_dtype": "float64", "shapes": ("leaf",)},
    {"x_dtype": "float64", "shapes": ("chain",), "zero_missing": True},
]


@pytest.mark.parametrize("options", CASES)
@pytest.mark.parametrize("players", [False, True])
def test_definition(options: dict[str, Any], players: bool) -> None:
    n_linear = n_missing = 0
    for seed in range(8):
        ensemble = random_ensemble(seed, n_trees=3, n_features=6, **options)
        ensemble = with_linear_leaves(ensemble, seed)
        if players:
            ensemble = replace(ensemble, player=[0, 1, 1, 2, 0, 3])
        rows, background = tame_rows(seed, ensemble, 5), tame_rows(seed + 100, ensemble, 6)
        weights = random_weights(seed, 6) if seed % 2 else None
        n_linear += ensemble.has_linear_leaves
        n_missing += bool(np.isnan(rows[:, ensemble.linear_feature]).any())
        plan = plan_of(ensemble, background, weights)
        values, margin, reach = compute(plan, ensemble, rows)
        expected, base, _ = reference.interventional(ensemble, rows, background, weight=weights)
        allowed = TOLERANCE * (np.abs(plan.constant) + reach)
        assert (np.abs(values - expected) <= allowed[..., np.newaxis]).all()
        assert (np.abs(margin - ensemble.margin(rows)) <= allowed).all()
        assert (np.abs(plan.base_value - base) <= allowed).all()
        assert (np.abs(margin - plan.constant) <= reach * (1 + 1e-12)).all()
        banzhaf, *_ = compute(plan_of(ensemble, background, weights, index="BII"), ensemble, rows)
        right = reference.interventional(ensemble, rows, background, weight=weights, index="BV").values
        assert (np.abs(banzhaf - right) <= allowed[..., np.newaxis]).all()
    assert n_linear >= 6 and n_missing >= 2


def test_constant_leaves_are_those_of_other_plans() -> None:
    for seed in range(5):
        ensemble = random_ensemble(seed, n_trees=4, n_features=5, x_dtype="float64", categorical=True)
        rows, background = random_rows(seed, ensemble, 70), random_rows(seed + 1, ensemble, 130)
        values, margin, _ = compute(plan_of(ensemble, background), ensemble, rows)
        weights = np.full(130, 1 / 130)
        other = _core.background_plan(attributes_of(ensemble), "double", background, weights, "SII", SUMS)
        expected, of_other = np.empty_like(values), np.empty_like(margin)
        other.explain(rows, expected, of_other, 1)
        scale = np.abs(expected).max() + 1e-300
        np.testing.assert_allclose(values, expected, rtol=0, atol=1e-12 * scale)
        np.testing.assert_allclose(margin, of_other, rtol=0, atol=1e-12 * np.abs(of_other).max())


def test_bits_depend_on_neither_threads_nor_memory_nor_the_layout_of_rows() -> None:
    ensemble = random_ensemble(3, n_trees=9, n_features=8, n_used=5, x_dtype="float64", shapes=("random",))
    ensemble = with_linear_leaves(ensemble, 3)
    used = np.unique(np.concatenate([ensemble.feature[ensemble.left >= 0], ensemble.linear_feature]))
    rows, background = tame_rows(1, ensemble, 3000), tame_rows(2, ensemble, 300)
    plan = plan_of(ensemble, background)
    expected = compute(plan, ensemble, rows)
    assert np.abs(expected[0]).max() > 0.1
    for other, given, n_threads in (
        (plan, rows, 3),
        (plan, np.asfortranarray(rows), 1),
        (plan, np.repeat(rows, 2, axis=0)[::2], 2),
        (plan, np.ascontiguousarray(rows[:, used]), 1),
        (plan_of(ensemble, background, n_threads=4), rows, 1),
        (plan_of(ensemble, background, sum_bytes=0), rows, 2),
        (plan_of(ensemble, background, sum_bytes=20_000), rows, 1),
        (plan_of(ensemble, np.asfortranarray(background)), rows, 1),
    ):
        for result, right in zip(compute(other, ensemble, given, n_threads), expected):
            np.testing.assert_array_equal(result, right)
    full, none = plan.info(), plan_of(ensemble, background, sum_bytes=0).info()
    assert full["table_bytes"] > 20_000 > none["table_bytes"] == 0
    assert full["scratch_bytes_per_thread"] < none["scratch_bytes_per_thread"]
    some, *_ = compute(plan, ensemble, rows[100:103])
    np.testing.assert_allclose(some, expected[0][100:103], rtol=0, atol=1e-13 * np.abs(some).max())


def test_float32_rows_and_results() -> None:
    ensemble = with_linear_leaves(
        random_ensemble(5, n_trees=4, n_features=300, n_used=5, x_dtype="float64"), 5
    )
    rows = tame_rows(5, ensemble, 70).astype(np.float32)
    background = tame_rows(6, ensemble, 20)
    plan = plan_of(ensemble, background, precision="single")
    expected, *_ = compute(plan, ensemble, rows.astype(np.float64))
    values = np.full(expected.shape, np.nan, np.float32)
    plan.explain(rows, values, None, 1)
    np.testing.assert_array_equal(values, expected.astype(np.float32))
    zeroed = np.zeros_like(values)  # most columns are used by no tree
    plan.explain(rows, zeroed, None, 1, zeroed=True)
    np.testing.assert_array_equal(zeroed, values)


def single_leaf(coefficients: list[float], intercept: float, value: float = 0.0) -> Ensemble:
    n = len(coefficients)
    leaf = Tree([-1], [-1], [0], [0.0], [False], [1.0], [value])
    return Ensemble.from_trees(
        [leaf],
        n_features=n,
        intercept=0.0,
        x_dtype="float64",
        linear_offsets=[0, n],
        linear_feature=np.arange(n),
        linear_coefficient=coefficients,
        linear_intercept=[intercept],
    )


def test_linear_function() -> None:
    """A linear function has the values of a linear model: c (x - mean of the background)."""
    ensemble = single_leaf([2.0, -3.0], 5.0)
    background = np.array([[1.0, 2.0], [3.0, 6.0]])
    values, margin, _ = compute(plan_of(ensemble, background), ensemble, np.array([[10.0, 0.0]]))
    np.testing.assert_allclose(values[0, 0], [2 * (10 - 2), -3 * (0 - 4)])
    assert margin[0, 0] == 25


def exact_values(ensemble: Ensemble, x: np.ndarray, background: np.ndarray) -> list[Fraction]:
    """Compute the Shapley values of a tree with two leaves, without any rounding."""
    n, played = ensemble.n_features, range(ensemble.n_features)

    def margin(row: Any) -> Fraction:
        leaf = 1 if row[0] <= ensemble.threshold[0] else 2
        terms = range(ensemble.linear_offsets[leaf], ensemble.linear_offsets[leaf + 1])
        return Fraction(ensemble.linear_intercept[leaf]) + sum(
            Fraction(ensemble.linear_coefficient[i]) * Fraction(row[ensemble.linear_feature[i]])
            for i in terms
        )

    def value(known: tuple[int, ...]) -> Fraction:
        mixed = [[x[i] if i in known else b[i] for i in played] for b in background]
        return sum(map(margin, mixed), Fraction(0)) / len(background)

    return [
        sum(
            Fraction(factorial(size) * factorial(n - size - 1), factorial(n))
            * (value((*known, i)) - value(known))
            for size in range(n)
            for known in combinations([j for j in played if j != i], size)
        )
        for i in played
    ]


def test_offsets_of_columns_cost_no_digits() -> None:
    """Columns are shifted by up to 10^12 times their spread, and intercepts make up for it."""
    rng = np.random.default_rng(0)
    coefficients = rng.normal(size=(2, 3))
    for offset in (0.0, 1e3, -1e12):
        tree = Tree([1, -1, -1], [2, -1, -1], [0] * 3, [offset, 0.0, 0.0], [True] * 3, [2.0, 1, 1], [0.0] * 3)
        ensemble = Ensemble.from_trees(
            [tree],
            n_features=3,
            intercept=0.0,
            x_dtype="float64",
            linear_offsets=[0, 0, 3, 6],
            linear_feature=[0, 1, 2] * 2,
            linear_coefficient=coefficients.ravel(),
            linear_intercept=[0.0, *-(coefficients.sum(axis=1) * offset)],
        )
        background, rows = rng.normal(size=(6, 3)) + offset, rng.normal(size=(4, 3)) + offset
        values, margin, reach = compute(plan_of(ensemble, background), ensemble, rows)
        assert reach.max() < 50
        for x, result in zip(rows, values[:, 0]):
            right = [float(each) for each in exact_values(ensemble, x, background)]
            np.testing.assert_allclose(result, right, rtol=0, atol=1e-14 * reach.max())
        total = values.sum(axis=2) + plan_of(ensemble, background).base_value
        assert (np.abs(total - margin) <= 2.0**-50 * (reach + np.abs(margin))).all()


def test_long_paths() -> None:
    for n_path, n_others in ((64, 0), (60, 4)):
        ensemble = deep(n_path, n_others)
        background = np.zeros((2, n_path + n_others))
        background[1, :10] = 2.0
        x = np.full((1, n_path + n_others), -1.0)
        values, margin, _ = compute(plan_of(ensemble, background), ensemble, x)
        np.testing.assert_allclose(
            values.sum() + plan_of(ensemble, background).base_value, margin[0], rtol=1e-12
        )
        assert (values != 0).sum() > 50
    for n_path, n_others in ((65, 0), (60, 5)):
        with pytest.raises(
            ValueError, match="has 65 different features; background data allow for at most 64"
        ):
            plan_of(deep(n_path, n_others), np.zeros((1, n_path + n_others)))


def deep(n_path: int, n_others: int) -> Ensemble:
    """Return a chain whose last leaf has terms of all features of its path, and of other features."""
    n_nodes, n = 2 * n_path + 1, n_path + n_others
    left, right = np.full(n_nodes, -1), np.full(n_nodes, -1)
    inner = np.arange(0, n_nodes - 1, 2)
    left[inner], right[inner] = inner + 2, inner + 1
    feature = np.zeros(n_nodes, int)
    feature[inner] = np.arange(n_path)
    tree = Tree(
        left, right, feature, np.ones(n_nodes), np.ones(n_nodes, bool), np.ones(n_nodes), np.zeros(n_nodes)
    )
    n_terms = np.zeros(n_nodes, int)
    n_terms[-1] = n
    return Ensemble.from_trees(
        [tree],
        n_features=n,
        intercept=0.0,
        x_dtype="float64",
        linear_offsets=np.concatenate([[0], np.cumsum(n_terms)]),
        linear_feature=np.arange(n),
        linear_coefficient=np.arange(1.0, n + 1),
        linear_intercept=np.zeros(n_nodes),
    )


def test_other_plans_refuse_linear_leaves() -> None:
    ensemble = with_linear_leaves(random_ensemble(0, x_dtype="float64"), 0)
    attributes, rows = attributes_of(ensemble), np.zeros((2, 5))
    weights = np.full(2, 0.5)
    for make in (
        lambda: _core.Plan(attributes, "double"),
        lambda: _core.background_plan(attributes, "double", rows, weights, "SII", SUMS),
        lambda: _core.BackgroundPairsPlan(attributes, "double", rows, weights, "BII", SUMS),
        lambda: _core.RescaledPlan(attributes, "double", rows, weights, "logistic", 1.0),
        lambda: _core.DependentTrees(attributes, []),
        lambda: _core.owen_plan(attributes, "double", [0] * 5),
        lambda: _core.add_leaf_weights(attributes, rows, weights, np.zeros(ensemble.n_nodes)),
    ):
        with pytest.raises(ValueError, match="linear leaves"):
            make()
    with pytest.raises(ValueError, match="index must be 'SII' or 'BII'"):
        plan_of(ensemble, rows, index="STII")
    with pytest.raises(ValueError, match="not defined for linear leaves"):
        reference.path_dependent(ensemble, rows)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"linear_offsets": [0, 0, 1]}, "linear_offsets must rise"),
        ({"linear_offsets": [0, 1, 0, 1]}, "linear_offsets must rise"),
        ({"linear_offsets": []}, "need linear_offsets"),
        (
            {"linear_offsets": [0, 1, 1, 1], "linear_intercept": [1.0, 0, 0]},
            "node 0 of tree 0 has linear terms",
        ),
        ({"linear_feature": [2]}, r"node 1 of tree 0 has a linear term of a feature outside 0\.\.1"),
        ({"linear_feature": [-1]}, "node 1 of tree 0 has a linear term of a feature outside"),
        ({"linear_coefficient": [np.nan]}, "node 1 of tree 0 has a non-finite coefficient"),
        ({"linear_coefficient": [1.0, 2.0]}, "an entry for each term"),
        ({"linear_intercept": [0, np.inf, 0.0]}, "node 1 of tree 0 has a non-finite linear_intercept"),
        ({"linear_intercept": [0, 1.0, 2.0]}, "node 2 of tree 0 has a linear_intercept without terms"),
        ({"linear_intercept": [0.0]}, "one for each node"),
    ],
)
def test_invalid_linear_leaves_are_refused(change: dict[str, Any], message: str) -> None:
    tree = Tree([1, -1, -1], [2, -1, -1], [0] * 3, [0.0] * 3, [True] * 3, [2.0, 1, 1], [0.0, 1, 2])
    right = {
        "linear_offsets": [0, 0, 1, 1],
        "linear_feature": [1],
        "linear_coefficient": [2.0],
        "linear_intercept": [0, 1.0, 0],
    }
    ensemble = Ensemble.from_trees([tree], n_features=2, intercept=0.0, **right)
    assert ensemble.has_linear_leaves
    np.testing.assert_array_equal(ensemble.margin([[-1, 5], [1, 5], [-1, np.nan]]), [[11], [2], [1]])
    with pytest.raises(ValueError, match=message):
        replace(ensemble, **change)


def test_linear_leaves_have_one_output() -> None:
    leaf = Tree([-1], [-1], [0], [0.0], [False], [1.0], [[0.0, 1.0]])
    linear: dict[str, Any] = {"linear_offsets": [0, 1], "linear_feature": [0], "linear_coefficient": [1.0]}
    with pytest.raises(ValueError, match="trees of one output"):
        Ensemble.from_trees([leaf], n_features=1, intercept=[0.0, 0.0], linear_intercept=[0.0], **linear)
