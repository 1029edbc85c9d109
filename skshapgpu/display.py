"""Displays in the style of scikit-learn: computed once, drawn as often as wanted."""

from __future__ import annotations

from typing import Any

import numpy as np

from .explainer import TreeExplainer
from .interaction_explanation import InteractionExplanation


class ShapInteractionDisplay:
    """Heat map of mean interactions: how strongly pairs of features act together.

    Make one with :meth:`from_explanation` or :meth:`from_estimator`. Off the diagonal stands the
    mean magnitude of a pair's whole index, on it that of a main effect (with the Banzhaf index of a
    Banzhaf value). Places of which an explanation holds nothing are blank: the diagonal where it
    does not have all pairs, and pairs that were not asked for.

    Parameters
    ----------
    strength : ndarray of float64, shape (n_features, n_features)
        What to draw; NaN is blank.
    feature_names : sequence of str of length n_features

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
        """Draw.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            Where; None makes a new figure.
        cmap : str or matplotlib Colormap, default="viridis"
        colorbar : bool, default=True

        Returns
        -------
        ShapInteractionDisplay
            Itself.
        """
        pyplot = _pyplot()
        if ax is None:
            _, ax = pyplot.subplots(layout="constrained")
        places = range(len(self.feature_names))
        self.image_ = ax.imshow(np.ma.masked_invalid(self.strength), cmap=cmap, vmin=0)
        ax.set_xticks(places, self.feature_names, rotation=90)
        ax.set_yticks(places, self.feature_names)
        self.ax_, self.figure_ = ax, ax.figure
        if colorbar:
            self.figure_.colorbar(self.image_, ax=ax, label="mean |interaction|")
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
            Dense or not, of pairs.
        max_features : int or None, default=20
            Draw only so many features: those whose main effects and interactions are largest in
            sum, the largest first. None draws all.
        output : str, int or None, default=None
            One of several outputs, by name or position; None adds up the magnitudes of all.
        ax, cmap, colorbar
            As for :meth:`plot`.

        Returns
        -------
        ShapInteractionDisplay

        Raises
        ------
        ValueError
            The explanation is of triples, or ``max_features`` is less than 1.
        """
        _pyplot()
        if explanation.order != 2:
            raise ValueError("a heat map shows pairs, but the explanation is of triples")
        if max_features is not None and max_features < 1:
            raise ValueError(f"max_features must be at least 1, not {max_features!r}")
        if output is not None:
            explanation = explanation[..., output]
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
        index: str = "sii",
        max_features: int | None = 20,
        output: Any = None,
        ax: Any = None,
        cmap: str = "viridis",
        colorbar: bool = True,
        **options: Any,
    ) -> ShapInteractionDisplay:
        """Explain rows, and draw.

        Parameters
        ----------
        estimator : fitted model
            As for :class:`TreeExplainer`.
        X : array-like, sparse matrix or data frame of shape (n_rows, n_features)
        index : {"sii", "stii", "bii"}, default="sii"
            As for :meth:`TreeExplainer.explain_interactions`.
        max_features, output, ax, cmap, colorbar
            As for :meth:`from_explanation`.
        **options
            Options of :class:`TreeExplainer`.

        Returns
        -------
        ShapInteractionDisplay
        """
        _pyplot()  # refuses before the work
        explanation = TreeExplainer(estimator, **options).explain_interactions(
            X, pairs="occurring", index=index
        )
        return cls.from_explanation(
            explanation, max_features=max_features, output=output, ax=ax, cmap=cmap, colorbar=colorbar
        )


def _pyplot() -> Any:
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError("displays need matplotlib: pip install matplotlib") from error
    return pyplot


def _strength(explanation: InteractionExplanation) -> np.ndarray:
    """Mean magnitudes of whole pairs and main effects, added up over outputs: (n_features, n_features)."""
    n_features = len(explanation.feature_names)
    means = explanation.importance()
    if explanation.pairs is None:
        means = means.reshape(n_features, n_features, -1).sum(axis=2)
        return means * (2 - np.eye(n_features))
    complete = explanation.feature_values is not None
    strength = np.full((n_features, n_features), 0.0 if complete else np.nan)
    first, second = explanation.pairs.T
    strength[first, second] = strength[second, first] = means.reshape(len(first), -1).sum(axis=1)
    if complete:
        main = np.abs(explanation.main_effects())
        np.fill_diagonal(strength, main.mean(axis=0).reshape(n_features, -1).sum(axis=1))
    return strength
