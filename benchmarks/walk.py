"""The walk alone: CPU time of its kernel per row and leaf, without coding, deciding or writing."""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

import models
import numpy as np
import peers

ISA = ("baseline", "neon", "avx2", "avx512")

#: Shallow and deep trees, few and many leaves.
DEFAULT_MODELS = (
    "xgboost-cal_housing-d6-0.1",
    "xgboost-cal_housing-d8-0.1",
    "xgboost-adult-d6-0.1",
    "xgboost-adult-d8-0.1",
    "xgboost-adult-d16-0.1",
    "lightgbm-cal_housing-31x300",
    "lightgbm-adult-255x100",
    "forest-cal_housing-d8",
)

ROWS = 1024

#: Shortest measurement, in seconds.
LEAST_SECONDS = 0.03


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("--other", type=Path, metavar="DIR", help="also a checkout with a compiled core")
    parser.add_argument("--rounds", type=int, default=9, help="rounds (9)")
    parser.add_argument("--precision", choices=("single", "double"), default="single", help="(single)")
    parser.add_argument("--isa", choices=ISA, help="instruction set (the best)")


class Walk:
    """The walk of a model's trees by one checkout."""

    def __init__(self, payload: dict[str, Any], X: np.ndarray) -> None:
        from skshapgpu import TreeExplainer, _core
        from skshapgpu._common.algorithms import SHAP_VALUES

        options = {"device": "cpu", "algorithm": "quadrature", "precision": payload["precision"]}
        explainer: Any = TreeExplainer(payload["model"], **options)
        self._plan = explainer._compiled.of(SHAP_VALUES).plan()
        self._X = np.ascontiguousarray(X[:ROWS])
        self._walk_seconds = _core.walk_seconds
        info = self._plan.info()
        self._unit = 1e-9 * len(self._X) * info["n_leaves"]
        self.note = {
            "instruction_set": info["instruction_set"],
            "trees_by_nodes": {group["n_nodes"]: group["n_trees"] for group in info["groups"]},
        }

    def times(self, n_calls: int) -> tuple[float, float]:
        """Return the nanoseconds that deciding and the walk take per row and leaf."""
        seconds = [self._walk_seconds(self._plan, self._X) for _ in range(n_calls)]
        decide, walk = np.mean(seconds, axis=0) / self._unit
        return float(decide), float(walk)

    def calls(self) -> int:
        """Return how many calls a measurement takes."""
        return 1 + int(LEAST_SECONDS / max(sum(self._walk_seconds(self._plan, self._X)), 1e-6))


def measure(case: models.Case, arguments: argparse.Namespace) -> dict[str, Any]:
    """Time the walk of this checkout and, if given, of another one, in turn."""
    payload = {"model": case.model, "precision": arguments.precision}
    isa = {"SKSHAPGPU_ISA": arguments.isa} if arguments.isa else {}
    checkouts = peers.Checkouts("walk", arguments.other, 1, isa)
    try:
        (runners,) = checkouts.start(payload, case.X)
        times_of_system: dict[str, list[tuple[float, float]]] = {name: [] for name in runners}
        n_calls = runners["this"].ask("calls")
        for number in range(arguments.rounds):
            for name in sorted(runners, reverse=bool(number % 2)):
                times_of_system[name].append(runners[name].ask("times", n_calls))
        notes = {name: runner.note for name, runner in runners.items()}
    finally:
        checkouts.close()
    result: dict[str, Any] = {"name": case.name, "note": case.note, "precision": arguments.precision}
    for name, times in times_of_system.items():
        decide, walk = (median(column) for column in zip(*times, strict=True))
        result[name] = {"decide_ns": decide, "walk_ns": walk, **notes[name]}
    if "other" in times_of_system:
        pairs = zip(times_of_system["other"], times_of_system["this"], strict=True)
        result["other_over_this"] = median(other[1] / this[1] for other, this in pairs)
    return result


def print_model(result: dict[str, Any]) -> None:
    this = result["this"]
    line = f"{result['name']:28} {this['walk_ns']:7.3f} ns, deciding {this['decide_ns']:.3f} ns"
    if "other" in result:
        line += f"; other {result['other']['walk_ns']:7.3f} ns, {result['other_over_this']:.3f} times as long"
    print(line, flush=True)


def print_mean(results: list[dict[str, Any]]) -> None:
    """Print the geometric mean of the ratios."""
    ratios = [result["other_over_this"] for result in results if "other_over_this" in result]
    if ratios:
        print(f"geometric mean of the other's time over this one's: {geometric_mean(ratios):.3f}")
