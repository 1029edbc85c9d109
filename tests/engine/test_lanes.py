"""Leaves in lanes: values by the definition, independence of rows, and the calls that use them."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from helpers.categorical_trees import categorical_trees
from helpers.ensembles import (
    chain_rows,
    ensemble_options,
    leaf_scale,
    paths_that_no_row_takes,
    random_chain,
    random_ensemble,
    random_rows,
)
from helpers.instruction_sets import each_set, run_again
from helpers.kernels import (
    TOLERANCE,
    algorithms_of,
    assert_layouts_do_not_matter,
    assert_values,
    explain,
    interrupted,
    once,
    same_bits,
)
from hypothesis import given, settings
from sklearn.datasets import make_regression
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

from skshapgpu import TreeExplainer, _core, reference
from skshapgpu._engine.costs import trees as costs
from skshapgpu.adapters.ensemble import Ensemble, Tree, attributes_of

MOST_BYTES = 2**30


def lanes_of(ensemble: Ensemble, precision: str = "double", index: str = "SII") -> Any:
    plan = _core.Plan(attributes_of(ensemble), precision, index=index)
    return _core.lane_plan(plan, MOST_BYTES)


def assert_is_the_definition(ensemble: Ensemble, rows: np.ndarray, index: str = "SII") -> None:
    name = "BV" if index == "BII" else "SV"
    expected = reference.path_dependent(ensemble, rows, index=name).values
    for precision in ("single", "double"):
        assert_values(lanes_of(ensemble, precision, index), ensemble, rows, expected, precision)


# Values


@given(options=ensemble_options())
@settings(max_examples=150)
def test_any_trees(options: dict[str, Any]) -> None:
    """A feature that is numeric in some nodes and categorical in others has no lanes."""
    ensemble = random_ensemble(**options)
    rows = random_rows(options["seed"], ensemble, 33)
    for index in ("SII", "BII"):
        if lanes_of(ensemble, index=index) is None:
            assert options["categorical"] or not (ensemble.left >= 0).any()
        else:
            assert_is_the_definition(ensemble, rows, index)


@pytest.mark.parametrize("vector", [False, True])
def test_several_outputs(vector: bool) -> None:
    ensemble = random_ensemble(3, n_trees=30, n_features=7, n_outputs=4, vector=vector, zero_missing=True)
    assert_is_the_definition(ensemble, random_rows(1, ensemble, 40))


@pytest.mark.parametrize("n_categories", [1, 30, 62, 63, 300])
def test_categories(n_categories: int) -> None:
    """The bits of a category's lanes are in words of 64 bits."""
    rng = np.random.default_rng(n_categories)
    codes = rng.permutation(2 * n_categories)[:n_categories]
    trees = categorical_trees(rng, codes, 20)
    ensemble = Ensemble.from_trees(trees, n_features=2, intercept=0.5)
    x = np.concatenate([codes, [2 * n_categories, -1, np.nan]]).astype(float)
    rows = np.column_stack([rng.permutation(x), x])
    assert_is_the_definition(ensemble, np.concatenate([rows, rows[:, ::-1]]))


def stump(threshold: float, missing_left: bool, *, value: float) -> Ensemble:
    """Return a tree with 4 < x0 <= 6 in the middle, so that missing values pass there or nowhere, and x1."""
    tree = Tree(
        left=np.array([1, -1, 3, 5, -1, -1, -1]),
        right=np.array([2, -1, 4, 6, -1, -1, -1]),
        feature=np.array([0, 0, 0, 1, 0, 0, 0]),
        threshold=np.array([4.0, 0, 6, threshold, 0, 0, 0]),
        missing_left=np.array([False, False, missing_left, missing_left, False, False, False]),
        cover=np.array([10.0, 3, 7, 5, 2, 1, 4]),
        value=value * np.array([[0.0], [1], [0], [0], [3], [-2], [5]]),
    )
    return Ensemble.from_trees([tree], n_features=3, intercept=-1.0)


