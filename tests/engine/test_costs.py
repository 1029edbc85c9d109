"""The cost model of calls, and the choice of tables and devices that results from it."""

from __future__ import annotations

import pickle
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.plans import ALWAYS_TABLES
from sklearn.datasets import load_diabetes
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.tree import DecisionTreeRegressor

from skshapgpu import TreeExplainer, _core, cuda_info
from skshapgpu._common.algorithms import SHAP_VALUES
from skshapgpu._common.memory import parse_bytes, shown
from skshapgpu._engine.costs.baselines import comparison_seconds
from skshapgpu._engine.costs.trees import (
    LEAST_TABLE_ROWS,
    TableLayout,
    TreeGroup,
    cpu_row_seconds,
    cpu_seconds,
    cuda_seconds,
    least_cell_saving,
    table_prices,
    table_size,
    typical_rows,
)
from skshapgpu.adapters.ensemble import attributes_of

X, Y = load_diabetes(return_X_y=True)


@pytest.fixture(scope="module")
def forest() -> RandomForestRegressor:
    return RandomForestRegressor(20, max_depth=6, random_state=0).fit(X, Y)


def explainer_of(model: Any, *args: Any, **options: Any) -> TreeExplainer:
    return TreeExplainer(model, *args, **{"device": "cpu", "n_jobs": 1, **options})


def algorithms(explainer: TreeExplainer, n_rows: int) -> set[str]:
    return {group.algorithm for group in explainer.plan(n_rows).tree_groups}


def walked(n_nodes: int, n_leaves: int = 10_000) -> TreeGroup:
    return TreeGroup("quadrature", n_nodes, 100, n_leaves, n_leaves, 0, 0, 0)


def tables(n_nodes: int, n_lookups: int, table_bytes: int, n_places: int = 0) -> TreeGroup:
    return TreeGroup("tables", n_nodes, 100, 10_000, 0, n_lookups, n_places, table_bytes)


def test_costs_grow_with_the_work() -> None:
    for group in (walked(3), tables(3, 500, 4_000_000)):
        assert cpu_seconds([group], 10, 1) < cpu_seconds([group], 10_000, 1) < cpu_seconds([group], 10**6, 1)
        assert cpu_seconds([group], 10**6, 8) < cpu_seconds([group], 10**6, 1) / 6
    assert cpu_seconds([walked(3)], 1000, 1) < cpu_seconds([walked(5)], 1000, 1)
    assert cpu_seconds([walked(3)], 1000, 1) < cpu_seconds([walked(3)], 1000, 1, work=3)
    assert cpu_seconds([walked(3)], 1000, 1) < cpu_seconds([walked(3)], 1000, 1, precision="double")
    assert cuda_seconds([walked(3)], 10**6) < cuda_seconds([walked(3)], 10**6, precision="double")
    assert cpu_row_seconds(1000, 10, 1, 1) < cpu_row_seconds(1000, 10, 3, 1) < cpu_row_seconds(1000, 30, 3, 1)
    layout = TableLayout(512, (walked(3), tables(3, 500, 4_000_000)), 4_000_000, 1e-6, 1e-3)
    seconds = layout.call_seconds(10**6, 1, 1.0, "single")
    assert seconds == cpu_seconds([walked(3)], 10**6, 1) + 1.0
    assert layout.call_seconds(10**6, 8, 1.0, "single") < seconds / 6


def test_larger_tables_are_for_more_rows() -> None:
    assert table_size(100) == 0
    sizes = [table_size(n_rows) for n_rows in (1024, 4096, 10_000, 100_000, 10**9)]
    assert 0 < sizes[0] < sizes[1] < sizes[2] < sizes[3] == sizes[4]
    assert all(table_size(int(typical_rows(size))) == size for size in sizes)


def test_cells_must_save_more_if_their_number_is_uncertain() -> None:
    narrow, wide = (least_cell_saving(1.0, n_sums, over_tables=False) for n_sums in (8, 54))
    assert 0 < narrow < least_cell_saving(1.0, 8, over_tables=True) < wide < 1
    assert least_cell_saving(1.0, 54, over_tables=True) == wide
    assert least_cell_saving(1e-3, 8, over_tables=False) > 1e-3  # tiles of rows are not made for so little


