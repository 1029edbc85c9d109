"""ShapInteractionDisplay: figures of all pairs and of chosen ones."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from helpers.displays import assert_readable
from sklearn.datasets import load_diabetes, load_iris
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

from skshapgpu import ShapInteractionDisplay, TreeExplainer
from skshapgpu.displays.base import NEGATIVE, POSITIVE

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


def drawn_names(display: ShapInteractionDisplay) -> list[str]:
    return [label.get_text() for label in display.ax_.get_xticklabels()]


def test_pairs_are_whole_indices_and_the_diagonal_main_effects(explainer: Any) -> None:
    display = ShapInteractionDisplay.from_explanation(explainer.explain_interactions(DIABETES))
    names = drawn_names(display)
    assert names == [label.get_text() for label in display.ax_.get_yticklabels()]
    order = [int(name[1:]) for name in names]
    expected = np.abs(explainer.shap_interaction_values(DIABETES)).mean(axis=0) * (2 - np.eye(10))
    np.testing.assert_allclose(drawn(display), expected[np.ix_(order, order)], atol=1e-5)
    assert (np.diff(expected.sum(axis=0)[order]) <= 1e-5).all()
    assert display.figure_ is display.ax_.figure and display.figure_.axes == [display.ax_]
    (scale,) = display.ax_.child_axes
    assert scale.get_ylabel() == "mean |interaction|\n(square-root scale)"


def test_pairs_not_asked_for_are_blank(explainer: Any) -> None:
    explanation = explainer.explain_interactions(DIABETES, interactions=[(2, 8), (0, 2)])
    image = drawn(ShapInteractionDisplay.from_explanation(explanation))
    assert np.isfinite(image).sum() == 4
    np.testing.assert_allclose(image[0, 1], explanation.importance()[0])
    top = explainer.explain_interactions(DIABETES, interactions=3)
    image = drawn(ShapInteractionDisplay.from_explanation(top, max_features=None))
    assert np.isfinite(image).sum() == 6 and image.shape == (10, 10)
    display = ShapInteractionDisplay.from_explanation(top)
    in_a_pair = np.unique(top.interactions)
    assert sorted(drawn_names(display)) == [f"x{i}" for i in in_a_pair]
    (unknown,) = (image for image in display.ax_.images if image is not display.image_)
    np.testing.assert_array_equal(~np.ma.getmaskarray(unknown.get_array()), np.isnan(drawn(display)))
    assert [text.get_text() for text in display.ax_.get_legend().get_texts()] == ["not computed"]
    assert ShapInteractionDisplay.from_estimator(explainer, DIABETES).ax_.get_legend() is None


def test_diagonal_is_optional(explainer: Any) -> None:
    explanation = explainer.explain_interactions(DIABETES)
    display = ShapInteractionDisplay.from_explanation(explanation, diagonal=False)
    image = drawn(display)
    np.testing.assert_array_equal(np.isnan(image), np.eye(10, dtype=bool))
    assert display.image_.norm.vmax == pytest.approx(explanation.importance().max())
    assert display.ax_.get_legend() is None and len(display.ax_.images) == 1, "it is not unknown, but hidden"
    sums = np.nansum(image, axis=0)
    assert (np.diff(sums) <= 1e-5).all(), "features are in the order of their interactions"
    with pytest.raises(TypeError, match="diagonal must be"):
        display.plot(diagonal=1)


def test_numbers_in_few_cells(explainer: Any) -> None:
    explanation = explainer.explain_interactions(DIABETES)
    display = ShapInteractionDisplay.from_explanation(explanation, max_features=5)
    assert_readable(display.figure_)
    for text, value in zip(display.texts_, drawn(display).ravel(), strict=True):
        column, row = map(round, text.get_position())
        assert drawn(display)[row, column] == value
        assert float(text.get_text()) == pytest.approx(value, rel=5e-3)
    assert ShapInteractionDisplay.from_explanation(explanation).texts_ == []
    tiny = ShapInteractionDisplay(np.array([[2.0, 7e-18], [7e-18, 1.0]]), ["a", "b"], error=1e-12).plot()
    assert [text.get_text() for text in tiny.texts_] == ["2.00", "0", "0", "1.00"]


def test_max_features(explainer: Any) -> None:
    explanation = explainer.explain_interactions(DIABETES)
    display = ShapInteractionDisplay.from_explanation(explanation, max_features=3)
    assert drawn(display).shape == (3, 3)
    everything = drawn_names(ShapInteractionDisplay.from_explanation(explanation))
    assert drawn_names(display) == everything[:3]
    assert drawn_names(display.plot(max_features=5)) == everything[:5]
    assert drawn_names(display.plot(max_features=None)) == everything
    with pytest.raises(ValueError, match="max_features must be at least 1, not 0"):
        display.plot(max_features=0)
    with pytest.raises(ValueError, match="max_features must be at least 1, not 0"):
        ShapInteractionDisplay.from_explanation(explanation, max_features=0)


def test_outputs(multiclass: Any) -> None:
    explanation = multiclass.explain_interactions(IRIS)
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


@pytest.mark.parametrize("pairs", ["occurring", 3])
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


def test_colours() -> None:
    display = ShapInteractionDisplay(np.array([[4.0, np.nan], [np.nan, 0.0]]), ["a", "b"]).plot()
    colors = display.image_.to_rgba(display.image_.get_array())
    np.testing.assert_allclose(colors[0, 0], matplotlib.colors.to_rgba(POSITIVE), atol=1e-6)
    np.testing.assert_allclose(colors[1, 1], matplotlib.colors.to_rgba(NEGATIVE), atol=1e-6)
    assert colors[0, 1, 3] == 0, "a cell without a value shows the grey cell below it"
    pixels = assert_readable(display.figure_)
    column, row = display.ax_.transData.transform((1, 0)).astype(int)
    np.testing.assert_allclose(pixels[row, column, :3] / 255, 0.9, atol=0.01)


def test_drawn_again() -> None:
    display = ShapInteractionDisplay(np.eye(2), ["a", "b"])
    assert display.plot() is display
    first = display.ax_
    assert display.plot(colorbar=False).ax_ is not first


def test_triples_are_refused(explainer: Any) -> None:
    explanation = explainer.explain_interactions(DIABETES, interactions=1)
    triples = type(explanation)(
        **{**vars(explanation), "interactions": np.array([[0, 1, 2]]), "single_values": None}
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
