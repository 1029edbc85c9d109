"""Plans against background data for functions of the margins of an ensemble."""

from __future__ import annotations

from typing import Any

from .. import _core
from .._rows.background import Background
from ..adapters.ensemble import Ensemble, attributes_of


class MarginPlan:
    """A compiled ensemble with background data, for functions of its margins; like ``_core.Plan``.

    ``precision`` is that of the constants. The attributes ``constant``, ``leaf_magnitude`` and
    ``background_margin`` are those of ``_core.RescaledPlan``, and belong to the margins.
    """

    def __init__(self, ensemble: Ensemble, precision: str, background: Background) -> None:
        attributes = attributes_of(ensemble)
        self._trees = _core.DependentTrees(attributes, [])
        # The plan's own link is not used.
        self._plan = _core.RescaledPlan(
            attributes, precision, background.rows, background.weights, "logistic", 1.0
        )
        self.constant, self.leaf_magnitude = self._plan.constant, self._plan.leaf_magnitude
        self.background_margin = self._plan.background_margin

    def info(self) -> dict[str, Any]:
        """Return counts and sizes, as ``_core.RescaledPlan.info`` does."""
        info: dict[str, Any] = self._plan.info()
        return info

    def table_costs(self, table_bytes: int) -> None:
        """Return None: there are no tables with which GPUs compute these values."""
