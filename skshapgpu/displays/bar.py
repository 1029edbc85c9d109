"""Bar chart of the mean magnitudes of SHAP values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Unpack

import numpy as np

from .._common.checks import checks_options, require_options
from .._common.distinct import distinct_numbers
from .._common.types import ExplainerOptions, Model, Table, Values, Vector, lists_options
from .._explanations.cohorts import Cohorts
from .._explanations.grouping import require_sum_by
from .._explanations.values import Explanation
from .._rows.gpu_arrays import to_host
from . import base
from .room import fit, make_room

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.container import BarContainer
    from matplotlib.figure import Figure
    from matplotlib.text import Annotation
    from matplotlib.typing import ColorType

#: Part of white in the colour of the bar of all other features, which is a sum.
_WHITE = 0.55

#: A bar of all other features that is longer than this multiple of the longest other bar is cut, there.
_LONGEST_OTHERS = 1.15


class ShapBarDisplay:
    """Bar chart of the mean magnitude of each feature's SHAP values, the largest first.

    Create one with :meth:`from_estimator`, :meth:`from_explanation` or, with the spread over the splits of
    a cross-validation, :meth:`from_cv_results`. The bars of several outputs are stacked; more than 8 outputs
    are summed into one bar. The bars of cohorts are drawn beside each other.

    Parameters
    ----------
    importances : ndarray of float64, shape (n_features,)
        Length of each feature's bar. With ``output_names``, shape (n_features, n_outputs); with ``splits``,
        shape (n_splits, n_features); with ``cohort_names``, shape (n_features, n_cohorts).
    feature_names : sequence of str of length n_features
        Names of the features.
    output_names : sequence of length n_outputs or None, default=None
        Names of the outputs, whose bars are stacked. None: there is one output, or the outputs are summed.
    splits : bool, default=False
        Whether ``importances`` has a row for each split. Bars then show the means, whiskers one standard
        deviation to each side, and dots the splits.
    label : str
        Label of the x-axis; by default ``mean |SHAP value|``.
    cohort_names : sequence of length n_cohorts or None, default=None
        Names of the cohorts, whose bars are drawn beside each other. None: there are no cohorts.
    error : float, default=0
        Lengths up to this are due to rounding, and are shown as 0.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    bars_ : list of matplotlib BarContainer
        One container or, if there are several outputs or cohorts, one for each output or cohort.
    texts_ : list of matplotlib Annotation
        The numbers beside the bars.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.ensemble import RandomForestRegressor
    >>> from skshapgpu import ShapBarDisplay
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> model = RandomForestRegressor(10, random_state=0).fit(X, y)
    >>> display = ShapBarDisplay.from_estimator(model, X)
    >>> plt.show()  # doctest: +SKIP
    """

    ax_: Axes
    figure_: Figure
    bars_: list[BarContainer]
    texts_: list[Annotation]

    def __init__(
        self,
        importances: Values,
        feature_names: Sequence[str],
        *,
        output_names: Sequence[Any] | None = None,
        splits: bool = False,
        label: str = "mean |SHAP value|",
        cohort_names: Sequence[Any] | None = None,
        error: float = 0.0,
    ) -> None:
        self.importances = importances
        self.feature_names = feature_names
        self.output_names = output_names
        self.splits = splits
        self.label = label
        self.cohort_names = cohort_names
        self.error = error

    @checks_options
    def plot(
        self,
        *,
        ax: Axes | None = None,
        max_features: int | None = 20,
        color: ColorType | Sequence[ColorType] | None = None,
    ) -> ShapBarDisplay:
        """Draw the chart.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            Axes to draw on; None creates a new figure.
        max_features : int or None, default=20
            Number of features to draw: the most important ones. One more bar, in a lighter colour, is the sum
            of all other features; it is cut if it is much longer than the other bars. None draws all
            features.
        color : matplotlib color, sequence of matplotlib colors or None, default=None
            Colour of the bars; if there are several outputs or cohorts, one colour for each of them.

        Returns
        -------
        ShapBarDisplay
            The display itself.

        Raises
        ------
        ValueError
            ``color`` does not have one colour for each output or cohort, or ``max_features`` is less than 1.
        """
        is_single = self.output_names is None and self.cohort_names is None
        lengths = self.importances.mean(axis=0) if self.splits else self.importances
        lengths = lengths[:, None] if is_single else lengths
        shown, others = base.ranked(lengths.sum(axis=1), max_features)
        names = [base.short(self.feature_names[i]) for i in shown]
        kind = "output" if self.cohort_names is None else "cohort"
        palette = (base.NEGATIVE,) if is_single else base.PALETTE
        default = [palette[i % len(palette)] for i in range(lengths.shape[1])]
        colors = base.series_colors(color, default, kind)
        if len(others):
            names.append(base.others_name(len(others)))
            lengths = np.vstack([lengths[shown], lengths[others].sum(axis=0)])
        else:
            lengths = lengths[shown]
        n_beside = 1 if self.cohort_names is None else len(colors)
        ax, size = base.row_axes(ax, names, n_beside)
        rows, gap = np.arange(len(names)), 4
        self.bars_ = []
        numbers: list[tuple[float, float, float]] = []  # the length that each number shows, and its place
        if self.cohort_names is None:
            totals: np.ndarray = np.zeros(len(names))
            for series, series_color in zip(lengths.T, colors):
                self.bars_.append(ax.barh(rows, series, left=totals, height=0.7, color=series_color))
                totals = totals + series
            ends = totals
            if self.splits and len(self.importances) > 1:
                ends, gap = self._draw_splits(ax, shown, others, totals), 8
            numbers += zip(totals, ends, rows)
        else:
            ends, height = lengths, 0.8 / n_beside
            for i, (series, series_color) in enumerate(zip(lengths.T, colors)):
                centres = rows + (i - (n_beside - 1) / 2) * height
                self.bars_.append(ax.barh(centres, series, height=height, color=series_color))
                numbers += zip(series, series, centres)
        self.texts_ = [
            base.beside(ax, base.numeral(length, error=self.error), (end, y), gap, size)
            for length, end, y in numbers
        ]
        ax.set_xlim(0, ends.max() * 1.05 or 1.0)
        ax.set_xlabel(self.label)
        series_names = self.output_names if self.cohort_names is None else self.cohort_names
        if series_names is not None:
            base.legend_beside(ax, self.bars_, [base.short(name) for name in series_names])
        fit(ax)
        if len(others):
            self._mark_others(ax, ends)
        else:
            make_room(ax, self.texts_)
        self.ax_, self.figure_ = ax, base.figure_of(ax)
        return self

    def _mark_others(self, ax: Axes, ends: np.ndarray) -> None:
        """Draw the last row in a lighter colour. If it is much longer than the other rows, cut its bars.

        The number of a bar that is cut is inside the bar. ``ends`` are the largest x of each row and series.
        """
        from matplotlib.colors import to_rgb

        for bars in self.bars_:
            color = np.array(to_rgb(bars[-1].get_facecolor()))
            bars[-1].set_facecolor(tuple(_WHITE + (1 - _WHITE) * color))
        n_beside = 1 if ends.ndim == 1 else ends.shape[1]
        ends = ends.reshape(len(ends), n_beside)
        limit = _LONGEST_OTHERS * float(ends[:-1].max())
        texts = np.reshape(np.array(self.texts_, object), (n_beside, len(ends)))
        is_cut = ends[-1] > limit
        if not limit or not is_cut.any():
            make_room(ax, self.texts_)
            return
        ax.set_xlim(0, limit)
        make_room(ax, [*texts[:, :-1].ravel(), *texts[~is_cut, -1]])
        for text in texts[is_cut, -1]:
            text.xy = (ax.get_xlim()[1], text.xy[1])
            text.set(
                position=(-4, 0), horizontalalignment="right", text=f"{text.get_text()} \N{RIGHTWARDS ARROW}"
            )

    def _draw_splits(self, ax: Axes, shown: np.ndarray, others: np.ndarray, means: np.ndarray) -> np.ndarray:
        """Draw whiskers and dots; return the largest x of each row's whiskers and dots."""
        splits = self.importances[:, shown]
        if len(others):
            splits = np.column_stack([splits, self.importances[:, others].sum(axis=1)])
        spread, rows = splits.std(axis=0, ddof=1), np.arange(len(means))
        ax.errorbar(means, rows, xerr=spread, fmt="none", ecolor="black", elinewidth=1.2, capsize=3)
        ax.plot(splits.T, rows, "o", color="black", markersize=3.5, alpha=0.4, markeredgewidth=0)
        return np.maximum(means + spread, splits.max(axis=0))

    @classmethod
    @checks_options
    def from_explanation(
        cls,
        explanation: Explanation | Cohorts,
        *,
        max_features: int | None = 20,
        output: str | int | None = None,
        ax: Axes | None = None,
        color: ColorType | Sequence[ColorType] | None = None,
    ) -> ShapBarDisplay:
        """Draw the mean magnitudes of the SHAP values of an explanation, or of each of its cohorts.

        Parameters
        ----------
        explanation : Explanation or Cohorts
            Values to draw, or up to 8 cohorts from :meth:`Explanation.groupby`. If no split of a
            cross-validation tested a row, the row has no values and is left out. A row with values of only
            some classes counts for these classes.
        max_features : int or None, default=20
            See :meth:`plot`.
        output : str, int or None, default=None
            The output to draw, by name or position. None stacks all outputs or, with cohorts, sums them.
        ax, color
            See :meth:`plot`.

        Returns
        -------
        ShapBarDisplay

        Raises
        ------
        ValueError
            No row has values, or no row of a cohort; there are more than 8 cohorts; or an argument has an
            invalid value.
        """
        base.require_max_features(max_features)
        if isinstance(explanation, Cohorts):
            display = cls._from_cohorts(explanation, output)
            return display.plot(ax=ax, max_features=max_features, color=color)
        base.require_explanation(explanation)
        is_stacked = output is None and explanation.values.ndim == 3
        importances, _ = _means_of(explanation, output)
        names: Any = explanation.output_names if is_stacked else None
        if names is not None and len(names) > len(base.PALETTE):
            importances, names = importances.sum(axis=1), None
        label = base.with_unit(f"mean |{base.value_name(explanation)}|", explanation)
        if is_stacked:
            label += ", summed over the outputs" if names is None else " of each output"
        display = cls(
            importances,
            explanation.feature_names,
            output_names=names,
            label=label,
            error=base.resolution(explanation),
        )
        return display.plot(ax=ax, max_features=max_features, color=color)

    @classmethod
    def _from_cohorts(cls, cohorts: Cohorts, output: Any) -> ShapBarDisplay:
        """Return a display of cohorts that is not yet drawn."""
        explanation = base.require_explanation(cohorts.explanation)
        if not 1 <= len(cohorts) <= len(base.PALETTE):
            raise ValueError(
                f"bars of 1 to {len(base.PALETTE)} cohorts can be drawn beside each other, not of "
                f"{len(cohorts)}: merge cohorts, or draw the explanation of each cohort in its own figure"
            )
        lengths, names = [], []
        is_summed = output is None and explanation.values.ndim == 3
        for label, rows in cohorts.rows.items():
            means, n_rows = _means_of(explanation[rows], output)
            lengths.append(means.sum(axis=1) if is_summed else means)
            name = label if cohorts.name is None else f"{cohorts.name} = {label}"
            names.append(f"{name} ({n_rows} rows)")
        label = base.with_unit(f"mean |{base.value_name(explanation)}|", explanation)
        label += ", summed over the outputs" if is_summed else ""
        importances = np.column_stack(lengths)
        return cls(
            importances,
            explanation.feature_names,
            label=label,
            cohort_names=names,
            error=base.resolution(explanation),
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
        output: str | int | None = None,
        ax: Axes | None = None,
        color: ColorType | Sequence[ColorType] | None = None,
        **options: Unpack[ExplainerOptions],
    ) -> ShapBarDisplay:
        """Explain rows and draw the result.

        Parameters
        ----------
        estimator : fitted model, str, path, bytes or TreeExplainer
            A fitted model or its file, or an explainer or its file: see :class:`TreeExplainer`.
        X : array-like, sparse matrix or data frame of shape (n_rows, n_features)
            Rows to explain.
        y : array-like of shape (n_rows,), default=None
            Labels; see :meth:`TreeExplainer.explain`.
        max_features, output, ax, color
            See :meth:`from_explanation`.
        **options
            Options of :class:`TreeExplainer`.

        Returns
        -------
        ShapBarDisplay
        """
        require_options(cls.from_estimator, options)
        explanation = base.explanation_of(estimator, X, y, options)
        return cls.from_explanation(explanation, max_features=max_features, output=output, ax=ax, color=color)

    @classmethod
    @checks_options
    def from_cv_results(
        cls,
        cv_results: Mapping[str, Any],
        *,
        sum_by: Literal["input"] | None = None,
        max_features: int | None = 20,
        ax: Axes | None = None,
        color: ColorType | None = None,
    ) -> ShapBarDisplay:
        """Draw the mean and the spread of importances over the splits of a cross-validation.

        Parameters
        ----------
        cv_results : dict
            Result of :func:`cross_val_explain`. Splits whose fit failed are left out.
        sum_by : {"input"} or None, default=None
            "input" draws the columns of X. The value of a column is the sum of the values of the features
            that the leading steps of a pipeline made from it, as in :meth:`Explanation.sum_by`.
        max_features, ax, color
            See :meth:`plot`.

        Returns
        -------
        ShapBarDisplay

        Raises
        ------
        ValueError
            ``cv_results`` is not a result of :func:`cross_val_explain`, or no split has importances. With
            ``sum_by``: it is not known from which columns of X the features were made, or rows were tested
            more than once, so that only the means of their values over the splits are known.
        """
        base.require_max_features(max_features)
        if not isinstance(cv_results, Mapping) or not {"explanation", "importances"} <= set(cv_results):
            raise ValueError("cv_results must be the result of cross_val_explain")
        require_sum_by(sum_by)
        explanation = cv_results["explanation"]
        importances = np.asarray(cv_results["importances"], np.float64)
        if sum_by is not None:
            explanation = explanation.sum_by(sum_by)
            importances = _importances_by_split(explanation, cv_results, len(importances))
        names = explanation.feature_names
        if importances.ndim != 2 or importances.shape[1] != len(names):
            raise ValueError(
                f"cv_results has importances of shape {importances.shape}, but {len(names)} features"
            )
        importances = importances[np.isfinite(importances).all(axis=1)]
        if not len(importances):
            raise ValueError("no split has importances: there is nothing to draw")
        label = base.with_unit(f"mean |{base.value_name(explanation)}|", explanation)
        if explanation.values.ndim == 3:
            label += ", summed over the outputs"
        if len(importances) > 1:
            label += f"\n(mean and standard deviation of {len(importances)} splits)"
        display = cls(importances, names, splits=True, label=label, error=base.resolution(explanation))
        return display.plot(ax=ax, max_features=max_features, color=color)


