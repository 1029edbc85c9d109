"""The calls of an explainer: from X as the user passes it to explanations and arrays."""

from __future__ import annotations

from functools import partial
from time import perf_counter
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from .._common.algorithms import SHAP_VALUES, Kind
from .._common.checks import checks_options, require_bool, require_count, require_one_of
from .._common.indices import VALUE_INDICES
from .._common.progress import require_progress
from .._common.types import (
    InteractionIndex,
    Interactions,
    Order,
    Progress,
    Table,
    ValueIndex,
    Values,
    Vector,
)
from .._engine import agreement
from .._engine.agreement import Explained, Sums
from .._engine.base_margins import base_values_of_rows
from .._engine.call_plans import CallPlan, call_plan
from .._engine.execution import plan_on_cpu
from .._engine.features import (
    Features,
)
from .._engine.interactions import (
    MATRICES,
    Request,
    compute_interactions,
    interaction_matrices,
    require_order,
)
from .._engine.runs import HostRun, Run, execute, shap_values
from .._explanations.interactions import InteractionExplanation
from .._explanations.values import Explanation, from_fields
from .._rows import gpu_arrays
from .._rows.given_arrays import results_view
from .._rows.inputs import HostRows
from .._rows.rows import Rows
from .._rows.tables import collected
from .compiled_explainer import CompiledExplainer

_VALUE_KINDS = {index: Kind(1, index) for index in VALUE_INDICES}


