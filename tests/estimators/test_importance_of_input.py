"""Importances of the columns of X, of which a pipeline makes dummies that differ between splits."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.importances import cross_validated_importance
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.model_selection import KFold, RepeatedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from skshapgpu import ShapBarDisplay, TreeExplainer, cross_val_explain, shap_importance

pd = pytest.importorskip("pandas")

_random = np.random.default_rng(5)
X = pd.DataFrame(
    {
        "size": _random.normal(size=90),
        "color": [*_random.choice(["red", "green", "blue"], 88), "amber", "violet"],  # not in every split
        "place": _random.choice(["a_b", "b"], 90),
    },
    index=[f"r{i}" for i in range(90)],
).iloc[::-1]
Y = 30 + X["size"] * (X["color"] == "red") + 4 * (X["place"] == "b") * (X["color"] == "blue")
CLASSES = (Y > 30).astype(int) + (Y > 33)
CV = KFold(4, shuffle=True, random_state=1)


def pipeline(model: object) -> object:
    steps = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), ["place", "color"]), remainder="passthrough"
    )
    return make_pipeline(steps, model)


REGRESSOR = pipeline(RandomForestRegressor(4, max_depth=5, random_state=0))
CLASSIFIER = pipeline(RandomForestClassifier(4, max_depth=5, random_state=0))


def by_hand(model: object, rows: pd.DataFrame) -> dict[str, float]:
    """Sum values by the column that begins the name of each dummy; return mean magnitudes over the rows."""
    explanation = TreeExplainer(model).explain(rows)
    values = explanation.values.reshape(*explanation.values.shape[:2], -1)
    result = {}
    for column in ("place", "color", "size"):
        own = [name.split("__")[1].startswith(column) for name in explanation.feature_names]
        result[column] = float(np.abs(values[:, own].sum(axis=1)).mean(axis=0).sum())
    return result


@pytest.mark.parametrize("estimator, y", [(REGRESSOR, Y), (CLASSIFIER, CLASSES)], ids=["values", "classes"])
def test_importance_and_bars_of_splits(estimator: object, y: pd.Series) -> None:
    expected = {column: [] for column in X}
    for train, test in CV.split(X):
        fitted = clone(estimator).fit(X.iloc[train], y.iloc[train])
        for column, importance in by_hand(fitted, X.iloc[test]).items():
            expected[column].append(importance)
    importances = cross_validated_importance(estimator, X, y, cv=CV, sum_by="input")
    assert sorted(importances.feature_names) == sorted(X)
    for name, of_splits in zip(importances.feature_names, importances.importances):
        np.testing.assert_allclose(of_splits, expected[name], rtol=1e-5)

    pytest.importorskip("matplotlib").use("Agg")
    results = cross_val_explain(estimator, X, y, cv=CV)
    display = ShapBarDisplay.from_cv_results(results, sum_by="input")
    assert sorted(display.feature_names) == sorted(X)
    for name, of_splits in zip(display.feature_names, display.importances.T):
        np.testing.assert_allclose(of_splits, expected[name], rtol=1e-5)


def test_importance_of_a_fitted_model() -> None:
    fitted = clone(REGRESSOR).fit(X, Y)
    importances = shap_importance(fitted, X, sum_by="input")
    assert importances.importances.shape == (3, 5)
    for name, importance in zip(importances.feature_names, importances.importances_mean):
        assert importance == pytest.approx(by_hand(fitted, X)[name], rel=1e-5)
    with pytest.raises(ValueError, match="sum_by must be 'input' or None"):
        shap_importance(fitted, X, sum_by="inputs")


def test_bars_of_rows_tested_more_than_once_are_refused() -> None:
    cv = RepeatedKFold(n_splits=2, n_repeats=2, random_state=0)
    results = cross_val_explain(REGRESSOR, X, Y, cv=cv)
    with pytest.raises(ValueError, match="tested more than once") as refused:
        ShapBarDisplay.from_cv_results(results, sum_by="input")
    assert "explain_params={'feature_groups': 'input'}" in str(refused.value)
    players = cross_val_explain(REGRESSOR, X, Y, cv=cv, explain_params={"feature_groups": "input"})
    assert sorted(players["explanation"].feature_names) == sorted(X)
