"""Dependence plot: a feature's SHAP value against the feature's value."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np

from .._explanations.values import Explanation, positions
from .._rows.columns import Column, read_column
from ..explainer import as_explainer
from .base import (
    LETTER,
    MANY,
    MISSING,
    NEGATIVE,
    PALETTE,
    colormap,
    explained_rows,
    labelled,
    legend_beside,
    legend_of_missing,
    new_axes,
    output_position,
    pyplot,
    require_count,
    require_explanation,
    short,
    some_rows,
    values_of,
)
from .histogram import draw_histogram
from .strongest import strongest_by_interactions, strongest_by_variance

#: Maximum number of categories that get their own column, and of categories that get their own colour.
_CATEGORIES, _COLORS = 20, len(PALETTE)

#: Half the width over which the points of a category are spread; columns are 1 apart.
_JITTER = 0.3

#: Number of categories, and number of letters of the longest name, above which the names are rotated.
_MANY_CATEGORIES, _LONG_CATEGORY = 6, 8

#: Longest category name that is shown in full, in characters.
_CATEGORY_LETTERS = 20

#: Largest number of rows from which ``color_by="auto"`` chooses a feature without the model.
_JUDGED_ROWS = 2_000


class ShapDependenceDisplay:
    """Scatter plot of a feature's SHAP values against its values, coloured by another feature.

    Create one with :meth:`from_estimator` or :meth:`from_explanation`. Each row is a point. Rows in which
    the feature is missing are drawn beside the axis, and categories as columns. If there are more than 20
    categories, the rarest share a column; if more than 8, a colour.

    Parameters
    ----------
    values : ndarray of shape (n_rows,)
        SHAP values of the feature.
    column : Column
        Values of the feature.
    feature_name : str
        Name of the feature.
    color : Column or None, default=None
        Values of the feature to colour by.
    color_name : str or None, default=None
        Name of the feature to colour by.
    label : str, default="SHAP value"
        Name of the values.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    points_ : matplotlib PathCollection
    histogram_ : matplotlib BarContainer or None
        Bars below the points, from left to right.

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

    ax_: Any
    figure_: Any
    points_: Any
    histogram_: Any

    def __init__(
        self,
        values: np.ndarray,
        column: Column,
        feature_name: str,
        *,
        color: Column | None = None,
        color_name: str | None = None,
        label: str = "SHAP value",
    ) -> None:
        self.values = values
        self.column = column
        self.feature_name = feature_name
        self.color = color
        self.color_name = color_name
        self.label = label

    def plot(
        self, *, ax: Any = None, cmap: Any = None, size: float = 14.0, histogram: bool = True
    ) -> ShapDependenceDisplay:
        """Draw the chart.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            Axes to draw on; None creates a new figure.
        cmap : str, matplotlib Colormap or None, default=None
            Colormap for a numeric feature to colour by; None: from blue (low) to orange (high).
        size : float, default=14
            Area of a point, in square points.
        histogram : bool, default=True
            Whether bars below the points show how many rows have which value: the values that few rows have
            are those about which the plot says least.

        Returns
        -------
        ShapDependenceDisplay
            The display itself.
        """
        if ax is None:
            names = () if self.color is None else (self.color.categories or ())
            widest = max((min(len(name), _CATEGORY_LETTERS) for name in names), default=0)
            ax = new_axes(6.4 + LETTER * widest, 4.8)
        self.ax_, self.figure_ = ax, ax.figure
        column = self.column.most_frequent(_CATEGORIES)
        x = self._place(column)
        self._points(x, cmap, {"s": size, "linewidths": 0, "alpha": 0.8, "rasterized": len(x) >= MANY})
        self.histogram_ = draw_histogram(ax, column, x) if histogram else None
        ax.axhline(0, color="0.5", linewidth=0.8, zorder=0.9)
        ax.spines[["top", "right"]].set_visible(False)
        ax.set_xlabel(short(self.feature_name), parse_math=False)
        ax.set_ylabel(f"{self.label}\nof {short(self.feature_name)}", parse_math=False)
        return self

    def _place(self, column: Column) -> np.ndarray:
        """Return the x positions of the points, and set the ticks of the x-axis."""
        ax, missing, x = self.ax_, column.missing, column.numbers.copy()
        if column.categories is not None:
            jitter = np.random.default_rng(0).uniform(-_JITTER, _JITTER, len(x))
            names = [short(name, _CATEGORY_LETTERS) for name in column.categories]
            if missing.any():
                x[missing] = len(names)
                names.append("missing")
            upright = len(names) > _MANY_CATEGORIES or max(map(len, names)) > _LONG_CATEGORY
            ax.set_xticks(range(len(names)), names, rotation=90 if upright else 0, parse_math=False)
            ax.set_xlim(-0.6, len(names) - 0.4)
            return x + jitter
        finite = x[np.isfinite(x)]
        low, high = (finite.min(), finite.max()) if len(finite) else (0.0, 0.0)
        width = high - low or 1.0
        x = np.clip(x, low - 0.05 * width, high + 0.05 * width)  # for infinite values
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

    def _points(self, x: np.ndarray, cmap: Any, style: dict[str, Any]) -> None:
        ax, y = self.ax_, self.values
        if self.color is None:
            self.points_ = ax.scatter(x, y, color=NEGATIVE, **style)
            return
        color, name = self.color.most_frequent(_COLORS), short(self.color_name)
        any_missing = bool(color.missing.any())
        if color.categories is not None:
            keys = [*PALETTE[: len(color.categories)], MISSING]
            labels = [*(short(category, _CATEGORY_LETTERS) for category in color.categories), "missing"]
            position = np.where(color.missing, len(keys) - 1, color.numbers).astype(np.int64)
            self.points_ = ax.scatter(x, y, color=np.array(keys)[position], **style)
            n_shown = len(keys) if any_missing else len(keys) - 1
            handles = [ax.scatter([], [], color=key, linewidths=0) for key in keys[:n_shown]]
            legend_beside(ax, handles, labels[:n_shown], name)
            return
        low, high = color.limits() or (0.0, 1.0)
        limits = {"vmin": low, "vmax": high if high > low else low + 1}
        fill = {"c": color.numbers, "cmap": colormap(cmap), "plotnonfinite": True}
        self.points_ = ax.scatter(x, y, **fill, **limits, **style)
        bar = self.figure_.colorbar(self.points_, ax=ax, aspect=40, pad=0.02)
        bar.set_label(name, parse_math=False)
        bar.outline.set_visible(False)
        bar.solids.set_alpha(1)
        if any_missing:
            legend_of_missing(ax, f"{name} missing")

    @classmethod
    def from_explanation(
        cls,
        explanation: Explanation,
        feature: str | int,
        *,
        color_by: str | int | None = "auto",
        max_rows: int = 10_000,
        output: Any = None,
        ax: Any = None,
        cmap: Any = None,
        size: float = 14.0,
        histogram: bool = True,
    ) -> ShapDependenceDisplay:
        """Draw a feature of an explanation.

        Parameters
        ----------
        explanation : Explanation
            An explanation with ``data``. Rows without values, because no split of a cross-validation tested
            them, are left out.
        feature : str or int
            Name, or position among the features of the explanation.
        color_by : "auto", str, int or None, default="auto"
            Feature to colour by; None uses a single colour. "auto" approximates the feature that interacts
            most, from at most 2,000 rows: it takes the one that best explains why the SHAP values of rows
            with similar values of ``feature`` differ. :meth:`from_estimator` computes interactions instead.
        max_rows : int, default=10000
            If there are more rows, a fixed random sample is drawn, which includes the smallest and the
            largest SHAP value.
        output : str, int or None, default=None
            The output to draw, by name or position; required if there are several.
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
        KeyError, IndexError
            The feature or output does not exist.
        """
        require_explanation(explanation)
        require_count("max_rows", max_rows)
        if explanation.data is None:
            raise ValueError("the explanation has no data, which a dependence plot needs")
        position = _feature(explanation, feature)
        of_output = values_of(explanation, output)
        rows, of_rows = explained_rows(of_output)
        values = of_rows[:, position]

        def read(column: int, chosen: np.ndarray) -> Column:
            return read_column(explanation.data, column, rows[chosen])

        if color_by == "auto":
            sample = np.sort(some_rows(values[:, None], _JUDGED_ROWS))
            by = strongest_by_variance(
                values[sample], lambda j: read(j, sample), position, of_output.shape[1]
            )
        else:
            by = None if color_by is None else _feature(explanation, color_by)
        drawn = some_rows(values[:, None], max_rows)
        names = explanation.feature_names
        display = cls(
            values[drawn],
            read(position, drawn),
            names[position],
            color=None if by is None else read(by, drawn),
            color_name=None if by is None else names[by],
            label=labelled(explanation, output),
        )
        return display.plot(ax=ax, cmap=cmap, size=size, histogram=histogram)

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        feature: str | int,
        *,
        y: Any = None,
        color_by: str | int | None = "auto",
        max_rows: int = 10_000,
        output: Any = None,
        ax: Any = None,
        cmap: Any = None,
        size: float = 14.0,
        histogram: bool = True,
        **options: Any,
    ) -> ShapDependenceDisplay:
        """Explain rows and draw a feature.

        Parameters
        ----------
        estimator : fitted model or TreeExplainer
            See :class:`TreeExplainer`.
        X : array-like, sparse matrix or data frame of shape (n_rows, n_features)
            Rows to explain.
        feature : str or int
            Name of a feature, or position of a column of X that is a feature by itself.
        y : array-like of shape (n_rows,), default=None
            Labels; see :meth:`TreeExplainer.explain`.
        color_by : "auto", str, int or None, default="auto"
            Feature to colour by, as ``feature``; None uses a single colour. "auto" takes the feature with the
            largest mean magnitude of SHAP interaction values in 200 rows of X. Where the options rule out
            interactions, as a ``model_output`` other than "raw" does, it is chosen as in
            :meth:`from_explanation`.
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
            As for :meth:`from_explanation`.
        KeyError, IndexError
            The feature or output does not exist, or a column of X is no feature by itself.
        """
        pyplot()  # fail before any work is done
        explainer = as_explainer(estimator, options)
        explanation = explainer.explain(X, y)
        position, of_output = _feature_of_input(explanation, feature), output_position(explanation, output)
        if isinstance(color_by, Integral):
            color_by = _feature_of_input(explanation, color_by)
        if color_by == "auto":
            try:
                color_by = strongest_by_interactions(explainer, X, position, of_output)
            except ValueError:  # X could be explained, so it is the options that rule out interactions
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


def _feature_of_input(explanation: Explanation, feature: Any) -> int:
    """Return the position of a feature that is given by name, or by the position of a column of X.

    Raises
    ------
    KeyError, IndexError
        There is no such feature, or a column of X is no feature by itself.
    """
    if isinstance(feature, bool) or not isinstance(feature, Integral):
        return _feature(explanation, feature)
    column, names, groups = int(feature), explanation.feature_names, explanation.group_columns
    if explanation.origins is not None:
        made = explanation.origins.made_alone_from(column, names)
        places = [] if made is None else [made]
    elif groups is not None:
        places = [i for i, columns in enumerate(groups) if columns == (column,)]
    elif explanation.feature_indices is not None:
        places = np.flatnonzero(explanation.feature_indices == column).tolist()
    else:
        return _feature(explanation, column)
    if not places:
        raise IndexError(
            f"{column} is the position of a column of X, which is no feature by itself: give a name"
        )
    return places[0]


def _feature(explanation: Explanation, feature: Any) -> int:
    names = explanation.feature_names
    chosen = positions(feature, len(names), names)
    if chosen is None or len(chosen) != 1:
        raise ValueError(f"one feature is needed, not {feature!r}")
    return int(chosen[0])
