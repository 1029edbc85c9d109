"""Interaction values of every index against their definition, each other, and the libraries' own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.checks import shrink_leaves
from helpers.ensembles import (
    ensemble_options,
    leaf_scale,
    path_interactions,
    random_chain,
    random_ensemble,
    random_rows,
)
from helpers.instruction_sets import each_set, run_again
from hypothesis import given
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.ensemble import (
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)

from skshapgpu import TreeExplainer, _core, reference
from skshapgpu._common.algorithms import SHAP_VALUES, Kind
from skshapgpu.adapters.ensemble import Ensemble, attributes_of
from skshapgpu.reference import Index

X, Y = load_diabetes(return_X_y=True)
IRIS = load_iris(return_X_y=True)

#: Largest error of each precision, relative to the leaves.
TOLERANCE = {"single": 5e-6, "double": 1e-10}


def explainer_of(model: Any, **options: Any) -> TreeExplainer:
    return TreeExplainer(model, device="cpu", **options)


def compute(ensemble: Ensemble, rows: np.ndarray, precision: str, index: Index) -> tuple[np.ndarray, ...]:
    """Compute values, margins, matrices and pairs with the core, and the indices of these pairs."""
    plan = _core.Plan(attributes_of(ensemble), precision, 2, index)
    shape = len(rows), ensemble.n_outputs, ensemble.n_features
    values, margin = np.full(shape, np.nan), np.full(shape[:2], np.nan)
    matrices, pairs = np.full((*shape, shape[2]), np.nan), np.full((*shape[:2], len(plan.pairs)), np.nan)
    plan.explain(rows, values, margin, 1, matrices, pairs)
    return values, margin, matrices, pairs, plan.pairs


def assert_is_definition(ensemble: Ensemble, rows: np.ndarray, index: Index) -> None:
    expected = reference.path_dependent(ensemble, rows, index=index).values
    if index == "BII":
        expected_values = reference.path_dependent(ensemble, rows, index="BV").values
    else:
        expected_values = reference.path_dependent(ensemble, rows).values
    unit = leaf_scale(ensemble)[:, np.newaxis]
    on_diagonal = np.arange(ensemble.n_features)
    for precision, tolerance in TOLERANCE.items():
        values, margin, matrices, pairs, names = compute(ensemble, rows, precision, index)
        assert (np.abs(matrices - expected) <= tolerance * unit[..., np.newaxis]).all()
        assert (np.abs(values - expected_values) <= tolerance * unit).all()
        if index == "BII":
            assert (matrices[..., on_diagonal, on_diagonal] == values).all()
        else:
            assert (np.abs(matrices.sum(axis=3) - values) <= 1e-12 * unit).all()
        assert (matrices == matrices.swapaxes(2, 3)).all()
        np.testing.assert_allclose(margin, ensemble.margin(rows), rtol=1e-9, atol=1e-12)
        assert (pairs == matrices[..., names[:, 0], names[:, 1]]).all()
        apart = np.ones((ensemble.n_features,) * 2, bool)  # on no path together
        apart[names[:, 0], names[:, 1]] = apart[names[:, 1], names[:, 0]] = False
        np.fill_diagonal(apart, False)
        assert (matrices[..., apart] == 0).all()


every_index = pytest.mark.parametrize("index", ["SII", "STII", "BII"])


@every_index
@given(options=ensemble_options())
def test_random_ensembles(index: Index, options: dict) -> None:
    ensemble = random_ensemble(**options)
    assert_is_definition(ensemble, random_rows(options["seed"], ensemble, 70), index)


@every_index
@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize("n_features", [6, 10])
def test_larger_ensembles(n_features: int, vector: bool, index: Index) -> None:
    for seed in range(4):
        ensemble = random_ensemble(
            seed,
            n_trees=4,
            n_features=n_features,
            n_outputs=2,
            max_leaves=60,
            vector=vector,
            categorical=True,
        )
        assert_is_definition(ensemble, random_rows(seed, ensemble, 130), index)


@every_index
@pytest.mark.parametrize("depth, n_features", [(12, 12), (40, 5), (200, 3)])
def test_chains(depth: int, n_features: int, index: Index) -> None:
    ensemble = random_chain(0, depth, n_features)
    assert_is_definition(ensemble, random_rows(0, ensemble, 20), index)


@every_index
@pytest.mark.parametrize("n_features", [17, 24])
def test_any_number_of_quadrature_nodes(n_features: int, index: Index) -> None:
    """More nodes than kernels of fixed K have, and more features than the definition can handle."""
    ensemble = random_chain(0, n_features, n_features)
    rows = random_rows(0, ensemble, 30)
    _, _, double, _, _ = compute(ensemble, rows, "double", index)
    _, _, single, _, _ = compute(ensemble, rows, "single", index)
    expected = np.zeros_like(double)
    for row, matrix in zip(rows, expected[:, 0]):
        for (i, j), value in path_interactions(ensemble, row, index, 2).items():
            matrix[i, j] = matrix[j, i] = value / 2
    unit = leaf_scale(ensemble).max()
    off = ~np.eye(n_features, dtype=bool)
    assert (np.abs(double - expected)[..., off] <= TOLERANCE["double"] * unit).all()
    assert (np.abs(single - expected)[..., off] <= TOLERANCE["single"] * unit).all()


def test_threads_chunks_and_memory() -> None:
    model = RandomForestRegressor(20, random_state=0).fit(X, Y)
    expected = explainer_of(model).shap_interaction_values(X)
    assert expected.shape == (442, 10, 10) and expected.dtype == np.float64
    assert (explainer_of(model, n_jobs=3).shap_interaction_values(X) == expected).all()
    limit = expected.nbytes + (1 << 20)
    assert (explainer_of(model, memory_limit=limit).shap_interaction_values(X) == expected).all()
    with pytest.raises(MemoryError, match=r"10 x 10 features.*raise memory_limit"):
        explainer_of(model, memory_limit=expected.nbytes).shap_interaction_values(X)
    assert explainer_of(model).shap_interaction_values(X.astype(np.float32)).dtype == np.float32
    assert explainer_of(model).shap_interaction_values(X[:0]).shape == (0, 10, 10)


def test_outputs() -> None:
    iris = RandomForestClassifier(10, random_state=0).fit(*IRIS)
    matrices = explainer_of(iris).shap_interaction_values(IRIS[0])
    assert matrices.shape == (150, 4, 4, 3)
    np.testing.assert_allclose(
        matrices.sum(axis=2), explainer_of(iris).shap_values(IRIS[0]), rtol=0, atol=1e-6
    )
    rows, y = load_breast_cancer(return_X_y=True)
    binary = RandomForestClassifier(10, random_state=0).fit(rows, y)
    both = explainer_of(binary, outputs="all").shap_interaction_values(rows)
    one = explainer_of(binary).shap_interaction_values(rows)
    assert (both[..., 1] == one).all() and (both[..., 0] == -one).all()


def test_refused() -> None:
    model = RandomForestRegressor(2, random_state=0).fit(X, Y)
    with pytest.raises(ValueError, match="9 features"):
        explainer_of(model).shap_interaction_values(X[:, :9])
    explainer = explainer_of(model)
    values, matrices = np.empty((1, 1, 10)), np.empty((1, 1, 10, 10))
    with pytest.raises(ValueError, match="not compiled for interactions"):
        explainer._compiled.of(SHAP_VALUES).plan().explain(X[:1], values, None, 1, matrices)
    plan = explainer._compiled.of(Kind(2, "SII")).plan()
    with pytest.raises(ValueError, match="matrices has a wrong shape"):
        plan.explain(X[:1], values, None, 1, matrices[0])
    with pytest.raises(TypeError, match="of the dtype of values"):
        plan.explain(X[:1], values, None, 1, matrices.astype(np.float32))
    shrink_leaves(explainer, 1e-9)
    with pytest.raises(RuntimeError, match="additivity check failed at row 0"):
        explainer.shap_interaction_values(X)


# The libraries' own


def assert_close(actual: np.ndarray, expected: np.ndarray, tolerance: float) -> None:
    assert actual.shape == expected.shape
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * np.abs(expected).max())


@pytest.mark.parametrize("n_classes", [0, 3])
@pytest.mark.parametrize("depth", [3, 6, 9])
def test_xgboost(depth: int, n_classes: int) -> None:
    xgboost = pytest.importorskip("xgboost")
    rows, y = IRIS if n_classes else (X, Y)
    parameters = {"max_depth": depth, "nthread": 1, "eta": 0.3}
    if n_classes:
        parameters |= {"objective": "multi:softprob", "num_class": n_classes}
    booster = xgboost.train(parameters, xgboost.DMatrix(rows, y), 15)
    expected = booster.predict(xgboost.DMatrix(rows), pred_interactions=True)
    expected = np.moveaxis(expected[:, :, :-1, :-1], 1, -1) if n_classes else expected[:, :-1, :-1]
    values = explainer_of(booster).shap_interaction_values(rows.astype(np.float32))
    assert_close(values, expected, 2e-5)


def test_catboost() -> None:
    catboost = pytest.importorskip("catboost")
    model = catboost.CatBoostRegressor(iterations=20, depth=5, verbose=0, thread_count=1).fit(X, Y)
    expected = model.get_feature_importance(catboost.Pool(X), type="ShapInteractionValues", thread_count=1)
    matrices = explainer_of(model, precision="double").shap_interaction_values(X)
    assert_close(matrices, expected[:, :-1, :-1], 1e-6)


@pytest.mark.parametrize("kind", ["forest", "classifier", "boosting"])
def test_shap(kind: str) -> None:
    shap = pytest.importorskip("shap")
    rows, y = IRIS if kind == "classifier" else (X, Y)
    model = {
        "forest": RandomForestRegressor(10, max_depth=7, random_state=0),
        "classifier": RandomForestClassifier(10, random_state=0),
        "boosting": GradientBoostingRegressor(n_estimators=20, random_state=0),
    }[kind].fit(rows, y)
    rows = rows[:40]
    expected = shap.TreeExplainer(model, feature_perturbation="tree_path_dependent").shap_interaction_values(
        rows
    )
    matrices = explainer_of(model, precision="double").shap_interaction_values(rows)
    assert_close(matrices, np.asarray(expected), 1e-6)


def test_missing_values() -> None:
    rows = np.where(np.random.default_rng(0).random(X.shape) < 0.2, np.nan, X)
    model = HistGradientBoostingRegressor(max_iter=20, random_state=0).fit(rows, Y)
    explainer = explainer_of(model, precision="double")
    matrices = explainer.shap_interaction_values(rows)
    np.testing.assert_allclose(matrices.sum(axis=2), explainer.shap_values(rows), rtol=0, atol=1e-9)
    total = matrices.sum(axis=(1, 2)) + explainer.expected_value
    np.testing.assert_allclose(total, model.predict(rows), rtol=1e-9)


@each_set
def test_other_instruction_sets(isa: str) -> None:
    run_again(isa, __file__, select="ensembles or chains")
