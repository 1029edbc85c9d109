"""Merging of trees that begin alike: values and margins, which trees are merged, and when."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.alike_trees import MODELS, alike_trees
from helpers.ensembles import leaf_scale, random_ensemble, random_rows
from helpers.kernels import TOLERANCE, both_precisions, explain, once, same_bits
from helpers.plans import NEVER_TABLES, merged_plan
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor

from skshapgpu import TreeExplainer, _core, reference
from skshapgpu._engine.costs import trees as costs
from skshapgpu.adapters.ensemble import Ensemble, Tree, attributes_of


def plain(ensemble: Ensemble, precision: str = "double", **options: Any) -> Any:
    return _core.Plan(attributes_of(ensemble), precision, **options)


def leaves(plan: Any, on_gpu: bool = False) -> tuple[int, int]:
    """Return the number of leaves of a plan, and the number that remain once its trees are merged."""
    groups = _core.IntervalLayout(plan, 1, 1e9, NEVER_TABLES, on_gpu=on_gpu).info()["groups"]
    return sum(group["n_leaves"] for group in groups), sum(group["n_walked_leaves"] for group in groups)


@both_precisions
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("seed", range(1, 5))
def test_values_are_those_of_the_trees(name: str, seed: int, precision: str) -> None:
    ensemble = alike_trees(seed, **MODELS[name])
    for index in ("SII", "BII"):
        plan = plain(ensemble, precision, index=index)
        n_leaves, n_left = leaves(plan)
        assert n_left < 0.75 * n_leaves
        merged = merged_plan(plan)
        for n_rows in (1, 70, 200):
            X = random_rows(seed, ensemble, n_rows)
            values, margin = explain(merged, ensemble, X)
            expected, expected_margin = explain(plan, ensemble, X)
            scale = leaf_scale(ensemble)
            assert (np.abs(values - expected) <= 2 * TOLERANCE[precision] * scale[:, None]).all()
            assert (np.abs(margin - expected_margin) <= 1e-13 * (1 + scale)).all()


@pytest.mark.parametrize("seed", range(20))
def test_values_are_those_of_the_definition(seed: int) -> None:
    ensemble = alike_trees(
        seed, max_depth=4, n_trees=7, parting=0.05, n_features=5, categorical=bool(seed % 2)
    )
    X = random_rows(seed, ensemble, 5)
    for index, expected in (
        ("SII", reference.path_dependent(ensemble, X).values),
        ("BII", reference.path_dependent(ensemble, X, index="BV").values),
    ):
        values, _ = explain(merged_plan(plain(ensemble, index=index)), ensemble, X)
        np.testing.assert_allclose(values, expected, rtol=0, atol=1e-11 * leaf_scale(ensemble).max())


def test_nodes_whose_sides_were_swapped_are_alike() -> None:
    """A plan puts a single leaf on the right of its node, even if it is on the left in other trees."""
    ensembles = [alike_trees(seed, max_depth=3, parting=0.05, n_trees=10) for seed in range(60)]
    left_leaves = 0
    for ensemble in ensembles:
        is_leaf, offsets = (
            ensemble.left < 0,
            np.repeat(ensemble.tree_offsets[:-1], np.diff(ensemble.tree_offsets)),
        )
        inner = np.flatnonzero(~is_leaf)
        left, right = (offsets[inner] + side[inner] for side in (ensemble.left, ensemble.right))
        left_leaves += int((is_leaf[left] & ~is_leaf[right]).sum())
        X = random_rows(1, ensemble, 20)
        plan = plain(ensemble)
        values, expected = explain(merged_plan(plan), ensemble, X)[0], explain(plan, ensemble, X)[0]
        np.testing.assert_allclose(values, expected, rtol=0, atol=1e-12 * leaf_scale(ensemble).max())
    assert left_leaves > 100


@once
def test_threads_change_no_bit() -> None:
    ensemble = alike_trees(3, max_depth=10, n_trees=14, parting=0.03)
    plan = plain(ensemble, "single")
    X = random_rows(1, ensemble, 300)
    values = []
    for n_threads in (1, 2, 5):
        merged = merged_plan(plan, n_threads)
        out = np.empty((len(X), ensemble.n_outputs, ensemble.n_features), np.float32)
        merged.explain(X, out, None, n_threads)
        values.append(out)
    assert same_bits(values[0], values[1]) and same_bits(values[0], values[2])


@once
def test_trees_that_do_not_begin_alike_are_not_merged() -> None:
    vectors = random_ensemble(1, n_trees=1, n_outputs=3, vector=True, shapes=("perfect",))
    for ensemble in (
        random_ensemble(5, n_trees=30, max_leaves=40, shapes=("balanced",)),
        alike_trees(5, parting=1.0),
        alike_trees(5, n_trees=1),
        vectors,
    ):
        n_leaves, n_left = leaves(plain(ensemble))
        assert n_left == n_leaves


def equal_chains(n_levels: int, n_features: int) -> Ensemble:
    """Build two equal trees with a leaf at each level, breadth first."""
    node = np.arange(2 * n_levels + 1)
    inner = (node % 2 == 0) & (node < 2 * n_levels)
    tree = Tree(
        left=np.where(inner, node + 1, -1),
        right=np.where(inner, node + 2, -1),
        feature=node // 2 % n_features,
        threshold=node / 4,
        missing_left=inner,
        cover=1.0 + node[::-1],
        value=np.where(inner, 0.0, node),
    )
    return Ensemble.from_trees([tree, tree], n_features=n_features, intercept=[0.0])


@once
def test_trees_are_merged_for_gpus_within_their_limits() -> None:
    """A GPU merges trees with at most 8 quadrature nodes and 32 levels; the CPU merges all trees."""
    for ensemble, on_gpu in (
        (alike_trees(1, **MODELS["several parts"]), True),
        (equal_chains(32, 16), True),
        (equal_chains(32, 17), False),
        (equal_chains(33, 3), False),
    ):
        plan = plain(ensemble)
        n_leaves, n_left = leaves(plan)
        assert n_left < n_leaves
        assert leaves(plan, on_gpu=True) == (n_leaves, n_left if on_gpu else n_leaves)


@once
def test_only_trees_of_the_same_output_are_merged() -> None:
    """Two outputs whose trees are alike: twice the leaves are left."""
    one, two = alike_trees(1, parting=0.0, n_trees=20), alike_trees(1, parting=0.0, n_trees=20, n_outputs=2)
    assert leaves(plain(two))[1] == 2 * leaves(plain(one))[1]


def boosted(n_features: int, **options: Any) -> tuple[Any, np.ndarray]:
    """Train a model with a low learning rate and targets far from zero; return it and 2,000 rows."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, n_features)).astype(np.float32)
    y = 1000 + X[:, 0] * X[:, 1] + np.sin(3 * X[:, 2]) + 0.1 * rng.normal(size=len(X))
    model = HistGradientBoostingRegressor(learning_rate=0.01, max_leaf_nodes=200, max_iter=60, random_state=0)
    return model.set_params(**options).fit(X, y), X[:2000]


