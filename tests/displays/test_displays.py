"""Bar and beeswarm displays, and all displays together: content, positions of text, and pixels."""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from helpers.displays import (
    DIABETES,
    DISPLAYS,
    PROGRESSION,
    assert_filled,
    assert_readable,
    draw,
    random_explanation,
    rgba,
    row_names,
)
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

import skshapgpu
from skshapgpu import (
    Explanation,
    ShapBarDisplay,
    ShapBeeswarmDisplay,
    ShapDependenceDisplay,
    ShapInteractionDisplay,
    ShapWaterfallDisplay,
    cross_val_explain,
    explain,
)
from skshapgpu._rows.columns import read_column
from skshapgpu.displays.base import MISSING, NEGATIVE, NEUTRAL, PALETTE, POSITIVE
from skshapgpu.displays.beeswarm import swarm_offsets

pytest.importorskip("matplotlib").use("Agg")

from matplotlib import colors, pyplot  # noqa: E402

# Bars


def test_bars_are_importances_in_descending_order(diabetes: Explanation) -> None:
    display = ShapBarDisplay.from_explanation(diabetes)
    expected = np.abs(diabetes.values).mean(axis=0)
    order = np.argsort(-expected)
    assert row_names(display) == [diabetes.feature_names[i] for i in order]
    (bars,) = display.bars_
    np.testing.assert_allclose([bar.get_width() for bar in bars], expected[order])
    np.testing.assert_allclose([bar.get_x() for bar in bars], 0)
    tops = [bar.get_window_extent().y0 for bar in bars]
    assert tops == sorted(tops, reverse=True), "the largest is on top"
    assert display.ax_.get_xlabel() == "mean |SHAP value|"
    pixels = assert_readable(display.figure_)
    for bar in bars:
        assert_filled(pixels, bar)


def test_other_features_are_one_bar(diabetes: Explanation) -> None:
    display = ShapBarDisplay.from_explanation(diabetes, max_features=4)
    (bars,) = display.bars_
    assert row_names(display)[-1] == "6 other features" and len(bars) == 5
    widths = [bar.get_width() for bar in bars]
    assert sum(widths) == pytest.approx(np.abs(diabetes.values).mean(axis=0).sum())
    assert row_names(ShapBarDisplay.from_explanation(diabetes, max_features=9))[-1] == "1 other feature"
    assert len(row_names(ShapBarDisplay.from_explanation(diabetes, max_features=None))) == 10


def test_numbers_stand_beside_bars(diabetes: Explanation) -> None:
    display = ShapBarDisplay.from_explanation(diabetes)
    display.figure_.canvas.draw()
    for text, bar in zip(display.texts_, display.bars_[0], strict=True):
        assert float(text.get_text()) == pytest.approx(bar.get_width(), rel=5e-3)
        at, end = text.get_window_extent(), bar.get_window_extent()
        assert end.x1 < at.x0 and at.x1 <= display.ax_.get_window_extent().x1
        assert abs((at.y0 + at.y1) / 2 - (end.y0 + end.y1) / 2) < 3


def test_outputs_are_stacked(wine: Explanation) -> None:
    display = ShapBarDisplay.from_explanation(wine, max_features=5)
    means = np.abs(wine.values).mean(axis=0)
    order = np.argsort(-means.sum(axis=1))
    assert len(display.bars_) == 3
    for i, bars in enumerate(display.bars_):
        assert [bar.get_facecolor() for bar in bars[:5]] == [colors.to_rgba(PALETTE[i])] * 5
        np.testing.assert_allclose([bar.get_width() for bar in bars[:5]], means[order[:5], i])
        np.testing.assert_allclose([bar.get_x() for bar in bars[:5]], means[order[:5], :i].sum(axis=1))
    legend = display.ax_.get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["0", "1", "2"]
    pixels, box = assert_readable(display.figure_), legend.get_window_extent()
    for bars in display.bars_:
        for bar in bars:
            assert_filled(pixels, bar)
            assert not bar.get_window_extent().overlaps(box)


