"""Background data on the GPU for leaves without a table, compared with the CPU and with the definition.

Paths of more than 12 features have no table. With little memory for tables, no leaf has one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers.ensembles import (
    chain_rows,
    ensemble_options,
    full_tree,
    leaf_scale,
    random_chain,
    random_comb,
    random_ensemble,
    random_rows,
    random_weights,
)
from helpers.plans import ALWAYS_TABLES, least_table_bytes
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingRegressor, RandomForestRegressor

from skshapgpu import TreeExplainer, _core, reference
from skshapgpu.adapters.ensemble import Ensemble, Tree, attributes_of
from skshapgpu.reference import Index

_cuda = pytest.importorskip("skshapgpu._cuda")
pytestmark = pytest.mark.usefixtures("gpu")

#: Largest error of each precision, relative to the leaves (and, with a link, to its slope).
TOLERANCE = {"single": 5e-6, "double": 1e-10}

INDICES: tuple[Index, ...] = ("SII", "STII", "BII")
LINKS = ("logistic", "log_loss", "squared_error")

#: Bytes for tables: enough for all paths of at most 12 features.
TABLES = 2**30

#: Numbers of features on a path: around 16, 32 and 64, the limits of specialized kernels.
DEPTHS = (3, 13, 16, 17, 32, 33, 64)


class Values:
    """The plans for SHAP values, or Banzhaf values, on both devices."""

    def __init__(
        self,
        ensemble: Ensemble,
        background: np.ndarray,
        precision: str,
        table_bytes: int = TABLES,
        index: str = "SII",
    ) -> None:
        weights = random_weights(len(background), len(background))
        self.ensemble = ensemble
        self.plan = _core.background_plan(
            attributes_of(ensemble), precision, background, weights, index, table_bytes
        )
        self.cuda = _cuda.CudaPlan(self.plan, 0)

    def on_cpu(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        values, margin = self._empty(rows)
        self.plan.explain(rows, values, margin, 2)
        return values, margin

    def on_gpu(self, rows: np.ndarray, limit: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Compute values and margins, and check the gaps."""
        values, margin = self._empty(rows)
        gap = np.full(self.ensemble.n_outputs, np.nan)
        self.cuda.explain(rows, values, margin, gap, limit)
        result = np.abs(values.sum(axis=2) + self.plan.base_value - margin).max(axis=0, initial=0)
        np.testing.assert_allclose(gap, result, rtol=1e-6, atol=1e-12 * leaf_scale(self.ensemble).max())
        return values, margin

    def _empty(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        shape = len(rows), self.ensemble.n_outputs, self.ensemble.n_features
        return np.full(shape, np.nan), np.full(shape[:2], np.nan)


def assert_same_values(
    ensemble: Ensemble, rows: np.ndarray, background: np.ndarray, table_bytes: int = TABLES
) -> None:
    unit = leaf_scale(ensemble)
    for index in ("SII", "BII"):
        truth, margin = Values(ensemble, background, "double", table_bytes, index).on_cpu(rows)
        for precision, tolerance in TOLERANCE.items():
            values, result = Values(ensemble, background, precision, table_bytes, index).on_gpu(rows)
            error = np.abs(values - truth).max(axis=(0, 2), initial=0)
            assert (error <= tolerance * unit).all(), (index, precision, error / unit)
            np.testing.assert_allclose(result, margin, rtol=0, atol=1e-12 * unit.max())


def pairs_plan(ensemble: Ensemble, background: np.ndarray, precision: str, index: str) -> Any:
    weights = random_weights(len(background), len(background))
    return _core.BackgroundPairsPlan(attributes_of(ensemble), precision, background, weights, index, 2**24)


def empty_results(plan: Any, rows: np.ndarray, ensemble: Ensemble) -> list[np.ndarray]:
    shape = len(rows), ensemble.n_outputs, ensemble.n_features
    shapes = [shape, shape[:2], (*shape, shape[2]), (*shape[:2], len(plan.pairs))]
    return [np.full(shape, np.nan) for shape in shapes]


def assert_same_pairs(
    ensemble: Ensemble,
    rows: np.ndarray,
    background: np.ndarray,
    indices: tuple[Index, ...] = INDICES,
    few: bool = False,
) -> None:
    """Compare values, margins, matrices and pairs; with ``few``, as few leaves as possible have tables."""
    unit = leaf_scale(ensemble)
    for index in indices:
        counted = pairs_plan(ensemble, background, "double", index)
        truth = empty_results(counted, rows, ensemble)
        counted.explain(rows, truth[0], truth[1], 2, *truth[2:])
        for precision, tolerance in TOLERANCE.items():
            counted = pairs_plan(ensemble, background, precision, index)
            tables = counted.with_tables(least_table_bytes(counted) if few else TABLES, 2)
            cuda = _cuda.CudaPlan.with_tables(tables, 0)
            result = empty_results(counted, rows, ensemble)
            cuda.explain(rows, result[0], result[1], None, 0, *result[2:])
            for one, other in zip(result, truth, strict=True):
                error = np.abs(one - other).max(axis=(0, *range(2, one.ndim)), initial=0)
                assert (error <= tolerance * unit + 1e-12).all(), (index, precision, error / unit)


def assert_same_links(
    ensemble: Ensemble, rows: np.ndarray, background: np.ndarray, few: bool = False, scale: float = 1.0
) -> None:
    unit, attributes = leaf_scale(ensemble), attributes_of(ensemble)
    weights = random_weights(len(background), len(background))
    shape = len(rows), ensemble.n_outputs, ensemble.n_features
    for link in LINKS:
        labels = None if link == "logistic" else np.arange(len(rows)) % 2.0
        factor = 1.0 if link == "squared_error" else scale
        slope = factor if link != "squared_error" else 2 * (1 + unit + np.abs(ensemble.intercept))
        truth, margin = np.full(shape, np.nan), np.full(shape[:2], np.nan)
        plan = _core.RescaledPlan(attributes, "double", background, weights, link, factor)
        plan.explain(rows, truth, margin, 2, labels)
        for precision, tolerance in TOLERANCE.items():
            plan = _core.RescaledPlan(attributes, precision, background, weights, link, factor)
            table_bytes = least_table_bytes(plan) if few else TABLES
            tables = _core.RescaledTables(plan, attributes, background, table_bytes, 2)
            cuda = _cuda.CudaPlan.rescaled(tables, 0)
            del tables  # the GPU has them
            values, result = np.full(shape, np.nan), np.full(shape[:2], np.nan)
            cuda.explain(rows, values, result, None, 0, labels=labels)
            error = np.abs(values - truth).max(axis=(0, 2))
            assert (error <= tolerance * slope * unit).all(), (link, precision, error / (slope * unit))
            np.testing.assert_allclose(result, margin, rtol=0, atol=1e-12 * (unit.max() + 1))


def some_rows(seed: int, ensemble: Ensemble, n_rows: int) -> np.ndarray:
    """Draw rows some of which satisfy most splits x <= 0.5."""
    rng = np.random.default_rng(seed)
    return rng.random((n_rows, ensemble.n_features)) * rng.choice([0.6, 0.9, 1.0], (n_rows, 1))


# SHAP values


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(options=ensemble_options(max_used=5), table_bytes=st.sampled_from([0, 3000]))
def test_values_are_the_definition(options: dict[str, Any], table_bytes: int) -> None:
    """Missing values, categories, repeated features, several outputs and vector leaves."""
    ensemble = random_ensemble(**options)
    rows = random_rows(options["seed"], ensemble, 9)
    weights = random_weights(6, 6)
    expected, base, _ = reference.interventional(ensemble, rows[:3], rows[3:], weight=weights)
    scale = leaf_scale(ensemble)
    for precision, tolerance in TOLERANCE.items():
        plans = Values(ensemble, rows[3:], precision, table_bytes)
        values, _ = plans.on_gpu(rows[:3])
        assert (np.abs(values - expected) <= tolerance * scale[:, np.newaxis]).all()
        assert (np.abs(plans.plan.base_value - base) <= 1e-12 * (scale + np.abs(ensemble.intercept))).all()


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(options=ensemble_options(), table_bytes=st.sampled_from([0, 3000, 50_000]))
def test_values_of_random_ensembles(options: dict[str, Any], table_bytes: int) -> None:
    ensemble = random_ensemble(**options)
    rows = random_rows(options["seed"], ensemble, 130)
    assert_same_values(ensemble, rows[:90], rows[60:], table_bytes)


@pytest.mark.parametrize("depth", DEPTHS)
def test_values_of_chains(depth: int) -> None:
    ensemble = random_chain(depth, depth, depth)
    rows = chain_rows(depth, ensemble, 900)
    for table_bytes in (0, TABLES):
        assert_same_values(ensemble, rows[:200], rows[200:], table_bytes)
    truth, _ = Values(ensemble, rows[200:], "double").on_cpu(rows[:200])
    last = ensemble.feature[np.flatnonzero(ensemble.left >= 0)[-1]]  # only on the path of the last leaves
    assert np.abs(truth[..., last]).max() > 1e-5 * leaf_scale(ensemble)[0]


def test_values_of_repeated_features() -> None:
    """Each feature occurs about four times on a path, with the same threshold or with another."""
    ensemble = random_chain(2, 60, 15)
    threshold = np.random.default_rng(2).choice([0.3, 0.5, 0.8], len(ensemble.threshold))
    ensemble = replace(ensemble, threshold=threshold)
    rows = some_rows(2, ensemble, 400)
    assert_same_values(ensemble, rows[:200], rows[200:])


@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize("n_features", [15, 40])
def test_values_of_combs(n_features: int, n_outputs: int) -> None:
    """Leaves of one tree with and without tables, vector leaves, and groups of leaves beside long paths."""
    ensemble = random_comb(n_features, n_features, n_outputs)
    rows = some_rows(3, ensemble, 500)
    for table_bytes in (TABLES, 100_000, 0):
        assert_same_values(ensemble, rows[:150], rows[150:], table_bytes)


@pytest.mark.parametrize("n_rows", [1, 31, 32, 33, 64, 65, 1_000, 70_000])
def test_every_number_of_rows(n_rows: int) -> None:
    ensemble = random_ensemble(1, n_trees=7, n_features=6, max_leaves=20)
    rows = random_rows(1, ensemble, n_rows + 20)
    assert_same_values(ensemble, rows[20:], rows[:20], 0)


@pytest.mark.parametrize("n_features", [400, 3_000])
def test_values_of_wide_models(n_features: int) -> None:
    """The sums of many features do not fit into shared memory, and there are many chunks."""
    ensemble = random_ensemble(2, n_trees=300, n_features=n_features, max_leaves=12)
    rows = random_rows(2, ensemble, 230)
    assert_same_values(ensemble, rows[:130], rows[130:], 0)


def test_values_of_deep_trees_and_many_background_rows() -> None:
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(4000, 30))
    model = RandomForestRegressor(3, max_depth=25, random_state=0).fit(rows, rows @ np.arange(30.0))
    options: dict[str, Any] = {"precision": "double", "data_weight": np.arange(2000) % 3}
    expected = TreeExplainer(model, rows[:2000], device="cpu", **options).explain(rows[2000:2300])
    for precision, tolerance in TOLERANCE.items():
        explainer = TreeExplainer(model, rows[:2000], device="cuda", **options | {"precision": precision})
        assert explainer.model_info()["n_leaves_without_table"] > 100
        explanation = explainer.explain(rows[2000:2300])
        assert explanation.device == "cuda:0" and explanation.additivity_error is not None
        atol = tolerance * explainer._compiled.leaf_magnitude.max()
        np.testing.assert_allclose(explanation.values, expected.values, rtol=0, atol=atol)


