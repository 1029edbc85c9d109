"""Shapley values, Banzhaf values and interactions from the value of every coalition, by their definitions.

``worth[mask, ...]`` is the value of the coalition whose members are the bits set in ``mask``; all axes after
the first are kept. Nothing here depends on trees or comes from the package.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from math import comb, factorial

import numpy as np


def n_players(worth: np.ndarray) -> int:
    return len(worth).bit_length() - 1


def _sizes(masks: np.ndarray) -> np.ndarray:
    return np.array([int(mask).bit_count() for mask in masks])


def differences(worth: np.ndarray, players: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Compute the discrete derivative by the players at coalitions without them, and the sizes of these."""
    masks = np.arange(len(worth))
    together = sum(1 << i for i in players)
    without = masks[masks & together == 0]
    total = np.zeros_like(worth[without])
    for size in range(len(players) + 1):
        for known in combinations(players, size):
            total += (-1.0) ** (len(players) - size) * worth[without | sum(1 << i for i in known)]
    return total, _sizes(without)


def weighted(worth: np.ndarray, players: tuple[int, ...], weight: Callable[[int], float]) -> np.ndarray:
    """Sum weight(|S|) times the derivative at S over all coalitions S without the players."""
    gains, sizes = differences(worth, players)
    return np.tensordot(np.array([weight(int(size)) for size in sizes]), gains, axes=1)


def shapley_index(worth: np.ndarray, players: tuple[int, ...]) -> np.ndarray:
    """Compute the Shapley interaction index of the players; for one player, its Shapley value."""
    n, k = n_players(worth), len(players)
    return weighted(worth, players, lambda s: factorial(s) * factorial(n - s - k) / factorial(n - k + 1))


def banzhaf_index(worth: np.ndarray, players: tuple[int, ...]) -> np.ndarray:
    n, k = n_players(worth), len(players)
    return weighted(worth, players, lambda s: 0.5 ** (n - k))


def taylor_index(worth: np.ndarray, players: tuple[int, ...]) -> np.ndarray:
    """Compute the Shapley-Taylor index of order 2; for one player, the value of its own coalition."""
    n = n_players(worth)
    if len(players) == 1:
        return worth[1 << players[0]] - worth[0]
    return weighted(worth, players, lambda s: 2 / n / comb(n - 1, s))


INDICES = {"SII": shapley_index, "STII": taylor_index, "BII": banzhaf_index}


def values(worth: np.ndarray, index: str = "SV") -> np.ndarray:
    """Compute Shapley or Banzhaf values: the axis of the players is the second."""
    of = {"SV": shapley_index, "BV": banzhaf_index}[index]
    parts = [of(worth, (i,)) for i in range(n_players(worth))]
    return np.stack(parts, axis=1) if parts else np.zeros((worth.shape[1], 0, *worth.shape[2:]))


def sets(worth: np.ndarray, members: list[tuple[int, ...]], index: str) -> np.ndarray:
    """Compute whole indices of some pairs or triples: their axis is the second."""
    parts = [INDICES[index](worth, tuple(players)) for players in members]
    return np.stack(parts, axis=1) if parts else np.zeros((worth.shape[1], 0, *worth.shape[2:]))


def matrices(worth: np.ndarray, index: str) -> np.ndarray:
    """Put half of each pair's index at both of its places, and main effects on the diagonal."""
    n = n_players(worth)
    found = np.zeros((worth.shape[1], n, n, *worth.shape[2:]))
    for i, j in combinations(range(n), 2):
        found[:, i, j] = found[:, j, i] = INDICES[index](worth, (i, j)) / 2
    for i in range(n):
        if index == "SII":
            found[:, i, i] = shapley_index(worth, (i,)) - found[:, i].sum(axis=1)
        else:
            found[:, i, i] = INDICES[index](worth, (i,))
    return found
