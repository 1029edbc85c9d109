"""Back from the columns that a model sees to the columns of X of which the steps of a pipeline made them.

Most transformers make each of their columns of a single one: scalers, encoders, imputers, selectors. Of
which one is in their fitted attributes, or in names that they hand on unchanged. Names are never taken apart:
"a_b_c" may be "c" of "a_b" or "b_c" of "a". Others mix columns, as PCA does, and what they make has no
origin, unless all of it was made of one column before.
"""

from __future__ import annotations

from collections import UserList
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import FeatureUnion, Pipeline

from .inputs import n_rows_of, names_of, select, table


@dataclass(frozen=True, eq=False)
class Origins:
    """Where the features of an explanation come from.

    Attributes
    ----------
    names : tuple of str
        Of the columns of X, as they were in training.
    columns : ndarray of int, shape (n_features,), or None
        Number of the column of X of which each feature was made; None if that is not known.
    reason : str
        Why not.
    data : array, sparse matrix, data frame or None
        X itself, before the steps.
    """

    names: tuple[str, ...] = ()
    columns: np.ndarray | None = None
    reason: str = ""
    data: Any = None

    def select(self, rows: Any, features: np.ndarray | None) -> Origins:
        """The same of some rows (a slice or numbers) and features (None: all)."""
        data = None if self.data is None else select(self.data, rows)
        columns = self.columns
        if columns is not None and features is not None:
            columns = columns[features]
        return replace(self, data=data, columns=columns)

    def grouped(self, members: Sequence[Sequence[int]]) -> Origins:
        """The same of groups of features, given by their numbers."""
        if self.columns is None:
            return self
        found = [np.unique(self.columns[list(group)]) for group in members]
        if any(len(columns) > 1 for columns in found):
            return replace(self, columns=None, reason="they were grouped across input columns")
        return replace(self, columns=np.concatenate(found))

    def input_names(self) -> list[str]:
        """For each feature the name of the column of which it was made.

        Raises
        ------
        ValueError
            It is not known.
        """
        if self.columns is None:
            raise ValueError(
                f"the input columns of the features are not known: {self.reason}. Give group() a mapping of "
                "names to lists of features instead"
            )
        return [self.names[column] for column in self.columns]

    def input_data(self, n_rows: int) -> Any:
        """The columns of X in the order of the features first made of them; None if they are not here."""
        assert self.columns is not None
        if self.data is None or n_rows_of(self.data) != n_rows:
            return None
        present = names_of(self.data)
        columns = list(dict.fromkeys(self.columns.tolist()))
        if present is not None and set(self.names) <= set(present):
            # By name, as a ColumnTransformer takes them, in any order and with others beside them.
            columns = [present.index(self.names[column]) for column in columns]
        return select(self.data, slice(None), np.array(columns, int))


class _UnknownError(Exception):
    """Of which column something was made cannot be told."""


def origins_of(steps: Sequence[Any], n_features: int) -> Origins:
    """Where the columns come from that the steps make of X; without ``data``.

    Parameters
    ----------
    steps : sequence of fitted transformers
    n_features : int
        Columns that they make.
    """
    try:
        names = _names_in(steps[0], getattr(steps[0], "n_features_in_", None))
        columns = np.arange(len(names))
        for step in steps:
            columns = _through(step, columns)
        if len(columns) != n_features:
            raise _UnknownError(f"the steps say that they make {len(columns)} columns, not {n_features}")
    except _UnknownError as error:
        return Origins(reason=str(error))
    return Origins(tuple(names), columns)


def with_data(origins: Origins, X: Any) -> Origins:
    """The same with X as it was given, if that is a table."""
    if origins.columns is None:
        return origins
    try:
        return replace(origins, data=X if sp.issparse(X) else table(X))
    except (TypeError, ValueError):
        return origins


def _names_in(transformer: Any, n_columns: int | None) -> list[str]:
    names = getattr(transformer, "feature_names_in_", None)
    if names is not None:
        return [str(name) for name in names]
    if n_columns is None:
        raise _UnknownError(f"{_named(transformer)} does not say how many columns X has")
    return [f"x{i}" for i in range(n_columns)]


def _named(transformer: Any) -> str:
    return type(transformer).__name__


def _through(transformer: Any, columns: np.ndarray) -> np.ndarray:
    """The origins of what a transformer makes of columns with these origins."""
    from sklearn.compose import ColumnTransformer

    if transformer is None or isinstance(transformer, str):
        return columns[:0] if transformer == "drop" else columns
    if isinstance(transformer, FrozenEstimator):
        return _through(transformer.estimator, columns)
    if isinstance(transformer, Pipeline):
        for _, step in transformer.steps:
            columns = _through(step, columns)
        return columns
    expected = getattr(transformer, "n_features_in_", len(columns))
    if expected != len(columns):
        raise _UnknownError(f"{_named(transformer)} takes {expected} columns, but is given {len(columns)}")
    if isinstance(transformer, FeatureUnion):
        parts = [_part(transformer, name, step, columns) for name, step in transformer.transformer_list]
        return np.concatenate(parts) if parts else columns[:0]
    if isinstance(transformer, ColumnTransformer):
        return _through_columns(transformer, columns)
    places = _places(transformer, len(columns))
    if places is not None:
        return columns[places]
    if len(columns) and (columns == columns[0]).all():
        return np.repeat(columns[0], _n_made(transformer, len(columns)))
    raise _UnknownError(
        f"{_named(transformer)} mixes columns, or does not say of which it makes each of its own"
    )


