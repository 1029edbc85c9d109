"""Path-dependent values from each kind of tables: of level-uniform trees, by intervals, of fast_v2.

Results of the core and of explainers with the option ``algorithm`` are compared with the definition and with
the walk.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.ensembles import (
    ensemble_options,
    full_tree,
    leaf_scale,
    oblivious_tree,
    random_chain,
    random_ensemble,
    random_rows,
)
from helpers.instruction_sets import each_set, run_again
from helpers.plans import KINDS, interval_plan, plan_with_tables
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor

from skshapgpu import TreeExplainer, _core, reference
from skshapgpu._common import memory
from skshapgpu.adapters.ensemble import Ensemble, attributes_of

#: Largest error of each precision, relative to the leaves.
TOLERANCE = {"single": 5e-6, "double": 1e-10}
all_kinds = pytest.mark.parametrize("kind", KINDS)

X, Y = load_diabetes(return_X_y=True)


def plan_of(ensemble: Ensemble, precision: str = "double", **options: Any) -> Any:
    return _core.Plan(attributes_of(ensemble), precision, **options)


def compute(
    plan: Any, ensemble: Ensemble, rows: np.ndarray, n_threads: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    shape = len(rows), ensemble.n_outputs, ensemble.n_features
    values, margin = np.full(shape, np.nan), np.full(shape[:2], np.nan)
    plan.explain(rows, values, margin, n_threads)
    return values, margin


def assert_is_the_definition(ensemble: Ensemble, rows: np.ndarray, kind: str) -> None:
    expected, base_value, _ = reference.path_dependent(ensemble, rows)
    scale, expected_margin = leaf_scale(ensemble), ensemble.margin(rows)
    rounding = 1e-15 * np.abs(ensemble.intercept)
    for precision, tolerance in TOLERANCE.items():
        plan = plan_with_tables(ensemble, precision, kind)
        values, margin = compute(plan, ensemble, rows)
        allowed = tolerance * scale + rounding
        assert (np.abs(values - expected) <= tolerance * scale[:, np.newaxis]).all(), precision
        assert (np.abs(plan.base_value - base_value) <= allowed).all(), precision
        assert (np.abs(margin - expected_margin) <= allowed).all(), precision
        n_splitting = int((np.diff(ensemble.tree_offsets) > 1).sum())
        assert plan.info()["n_trees"] == n_splitting
        if kind == "fast_v2":
            assert plan.info()["n_table_trees"] == n_splitting


@all_kinds
@given(options=ensemble_options(), n_rows=st.sampled_from([1, 3, 33]))
@settings(max_examples=100)
def test_core_is_the_definition(kind: str, options: dict[str, Any], n_rows: int) -> None:
    """Rows at the edges of every comparison; repeated features, categories, vector leaves, zero covers."""
    ensemble = random_ensemble(**options)
    assert_is_the_definition(ensemble, random_rows(options["seed"], ensemble, n_rows), kind)


@all_kinds
@pytest.mark.parametrize("shape", ["random", "chain", "perfect", "oblivious"])
@pytest.mark.parametrize("vector", [False, True])
def test_more_rows_than_a_tile(kind: str, shape: str, vector: bool) -> None:
    ensemble = random_ensemble(
        1,
        n_trees=9,
        n_features=9,
        n_used=7,
        n_outputs=3,
        vector=vector,
        shapes=(shape,),
        max_leaves=64,
        categorical=True,
        zero_missing=True,
    )
    rows = random_rows(1, ensemble, 5000)
    walked, walked_margin = compute(plan_of(ensemble), ensemble, rows)
    for precision, tolerance in TOLERANCE.items():
        values, margin = compute(plan_with_tables(ensemble, precision, kind), ensemble, rows)
        assert (np.abs(values - walked) <= tolerance * leaf_scale(ensemble)[:, np.newaxis]).all()
        np.testing.assert_allclose(margin, walked_margin, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("depth", [1, 2, 5, 6, 7, 10])
def test_level_uniform_trees_of_each_depth(depth: int) -> None:
    trees = [oblivious_tree(seed, depth, 6) for seed in range(3)]
    ensemble = Ensemble.from_trees(trees, n_features=6, intercept=1.0)
    assert plan_of(ensemble, tables="level_uniform").info()["n_table_trees"] == 3
    assert_is_the_definition(ensemble, random_rows(depth, ensemble, 80), "level_uniform")


def test_too_deep_a_level_uniform_tree_walks() -> None:
    ensemble = Ensemble.from_trees([oblivious_tree(0, 11, 6)], n_features=6, intercept=0.0)
    assert plan_of(ensemble, tables="level_uniform").info()["n_table_trees"] == 0
    assert_is_the_definition(ensemble, random_rows(0, ensemble, 5), "level_uniform")


@pytest.mark.parametrize("field", ["feature", "threshold", "missing_left"])
def test_a_split_that_differs_on_one_level(field: str) -> None:
    """One node of the last level has a different split."""
    tree = oblivious_tree(3, 4, 6)
    changed = np.array(getattr(tree, field))
    changed[10] = not changed[10] if field == "missing_left" else (changed[10] + 1) % 6
    ensemble = Ensemble.from_trees([tree, replace(tree, **{field: changed})], n_features=6, intercept=0.0)
    assert plan_of(ensemble, tables="level_uniform").info()["n_table_trees"] == 1
    assert_is_the_definition(ensemble, random_rows(3, ensemble, 50), "level_uniform")


def test_categories_of_a_level() -> None:
    """A level is uniform if its category sets are equal, however they are stored."""
    tree = oblivious_tree(4, 3, 3)
    feature = np.array([0, 1, 1, 2, 2, 2, 2] + [0] * 8)
    same = {i: [1, 5, 33] for i in (1, 2)}
    trees = [
        replace(tree, feature=feature, categories=same),
        replace(tree, feature=feature, categories=same | {2: [33, 1, 5]}),
        replace(tree, feature=feature, categories=same | {2: [1, 5]}),
    ]
    ensemble = Ensemble.from_trees(trees, n_features=3, intercept=0.0)
    assert plan_of(ensemble, tables="level_uniform").info()["n_table_trees"] == 2
    assert_is_the_definition(ensemble, random_rows(4, ensemble, 60), "level_uniform")


def test_tables_and_walks_in_one_plan() -> None:
    """Level-uniform and other trees alternate; there are three outputs."""
    rng = np.random.default_rng(5)
    trees = []
    for seed in range(24):
        tree = oblivious_tree(seed, 1 + seed % 5, 5)
        if seed % 2:
            inner = np.asarray(tree.left) >= 0
            tree = replace(tree, threshold=np.where(inner, rng.normal(size=len(inner)), 0))
        trees.append(replace(tree, output=seed % 3))
    ensemble = Ensemble.from_trees(trees, n_features=5, intercept=[0.0, 1.0, 2.0])
    info = plan_of(ensemble, tables="level_uniform").info()
    assert 12 <= info["n_table_trees"] < 24
    assert_is_the_definition(ensemble, random_rows(5, ensemble, 70), "level_uniform")


def test_threads_and_neighbours_change_no_bit() -> None:
    ensemble = random_ensemble(8, n_trees=30, n_features=6, max_leaves=16)
    rows = random_rows(8, ensemble, 700)
    for kind in KINDS:
        plan = plan_with_tables(ensemble, "single", kind)
        expected, _ = compute(plan, ensemble, rows)
        for n_threads in (2, 3):
            threaded = plan_with_tables(ensemble, "single", kind, n_threads=n_threads)
            np.testing.assert_array_equal(compute(threaded, ensemble, rows, n_threads)[0], expected)
        for part in (slice(0, 1), slice(17, 90), slice(None, None, -1)):
            np.testing.assert_array_equal(compute(plan, ensemble, rows[part])[0], expected[part])


def test_banzhaf_values() -> None:
    ensemble = random_ensemble(9, n_trees=8, max_leaves=16)
    rows = random_rows(9, ensemble, 40)
    walked, _ = compute(plan_of(ensemble, index="BII"), ensemble, rows)
    for kind in KINDS:
        plan = plan_with_tables(ensemble, "double", kind, index="BII")
        values, _ = compute(plan, ensemble, rows)
        assert (np.abs(values - walked) <= 1e-10 * leaf_scale(ensemble)[:, np.newaxis]).all()


def test_tables_take_the_place_of_the_walk() -> None:
    ensemble = Ensemble.from_trees([oblivious_tree(i, 6, 6) for i in range(50)], n_features=6, intercept=0.0)
    walk, levels = plan_of(ensemble).info(), plan_of(ensemble, tables="level_uniform").info()
    assert levels["n_lookups"] == levels["n_table_trees"] == 50 and walk["n_lookups"] == 0
    assert levels["table_bytes"] <= 8 * (50 * 64 * 6 + 16)
    assert levels["bytes"] - levels["table_bytes"] < walk["bytes"]


def test_memory_of_level_uniform_trees() -> None:
    """Trees whose tables exceed the memory limit are walked."""
    ensemble = Ensemble.from_trees([oblivious_tree(i, 6, 6) for i in range(9)], n_features=6, intercept=0.0)
    rows = random_rows(0, ensemble, 70)
    expected, _ = compute(plan_of(ensemble), ensemble, rows)
    some = plan_of(ensemble, tables="level_uniform", table_bytes=12_000)
    assert 0 < some.info()["n_table_trees"] < 9 and some.info()["table_bytes"] <= 12_000
    np.testing.assert_allclose(compute(some, ensemble, rows)[0], expected, rtol=0, atol=1e-10)


def test_memory_of_fast_v2() -> None:
    """Each subset of a path's features takes one number; tables fill whole cache lines."""
    tree = full_tree(np.random.default_rng(2), 6, 40)
    ensemble = Ensemble.from_trees([tree], n_features=40, intercept=0.0)
    needed = plan_of(ensemble, "single", method="fast_v2").info()["table_bytes"]
    assert 0 < needed <= 64 * 2**6 * 4
    with pytest.raises(_core.TableMemoryError, match=rf"trees need {needed} bytes, but may take 1000"):
        plan_of(ensemble, "single", method="fast_v2", table_bytes=1000)
    plan_of(ensemble, "single", method="fast_v2", table_bytes=needed)


