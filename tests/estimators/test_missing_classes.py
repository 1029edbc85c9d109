"""cross_val_explain if the training rows of a split lack a class: alignment and warnings."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from helpers.families import forest_classifier
from helpers.importances import cross_validated_importance
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestRegressor
from sklearn.model_selection import KFold
from sklearn.semi_supervised import SelfTrainingClassifier

from skshapgpu import ShapTransformer, TreeExplainer, cross_val_explain

IRIS, SPECIES = load_iris(return_X_y=True)

#: Labels in another order than the classes of IRIS; numbers among them are not positions.
NAMES = np.array(["zebra", "ant", "mole"])[SPECIES]
NUMBERS = np.array([70, -3, 5])[SPECIES]
BOTH = np.arange(0, 150, 2), np.arange(1, 150, 2)


def boosting() -> HistGradientBoostingClassifier:
    return HistGradientBoostingClassifier(max_iter=3)


def without(label: Any, y: np.ndarray, every: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Return a split whose training rows lack a class."""
    train = np.flatnonzero((y != label) & (np.arange(len(y)) % every == 0))
    return train, np.setdiff1d(np.arange(len(y)), train)


def expect(split: int, label: Any) -> str:
    return (
        f"training rows of split {split} have none of class {label!r}: the values of its test rows are NaN "
        "for that class"
    )


@pytest.mark.parametrize("y", [NAMES, NUMBERS], ids=["names", "numbers"])
@pytest.mark.parametrize("missing", [0, 1, 2])
def test_probabilities_of_two_of_three_classes(y: np.ndarray, missing: int) -> None:
    order = tuple(np.unique(y).tolist())
    label = order[missing]
    splits = [without(label, y), BOTH]
    with pytest.warns(UserWarning, match=expect(0, label)) as caught:
        results = cross_val_explain(forest_classifier(), IRIS, y, cv=splits, return_estimator=True)
    assert len(caught) == 1 and caught[0].filename == __file__
    explanation, tested = results["explanation"], np.setdiff1d(splits[0][1], BOTH[1])
    assert explanation.output_names == order
    model = results["estimator"][0]
    known = [order.index(known) for known in model.classes_.tolist()]
    assert missing not in known
    total = explanation.base_values[tested] + explanation.values[tested].sum(axis=1)
    # Sums of a few numbers below 1, in single precision.
    np.testing.assert_allclose(total[:, known], model.predict_proba(IRIS[tested]), atol=1e-6)
    assert np.isnan(total[:, missing]).all()
    both = np.intersect1d(splits[0][1], BOTH[1])
    probabilities = results["estimator"][1].predict_proba(IRIS[both])
    total = explanation.base_values[both] + explanation.values[both].sum(axis=1)
    np.testing.assert_allclose(total[:, missing], probabilities[:, missing], atol=1e-6)
    mean = (probabilities[:, known] + model.predict_proba(IRIS[both])) / 2
    np.testing.assert_allclose(total[:, known], mean, atol=1e-6)
    assert np.isnan(results["base_values"]).tolist() == [[i == missing for i in range(3)], [False] * 3]
    assert np.isnan(results["importances"]).all(axis=1).tolist() == [True, False]
    assert np.isfinite(results["importances"][1]).all()


