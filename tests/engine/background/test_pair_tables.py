"""Tables of interventional interactions for GPUs, looked up on the CPU.

Plans with these tables also run on the CPU, so that every entry is compared without a GPU. The references are
the definition, the game of a leaf, and the CPU's own tables for tiles of rows.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from helpers.ensembles import (
    background_matrix,
    chain_rows,
    ensemble_options,
    full_tree,
    hard_ensemble,
    leaf_scale,
    random_chain,
    random_ensemble,
    random_rows,
    random_weights,
)
from helpers.plans import least_table_bytes
from hypothesis import given, settings
from hypothesis import strategies as st

from skshapgpu import _core, reference
from skshapgpu.adapters.ensemble import Ensemble, Tree, attributes_of
from skshapgpu.reference import Index

INDICES: tuple[Index, ...] = ("SII", "STII", "BII")

#: Largest error of each precision, relative to the leaves.
TOLERANCE = {"single": 5e-6, "double": 1e-10}

#: Bytes for counts and for tables: enough for all trees here.
COUNTS, TABLES = 2**24, 2**28


def plan_of(
    ensemble: Ensemble,
    background: np.ndarray,
    weights: np.ndarray | None = None,
    precision: str = "double",
    index: str = "SII",
    count_bytes: int = COUNTS,
) -> _core.BackgroundPairsPlan:
    if weights is None:
        weights = np.full(len(background), 1 / len(background))
    return _core.BackgroundPairsPlan(
        attributes_of(ensemble), precision, background, weights, index, count_bytes
    )


def compute(plan: Any, ensemble: Ensemble, rows: np.ndarray) -> list[np.ndarray]:
    """Compute values, margins, matrices and pairs."""
    shape, n = (len(rows), ensemble.n_outputs), ensemble.n_features
    shapes = (n,), (), (n, n), (len(plan.pairs),)
    results = [np.full((*shape, *more), np.nan) for more in shapes]
    plan.explain(rows, results[0], results[1], 1, *results[2:])
    return results


def bushy_tree(seed: int, depth: int, n_features: int) -> Tree:
    """Build a tree with all leaves at ``depth`` and, if possible, different features in each subtree."""
    rng = np.random.default_rng(seed)
    tree = full_tree(rng, depth, n_features)
    n_nodes, enough = len(np.asarray(tree.left)), n_features >= 2**depth - 1
    feature = np.arange(n_nodes) % n_features if enough else rng.integers(0, n_features, n_nodes)
    return replace(tree, feature=feature)


def assert_is_the_definition(
    ensemble: Ensemble, rows: np.ndarray, background: np.ndarray, weights: np.ndarray | None, index: Index
) -> None:
    scale = leaf_scale(ensemble)
    expected = reference.interventional(ensemble, rows, background, weight=weights, index=index).values
    shapley, base, _ = reference.interventional(ensemble, rows, background, weight=weights)
    banzhaf = reference.interventional(ensemble, rows, background, weight=weights, index="BV").values
    singles = banzhaf if index == "BII" else shapley
    rounding = 1e-15 * np.abs(ensemble.intercept)
    for precision, tolerance in TOLERANCE.items():
        allowed = tolerance * scale[:, np.newaxis]
        counted = plan_of(ensemble, background, weights, precision, index)
        few = (least_table_bytes(counted),) if precision == "double" else ()  # most leaves have no table
        for table_bytes in (TABLES, *few):
            plan = counted.with_tables(table_bytes, 2)
            values, margin, matrices, pairs = compute(plan, ensemble, rows)
            assert (np.abs(values - singles) <= allowed).all(), (index, precision)
            assert (np.abs(margin - ensemble.margin(rows)) <= tolerance * scale + rounding).all()
            assert (np.abs(plan.base_value - base) <= 1e-12 * scale + rounding).all()
            assert (np.abs(matrices - expected) <= allowed[..., np.newaxis]).all(), (index, precision)
            first, second = plan.pairs.T
            np.testing.assert_array_equal(pairs, matrices[..., first, second])


@given(
    options=ensemble_options(max_used=5),
    n_background=st.sampled_from([1, 2, 9]),
    weighted=st.booleans(),
    index=st.sampled_from(INDICES),
)
@settings(max_examples=100)
def test_tables_are_the_definition(
    options: dict[str, Any], n_background: int, weighted: bool, index: Index
) -> None:
    """Missing values, categories, repeated features, several outputs and vector leaves."""
    ensemble = random_ensemble(**options)
    rows = random_rows(options["seed"], ensemble, n_background + 3)
    weights = random_weights(options["seed"], n_background) if weighted else None
    assert_is_the_definition(ensemble, rows[-3:], rows[:n_background], weights, index)


@pytest.mark.parametrize("shape", ["random", "chain", "perfect", "oblivious", "leaf"])
@pytest.mark.parametrize("vector", [False, True])
def test_each_shape_of_trees(shape: str, vector: bool) -> None:
    for seed, index in enumerate(INDICES):
        ensemble = hard_ensemble(seed, shape, vector, n_used=7)
        rows = random_rows(seed, ensemble, 6)
        assert_is_the_definition(ensemble, rows[:2], rows[2:], None, index)


@pytest.mark.parametrize("index", INDICES)
@pytest.mark.parametrize("depth", [2, 4, 6])
def test_every_entry(depth: int, index: str) -> None:
    """Rows of small trees combine every pair of decisions, and rows of large trees many pairs."""
    n_features = min(2**depth - 1, 12)
    ensemble = Ensemble.from_trees(
        [bushy_tree(depth, depth, n_features)], n_features=n_features, intercept=[9.0]
    )
    steps = [np.unique(ensemble.threshold[ensemble.feature == f]) for f in range(n_features)]
    levels = [np.append(step, step[-1] + 1) if len(step) else np.zeros(1) for step in steps]
    n_rows = np.prod([len(level) for level in levels], dtype=float)
    rng = np.random.default_rng(depth)
    rows = (
        np.array(list(product(*levels)))
        if n_rows < 5_000
        else np.stack([rng.choice(level, 20_000) for level in levels], axis=1)
    )
    background = np.stack([rng.choice(level, 70) for level in levels], axis=1)
    plan = plan_of(ensemble, background, index=index)
    expected = compute(plan, ensemble, rows)
    for precision, tolerance in TOLERANCE.items():
        tables = plan_of(ensemble, background, None, precision, index).with_tables(TABLES)
        for one, other in zip(compute(tables, ensemble, rows), expected, strict=True):
            assert np.abs(one - other).max() <= tolerance * leaf_scale(ensemble)[0] + 1e-13
    assert np.abs(expected[2]).max() > 1e-3 * leaf_scale(ensemble)[0]


@pytest.mark.parametrize("index", INDICES)
@pytest.mark.parametrize("depth", [9, 11, 12, 13, 20, 64])
def test_long_paths(depth: int, index: str) -> None:
    """The leaves of a chain have tables of their own or patterns; the reference is the game of each leaf."""
    ensemble = random_chain(depth, depth, depth)
    rows = chain_rows(depth, ensemble, 84)
    x, background = rows[:4], rows[4:]
    weights = random_weights(depth, len(background))
    half = np.where(np.eye(depth, dtype=bool), 1.0, 0.5)
    expected = half * np.array([background_matrix(ensemble, row, background, weights, index) for row in x])
    for precision, tolerance in TOLERANCE.items():
        plan = plan_of(ensemble, background, weights, precision, index).with_tables(TABLES)
        assert (plan.info()["n_leaves_without_table"] > 0) == (depth > 12)
        values, _, matrices, _ = compute(plan, ensemble, x)
        allowed = tolerance * leaf_scale(ensemble)[0]
        off_diagonal = ~np.eye(depth, dtype=bool)
        assert np.abs(values[:, 0] - np.diagonal(expected, axis1=1, axis2=2)).max() <= allowed
        assert np.abs(matrices[:, 0] - expected)[:, off_diagonal].max() <= allowed


@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize("n_features", [7, 40, 400])
def test_sums_of_many_trees_and_outputs(n_features: int, vector: bool) -> None:
    """The sums of 40 or more features are divided, and so are the lookups of a large tree."""
    ensemble = random_ensemble(
        n_features,
        n_trees=12,
        n_features=n_features,
        n_outputs=3,
        max_leaves=90,
        shapes=("random",),
        vector=vector,
    )
    rng = np.random.default_rng(n_features)
    large = full_tree(rng, 10, 6)
    for model in (ensemble, Ensemble.from_trees([large, large], n_features=n_features, intercept=[9.0])):
        rows = random_rows(n_features, model, 320)
        in_double = plan_of(model, rows[300:])
        expected = compute(in_double, model, rows[:300])
        for precision, tolerance in TOLERANCE.items():
            counted = plan_of(model, rows[300:], None, precision)
            plan = counted.with_tables(TABLES, 3)
            for one, other in zip(compute(plan, model, rows[:300]), expected, strict=True):
                axes = tuple(range(2, one.ndim))
                error = np.abs(one - other).max(axis=(0, *axes))
                assert (error <= tolerance * leaf_scale(model) + 1e-14 * np.abs(model.intercept)).all()


def test_threads_and_counting_anew_change_no_bit() -> None:
    ensemble = random_ensemble(8, n_trees=20, n_features=11, n_outputs=2, max_leaves=70, vector=True)
    rows = random_rows(8, ensemble, 330)
    expected = compute(plan_of(ensemble, rows[300:]).with_tables(TABLES), ensemble, rows[:300])
    few = least_table_bytes(plan_of(ensemble, rows[300:]))
    with_patterns = compute(plan_of(ensemble, rows[300:]).with_tables(few), ensemble, rows[:300])
    for count_bytes, n_threads in product((COUNTS, 3000, 0), (1, 3)):
        for table_bytes, results in ((TABLES, expected), (few, with_patterns)):
            plan = plan_of(ensemble, rows[300:], count_bytes=count_bytes).with_tables(table_bytes, n_threads)
            for one, other in zip(compute(plan, ensemble, rows[:300]), results, strict=True):
                np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("index", INDICES)
def test_zeros_are_exact(index: str) -> None:
    """One row is the background itself, and one column is equal in X and in the background."""
    ensemble = random_ensemble(6, n_trees=4, n_features=6, n_outputs=2, max_leaves=40, shapes=("random",))
    for row in random_rows(6, ensemble, 8)[:, np.newaxis]:
        plan = plan_of(ensemble, row, index=index).with_tables(TABLES)
        values, _, matrices, pairs = compute(plan, ensemble, row)
        assert (values == 0).all() and (matrices == 0).all() and (pairs == 0).all()
    rows = random_rows(8, ensemble, 40)
    rows[:, 2] = 0.3
    plan = plan_of(ensemble, rows[20:], index=index).with_tables(TABLES)
    values, _, matrices, _ = compute(plan, ensemble, rows[:20])
    assert np.abs(values).max() > 0
    assert (values[..., 2] == 0).all() and (matrices[..., 2] == 0).all()


def test_no_trees_and_no_rows() -> None:
    ensemble = random_ensemble(7, n_trees=0)
    plan = plan_of(ensemble, np.zeros((2, 5)))
    assert plan.table_costs(0) == {"n_lookups": 0, "n_numbers": 0, "n_tests": 0, "table_bytes": 0}
    values, margin, *_ = compute(plan.with_tables(0), ensemble, np.zeros((3, 5)))
    assert (values == 0).all()
    np.testing.assert_allclose(margin, ensemble.margin(np.zeros((3, 5))), rtol=1e-14)
    ensemble = random_ensemble(7, n_trees=3)
    assert compute(plan_of(ensemble, np.zeros((2, 5))).with_tables(TABLES), ensemble, np.zeros((0, 5)))


def test_limits() -> None:
    ensemble = random_ensemble(9, n_trees=4, n_features=6, shapes=("random",))
    plan = plan_of(ensemble, np.zeros((3, 6)))
    costs = plan.table_costs(TABLES)
    assert costs is not None and costs["n_numbers"] > costs["n_lookups"] > costs["n_tests"] == 0
    info = plan.with_tables(costs["table_bytes"]).info()
    assert info["table_bytes"] == costs["table_bytes"] and info["n_lookups"] == costs["n_lookups"]
    assert info["n_leaves_without_table"] == info["n_patterns"] == 0
    least = least_table_bytes(plan)
    fewer = plan.table_costs(least)
    assert fewer is not None and fewer["n_tests"] > 0
    info = plan.with_tables(least).info()
    assert info["table_bytes"] == fewer["table_bytes"] < costs["table_bytes"]
    assert info["n_patterns"] >= info["n_leaves_without_table"] > 0
    assert plan.table_costs(100) is None
    with pytest.raises(_core.TableMemoryError, match=r"tables of all trees need \d+ bytes, but may take 100"):
        plan.with_tables(100)
    with pytest.raises(ValueError, match="n_threads must be at least 1"):
        plan.with_tables(TABLES, 0)


def test_tables_of_typical_models_stay_in_the_cache() -> None:
    """100 trees of depth 6 fit the second-level cache of a GPU of 2020, 40 MB, in single precision."""
    trees = [bushy_tree(seed, 6, 20) for seed in range(100)]
    ensemble = Ensemble.from_trees(trees, n_features=20, intercept=[0.5])
    costs = plan_of(ensemble, np.random.default_rng(0).random((5, 20)), precision="single").table_costs(
        TABLES
    )
    assert costs is not None and costs["table_bytes"] < 40e6
