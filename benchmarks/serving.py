"""Latency of SHAP values in a process that serves: threads that share an explainer."""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import json
import threading
import warnings
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any

import numpy as np
import single_row

from skshapgpu import TreeExplainer

#: The model of each library, as in `single_row.LARGE_MODELS`.
MODELS = {
    "xgboost": (100, {"max_depth": 8}),
    "lightgbm": (300, {"num_leaves": 31}),
    "catboost": (300, {"depth": 6}),
}
FORMS, ROWS, THREADS = ("array", "frame"), (1, 10), (1, 8)
PERCENTILES = (50, 99, 99.9)

#: Different requests, which each thread makes in turn, and the rounds of all kinds of calls.
N_REQUESTS, N_ROUNDS = 512, 5

#: Constants of LightGBM's C interface: SHAP values as the prediction, and numbers in double precision.
LIGHTGBM_CONTRIBUTIONS, LIGHTGBM_DOUBLE = 3, 1

#: A function that answers a request: it returns SHAP values of rows without the base value, for example.
Call = Callable[[Any], Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=2.0, help="time of each kind of calls (2)")


def cases() -> Iterator[tuple[str, str]]:
    """Yield the installed libraries, with each form of X."""
    return (
        (library, form)
        for library in MODELS
        if importlib.util.find_spec(library) is not None
        for form in FORMS
    )


def measure(library: str, form: str, seconds: float) -> Iterator[dict[str, Any]]:
    """Yield the latencies of a model's SHAP values, for each number of rows and threads.

    Each thread makes one call after the other, as the threads of a web server do under full load.
    """
    n_trees, params = MODELS[library]
    X, y = single_row.data(form, single_row.N_LARGE_TRAINING)
    model = fitted(library, X, y, n_trees, **params)
    explainer = TreeExplainer(model, device="cpu", n_jobs=1, expected_rows=10**6)
    ours = {
        "skshapgpu": lambda: explainer.shap_values,
        "skshapgpu, three reasons": lambda: lambda rows: explainer.explain(rows).reasons(3),
    }
    makers = {**ours, "predict": lambda: model.predict, **their_calls(library, model)}
    for n_rows in ROWS:
        requests = [X[i : i + n_rows] for i in range(0, N_REQUESTS * n_rows, n_rows)]
        for n_threads in THREADS:
            latencies = time_in_turn(makers, requests, n_threads, seconds)
            differences = {
                name: difference(explainer.shap_values, make(), requests[:20])
                for name, make in makers.items()
                if name not in (*ours, "predict")
            }
            yield {
                "name": f"{library}, {form}, {n_rows} rows, {n_threads} threads",
                "n_trees": n_trees,
                "latencies_us": latencies,
                "differences": differences,
            }


def time_in_turn(
    makers: dict[str, Callable[[], Call]], requests: list[Any], n_threads: int, seconds: float
) -> dict[str, dict[str, float]]:
    """Return the percentiles of the latency in microseconds, and the calls of all threads in a second.

    Each kind of calls takes its part of ``seconds`` in each round.
    """
    times: dict[str, list[float]] = {name: [] for name in makers}
    for _ in range(N_ROUNDS):
        for name, make in makers.items():
            times[name] += time_threads(make, requests, n_threads, seconds / N_ROUNDS)
    return {
        name: {
            **{
                f"p{percent:g}": value
                for percent, value in zip(PERCENTILES, (1e6 * np.percentile(own, PERCENTILES)).tolist())
            },
            "n_calls": len(own),
            "calls_per_second": len(own) / seconds,
        }
        for name, own in times.items()
    }


