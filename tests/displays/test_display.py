"""ShapInteractionDisplay: figures of dense and other explanations."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_diabetes, load_iris
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

from skshapgpu import ShapInteractionDisplay, TreeExplainer

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

from matplotlib import pyplot  # noqa: E402

DIABETES, PROGRESSION = load_diabetes(return_X_y=True)
IRIS, SPECIES = load_iris(return_X_y=True)


@pytest.fixture(scope="module")
def explainer() -> TreeExplainer:
    return TreeExplainer(RandomForestRegressor(8, max_depth=3, random_state=0).fit(DIABETES, PROGRESSION))


@pytest.fixture(scope="module")
def multiclass() -> TreeExplainer:
    return TreeExplainer(RandomForestClassifier(8, random_state=0).fit(IRIS, SPECIES))


def drawn(display: ShapInteractionDisplay) -> np.ndarray:
    return np.ma.filled(display.image_.get_array(), np.nan)


def test_dense_and_occurring_pairs_give_one_picture(explainer: Any) -> None:
    dense = explainer.explain_interactions(DIABETES)
    pictures = [
        ShapInteractionDisplay.from_explanation(explanation)
        for explanation in (dense, explainer.explain_interactions(DIABETES, interactions="occurring"))
    ]
    for display in pictures:
        names = [label.get_text() for label in display.ax_.get_xticklabels()]
        assert names == [label.get_text() for label in display.ax_.get_yticklabels()] == display.feature_names
        order = [int(name[1:]) for name in names]
        expected = np.abs(dense.values).mean(axis=0) * (2 - np.eye(10))
        np.testing.assert_allclose(drawn(display), expected[np.ix_(order, order)], atol=1e-5)
        assert (np.diff(expected.sum(axis=0)[order]) <= 1e-5).all()
        assert display.figure_ is display.ax_.figure and len(display.figure_.axes) == 2


def test_pairs_not_asked_for_are_blank(explainer: Any) -> None:
    explanation = explainer.explain_interactions(DIABETES, interactions=[(2, 8), (0, 2)])
    image = drawn(ShapInteractionDisplay.from_explanation(explanation))
    assert np.isfinite(image).sum() == 4
    np.testing.assert_allclose(image[0, 1], explanation.importance()[0])
    top = explainer.explain_interactions(DIABETES, interactions=3)
    image = drawn(ShapInteractionDisplay.from_explanation(top, max_features=None))
    assert np.isfinite(image).sum() == 6 and image.shape == (10, 10)


def test_max_features(explainer: Any) -> None:
    explanation = explainer.explain_interactions(DIABETES)
    display = ShapInteractionDisplay.from_explanation(explanation, max_features=3)
    assert drawn(display).shape == (3, 3)
    everything = ShapInteractionDisplay.from_explanation(explanation).feature_names
    assert display.feature_names == everything[:3]
    with pytest.raises(ValueError, match="max_features must be at least 1, not 0"):
        ShapInteractionDisplay.from_explanation(explanation, max_features=0)


@pytest.mark.parametrize("pairs", ["all", "occurring"])
def test_outputs(multiclass: Any, pairs: str) -> None:
    explanation = multiclass.explain_interactions(IRIS, interactions=pairs)
    one = drawn(ShapInteractionDisplay.from_explanation(explanation[..., 1], max_features=None))
    np.testing.assert_array_equal(
        drawn(ShapInteractionDisplay.from_explanation(explanation, output=1, max_features=None)), one
    )
    np.testing.assert_array_equal(
        drawn(ShapInteractionDisplay.from_explanation(explanation, output="1", max_features=None)), one
    )
    total = ShapInteractionDisplay.from_explanation(explanation)
    means = np.abs(multiclass.shap_interaction_values(IRIS)).mean(axis=0).sum(axis=2) * (2 - np.eye(4))
    np.testing.assert_allclose(drawn(total).sum(), means.sum(), rtol=1e-6)


@pytest.mark.parametrize("pairs", ["all", "occurring", 3])
@pytest.mark.parametrize("output", [0, 1, "x2"])
def test_an_output_of_one_output_is_not_a_pair(explainer: Any, pairs: Any, output: Any) -> None:
    explanation = explainer.explain_interactions(DIABETES, interactions=pairs)
    with pytest.raises(ValueError, match="of one output: leave it out"):
        ShapInteractionDisplay.from_explanation(explanation, output=output)


def test_from_estimator(explainer: Any) -> None:
    model = RandomForestRegressor(8, max_depth=3, random_state=0).fit(DIABETES, PROGRESSION)
    figure, ax = pyplot.subplots()
    display = ShapInteractionDisplay.from_estimator(
        model, DIABETES, ax=ax, max_features=4, cmap="magma", colorbar=False, device="cpu"
    )
    assert display.ax_ is ax and display.figure_ is figure and figure.axes == [ax]
    assert display.image_.get_cmap().name == "magma"
    expected = ShapInteractionDisplay.from_explanation(
        explainer.explain_interactions(DIABETES), max_features=4
    )
    np.testing.assert_allclose(drawn(display), drawn(expected), atol=1e-5)
    banzhaf = ShapInteractionDisplay.from_estimator(model, DIABETES, index="BII", max_features=4)
    assert not np.allclose(drawn(banzhaf), drawn(expected))


def test_drawn_again() -> None:
    display = ShapInteractionDisplay(np.eye(2), ["a", "b"])
    assert display.plot() is display
    first = display.ax_
    assert display.plot(colorbar=False).ax_ is not first


def test_triples_are_refused(explainer: Any) -> None:
    explanation = explainer.explain_interactions(DIABETES, interactions=1)
    triples = type(explanation)(
        **{**vars(explanation), "interactions": np.array([[0, 1, 2]]), "feature_values": None}
    )
    with pytest.raises(ValueError, match="the explanation is of triples"):
        ShapInteractionDisplay.from_explanation(triples)


def test_only_interactions_are_drawn(explainer: Any) -> None:
    with pytest.raises(TypeError, match="must be an InteractionExplanation, not an Explanation: pass the"):
        ShapInteractionDisplay.from_explanation(explainer.explain(DIABETES))


def test_without_matplotlib(explainer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for draw in (
        lambda: ShapInteractionDisplay(np.eye(2), ["a", "b"]).plot(),
        lambda: ShapInteractionDisplay.from_estimator("no model", DIABETES),
    ):
        with pytest.raises(ImportError, match="pip install matplotlib"):
            draw()
