"""Waterfall plot of one row's SHAP values, from the base value to the prediction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import expit, logit

from .._common.digits import digits_for
from .._explanations.values import Explanation
from .._rows.columns import read_column
from .base import (
    NEGATIVE,
    POSITIVE,
    explained,
    make_room,
    numeral,
    others_name,
    output_position,
    ranked,
    require_explanation,
    require_max_features,
    row_axes,
    row_position,
    short,
    signed,
    values_of,
)

#: Part of the width of the axes that ticks of probabilities keep from each other.
_TICK_DISTANCE = 0.1


class ShapWaterfallDisplay:
    """Waterfall plot of one row: its SHAP values lead from the base value to the prediction, largest on top.

    Create one with :meth:`from_explanation` or :meth:`from_estimator`. ``E[f(X)]`` is the base value.
    ``f(x)`` is the base value plus the SHAP values: the row's margin, or its probability or loss if that is
    explained.

    Parameters
    ----------
    values : ndarray of shape (n_features,)
        SHAP values of the row.
    base_value : float
        Base value, where the bars begin.
    feature_names : sequence of str of length n_features
        Names of the features, as they are drawn.
    feature_values : sequence of str of length n_features, or None, default=None
        Text to write after each feature name.
    label : str, default="margin"
        Label of the x-axis.
    log_odds : bool, default=False
        Whether the values are log-odds, whose probabilities an axis at the top shows.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    bars_ : matplotlib BarContainer
        The largest first; the bar of all other features last.
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

    ax_: Any
    figure_: Any
    bars_: Any
    texts_: list[Any]

    def __init__(
        self,
        values: np.ndarray,
        base_value: float,
        feature_names: Sequence[str],
        *,
        feature_values: Sequence[str] | None = None,
        label: str = "margin",
        log_odds: bool = False,
    ) -> None:
        self.values = values
        self.base_value = base_value
        self.feature_names = feature_names
        self.feature_values = feature_values
        self.label = label
        self.log_odds = log_odds

    def plot(self, *, ax: Any = None, max_features: int | None = 10) -> ShapWaterfallDisplay:
        """Draw the chart.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            Axes to draw on; None creates a new figure.
        max_features : int or None, default=10
            Number of bars; the other features are added up in one more. None draws all features.

        Returns
        -------
        ShapWaterfallDisplay
            The display itself.
        """
        shown, others = ranked(np.abs(self.values), max_features)
        steps = self.values[shown].astype(np.float64)
        names = [self._name(i) for i in shown]
        if len(others):
            steps = np.append(steps, self.values[others].sum(dtype=np.float64))
            names.append(others_name(len(others)))
        # The chart is read from the base value, at the bottom, upwards.
        after = self.base_value + np.cumsum(steps[::-1])[::-1]
        before = np.append(after[1:], self.base_value)
        prediction = after[0]
        ax, size = row_axes(ax, names)
        rows = np.arange(len(steps))
        colors = [POSITIVE if step >= 0 else NEGATIVE for step in steps]
        self.bars_ = ax.barh(rows, steps, left=before, height=0.7, color=colors)
        ax.vlines(after[1:], rows[1:] - 0.65, rows[1:] + 0.35, color="0.5", linewidth=0.8, zorder=0.9)
        self.texts_ = [
            ax.annotate(
                signed(step),
                (end, row),
                (4 if step >= 0 else -4, 0),
                textcoords="offset points",
                ha="left" if step >= 0 else "right",
                va="center",
                fontsize=size,
            )
            for row, step, end in zip(rows, steps, after)
        ]
        width = float(np.ptp([*after, self.base_value]))
        for name, x, y in (("f(x)", prediction, -1.0), ("E[f(X)]", self.base_value, float(len(steps)))):
            ax.plot([x, x], [min(y, -0.6), max(y, 0)], color="0.5", linewidth=0.8, linestyle=":", zorder=0.9)
            text = f"{name} = {numeral(x, digits_for(x, width))}"
            self.texts_.append(ax.annotate(text, (x, y), ha="center", va="center", fontsize=size))
        ax.set_ylim(len(steps) + 0.4, -1.4)
        margin = 0.05 * width or 0.5
        ax.set_xlim(min(after.min(), self.base_value) - margin, max(after.max(), self.base_value) + margin)
        ax.set_xlabel(self.label, parse_math=False)
        make_room(ax, self.texts_)
        if self.log_odds:
            _add_probabilities(ax)
        self.ax_, self.figure_ = ax, ax.figure
        return self

    def _name(self, feature: int) -> str:
        name = short(self.feature_names[feature])
        return name if self.feature_values is None else f"{name} = {short(self.feature_values[feature], 16)}"

    @classmethod
    def from_explanation(
        cls,
        explanation: Explanation,
        *,
        row: Any = 0,
        max_features: int | None = 10,
        output: Any = None,
        ax: Any = None,
    ) -> ShapWaterfallDisplay:
        """Draw a row of an explanation.

        Parameters
        ----------
        explanation : Explanation
            Explanation that holds the row.
        row : int or label, default=0
            Position of the row, or a label, which must not be an integer, in the index of the pandas data
            frame that was explained.
        max_features : int or None, default=10
            See :meth:`plot`.
        output : str, int or None, default=None
            The output to draw, by name or position; required if there are several.
        ax : matplotlib Axes or None, default=None
            See :meth:`plot`.

        Returns
        -------
        ShapWaterfallDisplay

        Raises
        ------
        ValueError
            There are several outputs and none is chosen; the row has no values, or several rows have its
            label; the explanation has Banzhaf values, which do not add up to a prediction; or an argument
            has an invalid value.
        KeyError, IndexError
            The output or row does not exist.
        TypeError
            ``row`` is neither a position nor a label, or the rows have no labels.
        """
        require_explanation(explanation)
        require_max_features(max_features)
        if explanation.index == "BV":
            raise ValueError("a waterfall adds values up to the prediction: Banzhaf values do not add up")
        row = row_position(explanation, row)
        values = values_of(explanation, output)[row]
        if not np.isfinite(values).all():
            raise ValueError(f"row {row} has no values: no split tested it")
        base = np.asarray(explanation.base_values)
        if base.ndim == explanation.values.ndim - 1:
            base = base[row]
        position = output_position(explanation, output)
        base_value = float(base if position is None else base[position])
        label = explanation.unit
        if position is not None:
            label += f" of {short(explanation.output_names[position])}"
        display = cls(
            values,
            base_value,
            explanation.feature_names,
            feature_values=_as_text(explanation, row),
            label=label,
            log_odds=explanation.unit == "log-odds",
        )
        return display.plot(ax=ax, max_features=max_features)

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        *,
        y: Any = None,
        row: Any = 0,
        max_features: int | None = 10,
        output: Any = None,
        ax: Any = None,
        **options: Any,
    ) -> ShapWaterfallDisplay:
        """Explain rows and draw one of them.

        Parameters
        ----------
        estimator : fitted model or TreeExplainer
            See :class:`TreeExplainer`.
        X : array-like, sparse matrix or data frame of shape (n_rows, n_features)
            All rows are explained; pass only the row to draw if the others are not needed.
        y : array-like of shape (n_rows,), default=None
            Labels; see :meth:`TreeExplainer.explain`.
        row, max_features, output, ax
            See :meth:`from_explanation`.
        **options
            Options of :class:`TreeExplainer`.

        Returns
        -------
        ShapWaterfallDisplay
        """
        explanation = explained(estimator, X, y, options)
        return cls.from_explanation(explanation, row=row, max_features=max_features, output=output, ax=ax)


