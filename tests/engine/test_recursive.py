"""algorithm="treeshap" and "fast_v1" against the definition, the quadrature and exact chains; errors.

Both algorithms compute on the CPU only, so every explainer in this file requests the CPU.
"""

from __future__ import annotations

import pickle
import re
from typing import Any

import numpy as np
import pytest
from helpers.ensemble_model import EnsembleModel
from helpers.ensembles import (
    ORDERS,
    SHAPES,
    ensemble_options,
    exact_shap,
    full_tree,
    leaf_scale,
    random_chain,
    random_ensemble,
    random_rows,
)
from helpers.gpu_rows import OnGpu
from helpers.models import MODELS
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

from skshapgpu import ShapTransformer, TreeExplainer, _core, reference
from skshapgpu._common.algorithms import ALGORITHMS
from skshapgpu._engine.additivity import _RELATIVE_GAP
from skshapgpu.adapters.ensemble import Ensemble, Tree, attributes_of

X, Y = load_diabetes(return_X_y=True)

#: Largest error of each precision, relative to the sum of the leaves.
TOLERANCE = {"single": 5e-6, "double": 1e-10}

METHODS = ("treeshap", "fast_v1")
each_method = pytest.mark.parametrize("method", METHODS)


def compute(
    ensemble: Ensemble, rows: np.ndarray, method: str, precision: str = "double", n_threads: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """Compute values and margins with the core."""
    attributes = attributes_of(ensemble)
    plan = _core.Plan(attributes, precision, method=method)
    shape = len(rows), ensemble.n_outputs, ensemble.n_features
    values, margin = np.full(shape, np.nan), np.full(shape[:2], np.nan)
    plan.explain(rows, values, margin, n_threads)
    return values, margin


def assert_are(expected: np.ndarray, ensemble: Ensemble, rows: np.ndarray) -> None:
    """Check a result that all methods compute in all precisions."""
    scale = leaf_scale(ensemble)
    for method in METHODS:
        for precision, tolerance in TOLERANCE.items():
            values, _ = compute(ensemble, rows, method, precision)
            error = np.abs(values - expected)
            assert (error <= tolerance * scale[:, np.newaxis]).all(), (method, precision, error.max())


# The core


@given(options=ensemble_options(), n_rows=st.sampled_from([1, 2, 7]))
@settings(max_examples=150)
def test_core_is_the_definition(options: dict[str, Any], n_rows: int) -> None:
    ensemble = random_ensemble(**options)
    rows = random_rows(options["seed"], ensemble, n_rows)
    assert_are(reference.path_dependent(ensemble, rows).values, ensemble, rows)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("vector", [False, True])
def test_core_is_the_quadrature(shape: str, order: str, vector: bool) -> None:
    """More features than the definition can handle, several blocks of rows, categories and missing zeros."""
    for seed in range(3):
        ensemble = random_ensemble(
            seed,
            n_trees=6,
            n_features=16,
            n_used=14,
            n_outputs=3,
            vector=vector,
            shapes=(shape,),
            max_leaves=40 if shape != "chain" else 15,
            order=order,
            x_dtype="float64" if seed else "float32",
            strict=seed == 1,
            categorical=seed < 2,
            zero_missing=seed == 1,
        )
        rows = random_rows(seed, ensemble, 150)
        assert_are(compute(ensemble, rows, "walk")[0], ensemble, rows)


@pytest.mark.parametrize("depth, n_features", [(6, 2), (9, 3), (10, 7), (10, 10)])
def test_full_trees_with_repeated_features(depth: int, n_features: int) -> None:
    tree = full_tree(np.random.default_rng(depth), depth, n_features)
    ensemble = Ensemble.from_trees([tree], n_features=n_features, intercept=2.0)
    rows = np.random.default_rng(n_features).random((70, n_features))
    rows[rows < 0.1] = np.nan
    assert_are(reference.path_dependent(ensemble, rows[:3]).values, ensemble, rows[:3])
    assert_are(compute(ensemble, rows, "walk")[0], ensemble, rows)


@pytest.mark.parametrize("depth, n_features", [(16, 16), (60, 16), (3000, 5)])
def test_chains(depth: int, n_features: int) -> None:
    ensemble = random_chain(depth, depth, n_features)
    rows = np.random.default_rng(depth).random((3, n_features))
    expected = compute(ensemble, rows, "walk")[0]
    if depth <= 60:
        expected = np.array([exact_shap(ensemble, x) for x in rows])
    assert_are(expected, ensemble, rows)


def chain(depth: int, share: float) -> Ensemble:
    """Build a chain: zeros satisfy all splits, on different features; ``share`` of the cover continues."""
    node = np.arange(2 * depth + 1)
    # Even nodes continue with the next even one on their left; odd ones are leaves.
    left = np.where((node % 2 == 0) & (node < 2 * depth), node + 2, -1)
    right = np.where(left >= 0, node + 1, -1)
    cover = np.where(node % 2 == 0, share, 1 - share)
    value = np.where(left >= 0, 0.0, np.cos(node))
    none = np.zeros(len(node), bool)
    tree = Tree(left, right, node // 2 % depth, np.full(len(node), 0.5), none, cover, value)
    return Ensemble.from_trees([tree], n_features=depth, intercept=0.0)


@each_method
@pytest.mark.parametrize("share", [2.0**-20, 1 / 8, 1 / 2, 7 / 8, 63 / 64])
@pytest.mark.parametrize("precision, depth, tolerance", [("single", 16, 1e-6), ("double", 32, 1e-10)])
def test_accuracy_that_the_documentation_promises(
    method: str, share: float, precision: str, depth: int, tolerance: float
) -> None:
    """Rows that follow a chain (almost) to its end recurse the deepest; errors are relative to a leaf."""
    ensemble = chain(depth, share)
    rows = np.stack([np.zeros(depth), np.arange(depth) == 3, np.arange(depth) % 8 == 0, np.ones(depth)]) * 1.0
    values, _ = compute(ensemble, rows, method, precision)
    expected = np.array([exact_shap(ensemble, x) for x in rows])
    assert np.abs(values - expected).max() <= tolerance * np.abs(ensemble.value).max()


@each_method
@pytest.mark.parametrize("depth", [26, 40, 64])
@pytest.mark.parametrize("share", [7 / 8, 63 / 64])
def test_the_check_sees_lost_digits(method: str, depth: int, share: float) -> None:
    """A row that satisfies all splits of a chain, in single precision."""
    ensemble = chain(depth, share)
    rows = np.zeros((1, depth))
    expected, margin = compute(ensemble, rows, "walk")
    result, _ = compute(ensemble, rows, method, "single")
    allowed = _RELATIVE_GAP["single"] * _core.Plan(vars(ensemble), "single").leaf_magnitude[0]
    base_value = margin - expected.sum(axis=2)
    assert np.abs(result - expected).max() > allowed
    assert np.abs(base_value + result.sum(axis=2) - margin).max() > allowed


@each_method
def test_the_check_says_which_algorithm_keeps_the_digits(method: str) -> None:
    model, rows = EnsembleModel(chain(40, 63 / 64)), np.zeros((1, 40))
    with pytest.raises(RuntimeError, match=f"'{method}' loses digits on paths .*: use algorithm='auto'"):
        TreeExplainer(model, algorithm=method, device="cpu").explain(rows)
    TreeExplainer(model, algorithm="auto", device="cpu").explain(rows)


@each_method
def test_margin_is_that_of_the_quadrature(method: str) -> None:
    ensemble = random_ensemble(11, n_trees=8, n_outputs=2)
    rows = random_rows(11, ensemble, 100)
    np.testing.assert_array_equal(compute(ensemble, rows, method)[1], compute(ensemble, rows, "walk")[1])


@each_method
@pytest.mark.parametrize("precision", TOLERANCE)
def test_threads_and_neighbours_change_no_bit(method: str, precision: str) -> None:
    ensemble = random_ensemble(12, n_trees=70, n_features=6, max_leaves=16)
    rows = random_rows(12, ensemble, 330)
    expected, _ = compute(ensemble, rows, method, precision)
    np.testing.assert_array_equal(compute(ensemble, rows, method, precision, n_threads=3)[0], expected)
    for part in (slice(0, 1), slice(17, 90), slice(None, None, -1)):
        again, _ = compute(ensemble, rows[part], method, precision)
        np.testing.assert_array_equal(again, expected[part])


@each_method
@pytest.mark.parametrize("n_rows, n_trees", [(0, 3), (2, 0)])
def test_no_rows_and_no_trees(method: str, n_rows: int, n_trees: int) -> None:
    ensemble = random_ensemble(13, n_trees=n_trees)
    values, _ = compute(ensemble, np.zeros((n_rows, 5)), method)
    assert values.shape == (n_rows, 1, 5) and (values == 0).all()


@each_method
@pytest.mark.parametrize("precision", TOLERANCE)
@pytest.mark.parametrize("scale", [5e-324, 1e-300, 1e300])
def test_leaves_beyond_the_precision(method: str, precision: str, scale: float) -> None:
    tree = Tree([1, -1, -1], [2, -1, -1], [0] * 3, [0.5, 0, 0], [True] * 3, [4, 1, 3], [0, scale, 0])
    ensemble = Ensemble.from_trees([tree], n_features=1, intercept=0.0)
    values, _ = compute(ensemble, np.array([[0.0], [1.0]]), method, precision)
    np.testing.assert_allclose(values[:, 0, 0], [0.75 * scale, -0.25 * scale], rtol=1e-7, atol=5e-324)


@each_method
def test_core_refuses_what_it_is_not_for(method: str) -> None:
    ensemble = random_ensemble(14)
    attributes = attributes_of(ensemble)
    for order, index in ((2, "SII"), (3, "SII"), (1, "BII"), (1, "STII")):
        with pytest.raises(ValueError, match=f"'{method}' computes SHAP values only: order 1, index 'SII'"):
            _core.Plan(attributes, "double", order, index, method=method)
    with pytest.raises(ValueError, match=f"the method '{method}' has no tables"):
        _core.Plan(attributes, "double", tables="level_uniform", method=method)
    with pytest.raises(ValueError, match=r"method must be one of 'walk', .*, not 'fast'") as error:
        _core.Plan(attributes, "double", method="fast")
    known = re.findall(r"'(\w+)'", str(error.value).partition(", not ")[0])
    assert sorted(known) == sorted({row.method for row in ALGORITHMS})


def test_scratch_counts_the_paths() -> None:
    ensemble = random_ensemble(15)
    attributes = attributes_of(ensemble)
    walk, *others = (
        _core.Plan(attributes, "double", method=method).info()["scratch_bytes_per_thread"]
        for method in ("walk", *METHODS)
    )
    assert others == [max(others)] * len(others) and others[0] > walk


# The explainer


@each_method
@pytest.mark.parametrize("family", MODELS)
def test_every_family(method: str, family: str) -> None:
    model, rows = MODELS[family]()
    expected = TreeExplainer(model, device="cpu", precision="double").explain(rows)
    explanation = TreeExplainer(model, device="cpu", precision="double", algorithm=method).explain(rows)
    assert np.abs(explanation.values - expected.values).max() <= 1e-11 * np.abs(expected.values).max()
    assert explanation.device == "cpu" and explanation.additivity_error is not None


@each_method
def test_outputs_pickle_memory_and_threads(method: str) -> None:
    model = RandomForestClassifier(5, max_depth=6, random_state=0).fit(X, Y > 140)
    options: dict[str, Any] = {"device": "cpu", "precision": "double", "outputs": "all"}
    expected = TreeExplainer(model, **options).shap_values(X)
    explainer = TreeExplainer(model, algorithm=method, n_jobs=2, memory_limit="4MB", **options)
    for each in (explainer, pickle.loads(pickle.dumps(explainer))):
        np.testing.assert_allclose(each.shap_values(X), expected, rtol=0, atol=1e-12)


@each_method
def test_transformer(method: str) -> None:
    model = RandomForestRegressor(3, max_depth=4, random_state=0)
    values = ShapTransformer(model, algorithm=method, device="cpu").fit(X, Y).transform(X)
    expected = ShapTransformer(model, device="cpu").fit(X, Y).transform(X)
    np.testing.assert_allclose(values, expected, rtol=0, atol=1e-4)


@each_method
def test_what_the_explainer_refuses(method: str) -> None:
    model = RandomForestRegressor(3, max_depth=4, random_state=0).fit(X, Y)
    for device in ("cuda", "cuda:1", ["cuda:0", "cuda:1"]):
        with pytest.raises(
            ValueError, match=f"algorithm='{method}' is computed on the CPU only: use device='cpu'"
        ):
            TreeExplainer(object(), algorithm=method, device=device)  # before the model is looked at
    with pytest.raises(ValueError, match=f"algorithm='{method}' computes no interventional SHAP values"):
        TreeExplainer(object(), X[:3], algorithm=method)
    explainer = TreeExplainer(model, algorithm=method, device="cpu")
    only = f"algorithm='{method}' computes SHAP values only, not"
    with pytest.raises(ValueError, match=f"{only} Banzhaf values: use 'auto'"):
        explainer.explain(X, index="BV")
    with pytest.raises(ValueError, match=f"{only} SHAP interaction values of pairs: use 'auto'"):
        explainer.shap_interaction_values(X)
    with pytest.raises(ValueError, match=only):
        explainer.explain_interactions(X, interactions=3, index="STII")


@each_method
def test_arrays_on_a_gpu_are_refused(method: str) -> None:
    model = RandomForestRegressor(3, max_depth=4, random_state=0).fit(X, Y)
    message = f"the values of algorithm='{method}' are computed on the CPU only, but X is on a GPU"
    with pytest.raises(TypeError, match=message):
        TreeExplainer(model, algorithm=method, device="cpu").shap_values(OnGpu())