def time_threads(
    make: Callable[[], Call], requests: list[Any], n_threads: int, seconds: float
) -> list[float]:
    """Return the seconds of each call of threads that call for ``seconds``, at least once each."""
    times: list[list[float]] = [[] for _ in range(n_threads)]
    started = threading.Barrier(n_threads)

    def serve(own: list[float]) -> None:
        call = make()
        for rows in requests[:5]:
            call(rows)
        started.wait()
        end = perf_counter() + seconds
        while not own or perf_counter() < end:
            start = perf_counter()
            call(requests[len(own) % len(requests)])
            own.append(perf_counter() - start)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about names that an array does not have
        threads = [threading.Thread(target=serve, args=(own,)) for own in times]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return [time for own in times for time in own]


def difference(ours: Call, theirs: Call, requests: list[Any]) -> float:
    """Return the largest difference of SHAP values, relative to the largest value."""
    pairs = [(np.asarray(ours(rows)), np.asarray(theirs(rows))) for rows in requests]
    largest = max(np.abs(right).max() for _, right in pairs)
    return float(max(np.abs(own - right).max() for own, right in pairs) / largest)


def their_calls(library: str, model: Any) -> dict[str, Callable[[], Call]]:
    """Return functions that make, for a thread, the calls of other libraries for the same values."""
    makers: dict[str, Callable[[], Call]] = {}
    if library == "xgboost":
        import xgboost

        booster = model.get_booster()
        makers["xgboost"] = lambda: (
            lambda rows: booster.predict(xgboost.DMatrix(rows, nthread=1), pred_contribs=True)[:, :-1]
        )
    elif library == "lightgbm":
        makers["lightgbm"] = lambda: (
            lambda rows: model.predict(rows, pred_contrib=True, num_threads=1)[:, :-1]
        )
        makers["lightgbm, single rows of its C interface"] = lambda: lightgbm_single_rows(model.booster_)
    else:
        import catboost

        makers["catboost"] = lambda: (
            lambda rows: model.get_feature_importance(catboost.Pool(rows), type="ShapValues", thread_count=1)[
                :, :-1
            ]
        )
    if importlib.util.find_spec("shap") is not None:
        from shap import TreeExplainer as Shap

        explainer = Shap(model)
        makers["shap"] = lambda: lambda rows: explainer.shap_values(rows, check_additivity=False)
    return makers


def lightgbm_single_rows(booster: Any) -> Call:
    """Return a function that passes the rows one by one to LightGBM's interface for single rows."""
    from lightgbm.basic import _LIB

    n_columns = booster.num_feature()
    config = ctypes.c_void_p()
    made = _LIB.LGBM_BoosterPredictForMatSingleRowFastInit(
        booster._handle,
        ctypes.c_int(LIGHTGBM_CONTRIBUTIONS),
        ctypes.c_int(0),
        ctypes.c_int(-1),
        ctypes.c_int(LIGHTGBM_DOUBLE),
        ctypes.c_int32(n_columns),
        ctypes.c_char_p(b"num_threads=1"),
        ctypes.byref(config),
    )
    if made != 0:
        raise RuntimeError("LightGBM has no interface for single rows")
    n_values = ctypes.c_int64()

    def shap_values(rows: Any) -> np.ndarray:
        X = np.ascontiguousarray(rows, dtype=np.float64)
        values = np.empty((len(X), n_columns + 1))
        for row, result in zip(X, values):
            _LIB.LGBM_BoosterPredictForMatSingleRowFast(
                config,
                row.ctypes.data_as(ctypes.c_void_p),
                ctypes.byref(n_values),
                result.ctypes.data_as(ctypes.c_void_p),
            )
        return values[:, :-1]

    return shap_values


def fitted(library: str, X: Any, y: np.ndarray, n_trees: int, **params: Any) -> Any:
    if library != "catboost":
        return single_row.fitted(library, X, y, n_trees, **params)
    import catboost

    model = catboost.CatBoostRegressor(
        iterations=n_trees, verbose=False, thread_count=1, allow_writing_files=False, **params
    )
    return model.fit(X, y)


def print_result(result: dict[str, Any]) -> None:
    print(json.dumps(result), flush=True)
