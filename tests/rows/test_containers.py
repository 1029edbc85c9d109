"""X as DMatrix of XGBoost, Dataset of LightGBM and Pool of CatBoost: explained exactly, or rejected."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from helpers.families import (
    assert_adds_up,
    frame_with_categories,
    library,
    raw_prediction,
    regressor,
    with_categories,
)
from sklearn.ensemble import RandomForestRegressor

from skshapgpu import TreeExplainer, explain
from skshapgpu._rows.tables import table

_RNG = np.random.default_rng(0)
X = _RNG.normal(size=(120, 3))
X[_RNG.random(X.shape) < 0.2] = 0
Y = 2 * X[:, 0] + X[:, 1] ** 2 - 3 * (X[:, 2] == 0)
HOLES = np.where(_RNG.random(X.shape) < 0.2, np.nan, X)
NAMES = ["a", "b", "c"]


def rows_of(kind: str, values: np.ndarray) -> Any:
    if kind == "frame":
        return library("pandas").DataFrame(values, columns=NAMES)
    return values if kind == "array" else sp.csr_matrix(np.nan_to_num(values))


KINDS = ["array", "frame", "sparse"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("missing", [np.nan, 0.0, 3.0])
def test_dmatrix(kind: str, missing: float) -> None:
    """The DMatrix determines which number means missing, whatever the wrapper's setting."""
    xgboost = library("xgboost")
    options = {"n_estimators": 8, "n_jobs": 1, "missing": 0.0 if missing == 3 else np.nan}
    model = xgboost.XGBRegressor(**options).fit(rows_of("frame" if kind == "frame" else "array", HOLES), Y)
    values = HOLES if np.isnan(missing) else np.where(np.isnan(HOLES), 3.0, HOLES)
    matrix = xgboost.DMatrix(rows_of(kind, values), missing=missing)
    expected = model.get_booster().predict(matrix, output_margin=True)
    for of in (model.get_booster(), model):
        explanation = assert_adds_up(of, matrix, expected)
    if kind == "frame":
        assert explanation.feature_names == tuple(NAMES)
        with pytest.raises(ValueError, match="yet now missing:\n- a"):
            explain(model, xgboost.DMatrix(rows_of(kind, values).rename(columns={"a": "A"})))


def test_zeros_of_a_dmatrix_are_numbers_where_they_are_stored() -> None:
    xgboost = library("xgboost")
    model = regressor("xgboost").fit(X, Y)
    dense, sparse = xgboost.DMatrix(X), xgboost.DMatrix(sp.csr_matrix(X))
    predicted = [model.get_booster().predict(matrix, output_margin=True) for matrix in (dense, sparse)]
    assert np.abs(predicted[0] - predicted[1]).max() > 0.1
    for matrix, expected in zip((dense, sparse), predicted, strict=True):
        assert_adds_up(model, matrix, expected)


def test_dmatrix_as_background_and_in_other_calls() -> None:
    xgboost = library("xgboost")
    model = regressor("xgboost").fit(HOLES, Y)
    rows, background = HOLES.astype(np.float32)[:9], HOLES.astype(np.float32)[60:]
    explainer = TreeExplainer(model, xgboost.DMatrix(background))
    expected = TreeExplainer(model, background)
    assert explainer.expected_value == expected.expected_value
    matrix = xgboost.DMatrix(rows)
    np.testing.assert_array_equal(explainer.shap_values(matrix), expected.shap_values(rows))
    matrices, same = TreeExplainer(model).shap_interaction_values(matrix), TreeExplainer(model)
    np.testing.assert_array_equal(matrices, same.shap_interaction_values(rows))


