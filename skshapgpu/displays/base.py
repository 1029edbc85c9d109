"""Code shared by the displays: selection of outputs and rows, text, colours, axes and legends."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from numbers import Number, Real
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from sklearn.utils import check_scalar

from .._common.checks import require_count, with_article
from .._common.digits import number
from .._common.distinct import distinct_numbers
from .._common.indices import INDICES
from .._common.lazy import import_for
from .._common.positions import is_integer, listed, read_position, require_position
from .._explanations.selection import positions_of_label
from .._explanations.values import Explanation, LabelledValues
from .._explanations.values import with_unit as values_with_unit
from .._rows.gpu_arrays import to_host
from ..explainer import as_explainer

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colorbar import Colorbar
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure
    from matplotlib.text import Annotation
    from matplotlib.typing import ColorType

#: Colours that people with any kind of colour vision can tell apart (Okabe & Ito, Color Universal Design,
#: 2008).
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000")

#: Colours of SHAP values that lower an output, and of SHAP values that raise it.
NEGATIVE, POSITIVE = "#0072B2", "#D55E00"

#: Colours of the displays' own colormap, from low to high.
LOW_TO_HIGH = (NEGATIVE, "#9A4FA8", POSITIVE)

#: Colours of missing feature values, and of points without a feature value.
MISSING, NEUTRAL = "#A0A0A0", "#404040"

#: Longest name that is shown in full, in characters.
_LONGEST_NAME = 40

#: Width of a letter and maximum size of a chart, in inches; a larger chart could not be saved as an image.
LETTER, LARGEST = 0.085, 200.0

#: Number of points from which a chart in a vector format stores its points as an image.
MANY = 5_000

#: Height of a row of a chart, and of everything above and below the rows, in inches.
_ROW, _HEAD = 0.32, 1.0

#: Height of each further bar in a row, relative to the first bar.
_BESIDE = 0.6


def pyplot() -> Any:
    """Import ``matplotlib.pyplot``, or raise an ``ImportError`` that says what to install."""
    return import_for("displays need matplotlib", "matplotlib.pyplot", "matplotlib")


def value_name(explanation: Any) -> str:
    """Return the name of one value of an explanation, or of a comparison of explanations."""
    return INDICES[explanation.index].value_name


def with_unit(label: str, explanation: Any) -> str:
    """Return a label with the unit of an explanation, or of a comparison; see :func:`.values.with_unit`."""
    return values_with_unit(label, explanation.unit)


def resolution(explanation: Any) -> float:
    """Return the magnitude from which on a value says something; smaller values are due to rounding."""
    return float(explanation.additivity_error or 0.0)


def require_size(size: Any) -> None:
    """Raise ``TypeError`` or ``ValueError`` unless ``size``, the area of a point, is a positive number."""
    check_scalar(size, "size", Real, min_val=0, include_boundaries="neither")


def require_max_features(max_features: Any) -> None:
    """Raise ``TypeError`` or ``ValueError`` unless ``max_features`` is None or an int >= 1."""
    require_count("max_features", max_features, also=(None,))


def require_explanation(explanation: Any) -> Explanation:
    if not isinstance(explanation, Explanation):
        raise TypeError(f"explanation must be an Explanation, not {with_article(explanation)}")
    return explanation


def explanation_of(estimator: Any, X: Any, y: Any, options: Mapping[str, Any]) -> Explanation:
    """Explain rows. Without matplotlib, raise an ``ImportError`` before any work is done."""
    pyplot()
    return as_explainer(estimator, options).explain(X, y)


def output_position(explanation: LabelledValues, output: Any) -> int | None:
    """Return the position of the output that ``output`` names; None if there is only one output."""
    if explanation.values.ndim == 2:
        if output is not None:
            raise ValueError(f"output={output!r}, but the explanation is of one output: leave it out")
        return None
    names = explanation.output_names or tuple(range(explanation.values.shape[-1]))
    if output is None:
        raise ValueError(
            f"the explanation is of {len(names)} outputs: choose one with output=, out of {listed(names)}"
        )
    return read_position("output", output, names, "output", from_end=True)


def output_name(explanation: LabelledValues, position: int) -> str:
    """Return the name of one of several outputs, shortened if it is long."""
    assert explanation.output_names is not None
    return short(explanation.output_names[position])


def values_of(explanation: Explanation, output: Any) -> np.ndarray:
    """Return the values of one output as a NumPy array (n_rows, n_features); see :func:`output_position`."""
    position = output_position(explanation, output)
    values = to_host(explanation.values)
    return values if position is None else values[:, :, position]


def values_label(explanation: Explanation, output: Any) -> str:
    """Return a label that names the values and, if there are several outputs, the output."""
    position = output_position(explanation, output)
    suffix = "" if position is None else f" for {output_name(explanation, position)}"
    return with_unit(f"{value_name(explanation)}{suffix}", explanation)


def row_position(explanation: Explanation, row: Hashable) -> int:
    """Return the position of a row. An integer is a position; a label may be anything except a number."""
    if is_integer(row):
        return require_position("row", row, len(explanation), "row", from_end=True)
    if isinstance(row, (Number, np.bool_)):
        raise TypeError(f"row must be a position or a label, not {row!r}")
    if explanation.row_labels is None:
        raise TypeError(f"row must be a position, not {row!r}: only rows of a pandas data frame have labels")
    try:
        rows = positions_of_label(explanation.row_labels, row)
    except KeyError as error:
        raise ValueError(*error.args) from None
    if len(rows) > 1:
        raise ValueError(f"{len(rows)} rows have the label {row!r}: choose one by its position")
    return int(rows[0])


def explained_rows(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions of the rows that have values, and the values of these rows.

    The values of a row that no split tested are NaN. Raise ``ValueError`` if no row has values.
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
    ends = distinct_numbers(ends[: n // 2])
    others = order[~np.isin(order, ends)]
    return np.random.default_rng(0).permutation(np.concatenate([ends, others[: n - len(ends)]]))


def ranked(importances: np.ndarray, max_features: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions of the features to show, the most important first, and of all other features."""
    require_max_features(max_features)
    order = np.argsort(-importances, kind="stable")
    n_shown = len(order) if max_features is None else max_features
    return order[:n_shown], order[n_shown:]


