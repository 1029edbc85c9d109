"""Shapley and interaction values from their definition: slow, plain, independent of the core.

For every row x and every coalition S of features, the path-dependent value v(S) is the expected margin
of the ensemble when only the features in S are known: a walk down each tree follows x where the node's
feature is in S, and elsewhere averages both children by their share of the cover. The Shapley value of
feature i among the u features that the ensemble uses is then

    phi_i = sum over S without i of |S|! (u - |S| - 1)! / u! * (v(S with i) - v(S)).

Its interaction with feature j is, in the convention of shap and XGBoost (Lundberg et al., 2020,
doi:10.1038/s42256-019-0138-9), half of the Shapley interaction index:

    phi_ij = sum over S without i, j of |S|! (u - |S| - 2)! / (2 (u - 1)!)
             * (v(S with i, j) - v(S with i) - v(S with j) + v(S)).

Other indices are sums of the same differences with other weights. The weights are

- |S|! (u - |S| - k)! / (u - k + 1)! for the Shapley interaction index of k features;
- 2 |S|! (u - |S| - 1)! / u! for the Shapley-Taylor index of order 2 (Sundararajan, Dhamdhere, Agarwal, 2020);
- 1 / 2^(u - k) for Banzhaf values, where k = 1, and for the Banzhaf interaction index of k features.

Owen values are defined for features in groups. If there are m groups, and feature i is in a group G of n
features, its Owen value is (Owen, 1977, doi:10.1007/978-3-642-45494-3_7)

    sum over sets R of other groups, sum over T subset of G without i of
    |R|! (m - |R| - 1)! / m! * |T|! (n - |T| - 1)! / n! * (v(Q with T with i) - v(Q with T)),

where Q has all features of the groups in R.

The interventional value v(S) is the mean margin of the background rows after their features in S are replaced
by those of x. Leaves that are linear functions of features have interventional values only.

An ensemble may join several features into one player. The features of a player are known or unknown together,
and the player has one value. For such an ensemble, read "player" for "feature" in all of the above.

This module uses neither the paths of a tree, nor products along a path, nor quadrature. An error of the core
in one of these therefore cannot repeat itself in the values that the core is tested against. Time and memory
grow with 2^u: the ensemble may use at most 12 features.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations
from math import factorial
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from ._common.indices import INDICES
from ._common.types import InteractionIndex, ValueIndex
from .adapters.ensemble import Ensemble

__all__ = ["ReferenceValues", "interventional", "path_dependent", "rescaled"]

Index = ValueIndex | InteractionIndex
Order = Literal[1, 2, 3]

#: An elementwise function of margins and a label.
Link = Callable[[np.ndarray, float], np.ndarray]

#: 2^12 coalitions take about a millisecond for each node and a hundred rows.
MAX_USED_FEATURES = 12


class ReferenceValues(NamedTuple):
    """Values of each row, and the value of a row of which nothing is known.

    Attributes
    ----------
    values : ndarray of float64
        The shape depends on the order of the index:

        - order 1: (n_rows, n_outputs, n_players), the value of each player;
        - order 2: (n_rows, n_outputs, n_players, n_players), a symmetric matrix with half of the index of two
          players off the diagonal. The diagonal has, for "SII", the rest of the player's Shapley value; for
          "STII", what the player adds to the empty coalition; for "BII", the player's Banzhaf value. For
          "SII" and "STII", each row of the matrix adds up to the Shapley value;
        - order 3: (n_rows, n_outputs, n_triples), the whole index of each triple in ``features``.
    base_value : ndarray of float64, shape (n_outputs,) or (n_rows, n_outputs)
        The value of the empty coalition, intercept included. Only :func:`rescaled` has one for each row.
    features : ndarray of int, shape (n_triples, 3), or None
        The players of each triple, ascending. It is None for the other orders.
    """

    values: np.ndarray
    base_value: np.ndarray
    features: np.ndarray | None = None


def path_dependent(
    ensemble: Ensemble,
    X: npt.ArrayLike,
    *,
    index: Index = "SV",
    order: Order | None = None,
    player_groups: npt.ArrayLike | None = None,
) -> ReferenceValues:
    """Compute path-dependent values of encoded rows, straight from the definition.

    Parameters
    ----------
    ensemble : Ensemble
        Its trees may use at most 12 players; other columns do not count. Its leaves must be numbers, not
        linear functions.
    X : array-like of shape (n_rows, n_features)
        Numbers; NaN is missing, a categorical column holds codes.
    index : {"SV", "BV", "OV", "SII", "STII", "BII"}
        What to compute. Values of players are Shapley values ("SV"), Banzhaf values ("BV") or Owen values
        ("OV"). Interactions are the Shapley interaction index ("SII"), which gives SHAP interaction values,
        the Shapley-Taylor index ("STII") or the Banzhaf interaction index ("BII").
    order : {1, 2, 3} or None
        How many players a value belongs to: 1 for "SV", "BV" and "OV", 2 or 3 for "SII" and "BII", 2 for
        "STII". None is 1 for values of players and 2, that is pairs, for interactions.
    player_groups : array-like of int, shape (n_players,), or None
        The group of each player. "OV" needs it, and no other index accepts it.

    Returns
    -------
    ReferenceValues
        ``values`` and ``base_value``; triples (``order=3``) have ``features``, too.

    Raises
    ------
    ValueError
        The index is unknown or has no such order, ``player_groups`` is missing, superfluous or has a wrong
        shape, X
        has a wrong shape, or the ensemble has linear leaves or uses more than 12 players.
    """
    order = _require_order(index, order)
    player_groups = _require_groups(ensemble, index, player_groups)
    X = _rounded(ensemble, X, "X")
    players = _used_players(ensemble)
    batches = _path_dependent_batches(ensemble, X, players)
    values, features = _index_values(ensemble, len(X), players, batches, index, order, player_groups)

    empty_coalition = {player: np.zeros(1, bool) for player in players}
    any_row = np.zeros((1, ensemble.n_features), ensemble.x_dtype)
    expected_sum = _path_dependent_coalition_values(ensemble, any_row, empty_coalition)[0, :, 0]
    return ReferenceValues(values, ensemble.intercept + expected_sum, features)


def interventional(
    ensemble: Ensemble,
    X: npt.ArrayLike,
    background: npt.ArrayLike,
    *,
    weight: npt.ArrayLike | None = None,
    index: Index = "SV",
    player_groups: npt.ArrayLike | None = None,
) -> ReferenceValues:
    """Compute interventional values of encoded rows, straight from the definition.

    Parameters
    ----------
    ensemble : Ensemble
        Its trees may use at most 12 players; other columns do not count.
    X : array-like of shape (n_rows, n_features)
        Numbers; NaN is missing, a categorical column holds codes.
    background : array-like of shape (n_background, n_features)
        At least one row, encoded like the rows of X.
    weight : array-like of shape (n_background,) or None
        Weight of each background row. Weights are divided by their sum. None gives all rows the same weight.
    index : {"SV", "BV", "OV", "SII", "STII", "BII"}
        What to compute, as in :func:`path_dependent`. Interactions are of pairs.
    player_groups : array-like of int, shape (n_players,), or None
        The group of each player. "OV" needs it, and no other index accepts it.

    Returns
    -------
    ReferenceValues
        ``values`` and ``base_value``, which is the weighted mean of the background rows' margins.

    Raises
    ------
    ValueError
        The index is unknown, ``player_groups`` is missing, superfluous or has a wrong shape, X, the
        background or
        its weights have a wrong shape, or the ensemble uses more than 12 players.
    """
    order = _require_order(index, None)
    player_groups = _require_groups(ensemble, index, player_groups)
    X = _rounded(ensemble, X, "X")
    players = _used_players(ensemble)
    background, shares = _background(ensemble, background, weight)
    # The intercept cancels in all differences.
    trees = replace(ensemble, intercept=np.zeros(ensemble.n_outputs))
    batches = _interventional_batches(trees, X, background, shares, players)
    values, features = _index_values(ensemble, len(X), players, batches, index, order, player_groups)
    return ReferenceValues(values, ensemble.intercept + shares @ trees.margin(background), features)


def rescaled(
    ensemble: Ensemble,
    X: npt.ArrayLike,
    background: npt.ArrayLike,
    link: Link,
    derivative: Link,
    *,
    weight: npt.ArrayLike | None = None,
    labels: npt.ArrayLike | None = None,
) -> ReferenceValues:
    """Compute SHAP values of a function of the margin by the rescale rule, straight from its definition.

    The interventional Shapley values of each row against each single background row are multiplied by the
    slope of the link's secant between the margins of the two rows, and averaged over the background.

    Parameters
    ----------
    ensemble : Ensemble
        Its trees may use at most 12 players; other columns do not count.
    X : array-like of shape (n_rows, n_features)
        Numbers; NaN is missing, a categorical column holds codes.
    background : array-like of shape (n_background, n_features)
        At least one row, encoded like the rows of X.
    link, derivative : callable
        The function and its derivative by the margin. Both get margins and a label.
    weight : array-like of shape (n_background,) or None
        Weight of each background row. Weights are divided by their sum. None gives all rows the same weight.
    labels : array-like of shape (n_rows,) or None
        Label of each row. None is a label of 0 for all rows.

    Returns
    -------
    ReferenceValues
        ``values`` of shape (n_rows, n_outputs, n_players), and ``base_value`` of shape (n_rows, n_outputs):
        the mean of the link over the background, with the label of each row.

    Raises
    ------
    ValueError
        X, the background, its weights or the labels have a wrong shape, or the ensemble uses more than 12
        players.
    """
    X = _rounded(ensemble, X, "X")
    background, shares = _background(ensemble, background, weight)
    labels = np.zeros(len(X)) if labels is None else np.asarray(labels, np.float64)
    if labels.shape != (len(X),):
        raise ValueError(f"labels must have shape ({len(X)},), a label for each row, not {labels.shape}")
    values = np.zeros((len(X), ensemble.n_outputs, ensemble.n_players))
    base_values = np.zeros((len(X), ensemble.n_outputs))
    for background_row, share in zip(background, shares, strict=True):
        margin_values, background_margin, _ = interventional(ensemble, X, background_row[np.newaxis])
        for i, (margin, label) in enumerate(zip(ensemble.margin(X), labels, strict=True)):
            slope = derivative((margin + background_margin) / 2, label)
            # For closer margins the quotient loses too many digits; the derivative is within 1e-11 of it.
            apart = np.abs(margin - background_margin) > 1e-5
            rise = link(margin, label) - link(background_margin, label)
            slope[apart] = rise[apart] / (margin - background_margin)[apart]
            values[i] += share * slope[:, np.newaxis] * margin_values[i]
            base_values[i] += share * link(background_margin, label)
    return ReferenceValues(values, base_values)


# Checks


def _require_order(index: Index, order: Order | None) -> Order:
    """Return the order, by default that of the index; raise ``ValueError`` if the index does not have it."""
    if index not in INDICES:
        raise ValueError(f"index must be one of {', '.join(map(repr, INDICES))}, not {index!r}")
    orders = INDICES[index].orders
    if order is None:
        return orders[0]
    if order not in orders:
        raise ValueError(f"order must be {' or '.join(map(str, orders))} for index={index!r}, not {order!r}")
    return order


def _require_groups(
    ensemble: Ensemble, index: Index, player_groups: npt.ArrayLike | None
) -> np.ndarray | None:
    """Return the group of each player, for Owen values only; raise ``ValueError`` for any other use."""
    if player_groups is None:
        if index == "OV":
            raise ValueError("index='OV' needs player_groups: pass the group of each player")
        return None
    if index != "OV":
        raise ValueError(f"index={index!r} has no groups: leave player_groups out, or pass index='OV'")
    player_groups = np.asarray(player_groups)
    if player_groups.shape != (ensemble.n_players,):
        raise ValueError(
            f"player_groups must have shape ({ensemble.n_players},), a group for each player, "
            f"not {player_groups.shape}"
        )
    return player_groups


def _rounded(ensemble: Ensemble, rows: npt.ArrayLike, name: str) -> np.ndarray:
    """Return rows as the trees compare them; raise ``ValueError`` if their shape is wrong."""
    with np.errstate(over="ignore"):
        rows = np.asarray(rows, np.float64).astype(ensemble.x_dtype)
    if rows.ndim != 2 or rows.shape[1] != ensemble.n_features:
        raise ValueError(f"{name} must have shape (n_rows, {ensemble.n_features}), not {rows.shape}")
    return rows


def _background(
    ensemble: Ensemble, background: npt.ArrayLike, weight: npt.ArrayLike | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return background rows as the trees compare them, and their weights, which add up to 1."""
    background = _rounded(ensemble, background, "background")
    if not len(background):
        raise ValueError("background must have at least one row")
    weight = np.ones(len(background)) if weight is None else np.asarray(weight, np.float64)
    if weight.shape != (len(background),):
        raise ValueError(
            f"weight must have shape ({len(background)},), a number for each background row, "
            f"not {weight.shape}"
        )
    return background, weight / weight.sum()


