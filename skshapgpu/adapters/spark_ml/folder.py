"""The folder in which Spark saves a tree model: ``metadata`` in JSON, the other tables in Parquet."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from .._known import require_known
from .nodes import FIELDS, Lists, Nodes

#: Names in the files of the attributes of :class:`Nodes`, and of the number of a node.
_INTEGERS = {
    "node": "id",
    "left": "leftChild",
    "right": "rightChild",
    "feature": "split.featureIndex",
    "n_categories": "split.numCategories",
}

#: Numbers for each byte of a file, beyond which it is rejected instead of read: no model repeats itself so.
_MOST_NUMBERS = 64


def is_saved(place: Any) -> bool:
    """Return whether a path, also one of another file system, is a folder that Spark may have written."""
    found = place / "metadata"
    # With a name that is too long, that of pathlib raises an error.
    return os.path.isdir(found) if isinstance(found, os.PathLike) else bool(found.is_dir())


def metadata(path: str) -> dict[str, Any]:
    """Return the metadata of a model of any kind."""
    text = b"".join(_parts(path, "metadata", ""))
    found = json.loads(text.lstrip().partition(b"\n")[0])
    if not isinstance(found, dict) or not isinstance(found.get("paramMap"), dict):
        raise ValueError("its metadata are not those of a model")
    return found


def nodes(path: str, has_trees: bool) -> Nodes:
    """Return the nodes of a model, which ``has_trees`` or is a single tree."""
    table = _table(path, "data")
    prefix = "nodeData." if has_trees else ""
    known = {prefix + name for name in FIELDS["nodes"]}.union(
        f"{prefix}split.{name}" for name in FIELDS["splits"]
    )
    require_known("the model of Spark", "columns", table.column_names, frozenset(known | {"treeID"}))
    columns = {name: _numbers(table, prefix + column, "int64") for name, column in _INTEGERS.items()}
    columns["prediction"] = _numbers(table, prefix + "prediction", "float64")
    if prefix + "rawCount" in table.column_names:
        columns["count"] = _numbers(table, prefix + "rawCount", "int64")
    node = columns.pop("node")
    tree = _numbers(table, "treeID", "int64") if has_trees else np.zeros(len(node), np.int64)
    split = _lists(table, prefix + "split.leftCategoriesOrThreshold")
    return Nodes.sorted(tree, node, split, _lists(table, prefix + "impurityStats"), columns)


def tree_weights(path: str) -> np.ndarray:
    """Return the weights of the trees."""
    table = _table(path, "treesMetadata")
    is_named = "treeID" in table.column_names  # Spark 4.3 numbers the columns instead
    tree = _numbers(table, "treeID" if is_named else "_1", "int64")
    order = np.argsort(tree)
    if not np.array_equal(tree[order], np.arange(len(tree))):
        raise ValueError("the weights of its trees are not numbered from 0 on")
    return _numbers(table, "weights" if is_named else "_3", "float64")[order]


def integer(found: Mapping[str, Any], name: str) -> int:
    """Return a number from the metadata."""
    value = found[name]
    if type(value) is not int or value < 0:
        raise ValueError(f"its {name} is {value!r:.80}")
    return value


def _parts(path: str, name: str, end: str) -> list[bytes]:
    """Return the content of the files of a folder in which Spark wrote a table."""
    from .. import files

    folder = os.path.join(path, name)
    if not os.path.isdir(folder):
        raise ValueError(f"it has no folder {name!r}")
    parts = sorted(each for each in os.listdir(folder) if each.startswith("part-") and each.endswith(end))
    if not parts:
        raise ValueError(f"its folder {name!r} has no files of the form part-*{end}")
    return [files.content_of(os.path.join(folder, part)) for part in parts]


def _table(path: str, name: str) -> Any:
    """Return a table of Arrow without structs, whose fields become columns."""
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise ImportError(
            f"the model in {path!r} is in files of Parquet, which take the package pyarrow to read: install "
            "it, or pass the model itself"
        ) from error
    tables = []
    for content in _parts(path, name, ".parquet"):
        try:
            file = parquet.ParquetFile(pa.BufferReader(content))
            _require_size(file.metadata, len(content))
            tables.append(file.read(use_threads=False))
        except (pa.ArrowException, OSError) as error:
            raise ValueError(f"a file in {name!r} is damaged: {error}") from error
    try:
        table = pa.concat_tables(tables)
        while any(pa.types.is_struct(field.type) for field in table.schema):
            table = table.flatten()
    except pa.ArrowException as error:
        raise ValueError(f"the files in {name!r} do not fit together: {error}") from error
    return table


def _require_size(found: Any, n_bytes: int) -> None:
    """Raise ``ValueError`` if a file would grow too much when it is read."""
    columns = [
        group.column(i)
        for group in map(found.row_group, range(found.num_row_groups))
        for i in range(group.num_columns)
    ]
    most = max([found.num_rows, *(each.num_values for each in columns)], default=0)
    if most > _MOST_NUMBERS * n_bytes:
        raise ValueError(f"a file of {n_bytes:,} bytes cannot hold {most:,} numbers of a model")


def _column(table: Any, name: str) -> Any:
    if table.column_names.count(name) != 1:
        raise KeyError(name)
    found = table[name].combine_chunks()
    if found.null_count:
        raise ValueError(f"its column {name!r} has nulls")
    return found


def _numbers(table: Any, name: str, dtype: str) -> np.ndarray:
    return _converted(_column(table, name), name, dtype)


def _converted(column: Any, name: str, dtype: str) -> np.ndarray:
    import pyarrow as pa

    is_number = pa.types.is_integer if dtype == "int64" else pa.types.is_floating
    if not is_number(column.type):
        raise ValueError(f"its column {name!r} has the type {column.type}")
    if column.null_count:
        raise ValueError(f"its column {name!r} has nulls")
    return np.array(column.to_numpy(zero_copy_only=False), dtype)


def _lists(table: Any, name: str) -> Lists:
    import pyarrow as pa

    column = _column(table, name)
    if not pa.types.is_list(column.type):
        raise ValueError(f"its column {name!r} has the type {column.type}")
    length = np.array(column.value_lengths().to_numpy(zero_copy_only=False), np.int64)
    return Lists.of(length, _converted(column.flatten(), name, "float64"))
