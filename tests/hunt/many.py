"""Calls with so many rows that tables by intervals are used, and calls with so few that lanes are used."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np

from skshapgpu import TreeExplainer
from skshapgpu._engine.costs import trees as costs

from . import containers
from .draws import Draw
from .report import Report

#: Numbers of repetitions of 14 rows: one for a call without tables, others for tables of each size.
REPEATS = [50, 100, 400, 1500, 5000]


def repeated(X: Any, rng: np.random.Generator, most: int = REPEATS[-1]) -> tuple[Any, np.ndarray, int]:
    """Repeat the rows of X; return the rows, their numbers in X and the number of repetitions."""
    repeats = int(rng.choice([n for n in REPEATS if n <= most]))
    order = np.tile(np.arange(containers.n_rows(X)), repeats)
    return containers.rows(X, order), order, repeats


@contextmanager
def tables(draw: Draw) -> Iterator[None]:
    """Build tables by intervals for all trees that can have them, or use cells, if the draw says so.

    At their true prices, most of these small models would be walked.
    """
    if draw.tables == "where they pay":
        yield
        return
    if draw.tables == "cells wherever possible":
        names = (
            "_CPU_CALL",
            "_CELL_WALK",
            "_CELL_LEAF",
            "_LEAST_NARROW_CELL_SAVING",
            "_LEAST_CELL_SAVING",
            "_LEAST_CELL_SAVING_OVER_TABLES",
            "_LEAST_CELL_SECONDS",
            "MANY_CELL_LEAVES",
        )
        prices: dict[str, Any] = dict.fromkeys(names, 0.0) | {
            "LEAST_CELL_ROWS": 1,
            "MOST_CELL_SUMS": sys.maxsize,
        }
        free = dict.fromkeys(costs._CELL_LOOKUP, 0.0)
        with (
            mock.patch.multiple(costs, **prices),
            mock.patch.dict(costs._CELL_LOOKUP, free),
            mock.patch.dict(costs._CELL_NODE, free),
        ):
            yield
        return
    slow = {name: 1e9 for name in costs._WALK_FACTOR}
    with (
        mock.patch.dict(costs._WALK_FACTOR, slow),
        mock.patch.object(costs, "_CPU_LOOKUP", 1.0),
        mock.patch.object(costs, "_LEAST_LEAVES", 1.0),
    ):
        yield


@contextmanager
def lanes(draw: Draw) -> Iterator[None]:
    """Put the leaves of all models that can have lanes into lanes for few rows, if the draw says so.

    At their true prices, most of these small models would be walked.
    """
    if draw.lanes == "where they pay":
        yield
        return
    free = {name: dict.fromkeys(seconds, 0.0) for name, seconds in costs._LANE_STEP.items()}
    with (
        mock.patch.dict(costs._LANE_STEP, free),
        mock.patch.object(costs, "_LEAST_LANE_SECONDS", -1.0),
    ):
        yield


def count_tables(explainer: TreeExplainer, n_rows: int, report: Report) -> None:
    """Count a call that uses tables, or cells that occur."""
    groups = explainer.plan(n_rows).tree_groups
    for name in ("tables", "cells"):
        report.checks[f"calls with {name}"] += any(group.algorithm == name for group in groups)