def test_a_call_does_what_the_plan_says(forest: RandomForestRegressor) -> None:
    explainer = explainer_of(forest)
    few, many = explainer.plan(len(X)), explainer.plan(1_000_000)
    assert algorithms(explainer, len(X)) == {"quadrature"}
    assert algorithms(explainer, 1_000_000) == {"tables"}
    for plan in (few, many):
        assert sum(group.n_trees for group in plan.tree_groups) == 20
        assert sum(group.n_leaves for group in plan.tree_groups) == explainer.model_info()["n_leaves"]
        assert plan.device == "cpu" and plan.seconds > plan.build_seconds >= 0
        assert plan.result_bytes == plan.n_rows * X.shape[1] * 8
    assert few.table_bytes == few.build_seconds == 0 < many.build_seconds
    assert explainer.plan(1_000_000) == many

    # The bits of a result tell which method has computed it.
    n_rows = next(n for n in range(5_000, 500_000, 5_000) if explainer.plan(n).table_bytes)
    rows = np.resize(X, (n_rows, X.shape[1]))
    quadrature = explainer_of(forest, algorithm="quadrature").shap_values(rows)
    size = table_size(n_rows)
    plan = _core.Plan(attributes_of(explainer._compiled.ensemble), "single")
    layout = _core.IntervalLayout(plan, size, typical_rows(size), table_prices("single"))
    expected = np.empty((n_rows, 1, X.shape[1]))
    _core.interval_plan(plan, layout).explain(rows, expected, None, 1)
    expected = expected[:, 0]
    assert (quadrature != expected).any()
    np.testing.assert_array_equal(explainer.shap_values(rows), expected)
    np.testing.assert_array_equal(explainer.shap_values(X), quadrature[: len(X)])
    np.testing.assert_allclose(expected, quadrature, rtol=0, atol=1e-5 * np.abs(Y).max())


def test_tables_for_expected_rows(forest: RandomForestRegressor) -> None:
    explainer, expecting = explainer_of(forest), explainer_of(forest, expected_rows=np.int64(1_000_000))
    n_rows = LEAST_TABLE_ROWS
    assert algorithms(explainer, n_rows) == algorithms(expecting, n_rows - 1) == {"quadrature"}
    assert algorithms(expecting, n_rows) == {"tables"}
    # Every call uses the tables that a call with all expected rows would use.
    for size in (n_rows, 1_000_000):
        assert expecting.plan(size).tree_groups == explainer.plan(1_000_000).tree_groups
    rows = np.resize(X, (n_rows, X.shape[1]))
    walked = explainer.shap_values(rows)
    values = expecting.shap_values(rows)
    assert (walked != values).any()
    np.testing.assert_allclose(values, walked, rtol=0, atol=1e-5 * np.abs(Y).max())
    np.testing.assert_array_equal(values, pickle.loads(pickle.dumps(expecting)).shap_values(rows))
    # A larger call is what is expected from then on.
    assert expecting.plan(10**8) == explainer.plan(10**8)
    assert algorithms(explainer_of(forest, expected_rows=1), n_rows) == {"quadrature"}


@pytest.mark.parametrize(
    ("call", "building", "has_tables"),
    [
        (0.5, 0.2, True),
        (0.5, 0.49, True),  # they pay in the second call
        (0.5, 0.51, False),  # the first call would take longer
        (0.93, 0.06, False),  # two calls save 4 %
        (0.91, 0.06, True),
    ],
)
def test_tables_pay_within_two_calls(
    forest: RandomForestRegressor,
    monkeypatch: pytest.MonkeyPatch,
    call: float,
    building: float,
    has_tables: bool,
) -> None:
    monkeypatch.setattr("skshapgpu._engine.costs.trees.LEAST_CELL_ROWS", sys.maxsize)  # no alternative
    n_rows, explainer = 100_000, explainer_of(forest)
    compiled = explainer._compiled
    walking = cpu_seconds(explainer_of(forest, algorithm="quadrature").plan(n_rows).tree_groups, n_rows, 1)
    per_row = (call * walking - cpu_seconds((), n_rows, 1)) / n_rows
    layout = TableLayout(table_size(n_rows), (tables(3, 20, 1000),), 1000, per_row, building * walking)
    monkeypatch.setattr(compiled.of(SHAP_VALUES), "layout", lambda *_: layout)
    assert (algorithms(explainer, n_rows) == {"tables"}) == has_tables


