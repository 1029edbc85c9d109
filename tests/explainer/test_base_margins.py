"""Margins from which predictions of rows start: base values belong to the library's own predictions."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers.families import forest, library

from skshapgpu import TreeExplainer, cross_val_explain, explain, explain_interactions
from skshapgpu.adapters import adapt

rng = np.random.default_rng(0)
X = pd.DataFrame(rng.normal(size=(200, 4)), columns=list("abcd"), index=np.arange(200) + 5)
EXPOSURE = rng.uniform(0.1, 20, 200)
COUNTS = rng.poisson(EXPOSURE * np.exp(0.5 * X["a"] + 1)).astype(float)
THREE = np.digitize(X["a"] + X["b"], [-0.5, 0.5])
ROWS, BACKGROUND = X.iloc[:7], X.iloc[50:70]
MARGINS = rng.normal(size=(7, 3)) * 4


def xgboost_model(objective: str, y: Any, **options: Any) -> Any:
    xgboost = library("xgboost")
    parameters = {"objective": objective, "max_depth": 3, "base_score": 0.3, "seed": 0, **options}
    return xgboost.train(parameters, xgboost.DMatrix(X, y, base_margin=options.pop("margin", None)), 8)


def own_margin(model: Any, base_margin: np.ndarray) -> np.ndarray:
    rows = library("xgboost").DMatrix(ROWS, base_margin=base_margin)
    return model.predict(rows, output_margin=True)


@pytest.mark.parametrize("data", [None, BACKGROUND], ids=["path-dependent", "interventional"])
@pytest.mark.parametrize("objective", ["count:poisson", "binary:logistic", "reg:squarederror"])
def test_base_margin_of_xgboost(objective: str, data: Any) -> None:
    y = (COUNTS > 9) if objective == "binary:logistic" else COUNTS
    model = xgboost_model(objective, y)
    offset = 10 + np.log(EXPOSURE[:7])
    explainer = TreeExplainer(model, data, precision="double")
    explanation = explainer.explain(ROWS, base_margin=offset)
    assert explanation.base_values.shape == (7,) and explanation.checked_against == "model"
    np.testing.assert_array_equal(explanation.values, explainer.shap_values(ROWS))
    total = explanation.base_values + explanation.values.sum(axis=1)
    # XGBoost adds up 9 numbers of at most 20 in float32.
    np.testing.assert_allclose(total, own_margin(model, offset), rtol=0, atol=9 * 20 * 2.0**-24)
    intercept = adapt(model).ensemble.intercept[0]
    assert abs(intercept) > 0.2
    expected = explainer.expected_value - intercept + offset
    np.testing.assert_allclose(explanation.base_values, expected, rtol=1e-14)


def test_several_outputs_and_both_classes() -> None:
    model = xgboost_model("multi:softprob", THREE, num_class=3)
    explanation = explain(model, ROWS, base_margin=MARGINS, precision="double")
    total = explanation.base_values + explanation.values.sum(axis=1)
    np.testing.assert_allclose(total, own_margin(model, MARGINS), rtol=0, atol=9 * 20 * 2.0**-24)
    one = explanation[:, :, 2]
    np.testing.assert_array_equal(one.base_values, explanation.base_values[:, 2])
    model = xgboost_model("binary:logistic", COUNTS > 9)
    both = explain(model, ROWS, base_margin=MARGINS[:, 0], outputs="all")
    single = explain(model, ROWS, base_margin=MARGINS[:, :1])
    np.testing.assert_allclose(both.base_values, np.outer(single.base_values, [-1, 1]), rtol=1e-14)


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("linear", [False, True])
def test_init_score_of_lightgbm(linear: bool) -> None:
    lightgbm = library("lightgbm")
    start = np.log(EXPOSURE)
    target = np.log1p(COUNTS) if linear else COUNTS
    options = {"objective": "regression" if linear else "poisson", "num_leaves": 6, "verbose": -1}
    data = lightgbm.Dataset(X, target, init_score=start)
    model = lightgbm.train(options | {"linear_tree": linear}, data, 10)
    explanation = explain(model, ROWS, data=BACKGROUND, base_margin=start[:7], precision="double")
    total = explanation.base_values + explanation.values.sum(axis=1)
    np.testing.assert_allclose(total, model.predict(ROWS, raw_score=True) + start[:7], rtol=1e-12)
    assert explanation.checked_against == "model"


def test_consumers_of_base_values_of_rows(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from skshapgpu.displays import ShapWaterfallDisplay

    model = xgboost_model("count:poisson", COUNTS)
    explainer = TreeExplainer(model)
    offset = pd.Series(np.log(EXPOSURE[:7]), index=ROWS.index)
    explanation = explainer.explain(ROWS, base_margin=offset)
    assert "on average" in repr(explanation)
    np.testing.assert_array_equal(explanation[2:4].base_values, explanation.base_values[2:4])
    np.testing.assert_array_equal(explanation.loc[8].base_values, explanation.base_values[3])
    assert explanation.to_frame().shape == (7, 4)
    summed = explanation.sum_by({"ab": ["a", "b"]})
    np.testing.assert_array_equal(summed.base_values, explanation.base_values)
    assert ShapWaterfallDisplay.from_explanation(explanation, row=3) is not None
    restored = pickle.loads(pickle.dumps(explanation))
    np.testing.assert_array_equal(restored.base_values, explanation.base_values)
    path = tmp_path / "explainer.npz"
    explainer.save(path)
    loaded = TreeExplainer.load(path).explain(ROWS, base_margin=offset)
    np.testing.assert_array_equal(loaded.base_values, explanation.base_values)


def test_what_is_refused() -> None:
    model = xgboost_model("binary:logistic", COUNTS > 9)
    offset = np.zeros(7)
    with pytest.raises(ValueError, match=r"models of XGBoost and LightGBM, not for this sklearn model"):
        explain(forest().fit(X, COUNTS), ROWS, base_margin=offset)
    for output, y in (("probability", None), ("log_loss", [True] * 7)):
        with pytest.raises(ValueError, match=rf"model_output='{output}' explains a function of the margin"):
            explain(model, ROWS, y, data=BACKGROUND, model_output=output, base_margin=offset)
    for wrong, error, message in (
        (np.zeros(6), ValueError, r"must have the shape \(7,\) or \(7, 1\).*not \(6,\)"),
        (np.zeros((7, 2)), ValueError, "must have the shape"),
        (np.full(7, np.inf), ValueError, "must be finite, but row 0"),
        (["a"] * 7, ValueError, "base_margin holds text"),
        (["a", *offset[1:]], ValueError, "base_margin holds text"),
        (np.array([None, "a", *offset[2:]], object), ValueError, "must be numbers"),
        (offset + 1j, ValueError, "Complex data not supported: base_margin"),
        (np.zeros(7, "datetime64[s]"), TypeError, "base_margin holds dates"),
        (np.ma.masked_equal(offset, 0), TypeError, "masked array"),
        (pd.Series(offset, index=ROWS.index[::-1]), ValueError, "index differs from that of X"),
    ):
        with pytest.raises(error, match=message):
            explain(model, ROWS, base_margin=wrong)
    with pytest.raises(TypeError, match="base_margin"):
        explain(model, ROWS, init_score=offset)
    with pytest.raises(TypeError, match=r"explain\(..., base_margin=\) returns a base value for each row"):
        explain_interactions(model, ROWS, base_margin=offset)
    with pytest.raises(TypeError, match="base_margin"):
        cross_val_explain(forest(), X, COUNTS, explain_params={"base_margin": offset})
    rows = library("xgboost").DMatrix(ROWS, base_margin=offset)
    with pytest.raises(ValueError, match=r"pass it as explain\(..., base_margin=\)"):
        explain(model, rows)
