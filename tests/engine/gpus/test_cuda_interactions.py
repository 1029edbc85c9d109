"""SHAP interaction values on the GPU, compared with the CPU and with the definition."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from helpers.ensembles import ensemble_options, leaf_scale, random_chain, random_ensemble, random_rows
from hypothesis import HealthCheck, given, settings
from sklearn.datasets import load_diabetes, load_iris
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

from skshapgpu import ShapInteractionTransformer, TreeExplainer, _core, reference
from skshapgpu.adapters.ensemble import Ensemble, attributes_of

_cuda = pytest.importorskip("skshapgpu._cuda")
pytestmark = pytest.mark.usefixtures("gpu")

#: Largest error of each precision, relative to the leaves.
TOLERANCE = {"single": 5e-6, "double": 1e-10}

INDICES = ("SII", "STII", "BII")


def plan_of(ensemble: Ensemble, precision: str, index: str = "SII", order: int = 2) -> Any:
    return _core.Plan(attributes_of(ensemble), precision, order, index)


def empty_results(plan: Any, rows: np.ndarray, ensemble: Ensemble) -> tuple[np.ndarray, ...]:
    shape = len(rows), ensemble.n_outputs, ensemble.n_features
    arrays = shape, (*shape, shape[2]), (*shape[:2], len(plan.pairs))
    return tuple(np.full(shape, np.nan) for shape in arrays)


def on_cpu(plan: Any, rows: np.ndarray, ensemble: Ensemble) -> tuple[np.ndarray, ...]:
    values, matrices, pairs = empty_results(plan, rows, ensemble)
    margin = np.full(values.shape[:2], np.nan)
    plan.explain(rows, values, margin, 1, matrices, pairs)
    return values, matrices, pairs, margin


def on_gpu(plan: Any, rows: np.ndarray, ensemble: Ensemble, limit: int = 0) -> tuple[np.ndarray, ...]:
    values, matrices, pairs = empty_results(plan, rows, ensemble)
    margin, gap = np.full(values.shape[:2], np.nan), np.full(ensemble.n_outputs, np.nan)
    cuda = _cuda.CudaPlan(plan, 0)
    cuda.explain(rows, values, margin, gap, limit, matrices, pairs)
    result = np.abs(values.sum(axis=2) + plan.base_value - margin).max(axis=0, initial=0)
    np.testing.assert_allclose(gap, result, rtol=1e-6, atol=1e-12 * leaf_scale(ensemble).max())
    return values, matrices, pairs, margin


def assert_same(ensemble: Ensemble, rows: np.ndarray, index: str = "SII") -> None:
    unit = leaf_scale(ensemble)
    truth = on_cpu(plan_of(ensemble, "double", index), rows, ensemble)
    for precision, tolerance in TOLERANCE.items():
        plan = plan_of(ensemble, precision, index)
        result = on_gpu(plan, rows, ensemble)
        for ours, expected in zip(result, truth):
            scale = unit.reshape(-1, *(1,) * (ours.ndim - 2))
            assert (np.abs(ours - expected) <= tolerance * scale).all()
        values, matrices, pairs, _ = result
        assert (matrices == matrices.swapaxes(2, 3)).all()
        assert (pairs == matrices[..., plan.pairs[:, 0], plan.pairs[:, 1]]).all()
        if index == "BII":
            assert (np.diagonal(matrices, axis1=2, axis2=3) == values).all()
        else:
            assert (np.abs(matrices.sum(axis=3) - values) <= 1e-12 * unit[:, np.newaxis]).all()
    if index != "STII":
        assert_same_triples(ensemble, rows, index)


def triples_on_gpu(
    plan: Any, rows: np.ndarray, ensemble: Ensemble, limit: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Compute values and triples, and the gap of the values."""
    values, *_ = empty_results(plan, rows, ensemble)
    triples = np.full((*values.shape[:2], len(plan.triples)), np.nan)
    margin, gap = np.full(values.shape[:2], np.nan), np.full(ensemble.n_outputs, np.nan)
    _cuda.CudaPlan(plan, 0).explain(rows, values, margin, gap, limit, triples=triples)
    result = np.abs(values.sum(axis=2) + plan.base_value - margin).max(axis=0, initial=0)
    np.testing.assert_allclose(gap, result, rtol=1e-6, atol=1e-12 * leaf_scale(ensemble).max())
    return values, triples


