"""The comparison of explanations: it matches the columns of two samples, and reads them in several passes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from .._common.checks import require_count
from .._common.types import PathOrUrl, Vector
from .._explanations.values import Explanation
from .comparison import ExplanationComparison
from .measures import ROUNDING, QuantileBins, Wasserstein, ndcg, population_stability, ranks
from .ordering import Pieces, sorted_blocks
from .samples import FACTS, Sample, open_sample

#: Number of values of both samples that are in memory at once.
_VALUES_IN_MEMORY = 2**23


def compare_explanations(
    reference: Explanation | PathOrUrl | Sequence[PathOrUrl],
    current: Explanation | PathOrUrl | Sequence[PathOrUrl],
    *,
    n_bins: int = 10,
    reference_weight: Vector | str | None = None,
    current_weight: Vector | str | None = None,
) -> ExplanationComparison:
    """Compare the SHAP values of two samples of rows, to detect drift.

    A drift of SHAP values shows changes of the data that matter to the model, and, if two models explain the
    same rows, how differently they use the features.

    Parameters
    ----------
    reference : Explanation, path or list of paths
        Values to compare with, such as the values of the rows on which the model was tested. Pass an
        explanation, or a Parquet or Arrow file, a folder or a list of files that :func:`explain_batches`
        wrote without ``reasons`` and interactions. Files are read in batches, several times, and may be
        larger than memory. A URL such as "s3://bucket/values/" is a path, too.
    current : Explanation, path or list of paths
        Values that may have changed, of the same features and outputs, in any order.
    n_bins : int, default=10
        Number of bins of the population stability index, at least 2.
    reference_weight, current_weight : array-like of shape (n_rows,), str or None, default=None
        Weight of each row, or for files, the name of a column that was written by ``keep``. None: all rows
        have the same weight. A pandas series must have the index of the explained rows, in their order.

    Returns
    -------
    ExplanationComparison
        Importances, ranks, population stability index and Wasserstein distance of each feature, and the nDCG
        of the rankings.

    Raises
    ------
    ValueError
        The samples differ in features, outputs, kind of values (``model_output``, ``index``,
        ``feature_perturbation``) or unit. Or a file lacks the values of a feature, values are infinite, a
        sample has no values or no weight, weights have another index than the rows, or an argument has an
        invalid value.
    TypeError
        A sample is no explanation or path, or weights are masked; interactions are not compared.
    ImportError
        A sample is a path, and pyarrow is not installed.

    Notes
    -----
    In what follows, a *sample* has only the rows in which a value is known, that is neither null nor NaN (NaN
    is the value of rows that :func:`cross_val_explain` never tested). All measures are computed for each
    output, except ``rank`` and ``ndcg``, for which importances are summed over the outputs.

    **Importance** is the mean magnitude of a feature's values, as :meth:`Explanation.importance` computes it.

    **Rank** is 1 for the feature with the largest importance. Tied features have the best of their ranks.

    **nDCG**, the normalized discounted cumulative gain [1]_, compares the current ranking with the ranking of
    the reference [2]_. The gain of a feature is its importance in the reference, divided by
    ``log2(rank + 1)`` for its current rank. The sum over the features is divided by the same sum for the
    ranks in the reference, so 1 means the same order. Tied features share the mean of their discounts, as in
    :func:`sklearn.metrics.ndcg_score`. The nDCG does not show changes that leave the order as it is.

    **Population stability index** (PSI) [3]_, [4]_: the values are divided into ``n_bins`` bins by the
    quantiles of the reference. In each bin there is a fraction p of the reference and a fraction q of the
    current sample. The index is the sum of ``(q - p) * log(q / p)`` over the bins. Fractions below 0.0001
    count as 0.0001, since an empty bin would make the index infinite. A quantile is the smallest value at
    which the distribution function reaches its level, and the edge of the bin is halfway to the next larger
    value of the reference. If more than ``1 / n_bins`` of the reference have the same value, such as zero,
    this value has a bin of its own, so that the index shows a move away from it in either direction. Values
    are rounded to multiples of 0.00001 times the largest importance of either sample, so that differences
    between devices or precisions do not count. Without a change, the index of n reference rows and m current
    rows is on average about ``(n_bins - 1) * (1 / n + 1 / m)`` [4]_. An index below 0.1 is usually called
    small, above 0.25 large [3]_.

    **Wasserstein distance**, of first order, is the mean distance by which the values would have to move from
    one distribution to the other, in their unit, as in :func:`scipy.stats.wasserstein_distance`. It is exact,
    also for files. The population stability index tells how much a distribution has changed, even if the
    feature hardly matters. The Wasserstein distance, relative to the largest importance, tells whether the
    change matters.

    References
    ----------
    .. [1] Järvelin and Kekäläinen, "Cumulated gain-based evaluation of IR techniques", ACM Transactions on
       Information Systems 20, 2002.
    .. [2] Nigenda et al., "Amazon SageMaker Model Monitor: a system for real-time insights into deployed
       machine learning models", KDD 2022.
    .. [3] Siddiqi, "Credit risk scorecards", Wiley 2006.
    .. [4] Yurdakul and Naranjo, "Statistical properties of the population stability index", Journal of Risk
       Model Validation 14, 2020.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.ensemble import RandomForestRegressor
    >>> from skshapgpu import compare_explanations, explain
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> model = RandomForestRegressor(10, random_state=0).fit(X, y)
    >>> comparison = compare_explanations(explain(model, X), explain(model, X.assign(bmi=X["bmi"] + 0.05)))
    >>> comparison.to_frame().index[0]
    'bmi'
    """
    require_count("n_bins", n_bins, at_least=2)
    ours = open_sample("reference", reference, reference_weight)
    theirs = open_sample("current", current, current_weight)
    pairing = _matching_columns(ours, theirs)
    our_means, our_totals = _means(ours, range(len(pairing)))
    their_means, their_totals = _means(theirs, pairing)
    n_features = len(ours.feature_names)
    scale = np.maximum(our_means, their_means).reshape(n_features, -1).max(axis=0)
    units = np.tile(np.where(scale > 0, scale, 1.0) * ROUNDING, n_features)
    psi, distance = np.empty((2, len(pairing)))
    for column, pieces in _columns(ours, theirs, pairing):
        bins = QuantileBins(int(n_bins), our_totals[column], units[column])
        area = Wasserstein(our_totals[column], their_totals[column])
        n_values = ours.n_rows + theirs.n_rows
        for values, our_weights, their_weights in sorted_blocks(pieces, n_values, _VALUES_IN_MEMORY):
            bins.add(values, our_weights)
            area.add(values, our_weights, their_weights)
        psi[column] = population_stability(*bins.count(pieces()))
        distance[column] = area.distance
    summed = [means.reshape(n_features, -1).sum(axis=1) for means in (our_means, their_means)]
    shape = (n_features,) if ours.output_names is None else (n_features, len(ours.output_names))
    return ExplanationComparison(
        feature_names=ours.feature_names,
        output_names=ours.output_names,
        reference_importance=our_means.reshape(shape),
        current_importance=their_means.reshape(shape),
        reference_rank=ranks(summed[0]),
        current_rank=ranks(summed[1]),
        psi=psi.reshape(shape),
        wasserstein=distance.reshape(shape),
        ndcg=ndcg(*summed),
        n_reference=ours.n_rows,
        n_current=theirs.n_rows,
        **ours.facts,
        unit=theirs.unit if ours.unit == "margin" else ours.unit,
    )


def _matching_columns(ours: Sample, theirs: Sample) -> np.ndarray:
    """Return the columns of the current sample in the order of the columns of the reference.

    Raise ``ValueError`` if the samples differ in kind of values, features or outputs.
    """
    for fact in FACTS:
        our_fact, their_fact = ours.facts[fact], theirs.facts[fact]
        if our_fact != their_fact:
            raise ValueError(
                f"reference has {fact}={our_fact!r}, but current {their_fact!r}: values of different kinds "
                "cannot be compared"
            )
    units = {ours.unit, theirs.unit} - {"margin"}
    if len(units) > 1:
        raise ValueError(f"the unit of reference is {ours.unit}, but the unit of current is {theirs.unit}")
    features = _matching_positions("features", ours.feature_names, theirs.feature_names)
    if (ours.output_names is None) != (theirs.output_names is None):
        single, several = (ours, theirs) if ours.output_names is None else (theirs, ours)
        raise ValueError(
            f"{single.role} has one output, but {several.role} has {len(several.output_names or ())}: "
            "explain the same outputs in both"
        )
    if ours.output_names is None or theirs.output_names is None:
        only_outputs = ours.only_output, theirs.only_output
        if None not in only_outputs and str(only_outputs[0]) != str(only_outputs[1]):
            raise ValueError(
                f"reference is of output {only_outputs[0]!r}, but current is of output {only_outputs[1]!r}"
            )
        return features
    our_outputs, their_outputs = tuple(map(str, ours.output_names)), tuple(map(str, theirs.output_names))
    outputs = _matching_positions("outputs", our_outputs, their_outputs)
    return (features[:, np.newaxis] * len(outputs) + outputs).ravel()


def _matching_positions(kind: str, ours: Sequence[str], theirs: Sequence[str]) -> np.ndarray:
    """Return the positions in ``theirs`` of all names of ``ours``."""
    missing = [name for name in ours if name not in set(theirs)]
    unexpected = [name for name in theirs if name not in set(ours)]
    if missing or unexpected:
        differences = [
            f"only {role} has {', '.join(map(repr, names[:5]))}{', ...' if len(names) > 5 else ''}"
            for role, names in (("reference", missing), ("current", unexpected))
            if names
        ]
        raise ValueError(f"reference and current have different {kind}: {'; '.join(differences)}")
    position_of_name = {name: i for i, name in enumerate(theirs)}
    return np.array([position_of_name[name] for name in ours], np.int64)


def _means(sample: Sample, columns: Sequence[int] | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean magnitude of each column over the rows with values, and their total weight."""
    sums, totals = np.zeros((2, len(columns)))
    for values, weights in sample.read(list(columns)):
        is_known = ~np.isnan(values)
        magnitudes = np.where(is_known, np.abs(values), 0.0)
        if np.isinf(magnitudes).any():
            column = int(np.flatnonzero(np.isinf(magnitudes).any(axis=0))[0])
            raise ValueError(f"{sample.role} has infinite values of {sample.column_names[columns[column]]!r}")
        sums += weights @ magnitudes
        totals += weights @ is_known
    if not (totals > 0).all():
        column = int(np.flatnonzero(totals <= 0)[0])
        raise ValueError(
            f"{sample.role} has no row with a value of {sample.column_names[columns[column]]!r} and with a "
            "weight above 0"
        )
    return sums / totals, totals


