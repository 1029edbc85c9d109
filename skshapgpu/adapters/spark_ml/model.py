"""Tree models of ``pyspark.ml``, in memory or in the folders in which Spark saves them.

The margin of a model is:

- for a regressor, its prediction: the value of a tree, the mean of a forest, or the weighted sum of
  gradient-boosted trees;
- for a tree or a forest that classifies, the probability of each class, or of the second class if there are
  two: the mean over the trees of the fractions of the classes in a leaf;
- for gradient-boosted trees that classify, the weighted sum m of the trees, from which Spark computes the
  probability 1 / (1 + exp(-2 m)) of the second class.

``thresholds`` only changes labels. The columns of X are the elements of the vectors in ``featuresCol``;
``nodes.py`` says how they are compared. Covers are weights of training rows. If Spark 3.0 or later has
trained the model, it also has numbers of rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from sklearn.exceptions import NotFittedError

from ...errors import UnsupportedModelError
from .._known import require_known
from ..schema import AdaptedModel, InputSchema
from . import folder, session
from .nodes import Nodes, ensemble


@dataclass(frozen=True)
class _Kind:
    """Kind of a model: "tree", "forest" or "boosting", and whether it classifies."""

    form: str
    classifies: bool


#: Kinds by the names of classes, the same in Python and Java.
_KINDS = {
    f"{prefix}{task}Model": _Kind(form, task == "Classification")
    for prefix, form in (("DecisionTree", "tree"), ("RandomForest", "forest"), ("GBT", "boosting"))
    for task in ("Regression", "Classification")
}

#: Known losses of boosting, in small letters. The margin is the sum of the trees for all of them.
_LOSSES = frozenset({"squared", "absolute", "logistic"})

#: Advice for models that contain other models: for a model in memory, and for a folder.
_INSIDE = {
    "PipelineModel": (
        "pass its last stage, model.stages[-1], and X as the stages before it assemble it",
        "pass the folder of its last stage in 'stages', and X as the stages before it assemble it",
    ),
    "CrossValidatorModel": ("pass its bestModel", "pass the folder 'bestModel' in it"),
    "TrainValidationSplitModel": ("pass its bestModel", "pass the folder 'bestModel' in it"),
}


def adapt(model: Any) -> AdaptedModel:
    """Read a fitted model of ``pyspark.ml`` from the Java process of its session.

    Raise ``UnsupportedModelError`` if the model is not a tree model, its session does not return the trees,
    or it cannot be explained exactly; ``NotFittedError`` if the model is an estimator that is not fitted.
    """
    cls = type(model)
    name = cls.__name__
    fitted = name.replace("Classifier", "ClassificationModel").replace("Regressor", "RegressionModel")
    if fitted in _KINDS and fitted != name:
        raise NotFittedError(f"this {name} is not fitted: pass the model that its fit returns")
    if not cls.__module__.startswith("pyspark.ml.") or name not in _KINDS:
        raise _refusal(name, in_folder=False)
    kind = _KINDS[name]
    nodes, weights = session.read(model, kind.form != "tree")
    loss = model.getLossType() if kind.form == "boosting" else None
    n_classes = model.numClasses if kind.classifies else 0
    return _adapted(kind, nodes, weights, model.numFeatures, n_classes, loss)


def adapt_folder(path: str) -> AdaptedModel:
    """Read the folder that ``model.save`` or ``model.write().save`` wrote.

    Raise ``ValueError``, ``LookupError`` or ``TypeError`` if the folder is damaged; ``UnsupportedModelError``
    if the model in the folder is not a tree model, or cannot be explained exactly; ``ImportError`` if PyArrow
    is not installed; ``OSError`` if a file cannot be read.
    """
    metadata = folder.metadata(path)
    name = str(metadata["class"]).rpartition(".")[2]
    if name not in _KINDS:
        raise _refusal(name, in_folder=True)
    kind = _KINDS[name]
    has_counts = not str(metadata.get("sparkVersion")).startswith(("1.", "2."))
    nodes = folder.nodes(path, kind.form != "tree", has_counts)
    weights = folder.tree_weights(path) if kind.form == "boosting" else None
    params = metadata.get("defaultParamMap", {}) | metadata["paramMap"]
    # Spark divides the sums of a forest by the parameter.
    for fields in (metadata, params if kind.form == "forest" else {}):
        if fields.get("numTrees", nodes.n_trees) != nodes.n_trees:
            raise ValueError(f"it has {nodes.n_trees} trees instead of {fields['numTrees']!r:.80}")
    n_classes = folder.integer(metadata, "numClasses") if kind.classifies and kind.form != "boosting" else 2
    return _adapted(
        kind, nodes, weights, folder.integer(metadata, "numFeatures"), n_classes, params.get("lossType")
    )


def _refusal(name: str, *, in_folder: bool) -> UnsupportedModelError:
    advice = _INSIDE[name][in_folder] if name in _INSIDE else "it is not a tree model of pyspark.ml"
    return UnsupportedModelError(f"cannot explain a {name:.80} of Spark: {advice}")


@np.errstate(invalid="ignore", over="ignore")  # a damaged file may hold any numbers, which are checked later
def _adapted(
    kind: _Kind, nodes: Nodes, weights: np.ndarray | None, n_features: int, n_classes: int, loss: Any
) -> AdaptedModel:
    if kind.form == "boosting":
        require_known("the model of Spark", "losses", [] if loss is None else [str(loss).lower()], _LOSSES)
        if weights is None or len(weights) != nodes.n_trees:
            raise ValueError("it does not have one weight for each tree")
        value = nodes.prediction * weights[nodes.tree]
        cover = _row_weights(nodes)
    elif kind.classifies:
        value, cover = _class_fractions(nodes, n_classes)
        value /= nodes.n_trees
    else:
        value = nodes.prediction / nodes.n_trees
        cover = _row_weights(nodes)
    trees, encoders = ensemble(nodes, value, cover, n_features)
    count = nodes.count
    adapted = AdaptedModel(
        trees,
        InputSchema(n_features, allow_sparse=False, encoders=encoders),
        family="pyspark",
        squared_error=not kind.classifies and (kind.form != "boosting" or str(loss).lower() == "squared"),
        cover_kind="weight",
        other_covers={} if count is None else {"count": partial(np.asarray, count, np.float64)},
    )
    if not kind.classifies:
        return adapted
    if kind.form == "boosting":
        return replace(adapted, binary="margin", class_names=(0, 1), link="logistic", link_scale=2.0)
    if n_classes == 2:
        return replace(adapted, binary="probability", class_names=(0, 1), link="identity")
    return replace(adapted, output_names=tuple(range(n_classes)), link="identity")


def _row_weights(nodes: Nodes) -> np.ndarray:
    """Return the weight of the training rows at each node of trees for regression.

    It is followed by the sums of their targets and of the squares of their targets.
    """
    if (nodes.stats.length != 3).any():
        raise ValueError("a node does not have the three sums of its training rows")
    return nodes.stats.values[nodes.stats.start]


def _class_fractions(nodes: Nodes, n_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the fraction of each class in the weight of the training rows at each node, and this weight.

    If there are two classes, only the fraction of the second one is returned. Raise ``UnsupportedModelError``
    if there are fewer than two classes, or if the rows in a leaf have no weight, and ``ValueError`` for a
    negative weight.
    """
    if (nodes.stats.length != n_classes).any():
        raise ValueError(f"it has {n_classes} classes, but a node has weights of another number of classes")
    if n_classes < 2:
        raise UnsupportedModelError("cannot explain a classifier of Spark with fewer than two classes")
    stats = nodes.stats.values.reshape(-1, n_classes)[nodes.stats.start // n_classes]
    if (stats < 0).any():
        raise ValueError("a node has a negative weight of a class")
    total = stats.sum(axis=1)
    if (total[nodes.left < 0] <= 0).any():
        raise UnsupportedModelError(
            "cannot explain a classifier of Spark with a leaf whose training rows have the weight 0, so that "
            "it has no probabilities"
        )
    stats /= np.where(total > 0, total, 1.0)[:, None]
    return stats[:, 1:] if n_classes == 2 else stats, total
