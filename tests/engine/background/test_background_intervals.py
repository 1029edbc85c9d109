"""Tables by intervals against background data: the core against the definition, memory, and calls."""

from __future__ import annotations

import gc
from dataclasses import replace
from itertools import product
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
    random_weights,
)
from helpers.instruction_sets import each_set, run_again
from helpers.kernels import TOLERANCE, explain, once, same_bits
from helpers.plans import ALWAYS_TABLES, with_intervals
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

from skshapgpu import TreeExplainer, _core, reference
from skshapgpu._engine.costs import trees as costs
from skshapgpu.adapters.ensemble import Ensemble, attributes_of

X, Y = load_diabetes(return_X_y=True)

#: Memory for background tables, in bytes: enough for all leaves, for some, and for none.
TABLES = (2**24, 3000, 0)


def plan_of(
    ensemble: Ensemble,
    background: np.ndarray,
    weights: np.ndarray | None = None,
    precision: str = "double",
    table_bytes: int = TABLES[0],
    stored: dict[str, np.ndarray] | None = None,
) -> Any:
    if weights is None:
        weights = np.full(len(background), 1 / len(background))
    return _core.background_plan(
        attributes_of(ensemble), precision, background, weights, "SII", table_bytes, stored=stored
    )


def assert_values(
    plan: Any, ensemble: Ensemble, rows: np.ndarray, expected: reference.ReferenceValues
) -> None:
    tolerance, scale = TOLERANCE[plan.info()["precision"]], leaf_scale(ensemble)
    values, margin = explain(plan, ensemble, rows)
    assert (np.abs(values - expected.values) <= tolerance * scale[:, np.newaxis]).all()
    intercept = 1e-14 * (np.abs(ensemble.intercept) + scale)
    assert (np.abs(margin - ensemble.margin(rows)) <= 1e-12 * scale + intercept).all()
    assert (np.abs(plan.base_value - expected.base_value) <= tolerance * scale + intercept).all()


@given(
    options=ensemble_options(max_used=5),
    n_background=st.sampled_from([1, 2, 9]),
    most_entries=st.sampled_from([0, 1, 3, 8, 32, 4096]),
)
@settings(max_examples=40)
def test_any_limit_on_the_entries(options: dict[str, Any], n_background: int, most_entries: int) -> None:
    """Rows at the edges of every comparison; trees whose leaves lack background tables keep the others."""
    ensemble = random_ensemble(**options)
    rows = random_rows(options["seed"], ensemble, n_background + 20)
    background, rows = rows[:n_background], rows[n_background:]
    weights = random_weights(options["seed"], n_background)
    expected = reference.interventional(ensemble, rows, background, weight=weights)
    for precision, table_bytes in product(TOLERANCE, TABLES):
        plan = plan_of(ensemble, background, weights, precision, table_bytes)
        table_plan = with_intervals(plan, most_entries)
        assert table_plan.info()["n_trees"] == plan.info()["n_trees"]
        assert_values(table_plan, ensemble, rows, expected)


@pytest.mark.parametrize("shape", ["random", "chain", "perfect", "oblivious"])
@pytest.mark.parametrize("vector", [False, True])
def test_each_shape_of_trees(shape: str, vector: bool) -> None:
    """More rows than a block, more features than a window, and units of several background tables."""
    ensemble = random_ensemble(
        4,
        n_trees=12,
        n_features=20,
        n_used=18,
        n_outputs=2,
        vector=vector,
        shapes=(shape,),
        max_leaves=12,
        categorical=True,
        zero_missing=True,
    )
    rows = random_rows(4, ensemble, 75)
    background, rows = rows[:5], rows[5:]
    trees = [reference.interventional(tree, rows, background) for tree in one_by_one(ensemble)]
    expected = reference.ReferenceValues(
        np.sum([tree.values for tree in trees], axis=0), np.sum([tree.base_value for tree in trees], axis=0)
    )
    for precision in TOLERANCE:
        plan = plan_of(ensemble, background, precision=precision)
        for most_entries in (16, 200, 4096):
            table_plan = with_intervals(plan, most_entries)
            assert_values(table_plan, ensemble, rows, expected)
        assert table_plan.info()["n_lookups"] < plan.info()["n_lookups"]


