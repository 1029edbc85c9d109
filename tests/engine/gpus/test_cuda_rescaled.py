"""Values of probabilities and losses on the GPU, compared with the CPU, which goes through all pairs.

test_model_output.py compares both with the definition.
"""

from __future__ import annotations

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
from sklearn.datasets import load_diabetes
from sklearn.ensemble import GradientBoostingClassifier

from skshapgpu import TreeExplainer, _core
from skshapgpu.adapters.ensemble import Ensemble, attributes_of

_cuda = pytest.importorskip("skshapgpu._cuda")
pytestmark = pytest.mark.usefixtures("gpu")

X, Y = load_diabetes(return_X_y=True)
HIGH = Y > 140

#: Largest error of each precision, relative to the leaves and to the slope of the link.
TOLERANCE = {"single": 5e-6, "double": 1e-11}

LINKS = ("logistic", "log_loss", "squared_error")

#: Bytes for tables: enough for all leaves here.
TABLES = 2**30


class Plans:
    """The plans of an ensemble on both devices."""

    def __init__(
        self, ensemble: Ensemble, background: np.ndarray, link: str, precision: str, scale: float = 1.0
    ) -> None:
        weights = np.random.default_rng(len(background)).random(len(background))
        self.ensemble, self.link = ensemble, link
        attributes = attributes_of(ensemble)
        self.on_cpu = _core.RescaledPlan(
            attributes, precision, background, weights / weights.sum(), link, scale
        )
        self.tables = _core.RescaledTables(self.on_cpu, attributes, background, TABLES)
        self.on_gpu = _cuda.CudaPlan.rescaled(self.tables, 0)

    def compute(self, rows: np.ndarray, device: str, memory_limit: int = 0) -> tuple[np.ndarray, np.ndarray]:
        shape = len(rows), self.ensemble.n_outputs, self.ensemble.n_features
        values, margin = np.full(shape, np.nan), np.full(shape[:2], np.nan)
        labels = None if self.link == "logistic" else np.arange(len(rows)) % 2.0
        if device == "cpu":
            self.on_cpu.explain(rows, values, margin, 2, labels)
        else:
            self.on_gpu.explain(rows, values, margin, None, memory_limit, labels=labels)
        return values, margin


def assert_same(ensemble: Ensemble, rows: np.ndarray, background: np.ndarray, scale: float = 1.0) -> None:
    unit = leaf_scale(ensemble)
    for link in LINKS:
        factor = 1.0 if link == "squared_error" else scale
        truth, margin = Plans(ensemble, background, link, "double", factor).compute(rows, "cpu")
        slope = factor if link != "squared_error" else 2 * (1 + unit + np.abs(ensemble.intercept))
        for precision, tolerance in TOLERANCE.items():
            values, result = Plans(ensemble, background, link, precision, factor).compute(rows, "cuda")
            error = np.abs(values - truth).max(axis=(0, 2))
            assert (error <= tolerance * slope * unit).all(), (link, precision, error / (slope * unit))
            np.testing.assert_allclose(result, margin, rtol=0, atol=1e-12 * (unit.max() + 1))


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(options=ensemble_options())
def test_random_ensembles(options: dict[str, Any]) -> None:
    """Missing values, categories, repeated features, several outputs and vector leaves."""
    ensemble = random_ensemble(**options)
    rows = random_rows(options["seed"], ensemble, 130)
    assert_same(ensemble, rows[:90], rows[60:])


@pytest.mark.parametrize("scale", [1.0, 0.01, 30.0])
@pytest.mark.parametrize("n_background", [1, 2, 7, 700])
def test_as_many_nodes_as_necessary(n_background: int, scale: float) -> None:
    """Few background margins are nodes themselves, many are interpolated; wide ones have several panels."""
    rng = np.random.default_rng(3)
    trees = [full_tree(rng, 4, 8) for _ in range(40)]
    ensemble = Ensemble.from_trees(trees, n_features=8, intercept=[0.5])
    rows = rng.random((n_background + 200, 8))
    assert_same(ensemble, rows[:200], rows[200:], scale)


@pytest.mark.parametrize("n_features, n_used", [(3, 1), (40, 40), (300, 12)])
def test_large_and_wide_tables(n_features: int, n_used: int) -> None:
    """Paths of up to 12 features, whose tables are looked up in parts, and more features than fit at once."""
    rng = np.random.default_rng(n_features)
    trees = [full_tree(rng, 6, n_features) for _ in range(6)]
    ensemble = Ensemble.from_trees(trees, n_features=n_features, intercept=[0.5])
    rows = rng.normal(size=(150, n_features))
    assert_same(ensemble, rows[:100], rows[100:])
    chain = random_chain(n_used, min(n_used, 12), n_features)
    assert_same(chain, rows[:70], rows[70:110])


