"""treelite 4: ``treelite.Model``, wherever it was imported from, and the forests of cuML, which export one.

The margin is the result of ``treelite.gtil.predict(pred_margin=True)``: the sum of the trees, or their
average where the model says so, plus ``base_scores``. X is rounded to the type of the thresholds; NaN, and
entries that a sparse X does not store, go to the default child. If a node's comparison (<, <=, > or >=)
is true, the row goes left; > and >= are read as <= and < with the children exchanged.

The covers of a tree are ``sum_hess`` if all its nodes have it, otherwise ``data_count``. For models from
XGBoost, LightGBM and scikit-learn, these are the covers that the adapters of these libraries read. If a model
has both, counts are an alternative. A model that has neither is explained against background data, or with
covers counted from data.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import scipy.sparse

from .._common.distinct import distinct_numbers
from ..errors import UnsupportedModelError
from . import _treelite_checkpoint
from ._known import require_known
from .ensemble import Ensemble, Tree, category_attributes
from .schema import AdaptedModel, Column, InputSchema, counts_of, numbers_of_categories, pair_names

#: Values of treelite's enumerations of node kinds, operators and tasks, in version 4 of the format.
_CATEGORICAL = 2
_LT, _LE, _GT, _GE = 2, 3, 4, 5
_BINARY_CLASSIFIER = 0
_NODE_KINDS = frozenset({0, 1, _CATEGORICAL})
_TASKS = frozenset(range(5))

#: Functions that a model may apply to the margin.
_POSTPROCESSORS = frozenset(
    "identity identity_multiclass signed_square hinge sigmoid exponential exponential_standard_ratio "
    "logarithm_one_plus_exp max_index softmax multiclass_ova".split()
)

#: A function that returns a field of a model or of a tree by name.
_Field = Callable[[str], Any]

#: Postprocessors that turn each margin into a probability, independently of the other margins.
_LOGISTIC = frozenset({"sigmoid", "multiclass_ova"})


@dataclass(frozen=True)
class Codes:
    """Encoder of a categorical column: treelite knows categories only by their numbers."""

    def encode(self, column: Column) -> np.ndarray:
        """Return float64 codes, -1 where they are negative; raise ``ValueError`` if there are no numbers."""
        codes = numbers_of_categories(
            column, "treelite knows only the codes of categories in training: pass these as numbers"
        )
        codes[codes < 0] = -1.0  # -0.5 would be truncated to code 0
        return codes


def adapt(model: Any) -> AdaptedModel:
    """Read a ``treelite.Model``, or a forest of cuML.

    Its outputs are the targets, or the classes, or the classes of each target. A forest whose leaves hold the
    probabilities of two classes has one output, that of the second. Raise ``UnsupportedModelError`` if a node
    tests numbers for equality, the model is not a forest, or a part of it is of an unknown kind;
    ``ValueError`` if the model was modified and is no longer a valid ensemble of trees.
    """
    import treelite

    original, classes = model, None
    if not isinstance(model, treelite.Model):
        classes = _labels(model)
        model = _exported(model, treelite.Model)
    fields_of_trees = [model.get_tree_accessor(i).get_field for i in range(model.num_tree)]
    header = model.get_header_accessor().get_field
    adapted = _read(header, fields_of_trees, str(model.input_type), classes)
    if original is not model:  # cuML predicts on a GPU
        return adapted
    outputs = _Head(header, str(model.input_type)).outputs()[-adapted.ensemble.n_outputs :]
    return replace(adapted, predictions={"raw": partial(_margins, model, outputs)})


def _margins(model: Any, outputs: list[tuple[int, int]], X: Any) -> np.ndarray:
    """Return the margins of outputs from treelite's own predictor; an output is a target and a class."""
    import treelite

    dtype = np.float64 if str(model.input_type) == "float64" else np.float32
    rows = X if scipy.sparse.issparse(X) else np.asarray(X)
    targets, classes = zip(*outputs)
    margins: np.ndarray = treelite.gtil.predict(model, rows.astype(dtype), pred_margin=True)
    return margins[:, targets, classes]


def adapt_checkpoint(data: bytes) -> AdaptedModel:
    """Read a checkpoint, as ``Model.serialize`` writes it, without treelite; see :func:`adapt`."""
    checkpoint = _treelite_checkpoint.loads(data)
    fields_of_trees = [tree.__getitem__ for tree in checkpoint.trees]
    return _read(checkpoint.header.__getitem__, fields_of_trees, checkpoint.input_type)


