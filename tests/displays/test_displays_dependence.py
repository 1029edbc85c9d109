"""Dependence and waterfall displays: content and positions of text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.displays import (
    CANCER,
    CULTIVAR,
    DIABETES,
    PROGRESSION,
    WINE,
    assert_filled,
    assert_readable,
    random_explanation,
    rgba,
    row_names,
    texts,
)
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)

from skshapgpu import Explanation, ShapDependenceDisplay, ShapWaterfallDisplay, explain, explain_interactions
from skshapgpu.displays.base import MISSING, NEGATIVE, PALETTE, POSITIVE
from skshapgpu.displays.waterfall import probability_ticks

pytest.importorskip("matplotlib").use("Agg")

from matplotlib import colors, pyplot  # noqa: E402

# Dependence


def test_dependence_places_values(diabetes: Explanation) -> None:
    display = ShapDependenceDisplay.from_explanation(diabetes, "x2", color_by=8)
    points = display.points_
    expected = np.column_stack([DIABETES[:, 2], diabetes.values[:, 2], DIABETES[:, 8]])
    drawn = np.column_stack([points.get_offsets(), points.get_array()])
    np.testing.assert_allclose(drawn[np.lexsort(drawn.T)], expected[np.lexsort(expected.T)])
    assert display.ax_.get_xlabel() == "x2" and "of x2" in display.ax_.get_ylabel()
    assert display.color_name == "x8" == display.ax_.child_axes[0].get_ylabel()
    np.testing.assert_allclose(points.get_clim(), np.percentile(DIABETES[:, 8], [5, 95]))
    assert_readable(display.figure_)


def test_display_of_arrays() -> None:
    display = ShapDependenceDisplay(
        np.array([1.0, -1.0, 0.5]),
        np.array([0.0, 1.0, np.nan]),
        "town",
        categories=["Bern", "Zug"],
        color_values=np.array([1, 0, 1]),
        color_categories=("no", "yes"),
        color_name="lake",
    ).plot()
    assert [label.get_text() for label in display.ax_.get_xticklabels()] == ["Bern", "Zug", "missing"]
    legend = display.ax_.get_legend()
    assert legend.get_title().get_text() == "lake"
    assert [text.get_text() for text in legend.get_texts()] == ["no", "yes"]
    np.testing.assert_array_equal(np.round(display.points_.get_offsets()[:, 0]), [0, 1, 2])
    assert_readable(display.figure_)
    numbers = ShapDependenceDisplay(np.ones(3), np.array([1, 2, 3]), "age").plot()
    np.testing.assert_array_equal(numbers.points_.get_offsets()[:, 0], [1, 2, 3])


def bars_of(display: ShapDependenceDisplay) -> dict[float, int]:
    """Return the heights of a histogram's bars, in rows, by the positions of their centres."""
    bars = display.histogram_
    shares = np.array([bar.get_height() for bar in bars]) / max(bar.get_height() for bar in bars)
    centres = [bar.get_x() + bar.get_width() / 2 for bar in bars]
    return dict(zip(centres, shares))


def test_histogram_counts_rows_below_the_points(diabetes: Explanation) -> None:
    display = ShapDependenceDisplay.from_explanation(diabetes, 2)
    assert len(display.histogram_) == 21  # the root of 442 rows
    counts, edges = np.histogram(DIABETES[:, 2], 21)
    bars = bars_of(display)
    np.testing.assert_allclose(list(bars.values()), counts / counts.max())
    np.testing.assert_allclose(list(bars), (edges[1:] + edges[:-1]) / 2)
    to_axes = display.ax_.transAxes.inverted()
    display.figure_.canvas.draw()
    tallest = max(to_axes.transform(bar.get_window_extent())[1, 1] for bar in display.histogram_)
    points = to_axes.transform(display.ax_.transData.transform(display.points_.get_offsets()))
    assert 0.1 < tallest < points[:, 1].min()

    without = ShapDependenceDisplay.from_explanation(diabetes, 2, histogram=False)
    assert without.histogram_ is None
    assert without.ax_.get_ylim()[0] > display.ax_.get_ylim()[0]
    np.testing.assert_allclose(without.ax_.get_ylim()[1], display.ax_.get_ylim()[1])
    assert without.plot().histogram_ is not None


