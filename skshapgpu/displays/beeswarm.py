"""Beeswarm plot of the SHAP values of all rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .._explanations.values import Explanation
from .._rows.columns import is_group, read_column
from .base import (
    MANY,
    NEUTRAL,
    colormap,
    explained,
    explained_rows,
    labelled,
    legend_of_missing,
    others_name,
    ranked,
    require_count,
    require_explanation,
    require_max_features,
    row_axes,
    short,
    some_rows,
    values_of,
)

#: Number of bins along the x-axis in which points are counted; each is about as wide as a point.
_BINS = 100

#: Half the height of the highest swarm, and the distance of neighbours in sparse ones, as parts of a row.
_HALF_HEIGHT, _STEP = 0.4, 0.11


class ShapBeeswarmDisplay:
    """Beeswarm plot: a point for each row and feature, SHAP values on the x-axis, feature values as colour.

    Create one with :meth:`from_explanation` or :meth:`from_estimator`. Features are sorted by mean
    magnitude. Colours run from the 5th to the 95th percentile of a feature, or wider if these are equal.
    Categories are coloured in the order of the column's type or of their names; missing values are grey.
    The picture is the same each time.

    Parameters
    ----------
    values : ndarray of shape (n_rows, n_features)
        SHAP values.
    feature_names : sequence of str of length n_features
        Names of the features, as they are drawn.
    data : array, sparse matrix, data frame or None, default=None
        Feature values; None draws all points in one colour.
    label : str, default="SHAP value"
        Label of the x-axis.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    points_ : list of matplotlib PathCollection
        The points of each row of the chart, from top to bottom.
    rows_ : ndarray of int
        Rows that were drawn, in the order of their points.

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

    ax_: Any
    figure_: Any
    points_: list[Any]
    rows_: np.ndarray

    def __init__(
        self,
        values: np.ndarray,
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
        ax: Any = None,
        max_features: int | None = 20,
        max_rows: int = 4000,
        cmap: Any = None,
        size: float = 12.0,
        colorbar: bool = True,
    ) -> ShapBeeswarmDisplay:
        """Draw the chart.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            Axes to draw on; None creates a new figure.
        max_features : int or None, default=20
            Number of swarms; the values of the other features are added up in one more. None draws all
            features.
        max_rows : int, default=4000
            If there are more rows, a fixed random sample of this size is drawn, which includes the smallest
            and largest values of the features. The order of the features is determined by all rows.
        cmap : str, matplotlib Colormap or None, default=None
            None: from blue (low) to orange (high).
        size : float, default=12
            Area of a point, in square points.
        colorbar : bool, default=True
            Draw the scale of the colours.

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
        rows, values = explained_rows(self.values)
        shown, others = ranked(np.abs(values).mean(axis=0, dtype=np.float64), max_features)
        chosen = some_rows(values[:, shown], max_rows)
        self.rows_ = rows[chosen]
        swarms = [values[chosen, feature] for feature in shown]
        names = [short(self.feature_names[i]) for i in shown]
        if len(others):
            swarms.append(values[chosen][:, others].sum(axis=1))
            names.append(others_name(len(others)))
        new = ax is None
        ax, text = row_axes(ax, names)
        ax.grid(axis="y", color="0.93", linewidth=0.8)
        ax.axvline(0, color="0.5", linewidth=0.8, zorder=0.9)
        colors = colormap(cmap)
        low = min(float(swarm.min()) for swarm in swarms)
        high = max(float(swarm.max()) for swarm in swarms)
        style = {
            "s": min(size, size * (text / 10) ** 2) if new else size,
            "linewidths": 0,
            "rasterized": len(swarms) * len(chosen) >= MANY,
        }
        self.points_, any_missing = [], False
        for i, swarm in enumerate(swarms):
            y = i + swarm_offsets(swarm, low, high)
            if self.data is None or i >= len(shown) or is_group(self.data, int(shown[i])):
                self.points_.append(ax.scatter(swarm, y, color=NEUTRAL, **style))
                continue
            color = read_column(self.data, int(shown[i]), self.rows_).scaled()
            any_missing |= bool(np.isnan(color).any())
            fill = {"c": color, "cmap": colors, "vmin": 0, "vmax": 1, "plotnonfinite": True}
            self.points_.append(ax.scatter(swarm, y, **fill, **style))
        margin = 0.03 * (high - low) or 0.5
        ax.set_xlim(min(low, 0) - margin, max(high, 0) + margin)
        ax.set_xlabel(self.label, parse_math=False)
        self.ax_, self.figure_ = ax, ax.figure
        if colorbar and self.data is not None:
            self._add_colorbar(colors, any_missing)
        return self

    def _add_colorbar(self, colors: Any, any_missing: bool) -> None:
        from matplotlib.cm import ScalarMappable

        bar = self.figure_.colorbar(
            ScalarMappable(cmap=colors), ax=self.ax_, aspect=40, pad=0.02, ticks=[0, 1], label="feature value"
        )
        bar.ax.set_yticklabels(["low", "high"])
        bar.ax.tick_params(length=0)
        bar.outline.set_visible(False)
        if any_missing:
            legend_of_missing(self.ax_, "missing")

    @classmethod
    def from_explanation(
        cls,
        explanation: Explanation,
        *,
        max_features: int | None = 20,
        max_rows: int = 4000,
        output: Any = None,
        ax: Any = None,
        cmap: Any = None,
        size: float = 12.0,
        colorbar: bool = True,
    ) -> ShapBeeswarmDisplay:
        """Draw the values of an explanation.

        Parameters
        ----------
        explanation : Explanation
            Rows without values, because no split of a cross-validation tested them, are left out.
        max_features, max_rows : int
            See :meth:`plot`.
        output : str, int or None, default=None
            The output to draw, by name or position; required if there are several.
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
        KeyError, IndexError
            The output does not exist.
        """
        require_explanation(explanation)
        require_max_features(max_features)
        label = labelled(explanation, output)
        display = cls(
            values_of(explanation, output), explanation.feature_names, data=explanation.data, label=label
        )
        return display.plot(
            ax=ax, max_features=max_features, max_rows=max_rows, cmap=cmap, size=size, colorbar=colorbar
        )

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        *,
        y: Any = None,
        max_features: int | None = 20,
        max_rows: int = 4000,
        output: Any = None,
        ax: Any = None,
        cmap: Any = None,
        size: float = 12.0,
        colorbar: bool = True,
        **options: Any,
    ) -> ShapBeeswarmDisplay:
        """Explain rows and draw the result.

        Parameters
        ----------
        estimator : fitted model or TreeExplainer
            See :class:`TreeExplainer`.
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
        return cls.from_explanation(
            explained(estimator, X, y, options),
            max_features=max_features,
            max_rows=max_rows,
            output=output,
            ax=ax,
            cmap=cmap,
            size=size,
            colorbar=colorbar,
        )


def swarm_offsets(swarm: np.ndarray, low: float, high: float) -> np.ndarray:
    """Return vertical offsets with which few of the points at ``swarm``, from ``low`` to ``high``, overlap.

    The points of a bin are spread evenly around zero, over a height in proportion to the smoothed count
    of points there, but no swarm is higher than a row of the chart.
    """
    if low == high:
        bins = np.zeros(len(swarm), np.int64)
    else:
        bins = ((swarm - low) / (high - low) * (_BINS - 1) + 0.5).astype(np.int64)
    counts = np.bincount(bins, minlength=_BINS)
    padded = np.pad(counts.astype(np.float64), 2, mode="edge" if low == high else "constant")
    smooth = np.convolve(padded, np.array([1, 4, 6, 4, 1]) / 16, mode="valid")
    half = np.maximum(smooth, counts / 2) * _STEP / 2
    half *= min(1.0, _HALF_HEIGHT / half.max())
    order = np.argsort(bins, kind="stable")
    rank = np.empty(len(swarm), np.int64)
    rank[order] = np.arange(len(swarm)) - np.repeat(np.cumsum(counts) - counts, counts)
    return ((rank + 0.5) / counts[bins] * 2 - 1) * half[bins]
