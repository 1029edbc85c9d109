"""Tables by intervals: values at the limits of their layout, and refused calls."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from helpers.ensembles import (
    ensemble_options,
    exact_shap,
    full_tree,
    leaf_scale,
    oblivious_tree,
    random_chain,
    random_ensemble,
    random_rows,
)
from helpers.instruction_sets import each_set, run_again
from helpers.kernels import TOLERANCE, explain, once, same_bits
from helpers.plans import ALWAYS_TABLES, interval_plan
from hypothesis import given, settings
from hypothesis import strategies as st

from skshapgpu import _core, reference
from skshapgpu._engine.costs import trees as costs
from skshapgpu.adapters.ensemble import Ensemble, Tree, attributes_of

#: Limits on the entries of a table: too low for most leaves, low, and enough for all trees of this file.
LIMITS = (8, 32, 200, 4096)

#: So many rows that building tables costs nothing in comparison.
MANY_ROWS = 1e9


def walk_of(ensemble: Ensemble, precision: str = "double", **options: Any) -> Any:
    return _core.Plan(attributes_of(ensemble), precision, **options)


def layout_of(plan: Any, most_entries: int = 4096, n_rows: float = MANY_ROWS, **prices: float) -> Any:
    return _core.IntervalLayout(plan, most_entries, n_rows, ALWAYS_TABLES | prices)


def tree_of(ensemble: Ensemble, tree: int) -> Ensemble:
    """Return an ensemble of one of the trees, without an intercept."""
    start, stop = ensemble.tree_offsets[tree : tree + 2]
    per_node = ["left", "right", "feature", "threshold", "missing_left", "cover", "value"]
    if len(ensemble.category_set):
        per_node.append("category_set")
    return replace(
        ensemble,
        tree_offsets=np.array([0, stop - start]),
        tree_output=ensemble.tree_output[tree : tree + 1],
        intercept=np.zeros(ensemble.n_outputs),
        **{name: getattr(ensemble, name)[start:stop] for name in per_node},
    )


def definition(ensemble: Ensemble, rows: np.ndarray, index: str = "SII") -> np.ndarray:
    """Compute SHAP values, or Banzhaf values for "BII", tree by tree: both are linear in the trees.

    Only the number of features of a single tree is limited, not the number of all features.
    """
    values = np.zeros((len(rows), ensemble.n_outputs, ensemble.n_features))
    for tree in range(ensemble.n_trees):
        one = tree_of(ensemble, tree)
        values += reference.path_dependent(one, rows, index="BV" if index == "BII" else "SV").values
    return values


def assert_values(plan: Any, ensemble: Ensemble, rows: np.ndarray, expected: np.ndarray) -> None:
    precision = plan.info()["precision"]
    values, margin = explain(plan, ensemble, rows)
    scale = leaf_scale(ensemble)
    assert (np.abs(values - expected) <= TOLERANCE[precision] * scale[:, np.newaxis]).all()
    rounding = 1e-14 * (np.abs(ensemble.intercept) + scale)
    assert (np.abs(margin - ensemble.margin(rows)) <= 1e-12 * scale + rounding).all()


def assert_is_the_definition(
    ensemble: Ensemble, rows: np.ndarray, *, index: str = "SII", most_entries: int = 4096
) -> list[dict[str, Any]]:
    """Compare the values of plans in both precisions; return the plans' ``info``."""
    expected, infos = definition(ensemble, rows, index), []
    for precision in ("single", "double"):
        plan = interval_plan(ensemble, precision, index=index, most_entries=most_entries)
        assert_values(plan, ensemble, rows, expected)
        infos.append(plan.info())
    return infos


# Values


@given(options=ensemble_options(), most_entries=st.sampled_from([0, 1, 2, 3, *LIMITS]))
@settings(max_examples=100)
def test_any_limit_on_the_entries(options: dict[str, Any], most_entries: int) -> None:
    """Trees are divided into units of a few leaves, and units whose tables would be too large are walked."""
    ensemble = random_ensemble(**options)
    rows = random_rows(options["seed"], ensemble, 33)
    for info in assert_is_the_definition(ensemble, rows, most_entries=most_entries):
        assert info["n_table_trees"] == 0 or most_entries > 0


