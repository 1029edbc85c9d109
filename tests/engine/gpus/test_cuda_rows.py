"""X on a GPU that has to be converted: categories and steps of a pipeline, with CuPy and PyTorch.

test_gpu_rows_stand_in.py has more cases, and those of data frames of cuDF.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from helpers.families import library
from helpers.gpu_rows import CODES, code_models, numbers_of_categories
from sklearn.ensemble import RandomForestRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from skshapgpu import ShapTransformer, TreeExplainer, cuda_info, explain, reference
from skshapgpu._rows.gpu_arrays import address, to_host
from skshapgpu._rows.gpu_columns import distinct
from skshapgpu._rows.inputs import read
from skshapgpu.adapters import adapt
from skshapgpu.adapters.ensemble import attributes_of

pytest.importorskip("skshapgpu._cuda")


@pytest.fixture(autouse=True)
def auto(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clear the device that the test run sets, so that "auto" chooses one in these tests."""
    monkeypatch.delenv("SKSHAPGPU_DEVICE", raising=False)


@pytest.fixture(scope="module", params=["cupy", "torch"])
def namespace(request: pytest.FixtureRequest, gpu: None) -> Any:
    return pytest.importorskip(request.param)


def put(namespace: Any, array: np.ndarray) -> Any:
    if namespace.__name__ == "torch":
        return namespace.from_numpy(np.ascontiguousarray(array)).cuda()
    return namespace.asarray(array)


def by_definition(model: Any, rows: np.ndarray) -> np.ndarray:
    """Compute SHAP values of rows from the definition."""
    adapted = adapt(model)
    encoded = read(rows, adapted.schema, adapted.ensemble.x_dtype).chunk(0, len(rows))
    return reference.path_dependent(adapted.ensemble, encoded).values[:, 0]


@pytest.mark.parametrize("kind", CODES)
@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "int16", "uint8"])
def test_codes(namespace: Any, kind: str, dtype: str) -> None:
    model, rows = code_models(kind)
    if dtype.startswith("float"):
        rows = numbers_of_categories(rows)
    rows = rows.astype(dtype)
    passed_rows = put(namespace, rows)
    if kind == "catboost" and dtype.startswith("float"):
        with pytest.raises(
            ValueError, match=r"column '1' is categorical but holds .*: CatBoost takes integers"
        ):
            explain(model, passed_rows)
        return
    expected = by_definition(model, rows)
    scale = np.abs(expected).max()
    assert scale > 0.5
    for precision, error in (("single", 1e-5), ("double", 1e-6 if dtype == "float32" else 1e-12)):
        explanation = TreeExplainer(model, precision=precision).explain(passed_rows)
        assert type(explanation.values) is type(passed_rows) and explanation.device == "cuda:0"
        assert str(explanation.values.dtype).endswith("float32" if dtype == "float32" else "float64")
        np.testing.assert_allclose(to_host(explanation.values), expected, rtol=0, atol=error * scale)
        assert explanation.additivity_error is not None and explanation.data is passed_rows
    on_host = TreeExplainer(model, device="cuda", precision="double").shap_values(rows)
    np.testing.assert_allclose(to_host(explanation.values), on_host, rtol=0, atol=error * scale)
    assert explanation.to_frame().shape[0] == len(rows)


@pytest.mark.parametrize("kind", CODES)
def test_interactions_of_codes(namespace: Any, kind: str) -> None:
    model, rows = code_models(kind)
    expected = TreeExplainer(model, device="cpu", precision="double").explain_interactions(
        rows, interactions=3
    )
    explanation = TreeExplainer(model, precision="double").explain_interactions(
        put(namespace, rows), interactions=3
    )
    np.testing.assert_array_equal(explanation.interactions, expected.interactions)
    scale = np.abs(expected.values).max()
    np.testing.assert_allclose(to_host(explanation.values), expected.values, rtol=0, atol=1e-12 * scale)


