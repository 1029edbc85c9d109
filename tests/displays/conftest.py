"""Explanations to draw."""

from __future__ import annotations

import pytest
from helpers.displays import CULTIVAR, DIABETES, PROGRESSION, WINE
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

from skshapgpu import Explanation, explain


@pytest.fixture(scope="module")
def diabetes() -> Explanation:
    return explain(
        RandomForestRegressor(10, max_depth=5, random_state=0).fit(DIABETES, PROGRESSION), DIABETES
    )


@pytest.fixture(scope="module")
def wine() -> Explanation:
    return explain(RandomForestClassifier(10, random_state=0).fit(WINE, CULTIVAR), WINE)
