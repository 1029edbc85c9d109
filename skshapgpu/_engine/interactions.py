"""Interactions: which sets of features are requested, and how their values are computed and stored.

The requested sets of features (pairs or triples) are listed, and a result has a number for each row and set.
The core computes all sets that occur on a path, one batch of rows at a time; sets that were not requested are
dropped with their batch. SHAP interaction values are symmetric matrices, which the core writes itself. Arrays
have the layouts of ``runs.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._common.algorithms import Kind
from .._common.checks import require_count, require_one_of
from .._common.digits import counted
from .._common.indices import INTERACTION_INDICES, indices_of
from .._common.positions import is_integer, read_positions
from .._rows.gpu_arrays import scale_and_sum
from .runs import RowBytes, Run, chunk_of

_NOUNS = {2: "pair", 3: "triple"}


def require_order(order: Any) -> None:
    """Raise ``ValueError`` unless ``order``, the number of features that interact, is 2 or 3."""
    if not is_integer(order) or order not in _NOUNS:
        raise ValueError(f"order must be 2 or 3, not {order!r}")


@dataclass(frozen=True)
class Request:
    """Interactions that are requested by the arguments ``interactions``, ``index`` and ``order``."""

    kind: Kind
    form: str  # "matrices" is not a choice of the argument ``interactions``: see :data:`MATRICES`
    count: int = 0  # number of the strongest sets to keep
    listed: tuple[tuple[Any, ...], ...] = ()  # features of each set, by name or position
    #: Whether positions in ``listed`` are positions of features of the results, as in an array of sets;
    #: otherwise they are positions of columns of X.
    has_feature_positions: bool = False

    @classmethod
    def parse(cls, interactions: Any, index: Any = "SII", order: Any = 2) -> Request:
        """Parse the arguments.

        Raise ``ValueError`` or ``TypeError`` if an argument has an invalid value.
        """
        require_order(order)
        require_one_of("index", index, INTERACTION_INDICES)
        if index not in (indices := indices_of(int(order))):
            choices = " or ".join(map(repr, indices))
            raise ValueError(f"order={order} has index {choices}, not {index!r}, which is of order 2")
        kind = Kind(int(order), index)
        noun = _NOUNS[kind.order]
        refusal = f"interactions must be 'occurring', a number or a list of {noun}s, not {interactions!r}"
        if isinstance(interactions, str):
            if interactions in ("all", "matrices") and order == 2:
                raise ValueError(
                    f"{refusal}: matrices are arrays, which shap_interaction_values(X) returns, or "
                    "explain_interactions(X).matrices()"
                )
            if interactions != "occurring":
                raise ValueError(refusal)
            return cls(kind, interactions)
        if is_integer(interactions):
            require_count("interactions", interactions)
            return cls(kind, "strongest", count=int(interactions))
        if not isinstance(interactions, (Sequence, np.ndarray)):
            raise TypeError(refusal)
        for members in interactions:
            is_set = isinstance(members, (Sequence, np.ndarray)) and not isinstance(members, str)
            if not is_set or len(members) != order:
                raise ValueError(
                    f"interactions must be a list of {noun}s of features, but {members!r} is no {noun}"
                )
        has_feature_positions = isinstance(interactions, np.ndarray)
        return cls(
            kind,
            "listed",
            listed=tuple(map(tuple, interactions)),
            has_feature_positions=has_feature_positions,
        )

    @property
    def title(self) -> str:
        """Name of the results, for messages."""
        return f"{self.values_name} of {self.result}"

    @property
    def values_name(self) -> str:
        """Name of the values: matrices hold halves of the Shapley interactions."""
        return "SHAP interaction values" if self.form == "matrices" else self.kind.values_name

    @property
    def noun(self) -> str:
        """Name of a set of features of this order."""
        return _NOUNS[self.kind.order]

    @property
    def result(self) -> str:
        """Name of the core's result that holds the sets."""
        return f"{self.noun}s"

    @property
    def factor(self) -> int:
        """Factor of the core's results: 2 for pairs, as the core computes half of the index of a pair."""
        return 2 if self.kind.order == 2 else 1

    def positions(self, names: Sequence[str], are_columns: bool) -> np.ndarray:
        """Return the positions of the features of the listed sets: int32, (n_sets, order).

        ``names`` are the names of the features; ``are_columns`` says whether each feature is the column of X
        at its own position. Raise ``ValueError`` if a feature is unknown or occurs twice in a set, a set is
        listed twice, or a feature is given by the position of a column of X, but the features are not the
        columns of X. Raise ``TypeError`` if a feature is given neither by its name nor by its position.
        """
        features = [feature for members in self.listed for feature in members]
        if not (are_columns or self.has_feature_positions):
            for feature in features:
                if is_integer(feature):
                    raise ValueError(
                        f"interactions has the position {feature} of a column of X, but the features are "
                        "not the columns of X one by one: give names of features, or an array of positions "
                        "of features, as occurring_interactions returns"
                    )
        rows = np.array(read_positions("interactions", features, names, "feature"), np.int32)
        sets: dict[tuple[int, ...], list[int]] = {}
        for members, positions in zip(self.listed, rows.reshape(-1, self.kind.order).tolist()):
            key = tuple(sorted(positions))
            if len(set(key)) < len(key):
                raise ValueError(f"a {self.noun} in interactions has a feature twice: {members!r}")
            if key in sets:
                raise ValueError(f"interactions holds a {self.noun} twice: {members!r}")
            sets[key] = positions
        return np.array(list(sets.values()), np.int32).reshape(-1, self.kind.order)


