"""Ensemble: its validation, the path of a row, and its immutability."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import numpy as np
import pytest
from helpers.ensembles import ORDERS, ensemble_options, random_ensemble, random_rows
from hypothesis import given, settings

from skshapgpu.adapters.ensemble import Ensemble, Tree

NAN, INF = np.nan, np.inf
DENORMAL = 5e-324
DENORMAL32 = float(np.float32(1e-45))
MAX32 = float(np.finfo(np.float32).max)


def fields_of(ensemble: Ensemble) -> dict[str, object]:
    """Return all fields that are needed to build the ensemble again, with writeable arrays."""
    return {f.name: copy.deepcopy(getattr(ensemble, f.name)) for f in dataclasses.fields(ensemble)}


def two_trees(**changes: object) -> Ensemble:
    """Build tree 0: node 0 -> (1, 2), node 2 -> (3, 4); and tree 1: node 0 -> (1, 2), categorical."""
    good = {
        "n_features": 3,
        "tree_offsets": [0, 5, 8],
        "tree_output": [0, 1],
        "left": [1, -1, 3, -1, -1, 1, -1, -1],
        "right": [2, -1, 4, -1, -1, 2, -1, -1],
        "feature": [0, 0, 1, 0, 0, 2, 0, 0],
        "threshold": [0.5, 0, 1.5, 0, 0, 0, 0, 0],
        "missing_left": [True] * 8,
        "cover": [4.0, 1, 3, 1, 2, 4, 2, 2],
        "value": [[0.0], [1], [0], [2], [3], [0], [4], [5]],
        "intercept": [0.5, -0.5],
        "zero_missing": [False, True, False],
        "category_set": [-1, -1, -1, -1, -1, 0, -1, -1],
        "category_offsets": [0, 2],
        "category_values": [1, 4],
        "category_listed_left": [True],
    }
    return Ensemble(**(good | changes))


def changed(name: str, index: object, value: object) -> dict[str, np.ndarray]:
    array = np.array(getattr(two_trees(), name))
    array[index] = value
    return {name: array}


def test_counts():
    ensemble = two_trees()
    assert (ensemble.n_trees, ensemble.n_nodes, ensemble.n_leaves, ensemble.n_outputs) == (2, 8, 5, 2)


BROKEN = {
    "child beyond its tree": (changed("right", 2, 5), "node 2 of tree 0 has a child outside its tree"),
    "child beyond all trees": (changed("right", 5, 3), "node 0 of tree 1 has a child outside its tree"),
    "only a left child": (changed("right", 2, -1), "node 2 of tree 0 has exactly one child"),
    "only a right child": (changed("left", 5, -1), "node 0 of tree 1 has exactly one child"),
    "node is its own child": (changed("left", 2, 2), "is not reached exactly once"),
    "root is a child": (changed("left", 2, 0), "node 0 of tree 0 is not reached exactly once"),
    "one child twice": (changed("right", 2, 3), "node 3 of tree 0 is not reached exactly once"),
    "shared child": (changed("left", 2, 1), "node 1 of tree 0 is not reached exactly once"),
    "negative feature": (changed("feature", 2, -1), r"node 2 of tree 0 splits on a feature outside 0\.\.2"),
    "feature too large": (changed("feature", 5, 3), r"node 0 of tree 1 splits on a feature outside 0\.\.2"),
    "NaN threshold": (changed("threshold", 2, NAN), "node 2 of tree 0 has a NaN threshold"),
    "negative cover": (changed("cover", 7, -1e-9), "node 2 of tree 1 has a negative or non-finite cover"),
    "NaN cover": (changed("cover", 0, NAN), "node 0 of tree 0 has a negative or non-finite cover"),
    "infinite cover": (changed("cover", 0, INF), "node 0 of tree 0 has a negative or non-finite cover"),
    "infinite value": (changed("value", 4, -INF), "node 4 of tree 0 has a non-finite value"),
    "NaN value": (changed("value", 6, NAN), "node 1 of tree 1 has a non-finite value"),
    "infinite intercept": ({"intercept": [0, INF]}, "intercept must hold one finite number"),
    "no output": ({"intercept": []}, "intercept must hold one finite number"),
    "negative number of features": ({"n_features": -1}, "n_features must be an integer from 0"),
    "more features than the core counts": ({"n_features": 2**31}, "n_features must be an integer from 0"),
    "no bool": ({"strict": np.zeros(2)}, "strict must be a bool"),
    "fractional number of features": ({"n_features": 3.0}, "n_features must be an integer from 0"),
    "leaf marked by -2": (changed("left", 1, -2), "node 1 of tree 0"),
    "value at an inner node": (changed("value", 2, 1.0), "node 2 of tree 0 has a value, but is not a leaf"),
    "x_dtype": ({"x_dtype": "float16"}, "x_dtype must be 'float32' or 'float64', not 'float16'"),
    "output too large": ({"tree_output": [0, 2]}, r"tree_output must be in 0\.\.1"),
    "output too small": ({"tree_output": [0, -2]}, r"tree_output must be in 0\.\.1"),
    "some vector leaves": ({"tree_output": [0, -1]}, "must be -1 in every tree or in none"),
    "vector leaves too narrow": ({"tree_output": [-1, -1]}, r"value must have shape \(8, 2\)"),
    "scalar leaves too wide": ({"value": np.ones((8, 2))}, r"value must have shape \(8, 1\)"),
    "flat value": ({"value": np.zeros(8)}, "value must have two dimensions"),
    "two-dimensional intercept": ({"intercept": [[0.5], [-0.5]]}, "intercept must have one dimension"),
    "two-dimensional cover": ({"cover": np.ones((8, 2))}, "cover must have one dimension"),
    "child that int32 would wrap": (
        {"left": [1 + 2**32, -1, 3, -1, -1, 1, -1, -1]},
        "left must hold integers",
    ),
    "fractional child": ({"left": [1.7, -1, 3, -1, -1, 1, -1, -1]}, "left must hold integers"),
    "fractional category": ({"category_values": [1.5, 4]}, "category_values must hold integers"),
    "offsets do not start at 0": ({"tree_offsets": [1, 5, 8]}, "tree_offsets must start at 0"),
    "offsets do not end at n_nodes": ({"tree_offsets": [0, 5, 7]}, "end at n_nodes"),
    "too few offsets": ({"tree_offsets": [0, 8]}, r"n_trees \+ 1 entries"),
    "no offsets": ({"tree_offsets": [], "tree_output": []}, r"n_trees \+ 1 entries"),
    "falling offsets": ({"tree_offsets": [0, 9, 8]}, "every tree needs at least one node"),
    "empty tree": ({"tree_offsets": [0, 0, 8]}, "every tree needs at least one node"),
    "zero_missing too short": ({"zero_missing": [True]}, "zero_missing must be empty or have n_features"),
    "category_set too short": ({"category_set": [-1] * 7}, "category_set needs n_nodes entries"),
    "categories without a category_set": ({"category_set": []}, "category_set is empty, but there are"),
    "unknown category set": (changed("category_set", 5, 1), "node 0 of tree 1 has an unknown category set"),
    "category set below -1": (changed("category_set", 5, -2), "node 0 of tree 1 has an unknown category set"),
    "too few category offsets": ({"category_offsets": [0]}, r"category_offsets n_sets \+ 1"),
    "category offsets start late": ({"category_offsets": [1, 2]}, "category_offsets must rise from 0"),
    "category offsets end early": ({"category_offsets": [0, 1]}, "category_offsets must rise from 0"),
    "category offsets fall": (
        {"category_offsets": [0, 2, 1, 2], "category_listed_left": [True] * 3},
        "category_offsets must rise from 0",
    ),
    "category listed twice": ({"category_values": [4, 4]}, "category_values must be >= 0 and ascending"),
    "categories descend": ({"category_values": [4, 1]}, "category_values must be >= 0 and ascending"),
    "negative category": ({"category_values": [-1, 4]}, "category_values must be >= 0 and ascending"),
    **{
        f"{name} too short": (
            {name: getattr(two_trees(), name)[:-1]},
            f"{name} must have n_nodes = 8 entries",
        )
        for name in ("right", "feature", "threshold", "missing_left", "cover")
    },
}


@pytest.mark.parametrize("changes, message", BROKEN.values(), ids=BROKEN.keys())
def test_refuses(changes, message):
    with pytest.raises(ValueError, match=message):
        two_trees(**changes)


def test_refuses_a_cycle_beside_the_tree():
    """Nodes 1 and 2 are each other's parents, so every node has one parent, but the root has no children."""
    with pytest.raises(ValueError, match="a tree contains a cycle"):
        two_trees(
            left=[-1, 2, 1, -1, -1, 1, -1, -1], right=[-1, 3, 4, -1, -1, 2, -1, -1], value=np.zeros((8, 1))
        )


