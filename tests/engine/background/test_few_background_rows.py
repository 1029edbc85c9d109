"""Leaves in lanes for values against a few background rows: the definition, and the calls that use them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.categorical_trees import categorical_trees
from helpers.ensembles import ensemble_options, random_chain, random_ensemble, random_rows, random_weights
from helpers.instruction_sets import each_set, run_again
from helpers.kernels import algorithms_of, assert_values, explain, once, same_bits
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_diabetes
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestRegressor

from skshapgpu import TreeExplainer, _core, reference
from skshapgpu._engine.costs import trees as costs
from skshapgpu.adapters.ensemble import Ensemble, Tree, attributes_of

X, Y = load_diabetes(return_X_y=True)
MOST_BYTES = 2**30


def lanes_of(
    ensemble: Ensemble,
    background: np.ndarray,
    weights: np.ndarray | None = None,
    precision: str = "double",
    index: str = "SII",
    n_threads: int = 1,
) -> Any:
    if weights is None:
        weights = np.full(len(background), 1 / len(background))
    attributes = attributes_of(ensemble)
    return _core.background_lane_plan(
        attributes, precision, background, weights, index, MOST_BYTES, n_threads
    )


def assert_is_the_definition(
    ensemble: Ensemble, rows: np.ndarray, background: np.ndarray, weights: np.ndarray | None = None
) -> None:
    for index, name in (("SII", "SV"), ("BII", "BV")):
        expected = reference.interventional(ensemble, rows, background, weight=weights, index=name)
        for precision in ("single", "double"):
            plan = lanes_of(ensemble, background, weights, precision, index)
            assert_values(plan, ensemble, rows, expected.values, precision)
            np.testing.assert_allclose(plan.base_value, expected.base_value, rtol=1e-12, atol=1e-12)


def test_a_background_row_of_weight_0_has_no_leaves() -> None:
    ensemble = random_ensemble(2, n_trees=5, n_features=4)
    rows = random_rows(1, ensemble, 8)
    weights = np.array([0.25, 0, 0.75])
    assert_is_the_definition(ensemble, rows[3:], rows[:3], weights)
    with_it, without_it = (lanes_of(ensemble, rows[i], weights[i]) for i in ([0, 1, 2], [0, 2]))
    assert with_it.info()["n_leaves"] == without_it.info()["n_leaves"]


@given(
    options=ensemble_options(max_used=5),
    n_background=st.sampled_from([1, 2, 3, 7]),
    weighted=st.booleans(),
    single=st.booleans(),
)
@settings(max_examples=100)
def test_any_trees(options: dict[str, Any], n_background: int, weighted: bool, single: bool) -> None:
    """Rows are at the edges of every comparison; a row of X is in the background data, too."""
    ensemble = random_ensemble(**options)
    rows = random_rows(options["seed"], ensemble, n_background + 4)
    if single:
        with np.errstate(over="ignore"):
            rows = rows.astype(np.float32)
    weights = random_weights(options["seed"], n_background) if weighted else None
    if lanes_of(ensemble, rows[:n_background], weights) is None:
        assert options["categorical"] or not (ensemble.left >= 0).any()
    else:
        assert_is_the_definition(ensemble, rows[n_background - 1 :], rows[:n_background], weights)


@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize("n_background", [1, 3])
def test_several_outputs(vector: bool, n_background: int) -> None:
    ensemble = random_ensemble(3, n_trees=30, n_features=7, n_outputs=4, vector=vector, zero_missing=True)
    rows = random_rows(1, ensemble, 30)
    assert_is_the_definition(ensemble, rows[n_background:], rows[:n_background])


@pytest.mark.parametrize("n_categories", [1, 30, 300])
def test_categories(n_categories: int) -> None:
    """A background row may have a listed category, another one, or none."""
    rng = np.random.default_rng(n_categories)
    codes = rng.permutation(2 * n_categories)[:n_categories]
    trees = categorical_trees(rng, codes, 9)
    ensemble = Ensemble.from_trees(trees, n_features=2, intercept=0.5)
    x = np.array([*range(min(2 * n_categories, 20)), 2 * n_categories, np.nan])
    rows = np.column_stack([rng.permutation(x), x])
    for background in (rows[:1], rows[-1:], rows[-2:], rows[:4]):
        assert_is_the_definition(ensemble, rows, background)


@once
def test_codes_of_32_bits() -> None:
    """A column with more thresholds than 16 bits count, and a background row in the middle of them."""
    n_thresholds = 70_000
    rng = np.random.default_rng(0)
    trees = [
        Tree(
            left=np.array([1, 3, -1, -1, -1]),
            right=np.array([2, 4, -1, -1, -1]),
            feature=np.array([0, first % 2, 0, 0, 0]),
            threshold=np.array([first, first + 1 if first % 2 == 0 else 0.5, 0, 0, 0]),
            missing_left=rng.random(5) < 0.5,
            cover=np.array([8.0, 5, 3, 1, 4]),
            value=np.concatenate([np.zeros((2, 1)), rng.normal(size=(3, 1))]),
        )
        for first in range(n_thresholds)
    ]
    ensemble = Ensemble.from_trees(trees, n_features=2, intercept=0.0)
    rows = np.array([[x, y] for x in (-1, 0.5, 35_000, 65_535.5, 69_999, 10**6, np.nan) for y in (0, 1)])
    for background in (np.array([[34_999.5, 1]]), np.array([[np.nan, 0], [65_536, 1]])):
        weights = np.full(len(background), 1 / len(background))
        tables = _core.background_plan(
            attributes_of(ensemble), "double", background, weights, "SII", MOST_BYTES
        )
        expected, _ = explain(tables, ensemble, rows)
        assert_values(lanes_of(ensemble, background), ensemble, rows, expected, "double")


@pytest.mark.parametrize("precision", ["single", "double"])
def test_rows_do_not_depend_on_each_other(precision: str) -> None:
    ensemble = random_ensemble(5, n_trees=90, n_features=6, max_leaves=40, zero_missing=True)
    rows = random_rows(2, ensemble, 40)
    plan = lanes_of(ensemble, rows[:3], precision=precision)
    values, _ = explain(plan, ensemble, rows)
    order = np.random.default_rng(0).permutation(40)
    for chosen in (order, order[:5], order[:1], np.repeat(order[:3], 7)):
        for n_threads in (1, 3):
            assert same_bits(explain(plan, ensemble, rows[chosen], n_threads=n_threads)[0], values[chosen])
    again = lanes_of(ensemble, rows[:3], precision=precision, n_threads=4)
    assert same_bits(explain(again, ensemble, rows)[0], values)


def test_what_cannot_be_in_lanes() -> None:
    chain = random_chain(0, 17, 17)
    rows = np.zeros((1, chain.n_features))
    assert lanes_of(chain, rows) is None  # a path of too many features
    ensemble = random_ensemble(1, n_trees=4, n_features=4)
    with pytest.raises(ValueError, match="too many background rows for lanes"):
        lanes_of(ensemble, np.zeros((65, 4)))
    attributes = attributes_of(ensemble)
    assert _core.background_lane_plan(attributes, "single", np.zeros((1, 4)), np.ones(1), "SII", 10) is None


# Calls


@pytest.fixture(scope="module")
def forest() -> RandomForestRegressor:
    return RandomForestRegressor(30, max_depth=9, random_state=0).fit(X, Y + 1000)


@once
@pytest.mark.parametrize("n_background", [1, 2])
def test_few_rows_are_in_lanes(forest: RandomForestRegressor, n_background: int) -> None:
    background = X[300 : 300 + n_background]
    explainer = TreeExplainer(forest, data=background, device="cpu")
    assert algorithms_of(explainer, 1) == {"lanes"} and algorithms_of(explainer, 200) == {"tables"}
    looked_up = TreeExplainer(forest, data=background, device="cpu", memory_limit="4GB")
    assert algorithms_of(looked_up, 1) == {"tables"}
    for index in ("SV", "BV"):
        values, expected = (e.explain(X[:1], index=index).values for e in (explainer, looked_up))
        np.testing.assert_allclose(values, expected, atol=1e-6 * np.abs(expected).max())
        assert not same_bits(values, expected)  # or these were looked up, too
    explanation = explainer.explain(X[:1])
    assert explanation.base_values == explainer.explain(X[:200]).base_values
    np.testing.assert_allclose(
        explanation.values.sum() + explanation.base_values, forest.predict(X[:1]), rtol=1e-7
    )


@once
def test_weights(forest: RandomForestRegressor) -> None:
    explainer = TreeExplainer(forest, data=X[:2], data_weight=[1.0, 3.0], device="cpu")
    assert algorithms_of(explainer, 1) == {"lanes"}
    values = explainer.explain(X[5:6]).values
    each = [TreeExplainer(forest, data=X[i : i + 1], device="cpu").explain(X[5:6]).values for i in (0, 1)]
    expected = 0.25 * each[0] + 0.75 * each[1]
    np.testing.assert_allclose(values, expected, atol=1e-6 * np.abs(expected).max())


def test_other_explainers_have_none(forest: RandomForestRegressor) -> None:
    classifier = HistGradientBoostingClassifier(max_iter=30).fit(X, Y > 140)
    many = X[: costs.MOST_LANE_BACKGROUND + 1]
    for explainer in (
        TreeExplainer(forest, data=many, device="cpu"),
        TreeExplainer(forest, data=X[:1], device="cpu", memory_limit="4GB"),
        TreeExplainer(classifier, data=X[:1], device="cpu", model_output="log_loss"),
        TreeExplainer(RandomForestRegressor(5, max_depth=3).fit(X, Y), data=X[:1], device="cpu"),
    ):
        assert "lanes" not in algorithms_of(explainer, 1)
    grouped = TreeExplainer(forest, data=X[:1], device="cpu", feature_groups={"pair": [0, 1]})
    assert grouped.explain(X[:1], index="OV").values.shape == (1, 10)


@once
def test_a_loaded_explainer(forest: RandomForestRegressor, tmp_path: Path) -> None:
    explainer = TreeExplainer(forest, data=X[:1], device="cpu")
    explainer.save(tmp_path / "explainer")
    loaded = TreeExplainer.load(tmp_path / "explainer", device="cpu")
    assert algorithms_of(loaded, 1) == {"lanes"}
    assert same_bits(loaded.explain(X[7:8]).values, explainer.explain(X[7:8]).values)


@each_set
def test_other_instruction_sets(isa: str) -> None:
    run_again(isa, __file__, select="not other_instruction_sets")
