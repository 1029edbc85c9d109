"""Models inside other models are explained as they predict, or rejected with the reason."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from helpers.families import forest_classifier, values_by_definition
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import make_classification
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestRegressor
from sklearn.exceptions import NotFittedError
from sklearn.feature_selection import RFE, RFECV
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import FixedThresholdClassifier, GridSearchCV, TunedThresholdClassifierCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.semi_supervised import SelfTrainingClassifier
from sklearn.tree import DecisionTreeRegressor

from skshapgpu import (
    ShapTransformer,
    TreeExplainer,
    UnsupportedModelError,
    adapters,
    cross_val_explain,
    explain,
    register_adapter,
)

ROWS, LABELS = make_classification(160, 4, n_informative=3, n_redundant=0, random_state=0)


def boosting() -> HistGradientBoostingClassifier:
    return HistGradientBoostingClassifier(max_iter=4, max_leaf_nodes=6)


def named_rows() -> Any:
    return pytest.importorskip("pandas").DataFrame(ROWS, columns=list("abcd"))


# Wrappers with the margin of the model inside


@pytest.mark.parametrize(
    "wrap, inner",
    [
        (lambda model: TunedThresholdClassifierCV(model, cv=2), boosting),
        (lambda model: FixedThresholdClassifier(model, threshold=0.2), forest_classifier),
        (lambda model: SelfTrainingClassifier(model), forest_classifier),
        (lambda model: make_pipeline(StandardScaler(), FixedThresholdClassifier(model)), forest_classifier),
        (lambda model: FixedThresholdClassifier(make_pipeline(StandardScaler(), model)), boosting),
        (lambda model: SelfTrainingClassifier(make_pipeline(StandardScaler(), model)), boosting),
        (
            lambda model: GridSearchCV(FixedThresholdClassifier(model), {"threshold": [0.3, 0.6]}, cv=2),
            forest_classifier,
        ),
    ],
    ids=["tuned", "fixed", "self", "step", "pipeline", "self of a pipeline", "search"],
)
def test_values_are_those_of_the_wrappers_own_prediction(wrap: Any, inner: Any) -> None:
    X = named_rows()
    # Half of the labels are unknown to a SelfTrainingClassifier, which invents labels for some of them.
    labels = np.where(np.arange(len(X)) % 2, LABELS, -1) if "Self" in repr(wrap(inner())) else LABELS
    model = wrap(inner()).fit(X, labels)
    rows, background = X.iloc[:6], X.iloc[100:105]

    def margin(mixed: Any) -> np.ndarray:
        if inner is boosting:
            return model.decision_function(mixed)
        return model.predict_proba(mixed)[:, 1]

    explanation = explain(model, rows, data=background, precision="double")
    expected = values_by_definition(margin, rows, background)
    assert (np.abs(expected).max(axis=0) > 0).sum() >= 3
    # Both sides compute in float64; both round X of a forest to float32.
    np.testing.assert_allclose(explanation.values, expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(explanation.base_values, margin(background).mean(), rtol=1e-12)
    assert explanation.feature_names == ("a", "b", "c", "d") and explanation.row_labels is not None


def few_columns(model: Any, X: Any, y: Any) -> float:
    return -X.shape[1]


@pytest.mark.parametrize(
    "selector",
    [
        RFE(forest_classifier(), n_features_to_select=2),
        RFECV(forest_classifier(), min_features_to_select=2, cv=2, scoring=few_columns),
    ],
)
def test_a_selector_gives_values_to_the_columns_that_it_keeps(selector: Any) -> None:
    rng = np.random.default_rng(1)
    X = named_rows().assign(noise=rng.normal(size=160))[["noise", "d", "a", "b"]]
    model = clone(selector).fit(X, LABELS)
    rows, background = X.iloc[:6], X.iloc[100:105]
    expected = values_by_definition(lambda mixed: model.predict_proba(mixed)[:, 1], rows, background)
    explanation = explain(model, rows, data=background, precision="double")
    kept = model.support_
    assert 0 < kept.sum() < 4 and not kept[0]
    np.testing.assert_allclose(explanation.values, expected[:, kept], rtol=0, atol=1e-12)
    np.testing.assert_allclose(expected[:, ~kept], 0, atol=1e-15)
    assert explanation.feature_names == tuple(X.columns[kept])
    assert explanation.sum_by("input").feature_names == tuple(X.columns[kept])
    behind = make_pipeline(StandardScaler().set_output(transform="pandas"), clone(selector)).fit(X, LABELS)
    total = explain(behind, X)
    np.testing.assert_allclose(
        total.base_values + total.values.sum(axis=1), behind.predict_proba(X)[:, 1], atol=1e-6
    )


def test_a_target_that_is_left_as_it_is() -> None:
    y = ROWS[:, 0] * 3 + 100
    for given in (None, FunctionTransformer()):
        model = TransformedTargetRegressor(RandomForestRegressor(3, random_state=0), transformer=given)
        explanation = explain(model.fit(ROWS, y), ROWS)
        np.testing.assert_allclose(
            explanation.base_values + explanation.values.sum(axis=1), model.predict(ROWS), rtol=1e-6
        )
        results = cross_val_explain(model, ROWS, y, cv=2)
        assert np.isfinite(results["explanation"].values).all()


def test_a_transformed_target_is_refused() -> None:
    y = np.exp(ROWS[:, 0])
    refused: list[dict[str, Any]] = [
        {"func": np.log, "inverse_func": np.exp},
        {"transformer": StandardScaler()},
        {"transformer": FunctionTransformer(np.log, np.exp)},
    ]
    for options in refused:
        model = TransformedTargetRegressor(Unfittable(), **options)
        with pytest.raises(UnsupportedModelError, match="explain its regressor_"):
            cross_val_explain(model, ROWS, y, cv=2)
        model = TransformedTargetRegressor(RandomForestRegressor(3, random_state=0), **options).fit(ROWS, y)
        with pytest.raises(UnsupportedModelError, match="explain its regressor_"):
            TreeExplainer(model)
        assert explain(model.regressor_, ROWS).shape == ROWS.shape


def test_a_frame_is_held_against_the_names_of_a_self_training_model() -> None:
    X = named_rows()
    model = SelfTrainingClassifier(forest_classifier()).fit(X, np.where(np.arange(160) % 3, LABELS, -1))
    with pytest.raises(ValueError, match="feature names should match"):
        explain(model, X[["b", "a", "c", "d"]])
    explanation = explain(model, X)
    assert explanation.feature_names == ("a", "b", "c", "d")
    assert explanation.sum_by("input").feature_names == ("a", "b", "c", "d")
    assert len(vars(TreeExplainer(model)._reader.steps[0]._owner)) < len(vars(model))  # no copy of the forest


def test_wrappers_in_cross_validation_and_transformers() -> None:
    model = FixedThresholdClassifier(forest_classifier(), threshold=0.3)
    results = cross_val_explain(model, ROWS, LABELS, cv=2, return_estimator=True)
    for number, fitted in enumerate(results["estimator"]):
        test = results["fold"] == number
        explanation = results["explanation"][test]
        np.testing.assert_allclose(
            explanation.base_values + explanation.values.sum(axis=1),
            fitted.predict_proba(ROWS[test])[:, 1],
            atol=1e-6,
        )
    transformer = ShapTransformer(model).fit(ROWS, LABELS)
    np.testing.assert_array_equal(transformer.transform(ROWS), explain(transformer.estimator_, ROWS).values)


def test_a_threshold_around_a_fitted_model_needs_no_fit() -> None:
    inside = forest_classifier().fit(ROWS, LABELS)
    model = FixedThresholdClassifier(inside, threshold=0.3)
    assert np.isin(model.predict(ROWS), [0, 1]).all()  # scikit-learn predicts with it
    np.testing.assert_array_equal(explain(model, ROWS).values, explain(inside, ROWS).values)


@pytest.mark.parametrize(
    "model",
    [
        RFE(forest_classifier()),
        SelfTrainingClassifier(forest_classifier()),
        TunedThresholdClassifierCV(forest_classifier()),
    ],
)
def test_unfitted_wrappers(model: Any) -> None:
    with pytest.raises(NotFittedError):
        TreeExplainer(model)


class Unfittable(DecisionTreeRegressor):
    """Estimator that must not be fitted, because the model around it is rejected beforehand."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None, check_input: bool = True) -> Any:
        raise AssertionError("fitted")


