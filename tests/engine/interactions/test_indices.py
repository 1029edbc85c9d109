"""Orders one and three of every index, errors of arguments, and all orders against shapiq."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
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
from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor

from skshapgpu import TreeExplainer, _core, reference
from skshapgpu.adapters.ensemble import Ensemble, attributes_of
from skshapgpu.reference import Index

X, Y = load_diabetes(return_X_y=True)
N_ROWS = 12

#: Largest error of each precision, relative to the leaves.
TOLERANCE = {"single": 5e-6, "double": 1e-10}


def nodes_of(plan: _core.Plan) -> list[int]:
    return [group["n_nodes"] for group in plan.info()["groups"]]


def values_of(plan: _core.Plan, ensemble: Ensemble, rows: np.ndarray) -> np.ndarray:
    values = np.full((len(rows), ensemble.n_outputs, ensemble.n_features), np.nan)
    plan.explain(rows, values, None, 1)
    return values


@given(options=ensemble_options())
def test_values_of_order_one(options: dict) -> None:
    """Order one uses a different walk from the interactions: the walk with fused subtrees."""
    ensemble = random_ensemble(**options)
    rows = random_rows(options["seed"], ensemble, 70)
    expected = reference.path_dependent(ensemble, rows, index="BV").values
    unit = leaf_scale(ensemble)[:, np.newaxis]
    for precision, tolerance in TOLERANCE.items():
        shapley, taylor, banzhaf = (
            values_of(_core.Plan(attributes_of(ensemble), precision, 1, index), ensemble, rows)
            for index in ("SII", "STII", "BII")
        )
        assert (np.abs(banzhaf - expected) <= tolerance * unit).all()
        assert (taylor == shapley).all()


def test_banzhaf_values_need_one_node() -> None:
    ensemble = random_ensemble(0, n_features=9, n_trees=6, max_leaves=60, shapes=("random", "chain"))
    assert nodes_of(_core.Plan(attributes_of(ensemble), "double", 2, "BII")) == [1]
    assert max(nodes_of(_core.Plan(attributes_of(ensemble), "double", 2, "STII"))) > 1


# Order three


@pytest.fixture(scope="session", params=["cpu", "cuda"])
def device(request: pytest.FixtureRequest) -> str:
    if request.param == "cuda":
        request.getfixturevalue("gpu")
    return request.param


def triples_of(plan: _core.Plan, ensemble: Ensemble, rows: np.ndarray, device: str = "cpu") -> np.ndarray:
    values = np.full((len(rows), ensemble.n_outputs, ensemble.n_features), np.nan)
    triples = np.full((*values.shape[:2], len(plan.triples)), np.nan)
    if device == "cpu":
        plan.explain(rows, values, None, 1, triples=triples)
        return triples
    from skshapgpu import _cuda

    _cuda.CudaPlan(plan, 0).explain(rows, values, None, None, 0, triples=triples)
    expected = values_of(plan, ensemble, rows)
    tolerance = TOLERANCE[plan.info()["precision"]] * leaf_scale(ensemble)
    assert (np.abs(values - expected) <= tolerance[:, np.newaxis]).all()
    return triples


def assert_triples(ensemble: Ensemble, rows: np.ndarray, index: Index, device: str) -> None:
    """Check triples against the definition; on the CPU, all other results against a plan of order two."""
    expected, _, features = reference.path_dependent(ensemble, rows, index=index, order=3)
    unit = leaf_scale(ensemble)[:, np.newaxis]
    for precision, tolerance in TOLERANCE.items():
        plan = _core.Plan(attributes_of(ensemble), precision, 3, index)
        assert plan.triples.dtype == np.int32 and plan.triples.shape[1] == 3
        listed = list(map(tuple, plan.triples))
        assert listed == sorted(set(listed)) and (np.diff(plan.triples) > 0).all()
        on_a_path = np.array([tuple(triple) in set(listed) for triple in features], bool)
        assert on_a_path.sum() == len(listed)
        result = triples_of(plan, ensemble, rows, device)
        assert (np.abs(result - expected[..., on_a_path]) <= tolerance * unit).all()
        assert (np.abs(expected[..., ~on_a_path]) <= 1e-13 * unit).all()
        if device != "cpu":
            continue
        pairs = _core.Plan(attributes_of(ensemble), precision, 2, index)
        assert (plan.pairs == pairs.pairs).all() and len(pairs.triples) == 0
        for one, other in zip(all_of(plan, ensemble, rows), all_of(pairs, ensemble, rows)):
            assert (one == other).all()


def all_of(plan: _core.Plan, ensemble: Ensemble, rows: np.ndarray) -> list[np.ndarray]:
    """Return values, margins, matrices and pairs."""
    n = ensemble.n_features
    shape = len(rows), ensemble.n_outputs
    values, margin, matrices, pairs = (
        np.full((*shape, *more), np.nan) for more in ((n,), (), (n, n), (len(plan.pairs),))
    )
    plan.explain(rows, values, margin, 1, matrices, pairs)
    return [values, margin, matrices, pairs]


shapley_and_banzhaf = pytest.mark.parametrize("index", ["SII", "BII"])


@shapley_and_banzhaf
@given(options=ensemble_options())
def test_triples_of_random_ensembles(index: Index, device: str, options: dict) -> None:
    ensemble = random_ensemble(**options)
    assert_triples(ensemble, random_rows(options["seed"], ensemble, 70), index, device)


@shapley_and_banzhaf
@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize("n_features", [6, 10])
def test_triples_of_larger_ensembles(n_features: int, vector: bool, index: Index, device: str) -> None:
    for seed in range(3):
        ensemble = random_ensemble(
            seed,
            n_trees=4,
            n_features=n_features,
            n_outputs=2,
            max_leaves=60,
            vector=vector,
            categorical=True,
        )
        assert_triples(ensemble, random_rows(seed, ensemble, 130), index, device)


@shapley_and_banzhaf
@pytest.mark.parametrize("depth, n_features", [(12, 12), (40, 5), (200, 3)])
def test_triples_of_chains(depth: int, n_features: int, index: Index, device: str) -> None:
    ensemble = random_chain(0, depth, n_features)
    assert_triples(ensemble, random_rows(0, ensemble, 20), index, device)


@shapley_and_banzhaf
@pytest.mark.parametrize("vector", [False, True])
def test_triples_with_any_number_of_quadrature_nodes(vector: bool, index: Index, device: str) -> None:
    """More nodes than kernels of fixed K have, and more features than the definition can handle."""
    chain = random_chain(0, 20, 20)
    rows = random_rows(0, chain, 4)
    expected = [path_interactions(chain, row, index, 3) for row in rows]
    if vector:
        weights = np.array([1.0, -2.0, 0.0])
        state = attributes_of(chain) | {
            "value": chain.value * weights,
            "tree_output": np.array([-1], np.int32),
            "intercept": np.zeros(3),
        }
        chain = Ensemble(**state)
    unit = leaf_scale(chain)
    for precision, tolerance in TOLERANCE.items():
        plan = _core.Plan(attributes_of(chain), precision, 3, index)
        assert nodes_of(plan) == ([10] if index == "SII" else [1])
        result = triples_of(plan, chain, rows, device)
        assert len(plan.triples) == 20 * 19 * 18 // 6
        for row, by_triple in zip(result, expected):
            one = np.array([by_triple[tuple(triple)] for triple in plan.triples.tolist()])
            for k, output in enumerate(row):
                assert (np.abs(output - one * (weights[k] if vector else 1)) <= tolerance * unit[k]).all()


def test_triples_add_up_over_trees_and_threads(device: str) -> None:
    """More trees than a chunk holds, more rows than a tile holds, and one output per tree."""
    ensemble = random_ensemble(1, n_trees=150, n_features=8, n_outputs=3, max_leaves=30)
    rows = random_rows(2, ensemble, 700)
    plan = _core.Plan(attributes_of(ensemble), "double", 3)
    assert plan.info()["n_chunks"] > 3
    result = triples_of(plan, ensemble, rows, device)
    expected, _, features = reference.path_dependent(ensemble, rows[::50], index="SII", order=3)
    assert (plan.triples == features).all()
    assert (np.abs(result[::50] - expected) <= 1e-10 * leaf_scale(ensemble)[:, np.newaxis]).all()

    if device != "cpu":
        return
    values = np.empty((700, 3, 8), np.float32)
    triples = np.full((700, 3, len(features)), np.nan, np.float32)
    plan.explain(rows, values, None, 4, triples=triples)
    assert (triples == result.astype(np.float32)).all()


def test_triples_take_scratch() -> None:
    ensemble = random_ensemble(1, n_trees=150, n_features=8, n_outputs=3, max_leaves=30)
    plans = [_core.Plan(attributes_of(ensemble), "double", order) for order in (1, 2, 3)]
    scratch = [plan.info()["scratch_bytes_per_thread"] for plan in plans]
    assert scratch[0] < scratch[1] < scratch[2]
    # The sums of a tile, which has at least 64 rows, and the sums of a block.
    assert scratch[2] - scratch[1] >= len(plans[2].triples) * 64 * 8 * (3 + 1)


def test_refused() -> None:
    ensemble = attributes_of(random_ensemble(0))
    for order in (0, 4, -1):
        with pytest.raises(ValueError, match=f"order must be 1, 2 or 3, not {order}"):
            _core.Plan(ensemble, "double", order)
    with pytest.raises(ValueError, match="'STII' is of order 2 at most, not 3"):
        _core.Plan(ensemble, "double", 3, "STII")
    rows, values = np.zeros((2, 5)), np.empty((2, 1, 5))
    plan = _core.Plan(ensemble, "double", 3)
    n = len(plan.triples)
    for order in (1, 2):
        with pytest.raises(ValueError, match="the plan was not compiled for triples"):
            _core.Plan(ensemble, "double", order).explain(rows, values, None, 1, triples=np.empty((2, 1, n)))
    with pytest.raises(ValueError, match="triples has a wrong shape"):
        plan.explain(rows, values, None, 1, triples=np.empty((2, 1, n + 1)))
    with pytest.raises(TypeError, match="triples must be an array of the dtype of values"):
        plan.explain(rows, values, None, 1, triples=np.empty((2, 1, n), np.float32))
    with pytest.raises(TypeError, match="triples must be an array"):
        plan.explain(rows, values, None, 1, triples=[[[0.0] * n]] * 2)
    with pytest.raises(ValueError, match="index must be 'SII', 'STII' or 'BII', not 'fsii'"):
        _core.Plan(ensemble, "double", 2, "fsii")
    for wrong in ({"order": "2"}, {"order": 1.5}, {"index": None}, {"index": 1}):
        with pytest.raises(TypeError):
            _core.Plan(ensemble, "double", **wrong)


# shapiq: its indices are whole, ours of pairs are halves


@pytest.fixture(params=["forest", "xgboost"])
def model(request: pytest.FixtureRequest) -> Any:
    if request.param == "forest":
        return RandomForestRegressor(5, max_depth=6, random_state=0).fit(X, Y)
    xgboost = pytest.importorskip("xgboost")
    # shapiq adds a base score to the leaves in single precision, unless it is 0.
    return xgboost.XGBRegressor(n_estimators=8, max_depth=5, base_score=0, n_jobs=1).fit(X, Y)


def of_shapiq(model: Any, index: str, order: int) -> list[Any]:
    """Compute shapiq's interactions of the first rows up to an order; Shapley-Taylor from Moebius values."""
    shapiq = pytest.importorskip("shapiq")
    from shapiq.game_theory.moebius_converter import MoebiusConverter

    rows = X[:N_ROWS].astype(np.float32)
    if index != "STII":
        explainer = shapiq.TreeExplainer(model, index=index, max_order=order)
        return [explainer.explain(row) for row in rows]
    explainer = shapiq.TreeExplainer(model, index="Moebius", max_order=model.max_depth)
    return [MoebiusConverter(explainer.explain(row))("STII", order) for row in rows]


