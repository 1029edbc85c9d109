"""Path-dependent Shapley values from their definition: slow, plain, and independent of the core.

For every row and every set S of features, the worth v(S) is the margin that the ensemble is
expected to give when only the features in S are known: a walk down each tree follows x where
the node's feature is in S, and averages both children by their share of the cover where not.
The value of feature i among the u features that the ensemble uses is then

    phi_i = sum over S without i of |S|! (u - |S| - 1)! / u! * (v(S with i) - v(S)).

Nothing here knows of paths, products along them or quadrature, so that an error in those
cannot hide. Time and memory grow with 2^u; at most 12 features may be used.
"""

from __future__ import annotations

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
    with np.errstate(over="ignore"):
        X = np.asarray(X, np.float64).astype(ensemble.x_dtype)
    if X.ndim != 2 or X.shape[1] != ensemble.n_features:
        raise ValueError(f"X must have shape (n_rows, {ensemble.n_features}), not {X.shape}")
    used = np.unique(ensemble.feature[ensemble.left >= 0])
    if len(used) > MAX_USED_FEATURES:
        raise ValueError(f"the ensemble uses {len(used)} features, more than {MAX_USED_FEATURES}")

    subsets = np.arange(2 ** len(used))
    known = {f: (subsets >> i) & 1 == 1 for i, f in enumerate(used)}
    values = np.zeros((len(X), ensemble.n_outputs, ensemble.n_features))
    rows_at_once = max(1, 2**16 // len(subsets))
    for start in range(0, len(X), rows_at_once):
        rows = slice(start, start + rows_at_once)
        worth = _worth(ensemble, X[rows], known)
        for i, f in enumerate(used):
            without = subsets[~known[f]]
            gain = worth[..., without | 1 << i] - worth[..., without]
            values[rows, :, f] = gain @ _shapley_weights(without, len(used))

    nothing = {f: np.zeros(1, bool) for f in used}
    any_row = np.zeros((1, ensemble.n_features), ensemble.x_dtype)
    return values, ensemble.intercept + _worth(ensemble, any_row, nothing)[0, :, 0]


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
