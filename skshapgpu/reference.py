"""Path-dependent Shapley and interaction values from their definition: slow, plain, not of the core.

For every row and every set S of features, the worth v(S) is the margin that the ensemble is
expected to give when only the features in S are known: a walk down each tree follows x where
the node's feature is in S, and averages both children by their share of the cover where not.
The value of feature i among the u features that the ensemble uses is then

    phi_i = sum over S without i of |S|! (u - |S| - 1)! / u! * (v(S with i) - v(S)).

Its interaction with feature j is, in the convention of shap and XGBoost (Lundberg et al., 2020,
doi:10.1038/s42256-019-0138-9), half of the Shapley interaction index:

    phi_ij = sum over S without i, j of |S|! (u - |S| - 2)! / (2 (u - 1)!)
             * (v(S with i, j) - v(S with i) - v(S with j) + v(S)).

Nothing here knows of paths, products along them or quadrature, so that an error in those
cannot hide. Time and memory grow with 2^u; at most 12 features may be used.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import factorial

import numpy as np
import numpy.typing as npt

from .ensemble import Ensemble

#: 2^12 subsets of features take about a millisecond a node and a hundred rows.
MAX_USED_FEATURES = 12


def path_dependent_shap(ensemble: Ensemble, X: npt.ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Shapley values of encoded rows, straight from the definition.

    Parameters
    ----------
    ensemble : Ensemble
        Uses at most 12 different features; how many columns it has does not matter.
    X : array-like of shape (n_rows, n_features)
        Numbers; NaN is missing, a categorical column holds codes.

    Returns
    -------
    values : ndarray of float64, shape (n_rows, n_outputs, n_features)
    base_value : ndarray of float64, shape (n_outputs,)
        Expected margin when no feature is known, intercept included.

    Raises
    ------
    ValueError
        X has another shape, or the ensemble uses more than 12 features.
    """
    X, used, subsets, known = _players(ensemble, X)
    values = np.zeros((len(X), ensemble.n_outputs, ensemble.n_features))
    for rows, worth in _worth_by_rows(ensemble, X, known):
        for i, f in enumerate(used):
            without = subsets[~known[f]]
            gain = worth[..., without | 1 << i] - worth[..., without]
            values[rows, :, f] = gain @ _shapley_weights(without, len(used))

    nothing = {f: np.zeros(1, bool) for f in used}
    any_row = np.zeros((1, ensemble.n_features), ensemble.x_dtype)
    return values, ensemble.intercept + _worth(ensemble, any_row, nothing)[0, :, 0]


def path_dependent_interactions(ensemble: Ensemble, X: npt.ArrayLike) -> np.ndarray:
    """SHAP interaction values of encoded rows, straight from the definition.

    Parameters
    ----------
    ensemble : Ensemble
        Uses at most 12 different features; how many columns it has does not matter.
    X : array-like of shape (n_rows, n_features)
        Numbers; NaN is missing, a categorical column holds codes.

    Returns
    -------
    ndarray of float64, shape (n_rows, n_outputs, n_features, n_features)
        Symmetric, with the main effects on the diagonal: each of its rows adds up to the Shapley value
        of a feature.

    Raises
    ------
    ValueError
        X has another shape, or the ensemble uses more than 12 features.
    """
    shapley, _ = path_dependent_shap(ensemble, X)
    X, used, subsets, known = _players(ensemble, X)
    values = np.zeros((len(X), ensemble.n_outputs, ensemble.n_features, ensemble.n_features))
    for rows, worth in _worth_by_rows(ensemble, X, known):
        for i, f in enumerate(used):
            for j, g in enumerate(used[:i]):
                without = subsets[~(known[f] | known[g])]
                gain = (
                    worth[..., without | 1 << i | 1 << j]
                    - worth[..., without | 1 << i]
                    - worth[..., without | 1 << j]
                    + worth[..., without]
                )
                # i and j enter together, as one player.
                values[rows, :, f, g] = gain @ _shapley_weights(without, len(used) - 1) / 2
                values[rows, :, g, f] = values[rows, :, f, g]
    diagonal = np.arange(ensemble.n_features)
    values[..., diagonal, diagonal] = shapley - values.sum(axis=-1)
    return values


def _players(
    ensemble: Ensemble, X: npt.ArrayLike
) -> tuple[np.ndarray, np.ndarray, np.ndarray, dict[int, np.ndarray]]:
    """X as the trees compare it, the used features, their subsets as bits, and which contain each feature."""
    with np.errstate(over="ignore"):
        X = np.asarray(X, np.float64).astype(ensemble.x_dtype)
    if X.ndim != 2 or X.shape[1] != ensemble.n_features:
        raise ValueError(f"X must have shape (n_rows, {ensemble.n_features}), not {X.shape}")
    used = np.unique(ensemble.feature[ensemble.left >= 0])
    if len(used) > MAX_USED_FEATURES:
        raise ValueError(f"the ensemble uses {len(used)} features, more than {MAX_USED_FEATURES}")
    subsets = np.arange(2 ** len(used))
    return X, used, subsets, {f: (subsets >> i) & 1 == 1 for i, f in enumerate(used)}


def _worth_by_rows(
    ensemble: Ensemble, X: np.ndarray, known: dict[int, np.ndarray]
) -> Iterator[tuple[slice, np.ndarray]]:
    """The worth of all subsets, for few rows at a time."""
    rows_at_once = max(1, 2**16 // 2 ** len(known))
    for start in range(0, len(X), rows_at_once):
        rows = slice(start, start + rows_at_once)
        yield rows, _worth(ensemble, X[rows], known)


def _shapley_weights(subsets: np.ndarray, n_players: int) -> np.ndarray:
    """|S|! (u - |S| - 1)! / u! of each subset S, given as bits."""
    by_size = np.array(
        [factorial(s) * factorial(n_players - s - 1) / factorial(n_players) for s in range(n_players)]
    )
    return by_size[[int(s).bit_count() for s in subsets]]


def _worth(ensemble: Ensemble, X: np.ndarray, known: dict[int, np.ndarray]) -> np.ndarray:
    """v(S) without the intercept, which cancels in every gain: (n_rows, n_outputs, n_subsets).

    ``known[f]`` tells for each subset whether it contains feature f.
    """
    n_subsets = len(next(iter(known.values()))) if known else 1
    worth = np.zeros((len(X), ensemble.n_outputs, n_subsets))
    for start, output in zip(ensemble.tree_offsets, ensemble.tree_output):
        outputs = slice(None) if output < 0 else slice(output, output + 1)
        worth[:, outputs] += _tree_worth(ensemble, start, X, known)
    return worth


def _tree_worth(ensemble: Ensemble, root: int, X: np.ndarray, known: dict[int, np.ndarray]) -> np.ndarray:
    """Expected leaf value of one tree; broadcasts to (n_rows, outputs of the tree, n_subsets)."""

    def children(node: int) -> tuple[int, int]:
        return root + ensemble.left[node], root + ensemble.right[node]

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
        expected[node] = np.where(known[f], followed, averaged)
    return expected[root]


def _share(cover: float, other: float) -> float:
    """cover / (cover + other), also where the sum would overflow."""
    largest = max(cover, other)
    return cover / largest / (cover / largest + other / largest) if largest > 0 else 0.5
