"""Shapley values, Banzhaf values and interactions from the value of every coalition, by their definitions.

``coalition_values[mask, ...]`` is the value of the coalition whose members are the bits set in ``mask``;
results keep all axes after the first. Nothing in this module depends on trees or comes from the package.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from math import comb, factorial

import numpy as np


def n_players(coalition_values: np.ndarray) -> int:
    return len(coalition_values).bit_length() - 1


def _sizes(masks: np.ndarray) -> np.ndarray:
    return np.array([int(mask).bit_count() for mask in masks])


def differences(coalition_values: np.ndarray, players: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Compute the discrete derivative by the players at each coalition of the others, and coalition sizes."""
    masks = np.arange(len(coalition_values))
    together = sum(1 << i for i in players)
    without = masks[masks & together == 0]
    total = np.zeros_like(coalition_values[without])
    for size in range(len(players) + 1):
        for subset in combinations(players, size):
            total += (-1.0) ** (len(players) - size) * coalition_values[without | sum(1 << i for i in subset)]
    return total, _sizes(without)


def weighted(
    coalition_values: np.ndarray, players: tuple[int, ...], weight: Callable[[int], float]
) -> np.ndarray:
    """Sum weight(|S|) times the derivative at S over all coalitions S of the other players."""
    gains, sizes = differences(coalition_values, players)
    return np.tensordot(np.array([weight(int(size)) for size in sizes]), gains, axes=1)


def shapley_index(coalition_values: np.ndarray, players: tuple[int, ...]) -> np.ndarray:
    """Compute the Shapley interaction index of the players; for one player, this is its Shapley value."""
    n, k = n_players(coalition_values), len(players)
    return weighted(
        coalition_values, players, lambda s: factorial(s) * factorial(n - s - k) / factorial(n - k + 1)
    )


def banzhaf_index(coalition_values: np.ndarray, players: tuple[int, ...]) -> np.ndarray:
    n, k = n_players(coalition_values), len(players)
    return weighted(coalition_values, players, lambda s: 0.5 ** (n - k))


def taylor_index(coalition_values: np.ndarray, players: tuple[int, ...]) -> np.ndarray:
    """Compute the Shapley-Taylor index of order 2; for one player, it is the value of its own coalition."""
    n = n_players(coalition_values)
    if len(players) == 1:
        return coalition_values[1 << players[0]] - coalition_values[0]
    return weighted(coalition_values, players, lambda s: 2 / n / comb(n - 1, s))


INDICES = {"SII": shapley_index, "STII": taylor_index, "BII": banzhaf_index}


def values(coalition_values: np.ndarray, index: str = "SV") -> np.ndarray:
    """Compute Shapley or Banzhaf values; the players are the second axis."""
    of = {"SV": shapley_index, "BV": banzhaf_index}[index]
    parts = [of(coalition_values, (i,)) for i in range(n_players(coalition_values))]
    return (
        np.stack(parts, axis=1)
        if parts
        else np.zeros((coalition_values.shape[1], 0, *coalition_values.shape[2:]))
    )


def of_groups(coalition_values: np.ndarray, groups: list[list[int]]) -> np.ndarray:
    """Select the values of coalitions in which each group of players is known or unknown as a whole."""
    members = [sum(1 << i for i in group) for group in groups]
    together = [
        sum(members[g] for g in range(len(groups)) if mask >> g & 1) for mask in range(2 ** len(groups))
    ]
    return coalition_values[together]


def owen_values(coalition_values: np.ndarray, groups: list[list[int]]) -> np.ndarray:
    """Compute the Owen values of the players, on the second axis; each player is in one group.

    The weight of a coalition is the probability that exactly its members come before the player in a random
    order. Only orders in which the players of a group follow one another are drawn.
    """
    n, m = n_players(coalition_values), len(groups)
    members = [sum(1 << i for i in group) for group in groups]
    total = np.zeros((coalition_values.shape[1], n, *coalition_values.shape[2:]))
    for g, group in enumerate(groups):
        others = [members[h] for h in range(m) if h != g]
        for i in group:
            others_in_group = [j for j in group if j != i]
            for k in range(m):
                for before in combinations(others, k):
                    share = factorial(k) * factorial(m - k - 1) / factorial(m)
                    for s in range(len(group)):
                        weight = factorial(s) * factorial(len(others_in_group) - s) / factorial(len(group))
                        for within in combinations(others_in_group, s):
                            mask = sum(before) + sum(1 << j for j in within)
                            gain = coalition_values[mask | 1 << i] - coalition_values[mask]
                            total[:, i] += share * weight * gain
    return total


def sets(coalition_values: np.ndarray, members: list[tuple[int, ...]], index: str) -> np.ndarray:
    """Compute whole indices of some pairs or triples, which are the second axis."""
    parts = [INDICES[index](coalition_values, tuple(players)) for players in members]
    return (
        np.stack(parts, axis=1)
        if parts
        else np.zeros((coalition_values.shape[1], 0, *coalition_values.shape[2:]))
    )


def matrices(coalition_values: np.ndarray, index: str) -> np.ndarray:
    """Compute matrices with half of a pair's index at both of its places, main effects on the diagonal."""
    n = n_players(coalition_values)
    result = np.zeros((coalition_values.shape[1], n, n, *coalition_values.shape[2:]))
    for i, j in combinations(range(n), 2):
        result[:, i, j] = result[:, j, i] = INDICES[index](coalition_values, (i, j)) / 2
    for i in range(n):
        if index == "SII":
            result[:, i, i] = shapley_index(coalition_values, (i,)) - result[:, i].sum(axis=1)
        else:
            result[:, i, i] = INDICES[index](coalition_values, (i,))
    return result