@pytest.mark.parametrize("missing", [0.0, 2.0])
def test_numbers_that_mean_missing(namespace: Any, missing: float) -> None:
    xgboost = library("xgboost")
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.integers(-1, 4, 200), rng.integers(0, 5, 200)])
    y = np.where(rows[:, 0] == missing, 3.0, rows[:, 0]) + np.array([5.0, 0, 2, 7, 1])[rows[:, 1]]
    options = {"enable_categorical": True, "feature_types": ["q", "c"], "n_jobs": 1}
    model = xgboost.XGBRegressor(n_estimators=6, max_depth=3, missing=missing, **options).fit(rows, y)
    for dtype in ("int64", "float32", "float64"):
        expected = by_definition(model, rows.astype(dtype))
        values = TreeExplainer(model, precision="double").shap_values(put(namespace, rows.astype(dtype)))
        np.testing.assert_allclose(to_host(values), expected, rtol=0, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize("kind", ["sklearn", "xgboost"])
def test_strided_codes_and_few_rows(namespace: Any, kind: str) -> None:
    model, rows = code_models(kind)
    spread = np.zeros((2 * len(rows), 3 * rows.shape[1]), np.int32)
    spread[::2, ::3] = rows
    explainer = TreeExplainer(model)
    expected = to_host(explainer.shap_values(put(namespace, rows)))
    for container in (put(namespace, spread)[::2, ::3], put(namespace, np.ascontiguousarray(rows.T)).T):
        np.testing.assert_array_equal(to_host(explainer.shap_values(container)), expected)
    for n in (0, 1):
        values = explainer.shap_values(put(namespace, rows)[:n])
        assert tuple(values.shape) == (n, 4)
        scale = np.abs(expected).max()
        np.testing.assert_allclose(to_host(values), expected[:n], rtol=0, atol=1e-5 * scale)


def test_refused_numbers(namespace: Any) -> None:
    model, rows = code_models("xgboost")
    for value, feature in ((np.inf, 0), (np.inf, 1), (1e39, 1), (-1e39, 3)):
        bad = rows.astype(np.float64)
        bad[7, feature] = value
        if value < 0:  # any negative number is an unknown category
            expected = TreeExplainer(model, device="cuda").shap_values(bad)
            np.testing.assert_array_equal(to_host(explain(model, put(namespace, bad)).values), expected)
            continue
        with pytest.raises(ValueError, match=f"which the model does not accept: row 7, column x{feature}$"):
            explain(model, put(namespace, bad))
    model, rows = code_models("sklearn")
    bad = rows.astype(np.float64)
    bad[7, 1] = np.inf
    with pytest.raises(ValueError, match="column '1' contains infinity, which is no category"):
        explain(model, put(namespace, bad))


def test_a_refused_number_of_a_later_batch(namespace: Any) -> None:
    """There is memory for one batch at a time, of the fewest rows."""
    from skshapgpu import _core, _cuda

    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 3)).astype(np.float32)
    model = RandomForestRegressor(5, max_depth=5, random_state=0).fit(X, X.sum(axis=1))
    X[900, 1] = np.inf
    rows, values = put(namespace, X), put(namespace, np.zeros((1000, 1, 3), np.float32))
    cuda = _cuda.CudaPlan(_core.Plan(attributes_of(adapt(model).ensemble), "single"), 0)

    def refused(memory_limit: int) -> int:
        array = _cuda.DeviceArray(address(rows), True, 1000, 12, 4)
        return cuda.explain_device(
            array, np.nan, True, float(np.finfo(np.float32).max), address(values), True, None, memory_limit, 0
        )

    with pytest.raises(_cuda.CudaMemoryError) as error:
        refused(1)
    least = re.search(r"needs (\d+) bytes", str(error.value))
    assert least is not None and refused(int(least[1])) == refused(0) == 900 * 3 + 1


@pytest.mark.parametrize(
    "options", [{"columns": "used"}, {"feature_groups": {"both": [0, 1], "others": [2, 3]}}]
)
def test_columns_and_groups_of_codes(namespace: Any, options: dict[str, Any]) -> None:
    model, rows = code_models("xgboost")
    passed_rows = put(namespace, rows)
    expected = TreeExplainer(model, device="cpu", precision="double", **options).explain(rows)
    explanation = TreeExplainer(model, precision="double", **options).explain(passed_rows)
    scale = np.abs(expected.values).max()
    np.testing.assert_allclose(to_host(explanation.values), expected.values, rtol=0, atol=1e-12 * scale)
    assert explanation.feature_names == expected.feature_names
    part = explanation[[4, 2]]
    np.testing.assert_array_equal(to_host(part.values), to_host(explanation.values)[[4, 2]])
    if "feature_groups" in options:
        np.testing.assert_array_equal(part.data, expected[[4, 2]].data)
    else:
        np.testing.assert_array_equal(to_host(part.data), rows[[4, 2]])