def test_zero_covers_and_tiny_ones() -> None:
    """Fast TreeSHAP v2 removes a feature from its numbers by dividing by the zero fraction."""
    for cover in (0.0, 1e-300, 1e-30):
        for seed in range(20):
            tree = full_tree(np.random.default_rng(seed), 4, 5)
            inner = np.asarray(tree.left) >= 0
            empty = np.random.default_rng(seed).random(len(inner)) < 0.4
            covers = np.where(empty, cover, np.asarray(tree.cover))
            covers[0] = max(covers[0], 1.0)
            ensemble = Ensemble.from_trees([replace(tree, cover=covers)], n_features=5, intercept=0.0)
            assert_is_the_definition(ensemble, random_rows(seed, ensemble, 30), "fast_v2")


@pytest.mark.parametrize("depth", range(1, 17))
def test_fast_v2_of_each_length(depth: int) -> None:
    """Tables in one register, in several, and in memory, with as many features as the path has nodes."""
    ensemble = random_chain(depth, depth, depth)
    rows = random_rows(depth, ensemble, 130)
    walked, _ = compute(plan_of(ensemble), ensemble, rows)
    for precision, tolerance in TOLERANCE.items():
        values, _ = compute(plan_of(ensemble, precision, method="fast_v2"), ensemble, rows)
        assert (np.abs(values - walked) <= tolerance * leaf_scale(ensemble)[:, np.newaxis]).all()


