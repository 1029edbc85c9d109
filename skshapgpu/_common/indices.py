"""The one table of indices: the names under which users ask for values and interactions.

An index says how the differences that a feature, or a set of features, makes to coalitions are weighted.
Everything that depends on the name of an index is read from here. The core has its own names, and only
``_engine`` translates to them.
"""

from __future__ import annotations

from typing import Literal, NamedTuple


class IndexEntry(NamedTuple):
    """Entry of the table of indices."""

    value_name: str  # name of one value; see also :attr:`values_name`
    #: How many features a value belongs to; the first order is the default.
    orders: tuple[Literal[1, 2, 3], ...]
    adds_up: bool  # whether the values of a row and the base value add up to the margin
    #: Name of the index in the core. Owen values have none, because the core computes them by functions of
    #: their own.
    core_name: str | None
    column_name: str  # how a value is named in the columns of a table: "shap_1" is the first SHAP value

    @property
    def values_name(self) -> str:
        """Name of several values."""
        return f"{self.value_name}s"


#: Each index, by its public name.
INDICES = {
    "SV": IndexEntry("SHAP value", (1,), True, "SII", "shap"),
    "BV": IndexEntry("Banzhaf value", (1,), False, "BII", "banzhaf"),
    "OV": IndexEntry("Owen value", (1,), True, None, "owen"),
    "SII": IndexEntry("Shapley interaction", (2, 3), True, "SII", "interaction"),
    "STII": IndexEntry("Shapley-Taylor interaction", (2,), True, "STII", "interaction"),
    "BII": IndexEntry("Banzhaf interaction", (2, 3), False, "BII", "interaction"),
}


def indices_of(order: int) -> tuple[str, ...]:
    """Return the names of the indices that have an order."""
    return tuple(name for name, entry in INDICES.items() if order in entry.orders)


#: Names of the indices of single features, and of sets of features.
VALUE_INDICES = indices_of(1)
INTERACTION_INDICES = tuple(name for name in INDICES if name not in VALUE_INDICES)
