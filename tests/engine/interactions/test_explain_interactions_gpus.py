"""TreeExplainer.explain_interactions on GPUs: calls of their plans, replaced by the CPU's."""

from __future__ import annotations

import ctypes
import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers.checks import shrink_leaves
from helpers.interactions import DIABETES, on_cpu

from skshapgpu import TreeExplainer
from skshapgpu._common import devices, memory
from skshapgpu._common.algorithms import named
from skshapgpu._common.devices import Devices
from skshapgpu._engine.compiled_model import CompiledModel
from skshapgpu._rows import gpu_arrays, inputs
from skshapgpu._rows.gpu_arrays import GpuArray, NumberRules


class StandIn:
    """Replacement for ``_cuda.CudaPlan`` that computes on the CPU."""

    def __init__(self, plan: Any, index: int) -> None:
        self.plan, self.index = plan, index
        self.rows: list[int] = []

    def explain(
        self,
        X: np.ndarray,
        values: np.ndarray,
        margin: np.ndarray | None,
        gap: np.ndarray | None,
        memory_limit: int,
        **parts: np.ndarray,
    ) -> None:
        self.rows.append(len(X))
        result = np.empty(values.shape[:2])
        self.plan.explain(X, values, result, 1, **parts)
        if gap is not None:
            gap[:] = np.abs(values.sum(axis=2, dtype=np.float64) + self.plan.base_value - result).max(axis=0)
        if margin is not None:
            margin[...] = result

    def explain_device(
        self,
        view: np.ndarray,
        missing: float,
        allow_nan: bool,
        limit: float,
        values_address: int,
        values_float32: bool,
        gap: np.ndarray | None,
        memory_limit: int,
        stream: int,
        **addresses: int,
    ) -> int:
        n_features, n_outputs = view.shape[1], len(self.plan.base_value)
        n_pairs, n_triples = len(self.plan.pairs), len(self.plan.triples)
        sizes = {"values": n_features, "matrices": n_features**2, "pairs": n_pairs, "triples": n_triples}
        shapes = sizes | {"matrices": (n_features, n_features)}
        dtype = np.dtype(np.float32 if values_float32 else np.float64)
        out = {}
        for name, address in {"values": values_address, **addresses}.items():
            n_bytes = len(view) * n_outputs * sizes[name] * dtype.itemsize
            flat = np.frombuffer((ctypes.c_char * n_bytes).from_address(address), dtype)
            out[name] = flat.reshape(len(view), n_outputs, *np.atleast_1d(shapes[name]))
        self.explain(view, out.pop("values"), None, gap, memory_limit, **out)
        return -1


class Rows(np.ndarray):
    """Replacement for an array on a GPU."""


class OnGpu(GpuArray):
    def empty(self, shape: tuple[int, ...]) -> Any:
        return np.full(shape, np.nan, self.dtype)

    def rows(self, start: int, stop: int) -> GpuArray:
        return view(self.array[start:stop], self.data, self.numbers, self.names)

    def to_native(self, values: Any) -> Any:
        return values.view(Rows)


def view(
    array: np.ndarray, data: Any, numbers: NumberRules, names: tuple[str, ...], dtype: np.dtype | None = None
) -> GpuArray:
    return OnGpu(data, array, 0, 0, array, array.shape, dtype or array.dtype, numbers, names)


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> list[StandIn]:
    """Two GPUs; the plans used on them."""
    sent: list[StandIn] = []

    def compile_on(plan: Any, index: int, algorithm: str) -> StandIn:
        sent.append(StandIn(plan, index))
        return sent[-1]

    monkeypatch.setattr(devices, "compile_on", compile_on)
    monkeypatch.setattr(devices, "new_array", lambda shape, dtype: None)
    monkeypatch.setattr(gpu_arrays, "on_gpu", lambda X: isinstance(X, Rows))
    monkeypatch.setattr(inputs, "load_cuda", lambda: None)
    monkeypatch.setattr(gpu_arrays, "torch_or_cupy", np.asarray)
    monkeypatch.setattr(gpu_arrays, "gpu_of", lambda array: 0)
    monkeypatch.setattr(gpu_arrays, "view", view)
    monkeypatch.setattr(gpu_arrays, "address", lambda array: array.ctypes.data)
    return sent


def send(explainer: TreeExplainer, chosen: Devices) -> TreeExplainer:
    explainer._compiled.options = replace(explainer._compiled.options, devices=chosen)
    return explainer


REQUESTS: list[dict[str, Any]] = [
    *({"interactions": pairs} for pairs in ("occurring", 4, [(3, 0), (1, 2)])),
    *({"interactions": triples, "order": 3} for triples in ("occurring", 4, [(3, 0, 1), (1, 2, 3)])),
]


