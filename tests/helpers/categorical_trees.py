"""Trees whose splits are all categorical."""

from __future__ import annotations

import numpy as np

from skshapgpu.adapters.ensemble import Tree


def categorical_trees(rng: np.random.Generator, codes: np.ndarray, n_trees: int) -> list[Tree]:
    """Return trees of two splits, each on a column of its own, which list some of the codes."""
    trees = []
    for _ in range(n_trees):
        sets = [rng.choice(codes, rng.integers(1, len(codes) + 1), replace=False) for _ in range(2)]
        trees.append(
            Tree(
                left=np.array([1, 2, -1, -1, -1]),
                right=np.array([4, 3, -1, -1, -1]),
                feature=np.array([0, 1, 0, 0, 0]),
                threshold=np.zeros(5),
                missing_left=rng.random(5) < 0.5,
                cover=np.array([9.0, 5, 2, 3, 4]),
                value=np.concatenate([np.zeros((2, 1)), rng.normal(size=(3, 1))]),
                categories={0: np.sort(sets[0]), 1: np.sort(sets[1])},
            )
        )
    return trees
