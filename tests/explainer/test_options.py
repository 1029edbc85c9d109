"""Invalid numbers of threads and rows raise errors that name the option, before any work starts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor

import skshapgpu
from skshapgpu import (
    ShapBarDisplay,
    ShapBoruta,
    ShapInteractionTransformer,
    ShapRFECV,
    ShapSelector,
    ShapTransformer,
    TreeExplainer,
    cross_val_explain,
    explain,
    explain_batches,
    shap_importance,
)

X, Y = load_diabetes(return_X_y=True)


@pytest.fixture(scope="module")
def forest() -> RandomForestRegressor:
    return RandomForestRegressor(3, max_depth=3, random_state=0).fit(X, Y)


class NeverFitted(RegressorMixin, BaseEstimator):
    """Model that must not be fitted."""

    def fit(self, X: Any, y: Any) -> NeverFitted:
        raise AssertionError("options are refused before any fit")


OF_FITTED = {
    "TreeExplainer": lambda model, n_jobs: TreeExplainer(model, n_jobs=n_jobs),
    "explain": lambda model, n_jobs: explain(model, X, n_jobs=n_jobs),
    "shap_importance": lambda model, n_jobs: shap_importance(model, X, n_jobs=n_jobs),
    "display": lambda model, n_jobs: ShapBarDisplay.from_estimator(model, X, n_jobs=n_jobs),
    "explain_batches": lambda model, n_jobs: explain_batches(model, [X], "no_such_folder/x", n_jobs=n_jobs),
}

NEEDED = {"display": "matplotlib", "explain_batches": "pyarrow"}

OF_FITS = {
    "cross_val_explain": lambda n_jobs: cross_val_explain(NeverFitted(), X, Y, n_jobs=n_jobs),
    "explain_params": lambda n_jobs: cross_val_explain(
        NeverFitted(), X, Y, explain_params={"n_jobs": n_jobs}
    ),
    "ShapSelector": lambda n_jobs: ShapSelector(NeverFitted(), cv=2, n_jobs=n_jobs).fit(X, Y),
    "ShapBoruta": lambda n_jobs: ShapBoruta(NeverFitted(), n_jobs=n_jobs).fit(X, Y),
    "ShapRFECV": lambda n_jobs: ShapRFECV(NeverFitted(), n_jobs=n_jobs).fit(X, Y),
    "ShapTransformer": lambda n_jobs: ShapTransformer(NeverFitted(), n_jobs=n_jobs).fit(X, Y),
    "ShapInteractionTransformer": lambda n_jobs: ShapInteractionTransformer(NeverFitted(), n_jobs=n_jobs).fit(
        X, Y
    ),
}

REFUSED = [
    ("2", TypeError, "n_jobs must be an int or None, not '2'"),
    (2.0, TypeError, "n_jobs must be an int or None, not 2.0"),
    (True, TypeError, "n_jobs must be an int or None, not True"),
    (0, ValueError, "n_jobs must not be 0: None or 1 is one thread"),
]


@pytest.mark.parametrize(("n_jobs", "error", "message"), REFUSED)
@pytest.mark.parametrize("way", OF_FITTED)
def test_threads_of_fitted_models(
    way: str, n_jobs: Any, error: type[Exception], message: str, forest: RandomForestRegressor
) -> None:
    if way in NEEDED:
        pytest.importorskip(NEEDED[way])
    with pytest.raises(error, match=message):
        OF_FITTED[way](forest, n_jobs)


@pytest.mark.parametrize(("n_jobs", "error", "message"), REFUSED)
@pytest.mark.parametrize("way", OF_FITS)
def test_threads_are_refused_before_fits(way: str, n_jobs: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        OF_FITS[way](n_jobs)


@pytest.mark.parametrize(
    "options",
    [
        {"algorithm": "no such"},
        {"precision": "half"},
        {"memory_limit": "lots"},
        {"device": "tpu"},
        {"outputs": 2},
    ],
    ids=str,
)
@pytest.mark.parametrize("cls", [ShapTransformer, ShapInteractionTransformer])
def test_options_of_transformers_are_refused_before_the_fit(cls: type, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        cls(NeverFitted(), **options).fit(X, Y)


@pytest.mark.parametrize("n_jobs", [None, 1, np.int64(2), -1, -100])
def test_threads_that_joblib_counts(n_jobs: Any, forest: RandomForestRegressor) -> None:
    np.testing.assert_array_equal(
        TreeExplainer(forest, n_jobs=n_jobs).shap_values(X[:100]), TreeExplainer(forest).shap_values(X[:100])
    )
    assert skshapgpu.explain(forest, X[:5], n_jobs=n_jobs).shape == (5, 10)
