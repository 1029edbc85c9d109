"""Labels of a log loss belong to the rows that are explained: a series of another index is refused."""

from __future__ import annotations

from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import GradientBoostingRegressor, HistGradientBoostingClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skshapgpu import (
    ShapBarDisplay,
    ShapBeeswarmDisplay,
    ShapDependenceDisplay,
    ShapWaterfallDisplay,
    TreeExplainer,
    cross_val_explain,
    explain,
    shap_importance,
)

mpl.use("Agg")


RNG = np.random.default_rng(0)
X = pd.DataFrame(RNG.normal(size=(90, 3)), columns=list("abc"), index=RNG.permutation(90) + 1000)
Y = pd.Series(np.where(X.a + RNG.normal(size=90) > 0, "yes", "no"), X.index)
MODEL = HistGradientBoostingClassifier(max_iter=5, min_samples_leaf=5).fit(X, Y)
PIPELINE = make_pipeline(StandardScaler(), HistGradientBoostingClassifier(max_iter=5, min_samples_leaf=5))
T, LABELS = X[60:], Y[60:]
OPTIONS: dict[str, Any] = {"data": X[:20], "model_output": "log_loss"}

#: Labels of the rows of T in forms whose index says that they belong to other rows or another order.
OTHERS = {
    "another order": LABELS.sample(frac=1, random_state=1),
    "other rows": Y[:30],
    "an index of positions": LABELS.reset_index(drop=True),
    "a frame in another order": LABELS[::-1].to_frame(),
}


def losses(model: Any, rows: pd.DataFrame, labels: np.ndarray) -> np.ndarray:
    """Return the log loss of each row by the model's own probabilities."""
    probabilities = model.predict_proba(rows)
    return -np.log(probabilities[np.arange(len(rows)), (labels == "yes").astype(int)])


@pytest.mark.parametrize("model", [MODEL, PIPELINE.fit(X, Y)], ids=["model", "pipeline"])
@pytest.mark.parametrize(
    "labels",
    [LABELS, LABELS.to_numpy(), LABELS.tolist(), LABELS.to_frame(), LABELS.astype("category")],
    ids=["series", "array", "list", "frame", "categories"],
)
def test_labels_of_the_rows_give_their_losses(model, labels):
    explanation = explain(model, T, labels, precision="double", **OPTIONS)
    expected = losses(model, T, LABELS.to_numpy())
    assert np.ptp(expected) > 0.5
    np.testing.assert_allclose(
        explanation.base_values + explanation.values.sum(axis=1), expected, rtol=1e-9, atol=1e-12
    )


@pytest.mark.parametrize("model", [MODEL, PIPELINE.fit(X, Y)], ids=["model", "pipeline"])
@pytest.mark.parametrize("labels", OTHERS.values(), ids=OTHERS)
def test_labels_of_other_rows_are_refused(model, labels):
    message = r"y: the index differs from that of X, or has another order.*\.loc\[X\.index\]"
    explainer = TreeExplainer(model, **OPTIONS)
    for explained in (explainer.explain, explainer.shap_values):
        with pytest.raises(ValueError, match=message):
            explained(T, labels)
    with pytest.raises(ValueError, match=message):
        shap_importance(model, T, labels, explain_params=OPTIONS)


def test_rows_without_an_index_take_labels_in_their_order():
    expected = explain(MODEL, T, LABELS.to_numpy(), **OPTIONS).values
    options = {**OPTIONS, "data": X[:20].to_numpy()}
    model = HistGradientBoostingClassifier(max_iter=5, min_samples_leaf=5).fit(X.to_numpy(), Y)
    np.testing.assert_array_equal(explain(model, T.to_numpy(), LABELS, **options).values, expected)


def test_numbers_of_a_regressor_are_labels_too():
    target = X.a * 100 + 1000
    model = GradientBoostingRegressor(n_estimators=5).fit(X, target)
    explanation = explain(model, T, target[T.index], precision="double", **OPTIONS)
    expected = (model.predict(T) - target[T.index]) ** 2
    np.testing.assert_allclose(explanation.base_values + explanation.values.sum(axis=1), expected, rtol=1e-9)
    with pytest.raises(ValueError, match="y: the index differs from that of X"):
        explain(model, T, target[T.index[::-1]], **OPTIONS)


@pytest.mark.parametrize(
    ("display", "arguments"),
    [
        (ShapBarDisplay, ()),
        (ShapBeeswarmDisplay, ()),
        (ShapDependenceDisplay, ("a",)),
        (ShapWaterfallDisplay, ()),
    ],
)
def test_displays_refuse_labels_of_other_rows(display, arguments):
    with pytest.raises(ValueError, match="y: the index differs from that of X"):
        display.from_estimator(MODEL, T, *arguments, y=OTHERS["another order"], **OPTIONS)


def test_cross_validation_refuses_labels_of_other_rows_before_any_fit():
    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("a model was fitted")

    model = HistGradientBoostingClassifier()
    model.__class__ = type("Unfittable", (HistGradientBoostingClassifier,), {"fit": never})
    shuffled = Y.sample(frac=1, random_state=0)
    with pytest.raises(ValueError, match="y: the index differs from that of X"):
        cross_val_explain(model, X, shuffled, cv=3, explain_params=OPTIONS)
    results = cross_val_explain(MODEL, X, Y, cv=3, explain_params=OPTIONS)
    assert np.isfinite(results["explanation"].values).all()
