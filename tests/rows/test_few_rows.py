"""Rows with categories that are explained one by one have the same values as all rows together."""

from __future__ import annotations

from typing import Any

import joblib
import numpy as np
import pytest
from helpers.families import with_categories

from skshapgpu import TreeExplainer
from skshapgpu.batches.fingerprint import fingerprint

pd = pytest.importorskip("pandas")

_random = np.random.default_rng(2)
N = 120


def frame(numbers_as_categories: bool) -> Any:
    colors = _random.choice(["red", "green", "blue", "amber"], N).astype(object)
    colors[::7] = None
    codes: Any = _random.choice([10, 20, 30], N)
    return pd.DataFrame(
        {
            "size": _random.normal(size=N),
            "color": pd.Categorical(colors, ["blue", "never", "red", "amber", "green"]),
            "code": pd.Categorical(codes) if numbers_as_categories else codes,
            "weight": _random.normal(size=N),
        }
    )


def model_of(family: str, X: Any) -> Any:
    y = 5 + 4 * X["color"].isin(["red", "amber"]) + X["size"] * (X["code"].astype(int) == 20)
    return with_categories(family, X, y)


@pytest.mark.parametrize("family", ["sklearn", "lightgbm", "xgboost"])
@pytest.mark.parametrize("numbers", [True, False], ids=["numbers as categories", "numbers"])
def test_rows_one_by_one(family: str, numbers: bool) -> None:
    X = frame(numbers)
    model = model_of(family, X)
    explainer = TreeExplainer(model, device="cpu", n_jobs=1, algorithm="quadrature")
    all_values = explainer.shap_values(X)
    assert np.abs(all_values[:, 1]).max() > 0.1
    for size in (1, 3, 8, 9):
        parts = [explainer.shap_values(X.iloc[start : start + size]) for start in range(0, N, size)]
        np.testing.assert_array_equal(np.concatenate(parts), all_values)
    margin = np.array(
        [explainer.expected_value + explainer.shap_values(X.iloc[[i]]).sum() for i in range(20)]
    )
    np.testing.assert_allclose(margin, model.predict(X.iloc[:20]), rtol=1e-5)
    other = X.assign(color=X["color"].cat.reorder_categories(["red", "green", "amber", "blue", "never"]))
    if family != "xgboost" or not explainer._reader.schema.takes_codes:  # others match categories by value
        values = [explainer.shap_values(other.iloc[[i]]) for i in range(N)]
        np.testing.assert_array_equal(np.concatenate(values), all_values)


@pytest.mark.parametrize("family", ["sklearn", "lightgbm", "xgboost"])
def test_explaining_changes_neither_pickles_nor_fingerprints(family: str) -> None:
    X = frame(False)
    explainer = TreeExplainer(model_of(family, X), device="cpu")
    before = fingerprint(explainer), joblib.hash(explainer._reader.schema)
    explainer.shap_values(X.iloc[:1])
    explainer.shap_values(X)
    assert (fingerprint(explainer), joblib.hash(explainer._reader.schema)) == before


def test_categories_that_training_did_not_have() -> None:
    X = frame(False)
    model = model_of("lightgbm", X)
    explainer = TreeExplainer(model, device="cpu", algorithm="quadrature")
    color = X["color"].cat.rename_categories({"red": "violet"})
    other = X.assign(color=color)
    values = np.concatenate([explainer.shap_values(other.iloc[[i]]) for i in range(N)])
    np.testing.assert_array_equal(values, explainer.shap_values(other))
    np.testing.assert_allclose(explainer.expected_value + values.sum(axis=1), model.predict(other), rtol=1e-5)