def others_name(n: int) -> str:
    return f"{n} other feature" + "s" * (n > 1)


def short(text: Any, length: int = _LONGEST_NAME) -> str:
    """Return a string on one line, with an ellipsis in its middle if it is long."""
    text = " ".join(str(text).split())
    if len(text) <= length:
        return text
    end = length // 3
    return f"{text[: length - end - 1]}…{text[-end:]}"


def numeral(value: float, digits: int = 3, *, padded: bool = True, error: float = 0.0) -> str:
    """Return a number as :func:`number` writes it, with a real minus sign; "0" if it is within the error."""
    if abs(value) <= error:
        return "0"
    return number(value, digits, padded=padded).replace("-", "\N{MINUS SIGN}")


def signed(value: float, error: float) -> str:
    """Return a number with its sign, even if the sign is a plus; "0" if it is within the error."""
    return ("+" if value > error else "") + numeral(value, error=error)


def new_axes(width: float, height: float) -> Axes:
    """Create axes in a figure of this size in inches, with a margin around everything that is drawn."""
    figure, ax = pyplot().subplots(figsize=(width, height), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.1, h_pad=0.1)
    return ax


def figure_of(ax: Axes) -> Figure:
    """Return the figure of axes. For axes in a subfigure, it is the subfigure."""
    return cast("Figure", ax.figure)


def colormap(cmap: str | Colormap | None) -> Colormap:
    """Return the colormap with a name, ``cmap`` itself, or, if it is None, the displays' own colormap."""
    from matplotlib.colors import LinearSegmentedColormap

    if cmap is None:
        return LinearSegmentedColormap.from_list("low_to_high", LOW_TO_HIGH)
    return pyplot().get_cmap(cmap)