@pytest.mark.parametrize("missing_left", [False, True])
def test_missing_values_that_pass_in_the_middle(missing_left: bool) -> None:
    rows = np.array([*product([3.0, 4, 5, 6, 7, np.nan], [0.0, 1, 2, np.nan], [0.0])])
    assert_is_the_definition(stump(1.0, missing_left, value=2.0), rows)


@once
def test_siblings_share_a_lane() -> None:
    """A full tree has half as many lanes as leaves, unless leaves hold several outputs."""
    X, y = make_regression(2000, 8, random_state=0)
    y = np.round(y / 10)
    sizes = {}
    for n_outputs in (1, 2):
        target = y if n_outputs == 1 else np.column_stack([y, y])
        model = RandomForestRegressor(50, max_depth=5, random_state=0).fit(X, target)
        info = lanes_of(TreeExplainer(model)._compiled.ensemble, "single").info()
        sizes[n_outputs] = info["table_bytes"] / info["n_leaves"]
    assert sizes[1] < 0.65 * sizes[2]


def test_splits_that_divide_nothing() -> None:
    """The second leaf has the interval that continues the first one's, but another zero fraction of x1."""
    tree = Tree(
        left=np.array([1, 3, 5, -1, -1, 7, -1, -1, -1]),
        right=np.array([2, 4, 6, -1, -1, 8, -1, -1, -1]),
        feature=np.array([0, 1, 1, 0, 0, 1, 0, 0, 0]),
        threshold=np.array([4.0, 3, 9, 0, 0, 3, 0, 0, 0]),
        missing_left=np.ones(9, bool),
        cover=np.array([20.0, 9, 11, 4, 5, 10, 1, 3, 7]),
        value=np.array([[0.0], [0], [0], [1], [2], [0], [3], [4], [5]]),
    )
    rows = np.array([*product([3.0, 5, np.nan], [2.0, 4, 10, np.nan])])
    assert_is_the_definition(Ensemble.from_trees([tree], n_features=2, intercept=0.0), rows)


def test_paths_that_no_row_takes() -> None:
    for ensemble, rows in paths_that_no_row_takes():
        assert_is_the_definition(ensemble, rows)


@pytest.mark.parametrize("n_features", [3, 12])
def test_long_paths(n_features: int) -> None:
    ensemble = random_chain(n_features, 40, n_features)
    assert_is_the_definition(ensemble, chain_rows(1, ensemble, 30))


@pytest.mark.parametrize("precision", ["single", "double"])
def test_the_longest_paths(precision: str) -> None:
    ensemble = random_chain(2, 40, 16)
    rows = chain_rows(1, ensemble, 30)
    walked, _ = explain(_core.Plan(attributes_of(ensemble), "double"), ensemble, rows)
    values, _ = explain(lanes_of(ensemble, precision), ensemble, rows)
    assert (np.abs(values - walked) <= TOLERANCE[precision] * leaf_scale(ensemble)[:, np.newaxis]).all()


def test_too_many_features_on_a_path() -> None:
    assert lanes_of(random_chain(1, 40, 17)) is None
    assert lanes_of(random_chain(1, 40, 17), index="BII") is not None
    assert lanes_of(random_chain(1, 90, 64), index="BII") is not None
    assert lanes_of(random_chain(1, 90, 65), index="BII") is None


@pytest.mark.parametrize("precision", ["single", "double"])
def test_many_columns(precision: str) -> None:
    """A vector has at most 64 places; then it is not full."""
    rng = np.random.default_rng(0)
    X, y = make_regression(400, 300, n_informative=300, random_state=0)
    forest = RandomForestRegressor(12, max_features=2, max_depth=7, random_state=0).fit(X, y)
    explainer = TreeExplainer(forest, device="cpu", precision=precision)
    ensemble = explainer._compiled.ensemble
    rows = np.where(rng.random((6, 300)) < 0.1, np.nan, X[:6])
    walked, _ = explain(_core.Plan(attributes_of(ensemble), "double"), ensemble, rows)
    values, margin = explain(lanes_of(ensemble, precision), ensemble, rows)
    assert (np.abs(values - walked) <= TOLERANCE[precision] * leaf_scale(ensemble)[:, np.newaxis]).all()
    np.testing.assert_allclose(margin, ensemble.margin(rows), rtol=1e-12)


