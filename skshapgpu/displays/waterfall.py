"""Waterfall plot of one row's SHAP values, from the base value to the prediction."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
from scipy.special import expit, logit

from .._common.checks import checks_options, require_options
from .._common.digits import digits_for
from .._common.distinct import distinct_numbers
from .._common.indices import INDICES
from .._common.types import ExplainerOptions, Model, Table, Values, Vector, lists_options
from .._explanations.values import Explanation
from .._rows.columns import read_column
from . import base
from .room import fit, make_room

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axes._secondary_axes import SecondaryAxis
    from matplotlib.container import BarContainer
    from matplotlib.figure import Figure
    from matplotlib.text import Annotation
    from matplotlib.typing import ColorType

#: Smallest distance between two ticks of probabilities, as a fraction of the width of the axes, and smallest
#: gap between their labels, in inches.
_TICK_DISTANCE, _LABEL_GAP = 0.1, 0.12

#: Height of ``f(x)`` above the bars and ``E[f(X)]`` below them, and of an axis of probabilities, in rows.
_TOTALS, _TOP_AXIS = 1.8, 1.7


class ShapWaterfallDisplay:
    """Waterfall plot of one row: its SHAP values lead from the base value to the prediction.

    Create one with :meth:`from_explanation` or :meth:`from_estimator`. The largest values are on top.
    ``E[f(X)]`` is the base value. ``f(x)`` is the base value plus all SHAP values of the row: its prediction,
    or its log-odds, probability, loss or margin, as the label of the x-axis says. The probability is written
    beside log-odds.

    Parameters
    ----------
    values : ndarray of shape (n_features,)
        SHAP values of the row.
    base_value : float
        Base value, where the bars begin.
    feature_names : sequence of str of length n_features
        Names of the features.
    feature_values : sequence of str of length n_features, or None, default=None
        Strings to write after the names of the features.
    label : str, default="margin"
        Label of the x-axis.
    log_odds : bool, default=False
        Whether the values are log-odds. An axis at the top then shows the probabilities.
    error : float, default=0
        Values up to this magnitude are due to rounding, and are shown as 0.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    bars_ : matplotlib BarContainer
        The bars from top to bottom: the largest first, the bar of all other features last.
    texts_ : list of matplotlib Annotation
        The numbers beside the bars, then ``f(x)`` and ``E[f(X)]``.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.ensemble import RandomForestRegressor
    >>> from skshapgpu import ShapWaterfallDisplay
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> model = RandomForestRegressor(10, random_state=0).fit(X, y)
    >>> display = ShapWaterfallDisplay.from_estimator(model, X.iloc[:1])
    >>> plt.show()  # doctest: +SKIP
    """

    ax_: Axes
    figure_: Figure
    bars_: BarContainer
    texts_: list[Annotation]

    def __init__(
        self,
        values: Values,
        base_value: float,
        feature_names: Sequence[str],
        *,
        feature_values: Sequence[str] | None = None,
        label: str = "margin",
        log_odds: bool = False,
        error: float = 0.0,
    ) -> None:
        self.values = values
        self.base_value = base_value
        self.feature_names = feature_names
        self.feature_values = feature_values
        self.label = label
        self.log_odds = log_odds
        self.error = error

    @checks_options
    def plot(
        self,
        *,
        ax: Axes | None = None,
        max_features: int | None = 10,
        color: Sequence[ColorType] | None = None,
    ) -> ShapWaterfallDisplay:
        """Draw the chart.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            Axes to draw on; None creates a new figure.
        max_features : int or None, default=10
            Number of features to draw: the features with the largest values. One more bar is the sum of all
            other features. None draws all features.
        color : sequence of two matplotlib colors or None, default=None
            Colour of the values that lower the output and colour of the values that raise it.

        Returns
        -------
        ShapWaterfallDisplay
            The display itself.
        """
        base.pyplot()
        from matplotlib.patheffects import withStroke

        shown, others = base.ranked(np.abs(self.values), max_features)
        steps = self.values[shown].astype(np.float64)
        names = [self._name(i) for i in shown]
        if len(others):
            steps = np.append(steps, self.values[others].sum(dtype=np.float64))
            names.append(base.others_name(len(others)))
        # The steps begin at the base value, at the bottom, and lead upwards to the prediction.
        ends = self.base_value + np.cumsum(steps[::-1])[::-1]
        starts = np.append(ends[1:], self.base_value)
        lowering, raising = base.series_colors(color, (base.NEGATIVE, base.POSITIVE), "direction")
        ax, size = base.row_axes(ax, names, more_rows=_TOTALS + (_TOP_AXIS if self.log_odds else 0))
        rows = np.arange(len(steps))
        colors = [raising if step >= 0 else lowering for step in steps]
        self.bars_ = ax.barh(rows, steps, left=starts, height=0.7, color=colors)
        ax.vlines(ends[1:], rows[1:] - 0.65, rows[1:] + 0.35, color="0.5", linewidth=0.8, zorder=0.9)
        self.texts_ = [
            base.beside(ax, base.signed(step, self.error), (end, row), 4 if step >= 0 else -4, size)
            for row, step, end in zip(rows, steps, ends)
        ]
        extremes = np.array([*ends, self.base_value])
        self.texts_ += self._add_totals(ax, ends[0], float(len(steps)), extremes, size)
        for number in self.texts_:
            number.set_path_effects([withStroke(linewidth=2, foreground="white")])  # above dotted lines
        ax.set_ylim(len(steps) + 0.4, -1.4)
        margin = 0.05 * np.ptp(extremes) or 0.5
        ax.set_xlim(extremes.min() - margin, extremes.max() + margin)
        ax.set_xlabel(self.label, parse_math=False)
        top = ax.secondary_xaxis("top") if self.log_odds else None
        if top is not None:
            top.set_xlabel("probability")
        fit(ax)
        make_room(ax, self.texts_)
        if top is not None:
            _label_probabilities(top, ax)
        self.ax_, self.figure_ = ax, base.figure_of(ax)
        return self

    def _add_totals(
        self, ax: Axes, prediction: float, bottom: float, extremes: np.ndarray, size: float
    ) -> list[Annotation]:
        """Write the prediction above the bars, and the base value below them, at y = ``bottom``."""
        texts, middle = [], (extremes.min() + extremes.max()) / 2
        totals = self._totals(prediction, float(np.ptp(extremes)))
        for text, x, y in zip(totals, (prediction, self.base_value), (-1.0, bottom)):
            ax.plot([x, x], [min(y + 0.4, 0), max(y - 0.4, 0)], color="0.5", lw=0.8, ls=":", zorder=0.9)
            side: Any = "left" if x < middle else "right"  # the text leads to the middle, where it has room
            texts.append(ax.annotate(text, (x, y), ha=side, va="center", fontsize=size))
        return texts

    def _totals(self, prediction: float, width: float) -> tuple[str, str]:
        """Return the prediction and the base value as text, with the digits that resolve the bars."""
        total, base_value = (base.numeral(x, digits_for(x, width)) for x in (prediction, self.base_value))
        probability = f", probability {base.numeral(expit(prediction))}" if self.log_odds else ""
        return f"f(x) = {total}{probability}", f"E[f(X)] = {base_value}"

    def _name(self, feature: int) -> str:
        name = base.short(self.feature_names[feature])
        return (
            name
            if self.feature_values is None
            else f"{name} = {base.short(self.feature_values[feature], 16)}"
        )

    @classmethod
    @checks_options
    def from_explanation(
        cls,
        explanation: Explanation,
        *,
        row: Hashable = 0,
        max_features: int | None = 10,
        output: str | int | None = None,
        ax: Axes | None = None,
        color: Sequence[ColorType] | None = None,
    ) -> ShapWaterfallDisplay:
        """Draw a row of an explanation.

        Parameters
        ----------
        explanation : Explanation
            Explanation that has the row.
        row : int or label, default=0
            Position of the row. If a pandas data frame was explained, also a label of its index that is not
            a number.
        max_features : int or None, default=10
            See :meth:`plot`.
        output : str, int or None, default=None
            The output to draw, by name or position; required if there are several outputs.
        ax, color
            See :meth:`plot`.

        Returns
        -------
        ShapWaterfallDisplay

        Raises
        ------
        ValueError
            There are several outputs and none is chosen; the row does not exist or has no values; several
            rows have the label; the explanation has Banzhaf values, which do not add up to a prediction; or
            an argument has an invalid value.
        TypeError
            ``row`` is neither a position nor a label, or the rows have no labels.
        """
        base.require_explanation(explanation)
        base.require_max_features(max_features)
        if not INDICES[explanation.index].adds_up:
            raise ValueError(
                "a waterfall adds values up to the prediction, but Banzhaf values do not add up: explain the "
                "row with index='SV'"
            )
        row = base.row_position(explanation, row)
        values = base.values_of(explanation, output)[row]
        if not np.isfinite(values).all():
            raise ValueError(f"row {row} has no values: no split tested it")
        base_values = np.asarray(explanation.base_values)
        if base_values.ndim == explanation.values.ndim - 1:  # each row has base values of its own
            base_values = base_values[row]
        position = base.output_position(explanation, output)
        base_value = float(base_values if position is None else base_values[position])
        label = explanation.unit
        if position is not None:
            label += f" of {base.output_name(explanation, position)}"
        display = cls(
            values,
            base_value,
            explanation.feature_names,
            feature_values=_value_strings(explanation, row),
            label=label,
            log_odds=explanation.unit == "log-odds",
            error=base.resolution(explanation),
        )
        return display.plot(ax=ax, max_features=max_features, color=color)

    @classmethod
    @lists_options
    def from_estimator(
        cls,
        estimator: Model,
        X: Table,
        *,
        y: Vector | None = None,
        row: Hashable = 0,
        max_features: int | None = 10,
        output: str | int | None = None,
        ax: Axes | None = None,
        color: Sequence[ColorType] | None = None,
        **options: Unpack[ExplainerOptions],
    ) -> ShapWaterfallDisplay:
        """Explain rows and draw one of them.

        Parameters
        ----------
        estimator : fitted model, str, path, bytes or TreeExplainer
            A fitted model or its file, or an explainer or its file: see :class:`TreeExplainer`.
        X : array-like, sparse matrix or data frame of shape (n_rows, n_features)
            Rows to explain. All of them are explained: pass only the row to draw if you do not need others.
        y : array-like of shape (n_rows,), default=None
            Labels; see :meth:`TreeExplainer.explain`.
        row, max_features, output, ax, color
            See :meth:`from_explanation`.
        **options
            Options of :class:`TreeExplainer`.

        Returns
        -------
        ShapWaterfallDisplay
        """
        require_options(cls.from_estimator, options)
        explanation = base.explanation_of(estimator, X, y, options)
        return cls.from_explanation(
            explanation, row=row, max_features=max_features, output=output, ax=ax, color=color
        )


def _value_strings(explanation: Explanation, row: int) -> list[str] | None:
    """Return the feature values of a row as strings; None if the explanation does not have its data."""
    if explanation.data is None:
        return None
    columns = (
        read_column(explanation.data, feature, np.array([row]))
        for feature in range(len(explanation.feature_names))
    )
    return [column.as_strings(lambda value: base.numeral(value, 5, padded=False))[0] for column in columns]


def _label_probabilities(top: SecondaryAxis, ax: Axes) -> None:
    """Write probabilities on the axis at the top of axes of log-odds, no two of which touch."""
    top.set_xticks([0.0], [""])
    (label,) = top.get_xticklabels()
    box = ax.get_window_extent()

    def width(tick: float) -> float:
        label.set_text(_tick_text(tick))
        return (label.get_window_extent().width + _LABEL_GAP * ax.figure.dpi) / box.width

    low, high = ax.get_xlim()
    ticks = probability_ticks(low, high, width=width)
    top.set_xticks(logit(ticks), [_tick_text(tick) for tick in ticks])


def _tick_text(tick: float) -> str:
    return f"{tick:.10g}"


def probability_ticks(
    low: float,
    high: float,
    distance: float = _TICK_DISTANCE,
    width: Callable[[float], float] = lambda tick: 0.0,
) -> list[float]:
    """Return round probabilities whose log-odds are between two limits, at a distance from each other.

    ``distance`` is a fraction of the difference of the limits, and so is the ``width`` of a tick's label: no
    two labels overlap. Probabilities with the fewest digits are chosen first.
    """
    ticks: list[float] = []
    widths: list[float] = []
    for digits in range(1, 7):
        step = 10.0**-digits
        ends = expit(low), expit(high)
        multiples = np.arange(np.ceil(ends[0] / step), np.floor(ends[1] / step) + 1)
        if len(multiples) > 200:  # only probabilities near 0 and 1 are far apart in log-odds
            multiples = distinct_numbers(np.r_[multiples[:100], multiples[-100:]])
        candidates = np.round(multiples * step, digits)
        for tick in candidates[np.argsort(np.abs(candidates - 0.5), kind="stable")].tolist():
            if not 0 < tick < 1:
                continue
            distances = np.abs(logit(tick) - logit(ticks)) / (high - low)
            if (distances < distance).any():
                continue
            label_width = width(tick)
            if (distances >= (label_width + np.array(widths)) / 2).all():
                ticks.append(tick)
                widths.append(label_width)
    return sorted(ticks)