def _part(whole: Any, name: str, step: Any, columns: np.ndarray) -> np.ndarray:
    try:
        return _through(step, columns)
    except _UnknownError as error:
        raise _UnknownError(f"in {name!r} of a {_named(whole)}, {error}") from None


def _through_columns(transformer: Any, columns: np.ndarray) -> np.ndarray:
    names = _names_in(transformer, len(columns))
    slices = transformer.output_indices_
    made = np.empty(max((part.stop for part in slices.values()), default=0), columns.dtype)
    for name, step, chosen in transformer.transformers_:
        place = slices[name]
        if place.stop == place.start:
            continue
        taken = columns[_numbers(chosen, names)]
        if (taken == taken[0]).all():  # whatever is made of it, in a number that is known here
            made[place] = taken[0]
            continue
        origins = _part(transformer, name, step, taken)
        if len(origins) != place.stop - place.start:
            raise _UnknownError(f"{name!r} of a {_named(transformer)} makes another number of columns")
        made[place] = origins
    return made


def _numbers(chosen: Any, names: list[str]) -> np.ndarray:
    """Columns that a ``ColumnTransformer`` gives to one of its transformers, by number."""
    if isinstance(chosen, UserList):  # the remainder, in releases that warn of a look at its elements
        chosen = chosen.data
    if isinstance(chosen, slice):
        start, stop, step = chosen.start, chosen.stop, chosen.step
        if isinstance(start, str):
            start = names.index(start)
        if isinstance(stop, str):  # labels include the end
            stop = names.index(stop) + 1
        return np.arange(len(names))[start:stop:step]
    keys = np.atleast_1d(np.asarray(chosen, dtype=object if isinstance(chosen, str) else None))
    if keys.dtype.kind in "OUS":
        return np.array([names.index(str(key)) for key in keys], int)
    return np.arange(len(names))[keys]


def _places(transformer: Any, n_columns: int) -> np.ndarray | None:
    """For each column that a transformer makes the number of the one it makes it of; None: not known."""
    from sklearn.impute import MissingIndicator
    from sklearn.preprocessing import (
        FunctionTransformer,
        KBinsDiscretizer,
        OneHotEncoder,
        SplineTransformer,
        TargetEncoder,
    )

    each = np.arange(n_columns)
    if isinstance(transformer, OneHotEncoder):
        return np.repeat(each, _one_hot_counts(transformer))
    if isinstance(transformer, KBinsDiscretizer):
        return each if transformer.encode == "ordinal" else np.repeat(each, transformer.n_bins_)
    if isinstance(transformer, TargetEncoder):
        multiclass = transformer.target_type_ == "multiclass"
        return np.repeat(each, len(transformer.classes_) if multiclass else 1)
    if isinstance(transformer, SplineTransformer):
        return np.repeat(each, transformer.n_features_out_ // n_columns)
    if isinstance(transformer, MissingIndicator):
        return np.asarray(transformer.features_)
    if isinstance(transformer, FunctionTransformer) and transformer.func is None:
        return each
    if hasattr(transformer, "get_support"):
        return np.asarray(transformer.get_support(indices=True))
    indicator = getattr(transformer, "indicator_", None)  # an imputer's, whose columns stand at the end
    flagged = np.empty(0, int) if indicator is None else np.asarray(indicator.features_)
    kept = _places_by_name(transformer, n_columns, len(flagged))
    return None if kept is None else np.concatenate([kept, flagged])


def _one_hot_counts(encoder: Any) -> list[int]:
    """How many columns an encoder makes of each."""
    n_columns = len(encoder.categories_)
    infrequent = getattr(encoder, "infrequent_categories_", None) or [None] * n_columns
    dropped = [None] * n_columns if encoder.drop_idx_ is None else encoder.drop_idx_
    return [
        len(categories) - (0 if rare is None else len(rare) - 1) - (drop is not None)
        for categories, rare, drop in zip(encoder.categories_, infrequent, dropped)
    ]


def _names_made(transformer: Any, n_columns: int) -> tuple[list[str], list[str]] | None:
    """Names of the columns that come in and of those made of them; None if the latter have none."""
    names = _names_in(transformer, n_columns)
    try:
        return names, list(map(str, transformer.get_feature_names_out(names)))
    except (AttributeError, TypeError, ValueError):  # there is none, or it refuses
        return None


def _places_by_name(transformer: Any, n_columns: int, n_others: int) -> np.ndarray | None:
    """Places where all columns made, but the last ``n_others``, have names of columns that came in."""
    found = _names_made(transformer, n_columns)
    if found is None:
        return None
    names, made = found
    made = made[: len(made) - n_others]
    if made == names:
        return np.arange(n_columns)
    place = {name: i for i, name in enumerate(names)}
    if len(place) < len(names) or len(set(made)) < len(made) or not set(made) <= set(names):
        return None
    return np.array([place[name] for name in made], int)


def _n_made(transformer: Any, n_columns: int) -> int:
    found = _names_made(transformer, n_columns)
    if found is None:
        raise _UnknownError(f"{_named(transformer)} does not say how many columns it makes")
    return len(found[1])