# Foreign classes with their own predictions


class Doubling(Pipeline):
    """Pipeline whose predictions differ from its last step's predictions."""

    def predict(self, X: Any, **params: Any) -> Any:
        return 2 * super().predict(X, **params)


class Reordering(Pipeline):
    """Pipeline that skips its first step in predictions."""

    def _iter(self, *args: Any, **kwargs: Any) -> Any:
        return list(super()._iter(*args, **kwargs))[1:]


class Verbose(Pipeline):
    """Pipeline that changes nothing in how predictions are made."""

    def fit(self, X: Any, y: Any = None, **params: Any) -> Verbose:
        self.n_rows_ = len(X)
        return super().fit(X, y, **params)

    def score(self, X: Any, y: Any = None, **params: Any) -> float:
        return 17.0


class Calibrating(GridSearchCV):
    """Search that changes the probabilities of its best model."""

    def predict_proba(self, X: Any) -> Any:
        return super().predict_proba(X) ** 2


class Thawed(FrozenEstimator):
    """Frozen model with its own decision function."""

    def predict_proba(self, X: Any) -> Any:
        return self.estimator.predict_proba(X)[:, ::-1]


class Shifted(ShapTransformer):
    """Transformer of this package whose predictions differ from its model's predictions."""

    def predict(self, X: Any) -> Any:
        return super().predict(X) + 1