def _read(
    header: _Field, fields_of_trees: Sequence[_Field], dtype: str, classes: tuple[Any, ...] | None = None
) -> AdaptedModel:
    head = _Head(header, dtype)
    require_known("the treelite model", "postprocessors", [head.postprocessor], _POSTPROCESSORS)
    require_known("the treelite model", "tasks", [head.task], _TASKS)
    trees = [_Nodes(field) for field in fields_of_trees]
    if len(head.target) != len(trees) or len(head.class_) != len(trees):
        raise ValueError("target_id or class_id of the treelite model does not fit its number of trees")
    ensemble, flat_trees = _ensemble(head, trees, _strict(trees))
    outputs = head.outputs()
    binary: Literal["margin", "probability"] | None = None
    link: Literal["identity", "logistic", "softmax"] | None = None
    if head.postprocessor in _LOGISTIC:
        link = "logistic"
    elif head.postprocessor == "softmax" and len(head.n_classes) == 1 < len(outputs):
        link = "softmax"  # unless there are several targets, each of which has its own softmax
    if _holds_probabilities(head, ensemble):
        link = "identity"
        if len(outputs) == 2:
            ensemble = _second_output(ensemble)
            outputs, binary = outputs[1:], "probability"
    elif len(outputs) == 1 and head.task == _BINARY_CLASSIFIER and not head.average:
        binary = "margin"
    labels = classes if classes is not None and len(classes) == (2 if binary else len(outputs)) else None
    is_categorical = ensemble.category_set >= 0
    columns = (
        distinct_numbers(ensemble.feature[is_categorical]) if len(is_categorical) else np.empty(0, np.int32)
    )
    if len(columns):
        numeric = distinct_numbers(ensemble.feature[(ensemble.left >= 0) & ~is_categorical])
        if len(mixed := np.intersect1d(columns, numeric)):
            raise UnsupportedModelError(
                f"feature {mixed[0]} is categorical, but a tree splits it as a number"
            )
    return AdaptedModel(
        ensemble,
        InputSchema(
            n_features=ensemble.n_features,
            sparse_zero_missing=True,
            encoders={int(column): Codes() for column in columns},
        ),
        family="treelite",
        output_names=(labels or _names(outputs)) if len(outputs) > 1 else None,
        binary=binary,
        class_names=(labels or (0, 1)) if binary else None,
        link=link,
        link_scale=head.sigmoid_alpha if link == "logistic" else 1.0,
        has_cover=all(tree.weight is not None or tree.count is not None for tree in trees),
        cover_kind=_cover_kind(trees),
        other_covers=counts_of(flat_trees),
    )


def _exported(model: Any, kind: type) -> Any:
    """Return the treelite model that an estimator of cuML exports."""
    name = f"{type(model).__module__}.{type(model).__qualname__}"
    export = getattr(model, "as_treelite", None) or getattr(model, "convert_to_treelite_model", None)
    if export is None:
        raise UnsupportedModelError(
            f"cannot explain a {name}: it is neither a treelite.Model nor a model that exports one, by "
            "as_treelite() or convert_to_treelite_model()"
        )
    exported = export()
    if not isinstance(exported, kind) and hasattr(exported, "to_treelite_checkpoint"):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.tl")
            exported.to_treelite_checkpoint(path)
            return kind.deserialize(path)  # type: ignore[attr-defined]
    if not isinstance(exported, kind):
        raise UnsupportedModelError(
            f"cannot explain a {name}: it exports a {type(exported).__qualname__}, not a treelite.Model"
        )
    return exported


def _labels(model: Any) -> tuple[Any, ...] | None:
    """Return the class labels of an estimator, which may be an array on a GPU."""
    classes = getattr(model, "classes_", None)
    if classes is None:
        return None
    for name in ("get", "to_numpy"):
        if hasattr(classes, name):
            classes = getattr(classes, name)()
            break
    return tuple(np.asarray(classes).tolist())


