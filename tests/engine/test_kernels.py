"""The compiled kernels against the definition, for both precisions and every instruction set.

The run in this process uses the fastest instruction set, or the one that SKSHAPGPU_ISA names;
the last tests start this file again for each of the others that the processor has.
"""

from __future__ import annotations

import _thread
import dataclasses
import functools
import gc
import os
import pickle
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from helpers import TESTS
from helpers.ensembles import (
    ORDERS,
    SHAPES,
    ensemble_options,
    exact_shap,
    full_tree,
    leaf_scale,
    random_chain,
    random_ensemble,
    random_rows,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from skshapgpu.ensemble import Ensemble, Tree
from skshapgpu.reference import path_dependent_shap

#: In units of the sum of the output's absolute leaf values.
TOLERANCE = {"single": 2e-6, "double": 1e-10}
ISA = os.environ.get("SKSHAPGPU_ISA")

once = pytest.mark.skipif(ISA is not None, reason="SKSHAPGPU_ISA restricts this run to one instruction set")
both_precisions = pytest.mark.parametrize("precision", ["single", "double"])


class CudaPlan:
    """``Plan`` with another ``explain``: on the first GPU."""

    def __init__(self, attributes: dict[str, Any], precision: str) -> None:
        from skshapgpu import _core, _cuda

        self.plan = _core.Plan(attributes, precision)
        self.cuda = _cuda.CudaPlan(self.plan, 0, False)
        self.info = self.plan.info

    @property
    def base_value(self) -> np.ndarray:
        return self.plan.base_value

    def explain(self, X: np.ndarray, values: np.ndarray, margin: np.ndarray | None, n_threads: int) -> None:
        if not isinstance(margin, np.ndarray) or margin.ndim != 2:
            self.cuda.explain(X, values, margin, None, 0)
            return
        gap = np.full(margin.shape[1], np.nan)
        self.cuda.explain(X, values, margin, gap, 0)
        expected = np.abs(values.sum(axis=2, dtype=np.float64) + self.base_value - margin)
        expected = expected.max(axis=0, initial=0)
        tolerance = 1e-13 * (1 + np.abs(values).sum(axis=2, dtype=np.float64).max(axis=0, initial=0))
        assert_within(gap, expected, tolerance + 1e-13 * np.abs(self.base_value), "gap")


@pytest.fixture(scope="session", params=["cpu", "cuda"])
def core(request: pytest.FixtureRequest) -> Any:
    """The core's module, or what looks like it and computes on a GPU."""
    from skshapgpu import _core

    if request.param == "cpu":
        return _core
    if ISA is not None:
        pytest.skip("SKSHAPGPU_ISA restricts this run to one instruction set")
    request.getfixturevalue("gpu")
    return SimpleNamespace(Plan=CudaPlan)


@pytest.fixture(scope="session")
def cpu_core() -> ModuleType:
    from skshapgpu import _core

    return _core


def state(ensemble: Ensemble) -> dict[str, Any]:
    return {f.name: getattr(ensemble, f.name) for f in dataclasses.fields(ensemble)}


def explain(
    plan: Any, ensemble: Ensemble, X: np.ndarray, *, dtype: str = "float64", n_threads: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """Values and margin, in arrays that hold NaN wherever the core has not written."""
    values = np.full((len(X), ensemble.n_outputs, ensemble.n_features), np.nan, dtype)
    margin = np.full((len(X), ensemble.n_outputs), np.nan)
    plan.explain(X, values, margin, n_threads)
    return values, margin


def splits_on(ensemble: Ensemble) -> np.ndarray:
    """Whether a tree of the output splits on the feature, (n_outputs, n_features)."""
    used = np.zeros((ensemble.n_outputs, ensemble.n_features), bool)
    for start, stop, output in zip(ensemble.tree_offsets, ensemble.tree_offsets[1:], ensemble.tree_output):
        features = ensemble.feature[start:stop][ensemble.left[start:stop] >= 0]
        used[slice(None) if output < 0 else output, features] = True
    return used


def assert_within(got: np.ndarray, expected: np.ndarray, tolerance: np.ndarray, what: str) -> None:
    wrong = ~(np.abs(got - expected) <= tolerance)  # so that NaN is wrong
    if wrong.any():
        worst = tuple(int(i) for i in np.argwhere(wrong)[0])
        limit = np.broadcast_to(tolerance, wrong.shape)[worst]
        raise AssertionError(
            f"{what}{worst}: {got[worst]!r} instead of {expected[worst]!r}, "
            f"tolerance {limit:.3g}; {wrong.sum()} of {wrong.size} are wrong"
        )


def assert_consistent(
    ensemble: Ensemble, X: np.ndarray, plan: Any, precision: str, values: np.ndarray, margin: np.ndarray
) -> None:
    """What needs no expected values: margin, additivity, nothing for unused features."""
    largest = np.abs(ensemble.intercept) + leaf_scale(ensemble)
    expected = ensemble.margin(X)
    assert_within(margin, expected, 1e-9 * np.abs(expected) + 1e-14 * largest, "margin")
    total = values.sum(axis=2, dtype=np.float64) + plan.base_value
    bound = TOLERANCE[precision] if values.dtype == np.float64 else TOLERANCE["single"]
    assert_within(total, expected, bound * leaf_scale(ensemble) + 1e-14 * largest, "sum of values")
    assert (values[:, ~splits_on(ensemble)] == 0).all()


def assert_exact(
    core: ModuleType, ensemble: Ensemble, X: np.ndarray, precision: str, dtype: str = "float64"
) -> None:
    """Everything at once, against the definition."""
    plan = core.Plan(state(ensemble), precision)
    values, margin = explain(plan, ensemble, X, dtype=dtype)
    assert_consistent(ensemble, X, plan, precision, values, margin)
    expected, base = path_dependent_shap(ensemble, X)
    scale = leaf_scale(ensemble)
    base_value = plan.base_value
    assert base_value.dtype == np.float64 and base_value.shape == (ensemble.n_outputs,)
    assert_within(base_value, base, 1e-12 * (scale + np.abs(ensemble.intercept)), "base_value")
    tolerance = TOLERANCE[precision] * scale[:, np.newaxis]
    if dtype == "float32":
        tolerance = tolerance + np.finfo(np.float32).eps * np.abs(expected)
    assert_within(values, expected, tolerance, "values")


def same_bits(one: np.ndarray, other: np.ndarray) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


def run(arguments: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        env=os.environ | environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


# Agreement with the definition


@both_precisions
@settings(max_examples=300)
@given(
    options=ensemble_options(),
    n_rows=st.sampled_from([1, 2, 5, 17, 33]),
    dtype=st.sampled_from(["float32", "float64"]),
)
def test_random_ensembles(core, precision, options, n_rows, dtype):
    ensemble = random_ensemble(**options)
    assert_exact(core, ensemble, random_rows(options["seed"], ensemble, n_rows), precision, dtype)


@both_precisions
@pytest.mark.parametrize("x_dtype", ["float32", "float64"])
@pytest.mark.parametrize("strict", [False, True])
def test_many_rows_at_every_threshold(core, precision, x_dtype, strict):
    """More rows than a block, all features, categories and zeros that are missing."""
    ensemble = random_ensemble(
        5,
        n_trees=8,
        n_features=6,
        n_outputs=2,
        max_leaves=20,
        x_dtype=x_dtype,
        strict=strict,
        categorical=True,
        zero_missing=True,
    )
    X = random_rows(6, ensemble, 150)
    assert len(np.unique(ensemble.margin(X), axis=0)) > 50
    assert_exact(core, ensemble, X, precision)


@both_precisions
@pytest.mark.parametrize("shape", SHAPES[:-1])
def test_large_trees_with_repeated_features(core, precision, shape):
    ensemble = random_ensemble(7, n_trees=2, n_features=6, n_used=4, shapes=(shape,), max_leaves=1024)
    X = random_rows(8, ensemble, 20)
    assert_exact(core, ensemble, X, precision)


@both_precisions
@pytest.mark.parametrize("depth, n_features", [(10, 10), (12, 7)])
def test_full_trees(core, precision, depth, n_features):
    """One that asks each feature once on each path, and one that asks again."""
    rng = np.random.default_rng(9)
    ensemble = Ensemble.from_trees([full_tree(rng, depth, n_features)], n_features=n_features, intercept=0)
    X = rng.random((16, n_features))
    X[rng.random(X.shape) < 0.1] = np.nan
    assert_exact(core, ensemble, X, precision)


@both_precisions
@pytest.mark.parametrize("vector", [False, True])
def test_twenty_outputs(core, precision, vector):
    ensemble = random_ensemble(10, n_trees=45, n_features=5, n_outputs=20, vector=vector, max_leaves=8)
    assert_exact(core, ensemble, random_rows(11, ensemble, 20), precision)


@both_precisions
def test_wide_rows(core, precision):
    """Six features, moved to six of 10,000 columns."""
    narrow = random_ensemble(12, n_trees=6, n_features=6, n_outputs=2)
    columns = np.array([3, 9999, 0, 500, 4096, 8191])
    wide = dataclasses.replace(narrow, n_features=10_000, feature=columns[narrow.feature])
    X = random_rows(13, narrow, 70)
    wide_X = np.random.default_rng(13).normal(size=(70, 10_000))
    wide_X[:, columns] = X
    values, margin = explain(core.Plan(state(wide), precision), wide, wide_X)
    tolerance = TOLERANCE[precision] * leaf_scale(narrow)[:, np.newaxis]
    assert_within(values[:, :, columns], path_dependent_shap(narrow, X)[0], tolerance, "values")
    assert_within(margin, narrow.margin(X), np.full(margin.shape, 1e-9), "margin")
    assert (np.delete(values, columns, axis=2) == 0).all()


@both_precisions
@pytest.mark.parametrize("x_dtype", ["float32", "float64"])
@pytest.mark.parametrize("n_thresholds", [65533, 65534, 65535, 65536, 65537, 131071])
def test_as_many_thresholds_as_16_bits_count(core, precision, x_dtype, n_thresholds):
    """A tree of one feature alone gives that feature margin minus base value, without the definition."""
    rng = np.random.default_rng(14)
    depth = 17
    tree = full_tree(rng, depth, 1)
    level = np.repeat(np.arange(depth + 1), 2 ** np.arange(depth + 1))
    rank = ((np.arange(len(level)) - 2**level + 1) * 2 + 1) * 2.0 ** (depth - level - 1)  # 1, 2, ..., 131071
    big = dataclasses.replace(tree, threshold=np.minimum(rank, n_thresholds))
    assert len(np.unique(big.threshold[: 2**depth - 1])) == n_thresholds
    cover, expected_leaf = np.asarray(big.cover), np.asarray(big.value)[2**depth - 1 :]
    for parents in range(depth - 1, -1, -1):
        pairs = cover[2 ** (parents + 1) - 1 : 2 ** (parents + 2) - 1].reshape(-1, 2)
        share = np.where(pairs.sum(axis=1) > 0, pairs[:, 0] / np.maximum(pairs.sum(axis=1), 1), 0.5)
        expected_leaf = share * expected_leaf[::2] + (1 - share) * expected_leaf[1::2]

    other = Tree(
        [1, -1, 3, -1, -1],
        [2, -1, 4, -1, -1],
        [1, 0, 0, 0, 0],
        [0.5, 0, 7.0, 0, 0],
        [False] * 5,
        [4, 1, 3, 1, 2],
        [0, 3, 0, 4, 5],
    )
    alone, small, both = (
        Ensemble.from_trees(trees, n_features=2, intercept=0, x_dtype=x_dtype)
        for trees in ([big], [other], [big, other])
    )
    x0 = np.concatenate(
        [
            rng.integers(0, n_thresholds, 60),
            rng.random(60) * n_thresholds,
            n_thresholds + np.arange(-3, 3),
            np.arange(3),
            65534 + np.arange(5),
            [np.inf, -np.inf, np.nan],
        ]
    )
    x0 = np.concatenate([x0, np.nextafter(x0, np.inf), np.nextafter(x0, -np.inf)])
    X = np.stack([x0, rng.random(len(x0))], axis=1)
    expected, base = path_dependent_shap(small, X)
    expected[:, 0, 0] += alone.margin(X)[:, 0] - expected_leaf[0]
    plan = core.Plan(state(both), precision)
    values, margin = explain(plan, both, X)
    # The sum over 131,072 leaves would allow anything: use the largest leaf of each tree.
    tolerance = TOLERANCE[precision] * (np.abs(big.value).max() + 5)
    assert_within(values, expected, np.full(expected.shape, tolerance), "values")
    assert_within(plan.base_value, base + expected_leaf[0], np.array([1e-9]), "base_value")
    assert_within(margin, both.margin(X), np.full(margin.shape, 1e-9), "margin")


@both_precisions
def test_more_categories_than_16_bits_count(core, precision):
    rng = np.random.default_rng(15)
    codes = rng.permutation(200_000)[:70_000]
    tree = Tree(
        [1, -1, 3, -1, -1],
        [2, -1, 4, -1, -1],
        [0, 0, 0, 0, 0],
        [0.0] * 5,
        [True] * 5,
        [4, 1, 3, 1, 2],
        [0, 3, 0, 4, 5],
        categories={0: codes[:35_000], 2: codes[30_000:]},
    )
    ensemble = Ensemble.from_trees([tree], n_features=1, intercept=0, x_dtype="float64")
    X = np.concatenate([codes[::500], rng.integers(0, 200_000, 60), [np.sort(codes)[-1], np.nan, -1]])
    assert_exact(core, ensemble, X[:, np.newaxis].astype(float), precision)


# Deep paths


@functools.cache
def solved_chain(depth: int, n_features: int, n_rows: int) -> tuple[Ensemble, np.ndarray, np.ndarray]:
    """A chain, rows, and their values in exact rational arithmetic."""
    ensemble = random_chain(depth, depth, n_features)
    X = np.random.default_rng(depth).random((n_rows, n_features))
    return ensemble, X, np.array([exact_shap(ensemble, x) for x in X])


def assert_chain(core: ModuleType, precision: str, depth: int, n_features: int, n_rows: int) -> None:
    """Exact values for a few rows; more rows must only add up."""
    ensemble, X, expected = solved_chain(depth, n_features, n_rows)
    assert np.abs(expected).max() > 1e-3
    plan = core.Plan(state(ensemble), precision)
    values, _ = explain(plan, ensemble, X)
    assert_within(values, expected, TOLERANCE[precision] * leaf_scale(ensemble)[:, np.newaxis], "values")
    more = np.random.default_rng(1).random((70, n_features))
    assert_consistent(ensemble, more, plan, precision, *explain(plan, ensemble, more))


@both_precisions
@pytest.mark.parametrize("first", range(1, 41, 10))
def test_every_number_of_features_on_a_path(core, precision, first):
    """Chains of 1 to 40 different features: each needs its own number of points."""
    for depth in range(first, first + 10):
        assert_chain(core, precision, depth, depth, n_rows=1)


@both_precisions
@pytest.mark.parametrize(
    "depth, n_features",
    [
        (64, 64),
        (65, 65),
        (100, 100),
        (128, 128),
        (150, 40),
        (200, 12),
        (200, 1),
        (200, 200),
    ],
)
def test_deep_chains(core, precision, depth, n_features):
    assert_chain(core, precision, depth, n_features, n_rows=1)


@both_precisions
@pytest.mark.parametrize(
    "depth, share",
    [
        (40, 0.0),
        (40, 2.0**-30),
        (40, 1 / 64),
        (40, 63 / 64),
        (40, 1.0),
        (100, 255 / 256),
        (200, 255 / 256),
    ],
)
def test_rows_that_follow_a_deep_chain_all_or_not_at_all(core, precision, depth, share):
    """None of the features followed, or one: (1 - t)^d is the hardest integrand. Up to 40, also all."""
    node = np.arange(2 * depth + 1)
    # Even nodes go on to the next even one on their left; odd ones are leaves.
    left = np.where((node % 2 == 0) & (node < 2 * depth), node + 2, -1)
    right = np.where(left >= 0, node + 1, -1)
    cover = np.where(node % 2 == 0, share, 1 - share)
    value = np.where(left >= 0, 0.0, 1.0 + node / 100)
    tree = Tree(
        left, right, node // 2 % depth, np.full(len(node), 0.5), np.zeros(len(node), bool), cover, value
    )
    ensemble = Ensemble.from_trees([tree], n_features=depth, intercept=0, x_dtype="float64")
    X = np.stack([np.ones(depth), np.arange(depth) != 3, np.arange(depth) == depth - 1, np.zeros(depth)])
    X = X[: 4 if depth <= 40 else 2]
    plan = core.Plan(state(ensemble), precision)
    values, margin = explain(plan, ensemble, X)
    expected = np.array([exact_shap(ensemble, x) for x in X])
    assert_within(values, expected, np.full(expected.shape, TOLERANCE[precision] * 2), "values")
    assert_consistent(ensemble, X, plan, precision, values, margin)


# Sizes at their limits


@both_precisions
@pytest.mark.parametrize("n_rows", [0, 1])
def test_no_row_and_one_row(core, precision, n_rows):
    ensemble = random_ensemble(15, n_trees=4, n_outputs=3, vector=True)
    assert_exact(core, ensemble, random_rows(16, ensemble, n_rows), precision)


@both_precisions
@pytest.mark.parametrize(
    "options",
    [
        {"n_features": 1, "n_trees": 5},
        {"n_features": 3, "n_trees": 4, "shapes": ("leaf",)},
        {"n_features": 3, "n_trees": 4, "shapes": ("leaf",), "vector": True, "n_outputs": 2},
        {"n_features": 3, "n_trees": 0, "n_outputs": 2},
        {"n_features": 0, "n_trees": 2},
        {"n_features": 0, "n_trees": 0},
    ],
    ids=str,
)
def test_almost_nothing(core, precision, options):
    ensemble = random_ensemble(17, **options)
    for n_rows in (0, 1, 70):
        assert_exact(core, ensemble, random_rows(18, ensemble, n_rows), precision)


# The same bits


def mixed_ensemble(x_dtype: str = "float32") -> Ensemble:
    """Every shape, categories and all outputs in one model."""
    return random_ensemble(
        19,
        n_trees=40,
        n_features=20,
        n_outputs=3,
        max_leaves=40,
        order=ORDERS[2],
        x_dtype=x_dtype,
        categorical=True,
        zero_missing=True,
    )


@both_precisions
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_bits_depend_neither_on_threads_nor_on_the_other_rows(core, precision, dtype):
    ensemble = mixed_ensemble()
    X = random_rows(20, ensemble, 300)
    plan = core.Plan(state(ensemble), precision)
    values, margin = explain(plan, ensemble, X, dtype=dtype)
    assert_consistent(ensemble, X, plan, precision, values, margin)
    assert len(np.unique(margin[:, 0])) > 200
    for n_threads in (1, 2, 3, 8):
        for chunk in (1, 7, 63, 64, 65, len(X)):
            if chunk == 1 and n_threads == 8:
                continue
            parts = [
                explain(plan, ensemble, X[i : i + chunk], dtype=dtype, n_threads=n_threads)
                for i in range(0, len(X), chunk)
            ]
            for whole, part in zip((values, margin), zip(*parts)):
                assert same_bits(whole, np.concatenate(part)), (n_threads, chunk)
    again = explain(core.Plan(state(ensemble), precision), ensemble, X, dtype=dtype)
    assert same_bits(again[0], values) and same_bits(again[1], margin)


@both_precisions
@pytest.mark.parametrize("x_dtype", ["float32", "float64"])
def test_bits_do_not_depend_on_the_layout_of_X(core, precision, x_dtype):
    ensemble = mixed_ensemble(x_dtype)
    with np.errstate(over="ignore"):
        X = random_rows(21, ensemble, 131).astype(np.float32)
    n_rows, n_features = X.shape
    plan = core.Plan(state(ensemble), precision)
    values, margin = explain(plan, ensemble, X)
    for same in (X, X.astype(np.float64)):
        spread = np.full((2 * n_rows, 3 * n_features), 7, same.dtype)
        spread[1::2, ::3] = same
        read_only = same.copy()
        read_only.flags.writeable = False
        fields = np.zeros((n_rows, n_features), np.dtype([("pad", "i2"), ("x", same.dtype)], align=True))
        fields["x"] = same
        layouts = {
            "C": same,
            "F": np.asfortranarray(same),
            "sliced": spread[1::2, ::3],
            "read-only": read_only,
            "reversed rows": same[::-1].copy()[::-1],
            "reversed columns": same[:, ::-1].copy()[:, ::-1],
            "both reversed": np.asfortranarray(same[::-1, ::-1])[::-1, ::-1],
            "in records": fields["x"],
        }
        for name, layout in layouts.items():
            assert np.array_equal(layout, same, equal_nan=True)
            got = explain(plan, ensemble, layout)
            assert same_bits(got[0], values) and same_bits(got[1], margin), (name, same.dtype)
        one_row = np.broadcast_to(same[5], (70, n_features))
        assert same_bits(explain(plan, ensemble, one_row)[0], np.repeat(values[5:6], 70, axis=0))


@both_precisions
def test_margin_is_optional(core, precision):
    ensemble = mixed_ensemble()
    X = random_rows(22, ensemble, 70)
    plan = core.Plan(state(ensemble), precision)
    values = np.full((70, 3, 20), np.nan)
    plan.explain(X, values, None, 1)
    assert same_bits(values, explain(plan, ensemble, X)[0])


@both_precisions
def test_one_plan_in_several_threads(core, precision):
    ensemble = mixed_ensemble()
    X = random_rows(23, ensemble, 200)
    plan = core.Plan(state(ensemble), precision)
    values, margin = explain(plan, ensemble, X)
    starts = [7 * i % 150 for i in range(60)]
    with ThreadPoolExecutor(6) as pool:
        parts = pool.map(lambda i: explain(plan, ensemble, X[i : i + 50], n_threads=1 + i % 3), starts)
        for i, part in zip(starts, parts):
            assert same_bits(part[0], values[i : i + 50]) and same_bits(part[1], margin[i : i + 50])


@both_precisions
def test_a_plan_outlives_its_ensemble(core, precision):
    ensemble = mixed_ensemble()
    X = random_rows(24, ensemble, 70)
    plan = core.Plan(state(ensemble), precision)
    expected = explain(plan, ensemble, X)
    short_lived = {
        name: np.array(attribute) if isinstance(attribute, np.ndarray) else attribute
        for name, attribute in state(ensemble).items()
    }
    plan = core.Plan(short_lived, precision)
    for array in short_lived.values():
        if isinstance(array, np.ndarray):
            array[...] = 1
    del short_lived, array
    gc.collect()
    values, margin = explain(plan, ensemble, X)
    assert same_bits(values, expected[0]) and same_bits(margin, expected[1])


def test_base_value_is_not_a_handle_into_the_plan(core):
    plan = core.Plan(state(random_ensemble(25)), "double")
    before = plan.base_value.copy()
    changed = plan.base_value
    try:
        changed[...] = 99
    except ValueError:
        pass  # read-only is as good as a copy
    np.testing.assert_array_equal(plan.base_value, before)


def test_info_counts(core):
    ensemble = mixed_ensemble()
    with_split = np.diff(ensemble.tree_offsets) > 1
    assert 0 < with_split.sum() < ensemble.n_trees
    info = core.Plan(state(ensemble), "single").info()
    assert info["n_trees"] == sum(group["n_trees"] for group in info["groups"]) == with_split.sum()
    assert info["n_leaves"] == ensemble.n_leaves
    assert info["bytes"] > 0


# Interruption


def test_ctrl_c_and_other_threads_get_through(core):
    """The timer can only fire when the GIL is free, and its interrupt must end a job of minutes."""
    tree = full_tree(np.random.default_rng(26), 9, 4)
    ensemble = Ensemble.from_trees([tree] * 300, n_features=4, intercept=0)
    plan = core.Plan(state(ensemble), "double")
    X = np.random.default_rng(26).random((1_000_000, 4), np.float32)
    values = np.empty((len(X), 1, 4))
    ended = threading.Event()

    def interrupt():
        for _ in range(3):  # Python drops an interrupt that comes while it finalizes an object
            _thread.interrupt_main()
            if ended.wait(1.4):
                break

    timer = threading.Timer(0.2, interrupt)
    timer.start()
    begin = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        plan.explain(X, values, None, 2)
    ended.set()
    assert time.perf_counter() - begin < 5
    timer.join()
    few = X[:10]
    assert_consistent(ensemble, few, plan, "double", *explain(plan, ensemble, few))


# Wrong arguments


@pytest.mark.parametrize("precision", ["half", "", "Double", None, 1])
def test_wrong_precision(core, precision):
    with pytest.raises((ValueError, TypeError)):
        core.Plan(state(random_ensemble(27)), precision)


@pytest.mark.parametrize("name", [f.name for f in dataclasses.fields(Ensemble)])
def test_ensemble_without_an_attribute(core, name):
    attributes = state(random_ensemble(27))
    del attributes[name]
    with pytest.raises((ValueError, TypeError, KeyError), match=name):
        core.Plan(attributes, "single")


def test_ensemble_of_another_type(core):
    for wrong in (None, random_ensemble(27), [1], {}):
        with pytest.raises((ValueError, TypeError, KeyError)):
            core.Plan(wrong, "single")


def read_only(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


def unaligned(*shape: int) -> np.ndarray:
    return np.zeros(8 * int(np.prod(shape)) + 1, np.uint8)[1:].view(np.float64).reshape(shape)


GOOD = {"X": np.zeros((6, 5)), "values": np.zeros((6, 2, 5)), "margin": np.zeros((6, 2)), "n_threads": 1}


@pytest.mark.parametrize(
    "name, wrong",
    [
        ("X", np.zeros(5)),
        ("X", np.zeros((6, 5, 1))),
        ("X", np.zeros((6, 4))),
        ("X", np.zeros((6, 6))),
        ("X", np.zeros((7, 5))),
        ("X", np.zeros((5, 5))),
        ("X", np.zeros((6, 5), np.int64)),
        ("X", np.zeros((6, 5), np.float16)),
        ("X", np.zeros((6, 5), np.longdouble)),
        ("X", np.zeros((6, 5), ">f8")),
        ("X", np.zeros((6, 5), complex)),
        ("X", np.zeros((6, 5), bool)),
        ("X", np.zeros((6, 5), object)),
        ("X", np.zeros((6, 5), "U3")),
        ("X", None),
        ("X", [[0.0] * 5] * 6),
        ("X", unaligned(6, 5)),
        ("values", unaligned(6, 2, 5)),
        ("margin", unaligned(6, 2)),
        ("values", np.zeros((6, 10))),
        ("values", np.zeros((6, 5, 2))),
        ("values", np.zeros((5, 2, 5))),
        ("values", np.zeros((7, 2, 5))),
        ("values", np.zeros((6, 2, 6))),
        ("values", np.zeros((6, 3, 5))),
        ("values", np.zeros((6, 2, 5), np.int64)),
        ("values", np.zeros((6, 2, 5), np.float16)),
        ("values", np.zeros((6, 2, 5), ">f8")),
        ("values", np.zeros((6, 2, 5), order="F")),
        ("values", np.zeros((12, 2, 5))[::2]),
        ("values", np.zeros((6, 2, 5))[::-1]),
        ("values", read_only(np.zeros((6, 2, 5)))),
        ("values", None),
        ("values", [[[0.0] * 5] * 2] * 6),
        ("margin", np.zeros((6, 2), np.float32)),
        ("margin", np.zeros(12)),
        ("margin", np.zeros((2, 6))),
        ("margin", np.zeros((6, 3))),
        ("margin", np.zeros((5, 2))),
        ("margin", np.zeros((6, 2), order="F")),
        ("margin", np.zeros((6, 4))[:, ::2]),
        ("margin", read_only(np.zeros((6, 2)))),
        ("margin", [[0.0] * 2] * 6),
        ("n_threads", 0),
        ("n_threads", -1),
        ("n_threads", 1.5),
        ("n_threads", None),
        ("n_threads", 2**40),
    ],
)
def test_wrong_arguments(core, cpu_core, name, wrong):
    if name == "n_threads":
        core = cpu_core
    plan = core.Plan(state(random_ensemble(28, n_outputs=2)), "double")
    plan.explain(**GOOD)
    with pytest.raises((ValueError, TypeError)):
        plan.explain(**GOOD | {name: wrong})


def test_arrays_from_another_process(core):
    """Their dtype equals float64, but is another object; a dtype may also carry metadata."""
    ensemble = random_ensemble(29)
    X = random_rows(30, ensemble, 5)
    plan = core.Plan(state(pickle.loads(pickle.dumps(ensemble))), "double")
    expected = explain(plan, ensemble, X)[0]
    unpickled = pickle.loads(pickle.dumps(X))
    assert unpickled.dtype is not X.dtype
    assert same_bits(explain(plan, ensemble, unpickled)[0], expected)
    assert same_bits(explain(plan, ensemble, X.astype(np.dtype("f8", metadata={"unit": "m"})))[0], expected)
    values = pickle.loads(pickle.dumps(np.empty_like(expected)))
    plan.explain(X, values, pickle.loads(pickle.dumps(np.empty((5, 1)))), 1)
    assert same_bits(values.astype(X.dtype), expected)


@pytest.mark.parametrize("precision, value", [("single", 1e39), ("double", 1.7e308)])
def test_leaves_beyond_the_precision(core, precision, value):
    """They are refused or explained, never turned into infinity."""
    tree = Tree([1, -1, -1], [2, -1, -1], [0] * 3, [0.0] * 3, [False] * 3, [2, 1, 1], [0, value, -value])
    ensemble = Ensemble.from_trees([tree], n_features=1, intercept=0)
    try:
        plan = core.Plan(state(ensemble), precision)
    except ValueError as error:
        assert "leaf" in str(error)
        return
    values, _ = explain(plan, ensemble, np.array([[0.0], [1.0]]))
    np.testing.assert_allclose(values.ravel(), [value, -value], rtol=1e-6)


# In processes of their own, which these could end


PREAMBLE = f"""
import resource, sys
sys.path[:0] = [{str(TESTS)!r}, {os.path.dirname(__file__)!r}]
from helpers.ensembles import random_ensemble, random_rows
from test_kernels import explain, same_bits, state
from skshapgpu import _core
ensemble = random_ensemble(31, n_trees=20, max_leaves=50)
plan = _core.Plan(state(ensemble), "double")
X = random_rows(32, ensemble, 40_000)
"""


@once
def test_any_number_of_threads():
    result = run(
        [
            "-c",
            PREAMBLE
            + """
X = X[:70]
for n_threads in (2**20, 2**29, 2**30 - 1, 2**31 - 1, 2**30):
    print(n_threads, flush=True)
    assert same_bits(explain(plan, ensemble, X)[0], explain(plan, ensemble, X, n_threads=n_threads)[0])
""",
        ]
    )
    assert result.returncode == 0, f"exit status {result.returncode}: {result.stdout}"


@once
@pytest.mark.skipif(sys.platform != "linux", reason="limits memory as Linux does")
def test_threads_that_cannot_start():
    """300 threads need more address space than is left for their stacks."""
    result = run(
        [
            "-c",
            PREAMBLE
            + """
in_use = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (in_use + 2**28,) * 2)
try:
    explain(plan, ensemble, X, n_threads=300)
except (RuntimeError, OSError, MemoryError) as error:
    print("raised", error)
""",
        ]
    )
    assert result.returncode == 0, f"exit status {result.returncode}: {result.stdout}"


# Instruction sets


def test_instruction_set_in_use(cpu_core):
    available = cpu_core.instruction_sets()
    assert available[-1] == "baseline" and set(available) <= {"avx512", "avx2", "baseline"}
    assert cpu_core.instruction_set() == (ISA or available[0])


@once
def test_unknown_instruction_set_is_refused():
    code = (
        "from skshapgpu import _core\n"
        "try: print('got', _core.instruction_set())\n"
        "except (ValueError, RuntimeError) as error: print('refused:', error)"
    )
    result = run(["-c", code], SKSHAPGPU_ISA="mmx")
    assert result.returncode == 0 and "refused" in result.stdout and "mmx" in result.stdout, result.stdout


@once
@pytest.mark.parametrize("isa", ["avx512", "avx2", "baseline"])
def test_all_of_this_with(cpu_core, isa):
    if isa not in cpu_core.instruction_sets():
        pytest.skip(f"this processor has no {isa}")
    if isa == cpu_core.instruction_set():
        pytest.skip(f"this very run uses {isa}")
    result = run(["-m", "pytest", "-q", "-p", "no:cacheprovider", __file__], SKSHAPGPU_ISA=isa)
    assert result.returncode == 0, result.stdout[-8000:]
