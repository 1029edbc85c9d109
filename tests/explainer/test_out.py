"""Values in an array of the caller: ``shap_values(X, out=)`` and ``shap_interaction_values(X, out=)``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestClassifier, RandomForestRegressor

from skshapgpu import TreeExplainer, reference
from skshapgpu.adapters import adapt

DIABETES, PROGRESSION = load_diabetes(return_X_y=True)
IRIS, SPECIES = load_iris(return_X_y=True)
CANCER, BENIGN = load_breast_cancer(return_X_y=True)

#: Few features, so that the definition is fast; some values are missing, one feature is a category, and the
#: targets are far from zero.
ROWS = DIABETES[:, [2, 8, 0, 1, 3]].copy()
ROWS[::7, 0] = ROWS[3::5, 3] = np.nan
ROWS[:, 4] = np.digitize(ROWS[:, 4], np.quantile(ROWS[:, 4], [0.2, 0.4, 0.6, 0.8]))


def boosting() -> Any:
    model = HistGradientBoostingRegressor(max_iter=8, max_depth=4, categorical_features=[4], random_state=0)
    return model.fit(ROWS, PROGRESSION - 10_000)


def two_targets() -> Any:
    targets = np.column_stack([PROGRESSION + 500, -PROGRESSION])
    return RandomForestRegressor(5, max_depth=4, random_state=0).fit(ROWS, targets)


MODELS = {"boosting": boosting, "two targets": two_targets}


def empty(shape: tuple[int, ...], n_outputs: int, dtype: Any = np.float64) -> np.ndarray:
    """Return an array with NaN in the layout that the core writes."""
    if n_outputs == 1:
        return np.full(shape, np.nan, dtype)
    return np.full((shape[0], n_outputs, *shape[1:]), np.nan, dtype).swapaxes(1, len(shape))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", MODELS)
def test_values_are_those_of_the_definition(name: str, dtype: str) -> None:
    model = MODELS[name]()
    ensemble, explainer = adapt(model).ensemble, TreeExplainer(model, precision="double", device="cpu")
    X = ROWS[:40].astype(dtype)
    encoded = explainer._reader.read_on_host(X).chunk(0, len(X))
    n_outputs = len(explainer.output_names or (None,))
    for expected, values_of, out in (
        (
            reference.path_dependent(ensemble, encoded).values,
            explainer.shap_values,
            empty((40, 5), n_outputs, dtype),
        ),
        (
            reference.path_dependent(ensemble, encoded, index="SII").values,
            explainer.shap_interaction_values,
            empty((40, 5, 5), n_outputs, dtype),
        ),
    ):
        assert values_of(X, out=out) is out
        result = out[:, None] if n_outputs == 1 else np.moveaxis(out, -1, 1)
        scale = np.abs(expected).max()
        np.testing.assert_allclose(result, expected, atol=(2e-7 if dtype == "float32" else 1e-12) * scale)


CASES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "both classes": (
        RandomForestClassifier(5, max_depth=4, random_state=0).fit(CANCER, BENIGN),
        CANCER,
        {"outputs": "all"},
    ),
    "used columns": (
        RandomForestClassifier(2, max_depth=2, random_state=0).fit(CANCER, BENIGN),
        CANCER,
        {"columns": "used"},
    ),
    "groups": (
        RandomForestClassifier(5, max_depth=4, random_state=0).fit(IRIS, SPECIES),
        IRIS,
        {"feature_groups": {"petal": [2, 3]}},
    ),
    "background": (
        RandomForestClassifier(5, max_depth=4, random_state=0).fit(IRIS, SPECIES),
        IRIS,
        {"data": IRIS[::9]},
    ),
    "probabilities": (
        RandomForestClassifier(5, max_depth=4, random_state=0).fit(CANCER, BENIGN),
        CANCER[:50],
        {"data": CANCER[::99], "model_output": "probability"},
    ),
    "small memory": (
        RandomForestRegressor(5, max_depth=4, random_state=0).fit(DIABETES, PROGRESSION),
        np.tile(DIABETES, (40, 1)),
        {"memory_limit": 2**20},
    ),
    "sparse": (
        RandomForestRegressor(5, max_depth=4, random_state=0).fit(DIABETES, PROGRESSION),
        sp.csr_array(np.where(np.abs(DIABETES) > 0.04, DIABETES, 0)),
        {},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_values_are_the_same_as_without_out(name: str) -> None:
    model, X, options = CASES[name]
    explainer = TreeExplainer(model, device="cpu", **options)
    free = TreeExplainer(model, device="cpu", **options | {"memory_limit": None, "algorithm": "quadrature"})
    if name != "small memory":
        free = explainer
    expected = free.shap_values(X)
    out = empty(expected.shape[:2], expected.shape[2] if expected.ndim > 2 else 1)
    assert explainer.shap_values(X, out=out) is out
    np.testing.assert_allclose(out, expected, rtol=0, atol=1e-6 if name == "small memory" else 0)
    assert explainer.shap_values(X, out=expected) is expected  # earlier values have the layout
    if name != "probabilities" and name != "small memory":
        pairs = explainer.shap_interaction_values(X)
        again = np.full_like(pairs, np.nan)
        np.testing.assert_array_equal(explainer.shap_interaction_values(X, out=again), pairs)


def test_a_result_larger_than_the_memory_limit(tmp_path: Any) -> None:
    """The array does not count towards the memory limit, and may be in a file."""
    model, X, options = CASES["small memory"]
    explainer = TreeExplainer(model, device="cpu", **options)
    with pytest.raises(MemoryError, match="memory_limit"):
        explainer.shap_values(X)
    out = np.lib.format.open_memmap(tmp_path / "values.npy", "w+", np.float64, X.shape)
    half = len(X) // 2
    for rows in (slice(half), slice(half, None)):
        explainer.shap_values(X[rows], out=out[rows])
    out.flush()
    expected = TreeExplainer(model, device="cpu", algorithm="quadrature").shap_values(X)
    np.testing.assert_allclose(np.load(tmp_path / "values.npy"), expected, atol=1e-6)


GOOD = np.full((150, 3, 4), 7.0).swapaxes(1, 2)


@pytest.mark.parametrize(
    ("out", "error", "message"),
    [
        ([[1.0]], TypeError, "out must be an array of NumPy, not a list"),
        (np.ma.masked_array(GOOD), TypeError, "not a MaskedArray"),
        (GOOD[:-1], ValueError, r"the shape of the values, \(150, 4, 3\), not \(149, 4, 3\)"),
        (GOOD[..., 0], ValueError, r"not \(150, 4\)"),
        (GOOD.swapaxes(1, 2), ValueError, r"not \(150, 3, 4\)"),
        (GOOD.astype("f4"), ValueError, "out must be float64, as the values are for this X, not float32"),
        (GOOD.astype(">f8"), ValueError, "of another byte order"),
        (np.ascontiguousarray(GOOD), ValueError, r"out must be array\.swapaxes\(1, -1\) of a C"),
        (
            np.full((300, 3, 4), 7.0)[::2].swapaxes(1, 2),
            ValueError,
            r"out must be array\.swapaxes\(1, -1\) of a C",
        ),
        (np.broadcast_to(GOOD, GOOD.shape), ValueError, "read-only"),
    ],
    ids=["list", "masked", "rows", "outputs", "axes", "dtype", "byte order", "C", "strides", "read-only"],
)
def test_wrong_arrays_are_refused_before_work(out: Any, error: type[Exception], message: str) -> None:
    explainer = TreeExplainer(CASES["groups"][0], device="cpu")
    with pytest.raises(error, match=message):
        explainer.shap_values(IRIS, out=out)
    assert np.all(np.asarray(out) == np.asarray(out).flat[0])


def test_wrong_arrays_for_one_output_and_for_pairs() -> None:
    explainer = TreeExplainer(boosting(), device="cpu")
    with pytest.raises(ValueError, match="out must be C-contiguous and aligned"):
        explainer.shap_values(ROWS, out=np.empty(ROWS.shape, order="F"))
    unaligned = np.empty(ROWS.nbytes + 1, np.uint8)[1:].view(np.float64).reshape(ROWS.shape)
    with pytest.raises(ValueError, match="aligned"):
        explainer.shap_values(ROWS, out=unaligned)
    with pytest.raises(ValueError, match=r"\(442, 5, 5\), not \(442, 5\)"):
        explainer.shap_interaction_values(ROWS, out=np.empty(ROWS.shape))
    with pytest.raises(ValueError, match="float32, as the values are for this X, not float64"):
        explainer.shap_values(ROWS.astype("f4"), out=np.empty(ROWS.shape))


def tables_of(X: np.ndarray) -> dict[str, Any]:
    """Return tables whose numbers are in the memory of X."""
    names = [f"x{i}" for i in range(X.shape[1])]
    result: dict[str, Any] = {"array": X, "reversed": X[::-1]}
    try:
        import pandas as pd

        result["pandas"] = pd.DataFrame(X, columns=names, copy=False)
        columns = {
            name: pd.Series(pd.arrays.FloatingArray(column, np.isnan(column)), copy=False)
            for name, column in zip(names, X.T)
        }
        result["pandas masked"] = pd.DataFrame(columns, copy=False)
    except ImportError:
        pass
    try:
        import pyarrow as pa

        result["pyarrow"] = pa.table({name: pa.array(column) for name, column in zip(names, X.T)})
    except ImportError:
        pass
    try:
        import polars as pl

        result["polars"] = pl.DataFrame(dict(zip(names, X.T)))
    except ImportError:
        pass
    return result


@pytest.mark.parametrize("name", ["array", "reversed", "pandas", "pandas masked", "pyarrow", "polars"])
def test_memory_of_x_is_refused(name: str) -> None:
    """X and ``out`` share an array, as columns and as rows: values would be written over X."""
    model = RandomForestRegressor(3, max_depth=3, random_state=0).fit(ROWS[:, :2], PROGRESSION)
    explainer = TreeExplainer(model, device="cpu")
    X = np.asfortranarray(ROWS[:200, 1:3])  # columns, so that tables take them as they are
    X[np.isnan(X)] = 0
    table = tables_of(X).get(name)
    if table is None:
        pytest.skip(f"{name} is not installed")
    before = X.copy()
    out = X.T.reshape(200, 2)
    assert np.shares_memory(out, X)
    with pytest.raises(ValueError, match="out shares memory with X"):
        explainer.shap_values(table, out=out)
    np.testing.assert_array_equal(X, before)
    explainer.shap_values(table, out=out.copy())


def test_memory_of_sparse_x_is_refused() -> None:
    model, X, _ = CASES["sparse"]
    memory = np.zeros(X.shape[0] * X.shape[1])
    memory[: X.nnz] = X.data
    shared = sp.csr_array((memory[: X.nnz], X.indices, X.indptr), X.shape)
    shared.data = memory[: X.nnz]
    with pytest.raises(ValueError, match="shares memory"):
        TreeExplainer(model, device="cpu").shap_values(shared, out=memory.reshape(X.shape))


def test_values_that_do_not_add_up_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    explainer = TreeExplainer(boosting(), device="cpu")
    monkeypatch.setattr("skshapgpu._engine.additivity.allowed_gap", lambda *_: np.array([-1.0]))
    with pytest.raises(RuntimeError, match="additivity check failed at row 0"):
        explainer.shap_values(ROWS, out=np.empty(ROWS.shape))
    rows = DIABETES.copy()
    rows[400, 3] = np.inf
    with pytest.raises(ValueError, match="row 400, column 3"):
        TreeExplainer(CASES["sparse"][0], device="cpu").shap_values(rows, out=np.empty(rows.shape))
