"""Options of the displays: rows by position and label, and invalid numbers of features and rows."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import RandomForestRegressor

from skshapgpu import (
    Explanation,
    ShapBarDisplay,
    ShapBeeswarmDisplay,
    ShapComparisonDisplay,
    ShapDependenceDisplay,
    ShapInteractionDisplay,
    ShapWaterfallDisplay,
    TreeExplainer,
)

pyplot = pytest.importorskip("matplotlib.pyplot")

LABELS = ["c5", "c6", "c7", "c8", "c6"]


def explanation(index: Any = None) -> Explanation:
    """Make an explanation of five rows, in which all values of row i are i + 1."""
    values = np.repeat(np.arange(1.0, 6.0)[:, None], 3, axis=1)
    return Explanation(values, 10.0, values, ("a", "b", "c"), row_labels=index)


@pytest.mark.parametrize("cls", [ShapBeeswarmDisplay, ShapDependenceDisplay, ShapInteractionDisplay])
def test_options_of_points_and_colour_bars(cls: Any) -> None:
    if cls is ShapInteractionDisplay:
        display = cls(np.ones((3, 3)), ["a", "b", "c"])
    else:
        display = cls.from_explanation(explanation(), *["a"] * (cls is ShapDependenceDisplay))
        for size in (0, -1.0):
            with pytest.raises(ValueError, match="size == "):
                display.plot(size=size)
        with pytest.raises(TypeError, match="size must be an instance of float"):
            display.plot(size="large")
    name = "histogram" if cls is ShapDependenceDisplay else "colorbar"
    with pytest.raises(TypeError, match=f"{name} must be a bool, not 'no'"):
        display.plot(**{name: "no"})


@pytest.mark.parametrize("color", [3, [2.5], object(), [("red", "black")]])
def test_what_is_no_colour(color: Any) -> None:
    with pytest.raises(ValueError, match="is not a colour of matplotlib"):
        ShapBarDisplay.from_explanation(explanation(), color=color)


def test_unlisted_pairs_are_unknown() -> None:
    """Unlisted pairs are blank in the heat map, and 0 in the matrices, as both docstrings say."""
    X = np.random.default_rng(0).normal(size=(60, 3))
    model = RandomForestRegressor(5, random_state=0).fit(X, X[:, 0] * X[:, 1] + X[:, 2])
    every = TreeExplainer(model).explain_interactions(X)
    assert every.interactions.tolist() == [[0, 1], [0, 2], [1, 2]]
    strength = ShapInteractionDisplay.from_explanation(every).matrix
    assert (strength > 0).all()
    np.testing.assert_allclose(strength[0, 1], 2 * np.abs(every.matrices()[:, 0, 1]).mean(), rtol=1e-6)
    one = TreeExplainer(model).explain_interactions(X, interactions=[(0, 1)])
    strength, matrices = ShapInteractionDisplay.from_explanation(one).matrix, one.matrices()
    is_listed = np.zeros((3, 3), bool)
    is_listed[0, 1] = is_listed[1, 0] = True
    np.testing.assert_array_equal(np.isnan(strength), ~is_listed)
    assert not matrices[:, ~is_listed & ~np.eye(3, dtype=bool)].any()
    assert np.isnan(matrices[:, np.eye(3, dtype=bool)]).all()
    for documented in (ShapInteractionDisplay.__doc__, type(one).matrices.__doc__):
        assert "If the caller chose the pairs" in " ".join(str(documented).split())


def row_of(display: ShapWaterfallDisplay) -> int:
    return int(display.values[0]) - 1


def labelled(labels: Any) -> Explanation:
    pd = pytest.importorskip("pandas")
    return explanation(pd.Index(labels))


@pytest.mark.parametrize(
    ("row", "position"), [("c7", 2), (np.str_("c5"), 0), (3, 3), (-1, 4), (np.int64(-5), 0)]
)
def test_rows_by_label_and_position(row: Any, position: int) -> None:
    assert row_of(ShapWaterfallDisplay.from_explanation(labelled(LABELS), row=row)) == position


def test_whole_numbers_are_positions() -> None:
    """As in ``explanation[row]``, whatever the labels are."""
    assert row_of(ShapWaterfallDisplay.from_explanation(labelled([4, 3, 2, 1, 0]), row=1)) == 1


def test_labels_of_other_kinds() -> None:
    pd = pytest.importorskip("pandas")
    days = labelled(pd.date_range("2026-01-01", periods=5))
    assert row_of(ShapWaterfallDisplay.from_explanation(days, row=pd.Timestamp("2026-01-03"))) == 2
    pairs = explanation(pd.MultiIndex.from_product([["x"], list("abcde")]))
    assert row_of(ShapWaterfallDisplay.from_explanation(pairs, row=("x", "d"))) == 3


@pytest.mark.parametrize(
    ("row", "error", "message"),
    [
        ("c6", ValueError, "2 rows have the label 'c6': choose one by its position"),
        ("c9", ValueError, "row 'c9' is not among the labels of the rows"),
        (["c7"], ValueError, "is not among the labels"),
        (5, ValueError, "row: row 5 is out of range for 5 rows"),
        (-6, ValueError, "row -6 is out of range"),
        (1.0, TypeError, "row must be a position or a label, not 1.0"),
        (True, TypeError, "row must be a position or a label, not True"),
        (np.bool_(True), TypeError, "row must be a position or a label"),
    ],
)
def test_rows_that_are_not_there(row: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ShapWaterfallDisplay.from_explanation(labelled(LABELS), row=row)


def test_labels_where_there_are_none() -> None:
    with pytest.raises(TypeError, match="row must be a position, not 'c7': only rows of a pandas"):
        ShapWaterfallDisplay.from_explanation(explanation(), row="c7")


def test_labels_of_the_frame_that_an_estimator_gets() -> None:
    pd = pytest.importorskip("pandas")
    from sklearn.ensemble import RandomForestRegressor

    X = pd.DataFrame({"a": range(5), "b": [3, 1, 4, 1, 5]}, index=["c5", "c6", "c7", "c8", "c9"])
    model = RandomForestRegressor(5, random_state=0).fit(X, [1, 2, 3, 4, 5])
    display = ShapWaterfallDisplay.from_estimator(model, X, row="c8")
    np.testing.assert_array_equal(display.values, ShapWaterfallDisplay.from_estimator(model, X, row=3).values)
    assert display.ax_.get_yticklabels()[0].get_text() in ("a = 3", "b = 1")


@pytest.mark.parametrize(
    ("value", "error"), [("5", TypeError), (2.5, TypeError), (True, TypeError), (0, ValueError)]
)
@pytest.mark.parametrize(
    ("cls", "option"),
    [
        (ShapBarDisplay, "max_features"),
        (ShapBeeswarmDisplay, "max_features"),
        (ShapBeeswarmDisplay, "max_rows"),
        (ShapDependenceDisplay, "max_rows"),
        (ShapWaterfallDisplay, "max_features"),
    ],
)
def test_numbers_of_features_and_rows(cls: Any, option: str, value: Any, error: type[Exception]) -> None:
    first = ["a"] if cls is ShapDependenceDisplay else []
    with pytest.raises(error, match=f"{option} must be"):
        cls.from_explanation(explanation(), *first, **{option: value})


@pytest.mark.parametrize(
    "cls",
    [
        ShapBarDisplay,
        ShapBeeswarmDisplay,
        ShapComparisonDisplay,
        ShapDependenceDisplay,
        ShapInteractionDisplay,
        ShapWaterfallDisplay,
    ],
)
def test_arguments_of_plot_are_arguments_of_all_from_methods(cls: Any) -> None:
    """Options have the same defaults and the same names in all displays."""
    parameters = dict(inspect.signature(cls.plot).parameters)
    del parameters["self"]
    methods = [name for name in dir(cls) if name.startswith("from_")]
    for name in methods:
        options = inspect.signature(getattr(cls, name)).parameters
        for argument, parameter in parameters.items():
            assert options[argument].default == parameter.default, (name, argument)
    assert set(parameters) <= {
        "ax",
        "cmap",
        "color",
        "colorbar",
        "diagonal",
        "histogram",
        "max_features",
        "max_rows",
        "size",
    }
    assert ("max_features" in parameters) == (cls is not ShapDependenceDisplay)
    assert parameters["ax"].annotation == "Axes | None"
    for argument in {"ax", "cmap", "color"} & set(parameters):
        assert parameters[argument].default is None


@pytest.mark.parametrize(
    "cls",
    [
        ShapBarDisplay,
        ShapBeeswarmDisplay,
        ShapComparisonDisplay,
        ShapInteractionDisplay,
        ShapWaterfallDisplay,
    ],
)
def test_arguments_of_shap_are_unknown_with_a_hint(cls: Any) -> None:
    methods = [name for name in dir(cls) if name.startswith("from_")]
    assert methods
    for name in (*methods, "plot"):
        with pytest.raises(
            TypeError, match=rf"{name}\(\) got an .* 'max_display'. Did you mean 'max_features'\?"
        ):
            getattr(cls, name)(None, None, max_display=5)
    with pytest.raises(TypeError, match=r"from_explanation.*'colour_by'. Did you mean 'color_by'"):
        ShapDependenceDisplay.from_explanation(explanation(), 0, colour_by=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"plot.*'cmaps'. Did you mean 'cmap'"):
        ShapDependenceDisplay.from_explanation(explanation(), 0).plot(cmaps="viridis")  # type: ignore[call-arg]


def test_numbers_of_features_of_interactions() -> None:
    from skshapgpu import InteractionExplanation

    pairs = np.array([[0, 1], [0, 2], [1, 2]])
    explanation = InteractionExplanation(np.ones((2, 3)), 0.0, None, ("a", "b", "c"), interactions=pairs)
    with pytest.raises(TypeError, match="max_features must be an int or None, not '2'"):
        ShapInteractionDisplay.from_explanation(explanation, max_features="2")  # type: ignore[arg-type]