def test_distinct_numbers(namespace: Any) -> None:
    rows = np.array([1.5, np.nan, 0.0, -0.0, np.nan, np.inf, 1.5])
    for dtype in ("float64", "float32", "float16"):
        values, places = distinct(put(namespace, rows.astype(dtype)))
        assert values.dtype == dtype and len(values) == 5
        np.testing.assert_array_equal(values[to_host(places)], rows.astype(dtype))
    for dtype in ("int8", "int64", "uint8", "bool"):
        numbers = np.array([3, 0, 3, 1, 255], "int64").astype(dtype)
        values, places = distinct(put(namespace, numbers))
        assert values.dtype == dtype
        np.testing.assert_array_equal(values[to_host(places)], numbers)
    values, places = distinct(put(namespace, rows[:0]))
    assert len(values) == 0


@pytest.mark.usefixtures("gpu")
def test_codes_on_the_producers_stream() -> None:
    cupy = pytest.importorskip("cupy")
    model, rows = code_models("xgboost")
    explainer = TreeExplainer(model, device="cuda", check_additivity=False)
    expected, late = explainer.shap_values(cupy.asarray(rows)).get(), cupy.asarray(rows)
    pause = cupy.RawKernel(
        'extern "C" __global__ void pause() { for (long long t = clock64(); clock64() - t < 300000000LL;); }',
        "pause",
    )
    pause.compile()
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        given = cupy.zeros_like(late)
        pause((1,), (1,), ())
        given[...] = late
        values = explainer.shap_values(given)
    assert (values.get(stream=stream) == expected).all()


@pytest.mark.usefixtures("gpu")
def test_codes_stay_on_their_gpu() -> None:
    cupy, torch = pytest.importorskip("cupy"), pytest.importorskip("torch")
    if len(cuda_info()["devices"]) < 2:
        pytest.skip("needs two GPUs")
    model, rows = code_models("xgboost")
    expected = TreeExplainer(model, device="cuda:1").shap_values(rows)
    with cupy.cuda.Device(1):
        passed_rows = cupy.asarray(rows)
    for X in (passed_rows, torch.from_numpy(rows).to("cuda:1")):
        explanation = explain(model, X)
        assert explanation.device == "cuda:1"
        np.testing.assert_allclose(
            to_host(explanation.values), expected, rtol=0, atol=1e-5 * np.abs(expected).max()
        )


@pytest.mark.usefixtures("gpu")
def test_transformer_fitted_on_the_gpu() -> None:
    cupy, xgboost = pytest.importorskip("cupy"), library("xgboost")
    if not xgboost.build_info()["USE_CUDA"]:
        pytest.skip("this XGBoost trains on the CPU only")
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(300, 4)).astype(np.float32)
    y = rows[:, 0] * rows[:, 2] + 3 * rows[:, 3]
    transformer = ShapTransformer(xgboost.XGBRegressor(n_estimators=6, max_depth=4, device="cuda"))
    transformer.fit(cupy.asarray(rows), cupy.asarray(y))
    values = transformer.transform(cupy.asarray(rows))
    assert type(values) is cupy.ndarray
    expected = np.abs(values.get()).mean(axis=0, dtype=np.float64)
    np.testing.assert_allclose(transformer.feature_importances_, expected, rtol=1e-5)


# Steps of a pipeline


ROWS = np.random.default_rng(0).normal(size=(150, 4))
TARGET = ROWS[:, 0] * ROWS[:, 2] + ROWS[:, 3]


