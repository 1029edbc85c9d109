"""values_std of cross_val_explain: the spread of a row's values over the models that were tested on it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_diabetes, load_iris
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.model_selection import RepeatedKFold, ShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from skshapgpu import cross_val_explain, explain

DIABETES, PROGRESSION = load_diabetes(return_X_y=True)
FOREST = RandomForestRegressor(5, max_depth=4, random_state=0)


def each_test(results: dict[str, Any], X: Any, features: Any, outputs: tuple[Any, ...] = ()) -> np.ndarray:
    """Return the values of each row in each split, NaN where it was not tested, zero for unknown features."""
    n_outputs = len(outputs) or 1
    result = np.full((len(results["estimator"]), len(X), len(features), n_outputs), np.nan)
    for number, (model, rows) in enumerate(zip(results["estimator"], results["indices"]["test"])):
        part = X.iloc[rows] if hasattr(X, "iloc") else X[rows]
        explanation = explain(model, part, outputs="all" if outputs else "auto")
        known = [outputs.index(name) for name in explanation.output_names or ()] or [0]
        values = explanation.values.reshape(len(rows), -1, len(known))
        names = list(explanation.feature_names)
        for i, feature in enumerate(features):
            for j, output in enumerate(known):
                of_feature = values[:, names.index(feature), j] if feature in names else 0.0
                result[number, rows, i, output] = of_feature
    return result if outputs else result[..., 0]


@pytest.mark.parametrize(
    "cv", [RepeatedKFold(n_splits=3, n_repeats=3, random_state=0), ShuffleSplit(3, random_state=0)]
)
def test_deviations_are_those_of_the_tests(cv: Any) -> None:
    y = PROGRESSION + 1e6  # base values far from zero
    results = cross_val_explain(FOREST, DIABETES, y, cv=cv, return_estimator=True, return_indices=True)
    values = each_test(results, DIABETES, results["explanation"].feature_names)
    twice = results["n_tests"] > 1
    assert twice.any()
    assert np.isnan(results["values_std"][~twice]).all()
    np.testing.assert_allclose(
        results["values_std"][twice], np.nanstd(values[:, twice], axis=0, ddof=1), atol=1e-9
    )
    np.testing.assert_allclose(
        results["explanation"].values[twice], np.nanmean(values[:, twice], axis=0), atol=1e-9
    )


def test_equal_models_have_no_spread() -> None:
    everything = np.arange(442)
    results = cross_val_explain(FOREST, DIABETES, PROGRESSION, cv=[(everything, everything)] * 3)
    np.testing.assert_allclose(results["values_std"], 0, atol=1e-12)


def test_none_if_no_row_is_tested_twice() -> None:
    assert cross_val_explain(FOREST, DIABETES, PROGRESSION, cv=3)["values_std"] is None


def test_columns_that_a_split_lacks_are_zero_there() -> None:
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"color": rng.choice(["blue", "red"], 90), "size": rng.normal(size=90)})
    X.loc[[3, 50, 88], "color"] = "green"
    y = X["size"] + 3 * (X["color"] == "green") + (X["color"] == "red")
    encode = ColumnTransformer(
        [("one", OneHotEncoder(handle_unknown="ignore", sparse_output=False), ["color"])],
        remainder="passthrough",
        verbose_feature_names_out=False,
    )
    cv = ShuffleSplit(6, train_size=0.2, random_state=1)
    results = cross_val_explain(
        make_pipeline(encode, FOREST), X, y, cv=cv, return_estimator=True, return_indices=True
    )
    lacking = ["color_green" not in model[0].get_feature_names_out() for model in results["estimator"]]
    assert 0 < sum(lacking) < 6
    values = each_test(results, X, results["explanation"].feature_names)
    tested = results["n_tests"] > 1
    expected = np.nanstd(values[:, tested], axis=0, ddof=1)
    np.testing.assert_allclose(results["values_std"][tested], expected, atol=1e-9)


def test_classes_that_a_split_lacks_are_left_out() -> None:
    X, y = load_iris(return_X_y=True)
    rows = np.arange(150)
    splits = [(rows[(y != 1) & (rows % 2 == 0)], rows), (rows[::2], rows), (rows[1::2], rows)]
    with pytest.warns(UserWarning, match="none of class 1"):
        results = cross_val_explain(
            RandomForestClassifier(5, random_state=0),
            X,
            y,
            cv=splits,
            return_estimator=True,
            return_indices=True,
        )
    names = results["explanation"].feature_names
    values = each_test(results, X, names, results["explanation"].output_names)
    assert np.isnan(values[0, ..., 1]).all() and not np.isnan(values[1]).any()
    np.testing.assert_allclose(results["values_std"], np.nanstd(values, axis=0, ddof=1), atol=1e-12)
    assert results["values_std"].shape == (150, 4, 3)