def wide_trees(seed: int, n_leaves: int, *, n_features: int = 70, n_thresholds: int = 4) -> list[Tree]:
    """Return trees in which hardly two nodes have the same feature; every tenth feature is categorical."""
    rng = np.random.default_rng(seed)
    trees = []
    for _ in range(12):
        left, right, leaves = [-1], [-1], [0]
        while len(leaves) < n_leaves:
            node = leaves.pop(int(rng.integers(len(leaves))))
            left[node], right[node] = len(left), len(left) + 1
            leaves += [left[node], right[node]]
            left, right = [*left, -1, -1], [*right, -1, -1]
        n_nodes, inner = len(left), np.array(left) >= 0
        feature = rng.integers(0, n_features, n_nodes)
        cover = rng.integers(1, 9, n_nodes).astype(float)
        for i in np.flatnonzero(inner)[::-1]:
            cover[i] = cover[left[i]] + cover[right[i]]
        trees.append(
            Tree(
                left=np.array(left),
                right=np.array(right),
                feature=feature,
                threshold=rng.integers(0, n_thresholds, n_nodes) + 0.5,
                missing_left=rng.random(n_nodes) < 0.5,
                cover=cover,
                value=np.where(inner, 0.0, rng.normal(size=n_nodes)),
                output=int(rng.integers(2)),
                categories={
                    int(i): rng.choice(5, 2, replace=False)
                    for i in np.flatnonzero(inner & (feature % 10 == 9))
                },
            )
        )
    return trees


def wide_ensemble(seed: int, n_leaves: int, *, n_features: int = 70) -> Ensemble:
    trees = wide_trees(seed, n_leaves, n_features=n_features)
    return Ensemble.from_trees(trees, n_features=n_features, intercept=np.zeros(2))


@pytest.mark.parametrize("index", ["SII", "BII"])
@pytest.mark.parametrize("n_leaves", [12, 40, 100])
def test_mixed_places(n_leaves: int, index: str) -> None:
    """Features of few lanes share places, whatever the row misses.

    The definition is computed tree by tree, because it allows few features, and for small trees only.
    """
    trees = wide_trees(n_leaves, n_leaves)
    ensemble = Ensemble.from_trees(trees, n_features=70, intercept=np.zeros(2))
    assert lanes_of(ensemble, "single").info()["n_mixed_places"] > 0 or _core.instruction_set() != "avx512"
    rng = np.random.default_rng(n_leaves)
    rows = rng.integers(0, 5, (40, 70)).astype(float)
    for i, missing in enumerate([0.0, 0.1, 0.5, 1.0]):
        rows[10 * i : 10 * i + 10][rng.random((10, 70)) < missing] = np.nan
    if n_leaves == 12:
        name = "BV" if index == "BII" else "SV"
        single = [Ensemble.from_trees([tree], n_features=70, intercept=np.zeros(2)) for tree in trees]
        expected = sum(reference.path_dependent(tree, rows, index=name).values for tree in single)
    else:
        expected, _ = explain(_core.Plan(attributes_of(ensemble), "double", index=index), ensemble, rows)
    for precision in ("single", "double"):
        assert_values(lanes_of(ensemble, precision, index), ensemble, rows, expected, precision)


def test_few_features_have_no_mixed_places() -> None:
    for n_features in (3, 8, 12):
        ensemble = wide_ensemble(0, 100, n_features=n_features)
        for precision in ("single", "double"):
            assert lanes_of(ensemble, precision).info()["n_mixed_places"] == 0


def test_mixed_places_keep_rows_and_threads_apart() -> None:
    ensemble = wide_ensemble(1, 60)
    rows = np.random.default_rng(1).choice([0.0, 1, 2, 3, 4, np.nan], (130, 70))
    for precision in ("single", "double"):
        plan = lanes_of(ensemble, precision)
        values, margin = explain(plan, ensemble, rows)
        for chosen in (np.arange(130)[::-1], np.arange(3), np.array([77])):
            for n_threads in (1, 3):
                again = explain(plan, ensemble, rows[chosen], n_threads=n_threads)
                assert same_bits(again[0], values[chosen]) and same_bits(again[1], margin[chosen])


