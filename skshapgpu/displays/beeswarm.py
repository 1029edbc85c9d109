"""Beeswarm plot of the SHAP values of all rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
from numpy.typing import NDArray

from .._common.checks import checks_options, require_bool, require_count, require_options
from .._common.types import ExplainerOptions, Model, Table, Values, Vector, lists_options
from .._explanations.values import Explanation
from .._rows.columns import NumericColumn, is_group, read_column
from . import base
from .room import fit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PathCollection
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend

#: Number of bins along the x-axis in which points are counted. A bin is about as wide as a point.
_BINS = 100

#: Half the height of the highest swarm, and the distance of neighbours in a sparse swarm. A row has height 1.
_HALF_HEIGHT, _STEP = 0.4, 0.11

#: Largest number of columns of the key of categories, smallest number of lines in a column (a name and as
#: many categories as there are colours), and lines for each row of the chart.
_KEY_COLUMNS, _KEY_LINES, _LINES_PER_ROW = 2, 1 + len(base.PALETTE), 1.5

#: Longest category name that is shown in full, in characters.
_CATEGORY_LETTERS = 16

#: Height of axes, in inches, from which the name of the scale of colours fits between its ends.
_HIGH = 1.9

#: Width of a key's symbols and spaces, and of what is between the axes and the key, in inches.
_KEY_SPACE, _SCALE_WIDTH = 0.45, 0.45


#: Columns of a key: the position of each feature in the chart, with its name and its categories' names and
#: colours.
_Key = list[dict[int, tuple[str, list[tuple[str, str]]]]]


class ShapBeeswarmDisplay:
    """Beeswarm plot: a point for each row and feature, SHAP values on the x-axis, feature values as colour.

    Create one with :meth:`from_explanation` or :meth:`from_estimator`. Features are sorted by mean
    magnitude. Colours run from the 5th to the 95th percentile of a feature or, if both are equal, between
    more extreme percentiles; ordered categories are coloured in their order. Other categories have colours of
    their own and a key, in which the rarest of more than 8 share a colour. The points of a feature whose
    categories have no place in the key are dark. Missing values are grey. The same values give the same
    picture each time.

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
    key_ : matplotlib Legend or None
        The key of the categories beside the chart.
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
    key_: Legend | None
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

    @checks_options
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
        columns = [self._column(int(feature)) for feature in shown]
        key = _key_of(names[: len(shown)], columns, len(names))
        is_new = ax is None
        ax, font_size = base.row_axes(ax, names, key_width=_key_width(key))
        self.ax_, self.figure_ = ax, base.figure_of(ax)
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
        in_key = {feature for column in key for feature in column}
        self.points_ = []
        for i, swarm in enumerate(swarms):
            fill = _fill(columns[i] if i < len(columns) else None, i in in_key, colors)
            self.points_.append(ax.scatter(swarm, i + swarm_offsets(swarm, low, high), **fill, **style))
        margin = 0.03 * (high - low) or 0.5
        ax.set_xlim(min(low, 0) - margin, max(high, 0) + margin)
        ax.set_xlabel(self.label, parse_math=False)
        has_scale = colorbar and any(column is not None and _has_scale(column) for column in columns)
        if has_scale:
            self._add_colorbar(colors)
        self.key_ = self._add_key(key, has_scale) if key else None
        coloured = [
            column for i, column in enumerate(columns) if column and (_has_scale(column) or i in in_key)
        ]
        if any(column.missing.any() for column in coloured) and (has_scale or key):
            base.legend_of_missing(ax, "missing")
        fit(ax)
        return self

    def _column(self, feature: int) -> NumericColumn | None:
        """Return the values of a feature in the rows that are drawn; None if they have no colours."""
        if self.data is None or is_group(self.data, feature):
            return None
        return read_column(self.data, feature, self.rows_)

    def _add_colorbar(self, colors: Colormap) -> None:
        from matplotlib.cm import ScalarMappable

        bar = base.colorbar(self.ax_, ScalarMappable(cmap=colors), "feature value")
        bar.set_ticks([0, 1], labels=["low", "high"])
        bar.ax.tick_params(length=0)
        if self.ax_.get_window_extent().height > _HIGH * self.figure_.dpi:
            bar.ax.yaxis.labelpad = -22  # between the two ticks

    def _add_key(self, key: _Key, has_scale: bool) -> Legend:
        """Draw the key of the categories to the right of the axes and the scale of colours."""
        from matplotlib.legend import Legend
        from matplotlib.lines import Line2D
        from matplotlib.transforms import ScaledTranslation

        blank = Line2D([], [], linestyle="none")
        handles, labels = [], []
        n_lines = max(sum(1 + len(names) for _, names in column.values()) for column in key)
        for column in key:
            lines: list[tuple[Line2D, str]] = []
            for feature_name, categories in column.values():
                lines.append((blank, feature_name))
                for category, color in categories:
                    lines.append((Line2D([], [], color=color, marker="o", linestyle="none"), category))
            lines += [(blank, "")] * (n_lines - len(lines))
            handles += [handle for handle, _ in lines]
            labels += [label for _, label in lines]
        shift = ScaledTranslation(_SCALE_WIDTH if has_scale else 0, 0, self.ax_.figure.dpi_scale_trans)
        legend = Legend(
            self.ax_,
            handles,
            labels,
            ncols=len(key),
            loc="upper left",
            bbox_to_anchor=(1.04 if has_scale else 1, 1),
            bbox_transform=self.ax_.transAxes + shift,
            frameon=False,
            borderpad=0,
            handletextpad=0,
            columnspacing=1,
            fontsize="small",
        )
        for handle, text in zip(handles, legend.get_texts()):
            text.set_parse_math(False)
            if handle is blank:
                text.set_fontweight("bold")
        self.ax_.add_artist(legend)
        legend.set_clip_on(False)  # so that layouts make room for it
        return legend

    @classmethod
    @checks_options
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