def test_ignored_numbers_may_be_anything():
    """Leaves may have features and thresholds, offsets of sets may repeat, and each set has its own codes."""
    two_trees(feature=[0, 99, 1, -5, 0, 2, 0, 0], threshold=[0.5, NAN, 1.5, NAN, NAN, 0, NAN, NAN])
    two_trees(category_offsets=[0, 2, 2, 3], category_values=[1, 4, 0], category_listed_left=[True] * 3)


@given(ensemble_options())
@settings(max_examples=50)
def test_order_of_nodes_changes_nothing(options):
    """Any order of nodes after the root is accepted and does not change any row's path."""
    first, *others = [random_ensemble(**options | {"order": order}) for order in ORDERS]
    X = random_rows(options["seed"], first, 20)
    margin = first.margin(X)
    assert margin.shape == (20, options["n_outputs"]) and np.isfinite(margin).all()
    for other in others:
        np.testing.assert_array_equal(other.margin(X), margin)


def stump(
    threshold: float = 0.0,
    *,
    x_dtype: str = "float64",
    strict: bool = False,
    missing_left: bool = False,
    zero_missing: bool = False,
    codes: list[int] | None = None,
    listed_left: bool = True,
) -> Ensemble:
    """Build a stump with margin -1 for rows that go left and 1 for rows that go right."""
    tree = Tree(
        left=[1, -1, -1],
        right=[2, -1, -1],
        feature=[0, 0, 0],
        threshold=[threshold, 0, 0],
        missing_left=[missing_left, False, False],
        cover=[2, 1, 1],
        value=[0, -1, 1],
        categories={} if codes is None else {0: np.array(codes)},
        listed_left=listed_left,
    )
    return Ensemble.from_trees(
        [tree], n_features=1, intercept=0, x_dtype=x_dtype, strict=strict, zero_missing=[zero_missing]
    )


