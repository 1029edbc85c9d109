"""Memory of deleted results and tables, which new ones take."""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import RandomForestRegressor
from sklearn.tree import DecisionTreeRegressor

from skshapgpu import TreeExplainer, _core
from skshapgpu._common.algorithms import Kind
from skshapgpu._common.memory import KEPT_BYTES, KEPT_VARIABLE, LARGE_BYTES

MIB = 2**20
SHAPE = (3, MIB)


@pytest.fixture(autouse=True)
def _nothing_kept() -> Iterator[None]:
    _core.keep_memory(0)
    _core.keep_memory(64 * MIB)
    yield
    _core.keep_memory(0)
    _core.keep_memory(KEPT_BYTES)


def address(array: np.ndarray) -> int:
    return array.ctypes.data


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(), (0, 5), (3, 4), SHAPE, (2, 3, MIB)])
def test_arrays(shape: tuple[int, ...], dtype: Any) -> None:
    array, is_zero = _core.new_array(shape, np.dtype(dtype))
    assert array.shape == shape and array.dtype == dtype
    assert array.flags.c_contiguous and array.flags.writeable and array.flags.aligned
    assert not is_zero or not array.any()
    array[...] = 3
    assert (array == 3).all()


def test_new_arrays_take_the_memory_of_deleted_ones() -> None:
    array, _ = _core.new_array(SHAPE, np.dtype(np.float32))
    array[...], before = 5, address(array)
    part = array[1:]
    del array
    assert _core.kept_memory() == 0  # a view needs it
    del part
    assert _core.kept_memory() == 12 * MIB
    other, is_zero = _core.new_array((MIB,), np.dtype(np.float32))
    assert _core.kept_memory() == 12 * MIB  # too large for it
    again, is_zero = _core.new_array(SHAPE, np.dtype(np.float32))
    assert address(again) == before and not is_zero and _core.kept_memory() == 0
    assert address(other) != before


def test_a_smaller_array_takes_a_part_of_the_memory() -> None:
    array, _ = _core.new_array((4, MIB), np.dtype(np.float32))
    before = address(array)
    del array
    smaller, _ = _core.new_array(SHAPE, np.dtype(np.float32))
    if address(smaller) == before:  # else memory cannot be divided here
        assert _core.kept_memory() == 0
    smaller[...] = 1
    del smaller
    assert _core.kept_memory() in (12 * MIB, 28 * MIB)


def test_the_memory_that_was_kept_first_is_freed_first() -> None:
    arrays = [_core.new_array((n, MIB), np.dtype(np.float32))[0] for n in (4, 5, 6, 12)]
    last = address(arrays[-1])
    while arrays:
        del arrays[0]
    assert _core.kept_memory() == 48 * MIB
    assert address(_core.new_array((12, MIB), np.dtype(np.float32))[0]) == last
    _core.keep_memory(47 * MIB)
    assert _core.kept_memory() == 0


def test_python_and_the_core_agree_on_what_is_large() -> None:
    n = LARGE_BYTES // 4
    for length, kept in ((n - 1, 0), (n, LARGE_BYTES)):
        array, _ = _core.new_array((length,), np.dtype(np.float32))
        del array
        assert _core.kept_memory() == kept


def test_refuses_other_arrays() -> None:
    for name in ("int32", "float16", ">f4", "longdouble"):
        with pytest.raises(TypeError, match="float32 or float64"):
            _core.new_array((3,), np.dtype(name))
    with pytest.raises(ValueError, match="negative"):
        _core.new_array((3, -1), np.dtype(np.float32))
    for shape in ((2**62, 2**62), (2**45, 2)):
        with pytest.raises(MemoryError):
            _core.new_array(shape, np.dtype(np.float32))


@pytest.mark.parametrize("n_features", [9, 2000])
def test_values_do_not_depend_on_what_the_memory_held(n_features: int) -> None:
    """Most features are unused: their zeros are written into memory that held other numbers."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200_000 if n_features < 10 else 1500, n_features)).astype(np.float32)
    model = RandomForestRegressor(3, max_depth=3, random_state=0).fit(X[:300], X[:300, 0] * X[:300, 3])
    explainer = TreeExplainer(model, device="cpu")
    values = explainer.shap_values(X)
    expected, before = values.copy(), address(values)
    values[...] = np.nan
    del values
    again = explainer.shap_values(X)
    assert address(again) == before
    np.testing.assert_array_equal(again, expected)


def test_results_with_a_memory_limit_are_not_kept() -> None:
    X = np.random.default_rng(0).normal(size=(500_000, 3)).astype(np.float32)
    model = DecisionTreeRegressor(max_depth=3).fit(X[:100], X[:100, 0])
    for limit, kept in ((None, 6 * MIB), ("1GB", 0)):
        _core.keep_memory(0)
        _core.keep_memory(64 * MIB)
        TreeExplainer(model, device="cpu", memory_limit=limit).shap_values(X)
        assert _core.kept_memory() == kept


def test_tables_of_deleted_explainers_are_kept() -> None:
    """Not only after a large result: these are small."""
    done = run_script(
        """
