"""Steps that write into X: whenever X is read, it is as the user passed it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestRegressor
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler, StandardScaler

from skshapgpu import TreeExplainer, explain, explain_interactions, partial_dependence
from skshapgpu._rows.in_place import may_write

pd = pytest.importorskip("pandas")

_random = np.random.default_rng(3)
X = _random.normal(loc=[5.0, -40.0, 900.0], scale=[1.0, 7.0, 200.0], size=(120, 3))
Y = 3 * X[:, 0] + X[:, 1] * X[:, 2] / 300


def doubled(rows: Any) -> Any:
    rows *= 2
    return rows


class Halved:
    """Step of no known class."""

    def fit(self, X: Any, y: Any = None) -> Halved:
        return self

    def transform(self, X: Any) -> Any:
        X /= 2
        return X


STEPS = {
    "scaler": lambda: StandardScaler(copy=False),
    "range": lambda: MinMaxScaler(copy=False),
    "function": lambda: FunctionTransformer(doubled),
    "second": lambda: make_pipeline("passthrough", StandardScaler(copy=False)),
    "columns": lambda: make_column_transformer((StandardScaler(copy=False), [0, 2]), remainder="passthrough"),
    "union": lambda: make_union(StandardScaler(copy=False), FunctionTransformer(doubled)),
    "unknown": Halved,
}


def fitted(name: str) -> Any:
    return make_pipeline(STEPS[name](), RandomForestRegressor(8, random_state=0)).fit(X.copy(), Y)


#: Steps and containers of X; those by hand take no lists.
CASES = [
    (name, container)
    for name in STEPS
    for container in ("array", "frame", "lists")
    if container != "lists" or name not in ("function", "unknown", "union")
]


@pytest.mark.parametrize(("name", "container"), CASES)
def test_values_and_rows(name: str, container: str) -> None:
    model = fitted(name)
    rows: Any = {"array": X.copy(), "frame": pd.DataFrame(X), "lists": X.tolist()}[container]
    if container == "frame":
        model.fit(rows.copy(), Y)
    right = model.predict(X.copy() if container != "frame" else rows.copy())
    for options in ({}, {"data": rows}, {"data": rows[:50]}, {"data": rows[60:90]}):
        explanation = explain(model, rows, **options)
        total = explanation.base_values + explanation.values.sum(axis=1)
        np.testing.assert_allclose(total, right, rtol=0, atol=1e-4 * np.ptp(right))
        assert (explanation.checked_against, explanation.check_note) == ("model", None)
    np.testing.assert_array_equal(np.asarray(rows), X)


def test_grids_and_interactions() -> None:
    model = fitted("scaler")
    rows = X.copy()
    grid = partial_dependence(model, rows, 0, feature_groups="input", grid_resolution=5)["grid_values"][0]
    assert 3 < grid.min() < grid.max() < 8
    matrices = explain_interactions(model, rows).matrices()
    np.testing.assert_allclose(
        matrices.sum(axis=(1, 2)) + TreeExplainer(model).expected_value, model.predict(X.copy()), atol=1e-2
    )
    np.testing.assert_array_equal(rows, X)


@pytest.mark.parametrize(
    ("step", "writes"),
    [
        (StandardScaler(), False),
        (StandardScaler(copy=False), True),
        (FunctionTransformer(), False),
        (FunctionTransformer(np.log1p), False),
        (FunctionTransformer(doubled), True),
        (make_union(StandardScaler(), MinMaxScaler()), False),
        (make_union(StandardScaler(), MinMaxScaler(copy=False)), True),
        (Halved(), True),
    ],
)
def test_which_steps_get_a_copy(step: Any, writes: bool) -> None:
    assert may_write(step) == writes