@pytest.mark.parametrize("n_features", [17, 24, 32])
@pytest.mark.parametrize("n_outputs, vector", [(1, False), (3, False), (3, True)])
def test_several_windows(n_features: int, n_outputs: int, vector: bool) -> None:
    """A row of a table has sums of up to 16 features."""
    ensemble = random_ensemble(
        n_features,
        n_trees=60,
        n_features=n_features + 2,
        n_used=n_features,
        n_outputs=n_outputs,
        vector=vector,
        shapes=("random", "perfect", "oblivious"),
        max_leaves=12,
        categorical=True,
        zero_missing=True,
    )
    rows = random_rows(1, ensemble, 70)
    assert walk_of(ensemble).info()["n_features_used"] == n_features
    n_tables = []
    for most_entries in LIMITS:
        for info in assert_is_the_definition(ensemble, rows, most_entries=most_entries):
            assert 0 < info["n_table_trees"] <= info["n_trees"]
            n_tables.append(info["n_table_trees"])
    assert n_tables[0] < n_tables[-1] == n_tables[-2] == ensemble.n_trees


def test_models_of_many_features_are_walked() -> None:
    for n_features, n_tables in ((32, 11), (33, 0)):
        features = np.arange(33) % n_features
        trees = [
            replace(
                full_tree(np.random.default_rng(i), 2, 2),
                feature=features[[3 * i, 3 * i + 1, 3 * i + 2, *[0] * 4]],
            )
            for i in range(11)
        ]
        ensemble = Ensemble.from_trees(trees, n_features=40, intercept=1.0)
        rows = np.random.default_rng(0).random((50, 40))
        for info in assert_is_the_definition(ensemble, rows):
            assert info["n_features_used"] == n_features and info["n_table_trees"] == n_tables


@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize("precision", ["single", "double"])
def test_many_rows(precision: str, vector: bool) -> None:
    """More rows than a lookup or a thread takes at once have the same bits as in calls with few rows."""
    ensemble = random_ensemble(
        31,
        n_trees=9,
        n_features=6,
        n_outputs=2,
        vector=vector,
        shapes=("random",),
        max_leaves=12,
        categorical=True,
        zero_missing=True,
    )
    few = random_rows(32, ensemble, 101)
    plan = interval_plan(ensemble, precision, most_entries=256)
    assert plan.info()["n_table_trees"] > ensemble.n_trees / 2
    expected = explain(plan, ensemble, few)
    assert_values(plan, ensemble, few, definition(ensemble, few))
    n_copies = 360
    rows = np.tile(few, (n_copies, 1))
    assert len(rows) > 2 * 16384
    for n_threads in (1, 3):
        for result, of_few in zip(explain(plan, ensemble, rows, n_threads=n_threads), expected, strict=True):
            assert same_bits(result, np.concatenate([of_few] * n_copies))


@pytest.mark.parametrize("n_features", [9, 16])
def test_tables_of_short_rows_before_those_of_long_rows(n_features: int) -> None:
    """Three entries of eight sums end in the middle of a vector of 64 bytes."""
    rng = np.random.default_rng(n_features)
    short = Tree(
        left=[1, -1, 3, -1, -1],
        right=[2, -1, 4, -1, -1],
        feature=[0] * 5,
        threshold=[0.3, 0.0, 0.6, 0.0, 0.0],
        missing_left=[True] * 5,
        cover=[6.0, 2.0, 4.0, 1.0, 3.0],
        value=[0.0, 1.0, 0.0, 2.0, 4.0],
    )
    # Two trees for each table, which is then filled by whole vectors.
    stump = replace(full_tree(rng, 1, 1), threshold=np.full(3, 0.5), missing_left=np.full(3, True), output=1)
    long = [
        replace(stump, feature=np.full(3, feature), value=np.array([0.0, *rng.normal(size=2)]))
        for feature in range(n_features)
        for _ in range(2)
    ]
    ensemble = Ensemble.from_trees([short, *long], n_features=n_features, intercept=np.zeros(2))
    rows = rng.random((70, n_features))
    for info in assert_is_the_definition(ensemble, rows, most_entries=3):
        assert info["n_table_trees"] == ensemble.n_trees
    plan = walk_of(ensemble, "single")
    layout = layout_of(plan, 3)
    assert _core.interval_plan(plan, layout).info()["table_bytes"] == layout.info()["table_bytes"]


