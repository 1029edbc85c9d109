"""Models that name columns, for tables with other columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.families import forest
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from skshapgpu._estimators.changed_columns import changed_model, changed_params

#: Columns of the new table: c, a, and copies of c and b.
SOURCES = np.array([2, 0, 2, 1])


def frame() -> Any:
    pd = pytest.importorskip("pandas")
    return pd.DataFrame({"a": [1.0, 2.0], "b": [0.0, 1.0], "c": ["x", "y"]})


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (["c"], [0, 2]),
        (["a", "b"], [1, 3]),
        ([-1], [0, 2]),
        ([], []),
        (slice("a", "b"), [1, 3]),
        (slice(1, None), [0, 2, 3]),
        ([True, False, True], [0, 1, 2]),
        (make_column_selector(dtype_include=float), [1, 3]),
        (lambda X: X.columns[2:], [0, 2]),
    ],
)
@pytest.mark.parametrize("nested", [False, True])
def test_columns_of_a_first_step(columns: Any, expected: list[int], nested: bool) -> None:
    first: Any = ColumnTransformer([("one", StandardScaler(), columns), ("no", "drop", ["b"])])
    given = make_pipeline(make_pipeline(first, StandardScaler()) if nested else first, forest())
    changed = changed_model(given, frame(), SOURCES)[0]
    changed = changed[0] if nested else changed
    assert [part[2] for part in changed.transformers] == [expected, [3]]
    assert first.transformers[0][2] is columns  # the model that was given is as before


@pytest.mark.parametrize("columns", ["c", 0, ["d"], [3], [-4], [True]])
def test_columns_that_cannot_be_changed(columns: Any) -> None:
    model = make_pipeline(ColumnTransformer([("one", StandardScaler(), columns)]), forest())
    with pytest.raises(ValueError, match="ColumnTransformer, 'one'"):
        changed_model(model, frame(), SOURCES)


@pytest.mark.parametrize(
    "steps",
    [
        [StandardScaler(), ColumnTransformer([("one", StandardScaler(), [0])])],
        [FeatureUnion([("one", ColumnTransformer([("one", StandardScaler(), [0])]))])],
        [make_pipeline(StandardScaler(), ColumnTransformer([("one", StandardScaler(), [0])]))],
    ],
)
def test_column_transformers_that_are_not_the_first_step(steps: list[Any]) -> None:
    with pytest.raises(ValueError, match="make it the first step"):
        changed_model(make_pipeline(*steps, forest()), frame(), SOURCES)


@pytest.mark.parametrize("categories", [["c"], [2], [False, False, True], np.array([2])])
def test_categorical_columns(categories: Any) -> None:
    model = HistGradientBoostingRegressor(categorical_features=categories)
    assert changed_model(model, frame(), SOURCES).categorical_features == [0, 2]
    params = {"cat_features": categories, "sample_weight": None}
    assert changed_params(params, frame(), SOURCES) == {"cat_features": [0, 2], "sample_weight": None}


def test_parameters_that_name_no_columns_stay() -> None:
    model = HistGradientBoostingRegressor(categorical_features="from_dtype", interaction_cst=None)
    assert changed_model(model, frame(), SOURCES).get_params() == model.get_params()


@pytest.mark.parametrize(
    "model",
    [
        HistGradientBoostingRegressor(monotonic_cst={"a": 1}),
        forest(monotonic_cst=[1, 0, 0]),
        Pipeline(
            [("encode", OneHotEncoder()), ("model", HistGradientBoostingRegressor(categorical_features=[0]))]
        ),
    ],
)
def test_parameters_of_single_columns(model: Any) -> None:
    with pytest.raises(ValueError, match="names columns that change in a selection: leave it out"):
        changed_model(model, frame(), SOURCES)


def test_parameters_of_fit() -> None:
    for name in ("feature_weights", "lgbmregressor__categorical_feature"):
        with pytest.raises(ValueError, match=f"fit cannot pass on {name}"):
            changed_params({name: [0]}, frame(), SOURCES)
