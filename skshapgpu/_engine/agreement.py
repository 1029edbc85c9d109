"""The comparison of an explainer with the model's own prediction, in its first call.

The additivity check compares values with margins that are computed from the same trees, columns and codes,
so it cannot see a model, a column or a category that the model's ``predict`` reads in another way.
This check can: the base value plus the values of up to 16 rows are compared with what the library itself
computes for these rows, in the form in which they were passed.

Two sums of the same numbers differ by rounding only. The allowed difference is that of the additivity check
plus the rounding of the library's sum, which is derived from the dtype of its result: each addition rounds a
partial sum s by at most u |s|, where u is 2^-24 for float32 and 2^-53 for float64, and the sum of these over
the trees bounds the error. Since partial sums take a walk through all trees, they are computed only if a
difference exceeds 8 sqrt(n) u |s|, which n independent rounding errors hardly ever reach (Higham & Mary,
2019, doi:10.1137/18M1226312).
"""

from __future__ import annotations

import os
import sys
import threading
import warnings
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import NotFittedError

from .._common.algorithms import SHAP_VALUES
from .._common.distinct import distinct_numbers
from .._rows.containers import rows_of_container
from .._rows.gpu_arrays import on_gpu, to_host
from .._rows.in_place import any_may_write, copied
from .._rows.inputs import HostRows
from .._rows.pipelines import Prepared, unwrap
from .._rows.predictions import through_wrappers
from .._rows.tables import package_of, row_labels, select, table
from ..adapters.ensemble import Ensemble
from ..adapters.schema import AdaptedModel
from ..errors import PredictionMismatchError, UnsupportedModelError
from . import additivity
from .cancellation import leaves
from .compiled_model import CompiledModel
from .links import Link

#: The most rows that are compared.
_MOST_ROWS = 16

#: Standard deviations of the sum of independent rounding errors that are taken for rounding without proof.
_DEVIATIONS = 8.0

#: Units in the last place by which a link, such as a logistic function, may be rounded by a library.
_LINK_UNITS = 16.0

MODEL, TREES = "model", "trees"

#: Not empty in a process that was forked after this module was imported.
_FORKS: list[int] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _FORKS.append(os.getpid()))


@dataclass
class Agreement:
    """State of the comparison: with what the explainer was compared, or how to compare it."""

    #: "model": the explainer was compared with the model's own prediction. "trees": it was compared only with
    #: the trees that were read; ``note`` says why. None: it was not compared, or not yet.
    against: str | None = None
    note: str | None = None
    _model: Any = field(default=None, repr=False)
    _predictions: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict, repr=False)
    _locks: dict[int, threading.Lock] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, model: Any, adapted: AdaptedModel, model_output: str, checks: bool) -> Agreement:
        """Return the state of a new explainer; ``checks`` says whether it is to be compared at all."""
        if not checks:
            return cls(None, "check_additivity=False")
        if not {model_output, "raw"} & adapted.predictions.keys():
            # The library would need more time to load a file than the check may take.
            if isinstance(model, (str, bytes, os.PathLike)):
                return cls(TREES, "a file is read without its library: pass the model that the library loads")
            return cls(TREES, f"the adapter of {adapted.family} names no function that predicts")
        return cls(_model=model, _predictions=adapted.predictions)

    @classmethod
    def restored(cls, result: Any) -> Agreement:
        """Return the state that has this :attr:`result`, as a file or a pickle keeps it.

        Raise ``ValueError`` if ``result`` is no result of a comparison.
        """
        against, note = (TREES, "the file does not say") if result is None else result
        if against not in (MODEL, TREES, None) or not (note is None or isinstance(note, str)):
            raise ValueError(f"it was compared with {against!r:.80}, which is unknown")
        return cls(against, note)

    @property
    def result(self) -> tuple[str | None, str | None]:
        """The attributes ``against`` and ``note`` of an explainer that no longer has its model."""
        if self.is_open:
            return TREES, "the explainer was saved, pickled or copied before its first call"
        return self.against, self.note

    @property
    def is_open(self) -> bool:
        """Whether the explainer has not been compared yet."""
        return self._model is not None

    def close(self, against: str, note: str | None = None) -> None:
        """Remember the result, and release the model."""
        self.against, self.note = against, note
        self._model, self._predictions = None, {}

    def compare(
        self, comparison: Callable[[Any, Mapping[str, Callable[[Any], Any]]], tuple[str, str | None]]
    ) -> None:
        """Call ``comparison`` once with the model and its predictions, and remember the result.

        If ``comparison`` raises an exception, the next call compares again.
        """
        if _FORKS:  # threads of the library did not survive the fork
            self.close(TREES, "its first call was in a child process, without the threads of the library")
            return
        with self._locks.setdefault(os.getpid(), threading.Lock()):
            if self.is_open:
                self.close(*comparison(self._model, self._predictions))