def assert_same_triples(ensemble: Ensemble, rows: np.ndarray, index: str) -> None:
    unit = leaf_scale(ensemble)[:, np.newaxis]
    truth = plan_of(ensemble, "double", index, 3)
    values, *_ = empty_results(truth, rows, ensemble)
    triples = np.full((*values.shape[:2], len(truth.triples)), np.nan)
    truth.explain(rows, values, None, 1, triples=triples)
    for precision, tolerance in TOLERANCE.items():
        result = triples_on_gpu(plan_of(ensemble, precision, index, 3), rows, ensemble)
        for ours, expected in zip(result, (values, triples)):
            assert (np.abs(ours - expected) <= tolerance * unit).all()


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(options=ensemble_options())
def test_random_ensembles(options: dict) -> None:
    ensemble = random_ensemble(**options)
    assert_same(ensemble, random_rows(options["seed"], ensemble, 70))


@pytest.mark.parametrize("index", INDICES)
@pytest.mark.parametrize("vector", [False, True])
def test_indices(index: str, vector: bool) -> None:
    for seed in range(4):
        ensemble = random_ensemble(
            seed, n_trees=6, n_features=8, n_outputs=2, max_leaves=60, vector=vector, categorical=True
        )
        rows = random_rows(seed, ensemble, 130)
        assert_same(ensemble, rows, index)
        expected = reference.path_dependent(ensemble, rows, index=index).values
        _, matrices, _, _ = on_gpu(plan_of(ensemble, "double", index), rows, ensemble)
        unit = leaf_scale(ensemble)[:, np.newaxis, np.newaxis]
        assert (np.abs(matrices - expected) <= TOLERANCE["double"] * unit).all()


@pytest.mark.parametrize("n_features", [1, 2, 3, 4, 5, 7, 9, 11, 13, 15, 17, 24])
def test_every_kernel(n_features: int) -> None:
    """Path lengths cover each number of quadrature nodes and, beyond 8 nodes, the general form."""
    ensemble = random_chain(0, n_features, n_features)
    assert_same(ensemble, random_rows(0, ensemble, 70))


@pytest.mark.parametrize(
    "depth, n_features", [(16, 16), (31, 16), (31, 31), (31, 6), (32, 6), (33, 6), (70, 12), (300, 3)]
)
def test_deep_chains(depth: int, n_features: int) -> None:
    """The fast form has a bit for each of 31 levels; triples of many features take several operations."""
    ensemble = random_chain(1, depth, n_features)
    assert_same(ensemble, random_rows(1, ensemble, 40))


@pytest.mark.parametrize("n_features", [30, 60, 300])
def test_more_pairs_than_shared_memory_holds(n_features: int) -> None:
    ensemble = random_ensemble(0, n_trees=40, n_features=n_features, max_leaves=60)
    assert_same(ensemble, random_rows(0, ensemble, 300))


def test_batches_do_not_matter() -> None:
    ensemble = random_ensemble(
        3, n_trees=20, n_features=12, n_outputs=3, max_leaves=40, shapes=("random", "perfect")
    )
    rows = random_rows(3, ensemble, 5_000)
    plan = plan_of(ensemble, "single")
    whole = on_gpu(plan, rows, ensemble)
    with pytest.raises(_cuda.CudaMemoryError, match="raise memory_limit") as refused:
        on_gpu(plan, rows, ensemble, 1 << 12)
    smallest = int(re.search(r"needs (\d+) bytes", str(refused.value))[1])
    for ours, expected in zip(on_gpu(plan, rows, ensemble, smallest), whole):
        assert (ours == expected).all()
    of_triples = plan_of(ensemble, "single", order=3)
    several, once = (triples_on_gpu(of_triples, rows, ensemble, limit) for limit in (20 * smallest, 0))
    for ours, expected in zip(several, once):
        assert (ours == expected).all()