def _as_text(explanation: Explanation, row: int) -> list[str] | None:
    """Return the row's feature values as text; None if the explanation does not have them."""
    if explanation.data is None:
        return None
    texts = []
    for feature in range(len(explanation.feature_names)):
        column = read_column(explanation.data, feature, np.array([row]))
        value = column.numbers[0]
        if np.isnan(value):
            texts.append("missing")
        elif column.categories is not None:
            texts.append(column.categories[int(value)])
        else:
            texts.append(numeral(value, 5, padded=False))
    return texts


def _add_probabilities(ax: Any) -> None:
    """Add an axis at the top with the probabilities of the log-odds at the bottom."""
    low, high = ax.get_xlim()
    ticks = probability_ticks(low, high)
    top = ax.secondary_xaxis("top")
    top.set_xticks(logit(ticks), [f"{tick:.10g}" for tick in ticks])
    top.set_xlabel("probability")


def probability_ticks(low: float, high: float) -> list[float]:
    """Return round probabilities whose log-odds lie between two limits, apart from each other.

    Probabilities with the fewest digits are chosen first.
    """
    chosen: list[float] = []
    for digits in range(1, 7):
        step = 10.0**-digits
        ends = expit(low), expit(high)
        numbers = np.arange(np.ceil(ends[0] / step), np.floor(ends[1] / step) + 1)
        if len(numbers) > 200:  # of many, those near 0 and 1 are far apart
            numbers = np.unique(np.r_[numbers[:100], numbers[-100:]])
        ticks = np.round(numbers * step, digits)
        for tick in ticks[np.argsort(np.abs(ticks - 0.5), kind="stable")].tolist():
            distances = [abs(logit(tick) - logit(other)) for other in chosen]
            if 0 < tick < 1 and min(distances, default=np.inf) >= _TICK_DISTANCE * (high - low):
                chosen.append(tick)
    return sorted(chosen)
