"""Interventional interactions and Banzhaf values: the core and all families against the definition; the API.

They are computed on the CPU only.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.ensembles import (
    background_matrix,
    chain_rows,
    ensemble_options,
    hard_ensemble,
    leaf_scale,
    random_chain,
    random_ensemble,
    random_rows,
    random_weights,
)
from helpers.models import MODELS, as_trees_see_them, outputs_second
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier, RandomForestRegressor

from skshapgpu import (
    ShapInteractionDisplay,
    ShapInteractionTransformer,
    TreeExplainer,
    _core,
    explain,
    memory,
)
from skshapgpu.algorithms import Kind
from skshapgpu.devices import Devices
from skshapgpu.ensemble import Ensemble
from skshapgpu.reference import (
    Index,
    interventional_banzhaf,
    interventional_interactions,
    interventional_shap,
)

X, Y = load_diabetes(return_X_y=True)
CANCER, BENIGN = load_breast_cancer(return_X_y=True)

INDICES: tuple[Index, ...] = ("sii", "stii", "bii")

#: Largest error of each precision, relative to the leaves.
TOLERANCE = {"single": 5e-6, "double": 1e-10}

#: Bytes for what the core counts of the background: enough for all trees here.
COUNTS = 2**24


def explainer_of(model: Any, data: Any, **options: Any) -> TreeExplainer:
    return TreeExplainer(model, data, device="cpu", **options)


@pytest.fixture(scope="module")
def forest() -> RandomForestRegressor:
    return RandomForestRegressor(6, max_depth=5, random_state=0).fit(X, Y)


# The core


def plan_of(
    ensemble: Ensemble,
    background: np.ndarray,
    weights: np.ndarray | None = None,
    precision: str = "double",
    order: int = 2,
    index: str = "sii",
    count_bytes: int = COUNTS,
) -> _core.BackgroundPairsPlan:
    if weights is None:
        weights = np.full(len(background), 1 / len(background))
    attributes = {f.name: getattr(ensemble, f.name) for f in fields(ensemble)}
    return _core.BackgroundPairsPlan(attributes, precision, background, weights, order, index, count_bytes)


def compute(
    plan: _core.BackgroundPairsPlan, ensemble: Ensemble, rows: np.ndarray, n_threads: int = 1
) -> list[np.ndarray]:
    """Values, margins, matrices and pairs of the core."""
    shape = len(rows), ensemble.n_outputs
    n = ensemble.n_features
    values, margin, matrices, pairs = (
        np.full((*shape, *more), np.nan) for more in ((n,), (), (n, n), (len(plan.pairs),))
    )
    plan.explain(rows, values, margin, n_threads, matrices, pairs)
    return [values, margin, matrices, pairs]


def assert_is_the_definition(
    ensemble: Ensemble,
    rows: np.ndarray,
    background: np.ndarray,
    weights: np.ndarray | None = None,
    indices: tuple[Index, ...] = INDICES,
) -> None:
    scale = leaf_scale(ensemble)
    shapley, _ = interventional_shap(ensemble, rows, background, weights)
    banzhaf = interventional_banzhaf(ensemble, rows, background, weights)
    rounding = 1e-15 * np.abs(ensemble.intercept)
    for index in indices:
        expected = interventional_interactions(ensemble, rows, background, weights, index)
        singles = banzhaf if index == "bii" else shapley
        for precision, tolerance in TOLERANCE.items():
            allowed = tolerance * scale[:, np.newaxis]
            plan = plan_of(ensemble, background, weights, precision, 2, index)
            values, margin, matrices, pairs = compute(plan, ensemble, rows)
            assert (np.abs(values - singles) <= allowed).all(), (index, precision)
            assert (np.abs(matrices - expected) <= allowed[..., np.newaxis]).all(), (index, precision)
            assert (matrices == matrices.swapaxes(2, 3)).all()
            first, second = plan.pairs.T
            np.testing.assert_array_equal(pairs, matrices[..., first, second])
            assert (np.abs(margin - ensemble.margin(rows)) <= tolerance * scale + rounding).all()
            plan = plan_of(ensemble, background, weights, precision, 1, index)
            values = np.full(values.shape, np.nan)
            plan.explain(rows, values, None, 1)
            assert (np.abs(values - singles) <= allowed).all(), (index, precision)


@given(
    options=ensemble_options(max_used=5),
    n_background=st.sampled_from([1, 2, 3, 9]),
    weighted=st.booleans(),
    single=st.booleans(),
    index=st.sampled_from(INDICES),
)
@settings(max_examples=150)
def test_core_is_the_definition(
    options: dict[str, Any], n_background: int, weighted: bool, single: bool, index: Index
) -> None:
    """Rows at the edges of every comparison; the first background row is twice, and one of X, in it."""
    ensemble = random_ensemble(**options)
    rows = random_rows(options["seed"], ensemble, n_background + 3)
    background = rows[:n_background].copy()
    if n_background > 2:
        background[1] = background[0]
    if n_background > 3:
        background[2] = rows[-1]
    if single:
        with np.errstate(over="ignore"):
            background = background.astype(np.float32)
            rows = rows.astype(np.float32)
    weights = random_weights(options["seed"], n_background) if weighted else None
    assert_is_the_definition(ensemble, rows[-3:], background, weights, (index,))


@pytest.mark.parametrize("shape", ["random", "chain", "perfect", "oblivious", "leaf"])
@pytest.mark.parametrize("vector", [False, True])
def test_core_on_each_shape_of_trees(shape: str, vector: bool) -> None:
    for seed in range(3):
        ensemble = hard_ensemble(seed, shape, vector, n_used=7)
        rows = random_rows(seed, ensemble, 6)
        assert_is_the_definition(ensemble, rows[:2], rows[2:])


@pytest.mark.parametrize("shape", ["random", "chain", "perfect"])
def test_groups_of_many_features(shape: str) -> None:
    ensemble = random_ensemble(3, n_trees=3, n_features=10, shapes=(shape,), max_leaves=60)
    rows = random_rows(3, ensemble, 42)
    assert_is_the_definition(ensemble, rows[:2], rows[2:])


@pytest.mark.parametrize("n_background", [3, 90])
def test_paths_that_are_too_long_for_groups(n_background: int) -> None:
    """Of leaves with more than 10 features the subsets are summed up, or the background is gone through."""
    ensemble = random_chain(11, 13, 11)
    rows = chain_rows(11, ensemble, n_background + 2)
    assert_is_the_definition(ensemble, rows[:2], rows[2:], None, ("sii", "stii"))


def test_repeated_features_on_long_chains() -> None:
    for depth, n_features in ((40, 5), (60, 10)):
        ensemble = random_chain(depth, depth, n_features)
        rows = np.random.default_rng(depth).random((9, n_features))
        assert_is_the_definition(ensemble, rows[:2], rows[2:])


def test_more_rows_than_a_block_of_either() -> None:
    """Blocks and parts end somewhere in 150 rows and 4,170 background rows."""
    ensemble = random_ensemble(5, n_trees=3, n_features=4, n_used=3, max_leaves=9)
    rows = random_rows(5, ensemble, 4320)
    background, weights = rows[150:], np.random.default_rng(5).random(4170)
    assert_is_the_definition(ensemble, rows[:150], background, weights / weights.sum(), ("sii",))


def test_many_look_ups() -> None:
    """More leaves than are added up in single precision."""
    ensemble = random_ensemble(6, n_trees=90, n_features=7, n_outputs=2, max_leaves=40, shapes=("random",))
    rows = random_rows(6, ensemble, 12)
    assert_is_the_definition(ensemble, rows[:4], rows[4:], None, ("sii",))


@pytest.mark.parametrize("index", INDICES)
@pytest.mark.parametrize("depth", [9, 11, 12, 20, 64])
def test_long_paths(depth: int, index: str) -> None:
    """Of a chain, each leaf by its game of the features that x or a background row alone satisfies."""
    ensemble = random_chain(depth, depth, depth)
    rows = chain_rows(depth, ensemble, 164)
    half = np.where(np.eye(depth, dtype=bool), 1.0, 0.5)
    for x, background in ((rows[:4], rows[4:8]), (rows[:2], rows[4:])):
        weights = random_weights(depth, len(background))
        whole = [background_matrix(ensemble, row, background, weights, index) for row in x]
        expected = half * np.array(whole)
        singles = np.diagonal(expected, axis1=1, axis2=2)
        assert np.abs(expected).max() > 1e-3 * leaf_scale(ensemble)[0]
        for precision, tolerance in TOLERANCE.items():
            plan = plan_of(ensemble, background, weights, precision, 2, index)
            values, _, matrices, _ = compute(plan, ensemble, x)
            allowed = tolerance * leaf_scale(ensemble)[0]
            assert np.abs(values[:, 0] - singles).max() <= allowed
            off_diagonal = ~np.eye(depth, dtype=bool)
            assert np.abs(matrices[:, 0] - expected)[:, off_diagonal].max() <= allowed
            if index != "bii":
                assert np.abs(matrices.sum(axis=3) - values).max() <= allowed


def test_paths_that_are_too_long_are_refused() -> None:
    ensemble = random_chain(0, 65, 65)
    with pytest.raises(
        ValueError, match="a path has 65 different features; background data allow for at most 64"
    ):
        plan_of(ensemble, np.zeros((1, 65)))


@pytest.mark.parametrize("index", INDICES)
def test_a_row_beside_itself_has_zeros(index: str) -> None:
    ensemble = random_ensemble(6, n_trees=4, n_features=10, n_outputs=2, max_leaves=60)
    for row in random_rows(6, ensemble, 8)[:, np.newaxis]:
        for count_bytes in (COUNTS, 0):
            plan = plan_of(ensemble, row, index=index, count_bytes=count_bytes)
            values, _, matrices, pairs = compute(plan, ensemble, row)
            assert (values == 0).all() and (matrices == 0).all() and (pairs == 0).all()


def test_features_that_change_nothing_have_zeros() -> None:
    """Of a column that is the same in X and in the background, value and pairs are zeros to the bit."""
    ensemble = random_ensemble(8, n_trees=6, n_features=6, max_leaves=40, shapes=("random",))
    rows = random_rows(8, ensemble, 40)
    rows[:, 2] = 0.3
    plan = plan_of(ensemble, rows[20:])
    assert (plan.pairs == 2).any()
    values, _, matrices, _ = compute(plan, ensemble, rows[:20])
    assert np.abs(values).max() > 0
    assert (values[..., 2] == 0).all() and (matrices[..., 2] == 0).all()


@pytest.mark.parametrize("n_rows, n_trees", [(0, 3), (2, 0)])
def test_no_rows_and_no_trees(n_rows: int, n_trees: int) -> None:
    ensemble = random_ensemble(7, n_trees=n_trees)
    plan = plan_of(ensemble, np.zeros((2, 5)))
    values, margin, matrices, _ = compute(plan, ensemble, np.zeros((n_rows, 5)))
    assert values.shape == (n_rows, 1, 5) and (values == 0).all() and (matrices == 0).all()
    np.testing.assert_allclose(margin, ensemble.margin(np.zeros((n_rows, 5))), rtol=1e-14)


@pytest.mark.parametrize("precision", TOLERANCE)
def test_threads_and_neighbours_change_no_bit(precision: str) -> None:
    ensemble = random_ensemble(8, n_trees=20, n_features=11, n_outputs=2, max_leaves=70, vector=True)
    rows = random_rows(8, ensemble, 330)
    plan = plan_of(ensemble, rows[300:], precision=precision)
    expected = compute(plan, ensemble, rows[:300])
    for n_threads in (2, 3, 7):
        for one, other in zip(compute(plan, ensemble, rows[:300], n_threads), expected):
            np.testing.assert_array_equal(one, other)
    for part in (slice(0, 1), slice(17, 90), slice(299, 300), slice(None, None, -1)):
        for one, other in zip(compute(plan, ensemble, rows[:300][part]), expected):
            np.testing.assert_array_equal(one, other[part])


@pytest.mark.parametrize("n_background", [5, 200])
def test_counting_anew_changes_no_bit(n_background: int) -> None:
    """Whatever part of the counts finds room."""
    ensemble = random_ensemble(9, n_trees=20, n_features=11, max_leaves=70)
    rows = random_rows(9, ensemble, 100 + n_background)
    background = rows[100:]
    expected = compute(plan_of(ensemble, background), ensemble, rows[:100])
    kept = plan_of(ensemble, background).info()
    for count_bytes in (0, 3000):
        plan = plan_of(ensemble, background, count_bytes=count_bytes)
        for n_threads in (1, 2):
            for one, other in zip(compute(plan, ensemble, rows[:100], n_threads), expected):
                np.testing.assert_array_equal(one, other)
        assert plan.info()["scratch_bytes_per_thread"] > kept["scratch_bytes_per_thread"]


def test_info_and_arguments() -> None:
    ensemble = random_ensemble(9, n_trees=4, shapes=("random",))
    info = plan_of(ensemble, np.zeros((3, 5))).info()
    assert info["n_trees"] == 4 and info["n_leaves"] == ensemble.n_leaves
    assert info["bytes"] > 0 and info["scratch_bytes_per_thread"] > 0
    attributes = {f.name: getattr(ensemble, f.name) for f in fields(ensemble)}
    pairs = _core.Plan(attributes, "double", 2).pairs
    np.testing.assert_array_equal(plan_of(ensemble, np.zeros((3, 5))).pairs, pairs)
    assert plan_of(ensemble, np.zeros((3, 5)), order=1).pairs.shape == (0, 2)
    for order in (0, 3):
        with pytest.raises(ValueError, match=f"order must be 1 or 2, not {order}"):
            plan_of(ensemble, np.zeros((3, 5)), order=order)
    with pytest.raises(ValueError, match="index must be 'sii', 'stii' or 'bii', not 'sv'"):
        plan_of(ensemble, np.zeros((3, 5)), index="sv")
    with pytest.raises(ValueError, match="background must have shape"):
        plan_of(ensemble, np.zeros((0, 5)), np.zeros(0))
    with pytest.raises(ValueError, match="the plan was not compiled for interactions"):
        values = np.empty((2, 1, 5))
        plan_of(ensemble, np.zeros((3, 5)), order=1).explain(
            np.zeros((2, 5)), values, None, 1, pairs=np.empty((2, 1, 0))
        )
    with pytest.raises(ValueError, match="pairs has a wrong shape"):
        plan_of(ensemble, np.zeros((3, 5))).explain(
            np.zeros((2, 5)), values, None, 1, pairs=np.empty((2, 1, 99))
        )


# Models


@pytest.fixture(scope="module", params=MODELS)
def case(request: pytest.FixtureRequest) -> tuple[Any, np.ndarray]:
    return MODELS[request.param]()


@pytest.mark.parametrize("index", INDICES)
def test_families(case: tuple[Any, np.ndarray], index: Index) -> None:
    model, rows = case
    rows, background = rows[:3], rows[20:30]
    weights = [3, 0, 1, 2, 0.5, 0.5, 1, 1, 0, 4] if index == "sii" else None
    ensemble, encoded = as_trees_see_them(model, rows)
    behind = as_trees_see_them(model, background)[1]
    expected = interventional_interactions(ensemble, encoded, behind, weights, index)
    for precision, tolerance in TOLERANCE.items():
        allowed = tolerance * leaf_scale(ensemble)[:, np.newaxis]
        explainer = explainer_of(model, background, data_weights=weights, precision=precision)
        found = outputs_second(explainer.explain_interactions(rows, index=index).values, 3)
        assert (np.abs(found - expected) <= allowed[..., np.newaxis]).all()
        singles = outputs_second(explainer.explain(rows, index="bv" if index == "bii" else "sv").values, 2)
        if index == "bii":
            banzhaf = interventional_banzhaf(ensemble, encoded, behind, weights)
            assert (np.abs(singles - banzhaf) <= allowed).all()
        else:
            assert (np.abs(found.sum(axis=3) - singles) <= 10 * allowed).all()


@pytest.mark.parametrize("index", INDICES)
@pytest.mark.parametrize("library", ["forest", "xgboost"])
def test_shapiq(library: str, index: str) -> None:
    """Its indices are whole, ours of pairs are halves."""
    shapiq_trees = pytest.importorskip("shapiq.tree.interventional")
    rows = X.astype(np.float32)
    if library == "forest":
        model: Any = RandomForestRegressor(5, max_depth=6, random_state=0).fit(rows, Y)
    else:
        xgboost = pytest.importorskip("xgboost")
        model = xgboost.XGBRegressor(n_estimators=8, max_depth=5, base_score=0, n_jobs=1).fit(rows, Y)
    theirs = shapiq_trees.InterventionalTreeSHAPIQ(model, rows[:60], max_order=2, index=index.upper())
    explainer = explainer_of(model, rows[:60], precision="double")
    ours = explainer.explain_interactions(rows[60:80].astype(float), index=index).values
    found, expected = [], []
    for matrix, row in zip(ours, rows[60:80]):
        values = theirs.explain(row)
        for i in range(10):
            found += [2 * matrix[i, j] for j in range(i)]
            expected += [values[j, i] for j in range(i)]
    assert np.abs(expected).max() > 1e-3 * np.abs(Y).max()
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10 * np.abs(Y).max())


@pytest.mark.parametrize("isa", ["avx512", "avx2", "baseline"])
def test_other_instruction_sets(isa: str) -> None:
    if isa not in _core.instruction_sets() or isa == _core.instruction_set():
        pytest.skip(f"this processor has no {isa}, or this very run uses it")
    tests = ["-m", "pytest", "-q", "-p", "no:cacheprovider", __file__, "-k", "core or paths or zeros"]
    result = subprocess.run(
        [sys.executable, *tests], env=os.environ | {"SKSHAPGPU_ISA": isa}, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stdout[-8000:]


# The public API


def both_classes() -> tuple[TreeExplainer, np.ndarray]:
    model = GradientBoostingClassifier(n_estimators=4, random_state=0).fit(CANCER, BENIGN)
    return explainer_of(model, CANCER[:40], outputs="all"), CANCER[40:120]


def three_classes() -> tuple[TreeExplainer, np.ndarray]:
    model = RandomForestClassifier(5, max_depth=5, random_state=0).fit(X, np.digitize(Y, [100, 180]))
    return explainer_of(model, X[:40]), X[40:]


def float32() -> tuple[TreeExplainer, np.ndarray]:
    model = RandomForestRegressor(6, max_depth=5, random_state=0).fit(X, Y)
    return explainer_of(model, X[:40], precision="double"), X.astype(np.float32)


@pytest.fixture(scope="module", params=[both_classes, three_classes, float32], ids=lambda make: make.__name__)
def explained(request: pytest.FixtureRequest) -> tuple[TreeExplainer, np.ndarray]:
    return request.param()


@pytest.mark.parametrize("index", INDICES)
def test_forms(explained: tuple[TreeExplainer, np.ndarray], index: str) -> None:
    explainer, rows = explained
    dense = explainer.explain_interactions(rows, index=index)
    assert dense.values.dtype == rows.dtype and (dense.values == dense.values.swapaxes(1, 2)).all()
    if index == "sii":
        np.testing.assert_array_equal(explainer.shap_interaction_values(rows), dense.values)
    occurring = explainer.explain_interactions(rows, index=index, pairs="occurring")
    np.testing.assert_array_equal(occurring.pairs, explainer.occurring_pairs())
    first, second = occurring.pairs.T
    np.testing.assert_array_equal(occurring.values, 2 * dense.values[:, first, second])
    singles = explainer.explain(rows, index="bv" if index == "bii" else "sv")
    atol = 2e-6 * np.abs(singles.values).max()
    np.testing.assert_allclose(occurring.feature_values, singles.values, rtol=0, atol=atol)
    np.testing.assert_allclose(occurring.dense().values, dense.values, rtol=0, atol=atol)
    order = np.argsort(-occurring.strength, kind="stable")[:5]
    strongest = explainer.explain_interactions(rows, index=index, pairs=5)
    np.testing.assert_array_equal(strongest.pairs, occurring.pairs[order])
    np.testing.assert_array_equal(strongest.values, occurring.values[:, order])
    listed = explainer.explain_interactions(rows, index=index, pairs=[(second[3], f"x{first[3]}")])
    np.testing.assert_array_equal(listed.values[:, 0], occurring.values[:, 3])
    for explanation in (dense, occurring, strongest, listed):
        assert explanation.feature_perturbation == "interventional" and explanation.device == "cpu"
        np.testing.assert_array_equal(explanation.base_values, explainer.expected_value)
        assert (explanation.additivity_error is None) == (index == "bii")
    assert (singles.additivity_error is None) == (index == "bii")
    assert "feature perturbation: interventional" in repr(dense[1:])
    if index != "bii":
        assert 0 < dense.additivity_error < 1e-3
        np.testing.assert_allclose(dense.values.sum(axis=2), singles.values, rtol=0, atol=10 * atol)


def test_one_call(forest: Any) -> None:
    expected = explainer_of(forest, X[:5], data_weights=[1, 1, 1, 1, 2])
    options = {"data": X[:5], "data_weights": [1, 1, 1, 1, 2], "device": "cpu"}
    pairs = explain(forest, X[:9], interactions=True, pairs=3, index="stii", **options)
    np.testing.assert_array_equal(
        pairs.values, expected.explain_interactions(X[:9], pairs=3, index="stii").values
    )
    banzhaf = explain(forest, X[:9], index="bv", **options)
    np.testing.assert_array_equal(banzhaf.values, expected.explain(X[:9], index="bv").values)
    assert banzhaf.value_index == "bv" and banzhaf.feature_perturbation == "interventional"
    path_dependent = TreeExplainer(forest, device="cpu").explain_interactions(X[:9])
    assert path_dependent.feature_perturbation == "tree_path_dependent"
    assert not np.allclose(path_dependent.values, expected.shap_interaction_values(X[:9]), atol=1e-3)


def test_weights_count_rows(forest: Any) -> None:
    weighted = explainer_of(forest, X[:4], data_weights=[2, 0, 1, 1], precision="double")
    repeated = explainer_of(forest, X[[0, 0, 2, 3]], precision="double")
    for index in INDICES:
        one, other = (e.explain_interactions(X[50:], index=index).values for e in (weighted, repeated))
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-10)


def test_additivity_is_checked(forest: Any) -> None:
    explainer = explainer_of(forest, X[:10])
    explainer._runner.leaf_magnitude *= 1e-12  # as if the leaves were much smaller
    for pairs in ("all", "occurring", 3, [(0, 1)]):
        with pytest.raises(RuntimeError, match="additivity check failed at row"):
            explainer.explain_interactions(X, pairs=pairs)
    explainer.explain_interactions(X, index="bii")
    unchecked = explainer_of(forest, X[:10], check_additivity=False)
    assert unchecked.explain_interactions(X).additivity_error is None


def test_threads(forest: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    explainer = explainer_of(forest, X[:30])
    expected = explainer.explain_interactions(X, pairs="occurring")
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: explainer.explain_interactions(X, pairs="occurring"), range(8)):
            np.testing.assert_array_equal(found.values, expected.values)
    monkeypatch.setattr(memory, "CHUNK_BYTES", 50_000)
    found = explainer_of(forest, X[:30], n_jobs=2).explain_interactions(X, pairs="occurring")
    np.testing.assert_array_equal(found.values, expected.values)
    np.testing.assert_array_equal(found.feature_values, expected.feature_values)


def test_copies_and_files(forest: Any, tmp_path: Path) -> None:
    explainer = explainer_of(forest, X[:12], data_weights=np.arange(12))
    expected = explainer.shap_interaction_values(X[:30])
    again = pickle.loads(pickle.dumps(explainer))
    np.testing.assert_array_equal(again.shap_interaction_values(X[:30]), expected)
    explainer.save(tmp_path / "explainer.npz")
    loaded = TreeExplainer.load(tmp_path / "explainer.npz", device="cpu")
    np.testing.assert_array_equal(loaded.shap_interaction_values(X[:30]), expected)


@pytest.mark.parametrize("pairs", ["all", "occurring", 4, [(3, 7)]])
def test_memory_limit_changes_no_bit(forest: Any, pairs: Any) -> None:
    explainer = explainer_of(forest, X[:10])
    expected = explainer.explain_interactions(X, pairs=pairs)
    result = expected.values.nbytes + (X.nbytes if pairs == "occurring" else 0)
    scratch = explainer._runner.plan(Kind(2)).info()["scratch_bytes_per_thread"]
    tables = explainer._runner.table_bytes  # and counts
    assert tables > explainer.plan_info()["table_bytes"] > 0
    limited = explainer_of(forest, X[:10], memory_limit=result + scratch + tables + 30_000)
    np.testing.assert_array_equal(limited.explain_interactions(X, pairs=pairs).values, expected.values)
    with pytest.raises(MemoryError, match="SHAP interaction values"):
        explainer_of(forest, X[:10], memory_limit=result).explain_interactions(X, pairs=pairs)


def test_triples_are_path_dependent_only(forest: Any) -> None:
    explainer = explainer_of(forest, X[:3])
    for pairs in ("occurring", 3, [(0, 1, 2)]):
        with pytest.raises(ValueError, match="of triples are path-dependent only for now: use an explainer"):
            explainer.explain_interactions(X, pairs=pairs, order=3)
    triples = TreeExplainer(forest, device="cpu").occurring_pairs(order=3)
    np.testing.assert_array_equal(explainer.occurring_pairs(order=3), triples)


def test_margins_only(forest: Any) -> None:
    model = GradientBoostingClassifier(n_estimators=4, random_state=0).fit(CANCER, BENIGN)
    explainer = explainer_of(model, CANCER[:10], model_output="probability")
    with pytest.raises(ValueError, match="Banzhaf values are those of the margin: use model_output='raw'"):
        explainer.explain(CANCER, index="bv")
    with pytest.raises(ValueError, match="pairs are those of the margin: use model_output='raw'"):
        explainer.shap_interaction_values(CANCER)


class OnGpu:
    """What says that it lies on a GPU, and is never read."""

    __cuda_array_interface__ = {"shape": (3, 10), "typestr": "<f8", "data": (0, True), "version": 3}  # noqa: RUF012


def test_gpus_are_refused(forest: Any) -> None:
    explainer = explainer_of(forest, X[:3])
    what = "interventional SHAP interaction values of pairs are computed on the CPU only"
    with pytest.raises(TypeError, match=f"{what}, but X lies on a GPU"):
        explainer.shap_interaction_values(OnGpu())
    explainer._runner.options = replace(explainer._runner.options, devices=Devices(indices=(0,)))
    with pytest.raises(ValueError, match=f"{what}: use device='cpu' or 'auto'"):
        explainer.explain_interactions(X, pairs=3)
    with pytest.raises(ValueError, match="interventional Banzhaf values are computed on the CPU only"):
        explainer.explain(X, index="bv")


def test_auto_stays_on_the_cpu(forest: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SKSHAPGPU_DEVICE", raising=False)
    explainer = TreeExplainer(forest, X[:3])
    monkeypatch.setattr("skshapgpu.devices.Devices.choose", lambda *args: pytest.fail("looked for a GPU"))
    assert explainer.explain_interactions(X).device == "cpu"
    assert explainer.explain(X, index="bv").device == "cpu"


# The transformer and the display


@pytest.mark.parametrize("pairs", ["all", 4, [(2, 8), (0, 1)]])
def test_transformer(forest: Any, pairs: Any) -> None:
    transformer = ShapInteractionTransformer(
        RandomForestRegressor(4, max_depth=4, random_state=0), pairs=pairs, data=X[:9], device="cpu"
    )
    values = transformer.fit_transform(X, Y)
    explainer = explainer_of(transformer.estimator_, X[:9])
    expected = explainer.explain_interactions(X, pairs="occurring" if pairs == "all" else pairs)
    np.testing.assert_array_equal(values, expected.values)
    assert transformer.base_values_ == explainer.expected_value
    np.testing.assert_array_equal(clone(transformer).fit(X, Y).transform(X), values)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(transformer)).transform(X), values)
    frozen = ShapInteractionTransformer.from_fitted(
        forest, pairs=[(2, 8)], index="bii", data=X[:9], data_weights=np.arange(9), device="cpu"
    )
    weighted = explainer_of(forest, X[:9], data_weights=np.arange(9))
    expected = weighted.explain_interactions(X, pairs=[(2, 8)], index="bii")
    np.testing.assert_array_equal(frozen.transform(X), expected.values)
    assert frozen.explain(X).feature_perturbation == "interventional"


def test_transformer_refuses_options_before_it_fits() -> None:
    class Untouched(RandomForestRegressor):
        def fit(self, X: Any, y: Any = None) -> None:
            raise AssertionError("fitted")

    for options, message in (
        ({"feature_perturbation": "interventional"}, "needs background rows"),
        ({"feature_perturbation": "tree_path_dependent", "data": X[:3]}, "uses no background rows"),
        ({"data_weights": [1.0]}, "weights of background rows"),
    ):
        with pytest.raises(ValueError, match=message):
            ShapInteractionTransformer(Untouched(), **options).fit(X, Y)


def test_display(forest: Any) -> None:
    pytest.importorskip("matplotlib").use("Agg")
    display = ShapInteractionDisplay.from_estimator(forest, X, data=X[:9], device="cpu", max_features=None)
    strength = explainer_of(forest, X[:9]).explain_interactions(X, pairs="occurring").strength
    assert np.triu(display.strength, 1).max() == pytest.approx(strength.max())
