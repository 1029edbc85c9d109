"""Interventional interactions and Banzhaf values: the core and all families against the definition.

Tests that call the core compute on the CPU, and tests of explainers on the device of the test run. The tables
of GPUs have their tests in test_pair_tables.py.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from helpers.ensembles import (
    background_matrix,
    chain_rows,
    ensemble_options,
    hard_ensemble,
    leaf_scale,
    random_chain,
    random_ensemble,
    random_rows,
    random_weights,
)
from helpers.instruction_sets import each_set, run_again
from helpers.models import MODELS, as_trees_see_them, outputs_second
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor

from skshapgpu import TreeExplainer, _core, reference
from skshapgpu.adapters.ensemble import Ensemble, attributes_of
from skshapgpu.reference import Index

X, Y = load_diabetes(return_X_y=True)

INDICES: tuple[Index, ...] = ("SII", "STII", "BII")

#: Largest error of each precision, relative to the leaves.
TOLERANCE = {"single": 5e-6, "double": 1e-10}

#: Bytes for the core's counts of the background: enough for all trees of this file.
COUNTS = 2**24


# The core


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
    attributes = attributes_of(ensemble)
    return _core.BackgroundPairsPlan(attributes, precision, background, weights, index, count_bytes)


def compute(
    plan: _core.BackgroundPairsPlan, ensemble: Ensemble, rows: np.ndarray, n_threads: int = 1
) -> list[np.ndarray]:
    """Compute values, margins, matrices and pairs with the core."""
    shape = len(rows), ensemble.n_outputs
    n = ensemble.n_features
    values, margin, matrices, pairs = (
        np.full((*shape, *more), np.nan) for more in ((n,), (), (n, n), (len(plan.pairs),))
    )
    plan.explain(rows, values, margin, n_threads, matrices, pairs)
    return [values, margin, matrices, pairs]


def assert_is_the_definition(
    ensemble: Ensemble,
    rows: np.ndarray,
    background: np.ndarray,
    weights: np.ndarray | None = None,
    indices: tuple[Index, ...] = INDICES,
) -> None:
    scale = leaf_scale(ensemble)
    shapley = reference.interventional(ensemble, rows, background, weight=weights).values
    banzhaf = reference.interventional(ensemble, rows, background, weight=weights, index="BV").values
    rounding = 1e-15 * np.abs(ensemble.intercept)
    for index in indices:
        expected = reference.interventional(ensemble, rows, background, weight=weights, index=index).values
        singles = banzhaf if index == "BII" else shapley
        for precision, tolerance in TOLERANCE.items():
            allowed = tolerance * scale[:, np.newaxis]
            plan = plan_of(ensemble, background, weights, precision, index)
            values, margin, matrices, pairs = compute(plan, ensemble, rows)
            assert (np.abs(values - singles) <= allowed).all(), (index, precision)
            assert (np.abs(matrices - expected) <= allowed[..., np.newaxis]).all(), (index, precision)
            assert (matrices == matrices.swapaxes(2, 3)).all()
            first, second = plan.pairs.T
            np.testing.assert_array_equal(pairs, matrices[..., first, second])
            assert (np.abs(margin - ensemble.margin(rows)) <= tolerance * scale + rounding).all()


@given(
    options=ensemble_options(max_used=5),
    n_background=st.sampled_from([1, 2, 3, 9]),
    weighted=st.booleans(),
    single=st.booleans(),
    index=st.sampled_from(INDICES),
)
@settings(max_examples=150)
def test_core_is_the_definition(
    options: dict[str, Any], n_background: int, weighted: bool, single: bool, index: Index
) -> None:
    """Rows at the edges of every comparison; the first background row occurs twice, and one is a row of X."""
    ensemble = random_ensemble(**options)
    rows = random_rows(options["seed"], ensemble, n_background + 3)
    background = rows[:n_background].copy()
    if n_background > 2:
        background[1] = background[0]
    if n_background > 3:
        background[2] = rows[-1]
    if single:
        with np.errstate(over="ignore"):
            background = background.astype(np.float32)
            rows = rows.astype(np.float32)
    weights = random_weights(options["seed"], n_background) if weighted else None
    assert_is_the_definition(ensemble, rows[-3:], background, weights, (index,))


@pytest.mark.parametrize("shape", ["random", "chain", "perfect", "oblivious", "leaf"])
@pytest.mark.parametrize("vector", [False, True])
def test_core_on_each_shape_of_trees(shape: str, vector: bool) -> None:
    for seed in range(3):
        ensemble = hard_ensemble(seed, shape, vector, n_used=7)
        rows = random_rows(seed, ensemble, 6)
        assert_is_the_definition(ensemble, rows[:2], rows[2:])


@pytest.mark.parametrize("shape", ["random", "chain", "perfect"])
def test_groups_of_many_features(shape: str) -> None:
    ensemble = random_ensemble(3, n_trees=3, n_features=10, shapes=(shape,), max_leaves=60)
    rows = random_rows(3, ensemble, 42)
    assert_is_the_definition(ensemble, rows[:2], rows[2:])


@pytest.mark.parametrize("n_background", [3, 90])
def test_paths_that_are_too_long_for_groups(n_background: int) -> None:
    """For leaves with more than 10 features, the core sums over subsets or over the background rows."""
    ensemble = random_chain(11, 13, 11)
    rows = chain_rows(11, ensemble, n_background + 2)
    assert_is_the_definition(ensemble, rows[:2], rows[2:], None, ("SII", "STII"))


def test_repeated_features_on_long_chains() -> None:
    for depth, n_features in ((40, 5), (60, 10)):
        ensemble = random_chain(depth, depth, n_features)
        rows = np.random.default_rng(depth).random((9, n_features))
        assert_is_the_definition(ensemble, rows[:2], rows[2:])


def test_more_rows_than_a_block_of_either() -> None:
    """Blocks and parts end at different places within 150 rows and 4,170 background rows."""
    ensemble = random_ensemble(5, n_trees=3, n_features=4, n_used=3, max_leaves=9)
    rows = random_rows(5, ensemble, 4320)
    background, weights = rows[150:], np.random.default_rng(5).random(4170)
    assert_is_the_definition(ensemble, rows[:150], background, weights / weights.sum(), ("SII",))


def test_many_lookups() -> None:
    """There are more leaves than the core may add up in single precision."""
    ensemble = random_ensemble(6, n_trees=90, n_features=7, n_outputs=2, max_leaves=40, shapes=("random",))
    rows = random_rows(6, ensemble, 12)
    assert_is_the_definition(ensemble, rows[:4], rows[4:], None, ("SII",))


@pytest.mark.parametrize("index", INDICES)
@pytest.mark.parametrize("depth", [9, 11, 12, 20, 64])
def test_long_paths(depth: int, index: str) -> None:
    """The reference of a chain is the game, at each leaf, of features that only one of two rows satisfies."""
    ensemble = random_chain(depth, depth, depth)
    rows = chain_rows(depth, ensemble, 164)
    half = np.where(np.eye(depth, dtype=bool), 1.0, 0.5)
    for x, background in ((rows[:4], rows[4:8]), (rows[:2], rows[4:])):
        weights = random_weights(depth, len(background))
        whole = [background_matrix(ensemble, row, background, weights, index) for row in x]
        expected = half * np.array(whole)
        singles = np.diagonal(expected, axis1=1, axis2=2)
        assert np.abs(expected).max() > 1e-3 * leaf_scale(ensemble)[0]
        for precision, tolerance in TOLERANCE.items():
            plan = plan_of(ensemble, background, weights, precision, index)
            values, _, matrices, _ = compute(plan, ensemble, x)
            allowed = tolerance * leaf_scale(ensemble)[0]
            assert np.abs(values[:, 0] - singles).max() <= allowed
            off_diagonal = ~np.eye(depth, dtype=bool)
            assert np.abs(matrices[:, 0] - expected)[:, off_diagonal].max() <= allowed
            if index != "BII":
                assert np.abs(matrices.sum(axis=3) - values).max() <= allowed


def test_paths_that_are_too_long_are_refused() -> None:
    ensemble = random_chain(0, 65, 65)
    with pytest.raises(
        ValueError, match="a path has 65 different features; background data allow for at most 64"
    ):
        plan_of(ensemble, np.zeros((1, 65)))


@pytest.mark.parametrize("index", INDICES)
def test_a_row_beside_itself_has_zeros(index: str) -> None:
    ensemble = random_ensemble(6, n_trees=4, n_features=10, n_outputs=2, max_leaves=60)
    for row in random_rows(6, ensemble, 8)[:, np.newaxis]:
        for count_bytes in (COUNTS, 0):
            plan = plan_of(ensemble, row, index=index, count_bytes=count_bytes)
            values, _, matrices, pairs = compute(plan, ensemble, row)
            assert (values == 0).all() and (matrices == 0).all() and (pairs == 0).all()


def test_features_that_change_nothing_have_zeros() -> None:
    """For a column that is equal in X and in the background, value and pairs are zeros to the bit."""
    ensemble = random_ensemble(8, n_trees=6, n_features=6, max_leaves=40, shapes=("random",))
    rows = random_rows(8, ensemble, 40)
    rows[:, 2] = 0.3
    plan = plan_of(ensemble, rows[20:])
    assert (plan.pairs == 2).any()
    values, _, matrices, _ = compute(plan, ensemble, rows[:20])
    assert np.abs(values).max() > 0
    assert (values[..., 2] == 0).all() and (matrices[..., 2] == 0).all()


@pytest.mark.parametrize("n_rows, n_trees", [(0, 3), (2, 0)])
def test_no_rows_and_no_trees(n_rows: int, n_trees: int) -> None:
    ensemble = random_ensemble(7, n_trees=n_trees)
    plan = plan_of(ensemble, np.zeros((2, 5)))
    values, margin, matrices, _ = compute(plan, ensemble, np.zeros((n_rows, 5)))
    assert values.shape == (n_rows, 1, 5) and (values == 0).all() and (matrices == 0).all()
    np.testing.assert_allclose(margin, ensemble.margin(np.zeros((n_rows, 5))), rtol=1e-14)


@pytest.mark.parametrize("precision", TOLERANCE)
def test_threads_and_neighbours_change_no_bit(precision: str) -> None:
    ensemble = random_ensemble(8, n_trees=20, n_features=11, n_outputs=2, max_leaves=70, vector=True)
    rows = random_rows(8, ensemble, 330)
    plan = plan_of(ensemble, rows[300:], precision=precision)
    expected = compute(plan, ensemble, rows[:300])
    for n_threads in (2, 3, 7):
        for one, other in zip(compute(plan, ensemble, rows[:300], n_threads), expected):
            np.testing.assert_array_equal(one, other)
    for part in (slice(0, 1), slice(17, 90), slice(299, 300), slice(None, None, -1)):
        for one, other in zip(compute(plan, ensemble, rows[:300][part]), expected):
            np.testing.assert_array_equal(one, other[part])


@pytest.mark.parametrize("n_background", [5, 200])
def test_counting_anew_changes_no_bit(n_background: int) -> None:
    """Results do not depend on how many counts fit into the memory limit."""
    ensemble = random_ensemble(9, n_trees=20, n_features=11, max_leaves=70)
    rows = random_rows(9, ensemble, 100 + n_background)
    background = rows[100:]
    expected = compute(plan_of(ensemble, background), ensemble, rows[:100])
    kept = plan_of(ensemble, background).info()
    for count_bytes in (0, 3000):
        plan = plan_of(ensemble, background, count_bytes=count_bytes)
        for n_threads in (1, 2):
            for one, other in zip(compute(plan, ensemble, rows[:100], n_threads), expected):
                np.testing.assert_array_equal(one, other)
        assert plan.info()["scratch_bytes_per_thread"] > kept["scratch_bytes_per_thread"]


def test_info_and_arguments() -> None:
    ensemble = random_ensemble(9, n_trees=4, shapes=("random",))
    info = plan_of(ensemble, np.zeros((3, 5))).info()
    assert info["n_trees"] == 4 and info["n_leaves"] == ensemble.n_leaves
    assert info["bytes"] > 0 and info["scratch_bytes_per_thread"] > 0
    attributes = attributes_of(ensemble)
    pairs = _core.Plan(attributes, "double", 2).pairs
    np.testing.assert_array_equal(plan_of(ensemble, np.zeros((3, 5))).pairs, pairs)
    with pytest.raises(ValueError, match="index must be 'SII', 'STII' or 'BII', not 'SV'"):
        plan_of(ensemble, np.zeros((3, 5)), index="SV")
    with pytest.raises(ValueError, match="background must have shape"):
        plan_of(ensemble, np.zeros((0, 5)), np.zeros(0))
    values = np.empty((2, 1, 5))
    with pytest.raises(ValueError, match="pairs has a wrong shape"):
        plan_of(ensemble, np.zeros((3, 5))).explain(
            np.zeros((2, 5)), values, None, 1, pairs=np.empty((2, 1, 99))
        )


# Models


@pytest.fixture(scope="module", params=MODELS)
def case(request: pytest.FixtureRequest) -> tuple[Any, np.ndarray]:
    return MODELS[request.param]()


@pytest.mark.parametrize("index", INDICES)
def test_families(case: tuple[Any, np.ndarray], index: Index) -> None:
    model, rows = case
    rows, background = rows[:3], rows[20:30]
    weights = [3, 0, 1, 2, 0.5, 0.5, 1, 1, 0, 4] if index == "SII" else None
    ensemble, encoded = as_trees_see_them(model, rows)
    behind = as_trees_see_them(model, background)[1]
    expected = reference.interventional(ensemble, encoded, behind, weight=weights, index=index).values
    for precision, tolerance in TOLERANCE.items():
        allowed = tolerance * leaf_scale(ensemble)[:, np.newaxis]
        explainer = TreeExplainer(model, background, data_weight=weights, precision=precision)
        matrices = outputs_second(explainer.explain_interactions(rows, index=index).matrices(), 3)
        assert (np.abs(matrices - expected) <= allowed[..., np.newaxis]).all()
        singles = outputs_second(explainer.explain(rows, index="BV" if index == "BII" else "SV").values, 2)
        if index == "BII":
            banzhaf = reference.interventional(ensemble, encoded, behind, weight=weights, index="BV").values
            assert (np.abs(singles - banzhaf) <= allowed).all()
        else:
            assert (np.abs(matrices.sum(axis=3) - singles) <= 10 * allowed).all()


@pytest.mark.parametrize("index", INDICES)
@pytest.mark.parametrize("library", ["forest", "xgboost"])
def test_shapiq(library: str, index: str) -> None:
    """shapiq returns the whole index of a pair, as explain_interactions does."""
    shapiq_trees = pytest.importorskip("shapiq.tree.interventional")
    rows = X.astype(np.float32)
    if library == "forest":
        model: Any = RandomForestRegressor(5, max_depth=6, random_state=0).fit(rows, Y)
    else:
        xgboost = pytest.importorskip("xgboost")
        model = xgboost.XGBRegressor(n_estimators=8, max_depth=5, base_score=0, n_jobs=1).fit(rows, Y)
    theirs = shapiq_trees.InterventionalTreeSHAPIQ(model, rows[:60], max_order=2, index=index.upper())
    explainer = TreeExplainer(model, rows[:60], precision="double")
    pairs = list(combinations(range(10), 2))
    ours = explainer.explain_interactions(rows[60:80].astype(float), interactions=pairs, index=index)
    expected = []
    for row in rows[60:80]:
        values = theirs.explain(row)
        expected.append([values[pair] for pair in pairs])
    assert np.abs(expected).max() > 1e-3 * np.abs(Y).max()
    np.testing.assert_allclose(ours.values, expected, rtol=0, atol=1e-10 * np.abs(Y).max())


@each_set
def test_other_instruction_sets(isa: str) -> None:
    run_again(isa, __file__, select="core or paths or zeros")
