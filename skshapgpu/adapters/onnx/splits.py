"""Conversion of a table of nodes to an :class:`Ensemble`, with encoders of columns compared by equality."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..._common.distinct import distinct_numbers
from ...errors import UnsupportedModelError
from ..ensemble import Ensemble, category_attributes
from ..schema import Column, numbers_of_categories
from .tables import EQ, GT, GTE, LEAF, LT, MEMBER, NEQ, NodeTable

#: Limit on the values of leaves, for all outputs, for each byte of the file.
_MOST_VALUES = 12


@dataclass(frozen=True)
class Ranks:
    """Encoder of a column that is compared by equality: ranks among the numbers that the trees compare with.

    The code of ``values[k]`` is 2 k + 1. Numbers below it, and above the value before it, have the code 2 k.
    """

    values: np.ndarray  # float64: numbers that the trees compare with, ascending
    x_dtype: str  # dtype to which numbers are rounded first

    def __post_init__(self) -> None:
        """Raise ``ValueError`` if an explainer file holds anything else."""
        values = self.values
        if not isinstance(values, np.ndarray) or values.dtype != np.float64 or values.ndim != 1:
            raise ValueError("the numbers of a column are not an array of float64")
        if not len(values) or np.isnan(values[0]) or not (np.diff(values) > 0).all():
            raise ValueError("the numbers of a column are not ascending")
        if self.x_dtype not in ("float32", "float64"):
            raise ValueError(f"x_dtype must be 'float32' or 'float64', not {self.x_dtype!r:.80}")

    def encode(self, column: Column) -> np.ndarray:
        """Return float64 codes, NaN where missing; raise ``ValueError`` if the column has no numbers."""
        reason = "an ONNX model knows only numbers: pass the codes that it was trained on"
        numbers = numbers_of_categories(column, reason, self.x_dtype)
        below = np.searchsorted(self.values, numbers)
        equal = self.values[np.minimum(below, len(self.values) - 1)] == numbers
        return np.where(np.isnan(numbers), np.nan, 2.0 * below + equal)

    def code(self, values: np.ndarray) -> np.ndarray:
        """Return the codes of numbers, each of which is one of the encoder's ``values``."""
        return 2 * np.searchsorted(self.values, values) + 1


def ensemble(
    table: NodeTable, intercept: np.ndarray, n_features: int, x_dtype: str, n_bytes: int
) -> tuple[Ensemble, dict[int, Ranks]]:
    """Return the trees of a table, and the encoder of each column that is compared by equality.

    Raise ``ValueError`` if the nodes are not trees, or test columns that do not exist. Raise
    ``UnsupportedModelError`` if the ensemble would be much larger than the file, or it cannot express the
    comparisons.
    """
    mode, inner = table.mode, table.mode != LEAF
    if (inner & ((table.feature < 0) | (table.feature >= n_features))).any():
        raise ValueError(f"a node tests a column outside 0..{n_features - 1}")
    threshold = np.where(inner, table.threshold, 0.0)
    encoders, codes = _encoders(table, x_dtype)
    coded = np.flatnonzero(inner & np.isin(table.feature, list(encoders)))
    threshold[coded] = codes[coded]
    by_equality = np.isin(mode, (EQ, NEQ, MEMBER))
    threshold, strict = _thresholds(threshold, inner & ~by_equality, np.isin(mode, (LT, GTE)))
    exchanged = np.isin(mode, (GT, GTE, NEQ))
    starts = np.repeat(table.offsets[:-1], np.diff(table.offsets))
    left, right = (
        np.where(inner, np.where(exchanged, other, child) - starts, -1)
        for child, other in ((table.true, table.false), (table.false, table.true))
    )
    value, tree_output = _values(table, len(intercept), n_bytes)
    trees = Ensemble(
        n_features=n_features,
        tree_offsets=table.offsets,
        tree_output=tree_output,
        left=left,
        right=right,
        feature=np.where(inner, table.feature, 0),
        threshold=np.where(by_equality, 0.0, threshold),
        missing_left=np.where(mode == NEQ, False, table.tracks_true ^ exchanged),
        cover=np.zeros(len(mode)),
        value=value,
        intercept=intercept,
        x_dtype=x_dtype,
        strict=strict,
        **_category_sets(table, by_equality, codes, encoders),
    )
    return trees, encoders