def test_steps_that_stay_on_the_gpu(namespace: Any) -> None:
    steps = FunctionTransformer(lambda X: X * 2), FunctionTransformer(lambda X: X[:, [3, 2, 1, 0]])
    forest = RandomForestRegressor(5, max_depth=6, random_state=0)
    model = make_pipeline(*steps, forest).fit(ROWS, TARGET)
    given = put(namespace, ROWS)
    explanation = TreeExplainer(model, precision="double").explain(given)
    expected = by_definition(forest, (ROWS * 2)[:, ::-1])
    assert type(explanation.values) is type(given) and explanation.device == "cuda:0"
    np.testing.assert_allclose(
        to_host(explanation.values), expected, rtol=0, atol=1e-12 * np.abs(expected).max()
    )
    transformer = ShapTransformer.from_fitted(model, precision="double")
    np.testing.assert_array_equal(to_host(transformer.transform(given)), to_host(explanation.values))


def test_groups_by_input_behind_steps(namespace: Any) -> None:
    step = FunctionTransformer(feature_names_out="one-to-one")
    model = make_pipeline(step, RandomForestRegressor(5, max_depth=4, random_state=0)).fit(ROWS, TARGET)
    expected = explain(model, ROWS, feature_groups="input", device="cpu", precision="double")
    explanation = explain(model, put(namespace, ROWS), feature_groups="input", precision="double")
    scale = np.abs(expected.values).max()
    np.testing.assert_allclose(to_host(explanation.values), expected.values, rtol=0, atol=1e-12 * scale)
    np.testing.assert_array_equal(to_host(explanation.data), ROWS)


def test_categories_behind_steps(namespace: Any) -> None:
    model, rows = code_models("xgboost")
    pipeline = make_pipeline(FunctionTransformer(lambda X: X[:, [3, 2, 1, 0]]), model)
    explanation = explain(pipeline, put(namespace, rows[:, ::-1].copy()), precision="double")
    expected = by_definition(model, rows)
    np.testing.assert_allclose(
        to_host(explanation.values), expected, rtol=0, atol=1e-12 * np.abs(expected).max()
    )


def test_steps_on_the_host_are_named(namespace: Any) -> None:
    forest = RandomForestRegressor(5, max_depth=4, random_state=0)
    model = make_pipeline(StandardScaler(), forest).fit(ROWS, TARGET)
    message = r"(?s)the step StandardScaler of the pipeline failed there: .*copy X to the host$"
    with pytest.raises((TypeError, ValueError), match=message):
        explain(model, put(namespace, ROWS))
    copying = FunctionTransformer(lambda X: X if isinstance(X, np.ndarray) else to_host(X))
    with pytest.raises(
        TypeError, match="the step FunctionTransformer of the pipeline returns a ndarray on the"
    ):
        explain(make_pipeline(copying, forest).fit(ROWS, TARGET), put(namespace, ROWS))


ARRAY_API = """
import sys
import numpy as np
from sklearn import config_context
from sklearn.ensemble import RandomForestRegressor
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from skshapgpu import explain
rows = np.random.default_rng(0).normal(3.0, 2.0, (150, 4))
if sys.argv[1] == "cupy":
    import cupy
    X, to_host = cupy.asarray(rows), cupy.asnumpy
else:
    import torch
    X, to_host = torch.from_numpy(rows).cuda(), lambda array: array.cpu().numpy()
with config_context(array_api_dispatch=True):
    scaler = StandardScaler().fit(X)
    scaled = to_host(scaler.transform(X))
model = RandomForestRegressor(5, max_depth=6, random_state=0).fit(scaled, rows[:, 0] * rows[:, 2])
with config_context(array_api_dispatch=True):
    found = explain(Pipeline([("scale", scaler), ("model", model)]), X, precision="double")
expected = explain(model, scaled, precision="double", device="cpu")
assert type(found.values) is type(X) and found.device == "cuda:0"
scale = np.abs(expected.values).max()
np.testing.assert_allclose(to_host(found.values), expected.values, rtol=0, atol=1e-12 * scale)
np.testing.assert_array_equal(to_host(found.data), scaled)
"""


def test_steps_with_the_array_api_of_scikit_learn(namespace: Any) -> None:
    environment = {**os.environ, "SCIPY_ARRAY_API": "1"}
    subprocess.run([sys.executable, "-c", ARRAY_API, namespace.__name__], env=environment, check=True)