@pytest.mark.parametrize("precision", TOLERANCE)
def test_batches_and_neighbours_change_no_bit(precision: str) -> None:
    ensemble = random_ensemble(8, n_trees=20, n_features=6, n_outputs=2, max_leaves=16)
    rows = random_rows(8, ensemble, 3040)
    plans = Values(ensemble, rows[3000:], precision, 0)
    rows = rows[:3000]
    expected, _ = plans.on_gpu(rows)
    for limit in (3_000_000, 1_000_000):
        np.testing.assert_array_equal(plans.on_gpu(rows, limit)[0], expected)
    for part in (slice(0, 2), slice(64, 65), slice(1000, 2500), slice(None, None, -1)):
        result, _ = plans.on_gpu(np.ascontiguousarray(rows[part]))
        np.testing.assert_array_equal(result, expected[part])
    with pytest.raises(_cuda.CudaMemoryError, match="raise memory_limit"):
        plans.on_gpu(rows, 1000)


# Banzhaf values and interactions


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(options=ensemble_options(max_used=5), index=st.sampled_from(INDICES))
def test_pairs_are_the_definition(options: dict[str, Any], index: Index) -> None:
    ensemble = random_ensemble(**options)
    rows = random_rows(options["seed"], ensemble, 9)
    expected = reference.interventional(
        ensemble, rows[:3], rows[3:], weight=random_weights(6, 6), index=index
    ).values
    allowed = leaf_scale(ensemble)[:, np.newaxis, np.newaxis]
    for precision, tolerance in TOLERANCE.items():
        counted = pairs_plan(ensemble, rows[3:], precision, index)
        tables = counted.with_tables(least_table_bytes(counted))
        values, margin, matrices, pairs = empty_results(counted, rows[:3], ensemble)
        _cuda.CudaPlan.with_tables(tables, 0).explain(
            rows[:3], values, margin, None, 0, matrices=matrices, pairs=pairs
        )
        assert (np.abs(matrices - expected) <= tolerance * allowed).all()


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(options=ensemble_options(), index=st.sampled_from(INDICES))
def test_pairs_of_random_ensembles(options: dict[str, Any], index: Index) -> None:
    ensemble = random_ensemble(**options)
    rows = random_rows(options["seed"], ensemble, 130)
    assert_same_pairs(ensemble, rows[:90], rows[60:], (index,), few=True)


