"""Ensembles of scikit-learn that are sums: values equal their definition, through their own predictions."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from helpers.families import values_by_definition
from helpers.sums import FRAME, MODELS, own_margins
from sklearn.base import clone

from skshapgpu import TreeExplainer

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")

ROWS, BACKGROUND = FRAME.iloc[5:9], FRAME.iloc[40:46]


@cache
def fitted(name: str) -> Any:
    model, target = MODELS[name]
    return clone(model).fit(FRAME, target)


@pytest.mark.parametrize("name", MODELS)
def test_values_equal_their_definition(name: str) -> None:
    model = fitted(name)
    own = own_margins(model, ROWS)
    tolerance = 1e-10 * max(1.0, np.abs(own).max())
    expected = values_by_definition(lambda X: own_margins(model, X), ROWS, BACKGROUND)
    explanation = TreeExplainer(model, BACKGROUND, precision="double").explain(ROWS)
    assert explanation.checked_against == "model"
    values = explanation.values.reshape(expected.shape)
    assert np.abs(expected).max() > 1e-3
    np.testing.assert_allclose(values, expected, rtol=0, atol=tolerance)
    total = values.sum(axis=1) + np.reshape(explanation.base_values, (1, -1))
    np.testing.assert_allclose(total, own, rtol=0, atol=tolerance)
    path_dependent = TreeExplainer(model, precision="double").explain(ROWS)
    assert path_dependent.checked_against == "model"
    values = path_dependent.values.reshape(expected.shape)
    total = values.sum(axis=1) + np.reshape(path_dependent.base_values, (1, -1))
    np.testing.assert_allclose(total, own, rtol=0, atol=tolerance)
