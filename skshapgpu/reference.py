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

Other indices weight the same differences in another way: the Shapley-Taylor index of order 2
(Sundararajan, Dhamdhere, Agarwal, 2020) with 2 |S|! (u - |S| - 1)! / u!, the Banzhaf values and
the Banzhaf interaction index of k features with 1 / 2^(u - k). The Shapley interaction index of k
features has the weights |S|! (u - |S| - k)! / (u - k + 1)!.

The Owen value of a feature i in a group G with n features, if there are m groups, is (Owen, 1977,
doi:10.1007/978-3-642-45494-3_7)

    sum over sets R of other groups, sum over T subset of G without i of
    |R|! (m - |R| - 1)! / m! * |T|! (n - |T| - 1)! / n! * (v(Q with T with i) - v(Q with T)),

where Q has all features of the groups in R.

Features that form one player of the ensemble are known or unknown together and get a single value; everything
said about features here applies to players.

The interventional value v(S) is the mean margin over background rows of which the features in S are replaced
by those of x. Leaves that are linear functions of features have interventional values only.

Nothing here uses paths, products along them or quadrature, so an error in those cannot hide. Time and
memory grow with 2^u; the ensemble may use at most 12 features.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations
from math import factorial
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from .adapters.ensemble import Ensemble

__all__ = [
    "interventional_banzhaf",
    "interventional_interactions",
    "interventional_owen",
    "interventional_shap",
    "path_dependent_banzhaf",
    "path_dependent_interactions",
    "path_dependent_owen",
    "path_dependent_shap",
    "path_dependent_triples",
    "rescaled_shap",
]

Index = Literal["SII", "STII", "BII"]

#: An elementwise function of margins and a label.
Link = Callable[[np.ndarray, float], np.ndarray]

#: 2^12 coalitions take about a millisecond for each node and a hundred rows.
MAX_USED_FEATURES = 12


