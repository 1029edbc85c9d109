"""shap_importance against a loop, and the form of its result against permutation_importance's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.families import forest, forest_classifier
from helpers.importances import cross_validated_importance
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_iris
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import NotFittedError
from sklearn.inspection import permutation_importance
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold, KFold, RepeatedKFold, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skshapgpu import ShapSelector, ShapTransformer, TreeExplainer, UnsupportedModelError, shap_importance

IRIS, SPECIES = load_iris(return_X_y=True)
DIABETES, PROGRESSION = load_diabetes(return_X_y=True)

AGGREGATIONS = {
    "mean_abs": lambda values: np.mean(np.abs(values), axis=0),
    "rms": lambda values: np.sqrt(np.mean(values**2, axis=0)),
    "max_abs": lambda values: np.max(np.abs(values), axis=0),
}


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_of_a_fitted_model(aggregation: str) -> None:
    aggregate = AGGREGATIONS[aggregation]
    model = forest().fit(DIABETES, PROGRESSION)
    values = TreeExplainer(model).shap_values(DIABETES)
    result = shap_importance(model, DIABETES, aggregation=aggregation, n_parts=4)
    expected = np.stack([aggregate(values[part::4]) for part in range(4)], axis=1)
    np.testing.assert_allclose(result.importances, expected)
    np.testing.assert_allclose(result.importances_mean, aggregate(values))
    np.testing.assert_allclose(result.importances_std, expected.std(axis=1))
    assert result.feature_names == tuple(f"x{i}" for i in range(10)) and result.output_names is None


def test_form_is_that_of_permutation_importance() -> None:
    model = forest().fit(DIABETES, PROGRESSION)
    theirs = permutation_importance(model, DIABETES, PROGRESSION, n_repeats=5, random_state=0)
    ours = shap_importance(model, DIABETES)
    for name in theirs:
        assert ours[name].shape == theirs[name].shape and ours[name].dtype == theirs[name].dtype
    explanation = TreeExplainer(model).explain(DIABETES)
    np.testing.assert_allclose(ours.importances_mean, explanation.importance())
    assert ours.importances_mean.argmax() == theirs.importances_mean.argmax()


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_outputs(aggregation: str) -> None:
    aggregate = AGGREGATIONS[aggregation]
    labels = np.array(["a", "b", "c"])[SPECIES]
    model = forest_classifier().fit(IRIS, labels)
    values = TreeExplainer(model).shap_values(IRIS)
    each = shap_importance(model, IRIS, aggregation=aggregation, per_output=True)
    assert each.importances.shape == (4, 5, 3) and each.output_names == ("a", "b", "c")
    np.testing.assert_allclose(each.importances_mean, aggregate(values))
    np.testing.assert_allclose(each.importances_std, each.importances.std(axis=1))
    together = shap_importance(model, IRIS, aggregation=aggregation)
    np.testing.assert_allclose(together.importances, each.importances.sum(axis=2))
    np.testing.assert_allclose(together.importances_mean, each.importances_mean.sum(axis=1))


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("per_output", [False, True])
def test_of_splits(aggregation: str, per_output: bool) -> None:
    cv = StratifiedKFold(3)
    importances_of_splits = np.stack(
        [
            AGGREGATIONS[aggregation](
                TreeExplainer(forest_classifier().fit(IRIS[train], SPECIES[train])).shap_values(IRIS[test])
            )
            for train, test in cv.split(IRIS, SPECIES)
        ],
        axis=1,
    )
    if not per_output:
        importances_of_splits = importances_of_splits.sum(axis=2)
    options = {"aggregation": aggregation, "per_output": per_output}
    result = cross_validated_importance(forest_classifier(), IRIS, SPECIES, cv=3, **options)
    np.testing.assert_allclose(result.importances, importances_of_splits)
    np.testing.assert_allclose(result.importances_mean, importances_of_splits.mean(axis=1))
    np.testing.assert_allclose(result.importances_std, importances_of_splits.std(axis=1))


def test_repeated_splits_groups_and_weights() -> None:
    cv = RepeatedKFold(n_splits=2, n_repeats=3, random_state=0)
    assert cross_validated_importance(forest(), DIABETES, PROGRESSION, cv=cv).importances.shape == (10, 6)
    groups = np.arange(len(DIABETES)) // 7 % 5
    weight = 1.0 + 9 * (PROGRESSION > 150)
    importances_of_splits = []
    for train, test in GroupKFold(3).split(DIABETES, groups=groups):
        model = forest().fit(DIABETES[train], PROGRESSION[train], sample_weight=weight[train])
        importances_of_splits.append(
            AGGREGATIONS["mean_abs"](TreeExplainer(model).shap_values(DIABETES[test]))
        )
    result = cross_validated_importance(
        forest(),
        DIABETES,
        PROGRESSION,
        cv=GroupKFold(3),
        groups=groups,
        params={"sample_weight": weight},
        n_jobs=2,
    )
    np.testing.assert_allclose(result.importances, np.transpose(importances_of_splits))


def test_missing_classes() -> None:
    """A split that lacks a class has no importances for it, or none at all if margins are incomparable."""
    order = np.argsort(SPECIES, kind="stable")
    X, y = IRIS[order], SPECIES[order]
    result = cross_validated_importance(forest_classifier(), X, y, cv=KFold(3), per_output=True)
    missing = np.isnan(result.importances)
    for split in range(3):
        assert missing[:, split].all(axis=0).tolist() == [label == split for label in range(3)]
    assert np.isfinite(result.importances_mean).all()
    # Each class is missing in one of three splits, so that its importance is the mean over the two others.
    over_classes = cross_validated_importance(forest_classifier(), X, y, cv=KFold(3))
    assert np.isnan(over_classes.importances).all()
    expected = np.nanmean(result.importances, axis=1).sum(axis=1)
    np.testing.assert_allclose(over_classes.importances_mean, expected)
    never = [(np.arange(100), np.arange(100, 150))]  # the third class is in no training rows
    for call in (
        lambda: cross_validated_importance(forest_classifier(), X, y, cv=never),
        lambda: ShapSelector(forest_classifier(), cv=never).fit(X, y),
    ):
        with pytest.warns(UserWarning), pytest.raises(ValueError, match="a class is in the training rows of"):
            call()
    splits = [(np.arange(100), np.arange(100, 150)), (np.arange(0, 150, 2), np.arange(1, 150, 2))]
    model = HistGradientBoostingClassifier(max_iter=3)
    with pytest.warns(UserWarning, match="split 0 are not explained"):
        result = cross_validated_importance(model, X, y, cv=splits)
    train, test = splits[1]
    values = TreeExplainer(clone(model).fit(X[train], y[train])).shap_values(X[test])
    assert np.isnan(result.importances[:, 0]).all()
    np.testing.assert_allclose(result.importances_mean, np.abs(values).mean(axis=0).sum(axis=1))
    with pytest.warns(UserWarning), pytest.raises(ValueError, match="no split could be explained"):
        cross_validated_importance(model, X, y, cv=[splits[0], (np.arange(50, 150), np.arange(50))])


def test_pipelines_and_options() -> None:
    pytest.importorskip("pandas")
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    pipeline = make_pipeline(StandardScaler(), forest()).fit(X, y)
    result = shap_importance(pipeline, X, explain_params={"data": X.iloc[::20], "precision": "double"})
    expected = TreeExplainer(pipeline, X.iloc[::20], precision="double").explain(X)
    assert result.feature_names == tuple(X.columns)
    np.testing.assert_allclose(result.importances_mean, expected.importance())
    transformer = ShapTransformer(forest(), data=DIABETES[::20]).fit(DIABETES, PROGRESSION)
    result = shap_importance(transformer, DIABETES)
    np.testing.assert_allclose(result.importances_mean, transformer.explain(DIABETES).importance())


@pytest.mark.usefixtures("on_cpu")
def test_losses() -> None:
    y = (SPECIES == 1).astype(int)
    model = HistGradientBoostingClassifier(max_iter=3).fit(IRIS, y)
    options: dict[str, Any] = {"data": IRIS[::10], "model_output": "log_loss"}
    expected = np.abs(TreeExplainer(model, **options).shap_values(IRIS, y)).mean(axis=0)
    np.testing.assert_allclose(
        shap_importance(model, IRIS, y, explain_params=options).importances_mean, expected
    )


def test_refusals() -> None:
    model = forest().fit(DIABETES, PROGRESSION)
    for options, error, message in (
        ({"aggregation": "median"}, ValueError, "aggregation must be one of"),
        ({"n_parts": 0}, ValueError, "n_parts"),
        ({"n_parts": 2.5}, TypeError, "n_parts"),
        ({"n_parts": 443}, ValueError, "X has 442 rows, fewer than n_parts=443"),
    ):
        with pytest.raises(error, match=message):
            shap_importance(model, DIABETES, **options)
    with pytest.raises(NotFittedError):
        shap_importance(forest(), DIABETES)
    with pytest.raises(UnsupportedModelError):
        cross_validated_importance(LogisticRegression(), IRIS, SPECIES, cv=3)
    with pytest.raises(ValueError, match="NaN"):  # of y, where the model is fitted
        cross_validated_importance(forest(), DIABETES, np.full(442, np.nan), cv=3)