def test_bars_of_one_output(wine: Explanation) -> None:
    one = ShapBarDisplay.from_explanation(wine, output=1)
    widths = sorted(bar.get_width() for bar in one.bars_[0])
    np.testing.assert_allclose(widths, np.sort(np.abs(wine.values[:, :, 1]).mean(axis=0)))
    assert ShapBarDisplay.from_explanation(wine, output="1").ax_.get_xlabel() == one.ax_.get_xlabel()


def face_colors(bars: Any) -> list[Any]:
    return [bar.get_facecolor() for bar in bars]


def test_colours_of_bars(diabetes: Explanation, wine: Explanation) -> None:
    for color in ("red", ["red"], (1.0, 0.0, 0.0), ("red", 1.0)):
        display = ShapBarDisplay.from_explanation(diabetes, color=color)
        assert set(face_colors(display.bars_[0])) == {colors.to_rgba("red")}
    chosen = np.eye(3)
    stacked = ShapBarDisplay.from_explanation(wine, color=chosen)  # type: ignore[arg-type]
    cohorts = diabetes.groupby(np.arange(len(diabetes)) % 3)
    beside = ShapBarDisplay.from_explanation(cohorts, color=["red", "lime", "blue"])
    for display in (stacked, beside):
        for bars, color in zip(display.bars_, chosen, strict=True):
            assert set(face_colors(bars)) == {colors.to_rgba(color)}
    with pytest.raises(ValueError, match="color must be 3 colours, one for each output, not 'red'"):
        stacked.plot(color="red")
    with pytest.raises(ValueError, match="color must be 3 colours, one for each cohort, not "):
        beside.plot(color=["red", "blue"])
    with pytest.raises(ValueError, match="color must be one colour, not "):
        ShapBarDisplay.from_explanation(diabetes, color=["red", "blue"])
    with pytest.raises(ValueError, match="color"):
        ShapBarDisplay.from_explanation(diabetes, color="no such colour")


def test_more_stacked_outputs_than_colours() -> None:
    display = ShapBarDisplay(np.ones((2, 9)), ["a", "b"], output_names=list("ABCDEFGHI")).plot()
    assert len(display.bars_) == 9
    assert face_colors(display.bars_[8]) == face_colors(display.bars_[0])


def test_bars_of_many_outputs_are_sums() -> None:
    values = np.random.default_rng(0).normal(size=(20, 3, 30))
    explanation = random_explanation(
        20, 3, values=values, base_values=np.zeros(30), output_names=tuple(range(30))
    )
    display = ShapBarDisplay.from_explanation(explanation)
    (bars,) = display.bars_
    total = np.sort(np.abs(values).mean(axis=0).sum(axis=1))[::-1]
    np.testing.assert_allclose([bar.get_width() for bar in bars], total)
    assert "summed over the outputs" in display.ax_.get_xlabel() and display.ax_.get_legend() is None


def test_bars_of_cross_validation() -> None:
    importances = np.random.default_rng(0).uniform(1, 2, size=(5, 6)) * np.arange(6, 0, -1)
    importances[3] = np.nan
    explanation = random_explanation(40, 6)
    display = ShapBarDisplay.from_cv_results(
        {"explanation": explanation, "importances": importances, "fit_time": np.ones(5)}, max_features=4
    )
    kept = importances[[0, 1, 2, 4]]
    shown = np.column_stack([kept[:, :4], kept[:, 4:].sum(axis=1)])
    order = [*np.argsort(-shown[:, :4].mean(axis=0)), 4]
    (bars,) = display.bars_
    np.testing.assert_allclose([bar.get_width() for bar in bars], shown.mean(axis=0)[order])
    whiskers = display.ax_.collections[0].get_segments()
    reach = [(segment[:, 0].min(), segment[:, 0].max()) for segment in whiskers]
    deviation = shown.std(axis=0, ddof=1)[order]
    center = shown.mean(axis=0)[order]
    np.testing.assert_allclose(reach, np.column_stack([center - deviation, center + deviation]))
    dots = [line for line in display.ax_.lines if line.get_marker() == "o"]
    np.testing.assert_allclose(np.array([line.get_xdata() for line in dots]), shown[:, order])
    assert "4 splits" in display.ax_.get_xlabel()
    assert_readable(display.figure_)


