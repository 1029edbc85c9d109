"""Dependence plot: a feature's SHAP value against the feature's value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from .._common.checks import checks_options, require_bool, require_count, require_options
from .._common.positions import is_integer, read_position
from .._common.types import ExplainerOptions, Model, Table, Values, Vector, lists_options
from .._explanations.values import Explanation
from .._rows.columns import NumericColumn, read_column
from ..explainer import as_explainer
from . import base
from .histogram import draw_histogram
from .room import fit
from .strongest import strongest_by_interactions, strongest_by_variance

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PathCollection
    from matplotlib.colors import Colormap
    from matplotlib.container import BarContainer
    from matplotlib.figure import Figure

#: Maximum number of categories on the x-axis, and maximum number of categories with different colours.
_CATEGORIES, _COLORS = 20, len(base.PALETTE)

#: Half the width over which the points of a category are spread. The distance between two categories is 1.
_JITTER = 0.3

#: Number of categories, and number of letters of the longest name, above which the names are rotated.
_MANY_CATEGORIES, _LONG_CATEGORY = 6, 8

#: Longest category name that is shown in full, in characters.
_CATEGORY_LETTERS = 20

#: Maximum number of rows from which ``color_by="auto"`` chooses a feature without the model.
_JUDGED_ROWS = 2_000


class ShapDependenceDisplay:
    """Scatter plot of a feature's SHAP values against its values, coloured by another feature.

    Create one with :meth:`from_estimator` or :meth:`from_explanation`. Each row is a point. Rows in which
    the feature is missing are drawn beside the other rows. Each category has a place on the x-axis; if there
    are more than 20 categories, the rarest share a place. If the colours show more than 8 categories, the
    rarest share a colour.

    Parameters
    ----------
    values : ndarray of shape (n_rows,)
        SHAP values of the feature.
    feature_values : ndarray of shape (n_rows,)
        Values of the feature: numbers, or positions in ``categories``. NaN where the value is missing.
    feature_name : str
        Name of the feature.
    categories : sequence of str or None, default=None
        Names of the feature's categories. None: the feature is numeric.
    color_values : ndarray of shape (n_rows,), or None, default=None
        Values of the feature to colour by, like ``feature_values``. None draws all points in one colour.
    color_categories : sequence of str or None, default=None
        Names of the categories of the feature to colour by. None: it is numeric.
    color_name : str or None, default=None
        Name of the feature to colour by.
    label : str, default="SHAP value"
        Name of the values.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    points_ : matplotlib PathCollection
        The points of all rows.
    histogram_ : matplotlib BarContainer or None
        The bars below the points, from left to right.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.ensemble import RandomForestRegressor
    >>> from skshapgpu import ShapDependenceDisplay
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> model = RandomForestRegressor(10, random_state=0).fit(X, y)
    >>> display = ShapDependenceDisplay.from_estimator(model, X, "bmi")
    >>> plt.show()  # doctest: +SKIP
    """

    ax_: Axes
    figure_: Figure
    points_: PathCollection
    histogram_: BarContainer | None

    def __init__(
        self,
        values: Values,
        feature_values: np.ndarray,
        feature_name: str,
        *,
        categories: Sequence[str] | None = None,
        color_values: np.ndarray | None = None,
        color_categories: Sequence[str] | None = None,
        color_name: str | None = None,
        label: str = "SHAP value",
    ) -> None:
        self.values = values
        self.feature_values = feature_values
        self.feature_name = feature_name
        self.categories = categories
        self.color_values = color_values
        self.color_categories = color_categories
        self.color_name = color_name
        self.label = label

    @checks_options
    def plot(
        self,
        *,
        ax: Axes | None = None,
        cmap: str | Colormap | None = None,
        size: float = 14.0,
        histogram: bool = True,
    ) -> ShapDependenceDisplay:
        """Draw the chart.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            Axes to draw on; None creates a new figure.
        cmap : str, matplotlib Colormap or None, default=None
            Colours from low to high values of a numeric feature to colour by. None draws them from blue to
            orange.
        size : float, default=14
            Area of a point, in square points.
        histogram : bool, default=True
            Whether bars below the points show how many rows have which value. The plot says least about
            values that few rows have.

        Returns
        -------
        ShapDependenceDisplay
            The display itself.
        """
        base.require_size(size)
        require_bool("histogram", histogram)
        if ax is None:
            names = self.color_categories or ()
            longest = max((min(len(name), _CATEGORY_LETTERS) for name in names), default=0)
            ax = base.new_axes(6.4 + base.LETTER * longest, 4.8)
        self.ax_, self.figure_ = ax, base.figure_of(ax)
        column = _column(self.feature_values, self.categories).most_frequent(_CATEGORIES)
        x = self._x_positions(column)
        self._add_points(
            x, cmap, {"s": size, "linewidths": 0, "alpha": 0.8, "rasterized": len(x) >= base.MANY}
        )
        self.histogram_ = draw_histogram(ax, column, x) if histogram else None
        ax.axhline(0, color="0.5", linewidth=0.8, zorder=0.9)
        ax.spines[["top", "right"]].set_visible(False)
        ax.set_xlabel(base.short(self.feature_name), parse_math=False)
        ax.set_ylabel(f"{self.label}\nof {base.short(self.feature_name)}", parse_math=False)
        fit(ax)
        return self

    def _x_positions(self, column: NumericColumn) -> np.ndarray:
        """Return the x positions of the points, and set the ticks of the x-axis."""
        ax, missing, x = self.ax_, column.missing, column.numbers.copy()
        if column.categories is not None:
            jitter = np.random.default_rng(0).uniform(-_JITTER, _JITTER, len(x))
            names = [base.short(name, _CATEGORY_LETTERS) for name in column.categories]
            if missing.any():
                x[missing] = len(names)
                names.append("missing")
            is_rotated = len(names) > _MANY_CATEGORIES or max(map(len, names)) > _LONG_CATEGORY
            ax.set_xticks(range(len(names)), names, rotation=90 if is_rotated else 0, parse_math=False)
            ax.set_xlim(-0.6, len(names) - 0.4)
            return x + jitter
        finite = x[np.isfinite(x)]
        low, high = (finite.min(), finite.max()) if len(finite) else (0.0, 0.0)
        width = high - low or 1.0
        x = np.clip(x, low - 0.05 * width, high + 0.05 * width)  # infinite values become finite
        left = low - 0.08 * width
        if missing.any():
            edge = low - 0.06 * width
            jitter = np.random.default_rng(0).uniform(-0.02, 0.02, int(missing.sum()))
            x[missing] = low - (0.11 + jitter) * width
            left = low - 0.16 * width
            ax.axvspan(left, edge, color="0.93", linewidth=0, zorder=0.5)
            ax.annotate(
                "missing",
                ((left + edge) / 2, 1),
                (0, 2),
                xycoords=("data", "axes fraction"),
                textcoords="offset points",
                ha="center",
                fontsize="small",
            )
        ax.set_xlim(left, high + 0.08 * width)
        return x

    def _add_points(self, x: np.ndarray, cmap: str | Colormap | None, style: dict[str, Any]) -> None:
        ax, y = self.ax_, self.values
        if self.color_values is None:
            self.points_ = ax.scatter(x, y, color=base.NEGATIVE, **style)
            return
        column = _column(self.color_values, self.color_categories).most_frequent(_COLORS)
        name, any_missing = base.short(self.color_name), bool(column.missing.any())
        if column.categories is not None:
            colors = [*base.PALETTE[: len(column.categories)], base.MISSING]
            labels = [*(base.short(category, _CATEGORY_LETTERS) for category in column.categories), "missing"]
            position = np.where(column.missing, len(colors) - 1, column.numbers).astype(np.int64)
            self.points_ = ax.scatter(x, y, color=np.array(colors)[position], **style)
            n_shown = len(colors) if any_missing else len(colors) - 1
            handles = [ax.scatter([], [], color=color, linewidths=0) for color in colors[:n_shown]]
            base.legend_beside(ax, handles, labels[:n_shown], name)
            return
        low, high = column.limits() or (0.0, 1.0)
        limits: dict[str, Any] = {"vmin": low, "vmax": high if high > low else low + 1}
        colors_of_numbers = base.colormap(cmap).with_extremes(bad=base.MISSING)
        fill: dict[str, Any] = {"c": column.numbers, "cmap": colors_of_numbers, "plotnonfinite": True}
        self.points_ = ax.scatter(x, y, **fill, **limits, **style)
        bar: Any = base.colorbar(ax, self.points_, name)
        bar.solids.set_alpha(1)
        if any_missing:
            base.legend_of_missing(ax, f"{name} missing")

    @classmethod
    @checks_options
    def from_explanation(
        cls,
        explanation: Explanation,
        feature: str | int,
        *,
        color_by: str | int | None = "auto",
        max_rows: int = 10_000,
        output: str | int | None = None,
        ax: Axes | None = None,
        cmap: str | Colormap | None = None,
        size: float = 14.0,
        histogram: bool = True,
    ) -> ShapDependenceDisplay:
        """Draw a feature of an explanation.

        Parameters
        ----------
        explanation : Explanation
            An explanation with ``data``. If no split of a cross-validation tested a row, the row has no
            values and is left out.
        feature : str or int
            Name of the feature, or its position among the features of the explanation.
        color_by : "auto", str, int or None, default="auto"
            Feature to colour by, by name or position. None draws all points in one colour. "auto" chooses the
            feature that best explains why the SHAP values of rows with similar values of ``feature`` differ,
            from at most 2,000 rows. This approximates the feature that interacts most with ``feature``;
            :meth:`from_estimator` computes interactions instead.
        max_rows : int, default=10000
            If there are more rows, a fixed random sample of this size is drawn, which includes the smallest
            and the largest SHAP value.
        output : str, int or None, default=None
            The output to draw, by name or position; required if there are several outputs.
        ax, cmap, size, histogram
            See :meth:`plot`.

        Returns
        -------
        ShapDependenceDisplay

        Raises
        ------
        ValueError
            The explanation has no data, for instance after :meth:`Explanation.sum_by`; there are several
            outputs and none is chosen; no row has values; or an argument has an invalid value.
        """
        base.require_explanation(explanation)
        require_count("max_rows", max_rows)
        if explanation.data is None:
            raise ValueError("the explanation has no data: a dependence plot needs the values of the feature")
        position = _feature("feature", explanation, feature)
        rows, feature_matrix = base.explained_rows(base.values_of(explanation, output))
        values = feature_matrix[:, position]

        def read(feature: int, sample: np.ndarray) -> NumericColumn:
            return read_column(explanation.data, feature, rows[sample])

        if color_by == "auto":
            sample = np.sort(base.some_rows(values[:, None], _JUDGED_ROWS))
            color_feature = strongest_by_variance(
                values[sample], lambda other: read(other, sample), position, feature_matrix.shape[1]
            )
        else:
            color_feature = None if color_by is None else _feature("color_by", explanation, color_by)
        drawn = base.some_rows(values[:, None], max_rows)
        names, column = explanation.feature_names, read(position, drawn)
        color = None if color_feature is None else read(color_feature, drawn)
        display = cls(
            values[drawn],
            column.numbers,
            names[position],
            categories=column.categories,
            color_values=None if color is None else color.numbers,
            color_categories=None if color is None else color.categories,
            color_name=None if color_feature is None else names[color_feature],
            label=base.values_label(explanation, output),
        )
        return display.plot(ax=ax, cmap=cmap, size=size, histogram=histogram)

    @classmethod
    @lists_options
    def from_estimator(
        cls,
        estimator: Model,
        X: Table,
        feature: str | int,
        *,
        y: Vector | None = None,
        color_by: str | int | None = "auto",
        max_rows: int = 10_000,
        output: str | int | None = None,
        ax: Axes | None = None,
        cmap: str | Colormap | None = None,
        size: float = 14.0,
        histogram: bool = True,
        **options: Unpack[ExplainerOptions],
    ) -> ShapDependenceDisplay:
        """Explain rows and draw a feature.

        Parameters
        ----------
        estimator : fitted model, str, path, bytes or TreeExplainer
            A fitted model or its file, or an explainer or its file: see :class:`TreeExplainer`.
        X : array-like, sparse matrix or data frame of shape (n_rows, n_features)
            Rows to explain.
        feature : str or int
            Name of the feature, or position of a column of X that is a feature by itself.
        y : array-like of shape (n_rows,), default=None
            Labels; see :meth:`TreeExplainer.explain`.
        color_by : "auto", str, int or None, default="auto"
            Feature to colour by, by name or position like ``feature``. None draws all points in one colour.
            "auto" chooses the feature with the largest mean magnitude of SHAP interaction values in 200 rows
            of X. If the options rule out interactions, as a ``model_output`` other than "raw" does, "auto"
            chooses it as in :meth:`from_explanation`.
        max_rows, output, ax, cmap, size, histogram
            See :meth:`from_explanation`.
        **options
            Options of :class:`TreeExplainer`.

        Returns
        -------
        ShapDependenceDisplay

        Raises
        ------
        ValueError
            There are several outputs and none is chosen, no row has values, a column of X is not a feature
            by itself, or an argument has an invalid value.
        """
        require_options(cls.from_estimator, options)
        base.pyplot()  # without matplotlib, this fails before any work is done
        explainer = as_explainer(estimator, options)
        explanation = explainer.explain(X, y)
        position = _feature_of_input("feature", explanation, feature)
        output_index = base.output_position(explanation, output)
        if is_integer(color_by):
            color_by = _feature_of_input("color_by", explanation, color_by)
        if color_by == "auto":
            try:
                color_by = strongest_by_interactions(explainer, X, position, output_index)
            except ValueError:  # X could be explained: the options rule out interactions, not the rows
                pass
        return cls.from_explanation(
            explanation,
            position,
            color_by=color_by,
            max_rows=max_rows,
            output=output,
            ax=ax,
            cmap=cmap,
            size=size,
            histogram=histogram,
        )


def _column(values: np.ndarray, categories: Sequence[str] | None) -> NumericColumn:
    return NumericColumn(np.asarray(values, np.float64), None if categories is None else tuple(categories))


def _feature_of_input(argument: str, explanation: Explanation, feature: Any) -> int:
    """Return the position of a feature. ``feature`` is its name, or the position of a column of X.

    Raise ``ValueError`` or ``TypeError`` if the feature does not exist, or the column of X is not a feature
    by itself.
    """
    if not is_integer(feature):
        return _feature(argument, explanation, feature)
    column, names, groups = int(feature), explanation.feature_names, explanation.group_columns
    if explanation.origins is not None:
        position = explanation.origins.made_alone_from(argument, column, names)
        features = [] if position is None else [position]
    elif groups is not None:
        features = [i for i, columns in enumerate(groups) if columns == (column,)]
    elif explanation.feature_indices is not None:
        features = np.flatnonzero(explanation.feature_indices == column).tolist()
    else:
        return _feature(argument, explanation, column)
    if not features:
        raise ValueError(
            f"{argument}: column {column} of X is no feature by itself: give the name of a feature of the "
            "explanation"
        )
    return features[0]


def _feature(argument: str, explanation: Explanation, feature: Any) -> int:
    return read_position(argument, feature, explanation.feature_names, "feature", from_end=True)
