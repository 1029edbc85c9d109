"""A model made of an ensemble, to test properties that only edited ensembles have."""

from __future__ import annotations

from skshapgpu import register_adapter
from skshapgpu.adapters.ensemble import Ensemble
from skshapgpu.adapters.schema import AdaptedModel, InputSchema


class EnsembleModel:
    """Model that wraps an ensemble."""

    def __init__(self, ensemble: Ensemble) -> None:
        self.ensemble = ensemble


register_adapter(
    f"{EnsembleModel.__module__}.EnsembleModel",
    lambda model: AdaptedModel(model.ensemble, InputSchema(model.ensemble.n_features), "test"),
)
