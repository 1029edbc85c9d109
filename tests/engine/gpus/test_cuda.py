"""Device selection, error messages without a GPU, and GPU arrays as input and output."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from helpers.checks import shrink_leaves
from helpers.ensembles import leaf_scale, random_ensemble, random_rows
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.ensemble import (
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skshapgpu import ShapTransformer, TreeExplainer, cuda_info, explain, reference
from skshapgpu._common import devices
from skshapgpu._common.devices import Devices
from skshapgpu._engine.costs import trees as costs
from skshapgpu._rows import gpu_arrays
from skshapgpu.adapters.ensemble import attributes_of

pytest.importorskip("skshapgpu._cuda")


@pytest.fixture(autouse=True)
def auto(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clear the device that the test run sets, so that "auto" chooses one in these tests."""
    monkeypatch.delenv("SKSHAPGPU_DEVICE", raising=False)


X, Y = load_diabetes(return_X_y=True)
IRIS = load_iris(return_X_y=True)


@pytest.fixture(scope="module")
def regressor() -> RandomForestRegressor:
    return RandomForestRegressor(20, random_state=0).fit(X, Y)


@pytest.fixture(scope="module")
def multiclass() -> RandomForestClassifier:
    return RandomForestClassifier(20, random_state=0).fit(*IRIS)


# The choice


