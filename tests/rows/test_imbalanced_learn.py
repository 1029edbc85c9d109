"""Pipelines with samplers, which change the rows of training, but not the rows of predictions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.families import forest_classifier, values_by_definition
from helpers.importances import cross_validated_importance
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.feature_selection import RFE
from sklearn.model_selection import FixedThresholdClassifier, GridSearchCV
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from skshapgpu import (
    ShapSelector,
    ShapTransformer,
    TreeExplainer,
    UnsupportedModelError,
    cross_val_explain,
    explain,
)

imblearn = pytest.importorskip("imblearn")

from imblearn.over_sampling import RandomOverSampler  # noqa: E402
from imblearn.pipeline import Pipeline, make_pipeline  # noqa: E402
from imblearn.under_sampling import RandomUnderSampler  # noqa: E402

pd = pytest.importorskip("pandas")


def rows() -> tuple[Any, np.ndarray]:
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {
            "size": rng.normal(size=150),
            "color": rng.choice(["blue", "red"], 150),
            "weight": rng.normal(size=150) * 100,
        }
    )
    score = X["size"] + (X["color"] == "red") + 0.003 * X["weight"]
    return X, (score > score.quantile(0.85)).to_numpy(int)


def pipeline(model: Any) -> Any:
    """Build a pipeline with an encoder, which reorders the columns, between two samplers."""
    return make_pipeline(
        RandomOverSampler(random_state=0),
        make_column_transformer(
            (OneHotEncoder(drop="first"), ["color"]),
            (StandardScaler(), ["weight", "size"]),
            verbose_feature_names_out=False,
        ),
        "passthrough",
        RandomUnderSampler(random_state=0),
        model,
    )


def test_values_are_those_of_the_pipelines_own_prediction() -> None:
    X, y = rows()
    model = pipeline(forest_classifier()).fit(X, y)
    some, background = X.iloc[:6], X.iloc[100:105]
    expected = values_by_definition(lambda mixed: model.predict_proba(mixed)[:, 1], some, background)
    explanation = explain(model, some, data=background, precision="double")
    assert explanation.feature_names == ("color_red", "weight", "size")
    grouped = explanation.sum_by("input")
    order = [list(X).index(name) for name in grouped.feature_names]
    assert np.abs(expected).max(axis=0).min() > 0
    np.testing.assert_allclose(grouped.values, expected[:, order], rtol=0, atol=1e-12)
    assert [type(step).__name__ for step in TreeExplainer(model)._reader.steps] == ["ColumnTransformer"]


@pytest.mark.parametrize("scoring", [None, "roc_auc", ["accuracy"]])
def test_cross_validation(scoring: Any) -> None:
    X, y = rows()
    results = cross_val_explain(
        pipeline(forest_classifier()), X, y, cv=2, scoring=scoring, return_estimator=True
    )
    for number, fitted in enumerate(results["estimator"]):
        test = results["fold"] == number
        explanation = results["explanation"][test]
        np.testing.assert_allclose(
            explanation.base_values + explanation.values.sum(axis=1),
            fitted.predict_proba(X[test])[:, 1],
            atol=1e-6,
        )
        if scoring is None:
            assert results["test_score"][number] == fitted.score(X[test], y[test])
    assert np.isfinite(next(results[key] for key in results if key.startswith("test_"))).all()


def test_transformers_selectors_and_importances() -> None:
    X, y = rows()
    for estimator in (pipeline(forest_classifier()), GridSearchCV(pipeline(forest_classifier()), {}, cv=2)):
        transformer = ShapTransformer(clone(estimator)).fit(X, y)
        values = transformer.transform(X)
        np.testing.assert_array_equal(values, explain(transformer.estimator_, X).values)
        assert list(transformer.get_feature_names_out()) == ["color_red", "weight", "size"]
    selector = ShapSelector(pipeline(forest_classifier()), max_features=1, threshold=-np.inf).fit(X, y)
    # The two columns on which the target depends most, by the model's own values.
    importance = explain(selector.estimator_, X).sum_by("input")
    best = importance.feature_names[int(np.argmax(importance.importance()))]
    assert list(selector.get_feature_names_out()) == [best]
    importances = cross_validated_importance(pipeline(forest_classifier()), X, y, cv=2)
    assert (
        importances.feature_names == ("color_red", "weight", "size")
        and np.isfinite(importances.importances).all()
    )
    stacked = make_pipeline(
        RandomOverSampler(random_state=0), ShapTransformer(forest_classifier()), forest_classifier()
    )
    assert explain(stacked.fit(X[["size", "weight"]], y), X[["size", "weight"]]).shape == (150, 2)


def test_wrappers_around_it() -> None:
    X, y = rows()
    model = FixedThresholdClassifier(
        pipeline(RFE(forest_classifier(), n_features_to_select=2)), threshold=0.3
    )
    explanation = explain(model.fit(X, y), X)
    assert explanation.shape == (150, 2)
    np.testing.assert_allclose(
        explanation.base_values + explanation.values.sum(axis=1), model.predict_proba(X)[:, 1], atol=1e-6
    )


def test_predictions_of_its_own_are_refused() -> None:
    class Louder(Pipeline):
        def predict_proba(self, X: Any, **params: Any) -> Any:
            return super().predict_proba(X, **params) ** 2

    X, y = rows()
    with pytest.raises(UnsupportedModelError, match=r"Louder\.predict_proba"):
        cross_val_explain(Louder(pipeline(forest_classifier()).steps), X, y)