def test_histogram_of_few_numbers_has_a_bar_for_each() -> None:
    explanation = random_explanation(60, 1)
    explanation.data[:, 0] = np.repeat([3.0, 1.0, 2.5, np.nan], [30, 15, 5, 10])
    display = ShapDependenceDisplay.from_explanation(explanation, 0)
    bars = bars_of(display)
    assert list(bars)[1:] == [1.0, 2.5, 3.0] and next(iter(bars)) < 1
    np.testing.assert_allclose(list(bars.values()), [10 / 30, 15 / 30, 5 / 30, 1])
    explanation.data[:, 0] = np.r_[np.full(59, 7.0), np.inf]
    assert sum(bars_of(ShapDependenceDisplay.from_explanation(explanation, 0)).values()) > 1
    explanation.data[:, 0] = np.nan
    assert list(bars_of(ShapDependenceDisplay.from_explanation(explanation, 0)).values()) == [1]
    explanation.data[:, 0] = 7.0
    assert bars_of(ShapDependenceDisplay.from_explanation(explanation, 0)) == {7.0: 1}


def test_histogram_of_categories() -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"town": np.repeat(["Zug", "Bern", None], [40, 10, 20])})
    explanation = random_explanation(70, 1, data=frame, feature_names=("town",))
    display = ShapDependenceDisplay.from_explanation(explanation, "town")
    ticks = [label.get_text() for label in display.ax_.get_xticklabels()]
    shares = {ticks[round(place)]: share for place, share in bars_of(display).items()}
    assert shares == pytest.approx({"Zug": 1, "Bern": 0.25, "missing": 0.5})


def test_missing_values_stand_beside_numbers() -> None:
    explanation = random_explanation(200, 2)
    explanation.data[::10, 0] = np.nan
    explanation.data[::7, 1] = np.nan
    display = ShapDependenceDisplay.from_explanation(explanation, 0, color_by=1)
    offsets = np.asarray(display.points_.get_offsets())
    assert np.isfinite(offsets).all() and len(offsets) == 200
    least = np.nanmin(explanation.data[:, 0])
    assert (offsets[:, 0] < least).sum() == 20
    display.figure_.canvas.draw()
    grey = np.isclose(display.points_.get_facecolor()[:, :3], rgba(MISSING)[:3]).all(axis=1)
    assert grey.sum() == len(explanation.data[::7])
    np.testing.assert_array_equal(grey, np.isnan(display.color_values))
    written = {text.get_text() for text in texts(display.figure_)}
    assert {"missing", "feature 1 missing"} <= written
    assert_readable(display.figure_)


def test_dependence_of_categories() -> None:
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    names = [f"category number {i}" for i in range(40)]
    frame = pd.DataFrame(
        {
            "many": pd.Categorical(rng.choice(names, 500, p=np.arange(40) / 780), categories=names),
            "few": rng.choice(["yes", "no", None], 500),
        }
    )
    explanation = random_explanation(500, 2, data=frame, feature_names=("many", "few"))
    display = ShapDependenceDisplay.from_explanation(explanation, "many", color_by="few")
    ticks = [label.get_text() for label in display.ax_.get_xticklabels()]
    assert len(ticks) == 20 and ticks[-1] == "21 others" and "category number 39" in ticks
    positions = np.asarray(display.points_.get_offsets())[:, 0]
    counts = np.bincount(np.round(positions).astype(int), minlength=20)
    assert counts[ticks.index("category number 39")] == (frame["many"] == "category number 39").sum()
    legend = display.ax_.get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["no", "yes", "missing"]
    faces = [tuple(face[:3]) for face in display.points_.get_facecolor()]
    assert faces.count(colors.to_rgb(MISSING)) == frame["few"].isna().sum()
    assert faces.count(colors.to_rgb(PALETTE[1])) == (frame["few"] == "yes").sum()
    assert_readable(display.figure_)
    turned = ShapDependenceDisplay.from_explanation(explanation, "few", color_by="many")
    assert [label.get_text() for label in turned.ax_.get_xticklabels()] == ["no", "yes", "missing"]
    assert len(turned.ax_.get_legend().get_texts()) == 8
    assert_readable(turned.figure_)


