"""Sums of the values of features that belong together, such as the one-hot columns of a category."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from .._common.groups import group_of_each, require_groups
from .._common.positions import read_positions
from .._rows.origins import Origins, summed_by_column

#: Advice for explanations without all pairs.
_ALL_PAIRS = "use interactions='occurring'"


class Grouping(NamedTuple):
    """Groups of features."""

    names: tuple[str, ...]
    #: Positions of the features of each group; every feature is in one group.
    features: tuple[tuple[int, ...], ...]
    data: Any = None  # X itself if the groups are its columns; otherwise None
    origins: Origins | None = None  # origins of the groups

    def facts(self) -> dict[str, Any]:
        """Return the fields of an explanation that describe its features."""
        return {
            "feature_names": self.names,
            "feature_indices": None,
            "group_columns": None,
            "data": self.data,
            "origins": self.origins,
        }

    def summed(self, values: np.ndarray) -> np.ndarray:
        """Sum values (n_rows, n_features, ...) over the features of each group."""
        return summed_by_column(values, self.group_of_feature(), len(self.features))

    def group_of_feature(self) -> np.ndarray:
        """Return the group of each feature."""
        groups = np.empty(sum(map(len, self.features)), np.int32)
        for group, features in enumerate(self.features):
            groups[list(features)] = group
        return groups


def grouping_of(
    mapping: Any, feature_names: Sequence[str], origins: Origins | None, n_rows: int
) -> Grouping | None:
    """Return the groups that the argument of ``sum_by`` describes; None if the features are columns of X.

    Raise ``ValueError`` or ``TypeError`` if the mapping is invalid, or the columns of X from which the
    features were made are not known.
    """
    require_groups("mapping", mapping, "feature")
    if not isinstance(mapping, str):

        def read(group: str, members: Any) -> list[int]:
            return read_positions(f"mapping, {group!r}", members, feature_names, "feature")

        groups = group_of_each("mapping", mapping, feature_names, "feature", read)
        names, features = _members(
            [name if group is None else group for group, name in zip(groups, feature_names)]
        )
        return Grouping(names, features, None, None if origins is None else origins.grouped(features))
    if origins is None:
        return None
    return Grouping(*_members(origins.input_names()), origins.input_data(n_rows))


def require_sum_by(sum_by: Any) -> None:
    """Check the option ``sum_by``, which sums over the columns of X only."""
    if sum_by is not None and sum_by != "input":
        raise ValueError(f"sum_by must be 'input' or None, not {sum_by!r}")


def _members(group_names: Sequence[str]) -> tuple[tuple[str, ...], tuple[tuple[int, ...], ...]]:
    """Return the distinct names of groups, and the positions of the features in each group."""
    members: dict[str, list[int]] = {}
    for feature, group in enumerate(group_names):
        members.setdefault(group, []).append(feature)
    return tuple(members), tuple(map(tuple, members.values()))


def group_pairs(pairs: np.ndarray, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the pairs of different groups to which pairs of features belong, given each feature's group.

    The first array, int32, has the pairs of groups in ascending order. The second, int64, has the row of the
    first for each pair of features; -1 if both features are in the same group.
    """
    ends = np.sort(groups[pairs].reshape(-1, 2), axis=1)
    between = ends[:, 0] != ends[:, 1]
    pairs_of_groups, positions_between = np.unique(ends[between], axis=0, return_inverse=True)
    positions = np.full(len(ends), -1)
    positions[between] = positions_between.ravel()
    return pairs_of_groups.astype(np.int32).reshape(-1, 2), positions


def summed_pairs(values: np.ndarray, positions: np.ndarray, n_group_pairs: int) -> np.ndarray:
    """Sum values (n_rows, n_pairs[, n_outputs]) over the pairs of each pair of groups.

    ``positions`` is the second result of :func:`group_pairs`.
    """
    between = np.flatnonzero(positions >= 0)
    ones = np.ones(len(between), values.dtype)
    adder = sp.csr_array((ones, (positions[between], between)), shape=(n_group_pairs, len(positions)))
    return summed_by_matrix(adder, values)


def summed_by_matrix(matrix: sp.csr_array, values: np.ndarray) -> np.ndarray:
    """Multiply a sparse matrix by the second axis of values (n_rows, n[, n_outputs])."""
    sums = np.empty((len(values), matrix.shape[0], *values.shape[2:]), values.dtype)
    for output in np.ndindex(values.shape[2:]):
        at = (slice(None), slice(None), *output)
        sums[at] = (matrix @ values[at].T).T
    return sums


def require_complete_sums(
    pairs: np.ndarray,
    pairs_of_groups: np.ndarray,
    positions: np.ndarray,
    grouping: Grouping,
    feature_names: Sequence[str],
) -> None:
    """Raise ``ValueError`` if a sum would lack pairs of features.

    ``pairs`` are the pairs of features of the explanation, and ``pairs_of_groups`` and ``positions`` the
    result of :func:`group_pairs`.
    """
    if (positions < 0).any():
        first, second = pairs[np.flatnonzero(positions < 0)[0]].tolist()
        group = next(name for name, features in zip(*grouping[:2]) if first in features)
        raise ValueError(
            f"{feature_names[first]!r} and {feature_names[second]!r} are both in group {group!r}: their "
            f"interaction is part of its main effect, which needs all pairs: {_ALL_PAIRS}"
        )
    present = np.unique(np.column_stack([positions, np.sort(pairs, axis=1)]), axis=0)
    counts = np.bincount(present[:, 0], minlength=len(pairs_of_groups))
    sizes = np.array([len(features) for features in grouping.features])
    expected = sizes[pairs_of_groups].prod(axis=1)
    if (counts < expected).any():
        incomplete = int(np.flatnonzero(counts < expected)[0])
        first, second = (grouping.names[group] for group in pairs_of_groups[incomplete])
        raise ValueError(
            f"the interaction of {first!r} and {second!r} is a sum over {expected[incomplete]} pairs of "
            f"features, of which the explanation has {counts[incomplete]}: {_ALL_PAIRS}"
        )
