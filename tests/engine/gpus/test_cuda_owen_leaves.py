"""Owen values on the GPU leaf by leaf, compared with their definition and with the walks of the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from helpers.ensembles import full_tree, leaf_scale, random_chain, random_ensemble, random_rows
from helpers.plans import ALWAYS_TABLES, with_intervals

from skshapgpu import _core, reference
from skshapgpu.adapters.ensemble import Ensemble, attributes_of

_cuda = pytest.importorskip("skshapgpu._cuda")
pytestmark = pytest.mark.usefixtures("gpu")

#: Largest error of each precision, relative to the leaves.
TOLERANCE = {"single": 5e-6, "double": 1e-10}


def owen_plan(ensemble: Ensemble, precision: str, groups: np.ndarray) -> Any:
    return _core.owen_plan(attributes_of(ensemble), precision, groups.tolist())


def on_cpu(ensemble: Ensemble, rows: np.ndarray, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return values and margins of the walks, in double precision."""
    values = np.empty((len(rows), ensemble.n_outputs, ensemble.n_features))
    margin = np.empty(values.shape[:2])
    plan = owen_plan(ensemble, "double", groups)
    with_intervals(plan, 1).explain(rows, values, margin, 1)
    return values, margin


def assert_same(ensemble: Ensemble, rows: np.ndarray, groups: np.ndarray) -> None:
    """Compare values and margins of both precisions with the CPU's in double precision."""
    unit = leaf_scale(ensemble)
    truth, margin = on_cpu(ensemble, rows, groups)
    for precision, tolerance in TOLERANCE.items():
        plan = owen_plan(ensemble, precision, groups)
        for method in ("chunks", "small_chunks"):
            values, result = np.full(truth.shape, np.nan), np.full(margin.shape, np.nan)
            gap = np.empty(ensemble.n_outputs)
            by_leaf = _cuda.CudaPlan(plan, 0, method)
            by_leaf.explain(rows, values, result, gap, 0)
            assert (np.abs(values - truth) <= tolerance * unit[:, np.newaxis]).all()
            assert (np.abs(result - margin) <= tolerance * unit + 1e-15 * np.abs(ensemble.intercept)).all()
            assert (gap <= tolerance * ensemble.n_features * unit).all()
            # Few rows are divided among blocks in another way.
            first = slice(0, max(1, len(rows) // 3))
            again = np.full((first.stop, *truth.shape[1:]), np.nan)
            by_leaf.explain(rows[first], again, None, None, 0)
            np.testing.assert_array_equal(again, values[first])


def drawn(n: int) -> Iterator[tuple[Ensemble, np.ndarray, np.ndarray]]:
    """Draw trees, rows and the group of each feature."""
    for seed in range(n):
        rng = np.random.default_rng(seed)
        n_features = int(rng.integers(2, 10))
        ensemble = random_ensemble(
            rng,
            n_trees=int(rng.integers(1, 6)),
            n_features=n_features,
            n_used=int(rng.integers(1, n_features + 1)),
            n_outputs=int(rng.integers(1, 4)),
            categorical=bool(rng.integers(2)),
            zero_missing=bool(rng.integers(2)),
        )
        groups = rng.integers(0, rng.integers(1, n_features + 1), n_features)
        yield ensemble, random_rows(rng, ensemble, 9), np.unique(groups, return_inverse=True)[1]


@pytest.mark.parametrize("precision", ["single", "double"])
def test_random_trees_against_the_definition(precision: str) -> None:
    n_by_leaf = n_apart = 0
    for ensemble, rows, groups in drawn(300):
        plan = owen_plan(ensemble, precision, groups)
        if not _core.has_owen_leaves(plan):
            continue  # no tree has splits
        n_by_leaf += 1
        expected = reference.path_dependent(ensemble, rows, index="OV", player_groups=groups).values
        unit = leaf_scale(ensemble)[:, np.newaxis]
        for each in (plan, with_intervals(plan, 1)):  # leaf by leaf, and by walks, as other trees
            values = np.full(expected.shape, np.nan)
            _cuda.CudaPlan(each, 0).explain(rows, values, None, None, 0)
            assert (np.abs(values - expected) <= TOLERANCE[precision] * unit).all()
        shapley = reference.path_dependent(ensemble, rows).values
        n_apart += bool((np.abs(shapley - expected) > 1e-3 * unit).any())
    assert n_by_leaf > 280 and n_apart > 40


@pytest.mark.parametrize("n_rows", [1, 33, 64, 65, 700, 3000])
def test_numbers_of_rows(n_rows: int) -> None:
    rng = np.random.default_rng(n_rows)
    ensemble = random_ensemble(
        rng,
        n_trees=40,
        n_features=12,
        n_outputs=2,
        shapes=("random", "perfect"),
        max_leaves=40,
        categorical=True,
    )
    groups = np.array([0, 0, 0, 0, 1, 1, 1, 2, 2, 3, 4, 5])
    assert_same(ensemble, random_rows(rng, ensemble, n_rows), groups)


@pytest.mark.parametrize("depth", [1, 9, 11, 12])
def test_large_trees_are_divided_among_chunks(depth: int) -> None:
    """A chunk that begins within a tree begins with the path to its first leaf."""
    rng = np.random.default_rng(depth)
    trees = [full_tree(rng, depth, n_features=7) for _ in range(2)]
    ensemble = Ensemble.from_trees(trees, n_features=7, intercept=3.0)
    rows = rng.random((500, 7), np.float32)
    rows[rng.random(rows.shape) < 0.1] = np.nan
    assert_same(ensemble, rows, np.array([0, 1, 0, 1, 0, 2, 3]))


@pytest.mark.parametrize("n_features", [40, 150, 700])
def test_wide_data(n_features: int) -> None:
    """With many columns or slots, a block has fewer warps; with more, codes and sums are in the caches."""
    rng = np.random.default_rng(n_features)
    trees = [full_tree(rng, 6, n_features=6) for _ in range(n_features)]
    for i, tree in enumerate(trees):
        tree.feature[:] = (tree.feature * 7 + i) % n_features
    ensemble = Ensemble.from_trees(trees, n_features=n_features, intercept=0.0)
    assert_same(ensemble, rng.random((200, n_features), np.float32), np.arange(n_features) // 30)


def test_long_paths_of_few_features() -> None:
    """At each node of a chain, one subtree is a leaf, which is visited first."""
    rng = np.random.default_rng(0)
    for depth, n_features in ((60, 8), (200, 5)):
        ensemble = random_chain(depth, depth, n_features)
        rows = rng.random((70, n_features), np.float32)
        assert_same(ensemble, rows, np.arange(n_features) % 3)


@pytest.mark.parametrize("n_groups", [9, 10, 12, 16])
@pytest.mark.parametrize("n_pairs", [0, 4])
def test_paths_of_many_groups(n_groups: int, n_pairs: int) -> None:
    """Such leaves have no table of groups. Covers of zero make factors by which no product can be divided."""
    rng = np.random.default_rng(n_groups)
    n_features = n_groups + n_pairs
    groups = np.concatenate([np.arange(n_groups), rng.permutation(n_groups)[:n_pairs]])
    assert np.bincount(groups).max() <= 2
    trees = [full_tree(rng, 9, n_features) for _ in range(2)]
    for tree in trees:
        tree.feature[:] = rng.integers(n_features, size=len(tree.feature))
    full = Ensemble.from_trees(trees, n_features=n_features, intercept=1.0)
    for ensemble in (random_chain(n_groups, n_features, n_features), full):
        assert_same(ensemble, rng.random((90, n_features), np.float32), groups)


@pytest.mark.parametrize("precision", ["single", "double"])
def test_paths_of_many_groups_against_the_definition(precision: str) -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        ensemble, groups = random_chain(seed, 11, 11), rng.permutation(np.arange(11) % 9)
        rows = rng.random((8, 11), np.float32)
        expected = reference.path_dependent(ensemble, rows, index="OV", player_groups=groups).values
        values = np.full(expected.shape, np.nan)
        _cuda.CudaPlan(owen_plan(ensemble, precision, groups), 0).explain(rows, values, None, None, 0)
        unit = leaf_scale(ensemble)[:, np.newaxis]
        assert (np.abs(values - expected) <= TOLERANCE[precision] * unit).all()


def test_which_trees_are_explained_leaf_by_leaf() -> None:
    def has(n_features: int, groups: np.ndarray) -> bool:
        ensemble = random_chain(0, n_features, n_features)
        plan = owen_plan(ensemble, "double", groups)
        result = _core.has_owen_leaves(plan)
        if result:
            rows = np.random.default_rng(0).random((64, n_features), np.float32)
            assert_same(ensemble, rows, groups)
        else:
            with pytest.raises(ValueError, match="no walks"):
                _cuda.CudaPlan(plan, 0)
        return result

    assert has(8, np.arange(8)) and has(8, np.zeros(8, int))
    assert has(16, np.arange(16)) and not has(17, np.arange(17))  # groups on a path
    assert not has(9, np.zeros(9, int))  # features of a group
    # Bits of a row's word: one for each group, and for each feature of a group with several on the path.
    assert has(20, np.arange(20) // 2) and not has(24, np.arange(24) // 2)
    # Groups of eight features have 256 entries each, and a leaf's tables must fit shared memory.
    assert has(12, np.arange(12) // 8) and not has(16, np.arange(16) // 8)
    assert _core.has_owen_leaves(owen_plan(random_chain(0, 16, 16), "single", np.arange(16) // 8))
    vectors = random_ensemble(1, n_trees=3, n_outputs=3, vector=True, shapes=("perfect",))
    assert not _core.has_owen_leaves(owen_plan(vectors, "single", np.arange(5) // 2))
    assert not _core.has_owen_leaves(_core.Plan(attributes_of(vectors), "single"))


@pytest.mark.parametrize("precision", ["single", "double"])
def test_some_trees_have_tables(precision: str) -> None:
    n_mixed = 0
    for ensemble, rows, groups in drawn(60):
        plan = owen_plan(ensemble, precision, groups)
        if not _core.has_owen_leaves(plan):
            continue
        truth, margin = on_cpu(ensemble, rows, groups)
        unit = leaf_scale(ensemble)
        layout = _core.IntervalLayout(plan, 4, 1e9, ALWAYS_TABLES, on_gpu=True)
        with_tables = _core.interval_plan(plan, layout, unwalked=True)
        info = with_tables.info()
        n_mixed += 0 < info["n_table_trees"] < info["n_trees"]
        values, result = np.full(truth.shape, np.nan), np.full(margin.shape, np.nan)
        _cuda.CudaPlan(with_tables, 0).explain(rows, values, result, None, 0)
        assert (np.abs(values - truth) <= TOLERANCE[precision] * unit[:, np.newaxis]).all()
        assert (
            np.abs(result - margin) <= TOLERANCE[precision] * unit + 1e-15 * np.abs(ensemble.intercept)
        ).all()
    assert n_mixed > 5
