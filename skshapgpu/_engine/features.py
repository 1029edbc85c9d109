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
        Ensemble with the trees and columns of the model.
    shared : tuple of tuple of int
        For each player after the features: the features that share its value evenly.
    """

    ensemble: Ensemble
    shared: tuple[tuple[int, ...], ...]


class TwoLevelGame(NamedTuple):
    """The game of Owen values: features are players, which are known or unknown together outside their group.

    Attributes
    ----------
    game : Game
        Its first players are single columns.
    groups : ndarray of int32
        Number of the group of each player, from 0 on.
    shares : tuple of tuple of float
        For each player after the columns: the shares of the columns that share its value.
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
        Column that each feature is; None: they are all columns, or groups.
    by_input : bool
        Whether each group is what the steps of a pipeline made from one column of X.
    """

    groups: tuple[Group, ...] | None = None
    columns: np.ndarray | None = None
    by_input: bool = False

    @property
    def group_columns(self) -> tuple[tuple[int, ...], ...] | None:
        """Columns of each group; None without groups."""
        return None if self.groups is None else tuple(group.columns for group in self.groups)

    def of_columns(self, n_columns: int) -> np.ndarray:
        """Return the feature of each column; -1: none."""
        found = np.full(n_columns, -1)
        if self.groups is not None:
            for feature, (_, columns) in enumerate(self.groups):
                found[list(columns)] = feature
        elif self.columns is None:
            found = np.arange(n_columns)
        else:
            found[self.columns] = np.arange(len(self.columns))
        return found

    def names(self, of_columns: tuple[str, ...]) -> tuple[str, ...]:
        """Return the names of the features, given those of all columns."""
        if self.groups is not None:
            found = [of_columns[columns[0]] if name is None else name for name, columns in self.groups]
            return tuple(unique(found))
        return of_columns if self.columns is None else tuple(of_columns[i] for i in self.columns)

    def data(self, of_columns: Any, names: tuple[str, ...], origins: Origins | None, n_rows: int) -> Any:
        """Return the columns that the features are, in groups or not; columns of X if groups are these.

        ``of_columns`` has all columns, with these ``names``, and ``origins`` is a result of :meth:`origins`.
        """
        if self.group_columns is not None:
            of_inputs = origins.input_data(n_rows) if self.by_input and origins is not None else None
            return GroupedRows(of_columns, self.group_columns, names) if of_inputs is None else of_inputs
        return of_columns if self.columns is None else select(of_columns, slice(None), self.columns)

    def origins(self, of_columns: Origins | None) -> Origins | None:
        """Return the columns of X from which the features were made, given those of all columns."""
        if of_columns is None or of_columns.columns is None:
            return of_columns
        if self.groups is not None:
            return of_columns.grouped([group.columns for group in self.groups])
        return of_columns if self.columns is None else of_columns.select(slice(None), self.columns)


def require_groups(groups: Any) -> None:
    """Check what does not depend on the model.

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
    """Return all features, in the order of their first columns; None if each is a column of its own.

    Parameters
    ----------
    groups : mapping of str to sequence of (str or int), or "input"
        Columns of each group, by name, or by the position in X of the column from which alone the steps
        made it; other columns are features of their own.
    names : sequence of str
        Names of all columns.
    origins : Origins or None
        Columns of X from which the steps of a pipeline made them; None without steps.
    blank_as_underscore : bool, default=False
        Whether the model may have underscores where the names in training had blanks.

    Raises
    ------
    ValueError, TypeError
        A group is invalid, names an unknown column, or has one in common with another group; or, for
        "input", the columns of X are not known.
    """
    if isinstance(groups, str):
        if origins is None:
            return None
        of_columns = origins.require("Give feature_groups a mapping of names to lists of columns instead")
        made_of: dict[int, list[int]] = {}
        for column, of_input in enumerate(of_columns.tolist()):
            made_of.setdefault(of_input, []).append(column)
        return tuple(Group(origins.names[of_input], tuple(made)) for of_input, made in made_of.items())
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
    """Return the groups that a file has.

    Raises
    ------
    ValueError
        They are not groups of all columns.
    """
    if groups is None:
        return None
    try:
        found = tuple(Group(name, tuple(columns)) for name, columns in groups)
    except (TypeError, ValueError):
        raise ValueError("its groups are not pairs of names and columns") from None
    columns = [column for group in found for column in group.columns]
    valid = all(type(column) is int for column in columns) and sorted(columns) == list(range(n_columns))
    named = all(name is None or isinstance(name, str) for name, _ in found)
    if not valid or not named or any(not columns for _, columns in found):
        raise ValueError("its groups are not groups of its columns")
    return found


def columns_of_group(
    group: str, members: Any, names: Sequence[str], origins: Origins | None, blank_as_underscore: bool
) -> tuple[int, ...]:
    """Return the columns that a group lists, in its order; see :func:`read_groups`."""
    place = {name: column for column, name in enumerate(names)}
    if blank_as_underscore:
        members = [_with_blanks(member, place) for member in members]
    return tuple(_column_of(group, member, place, origins) for member in members)