@pytest.mark.parametrize(
    "device, error, message",
    [
        ("gpu", ValueError, "device must be 'auto', 'cpu', 'cuda'"),
        ("cuda:", ValueError, "device must be"),
        ("cuda:-1", ValueError, "device must be"),
        ("cuda:1.5", ValueError, "device must be"),
        (["cuda:0", "cuda"], ValueError, "twice"),
        (["cpu", "cuda:1"], ValueError, "device must be"),
        ([], TypeError, "device must be a str or a list"),
        (0, TypeError, "device must be a str or a list"),
        (None, TypeError, "device must be a str or a list"),
        ([0], TypeError, "device must be a str or a list"),
    ],
)
def test_wrong_device(regressor: Any, device: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        TreeExplainer(regressor, device=device)


def test_gputreeshap_needs_a_gpu(regressor: Any) -> None:
    with pytest.raises(ValueError, match="runs on GPUs only"):
        TreeExplainer(regressor, algorithm="gputreeshap", device="cpu")
    if not cuda_info()["available"]:
        with pytest.raises(RuntimeError, match="use device='cpu'"):
            TreeExplainer(regressor, algorithm="gputreeshap")


def test_cpu_is_said(regressor: Any) -> None:
    explanation = explain(regressor, X[:5], device="cpu")
    assert explanation.device == "cpu" and "on the CPU" in repr(explanation)


def test_the_variable_overrides_auto_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKSHAPGPU_DEVICE", "cpu")
    assert Devices.parse("auto") == Devices()
    monkeypatch.setenv("SKSHAPGPU_DEVICE", "graphics")
    assert Devices.parse("cpu") == Devices()
    with pytest.raises(ValueError, match="device must be"):
        Devices.parse("auto")
    monkeypatch.setenv("SKSHAPGPU_DEVICE", "")
    assert Devices.parse("auto") == Devices(auto=True)


def test_auto_leaves_small_work_to_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def chosen(algorithm: str, n_rows: int, n_leaves: int = 23_000) -> tuple[int, ...]:
        group = costs.TreeGroup(algorithm, 4, 100, n_leaves, n_leaves, 100, 0, 0)
        cpu = costs.CPU_BESIDE_GPU * costs.cpu_seconds([group], n_rows, 1)
        return auto.choose(cpu, costs.cuda_seconds([group], n_rows))

    monkeypatch.setattr(devices, "_available", True)
    auto = Devices(auto=True)
    assert chosen("quadrature", 1, n_leaves=4_000) == ()
    assert chosen("quadrature", 1, n_leaves=400_000) == (0,)
    assert chosen("quadrature", 1_000_000) == (0,)
    assert chosen("quadrature", 1_000) == (0,)
    assert chosen("tables", 100) == ()
    assert chosen("tables", 1_000_000) == (0,)
    assert Devices(indices=(1, 2)).choose(0.0, 1.0) == (1, 2)
    assert Devices().choose(1.0, 0.0) == ()
    monkeypatch.setattr(devices, "_available", False)
    assert chosen("quadrature", 1_000_000) == ()


def test_importing_brings_no_cuda() -> None:
    code = (
        "import sys, skshapgpu; assert 'skshapgpu._cuda' not in sys.modules and 'cupy' not in sys.modules\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# Without a GPU: a machine may be made to have none


WITHOUT = """
import numpy as np, skshapgpu
from sklearn.ensemble import RandomForestRegressor
info = skshapgpu.cuda_info()
assert not info["available"] and info["devices"] == [] and info["reason"], info
X = np.random.default_rng(0).random((3000, 4))
model = RandomForestRegressor(100, random_state=0).fit(X, X.sum(axis=1))
assert skshapgpu.explain(model, X).device == "cpu"
for device in ("cuda", "cuda:1", ["cuda:0", "cuda:1"]):
    try:
        skshapgpu.TreeExplainer(model, device=device)
    except RuntimeError as error:
        message = str(error)
        assert info["reason"] in message and "device='cpu'" in message and "\\n" not in message, message
    else:
        raise AssertionError(device)
print(info["reason"])
"""


def test_without_a_gpu() -> None:
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "-1"}
    environment.pop("SKSHAPGPU_DEVICE", None)
    result = subprocess.run([sys.executable, "-c", WITHOUT], env=environment, text=True, capture_output=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() in ("no NVIDIA driver is installed", "there is no CUDA device")


def test_info() -> None:
    info = cuda_info()
    assert set(info) == {"available", "reason", "driver", "runtime", "compute_capabilities", "devices"}
    assert info["available"] == (info["reason"] is None) == bool(info["devices"])
    assert info["runtime"] is not None
    built_for = info["compute_capabilities"]
    assert built_for and (7, 5) <= min(built_for) <= max(built_for) < (20, 0)


# With a GPU


def assert_close(got: Any, expected: np.ndarray, unit: float) -> None:
    got = gpu_arrays.to_host(got)
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=0, atol=unit * np.abs(expected).max())


UNIT = {"single": 1e-6, "double": 1e-13}


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("precision", ["single", "double"])
@pytest.mark.parametrize("model", ["regressor", "multiclass"])
def test_values_are_those_of_the_cpu(model: str, precision: str, request: pytest.FixtureRequest) -> None:
    fitted, rows = request.getfixturevalue(model), X if model == "regressor" else IRIS[0]
    expected = TreeExplainer(fitted, device="cpu", precision="double").shap_values(rows)
    explanation = TreeExplainer(fitted, device="cuda", precision=precision).explain(rows)
    assert explanation.device == "cuda:0" and "cuda:0" in explanation._repr_html_()
    assert explanation.additivity_error is not None
    assert_close(explanation.values, expected, UNIT[precision])


@pytest.mark.usefixtures("gpu")
def test_widened_outputs() -> None:
    rows, y = load_breast_cancer(return_X_y=True)
    model = RandomForestClassifier(10, random_state=0).fit(rows, y)
    expected = TreeExplainer(model, device="cpu", outputs="all").shap_values(rows)
    assert_close(TreeExplainer(model, device="cuda", outputs="all").shap_values(rows), expected, 1e-6)


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_many_batches(regressor: Any, order: str, dtype: type) -> None:
    rows = np.asarray(np.tile(X, (700, 1)), dtype, order=order)
    explainer = TreeExplainer(regressor, device="cuda")
    values = explainer.shap_values(rows)
    assert values.dtype == dtype
    first = values[: len(X)]
    assert all((values[i : i + len(X)] == first).all() for i in range(0, len(rows), len(X)))
    assert_close(first, TreeExplainer(regressor, device="cpu").shap_values(rows[: len(X)]), 1e-6)


@pytest.mark.usefixtures("gpu")
def test_memory_limit(regressor: Any) -> None:
    rows = np.tile(X, (20, 1))
    expected = TreeExplainer(regressor, device="cuda").shap_values(rows)
    limited = TreeExplainer(regressor, device="cuda", memory_limit=expected.nbytes + (512 << 20))
    assert (limited.shap_values(rows) == expected).all()
    with pytest.raises(MemoryError, match="memory_limit"):
        TreeExplainer(regressor, device="cuda", memory_limit=expected.nbytes + 2000).shap_values(rows)


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("n_features", [784, 8000])
def test_wide_rows(n_features: int) -> None:
    rng = np.random.default_rng(0)
    rows = rng.random((300, n_features), np.float32)
    model = RandomForestRegressor(10, max_features=0.3, random_state=0, n_jobs=-1)
    model.fit(rows, rows[:, :200].sum(axis=1))
    expected = TreeExplainer(model, device="cpu", precision="double").shap_values(rows)
    assert_close(TreeExplainer(model, device="cuda").shap_values(rows), expected, 1e-5)


@pytest.mark.usefixtures("gpu")
def test_pickles_and_copies(regressor: Any) -> None:
    explainer = TreeExplainer(regressor, device="cuda")
    expected = explainer.shap_values(X)
    for other in (pickle.loads(pickle.dumps(explainer)), copy.deepcopy(explainer)):
        assert (other.shap_values(X) == expected).all()


@pytest.mark.usefixtures("gpu")
def test_threads_share_an_explainer_and_have_their_own(regressor: Any, multiclass: Any) -> None:
    shared = TreeExplainer(regressor, device="cuda")
    expected, iris = shared.shap_values(X), TreeExplainer(multiclass, device="cpu").shap_values(IRIS[0])

    def work(i: int) -> None:
        assert (shared.shap_values(X[i:]) == expected[i:]).all()
        assert_close(TreeExplainer(multiclass, device="cuda").shap_values(IRIS[0]), iris, 1e-5)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(40)))


