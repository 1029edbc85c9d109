"""Features that share a player: every kind of plan against the definition, with random players."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers.ensembles import ensemble_options, leaf_scale, random_ensemble, random_rows, random_weights
from helpers.plans import KINDS, plan_with_tables, with_intervals
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skshapgpu import _core, reference
from skshapgpu.adapters.ensemble import Ensemble, attributes_of

#: Largest error of each precision, relative to the leaves.
TOLERANCE = {"single": 5e-6, "double": 1e-10}

#: Bytes for tables: enough for all leaves of these trees, for some, and for none.
TABLES = (2**24, 3000, 0)

#: Methods of path-dependent plans for SHAP values, without tables.
METHODS = ("walk", "treeshap", "fast_v1")


def plan_of(ensemble: Ensemble, precision: str, kind: str) -> Any:
    """Compile a plan of a method, or with a kind of tables."""
    if kind in METHODS:
        return _core.Plan(attributes_of(ensemble), precision, method=kind)
    return plan_with_tables(ensemble, precision, kind)


def with_players(seed: int, ensemble: Ensemble) -> Ensemble:
    """Draw about half as many players as features."""
    drawn = np.random.default_rng(seed).integers(0, ensemble.n_features // 2 + 1, ensemble.n_features)
    return replace(ensemble, player=np.unique(drawn, return_inverse=True)[1])


@st.composite
def ensembles(draw: st.DrawFn, **options: Any) -> tuple[int, Ensemble]:
    drawn = draw(ensemble_options(**options))
    return drawn["seed"], with_players(drawn["seed"], random_ensemble(**drawn))


def assert_computes(
    plan: Any, ensemble: Ensemble, rows: np.ndarray, tolerance: float, values: np.ndarray, **parts: np.ndarray
) -> None:
    """Check the margins and ``parts``, which are named like the core's results."""
    scale = leaf_scale(ensemble)
    margin = np.full((len(rows), ensemble.n_outputs), np.nan)
    result = {name: np.full(truth.shape, np.nan) for name, truth in {"values": values, **parts}.items()}
    out = dict(result)
    plan.explain(rows, out.pop("values"), margin, 1, **out)
    for name, truth in {"values": values, **parts}.items():
        allowed = tolerance * scale.reshape(-1, *(1,) * (truth.ndim - 2))
        assert (np.abs(result[name] - truth) <= allowed).all(), name
    rounding = tolerance * scale + 1e-15 * np.abs(ensemble.intercept)
    assert (np.abs(margin - ensemble.margin(rows)) <= rounding).all()


@given(case=ensembles())
@settings(max_examples=60)
def test_path_dependent_values(case: tuple[int, Ensemble]) -> None:
    seed, ensemble = case
    rows = random_rows(seed, ensemble, 7)
    expected, base_value, _ = reference.path_dependent(ensemble, rows)
    for precision, tolerance in TOLERANCE.items():
        for kind in (*METHODS, *KINDS):
            plan = plan_of(ensemble, precision, kind)
            assert_computes(plan, ensemble, rows, tolerance, expected)
        np.testing.assert_allclose(plan.base_value, base_value, rtol=1e-12, atol=1e-12)
        plan = _core.Plan(attributes_of(ensemble), precision, 1, "BII")
        assert_computes(
            plan, ensemble, rows, tolerance, reference.path_dependent(ensemble, rows, index="BV").values
        )


@given(case=ensembles(max_used=5))
@settings(max_examples=25)
def test_path_dependent_interactions(case: tuple[int, Ensemble]) -> None:
    seed, ensemble = case
    rows = random_rows(seed, ensemble, 7)
    shapley, banzhaf = (
        reference.path_dependent(ensemble, rows).values,
        reference.path_dependent(ensemble, rows, index="BV").values,
    )
    for precision, tolerance in TOLERANCE.items():
        for index in ("SII", "STII", "BII"):
            plan = _core.Plan(attributes_of(ensemble), precision, 2, index)
            matrices = reference.path_dependent(ensemble, rows, index=index).values
            values = banzhaf if index == "BII" else shapley
            pairs = matrices[..., plan.pairs[:, 0], plan.pairs[:, 1]]
            assert_computes(plan, ensemble, rows, tolerance, values, matrices=matrices, pairs=pairs)
        plan = _core.Plan(attributes_of(ensemble), precision, 3, "SII")
        triples, _, members = reference.path_dependent(ensemble, rows, index="SII", order=3)
        place = {tuple(triple): i for i, triple in enumerate(members.tolist())}
        occurring = [place[tuple(triple)] for triple in plan.triples.tolist()]
        assert_computes(plan, ensemble, rows, tolerance, shapley, triples=triples[..., occurring])


