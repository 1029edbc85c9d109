"""Origins of the columns that a step of a pipeline makes: the columns of its input.

Scalers, encoders, imputers and selectors make each of their columns from a single input column. Which column
it is follows from their class and their fitted attributes. Names prove nothing: "a_b_c" may be "c" of "a_b"
or "b_c" of "a", and ``Normalizer`` keeps the names of columns that it mixes. So only known classes are
trusted, and not their subclasses, which may do something else. The columns of any other step have a known
origin only if all input columns of the step have the same origin.
"""

from __future__ import annotations

from collections import UserList
from collections.abc import Callable, Sequence
from functools import cache
from numbers import Real
from typing import Any

import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer, PolynomialFeatures

#: Function of a fitted step and its number of input columns. It returns the position of the input column from
#: which the step makes each output column, or None if these positions are not known.
SourceColumns = Callable[[Any, int], np.ndarray | None]


#: Modules of scikit-learn whose steps make each column from several columns.
_MIXING_MODULES = (
    "sklearn.cluster.",
    "sklearn.cross_decomposition.",
    "sklearn.decomposition.",
    "sklearn.kernel_approximation",
    "sklearn.manifold.",
    "sklearn.random_projection",
)


class UnknownOriginError(Exception):
    """Error raised if the column of X from which a column was made is unknown."""


def columns_through(steps: Sequence[Any], n_made: int) -> tuple[list[str], np.ndarray]:
    """Return the names of the columns of X, and the column from which the steps make each of ``n_made``.

    The column is a position in X, or its bitwise complement if the steps change the values of the column.
    Raise ``UnknownOriginError`` if that is not known.
    """
    names = _names_in(steps[0], getattr(steps[0], "n_features_in_", None))
    columns = np.arange(len(names))
    for step in steps:
        columns = _through(step, columns)
    if len(columns) != n_made:
        raise UnknownOriginError(f"the steps say that they make {len(columns)} columns, not {n_made}")
    return names, columns


def names_made(step: Any, names: Any) -> list[str] | None:
    """Return the names of the columns that a step makes from columns with these names; None if unknown."""
    try:
        return list(map(str, step.get_feature_names_out(names)))
    except Exception:  # the method is missing, in the step or in a part of it, or has no argument, or fails
        return None


def _names_in(transformer: Any, n_columns: int | None) -> list[str]:
    names = getattr(transformer, "feature_names_in_", None)
    if names is not None:
        return [str(name) for name in names]
    if n_columns is None:
        raise UnknownOriginError(f"{_name_of(transformer)} does not say how many columns X has")
    return [f"x{i}" for i in range(n_columns)]


def _name_of(transformer: Any) -> str:
    return type(transformer).__name__


def sources_of(columns: np.ndarray) -> np.ndarray:
    """Return the columns of X from which columns were made, changed or not."""
    return np.where(columns < 0, ~columns, columns)


def _changed(columns: np.ndarray) -> np.ndarray:
    """Mark the columns as changed."""
    return np.where(columns < 0, columns, ~columns)


def _have_one_source(columns: np.ndarray) -> bool:
    """Return whether columns were made from a single column of X."""
    sources = sources_of(columns)
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
        raise UnknownOriginError(
            f"{_name_of(transformer)} takes {expected} columns, but is given {len(columns)}"
        )
    if kind is FeatureUnion:
        origins = [
            _through_member(transformer, name, step, columns) for name, step in transformer.transformer_list
        ]
        return np.concatenate(origins) if origins else columns[:0]
    if kind is ColumnTransformer:
        return _through_columns(transformer, columns)
    find_sources = ONE_TO_ONE.get(kind) or one_to_one_steps().get(kind)
    sources = None if find_sources is None else find_sources(transformer, len(columns))
    if sources is not None:
        return (columns if _keeps_values(transformer) else _changed(columns))[sources]
    if _have_one_source(columns):
        return np.repeat(_changed(columns[:1]), _n_made(transformer, len(columns)))
    if kind.__module__.startswith(_MIXING_MODULES) or kind in (Normalizer, PolynomialFeatures):
        raise UnknownOriginError(
            f"{_name_of(transformer)} mixes columns, so none of its columns belongs to a single one"
        )
    raise UnknownOriginError(
        f"{_name_of(transformer)} is not known to make each of its columns from a single one"
    )


def _n_made(transformer: Any, n_columns: int) -> int:
    names_out = names_made(transformer, _names_in(transformer, n_columns))
    if names_out is None:
        raise UnknownOriginError(f"{_name_of(transformer)} does not say how many columns it makes")
    return len(names_out)


def _through_member(transformer: Any, name: str, step: Any, columns: np.ndarray) -> np.ndarray:
    """Return the origins of the output columns of a step inside a transformer."""
    try:
        return _through(step, columns)
    except UnknownOriginError as error:
        raise UnknownOriginError(f"in {name!r} of a {_name_of(transformer)}, {error}") from None


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
            raise UnknownOriginError(f"{name!r} of a {_name_of(transformer)} makes another number of columns")
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
    return ONE_TO_ONE.get(kind) is all_columns or one_to_one_steps().get(kind) is selected


def all_columns(step: Any, n_columns: int) -> np.ndarray:
    return np.arange(n_columns)


#: Steps outside scikit-learn that make each of their columns from a single input column.
ONE_TO_ONE: dict[type, SourceColumns] = {}


@cache
def one_to_one_steps() -> dict[type, SourceColumns]:
    """Return the steps of scikit-learn that make each of their columns from a single input column."""
    from sklearn import feature_selection, preprocessing
    from sklearn.impute import MissingIndicator, SimpleImputer
    from sklearn.kernel_approximation import AdditiveChi2Sampler

    keep_all = (
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
        **{getattr(preprocessing, name): all_columns for name in keep_all},
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
