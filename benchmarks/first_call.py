"""Share of an explainer's first call that the comparison with the model's own prediction takes."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any
from unittest import mock

import numpy as np
import single_row

from skshapgpu import TreeExplainer
from skshapgpu._engine import agreement

ROWS = (1, 10_000)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--repeats", type=int, default=9, help="new explainers for each number of rows (9)")
    parser.add_argument("--trees", type=int, default=500, help="trees of each model (500)")


def measure(family: str, form: str, n_rows: int, n_trees: int, repeats: int) -> dict[str, Any]:
    """Time first calls, their comparisons, the library's predictions for these, and second calls, in turn.

    The results also have second calls, of explainers whose first call was compared and of others.
    """
    X, y = single_row.data(form)
    model = single_row.fitted(family, X, y, n_trees)
    positions = np.resize(np.arange(len(X)), n_rows)
    rows = X[positions] if form == "array" else X.iloc[positions]
    seconds: dict[str, list[float]] = {
        name: [] for name in ("first_call", "comparison", "predict", "second_call", "second_call_unchecked")
    }
    for _ in range(repeats + 1):
        explainer, unchecked = (TreeExplainer(model, device="cpu", n_jobs=1) for _ in range(2))
        unchecked._agreement.close(agreement.TREES)
        parts = [
            mock.patch.object(owner, name, timed(getattr(owner, name), seconds[part]))
            for owner, name, part in (
                (TreeExplainer, "_compare_with_model", "comparison"),
                (agreement.Explained, "predict", "predict"),
            )
        ]
        with parts[0], parts[1]:
            timed(explainer.shap_values, seconds["first_call"])(rows)
        assert explainer._agreement.against == agreement.MODEL
        unchecked.shap_values(rows)
        timed(explainer.shap_values, seconds["second_call"])(rows)
        timed(unchecked.shap_values, seconds["second_call_unchecked"])(rows)
    medians = {f"{name}_ms": 1e3 * median(times[1:]) for name, times in seconds.items()}  # the first warms up
    beyond = median(
        1e3 * (comparison - predict)
        for comparison, predict in list(zip(seconds["comparison"], seconds["predict"]))[1:]
    )
    name = f"{family}, {form}, {n_rows:,} rows"
    return {"name": name, "n_rows": n_rows, "n_trees": n_trees, **medians, "beyond_predict_ms": beyond}


def timed(call: Callable[..., Any], seconds: list[float]) -> Callable[..., Any]:
    """Return the function, which then appends the seconds that it takes."""

    def run(*arguments: Any, **options: Any) -> Any:
        start = perf_counter()
        result = call(*arguments, **options)
        seconds.append(perf_counter() - start)
        return result

    return run


def print_result(result: dict[str, Any]) -> None:
    print(json.dumps(result), flush=True)
