"""Paths of algorithm="gputreeshap" and their packing into warps; needs no GPU."""

from __future__ import annotations

import functools
from types import ModuleType

import numpy as np
import pytest
from helpers.ensembles import ensemble_options, random_chain, random_ensemble
from hypothesis import given
from hypothesis import strategies as st

from skshapgpu import _core
from skshapgpu.adapters.ensemble import Ensemble, attributes_of

LANES = 32
PACKINGS = ("none", "next_fit", "first_fit_decreasing", "best_fit_decreasing")

each_packing = pytest.mark.parametrize("packing", PACKINGS)
sizes_lists = st.lists(st.integers(1, LANES), max_size=200)


@pytest.fixture(scope="session")
def cuda() -> ModuleType:
    return pytest.importorskip("skshapgpu._cuda")


def compile_plan(ensemble: Ensemble) -> _core.Plan:
    fields = attributes_of(ensemble)
    return _core.Plan(fields, "double")


def fill_bins(sizes: list[int], packing: str) -> list[int]:
    """Return the bin of each item by the definition of the heuristic: try every bin for every item."""
    bins = [0] * len(sizes)
    filled: list[int] = []
    decreasing = packing.endswith("decreasing")
    for item in sorted(range(len(sizes)), key=lambda i: -sizes[i] if decreasing else i):
        fits = [b for b, level in enumerate(filled) if level + sizes[item] <= LANES]
        if packing == "none":
            fits = []
        elif packing == "next_fit":
            fits = [b for b in fits if b == len(filled) - 1]
        elif packing == "best_fit_decreasing":
            fits.sort(key=lambda b: -filled[b])
        if not fits:
            fits = [len(filled)]
            filled.append(0)
        bins[item] = fits[0]
        filled[fits[0]] += sizes[item]
    return bins


def fewest_bins(sizes: list[int]) -> int:
    """Return the fewest bins, by the least (bins begun, fill level of the last bin) of each subset.

    The minimum is over the item that is added last.
    """

    @functools.cache
    def best(left: int) -> tuple[int, int]:
        result = (0, LANES) if not left else (len(sizes) + 1, 0)
        for item, size in enumerate(sizes):
            if left >> item & 1:
                n_bins, level = best(left & ~(1 << item))
                result = min(result, (n_bins, level + size) if level + size <= LANES else (n_bins + 1, size))
        return result

    return best((1 << len(sizes)) - 1)[0]


@each_packing
@given(sizes=sizes_lists)
def test_packing_follows_its_definition(cuda: ModuleType, packing: str, sizes: list[int]) -> None:
    bins, n_bins = cuda.pack(sizes, packing)
    assert bins == fill_bins(sizes, packing)
    assert sorted(set(bins)) == list(range(n_bins))  # none is empty
    assert (np.bincount(bins, sizes, n_bins) <= LANES).all()


@given(sizes=st.lists(st.integers(1, LANES), max_size=8))
def test_few_items_against_the_fewest_bins(cuda: ModuleType, sizes: list[int]) -> None:
    fewest = fewest_bins(sizes)
    n_bins = {packing: cuda.pack(sizes, packing)[1] for packing in PACKINGS}
    assert n_bins["none"] == len(sizes)
    assert fewest <= n_bins["next_fit"] <= max(2 * fewest - 1, 0)  # two bins in a row hold more than one can
    for packing in ("first_fit_decreasing", "best_fit_decreasing"):
        assert fewest <= n_bins[packing] <= 11 / 9 * fewest + 6 / 9  # Dosa 2007


@given(seed=st.integers(0, 2**32 - 1), n_full=st.integers(1, 200))
def test_many_items_against_the_fewest_bins(cuda: ModuleType, seed: int, n_full: int) -> None:
    # The pieces are full bins cut up, so no packing needs fewer bins.
    rng = np.random.default_rng(seed)
    most_cuts = rng.integers(0, 8)
    cuts = [
        np.sort(rng.choice(LANES - 1, rng.integers(0, most_cuts + 1), replace=False)) + 1
        for _ in range(n_full)
    ]
    sizes = rng.permutation(np.concatenate([np.diff([0, *cut, LANES]) for cut in cuts])).tolist()
    assert sum(sizes) == LANES * n_full
    assert n_full <= cuda.pack(sizes, "next_fit")[1] < 2 * n_full
    for packing in ("first_fit_decreasing", "best_fit_decreasing"):
        assert n_full <= cuda.pack(sizes, packing)[1] <= 11 / 9 * n_full + 6 / 9


def test_best_fit_may_differ_from_first_fit(cuda: ModuleType) -> None:
    sizes = [20, 18, 13, 1]  # the 13 fits the second bin only; then both have room for the 1, the second less
    assert cuda.pack(sizes, "first_fit_decreasing") == ([0, 1, 1, 0], 2)
    assert cuda.pack(sizes, "best_fit_decreasing") == ([0, 1, 1, 1], 2)


@each_packing
def test_sizes_that_do_not_fit_are_refused(cuda: ModuleType, packing: str) -> None:
    for size in (0, LANES + 1):
        with pytest.raises(ValueError, match="sizes must lie between 1 and 32"):
            cuda.pack([3, size], packing)


def test_unknown_packing_is_refused(cuda: ModuleType) -> None:
    with pytest.raises(ValueError, match=r"packing must be 'none', .* not 'worst_fit'"):
        cuda.pack([1], "worst_fit")


def path_lengths(ensemble: Ensemble) -> list[int]:
    """Return the number of distinct features on each leaf's path, plus one; a single leaf has no path."""
    lengths = []
    for root in ensemble.tree_offsets[:-1]:
        pending: list[tuple[int, frozenset[int]]] = [(int(root), frozenset())]
        while pending:
            node, features = pending.pop()
            if ensemble.left[node] < 0:
                if node != root:
                    lengths.append(len(features) + 1)
                continue
            features |= {int(ensemble.feature[node])}
            pending += [(int(root + child[node]), features) for child in (ensemble.left, ensemble.right)]
    return lengths


@given(options=ensemble_options())
def test_paths_of_random_ensembles(cuda: ModuleType, options: dict) -> None:
    ensemble = random_ensemble(**options)
    plan = compile_plan(ensemble)
    expected = path_lengths(ensemble)
    for packing in PACKINGS:
        summary = cuda.path_summary(plan, packing)
        lengths = summary["lengths"]
        assert sorted(lengths) == sorted(expected)
        assert summary["n_bins"] == cuda.pack(lengths, packing)[1]
        assert summary["utilisation"] == (sum(lengths) / (LANES * summary["n_bins"]) if lengths else 0)


def test_a_path_may_fill_a_warp_but_no_more(cuda: ModuleType) -> None:
    deepest = cuda.path_summary(compile_plan(random_chain(0, LANES - 1, LANES - 1)), "best_fit_decreasing")
    assert max(deepest["lengths"]) == LANES
    # A repeated feature is one element, so a path that repeats features may have any length.
    repeating = cuda.path_summary(compile_plan(random_chain(0, 500, LANES - 1)), "best_fit_decreasing")
    assert max(repeating["lengths"]) == LANES
    with pytest.raises(ValueError, match="more than 31 distinct features; use algorithm='quadrature'"):
        cuda.path_summary(compile_plan(random_chain(0, LANES, LANES)), "best_fit_decreasing")