@pytest.mark.usefixtures("gpu")
def test_nothing_leaks(regressor: Any) -> None:
    from skshapgpu import _cuda

    gc.collect()
    before = _cuda.allocated_bytes()
    for _ in range(30):
        explainer = TreeExplainer(regressor, device="cuda")
        explainer.shap_values(X)
        assert _cuda.allocated_bytes() > before
        del explainer
        gc.collect()
        assert _cuda.allocated_bytes() == before


@pytest.mark.usefixtures("gpu")
def test_fork_after_use(regressor: Any) -> None:
    """A forked child has no CUDA context: it gets an error or uses the CPU, but does not hang or crash."""
    explainer = TreeExplainer(regressor, device="cuda")
    explainer.shap_values(X)
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            explainer.shap_values(X)
        except RuntimeError:
            status = 0
        finally:
            os._exit(status)
    timer = threading.Timer(60, os.kill, (pid, 9))
    timer.start()
    _, status = os.waitpid(pid, 0)
    timer.cancel()
    assert status == 0
    explainer.shap_values(X)


@pytest.mark.usefixtures("gpu")
def test_additivity_is_checked(regressor: Any) -> None:
    cupy = pytest.importorskip("cupy")
    explainer = TreeExplainer(regressor, device="cuda")
    shrink_leaves(explainer, 1e-6)
    for rows in (X, cupy.asarray(X)):
        with pytest.raises(RuntimeError, match=r"additivity check failed at row \d+: base value"):
            explainer.shap_values(rows)
    explainer = TreeExplainer(regressor, device="cuda", check_additivity=False)
    assert explainer.explain(X).additivity_error is None


@pytest.mark.usefixtures("gpu")
def test_an_error_midway_leaves_it_usable(regressor: Any) -> None:
    explainer = TreeExplainer(GradientBoostingRegressor(n_estimators=5).fit(X, Y), device="cuda")
    bad = np.tile(X, (3, 1))
    bad[700, 3] = np.nan
    with pytest.raises(ValueError, match="row 700"):
        explainer.shap_values(bad)
    assert explainer.shap_values(X).shape == X.shape


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("precision", ["single", "double"])
@pytest.mark.parametrize("kind", ["numeric", "vector", "categorical"])
def test_gputreeshap_is_exact(kind: str, precision: str) -> None:
    """Random trees against the definition."""
    from skshapgpu import _core, _cuda

    for seed in range(20):
        ensemble = random_ensemble(
            seed,
            n_trees=12,
            n_features=6,
            n_outputs=2,
            max_leaves=40,
            vector=kind == "vector",
            categorical=kind != "numeric",
            zero_missing=kind == "categorical",
        )
        rows = random_rows(seed, ensemble, 150)
        plan = _core.Plan(attributes_of(ensemble), precision)
        values, margin = np.full((150, 2, 6), np.nan), np.full((150, 2), np.nan)
        _cuda.CudaPlan(plan, 0, "gputreeshap").explain(rows, values, margin, None, 0)
        expected = reference.path_dependent(ensemble, rows).values
        unit = leaf_scale(ensemble)[:, np.newaxis]
        assert (np.abs(values - expected) <= (2e-6 if precision == "single" else 1e-10) * unit).all()
        np.testing.assert_allclose(margin, ensemble.margin(rows), rtol=1e-9, atol=1e-12)