@dataclass(frozen=True)
class Sums:
    """Sums of the base value and the values of some rows that a call has explained."""

    positions: np.ndarray  # positions of the rows in X
    total: np.ndarray  # float64, (n_rows, n_outputs): base value plus values
    #: Function that returns the rows as the trees test them: (n_rows, n_columns).
    read: Callable[[], np.ndarray]
    dtype: np.dtype  # type of the values
    labels: np.ndarray | None  # labels, as the link takes them

    @cached_property
    def block(self) -> np.ndarray:
        """The rows as the trees test them; read only if they are needed."""
        return self.read()


@dataclass(frozen=True)
class Explained:
    """The model as the explainer reads it."""

    adapted: AdaptedModel
    compiled: CompiledModel
    predictions: Mapping[str, Callable[[Any], Any]]

    @property
    def link(self) -> Link | None:
        return self.compiled.link

    def predict(self, model: Any, X: Any, labels: np.ndarray | None) -> np.ndarray:
        """Return the library's own result for what is explained: (n_rows, n_outputs)."""
        has_prediction = self.compiled.options.model_output in self.predictions
        with quiet():
            result = through_wrappers(
                model, self.predictions[self.compiled.options.model_output if has_prediction else "raw"]
            )(X)
        result = np.asarray(result if package_of(result) else to_host(result))
        if result.dtype.kind not in "fiub":
            result = result.astype(np.float64)
        result = result.reshape(len(result), -1)
        if not has_prediction and self.link is not None:
            result = self.link.of(result.astype(np.float64), labels).astype(result.dtype)
        if self.compiled.widen and result.shape[1] == 1:
            has_margins = self.link is None and self.adapted.binary == "margin"
            result = np.hstack([-result if has_margins else 1 - result, result])
        return result

    def allowed(self, sums: Sums, expected: np.ndarray, library_rounding: Any) -> np.ndarray:
        """Return the largest difference that rounding explains, given the rounding of the library."""
        compiled, unit = self.compiled, _unit(expected)
        reach = None
        if compiled.has_linear_leaves:
            reach = np.empty((len(sums.block), compiled.n_computed_outputs))
            margin = np.empty_like(reach)
            values = np.empty((*reach.shape, compiled.n_features))
            compiled.of(SHAP_VALUES).plan().explain(sums.block, values, margin, 1, reach=reach)
        if self.link is None:
            return additivity.allowed_gap(
                compiled, sums.dtype, margin=expected, reach=reach, extra=library_rounding
            )
        margin = np.zeros_like(expected, np.float64)
        if self.link.sum is not None:
            margin = self.adapted.ensemble.margin(sums.block)
        if self.link.name == "exp":  # the only link whose slope has no bound
            with np.errstate(divide="ignore"):
                margin = np.log(expected.astype(np.float64)) / self.link.scale
        gap = additivity.allowed_gap(compiled, sums.dtype, sums.labels, margin, extra=library_rounding)
        # Libraries round numbers below the normal range to few digits, or flush them to zero.
        least = float(np.finfo(expected.dtype if expected.dtype.kind == "f" else np.float64).tiny)
        return gap + _LINK_UNITS * (unit * np.abs(expected) + least)


def few_rows(n_rows: int) -> np.ndarray:
    """Return the positions of the rows to compare, spread over all rows."""
    return distinct_numbers(np.linspace(0, n_rows - 1, min(_MOST_ROWS, n_rows)).astype(np.intp))


def rows_of(X: Any, positions: np.ndarray) -> Any:
    """Return some rows of X, in the form in which it was passed; rows on a GPU are copied to the host."""
    if isinstance(X, Prepared):
        return Prepared(rows_of(X.original, positions), rows_of(X.transformed, positions))
    container = rows_of_container(X)
    X = X if container is None else container.data
    if package_of(X) == "pyarrow":  # "take" cannot unify the dictionaries of chunks that hold nulls
        X = table(X)
        return sys.modules["pyarrow"].concat_tables(X.slice(row, 1) for row in positions.tolist())
    rows = select(X, positions)
    if package_of(rows) == "cudf":
        return rows.to_pandas()
    return to_host(rows) if on_gpu(rows) else rows


