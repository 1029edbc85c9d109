"""The compared systems, each behind the same three functions, and the code that times them in turn.

All systems in this file run on one thread of the CPU unless their name says otherwise; gpu.py has the systems
that run on a GPU. ``python peers.py`` serves a :class:`Runner` to a parent process through pipes, so that a
system can run in another environment or with another interpreter. The serving process imports nothing but
NumPy and the peer.
"""

from __future__ import annotations

import math
import os
import pickle
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import numpy as np

#: FastTreeSHAP v2 builds tables of leaves x 2^depth entries in every call: 2^30 entries take minutes.
MAX_TABLE_ENTRIES = 2**30

#: Woodelf spends 0.3 to 0.7 ms per leaf in every call, for any number of rows.
MAX_WOODELF_LEAVES = 100_000

#: Highest protocol of NumPy 2's pickles that NumPy 1.26 can read.
PROTOCOL = 4


class NotApplicable(Exception):
    """Error: a system cannot compute exact path-dependent SHAP values of a model, or would take too long."""


@dataclass
class System:
    """One way to compute the SHAP values of a model."""

    #: Converts float32 rows to the argument of ``call``; not timed.
    prepare: Callable[[np.ndarray], Any]
    #: The call that is timed.
    call: Callable[[Any], Any]
    #: Maps the result of ``call`` and the number of rows to (n_rows, n_outputs, n_features).
    values: Callable[[Any, int], np.ndarray]
    note: str = ""


class Runner:
    """Timer of one system on the first rows of X."""

    def __init__(self, system: System, X: np.ndarray) -> None:
        self._system = system
        self._X = X
        self._prepared: dict[int, Any] = {}
        self.note = system.note

    def _input(self, n_rows: int) -> Any:
        if n_rows not in self._prepared:  # that of one row is kept: some calls are timed with one and many
            self._prepared = {n: rows for n, rows in self._prepared.items() if n == 1}
            self._prepared[n_rows] = self._system.prepare(self._X[:n_rows])
        return self._prepared[n_rows]

    def time(self, n_rows: int, n_calls: int = 1) -> tuple[float, float]:
        """Measure wall-clock and CPU seconds of one call, averaged over ``n_calls``."""
        rows, call = self._input(n_rows), self._system.call
        wall, cpu = perf_counter(), process_time()
        for _ in range(n_calls):
            call(rows)
        return (perf_counter() - wall) / n_calls, (process_time() - cpu) / n_calls

    def values(self, n_rows: int) -> np.ndarray:
        """Compute SHAP values as float64, shape (n_rows, n_outputs, n_features)."""
        raw = self._system.call(self._input(n_rows))
        return np.asarray(self._system.values(raw, n_rows), np.float64)

    def close(self) -> None:
        """Do nothing; see :class:`RemoteRunner`."""


def places_of_checkouts(other: Path | None) -> dict[str, tuple[dict[str, str], tuple[str, ...]]]:
    """Return the variables and the options of a Python that imports this checkout, and ``other`` if given."""
    own = list(filter(None, sys.path))
    places: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {}
    places["this"] = {"PYTHONPATH": os.pathsep.join(own)}, ()
    if other is not None:
        # Without "site", whose hooks would import an editable installation instead.
        places["other"] = {"PYTHONPATH": os.pathsep.join([str(other.resolve()), *own])}, ("-S",)
    return places