#: The request of ``TreeExplainer.shap_interaction_values``.
MATRICES = Request(Kind(2, "SII"), "matrices")


@dataclass(frozen=True)
class Interactions:
    """Interactions of all rows, as ``InteractionExplanation`` describes them."""

    values: Any  # whole indices
    sets: np.ndarray  # int32, (n_sets, order)
    strength: np.ndarray | None = None  # float64, (n_sets,)
    single_values: Any = None


def compute_interactions(run: Run, request: Request, positions: np.ndarray | None) -> Interactions:
    """Compute the requested interactions; ``positions`` holds the feature positions of the listed sets.

    Raise ``MemoryError`` if the result does not fit into memory; the message says what to request instead.
    """
    if request.form == "occurring":
        return _occurring(run, request)
    if positions is None:
        return _strongest(run, request)
    return _listed(run, request, positions)


def interaction_matrices(run: Run, out: Any = None) -> Any:
    """Compute SHAP interaction values, [row][output][feature][feature], in ``out`` if it is not None.

    Raise ``MemoryError`` if the result does not fit into memory; the message says what to request instead.
    """
    n_features, row = run.n_features, row_bytes(run, MATRICES, 0, 0)
    run.is_given = out is not None
    size = run.chunk_rows(row)
    matrices = out if run.is_given else _allocate(run, row, run.n_outputs, n_features, n_features)
    for start in range(0, run.n_rows, size):
        chunk = chunk_of(matrices, start, size)
        run.fill(start, run.empty(len(chunk), run.n_outputs, n_features), matrices=chunk)
    return matrices if run.is_given else run.to_native(matrices)


def _occurring(run: Run, request: Request) -> Interactions:
    sets = run.plans.sets(request.result)
    row = row_bytes(run, request, len(sets), len(sets))
    size = run.chunk_rows(row)
    values = _allocate(run, row, run.n_outputs, len(sets))
    single_values = _allocate(run, row, run.n_outputs, run.n_features)
    total = np.zeros(len(sets))
    for start in range(0, run.n_rows, size):
        out = chunk_of(values, start, size)
        run.fill(start, chunk_of(single_values, start, size), **{request.result: out})
        total += scale_and_sum(out, request.factor, run.memory_threads)
    return Interactions(run.to_native(values), sets, _mean(total, run), run.to_native(single_values))


