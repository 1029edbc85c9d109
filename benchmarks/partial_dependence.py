"""Partial dependence of one feature on one thread: ours, scikit-learn's brute force, and Woodelf's."""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import peers

from skshapgpu import partial_dependence

#: Number of rows on which results are compared before systems are timed, and of training rows.
COMPARED_ROWS, TRAINING_ROWS = 500, 20_000

#: Largest error, relative to the largest magnitude, at which a system is still timed: for our results and
#: scikit-learn's predictions, both in double precision; for XGBoost's predictions and for Woodelf's results,
#: both float32.
TOLERANCE = {"double": 1e-10, "xgboost": 5e-6, "woodelf": 1e-4}

MODELS = ("xgboost-d6", "xgboost-d8", "lightgbm-31", "histgb", "forest-d8", "forest-unlimited")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, default=100_000, help="rows that are averaged (100000)")
    parser.add_argument("--features", type=int, default=10, help="(10)")
    parser.add_argument("--grid", type=int, default=100, help="values of the grid (100)")
    parser.add_argument(
        "--rounds", type=int, default=100, help="trees; a fifth in the unlimited forest (100)"
    )
    parser.add_argument("--repeats", type=int, default=7, help="our calls, of which the median counts (7)")
    parser.add_argument(
        "--models",
        nargs="+",
        choices=MODELS,
        default=list(MODELS),
        metavar="NAME",
        help="of: " + " ".join(MODELS),
    )


def fit(name: str, X: np.ndarray, y: np.ndarray, rounds: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor

    if name.startswith("xgboost"):
        import xgboost

        model: Any = xgboost.XGBRegressor(n_estimators=rounds, max_depth=int(name[-1]), n_jobs=1)
    elif name.startswith("lightgbm"):
        import lightgbm

        model = lightgbm.LGBMRegressor(n_estimators=rounds, n_jobs=1, verbose=-1)
    elif name == "histgb":
        model = HistGradientBoostingRegressor(max_iter=rounds, random_state=0)
    else:
        depth = None if name == "forest-unlimited" else 8
        model = RandomForestRegressor(
            rounds if depth else max(1, rounds // 5), max_depth=depth, random_state=0
        )
    return model.fit(X[:TRAINING_ROWS], y[:TRAINING_ROWS])


def measure(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Train on generated data, compare the results for some rows, then time each system with all rows."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(arguments.rows, arguments.features)).astype(np.float32)
    y = 100 + X[:, 0] * X[:, 1] + np.sin(3 * X[:, 2]) + np.abs(X).sum(axis=1)
    model = fit(name, X, y, arguments.rounds)
    some = X[:COMPARED_ROWS]
    expected = by_brute_force(model, some, arguments.grid)
    ours = partial_dependence(model, some, 0, grid_resolution=arguments.grid)
    errors = {"ours": peers.relative_error(ours.average, expected.average)}
    if not errors["ours"] <= TOLERANCE["xgboost" if name.startswith("xgboost") else "double"]:
        raise AssertionError(f"not timed: ours is beyond tolerance: {errors}")
    result: dict[str, Any] = {
        "name": name,
        **{key: getattr(arguments, key) for key in ("rows", "features", "grid", "rounds", "repeats")},
        "leaves": peers.ensemble_of(model).n_leaves,
        "errors": errors,
        "left_out": {},
    }
    grid = {"grid_resolution": arguments.grid}
    seconds = {
        "ours": median(lambda: partial_dependence(model, X, 0, **grid), arguments.repeats),
        "ours, exact grid": median(
            lambda: partial_dependence(model, X, 0, grid_resolution="exact"), arguments.repeats
        ),
        "ours, ICE": median(lambda: partial_dependence(model, X, 0, kind="individual", **grid), 3),
        "ours, a pair": median(lambda: partial_dependence(model, X, (0, 1), **grid), 3),
        "ours, all features": median(
            lambda: [partial_dependence(model, X, i, **grid) for i in range(X.shape[1])], 3
        ),
        "scikit-learn": median(lambda: by_brute_force(model, X, arguments.grid), 1),
    }
    try:
        woodelf = woodelf_of(model, X)
        errors["woodelf"] = woodelf_error(woodelf(some, arguments.grid), model, some)
        if not errors["woodelf"] <= TOLERANCE["woodelf"]:
            raise peers.NotApplicable(f"beyond tolerance: {errors['woodelf']:.2g}")
        seconds["woodelf, all features"] = median(lambda: woodelf(X, arguments.grid), 1)
    except Exception as error:  # it may raise anything for a model that it does not know
        result["left_out"]["woodelf"] = peers.reason(error)
    result["seconds"] = seconds
    result["predictions_per_second"] = {
        system: arguments.rows * arguments.grid / seconds[system] for system in ("ours", "scikit-learn")
    }
    result["scikit_learn_over_ours"] = seconds["scikit-learn"] / seconds["ours"]
    if "woodelf, all features" in seconds:
        result["woodelf_over_ours"] = seconds["woodelf, all features"] / seconds["ours, all features"]
    return result


def by_brute_force(model: Any, X: np.ndarray, grid: int) -> Any:
    from sklearn.inspection import partial_dependence as of_sklearn

    return of_sklearn(model, X, [0], grid_resolution=grid, method="brute")


def woodelf_of(model: Any, X: np.ndarray) -> Callable[[np.ndarray, int], Any]:
    """Return Woodelf's function, which computes the curves of all features in one call."""
    import pandas as pd
    from woodelf.pdp import woodelf_pdp

    if (leaves := peers.ensemble_of(model).n_leaves) > peers.MAX_WOODELF_LEAVES:
        raise peers.NotApplicable(f"not timed: {leaves:,} leaves take minutes in any call")
    columns = [f"x{i}" for i in range(X.shape[1])]

    def call(rows: np.ndarray, grid: int) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return woodelf_pdp(model, pd.DataFrame(rows, columns=columns), k=grid, verbose=False)

    return call


def woodelf_error(result: Any, model: Any, X: np.ndarray) -> float:
    """Compute the largest error of Woodelf's curves, which are centered, at Woodelf's own points."""
    curves, points = result
    worst = 0.0
    for i, column in enumerate(points.columns):
        ours = partial_dependence(
            model, X, i, custom_values={i: points[column].to_numpy()}, centered=True
        ).average[0]
        worst = max(worst, peers.relative_error(np.asarray(curves[column], np.float64), ours))
    return worst


def median(call: Callable[[], Any], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def print_model(result: dict[str, Any]) -> None:
    print(f"\n{result['name']}: {result['leaves']:,} leaves, {result['rows']:,} rows, grid {result['grid']}")
    for system, seconds in result["seconds"].items():
        print(f"  {system:<22}{seconds:10.4f} s")
    for system, why in result["left_out"].items():
        print(f"  {system}: left out: {why}")
    ratios = {
        name: result[name] for name in ("scikit_learn_over_ours", "woodelf_over_ours") if name in result
    }
    print("  " + ", ".join(f"{name} {ratio:.1f}" for name, ratio in ratios.items()), flush=True)
