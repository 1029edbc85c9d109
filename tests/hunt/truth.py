"""Reference values, computed from the definition and the libraries alone.

Interventional: a coalition's value is the library's own prediction of mixtures. A mixture is a row with the
coalition's columns from the explained row and all other columns from a background row. Path-dependent:
coalition values from the trees that ``readers.py`` reads, or CatBoost's own values for symmetric trees.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from . import containers, games
from .margins import library_of

#: More columns have too many coalitions.
MOST_COLUMNS = 9


def coalition_values_of_pairs(
    predict: Callable[[Any], np.ndarray], X: Any, background: Any, n_columns: int
) -> np.ndarray:
    """Compute the value of every coalition, for each pair of an explained row and a background row.

    Parameters
    ----------
    predict : callable
        Maps rows like X to margins of shape (n, n_outputs).
    X, background : array, frame or matrix
        Rows in containers of one kind.

    Returns
    -------
    ndarray of shape (2^n_columns, n_rows, n_background, n_outputs)
    """
    n, m = containers.n_rows(X), containers.n_rows(background)
    masks = np.arange(2**n_columns)
    # Positions of rows in X stacked on the background, by coalition, row, background row and column.
    is_known = (masks[:, None] >> np.arange(n_columns)) & 1 == 1
    own = np.arange(n)[None, :, None, None]
    other = n + np.arange(m)[None, None, :, None]
    which = np.where(is_known[:, None, None, :], own, other)
    mixed = containers.mixture(containers.stacked(X, background), which.reshape(-1, n_columns))
    return predict(mixed).reshape(len(masks), n, m, -1)


def shares(weights: np.ndarray | None, n_background: int) -> np.ndarray:
    weights = np.ones(n_background) if weights is None else np.asarray(weights, float)
    return weights / weights.sum()


def mean_coalition_values(coalition_values: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    """Compute the value of each coalition against the whole background: (2^p, n_rows, n_outputs)."""
    return np.einsum("cnmk,m->cnk", coalition_values, shares(weights, coalition_values.shape[2]))


def rescaled(
    coalition_values: np.ndarray,
    margins: np.ndarray,
    background_margins: np.ndarray,
    link: Callable[[np.ndarray, np.ndarray], np.ndarray],
    derivative: Callable[[np.ndarray, np.ndarray], np.ndarray],
    weights: np.ndarray | None,
    labels: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Compute values by the rescale rule of docs/outputs.md, and the base value of each row.

    For each pair of rows, SHAP values of the margin are multiplied by the slope of the link between both
    margins.

    Parameters
    ----------
    coalition_values : ndarray of shape (2^p, n_rows, n_background, n_outputs)
    margins, of_background : ndarray of shape (n_rows, n_outputs) and (n_background, n_outputs)
    link, derivative : callable
        Functions of margins and labels, which broadcast.
    """
    labels = np.zeros(len(margins)) if labels is None else labels
    y = labels[:, None, None]
    x, b = margins[:, None, :], background_margins[None, :, :]
    apart = np.abs(x - b) > 1e-5
    with np.errstate(invalid="ignore", divide="ignore"):
        secant = (link(x, y) - link(b, y)) / (x - b)
    slope = np.where(apart, secant, derivative((x + b) / 2, y))
    per_pair = games.values(coalition_values.reshape(len(coalition_values), -1, coalition_values.shape[3]))
    per_pair = per_pair.reshape(*coalition_values.shape[1:3], -1, coalition_values.shape[3])
    share = shares(weights, coalition_values.shape[2])
    values = np.einsum("nmpk,nmk,m->npk", per_pair, slope, share)
    return values, np.einsum("nmk,m->nk", np.broadcast_to(link(b, y), slope.shape), share)


def logistic(scale: float) -> tuple[Callable[..., np.ndarray], Callable[..., np.ndarray]]:
    def link(z: np.ndarray, y: np.ndarray) -> np.ndarray:
        return 0.5 * (1 + np.tanh(scale * z / 2)) + 0 * y

    def derivative(z: np.ndarray, y: np.ndarray) -> np.ndarray:
        return scale * link(z, y) * link(-z, y)

    return link, derivative


def softmax(z: np.ndarray) -> np.ndarray:
    powers = np.exp(z - z.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def log_loss(scale: float) -> tuple[Callable[..., np.ndarray], Callable[..., np.ndarray]]:
    def link(z: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.logaddexp(0, scale * z) - y * scale * z

    def derivative(z: np.ndarray, y: np.ndarray) -> np.ndarray:
        return scale * (logistic(scale)[0](z, y) - y)

    return link, derivative


def squared_error(z: np.ndarray, y: np.ndarray) -> np.ndarray:
    return (z - y) ** 2


def squared_error_slope(z: np.ndarray, y: np.ndarray) -> np.ndarray:
    return 2 * (z - y)


def own_values(model: Any, transformed: Any) -> tuple[np.ndarray, np.ndarray] | None:
    """Compute SHAP values with CatBoost itself, (n_rows, p, n_outputs), and base values.

    Return None if CatBoost's values are wrong, as for trees that are not symmetric (catboost/catboost#1703).
    """
    if library_of(model) != "catboost" or model.get_all_params().get("grow_policy") != "SymmetricTree":
        return None
    import catboost

    pool = catboost.Pool(transformed, cat_features=model.get_cat_feature_indices() or None)
    values = np.asarray(model.get_feature_importance(pool, type="ShapValues", thread_count=1))
    values = values[:, None, :] if values.ndim == 2 else values
    return values[:, :, :-1].swapaxes(1, 2), values[0, :, -1]
