"""Explanations of groups keep the data of columns in no group and of the columns of groups."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skshapgpu import (
    ShapBeeswarmDisplay,
    ShapDependenceDisplay,
    ShapWaterfallDisplay,
    cross_val_explain,
    explain,
    explain_interactions,
)

pd = pytest.importorskip("pandas")

RNG = np.random.default_rng(0)
X = pd.DataFrame(
    {
        "north": RNG.integers(0, 3, 120),
        "age": RNG.normal(50, 9, 120).round(3),
        "east": RNG.normal(size=120).round(2),
        "size": RNG.normal(1e4, 1e3, 120).round(1),
    },
    index=RNG.permutation(120) + 500,
)
X.iloc[3, 2] = np.nan
Y = X["age"] * (X["north"] > 0) + X["size"] / 100 + 40 * (X["east"] > 0)
GROUPS = {"place": ["east", "north"]}
MODEL = RandomForestRegressor(8, max_depth=5, random_state=0).fit(X, Y)


def place(row: int) -> str:
    """Return the value of the group in a row, in the order of the columns."""
    north, east = X["north"].iloc[row], X["east"].iloc[row]
    return f"north={north}, east={'missing' if np.isnan(east) else format(east, '.5g')}"


@pytest.mark.parametrize("form", ["pandas", "array", "float32", "sparse", "polars", "arrow"])
def test_values_of_features_in_reasons(form: str) -> None:
    whole: Any = X.fillna(0)
    kinds = {
        "pandas": lambda: whole,
        "array": whole.to_numpy,
        "float32": lambda: whole.to_numpy(np.float32),
        "sparse": lambda: sp.csr_array(whole.to_numpy()),
        "polars": lambda: pytest.importorskip("polars").from_pandas(whole),
        "arrow": lambda: pytest.importorskip("pyarrow").Table.from_pandas(whole, preserve_index=False),
    }
    rows = kinds[form]()
    names = ["east", "north"] if form in ("pandas", "polars", "arrow") else ["x2", "x0"]
    model = RandomForestRegressor(8, max_depth=5, random_state=0).fit(rows, Y)
    explanation = explain(model, rows, feature_groups={"place": names})
    assert explanation.feature_names[0] == "place" and explanation.data.shape == (120, 3)
    for selected, first in (
        (explanation, 0),
        (explanation[7:], 7),
        (explanation[[9, 4]], 9),
        (explanation[11:, [2, 0, 1]], 11),
    ):
        values = {record["feature"]: record["value"] for record in selected[:1].reasons(3)}
        north, east = whole["north"].iloc[first], whole["east"].iloc[first]
        assert values["place"] == f"{names[1]}={north}, {names[0]}={east:.5g}"
        for feature, column in zip(explanation.feature_names[1:], ("age", "size")):
            number = whole[column].iloc[first]
            assert values[feature] == (np.float32(number) if form == "float32" else number)


def test_selection_and_arrays() -> None:
    explanation = explain(MODEL, X, feature_groups=GROUPS)
    assert explanation.feature_names == ("place", "age", "size")
    assert explanation.group_columns == ((0, 2), (1,), (3,))
    part = pickle.loads(pickle.dumps(explanation.loc[X.index[2:5]][:, ["size", "place"]]))
    expected = [[X["size"].iloc[row], place(row)] for row in (2, 3, 4)]
    assert np.asarray(part.data).tolist() == expected and part.data.rows.equals(X[2:5])
    assert expected[1][1].endswith("east=missing")
    interactions = explain_interactions(MODEL, X[:4], feature_groups=GROUPS)
    assert np.asarray(interactions[:, [1]].data)[:, 1].tolist() == X["age"].iloc[:4].tolist()
    used = explain(MODEL, X[:4], feature_groups=GROUPS, columns="used")
    assert np.asarray(used.data)[1].tolist() == [place(1), X["age"].iloc[1], X["size"].iloc[1]]
    of_columns = explain(MODEL, X[:4], feature_groups=GROUPS, index="OV")
    assert of_columns.data.equals(X[:4])


def test_cohorts_by_columns_and_groups() -> None:
    explanation = explain(MODEL, X, feature_groups=GROUPS)
    by_member = explanation.groupby("north")
    assert list(by_member) == [0, 1, 2]
    np.testing.assert_array_equal(by_member[2].values, explanation.values[X["north"] == 2])
    assert set(explanation.groupby("place")) == {place(row) for row in range(120)}


def test_displays() -> None:
    pytest.importorskip("matplotlib").use("Agg")
    explanation = explain(MODEL, X, feature_groups=GROUPS)
    swarms = ShapBeeswarmDisplay.from_explanation(explanation)
    colored = [points.get_array() is not None for points in swarms.points_]
    assert sorted(colored) == [False, True, True]
    names = [name for name, _ in explanation.strongest()]
    assert colored[names.index("place")] is False
    display = ShapDependenceDisplay.from_explanation(explanation, "age", color_by="size")
    drawn = set(zip(display.feature_values, display.color_values, display.values))  # in an order of its own
    assert drawn == set(zip(X["age"], X["size"], explanation.values[:, 1]))
    whole = ShapDependenceDisplay.from_estimator(MODEL, X, "place", feature_groups=GROUPS, color_by="age")
    assert set(whole.categories) == {place(row) for row in range(120)}
    automatic = ShapDependenceDisplay.from_estimator(MODEL, X, 1, feature_groups=GROUPS)
    assert automatic.feature_name == "age"
    waterfall = ShapWaterfallDisplay.from_explanation(explanation, row=3)
    assert waterfall.feature_values[:2] == [place(3), f"{X['age'].iloc[3]:.5g}"]


def test_steps_and_splits() -> None:
    scaled = make_pipeline(StandardScaler(), RandomForestClassifier(4, max_depth=4, random_state=0))
    whole, classes = X.fillna(0), X["age"] > 50
    explanation = explain(scaled.fit(whole, classes), whole, feature_groups=GROUPS)
    ages = np.asarray(explanation.data)[:, 1].astype(float)
    np.testing.assert_array_equal(ages, scaled[0].transform(whole)[:, 1])
    for model, rows in ((scaled, whole), (RandomForestRegressor(3, random_state=0), X)):
        results = cross_val_explain(model, rows, classes, cv=3, explain_params={"feature_groups": GROUPS})
        values = np.asarray(results["explanation"].data)
        assert values.shape == (120, 3) and all(text.startswith("north=") for text in values[:, 0])
    assert values[3, 0] == place(3) and values[:, 2].tolist() == X["size"].tolist()


def test_for_shap_and_files(tmp_path: Any) -> None:
    explanation = explain(MODEL, X, feature_groups=GROUPS)
    pytest.importorskip("shap")
    given = explanation.to_shap()
    np.testing.assert_array_equal(given.data[:, 1], X["age"])
    assert given.display_data[3, 0] == place(3)


def test_reasons_of_batches(tmp_path: Any) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    from skshapgpu import explain_batches

    rows = X.reset_index(drop=True)
    explain_batches(MODEL, rows, tmp_path / "r.parquet", reasons=3, feature_groups=GROUPS, batch_size=50)
    for row, record in enumerate(parquet.read_table(tmp_path / "r.parquet").to_pylist()):
        values = {record[f"feature_{i}"]: record[f"value_{i}"] for i in (1, 2, 3)}
        assert values["place"] == place(row) and float(values["age"]) == X["age"].iloc[row]
