"""Friedman's H: how much of the joint effect of two features is interaction."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from sklearn.utils import Bunch

from .. import _core
from .._common import memory
from .._common.progress import require_progress, watched
from .._common.types import ColumnList, Model, Progress, Table, Vector
from ..adapters.ensemble import tested_columns
from .computation import Axis, Computation
from .grid import Players

#: Rounding errors, relative to the mean margin, and relative to ``leaf_magnitude`` of the trees.
_ROUNDING_OF_MEAN, _ROUNDING_OF_LEAVES = 2.0**-49, 2.0**-44


def friedman_h(
    model: Model,
    X: Table,
    features: ColumnList | None = None,
    *,
    sample_weight: Vector | None = None,
    n_jobs: int | None = None,
    memory_limit: int | str | None = None,
    progress: Progress = False,
) -> Bunch:
    """Compute Friedman's H² exactly: the share of the joint effect of two features that is interaction.

    PD_j, PD_k and PD_jk are the partial dependence of the margin on feature j, on feature k and on both, each
    centered to the mean 0 over the rows. H² is the sum over the rows of (PD_jk - PD_j - PD_k)², divided by
    the sum of PD_jk² (Friedman & Popescu, 2008, doi:10.1214/07-AOAS148). The partial dependence is computed
    at the values of each row, and averaged over all rows. By predictions, this would take the square of the
    number of rows.

    Parameters
    ----------
    model, X
        As for :func:`partial_dependence`.
    features : sequence of str or int, default=None
        Features whose pairs are computed, by name or position as for :func:`partial_dependence`. None: all
        features that the trees use.
    sample_weight, n_jobs, memory_limit
        As for :func:`partial_dependence`.
    progress : bool or callable, default=False
        As for :meth:`TreeExplainer.explain`, but it counts pairs instead of rows.

    Returns
    -------
    Bunch
        ``pairs``, positions among the columns that the model receives, of shape (n_pairs, 2); ``names``, a
        list of pairs of names; ``h_squared`` of shape (n_outputs, n_pairs), where 0 is no interaction; and
        ``interaction`` of the same shape, the root of the mean square of PD_jk - PD_j - PD_k, in units of the
        margin. Rank pairs by ``interaction``: H² can be large although two features have next to no effect.

    Raises
    ------
    UnsupportedModelError, ValueError, TypeError
        As for :func:`partial_dependence`, or there are fewer than two features.
    MemoryError
        Two features have so many different values that their joint grid exceeds ``memory_limit`` or the
        memory of the machine.

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
    if isinstance(features, str):  # its letters are not the names
        features = [features]
    if features is not None and not np.iterable(features):
        raise TypeError(f"features must be a list of names or positions of columns, not {features!r}")
    columns = _used_columns(computation) if features is None else _requested_columns(features, computation)
    if features is not None and (len(set(columns)) < len(columns) or len(columns) < 2):
        raise ValueError(f"at least two different features are needed, not {features!r}")
    effects = _Effects(computation, columns)
    pairs = list(combinations(columns, 2))
    measures = np.empty((2, computation.adapted.ensemble.n_outputs, len(pairs)))
    plan = _core.Plan(computation.attributes, "single", 2, n_threads=computation.n_threads)
    occurring = set(map(frozenset, plan.pairs.tolist()))  # no other pairs interact
    with watched(progress, len(pairs)) as tracker:
        for i, pair in enumerate(pairs):
            measures[:, :, i] = effects.measure(*pair) if frozenset(pair) in occurring else 0.0
            if tracker is not None:
                tracker.done(i + 1)
    return Bunch(
        pairs=np.array(pairs, np.int64).reshape(-1, 2),
        names=[(names[first], names[second]) for first, second in pairs],
        h_squared=measures[0],
        interaction=measures[1],
    )


def _requested_columns(features: ColumnList, computation: Computation) -> list[int]:
    players = Players(computation)
    columns = [players.number("features", feature, with_values=False) for feature in features]
    dropped = [players.names[column] for column in columns if column in players.dropped]
    if dropped:
        raise ValueError(
            f"features: the steps drop {dropped[0]!r}, so it interacts with nothing: leave it out"
        )
    return columns


def _used_columns(computation: Computation) -> list[int]:
    """Return the columns of X that trees use, directly or through columns derived from them."""
    schema, tested = computation.adapted.schema, tested_columns(computation.adapted.ensemble).tolist()
    used = {column for column in tested if column < schema.n_features}
    if schema.derived is not None:
        used.update(
            *(schema.derived.sources[column - schema.n_features] for column in tested if column not in used)
        )
    return sorted(used)


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
        rounding = _ROUNDING_OF_LEAVES * computation.trees([]).leaf_magnitude
        # Effects up to this one may be due to rounding.
        self._no_effect = rounding + _ROUNDING_OF_MEAN * np.abs(computation.mean())

    def measure(self, first: int, second: int) -> tuple[np.ndarray, np.ndarray]:
        """Return H² of a pair, and the root of the mean square of its interaction, for each output."""
        joint = self._joint(first, second)
        interaction = self._mean_square(joint - self._single[first] - self._single[second])
        joint_effect = self._mean_square(joint)
        interaction[np.sqrt(interaction) <= self._no_effect] = 0.0
        share = np.divide(interaction, joint_effect, out=np.zeros_like(joint_effect), where=interaction > 0)
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
            advice = ", or raise memory_limit" if computation.memory_limit is not None else ""
            raise MemoryError(
                f"{names[first]!r} has {sizes[0]:,} values that the trees can tell apart, and "
                f"{names[second]!r} {sizes[1]:,}: their joint grid takes {need:,} bytes, but {limit:,} are "
                f"available; use a sample of the rows{advice}"
            )
        grid = computation.average(computation.trees(axes), sizes[0] * sizes[1])
        return self._centered(grid[:, self._cells[first], self._cells[second]])

    def _centered(self, values: np.ndarray) -> np.ndarray:
        return values - (values @ self._weights)[:, np.newaxis]

    def _mean_square(self, values: np.ndarray) -> np.ndarray:
        return np.square(values) @ self._weights
