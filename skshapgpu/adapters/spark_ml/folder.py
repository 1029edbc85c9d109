"""The folder in which Spark saves a tree model: ``metadata`` in JSON, the other tables in Parquet."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from .._known import require_known
from .nodes import FIELDS, Lists, Nodes

#: Columns of the files for attributes of :class:`Nodes`, and for "node", the number of a node.
_INTEGERS = {
    "node": "id",
    "left": "leftChild",
    "right": "rightChild",
    "feature": "split.featureIndex",
    "n_categories": "split.numCategories",
}

#: Limit on the numbers for each byte of a file. A file that exceeds it is not read, as no model repeats so
#: much.
_MOST_NUMBERS = 64


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


def nodes(path: str, has_trees: bool) -> Nodes:
    """Return the nodes of a model, which has a list of trees (``has_trees``) or is a single tree."""
    table = _table(path, "data")
    prefix = "nodeData." if has_trees else ""
    known_columns = {prefix + name for name in FIELDS["nodes"]}.union(
        f"{prefix}split.{name}" for name in FIELDS["splits"]
    )
    require_known("the model of Spark", "columns", table.column_names, frozenset(known_columns | {"treeID"}))
    columns = {name: _numbers(table, prefix + column, "int64") for name, column in _INTEGERS.items()}
    columns["prediction"] = _numbers(table, prefix + "prediction", "float64")
    if prefix + "rawCount" in table.column_names:
        columns["count"] = _numbers(table, prefix + "rawCount", "int64")
    node_number = columns.pop("node")
    tree_number = _numbers(table, "treeID", "int64") if has_trees else np.zeros(len(node_number), np.int64)
    split = _lists(table, prefix + "split.leftCategoriesOrThreshold")
    return Nodes.sorted(tree_number, node_number, split, _lists(table, prefix + "impurityStats"), columns)


def tree_weights(path: str) -> np.ndarray:
    """Return the weight of each tree of a model."""
    table = _table(path, "treesMetadata")
    is_named = "treeID" in table.column_names  # Spark 4.3 numbers the columns instead
    tree = _numbers(table, "treeID" if is_named else "_1", "int64")
    order = np.argsort(tree)
    if not np.array_equal(tree[order], np.arange(len(tree))):
        raise ValueError("the weights of its trees are not numbered from 0 on")
    return _numbers(table, "weights" if is_named else "_3", "float64")[order]


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


def _table(path: str, name: str) -> Any:
    """Return a table of Arrow, in which each field of a struct is a column."""
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise ImportError(
            f"the model in {path!r} is in files of Parquet, which need the package pyarrow: install it, or "
            "pass the model itself"
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


def _require_size(file_metadata: Any, n_bytes: int) -> None:
    """Raise ``ValueError`` if a file would grow too much when it is read."""
    columns = [
        group.column(i)
        for group in map(file_metadata.row_group, range(file_metadata.num_row_groups))
        for i in range(group.num_columns)
    ]
    most_numbers = max([file_metadata.num_rows, *(column.num_values for column in columns)], default=0)
    if most_numbers > _MOST_NUMBERS * n_bytes:
        raise ValueError(f"a file of {n_bytes:,} bytes cannot hold {most_numbers:,} numbers of a model")


def _column(table: Any, name: str) -> Any:
    if table.column_names.count(name) != 1:
        raise KeyError(name)
    column = table[name].combine_chunks()
    if column.null_count:
        raise ValueError(f"its column {name!r} has nulls")
    return column


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
    return Lists.consecutive(length, _converted(column.flatten(), name, "float64"))
