"""Code shared by the displays: selection of outputs and rows, text, colours, and room for labels."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral, Number
from typing import Any

import numpy as np

from .._common.digits import number
from .._explanations.labels import places_of
from .._explanations.values import Explanation, LabelledValues, positions
from .._rows.gpu_arrays import to_host
from ..explainer import as_explainer

#: Colours that people with any kind of colour vision can tell apart (Okabe & Ito, Color Universal Design,
#: 2008).
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000")

#: Colours of values that lower or raise an output, and of feature values from low to high.
NEGATIVE, POSITIVE = "#0072B2", "#D55E00"
LOW_TO_HIGH = (NEGATIVE, "#9A4FA8", POSITIVE)

#: Colours of missing feature values, and of points without a feature value.
MISSING, NEUTRAL = "#A0A0A0", "#404040"

#: Longest name that is shown in full, in characters.
_LONGEST_NAME = 40

#: Width of a letter and maximum size of a chart, in inches; a larger chart could not be saved as an image.
LETTER, LARGEST = 0.085, 200.0

#: Number of points from which charts in vector formats store them as an image.
MANY = 5_000

#: Height of a row of a chart, and of everything else in the chart, in inches.
_ROW, _HEAD = 0.32, 1.0

#: Height of each further bar in a row, relative to the first.
_BESIDE = 0.6

#: Pixels between a label and its neighbours.
_GAP = 4.0

#: Names of the values of an explanation, by ``index``.
VALUE_NAMES = {"SV": "SHAP value", "BV": "Banzhaf value", "OV": "Owen value"}


def pyplot() -> Any:
    """Import ``matplotlib.pyplot``, or raise an ``ImportError`` that says what to install."""
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError("displays need matplotlib: pip install matplotlib") from error
    return pyplot


def value_name(explanation: Explanation) -> str:
    return VALUE_NAMES[explanation.index]


def with_unit(label: str, explanation: Any) -> str:
    """Return a label of values with their unit, if it has a name."""
    return label if explanation.unit == "margin" else f"{label} ({explanation.unit})"


def require_count(option: str, value: Any) -> None:
    """Raise ``TypeError`` or ``ValueError``, naming the option, unless its value is an int >= 1."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{option} must be an int, not {value!r}")
    if value < 1:
        raise ValueError(f"{option} must be at least 1, not {value!r}")


def require_max_features(max_features: Any) -> None:
    if max_features is not None:
        require_count("max_features", max_features)


def require_explanation(explanation: Any) -> Explanation:
    if not isinstance(explanation, Explanation):
        raise TypeError(f"explanation must be an Explanation, not {with_article(explanation)}")
    return explanation


def with_article(value: Any) -> str:
    """Return the name of a value's class for a message: "a str", "an InteractionExplanation"."""
    name = type(value).__name__
    return f"{'an' if name[0] in 'AEIOUaeiou' else 'a'} {name}"


def explained(estimator: Any, X: Any, y: Any, options: dict[str, Any]) -> Explanation:
    """Explain rows; raise an error beforehand if nothing could be drawn."""
    pyplot()
    return as_explainer(estimator, options).explain(X, y)


def output_position(explanation: LabelledValues, output: Any) -> int | None:
    """Return the position of the requested output (a name or position); None if there is only one."""
    if explanation.values.ndim == explanation._value_axes:
        if output is not None:
            raise ValueError(f"output={output!r}, but the explanation is of one output: leave it out")
        return None
    names = explanation.output_names or tuple(range(explanation.values.shape[-1]))
    if output is None:
        listed = ", ".join(map(repr, names[:10])) + (", ..." if len(names) > 10 else "")
        raise ValueError(f"the explanation is of {len(names)} outputs: choose one with output=, of {listed}")
    chosen = positions(output, len(names), names)
    if chosen is None or len(chosen) != 1:
        raise ValueError(f"output must name one output, not {output!r}")
    return int(chosen[0])


def values_of(explanation: Explanation, output: Any) -> np.ndarray:
    """Return the values of one output, (n_rows, n_features), on the host; see :func:`output_position`."""
    position = output_position(explanation, output)
    values = to_host(explanation.values)
    return values if position is None else values[:, :, position]


def labelled(explanation: Explanation, output: Any) -> str:
    """Return a label that names the values and, if there are several, the output."""
    position = output_position(explanation, output)
    of_output = "" if position is None else f" for {short(explanation.output_names[position])}"
    return with_unit(f"{value_name(explanation)}{of_output}", explanation)


def row_position(explanation: Explanation, row: Any) -> int:
    """Return the position of a row that is given by position or, unless it is a number, by label."""
    n_rows = len(explanation)
    if isinstance(row, Integral) and not isinstance(row, bool):
        if not -n_rows <= int(row) < n_rows:
            raise IndexError(f"row {row} is out of range for {n_rows} rows")
        return int(row) % n_rows
    if isinstance(row, (Number, np.bool_)):
        raise TypeError(f"row must be a position or a label, not {row!r}")
    if explanation.row_labels is None:
        raise TypeError(f"row must be a position, not {row!r}: only rows of a pandas data frame have labels")
    found = places_of(explanation.row_labels, row)
    if len(found) > 1:
        raise ValueError(f"{len(found)} rows have the label {row!r}: choose one by its position")
    return int(found[0])


