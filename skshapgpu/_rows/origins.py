"""Origins of the columns that a model sees: the columns of X from which the steps of a pipeline made them.

Scalers, encoders, imputers and selectors make each of their columns from a single input column. Which column
it is follows from their class and their fitted attributes. Names prove nothing: "a_b_c" may be "c" of "a_b"
or "b_c" of "a", and ``Normalizer`` keeps the names of columns that it mixes. So only known classes are
trusted, and not their subclasses, which may do something else. The columns of any other step have a known
origin only if all input columns of the step have the same origin.
"""

from __future__ import annotations

from collections import UserList
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from numbers import Real
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import FunctionTransformer

from .._common.positions import listed, require_position
from .gpu_arrays import on_gpu
from .pipelines import AsArray, names_made, unique
from .tables import n_rows_of, names_of, select, table

#: Function of a fitted step and its number of input columns. It returns the position of the input column from
#: which the step makes each output column, or None if these positions are not known.
_SourceColumns = Callable[[Any, int], np.ndarray | None]


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
        columns_of_groups = [np.unique(self.columns[list(group)]) for group in members]
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


class _UnknownError(Exception):
    """Error raised if the column of X from which a column was made is unknown."""


def origins_of(steps: Sequence[Any], n_features: int) -> Origins:
    """Determine the columns of X from which the steps make ``n_features`` columns.

    The result has no ``data``.
    """
    try:
        names = _names_in(steps[0], getattr(steps[0], "n_features_in_", None))
        columns = np.arange(len(names))
        for step in steps:
            columns = _through(step, columns)  # a column whose values the step changes becomes negative
        if len(columns) != n_features:
            raise _UnknownError(f"the steps say that they make {len(columns)} columns, not {n_features}")
    except _UnknownError as error:
        return Origins(reason=str(error))
    named = hasattr(steps[0], "feature_names_in_")
    return Origins(tuple(unique(names)), _sources(columns), columns < 0, named=named)


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


def _names_in(transformer: Any, n_columns: int | None) -> list[str]:
    names = getattr(transformer, "feature_names_in_", None)
    if names is not None:
        return [str(name) for name in names]
    if n_columns is None:
        raise _UnknownError(f"{_name_of(transformer)} does not say how many columns X has")
    return [f"x{i}" for i in range(n_columns)]


def _name_of(transformer: Any) -> str:
    return type(transformer).__name__


def _sources(columns: np.ndarray) -> np.ndarray:
    """Return the columns of X from which columns were made, changed or not."""
    return np.where(columns < 0, ~columns, columns)


def _changed(columns: np.ndarray) -> np.ndarray:
    """Mark the columns as changed."""
    return np.where(columns < 0, columns, ~columns)


def _have_one_source(columns: np.ndarray) -> bool:
    """Return whether columns were made from a single column of X."""
    sources = _sources(columns)
    return len(sources) > 0 and bool((sources == sources[0]).all())


def _through(transformer: Any, columns: np.ndarray) -> np.ndarray:
    """Return the origins of a transformer's output columns, given the origins of its input columns.

    The origin of a column is the position of the column of X from which it was made, or the bitwise
    complement of this position if the steps have changed the values.
    """
    from sklearn.compose import ColumnTransformer

    if transformer is None or isinstance(transformer, str):
        return columns[:0] if transformer == "drop" else columns
    kind = type(transformer)
    if kind is FrozenEstimator:
        return _through(transformer.estimator, columns)
    if kind is Pipeline:
        for _, step in transformer.steps:
            columns = _through(step, columns)
        return columns
    expected = getattr(transformer, "n_features_in_", len(columns))
    if expected != len(columns):
        raise _UnknownError(f"{_name_of(transformer)} takes {expected} columns, but is given {len(columns)}")
    if kind is FeatureUnion:
        origins = [
            _through_member(transformer, name, step, columns) for name, step in transformer.transformer_list
        ]
        return np.concatenate(origins) if origins else columns[:0]
    if kind is ColumnTransformer:
        return _through_columns(transformer, columns)
    find_sources = ONE_TO_ONE.get(kind) or _one_to_one_steps().get(kind)
    sources = None if find_sources is None else find_sources(transformer, len(columns))
    if sources is not None:
        return (columns if _keeps_values(transformer) else _changed(columns))[sources]
    if _have_one_source(columns):
        return np.repeat(_changed(columns[:1]), _n_made(transformer, len(columns)))
    raise _UnknownError(f"{_name_of(transformer)} is not known to make each of its columns from a single one")


def _n_made(transformer: Any, n_columns: int) -> int:
    names_out = names_made(transformer, _names_in(transformer, n_columns))
    if names_out is None:
        raise _UnknownError(f"{_name_of(transformer)} does not say how many columns it makes")
    return len(names_out)


def _through_member(transformer: Any, name: str, step: Any, columns: np.ndarray) -> np.ndarray:
    """Return the origins of the output columns of a step inside a transformer."""
    try:
        return _through(step, columns)
    except _UnknownError as error:
        raise _UnknownError(f"in {name!r} of a {_name_of(transformer)}, {error}") from None


