"""ShapTransformer in scikit-learn."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn
from helpers.families import forest
from helpers.tables import diabetes_frame
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    IsolationForest,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.feature_selection import RFE, RFECV, SelectFromModel
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier

import skshapgpu._estimators.transformers
from skshapgpu import ShapTransformer, TreeExplainer, UnsupportedModelError

IRIS, SPECIES = load_iris(return_X_y=True)
DIABETES, PROGRESSION = load_diabetes(return_X_y=True)
CANCER, BENIGN = load_breast_cancer(return_X_y=True)


# fit and transform


def test_transform_gives_the_values_of_the_explainer() -> None:
    transformer = ShapTransformer(forest()).fit(DIABETES, PROGRESSION)
    explainer = TreeExplainer(forest().fit(DIABETES, PROGRESSION))
    np.testing.assert_array_equal(transformer.transform(DIABETES), explainer.shap_values(DIABETES))
    np.testing.assert_array_equal(transformer.explain(DIABETES).values, explainer.shap_values(DIABETES))
    assert transformer.base_values_ == explainer.expected_value
    assert transformer.n_features_in_ == 10


def test_several_outputs_lie_side_by_side() -> None:
    transformer = ShapTransformer(RandomForestClassifier(4, random_state=0)).fit(IRIS, SPECIES)
    flat = transformer.transform(IRIS)
    assert flat.shape == (150, 12)
    np.testing.assert_array_equal(flat, transformer.explain(IRIS).values.reshape(150, -1))
    assert list(transformer.get_feature_names_out())[:4] == ["x0__0", "x0__1", "x0__2", "x1__0"]
    assert transformer.base_values_.shape == (3,)
    assert transformer.transform(IRIS[:0]).shape == (0, 12)


def test_options_reach_the_explainer() -> None:
    model = DecisionTreeClassifier(max_depth=3, random_state=0)
    transformer = ShapTransformer(
        model, outputs="all", precision="double", check_additivity=False, memory_limit="1GB"
    )
    flat = transformer.fit(CANCER, BENIGN).transform(CANCER)
    assert flat.shape == (569, 60)
    explanation = transformer.explain(CANCER)
    assert explanation.precision == "double"
    assert explanation.additivity_error is None
    np.testing.assert_array_equal(transformer.get_feature_names_out()[:2], ["x0__0", "x0__1"])
    with pytest.raises(ValueError, match="precision must be one of"):
        ShapTransformer(model, precision="half").fit(CANCER, BENIGN)
    with pytest.raises(MemoryError, match="memory_limit"):
        ShapTransformer(model, memory_limit=10).fit(CANCER, BENIGN)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dtype_is_preserved(dtype: type) -> None:
    transformer = ShapTransformer(forest())
    assert transformer.fit_transform(DIABETES.astype(dtype), PROGRESSION).dtype == dtype


def test_estimator_is_cloned() -> None:
    model = forest()
    transformer = ShapTransformer(model).fit(DIABETES, PROGRESSION)
    assert transformer.estimator is model and not hasattr(model, "estimators_")
    assert clone(transformer).get_params()["estimator__max_depth"] == 4


def test_before_fit() -> None:
    transformer = ShapTransformer(forest())
    for method in ("transform", "explain", "predict"):
        with pytest.raises(NotFittedError):
            getattr(transformer, method)(DIABETES)
    with pytest.raises(NotFittedError):
        transformer.get_feature_names_out()


def test_models_that_cannot_be_explained() -> None:
    with pytest.raises(UnsupportedModelError, match="LogisticRegression"):
        ShapTransformer(LogisticRegression()).fit(IRIS[:100], SPECIES[:100])
    with pytest.raises(ValueError, match="y should be a 1d array"):
        ShapTransformer(HistGradientBoostingClassifier()).fit(IRIS, np.column_stack([SPECIES, SPECIES]))


@pytest.mark.parametrize("make", [sp.csr_array, sp.csc_matrix, sp.coo_array])
def test_sparse(make: Any) -> None:
    X = make(DIABETES)
    np.testing.assert_array_equal(
        ShapTransformer(forest()).fit(X, PROGRESSION).transform(X),
        ShapTransformer(forest()).fit(DIABETES, PROGRESSION).transform(DIABETES),
    )


# Frozen and fitted models


def test_frozen_model_is_not_fitted_again() -> None:
    model = forest().fit(DIABETES, PROGRESSION)
    transformer = ShapTransformer(FrozenEstimator(model))
    values = transformer.fit(DIABETES[:50]).transform(DIABETES)
    assert transformer.estimator.estimator is model
    np.testing.assert_array_equal(values, TreeExplainer(model).shap_values(DIABETES))
    np.testing.assert_array_equal(transformer.predict(DIABETES), model.predict(DIABETES))
    again = clone(transformer).fit(DIABETES)
    np.testing.assert_array_equal(again.transform(DIABETES), values)


def test_from_fitted_needs_no_fit() -> None:
    X, y = diabetes_frame()
    model = forest().fit(X, y)
    transformer = ShapTransformer.from_fitted(model, precision="double")
    np.testing.assert_array_equal(
        transformer.transform(X), TreeExplainer(model, precision="double").shap_values(X)
    )
    assert list(transformer.get_feature_names_out()) == list(X.columns)
    assert transformer.precision == "double"
    np.testing.assert_array_equal(transformer.predict(X), model.predict(X))
    with pytest.raises(AttributeError):
        _ = transformer.feature_importances_
    assert transformer.fit(X).feature_importances_.shape == (10,)
    np.testing.assert_array_equal(transformer.predict(X), model.predict(X))
    with pytest.raises(ValueError, match="same order"):
        transformer.transform(X[X.columns[::-1]])
    with pytest.raises(NotFittedError):
        ShapTransformer.from_fitted(forest())


def test_from_fitted_pipeline() -> None:
    X, y = diabetes_frame()
    pipeline = make_pipeline(StandardScaler(), forest()).fit(X, y)
    transformer = ShapTransformer.from_fitted(pipeline).set_output(transform="pandas")
    frame = transformer.transform(X)
    assert list(frame.columns) == list(X.columns)
    assert transformer.n_features_in_ == 10


@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_from_native_booster(library: str) -> None:
    module = pytest.importorskip(library)
    X, y = diabetes_frame()
    if library == "xgboost":
        booster = module.train({"max_depth": 3, "nthread": 1}, module.DMatrix(X, y), num_boost_round=3)
    else:
        booster = module.train({"verbose": -1, "num_threads": 1}, module.Dataset(X, y), num_boost_round=3)
    transformer = ShapTransformer.from_fitted(booster).set_output(transform="pandas")
    frame = transformer.transform(X)
    assert list(frame.columns) == list(X.columns) and list(frame.index) == list(X.index)
    np.testing.assert_array_equal(frame.to_numpy(), TreeExplainer(booster).shap_values(X))
    assert "ShapTransformer" in repr(transformer)


def test_pickle() -> None:
    transformer = ShapTransformer(forest()).fit(DIABETES, PROGRESSION)
    other = pickle.loads(pickle.dumps(transformer))
    np.testing.assert_array_equal(other.transform(DIABETES), transformer.transform(DIABETES))
    np.testing.assert_array_equal(other.feature_importances_, transformer.feature_importances_)


# Names and frames


def test_set_output_pandas_keeps_names_and_index() -> None:
    X, y = diabetes_frame()
    transformer = ShapTransformer(forest()).set_output(transform="pandas")
    frame = transformer.fit_transform(X, y)
    assert list(frame.columns) == list(X.columns)
    assert list(frame.index) == list(X.index)
    np.testing.assert_array_equal(frame.to_numpy(), transformer.explain(X).values)
    assert list(transformer.feature_names_in_) == list(X.columns)
    with pytest.raises(ValueError, match="same order"):
        transformer.transform(X[X.columns[::-1]])


def test_set_output_polars() -> None:
    pl = pytest.importorskip("polars")
    X = pl.DataFrame(DIABETES, schema=[f"f{i}" for i in range(10)])
    frame = ShapTransformer(forest()).set_output(transform="polars").fit_transform(X, PROGRESSION)
    assert isinstance(frame, pl.DataFrame) and frame.columns == X.columns


def test_names_of_classes() -> None:
    labels = np.array(["setosa", "versicolor", "virginica"])[SPECIES]
    transformer = ShapTransformer(RandomForestClassifier(3, random_state=0)).fit(IRIS, labels)
    names = transformer.get_feature_names_out(["a", "b", "c", "d"])
    assert list(names[:3]) == ["a__setosa", "a__versicolor", "a__virginica"]
    assert len(set(names)) == 12
    with pytest.raises(ValueError, match="input_features should have length"):
        transformer.get_feature_names_out(["a"])


# Delegation


def test_classifier() -> None:
    transformer = ShapTransformer(RandomForestClassifier(4, random_state=0)).fit(IRIS, SPECIES)
    model = transformer.estimator_
    assert is_classifier(transformer) and not is_regressor(transformer)
    np.testing.assert_array_equal(transformer.classes_, [0, 1, 2])
    for method in ("predict", "predict_proba"):
        np.testing.assert_array_equal(getattr(transformer, method)(IRIS), getattr(model, method)(IRIS))
    with np.errstate(divide="ignore"):
        np.testing.assert_array_equal(transformer.predict_log_proba(IRIS), np.log(model.predict_proba(IRIS)))
    assert transformer.score(IRIS, SPECIES) == model.score(IRIS, SPECIES)
    assert not hasattr(transformer, "decision_function")


def test_regressor() -> None:
    transformer = ShapTransformer(forest())
    assert is_regressor(transformer)
    assert hasattr(transformer, "predict") and not hasattr(transformer, "predict_proba")
    transformer.fit(DIABETES, PROGRESSION)
    assert not hasattr(transformer, "classes_")


def test_tags_follow_the_model() -> None:
    for model in (RandomForestRegressor(), HistGradientBoostingClassifier(), IsolationForest()):
        tags, model_tags = ShapTransformer(model).__sklearn_tags__(), model.__sklearn_tags__()
        assert tags.input_tags == model_tags.input_tags
        assert tags.estimator_type == model_tags.estimator_type
        assert tags.target_tags.required == model_tags.target_tags.required
        assert tags.transformer_tags.preserves_dtype == ["float64", "float32"]
        assert not tags.array_api_support
        assert tags.non_deterministic == model_tags.non_deterministic
    assert (
        ShapTransformer(RandomForestRegressor(), algorithm="gputreeshap").__sklearn_tags__().non_deterministic
    )
    frozen = ShapTransformer(FrozenEstimator(forest().fit(DIABETES, PROGRESSION)))
    assert not frozen.__sklearn_tags__().target_tags.required


def test_fit_parameters_are_passed_on() -> None:
    weight = (PROGRESSION > 150).astype(float)
    transformer = ShapTransformer(forest()).fit(DIABETES, PROGRESSION, sample_weight=weight)
    expected = forest().fit(DIABETES, PROGRESSION, sample_weight=weight)
    np.testing.assert_array_equal(transformer.predict(DIABETES), expected.predict(DIABETES))
    assert transformer.score(DIABETES, PROGRESSION, sample_weight=weight) == expected.score(
        DIABETES, PROGRESSION, sample_weight=weight
    )


def test_metadata_routing() -> None:
    weight = (PROGRESSION > 150).astype(float)
    with sklearn.config_context(enable_metadata_routing=True):
        model = forest().set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        scaler = StandardScaler().set_fit_request(sample_weight=False)
        pipeline = make_pipeline(scaler, ShapTransformer(model))
        pipeline.fit(DIABETES, PROGRESSION, sample_weight=weight)
        expected = forest().fit(StandardScaler().fit_transform(DIABETES), PROGRESSION, sample_weight=weight)
        np.testing.assert_array_equal(
            pipeline.predict(DIABETES), expected.predict(StandardScaler().fit_transform(DIABETES))
        )
        weighted = pipeline.score(DIABETES, PROGRESSION, sample_weight=weight)
        assert weighted != pipeline.score(DIABETES, PROGRESSION)
        with pytest.raises(sklearn.exceptions.UnsetMetadataPassedError):
            ShapTransformer(forest()).fit(DIABETES, PROGRESSION, sample_weight=weight)


# Importances and selection


def test_importances_are_the_mean_magnitudes() -> None:
    transformer = ShapTransformer(forest()).fit(DIABETES, PROGRESSION)
    np.testing.assert_allclose(transformer.feature_importances_, transformer.explain(DIABETES).importance())
    transformer = ShapTransformer(RandomForestClassifier(4, random_state=0)).fit(IRIS, SPECIES)
    np.testing.assert_allclose(
        transformer.feature_importances_, transformer.explain(IRIS).importance().sum(axis=1)
    )


@pytest.mark.parametrize("kind", ["array", "list", "pandas", "polars", "pyarrow", "csr"])
def test_importances_of_many_rows_are_of_a_fixed_sample(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(skshapgpu._estimators.transformers, "_IMPORTANCE_ROWS", 100)
    monkeypatch.setattr(skshapgpu._estimators.transformers, "_IMPORTANCE_CHUNK", 30)
    X: Any = DIABETES
    if kind in ("pandas", "polars"):
        X = pytest.importorskip(kind).DataFrame({f"f{i}": DIABETES[:, i] for i in range(10)})
    elif kind == "pyarrow":
        X = pytest.importorskip(kind).table({f"f{i}": DIABETES[:, i] for i in range(10)})
    elif kind != "array":
        X = DIABETES.tolist() if kind == "list" else sp.csr_array(DIABETES)
    model = FrozenEstimator(forest().fit(X if kind != "pyarrow" else X.to_pandas(), PROGRESSION))
    transformer = ShapTransformer(model).fit(X, PROGRESSION)
    rows = np.random.default_rng(0).choice(442, 100, replace=False)
    expected = np.abs(TreeExplainer(model).shap_values(DIABETES[rows])).mean(axis=0)
    np.testing.assert_allclose(transformer.feature_importances_, expected)


@pytest.mark.parametrize("period", [2, 3, 5])
def test_importances_of_many_rows_of_alternating_kinds(monkeypatch: pytest.MonkeyPatch, period: int) -> None:
    monkeypatch.setattr(skshapgpu._estimators.transformers, "_IMPORTANCE_ROWS", 1_000)
    rng = np.random.default_rng(1)
    X = rng.normal(size=(1_000 * period, 2))
    X[:, 0] = np.where(np.arange(len(X)) % period, rng.choice([-5.0, 5.0], len(X)), 0)
    transformer = ShapTransformer(forest()).fit(X, X.sum(axis=1))
    of_all_rows = np.abs(TreeExplainer(transformer.estimator_).shap_values(X)).mean(axis=0)
    np.testing.assert_allclose(transformer.feature_importances_, of_all_rows, rtol=0.1)


def test_pipeline_of_texts() -> None:
    texts = ["good movie", "bad movie", "good plot", "bad plot"] * 5
    pipeline = make_pipeline(CountVectorizer(), RandomForestClassifier(5, random_state=0))
    transformer = ShapTransformer(pipeline).fit(texts, [1, 0] * 10)
    assert transformer.transform(texts).shape == (20, 4)
    assert list(transformer.get_feature_names_out()) == ["bad", "good", "movie", "plot"]
    with pytest.raises(ValueError, match="CountVectorizer does not say how many columns X has"):
        _ = transformer.feature_importances_
    fitted = ShapTransformer.from_fitted(pipeline.fit(texts, [1, 0] * 10))
    np.testing.assert_array_equal(fitted.transform(texts), transformer.transform(texts))
    assert list(fitted.get_feature_names_out()) == ["bad", "good", "movie", "plot"]


def informative() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 8))
    return X, 3 * X[:, 2] - 4 * X[:, 5] + 0.1 * rng.normal(size=300)


def test_select_from_model() -> None:
    X, y = informative()
    selector = SelectFromModel(ShapTransformer(forest()), max_features=2, threshold=-np.inf).fit(X, y)
    np.testing.assert_array_equal(selector.get_support(indices=True), [2, 5])


def test_rfe() -> None:
    X, y = informative()
    selector = RFE(ShapTransformer(forest()), n_features_to_select=2, step=2).fit(X, y)
    np.testing.assert_array_equal(selector.get_support(indices=True), [2, 5])
    assert selector.predict(X).shape == (300,)
    selected = RFECV(ShapTransformer(forest()), step=3, cv=2).fit(X, y).get_support(indices=True)
    assert {2, 5} <= set(selected)


# Together with others


def test_in_a_pipeline() -> None:
    pipeline = make_pipeline(
        StandardScaler(), ShapTransformer(RandomForestClassifier(4, random_state=0)), LogisticRegression()
    )
    assert pipeline.fit(CANCER, BENIGN).score(CANCER, BENIGN) > 0.9
    assert pipeline[:-1].get_feature_names_out().shape == (30,)


def test_behind_a_column_transformer_of_strings() -> None:
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"color": rng.choice(["red", "green"], 100), "size": rng.normal(size=100)})
    y = (X["color"] == "red") + X["size"] > 0.5
    encode = ColumnTransformer(
        [("one", OneHotEncoder(sparse_output=False), ["color"])], remainder="passthrough"
    )
    pipeline = make_pipeline(encode, ShapTransformer(RandomForestClassifier(4, random_state=0))).set_output(
        transform="pandas"
    )
    frame = pipeline.fit_transform(X, y)
    assert list(frame.columns) == ["one__color_green", "one__color_red", "remainder__size"]
    assert pipeline.score(X, y) > 0.9
    # With the pipeline inside the transformer, the encoded columns again give the names.
    inside = ShapTransformer(make_pipeline(encode, RandomForestClassifier(4, random_state=0)))
    inside = inside.set_output(transform="pandas")
    assert list(inside.fit_transform(X, y).columns) == list(frame.columns)
    np.testing.assert_array_equal(inside.feature_names_in_, ["color", "size"])


def test_in_a_column_transformer() -> None:
    X, y = diabetes_frame()
    both = ColumnTransformer(
        [("shap", ShapTransformer(forest()), ["bmi", "bp", "s5"]), ("rest", StandardScaler(), ["age"])]
    )
    frame = both.set_output(transform="pandas").fit_transform(X, y)
    assert list(frame.columns) == ["shap__bmi", "shap__bp", "shap__s5", "rest__age"]


def test_in_a_grid_search() -> None:
    search = GridSearchCV(
        ShapTransformer(forest()), {"estimator__max_depth": [1, 4], "precision": ["single", "double"]}, cv=2
    )
    search.fit(DIABETES, PROGRESSION)
    assert search.best_params_["estimator__max_depth"] == 4
    assert search.transform(DIABETES).shape == DIABETES.shape


def test_cross_val_score_is_that_of_the_model() -> None:
    model = RandomForestClassifier(4, random_state=0)
    cv = StratifiedKFold(3)
    np.testing.assert_array_equal(
        cross_val_score(ShapTransformer(model), IRIS, SPECIES, cv=cv),
        cross_val_score(model, IRIS, SPECIES, cv=cv),
    )
    np.testing.assert_array_equal(
        cross_val_score(ShapTransformer(model), IRIS, SPECIES, cv=3),
        cross_val_score(model, IRIS, SPECIES, cv=cv),
    )


@pytest.mark.parametrize("library", ["xgboost", "lightgbm", "catboost"])
def test_models_of_other_libraries(library: str) -> None:
    module = pytest.importorskip(library)
    model = {
        "xgboost": lambda: module.XGBClassifier(n_estimators=3, n_jobs=1),
        "lightgbm": lambda: module.LGBMClassifier(n_estimators=3, verbose=-1, n_jobs=1),
        "catboost": lambda: module.CatBoostClassifier(
            iterations=3, verbose=False, allow_writing_files=False, thread_count=1
        ),
    }[library]()
    X, y = diabetes_frame()
    y = np.digitize(y, [100, 200])
    transformer = ShapTransformer(model, precision="double").set_output(transform="pandas")
    frame = transformer.fit_transform(X, y)
    assert frame.shape == (442, 30)
    assert frame.columns[4] == "sex__1"
    np.testing.assert_array_equal(transformer.classes_, [0, 1, 2])
    margin = np.exp(transformer.base_values_ + transformer.explain(X).values.sum(axis=1))
    np.testing.assert_allclose(
        margin / margin.sum(axis=1, keepdims=True), transformer.predict_proba(X), atol=1e-5
    )
    assert cross_val_score(clone(transformer), X, y, cv=2).mean() > 0.4