def test_long_paths_are_refused() -> None:
    with pytest.raises(
        ValueError, match="a path has 17 different features; the method 'fast_v2' allows for at most 16"
    ):
        plan_of(random_chain(0, 17, 17), method="fast_v2")
    assert interval_plan(random_chain(0, 17, 17)).info()["n_table_trees"] == 0
    ensemble = random_chain(0, 12, 12)
    for kind in ("intervals", "fast_v2"):
        assert_is_the_definition(ensemble, random_rows(0, ensemble, 3), kind)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"tables": "some"}, "tables must be 'none' or 'level_uniform', not 'some'"),
        ({"tables": "level_uniform", "order": 2}, "only plans of order 1 have tables"),
        ({"method": "fast_v2", "order": 2}, "only plans of order 1 have tables"),
        ({"tables": "level_uniform", "method": "fast_v2"}, "'fast_v2' has no tables of this kind"),
        ({"n_threads": 0}, "n_threads must be at least 1"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plan_of(random_ensemble(0), **options)


# The option


@pytest.fixture(scope="module")
def forest() -> RandomForestRegressor:
    return RandomForestRegressor(6, max_depth=5, random_state=0).fit(X, Y)


def explainer_of(model: Any, algorithm: str, **options: Any) -> TreeExplainer:
    return TreeExplainer(model, algorithm=algorithm, device="cpu", **options)


def test_fast_v2(forest: Any) -> None:
    explainer = explainer_of(forest, "fast_v2", precision="double")
    assert explainer.model_info()["n_table_trees"] == 6
    expected = explainer_of(forest, "quadrature", precision="double").shap_values(X)
    np.testing.assert_allclose(explainer.shap_values(X), expected, rtol=0, atol=1e-10 * np.abs(Y).max())
    banzhaf = explainer_of(forest, "quadrature", precision="double").explain(X, index="BV").values
    values = explainer.explain(X, index="BV").values
    np.testing.assert_allclose(values, banzhaf, rtol=0, atol=1e-10 * np.abs(Y).max())


def test_catboost_by_level_tables() -> None:
    catboost = pytest.importorskip("catboost")
    options = {"iterations": 20, "depth": 4, "verbose": 0, "thread_count": 1, "allow_writing_files": False}
    model = catboost.CatBoostRegressor(**options).fit(X, Y)
    expected = explainer_of(model, "quadrature")
    assert expected.model_info()["n_table_trees"] == 0
    auto = explainer_of(model, "auto")
    assert auto.model_info()["n_table_trees"] == 20
    scale = np.abs(Y).max()
    np.testing.assert_allclose(auto.shap_values(X), expected.shap_values(X), rtol=0, atol=1e-5 * scale)


def test_fast_v2_is_of_path_dependent_values(forest: Any) -> None:
    explainer = explainer_of(forest, "fast_v2")
    with pytest.raises(ValueError, match="computes SHAP values and Banzhaf values only, not SHAP"):
        explainer.shap_interaction_values(X)
    with pytest.raises(ValueError, match="algorithm='fast_v2' computes no interventional SHAP values"):
        explainer_of(forest, "fast_v2", data=X[:3])


def test_memory_of_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for limit, asked, expected in (
        (None, False, 2**28),
        (None, True, machine // 4),
        (1001, False, 500),
        (1001, True, 500),
        (2**40, False, 2**28),
        (2**40, True, 2**39),
    ):
        assert memory.table_bytes(limit, asked) == expected

    def unknown(name: str) -> int:
        raise ValueError("unrecognized configuration name")

    monkeypatch.setattr("os.sysconf", unknown)
    monkeypatch.setattr(memory, "machine_bytes", memory.machine_bytes.__wrapped__)  # not the cached value
    assert memory.table_bytes(None, True) == memory.table_bytes(None, False)


def test_fast_v2_that_does_not_fit(forest: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    needed = explainer_of(forest, "fast_v2").model_info()["table_bytes"]
    assert needed > 10_000
    message = r"'fast_v2': tables of all trees need [0-9]+ bytes, but may take {} \({}\): raise memory_limit"
    with pytest.raises(MemoryError, match=message.format(5000, "half of memory_limit")) as caught:
        explainer_of(forest, "fast_v2", memory_limit=10_000)
    assert "algorithm='auto'" in str(caught.value)
    explainer_of(forest, "fast_v2", memory_limit=2 * needed)
    monkeypatch.setattr("skshapgpu._common.memory.machine_bytes", lambda: 4000)
    with pytest.raises(MemoryError, match=message.format(1000, "a quarter of the machine's memory")):
        explainer_of(forest, "fast_v2")
    explainer_of(forest, "fast_v2", memory_limit=2 * needed)
    explainer_of(forest, "auto")


def test_fast_v2_may_take_more_than_auto(forest: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skshapgpu._common.memory.TABLE_BYTES", 0)
    assert explainer_of(forest, "fast_v2").model_info()["n_table_trees"] == 6


def test_calls_have_what_tables_leave(forest: Any) -> None:
    free = explainer_of(forest, "fast_v2")
    info = free.model_info()
    tables, scratch = info["table_bytes"], info["scratch_bytes_per_thread"]
    limit = 4 * tables + scratch
    limited = explainer_of(forest, "fast_v2", memory_limit=limit)
    assert limited._compiled.call_limit == limit - tables and free._compiled.call_limit is None
    rows = np.tile(X, (1 + 4 * tables // X.nbytes, 1))
    some, more = (rows[: int(part * tables) // (8 * X.shape[1])] for part in (2.5, 3.5))
    np.testing.assert_array_equal(limited.shap_values(some), free.shap_values(some))
    message = f"memory_limit is {limit:,} bytes, of which tables take {tables:,}, but {len(more)} rows need"
    with pytest.raises(MemoryError, match=message):
        limited.shap_values(more)


def test_tables_of_two_kinds_of_values_share_the_limit(forest: Any) -> None:
    tables = explainer_of(forest, "fast_v2").model_info()["table_bytes"]
    with pytest.raises(MemoryError, match=r"tables of all trees need .* may take 500 "):
        explainer_of(forest, "fast_v2", memory_limit=2 * tables + 1000).explain(X, index="BV")
    explainer = explainer_of(forest, "fast_v2", memory_limit=10**9)
    explainer.explain(X, index="BV")
    assert explainer._compiled.call_limit == 10**9 - 2 * tables


def test_memory_of_auto() -> None:
    """Level-uniform trees whose tables exceed half of the limit are walked."""
    catboost = pytest.importorskip("catboost")
    options = {"iterations": 20, "depth": 4, "verbose": 0, "thread_count": 1, "allow_writing_files": False}
    model = catboost.CatBoostRegressor(**options).fit(X, Y)
    free = explainer_of(model, "auto")
    assert free.model_info()["n_table_trees"] == 20
    expected, scale = free.shap_values(X[:4]), np.abs(Y).max()
    limit = 2 * 4_000
    some = explainer_of(model, "auto", memory_limit=limit)
    assert 0 < some.model_info()["n_table_trees"] < 20 and some.model_info()["table_bytes"] <= limit // 2
    some._compiled.options = replace(some._compiled.options, memory_limit=10**9)  # for the call
    np.testing.assert_allclose(some.shap_values(X[:4]), expected, rtol=0, atol=1e-5 * scale)


def test_positions_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    # Lists of tables that are this long take gigabytes, so only the check that all layouts share is called.
    csrc = Path(__file__).parents[2] / "csrc"
    compiler = shutil.which("c++")
    if not (csrc.exists() and compiler):
        pytest.skip("needs the sources and a compiler")
    source, program = tmp_path / "positions.cpp", tmp_path / "positions"
    source.write_text("""
        #include "plan/tables.h"
        template <class Position>
        bool refuses(size_t n) {
          try {
            skshap::require_positions<Position>(n);
          } catch (const std::invalid_argument&) {
            return true;
          }
          return false;
        }
        int main() {
          const size_t most = size_t{1} << 32, most_signed = most / 2;
          return refuses<uint32_t>(most - 1) || !refuses<uint32_t>(most) || !refuses<uint32_t>(most + 5) ||
                 refuses<int32_t>(most_signed - 1) || !refuses<int32_t>(most_signed);
        }
    """)
    subprocess.run([compiler, "-std=c++17", f"-I{csrc}", source, "-o", program], check=True)
    assert subprocess.run([program]).returncode == 0


# Other instruction sets


@each_set
def test_other_instruction_sets(isa: str) -> None:
    run_again(isa, __file__)