@pytest.mark.parametrize("intercept", [5000.0, -6500.0])
def test_slopes_whose_squares_underflow(intercept: float) -> None:
    """Errors are relative to the largest slope at the margins that the leaves allow."""
    rng = np.random.default_rng(3)
    trees = [full_tree(rng, 4, 8) for _ in range(3)]
    ensemble = Ensemble.from_trees(trees, n_features=8, intercept=[intercept])
    rows, scale = rng.random((300, 8)), 0.1
    assert_same(ensemble, rows[:200], rows[200:], scale)
    plans = Plans(ensemble, rows[200:], "logistic", "double", scale)
    (truth, _), (result, _) = (plans.compute(rows[:200], device) for device in ("cpu", "cuda"))
    unit = leaf_scale(ensemble).max()
    bound = scale * unit * np.exp(scale * (unit - abs(intercept)))
    assert 1e-4 * bound < np.abs(truth).max() < bound < 1e-160
    np.testing.assert_allclose(result, truth, rtol=0, atol=TOLERANCE["double"] * bound)


def test_batches_and_neighbours_change_no_bit() -> None:
    ensemble = random_ensemble(8, n_trees=20, n_features=6, max_leaves=16)
    rows = random_rows(8, ensemble, 3300)
    for link in LINKS:
        plans = Plans(ensemble, rows[3000:].copy(), link, "single")
        expected, margin = plans.compute(rows[:3000], "cuda")
        for limit in (10**6, 300_000):  # 3000 rows take more
            result, margin_found = plans.compute(rows[:3000], "cuda", limit)
            np.testing.assert_array_equal(result, expected)
            np.testing.assert_array_equal(margin_found, margin)
        for part in (slice(0, 2), slice(64, 65), slice(1000, 2500), slice(0, 3000, 2)):
            result, _ = plans.compute(rows[part][:64], "cuda")
            if link == "logistic":
                np.testing.assert_array_equal(result, expected[part][:64])
    with pytest.raises(_cuda.CudaMemoryError, match="raise memory_limit"):
        plans.compute(rows, "cuda", 1000)


def test_layouts_of_rows() -> None:
    ensemble = random_ensemble(9, n_trees=5, n_features=6)
    rows = random_rows(9, ensemble, 300).astype(np.float32)
    plans = Plans(ensemble, rows[:30].astype(np.float64), "logistic", "double")
    expected, _ = plans.compute(rows, "cpu")
    for given_rows in (rows, np.asfortranarray(rows), np.repeat(rows, 2, axis=0)[::2], rows.astype(float)):
        result, _ = plans.compute(given_rows, "cuda")
        np.testing.assert_allclose(result, expected, rtol=0, atol=1e-12 * leaf_scale(ensemble).max())


def test_explainers() -> None:
    model = GradientBoostingClassifier(n_estimators=30, random_state=0).fit(X, HIGH)
    for model_output, y in (("probability", None), ("log_loss", HIGH)):
        options: dict[str, Any] = {"model_output": model_output, "data_weight": np.arange(100) + 1.0}
        on_cpu = TreeExplainer(model, X[:100], device="cpu", **options).explain(X, y)
        explainer = TreeExplainer(model, X[:100], device="cuda", **options)
        on_gpu = explainer.explain(X, y)
        assert on_gpu.device == "cuda:0" and on_gpu.additivity_error < 1e-5
        np.testing.assert_allclose(on_gpu.values, on_cpu.values, rtol=0, atol=2e-6)
        np.testing.assert_array_equal(on_gpu.base_values, on_cpu.base_values)
        both = TreeExplainer(model, X[:100], device="cuda", memory_limit="200MB", **options)
        np.testing.assert_array_equal(both.explain(X, y).values, on_gpu.values)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_on_the_gpu(dtype: type) -> None:
    cupy = pytest.importorskip("cupy")
    model = GradientBoostingClassifier(n_estimators=30, random_state=0).fit(X, HIGH)
    for model_output, y in (("probability", None), ("log_loss", HIGH)):
        explainer = TreeExplainer(model, X[:100], device="cuda", model_output=model_output)
        expected = explainer.explain(X.astype(dtype), y)
        explanation = explainer.explain(cupy.asarray(X.astype(dtype)), y)
        assert isinstance(explanation.values, cupy.ndarray) and explanation.device == "cuda:0"
        np.testing.assert_array_equal(explanation.values.get(), expected.values)
        assert explanation.additivity_error == expected.additivity_error
        wrong = cupy.asarray(X.astype(dtype))
        wrong[7, 3] = np.inf
        with pytest.raises(ValueError, match="row 7, column"):
            explainer.explain(wrong, y)