@pytest.mark.parametrize("depth", DEPTHS)
def test_pairs_of_chains(depth: int) -> None:
    ensemble = random_chain(depth, depth, depth)
    rows = chain_rows(depth, ensemble, 300)
    assert_same_pairs(ensemble, rows[:70], rows[70:], few=depth == 3)


@pytest.mark.parametrize("n_outputs", [1, 3])
def test_pairs_of_combs(n_outputs: int) -> None:
    ensemble = random_comb(5, 18, n_outputs)
    rows = some_rows(5, ensemble, 200)
    for few in (False, True):
        assert_same_pairs(ensemble, rows[:70], rows[70:], ("SII",), few)


# Probabilities and losses


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(options=ensemble_options())
def test_links_of_random_ensembles(options: dict[str, Any]) -> None:
    ensemble = random_ensemble(**options)
    rows = random_rows(options["seed"], ensemble, 130)
    assert_same_links(ensemble, rows[:90], rows[60:], few=True)


@pytest.mark.parametrize("depth", DEPTHS)
def test_links_of_chains(depth: int) -> None:
    ensemble = random_chain(depth, depth, depth)
    rows = chain_rows(depth, ensemble, 300)
    assert_same_links(ensemble, rows[:70], rows[70:], few=depth == 3)


@pytest.mark.parametrize("scale", [1.0, 0.01, 30.0])
@pytest.mark.parametrize("n_background", [1, 2, 7, 700])
def test_links_of_many_terms(n_background: int, scale: float) -> None:
    """Few background margins are nodes themselves, many are interpolated; wide ones have several panels."""
    rng = np.random.default_rng(3)
    trees = [full_tree(rng, 4, 8) for _ in range(40)]
    ensemble = Ensemble.from_trees(trees, n_features=8, intercept=[0.5])
    rows = rng.random((n_background + 200, 8))
    assert_same_links(ensemble, rows[:200], rows[200:], few=True, scale=scale)


