"""Calls of the compiled kernels: identical bits in every call, interruption, wrong arguments."""

from __future__ import annotations

import dataclasses
import gc
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from helpers import TESTS
from helpers.ensembles import ORDERS, full_tree, random_ensemble, random_rows
from helpers.kernels import (
    TOLERANCE,
    assert_consistent,
    both_precisions,
    explain,
    interrupted,
    once,
    run,
    same_bits,
    splits_on,
)

from skshapgpu.adapters.ensemble import Ensemble, Tree, attributes_of

# Equal bits


def mixed_ensemble(x_dtype: str = "float32") -> Ensemble:
    """Draw a model with every shape, categories and all outputs."""
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


@pytest.mark.parametrize("x_dtype", ["float32", "float64"])
@pytest.mark.parametrize("strict", [False, True])
def test_few_rows_are_coded_as_many_are(core, x_dtype, strict):
    """Up to four rows are compared with the thresholds one by one, more rows by a kernel."""
    ensemble = random_ensemble(
        23, n_trees=40, n_features=8, x_dtype=x_dtype, strict=strict, categorical=True, zero_missing=True
    )
    X = random_rows(24, ensemble, 240)
    plan = core.Plan(attributes_of(ensemble), "double")
    values, margin = explain(plan, ensemble, X)
    np.testing.assert_allclose(margin, ensemble.margin(X), rtol=1e-12, atol=1e-12)
    for n_rows in (1, 2, 3, 4, 5):
        for first in range(0, 240, n_rows):
            part = slice(first, first + n_rows)
            few = explain(plan, ensemble, X[part])
            assert same_bits(few[0], values[part]) and same_bits(few[1], margin[part])


@both_precisions
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_bits_depend_neither_on_threads_nor_on_the_other_rows(core, precision, dtype):
    ensemble = mixed_ensemble()
    X = random_rows(20, ensemble, 300)
    plan = core.Plan(attributes_of(ensemble), precision)
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
    again = explain(core.Plan(attributes_of(ensemble), precision), ensemble, X, dtype=dtype)
    assert same_bits(again[0], values) and same_bits(again[1], margin)


@both_precisions
@pytest.mark.parametrize("x_dtype", ["float32", "float64"])
def test_bits_do_not_depend_on_the_layout_of_X(core, precision, x_dtype):
    ensemble = mixed_ensemble(x_dtype)
    with np.errstate(over="ignore"):
        X = random_rows(21, ensemble, 131).astype(np.float32)
    n_rows, n_features = X.shape
    plan = core.Plan(attributes_of(ensemble), precision)
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
    plan = core.Plan(attributes_of(ensemble), precision)
    values = np.full((70, 3, 20), np.nan)
    plan.explain(X, values, None, 1)
    assert same_bits(values, explain(plan, ensemble, X)[0])


@both_precisions
@pytest.mark.parametrize("n_features", [40, 2**17])  # the second is more than the compiler keeps lists of
def test_rows_of_tested_columns_and_values_in_zeros(cpu_core, precision, n_features):
    ensemble = mixed_ensemble()
    place = np.sort(np.random.default_rng(24).choice(n_features, 20, replace=False)).astype(np.int32)
    wide = dataclasses.replace(
        ensemble,
        n_features=n_features,
        feature=np.where(ensemble.left >= 0, place[ensemble.feature], 0),
        zero_missing=np.isin(np.arange(n_features), place[ensemble.zero_missing]),
    )
    tested = np.unique(wide.feature[wide.left >= 0])
    assert 10 < len(tested) <= 20 and tested.max() > 20
    X = np.full((70, n_features), np.nan)
    X[:, place] = random_rows(25, ensemble, 70)
    plan = cpu_core.Plan(attributes_of(wide), precision)
    expected, margin = explain(plan, wide, X)
    assert same_bits(
        margin, explain(cpu_core.Plan(attributes_of(ensemble), precision), ensemble, X[:, place])[1]
    )
    assert_consistent(wide, X, plan, precision, expected, margin)
    for packed in (np.ascontiguousarray(X[:, tested]), np.asfortranarray(X[:, tested])):
        assert same_bits(explain(plan, wide, packed)[0], expected)
    values = np.zeros_like(expected)
    plan.explain(X, values, None, 1, zeroed=True)
    assert same_bits(values, expected)
    values[...] = 7.0
    plan.explain(X, values, None, 1, zeroed=True)
    used = splits_on(wide).any(axis=0)
    # Zeros between many used features are written all the same.
    untouched = 0 if used.sum() * 4 >= n_features else 7
    assert same_bits(values[:, :, used], expected[:, :, used]) and (values[:, :, ~used] == untouched).all()


