"""Nodes of scikit-learn 1.10, for stand-ins of its trees."""

from __future__ import annotations

import numpy as np

#: Fields of a node, in the order of its struct.
FIELDS = [
    ("left_child", "i8"),
    ("right_child", "i8"),
    ("feature", "i8"),
    ("threshold", "f8"),
    ("left_cat_bitset", "u4", 8),
    ("impurity", "f8"),
    ("n_node_samples", "i8"),
    ("weighted_n_node_samples", "f8"),
    ("missing_go_to_left", "u1"),
    ("split_kind", "i1"),
]


def nodes_of_later_release(nodes: np.ndarray) -> np.ndarray:
    """Return the nodes of a tree with the fields of scikit-learn 1.10; all splits are numeric."""
    later = np.zeros(len(nodes), FIELDS)
    for name in nodes.dtype.names or ():
        later[name] = nodes[name]
    later["split_kind"] = np.where(later["left_child"] < 0, -1, 0)
    return later
