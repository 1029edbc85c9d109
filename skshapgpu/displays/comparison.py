"""Chart of the importances in two samples, with the change of each feature's values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from .._common.checks import checks_options, with_article
from .._common.types import PathOrUrl, Values, Vector
from .._drift.comparison import ExplanationComparison
from .._explanations.values import Explanation
from . import base
from .room import fit, make_room

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import LineCollection
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.text import Annotation
    from matplotlib.typing import ColorType


class ShapComparisonDisplay:
    """Mean magnitude of each feature's SHAP values in two samples, and how far their distributions differ.

    Create one with :meth:`from_explanations` or :meth:`from_comparison`. Features are in the order of the
    larger of their two importances. The number beside the points of a feature is its population stability
    index (PSI). If there are several outputs, the importances of a feature are summed, and its largest index
    is shown.

    Parameters
    ----------
    importances : ndarray of float64, shape (n_features, 2)
        Importance of each feature in the reference sample and in the current sample.
    psi : ndarray of float64, shape (n_features,)
        Population stability index of each feature.
    feature_names : sequence of str of length n_features
        Names of the features.
    sample_names : sequence of two str, default=("reference", "current")
        Names of the samples in the legend.
    label : str
        Label of the x-axis; by default ``mean |SHAP value|``.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    points_ : list of two matplotlib Line2D
        The points of each sample.
    lines_ : matplotlib LineCollection
        The lines between the two points of each feature.
    texts_ : list of matplotlib Annotation
        The population stability indices beside the points.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.ensemble import RandomForestRegressor
    >>> from skshapgpu import ShapComparisonDisplay, explain
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> explanation = explain(RandomForestRegressor(10, random_state=0).fit(X, y), X)
    >>> display = ShapComparisonDisplay.from_explanations(explanation[:200], explanation[200:])
    >>> plt.show()  # doctest: +SKIP
    """

    ax_: Axes
    figure_: Figure
    points_: list[Line2D]
    lines_: LineCollection
    texts_: list[Annotation]

    def __init__(
        self,
        importances: Values,
        psi: Values,
        feature_names: Sequence[str],
        *,
        sample_names: Sequence[str] = ("reference", "current"),
        label: str = "mean |SHAP value|",
    ) -> None:
        self.importances = importances
        self.psi = psi
        self.feature_names = feature_names
        self.sample_names = sample_names
        self.label = label

    @checks_options
    def plot(
        self,
        *,
        ax: Axes | None = None,
        max_features: int | None = 20,
        color: Sequence[ColorType] | None = None,
    ) -> ShapComparisonDisplay:
        """Draw the chart.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            Axes to draw on; None creates a new figure.
        max_features : int or None, default=20
            Number of features to draw: the most important ones. One more row shows the sums of the
            importances of all other features and the largest of their indices. None draws all features.
        color : sequence of two matplotlib colors or None, default=None
            Colour of the reference sample and colour of the current sample.

        Returns
        -------
        ShapComparisonDisplay
            The display itself.
        """
        shown, others = base.ranked(self.importances.max(axis=1), max_features)
        names = [base.short(self.feature_names[i]) for i in shown]
        colors = base.series_colors(color, base.PALETTE[:2], "sample")
        points, texts = self.importances[shown], [f"PSI {base.numeral(self.psi[i])}" for i in shown]
        if len(others):
            names.append(base.others_name(len(others)))
            points = np.vstack([points, self.importances[others].sum(axis=0)])
            texts.append(f"PSI up to {base.numeral(self.psi[others].max())}")
        ax, size = base.row_axes(ax, names)
        rows = np.arange(len(names))
        self.lines_ = ax.hlines(
            rows, points.min(axis=1), points.max(axis=1), color=base.NEUTRAL, linewidth=1.5
        )
        self.points_ = [
            ax.plot(sample, rows, "o", color=sample_color, markersize=7)[0]
            for sample, sample_color in zip(points.T, colors)
        ]
        self.texts_ = [
            base.beside(ax, text, (end, row), 8, size)
            for row, (text, end) in enumerate(zip(texts, points.max(axis=1)))
        ]
        ax.set_xlim(0, points.max() * 1.05 or 1.0)
        ax.set_xlabel(self.label)
        base.legend_beside(ax, self.points_, [base.short(name) for name in self.sample_names])
        fit(ax)
        make_room(ax, self.texts_)
        self.ax_, self.figure_ = ax, base.figure_of(ax)
        return self

    @classmethod
    @checks_options
    def from_comparison(
        cls,
        comparison: ExplanationComparison,
        *,
        max_features: int | None = 20,
        ax: Axes | None = None,
        color: Sequence[ColorType] | None = None,
    ) -> ShapComparisonDisplay:
        """Draw the result of :func:`compare_explanations`.

        Parameters
        ----------
        comparison : ExplanationComparison
            Comparison of two samples of SHAP values.
        max_features, ax, color
            See :meth:`plot`.

        Returns
        -------
        ShapComparisonDisplay
        """
        base.require_max_features(max_features)
        if not isinstance(comparison, ExplanationComparison):
            raise TypeError(f"comparison must be an ExplanationComparison, not {with_article(comparison)}")
        n_features = len(comparison.feature_names)
        samples = (comparison.reference_importance, comparison.current_importance)
        label = base.with_unit(f"mean |{base.value_name(comparison)}|", comparison)
        if comparison.output_names is not None:
            label += ", summed over the outputs"
        display = cls(
            np.column_stack([importance.reshape(n_features, -1).sum(axis=1) for importance in samples]),
            comparison.psi.reshape(n_features, -1).max(axis=1),
            comparison.feature_names,
            sample_names=(
                f"reference ({comparison.n_reference:,} rows)",
                f"current ({comparison.n_current:,} rows)",
            ),
            label=f"{label}\n(nDCG of the rankings: {base.numeral(comparison.ndcg)})",
        )
        return display.plot(ax=ax, max_features=max_features, color=color)

    @classmethod
    @checks_options
    def from_explanations(
        cls,
        reference: Explanation | PathOrUrl | Sequence[PathOrUrl],
        current: Explanation | PathOrUrl | Sequence[PathOrUrl],
        *,
        n_bins: int = 10,
        reference_weight: Vector | str | None = None,
        current_weight: Vector | str | None = None,
        max_features: int | None = 20,
        ax: Axes | None = None,
        color: Sequence[ColorType] | None = None,
    ) -> ShapComparisonDisplay:
        """Compare two samples of SHAP values, and draw the result.

        Parameters
        ----------
        reference, current, n_bins, reference_weight, current_weight
            See :func:`compare_explanations`.
        max_features, ax, color
            See :meth:`plot`.

        Returns
        -------
        ShapComparisonDisplay
        """
        from .._drift.comparing import compare_explanations  # it imports the readers of files

        base.pyplot()
        base.require_max_features(max_features)
        comparison = compare_explanations(
            reference,
            current,
            n_bins=n_bins,
            reference_weight=reference_weight,
            current_weight=current_weight,
        )
        return cls.from_comparison(comparison, max_features=max_features, ax=ax, color=color)