def test_arrays_on_the_device() -> None:
    cupy = pytest.importorskip("cupy")
    ensemble = random_ensemble(4, n_trees=20, n_features=12, n_outputs=3, max_leaves=40)
    rows = random_rows(4, ensemble, 1_000)
    plan = plan_of(ensemble, "single")
    expected = on_gpu(plan, rows, ensemble)
    X = cupy.asarray(rows)
    results = [cupy.full(array.shape, cupy.nan) for array in expected[:3]]
    view = _cuda.DeviceArray(X.data.ptr, X.dtype == np.float32, len(X), *X.strides)
    stream = cupy.cuda.Stream()
    stream.wait_event(cupy.cuda.get_current_stream().record())
    values, matrices, pairs = (array.data.ptr for array in results)
    _cuda.CudaPlan(plan, 0).explain_device(
        view, np.nan, True, np.nan, values, False, None, 0, stream.ptr, matrices, pairs
    )
    stream.synchronize()
    for ours, array in zip(results, expected):
        assert (cupy.asnumpy(ours) == array).all()
    of_triples = plan_of(ensemble, "single", order=3)
    both = triples_on_gpu(of_triples, rows, ensemble)
    results = [cupy.full(array.shape, cupy.nan) for array in both]
    stream.wait_event(cupy.cuda.get_current_stream().record())
    values, triples = (array.data.ptr for array in results)
    _cuda.CudaPlan(of_triples, 0).explain_device(
        view, np.nan, True, np.nan, values, False, None, 0, stream.ptr, triples=triples
    )
    stream.synchronize()
    for ours, array in zip(results, both):
        assert (cupy.asnumpy(ours) == array).all()


def test_refused() -> None:
    ensemble = random_ensemble(0)
    rows = random_rows(0, ensemble, 3)
    values = np.empty((3, 1, ensemble.n_features))
    plan = _core.Plan(attributes_of(ensemble), "single")
    with pytest.raises(ValueError, match="not compiled for"):
        _cuda.CudaPlan(plan, 0).explain(
            rows, values, None, None, 0, np.empty((*values.shape, values.shape[2]))
        )
    for order in (2, 3):
        with pytest.raises(ValueError, match="gputreeshap"):
            _cuda.CudaPlan(plan_of(ensemble, "single", order=order), 0, "gputreeshap")
    pairs = plan_of(ensemble, "single")
    with pytest.raises(ValueError, match="the plan was not compiled for triples"):
        _cuda.CudaPlan(pairs, 0).explain(rows, values, None, None, 0, triples=values)
    plan = plan_of(ensemble, "single", order=3)
    matrices, of_pairs = np.empty((*values.shape, values.shape[2])), np.empty((3, 1, len(plan.pairs)))
    for part in ({"matrices": matrices}, {"pairs": of_pairs}):
        with pytest.raises(ValueError, match="on a GPU, pairs and matrices need a plan of order 2"):
            _cuda.CudaPlan(plan, 0).explain(rows, values, None, None, 0, **part)


def test_refused_results_of_rows_on_the_device() -> None:
    ensemble = random_ensemble(0)
    cuda_plan = _cuda.CudaPlan(_core.Plan(attributes_of(ensemble), "single"), 0)
    no_rows = _cuda.DeviceArray(0, True, 0, 4 * ensemble.n_features, 4)

    def explain(gap: Any, **addresses: int) -> None:
        cuda_plan.explain_device(no_rows, np.nan, True, np.nan, 0, True, gap, 0, 0, **addresses)

    for gap in (np.zeros(1, np.float32), np.zeros(1, ">f8"), [0.0]):
        with pytest.raises(TypeError, match="gap must be a float64 array"):
            explain(gap)
    for gap in (np.zeros(0), np.zeros(2), np.zeros((1, 1))):
        with pytest.raises(ValueError, match="gap has a wrong shape"):
            explain(gap)
    for name in ("matrices", "pairs", "triples"):
        with pytest.raises(ValueError, match="the plan was not compiled for"):
            explain(None, **{name: 16})
    with pytest.raises(ValueError, match="n_rows"):
        _cuda.DeviceArray(0, True, -1, 4, 4)


# As users see them