def _has_scale(column: NumericColumn) -> bool:
    """Return whether the values have an order, so that colours run from low to high."""
    return column.categories is None or column.is_ordered


def _fill(column: NumericColumn | None, in_key: bool, colors: Colormap) -> Mapping[str, Any]:
    """Return the arguments of ``scatter`` for the colours of a feature's points."""
    if column is None or not (in_key or _has_scale(column)):
        return {"color": base.NEUTRAL}
    if _has_scale(column):
        return {"c": column.scaled(), "cmap": colors, "vmin": 0, "vmax": 1, "plotnonfinite": True}
    column = column.most_frequent(len(base.PALETTE))
    codes = np.where(column.missing, len(base.PALETTE), column.numbers).astype(np.int64)
    return {"color": np.array([*base.PALETTE, base.MISSING])[codes]}


def _key_of(names: Sequence[str], columns: Sequence[NumericColumn | None], n_rows: int) -> _Key:
    """Return the key of the features with unordered categories, as far as they have room beside the chart."""
    n_lines = max(_KEY_LINES, int(_LINES_PER_ROW * n_rows))
    key: _Key = []
    left = 0
    for i, (name, column) in enumerate(zip(names, columns)):
        if column is None or _has_scale(column):
            continue
        column = column.most_frequent(len(base.PALETTE))
        assert column.categories is not None
        categories = [
            (base.short(category, _CATEGORY_LETTERS), base.PALETTE[code])
            for code, category in enumerate(column.categories)
            if (column.numbers == code).any()
        ]
        if len(categories) >= left:
            if len(key) == _KEY_COLUMNS:
                break
            key.append({})
            left = n_lines
        key[-1][i] = base.short(name, _CATEGORY_LETTERS), categories
        left -= 1 + len(categories)
    return key


def _key_width(key: _Key) -> float:
    """Return the width of a key in inches."""
    widths = []
    for column in key:
        lines = [line for name, categories in column.values() for line in (name, *(c for c, _ in categories))]
        widths.append(_KEY_SPACE + base.LETTER * max(map(len, lines)))
    return sum(widths)


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