def goes_left(ensemble: Ensemble, *x: float) -> list[bool]:
    return [bool(m == -1) for m in ensemble.margin(np.array(x)[:, np.newaxis])[:, 0]]


@pytest.mark.parametrize("x_dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "threshold", [0.0, -0.0, 0.5, -2.0, DENORMAL32, -DENORMAL32, MAX32, -MAX32, INF, -INF]
)
def test_at_and_beside_a_threshold(threshold, x_dtype):
    t, ends = np.array(threshold, x_dtype), np.array([-INF, INF], x_dtype)
    with np.errstate(over="ignore"):
        below, above = np.nextafter(t, ends).astype(float)
    x = [below, threshold, above, -INF, INF]
    assert goes_left(stump(threshold, x_dtype=x_dtype), *x) == [v <= threshold for v in x]
    assert goes_left(stump(threshold, x_dtype=x_dtype, strict=True), *x) == [v < threshold for v in x]


def test_infinite_thresholds():
    """`<= inf` is true for infinity, `< -inf` is true for no number."""
    assert goes_left(stump(INF), INF, 1e308, -INF) == [True, True, True]
    assert goes_left(stump(INF, strict=True), INF, 1e308, -INF) == [False, True, True]
    assert goes_left(stump(-INF), INF, -1e308, -INF) == [False, False, True]
    assert goes_left(stump(-INF, strict=True), INF, -1e308, -INF) == [False, False, False]


