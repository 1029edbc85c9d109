"""Columns of every type of pandas, with few different values, and missing values in the first rows only."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd

#: Number of first rows in which values may be missing, so that only some batches have missing values.
N_GAPS = 9


def _missing(values: list[Any], missing: Any = None) -> list[Any]:
    """Return the values; in the first rows, every second value is missing."""
    return [missing if i < N_GAPS and i % 2 == 0 else value for i, value in enumerate(values)]


def _chosen(n: int, rng: np.random.Generator, choices: list[Any]) -> list[Any]:
    return [choices[i] for i in rng.integers(len(choices), size=n)]


def _arrow(values: list[Any], kind: str) -> pd.Series:
    return pd.Series(values, dtype=f"{kind}[pyarrow]")


def _decimals(n: int, rng: np.random.Generator) -> pd.Series:
    return pd.Series(
        _missing(_chosen(n, rng, [Decimal("1.10"), Decimal("2.50"), Decimal("0.30")])), dtype=object
    )


def _intervals(n: int, rng: np.random.Generator, labels: Any = None) -> pd.Series:
    return pd.Series(pd.cut(rng.uniform(0, 3, n), [0, 1, 2, 3], labels=labels))


def _sparse(n: int, rng: np.random.Generator) -> pd.Series:
    return pd.Series(pd.arrays.SparseArray(rng.choice([0.0, 0.0, 1.5, 2.0], n)))


def _categories(n: int, rng: np.random.Generator, categories: list[Any], **options: Any) -> pd.Series:
    return pd.Series(pd.Categorical(_missing(_chosen(n, rng, categories)), categories=categories, **options))


def _dates(n: int, rng: np.random.Generator) -> pd.Series:
    return pd.Series(pd.to_datetime(_chosen(n, rng, ["2024-01-05", "2024-02-01", "2025-03-09"])))


Make = Callable[[int, np.random.Generator], pd.Series]

#: Functions that draw a column, by the name of its type, from the number of rows and a generator.
TYPES: dict[str, Make] = {
    "bool": lambda n, rng: pd.Series(rng.random(n) < 0.5),
    "nullable boolean": lambda n, rng: pd.Series(_missing(_chosen(n, rng, [True, False])), dtype="boolean"),
    "nullable integer": lambda n, rng: pd.Series(_missing(_chosen(n, rng, [0, 1, 2])), dtype="Int64"),
    "nullable integer without gaps": lambda n, rng: pd.Series(_chosen(n, rng, [0, 1, 2]), dtype="Int32"),
    "nullable float": lambda n, rng: pd.Series(_missing(_chosen(n, rng, [0.5, 1.0, 2.0])), dtype="Float64"),
    "integer": lambda n, rng: pd.Series(_chosen(n, rng, [0, 1, 2])),
    "narrow integer": lambda n, rng: pd.Series(_chosen(n, rng, [0, 1, 2]), dtype="int8"),
    "unsigned integer": lambda n, rng: pd.Series(_chosen(n, rng, [0, 1, 2]), dtype="uint16"),
    "float": lambda n, rng: pd.Series(_missing(_chosen(n, rng, [0.5, 1.0, 2.0]), np.nan)),
    "float32": lambda n, rng: pd.Series(_chosen(n, rng, [0.1, 1.0, 2.3]), dtype="float32"),
    "arrow boolean": lambda n, rng: _arrow(_missing(_chosen(n, rng, [True, False])), "bool"),
    "arrow integer": lambda n, rng: _arrow(_missing(_chosen(n, rng, [0, 1, 2])), "int64"),
    "arrow narrow integer": lambda n, rng: _arrow(_chosen(n, rng, [0, 1, 2]), "int8"),
    "arrow float": lambda n, rng: _arrow(_missing(_chosen(n, rng, [0.5, 1.0, 2.0])), "double"),
    "arrow text": lambda n, rng: _arrow(_missing(_chosen(n, rng, ["a", "b", "ü"])), "string"),
    "decimal": _decimals,
    "objects of booleans": lambda n, rng: pd.Series(_missing(_chosen(n, rng, [True, False])), dtype=object),
    "objects of integers": lambda n, rng: pd.Series(_missing(_chosen(n, rng, [0, 1, 2])), dtype=object),
    "objects of text": lambda n, rng: pd.Series(_missing(_chosen(n, rng, ["a", "b", "c"])), dtype=object),
    "mixed objects": lambda n, rng: pd.Series(_chosen(n, rng, ["a", "1", "2.0"]), dtype=object),
    "text": lambda n, rng: pd.Series(_missing(_chosen(n, rng, ["a", "b", "c"]))),
    "text of numbers": lambda n, rng: pd.Series(_chosen(n, rng, ["1", "2", "03"])),
    "intervals": _intervals,
    "labelled intervals": lambda n, rng: _intervals(n, rng, ["low", "mid", "high"]),
    "numbered intervals": lambda n, rng: _intervals(n, rng, False),
    "sparse": _sparse,
    "category": lambda n, rng: _categories(n, rng, ["x", "y", "z"]),
    "category of integers": lambda n, rng: _categories(n, rng, [3, 1, 2]),
    "category of booleans": lambda n, rng: _categories(n, rng, [True, False]),
    "category of floats": lambda n, rng: _categories(n, rng, [0.5, 2.0]),
    "ordered category": lambda n, rng: _categories(n, rng, ["s", "m", "l"], ordered=True),
    "unused categories": lambda n, rng: _categories(n, rng, ["x", "y", "z"]).cat.add_categories(["w"]),
    "dates": _dates,
}


def numbers_of(series: pd.Series) -> np.ndarray:
    """Return a number for each different value, so that the target can depend on columns of any type."""
    codes, _ = pd.factorize(series.astype(str))
    return np.cos(2.0 * codes)


def frame(kinds: list[str], n: int, rng: np.random.Generator, *, shuffled: bool = False) -> pd.DataFrame:
    """Return a column of numbers, followed by columns c0, c1, ... of these kinds, with n rows.

    With ``shuffled``, categories have another order than without it.
    """
    columns = {"number": pd.Series(rng.normal(size=n))}
    for i, kind in enumerate(kinds):
        series = TYPES[kind](n, rng)
        if shuffled and isinstance(series.dtype, pd.CategoricalDtype) and not series.cat.ordered:
            series = series.cat.reorder_categories(list(series.cat.categories)[::-1])
        columns[f"c{i}"] = series
    return pd.DataFrame(columns)