def compare(
    explained: Explained,
    model: Any,
    X: Any,
    sums: Sums,
    read: Callable[[Any], HostRows],
    read_again: Callable[[Any], tuple[AdaptedModel, np.ndarray]],
) -> tuple[str, str | None]:
    """Compare sums with the prediction of ``model``, the user's own model with its wrappers.

    X are the rows of ``sums``, as the user passed them. ``read`` reads X as the explainer does.
    ``read_again`` reads the model and X anew: the adapted model, and the rows as its trees test them. Return
    ``Agreement.against`` and ``Agreement.note``. Raise ``PredictionMismatchError`` if the sums differ from
    the prediction by more than rounding.
    """
    original = X.original if isinstance(X, Prepared) else X
    # XGBoost takes bytes in another order as they are.
    if isinstance(original, np.ndarray) and not original.dtype.isnative:
        original = original.astype(original.dtype.newbyteorder("="))
    try:
        rows = copied(original) if any_may_write(unwrap(model)[0]) else original
        expected = explained.predict(model, rows, sums.labels)
    except MemoryError:
        raise
    except Exception as error:  # X may have a form that the explainer takes and the library does not
        return TREES, f"the library's own prediction failed: {type(error).__name__}: {error}"
    if expected.shape != sums.total.shape:
        note = _other_reason(explained, original, sums, read, read_again)
        if note is not None:
            return TREES, note
        raise PredictionMismatchError(
            f"the model's own prediction has the shape {expected.shape} for {len(sums.total)} rows, but the "
            f"explanation has {sums.total.shape[1]} outputs. {_report(explained)}"
        )
    gap, is_finite = np.abs(sums.total - expected), np.isfinite(expected)
    if not is_finite.any():
        return TREES, "the library's own prediction is not finite"
    gap[~is_finite] = 0  # such as the logarithm of a mean that underflows
    unit, compiled = _unit(expected), explained.compiled
    if explained.link is None:
        scale = np.abs(compiled.constant).max() + np.abs(expected)
    else:
        scale = np.abs(compiled.constant).max() + compiled.leaf_magnitude.max()
    n_additions = compiled.ensemble.n_trees + 4
    allowed = explained.allowed(sums, expected, _DEVIATIONS * np.sqrt(n_additions) * unit * scale)
    if (gap <= allowed).all():
        return MODEL, None
    allowed = explained.allowed(
        sums, expected, unit * _partial_sums(explained.adapted, sums.block, gap.shape[1])
    )
    if (gap <= allowed).all():
        return MODEL, None
    note = _other_reason(explained, original, sums, read, read_again)
    if note is not None:
        return TREES, note
    row, output = np.unravel_index(np.argmax(gap - allowed), gap.shape)
    index = row_labels(original)
    label = "" if index is None else f" (index {index[row]!r})"
    names = compiled.output_names
    name = f", output {names[output]!r}" if names is not None and len(names) > 1 else ""
    raise PredictionMismatchError(
        f"the explanation of row {sums.positions[row]}{label}{name} differs from the model's own prediction: "
        f"base value plus SHAP values is {sums.total[row, output]:.9g}, but the model itself predicts "
        f"{expected[row, output]:.9g}; they differ by {gap[row, output]:.3g}, but rounding explains "
        f"{np.broadcast_to(allowed, gap.shape)[row, output]:.3g} at most. "
        f"{_report(explained, sums.block[row])}"
    )


def _other_reason(
    explained: Explained,
    X: Any,
    sums: Sums,
    read: Callable[[Any], HostRows],
    read_again: Callable[[Any], tuple[AdaptedModel, np.ndarray]],
) -> str | None:
    """Return the reason why a prediction may differ without an error of the explainer, or None.

    The reasons are that the numbers of a row depend on other rows, or that the model has changed.
    """
    read_alone = read(X).chunk(0, len(sums.block))
    if not np.array_equal(read_alone, sums.block, equal_nan=True):
        return "a row alone becomes other numbers than among all rows: by the steps, or the container of X"
    changed = "the model was changed after the explainer was made, which explains it as it was then"
    try:
        adapted, block = read_again(X)
    except (ValueError, TypeError, UnsupportedModelError, NotFittedError):  # such as a column that is new
        return changed
    before, after = explained.adapted.ensemble.margin(sums.block), adapted.ensemble.margin(block)
    return None if np.array_equal(before, after, equal_nan=True) else changed


