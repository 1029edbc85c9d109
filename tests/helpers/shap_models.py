"""Models for tests of patch_shap, and comparisons with shap, which must be installed."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.ensemble import (
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    HistGradientBoostingRegressor,
    IsolationForest,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.tree import DecisionTreeRegressor
from sklearn.utils.fixes import parse_version

shap = pytest.importorskip("shap", minversion="0.45")

from shap import TreeExplainer  # noqa: E402

#: Earlier releases have fewer arguments and checks.
IS_NEW = parse_version(shap.__version__) >= parse_version("0.51")


def on_a_grid(X: np.ndarray) -> np.ndarray:
    """Draw integers: shap narrows thresholds to float32, which also holds the midpoints between them."""
    low, high = X.min(axis=0), X.max(axis=0)
    return np.round((X - low) / (high - low) * 1000)


DIABETES, PROGRESSION = load_diabetes(return_X_y=True)
CANCER, MALIGNANT = load_breast_cancer(return_X_y=True)
IRIS, SPECIES = load_iris(return_X_y=True)
DIABETES, CANCER, IRIS = on_a_grid(DIABETES), on_a_grid(CANCER), on_a_grid(IRIS)
PROGRESSION = PROGRESSION + 1e4  # far from zero


def library(module: str, name: str, **options: Any) -> Any:
    return getattr(pytest.importorskip(module), name)(n_estimators=12, **options)


MODELS: dict[str, Any] = {
    "tree": lambda: (DecisionTreeRegressor(max_depth=6, random_state=0), DIABETES, PROGRESSION),
    "forest": lambda: (RandomForestRegressor(8, random_state=0), DIABETES, PROGRESSION),
    "extra trees": lambda: (ExtraTreesRegressor(8, max_depth=6, random_state=0), DIABETES, PROGRESSION),
    "binary forest": lambda: (RandomForestClassifier(8, random_state=0), CANCER, MALIGNANT),
    "multiclass forest": lambda: (RandomForestClassifier(8, random_state=0), IRIS, SPECIES),
    "vector leaves": lambda: (
        RandomForestRegressor(8, random_state=0),
        DIABETES,
        np.column_stack([PROGRESSION, -2 * PROGRESSION, DIABETES[:, 2]]),
    ),
    "boosting": lambda: (GradientBoostingClassifier(n_estimators=12, random_state=0), CANCER, MALIGNANT),
    "histogram boosting": lambda: (HistGradientBoostingRegressor(max_iter=12), DIABETES, PROGRESSION),
    "isolation forest": lambda: (IsolationForest(n_estimators=8, random_state=0), DIABETES, None),
    "xgboost": lambda: (library("xgboost", "XGBRegressor", max_depth=4), DIABETES, PROGRESSION),
    "xgboost binary": lambda: (library("xgboost", "XGBClassifier", max_depth=4), CANCER, MALIGNANT),
    "xgboost multiclass": lambda: (library("xgboost", "XGBClassifier", max_depth=3), IRIS, SPECIES),
    "lightgbm": lambda: (library("lightgbm", "LGBMRegressor", verbose=-1), DIABETES, PROGRESSION),
    "lightgbm binary": lambda: (library("lightgbm", "LGBMClassifier", verbose=-1), CANCER, MALIGNANT),
    "lightgbm multiclass": lambda: (library("lightgbm", "LGBMClassifier", verbose=-1), IRIS, SPECIES),
    "catboost": lambda: (library("catboost", "CatBoostRegressor", verbose=0), DIABETES, PROGRESSION),
    "catboost binary": lambda: (library("catboost", "CatBoostClassifier", verbose=0), CANCER, MALIGNANT),
    "catboost multiclass": lambda: (library("catboost", "CatBoostClassifier", verbose=0), IRIS, SPECIES),
}


def fitted(name: str) -> tuple[Any, np.ndarray, np.ndarray]:
    model, X, y = MODELS[name]()
    model.fit(X, y)
    return model, X, y


def state() -> list[tuple[int, str, int]]:
    """Return the identities of all attributes that the patch may touch."""
    owners = [shap, shap.explainers, TreeExplainer, shap.Explainer, shap.explainers._tree]
    if "GPUTreeExplainer" in vars(shap.explainers):
        owners.append(shap.explainers.GPUTreeExplainer)
    by_python = {"__warningregistry__", "__slotnames__"}  # that warnings and pickle leave
    return [
        (id(owner), name, id(value))
        for owner in owners
        for name, value in vars(owner).items()
        if name not in by_python
    ]


def assert_same(ours: Any, theirs: Any, digits: float = 1e-5) -> None:
    """Compare values, allowing for rounding errors of libraries whose float32 values shap returns."""
    assert type(ours) is type(theirs)
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(ours, theirs, atol=digits * np.abs(theirs).max())


def assert_same_base(ours: Any, theirs: Any) -> None:
    """Compare the values and the form of ``expected_value``; scalars may be float32 or float64."""
    assert isinstance(ours, np.floating if isinstance(theirs, np.floating) else type(theirs))
    assert np.shape(ours) == np.shape(theirs)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def only_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make shap's own computations fail."""

    def failing(method: Any) -> Any:
        def fail(*args: Any, **kwargs: Any) -> Any:
            if kwargs.get("output_margin"):  # by which changes of a model are noticed
                return method(*args, **kwargs)
            raise AssertionError("shap computed")

        return fail

    core = shap.explainers._tree._cext
    constructing = SimpleNamespace(compute_expectations=core.compute_expectations)
    monkeypatch.setattr(shap.explainers._tree, "_cext", constructing)
    for module, name, method in (
        ("xgboost", "Booster", "predict"),
        ("lightgbm", "Booster", "predict"),
        ("catboost", "CatBoost", "get_feature_importance"),
    ):
        if module in sys.modules:
            owner = getattr(sys.modules[module], name)
            monkeypatch.setattr(owner, method, failing(getattr(owner, method)))
