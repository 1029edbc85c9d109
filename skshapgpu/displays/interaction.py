"""Heat map of interactions of pairs of features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from .._common.checks import checks_options, require_bool, require_options, with_article
from .._common.types import ExplainerOptions, InteractionIndex, Model, Table, Values, lists_options
from .._explanations.interactions import InteractionExplanation
from ..explainer import as_explainer
from . import base
from .room import fit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage
    from matplotlib.text import Text

#: Width and height of a cell, in inches; of a cell with a number.
_CELL, _WIDE_CELL = 0.32, 0.55

#: Maximum number of features with numbers in their cells.
_MOST_WITH_NUMBERS = 8

#: Colour of the cells of pairs that were not computed.
_UNKNOWN = "0.9"


class ShapInteractionDisplay:
    """Heat map of mean interactions: how strongly pairs of features act together.

    Create one with :meth:`from_explanation` or :meth:`from_estimator`. A cell off the diagonal shows the
    mean magnitude of a pair's interaction index. A cell on the diagonal shows the mean magnitude of a
    feature's main effect or, with the Banzhaf index, of its Banzhaf value. Colours follow the square root,
    because main effects are often much larger than interactions. With up to 8 features, the numbers are in
    the cells. If the caller chose the pairs, the cells of all other pairs are grey, and so is the diagonal:
    they were not computed. :meth:`InteractionExplanation.matrices` has 0 for these pairs, and NaN on the
    diagonal.

    Parameters
    ----------
    matrix : ndarray of float64, shape (n_features, n_features)
        Mean magnitudes of all pairs of features. NaN: not computed.
    feature_names : sequence of str of length n_features
        Names of the features.
    label : str
        Name of the magnitudes; by default ``mean |interaction|``.
    error : float, default=0
        Magnitudes up to this are due to rounding, and are shown as 0.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    image_ : matplotlib AxesImage
        The heat map.
    texts_ : list of matplotlib Text
        The numbers in the cells, row by row.

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
    texts_: list[Text]

    def __init__(
        self,
        matrix: Values,
        feature_names: Sequence[str],
        *,
        label: str = "mean |interaction|",
        error: float = 0.0,
    ) -> None:
        self.matrix = matrix
        self.feature_names = feature_names
        self.label = label
        self.error = error

    @checks_options
    def plot(
        self,
        *,
        ax: Axes | None = None,
        max_features: int | None = 20,
        cmap: str | Colormap | None = None,
        colorbar: bool = True,
        diagonal: bool = True,
    ) -> ShapInteractionDisplay:
        """Draw the chart.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            Axes to draw on; None creates a new figure.
        max_features : int or None, default=20
            Number of features to draw: the features with the largest sums of main effects and interactions,
            the largest sum first. Features of which nothing was computed are left out. None draws all
            features.
        cmap : str, matplotlib Colormap or None, default=None
            Colours from the smallest to the largest magnitude. None draws them from blue to orange.
        colorbar : bool, default=True
            Whether to draw the scale of the colours.
        diagonal : bool, default=True
            Whether to draw the main effects. Without them, the colours resolve the interactions better.

        Returns
        -------
        ShapInteractionDisplay
            The display itself.
        """
        base.pyplot()
        from matplotlib.colors import PowerNorm

        require_bool("colorbar", colorbar)
        require_bool("diagonal", diagonal)
        shown = self._shown(max_features, diagonal)
        names = [base.short(self.feature_names[i]) for i in shown]
        matrix = np.array(self.matrix[np.ix_(shown, shown)], np.float64)
        is_unknown = np.isnan(matrix)
        if not diagonal:
            np.fill_diagonal(matrix, np.nan)
            np.fill_diagonal(is_unknown, False)
        has_numbers = len(names) <= _MOST_WITH_NUMBERS
        ax, size = _square_axes(ax, names, _WIDE_CELL if has_numbers else _CELL)
        largest = float(np.nanmax(matrix)) if np.isfinite(matrix).any() else 0.0
        scale = PowerNorm(0.5, vmin=0, vmax=largest or 1.0)
        self.image_ = ax.imshow(np.ma.masked_invalid(matrix), cmap=base.colormap(cmap), norm=scale)
        ax.set_xticks(range(len(names)), names, rotation=90, fontsize=size, parse_math=False)
        ax.set_yticks(range(len(names)), names, fontsize=size, parse_math=False)
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
        if is_unknown.any():
            _mark_unknown(ax, is_unknown)
        self.ax_, self.figure_ = ax, base.figure_of(ax)
        if colorbar:
            base.colorbar(ax, self.image_, f"{self.label}\n(square-root scale)")
        fit(ax)
        self.texts_ = self._add_numbers(matrix, size) if has_numbers else []
        return self

    def _shown(self, max_features: int | None, diagonal: bool) -> np.ndarray:
        """Return the positions of the features to draw, the strongest first."""
        matrix = np.array(self.matrix, np.float64)
        if not diagonal:
            np.fill_diagonal(matrix, np.nan)
        is_known = ~np.isnan(matrix)
        shown, _ = base.ranked(np.nan_to_num(matrix).sum(axis=0), max_features)
        if max_features is None:
            return shown
        return shown[is_known[:, shown].sum(axis=0) > 0] if is_known.any() else shown

    def _add_numbers(self, matrix: np.ndarray, size: float) -> list[Text]:
        """Write the numbers into the cells, black on light colours and white on dark colours."""
        texts = []
        for row, column in np.argwhere(np.isfinite(matrix)).tolist():
            value = matrix[row, column]
            red, green, blue, _ = self.image_.to_rgba(value)
            color = "black" if 0.3 * red + 0.59 * green + 0.11 * blue > 0.6 else "white"
            number = base.numeral(value, error=self.error)
            style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 0.9 * size, "color": color}
            texts.append(self.ax_.text(column, row, number, **style))
        return texts

    @classmethod
    @checks_options
    def from_explanation(
        cls,
        explanation: InteractionExplanation,
        *,
        max_features: int | None = 20,
        output: str | int | None = None,
        ax: Axes | None = None,
        cmap: str | Colormap | None = None,
        colorbar: bool = True,
        diagonal: bool = True,
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
        ax, cmap, colorbar, diagonal
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
        display = cls(
            _strength(explanation),
            explanation.feature_names,
            label=base.with_unit("mean |interaction|", explanation),
            error=base.resolution(explanation),
        )
        return display.plot(ax=ax, max_features=max_features, cmap=cmap, colorbar=colorbar, diagonal=diagonal)

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
        diagonal: bool = True,
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
        max_features, output, ax, cmap, colorbar, diagonal
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
            explanation,
            max_features=max_features,
            output=output,
            ax=ax,
            cmap=cmap,
            colorbar=colorbar,
            diagonal=diagonal,
        )


def _square_axes(ax: Axes | None, names: Sequence[str], cell: float) -> tuple[Axes, float]:
    """Return axes for a row and a column for each name, and the size of a font that fits into a cell."""
    letters = base.LETTER * max(map(len, names))
    if ax is None:
        side = min(max(3.2, cell * len(names)) + letters, base.LARGEST)
        ax = base.new_axes(side + 1.4, side)
        cells = side - letters
    else:
        box = ax.get_window_extent()
        cells = min(box.width, box.height) / ax.figure.dpi
    usual_size = float(base.pyplot().rcParams["font.size"])
    return ax, min(usual_size, 0.75 * 72 * cells / len(names))


def _mark_unknown(ax: Axes, is_unknown: np.ndarray) -> None:
    """Draw the cells of pairs that were not computed in grey, and say so above the axes."""
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    cells = np.ma.masked_where(~is_unknown, np.zeros(is_unknown.shape))
    ax.imshow(cells, cmap=ListedColormap([_UNKNOWN]))
    ax.legend(
        [Patch(color=_UNKNOWN)],
        ["not computed"],
        loc="lower right",
        bbox_to_anchor=(1, 1),
        frameon=False,
        borderpad=0,
        borderaxespad=0.3,
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
