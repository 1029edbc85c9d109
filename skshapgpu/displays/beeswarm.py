"""Beeswarm plot of the SHAP values of all rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
from numpy.typing import NDArray

from .._common.checks import require_bool, require_count, require_options
from .._common.types import ExplainerOptions, Model, Table, Values, Vector, lists_options
from .._explanations.values import Explanation
from .._rows.columns import is_group, read_column
from . import base

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PathCollection
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

#: Number of bins along the x-axis in which points are counted. A bin is about as wide as a point.
_BINS = 100

#: Half the height of the highest swarm, and the distance of neighbours in a sparse swarm. A row has height 1.
_HALF_HEIGHT, _STEP = 0.4, 0.11


class ShapBeeswarmDisplay:
    """Beeswarm plot: a point for each row and feature, SHAP values on the x-axis, feature values as colour.

    Create one with :meth:`from_explanation` or :meth:`from_estimator`. Features are sorted by mean
    magnitude. Colours run from the 5th to the 95th percentile of a feature or, if both are equal, between
    more extreme percentiles. Categories are coloured in the order of the column's type or of their names;
    missing values are grey. The same values give the same picture each time.

    Parameters
    ----------
    values : ndarray of shape (n_rows, n_features)
        SHAP values.
    feature_names : sequence of str of length n_features
        Names of the features.
    data : array, sparse matrix, data frame or None, default=None
        Feature values. None draws all points in one colour.
    label : str, default="SHAP value"
        Label of the x-axis.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    points_ : list of matplotlib PathCollection
        The points of each row of the chart, from top to bottom.
    rows_ : ndarray of int
        Positions of the rows that were drawn, in the order of their points.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.ensemble import RandomForestRegressor
    >>> from skshapgpu import ShapBeeswarmDisplay
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> model = RandomForestRegressor(10, random_state=0).fit(X, y)
    >>> display = ShapBeeswarmDisplay.from_estimator(model, X)
    >>> plt.show()  # doctest: +SKIP
    """

    ax_: Axes
    figure_: Figure
    points_: list[PathCollection]
    rows_: NDArray[np.intp]

    def __init__(
        self,
        values: Values,
        feature_names: Sequence[str],
        *,
        data: Any = None,
        label: str = "SHAP value",
    ) -> None:
        self.values = values
        self.feature_names = feature_names
        self.data = data
        self.label = label

    def plot(
        self,
        *,
        ax: Axes | None = None,
        max_features: int | None = 20,
        max_rows: int = 4000,
        cmap: str | Colormap | None = None,
        size: float = 12.0,
        colorbar: bool = True,
    ) -> ShapBeeswarmDisplay:
        """Draw the chart.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            Axes to draw on; None creates a new figure.
        max_features : int or None, default=20
            Number of features to draw: the most important ones. One more swarm shows the sum of the values
            of all other features. None draws all features.
        max_rows : int, default=4000
            If there are more rows, a fixed random sample of this size is drawn, which includes the smallest
            and the largest SHAP values of the features. All rows determine the order of the features.
        cmap : str, matplotlib Colormap or None, default=None
            Colours from low to high feature values. None draws them from blue to orange.
        size : float, default=12
            Area of a point, in square points.
        colorbar : bool, default=True
            Whether to draw the scale of the colours.

        Returns
        -------
        ShapBeeswarmDisplay
            The display itself.

        Raises
        ------
        ValueError
            No row has values, or an argument has an invalid value.
        """
        require_count("max_rows", max_rows)
        base.require_size(size)
        require_bool("colorbar", colorbar)
        rows, values = base.explained_rows(self.values)
        shown, others = base.ranked(np.abs(values).mean(axis=0, dtype=np.float64), max_features)
        sample = base.some_rows(values[:, shown], max_rows)
        self.rows_ = rows[sample]
        swarms = [values[sample, feature] for feature in shown]
        names = [base.short(self.feature_names[i]) for i in shown]
        if len(others):
            swarms.append(values[sample][:, others].sum(axis=1))
            names.append(base.others_name(len(others)))
        is_new = ax is None
        ax, font_size = base.row_axes(ax, names)
        ax.grid(axis="y", color="0.93", linewidth=0.8)
        ax.axvline(0, color="0.5", linewidth=0.8, zorder=0.9)
        colors = base.colormap(cmap).with_extremes(bad=base.MISSING)
        low = min(float(swarm.min()) for swarm in swarms)
        high = max(float(swarm.max()) for swarm in swarms)
        style: dict[str, Any] = {
            "s": min(size, size * (font_size / 10) ** 2) if is_new else size,
            "linewidths": 0,
            "rasterized": len(swarms) * len(sample) >= base.MANY,
        }
        self.points_, any_missing = [], False
        for i, swarm in enumerate(swarms):
            y = i + swarm_offsets(swarm, low, high)
            if self.data is None or i >= len(shown) or is_group(self.data, int(shown[i])):
                self.points_.append(ax.scatter(swarm, y, color=base.NEUTRAL, **style))
                continue
            shades = read_column(self.data, int(shown[i]), self.rows_).scaled()
            any_missing |= bool(np.isnan(shades).any())
            fill: dict[str, Any] = {"c": shades, "cmap": colors, "vmin": 0, "vmax": 1, "plotnonfinite": True}
            self.points_.append(ax.scatter(swarm, y, **fill, **style))
        margin = 0.03 * (high - low) or 0.5
        ax.set_xlim(min(low, 0) - margin, max(high, 0) + margin)
        ax.set_xlabel(self.label, parse_math=False)
        self.ax_, self.figure_ = ax, base.figure_of(ax)
        if colorbar and self.data is not None:
            self._add_colorbar(colors, any_missing)
        return self

    def _add_colorbar(self, colors: Colormap, any_missing: bool) -> None:
        from matplotlib.cm import ScalarMappable

        bar = self.figure_.colorbar(
            ScalarMappable(cmap=colors), ax=self.ax_, aspect=40, pad=0.02, ticks=[0, 1], label="feature value"
        )
        bar.ax.set_yticklabels(["low", "high"])
        bar.ax.tick_params(length=0)
        bar.outline.set_visible(False)
        if any_missing:
            base.legend_of_missing(self.ax_, "missing")

    @classmethod
    def from_explanation(
        cls,
        explanation: Explanation,
        *,
        max_features: int | None = 20,
        max_rows: int = 4000,
        output: str | int | None = None,
        ax: Axes | None = None,
        cmap: str | Colormap | None = None,
        size: float = 12.0,
        colorbar: bool = True,
    ) -> ShapBeeswarmDisplay:
        """Draw the values of an explanation.

        Parameters
        ----------
        explanation : Explanation
            Values to draw. If no split of a cross-validation tested a row, the row has no values and is left
            out.
        max_features, max_rows
            See :meth:`plot`.
        output : str, int or None, default=None
            The output to draw, by name or position; required if there are several outputs.
        ax, cmap, size, colorbar
            See :meth:`plot`.

        Returns
        -------
        ShapBeeswarmDisplay

        Raises
        ------
        ValueError
            There are several outputs and none is chosen, no row has values, or an argument has an invalid
            value.
        """
        base.require_explanation(explanation)
        base.require_max_features(max_features)
        values, label = base.values_of(explanation, output), base.values_label(explanation, output)
        display = cls(values, explanation.feature_names, data=explanation.data, label=label)
        return display.plot(
            ax=ax, max_features=max_features, max_rows=max_rows, cmap=cmap, size=size, colorbar=colorbar
        )

    @classmethod
    @lists_options
    def from_estimator(
        cls,
        estimator: Model,
        X: Table,
        *,
        y: Vector | None = None,
        max_features: int | None = 20,
        max_rows: int = 4000,
        output: str | int | None = None,
        ax: Axes | None = None,
        cmap: str | Colormap | None = None,
        size: float = 12.0,
        colorbar: bool = True,
        **options: Unpack[ExplainerOptions],
    ) -> ShapBeeswarmDisplay:
        """Explain rows and draw the result.

        Parameters
        ----------
        estimator : fitted model, str, path, bytes or TreeExplainer
            A fitted model or its file, or an explainer or its file: see :class:`TreeExplainer`.
        X : array-like, sparse matrix or data frame of shape (n_rows, n_features)
            Rows to explain.
        y : array-like of shape (n_rows,), default=None
            Labels; see :meth:`TreeExplainer.explain`.
        max_features, max_rows, output, ax, cmap, size, colorbar
            See :meth:`from_explanation`.
        **options
            Options of :class:`TreeExplainer`.

        Returns
        -------
        ShapBeeswarmDisplay
        """
        require_options(cls.from_estimator, options)
        return cls.from_explanation(
            base.explanation_of(estimator, X, y, options),
            max_features=max_features,
            max_rows=max_rows,
            output=output,
            ax=ax,
            cmap=cmap,
            size=size,
            colorbar=colorbar,
        )


def swarm_offsets(swarm: np.ndarray, low: float, high: float) -> np.ndarray:
    """Return vertical offsets with which few points of a swarm overlap.

    The x-axis from ``low`` to ``high`` is divided into bins. The points of a bin are spread evenly around
    zero, over a height in proportion to the smoothed number of points in the bin, but no swarm is higher than
    a row of the chart.
    """
    if low == high:
        bins = np.zeros(len(swarm), np.int64)
    else:
        bins = ((swarm - low) / (high - low) * (_BINS - 1) + 0.5).astype(np.int64)
    counts = np.bincount(bins, minlength=_BINS)
    padded = np.pad(counts.astype(np.float64), 2, mode="edge" if low == high else "constant")
    smoothed = np.convolve(padded, np.array([1, 4, 6, 4, 1]) / 16, mode="valid")
    half_heights = np.maximum(smoothed, counts / 2) * _STEP / 2
    half_heights *= min(1.0, _HALF_HEIGHT / half_heights.max())
    order = np.argsort(bins, kind="stable")
    rank = np.empty(len(swarm), np.int64)
    rank[order] = np.arange(len(swarm)) - np.repeat(np.cumsum(counts) - counts, counts)
    return ((rank + 0.5) / counts[bins] * 2 - 1) * half_heights[bins]
