"""Values of a sum of functions of several margins against background data, by the rescale rule.

Each function depends on one margin. Its values are those of the margin, multiplied for each pair of an
explained row and a background row by the slope of the function between the margins of the two rows, as for
other links (``csrc/background/rescaled.h``). The values of the sum are the weighted sums of these values.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .._rows.background import Background
from ..adapters.ensemble import Ensemble
from ..adapters.link_sums import LinkSum
from .margin_plan import MarginPlan

#: The most slopes that are computed at once, except that a block of rows is never divided.
_SLOPES_AT_ONCE, _BLOCK_ROWS = 2**19, 64


class LinkSumPlan(MarginPlan):
    """A compiled ensemble with background data, for a sum of functions of its margins."""

    def __init__(self, ensemble: Ensemble, precision: str, background: Background, function: LinkSum) -> None:
        super().__init__(ensemble, precision, background)
        self._function, self._weights = function, function.weights
        n_slopes = function.n_margins * len(self.background_margin)  # of a row
        self._step = max(1, _SLOPES_AT_ONCE // n_slopes // _BLOCK_ROWS) * _BLOCK_ROWS
        # Slopes are computed from several arrays of their size.
        self._scratch_bytes = 6 * 8 * self._step * n_slopes

    def info(self) -> dict[str, Any]:
        """Return counts and sizes, with the memory of the slopes."""
        info = super().info()
        scratch = info["scratch_bytes_per_thread"] + self._scratch_bytes
        return info | {"scratch_bytes_per_thread": scratch}

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