@pytest.mark.parametrize("n_features", [17, 25, 32])
@pytest.mark.parametrize("n_outputs", [1, 2])
def test_a_table_of_more_features_than_a_window(n_features: int, n_outputs: int) -> None:
    """No row reaches the right leaf below two contradicting splits, so the leaf's table has one entry.

    The chain has both splits for each feature, so the deepest leaves have all features on their paths.
    """
    depth, rng = 2 * n_features, np.random.default_rng(n_features)
    n_nodes = 2 * depth + 1
    left, right = np.full(n_nodes, -1), np.full(n_nodes, -1)
    level = np.arange(depth)
    onward, leaf = 2 * level + 1, 2 * level + 2
    node = np.concatenate([[0], onward[:-1]])
    first = level % 2 == 0  # x <= 0 goes on, then x > 1
    left[node], right[node] = np.where(first, onward, leaf), np.where(first, leaf, onward)
    feature, threshold = np.zeros(n_nodes, int), np.zeros(n_nodes)
    feature[node], threshold[node] = level // 2, np.where(first, 0.0, 1.0)
    cover = rng.integers(1, 9, n_nodes).astype(float)
    value = np.where(left[:, np.newaxis] < 0, rng.normal(size=(n_nodes, n_outputs)), 0.0)
    tree = Tree(left, right, feature, threshold, np.ones(n_nodes, bool), cover, value)
    ensemble = Ensemble.from_trees([tree], n_features=n_features, intercept=np.zeros(n_outputs))
    rows = rng.choice([-1.0, 0.5, 2.0, np.nan], (40, n_features))
    expected = np.array([exact_shap(ensemble, row) for row in rows])
    for precision in ("single", "double"):
        plan = interval_plan(ensemble, precision, most_entries=2)
        assert plan.info()["n_table_trees"] == 1
        assert_values(plan, ensemble, rows, expected)


@given(seed=st.integers(0, 2**32 - 1), most_entries=st.sampled_from([4, 6, 9, 27, 4096]))
@settings(max_examples=60)
def test_missing_values_go_either_way_at_one_threshold(seed: int, most_entries: int) -> None:
    """Splits repeat on a path with the other direction, so that only missing values reach some leaves."""
    rng = np.random.default_rng(seed)
    ensemble = random_ensemble(
        rng,
        n_trees=4,
        n_features=3,
        shapes=("random", "chain", "perfect"),
        max_leaves=14,
        strict=bool(seed % 2),
    )
    ensemble = replace(ensemble, threshold=rng.choice([0.0, 0.0, 1.0], ensemble.n_nodes))
    rows = np.array(list(product([-1.0, 0.0, 0.5, 1.0, 2.0, np.nan], repeat=3)))
    infos = assert_is_the_definition(ensemble, rows, most_entries=most_entries)
    assert infos[0]["n_table_trees"] == 4 or most_entries < 4096


@pytest.mark.parametrize("n_categories, n_tables", [(256, 3), (257, 1)])
def test_many_categories(n_categories: int, n_tables: int) -> None:
    """Trees that test a column of more than 256 categories are walked; the others have tables."""
    rng = np.random.default_rng(n_categories)
    trees = [full_tree(np.random.default_rng(seed), 3, 3) for seed in range(3)]
    sets = [np.flatnonzero(rng.random(n_categories) < 0.5) * 3 for _ in range(7)]
    sets[1] = 3 * np.arange(n_categories)  # all of them
    trees[0] = replace(trees[0], feature=np.arange(15) % 3, categories={i: sets[i] for i in (0, 3, 6)})
    trees[1] = replace(trees[1], feature=np.zeros(15, int), categories={i: sets[i] for i in (0, 1, 5)})
    trees[2] = replace(trees[2], feature=1 + np.arange(15) % 2)
    ensemble = Ensemble.from_trees(trees, n_features=3, intercept=0.0)
    rows = rng.random((300, 3))
    rows[:, 0] = np.concatenate(
        [rng.integers(-2, 3 * n_categories + 5, 290), [np.nan] * 5, [0, 1, 2, 3, 1e9]]
    )
    for info in assert_is_the_definition(ensemble, rows):
        assert info["n_table_trees"] == n_tables


