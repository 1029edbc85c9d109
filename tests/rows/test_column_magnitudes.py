"""Interactions are scaled and their magnitudes summed, in one pass over the result."""

from __future__ import annotations

import numpy as np
import pytest

from skshapgpu import _core


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "shape", [(1, 1, 1), (3, 2, 5), (70_001, 1, 40), (5, 3, 90_000), (0, 2, 3), (2, 1, 0)]
)
@pytest.mark.parametrize("factor", [1, 2])
def test_sums_and_results(shape: tuple[int, ...], dtype: type, factor: int) -> None:
    given = np.random.default_rng(0).normal(size=shape).astype(dtype)
    expected = np.abs(factor * given.astype(np.float64)).sum(axis=(0, 1))
    sums = []
    for n_threads in (1, 2, 0):
        results = given.copy()
        sums.append(_core.scale_and_sum(results, factor, n_threads))
        np.testing.assert_array_equal(results, factor * given)
        np.testing.assert_allclose(sums[-1], expected, rtol=1e-12)
    np.testing.assert_array_equal(sums[0], sums[1])
    np.testing.assert_array_equal(sums[0], sums[2])


def test_other_arrays_are_rejected() -> None:
    with pytest.raises(ValueError, match="three dimensions"):
        _core.scale_and_sum(np.zeros((2, 2)), 1)
    with pytest.raises(ValueError, match="C-contiguous"):
        _core.scale_and_sum(np.zeros((2, 3, 4))[:, :, ::2], 1)
    with pytest.raises(TypeError, match="float32 or float64"):
        _core.scale_and_sum(np.zeros((2, 3, 4), int), 1)
    with pytest.raises(ValueError, match="n_threads"):
        _core.scale_and_sum(np.zeros((2, 3, 4)), 1, -1)
