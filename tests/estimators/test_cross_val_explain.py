"""cross_val_explain against a loop over the splits, and its fits and scores against cross_validate's."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import sklearn
from helpers.families import forest, forest_classifier
from helpers.tables import diabetes_frame
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_diabetes, load_iris
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    IsolationForest,
)
from sklearn.exceptions import FitFailedWarning, NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    RepeatedKFold,
    ShuffleSplit,
    StratifiedKFold,
    cross_val_predict,
    cross_validate,
)
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeRegressor

from skshapgpu import ShapTransformer, TreeExplainer, UnsupportedModelError, cross_val_explain, explain

IRIS, SPECIES = load_iris(return_X_y=True)
DIABETES, PROGRESSION = load_diabetes(return_X_y=True)


def by_hand(
    model: Any, X: np.ndarray, y: np.ndarray, splits: Sequence[tuple[np.ndarray, np.ndarray]], **options: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Compute the mean out-of-fold values and base values of each row; NaN for rows that are never tested."""
    values: list[list[np.ndarray]] = [[] for _ in X]
    base_values: list[list[Any]] = [[] for _ in X]
    for train, test in splits:
        explainer = TreeExplainer(clone(model).fit(X[train], y[train]), **options)
        for row, row_values in zip(test, explainer.shap_values(X[test])):
            values[row].append(row_values)
            base_values[row].append(explainer.expected_value)
    shape = next(row_values[0].shape for row_values in values if row_values)
    nothing, no_base = np.full(shape, np.nan), np.full(shape[1:], np.nan)
    return (
        np.array([np.mean(row_values, axis=0) if row_values else nothing for row_values in values]),
        np.array([np.mean(row_values, axis=0) if row_values else no_base for row_values in base_values]),
    )


# Results of cross_validate


@pytest.mark.parametrize("scoring", [None, "r2", ["r2", "neg_mean_squared_error"]])
def test_scores_are_those_of_cross_validate(scoring: Any) -> None:
    cv = KFold(3, shuffle=True, random_state=1)
    ours = cross_val_explain(forest(), DIABETES, PROGRESSION, cv=cv, scoring=scoring)
    theirs = cross_validate(forest(), DIABETES, PROGRESSION, cv=cv, scoring=scoring)
    assert set(theirs) <= set(ours)
    for name in theirs:
        if name.startswith("test_"):
            np.testing.assert_array_equal(ours[name], theirs[name])
    assert set(ours) - set(theirs) == {
        "explanation",
        "values_std",
        "base_values",
        "fold",
        "n_tests",
        "importances",
        "explain_time",
    }
    assert ours["explain_time"].shape == (3,) and (ours["explain_time"] > 0).all()


class CountingRegressor(DecisionTreeRegressor):
    """Regressor that counts its fits."""

    n_fits = 0

    def fit(self, X: Any, y: Any, sample_weight: Any = None, check_input: bool = True) -> CountingRegressor:
        type(self).n_fits += 1
        return super().fit(X, y, sample_weight, check_input)


def test_number_of_fits_is_that_of_cross_validate() -> None:
    CountingRegressor.n_fits = 0
    cross_validate(CountingRegressor(max_depth=3), DIABETES, PROGRESSION, cv=4)
    assert CountingRegressor.n_fits == 4
    cross_val_explain(CountingRegressor(max_depth=3), DIABETES, PROGRESSION, cv=4)
    assert CountingRegressor.n_fits == 8


class CountingScaler(StandardScaler):
    """Scaler that counts calls with more rows than the comparison with the model's prediction takes."""

    n_calls = 0

    def transform(self, X: Any, copy: bool | None = None) -> Any:
        type(self).n_calls += len(X) > 16
        return super().transform(X, copy)