def path_dependent_shap(ensemble: Ensemble, X: npt.ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Compute path-dependent Shapley values of encoded rows, straight from the definition.

    Parameters
    ----------
    ensemble : Ensemble
        Must use at most 12 different players; the number of its columns does not matter.
    X : array-like of shape (n_rows, n_features)
        Numbers; NaN is missing, a categorical column holds codes.

    Returns
    -------
    values : ndarray of float64, shape (n_rows, n_outputs, n_players)
        Value of each player.
    base_value : ndarray of float64, shape (n_outputs,)
        Expected margin when no feature is known, intercept included.

    Raises
    ------
    ValueError
        X has a wrong shape, or the ensemble uses more than 12 players.
    """
    X, used, subsets, known = _players(ensemble, X)
    values = np.zeros((len(X), ensemble.n_outputs, ensemble.n_players))
    for rows, coalition_values in _coalition_values_by_rows(ensemble, X, known):
        for i, f in enumerate(used):
            values[rows, :, f] = _weighted_difference("SII", coalition_values, subsets[~known[f]], (i,))

    nothing = {f: np.zeros(1, bool) for f in used}
    any_row = np.zeros((1, ensemble.n_features), ensemble.x_dtype)
    return values, ensemble.intercept + _coalition_values(ensemble, any_row, nothing)[0, :, 0]


def interventional_shap(
    ensemble: Ensemble,
    X: npt.ArrayLike,
    background: npt.ArrayLike,
    weights: npt.ArrayLike | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Compute interventional Shapley values of encoded rows, straight from the definition.

    Parameters
    ----------
    ensemble : Ensemble
        Must use at most 12 different players; the number of its columns does not matter.
    X : array-like of shape (n_rows, n_features)
        Numbers; NaN is missing, a categorical column holds codes.
    background : array-like of shape (n_background, n_features)
        At least one row, encoded like those of X.
    weights : array-like of shape (n_background,) or None
        Weight of each background row; they are divided by their sum. None: equal weights.

    Returns
    -------
    values : ndarray of float64, shape (n_rows, n_outputs, n_players)
        Value of each player.
    base_value : ndarray of float64, shape (n_outputs,)
        Mean margin of the background, intercept included.

    Raises
    ------
    ValueError
        X, background or weights have a wrong shape, or the ensemble uses more than 12 players.
    """
    values = _interventional_values("SII", ensemble, X, background, weights)
    trees, background, shares = _against(ensemble, background, weights)
    return values, ensemble.intercept + shares @ trees.margin(background)


def interventional_banzhaf(
    ensemble: Ensemble,
    X: npt.ArrayLike,
    background: npt.ArrayLike,
    weights: npt.ArrayLike | None = None,
) -> np.ndarray:
    """Compute interventional Banzhaf values of encoded rows, straight from the definition.

    Parameters
    ----------
    ensemble, X, background, weights
        As for :func:`interventional_shap`, which lists the errors, too.

    Returns
    -------
    ndarray of float64, shape (n_rows, n_outputs, n_players)
        Unlike Shapley values, they do not add up to the margin.
    """
    return _interventional_values("BII", ensemble, X, background, weights)


def interventional_owen(
    ensemble: Ensemble,
    X: npt.ArrayLike,
    background: npt.ArrayLike,
    groups: npt.ArrayLike,
    weights: npt.ArrayLike | None = None,
) -> np.ndarray:
    """Compute interventional Owen values of encoded rows, straight from the definition.

    Parameters
    ----------
    ensemble, X, background
        As for :func:`interventional_shap`, which lists the errors, too.
    groups : array-like of int, shape (n_players,)
        Group of each player.
    weights
        As for :func:`interventional_shap`.

    Returns
    -------
    ndarray of float64, shape (n_rows, n_outputs, n_players)
        Those of a group add up to the Shapley value of the group as one player.
    """
    X, used, _, known = _players(ensemble, X)
    trees, background, shares = _against(ensemble, background, weights)
    values = np.zeros((len(X), ensemble.n_outputs, ensemble.n_players))
    of_used = np.asarray(groups)[used]
    for x, of_row in zip(X, values):
        coalition_values = _interventional_coalition_values(trees, x, background, shares, known)
        for i, f in enumerate(used):
            of_row[:, f] = _owen_value(coalition_values, of_used, i)
    return values


def interventional_interactions(
    ensemble: Ensemble,
    X: npt.ArrayLike,
    background: npt.ArrayLike,
    weights: npt.ArrayLike | None = None,
    index: Index = "SII",
) -> np.ndarray:
    """Compute interventional interactions of all pairs of features, straight from the definition.

    Parameters
    ----------
    ensemble, X, background, weights
        As for :func:`interventional_shap`, which lists the errors, too.
    index : {"SII", "STII", "BII"}
        As for :func:`path_dependent_interactions`.

    Returns
    -------
    ndarray of float64, shape (n_rows, n_outputs, n_players, n_players)
        As for :func:`path_dependent_interactions`.
    """
    _require_index(index)
    X, used, subsets, known = _players(ensemble, X)
    trees, background, shares = _against(ensemble, background, weights)
    values = np.zeros((len(X), ensemble.n_outputs, ensemble.n_players, ensemble.n_players))
    for x, matrices in zip(X, values):
        coalition_values = _interventional_coalition_values(trees, x, background, shares, known)
        _fill_matrices(index, coalition_values, used, subsets, known, matrices)
    return values


def rescaled_shap(
    ensemble: Ensemble,
    X: npt.ArrayLike,
    background: npt.ArrayLike,
    link: Link,
    derivative: Link,
    weights: npt.ArrayLike | None = None,
    labels: npt.ArrayLike | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Compute SHAP values of a function of the margin by the rescale rule, straight from its definition.

    The interventional Shapley values of each row against each single background row are multiplied by the
    slope of the link's secant between their margins, and averaged over the background.

    Parameters
    ----------
    ensemble, X, background
        As for :func:`interventional_shap`.
    link, derivative : callable
        The function and its derivative by the margin, of margins and a label.
    weights : array-like of shape (n_background,) or None
        As for :func:`interventional_shap`.
    labels : array-like of shape (n_rows,) or None
        Label of each row. None: zeros.

    Returns
    -------
    values : ndarray of float64, shape (n_rows, n_outputs, n_players)
        Value of each player.
    base_values : ndarray of float64, shape (n_rows, n_outputs)
        Mean of the link over the background, with the label of each row.

    Raises
    ------
    ValueError
        As for :func:`interventional_shap`.
    """
    X, background = _rounded(ensemble, X, "X"), _rounded(ensemble, background, "background")
    shares = np.ones(len(background)) if weights is None else np.asarray(weights, np.float64)
    labels = np.zeros(len(X)) if labels is None else np.asarray(labels, np.float64)
    values = np.zeros((len(X), ensemble.n_outputs, ensemble.n_players))
    base_values = np.zeros((len(X), ensemble.n_outputs))
    for b, share in zip(background, shares / shares.sum(), strict=True):
        of_margin, of_b = interventional_shap(ensemble, X, b[np.newaxis])
        for i, (of_x, y) in enumerate(zip(ensemble.margin(X), labels, strict=True)):
            slope = derivative((of_x + of_b) / 2, y)
            # For closer margins the quotient loses too many digits; the derivative is within 1e-11 of it.
            apart = np.abs(of_x - of_b) > 1e-5
            slope[apart] = ((link(of_x, y) - link(of_b, y))[apart]) / (of_x - of_b)[apart]
            values[i] += share * slope[:, np.newaxis] * of_margin[i]
            base_values[i] += share * link(of_b, y)
    return values, base_values


def path_dependent_banzhaf(ensemble: Ensemble, X: npt.ArrayLike) -> np.ndarray:
    """Compute path-dependent Banzhaf values of encoded rows, straight from the definition.

    Parameters
    ----------
    ensemble : Ensemble
        Must use at most 12 different players; the number of its columns does not matter.
    X : array-like of shape (n_rows, n_features)
        Numbers; NaN is missing, a categorical column holds codes.

    Returns
    -------
    ndarray of float64, shape (n_rows, n_outputs, n_players)
        Unlike Shapley values, they do not add up to the margin.

    Raises
    ------
    ValueError
        X has a wrong shape, or the ensemble uses more than 12 players.
    """
    X, used, subsets, known = _players(ensemble, X)
    values = np.zeros((len(X), ensemble.n_outputs, ensemble.n_players))
    for rows, coalition_values in _coalition_values_by_rows(ensemble, X, known):
        for i, f in enumerate(used):
            values[rows, :, f] = _weighted_difference("BII", coalition_values, subsets[~known[f]], (i,))
    return values


def path_dependent_owen(ensemble: Ensemble, X: npt.ArrayLike, groups: npt.ArrayLike) -> np.ndarray:
    """Compute path-dependent Owen values of encoded rows, straight from the definition.

    Parameters
    ----------
    ensemble, X
        As for :func:`path_dependent_shap`, which lists the errors, too.
    groups : array-like of int, shape (n_players,)
        Group of each player.

    Returns
    -------
    ndarray of float64, shape (n_rows, n_outputs, n_players)
        Those of a group add up to the Shapley value of the group as one player.
    """
    X, used, _, known = _players(ensemble, X)
    values = np.zeros((len(X), ensemble.n_outputs, ensemble.n_players))
    of_used = np.asarray(groups)[used]
    for rows, coalition_values in _coalition_values_by_rows(ensemble, X, known):
        for i, f in enumerate(used):
            values[rows, :, f] = _owen_value(coalition_values, of_used, i)
    return values


def path_dependent_interactions(ensemble: Ensemble, X: npt.ArrayLike, index: Index = "SII") -> np.ndarray:
    """Compute path-dependent interactions of all pairs of features, straight from the definition.

    Parameters
    ----------
    ensemble : Ensemble
        Must use at most 12 different players; the number of its columns does not matter.
    X : array-like of shape (n_rows, n_features)
        Numbers; NaN is missing, a categorical column holds codes.
    index : {"SII", "STII", "BII"}
        The Shapley interaction index, which gives SHAP interaction values, the Shapley-Taylor index of
        order 2, or the Banzhaf interaction index.

    Returns
    -------
    ndarray of float64, shape (n_rows, n_outputs, n_players, n_players)
        Symmetric, with half of the index of two features off the diagonal. The diagonal holds, for "SII",
        the rest of a feature's Shapley value; for "STII", what the feature adds if it alone is known; for
        "BII", its Banzhaf value. For the first two, rows add up to the Shapley values.

    Raises
    ------
    ValueError
        X has a wrong shape, the ensemble uses more than 12 players, or ``index`` is unknown.
    """
    _require_index(index)
    X, used, subsets, known = _players(ensemble, X)
    values = np.zeros((len(X), ensemble.n_outputs, ensemble.n_players, ensemble.n_players))
    for rows, coalition_values in _coalition_values_by_rows(ensemble, X, known):
        _fill_matrices(index, coalition_values, used, subsets, known, values[rows])
    return values


def path_dependent_triples(
    ensemble: Ensemble, X: npt.ArrayLike, index: Index = "SII"
) -> tuple[np.ndarray, np.ndarray]:
    """Compute path-dependent interactions of all triples of used features, straight from the definition.

    Parameters
    ----------
    ensemble : Ensemble
        Must use at most 12 different players; the number of its columns does not matter.
    X : array-like of shape (n_rows, n_features)
        Numbers; NaN is missing, a categorical column holds codes.
    index : {"SII", "BII"}
        The Shapley or the Banzhaf interaction index.

    Returns
    -------
    values : ndarray of float64, shape (n_rows, n_outputs, n_triples)
        The indices themselves, not half of them as for pairs.
    triples : ndarray of int, shape (n_triples, 3)
        The features of each triple, ascending.

    Raises
    ------
    ValueError
        X has a wrong shape, the ensemble uses more than 12 players, or ``index`` is another one.
    """
    if index not in ("SII", "BII"):
        raise ValueError(f"index must be 'SII' or 'BII', not {index!r}")
    X, used, subsets, known = _players(ensemble, X)
    members = list(combinations(range(len(used)), 3))
    values = np.zeros((len(X), ensemble.n_outputs, len(members)))
    for rows, coalition_values in _coalition_values_by_rows(ensemble, X, known):
        for column, triple in enumerate(members):
            without = subsets[~np.logical_or.reduce([known[used[i]] for i in triple])]
            values[rows, :, column] = _weighted_difference(index, coalition_values, without, triple)
    return values, used[np.array(members, int).reshape(-1, 3)]


def _require_index(index: str) -> None:
    if index not in get_args(Index):
        raise ValueError(f"index must be one of {get_args(Index)}, not {index!r}")


def _players(
    ensemble: Ensemble, X: npt.ArrayLike
) -> tuple[np.ndarray, np.ndarray, np.ndarray, dict[int, np.ndarray]]:
    """Return X as the trees compare it, used players, their subsets as bits, and which have each player."""
    X = _rounded(ensemble, X, "X")
    columns = np.concatenate([ensemble.feature[ensemble.left >= 0], ensemble.linear_feature])
    used = np.unique(_player_of(ensemble)[columns])
    if len(used) > MAX_USED_FEATURES:
        raise ValueError(f"the ensemble uses {len(used)} features, more than {MAX_USED_FEATURES}")
    subsets = np.arange(2 ** len(used))
    return X, used, subsets, {f: (subsets >> i) & 1 == 1 for i, f in enumerate(used)}


def _player_of(ensemble: Ensemble) -> np.ndarray:
    """Return the player that each feature belongs to."""
    return ensemble.player if len(ensemble.player) else np.arange(ensemble.n_features)


def _rounded(ensemble: Ensemble, rows: npt.ArrayLike, name: str) -> np.ndarray:
    """Return rows as the trees compare them; raise ``ValueError`` if their shape is wrong."""
    with np.errstate(over="ignore"):
        rows = np.asarray(rows, np.float64).astype(ensemble.x_dtype)
    if rows.ndim != 2 or rows.shape[1] != ensemble.n_features:
        raise ValueError(f"{name} must have shape (n_rows, {ensemble.n_features}), not {rows.shape}")
    return rows


def _against(
    ensemble: Ensemble, background: npt.ArrayLike, weights: npt.ArrayLike | None
) -> tuple[Ensemble, np.ndarray, np.ndarray]:
    """Return trees without the intercept, which cancels in all differences, background rows and weights."""
    background = _rounded(ensemble, background, "background")
    shares = np.ones(len(background)) if weights is None else np.asarray(weights, np.float64)
    if not len(background) or shares.shape != (len(background),):
        raise ValueError(
            f"there must be at least one background row, and a weight for each, not {len(background)} rows "
            f"and weights of shape {shares.shape}"
        )
    return replace(ensemble, intercept=np.zeros(ensemble.n_outputs)), background, shares / shares.sum()


def _interventional_values(
    index: Index,
    ensemble: Ensemble,
    X: npt.ArrayLike,
    background: npt.ArrayLike,
    weights: npt.ArrayLike | None,
) -> np.ndarray:
    """Compute values of single features: Shapley values, or Banzhaf values with "BII"."""
    X, used, subsets, known = _players(ensemble, X)
    trees, background, shares = _against(ensemble, background, weights)
    values = np.zeros((len(X), ensemble.n_outputs, ensemble.n_players))
    for x, of_row in zip(X, values):
        coalition_values = _interventional_coalition_values(trees, x, background, shares, known)
        for i, f in enumerate(used):
            of_row[:, f] = _weighted_difference(index, coalition_values, subsets[~known[f]], (i,))
    return values


def _coalition_values_by_rows(
    ensemble: Ensemble, X: np.ndarray, known: dict[int, np.ndarray]
) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield v(S) of all subsets, for a few rows at a time."""
    rows_at_once = max(1, 2**16 // 2 ** len(known))
    for start in range(0, len(X), rows_at_once):
        rows = slice(start, start + rows_at_once)
        yield rows, _coalition_values(ensemble, X[rows], known)


def _interventional_coalition_values(
    ensemble: Ensemble,
    x: np.ndarray,
    background: np.ndarray,
    weights: np.ndarray,
    known: dict[int, np.ndarray],
) -> np.ndarray:
    """Return v(S) of all subsets for one row: (n_outputs, n_subsets)."""
    n_subsets, player_of = 2 ** len(known), _player_of(ensemble)
    coalition_values = np.empty((ensemble.n_outputs, n_subsets))
    subsets_at_once = max(1, 2**16 // len(background))
    for start in range(0, n_subsets, subsets_at_once):
        part = slice(start, min(start + subsets_at_once, n_subsets))
        hybrid = np.tile(background, (part.stop - start, 1, 1))
        for player, contains in known.items():
            features = np.flatnonzero(player_of == player)
            hybrid[np.ix_(contains[part], np.ones(len(background), bool), features)] = x[features]
        margin = ensemble.margin(hybrid.reshape(-1, ensemble.n_features))
        by_subset = margin.reshape(len(hybrid), len(background), ensemble.n_outputs)
        coalition_values[:, part] = np.einsum("sbk,b->ks", by_subset, weights)
    return coalition_values


def _weighted_difference(
    index: Index, coalition_values: np.ndarray, without: np.ndarray, members: tuple[int, ...]
) -> np.ndarray:
    """Return the index of some features, from v(S) of all subsets and the subsets without them."""
    n_players = int(coalition_values.shape[-1]).bit_length() - 1
    if index == "BII":
        weights = np.full(len(without), 1 / len(without))
    elif index == "STII":
        weights = len(members) * _shapley_weights(without, n_players)
    else:  # the members enter together, as one player
        weights = _shapley_weights(without, n_players - len(members) + 1)
    return _difference(coalition_values, without, members) @ weights


def _owen_value(coalition_values: np.ndarray, groups: np.ndarray, i: int) -> np.ndarray:
    """Return the Owen value of player i, from v(S) of all subsets and the group of each player."""
    own = [1 << j for j in np.flatnonzero(groups == groups[i]).tolist() if j != i]
    others = [
        sum(1 << j for j in np.flatnonzero(groups == group).tolist()) for group in np.unique(groups).tolist()
    ]
    others.remove(sum(own) + (1 << i))
    of_groups, of_players = _subsets_of(others), _subsets_of(own)
    value = np.zeros(coalition_values.shape[:-1])
    for known_groups, weight in of_groups:
        for known_players, share in of_players:
            known = np.array([known_groups | known_players])
            value += weight * share * _difference(coalition_values, known, (i,))[..., 0]
    return value


def _subsets_of(players: list[int]) -> list[tuple[int, float]]:
    """Return all subsets of some players, given as bits, and their weights for one player more."""
    n = len(players)
    return [
        (sum(chosen), factorial(size) * factorial(n - size) / factorial(n + 1))
        for size in range(n + 1)
        for chosen in combinations(players, size)
    ]


def _fill_matrices(
    index: Index,
    coalition_values: np.ndarray,
    used: np.ndarray,
    subsets: np.ndarray,
    known: dict[int, np.ndarray],
    matrices: np.ndarray,
) -> None:
    """Fill zeroed matrices of interactions, [...][feature][feature], from v(S) of all subsets."""
    for i, f in enumerate(used):
        for j, g in enumerate(used[:i]):
            without = subsets[~(known[f] | known[g])]
            matrices[..., f, g] = _weighted_difference(index, coalition_values, without, (i, j)) / 2
            matrices[..., g, f] = matrices[..., f, g]
    for i, f in enumerate(used):
        if index == "STII":
            matrices[..., f, f] = coalition_values[..., 1 << i] - coalition_values[..., 0]
            continue
        value = _weighted_difference(index, coalition_values, subsets[~known[f]], (i,))
        matrices[..., f, f] = value if index == "BII" else value - matrices[..., f, :].sum(axis=-1)


def _difference(coalition_values: np.ndarray, subsets: np.ndarray, members: tuple[int, ...]) -> np.ndarray:
    """Return the discrete derivative of v by the members, at each subset; none contains a member."""
    if not members:
        return coalition_values[..., subsets]
    first, *others = members
    with_first = _difference(coalition_values, subsets | 1 << first, tuple(others))
    return with_first - _difference(coalition_values, subsets, tuple(others))


def _shapley_weights(subsets: np.ndarray, n_players: int) -> np.ndarray:
    """Return |S|! (u - |S| - 1)! / u! for each subset S, given as bits."""
    by_size = np.array(
        [factorial(s) * factorial(n_players - s - 1) / factorial(n_players) for s in range(n_players)]
    )
    return by_size[[int(s).bit_count() for s in subsets]]


def _coalition_values(ensemble: Ensemble, X: np.ndarray, known: dict[int, np.ndarray]) -> np.ndarray:
    """Return v(S) less the intercept, which cancels in all differences: (n_rows, n_outputs, n_subsets).

    ``known[p]`` says for each subset whether it contains player p.
    """
    if ensemble.has_linear_leaves:
        raise ValueError("path-dependent values are not defined for linear leaves: use background rows")
    n_subsets = len(next(iter(known.values()))) if known else 1
    coalition_values = np.zeros((len(X), ensemble.n_outputs, n_subsets))
    for start, output in zip(ensemble.tree_offsets, ensemble.tree_output):
        outputs = slice(None) if output < 0 else slice(output, output + 1)
        coalition_values[:, outputs] += _tree_expectations(ensemble, start, X, known)
    return coalition_values


def _tree_expectations(
    ensemble: Ensemble, root: int, X: np.ndarray, known: dict[int, np.ndarray]
) -> np.ndarray:
    """Return the expected leaf value of a tree, to broadcast to (n_rows, outputs of the tree, n_subsets)."""

    def children(node: int) -> tuple[int, int]:
        return root + ensemble.left[node], root + ensemble.right[node]

    player_of = _player_of(ensemble)
    preorder, pending = [], [root]
    while pending:
        node = pending.pop()
        preorder.append(node)
        if ensemble.left[node] >= 0:
            pending += children(node)

    expected: dict[int, np.ndarray] = {}
    for node in reversed(preorder):
        if ensemble.left[node] < 0:
            expected[node] = ensemble.value[node][:, np.newaxis]
            continue
        left, right = children(node)
        of_left, of_right = expected.pop(left), expected.pop(right)
        share = _share(ensemble.cover[left], ensemble.cover[right])
        f = ensemble.feature[node]
        goes_left = ensemble.goes_left(np.full(len(X), node), X[:, f])[:, np.newaxis, np.newaxis]
        followed = np.where(goes_left, of_left, of_right)
        averaged = share * of_left + (1 - share) * of_right
        expected[node] = np.where(known[player_of[f]], followed, averaged)
    return expected[root]


def _share(cover: float, other: float) -> float:
    """Return cover / (cover + other), even if the sum would overflow."""
    largest = max(cover, other)
    return cover / largest / (cover / largest + other / largest) if largest > 0 else 0.5