@given(case=ensembles(max_used=5), n_background=st.sampled_from([1, 2, 9]))
@settings(max_examples=20)
def test_background(case: tuple[int, Ensemble], n_background: int) -> None:
    seed, ensemble = case
    rows = random_rows(seed, ensemble, n_background + 3)
    rows, background = rows[:3], rows[3:]
    weights = random_weights(seed, n_background)
    expected, base_value, _ = reference.interventional(ensemble, rows, background, weight=weights)
    banzhaf = reference.interventional(ensemble, rows, background, weight=weights, index="BV").values
    for precision, tolerance in TOLERANCE.items():
        for n_bytes in TABLES:
            for index, values in (("SII", expected), ("BII", banzhaf)):
                plan = _core.background_plan(
                    attributes_of(ensemble), precision, background, weights, index, n_bytes
                )
                assert_computes(plan, ensemble, rows, tolerance, values)
                assert_computes(with_intervals(plan), ensemble, rows, tolerance, values)
                scale = leaf_scale(ensemble) + np.abs(ensemble.intercept)
                assert (np.abs(plan.base_value - base_value) <= tolerance * scale).all()
            for index in ("SII", "STII", "BII"):
                plan = _core.BackgroundPairsPlan(
                    attributes_of(ensemble), precision, background, weights, index, n_bytes
                )
                matrices = reference.interventional(
                    ensemble, rows, background, weight=weights, index=index
                ).values
                values = banzhaf if index == "BII" else expected
                pairs = matrices[..., plan.pairs[:, 0], plan.pairs[:, 1]]
                for with_pairs in (plan, plan.with_tables(2**26)):
                    assert_computes(
                        with_pairs, ensemble, rows, tolerance, values, matrices=matrices, pairs=pairs
                    )


def test_functions_of_the_margin() -> None:
    for seed in range(20):
        ensemble = random_ensemble(seed, n_trees=3, n_features=6, max_leaves=9)
        ensemble = with_players(seed, replace(ensemble, value=ensemble.value / leaf_scale(ensemble)[0]))
        rows = random_rows(seed, ensemble, 9)
        rows, background = rows[:4], rows[4:]
        weights = random_weights(seed, 5)
        expected = reference.rescaled(
            ensemble,
            rows,
            background,
            lambda m, y: 1 / (1 + np.exp(-m)),
            lambda m, y: 1 / (2 + np.exp(m) + np.exp(-m)),
            weight=weights,
        ).values
        values = np.full((4, 1, ensemble.n_players), np.nan)
        plan = _core.RescaledPlan(attributes_of(ensemble), "double", background, weights, "logistic", 1.0)
        plan.explain(rows, values, None, 1)
        np.testing.assert_allclose(values, expected, rtol=0, atol=1e-10)


@pytest.mark.usefixtures("gpu")
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=ensembles())
def test_gpu(case: tuple[int, Ensemble]) -> None:
    _cuda = pytest.importorskip("skshapgpu._cuda")
    seed, ensemble = case
    rows = random_rows(seed, ensemble, 70)
    weights = random_weights(seed, 9)
    plans = [
        (lambda p: plan_of(ensemble, p, "walk"), "chunks"),
        (lambda p: plan_of(ensemble, p, "level_uniform"), "chunks"),
        (lambda p: plan_of(ensemble, p, "fast_v2"), "fast_v2"),
        (
            lambda p: _core.background_plan(attributes_of(ensemble), p, rows[:9], weights, "SII", TABLES[0]),
            "chunks",
        ),
    ]
    shape = len(rows), ensemble.n_outputs, ensemble.n_players
    for compiled, method in plans:
        truth = np.full(shape, np.nan)
        compiled("double").explain(rows, truth, None, 1)
        for precision, tolerance in TOLERANCE.items():
            values, margin = np.full(shape, np.nan), np.full(shape[:2], np.nan)
            _cuda.CudaPlan(compiled(precision), 0, method).explain(rows, values, margin, None, 0)
            assert (np.abs(values - truth) <= tolerance * leaf_scale(ensemble)[:, np.newaxis]).all()
            np.testing.assert_allclose(margin, ensemble.margin(rows), rtol=1e-9, atol=1e-9)
    for precision, tolerance in TOLERANCE.items():
        plan = _core.Plan(attributes_of(ensemble), precision, 2)
        truth, matrices = np.full(shape, np.nan), np.full((*shape, shape[2]), np.nan)
        plan.explain(rows, truth, None, 1, matrices)
        values, result = np.full(shape, np.nan), np.full(matrices.shape, np.nan)
        _cuda.CudaPlan(plan, 0).explain(rows, values, None, None, 0, result)
        allowed = 2 * tolerance * leaf_scale(ensemble)[:, np.newaxis, np.newaxis]
        assert (np.abs(result - matrices) <= allowed).all()


