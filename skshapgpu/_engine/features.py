"""Features of the results: all columns that the model receives, those that it uses, or groups of them.

They are the first players of the game that the trees are compiled for. A group is one player: its columns are
known or unknown together, and it gets one value. That value is not the sum of the values of its columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from .._common.distinct import distinct_numbers
from .._common.groups import group_of_each
from .._common.positions import is_integer, read_positions
from .._rows.columns import GroupedRows
from .._rows.origins import Origins
from .._rows.pipelines import unique
from .._rows.tables import select
from ..adapters.ensemble import Ensemble, tested_columns
from ..adapters.schema import AdaptedModel


class Group(NamedTuple):
    """Columns that form one feature: their positions, ascending, and a name, or None for a single column."""

    name: str | None
    columns: tuple[int, ...]


class Game(NamedTuple):
    """An ensemble whose first players are the features of the results."""

    ensemble: Ensemble  # the trees and columns of the model
    #: For each player after the features: the features that share its value evenly.
    shared: tuple[tuple[int, ...], ...]


class TwoLevelGame(NamedTuple):
    """The game of Owen values.

    Features are players. For features of other groups, all players of a group are known or unknown together.
    """

    game: Game  # its first players are single columns
    groups: np.ndarray  # int32: number of the group of each player, from 0 on
    #: For each player after the columns: the fraction of its value that each of its columns gets.
    shares: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, eq=False)
class Features:
    """The features of the results."""

    groups: tuple[Group, ...] | None = None  # columns of each feature; None: features are single columns
    columns: np.ndarray | None = None  # column of each feature; None: the features are all columns, or groups
    #: Whether each group has the columns that the steps of a pipeline made from one column of X.
    by_input: bool = False

    @property
    def group_columns(self) -> tuple[tuple[int, ...], ...] | None:
        """Columns of each group; None without groups."""
        return None if self.groups is None else tuple(group.columns for group in self.groups)

    def feature_of_column(self, n_columns: int) -> np.ndarray:
        """Return the feature that each column belongs to; -1 for a column of no feature."""
        feature_of_column = np.full(n_columns, -1)
        if self.groups is not None:
            for feature, (_, columns) in enumerate(self.groups):
                feature_of_column[list(columns)] = feature
        elif self.columns is None:
            feature_of_column = np.arange(n_columns)
        else:
            feature_of_column[self.columns] = np.arange(len(self.columns))
        return feature_of_column

    def names(self, column_names: tuple[str, ...]) -> tuple[str, ...]:
        """Return the names of the features, given the names of all columns."""
        if self.groups is not None:
            names = [column_names[columns[0]] if name is None else name for name, columns in self.groups]
            return tuple(unique(names))
        return column_names if self.columns is None else tuple(column_names[i] for i in self.columns)

    def data(
        self, all_columns: Any, column_names: tuple[str, ...], origins: Origins | None, n_rows: int
    ) -> Any:
        """Return the columns of the features, in groups if there are any.

        If each group was made from one column of X, and X is known, the columns are columns of X.
        ``all_columns`` has all columns that the model receives, and ``origins`` is a result of
        :meth:`origins`.
        """
        if self.group_columns is not None:
            inputs = origins.input_data(n_rows) if self.by_input and origins is not None else None
            return GroupedRows(all_columns, self.group_columns, column_names) if inputs is None else inputs
        return all_columns if self.columns is None else select(all_columns, slice(None), self.columns)

    def origins(self, column_origins: Origins | None) -> Origins | None:
        """Return the columns of X from which the features were made, given the origins of all columns."""
        if column_origins is None or column_origins.columns is None:
            return column_origins
        if self.groups is not None:
            return column_origins.grouped([group.columns for group in self.groups])
        return column_origins if self.columns is None else column_origins.select(slice(None), self.columns)


def read_groups(
    groups: Any, names: Sequence[str], origins: Origins | None, *, blank_as_underscore: bool = False
) -> tuple[Group, ...]:
    """Return all features as groups, in the order of their first columns.

    ``groups`` is "input", or has the columns of each group, by name, or by position in X: a position stands
    for the column that the steps made from this column of X alone. Columns in no group are features of their
    own. ``names`` are the names of all columns, and ``origins`` the columns of X from which the steps of a
    pipeline made them, None without steps. With ``blank_as_underscore``, the model may have underscores where
    the names in training had blanks.

    Raise ``ValueError`` or ``TypeError`` if a group is invalid, names an unknown column, or has a column in
    common with another group; or, for "input", there are no steps, or the columns of X are not known.
    """
    if isinstance(groups, str):
        if origins is None:
            raise ValueError(
                "feature_groups='input' groups the columns that the leading steps of a Pipeline make, but "
                "the model has no such steps: pass the whole pipeline, or map names to lists of columns"
            )
        inputs = origins.require("Give feature_groups a mapping of names to lists of columns instead")
        columns_of_input: dict[int, list[int]] = {}
        for column, input_column in enumerate(inputs.tolist()):
            columns_of_input.setdefault(input_column, []).append(column)
        return tuple(
            Group(origins.names[input_column], tuple(columns))
            for input_column, columns in columns_of_input.items()
        )
    read = partial(columns_of_group, names=names, origins=origins, blank_as_underscore=blank_as_underscore)
    columns_of: dict[str | int, list[int]] = {}
    for column, group in enumerate(group_of_each("feature_groups", groups, names, "column", read)):
        columns_of.setdefault(column if group is None else group, []).append(column)
    return tuple(
        Group(key if isinstance(key, str) else None, tuple(columns)) for key, columns in columns_of.items()
    )


def have_positions(groups: Any) -> bool:
    """Return whether groups have columns by position."""
    if not isinstance(groups, Mapping):
        return False
    return any(not isinstance(member, str) for members in groups.values() for member in members)


def saved_groups(groups: Any, n_columns: int) -> tuple[Group, ...] | None:
    """Return the groups that an explainer file stores.

    Raise ``ValueError`` if the stored groups are not groups of all columns.
    """
    if groups is None:
        return None
    try:
        saved = tuple(Group(name, tuple(columns)) for name, columns in groups)
    except (TypeError, ValueError):
        raise ValueError("its groups are not pairs of names and columns") from None
    columns = [column for group in saved for column in group.columns]
    valid = all(type(column) is int for column in columns) and sorted(columns) == list(range(n_columns))
    named = all(name is None or isinstance(name, str) for name, _ in saved)
    if not valid or not named or any(not columns for _, columns in saved):
        raise ValueError("its groups are not groups of its columns")
    return saved


def columns_of_group(
    group: str, members: Any, names: Sequence[str], origins: Origins | None, blank_as_underscore: bool
) -> tuple[int, ...]:
    """Return the columns of a group, in the order in which it lists them; see :func:`read_groups`."""
    argument = f"feature_groups, {group!r}"
    members = [_with_blanks(member, names) if blank_as_underscore else member for member in members]
    if origins is None:
        return tuple(read_positions(argument, members, names, "column"))
    columns = [
        origins.made_alone_from(argument, member, names) if is_integer(member) else member
        for member in members
    ]
    if None in columns:
        raise ValueError(f"{argument}: the steps drop column {members[columns.index(None)]} of X")
    try:
        return tuple(read_positions(argument, columns, names, "column"))
    except ValueError as error:
        raise ValueError(
            f"{error}. The steps may make other columns in each fold: feature_groups='input' names the "
            "columns of X instead"
        ) from None


def _with_blanks(member: Any, names: Sequence[str]) -> Any:
    """Return the name of the column that equals a name if blanks count as underscores.

    If there is no such column, or there are several, return the name itself.
    """
    if not isinstance(member, str) or member in names:
        return member
    alike = [name for name in names if name.replace(" ", "_") == member.replace(" ", "_")]
    return alike[0] if len(alike) == 1 else member


def features_of(
    adapted: AdaptedModel, groups: tuple[Group, ...] | None, columns: str, by_input: bool = False
) -> tuple[Game, Features]:
    """Return the game of a model, and its features.

    ``groups`` is the result of :func:`read_groups`. With "used" for ``columns`` instead of "all", the
    features that no tree uses are left out. Raise ``ValueError`` if then none is left.
    """
    game, n_features = Game(adapted.ensemble, adapted.shared), adapted.schema.n_features
    if groups is not None:
        game = _grouped(game, n_features, [group.columns for group in groups])
        n_features = len(groups)
    if columns != "used":
        return game, Features(groups, None, by_input)
    game, used = _used(game, n_features)
    if groups is None:
        return game, Features(None, used)
    return game, Features(tuple(groups[i] for i in used), None, by_input)


def two_levels(
    adapted: AdaptedModel, groups: tuple[Group, ...], columns: str
) -> tuple[TwoLevelGame, Features]:
    """Return the game of the columns within groups, and its features; see :func:`features_of`.

    Columns of several groups may share a player, as they share a CTR of CatBoost. Such a player belongs to a
    further group, together with all players that columns of the same groups share. In the game of the groups,
    this further group is a player whose value is shared evenly among the groups. Accordingly, each of the
    groups gets the same fraction of the values of the players in the further group.
    """
    game, features = features_of(adapted, None, columns)
    n_columns = adapted.schema.n_features
    group_of = np.empty(n_columns, np.int32)
    for number, (_, members) in enumerate(groups):
        group_of[list(members)] = number
    feature_groups = group_of if features.columns is None else group_of[features.columns]
    further_groups: dict[tuple[int, ...], int] = {}
    player_groups, shares = [], []
    for members in game.shared:
        member_groups = feature_groups[list(members)]
        distinct_groups, counts = np.unique(member_groups, return_counts=True)
        key = tuple(distinct_groups.tolist())
        if len(key) > 1:
            player_groups.append(len(groups) + further_groups.setdefault(key, len(further_groups)))
        else:
            player_groups.append(key[0])
        n_members = dict(zip(key, counts.tolist()))
        shares.append(tuple(1 / (len(key) * n_members[group]) for group in member_groups.tolist()))
    numbers = np.concatenate([feature_groups, np.array(player_groups, np.int32)])
    _, numbers = np.unique(numbers, return_inverse=True)
    return TwoLevelGame(game, numbers.astype(np.int32), tuple(shares)), features


def _players(ensemble: Ensemble) -> np.ndarray:
    return ensemble.player if len(ensemble.player) else np.arange(ensemble.n_features)


def _grouped(game: Game, n_columns: int, members: Sequence[Sequence[int]]) -> Game:
    """Make each group of columns a player.

    A player that only columns of one group share becomes part of this group. All players that columns of the
    same two or more groups share become one player, as all CTRs of the same columns are one player.
    """
    renumbered = np.empty(n_columns + len(game.shared), np.int32)
    for group, columns in enumerate(members):
        renumbered[list(columns)] = group
    shared_players: dict[tuple[int, ...], int] = {}
    for number, columns in enumerate(game.shared):
        groups = tuple(distinct_numbers(renumbered[list(columns)]).tolist())
        if len(groups) > 1:
            player = len(members) + shared_players.setdefault(groups, len(shared_players))
        else:
            player = groups[0]
        renumbered[n_columns + number] = player
    return Game(replace(game.ensemble, player=renumbered[_players(game.ensemble)]), tuple(shared_players))


def _used(game: Game, n_features: int) -> tuple[Game, np.ndarray]:
    """Leave out the features that no split tests, alone or shared; return the game and the used features."""
    ensemble, player_of = game.ensemble, _players(game.ensemble)
    is_used = np.zeros(ensemble.n_players, bool)
    is_used[player_of[tested_columns(ensemble)]] = True
    shared_players = np.flatnonzero(is_used[n_features:])
    members = [list(game.shared[number]) for number in shared_players.tolist()]
    is_feature = is_used[:n_features].copy()
    for player_members in members:
        is_feature[player_members] = True
    used = np.flatnonzero(is_feature)
    if not len(used):
        raise ValueError("columns='used': the model uses no column of X, as it is constant: use 'all'")
    renumbered = np.zeros(ensemble.n_players, np.int32)  # other players have no nodes, whatever their number
    renumbered[used] = np.arange(len(used))
    renumbered[n_features + shared_players] = len(used) + np.arange(len(shared_players))
    shared = tuple(tuple(renumbered[player_members].tolist()) for player_members in members)
    return Game(replace(ensemble, player=renumbered[player_of]), shared), used
