"""Partial dependence of a model's output on the axes of a grid, over the rows of X.

Along an axis, the prediction of a row changes only where trees split on the columns of the axis. So the core
takes each row once through the trees without these splits (``csrc/dependence/``), however many points the
grid has.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from joblib import effective_n_jobs

from .. import _core
from .._common import memory
from .._common.checks import require_n_jobs
from .._common.progress import ProgressTracker
from .._engine.additivity import require_resolved
from .._engine.cancellation import half_ranges
from .._engine.linear_leaves import require_constant_leaves
from .._engine.links import Link, link_of
from .._rows import gpu_arrays
from .._rows.background import normalized_weights
from .._rows.inputs import HostRows, Reader
from .._rows.origins import Origins
from .._rows.tables import collected
from ..adapters.ensemble import attributes_of
from ..adapters.schema import AdaptedModel
from ..explainer import model_of

#: Most bytes that compiled trees take for each node, beside its values of eight bytes. Of these, 20 are for
#: its coded test, which exists only while the trees are compiled. The core may reserve twice the size of a
#: vector, so that the trees take up to _RESERVED times the bytes that they report.
_NODE_BYTES, _RESERVED = 68, 2.2

#: Bytes that any call takes for objects of Python, and the fraction of the limit that is left for pages that
#: the allocator uses in part.
_CALL_BYTES, _UNUSED_FRACTION = 2**20, 16


class Axis(NamedTuple):
    """Axis of a grid: columns that change together."""

    columns: tuple[int, ...]  # columns that the trees test
    points: np.ndarray  # (n_points, n_columns): encoded rows, in which only these columns matter


@dataclass(frozen=True, eq=False)
class Computation:
    """A model and the rows over which its output is averaged."""

    adapted: AdaptedModel
    rows: HostRows
    reader: Reader
    #: Columns of X from which the steps of a pipeline made the columns that the model receives, and X as
    #: data.
    origins: Origins | None
    names: tuple[str, ...]  # names of the columns that the model receives
    #: float64, (n_rows,): weights of the rows, with sum 1. None if all rows have the same weight.
    weights: np.ndarray | None
    #: Function of the margin whose mean is computed. None if it is the mean of the margin itself.
    link: Link | None
    n_threads: int
    memory_limit: int | None

    @classmethod
    def read(
        cls,
        model: Any,
        X: Any,
        sample_weight: Any,
        model_output: str,
        n_jobs: int | None,
        memory_limit: int | str | None,
    ) -> Computation:
        """Read a fitted model and X, or raise an error as ``TreeExplainer`` does."""
        require_n_jobs(n_jobs)
        limit, n_threads = memory.parse_bytes(memory_limit), effective_n_jobs(n_jobs)
        if gpu_arrays.on_gpu(X):
            raise TypeError(
                "partial dependence is computed on the CPU, but X is on a GPU: copy it to the host"
            )
        steps, adapted = model_of(model)
        adapted = adapted.with_output(model_output, None)
        require_constant_leaves(
            adapted, "partial dependence", "use sklearn.inspection.partial_dependence(method='brute')"
        )
        adapted.schema.require_one_input(
            "partial dependence is not computed", "use sklearn.inspection.partial_dependence(method='brute')"
        )
        require_resolved(adapted.ensemble, half_ranges(adapted.ensemble))
        link = link_of(adapted, model_output, all_outputs=False, interventional=True)
        reader = Reader(steps, adapted)
        X = collected(X)
        rows = reader.read_on_host(X)
        weights = normalized_weights(sample_weight, rows, "X", "sample_weight")
        names = rows.names or reader.default_names
        row_weights = weights if sample_weight is not None else None
        return cls(adapted, rows, reader, reader.origins_of(X), names, row_weights, link, n_threads, limit)

    @cached_property
    def attributes(self) -> dict[str, Any]:
        """Attributes of the ensemble, for the core."""
        return attributes_of(self.adapted.ensemble)

    def columns_of(self, *features: int) -> tuple[int, ...]:
        """Return the columns of X that are ``features``, and the columns that are derived from them.

        Raise ``ValueError`` if a derived column depends on other columns of X, too.
        """
        derived, n_features = self.adapted.schema.derived, self.adapted.schema.n_features
        if derived is None:
            return features
        for feature in features:
            dependent = (sources for sources in derived.sources if feature in sources)
            others = {i for sources in dependent for i in sources} - set(features)
            if others:
                listed = ", ".join(repr(self.names[i]) for i in sorted(others, key=lambda i: self.names[i]))
                raise ValueError(
                    f"the model combines {self.names[feature]!r} with {listed} into one number (a CTR of "
                    "CatBoost), which depends on all of them: use "
                    "sklearn.inspection.partial_dependence(method='brute') for this feature"
                )
        derived_columns = (
            n_features + i for i, sources in enumerate(derived.sources) if not sources.isdisjoint(features)
        )
        return (*features, *derived_columns)

    def points_of_rows(self, rows: list[int]) -> np.ndarray:
        """Return rows of X, encoded."""
        return np.concatenate([self.rows.chunk(row, row + 1) for row in rows])

    def trees(self, axes: list[Axis]) -> Any:
        """Compile the trees for a grid; raise ``MemoryError`` if they may exceed the limit."""
        ensemble, limit = self.adapted.ensemble, self.memory_limit
        n_bytes = _CALL_BYTES + _NODE_BYTES * ensemble.n_nodes + ensemble.value.nbytes
        if limit is not None and n_bytes > limit:
            raise MemoryError(
                f"memory_limit is {limit:,} bytes: raise memory_limit above {n_bytes:,}, which any call "
                "needs for the trees of the model"
            )

        grid = [(list(axis.columns), axis.points) for axis in axes]
        return _core.DependentTrees(self.attributes, grid, self.n_threads)

    def average(
        self,
        trees: Any,
        n_points: int,
        progress: ProgressTracker | None = None,
        most_rows: int | None = None,
    ) -> np.ndarray:
        """Return the mean output over the rows at all points of a grid: (n_outputs, ...).

        Outputs are computed for at most ``most_rows`` rows at once. The system may not get their memory back,
        so that it counts when curves are computed later.
        """
        n_outputs = self.adapted.ensemble.n_outputs
        if self.link is not None:
            return self._average_of_link(trees, n_points, progress, most_rows)
        step = self.rows_at_once(trees, 0, 0, n_points * n_outputs, trees.info()["n_leaves"])
        weight_at = np.zeros(trees.info()["n_leaves"])
        for start, stop in self._batches(step, progress):
            # No name keeps the rows while the next ones are read.
            trees.add_weights(*self._chunk(start, stop), weight_at, self.n_threads)
        return trees.average(weight_at, float(self.rows.n_rows) if self.weights is None else 1.0)

    def _average_of_link(
        self, trees: Any, n_points: int, progress: ProgressTracker | None, most_rows: int | None
    ) -> np.ndarray:
        n_numbers = n_points * self.adapted.ensemble.n_outputs
        total, step = None, self._batch_size(trees, 0, n_numbers)
        step = step if most_rows is None else min(step, most_rows)
        # Batches that followed the progress would change the order of additions.
        for start, stop in self._batches(step, progress, follow=False):
            weights = (
                np.full(stop - start, 1 / self.rows.n_rows)
                if self.weights is None
                else self.weights[start:stop]
            )
            batch_sum = np.einsum("r,or...->o...", weights, self._outputs(trees, start, stop))
            total = batch_sum if total is None else total + batch_sum
        assert total is not None
        return total

    def individual(self, trees: Any, n_points: int, progress: ProgressTracker | None = None) -> np.ndarray:
        """Return the output of each row at all points of a grid: (n_outputs, n_rows, ...)."""
        n_rows, curves = self.rows.n_rows, None
        for start, stop in self._batches(self.curves_at_once(trees, n_points), progress):
            batch = self._outputs(trees, start, stop)
            if stop - start == n_rows:
                curves = batch
                continue
            if curves is None:
                curves = np.empty((len(batch), n_rows, *batch.shape[2:]))
            curves[:, start:stop] = batch
            del batch  # while the next one is computed
        assert curves is not None
        return curves

    def curves_at_once(self, trees: Any, n_points: int) -> int:
        """Return the number of rows whose curves are computed at once; raise ``MemoryError`` if none fits."""
        n_numbers = n_points * self.adapted.ensemble.n_outputs
        return self._batch_size(trees, 8 * n_numbers, n_numbers)

    def _batch_size(self, trees: Any, result_row: int, n_numbers: int) -> int:
        """Return the number of rows whose outputs, ``n_numbers`` for each row, are computed at once."""
        n_arrays = 1 if self.link is None else 4  # a link needs temporary arrays
        return self.rows_at_once(trees, result_row, n_arrays * 8 * n_numbers, n_numbers)

    def _outputs(self, trees: Any, start: int, stop: int) -> np.ndarray:
        """Return the outputs of a batch of rows at all points of a grid: (n_outputs, n_rows, ...)."""
        X, _ = self._chunk(start, stop)
        out = trees.individual(X, self.n_threads)
        return out if self.link is None else self.link.of(out, outputs=0)

    def mean(self) -> np.ndarray:
        """Return the mean output over the rows: (n_outputs,)."""
        return self.average(self.trees([]), 1)

    def _chunk(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray | None]:
        X = self.rows.chunk(start, stop, packed=True, n_threads=self.n_threads)
        return X, None if self.weights is None else self.weights[start:stop]

    def _batches(
        self, step: int, progress: ProgressTracker | None, *, follow: bool = True
    ) -> Iterator[tuple[int, int]]:
        """Yield the first row of each batch, and the row after its last one.

        A batch has at most ``step`` rows. With ``follow``, batches are as small as the progress needs.
        """
        start, n_rows = 0, self.rows.n_rows
        while start < n_rows:
            at_once = min(step, progress.step) if progress is not None and follow else step
            stop = min(n_rows, start + at_once)
            yield start, stop
            start = stop
            if progress is not None:
                progress.done(stop)

    def rows_at_once(
        self, trees: Any, result_row: int, work_row: int, n_numbers: int, n_weights: int = 0
    ) -> int:
        """Return the number of rows to process at once.

        ``result_row`` and ``work_row`` are bytes for each row, ``n_numbers`` is the number of points of the
        grid times the number of outputs, and ``n_weights`` is the number of leaves whose weights are added
        up. Raise ``MemoryError`` if the result does not fit.
        """
        info = trees.info()
        fixed = _CALL_BYTES + (self.memory_limit or 0) // _UNUSED_FRACTION + 8 * (2 * n_numbers + n_weights)
        fixed += self.n_threads * info["scratch_bytes_per_thread"]
        work_row += self.rows.packed_row_bytes + info["code_bytes_per_row"]
        advice = "or use fewer rows of X or a smaller grid"
        need = memory.Need(
            self.rows.n_rows,
            result_row,
            work_row,
            int(_RESERVED * info["bytes"]),
            fixed,
            "predictions",
            advice,
        )
        return need.rows_at_once(self.memory_limit, memory.machine_bytes())
