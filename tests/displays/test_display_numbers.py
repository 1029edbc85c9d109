"""Numbers in figures and representations show all digits that a reader needs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from skshapgpu import Explanation
from skshapgpu._common.digits import counted, digits_for, number


def explanation(values: np.ndarray, base_value: float, data: Any = None) -> Explanation:
    names = tuple(f"f{i}" for i in range(values.shape[1]))
    return Explanation(values, base_value, data, names)


def read(text: str) -> float:
    return float(text.rpartition("= ")[2].replace("\N{MINUS SIGN}", "-"))


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (209642, 3, "209642"),
        (209642.4, 5, "209642"),
        (-1234567.0, 3, "-1234567"),
        (1.7e12, 6, "1700000000000"),
        (999.4, 3, "999"),
        (999.7, 3, "1000"),
        (0.0380759, 5, "0.038076"),
        (1.5, 4, "1.5"),
        (0.0, 3, "0"),
        (1e-7, 3, "1e-07"),
        (3e15, 3, "3e+15"),
        (np.nan, 3, "nan"),
        (-np.inf, 3, "-inf"),
        (np.float32(1234.5), 6, "1234.5"),
    ],
)
def test_numbers(value: float, digits: int, text: str) -> None:
    assert number(value, digits) == text


@pytest.mark.parametrize("offset", [0.0, 1e-7, 3.0, 209642.0, -1.7e9, 1e12])
@pytest.mark.parametrize("spread", [1e-7, 1e-3, 5.0, 3e4, 1e8])
def test_differences_of_a_hundredth_are_seen(offset: float, spread: float) -> None:
    """Differences remain visible down to the limit of float64; at most 15 digits are shown."""
    base, other = offset, offset + 0.37 * spread
    texts = [number(x, digits_for(x, spread), padded=True) for x in (base, other)]
    difference, expected = float(texts[1]) - float(texts[0]), other - base
    assert abs(difference - expected) <= max(0.01 * spread, 2e-14 * abs(offset))


@pytest.mark.parametrize("base_value", [1e-7, 209642.0, 1e9, -1e12])
@pytest.mark.parametrize("scale", [5.0, 2e4])
def test_waterfalls_resolve_values_beside_any_base_value(base_value: float, scale: float) -> None:
    pytest.importorskip("matplotlib")
    from matplotlib import pyplot

    from skshapgpu import ShapWaterfallDisplay

    values = scale * np.array([[1.0, -0.5, 0.11]])
    display = ShapWaterfallDisplay.from_explanation(explanation(values, base_value))
    *steps, top, bottom = (text.get_text() for text in display.texts_)
    assert "e+" not in top and "e+" not in bottom
    np.testing.assert_allclose([read(step) for step in steps], values[0], rtol=5e-3)
    assert read(top) - read(bottom) == pytest.approx(values.sum(), rel=0.02)
    assert len({*steps, top, bottom}) == 5
    # The axis distinguishes its ends: ticks differ, and are within its limits.
    display.figure_.draw_without_rendering()
    low, high = display.ax_.get_xlim()
    assert low < base_value < high and high - low < 3 * scale
    ticks = [
        tick.label1.get_text()
        for tick in display.ax_.xaxis.get_major_ticks()
        if low <= tick.get_loc() <= high
    ]
    assert len(ticks) >= 3 and len(set(ticks)) == len(ticks)
    pyplot.close(display.figure_)


def test_feature_values_are_whole() -> None:
    pytest.importorskip("matplotlib")
    from matplotlib import pyplot

    from skshapgpu import ShapWaterfallDisplay

    data = np.array([[209642.0, 1_700_000_000_000.0, -0.0380759]])
    display = ShapWaterfallDisplay.from_explanation(explanation(np.array([[3.0, 2.0, 1.0]]), 0.0, data))
    names = [label.get_text() for label in display.ax_.get_yticklabels()]
    assert names == ["f0 = 209642", "f1 = 1700000000000", "f2 = \N{MINUS SIGN}0.038076"]
    pyplot.close(display.figure_)


def test_bars_of_large_values() -> None:
    pytest.importorskip("matplotlib")
    from matplotlib import pyplot

    from skshapgpu import ShapBarDisplay

    display = ShapBarDisplay.from_explanation(explanation(np.array([[209642.0, 1_234_567.0]]), 0.0))
    assert [text.get_text() for text in display.texts_] == ["1234567", "209642"]
    pyplot.close(display.figure_)


def test_representations() -> None:
    shown = repr(explanation(np.array([[209642.0, 5.25]]), 1_700_000_001.0))
    assert "base value: 1700000001\n" in shown and "f0: 209642\n" in shown and "f1: 5.25" in shown
    assert ">209642<" in explanation(np.array([[209642.0, 5.25]]), 1_700_000_001.0)._repr_html_()


def test_nouns_have_the_form_of_their_number() -> None:
    assert [counted(n, "output") for n in (0, 1, 2, 1200)] == [
        "0 outputs",
        "1 output",
        "2 outputs",
        "1,200 outputs",
    ]
    assert [counted(n, "leaf", "leaves") for n in (1, 2)] == ["1 leaf", "2 leaves"]