@pytest.mark.parametrize("n_outputs", [1, 3])
def test_links_of_combs(n_outputs: int) -> None:
    ensemble = random_comb(5, 18, n_outputs)
    rows = some_rows(5, ensemble, 200)
    for few in (False, True):
        assert_same_links(ensemble, rows[:70], rows[70:], few)


# The API


WIDE = np.random.default_rng(0).normal(size=(1500, 30))
TARGET = WIDE @ np.arange(30.0) + 5 * WIDE[:, 3] * WIDE[:, 4]


@pytest.fixture(scope="module")
def forest() -> RandomForestRegressor:
    return RandomForestRegressor(2, max_depth=20, random_state=0).fit(WIDE, TARGET)


@pytest.mark.parametrize("precision", TOLERANCE)
@pytest.mark.parametrize("index", INDICES)
def test_interactions_of_explainers(forest: Any, precision: str, index: str) -> None:
    options: dict[str, Any] = {"data": WIDE[:200], "precision": precision}
    in_double = TreeExplainer(forest, device="cpu", **options | {"precision": "double"})
    explainer = TreeExplainer(forest, device="cuda", **options)
    atol = TOLERANCE[precision] * in_double._compiled.leaf_magnitude.max()
    rows = WIDE[200:300]
    for pairs in ("occurring", [(3, 4), (29, 0)]):
        expected = in_double.explain_interactions(rows, interactions=pairs, index=index)
        explanation = explainer.explain_interactions(rows, interactions=pairs, index=index)
        assert explanation.device == "cuda:0" and np.abs(expected.values).max() > 100 * atol
        np.testing.assert_allclose(explanation.values, expected.values, rtol=0, atol=atol)
    if index == "BII":
        banzhaf = explainer.explain(rows, index="BV")
        assert banzhaf.device == "cuda:0"
        expected_values = in_double.explain(rows, index="BV").values
        np.testing.assert_allclose(banzhaf.values, expected_values, rtol=0, atol=atol)


