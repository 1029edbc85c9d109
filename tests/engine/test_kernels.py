"""The compiled kernels against the definition, for both precisions and every instruction set.

The tests in this process use the fastest instruction set, or the set that SKSHAPGPU_ISA names. The last tests
run this file and test_kernels_calls.py again with each other set that the processor supports.
"""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from helpers.ensembles import (
    SHAPES,
    ensemble_options,
    exact_shap,
    full_tree,
    leaf_scale,
    random_chain,
    random_comb,
    random_ensemble,
    random_rows,
)
from helpers.instruction_sets import each_set, run_again
from helpers.kernels import (
    ISA,
    TOLERANCE,
    assert_consistent,
    assert_exact,
    assert_within,
    both_precisions,
    explain,
    once,
    run,
    same_bits,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from skshapgpu import reference
from skshapgpu.adapters.ensemble import Ensemble, Tree, attributes_of

# Agreement with the definition


@both_precisions
@settings(max_examples=300)
@given(
    options=ensemble_options(),
    n_rows=st.sampled_from([1, 2, 5, 17, 33]),
    dtype=st.sampled_from(["float32", "float64"]),
)
def test_random_ensembles(core, precision, options, n_rows, dtype):
    ensemble = random_ensemble(**options)
    assert_exact(core, ensemble, random_rows(options["seed"], ensemble, n_rows), precision, dtype)


@both_precisions
@pytest.mark.parametrize("x_dtype", ["float32", "float64"])
@pytest.mark.parametrize("strict", [False, True])
def test_many_rows_at_every_threshold(core, precision, x_dtype, strict):
    """More rows than a block holds, with categories and with zeros that count as missing."""
    ensemble = random_ensemble(
        5,
        n_trees=8,
        n_features=6,
        n_outputs=2,
        max_leaves=20,
        x_dtype=x_dtype,
        strict=strict,
        categorical=True,
        zero_missing=True,
    )
    X = random_rows(6, ensemble, 150)
    assert len(np.unique(ensemble.margin(X), axis=0)) > 50
    assert_exact(core, ensemble, X, precision)


@both_precisions
@pytest.mark.parametrize("shape", SHAPES[:-1])
def test_large_trees_with_repeated_features(core, precision, shape):
    ensemble = random_ensemble(7, n_trees=2, n_features=6, n_used=4, shapes=(shape,), max_leaves=1024)
    X = random_rows(8, ensemble, 20)
    assert_exact(core, ensemble, X, precision)


@both_precisions
@pytest.mark.parametrize("depth, n_features", [(10, 10), (12, 7)])
def test_full_trees(core, precision, depth, n_features):
    """One tree has each feature once on each path, another has repeated features."""
    rng = np.random.default_rng(9)
    ensemble = Ensemble.from_trees([full_tree(rng, depth, n_features)], n_features=n_features, intercept=0)
    X = rng.random((16, n_features))
    X[rng.random(X.shape) < 0.1] = np.nan
    assert_exact(core, ensemble, X, precision)


@both_precisions
@pytest.mark.parametrize("vector", [False, True])
def test_twenty_outputs(core, precision, vector):
    ensemble = random_ensemble(10, n_trees=45, n_features=5, n_outputs=20, vector=vector, max_leaves=8)
    assert_exact(core, ensemble, random_rows(11, ensemble, 20), precision)


@both_precisions
def test_wide_rows(core, precision):
    """The trees use 6 of 10,000 columns."""
    narrow = random_ensemble(12, n_trees=6, n_features=6, n_outputs=2)
    columns = np.array([3, 9999, 0, 500, 4096, 8191])
    wide = dataclasses.replace(narrow, n_features=10_000, feature=columns[narrow.feature])
    X = random_rows(13, narrow, 70)
    wide_X = np.random.default_rng(13).normal(size=(70, 10_000))
    wide_X[:, columns] = X
    values, margin = explain(core.Plan(attributes_of(wide), precision), wide, wide_X)
    tolerance = TOLERANCE[precision] * leaf_scale(narrow)[:, np.newaxis]
    assert_within(values[:, :, columns], reference.path_dependent(narrow, X).values, tolerance, "values")
    assert_within(margin, narrow.margin(X), np.full(margin.shape, 1e-9), "margin")
    assert (np.delete(values, columns, axis=2) == 0).all()


@both_precisions
@pytest.mark.parametrize("x_dtype", ["float32", "float64"])
@pytest.mark.parametrize("n_thresholds", [65533, 65534, 65535, 65536, 65537, 131071])
def test_as_many_thresholds_as_16_bits_count(core, precision, x_dtype, n_thresholds):
    """In a tree of one feature, the feature's value is the margin minus the base value."""
    rng = np.random.default_rng(14)
    depth = 17
    tree = full_tree(rng, depth, 1)
    level = np.repeat(np.arange(depth + 1), 2 ** np.arange(depth + 1))
    rank = ((np.arange(len(level)) - 2**level + 1) * 2 + 1) * 2.0 ** (depth - level - 1)  # 1, 2, ..., 131071
    big = dataclasses.replace(tree, threshold=np.minimum(rank, n_thresholds))
    assert len(np.unique(big.threshold[: 2**depth - 1])) == n_thresholds
    cover, expected_leaf = np.asarray(big.cover), np.asarray(big.value)[2**depth - 1 :]
    for parents in range(depth - 1, -1, -1):
        pairs = cover[2 ** (parents + 1) - 1 : 2 ** (parents + 2) - 1].reshape(-1, 2)
        share = np.where(pairs.sum(axis=1) > 0, pairs[:, 0] / np.maximum(pairs.sum(axis=1), 1), 0.5)
        expected_leaf = share * expected_leaf[::2] + (1 - share) * expected_leaf[1::2]

    other = Tree(
        [1, -1, 3, -1, -1],
        [2, -1, 4, -1, -1],
        [1, 0, 0, 0, 0],
        [0.5, 0, 7.0, 0, 0],
        [False] * 5,
        [4, 1, 3, 1, 2],
        [0, 3, 0, 4, 5],
    )
    alone, small, both = (
        Ensemble.from_trees(trees, n_features=2, intercept=0, x_dtype=x_dtype)
        for trees in ([big], [other], [big, other])
    )
    x0 = np.concatenate(
        [
            rng.integers(0, n_thresholds, 60),
            rng.random(60) * n_thresholds,
            n_thresholds + np.arange(-3, 3),
            np.arange(3),
            65534 + np.arange(5),
            [np.inf, -np.inf, np.nan],
        ]
    )
    x0 = np.concatenate([x0, np.nextafter(x0, np.inf), np.nextafter(x0, -np.inf)])
    X = np.stack([x0, rng.random(len(x0))], axis=1)
    expected, base, _ = reference.path_dependent(small, X)
    expected[:, 0, 0] += alone.margin(X)[:, 0] - expected_leaf[0]
    plan = core.Plan(attributes_of(both), precision)
    values, margin = explain(plan, both, X)
    # A tolerance from the sum over 131,072 leaves would permit any error: use the largest leaf of each tree.
    tolerance = TOLERANCE[precision] * (np.abs(big.value).max() + 5)
    assert_within(values, expected, np.full(expected.shape, tolerance), "values")
    assert_within(plan.base_value, base + expected_leaf[0], np.array([1e-9]), "base_value")
    assert_within(margin, both.margin(X), np.full(margin.shape, 1e-9), "margin")


@both_precisions
def test_more_categories_than_16_bits_count(core, precision):
    rng = np.random.default_rng(15)
    codes = rng.permutation(200_000)[:70_000]
    tree = Tree(
        [1, -1, 3, -1, -1],
        [2, -1, 4, -1, -1],
        [0, 0, 0, 0, 0],
        [0.0] * 5,
        [True] * 5,
        [4, 1, 3, 1, 2],
        [0, 3, 0, 4, 5],
        categories={0: codes[:35_000], 2: codes[30_000:]},
    )
    ensemble = Ensemble.from_trees([tree], n_features=1, intercept=0, x_dtype="float64")
    X = np.concatenate([codes[::500], rng.integers(0, 200_000, 60), [np.sort(codes)[-1], np.nan, -1]])
    assert_exact(core, ensemble, X[:, np.newaxis].astype(float), precision)


# Deep paths


@functools.cache
def solved_chain(depth: int, n_features: int, n_rows: int) -> tuple[Ensemble, np.ndarray, np.ndarray]:
    """Return a chain, rows, and their values in exact rational arithmetic."""
    ensemble = random_chain(depth, depth, n_features)
    X = np.random.default_rng(depth).random((n_rows, n_features))
    return ensemble, X, np.array([exact_shap(ensemble, x) for x in X])


def assert_chain(core: ModuleType, precision: str, depth: int, n_features: int, n_rows: int) -> None:
    """Check the exact values of a few rows, and only additivity for more rows."""
    ensemble, X, expected = solved_chain(depth, n_features, n_rows)
    assert np.abs(expected).max() > 1e-3
    plan = core.Plan(attributes_of(ensemble), precision)
    values, _ = explain(plan, ensemble, X)
    assert_within(values, expected, TOLERANCE[precision] * leaf_scale(ensemble)[:, np.newaxis], "values")
    more = np.random.default_rng(1).random((70, n_features))
    assert_consistent(ensemble, more, plan, precision, *explain(plan, ensemble, more))


@both_precisions
@pytest.mark.parametrize("first", range(1, 41, 10))
def test_every_number_of_features_on_a_path(core, precision, first):
    """Chains of 1 to 40 different features cover all numbers of quadrature nodes up to 20."""
    for depth in range(first, first + 10):
        assert_chain(core, precision, depth, depth, n_rows=1)


@functools.cache
def solved_comb(n_features: int, n_outputs: int) -> tuple[Ensemble, np.ndarray, np.ndarray]:
    """Return a comb, rows, and the values of the first two in exact rational arithmetic."""
    ensemble = random_comb(n_features, n_features, n_outputs)
    X = np.random.default_rng(n_features).random((70, n_features))
    return ensemble, X, np.array([exact_shap(ensemble, x) for x in X[:2]])


@both_precisions
@pytest.mark.parametrize("n_outputs", [1, 2, 7])
@pytest.mark.parametrize("first", range(1, 37, 6))
def test_small_subtrees_below_every_number_of_features(core, precision, n_outputs, first):
    """Subtrees of two to four leaves split on new and on repeated features, for K up to 18."""
    for n_features in range(first, first + 6):
        ensemble, X, expected = solved_comb(n_features, n_outputs)
        plan = core.Plan(attributes_of(ensemble), precision)
        assert [group["n_nodes"] for group in plan.info()["groups"]] == [(n_features + 1) // 2]
        assert n_features < 5 or plan.info()["n_repeated"] > 0
        values, margin = explain(plan, ensemble, X)
        tolerance = TOLERANCE[precision] * leaf_scale(ensemble)[:, np.newaxis]
        assert_within(values[:2], expected, tolerance, "values")
        assert_consistent(ensemble, X, plan, precision, values, margin)


@both_precisions
@pytest.mark.parametrize(
    "depth, n_features",
    [
        (64, 64),
        (65, 65),
        (100, 100),
        (128, 128),
        (150, 40),
        (200, 12),
        (200, 1),
        (200, 200),
    ],
)
def test_deep_chains(core, precision, depth, n_features):
    assert_chain(core, precision, depth, n_features, n_rows=1)


@both_precisions
@pytest.mark.parametrize(
    "depth, share",
    [
        (40, 0.0),
        (40, 2.0**-30),
        (40, 1 / 64),
        (40, 63 / 64),
        (40, 1.0),
        (100, 255 / 256),
        (200, 255 / 256),
    ],
)
def test_rows_that_follow_a_deep_chain_all_or_not_at_all(core, precision, depth, share):
    """Rows satisfy no feature or one, as (1 - t)^d is the hardest integrand; up to depth 40, also all."""
    node = np.arange(2 * depth + 1)
    # Even nodes continue with the next even one on their left; odd ones are leaves.
    left = np.where((node % 2 == 0) & (node < 2 * depth), node + 2, -1)
    right = np.where(left >= 0, node + 1, -1)
    cover = np.where(node % 2 == 0, share, 1 - share)
    value = np.where(left >= 0, 0.0, 1.0 + node / 100)
    tree = Tree(
        left, right, node // 2 % depth, np.full(len(node), 0.5), np.zeros(len(node), bool), cover, value
    )
    ensemble = Ensemble.from_trees([tree], n_features=depth, intercept=0, x_dtype="float64")
    X = np.stack([np.ones(depth), np.arange(depth) != 3, np.arange(depth) == depth - 1, np.zeros(depth)])
    X = X[: 4 if depth <= 40 else 2]
    plan = core.Plan(attributes_of(ensemble), precision)
    values, margin = explain(plan, ensemble, X)
    expected = np.array([exact_shap(ensemble, x) for x in X])
    assert_within(values, expected, np.full(expected.shape, TOLERANCE[precision] * 2), "values")
    assert_consistent(ensemble, X, plan, precision, values, margin)


@both_precisions
def test_more_leaves_than_16_bits_can_number(core, precision):
    """In a chain of one feature, the leaf that a row reaches is known, and is the whole margin."""
    depth = 70_000
    node = np.arange(2 * depth + 1)
    # The right child of an even node is the next even node; odd nodes are leaves.
    right = np.where((node % 2 == 0) & (node < 2 * depth), node + 2, -1)
    left = np.where(right >= 0, node + 1, -1)
    rng = np.random.default_rng(0)
    value = np.where(left < 0, rng.normal(size=len(node)), 0.0)
    cover = np.where(node % 2 == 0, depth + 1 - node // 2, 1)
    tree = Tree(left, right, np.zeros(len(node), int), node / 2, np.zeros(len(node), bool), cover, value)
    ensemble = Ensemble.from_trees([tree], n_features=1, intercept=0, x_dtype="float64")
    reached = np.append(rng.integers(0, depth, 60), [0, 1, 65_535, 65_536, 65_537, depth - 1, depth])
    expected = value[np.minimum(2 * reached + 1, 2 * depth)]
    values, margin = explain(
        core.Plan(attributes_of(ensemble), precision), ensemble, reached[:, np.newaxis] * 1.0
    )
    np.testing.assert_allclose(margin[:, 0], expected, rtol=1e-15)  # leaves are scaled: rounded twice
    difference = expected - value[left < 0].mean()
    assert_within(values[:, 0, 0], difference, TOLERANCE[precision] * leaf_scale(ensemble), "values")


# Ranks among thresholds


@both_precisions
@pytest.mark.parametrize("x_dtype", ["float32", "float64"])
@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("zero_missing", [False, True])
@pytest.mark.parametrize("n_thresholds", [1, 2, 7, 31, 32, 33, 34, 64, 255, 300])
def test_ranks_are_those_of_searchsorted(core, precision, x_dtype, strict, zero_missing, n_thresholds):
    """With one stump per threshold, the margin is the number of thresholds that a value has passed."""
    rng = np.random.default_rng(n_thresholds)
    tiny = np.finfo(x_dtype).smallest_subnormal
    special = np.array([0, tiny, -tiny, 3 * tiny, 1e-35, np.finfo(x_dtype).max, 1, -1], dtype=x_dtype)
    drawn = rng.permutation(np.unique(rng.normal(size=2 * n_thresholds).astype(x_dtype)))
    thresholds = np.sort(np.unique(np.concatenate([special, drawn]))[: n_thresholds + 8])
    thresholds = np.sort(rng.choice(thresholds, n_thresholds, replace=False))
    passes_missing = rng.random(n_thresholds) < 0.5
    trees = [
        Tree(
            [1, -1, -1],
            [2, -1, -1],
            [0, 0, 0],
            [float(threshold), 0, 0],
            [not passes, False, False],
            [2, 1, 1],
            [0, 0, 1],
        )
        for threshold, passes in zip(thresholds, passes_missing, strict=True)
    ]
    ensemble = Ensemble.from_trees(
        trees, n_features=1, intercept=0, x_dtype=x_dtype, strict=strict, zero_missing=[zero_missing]
    )
    up, down = np.nextafter(thresholds, np.inf), np.nextafter(thresholds, -np.inf)
    edges = np.array([np.inf, -np.inf, np.nan, -0.0], dtype=x_dtype)
    x = np.concatenate([edges, special, -special, thresholds, up, down, rng.normal(size=200)]).astype(x_dtype)
    missing = np.isnan(x) | (zero_missing & (np.abs(x) <= np.array(np.float32(1e-35), dtype=x_dtype)))
    ranks = np.searchsorted(thresholds, x, side="right" if strict else "left")
    expected = np.where(missing, passes_missing.sum(), ranks)
    for n_rows in (1, 3, 17, len(x)):
        rows = x[:n_rows, np.newaxis]
        _, margin = explain(core.Plan(attributes_of(ensemble), precision), ensemble, rows)
        np.testing.assert_array_equal(margin[:, 0], expected[:n_rows])


@both_precisions
@pytest.mark.parametrize("x_dtype", ["float32", "float64"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_columns_of_any_layout(core, precision, x_dtype, dtype):
    """Rows, columns, reversed rows and every second column give the same bits."""
    ensemble = random_ensemble(20, n_trees=40, n_features=70, max_leaves=30, x_dtype=x_dtype, strict=True)
    with np.errstate(over="ignore"):
        X = random_rows(21, ensemble, 131).astype(dtype)
    spread = np.full((131, 140), np.nan, dtype)
    spread[:, ::2] = X
    plan = core.Plan(attributes_of(ensemble), precision)
    expected = explain(plan, ensemble, X)
    for other in (np.asfortranarray(X), np.ascontiguousarray(X[::-1])[::-1], spread[:, ::2]):
        for got, wanted in zip(explain(plan, ensemble, other), expected, strict=True):
            assert same_bits(got, wanted)


# Sizes at their limits


@both_precisions
@pytest.mark.parametrize("n_rows", [0, 1])
def test_no_row_and_one_row(core, precision, n_rows):
    ensemble = random_ensemble(15, n_trees=4, n_outputs=3, vector=True)
    assert_exact(core, ensemble, random_rows(16, ensemble, n_rows), precision)


@both_precisions
@pytest.mark.parametrize(
    "options",
    [
        {"n_features": 1, "n_trees": 5},
        {"n_features": 3, "n_trees": 4, "shapes": ("leaf",)},
        {"n_features": 3, "n_trees": 4, "shapes": ("leaf",), "vector": True, "n_outputs": 2},
        {"n_features": 3, "n_trees": 0, "n_outputs": 2},
        {"n_features": 0, "n_trees": 2},
        {"n_features": 0, "n_trees": 0},
    ],
    ids=str,
)
def test_almost_nothing(core, precision, options):
    ensemble = random_ensemble(17, **options)
    for n_rows in (0, 1, 70):
        assert_exact(core, ensemble, random_rows(18, ensemble, n_rows), precision)


# Instruction sets


def test_instruction_set_in_use(cpu_core):
    available = cpu_core.instruction_sets()
    assert available[-1] == "baseline" and set(available) <= {"avx512", "avx2", "neon", "baseline"}
    assert cpu_core.instruction_set() == (ISA or available[0])


@once
def test_unknown_instruction_set_is_refused():
    code = (
        "from skshapgpu import _core\n"
        "try: print('got', _core.instruction_set())\n"
        "except (ValueError, RuntimeError) as error: print('refused:', error)"
    )
    result = run(["-c", code], SKSHAPGPU_ISA="mmx")
    assert result.returncode == 0 and "refused" in result.stdout and "mmx" in result.stdout, result.stdout


@once
@each_set
def test_all_of_this_with(isa):
    run_again(isa, *(str(path) for path in Path(__file__).parent.glob("test_kernels*.py")))
