"""Reader of the CTRs in CatBoost's JSON export. The file is untrusted: every number in it is checked."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from ...errors import UnsupportedModelError
from .._numbers import real, whole_number
from .ctr import HASH_MASK, Combination, CtrColumns

#: Key of an empty slot in CatBoost's tables.
_NO_KEY = (1 << 64) - 1


class _Questions(NamedTuple):
    """The attributes of a :class:`Combination` that say what it asks of a row."""

    categories: tuple[int, ...]
    above: tuple[tuple[int, float, bool], ...]
    equal: tuple[tuple[int, int], ...]


class _Ctr(NamedTuple):
    """A CTR that has been read; its fields are items of the arrays of :class:`CtrColumns`."""

    combination: int
    good: int
    total: int
    constants: tuple[float, ...]


class _CombinationParts(NamedTuple):
    """A combination that has been read, its keys, and the numbers of each CTR table that has these keys."""

    questions: _Questions
    keys: np.ndarray
    tables: list[np.ndarray]


class CtrReader:
    """Reader of the CTRs in CatBoost's JSON export that the trees test.

    ``numeric`` has for each numeric feature its column of X, and whether splits are false for a missing
    value. ``categorical`` has for each categorical feature its column of X, and anything else.
    """

    def __init__(
        self,
        document: dict[str, Any],
        numeric: Mapping[int, tuple[int, bool]],
        categorical: Mapping[int, tuple[Any, ...]],
    ) -> None:
        info = document["features_info"]
        self._ctrs = info.get("ctrs") or []
        for ctr in self._ctrs:
            if (np.diff(list(map(_single, ctr["borders"]))) <= 0).any():
                raise ValueError("a CTR of the CatBoost model has borders that do not ascend")
        self._tables = document.get("ctr_data") or {}
        self._numeric, self._categorical = numeric, categorical
        n_before = sum(
            len(feature.get(name) or [])
            for kind, name in (("float_features", "borders"), ("categorical_features", "values"))
            for feature in info.get(kind) or []
        )
        # The order of split numbers: borders of numeric features, one-hot values, borders of CTRs.
        self._starts = list(accumulate((len(ctr["borders"]) for ctr in self._ctrs), initial=n_before))
        self._columns: dict[int, int] = {}
        self._read_ctrs: list[_Ctr] = []
        self._combinations: list[_CombinationParts] = []
        self._combination_of: dict[tuple[_Questions, bytes], int] = {}
        self._read_tables: dict[str, tuple[str, _Questions, int, int]] = {}

    def column(self, split: Mapping[str, Any]) -> tuple[int, float]:
        """Return the CTR that a split tests, by its index among all CTRs read so far, and the border."""
        number, border = whole_number(split["split_index"], "split_index"), _single(split["border"])
        ctr = bisect_right(self._starts, number) - 1
        if not 0 <= ctr < len(self._ctrs) or border != _single(
            self._ctrs[ctr]["borders"][number - self._starts[ctr]]
        ):
            raise ValueError(f"split {number} of a CatBoost tree has the border {border} of no CTR")
        if ctr not in self._columns:
            self._columns[ctr] = len(self._read_ctrs)
            self._read_ctrs.append(self._read(self._ctrs[ctr]))
        return self._columns[ctr], border

    def categories(self) -> list[frozenset[int]]:
        """Return the columns of the categories that each CTR looks up, for all CTRs read so far."""
        return [
            frozenset(self._combinations[ctr.combination].questions.categories) for ctr in self._read_ctrs
        ]

    def columns(self, n_features: int) -> CtrColumns | None:
        """Return all CTRs read so far, or None if there are none."""
        if not self._read_ctrs:
            return None
        return CtrColumns(
            n_features,
            tuple(
                Combination(*questions, len(keys), sum(map(len, tables)))
                for questions, keys, tables in self._combinations
            ),
            np.concatenate([keys for _, keys, _ in self._combinations]),
            np.concatenate([row for _, _, tables in self._combinations for row in np.concatenate(tables)]),
            np.array([ctr.combination for ctr in self._read_ctrs], np.int64),
            np.array([ctr.good for ctr in self._read_ctrs], np.int64),
            np.array([ctr.total for ctr in self._read_ctrs], np.int64),
            np.array([ctr.constants for ctr in self._read_ctrs], np.float32),
        )

    def _read(self, ctr: Mapping[str, Any]) -> _Ctr:
        kind, name = ctr["ctr_type"], ctr["identifier"]
        if kind not in _TYPES:
            raise UnsupportedModelError(f"the CatBoost model has CTRs of the unknown type {kind!r}")
        table = self._tables[name]
        questions = self._questions(ctr["elements"])
        if name not in self._read_tables:
            self._read_tables[name] = kind, questions, *self._add(questions, kind, table)
        *read_as, combination, first = self._read_tables[name]
        if read_as != [kind, questions]:
            raise ValueError(f"two different CTRs of the CatBoost model have one table, {name!r:.80}")
        n_classes = whole_number(table["hash_stride"], "hash_stride") - 1
        good, total = _numbers_of(
            kind, n_classes, whole_number(ctr["target_border_idx"], "target_border_idx")
        )
        names = ("prior_numerator", "prior_denomerator", "shift", "scale")
        constants = (_single(table["counter_denominator"]), *(_single(ctr[name]) for name in names))
        return _Ctr(combination, first + good, total if total < 0 else first + total, constants)

    def _questions(self, elements: Iterable[Mapping[str, Any]]) -> _Questions:
        categories, above, equal = [], [], []
        for element in elements:
            kind = element["combination_element"]
            if kind == "cat_feature_value":
                categories.append(self._categorical[_index(element, "cat_feature_index")][0])
            elif kind == "float_feature":
                column, missing_left = self._numeric[_index(element, "float_feature_index")]
                above.append((column, _single(element["border"]), not missing_left))
            elif kind == "cat_feature_exact_value":
                column = self._categorical[_index(element, "cat_feature_index")][0]
                equal.append((column, hash_of(element["value"])))
            else:
                raise UnsupportedModelError(f"the CatBoost model has CTRs of the unknown element {kind!r}")
        return _Questions(tuple(categories), tuple(above), tuple(equal))

    def _add(self, questions: _Questions, kind: str, table: Mapping[str, Any]) -> tuple[int, int]:
        """Add a table; return the index of its combination, and the position of its numbers in that."""
        keys, numbers = _read_table(kind, table)
        combination = self._combination_of.setdefault((questions, keys.tobytes()), len(self._combinations))
        if combination == len(self._combinations):
            self._combinations.append(_CombinationParts(questions, keys, []))
        tables = self._combinations[combination].tables
        first = sum(map(len, tables))
        tables.append(numbers)
        return combination, first


def _index(element: Mapping[str, Any], name: str) -> int:
    return whole_number(element[name], name)


def hash_of(value: Any) -> int:
    """Return the low 32 bits of the hash of a category; CatBoost writes them as a signed number."""
    return whole_number(value, "the hash of a category", -(2**31), HASH_MASK) & HASH_MASK


def _single(number: Any) -> float:
    """Round to single precision, in which CatBoost stores numbers; infinities are rejected later."""
    with np.errstate(over="ignore"):
        return float(np.float32(real(number, "a number of a CTR")))


#: Number of items per key in a table, including the key. For other types, it depends on the model's targets.
_STRIDES = {"BinarizedTargetMeanValue": 3, "FloatTargetMeanValue": 3, "Counter": 2, "FeatureFreq": 2}

_TYPES = {"Borders", "Buckets", *_STRIDES}


def _numbers_of(kind: str, n_classes: int, border: int) -> tuple[int, int]:
    """Return the rows of :func:`_read_table` that a CTR takes as good and total, -1 for a constant total."""
    if kind in _STRIDES:
        return 0, 1 if _STRIDES[kind] == 3 else -1
    if not 0 <= border < n_classes - (kind == "Borders"):
        raise ValueError(f"a CTR of the CatBoost model has no target border {border}")
    return (border + 1, 0) if kind == "Borders" else (border, n_classes)


def _read_table(kind: str, table: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Return the keys in ascending order, and rows of single-precision numbers with an item for each key."""
    items, stride = table["hash_map"], whole_number(table["hash_stride"], "hash_stride")
    limit = max(len(items), 1024)  # a table without keys has a stride, too
    if (
        not isinstance(items, list)
        or stride != _STRIDES.get(kind, min(max(stride, 2), limit))
        or len(items) % stride
    ):
        raise ValueError(f"a CTR table of the CatBoost model has {stride} numbers for each key")
    key_items = items[::stride]
    if not set(map(type, key_items)) <= {str, int}:
        raise ValueError("a CTR table of the CatBoost model has keys that are not integers")
    numbers = list(map(int, key_items))
    if numbers and not 0 <= min(numbers) <= max(numbers) <= _NO_KEY:
        raise ValueError("a CTR table of the CatBoost model has keys of more than 64 bits")
    keys = np.array(numbers, np.uint64)
    columns = [_read_numbers(items[i::stride], _STRIDES.get(kind) == 3 and i == 1) for i in range(1, stride)]
    order = np.argsort(keys)
    order = order[keys[order] != np.uint64(_NO_KEY)]
    counts = np.array([column[order] for column in columns])
    if kind == "Borders":
        counts = counts[::-1].cumsum(axis=0)[::-1]
    elif kind == "Buckets":
        counts = np.vstack([counts, counts.sum(axis=0)])
    return keys[order], np.pad(counts, ((0, 0), (0, 1))).astype(np.float32)


def _read_numbers(items: list[Any], is_sum: bool) -> np.ndarray:
    """Return an array of counts, or of sums of targets."""
    numbers = np.array(items) if items else np.zeros(0, np.int64)
    if not ({int, float} if is_sum else {int}).issuperset(map(type, items)) or numbers.dtype.kind not in "if":
        raise ValueError("a CTR table of the CatBoost model holds entries that are not counts or sums")
    limit = np.finfo(np.float32).max if is_sum else np.iinfo(np.int32).max
    if not (np.abs(numbers) <= limit).all() or not (is_sum or (numbers >= 0).all()):
        raise ValueError("a CTR table of the CatBoost model holds a number that is out of range")
    return numbers
