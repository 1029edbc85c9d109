"""CTRs of CatBoost: numbers that stand for categories, from what training rows with these had as target.

A CTR looks up a combination of categories, and perhaps of answers to numeric and one-hot questions, by a
64-bit hash in a table of the model, where it finds how many training rows had this combination and
how many of them had some target; with h = 0 at first and 32-bit hashes of categories as signed numbers,

    h <- M (h + M value) mod 2^64 for each category, then for each answer, which is 0 or 1.

From these two numbers, of which both are 0 for a combination that training did not have, it makes

    ((good + prior numerator) / (total + prior denominator) + shift) scale

in single precision, which the trees compare as they do a column of X. Here each such CTR is a column
behind those of X.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ..schema import Column
from ._cityhash import cityhash64

HASH_MASK = (1 << 32) - 1

_CATEGORY_TYPES = (int, np.integer, np.bool_, str, bytes)

_MULTIPLIER = np.uint64(0x4906BA494954CB65)

#: Rows whose CTRs are computed at once: some columns of as many stay in the L2 cache.
_TILE_ROWS = 8192


def category_hashes(column: Column) -> np.ndarray:
    """The low 32 bits of CatBoost's hash of each category, which is one of its text.

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
    # Equality would hide a float behind an equal integer, so types are looked at first.
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
    """What some CTRs look up.

    Attributes
    ----------
    categories : tuple of int
        Columns of X.
    above : tuple of (int, float, bool)
        Numeric questions: a column of X, the float32 that it has to exceed, and the answer where it is
        missing.
    equal : tuple of (int, int)
        One-hot questions: a column of X, and the low 32 bits of the hash of a category.
    n_keys, n_numbers : int
        Combinations of training, and numbers that are found for each.
    """

    categories: tuple[int, ...]
    above: tuple[tuple[int, float, bool], ...]
    equal: tuple[tuple[int, int], ...]
    n_keys: int
    n_numbers: int

    @property
    def encoded(self) -> set[int]:
        """Columns of X whose categories it looks at."""
        return {*self.categories, *(column for column, _ in self.equal)}

    def keys_of(self, block: np.ndarray, hashes: Mapping[int, np.ndarray]) -> np.ndarray:
        """The hash of each row; ``hashes`` are those of categorical columns."""
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
        """Raise ``ValueError`` unless all that it says of X can be."""
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
    """What a combination finds; and the numbers of the CTRs that do."""

    keys: np.ndarray
    numbers: np.ndarray  # [number][key], then of combinations that training did not have
    ctrs: np.ndarray

    def places(self, key: np.ndarray) -> np.ndarray:
        """Where each key stands among those of the table, or behind them."""
        n_keys = len(self.keys)
        if not n_keys:
            return np.zeros(len(key), np.intp)
        places = np.searchsorted(self.keys, key)
        places[self.keys.take(places, mode="clip") != key] = n_keys
        return places


@dataclass(frozen=True, eq=False)
class CtrColumns:
    """The CTRs that the trees of a model test: :class:`~skshapgpu.adapters.DerivedColumns`.

    Attributes
    ----------
    n_features : int
        Columns of X.
    combinations : tuple of Combination
    keys : ndarray of uint64
        Of each combination, one after the other: the hashes that training had, ascending.
    numbers : ndarray of float32
        Likewise [number][key]: what is found, with a further key for hashes that training did not have.
    combination : ndarray of int64, shape (n_columns,)
        Which combination each CTR looks up.
    good, total : ndarray of int64, shape (n_columns,)
        Which of the numbers found are the two of the formula; ``total`` is -1 where it is a constant.
    constants : ndarray of float32, shape (n_columns, 5)
        That total, the prior's numerator and denominator, shift and scale.
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
            array = np.array(getattr(self, name))  # its own, whoever changes the other
            if array.dtype != dtype or array.shape != (shape or (array.size,)):
                raise ValueError(f"{name} of CTRs has the shape {array.shape} and the type {array.dtype}")
            if not np.isfinite(array).all():
                raise ValueError(f"{name} of CTRs holds what is not finite")
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
            raise ValueError("there are other keys and numbers than combinations of CTRs need")
        if (self.combination < 0).any() or (self.combination >= len(self.combinations)).any():
            raise ValueError("a CTR looks up an unknown combination")
        n_found = np.array([one.n_numbers for one in self.combinations], np.int64)[self.combination]
        for number, least in ((self.good, 0), (self.total, -1)):
            if (number < least).any() or (number >= n_found).any():
                raise ValueError("a CTR uses a number that is not there")

    def __reduce__(self) -> tuple[Any, ...]:
        return CtrColumns, tuple(getattr(self, f.name) for f in fields(self))

    @property
    def n_columns(self) -> int:
        return len(self.combination)

    @cached_property
    def encoded(self) -> frozenset[int]:
        return frozenset().union(*(one.encoded for one in self.combinations))

    @property
    def row_bytes(self) -> int:
        return 12 * len(self.encoded)  # hashes, and decoded values that are kept for them

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
        """Operation by operation as CatBoost, so that comparisons have the same result."""
        constant, numerator, denominator, shift, scale = self.constants[i]
        good = numbers[self.good[i]].take(places)
        total = constant if self.total[i] < 0 else numbers[self.total[i]].take(places)
        # A prior may make a total of 0, or a number too large.
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            return ((good + numerator) / (total + denominator) + shift) * scale