class Narrow(RFE):
    """Selector that shows its model other columns."""

    def _get_support_mask(self) -> Any:
        return np.roll(super()._get_support_mask(), 1)


def steps(model: Any) -> list[tuple[str, Any]]:
    return [("scale", StandardScaler()), ("model", model)]


@pytest.mark.parametrize(
    "model, method, way_out",
    [
        (Doubling(steps(forest_classifier())), r"test_wrappers\.Doubling\.predict", "Explain its last step"),
        (Reordering(steps(forest_classifier())), r"Reordering\._iter", "Explain its last step"),
        (
            Calibrating(forest_classifier(), {}, cv=2),
            r"Calibrating\.predict_proba",
            "Explain its best_estimator_",
        ),
        (Shifted(forest_classifier()), r"Shifted\.predict", "Explain its estimator_"),
        (Narrow(forest_classifier()), r"Narrow\._get_support_mask", "Explain its estimator_"),
        (
            make_pipeline(StandardScaler(), Doubling(steps(forest_classifier()))),
            r"Doubling\.predict",
            "last step",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_predictions_of_their_own_are_refused(model: Any, method: str, way_out: str) -> None:
    with pytest.raises(UnsupportedModelError, match=method):
        cross_val_explain(clone(model), ROWS, LABELS, cv=2)
    fitted = clone(model).fit(ROWS, LABELS)
    with pytest.raises(UnsupportedModelError, match=method) as error:
        TreeExplainer(fitted)
    assert way_out in str(error.value) and "register an adapter" in str(error.value)
    with pytest.raises(UnsupportedModelError, match=method):
        ShapTransformer.from_fitted(fitted)


def test_refused_before_the_fit() -> None:
    with pytest.raises(UnsupportedModelError, match=r"Doubling\.predict"):
        cross_val_explain(Doubling(steps(Unfittable())), ROWS, LABELS, cv=2)


def test_a_frozen_model_with_predictions_of_its_own() -> None:
    inside = forest_classifier().fit(ROWS, LABELS)
    with pytest.raises(UnsupportedModelError, match=r"Thawed\.predict_proba"):
        explain(Thawed(inside), ROWS)
    patched = make_pipeline(StandardScaler(), forest_classifier()).fit(ROWS, LABELS)
    patched.predict_proba = lambda X: np.ones((len(X), 2))
    with pytest.raises(UnsupportedModelError, match="the predict_proba that was set on it"):
        explain(patched, ROWS)


def test_a_subclass_that_predicts_as_its_base_is_explained() -> None:
    model = Verbose(steps(forest_classifier())).fit(ROWS, LABELS)
    plain = Pipeline(steps(forest_classifier())).fit(ROWS, LABELS)
    np.testing.assert_array_equal(explain(model, ROWS).values, explain(plain, ROWS).values)
    results = cross_val_explain(Verbose(steps(forest_classifier())), ROWS, LABELS, cv=2)
    assert results["test_score"].tolist() == [17, 17]
    search = type("Search", (GridSearchCV,), {})(forest_classifier(), {}, cv=2).fit(ROWS, LABELS)
    np.testing.assert_array_equal(explain(search, ROWS).values, explain(search.best_estimator_, ROWS).values)


class Chooser(ClassifierMixin, BaseEstimator):
    """Estimator that looks like a search: it has a best model, and predicts the opposite."""

    def fit(self, X: Any, y: Any) -> Chooser:
        self.best_estimator_ = forest_classifier().fit(X, y)
        return self

    def predict(self, X: Any) -> Any:
        return 1 - self.best_estimator_.predict(X)


class ExplainingTransformer(Chooser):
    """A class with a name from this package."""

    estimator = estimator_ = forest_classifier().fit(ROWS[:, ::-1], LABELS)


class BaseSearchCV(BaseEstimator):
    """A class with a name from scikit-learn."""

    estimator = forest_classifier()


def test_classes_that_look_alike() -> None:
    chooser = Chooser().fit(ROWS, LABELS)
    with pytest.raises(UnsupportedModelError, match=r"Chooser\.predict is its own.* best_estimator_"):
        explain(chooser, ROWS)
    with pytest.raises(UnsupportedModelError, match=r"Chooser\.predict"):
        explain(ExplainingTransformer().fit(ROWS, LABELS), ROWS)
    with pytest.raises(UnsupportedModelError, match="cannot explain a BaseSearchCV"):
        explain(BaseSearchCV(), ROWS)
    # Without its own predictions there is no other model that it could represent.
    holder = SimpleNamespace(best_estimator_=chooser.best_estimator_)
    np.testing.assert_array_equal(explain(holder, ROWS).values, explain(chooser.best_estimator_, ROWS).values)


def test_an_adapter_for_a_pipeline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapters, "_REGISTERED", {})
    register_adapter(f"{__name__}.Doubling", lambda model: adapters.adapt(model[-1]))
    model = Doubling(steps(forest_classifier())).fit(ROWS, LABELS)
    np.testing.assert_array_equal(explain(model, ROWS).values, explain(model[-1], ROWS).values)
    results = cross_val_explain(model, ROWS, LABELS, cv=2, return_estimator=True)
    for number, fitted in enumerate(results["estimator"]):
        test = results["fold"] == number
        expected = explain(fitted[-1], ROWS[test]).values
        np.testing.assert_array_equal(results["explanation"].values[test], expected)


def test_pipelines_without_a_model() -> None:
    for last in ("passthrough", None):
        with pytest.raises(UnsupportedModelError, match="Pipeline whose last step is no model"):
            cross_val_explain(Pipeline([("scale", StandardScaler()), ("end", last)]), ROWS, LABELS)
    with pytest.raises(UnsupportedModelError, match="Pipeline whose last step is no model"):
        TreeExplainer(Pipeline([]))
    with pytest.raises(UnsupportedModelError, match="LogisticRegression"):
        explain(RFE(LogisticRegression()).fit(ROWS, LABELS), ROWS)
