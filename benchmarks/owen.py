"""Owen values and values of groups beside SHAP values of the same model, on one thread or on a GPU."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import models
import numpy as np
import peers

from skshapgpu import TreeExplainer

DEFAULT_MODELS = (
    "cal_housing-d6-0.1",
    "cal_housing-med-0.1",
    "adult-med-0.1",
    "covtype-med-0.1",
    "rf-adult-8",
    "rf-adult-16",
    "lightgbm-adult",
    "catboost-adult",
)

#: Columns of each group, by data set; each other column is a group of its own.
GROUPS: dict[str, dict[str, list[int]]] = {
    "cal_housing": {"a": [0, 1], "b": [2, 3, 4], "c": [5, 6, 7]},
    "adult": {"a": [0, 1, 2, 3], "b": [4, 5, 6], "c": [7, 8, 9]},
    "covtype": {"place": [0, 1, 2], "area": list(range(10, 14)), "soil": list(range(14, 54))},
}

#: Options of both explainers, and the number of background rows.
SETTINGS: dict[str, tuple[dict[str, Any], int]] = {
    "path-dependent": ({}, 0),
    "expected_rows": ({"expected_rows": 10_000_000}, 0),
    "walked": ({"algorithm": "quadrature"}, 0),
    "background": ({}, 100),
}

#: Models with more leaves are not measured against background data: most of their leaves would have no
#: tables, and calls would take minutes.
MOST_LEAVES_AGAINST_BACKGROUND = 50_000

#: Largest permitted difference between the sum of a group's Owen values and the group's Shapley value,
#: relative to the largest value.
TOLERANCE = 1e-5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, help="of a call (10,000 on a CPU, 200,000 on a GPU)")
    parser.add_argument("--repeats", type=int, default=5, help="rounds (5)")


def measure(case: models.Case, ensemble: Any, arguments: argparse.Namespace) -> dict[str, Any]:
    """Compare the sums of groups for some rows, then time first calls of new explainers, and later calls."""
    groups = next(groups_of_data for data, groups_of_data in GROUPS.items() if data in case.name)
    result: dict[str, Any] = {
        **peers.describe(case, ensemble),
        "rows": len(case.X),
        "groups": {name: len(columns) for name, columns in groups.items()},
        "accuracy": {},
        "settings": {},
    }
    for name, (options, n_background) in SETTINGS.items():
        if n_background and ensemble.n_leaves > MOST_LEAVES_AGAINST_BACKGROUND:
            continue
        data = case.X[:n_background] if n_background else None
        common: dict[str, Any] = {"device": arguments.device, **options}

        def shap_values(data: Any = data, common: dict[str, Any] = common) -> Callable[[], Any]:
            explainer = TreeExplainer(case.model, data, **common)
            return lambda: explainer.explain(case.X)

        def group_values(data: Any = data, common: dict[str, Any] = common) -> Callable[[], Any]:
            explainer = TreeExplainer(case.model, data, feature_groups=groups, **common)
            return lambda: explainer.explain(case.X)

        def owen_values(data: Any = data, common: dict[str, Any] = common) -> Callable[[], Any]:
            explainer = TreeExplainer(case.model, data, feature_groups=groups, **common)
            return lambda: explainer.explain(case.X, index="OV")

        error = sum_error(case, groups, data, common)
        if not error <= TOLERANCE:
            raise AssertionError(f"not timed: sums of groups are beyond tolerance: {error}")
        result["accuracy"][name] = error
        makers: dict[str, Callable[[], Callable[[], Any]]] = {
            "shap_values": shap_values,
            "group_values": group_values,
            "owen_values": owen_values,
        }
        result["settings"][name] = {
            "new": in_turn(makers, arguments.repeats, new=True),
            "later": in_turn(makers, arguments.repeats, new=False),
        }
    return result


def sum_error(case: models.Case, groups: dict[str, list[int]], data: Any, common: dict[str, Any]) -> float:
    """Compute the largest difference between the sum of a group's Owen values and its Shapley value."""
    explainer = TreeExplainer(case.model, data, feature_groups=groups, **common)
    rows = case.X[:2000]
    owen_values = explainer.explain(rows, index="OV")
    names = {group: [owen_values.feature_names[i] for i in columns] for group, columns in groups.items()}
    return peers.relative_error(owen_values.sum_by(names).values, explainer.explain(rows).values)


def in_turn(makers: dict[str, Callable[[], Callable[[], Any]]], repeats: int, new: bool) -> dict[str, Any]:
    """Time all kinds of values in turn: first calls of new explainers, or calls of explainers with tables."""
    seconds: dict[str, list[float]] = {name: [] for name in makers}
    calls = {} if new else {name: make() for name, make in makers.items()}
    for call in calls.values():
        call()
    for _ in range(repeats):
        for name, make in makers.items():
            start = time.perf_counter()
            call = make() if new else calls[name]
            call()
            seconds[name].append(time.perf_counter() - start)

    def over_shap(name: str) -> float:
        return statistics.median(np.divide(seconds[name], seconds["shap_values"]).tolist())

    return {
        **{name: statistics.median(measured) for name, measured in seconds.items()},
        "groups_over_shap": over_shap("group_values"),
        "owen_over_shap": over_shap("owen_values"),
    }


def print_model(result: dict[str, Any]) -> None:
    peers.print_head(result)
    for name, setting in result["settings"].items():
        for kind in ("later", "new"):
            figures = setting[kind]
            print(
                f"{name:16}{kind:7}SHAP values {figures['shap_values']:.4f} s, values of groups "
                f"{figures['groups_over_shap']:.2f} and Owen values {figures['owen_over_shap']:.2f} times",
                flush=True,
            )
