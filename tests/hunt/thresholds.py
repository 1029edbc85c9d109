"""Rows at thresholds of a model, and next to them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from .trees import Tree


def _neighbour(threshold: float, rng: np.random.Generator) -> float:
    """Return the number itself or one of its neighbours in one of the two float types."""
    with np.errstate(over="ignore"):
        single = np.float32(threshold)
    beside: list[Any] = [threshold, single]
    beside += [
        np.nextafter(kind, kind.dtype.type(side))
        for kind in (np.float64(threshold), single)
        for side in (-np.inf, np.inf)
    ]
    number = float(beside[int(rng.integers(len(beside)))])
    # LightGBM reads numbers near 1e-35, which it takes for zero, differently from arrays and from Arrow.
    return number if np.isfinite(number) and abs(number) > 1.1e-35 else 0.0


def hardened(
    frame: pd.DataFrame, trees: list[Tree], places: list[tuple[int, bool]], rng: np.random.Generator
) -> pd.DataFrame:
    """Replace some numbers of every second row.

    For each column of the model, ``places`` has the frame's column, and whether it may be changed.
    """
    frame = frame.copy()
    nodes = [
        (int(tree.feature[i]), tree.threshold[i])
        for tree in trees
        for i in np.flatnonzero(tree.left >= 0)
        if np.isfinite(tree.threshold[i])
    ]
    for row in range(1, len(frame), 2):
        for j, threshold in [nodes[int(k)] for k in rng.integers(len(nodes), size=3)] if nodes else []:
            column, may = places[j]
            name = frame.columns[column]
            if may and frame[name].dtype == np.float64:
                frame.loc[row, name] = _neighbour(threshold, rng)
    return frame
