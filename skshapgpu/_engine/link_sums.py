"""Values of a sum of functions of several margins against background data, by the rescale rule.

Each function depends on one margin. Its values are those of the margin, multiplied for each pair of an
explained row and a background row by the slope of the function between the margins of the two rows, as for
other links (``csrc/background/rescaled.h``). The values of the sum are the weighted sums of these values.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import _core
from .._rows.background import Background
from ..adapters.ensemble import Ensemble, attributes_of
from ..adapters.link_sums import LinkSum

#: The most slopes that are computed at once, except that a block of rows is never divided.
_SLOPES_AT_ONCE, _BLOCK_ROWS = 2**19, 64


class LinkSumPlan:
    """A compiled ensemble with background data, for a sum of functions of its margins; like ``_core.Plan``.

    The attributes ``constant``, ``leaf_magnitude`` and ``background_margin`` are those of
    ``_core.RescaledPlan``, and belong to the margins.
    """

    def __init__(self, ensemble: Ensemble, precision: str, background: Background, function: LinkSum) -> None:
        attributes = attributes_of(ensemble)
        self._function, self._weights = function, function.weights
        self._trees = _core.DependentTrees(attributes, [])
        # The plan's own link is not used.
        self._plan = _core.RescaledPlan(
            attributes, precision, background.rows, background.weights, "logistic", 1.0
        )
        self.constant, self.leaf_magnitude = self._plan.constant, self._plan.leaf_magnitude
        self.background_margin = self._plan.background_margin
        n_slopes = function.n_margins * len(self.background_margin)  # of a row
        self._step = max(1, _SLOPES_AT_ONCE // n_slopes // _BLOCK_ROWS) * _BLOCK_ROWS
        # Slopes are computed from several arrays of their size.
        self._scratch_bytes = 6 * 8 * self._step * n_slopes

    def info(self) -> dict[str, Any]:
        """Return counts and sizes, as ``_core.RescaledPlan.info`` does."""
        info: dict[str, Any] = self._plan.info()
        scratch = info["scratch_bytes_per_thread"] + self._scratch_bytes
        return info | {"scratch_bytes_per_thread": scratch}

    def table_costs(self, table_bytes: int) -> None:
        """Return None: there are no tables with which GPUs compute these values."""

    def explain(
        self,
        X: np.ndarray,
        values: np.ndarray,
        margin: np.ndarray | None,
        n_threads: int,
        *,
        zeroed: bool = False,
    ) -> None:
        """Fill values, [row][output][player], and margins, [row][margin], as ``_core.Plan.explain`` does."""
        for start in range(0, len(X), self._step):
            rows = slice(start, min(start + self._step, len(X)))
            margins = self._trees.individual(X[rows], n_threads).T
            if margin is not None:
                margin[rows] = margins
            slopes = self._function.slopes(margins, self.background_margin)
            function_values = np.empty((*margins.shape, values.shape[2]))
            self._plan.explain(X[rows], function_values, None, n_threads, slopes=slopes)
            np.matmul(self._weights, function_values, out=values[rows], casting="same_kind")