def test_bars_of_one_split_have_no_spread() -> None:
    results = {"explanation": random_explanation(40, 6), "importances": np.arange(6.0)[None]}
    display = ShapBarDisplay.from_cv_results(results)
    assert not display.ax_.collections and "splits" not in display.ax_.get_xlabel()


@pytest.mark.parametrize(
    ("results", "message"),
    [
        ({"importances": np.ones((2, 5))}, "must be the result of cross_val_explain"),
        (None, "must be the result of cross_val_explain"),
        (
            {"explanation": random_explanation(), "importances": np.ones((2, 4))},
            r"shape \(2, 4\), but 5 features",
        ),
        (
            {"explanation": random_explanation(), "importances": np.full((2, 5), np.nan)},
            "no split has importances",
        ),
    ],
)
def test_other_cv_results_are_refused(results: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ShapBarDisplay.from_cv_results(results)


def test_rows_that_no_split_tested_are_left_out() -> None:
    complete = random_explanation(50)
    values = np.array(complete.values)
    values[::3] = np.nan
    base = np.where(np.isnan(values[:, 0]), np.nan, 3.0)
    partial = random_explanation(50, values=values, base_values=base)
    tested = np.arange(50) % 3 > 0
    bars = [bar.get_width() for bar in ShapBarDisplay.from_explanation(partial).bars_[0]]
    np.testing.assert_allclose(bars, np.sort(np.abs(complete.values[tested]).mean(axis=0))[::-1])
    assert set(ShapBeeswarmDisplay.from_explanation(partial).rows_) == set(np.flatnonzero(tested))
    assert len(ShapDependenceDisplay.from_explanation(partial, 1).values) == tested.sum()
    with pytest.raises(ValueError, match="row 3 has no values: no split tested it"):
        ShapWaterfallDisplay.from_explanation(partial, row=3)
    empty = random_explanation(50, values=np.full((50, 5), np.nan))
    for cls in DISPLAYS[:3]:
        with pytest.raises(ValueError, match="no row with values"):
            draw(cls, empty)


# Swarms


def test_swarms_show_each_value_once(diabetes: Explanation) -> None:
    display = ShapBeeswarmDisplay.from_explanation(diabetes)
    order = np.argsort(-np.abs(diabetes.values).mean(axis=0))
    assert row_names(display) == [diabetes.feature_names[i] for i in order]
    assert sorted(display.rows_) == list(range(len(diabetes)))
    for i, (feature, points) in enumerate(zip(order, display.points_, strict=True)):
        offsets = np.asarray(points.get_offsets())
        np.testing.assert_allclose(offsets[:, 0], diabetes.values[display.rows_, feature])
        assert np.abs(offsets[:, 1] - i).max() <= 0.4, "a swarm stays in its row"
    assert_readable(display.figure_)


def test_colours_follow_robust_percentiles(diabetes: Explanation) -> None:
    display = ShapBeeswarmDisplay.from_explanation(diabetes)
    first = int(np.argmax(np.abs(diabetes.values).mean(axis=0)))
    x = DIABETES[display.rows_, first]
    low, high = np.percentile(DIABETES[:, first], [5, 95])
    points = display.points_[0]
    np.testing.assert_allclose(points.get_array(), (np.clip(x, low, high) - low) / (high - low))
    display.figure_.canvas.draw()
    faces = points.get_facecolors()
    np.testing.assert_allclose(faces[x <= low][0], rgba(NEGATIVE), atol=0.01)
    np.testing.assert_allclose(faces[x >= high][0], rgba(POSITIVE), atol=0.01)


def test_points_are_seen_in_their_colours() -> None:
    values = np.array([[-1.0], [1.0], [3.0]])
    explanation = random_explanation(3, 1, values=values, data=np.array([[0.0], [1.0], [np.nan]]))
    display = ShapBeeswarmDisplay.from_explanation(explanation, size=200)
    pixels = assert_readable(display.figure_)
    for x, color in ((-1, NEGATIVE), (1, POSITIVE), (3, MISSING)):
        column, row = display.ax_.transData.transform((x, 0)).astype(int)
        np.testing.assert_allclose(pixels[row, column] / 255, rgba(color), atol=0.01)
    legend = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert legend == ["missing"]


def test_categories_have_colours_in_their_order() -> None:
    pd = pytest.importorskip("pandas")
    labels = np.array(["low", "high", "middle", None, "low"], dtype=object)
    ordered = pd.Categorical(labels, categories=["low", "middle", "high"], ordered=True)
    frame = pd.DataFrame({"size": ordered, "name": ["b", "a", "c", "a", None], "flag": [True] * 5})
    explanation = random_explanation(5, 3, values=np.ones((5, 3)) * [3, 2, 1], data=frame)
    display = ShapBeeswarmDisplay.from_explanation(explanation)
    display.figure_.canvas.draw()
    in_order = np.argsort(display.rows_)

    def drawn(feature: int) -> np.ndarray:
        return np.ma.filled(display.points_[feature].get_array(), np.nan)[in_order]

    np.testing.assert_allclose(drawn(0), [0, 1, 0.5, np.nan, 0])
    np.testing.assert_allclose(drawn(2), 0.5)
    codes = [1, 0, 2, 0, -1]  # b, a, c, a, missing
    expected = [rgba(color) for color in [*PALETTE[:3], MISSING]]
    faces = display.points_[1].get_facecolors()[in_order]
    np.testing.assert_allclose(faces, [expected[code] for code in codes])
    lines = [text.get_text() for text in display.key_.get_texts()]
    assert [line for line in lines if line] == ["feature 1", "a", "b", "c"], (
        "ordered categories are not in the key"
    )
    assert_readable(display.figure_)
    np.testing.assert_allclose(display.points_[0].get_facecolor()[in_order[3]], rgba(MISSING))


def test_other_features_are_one_swarm_without_colours(diabetes: Explanation) -> None:
    display = ShapBeeswarmDisplay.from_explanation(diabetes, max_features=3)
    order = np.argsort(-np.abs(diabetes.values).mean(axis=0))
    points = display.points_[3]
    expected = diabetes.values[display.rows_][:, order[3:]].sum(axis=1)
    np.testing.assert_allclose(np.asarray(points.get_offsets())[:, 0], expected)
    np.testing.assert_allclose(points.get_facecolor()[0], rgba(NEUTRAL))
    assert row_names(display)[-1] == "7 other features"


def test_swarms_without_data_have_one_colour() -> None:
    display = ShapBeeswarmDisplay.from_explanation(random_explanation(data=None))
    np.testing.assert_allclose(display.points_[0].get_facecolor()[0], rgba(NEUTRAL))
    assert len(display.figure_.axes) == 1
    assert_readable(display.figure_)


def test_offsets_of_swarms() -> None:
    np.testing.assert_array_equal(swarm_offsets(np.array([1.0]), 0.0, 2.0), [0])
    np.testing.assert_array_equal(swarm_offsets(np.linspace(0, 1, 30), 0.0, 1.0), np.zeros(30))
    same = swarm_offsets(np.zeros(500), 0.0, 0.0)
    np.testing.assert_allclose(np.sort(same), np.linspace(-0.4, 0.4, 501)[:-1] + 0.4 / 500, atol=1e-12)
    dense = swarm_offsets(np.random.default_rng(0).normal(size=5_000), -5.0, 5.0)
    assert 0.3 < np.abs(dense).max() <= 0.4
    assert abs(dense.mean()) < 1e-12


def test_many_rows_take_bounded_time_and_size(tmp_path: Any) -> None:
    explanation = random_explanation(100_000, 30)
    start = time.process_time()
    display = ShapBeeswarmDisplay.from_explanation(explanation)
    display.figure_.savefig(tmp_path / "swarm.svg")
    dependence = ShapDependenceDisplay.from_explanation(explanation, 0)
    dependence.figure_.savefig(tmp_path / "dependence.png")
    assert time.process_time() - start < 20  # seconds; it takes 2
    assert (tmp_path / "swarm.svg").stat().st_size < 2_000_000
    assert len(display.rows_) == 4_000 and len(dependence.values) == 10_000
    again = ShapBeeswarmDisplay.from_explanation(explanation)
    np.testing.assert_array_equal(display.rows_, again.rows_)
    np.testing.assert_array_equal(display.points_[0].get_offsets(), again.points_[0].get_offsets())
    drawn = np.asarray(display.points_[0].get_offsets())[:, 0]
    assert drawn.min() == explanation.values[:, 0].min() and drawn.max() == explanation.values[:, 0].max()
    assert row_names(display)[0] == "feature 0", "the order is that of all rows"


def test_bars_of_rows_without_values_of_one_class() -> None:
    X, y = DIABETES[:90], np.repeat(["a", "b", "c"], 30)
    splits = [(np.r_[:30, 60:90], np.arange(30, 60)), (np.r_[:15, 30:45, 60:75], np.r_[15:30, 45:60, 75:90])]
    model = RandomForestClassifier(5, random_state=0)
    with pytest.warns(UserWarning, match="split 0 have none of class 'b'"):
        explanation = cross_val_explain(model, X, y, cv=splits)["explanation"]
    values = np.abs(explanation.values)
    assert 0 < np.isnan(values).any(axis=(1, 2)).sum() < 90
    rows = np.arange(90) % 2 == 0

    def means(chosen: np.ndarray) -> np.ndarray:
        return np.column_stack([np.nanmean(values[chosen, :, k], axis=0) for k in range(3)])

    display = ShapBarDisplay.from_explanation(explanation)
    np.testing.assert_allclose(display.importances, means(np.full(90, True)), rtol=1e-6)
    for k, name in enumerate("abc"):
        one = ShapBarDisplay.from_explanation(explanation, output=name)
        np.testing.assert_allclose(one.importances, display.importances[:, k], rtol=1e-6)
    beside = ShapBarDisplay.from_explanation(explanation.groupby(rows))
    expected = [means(~rows).sum(axis=1), means(rows).sum(axis=1)]
    np.testing.assert_allclose(beside.importances.T, expected, rtol=1e-6)


# All of them


@pytest.mark.parametrize("cls", DISPLAYS)
def test_several_outputs_need_a_choice(cls: type, wine: Explanation) -> None:
    if cls is not ShapBarDisplay:
        with pytest.raises(ValueError, match="of 3 outputs: choose one with output="):
            draw(cls, wine)
    with pytest.raises(ValueError, match="of one output: leave it out"):
        draw(cls, random_explanation(), output=0)
    with pytest.raises(ValueError, match="output: there is no output 'no such', only "):
        draw(cls, wine, output="no such")
    with pytest.raises(ValueError, match="output: output 3 is out of range for 3 outputs"):
        draw(cls, wine, output=3)
    with pytest.raises(TypeError, match=r"output: \[0, 1\] is neither a name nor a position"):
        draw(cls, wine, output=[0, 1])


@pytest.mark.parametrize("cls", [ShapBarDisplay, ShapBeeswarmDisplay, ShapWaterfallDisplay])
def test_max_features_is_checked(cls: type) -> None:
    with pytest.raises(ValueError, match="max_features must be at least 1, not 0"):
        draw(cls, random_explanation(), max_features=0)


@pytest.mark.parametrize("cls", DISPLAYS)
def test_only_explanations_are_drawn(cls: type) -> None:
    with pytest.raises(TypeError, match="must be an Explanation, not a str"):
        draw(cls, "values")  # type: ignore[arg-type]


@pytest.mark.parametrize("cls", DISPLAYS)
def test_conventions(cls: type) -> None:
    """__init__ stores; plot draws on the axes that the caller passes and returns the display."""
    figure, ax = pyplot.subplots(layout="constrained")
    display = draw(cls, random_explanation(), ax=ax)
    assert display.ax_ is ax and display.figure_ is figure
    assert display.plot() is display and display.ax_ is not ax
    fresh = cls.__new__(cls)
    for name in vars(display):
        if not name.endswith("_"):
            setattr(fresh, name, getattr(display, name))
    assert not hasattr(fresh, "ax_")
    assert fresh.plot().figure_ is not figure
    with pytest.raises(AttributeError):
        fresh.no_such_attribute  # noqa: B018


CASES: dict[str, Explanation] = {
    "one feature": random_explanation(30, 1),
    "two hundred features": random_explanation(30, 200),
    "one row": random_explanation(1, 6),
    "constant feature": random_explanation(30, 3, data=np.ones((30, 3))),
    "zero values": random_explanation(30, 3, values=np.zeros((30, 3))),
    "all missing": random_explanation(30, 3, data=np.full((30, 3), np.nan)),
    "infinite": random_explanation(30, 3, data=np.where(np.arange(90).reshape(30, 3) % 7, 1.0, -np.inf)),
    "large values": random_explanation(30, 3, values=random_explanation(30, 3).values * 1e7, base_values=1e9),
    "tiny values": random_explanation(30, 3, values=random_explanation(30, 3).values * 1e-9),
    "one sign": random_explanation(30, 12, values=-np.abs(random_explanation(30, 12).values)),
    "long names": random_explanation(
        30, 8, feature_names=tuple(f"{'a very long name of a feature ' * 5}{i}" for i in range(8))
    ),
    "odd names": random_explanation(
        30,
        6,
        feature_names=("größe_µm²", "доход", "ηλικία", "cost_$_a^b$", "line\nbreak", "<b>\\frac{1}{2}</b>"),
    ),
    "float32": random_explanation(30, 3, values=random_explanation(30, 3).values.astype(np.float32)),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("cls", DISPLAYS)
def test_hard_cases_are_readable(cls: type, case: str) -> None:
    display = draw(cls, CASES[case])
    assert_readable(display.figure_)
    if cls is not ShapDependenceDisplay:
        explanation = CASES[case]
        most = 10 if cls is ShapWaterfallDisplay else 20
        assert len(row_names(display)) == min(explanation.shape[1], most + 1)


@pytest.mark.parametrize("cls", [ShapBarDisplay, ShapBeeswarmDisplay, ShapWaterfallDisplay])
def test_two_hundred_rows_are_readable(cls: type) -> None:
    display = draw(cls, random_explanation(30, 200), max_features=None)
    assert len(row_names(display)) == 200
    assert_readable(display.figure_)


@pytest.mark.parametrize("cls", [ShapBarDisplay, ShapBeeswarmDisplay, ShapWaterfallDisplay])
def test_small_axes_get_small_letters(cls: type) -> None:
    figure, axes = pyplot.subplots(2, 2, figsize=(9, 6), layout="constrained")
    for ax in axes.flat:
        draw(cls, random_explanation(30, 30), ax=ax, max_features=20)
    assert_readable(figure)


@pytest.mark.parametrize("cls", DISPLAYS)
def test_parts_of_figures(cls: type) -> None:
    figure = pyplot.figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subfigures(1, 2)
    display = draw(cls, random_explanation(30, 6), ax=left.subplots())
    draw(cls, random_explanation(30, 6), ax=right.subplots())
    assert display.figure_ is left
    figure.canvas.draw()
    assert (np.asarray(figure.canvas.buffer_rgba())[..., :3] < 200).any(axis=-1).mean() > 0.005


def test_interaction_names_are_readable() -> None:
    n = 25
    names = tuple(f"{'a rather long name of a feature ' * 2}$_{i}" for i in range(n))
    for max_features in (None, 1, 8):
        strength = np.random.default_rng(0).random((n, n))[:max_features, :max_features]
        assert_readable(ShapInteractionDisplay(strength, names[:max_features]).plot().figure_)


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow", "csr", "array"])
def test_columns_of_all_kinds_of_data(kind: str) -> None:
    numbers = np.array([1.5, np.nan, -2.0, 0.0])
    labels = ["b", None, "a", "b"]
    rows = np.array([3, 2, 1])
    data: Any
    if kind in ("csr", "array"):
        data = np.column_stack([numbers, [0, 1, 0, 2]])
        data = sp.csr_array(data) if kind == "csr" else data
        np.testing.assert_array_equal(read_column(data, 1, rows).numbers, [2, 0, 1])
    else:
        package = pytest.importorskip(kind)
        if kind == "pandas":
            data = package.DataFrame(
                {"x": numbers, "c": package.Categorical(labels, categories=["b", "a"]), "s": labels}
            )
            data["n"] = package.array([1, None, 3, 4], dtype="Int64")
        elif kind == "polars":
            category = package.Series("c", labels, dtype=package.Enum(["b", "a"]))
            data = package.DataFrame({"x": numbers, "c": category, "s": labels, "n": [1, None, 3, 4]})
        else:
            data = package.table({"x": numbers, "c": labels, "s": labels, "n": [1, None, 3, 4]})
        names = ("a", "b") if kind == "pyarrow" else ("b", "a")
        column = read_column(data, 1, rows)
        assert column.categories == names
        np.testing.assert_array_equal(column.numbers, [names.index("b"), names.index("a"), np.nan])
        text = read_column(data, 2, rows)
        assert text.categories == ("a", "b")
        np.testing.assert_array_equal(text.numbers, [1, 0, np.nan])
        np.testing.assert_array_equal(read_column(data, 3, rows).numbers, [4, 3, np.nan])
    column = read_column(data, 0, rows)
    assert column.categories is None
    np.testing.assert_array_equal(column.numbers, numbers[rows])


@pytest.mark.parametrize("cls", DISPLAYS)
def test_from_estimator(cls: type) -> None:
    model = RandomForestRegressor(8, max_depth=3, random_state=0).fit(DIABETES, PROGRESSION)
    feature = (0,) if cls is ShapDependenceDisplay else ()
    figure, ax = pyplot.subplots()
    display = cls.from_estimator(model, DIABETES[:50], *feature, ax=ax, device="cpu")  # type: ignore[attr-defined]
    assert display.ax_ is ax and display.figure_ is figure
    expected = draw(cls, explain(model, DIABETES[:50], device="cpu"))
    for name in ("values", "importances"):
        if hasattr(display, name):
            np.testing.assert_array_equal(getattr(display, name), getattr(expected, name))


@pytest.mark.parametrize("cls", DISPLAYS)
def test_without_matplotlib(cls: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    feature = (0,) if cls is ShapDependenceDisplay else ()
    for work in (
        lambda: draw(cls, random_explanation()),
        lambda: cls.from_estimator("no model", DIABETES, *feature),  # type: ignore[attr-defined]
    ):
        with pytest.raises(ImportError, match="pip install matplotlib"):
            work()


def test_all_displays_are_public() -> None:
    for cls in (*DISPLAYS, ShapInteractionDisplay):
        assert getattr(skshapgpu, cls.__name__) is cls