@pytest.mark.usefixtures("gpu")
def test_gputreeshap_refuses_several_columns_of_a_player() -> None:
    _cuda = pytest.importorskip("skshapgpu._cuda")
    ensemble = chain(np.zeros(3, int))
    with pytest.raises(ValueError, match="one player"):
        _cuda.CudaPlan(_core.Plan(attributes_of(ensemble), "double"), 0, "gputreeshap")


def chain(player: np.ndarray) -> Ensemble:
    """Build a tree with one leaf that depends on three columns."""
    return Ensemble(
        n_features=3,
        tree_offsets=[0, 7],
        tree_output=[0],
        left=[1, -1, 3, -1, 5, -1, -1],
        right=[2, -1, 4, -1, 6, -1, -1],
        feature=[0, 0, 1, 0, 2, 0, 0],
        threshold=np.zeros(7),
        missing_left=np.zeros(7, bool),
        cover=[8.0, 4.0, 4.0, 2.0, 2.0, 1.0, 1.0],
        value=np.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 8.0])[:, np.newaxis],
        intercept=[0.0],
        player=player,
    )


def test_by_hand() -> None:
    """Columns 0 and 2 are one player: alone it moves the leaf from 1 in 8 to 1 in 2, and from 1 in 4 to 1."""
    ensemble, rows = chain(np.array([1, 0, 1])), np.ones((1, 3))
    expected = [[[(2.0 - 1.0 + 8.0 - 4.0) / 2, (4.0 - 1.0 + 8.0 - 2.0) / 2]]]
    np.testing.assert_allclose(reference.path_dependent(ensemble, rows).values, expected, rtol=1e-15)
    assert_computes(_core.Plan(attributes_of(ensemble), "double"), ensemble, rows, 1e-12, np.array(expected))


def test_far_more_features_than_nodes() -> None:
    """The core then renumbers the features."""
    n_features = 200_000
    used = np.array([3, 70_000, 70_001, 199_999])
    narrow = random_ensemble(1, n_trees=4, n_features=4, shapes=("random",), max_leaves=9, zero_missing=True)
    narrow = replace(narrow, player=[1, 0, 1, 2])
    zero_missing = np.zeros(n_features, bool)
    zero_missing[used] = narrow.zero_missing
    player = np.arange(n_features) // 2
    player[used] = [99_998, 35_000, 99_998, 99_999]
    player[[2, 139_999]] = [1, 69_999]
    player = np.unique(player, return_inverse=True)[1]
    wide = replace(
        narrow,
        n_features=n_features,
        feature=np.where(narrow.left < 0, 0, used[narrow.feature]),
        player=player,
        zero_missing=zero_missing,
    )
    rows = random_rows(1, narrow, 20)
    X = np.zeros((20, n_features))
    X[:, used] = rows
    expected = np.zeros((20, 1, wide.n_players))
    expected[..., player[used]] = reference.path_dependent(narrow, rows).values[..., [1, 0, 1, 2]]
    assert_computes(_core.Plan(attributes_of(wide), "double"), wide, X, 1e-10, expected)


def test_each_feature_a_player_of_its_own_changes_no_bit() -> None:
    ensemble = random_ensemble(3, n_trees=5, n_features=6, max_leaves=16, categorical=True)
    rows = random_rows(3, ensemble, 70)
    values = []
    for one in (ensemble, replace(ensemble, player=np.arange(6))):
        values.append(np.full((70, 1, 6), np.nan))
        _core.Plan(attributes_of(one), "single").explain(rows, values[-1], None, 1)
    np.testing.assert_array_equal(*values)


@pytest.mark.parametrize("player", [[0, 1], [0, 2, 2], [-1, 0, 1], [1, 1, 2], [0, 2**31 - 1, 1]])
def test_wrong_players_are_refused(player: list[int]) -> None:
    with pytest.raises(ValueError, match="player must"):
        chain(np.array(player))


def test_players_are_kept() -> None:
    ensemble = chain(np.array([0, 1, 0]))
    assert ensemble.n_players == 2 and replace(ensemble, player=[]).n_players == 3
    for other in (copy.copy(ensemble), pickle.loads(pickle.dumps(ensemble))):
        np.testing.assert_array_equal(other.player, ensemble.player)