def _with_blanks(member: Any, place: Mapping[str, int]) -> Any:
    """Return the name of the only column that differs from a name in blanks and underscores at most."""
    if not isinstance(member, str) or member in place:
        return member
    alike = [name for name in place if name.replace(" ", "_") == member.replace(" ", "_")]
    return alike[0] if len(alike) == 1 else member


def _column_of(group: str, member: Any, place: Mapping[str, int], origins: Origins | None) -> int:
    """Return the position of a column that the model receives, given by name, or by position in X."""
    if isinstance(member, str):
        if member not in place:
            listed = ", ".join(list(place)[:10]) + (", ..." if len(place) > 10 else "")
            raise ValueError(
                f"feature_groups: {group!r} has column {member!r}, which the model does not receive; its "
                f"columns are {listed}. After steps of a pipeline, which may make other columns in each "
                "fold, feature_groups='input' names the columns of X instead"
            )
        return place[member]
    if isinstance(member, Integral) and not isinstance(member, (bool, np.bool_)):
        column = int(member)
        if origins is not None:
            with_origin = origins.made_alone_from(column, list(place))
            if with_origin is None:
                raise IndexError(f"feature_groups: {group!r} has column {column} of X, which the steps drop")
            return with_origin
        if not 0 <= column < len(place):
            raise ValueError(
                f"feature_groups: {group!r} has column {column}, but there are {len(place)} columns"
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

    A player that columns of several groups share, as CTRs of CatBoost are, belongs to a further group, with
    the other players of the same groups: that is a player of the game of the groups. As its value is shared
    evenly among these groups there, each of them gets the same part of the values of the players in it.
    """
    game, features = features_of(adapted, None, columns)
    n_columns = adapted.schema.n_features
    group_of = np.empty(n_columns, np.int32)
    for number, (_, members) in enumerate(groups):
        group_of[list(members)] = number
    of_features = group_of if features.columns is None else group_of[features.columns]
    several: dict[tuple[int, ...], int] = {}
    of_shared, shares = [], []
    for members in game.shared:
        of_members = of_features[list(members)]
        found, counts = np.unique(of_members, return_counts=True)
        across = len(found) > 1
        key = tuple(found.tolist())
        of_shared.append(len(groups) + several.setdefault(key, len(several)) if across else key[0])
        n_members = dict(zip(key, counts.tolist()))
        shares.append(tuple(1 / (len(key) * n_members[group]) for group in of_members.tolist()))
    numbers = np.concatenate([of_features, np.array(of_shared, np.int32)])
    _, numbers = np.unique(numbers, return_inverse=True)
    return TwoLevelGame(game, numbers.astype(np.int32), tuple(shares)), features


def _players(ensemble: Ensemble) -> np.ndarray:
    return ensemble.player if len(ensemble.player) else np.arange(ensemble.n_features)


def _grouped(game: Game, n_columns: int, members: Sequence[Sequence[int]]) -> Game:
    """Make players of groups.

    A player that columns of one group share becomes a part of that group. Those that columns of the same
    several groups share become one player, as CTRs of the same columns are.
    """
    renumbered = np.empty(n_columns + len(game.shared), np.int32)
    for group, columns in enumerate(members):
        renumbered[list(columns)] = group
    several: dict[tuple[int, ...], int] = {}
    for number, columns in enumerate(game.shared):
        groups = tuple(np.unique(renumbered[list(columns)]).tolist())
        shared = len(groups) > 1
        player = len(members) + several.setdefault(groups, len(several)) if shared else groups[0]
        renumbered[n_columns + number] = player
    return Game(replace(game.ensemble, player=renumbered[_players(game.ensemble)]), tuple(several))


def _used(game: Game, n_features: int) -> tuple[Game, np.ndarray]:
    """Leave out the features that are no player of a split and share none; return those left, too."""
    ensemble, player_of = game.ensemble, _players(game.ensemble)
    is_used = np.zeros(ensemble.n_players, bool)
    is_used[player_of[tested_columns(ensemble)]] = True
    several = np.flatnonzero(is_used[n_features:])
    members = [list(game.shared[number]) for number in several.tolist()]
    is_feature = is_used[:n_features].copy()
    for of_player in members:
        is_feature[of_player] = True
    left = np.flatnonzero(is_feature)
    if not len(left):
        raise ValueError("columns='used': the model uses no column of X, as it is constant: use 'all'")
    renumbered = np.zeros(ensemble.n_players, np.int32)  # other players have no nodes, whatever their number
    renumbered[left] = np.arange(len(left))
    renumbered[n_features + several] = len(left) + np.arange(len(several))
    shared = tuple(tuple(renumbered[of_player].tolist()) for of_player in members)
    return Game(replace(ensemble, player=renumbered[player_of]), shared), left