def test_tables_are_laid_out_for_the_walks_that_plans_count() -> None:
    rows = np.random.default_rng(0).normal(size=(500, 3))
    tree = DecisionTreeRegressor(max_depth=5).fit(rows, (rows @ [3, 2, 1]) ** 2)
    plan = _core.Plan(attributes_of(explainer_of(tree)._compiled.ensemble), "single")
    free = dict.fromkeys(ALWAYS_TABLES, 0.0) | {"small_bytes": 1e9, "line_bytes": 1e9, "leaf_node": 1.0}

    def laid_out(lookup: float) -> tuple[dict[str, Any], ...]:
        return tuple(_core.IntervalLayout(plan, 65536, 1.0, free | {"lookup": lookup}).info()["groups"])

    (group,), (in_tables,) = plan.info()["groups"], laid_out(0.0)
    assert group["n_nodes"] == 2 and in_tables["algorithm"] == "tables"
    as_walked = group["n_nodes"] * group["n_leaves"] / in_tables["n_lookups"]
    assert laid_out(0.9 * as_walked) == (in_tables,)
    assert laid_out(1.1 * as_walked)[0]["algorithm"] == "quadrature"


def test_expected_rows_of_a_file(forest: RandomForestRegressor, tmp_path: Path) -> None:
    path, rows = tmp_path / "forest.skshap", np.resize(X, (1000, X.shape[1]))
    explainer_of(forest).save(path)
    for expected_rows in (None, 10**6):
        loaded = TreeExplainer.load(path, device="cpu", expected_rows=expected_rows)
        explainer = explainer_of(forest, expected_rows=expected_rows)
        assert loaded.plan(1000) == explainer.plan(1000)
        np.testing.assert_array_equal(loaded.shap_values(rows), explainer.shap_values(rows))


@pytest.mark.parametrize(("expected_rows", "error"), [(0, ValueError), (-5, ValueError), (1.5, TypeError)])
def test_invalid_expected_rows(forest: RandomForestRegressor, expected_rows: Any, error: type) -> None:
    with pytest.raises(error, match="expected_rows"):
        explainer_of(forest, expected_rows=expected_rows)


def test_no_tables_for_a_call_under_a_memory_limit(forest: RandomForestRegressor) -> None:
    explainer = explainer_of(forest, memory_limit="100GB", expected_rows=10**9)
    assert algorithms(explainer, 10**9) == {"quadrature"}


@pytest.mark.parametrize("algorithm", ["quadrature", "treeshap", "fast_v1"])
def test_other_algorithms_make_no_tables(forest: RandomForestRegressor, algorithm: str) -> None:
    explainer = explainer_of(forest, algorithm=algorithm)
    plan = explainer.plan(10**9)
    assert plan.table_bytes == plan.build_seconds == 0
    assert plan.seconds > 0 and (algorithm != "quadrature") == (not plan.tree_groups)


def test_an_algorithm_that_was_not_measured_costs_as_much_as_treeshap() -> None:
    groups = [TreeGroup("unknown", 3, 10, 80, 80, 0, 0, 0)]
    fast, slow, unknown = (
        comparison_seconds(name, groups, 1000, 1) for name in ("fast_v1", "treeshap", "unknown")
    )
    assert fast < slow == unknown


