"""shap.GPUTreeExplainer through the entry point, which shap finds by itself, against shap.TreeExplainer."""

from __future__ import annotations

import pickle
import sys
import tomllib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import ROOT
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.ensemble import (
    AdaBoostClassifier,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
)

import skshapgpu

shap = pytest.importorskip("shap", minversion="0.54")


def on_a_grid(X: np.ndarray) -> np.ndarray:
    """Draw whole numbers; float32 also holds the thresholds between them.

    shap 0.54 narrows thresholds to float32, so its interventional values of rows next to other thresholds do
    not add up.
    """
    low, high = X.min(axis=0), X.max(axis=0)
    return np.round((X - low) / (high - low) * 1000)


DIABETES, PROGRESSION = load_diabetes(return_X_y=True)
CANCER, MALIGNANT = load_breast_cancer(return_X_y=True)
IRIS, SPECIES = load_iris(return_X_y=True)
DIABETES, CANCER, IRIS = on_a_grid(DIABETES), on_a_grid(CANCER), on_a_grid(IRIS)


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Entry point metadata, as an installation of the project writes it; no other backend is registered."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = project["entry-points"]["shap.tree_backends"]
    folder = tmp_path / "skshapgpu-0.1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: skshapgpu\nVersion: 0.1.0\n")
    lines = [f"{name} = {value}" for name, value in declared.items()]
    (folder / "entry_points.txt").write_text("\n".join(["[shap.tree_backends]", *lines, ""]))
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setenv("SKSHAPGPU_DEVICE", "cpu")
    yield


def xgboost(kind: str = "XGBRegressor", **options: Any) -> Any:
    return getattr(pytest.importorskip("xgboost"), kind)(n_estimators=20, max_depth=4, **options)


def lightgbm(kind: str = "LGBMRegressor", **options: Any) -> Any:
    return getattr(pytest.importorskip("lightgbm"), kind)(n_estimators=20, verbose=-1, **options)


MODELS: dict[str, Any] = {
    "forest": lambda: (RandomForestRegressor(10, random_state=0), DIABETES, PROGRESSION),
    "extra trees": lambda: (ExtraTreesRegressor(10, max_depth=6, random_state=0), DIABETES, PROGRESSION),
    "binary forest": lambda: (RandomForestClassifier(10, random_state=0), CANCER, MALIGNANT),
    "multiclass forest": lambda: (RandomForestClassifier(10, random_state=0), IRIS, SPECIES),
    "boosting": lambda: (GradientBoostingClassifier(n_estimators=20), CANCER, MALIGNANT),
    "histogram boosting": lambda: (HistGradientBoostingClassifier(max_iter=20), CANCER, MALIGNANT),
    "xgboost": lambda: (xgboost(), DIABETES, PROGRESSION),
    "xgboost binary": lambda: (xgboost("XGBClassifier"), CANCER, MALIGNANT),
    "xgboost multiclass": lambda: (xgboost("XGBClassifier"), IRIS, SPECIES),
    "lightgbm": lambda: (lightgbm(), DIABETES, PROGRESSION),
    "lightgbm binary": lambda: (lightgbm("LGBMClassifier"), CANCER, MALIGNANT),
    "lightgbm multiclass": lambda: (lightgbm("LGBMClassifier"), IRIS, SPECIES),
}


def pair(name: str, n_background: int = 0, **options: Any) -> tuple[Any, Any, np.ndarray, np.ndarray]:
    """Return skshapgpu's and shap's explainers of the same model, with rows and labels."""
    model, X, y = MODELS[name]()
    model.fit(X, y)
    data = X[:n_background] if n_background else None
    ours = shap.GPUTreeExplainer(model, data, **options)
    assert type(ours).__module__ == "skshapgpu.shap_backend"
    return ours, shap.TreeExplainer(model, data, **options), X[::7], y[::7]


def assert_same(ours: Any, theirs: Any, digits: float = 1e-5) -> None:
    """Compare values, allowing for rounding errors of libraries whose float32 values shap returns."""
    theirs = np.asarray(theirs)
    assert np.shape(ours) == theirs.shape
    np.testing.assert_allclose(ours, theirs, atol=digits * np.abs(theirs).max())


