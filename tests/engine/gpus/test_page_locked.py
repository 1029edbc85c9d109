"""Results of GPUs in page-locked memory, and rows of every layout."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_diabetes
from sklearn.ensemble import HistGradientBoostingRegressor

from skshapgpu import TreeExplainer
from skshapgpu._common import memory

_cuda = pytest.importorskip("skshapgpu._cuda")
pytestmark = pytest.mark.usefixtures("gpu")

X, Y = load_diabetes(return_X_y=True)

#: Rows whose values take more than 4 MiB.
ROWS = np.tile(X, (130, 1))


@pytest.fixture(autouse=True)
def limits() -> Iterator[None]:
    """Begin without kept memory, and leave the usual limit."""
    _cuda.limit_page_locked(0)
    yield
    _cuda.limit_page_locked(memory.locked_bytes())


@pytest.fixture(scope="module")
def explainer() -> Any:
    model = HistGradientBoostingRegressor(max_iter=10).fit(X, Y)
    explainer = TreeExplainer(model, device="cuda")
    explainer.shap_values(ROWS)  # sets the limit
    return explainer


def test_results_after_the_first_are_page_locked(explainer: Any) -> None:
    _cuda.limit_page_locked(2**30)
    first = explainer.shap_values(ROWS)
    second = explainer.shap_values(ROWS)
    bytes_of_second = _cuda.page_locked_bytes()
    assert bytes_of_second >= second.nbytes
    reversed_rows = explainer.shap_values(ROWS[::-1])
    assert _cuda.page_locked_bytes() >= 2 * second.nbytes
    np.testing.assert_array_equal(second, first)
    np.testing.assert_array_equal(reversed_rows, first[::-1])
    taken, view = _cuda.page_locked_bytes(), second[5:]
    del second, reversed_rows  # the view keeps its memory
    for _ in range(3):
        np.testing.assert_array_equal(explainer.shap_values(ROWS), first)
        np.testing.assert_array_equal(view, first[5:])
    assert _cuda.page_locked_bytes() == taken
    _cuda.limit_page_locked(0)
    assert 0 < _cuda.page_locked_bytes() < taken
    np.testing.assert_array_equal(view, first[5:])
    del view, first
    assert _cuda.page_locked_bytes() == 0


def test_no_more_than_the_limit(explainer: Any) -> None:
    size = explainer.shap_values(ROWS).nbytes
    _cuda.limit_page_locked(2 * size)
    results = [explainer.shap_values(ROWS) for _ in range(4)]
    assert size <= _cuda.page_locked_bytes() <= 2 * size
    for result in results:
        np.testing.assert_array_equal(result, results[0])


def test_none_with_a_memory_limit() -> None:
    _cuda.limit_page_locked(2**30)
    model = HistGradientBoostingRegressor(max_iter=10).fit(X, Y)
    explainer = TreeExplainer(model, device="cuda", memory_limit="1GB")
    for _ in range(3):
        explainer.shap_values(ROWS)
    assert _cuda.page_locked_bytes() == 0


def test_the_core_refuses_wrong_arrays() -> None:
    with pytest.raises(TypeError, match="float32 or float64"):
        _cuda.new_array((3,), np.dtype(np.int32))
    with pytest.raises(ValueError, match="negative"):
        _cuda.new_array((-3,), np.dtype(np.float32))
    with pytest.raises(MemoryError):
        _cuda.new_array((2**40, 2**40), np.dtype(np.float32))


def test_interactions_and_several_outputs(explainer: Any) -> None:
    _cuda.limit_page_locked(2**30)
    expected = explainer.shap_interaction_values(X)
    rows = np.tile(X, (20, 1))
    for _ in range(3):
        matrices = explainer.shap_interaction_values(rows)
        np.testing.assert_array_equal(matrices, np.tile(expected, (20, 1, 1)))
    assert _cuda.page_locked_bytes() > 0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_rows", [3, 442, 200_000])
def test_rows_of_every_layout(explainer: Any, dtype: Any, n_rows: int) -> None:
    rows = np.resize(X, (n_rows, X.shape[1])).astype(dtype)
    expected = explainer.shap_values(rows)
    wide = np.zeros((n_rows, 3 * X.shape[1]), dtype)
    wide[:, ::3] = rows
    padded = np.zeros((n_rows, X.shape[1] + 3), dtype)
    padded[:, : X.shape[1]] = rows
    several = np.repeat(rows, 2, axis=0)
    for container in (
        np.asfortranarray(rows),
        wide[:, ::3],
        padded[:, : X.shape[1]],
        several[::2],
        rows[::-1][::-1],
    ):
        np.testing.assert_array_equal(explainer.shap_values(container), expected)