def interacting(n_rows: int = 1_500) -> tuple[np.ndarray, np.ndarray]:
    """Make an explanation in which 0 interacts with 3, 2 is strongest but alone, and 1 resembles 0."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, 5))
    X[:, 1] = X[:, 0] + 0.1 * rng.normal(size=n_rows)
    return X, 3 * X[:, 0] * (X[:, 3] > 0) + 5 * X[:, 2] + 0.5 * X[:, 0]


@pytest.mark.parametrize("missing", [False, True])
def test_strongest_interaction_colours(missing: bool) -> None:
    X, y = interacting()
    if missing:
        X[np.random.default_rng(1).random(X.shape) < 0.1] = np.nan
    model = HistGradientBoostingRegressor(max_iter=60, random_state=0).fit(X, y)
    exact = np.abs(explain_interactions(model, X).matrices()[:, 0]).mean(axis=0)
    exact[0] = 0
    assert exact.argmax() == 3, "the data is as intended"
    assert ShapDependenceDisplay.from_estimator(model, X, 0).color_name == "x3"
    assert ShapDependenceDisplay.from_explanation(explain(model, X), 0).color_name == "x3"


def test_no_interaction_no_colour() -> None:
    X = np.random.default_rng(0).normal(size=(500, 3))
    stumps = HistGradientBoostingRegressor(max_depth=1).fit(X, X.sum(axis=1))
    for display in (
        ShapDependenceDisplay.from_estimator(stumps, X, 0),
        ShapDependenceDisplay.from_explanation(explain(stumps, X), 0),
    ):
        assert display.color_name is None and len(display.figure_.axes) == 1
        np.testing.assert_allclose(display.points_.get_facecolor()[0, :3], rgba(NEGATIVE)[:3])


@pytest.mark.usefixtures("on_cpu")
def test_interactions_that_options_rule_out_are_approximated() -> None:
    X, y = interacting()
    model = HistGradientBoostingClassifier(max_iter=30, random_state=0).fit(X, y - 5 * X[:, 2] > 0)
    display = ShapDependenceDisplay.from_estimator(
        model, X[:400], 0, data=X[:100], model_output="probability"
    )
    assert display.color_name is not None
    chosen = ShapDependenceDisplay.from_estimator(model, X[:50], 0, color_by="x4")
    assert chosen.color_name == "x4"
    assert ShapDependenceDisplay.from_estimator(model, X[:50], 0, color_by=None).color_name is None


def test_dependence_of_one_of_several_outputs(wine: Explanation) -> None:
    model = RandomForestClassifier(10, random_state=0).fit(WINE, CULTIVAR)
    by_interactions = explain_interactions(model, WINE).matrices()
    for output in range(3):
        strength = np.abs(by_interactions[:, 12, :, output]).mean(axis=0)
        strength[12] = 0
        display = ShapDependenceDisplay.from_estimator(model, WINE, 12, output=output)
        assert display.color_name == f"x{strength.argmax()}"
        np.testing.assert_allclose(np.sort(display.values), np.sort(wine.values[:, 12, output]), atol=1e-6)
        assert f"for {output}" in display.ax_.get_ylabel()


def test_dependence_needs_data() -> None:
    with pytest.raises(ValueError, match="the explanation has no data"):
        ShapDependenceDisplay.from_explanation(random_explanation(data=None), 0)
    with pytest.raises(ValueError, match="feature: there is no feature 'no such', only 'feature 0'"):
        ShapDependenceDisplay.from_explanation(random_explanation(), "no such")
    with pytest.raises(TypeError, match=r"feature: \[0, 1\] is neither a name nor a position"):
        ShapDependenceDisplay.from_explanation(random_explanation(), [0, 1])
    with pytest.raises(ValueError, match="max_rows must be at least 1"):
        ShapDependenceDisplay.from_explanation(random_explanation(), 0, max_rows=0)


# Waterfalls


def test_waterfall_leads_from_base_value_to_prediction(diabetes: Explanation) -> None:
    model = RandomForestRegressor(10, max_depth=5, random_state=0).fit(DIABETES, PROGRESSION)
    display = ShapWaterfallDisplay.from_explanation(diabetes, row=7, max_features=6)
    bars, values = list(display.bars_), diabetes.values[7]
    order = np.argsort(-np.abs(values))
    expected = [*values[order[:6]], values[order[6:]].sum()]
    np.testing.assert_allclose([bar.get_width() for bar in bars], expected)
    starts = [bar.get_x() for bar in bars]
    np.testing.assert_allclose(starts[-1], diabetes.base_values)
    np.testing.assert_allclose(starts[:-1], [bar.get_x() + bar.get_width() for bar in bars[1:]])
    prediction = float(model.predict(DIABETES[7:8])[0])
    assert starts[0] + bars[0].get_width() == pytest.approx(prediction, rel=1e-5)
    *steps, top, bottom = (text.get_text() for text in display.texts_)
    assert top.startswith("f(x) = ") and float(top[7:]) == pytest.approx(prediction, abs=1)
    assert bottom.startswith("E[f(X)] = ") and float(bottom[10:]) == pytest.approx(
        diabetes.base_values, abs=1
    )
    shown = [float(step.replace("\N{MINUS SIGN}", "-")) for step in steps]
    np.testing.assert_allclose(shown, expected, rtol=5e-3)
    for bar, value in zip(bars, expected, strict=True):
        assert bar.get_facecolor() == colors.to_rgba(POSITIVE if value >= 0 else NEGATIVE)
    names = row_names(display)
    assert names[-1] == "4 other features"
    first, value = names[0].split(" = ")
    assert first == diabetes.feature_names[order[0]]
    assert float(value.replace("\N{MINUS SIGN}", "-")) == pytest.approx(DIABETES[7, order[0]], rel=1e-4)
    pixels = assert_readable(display.figure_)
    for bar in bars:
        assert_filled(pixels, bar)


def test_colours_of_a_waterfall() -> None:
    explanation = random_explanation(1, 3, values=np.array([[3.0, -2.0, 1.0]]))
    display = ShapWaterfallDisplay.from_explanation(explanation, color=("black", "red"))
    drawn = [bar.get_facecolor() for bar in display.bars_]
    assert drawn == [colors.to_rgba(name) for name in ("red", "black", "red")]
    with pytest.raises(ValueError, match="color must be 2 colours, one for each direction, not 'red'"):
        display.plot(color="red")


def test_waterfall_resolves_its_ends() -> None:
    explanation = random_explanation(1, 2, values=np.array([[30.0, -10.0]]), base_values=1_234_567.0)
    *_, top, bottom = (text.get_text() for text in ShapWaterfallDisplay.from_explanation(explanation).texts_)
    assert (top, bottom) == ("f(x) = 1234587.0", "E[f(X)] = 1234567.0")


def test_waterfall_of_one_output(wine: Explanation) -> None:
    display = ShapWaterfallDisplay.from_explanation(wine, row=-1, output=2)
    end = display.bars_[0].get_x() + display.bars_[0].get_width()
    assert end == pytest.approx(wine.base_values[2] + wine.values[-1, :, 2].sum(), rel=1e-5)
    assert display.ax_.get_xlabel() == "probability of 2"


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("place", ["new figure", "axes"])
def test_waterfall_of_log_odds_has_probabilities(place: str) -> None:
    model = HistGradientBoostingClassifier(max_iter=10).fit(CANCER.data, CANCER.target)
    ax = None if place == "new figure" else pyplot.figure(figsize=(8, 6), layout="constrained").add_subplot()
    display = ShapWaterfallDisplay.from_estimator(model, CANCER.data[:5], row=2, ax=ax)
    assert display.ax_.get_xlabel() == "log-odds"
    assert_readable(display.figure_)
    (top,) = display.ax_.child_axes
    assert top.get_xlabel() == "probability" and top.get_xlim() == display.ax_.get_xlim()
    places, texts = top.get_xticks(), [float(text.get_text()) for text in top.get_xticklabels()]
    np.testing.assert_allclose(1 / (1 + np.exp(-places)), texts, rtol=1e-12)
    end = display.bars_[0].get_x() + display.bars_[0].get_width()
    assert 1 / (1 + np.exp(-end)) == pytest.approx(model.predict_proba(CANCER.data[2:3])[0, 1], rel=1e-5)
    explanation = explain(RandomForestClassifier(5).fit(CANCER.data, CANCER.target), CANCER.data[:5])
    assert not ShapWaterfallDisplay.from_explanation(explanation).ax_.child_axes


@pytest.mark.parametrize(
    ("low", "high"), [(-1, 1), (-5, 5), (-0.1, 0.1), (2, 2.2), (-9, -7), (-20, 20), (6, 12)]
)
def test_ticks_of_probabilities(low: float, high: float) -> None:
    ticks = probability_ticks(low, high)
    places = np.log(ticks) - np.log1p(-np.array(ticks))
    assert 5 <= len(ticks) <= 11 and low <= places[0] and places[-1] <= high
    assert np.diff(places).min() >= 0.0999 * (high - low)
    assert all(tick == float(f"{tick:.6f}") for tick in ticks)


@pytest.mark.parametrize("n_outputs", [1, 3])
def test_waterfall_of_base_values_of_rows(n_outputs: int) -> None:
    rng = np.random.default_rng(0)
    shape = (6,) if n_outputs == 1 else (6, n_outputs)
    changes: dict[str, Any] = {"base_values": rng.normal(size=shape)}
    output = None
    if n_outputs > 1:
        changes |= {"values": rng.normal(size=(6, 5, 3)), "output_names": ("a", "b", "c")}
        output = "b"
    explanation = random_explanation(6, **changes)
    display = ShapWaterfallDisplay.from_explanation(explanation, row=4, output=output)
    base = explanation.base_values[4] if n_outputs == 1 else explanation.base_values[4, 1]
    values = explanation.values[4] if n_outputs == 1 else explanation.values[4, :, 1]
    assert display.base_value == base
    end = display.bars_[0].get_x() + display.bars_[0].get_width()
    assert end == pytest.approx(base + values.sum())


@pytest.mark.usefixtures("on_cpu")
def test_waterfall_of_a_loss() -> None:
    target = CANCER.target
    model = HistGradientBoostingClassifier(max_iter=10).fit(CANCER.data, target)
    options: dict[str, Any] = {"data": CANCER.data[:50], "model_output": "log_loss"}
    display = ShapWaterfallDisplay.from_estimator(model, CANCER.data[:5], y=target[:5], row=2, **options)
    loss = -np.log(model.predict_proba(CANCER.data[2:3])[0, target[2]])
    end = display.bars_[0].get_x() + display.bars_[0].get_width()
    assert end == pytest.approx(loss, rel=1e-4) and display.ax_.get_xlabel() == "loss"


def test_waterfall_refuses() -> None:
    with pytest.raises(ValueError, match="row: row 50 is out of range for 50 rows"):
        ShapWaterfallDisplay.from_explanation(random_explanation(), row=50)
    with pytest.raises(ValueError, match="Banzhaf values do not add up"):
        ShapWaterfallDisplay.from_explanation(random_explanation(index="BV"))