def _thresholds(threshold: np.ndarray, numeric: np.ndarray, is_below: np.ndarray) -> tuple[np.ndarray, bool]:
    """Return thresholds that all nodes compare with in the same way, and whether that is x < threshold.

    ``is_below`` says which nodes test x < threshold or its negation; all others test x <= threshold or its
    negation.
    """
    below = numeric & is_below
    if below.any() and not (numeric & ~is_below).any():
        return threshold, True
    if (threshold[below] == -np.inf).any():
        raise UnsupportedModelError("the ONNX model mixes < minus infinity with <= or >")
    threshold[below] = np.nextafter(threshold[below], -np.inf)
    return threshold, False


def _values(table: NodeTable, n_outputs: int, n_bytes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the values of all nodes, and the output of each tree, -1 if leaves have all outputs."""
    n_nodes, n_trees = len(table.mode), table.n_trees
    tree = np.searchsorted(table.offsets, table.weight_node, side="right") - 1
    pairs = np.unique(np.stack([tree, table.weight_output]), axis=1)
    if n_outputs == 1 or len(distinct_numbers(pairs[0])) == pairs.shape[1]:  # one output for each tree
        tree_output = np.zeros(n_trees, np.int32)
        tree_output[pairs[0]] = pairs[1]
        value = np.zeros((n_nodes, 1))
        value[table.weight_node, 0] = table.weight
        return value, tree_output
    if n_nodes * n_outputs > _MOST_VALUES * n_bytes:
        raise UnsupportedModelError(
            f"the ONNX model has {n_outputs:,} outputs, but a leaf has weights for few of them: with values "
            "for all outputs, the model would take too much memory"
        )
    value = np.zeros((n_nodes, n_outputs))
    value[table.weight_node, table.weight_output] = table.weight
    return value, np.full(n_trees, -1, np.int32)


def _encoders(table: NodeTable, x_dtype: str) -> tuple[dict[int, Ranks], np.ndarray]:
    """Return the encoders by column, and the code of each node's threshold; 0 if there is no encoder."""
    codes = np.zeros(len(table.mode))
    by_equality = np.isin(table.mode, (EQ, NEQ, MEMBER))
    is_encoded = (table.mode != LEAF) & np.isin(table.feature, distinct_numbers(table.feature[by_equality]))
    nodes = np.flatnonzero(is_encoded & (table.mode != MEMBER))
    members = list(table.members.values())
    sizes = [len(values) for values in members]
    feature = np.concatenate([table.feature[nodes], np.repeat(table.feature[list(table.members)], sizes)])
    value = np.concatenate([table.threshold[nodes], *members])
    encoders = {}
    for column, positions in _groups(feature.astype(np.int64)):
        encoders[column] = ranks = Ranks(distinct_numbers(value[positions]), x_dtype)
        threshold_positions = positions[positions < len(nodes)]
        codes[nodes[threshold_positions]] = ranks.code(value[threshold_positions])
        if 2 * len(ranks.values) >= 2 ** np.finfo(x_dtype).nmant:
            raise UnsupportedModelError(f"the ONNX model compares column {column} with too many numbers")
    return encoders, codes


def _groups(keys: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield each distinct key, and its positions in the array."""
    order = np.argsort(keys, kind="stable")
    for positions in np.split(order, np.flatnonzero(np.diff(keys[order])) + 1):
        if len(positions):
            yield int(keys[positions[0]]), positions


def _category_sets(
    table: NodeTable, by_equality: np.ndarray, codes: np.ndarray, encoders: dict[int, Ranks]
) -> dict[str, Any]:
    """Return the category attributes of :class:`Ensemble`; numbers that a node compares with go left."""
    nodes = np.flatnonzero(by_equality)
    if not len(nodes):
        return {}
    sets = [
        distinct_numbers(encoders[int(table.feature[node])].code(table.members[node]))
        if node in table.members
        else codes[node : node + 1].astype(np.int64)
        for node in nodes.tolist()
    ]
    numbers = np.full(len(table.mode), -1)
    numbers[nodes] = np.arange(len(nodes))
    return category_attributes(numbers, sets, np.ones(len(nodes), bool))
