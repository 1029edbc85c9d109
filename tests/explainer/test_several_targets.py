"""Classifiers of several targets: an output for each class of each target, as in ``predict_proba``."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.families import values_by_definition
from helpers.importances import cross_validated_importance
from sklearn.base import clone
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier, ExtraTreeClassifier

from skshapgpu import (
    ShapBarDisplay,
    ShapSelector,
    ShapTransformer,
    TreeExplainer,
    cross_val_explain,
    explain,
    explain_interactions,
    reference,
)
from skshapgpu.adapters import adapt

RNG = np.random.default_rng(0)
X = RNG.normal(size=(240, 4)).round(1)
KIND = np.array(["dog", "ant", "cat"])[np.digitize(X[:, 0] + X[:, 1] * (X[:, 2] > 0), [-0.6, 0.8])]
SIZE = np.where(X[:, 3] + X[:, 1] > 0.4, "small", "big")
Y = np.column_stack([KIND, SIZE])
LABELS = (X[:, [0, 3]] + X[:, [1, 1]] > 0.4).astype(int)  # two labels, each 0 or 1
NAMES = ("0_ant", "0_cat", "0_dog", "1_big", "1_small")

MODELS = [
    DecisionTreeClassifier(max_depth=5, random_state=0),
    ExtraTreeClassifier(max_depth=5, random_state=0),
    RandomForestClassifier(7, max_depth=5, random_state=0),
    ExtraTreesClassifier(7, max_depth=5, random_state=0),
]


def forest() -> RandomForestClassifier:
    return RandomForestClassifier(5, max_depth=4, random_state=0)


def own(model: Any, rows: np.ndarray) -> np.ndarray:
    return np.hstack(model.predict_proba(rows))


def by_definition(model: Any, rows: np.ndarray, background: np.ndarray) -> np.ndarray:
    """Compute interventional Shapley values by the model's own ``predict_proba``: (n_rows, n_features, k)."""
    frames = [pytest.importorskip("pandas").DataFrame(X) for X in (rows, background)]
    return values_by_definition(lambda mixed: own(model, mixed.to_numpy()), *frames)


@pytest.mark.parametrize("model", MODELS, ids=lambda m: type(m).__name__)
def test_definition_by_predict_proba(model: Any) -> None:
    model = clone(model).fit(X, Y)
    explainer = TreeExplainer(model, data=X[:9], precision="double")
    explanation = explainer.explain(X[100:106])
    assert explanation.output_names == NAMES and explanation.shape == (6, 4, 5)
    np.testing.assert_allclose(
        explanation.values, by_definition(model, X[100:106], X[:9]), rtol=0, atol=1e-12
    )
    np.testing.assert_allclose(explanation.base_values, own(model, X[:9]).mean(axis=0), rtol=0, atol=1e-12)


@pytest.mark.parametrize("model", MODELS, ids=lambda m: type(m).__name__)
def test_path_dependent_values(model: Any) -> None:
    model = clone(model).fit(X, Y)
    explanation = explain(model, X[:20], precision="double")
    expected, base, _ = reference.path_dependent(adapt(model).ensemble, X[:20])
    np.testing.assert_allclose(explanation.values, expected.swapaxes(1, 2), rtol=0, atol=1e-12)
    np.testing.assert_allclose(explanation.base_values, base, rtol=0, atol=1e-12)
    full_explanation = explain(model, X, precision="double")
    total = full_explanation.base_values + full_explanation.values.sum(axis=1)
    np.testing.assert_allclose(total, own(model, X), rtol=0, atol=1e-12)


def test_each_target_by_itself() -> None:
    """Outputs, their selection, and options; classes of a target add up to the constant 1."""
    model = forest().fit(X, Y)
    explanation = TreeExplainer(model).explain(X)
    for target, labels in enumerate(model.classes_):
        chosen = explanation[..., [f"{target}_{label}" for label in labels]]
        total = chosen.base_values + chosen.values.sum(axis=1)
        np.testing.assert_allclose(total, model.predict_proba(X)[target], rtol=0, atol=1e-6)
        np.testing.assert_allclose(chosen.values.sum(axis=2), 0, atol=1e-6)
    one = explanation[..., "1_small"]
    np.testing.assert_array_equal(one.values, explanation.values[..., 4])
    np.testing.assert_array_equal(TreeExplainer(model, outputs="all").shap_values(X), explanation.values)
    raw, probability = (
        TreeExplainer(model, X[:20], model_output=each).shap_values(X) for each in ("raw", "probability")
    )
    np.testing.assert_array_equal(probability, raw)
    pairs = explain_interactions(model, X[:5])
    np.testing.assert_allclose(pairs.matrices().sum(axis=2), explanation.values[:5], rtol=0, atol=1e-6)
    with pytest.raises(ValueError, match="log-odds: this one adds up probabilities"):
        TreeExplainer(model, data=X, model_output="log_loss")


