"""Shapley values of the probabilities of a softmax against background data, by their definition.

A softmax depends on the margins of all outputs, so that its values do not follow from those of the margins.
For each explained row and each coalition of features, the probabilities of all background rows are computed,
with the features in the coalition taken from the explained row. Their weighted mean is the value of the
coalition. This takes 2^u predictions for each pair of rows if the model uses u features.
"""

from __future__ import annotations

from math import factorial
from typing import Any

import numpy as np

from .._rows.background import Background
from ..adapters.ensemble import Ensemble, tested_columns
from .links import Link
from .margin_plan import MarginPlan

#: The most features that a model may use, and the most predictions for each explained row.
MOST_FEATURES, MOST_PREDICTIONS = 16, 2**20

#: Number of mixtures of rows that are predicted at once.
_MIXTURES_AT_ONCE = 2**14


class SoftmaxPlan(MarginPlan):
    """A compiled ensemble with background data, for the probabilities of a softmax; like ``_core.Plan``.

    Probabilities are always explained in double precision. ``ValueError`` is raised if there are too many
    features or background rows.
    """

    def __init__(self, ensemble: Ensemble, precision: str, background: Background, link: Link) -> None:
        self._link = link
        self._tested = tested_columns(ensemble)
        player = ensemble.player if len(ensemble.player) else np.arange(ensemble.n_features)
        self._players, player_of_column = np.unique(player[self._tested], return_inverse=True)
        weighted = background.weights > 0
        self._weights = background.weights[weighted]
        self._n_predictions = _require_few(len(self._players), len(self._weights))
        self._background = np.ascontiguousarray(background.rows[weighted][:, self._tested])
        numbers = np.arange(2 ** len(self._players))
        in_coalition = (numbers[:, np.newaxis] >> np.arange(len(self._players)) & 1).astype(bool)
        self._is_in_coalition = in_coalition[:, player_of_column]  # [coalition][tested column]
        self._shares = _shapley_weights(in_coalition)
        super().__init__(ensemble, precision, background)

    def info(self) -> dict[str, Any]:
        """Return counts and sizes, and the predictions for a row."""
        return super().info() | {"n_predictions": self._n_predictions}

    def explain(
        self,
        X: np.ndarray,
        values: np.ndarray,
        margin: np.ndarray | None,
        n_threads: int,
        *,
        zeroed: bool = False,
    ) -> None:
        """Fill values, [row][output][player], and margins, [row][output], as ``_core.Plan.explain`` does."""
        if margin is not None:
            margin[...] = self._trees.individual(X, n_threads).T
        if not zeroed:
            values[...] = 0
        if X.shape[1] != len(self._tested):  # otherwise X has only the tested columns
            X = X[:, self._tested]
        for x, row_values in zip(X, values, strict=True):
            player_values = np.einsum("pc,oc->op", self._shares, self._coalition_values(x, n_threads))
            row_values[:, self._players] = player_values

    def _coalition_values(self, x: np.ndarray, n_threads: int) -> np.ndarray:
        """Return the mean probabilities of each coalition for a row: (n_outputs, n_coalitions)."""
        n_background, batches = len(self._weights), []
        step = max(1, _MIXTURES_AT_ONCE // n_background)
        for start in range(0, len(self._is_in_coalition), step):
            in_coalition = self._is_in_coalition[start : start + step, np.newaxis]
            # A model that uses no feature has rows without columns, whose number reshape() cannot infer.
            mixed = np.where(in_coalition, x, self._background).reshape(
                len(in_coalition) * n_background, len(x)
            )
            probabilities = self._link.of(self._trees.individual(mixed, n_threads), outputs=0)
            probabilities = probabilities.reshape(len(probabilities), -1, n_background)
            batches.append(np.einsum("ocb,b->oc", probabilities, self._weights))
        return np.concatenate(batches, axis=1)


def _require_few(n_features: int, n_background: int) -> int:
    """Return the number of predictions for a row, or raise ``ValueError`` if there are too many."""
    predictions = 2**n_features * n_background
    if n_features > MOST_FEATURES or predictions > MOST_PREDICTIONS:
        raise ValueError(
            "model_output='probability': probabilities that depend on several margins, such as those of a "
            "softmax, are explained by their definition, "
            f"with a prediction for each of the 2^{n_features} coalitions of the {n_features} features that "
            f"the model uses and each of the {n_background:,} background rows: {predictions:,} for each row "
            f"explained. At most {MOST_FEATURES} features and {MOST_PREDICTIONS:,} predictions are possible: "
            "use fewer background rows or feature_groups="
        )
    return predictions


def _shapley_weights(in_coalition: np.ndarray) -> np.ndarray:
    """Return the weight of each coalition's value in each Shapley value: (n_players, n_coalitions)."""
    n, sizes = in_coalition.shape[1], in_coalition.sum(axis=1)
    joined = np.array(
        [factorial(s - 1) * factorial(n - s) / factorial(n) if s else 0.0 for s in range(n + 1)]
    )
    left = np.array(
        [factorial(s) * factorial(n - s - 1) / factorial(n) if s < n else 0.0 for s in range(n + 1)]
    )
    return np.where(in_coalition, joined[sizes, np.newaxis], -left[sizes, np.newaxis]).T.copy()