def _through_columns(transformer: Any, columns: np.ndarray) -> np.ndarray:
    names = _names_in(transformer, len(columns))
    slices = transformer.output_indices_
    origins_out = np.empty(max((span.stop for span in slices.values()), default=0), columns.dtype)
    for name, step, selection in transformer.transformers_:
        span = slices[name]
        if span.stop == span.start:
            continue
        step_columns = columns[_positions(selection, names)]
        if _have_one_source(step_columns) and step != "passthrough":  # all of its outputs have this origin
            origins_out[span] = _changed(step_columns[:1])
            continue
        origins = _through_member(transformer, name, step, step_columns)
        if len(origins) != span.stop - span.start:
            raise _UnknownError(f"{name!r} of a {_name_of(transformer)} makes another number of columns")
        origins_out[span] = origins
    return origins_out


def _positions(selection: Any, names: list[str]) -> np.ndarray:
    """Return the positions of the columns that a ``ColumnTransformer`` passes to one of its transformers."""
    if isinstance(selection, UserList):  # the remainder, in releases that warn if its elements are read
        selection = selection.data
    if isinstance(selection, slice):
        start, stop, step = selection.start, selection.stop, selection.step
        if isinstance(start, str):
            start = names.index(start)
        if isinstance(stop, str):  # slices by label include the end
            stop = names.index(stop) + 1
        return np.arange(len(names))[start:stop:step]
    keys = np.atleast_1d(np.asarray(selection, dtype=object if isinstance(selection, str) else None))
    if keys.dtype.kind in "OUS":
        return np.array([names.index(str(key)) for key in keys], int)
    return np.arange(len(names))[keys]


def selected(selector: Any, n_columns: int) -> np.ndarray:
    """Return the positions of the columns that a selector keeps."""
    return np.asarray(selector.get_support(indices=True))


def _keeps_values(step: Any) -> bool:
    """Return whether a step, which makes each column from a single column, only selects columns."""
    kind = type(step)
    if kind is FunctionTransformer:
        return step.func is None
    return kind is AsArray or _one_to_one_steps().get(kind) is selected


def _all_columns(step: Any, n_columns: int) -> np.ndarray:
    return np.arange(n_columns)


#: Steps outside scikit-learn that make each of their columns from a single input column.
ONE_TO_ONE: dict[type, _SourceColumns] = {AsArray: _all_columns}


@cache
def _one_to_one_steps() -> dict[type, _SourceColumns]:
    """Return the steps of scikit-learn that make each of their columns from a single input column."""
    from sklearn import feature_selection, preprocessing
    from sklearn.impute import MissingIndicator, SimpleImputer
    from sklearn.kernel_approximation import AdditiveChi2Sampler

    all_columns = (
        *("Binarizer", "MaxAbsScaler", "MinMaxScaler", "OrdinalEncoder", "PowerTransformer"),
        *("QuantileTransformer", "RobustScaler", "StandardScaler"),
    )
    selectors = (
        *(
            "GenericUnivariateSelect",
            "RFE",
            "RFECV",
            "SelectFdr",
            "SelectFpr",
            "SelectFromModel",
            "SelectFwe",
        ),
        *("SelectKBest", "SelectPercentile", "SequentialFeatureSelector", "VarianceThreshold"),
    )
    return {
        **{getattr(preprocessing, name): _all_columns for name in all_columns},
        **{getattr(feature_selection, name): selected for name in selectors},
        preprocessing.FunctionTransformer: _function_sources,
        preprocessing.KBinsDiscretizer: _bin_sources,
        preprocessing.OneHotEncoder: _category_sources,
        preprocessing.SplineTransformer: lambda step, n: np.repeat(np.arange(n), step.n_features_out_ // n),
        preprocessing.TargetEncoder: _target_sources,
        AdditiveChi2Sampler: lambda step, n: np.tile(np.arange(n), 2 * step.sample_steps - 1),
        MissingIndicator: lambda step, _: np.asarray(step.features_),
        SimpleImputer: _imputed_sources,
    }


def _function_sources(step: Any, n_columns: int) -> np.ndarray | None:
    """Return all columns if there is no function, or if it is an elementwise function of NumPy.

    ``feature_names_out="one-to-one"`` proves nothing: division by the sum of a row also keeps names.
    """
    func = step.func
    elementwise = isinstance(func, np.ufunc) and (func.nin, func.nout, func.signature) == (1, 1, None)
    return np.arange(n_columns) if func is None or elementwise else None


def _bin_sources(step: Any, n_columns: int) -> np.ndarray:
    return np.repeat(np.arange(n_columns), 1 if step.encode == "ordinal" else step.n_bins_)


def _category_sources(step: Any, n_columns: int) -> np.ndarray:
    infrequent = getattr(step, "infrequent_categories_", None) or [None] * n_columns
    dropped = [None] * n_columns if step.drop_idx_ is None else step.drop_idx_
    counts = [
        len(categories) - (0 if rare is None else len(rare) - 1) - (drop is not None)
        for categories, rare, drop in zip(step.categories_, infrequent, dropped)
    ]
    return np.repeat(np.arange(n_columns), counts)


def _target_sources(step: Any, n_columns: int) -> np.ndarray:
    multiclass = step.target_type_ == "multiclass"
    return np.repeat(np.arange(n_columns), len(step.classes_) if multiclass else 1)


def _imputed_sources(step: Any, n_columns: int) -> np.ndarray:
    """Leave out columns without a statistic, as the imputer does. The columns of its indicator come last."""
    empty = [isinstance(value, Real) and value != value for value in step.statistics_]
    imputed = np.flatnonzero(np.logical_not(empty))
    return imputed if step.indicator_ is None else np.concatenate([imputed, step.indicator_.features_])