def test_mixed_places_of_ranked_codes() -> None:
    """One column has more thresholds than 16 bits count, so that the codes of all columns are ranked."""
    wide = wide_trees(2, 60, n_thresholds=40)
    rng = np.random.default_rng(2)
    n_stumps = 33_000  # of two thresholds each
    threshold = rng.permutation(2 * n_stumps) + 0.25
    stumps = [
        Tree(
            left=np.array([1, 3, -1, -1, -1]),
            right=np.array([2, 4, -1, -1, -1]),
            feature=np.zeros(5, int),
            threshold=np.array([*threshold[2 * i : 2 * i + 2], 0, 0, 0]),
            missing_left=rng.random(5) < 0.5,
            cover=np.array([3.0, 2, 1, 1, 1]),
            value=np.array([0, 0, *rng.normal(size=3)]),
        )
        for i in range(n_stumps)
    ]
    ensemble = Ensemble.from_trees([*wide, *stumps], n_features=70, intercept=np.zeros(2))
    assert lanes_of(ensemble).info()["n_mixed_places"] > 0
    rows = np.where(rng.random((8, 70)) < 0.2, np.nan, rng.integers(0, 41, (8, 70)).astype(float))
    expected, _ = explain(_core.Plan(attributes_of(ensemble), "double"), ensemble, rows)
    for precision in ("single", "double"):
        values, margin = explain(lanes_of(ensemble, precision), ensemble, rows)
        scale = leaf_scale(ensemble)[:, np.newaxis]
        assert (np.abs(values - expected) <= TOLERANCE[precision] * scale).all()
        np.testing.assert_allclose(margin, ensemble.margin(rows), rtol=0, atol=1e-12 * scale.max())


@once
@pytest.mark.parametrize("n_thresholds", [65_519, 65_520, 65_534, 65_535, 90_000])
@pytest.mark.parametrize("vector", [False, True])
def test_more_thresholds_than_16_bits_count(n_thresholds: int, vector: bool) -> None:
    """Codes are then ranked among the codes that the tests of a chunk tell apart."""
    rng = np.random.default_rng(n_thresholds)
    left = np.array([1, 3, 5, -1, -1, -1, -1])
    right = np.array([2, 4, 6, -1, -1, -1, -1])
    trees = []
    for first in range(0, n_thresholds, 2):
        wide = np.minimum([first, first + 1], n_thresholds - 1)
        threshold = np.array([rng.integers(0, 4), *rng.permutation(wide), 0, 0, 0, 0])
        leaves = rng.normal(size=(4, 1 + vector))
        trees.append(
            Tree(
                left=left,
                right=right,
                feature=np.array([1, 0, 0, 0, 0, 0, 0]) if first % 3 else np.array([0, 0, 1, 0, 0, 0, 0]),
                threshold=threshold,
                missing_left=rng.random(7) < 0.5,
                cover=np.array([8.0, 5, 3, 1, 4, 2, 1]),
                value=np.concatenate([np.zeros((3, 1 + vector)), leaves]),
            )
        )
    ensemble = Ensemble.from_trees(trees, n_features=3, intercept=np.zeros(1 + vector) if vector else 0.0)
    x = np.array([-1, 0, 0.5, 1, 65_518, 65_519.5, 65_520, n_thresholds - 1, n_thresholds, np.nan, 40_000.5])
    rows = np.array([*product(x, [0.0, 2, np.nan], [0.0])])
    rows[:, 0] += np.where(rng.random(len(rows)) < 0.3, np.floor(1000 * rng.random(len(rows))), 0)
    expected, _ = explain(_core.Plan(attributes_of(ensemble), "double"), ensemble, rows)
    scale = leaf_scale(ensemble)[:, np.newaxis]
    for precision in ("single", "double"):
        values, margin = explain(lanes_of(ensemble, precision), ensemble, rows)
        assert (np.abs(values - expected) <= TOLERANCE[precision] * scale).all()
        np.testing.assert_allclose(margin, ensemble.margin(rows), rtol=0, atol=1e-12 * scale.max())
    n_bytes = lanes_of(ensemble, "single").info()["table_bytes"]
    assert _core.lane_plan(_core.Plan(attributes_of(ensemble), "single"), n_bytes - 1) is None  # nor ranks


