"""The nodes of a model in the memory of Spark's driver.

Spark has a class that turns a tree into a list of nodes, to save it, and contains Jackson, a library that
turns this list into JSON. A tree is therefore read as one string, without a call for each node, without a
Spark job and without files.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from ...errors import UnsupportedModelError
from .._known import require_known
from .nodes import FIELDS, Lists, Nodes


def read(model: Any, has_trees: bool) -> tuple[Nodes, np.ndarray | None]:
    """Return the nodes of a fitted tree model, and the weights of its trees unless it is a single tree.

    Raise ``UnsupportedModelError`` if the model is on a server of Spark Connect, or its session does not
    return the nodes.
    """
    from py4j.java_gateway import JavaObject
    from py4j.protocol import Py4JError

    advice = "save it with model.write().save(path), and pass the path of the folder"
    name, java_model = type(model).__name__, model._java_obj
    if not isinstance(java_model, JavaObject):
        raise UnsupportedModelError(f"cannot read a {name} on a server of Spark Connect: {advice}")
    try:
        trees = list(java_model.trees()) if has_trees else [java_model]
        weights = np.array(list(java_model.treeWeights()), np.float64) if has_trees else None
        documents = _json_of_trees([tree.rootNode() for tree in trees])
    except (Py4JError, OSError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise UnsupportedModelError(
            f"cannot read a {name} from its session ({reason:.200}): {advice}"
        ) from error
    return _nodes([json.loads(document) for document in documents]), weights


def _json_of_trees(roots: list[Any]) -> list[str]:
    """Return the nodes of each tree as JSON."""
    from pyspark import SparkContext

    jvm = SparkContext._jvm
    assert jvm is not None  # there is a model, which needs it
    builder = getattr(jvm.org.apache.spark.ml.tree, "DecisionTreeModelReadWrite$NodeData$")
    build = getattr(builder, "MODULE$").build
    jackson = jvm.com.fasterxml.jackson
    mapper = jackson.databind.ObjectMapper()
    mapper.registerModule(jackson.module.scala.DefaultScalaModule())
    visibility = getattr(jackson.annotation, "JsonAutoDetect$Visibility")
    accessor = jackson.annotation.PropertyAccessor
    mapper.setVisibility(accessor.ALL, visibility.NONE)  # a getter would raise at leaves
    mapper.setVisibility(accessor.FIELD, visibility.ANY)
    return [mapper.writeValueAsString(build(root, 0)._1()) for root in roots]


def _nodes(trees: list[list[dict[str, Any]]]) -> Nodes:
    """Return the nodes of trees, each of which is a list of records."""
    records = [record for tree in trees for record in tree]
    splits = [record["split"] for record in records]
    for part, fields in (("nodes", records[0]), ("splits", splits[0])):  # all records have one class
        require_known("the model of Spark", f"fields of its {part}", fields, FIELDS[part])

    def integers(name: str, rows: list[dict[str, Any]] = records) -> np.ndarray:
        return np.array([row[name] for row in rows], np.int64)

    return Nodes.sorted(
        np.repeat(np.arange(len(trees)), [len(tree) for tree in trees]),
        integers("id"),
        _lists([split["leftCategoriesOrThreshold"] for split in splits]),
        _lists([record["impurityStats"] for record in records]),
        {
            "left": integers("leftChild"),
            "right": integers("rightChild"),
            "feature": integers("featureIndex", splits),
            "n_categories": integers("numCategories", splits),
            "prediction": np.array([record["prediction"] for record in records], np.float64),
            "count": integers("rawCount"),
        },
    )


def _lists(lists: list[list[Any]]) -> Lists:
    length = np.array([len(items) for items in lists], np.int64)
    return Lists.consecutive(length, np.array([value for items in lists for value in items], np.float64))
