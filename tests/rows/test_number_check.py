"""The check in the core whether a model accepts all numbers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from skshapgpu import _core
from skshapgpu._rows.inputs import FLOAT32_OVERFLOW

#: Views of a C-contiguous array whose numbers are at various distances.
VIEWS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "C order": lambda a: a,
    "Fortran order": lambda a: np.asfortranarray(a),
    "some rows": lambda a: a[::3],
    "some columns": lambda a: a[:, 1::2],
    "a part": lambda a: a[2:-1, 1:-2],
    "a part in Fortran order": lambda a: np.asfortranarray(a)[2:-1, 1:-2],
    "backwards": lambda a: a[::-1, ::-1],
    "one row": lambda a: a[:1],
    "one column": lambda a: a[:, :1],
    "flat": lambda a: a.reshape(-1),
    "every other": lambda a: a.reshape(-1)[::2],
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("shape", [(7, 9), (40_000, 30), (11, 90_000)])
def test_one_number_is_found_wherever_it_is(shape: tuple[int, int], view: str, dtype: type) -> None:
    rng = np.random.default_rng(0)
    array = VIEWS[view](rng.normal(size=shape).astype(dtype))
    for n_threads in (1, 3, 0):
        assert _core.all_below(array, 100, False, n_threads)
        places = [0, array.size - 1, *rng.integers(array.size, size=2)]
        for place in places:
            at = np.unravel_index(place, array.shape)
            kept = array[at]
            for bad, allow_nan, accepted in (
                (np.nan, True, True),
                (np.nan, False, False),
                (100.0, True, False),
                (-100.0, False, False),
                (-np.inf, True, False),
                (99.0, False, True),
            ):
                array[at] = bad
                assert _core.all_below(array, 100, allow_nan, n_threads) == accepted
            array[at] = kept


def test_limits_beyond_the_range_of_float32() -> None:
    largest = np.finfo(np.float32).max
    for limit in (np.inf, FLOAT32_OVERFLOW):
        assert _core.all_below(np.array([largest, -largest], np.float32), limit, False)
        assert not _core.all_below(np.array([0, np.inf], np.float32), limit, True)
    below = np.nextafter(FLOAT32_OVERFLOW, 0)
    assert _core.all_below(np.array([below, -below]), FLOAT32_OVERFLOW, False)
    assert not _core.all_below(np.array([-FLOAT32_OVERFLOW, 0]), FLOAT32_OVERFLOW, False)


def test_repeated_and_no_numbers() -> None:
    assert _core.all_below(np.broadcast_to(np.float32(2), (300_000, 9)), 3, False, 2)
    assert not _core.all_below(np.broadcast_to(np.float32(4), (300_000, 9)), 3, False, 2)
    for shape in ((0, 3), (3, 0), (0,)):
        assert _core.all_below(np.empty(shape), 1, False)


def test_other_arrays_are_rejected() -> None:
    with pytest.raises(TypeError, match="float32 or float64"):
        _core.all_below(np.zeros(3, int), 1, False)
    with pytest.raises(ValueError, match="dimensions"):
        _core.all_below(np.zeros((1, 1, 1)), 1, False)
    with pytest.raises(ValueError, match="range"):
        _core.all_below(np.zeros(3), 1, False, -1)
