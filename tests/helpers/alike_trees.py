"""Random trees that begin alike."""

from __future__ import annotations

from typing import Any

import numpy as np

from skshapgpu.adapters.ensemble import Ensemble, Tree

#: Options of :func:`alike_trees` for ensembles of which most leaves are merged.
MODELS: dict[str, dict[str, Any]] = {
    "few levels": {"max_depth": 2},
    "a leaf where others split": {"max_depth": 4, "parting": 0.1},
    "only leaves differ": {"parting": 0.0},
    "repeated features": {"n_features": 2, "max_depth": 7},
    "categories": {"categorical": True, "n_features": 4},
    "several outputs": {"n_outputs": 3, "n_trees": 20},
    "float32": {"x_dtype": "float32", "strict": True},
    "zero missing": {"zero_missing": [True, False, True, False, True, True]},
    "several parts": {"max_depth": 10, "n_trees": 14, "parting": 0.03},
    "many quadrature nodes": {"n_features": 30, "max_depth": 11, "n_trees": 6, "parting": 0.03},
}


def alike_trees(
    seed: int,
    *,
    n_trees: int = 12,
    n_features: int = 6,
    max_depth: int = 6,
    parting: float = 0.04,
    n_outputs: int = 1,
    categorical: bool = False,
    **options: Any,
) -> Ensemble:
    """Draw trees that begin alike: at each node, each tree may part from the others.

    Below the node at which it parts, a tree shares nothing with the others. Trees that have not parted have
    the same splits and covers, but different leaf values, and a tree may have a leaf where others split.
    """
    rng = np.random.default_rng(seed)

    def nodes(tree: int, path: int, variant: int, cover: float) -> list[dict[str, Any]]:
        """Return a node and all nodes below it; children are positions in this list."""
        variant = 1 + tree if rng.random() < parting else variant
        drawn = np.random.default_rng([seed, path, variant])
        feature, share = int(drawn.integers(n_features)), drawn.integers(1, 16) / 16
        node = {
            "left": -1,
            "right": -1,
            "feature": feature,
            "threshold": drawn.integers(-4, 5) / 4,
            "missing_left": drawn.random() < 0.5,
            "cover": cover,
            "value": rng.normal(),
            "codes": drawn.choice(8, drawn.integers(1, 6), replace=False) if feature % 2 else None,
        }
        if path >= 2**max_depth or (path > 1 and drawn.random() < 0.15):
            return [node]
        left = nodes(tree, 2 * path, variant, cover * share)
        right = nodes(tree, 2 * path + 1, variant, cover * (1 - share))
        for children, first in ((left, 1), (right, 1 + len(left))):
            for child in children:
                if child["left"] >= 0:
                    child["left"] += first
                    child["right"] += first
        return [node | {"left": 1, "right": 1 + len(left), "value": 0.0}, *left, *right]

    trees = []
    for tree in range(n_trees):
        drawn_nodes = nodes(tree, 1, 0, 1.0)
        columns: dict[str, Any] = {name: [node[name] for node in drawn_nodes] for name in drawn_nodes[0]}
        codes = columns.pop("codes")
        split = [i for i, node in enumerate(drawn_nodes) if node["left"] >= 0]
        categories = {i: codes[i] for i in split if categorical and codes[i] is not None}
        trees.append(Tree(**columns, output=tree % n_outputs, categories=categories))
    return Ensemble.from_trees(trees, n_features=n_features, intercept=rng.normal(size=n_outputs), **options)