@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_both_zeros_are_one_number(zero):
    assert goes_left(stump(zero), 0.0, -0.0, DENORMAL, -DENORMAL) == [True, True, False, True]
    assert goes_left(stump(zero, strict=True), 0.0, -0.0, DENORMAL, -DENORMAL) == [False, False, False, True]


def test_rows_are_rounded_to_float32_but_thresholds_are_not():
    """The float64 numbers next to 0.1 all round to float32(0.1) = 0.10000000149, which is above 0.1."""
    near = [np.nextafter(0.1, 0), 0.1, np.nextafter(0.1, 1)]
    assert goes_left(stump(0.1), *near) == [True, True, False]
    assert goes_left(stump(0.1, x_dtype="float32"), *near) == [False, False, False]
    # Numbers beyond the largest float32 become infinite, and numbers below the smallest become zero.
    assert goes_left(stump(1e300, x_dtype="float32"), 1e299, -1e301) == [False, True]
    assert goes_left(stump(0.0, x_dtype="float32"), DENORMAL, -DENORMAL, DENORMAL32) == [True, True, False]
    assert goes_left(stump(0.0, x_dtype="float32", strict=True), -DENORMAL, -DENORMAL32) == [False, True]


@pytest.mark.parametrize("missing_left", [False, True])
@pytest.mark.parametrize("strict", [False, True])
def test_missing(missing_left, strict):
    for threshold in (-INF, 0.0, INF):
        ensemble = stump(threshold, missing_left=missing_left, strict=strict)
        assert goes_left(ensemble, NAN, -NAN) == [missing_left] * 2
    assert goes_left(stump(missing_left=missing_left, codes=[0]), NAN) == [missing_left]


def test_zeros_that_are_missing():
    """LightGBM compares float64 numbers with the float32 next to 1e-35."""
    limit = float(np.float32(1e-35))
    x = [0.0, -0.0, 1e-35, limit, -limit, DENORMAL, np.nextafter(limit, 1), -np.nextafter(limit, 1)]
    assert goes_left(stump(-1.0, missing_left=True, zero_missing=True), *x) == [True] * 6 + [False] * 2
    assert goes_left(stump(1.0, missing_left=False, zero_missing=True), *x) == [False] * 6 + [True] * 2
    assert goes_left(stump(1.0, missing_left=False), *x) == [True] * 8


@pytest.mark.parametrize("listed_left", [False, True])
def test_categories(listed_left):
    """Codes are truncated towards zero; negative, infinite and unlisted codes are in no set."""
    ensemble = stump(codes=[5, 0, 64, 5], listed_left=listed_left)
    listed = [0.0, -0.0, 5.0, 64.0, 5.9, -0.9]
    others = [1.0, 63.9, 65.0, -1.0, -5.0, INF, -INF, 2.0**32, 2.0**32 + 5, 1e300]
    assert goes_left(ensemble, *listed, *others) == [listed_left] * 6 + [not listed_left] * 10
    assert goes_left(stump(codes=[], listed_left=listed_left), 0.0, 3.0) == [not listed_left] * 2


def test_margin_adds_trees_to_their_outputs():
    ensemble = two_trees()
    X = [[0.5, 0, 1], [np.nextafter(0.5, 1), 1.5, 2], [1, 2, NAN], [NAN, 0, 4.5]]
    np.testing.assert_array_equal(ensemble.margin(X), [[1.5, 3.5], [1.5, 4.5], [3.5, 3.5], [1.5, 3.5]])
    assert ensemble.margin(np.empty((0, 3))).shape == (0, 2)


