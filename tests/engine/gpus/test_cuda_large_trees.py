"""Merged trees, trees that are cut into parts, and few rows on the GPU, compared with the walk of the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.alike_trees import MODELS, alike_trees
from helpers.ensembles import ensemble_options, full_tree, leaf_scale, random_ensemble, random_rows
from helpers.plans import merged_plan
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.ensemble import HistGradientBoostingRegressor

from skshapgpu import TreeExplainer, _core
from skshapgpu.adapters.ensemble import Ensemble, Tree, attributes_of

_cuda = pytest.importorskip("skshapgpu._cuda")
pytestmark = pytest.mark.usefixtures("gpu")

#: Largest error of each precision, relative to the leaves.
TOLERANCE = {"single": 5e-6, "double": 1e-10}


def assert_same(ensemble: Ensemble, n_rows: int, *, merged: bool = False, **options: Any) -> None:
    """Compare values and margins of both precisions with the CPU's in double precision."""
    attributes, unit = attributes_of(ensemble), leaf_scale(ensemble)
    rows = random_rows(n_rows, ensemble, n_rows)
    shape = (n_rows, ensemble.n_outputs, ensemble.n_features)
    truth, margin = np.empty(shape), np.empty(shape[:2])
    _core.Plan(attributes, "double", **options).explain(rows, truth, margin, 1)
    for precision, tolerance in TOLERANCE.items():
        for on_gpu in plans_of(_core.Plan(attributes, precision, **options), merged):
            values, result = np.full(shape, np.nan), np.full(shape[:2], np.nan)
            on_gpu.explain(rows, values, result, None, 0)
            assert (np.abs(values - truth) <= tolerance * unit[:, np.newaxis]).all()
            assert (np.abs(result - margin) <= tolerance * unit + 1e-15 * np.abs(ensemble.intercept)).all()
            first = slice(0, max(1, n_rows // 3))  # few rows are divided among blocks in another way
            again = np.full((first.stop, *shape[1:]), np.nan)
            on_gpu.explain(rows[first], again, None, None, 0)
            np.testing.assert_array_equal(again, values[first])


def plans_of(plan: Any, merged: bool) -> list[Any]:
    """Return a plan on the GPU, with merged trees or with every method that can explain it."""
    if merged:
        return [_cuda.CudaPlan(merged_plan(plan, on_gpu=True), 0)]
    methods = ["chunks", "small_chunks", *(["leaves"] if _cuda.has_leaf_chunks(plan) else [])]
    return [_cuda.CudaPlan(plan, 0, method) for method in methods]


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(options=ensemble_options(), index=st.sampled_from(["SII", "BII"]))
def test_few_rows(options: dict[str, Any], index: str) -> None:
    assert_same(random_ensemble(**options), 70, index=index)


def test_which_plans_can_go_by_leaves() -> None:
    long, longer = (chain(n_features) for n_features in (16, 17))
    vectors = random_ensemble(1, n_trees=3, n_outputs=3, vector=True, shapes=("perfect",))
    oblivious = random_ensemble(1, n_trees=3, shapes=("oblivious",))
    for ensemble, tables, expected in (
        (long, "none", True),
        (longer, "none", False),
        (vectors, "none", False),
        (oblivious, "none", True),
        (oblivious, "level_uniform", False),
    ):
        plan = _core.Plan(attributes_of(ensemble), "single", tables=tables)
        assert _cuda.has_leaf_chunks(plan) == expected
        if not expected:
            with pytest.raises(ValueError, match="leaf by leaf"):
                _cuda.CudaPlan(plan, 0, "leaves")
    assert not _cuda.has_leaf_chunks(_core.Plan(attributes_of(long), "single", 2))
    for n_rows in (1, 64, 65):
        assert_same(long, n_rows)


def chain(n_features: int) -> Ensemble:
    """Build a tree with a leaf at each level, as many different features, and zero covers."""
    node = np.arange(2 * n_features + 1)
    inner = (node % 2 == 0) & (node < 2 * n_features)
    tree = Tree(
        left=np.where(inner, node + 1, -1),
        right=np.where(inner, node + 2, -1),
        feature=node // 2 % n_features,
        threshold=node / 40,
        missing_left=node % 4 == 0,
        cover=np.where(node % 5 == 3, 0.0, 1.0 + node[::-1]),
        value=np.where(inner, 0.0, node),
    )
    return Ensemble.from_trees([tree, tree], n_features=n_features, intercept=[1e3])


@pytest.mark.parametrize("index", ["SII", "BII"])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("seed", range(1, 5))
def test_merged_trees(name: str, seed: int, index: str) -> None:
    ensemble = alike_trees(seed, **MODELS[name])
    for n_rows in (1, 70, 3_000):
        assert_same(ensemble, n_rows, merged=True, index=index)


def large_trees(depth: int, n_features: int, n_trees: int, **options: Any) -> Ensemble:
    """Build full trees with repeated features, which are cut into parts."""
    trees = [full_tree(np.random.default_rng(seed), depth, n_features) for seed in range(n_trees)]
    return Ensemble.from_trees(trees, n_features=n_features, intercept=[1e6], **options)


@pytest.mark.parametrize("depth, n_features", [(10, 3), (11, 6), (12, 8), (11, 30), (13, 40)])
def test_trees_that_are_cut(depth: int, n_features: int) -> None:
    ensemble = large_trees(depth, n_features, 3)
    for n_rows in (1, 33, 700):
        assert_same(ensemble, n_rows)
        assert_same(ensemble, n_rows, index="BII")


@pytest.mark.parametrize("n_outputs, vector", [(1, False), (3, False), (3, True)])
@pytest.mark.parametrize("seed", range(3))
def test_uneven_trees_that_are_cut(seed: int, n_outputs: int, vector: bool) -> None:
    """A leaf that takes the place of a left subtree changes sides with the right subtree."""
    ensemble = random_ensemble(
        seed,
        n_trees=4,
        n_features=7,
        n_outputs=n_outputs,
        vector=vector,
        shapes=("random", "chain"),
        max_leaves=2_500,
        categorical=True,
        zero_missing=True,
    )
    assert np.diff(ensemble.tree_offsets).max() > 3_000
    for n_rows in (1, 200):
        assert_same(ensemble, n_rows)


@pytest.mark.parametrize("precision", TOLERANCE)
def test_interactions_of_trees_that_are_cut(precision: str) -> None:
    ensemble = large_trees(12, 3, 2)
    rows = random_rows(0, ensemble, 70)
    shape = (len(rows), 1, 3)
    results = []
    for on_gpu in (False, True):
        plan = _core.Plan(attributes_of(ensemble), precision if on_gpu else "double", 2)
        values, matrices = np.full(shape, np.nan), np.full((*shape, 3), np.nan)
        if on_gpu:
            _cuda.CudaPlan(plan, 0).explain(rows, values, None, None, 0, matrices=matrices)
        else:
            plan.explain(rows, values, None, 1, matrices=matrices)
        results.append((values, matrices))
    for cpu, gpu in zip(*results, strict=True):
        np.testing.assert_allclose(gpu, cpu, rtol=0, atol=TOLERANCE[precision] * leaf_scale(ensemble).max())


@pytest.mark.parametrize("precision", TOLERANCE)
def test_explainers_merge_for_many_rows(precision: str) -> None:
    """The model has too many features for tables; the values add up to its own predictions."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4_000, 70))
    y = 1_000 + X[:, 0] * X[:, 1] + np.sin(3 * X[:, 2]) + 0.1 * rng.normal(size=len(X))
    model = HistGradientBoostingRegressor(learning_rate=0.01, max_leaf_nodes=200, max_iter=60).fit(X, y)
    explainer = TreeExplainer(model, device="cuda", precision=precision, expected_rows=10**8)
    plan = explainer.plan(len(X))
    assert plan.table_bytes == 0 < plan.build_seconds and "once the trees are merged" in str(plan)
    explanation = explainer.explain(X)
    assert explanation.device == "cuda:0"
    total = explanation.values.sum(axis=1, dtype=float) + explanation.base_values
    np.testing.assert_allclose(total, model.predict(X), rtol=0, atol=TOLERANCE[precision] * 100)
    expected = TreeExplainer(model, device="cpu", precision="double", memory_limit="1GB").shap_values(X)
    np.testing.assert_allclose(
        explanation.values, expected, rtol=0, atol=TOLERANCE[precision] * np.abs(y).std()
    )
