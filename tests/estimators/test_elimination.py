"""ShapRFECV: elimination by SHAP values of rows on which models were not trained, and scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import sklearn
from helpers.families import forest, forest_classifier
from helpers.tables import diabetes_frame
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_diabetes
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestClassifier
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import get_scorer, make_scorer, mean_absolute_error
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from sklearn.utils.estimator_checks import parametrize_with_checks

from skshapgpu import ShapRFECV, TreeExplainer, UnsupportedModelError

DIABETES, PROGRESSION = load_diabetes(return_X_y=True)


def planted(n_rows: int = 120) -> tuple[np.ndarray, np.ndarray]:
    """Return rows in which only columns 1 and 4 matter, and a target far from zero."""
    X = np.random.default_rng(0).normal(size=(n_rows, 6))
    return X, 100 + 3 * X[:, 1] - 4 * X[:, 4]


@parametrize_with_checks(
    [
        ShapRFECV(DecisionTreeRegressor(random_state=0), cv=2, step=0.9),
        ShapRFECV(DecisionTreeClassifier(random_state=0), cv=2, step=4, rule="one_std_err"),
    ]
)
def test_checks_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize(("step", "fewest"), [(3, 2), (0.25, 1), (0.01, 5), (99, 1), (2, 10)])
@pytest.mark.parametrize("scoring", [None, "neg_mean_absolute_error"])
def test_steps_from_the_definition(step: Any, fewest: int, scoring: Any) -> None:
    """Importances, scores, ranks and the selected columns equal the results of a plain implementation."""
    rows = slice(0, 150)
    X, y = DIABETES[rows], PROGRESSION[rows]
    selector = ShapRFECV(
        forest(), step=step, min_features_to_select=fewest, cv=KFold(3), scoring=scoring
    ).fit(X, y)
    score = get_scorer(scoring) if scoring else lambda model, X, y: model.score(X, y)
    n_drop = step if step >= 1 else max(1, int(step * 10))
    columns, steps = list(range(10)), []
    while True:
        importances_of_splits, scores = [], []
        for train, test in KFold(3).split(X):
            model = forest().fit(X[train][:, columns], y[train])
            scores.append(score(model, X[test][:, columns], y[test]))
            values = TreeExplainer(model).shap_values(X[test][:, columns])
            importances_of_splits.append(np.abs(values).mean(axis=0))
        importances = dict(zip(columns, np.mean(importances_of_splits, axis=0)))
        steps.insert(0, (list(columns), scores, importances))
        if len(columns) <= fewest:
            break
        kept = sorted(columns, key=lambda column: -importances[column])
        columns = sorted(kept[: max(fewest, len(columns) - n_drop)])
    results = selector.cv_results_
    assert results["n_features"].tolist() == [len(columns) for columns, _, _ in steps]
    for number, (columns, scores, importances) in enumerate(steps):
        row = selector.importances_history_[number]
        assert np.flatnonzero(~np.isnan(row)).tolist() == columns
        np.testing.assert_allclose(row[columns], list(importances.values()), rtol=1e-6)
        np.testing.assert_allclose([results[f"split{k}_test_score"][number] for k in range(3)], scores)
        np.testing.assert_allclose(results["mean_test_score"][number], np.mean(scores))
        np.testing.assert_allclose(results["std_test_score"][number], np.std(scores))
    best = int(np.argmax([np.mean(scores) for _, scores, _ in steps]))
    assert selector.get_support(indices=True).tolist() == steps[best][0]
    assert selector.n_features_ == len(steps[best][0])
    for column in range(10):
        first = next(number for number, (columns, _, _) in enumerate(steps) if column in columns)
        assert selector.ranking_[column] == 1 + max(0, first - best)
    np.testing.assert_array_equal(selector.transform(X), X[:, steps[best][0]])


def test_planted_columns_and_ties() -> None:
    """The smallest of equally good numbers of columns is chosen, and the first of equal columns are kept."""
    X, y = planted()
    X = np.column_stack([X, X[:, 4]])
    seen: list[tuple[int, int]] = []
    selector = ShapRFECV(forest(10), cv=3, progress=lambda *done: seen.append(done)).fit(X, y)
    assert (
        selector.support_[1] and selector.support_[[4, 6]].any() and seen[0] == (1, 7) and seen[-1] == (7, 7)
    )
    constant = np.column_stack([np.zeros((120, 3)), y])
    result = ShapRFECV(DecisionTreeRegressor(random_state=0), cv=3).fit(constant, y)
    assert result.support_.tolist() == [False, False, False, True]
    assert result.ranking_.tolist() == [2, 3, 4, 1]


def test_rule_of_one_standard_error() -> None:
    X, y = DIABETES, PROGRESSION
    best = ShapRFECV(forest(), cv=5).fit(X, y)
    fewer = clone(best).set_params(rule="one_std_err").fit(X, y)
    means = best.cv_results_["mean_test_score"]
    scores = [best.cv_results_[f"split{k}_test_score"][means.argmax()] for k in range(5)]
    limit = means.max() - np.std(scores, ddof=1) / np.sqrt(5)
    assert fewer.n_features_ == np.flatnonzero(means >= limit)[0] + 1 < best.n_features_
    assert (best.support_ >= fewer.support_).all()


def test_frames_pipelines_and_searches() -> None:
    X, y = diabetes_frame()
    rename = ColumnTransformer(
        [("one", StandardScaler(), ["s5", "age", "bmi"]), ("two", "passthrough", ["bp"])]
    )
    selector = ShapRFECV(make_pipeline(rename, forest()), cv=3, rule="one_std_err")
    frame = selector.set_output(transform="pandas").fit_transform(X, y)
    assert frame.index.equals(X.index) and set(frame.columns) <= {"s5", "age", "bmi", "bp"}
    assert {"s5", "bmi"} <= set(frame.columns)
    # Columns that the pipeline drops have no importance and are eliminated first, beginning with the last.
    first = selector.importances_history_[-1]
    assert np.flatnonzero(first).tolist() == [0, 2, 3, 8] and np.isnan(selector.importances_history_[-2, 9])
    pipeline = make_pipeline(ShapRFECV(forest(), cv=2, step=3), forest())
    search = GridSearchCV(pipeline, {"shaprfecv__min_features_to_select": [1, 10]}, cv=2).fit(X, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert list(search.best_estimator_[0].feature_names_in_) == list(X.columns)


def test_categories_by_name_and_missing_values() -> None:
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    codes = rng.integers(4, size=300)
    X = pd.DataFrame(
        {"noise": rng.normal(size=300), "color": codes.astype(float), "size": rng.normal(size=300)}
    )
    X.loc[X["size"] > 1, "size"] = np.nan
    y = np.array([0, 5, -5, 2])[codes] + 3 * X["size"].isna().to_numpy()
    model = HistGradientBoostingRegressor(max_iter=10, categorical_features=["color"], random_state=0)
    selector = ShapRFECV(model, cv=3).fit(X, y)
    assert {"color", "size"} <= set(selector.get_feature_names_out())
    assert selector.importances_history_[-1].argmin() == 0
    # One split on categories separates 5 from -5; on numbers, this needs several splits.
    stumps = clone(model).set_params(max_leaf_nodes=2)
    by_name = ShapRFECV(stumps, cv=3).fit(X, y).cv_results_["mean_test_score"]
    plain = ShapRFECV(clone(stumps).set_params(categorical_features=None), cv=3).fit(X, y)
    assert (by_name > plain.cv_results_["mean_test_score"] + 0.05).all()


def test_categories_as_a_parameter_of_fit() -> None:
    catboost = pytest.importorskip("catboost")
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    color = rng.choice(list("abcd"), size=200)
    X = pd.DataFrame(
        {"noise": rng.normal(size=200), "color": color, "more": rng.choice(list("xy"), size=200)}
    )
    y = pd.Series(color).map({"a": 0, "b": 5, "c": -5, "d": 2}).to_numpy()
    model = catboost.CatBoostRegressor(
        iterations=10, depth=2, one_hot_max_size=5, verbose=False, allow_writing_files=False, thread_count=1
    )
    selector = ShapRFECV(model, cv=3).fit(X, y, cat_features=["color", "more"])
    assert np.isfinite(selector.importances_history_[0]).tolist() == [False, True, False]
    assert "color" in selector.get_feature_names_out() and selector.cv_results_["mean_test_score"].min() > 0.9


def test_routing() -> None:
    X, y = planted()
    weight, groups = 1.0 + (y > 100), np.arange(120) % 7
    selector = ShapRFECV(forest(), cv=GroupKFold(3)).fit(X, y, sample_weight=weight, groups=groups)
    importances_of_splits = []
    for train, test in GroupKFold(3).split(X, groups=groups):
        model = forest().fit(X[train], y[train], sample_weight=weight[train])
        values = TreeExplainer(model).shap_values(X[test])
        importances_of_splits.append(np.average(np.abs(values), axis=0, weights=weight[test]))
    np.testing.assert_allclose(
        selector.importances_history_[-1], np.mean(importances_of_splits, axis=0), rtol=1e-6
    )
    with sklearn.config_context(enable_metadata_routing=True):
        model = forest().set_fit_request(sample_weight=True).set_score_request(sample_weight=False)
        metric = make_scorer(mean_absolute_error, greater_is_better=False)
        metric.set_score_request(sample_weight=True)
        routed = ShapRFECV(model, cv=GroupKFold(3), scoring=metric)
        routed.fit(X, y, sample_weight=weight, groups=groups)
        np.testing.assert_array_equal(routed.importances_history_[-1], selector.importances_history_[-1])
        train, test = next(GroupKFold(3).split(X, groups=groups))
        fitted = forest().fit(X[train], y[train], sample_weight=weight[train])
        expected = -mean_absolute_error(y[test], fitted.predict(X[test]), sample_weight=weight[test])
        np.testing.assert_allclose(routed.cv_results_["split0_test_score"][-1], expected)
        with pytest.raises(UnsetMetadataPassedError):
            ShapRFECV(forest(), cv=3).fit(X, y, sample_weight=weight)


def test_background_data_loses_columns() -> None:
    X, y = planted()
    selector = ShapRFECV(forest(10), cv=3, explain_params={"data": X[::6]}).fit(X, y)
    assert selector.support_[[1, 4]].all()


class NeverFitted(RandomForestClassifier):
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> NeverFitted:
        raise AssertionError("fitted")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"step": 0}, ValueError, "step"),
        ({"step": 1.5}, ValueError, "step"),
        ({"step": "1"}, TypeError, "step"),
        ({"min_features_to_select": 0}, ValueError, "min_features_to_select"),
        ({"rule": "fewest"}, ValueError, "rule must be one of"),
        ({"scoring": ["accuracy", "f1"]}, ValueError, "scoring must be one score"),
        ({"scoring": "excellence"}, ValueError, "scoring"),
        ({"progress": 1}, TypeError, "progress"),
        ({"n_jobs": "2"}, TypeError, "n_jobs"),
        ({"estimator": FrozenEstimator(NeverFitted())}, ValueError, "frozen"),
        ({"estimator": LogisticRegression()}, UnsupportedModelError, "LogisticRegression"),
    ],
)
def test_refused_before_any_fit(options: dict[str, Any], error: type[Exception], message: str) -> None:
    X, y = planted()
    with pytest.raises(error, match=message):
        ShapRFECV(**({"estimator": NeverFitted()} | options)).fit(X, y > 100)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.UndefinedMetricWarning")
def test_scores_that_are_not_finite() -> None:
    X, y = planted()
    label = np.sort(y > 100)
    with pytest.raises(ValueError, match=r"the score of split \d is nan"):
        ShapRFECV(forest_classifier(), cv=[(np.arange(0, 120, 2), [1, 3])], scoring="roc_auc").fit(X, label)
