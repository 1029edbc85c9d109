"""Sums of models against their members, which are explained one by one and added, on one thread.

Freed memory stays with the process: whether the C library gives it back, so that later calls pay for new
pages, depends on what was freed before, and doubled the time of single calls.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
from collections.abc import Callable
from time import process_time
from typing import Any

import numpy as np

from skshapgpu import TreeExplainer

#: Columns of the generated data.
N_COLUMNS = 20

#: Number of background rows of the setting "background".
N_BACKGROUND = 100

#: Largest permitted difference between the values of a sum and the sum of the values of its members,
#: relative to the largest value.
TOLERANCE = 1e-5

#: Parameters of mallopt (malloc.h of the GNU C library), which set when memory is given back.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3

#: A model with its weighted members. Without a weight, a member has the trees of the sum, but other leaves.
Sum = tuple[Any, list[tuple[float | None, Any]]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, default=10_000, help="rows of a call (10,000)")
    parser.add_argument("--repeats", type=int, default=7, help="rounds (7)")
    parser.add_argument("--rounds", type=int, default=100, help="boosting rounds of members (100)")


def data(n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Return Friedman's first function of five of the columns, with noise."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(n_rows, N_COLUMNS))
    y = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2 + 10 * X[:, 3] + 5 * X[:, 4]
    return X, y + rng.normal(size=n_rows)


def makers(rounds: int) -> dict[str, Callable[[np.ndarray, np.ndarray], Sum]]:
    """Return functions that fit a sum, by name."""
    from lightgbm import LGBMRegressor
    from sklearn.ensemble import (
        AdaBoostClassifier,
        RandomForestRegressor,
        StackingRegressor,
        VotingRegressor,
    )
    from sklearn.linear_model import LinearRegression
    from xgboost import XGBRegressor

    def members() -> list[tuple[str, Any]]:
        return [
            ("xgboost", XGBRegressor(n_estimators=rounds, max_depth=6, n_jobs=1)),
            ("lightgbm", LGBMRegressor(n_estimators=rounds, num_leaves=31, n_jobs=1, verbose=-1)),
            ("forest", RandomForestRegressor(50, max_depth=8, random_state=0)),
        ]

    def voting(X: np.ndarray, y: np.ndarray) -> Sum:
        model = VotingRegressor(members(), weights=[2, 2, 1]).fit(X, y)
        return model, list(zip([0.4, 0.4, 0.2], model.estimators_, strict=True))

    def stacking(X: np.ndarray, y: np.ndarray) -> Sum:
        model = StackingRegressor(members(), LinearRegression(), cv=2).fit(X, y)
        return model, list(zip(model.final_estimator_.coef_.tolist(), model.estimators_, strict=True))

    def adaboost(X: np.ndarray, y: np.ndarray) -> Sum:
        model = AdaBoostClassifier(n_estimators=2 * rounds, random_state=0).fit(X, y > np.median(y))
        return model, [(None, member) for member in model.estimators_]

    return {"voting": voting, "adaboost": adaboost, "stacking": stacking}


def measure(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Compare values with those of the members, then time both in turn: new explainers, and later calls."""
    keep_freed_memory()
    X, y = data(arguments.rows)
    model, members = makers(arguments.rounds)[name](X[:5000], y[:5000])
    result: dict[str, Any] = {
        "name": name,
        "rows": len(X),
        "columns": N_COLUMNS,
        "members": [type(member).__name__ for _, member in members][:3],
        "n_members": len(members),
        "accuracy": {},
        "settings": {},
    }
    for setting, background in (("path-dependent", None), ("background", X[:N_BACKGROUND])):

        def whole(background: Any = background) -> list[Any]:
            return [explainer_of(model, background)]

        def apart(background: Any = background) -> list[Any]:
            return [explainer_of(member, background) for _, member in members]

        if all(weight is not None for weight, _ in members):
            expected = sum(
                weight * explainer.shap_values(X[:500]) for (weight, _), explainer in zip(members, apart())
            )
            error = np.abs(whole()[0].shap_values(X[:500]) - expected).max() / np.abs(expected).max()
            if not error <= TOLERANCE:
                raise AssertionError(f"not timed: values are beyond tolerance: {error}")
            result["accuracy"][setting] = float(error)
        result["settings"][setting] = {
            kind: in_turn({"sum": whole, "members": apart}, X, arguments.repeats, kind == "new")
            for kind in ("new", "later")
        }
    return result


def keep_freed_memory() -> None:
    mallopt = ctypes.CDLL(None).mallopt
    for parameter in (M_TRIM_THRESHOLD, M_MMAP_THRESHOLD):
        if not mallopt(parameter, 1 << 30):
            raise RuntimeError("mallopt refuses its parameter: run this benchmark with the GNU C library")


def explainer_of(model: Any, background: Any) -> TreeExplainer:
    # The comparison with the model's own prediction is not what is measured.
    return TreeExplainer(model, background, device="cpu", n_jobs=1, check_additivity=False)


def in_turn(
    makers: dict[str, Callable[[], list[Any]]], X: np.ndarray, repeats: int, new: bool
) -> dict[str, Any]:
    """Time a sum and its members in turn, in CPU seconds: new explainers, or calls of explainers with tables.

    The values of members are added up, as a user would have to do.
    """
    seconds: dict[str, list[float]] = {name: [] for name in makers}
    explainers = {} if new else {name: make() for name, make in makers.items()}
    for own in explainers.values():
        added(own, X)
    for _ in range(repeats):
        for name, make in makers.items():
            start = process_time()
            added(make() if new else explainers[name], X)
            seconds[name].append(process_time() - start)
    return {
        **{name: statistics.median(measured) for name, measured in seconds.items()},
        "sum_over_members": statistics.median(np.divide(seconds["sum"], seconds["members"]).tolist()),
    }


def added(explainers: list[Any], X: np.ndarray) -> np.ndarray:
    """Return the values of the first explainer plus those of the others; classes are not told apart."""
    total = explainers[0].shap_values(X)
    for explainer in explainers[1:]:
        total += explainer.shap_values(X)
    return total


def print_model(result: dict[str, Any]) -> None:
    print(f"\n{result['name']}, {result['n_members']} members, {result['rows']:,} rows")
    for setting, kinds in result["settings"].items():
        for kind, figures in kinds.items():
            print(
                f"{setting:16}{kind:7}sum {figures['sum']:.4f} s, members {figures['members']:.4f} s: "
                f"{figures['sum_over_members']:.3f} times",
                flush=True,
            )