def _used_players(ensemble: Ensemble) -> np.ndarray:
    """Return the players that the trees use, ascending; raise ``ValueError`` if there are more than 12."""
    features = np.concatenate([ensemble.feature[ensemble.left >= 0], ensemble.linear_feature])
    players = np.unique(_player_of_feature(ensemble)[features])
    if len(players) > MAX_USED_FEATURES:
        raise ValueError(f"the ensemble uses {len(players)} features, more than {MAX_USED_FEATURES}")
    return players


def _player_of_feature(ensemble: Ensemble) -> np.ndarray:
    """Return the player that each feature belongs to."""
    return ensemble.player if len(ensemble.player) else np.arange(ensemble.n_features)


# Indices. A coalition is a number: its bit i says whether the i-th used player is in it. Members, too, are
# positions in the list of used players.


def _index_values(
    ensemble: Ensemble,
    n_rows: int,
    players: np.ndarray,
    batches: Iterator[tuple[slice, np.ndarray]],
    index: Index,
    order: Order,
    player_groups: np.ndarray | None,
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the values of all rows and, for triples, their players, from v(S) in batches of rows."""
    if order == 3:
        triples = list(combinations(range(len(players)), 3))
        values = np.zeros((n_rows, ensemble.n_outputs, len(triples)))
        for rows, coalition_values in batches:
            for column, triple in enumerate(triples):
                values[rows, :, column] = _weighted_difference(index, coalition_values, triple)
        return values, players[np.array(triples, int).reshape(-1, 3)]

    values = np.zeros((n_rows, ensemble.n_outputs) + order * (ensemble.n_players,))
    for rows, coalition_values in batches:
        if order == 2:
            _fill_matrices(index, coalition_values, players, values[rows])
            continue
        for i, player in enumerate(players):
            if player_groups is not None:
                values[rows, :, player] = _owen_value(coalition_values, player_groups[players], i)
            else:
                values[rows, :, player] = _weighted_difference(index, coalition_values, (i,))
    return values, None


def _fill_matrices(
    index: Index, coalition_values: np.ndarray, players: np.ndarray, matrices: np.ndarray
) -> None:
    """Fill zeroed matrices of interactions, [...][player][player], from v(S) of all coalitions."""
    for i, p in enumerate(players):
        for j, q in enumerate(players[:i]):
            matrices[..., p, q] = _weighted_difference(index, coalition_values, (i, j)) / 2
            matrices[..., q, p] = matrices[..., p, q]
    for i, p in enumerate(players):
        if index == "STII":
            matrices[..., p, p] = coalition_values[..., 1 << i] - coalition_values[..., 0]
        elif index == "BII":
            matrices[..., p, p] = _weighted_difference("BV", coalition_values, (i,))
        else:
            shapley_value = _weighted_difference("SV", coalition_values, (i,))
            matrices[..., p, p] = shapley_value - matrices[..., p, :].sum(axis=-1)


def _weighted_difference(index: Index, coalition_values: np.ndarray, members: tuple[int, ...]) -> np.ndarray:
    """Return the index of some players, the members, from v(S) of all coalitions: (n_rows, n_outputs)."""
    coalitions = np.arange(coalition_values.shape[-1])
    n_players = len(coalitions).bit_length() - 1
    without_members = coalitions[coalitions & sum(1 << i for i in members) == 0]
    if index in ("BV", "BII"):
        weights = np.full(len(without_members), 1 / len(without_members))
    elif index == "STII":
        weights = len(members) * _shapley_weights(without_members, n_players)
    else:  # the members enter together, as one player
        weights = _shapley_weights(without_members, n_players - len(members) + 1)
    return _difference(coalition_values, without_members, members) @ weights


def _difference(coalition_values: np.ndarray, coalitions: np.ndarray, members: tuple[int, ...]) -> np.ndarray:
    """Return the discrete derivative of v by the members, at coalitions that contain no member."""
    if not members:
        return coalition_values[..., coalitions]
    first, *others = members
    with_first = _difference(coalition_values, coalitions | 1 << first, tuple(others))
    return with_first - _difference(coalition_values, coalitions, tuple(others))


def _shapley_weights(coalitions: np.ndarray, n_players: int) -> np.ndarray:
    """Return |S|! (u - |S| - 1)! / u! for each coalition S."""
    weight_of_size = np.array(
        [factorial(s) * factorial(n_players - s - 1) / factorial(n_players) for s in range(n_players)]
    )
    return weight_of_size[[int(s).bit_count() for s in coalitions]]


def _owen_value(coalition_values: np.ndarray, groups: np.ndarray, i: int) -> np.ndarray:
    """Return the Owen value of the i-th used player; ``groups`` are the groups of all used players."""
    own_players = [1 << j for j in np.flatnonzero(groups == groups[i]).tolist() if j != i]
    other_groups = [
        sum(1 << j for j in np.flatnonzero(groups == group).tolist())
        for group in np.unique(groups).tolist()
        if group != groups[i]
    ]
    value = np.zeros(coalition_values.shape[:-1])
    for known_groups, group_weight in _weighted_unions(other_groups):
        for known_players, player_weight in _weighted_unions(own_players):
            coalition = np.array([known_groups | known_players])
            difference = _difference(coalition_values, coalition, (i,))[..., 0]
            value += group_weight * player_weight * difference
    return value


def _weighted_unions(coalitions: list[int]) -> list[tuple[int, float]]:
    """Return the union of each set of disjoint coalitions, with its Shapley weight for one coalition more."""
    n = len(coalitions)
    return [
        (sum(union), factorial(size) * factorial(n - size) / factorial(n + 1))
        for size in range(n + 1)
        for union in combinations(coalitions, size)
    ]


# Values of coalitions


def _membership(players: np.ndarray) -> dict[int, np.ndarray]:
    """Return for each used player which of all coalitions contain the player."""
    coalitions = np.arange(2 ** len(players))
    return {player: (coalitions >> i) & 1 == 1 for i, player in enumerate(players)}


def _path_dependent_batches(
    ensemble: Ensemble, X: np.ndarray, players: np.ndarray
) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield a few rows at a time, and v(S) of all coalitions: (n_rows, n_outputs, n_coalitions)."""
    membership = _membership(players)
    rows_at_once = max(1, 2**16 // 2 ** len(players))
    for start in range(0, len(X), rows_at_once):
        rows = slice(start, start + rows_at_once)
        yield rows, _path_dependent_coalition_values(ensemble, X[rows], membership)


def _path_dependent_coalition_values(
    ensemble: Ensemble, X: np.ndarray, membership: dict[int, np.ndarray]
) -> np.ndarray:
    """Return v(S) less the intercept, which cancels in all differences: (n_rows, n_outputs, n_coalitions).

    ``membership[player]`` says for each coalition whether it contains the player.
    """
    if ensemble.has_linear_leaves:
        raise ValueError("path-dependent values are not defined for linear leaves: use background rows")
    n_coalitions = len(next(iter(membership.values()))) if membership else 1
    coalition_values = np.zeros((len(X), ensemble.n_outputs, n_coalitions))
    for root, output in zip(ensemble.tree_offsets, ensemble.tree_output):
        outputs = slice(None) if output < 0 else slice(output, output + 1)
        coalition_values[:, outputs] += _tree_expectations(ensemble, root, X, membership)
    return coalition_values


def _tree_expectations(
    ensemble: Ensemble, root: int, X: np.ndarray, membership: dict[int, np.ndarray]
) -> np.ndarray:
    """Return a tree's expected leaf value, to broadcast to (n_rows, outputs of the tree, n_coalitions)."""

    def children(node: int) -> tuple[int, int]:
        return root + ensemble.left[node], root + ensemble.right[node]

    player_of_feature = _player_of_feature(ensemble)
    preorder, pending = [], [root]
    while pending:
        node = pending.pop()
        preorder.append(node)
        if ensemble.left[node] >= 0:
            pending += children(node)

    expectations: dict[int, np.ndarray] = {}
    for node in reversed(preorder):
        if ensemble.left[node] < 0:
            expectations[node] = ensemble.value[node][:, np.newaxis]
            continue
        left, right = children(node)
        left_value, right_value = expectations.pop(left), expectations.pop(right)
        left_share = _share(ensemble.cover[left], ensemble.cover[right])
        feature = ensemble.feature[node]
        goes_left = ensemble.goes_left(np.full(len(X), node), X[:, feature])[:, np.newaxis, np.newaxis]
        followed = np.where(goes_left, left_value, right_value)
        averaged = left_share * left_value + (1 - left_share) * right_value
        expectations[node] = np.where(membership[player_of_feature[feature]], followed, averaged)
    return expectations[root]


def _share(cover: float, other: float) -> float:
    """Return cover / (cover + other), even if the sum would overflow."""
    largest = max(cover, other)
    return cover / largest / (cover / largest + other / largest) if largest > 0 else 0.5


def _interventional_batches(
    ensemble: Ensemble, X: np.ndarray, background: np.ndarray, shares: np.ndarray, players: np.ndarray
) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield one row at a time, and v(S) of all coalitions: (1, n_outputs, n_coalitions)."""
    membership = _membership(players)
    for i, x in enumerate(X):
        coalition_values = _interventional_coalition_values(ensemble, x, background, shares, membership)
        yield slice(i, i + 1), coalition_values[np.newaxis]


def _interventional_coalition_values(
    ensemble: Ensemble,
    x: np.ndarray,
    background: np.ndarray,
    shares: np.ndarray,
    membership: dict[int, np.ndarray],
) -> np.ndarray:
    """Return v(S) of all coalitions for one row: (n_outputs, n_coalitions)."""
    n_coalitions, player_of_feature = 2 ** len(membership), _player_of_feature(ensemble)
    coalition_values = np.empty((ensemble.n_outputs, n_coalitions))
    coalitions_at_once = max(1, 2**16 // len(background))
    for start in range(0, n_coalitions, coalitions_at_once):
        coalitions = slice(start, min(start + coalitions_at_once, n_coalitions))
        hybrid_rows = np.tile(background, (coalitions.stop - start, 1, 1))
        for player, contains_player in membership.items():
            features = np.flatnonzero(player_of_feature == player)
            all_background = np.ones(len(background), bool)
            hybrid_rows[np.ix_(contains_player[coalitions], all_background, features)] = x[features]
        margins = ensemble.margin(hybrid_rows.reshape(-1, ensemble.n_features))
        margins = margins.reshape(len(hybrid_rows), len(background), ensemble.n_outputs)
        coalition_values[:, coalitions] = np.einsum("sbk,b->ks", margins, shares)
    return coalition_values