# Rows


@pytest.mark.parametrize("precision", ["single", "double"])
@pytest.mark.parametrize("vector", [False, True])
def test_rows_do_not_depend_on_each_other(precision: str, vector: bool) -> None:
    ensemble = random_ensemble(
        5, n_trees=90, n_features=6, n_outputs=2, vector=vector, max_leaves=40, zero_missing=True
    )
    rows = random_rows(2, ensemble, 150)
    plan = lanes_of(ensemble, precision)
    values, margin = explain(plan, ensemble, rows)
    order = np.random.default_rng(0).permutation(150)
    for chosen in (order, order[:64], order[:5], order[:1], np.repeat(order[:3], 7)):
        for n_threads in (1, 3):
            again = explain(plan, ensemble, rows[chosen], n_threads=n_threads)
            assert same_bits(again[0], values[chosen]) and same_bits(again[1], margin[chosen])


@pytest.mark.parametrize("vector", [False, True])
def test_threads_share_large_models(vector: bool) -> None:
    """The sums of parts of some 16,000 leaves are added up in their order, whatever thread computes them."""
    ensemble = random_ensemble(
        6, n_trees=1700, n_features=7, n_outputs=2, vector=vector, max_leaves=40, shapes=("random",)
    )
    rows = random_rows(3, ensemble, 70)
    plan = lanes_of(ensemble, "single")
    assert plan.info()["n_leaves"] > 2 * 16 * 1024
    values, margin = explain(plan, ensemble, rows)
    for n_rows in (1, 5, 64, 70):
        for n_threads in (2, 3, 8):
            shared = explain(plan, ensemble, rows[:n_rows], n_threads=n_threads)
            assert same_bits(shared[0], values[:n_rows]) and same_bits(shared[1], margin[:n_rows])
    walked, _ = explain(_core.Plan(attributes_of(ensemble), "double"), ensemble, rows)
    assert (np.abs(values - walked) <= TOLERANCE["single"] * leaf_scale(ensemble)[:, np.newaxis]).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_other_layouts_of_rows_and_results(dtype: str) -> None:
    ensemble = random_ensemble(7, n_trees=20, n_features=9, n_used=2)
    rows, plan = random_rows(3, ensemble, 12), lanes_of(ensemble, "single")
    assert_layouts_do_not_matter(plan, ensemble, rows, dtype)


# The choice


X, Y = make_regression(3000, 6, noise=10.0, random_state=0)


@pytest.fixture(scope="module")
def forest() -> RandomForestRegressor:
    return RandomForestRegressor(30, max_depth=9, random_state=0).fit(X, Y)


@once
def test_few_rows_are_in_lanes(forest: RandomForestRegressor) -> None:
    explainer = TreeExplainer(forest, device="cpu")
    assert algorithms_of(explainer, 1) == {"lanes"} and algorithms_of(explainer, 200) == {"quadrature"}
    plan = explainer.plan(1)
    assert plan.table_bytes == plan.tree_groups[0].table_bytes > 30 * plan.tree_groups[0].n_leaves
    assert plan.tree_groups[0].n_trees == 30 and "putting the leaves into lanes takes" in str(plan)
    values = explainer.explain(X[:1]).values
    walked = TreeExplainer(forest, device="cpu", algorithm="quadrature").explain(X[:1]).values
    np.testing.assert_allclose(values, walked, atol=1e-6 * np.abs(walked).max())
    assert not same_bits(values, walked)  # or these were walked, too
    banzhaf = explainer.explain(X[:1], index="BV").values
    walked = TreeExplainer(forest, device="cpu", algorithm="quadrature").explain(X[:1], index="BV").values
    np.testing.assert_allclose(banzhaf, walked, atol=1e-6 * np.abs(walked).max())


