"""Values of every family, from the fitted model to the array that a user receives.

There are three kinds of references: the definition (:mod:`skshapgpu.reference`, or exact arithmetic if a
model has too many features for it); the library's own prediction, to which base value and values must add up;
and the values of the library itself or of shap, if they are right.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers.cases import CASES, CATBOOST, LIGHTGBM, UNEVEN, version
from helpers.ensembles import exact_shap, leaf_scale
from helpers.own_values import NOT_OWN, OWN_VALUES, definition, error, fitted, own_margin
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier

from skshapgpu import TreeExplainer
from skshapgpu.adapters import adapt

pytestmark = [
    pytest.mark.filterwarnings("ignore:::lightgbm"),
    pytest.mark.filterwarnings("ignore:::shap"),
    pytest.mark.filterwarnings("ignore:.*(deprecated|manually specified)::xgboost"),
    pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning:helpers.checks"),
]


# The checks


@pytest.mark.parametrize("name", CASES)
def test_values_are_those_of_the_definition(name: str) -> None:
    case = fitted(name)
    expected, base_value = definition(name)
    ensemble = case.adapted.ensemble
    assert len(np.unique(ensemble.feature[ensemble.left >= 0])) >= 3
    assert (np.abs(expected).max(axis=(0, 1)) > 0).any()
    scale = leaf_scale(ensemble)
    for precision, tolerance in (("double", 1e-10), ("single", 2e-6)):
        values, base = case.explain(precision)
        assert error(values, expected, scale) <= tolerance, precision
        np.testing.assert_allclose(base, base_value, rtol=1e-10, atol=1e-10 * scale.max())


@pytest.mark.parametrize("name", CASES)
def test_values_add_up_to_the_librarys_own_prediction(name: str) -> None:
    case = fitted(name)
    values, base_value = case.explain("double")
    total = base_value + values.sum(axis=1)
    # XGBoost adds its trees up in float32; the others predict in float64.
    tolerance = 1e-5 if case.adapted.family == "xgboost" else 1e-10
    assert np.ptp(case.margin) > 0
    np.testing.assert_allclose(
        total / np.maximum(1, np.abs(case.margin)),
        case.margin / np.maximum(1, np.abs(case.margin)),
        rtol=0,
        atol=tolerance,
    )


# Values of the libraries themselves, and of shap


@pytest.mark.parametrize("name", [name for name in CASES if name not in NOT_OWN])
def test_values_are_the_librarys_own(name: str) -> None:
    if name == "xgboost leaves of several outputs" and version(pytest.importorskip("xgboost")) < (3, 3):
        pytest.skip("XGBoost itself explains leaves of several outputs since 3.3")
    case = fitted(name)
    own_values, tolerance = OWN_VALUES[case.adapted.family]
    values, _ = case.explain("double")
    own = own_values(case.model, case.X)
    assert values.shape == own.shape
    relative = np.abs(values - own) / np.maximum(1, np.abs(case.margin))[:, np.newaxis]
    assert relative.max() <= tolerance


# More features than the definition can handle


def wide_models() -> dict[str, Callable[[], Any]]:
    def xgboost() -> Any:
        return pytest.importorskip("xgboost").XGBClassifier(n_estimators=20, max_depth=4, n_jobs=1)

    def lightgbm() -> Any:
        return pytest.importorskip("lightgbm").LGBMClassifier(**LIGHTGBM | {"n_estimators": 20})

    def catboost(**options: Any) -> Any:
        return pytest.importorskip("catboost").CatBoostClassifier(**CATBOOST | {"iterations": 20} | options)

    return {
        "forest": lambda: RandomForestClassifier(15, max_depth=7, random_state=0),
        "histograms": lambda: HistGradientBoostingClassifier(max_iter=15, max_leaf_nodes=12),
        "xgboost": xgboost,
        "lightgbm": lightgbm,
        "catboost": catboost,
        "catboost, Depthwise": lambda: catboost(**UNEVEN["Depthwise"]),
    }


CANCER, BENIGN = load_breast_cancer(return_X_y=True)


@functools.cache
def wide_model(name: str) -> Any:
    model = wide_models()[name]().fit(CANCER, BENIGN)
    ensemble = adapt(model).ensemble
    assert len(np.unique(ensemble.feature[ensemble.left >= 0])) > 12
    return model


@pytest.mark.parametrize("name", wide_models())
def test_thirty_features(name: str) -> None:
    model = wide_model(name)
    ensemble = adapt(model).ensemble
    scale = leaf_scale(ensemble)[0]
    single, double = (TreeExplainer(model, precision=p) for p in ("single", "double"))
    values = double.shap_values(CANCER)
    expected = np.array([exact_shap(ensemble, x)[0] for x in CANCER[::200]])
    np.testing.assert_allclose(values[::200], expected, rtol=0, atol=1e-12 * scale)
    np.testing.assert_allclose(single.shap_values(CANCER), values, rtol=0, atol=2e-6 * scale)
    assert single.expected_value == pytest.approx(double.expected_value, abs=1e-12 * scale)
    tolerance = 1e-5 if name == "xgboost" else 1e-10
    margin = own_margin(model, CANCER)[:, 0]
    if name == "forest":
        margin = model.predict_proba(CANCER)[:, 1]
    total = double.expected_value + values.sum(axis=1)
    np.testing.assert_allclose(total, margin, rtol=tolerance, atol=tolerance)
    if name != "catboost, Depthwise":
        own_values, tolerance = OWN_VALUES[adapt(model).family]
        own = own_values(model, CANCER)[..., 0]
        assert (np.abs(values - own) / np.maximum(1, np.abs(margin))[:, np.newaxis]).max() <= tolerance


@pytest.mark.parametrize("precision", ["single", "double"])
@pytest.mark.parametrize("name", wide_models())
def test_threads_change_no_digit(name: str, precision: str) -> None:
    model = wide_model(name)
    expected = TreeExplainer(model, precision=precision, n_jobs=1).shap_values(CANCER)
    for n_jobs in (2, 3, 7, -1):
        values = TreeExplainer(model, precision=precision, n_jobs=n_jobs).shap_values(CANCER)
        np.testing.assert_array_equal(values, expected)
