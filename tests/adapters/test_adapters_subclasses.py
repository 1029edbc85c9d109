"""Models of packages whose classes predict as classes of scikit-learn do: values equal their definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers.definition import assert_values_equal_definition
from helpers.families import forest_classifier, library
from helpers.sums_data import FRAME, NUMBERS, RARE, THREE, TWO
from sklearn.ensemble import AdaBoostClassifier, HistGradientBoostingClassifier, IsolationForest
from sklearn.exceptions import NotFittedError
from sklearn.tree import DecisionTreeClassifier

from skshapgpu import TreeExplainer, UnsupportedModelError, explain
from skshapgpu.adapters import adapt

ROWS, BACKGROUND = FRAME.iloc[5:9], FRAME.iloc[40:46]

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")

# imbalanced-learn


def imbalanced(name: str, *arguments: Any, **options: Any) -> Any:
    return getattr(library("imblearn.ensemble"), name)(*arguments, random_state=0, **options)


def tree() -> DecisionTreeClassifier:
    return DecisionTreeClassifier(max_depth=3, random_state=0)


def histogram() -> HistGradientBoostingClassifier:
    return HistGradientBoostingClassifier(max_iter=6, max_leaf_nodes=6, min_samples_leaf=5, random_state=0)


def adaboost() -> AdaBoostClassifier:
    return AdaBoostClassifier(tree(), n_estimators=3, random_state=0)


DECISIONS = {
    "boosting": lambda: imbalanced("RUSBoostClassifier", n_estimators=5, learning_rate=0.5).fit(FRAME, TWO),
    "boosting, three classes": lambda: imbalanced("RUSBoostClassifier", tree(), n_estimators=4).fit(
        FRAME, THREE
    ),
    "ensemble": lambda: imbalanced("EasyEnsembleClassifier", 3).fit(FRAME, TWO),
    "ensemble, three classes": lambda: imbalanced("EasyEnsembleClassifier", 3, adaboost()).fit(FRAME, THREE),
    "ensemble, boosting": lambda: imbalanced("EasyEnsembleClassifier", 2, histogram()).fit(FRAME, TWO),
}


def has_own_decisions() -> bool:
    """Return whether ``EasyEnsembleClassifier`` defines ``decision_function``: imbalanced-learn 0.13 does."""
    return "decision_function" in vars(library("imblearn.ensemble").EasyEnsembleClassifier)


@pytest.mark.parametrize("name", DECISIONS)
def test_decisions_of_imbalanced_learn(name: str) -> None:
    if name == "ensemble, boosting" and has_own_decisions():
        pytest.skip("the decision_function of imbalanced-learn 0.13 fails if the members take missing values")
    model = DECISIONS[name]()
    assert_values_equal_definition(model, model.decision_function, ROWS, BACKGROUND)
    adapted = adapt(model)
    classes = tuple(model.classes_)
    assert (adapted.output_names or adapted.class_names) == classes
    if name.startswith("ensemble"):
        with pytest.raises(ValueError, match="model_output='probability' needs"):
            TreeExplainer(model, BACKGROUND, model_output="probability")


FRACTIONS = {
    "bag": lambda: imbalanced("BalancedBaggingClassifier", tree(), 4, max_features=0.75).fit(FRAME, TWO),
    "bag, three classes": lambda: imbalanced("BalancedBaggingClassifier", tree(), 4).fit(FRAME, THREE),
    "bag, missing classes": lambda: imbalanced(
        "BalancedBaggingClassifier", tree(), 6, max_samples=0.05, sampling_strategy=lambda y: {}
    ).fit(FRAME, RARE),
    "bag of forests": lambda: imbalanced("BalancedBaggingClassifier", forest_classifier(), 3).fit(FRAME, TWO),
    "forest": lambda: imbalanced(
        "BalancedRandomForestClassifier", 4, sampling_strategy="all", replacement=True, bootstrap=False
    ).fit(FRAME, THREE),
    "ensemble of forests": lambda: imbalanced("EasyEnsembleClassifier", 3, forest_classifier()).fit(
        FRAME, TWO
    ),
}


@pytest.mark.parametrize("name", FRACTIONS)
def test_probabilities_of_imbalanced_learn(name: str) -> None:
    model = FRACTIONS[name]()

    def predict(rows: Any) -> np.ndarray:
        probabilities = model.predict_proba(rows)
        return probabilities[:, 1] if len(model.classes_) == 2 else probabilities

    if name == "ensemble of forests" and has_own_decisions():
        with pytest.raises(UnsupportedModelError, match="has a decision_function of its own"):
            adapt(model)
        return
    assert_values_equal_definition(model, predict, ROWS, BACKGROUND)
    if name == "bag, missing classes":
        assert min(len(member.classes_) for member in model.estimators_) < 4
    if name == "bag":
        assert {tuple(columns) for columns in model.estimators_features_} != {(0, 1, 2, 3)}


def test_refusals_of_imbalanced_learn() -> None:
    model = DECISIONS["ensemble, three classes"]()
    model.estimators_[1] = model.estimators_[1].fit(FRAME.to_numpy(), TWO == "yes")
    with pytest.raises(UnsupportedModelError, match="members have not seen all classes"):
        explain(model, FRAME)
    with pytest.raises(NotFittedError):
        explain(imbalanced("EasyEnsembleClassifier"), FRAME)
    boosted = imbalanced("BalancedBaggingClassifier", histogram(), 2).fit(FRAME, TWO)
    with pytest.raises(UnsupportedModelError, match="use model_output='probability' with background"):
        explain(boosted, FRAME)

    class Louder(library("imblearn.ensemble").EasyEnsembleClassifier):
        def decision_function(self, X: Any) -> np.ndarray:
            return 2 * super().decision_function(X)

    with pytest.raises(UnsupportedModelError, match="has a decision_function of its own"):
        explain(Louder(2, random_state=0).fit(FRAME, TWO), FRAME)


# scikit-optimize


def optimizer(name: str, **options: Any) -> Any:
    return getattr(library("skopt.learning"), name)(random_state=0, **options)


@pytest.mark.parametrize(
    "name, options",
    [
        ("RandomForestRegressor", {"n_estimators": 4, "max_depth": 4, "min_variance": 0.1}),
        ("ExtraTreesRegressor", {"n_estimators": 4, "max_depth": 4}),
        ("GradientBoostingQuantileRegressor", {}),
    ],
)
def test_values_of_scikit_optimize(name: str, options: dict[str, Any]) -> None:
    model = optimizer(name, **options).fit(FRAME, NUMBERS)
    assert_values_equal_definition(model, model.predict, ROWS, BACKGROUND)


def test_refusals_of_scikit_optimize() -> None:
    model = optimizer("GradientBoostingQuantileRegressor", quantiles=[0.16, 0.84]).fit(FRAME, NUMBERS)
    with pytest.raises(
        UnsupportedModelError, match=r"without the quantile 0.5.*explain each of its regressors_"
    ):
        explain(model, FRAME)
    with pytest.raises(NotFittedError):
        explain(optimizer("RandomForestRegressor"), FRAME)

    class Louder(library("skopt.learning").RandomForestRegressor):
        def predict(self, X: Any, return_std: bool = False) -> Any:
            return 2 * super().predict(X, return_std)

    with pytest.raises(UnsupportedModelError, match="has a predict of its own"):
        explain(Louder(n_estimators=2).fit(FRAME, NUMBERS), FRAME)


# PyOD


def detector(**options: Any) -> Any:
    return library("pyod.models.iforest").IForest(n_estimators=6, random_state=0, **options)


@pytest.mark.parametrize("options", [{}, {"max_features": 3, "max_samples": 50, "contamination": 0.3}])
def test_values_of_an_isolation_forest_of_pyod(options: dict[str, Any]) -> None:
    model = detector(**options).fit(FRAME)
    forest = model.detector_

    def path_lengths(rows: Any) -> np.ndarray:
        """Invert the score, -2 ** (-E / c), where c is the mean path of max_samples rows."""
        n = forest._max_samples
        c = 2 * (np.log(n - 1) + np.euler_gamma) - 2 * (n - 1) / n
        return -c * np.log2(model.decision_function(rows) - forest.offset_)

    rows, background = pd.DataFrame(ROWS.to_numpy()), pd.DataFrame(BACKGROUND.to_numpy())
    assert_values_equal_definition(model, path_lengths, rows, background)
    assert isinstance(forest, IsolationForest)
    long, short = np.argsort(model.decision_function(FRAME))[[0, -1]]
    explanation = explain(model, FRAME)
    assert explanation.values.sum(axis=1)[short] < explanation.values.sum(axis=1)[long]


def test_scores_of_pyod_are_larger_for_outliers() -> None:
    """Each pair of a row and a background row has values of the path length times one slope."""
    model = detector(contamination=0.3).fit(FRAME)
    rows, background = FRAME.iloc[5:9], FRAME.iloc[40:46]
    options: dict[str, Any] = {"model_output": "decision_function", "precision": "double"}
    explanation = TreeExplainer(model, background, **options).explain(rows)
    assert explanation.checked_against == "model"
    score = model.decision_function
    expected = np.zeros(rows.shape)
    for number in range(len(background)):
        other = background.iloc[[number]]
        lengths = TreeExplainer(model, other, precision="double").shap_values(rows)
        # The path lengths of this forest differ between these rows, so that there are quotients.
        expected += lengths * ((score(rows) - score(other)) / lengths.sum(axis=1))[:, np.newaxis]
    np.testing.assert_allclose(explanation.values, expected / len(background), rtol=0, atol=1e-12)
    np.testing.assert_allclose(explanation.base_values, score(background).mean(), rtol=0, atol=1e-12)
    outlier = pd.DataFrame([[30.0, -20.0, 0.0, 0.0]], columns=FRAME.columns)
    assert TreeExplainer(model, FRAME, **options).shap_values(outlier)[0, :2].min() > 0.01
    with pytest.raises(ValueError, match="is a score of an IsolationForest"):
        TreeExplainer(model, background, model_output="score_samples")


def test_numbers_that_pyod_refuses_are_refused() -> None:
    model = detector().fit(FRAME)
    for value in (np.nan, np.inf):
        X = FRAME.to_numpy().copy()
        X[3, 1] = value
        with pytest.raises(ValueError, match=r"NaN|infinity"):
            model.decision_function(X)
        with pytest.raises(ValueError, match=r"row 3, column 1"):
            explain(model, X)


def test_refusals_of_pyod() -> None:
    with pytest.raises(NotFittedError):
        explain(detector(), FRAME)
    other = library("pyod.models.knn").KNN().fit(FRAME)
    with pytest.raises(UnsupportedModelError, match=r"explain a KNN.*only the scores of IForest"):
        explain(other, FRAME)