def _strongest(run: Run, request: Request) -> Interactions:
    """Compute all sets, in two passes if there are several batches, and keep only the strongest."""
    sets = run.plans.sets(request.result)
    count = min(request.count, len(sets))
    row = row_bytes(run, request, len(sets), count)
    size, read = _chunk_reader(run, request, row, len(sets))
    run.passes = 2 if size < run.n_rows else 1
    total = np.zeros(len(sets))
    for start in range(0, run.n_rows, size):
        batch = read(start)
        total += scale_and_sum(batch, 1, run.memory_threads)
    columns = np.argsort(-total, kind="stable")[:count]
    values = _allocate(run, row, run.n_outputs, count)
    for start in range(0, run.n_rows, size):
        if run.passes == 2:  # otherwise, the buffer still holds all rows
            batch = read(start)
        chosen = batch[:, :, columns.tolist()]
        chosen *= request.factor
        run.spread(chosen, values[start : start + size])
    total *= request.factor * (run.n_outputs // run.n_computed_outputs)
    return Interactions(run.to_native(values), sets[columns], _mean(total[columns], run))


def _listed(run: Run, request: Request, positions: np.ndarray) -> Interactions:
    sets = run.plans.sets(request.result)
    row = row_bytes(run, request, len(sets), len(positions))
    size, read = _chunk_reader(run, request, row, len(sets))
    column_of = dict(zip(map(tuple, sets.tolist()), range(len(sets))))
    columns = [column_of.get(tuple(sorted(members))) for members in positions.tolist()]
    present = [i for i, column in enumerate(columns) if column is not None]
    columns = [column for column in columns if column is not None]
    values = _allocate(run, row, run.n_outputs, len(positions))
    for start in range(0, run.n_rows, size):
        batch = read(start)
        chosen = run.empty(len(batch), run.n_computed_outputs, len(positions))
        chosen[...] = 0
        chosen[:, :, present] = batch[:, :, columns]
        chosen *= request.factor
        run.spread(chosen, values[start : start + size])
    return Interactions(run.to_native(values), positions)


def _chunk_reader(run: Run, request: Request, row: RowBytes, n_sets: int) -> tuple[int, Callable[[int], Any]]:
    """Return the number of rows of a batch, and a function that reads a batch.

    The function takes the first row of a batch and computes all sets, in a buffer that its next call reuses.
    """
    size = run.chunk_rows(row)
    n_buffered = min(size, run.n_rows)
    singles = run.empty(n_buffered, run.n_computed_outputs, run.n_features)
    buffer = run.empty(n_buffered, run.n_computed_outputs, n_sets)

    def read(start: int) -> Any:
        n = min(n_buffered, run.n_rows - start)
        run.compute(start, singles[:n], **{request.result: buffer[:n]})
        return buffer[:n]

    return size, read


def row_bytes(run: Run, request: Request, n_sets: int, n_result_sets: int) -> RowBytes:
    """Return the memory of a row, given the number of occurring sets and the number of sets in the result."""
    n_features, item, name = run.n_features, run.dtype.itemsize, request.values_name
    outputs = counted(run.n_outputs, "output")
    if request.form == "matrices":
        matrix = n_features**2 * item
        work = run.n_outputs * n_features * item
        if run.n_outputs > run.n_computed_outputs:
            work += n_features * item + matrix
        what = f"{name} ({n_features} x {n_features} features, {outputs})"
        advice = "or ask for fewer pairs: explain_interactions(X), with a number or a list of pairs"
        return RowBytes(run.n_outputs * matrix, work, what, f"explain fewer rows, {advice}")
    what = f"{name} ({counted(n_result_sets, request.result[:-1])}, {outputs})"
    advice = f"explain fewer rows, or ask for fewer {request.result}: pairs as a number or a list"
    if request.form == "occurring":
        row = run.n_outputs * (n_sets + n_features) * item
        return RowBytes(row, 2 * row, what, advice)  # copies with the computed output; magnitudes on a GPU
    # The buffers, and either the magnitudes, or the chosen sets of a batch and a copy of these sets.
    work = run.n_computed_outputs * (n_features + n_sets + max(n_sets, 2 * n_result_sets)) * item
    return RowBytes(run.n_outputs * n_result_sets * item, work, what, advice)


def _allocate(run: Run, row: RowBytes, *shape: int) -> Any:
    """Return a new array with an element of this shape for each row."""
    try:
        return run.empty(run.n_rows, *shape)
    except MemoryError as error:
        n_bytes = run.n_rows * int(np.prod(shape, dtype=object)) * run.dtype.itemsize
        raise MemoryError(
            f"{run.n_rows} rows need {n_bytes:,} bytes for their {row.what}, more than there are; "
            f"{row.advice}"
        ) from error


def _mean(total: np.ndarray, run: Run) -> np.ndarray:
    return total / run.n_rows if run.n_rows else np.full(total.shape, np.nan)
