"""The comparison of explanations: which columns are compared, and in which passes over them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.utils import check_scalar

from .._common.types import Vector
from .comparison import ExplanationComparison
from .measures import ROUNDING, QuantileBins, Wasserstein, ndcg, population_stability, ranks
from .ordering import Pieces, sorted_blocks
from .samples import FACTS, Sample, open_sample

#: Number of values of both samples that are held, sorted or not, at once.
_HELD = 2**23


def compare_explanations(
    reference: Any,
    current: Any,
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
        Values to compare with, such as those of the rows on which the model was tested: an explanation; or a
        Parquet or Arrow file, folder or list of files, that :func:`explain_batches` wrote, without
        ``reasons`` and interactions. Files are read in batches, several times, and may be larger than memory;
        a URL such as "s3://bucket/values/" is a path, too.
    current : Explanation, path or list of paths
        Values that may have changed, of the same features and outputs, in any order.
    n_bins : int, default=10
        Number of bins of the population stability index, at least 2.
    reference_weight, current_weight : array-like of shape (n_rows,), str or None, default=None
        Weight of each row; for files, the name of a column that was written by ``keep``. None: all rows count
        the same. A pandas series must have the index of the rows explained, in their order.

    Returns
    -------
    ExplanationComparison
        Importances, ranks, population stability index and Wasserstein distance of each feature, and the nDCG
        of the rankings.

    Raises
    ------
    ValueError
        Features or outputs differ, the values are of different kinds (``model_output``, ``index``,
        ``feature_perturbation``) or units, files have no values of every feature, values are infinite, a
        sample has no values or no weight, weights have another index than the rows, or an argument has an
        invalid value.
    TypeError
        A sample is no explanation or path, or weights are masked; interactions are not compared.
    ImportError
        A path is given, and pyarrow is not installed.

    Notes
    -----
    In what follows, a *sample* has the rows in which a value is known: NaN, from :func:`cross_val_explain`,
    and null are left out. Everything is computed for each output; ``rank`` and ``ndcg`` are of importances
    summed over the outputs.

    **Importance** is the mean magnitude of a feature's values, as :meth:`Explanation.importance` computes it.

    **Rank** is 1 for the feature with the largest importance. Tied features have the best of their ranks.

    **nDCG**, the normalized discounted cumulative gain [1]_, compares the current ranking with that of the
    reference [2]_. The gain of a feature is its importance in the reference, divided by ``log2(rank + 1)``
    for its current rank. The sum over the features is divided by that for the ranking of the reference, so
    1 means the same order; tied features share the mean of their discounts, as in
    :func:`sklearn.metrics.ndcg_score`. A change that leaves the order as it is goes unnoticed.

    **Population stability index** (PSI) [3]_, [4]_: the values are divided into ``n_bins`` bins by the
    quantiles of the reference. With the fractions p of the reference and q of the current sample in each
    bin, it is the sum of ``(q - p) * log(q / p)``. Fractions below 0.0001 count as 0.0001, since an empty bin
    would make it infinite. A quantile is the smallest value at which the distribution function reaches its
    level, and the edge of the bin lies halfway to the next larger value of the reference. A value that more
    than ``1 / n_bins`` of the reference have, such as zero, has a bin of its own, so that a move away from it
    is seen in either direction. Values are rounded to multiples of 0.00001 times the largest importance of
    either sample, so that differences between devices or precisions do not count. Without a change, the
    index of n reference and m current rows is on average about ``(n_bins - 1) * (1 / n + 1 / m)`` [4]_.
    Changes below 0.1 are usually called small, above 0.25 large [3]_.

    **Wasserstein distance**, of first order, is the mean distance, in the unit of the values, by which they
    would have to move from one distribution to the other, :func:`scipy.stats.wasserstein_distance`. It is
    exact, for files, too. The index tells how much a distribution has changed, even that of a feature that
    hardly matters; the distance, relative to the largest importance, tells whether the change matters.

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
    check_scalar(n_bins, "n_bins", Integral, min_val=2)
    ours = open_sample("reference", reference, reference_weight)
    theirs = open_sample("current", current, current_weight)
    pairing = _paired(ours, theirs)
    our_means, our_totals = _means(ours, range(len(pairing)))
    their_means, their_totals = _means(theirs, pairing)
    n_features = len(ours.feature_names)
    scale = np.maximum(our_means, their_means).reshape(n_features, -1).max(axis=0)
    units = np.tile(np.where(scale > 0, scale, 1.0) * ROUNDING, n_features)
    psi, distance = np.empty((2, len(pairing)))
    for column, pieces in _columns(ours, theirs, pairing):
        bins = QuantileBins(int(n_bins), our_totals[column], units[column])
        area = Wasserstein(our_totals[column], their_totals[column])
        for values, of_ours, of_theirs in sorted_blocks(pieces, ours.n_rows + theirs.n_rows, _HELD):
            bins.add(values, of_ours)
            area.add(values, of_ours, of_theirs)
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


def _paired(ours: Sample, theirs: Sample) -> np.ndarray:
    """Return the columns of the current sample in the order of those of the reference.

    Raises
    ------
    ValueError
        The values are of different kinds, features or outputs.
    """
    for fact in FACTS:
        one, other = ours.facts[fact], theirs.facts[fact]
        if one != other:
            raise ValueError(
                f"reference has {fact}={one!r}, but current {other!r}: values of different kinds cannot be "
                "compared"
            )
    units = {ours.unit, theirs.unit} - {"margin"}
    if len(units) > 1:
        raise ValueError(f"the unit of reference is {ours.unit}, but that of current {theirs.unit}")
    features = _matched("features", ours.feature_names, theirs.feature_names)
    if (ours.output_names is None) != (theirs.output_names is None):
        single, several = (ours, theirs) if ours.output_names is None else (theirs, ours)
        raise ValueError(
            f"{single.what} has one output, but {several.what} has {len(several.output_names or ())}: "
            "explain the same outputs in both"
        )
    if ours.output_names is None or theirs.output_names is None:
        alone = ours.only_output, theirs.only_output
        if None not in alone and str(alone[0]) != str(alone[1]):
            raise ValueError(f"reference is of output {alone[0]!r}, but current of {alone[1]!r}")
        return features
    outputs = _matched("outputs", tuple(map(str, ours.output_names)), tuple(map(str, theirs.output_names)))
    return (features[:, np.newaxis] * len(outputs) + outputs).ravel()


def _matched(what: str, ours: Sequence[str], theirs: Sequence[str]) -> np.ndarray:
    """Return the positions in ``theirs`` of all names of ``ours``."""
    missing = [name for name in ours if name not in set(theirs)]
    more = [name for name in theirs if name not in set(ours)]
    if missing or more:
        only = [
            f"only {where} has {', '.join(map(repr, names[:5]))}{', ...' if len(names) > 5 else ''}"
            for where, names in (("reference", missing), ("current", more))
            if names
        ]
        raise ValueError(f"reference and current have different {what}: {'; '.join(only)}")
    position = {name: place for place, name in enumerate(theirs)}
    return np.array([position[name] for name in ours], np.int64)


def _means(sample: Sample, columns: Sequence[int] | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean magnitude of each column over the rows with values, and their total weight."""
    sums, totals = np.zeros((2, len(columns)))
    for values, weights in sample.read(list(columns)):
        known = ~np.isnan(values)
        magnitudes = np.where(known, np.abs(values), 0.0)
        if np.isinf(magnitudes).any():
            column = int(np.flatnonzero(np.isinf(magnitudes).any(axis=0))[0])
            raise ValueError(f"{sample.what} has infinite values of {sample.column_names[columns[column]]!r}")
        sums += weights @ magnitudes
        totals += weights @ known
    if not (totals > 0).all():
        column = int(np.flatnonzero(totals <= 0)[0])
        raise ValueError(
            f"{sample.what} has no row with a value of {sample.column_names[columns[column]]!r} and with a "
            "weight above 0"
        )
    return sums / totals, totals


