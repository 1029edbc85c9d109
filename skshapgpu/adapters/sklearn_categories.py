"""Categories that models of scikit-learn encode themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import Any

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.preprocessing import OrdinalEncoder

from ..errors import UnsupportedModelError
from .schema import Column

#: Values of ``split_kind`` in the nodes of scikit-learn 1.10. Splits by native categories list the categories
#: that go left in a bitset, or determine them by a hash.
LEAF, NUMERIC, BITSET, HASH = -1, 0, 1, 2

#: Most categories that the splits of a model may list, 4 bytes each. A split by a hash can have 2**24.
_MOST_LISTED = 2**26

#: Whether a model may encode categories with each setting: what is unknown must be missing.
_SETTINGS: dict[str, Callable[[Any], bool]] = {
    "categories": lambda value: isinstance(value, str) and value == "auto",
    "handle_unknown": lambda value: value == "use_encoded_value",
    "unknown_value": lambda value: _is_nan(value),
    "encoded_missing_value": lambda value: _is_nan(value),
    "min_frequency": lambda value: value is None,
    "max_categories": lambda value: value is None,
    "_infrequent_enabled": lambda value: not value,  # by the settings with which it was trained
    "dtype": lambda value: value in (np.float32, np.float64),  # others round the codes
}

_ADVICE = "encode the categories before training, as with OrdinalEncoder in a pipeline"


def refuse_categories(name: str, reason: str) -> UnsupportedModelError:
    """Return the error for a model whose native categories cannot be read."""
    return UnsupportedModelError(f"cannot explain {name}: it has native categories, {reason}: {_ADVICE}")


class NativeCategories:
    """The categories by which trees of a model of scikit-learn 1.10 split, and which the model encodes."""

    def __init__(self, categories: dict[int, np.ndarray]) -> None:
        #: Encoder of each categorical column of X.
        self.encoders = {column: OrdinalCategories(values) for column, values in categories.items()}
        # A missing value, which comes last, is none.
        self._n_categories = {
            column: len(values) - int(len(values) > 0 and _is_nan(values[-1]))
            for column, values in categories.items()
        }
        self._n_listed = 0

    def lists(self, name: str, nodes: np.ndarray, columns: np.ndarray) -> dict[int, np.ndarray]:
        """Return the codes that go left at each split by categories, by the number of the node.

        ``columns`` are the columns of X by which the nodes split. Raise ``ValueError`` if they contradict the
        kinds of the splits, ``UnsupportedModelError`` if the lists would be too long.
        """
        kinds, inner = nodes["split_kind"], nodes["left_child"] >= 0
        by_category = np.isin(kinds, (BITSET, HASH))
        if (np.isin(columns, list(self._n_categories)) != by_category)[inner].any():
            raise ValueError(
                f"{name} contradicts itself: its splits by categories are not those of its columns"
            )
        lists = {}
        for node in np.flatnonzero(inner & by_category).tolist():
            n_categories, words = self._n_categories[int(columns[node])], nodes["left_cat_bitset"][node]
            if kinds[node] == HASH:
                goes_left = _hashed(words[0], n_categories)
            else:
                goes_left = bits_of(words)
                if n_categories > len(goes_left):
                    raise ValueError(f"{name} contradicts itself: {n_categories} categories have a bitset")
                goes_left = goes_left[:n_categories]
            lists[node] = np.flatnonzero(goes_left)
            self._n_listed += len(lists[node])
            if self._n_listed > _MOST_LISTED:
                raise refuse_categories(name, f"and its splits list more than {_MOST_LISTED:,} of them")
        return lists


def bits_of(words: np.ndarray) -> np.ndarray:
    """Return the bits of bitsets of 32-bit words, the lowest bit first: (..., 32 * n_words)."""
    octets = np.ascontiguousarray(words, "<u4").view(np.uint8)
    return np.unpackbits(octets, axis=-1, bitorder="little").astype(bool)


def _hashed(seed: np.uint32, n_categories: int) -> np.ndarray:
    """Return which codes a hash sends left: the last bit of the mixer "lowbias32" of seed and code."""
    mixed = np.arange(n_categories, dtype=np.uint32) ^ seed
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        mixed ^= mixed >> np.uint32(shift)
        mixed *= np.uint32(factor)
    return ((mixed ^ (mixed >> np.uint32(16))) & np.uint32(1)).astype(bool)


def native_categories(model: Any, members: Sequence[Any]) -> NativeCategories | None:
    """Return the categories that a model encodes before its trees see them; None if it has none.

    Raise ``UnsupportedModelError`` unless a single ``OrdinalEncoder`` of the model encodes the columns, so
    that unknown and missing categories are alike; ``ValueError`` if the model contradicts itself.
    """
    mask = getattr(model, "is_categorical_", None)
    if mask is None or not np.any(mask):
        return None
    name, mask = f"a {type(model).__name__}", np.asarray(mask)
    if mask.dtype != bool or mask.shape != (model.n_features_in_,):
        raise ValueError(f"is_categorical_ of {name} must hold a boolean for each of its columns")
    columns, encoders = np.flatnonzero(mask), _encoders_of(model)
    if len(encoders) != 1 or len(getattr(encoders[0][0], "categories_", ())) != len(columns):
        raise refuse_categories(name, f"but not one encoder of its {len(columns)} categorical columns")
    if any(_encoders_of(member) for member in members if member is not model):
        raise refuse_categories(name, "which its members encode again, each in its own way")
    encoder, encoded = encoders[0]
    if encoded is not None and not np.array_equal(np.arange(len(mask))[encoded], columns):
        raise ValueError(f"{name} contradicts itself: its encoder takes other columns than is_categorical_")
    settings = {key: getattr(encoder, key, None) for key in _SETTINGS}
    unknown = [f"{key}={value!r}" for key, value in settings.items() if not _SETTINGS[key](value)]
    if type(encoder) is not OrdinalEncoder:
        unknown.append(type(encoder).__name__)
    if unknown:
        raise refuse_categories(name, f"encoded in an unknown way, with {', '.join(unknown)}")
    categories = dict(zip(columns.tolist(), map(np.array, encoder.categories_), strict=True))
    for column, values in categories.items():
        present = values[:-1] if len(values) and _is_nan(values[-1]) else values
        is_sorted = present.dtype.kind not in "biufmM" or bool((present[:-1] < present[1:]).all())
        if not is_sorted or any(_is_nan(value) for value in present):
            raise ValueError(f"{name} contradicts itself: the categories of column {column} are not sorted")
    return NativeCategories(categories)


def _encoders_of(model: Any) -> list[tuple[OrdinalEncoder, Any]]:
    """Return the encoders among the attributes of a model, and in its column transformers with their columns.

    A column transformer puts these columns first, and scikit-learn puts them back in their places.
    """
    encoders: list[tuple[OrdinalEncoder, Any]] = []
    for value in vars(model).values():
        if isinstance(value, OrdinalEncoder):
            encoders.append((value, None))
        if isinstance(value, ColumnTransformer):
            listed = getattr(value, "transformers_", ())
            encoders += [(step, columns) for _, step, columns in listed if isinstance(step, OrdinalEncoder)]
    return encoders


def _is_nan(value: Any) -> bool:
    return isinstance(value, Real) and value != value


@dataclass(frozen=True)
class OrdinalCategories:
    """Encoder of a categorical column that a model encodes itself: the position of each category."""

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
        if categories.dtype.kind == "f" and values.dtype == object and _rounds(values):
            values = values.astype(np.float64)
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


def _rounds(values: np.ndarray) -> bool:
    """Return whether a model rounds objects to float64: numbers, of which some are missing."""
    objects = values.tolist()
    return all(isinstance(value, Real) for value in objects) and any(value != value for value in objects)