def test_rows_that_a_pipeline_makes_for_scores_are_not_made_again() -> None:
    def users_own(estimator: Any, X: Any, y: Any) -> float:
        return float(estimator["scale"].mean_[0] + X[0, 0])  # uses more than predictions

    model = Pipeline([("scale", CountingScaler()), ("forest", forest())])
    arrays = []
    for scoring, n_again in ((None, 0), ("r2", 0), (["r2"], 3), (users_own, 3)):
        CountingScaler.n_calls = 0
        theirs = cross_validate(model, DIABETES, PROGRESSION, cv=KFold(3), scoring=scoring)
        n_calls, CountingScaler.n_calls = CountingScaler.n_calls, 0
        ours = cross_val_explain(model, DIABETES, PROGRESSION, cv=KFold(3), scoring=scoring)
        assert CountingScaler.n_calls == n_calls + n_again
        name = "test_r2" if scoring == ["r2"] else "test_score"
        np.testing.assert_array_equal(ours[name], theirs[name])
        arrays.append((ours["explanation"].values, ours["explanation"].data))
    for values, data in arrays[1:]:
        np.testing.assert_array_equal(values, arrays[0][0])
        np.testing.assert_array_equal(data, arrays[0][1])


def test_models_and_indices_are_returned_if_asked_for() -> None:
    cv = KFold(3, shuffle=True, random_state=1)
    options = {"return_estimator": True, "return_indices": True}
    results = cross_val_explain(forest(), DIABETES, PROGRESSION, cv=cv, **options)
    for (_, test), ours, model in zip(
        cv.split(DIABETES), results["indices"]["test"], results["estimator"], strict=True
    ):
        np.testing.assert_array_equal(ours, test)
        np.testing.assert_array_equal(
            results["explanation"].values[test], TreeExplainer(model).shap_values(DIABETES[test])
        )
    without = cross_val_explain(forest(), DIABETES, PROGRESSION, cv=cv)
    assert "estimator" not in without and "indices" not in without


def test_parameters_of_fit_and_groups() -> None:
    groups = np.arange(len(DIABETES)) // 7 % 5
    weight = 1.0 + (PROGRESSION > 150)
    common = {"cv": GroupKFold(3), "groups": groups, "params": {"sample_weight": weight}}
    ours = cross_val_explain(forest(), DIABETES, PROGRESSION, **common)
    theirs = cross_validate(forest(), DIABETES, PROGRESSION, **common, return_estimator=True)
    np.testing.assert_array_equal(ours["test_score"], theirs["test_score"])
    for number, model in enumerate(theirs["estimator"]):
        test = np.flatnonzero(ours["fold"] == number)
        assert not set(groups[test]) & set(groups[ours["fold"] != number])
        np.testing.assert_array_equal(
            ours["explanation"].values[test], TreeExplainer(model).shap_values(DIABETES[test])
        )


def test_metadata_routing() -> None:
    groups = np.arange(len(DIABETES)) // 7 % 5
    weight = 1.0 + (PROGRESSION > 150)
    with sklearn.config_context(enable_metadata_routing=True):
        model = forest().set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        params = {"sample_weight": weight, "groups": groups}
        ours = cross_val_explain(model, DIABETES, PROGRESSION, cv=GroupKFold(3), params=params)
        theirs = cross_validate(model, DIABETES, PROGRESSION, cv=GroupKFold(3), params=params)
        with pytest.raises(ValueError, match="groups"):
            cross_val_explain(model, DIABETES, PROGRESSION, cv=GroupKFold(3), groups=groups)
    np.testing.assert_array_equal(ours["test_score"], theirs["test_score"])
    unweighted = cross_val_explain(forest(), DIABETES, PROGRESSION, cv=GroupKFold(3), groups=groups)
    assert (ours["test_score"] != unweighted["test_score"]).all()


def test_jobs_change_nothing() -> None:
    one = cross_val_explain(forest_classifier(), IRIS, SPECIES, cv=3)
    two = cross_val_explain(forest_classifier(), IRIS, SPECIES, cv=3, n_jobs=2)
    np.testing.assert_array_equal(one["explanation"].values, two["explanation"].values)
    np.testing.assert_array_equal(one["test_score"], two["test_score"])
    np.testing.assert_array_equal(one["importances"], two["importances"])


