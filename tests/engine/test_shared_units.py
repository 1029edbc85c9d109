"""Units that trees with the same tests share, for cells that occur: values, rows, threads, and the choice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers.alike_trees import MODELS, alike_trees
from helpers.ensembles import leaf_scale, random_ensemble, random_rows
from helpers.instruction_sets import each_set, run_again
from helpers.kernels import TOLERANCE, algorithms_of, both_precisions, explain, interrupted, once, same_bits
from sklearn.datasets import make_regression
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from skshapgpu import TreeExplainer, _core, reference
from skshapgpu.adapters.ensemble import Ensemble, attributes_of


def plan_of(ensemble: Ensemble, precision: str = "double", index: str = "SII") -> Any:
    return _core.Plan(attributes_of(ensemble), precision, index=index)


def with_other_covers(ensemble: Ensemble, seed: int = 0) -> Ensemble:
    """Give the trees other covers, so that they have the same tests, but are walked one by one."""
    cover = np.random.default_rng(seed).uniform(0.1, 1, len(ensemble.left))
    for tree in range(len(ensemble.tree_offsets) - 1):
        first, end = ensemble.tree_offsets[tree : tree + 2]
        for node in reversed(range(first, end)):  # children follow their parents
            if ensemble.left[node] >= 0:
                cover[node] = cover[first + ensemble.left[node]] + cover[first + ensemble.right[node]]
    return replace(ensemble, cover=cover)


def with_vector_leaves(ensemble: Ensemble, n_outputs: int) -> Ensemble:
    rng = np.random.default_rng(0)
    values = np.where(ensemble.left[:, np.newaxis] < 0, rng.normal(size=(len(ensemble.left), n_outputs)), 0.0)
    return replace(
        ensemble,
        value=values,
        tree_output=np.full_like(ensemble.tree_output, -1),
        intercept=np.arange(n_outputs, dtype=float),
    )


def assert_is_the_walk(ensemble: Ensemble, rows: np.ndarray, precision: str, index: str = "SII") -> None:
    plan = plan_of(ensemble, precision, index)
    values, margin = explain(_core.cell_plan(plan), ensemble, rows)
    expected, expected_margin = explain(plan_of(ensemble, "double", index), ensemble, rows)
    scale = leaf_scale(ensemble)
    assert (np.abs(values - expected) <= 2 * TOLERANCE[precision] * scale[:, np.newaxis]).all()
    assert (np.abs(margin - expected_margin) <= 1e-13 * (1 + scale)).all()


# Values


@both_precisions
@pytest.mark.parametrize("own_covers", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_values_are_those_of_the_trees(name: str, own_covers: bool, precision: str) -> None:
    for seed in range(1, 4):
        ensemble = alike_trees(seed, **MODELS[name])
        if own_covers:
            ensemble = with_other_covers(ensemble, seed)
        units, walked = _core.unit_fractions(plan_of(ensemble))
        assert units < 0.75 and (walked == 1) is own_covers
        for index in ("SII", "BII"):
            assert_is_the_walk(ensemble, random_rows(seed, ensemble, 200), precision, index)


@pytest.mark.parametrize("seed", range(20))
def test_values_are_those_of_the_definition(seed: int) -> None:
    """In place of a node of one tree, others have a leaf, or nodes with other tests."""
    ensemble = with_other_covers(
        alike_trees(seed, max_depth=4, n_trees=7, parting=0.1, n_features=5, categorical=bool(seed % 2)), seed
    )
    rows = random_rows(seed, ensemble, 5)
    for index, name in (("SII", "SV"), ("BII", "BV")):
        values, _ = explain(_core.cell_plan(plan_of(ensemble, index=index)), ensemble, rows)
        expected = reference.path_dependent(ensemble, rows, index=name).values
        np.testing.assert_allclose(values, expected, rtol=0, atol=1e-11 * leaf_scale(ensemble).max())


@both_precisions
@pytest.mark.parametrize("own_covers", [False, True])
def test_vector_leaves(own_covers: bool, precision: str) -> None:
    ensemble = with_vector_leaves(alike_trees(1, max_depth=7), 3)
    assert_is_the_walk(
        with_other_covers(ensemble) if own_covers else ensemble, random_rows(1, ensemble, 200), precision
    )


@both_precisions
def test_trees_of_which_only_roots_are_alike(precision: str) -> None:
    ensemble = with_other_covers(alike_trees(2, n_trees=90, max_depth=6, parting=0.9, n_features=2))
    units, walked = _core.unit_fractions(plan_of(ensemble))
    assert 0.75 < units <= walked == 1
    assert_is_the_walk(ensemble, random_rows(1, ensemble, 300), precision)


@both_precisions
@pytest.mark.parametrize("n_trees", [300, 5000])
def test_thousands_of_trees_with_the_same_tests(n_trees: int, precision: str) -> None:
    """A unit has up to 64 trees, so that single precision adds up the values of few trees."""
    ensemble = with_other_covers(alike_trees(5, n_trees=n_trees, max_depth=4, parting=0.0))
    ensemble = replace(ensemble, value=np.abs(ensemble.value) * (1 + ensemble.feature[:, np.newaxis]))
    assert _core.unit_fractions(plan_of(ensemble))[0] == pytest.approx(1 / 16)  # of a sample
    plan = plan_of(ensemble, precision)
    rows = random_rows(1, ensemble, 300)
    values, margin = explain(_core.cell_plan(plan), ensemble, rows)
    expected, expected_margin = explain(plan_of(ensemble), ensemble, rows)
    tolerance = {"single": 1e-6, "double": 1e-12}[precision]
    np.testing.assert_allclose(values, expected, rtol=0, atol=tolerance * np.abs(expected).max())
    np.testing.assert_allclose(margin, expected_margin, rtol=1e-12)


def test_trees_with_the_same_covers_are_walked_as_one() -> None:
    alike = alike_trees(5, n_trees=16, max_depth=6, parting=0.0)
    apart = with_other_covers(alike)
    assert _core.unit_fractions(plan_of(alike)) == pytest.approx((1 / 16, 1 / 16))
    assert _core.unit_fractions(plan_of(apart)) == pytest.approx((1 / 16, 1))
    assert _core.unit_fractions(plan_of(random_ensemble(1, n_trees=30, max_leaves=40)))[0] > 0.8
    one = alike_trees(5, n_trees=1, max_depth=6, parting=0.0)
    sizes = [_core.cell_plan(plan_of(trees)).info()["table_bytes"] for trees in (one, alike, apart)]
    assert sizes[0] == sizes[1] < sizes[2] < 16 * sizes[0]


# Rows and threads


@pytest.mark.parametrize("vector", [False, True])
def test_rows_depend_neither_on_each_other_nor_on_threads(vector: bool) -> None:
    ensemble = with_other_covers(alike_trees(3, n_trees=40, max_depth=9, parting=0.03))
    if vector:
        ensemble = with_vector_leaves(ensemble, 2)
    rows = random_rows(2, ensemble, 700)
    plan = _core.cell_plan(plan_of(ensemble, "single"))
    values, margin = explain(plan, ensemble, rows)
    order = np.random.default_rng(0).permutation(700)
    for chosen in (order, order[:300], order[:1], np.repeat(order[:30], 27)):
        for n_threads in (1, 3):
            again = explain(plan, ensemble, rows[chosen], n_threads=n_threads)
            assert same_bits(again[0], values[chosen]) and same_bits(again[1], margin[chosen])
    for n_threads in (2, 5):
        compiled = _core.cell_plan(plan_of(ensemble, "single"), n_threads)
        assert same_bits(explain(compiled, ensemble, rows)[0], values)


@once
def test_an_interrupt_ends_the_cutting_of_trees() -> None:
    plan = plan_of(alike_trees(1, n_trees=6000, max_depth=8, parting=0.02))
    with interrupted(0.1):
        _core.cell_plan(plan)


# The choice


X, Y = make_regression(6000, 8, n_informative=8, noise=10.0, random_state=0)


@once
@pytest.mark.parametrize("classes", [False, True])
def test_boosting_with_a_low_learning_rate_uses_cells(classes: bool) -> None:
    """Trees have the same tests; with squared errors, they also have the same covers, and were merged."""
    options: dict[str, Any] = {"learning_rate": 0.01, "max_iter": 30, "max_leaf_nodes": 400}
    boosting = HistGradientBoostingClassifier if classes else HistGradientBoostingRegressor
    model = boosting(**options, min_samples_leaf=5, random_state=0).fit(X, Y > 0 if classes else Y)
    explainer = TreeExplainer(model, device="cpu")
    rows = np.tile(X, (2, 1))
    assert "cells" in algorithms_of(explainer, len(rows))
    values = explainer.explain(rows)
    walked = TreeExplainer(model, device="cpu", algorithm="quadrature").explain(X).values
    np.testing.assert_allclose(values.values[:6000], walked, atol=1e-6 * np.abs(walked).max())
    assert not same_bits(values.values[:6000], walked)  # or these were walked, too
    margin = model.decision_function(rows) if classes else model.predict(rows)
    np.testing.assert_allclose(
        values.values.sum(axis=1) + values.base_values, margin, atol=1e-6 * np.abs(margin).max()
    )


@each_set
def test_other_instruction_sets(isa: str) -> None:
    run_again(isa, __file__, select="not other_instruction_sets")