@pytest.mark.usefixtures("gpu")
def test_gputreeshap_explains_models(regressor: Any, multiclass: Any) -> None:
    for model, rows in ((regressor, X), (multiclass, IRIS[0])):
        expected = TreeExplainer(model, device="cpu", precision="double").shap_values(rows)
        explanation = explain(model, rows, algorithm="gputreeshap")
        assert explanation.device == "cuda:0"
        assert_close(explanation.values, expected, 1e-6)


# Arrays on the GPU


@pytest.fixture(scope="module", params=["cupy", "torch"])
def namespace(request: pytest.FixtureRequest, gpu: None) -> Any:
    return pytest.importorskip(request.param)


def put(namespace: Any, array: np.ndarray) -> Any:
    if namespace.__name__ == "torch":
        return namespace.from_numpy(array.copy()).cuda()
    return namespace.asarray(array)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
@pytest.mark.parametrize("model", ["regressor", "multiclass"])
def test_arrays_come_back_where_they_came_from(
    namespace: Any, model: str, dtype: type, request: pytest.FixtureRequest
) -> None:
    fitted, rows = request.getfixturevalue(model), X if model == "regressor" else IRIS[0]
    rows = (rows * (100 if dtype == np.int64 else 1)).astype(dtype)
    passed_rows = put(namespace, rows)
    explanation = TreeExplainer(fitted).explain(passed_rows)
    assert type(explanation.values) is type(passed_rows) and explanation.device == "cuda:0"
    assert str(explanation.values.dtype).endswith("float32" if dtype == np.float32 else "float64")
    expected = TreeExplainer(fitted, device="cpu", precision="double").shap_values(rows)
    assert_close(explanation.values, expected, 1e-6)
    np.testing.assert_allclose(explanation.importance(), np.abs(expected).mean(axis=0), rtol=1e-4, atol=1e-6)
    assert explanation.to_frame().shape[0] == len(rows)


@pytest.mark.parametrize("model", ["regressor", "multiclass"])
def test_values_in_arrays_of_the_caller(namespace: Any, model: str, request: pytest.FixtureRequest) -> None:
    """On the GPU and on the host, the array gets the values that a call without ``out`` returns."""
    fitted, rows = request.getfixturevalue(model), X if model == "regressor" else IRIS[0]
    explainer = TreeExplainer(fitted, device="cuda")
    for values_of in (explainer.shap_values, explainer.shap_interaction_values):
        expected = values_of(rows)
        out = np.full_like(expected, np.nan)
        assert values_of(rows, out=out) is out and (out == expected).all()
        passed_rows = put(namespace, rows)
        there = values_of(passed_rows)
        there[...] = 0
        assert values_of(passed_rows, out=there) is there
        assert (gpu_arrays.to_host(there) == expected).all()
    with pytest.raises(ValueError, match="shares memory"):
        TreeExplainer(request.getfixturevalue("regressor"), device="cuda").shap_values(
            both := put(namespace, X), out=both
        )
    with pytest.raises(TypeError, match="out must be an array of"):
        explainer.shap_values(passed_rows, out=np.empty((len(rows), 1)))


def test_strides(namespace: Any, regressor: Any) -> None:
    expected = TreeExplainer(regressor, device="cuda").shap_values(X)
    spread = np.zeros((2 * len(X), 3 * X.shape[1]))
    spread[::2, ::3] = X
    for container in (put(namespace, spread)[::2, ::3], put(namespace, np.ascontiguousarray(X.T)).T):
        assert (gpu_arrays.to_host(TreeExplainer(regressor).shap_values(container)) == expected).all()


def test_gpu_rows_of_the_wrong_kind(namespace: Any, regressor: Any) -> None:
    explainer = TreeExplainer(regressor)
    with pytest.raises(ValueError, match="has 9 features"):
        explainer.shap_values(put(namespace, X[:, :9]))
    with pytest.raises(ValueError, match="Expected 2D"):
        explainer.shap_values(put(namespace, X[0]))
    with pytest.raises(TypeError, match="real numbers"):
        explainer.shap_values(put(namespace, X.astype(complex)))
    with pytest.raises(ValueError, match="is on cuda:0, but device is 'cpu'"):
        TreeExplainer(regressor, device="cpu").shap_values(put(namespace, X))
    with pytest.raises((TypeError, ValueError), match="the step StandardScaler of the pipeline failed there"):
        TreeExplainer(make_pipeline(StandardScaler(), regressor).fit(X, Y)).shap_values(put(namespace, X))
    bad = X.copy()
    bad[17, 3] = np.inf
    with pytest.raises(ValueError, match="row 17, column x3"):
        explainer.shap_values(put(namespace, bad))