def _means_of(explanation: Explanation, output: Any) -> tuple[np.ndarray, int]:
    """Return the mean magnitudes of an output's values, and the number of rows that have values.

    If ``output`` is None, return the mean magnitudes of all outputs. A row with values of only some outputs
    counts for these outputs; there are such rows after a cross-validation. Raise ``ValueError`` if no row has
    values, or there is an output of which no row has values.
    """
    if output is not None:
        explanation = explanation[..., base.output_position(explanation, output)]
    means = explanation.importance()
    if np.isnan(means).any():
        raise ValueError("the explanation has no row with values: there is nothing to draw")
    is_value = ~np.isnan(to_host(explanation.values))
    return means, int(is_value.any(axis=tuple(range(1, is_value.ndim))).sum())


def _importances_by_split(
    explanation: Explanation, cv_results: Mapping[str, Any], n_splits: int
) -> np.ndarray:
    """Return the importances (n_splits, n_features) of an explanation in the test rows of each split.

    Raise ``ValueError`` if the values of some rows are means over several splits.
    """
    fold = cv_results.get("fold")
    if fold is None or np.ndim(fold) != 1:
        raise ValueError(
            "rows were tested more than once, so that only the means of their values are known: instead of "
            "sum_by=, call cross_val_explain with explain_params={'feature_groups': 'input'}"
        )
    importances = np.full((n_splits, len(explanation.feature_names)), np.nan)
    for split in distinct_numbers(fold[fold >= 0]).tolist():
        means = explanation[fold == split].importance().reshape(importances.shape[1], -1)
        importances[split] = np.where(np.isnan(means).all(axis=1), np.nan, np.nansum(means, axis=1))
    return importances