def test_dataset() -> None:
    lightgbm = library("lightgbm")
    table, y = frame_with_categories()
    for model, rows in (
        (with_categories("lightgbm", table, y), table),
        (regressor("lightgbm").fit(HOLES, Y), HOLES),
        (regressor("lightgbm").fit(X, Y), sp.csr_matrix(X)),
    ):
        waiting = lightgbm.Dataset(rows)
        assert_adds_up(model, waiting, raw_prediction(model, rows))
        kept = lightgbm.Dataset(rows, free_raw_data=False, params={"verbose": -1, "min_data_in_bin": 1})
        assert_adds_up(model, kept, raw_prediction(model, rows))
        assert_adds_up(model, kept.construct(), raw_prediction(model, rows))
        with pytest.raises(
            TypeError, match=r"lightgbm.Dataset, which has no raw data.*pass the array or data"
        ):
            explain(model, waiting.construct())
    kept = lightgbm.Dataset(HOLES, free_raw_data=False, params={"verbose": -1}).construct()
    part = kept.subset([5, 3, 80])
    with pytest.raises(TypeError, match="no raw data"):
        explain(model, part)
    model = regressor("lightgbm").fit(HOLES, Y)
    assert_adds_up(model, part.construct(), raw_prediction(model, HOLES[[3, 5, 80]]))


@pytest.mark.parametrize("kind", KINDS)
def test_pool(kind: str) -> None:
    catboost = library("catboost")
    model = regressor("catboost").fit(rows_of("frame", HOLES), Y)
    rows = rows_of(kind, HOLES)
    pool = catboost.Pool(rows, Y)
    explanation = assert_adds_up(model, pool, raw_prediction(model, pool))
    assert explanation.feature_names == tuple(NAMES)
    of_pool, of_rows = (TreeExplainer(model, container).shap_values(container) for container in (pool, rows))
    np.testing.assert_allclose(of_pool, of_rows, rtol=0, atol=1e-6)
    if kind == "frame":
        with pytest.raises(ValueError, match="yet now missing:\n- a"):
            explain(model, catboost.Pool(rows.rename(columns={"a": "A"})))


def test_containers_whose_numbers_are_lost_are_refused() -> None:
    xgboost, catboost = library("xgboost"), library("catboost")
    boosted, cat = regressor("xgboost").fit(HOLES, Y), regressor("catboost").fit(HOLES, Y)
    table, y = frame_with_categories()
    quantized = catboost.Pool(HOLES, Y)
    quantized.quantize()
    categorical = with_categories("xgboost", table, y)
    texts = table.assign(color=table["color"].astype(str))
    for model, given, why in (
        (boosted, xgboost.QuantileDMatrix(HOLES), "xgboost.QuantileDMatrix, which holds bins"),
        (categorical, xgboost.DMatrix(table, enable_categorical=True), "codes of its own for categories"),
        (categorical, xgboost.DMatrix(HOLES), "or has categories"),
        (RandomForestRegressor(2).fit(X, Y), xgboost.DMatrix(X), "not from XGBoost"),
        (cat, quantized, "catboost.Pool, which holds categories, texts, embeddings or bins"),
        (cat, catboost.Pool(texts, cat_features=["color"]), "which holds categories"),
    ):
        with pytest.raises(TypeError, match=f"{why}.*pass the array or data frame that it was made from"):
            explain(model, given)
        with pytest.raises(TypeError, match=why):
            TreeExplainer(model, given)


def test_containers_with_a_margin_of_their_own_are_refused() -> None:
    xgboost, catboost = library("xgboost"), library("catboost")
    margin = np.full(len(X), 5.0)
    with pytest.raises(ValueError, match="base_margin, from which predictions start"):
        explain(regressor("xgboost").fit(X, Y), xgboost.DMatrix(X, base_margin=margin))
    with pytest.raises(ValueError, match="baseline, from which predictions start"):
        explain(regressor("catboost").fit(X, Y), catboost.Pool(X, baseline=margin[:, np.newaxis]))


def test_containers_are_refused_where_rows_are_selected() -> None:
    xgboost = library("xgboost")
    with pytest.raises(
        TypeError, match=r"xgboost\.DMatrix, which this function does not support: pass the array"
    ):
        table(xgboost.DMatrix(X))
