"""What can be computed: the kinds of results."""

from __future__ import annotations

from typing import NamedTuple


class Kind(NamedTuple):
    """What a plan computes: values of single features and, from order 2 on, of sets of them."""

    order: int = 1
    index: str = "sii"  # type: ignore[assignment]  # the method of tuples is not needed

    @property
    def adds_up(self) -> bool:
        """Whether base value plus values of a row is its margin."""
        return self.index != "bii"

    @property
    def on_gpus(self) -> bool:
        """Whether GPUs compute it, too, when it is path-dependent."""
        return self.order <= 2

    @property
    def against_background(self) -> bool:
        """Whether it can be interventional."""
        return self.order <= 2


SHAP_VALUES = Kind()
