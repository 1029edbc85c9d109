"""Heat map of interactions of pairs of features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Unpack

import numpy as np

from .._common.checks import require_bool, require_options, with_article
from .._common.types import ExplainerOptions, InteractionIndex, Model, Table, Values, lists_options
from .._explanations.interactions import InteractionExplanation
from ..explainer import as_explainer
from . import base

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

#: Width and height of a cell, in inches.
_CELL = 0.32


class ShapInteractionDisplay:
    """Heat map of mean interactions: how strongly pairs of features act together.

    Create one with :meth:`from_explanation` or :meth:`from_estimator`. A cell off the diagonal shows the
    mean magnitude of a pair's interaction index. A cell on the diagonal shows the mean magnitude of a
    feature's main effect or, with the Banzhaf index, of its Banzhaf value. Colours follow the square root,
    because main effects are often much larger than interactions. If the caller chose the pairs, all other
    pairs are blank, and so is the diagonal: they are unknown. :meth:`InteractionExplanation.matrices` has 0
    for these pairs, and NaN on the diagonal.

    Parameters
    ----------
    matrix : ndarray of float64, shape (n_features, n_features)
        Mean magnitudes of all pairs of features. Cells with NaN are blank.
    feature_names : sequence of str of length n_features
        Names of the features.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    image_ : matplotlib AxesImage
        The heat map.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.ensemble import RandomForestRegressor
    >>> from skshapgpu import ShapInteractionDisplay
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> model = RandomForestRegressor(10, random_state=0).fit(X, y)
    >>> display = ShapInteractionDisplay.from_estimator(model, X, max_features=5)
    >>> plt.show()  # doctest: +SKIP
    """

    ax_: Axes
    figure_: Figure
    image_: AxesImage

    def __init__(self, matrix: Values, feature_names: Sequence[str]) -> None:
        self.matrix = matrix
        self.feature_names = feature_names

    def plot(
        self,
        *,
        ax: Axes | None = None,
        max_features: int | None = 20,
        cmap: str | Colormap | None = None,
        colorbar: bool = True,
    ) -> ShapInteractionDisplay:
        """Draw the chart.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            Axes to draw on; None creates a new figure.
        max_features : int or None, default=20
            Number of features to draw: the features with the largest sums of main effects and interactions,
            the largest sum first. None draws all features.
        cmap : str, matplotlib Colormap or None, default=None
            Colours from the smallest to the largest magnitude. None draws them from blue to orange.
        colorbar : bool, default=True
            Whether to draw the scale of the colours.

        Returns
        -------
        ShapInteractionDisplay
            The display itself.
        """
        plt = base.pyplot()
        from matplotlib.colors import PowerNorm

        require_bool("colorbar", colorbar)

        shown, _ = base.ranked(np.nan_to_num(self.matrix).sum(axis=0), max_features)
        names = [base.short(self.feature_names[i]) for i in shown]
        if ax is None:
            side = min(max(3.2, _CELL * len(names)) + base.LETTER * max(map(len, names)), base.LARGEST)
            ax = base.new_axes(side + 1.2, side)
            cells = side - base.LETTER * max(map(len, names))
        else:
            box = ax.get_window_extent()
            cells = min(box.width, box.height) / ax.figure.dpi
        size = min(float(plt.rcParams["font.size"]), 0.75 * 72 * cells / len(names))
        matrix = np.ma.masked_invalid(self.matrix[np.ix_(shown, shown)])
        largest = float(matrix.max()) if matrix.count() else 0.0
        scale = PowerNorm(0.5, vmin=0, vmax=largest or 1.0)
        self.image_ = ax.imshow(matrix, cmap=base.colormap(cmap), norm=scale)
        ax.set_xticks(range(len(names)), names, rotation=90, fontsize=size, parse_math=False)
        ax.set_yticks(range(len(names)), names, fontsize=size, parse_math=False)
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
        self.ax_, self.figure_ = ax, base.figure_of(ax)
        if colorbar:
            bar = self.figure_.colorbar(self.image_, ax=ax, label="mean |interaction|")
            bar.outline.set_visible(False)
        return self

    @classmethod
    def from_explanation(
        cls,
        explanation: InteractionExplanation,
        *,
        max_features: int | None = 20,
        output: str | int | None = None,
        ax: Axes | None = None,
        cmap: str | Colormap | None = None,
        colorbar: bool = True,
    ) -> ShapInteractionDisplay:
        """Draw the pairs of an explanation.

        Parameters
        ----------
        explanation : InteractionExplanation
            Interactions of pairs.
        max_features : int or None, default=20
            See :meth:`plot`.
        output : str, int or None, default=None
            The output to draw, by name or position. None adds up the magnitudes of all outputs.
        ax, cmap, colorbar
            See :meth:`plot`.

        Returns
        -------
        ShapInteractionDisplay

        Raises
        ------
        ValueError
            The explanation is of triples; ``output`` is not one of several outputs; or ``max_features`` is
            less than 1.
        TypeError
            ``explanation`` is not an explanation of interactions.
        """
        base.pyplot()
        if not isinstance(explanation, InteractionExplanation):
            raise TypeError(
                f"explanation must be an InteractionExplanation, not {with_article(explanation)}: pass the "
                "result of explain_interactions"
            )
        if explanation.order != 2:
            raise ValueError("a heat map shows pairs, but the explanation is of triples")
        base.require_max_features(max_features)
        if output is not None:
            explanation = explanation[..., base.output_position(explanation, output)]
        display = cls(_strength(explanation), explanation.feature_names)
        return display.plot(ax=ax, max_features=max_features, cmap=cmap, colorbar=colorbar)

    @classmethod
    @lists_options
    def from_estimator(
        cls,
        estimator: Model,
        X: Table,
        *,
        index: InteractionIndex = "SII",
        max_features: int | None = 20,
        output: str | int | None = None,
        ax: Axes | None = None,
        cmap: str | Colormap | None = None,
        colorbar: bool = True,
        **options: Unpack[ExplainerOptions],
    ) -> ShapInteractionDisplay:
        """Explain rows and draw the result.

        Parameters
        ----------
        estimator : fitted model, str, path, bytes or TreeExplainer
            A fitted model or its file, or an explainer or its file: see :class:`TreeExplainer`.
        X : array-like, sparse matrix or data frame of shape (n_rows, n_features)
            Rows to explain.
        index : {"SII", "STII", "BII"}, default="SII"
            See :meth:`TreeExplainer.explain_interactions`.
        max_features, output, ax, cmap, colorbar
            See :meth:`from_explanation`.
        **options
            Options of :class:`TreeExplainer`.

        Returns
        -------
        ShapInteractionDisplay
        """
        require_options(cls.from_estimator, options)
        base.pyplot()  # without matplotlib, this fails before any work is done
        explanation = as_explainer(estimator, options).explain_interactions(
            X, interactions="occurring", index=index
        )
        return cls.from_explanation(
            explanation, max_features=max_features, output=output, ax=ax, cmap=cmap, colorbar=colorbar
        )


def _strength(explanation: InteractionExplanation) -> np.ndarray:
    """Return the mean magnitudes of interactions and main effects, summed over the outputs.

    Main effects are on the diagonal of the matrix (n_features, n_features).
    """
    n_features = len(explanation.feature_names)
    means = explanation.importance()
    has_all_pairs = explanation.single_values is not None
    matrix = np.full((n_features, n_features), 0.0 if has_all_pairs else np.nan)
    first, second = explanation.interactions.T
    matrix[first, second] = matrix[second, first] = means.reshape(len(first), -1).sum(axis=1)
    if has_all_pairs:
        main_effects = np.abs(explanation.main_effects())
        np.fill_diagonal(matrix, main_effects.mean(axis=0).reshape(n_features, -1).sum(axis=1))
    return matrix
