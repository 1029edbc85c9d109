"""Reader of treelite 4 checkpoints, written from treelite's documentation of the format.

Numbers are little-endian. An array is stored as its length, in eight bytes, followed by its items. Every
length is compared with the number of bytes that remain before anything is allocated: for any input, the
result is the fields of a model or a ``ValueError``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

#: Fields in their order. A name in brackets denotes an array; "real" stands for the dtype of thresholds and
#: leaves.
_HEADER_FIELDS = (
    ("num_feature", "<i4"),
    ("task_type", "u1"),
    ("average_tree_output", "u1"),
    ("num_target", "<i4"),
    ("[num_class]", "<i4"),
    ("[leaf_vector_shape]", "<i4"),
    ("[target_id]", "<i4"),
    ("[class_id]", "<i4"),
    ("[postprocessor]", "S1"),
    ("sigmoid_alpha", "<f4"),
    ("ratio_c", "<f4"),
    ("[base_scores]", "<f8"),
    ("[attributes]", "S1"),
    ("num_opt_field_per_model", "<i4"),
)
_TREE = (
    ("num_nodes", "<i4"),
    ("has_categorical_split", "u1"),
    ("[node_type]", "i1"),
    ("[cleft]", "<i4"),
    ("[cright]", "<i4"),
    ("[split_index]", "<i4"),
    ("[default_left]", "u1"),
    ("[leaf_value]", "real"),
    ("[threshold]", "real"),
    ("[cmp]", "i1"),
    ("[category_list_right_child]", "u1"),
    ("[leaf_vector]", "real"),
    ("[leaf_vector_begin]", "<u8"),
    ("[leaf_vector_end]", "<u8"),
    ("[category_list]", "<u4"),
    ("[category_list_begin]", "<u8"),
    ("[category_list_end]", "<u8"),
    ("[data_count]", "<u8"),
    ("[data_count_present]", "u1"),
    ("[sum_hess]", "<f8"),
    ("[sum_hess_present]", "u1"),
    ("[gain]", "<f8"),
    ("[gain_present]", "u1"),
    ("num_opt_field_per_tree", "<i4"),
    ("num_opt_field_per_node", "<i4"),
)

#: Dtypes of thresholds and leaf values by their type codes in the format; both must have the same type.
_REALS = {2: "<f4", 3: "<f8"}

Fields = dict[str, Any]


@dataclass(frozen=True)
class Checkpoint:
    """The fields of a model by name.

    Each field is an array, which has one item if the field is a number; only the postprocessor is a string.
    """

    input_type: str
    header: Fields
    trees: list[Fields]


def loads(data: bytes) -> Checkpoint:
    """Decode a checkpoint that fills ``data``.

    Raise ``ValueError`` if the bytes are truncated, have trailing bytes, or have another version of the
    format.
    """
    reader = _CheckpointReader(data)
    version = reader.array("<i4", 3).tolist()
    if version[0] != 4:
        raise ValueError(f"it has version {version[0]} of the format; only version 4 is known")
    threshold, leaf = reader.array("u1", 2).tolist()
    if threshold != leaf or threshold not in _REALS:
        raise ValueError("its thresholds and leaves are neither both float32 nor both float64")
    real = _REALS[threshold]
    n_trees = int(reader.array("<u8", 1)[0])
    header = reader.fields(_HEADER_FIELDS, real)
    header["postprocessor"] = header["postprocessor"].tobytes().decode()
    if len(header["target_id"]) != n_trees or len(header["class_id"]) != n_trees:
        raise ValueError(f"it has {n_trees} trees, but target_id or class_id has another length")
    trees = [reader.fields(_TREE, real) for _ in range(n_trees)]
    if reader.at != len(data):
        raise ValueError(f"it ends at byte {reader.at} of {len(data)}")
    return Checkpoint(np.dtype(real).name, header, trees)


class _CheckpointReader:
    """A cursor over the bytes."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def array(self, dtype: str, n: int) -> np.ndarray:
        size = np.dtype(dtype).itemsize
        if n * size > len(self.data) - self.at:
            raise ValueError(f"it is truncated: byte {self.at} needs {n * size} more")
        items = np.frombuffer(self.data, dtype, n, self.at)
        self.at += n * size
        return items

    def fields(self, layout: tuple[tuple[str, str], ...], real: str) -> Fields:
        values = {}
        for name, dtype in layout:
            n = int(self.array("<u8", 1)[0]) if name[0] == "[" else 1
            values[name.strip("[]")] = self.array(real if dtype == "real" else dtype, n)
            if name.startswith("num_opt_field") and values[name][0] != 0:
                raise ValueError("it has fields of a later version of treelite")
        return values