def test_groups_categories_and_missing_values() -> None:
    """Groups of columns are players; paths have more than 12 players."""
    rng = np.random.default_rng(4)
    rows = np.concatenate([rng.integers(0, 5, (1500, 6)).astype(float), WIDE[:, :20]], axis=1)
    rows[rng.random(rows.shape) < 0.1] = np.nan
    target = np.nansum(rows * np.arange(26.0), axis=1)
    model = HistGradientBoostingRegressor(
        max_iter=4, max_leaf_nodes=1500, min_samples_leaf=1, categorical_features=range(6)
    ).fit(rows, target)
    groups = {"first": [0, 7], "second": [8, 9, 20]}
    for options in ({}, {"feature_groups": groups}):
        on_cpu = TreeExplainer(model, rows[:150], device="cpu", precision="double", **options)
        assert on_cpu.model_info()["n_leaves_without_table"] > 0
        expected = on_cpu.explain(rows[150:400])
        for precision, tolerance in TOLERANCE.items():
            explainer = TreeExplainer(model, rows[:150], device="cuda", precision=precision, **options)
            explanation = explainer.explain(rows[150:400])
            atol = tolerance * on_cpu._compiled.leaf_magnitude.max()
            assert explanation.device == "cuda:0"
            np.testing.assert_allclose(explanation.values, expected.values, rtol=0, atol=atol)


