"""Small forests and their explainers, for the tests of interactions."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.interactions import BENIGN, CANCER, CASES, DIABETES, IRIS, PROGRESSION, SPECIES, on_cpu
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

from skshapgpu import TreeExplainer


@pytest.fixture(scope="module")
def regressor() -> RandomForestRegressor:
    return RandomForestRegressor(8, max_depth=4, random_state=0).fit(DIABETES, PROGRESSION)


@pytest.fixture(scope="module")
def multiclass() -> RandomForestClassifier:
    return RandomForestClassifier(8, max_depth=5, random_state=0).fit(IRIS, SPECIES)


@pytest.fixture(scope="module")
def binary() -> RandomForestClassifier:
    return RandomForestClassifier(8, max_depth=4, random_state=0).fit(CANCER, BENIGN)


@pytest.fixture(params=range(len(CASES)), ids=["one output", "three outputs", "both classes", "float32"])
def case(request: pytest.FixtureRequest) -> tuple[TreeExplainer, np.ndarray]:
    name, rows, options = CASES[request.param]
    return on_cpu(request.getfixturevalue(name), **options), rows