@pytest.mark.parametrize("n_thresholds, n_tables", [(65_534, 2), (65_535, 0)])
def test_many_thresholds(n_thresholds: int, n_tables: int) -> None:
    """If a column has more thresholds than 16-bit codes can number, no tree has tables."""
    rng = np.random.default_rng(n_thresholds)
    depth = 16
    deep = full_tree(rng, depth, 1)
    level = np.repeat(np.arange(depth + 1), 2 ** np.arange(depth + 1))
    rank = ((np.arange(len(level)) - 2**level + 1) * 2 + 1) * 2.0 ** (depth - level - 1)  # 1, 2, ..., 65535
    deep = replace(deep, threshold=np.minimum(rank, n_thresholds), value=np.zeros(len(level)))
    small = replace(full_tree(rng, 3, 2), threshold=rng.choice([1.0, 2.0, 30_000.0, n_thresholds], 15))
    small = replace(small, threshold=np.where(np.asarray(small.feature) == 1, 0.5, small.threshold))
    ensemble = Ensemble.from_trees([deep, small], n_features=2, intercept=0.0, x_dtype="float64")
    first = [
        0,
        1,
        1.5,
        2,
        2.5,
        30_000,
        30_001,
        65_533,
        65_534,
        65_535,
        65_536,
        70_000,
        np.inf,
        -np.inf,
        np.nan,
    ]
    rows = np.array(list(product(first, [0.0, 1.0, np.nan])), float)
    expected = definition(Ensemble.from_trees([small], n_features=2, intercept=0.0, x_dtype="float64"), rows)
    for precision in ("single", "double"):
        plan = interval_plan(ensemble, precision, most_entries=64)
        assert plan.info()["n_table_trees"] == n_tables
        assert_values(plan, ensemble, rows, expected)


@pytest.mark.parametrize("depth, n_tables", [(64, 2), (65, 1)])
def test_deep_trees_are_walked(depth: int, n_tables: int) -> None:
    """Each leaf of the chain needs four entries: x0 and x1 are between two thresholds, or elsewhere."""
    level = np.arange(depth)
    chain = random_chain(depth, depth, 2)
    inner = np.flatnonzero(chain.left >= 0)
    end = np.where(chain.left[chain.left[inner]] >= 0, 1.0, -1.0)  # on the left: thresholds descend
    deep = Tree(
        chain.left,
        chain.right,
        np.where(chain.left >= 0, chain.feature, 0),
        np.zeros(chain.n_nodes),
        chain.missing_left,
        chain.cover,
        chain.value,
    )
    threshold = np.zeros(chain.n_nodes)
    low, high = np.full(2, -1000.0), np.full(2, 1000.0)
    for node, sign in zip(inner[level], end[level]):
        f = chain.feature[node]
        threshold[node] = (low[f] + high[f]) / 2
        (high if sign > 0 else low)[f] = threshold[node]
    trees = [replace(deep, threshold=threshold), full_tree(np.random.default_rng(0), 2, 2)]
    ensemble = Ensemble.from_trees(trees, n_features=2, intercept=0.0, x_dtype="float64")
    rows = random_rows(depth, ensemble, 200)
    for info in assert_is_the_definition(ensemble, rows, most_entries=4):
        assert info["n_table_trees"] == n_tables


@pytest.mark.parametrize("most_entries", [8, 32, 200])
@pytest.mark.parametrize("n_used", [1, 2, 3])
def test_repeated_features(most_entries: int, n_used: int) -> None:
    ensemble = random_ensemble(
        n_used,
        n_trees=6,
        n_features=4,
        n_used=n_used,
        shapes=("random", "chain", "perfect"),
        max_leaves=60,
        categorical=n_used > 1,
    )
    rows = random_rows(2, ensemble, 150)
    for info in assert_is_the_definition(ensemble, rows, most_entries=most_entries):
        assert info["n_repeated"] > 0 or info["n_table_trees"] == ensemble.n_trees
        assert info["n_table_trees"] > 0


@pytest.mark.parametrize("most_entries", LIMITS)
@pytest.mark.parametrize("n_outputs, vector", [(1, False), (2, False), (2, True)])
def test_banzhaf_values(most_entries: int, n_outputs: int, vector: bool) -> None:
    ensemble = random_ensemble(
        7, n_trees=20, n_features=20, n_outputs=n_outputs, vector=vector, max_leaves=12, categorical=True
    )
    rows = random_rows(3, ensemble, 60)
    for info in assert_is_the_definition(ensemble, rows, index="BII", most_entries=most_entries):
        assert info["n_table_trees"] > 0


