"""ONNX models with one ``TreeEnsembleRegressor``, ``-Classifier`` or ``TreeEnsemble``, and their files.

The margin of an output is the score of the operator before its ``post_transform``: the sum of the trees, or
their average if ``aggregate_function`` says so, plus ``base_values``. X is compared as onnxruntime compares
it: with the type in which it reaches the operator, and integers are rounded to float32. All comparisons are
exact, so that it does not matter whether thresholds are float32 or float64. NaN takes the true branch if the
node says so, or if the node tests for inequality.

A classifier of two classes has one output, the score of the second class, if all leaves have weights of the
first class only, or weights of both classes that are opposite or add up to one. Models have no covers, so
they are explained against background data, or with covers counted from data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ..._common.distinct import distinct_numbers
from ...errors import UnsupportedModelError
from .._known import require_known
from ..schema import AdaptedModel, InputSchema
from . import chains, classes, graph, messages, splits, tables
from .tables import NodeTable

#: Names of aggregate functions and transformations, in the order of their numbers in ``TreeEnsemble``.
_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")

#: Known attributes of each operator. Scores do not depend on ``nodes_hitrates``.
_LISTED = tuple(
    "base_values nodes_falsenodeids nodes_featureids nodes_hitrates nodes_missing_value_tracks_true "
    "nodes_modes nodes_nodeids nodes_treeids nodes_truenodeids nodes_values post_transform".split()
)
_TENSORS = ("base_values_as_tensor", "nodes_hitrates_as_tensor", "nodes_values_as_tensor")
_ATTRIBUTES = {
    "TreeEnsembleRegressor": frozenset(_LISTED + _TENSORS).union(
        "aggregate_function n_targets target_ids target_nodeids target_treeids target_weights "
        "target_weights_as_tensor".split()
    ),
    "TreeEnsembleClassifier": frozenset(_LISTED + _TENSORS).union(
        "class_ids class_nodeids class_treeids class_weights class_weights_as_tensor classlabels_int64s "
        "classlabels_strings".split()
    ),
    "TreeEnsemble": frozenset(
        "aggregate_function leaf_targetids leaf_weights membership_values n_targets nodes_falseleafs "
        "nodes_falsenodeids nodes_featureids nodes_hitrates nodes_missing_value_tracks_true nodes_modes "
        "nodes_splits nodes_trueleafs nodes_truenodeids post_transform tree_roots".split()
    ),
}


def adapt(model: Any) -> AdaptedModel:
    """Read an ``onnx.ModelProto``.

    Raise ``UnsupportedModelError`` if the model cannot be explained exactly, ``ValueError`` if it is damaged.
    """
    if type(model).__name__ != "ModelProto":
        raise UnsupportedModelError(
            f"cannot explain a {type(model).__qualname__} of ONNX: pass the onnx.ModelProto"
        )
    from .. import files

    return files.adapt(model.SerializeToString())


@np.errstate(invalid="ignore", over="ignore")  # a damaged file may hold any numbers, which are checked later
def adapt_content(content: bytes) -> AdaptedModel:
    """Read the content of a file; see :func:`adapt`."""
    trees = graph.find(messages.loads(content))
    attributes, kind = trees.operator.attributes, trees.operator.kind
    require_known("the ONNX model", f"attributes of its {kind}", attributes, _ATTRIBUTES[kind])
    base_values = tables.base_values(attributes)
    transform = _named(attributes, "post_transform", _TRANSFORMS, kind) or "NONE"
    if kind == "TreeEnsembleClassifier":
        table, labels = chains.merged(tables.read_listed(attributes, "class")), _labels(attributes)
        _check_weights(table, attributes["class_ids"], len(labels))
        if len(labels) == 2 and len(attributes["class_ids"]) > len(table.weight):
            raise UnsupportedModelError(
                "the ONNX model has two classes and weights of inner nodes: its scores are not defined"
            )
        scores = classes.classifier_scores(table, base_values, labels, transform)
    else:
        if kind == "TreeEnsemble":
            table = tables.read_indexed(attributes)
            outputs = table.weight_output
        else:
            table = chains.merged(tables.read_listed(attributes, "target"))
            outputs = attributes["target_ids"]
        n_targets = attributes.get("n_targets", 0)
        if not isinstance(n_targets, int) or not 1 <= n_targets <= len(table.weight) + len(base_values):
            raise ValueError(f"its n_targets is {n_targets!r:.80}, but it has {len(table.weight)} weights")
        _check_weights(table, outputs, n_targets)
        aggregate = _named(attributes, "aggregate_function", _AGGREGATES, kind)
        if aggregate in ("MIN", "MAX"):
            raise UnsupportedModelError(
                f"the ONNX model takes the {aggregate} of its trees, which is not a sum over trees"
            )
        if aggregate == "AVERAGE":
            table = replace(table, weight=table.weight / table.n_trees)
        scores = classes.regressor_scores(table, base_values, n_targets)
    x_dtype = _x_dtype(trees, scores.table)
    ensemble, encoders = splits.ensemble(
        scores.table, scores.intercept, trees.n_features, x_dtype, len(content)
    )
    real = trees.input_type in (messages.FLOAT, messages.DOUBLE)
    return AdaptedModel(
        ensemble,
        InputSchema(trees.n_features, allow_nan=real, allow_inf=real, allow_sparse=False, encoders=encoders),
        family="onnx",
        output_names=scores.names,
        binary=scores.binary,
        class_names=scores.class_names,
        link=scores.link if trees.scores_are_returned else None,
        link_scale=scores.link_scale if trees.scores_are_returned else 1.0,
        has_cover=False,
    )


def _check_weights(table: NodeTable, outputs: np.ndarray, n_outputs: int) -> None:
    """Raise ``ValueError`` unless weights are finite, their outputs exist, and no leaf repeats an output.

    ``outputs`` are the outputs of all weights that onnxruntime checks: also those of inner nodes.
    """
    if not np.isfinite(table.weight).all():
        raise ValueError("a leaf has a weight that is not finite")
    if ((outputs < 0) | (outputs >= n_outputs)).any():
        raise ValueError(f"a node has a weight for an output outside 0..{n_outputs - 1}")
    keys = table.weight_node * n_outputs + table.weight_output
    if len(distinct_numbers(keys)) < len(keys):
        raise ValueError("a leaf has two weights for the same output")


def _x_dtype(trees: graph.Trees, table: NodeTable) -> str:
    """Return the dtype to which X is rounded before it is compared."""
    # Integers are rounded to float32 in onnxruntime.
    operator_dtype = "float64" if trees.operator_type == messages.DOUBLE else "float32"
    other_dtypes = {dtype.name for dtype in table.dtypes} - {operator_dtype}
    if other_dtypes:
        raise UnsupportedModelError(
            f"the ONNX model compares X as {operator_dtype} with tensors of {min(other_dtypes)}, which "
            "runtimes reject"
        )
    return "float32" if trees.input_type == messages.FLOAT else operator_dtype


def _named(attributes: Mapping[str, Any], name: str, value_names: tuple[str, ...], kind: str) -> str | None:
    """Return the name of an attribute's value, which an operator of the kind stores by name or by number."""
    if name not in attributes:
        return None
    value = attributes[name]
    values = [*range(len(value_names))] if kind == "TreeEnsemble" else [text.encode() for text in value_names]
    if type(value) is not type(values[0]) or value not in values:
        raise ValueError(f"its {name} is {value!r:.80}, none of {', '.join(value_names)}")
    return value_names[values.index(value)]


def _labels(attributes: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the labels of the classes, strings or integers."""
    strings = attributes.get("classlabels_strings")
    if isinstance(strings, list) and strings:
        labels = tuple(string.decode() for string in strings)
    else:
        labels = tuple(tables.integers(attributes, "classlabels_int64s").tolist())
    if len(set(labels)) < len(labels):
        raise ValueError("two of its classes have the same label")
    return labels
