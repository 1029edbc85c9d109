"""Models that the benchmarks explain: data, training, and the cache of both.

A case is a fitted model and the rows to explain. XGBoost models follow table 3 of the GPUTreeShap paper
(arXiv 2010.13972); random forests and the XGBoost models "xgb" follow tables 5 and 6 of the Fast TreeSHAP
paper (arXiv 2109.09847).
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import joblib
import numpy as np

#: name: (rows, columns, classes; 0 for regression, 1 for a binary target), as in the papers.
SHAPES = {
    "covtype": (581_012, 54, 7),
    "cal_housing": (20_640, 8, 0),
    "fashion_mnist": (70_000, 784, 10),
    "adult": (48_842, 14, 1),
    "superconductor": (21_263, 81, 0),
    "dense_500": (20_640, 500, 0),
}

#: Data sets that are generated even with --data: the folder has no data like them.
ALWAYS_GENERATED = {"dense_500"}

#: Data sets of --data that replace data sets of the papers. Both have fewer rows; the results say so.
STORED = {
    "covtype": "covertype",
    "fashion_mnist": "mnist_10k",
    "superconductor": "superconductivity_500",
}

#: size: (boosting rounds, max_depth, learning rate).
XGBOOST_SIZES = {
    "small": (10, 3, 0.01),
    "d6": (100, 6, 0.01),
    "d6-0.1": (100, 6, 0.1),
    "med": (100, 8, 0.01),
    "med-0.1": (100, 8, 0.1),
    "large": (1000, 16, 0.01),
}

#: Rounds of "large" without --full: training for 1,000 rounds takes hours.
LARGE_ROUNDS = 100

FOREST_DEPTHS = (4, 8, 12, 16)

#: Data of the Fast TreeSHAP paper, by kind of model; covtype, which has 7 classes, replaces the paper's Crop.
FOREST_DATA = {"rf": ("adult", "superconductor", "covtype"), "xgb": ("adult", "superconductor")}

#: Iterations and depth of the oblivious trees, by name.
CATBOOST_SIZES = {
    "catboost-adult": (500, 6),
    "catboost-adult-6": (1000, 6),
    "catboost-adult-10": (10, 10),
    "catboost-covtype-6": (200, 6),
}

#: Rows in the cached bootstrap sample.
SAMPLE_ROWS = 10_000


@dataclass
class Case:
    """A fitted model, and the rows to explain as float32."""

    name: str
    family: str
    model: Any
    X: np.ndarray
    note: str


@dataclass(frozen=True)
class Options:
    """Options that decide which models are trained: part of the name of a cached case."""

    data: str | None = None
    full: bool = False
    quick: bool = False
    #: Device of XGBoost's training, "cpu" or "cuda".
    train_device: str = "cpu"


def names() -> list[str]:
    """Return the names of all cases."""
    datasets = ("cal_housing", "adult", "covtype", "fashion_mnist")
    boosted = [f"{dataset}-{size}" for size in XGBOOST_SIZES for dataset in datasets]
    forests = [
        f"{kind}-{dataset}-{depth}"
        for kind, datasets in FOREST_DATA.items()
        for depth in FOREST_DEPTHS
        for dataset in datasets
    ]
    return [*boosted, *forests, "lightgbm-adult", "histgb-adult", *CATBOOST_SIZES]


def load_case(name: str, options: Options, cache: Path) -> Case:
    """Load a case from the cache; if it is missing, train its model and store the case first."""
    return load_cached(name, _family(name), options, cache, lambda: _train(name, options))


def load_cached(
    name: str,
    family: str,
    options: Options,
    cache: Path,
    train: Callable[[], tuple[Any, Any, str]],
) -> Case:
    """Load a case from the cache; if it is missing, store what ``train`` returns: model, X and note."""
    parts = [
        name,
        "given" if options.data else "generated",
        *[word for word in ("full", "quick") if getattr(options, word)],
        *(["cuda"] if family == "xgboost" and options.train_device == "cuda" else []),
        importlib.import_module(family).__version__,
    ]
    path = cache / ("-".join(parts) + ".joblib")
    if path.exists():
        return Case(name, family, **joblib.load(path))
    model, X, note = train()
    cache.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(f".{os.getpid()}")
    joblib.dump({"model": model, "X": X, "note": note}, unfinished)
    unfinished.replace(path)
    return Case(name, family, model, X, note)


def margin(case: Case, X: np.ndarray) -> np.ndarray:
    """Predict with the model itself, in the space of its SHAP values: (n_rows, n_outputs)."""
    if case.family == "xgboost":
        import xgboost

        raw = case.model.predict(xgboost.DMatrix(X, nthread=1), output_margin=True)
    elif case.family == "lightgbm":
        raw = case.model.predict(X, raw_score=True, num_threads=1)
    elif case.family == "catboost":
        raw = case.model.predict(X, prediction_type="RawFormulaVal", thread_count=1)
    elif hasattr(case.model, "decision_function"):
        raw = case.model.decision_function(X)
    elif hasattr(case.model, "predict_proba"):
        raw = case.model.predict_proba(X)
    else:
        raw = case.model.predict(X)
    return np.asarray(raw, np.float64).reshape(X.shape[0], -1)


def take_rows(X: np.ndarray, n_rows: int) -> np.ndarray:
    """Return the first rows of the sample, or more rows drawn from it."""
    if n_rows <= len(X):
        return X[:n_rows]
    return X[np.random.default_rng(1).integers(len(X), size=n_rows)]


def _family(name: str) -> str:
    families = {"rf": "sklearn", "histgb": "sklearn", "lightgbm": "lightgbm", "catboost": "catboost"}
    return families.get(name.partition("-")[0], "xgboost")


def _train(name: str, options: Options) -> tuple[Any, np.ndarray, str]:
    first, _, kind = name.partition("-")
    train: Callable[..., Any]
    size: tuple[int, int | None]
    if first in FOREST_DATA:
        dataset, _, depth = kind.rpartition("-")
        forests: dict[str, Callable[..., Any]] = {
            "rf": train_forest,
            "xgb": partial(train_xgboost, device=options.train_device, learning_rate=0.3),
        }
        train = forests[first]
        size = (20 if options.quick else 100, int(depth))
    elif first == "catboost":
        dataset = kind.partition("-")[0]
        iterations, n_levels = CATBOOST_SIZES[name]
        train, size = train_catboost, (min(20, iterations) if options.quick else iterations, n_levels)
    elif _family(name) == "xgboost":
        dataset = first
        rounds, max_depth, learning_rate = XGBOOST_SIZES[kind]
        if kind == "large" and not options.full:
            rounds = LARGE_ROUNDS
        train = partial(train_xgboost, device=options.train_device, learning_rate=learning_rate)
        size = (max(5, rounds // 10) if options.quick else rounds, max_depth)
    else:
        dataset = "adult"
        train = {"lightgbm": train_lightgbm, "histgb": train_histgb}[first]
        size = (20 if options.quick else {"histgb": 200}.get(first, 500), None)
    X, y, note = load_data(dataset, options.data)
    if options.quick:
        X, y = X[:3000], y[:3000]
    if kind == "large":
        note += f"; {size[0]} rounds"
    model = train(X, y, SHAPES[dataset][2], *size)
    rows = np.random.default_rng(0).integers(len(X), size=SAMPLE_ROWS)
    return model, X[rows], note


def load_data(dataset: str, directory: str | None) -> tuple[np.ndarray, np.ndarray, str]:
    """Return X as float32, y, and a description of the data."""
    n_rows, _, classes = SHAPES[dataset]
    if directory is None or dataset in ALWAYS_GENERATED:
        return *_generate(dataset), "generated data"
    stored = STORED.get(dataset, dataset)
    X, y, _ = loader(directory)(stored, categorical="codes")
    X, y = np.ascontiguousarray(X.to_numpy(np.float32)), np.asarray(y)
    note = f"{stored}, {len(X):,} rows"
    if dataset == "superconductor":
        rows = np.random.default_rng(2).integers(len(X), size=n_rows)
        X, y, note = X[rows], y[rows], f"{note} drawn {n_rows:,} times"
    return X, y.astype(np.int32 if classes else np.float32), note


def loader(directory: str) -> Callable[..., Any]:
    """Import the ``load`` function of the ``load.py`` in a folder."""
    spec = importlib.util.spec_from_file_location("stored_data", Path(directory) / "load.py")
    assert spec is not None and spec.loader is not None
    stored_data = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(stored_data)
    return stored_data.load


def _generate(dataset: str) -> tuple[np.ndarray, np.ndarray]:
    """Generate the same data in each call: like the original in number of rows, columns and their kinds."""
    n_rows, n_columns, classes = SHAPES[dataset]
    rng = np.random.default_rng(zlib.crc32(dataset.encode()))
    hidden = rng.normal(size=(n_rows, 8)).astype(np.float32)
    X = hidden @ rng.normal(size=(8, n_columns)).astype(np.float32)
    X += rng.normal(size=X.shape).astype(np.float32)
    if dataset == "covtype":  # integers, and two one-hot blocks
        X[:, :10] = np.round(X[:, :10] * 100)
        for start, stop in ((10, 14), (14, 54)):
            X[:, start:stop] = np.arange(stop - start) == X[:, start:stop].argmax(axis=1)[:, np.newaxis]
    elif dataset == "adult":  # integers of few levels, codes with -1 for missing
        X = np.round(X * rng.choice([1.0, 3.0, 30.0], n_columns)).clip(-1).astype(np.float32)
    elif dataset == "fashion_mnist":  # bytes, half of them zero
        X = np.round(X * 40).clip(0, 255)
    score = hidden[:, 0] * hidden[:, 1] + np.sin(2 * hidden[:, 2]) + np.abs(hidden[:, 3])
    score += 0.3 * rng.normal(size=n_rows).astype(np.float32)
    if not classes:
        return X, score
    borders = np.quantile(score, np.linspace(0, 1, max(classes, 2) + 1)[1:-1])
    return X, np.digitize(score, borders).astype(np.int32)


def train_xgboost(
    X: np.ndarray,
    y: np.ndarray,
    classes: int,
    rounds: int,
    max_depth: int,
    device: str = "cpu",
    learning_rate: float = 0.01,
    subsample: float = 1.0,
) -> Any:
    import xgboost

    objective = {0: "reg:squarederror", 1: "binary:logistic"}.get(classes, "multi:softprob")
    parameters = {
        "objective": objective,
        "learning_rate": learning_rate,
        "max_depth": max_depth,
        "subsample": subsample,
        "nthread": 1,
    }
    if classes > 1:
        parameters["num_class"] = classes
    parameters["device"] = device
    booster = xgboost.train(parameters, xgboost.QuantileDMatrix(X, y, nthread=1), rounds)
    booster.set_param({"device": "cpu"})  # its device for prediction, unless a benchmark sets another
    return booster


def train_forest(X: np.ndarray, y: np.ndarray, classes: int, trees: int, max_depth: int | None) -> Any:
    """Build a regressor even for binary targets: the trees are the same, and there is a single output."""
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

    columns = "sqrt" if classes else 1.0  # scikit-learn's defaults for classifiers and regressors
    kind = RandomForestClassifier if classes > 1 else RandomForestRegressor
    return kind(trees, max_depth=max_depth, max_features=columns, random_state=0).fit(X, y)


def train_lightgbm(
    X: np.ndarray, y: np.ndarray, classes: int, rounds: int, max_depth: None, leaves: int = 31
) -> Any:
    import lightgbm

    parameters = {
        "objective": "binary" if classes else "regression",
        "num_leaves": leaves,
        "num_threads": 1,
        "verbose": -1,
        "seed": 0,
    }
    return lightgbm.train(parameters, lightgbm.Dataset(X, y), rounds)


def train_histgb(X: np.ndarray, y: np.ndarray, classes: int, rounds: int, max_depth: None) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    kind = HistGradientBoostingClassifier if classes else HistGradientBoostingRegressor
    return kind(max_iter=rounds, early_stopping=False, random_state=0).fit(X, y)


def train_catboost(X: np.ndarray, y: np.ndarray, classes: int, rounds: int, max_depth: int) -> Any:
    from catboost import CatBoostClassifier

    model = CatBoostClassifier(
        iterations=rounds,
        depth=max_depth,
        thread_count=1,
        verbose=False,
        random_seed=0,
        allow_writing_files=False,
    )
    return model.fit(X, y)
