"""The common representation of tree ensembles from all libraries.

An :class:`Ensemble` is a struct of arrays over the nodes of all trees. Adapters write it,
the compiled core reads it, and :meth:`Ensemble.margin` evaluates it slowly and plainly, so
that every adapter can be compared with the ``predict`` of the library it reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from .._common.distinct import distinct_numbers

#: LightGBM's ``kZeroThreshold``, a float32: values of this magnitude or less count as zero.
ZERO_MAGNITUDE = float(np.float32(1e-35))


@dataclass(frozen=True)
class Tree:
    """One tree as an adapter reads it; see :class:`Ensemble` for the meaning of each array.

    Attributes
    ----------
    left, right, feature, threshold, missing_left, cover : array-like of shape (n_nodes,)
        As in :class:`Ensemble`.
    value : array-like of shape (n_nodes,) or (n_nodes, n_outputs)
        Leaf values, of one output or of all outputs.
    output : int
        The output that the tree adds to; ignored if ``value`` has a column for each output.
    categories : dict of int to ndarray
        Category codes that each categorical node lists, by the number of the node.
    listed_left : bool
        Whether listed codes go left, and all others right, or the reverse.
    count : array-like of shape (n_nodes,) or None
        Number of training rows at each node, if ``cover`` is their weight.
    """

    left: npt.ArrayLike
    right: npt.ArrayLike
    feature: npt.ArrayLike
    threshold: npt.ArrayLike
    missing_left: npt.ArrayLike
    cover: npt.ArrayLike
    value: npt.ArrayLike
    output: int = 0
    categories: dict[int, np.ndarray] = field(default_factory=dict)
    listed_left: bool = True
    count: npt.ArrayLike | None = None


def _empty(dtype: str) -> Any:
    return field(default_factory=lambda: np.empty(0, dtype))


_DTYPES = {
    "tree_offsets": np.int64,
    "tree_output": np.int32,
    "left": np.int32,
    "right": np.int32,
    "feature": np.int32,
    "threshold": np.float64,
    "missing_left": np.bool_,
    "cover": np.float64,
    "value": np.float64,
    "intercept": np.float64,
    "player": np.int32,
    "zero_missing": np.bool_,
    "category_set": np.int32,
    "category_offsets": np.int64,
    "category_values": np.int32,
    "category_listed_left": np.bool_,
    "linear_offsets": np.int64,
    "linear_feature": np.int32,
    "linear_coefficient": np.float64,
    "linear_intercept": np.float64,
}

#: Attributes of linear leaves. Most models have no such leaves: the attributes are then empty, and are left
#: out of files and digests.
LINEAR_FIELDS = ("linear_offsets", "linear_feature", "linear_coefficient", "linear_intercept")


def _cast(name: str, values: npt.ArrayLike) -> np.ndarray:
    """Convert an attribute to its dtype; raise ``ValueError`` if that would change its integers."""
    values = np.asarray(values)
    dtype: np.dtype[Any] = np.dtype(_DTYPES[name])
    if values.dtype == dtype:
        return values
    if dtype.kind == "i" and values.size:
        limits = np.iinfo(dtype)
        if values.dtype.kind not in "iub" or values.min() < limits.min or values.max() > limits.max:
            raise ValueError(f"{name} must hold integers within the range of {dtype}")
    return values.astype(dtype)


@dataclass(frozen=True, eq=False)
class Ensemble:
    """All trees of a model in flat arrays; immutable, validated on construction, picklable.

    The nodes of tree ``i`` are ``tree_offsets[i]`` to ``tree_offsets[i + 1] - 1``; its root is
    the first of them. At an inner node, the first rule that applies sends a row x left or right:

    - x[feature] is missing (NaN, or a zero if ``zero_missing[feature]``): left if ``missing_left``;
    - the node is categorical: x has the code ``trunc(x[feature])``. Codes in the node's category set go
      left and all others right if ``category_listed_left`` of the set is true, otherwise the reverse.
      A negative or infinite code is in no set;
    - otherwise: left if ``x[feature] <= threshold``, or ``x[feature] < threshold`` if ``strict``.
      x is rounded to ``x_dtype`` first; the comparison itself is made in float64, exactly.

    The margin of output k is ``intercept[k]`` plus the values of the leaves that x reaches. A leaf is linear
    if it has terms. Its value is ``linear_intercept`` plus the sum over the terms of ``linear_coefficient``
    times x[linear_feature]; but if any of these features is NaN in x, its value is ``value``.

    Attributes
    ----------
    n_features : int
        Number of columns that trees may test: the columns of X, and columns that the schema derives from X.
    tree_offsets : ndarray of int64, shape (n_trees + 1,)
        First node of each tree; the last entry is ``n_nodes``.
    tree_output : ndarray of int32, shape (n_trees,)
        The output that a tree adds to; -1 in every tree if each leaf holds all outputs.
    left, right : ndarray of int32, shape (n_nodes,)
        Children, counted from the tree's root; -1 at a leaf.
    feature : ndarray of int32, shape (n_nodes,)
        Column of X; ignored at a leaf.
    threshold : ndarray of float64, shape (n_nodes,)
        Not NaN; ignored at leaves and categorical nodes.
    missing_left : ndarray of bool, shape (n_nodes,)
        Whether missing values go left.
    cover : ndarray of float64, shape (n_nodes,)
        Training weight that reached the node, >= 0. The fraction of rows that go to a child is its cover
        divided by the sum of both children's covers, or one half if both covers are 0. The two fractions
        always add up to 1, whatever the cover of the node itself.
    value : ndarray of float64, shape (n_nodes, 1) or (n_nodes, n_outputs)
        Leaf values, scaled as they are added; 0 at inner nodes.
    intercept : ndarray of float64, shape (n_outputs,)
        Constant that the model adds to its trees, in margin space.
    x_dtype : {"float32", "float64"}
        Precision in which the model's library reads X.
    strict : bool
        Whether numeric nodes compare with ``<`` instead of ``<=``.
    player : ndarray of int32, shape (n_features,) or (0,)
        Number, counted from 0, of the player that a feature belongs to: features of one player are known
        or unknown together, and get one value. Empty: each feature is a player of its own.
    zero_missing : ndarray of bool, shape (n_features,) or (0,)
        Whether a value of magnitude ``ZERO_MAGNITUDE`` or less is missing; empty: it never is.
    category_set : ndarray of int32, shape (n_nodes,) or (0,)
        Number of the node's category set, -1 at a numeric node; empty: all are numeric.
    category_offsets : ndarray of int64, shape (n_sets + 1,) or (0,)
    category_values : ndarray of int32
        Codes of set s, ascending: ``category_offsets[s]`` to ``category_offsets[s + 1] - 1``.
    category_listed_left : ndarray of bool, shape (n_sets,)
        Whether listed codes go left (and all others right) or the reverse.
    linear_offsets : ndarray of int64, shape (n_nodes + 1,) or (0,)
        Terms of node i: ``linear_offsets[i]`` to ``linear_offsets[i + 1] - 1``; empty: no leaf is linear.
        Only leaves have terms, and only if ``value`` has one column.
    linear_feature : ndarray of int32, shape (n_terms,)
        Column of X of each term.
    linear_coefficient : ndarray of float64, shape (n_terms,)
    linear_intercept : ndarray of float64, shape (n_nodes,) or (0,)
        Constant of each linear leaf, scaled as ``value`` is; 0 at nodes without terms.
    """

    n_features: int
    tree_offsets: np.ndarray
    tree_output: np.ndarray
    left: np.ndarray
    right: np.ndarray
    feature: np.ndarray
    threshold: np.ndarray
    missing_left: np.ndarray
    cover: np.ndarray
    value: np.ndarray
    intercept: np.ndarray
    x_dtype: str = "float32"
    strict: bool = False
    player: np.ndarray = _empty("int32")
    zero_missing: np.ndarray = _empty("bool")
    category_set: np.ndarray = _empty("int32")
    category_offsets: np.ndarray = _empty("int64")
    category_values: np.ndarray = _empty("int32")
    category_listed_left: np.ndarray = _empty("bool")
    linear_offsets: np.ndarray = _empty("int64")
    linear_feature: np.ndarray = _empty("int32")
    linear_coefficient: np.ndarray = _empty("float64")
    linear_intercept: np.ndarray = _empty("float64")

    def __post_init__(self) -> None:
        for name in _DTYPES:
            array = np.array(_cast(name, getattr(self, name)), order="C")  # a copy that no caller can change
            if array.ndim != (2 if name == "value" else 1):
                raise ValueError(
                    f"{name} must have {'two dimensions' if name == 'value' else 'one dimension'}"
                )
            array.flags.writeable = False
            object.__setattr__(self, name, array)
        self.validate()

    @property
    def n_trees(self) -> int:
        """Number of trees."""
        return len(self.tree_output)

    @property
    def n_nodes(self) -> int:
        """Number of nodes of all trees."""
        return len(self.left)

    @property
    def n_leaves(self) -> int:
        """Number of leaves of all trees."""
        return int(np.count_nonzero(self.left < 0))

    @property
    def n_outputs(self) -> int:
        """Number of outputs."""
        return len(self.intercept)

    @property
    def n_players(self) -> int:
        """Number of players of the game: columns, unless ``player`` says otherwise."""
        return int(self.player.max()) + 1 if len(self.player) else self.n_features

    @property
    def has_linear_leaves(self) -> bool:
        """Whether the value of any leaf is a function of x."""
        return len(self.linear_feature) > 0

    @classmethod
    def from_trees(
        cls, trees: Sequence[Tree], *, n_features: int, intercept: npt.ArrayLike, **options: Any
    ) -> Ensemble:
        """Concatenate trees.

        Parameters
        ----------
        trees : sequence of Tree
            Trees whose ``value`` has one dimension in all of them, or two dimensions in all. With two, it
            has a column for each output, and ``Tree.output`` is ignored.
        n_features : int
            Number of columns that the trees may test.
        intercept : float or array-like of shape (n_outputs,)
            Number that the model adds to the trees of each output, in margin space.
        **options
            Other attributes of the class.

        Returns
        -------
        Ensemble
            The trees, validated.
        """
        intercept = np.atleast_1d(np.asarray(intercept, np.float64))
        vector = bool(trees) and np.ndim(trees[0].value) == 2
        width = len(intercept) if vector else 1
        sizes = np.array([len(np.asarray(t.left)) for t in trees], np.int64)
        offsets = np.concatenate([[0], np.cumsum(sizes)])

        def flat(name: str) -> np.ndarray:
            parts = [_cast(name, getattr(t, name)) for t in trees]
            return np.concatenate(parts) if parts else np.empty(0, _DTYPES[name])

        values = [np.asarray(t.value, np.float64).reshape(-1, width) for t in trees]
        if any(t.categories for t in trees):
            category_set = np.full(offsets[-1], -1, np.int32)
            lists: list[np.ndarray] = []
            listed_left: list[bool] = []
            for start, tree in zip(offsets, trees):
                for node, codes in sorted(tree.categories.items()):
                    category_set[start + node] = len(lists)
                    lists.append(distinct_numbers(np.asarray(codes, np.int32)))
                    listed_left.append(tree.listed_left)
            options |= category_attributes(category_set, lists, listed_left)
        return cls(
            n_features=n_features,
            tree_offsets=offsets,
            tree_output=np.array([-1 if vector else t.output for t in trees], np.int32),
            left=flat("left"),
            right=flat("right"),
            feature=flat("feature"),
            threshold=flat("threshold"),
            missing_left=flat("missing_left"),
            cover=flat("cover"),
            value=np.concatenate(values) if values else np.empty((0, width)),
            intercept=intercept,
            **options,
        )

    def validate(self) -> None:
        """Raise ``ValueError``, naming tree and node, unless every documented rule holds."""
        if self.x_dtype not in ("float32", "float64"):
            raise ValueError(f"x_dtype must be 'float32' or 'float64', not {self.x_dtype!r}")
        if not isinstance(self.n_features, (int, np.integer)) or not 0 <= self.n_features < 2**31:
            raise ValueError(f"n_features must be an integer from 0 to 2**31 - 1, not {self.n_features!r}")
        if not isinstance(self.strict, (bool, np.bool_)):
            raise ValueError(f"strict must be a bool, not {self.strict!r}")
        if self.n_outputs < 1 or not np.isfinite(self.intercept).all():
            raise ValueError("intercept must hold one finite number for each output")
        offsets = self.tree_offsets
        if len(offsets) != self.n_trees + 1 or offsets[0] != 0 or offsets[-1] != self.n_nodes:
            raise ValueError("tree_offsets must start at 0, end at n_nodes and have n_trees + 1 entries")
        if self.n_trees and (np.diff(offsets) < 1).any():
            raise ValueError("every tree needs at least one node")
        for name in ("right", "feature", "threshold", "missing_left", "cover"):
            if len(getattr(self, name)) != self.n_nodes:
                raise ValueError(f"{name} must have n_nodes = {self.n_nodes} entries")
        self._validate_outputs()
        self._validate_nodes()
        self._validate_categories()
        self._validate_linear_leaves()
        self._validate_links()

    def _validate_outputs(self) -> None:
        vector = self.n_trees > 0 and bool((self.tree_output == -1).any())
        width = self.n_outputs if vector else 1
        if vector and not (self.tree_output == -1).all():
            raise ValueError("tree_output must be -1 in every tree or in none")
        if not vector and ((self.tree_output < 0) | (self.tree_output >= self.n_outputs)).any():
            raise ValueError(f"tree_output must be in 0..{self.n_outputs - 1}")
        if self.value.shape != (self.n_nodes, width):
            raise ValueError(f"value must have shape {(self.n_nodes, width)}, not {self.value.shape}")
        for name in ("player", "zero_missing"):
            if len(getattr(self, name)) not in (0, self.n_features):
                raise ValueError(f"{name} must be empty or have n_features entries")
        players = distinct_numbers(self.player)
        if not np.array_equal(players, np.arange(len(players))):
            raise ValueError("player must hold every number from 0 to its largest, and no other")

    def _validate_nodes(self) -> None:
        leaf = self.left < 0
        self._require(leaf == (self.right < 0), "has exactly one child")
        self._require((self.left >= -1) & (self.right >= -1), "has a child below -1")
        size = np.repeat(np.diff(self.tree_offsets), np.diff(self.tree_offsets))
        self._require((self.left < size) & (self.right < size), "has a child outside its tree")
        self._require(
            leaf | (self.feature >= 0) & (self.feature < self.n_features),
            f"splits on a feature outside 0..{self.n_features - 1}",
        )
        self._require(leaf | ~np.isnan(self.threshold), "has a NaN threshold")
        self._require((self.cover >= 0) & np.isfinite(self.cover), "has a negative or non-finite cover")
        self._require(np.isfinite(self.value).all(axis=1), "has a non-finite value")
        self._require(leaf | (self.value == 0).all(axis=1), "has a value, but is not a leaf")

    def _validate_categories(self) -> None:
        sets = self.category_set
        if not len(sets):
            if len(self.category_values) or len(self.category_listed_left):
                raise ValueError("category_set is empty, but there are category sets")
            return
        offsets, values = self.category_offsets, self.category_values
        n_sets = len(self.category_listed_left)
        if len(sets) != self.n_nodes or len(offsets) != n_sets + 1:
            raise ValueError("category_set needs n_nodes entries and category_offsets n_sets + 1")
        if offsets[0] != 0 or offsets[-1] != len(values) or (np.diff(offsets) < 0).any():
            raise ValueError("category_offsets must rise from 0 to the length of category_values")
        self._require((sets >= -1) & (sets < n_sets), "has an unknown category set")
        is_first = np.zeros(len(values) + 1, bool)
        is_first[offsets] = True
        if (values < 0).any() or (np.diff(values) <= 0)[~is_first[1:-1]].any():
            raise ValueError("category_values must be >= 0 and ascending inside each set")

    def _validate_linear_leaves(self) -> None:
        offsets, n_terms = self.linear_offsets, len(self.linear_feature)
        if not len(offsets):
            if n_terms or len(self.linear_coefficient) or len(self.linear_intercept):
                raise ValueError("terms of linear leaves need linear_offsets")
            return
        term_counts = np.diff(offsets)
        if (
            len(offsets) != self.n_nodes + 1
            or offsets[0] != 0
            or offsets[-1] != n_terms
            or (term_counts < 0).any()
        ):
            raise ValueError(
                "linear_offsets must rise from 0 to the number of terms, with n_nodes + 1 entries"
            )
        if len(self.linear_coefficient) != n_terms or len(self.linear_intercept) != self.n_nodes:
            raise ValueError(
                "linear_coefficient needs an entry for each term, linear_intercept one for each node"
            )
        if n_terms and self.value.shape[1] != 1:
            raise ValueError("linear leaves need trees of one output")
        self._require((term_counts == 0) | (self.left < 0), "has linear terms, but is not a leaf")
        node_of_term = np.repeat(np.arange(self.n_nodes), term_counts)
        for ok, problem in (
            (
                (self.linear_feature >= 0) & (self.linear_feature < self.n_features),
                f"has a linear term of a feature outside 0..{self.n_features - 1}",
            ),
            (np.isfinite(self.linear_coefficient), "has a non-finite coefficient"),
        ):
            node_is_valid = np.ones(self.n_nodes, bool)
            node_is_valid[node_of_term[~ok]] = False
            self._require(node_is_valid, problem)
        self._require(np.isfinite(self.linear_intercept), "has a non-finite linear_intercept")
        self._require(
            (term_counts > 0) | (self.linear_intercept == 0), "has a linear_intercept without terms"
        )

    def _validate_links(self) -> None:
        """Raise unless every node is reached exactly once from its tree's root."""
        starts = np.repeat(self.tree_offsets[:-1], np.diff(self.tree_offsets))
        inner = np.flatnonzero(self.left >= 0)
        children = np.concatenate([self.left[inner] + starts[inner], self.right[inner] + starts[inner]])
        parents = np.bincount(children, minlength=self.n_nodes)
        parents[self.tree_offsets[:-1]] += 1
        self._require(parents == 1, "is not reached exactly once from its root")
        if (children > np.concatenate([inner, inner])).all():
            return  # parents precede children: no cycle is possible
        reached, level = 0, self.tree_offsets[:-1]
        while len(level):
            reached += len(level)
            level = level[self.left[level] >= 0]
            level = np.concatenate([self.left[level] + starts[level], self.right[level] + starts[level]])
        if reached != self.n_nodes:
            raise ValueError("a tree contains a cycle")

    def _require(self, ok: np.ndarray, problem: str) -> None:
        if not ok.all():
            node = int(np.argmin(ok))
            tree = int(np.searchsorted(self.tree_offsets, node, side="right")) - 1
            raise ValueError(f"node {node - self.tree_offsets[tree]} of tree {tree} {problem}")

    def goes_left(self, node: np.ndarray, x: np.ndarray) -> np.ndarray:
        """Decide which values go left at inner nodes.

        Parameters
        ----------
        node : ndarray of int, shape (n,)
            Inner nodes.
        x : ndarray of shape (n,)
            Value of each node's feature, in ``x_dtype``.

        Returns
        -------
        ndarray of bool, shape (n,)
            Whether the value goes left.
        """
        x = x.astype(np.float64)
        threshold = self.threshold[node]
        left = x < threshold if self.strict else x <= threshold
        if len(self.category_set):
            for i in np.flatnonzero(self.category_set[node] >= 0):
                s = self.category_set[node[i]]
                listed = self.category_values[self.category_offsets[s] : self.category_offsets[s + 1]]
                code = np.trunc(x[i])
                left[i] = (code in listed) == self.category_listed_left[s]
        missing = np.isnan(x)
        if len(self.zero_missing):
            missing |= self.zero_missing[self.feature[node]] & (np.abs(x) <= ZERO_MAGNITUDE)
        return np.where(missing, self.missing_left[node], left)

    def margin(self, X: npt.ArrayLike) -> np.ndarray:
        """Evaluate the trees on encoded rows, slowly and plainly.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Numbers; NaN is missing, a categorical column holds codes.

        Returns
        -------
        ndarray of float64, shape (n_samples, n_outputs)
            Margins, intercept included.
        """
        X = np.asarray(X, np.float64)
        if X.ndim != 2 or X.shape[1] != self.n_features:
            raise ValueError(f"X must have shape (n_samples, {self.n_features}), not {X.shape}")
        with np.errstate(over="ignore"):
            X = X.astype(self.x_dtype)
        rows = np.arange(len(X))
        margin = np.tile(self.intercept, (len(X), 1))
        for start, output in zip(self.tree_offsets, self.tree_output):
            node = np.full(len(X), start)
            while (inner := self.left[node] >= 0).any():
                inner_nodes = node[inner]
                left = self.goes_left(inner_nodes, X[rows[inner], self.feature[inner_nodes]])
                node[inner] = start + np.where(left, self.left[inner_nodes], self.right[inner_nodes])
            columns = slice(None) if output < 0 else slice(output, output + 1)
            margin[:, columns] += self._leaf_values(node, X)
        return margin

    def _leaf_values(self, leaf: np.ndarray, X: np.ndarray) -> np.ndarray:
        """Return the values of the leaf that each row is in: (n_samples, n_outputs or 1)."""
        values = self.value[leaf]
        if not self.has_linear_leaves:
            return values
        for row, x in enumerate(X.astype(np.float64)):
            terms = slice(self.linear_offsets[leaf[row]], self.linear_offsets[leaf[row] + 1])
            term_values = x[self.linear_feature[terms]]
            if len(term_values) and not np.isnan(term_values).any():
                value = self.linear_intercept[leaf[row]]
                for coefficient, term_value in zip(self.linear_coefficient[terms], term_values):
                    value += coefficient * term_value
                values[row] = value
        return values

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (attributes_of(self),)


def category_attributes(
    category_set: np.ndarray, lists: Sequence[np.ndarray], listed_left: npt.ArrayLike
) -> dict[str, Any]:
    """Return the attributes of categorical splits, given the codes that each set lists."""
    return {
        "category_set": category_set,
        "category_offsets": np.cumsum([0, *map(len, lists)]),
        "category_values": np.concatenate(lists),
        "category_listed_left": listed_left,
    }


def _rebuild(state: dict[str, Any]) -> Ensemble:
    return Ensemble(**state)


def attributes_of(ensemble: Ensemble) -> dict[str, Any]:
    """Return the attributes of an ensemble by name, as the core takes them."""
    return {f.name: getattr(ensemble, f.name) for f in fields(ensemble)}


def tested_columns(ensemble: Ensemble) -> np.ndarray:
    """Return the columns that trees test, or that linear leaves have, ascending."""
    # Not by a flag for each column: a model may claim many more columns than it has nodes.
    columns = np.concatenate([ensemble.feature[ensemble.left >= 0], ensemble.linear_feature])
    return distinct_numbers(columns).astype(np.intp)