def _columns(ours: Sample, theirs: Sample, pairing: np.ndarray) -> Iterator[tuple[int, Pieces]]:
    """Yield each column, and a function that reads its known values and their weights.

    Weights in the current sample are negative. As many columns as fit into memory are read at once. A column
    that does not fit is read anew in each call of the function.
    """
    n_columns, n_values = len(pairing), ours.n_rows + theirs.n_rows
    n_at_once = max(1, _VALUES_IN_MEMORY // n_values)
    for start in range(0, n_columns, n_at_once):
        columns = range(start, min(start + n_at_once, n_columns))
        read = partial(_read, ours, theirs, list(columns), pairing[start : columns.stop].tolist())
        if n_values <= _VALUES_IN_MEMORY:
            pieces_of_columns = [list(pieces) for pieces in zip(*read())]
            for column, pieces in zip(columns, pieces_of_columns):
                yield column, partial(iter, pieces)
        else:
            yield start, partial(_pieces_of_first, read)


def _pieces_of_first(read: Callable[[], Iterator[list[Any]]]) -> Iterator[Any]:
    return (pieces[0] for pieces in read())


def _read(
    ours: Sample, theirs: Sample, our_columns: list[int], their_columns: list[int]
) -> Iterator[list[tuple[np.ndarray, np.ndarray]]]:
    """Yield, for a batch of rows, the known values and the signed weights of each column."""
    for sample, columns, sign in ((ours, our_columns, 1.0), (theirs, their_columns, -1.0)):
        for values, weights in sample.read(columns):
            is_known = ~np.isnan(values)
            yield [(column[rows], sign * weights[rows]) for column, rows in zip(values.T, is_known.T)]
