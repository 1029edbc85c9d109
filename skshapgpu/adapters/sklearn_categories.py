"""Categories that models of scikit-learn encode themselves."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import Any

import numpy as np

from .schema import Column


@dataclass(frozen=True)
class OrdinalCategories:
    """Encoder of a categorical column of HistGradientBoosting: the position of each category."""

    #: (n_categories,): ascending, as ``OrdinalEncoder`` found them in training; a NaN comes last.
    categories: np.ndarray

    def encode(self, column: Column) -> np.ndarray:
        """Return the code of each value; NaN if it is missing or unknown, which the model treats alike.

        Raise ``ValueError`` for a number in a column of strings, for an infinity, and for a null in a
        dictionary of PyArrow. scikit-learn reads such a dictionary through NumPy, where a null looks like the
        last category.
        """
        if column.package == "pyarrow" and column.codes is not None and (column.codes < 0).any():
            raise ValueError(
                f"column {column.name!r} is a dictionary of PyArrow with nulls, which the model's own "
                "predict takes for the last category: pass X.to_pandas(), where they are missing"
            )
        values, categories = np.asarray(column.values), self.categories
        if categories.dtype.kind == "f" and values.dtype == object and _all_numbers(values):
            values = values.astype(np.float64)  # long integers beside missing values, which the model rounds
        if values.dtype.kind in "mM" and values.dtype.kind == categories.dtype.kind:
            return self._search(values)
        if values.dtype.kind not in "biuf":
            return self._look_up(values)
        if np.isinf(values).any():
            raise ValueError(f"column {column.name!r} contains infinity, which is no category")
        if categories.dtype.kind in "biuf":
            return self._search(values)
        present = values[~np.isnan(values)]
        if len(present) and any(isinstance(category, str) for category in categories):
            raise ValueError(
                f"column {column.name!r} contains the number {present[0]}, but its categories in training "
                f"were strings such as {categories[0]!r}"
            )
        return self._look_up(values)

    def _search(self, values: np.ndarray) -> np.ndarray:
        """Return the codes of numbers, dates or durations; a NaN or NaT equals no category."""
        codes = np.minimum(np.searchsorted(self.categories, values), len(self.categories) - 1)
        return np.where(self.categories[codes] == values, codes.astype(np.float64), np.nan)

    def _look_up(self, values: np.ndarray) -> np.ndarray:
        return np.array([self._codes.get(value, np.nan) for value in values.tolist()], np.float64)

    @cached_property
    def _codes(self) -> dict[Any, float]:
        """Code of each category."""
        # A NaN key would be found only by identity, and two missing values may be different objects.
        listed = enumerate(self.categories.tolist())
        return {category: float(code) for code, category in listed if category == category}

    def __getstate__(self) -> dict[str, Any]:
        return {"categories": self.categories}  # without the dict, so that equal encoders have equal pickles


def _all_numbers(values: np.ndarray) -> bool:
    return all(isinstance(value, Real) for value in values.tolist())