def test_the_options_that_exclude_lanes(forest: RandomForestRegressor) -> None:
    for options in ({"memory_limit": "1GB"}, {"algorithm": "quadrature"}, {"data": X[:20]}):
        explainer = TreeExplainer(forest, device="cpu", **options)
        assert "lanes" not in algorithms_of(explainer, 1)
        explainer.explain(X[:1])
    explainer = TreeExplainer(forest, device="cpu", feature_groups={"pair": [0, 1]})
    assert explainer.explain(X[:1], index="OV").values.shape == (1, 6)


def test_large_models_have_lanes_if_many_calls_are_expected(
    forest: RandomForestRegressor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(costs, "_MOST_LANE_SECONDS", 1e-4)
    for expected_rows, is_expected in ((None, False), (1, False), (10**6, True)):
        explainer = TreeExplainer(forest, device="cpu", expected_rows=expected_rows)
        assert (algorithms_of(explainer, 1) == {"lanes"}) == is_expected


def test_small_models_have_none() -> None:
    small = RandomForestRegressor(5, max_depth=3, random_state=0).fit(X, Y)
    assert algorithms_of(TreeExplainer(small, device="cpu"), 1) == {"quadrature"}


def test_no_room(forest: RandomForestRegressor) -> None:
    ensemble = TreeExplainer(forest)._compiled.ensemble
    plan = _core.Plan(attributes_of(ensemble), "single")
    n_bytes = _core.lane_plan(plan, MOST_BYTES).info()["table_bytes"]
    assert _core.lane_plan(plan, n_bytes) is not None
    assert _core.lane_plan(plan, n_bytes - 1) is None
    assert _core.lane_plan(plan, n_bytes // 2) is None


@once
def test_tables_replace_the_lanes_if_both_have_no_room(
    forest: RandomForestRegressor, monkeypatch: pytest.MonkeyPatch
) -> None:
    explainer = TreeExplainer(forest, device="cpu")
    few = explainer.explain(X[:2]).values
    compiled = explainer._compiled
    n_bytes = compiled.table_bytes
    monkeypatch.setattr(type(compiled), "interval_room", lambda self: int(1.5 * n_bytes))
    explainer.explain(X[:2], index="BV")
    assert compiled.table_bytes < 1.5 * n_bytes
    assert same_bits(explainer.explain(X[:2]).values, few)


def test_plans_with_other_trees_have_none() -> None:
    ensemble = random_ensemble(1, n_trees=4, n_features=4)
    attributes = attributes_of(ensemble)
    for plan in (
        _core.Plan(attributes, "single", 2),
        _core.Plan(attributes, "single", method="treeshap"),
        lanes_of(ensemble),
        _core.background_plan(attributes, "single", np.zeros((1, 4)), np.ones(1), "SII", 2**20),
        _core.Plan(attributes, "single", method="fast_v2"),
    ):
        assert _core.lane_plan(plan, MOST_BYTES) is None


def test_classes(forest: RandomForestRegressor) -> None:
    """Leaves of several classes are vectors of outputs."""
    classifier = RandomForestClassifier(20, max_depth=8, random_state=0).fit(X, np.digitize(Y, [-80, 80]))
    explainer = TreeExplainer(classifier, device="cpu")
    assert algorithms_of(explainer, 1) == {"lanes"}
    explanation = explainer.explain(X[:3])
    total = explanation.values.sum(axis=1) + explanation.base_values
    np.testing.assert_allclose(total, classifier.predict_proba(X[:3]), atol=1e-6)


@once
def test_it_can_be_interrupted() -> None:
    ensemble = random_ensemble(3, n_trees=5000, n_features=12, max_leaves=40, shapes=("random",))
    plan = _core.Plan(attributes_of(ensemble), "single", n_threads=2)
    with interrupted(0.05, 2):
        for _ in range(100):
            _core.lane_plan(plan, MOST_BYTES)


@each_set
def test_other_instruction_sets(isa: str) -> None:
    run_again(isa, __file__, select="not other_instruction_sets")
