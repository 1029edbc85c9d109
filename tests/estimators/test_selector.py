"""ShapSelector keeps columns by the magnitude of SHAP values; scikit-learn's own selectors."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import sklearn
from helpers.families import forest
from helpers.tables import diabetes_frame
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    IsolationForest,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.exceptions import NotFittedError, UnsetMetadataPassedError
from sklearn.feature_selection import RFE, RFECV, SelectFromModel
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from sklearn.utils.estimator_checks import parametrize_with_checks

from skshapgpu import ShapSelector, ShapTransformer, TreeExplainer, UnsupportedModelError

IRIS, SPECIES = load_iris(return_X_y=True)
DIABETES, PROGRESSION = load_diabetes(return_X_y=True)
CANCER, BENIGN = load_breast_cancer(return_X_y=True)


def magnitudes(values: np.ndarray) -> np.ndarray:
    """Compute the mean magnitude over the rows, summed over the outputs."""
    return np.abs(values).mean(axis=0).reshape(values.shape[1], -1).sum(axis=1)


@parametrize_with_checks(
    [
        ShapSelector(DecisionTreeRegressor(random_state=0)),
        ShapSelector(DecisionTreeClassifier(random_state=0), max_features=1),
        ShapSelector(RandomForestRegressor(5, random_state=0), cv=3),
        ShapSelector(RandomForestClassifier(5, random_state=0), cv=3, threshold="0.5*median"),
        ShapSelector(HistGradientBoostingRegressor(max_iter=5, random_state=0)),
        ShapSelector(HistGradientBoostingClassifier(max_iter=5, random_state=0)),
        ShapSelector(IsolationForest(n_estimators=5, random_state=0)),
    ]
)
def test_checks_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)


def test_importances_are_those_of_the_rows_given_to_fit() -> None:
    selector = ShapSelector(forest()).fit(DIABETES, PROGRESSION)
    values = TreeExplainer(forest().fit(DIABETES, PROGRESSION)).shap_values(DIABETES)
    np.testing.assert_allclose(selector.importances_, magnitudes(values))
    parts = [magnitudes(values[part::5]) for part in range(5)]
    np.testing.assert_allclose(selector.importances_std_, np.std(parts, axis=0))
    assert selector.threshold_ == selector.importances_.mean()
    np.testing.assert_array_equal(selector.get_support(), selector.importances_ >= selector.threshold_)
    np.testing.assert_array_equal(selector.transform(DIABETES), DIABETES[:, selector.get_support()])
    np.testing.assert_array_equal(
        selector.estimator_.predict(DIABETES), forest().fit(DIABETES, PROGRESSION).predict(DIABETES)
    )


def test_importances_of_splits() -> None:
    model = RandomForestClassifier(4, max_depth=4, random_state=0)
    selector = ShapSelector(model, cv=3).fit(IRIS, SPECIES)
    importances_of_splits = [
        magnitudes(TreeExplainer(clone(model).fit(IRIS[train], SPECIES[train])).shap_values(IRIS[test]))
        for train, test in StratifiedKFold(3).split(IRIS, SPECIES)
    ]
    np.testing.assert_allclose(selector.importances_, np.mean(importances_of_splits, axis=0))
    np.testing.assert_allclose(selector.importances_std_, np.std(importances_of_splits, axis=0))
    assert not hasattr(selector, "estimator_")


def test_rows_that_were_not_trained_on_tell_what_is_remembered() -> None:
    """Deep trees split on noise last: on new rows, the mean magnitude of noise shrinks, others' does not."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 6))
    y = X[:, 0] + 2 * rng.normal(size=300)
    model = RandomForestRegressor(30, random_state=0)
    seen, unseen = (ShapSelector(model, cv=cv).fit(X, y).importances_ for cv in (None, KFold(5)))
    assert (unseen[1:] / unseen[0]).mean() < (seen[1:] / seen[0]).mean()