def series_colors(
    color: ColorType | Sequence[ColorType] | None, default: Sequence[ColorType], kind: str
) -> list[ColorType]:
    """Return one colour for each series of bars or points.

    ``color`` is the user's choice: as many colours as there are series; if None, ``default`` are the colours.
    Raise ``ValueError`` if it does not have one colour for each series. ``kind`` is the noun for a series in
    the message: "output" or "cohort".
    """
    if color is None:
        return list(default)
    is_sequence = np.iterable(color) and not isinstance(color, str) and not _is_color(color)
    colors = list(cast("Sequence[ColorType]", color)) if is_sequence else [cast("ColorType", color)]
    if len(colors) != len(default):
        required = "one colour" if len(default) == 1 else f"{len(default)} colours, one for each {kind}"
        raise ValueError(f"color must be {required}, not {color!r}")
    for one in colors:
        if not _is_color(one):
            raise ValueError(f"color: {one!r} is not a colour of matplotlib")
    return colors


def _is_color(value: Any) -> bool:
    """Return whether matplotlib takes a value as one colour."""
    from matplotlib.colors import is_color_like

    try:
        return is_color_like(value)
    except TypeError:  # matplotlib 3.8 and 3.9 read two names as a name and its opacity
        return False


def row_axes(
    ax: Axes | None,
    labels: Sequence[str],
    per_row: int = 1,
    *,
    more_rows: float = 0.0,
    key_width: float = 0.0,
) -> tuple[Axes, float]:
    """Return axes with a row for each label, the first on top, and the size of a font that fits into a row.

    New axes are as high as the rows and as wide as the labels require. With several bars in a row
    (``per_row``), rows are higher, and the font fits beside one bar. ``more_rows`` is the height of what is
    above and below the rows, in rows, and ``key_width`` the width of the key beside the axes, in inches.
    """
    plt = pyplot()
    n_rows, longest = len(labels), max(map(len, labels))
    if ax is None:
        row = _ROW * (1 + _BESIDE * (per_row - 1))
        height = row * (max(n_rows, 2) + more_rows)
        ax = new_axes(5.2 + LETTER * longest + key_width, min(_HEAD + height, LARGEST))
        height = min(height, LARGEST - _HEAD)
    else:
        height = ax.get_window_extent().height / ax.figure.dpi
    usual_size = float(plt.rcParams["font.size"])
    largest_size = 0.75 * 72 * height / (n_rows + more_rows)
    ax.set_yticks(range(n_rows), labels, fontsize=min(usual_size, largest_size), parse_math=False)
    ax.set_ylim(n_rows - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.grid(axis="x", color="0.9", linewidth=0.8)
    ax.set_axisbelow(True)
    return ax, min(usual_size, largest_size / per_row)


def colorbar(ax: Axes, mappable: Any, label: str) -> Colorbar:
    """Add a scale of colours that belongs to the axes: it is as high, and moves with them."""
    bar = figure_of(ax).colorbar(mappable, cax=ax.inset_axes((1.02, 0, 0.02, 1)))
    bar.set_label(label, parse_math=False)
    bar.outline.set_visible(False)
    return bar


def legend_beside(ax: Axes, handles: Sequence[Any], labels: Sequence[str], title: str | None = None) -> None:
    """Add a legend to the right of the axes, where it hides nothing."""
    legend = ax.legend(
        handles,
        labels,
        title=title,
        loc="upper left",
        bbox_to_anchor=(1, 1),
        frameon=False,
        alignment="left",
        handlelength=1,
        handletextpad=0.5,
        borderaxespad=0.3,
    )
    for text in (legend.get_title(), *legend.get_texts()):
        text.set_parse_math(False)


def legend_of_missing(ax: Axes, label: str) -> None:
    """Add a legend above the axes that explains the grey points: they have missing values."""
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


def beside(ax: Axes, text: str, end: tuple[Any, Any], gap: float, size: float) -> Annotation:
    """Write a text ``gap`` points to the right of the end of a bar or line, or to the left if negative."""
    side: Any = "left" if gap > 0 else "right"
    return ax.annotate(text, end, (gap, 0), textcoords="offset points", ha=side, va="center", fontsize=size)
