"""Calls of one checkout of this package, and the predictions of the model itself, timed in the same process.

Times are CPU seconds of the process: all systems run on one thread, and waiting for a core on a busy machine
does not count.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from inspect import signature
from statistics import median
from time import process_time
from typing import Any

import numpy as np

#: A measurement repeats short calls until they take about this many seconds.
LEAST_SECONDS = 0.03
MOST_CALLS = 20

#: Number of rows that the explainer with tables made beforehand expects to explain in all its calls.
EXPECTED_ROWS = 1_000_000


class Calls:
    """Calls of an explainer with tables made beforehand, of new explainers and of the model, on equal rows.

    ``payload`` has the ``model``, its ``family``, and the ``columns`` whose values are computed: "all" or
    "used". A checkout without this option computes the values of all columns.
    """

    def __init__(self, payload: dict[str, Any], X: Any) -> None:
        from skshapgpu import TreeExplainer, _core

        parameters = signature(TreeExplainer).parameters
        self._options: dict[str, Any] = {"device": "cpu", "n_jobs": 1}
        if payload["columns"] != "all" and "columns" in parameters:
            self._options["columns"] = payload["columns"]
        self._expected = {"expected_rows": EXPECTED_ROWS} if "expected_rows" in parameters else {}
        self._model, self._family, self._X = payload["model"], payload["family"], X
        self._called: Any = None
        self._ways = ways_to_predict(self._family, self._model)
        self.note = _core.instruction_set()

    def _explainer(self, **options: Any) -> Any:
        from skshapgpu import TreeExplainer

        return TreeExplainer(self._model, **self._options, **options)

    def columns(self) -> str:
        """Return which columns have values: "all" or "used"."""
        return self._options.get("columns", "all")

    def values(self, n_rows: int, n_kept: int) -> dict[str, np.ndarray]:
        """Compute values of the first rows by the calls that are timed, and in double precision.

        Return the values of the first ``n_kept`` rows, of shape (n_kept, n_features[, n_outputs]), and the
        margins to which the values in double precision add up, of shape (n_kept, n_outputs). The explainer is
        kept for the calls that are timed.
        """
        self._called = self._explainer(**self._expected)
        values = {
            name: _of_all_columns(explainer, explainer.shap_values(self._X[:n_rows])[:n_kept])
            for name, explainer in self._explainers().items()
        }
        double = self._explainer(precision="double")
        values["double"] = _of_all_columns(double, double.shap_values(self._X[:n_kept].astype(np.float64)))
        total = values["double"].sum(axis=1) + double.expected_value
        return values | {"margin": np.asarray(total).reshape(n_kept, -1)}

    def _explainers(self) -> dict[str, Any]:
        return {"in_call": self._explainer(), "before": self._called}

    def groups(self, n_rows: int) -> dict[str, list[dict[str, Any]]]:
        """Return how each call explains the trees: leaves by algorithm, and bytes of tables."""
        fields = (
            "algorithm",
            "n_trees",
            "n_leaves",
            "n_walked_leaves",
            "n_nodes",
            "n_lookups",
            "table_bytes",
        )
        return {
            name: [
                {field: getattr(group, field) for field in fields if hasattr(group, field)}
                for group in explainer.plan(n_rows).tree_groups
            ]
            for name, explainer in self._explainers().items()
        }

    def in_call(self, n_rows: int, n_calls: int = 1) -> float:
        """Measure first calls of ``n_calls`` new explainers, each made and compiled beforehand."""
        X, seconds = self._X[:n_rows], 0.0
        for _ in range(n_calls):
            explainer = self._explainer()
            start = process_time()
            explainer.shap_values(X)
            seconds += process_time() - start
        return seconds / n_calls

    def before(self, n_rows: int, n_calls: int = 1) -> float:
        """Measure calls of an explainer that was called with as many rows before, and expects many more."""
        return _mean_seconds(self._called.shap_values, self._X[:n_rows], n_calls)

    def few_rows(self, n_rows: int, n_calls: int) -> float:
        """Measure calls as :meth:`before` does, each with other rows; return the median."""
        seconds = []
        for i in range(n_calls):
            rows = self._X[i * n_rows : (i + 1) * n_rows]
            start = process_time()
            self._called.shap_values(rows)
            seconds.append(process_time() - start)
        return median(seconds)

    def fastest_prediction(self, n_rows: int) -> str:
        """Return which way to predict is the fastest."""
        return min(self._ways, key=lambda way: min(self.predict(n_rows, 1, way) for _ in range(3)))

    def predict(self, n_rows: int, n_calls: int, way: str) -> float:
        """Measure predictions of raw margins by the model itself; preparing the rows is not timed."""
        prepare, call = self._ways[way]
        seconds = 0.0
        for _ in range(n_calls):
            rows = prepare(self._X[:n_rows])  # again: XGBoost keeps its predictions for a DMatrix
            seconds += _mean_seconds(call, rows, 1)
        return seconds / n_calls


def _of_all_columns(explainer: Any, values: np.ndarray) -> np.ndarray:
    """Return values as float64, with zeros for columns that the explainer leaves out."""
    indices = getattr(explainer, "feature_indices", None)
    if indices is None:
        return np.asarray(values, np.float64)
    wide = np.zeros((len(values), explainer.n_features, *values.shape[2:]))
    wide[:, indices] = values
    return wide


def _mean_seconds(call: Callable[[Any], Any], rows: Any, n_calls: int) -> float:
    start = process_time()
    for _ in range(n_calls):
        call(rows)
    return (process_time() - start) / n_calls


def calls_of(seconds: float) -> int:
    """Return how many calls of so many seconds a measurement has."""
    return max(1, min(MOST_CALLS, math.ceil(LEAST_SECONDS / max(seconds, 1e-6))))


def ways_to_predict(family: str, model: Any) -> dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]]:
    """Return the ways to predict raw margins on one thread, each as a preparing function and a call."""
    if family == "xgboost":
        import xgboost

        model.set_param({"nthread": 1})
        return {
            "inplace_predict": (_same, lambda X: model.inplace_predict(X, predict_type="margin")),
            "predict, DMatrix made before": (
                lambda X: xgboost.DMatrix(X, nthread=1),
                lambda rows: model.predict(rows, output_margin=True),
            ),
        }
    if family == "lightgbm":
        return {"predict": (_same, lambda X: model.predict(X, raw_score=True, num_threads=1))}
    if family == "catboost":
        from catboost import Pool

        def predict(rows: Any) -> Any:
            return model.predict(rows, prediction_type="RawFormulaVal", thread_count=1)

        return {
            "predict": (_same, predict),
            "predict, Pool made before": (lambda X: Pool(X, thread_count=1), predict),
        }
    names = ("decision_function", "predict_proba", "predict")
    name = next(name for name in names if hasattr(model, name))
    call = getattr(model, name)
    return {
        f"{name}, float32": (_same, call),
        f"{name}, float64": (lambda X: X.astype(np.float64), call),
    }


def _same(X: Any) -> Any:
    return X