@both_precisions
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_values_of_an_output_do_not_depend_on_the_others(core, precision, dtype):
    """Results of any width are written in squares, one output after the other; one output has no trees."""
    for n_features in (*range(1, 20), 70):
        ensemble = random_ensemble(n_features, n_trees=20, n_features=n_features, n_used=min(n_features, 15))
        n_nodes = np.diff(ensemble.tree_offsets)
        output = np.resize([3, 0, 2], ensemble.n_trees).astype(ensemble.tree_output.dtype)
        together = dataclasses.replace(
            ensemble, tree_output=output, intercept=np.array([1.0, 2.0, 0.0, -1.0])
        )
        X = random_rows(n_features, together, 150)
        plan = core.Plan(attributes_of(together), precision)
        values, margin = explain(plan, together, X, dtype=dtype)
        assert_consistent(together, X, plan, precision, values, margin)
        assert (values[:, 1] == 0).all() and (margin[:, 1] == 2).all()
        for o in (0, 2, 3):
            others_removed = np.where(np.repeat(output == o, n_nodes)[:, np.newaxis], ensemble.value, 0.0)
            alone = dataclasses.replace(
                together,
                value=others_removed,
                tree_output=np.full_like(output, 0),
                intercept=together.intercept[[o]],
            )
            expected = explain(core.Plan(attributes_of(alone), "double"), alone, X, dtype="float64")[0]
            scale = np.abs(expected).max()
            assert scale > 0
            in_double = precision == "double" and dtype == "float64"
            tolerance = 1e-12 if in_double else TOLERANCE["single"]
            np.testing.assert_allclose(values[:, o], expected[:, 0], rtol=0, atol=tolerance * scale)