def one_by_one(ensemble: Ensemble) -> list[Ensemble]:
    """Return an ensemble of each tree; the first has the intercept."""
    parts = []
    for tree in range(ensemble.n_trees):
        start, stop = ensemble.tree_offsets[tree : tree + 2]
        names = ["left", "right", "feature", "threshold", "missing_left", "cover", "value", "category_set"]
        parts.append(
            replace(
                ensemble,
                tree_offsets=np.array([0, stop - start]),
                tree_output=ensemble.tree_output[tree : tree + 1],
                intercept=ensemble.intercept * (tree == 0),
                **{n: getattr(ensemble, n)[start:stop] for n in names if len(getattr(ensemble, n))},
            )
        )
    return parts


def test_a_leaf_whose_table_is_too_large() -> None:
    """The path of 12 features needs 4,096 entries: its tree keeps its background tables, another does not."""
    chain = random_chain(0, 12, 12)
    ensemble = Ensemble.from_trees(
        [chain_tree(chain), full_tree(np.random.default_rng(1), 3, 12)], n_features=12, intercept=1.0
    )
    rows = np.random.default_rng(0).random((40, 12))
    expected = reference.interventional(ensemble, rows, rows[:3])
    plan = plan_of(ensemble, rows[:3])
    for most_entries, n_left in ((256, 1), (4096, 0)):
        table_plan = with_intervals(plan, most_entries)
        assert_values(table_plan, ensemble, rows, expected)
        assert (table_plan.info()["borrowed_bytes"] > 0) == (n_left > 0)
        # There is a group for the remaining background tables and a group for the tables by intervals.
        assert [group["n_trees"] for group in table_plan.info()["groups"]] == ([1, 1] if n_left else [2])


def chain_tree(ensemble: Ensemble) -> Any:
    """Return the only tree of an ensemble, as from_trees takes it."""
    from skshapgpu.adapters.ensemble import Tree

    names = ("left", "right", "feature", "threshold", "missing_left", "cover", "value")
    return Tree(*(getattr(ensemble, name) for name in names))


def test_the_other_plan_may_be_dropped() -> None:
    """A plan borrows the background tables of trees that keep them, so it must keep these tables alive."""
    ensemble = random_ensemble(3, n_trees=30, n_features=6, max_leaves=30, shapes=("random",))
    rows = random_rows(3, ensemble, 90)
    expected = reference.interventional(ensemble, rows, rows[:4])
    filled = plan_of(ensemble, rows[:4], table_bytes=2**20)
    contents = {name: np.array(array) for name, array in filled.contents().items()}
    prices = ALWAYS_TABLES | {"lookup": 1.5, "leaf": 0.0}  # some trees keep their tables
    for stored in (None, contents):
        plan = plan_of(ensemble, rows[:4], table_bytes=2**20, stored=stored)
        table_plan = _core.interval_plan(plan, _core.IntervalLayout(plan, 64, 1e9, prices))
        info = table_plan.info()
        assert 0 < info["borrowed_bytes"] < info["table_bytes"]
        del plan
        gc.collect()
        other = plan_of(ensemble, rows[5:9], table_bytes=2**20)  # takes the memory, if it is free
        assert_values(table_plan, ensemble, rows, expected)
        del other