def _columns(ours: Sample, theirs: Sample, pairing: np.ndarray) -> Iterator[tuple[int, Pieces]]:
    """Yield the columns with a function that reads their known values and weights, the current's negative.

    As many columns as fit into memory are read at once; one that does not is read again in each call.
    """
    n_columns, n_values = len(pairing), ours.n_rows + theirs.n_rows
    n_together = max(1, _HELD // n_values)
    for start in range(0, n_columns, n_together):
        columns = range(start, min(start + n_together, n_columns))
        read = partial(_read, ours, theirs, list(columns), pairing[start : columns.stop].tolist())
        if n_values <= _HELD:
            held = [list(pieces) for pieces in zip(*read())]
            for column, pieces in zip(columns, held):
                yield column, partial(iter, pieces)
        else:
            yield start, partial(_first, read)


def _first(read: Callable[[], Iterator[list[Any]]]) -> Iterator[Any]:
    return (pieces[0] for pieces in read())


def _read(
    ours: Sample, theirs: Sample, columns: list[int], paired: list[int]
) -> Iterator[list[tuple[np.ndarray, np.ndarray]]]:
    """Yield, for a batch of rows, the known values and the signed weights of each column."""
    for sample, chosen, sign in ((ours, columns, 1.0), (theirs, paired, -1.0)):
        for values, weights in sample.read(chosen):
            known = ~np.isnan(values)
            yield [(column[there], sign * weights[there]) for column, there in zip(values.T, known.T)]
