"""A forest of few trees."""

from __future__ import annotations

import pytest
from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor

X, Y = load_diabetes(return_X_y=True)


@pytest.fixture(scope="module")
def forest() -> RandomForestRegressor:
    return RandomForestRegressor(6, max_depth=5, random_state=0).fit(X, Y)
