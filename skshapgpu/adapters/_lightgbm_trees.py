"""Trees of a LightGBM model: the text of each one, checked, and the ensemble of all; see ``lightgbm.py``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .. import _core
from .._common.positions import repeated_names
from ..errors import UnsupportedModelError
from ._known import require_known
from .ensemble import ZERO_MAGNITUDE, Ensemble

#: Bits of ``decision_type``; the bits above them are the missing type.
_CATEGORICAL, _DEFAULT_LEFT, _MISSING_SHIFT = 1, 2, 2
_MISSING_NONE, _MISSING_ZERO, _MISSING_NAN = 0, 1, 2

#: Fields of trees that the adapter reads, or that predictions do not depend on. All others are rejected.
_FIELDS = frozenset(
    "cat_boundaries cat_threshold decision_type internal_count internal_value internal_weight is_linear "
    "leaf_coeff leaf_const leaf_count leaf_features leaf_value leaf_weight left_child num_cat num_features "
    "num_leaves right_child shrinkage split_feature split_gain threshold".split()
)

#: Numbers of a tree that only describe training, with their count; 0 stands for the number of inner nodes.
_STATISTICS = {"split_gain": 0, "internal_value": 0, "internal_weight": 0, "shrinkage": 1}

#: LightGBM ends the process at such a number of a linear leaf, also at digits that round to it.
_SMALLEST_NORMAL = np.finfo(np.float64).tiny

_INNER_FIELDS = {
    "split_feature": np.int64,
    "threshold": np.float64,
    "decision_type": np.int64,
    "left_child": np.int64,
    "right_child": np.int64,
    "internal_count": np.int64,
}


def read_fields(text: str) -> dict[str, str]:
    """Parse lines ``name=value``. A line without a value is a flag; empty lines are ignored."""
    pairs = [line.partition("=")[::2] for line in text.split("\n") if line]
    fields = dict(pairs)
    if len(fields) < len(pairs):
        twice = repeated_names(name for name, _ in pairs)[0]
        raise ValueError(f"the LightGBM model text has the field {twice:.80} twice")
    return fields


@dataclass(frozen=True)
class _Tree:
    """The arrays of one tree as stored in the text; a negative child is the bitwise complement of a leaf."""

    inner: dict[str, np.ndarray]
    leaf_value: np.ndarray
    leaf_count: np.ndarray
    leaf_weight: str  # sums of hessians, not parsed yet
    cat_boundaries: np.ndarray
    cat_words: np.ndarray
    linear: _LinearLeaves | None


@dataclass(frozen=True)
class _LinearLeaves:
    """The functions of the leaves of a linear tree; leaves without terms are constants."""

    constant: np.ndarray
    n_terms: np.ndarray
    feature: np.ndarray
    coefficient: np.ndarray


class _TreeText:
    """The text of one tree, from which its numbers are read; errors name the tree by its number."""

    def __init__(self, number: int, text: str) -> None:
        self._number = number
        self.n_characters = len(text)
        lines = text.rstrip("\n")
        self.require("\n\n" not in lines and len(lines) < len(text), "does not end at its first empty line")
        self.fields = read_fields(lines.partition("\n")[2])  # the first line is the number of the tree
        require_known("the LightGBM model text", "fields of a tree", self.fields, _FIELDS)

    def require(self, is_valid: Any, problem: str) -> None:
        if not is_valid:
            raise ValueError(f"tree {self._number} of the LightGBM model text {problem}")

    def numbers(self, name: str, dtype: Any, size: int) -> np.ndarray:
        """Return the ``size`` numbers of a field."""
        text = self.fields.get(name, "")
        # A tampered size must not allocate more than the text can fill.
        array = np.empty(min(size, len(text) // 2 + 1), dtype)
        n_read = _core.parse_numbers(text, array) if size else 0
        if n_read == size and text.count(" ") >= size > 0:  # a word that is no number may follow
            n_read = len(text.split())
        if n_read != size:
            self.require(False, f"needs {size} numbers as {name}, not {n_read if n_read <= size else 'more'}")
        return array


def read_tree(number: int, text: str) -> _Tree:
    """Read the text of a tree, which follows "Tree=" and begins with its number."""
    tree = _TreeText(number, text)
    n_leaves = int(tree.numbers("num_leaves", np.int64, 1)[0])
    n_sets = int(tree.numbers("num_cat", np.int64, 1)[0])
    tree.require(n_leaves >= 1 and n_sets >= 0, "has a negative size")
    inner = _inner_nodes(tree, n_leaves)
    boundaries = _category_boundaries(tree, n_sets, inner)
    leaf_value = tree.numbers("leaf_value", np.float64, n_leaves)
    if n_leaves > 1:  # LightGBM checks them, too; no prediction depends on them
        for name, size in (_STATISTICS | {"leaf_weight": n_leaves}).items():
            if name in tree.fields:
                tree.numbers(name, np.float64, size or n_leaves - 1)
    linear = _linear_leaves(tree, n_leaves)
    if linear is not None:
        leaf_value = np.where(linear.n_terms > 0, leaf_value, linear.constant)
    words = tree.numbers("cat_threshold", np.int64, int(boundaries[-1]))
    is_word = (words >= 0) & (words < 2**32)
    tree.require(is_word.all(), "has a cat_threshold that is no word of 32 bits")
    return _Tree(
        inner=inner,
        leaf_value=leaf_value,
        # LightGBM 4.0 omits the count of a tree with a single leaf; nothing depends on it.
        leaf_count=tree.numbers("leaf_count", np.int64, n_leaves) if n_leaves > 1 else np.zeros(1),
        leaf_weight=tree.fields.get("leaf_weight", ""),
        cat_boundaries=boundaries,
        cat_words=words,
        linear=linear,
    )


def _inner_nodes(tree: _TreeText, n_leaves: int) -> dict[str, np.ndarray]:
    """Return the arrays with an item for each inner node, by the names of their fields."""
    inner = {name: tree.numbers(name, dtype, n_leaves - 1) for name, dtype in _INNER_FIELDS.items()}
    for name in ("left_child", "right_child"):
        child = inner[name]
        tree.require(((child >= -n_leaves) & (child < n_leaves - 1)).all(), f"has a {name} outside the tree")
    missing = inner["decision_type"] >> _MISSING_SHIFT
    is_known = (missing >= _MISSING_NONE) & (missing <= _MISSING_NAN)
    tree.require(is_known.all(), "has an unknown decision_type")
    return inner


def _category_boundaries(tree: _TreeText, n_sets: int, inner: dict[str, np.ndarray]) -> np.ndarray:
    """Return where the words of each category set begin, and where the words of the last set end.

    The threshold of a categorical node is the number of its set.
    """
    boundaries = tree.numbers("cat_boundaries", np.int64, n_sets + 1) if n_sets else np.zeros(1, np.int64)
    rises = boundaries[0] == 0 and (np.diff(boundaries) >= 0).all()
    tree.require(rises, "has cat_boundaries that do not rise")
    sets = inner["threshold"][inner["decision_type"] & _CATEGORICAL > 0]
    is_set = (sets >= 0) & (sets < n_sets) & (sets == np.trunc(sets))
    tree.require(is_set.all(), "has an unknown category set")
    return boundaries


def _linear_leaves(tree: _TreeText, n_leaves: int) -> _LinearLeaves | None:
    """Return the functions of the leaves of a linear tree. If the tree is not linear, return None."""
    is_linear = tree.fields.get("is_linear", "0")
    tree.require(is_linear in ("0", "1"), f"has is_linear={is_linear:.80}, not 0 or 1")
    if is_linear == "0":
        return None
    n_terms = tree.numbers("num_features", np.int64, n_leaves)
    tree.require(((n_terms >= 0) & (n_terms <= tree.n_characters)).all(), "has num_features outside the text")
    size = int(n_terms.sum())
    linear = _LinearLeaves(
        tree.numbers("leaf_const", np.float64, n_leaves),
        n_terms,
        tree.numbers("leaf_features", np.int64, size),
        tree.numbers("leaf_coeff", np.float64, size),
    )
    tree.require(
        np.isfinite(linear.constant).all() and np.isfinite(linear.coefficient).all(),
        "has a linear leaf with numbers that are not finite, as those of models that are trained on infinite "
        "values",
    )
    numbers_of_leaves = np.abs(np.concatenate([linear.constant, linear.coefficient]))
    tree.require(
        ((numbers_of_leaves == 0) | (numbers_of_leaves > _SMALLEST_NORMAL)).all(),
        f"has a linear leaf with a number between 0 and {_SMALLEST_NORMAL:.1e}, which LightGBM cannot read",
    )
    return linear


class _NodeOrder:
    """The order of the nodes of all trees: in a tree, the inner nodes come first, numbered as in the text."""

    def __init__(self, trees: Sequence[_Tree]) -> None:
        n_leaves = np.array([len(t.leaf_value) for t in trees], np.int64)
        self.n_inner = n_leaves - 1
        self.offsets = np.concatenate([[0], np.cumsum(n_leaves + self.n_inner)])
        first_inner = np.cumsum(n_leaves) - n_leaves
        self._inner_at = np.arange(self.n_inner.sum()) + np.repeat(first_inner, self.n_inner)
        self._leaf_at = np.ones(self.offsets[-1], bool)
        self._leaf_at[self._inner_at] = False

    def nodes(self, dtype: Any, inner: Any, leaf: Any) -> np.ndarray:
        """Return an item for each node, from the items of all inner nodes and the items of all leaves."""
        array = np.empty(self.offsets[-1], dtype)
        array[self._inner_at], array[self._leaf_at] = inner, leaf
        return array


def ensemble_of_trees(trees: Sequence[_Tree], n_features: int, n_outputs: int, *, average: bool) -> Ensemble:
    """Concatenate the trees, which contribute to the outputs in turn."""
    order = _NodeOrder(trees)
    field = {name: _join([t.inner[name] for t in trees], dtype) for name, dtype in _INNER_FIELDS.items()}
    first_leaf = np.repeat(order.n_inner, order.n_inner)
    left, right = (
        np.where(child >= 0, child, first_leaf + ~child)
        for child in (field["left_child"], field["right_child"])
    )
    feature = field["split_feature"]
    if ((feature < 0) | (feature >= n_features)).any():
        raise ValueError(f"the LightGBM model text splits on a feature outside 0..{n_features - 1}")
    splits, options = _splits(trees, field, order)
    options |= _zero_missing(splits, feature, n_features)
    n_averaged = len(trees) / n_outputs if average else 1.0
    value = _join([t.leaf_value for t in trees]) / n_averaged
    options |= _linear_options(trees, order, n_features, n_averaged)
    return Ensemble(
        n_features=n_features,
        tree_offsets=order.offsets,
        tree_output=np.arange(len(trees)) % n_outputs,
        left=order.nodes(np.int32, left, -1),
        right=order.nodes(np.int32, right, -1),
        feature=order.nodes(np.int32, feature, 0),
        threshold=order.nodes(np.float64, splits.threshold, 0.0),
        missing_left=order.nodes(bool, splits.nan_left, False),
        cover=order.nodes(np.float64, field["internal_count"], _join([t.leaf_count for t in trees])),
        value=order.nodes(np.float64, 0.0, value)[:, np.newaxis],
        intercept=np.zeros(n_outputs),
        x_dtype="float64",
        **options,
    )


def _join(arrays: list[np.ndarray], dtype: Any = np.float64) -> np.ndarray:
    return np.concatenate([np.empty(0, dtype), *arrays])


class _Splits(NamedTuple):
    """Arrays with an item for each inner node of all trees; ``zero_is_missing`` is false for categories."""

    threshold: np.ndarray
    zero_left: np.ndarray
    nan_left: np.ndarray
    zero_is_missing: np.ndarray


def _splits(
    trees: Sequence[_Tree], field: dict[str, np.ndarray], order: _NodeOrder
) -> tuple[_Splits, dict[str, Any]]:
    """Return the splits, and the attributes of :class:`Ensemble` for category sets, if there are any."""
    default_left = field["decision_type"] & _DEFAULT_LEFT > 0
    missing = field["decision_type"] >> _MISSING_SHIFT
    threshold = _round_at_zero(field["threshold"])
    zero_left = np.where(missing == _MISSING_ZERO, default_left, threshold >= 0)
    nan_left = np.where(missing == _MISSING_NAN, default_left, zero_left)
    options: dict[str, Any] = {}
    categorical = field["decision_type"] & _CATEGORICAL > 0
    if categorical.any():
        first_set = np.cumsum([0] + [len(t.cat_boundaries) - 1 for t in trees[:-1]])
        set_number = field["threshold"] + np.repeat(first_set, order.n_inner)
        set_number = np.where(categorical, set_number, -1).astype(np.int64)
        sets, lists_zero = _category_sets(trees)
        zero_left[categorical] = lists_zero[set_number[categorical]]
        nan_left[categorical] = False
        threshold[categorical] = 0.0
        options = sets | {"category_set": order.nodes(np.int32, set_number, -1)}
    return _Splits(threshold, zero_left, nan_left, (missing == _MISSING_ZERO) & ~categorical), options


def _zero_missing(splits: _Splits, feature: np.ndarray, n_features: int) -> dict[str, np.ndarray]:
    """Return the attribute of :class:`Ensemble` for features whose zeros are missing, if there are any."""
    if not splits.zero_is_missing.any():
        return {}
    zero_missing = np.zeros(n_features, bool)
    zero_missing[feature[splits.zero_is_missing]] = True
    if (mixed := zero_missing[feature] & (splits.zero_left != splits.nan_left)).any():
        raise UnsupportedModelError(
            f"cannot explain this LightGBM model: zeros of feature {feature[np.argmax(mixed)]} are "
            "missing in some nodes and numbers in others"
        )
    return {"zero_missing": zero_missing}


def _linear_options(
    trees: Sequence[_Tree], order: _NodeOrder, n_features: int, n_averaged: float
) -> dict[str, np.ndarray]:
    """Return the attributes of :class:`Ensemble` for linear leaves, if there are any."""
    if not any(t.linear is not None and t.linear.n_terms.any() for t in trees):
        return {}
    leaf_functions = [t.linear or _constant_leaves(len(t.leaf_value)) for t in trees]
    n_terms = _join([linear.n_terms for linear in leaf_functions], np.int64)
    constants = _join([linear.constant for linear in leaf_functions]) / n_averaged
    constant = np.where(n_terms > 0, constants, 0.0)
    term_feature = _join([linear.feature for linear in leaf_functions], np.int64)
    if ((term_feature < 0) | (term_feature >= n_features)).any():
        raise ValueError(
            f"the LightGBM model text has leaf_features outside the features 0..{n_features - 1}"
        )
    return {
        "linear_offsets": np.concatenate([[0], np.cumsum(order.nodes(np.int64, 0, n_terms))]),
        "linear_feature": term_feature,
        "linear_coefficient": _join([linear.coefficient for linear in leaf_functions]) / n_averaged,
        "linear_intercept": order.nodes(np.float64, 0.0, constant),
    }


def _constant_leaves(n_leaves: int) -> _LinearLeaves:
    """Return the functions of leaves that have no terms."""
    no_terms = np.zeros(n_leaves, np.int64)
    return _LinearLeaves(np.zeros(n_leaves), no_terms, np.empty(0, np.int64), np.empty(0))


def hessians(ensemble: Ensemble, trees: Sequence[_Tree]) -> np.ndarray:
    """Return the sum of hessians at each node, added up from the leaves."""
    cover, nodes = np.zeros(ensemble.n_nodes), np.flatnonzero(ensemble.left < 0)
    weights = []
    for number, tree in enumerate(trees):
        n_leaves = len(tree.leaf_value)
        # The text may omit the weight of a single leaf; nothing depends on it.
        weight = np.zeros(n_leaves)
        if n_leaves > 1 and _core.parse_numbers(tree.leaf_weight, weight) != n_leaves:
            raise ValueError(f"tree {number} of the LightGBM model text has no leaf_weight for each leaf")
        weights.append(weight)
    cover[nodes] = weight = np.concatenate(weights)
    start = np.repeat(ensemble.tree_offsets[:-1], np.diff(ensemble.tree_offsets))
    inner = np.flatnonzero(ensemble.left >= 0)
    parent = np.full(ensemble.n_nodes, -1)
    for child in (ensemble.left, ensemble.right):
        parent[start[inner] + child[inner]] = inner
    while len(parents := parent[nodes]) and (parents >= 0).any():
        nodes, weight = parents[parents >= 0], weight[parents >= 0]
        np.add.at(cover, nodes, weight)
    return cover


def _round_at_zero(threshold: np.ndarray) -> np.ndarray:
    """Move thresholds so that all x of magnitude ZERO_MAGNITUDE or less go where ``predict`` sends 0.0."""
    threshold = np.where((threshold >= 0) & (threshold <= ZERO_MAGNITUDE), ZERO_MAGNITUDE, threshold)
    return np.where(
        (threshold < 0) & (threshold >= -ZERO_MAGNITUDE), np.nextafter(-ZERO_MAGNITUDE, -np.inf), threshold
    )


def _category_sets(trees: Sequence[_Tree]) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return the sets of all trees as ``Ensemble`` stores them, and whether each set lists code 0.

    The text has bit sets of 32-bit words: bit b of word w of a set is code 32 w + b.
    """
    words = np.concatenate([t.cat_words for t in trees])
    n_words = np.concatenate([np.diff(t.cat_boundaries) for t in trees])
    bits = np.unpackbits(words.astype("<u4").view(np.uint8), bitorder="little").reshape(-1, 32)
    word, bit = np.nonzero(bits)
    first_word = np.repeat(np.cumsum(n_words) - n_words, n_words)[word]
    set_of_bit = np.repeat(np.arange(len(n_words)), n_words)[word]
    codes = 32 * (word - first_word) + bit
    n_codes = np.bincount(set_of_bit, minlength=len(n_words))
    sets = {
        "category_offsets": np.concatenate([[0], np.cumsum(n_codes)]),
        "category_values": codes,
        "category_listed_left": np.ones(len(n_words), bool),
    }
    return sets, np.bincount(set_of_bit[codes == 0], minlength=len(n_words)) > 0
