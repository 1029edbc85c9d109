"""The folder in which Spark saves a tree model: ``metadata`` in JSON, the other tables in Parquet."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from .._known import require_known
from .nodes import FIELDS, Nodes
from .parquet import NumberTable

#: Columns of the files for attributes of :class:`Nodes`, and for "node", the number of a node.
_INTEGERS = {
    "node": "id",
    "left": "leftChild",
    "right": "rightChild",
    "feature": "split.featureIndex",
    "n_categories": "split.numCategories",
}


def is_saved(path: Any) -> bool:
    """Return whether a path, of any file system, is a folder that Spark may have written."""
    folder = path / "metadata"
    # os.path.isdir accepts a name that is too long, for which pathlib raises an error.
    return os.path.isdir(folder) if isinstance(folder, os.PathLike) else bool(folder.is_dir())


def metadata(path: str) -> dict[str, Any]:
    """Return the metadata of a model of any kind."""
    content = b"".join(_parts(path, "metadata", ""))
    fields = json.loads(content.lstrip().partition(b"\n")[0])
    if not isinstance(fields, dict) or not isinstance(fields.get("paramMap"), dict):
        raise ValueError("its metadata are not those of a model")
    return fields


def nodes(path: str, has_trees: bool, has_counts: bool) -> Nodes:
    """Return the nodes of a model, which has a list of trees (``has_trees``) or is a single tree.

    With ``has_counts``, the nodes must have their numbers of training rows, which Spark writes since 3.0.
    """
    table = _table(path, "data")
    prefix = "nodeData." if has_trees else ""
    known_columns = {prefix + name for name in FIELDS["nodes"]}.union(
        f"{prefix}split.{name}" for name in FIELDS["splits"]
    )
    require_known("the model of Spark", "columns", table.names, frozenset(known_columns | {"treeID"}))
    columns = {
        name: table.numbers(prefix + column, "int32").astype(np.int64) for name, column in _INTEGERS.items()
    }
    columns["prediction"] = table.numbers(prefix + "prediction", "float64")
    for name in ("impurity", "gain"):  # Spark refuses nulls in all columns
        table.numbers(prefix + name, "float64")
    if has_counts or prefix + "rawCount" in table.names:
        columns["count"] = table.numbers(prefix + "rawCount", "int64")
    node_number = columns.pop("node")
    tree_number = table.numbers("treeID", "int32") if has_trees else np.zeros(len(node_number))
    split = table.lists(prefix + "split.leftCategoriesOrThreshold")
    stats = table.lists(prefix + "impurityStats")
    return Nodes.sorted(tree_number.astype(np.int64), node_number, split, stats, columns)


def tree_weights(path: str) -> np.ndarray:
    """Return the weight of each tree of a model."""
    table = _table(path, "treesMetadata")
    is_named = "treeID" in table.names  # Spark 4.3 numbers the columns instead
    tree = table.numbers("treeID" if is_named else "_1", "int32")
    order = np.argsort(tree)
    if not np.array_equal(tree[order], np.arange(len(tree))):
        raise ValueError("the weights of its trees are not numbered from 0 on")
    return table.numbers("weights" if is_named else "_3", "float64")[order]


def integer(fields: Mapping[str, Any], name: str) -> int:
    """Return a number that is a field of the metadata."""
    value = fields[name]
    if type(value) is not int or value < 0:
        raise ValueError(f"its {name} is {value!r:.80}")
    return value


def _parts(path: str, name: str, end: str) -> list[bytes]:
    """Return the content of each file of a table, which Spark writes as a folder of files."""
    from .. import files

    folder = os.path.join(path, name)
    if not os.path.isdir(folder):
        raise ValueError(f"it has no folder {name!r}")
    file_names = sorted(
        file for file in os.listdir(folder) if file.startswith("part-") and file.endswith(end)
    )
    if not file_names:
        raise ValueError(f"its folder {name!r} has no files of the form part-*{end}")
    return [files.content_of(os.path.join(folder, file_name)) for file_name in file_names]


def _table(path: str, name: str) -> NumberTable:
    """Return the table in a folder."""
    if importlib.util.find_spec("pyarrow") is None:
        raise ImportError(
            f"the model in {path!r} is in files of Parquet, which need the package pyarrow: install it, or "
            "pass the model itself"
        )
    try:
        return NumberTable(_parts(path, name, ".parquet"))
    except ValueError as error:
        raise ValueError(f"the files in {name!r} cannot be read: {error}") from error
