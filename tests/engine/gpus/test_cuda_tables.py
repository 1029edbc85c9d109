"""Table lookups on the GPU, compared with the CPU, and interventional SHAP values on the GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers.ensembles import (
    ensemble_options,
    full_tree,
    leaf_scale,
    oblivious_tree,
    random_ensemble,
    random_rows,
)
from helpers.plans import plan_with_tables
from hypothesis import HealthCheck, given, settings
from sklearn.datasets import load_diabetes, load_iris
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestClassifier

from skshapgpu import TreeExplainer, _core
from skshapgpu.adapters.ensemble import Ensemble, attributes_of

_cuda = pytest.importorskip("skshapgpu._cuda")
pytestmark = pytest.mark.usefixtures("gpu")

#: Largest error of each precision, relative to the leaves.
TOLERANCE = {"single": 5e-6, "double": 1e-10}

#: Bytes for tables: enough for all leaves here.
TABLES = 2**28


def background_plan(
    ensemble: Ensemble, precision: str, seed: int = 0, n_background: int = 40, index: str = "SII"
) -> Any:
    attributes = attributes_of(ensemble)
    rows = random_rows(seed, ensemble, n_background)
    weights = np.random.default_rng(seed).random(n_background)
    return _core.background_plan(attributes, precision, rows, weights / weights.sum(), index, TABLES)


def banzhaf_plan(ensemble: Ensemble, precision: str) -> Any:
    return background_plan(ensemble, precision, index="BII")


def fast_v2_plan(ensemble: Ensemble, precision: str) -> Any:
    return plan_with_tables(ensemble, precision, "fast_v2", table_bytes=TABLES)


def level_plan(ensemble: Ensemble, precision: str) -> Any:
    """Compile tables for some trees, if any; the others are walked."""
    return plan_with_tables(ensemble, precision, "level_uniform", table_bytes=TABLES)


def assert_same(
    ensemble: Ensemble,
    rows: np.ndarray,
    plan_of: Callable[[Ensemble, str], Any] = background_plan,
    add_up: bool = True,
) -> None:
    """Compare values and margins; values that do not ``add_up``, as Banzhaf values, have no gaps."""
    method = "fast_v2" if plan_of is fast_v2_plan else "chunks"
    unit, shape = leaf_scale(ensemble), (len(rows), ensemble.n_outputs, ensemble.n_features)
    truth, margin = np.empty(shape), np.empty(shape[:2])
    plan_of(ensemble, "double").explain(rows, truth, margin, 1)
    for precision, tolerance in TOLERANCE.items():
        plan = plan_of(ensemble, precision)
        values, result, gap = np.full(shape, np.nan), np.full(shape[:2], np.nan), np.empty(shape[1])
        _cuda.CudaPlan(plan, 0, method).explain(rows, values, result, gap, 0)
        assert (np.abs(values - truth) <= tolerance * unit[:, np.newaxis]).all()
        np.testing.assert_allclose(result, margin, rtol=0, atol=1e-12 * unit.max())
        assert not add_up or (gap <= tolerance * ensemble.n_features * unit).all()


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(options=ensemble_options())
def test_random_ensembles(options: dict) -> None:
    ensemble = random_ensemble(**options)
    rows = random_rows(options["seed"], ensemble, 70)
    for plan_of in (background_plan, banzhaf_plan, fast_v2_plan, level_plan):
        assert_same(ensemble, rows, plan_of, add_up=plan_of is not banzhaf_plan)


@pytest.mark.parametrize("depths", [(1, 2, 6, 10), (6,) * 70, (12, 3)])
def test_trees_that_split_alike_on_each_level(depths: tuple[int, ...]) -> None:
    trees = [oblivious_tree(seed, depth, 7) for seed, depth in enumerate(depths)]
    trees += [full_tree(np.random.default_rng(6), 3, 7)]  # which does not
    ensemble = Ensemble.from_trees(trees, n_features=7, intercept=[0.5])
    expected = sum(depth <= 10 for depth in depths)
    assert level_plan(ensemble, "single").info()["n_table_trees"] == expected
    assert_same(ensemble, random_rows(6, ensemble, 200), level_plan)


def test_fast_v2_of_constant_models() -> None:
    """They have no leaf with a table, and their plan is explained all the same."""
    leaves = [full_tree(np.random.default_rng(seed), 0, 4) for seed in range(3)]
    ensemble = Ensemble.from_trees(leaves, n_features=4, intercept=[0.5])
    assert_same(ensemble, random_rows(1, ensemble, 40), fast_v2_plan)


@pytest.mark.parametrize("method", ["chunks", "small_chunks", "leaves", "gputreeshap"])
def test_other_methods_do_not_read_the_tables_of_leaves(method: str) -> None:
    ensemble = random_ensemble(1, n_trees=3, n_features=4, max_leaves=9)
    with pytest.raises(ValueError):
        _cuda.CudaPlan(fast_v2_plan(ensemble, "single"), 0, method)
    with pytest.raises(ValueError, match="Fast TreeSHAP v2"):
        _cuda.CudaPlan(_core.Plan(attributes_of(ensemble), "single"), 0, "fast_v2")


@pytest.mark.parametrize("n_rows", [1, 31, 32, 33, 64, 65, 1_000, 70_000])
def test_every_number_of_rows(n_rows: int) -> None:
    ensemble = random_ensemble(1, n_trees=7, n_features=6, max_leaves=20)
    assert_same(ensemble, random_rows(1, ensemble, n_rows))


@pytest.mark.parametrize("n_features", [400, 3_000])
def test_wide_models(n_features: int) -> None:
    """Their sums do not fit shared memory."""
    ensemble = random_ensemble(2, n_trees=300, n_features=n_features, max_leaves=12)
    assert_same(ensemble, random_rows(2, ensemble, 130))


def test_large_trees() -> None:
    """Their decisions do not fit shared memory."""
    rng = np.random.default_rng(3)
    tree = full_tree(rng, 11, 9)
    ensemble = Ensemble.from_trees([tree, tree], n_features=9, intercept=[0.5])
    assert_same(ensemble, random_rows(3, ensemble, 200))


def test_many_outputs() -> None:
    ensemble = random_ensemble(4, n_trees=30, n_features=8, n_outputs=20, max_leaves=10)
    assert_same(ensemble, random_rows(4, ensemble, 300))


# The API


X, Y = load_diabetes(return_X_y=True)


@pytest.fixture(scope="module", params=["regression", "classes"])
def case(request: pytest.FixtureRequest) -> tuple[Any, np.ndarray]:
    if request.param == "regression":
        return HistGradientBoostingRegressor(max_iter=20).fit(X, Y), X
    iris, classes = load_iris(return_X_y=True)
    return RandomForestClassifier(10, random_state=0).fit(iris, classes), iris


@pytest.mark.parametrize("precision", ["single", "double"])
def test_explainers(case: Any, precision: str) -> None:
    model, rows = case
    options: dict[str, Any] = {"precision": precision, "data_weight": np.arange(1, 51)}
    in_double = options | {"precision": "double"}
    expected = TreeExplainer(model, rows[:50], device="cpu", **in_double).explain(rows)
    explanation = TreeExplainer(model, rows[:50], device="cuda", **options).explain(rows)
    assert explanation.device == "cuda:0" and explanation.feature_perturbation == "interventional"
    scale = np.abs(expected.values).max()
    np.testing.assert_allclose(explanation.values, expected.values, rtol=0, atol=TOLERANCE[precision] * scale)
    np.testing.assert_array_equal(explanation.base_values, expected.base_values)


@pytest.mark.parametrize("library", ["cupy", "torch"])
def test_arrays_of_other_libraries(case: Any, library: str) -> None:
    namespace = pytest.importorskip(library)
    model, rows = case
    explainer = TreeExplainer(model, rows[:50], device="cuda")
    on_gpu = namespace.asarray(rows, device="cuda") if library == "torch" else namespace.asarray(rows)
    values = explainer.shap_values(on_gpu)
    assert type(values) is type(on_gpu)
    on_host = values.cpu().numpy() if library == "torch" else namespace.asnumpy(values)
    np.testing.assert_array_equal(on_host, explainer.shap_values(rows))


def test_auto_takes_the_gpu(case: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SKSHAPGPU_DEVICE", raising=False)
    model, rows = case
    assert TreeExplainer(model, rows[:50]).explain(np.tile(rows, (2_000, 1))).device == "cuda:0"
