"""Memory of tables by intervals: which tables are built, kept and dropped, also with several threads."""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Thread
from typing import Any

import numpy as np
import pytest
from helpers.kernels import once, run, same_bits
from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor
from sklearn.tree import DecisionTreeRegressor

from skshapgpu import TreeExplainer
from skshapgpu._common import memory
from skshapgpu._common.algorithms import BANZHAF_VALUES, SHAP_VALUES
from skshapgpu._engine.costs import trees as costs
from skshapgpu._engine.kind_plans import Intervals, KindPlan
from skshapgpu.adapters import sum_of_models

X, Y = load_diabetes(return_X_y=True)


@pytest.fixture(autouse=True)
def no_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let cells that occur not be an alternative to tables."""
    monkeypatch.setattr(costs, "LEAST_CELL_ROWS", sys.maxsize)


@once
def test_tables_are_dropped_for_others_and_built_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory suffices for the tables of the largest calls alone, or for several smaller calls' tables."""
    monkeypatch.setitem(costs._WALK_FACTOR, costs.instruction_set(), 1000.0)  # tables always pay
    forest = RandomForestRegressor(20, max_depth=6, random_state=0).fit(X, Y)
    calls = [(size, index) for size in (1024, 4096, 16384) for index in ("SV", "BV")]
    rows = np.resize(X, (16384, X.shape[1]))

    def values(explainer: TreeExplainer, size: int, index: str) -> np.ndarray:
        return explainer.explain(rows[:size], index=index).values

    free = TreeExplainer(forest, device="cpu")
    expected = {call: values(free, *call) for call in calls}
    sizes = {size: free.plan(size).table_bytes for size, _ in calls}
    assert 0 < sizes[1024] < sizes[4096] < sizes[16384]
    assert len([key for key in free._compiled.table_sizes if key[1].most_entries]) == len(calls)

    room = sizes[16384] + sizes[1024]
    monkeypatch.setattr(memory, "TABLE_BYTES", room)
    explainer = TreeExplainer(forest, device="cpu")
    n_dropped, before = 0, list[Any]()
    for call in [*calls, *calls[::-1], *calls]:
        np.testing.assert_array_equal(values(explainer, *call), expected[call])
        kept_keys = [key for key in explainer._compiled.table_sizes if key[1].most_entries]
        in_order = [*before, *(key for key in kept_keys if key not in before)]
        assert kept_keys == in_order[-len(kept_keys) :]  # the oldest tables are dropped first
        n_dropped += len(in_order) - len(kept_keys)
        before = kept_keys
        assert explainer._compiled.table_bytes <= room
        compiled_keys = {
            (kind, key)
            for kind in (SHAP_VALUES, BANZHAF_VALUES)
            for key in explainer._compiled.of(kind)._plans
        }
        assert explainer._compiled.table_sizes.keys() == compiled_keys
    assert n_dropped >= len(calls)
    assert (
        explainer._compiled.of(SHAP_VALUES).plan().info()["n_table_trees"] == 0
    )  # plans without tables stay


@once
def test_calls_of_several_sizes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads drop each other's tables while they are in use."""
    monkeypatch.setitem(costs._WALK_FACTOR, costs.instruction_set(), 1000.0)  # tables always pay
    forest = RandomForestRegressor(20, max_depth=6, random_state=0).fit(X, Y)
    rows = np.resize(X, (16384, X.shape[1]))
    calls = [1024, 4096, 16384] * 10
    free = TreeExplainer(forest, device="cpu")
    expected = {size: free.shap_values(rows[:size]) for size in calls[:3]}
    room = free.plan(16384).table_bytes
    monkeypatch.setattr(memory, "TABLE_BYTES", room)
    explainer = TreeExplainer(forest, device="cpu")
    with ThreadPoolExecutor(4) as pool:
        result = pool.map(lambda size: explainer.shap_values(rows[:size]), calls)
        for size, values in zip(calls, result):
            np.testing.assert_array_equal(values, expected[size])
    assert 0 < explainer._compiled.table_bytes <= room


