"""Cells that occur: values by the definition, independence of rows, and the calls that use them."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from helpers.alike_trees import alike_trees
from helpers.ensembles import (
    chain_rows,
    ensemble_options,
    paths_that_no_row_takes,
    random_chain,
    random_ensemble,
    random_rows,
)
from helpers.instruction_sets import each_set, run_again
from helpers.kernels import (
    algorithms_of,
    assert_layouts_do_not_matter,
    assert_values,
    explain,
    interrupted,
    once,
    same_bits,
)
from hypothesis import given, settings
from sklearn.datasets import make_classification, make_regression
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

from skshapgpu import TreeExplainer, _core, reference
from skshapgpu._common.algorithms import SHAP_VALUES
from skshapgpu._engine.costs import trees as costs
from skshapgpu._engine.kind_plans import CELLS
from skshapgpu.adapters.ensemble import Ensemble, Tree, attributes_of


def cells_of(ensemble: Ensemble, precision: str = "double", index: str = "SII") -> Any:
    return _core.cell_plan(_core.Plan(attributes_of(ensemble), precision, index=index))


def assert_is_the_definition(ensemble: Ensemble, rows: np.ndarray, index: str = "SII") -> None:
    name = "BV" if index == "BII" else "SV"
    assert_is(ensemble, rows, reference.path_dependent(ensemble, rows, index=name).values, index)


def assert_is_the_walk(ensemble: Ensemble, rows: np.ndarray) -> None:
    assert_is(ensemble, rows, explain(_core.Plan(attributes_of(ensemble), "double"), ensemble, rows)[0])


def assert_is(ensemble: Ensemble, rows: np.ndarray, expected: np.ndarray, index: str = "SII") -> None:
    for precision in ("single", "double"):
        plan = cells_of(ensemble, precision, index)
        assert_values(plan, ensemble, rows, expected, precision)
        walk = _core.Plan(attributes_of(ensemble), precision, index=index)
        assert same_bits(plan.base_value, walk.base_value)


# Values


@given(options=ensemble_options())
@settings(max_examples=150)
def test_any_trees(options: dict[str, Any]) -> None:
    ensemble = random_ensemble(**options)
    rows = random_rows(options["seed"], ensemble, 33)
    for index in ("SII", "BII"):
        assert_is_the_definition(ensemble, rows, index)


@pytest.mark.parametrize("vector", [False, True])
def test_several_outputs_and_units(vector: bool) -> None:
    """Trees of up to 60 leaves are cut into several units, which have leaves of value 0 for each other."""
    ensemble = random_ensemble(
        3, n_trees=20, n_features=7, n_outputs=4, vector=vector, max_leaves=60, zero_missing=True
    )
    assert ensemble.tree_offsets[-1] > 20 * 2 * 16  # or trees would be units
    assert_is_the_definition(ensemble, random_rows(1, ensemble, 40))


@pytest.mark.parametrize("n_categories", [1, 30, 62, 256])
def test_categories(n_categories: int) -> None:
    """Categories that go the same ways at the tests of a unit are a class."""
    rng = np.random.default_rng(n_categories)
    codes = rng.permutation(2 * n_categories)[:n_categories]
    trees = []
    for _ in range(20):
        sets = [
            np.sort(rng.choice(codes, rng.integers(1, n_categories + 1), replace=False)) for _ in range(3)
        ]
        trees.append(
            Tree(
                left=np.array([1, 2, 5, -1, -1, -1, -1]),
                right=np.array([4, 3, 6, -1, -1, -1, -1]),
                feature=np.array([0, 1, 0, 0, 0, 0, 0]),
                threshold=np.zeros(7),
                missing_left=rng.random(7) < 0.5,
                cover=np.array([9.0, 5, 2, 3, 4, 1.5, 0.5]),
                value=np.concatenate([np.zeros((3, 1)), rng.normal(size=(4, 1))]),
                categories=dict(enumerate(sets)),
            )
        )
    ensemble = Ensemble.from_trees(trees, n_features=2, intercept=0.5)
    x = np.concatenate([codes, [2 * n_categories, -1, np.nan]]).astype(float)
    rows = np.column_stack([rng.permutation(x), x])
    assert_is_the_definition(ensemble, np.concatenate([rows, rows[:, ::-1]]))


def test_categories_above_units() -> None:
    """Categories that fail the tests above a unit are a class, whatever the tests inside are."""
    ensemble = random_ensemble(8, n_trees=12, n_features=3, max_leaves=90, categorical=True)
    assert_is_the_definition(ensemble, random_rows(4, ensemble, 60))


def test_more_categories_than_a_column_may_have() -> None:
    tree = Tree(
        left=np.array([1, -1, -1]),
        right=np.array([2, -1, -1]),
        feature=np.zeros(3, int),
        threshold=np.zeros(3),
        missing_left=np.zeros(3, bool),
        cover=np.array([2.0, 1, 1]),
        value=np.array([[0.0], [1], [2]]),
        categories={0: np.arange(257)},
    )
    plan = _core.Plan(attributes_of(Ensemble.from_trees([tree], n_features=1, intercept=0.0)), "single")
    assert _core.unit_fractions(plan) is None
    with pytest.raises(ValueError, match="cannot be explained by cells"):
        _core.cell_plan(plan)


@pytest.mark.parametrize("missing_left", [False, True])
def test_missing_values_that_pass_in_the_middle(missing_left: bool) -> None:
    """A unit below 4 < x0 <= 6, through which missing values may pass; no interval of x0 goes their ways."""
    n = 20  # leaves of a chain below on x1, so that it has units of its own
    left, right, feature, threshold, missing = [1, -1], [2, -1], [0, 0], [4.0, 0.0], [False, False]
    for i in range(n):
        at = len(left)
        left += [at + 1, -1]
        right += [at + 2, -1]
        feature += [0 if i % 3 == 0 else 1, 0]
        threshold += [6.0 - i / 10 if i % 3 == 0 else 10.0 - i, 0.0]
        missing += [missing_left if i % 2 else i == 0, False]
        if i % 3 == 0:  # the chain continues to the left
            left[at], right[at] = at + 2, at + 1
    left.append(-1)
    right.append(-1)
    feature.append(0)
    threshold.append(0.0)
    missing.append(False)
    rng = np.random.default_rng(0)
    cover = np.zeros(len(left))
    for node in reversed(range(len(left))):
        cover[node] = rng.random() + 0.1 if left[node] < 0 else cover[left[node]] + cover[right[node]]
    value = np.where(np.array(left) < 0, rng.normal(size=len(left)), 0.0)[:, np.newaxis]
    tree = Tree(
        left=np.array(left),
        right=np.array(right),
        feature=np.array(feature),
        threshold=np.array(threshold),
        missing_left=np.array(missing),
        cover=cover,
        value=value,
    )
    ensemble = Ensemble.from_trees([tree], n_features=3, intercept=-1.0)
    x0 = [3.0, 4, 4.1, 4.5, 4.8, 5, 5.3, 5.7, 6, 7, np.nan]
    rows = np.array([*product(x0, [*np.arange(-10.0, 11), np.nan], [0.0])])
    assert_is_the_definition(ensemble, rows)


def test_paths_that_no_row_takes() -> None:
    for ensemble, rows in paths_that_no_row_takes():
        assert_is_the_definition(ensemble, rows)


@pytest.mark.parametrize("n_features", [3, 12])
def test_long_paths(n_features: int) -> None:
    ensemble = random_chain(n_features, 40, n_features)
    assert_is_the_definition(ensemble, chain_rows(1, ensemble, 30))


@pytest.mark.parametrize("rare", [1e-12, 1 - 1e-7])
def test_tests_above_units_that_few_or_most_rows_of_the_data_satisfy(rare: float) -> None:
    """The values in single precision divide by factors of the features above a unit, which may be small."""
    ensemble = random_chain(5, 60, 9)
    cover = ensemble.cover.copy()
    for level in range(20):  # the nodes that are above most units
        onward, leaf = 2 * level + 1, 2 * level + 2
        share = rare if level % 3 == 0 else cover[onward] / (cover[onward] + cover[leaf])
        cover[onward], cover[leaf] = share, 1 - share
    ensemble = replace(ensemble, cover=cover)
    rows = chain_rows(1, ensemble, 500)
    assert_is_the_walk(ensemble, rows)


@pytest.mark.parametrize("n_features", [16, 40, 70])
def test_cells_with_several_keys(n_features: int) -> None:
    """Each feature above a unit is a digit, so that these cells need several numbers of 16 bits."""
    ensemble = random_chain(2, 120, n_features)
    rows = chain_rows(1, ensemble, 3000)
    assert_is_the_walk(ensemble, rows)


@once
@pytest.mark.parametrize("n_features", [22, 40])
def test_cells_in_the_same_places_of_a_map(n_features: int) -> None:
    """If hardly any rows share a cell, a quarter of the map is taken, and many cells are in other places."""
    ensemble = random_chain(3, n_features, n_features)
    rows = np.random.default_rng(0).integers(0, 2, (17_000, n_features)).astype(float)
    assert len(np.unique(rows[:16_000], axis=0)) > 15_000
    assert_is_the_walk(ensemble, rows)


def test_many_columns() -> None:
    """Units add to the sums of at most 32 features at a time."""
    rng = np.random.default_rng(0)
    X, y = make_regression(1500, 120, n_informative=120, random_state=0)
    forest = RandomForestRegressor(6, max_features=2, random_state=0).fit(X, y)
    ensemble = TreeExplainer(forest)._compiled.ensemble
    assert_is_the_walk(ensemble, np.where(rng.random((200, 120)) < 0.1, np.nan, X[:200]))


@pytest.mark.parametrize("n_classes", [0, 3])
def test_margins_of_deep_trees(n_classes: int) -> None:
    """Rows descend through trees of at least 2,000 leaves, instead of adding up the margins of cells."""
    rng = np.random.default_rng(n_classes)
    X = rng.normal(size=(9000, 5)).astype(np.float32)
    X[rng.random(X.shape) < 0.1] = np.nan
    y = rng.integers(n_classes, size=9000) if n_classes else rng.normal(1e3, 1, 9000)
    forest = (RandomForestClassifier if n_classes else RandomForestRegressor)(3, random_state=0).fit(X, y)
    assert all(tree.get_n_leaves() >= 2000 for tree in forest.estimators_)
    ensemble = TreeExplainer(forest)._compiled.ensemble
    rows = X[rng.integers(9000, size=49 * 64)]  # whole blocks, which threads share: no code follows the last
    rows[rng.random(rows.shape) < 0.2] = np.nan
    plan = cells_of(ensemble)
    values, margin = explain(plan, ensemble, rows)
    predicted = forest.predict_proba(rows) if n_classes else forest.predict(rows)
    np.testing.assert_allclose(margin, predicted.reshape(margin.shape), rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(values.sum(-1) + plan.base_value, margin, rtol=1e-11, atol=1e-11)
    for chosen in (slice(None), slice(5, 1800)):
        again = explain(plan, ensemble, rows[chosen], n_threads=3)
        assert same_bits(again[0], values[chosen]) and same_bits(again[1], margin[chosen])


# Rows and threads


@pytest.mark.parametrize("precision", ["single", "double"])
@pytest.mark.parametrize("vector", [False, True])
def test_rows_depend_neither_on_each_other_nor_on_threads(precision: str, vector: bool) -> None:
    """180 trees are several parts of 64 units, whose sums are added up in their order."""
    ensemble = random_ensemble(
        5, n_trees=180, n_features=6, n_outputs=2, vector=vector, max_leaves=40, zero_missing=True
    )
    rows = random_rows(2, ensemble, 700)
    plan = cells_of(ensemble, precision)
    values, margin = explain(plan, ensemble, rows)
    order = np.random.default_rng(0).permutation(700)
    for chosen in (order, order[:300], order[:64], order[:1], np.repeat(order[:30], 27)):
        for n_threads in (1, 3):
            again = explain(plan, ensemble, rows[chosen], n_threads=n_threads)
            assert same_bits(again[0], values[chosen]) and same_bits(again[1], margin[chosen])


def test_rows_of_several_keys_do_not_depend_on_each_other() -> None:
    ensemble = random_chain(2, 120, 40)
    rows = chain_rows(1, ensemble, 2000)
    plan = cells_of(ensemble, "single")
    values, margin = explain(plan, ensemble, rows)
    order = np.random.default_rng(0).permutation(2000)
    for chosen in (order, order[:700], np.repeat(order[:30], 27)):
        again = explain(plan, ensemble, rows[chosen])
        assert same_bits(again[0], values[chosen]) and same_bits(again[1], margin[chosen])


def test_several_tiles() -> None:
    """A tile has at most 16,384 rows, and the number of a row has 16 bits."""
    ensemble = random_ensemble(6, n_trees=9, n_features=5, max_leaves=40)
    rows = random_rows(2, ensemble, 500)
    plan = cells_of(ensemble, "single")
    values, margin = explain(plan, ensemble, rows)
    chosen = np.random.default_rng(0).integers(0, 500, 40_000)
    again = explain(plan, ensemble, rows[chosen], n_threads=2)
    assert same_bits(again[0], values[chosen]) and same_bits(again[1], margin[chosen])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_other_layouts_of_rows_and_results(dtype: str) -> None:
    ensemble = random_ensemble(7, n_trees=20, n_features=9, n_used=2)
    rows, plan = random_rows(3, ensemble, 12), cells_of(ensemble, "single")
    assert_layouts_do_not_matter(plan, ensemble, rows, dtype)


# The choice


X, Y = make_regression(6000, 8, n_informative=8, noise=10.0, random_state=0)


@pytest.fixture(scope="module")
def forest() -> RandomForestRegressor:
    return RandomForestRegressor(4, random_state=0).fit(X, Y)


@once
def test_deep_trees_and_many_rows_use_cells(forest: RandomForestRegressor) -> None:
    explainer = TreeExplainer(forest, device="cpu")
    assert "cells" in algorithms_of(explainer, 20_000) and algorithms_of(explainer, 300) == {"quadrature"}
    rows = np.tile(X, (4, 1))
    before = explainer.plan(len(rows))
    values = explainer.explain(rows).values
    compiled = explainer._compiled.of(SHAP_VALUES).plan(CELLS)
    scratch = compiled.info()["scratch_bytes_per_thread"]
    assert before.peak_bytes >= before.result_bytes + before.table_bytes + scratch > 2**20
    assert before.table_bytes == pytest.approx(compiled.info()["table_bytes"], rel=0.5)
    assert same_bits(values[:6000], values[6000:12_000])
    plan = explainer.plan(len(rows))
    assert plan.table_bytes == plan.tree_groups[0].table_bytes > 50 * plan.tree_groups[0].n_leaves
    assert plan.tree_groups[0].n_trees == 4 and "cutting the trees into units takes" in str(plan)
    walked = TreeExplainer(forest, device="cpu", algorithm="quadrature").explain(X).values
    np.testing.assert_allclose(values[:6000], walked, atol=1e-6 * np.abs(walked).max())
    assert not same_bits(values[:6000], walked)  # or these were walked, too
    banzhaf = explainer.explain(rows, index="BV").values[:6000]
    walked = TreeExplainer(forest, device="cpu", algorithm="quadrature").explain(X, index="BV").values
    np.testing.assert_allclose(banzhaf, walked, atol=1e-6 * np.abs(walked).max())


@once
@pytest.mark.parametrize("precision", ["single", "double"])
@pytest.mark.parametrize("n_outputs", [1, 6])
def test_the_memory_of_units_is_planned(n_outputs: int, precision: Any) -> None:
    targets = np.column_stack([np.cos(i) * Y + i * X[:, 0] for i in range(n_outputs)])
    forest = RandomForestRegressor(4, random_state=0).fit(X, targets if n_outputs > 1 else Y)
    explainer = TreeExplainer(forest, device="cpu", precision=precision)
    before = explainer.plan(20_000)
    explainer.explain(np.tile(X, (4, 1))[:20_000])
    after = explainer.plan(20_000)
    assert before.tree_groups[0].algorithm == after.tree_groups[0].algorithm == "cells"
    assert before.table_bytes == pytest.approx(after.table_bytes, rel=0.15)
    building = 300 * before.tree_groups[0].n_leaves  # at least
    assert before.peak_bytes > before.table_bytes + before.result_bytes + building


@once
def test_a_forest_of_several_classes() -> None:
    data, classes = make_classification(3000, 8, n_informative=6, n_classes=3, random_state=0)
    forest = RandomForestClassifier(4, random_state=0).fit(data, classes)
    explainer = TreeExplainer(forest, device="cpu")
    rows = np.tile(data, (6, 1))
    assert "cells" in algorithms_of(explainer, len(rows))
    explanation = explainer.explain(rows)
    total = explanation.values.sum(axis=1) + explanation.base_values
    np.testing.assert_allclose(total, forest.predict_proba(rows), atol=1e-6)
    walked = TreeExplainer(forest, device="cpu", algorithm="quadrature").explain(data).values
    np.testing.assert_allclose(explanation.values[:3000], walked, atol=1e-6)


@once
def test_wide_models_are_walked() -> None:
    """Rows of many features or outputs share few cells: cells took twice as long as walks."""
    data, y = make_regression(3000, 60, n_informative=60, noise=10.0, random_state=0)
    for n_features, has_cells in ((30, True), (60, False)):
        forest = RandomForestRegressor(40, max_depth=8, random_state=0).fit(data[:, :n_features], y)
        explainer = TreeExplainer(forest, device="cpu")
        assert ("cells" in algorithms_of(explainer, 30_000)) is has_cells
    data, classes = make_classification(3000, 12, n_informative=9, n_classes=7, random_state=0)
    forest = RandomForestClassifier(40, max_depth=7, random_state=0).fit(data, classes)
    assert "cells" not in algorithms_of(TreeExplainer(forest, device="cpu"), 30_000)


def test_the_options_that_exclude_cells(forest: RandomForestRegressor) -> None:
    for options in ({"memory_limit": "1GB"}, {"algorithm": "quadrature"}, {"data": X[:20]}):
        explainer = TreeExplainer(forest, device="cpu", **options)
        assert "cells" not in algorithms_of(explainer, 20_000)


def test_no_room(forest: RandomForestRegressor, monkeypatch: pytest.MonkeyPatch) -> None:
    explainer = TreeExplainer(forest, device="cpu")
    monkeypatch.setattr(type(explainer._compiled), "interval_room", lambda self: 1000)
    assert "cells" not in algorithms_of(explainer, 20_000)


def test_files_have_none(forest: RandomForestRegressor, tmp_path: Any) -> None:
    explainer = TreeExplainer(forest, device="cpu")
    explainer.save(tmp_path / "before.npz")
    explainer.explain(np.tile(X, (4, 1)))
    explainer.save(tmp_path / "after.npz")
    sizes = [(tmp_path / name).stat().st_size for name in ("before.npz", "after.npz")]
    assert abs(sizes[0] - sizes[1]) < 100


def test_plans_with_other_trees_have_none() -> None:
    attributes = attributes_of(random_ensemble(1, n_trees=4, n_features=4))
    assert _core.unit_fractions(_core.Plan(attributes, "single")) is not None
    for plan in (
        _core.Plan(attributes, "single", 2),
        _core.Plan(attributes, "single", method="treeshap"),
        _core.cell_plan(_core.Plan(attributes, "single")),
    ):
        assert _core.unit_fractions(plan) is None


@once
@pytest.mark.parametrize("n_threads", [1, 2])
def test_interrupts_end_a_call(n_threads: int) -> None:
    """Rows look up cells for most of the time."""
    ensemble = random_ensemble(6, n_trees=900, n_features=7, max_leaves=90, shapes=("random",))
    plan = cells_of(ensemble)
    rows = random_rows(3, ensemble, 200_000)
    with interrupted(0.3):
        explain(plan, ensemble, rows, n_threads=n_threads)


@pytest.mark.parametrize("n_threads", [1, 2])
def test_interrupts_end_margins(n_threads: int) -> None:
    """Rows descend through deep trees for most of the time, as trees with the same tests share all units."""
    ensemble = alike_trees(1, n_trees=50, n_features=4, max_depth=13, parting=0.0)
    plan = cells_of(ensemble)
    rows = np.tile(random_rows(3, ensemble, 100_000), (20, 1))
    with interrupted(0.2):
        explain(plan, ensemble, rows, n_threads=n_threads)


def test_more_rows_cost_less_for_each_row() -> None:
    plan = _core.Plan(attributes_of(random_ensemble(1, n_trees=9, n_features=4)), "single")
    groups = costs.tree_groups_of(plan.info()["groups"])
    call = costs.cell_seconds((), 1, 1.0, "single")
    one, two, many = (
        costs.cell_seconds(groups, n_rows, 1.0, "single") - call for n_rows in (2_000, 16_000, 16_000_000)
    )
    assert one < two < 7 * one  # cells repeat
    assert 900 * two < many < 1000 * two  # but not in other tiles


@each_set
def test_other_instruction_sets(isa: str) -> None:
    run_again(isa, __file__, select="not other_instruction_sets")