import numpy as np
from sklearn.ensemble import RandomForestRegressor
from skshapgpu import TreeExplainer, _core
X = np.random.default_rng(0).normal(size=(20_000, 6)).astype(np.float32)
forest = RandomForestRegressor(50, max_depth=8, max_samples=0.2, random_state=0)
forest.fit(X, (X[:, :4] ** 2).sum(axis=1))
explainer = TreeExplainer(forest, device="cpu")
values = explainer.shap_values(X)
needed = explainer.plan(len(X)).table_bytes
del explainer
print(needed, _core.kept_memory())
"""
    )
    assert done.returncode == 0, done.stderr
    needed, kept = map(int, done.stdout.split())
    assert needed > 10 * MIB
    assert needed / 2 < kept < needed + 8 * MIB


def test_threads_share_the_memory() -> None:
    def use(seed: int) -> bool:
        rng = np.random.default_rng(seed)
        good = True
        for _ in range(40):
            array, is_zero = _core.new_array((int(rng.integers(1, 4)), MIB), np.dtype(np.float32))
            good &= not is_zero or not array[:, ::999].any()
            array[...] = seed
            good &= bool((array == seed).all())
        return good

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(use, range(1, 9)))
    assert _core.kept_memory() <= 64 * MIB


SCRIPT = """
import os, sys
import numpy as np
from sklearn.tree import DecisionTreeRegressor
from skshapgpu import TreeExplainer, _core
X = np.random.default_rng(0).normal(size=(500_000, 3)).astype(np.float32)
tree = DecisionTreeRegressor(max_depth=3).fit(X[:100], X[:100, 0])
explainer = TreeExplainer(tree, device="cpu")
explainer.shap_values(X)
print(_core.kept_memory())
"""


def run_script(script: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))} | variables
    return subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=120
    )


@pytest.mark.parametrize(("given", "kept"), [("", 6 * MIB), ("1 GiB", 6 * MIB), ("5MB", 0), ("0", 0)])
def test_the_variable_sets_the_limit(given: str, kept: int) -> None:
    done = run_script(SCRIPT, **{KEPT_VARIABLE: given})
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == kept


@pytest.mark.parametrize("given", ["much", "-1"])
def test_the_variable_must_be_bytes(given: str) -> None:
    done = run_script(SCRIPT, **{KEPT_VARIABLE: given})
    assert done.returncode == 1
    assert f"ValueError: {KEPT_VARIABLE} must be bytes" in done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="has no fork")
def test_child_processes_keep_memory_of_their_own() -> None:
    done = run_script(
        SCRIPT
        + """
sys.stdout.flush()
child = os.fork()
values = explainer.shap_values(X)
if not child:
    del values
    os._exit(0 if _core.kept_memory() == 6 << 20 else 1)
assert _core.kept_memory() == 0
status = os.waitpid(child, 0)[1]
sys.exit(os.waitstatus_to_exitcode(status))
"""
    )
    assert done.returncode == 0, done.stderr


def test_a_view_of_a_model_keeps_the_model_whose_plans_it_uses() -> None:
    X = np.random.default_rng(0).normal(size=(50, 3))
    forest = RandomForestRegressor(3, max_depth=3, random_state=0).fit(X, X[:, 0])
    expected = TreeExplainer(forest, device="cpu")._compiled
    view = TreeExplainer(forest, device="cpu")._compiled.checking(False)  # of a model that nothing else holds
    gc.collect()
    kind = Kind(2, "SII")
    np.testing.assert_array_equal(view.of(kind).sets("pairs"), expected.of(kind).sets("pairs"))
    again = pickle.loads(pickle.dumps(view))
    np.testing.assert_array_equal(again.of(kind).sets("pairs"), expected.of(kind).sets("pairs"))
