"""Conversion of players' values to values of the columns of X, where several columns form one player.

A player is a set of columns of X whose contributions cannot be separated, such as the columns that a CTR of
CatBoost combines. With S[p, a] = 1/m for each of the m columns a of player p, and 0 elsewhere, values v of
the players become v S. A matrix Phi of interactions whose rows add up to v becomes S' Phi S, whose rows add
up to v S: half of the index of a pair of players is shared among all pairs of a column of the first player
and a column of the second, and the main effect of a player with several columns is shared among all pairs of
its columns, including pairs of a column with itself. Rows of Banzhaf interactions do not add up to v:
therefore only the indices of pairs of players are shared, and the diagonal holds v S.

Arrays have the layouts of ``runs.py``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp

#: Number of values that are converted at once, small enough for the L2 cache.
_TILE_VALUES = 2**17


class Sharing:
    """The columns that share the value of each player: the first players are the ``n_features`` columns of X.

    ``shared`` are the columns of each further player, and ``shares`` the fraction of the player's value that
    each of these columns gets; None: equal fractions. With unequal fractions, only values of players are
    converted, not interactions.
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
            parts[n_features:] = [share for player_shares in shares for share in player_shares]
        by_player = (parts, self.columns, self.starts)
        self._shares = sp.csr_matrix(by_player, (self.n_players, n_features)).T.tocsr()

    def share(self, player_values: np.ndarray, out: np.ndarray) -> None:
        """Write the values of columns, [row][output][column], to ``out``."""
        _apply([(self._shares, player_values)], out)


class PairSharing:
    """The columns that share the interaction of each pair of players.

    ``adds_up`` says whether interactions of a player add up to its value. The attribute ``sets``, int32 of
    shape (n_sets, 2), has the pairs of columns that get a fraction of a value, ascending.
    """

    def __init__(self, sharing: Sharing, pairs: np.ndarray, adds_up: bool) -> None:
        self.n_pairs, self._adds_up, n = len(pairs), adds_up, sharing.n_features
        numbers = np.arange(self.n_pairs)
        first, second = pairs.T.astype(np.int64)
        products = [_products(sharing, numbers, first, second)]
        main_effects = np.empty((3, 0), np.int64), np.empty(0)
        if adds_up:  # a player's main effect is its value minus all its pairs
            players = np.flatnonzero(np.diff(sharing.starts) > 1)
            main_effects = _products(sharing, players, players, players)
            products += [_products(sharing, numbers, side, side, -1.0) for side in (first, second)]
        (source, a, b), weight = (np.concatenate(arrays, axis=-1) for arrays in zip(*products, strict=True))
        (player, own_a, own_b), own_weight = main_effects
        is_pair, is_own_pair = a < b, own_a < own_b
        codes = np.concatenate([(a * n + b)[is_pair], (own_a * n + own_b)[is_own_pair]])
        codes, numbers = np.unique(codes, return_inverse=True)
        self.sets = np.column_stack([codes // n, codes % n]).astype(np.int32).reshape(-1, 2)
        pair_numbers, own_numbers = np.split(numbers, [np.count_nonzero(is_pair)])
        self._pair_matrix = sp.coo_matrix(
            (weight[is_pair], (pair_numbers, source[is_pair])), (len(codes), self.n_pairs)
        ).tocsr()
        self._value_matrix = sp.coo_matrix(
            (own_weight[is_own_pair], (own_numbers, player[is_own_pair])), (len(codes), sharing.n_players)
        ).tocsr()

    def share(
        self,
        player_values: np.ndarray,
        pair_values: np.ndarray,
        values: np.ndarray,
        pairs: np.ndarray | None = None,
        matrices: np.ndarray | None = None,
    ) -> None:
        """Write half of the index of each pair of columns to ``pairs``, and matrices to ``matrices``.

        ``pair_values`` has half of the index of each pair of players; ``values`` has the values of columns.
        """
        if pairs is None:
            pairs = np.empty((*values.shape[:2], len(self.sets)), values.dtype)
        _apply([(self._pair_matrix, pair_values), (self._value_matrix, player_values)], pairs)
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
    """Return all pairs of a column a of player p and a column b of player q, and their S[p, a] S[q, b].

    ``first`` and ``second`` have the players p and q of each item, and ``source`` its number. The first array
    has the rows source, a and b, where a <= b. For two different players, a pair of columns may occur twice.
    For a player with itself, (a, b) and (b, a) are one pair, which occurs once.
    """
    sizes = np.diff(sharing.starts)
    counts = sizes[first] * sizes[second]
    item = np.repeat(np.arange(len(source)), counts)
    within = np.arange(len(item)) - np.repeat(np.cumsum(counts) - counts, counts)
    i, j = np.divmod(within, sizes[second][item])
    a = sharing.columns[sharing.starts[first][item] + i]
    b = sharing.columns[sharing.starts[second][item] + j]
    weight = sign * (sharing.parts[first] * sharing.parts[second])[item]
    is_listed = (first != second)[item] | (i <= j)
    return np.array([source[item], np.minimum(a, b), np.maximum(a, b)])[:, is_listed], weight[is_listed]


def _apply(terms: Sequence[tuple[sp.csr_matrix, np.ndarray]], out: np.ndarray) -> None:
    """Write to ``out`` the sum over all terms of a matrix times the last axis of an array."""
    width = sum(array.shape[1] * array.shape[2] for _, array in terms)
    size = max(1, _TILE_VALUES // max(width, 1))
    for start in range(0, len(out), size):
        rows = slice(start, start + size)
        out_rows = out[rows]
        flat = sum(matrix @ array[rows].reshape(-1, array.shape[2]).T for matrix, array in terms)
        out_rows[...] = flat.T.reshape(out_rows.shape)
