"""Overhead of explaining in a cross-validation: cross_val_explain and cross_validate on one thread."""

from __future__ import annotations

import argparse
import json
import time
from statistics import median
from typing import Any

import models
import numpy as np

from skshapgpu import cross_val_explain

#: Encoders of the columns of strings.
ENCODINGS = ("one-hot-dense", "one-hot-sparse", "ordinal")

#: Number of categories of each column of strings in Adult, for generated data.
LEVELS = (9, 16, 7, 15, 6, 5, 2, 42)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", metavar="DIR", help="folder with load.py and Adult; default: generated")
    parser.add_argument(
        "--encodings",
        nargs="+",
        choices=ENCODINGS,
        default=ENCODINGS,
        metavar="NAME",
        help=" ".join(ENCODINGS),
    )
    parser.add_argument("--rounds", type=int, default=100, help="of boosting (100)")
    parser.add_argument("--splits", type=int, default=5, help="folds (5)")
    parser.add_argument("--repeats", type=int, default=5, help="pairs of runs (5)")


def measure(arguments: argparse.Namespace, encoding: str) -> dict[str, Any]:
    """Time both functions in turn, each first in every other round, and compare their scores.

    The model is XGBoost after a ``ColumnTransformer`` that encodes columns of strings; all other options have
    their defaults.
    """
    from sklearn.compose import make_column_transformer
    from sklearn.model_selection import cross_validate
    from sklearn.pipeline import make_pipeline
    from xgboost import XGBClassifier

    X, y, texts = read(arguments)
    encode = make_column_transformer((encoder(encoding), texts), remainder="passthrough")
    model = make_pipeline(encode, XGBClassifier(n_estimators=arguments.rounds, n_jobs=1))
    runs = []
    for repeat in range(arguments.repeats):
        run: dict[str, Any] = {}
        results = {}
        both = (("cross_validate", cross_validate), ("cross_val_explain", cross_val_explain))
        for name, function in both[:: 1 if repeat % 2 else -1]:
            start, cpu = time.perf_counter(), time.process_time()
            results[name] = function(model, X, y, cv=arguments.splits)
            run[name] = {"seconds": time.perf_counter() - start, "cpu_seconds": time.process_time() - cpu}
        ours = results["cross_val_explain"]
        run["ratio"] = {
            unit: run["cross_val_explain"][unit] / run["cross_validate"][unit]
            for unit in ("seconds", "cpu_seconds")
        }
        run["explain_seconds"] = float(ours["explain_time"].sum())
        run["same_scores"] = bool((ours["test_score"] == results["cross_validate"]["test_score"]).all())
        runs.append(run)
    return {
        "encoding": encoding,
        **{name: getattr(arguments, name) for name in ("rounds", "splits", "repeats")},
        "rows": len(X),
        "columns": X.shape[1],
        "features": len(ours["explanation"].feature_names),
        "additivity_error": ours["explanation"].additivity_error,
        "same_scores": all(run["same_scores"] for run in runs),
        "median_ratio": {
            unit: median(run["ratio"][unit] for run in runs) for unit in ("seconds", "cpu_seconds")
        },
        "runs": runs,
    }


def encoder(encoding: str) -> Any:
    from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder

    if encoding == "ordinal":
        return OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
    return OneHotEncoder(handle_unknown="ignore", sparse_output=encoding == "one-hot-sparse")


def read(arguments: argparse.Namespace) -> tuple[Any, np.ndarray, list[str]]:
    """Read Adult or generate a similar table; return it with the names of its columns of strings."""
    import pandas as pd

    if arguments.data:
        X, y, meta = models.loader(arguments.data)("adult")
        texts = list(meta["categorical"])
    else:
        rng = np.random.default_rng(0)
        numbers = rng.normal(size=(48_842, 6))
        codes = np.column_stack([rng.integers(n, size=len(numbers)) for n in LEVELS])
        texts = [f"text{i}" for i in range(len(LEVELS))]
        X = pd.DataFrame(numbers, columns=[f"number{i}" for i in range(6)])
        X[texts] = np.char.add("level ", codes.astype(str)).astype(object)
        y = (numbers[:, 0] * numbers[:, 1] + codes[:, 0] % 3 + rng.normal(size=len(X)) > 1).astype(int)
    rows = slice(2_000) if arguments.quick else slice(None)
    return X[rows], y[rows], texts


def print_result(result: dict[str, Any]) -> None:
    shown = {name: value for name, value in result.items() if name != "runs"}
    print(json.dumps(shown, indent=1))