# Values


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_values_are_those_of_a_loop(dtype: type) -> None:
    X = DIABETES.astype(dtype)
    cv = KFold(4, shuffle=True, random_state=0)
    splits = list(cv.split(X))
    results = cross_val_explain(forest(), X, PROGRESSION, cv=cv)
    explanation = results["explanation"]
    values, base_values = by_hand(forest(), X, PROGRESSION, splits)
    assert explanation.values.dtype == dtype
    np.testing.assert_array_equal(explanation.values, values)
    np.testing.assert_array_equal(explanation.base_values, base_values)
    assert explanation.data is X
    for number, (_, test) in enumerate(splits):
        assert (results["fold"][test] == number).all()
        assert (explanation.base_values[test] == results["base_values"][number]).all()
        part = explanation[test]
        np.testing.assert_array_equal(part.base_values, base_values[test])
        np.testing.assert_array_equal(results["importances"][number], part.importance())
    np.testing.assert_array_equal(results["n_tests"], 1)


def test_values_add_up_to_the_out_of_fold_predictions() -> None:
    explanation = cross_val_explain(forest(), DIABETES, PROGRESSION, cv=4)["explanation"]
    predicted = cross_val_predict(forest(), DIABETES, PROGRESSION, cv=4)
    # Both sides add up a few dozen numbers of about 150, at worst in single precision.
    np.testing.assert_allclose(explanation.base_values + explanation.values.sum(axis=1), predicted, rtol=1e-5)
    assert explanation.additivity_error < 1e-2


def test_several_classes() -> None:
    splits = list(StratifiedKFold(3).split(IRIS, SPECIES))
    labels = np.array(["setosa", "versicolor", "virginica"])[SPECIES]
    results = cross_val_explain(forest_classifier(), IRIS, labels, cv=3)
    values, base_values = by_hand(forest_classifier(), IRIS, labels, splits)
    explanation = results["explanation"]
    np.testing.assert_array_equal(explanation.values, values)
    np.testing.assert_array_equal(explanation.base_values, base_values)
    assert explanation.output_names == ("setosa", "versicolor", "virginica")
    assert results["base_values"].shape == (3, 3)
    one = explanation[10:20, ["x1", "x3"], "versicolor"]
    np.testing.assert_array_equal(one.values, values[10:20, [1, 3], 1])
    np.testing.assert_array_equal(one.base_values, base_values[10:20, 1])
    np.testing.assert_array_equal(explanation[:, :, [2, 0]].base_values, base_values[:, [2, 0]])
    for number, (_, test) in enumerate(splits):
        np.testing.assert_allclose(
            results["importances"][number], np.abs(values[test]).mean(axis=0).sum(axis=1)
        )


@pytest.mark.parametrize("several", [False, True])
def test_plots_of_shap_get_the_base_value_of_each_row(several: bool) -> None:
    pytest.importorskip("shap")
    y = SPECIES if several else (SPECIES == 1).astype(int)
    explanation = cross_val_explain(forest_classifier(), IRIS, y, cv=3)["explanation"]
    theirs = explanation.to_shap()
    np.testing.assert_array_equal(theirs.base_values, explanation.base_values)
    np.testing.assert_array_equal(theirs.values, explanation.values)
    one = explanation[3:5]
    base_value = one.base_values.mean(axis=0) if several else one.base_values.mean()
    shown = ", ".join(f"{value:.6g}" for value in np.atleast_1d(base_value))
    assert f"base value: {shown} on average" in repr(one)


