"""Time of a call for one row, beside the model's own prediction and the SHAP values of its library."""

from __future__ import annotations

import argparse
import importlib.util
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import median, quantiles
from time import process_time
from typing import Any

import numpy as np
import pandas as pd
import peers

from skshapgpu import TreeExplainer

N_TRAINING, N_NUMBERS, N_CATEGORICAL, N_CATEGORIES = 5000, 12, 8, 12

#: Families that are measured, if their library is installed, and forms of X.
FAMILIES, FORMS = ("sklearn", "lightgbm", "xgboost"), ("array", "frame", "frame with categories")

#: Larger models, for rows of an array: the library, the number of trees, and the parameters.
LARGE_MODELS: dict[str, tuple[str, int, dict[str, Any]]] = {
    "xgboost, 100 trees of depth 8": ("xgboost", 100, {"max_depth": 8}),
    "xgboost, 300 trees of depth 6": ("xgboost", 300, {"max_depth": 6}),
    "lightgbm, 300 trees of 31 leaves": ("lightgbm", 300, {"num_leaves": 31}),
    "histograms, 200 trees of 31 leaves": ("sklearn", 200, {"early_stopping": False}),
    "forest, 100 trees without a limit": ("forest", 100, {}),
}
N_LARGE_TRAINING = 20_000

#: Models of rows with N_WIDE columns, whose few rows are compared between checkouts.
WIDE_MODELS: dict[str, tuple[str, int, dict[str, Any]]] = {
    "xgboost, 100 trees of depth 8, 100 columns": ("xgboost", 100, {"max_depth": 8}),
    "lightgbm, 300 trees of 31 leaves, 100 columns": ("lightgbm", 300, {"num_leaves": 31}),
    "histograms, 200 trees of 31 leaves, 100 columns": ("sklearn", 200, {"early_stopping": False}),
}
N_WIDE = 100

#: Rows for which the library's own SHAP values are timed, which take up to 0.2 s, and the rows after which
#: ours take turns.
LIBRARY_ROWS, LIBRARY_ROUND = 100, 10

#: Numbers of rows that are also explained by walks, and the number of calls of each.
FEW_ROWS, FEW_CALLS = (1, 2, 4, 8, 16, 64), 60

#: Rounds in which two checkouts take turns, and the number of calls of each in a round.
COMPARED_ROUNDS, COMPARED_CALLS, COMPARED_FOREST_CALLS = 11, 200, 15


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, default=1000, help="calls of each kind (1000)")
    parser.add_argument("--trees", type=int, default=100, help="trees of each model (100)")
    parser.add_argument(
        "--other", type=Path, metavar="DIR", help="checkout with a compiled core: compare few rows with it"
    )


def cases() -> list[tuple[str, str]]:
    """Return the families that are installed, with each form of X."""
    return [(family, form) for family in FAMILIES if is_installed(family) for form in FORMS]


def large_models() -> list[str]:
    """Return the names of the large models whose library is installed."""
    return [name for name, (family, *_) in LARGE_MODELS.items() if is_installed(family)]


def compared_models() -> list[str]:
    """Return the names of the models that two checkouts explain, whose library is installed."""
    wide = [name for name, (family, *_) in WIDE_MODELS.items() if is_installed(family)]
    return large_models() + wide


def is_installed(family: str) -> bool:
    return family == "forest" or importlib.util.find_spec(family) is not None


def measure(family: str, form: str, n_rows: int, n_trees: int) -> dict[str, Any]:
    """Time calls for one row each of a model of ``n_trees`` trees."""
    X, y = data(form)
    rows = [X[i : i + 1] if form == "array" else X.iloc[i : i + 1] for i in range(n_rows)]
    times = time_calls(fitted(family, X, y, n_trees), rows)
    return {"name": f"{family}, {form}", "n_trees": n_trees, "n_columns": X.shape[1], **times}


