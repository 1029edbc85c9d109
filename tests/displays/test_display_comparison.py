"""ShapComparisonDisplay: what is drawn, and that it can be read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.displays import assert_readable, row_names

from skshapgpu import Explanation, ShapComparisonDisplay, compare_explanations

pytest.importorskip("matplotlib").use("Agg")


def points(display: Any) -> np.ndarray:
    """Return the places of the points: (n_rows, 2)."""
    return np.column_stack([line.get_xdata() for line in display.points_])


def test_points_are_the_importances(diabetes: Explanation) -> None:
    reference, current = diabetes[:300], diabetes[200:]
    comparison = compare_explanations(reference, current)
    display = ShapComparisonDisplay.from_explanations(reference, current, max_features=None)
    importances = np.column_stack([comparison.reference_importance, comparison.current_importance])
    order = np.argsort(-importances.max(axis=1))
    assert row_names(display) == [comparison.feature_names[i] for i in order]
    np.testing.assert_array_equal(points(display), importances[order])
    for text, place in zip(display.texts_, order):
        assert float(text.get_text().removeprefix("PSI ")) == pytest.approx(comparison.psi[place], rel=0.01)
    ends = np.array([path.vertices[:, 0] for path in display.lines_.get_paths()])
    np.testing.assert_allclose(np.sort(ends), np.sort(importances[order]))
    label = display.ax_.get_xlabel()
    assert label.startswith("mean |SHAP value|\n(nDCG of the rankings: ")
    legend = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert legend == ["reference (300 rows)", "current (242 rows)"]
    assert display.figure_ is display.ax_.figure
    assert_readable(display.figure_)


def test_other_features_are_added_up(diabetes: Explanation) -> None:
    comparison = compare_explanations(diabetes[:300], diabetes[200:])
    display = ShapComparisonDisplay.from_comparison(comparison, max_features=3)
    importances = np.column_stack([comparison.reference_importance, comparison.current_importance])
    others = np.argsort(-importances.max(axis=1))[3:]
    assert row_names(display)[3:] == ["7 other features"]
    np.testing.assert_allclose(points(display)[3], importances[others].sum(axis=0))
    largest = float(display.texts_[3].get_text().removeprefix("PSI up to "))
    assert largest == pytest.approx(comparison.psi[others].max(), rel=0.01)
    assert_readable(display.figure_)


def test_outputs_are_summed(wine: Explanation) -> None:
    comparison = compare_explanations(wine[::2], wine[1::2])
    display = ShapComparisonDisplay.from_comparison(comparison, max_features=2, color=("red", "black"))
    summed = np.column_stack(
        [comparison.reference_importance.sum(axis=1), comparison.current_importance.sum(axis=1)]
    )
    order = np.argsort(-summed.max(axis=1))[:2]
    np.testing.assert_allclose(points(display)[:2], summed[order])
    first = float(display.texts_[0].get_text().removeprefix("PSI "))
    assert first == pytest.approx(comparison.psi[order[0]].max(), rel=0.01)
    assert "summed over the outputs" in display.ax_.get_xlabel()
    assert [line.get_color() for line in display.points_] == ["red", "black"]
    for color in ("red", ["red"], ["red", "black", "blue"]):
        with pytest.raises(ValueError, match="color must be 2 colours, one for each sample, not "):
            display.plot(color=color)


def test_axes_and_values_of_zero(diabetes: Explanation) -> None:
    from matplotlib import pyplot

    _, ax = pyplot.subplots()
    zero = Explanation(np.zeros((9, 2)), 0.0, None, ("a", "b$"))
    display = ShapComparisonDisplay.from_explanations(zero, zero, ax=ax)
    assert display.ax_ is ax and not points(display).any()
    display.figure_.canvas.draw()


def test_wrong_arguments(diabetes: Explanation) -> None:
    with pytest.raises(TypeError, match="comparison must be an ExplanationComparison, not an Explanation"):
        ShapComparisonDisplay.from_comparison(diabetes)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="max_features must be at least 1"):
        ShapComparisonDisplay.from_explanations(diabetes, diabetes, max_features=0)
