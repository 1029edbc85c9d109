"""Feature selection on generated data with known relevant columns: ours, BorutaShap and probatus."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

#: Columns on which y depends. The others are noise; columns 5 to 8 of the noise depend on each other.
PLANTED = frozenset(range(5))

Found = tuple[set[int], int]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seeds", type=int, default=20, help="data sets of each model (20)")
    parser.add_argument("--rows", type=int, default=300, help="rows of a data set (300)")
    parser.add_argument("--rounds", type=int, default=40, help="largest number of rounds of Boruta (40)")


def data(seed: int, n_rows: int) -> tuple[Any, np.ndarray]:
    """Return Friedman's first function of five of 20 columns, with noise."""
    import pandas as pd

    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n_rows, 20))
    X[:, 6:9] = 0.8 * X[:, [5]] + 0.2 * X[:, 6:9]
    y = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2 + 10 * X[:, 3] + 5 * X[:, 4]
    return pd.DataFrame(X, columns=[f"x{i}" for i in range(20)]), y + rng.normal(size=n_rows)


def models() -> dict[str, Any]:
    from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor

    return {
        "forest": RandomForestRegressor(15, max_depth=5, random_state=0),
        "boosting": HistGradientBoostingRegressor(max_iter=40, max_depth=3, random_state=0),
    }


def methods(rounds: int) -> dict[str, Callable[[Any, Any, np.ndarray], Found]]:
    """Return functions that take model, X and y and return the selected columns and the number of fits."""

    def numbers(names: Any) -> set[int]:
        return {int(name[1:]) for name in names}

    def boruta(model: Any, X: Any, y: np.ndarray) -> Found:
        from skshapgpu import ShapBoruta

        selector = ShapBoruta(model, cv=3, max_iter=rounds, random_state=0).fit(X, y)
        return numbers(selector.get_feature_names_out()), 3 * selector.n_iter_

    def boruta_shap(model: Any, X: Any, y: np.ndarray) -> Found:
        from BorutaShap import BorutaShap

        selector = BorutaShap(model=model, importance_measure="shap", classification=False, pvalue=0.05)
        selector.fit(
            X, y, n_trials=rounds, random_state=0, train_or_test="test", normalize=True, verbose=False
        )
        return numbers(selector.accepted), len(selector.history_x) - 1

    def elimination(model: Any, X: Any, y: np.ndarray) -> Found:
        from skshapgpu import ShapRFECV

        selector = ShapRFECV(model, cv=3, scoring="r2").fit(X, y)
        return numbers(selector.get_feature_names_out()), 3 * X.shape[1]

    def probatus(model: Any, X: Any, y: np.ndarray) -> Found:
        from probatus.feature_elimination import ShapRFECV

        selector = ShapRFECV(model, step=1, cv=3, scoring="r2", n_jobs=1, random_state=0)
        selector.fit_compute(X, y)
        return numbers(selector.get_reduced_features_set("best")), 3 * X.shape[1]

    return {
        "ShapBoruta": boruta,
        "BorutaShap": boruta_shap,
        "ShapRFECV": elimination,
        "probatus.ShapRFECV": probatus,
    }


def measure(name: str, arguments: argparse.Namespace, left_out: dict[str, str]) -> dict[str, Any]:
    """Run all methods on each data set in turn, except methods whose package is not installed."""
    runs: dict[str, list[dict[str, Any]]] = {}
    todo = methods(arguments.rounds)
    for seed in range(arguments.seeds):
        X, y = data(seed, arguments.rows)
        for method, function in list(todo.items()):
            start = perf_counter()
            try:
                selected, n_fits = function(models()[name], X.copy(), y)
            except ImportError as error:
                left_out[method] = str(error)
                del todo[method]
                continue
            seconds = perf_counter() - start
            run = {"selected": sorted(selected), "fits": int(n_fits), "seconds": seconds}
            runs.setdefault(method, []).append(run)
    return {
        "name": name,
        "model": repr(models()[name]),
        "seeds": arguments.seeds,
        "rows": arguments.rows,
        "columns": X.shape[1],
        "planted": sorted(PLANTED),
        "rounds": arguments.rounds,
        "methods": {method: summary(of_method) for method, of_method in runs.items()},
    }


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return how many runs found all planted columns, and how many other columns they selected."""
    extra = [len(set(run["selected"]) - PLANTED) for run in runs]
    return {
        "seeds_with_all_planted": sum(set(run["selected"]) >= PLANTED for run in runs),
        "seeds_with_planted_only": sum(set(run["selected"]) == PLANTED for run in runs),
        "mean_others": sum(extra) / len(extra),
        "median_seconds": median(run["seconds"] for run in runs),
        "median_milliseconds_per_fit": median(1e3 * run["seconds"] / run["fits"] for run in runs),
        "runs": runs,
    }


def print_result(result: dict[str, Any]) -> None:
    print(f"\n{result['name']}, {result['seeds']} data sets")
    for method, figures in result["methods"].items():
        print(
            f"{method:20} all planted {figures['seeds_with_all_planted']:3}, no others "
            f"{figures['seeds_with_planted_only']:3}, others {figures['mean_others']:.2f}; "
            f"{figures['median_seconds']:.2f} s, {figures['median_milliseconds_per_fit']:.0f} ms per fit",
            flush=True,
        )
