"""Restriction of a model's players to the columns that get a value other than zero."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from .._rows.inputs import tested_columns
from ..adapters.ensemble import Ensemble


class Used(NamedTuple):
    """An ensemble whose players are its used columns and the players whose value several of these share.

    Attributes
    ----------
    ensemble : Ensemble
        Ensemble with the same trees and columns of X.
    shared : tuple of tuple of int
        For each player after those that are columns: the positions in ``columns`` of those that share it.
    columns : ndarray of int
        Columns of X that are a player of the trees or share one, ascending.
    """

    ensemble: Ensemble
    shared: tuple[tuple[int, ...], ...]
    columns: np.ndarray


def used_columns(ensemble: Ensemble, n_features: int, shared: Sequence[Sequence[int]]) -> Used:
    """Restrict the players of an ensemble, of which the first ``n_features`` are the columns of X.

    Parameters
    ----------
    ensemble : Ensemble
    n_features : int
    shared : sequence of sequence of int
        As in ``AdaptedModel``.

    Raises
    ------
    ValueError
        The trees use no column.
    """
    player_of = ensemble.player if len(ensemble.player) else np.arange(ensemble.n_features)
    is_used = np.zeros(ensemble.n_players, bool)
    is_used[player_of[tested_columns(ensemble)]] = True
    several = np.flatnonzero(is_used[n_features:])
    members = [list(shared[number]) for number in several.tolist()]
    is_column = is_used[:n_features].copy()
    for of_player in members:
        is_column[of_player] = True
    columns = np.flatnonzero(is_column)
    if not len(columns):
        raise ValueError("columns='used': the model uses no column of X, as it is constant: use 'all'")
    renumbered = np.zeros(ensemble.n_players, np.int32)  # other players have no nodes, whatever their number
    renumbered[columns] = np.arange(len(columns))
    renumbered[n_features + several] = len(columns) + np.arange(len(several))
    return Used(
        replace(ensemble, player=renumbered[player_of]),
        tuple(tuple(renumbered[of_player].tolist()) for of_player in members),
        columns,
    )