@pytest.mark.parametrize("asked", REQUESTS, ids=str)
def test_rows_are_split_among_gpus(case: Any, gpus: list[StandIn], asked: Any) -> None:
    explainer, X = case
    expected = explainer.explain_interactions(X, **asked)
    both = send(pickle.loads(pickle.dumps(explainer)), Devices(indices=(0, 1)))
    explanation = both.explain_interactions(X, **asked)
    np.testing.assert_array_equal(explanation.values, expected.values)
    if asked["interactions"] == "occurring" and "order" not in asked:
        matrices = both.shap_interaction_values(X)
        np.testing.assert_array_equal(matrices, explainer.shap_interaction_values(X))
    assert (
        explanation.device == "cuda:0, cuda:1" and explanation.additivity_error == expected.additivity_error
    )
    assert [plan.index for plan in gpus] == [0, 1]
    assert {rows for plan in gpus for rows in plan.rows} <= {len(X) // 2, len(X) - len(X) // 2}


@pytest.mark.parametrize("asked", REQUESTS, ids=str)
def test_arrays_on_a_gpu_stay_there(
    case: Any, gpus: list[StandIn], asked: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    explainer, X = case
    expected = explainer.explain_interactions(X, **asked)
    auto = send(pickle.loads(pickle.dumps(explainer)), Devices(auto=True))
    for chunk in (memory.CHUNK_BYTES, 50_000):
        monkeypatch.setattr(memory, "CHUNK_BYTES", chunk)
        explanation = auto.explain_interactions(X.view(Rows), **asked)
        assert isinstance(explanation.values, Rows) and explanation.device == "cuda:0"
        np.testing.assert_array_equal(np.asarray(explanation.values), expected.values)
        np.testing.assert_array_equal(explanation.interactions, expected.interactions)
        if expected.single_values is not None:
            np.testing.assert_array_equal(np.asarray(explanation.single_values), expected.single_values)
        matrices = auto.shap_interaction_values(X.view(Rows))
        assert isinstance(matrices, Rows)
        np.testing.assert_array_equal(np.asarray(matrices), explainer.shap_interaction_values(X))
    values = auto.shap_values(X.view(Rows))
    np.testing.assert_array_equal(np.asarray(values), explainer.shap_values(X))


def test_auto_falls_back_to_the_cpu(
    regressor: Any, gpus: list[StandIn], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Any, *arguments: Any, **parts: Any) -> None:
        raise RuntimeError("a GPU")

    monkeypatch.setattr(StandIn, "explain", fail)
    monkeypatch.setattr(devices, "is_cuda_error", lambda error: "a GPU" in str(error))
    monkeypatch.setattr(Devices, "choose", lambda self, *arguments: (0,))
    expected = on_cpu(regressor)
    with pytest.raises(RuntimeError, match="a GPU"):
        send(expected, Devices(indices=(0,))).explain_interactions(DIABETES)
    explanation = send(on_cpu(regressor), Devices(auto=True)).explain_interactions(DIABETES, interactions=3)
    assert explanation.device == "cpu" and gpus
    monkeypatch.undo()
    np.testing.assert_array_equal(
        explanation.values, on_cpu(regressor).explain_interactions(DIABETES, interactions=3).values
    )


@pytest.mark.parametrize("on", ["host", "GPU"])
def test_gaps_found_by_gpus_are_judged(regressor: Any, gpus: list[StandIn], on: str) -> None:
    explainer = send(on_cpu(regressor), Devices(indices=(0,)))
    shrink_leaves(explainer, 1e-9)
    X = DIABETES if on == "host" else DIABETES.view(Rows)
    with pytest.raises(RuntimeError, match="additivity check failed at row 0"):
        explainer.explain_interactions(X)


def test_what_gpus_do_not_compute(regressor: Any, gpus: list[StandIn]) -> None:
    explainer = on_cpu(regressor, algorithm="treeshap")
    what = "the values of algorithm='treeshap' are computed on the CPU only, but X is on a GPU"
    with pytest.raises(TypeError, match=what):
        explainer.shap_values(DIABETES.view(Rows))
    forced = send(on_cpu(regressor), Devices(indices=(0,)))
    gputreeshap = on_cpu(regressor)
    options = replace(forced._compiled.options, algorithm=named("gputreeshap"))
    gputreeshap._compiled = CompiledModel(forced._compiled.ensemble, options, False, None)
    for order in (2, 3):
        with pytest.raises(ValueError, match="algorithm='gputreeshap' computes SHAP values only"):
            gputreeshap.explain_interactions(DIABETES, interactions=2, order=order)
    assert not gpus
