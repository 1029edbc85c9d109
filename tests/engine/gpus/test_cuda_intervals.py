"""Tables by intervals on the GPU, compared with the walk of the CPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers.ensembles import (
    ensemble_options,
    full_tree,
    leaf_scale,
    random_ensemble,
    random_rows,
)
from helpers.plans import ALWAYS_TABLES
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_diabetes
from sklearn.ensemble import HistGradientBoostingRegressor

from skshapgpu import TreeExplainer, _core
from skshapgpu.adapters.ensemble import Ensemble, attributes_of

_cuda = pytest.importorskip("skshapgpu._cuda")
pytestmark = pytest.mark.usefixtures("gpu")

#: Largest error of each precision, relative to the leaves.
TOLERANCE = {"single": 5e-6, "double": 1e-10}

X, Y = load_diabetes(return_X_y=True)


def gpu_tables(plan: Any, most_entries: int = 1024) -> Any:
    """Compile a plan with tables, within the limits of a GPU, from a plan without."""
    return _core.interval_plan(
        plan, _core.IntervalLayout(plan, most_entries, 1e9, ALWAYS_TABLES, on_gpu=True)
    )


def background_plan(ensemble: Ensemble, precision: str) -> Any:
    rows = random_rows(0, ensemble, 40)
    return _core.background_plan(attributes_of(ensemble), precision, rows, np.full(40, 1 / 40), "SII", 2**28)


def assert_same(
    ensemble: Ensemble,
    rows: np.ndarray,
    *,
    most_entries: int = 1024,
    index: str = "SII",
    background: bool = False,
) -> list[int]:
    """Compare the values and margins of both precisions; return their numbers of tables."""

    def plan_of(precision: str) -> Any:
        if background:
            return background_plan(ensemble, precision)
        return _core.Plan(attributes_of(ensemble), precision, index=index)

    unit, shape = leaf_scale(ensemble), (len(rows), ensemble.n_outputs, ensemble.n_features)
    truth, margin = np.empty(shape), np.empty(shape[:2])
    plan_of("double").explain(rows, truth, margin, 1)
    n_tables = []
    for precision, tolerance in TOLERANCE.items():
        plan = gpu_tables(plan_of(precision), most_entries)
        on_gpu = _cuda.CudaPlan(plan, 0)
        values, result = np.full(shape, np.nan), np.full(shape[:2], np.nan)
        on_gpu.explain(rows, values, result, None, 0)
        assert (np.abs(values - truth) <= tolerance * unit[:, np.newaxis]).all()
        assert (np.abs(result - margin) <= tolerance * unit + 1e-15 * np.abs(ensemble.intercept)).all()
        again, gap = np.full(shape, np.nan), np.empty(shape[1])
        on_gpu.explain(rows, again, None, gap if index == "SII" else None, 0)
        np.testing.assert_array_equal(again, values)
        if index == "SII":
            assert (gap <= tolerance * ensemble.n_features * unit).all()
        n_tables.append(plan.info()["n_lookups"])
    return n_tables


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    options=ensemble_options(),
    most_entries=st.sampled_from([2, 8, 32, 200, 1024]),
    index=st.sampled_from(["SII", "BII"]),
)
def test_random_ensembles(options: dict[str, Any], most_entries: int, index: str) -> None:
    ensemble = random_ensemble(**options)
    assert_same(ensemble, random_rows(options["seed"], ensemble, 70), most_entries=most_entries, index=index)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(options=ensemble_options())
def test_background(options: dict[str, Any]) -> None:
    ensemble = random_ensemble(**options)
    assert_same(ensemble, random_rows(options["seed"], ensemble, 70), background=True)


@pytest.mark.parametrize("n_features", [3, 7, 8, 9, 15, 16, 17, 24, 32, 33, 54, 64])
@pytest.mark.parametrize("n_outputs, vector", [(1, False), (3, False), (3, True), (20, True)])
def test_every_width_of_an_entry(n_features: int, n_outputs: int, vector: bool) -> None:
    ensemble = random_ensemble(
        n_features,
        n_trees=60,
        n_features=n_features + 2,
        n_used=n_features,
        n_outputs=n_outputs,
        vector=vector,
        shapes=("random", "perfect", "oblivious"),
        max_leaves=12,
        categorical=True,
        zero_missing=True,
    )
    rows = random_rows(1, ensemble, 300)
    for most_entries in (16, 1024):
        assert min(assert_same(ensemble, rows, most_entries=most_entries)) > 0


@pytest.mark.parametrize("n_rows", [1, 7, 8, 63, 64, 65, 2_047, 2_049, 4_095, 4_097, 140_000])
@pytest.mark.parametrize("n_features", [6, 12])
def test_every_number_of_rows(n_rows: int, n_features: int) -> None:
    ensemble = random_ensemble(1, n_trees=40, n_features=n_features, max_leaves=12)
    assert min(assert_same(ensemble, random_rows(1, ensemble, n_rows))) > 0


@pytest.mark.parametrize("n_features", [4, 8, 16])
def test_tables_of_many_stages(n_features: int) -> None:
    """The tables of a part do not fit into shared memory at once, and there are several parts."""
    trees = [full_tree(np.random.default_rng(seed), 6, n_features) for seed in range(150)]
    ensemble = Ensemble.from_trees(trees, n_features=n_features, intercept=[1e6])
    assert min(assert_same(ensemble, random_rows(2, ensemble, 5_000))) > 100


@pytest.mark.parametrize("magnitude", [1e-200, 1e200])
def test_leaves_beyond_the_range_of_single_precision(magnitude: float) -> None:
    ensemble = random_ensemble(3, n_trees=20, n_features=5, max_leaves=8)
    ensemble = replace(ensemble, value=ensemble.value * magnitude, intercept=ensemble.intercept * magnitude)
    assert min(assert_same(ensemble, random_rows(3, ensemble, 100))) > 0


def stump(threshold: float) -> Any:
    tree = full_tree(np.random.default_rng(0), 1, 2)
    return replace(tree, feature=np.zeros(3, np.int32), threshold=np.array([threshold, 0.0, 0.0]))


@pytest.mark.parametrize("n_thresholds, has_tables", [(31_743, True), (31_744, False)])
def test_columns_of_many_thresholds(n_thresholds: int, has_tables: bool) -> None:
    """Codes are compared as half floats, so this is the largest number of codes."""
    trees = [stump(float(i)) for i in range(n_thresholds)]
    ensemble = Ensemble.from_trees(trees, n_features=2, intercept=[0.0])
    rows = np.array([[-1.0], [0.0], [1.5], [15_000.0], [31_741.5], [31_742.0], [1e9], [np.nan]])
    n_tables = assert_same(ensemble, np.hstack([rows, rows]))
    assert all((n > 0) == has_tables for n in n_tables)


# The API


@pytest.mark.parametrize("precision", ["single", "double"])
@pytest.mark.parametrize("interventional", [False, True])
def test_explainers_build_tables_for_many_rows(precision: str, interventional: bool) -> None:
    model = HistGradientBoostingRegressor(max_iter=100).fit(X[:, :5], Y + 1e4)
    data, rows = X[:50, :5] if interventional else None, np.tile(X[:, :5], (500, 1))
    expected = TreeExplainer(model, data, device="cpu", precision="double").shap_values(rows[: len(X)])
    expected = np.tile(expected, (500, 1))
    options: dict[str, Any] = {"device": "cuda", "precision": precision}
    explainer = TreeExplainer(model, data, expected_rows=10**9, **options)
    explanation = explainer.explain(rows)
    with_tables = explainer.plan(len(rows))
    assert explanation.device == "cuda:0" and with_tables.table_bytes > 0
    scale = np.abs(expected).max()
    np.testing.assert_allclose(explanation.values, expected, rtol=0, atol=TOLERANCE[precision] * scale)
    np.testing.assert_array_equal(explanation.values[-len(X) :], explanation.values[: len(X)])
    limited = TreeExplainer(model, data, expected_rows=10**9, memory_limit="1GB", **options)
    assert limited.plan(len(rows)).table_bytes != with_tables.table_bytes
    np.testing.assert_allclose(limited.shap_values(rows), expected, rtol=0, atol=TOLERANCE[precision] * scale)


def test_arrays_on_the_gpu() -> None:
    cupy = pytest.importorskip("cupy")
    model = HistGradientBoostingRegressor(max_iter=100).fit(X, Y)
    explainer = TreeExplainer(model, device="cuda", expected_rows=10**9)
    values = explainer.shap_values(cupy.asarray(X))
    np.testing.assert_array_equal(cupy.asnumpy(values), explainer.shap_values(X))