def _partial_sums(adapted: AdaptedModel, block: np.ndarray, n_outputs: int) -> np.ndarray:
    """Return the sum over the trees of the magnitudes of partial sums: (n_rows, n_outputs)."""
    ensemble, start = adapted.ensemble, adapted.constant_magnitude
    if start is None:
        start = np.abs(ensemble.intercept)
    X = block.astype(ensemble.x_dtype).astype(np.float64)
    if ensemble.has_linear_leaves:
        sums = _partial_sums_of_terms(ensemble, X, start.max())
        return np.broadcast_to(sums[:, np.newaxis], (len(block), n_outputs))
    total = np.zeros((len(block), ensemble.n_outputs))
    before = np.zeros_like(total)
    for trees, leaf in leaves(ensemble, X, ensemble.feature):
        for output in range(ensemble.n_outputs):
            if ensemble.value.shape[1] > 1:
                values = ensemble.value[leaf, output]
            else:
                values = ensemble.value[leaf[:, np.maximum(ensemble.tree_output[trees], 0) == output], 0]
            sums = before[:, output, None] + np.cumsum(values, axis=1)
            # A library may add the intercept first or last.
            total[:, output] += (np.abs(sums) + np.abs(values) + start[output]).sum(axis=1)
            before[:, output] += values.sum(axis=1)
    if total.shape[1] != n_outputs:  # outputs are sums of functions of the margins
        total = total.max(axis=1, keepdims=True)
    return np.broadcast_to(total, (len(block), n_outputs))


def _partial_sums_of_terms(ensemble: Ensemble, X: np.ndarray, start: float) -> np.ndarray:
    """Return a bound of the magnitudes of partial sums within linear leaves, by row.

    The terms of a leaf may cancel. The core and the library both add the terms to the constant of the leaf,
    and then add the leaf to the leaves of other trees.
    """
    terms = (np.abs(ensemble.linear_coefficient), ensemble.linear_feature, ensemble.linear_offsets)
    coefficients = sp.csr_matrix(terms, shape=(ensemble.n_nodes, ensemble.n_features))
    constants = np.abs(ensemble.linear_intercept) + np.abs(ensemble.value[:, 0])
    numbers, n_terms = np.abs(np.nan_to_num(X)), np.diff(ensemble.linear_offsets)
    total = np.full(len(X), 2 * ensemble.n_trees * start)
    for _, leaf in leaves(ensemble, X, ensemble.feature):
        for row, reached in enumerate(leaf):
            magnitudes = coefficients[reached] @ numbers[row] + constants[reached]
            total[row] += 2 * ((n_terms[reached] + 1 + ensemble.n_trees) * magnitudes).sum()
    return total


def _unit(predicted: np.ndarray) -> float:
    """Return the unit roundoff of a library's result."""
    return float(np.finfo(predicted.dtype).eps) / 2 if predicted.dtype.kind == "f" else 2.0**-53


def _report(explained: Explained, row: np.ndarray | None = None) -> str:
    """Return the end of an error message: what the explainer read, and what the user can do."""
    adapted = explained.adapted
    ensemble = adapted.ensemble
    parts = [
        f"a {adapted.family} model of {ensemble.n_trees} trees, {ensemble.n_leaves} leaves and "
        f"{ensemble.n_outputs} outputs, intercept {np.array2string(ensemble.intercept[:4], precision=9)}"
    ]
    if row is not None:
        names = adapted.schema.feature_names or [f"x{i}" for i in range(len(row))]
        columns = distinct_numbers(ensemble.feature[ensemble.left >= 0])[:8]
        numbers = (f"{names[c] if c < len(names) else c}={row[c]:.9g}" for c in columns.tolist())
        parts.append(f"the row as {', '.join(numbers)}{', ...' if len(columns) == 8 else ''}")
    return (
        f"Read were: {'; '.join(parts)}. Please report this as an error in skshapgpu, with the versions that "
        "skshapgpu.show_versions() prints. check_additivity=False returns the values all the same"
    )


@contextmanager
def quiet() -> Any:
    """Ignore warnings: the explainer, or the user's own call of ``predict``, gives the same warnings.

    Only the main thread ignores them, because the filters of warnings belong to the whole process.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
