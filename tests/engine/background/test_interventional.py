"""Interventional SHAP values: the core and every family against the definition, and shap.

With ``--device cuda``, all of it is computed on a GPU.
"""

from __future__ import annotations

import os
from itertools import product
from math import comb
from typing import Any

import numpy as np
import pytest
from helpers.ensembles import (
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
from sklearn.datasets import load_diabetes
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier, RandomForestRegressor
from sklearn.tree import DecisionTreeRegressor

from skshapgpu import TreeExplainer, _core, reference
from skshapgpu.adapters.ensemble import Ensemble, Tree, attributes_of

X, Y = load_diabetes(return_X_y=True)

#: Largest error of each precision, relative to the leaves.
TOLERANCE = {"single": 5e-6, "double": 1e-10}

#: Bytes for the core's tables: enough for all leaves here.
TABLES = 2**24


# The core


def compute(
    ensemble: Ensemble,
    rows: np.ndarray,
    background: np.ndarray,
    weights: np.ndarray | None = None,
    precision: str = "double",
    n_threads: int = 1,
    table_bytes: int = TABLES,
    index: str = "SII",
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Compute values, margins and base value with the core, on the device of the test run."""
    if weights is None:
        weights = np.full(len(background), 1 / len(background))
    attributes = attributes_of(ensemble)
    plan = _core.background_plan(attributes, precision, background, weights, index, table_bytes)
    shape = len(rows), ensemble.n_outputs, ensemble.n_features
    values, margin = np.full(shape, np.nan), np.full(shape[:2], np.nan)
    if os.environ["SKSHAPGPU_DEVICE"].startswith("cuda"):
        from skshapgpu import _cuda

        _cuda.CudaPlan(plan, 0).explain(rows, values, margin, None, 0)
    else:
        plan.explain(rows, values, margin, n_threads)
    return values, margin, plan.base_value


def assert_is_the_definition(
    ensemble: Ensemble, rows: np.ndarray, background: np.ndarray, weights: np.ndarray | None = None
) -> None:
    expected, base_value, _ = reference.interventional(ensemble, rows, background, weight=weights)
    banzhaf = reference.interventional(ensemble, rows, background, weight=weights, index="BV").values
    expected_margin, scale = ensemble.margin(rows), leaf_scale(ensemble)
    intercept = np.abs(ensemble.intercept)
    for (precision, tolerance), table_bytes in product(TOLERANCE.items(), (TABLES, 3000, 0)):
        options = {"precision": precision, "table_bytes": table_bytes}
        values, *_ = compute(ensemble, rows, background, weights, index="BII", **options)
        assert (np.abs(values - banzhaf) <= tolerance * scale[:, np.newaxis]).all(), precision
        values, margin, base = compute(ensemble, rows, background, weights, **options)
        assert (np.abs(values - expected) <= tolerance * scale[:, np.newaxis]).all(), precision
        assert (np.abs(base - base_value) <= tolerance * scale + 1e-15 * intercept).all(), precision
        assert (np.abs(margin - expected_margin) <= tolerance * scale + 1e-15 * intercept).all(), precision


@given(
    options=ensemble_options(max_used=5),
    n_background=st.sampled_from([1, 2, 3, 9]),
    weighted=st.booleans(),
    single=st.booleans(),
)
@settings(max_examples=150)
def test_core_is_the_definition(
    options: dict[str, Any], n_background: int, weighted: bool, single: bool
) -> None:
    """Rows at the edges of every comparison; the first background row occurs twice, and one is a row of X."""
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
    assert_is_the_definition(ensemble, rows[-3:], background, weights)


@pytest.mark.parametrize("shape", ["random", "chain", "perfect", "oblivious", "leaf"])
@pytest.mark.parametrize("vector", [False, True])
def test_core_on_each_shape_of_trees(shape: str, vector: bool) -> None:
    for seed in range(3):
        ensemble = hard_ensemble(seed, shape, vector, n_used=7)
        rows = random_rows(seed, ensemble, 6)
        assert_is_the_definition(ensemble, rows[:2], rows[2:])


def test_more_rows_than_a_block_of_either() -> None:
    """Tiles, blocks and vectors end at different places within 150 rows and 70 background rows."""
    ensemble = random_ensemble(5, n_trees=3, n_features=4, n_used=3, max_leaves=9)
    rows = random_rows(5, ensemble, 220)
    background, weights = rows[150:], np.random.default_rng(5).random(70)
    assert_is_the_definition(ensemble, rows[:150], background, weights / weights.sum())


def test_values_by_hand() -> None:
    """A stump of 1 and 10; three of four background rows go left, so that v() = 13/4."""
    tree = Tree([1, -1, -1], [2, -1, -1], [0] * 3, [0.5, 0, 0], [True] * 3, [9, 1, 8], [0, 1, 10])
    ensemble = Ensemble.from_trees([tree], n_features=2, intercept=[100.0])
    background = np.array([[0.0, 7.0], [0.5, 8.0], [1.0, 9.0], [np.nan, 0.0]])
    values, margin, base = compute(ensemble, np.array([[1.0, 0.0], [0.0, 0.0]]), background)
    np.testing.assert_allclose(values, [[[10 - 13 / 4, 0]], [[1 - 13 / 4, 0]]], rtol=1e-14)
    np.testing.assert_allclose(margin, [[110], [101]], rtol=1e-15)
    np.testing.assert_allclose(base, [103.25], rtol=1e-15)


def test_a_row_beside_itself_has_zeros() -> None:
    ensemble = random_ensemble(6, n_trees=4, n_outputs=2)
    rows = random_rows(6, ensemble, 8)
    for row in rows:
        values, margin, base = compute(ensemble, row[np.newaxis], row[np.newaxis])
        assert (values == 0).all()
        np.testing.assert_allclose(base, margin[0], rtol=0, atol=1e-13 * leaf_scale(ensemble).max())


@pytest.mark.parametrize("n_rows, n_trees", [(0, 3), (2, 0)])
def test_no_rows_and_no_trees(n_rows: int, n_trees: int) -> None:
    ensemble = random_ensemble(7, n_trees=n_trees)
    values, _, base = compute(ensemble, np.zeros((n_rows, 5)), np.zeros((2, 5)))
    assert values.shape == (n_rows, 1, 5) and (values == 0).all()
    np.testing.assert_allclose(base, ensemble.margin(np.zeros((1, 5)))[0], rtol=1e-14)


def test_threads_and_neighbours_change_no_bit() -> None:
    ensemble = random_ensemble(8, n_trees=20, n_features=6, max_leaves=16)
    rows = random_rows(8, ensemble, 330)
    background = rows[300:].copy()
    expected, _, _ = compute(ensemble, rows[:300], background, precision="single")
    for n_threads in (2, 3):
        again, _, _ = compute(ensemble, rows[:300], background, precision="single", n_threads=n_threads)
        np.testing.assert_array_equal(again, expected)
    for part in (slice(0, 1), slice(17, 90), slice(299, 300), slice(None, None, -1)):
        again, _, _ = compute(ensemble, rows[:300][part], background, precision="single")
        np.testing.assert_array_equal(again, expected[part])


@pytest.mark.parametrize("depth", [20, 64])
def test_long_paths(depth: int) -> None:
    """The reference of a chain is the formula of Lundberg et al. (2020) for x and a background row, by leaf.

    If p features of the path are satisfied by x only, q by b only, and all others by both, each of the p
    features has the leaf's value times (p - 1)! q! / (p + q)!, and each of the q features has minus the
    leaf's value times p! (q - 1)! / (p + q)!.
    """
    ensemble = random_chain(depth, depth, depth)
    rows = np.random.default_rng(depth).random((12, depth))
    x, background = rows[:4], rows[4:]
    expected = np.zeros((4, 1, depth))
    for i, b in product(range(4), background):
        node, path = 0, list[tuple[int, bool]]()
        while ensemble.left[node] >= 0:
            f, left, right = (int(a[node]) for a in (ensemble.feature, ensemble.left, ensemble.right))
            leaf, onward = (left, right) if ensemble.left[left] < 0 else (right, left)
            # The last split has two leaves.
            for child in {leaf} | ({onward} if ensemble.left[onward] < 0 else set()):
                steps = [*path, (f, child == left)]
                of_x = [g for g, goes in steps if (x[i, g] <= 0.5) == goes != (b[g] <= 0.5)]
                of_b = [g for g, goes in steps if (b[g] <= 0.5) == goes != (x[i, g] <= 0.5)]
                if all((x[i, g] <= 0.5) == goes or (b[g] <= 0.5) == goes for g, goes in steps):
                    p, q, value = len(of_x), len(of_b), ensemble.value[child, 0] / len(background)
                    if p:
                        expected[i, 0, of_x] += value / p / comb(p + q, q)
                    if q:
                        expected[i, 0, of_b] -= value / q / comb(p + q, p)
            path.append((f, onward == left))
            node = onward
    for table_bytes in (TABLES, 0):
        values, _, _ = compute(ensemble, x, background, table_bytes=table_bytes)
        assert np.abs(values - expected).max() <= 1e-10 * leaf_scale(ensemble)[0]


def test_paths_that_are_too_long_are_refused() -> None:
    ensemble = random_chain(0, 65, 65)
    with pytest.raises(
        ValueError, match="a path has 65 different features; background data allow for at most 64"
    ):
        compute(ensemble, np.zeros((1, 65)), np.zeros((1, 65)))


def test_info() -> None:
    ensemble = random_ensemble(9, n_trees=4, shapes=("random",))
    attributes = attributes_of(ensemble)
    info = _core.background_plan(
        attributes, "single", np.zeros((3, 5)), np.full(3, 1 / 3), "SII", TABLES
    ).info()
    assert info["n_trees"] == 4 and info["n_leaves"] == ensemble.n_leaves
    assert info["bytes"] >= 0 and info["scratch_bytes_per_thread"] >= 0


# Models


@pytest.fixture(scope="module", params=MODELS)
def case(request: pytest.FixtureRequest) -> tuple[Any, np.ndarray]:
    return MODELS[request.param]()


@pytest.mark.parametrize("weighted", [False, True])
def test_families(case: tuple[Any, np.ndarray], weighted: bool) -> None:
    model, rows = case
    rows, background = rows[:4], rows[20:30]
    weights = [3, 0, 1, 2, 0.5, 0.5, 1, 1, 0, 4] if weighted else None
    ensemble, encoded = as_trees_see_them(model, rows)
    expected, base_value, _ = reference.interventional(
        ensemble, encoded, as_trees_see_them(model, background)[1], weight=weights
    )
    scale = leaf_scale(ensemble)
    rounding = 1e-15 * np.abs(ensemble.intercept)
    for precision, tolerance in TOLERANCE.items():
        explainer = TreeExplainer(model, background, data_weight=weights, precision=precision)
        explanation = explainer.explain(rows)
        values = outputs_second(explanation.values, 2)
        assert (np.abs(values - expected) <= tolerance * scale[:, np.newaxis]).all()
        allowed = tolerance * scale + rounding
        assert (np.abs(explainer.expected_value - base_value) <= allowed).all()
        margin = values.sum(axis=2) + explainer.expected_value
        assert (np.abs(margin - ensemble.margin(encoded)) <= 10 * allowed).all()
        assert explanation.additivity_error is not None


def _values_of_shap(model: Any, data: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compute shap's values [row][feature][output] and its base values."""
    shap = pytest.importorskip("shap")
    # It samples from a background of more than 100 rows.
    explainer = shap.TreeExplainer(model, data, feature_perturbation="interventional")
    values = np.asarray(explainer.shap_values(rows, check_additivity=False))
    return values.reshape(*rows.shape, -1), np.atleast_1d(explainer.expected_value)


@pytest.mark.parametrize(
    "model",
    [
        DecisionTreeRegressor(max_depth=7, random_state=0),
        RandomForestRegressor(5, max_depth=6, random_state=0),
        RandomForestClassifier(5, max_depth=6, random_state=0),
        ExtraTreesClassifier(5, max_depth=6, random_state=0),
    ],
    ids=lambda model: type(model).__name__,
)
def test_scikit_learn_against_shap(model: Any) -> None:
    # Continuous numbers that float32 can hold. Some numbers of the diabetes data equal a threshold up to
    # rounding; at such nodes, shap does not always take scikit-learn's branch.
    rows = np.random.default_rng(1).normal(size=(300, 6)).astype(np.float32).astype(np.float64)
    target = rows[:, 0] * rows[:, 1] + np.sin(3 * rows[:, 2]) + rows[:, 3]
    classes = np.digitize(target, [-0.5, 0.7])
    model = clone(model).fit(rows, classes if hasattr(model, "predict_proba") else target)
    values, base = _values_of_shap(model, rows[:60], rows[60:110])
    explainer = TreeExplainer(model, rows[:60], precision="double")
    ours = explainer.shap_values(rows[60:110]).reshape(values.shape)
    np.testing.assert_allclose(ours, values, rtol=0, atol=1e-6 * np.abs(values).max())
    np.testing.assert_allclose(explainer.expected_value, base, rtol=1e-6)


@pytest.mark.parametrize("classes", [False, True])
def test_xgboost_against_shap(classes: bool) -> None:
    xgboost = pytest.importorskip("xgboost")
    rows = X.astype(np.float32)
    if classes:
        model = xgboost.XGBClassifier(n_estimators=8, max_depth=4, n_jobs=1).fit(rows, Y > 140)
    else:
        model = xgboost.XGBRegressor(n_estimators=8, max_depth=5, n_jobs=1).fit(rows, Y)
    values, base = _values_of_shap(model, rows[:60], rows[60:110])
    explainer = TreeExplainer(model, rows[:60], precision="double")
    ours = explainer.shap_values(rows[60:110]).reshape(values.shape)
    np.testing.assert_allclose(ours, values, rtol=0, atol=1e-6 * np.abs(values).max())
    np.testing.assert_allclose(explainer.expected_value, base, rtol=1e-6, atol=1e-6 * np.abs(values).max())
