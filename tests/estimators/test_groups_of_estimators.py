"""Groups of columns in transformers, cross-validation, importances, selection, files and displays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.families import forest, values_by_definition
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.compose import make_column_transformer
from sklearn.feature_selection import SelectFromModel
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from skshapgpu import (
    ShapBarDisplay,
    ShapBeeswarmDisplay,
    ShapDependenceDisplay,
    ShapInteractionTransformer,
    ShapSelector,
    ShapTransformer,
    TreeExplainer,
    cross_val_explain,
    explain,
    explain_batches,
    shap_importance,
)

pd = pytest.importorskip("pandas")


def data() -> tuple[Any, np.ndarray]:
    """Draw rows with a city that only the last of three folds has, so that its model lacks the column."""
    rng = np.random.default_rng(2)
    frame = pd.DataFrame(
        {
            "age": rng.normal(size=150).round(2),
            "city": rng.choice(["Rome", "Oslo", "Bonn"], 150),
            "noise": rng.normal(size=150),
            "size": rng.normal(size=150).round(2),
        }
    )
    frame.loc[100:120, "city"] = "Aberdeen"
    y = 50 + 3 * frame["age"] * (frame["size"] > 0) + 4 * frame["city"].isin(["Rome", "Aberdeen"])
    return frame, np.asarray(y)


FRAME, Y = data()
NUMBERS = FRAME[["age", "noise", "size"]]
BODY = {"body": ["size", "age"]}
FOLDS = KFold(3)


def pipeline() -> Any:
    encode = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), ["city"]), remainder="passthrough"
    )
    return make_pipeline(encode, forest(8, 5))


def test_transformer() -> None:
    shap = ShapTransformer(forest(8, 5), feature_groups=BODY).set_output(transform="pandas").fit(NUMBERS, Y)
    values = shap.transform(NUMBERS)
    assert list(values) == ["body", "noise"] == shap.get_feature_names_out().tolist()
    expected = explain(clone(shap.estimator).fit(NUMBERS, Y), NUMBERS, feature_groups=BODY)
    np.testing.assert_array_equal(values.to_numpy(), expected.values)
    np.testing.assert_array_equal(shap.explain(NUMBERS).values, expected.values)
    body, noise = np.abs(expected.values).mean(axis=0)
    np.testing.assert_allclose(shap.feature_importances_, [body, noise, body], rtol=1e-12)
    kept = SelectFromModel(shap, prefit=True, threshold=noise * 1.01).fit(NUMBERS).transform(NUMBERS)
    assert np.shape(kept) == (150, 2)
    frozen = ShapTransformer.from_fitted(shap.estimator_, feature_groups=BODY)
    np.testing.assert_array_equal(frozen.transform(NUMBERS), expected.values)


def test_transformer_of_a_pipeline_with_folds() -> None:
    """The models of two folds lack the column of a city; the group takes its place."""
    shap = ShapTransformer(pipeline(), feature_groups="input", cv=FOLDS)
    values = shap.fit_transform(FRAME, Y)
    names = ["city", "age", "noise", "size"]
    assert shap.get_feature_names_out().tolist() == names and values.shape == (150, 4)
    for train, test in FOLDS.split(FRAME):
        model = pipeline().fit(FRAME.iloc[train], Y[train])
        expected = explain(model, FRAME.iloc[test], feature_groups="input")
        assert expected.feature_names == tuple(names)
        np.testing.assert_array_equal(values[test], expected.values)
    importances = np.abs(shap.explain(FRAME).values).mean(axis=0)
    np.testing.assert_allclose(shap.feature_importances_, importances[[1, 0, 2, 3]], rtol=1e-12)
    make_pipeline(shap, LinearRegression()).fit(FRAME, Y).predict(FRAME)


def test_groups_by_name_with_folds_that_lack_a_column() -> None:
    cities = [f"onehotencoder__city_{city}" for city in ("Rome", "Aberdeen")]
    with pytest.raises(
        ValueError, match=r"no column 'onehotencoder__city_Aberdeen', only .*feature_groups='input'"
    ):
        ShapTransformer(pipeline(), feature_groups={"south": cities}, cv=FOLDS).fit_transform(FRAME, Y)


def test_groups_by_position_with_folds_that_lack_a_column() -> None:
    """Position 1 is the city, which the steps encode as several columns, fewer in some folds."""
    groups = {"north": [1, 2]}
    with pytest.raises(ValueError, match="the steps make 4 columns: give their names"):
        ShapTransformer(pipeline(), feature_groups=groups, cv=FOLDS).fit_transform(FRAME, Y)
    with pytest.raises(ValueError, match="positions of columns may differ between splits"):
        cross_val_explain(pipeline(), FRAME, Y, cv=FOLDS, explain_params={"feature_groups": groups})
    positions = {"body": [2, 0]}
    values = ShapTransformer(forest(8, 5), feature_groups=positions, cv=FOLDS).fit_transform(NUMBERS, Y)
    expected = ShapTransformer(forest(8, 5), feature_groups=BODY, cv=FOLDS).fit_transform(NUMBERS, Y)
    np.testing.assert_array_equal(values, expected)


def test_used_groups_with_folds() -> None:
    noise = NUMBERS.assign(other=0.0, another=1.0)
    groups = {"nothing": ["other", "another"], **BODY}
    shap = ShapTransformer(forest(8, 5), feature_groups=groups, columns="used", cv=FOLDS)
    values = shap.fit_transform(noise, Y)
    assert shap.get_feature_names_out().tolist() == ["body", "noise"]
    expected = ShapTransformer(forest(8, 5), feature_groups=groups, cv=FOLDS).fit_transform(noise, Y)
    assert expected.shape == (150, 3)
    np.testing.assert_array_equal(values, expected[:, :2])


def test_interaction_transformer() -> None:
    pairs = ShapInteractionTransformer(forest(8, 5), feature_groups=BODY).fit(NUMBERS, Y)
    assert pairs.get_feature_names_out().tolist() == ["body x noise"]
    matrices = TreeExplainer(pairs.estimator_, feature_groups=BODY).shap_interaction_values(NUMBERS)
    np.testing.assert_allclose(pairs.transform(NUMBERS)[:, 0], 2 * matrices[:, 0, 1], rtol=0, atol=1e-5)
    crossed = ShapInteractionTransformer(
        pipeline(), feature_groups="input", interactions=[("size", "city")], cv=FOLDS
    )
    values = crossed.fit_transform(FRAME, Y)
    for train, test in FOLDS.split(FRAME):
        explainer = TreeExplainer(pipeline().fit(FRAME.iloc[train], Y[train]), feature_groups="input")
        expected = explainer.explain_interactions(FRAME.iloc[test], interactions=[("city", "size")])
        np.testing.assert_array_equal(values[test], expected.values)


def test_cross_val_explain() -> None:
    results = cross_val_explain(
        pipeline(), FRAME, Y, cv=FOLDS, explain_params={"feature_groups": "input"}, return_estimator=True
    )
    explanation = results["explanation"]
    assert explanation.feature_names == ("city", "age", "noise", "size") and explanation.group_columns is None
    for model, (_, test) in zip(results["estimator"], FOLDS.split(FRAME)):
        np.testing.assert_array_equal(
            explanation.values[test], explain(model, FRAME.iloc[test], feature_groups="input").values
        )
    np.testing.assert_array_equal(explanation.data, FRAME[["city", "age", "noise", "size"]].to_numpy(object))
    totals = explanation.base_values + explanation.values.sum(axis=1)
    expected = np.concatenate(
        [
            model.predict(FRAME.iloc[test])
            for model, (_, test) in zip(results["estimator"], FOLDS.split(FRAME))
        ]
    )
    np.testing.assert_allclose(totals, expected, rtol=1e-6)


def test_cross_val_explain_of_named_groups() -> None:
    results = cross_val_explain(forest(8, 5), NUMBERS, Y, cv=FOLDS, explain_params={"feature_groups": BODY})
    explanation = results["explanation"]
    assert explanation.feature_names == ("body", "noise") and explanation.data.rows is NUMBERS
    assert explanation.group_columns == ((0, 2), (1,)) and results["importances"].shape == (3, 2)
    values = cross_val_explain(ShapTransformer(forest(8, 5), feature_groups=BODY), NUMBERS, Y, cv=FOLDS)
    np.testing.assert_array_equal(values["explanation"].values, explanation.values)


class Dummies(TransformerMixin, BaseEstimator):
    """A step whose columns have no names: two numbers, and one column for each city of the training rows."""

    def fit(self, frame: Any, y: Any = None) -> Dummies:
        self.cities_ = sorted(set(frame["city"]))
        return self

    def transform(self, frame: Any) -> np.ndarray:
        cities = [frame["city"] == city for city in self.cities_]
        return np.column_stack([frame["age"], frame["size"], *cities]).astype(float)


def test_columns_without_names() -> None:
    """Such columns are aligned by position, and refused if their number differs between splits."""
    model = make_pipeline(Dummies(), forest(3, 3))
    explain_params = {"feature_groups": {"body": ["x0", "x1"]}}
    with pytest.raises(ValueError, match="no names to align them by"):
        cross_val_explain(model, FRAME, Y, cv=FOLDS, explain_params=explain_params)
    alike = KFold(3, shuffle=True, random_state=0)
    results = cross_val_explain(model, FRAME, Y, cv=alike, explain_params=explain_params)
    assert results["explanation"].feature_names == ("body", "x2", "x3", "x4", "x5")


def test_importances_and_selection() -> None:
    importances = shap_importance(
        forest(8, 5).fit(NUMBERS, Y), NUMBERS, explain_params={"feature_groups": BODY}
    )
    assert importances.feature_names == ("body", "noise") and importances.importances.shape == (2, 5)
    for model, X, groups, body in (
        (forest(8, 5), NUMBERS, BODY, [0, 2]),
        (pipeline(), FRAME, "input", [1]),
    ):
        selector = ShapSelector(model, cv=FOLDS, explain_params={"feature_groups": groups}).fit(X, Y)
        values = cross_val_explain(model, X, Y, cv=FOLDS, explain_params={"feature_groups": groups})[
            "explanation"
        ]
        importance_of_column = {
            name: np.abs(values[:, name].values).reshape(3, 50).mean() for name in values.feature_names
        }
        expected = [importance_of_column.get(name, importance_of_column.get("body")) for name in X]
        np.testing.assert_allclose(selector.importances_, expected, rtol=1e-12)
        assert selector.get_support()[body].all() and not selector.get_support()[list(X).index("noise")]


def test_values_are_those_of_predictions_with_folds() -> None:
    """Reference for a whole cross-validation: the definition for each row, with the model of its fold."""
    results = cross_val_explain(
        pipeline(),
        FRAME,
        Y,
        cv=FOLDS,
        return_estimator=True,
        explain_params={"feature_groups": "input", "data": FRAME[:15], "precision": "double"},
    )
    rows = [3, 60, 101, 149]
    for row in rows:
        model = results["estimator"][results["fold"][row]]
        expected = values_by_definition(model.predict, FRAME[row : row + 1], FRAME[:15])
        np.testing.assert_allclose(
            results["explanation"].values[row], expected[0, [1, 0, 2, 3]], rtol=0, atol=1e-9
        )


def test_batches(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    model = forest(8, 5).fit(NUMBERS, Y)
    NUMBERS.to_parquet(tmp_path / "rows.parquet")
    explainer = TreeExplainer(model, feature_groups=BODY)
    result = explain_batches(explainer, tmp_path / "rows.parquet", tmp_path / "values.parquet", batch_size=40)
    assert tuple(result.feature_names) == ("body", "noise")
    frame = pd.read_parquet(tmp_path / "values.parquet")
    assert list(frame) == ["body", "noise"]
    np.testing.assert_array_equal(frame.to_numpy(), explainer.shap_values(NUMBERS))
    explain_batches(explainer, tmp_path / "rows.parquet", tmp_path / "top.parquet", reasons=1)
    top = pd.read_parquet(tmp_path / "top.parquet")
    strongest = np.abs(explainer.shap_values(NUMBERS)).argmax(axis=1)
    assert top["feature_1"].tolist() == [("body", "noise")[i] for i in strongest]
    with pytest.raises((ValueError, FileExistsError), match=r"another|other|differ|overwrite"):
        explain_batches(TreeExplainer(model), tmp_path / "rows.parquet", tmp_path / "values.parquet")


def test_displays() -> None:
    pytest.importorskip("matplotlib")
    model = pipeline().fit(FRAME, Y)
    explanation = explain(model, FRAME, feature_groups="input")
    bars = ShapBarDisplay.from_explanation(explanation)
    assert {label.get_text() for label in bars.ax_.get_yticklabels()} == {"city", "age", "noise", "size"}
    ShapBeeswarmDisplay.from_explanation(explanation)
    ShapDependenceDisplay.from_explanation(explanation, "age")
    named = explain(forest(8, 5).fit(NUMBERS, Y), NUMBERS, feature_groups=BODY)
    ShapBeeswarmDisplay.from_explanation(named)
    assert ShapDependenceDisplay.from_explanation(named, "body").categories is not None
    assert ShapDependenceDisplay.from_explanation(named, "noise").categories is None