def test_paths_too_long_for_tables_are_walked() -> None:
    """A group of trees with a path of more than 16 features has no tables; groups with shorter paths do."""
    rng = np.random.default_rng(0)
    wide = rng.normal(size=(2000, 30))
    model = HistGradientBoostingRegressor(max_iter=3, max_depth=25, max_leaf_nodes=None, min_samples_leaf=1)
    model.fit(wide, wide @ np.arange(30) + rng.normal(size=2000))
    explainer = explainer_of(model)
    longest = max(group.n_nodes for group in explainer.plan(1).tree_groups)
    assert longest > 8
    groups = explainer.plan(10**9).tree_groups
    assert all(group.algorithm in ("quadrature", "cells") for group in groups if group.n_nodes > 8)


def test_interventional_values_and_functions_of_the_margin(forest: RandomForestRegressor) -> None:
    assert algorithms(explainer_of(forest, X[:50]), 10) == {"tables"}
    classifier = HistGradientBoostingClassifier(max_iter=5).fit(X, Y > 150)
    plan = explainer_of(classifier, X[:50], model_output="probability").plan(10)
    assert plan.tree_groups == () and plan.seconds > 0


def test_leaves_of_several_outputs_take_longer() -> None:
    """One forest of three outputs has three numbers per leaf; boosting has separate trees for each output."""
    one, three = (
        RandomForestRegressor(10, max_depth=5, random_state=0).fit(X, np.column_stack([Y] * n).squeeze())
        for n in (1, 3)
    )
    plans = [explainer_of(model, algorithm="quadrature").plan(10_000) for model in (one, three)]
    assert plans[0].tree_groups[0].n_leaves == plans[1].tree_groups[0].n_leaves
    assert 1.5 < plans[1].seconds / plans[0].seconds < 3


def test_it_can_be_read(forest: RandomForestRegressor) -> None:
    text = str(explainer_of(forest).plan(1_000_000))
    assert "1,000,000 rows on cpu" in text and "20 trees" in text and "building the tables" in text
    assert "tables" not in str(explainer_of(forest).plan(10))
    alike = replace(explainer_of(forest).plan(10), tree_groups=(), build_seconds=1.0)  # as on a GPU
    assert str(alike).endswith("building the tables takes about 1 s of the time")
    plan = explainer_of(forest).plan(300_000)
    assert plan.result_bytes == 300_000 * X.shape[1] * 8 and plan.peak_bytes < 1.2 * plan.result_bytes + 2**28
    assert f"; {shown(plan.result_bytes)} of SHAP values, at most {shown(plan.peak_bytes)} of memory" in str(
        plan
    )


@pytest.mark.parametrize(
    ("n_bytes", "text"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (1024, "1 KiB"), (24_000_000, "23 MiB"), (5 * 2**40, "5 TiB")],
)
def test_bytes_for_readers(n_bytes: int, text: str) -> None:
    assert shown(n_bytes) == text
    assert n_bytes < 1024 or abs(parse_bytes(text) / n_bytes - 1) < 0.05


def test_why_it_is_not_on_a_gpu(forest: RandomForestRegressor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SKSHAPGPU_DEVICE", raising=False)
    plan = explainer_of(forest).plan(10)
    assert plan.cpu_reason == "the device is 'cpu'" and "\nnot on a GPU: the device is 'cpu'\n" in str(plan)
    softmax = HistGradientBoostingClassifier(max_iter=3).fit(X[:, :4], np.digitize(Y, [80, 200]))
    plan = TreeExplainer(softmax, X[:9, :4], model_output="probability", device="auto").plan(10)
    assert plan.cpu_reason == "these values are computed on the CPU only"
    plan = TreeExplainer(forest, device="auto").plan(10)
    assert plan.cpu_reason == (cuda_info()["reason"] or "the CPU is estimated to be faster")


@pytest.mark.parametrize("n_rows", [-1, 1.5, "10", None])
def test_not_a_number_of_rows(forest: RandomForestRegressor, n_rows: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="n_rows"):
        explainer_of(forest).plan(n_rows)


def test_copies_decide_alike(forest: RandomForestRegressor) -> None:
    import pickle

    explainer = explainer_of(forest)
    assert pickle.loads(pickle.dumps(explainer)).plan(10**6) == explainer.plan(10**6)