@pytest.fixture(scope="module", params=["regressor", "multiclass", "binary"])
def case(request: pytest.FixtureRequest) -> tuple[Any, np.ndarray, dict[str, Any]]:
    if request.param == "regressor":
        X, y = load_diabetes(return_X_y=True)
        return RandomForestRegressor(20, random_state=0).fit(X, y), X, {}
    X, y = load_iris(return_X_y=True)
    options = {}
    if request.param == "binary":
        y, options = y == 1, {"outputs": "all"}
    return RandomForestClassifier(20, random_state=0).fit(X, y), X, options


REQUESTS: list[dict[str, Any]] = [
    *({"interactions": pairs} for pairs in ("occurring", 4, [(3, 0), (1, 2)])),
    *({"interactions": triples, "order": 3} for triples in ("occurring", 4, [(3, 0, 1), (1, 2, 3)])),
]


@pytest.mark.parametrize("index", INDICES)
@pytest.mark.parametrize("asked", REQUESTS, ids=str)
def test_explanations_are_those_of_the_cpu(case: Any, asked: Any, index: str) -> None:
    if "order" in asked and index == "STII":
        with pytest.raises(ValueError, match="order=3 has index 'SII' or 'BII'"):
            TreeExplainer(case[0], device="cuda").explain_interactions(case[1], index=index, **asked)
        return
    model, X, options = case
    expected, explanation = (
        TreeExplainer(model, device=device, precision="double", **options).explain_interactions(
            X, index=index, **asked
        )
        for device in ("cpu", "cuda")
    )
    assert explanation.device == "cuda:0" and explanation.interaction_names == expected.interaction_names
    unit = np.abs(expected.values).max()
    np.testing.assert_allclose(explanation.values, expected.values, rtol=0, atol=1e-10 * unit)
    assert (explanation.additivity_error is None) == (index == "BII")


def test_shap_interaction_values_are_those_of_the_cpu(case: Any) -> None:
    model, X, options = case
    expected, matrices = (
        TreeExplainer(model, device=device, precision="double", **options).shap_interaction_values(X)
        for device in ("cpu", "cuda")
    )
    np.testing.assert_allclose(matrices, expected, rtol=0, atol=1e-10 * np.abs(expected).max())


def test_banzhaf_values(case: Any) -> None:
    model, X, options = case
    expected, explanation = (
        TreeExplainer(model, device=device, precision="double", **options).explain(X, index="BV").values
        for device in ("cpu", "cuda")
    )
    np.testing.assert_allclose(explanation, expected, rtol=0, atol=1e-10 * np.abs(expected).max())


@pytest.mark.parametrize("library", ["cupy", "torch"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("asked", REQUESTS, ids=str)
def test_arrays_of_other_libraries(case: Any, library: str, dtype: type, asked: Any) -> None:
    namespace = pytest.importorskip(library)
    model, X, options = case
    X = X.astype(dtype)
    explainer = TreeExplainer(model, device="cuda", **options)
    expected = explainer.explain_interactions(X, **asked)
    on_gpu = namespace.asarray(X, device="cuda") if library == "torch" else namespace.asarray(X)
    explanation = explainer.explain_interactions(on_gpu, **asked)
    assert type(explanation.values) is type(on_gpu)
    values = explanation.values.cpu().numpy() if library == "torch" else namespace.asnumpy(explanation.values)
    assert values.dtype == dtype
    np.testing.assert_array_equal(values, expected.values)
    if asked == {"interactions": "occurring"}:
        matrices = explainer.shap_interaction_values(on_gpu)
        assert type(matrices) is type(on_gpu)
        on_host = matrices.cpu().numpy() if library == "torch" else namespace.asnumpy(matrices)
        np.testing.assert_array_equal(on_host, explainer.shap_interaction_values(X))


def test_memory_limit(case: Any) -> None:
    model, X, options = case
    for order in (2, 3):
        full_explanation, small = (
            TreeExplainer(model, device="cuda", memory_limit=limit, **options).explain_interactions(
                X, interactions=3, order=order
            )
            for limit in (None, "2GB")
        )
        np.testing.assert_array_equal(small.values, full_explanation.values)


def test_transformer(case: Any) -> None:
    model, X, options = case
    expected, values = (
        ShapInteractionTransformer.from_fitted(model, device=device, **options).transform(X)
        for device in ("cpu", "cuda")
    )
    np.testing.assert_allclose(values, expected, rtol=0, atol=1e-5 * np.abs(expected).max())
