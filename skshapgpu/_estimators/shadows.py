"""Shadow columns: copies of columns of X, each in a random order, so that they say nothing about y."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone

from .._rows.tables import package_of, select

#: Smallest number of shadows, as in Boruta. The largest importance of fewer shadows would be too small.
_LEAST_SHADOWS = 5


def shadow_sources(columns: np.ndarray) -> np.ndarray:
    """Return the column that each shadow is made from: each column once, or more often if there are few."""
    return np.resize(columns, max(len(columns), _LEAST_SHADOWS))


def with_shadows(X: Any, columns: np.ndarray, sources: np.ndarray, rng: np.random.Generator) -> Any:
    """Return a table like X of the columns at the positions ``columns``, followed by shadows.

    Shadows are made from the columns at the positions ``sources``. A shadow has the data type of its column,
    and its entries, missing ones included, in a random order. Raise ``TypeError`` if a data frame has column
    names that are neither all strings nor all whole numbers.
    """
    n_rows = X.shape[0]
    orders = [rng.permutation(n_rows) for _ in sources]
    result, package = select(X, slice(None), columns), package_of(X)
    if package == "pandas":
        return _pandas(X, result, sources, orders)
    if package == "polars":
        names = _names(X.columns, sources)
        return result.hstack(
            [X[:, j][order].alias(name) for j, order, name in zip(sources.tolist(), orders, names)]
        )
    if package == "pyarrow":
        for j, order, name in zip(sources.tolist(), orders, _names(X.column_names, sources)):
            result = result.append_column(name, X.column(j).take(order))
        return result
    if sp.issparse(X):
        by_column = X.tocsc()
        shadows = [by_column[:, [j]].tocsr()[order] for j, order in zip(sources, orders)]
        return sp.hstack([result, *shadows], format="csr")
    return np.column_stack([result, *(X[order, j] for j, order in zip(sources, orders))])


def _pandas(X: Any, columns: Any, sources: np.ndarray, orders: list[np.ndarray]) -> Any:
    import pandas as pd

    names = _names(list(X.columns), sources)
    shadows = {
        name: pd.Series(X.iloc[:, j].array.take(order), index=X.index)
        for name, j, order in zip(names, sources, orders)
    }
    return pd.concat([columns, pd.DataFrame(shadows, index=X.index)], axis=1)


def _names(names: list[Any], sources: np.ndarray) -> list[Any]:
    """Return names for the shadows that X does not have, of the same type as the names of X."""
    if all(isinstance(name, str) for name in names):
        prefix = "shadow"
        while any(name.startswith(f"{prefix}_") for name in names):
            prefix += "_"
        return [f"{prefix}_{number}_{names[j]}" for number, j in enumerate(sources)]
    if all(isinstance(name, (int, np.integer)) for name in names):
        return [max(names) + 1 + number for number in range(len(sources))]
    raise TypeError("the names of the columns of X must be all strings or all whole numbers")


def seeded(estimator: Any, rng: np.random.Generator) -> Any:
    """Return a clone of a model in which each ``random_state`` that is None has a seed."""
    model = clone(estimator)
    params = model.get_params(deep=True)
    unset = [
        name for name in sorted(params) if name.rpartition("__")[2] == "random_state" and params[name] is None
    ]
    return model.set_params(**{name: int(rng.integers(2**31 - 1)) for name in unset})