class ExplainerCalls(CompiledExplainer):
    """An explainer without its constructor and its files."""

    def plan(
        self,
        n_rows: int,
        *,
        dtype: Literal["float64", "float32"] = "float64",
        interactions: Interactions | Literal["matrices"] | None = None,
        index: ValueIndex | InteractionIndex | None = None,
        order: Order = 2,
    ) -> CallPlan:
        """Plan a call for a number of rows from the host, and estimate its time and memory.

        Parameters
        ----------
        n_rows : int
            Number of rows.
        dtype : {"float64", "float32"}, default="float64"
            Type of the values: float32 for float32 X.
        interactions : None, {"occurring", "matrices"}, int or list, default=None
            None plans a call of :meth:`explain`, "matrices" one of :meth:`shap_interaction_values`; anything
            else one of :meth:`explain_interactions` with this argument.
        index : str or None, default=None
            Index of that call; None means "SV", or for interactions "SII".
        order : {2, 3}, default=2
            Order of the interactions.

        Returns
        -------
        CallPlan
            The device, how each group of trees is explained, bytes and seconds; ``print`` shows it. The call
            will do exactly this, because the choices of ``algorithm="auto"`` and ``device="auto"`` depend
            only on the model, the options and the number of rows. If the call would raise ``MemoryError``,
            ``refusal`` holds its message.

        Raises
        ------
        ValueError, TypeError
            An argument is invalid, or requests what the requested device does not compute.

        Examples
        --------
        >>> from sklearn.datasets import load_diabetes
        >>> from sklearn.ensemble import RandomForestRegressor
        >>> from skshapgpu import TreeExplainer
        >>> X, y = load_diabetes(return_X_y=True)
        >>> model = RandomForestRegressor(10, max_depth=4, random_state=0).fit(X, y)
        >>> explainer = TreeExplainer(model, device="cpu")
        >>> {group.algorithm for group in explainer.plan(10).tree_groups}
        {'quadrature'}
        >>> {group.algorithm for group in explainer.plan(1_000_000).tree_groups}
        {'tables'}
        >>> explainer.plan(1000, interactions="matrices").result_bytes
        800000
        """
        require_count("n_rows", n_rows, at_least=0)
        require_one_of("dtype", dtype, ("float64", "float32"))
        kind, request = self._requested(interactions, index, order)
        return call_plan(self._compiled, self._reader.count(int(n_rows), dtype), kind, request)

    def _requested(self, interactions: Any, index: str | None, order: int) -> tuple[Kind, Request | None]:
        """Return the kind of results and the requested interactions, or raise the error of such a call."""
        if interactions is None:
            kind = value_kind("SV" if index is None else index)
            require_order(order)
            self._require_values(kind.index)
            return kind, None
        index = "SII" if index is None else index
        if isinstance(interactions, str) and interactions == "matrices":
            if (index, order) != ("SII", 2):
                raise ValueError(
                    "interactions='matrices' plans shap_interaction_values(X), which has index='SII' and "
                    f"order=2, not index={index!r} and order={order!r}"
                )
            request = MATRICES
        else:
            request = Request.parse(interactions, index, order)
        self._compiled.require(request.kind, request.title, False)
        if request.form == "listed":
            request.positions(self._names_explained(), self._features_are_columns)
        return request.kind, request

    def occurring_interactions(self, order: Order = 2) -> npt.NDArray[np.int32]:
        """Return the pairs of features that occur together on a path; no other pairs interact.

        Parameters
        ----------
        order : {2, 3}, default=2
            3 returns triples instead.

        Returns
        -------
        ndarray of int32, shape (n_interactions, order)
            Positions among the features of the results, in ascending order.
        """
        request = Request.parse("occurring", "SII", order)
        return self._compiled.of(request.kind).sets(request.result)

    @checks_options
    def explain(
        self,
        X: Table,
        y: Vector | None = None,
        *,
        index: ValueIndex = "SV",
        base_margin: Table | Vector | None = None,
        progress: Progress = False,
    ) -> Explanation:
        """Compute SHAP values, with names, data, row labels and base values.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_rows, n_features)
            Rows to explain, in any form that the model's ``predict`` accepts. A data frame must have the
            columns of the training data in the same order. A ``DMatrix`` of XGBoost, a ``Dataset`` of
            LightGBM and a ``Pool`` of CatBoost are accepted if they hold all numbers; see docs/models.md.
            An array on a GPU (of CuPy or PyTorch, or with ``__cuda_array_interface__`` or DLPack) is
            explained there, on its library's current stream, and the values are an array of that library.
            A data frame of cuDF is read like one of pandas, and the values are an array of CuPy. Leading
            steps of a pipeline must leave X on the GPU.
        y : array-like of shape (n_rows,), default=None
            Label of each row, for ``model_output="log_loss"``: a class of the model, or a number for a
            regressor. A pandas series must have the index of X, in its order.
        index : {"SV", "BV", "OV"}, default="SV"
            "SV" computes SHAP values, that is, Shapley values. "BV" computes Banzhaf values, in which every
            coalition of the other features has the same weight (Hammer & Holzman, Approximations of
            pseudo-Boolean functions; applications to game theory, ZOR 36, 1992). They do not add up to the
            margin, so additivity is not checked. "OV" computes Owen values, for an explainer with
            ``feature_groups`` (Owen, Values of games with a priori unions, 1977,
            doi:10.1007/978-3-642-45494-3_7): one for each column, which add up to the Shapley value of its
            group.
        base_margin : array-like of shape (n_rows,) or (n_rows, n_outputs), default=None
            Margin from which the prediction of each row starts, such as the log of an exposure: the
            ``base_margin`` of XGBoost's ``predict``, or the ``init_score`` of a row for LightGBM, whose
            ``predict`` does not add it. Each row then has a base value of its own; the values are the same. A
            pandas object must have the index of X, in its order.
        progress : bool or callable, default=False
            True draws a progress bar with tqdm or rich. A function is called periodically with the number of
            finished rows and the total number of rows; an exception that it raises ends the call. Neither
            affects the values.

        Returns
        -------
        Explanation
            SHAP values, of shape (n_rows, n_features[, n_outputs]); float32 for float32 X, else float64.

        Raises
        ------
        ValueError, TypeError
            X has a type, shape or value that the model does not accept; for a value, the message names its
            row and column. Or labels are missing, too many or unknown, or ``index`` is invalid, or not
            available on the requested device or for the model output.
        MemoryError
            The result alone exceeds ``memory_limit`` or the memory of the machine, or a GPU has too little
            memory.
        RuntimeError
            The values of a row do not add up to its margin, or in the first call not to the model's own
            prediction (:class:`PredictionMismatchError`).
        """
        kind = value_kind(index)
        if progress is not False:
            require_progress(progress)
        return self._explain(X, y, kind, progress, base_margin)

    __call__ = explain

    def _explain(self, X: Any, y: Any, kind: Kind, progress: Any, base_margin: Any = None) -> Explanation:
        """Do the work of :meth:`explain`."""
        start = perf_counter()
        X = collected(X)
        rows = self._read(X, kind, kind.values_name)
        labels = self._read_labels(y, rows)
        base_values = None
        if base_margin is not None:
            base = np.zeros(0) if self._has_labels else self._base
            base_values = base_values_of_rows(
                self._adapted, self.model_output, base, base_margin, rows.n_rows, rows.row_labels
            )
        values, run = execute(self._compiled, rows, kind, shap_values, labels, progress)
        if self._agreement.is_open:
            self._compare_with_model(X, rows, labels, values if kind.adds_up else None)
        facts = self._facts(X, rows, run, self._features_of(kind.index))
        if labels is not None:
            facts["base_values"] = self._compiled.base_value(labels)[:, 0]
        elif base_values is not None:
            facts["base_values"] = base_values
        facts["values"], facts["index"] = _shaped(values), kind.index
        facts["model_output"], facts["seconds"] = self.model_output, perf_counter() - start
        return from_fields(facts)

    @checks_options
    def explain_interactions(
        self,
        X: Table,
        *,
        interactions: Interactions = "occurring",
        index: InteractionIndex = "SII",
        order: Order = 2,
        progress: Progress = False,
    ) -> InteractionExplanation:
        """Compute interactions of features, with names, data, row labels and base values.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_rows, n_features)
            As for :meth:`explain`.
        interactions : "occurring", int or list, default="occurring"
            Which interactions to return. The result has each pair (or triple) once, with its whole index.
            "occurring" returns all pairs that occur together on a path; the others are zero. A number n
            returns the n strongest pairs, by mean magnitude over the rows of X, summed over the outputs, the
            strongest first; the rows then pass through the trees twice. A list of pairs of names or positions
            returns these pairs, in the order of the list. A position is that of a column of X. If the
            features are not the columns of X, because of steps of a pipeline, ``columns="used"`` or
            ``feature_groups``, list names, or pass an array of positions of features, as
            :meth:`occurring_interactions` returns. For matrices, see :meth:`shap_interaction_values` and
            :meth:`InteractionExplanation.matrices`.
        index : {"SII", "STII", "BII"}, default="SII"
            "SII" is the Shapley interaction index (Grabisch & Roubens, 1999, doi:10.1007/s001820050125); its
            halves are the SHAP interaction values of Lundberg et al. (2020,
            doi:10.1038/s42256-019-0138-9). "STII" is the Shapley-Taylor interaction index (Sundararajan,
            Dhamdhere & Agarwal, 2020, arXiv:1902.05622). "BII" is the Banzhaf interaction index (Grabisch &
            Roubens, 1999), in which every coalition of the other features has the same weight; it does not
            add up to the margin, so additivity is not checked, and its main effects are Banzhaf values.
        order : {2, 3}, default=2
            3 computes interactions of triples: index "SII" or "BII", path-dependent.
        progress : bool or callable, default=False
            As for :meth:`explain`. For the strongest, a row counts as done after the second pass.

        Returns
        -------
        InteractionExplanation
            Interactions, of shape (n_rows, n_interactions[, n_outputs]); float32 for float32 X, else float64.

        Raises
        ------
        ValueError, TypeError
            X has a type, shape or value that the model does not accept; or an argument is invalid, names an
            unknown feature or a pair twice, or requests interactions that the requested device does not
            compute.
        MemoryError
            The result exceeds ``memory_limit`` or the memory of the machine; the message says what to
            request instead.
        RuntimeError
            The values of a row do not add up to its margin, or in the first call not to the model's own
            prediction (:class:`PredictionMismatchError`).
        """
        request = Request.parse(interactions, index, order)
        require_progress(progress)
        return self._explain_interactions(X, request, progress)

    def _explain_interactions(self, X: Any, request: Request, progress: Any) -> InteractionExplanation:
        """Do the work of :meth:`explain_interactions`."""
        start = perf_counter()
        X = collected(X)
        rows = self._read(X, request.kind, request.title)
        positions = None
        if request.form == "listed":
            names = self._features.names(rows.names or self._reader.default_names)
            positions = request.positions(names, self._features_are_columns)
        work = partial(compute_interactions, request=request, positions=positions)
        results, run = execute(self._compiled, rows, request.kind, work, progress=progress)
        self._compare_with_model(X, rows)
        single_values = results.single_values
        return InteractionExplanation(
            values=_shaped(results.values),
            index=request.kind.index,
            interactions=results.sets,
            strength=results.strength,
            single_values=None if single_values is None else _shaped(single_values),
            seconds=perf_counter() - start,
            **self._facts(X, rows, run, self._features),
        )

    @checks_options
    def shap_values(
        self, X: Table, y: Vector | None = None, *, out: Any = None, check_additivity: bool | None = None
    ) -> Values:
        """Compute SHAP values, and return the array alone.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_rows, n_features)
            As for :meth:`explain`, which also lists the errors.
        y : array-like of shape (n_rows,), default=None
            As for :meth:`explain`.
        out : array of float32 or float64, shape (n_rows, n_features[, n_outputs]), default=None
            Array to which the values are written without an intermediate copy; it is also returned. It must
            have the shape and the dtype of the values, must not share memory with X, and must be C-contiguous
            or, with several outputs, have the layout of the arrays that this method returns: make it by
            ``np.empty((n_rows, n_outputs, n_features), dtype).swapaxes(1, 2)``. For X on a GPU, it is an
            array of CuPy or PyTorch there. It does not count towards ``memory_limit``. If an error is raised
            after the work has begun, some of its rows may have been written, with values that may be wrong.
        check_additivity : bool, default=None
            Whether this call compares the sums of the values with the margins; None: as the explainer does.

        Returns
        -------
        array of float32 or float64, shape (n_rows, n_features[, n_outputs])
            SHAP values: an array of NumPy, or of the library of X if X is on a GPU; or ``out``.

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn.datasets import load_diabetes
        >>> from sklearn.ensemble import RandomForestRegressor
        >>> from skshapgpu import TreeExplainer
        >>> X, y = load_diabetes(return_X_y=True)
        >>> explainer = TreeExplainer(RandomForestRegressor(10, random_state=0).fit(X, y))
        >>> values = np.empty(X.shape)
        >>> explainer.shap_values(X, out=values) is values
        True
        """
        if check_additivity is not None:
            require_bool("check_additivity", check_additivity)
        X = collected(X)
        rows = self._read(X, SHAP_VALUES)
        labels = self._read_labels(y, rows)
        output = self._core_view(out, rows, 1, labels)
        compiled = self._compiled if check_additivity is None else self._compiled.checking(check_additivity)
        values, _ = execute(compiled, rows, SHAP_VALUES, partial(shap_values, out=output), labels)
        if compiled.checked_kinds:
            self._compare_with_model(X, rows, labels, values)
        return _shaped(values) if out is None else out

    @checks_options
    def shap_interaction_values(self, X: Table, *, out: Any = None) -> Values:
        """Compute SHAP interaction values of all pairs of features, and return the array alone.

        Each row and output has a symmetric matrix. Its elements off the diagonal are half of the Shapley
        interaction index of two features. A diagonal element is the main effect of a feature: its SHAP value
        minus the other elements in its row (Lundberg et al., 2020, doi:10.1038/s42256-019-0138-9). Each row
        of the matrix thus adds up to a SHAP value, and the whole matrix to the margin without the base value.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_rows, n_features)
            As for :meth:`explain_interactions`, which also lists the errors, and whose results need less
            memory.
        out : array of float32 or float64, shape (n_rows, n_features, n_features[, n_outputs]), default=None
            Array for the values, as for :meth:`shap_values`. With several outputs, make it by
            ``np.empty((n_rows, n_outputs, n_features, n_features), dtype).swapaxes(1, 3)``.

        Returns
        -------
        array of float32 or float64, shape (n_rows, n_features, n_features[, n_outputs])
            SHAP interaction values: an array of NumPy, or of the library of X if X is on a GPU; or ``out``.
        """
        X = collected(X)
        rows = self._read(X, MATRICES.kind, MATRICES.title)
        work = partial(interaction_matrices, out=self._core_view(out, rows, 2))
        matrices, _ = execute(self._compiled, rows, MATRICES.kind, work)
        self._compare_with_model(X, rows)
        return _shaped(matrices) if out is None else out

    def _compare_with_model(
        self, X: Any, rows: Rows, labels: np.ndarray | None = None, values: Any = None
    ) -> None:
        """Compare what is explained with the model's own prediction: once, in the first call.

        X is as the user passed it, and ``rows`` are X as it was read. ``values``, of shape (n_rows,
        n_outputs, n_features), are the values of the call, which add up to the prediction; if None, SHAP
        values are computed for the rows that are compared. Raise ``PredictionMismatchError`` if they differ
        by more than rounding.
        """
        if not (self._agreement.is_open and rows.n_rows):
            return
        positions = agreement.few_rows(rows.n_rows)
        few_labels = None if labels is None else labels[positions]

        def compare(model: Any, predictions: Any) -> tuple[str, str | None]:
            try:
                few = agreement.rows_of(X, positions)
            except MemoryError:
                raise
            except Exception as error:  # the library of X may raise errors of its own
                return agreement.TREES, f"some rows of X cannot be taken alone: {error}"
            return agreement.compare(
                Explained(self._adapted, self._compiled, predictions),
                model,
                few,
                self._sums(few, rows, positions, few_labels, values),
                self._reader.without_warnings().read_on_host,
                partial(self._read_again, model),
            )

        self._agreement.compare(compare)

    def _sums(
        self, few: Any, rows: Rows, positions: np.ndarray, labels: np.ndarray | None, values: Any
    ) -> Sums:
        """Return the sums of the base value and the values of ``few`` rows of X."""
        compiled = self._compiled
        if values is None:
            few_rows = self._reader.without_warnings().read_on_host(few)
            on_cpu = plan_on_cpu(compiled.of(SHAP_VALUES), few_rows.n_rows)
            run = HostRun(compiled.checking(False), SHAP_VALUES, few_rows, on_cpu, labels)
            run.compile()
            few_values = shap_values(run)
        else:
            few_values = np.stack([gpu_arrays.to_host(values[row]) for row in positions.tolist()])
        base = self._base if labels is None else compiled.base_value(labels)
        return Sums(
            positions=positions,
            total=few_values.sum(axis=2, dtype=np.float64) + base,
            read=lambda: np.vstack([_block(rows, row) for row in positions.tolist()]),
            dtype=few_values.dtype,
            labels=labels,
        )

    def _read(self, X: Any, kind: Kind, what: str = "") -> Rows:
        """Read X, after checking that results of this kind, called ``what``, can be computed where X is."""
        on_gpu = gpu_arrays.on_gpu(X)
        self._compiled.require(kind, what, on_gpu)
        if on_gpu:
            return self._reader.read_on_gpu(X, self._compiled.options.devices)
        return self._reader.read_on_host(X)

    def _core_view(self, out: Any, rows: Rows, order: int, labels: np.ndarray | None = None) -> Any:
        """Return the caller's array ``out`` in the layout of the core; None if ``out`` is None."""
        if out is None:
            return None
        compiled = self._compiled
        return results_view(out, rows, compiled.n_outputs, (compiled.n_features,) * order, labels)

    def _read_labels(self, y: Any, rows: Rows) -> np.ndarray | None:
        """Return the labels in the form that the link takes if the model output needs them, else None."""
        if not self._has_labels:
            if y is not None:
                hint = "pass background rows as data=" if np.ndim(y) > 1 else "leave it out"
                raise ValueError(f"y is for model_output='log_loss', not {self.model_output!r}: {hint}")
            return None
        assert self._compiled.link is not None
        return self._compiled.link.read_labels(y, rows.n_rows, rows.row_labels)

    def _facts(self, X: Any, rows: Rows, run: Run, features: Features) -> dict[str, Any]:
        """Return the attributes that explanations of all kinds have in addition to their values."""
        names = rows.names or self._reader.default_names
        origins = features.origins(self._reader.origins_of(X))
        return {
            "base_values": self.expected_value,
            "data": features.data(rows.data, names, origins, rows.n_rows),
            "feature_names": features.names(names),
            "feature_indices": None if features.columns is None else features.columns.copy(),
            "group_columns": features.group_columns,
            "output_names": self._output_names,
            "row_labels": rows.row_labels,
            "precision": self._compiled.options.precision,
            "device": run.device,
            "additivity_error": run.gap,
            "unit": self._unit,
            "feature_perturbation": self.feature_perturbation,
            "origins": origins,
            "checked_against": self._agreement.against,
            "check_note": self._agreement.note,
        }


def value_kind(index: Any) -> Kind:
    """Return the kind of values of single features; raise ``ValueError`` if the index is unknown."""
    require_one_of("index", index, VALUE_INDICES)
    return _VALUE_KINDS[index]


def _block(rows: Rows, row: int) -> np.ndarray:
    """Return a row as the trees test it, with NaN where a value is missing."""
    if isinstance(rows, HostRows):
        return rows.chunk(row, row + 1)
    assert isinstance(rows, gpu_arrays.GpuArray)
    on_host = gpu_arrays.to_host(rows.rows(row, row + 1).array)
    return np.where(on_host == rows.numbers.missing, np.nan, on_host)


def _shaped(values: Any) -> Any:
    """Return values [row][output]... in the public layout, outputs last or dropped, without a copy.

    As matrices of interactions are symmetric, swapping two axes has the same effect as moving one.
    """
    return values[:, 0] if values.shape[1] == 1 else values.swapaxes(1, values.ndim - 1)