def test_missing_values_on_the_gpu(namespace: Any) -> None:
    rows = np.where(np.random.default_rng(0).random(X.shape) < 0.2, np.nan, X)
    model = HistGradientBoostingRegressor(max_iter=20).fit(rows, Y)
    expected = TreeExplainer(model, device="cpu", precision="double").shap_values(rows)
    assert_close(TreeExplainer(model).shap_values(put(namespace, rows)), expected, 1e-6)


def test_transformer_on_the_gpu(namespace: Any, multiclass: Any) -> None:
    transformer = ShapTransformer.from_fitted(multiclass)
    given = put(namespace, IRIS[0])
    expected = ShapTransformer.from_fitted(multiclass, device="cpu").transform(IRIS[0])
    assert_close(transformer.transform(given), expected, 1e-5)


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("then", ["nothing", "rows of the host", "rows of the GPU"])
def test_the_producers_stream_is_honoured(regressor: Any, then: str) -> None:
    """Rows stay unchanged even if the explainer is used again while the first call waits for its rows."""
    cupy = pytest.importorskip("cupy")
    expected = TreeExplainer(regressor, device="cuda").shap_values(X)
    explainer = TreeExplainer(regressor, device="cuda", check_additivity=False)
    explainer.shap_values(cupy.asarray(X))
    stream, late, others = cupy.cuda.Stream(non_blocking=True), cupy.asarray(X), cupy.asarray(X[::-1].copy())
    pause = cupy.RawKernel(
        'extern "C" __global__ void pause() { for (long long t = clock64(); clock64() - t < 500000000LL;); }',
        "pause",
    )
    pause.compile()
    with stream:
        given = cupy.zeros_like(late)
        pause((1,), (1,), ())
        given[...] = late  # long after shap_values has returned
        values = explainer.shap_values(given)
    if then == "rows of the host":
        assert (explainer.shap_values(X[::-1]) == expected[::-1]).all()
    elif then == "rows of the GPU":
        assert (explainer.shap_values(others).get() == expected[::-1]).all()
    assert (values.get(stream=stream) == expected).all()


@pytest.mark.usefixtures("gpu")
def test_dlpack_alone_is_enough(regressor: Any) -> None:
    cupy = pytest.importorskip("cupy")

    class OnlyDlpack:
        def __init__(self, array: Any) -> None:
            self.array = array

        def __dlpack__(self, **options: Any) -> Any:
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self) -> Any:
            return self.array.__dlpack_device__()

    values = TreeExplainer(regressor).shap_values(OnlyDlpack(cupy.asarray(X)))
    assert (cupy.asnumpy(values) == TreeExplainer(regressor, device="cuda").shap_values(X)).all()


@pytest.mark.usefixtures("gpu")
def test_several_gpus(regressor: Any) -> None:
    n = len(cuda_info()["devices"])
    if n < 2:
        pytest.skip("one GPU")
    rows = np.tile(X, (10, 1))
    names = [f"cuda:{i}" for i in range(n)]
    explanation = explain(regressor, rows, device=names)
    assert explanation.device == ", ".join(names)
    assert (explanation.values == TreeExplainer(regressor, device="cuda:1").shap_values(rows)).all()


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("kind", ["values", "interactions", "tables"])
def test_a_later_model_leaves_earlier_ones_as_they_are(kind: str) -> None:
    """A kernel has one shared memory limit for all models, but models with few columns need less."""

    def explainer_of(n_columns: int) -> TreeExplainer:
        model = RandomForestRegressor(5, max_depth=4, random_state=0).fit(X[:, :n_columns], Y)
        return TreeExplainer(model, X[:20, :n_columns] if kind == "tables" else None, device="cuda")

    def values(explainer: TreeExplainer, n_columns: int) -> np.ndarray:
        rows = X[:100, :n_columns]
        if kind == "interactions":
            return explainer.shap_interaction_values(rows)
        return explainer.shap_values(rows)

    explainers = {n_columns: explainer_of(n_columns) for n_columns in (10, 4, 7)}
    first = {n: values(explainer, n) for n, explainer in explainers.items()}
    for n, explainer in explainers.items():
        np.testing.assert_array_equal(values(explainer, n), first[n])
        np.testing.assert_array_equal(values(pickle.loads(pickle.dumps(explainer)), n), first[n])
