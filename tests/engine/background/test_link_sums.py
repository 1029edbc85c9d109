"""Slopes that are passed to the core: values are those of the margin, multiplied pair by pair."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.ensembles import leaf_scale, random_ensemble, random_rows

from skshapgpu import _core, reference
from skshapgpu.adapters.ensemble import attributes_of


def computed(plan: Any, x: np.ndarray, n_outputs: int, n_features: int, **options: Any) -> np.ndarray:
    values = np.empty((len(x), n_outputs, n_features))
    plan.explain(x, values, None, options.pop("n_threads", 1), **options)
    return values


@pytest.mark.parametrize("precision", ["single", "double"])
@pytest.mark.parametrize("n_background", [3, 150])  # 150: more than a tile of background rows
def test_values_with_given_slopes(precision: str, n_background: int) -> None:
    rng = np.random.default_rng(n_background)
    ensemble = random_ensemble(4, n_trees=6, n_outputs=2, n_features=5)
    rows = random_rows(4, ensemble, 70 + n_background)
    x, background = rows[:70], rows[70:]
    weights = rng.random(n_background)
    weights /= weights.sum()
    plan = _core.RescaledPlan(attributes_of(ensemble), precision, background, weights, "logistic", 1.0)
    slopes = rng.normal(size=(70, 2, n_background))
    expected = np.zeros((70, 2, 5))
    for number, (row, weight) in enumerate(zip(background, weights, strict=True)):
        values = reference.interventional(ensemble, x, row[np.newaxis]).values
        expected += weight * slopes[:, :, number, np.newaxis] * values
    # Relative to the leaves and to slopes of about 3: see TOLERANCE in test_model_output.py.
    tolerance = {"single": 5e-6, "double": 1e-10}[precision] * 3 * leaf_scale(ensemble).max()
    for n_threads in (1, 2):
        values = computed(plan, x, 2, 5, slopes=slopes, n_threads=n_threads)
        np.testing.assert_allclose(values, expected, rtol=0, atol=tolerance)
    assert np.abs(expected).max() > 1e-2
    parts = [computed(plan, x[part], 2, 5, slopes=slopes[part]) for part in (slice(0, 9), slice(9, 70))]
    np.testing.assert_array_equal(np.concatenate(parts), values)


def test_slopes_that_the_core_refuses() -> None:
    ensemble = random_ensemble(4)
    rows = random_rows(4, ensemble, 8)
    plan = _core.RescaledPlan(attributes_of(ensemble), "double", rows[:3], np.full(3, 1 / 3), "logistic", 1.0)
    for slopes in (np.ones((5, 1, 2)), np.ones((4, 1, 3)), np.ones((5, 3)), np.ones((5, 1, 6))[:, :, ::2]):
        with pytest.raises(ValueError, match=r"slopes (has a wrong shape|must be)"):
            computed(plan, rows[3:], 1, ensemble.n_features, slopes=slopes)
    with pytest.raises(TypeError, match="slopes must be a float64 array"):
        computed(plan, rows[3:], 1, ensemble.n_features, slopes=np.ones((5, 1, 3), np.float32))
