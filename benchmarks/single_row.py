"""Time of a call for one row, by the form of X, beside the time of the model's own prediction."""

from __future__ import annotations

import argparse
import importlib.util
import json
import warnings
from collections.abc import Callable
from statistics import median
from time import process_time
from typing import Any

import numpy as np
import pandas as pd

from skshapgpu import TreeExplainer

N_TRAINING, N_NUMBERS, N_CATEGORICAL, N_CATEGORIES = 5000, 12, 8, 12

#: Families that are measured, if their library is installed, and forms of X.
FAMILIES, FORMS = ("sklearn", "lightgbm", "xgboost"), ("array", "frame", "frame with categories")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, default=1000, help="calls of each kind (1000)")
    parser.add_argument("--trees", type=int, default=100, help="trees of each model (100)")


def cases() -> list[tuple[str, str]]:
    """Return the families that are installed, with each form of X."""
    installed = [name for name in FAMILIES if importlib.util.find_spec(name) is not None]
    return [(family, form) for family in installed for form in FORMS]


def measure(family: str, form: str, n_rows: int, n_trees: int) -> dict[str, Any]:
    """Time calls for one row each; the first tenth of the rows is for warming up.

    Times are CPU times of the process: all calls use one thread, and waiting for a core does not count.
    """
    X, y = data(form)
    model = fitted(family, X, y, n_trees)
    explainer = TreeExplainer(model, device="cpu", n_jobs=1)
    rows = [X[i : i + 1] if form == "array" else X.iloc[i : i + 1] for i in range(n_rows)]
    calls = {"shap_values": explainer.shap_values, "explain": explainer.explain, "predict": model.predict}
    medians = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about names that an array does not have
        for name, call in calls.items():
            seconds = [timed(call, row) for row in rows]
            medians[f"{name}_ms"] = 1e3 * median(seconds[n_rows // 10 :])
    return {"name": f"{family}, {form}", "n_trees": n_trees, "n_columns": X.shape[1], **medians}


def timed(call: Callable[[Any], Any], row: Any) -> float:
    start = process_time()
    call(row)
    return process_time() - start


def data(form: str) -> tuple[Any, np.ndarray]:
    """Draw rows, with categorical columns if the form has them, and a target."""
    rng = np.random.default_rng(0)
    numbers = rng.normal(size=(N_TRAINING, N_NUMBERS))
    y = numbers[:, 0] * numbers[:, 1] + numbers[:, 2]
    if form == "array":
        return numbers, y
    frame = pd.DataFrame(numbers, columns=[f"n{i}" for i in range(N_NUMBERS)])
    if form == "frame":
        return frame, y
    names = [f"category {i}" for i in range(N_CATEGORIES)]
    for i in range(N_CATEGORICAL):
        codes = rng.integers(0, N_CATEGORIES, N_TRAINING)
        frame[f"c{i}"] = pd.Categorical.from_codes(codes, names)
        y = y + (codes % 3 == 0) * numbers[:, i]
    return frame, y


def fitted(family: str, X: Any, y: np.ndarray, n_trees: int) -> Any:
    if family == "sklearn":
        from sklearn.ensemble import HistGradientBoostingRegressor

        return HistGradientBoostingRegressor(max_iter=n_trees, categorical_features="from_dtype").fit(X, y)
    if family == "lightgbm":
        import lightgbm

        return lightgbm.LGBMRegressor(n_estimators=n_trees, verbose=-1, n_jobs=1).fit(X, y)
    import xgboost

    return xgboost.XGBRegressor(n_estimators=n_trees, enable_categorical=True, n_jobs=1).fit(X, y)


def print_result(result: dict[str, Any]) -> None:
    print(json.dumps(result), flush=True)
