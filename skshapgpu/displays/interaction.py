"""Heat map of interactions of pairs of features."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._explanations.interactions import InteractionExplanation
from ..explainer import as_explainer
from .base import (
    LARGEST,
    LETTER,
    new_axes,
    output_position,
    pyplot,
    require_max_features,
    short,
    with_article,
)

#: Width and height of a cell, in inches.
_CELL = 0.32


class ShapInteractionDisplay:
    """Heat map of mean interactions: how strongly pairs of features act together.

    Create one with :meth:`from_explanation` or :meth:`from_estimator`. Off the diagonal, a cell shows the
    mean magnitude of a pair's whole index; on the diagonal, that of a main effect (of a Banzhaf value for
    the Banzhaf index). Colours follow the square root, because main effects are often much larger than
    interactions. Cells without values are blank: the diagonal unless the explanation has all pairs, and
    pairs that were not requested.

    Parameters
    ----------
    strength : ndarray of float64, shape (n_features, n_features)
        Mean magnitudes to draw; NaN cells are blank.
    feature_names : sequence of str of length n_features
        Names of the features, as they are drawn.

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

    ax_: Any
    figure_: Any
    image_: Any

    def __init__(self, strength: np.ndarray, feature_names: Any) -> None:
        self.strength = strength
        self.feature_names = feature_names

    def plot(self, *, ax: Any = None, cmap: str = "viridis", colorbar: bool = True) -> ShapInteractionDisplay:
        """Draw the chart.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            Axes to draw on; None creates a new figure.
        cmap : str or matplotlib Colormap, default="viridis"
            Colours, from the smallest to the largest magnitude.
        colorbar : bool, default=True
            Draw the scale of the colours.

        Returns
        -------
        ShapInteractionDisplay
            The display itself.
        """
        plt, names = pyplot(), [short(name) for name in self.feature_names]
        from matplotlib.colors import PowerNorm

        if ax is None:
            side = min(max(3.2, _CELL * len(names)) + LETTER * max(map(len, names)), LARGEST)
            ax = new_axes(side + 1.2, side)
            cells = side - LETTER * max(map(len, names))
        else:
            box = ax.get_window_extent()
            cells = min(box.width, box.height) / ax.figure.dpi
        size = min(float(plt.rcParams["font.size"]), 0.75 * 72 * cells / len(names))
        strength = np.ma.masked_invalid(self.strength)
        scale = PowerNorm(0.5, vmin=0, vmax=strength.max() or 1.0 if strength.count() else 1.0)
        self.image_ = ax.imshow(strength, cmap=cmap, norm=scale)
        ax.set_xticks(range(len(names)), names, rotation=90, fontsize=size, parse_math=False)
        ax.set_yticks(range(len(names)), names, fontsize=size, parse_math=False)
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
        self.ax_, self.figure_ = ax, ax.figure
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
        output: Any = None,
        ax: Any = None,
        cmap: str = "viridis",
        colorbar: bool = True,
    ) -> ShapInteractionDisplay:
        """Draw the pairs of an explanation.

        Parameters
        ----------
        explanation : InteractionExplanation
            Interactions of pairs, dense or not.
        max_features : int or None, default=20
            Number of features to draw: those with the largest sum of main effects and interactions, the
            largest first. None draws all features.
        output : str, int or None, default=None
            The output to draw, by name or position; None adds up the magnitudes of all outputs.
        ax, cmap, colorbar
            See :meth:`plot`.

        Returns
        -------
        ShapInteractionDisplay

        Raises
        ------
        ValueError
            The explanation is of triples; ``output`` does not name one of several outputs; or
            ``max_features`` is less than 1.
        TypeError
            It is not an explanation of interactions.
        KeyError, IndexError
            The output does not exist.
        """
        pyplot()
        if not isinstance(explanation, InteractionExplanation):
            raise TypeError(
                f"explanation must be an InteractionExplanation, not {with_article(explanation)}: pass the "
                "result of explain_interactions"
            )
        if explanation.order != 2:
            raise ValueError("a heat map shows pairs, but the explanation is of triples")
        require_max_features(max_features)
        if output is not None:
            explanation = explanation[..., output_position(explanation, output)]
        strength = _strength(explanation)
        total = np.nan_to_num(strength).sum(axis=0)
        chosen = np.argsort(-total, kind="stable")[:max_features]
        names = [explanation.feature_names[i] for i in chosen]
        return cls(strength[np.ix_(chosen, chosen)], names).plot(ax=ax, cmap=cmap, colorbar=colorbar)

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        *,
        index: str = "SII",
        max_features: int | None = 20,
        output: Any = None,
        ax: Any = None,
        cmap: str = "viridis",
        colorbar: bool = True,
        **options: Any,
    ) -> ShapInteractionDisplay:
        """Explain rows and draw the result.

        Parameters
        ----------
        estimator : fitted model or TreeExplainer
            See :class:`TreeExplainer`.
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
        pyplot()  # fail before any work is done
        explanation = as_explainer(estimator, options).explain_interactions(
            X, interactions="occurring", index=index
        )
        return cls.from_explanation(
            explanation, max_features=max_features, output=output, ax=ax, cmap=cmap, colorbar=colorbar
        )


def _strength(explanation: InteractionExplanation) -> np.ndarray:
    """Return the mean magnitudes of whole indices and main effects, summed over the outputs.

    Their shape is (n_features, n_features).
    """
    n_features = len(explanation.feature_names)
    means = explanation.importance()
    if explanation.interactions is None:
        means = means.reshape(n_features, n_features, -1).sum(axis=2)
        return means * (2 - np.eye(n_features))
    complete = explanation.feature_values is not None
    strength = np.full((n_features, n_features), 0.0 if complete else np.nan)
    first, second = explanation.interactions.T
    strength[first, second] = strength[second, first] = means.reshape(len(first), -1).sum(axis=1)
    if complete:
        main = np.abs(explanation.main_effects())
        np.fill_diagonal(strength, main.mean(axis=0).reshape(n_features, -1).sum(axis=1))
    return strength