def test_binary_labels() -> None:
    model = forest().fit(X, LABELS)
    explanation = explain(model, X)
    assert explanation.output_names == ("0_0", "0_1", "1_0", "1_1")
    positive = explanation[..., ["0_1", "1_1"]]
    total = positive.base_values + positive.values.sum(axis=1)
    expected = np.column_stack([of_target[:, 1] for of_target in model.predict_proba(X)])
    np.testing.assert_allclose(total, expected, rtol=0, atol=1e-6)


def test_saved_explainer(tmp_path: Path) -> None:
    explainer = TreeExplainer(forest().fit(X, Y))
    explainer.save(tmp_path / "explainer")
    again = TreeExplainer.load(tmp_path / "explainer")
    assert again.output_names == NAMES
    np.testing.assert_array_equal(again.shap_values(X), explainer.shap_values(X))


def test_displays() -> None:
    pytest.importorskip("matplotlib")
    explanation = explain(forest().fit(X, Y), X)
    display = ShapBarDisplay.from_explanation(explanation, output="0_dog")
    np.testing.assert_allclose(np.sort(display.importances), np.sort(explanation[..., "0_dog"].importance()))


def test_tools_of_scikit_learn() -> None:
    model = make_pipeline(StandardScaler(), forest())
    transformer = ShapTransformer(model).fit(X, Y)
    names = transformer.get_feature_names_out()
    assert list(names[:6]) == [*(f"x0__{name}" for name in NAMES), "x1__0_ant"]
    expected = explain(transformer.estimator_, X).values
    np.testing.assert_array_equal(transformer.transform(X), expected.reshape(len(X), -1))
    assert ShapTransformer(forest(), cv=3).fit_transform(X, Y).shape == (240, 20)
    importances = cross_validated_importance(forest(), X, Y, cv=3, per_output=True)
    assert importances.output_names == NAMES and importances.importances.shape == (4, 3, 5)
    assert ShapSelector(forest(), max_features=2, cv=3).fit(X, Y).get_support().sum() == 2


def test_cross_validation() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        results = cross_val_explain(forest(), X, LABELS, cv=KFold(3), return_estimator=True)
    explanation = results["explanation"]
    total = explanation.base_values + explanation.values.sum(axis=1)
    for number, model in enumerate(results["estimator"]):
        test = results["fold"] == number
        np.testing.assert_allclose(total[test], own(model, X[test]), rtol=0, atol=1e-6)


def test_classes_that_splits_lack() -> None:
    """Outputs are aligned by name: outputs for classes that a model never saw are NaN."""
    rows = np.arange(len(X))
    no_ant = np.flatnonzero((KIND != "ant") & (rows % 2 == 0))
    only_dogs = np.flatnonzero((KIND == "dog") & (rows % 2 == 0))
    no_big = np.flatnonzero((SIZE != "big") & (rows % 2 == 0))
    trains = [no_ant, only_dogs, no_big]
    parts = np.array_split(np.flatnonzero(rows % 2), 3)
    with pytest.warns(UserWarning) as caught:
        results = cross_val_explain(
            forest(), X, Y, cv=list(zip(trains, parts)), scoring=lambda *_: 0.0, return_estimator=True
        )
    about = [str(each.message).partition(":")[0].rpartition("of class ")[2] for each in caught]
    assert about == ["'0_ant'", "'0_ant', '0_cat'", "'1_big'"]
    explanation = results["explanation"]
    assert explanation.output_names == NAMES
    for model, part, missing in zip(results["estimator"], parts, [[0], [0, 1], [3]]):
        known = np.setdiff1d(range(5), missing)
        total = explanation.base_values[part] + explanation.values[part].sum(axis=1)
        np.testing.assert_allclose(total[:, known], own(model, X[part]), rtol=0, atol=1e-6)
        assert np.isnan(total[:, missing]).all()
        values = TreeExplainer(model).shap_values(X[part])
        np.testing.assert_array_equal(explanation.values[part][..., known], values)
    with pytest.warns(UserWarning, match="none of class '0_ant'"):
        importances = cross_validated_importance(
            forest(), X, Y, cv=[(no_ant, parts[0]), (parts[1], parts[2])], per_output=True
        )
    assert (
        np.isnan(importances.importances[:, 0, 0]).all() and np.isfinite(importances.importances[:, 1]).all()
    )
    labels = np.column_stack([KIND == "ant", SIZE == "big"])  # a class that the other target has
    transformer = ShapTransformer(forest(), cv=[(no_ant, np.setdiff1d(rows, no_ant)), (rows[::2], no_ant)])
    with pytest.raises(ValueError, match="no row of class 'ant' to fit on"):
        transformer.fit_transform(X, Y)
    with pytest.raises(ValueError, match="no row of class True to fit on"):
        transformer.fit_transform(X, labels)
