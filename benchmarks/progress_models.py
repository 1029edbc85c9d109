"""Models of the benchmark "progress": one or more of each kind, on data with few and with many columns.

Unlike the rows of models.py, the rows are distinct, because rows that occur twice would flatter caches.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import models
import numpy as np

TABULAR = ("cal_housing", "adult")

#: (rows, columns, columns that decide the target) of the generated sparse data, as in the stored data set
#: "reuters".
SPARSE_SHAPE = (11_069, 8_315, 300)

#: Non-zero numbers in a row of the generated sparse data, as in "reuters".
SPARSE_ROW = 43

XGBOOST_DEPTHS = (6, 8, 16)
LEARNING_RATES = (0.01, 0.1)


@dataclass(frozen=True)
class Recipe:
    """How a model is trained."""

    family: str
    dataset: str
    #: Called with X, y and the number of classes, rounds or trees, and the maximum depth.
    train: Callable[..., Any]
    rounds: int
    max_depth: int | None = None
    #: Parameters that the name does not mention.
    note: str = ""
    #: Columns whose values are computed: "all", or "used", the columns that the model uses.
    columns: str = "all"


def recipes() -> dict[str, Recipe]:
    """Return the recipe of each model, by name."""
    recipes: dict[str, Recipe] = {}
    for dataset in TABULAR:
        for depth in XGBOOST_DEPTHS:
            for rate in LEARNING_RATES:
                for suffix, subsample in (("", 1.0), ("-half", 0.5)):
                    train = partial(models.train_xgboost, learning_rate=rate, subsample=subsample)
                    note = f"learning rate {rate:g}, subsample {subsample:g}"
                    recipes[f"xgboost-{dataset}-d{depth}-{rate:g}{suffix}"] = Recipe(
                        "xgboost", dataset, train, 100, depth, note
                    )
        recipes[f"xgboost-{dataset}-d3x1000"] = Recipe(
            "xgboost", dataset, _xgboost, 1000, 3, "learning rate 0.1"
        )
        for leaves, rounds in ((31, 300), (255, 100)):
            train = partial(models.train_lightgbm, leaves=leaves)
            recipes[f"lightgbm-{dataset}-{leaves}x{rounds}"] = Recipe("lightgbm", dataset, train, rounds)
        recipes[f"histgb-{dataset}"] = Recipe("sklearn", dataset, models.train_histgb, 100)
    for limit, trees in ((8, 100), (16, 100), (None, 20)):
        name = f"forest-cal_housing-{'unlimited' if limit is None else f'd{limit}'}"
        recipes[name] = Recipe("sklearn", "cal_housing", models.train_forest, trees, limit)
    leaves_255 = partial(models.train_lightgbm, leaves=255)
    return recipes | {
        "forest-adult-unlimited": Recipe("sklearn", "adult", models.train_forest, 20),
        "xgboost-covtype-d16x20": Recipe(
            "xgboost", "covtype", _xgboost, 20, 16, "learning rate 0.1, 7 classes"
        ),
        "lightgbm-covtype-255x20": Recipe("lightgbm", "covtype", leaves_255, 20, note="7 classes"),
        "forest-covtype-d8": Recipe("sklearn", "covtype", models.train_forest, 100, 8, "7 classes"),
        "xgboost-dense_500": Recipe("xgboost", "dense_500", _xgboost, 100, 6, "learning rate 0.1"),
        "xgboost-mnist": Recipe("xgboost", "fashion_mnist", _xgboost, 100, 6, "learning rate 0.1"),
        "catboost-adult": Recipe("catboost", "adult", models.train_catboost, 500, 6),
        "xgboost-sparse": Recipe("xgboost", "sparse", _xgboost, 100, 6, "learning rate 0.1", "used"),
    }


def names() -> list[str]:
    """Return the names of all models."""
    return list(recipes())


def load_case(name: str, options: models.Options, cache: Path) -> models.Case:
    """Load a model and its rows from the cache; if they are missing, make and store them first."""
    recipe = recipes()[name]
    case = models.load_cached(
        f"progress-{name}", recipe.family, options, cache, partial(_make, recipe, options)
    )
    return replace(case, name=name)


def _make(recipe: Recipe, options: models.Options) -> tuple[Any, Any, str]:
    sparse = recipe.dataset == "sparse"
    X, y, note = (_sparse_data if sparse else partial(models.load_data, recipe.dataset))(options.data)
    if options.quick:
        X, y = X[:3000], y[:3000]
    classes = 1 if sparse else models.SHAPES[recipe.dataset][2]
    rounds = max(5, recipe.rounds // 10) if options.quick else recipe.rounds
    model = recipe.train(X, y, classes, rounds, recipe.max_depth)
    return model, X[distinct_rows(X)], ", ".join(filter(None, (note, recipe.note)))


def distinct_rows(X: Any) -> np.ndarray:
    """Draw the positions of up to 10,000 distinct rows of X."""
    rows = np.random.default_rng(0).permutation(X.shape[0])
    if isinstance(X, np.ndarray):
        _, first = np.unique(X[rows[: 2 * models.SAMPLE_ROWS]], axis=0, return_index=True)
        rows = rows[np.sort(first)]
    return rows[: models.SAMPLE_ROWS]


def _sparse_data(directory: str | None) -> tuple[Any, np.ndarray, str]:
    """Return X as a sparse matrix of float32, y, and a description of the data."""
    from scipy.sparse import csr_matrix

    if directory is not None:
        parts, y, _ = models.loader(directory)("reuters", sparse=True)
        X = csr_matrix((parts["data"], parts["indices"].astype(np.int32), parts["indptr"]), parts["shape"])
        return X, np.asarray(y, np.int32), f"reuters, {X.shape[0]:,} rows"
    n_rows, n_columns, n_deciding = SPARSE_SHAPE
    rng = np.random.default_rng(zlib.crc32(b"sparse"))
    words = np.minimum(rng.zipf(1.3, (n_rows, SPARSE_ROW)) - 1, n_columns - 1)
    counts = csr_matrix(
        (np.ones(words.size, np.float32), words.ravel(), np.arange(0, words.size + 1, SPARSE_ROW)),
        (n_rows, n_columns),
    )
    counts.sum_duplicates()
    counts.data = np.log1p(counts.data)
    score = counts[:, :n_deciding] @ rng.normal(size=n_deciding)
    return counts, (score > np.median(score)).astype(np.int32), "generated data"


def _xgboost(X: Any, y: np.ndarray, classes: int, rounds: int, max_depth: int) -> Any:
    return models.train_xgboost(X, y, classes, rounds, max_depth, learning_rate=0.1)
