"""Interactions together with their features, outputs, rows and settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from .._rows.gpu_arrays import to_host
from .._rows.origins import Origins
from .._rows.tables import select
from .grouping import group_pairs, grouping_of, require_whole_sums, summed_blocks, summed_pairs
from .values import LabelledValues, column_names, positions, ranking

#: Interaction indices, and the names of their values.
INDEX_NAMES = {
    "SII": "SHAP interaction values",
    "STII": "Shapley-Taylor interaction values",
    "BII": "Banzhaf interaction values",
}


@dataclass(frozen=True, eq=False, repr=False)
class InteractionExplanation(LabelledValues):
    """Interactions of features in some rows, with their features, outputs and row labels.

    If dense (``interactions`` is None), ``values`` hold a symmetric matrix for each row: *half* of a pair's
    index at each of its two places and main effects on the diagonal, so that the rows of a matrix add up to
    SHAP values. Otherwise each pair (or triple) occurs once, with its *whole* index. Either way, the pairs
    and main effects of a row and its base value add up to its margin.

    ``explanation[rows, features, outputs]`` selects from a dense explanation, with features for both axes
    of the matrices; ``explanation[rows, interactions, outputs]`` selects from others, with interactions by
    position or by their names in ``interaction_names``. Otherwise selection works as for
    :class:`Explanation`, and NumPy, too, reads an explanation as its ``values``.

    Attributes
    ----------
    values : array of float32 or float64
        Shape (n_rows, n_features, n_features[, n_outputs]) if dense, otherwise (n_rows,
        n_interactions[, n_outputs]). A NumPy array, or one of the library of X if X was on a GPU.
    base_values : float or ndarray of shape (n_outputs,)
    data : array, sparse matrix, data frame or None
        The rows explained, as the model's last step saw them; X itself, not a copy, unless features were
        selected, as by ``columns="used"``. With ``feature_groups`` of an explainer, an object whose ``rows``
        are these rows, and which NumPy reads as an array of objects, with a text such as "place=north, day=3"
        for each group.
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
        Shapley interaction index, Shapley-Taylor or Banzhaf interaction index. Values of the last do not
        add up, and the diagonal of a dense explanation holds Banzhaf values.
    interactions : ndarray of int32, shape (n_interactions, order), or None
        Features of each pair or triple by position; None if dense.
    strength : ndarray of float64, shape (n_interactions,), or None
        Mean magnitude of each pair over all rows that were explained, summed over all outputs, whatever was
        selected since. Available if the caller did not choose the pairs.
    feature_values : array of shape (n_rows, n_features[, n_outputs]) or None
        SHAP values (Banzhaf values with "BII") of the same rows; available if all pairs that occur are.
    origins : Origins or None
        See :class:`Explanation`; used by :meth:`sum_by`.
    """

    index: str = "SII"
    interactions: np.ndarray | None = None
    strength: np.ndarray | None = None
    feature_values: Any = None
    feature_perturbation: str = "tree_path_dependent"
    origins: Origins | None = None

    _ranked_noun: ClassVar[str] = "features"

    @property
    def order(self) -> int:
        """Number of features that interact: 2 or 3."""
        return 2 if self.interactions is None else self.interactions.shape[1]

    @property
    def interaction_names(self) -> tuple[str, ...]:
        """Names "a x b" of the pairs or triples; if dense, of all pairs without the diagonal."""
        sets = self.interactions
        if sets is None:
            sets = np.column_stack(np.triu_indices(len(self.feature_names), 1))
        return set_names(self.feature_names, sets)

    def __getitem__(self, key: Any) -> InteractionExplanation:
        """Select rows, then features or pairs, then an output.

        Parameters
        ----------
        key : int, slice, array, name or tuple of up to three of these
            Rows by position; features (of a matrix of all pairs) or pairs, and outputs, by position or name.

        Returns
        -------
        InteractionExplanation
            Explanation of what was selected.
        """
        parts = self._key_parts(key)
        rows = positions(parts[0], len(self), None)
        values, names, columns = self.values[rows], self.feature_names, None
        arrays, changes = {}, dict[str, Any]()
        if self.interactions is None:
            columns = positions(parts[1], len(names), names)
            if columns is not None:
                values = values[:, columns][:, :, columns]
                changes |= self._select_features(columns)
        else:
            whole = isinstance(parts[1], slice)  # needs no names, of which there may be many
            sets = positions(parts[1], len(self.interactions), () if whole else self.interaction_names)
            if sets is not None:
                values = values[:, sets]
                strength = None if self.strength is None else self.strength[sets]
                changes |= {
                    "interactions": self.interactions[sets],
                    "strength": strength,
                    "feature_values": None,
                }
            elif self.feature_values is not None:
                arrays["feature_values"] = self.feature_values[rows]
        return replace(
            self,
            data=None if self.data is None else select(self.data, rows, columns),
            row_labels=None if self.row_labels is None else self.row_labels[rows],
            origins=None if self.origins is None else self.origins.select(rows, columns),
            **changes,
            **self._select_outputs(parts[2], {"values": values, **arrays}),
        )

    def sum_by(self, mapping: Mapping[str, Sequence[str]] | str) -> InteractionExplanation:
        """Add up the interactions of features that belong together, such as one-hot columns.

        The interaction of two groups is the sum over all pairs of a feature of the one and a feature of the
        other. Pairs within a group are part of its main effect, besides the main effects of its features. So
        everything still adds up: the rows of a matrix to the sums of SHAP values that
        :meth:`Explanation.sum_by` returns, and a row and its base value to its margin. As there, a sum is in
        general not the interaction index of the groups, which an explainer with ``feature_groups`` computes:
        there, a group is known or unknown as a whole. With index "BII", which does not add up, pairs within a
        group are left out, and the diagonal has sums of Banzhaf values.

        Parameters
        ----------
        mapping : mapping of str to sequence of str, or "input"
            As for :meth:`Explanation.sum_by`. "input" groups the features by the columns of X from which the
            leading steps of a pipeline made them.

        Returns
        -------
        InteractionExplanation
            Explanation of the groups, dense if this one is, otherwise with the pairs of groups that have
            pairs of features, in ascending order. ``strength`` is None; ``data`` is None, or with "input" has
            the columns of X.

        Raises
        ------
        ValueError
            The mapping is invalid, or the columns of X are not known, as for :meth:`Explanation.sum_by`; the
            explanation is of triples; or a sum would be incomplete, because the pairs were chosen: explain
            with ``interactions="occurring"`` or "all" then.

        Examples
        --------
        >>> import pandas as pd
        >>> from sklearn.ensemble import RandomForestRegressor
        >>> from sklearn.pipeline import make_pipeline
        >>> from sklearn.preprocessing import OneHotEncoder
        >>> from skshapgpu import explain_interactions
        >>> X = pd.DataFrame({"color": ["red", "green", "blue"] * 9, "size": ["S", "L", "L"] * 9})
        >>> model = make_pipeline(OneHotEncoder(), RandomForestRegressor(5)).fit(X, range(27))
        >>> explain_interactions(model, X).sum_by("input").interaction_names
        ('color x size',)
        """
        if self.order != 2:
            raise ValueError("interactions of triples cannot be grouped: explain pairs, order=2")
        grouping = grouping_of(mapping, self.feature_names, self.origins, len(self))
        if grouping is None:
            return self
        values = to_host(self.values)
        if self.interactions is None:
            blocks = summed_blocks(values, grouping, self.index != "BII")
            return replace(self, values=blocks, **grouping.facts())
        pairs, place = group_pairs(self.interactions, grouping.of_features())
        if self.feature_values is None:
            require_whole_sums(self.interactions, pairs, place, grouping, self.feature_names)
        of_features = None
        if self.feature_values is not None:
            of_features = grouping.summed(to_host(self.feature_values))
        return replace(
            self,
            values=summed_pairs(values, place, len(pairs)),
            interactions=pairs,
            strength=None,
            feature_values=of_features,
            **grouping.facts(),
        )

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
        """
        means = self.importance()
        if self.interactions is None:
            means = 2 * means[np.triu_indices(len(self.feature_names), 1)]
        return ranking(self.interaction_names, means, n)

    def main_effects(self) -> np.ndarray:
        """Return main effects: each feature's SHAP value minus its share of its interactions.

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
        values, each = to_host(self.values), np.arange(len(self.feature_names))
        if self.interactions is None:
            return values[:, each, each]
        if self.feature_values is None:
            raise ValueError("not all pairs are available: use interactions='occurring' or 'all'")
        of_features = to_host(self.feature_values)
        if self.index == "BII":
            return of_features
        n_pairs = len(self.interactions)
        half = np.full(2 * n_pairs, 0.5, values.dtype)
        pair = np.repeat(np.arange(n_pairs), 2)
        share = sp.csr_array((half, (self.interactions.ravel(), pair)), shape=(len(each), n_pairs))
        outputs = [()] if values.ndim == 2 else list(np.ndindex(values.shape[2:]))
        main = np.empty_like(of_features)
        for output in outputs:
            at = (slice(None), slice(None), *output)
            main[at] = of_features[at] - (share @ values[at].T).T
        return main

    def dense(self) -> InteractionExplanation:
        """Return the explanation in dense form, with a matrix for each row.

        Returns
        -------
        InteractionExplanation
            Its ``values`` are a NumPy array of n_rows · n_features² · n_outputs numbers.

        Raises
        ------
        ValueError
            Not all pairs are available, or the explanation is of triples.
        """
        if self.interactions is None:
            return self
        main, half = self.main_effects(), to_host(self.values) / 2
        n_features = len(self.feature_names)
        values = np.zeros((len(self), n_features, n_features, *half.shape[2:]), half.dtype)
        (first, second), each = self.interactions.T, np.arange(n_features)
        values[:, first, second] = values[:, second, first] = half
        values[:, each, each] = main
        return replace(self, values=values, interactions=None, strength=None, feature_values=None)

    def to_frame(self) -> Any:
        """Return the whole indices as a pandas data frame with the row labels of X.

        Returns
        -------
        pandas.DataFrame of shape (n_rows, n_interactions * n_outputs)
            Columns "a x b", with several outputs "a x b__output". If dense, the main effects come before
            all pairs, so that a row (of one output) adds up to its margin less the base value.
        """
        import pandas as pd

        values, names = to_host(self.values), self.interaction_names
        if self.interactions is None:
            whole = 2 * values[:, *np.triu_indices(len(self.feature_names), 1)]
            values, names = np.concatenate([self.main_effects(), whole], axis=1), self.feature_names + names
        columns = column_names(names, self._several_outputs())
        return pd.DataFrame(values.reshape(len(self), len(columns)), index=self.row_labels, columns=columns)

    @property
    def _value_axes(self) -> int:
        return 3 if self.interactions is None else 2

    def _title(self) -> str:
        return INDEX_NAMES[self.index]

    def _facts(self) -> list[tuple[str, str]]:
        facts = super()._facts()
        if self.interactions is None:
            kept = "all, as matrices"
        else:
            kept = f"{len(self.interactions)}"
        kind = (("pairs", "triples")[self.order - 2], kept)
        perturbation = ("feature perturbation", self.feature_perturbation)
        return [("index", self._title()), *facts[:2], kind, *facts[2:], perturbation]


def set_names(feature_names: Sequence[str], sets: np.ndarray) -> tuple[str, ...]:
    """Return unique names "a x b" of sets of features, given by position.

    If these would collide, because a feature's own name contains " x ", features are named by their
    positions.
    """
    rows = sets.tolist()
    names = tuple(" x ".join(feature_names[i] for i in members) for members in rows)
    if len(set(names)) < len(names):
        names = tuple(" x ".join(map(str, members)) for members in rows)
    return names
