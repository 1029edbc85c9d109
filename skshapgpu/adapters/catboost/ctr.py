"""CTRs of CatBoost: target statistics of the training rows that share a combination of categories.

A CTR hashes a combination of categories, and possibly of the results of numeric and one-hot splits, to 64
bits. The hash h is 0 at first, and changes for each category, whose value is its 32-bit hash as a signed
integer, then for the result of each split, whose value is 0 or 1:

    h <- M (h + M value) mod 2^64

The CTR looks the hash up in a table of the model. The table says how many training rows had this combination
("total"), and how many of them had a certain target ("good"); both are 0 if the combination did not occur in
training. From these two numbers, the CTR computes in single precision

    ((good + prior numerator) / (total + prior denominator) + shift) scale

and the trees compare the result like a column of X. Each CTR that the trees test is therefore a column that
is appended to the columns of X.
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

#: Number of rows whose CTRs are computed at once: a few columns of this length stay in the L2 cache.
_TILE_ROWS = 8192


def category_hashes(column: Column) -> np.ndarray:
    """Return the low 32 bits of CatBoost's hash of each category, computed from its string.

    Raise ``ValueError`` if a value is neither an integer (or bool) nor a string, or has more than 64 bits.
    """
    if "hashes" not in column.kept:
        column.kept["hashes"] = _hashes(column)
    return column.kept["hashes"]


def _hashes(column: Column) -> np.ndarray:
    values = column.values.tolist()
    # Check types first: in a set or dict, an equal integer would hide a float.
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
            encoded = value.encode()
        elif isinstance(value, bytes):
            encoded = value
        elif -(1 << 63) <= int(value) < 1 << 64:
            encoded = str(int(value)).encode()
        else:
            raise ValueError(f"column {column.name!r} holds {value}, which has more than 64 bits")
        hash_of[value] = cityhash64(encoded) & HASH_MASK
    return np.fromiter(map(hash_of.__getitem__, values), np.uint32, len(values))


@dataclass(frozen=True)
class Combination:
    """The combination of categories and split results that CTRs look up."""

    categories: tuple[int, ...]  # columns of X
    #: Numeric splits: a column of X, the float32 that a value must exceed, and the result for a missing
    #: value.
    above: tuple[tuple[int, float, bool], ...]
    #: One-hot splits: a column of X, and the low 32 bits of the hash of a category.
    equal: tuple[tuple[int, int], ...]
    n_keys: int  # number of keys in the table, which occurred in training
    n_numbers: int  # number of numbers for each key

    @property
    def encoded(self) -> set[int]:
        """Columns of X whose categories the combination reads."""
        return {*self.categories, *(column for column, _ in self.equal)}

    @property
    def columns(self) -> set[int]:
        """All columns of X that the combination reads."""
        return {*self.encoded, *(column for column, *_ in self.above)}

    def row_keys(self, block: np.ndarray, hashes: Mapping[int, np.ndarray]) -> np.ndarray:
        """Return the key of each row; ``hashes`` contains the hashes of categories, by column."""
        keys = np.zeros(len(block), np.uint64)
        for column in self.categories:
            keys = _mixed(keys, hashes[column].view(np.int32).astype(np.int64).view(np.uint64))
        for column, border, missing in self.above:
            x = block[:, column]
            answer = x > np.float32(border)
            keys = _mixed(keys, (answer | np.isnan(x) if missing else answer).astype(np.uint64))
        for column, category in self.equal:
            keys = _mixed(keys, (hashes[column] == category).astype(np.uint64))
        return keys

    def validate(self, n_features: int) -> None:
        """Raise ``ValueError`` unless the columns of X, the borders and the sizes are valid."""
        columns = [*self.encoded, *(column for column, *_ in self.above)]
        if not self.categories or not all(
            type(column) is int and 0 <= column < n_features for column in columns
        ):
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
    numbers: np.ndarray  # [number][key]; the numbers after the last key are for unknown keys
    ctrs: np.ndarray

    def positions(self, keys: np.ndarray) -> np.ndarray:
        """Return the position of each key in the table; for an unknown key, the position after the last."""
        n_keys = len(self.keys)
        if not n_keys:
            return np.zeros(len(keys), np.intp)
        positions = np.searchsorted(self.keys, keys)
        positions[self.keys.take(positions, mode="clip") != keys] = n_keys
        return positions


@dataclass(frozen=True, eq=False)
class CtrColumns:
    """The CTRs that the trees of a model test, as :class:`~skshapgpu.adapters.DerivedColumns`."""

    n_features: int  # number of columns of X
    combinations: tuple[Combination, ...]
    keys: np.ndarray  # uint64: keys of the table of each combination, ascending within a combination
    #: float32: numbers in the table of each combination, [number][key], with an additional key for unknown
    #: hashes.
    numbers: np.ndarray
    combination: np.ndarray  # int64, (n_columns,): index of the combination that each CTR looks up
    #: int64, (n_columns,): for each CTR, the number of the table that is "good" in the formula.
    good: np.ndarray
    #: int64, (n_columns,): for each CTR, the number of the table that is "total"; -1 if it is a constant.
    total: np.ndarray
    #: float32, (n_columns, 5): for each CTR: the constant total, the prior's numerator and denominator, shift
    #: and scale.
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
            array = np.array(getattr(self, name))  # a copy, so that nobody else can change it
            if array.dtype != dtype or array.shape != (shape or (array.size,)):
                raise ValueError(f"{name} of CTRs has the shape {array.shape} and the type {array.dtype}")
            if not np.isfinite(array).all():
                raise ValueError(f"{name} of CTRs holds numbers that are not finite")
            object.__setattr__(self, name, array)
        for combination in self.combinations:
            combination.validate(self.n_features)
        self._validate_sizes()
        for table in self._tables:
            if (table.keys[1:] <= table.keys[:-1]).any():
                raise ValueError("keys of CTRs are not ascending")

    def _validate_sizes(self) -> None:
        n_keys = sum(combination.n_keys for combination in self.combinations)
        n_numbers = sum((combination.n_keys + 1) * combination.n_numbers for combination in self.combinations)
        if (n_keys, n_numbers) != (len(self.keys), len(self.numbers)):
            raise ValueError("the keys and numbers of CTRs do not fit the sizes of their combinations")
        if (self.combination < 0).any() or (self.combination >= len(self.combinations)).any():
            raise ValueError("a CTR looks up an unknown combination")
        counts = np.array([combination.n_numbers for combination in self.combinations], np.int64)
        for number, least in ((self.good, 0), (self.total, -1)):
            if (number < least).any() or (number >= counts[self.combination]).any():
                raise ValueError("a CTR uses a number that does not exist")

    def __reduce__(self) -> tuple[Any, ...]:
        return CtrColumns, tuple(getattr(self, f.name) for f in fields(self))

    @property
    def n_columns(self) -> int:
        return len(self.combination)

    @cached_property
    def encoded(self) -> frozenset[int]:
        return frozenset().union(*(combination.encoded for combination in self.combinations))

    @property
    def sources(self) -> list[frozenset[int]]:
        return [frozenset(self.combinations[i].columns) for i in self.combination]

    @property
    def row_bytes(self) -> int:
        return 12 * len(self.encoded)  # hashes, and the decoded values that they are computed from

    @cached_property
    def _tables(self) -> list[_Table]:
        """Table of each combination."""
        order = np.argsort(self.combination, kind="stable")
        ends = np.cumsum(np.bincount(self.combination, minlength=len(self.combinations)))
        tables = []
        first_key = first_number = 0
        for combination, ctrs in zip(self.combinations, np.split(order, ends[:-1]), strict=True):
            n_keys, n_numbers = combination.n_keys, combination.n_numbers
            size = (n_keys + 1) * n_numbers
            keys = self.keys[first_key : first_key + n_keys]
            numbers = self.numbers[first_number : first_number + size]
            tables.append(_Table(keys, numbers.reshape(n_numbers, n_keys + 1), ctrs))
            first_key, first_number = first_key + n_keys, first_number + size
        return tables

    def fill(self, block: np.ndarray, columns: Mapping[int, Column]) -> None:
        hashes = {column: category_hashes(columns[column]) for column in self.encoded}
        for start in range(0, len(block), _TILE_ROWS):
            rows = slice(start, start + _TILE_ROWS)
            tile, tile_hashes = block[rows], {column: values[rows] for column, values in hashes.items()}
            for combination, table in zip(self.combinations, self._tables, strict=True):
                positions = table.positions(combination.row_keys(tile, tile_hashes))
                for i in table.ctrs:
                    tile[:, self.n_features + i] = self._value(i, table.numbers, positions)

    def _value(self, i: int, numbers: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Compute a CTR by the same operations as CatBoost, so that splits have the same results."""
        constant, numerator, denominator, shift, scale = self.constants[i]
        good = numbers[self.good[i]].take(positions)
        total = constant if self.total[i] < 0 else numbers[self.total[i]].take(positions)
        # A prior may lead to a division by 0, or to an overflow.
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            return ((good + numerator) / (total + denominator) + shift) * scale