@pytest.mark.filterwarnings("ignore:LightGBM binary classifier with TreeExplainer:UserWarning")
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("n_background", [0, 60])
def test_values_are_those_of_shap(name: str, n_background: int) -> None:
    ours, theirs, X, _ = pair(name, n_background)
    assert isinstance(ours, shap.TreeExplainer)
    expected = theirs.shap_values(X)
    assert_same(ours.shap_values(X), expected)
    np.testing.assert_allclose(ours.expected_value, np.squeeze(theirs.expected_value), rtol=1e-5, atol=1e-6)
    assert_same(ours.shap_values(X[3]), ours.shap_values(X)[3], 0)


def test_double_precision() -> None:
    ours, theirs, X, _ = pair("forest")
    assert_same(ours.shap_values(X.astype(np.float64)), theirs.shap_values(X), 1e-13)


@pytest.mark.parametrize("name", ["forest", "multiclass forest", "xgboost", "lightgbm binary"])
def test_explanations_are_those_of_shap(name: str) -> None:
    ours, theirs, X, _ = pair(name)
    got, expected = ours(X), theirs(X)
    assert_same(got.values, expected.values)
    assert_same(got.base_values, expected.base_values)
    np.testing.assert_array_equal(got.data, expected.data)


@pytest.mark.parametrize("name", ["forest", "binary forest", "xgboost", "lightgbm"])
def test_interactions_are_those_of_shap(name: str) -> None:
    ours, theirs, X, _ = pair(name)
    expected = theirs.shap_interaction_values(X[:8])
    assert_same(ours.shap_interaction_values(X[:8]), expected)
    assert_same(ours(X[:8], interactions=True).values, expected)


@pytest.mark.parametrize(
    ("name", "output"),
    [
        ("boosting", "probability"),
        ("xgboost binary", "probability"),
        ("xgboost binary", "log_loss"),
        ("lightgbm binary", "probability"),
        ("lightgbm binary", "log_loss"),
    ],
)
def test_other_model_outputs(name: str, output: str) -> None:
    ours, theirs, X, y = pair(name, 50, model_output=output)
    assert_same(ours.shap_values(X, y), theirs.shap_values(X, y), 1e-4)
    if output == "log_loss":
        assert ours.expected_value(1) == pytest.approx(float(np.ravel(theirs.expected_value(1))[0]), rel=1e-4)


def test_large_background_is_sampled_as_shap_does() -> None:
    ours, theirs, X, _ = pair("boosting", 400)
    assert_same(ours.shap_values(X), theirs.shap_values(X))
    assert len(ours.data) == 100


def test_data_frames() -> None:
    pd = pytest.importorskip("pandas")
    X = pd.DataFrame(DIABETES, columns=[f"f{i}" for i in range(10)])
    model = RandomForestRegressor(10, random_state=0).fit(X, PROGRESSION)
    ours, theirs = shap.GPUTreeExplainer(model), shap.TreeExplainer(model)
    assert_same(ours.shap_values(X), theirs.shap_values(X))
    assert ours(X).feature_names == theirs(X).feature_names
    assert_same(ours.shap_values(X.iloc[5]), theirs.shap_values(X.iloc[5]))


def test_categorical_splits_follow_predict() -> None:
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.integers(0, 12, 600), rng.normal(size=600)]).astype(float)
    y = np.isin(X[:, 0], [1, 5, 6, 11]) ^ (X[:, 1] > 1)
    model = HistGradientBoostingClassifier(categorical_features=[0], max_iter=20).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours = shap.GPUTreeExplainer(model)
    margin = ours.expected_value + ours.shap_values(X).sum(axis=1)
    np.testing.assert_allclose(margin, model.decision_function(X), atol=1e-6)


def test_without_a_gpu_a_warning_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    if skshapgpu.cuda_info()["available"]:
        pytest.skip("there is a GPU")
    model = RandomForestRegressor(5, random_state=0).fit(DIABETES, PROGRESSION)
    monkeypatch.delenv("SKSHAPGPU_DEVICE")
    with pytest.warns(RuntimeWarning, match="computes on the CPU, as .*SKSHAPGPU_DEVICE=cpu"):
        shap.GPUTreeExplainer(model)
    monkeypatch.setenv("SKSHAPGPU_DEVICE", "cuda")
    with pytest.raises(RuntimeError, match="device='cuda'"):
        shap.GPUTreeExplainer(model)