def test_repeated_cross_validation_is_averaged() -> None:
    cv = RepeatedKFold(n_splits=3, n_repeats=2, random_state=0)
    splits = list(cv.split(DIABETES))
    results = cross_val_explain(forest(), DIABETES, PROGRESSION, cv=cv)
    values, base_values = by_hand(forest(), DIABETES, PROGRESSION, splits)
    np.testing.assert_allclose(results["explanation"].values, values, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(results["explanation"].base_values, base_values, rtol=1e-14)
    np.testing.assert_array_equal(results["n_tests"], 2)
    assert results["fold"].shape == (442, 2)
    assert results["importances"].shape == (6, 10)
    for row in (0, 100, 441):
        tested_in = [number for number, (_, test) in enumerate(splits) if row in test]
        assert results["fold"][row].tolist() == tested_in


def test_rows_that_are_never_tested_are_nan_and_counted() -> None:
    cv = ShuffleSplit(2, test_size=0.3, random_state=0)
    splits = list(cv.split(DIABETES))
    results = cross_val_explain(forest(), DIABETES, PROGRESSION, cv=cv)
    values, base_values = by_hand(forest(), DIABETES, PROGRESSION, splits)
    explanation = results["explanation"]
    np.testing.assert_allclose(explanation.values, values, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(explanation.base_values, base_values, rtol=1e-14)
    times = np.bincount(np.concatenate([test for _, test in splits]), minlength=442)
    assert set(times) == {0, 1, 2}
    np.testing.assert_array_equal(results["n_tests"], times)
    np.testing.assert_array_equal((results["fold"] >= 0).sum(axis=1), times)
    np.testing.assert_array_equal(np.isnan(explanation.values).all(axis=1), times == 0)
    np.testing.assert_allclose(explanation.importance(), np.nanmean(np.abs(values), axis=0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "nan" not in repr(explanation) and "nan" not in explanation._repr_html_()
        assert np.isnan(explanation[times == 0].importance()).all()
        assert "base value: one for each row" in repr(explanation[times == 0])
    frame = pytest.importorskip("pandas") and explanation.to_frame()
    assert frame.isna().any(axis=1).sum() == (times == 0).sum()


def test_one_part_of_the_rows() -> None:
    train, test = np.arange(300), np.arange(300, 442)
    results = cross_val_explain(forest(), DIABETES, PROGRESSION, cv=[(train, test)])
    np.testing.assert_array_equal(results["fold"], np.repeat([-1, 0], [300, 142]))
    model = forest().fit(DIABETES[train], PROGRESSION[train])
    np.testing.assert_array_equal(
        results["explanation"].values[test], TreeExplainer(model).shap_values(DIABETES[test])
    )


# Failures


class FailingRegressor(DecisionTreeRegressor):
    """Regressor that fails if its first training row is DIABETES's first; with ``late``, after fitting."""

    def __init__(self, late: bool = False, max_depth: int | None = 3) -> None:
        super().__init__(max_depth=max_depth)
        self.late = late

    def fit(self, X: Any, y: Any, sample_weight: Any = None, check_input: bool = True) -> FailingRegressor:
        if self.late:
            super().fit(X, y, sample_weight, check_input)
        if X[0, 0] == DIABETES[0, 0]:
            raise ValueError("this data is refused")
        return super().fit(X, y, sample_weight, check_input)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("error_score", [np.nan, -1.0])
@pytest.mark.parametrize("scoring", [None, ["r2", "neg_mean_squared_error"]])
def test_failed_fits(late: bool, error_score: float, scoring: Any) -> None:
    options = {"cv": KFold(2), "error_score": error_score, "scoring": scoring, "return_estimator": True}
    with pytest.warns(FitFailedWarning):
        results = cross_val_explain(FailingRegressor(late), DIABETES, PROGRESSION, **options)
    failed = results["fold"] == 1
    np.testing.assert_array_equal(np.isnan(results["explanation"].values).all(axis=1), failed)
    np.testing.assert_array_equal(np.isnan(results["explanation"].base_values), failed)
    np.testing.assert_array_equal(results["n_tests"], ~failed)
    assert np.isnan(results["base_values"]).tolist() == [False, True]
    assert np.isnan(results["importances"]).all(axis=1).tolist() == [False, True]
    assert results["explain_time"][1] == 0
    assert len(results["estimator"]) == 2
    with pytest.raises(ValueError, match="this data is refused"):
        cross_val_explain(FailingRegressor(late), DIABETES, PROGRESSION, **options | {"error_score": "raise"})


def test_rows_that_the_model_cannot_predict() -> None:
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"color": rng.choice(["red", "green"], 90), "size": rng.normal(size=90)})
    X.loc[:3, "color"] = "blue"
    model = make_pipeline(
        ColumnTransformer([("one", OneHotEncoder(), ["color"])], remainder="passthrough"), forest()
    )
    expected = "the test rows of split 0 are not explained: Found unknown categ"
    with pytest.warns(UserWarning, match=expected) as caught:
        results = cross_val_explain(model, X, X["size"], cv=KFold(3))
    (warning,) = (warning for warning in caught if str(warning.message).startswith(expected))
    assert warning.filename == __file__
    assert np.isnan(results["test_score"]).tolist() == [True, False, False]
    assert np.isnan(results["explanation"].values[:30]).all()
    assert np.isfinite(results["explanation"].values[30:]).all()
    with pytest.raises(ValueError, match="Found unknown categories"):
        cross_val_explain(model, X, X["size"], cv=KFold(3), error_score="raise")


def test_refused_before_any_fit() -> None:
    CountingRegressor.n_fits = 0
    for options, error, message in (
        ({"precision": "half"}, ValueError, "precision must be one of"),
        ({"nonsense": 1}, TypeError, "nonsense"),
        ({"feature_perturbation": "interventional"}, ValueError, "data"),
        ({"memory_limit": "many"}, ValueError, "memory_limit"),
    ):
        with pytest.raises(error, match=message):
            cross_val_explain(CountingRegressor(), DIABETES, PROGRESSION, explain_params=options)
    assert CountingRegressor.n_fits == 0
    with pytest.raises(UnsupportedModelError, match="LogisticRegression"):
        cross_val_explain(make_pipeline(StandardScaler(), LogisticRegression()), IRIS, SPECIES)
    with pytest.raises(UnsupportedModelError, match="LogisticRegression"):
        cross_val_explain(
            GridSearchCV(make_pipeline(StandardScaler(), ShapTransformer(LogisticRegression())), {}),
            IRIS,
            SPECIES,
        )


def test_error_names_the_split() -> None:
    splits = [(np.arange(200), np.arange(200, 442)), (np.arange(200, 442), np.arange(200))]
    with pytest.raises(ValueError) as error:
        cross_val_explain(
            forest(), DIABETES, PROGRESSION, cv=splits, explain_params={"data": DIABETES[:, :3]}
        )
    assert "The error is about split 0 of the cross-validation." in error.value.__notes__


# Options


def test_options_of_the_explainer() -> None:
    splits = list(KFold(3).split(DIABETES))
    options = {"data": DIABETES[::20], "precision": "double"}
    explanation = cross_val_explain(forest(), DIABETES, PROGRESSION, cv=splits, explain_params=options)[
        "explanation"
    ]
    values, base_values = by_hand(forest(), DIABETES, PROGRESSION, splits, **options)
    np.testing.assert_array_equal(explanation.values, values)
    np.testing.assert_array_equal(explanation.base_values, base_values)
    assert explanation.feature_perturbation == "interventional" and explanation.precision == "double"


@pytest.mark.usefixtures("on_cpu")
def test_losses() -> None:
    y = (SPECIES == 1).astype(int)
    data = IRIS[::10]
    splits = list(StratifiedKFold(3).split(IRIS, y))
    results = cross_val_explain(
        HistGradientBoostingClassifier(max_iter=3),
        IRIS,
        y,
        cv=splits,
        explain_params={"data": data, "model_output": "log_loss"},
    )
    explanation = results["explanation"]
    assert explanation.model_output == "log_loss"
    for number, (train, test) in enumerate(splits):
        model = HistGradientBoostingClassifier(max_iter=3).fit(IRIS[train], y[train])
        expected = TreeExplainer(model, data, model_output="log_loss").explain(IRIS[test], y[test])
        np.testing.assert_array_equal(explanation.values[test], expected.values)
        np.testing.assert_array_equal(explanation.base_values[test], expected.base_values)
        np.testing.assert_allclose(results["base_values"][number], expected.base_values.mean())


def test_both_outputs_of_two_classes() -> None:
    y = (SPECIES == 1).astype(int)
    explanation = cross_val_explain(forest_classifier(), IRIS, y, cv=3, explain_params={"outputs": "all"})[
        "explanation"
    ]
    assert explanation.values.shape == (150, 4, 2) and explanation.output_names == (0, 1)
    np.testing.assert_allclose(explanation.base_values.sum(axis=1), 1)


def test_transformer_brings_its_options() -> None:
    splits = list(KFold(3).split(DIABETES))
    data = DIABETES[::20]
    for own, asked, expected in (
        ({"data": data, "precision": "double"}, None, {"data": data, "precision": "double"}),
        ({"data": data, "precision": "double"}, {"precision": "single"}, {"data": data}),
        ({}, {"data": data}, {"data": data}),
    ):
        results = cross_val_explain(
            ShapTransformer(forest(), **own), DIABETES, PROGRESSION, cv=splits, explain_params=asked
        )
        values, base_values = by_hand(forest(), DIABETES, PROGRESSION, splits, **expected)
        np.testing.assert_array_equal(results["explanation"].values, values)
        np.testing.assert_array_equal(results["explanation"].base_values, base_values)
    pipeline = make_pipeline(StandardScaler(), ShapTransformer(forest_classifier(), outputs="all"))
    y = (PROGRESSION > 150).astype(int)
    assert cross_val_explain(pipeline, DIABETES, y, cv=3)["explanation"].shape == (442, 10, 2)
    pipeline = make_pipeline(StandardScaler(), ShapTransformer(forest(), data=data))
    with pytest.raises(ValueError, match="explain_params="):
        cross_val_explain(pipeline, DIABETES, PROGRESSION)
    # ShapTransformer as a step: the model after it is explained in terms of SHAP values.
    stacked = make_pipeline(ShapTransformer(forest_classifier()), forest_classifier())
    assert cross_val_explain(stacked, IRIS, SPECIES, cv=3)["explanation"].feature_names[0] == "x0__0"


# Kinds of models


def test_transformer_stands_for_its_model() -> None:
    transformer = ShapTransformer(forest()).fit(DIABETES, PROGRESSION)
    values = transformer.transform(DIABETES)
    for model in (transformer, make_pipeline(transformer), FrozenEstimator(transformer)):
        np.testing.assert_array_equal(explain(model, DIABETES).values, values)
    with pytest.raises(NotFittedError, match="ShapTransformer"):
        TreeExplainer(ShapTransformer(forest()))


def test_search() -> None:
    search = GridSearchCV(
        make_pipeline(StandardScaler(), forest()), {"randomforestregressor__max_depth": [1, 3]}, cv=2
    )
    results = cross_val_explain(search, DIABETES, PROGRESSION, cv=3, return_estimator=True)
    for number, model in enumerate(results["estimator"]):
        test = results["fold"] == number
        np.testing.assert_array_equal(
            results["explanation"].values[test], TreeExplainer(model).shap_values(DIABETES[test])
        )


def test_frozen_model() -> None:
    model = FrozenEstimator(forest().fit(DIABETES, PROGRESSION))
    explanation = cross_val_explain(model, DIABETES, PROGRESSION, cv=3)["explanation"]
    np.testing.assert_array_equal(explanation.values, TreeExplainer(model).shap_values(DIABETES))


def test_outlier_detector() -> None:
    model = IsolationForest(n_estimators=5, random_state=0)
    results = cross_val_explain(model, DIABETES, cv=3, scoring=lambda model, X, y=None: 0.0)
    test = results["fold"] == 0
    explainer = TreeExplainer(clone(model).fit(DIABETES[~test]))
    np.testing.assert_array_equal(results["explanation"].values[test], explainer.shap_values(DIABETES[test]))


@pytest.mark.parametrize("library", ["xgboost", "lightgbm", "catboost"])
@pytest.mark.parametrize("several", [False, True])
def test_models_of_other_libraries(library: str, several: bool) -> None:
    module = pytest.importorskip(library)
    model = {
        "xgboost": lambda: module.XGBClassifier(n_estimators=3, n_jobs=1),
        "lightgbm": lambda: module.LGBMClassifier(n_estimators=3, verbose=-1, n_jobs=1),
        "catboost": lambda: module.CatBoostClassifier(
            iterations=3, verbose=False, allow_writing_files=False, thread_count=1
        ),
    }[library]()
    X, y = diabetes_frame(labelled=True)
    y = np.digitize(y, [100, 200] if several else [150])
    results = cross_val_explain(model, X, y, cv=3, return_estimator=True)
    explanation = results["explanation"]
    assert explanation.shape == ((442, 10, 3) if several else (442, 10))
    assert explanation.row_labels is X.index and explanation.feature_names == tuple(X.columns)
    for number, model in enumerate(results["estimator"]):
        test = np.flatnonzero(results["fold"] == number)
        expected = TreeExplainer(model).explain(X.iloc[test])
        np.testing.assert_array_equal(explanation.values[test], expected.values)
        np.testing.assert_array_equal(results["base_values"][number], expected.base_values)