@both_precisions
def test_one_plan_in_several_threads(core, precision):
    ensemble = mixed_ensemble()
    X = random_rows(23, ensemble, 200)
    plan = core.Plan(attributes_of(ensemble), precision)
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
    plan = core.Plan(attributes_of(ensemble), precision)
    expected = explain(plan, ensemble, X)
    short_lived = {
        name: np.array(attribute) if isinstance(attribute, np.ndarray) else attribute
        for name, attribute in attributes_of(ensemble).items()
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
    plan = core.Plan(attributes_of(random_ensemble(25)), "double")
    before = plan.base_value.copy()
    changed = plan.base_value
    try:
        changed[...] = 99
    except ValueError:
        pass  # read-only works like a copy
    np.testing.assert_array_equal(plan.base_value, before)


def test_info_counts(core):
    ensemble = mixed_ensemble()
    with_split = np.diff(ensemble.tree_offsets) > 1
    assert 0 < with_split.sum() < ensemble.n_trees
    info = core.Plan(attributes_of(ensemble), "single").info()
    assert info["n_trees"] == sum(group["n_trees"] for group in info["groups"]) == with_split.sum()
    assert info["n_leaves"] == ensemble.n_leaves
    assert info["bytes"] > 0


# Interruption


def test_ctrl_c_and_other_threads_get_through(core):
    """The timer can only fire while the GIL is released, and its interrupt must end a job of minutes."""
    tree = full_tree(np.random.default_rng(26), 9, 4)
    ensemble = Ensemble.from_trees([tree] * 300, n_features=4, intercept=0)
    plan = core.Plan(attributes_of(ensemble), "double")
    X = np.random.default_rng(26).random((1_000_000, 4), np.float32)
    values = np.empty((len(X), 1, 4))
    with interrupted(0.2):
        plan.explain(X, values, None, 2)
    few = X[:10]
    assert_consistent(ensemble, few, plan, "double", *explain(plan, ensemble, few))


# Wrong arguments


@pytest.mark.parametrize("precision", ["half", "", "Double", None, 1])
def test_wrong_precision(core, precision):
    with pytest.raises((ValueError, TypeError)):
        core.Plan(attributes_of(random_ensemble(27)), precision)


@pytest.mark.parametrize("name", [f.name for f in dataclasses.fields(Ensemble)])
def test_ensemble_without_an_attribute(core, name):
    attributes = attributes_of(random_ensemble(27))
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
    plan = core.Plan(attributes_of(random_ensemble(28, n_outputs=2)), "double")
    plan.explain(**GOOD)
    with pytest.raises((ValueError, TypeError)):
        plan.explain(**GOOD | {name: wrong})


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n_features", [20, 300])  # with 300, most features are in no tree
def test_gaps_are_those_of_the_written_values(cpu_core, dtype, n_features):
    ensemble = random_ensemble(31, n_trees=20, n_features=20, n_outputs=2, max_leaves=20)
    if n_features > 20:
        ensemble = dataclasses.replace(ensemble, n_features=n_features)
    X = np.full((1000, n_features), np.nan)
    X[:, :20] = random_rows(32, dataclasses.replace(ensemble, n_features=20), 1000)
    plan = cpu_core.Plan(attributes_of(ensemble), "single")
    values, margin = np.empty((1000, 2, n_features), dtype), np.empty((1000, 2))
    base = plan.base_value + np.array([0.25, 0.0])  # a wrong base value shows in its output alone
    explanation = plan.explain(X, values, margin, 1, base_value=base)
    explanation_of_base = explanation
    expected = np.abs(values.sum(axis=2, dtype=np.float64) + base - margin).max(axis=0)
    np.testing.assert_allclose(explanation, expected, rtol=1e-7)
    assert explanation[0] > 0.2 > explanation[1] > 0
    for n_threads in (1, 3):  # the margins themselves need not be asked for
        assert same_bits(plan.explain(X, values, None, n_threads, base_value=base), explanation)
    explanation = plan.explain(X, values, None, 2, base_value=np.array([0.0, np.nan]))
    assert np.isnan(explanation[1]) and np.isfinite(explanation[0])
    assert plan.explain(X, values, margin, 1) is None
    with pytest.raises(ValueError, match="one element for each output"):
        plan.explain(X, values, margin, 1, base_value=np.zeros(3))
    strided = np.repeat(base, 3)[::3]
    assert same_bits(plan.explain(X, values, margin, 1, base_value=strided), explanation_of_base)
    for other in (base.astype("f4"), base.astype(base.dtype.newbyteorder()), list(base)):
        with pytest.raises(TypeError, match="base_value must be a float64 array"):
            plan.explain(X, values, margin, 1, base_value=other)


def test_arrays_from_another_process(core):
    """An unpickled array's dtype equals float64 but is another object; a dtype may also carry metadata."""
    ensemble = random_ensemble(29)
    X = random_rows(30, ensemble, 5)
    plan = core.Plan(attributes_of(pickle.loads(pickle.dumps(ensemble))), "double")
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
    """Such leaves are rejected or explained, but never become infinite."""
    tree = Tree([1, -1, -1], [2, -1, -1], [0] * 3, [0.0] * 3, [False] * 3, [2, 1, 1], [0, value, -value])
    ensemble = Ensemble.from_trees([tree], n_features=1, intercept=0)
    try:
        plan = core.Plan(attributes_of(ensemble), precision)
    except ValueError as error:
        assert "leaf" in str(error)
        return
    values, _ = explain(plan, ensemble, np.array([[0.0], [1.0]]))
    np.testing.assert_allclose(values.ravel(), [value, -value], rtol=1e-6)


# In separate processes, which these tests could crash


PREAMBLE = f"""
import resource, sys
sys.path.insert(0, {str(TESTS)!r})
from helpers.ensembles import random_ensemble, random_rows
from helpers.kernels import attributes_of, explain, same_bits
from skshapgpu import _core
ensemble = random_ensemble(31, n_trees=20, max_leaves=50)
plan = _core.Plan(attributes_of(ensemble), "double")
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
    """The stacks of 300 threads need more address space than is left."""
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
