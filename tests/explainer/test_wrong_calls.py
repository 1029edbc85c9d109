"""Calls that a new user gets wrong: the error says what to write instead."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import make_regression
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.neighbors import KNeighborsRegressor

import skshapgpu
from skshapgpu import TreeExplainer, UnsupportedModelError, explain

X, Y = make_regression(60, 4, random_state=0)
MODEL = RandomForestRegressor(3, random_state=0).fit(X, Y)
CLASSIFIER = RandomForestClassifier(3, random_state=0).fit(X, Y > 0)


def test_background_rows_are_not_labels() -> None:
    with pytest.raises(
        ValueError, match=r"^y is for model_output='log_loss', not 'raw': pass background rows as data=$"
    ):
        explain(MODEL, X, X[:5])
    with pytest.raises(ValueError, match=r"leave it out$"):
        explain(MODEL, X, Y)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (MODEL.predict, r"got the function \S*\.predict: pass the model itself"),
        (lambda rows: rows, "got the function .*<lambda>: pass the model itself"),
        (X, "got a ndarray: pass the model first, then the rows"),
    ],
)
def test_what_is_no_model(model: Any, message: str) -> None:
    for call in (lambda: TreeExplainer(model), lambda: explain(model, MODEL)):
        with pytest.raises(TypeError, match=f"^expected a fitted model, {message}"):
            call()


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (LinearRegression(), r"it is linear, and its SHAP values are coef_ \* \(X - X\.mean\(axis=0\)\)"),
        (KNeighborsRegressor(), "it does not predict a sum of trees"),
    ],
)
def test_models_without_trees(model: Any, reason: str) -> None:
    with pytest.raises(UnsupportedModelError, match=f"^cannot explain a {type(model).__name__}: {reason}$"):
        explain(model.fit(X, Y), X)


def test_advice_for_linear_models_is_right() -> None:
    model = LogisticRegression().fit(X, Y > 0)
    values = model.coef_ * (X - X.mean(axis=0))
    total = model.decision_function(X).mean() + values.sum(axis=1)
    np.testing.assert_allclose(total, model.decision_function(X), rtol=1e-10)


def test_last_place_is_no_class_of_one_output() -> None:
    explanation = explain(CLASSIFIER, X)
    with pytest.raises(IndexError, match=r"one output, so explanation\[\.\.\., 1\] selects none"):
        explanation[..., 1]
    with pytest.raises(IndexError, match="one output, and is indexed by rows and features"):
        explanation[:, :, 1]
    assert (explanation[..., "x1"].values == explanation.values[:, [1]]).all()
    assert explain(CLASSIFIER, X, outputs="all")[..., 1].values.shape == X.shape


def test_missing_files(tmp_path: Any) -> None:
    with pytest.raises(
        FileNotFoundError, match=r"^there is no file '.*none'; TreeExplainer\(model\)\.save\(path\)"
    ):
        TreeExplainer.load(tmp_path / "none")


@pytest.mark.parametrize("ending", [".pkl", ".joblib", ".json"])
def test_names_of_other_formats(tmp_path: Any, ending: str) -> None:
    path = tmp_path / f"explainer{ending}"
    with pytest.raises(ValueError, match=r"ends like a file of another format: name it explainer\.npz"):
        TreeExplainer(MODEL).save(path)
    assert not path.exists()


@pytest.mark.parametrize(
    ("module", "method"), [("pandas", "to_frame"), ("shap", "to_shap")], ids=["pandas", "shap"]
)
def test_libraries_that_are_not_installed(monkeypatch: Any, module: str, method: str) -> None:
    explanation = explain(MODEL, X)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"^{method}\(\) needs {module}: pip install {module}$"):
        getattr(explanation, method)()


def test_displays_without_matplotlib(monkeypatch: Any) -> None:
    explanation = explain(MODEL, X)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"^displays need matplotlib: pip install matplotlib$"):
        skshapgpu.ShapBarDisplay.from_explanation(explanation)
