"""Interventional interactions and Banzhaf values on the GPU, compared with the CPU.

test_background_pairs.py compares the CPU with the definition; with ``--device cuda``, its explainers use
GPUs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers.ensembles import (
    ensemble_options,
    full_tree,
    leaf_scale,
    random_chain,
    random_ensemble,
    random_rows,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_diabetes, load_iris
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestClassifier

from skshapgpu import TreeExplainer, _core
from skshapgpu.adapters.ensemble import Ensemble, attributes_of

_cuda = pytest.importorskip("skshapgpu._cuda")
pytestmark = pytest.mark.usefixtures("gpu")

#: Largest error of each precision, relative to the leaves.
TOLERANCE = {"single": 5e-6, "double": 1e-10}

INDICES = ("SII", "STII", "BII")

#: Bytes for counts and for tables: enough for all leaves here.
COUNTS, TABLES = 2**24, 2**30


def plan_of(
    ensemble: Ensemble, background: np.ndarray, precision: str, index: str
) -> _core.BackgroundPairsPlan:
    weights = np.random.default_rng(len(background)).random(len(background))
    weights /= weights.sum()
    return _core.BackgroundPairsPlan(attributes_of(ensemble), precision, background, weights, index, COUNTS)


def empty_results(plan: Any, rows: np.ndarray, ensemble: Ensemble) -> list[np.ndarray]:
    shape = len(rows), ensemble.n_outputs, ensemble.n_features
    shapes = [shape, shape[:2], (*shape, shape[2]), (*shape[:2], len(plan.pairs))]
    return [np.full(shape, np.nan) for shape in shapes]


def on_gpu(plan: Any, rows: np.ndarray, ensemble: Ensemble, limit: int = 0) -> list[np.ndarray]:
    """Compute values, margins, matrices and pairs, and check the gaps."""
    tables = plan.with_tables(TABLES, 2)
    cuda = _cuda.CudaPlan.with_tables(tables, 0)
    base = tables.base_value
    del tables  # the GPU has them
    results, gap = empty_results(plan, rows, ensemble), np.full(ensemble.n_outputs, np.nan)
    values, margin, *interactions = results
    cuda.explain(rows, values, margin, gap, limit, *interactions)
    result = np.abs(values.sum(axis=2) + base - margin).max(axis=0, initial=0)
    np.testing.assert_allclose(gap, result, rtol=1e-6, atol=1e-12 * leaf_scale(ensemble).max())
    for i, name in enumerate(("matrices", "pairs")):  # each of them alone
        alone = {name: np.full_like(interactions[i], np.nan)}
        again = np.full_like(values, np.nan)
        cuda.explain(rows, again, None, None, limit, **alone)
        np.testing.assert_array_equal(again, values)
        np.testing.assert_allclose(
            alone[name], interactions[i], rtol=0, atol=1e-14 * leaf_scale(ensemble).max()
        )
    return results


def assert_same(
    ensemble: Ensemble, rows: np.ndarray, background: np.ndarray, indices: tuple[str, ...] = INDICES
) -> None:
    unit = leaf_scale(ensemble)
    for index in indices:
        plan = plan_of(ensemble, background, "double", index)
        truth = empty_results(plan, rows, ensemble)
        values, margin, *interactions = truth
        plan.explain(rows, values, margin, 2, *interactions)
        for precision, tolerance in TOLERANCE.items():
            result = on_gpu(plan_of(ensemble, background, precision, index), rows, ensemble)
            np.testing.assert_allclose(result[1], margin, rtol=0, atol=1e-12 * unit.max())
            for one, other in zip(result, truth, strict=True):
                error = np.abs(one - other).max(axis=(0, *range(2, one.ndim)), initial=0)
                assert (error <= tolerance * unit).all(), (index, precision, error / unit)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(options=ensemble_options(), index=st.sampled_from(INDICES))
def test_random_ensembles(options: dict[str, Any], index: str) -> None:
    """Missing values, categories, repeated features, several outputs and vector leaves."""
    ensemble = random_ensemble(**options)
    rows = random_rows(options["seed"], ensemble, 130)
    assert_same(ensemble, rows[:90], rows[60:], (index,))


@pytest.mark.parametrize("n_rows", [1, 31, 32, 33, 64, 65, 1_000, 70_000])
def test_every_number_of_rows(n_rows: int) -> None:
    ensemble = random_ensemble(1, n_trees=7, n_features=6, max_leaves=20)
    rows = random_rows(1, ensemble, n_rows + 20)
    assert_same(ensemble, rows[20:], rows[:20], ("SII",))


@pytest.mark.parametrize("n_features", [5, 14, 19, 20, 60, 400])
@pytest.mark.parametrize("n_outputs", [1, 3])
def test_wide_models(n_features: int, n_outputs: int) -> None:
    """The sums of some models fit into one batch, and those of wider models are divided.

    Depending on the number of features, 8, 4 or 2 warps of a block share its shared memory.
    """
    rng = np.random.default_rng(n_features)
    trees = []
    for i in range(40):
        tree = full_tree(rng, 6, n_features)
        feature = rng.integers(0, n_features, len(tree.left))
        trees.append(replace(tree, feature=feature, output=i % n_outputs))
    ensemble = Ensemble.from_trees(trees, n_features=n_features, intercept=[0.5] * n_outputs)
    rows = random_rows(2, ensemble, 330)
    assert_same(ensemble, rows[:300], rows[300:], ("SII",))


@pytest.mark.parametrize("depth", [1, 9, 11, 12])
def test_chains(depth: int) -> None:
    ensemble = random_chain(depth, depth, depth)
    rows = np.random.default_rng(depth).random((200, depth))
    assert_same(ensemble, rows[:120], rows[120:])


def test_large_trees() -> None:
    """The decisions of large trees do not fit into shared memory, and their lookups are divided."""
    tree = full_tree(np.random.default_rng(3), 11, 7)
    ensemble = Ensemble.from_trees([tree, tree], n_features=7, intercept=[0.5])
    rows = random_rows(3, ensemble, 250)
    assert_same(ensemble, rows[:200], rows[200:], ("STII",))


def test_many_outputs() -> None:
    for vector in (False, True):
        ensemble = random_ensemble(4, n_trees=30, n_features=8, n_outputs=20, max_leaves=10, vector=vector)
        rows = random_rows(4, ensemble, 330)
        assert_same(ensemble, rows[:300], rows[300:], ("SII",))


@pytest.mark.parametrize("precision", TOLERANCE)
def test_batches_and_neighbours_change_no_bit(precision: str) -> None:
    ensemble = random_ensemble(8, n_trees=20, n_features=9, n_outputs=2, max_leaves=30)
    rows = random_rows(8, ensemble, 3040)
    plan = plan_of(ensemble, rows[3000:], precision, "SII")
    rows = rows[:3000]
    expected = on_gpu(plan, rows, ensemble)
    for limit in (3_000_000, 1_000_000):
        for one, other in zip(on_gpu(plan, rows, ensemble, limit), expected, strict=True):
            np.testing.assert_array_equal(one, other)
    for part in (slice(0, 2), slice(64, 65), slice(1000, 2500), slice(None, None, -1)):
        for one, other in zip(
            on_gpu(plan, np.ascontiguousarray(rows[part]), ensemble), expected, strict=True
        ):
            np.testing.assert_array_equal(one, other[part])
    with pytest.raises(_cuda.CudaMemoryError, match="raise memory_limit"):
        on_gpu(plan, rows, ensemble, 1000)


# The API


X, Y = load_diabetes(return_X_y=True)


@pytest.fixture(scope="module", params=["regression", "classes"])
def case(request: pytest.FixtureRequest) -> tuple[Any, np.ndarray]:
    if request.param == "regression":
        return HistGradientBoostingRegressor(max_iter=20, max_depth=6).fit(X, Y), X
    iris, classes = load_iris(return_X_y=True)
    return RandomForestClassifier(10, random_state=0).fit(iris, classes), iris


@pytest.mark.parametrize("pairs", ["occurring", 3, [(3, 0), (1, 2)]])
@pytest.mark.parametrize("index", INDICES)
@pytest.mark.parametrize("precision", ["single", "double"])
def test_explainers(case: Any, precision: str, index: str, pairs: Any) -> None:
    model, rows = case
    options: dict[str, Any] = {"precision": precision, "data_weight": np.arange(1, 51)}
    in_double = TreeExplainer(model, rows[:50], device="cpu", **options | {"precision": "double"})
    expected = in_double.explain_interactions(rows, interactions=pairs, index=index)
    explainer = TreeExplainer(model, rows[:50], device="cuda", **options)
    explanation = explainer.explain_interactions(rows, interactions=pairs, index=index)
    assert explanation.device == "cuda:0" and explanation.feature_perturbation == "interventional"
    atol = TOLERANCE[precision] * in_double._compiled.leaf_magnitude.max()
    np.testing.assert_array_equal(explanation.interactions, expected.interactions)
    np.testing.assert_allclose(explanation.values, expected.values, rtol=0, atol=atol)
    np.testing.assert_array_equal(explanation.base_values, expected.base_values)
    assert (explanation.additivity_error is None) == (index == "BII")
    limited = TreeExplainer(model, rows[:50], device="cuda", memory_limit="400MB", **options)
    again = limited.explain_interactions(rows, interactions=pairs, index=index)
    np.testing.assert_array_equal(again.values, explanation.values)
    if index == "BII":
        banzhaf = explainer.explain(rows, index="BV")
        assert banzhaf.device == "cuda:0"
        expected = in_double.explain(rows, index="BV")
        np.testing.assert_allclose(banzhaf.values, expected.values, rtol=0, atol=atol)


def test_groups_of_columns(case: Any) -> None:
    model, rows = case
    options: dict[str, Any] = {"feature_groups": {"a": [0, 2], "b": [1]}, "precision": "double"}
    on_cpu = TreeExplainer(model, rows[:50], device="cpu", **options)
    explainer = TreeExplainer(model, rows[:50], device="cuda", **options)
    atol = TOLERANCE["double"] * on_cpu._compiled.leaf_magnitude.max()
    for pairs in ("occurring", 1):
        expected = on_cpu.explain_interactions(rows, interactions=pairs)
        explanation = explainer.explain_interactions(rows, interactions=pairs)
        assert explanation.device == "cuda:0"
        np.testing.assert_allclose(explanation.values, expected.values, rtol=0, atol=atol)
    matrices, right = (one.shap_interaction_values(rows) for one in (explainer, on_cpu))
    np.testing.assert_allclose(matrices, right, rtol=0, atol=atol)


@pytest.mark.parametrize("precision", ["single", "double"])
def test_matrices(case: Any, precision: str) -> None:
    model, rows = case
    on_cpu = TreeExplainer(model, rows[:50], device="cpu", precision="double")
    explainer = TreeExplainer(model, rows[:50], device="cuda", precision=precision)
    atol = TOLERANCE[precision] * on_cpu._compiled.leaf_magnitude.max()
    matrices, right = explainer.shap_interaction_values(rows), on_cpu.shap_interaction_values(rows)
    np.testing.assert_allclose(matrices, right, rtol=0, atol=atol)
    assert np.abs(right).max() > 100 * atol


@pytest.mark.parametrize("library", ["cupy", "torch"])
def test_arrays_of_other_libraries(case: Any, library: str) -> None:
    namespace = pytest.importorskip(library)
    model, rows = case
    explainer = TreeExplainer(model, rows[:50], device="cuda")
    x = namespace.asarray(rows, device="cuda") if library == "torch" else namespace.asarray(rows)
    for pairs in ("occurring", 3):
        explanation = explainer.explain_interactions(x, interactions=pairs)
        expected = explainer.explain_interactions(rows, interactions=pairs)
        assert type(explanation.values) is type(x) and explanation.device == "cuda:0"
        values = (
            explanation.values.cpu().numpy() if library == "torch" else namespace.asnumpy(explanation.values)
        )
        np.testing.assert_array_equal(values, expected.values)
        assert explanation.additivity_error == expected.additivity_error
    matrices = explainer.shap_interaction_values(x)
    assert type(matrices) is type(x)
    on_host = matrices.cpu().numpy() if library == "torch" else namespace.asnumpy(matrices)
    np.testing.assert_array_equal(on_host, explainer.shap_interaction_values(rows))


def test_auto_takes_the_gpu(case: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SKSHAPGPU_DEVICE", raising=False)
    model, rows = case
    explainer = TreeExplainer(model, rows[:50])
    many = np.tile(rows, (2_000, 1))
    assert explainer.explain_interactions(many, interactions=[(0, 1)]).device == "cuda:0"
    assert explainer.explain_interactions(rows[:2]).device == "cpu"