class _Head:
    """The fields of a model that are not fields of its trees."""

    def __init__(self, field: _Field, dtype: str) -> None:
        n_targets = int(field("num_target")[0])
        self.n_classes = np.array(field("num_class"), np.int64)  # for each target
        self.width = int(self.n_classes.max(initial=1))
        if n_targets < 1 or len(self.n_classes) != n_targets or self.n_classes.min() < 1:
            raise ValueError("num_class of the treelite model does not fit num_target")
        self.base_scores = np.array(field("base_scores"), np.float64)
        if self.base_scores.shape != (n_targets * self.width,):
            raise ValueError("base_scores of the treelite model does not fit num_target and num_class")
        self.n_features, self.dtype = int(field("num_feature")[0]), dtype
        self.task = int(field("task_type")[0])
        self.average = bool(field("average_tree_output")[0])
        #: Targets and classes of the leaves of all trees.
        self.leaf_shape = tuple(int(n) for n in field("leaf_vector_shape"))
        self.target = np.array(field("target_id"), np.int64)  # for each tree; -1 for a tree of all targets
        self.class_ = np.array(field("class_id"), np.int64)  # for each tree; -1 for a tree of all classes
        self.postprocessor = str(field("postprocessor"))
        self.sigmoid_alpha = float(field("sigmoid_alpha")[0])

    def outputs(self) -> list[tuple[int, int]]:
        """Return the target and class of each output."""
        return [(t, c) for t, n in enumerate(self.n_classes) for c in range(n)]

    def outputs_of(self, tree: int, numbers: np.ndarray, has_scalars: bool) -> np.ndarray:
        """Return the output of each element of a tree's leaf vectors; -1 for elements that are padding.

        ``has_scalars`` says whether a leaf of the tree has a number instead of a vector. ``numbers`` holds
        the number of the output of each target and class, shape (n_targets, width), and -1 where the target
        has fewer classes.
        """
        target, class_ = int(self.target[tree]), int(self.class_[tree])
        if not (-1 <= target < len(self.n_classes) and -1 <= class_ < self.width):
            raise ValueError(f"tree {tree} of the treelite model has a target or class that does not exist")
        shape = (len(self.n_classes) if target < 0 else 1, self.width if class_ < 0 else 1)
        if self.leaf_shape != shape or (has_scalars and min(target, class_) < 0):
            raise ValueError(
                f"tree {tree} of the treelite model has leaves of another shape than its outputs"
            )
        targets = slice(None) if target < 0 else slice(target, target + 1)
        classes = slice(None) if class_ < 0 else slice(class_, class_ + 1)
        return numbers[targets, classes].ravel()


