"""scikit-learn models of every kind and setting, their data, and their own margins."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import (
    BaggingClassifier,
    BaggingRegressor,
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    IsolationForest,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.tree import (
    DecisionTreeClassifier,
    DecisionTreeRegressor,
    ExtraTreeClassifier,
    ExtraTreeRegressor,
)

N_FEATURES = 5
RTOL = 1e-10
MEAN_MODELS = (DecisionTreeClassifier, RandomForestClassifier, ExtraTreesClassifier, BaggingClassifier)
HIST_MODELS = (HistGradientBoostingClassifier, HistGradientBoostingRegressor)


def make_data(
    target: str, *, nan: bool = False, n_rows: int = 250, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Draw X with two columns of few distinct values, and a target of the given kind."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, N_FEATURES))
    X[:, 3] = np.round(X[:, 3])
    X[:, 4] = rng.integers(0, 4, n_rows) / 10
    signal = X[:, 0] + X[:, 1] * (X[:, 3] > 0) + 3 * X[:, 4] + rng.normal(scale=0.3, size=n_rows)
    if nan:
        # Missing values are informative: in one column they occur with high targets, in another with low
        # targets.
        X[(signal > 1) & (rng.random(n_rows) < 0.5), 0] = np.nan
        X[(signal < 0) & (rng.random(n_rows) < 0.5), 1] = np.nan
        X[rng.random(n_rows) < 0.1, 3] = np.nan
    y = {
        "number": signal,
        "positive": np.exp(signal / 2),
        "several": np.column_stack([signal, -(signal**2), rng.normal(size=n_rows)]),
        "binary": np.where(signal > 0.7, "yes", "no"),
        "three": np.array(["c", "a", "b"])[np.digitize(signal, [-0.5, 1.0])],
        "single": np.full(n_rows, 7),
        "several classes": np.column_stack(
            [
                np.array(["c", "a", "b"])[np.digitize(signal, [-0.5, 1.0])],
                np.full(n_rows, "only"),
                np.where(X[:, 2] + signal > 0.7, "yes", "no"),
            ]
        ),
    }[target]
    return X, y


def weights(n_rows: int = 250) -> np.ndarray:
    return np.random.default_rng(5).uniform(0.1, 3.0, n_rows)


def own_margin(model: Any, X: np.ndarray) -> np.ndarray:
    """Predict with the fitted model itself, in the space in which its trees add up."""
    if isinstance(model, IsolationForest):
        n = model._max_samples
        average = 2 * (np.log(n - 1) + np.euler_gamma) - 2 * (n - 1) / n
        return -np.log2(-model.score_samples(X)) * average
    if isinstance(model, MEAN_MODELS):
        proba = model.predict_proba(X)
        if isinstance(proba, list):
            return np.hstack(proba)
        return proba[:, 1] if proba.shape[1] == 2 else proba
    if is_classifier(model):
        return model.decision_function(X)
    return model._raw_predict(X) if isinstance(model, HIST_MODELS) else model.predict(X)


TREE = dict(max_depth=5, random_state=0)
FOREST = dict(n_estimators=7, max_depth=5, random_state=0)
BOOST = dict(n_estimators=8, max_depth=3, random_state=0)
HIST = dict(max_iter=8, min_samples_leaf=5, random_state=0)
SHALLOW = DecisionTreeClassifier(max_depth=3)

CASES = {
    "tree classifier": (DecisionTreeClassifier(**TREE), "binary", {}),
    "tree classifier, NaN": (DecisionTreeClassifier(**TREE), "binary", {"nan": True}),
    "tree classifier, three classes": (DecisionTreeClassifier(**TREE), "three", {}),
    "tree classifier, entropy and leaf limit": (
        DecisionTreeClassifier(criterion="entropy", max_leaf_nodes=9, random_state=0),
        "three",
        {},
    ),
    "tree classifier, class weights": (DecisionTreeClassifier(class_weight="balanced", **TREE), "three", {}),
    "tree classifier, sample weights": (DecisionTreeClassifier(**TREE), "three", {"weighted": True}),
    "tree classifier, monotonic": (
        DecisionTreeClassifier(monotonic_cst=[1, 0, 0, 0, -1], **TREE),
        "binary",
        {},
    ),
    "tree classifier, several targets": (
        DecisionTreeClassifier(**TREE),
        "several classes",
        {"nan": True, "weighted": True},
    ),
    "tree classifier, one class": (DecisionTreeClassifier(**TREE), "single", {}),
    "tree classifier, one leaf": (DecisionTreeClassifier(min_samples_leaf=200, random_state=0), "three", {}),
    "extra tree classifier": (ExtraTreeClassifier(**TREE), "three", {}),
    "extra tree classifier, several targets": (ExtraTreeClassifier(**TREE), "several classes", {}),
    "extra tree classifier, NaN": (ExtraTreeClassifier(**TREE), "binary", {"nan": True}),
    "extra tree classifier, best splitter": (ExtraTreeClassifier(splitter="best", **TREE), "binary", {}),
    "tree regressor": (DecisionTreeRegressor(**TREE), "number", {}),
    "tree regressor, NaN": (DecisionTreeRegressor(**TREE), "number", {"nan": True}),
    "tree regressor, unlimited": (DecisionTreeRegressor(random_state=0), "number", {}),
    "tree regressor, several targets": (DecisionTreeRegressor(**TREE), "several", {"nan": True}),
    "tree regressor, poisson": (DecisionTreeRegressor(criterion="poisson", **TREE), "positive", {}),
    "tree regressor, absolute error": (
        DecisionTreeRegressor(criterion="absolute_error", **TREE),
        "number",
        {"weighted": True},
    ),
    "tree regressor, pruned": (DecisionTreeRegressor(ccp_alpha=0.02, **TREE), "number", {}),
    "tree regressor, monotonic": (
        DecisionTreeRegressor(monotonic_cst=[1, 0, 0, -1, 1], **TREE),
        "number",
        {},
    ),
    "tree regressor, one leaf": (DecisionTreeRegressor(max_depth=1, min_samples_leaf=200), "several", {}),
    "extra tree regressor": (ExtraTreeRegressor(**TREE), "number", {"weighted": True}),
    "forest classifier": (RandomForestClassifier(**FOREST), "binary", {}),
    "forest classifier, NaN": (RandomForestClassifier(**FOREST), "three", {"nan": True}),
    "forest classifier, class weights": (
        RandomForestClassifier(class_weight="balanced_subsample", **FOREST),
        "three",
        {"weighted": True},
    ),
    "forest classifier, several targets": (
        RandomForestClassifier(class_weight="balanced", **FOREST),
        "several classes",
        {"nan": True},
    ),
    "forest classifier, one class": (RandomForestClassifier(**FOREST), "single", {}),
    "forest classifier, monotonic": (
        RandomForestClassifier(monotonic_cst=[1, 0, 0, 0, 1], **FOREST),
        "binary",
        {},
    ),
    "forest regressor": (RandomForestRegressor(max_samples=0.5, **FOREST), "number", {"weighted": True}),
    "forest regressor, several targets": (RandomForestRegressor(**FOREST), "several", {"nan": True}),
    "extra trees classifier": (ExtraTreesClassifier(**FOREST), "three", {}),
    "extra trees classifier, several targets": (
        ExtraTreesClassifier(bootstrap=True, **FOREST),
        "several classes",
        {},
    ),
    "extra trees classifier, NaN": (ExtraTreesClassifier(bootstrap=True, **FOREST), "binary", {"nan": True}),
    "extra trees regressor": (ExtraTreesRegressor(max_leaf_nodes=9, **FOREST), "number", {}),
    "extra trees regressor, absolute error": (
        ExtraTreesRegressor(criterion="absolute_error", **FOREST),
        "number",
        {},
    ),
    "bagging classifier": (BaggingClassifier(SHALLOW, 6, random_state=0), "binary", {"nan": True}),
    "bagging classifier, feature subsets": (
        BaggingClassifier(SHALLOW, 6, max_features=0.6, random_state=0),
        "three",
        {},
    ),
    "bagging classifier, repeated features": (
        BaggingClassifier(SHALLOW, 6, bootstrap_features=True, random_state=0),
        "three",
        {"nan": True},
    ),
    "bagging classifier, one class": (BaggingClassifier(SHALLOW, 3, random_state=0), "single", {}),
    "bagging regressor": (BaggingRegressor(n_estimators=5, random_state=0), "number", {}),
    "bagging regressor, several targets": (
        BaggingRegressor(ExtraTreeRegressor(max_depth=4), 5, max_features=3, random_state=0),
        "several",
        {"nan": True},
    ),
    "isolation forest": (IsolationForest(n_estimators=8, random_state=0), "number", {}),
    "isolation forest, feature subsets": (
        IsolationForest(n_estimators=8, max_features=0.6, max_samples=64, random_state=0),
        "number",
        {"weighted": True},
    ),
    "isolation forest, NaN": (IsolationForest(n_estimators=8, random_state=0), "number", {"nan": True}),
    "boosting classifier": (GradientBoostingClassifier(**BOOST), "binary", {}),
    "boosting classifier, exponential": (
        GradientBoostingClassifier(loss="exponential", **BOOST),
        "binary",
        {"weighted": True},
    ),
    "boosting classifier, three classes": (GradientBoostingClassifier(subsample=0.7, **BOOST), "three", {}),
    "boosting classifier, early stopping": (
        GradientBoostingClassifier(n_estimators=200, learning_rate=1.0, n_iter_no_change=2, random_state=0),
        "three",
        {},
    ),
    "boosting classifier, zero init": (GradientBoostingClassifier(init="zero", **BOOST), "three", {}),
    "boosting classifier, most frequent init": (
        GradientBoostingClassifier(init=DummyClassifier(strategy="most_frequent"), **BOOST),
        "binary",
        {},
    ),
    "boosting classifier, uniform init": (
        GradientBoostingClassifier(init=DummyClassifier(strategy="uniform"), **BOOST),
        "three",
        {},
    ),
    "boosting regressor": (GradientBoostingRegressor(learning_rate=0.3, **BOOST), "number", {}),
    "boosting regressor, absolute error": (
        GradientBoostingRegressor(loss="absolute_error", **BOOST),
        "number",
        {"weighted": True},
    ),
    "boosting regressor, huber": (GradientBoostingRegressor(loss="huber", **BOOST), "number", {}),
    "boosting regressor, quantile": (GradientBoostingRegressor(loss="quantile", **BOOST), "number", {}),
    "boosting regressor, zero init": (GradientBoostingRegressor(init="zero", **BOOST), "number", {}),
    "boosting regressor, constant init": (
        GradientBoostingRegressor(init=DummyRegressor(strategy="constant", constant=3.5), **BOOST),
        "number",
        {},
    ),
    "hist classifier": (HistGradientBoostingClassifier(**HIST), "binary", {}),
    "hist classifier, NaN": (HistGradientBoostingClassifier(**HIST), "binary", {"nan": True}),
    "hist classifier, three classes": (
        HistGradientBoostingClassifier(class_weight="balanced", **HIST),
        "three",
        {"nan": True},
    ),
    "hist classifier, early stopping": (
        HistGradientBoostingClassifier(
            max_iter=100, learning_rate=1.0, early_stopping=True, n_iter_no_change=2, random_state=0
        ),
        "three",
        {},
    ),
    "hist classifier, one class": (HistGradientBoostingClassifier(**HIST), "single", {}),
    "hist regressor": (HistGradientBoostingRegressor(max_leaf_nodes=6, **HIST), "number", {"nan": True}),
    "hist regressor, sample weights": (HistGradientBoostingRegressor(**HIST), "number", {"weighted": True}),
    "hist regressor, monotonic": (
        HistGradientBoostingRegressor(monotonic_cst=[1, 0, 0, 0, 1], interaction_cst="pairwise", **HIST),
        "number",
        {},
    ),
    "hist regressor, poisson": (HistGradientBoostingRegressor(loss="poisson", **HIST), "positive", {}),
    "hist regressor, gamma": (HistGradientBoostingRegressor(loss="gamma", **HIST), "positive", {}),
    "hist regressor, quantile": (
        HistGradientBoostingRegressor(loss="quantile", quantile=0.8, **HIST),
        "number",
        {},
    ),
    "hist regressor, absolute error": (
        HistGradientBoostingRegressor(loss="absolute_error", **HIST),
        "number",
        {},
    ),
    "hist regressor, one leaf": (
        HistGradientBoostingRegressor(max_iter=3, min_samples_leaf=200),
        "number",
        {},
    ),
}
