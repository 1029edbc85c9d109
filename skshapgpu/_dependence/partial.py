"""Partial dependence in the form of scikit-learn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from sklearn.utils import Bunch

from .._common.checks import require_bool, require_one_of
from .._common.progress import require_progress, watched
from .._common.types import ColumnList, FeatureGroups, Model, Progress, Table, Vector
from .computation import Computation
from .grid import GridFeature, GridOptions, Players, read_dropped, read_feature
from .grouped import GroupedFeatures

_KINDS, _OUTPUTS = ("average", "individual", "both"), ("raw", "probability", "response")


def partial_dependence(
    model: Model,
    X: Table,
    features: str | int | ColumnList,
    *,
    sample_weight: Vector | None = None,
    categorical_features: ColumnList | None = None,
    percentiles: tuple[float, float] = (0.05, 0.95),
    grid_resolution: int | Literal["exact"] = 100,
    custom_values: Mapping[Any, Any] | None = None,
    kind: Literal["average", "individual", "both"] = "average",
    centered: bool = False,
    model_output: Literal["raw", "probability", "response"] = "raw",
    feature_groups: FeatureGroups | None = None,
    n_jobs: int | None = None,
    memory_limit: int | str | None = None,
    progress: Progress = False,
) -> Bunch:
    """Compute the exact partial dependence of a tree model's output on one feature, or on two.

    It is the mean output over the rows of X if all of them had the same value of the feature (Friedman, 2001,
    doi:10.1214/aos/1013203451), at each value of a grid: the numbers of
    ``sklearn.inspection.partial_dependence(method="brute")``, which predicts all rows for each value of the
    grid. Here, each row passes through the trees once, whatever the grid.

    Parameters
    ----------
    model : fitted model, str, path, bytes or TreeExplainer
        A fitted model or its file, or an explainer or its file: see :class:`TreeExplainer`.
        For a ``Pipeline``, features are the columns that the last step receives.
        The options of an explainer have no effect here.
    X : array-like, sparse matrix or data frame of shape (n_rows, n_features)
        Rows over which the output is averaged, in any form that ``model.predict`` accepts; not on a GPU.
    features : str, int, or sequence of one or two of them
        Names of columns or groups, or positions of columns of X. After the leading steps of a pipeline, a
        position stands for the column that they only select; if they drop it, the curve is flat.
    sample_weight : array-like of shape (n_rows,), default=None
        Non-negative weight of each row in averages; None gives all rows the same weight.
    categorical_features : array-like of bool, int or str, default=None
        Columns whose grid is their different values, by name or position like ``features``, or a mask of the
        columns of X. With None, they are those that the model treats as categories, and those that do not
        hold numbers.
    percentiles : tuple of two floats, default=(0.05, 0.95)
        Quantiles of a feature, missing values left out, between which its grid lies.
    grid_resolution : int or "exact", default=100
        Number of evenly spaced values of a grid; if a feature has fewer different values in X, these are its
        grid. With "exact", the grid has the numbers on both sides of each jump, so that lines between them
        are the whole curve.
    custom_values : dict, default=None
        Values of the grid, by name or position like ``features``; they override ``percentiles`` and
        ``grid_resolution``. NaN is the output for a missing value.
    kind : {"average", "individual", "both"}, default="average"
        Whether to average over the rows, to return the curve of each row (individual conditional
        expectation, ICE), or both.
    centered : bool, default=False
        Subtract the mean output over the rows. The result for one feature is its main effect; that for two
        is the sum of their main effects and their interaction.
    model_output : {"raw", "probability", "response"}, default="raw"
        Output: the margin, as scikit-learn's ``response_method="decision_function"``, the probability, or
        the exponential of the margin where that is the prediction. The last two are averaged row by row,
        which takes time for each value of the grid.
    feature_groups : mapping of str to list, "input" or None, default=None
        Columns that change together, as for :class:`TreeExplainer`; ``features`` are then groups, and columns
        in none. "input" groups the columns that the leading steps of a pipeline make from each column of X:
        the features are the columns of X, and so are the values of their grids, which the steps encode. The
        grid of any other group of several columns has all combinations of their values that occur in X, as
        tuples in the order of its list, at most ``grid_resolution``.
    n_jobs : int or None, default=None
        Number of threads, as for :class:`TreeExplainer`.
    memory_limit : int, str or None, default=None
        Bytes that the call may allocate, as for :class:`TreeExplainer`.
    progress : bool or callable, default=False
        As for :meth:`TreeExplainer.explain`.

    Returns
    -------
    Bunch
        As scikit-learn's, with float64 arrays: ``grid_values``, a list with the values of each feature;
        ``average`` of shape (n_outputs, n_values, ...); and ``individual`` of shape (n_outputs, n_rows,
        n_values, ...), depending on ``kind``. A binary classifier has one output, its positive class. It also
        has what ``PartialDependenceDisplay`` takes: ``feature_names`` of all features, after which come
        columns of X that the steps drop; ``features``, a tuple of positions in ``feature_names``; ``deciles``
        of numeric features by these positions; and ``is_categorical``.

    Raises
    ------
    UnsupportedModelError
        The model is not supported.
    ValueError, TypeError
        X has a type, shape or value that the model does not accept; an argument is invalid; a feature does
        not exist or has no grid, is one that CatBoost combines with others, the model has no such
        ``model_output``, or a step of a pipeline is not known to make each of its columns from a single one.
    MemoryError
        The result exceeds ``memory_limit`` or the memory of the machine.

    See Also
    --------
    friedman_h : Compute how strongly pairs of features interact.
    explain : Compute SHAP values.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.ensemble import RandomForestRegressor
    >>> from skshapgpu import partial_dependence
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> model = RandomForestRegressor(10, random_state=0).fit(X, y)
    >>> partial_dependence(model, X, "bmi").average.shape
    (1, 100)
    >>> partial_dependence(model, X, ("bmi", "sex"), grid_resolution=20).average.shape
    (1, 20, 2)
    """
    require_one_of("kind", kind, _KINDS)
    require_one_of("model_output", model_output, _OUTPUTS)
    require_bool("centered", centered)
    if progress is not False:
        require_progress(progress)
    computation = Computation.read(model, X, sample_weight, model_output, n_jobs, memory_limit)
    grouped = None if feature_groups is None else GroupedFeatures(computation, feature_groups)
    players = Players(computation) if grouped is None else grouped.players
    chosen = _positions(features, players)
    options = GridOptions.read(
        players, chosen, percentiles, grid_resolution, categorical_features, custom_values
    )
    grid = [_read(computation, grouped, players, feature, options) for feature in chosen]
    trees = computation.trees([feature.axis for feature in grid])
    n_points = int(np.prod([len(feature.values) for feature in grid]))
    result = Bunch(
        grid_values=[feature.values for feature in grid],
        features=chosen,
        feature_names=list(players.names),
        deciles={i: feature.deciles for i, feature in zip(chosen, grid) if feature.deciles is not None},
        is_categorical=tuple(feature.is_categorical for feature in grid),
    )
    mean = computation.mean() if centered else None
    with watched(progress, computation.rows.n_rows) as tracker:
        if kind == "average":
            result["average"] = computation.average(trees, n_points, tracker)
        else:
            most_rows = computation.curves_at_once(trees, n_points)  # raises an error before any work is done
            if kind == "both":  # before there are curves, which would take memory beside it
                result["average"] = computation.average(trees, n_points, most_rows=most_rows)
            result["individual"] = computation.individual(trees, n_points, tracker)
    if mean is not None:
        for name in {"average", "individual"} & set(result):
            result[name] -= mean.reshape(-1, *[1] * (result[name].ndim - 1))
    return result


def _read(
    computation: Computation,
    grouped: GroupedFeatures | None,
    players: Players,
    feature: int,
    options: GridOptions,
) -> GridFeature:
    """Return a feature of the grid with its values."""
    if feature in players.dropped:
        return read_dropped(computation, players.dropped[feature], players.names[feature], feature, options)
    return read_feature(computation, feature, options) if grouped is None else grouped.read(feature, options)


def _positions(features: Any, players: Players) -> tuple[int, ...]:
    if isinstance(features, np.ndarray):
        features = features.tolist()
    if isinstance(features, str) or not isinstance(features, Sequence):
        features = [features]
    chosen = tuple(players.number("features", feature) for feature in features)
    if not 1 <= len(chosen) <= 2:
        raise ValueError(f"features must be one feature or two, not {len(chosen)}")
    if len(set(chosen)) < len(chosen):
        raise ValueError(f"features has {players.names[chosen[0]]!r} twice")
    return chosen