class _Nodes:
    """The arrays of one tree. They are copies, as treelite returns views of the model's own memory."""

    def __init__(self, get_field: _Field) -> None:
        def field(name: str, dtype: Any) -> np.ndarray:
            return np.array(get_field(name), dtype)

        self.left, self.right = field("cleft", np.int64), field("cright", np.int64)
        n = len(self.left)
        self.kind, self.operator = field("node_type", np.int8), field("cmp", np.int8)
        require_known(
            "the treelite model", "kinds of nodes", distinct_numbers(self.kind).tolist(), _NODE_KINDS
        )
        self.feature = field("split_index", np.int64)
        self.threshold = field("threshold", np.float64)
        self.default_left = field("default_left", bool)
        self.leaf_value = field("leaf_value", np.float64)
        self.leaf_vector = field("leaf_vector", np.float64)
        self.vector = np.stack([field(f"leaf_vector_{end}", np.int64) for end in ("begin", "end")])
        self.codes = field("category_list", np.int64)
        self.listed = np.stack([field(f"category_list_{end}", np.int64) for end in ("begin", "end")])
        self.listed_right = field("category_list_right_child", bool)
        arrays = (self.right, self.kind, self.operator, self.feature, self.threshold, self.default_left)
        more = (self.leaf_value, self.vector[0], self.listed[0], self.listed_right)
        if n < 1 or any(len(array) != n for array in (*arrays, *more)):
            raise ValueError("a tree of the treelite model has fields of different lengths")
        self.leaf = self.left == -1
        self.weight, self.count = self._cover(field, "sum_hess"), self._cover(field, "data_count")

    @property
    def has_scalars(self) -> bool:
        """Whether a leaf has a number instead of a vector."""
        begin, end = self.vector[:, self.leaf]
        return bool((begin == end).any())

    def _cover(self, field: Callable[[str, Any], np.ndarray], name: str) -> np.ndarray | None:
        """Return the covers of one kind; None if a node has no cover, or a negative one."""
        present, cover = field(f"{name}_present", bool), field(name, np.float64)
        if len(present) != len(self.left) or len(cover) != len(self.left) or not present.all():
            return None
        return None if (cover < 0).any() else cover  # an objective that is not convex has negative hessians

    def segments(self, bounds: np.ndarray, nodes: np.ndarray, size: int) -> np.ndarray:
        """Return the bounds of the segments of nodes, which must fit side by side into ``size`` items."""
        begin, end = bounds[:, nodes]
        if ((begin < 0) | (end < begin) | (end > size)).any() or (end - begin).sum() > size:
            raise ValueError("nodes of the treelite model have segments that exceed the array or overlap")
        return bounds[:, nodes]

    def read(self, dtype: str, strict: bool) -> Tree:
        """Return the tree without leaf values. The children of nodes with > or >= are exchanged."""
        inner = ~self.leaf
        categorical = inner & (self.kind == _CATEGORICAL)
        numerical = inner & ~categorical
        is_comparison = np.isin(self.operator, (_LT, _LE, _GT, _GE))
        if (numerical & ~is_comparison).any():
            raise UnsupportedModelError(
                "the treelite model tests numbers for equality (operator ==), which no comparison with a "
                "threshold can express"
            )
        swap = numerical & np.isin(self.operator, (_GT, _GE))
        threshold = np.where(numerical, self.threshold, 0.0)
        below = numerical & np.isin(self.operator, (_LT, _GE))  # x < threshold, or its negation
        if not strict and below.any():
            if (threshold[below] == -np.inf).any():
                raise UnsupportedModelError("the treelite model mixes < minus infinity with <= or >")
            lower = np.nextafter(threshold[below].astype(dtype), np.dtype(dtype).type(-np.inf))
            threshold[below] = lower
        return Tree(
            left=np.where(swap, self.right, self.left),
            right=np.where(swap, self.left, np.where(self.leaf, -1, self.right)),
            feature=np.where(inner, self.feature, 0),
            threshold=threshold,
            missing_left=self.default_left ^ swap,
            cover=next((c for c in (self.weight, self.count) if c is not None), np.zeros(len(self.left))),
            value=np.zeros(len(self.left)),
            count=None if self.weight is None else self.count,
        )

    def leaf_values(self, n_values: int) -> np.ndarray:
        """Return the values of the leaves, and zeros at other nodes: (n_nodes, n_values)."""
        values = np.zeros((len(self.left), n_values))
        leaves = np.flatnonzero(self.leaf)
        begin, end = self.segments(self.vector, leaves, len(self.leaf_vector))
        scalar = begin == end
        if not ((end - begin == n_values) | (scalar & (n_values == 1))).all():
            raise ValueError(f"a leaf of the treelite model does not hold {n_values} values")
        if n_values == 1:
            values[leaves[scalar], 0] = self.leaf_value[leaves[scalar]]
        vector_leaves = leaves[~scalar]
        values[vector_leaves] = self.leaf_vector[begin[~scalar][:, None] + np.arange(n_values)]
        return values


def _strict(trees: list[_Nodes]) -> bool:
    """Return whether all numerical nodes of the model use < or >=, so that ``Ensemble.strict`` fits them."""
    operators = {
        int(o) for t in trees for o in distinct_numbers(t.operator[~t.leaf & (t.kind != _CATEGORICAL)])
    }
    return bool(operators) and operators <= {_LT, _GE}


def _cover_kind(trees: list[_Nodes]) -> Literal["count", "weight"] | None:
    if all(tree.weight is not None for tree in trees):
        return "weight"
    only_counts = all(tree.weight is None and tree.count is not None for tree in trees)
    return "count" if only_counts else None