@pytest.mark.parametrize("most_entries", [4, 64, 4096])
def test_a_plan_with_tables_of_level_uniform_trees(most_entries: int) -> None:
    """The trees of such a plan have tables by intervals, or are walked, like all other trees."""
    trees = [oblivious_tree(seed, 1 + seed % 6, 5) for seed in range(8)]
    trees += [full_tree(np.random.default_rng(seed), 3, 5) for seed in range(4)]
    ensemble = Ensemble.from_trees(trees, n_features=5, intercept=0.5)
    rows = random_rows(4, ensemble, 90)
    for precision in ("single", "double"):
        levels = walk_of(ensemble, precision, tables="level_uniform")
        assert levels.info()["n_table_trees"] == 8
        plan = _core.interval_plan(levels, layout_of(levels, most_entries))
        info = plan.info()
        assert info["n_trees"] == 12 and 0 < info["n_table_trees"] <= 12
        assert_values(plan, ensemble, rows, definition(ensemble, rows))
        np.testing.assert_array_equal(plan.base_value, levels.base_value)


def test_the_largest_limit() -> None:
    """Tables of more than 16,384 entries are never built."""
    for n_features, n_tables in ((14, 1), (15, 0)):
        ensemble = random_chain(1, n_features, n_features)
        layout = layout_of(walk_of(ensemble), 2**32 - 1)
        assert sum(group["n_lookups"] for group in layout.info()["groups"]) == n_tables
    for wrong in (-1, 2**32, 1.5):
        with pytest.raises(TypeError):
            layout_of(walk_of(ensemble), wrong)  # type: ignore[arg-type]


# The layout


@pytest.mark.parametrize("most_entries", LIMITS)
@pytest.mark.parametrize("precision", ["single", "double"])
def test_a_layout_says_what_the_plan_has(most_entries: int, precision: str) -> None:
    for seed, (n_outputs, vector) in enumerate([(1, False), (3, False), (3, True)]):
        ensemble = random_ensemble(
            seed,
            n_trees=25,
            n_features=24,
            n_outputs=n_outputs,
            vector=vector,
            shapes=("random", "perfect", "oblivious"),
            max_leaves=16,
        )
        plan = walk_of(ensemble, precision)
        layout = layout_of(plan, most_entries)
        told, made = layout.info(), _core.interval_plan(plan, layout).info()
        assert told["table_bytes"] == made["table_bytes"] > 0
        assert told["groups"] == made["groups"]
        assert sum(group["n_leaves"] for group in told["groups"]) == made["n_leaves"]
        again = _core.interval_plan(plan, layout)  # a layout can be used twice
        rows = random_rows(seed, ensemble, 100)
        values = [
            explain(each, ensemble, rows)[0]
            for each in (again, interval_plan(ensemble, precision, most_entries=most_entries))
        ]
        assert same_bits(*values)


@pytest.mark.parametrize(
    "n_rows, prices",
    [
        (MANY_ROWS, {"lookup": 1e9}),
        (MANY_ROWS, {"doubling": 1e9, "small_bytes": 1e-9}),
        (MANY_ROWS, {"leaf": 0.0, "leaf_node": 0.0, "lookup": 1e-9}),
        (MANY_ROWS, {"least_leaves": 1e9}),
        (1.0, {"unit_node": 1e9}),
        (1.0, {"entry": 1e9}),
        (1.0, {"byte": 1e9}),
        (0.0, {}),
    ],
)
def test_trees_whose_tables_do_not_pay_are_walked(n_rows: float, prices: dict[str, float]) -> None:
    ensemble = random_ensemble(5, n_trees=10, max_leaves=16, shapes=("random",))
    rows = random_rows(5, ensemble, 40)
    plan = walk_of(ensemble)
    layout = layout_of(plan, n_rows=n_rows, **prices)
    assert layout.info()["table_bytes"] == layout.info()["lookup_seconds"] == 0
    table_plan = _core.interval_plan(plan, layout)
    assert table_plan.info()["n_table_trees"] == 0
    assert_values(table_plan, ensemble, rows, definition(ensemble, rows))


def test_tables_only_for_trees_that_they_pay_for() -> None:
    """A lookup costs as much as walking five leaves, so it does not pay for trees of two leaves."""
    rng = np.random.default_rng(6)
    trees = [replace(full_tree(rng, depth, 4), output=i) for i, depth in enumerate((1, 5, 1))]
    ensemble = Ensemble.from_trees(trees, n_features=4, intercept=np.zeros(3))
    plan = walk_of(ensemble)
    layout = layout_of(plan, 256, leaf=1.0, leaf_node=0.0, lookup=5.0)
    table_plan = _core.interval_plan(plan, layout)
    assert table_plan.info()["n_table_trees"] == 1
    rows = random_rows(6, ensemble, 80)
    assert_values(table_plan, ensemble, rows, definition(ensemble, rows))