@pytest.mark.parametrize(
    "labels", [(7, 2, 30, 11), ("pear", "fig", "lime", "date")], ids=["numbers", "names"]
)
def test_margins_of_three_of_four_classes(labels: tuple[Any, ...]) -> None:
    rng = np.random.default_rng(0)
    kind = np.repeat([0, 1, 2, 3], [60, 60, 60, 20])[rng.permutation(200)]
    X, y = rng.normal(size=(200, 3)) + kind[:, np.newaxis], np.array(labels)[kind]
    order = tuple(np.unique(y).tolist())
    for model in (forest_classifier(), boosting()):
        for label in order:
            splits = [without(label, y), (without(label, y)[1], without(label, y)[0])]
            with pytest.warns(UserWarning, match=expect(0, label)):
                results = cross_val_explain(model, X, y, cv=splits)
            explanation = results["explanation"]
            assert explanation.output_names == order
            for train, rows in splits:
                fitted = clone(model).fit(X[train], y[train])
                explainer = TreeExplainer(fitted)
                known = [order.index(known) for known in fitted.classes_.tolist()]
                values, base_values = explanation.values[rows], explanation.base_values[rows]
                np.testing.assert_array_equal(values[..., known], explainer.shap_values(X[rows]))
                np.testing.assert_array_equal(base_values[:, known][0], explainer.expected_value)
                others = np.setdiff1d(np.arange(4), known)
                assert np.isnan(values[..., others]).all() and np.isnan(base_values[:, others]).all()
            np.testing.assert_array_equal(results["n_tests"], 1)


def test_each_split_lacks_the_class_that_it_is_tested_on() -> None:
    order = np.argsort(SPECIES, kind="stable")
    X, y = IRIS[order], NAMES[order]
    with pytest.warns(UserWarning) as caught:
        results = cross_val_explain(forest_classifier(), X, y, cv=KFold(3))
    assert [str(warning.message).partition(":")[0] for warning in caught] == [
        "the training rows of split 0 have none of class 'zebra'",
        "the training rows of split 1 have none of class 'ant'",
        "the training rows of split 2 have none of class 'mole'",
    ]
    for train, test in KFold(3).split(X):
        model = forest_classifier().fit(X[train], y[train])
        seen = [("ant", "mole", "zebra").index(label) for label in model.classes_]
        values, base_values = results["explanation"].values[test], results["explanation"].base_values[test]
        assert np.isnan(values).any(axis=(0, 1)).sum() == 1
        np.testing.assert_allclose(
            base_values[:, seen] + values[..., seen].sum(axis=1), model.predict_proba(X[test]), atol=1e-6
        )


@pytest.mark.usefixtures("on_cpu")
def test_margins_of_two_of_three_classes_are_of_another_kind() -> None:
    splits = [without("ant", NAMES), BOTH]
    with pytest.warns(
        UserWarning, match="split 0 are not explained: its training rows are of 2 of 3 classes"
    ):
        results = cross_val_explain(boosting(), IRIS, NAMES, cv=splits)
    assert np.isnan(results["base_values"]).all(axis=1).tolist() == [True, False]
    only = np.setdiff1d(splits[0][1], BOTH[1])
    assert np.isnan(results["explanation"].values[only]).all()
    assert np.isfinite(results["explanation"].values[BOTH[1]]).all()
    assert np.isfinite(results["test_score"]).all()
    data = {"data": IRIS[::10], "model_output": "probability"}
    with pytest.warns(
        UserWarning,
        match="split 0 .* by the rescale rule, but probabilities of more classes are explained by their",
    ):
        two = cross_val_explain(boosting(), IRIS, NAMES, cv=splits, explain_params=data)
    assert np.isnan(two["base_values"]).all(axis=1).tolist() == [True, False]
    total = (two["explanation"].base_values + two["explanation"].values.sum(axis=1))[BOTH[1]]
    model = boosting().fit(IRIS[BOTH[0]], NAMES[BOTH[0]])
    np.testing.assert_allclose(total, model.predict_proba(IRIS[BOTH[1]]), rtol=0, atol=1e-6)


@pytest.mark.parametrize("y", [NAMES, NUMBERS], ids=["names", "numbers"])
def test_one_of_two_classes(y: np.ndarray) -> None:
    X, y = IRIS[:100], y[:100]  # 50 rows of a class, then 50 of another
    both = np.arange(0, 100, 2), np.arange(1, 100, 4)
    splits = [(np.arange(40), np.arange(90, 100)), both, (np.arange(60, 100), np.arange(20))]
    for model in (forest_classifier(), boosting()):
        with pytest.warns(UserWarning) as caught:
            results = cross_val_explain(model, X, y, cv=splits)
        assert [str(warning.message) for warning in caught] == [
            f"the test rows of split {i} are not explained: all of its training rows are of class {name!r}"
            for i, name in ((0, y[0].item()), (2, y[-1].item()))
        ]
        assert results["explanation"].output_names is None
        tested = np.isin(np.arange(100), both[1])
        np.testing.assert_array_equal(np.isfinite(results["explanation"].values).all(axis=1), tested)
        np.testing.assert_array_equal(results["n_tests"], tested)
    with pytest.warns(UserWarning), pytest.raises(ValueError, match="no split could be explained"):
        cross_val_explain(forest_classifier(), X, y, cv=[splits[0], splits[2]])


