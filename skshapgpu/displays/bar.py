"""Bar chart of the mean magnitudes of SHAP values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .._explanations.cohorts import Cohorts
from .._explanations.grouping import require_sum_by
from .._explanations.values import Explanation
from .._rows.gpu_arrays import to_host
from .base import (
    NEGATIVE,
    PALETTE,
    explained,
    legend_beside,
    make_room,
    numeral,
    others_name,
    output_position,
    ranked,
    require_explanation,
    require_max_features,
    row_axes,
    short,
    value_name,
    with_unit,
)


class ShapBarDisplay:
    """Bar chart of the mean magnitude of each feature's SHAP values, the largest first.

    Create one with :meth:`from_estimator`, :meth:`from_explanation` or, with the spread over the splits of
    a cross-validation, :meth:`from_cv_results`. Several outputs are stacked; more than 8 are summed into
    one bar. Cohorts have bars beside each other.

    Parameters
    ----------
    importances : ndarray of float64
        Lengths of the bars, shape (n_features,); of their parts for each output, (n_features, n_outputs); in
        each split, (n_splits, n_features); or of the bars of each cohort, (n_features, n_cohorts).
    feature_names : sequence of str of length n_features
        Names of the features, as they are drawn.
    output_names : sequence of length n_outputs or None, default=None
        None: there is one output, or they are summed.
    splits : bool, default=False
        Whether ``importances`` has a row for each split. Bars then show the means, whiskers one standard
        deviation to each side, and dots the splits.
    label : str
        Label of the x-axis; by default ``mean |SHAP value|``.
    cohort_names : sequence of length n_cohorts or None, default=None
        Names of cohorts, which have bars of their own.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    bars_ : list of matplotlib BarContainer
        A single container, or one for each output or cohort.
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

    ax_: Any
    figure_: Any
    bars_: list[Any]
    texts_: list[Any]

    def __init__(
        self,
        importances: np.ndarray,
        feature_names: Sequence[str],
        *,
        output_names: Sequence[Any] | None = None,
        splits: bool = False,
        label: str = "mean |SHAP value|",
        cohort_names: Sequence[Any] | None = None,
    ) -> None:
        self.importances = importances
        self.feature_names = feature_names
        self.output_names = output_names
        self.splits = splits
        self.label = label
        self.cohort_names = cohort_names

    def plot(self, *, ax: Any = None, max_features: int | None = 20, color: Any = None) -> ShapBarDisplay:
        """Draw the chart.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            Axes to draw on; None creates a new figure.
        max_features : int or None, default=20
            Number of bars; the other features are added up in one more. None draws all features.
        color : matplotlib color or None, default=None
            Colour of the bars, unless outputs are stacked or there are cohorts.

        Returns
        -------
        ShapBarDisplay
            The display itself.
        """
        of_parts = self.output_names if self.cohort_names is None else self.cohort_names
        parts = self._lengths()[:, None] if of_parts is None else self.importances
        total = parts.sum(axis=1)
        shown, others = ranked(total, max_features)
        names = [short(self.feature_names[i]) for i in shown]
        parts = parts[shown] if not len(others) else np.vstack([parts[shown], parts[others].sum(axis=0)])
        if len(others):
            names.append(others_name(len(others)))
        if self.cohort_names is not None:
            return self._plot_beside(ax, names, parts, self.cohort_names)
        ax, size = row_axes(ax, names)
        self.bars_, start = [], np.zeros(len(parts))
        for i, part in enumerate(parts.T):
            fill = PALETTE[i] if self.output_names is not None else color or NEGATIVE
            self.bars_.append(ax.barh(range(len(part)), part, left=start, height=0.7, color=fill))
            start = start + part
        ends, gap = start, 4
        if self.splits and len(self.importances) > 1:
            ends, gap = self._draw_splits(ax, shown, others, start), 8
        self.texts_ = [
            ax.annotate(
                numeral(length), (end, i), (gap, 0), textcoords="offset points", va="center", fontsize=size
            )
            for i, (length, end) in enumerate(zip(start, ends))
        ]
        ax.set_xlim(0, ends.max() * 1.05 or 1.0)
        ax.set_xlabel(self.label)
        if self.output_names is not None:
            legend_beside(ax, self.bars_, [short(name) for name in self.output_names])
        make_room(ax, self.texts_)
        self.ax_, self.figure_ = ax, ax.figure
        return self

    def _plot_beside(
        self, ax: Any, names: Sequence[str], lengths: np.ndarray, cohort_names: Sequence[Any]
    ) -> ShapBarDisplay:
        """Draw bars (n_rows, n_cohorts), those of a row below each other."""
        n_cohorts = lengths.shape[1]
        ax, size = row_axes(ax, names, n_cohorts)
        height, rows = 0.8 / n_cohorts, np.arange(len(names))
        self.bars_, self.texts_ = [], []
        for i, of_cohort in enumerate(lengths.T):
            places = rows + (i - (n_cohorts - 1) / 2) * height
            self.bars_.append(ax.barh(places, of_cohort, height=height, color=PALETTE[i]))
            self.texts_ += [
                ax.annotate(
                    numeral(length),
                    (length, y),
                    (4, 0),
                    textcoords="offset points",
                    va="center",
                    fontsize=size,
                )
                for length, y in zip(of_cohort, places)
            ]
        ax.set_xlim(0, lengths.max() * 1.05 or 1.0)
        ax.set_xlabel(self.label)
        legend_beside(ax, self.bars_, [short(name) for name in cohort_names])
        make_room(ax, self.texts_)
        self.ax_, self.figure_ = ax, ax.figure
        return self

    def _lengths(self) -> np.ndarray:
        return self.importances.mean(axis=0) if self.splits else self.importances

    def _draw_splits(self, ax: Any, shown: np.ndarray, others: np.ndarray, means: np.ndarray) -> np.ndarray:
        """Draw whiskers and dots; return how far they reach."""
        splits = self.importances[:, shown]
        if len(others):
            splits = np.column_stack([splits, self.importances[:, others].sum(axis=1)])
        spread, rows = splits.std(axis=0, ddof=1), np.arange(len(means))
        ax.errorbar(means, rows, xerr=spread, fmt="none", ecolor="black", elinewidth=1.2, capsize=3)
        ax.plot(splits.T, rows, "o", color="black", markersize=3.5, alpha=0.4, markeredgewidth=0)
        return np.maximum(means + spread, splits.max(axis=0))

    @classmethod
    def from_explanation(
        cls,
        explanation: Explanation | Cohorts,
        *,
        max_features: int | None = 20,
        output: Any = None,
        ax: Any = None,
        color: Any = None,
    ) -> ShapBarDisplay:
        """Draw the mean magnitudes of an explanation's SHAP values, or of each of its cohorts.

        Parameters
        ----------
        explanation : Explanation or Cohorts
            Rows without values, because no split of a cross-validation tested them, are left out; those
            without values of one class count for the others. From :meth:`Explanation.groupby`: at most 8
            cohorts, whose bars are drawn beside each other.
        max_features : int or None, default=20
            See :meth:`plot`.
        output : str, int or None, default=None
            The output to draw, by name or position; None stacks all outputs, or sums them for cohorts.
        ax, color
            See :meth:`plot`.

        Returns
        -------
        ShapBarDisplay

        Raises
        ------
        ValueError
            No row, or none of a cohort, has values; there are too many cohorts; or an argument has an
            invalid value.
        KeyError, IndexError
            The output does not exist.
        """
        require_max_features(max_features)
        if isinstance(explanation, Cohorts):
            return cls._from_cohorts(explanation, output).plot(ax=ax, max_features=max_features)
        require_explanation(explanation)
        stacked = output is None and explanation.values.ndim == 3
        importances, _ = _means_of(explanation, output)
        names: Any = explanation.output_names if stacked else None
        if names is not None and len(names) > len(PALETTE):
            importances, names = importances.sum(axis=1), None
        label = with_unit(f"mean |{value_name(explanation)}|", explanation)
        if stacked:
            label += ", summed over the outputs" if names is None else " of each output"
        display = cls(importances, explanation.feature_names, output_names=names, label=label)
        return display.plot(ax=ax, max_features=max_features, color=color)

    @classmethod
    def _from_cohorts(cls, cohorts: Cohorts, output: Any) -> ShapBarDisplay:
        """Return the display of cohorts, not yet drawn."""
        whole = require_explanation(cohorts.explanation)
        if not 1 <= len(cohorts) <= len(PALETTE):
            raise ValueError(
                f"bars of 1 to {len(PALETTE)} cohorts can be drawn beside each other, not of {len(cohorts)}: "
                "merge labels, or draw cohorts one by one"
            )
        lengths, names = [], []
        several = output is None and whole.values.ndim == 3
        for label, rows in cohorts.rows.items():
            means, n_rows = _means_of(whole[rows], output)
            lengths.append(means.sum(axis=1) if several else means)
            name = label if cohorts.name is None else f"{cohorts.name} = {label}"
            names.append(f"{name} ({n_rows} rows)")
        label = with_unit(f"mean |{value_name(whole)}|", whole)
        label += ", summed over the outputs" if several else ""
        importances = np.column_stack(lengths)
        return cls(importances, whole.feature_names, label=label, cohort_names=names)

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        *,
        y: Any = None,
        max_features: int | None = 20,
        output: Any = None,
        ax: Any = None,
        color: Any = None,
        **options: Any,
    ) -> ShapBarDisplay:
        """Explain rows and draw the result.

        Parameters
        ----------
        estimator : fitted model or TreeExplainer
            See :class:`TreeExplainer`.
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
        explanation = explained(estimator, X, y, options)
        return cls.from_explanation(explanation, max_features=max_features, output=output, ax=ax, color=color)

    @classmethod
    def from_cv_results(
        cls,
        cv_results: Mapping[str, Any],
        *,
        sum_by: str | None = None,
        max_features: int | None = 20,
        ax: Any = None,
        color: Any = None,
    ) -> ShapBarDisplay:
        """Draw the mean and the spread of importances over the splits of a cross-validation.

        Parameters
        ----------
        cv_results : dict
            Result of :func:`cross_val_explain`; its ``"explanation"`` and ``"importances"`` are used.
            Splits whose fit failed are left out.
        sum_by : {"input"} or None, default=None
            "input" draws the columns of X from which the leading steps of a pipeline made the features, with
            sums of their values, as of :meth:`Explanation.sum_by`.
        max_features, ax, color
            See :meth:`plot`.

        Returns
        -------
        ShapBarDisplay

        Raises
        ------
        ValueError
            ``cv_results`` is not such a result, or no split has importances. With ``sum_by``: the columns of
            X are not known, or rows were tested more than once, so that the values of each split are not.
        """
        require_max_features(max_features)
        if not isinstance(cv_results, Mapping) or not {"explanation", "importances"} <= set(cv_results):
            raise ValueError("cv_results must be the result of cross_val_explain")
        require_sum_by(sum_by)
        explanation = cv_results["explanation"]
        importances = np.asarray(cv_results["importances"], np.float64)
        if sum_by is not None:
            explanation = explanation.sum_by(sum_by)
            importances = _of_splits(explanation, cv_results, len(importances))
        names = explanation.feature_names
        if importances.ndim != 2 or importances.shape[1] != len(names):
            raise ValueError(
                f"cv_results has importances of shape {importances.shape}, but {len(names)} features"
            )
        importances = importances[np.isfinite(importances).all(axis=1)]
        if not len(importances):
            raise ValueError("no split has importances: there is nothing to draw")
        label = with_unit(f"mean |{value_name(explanation)}|", explanation)
        if explanation.values.ndim == 3:
            label += ", summed over the outputs"
        if len(importances) > 1:
            label += f"\n(mean and standard deviation of {len(importances)} splits)"
        display = cls(importances, names, splits=True, label=label)
        return display.plot(ax=ax, max_features=max_features, color=color)


def _means_of(explanation: Explanation, output: Any) -> tuple[np.ndarray, int]:
    """Return the mean magnitudes of an output, or of all for None, and the number of rows that have values.

    A row of a cross-validation may have values of some outputs only; it counts for these.

    Raises
    ------
    ValueError
        No row has values, or none of some output.
    """
    if output is not None:
        explanation = explanation[..., output_position(explanation, output)]
    means = explanation.importance()
    if np.isnan(means).any():
        raise ValueError("the explanation has no row with values: there is nothing to draw")
    known = ~np.isnan(to_host(explanation.values))
    return means, int(known.any(axis=tuple(range(1, known.ndim))).sum())


def _of_splits(explanation: Explanation, cv_results: Mapping[str, Any], n_splits: int) -> np.ndarray:
    """Return the importances (n_splits, n_features) of an explanation over the test rows of each split.

    Raises
    ------
    ValueError
        The values of some rows are means over several splits.
    """
    fold = cv_results.get("fold")
    if fold is None or np.ndim(fold) != 1:
        raise ValueError(
            "rows were tested more than once, so that only the means of their values are known: for the "
            "columns of X, call cross_val_explain with explain_params={'feature_groups': 'input'} instead of "
            "sum_by="
        )
    found = np.full((n_splits, len(explanation.feature_names)), np.nan)
    for split in np.unique(fold[fold >= 0]).tolist():
        means = explanation[fold == split].importance().reshape(found.shape[1], -1)
        found[split] = np.where(np.isnan(means).all(axis=1), np.nan, np.nansum(means, axis=1))
    return found
