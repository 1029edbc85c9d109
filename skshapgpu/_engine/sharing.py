"""Conversion of players' values to values of the columns of X, where several columns form one player.

A player is a set of columns of X whose contributions cannot be separated, like those that a CTR of
CatBoost combines. With S[p, a] = 1/m for each of the m columns a of player p, and 0 elsewhere, values v of
the players become v S. A matrix Phi of interactions whose rows add up to v becomes S' Phi S, whose rows add
up to v S: half of a pair's index is shared among all pairs of a column of one player and a column of the
other, and the main effect of a player with several columns among all pairs of its columns, including pairs
of a column with itself. Rows of Banzhaf interactions do not add up to v: for them, only the indices of pairs
of players are shared, and the diagonal holds v S.

Arrays have the layouts of ``runs.py``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp

#: Number of values that are converted at once, small enough for the L2 cache.
_TILE_VALUES = 2**17


class Sharing:
    """The columns that share the value of each player.

    Parameters
    ----------
    n_features : int
        Number of columns of X, which are the first players.
    shared : sequence of sequences of int
        Columns of each further player.
    shares : sequence of sequences of float or None
        Share of each of these columns. None: equal shares. Only values of players are shared unequally.
    """

    def __init__(
        self,
        n_features: int,
        shared: Sequence[Sequence[int]],
        shares: Sequence[Sequence[float]] | None = None,
    ) -> None:
        self.n_features, self.n_players = n_features, n_features + len(shared)
        sizes = np.array([1] * n_features + [len(columns) for columns in shared])
        self.columns = np.array([*range(n_features), *(c for columns in shared for c in columns)], np.int64)
        self.starts = np.concatenate([[0], np.cumsum(sizes)])
        self.parts = 1 / sizes
        parts = np.repeat(self.parts, sizes)
        if shares is not None:
            parts[n_features:] = [share for of_player in shares for share in of_player]
        by_player = (parts, self.columns, self.starts)
        self._shares = sp.csr_matrix(by_player, (self.n_players, n_features)).T.tocsr()

    def share(self, of_players: np.ndarray, out: np.ndarray) -> None:
        """Write the values of columns, [row][output][column], to ``out``."""
        _apply([(self._shares, of_players)], out)


class PairSharing:
    """The columns that share the interaction of each pair of players.

    Parameters
    ----------
    sharing : Sharing
    pairs : ndarray of int, shape (n_pairs, 2)
        Pairs of players.
    adds_up : bool
        Whether interactions of a player add up to its value.

    Attributes
    ----------
    sets : ndarray of int32, shape (n_sets, 2)
        Pairs of columns that get a part of a value, ascending.
    """

    def __init__(self, sharing: Sharing, pairs: np.ndarray, adds_up: bool) -> None:
        self.n_pairs, self._adds_up, n = len(pairs), adds_up, sharing.n_features
        numbers = np.arange(self.n_pairs)
        first, second = pairs.T.astype(np.int64)
        found = [_products(sharing, numbers, first, second)]
        alone = np.empty((3, 0), np.int64), np.empty(0)
        if adds_up:  # a player's main effect is its value minus all its pairs
            players = np.flatnonzero(np.diff(sharing.starts) > 1)
            alone = _products(sharing, players, players, players)
            found += [_products(sharing, numbers, player, player, -1.0) for player in (first, second)]
        (source, a, b), weight = (np.concatenate(part, axis=-1) for part in zip(*found, strict=True))
        off, off_alone = a < b, alone[0][1] < alone[0][2]
        codes = np.concatenate([(a * n + b)[off], (alone[0][1] * n + alone[0][2])[off_alone]])
        codes, places = np.unique(codes, return_inverse=True)
        self.sets = np.column_stack([codes // n, codes % n]).astype(np.int32).reshape(-1, 2)
        n_off = np.count_nonzero(off)
        self._of_pairs = sp.coo_matrix(
            (weight[off], (places[:n_off], source[off])), (len(codes), self.n_pairs)
        ).tocsr()
        self._of_values = sp.coo_matrix(
            (alone[1][off_alone], (places[n_off:], alone[0][0][off_alone])), (len(codes), sharing.n_players)
        ).tocsr()

    def share(
        self,
        of_players: np.ndarray,
        of_pairs: np.ndarray,
        values: np.ndarray,
        pairs: np.ndarray | None = None,
        matrices: np.ndarray | None = None,
    ) -> None:
        """Write pairs of columns, halved like pairs of players, and matrices; ``values`` are per column."""
        if pairs is None:
            pairs = np.empty((*values.shape[:2], len(self.sets)), values.dtype)
        _apply([(self._of_pairs, of_pairs), (self._of_values, of_players)], pairs)
        if matrices is None:
            return
        matrices[...] = 0
        first, second = self.sets.T
        matrices[:, :, first, second] = matrices[:, :, second, first] = pairs
        diagonal = np.einsum("roaa->roa", matrices)
        diagonal[...] = values - matrices.sum(axis=3) if self._adds_up else values


def _products(
    sharing: Sharing, source: np.ndarray, first: np.ndarray, second: np.ndarray, sign: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Return source, two columns in ascending order, and S[p, a] S[q, b] for all columns of pairs.

    For two different players, a pair of columns may occur twice. For a player with itself, (a, b) and (b, a)
    are one pair, which occurs once.
    """
    sizes = np.diff(sharing.starts)
    counts = sizes[first] * sizes[second]
    each = np.repeat(np.arange(len(source)), counts)
    within = np.arange(len(each)) - np.repeat(np.cumsum(counts) - counts, counts)
    i, j = np.divmod(within, sizes[second][each])
    a = sharing.columns[sharing.starts[first][each] + i]
    b = sharing.columns[sharing.starts[second][each] + j]
    weight = sign * (sharing.parts[first] * sharing.parts[second])[each]
    kept = (first != second)[each] | (i <= j)
    return np.array([source[each], np.minimum(a, b), np.maximum(a, b)])[:, kept], weight[kept]


def _apply(terms: Sequence[tuple[sp.csr_matrix, np.ndarray]], out: np.ndarray) -> None:
    """Write to ``out`` the sum over all terms of a matrix times the last axis of an array."""
    width = sum(array.shape[1] * array.shape[2] for _, array in terms)
    size = max(1, _TILE_VALUES // max(width, 1))
    for start in range(0, len(out), size):
        rows = slice(start, start + size)
        part = out[rows]
        flat = sum(matrix @ array[rows].reshape(-1, array.shape[2]).T for matrix, array in terms)
        part[...] = flat.T.reshape(part.shape)