@once
def test_explainers_merge_where_it_saves_time() -> None:
    """The model has too many columns for tables; the values add up to the model's own predictions."""
    model, X = boosted(40)
    explainer = TreeExplainer(model, device="cpu")
    few, many = explainer.plan(100), explainer.plan(len(X))
    for plan in (few, many):
        assert sum(group.n_trees for group in plan.tree_groups) == 60
        assert sum(group.n_leaves for group in plan.tree_groups) == explainer.model_info()["n_leaves"]
    assert all(group.n_walked_leaves == group.n_leaves for group in few.tree_groups)
    assert sum(group.n_walked_leaves for group in many.tree_groups) < 0.7 * sum(
        g.n_leaves for g in many.tree_groups
    )
    assert many.table_bytes == 0 < many.build_seconds
    assert "once the trees are merged" in str(many) and "merging the trees takes about" in str(many)

    explanation = explainer.explain(X)
    total = explanation.values.sum(axis=1, dtype=float) + explanation.base_values
    np.testing.assert_allclose(total, model.predict(X), rtol=0, atol=1e-5)
    limited = TreeExplainer(model, device="cpu", memory_limit="1GB")
    assert limited.plan(len(X)).build_seconds == 0
    expected = limited.shap_values(X)
    assert (expected != explanation.values).any()
    np.testing.assert_allclose(explanation.values, expected, rtol=0, atol=1e-6)
    np.testing.assert_array_equal(explainer.shap_values(X), explanation.values)


@once
def test_trees_of_samples_are_not_merged() -> None:
    model, X = boosted(40, max_features=0.1)
    forest = RandomForestRegressor(20, max_depth=10, random_state=0).fit(X, X[:, 0] * X[:, 1])
    for each in (model, forest):
        plan = TreeExplainer(each, device="cpu").plan(len(X))
        assert plan.build_seconds == 0 and "merged" not in str(plan)


@once
def test_against_background_data_nothing_is_merged_or_compiled_again() -> None:
    """There are too many columns for tables by intervals: every call uses the background tables."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 40))
    forest = RandomForestRegressor(20, max_depth=8, max_features=0.4, random_state=0).fit(X, X.sum(axis=1))
    explainer = TreeExplainer(forest, data=X[:20], device="cpu")
    explainer.shap_values(X)
    assert explainer.plan(len(X)).build_seconds == 0
    assert len(explainer._compiled.table_sizes) == 1


def test_the_cost_model_counts_the_leaves_that_are_left() -> None:
    group = costs.TreeGroup("quadrature", 3, 100, 10_000, 2_000, 0, 0, 0)
    all_leaves = costs.TreeGroup("quadrature", 3, 100, 10_000, 10_000, 0, 0, 0)
    part = costs.TreeGroup("quadrature", 3, 20, 2_000, 2_000, 0, 0, 0)
    seconds = [costs.cpu_seconds([each], 10_000, 1) for each in (group, part, all_leaves)]
    assert seconds[0] == seconds[1] < seconds[2] / 4
