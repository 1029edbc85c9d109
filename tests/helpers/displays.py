"""Explanations to draw, and checks that every figure must pass."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.inspection import PartialDependenceDisplay

from skshapgpu import (
    Explanation,
    ShapBarDisplay,
    ShapBeeswarmDisplay,
    ShapDependenceDisplay,
    ShapWaterfallDisplay,
)

DIABETES, PROGRESSION = load_diabetes(return_X_y=True)
CANCER = load_breast_cancer()
WINE, CULTIVAR = load_wine(return_X_y=True)

DISPLAYS = (ShapBarDisplay, ShapBeeswarmDisplay, ShapDependenceDisplay, ShapWaterfallDisplay)


def random_explanation(n_rows: int = 50, n_features: int = 5, **changes: Any) -> Explanation:
    """Make an explanation of random values whose magnitude falls from feature to feature."""
    rng = np.random.default_rng(0)
    facts: dict[str, Any] = {
        "values": rng.normal(size=(n_rows, n_features)) * np.linspace(2, 0.1, n_features),
        "base_values": 3.0,
        "data": rng.normal(size=(n_rows, n_features)),
        "feature_names": tuple(f"feature {i}" for i in range(n_features)),
    }
    return Explanation(**facts | changes)


def draw(cls: Any, explanation: Explanation, **options: Any) -> Any:
    if cls is ShapDependenceDisplay:
        return cls.from_explanation(explanation, 0, **options)
    return cls.from_explanation(explanation, **options)


def rgba(color: Any) -> np.ndarray:
    from matplotlib import colors

    return np.array(colors.to_rgba(color))


def texts(figure: Any) -> list[Any]:
    """Return all visible strings of a figure."""
    from matplotlib.legend import Legend

    labels = []
    children = [child for axes in figure.axes for child in axes.child_axes]
    for axes in [*figure.axes, *children]:
        (left, right), (low, high) = sorted(axes.get_xlim()), sorted(axes.get_ylim())
        labels += [axes.xaxis.label, axes.yaxis.label, axes.title, *axes.texts]
        labels += [t.label1 for t in axes.xaxis.get_major_ticks() if left <= t.get_loc() <= right]
        labels += [t.label2 for t in axes.xaxis.get_major_ticks() if left <= t.get_loc() <= right]
        labels += [t.label1 for t in axes.yaxis.get_major_ticks() if low <= t.get_loc() <= high]
        labels += [t.label2 for t in axes.yaxis.get_major_ticks() if low <= t.get_loc() <= high]
        if axes.get_legend() is not None:
            labels += [axes.get_legend().get_title(), *axes.get_legend().get_texts()]
        labels += [
            text for artist in axes.artists if isinstance(artist, Legend) for text in artist.get_texts()
        ]
    return [text for text in labels if text.get_visible() and text.get_text().strip()]


def assert_readable(figure: Any) -> np.ndarray:
    """Check that strings are inside the figure and do not overlap; return the pixels, which are not blank."""
    figure.canvas.draw()
    pixels = np.asarray(figure.canvas.buffer_rgba())[::-1]  # the first row is the lowest
    page, boxes = figure.bbox, [(text.get_text(), text.get_window_extent()) for text in texts(figure)]
    assert boxes
    for text, box in boxes:
        assert box.x0 >= page.x0 - 0.5 and box.x1 <= page.x1 + 0.5, text
        assert box.y0 >= page.y0 - 0.5 and box.y1 <= page.y1 + 0.5, text
        inside = pixels[int(box.y0) : int(np.ceil(box.y1)), int(box.x0) : int(np.ceil(box.x1))]
        assert inside[..., :3].min() < 160, f"{text} is not seen"
    for i, (text, box) in enumerate(boxes):
        for other, neighbour in boxes[i + 1 :]:
            width = min(box.x1, neighbour.x1) - max(box.x0, neighbour.x0)
            height = min(box.y1, neighbour.y1) - max(box.y0, neighbour.y0)
            # A box is as high as a whole line, so letters do not touch even if boxes do.
            assert width <= 1 or height <= 2, (text, other)
    assert len(np.unique(np.ascontiguousarray(pixels).view(np.uint32))) > 10
    return pixels


def row_names(display: Any) -> list[str]:
    return [label.get_text() for label in display.ax_.get_yticklabels()]


def assert_filled(pixels: np.ndarray, bar: Any) -> None:
    """Check that nine tenths of the pixels within a bar have its colour."""
    box = bar.get_window_extent()
    if box.width < 4:
        return
    rows, columns = slice(int(box.y0) + 1, int(box.y1) - 1), slice(int(box.x0) + 1, int(box.x1) - 1)
    wanted = np.round(rgba(bar.get_facecolor())[:3] * 255)
    close = np.abs(pixels[rows, columns, :3].astype(int) - wanted).max(axis=-1) <= 2
    assert close.mean() > 0.9


def scikit_learns_display(result: Any) -> PartialDependenceDisplay:
    """Draw a result of ``partial_dependence`` with scikit-learn's display."""
    return PartialDependenceDisplay(
        [result],
        features=[result.features],
        feature_names=result.feature_names,
        target_idx=0,
        deciles=result.deciles,
        is_categorical=[result.is_categorical],
    ).plot()
