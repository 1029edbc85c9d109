"""The outputs of a model: its targets or classes, and how two classes become one output."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from ..._common.distinct import distinct_numbers
from ...errors import UnsupportedModelError
from .tables import LEAF, NodeTable

#: Links of classes that are outputs, by the transformation.
_LINKS: dict[str, Literal["logistic", "softmax"]] = {"LOGISTIC": "logistic", "SOFTMAX": "softmax"}

#: Largest rounding error of float32 numbers that add up to one.
_SUM_ERROR = 1e-5


@dataclass(frozen=True)
class Scores:
    """A table whose weights belong to the outputs that are explained, and properties of these outputs.

    The properties are attributes of ``AdaptedModel`` and ``Ensemble``; ``names`` are ``output_names``.
    """

    table: NodeTable
    intercept: np.ndarray
    names: tuple[Any, ...] | None = None
    binary: Literal["margin", "probability"] | None = None
    class_names: tuple[Any, ...] | None = None
    link: Literal["identity", "logistic", "softmax"] | None = None
    link_scale: float = 1.0


def regressor_scores(table: NodeTable, base: np.ndarray, n_targets: int) -> Scores:
    """Return the scores of a regressor.

    Raise ``ValueError`` if there are not as many base values as targets. Raise ``UnsupportedModelError`` if
    there are several targets, and a row may reach no weight of a target with a base value: onnxruntime would
    then return 0.
    """
    if len(base) not in (0, n_targets):
        raise ValueError(f"it has {len(base)} base values for {n_targets} targets")
    for target in np.flatnonzero(base).tolist() if n_targets > 1 else ():
        if not _always_has_weight(table, target):
            raise UnsupportedModelError(
                f"the ONNX model has a base value for target {target}, and no tree whose leaves all have a "
                "weight for this target: runtimes disagree whether a row without weights gets the base value"
            )
    return Scores(table, base if len(base) else np.zeros(n_targets))


def classifier_scores(table: NodeTable, base: np.ndarray, labels: tuple[Any, ...], transform: str) -> Scores:
    """Return the scores of a classifier.

    Raise ``ValueError`` if there are not as many base values as classes. Raise ``UnsupportedModelError`` if
    there are fewer than two classes; or there are two, with weights or base values that runtimes interpret in
    different ways.
    """
    if len(labels) < 2:
        raise UnsupportedModelError("the ONNX model has fewer than two classes")
    if len(labels) == 2:
        return _scores_of_two_classes(table, base, labels, transform)
    if len(base) not in (0, len(labels)):
        raise ValueError(f"it has {len(base)} base values for {len(labels)} classes")
    intercept = base if len(base) else np.zeros(len(labels))
    scores = Scores(table, intercept, labels, link=_LINKS.get(transform))
    is_probability = transform == "NONE" and _within(*_sums(table, intercept.sum()), 1.0, 1.0)
    return replace(scores, link="identity") if is_probability else scores


def _scores_of_two_classes(
    table: NodeTable, base: np.ndarray, labels: tuple[Any, ...], transform: str
) -> Scores:
    """Return the scores of two classes, as onnxruntime computes them.

    If all weights belong to the first class, onnxruntime adds them up to the score s of the second class. The
    score of the first class is then 1 - s if no weight is negative, otherwise -s. In both cases, the logistic
    transformation is applied to -s and s.
    """
    weighted_classes = distinct_numbers(table.weight_output)
    if len(base) > len(weighted_classes) % 2 or np.array_equal(weighted_classes, [1]):
        raise UnsupportedModelError(
            "the ONNX model has two classes, with weights of the second one only or with base values that do "
            "not fit the weights: its scores are not defined"
        )
    intercept = base if len(base) else np.zeros(1)
    scores = Scores(table, intercept, class_names=labels, binary="margin")
    if len(weighted_classes) < 2:
        if transform == "LOGISTIC":
            return replace(scores, link="logistic")
        if (table.weight >= 0).all():
            is_probability = transform == "NONE" and _within(*_sums(table, intercept[0]), 0.0, 1.0)
            return replace(scores, binary="probability", link="identity" if is_probability else None)
        return scores
    # Scores have another meaning for a row that reaches no weight of the second class.
    if not _always_has_weight(table, 1):
        raise UnsupportedModelError(
            "the ONNX model has two classes, and no tree whose leaves all have a weight of the second one: "
            "how scores are computed depends on the row"
        )
    low, high = _sums(table, 0.0)
    is_second = table.weight_output == 1
    second_class = replace(
        table,
        weight_node=table.weight_node[is_second],
        weight_output=np.zeros(int(is_second.sum()), np.int64),
        weight=table.weight[is_second],
    )
    if transform == "NONE" and _within(low, high, 1.0, 1.0):
        return replace(scores, table=second_class, binary="probability", link="identity")
    sums = np.bincount(table.weight_node, table.weight, len(table.mode))
    if not sums.any() and transform in ("NONE", "LOGISTIC", "SOFTMAX"):
        scale = 2.0 if transform == "SOFTMAX" else 1.0
        return replace(
            scores, table=second_class, link=None if transform == "NONE" else "logistic", link_scale=scale
        )
    return Scores(table, np.zeros(2), labels, link=_LINKS.get(transform))


def _always_has_weight(table: NodeTable, output: int) -> bool:
    """Return whether all leaves of some tree have a weight of an output, so that each row gets one."""
    has_weight = table.mode != LEAF
    has_weight[table.weight_node[table.weight_output == output]] = True
    return bool(np.logical_and.reduceat(has_weight, table.offsets[:-1]).any())


def _sums(table: NodeTable, intercept: float) -> tuple[float, float]:
    """Return bounds on the sum of the scores of all outputs, over all rows."""
    leaf_sum = np.bincount(table.weight_node, table.weight, len(table.mode))
    leaf = table.mode == LEAF
    low = np.minimum.reduceat(np.where(leaf, leaf_sum, np.inf), table.offsets[:-1])
    high = np.maximum.reduceat(np.where(leaf, leaf_sum, -np.inf), table.offsets[:-1])
    return float(low.sum() + intercept), float(high.sum() + intercept)


def _within(low: float, high: float, lowest: float, highest: float) -> bool:
    return lowest - _SUM_ERROR <= low and high <= highest + _SUM_ERROR
