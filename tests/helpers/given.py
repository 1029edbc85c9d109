"""A model that wraps an ensemble, for tests of properties that only edited ensembles have."""

from __future__ import annotations

from skshapgpu import register_adapter
from skshapgpu.adapters.ensemble import Ensemble
from skshapgpu.adapters.schema import AdaptedModel, InputSchema


class Given:
    """Model that wraps a given ensemble."""

    def __init__(self, ensemble: Ensemble) -> None:
        self.ensemble = ensemble


register_adapter(
    f"{Given.__module__}.Given",
    lambda given: AdaptedModel(given.ensemble, InputSchema(given.ensemble.n_features), "test"),
)
