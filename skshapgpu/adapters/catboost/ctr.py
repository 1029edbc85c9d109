"""CTRs of CatBoost: target statistics of the training rows that share a combination of categories.

A CTR hashes a combination of categories, and possibly of the results of numeric and one-hot splits, to 64
bits and looks the hash up in a table of the model. There it finds how many training rows had this
combination, and how many of them had a certain target. The hash h is 0 at first; with the 32-bit hashes of
categories as signed integers,

    h <- M (h + M value) mod 2^64 for each category, then for the result of each split, 0 or 1.

From these two numbers, both 0 for a combination that did not occur in training, it computes

    ((good + prior numerator) / (total + prior denominator) + shift) scale

in single precision, which the trees compare like a column of X. Here each CTR that the trees test is a
column appended to those of X.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ..schema import Column
from .cityhash import cityhash64

HASH_MASK = (1 << 32) - 1

_CATEGORY_TYPES = (int, np.integer, np.bool_, str, bytes)

_MULTIPLIER = np.uint64(0x4906BA494954CB65)

#: Rows whose CTRs are computed at once: a few columns of this length stay in the L2 cache.
_TILE_ROWS = 8192


def category_hashes(column: Column) -> np.ndarray:
    """Return the low 32 bits of CatBoost's hash of each category, computed from its text.

    Raises
    ------
    ValueError
        A value is neither an integer (or bool) nor a string, or has more than 64 bits.
    """
    if "hashes" not in column.kept:
        column.kept["hashes"] = _hashes(column)
    return column.kept["hashes"]


def _hashes(column: Column) -> np.ndarray:
    values = column.values.tolist()
    # Check types first: in a set or dict, a float would be hidden by an equal integer.
    refused = {kind for kind in set(map(type, values)) if not issubclass(kind, _CATEGORY_TYPES)}
    if refused:
        bad = next(value for value in values if type(value) in refused)
        raise ValueError(
            f"column {column.name!r} is categorical but holds {bad!r}: CatBoost takes integers "
            "and strings as categories; convert floats and missing values to strings, as for fit"
        )
    hash_of = {}
    for value in set(values):
        if isinstance(value, str):
            text = value.encode()
        elif isinstance(value, bytes):
            text = value
        elif -(1 << 63) <= int(value) < 1 << 64:
            text = str(int(value)).encode()
        else:
            raise ValueError(f"column {column.name!r} holds {value}, which has more than 64 bits")
        hash_of[value] = cityhash64(text) & HASH_MASK
    return np.fromiter(map(hash_of.__getitem__, values), np.uint32, len(values))


@dataclass(frozen=True)
class Combination:
    """The combination of categories and split results that CTRs look up.

    Attributes
    ----------
    categories : tuple of int
        Columns of X.
    above : tuple of (int, float, bool)
        Numeric splits: a column of X, the float32 that it has to exceed, and the result if it is missing.
    equal : tuple of (int, int)
        One-hot splits: a column of X, and the low 32 bits of the hash of a category.
    n_keys, n_numbers : int
        Number of combinations that occurred in training, and of numbers that are found for each.
    """

    categories: tuple[int, ...]
    above: tuple[tuple[int, float, bool], ...]
    equal: tuple[tuple[int, int], ...]
    n_keys: int
    n_numbers: int

    @property
    def encoded(self) -> set[int]:
        """Columns of X whose categories it reads."""
        return {*self.categories, *(column for column, _ in self.equal)}

    @property
    def columns(self) -> set[int]:
        """Columns of X that it reads."""
        return {*self.encoded, *(column for column, *_ in self.above)}

    def keys_of(self, block: np.ndarray, hashes: Mapping[int, np.ndarray]) -> np.ndarray:
        """Return the hash of each row; ``hashes`` holds the hashes of the categorical columns."""
        key = np.zeros(len(block), np.uint64)
        for column in self.categories:
            key = _mixed(key, hashes[column].view(np.int32).astype(np.int64).view(np.uint64))
        for column, border, missing in self.above:
            x = block[:, column]
            answer = x > np.float32(border)
            key = _mixed(key, (answer | np.isnan(x) if missing else answer).astype(np.uint64))
        for column, category in self.equal:
            key = _mixed(key, (hashes[column] == category).astype(np.uint64))
        return key

    def validate(self, n_features: int) -> None:
        """Raise ``ValueError`` unless the columns of X, the borders and the sizes are valid."""
        columns = [*self.encoded, *(column for column, *_ in self.above)]
        if not self.categories or not all(type(c) is int and 0 <= c < n_features for c in columns):
            raise ValueError(f"a CTR has no categories, or columns outside 0..{n_features - 1}")
        if not np.isfinite([border for _, border, _ in self.above]).all():
            raise ValueError("a CTR has borders that are not finite")
        if not all(type(n) is int and n >= 0 for n in (self.n_keys, self.n_numbers)):
            raise ValueError(f"a CTR has {self.n_keys!r} keys and {self.n_numbers!r} numbers")


def _mixed(key: np.ndarray, value: np.ndarray) -> np.ndarray:
    return _MULTIPLIER * (key + _MULTIPLIER * value)


class _Table(NamedTuple):
    """The table of one combination, and the indices of the CTRs that look it up."""

    keys: np.ndarray
    numbers: np.ndarray  # [number][key]; the last key stands for unknown combinations
    ctrs: np.ndarray

    def places(self, key: np.ndarray) -> np.ndarray:
        """Return the position of each key in the table; for an unknown key, the position after the last."""
        n_keys = len(self.keys)
        if not n_keys:
            return np.zeros(len(key), np.intp)
        places = np.searchsorted(self.keys, key)
        places[self.keys.take(places, mode="clip") != key] = n_keys
        return places


@dataclass(frozen=True, eq=False)
class CtrColumns:
    """The CTRs that the trees of a model test, as :class:`~skshapgpu.adapters.DerivedColumns`.

    Attributes
    ----------
    n_features : int
        Columns of X.
    combinations : tuple of Combination
    keys : ndarray of uint64
        Hashes that occurred in training, one combination after the other, ascending within each.
    numbers : ndarray of float32
        Numbers found, [number][key] for each combination, with an additional key for unknown hashes.
    combination : ndarray of int64, shape (n_columns,)
        Index of the combination that each CTR looks up.
    good, total : ndarray of int64, shape (n_columns,)
        Indices, among the numbers found, of the two in the formula; ``total`` is -1 where it is a constant.
    constants : ndarray of float32, shape (n_columns, 5)
        That constant, the prior's numerator and denominator, shift and scale.
    """

    n_features: int
    combinations: tuple[Combination, ...]
    keys: np.ndarray
    numbers: np.ndarray
    combination: np.ndarray
    good: np.ndarray
    total: np.ndarray
    constants: np.ndarray

    def __post_init__(self) -> None:
        n = self.n_columns
        for name, dtype, shape in (
            ("keys", np.uint64, None),
            ("numbers", np.float32, None),
            ("combination", np.int64, (n,)),
            ("good", np.int64, (n,)),
            ("total", np.int64, (n,)),
            ("constants", np.float32, (n, 5)),
        ):
            array = np.array(getattr(self, name))  # a copy, which changes of the original do not reach
            if array.dtype != dtype or array.shape != (shape or (array.size,)):
                raise ValueError(f"{name} of CTRs has the shape {array.shape} and the type {array.dtype}")
            if not np.isfinite(array).all():
                raise ValueError(f"{name} of CTRs holds numbers that are not finite")
            object.__setattr__(self, name, array)
        for one in self.combinations:
            one.validate(self.n_features)
        self._validate_places()
        for table in self._of_combinations:
            if (table.keys[1:] <= table.keys[:-1]).any():
                raise ValueError("keys of CTRs are not ascending")

    def _validate_places(self) -> None:
        n_keys = sum(one.n_keys for one in self.combinations)
        n_numbers = sum((one.n_keys + 1) * one.n_numbers for one in self.combinations)
        if (n_keys, n_numbers) != (len(self.keys), len(self.numbers)):
            raise ValueError("the keys and numbers of CTRs do not fit the sizes of their combinations")
        if (self.combination < 0).any() or (self.combination >= len(self.combinations)).any():
            raise ValueError("a CTR looks up an unknown combination")
        n_found = np.array([one.n_numbers for one in self.combinations], np.int64)[self.combination]
        for number, least in ((self.good, 0), (self.total, -1)):
            if (number < least).any() or (number >= n_found).any():
                raise ValueError("a CTR uses a number that does not exist")

    def __reduce__(self) -> tuple[Any, ...]:
        return CtrColumns, tuple(getattr(self, f.name) for f in fields(self))

    @property
    def n_columns(self) -> int:
        return len(self.combination)

    @cached_property
    def encoded(self) -> frozenset[int]:
        return frozenset().union(*(one.encoded for one in self.combinations))

    @property
    def sources(self) -> list[frozenset[int]]:
        return [frozenset(self.combinations[i].columns) for i in self.combination]

    @property
    def row_bytes(self) -> int:
        return 12 * len(self.encoded)  # hashes, and the decoded values that they need

    @cached_property
    def _of_combinations(self) -> list[_Table]:
        order = np.argsort(self.combination, kind="stable")
        ends = np.cumsum(np.bincount(self.combination, minlength=len(self.combinations)))
        found = []
        key = number = 0
        for one, ctrs in zip(self.combinations, np.split(order, ends[:-1]), strict=True):
            size = (one.n_keys + 1) * one.n_numbers
            keys, numbers = self.keys[key : key + one.n_keys], self.numbers[number : number + size]
            found.append(_Table(keys, numbers.reshape(one.n_numbers, one.n_keys + 1), ctrs))
            key, number = key + one.n_keys, number + size
        return found

    def fill(self, block: np.ndarray, columns: Mapping[int, Column]) -> None:
        hashes = {column: category_hashes(columns[column]) for column in self.encoded}
        for start in range(0, len(block), _TILE_ROWS):
            rows = slice(start, start + _TILE_ROWS)
            tile, of_tile = block[rows], {column: found[rows] for column, found in hashes.items()}
            for one, table in zip(self.combinations, self._of_combinations, strict=True):
                places = table.places(one.keys_of(tile, of_tile))
                for i in table.ctrs:
                    tile[:, self.n_features + i] = self._value(i, table.numbers, places)

    def _value(self, i: int, numbers: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Repeat CatBoost's operations one by one, so that comparisons have the same result."""
        constant, numerator, denominator, shift, scale = self.constants[i]
        good = numbers[self.good[i]].take(places)
        total = constant if self.total[i] < 0 else numbers[self.total[i]].take(places)
        # A prior may lead to a division by 0, or to an overflow.
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            return ((good + numerator) / (total + denominator) + shift) * scale
