"""Columns of X, labels and weights of one draw."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from . import survival

NUMERIC = [
    "normal",
    "normal",
    "few",
    "integer",
    "boolean",
    "constant",
    "large",
    "offset",
    "tiny",
    "mixed scales",
    "correlated",
    "mostly zero",
]

#: Kinds of columns drawn only if the model's library accepts them.
SPECIAL = ["missing", "all missing but few", "infinite", "huge integer"]

CATEGORIES = ["text", "whole numbers", "many"]
#: Not drawn for CatBoost, which requires missing categories as text.
WITH_GAPS = "text with gaps"

#: Categories of an array, declared to the model.
CODES = "codes"

NAMES = {
    "plain": lambda p: [f"column_{i}" for i in range(p)],
    "positions": lambda p: [f"x{(i + 1) % p}" for i in range(p)],
    "spaces": lambda p: [f"a column {i}" for i in range(p)],
    "unicode": lambda p: [f"größe_{i}" for i in range(p)],
    "digits": lambda p: [str((i + 1) % p) for i in range(p)],
    "prefixes": lambda p: ["a" * (i + 1) for i in range(p)],
    "underscores": lambda p: [f"a__{i}_b" for i in range(p)],
}


@dataclass(frozen=True, eq=False)
class Data:
    """Rows to train on, rows to explain, and their labels and weights."""

    train: pd.DataFrame
    explain: pd.DataFrame
    signal: np.ndarray
    weights: np.ndarray

    @property
    def categorical(self) -> list[int]:
        return [i for i, dtype in enumerate(self.train.dtypes) if isinstance(dtype, pd.CategoricalDtype)]


def column(kind: str, n: int, rng: np.random.Generator, others: list[pd.Series]) -> pd.Series:
    """Draw a column of n rows."""
    normal = rng.normal(size=n)
    if kind == "few":
        return pd.Series(rng.choice([-1.5, 0.0, 0.25, 3.0], n))
    if kind == CODES:
        return pd.Series(rng.integers(0, 6, n).astype(np.float64))
    if kind == "integer":
        return pd.Series(rng.integers(-5, 20, n))
    if kind == "boolean":
        return pd.Series(rng.random(n) < 0.4)
    if kind == "constant":
        return pd.Series(np.full(n, 7.25))
    if kind == "large":
        return pd.Series(2.0**24 + np.round(8 * normal))
    if kind == "offset":
        return pd.Series(1.0e9 + 1000 * normal)
    if kind == "huge integer":
        return pd.Series(2**53 + rng.integers(0, 40, n))
    if kind == "tiny":
        return pd.Series(1e-30 * normal)
    if kind == "mixed scales":
        return pd.Series(normal * 10.0 ** rng.integers(-6, 7, n))
    if kind == "mostly zero":
        return pd.Series(np.where(rng.random(n) < 0.7, 0.0, normal))
    if kind == "correlated" and others:
        first = _ranks(others[int(rng.integers(len(others)))])
        return pd.Series(first + 0.1 * normal)
    if kind == "missing":
        return pd.Series(np.where(rng.random(n) < 0.25, np.nan, normal))
    if kind == "all missing but few":
        return pd.Series(np.where(rng.random(n) < 0.85, np.nan, normal))
    if kind == "infinite":
        return pd.Series(np.where(rng.random(n) < 0.1, rng.choice([-np.inf, np.inf], n), normal))
    if kind in (*CATEGORIES, WITH_GAPS):
        categories: dict[str, list[Any]] = {
            "text": ["red", "Blue", "a b", "ü", "9"],
            WITH_GAPS: ["red", "Blue", "ü"],
            "whole numbers": [7, 2, 40, 11],
            "many": [f"c{i}" for i in range(30)],
        }
        names = categories[kind]
        values = rng.integers(len(names), size=n)
        if kind == WITH_GAPS:
            values[rng.random(n) < 0.2] = -1
        return pd.Series(pd.Categorical.from_codes(values, categories=pd.Index(names)))
    return pd.Series(normal)


def _ranks(series: pd.Series) -> np.ndarray:
    """Convert any column to numbers of unit scale."""
    if isinstance(series.dtype, pd.CategoricalDtype):
        codes = series.cat.codes.to_numpy().astype(float)
        return np.cos(3 * codes)
    values = series.to_numpy().astype(float)
    missing = np.isnan(values)
    order = pd.Series(np.where(missing, np.inf, values)).rank(method="average").to_numpy()
    ranks = (order - order.mean()) / max(order.std(), 1.0)
    return np.where(missing, 0.7, ranks)


def make(
    kinds: tuple[str, ...],
    names: str,
    n_train: int,
    n_explain: int,
    rng: np.random.Generator,
    *,
    unseen: bool = False,
) -> Data:
    """Draw the columns, and a signal that depends on single columns and on pairs, with noise.

    With ``unseen``, some rows to explain have categories that no training row has.
    """
    n = n_train + n_explain
    columns: list[pd.Series] = []
    for kind in kinds:
        columns.append(column(kind, n, rng, columns))
    ranks = [_ranks(series) for series in columns]
    signal = 0.3 * rng.normal(size=n)
    for i, values in enumerate(ranks):
        signal += rng.normal() * values
        other = ranks[int(rng.integers(len(ranks)))]
        if i % 2:
            signal += rng.normal() * values * (other > 0)
    signal = (signal - signal.mean()) / max(signal.std(), 1e-9)
    frame = pd.DataFrame(dict(zip(NAMES[names](len(kinds)), columns)))
    # Half of the rows to explain repeat training rows, some of which equal the neighbours of thresholds.
    explain = frame.iloc[n_train:].copy()
    half = n_explain // 2
    explain = pd.concat([explain.iloc[half:], frame.iloc[:half]], ignore_index=True)
    train = frame.iloc[:n_train].reset_index(drop=True)
    explain = _with_other_categories(explain, unseen, rng)
    if unseen:
        for name, kind in zip(explain, kinds):
            if kind == CODES:
                odd = rng.choice([9.0, 40.0, 3.7, -1.0], len(explain))
                explain[name] = np.where(rng.random(len(explain)) < 0.3, odd, explain[name])
    return Data(train, explain, signal[:n_train], rng.uniform(0.2, 3.0, n_train))


def _with_other_categories(frame: pd.DataFrame, unseen: bool, rng: np.random.Generator) -> pd.DataFrame:
    """Store the categories in another order than in training, so that their codes have other meanings."""
    frame = frame.copy()
    for name in frame:
        series = frame[name]
        if isinstance(series.dtype, pd.CategoricalDtype):
            if unseen:
                new: Any = "never seen" if isinstance(series.cat.categories[0], str) else 9999
                series = series.cat.add_categories([new])
                series[rng.random(len(series)) < 0.2] = new
            frame[name] = series.cat.reorder_categories(list(series.cat.categories)[::-1])
    return frame


def target(task: str, style: str, offset: float, scale: float, signal: np.ndarray, rng: Any) -> np.ndarray:
    """Draw the labels of a task: classes named in some style, or numbers with an offset and a scale."""
    if task == "regression":
        return offset + scale * signal
    if task == "outputs":
        others = rng.permutation(signal) + 0.5 * signal
        # Outputs have different offsets and scales: the error of each is measured on its own scale.
        return np.column_stack([offset + scale * signal, scale * (0.001 * others + 3), others])
    if task == "counts":
        return np.floor(np.exp(np.clip(signal + 0.5, -3, 3)))
    if task == "positive":
        return scale * np.exp(np.clip(signal, -3, 3))
    if task in ("survival", "times"):
        return survival.labels(signal, rng)
    if task == "cox":
        survival_labels = survival.labels(signal, rng)
        return np.where(survival_labels[survival.EVENT], 1, -1) * survival_labels[survival.TIME]
    if task == "ranking":
        return np.clip(np.round(signal + 1), 0, 4).astype(int)
    if task == "outliers":
        return np.zeros(len(signal))
    n_classes = {"binary": 2, "rare binary": 2, "classes": 3, "rare class": 4, "one class": 1}[task]
    cuts = {
        "rare binary": [0.95],
        "rare class": [0.4, 0.8, 0.97],
        "one class": [],
    }.get(task, list(np.arange(1, n_classes) / n_classes))
    number = np.digitize(signal, np.quantile(signal, cuts)) if cuts else np.zeros(len(signal), int)
    labels: Any = {
        "numbers": [0, 1, 2, 3],
        "gaps": [7, -3, 40, 12],
        "text": ["no", "maybe so", "Yes", "ü"],
        "floats": [5.0, 2.0, -1.0, 3.0],
    }[style]
    return np.array(labels)[number]
