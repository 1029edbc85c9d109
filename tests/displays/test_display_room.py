"""Labels, legends and colours around the axes of displays have room: in grids, beside few bars, in keys."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from helpers.displays import DISPLAYS, assert_readable, draw, random_explanation, rgba, row_names
from scipy.special import expit

from skshapgpu import (
    Explanation,
    ShapBarDisplay,
    ShapBeeswarmDisplay,
    ShapComparisonDisplay,
    ShapDependenceDisplay,
    ShapInteractionDisplay,
    ShapWaterfallDisplay,
)
from skshapgpu.displays.base import NEUTRAL, PALETTE

pytest.importorskip("matplotlib").use("Agg")

from matplotlib import pyplot  # noqa: E402

LONG_NAMES = tuple(f"a measurement number {i}" for i in range(8))


def with_categories(n_rows: int = 60, n_colors: int = 3) -> Explanation:
    """Make an explanation of a numeric feature, which misses a value, and of two with categories."""
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "city": rng.choice(["Rome", "Oslo", "Lima"], n_rows),
            "colour": rng.choice([f"colour {i}" for i in range(n_colors)], n_rows),
            "age": np.r_[np.nan, rng.normal(size=n_rows - 1)],
        }
    )
    values = rng.normal(size=(n_rows, 3)) * [3, 2, 1]
    return random_explanation(n_rows, 3, values=values, data=frame, feature_names=tuple(frame))


def draw_all(axes: Any) -> list[Any]:
    """Draw every display, each with what stands around its axes: long names, colours, keys, a second axis."""
    wide = random_explanation(30, 8, feature_names=LONG_NAMES)
    strength = np.random.default_rng(0).random((8, 8))
    return [
        ShapBarDisplay.from_explanation(wide, ax=axes[0]),
        ShapBeeswarmDisplay.from_explanation(with_categories(), ax=axes[1]),
        ShapDependenceDisplay.from_explanation(wide, 0, color_by=1, ax=axes[2]),
        ShapWaterfallDisplay.from_explanation(wide, ax=axes[3]),
        ShapInteractionDisplay(strength, LONG_NAMES).plot(ax=axes[4]),
        ShapComparisonDisplay.from_explanations(wide[:15], wide[15:], ax=axes[5]),
    ]


def pixels_of(ax: Any) -> Any:
    box = ax.get_tightbbox()
    return box.x0, box.y0, box.x1, box.y1


@pytest.mark.parametrize("layout", [None, "constrained"])
def test_displays_in_a_grid_do_not_overlap(layout: str | None) -> None:
    figure, axes = pyplot.subplots(2, 3, figsize=(17, 10), layout=layout)
    draw_all(axes.ravel())
    figure.canvas.draw()
    boxes = [pixels_of(ax) for ax in axes.ravel()]
    for i, (left, bottom, right, top) in enumerate(boxes):
        assert left >= 0 and bottom >= 0 and right <= figure.bbox.x1 and top <= figure.bbox.y1, i
        for j, (other_left, other_bottom, other_right, other_top) in enumerate(boxes[:i]):
            apart = right <= other_left or other_right <= left or top <= other_bottom or other_top <= bottom
            assert apart, (i, j)
    for ax in axes.ravel():  # they still can be read
        assert min(ax.get_window_extent().size) > 100


def test_titles_have_room() -> None:
    figure, axes = pyplot.subplots(2, 2, figsize=(12, 8))
    for ax in axes.ravel():
        draw(ShapWaterfallDisplay, random_explanation(unit="log-odds"), ax=ax)
        ax.set_title("a title that is added later")
    figure.canvas.draw()
    for upper, lower in zip(axes[0], axes[1]):
        assert pixels_of(lower)[3] <= pixels_of(upper)[1]


@pytest.mark.parametrize("cls", DISPLAYS)
def test_axes_that_have_room_stay_where_they_are(cls: type) -> None:
    figure = pyplot.figure(figsize=(8, 5))
    placed = figure.add_axes((0.05, 0.3, 0.2, 0.4))
    draw(cls, random_explanation(30, 8, feature_names=LONG_NAMES), ax=placed)
    np.testing.assert_allclose(placed.get_position().bounds, (0.05, 0.3, 0.2, 0.4))
    roomy = pyplot.figure(figsize=(12, 8)).subplots(gridspec_kw={"left": 0.3, "right": 0.7})
    before = roomy.get_position().bounds
    draw(cls, random_explanation(), ax=roomy)
    np.testing.assert_allclose(roomy.get_position().bounds, before)


def test_layouts_can_be_chosen_later() -> None:
    figure, axes = pyplot.subplots(1, 2, figsize=(10, 4))
    for ax in axes:
        draw(ShapBarDisplay, random_explanation(30, 8, feature_names=LONG_NAMES), ax=ax)
        assert ax.get_in_layout()
    figure.tight_layout()
    assert_readable(figure)


# Waterfalls


def totals(display: Any) -> tuple[str, str]:
    prediction, base_value = (text.get_text() for text in display.texts_[-2:])
    return prediction, base_value


@pytest.mark.parametrize("unit", ["margin", "log-odds"])
@pytest.mark.parametrize("n_features", [1, 2, 3])
def test_totals_are_not_struck_through(n_features: int, unit: str) -> None:
    display = draw(ShapWaterfallDisplay, random_explanation(1, n_features, unit=unit))
    assert_readable(display.figure_)
    inside = display.ax_.get_window_extent()
    for text in display.texts_[-2:]:
        box = text.get_window_extent()
        assert inside.y0 < box.y0 and box.y1 < inside.y1, "no axis crosses the text"
        for bar in display.bars_:
            edge = bar.get_window_extent()
            assert box.y0 >= edge.y1 or box.y1 <= edge.y0, "no bar crosses the text"
        for line in display.ax_.lines:
            end = line.get_window_extent()
            assert box.y0 >= end.y1 or box.y1 <= end.y0, "no dotted line crosses the text"


def test_the_prediction_is_also_a_probability() -> None:
    explanation = random_explanation(4, 3, unit="log-odds", base_values=-1.5)
    for row in range(4):
        prediction, base_value = totals(draw(ShapWaterfallDisplay, explanation, row=row))
        margin = explanation.values[row].sum() - 1.5
        expected = expit(margin)
        log_odds, probability = prediction.removeprefix("f(x) = ").split(", probability ")
        assert float(log_odds.replace("\N{MINUS SIGN}", "-")) == pytest.approx(margin, rel=5e-3)
        assert float(probability) == pytest.approx(expected, rel=5e-3)
        assert "probability" not in base_value, "the mean of log-odds is no log-odds of a mean"
    assert "probability" not in totals(draw(ShapWaterfallDisplay, random_explanation()))[0]


@pytest.mark.parametrize("font_size", [10, 14])
@pytest.mark.parametrize("margin", [-20, -12, -6.5, -2, 0.5, 2.2, 4.5, 6.87, 9, 11.2, 15, 20])
def test_labels_of_probabilities_do_not_touch(margin: float, font_size: int) -> None:
    base_value = -0.142
    values = np.array([[0.55, 0.25, 0.12, 0.08]]) * (margin - base_value)
    explanation = random_explanation(1, 4, unit="log-odds", values=values, base_values=base_value)
    with pyplot.rc_context({"font.size": font_size}):
        display = draw(ShapWaterfallDisplay, explanation)
        assert_readable(display.figure_)
        (top,) = display.ax_.child_axes
        boxes = [label.get_window_extent() for label in top.get_xticklabels()]
    assert 3 <= len(boxes) <= 10
    digit = font_size * display.figure_.dpi / 72 / 2  # a digit is about half as wide as it is high
    for left, right in itertools.pairwise(boxes):
        assert right.x0 - left.x1 >= digit / 2, "the labels look like a single number"


def test_values_due_to_rounding_are_zero() -> None:
    values = np.array([[2.0, -7.31e-18, 3e-7]])
    explanation = random_explanation(1, 3, values=values, additivity_error=1e-7)
    *steps, _, _ = (text.get_text() for text in draw(ShapWaterfallDisplay, explanation).texts_)
    assert steps == ["+2.00", "+3.00e-07".replace("-", "\N{MINUS SIGN}"), "0"]
    bars = [text.get_text() for text in draw(ShapBarDisplay, explanation).texts_]
    assert bars == ["2.00", "3.00e-07".replace("-", "\N{MINUS SIGN}"), "0"]


# Bars of all other features


def test_other_features_do_not_dwarf_the_rest() -> None:
    values = np.ones((3, 40)) * np.r_[2.0, 1.5, np.full(38, 1.0)]
    display = draw(ShapBarDisplay, random_explanation(3, 40, values=values), max_features=3)
    (bars,) = display.bars_
    assert row_names(display)[-1] == "37 other features" and bars[-1].get_width() == pytest.approx(37)
    inside = display.ax_.get_window_extent()
    assert bars[0].get_window_extent().width > 0.7 * inside.width, "the longest feature fills the chart"
    number = display.texts_[-1]
    assert number.get_text() == "37.0 \N{RIGHTWARDS ARROW}", "the arrow says that the bar is cut"
    assert_readable(display.figure_)
    assert inside.x0 < number.get_window_extent().x0 and number.get_window_extent().x1 <= inside.x1
    assert sum(bars[-1].get_facecolor()[:3]) > sum(bars[0].get_facecolor()[:3]), "its colour is lighter"


def test_other_features_of_cohorts_and_outputs() -> None:
    values = np.ones((4, 40)) * np.r_[2.0, 1.5, np.full(38, 0.02)] * np.array([[1], [1], [1], [50]])
    cohorts = random_explanation(4, 40, values=values).groupby(["a", "a", "a", "b"])
    display = draw(ShapBarDisplay, cohorts, max_features=2)  # type: ignore[arg-type]
    assert all("\N{RIGHTWARDS ARROW}" not in text.get_text() for text in display.texts_)
    assert_readable(display.figure_)
    outputs = np.stack([np.ones((3, 40)), 2 * np.ones((3, 40))], axis=2)
    facts = {"values": outputs, "base_values": np.zeros(2), "output_names": ("no", "yes")}
    display = draw(ShapBarDisplay, random_explanation(3, 40, **facts), max_features=2)
    assert display.texts_[-1].get_text() == "114 \N{RIGHTWARDS ARROW}"
    assert_readable(display.figure_)


# Keys of categories


def key_lines(display: Any) -> list[str]:
    return [line for text in display.key_.get_texts() if (line := text.get_text())]


def test_categories_have_a_key_and_numbers_a_scale() -> None:
    display = draw(ShapBeeswarmDisplay, with_categories())
    assert key_lines(display) == [
        "city",
        "Lima",
        "Oslo",
        "Rome",
        "colour",
        "colour 0",
        "colour 1",
        "colour 2",
    ]
    (scale,) = display.ax_.child_axes
    assert [label.get_text() for label in scale.get_yticklabels()] == ["low", "high"]
    assert_readable(display.figure_)
    handles = display.key_.legend_handles[1:4]
    np.testing.assert_allclose([rgba(handle.get_color()) for handle in handles], [*map(rgba, PALETTE[:3])])
    only = draw(ShapBeeswarmDisplay, with_categories()[:, ["city", "colour"]])
    assert not only.ax_.child_axes and only.key_ is not None, "there is nothing from low to high"
    assert_readable(only.figure_)
    assert draw(ShapBeeswarmDisplay, random_explanation()).key_ is None


def test_many_categories_share_a_colour_and_many_features_have_none() -> None:
    display = draw(ShapBeeswarmDisplay, with_categories(400, 20))
    lines = key_lines(display)
    assert lines[4] == "colour" and len(lines[5:]) == len(PALETTE) and lines[-1] == "13 others"
    assert_readable(display.figure_)
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({f"column {i}": rng.choice(list("abcdef"), 90) for i in range(6)})
    explanation = random_explanation(90, 6, data=frame, feature_names=tuple(frame))
    display = draw(ShapBeeswarmDisplay, explanation)
    assert [line for line in key_lines(display) if len(line) > 1] == ["column 0", "column 1"]
    np.testing.assert_allclose(display.points_[2].get_facecolor(), [rgba(NEUTRAL)])
    assert len(np.unique(display.points_[1].get_facecolor(), axis=0)) == 6
    assert_readable(display.figure_)