def test_threads_and_neighbours_change_no_bit() -> None:
    ensemble = random_ensemble(8, n_trees=20, n_features=6, max_leaves=16)
    rows = random_rows(8, ensemble, 330)
    plan = plan_of(ensemble, rows[300:], precision="single")
    table_plan = with_intervals(plan, 128)
    expected = explain(table_plan, ensemble, rows)[0]
    for n_threads in (2, 3):
        same = with_intervals(plan, 128, n_threads)
        assert same_bits(explain(same, ensemble, rows, n_threads=n_threads)[0], expected)
    for part in (slice(0, 1), slice(17, 90), slice(None, None, -1)):
        assert same_bits(explain(table_plan, ensemble, rows[part])[0], expected[part])


@pytest.mark.parametrize(
    "n_rows, prices", [(0.0, {}), (1.0, {"byte": 1e9}), (1e9, {"table": 0.0, "leaf": 0.0})]
)
def test_trees_whose_tables_do_not_pay(n_rows: float, prices: dict[str, float]) -> None:
    """They keep their background tables, whose values have the same bits."""
    ensemble = random_ensemble(5, n_trees=10, n_features=4, max_leaves=16, shapes=("random",))
    rows = random_rows(5, ensemble, 40)
    plan = plan_of(ensemble, rows[:3])
    layout = _core.IntervalLayout(plan, 256, n_rows, ALWAYS_TABLES | prices)
    assert layout.info()["table_bytes"] == 0
    table_plan = _core.interval_plan(plan, layout)
    assert (
        table_plan.info()["table_bytes"] == table_plan.info()["borrowed_bytes"] == plan.info()["table_bytes"]
    )
    for one, other in zip(explain(table_plan, ensemble, rows), explain(plan, ensemble, rows), strict=True):
        assert same_bits(one, other)


@once
@pytest.mark.parametrize("precision", ["single", "double"])
@pytest.mark.parametrize("classifier", [False, True])
def test_calls_of_many_rows(classifier: bool, precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls with few rows use the background tables, and calls with many rows use tables by intervals."""
    monkeypatch.setattr(costs, "_CPU_LOOKUP", 1.0)  # tables by intervals always pay
    if classifier:
        model: Any = RandomForestClassifier(12, max_depth=5, random_state=0).fit(X, Y // 100)
    else:
        model = RandomForestRegressor(12, max_depth=5, random_state=0).fit(X, Y + 1e4)
    data, weights = X[:30], np.arange(1.0, 31.0)
    rows = np.resize(X, (3000, X.shape[1]))
    explainer = TreeExplainer(model, data, data_weight=weights, device="cpu", precision=precision)
    few, many = explainer.plan(200), explainer.plan(len(rows))
    assert few.build_seconds == 0 < many.build_seconds
    assert sum(g.n_lookups for g in many.tree_groups) < sum(g.n_lookups for g in few.tree_groups)
    expected = np.concatenate([explainer.shap_values(rows[i : i + 200]) for i in range(0, 3000, 200)])
    values = explainer.shap_values(rows)
    largest = np.abs(expected).max()
    assert 0 < largest and np.abs(values - expected).max() <= TOLERANCE[precision] * largest
    for n_jobs in (1, 3):
        again = TreeExplainer(
            model, data, data_weight=weights, device="cpu", precision=precision, n_jobs=n_jobs
        )
        assert same_bits(again.shap_values(rows), values)


@once
def test_which_explainers_have_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only values of the margin have tables by intervals, and only without a memory limit."""
    monkeypatch.setattr(costs, "_CPU_LOOKUP", 1.0)  # tables by intervals always pay
    model = RandomForestClassifier(12, max_depth=5, random_state=0).fit(X, Y > 140)

    def n_built(index: str = "SV", **options: Any) -> int:
        explainer = TreeExplainer(model, X[:10], device="cpu", **options)
        explainer.explain(np.resize(X, (2000, X.shape[1])), index=index)
        return len([key for key in explainer._compiled.table_sizes if key[1].most_entries])

    assert n_built() == n_built(index="BV") == 1
    assert n_built(memory_limit="1 GB") == 0


# Other instruction sets


@once
@each_set
def test_other_instruction_sets(isa: str) -> None:
    run_again(isa, __file__)