class RemoteRunner:
    """A :class:`Runner` in a process of its own, which waits on a pipe between calls."""

    def __init__(
        self,
        python: str,
        environment: dict[str, str],
        build: str,
        payload: Any,
        X: Any,
        options: tuple[str, ...] = (),
    ) -> None:
        self._process = subprocess.Popen(
            [python, *options, __file__],
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._requests, self._answers = self._process.stdin, self._process.stdout
        try:
            self.start(build, payload, X)
        except Exception:
            self.close()
            raise

    def start(self, build: str, payload: Any, X: Any) -> None:
        """Build a system in place of the present one."""
        self.note = self.ask("start", build, payload, X)

    def ask(self, *request: Any) -> Any:
        try:
            pickle.dump(request, self._requests, protocol=PROTOCOL)
            self._requests.flush()
            succeeded, answer = pickle.load(self._answers)
        except (EOFError, OSError):
            raise NotApplicable(f"its process ended with code {self._process.wait()}") from None
        if not succeeded:
            raise NotApplicable(answer)
        return answer

    def time(self, n_rows: int, n_calls: int = 1) -> tuple[float, float]:
        return self.ask("time", n_rows, n_calls)

    def values(self, n_rows: int) -> np.ndarray:
        return self.ask("values", n_rows)

    def close(self) -> None:
        self._requests.close()
        self._process.wait()


#: A process of this checkout and, if there is another, one of it, by name: "this" and "other".
Pair = dict[str, RemoteRunner]


class Checkouts:
    """Pairs of processes of this checkout and another, which systems are built in one after another.

    There are several pairs because times of processes of the same checkout differ by percents.
    """

    def __init__(
        self, build: str, other: Path | None, n_pairs: int, environment: dict[str, str] | None = None
    ) -> None:
        self._build, self._environment = build, environment or {}
        self._places = places_of_checkouts(other)
        self._pairs: list[Pair] = [{} for _ in range(n_pairs)]

    def start(self, payload: Any, X: Any) -> list[Pair]:
        """Build a system in all processes, in place of the one before."""
        for pair in self._pairs:
            for name, (environment, options) in self._places.items():
                if name in pair:
                    pair[name].start(self._build, payload, X)
                    continue
                pair[name] = RemoteRunner(
                    sys.executable, environment | self._environment, self._build, payload, X, options
                )
        return self._pairs

    def close(self) -> None:
        for pair in self._pairs:
            for runner in pair.values():
                runner.close()


def serve() -> None:
    """Answer the requests of a :class:`RemoteRunner` until it closes the pipe."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of the libraries must not get between the answers
    runner: Any = None
    while True:
        try:
            method, *arguments = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            if method == "start":
                build, payload, X = arguments
                runner = None  # frees the memory of the one before
                runner = make_runner(build, payload, X)
                answer = True, runner.note
            else:
                answer = True, getattr(runner, method)(*arguments)
        except Exception as error:
            answer = False, reason(error)
        pickle.dump(answer, answers, protocol=PROTOCOL)
        answers.flush()


def make_runner(build: str, payload: Any, X: Any) -> Any:
    if build == "calls":
        from timed_calls import Calls

        return Calls(payload, X)
    if build == "walk":
        from walk import Walk

        return Walk(payload, X)
    return Runner(BUILDERS[build](payload), X)


def reason(error: Exception) -> str:
    """Return one line that says why a system cannot be used."""
    if isinstance(error, NotApplicable):
        return str(error)
    return f"{type(error).__name__}: {error}".splitlines()[0][:200]


def relative_error(values: np.ndarray, expected: np.ndarray) -> float:
    """Return the largest difference over the largest magnitude."""
    if values.shape != expected.shape:
        raise NotApplicable(f"its result has shape {values.shape}, not {expected.shape}")
    scale = float(np.abs(expected).max())
    return float(np.abs(values - expected).max()) / (scale or 1.0)


def check(runner: Any, truth: np.ndarray, allowed: float, slowest: float, entry: dict[str, Any]) -> None:
    """Reject a system that takes too long for one row, or whose values are wrong."""
    entry["note"] = runner.note
    one_row = entry["one_row_seconds"] = runner.time(1)[0]
    if one_row > slowest:
        raise NotApplicable(f"not timed: one row takes {one_row:.0f} s")
    entry["error"] = relative_error(runner.values(len(truth)), truth)
    if not entry["error"] <= allowed:
        raise NotApplicable(f"not timed: error {entry['error']:.1e} beyond {allowed:g}")


def plan_calls(runner: Any, n_rows: int, seconds: float) -> dict[str, Any]:
    """Choose the rows of a timed call, and the number of calls timed at once.

    A call takes about ``--seconds``. If a system has a notable fixed cost per call (its time for one row),
    the call has enough rows to outweigh this cost, or all rows if the cost is high. With fewer than all rows,
    the time for all is extrapolated from the times for one row and for these rows.
    """
    one_row = runner.time(1)[0]
    if one_row > seconds / 2 and runner.time(min(8, n_rows))[0] < 2 * one_row:
        return {"call_rows": n_rows, "calls": 1, "one_row_seconds": one_row, "extrapolated": False}
    tried, taken = 1, one_row
    while tried < n_rows and taken - one_row < seconds / 5:
        tried = min(n_rows, tried * 8)
        taken = runner.time(tried)[0]
    per_row = max((taken - one_row) / (tried - 1) if tried > 1 else taken, 1e-9)
    wanted = min(n_rows, math.ceil(max(seconds, one_row) / per_row))
    expected = one_row + per_row * (wanted - 1)
    return {
        "call_rows": wanted,
        "calls": max(1, math.ceil(seconds / 5 / expected)),
        "one_row_seconds": one_row,
        "extrapolated": 1 < wanted < n_rows and one_row - per_row > 0.02 * expected,
    }


def time_in_turn(
    runners: dict[str, Any], systems: dict[str, Any], n_rows: int, repeats: int
) -> dict[str, list[float]]:
    """Time every system once per round; each round starts with another system.

    Return the seconds per row of each system in each round.
    """
    names = list(runners)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    busy: dict[str, list[float]] = {name: [] for name in names}
    for i in range(repeats):
        first = i % max(len(names), 1)
        for name in names[first:] + names[:first]:
            entry = systems[name]
            wall, cpu = runners[name].time(entry["call_rows"], entry["calls"])
            busy[name].append(cpu / wall)
            per_row = wall / entry["call_rows"]
            if entry["extrapolated"]:
                fixed = runners[name].time(1)[0]
                marginal = max(wall - fixed, 0.0) / (entry["call_rows"] - 1)
                per_row = (fixed + marginal * (n_rows - 1)) / n_rows
            seconds[name].append(per_row)
    for name in names:
        systems[name]["rows_per_second"] = summary([1 / s for s in seconds[name]])
        systems[name]["cpu_over_wall"] = median(busy[name])
    return seconds


def add_ratios(systems: dict[str, Any], seconds: dict[str, list[float]], reference: str, name: str) -> None:
    """Add, under ``name``, each system's time per row over the reference's time in the same round."""
    for system, its in seconds.items() if reference in seconds else ():
        systems[system][name] = summary([s / other for s, other in zip(its, seconds[reference])])


def print_head(result: dict[str, Any]) -> None:
    """Print a description of the model, our errors and, if the model was not timed, the reason."""
    print(
        f"\n{result['name']}: {result['trees']:,} trees, {result['leaves']:,} leaves, "
        f"depth {result['max_depth']}, {result['features']} features, {result['outputs']} outputs, "
        f"{result['rows']:,} rows ({result['note']})"
    )
    errors = [
        f"{name} {'-' if error is None else format(error, '.1e')}"
        for name, error in result["accuracy"].items()
    ]
    print(f"our errors: {', '.join(errors)}")
    if "refused" in result:
        print(result["refused"], flush=True)


def summary(figures: list[float]) -> dict[str, float]:
    return {"median": median(figures), "min": min(figures), "max": max(figures)}


def same(X: np.ndarray) -> np.ndarray:
    return X


def outputs_second(raw: np.ndarray, _: int = 0) -> np.ndarray:
    """Reorder (n_rows, n_features[, n_outputs]), shap's axes and ours, to (n_rows, n_outputs, n_features)."""
    return raw[:, np.newaxis] if raw.ndim == 2 else raw.transpose(0, 2, 1)


def without_base(raw: np.ndarray, n_rows: int) -> np.ndarray:
    """Drop the base value, the last column of (n_rows, [n_outputs,] n_features + 1)."""
    return raw.reshape(n_rows, -1, raw.shape[-1])[:, :, :-1]


def _ours(payload: dict[str, Any]) -> System:
    from skshapgpu import TreeExplainer, _core

    options = dict(payload)
    method = options.pop("method", "shap_values")
    explainer = TreeExplainer(**options)
    index: Any = {"banzhaf_values": "BV", "owen_values": "OV"}.get(method)
    return System(
        (lambda X: X.astype(np.float64)) if options["precision"] == "double" else same,
        (lambda X: explainer.explain(X, index=index).values) if index else getattr(explainer, method),
        (lambda raw, _: raw) if method == "shap_interaction_values" else outputs_second,
        _core.instruction_set(),
    )


def _xgboost(case: Any) -> System:
    import xgboost

    booster = case.model.copy()
    booster.set_param({"nthread": 1})
    return System(
        lambda X: xgboost.DMatrix(X, nthread=1),
        lambda rows: booster.predict(rows, pred_contribs=True),
        without_base,
        "DMatrix made before",
    )


def _xgboost_dmatrix(case: Any) -> System:
    import xgboost

    system = _xgboost(case)
    return System(
        same,
        lambda X: system.call(xgboost.DMatrix(X, nthread=1)),
        without_base,
        "DMatrix made in the call",
    )


def _lightgbm(case: Any) -> System:

    def values(raw: np.ndarray, n_rows: int) -> np.ndarray:
        return without_base(raw.reshape(n_rows, -1, case.X.shape[1] + 1), n_rows)

    return System(same, lambda X: case.model.predict(X, pred_contrib=True, num_threads=1), values)


def _catboost(case: Any) -> System:
    from catboost import Pool

    return System(
        lambda X: Pool(X, thread_count=1),
        lambda pool: case.model.get_feature_importance(pool, type="ShapValues", thread_count=1),
        without_base,
        "Pool made before",
    )


def _shap(case: Any) -> System:
    import shap

    return shap_system(case, shap.TreeExplainer)


def shap_system(case: Any, explainer_class: Any) -> System:
    native = case.family == "sklearn"
    model = case.model if native else plain_trees(case.model)
    explainer = explainer_class(model, feature_perturbation="tree_path_dependent")
    # shap passes models of the other libraries back to these libraries; its own code runs on trees passed as
    # arrays.
    return System(
        same,
        lambda X: explainer.shap_values(X, check_additivity=False),
        outputs_second,
        "" if native else "its own code, trees as arrays",
    )


def _shapiq(case: Any) -> System:
    from shapiq.tree import QuadratureTreeSHAP
    from shapiq.tree.quadrature.cext import quadrature_tree_shap

    n_outputs = ensemble_of(case.model).n_outputs
    classes = range(n_outputs) if n_outputs > 1 else [None]
    explainers = [QuadratureTreeSHAP(case.model, class_index=i) for i in classes]
    for explainer in explainers:
        explainer.explain(case.X[0])  # makes the arguments of its kernel

    # The public explain() accepts only one row, but the kernel that it calls accepts many: call the kernel as
    # explain() does.
    def call(X: np.ndarray) -> list[np.ndarray]:
        results = []
        for explainer in explainers:
            arguments = explainer._kernel_args
            rows = explainer._trees[0].cast_input(X.astype(np.float64))[:, explainer._relevant_features]
            out = np.zeros((len(X), explainer._output_size))
            rows = np.ascontiguousarray(rows, np.float64)
            quadrature_tree_shap(*arguments[:18], rows, out, *arguments[18:])
            results.append(out)
        return results

    def values(raw: list[np.ndarray], n_rows: int) -> np.ndarray:
        full = np.zeros((n_rows, len(raw), case.X.shape[1]))
        for output, (explainer, shap_values) in enumerate(zip(explainers, raw)):
            full[:, output, explainer._relevant_features] = shap_values[
                :, : len(explainer._relevant_features)
            ]
        return full

    note = "its kernel called for many rows at once"
    return System(same, call, values, note if n_outputs == 1 else f"{note}, for each output")


def _woodelf(case: Any) -> System:
    import pandas as pd
    from woodelf import WoodelfExplainer

    columns, trees = woodelf_trees(case)
    explainers = [WoodelfExplainer(tree, feature_perturbation="tree_path_dependent") for tree in trees]
    return System(
        lambda X: pd.DataFrame(X, columns=columns),
        lambda rows: [explainer.shap_values(rows, verbose=False) for explainer in explainers],
        lambda raw, n_rows: np.stack(raw, axis=1),
        "" if len(explainers) == 1 else "for each output",
    )


def woodelf_trees(case: Any) -> tuple[list[str], list[Any]]:
    """Return names for the columns, and Woodelf's trees of each output."""
    from woodelf.core.trees.parse_models import load_decision_tree_ensemble_model

    ensemble = ensemble_of(case.model)
    if ensemble.n_leaves > MAX_WOODELF_LEAVES:
        raise NotApplicable(f"not timed: {ensemble.n_leaves:,} leaves take minutes in any call")
    columns = [f"x{i}" for i in range(case.X.shape[1])]
    outputs = range(ensemble.n_outputs)
    return columns, [load_decision_tree_ensemble_model(case.model, columns, i) for i in outputs]


def _fasttreeshap(model: dict[str, Any]) -> System:
    import fasttreeshap

    algorithm = model.get("algorithm") or ("v2" if model["table_entries"] <= MAX_TABLE_ENTRIES else "v1")
    # FastTreeSHAP warns when it runs v1 instead of v2 for lack of memory.
    warnings.filterwarnings("error", message=".*Switched to algorithm v1")
    explainer = fasttreeshap.TreeExplainer(
        model, feature_perturbation="tree_path_dependent", algorithm=algorithm, n_jobs=1
    )

    def values(raw: Any, n_rows: int) -> np.ndarray:
        return np.stack(raw, axis=1) if isinstance(raw, list) else raw[:, np.newaxis]

    return System(
        same,
        lambda X: explainer.shap_values(X, check_additivity=False),
        values,
        f"{algorithm}, trees as arrays, NumPy {np.__version__}",
    )


def ensemble_of(model: Any) -> Any:
    """Read the trees of a model with skshapgpu."""
    from skshapgpu.adapters import adapt

    return adapt(model).ensemble


def depths(ensemble: Any) -> np.ndarray:
    """Compute the depth of every node."""
    depth = np.zeros(ensemble.n_nodes, np.int64)
    root = np.repeat(ensemble.tree_offsets[:-1], np.diff(ensemble.tree_offsets))
    level = ensemble.tree_offsets[:-1]
    while len(level := level[ensemble.left[level] >= 0]):
        children = np.concatenate([root[level] + ensemble.left[level], root[level] + ensemble.right[level]])
        depth[children] = np.tile(depth[level] + 1, 2)
        level = children
    return depth


def describe(case: Any, ensemble: Any) -> dict[str, Any]:
    """Return the name and size of a model, for its result."""
    return {
        "name": case.name,
        "family": case.family,
        "note": case.note,
        "trees": ensemble.n_trees,
        "leaves": ensemble.n_leaves,
        "max_depth": int(depths(ensemble).max()),
        "features": ensemble.n_features,
        "outputs": ensemble.n_outputs,
    }


def plain_trees(model: Any) -> dict[str, Any]:
    """Convert a model to the dict of trees that shap and FastTreeSHAP accept."""
    ensemble = ensemble_of(model)
    if len(ensemble.category_offsets) or ensemble.zero_missing.any():
        raise NotApplicable("categorical splits and zeros that are missing do not fit in its trees")
    threshold = ensemble.threshold
    if ensemble.strict:  # they compare with <=, rows are float32
        threshold = np.nextafter(threshold.astype(np.float32), np.float32(-np.inf)).astype(np.float64)
    trees = []
    for i, (start, stop) in enumerate(zip(ensemble.tree_offsets, ensemble.tree_offsets[1:])):
        left, right = ensemble.left[start:stop], ensemble.right[start:stop]
        value = ensemble.value[start:stop]
        if ensemble.tree_output[i] >= 0:
            value = np.zeros((stop - start, ensemble.n_outputs))
            value[:, ensemble.tree_output[i]] = ensemble.value[start:stop, 0]
        trees.append(
            {
                "children_left": left,
                "children_right": right,
                "children_default": np.where(ensemble.missing_left[start:stop], left, right),
                "features": ensemble.feature[start:stop],
                "thresholds": threshold[start:stop],
                "values": value,
                "node_sample_weight": ensemble.cover[start:stop],
            }
        )
    return {"trees": trees, "table_entries": int(ensemble.n_leaves << int(depths(ensemble).max()))}


BUILDERS: dict[str, Callable[[Any], System]] = {
    "ours": _ours,
    "xgboost": _xgboost,
    "xgboost-dmatrix": _xgboost_dmatrix,
    "lightgbm": _lightgbm,
    "catboost": _catboost,
    "shap": _shap,
    "shapiq": _shapiq,
    "woodelf": _woodelf,
    "fasttreeshap": _fasttreeshap,
}

PEERS = tuple(name for name in BUILDERS if name != "ours")

#: Peers that explain only the models of one family.
FAMILY = {"xgboost": "xgboost", "xgboost-dmatrix": "xgboost", "lightgbm": "lightgbm", "catboost": "catboost"}


if __name__ == "__main__":
    serve()