def test_a_class_that_no_split_is_trained_on() -> None:
    split = without("mole", NAMES)
    with pytest.warns(UserWarning, match=expect(0, "mole")):
        results = cross_val_explain(forest_classifier(), IRIS, NAMES, cv=[split])
    explanation = results["explanation"]
    assert explanation.output_names == ("ant", "mole", "zebra")
    assert np.isnan(explanation.values[..., 1]).all()
    model = forest_classifier().fit(IRIS[split[0]], NAMES[split[0]])
    total = explanation.base_values[split[1]] + explanation.values[split[1]].sum(axis=1)
    np.testing.assert_allclose(total[:, [0, 2]], model.predict_proba(IRIS[split[1]]), atol=1e-6)
    with pytest.warns(UserWarning), pytest.raises(ValueError, match="no split could be explained"):
        cross_val_explain(boosting(), IRIS, NAMES, cv=[split])
    with pytest.warns(UserWarning, match=expect(0, "mole")):
        importances = cross_validated_importance(forest_classifier(), IRIS, NAMES, cv=[split, BOTH])
    assert np.isnan(importances.importances).all(axis=0).tolist() == [True, False]
    assert np.isfinite(importances.importances_mean).all()


@pytest.mark.parametrize("kind", ["pandas", "categorical", "list", "column", "polars"])
def test_kinds_of_labels(kind: str) -> None:
    y: Any = NAMES.tolist()
    if kind == "polars":
        y = pytest.importorskip("polars").Series(y)
    elif kind != "list":
        y = pytest.importorskip("pandas").Series(NAMES, dtype="category" if kind == "categorical" else None)
        y = y.to_frame() if kind == "column" else y
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        results = cross_val_explain(forest_classifier(), IRIS, y, cv=[without("zebra", NAMES)])
    about = [str(warning.message) for warning in caught if "none of class" in str(warning.message)]
    assert len(about) == 1 and "'zebra'" in about[0]
    assert results["explanation"].output_names == ("ant", "mole", "zebra")


def test_no_warning_without_a_reason() -> None:
    unlabelled = np.where(np.arange(150) % 3, SPECIES, -1)  # which is no class to a SelfTrainingClassifier
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        results = cross_val_explain(SelfTrainingClassifier(forest_classifier()), IRIS, unlabelled, cv=[BOTH])
        assert results["explanation"].output_names == (0, 1, 2)
        cross_val_explain(forest_classifier(), IRIS, NAMES, cv=3)
        cross_val_explain(ShapTransformer(forest_classifier()), IRIS, NUMBERS, cv=3)
        cross_val_explain(RandomForestRegressor(2), IRIS, SPECIES, cv=KFold(3))


def test_a_regressor_whose_classes_are_an_empty_array() -> None:
    catboost = pytest.importorskip("catboost")
    model = catboost.CatBoostRegressor(iterations=3, verbose=False, allow_writing_files=False, thread_count=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        results = cross_val_explain(
            model, IRIS, SPECIES.astype(float), cv=[BOTH, BOTH[::-1]], return_estimator=True
        )
    assert len(results["estimator"][0].classes_) == 0
    for number, fitted in enumerate(results["estimator"]):
        test = results["fold"] == number
        expected = TreeExplainer(fitted).shap_values(IRIS[test])
        np.testing.assert_array_equal(results["explanation"].values[test], expected)