@once
def test_two_first_calls_at_once_lay_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A layout that is ready only after the tables have been built would be kept in vain."""
    monkeypatch.setitem(costs._WALK_FACTOR, costs.instruction_set(), 1000.0)  # tables always pay
    forest = RandomForestRegressor(20, max_depth=6, random_state=0).fit(X, Y)
    rows = np.resize(X, (1024, X.shape[1]))
    explainer = TreeExplainer(forest, device="cpu")
    results, laid_out, lay_out = list[np.ndarray](), list[Intervals](), KindPlan.lay_out
    other = Thread(target=lambda: results.append(explainer.shap_values(rows)))

    def lay_out_slowly(plans: KindPlan, plan: Any, intervals: Intervals) -> Any:
        laid_out.append(intervals)
        if len(laid_out) == 1:
            other.start()
            other.join(0.5)  # the time for a whole call, but it has to wait for this one
        return lay_out(plans, plan, intervals)

    monkeypatch.setattr(KindPlan, "lay_out", lay_out_slowly)
    results.append(explainer.shap_values(rows))
    other.join()
    assert laid_out == [Intervals(costs.table_size(1024)), Intervals(costs.MERGED_ONLY)]
    assert same_bits(*results)
    assert explainer._compiled.table_bytes > 0 and not explainer._compiled.of(SHAP_VALUES)._core_layouts


@once
def test_tables_that_never_fit_are_not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(costs._WALK_FACTOR, costs.instruction_set(), 1000.0)  # tables always pay
    forest = RandomForestRegressor(20, max_depth=6, random_state=0).fit(X, Y)
    free = TreeExplainer(forest, device="cpu")
    needed, rows = free.plan(4096).table_bytes, np.resize(X, (4096, X.shape[1]))
    assert needed > 0
    for room, fits in ((needed, True), (needed - 1, False)):
        monkeypatch.setattr(memory, "TABLE_BYTES", room)
        explainer = TreeExplainer(forest, device="cpu")
        assert explainer.plan(4096).table_bytes == (needed if fits else 0)
        values = explainer.shap_values(rows)
        assert explainer._compiled.table_bytes == (needed if fits else 0)
        if not fits:
            walked = TreeExplainer(forest, device="cpu", algorithm="quadrature").shap_values(rows)
            np.testing.assert_array_equal(values, walked)


@once
def test_expected_rows_ask_for_large_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without expected rows, tables are bounded; with them, large tables must save more than small ones."""
    monkeypatch.setitem(costs._WALK_FACTOR, costs.instruction_set(), 1000.0)  # tables always pay
    forest = RandomForestRegressor(20, max_depth=6, random_state=0).fit(X, Y)
    rows = np.resize(X, (4096, X.shape[1]))
    needed = TreeExplainer(forest, device="cpu").plan(4096).table_bytes
    assert needed > 0
    monkeypatch.setattr(memory, "TABLE_BYTES", needed - 1)
    for saving, expected_rows, built in ((1 / 3, 4096, True), (1 / 3, None, False), (0.9999, 4096, False)):
        monkeypatch.setattr(costs, "_LEAST_SAVING_OF_LARGE", saving)
        explainer = TreeExplainer(forest, device="cpu", expected_rows=expected_rows)
        assert explainer.plan(4096).table_bytes == (needed if built else 0)
        explainer.shap_values(rows)
        assert explainer._compiled.table_bytes == (needed if built else 0)
    monkeypatch.setattr(costs, "_LEAST_SAVING_OF_LARGE", 1 / 3)
    monkeypatch.setattr(costs, "_TABLE_READ", 1.0)  # each call reads large tables
    for room, built in ((needed - 1, False), (needed, True)):
        monkeypatch.setattr(memory, "TABLE_BYTES", room)
        explainer = TreeExplainer(forest, device="cpu", expected_rows=4096)
        assert explainer.plan(4096).table_bytes == (needed if built else 0)
    monkeypatch.setattr(memory, "machine_bytes", lambda: 4 * (needed - 1))
    assert TreeExplainer(forest, device="cpu", expected_rows=4096).plan(4096).table_bytes == 0


WIDE_MODEL = """
from dataclasses import replace

from helpers.ensembles import random_ensemble
from helpers.plans import interval_plan

def peak():
    with open("/proc/self/status") as file:
        return next(1024 * int(line.split()[1]) for line in file if line.startswith("VmHWM:"))

narrow = random_ensemble(0, n_trees=4, shapes=("random",))
n_features = 2**27
wide = replace(narrow, n_features=n_features, feature=narrow.feature + (n_features - narrow.n_features))
assert interval_plan(narrow).info()["n_table_trees"] == 4
before = peak()
assert interval_plan(wide).info()["n_table_trees"] == 4
print(peak() - before)
"""


@once
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the peak is read from /proc")
def test_features_that_no_tree_uses_take_no_memory() -> None:
    ended = run(["-c", WIDE_MODEL], PYTHONPATH=os.pathsep.join(sys.path))
    assert ended.returncode == 0, ended.stdout
    assert int(ended.stdout) < 2**27 // 8


@once
def test_a_leaf_with_a_long_path_does_not_change_the_tiles_of_tables_by_intervals() -> None:
    """A tile of a sum of a forest and a deep tree has as much memory as a tile of the forest."""
    n_columns = 24
    rng = np.random.default_rng(0)
    rows = rng.random((2048, n_columns))
    forest = RandomForestRegressor(20, max_depth=6, random_state=0)
    forest.fit(rows, 5 * rows[:, 0] * rows[:, 1] + rows.sum(axis=1))
    steps = np.tril(np.ones((n_columns + 1, n_columns)), -1)  # row i passes the thresholds of i columns
    chain = DecisionTreeRegressor().fit(steps, 2.0 ** np.arange(n_columns + 1))

    def info_of(model: Any) -> dict[str, Any]:
        compiled = TreeExplainer(model, rows[:50], device="cpu")._compiled
        plan = compiled.of(SHAP_VALUES).plan(Intervals(1024))
        assert plan.info()["table_bytes"] > 2**20
        return plan.info()

    alone, both = info_of(forest), info_of(sum_of_models([forest, chain], [1, 1]))
    assert both["n_leaves_without_table"] > 0 == alone["n_leaves_without_table"]
    # Tiles for tables of single trees have half the memory.
    assert both["scratch_bytes_per_thread"] > 0.8 * alone["scratch_bytes_per_thread"]
