"""Integers on a GPU are rounded like integers of an array on the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.families import library
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor

from skshapgpu import TreeExplainer

pytest.importorskip("skshapgpu._cuda")


@pytest.mark.parametrize("package", ["cupy", "torch"])
@pytest.mark.parametrize("family", ["forest", "hist", "lightgbm"])
def test_integers_on_a_gpu_are_rounded_as_on_the_host(gpu: None, package: str, family: str) -> None:
    namespace = pytest.importorskip(package)
    gap = 2**38
    grid = 2**61 + gap * np.arange(32)  # the numbers of float32 from 2^61 on
    offsets = [gap // 2 - 1, gap // 2, gap // 2 + 1, 255, 257]
    rows = (grid[:, np.newaxis] + offsets).reshape(-1, 1)
    rows = np.hstack([rows, 2**24 + np.arange(len(rows))[:, np.newaxis]])
    through = rows.astype(np.float64).astype(np.float32)
    assert (rows.astype(np.float32) != through).mean() > 0.05
    train = np.hstack([np.tile(grid, 5)[:, np.newaxis], rows[:, 1:]]).astype(np.float64)
    model: Any = RandomForestRegressor(5, random_state=0)
    if family == "hist":
        model = HistGradientBoostingRegressor(max_iter=5, min_samples_leaf=1, max_leaf_nodes=None)
    if family == "lightgbm":
        model = library(family).LGBMRegressor(n_estimators=5, min_child_samples=1, num_leaves=99, verbose=-1)
    model.fit(train, np.random.default_rng(0).normal(size=len(train)))
    passed_rows = namespace.asarray(rows) if package == "cupy" else namespace.from_numpy(rows).cuda()
    explainer = TreeExplainer(model, device="cuda")
    values = explainer.shap_values(passed_rows)
    assert str(values.dtype).endswith("float64")
    values = values.get() if package == "cupy" else values.cpu().numpy()
    total = values.sum(axis=1) + explainer.expected_value
    np.testing.assert_allclose(total, model.predict(rows), rtol=0, atol=1e-5)
