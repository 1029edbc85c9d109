"""Interactions together with their features, outputs, rows and settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from .._common.indices import INDICES
from .._common.types import ColumnNames, Values
from .._rows.gpu_arrays import to_host
from .._rows.origins import Origins
from .._rows.tables import select
from .grouping import group_pairs, grouping_of, require_complete_sums, summed_by_matrix, summed_pairs
from .selection import positions
from .values import LabelledValues, ranking

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True, eq=False, repr=False)
class InteractionExplanation(LabelledValues):
    """Interactions of features in some rows, with their features, outputs and row labels.

    Its attributes and methods are public; its constructor is private.

    Each pair (or triple) is listed once, and its value is its whole interaction index. The values of all
    pairs, the :meth:`main_effects` and the base value add up to the margin of the row. :meth:`matrices`
    returns the same pairs as symmetric matrices, in which each of the two entries of a pair is half of its
    index.

    ``explanation[rows, interactions, outputs]`` selects, with interactions by position or by their names in
    ``interaction_names``. Otherwise selection works as for :class:`Explanation`, and NumPy, too, reads an
    explanation as its ``values``.

    Attributes
    ----------
    values : array of float32 or float64, shape (n_rows, n_interactions[, n_outputs])
        Whole interaction indices. A NumPy array, or one of the library of X if X was on a GPU.
    base_values : float or ndarray of shape (n_outputs,)
    data : array, sparse matrix, data frame or None
        The rows explained, as the model's last step saw them; X itself, not a copy, unless features were
        selected, as by ``columns="used"``. With ``feature_groups`` of an explainer, an object whose ``rows``
        are these rows, and which NumPy reads as an array of strings such as "place=north, day=3", one for
        each group.
    feature_names : tuple of str
    output_names : tuple or None
        Class labels or target names; None when the model has one output.
    row_labels : pandas.Index or None
        Row labels of the pandas data frame that was explained.
    precision, device, seconds, additivity_error, feature_indices, group_columns, feature_perturbation, unit
        See :class:`Explanation`.
    checked_against, check_note
        See :class:`Explanation`.
    index : {"SII", "STII", "BII"}
        Shapley interaction index, Shapley-Taylor or Banzhaf interaction index. Banzhaf interaction values
        do not add up to the margin.
    interactions : ndarray of int32, shape (n_interactions, order)
        Positions of the features of each pair or triple.
    strength : ndarray of float64, shape (n_interactions,), or None
        Mean magnitude of each pair over all rows that were explained, summed over all outputs. A selection
        of rows or outputs does not change it. None if the caller chose the pairs.
    single_values : array of shape (n_rows, n_features[, n_outputs]) or None
        SHAP values (Banzhaf values with "BII") of the same rows; None unless the explanation has all pairs
        that occur.
    origins : Origins or None
        See :class:`Explanation`; used by :meth:`sum_by`.
    """

    index: str = "SII"
    interactions: npt.NDArray[np.int32] = field(kw_only=True)
    strength: npt.NDArray[np.float64] | None = None
    single_values: Values | None = None
    feature_perturbation: str = "tree_path_dependent"
    origins: Origins | None = None

    _ranked_noun: ClassVar[str] = "features"

    @property
    def order(self) -> int:
        """Number of features that interact: 2 or 3."""
        return self.interactions.shape[1]

    @property
    def interaction_names(self) -> tuple[str, ...]:
        """Names "a x b" of the pairs, or "a x b x c" of the triples."""
        return set_names(self.feature_names, self.interactions)

    def __getitem__(self, key: Any) -> InteractionExplanation:
        """Select rows, then pairs or triples, then an output.

        Parameters
        ----------
        key : int, slice, array, name or tuple of up to three of these
            Rows by position; pairs or triples, and outputs, by position or name.

        Returns
        -------
        InteractionExplanation
            Explanation of what was selected.
        """
        parts = self._key_parts(key)
        rows = positions(parts[0], len(self), None)
        arrays: dict[str, Any] = {"values": self.values[rows]}
        changes: dict[str, Any] = {}
        is_slice = isinstance(parts[1], slice)  # a slice needs no names, of which there may be many
        names = () if is_slice else self.interaction_names
        sets = positions(parts[1], len(self.interactions), names, "interaction")
        if sets is not None:
            arrays["values"] = arrays["values"][:, sets]
            changes = {
                "interactions": self.interactions[sets],
                "strength": None if self.strength is None else self.strength[sets],
                "single_values": None,
            }
        elif self.single_values is not None:
            arrays["single_values"] = self.single_values[rows]
        return replace(
            self,
            data=None if self.data is None else select(self.data, rows, None),
            row_labels=None if self.row_labels is None else self.row_labels[rows],
            origins=None if self.origins is None else self.origins.select(rows, None),
            **changes,
            **self._select_outputs(parts[2], arrays),
        )

    def sum_by(self, mapping: Mapping[str, ColumnNames] | Literal["input"]) -> InteractionExplanation:
        """Add up the interactions of features that belong together, such as one-hot columns.

        The interaction of two groups is the sum over all pairs of a feature of the one and a feature of the
        other. The main effect of a group is the sum of the main effects of its features and of the pairs
        within the group. So sums still add up: a row of :meth:`matrices` adds up to a value of
        :meth:`Explanation.sum_by`, and pairs, main effects and base value add up to the margin. A sum is in
        general not the interaction index of the groups. An explainer with ``feature_groups`` computes that
        index: it treats a group as known or unknown as a whole. With index "BII", which does not add up,
        pairs within a group are left out, and main effects are sums of Banzhaf values.

        Parameters
        ----------
        mapping : mapping of str to sequence of str, or "input"
            As for :meth:`Explanation.sum_by`. "input" groups the features by the columns of X from which the
            leading steps of a pipeline made them.

        Returns
        -------
        InteractionExplanation
            Explanation of the pairs of groups that have pairs of features, in ascending order. ``strength``
            is None; ``data`` is None, or with "input" has the columns of X.

        Raises
        ------
        ValueError
            The mapping is invalid, or the columns of X are not known, as for :meth:`Explanation.sum_by`; the
            explanation is of triples; or a sum would be incomplete because the caller chose the pairs. Then
            explain with ``interactions="occurring"``.

        Examples
        --------
        >>> import pandas as pd
        >>> from sklearn.ensemble import RandomForestRegressor
        >>> from sklearn.pipeline import make_pipeline
        >>> from sklearn.preprocessing import OneHotEncoder
        >>> from skshapgpu import explain_interactions
        >>> X = pd.DataFrame({"color": ["red", "green", "blue"] * 9, "size": ["S"] * 13 + ["L"] * 14})
        >>> forest = RandomForestRegressor(5, random_state=0)
        >>> model = make_pipeline(OneHotEncoder(), forest).fit(X, range(27))
        >>> explain_interactions(model, X).sum_by("input").interaction_names
        ('color x size',)
        """
        if self.order != 2:
            raise ValueError("interactions of triples cannot be grouped: explain pairs, order=2")
        grouping = grouping_of(mapping, self.feature_names, self.origins, len(self))
        if grouping is None:
            return self
        values = to_host(self.values)
        pairs, positions_of_sums = group_pairs(self.interactions, grouping.group_of_feature())
        if self.single_values is None:
            require_complete_sums(self.interactions, pairs, positions_of_sums, grouping, self.feature_names)
        single_values = None
        if self.single_values is not None:
            single_values = grouping.summed(to_host(self.single_values))
        return replace(
            self,
            values=summed_pairs(values, positions_of_sums, len(pairs)),
            interactions=pairs,
            strength=None,
            single_values=single_values,
            **grouping.facts(),
        )

    def _second_names(self) -> Sequence[str]:
        return self.interaction_names

    def strongest(self, n: int = 10) -> list[tuple[str, float]]:
        """Return the pairs (or triples) with the largest mean magnitude over the rows.

        Parameters
        ----------
        n : int, default=10
            Number of interactions.

        Returns
        -------
        list of (str, float)
            Name and mean magnitude of the whole index, summed over the outputs, the strongest first.

        Raises
        ------
        ValueError, TypeError
            ``n`` is not an int from 1 on.
        """
        return ranking(self.interaction_names, self.importance(), n)

    def main_effects(self) -> Values:
        """Return main effects: a feature's SHAP value minus half of each of its interactions.

        Returns
        -------
        ndarray of float32 or float64, shape (n_rows, n_features[, n_outputs])
            A NumPy array; Banzhaf values with "BII".

        Raises
        ------
        ValueError
            Not all pairs are available, or the explanation is of triples.
        """
        if self.order != 2:
            raise ValueError("main effects need interactions of pairs; these are triples")
        if self.single_values is None:
            raise ValueError("not all pairs are available: use interactions='occurring'")
        values, single_values = to_host(self.values), to_host(self.single_values)
        if not INDICES[self.index].adds_up:
            return single_values
        n_pairs, n_features = len(self.interactions), len(self.feature_names)
        half = np.full(2 * n_pairs, 0.5, values.dtype)
        pair = np.repeat(np.arange(n_pairs), 2)
        halves = sp.csr_array((half, (self.interactions.ravel(), pair)), shape=(n_features, n_pairs))
        return single_values - summed_by_matrix(halves, values)

    def matrices(self) -> Values:
        """Return the pairs as a symmetric matrix for each row and output, in the convention of shap.

        Each of the two entries of a pair is half of its interaction index. Pairs that the explanation does
        not list have zeros. The diagonal has the :meth:`main_effects`, so that each row of a matrix of "SII"
        or "STII" adds up to a SHAP value. If the caller chose the pairs, by a number or a list, main effects
        are unknown, and the diagonal is NaN.

        Returns
        -------
        ndarray of float32 or float64, shape (n_rows, n_features, n_features[, n_outputs])
            A NumPy array.

        Raises
        ------
        ValueError
            The explanation is of triples.

        See Also
        --------
        TreeExplainer.shap_interaction_values : Compute the matrices of "SII" without a list of pairs.
        """
        if self.order != 2:
            raise ValueError("matrices hold interactions of pairs; these are triples")
        halves, features = to_host(self.values) / 2, np.arange(len(self.feature_names))
        shape = (len(self), len(features), len(features), *halves.shape[2:])
        matrices = np.zeros(shape, halves.dtype)
        first, second = self.interactions.T
        matrices[:, first, second] = matrices[:, second, first] = halves
        matrices[:, features, features] = np.nan if self.single_values is None else self.main_effects()
        return matrices

    def to_frame(self) -> DataFrame:
        """Return the whole indices as a pandas data frame with the row labels of X.

        Returns
        -------
        pandas.DataFrame of shape (n_rows, n_interactions * n_outputs)
            Columns "a x b", with several outputs "a x b__output".
        """
        return self._frame()

    def _facts(self) -> list[tuple[str, str]]:
        facts = super()._facts()
        count = (("pairs", "triples")[self.order - 2], f"{len(self.interactions)}")
        perturbation = ("feature perturbation", self.feature_perturbation)
        return [("index", self._title()), *facts[:2], count, *facts[2:], perturbation]


def set_names(feature_names: Sequence[str], sets: np.ndarray) -> tuple[str, ...]:
    """Return unique names "a x b" of sets of features, which are given by their positions.

    If two names would be equal because a feature's own name contains " x ", features are named by their
    positions.
    """
    position_lists = sets.tolist()
    names = tuple(" x ".join(feature_names[i] for i in members) for members in position_lists)
    if len(set(names)) < len(names):
        names = tuple(" x ".join(map(str, members)) for members in position_lists)
    return names
