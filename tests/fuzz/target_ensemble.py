"""``Ensemble`` from arbitrary arrays: it is refused, or is safe for the core with every algorithm."""

from __future__ import annotations

from functools import cache
from typing import Any

import harness
import numpy as np

from skshapgpu.adapters.ensemble import Ensemble, Tree, attributes_of

INSTRUMENT = ("skshapgpu.adapters.ensemble",)


@cache
def states() -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)

    def tree(n_outputs: int, categories: bool) -> Tree:
        value = np.zeros((7, n_outputs))
        value[3:] = rng.normal(size=(4, n_outputs))
        return Tree(
            left=[1, 3, 5, -1, -1, -1, -1],
            right=[2, 4, 6, -1, -1, -1, -1],
            feature=[0, 1, 2, 0, 0, 0, 0],
            threshold=[0.5, 1.0, -1.0, 0, 0, 0, 0],
            missing_left=[True, False, True, False, False, False, False],
            cover=[8, 4, 4, 1, 3, 2, 2],
            value=value if n_outputs > 1 else value[:, 0],
            categories={1: np.array([0, 3, 70])} if categories else {},
        )

    def state(n_outputs: int, categories: bool, **options: Any) -> dict[str, Any]:
        trees = [tree(n_outputs, categories), tree(n_outputs, False)]
        ensemble = Ensemble.from_trees(trees, n_features=3, intercept=np.zeros(n_outputs), **options)
        return attributes_of(ensemble)

    return [
        state(1, False),
        state(1, True, x_dtype="float64", strict=True),
        state(3, True, zero_missing=[True, False, False]),
    ]


def test_one(data: bytes) -> None:
    choices = harness.Choices(data)
    state = harness.edited(choices.one_of(states()), choices)
    with harness.limits(5_000):
        harness.explain_some(harness.adapted_from(Ensemble(**state)), data[-1])