def explained_rows(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions of rows that have values, and their values; rows that no split tested are NaN.

    Raises
    ------
    ValueError
        No row has values.
    """
    rows = np.flatnonzero(np.isfinite(values).all(axis=tuple(range(1, values.ndim))))
    if not len(rows):
        raise ValueError("the explanation has no row with values: there is nothing to draw")
    return rows, values if len(rows) == len(values) else values[rows]


def some_rows(values: np.ndarray, n: int) -> np.ndarray:
    """Choose at most n rows of (n_rows, n_features) values, in a fixed random order.

    Up to half of them are the rows with the smallest and largest value of each feature, so that the ends
    of the distributions are right.
    """
    order = np.random.default_rng(0).permutation(len(values))
    if len(values) <= n:
        return order
    ends = np.column_stack([values.argmin(axis=0), values.argmax(axis=0)]).ravel()
    ends = np.unique(ends[: n // 2])
    others = order[~np.isin(order, ends)]
    return np.random.default_rng(0).permutation(np.concatenate([ends, others[: n - len(ends)]]))


def ranked(importances: np.ndarray, max_features: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions of the features to show, the largest first, and of all others."""
    require_max_features(max_features)
    order = np.argsort(-importances, kind="stable")
    n_shown = len(order) if max_features is None else max_features
    return order[:n_shown], order[n_shown:]


def others_name(n: int) -> str:
    return f"{n} other feature" + "s" * (n > 1)


def short(text: Any, length: int = _LONGEST_NAME) -> str:
    """Return a text in one line, with an ellipsis in its middle if it is long."""
    text = " ".join(str(text).split())
    if len(text) <= length:
        return text
    end = length // 3
    return f"{text[: length - end - 1]}…{text[-end:]}"


def numeral(value: float, digits: int = 3, *, padded: bool = True) -> str:
    """Return a number as :func:`number` writes it, with a real minus sign."""
    return number(value, digits, padded=padded).replace("-", "\N{MINUS SIGN}")


def signed(value: float) -> str:
    """Return a number with its sign, plus included."""
    return ("+" if value >= 0 else "") + numeral(value)


def new_axes(width: float, height: float) -> Any:
    """Create axes in a figure of this size in inches, with a margin around everything that is drawn."""
    figure, ax = pyplot().subplots(figsize=(width, height), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.1, h_pad=0.1)
    return ax


def colormap(cmap: Any) -> Any:
    """Return a colormap by name, a given one, or, for None, the displays' own; missing values become grey."""
    from matplotlib.colors import LinearSegmentedColormap

    if cmap is None:
        return LinearSegmentedColormap.from_list("low_to_high", LOW_TO_HIGH).with_extremes(bad=MISSING)
    return pyplot().get_cmap(cmap).with_extremes(bad=MISSING)


def row_axes(ax: Any, labels: Sequence[str], per_row: int = 1) -> tuple[Any, float]:
    """Return axes with a row for each label, the first on top, and the font size that fits into a row.

    New axes are as high as the rows and as wide as the labels require. With several bars ``per_row``, rows
    are higher, and the font size is that of the text beside a bar.
    """
    plt = pyplot()
    n_rows, longest = len(labels), max(map(len, labels))
    if ax is None:
        row = _ROW * (1 + _BESIDE * (per_row - 1))
        size = (5.2 + LETTER * longest, min(_HEAD + row * max(n_rows, 2), LARGEST))
        ax = new_axes(*size)
        height = size[1] - _HEAD
    else:
        height = ax.get_window_extent().height / ax.figure.dpi
    of_row, usual = 0.75 * 72 * height / n_rows, float(plt.rcParams["font.size"])
    ax.set_yticks(range(n_rows), labels, fontsize=min(usual, of_row), parse_math=False)
    ax.set_ylim(n_rows - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.grid(axis="x", color="0.9", linewidth=0.8)
    ax.set_axisbelow(True)
    return ax, min(usual, of_row / per_row)


def legend_beside(ax: Any, handles: Sequence[Any], labels: Sequence[str], title: str | None = None) -> None:
    """Add a legend to the right of the axes, where it hides nothing."""
    legend = ax.legend(
        handles,
        labels,
        title=title,
        loc="upper left",
        bbox_to_anchor=(1, 1),
        frameon=False,
        alignment="left",
    )
    for text in (legend.get_title(), *legend.get_texts()):
        text.set_parse_math(False)


def legend_of_missing(ax: Any, label: str) -> None:
    """Add a legend above the axes: a grey point for missing values."""
    legend = ax.legend(
        [ax.scatter([], [], color=MISSING, linewidths=0)],
        [label],
        loc="lower right",
        bbox_to_anchor=(1, 1),
        frameon=False,
        borderpad=0,
        borderaxespad=0.2,
        handletextpad=0,
    )
    legend.get_texts()[0].set_parse_math(False)


def make_room(ax: Any, texts: Sequence[Any]) -> None:
    """Widen the limits of the x-axis until all texts, which are anchored to data positions, are inside."""
    if not texts:
        return
    if hasattr(ax.figure, "draw_without_rendering"):  # a SubFigure does not have it
        ax.figure.draw_without_rendering()
    left, right = ax.get_xlim()
    box = ax.get_window_extent()
    unit = box.width / (right - left)
    reach = []
    for text in texts:
        extent, anchor = text.get_window_extent(), float(text.xy[0])
        pixel = box.x0 + (anchor - left) * unit
        reach.append((anchor, extent.x0 - pixel - _GAP, extent.x1 - pixel + _GAP))
    for _ in range(20):  # wider limits move the anchors; this converges unless text is wider than the axes
        per_pixel = (right - left) / box.width
        left = min(left, *(anchor + low * per_pixel for anchor, low, _ in reach))
        right = max(right, *(anchor + high * per_pixel for anchor, _, high in reach))
    if right - left < 20 / unit * box.width:
        ax.set_xlim(left, right)