def test_margin_of_vector_leaves():
    tree = Tree([1, -1, -1], [2, -1, -1], [0] * 3, [0.0] * 3, [True] * 3, [2, 1, 1], [[0, 0], [1, 2], [3, 4]])
    ensemble = Ensemble.from_trees([tree, tree], n_features=1, intercept=[10, 20], zero_missing=[False])
    np.testing.assert_array_equal(ensemble.margin([[0], [1]]), [[12, 24], [16, 28]])


def test_from_trees_keeps_each_trees_numbering():
    trees = [
        Tree([-1], [-1], [0], [0.0], [False], [1.0], [7.0]),
        Tree(
            [2, -1, -1],
            [1, -1, -1],
            [1] * 3,
            [0.0] * 3,
            [False] * 3,
            [2, 1, 1],
            [0, 1, 2],
            categories={0: np.array([3, 1, 3])},
            listed_left=False,
        ),
    ]
    ensemble = Ensemble.from_trees(trees, n_features=2, intercept=0)
    np.testing.assert_array_equal(ensemble.tree_offsets, [0, 1, 4])
    np.testing.assert_array_equal(ensemble.left, [-1, 2, -1, -1])
    np.testing.assert_array_equal(ensemble.category_set, [-1, 0, -1, -1])
    np.testing.assert_array_equal(ensemble.category_values, [1, 3])
    np.testing.assert_array_equal(ensemble.margin([[0, 1], [0, 2]]), [[8], [9]])


def test_no_trees():
    ensemble = Ensemble.from_trees([], n_features=4, intercept=[1, 2])
    assert (ensemble.n_trees, ensemble.n_nodes, ensemble.n_leaves) == (0, 0, 0)
    np.testing.assert_array_equal(ensemble.margin(np.zeros((3, 4))), [[1, 2]] * 3)


def test_fields_and_arrays_are_read_only():
    ensemble = two_trees()
    with pytest.raises(dataclasses.FrozenInstanceError):
        ensemble.n_features = 7
    for field in dataclasses.fields(ensemble):
        array = getattr(ensemble, field.name)
        if isinstance(array, np.ndarray):
            assert array.flags.c_contiguous
            with pytest.raises(ValueError, match="read-only"):
                array[...] = 1


def test_arrays_are_the_ensembles_own():
    left = np.array(two_trees().left)
    ensemble = two_trees(left=left)
    left[0] = 77
    assert ensemble.left[0] == 1


@pytest.mark.parametrize("shape", [(3,), (2, 2), (2, 4)])
def test_margin_refuses_another_shape(shape):
    with pytest.raises(ValueError):
        two_trees().margin(np.zeros(shape))


def test_arrays_have_the_documented_dtypes():
    ensemble = two_trees()
    for names, dtype in [
        ("tree_offsets category_offsets", np.int64),
        ("tree_output left right feature category_set category_values", np.int32),
        ("threshold cover value intercept", np.float64),
        ("missing_left zero_missing category_listed_left", np.bool_),
    ]:
        for name in names.split():
            assert getattr(ensemble, name).dtype == dtype, name


@pytest.mark.parametrize("duplicate", [lambda e: pickle.loads(pickle.dumps(e)), copy.copy, copy.deepcopy])
def test_copies_are_equal_and_still_read_only(duplicate):
    ensemble = random_ensemble(
        3, n_trees=4, n_outputs=2, categorical=True, zero_missing=True, strict=True, x_dtype="float64"
    )
    assert len(ensemble.category_values)
    twin = duplicate(ensemble)
    for field in dataclasses.fields(ensemble):
        one, other = getattr(ensemble, field.name), getattr(twin, field.name)
        np.testing.assert_array_equal(one, other, err_msg=field.name, strict=isinstance(one, np.ndarray))
        if isinstance(other, np.ndarray):
            assert not other.flags.writeable, field.name


def test_a_broken_pickle_is_refused():
    """Unpickling validates again: edited arrays in a pickle are rejected."""
    rebuild, (state,) = two_trees().__reduce__()
    with pytest.raises(ValueError, match="child outside its tree"):
        rebuild(state | changed("right", 2, 5))