def _ensemble(head: _Head, trees: list[_Nodes], strict: bool) -> tuple[Ensemble, list[Tree]]:
    """Return the ensemble, and the trees that it was made from."""
    exists = np.arange(head.width) < head.n_classes[:, None]
    output_numbers = np.full(exists.shape, -1)
    n_outputs = int(exists.sum())
    output_numbers[exists] = np.arange(n_outputs)
    outputs_of_trees: list[np.ndarray] = []
    values: list[np.ndarray] = []
    for i, tree in enumerate(trees):
        # The leaves of a tree are read before the next tree: each of them must hold all outputs of its tree.
        outputs_of_trees.append(head.outputs_of(i, output_numbers, tree.has_scalars))
        values.append(tree.leaf_values(len(outputs_of_trees[i])))
    if head.average:
        count = sum(
            (np.bincount(o[o >= 0], minlength=n_outputs) for o in outputs_of_trees), np.zeros(n_outputs, int)
        )
        if (count == 0).any():
            raise ValueError("the treelite model averages the trees of an output that has none")
        values = [value / np.where(o < 0, 1, count[o]) for value, o in zip(values, outputs_of_trees)]
    # A tree with only some of the outputs is split into one tree per output, rather than padded with zeros.
    is_vector = n_outputs > 1 and all((outputs >= 0).sum() == n_outputs for outputs in outputs_of_trees)
    plain_trees = [tree.read(head.dtype, strict) for tree in trees]
    flat_trees: list[Tree] = []
    tree_numbers: list[int] = []
    for i, (plain_tree, value, outputs) in enumerate(zip(plain_trees, values, outputs_of_trees)):
        if is_vector:
            flat_trees.append(replace(plain_tree, value=value[:, outputs >= 0]))
            tree_numbers.append(i)
            continue
        for column, output in enumerate(outputs.tolist()):
            if output >= 0:
                flat_trees.append(replace(plain_tree, value=value[:, column], output=output))
                tree_numbers.append(i)
    ensemble = Ensemble.from_trees(
        flat_trees,
        n_features=head.n_features,
        intercept=head.base_scores.reshape(exists.shape)[exists],
        x_dtype=head.dtype,
        strict=strict,
        **_category_sets(trees, tree_numbers, head.dtype),
    )
    return ensemble, flat_trees


def _category_sets(trees: list[_Nodes], tree_numbers: list[int], dtype: str) -> dict[str, Any]:
    """Return the category attributes of an :class:`Ensemble` whose trees are those of ``tree_numbers``."""
    listed_left: list[bool] = []
    lists: list[np.ndarray] = []
    set_of_node: list[np.ndarray] = []
    # treelite's predictor does not look up numbers that the type of X cannot tell from their neighbours.
    largest = min(2**32 - 1, 2 ** (np.finfo(dtype).nmant + 1))
    for tree in trees:
        numbers = np.full(len(tree.left), -1)
        nodes = np.flatnonzero(~tree.leaf & (tree.kind == _CATEGORICAL))
        numbers[nodes] = len(lists) + np.arange(len(nodes))
        set_of_node.append(numbers)
        for node, (begin, end) in zip(nodes, tree.segments(tree.listed, nodes, len(tree.codes)).T):
            codes = distinct_numbers(tree.codes[begin:end])
            lists.append(codes[codes <= largest])
            listed_left.append(not tree.listed_right[node])
    if not lists:
        return {}
    category_set = np.concatenate([set_of_node[i] for i in tree_numbers])
    return category_attributes(category_set, lists, listed_left)


def _holds_probabilities(head: _Head, ensemble: Ensemble) -> bool:
    """Return whether the model is a forest whose leaves hold the probabilities of all classes."""
    if not head.average or head.postprocessor != "identity_multiclass" or len(head.n_classes) > 1:
        return False
    if (ensemble.tree_output >= 0).any() or ensemble.intercept.any():
        return False
    total = ensemble.value[ensemble.left < 0].sum(axis=1) * ensemble.n_trees
    return bool(np.allclose(total, 1.0, rtol=0, atol=1e-5))  # leaf values may be float32


def _second_output(ensemble: Ensemble) -> Ensemble:
    return replace(
        ensemble,
        value=ensemble.value[:, 1:],
        intercept=ensemble.intercept[1:],
        tree_output=np.zeros(ensemble.n_trees, np.int32),
    )


def _names(outputs: list[tuple[int, int]]) -> tuple[Any, ...]:
    """Name the outputs by class number, by target number or, with several classes and targets, by both."""
    targets, classes = ({output[i] for output in outputs} for i in (0, 1))
    if len(targets) == 1:
        return tuple(c for _, c in outputs)
    return tuple(t for t, _ in outputs) if len(classes) == 1 else pair_names(outputs)
