"""Features of the results: all columns that the model receives, those that it uses, or groups of them.

They are the first players of the game that the trees are compiled for. A group is one player: its columns are
known or unknown together, and it gets one value. That value is not the sum of the values of its columns.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np

from .._rows.columns import GroupedRows
from .._rows.inputs import tested_columns
from .._rows.origins import Origins
from .._rows.pipelines import unique
from .._rows.tables import select
from ..adapters.ensemble import Ensemble
from ..adapters.schema import AdaptedModel


class Group(NamedTuple):
    """Columns that form one feature: their positions, ascending, and a name, or None for a single column."""

    name: str | None
    columns: tuple[int, ...]


class Game(NamedTuple):
    """An ensemble whose first players are the features of the results.

    Attributes
    ----------
    ensemble : Ensemble
        The trees and columns of the model.
    shared : tuple of tuple of int
        For each player after the features: the features that share its value evenly.
    """

    ensemble: Ensemble
    shared: tuple[tuple[int, ...], ...]


class TwoLevelGame(NamedTuple):
    """The game of Owen values.

    Features are players. For features of other groups, all players of a group are known or unknown together.

    Attributes
    ----------
    game : Game
        Its first players are single columns.
    groups : ndarray of int32
        Number of the group of each player, from 0 on.
    shares : tuple of tuple of float
        For each player after the columns: the fraction of its value that each of its columns gets.
    """

    game: Game
    groups: np.ndarray
    shares: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, eq=False)
class Features:
    """The features of the results.

    Attributes
    ----------
    groups : tuple of Group or None
        Columns of each feature; None: features are single columns.
    columns : ndarray of int or None
        Column of each feature; None: the features are all columns, or groups.
    by_input : bool
        Whether each group has the columns that the steps of a pipeline made from one column of X.
    """

    groups: tuple[Group, ...] | None = None
    columns: np.ndarray | None = None
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


def require_groups(groups: Any) -> None:
    """Reject groups that are invalid for any model.

    Raises
    ------
    ValueError, TypeError
        ``feature_groups`` is neither "input" nor a mapping of names to lists of columns, or a group is empty.
    """
    if groups is None or (isinstance(groups, str) and groups == "input"):
        return
    if not isinstance(groups, Mapping):
        raise TypeError(
            f"feature_groups must be 'input' or map names to lists of columns, not {groups!r:.80}"
        )
    for name, members in groups.items():
        if not isinstance(name, str):
            raise TypeError(f"feature_groups: the name {name!r:.80} is not a string")
        if isinstance(members, str) or not isinstance(members, Collection | np.ndarray) or not len(members):
            raise ValueError(f"feature_groups: {name!r} must be a list of columns, not {members!r:.80}")


def read_groups(
    groups: Any, names: Sequence[str], origins: Origins | None, *, blank_as_underscore: bool = False
) -> tuple[Group, ...] | None:
    """Return all features as groups, in the order of their first columns; None if there are no groups.

    Parameters
    ----------
    groups : mapping of str to sequence of (str or int), or "input"
        Columns of each group, by name, or by position in X: a position stands for the column that the steps
        made from this column of X alone. Columns in no group are features of their own.
    names : sequence of str
        Names of all columns.
    origins : Origins or None
        Columns of X from which the steps of a pipeline made all columns; None without steps.
    blank_as_underscore : bool, default=False
        Whether the model may have underscores where the names in training had blanks.

    Raises
    ------
    ValueError, TypeError
        A group is invalid, names an unknown column, or has a column in common with another group; or, for
        "input", the columns of X are not known.
    """
    if isinstance(groups, str):
        if origins is None:
            return None
        inputs = origins.require("Give feature_groups a mapping of names to lists of columns instead")
        columns_of_input: dict[int, list[int]] = {}
        for column, input_column in enumerate(inputs.tolist()):
            columns_of_input.setdefault(input_column, []).append(column)
        return tuple(
            Group(origins.names[input_column], tuple(columns))
            for input_column, columns in columns_of_input.items()
        )
    group_of = dict[int, str]()
    for name, members in groups.items():
        for column in columns_of_group(name, members, names, origins, blank_as_underscore):
            if column in group_of:
                raise ValueError(
                    f"feature_groups: column {names[column]!r} is in {group_of[column]!r} and in {name!r}"
                    if group_of[column] != name
                    else f"feature_groups: {name!r} has column {names[column]!r} twice"
                )
            group_of[column] = name
    for column, name in enumerate(names):
        if column not in group_of and name in groups:
            raise ValueError(f"feature_groups: {name!r} is the name of a column that is not in it")
    columns_of: dict[str | int, list[int]] = {}
    for column in range(len(names)):
        columns_of.setdefault(group_of.get(column, column), []).append(column)
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

    Raises
    ------
    ValueError
        The stored groups are not groups of all columns.
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
    position_of = {name: column for column, name in enumerate(names)}
    if blank_as_underscore:
        members = [_with_blanks(member, position_of) for member in members]
    return tuple(_column_of(group, member, position_of, origins) for member in members)


def _with_blanks(member: Any, position_of: Mapping[str, int]) -> Any:
    """Return the name of the column that equals a name if blanks count as underscores.

    If there is no such column, or there are several, return the name itself.
    """
    if not isinstance(member, str) or member in position_of:
        return member
    alike = [name for name in position_of if name.replace(" ", "_") == member.replace(" ", "_")]
    return alike[0] if len(alike) == 1 else member


def _column_of(group: str, member: Any, position_of: Mapping[str, int], origins: Origins | None) -> int:
    """Return the position, among the columns that the model receives, of a member of a group.

    ``member`` is the name of such a column, or the position of a column of X.
    """
    if isinstance(member, str):
        if member not in position_of:
            listed = ", ".join(list(position_of)[:10]) + (", ..." if len(position_of) > 10 else "")
            raise ValueError(
                f"feature_groups: {group!r} has column {member!r}, which the model does not receive; its "
                f"columns are {listed}. After steps of a pipeline, which may make other columns in each "
                "fold, feature_groups='input' names the columns of X instead"
            )
        return position_of[member]
    if isinstance(member, Integral) and not isinstance(member, (bool, np.bool_)):
        column = int(member)
        if origins is not None:
            with_origin = origins.made_alone_from(column, list(position_of))
            if with_origin is None:
                raise IndexError(f"feature_groups: {group!r} has column {column} of X, which the steps drop")
            return with_origin
        if not 0 <= column < len(position_of):
            raise ValueError(
                f"feature_groups: {group!r} has column {column}, but there are {len(position_of)} columns"
            )
        return column
    raise TypeError(f"feature_groups: {group!r} has {member!r:.80}, which is neither a name nor a position")


def features_of(
    adapted: AdaptedModel, groups: tuple[Group, ...] | None, columns: str, by_input: bool = False
) -> tuple[Game, Features]:
    """Return the game of a model, and its features.

    Parameters
    ----------
    adapted : AdaptedModel
    groups : tuple of Group or None
        Result of :func:`read_groups`.
    columns : {"all", "used"}
        "used" leaves out the features that no tree uses.
    by_input : bool
        See :class:`Features`.

    Raises
    ------
    ValueError
        The trees use no feature, but ``columns`` is "used".
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
        groups = tuple(np.unique(renumbered[list(columns)]).tolist())
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
