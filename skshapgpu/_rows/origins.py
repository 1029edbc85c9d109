"""Origins of the columns that a model sees: the columns of X from which the steps of a pipeline made them.

``adapters/step_origins.py`` knows the steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from .._common.distinct import distinct_numbers
from .._common.positions import listed, require_position
from ..adapters.step_origins import UnknownOriginError, columns_through, names_made, sources_of
from .gpu_arrays import on_gpu
from .pipelines import unique
from .tables import n_rows_of, names_of, select, table


@dataclass(frozen=True, eq=False)
class Origins:
    """Columns of X from which the features of an explanation were made."""

    names: tuple[str, ...] = ()  # names of the columns of X, as they were in training
    #: (n_features,): position of the column of X from which each feature was made; None if that is not known.
    columns: np.ndarray | None = None
    #: bool, (n_features,): whether the steps change the values of each column, instead of only selecting it;
    #: None for groups, or if ``columns`` are not known.
    changed: np.ndarray | None = None
    reason: str = ""  # why the columns are not known
    named: bool = False  # whether X had names in training; otherwise ``names`` are made from positions
    data: Any = None  # X itself, before the steps

    def select(self, rows: Any, features: np.ndarray | None) -> Origins:
        """Return the origins for some rows (a slice or positions) and features (None: all)."""
        data = None if self.data is None else select(self.data, rows)
        columns, changed = self.columns, self.changed
        if features is not None:
            columns = None if columns is None else columns[features]
            changed = None if changed is None else changed[features]
        return replace(self, data=data, columns=columns, changed=changed)

    def grouped(self, members: Sequence[Sequence[int]]) -> Origins:
        """Return the origins of groups of features, given by their positions."""
        if self.columns is None:
            return self
        columns_of_groups = [distinct_numbers(self.columns[list(group)]) for group in members]
        if any(len(columns) > 1 for columns in columns_of_groups):
            reason = "they were grouped across input columns"
            return replace(self, columns=None, changed=None, reason=reason)
        return replace(self, columns=np.concatenate(columns_of_groups), changed=None)

    def require(self, advice: str) -> np.ndarray:
        """Return ``columns``; raise ``ValueError``, which ends with ``advice``, if they are not known."""
        if self.columns is None:
            raise ValueError(f"the input columns of the features are not known: {self.reason}. {advice}")
        return self.columns

    def input_names(self) -> list[str]:
        """Return the name of the column from which each feature was made; raise ``ValueError`` if unknown."""
        columns = self.require("Give sum_by() a mapping of names to lists of features instead")
        return [self.names[column] for column in columns]

    def columns_in(self, names: Sequence[str] | None) -> np.ndarray:
        """Return ``columns``, which must be known, as positions in an X that has columns with these names.

        A ``ColumnTransformer`` takes columns by name, in any order and possibly among others.
        """
        assert self.columns is not None
        if self.named and names is not None:
            used = [self.names[column] for column in self.columns]
            position_of_name = {name: i for i, name in enumerate(names)}
            if set(used) <= set(position_of_name):
                return np.array([position_of_name[name] for name in used], int)
        return self.columns

    @property
    def n_inputs(self) -> int:
        """Number of columns of X."""
        return len(self.names) if self.data is None else int(self.data.shape[1])

    @property
    def dropped(self) -> list[int]:
        """Positions in X of the columns from which no feature was made; ``columns`` must be known."""
        return np.setdiff1d(np.arange(self.n_inputs), self._columns_passed).tolist()

    @cached_property
    def _columns_passed(self) -> np.ndarray:
        """``columns``, which must be known, as positions in ``data``."""
        return self.columns_in(None if self.data is None else names_of(self.data))

    @property
    def are_columns(self) -> bool:
        """Whether each feature was made from the column at its own position, and X has no other columns."""
        return self.columns is not None and np.array_equal(self.columns, np.arange(len(self.names)))

    def made_from(self, argument: str, position: int) -> np.ndarray:
        """Return the features that were made from a column of X, given its position there.

        Raise ``ValueError`` if X has no such column, or it is not known which features were made from it.
        """
        if self.columns is None:
            raise ValueError(
                f"{argument}: {position} is the position of a column of X, and it is not known which "
                f"features the steps make from it: {self.reason}. Give names of features instead"
            )
        return np.flatnonzero(
            self._columns_passed == require_position(argument, position, self.n_inputs, "column")
        )

    def made_alone_from(self, argument: str, position: int, names: Sequence[str]) -> int | None:
        """Return the only feature that was made from a column of X, or None if the steps drop the column.

        ``names`` are the names of all features. Raise ``ValueError`` as :meth:`made_from` does, and if
        several features were made from the column.
        """
        features = self.made_from(argument, position)
        if len(features) > 1:
            raise ValueError(
                f"{argument}: {position} is the position of a column of X, from which the steps make "
                f"{len(features)} columns: give their names, {listed([names[i] for i in features])}, or "
                "feature_groups='input' for the column of X"
            )
        return int(features[0]) if len(features) else None

    def input_data(self, n_rows: int) -> Any:
        """Return the columns of X, ordered by the first feature made from each; None without ``data``."""
        if self.data is None or n_rows_of(self.data) != n_rows:
            return None
        columns = list(dict.fromkeys(self.columns_in(names_of(self.data)).tolist()))
        return select(self.data, slice(None), np.array(columns, int))


def origins_of(steps: Sequence[Any], n_features: int) -> Origins:
    """Determine the columns of X from which the steps make ``n_features`` columns.

    The result has no ``data``.
    """
    try:
        names, columns = columns_through(steps, n_features)
    except UnknownOriginError as error:
        return Origins(reason=str(error))
    named = hasattr(steps[0], "feature_names_in_")
    return Origins(tuple(unique(names)), sources_of(columns), columns < 0, named=named)


def with_data(origins: Origins, X: Any) -> Origins:
    """Return the origins with X, before the steps, as data if it is a table."""
    if origins.columns is None:
        return origins
    try:
        as_it_is = sp.issparse(X) or (on_gpu(X) and hasattr(X, "shape"))
        return replace(origins, data=X if as_it_is else table(X))
    except (TypeError, ValueError):
        return origins


def summed_by_column(values: np.ndarray, columns: Sequence[Any] | np.ndarray, n_columns: int) -> np.ndarray:
    """Sum values (n_rows, n_features, ...) over the features made from each column of X.

    ``columns`` has the column from which each feature was made, or the columns that form it, each of which
    gets its value. A column without features has zeros.
    """
    sums = np.zeros((len(values), n_columns, *values.shape[2:]), values.dtype)
    for feature, feature_columns in enumerate(columns):
        for column in np.atleast_1d(feature_columns):
            sums[:, column] += values[:, feature]
    return sums


def names_are_known(steps: Sequence[Any], names: Sequence[str]) -> bool:
    """Return whether the column names after the steps identify the same columns in every fit of the pipeline.

    A step without names discards the names of its input. A later step may derive names from the positions of
    its input columns, which may differ between splits.
    """
    are_known, names_out = True, None
    for step in steps:
        names_out = names_made(step, names_out)
        n_columns = getattr(step, "n_features_in_", None)
        if are_known or n_columns is None or hasattr(step, "feature_names_in_"):
            are_known = names_out is not None
        elif names_out is not None:  # names are known if they do not depend on lost names
            are_known = names_out == names_made(step, [f"column {i}" for i in range(n_columns)])
    if names_out is None and steps:  # then the model has its own names, if any
        return tuple(names) != tuple(f"x{i}" for i in range(len(names)))
    return are_known