# Refusals


@pytest.mark.parametrize(
    "plan_of, message",
    [
        (lambda e: walk_of(e, order=2), "only plans for values"),
        (lambda e: walk_of(e, order=3), "only plans for values"),
        (lambda e: walk_of(e, method="fast_v2"), "only plans for values"),
        (lambda e: walk_of(e, method="treeshap"), "only plans for values"),
        (lambda e: walk_of(e, method="fast_v1"), "only plans for values"),
        (interval_plan, "the plan has tables by intervals"),
    ],
)
def test_other_plans_have_no_such_tables(plan_of: Any, message: str) -> None:
    plan = plan_of(random_ensemble(0, n_trees=4, shapes=("random",)))
    with pytest.raises(ValueError, match=message):
        layout_of(plan)


def test_plans_of_other_classes() -> None:
    ensemble = random_ensemble(0, n_trees=4, shapes=("random",))
    rows = np.zeros((2, ensemble.n_features)), np.full(2, 0.5)
    pairs = _core.BackgroundPairsPlan(attributes_of(ensemble), "double", *rows, "BII", 0)
    rescaled = _core.RescaledPlan(attributes_of(ensemble), "double", *rows, "logistic", 1.0)
    for plan in (pairs, rescaled, None):
        with pytest.raises(TypeError):
            layout_of(plan)


@pytest.mark.parametrize("name", ALWAYS_TABLES)
def test_a_missing_price(name: str) -> None:
    prices = {other: price for other, price in ALWAYS_TABLES.items() if other != name}
    with pytest.raises(ValueError, match=f"prices must have {name}$"):
        _core.IntervalLayout(walk_of(random_ensemble(0)), 32, 1.0, prices)


def test_an_unknown_price() -> None:
    with pytest.raises(ValueError, match="there is no price 'leaves'"):
        layout_of(walk_of(random_ensemble(0)), leaves=1.0)


def test_the_core_gets_the_prices_that_it_asks_for() -> None:
    for precision in ("single", "double"):
        assert costs.table_prices(precision).keys() == ALWAYS_TABLES.keys()
        _core.IntervalLayout(walk_of(random_ensemble(0)), 32, 1.0, costs.table_prices(precision))


def test_a_layout_of_another_plan() -> None:
    ensemble = random_ensemble(1, n_trees=3)
    plan, same = walk_of(ensemble), walk_of(ensemble)
    layout = layout_of(plan)
    with pytest.raises(ValueError, match="the layout is of another plan"):
        _core.interval_plan(same, layout)
    with pytest.raises(ValueError, match="the layout is of another plan"):
        _core.interval_plan(_core.interval_plan(plan, layout), layout)
    with pytest.raises(ValueError, match="n_threads must be at least 1"):
        _core.interval_plan(plan, layout, 0)


def test_a_layout_keeps_its_plan() -> None:
    """Plans are compared by address; if a layout did not keep its plan, another could get its address."""
    ensemble = random_ensemble(1, n_trees=3)
    layout = layout_of(walk_of(ensemble))
    for _ in range(20):
        with pytest.raises(ValueError, match="the layout is of another plan"):
            _core.interval_plan(walk_of(ensemble), layout)


# Other instruction sets


@once
@each_set
def test_other_instruction_sets(isa: str) -> None:
    run_again(isa, __file__)


@once
def test_large_models_whose_tables_would_not_fit_are_not_laid_out() -> None:
    """A sample of the trees shows that tables would not fit, so the other trees are not laid out."""
    ensemble = random_ensemble(3, n_trees=600, shapes=("balanced", "random"), max_leaves=30)
    assert ensemble.n_leaves > 8192
    plan = walk_of(ensemble)
    full = _core.IntervalLayout(plan, 256, 1e9, ALWAYS_TABLES).info()
    assert full["table_bytes"] > 0
    assert _core.IntervalLayout(plan, 256, 1e9, ALWAYS_TABLES, full["table_bytes"]).info() == full
    none = _core.IntervalLayout(plan, 256, 1e9, ALWAYS_TABLES, full["table_bytes"] / 100).info()
    assert none["table_bytes"] == 0 and all(group["algorithm"] == "quadrature" for group in none["groups"])
