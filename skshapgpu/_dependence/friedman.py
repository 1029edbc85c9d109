"""Friedman's H: how much of the joint effect of two features is interaction."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from sklearn.utils import Bunch

from .._common import memory
from .._common.progress import require_progress, watched
from .._common.types import Model, Progress, Table, Vector
from .._rows.inputs import tested_columns
from .computation import Axis, Computation
from .grid import Players

#: Rounding errors, relative to the mean margin, and to the sum over all trees of their leaves' magnitude.
_OF_MEAN, _OF_LEAVES = 2.0**-49, 2.0**-44


def friedman_h(
    model: Model,
    X: Table,
    features: Sequence[str | int] | None = None,
    *,
    sample_weight: Vector | None = None,
    n_jobs: int | None = None,
    memory_limit: int | str | None = None,
    progress: Progress = False,
) -> Bunch:
    """Compute Friedman's H² exactly: the share of the joint effect of two features that is interaction.

    With the partial dependence of the margin on one feature and on two, each centered to the mean 0 over the
    rows, it is the sum over the rows of (PD_jk - PD_j - PD_k)², divided by that of PD_jk² (Friedman &
    Popescu, 2008, doi:10.1214/07-AOAS148). All are computed at the values of the rows and averaged over all
    rows, which by predictions takes the square of the number of rows.

    Parameters
    ----------
    model, X
        As for :func:`partial_dependence`.
    features : sequence of str or int, default=None
        Features whose pairs are computed, by name or position as for :func:`partial_dependence`. None: all
        that trees use.
    sample_weight, n_jobs, memory_limit
        As for :func:`partial_dependence`.
    progress : bool or callable, default=False
        As for :meth:`TreeExplainer.explain`, but it counts pairs instead of rows.

    Returns
    -------
    Bunch
        ``pairs``, positions among the columns that the model receives, of shape (n_pairs, 2); ``names``, a
        list of pairs of names; ``h_squared`` of shape (n_outputs, n_pairs), where 0 is no interaction; and
        ``interaction`` of the same shape, the root of the mean square of the numerator, in units of the
        margin, by which to rank pairs: H² can be large if two features have next to no effect.

    Raises
    ------
    UnsupportedModelError, ValueError, TypeError, KeyError, IndexError
        As for :func:`partial_dependence`, or fewer than two features are given.
    MemoryError
        The values of two features in the rows differ so often that their joint grid exceeds ``memory_limit``
        or the memory of the machine.

    See Also
    --------
    partial_dependence : Compute partial dependence.
    explain_interactions : Compute interactions of features for each row.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.ensemble import RandomForestRegressor
    >>> from skshapgpu import friedman_h
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> model = RandomForestRegressor(10, max_depth=5, random_state=0).fit(X, y)
    >>> friedman_h(model, X, ["bmi", "bp", "s5"]).names
    [('bmi', 'bp'), ('bmi', 's5'), ('bp', 's5')]
    """
    if progress is not False:
        require_progress(progress)
    computation = Computation.read(model, X, sample_weight, "raw", n_jobs, memory_limit)
    names = computation.names
    if isinstance(features, str):  # its letters are no names
        features = [features]
    chosen = _used(computation) if features is None else _columns_of(features, computation)
    if features is not None and (len(set(chosen)) < len(chosen) or len(chosen) < 2):
        raise ValueError(f"at least two different features are needed, not {features!r}")
    effects = _Effects(computation, chosen)
    pairs = list(combinations(chosen, 2))
    found = np.empty((2, computation.adapted.ensemble.n_outputs, len(pairs)))
    occurring = _occurring(computation)
    with watched(progress, len(pairs)) as tracker:
        for i, pair in enumerate(pairs):
            found[:, :, i] = effects.of_pair(*pair) if frozenset(pair) in occurring else 0.0
            if tracker is not None:
                tracker.done(i + 1)
    return Bunch(
        pairs=np.array(pairs, np.int64).reshape(-1, 2),
        names=[(names[first], names[second]) for first, second in pairs],
        h_squared=found[0],
        interaction=found[1],
    )


def _columns_of(features: Sequence[str | int], computation: Computation) -> list[int]:
    players = Players(computation)
    chosen = [players.number(each, with_values=False) for each in features]
    dropped = [players.names[number] for number in chosen if number in players.dropped]
    if dropped:
        raise IndexError(
            f"the steps drop {dropped[0]!r}, so it interacts with nothing: leave it out of the features"
        )
    return chosen


def _used(computation: Computation) -> list[int]:
    """Return the columns of X that trees use, those from which others are derived included."""
    schema, tested = computation.adapted.schema, tested_columns(computation.adapted.ensemble).tolist()
    used = {column for column in tested if column < schema.n_features}
    if schema.derived is not None:
        used.update(
            *(schema.derived.sources[column - schema.n_features] for column in tested if column not in used)
        )
    return sorted(used)


def _occurring(computation: Computation) -> set[frozenset[int]]:
    """Return the pairs of features that occur on one path; no others interact."""
    from .. import _core

    plan = _core.Plan(computation.attributes, "single", 2, n_threads=computation.n_threads)
    return {frozenset(pair) for pair in plan.pairs.tolist()}


class _Effects:
    """Partial dependence at the values of the rows."""

    def __init__(self, computation: Computation, features: Sequence[int]) -> None:
        self._computation = computation
        n_rows = computation.rows.n_rows
        self._weights = np.full(n_rows, 1 / n_rows) if computation.weights is None else computation.weights
        encoded = computation.rows.chunk(0, n_rows)
        self._axes: dict[int, Axis] = {}
        self._cells: dict[int, np.ndarray] = {}
        self._single: dict[int, np.ndarray] = {}
        for feature in features:
            axis = Axis(computation.columns_of(feature), encoded)
            trees = computation.trees([axis])
            cells = trees.cells(0)
            _, first = np.unique(cells, return_index=True)
            self._axes[feature], self._cells[feature] = Axis(axis.columns, encoded[first]), cells
            self._single[feature] = self._centered(computation.average(trees, n_rows))
        rounding = _OF_LEAVES * computation.trees([]).leaf_magnitude
        self._no_effect = rounding + _OF_MEAN * np.abs(computation.mean())  # the largest that counts as none

    def of_pair(self, first: int, second: int) -> tuple[np.ndarray, np.ndarray]:
        """Return H² and the root of the mean square of the interaction, for each output."""
        both = self._joint(first, second)
        interaction = self._mean_square(both - self._single[first] - self._single[second])
        whole = self._mean_square(both)
        interaction[np.sqrt(interaction) <= self._no_effect] = 0.0
        share = np.divide(interaction, whole, out=np.zeros_like(whole), where=interaction > 0)
        return share, np.sqrt(interaction)

    def _joint(self, first: int, second: int) -> np.ndarray:
        """Return the centered partial dependence on two features: (n_outputs, n_rows)."""
        computation, axes = self._computation, [self._axes[first], self._axes[second]]
        sizes = [len(axis.points) for axis in axes]
        n_outputs = computation.adapted.ensemble.n_outputs
        need = 2 * 8 * n_outputs * sizes[0] * sizes[1]
        limit = computation.memory_limit or memory.machine_bytes()
        if limit is not None and need > limit:
            names = computation.names
            raise MemoryError(
                f"{names[first]!r} has {sizes[0]:,} values that the trees can tell apart, and "
                f"{names[second]!r} {sizes[1]:,}: their joint grid takes {need:,} bytes, but {limit:,} are "
                "available; use a sample of the rows"
            )
        grid = computation.average(computation.trees(axes), sizes[0] * sizes[1])
        return self._centered(grid[:, self._cells[first], self._cells[second]])

    def _centered(self, values: np.ndarray) -> np.ndarray:
        return values - (values @ self._weights)[:, np.newaxis]

    def _mean_square(self, values: np.ndarray) -> np.ndarray:
        return np.square(values) @ self._weights
