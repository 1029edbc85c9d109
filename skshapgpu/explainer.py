"""From a fitted model to SHAP values: adapt it, compile it once, explain many rows.

A model goes through :func:`unwrap` (pipelines, searches, frozen estimators), ``adapters.adapt``
and ``_core.Plan``; X goes through the leading steps of the pipeline, ``inputs.read`` and, in
chunks of rows, ``Plan.explain``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from threading import Lock
from time import perf_counter
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline

from . import devices
from .adapters import adapt
from .devices import Devices
from .ensemble import Ensemble
from .errors import UnsupportedModelError
from .explanation import Explanation
from .inputs import FLOAT32_OVERFLOW, Rows, read, row_labels

#: Buffers of one chunk without a memory limit: larger ones would not make anything faster.
_CHUNK_BYTES = 256 * 2**20

_UNITS = {
    "": 1,
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "t": 10**12,
    "ki": 2**10,
    "mi": 2**20,
    "gi": 2**30,
    "ti": 2**40,
}

#: Largest additivity gap of values computed (or, as float32, stored) in each precision, relative to the
#: sum over the trees of their largest leaf. The gap adds up the rounding at a tree's nodes, of which each
#: is a few units in the last place of that leaf: 2^-18 is 32 units of float32, of which 1 to 3 are seen
#: in practice. A wrong path shows as a good part of one leaf, far above it.
_RELATIVE_GAP = {"single": 2.0**-18, "double": 2.0**-40}


def explain(model: Any, X: Any, **options: Any) -> Explanation:
    """Exact SHAP values of a tree model, in one call.

    Parameters
    ----------
    model : fitted model
        As for :class:`TreeExplainer`.
    X : array-like, sparse matrix or data frame of shape (n_rows, n_features)
        What ``model.predict`` takes.
    **options
        Options of :class:`TreeExplainer`.

    Returns
    -------
    Explanation

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.ensemble import RandomForestRegressor
    >>> from skshapgpu import explain
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = RandomForestRegressor(10, random_state=0).fit(X, y)
    >>> explain(model, X).shape
    (442, 10)
    """
    return TreeExplainer(model, **options).explain(X)


class TreeExplainer:
    """Exact path-dependent SHAP values of a tree model, compiled once for many calls.

    Immutable, safe to use from several threads, and picklable without the model's library.

    One output (regression, ranking, or the positive class of a binary classifier) gives values
    of shape (n_rows, n_features) and a scalar base value; k > 1 outputs give (n_rows,
    n_features, k) and (k,). Values are float32 for float32 X, else float64. They are in the
    space in which the trees add up (log-odds of a boosted classifier, the probability of a
    forest): the base value plus the values of a row is its margin.

    Parameters
    ----------
    model : fitted model
        Of scikit-learn, XGBoost, LightGBM or CatBoost, or of a registered adapter. Of a
        ``Pipeline`` the last step is explained, with the columns that it sees; the others
        transform X. A fitted search stands for its ``best_estimator_``, a ``FrozenEstimator``
        for what it holds.
    algorithm : {"auto", "quadrature", "gputreeshap"}, default="auto"
        "auto" is the exact quadrature. "gputreeshap" is the method of Mitchell, Frank and Holmes
        (arXiv:2010.13972), for comparison: on GPUs only, slower, at most 31 features on a path, its
        last digits change from run to run; with more than 16 features on a path it computes in
        double precision.
    device : {"auto", "cpu", "cuda", "cuda:N"} or list of "cuda:N", default="auto"
        Where to compute. "cuda" is the first GPU; with a list the rows are split. "auto" takes the
        first GPU when there is one and enough work for it, else the CPU; the environment variable
        ``SKSHAPGPU_DEVICE`` overrides it. X that lies on a GPU is explained there.
    precision : {"single", "double"}, default="single"
        Arithmetic inside a tree; trees are added up in float64 in both.
    outputs : {"auto", "all"}, default="auto"
        "all" gives a binary classifier an output for each of its two classes.
    n_jobs : int or None, default=None
        Threads, as joblib counts them: None is 1 unless a ``joblib.parallel_config`` says
        otherwise, -1 all processors.
    memory_limit : int, str or None, default=None
        Bytes that a call may allocate, result included: a number or a text such as "500MB" or
        "2GiB". X is worked off in chunks of rows to stay below it. None lets the result take
        what it needs, and buffers beside it about 256 MiB.
    check_additivity : bool, default=True
        Compare base value plus SHAP values with the margin of each row, found in the same pass.
        They may differ by 2^-18 (2^-40 in double precision with float64 X) of the sum over all
        trees of the largest magnitude of a leaf, intercept included.

    Raises
    ------
    UnsupportedModelError
        The model cannot be explained exactly.
    NotFittedError
        The model is not fitted.
    ValueError, TypeError
        An option has no such value.
    RuntimeError
        A GPU is asked for that cannot be had.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> from skshapgpu import TreeExplainer
    >>> X, y = load_iris(return_X_y=True)
    >>> explainer = TreeExplainer(RandomForestClassifier(10, random_state=0).fit(X, y))
    >>> explainer.shap_values(X).shape
    (150, 4, 3)
    >>> explainer.expected_value.shape
    (3,)
    """

    def __init__(
        self,
        model: Any,
        *,
        algorithm: str = "auto",
        device: str | Sequence[str] = "auto",
        precision: str = "single",
        outputs: str = "auto",
        n_jobs: int | None = None,
        memory_limit: int | str | None = None,
        check_additivity: bool = True,
    ) -> None:
        _require("algorithm", algorithm, ("auto", "quadrature", "gputreeshap"))
        _require("precision", precision, ("single", "double"))
        _require("outputs", outputs, ("auto", "all"))
        effective_n_jobs(n_jobs)  # refuses 0
        self._memory_limit = _parse_bytes(memory_limit)
        self._precision = precision
        self._n_jobs = n_jobs
        self._check_additivity = bool(check_additivity)
        self._algorithm = algorithm
        self._devices = Devices.parse(device)
        if algorithm == "gputreeshap":
            self._devices = self._devices.insist()
        self._steps, last = unwrap(model)
        self._adapted = adapt(last)
        self._widen = outputs == "all" and self._adapted.binary is not None
        self._compile()

    def _compile(self) -> None:
        from . import _core

        adapted, ensemble = self._adapted, self._adapted.ensemble
        self._plan = _core.Plan(self._ensemble_attributes(), self._precision)
        self._core_base = np.array(self._plan.base_value, np.float64)
        base = self._core_base
        if self._widen:
            total = 0.0 if adapted.binary == "margin" else 1.0
            base = np.array([total - base[0], base[0]])
        self._base = base
        self._n_outputs = len(base)
        self._output_names: tuple[Any, ...] | None = None
        if self._widen:
            self._output_names = adapted.class_names or (0, 1)
        elif self._n_outputs > 1:
            self._output_names = adapted.output_names or tuple(range(self._n_outputs))
        self._leaf_sum = _largest_leaves(ensemble)
        self._plan_info = self._plan.info()
        self._cuda_plans: dict[int, Any] = {}
        self._interaction_plan: Any = None
        self._lock = Lock()  # of what is compiled later

    def _ensemble_attributes(self) -> dict[str, Any]:
        ensemble = self._adapted.ensemble
        return {f.name: getattr(ensemble, f.name) for f in fields(ensemble)}

    @property
    def expected_value(self) -> float | np.ndarray:
        """Base value: float, or float64 array of shape (n_outputs,) if there are several."""
        return float(self._base[0]) if self._n_outputs == 1 else self._base.copy()

    @property
    def output_names(self) -> tuple[Any, ...] | None:
        """Class labels or target names of the outputs; None if there is one."""
        return self._output_names

    @property
    def family(self) -> str:
        """Library of the model, or the name of a registered family."""
        return self._adapted.family

    @property
    def steps(self) -> tuple[Any, ...]:
        """Transformers that X goes through first: the leading steps of a pipeline."""
        return tuple(self._steps)

    @property
    def n_features(self) -> int:
        """Columns that the model proper expects."""
        return self._adapted.schema.n_features

    @property
    def feature_names_in(self) -> tuple[str, ...] | None:
        """Names that X must have if it has any; None if unknown, or if X goes through a pipeline first."""
        return None if self._steps else self._adapted.schema.feature_names

    def plan_info(self) -> dict[str, Any]:
        """Counts of the compiled model: trees, leaves, bytes, quadrature nodes."""
        return dict(self._plan_info)

    def explain(self, X: Any) -> Explanation:
        """SHAP values with names, data, row labels and base values.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_rows, n_features)
            What the model's ``predict`` takes. A data frame must have the columns of the
            training data in the same order. An array on a GPU (of CuPy, PyTorch, or by
            ``__cuda_array_interface__`` or DLPack) is explained there, on its library's current
            stream, and the values are an array of that library.

        Returns
        -------
        Explanation

        Raises
        ------
        ValueError, TypeError
            X is nothing that the model takes; the message names the row and column.
        MemoryError
            The result alone exceeds ``memory_limit``, or a GPU has too little memory.
        RuntimeError
            Values of a row do not add up to its margin.
        """
        start = perf_counter()
        if devices.on_gpu(X):
            values, gap, device = self._gpu_values(X)
            data, names, index = X, None, None
        else:
            rows = self._read(X)
            values, gap, device = self._values(rows)
            data, names, index = rows.data, rows.names, rows.index
        return Explanation(
            values=self._shaped(values),
            base_values=self.expected_value,
            data=data,
            feature_names=names or self.names_seen(),
            output_names=self._output_names,
            index=index,
            precision=self._precision,
            device=device,
            seconds=perf_counter() - start,
            additivity_error=gap,
        )

    __call__ = explain

    def shap_values(self, X: Any) -> np.ndarray:
        """SHAP values alone.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_rows, n_features)
            As for :meth:`explain`, which also says what is raised.

        Returns
        -------
        array of float32 or float64, shape (n_rows, n_features[, n_outputs])
            Of NumPy, or of the library of X if X lies on a GPU.
        """
        values = self._gpu_values(X) if devices.on_gpu(X) else self._values(self._read(X))
        return self._shaped(values[0])

    def shap_interaction_values(self, X: Any) -> np.ndarray:
        """SHAP interaction values of all pairs of features, computed on the CPU.

        The matrix of a row and output is symmetric. Off the diagonal lies half of the Shapley interaction
        index of two features, on it the main effect of a feature: what its interactions leave of its SHAP
        value (Lundberg et al., 2020, doi:10.1038/s42256-019-0138-9). So each row of the matrix adds up to
        a SHAP value, and the whole matrix to the margin without the base value.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_rows, n_features)
            As for :meth:`explain`, but not on a GPU.

        Returns
        -------
        ndarray of float32 or float64, shape (n_rows, n_features, n_features[, n_outputs])

        Raises
        ------
        ValueError, TypeError
            X is nothing that the model takes, or a GPU was asked for.
        MemoryError
            The result exceeds ``memory_limit``.
        RuntimeError
            Values of a row do not add up to its margin.
        """
        if devices.on_gpu(X):
            raise TypeError(
                "interactions are computed on the CPU only, but X lies on a GPU: copy it to the host"
            )
        if self._devices.indices and not self._devices.auto:
            raise ValueError("interactions are computed on the CPU only: use device='cpu' or 'auto'")
        rows, n_threads = self._read(X), effective_n_jobs(self._n_jobs)
        plan = self._interactions()
        n_features = self.n_features
        size = self._interaction_rows(rows, n_threads)
        matrices = np.empty((rows.n_rows, self._n_outputs, n_features, n_features), rows.dtype)
        for start in range(0, rows.n_rows, size):
            out = matrices[start : start + size]
            block = rows.chunk(start, start + len(out))
            values = np.empty((len(out), len(self._core_base), n_features), rows.dtype)
            margin = np.empty(values.shape[:2]) if self._check_additivity else None
            found = np.empty((len(out), 1, *out.shape[2:]), rows.dtype) if self._widen else out
            plan.explain(block, values, margin, n_threads, found)
            if margin is not None:
                self._additivity_gap(values, margin, rows.index, start)
            if self._widen:
                np.negative(found[:, 0], out=out[:, 0])
                out[:, 1] = found[:, 0]
        return matrices[:, 0] if self._n_outputs == 1 else np.moveaxis(matrices, 1, -1)

    def _interactions(self) -> Any:
        """The plan for interactions, compiled at its first use."""
        from . import _core

        with self._lock:
            if self._interaction_plan is None:
                self._interaction_plan = _core.Plan(self._ensemble_attributes(), self._precision, 2)
            return self._interaction_plan

    def _interaction_rows(self, rows: Rows, n_threads: int) -> int:
        """How many rows of interactions to work off at once."""
        item, n_features, n_outputs = rows.dtype.itemsize, self.n_features, len(self._core_base)
        matrix = n_features**2 * item
        per_row = rows.row_bytes + n_outputs * (n_features * item + 40) + matrix * self._widen
        scratch = 0  # only a limit asks for it, and it is counted anew in each call
        if self._memory_limit is not None:
            scratch = self._interactions().info()["scratch_bytes_per_thread"]
        result = f"SHAP interaction values ({n_features} x {n_features} features, {self._n_outputs} outputs)"
        return self._rows_at_once(rows.n_rows, self._n_outputs * matrix, result, per_row, scratch, n_threads)

    def _shaped(self, values: Any) -> Any:
        """(n_rows, n_outputs, n_features) as users see it, without a copy."""
        return values[:, 0] if self._n_outputs == 1 else values.swapaxes(1, 2)

    def _read(self, X: Any) -> Rows:
        schema, x_dtype = self._adapted.schema, self._adapted.ensemble.x_dtype
        if not self._steps:
            return read(X, schema, x_dtype)
        transformed = X
        for step in self._steps:
            transformed = step.transform(transformed)
        rows = read(transformed, schema, x_dtype)
        labels = row_labels(X)
        if labels is not None and len(labels) == rows.n_rows:
            rows.index = labels
        return rows

    def names_seen(self, input_features: Any = None) -> tuple[str, ...]:
        """Names of the columns that the model proper sees, behind the leading steps of a pipeline.

        Parameters
        ----------
        input_features : sequence of str or None
            Names of the columns of X.
        """
        names = input_features
        if self._steps:
            named = all(hasattr(step, "get_feature_names_out") for step in self._steps)
            for step in self._steps if named else ():
                names = step.get_feature_names_out(names)
            names = names if named else None
        if names is None:
            names = self._adapted.schema.feature_names or (f"x{i}" for i in range(self.n_features))
        return tuple(map(str, names))

    def _values(self, rows: Rows) -> tuple[np.ndarray, float | None, str]:
        """Values as (n_rows, n_outputs, n_features), additivity error, and where they were computed."""
        n_threads = effective_n_jobs(self._n_jobs)
        indices = self._devices.choose(rows.n_rows, self._plan_info, n_threads)
        try:
            plans = [self._cuda_plan(index) for index in indices]
            return *self._values_on(rows, n_threads, plans), devices.label(indices)
        except (MemoryError, RuntimeError) as error:
            if not (self._devices.auto and devices.is_cuda_error(error)):
                raise
        return *self._values_on(rows, n_threads, []), "cpu"

    def _values_on(self, rows: Rows, n_threads: int, plans: list[Any]) -> tuple[np.ndarray, float | None]:
        n_rows = rows.n_rows
        shape = n_rows, self._n_outputs, self.n_features
        size = self._chunk_rows(rows, shape, 0 if plans else n_threads)
        values = np.empty(shape, rows.dtype)
        gap = 0.0
        for start in range(0, n_rows, size):
            gap = max(gap, self._explain_chunk(rows, start, values[start : start + size], n_threads, plans))
        return values, gap if self._check_additivity else None

    def _cuda_plan(self, index: int) -> Any:
        """The plan on a GPU, uploaded at its first use."""
        with self._lock:
            if index not in self._cuda_plans:
                self._cuda_plans[index] = devices.compile_on(self._plan, index, self._algorithm)
            return self._cuda_plans[index]

    def _chunk_rows(self, rows: Rows, shape: tuple[int, int, int], n_threads: int) -> int:
        """How many rows to work off at once; ``n_threads`` is 0 on GPUs, which keep margins to themselves."""
        n_rows, n_outputs, n_features = shape
        item = rows.dtype.itemsize
        per_row = rows.row_bytes + (n_features * item if self._widen else 0)
        if self._check_additivity and n_threads:  # margin, sum, gap and what compares them
            per_row += 40 * n_outputs
        result = f"SHAP values ({n_features} features, {n_outputs} outputs)"
        scratch = self._plan_info["scratch_bytes_per_thread"]
        return self._rows_at_once(n_rows, n_outputs * n_features * item, result, per_row, scratch, n_threads)

    def _rows_at_once(
        self, n_rows: int, result_row: int, result_name: str, per_row: int, scratch: int, n_threads: int
    ) -> int:
        """Rows of a chunk, of which each takes ``per_row`` bytes in work and ``result_row`` in the result."""
        if self._memory_limit is None:
            return max(1, _CHUNK_BYTES // max(per_row, 1))
        result, scratch = n_rows * result_row, n_threads * scratch
        left = self._memory_limit - result - scratch
        if n_rows and left < per_row:
            raise MemoryError(
                f"memory_limit is {self._memory_limit:,} bytes, but {n_rows} rows need {result:,} for their "
                f"{result_name}, {scratch:,} for {n_threads} threads and {per_row:,} for each row in work; "
                "raise memory_limit or explain fewer rows"
            )
        return max(1, left // max(per_row, 1))

    def _explain_chunk(
        self, rows: Rows, start: int, out: np.ndarray, n_threads: int, plans: list[Any]
    ) -> float:
        """Fill ``out`` with the values of the rows from ``start`` on; return their additivity gap."""
        block = rows.chunk(start, start + len(out))
        values = np.empty((len(out), 1, out.shape[2]), out.dtype) if self._widen else out
        if plans:
            gap = self._explain_on_gpus(plans, block, values, rows, start)
        else:
            margin = np.empty(values.shape[:2]) if self._check_additivity else None
            self._plan.explain(block, values, margin, n_threads)
            gap = 0.0 if margin is None else self._additivity_gap(values, margin, rows.index, start)
        if self._widen:
            np.negative(values[:, 0], out=out[:, 0])
            out[:, 1] = values[:, 0]
        return gap

    def _explain_on_gpus(
        self, plans: list[Any], block: np.ndarray, values: np.ndarray, rows: Rows, start: int
    ) -> float:
        """The same on GPUs, each with its part of the rows; they find the gaps themselves."""
        limit = 0 if self._memory_limit is None else max(1, (self._memory_limit - values.nbytes) // 2)
        gaps = np.zeros((len(plans), len(self._core_base)))
        bounds = np.linspace(0, len(block), len(plans) + 1).astype(int)

        def run(i: int) -> None:
            part = slice(bounds[i], bounds[i + 1])
            gap = gaps[i] if self._check_additivity else None
            plans[i].explain(block[part], values[part], None, gap, limit)

        if len(plans) == 1:
            run(0)
        else:
            with ThreadPoolExecutor(len(plans)) as pool:
                list(pool.map(run, range(len(plans))))
        if not (gaps <= self._allowed_gap(values.dtype)).all():
            margin = np.empty(values.shape[:2])
            plans[0].explain(block, np.empty_like(values), margin, None, limit)
            self._additivity_gap(values, margin, rows.index, start)
        return float(gaps.max())

    def _gpu_values(self, X: Any) -> tuple[Any, float | None, str]:
        """As :meth:`_values`, of an array on a GPU, without leaving it."""
        if self._steps:
            raise TypeError(
                "X lies on a GPU, but goes through the leading steps of a Pipeline first: copy it to the host"
            )
        schema, ensemble = self._adapted.schema, self._adapted.ensemble
        if schema.encoders:
            raise TypeError("X lies on a GPU, but has categorical columns to encode: copy it to the host")
        array = devices.take(X)
        if array.shape[1] != schema.n_features:
            raise ValueError(f"X has {array.shape[1]} features, but the model expects {schema.n_features}")
        asked = self._devices.indices
        if not self._devices.auto and array.index not in asked:
            raise ValueError(f"X lies on cuda:{array.index}, but device is {devices.label(asked)!r}")
        plan, missing = self._cuda_plan(array.index), schema.missing_value
        if not (schema.allow_nan and schema.allow_inf):
            limit = np.inf if ensemble.x_dtype == "float64" else FLOAT32_OVERFLOW
            limit = np.nan if schema.allow_inf else limit
            found = plan.find_refused(array.view, missing, schema.allow_nan, limit, array.stream)
            if found >= 0:
                row, feature = divmod(found, schema.n_features)
                raise ValueError(
                    f"Input X contains NaN, infinity or a value too large for {ensemble.x_dtype}, which the "
                    f"model does not accept: row {row}, column {self.names_seen()[feature]}"
                )
        n_outputs = len(self._core_base)
        values, address = array.empty((array.shape[0], n_outputs, array.shape[1]))
        single, limit = array.dtype == np.float32, self._memory_limit or 0
        gap = np.zeros(n_outputs) if self._check_additivity else None
        plan.explain_device(array.view, missing, address, single, gap, limit, array.stream)
        if gap is not None and not (gap <= self._allowed_gap(array.dtype)).all():
            margin = np.empty((array.shape[0], n_outputs))
            on_host = np.ascontiguousarray(devices.to_host(array.array))
            if missing == missing:
                on_host = np.where(on_host == missing, np.nan, on_host)
            plan.explain(on_host, np.empty(values.shape, array.dtype), margin, None, limit)
            self._additivity_gap(devices.to_host(values), margin, None, 0)
        if self._widen:
            positive = values
            values, _ = array.empty((array.shape[0], 2, array.shape[1]))
            values[:, 0] = -positive[:, 0]
            values[:, 1] = positive[:, 0]
        return array.give(values), None if gap is None else float(gap.max()), devices.label((array.index,))

    def _allowed_gap(self, dtype: Any) -> np.ndarray:
        """Largest additivity gap of each output, for values of this dtype."""
        return _RELATIVE_GAP["single" if dtype == np.float32 else self._precision] * self._leaf_sum

    def _additivity_gap(self, values: np.ndarray, margin: np.ndarray, index: Any, start: int) -> float:
        total = values.sum(axis=2, dtype=np.float64) + self._core_base
        gap = np.abs(total - margin)
        worst = float(gap.max())
        allowed = self._allowed_gap(values.dtype)
        if worst <= allowed.min() or (gap <= allowed).all():
            return worst
        row, output = np.argwhere(~(gap <= allowed))[0]
        label = "" if index is None else f" (index {index[start + row]!r})"
        name = "" if self._output_names is None or self._widen else f", output {self._output_names[output]!r}"
        raise RuntimeError(
            f"additivity check failed at row {start + row}{label}{name}: base value plus SHAP values is "
            f"{total[row, output]:.9g}, the margin is {margin[row, output]:.9g}; they may differ by "
            f"{allowed[output]:.3g}. The values were computed in {self._precision} precision and are "
            f"{values.dtype}. Likely cause: rounding in trees whose leaves differ hugely in magnitude, if "
            "precision='double' with float64 X helps; otherwise an error in skshapgpu, worth a report. "
            "check_additivity=False returns the values as they are"
        )

    def __getstate__(self) -> dict[str, Any]:
        compiled = ("_plan", "_cuda_plans", "_interaction_plan", "_lock")
        return {name: value for name, value in vars(self).items() if name not in compiled}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._compile()

    def __copy__(self) -> TreeExplainer:
        return self  # immutable

    def __deepcopy__(self, memo: dict[int, Any]) -> TreeExplainer:
        return self

    def __repr__(self) -> str:
        ensemble = self._adapted.ensemble
        return (
            f"<TreeExplainer of a {self.family} model: {ensemble.n_trees} trees, "
            f"{ensemble.n_leaves} leaves, {ensemble.n_features} features, "
            f"{self._n_outputs} output{'s' * (self._n_outputs > 1)}, {self._precision} precision>"
        )


def unwrap(model: Any) -> tuple[list[Any], Any]:
    """The steps that transform X, and the model proper, of any nest of pipelines and searches.

    Raises
    ------
    NotFittedError
        A search is not fitted.
    UnsupportedModelError
        A pipeline ends without a model, or a search kept none.
    """
    steps: list[Any] = []
    while True:
        if isinstance(model, Pipeline):
            steps += [step for _, step in model.steps[:-1] if not (step is None or isinstance(step, str))]
            model = model.steps[-1][1]
            if model is None or isinstance(model, str):
                raise UnsupportedModelError("cannot explain a Pipeline whose last step is no model")
        elif isinstance(model, FrozenEstimator):
            model = model.estimator
        elif hasattr(model, "best_estimator_"):
            model = model.best_estimator_
        elif any(base.__name__ == "BaseSearchCV" for base in type(model).__mro__):
            if hasattr(model, "cv_results_"):
                raise UnsupportedModelError(f"this {type(model).__name__} kept no model: use refit=True")
            raise NotFittedError(f"this {type(model).__name__} is not fitted yet: call fit first")
        else:
            return steps, model


def _require(option: str, value: Any, allowed: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"{option} must be one of {', '.join(map(repr, allowed))}, not {value!r}")


def _parse_bytes(limit: int | str | None) -> int | None:
    """Bytes from a number or from text such as "500MB", "1.5 GiB"."""
    if limit is None:
        return None
    if isinstance(limit, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*([kmgt]i?|)b?\s*", limit, re.IGNORECASE)
        if match is None:
            raise ValueError(f"memory_limit must be bytes or a text such as '500MB' or '2GiB', not {limit!r}")
        limit = int(float(match[1]) * _UNITS[match[2].lower()])
    elif isinstance(limit, bool) or not isinstance(limit, (int, np.integer)):
        raise TypeError(f"memory_limit must be an int, a str or None, not {limit!r}")
    if limit <= 0:
        raise ValueError(f"memory_limit must be positive, not {limit!r}")
    return int(limit)


def _largest_leaves(ensemble: Ensemble) -> np.ndarray:
    """For each output, the magnitude of the intercept plus that of the largest leaf of each tree."""
    largest = np.abs(ensemble.intercept)
    if ensemble.n_trees:
        by_tree = np.maximum.reduceat(np.abs(ensemble.value), ensemble.tree_offsets[:-1])
        if ensemble.tree_output[0] < 0:
            largest = largest + by_tree.sum(axis=0)
        else:
            largest = largest + np.bincount(ensemble.tree_output, by_tree[:, 0], ensemble.n_outputs)
    return largest
