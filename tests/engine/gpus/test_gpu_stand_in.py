"""X on a GPU, and rows from the host that GPUs explain, with stand-ins for ``_cuda`` and CuPy.

The stand-ins compute with the CPU's plans, so values are compared to the bit. test_cuda.py has the tests that
need a real GPU.
"""

from __future__ import annotations

import pickle
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from helpers.checks import shrink_leaves
from helpers.gpu_stand_in import Array, CudaError, CudaMemoryError, CudaPlan, OtherArray, empty, install
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.ensemble import (
    GradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)

from skshapgpu import ShapTransformer, TreeExplainer, _core
from skshapgpu._common import devices, memory
from skshapgpu._common.algorithms import SHAP_VALUES
from skshapgpu._engine.kind_plans import LANES
from skshapgpu._rows import gpu_arrays

X, Y = load_diabetes(return_X_y=True)
IRIS, SPECIES = load_iris(return_X_y=True)
CANCER, BENIGN = load_breast_cancer(return_X_y=True)


@pytest.fixture(autouse=True)
def calls(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Two GPUs and CuPy; the calls of the plans on them."""
    return install(monkeypatch)


@pytest.fixture(scope="module")
def regressor() -> RandomForestRegressor:
    return RandomForestRegressor(6, max_depth=4, random_state=0).fit(X, Y)


@pytest.fixture(scope="module")
def multiclass() -> RandomForestClassifier:
    return RandomForestClassifier(6, max_depth=4, random_state=0).fit(IRIS, SPECIES)


@pytest.fixture(scope="module")
def binary() -> RandomForestClassifier:
    return RandomForestClassifier(6, max_depth=4, random_state=0).fit(CANCER, BENIGN)


CASES = {
    "one output": ("regressor", X, {}),
    "three outputs": ("multiclass", IRIS, {}),
    "both classes": ("binary", CANCER, {"outputs": "all"}),
    "float32": ("regressor", X.astype(np.float32), {}),
    "double precision": ("regressor", X, {"precision": "double"}),
    "integers": ("regressor", (100 * X).astype(np.int32), {}),
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> tuple[Any, np.ndarray, dict[str, Any]]:
    name, rows, options = CASES[request.param]
    return request.getfixturevalue(name), rows, options


@pytest.fixture(params=[None, 60_000], ids=["at once", "in chunks"])
def chunks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param is not None:
        monkeypatch.setattr(memory, "CHUNK_BYTES", request.param)


def test_calls_on_a_gpu_make_no_lanes(calls: list[dict[str, Any]]) -> None:
    model = RandomForestRegressor(20, max_depth=9, random_state=0).fit(X, Y)
    for device, is_in_lanes in (("cuda:0", False), ("cpu", True)):
        explainer = TreeExplainer(model, device=device)
        explainer.explain(X[:1])
        plan = explainer._compiled.of(SHAP_VALUES)
        assert (LANES in plan._plans) == is_in_lanes
    assert [call["n_rows"] for call in calls] == [1]


def test_shap_values(case: Any, calls: list[dict[str, Any]]) -> None:
    model, rows, options = case
    passed_rows = Array(rows)
    explainer = TreeExplainer(model, **options)
    explanation = explainer.explain(passed_rows)
    expected = TreeExplainer(model, device="cpu", algorithm="quadrature", **options).explain(rows)
    assert type(explanation.values) is Array and explanation.values.dtype == expected.values.dtype
    np.testing.assert_array_equal(explanation.values.get(), expected.values)
    np.testing.assert_array_equal(explainer.shap_values(passed_rows).get(), expected.values)
    assert (
        explanation.data is passed_rows and explanation.row_labels is None and explanation.device == "cuda:0"
    )
    assert (
        explanation.feature_names == expected.feature_names
        and explanation.output_names == expected.output_names
    )
    assert explanation.additivity_error == expected.additivity_error
    np.testing.assert_array_equal(explanation.base_values, expected.base_values)
    np.testing.assert_array_equal(explanation.importance(), expected.importance())
    assert [call["n_rows"] for call in calls] == [len(rows)] * 2  # the GPU makes its own batches
    assert calls[0] == {
        "device": 0,
        "n_rows": len(rows),
        "missing": calls[0]["missing"],
        "allow_nan": True,
        "limit": 2.0**128 - 2.0**103,
        "values_float32": rows.dtype == np.float32,
        "checked": True,
        "memory_limit": 0,
        "stream": 7000,
        "parts": (),
    }
    assert np.isnan(calls[0]["missing"])


@pytest.mark.parametrize("pairs", ["occurring", 4, [(3, 0), (1, 2)]])
@pytest.mark.usefixtures("chunks")
def test_interactions(case: Any, pairs: Any, calls: list[dict[str, Any]]) -> None:
    model, rows, options = case
    explanation = TreeExplainer(model, **options).explain_interactions(Array(rows), interactions=pairs)
    expected = TreeExplainer(model, device="cpu", **options).explain_interactions(rows, interactions=pairs)
    assert type(explanation.values) is Array and explanation.device == "cuda:0"
    np.testing.assert_array_equal(explanation.values.get(), expected.values)
    assert explanation.additivity_error == expected.additivity_error
    np.testing.assert_array_equal(explanation.interactions, expected.interactions)
    if expected.strength is not None:
        # The rows' magnitudes are added up in float64, chunk by chunk; each of at most n additions rounds
        # once.
        np.testing.assert_allclose(explanation.strength, expected.strength, rtol=len(rows) * 2.0**-53)
    if expected.single_values is not None:
        assert type(explanation.single_values) is Array
        np.testing.assert_array_equal(explanation.single_values.get(), expected.single_values)
    assert {call["parts"] for call in calls} == {("pairs",)}


@pytest.mark.usefixtures("chunks")
def test_shap_interaction_values(case: Any, calls: list[dict[str, Any]]) -> None:
    model, rows, options = case
    matrices = TreeExplainer(model, **options).shap_interaction_values(Array(rows))
    expected = TreeExplainer(model, device="cpu", **options).shap_interaction_values(rows)
    assert type(matrices) is Array
    np.testing.assert_array_equal(matrices.get(), expected)
    assert {call["parts"] for call in calls} == {("matrices",)}
    explanation = TreeExplainer(model, **options).explain_interactions(Array(rows))
    assert type(explanation.matrices()) is np.ndarray
    off_diagonal = ~np.eye(rows.shape[1], dtype=bool)
    np.testing.assert_array_equal(explanation.matrices()[:, off_diagonal], expected[:, off_diagonal])


@pytest.mark.parametrize("index", [0, 1])
def test_rows_stay_on_their_gpu(regressor: Any, index: int, calls: list[dict[str, Any]]) -> None:
    explanation = TreeExplainer(regressor, device=["cuda:0", "cuda:1"]).explain(Array(X, index))
    assert explanation.device == f"cuda:{index}" and explanation.values.device.id == index
    assert [(call["device"], call["stream"]) for call in calls] == [(index, 7000 + index)]


def test_strides(regressor: Any) -> None:
    expected = TreeExplainer(regressor, device="cpu", algorithm="quadrature").shap_values(X)
    spread = np.zeros((2 * len(X), 3 * X.shape[1]))
    spread[::2, ::3] = X
    for rows in (spread[::2, ::3], np.asfortranarray(X)):
        np.testing.assert_array_equal(TreeExplainer(regressor).shap_values(Array(rows)).get(), expected)


def test_arrays_of_another_library_come_back_as_theirs(regressor: Any) -> None:
    expected = TreeExplainer(regressor, device="cpu").explain_interactions(X, interactions="occurring")
    explanation = TreeExplainer(regressor).explain_interactions(OtherArray(X), interactions="occurring")
    assert type(explanation.values) is type(explanation.single_values) is OtherArray
    np.testing.assert_array_equal(explanation.values.get(), expected.values)


def test_plans_say_why_a_call_is_not_on_a_gpu(regressor: Any) -> None:
    explainer = TreeExplainer(regressor, device="auto")
    assert explainer.plan(1).cpu_reason == "the CPU is estimated to be faster"
    assert explainer.plan(10**8).device == "cuda:0" and explainer.plan(10**8).cpu_reason is None
    assert "not on a GPU" not in str(explainer.plan(10**8))


def test_memory_limit(regressor: Any, calls: list[dict[str, Any]]) -> None:
    explainer = TreeExplainer(regressor, memory_limit=10**9)
    explainer.shap_values(Array(X))
    assert [call["memory_limit"] for call in calls] == [10**9]
    with pytest.raises(MemoryError, match="442 rows"):
        TreeExplainer(regressor, memory_limit=100_000).explain_interactions(Array(X))


def test_nothing_is_checked(regressor: Any, calls: list[dict[str, Any]]) -> None:
    assert TreeExplainer(regressor, check_additivity=False).explain(Array(X)).additivity_error is None
    assert TreeExplainer(regressor).explain(Array(X), index="BV").additivity_error is None
    assert [call["checked"] for call in calls] == [False, False]


def test_gaps_are_judged(regressor: Any) -> None:
    explainer = TreeExplainer(regressor)
    shrink_leaves(explainer, 1e-9)
    with pytest.raises(RuntimeError, match="additivity check failed at row 0: base value"):
        explainer.explain(Array(X))


def test_missing_values() -> None:
    rows = np.where(np.random.default_rng(0).random(X.shape) < 0.2, np.nan, X)
    model = HistGradientBoostingRegressor(max_iter=5).fit(rows, Y)
    expected = TreeExplainer(model, device="cpu", algorithm="quadrature").shap_values(rows)
    np.testing.assert_array_equal(TreeExplainer(model).shap_values(Array(rows)).get(), expected)


@pytest.mark.usefixtures("chunks")
def test_a_refused_number_is_named(regressor: Any) -> None:
    bad = X.copy()
    bad[317, 3] = np.inf
    message = (
        "Input X contains NaN, infinity or a value too large for float32, which the model does not accept: "
        "row 317, column x3"
    )
    for explain in (TreeExplainer(regressor).explain, TreeExplainer(regressor).explain_interactions):
        with pytest.raises(ValueError) as error:
            explain(Array(bad))
        assert str(error.value) == message


@pytest.mark.parametrize("check", [True, False])
def test_a_call_is_checked_on_request(regressor: Any, check: bool, calls: list[dict[str, Any]]) -> None:
    TreeExplainer(regressor, check_additivity=not check).shap_values(Array(X), check_additivity=check)
    assert [call["checked"] for call in calls] == [check]


def test_what_is_no_x_of_the_model(regressor: Any, calls: list[dict[str, Any]]) -> None:
    explainer = TreeExplainer(regressor)
    with pytest.raises(ValueError, match=r"^X has 9 features, but the model expects 10$"):
        explainer.explain(Array(X[:, :9]))
    with pytest.raises(ValueError, match=r"^Expected 2D array, got 1D array instead$"):
        explainer.explain(Array(X[0]))
    with pytest.raises(TypeError, match=r"^X must hold real numbers, not complex128$"):
        explainer.explain(Array(X.astype(complex)))
    with pytest.raises(ValueError, match=r"^X is on cuda:0, but device is 'cpu'$"):
        TreeExplainer(regressor, device="cpu").explain(Array(X))
    with pytest.raises(ValueError, match=r"^X is on cuda:0, but device is 'cuda:1'$"):
        TreeExplainer(regressor, device="cuda:1").explain(Array(X))
    with pytest.raises(ValueError, match=r"^y is for model_output='log_loss', not 'raw': leave it out$"):
        explainer.explain(Array(X), Y)
    with pytest.raises(TypeError, match=r"but X is on a GPU: copy it to the host$"):
        TreeExplainer(regressor, algorithm="treeshap").explain(Array(X))
    with pytest.raises(TypeError, match=r"but data is on a GPU: copy it to the host$"):
        TreeExplainer(regressor, Array(X))
    # Options are checked before X.
    on_cpu = TreeExplainer(regressor, algorithm="treeshap")
    with pytest.raises(TypeError, match="'treeshap' are computed on the CPU only, but X is on a GPU"):
        on_cpu.explain(Array(X[:, :9]))
    assert not calls


@pytest.mark.parametrize("device", ["cuda", ["cuda:0", "cuda:1"]])
def test_rows_from_the_host(case: Any, device: Any, calls: list[dict[str, Any]]) -> None:
    model, rows, options = case
    explanation = TreeExplainer(model, device=device, **options).explain(rows)
    expected = TreeExplainer(model, device="cpu", algorithm="quadrature", **options).explain(rows)
    names = "cuda:0" if device == "cuda" else "cuda:0, cuda:1"
    assert type(explanation.values) is np.ndarray and explanation.device == names
    np.testing.assert_array_equal(explanation.values, expected.values)
    # A row's sum and its margin are rounded in another order, so they may differ by two units in the last
    # place.
    rounding = 2 * np.spacing(
        np.abs(explanation.base_values).max() + np.abs(explanation.values).sum(axis=1).max()
    )
    np.testing.assert_allclose(
        explanation.additivity_error, expected.additivity_error, rtol=0, atol=float(rounding)
    )
    assert sum(call["n_rows"] for call in calls) == len(rows)
    assert {call["device"] for call in calls} == ({0} if device == "cuda" else {0, 1})


def test_auto_falls_back_to_the_cpu(
    regressor: Any, calls: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices.Devices, "choose", lambda self, *seconds: (0,))
    expected = TreeExplainer(regressor, device="cpu").shap_values(X)
    for error in (CudaError("it broke"), CudaMemoryError("it is full")):
        monkeypatch.setattr(CudaPlan, "error", error)
        calls.clear()
        with pytest.raises(type(error), match=str(error)):
            TreeExplainer(regressor, device="cuda").explain(X)
        explanation = TreeExplainer(regressor).explain(X)
        assert explanation.device == "cpu" and [call["device"] for call in calls] == [0, 0]
        np.testing.assert_array_equal(explanation.values, expected)


def test_transformer(multiclass: Any) -> None:
    transformer = ShapTransformer.from_fitted(multiclass)
    expected = ShapTransformer.from_fitted(multiclass, device="cpu", algorithm="quadrature").transform(IRIS)
    np.testing.assert_array_equal(gpu_arrays.to_host(transformer.transform(Array(IRIS))), expected)


# Background data


@pytest.mark.parametrize("index", ["SII", "STII", "BII"])
@pytest.mark.parametrize("pairs", ["occurring", 4, [(3, 0), (1, 2)]])
@pytest.mark.usefixtures("chunks")
def test_interventional_interactions(case: Any, pairs: Any, index: str, calls: list[dict[str, Any]]) -> None:
    """The stand-in looks pairs up in the tables of GPUs, the CPU in tables that it makes for the rows."""
    model, rows, options = case
    explainer = TreeExplainer(model, rows[:30], device=["cuda:0", "cuda:1"], **options)
    on_cpu = TreeExplainer(model, rows[:30], device="cpu", **options)
    expected = on_cpu.explain_interactions(rows, interactions=pairs, index=index)
    atol = 4e-6 * on_cpu._compiled.leaf_magnitude.max()
    for container in (Array(rows), rows):
        explanation = explainer.explain_interactions(container, interactions=pairs, index=index)
        values = explanation.values if container is rows else explanation.values.get()
        assert explanation.device == ("cuda:0, cuda:1" if container is rows else "cuda:0")
        np.testing.assert_allclose(values, expected.values, rtol=0, atol=atol)
        assert (explanation.additivity_error is None) == (index == "BII")
        np.testing.assert_array_equal(explanation.base_values, expected.base_values)
    if index == "SII" and pairs == "occurring":
        matrices = on_cpu.shap_interaction_values(rows)
        for container in (Array(rows), rows):
            explanation = explainer.shap_interaction_values(container)
            values = explanation if container is rows else explanation.get()
            np.testing.assert_allclose(values, matrices, rtol=0, atol=atol)
    assert {call["device"] for call in calls} == {0, 1}


def test_interventional_banzhaf_values(case: Any, calls: list[dict[str, Any]]) -> None:
    model, rows, options = case
    explainer = TreeExplainer(model, rows[:30], device="cuda", **options)
    expected = TreeExplainer(model, rows[:30], device="cpu", **options).explain(rows, index="BV")
    atol = 4e-6 * explainer._compiled.leaf_magnitude.max()
    for container in (Array(rows), rows):
        values = explainer.explain(container, index="BV").values
        np.testing.assert_allclose(
            values if container is rows else values.get(), expected.values, rtol=0, atol=atol
        )
    assert [call["n_rows"] for call in calls] == [len(rows)] * 2


def test_interventional_interactions_of_groups(regressor: Any) -> None:
    options: dict[str, Any] = {"feature_groups": {"a": [0, 2, 5], "b": [3, 4]}, "precision": "double"}
    on_cpu = TreeExplainer(regressor, X[:30], device="cpu", **options)
    expected = on_cpu.explain_interactions(X, interactions="occurring")
    explanation = TreeExplainer(regressor, X[:30], device="cuda", **options).explain_interactions(
        X, interactions="occurring"
    )
    np.testing.assert_array_equal(explanation.interactions, expected.interactions)
    atol = 1e-12 * on_cpu._compiled.leaf_magnitude.max()
    np.testing.assert_allclose(explanation.values, expected.values, rtol=0, atol=atol)


def test_auto_takes_the_gpu_for_many_interventional_interactions(regressor: Any) -> None:
    explainer = TreeExplainer(regressor, X[:30], n_jobs=1)
    many = np.resize(X, (100_000, X.shape[1]))
    assert explainer.explain_interactions(X[:5], interactions=[(0, 1)]).device == "cpu"
    assert explainer.explain_interactions(many, interactions=[(0, 1)]).device == "cuda:0"
    assert explainer.explain(many, index="BV").device == "cuda:0"
    pickled = pickle.loads(pickle.dumps(explainer))
    assert pickled.explain(many, index="BV").device == "cuda:0"


@pytest.fixture
def boosting(monkeypatch: pytest.MonkeyPatch) -> GradientBoostingClassifier:
    monkeypatch.setattr(_core, "RescaledTables", lambda plan, *arguments: plan)
    return GradientBoostingClassifier(n_estimators=6, random_state=0).fit(CANCER, BENIGN)


@pytest.mark.parametrize("outputs", ["auto", "all"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_probabilities(boosting: Any, outputs: str, dtype: type, calls: list[dict[str, Any]]) -> None:
    rows, options = CANCER.astype(dtype), {"model_output": "probability", "outputs": outputs}
    expected = TreeExplainer(boosting, CANCER[:20], device="cpu", **options).explain(rows)
    explainer = TreeExplainer(boosting, CANCER[:20], device=["cuda:0", "cuda:1"], **options)
    explanation = explainer.explain(rows)
    assert explanation.device == "cuda:0, cuda:1" and sorted(call["n_rows"] for call in calls) == [284, 285]
    on_gpu = explainer.explain(Array(rows))
    assert on_gpu.device == "cuda:0"
    for values in (explanation.values, on_gpu.values.get()):
        np.testing.assert_array_equal(values, expected.values)
    assert explanation.additivity_error == on_gpu.additivity_error == expected.additivity_error


def test_losses(boosting: Any, calls: list[dict[str, Any]]) -> None:
    options = {"model_output": "log_loss"}
    expected = TreeExplainer(boosting, CANCER[:20], device="cpu", **options).explain(CANCER, BENIGN)
    explainer = TreeExplainer(boosting, CANCER[:20], device=["cuda:0", "cuda:1"], **options)
    for rows in (CANCER, Array(CANCER)):
        explanation = explainer.explain(rows, BENIGN)
        values = explanation.values if rows is CANCER else explanation.values.get()
        np.testing.assert_array_equal(values, expected.values)
        np.testing.assert_array_equal(explanation.base_values, expected.base_values)
    wrong = CANCER.copy()
    wrong[5, 2] = np.inf
    with pytest.raises(ValueError, match="row 5, column"):
        explainer.explain(Array(wrong), BENIGN)
    link = explainer._compiled.link
    assert link is not None
    explainer._compiled.link = replace(link, scale=3.0)  # as if the library had another one
    for rows in (CANCER, Array(CANCER)):
        with pytest.raises(RuntimeError, match="additivity check failed at row 0"):
            explainer.explain(rows, BENIGN)


def test_auto_takes_the_gpu_for_many_pairs(boosting: Any) -> None:
    for model_output, labels in (("probability", None), ("log_loss", BENIGN)):
        explainer = TreeExplainer(boosting, CANCER, model_output=model_output, n_jobs=1)
        assert explainer.explain(CANCER[:2], None if labels is None else labels[:2]).device == "cpu"
        many = np.resize(CANCER, (5000, CANCER.shape[1]))
        assert explainer.explain(many, None if labels is None else np.resize(labels, 5000)).device == "cuda:0"


@pytest.fixture(scope="module")
def wide() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(2000, 40))


def test_long_paths(wide: np.ndarray, calls: list[dict[str, Any]]) -> None:
    """Leaves on paths of more than 12 features have no tables."""
    model = RandomForestRegressor(1, max_depth=30, random_state=0).fit(wide, wide @ np.arange(40.0))
    on_cpu = TreeExplainer(model, wide[:9], device="cpu")
    explainer = TreeExplainer(model, wide[:9], device="cuda")
    assert explainer.model_info()["n_leaves_without_table"] > 0
    rows = wide[:5]
    for x in (rows, Array(rows)):
        values = explainer.shap_values(x)
        np.testing.assert_array_equal(values if x is rows else values.get(), on_cpu.shap_values(rows))
        explanation = explainer.explain_interactions(x, interactions=[(3, 4)])
        expected = on_cpu.explain_interactions(rows, interactions=[(3, 4)])
        pairs = explanation.values if x is rows else explanation.values.get()
        np.testing.assert_allclose(pairs, expected.values, rtol=0, atol=1e-4)
        assert explanation.device == "cuda:0"
        assert explanation.additivity_error is not None and explanation.additivity_error < 1e-2
    assert len(calls) >= 4 and np.abs(expected.values).max() > 1e-2


def test_probabilities_of_long_paths(wide: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_core, "RescaledTables", lambda plan, *arguments: plan)
    y = (wide @ np.arange(40.0) > 0).astype(int)
    model = GradientBoostingClassifier(n_estimators=1, max_depth=30, random_state=0).fit(wide, y)
    options: dict[str, Any] = {"model_output": "probability"}
    expected = TreeExplainer(model, wide[:9], device="cpu", **options).explain(wide)
    explanation = TreeExplainer(model, wide[:9], device="cuda", **options).explain(wide)
    assert explanation.device == "cuda:0"
    np.testing.assert_array_equal(explanation.values, expected.values)
    monkeypatch.setattr("skshapgpu._engine.compiled_model._GPU_TABLE_BYTES", 1000)
    for rows, device, error in ((wide, "cuda", ValueError), (Array(wide), "auto", TypeError)):
        with pytest.raises(error, match=r"tables do not fit into memory .* computed on the CPU only"):
            TreeExplainer(model, wide[:9], device=device, **options).explain(rows)
    assert TreeExplainer(model, wide[:9], **options).explain(wide).device == "cpu"


def test_owen_values(regressor: RandomForestRegressor, calls: list[dict[str, Any]]) -> None:
    groups = {"a": [0, 3, 5], "b": [1, 2]}
    for data in (None, X[:30]):
        expected = TreeExplainer(regressor, data, feature_groups=groups, device="cpu").explain(X, index="OV")
        for rows in (X, Array(X)):
            explanation = TreeExplainer(regressor, data, feature_groups=groups, device="cuda").explain(
                rows, index="OV"
            )
            assert explanation.device == "cuda:0" and explanation.additivity_error is not None
            values = explanation.values if rows is X else explanation.values.get()
            np.testing.assert_allclose(values, expected.values, rtol=0, atol=1e-4)
    assert len(calls) == 4
    few = TreeExplainer(regressor, feature_groups=groups, device="auto")
    assert few.plan(1, index="OV").cpu_reason == "the CPU is estimated to be faster"
    assert few.plan(10**7, index="OV").device == "cuda:0"


def test_owen_values_have_tables(regressor: RandomForestRegressor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "hold_tables", lambda indices: True)
    monkeypatch.setattr(_core, "has_owen_leaves", lambda plan: False)  # the stand-in only walks
    options: dict[str, Any] = {"feature_groups": {"a": [0, 3, 5], "b": [1, 2]}, "precision": "double"}
    expected = TreeExplainer(regressor, device="cpu", **options).explain(X, index="OV")
    explainer = TreeExplainer(regressor, device="cuda", expected_rows=10**8, **options)
    explanation = explainer.explain(X, index="OV")
    np.testing.assert_allclose(explanation.values, expected.values, rtol=0, atol=1e-10)
    assert any(intervals.on_gpu for kind, intervals in explainer._compiled.table_sizes if kind.index == "OV")


def test_owen_values_of_long_paths(wide: np.ndarray) -> None:
    y = wide @ np.arange(40.0)
    model = RandomForestRegressor(2, max_depth=30, random_state=0).fit(wide, y)
    options: dict[str, Any] = {"feature_groups": {"half": list(range(20))}}
    for rows, device, error in ((wide, "cuda", ValueError), (Array(wide), "auto", TypeError)):
        with pytest.raises(error, match=r"paths are too long for tables are computed on the CPU only"):
            TreeExplainer(model, wide[:9], device=device, **options).explain(rows, index="OV")
    explainer = TreeExplainer(model, wide[:9], **options)
    assert explainer.explain(wide, index="OV").device == "cpu"
    assert explainer.plan(10**6, index="OV").cpu_reason == "these values are computed on the CPU only"


# Arrays of the caller


@pytest.mark.usefixtures("chunks")
def test_values_in_an_array_on_the_gpu(case: Any) -> None:
    model, rows, options = case
    explainer = TreeExplainer(model, **options)
    expected = TreeExplainer(model, device="cpu", algorithm="quadrature", **options)
    for values_of, values in (
        (explainer.shap_values, expected.shap_values(rows)),
        (explainer.shap_interaction_values, expected.shap_interaction_values(rows)),
    ):
        several = explainer.output_names is not None
        core = values.swapaxes(1, -1) if several else values[:, None]
        place = empty(core.shape, core.dtype)
        out = place.swapaxes(1, core.ndim - 1) if several else place[:, 0]
        assert values_of(Array(rows), out=out) is out
        np.testing.assert_array_equal(out.get(), values)


@pytest.mark.parametrize(
    ("out", "error", "message"),
    [
        (
            np.empty(X.shape),
            TypeError,
            "read by cupy, so out must be an array of cupy on that GPU, not a numpy",
        ),
        (OtherArray(np.empty(X.shape)), TypeError, "not a other_gpu_library.arrays.OtherArray"),
        (Array(np.empty(X.shape), 1), ValueError, "out is on cuda:1, but X is on cuda:0"),
        (Array(np.empty(X.shape, "f4")), ValueError, "out must be float64, .* not float32"),
        (Array(np.empty((9, 10))), ValueError, r"not \(9, 10\)"),
        (Array(np.empty(X.shape, order="F")), ValueError, "C-contiguous"),
        (Array(X), ValueError, "shares memory"),
        (Array(X[::-1]), ValueError, "C-contiguous"),
    ],
    ids=["host", "library", "GPU", "dtype", "shape", "order", "X", "reversed"],
)
def test_wrong_arrays_on_the_gpu(
    regressor: Any, out: Any, error: type[Exception], message: str, calls: list[dict[str, Any]]
) -> None:
    with pytest.raises(error, match=message):
        TreeExplainer(regressor).shap_values(Array(X), out=out)
    assert not calls


def test_memory_of_rows_on_the_gpu() -> None:
    both = np.concatenate([X, X])
    first, second = Array(both[: len(X)]), Array(both[len(X) :])
    for rows in (both[: len(X)], both[: len(X)][::-1], both[: len(X), ::3]):
        given: Any = SimpleNamespace(array=Array(rows), dtype=rows.dtype)
        assert gpu_arrays.shares_memory(first, given) and not gpu_arrays.shares_memory(second, given)


@pytest.mark.parametrize("names", ["cuda:0", ["cuda:0", "cuda:1"]])
def test_rows_of_the_host_in_an_array_with_a_memory_limit(case: Any, names: Any) -> None:
    """The array does not count towards the memory limit, so it may be larger."""
    model, rows, options = case
    explainer = TreeExplainer(model, device=names, memory_limit=200_000, **options)
    expected = TreeExplainer(model, device="cpu", algorithm="quadrature", **options).shap_values(rows)
    many = np.tile(rows, (30, 1))
    repeated = np.concatenate([expected] * 30)
    out = np.full((len(many), *expected.swapaxes(1, -1).shape[1:]), np.nan, expected.dtype)
    out = out if expected.ndim == 2 else out.swapaxes(1, 2)
    assert out.nbytes > 200_000 and explainer.shap_values(many, out=out) is out
    np.testing.assert_allclose(out, repeated, rtol=1e-5, atol=1e-6 * np.abs(expected).max())