def test_what_is_not_exact_is_refused() -> None:
    ours, _, X, _ = pair("forest")
    with pytest.raises(NotImplementedError, match="approximate=True is for shap"):
        ours.shap_values(X, approximate=True)
    with pytest.raises(NotImplementedError, match="not tree_limit=3"):
        ours.shap_values(X, tree_limit=3)
    with pytest.raises(NotImplementedError, match="not tree_limit=3"):
        ours.shap_interaction_values(X, tree_limit=3)
    model = RandomForestRegressor(5, random_state=0).fit(DIABETES, PROGRESSION)
    with pytest.raises(NotImplementedError, match="no row of data reaches some node"):
        shap.GPUTreeExplainer(model, DIABETES, feature_perturbation="tree_path_dependent")
    for whole in (-1, 10, 99):
        assert_same(ours.shap_values(X, tree_limit=whole), ours.shap_values(X), 0)
    assert_same(ours.shap_values(X, check_additivity=False), ours.shap_values(X), 0)
    with pytest.raises(skshapgpu.UnsupportedModelError):
        shap.GPUTreeExplainer(ours.model)


def test_data_of_libraries_is_refused() -> None:
    ours, _, X, _ = pair("xgboost")
    with pytest.raises(TypeError, match="X is a DMatrix"):
        ours.shap_values(pytest.importorskip("xgboost").DMatrix(X))
    with pytest.raises(TypeError, match="X is a Pool"):
        ours(pytest.importorskip("catboost").Pool(X))


def test_early_stopping_is_that_of_the_model() -> None:
    model = xgboost(early_stopping_rounds=2, learning_rate=0.9)
    model.fit(
        DIABETES[:300], PROGRESSION[:300], eval_set=[(DIABETES[300:], PROGRESSION[300:])], verbose=False
    )
    assert model.best_iteration + 1 < model.get_booster().num_boosted_rounds()
    ours, theirs = shap.GPUTreeExplainer(model), shap.TreeExplainer(model)
    assert_same(ours.shap_values(DIABETES), theirs.shap_values(DIABETES))
    with pytest.raises(NotImplementedError, match="not tree_limit=-1"):
        ours.shap_values(DIABETES, tree_limit=-1)


def test_pickle() -> None:
    ours, _, X, _ = pair("forest")
    again = pickle.loads(pickle.dumps(ours))
    assert_same(again.shap_values(X), ours.shap_values(X), 0)


def test_a_backend_for_shap_goes_first(tmp_path: Path) -> None:
    folder = tmp_path / "other-1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1\n")
    (folder / "entry_points.txt").write_text("[shap.tree_backends]\ncuda = fractions:Fraction\n")
    from fractions import Fraction

    assert shap.GPUTreeExplainer is Fraction


def test_plots_take_its_explanations() -> None:
    pytest.importorskip("matplotlib").use("Agg")
    ours, _, X, _ = pair("forest")
    shap.plots.bar(ours(X), show=False)


def test_models_that_shap_does_not_read_are_refused() -> None:
    model = AdaBoostClassifier(n_estimators=3).fit(CANCER, MALIGNANT)
    with pytest.raises(shap.utils._exceptions.InvalidModelError, match="not yet supported"):
        shap.GPUTreeExplainer(model)


def test_a_model_that_is_fitted_again_and_background_that_is_changed() -> None:
    """An explainer without an additivity check is compiled when it is first used."""
    model = RandomForestRegressor(3, max_depth=4, random_state=0).fit(DIABETES, PROGRESSION)
    data = DIABETES[:20].copy()
    for options in ({}, {"data": data}):
        explainer = shap.GPUTreeExplainer(model, **options)
        expected = explainer.shap_values(DIABETES)
        model.fit(DIABETES[::-1], -PROGRESSION)
        data[:] = 1000.0
        np.testing.assert_array_equal(explainer.shap_values(DIABETES, check_additivity=False), expected)
        data[:] = DIABETES[:20]