def measure_large(name: str, n_rows: int) -> dict[str, Any]:
    """Time calls for one row each of a large model, and compare our values with those of its library."""
    family, n_trees, params = LARGE_MODELS[name]
    X, y = data("array", N_LARGE_TRAINING)
    model = fitted(family, X, y, n_trees, **params)
    rows = [X[i : i + 1] for i in range(n_rows)]
    own = own_values(family, model)
    explainer = TreeExplainer(model, device="cpu", n_jobs=1, expected_rows=10**6)
    start = process_time()
    group = explainer.plan(1).tree_groups[0]  # the plan of the first small call puts the leaves into lanes
    result = {"name": name, "n_leaves": group.n_leaves, "algorithm": group.algorithm}
    result |= {"build_ms": 1e3 * (process_time() - start), "table_bytes": group.table_bytes}
    result |= time_calls(model, rows, explainer) | {"few_rows": time_few_rows(model, X, explainer)}
    if own is None:
        return result
    seconds: dict[str, list[float]] = {"library_ms": [], "beside_library_ms": []}
    largest, difference = 0.0, 0.0
    for first in range(0, LIBRARY_ROWS, LIBRARY_ROUND):
        some = rows[first : first + LIBRARY_ROUND]
        for row in some:
            right = own(row)
            difference = max(difference, np.abs(explainer.shap_values(row) - right).max())
            largest = max(largest, np.abs(right).max())
        for timing, call in zip(seconds, (own, explainer.shap_values)):
            seconds[timing] += [timed(call, row) for row in some]
    result |= {timing: 1e3 * median(times) for timing, times in seconds.items()}
    return result | {"library": own.__name__, "difference": difference / largest}