# threshold and max_features


@pytest.mark.parametrize(
    ("threshold", "expected"),
    [
        (None, np.mean),
        ("mean", np.mean),
        ("median", np.median),
        ("1.25*mean", lambda importances: 1.25 * np.mean(importances)),
        (" 0.5 * median", lambda importances: 0.5 * np.median(importances)),
        (3.5, lambda importances: 3.5),
        (-np.inf, lambda importances: -np.inf),
    ],
)
def test_threshold(threshold: Any, expected: Any) -> None:
    selector = ShapSelector(forest(), threshold=threshold).fit(DIABETES, PROGRESSION)
    assert selector.threshold_ == expected(selector.importances_)
    theirs = SelectFromModel(ShapTransformer(forest()), threshold=threshold).fit(DIABETES, PROGRESSION)
    np.testing.assert_array_equal(selector.get_support(), theirs.get_support())


@pytest.mark.parametrize("threshold", ["most", "x*mean", "2*", np.nan, [1]])
def test_threshold_that_there_is_not(threshold: Any) -> None:
    with pytest.raises(ValueError, match="threshold must be a number, 'mean', 'median' or a multiple"):
        ShapSelector(forest(), threshold=threshold).fit(DIABETES, PROGRESSION)


@pytest.mark.parametrize("max_features", [0, 2, 9, 10, 99, lambda X: X.shape[1] // 3])
@pytest.mark.parametrize("cv", [None, 3])
@pytest.mark.filterwarnings("ignore:No features were selected")
def test_max_features(max_features: Any, cv: Any) -> None:
    """Without a threshold, max_features columns are kept, although few of them are above the mean."""
    selector = ShapSelector(forest(), max_features=max_features, cv=cv).fit(DIABETES, PROGRESSION)
    assert (selector.importances_ >= selector.importances_.mean()).sum() < 4
    expected = max_features(DIABETES) if callable(max_features) else max_features
    assert selector.max_features_ == expected
    assert selector.get_support().sum() == min(expected, 10)
    chosen = np.argsort(-selector.importances_)[:expected]
    np.testing.assert_array_equal(selector.get_support(indices=True), np.sort(chosen))
    assert selector.threshold_ == -np.inf and selector.transform(DIABETES).shape[1] == len(chosen)


def test_max_features_and_a_threshold() -> None:
    for max_features, n_kept in ((9, 2), (1, 1)):
        selector = ShapSelector(forest(), max_features=max_features, threshold="mean")
        assert selector.fit(DIABETES, PROGRESSION).get_support().sum() == n_kept


def test_max_features_of_equal_columns() -> None:
    """If columns are equally important, the first are kept, even if their importance is zero."""
    X = np.column_stack([np.zeros((442, 2)), DIABETES[:, 2], np.zeros((442, 2)), DIABETES[:, 8]])
    selector = ShapSelector(forest(), max_features=4).fit(X, PROGRESSION)
    np.testing.assert_array_equal(np.flatnonzero(selector.importances_), [2, 5])
    np.testing.assert_array_equal(selector.get_support(indices=True), [0, 1, 2, 5])


def test_max_features_that_there_are_not() -> None:
    with pytest.raises(ValueError, match="max_features"):
        ShapSelector(forest(), max_features=-1).fit(DIABETES, PROGRESSION)
    with pytest.raises(TypeError, match="max_features"):
        ShapSelector(forest(), max_features=2.5).fit(DIABETES, PROGRESSION)


# Models


def test_frozen_model_is_used_as_it_is() -> None:
    model = forest().fit(DIABETES, PROGRESSION)
    values = TreeExplainer(model).shap_values(DIABETES[:90])
    for cv in (None, KFold(3)):
        selector = ShapSelector(FrozenEstimator(model), cv=cv).fit(DIABETES[:90], PROGRESSION[:90])
        np.testing.assert_allclose(selector.importances_, magnitudes(values))
    assert ShapSelector(FrozenEstimator(model)).fit(DIABETES[:90]).estimator_.estimator is model


def test_estimator_is_cloned() -> None:
    model = forest()
    selector = ShapSelector(model, max_features=3).fit(DIABETES, PROGRESSION)
    assert selector.estimator is model and not hasattr(model, "estimators_")
    assert clone(selector).get_params()["estimator__max_depth"] == 4
    with pytest.raises(NotFittedError):
        clone(selector).transform(DIABETES)


def test_options_of_the_explainer() -> None:
    data = DIABETES[::20]
    values = TreeExplainer(forest().fit(DIABETES, PROGRESSION), data).shap_values(DIABETES)
    for selector in (
        ShapSelector(forest(), explain_params={"data": data}),
        ShapSelector(ShapTransformer(forest(), data=data)),
    ):
        np.testing.assert_allclose(selector.fit(DIABETES, PROGRESSION).importances_, magnitudes(values))
    with pytest.raises(UnsupportedModelError, match="LogisticRegression"):
        ShapSelector(LogisticRegression(max_iter=5000), cv=2).fit(CANCER, BENIGN)


@pytest.mark.parametrize("library", ["xgboost", "lightgbm", "catboost"])
def test_models_of_other_libraries(library: str) -> None:
    module = pytest.importorskip(library)
    model = {
        "xgboost": lambda: module.XGBRegressor(n_estimators=3, n_jobs=1),
        "lightgbm": lambda: module.LGBMRegressor(n_estimators=3, verbose=-1, n_jobs=1),
        "catboost": lambda: module.CatBoostRegressor(
            iterations=3, verbose=False, allow_writing_files=False, thread_count=1
        ),
    }[library]()
    X, y = diabetes_frame()
    selector = ShapSelector(model, cv=KFold(3)).set_output(transform="pandas")
    frame = selector.fit_transform(X, y)
    assert list(frame.columns) == list(X.columns[selector.get_support()])
    importances_of_splits = []
    for train, test in KFold(3).split(X):
        fitted = clone(model).fit(X.iloc[train], y[train])
        importances_of_splits.append(magnitudes(TreeExplainer(fitted).shap_values(X.iloc[test])))
    np.testing.assert_allclose(selector.importances_, np.mean(importances_of_splits, axis=0))


# Frames and pipelines


def test_set_output() -> None:
    X, y = diabetes_frame()
    selector = ShapSelector(forest(), max_features=2).set_output(transform="pandas").fit(X, y)
    frame = selector.transform(X)
    assert list(frame.columns) == ["bmi", "s5"] and frame.index.equals(X.index)
    assert list(selector.get_feature_names_out()) == ["bmi", "s5"]
    np.testing.assert_array_equal(selector.feature_names_in_, X.columns)
    with pytest.raises(ValueError, match="same order"):
        selector.transform(X[X.columns[::-1]])
    pl = pytest.importorskip("polars")
    frame = ShapSelector(forest(), max_features=2).set_output(transform="polars").fit(X, y)
    assert frame.transform(pl.DataFrame(X.to_dict("list"))).columns == ["bmi", "s5"]


def test_in_a_pipeline_and_a_search() -> None:
    pipeline = make_pipeline(
        StandardScaler(),
        ShapSelector(forest(), cv=3),
        RandomForestRegressor(random_state=0),
    )
    search = GridSearchCV(pipeline, {"shapselector__max_features": [1, 5]}, cv=2).fit(DIABETES, PROGRESSION)
    assert search.best_params_ == {"shapselector__max_features": 5}
    other = pickle.loads(pickle.dumps(search.best_estimator_))
    np.testing.assert_array_equal(other.predict(DIABETES), search.predict(DIABETES))


@pytest.mark.parametrize("frame", [False, True])
@pytest.mark.parametrize("cv", [None, 3])
def test_model_behind_steps_that_keep_columns(frame: bool, cv: Any) -> None:
    X: Any = DIABETES
    if frame:
        X, _ = diabetes_frame()
    reorder = ColumnTransformer(
        [("b", StandardScaler(), [8, 2]), ("a", "passthrough", [3])], verbose_feature_names_out=False
    )
    selector = ShapSelector(make_pipeline(reorder, forest()), cv=cv).fit(X, PROGRESSION)
    np.testing.assert_array_equal(np.flatnonzero(selector.importances_), [2, 3, 8])
    alone = ShapSelector(forest(), cv=cv).fit(DIABETES[:, [8, 2, 3]], PROGRESSION)
    np.testing.assert_allclose(selector.importances_[[8, 2, 3]], alone.importances_, rtol=0.05)


# Parameters of fit


def test_fit_parameters_are_passed_on() -> None:
    weight = 1.0 + 9 * (PROGRESSION > 150)
    groups = np.arange(len(DIABETES)) // 7 % 5
    selector = ShapSelector(forest()).fit(DIABETES, PROGRESSION, sample_weight=weight)
    model = forest().fit(DIABETES, PROGRESSION, sample_weight=weight)
    np.testing.assert_allclose(selector.importances_, magnitudes(TreeExplainer(model).shap_values(DIABETES)))
    importances_of_splits = []
    for train, test in GroupKFold(3).split(DIABETES, groups=groups):
        model = forest().fit(DIABETES[train], PROGRESSION[train], sample_weight=weight[train])
        importances_of_splits.append(magnitudes(TreeExplainer(model).shap_values(DIABETES[test])))
    params = {"sample_weight": weight, "groups": groups}
    selector = ShapSelector(forest(), cv=GroupKFold(3)).fit(DIABETES, PROGRESSION, **params)
    np.testing.assert_allclose(selector.importances_, np.mean(importances_of_splits, axis=0))
    with sklearn.config_context(enable_metadata_routing=True):
        model = forest().set_fit_request(sample_weight=True)
        pipeline = make_pipeline(
            ShapSelector(model, cv=GroupKFold(3)), forest().set_fit_request(sample_weight=False)
        )
        pipeline.fit(DIABETES, PROGRESSION, **params)
        np.testing.assert_allclose(pipeline[0].importances_, selector.importances_)
        plain = make_pipeline(ShapSelector(model), forest().set_fit_request(sample_weight=False))
        plain.fit(DIABETES, PROGRESSION, sample_weight=weight)
        assert not np.allclose(
            plain[0].importances_, ShapSelector(forest()).fit(DIABETES, PROGRESSION).importances_
        )
        with pytest.raises(UnsetMetadataPassedError):
            ShapSelector(forest()).fit(DIABETES, PROGRESSION, sample_weight=weight)


# scikit-learn's own selectors with an unmodified ShapTransformer


def informative() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 8))
    return X, 3 * X[:, 2] - 4 * X[:, 5] + 0.1 * rng.normal(size=300)


@pytest.mark.parametrize("cv", [None, 3])
def test_finds_the_columns_that_matter(cv: Any) -> None:
    X, y = informative()
    selectors = (
        ShapSelector(forest(), cv=cv),
        SelectFromModel(ShapTransformer(forest())),
        RFE(ShapTransformer(forest()), n_features_to_select=2),
    )
    for selector in selectors:
        np.testing.assert_array_equal(selector.fit(X, y).get_support(indices=True), [2, 5])


def test_rfecv() -> None:
    X, y = informative()
    selector = RFECV(ShapTransformer(RandomForestRegressor(10, random_state=0)), cv=3).fit(X, y)
    np.testing.assert_array_equal(selector.get_support(indices=True), [2, 5])
    assert selector.n_features_ == 2 and selector.score(X, y) > 0.9
    assert selector.estimator_.explain(selector.transform(X)).shape == (300, 2)