def of_plan(model: Any, index: str, order: int) -> tuple[np.ndarray, ...]:
    """Compute values and matrices of the first rows."""
    ensemble = TreeExplainer(model, device="cpu")._adapted.ensemble
    plan = _core.Plan(attributes_of(ensemble), "double", order, index)
    rows = X[:N_ROWS].astype(np.float32)
    values, matrices = np.empty((N_ROWS, 1, 10)), np.empty((N_ROWS, 1, 10, 10))
    plan.explain(rows, values, None, 1, matrices)
    return values[:, 0], matrices[:, 0]


def assert_close(actual: list[float], expected: list[float]) -> None:
    assert len(actual) > 100
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-10 * np.abs(Y).max())


@pytest.mark.parametrize("index", ["SII", "STII", "BII"])
def test_pairs_of_shapiq(model: Any, index: str) -> None:
    _, matrices = of_plan(model, index, 2)
    results, expected = [], []
    for matrix, theirs in zip(matrices, of_shapiq(model, index.upper(), 2)):
        for i in range(10):
            results += [2 * matrix[i, j] for j in range(i)]
            expected += [theirs[j, i] for j in range(i)]
            if index == "STII":
                results.append(matrix[i, i])
                expected.append(theirs[(i,)])
    assert_close(results, expected)


@pytest.mark.parametrize("index, theirs", [("SII", "SV"), ("STII", "SV"), ("BII", "BV")])
def test_values_of_shapiq(model: Any, index: str, theirs: str) -> None:
    values, _ = of_plan(model, index, 2)
    expected = [row[(i,)] for row in of_shapiq(model, theirs, 1) for i in range(10)]
    assert_close(list(values.ravel()), expected)


@pytest.mark.parametrize("index", ["SII", "BII"])
def test_triples_of_shapiq(model: Any, index: str) -> None:
    ensemble = TreeExplainer(model, device="cpu")._adapted.ensemble
    plan = _core.Plan(attributes_of(ensemble), "double", 3, index)
    triples = triples_of(plan, ensemble, X[:N_ROWS].astype(np.float32))[:, 0]
    results, expected = [], []
    for row, theirs in zip(triples, of_shapiq(model, index.upper(), 3)):
        ours = dict(zip(map(tuple, plan.triples.tolist()), row))
        for triple in combinations(range(10), 3):
            results.append(ours.get(triple, 0.0))
            expected.append(theirs[triple])
    assert_close(results, expected)


@each_set
def test_other_instruction_sets(isa: str) -> None:
    run_again(isa, __file__, select="(triples or order_one) and not cuda")