def test_probabilities_of_explainers() -> None:
    model = GradientBoostingClassifier(n_estimators=2, max_depth=20, random_state=0).fit(WIDE, TARGET > 0)
    for model_output, y in (("probability", None), ("log_loss", TARGET[200:300] > 0)):
        options: dict[str, Any] = {"model_output": model_output, "data_weight": np.arange(200) + 1.0}
        expected = TreeExplainer(model, WIDE[:200], device="cpu", **options).explain(WIDE[200:300], y)
        explainer = TreeExplainer(model, WIDE[:200], device="cuda", **options)
        explanation = explainer.explain(WIDE[200:300], y)
        assert explanation.device == "cuda:0" and explanation.additivity_error < 1e-5
        np.testing.assert_allclose(explanation.values, expected.values, rtol=0, atol=2e-6)
        limited = TreeExplainer(model, WIDE[:200], device="cuda", memory_limit="200MB", **options)
        np.testing.assert_allclose(
            limited.explain(WIDE[200:300], y).values, expected.values, rtol=0, atol=2e-6
        )


def test_a_loaded_explainer(forest: Any, tmp_path: Any) -> None:
    """Patterns are mapped from the file."""
    explainer = TreeExplainer(forest, WIDE[:200], device="cuda")
    expected = explainer.shap_values(WIDE[200:300])
    explainer.save(tmp_path / "explainer.npz")
    loaded = TreeExplainer.load(tmp_path / "explainer.npz", device="cuda")
    np.testing.assert_array_equal(loaded.shap_values(WIDE[200:300]), expected)


@pytest.mark.parametrize("library", ["cupy", "torch"])
def test_arrays_of_other_libraries(forest: Any, library: str) -> None:
    namespace = pytest.importorskip(library)
    explainer = TreeExplainer(forest, WIDE[:200], device="cuda")
    rows = WIDE[200:400]
    on_gpu = namespace.asarray(rows, device="cuda") if library == "torch" else namespace.asarray(rows)
    values = explainer.shap_values(on_gpu)
    on_host = values.cpu().numpy() if library == "torch" else namespace.asnumpy(values)
    np.testing.assert_array_equal(on_host, explainer.shap_values(rows))


def test_auto_takes_the_gpu(forest: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SKSHAPGPU_DEVICE", raising=False)
    many = np.tile(WIDE, (20, 1))
    assert TreeExplainer(forest, WIDE[:200], n_jobs=1).explain(many).device == "cuda:0"


def test_interval_tables_beside_long_paths() -> None:
    """Trees whose leaves all have background tables may have tables by intervals, too."""
    rng, chain = np.random.default_rng(7), random_chain(1, 20, 20)
    long = Tree(
        chain.left,
        chain.right,
        chain.feature,
        chain.threshold,
        chain.missing_left,
        chain.cover,
        chain.value[:, 0],
    )
    trees = [full_tree(rng, 3, 20) for _ in range(30)]
    ensemble = Ensemble.from_trees([*trees, long, *trees], n_features=20, intercept=[0.5])
    rows, background = rng.random((500, 20)), rng.random((50, 20))
    weights = np.full(50, 0.02)
    plan = _core.background_plan(attributes_of(ensemble), "double", background, weights, "SII", TABLES)
    assert 0 < plan.info()["n_leaves_without_table"] < 20
    layout = _core.IntervalLayout(plan, 1024, 1e9, ALWAYS_TABLES, on_gpu=True)
    with_intervals = _core.interval_plan(plan, layout)
    assert with_intervals.info()["n_lookups"] < plan.info()["n_lookups"]
    shape = len(rows), 1, 20
    expected, values = np.full(shape, np.nan), np.full(shape, np.nan)
    plan.explain(rows, expected, None, 1)
    _cuda.CudaPlan(with_intervals, 0).explain(rows, values, None, None, 0)
    np.testing.assert_allclose(values, expected, rtol=0, atol=1e-10 * leaf_scale(ensemble)[0])