def time_few_rows(model: Any, X: np.ndarray, explainer: TreeExplainer) -> list[dict[str, Any]]:
    """Time calls of a few rows, and calls that walk, in turn."""
    walks = TreeExplainer(model, device="cpu", n_jobs=1, algorithm="quadrature")
    results = []
    for n_rows in FEW_ROWS:
        calls = {"ms": explainer.shap_values, "walked_ms": walks.shap_values}
        seconds: dict[str, list[float]] = {name: [] for name in calls}
        for i in range(FEW_CALLS):
            rows = X[i * n_rows : (i + 1) * n_rows]
            for name, call in calls.items():
                seconds[name].append(timed(call, rows))
        algorithm = explainer.plan(n_rows).tree_groups[0].algorithm
        medians = {name: 1e3 * median(times[FEW_CALLS // 10 :]) for name, times in seconds.items()}
        results.append({"n_rows": n_rows, "algorithm": algorithm, **medians})
    return results


def compare(name: str, other: Path) -> dict[str, Any]:
    """Time calls of few rows of a large or wide model with this checkout and another one, in turn."""
    family, n_trees, params = (LARGE_MODELS | WIDE_MODELS)[name]
    X, y = wide_data() if name in WIDE_MODELS else data("array", N_LARGE_TRAINING)
    model = fitted(family, X, y, n_trees, **params)
    if family == "xgboost":
        model = model.get_booster()
    payload = {"model": model, "family": family, "columns": "all"}
    checkouts = peers.Checkouts("calls", other, 1)
    try:
        (runners,) = checkouts.start(payload, X)
        values = [runner.ask("values", 1, 1)["before"] for runner in runners.values()]
        n_calls = COMPARED_FOREST_CALLS if family == "forest" else COMPARED_CALLS
        return {
            "name": f"{name}, two checkouts, {runners['this'].note}",
            "difference": float(np.abs(values[0] - values[1]).max() / np.abs(values[1]).max()),
            "few_rows": [_in_turn(runners, n_rows, n_calls) for n_rows in FEW_ROWS],
        }
    finally:
        checkouts.close()


def _in_turn(runners: peers.Pair, n_rows: int, n_calls: int) -> dict[str, Any]:
    rounds = []
    for i in range(COMPARED_ROUNDS):
        order = list(runners) if i % 2 else list(runners)[::-1]
        rounds.append({key: runners[key].ask("few_rows", n_rows, n_calls) for key in order})
    ratios = [one["other"] / one["this"] for one in rounds]
    low, _, high = quantiles(ratios, n=4)
    return {
        "n_rows": n_rows,
        "ms": 1e3 * median(one["this"] for one in rounds),
        "other_ms": 1e3 * median(one["other"] for one in rounds),
        "other_over_this": {"median": median(ratios), "quartiles": [low, high]},
    }


def own_values(family: str, model: Any) -> Callable[[Any], np.ndarray] | None:
    """Return a function that computes the SHAP values of a row with the model's library, or with shap."""
    if family == "xgboost":
        import xgboost

        booster = model.get_booster()

        def pred_contribs(row: np.ndarray) -> np.ndarray:
            return booster.predict(xgboost.DMatrix(row, nthread=1), pred_contribs=True)[:, :-1]

        return pred_contribs
    if family == "lightgbm":

        def pred_contrib(row: np.ndarray) -> np.ndarray:
            return model.predict(row, pred_contrib=True, num_threads=1)[:, :-1]

        return pred_contrib
    if importlib.util.find_spec("shap") is None:
        return None
    from shap import TreeExplainer as Shap

    explainer = Shap(model)

    def shap_values(row: np.ndarray) -> np.ndarray:
        return explainer.shap_values(row, check_additivity=False)

    return shap_values


def time_calls(model: Any, rows: list[Any], explainer: TreeExplainer | None = None) -> dict[str, Any]:
    """Return the medians of calls that are made in turn; the first tenth of the rows is for warming up.

    Times are CPU times of the process: all calls use one thread, and waiting for a core does not count.
    """
    explainer = explainer or TreeExplainer(model, device="cpu", n_jobs=1)
    calls = {"shap_values": explainer.shap_values, "explain": explainer.explain, "predict": model.predict}
    if hasattr(model, "n_jobs"):
        model.n_jobs = 1
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about names that an array does not have
        for row in rows:
            for name, call in calls.items():
                seconds[name].append(timed(call, row))
    first = len(rows) // 10
    return {f"{name}_ms": 1e3 * median(times[first:]) for name, times in seconds.items()}


def timed(call: Callable[[Any], Any], row: Any) -> float:
    start = process_time()
    call(row)
    return process_time() - start


def data(form: str, n_rows: int = N_TRAINING) -> tuple[Any, np.ndarray]:
    """Draw rows, with categorical columns if the form has them, and a target."""
    rng = np.random.default_rng(0)
    numbers = rng.normal(size=(n_rows, N_NUMBERS))
    y = numbers[:, 0] * numbers[:, 1] + numbers[:, 2]
    if form == "array":
        return numbers, y
    frame = pd.DataFrame(numbers, columns=[f"n{i}" for i in range(N_NUMBERS)])
    if form == "frame":
        return frame, y
    names = [f"category {i}" for i in range(N_CATEGORIES)]
    for i in range(N_CATEGORICAL):
        codes = rng.integers(0, N_CATEGORIES, n_rows)
        frame[f"c{i}"] = pd.Categorical.from_codes(codes, names)
        y = y + (codes % 3 == 0) * numbers[:, i]
    return frame, y


def wide_data() -> tuple[np.ndarray, np.ndarray]:
    """Draw rows with N_WIDE columns, of which the target depends on 30."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N_LARGE_TRAINING, N_WIDE))
    y = X[:, 0] * X[:, 1] + X[:, 2] + np.tanh(X[:, 3:30]) @ rng.normal(size=27)
    return X, y + 0.3 * rng.normal(size=N_LARGE_TRAINING)


def fitted(family: str, X: Any, y: np.ndarray, n_trees: int, **params: Any) -> Any:
    if family == "forest":
        from sklearn.ensemble import RandomForestRegressor

        return RandomForestRegressor(n_trees, random_state=0, n_jobs=-1, **params).fit(X, y)
    if family == "sklearn":
        from sklearn.ensemble import HistGradientBoostingRegressor

        params = {"categorical_features": "from_dtype", **params}
        return HistGradientBoostingRegressor(max_iter=n_trees, **params).fit(X, y)
    if family == "lightgbm":
        import lightgbm

        return lightgbm.LGBMRegressor(n_estimators=n_trees, verbose=-1, n_jobs=1, **params).fit(X, y)
    import xgboost

    params = {"enable_categorical": True, "n_jobs": 1, **params}
    return xgboost.XGBRegressor(n_estimators=n_trees, **params).fit(X, y)


def print_result(result: dict[str, Any]) -> None:
    print(json.dumps(result), flush=True)
