"""X on a GPU that has to be converted: categories, data frames of cuDF, steps of a pipeline, with stand-ins.

The stand-ins compute with the CPU's plans, so values are compared to the bit with values of the same rows on
the host. test_cuda_rows.py has the tests that need a real GPU.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from helpers.families import frame_with_categories, library, with_categories
from helpers.gpu_rows import CODES, code_models, numbers_of_categories
from helpers.gpu_stand_in import Array, CudaPlan, install
from sklearn.ensemble import (
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.utils.fixes import parse_version

from skshapgpu import (
    ShapBeeswarmDisplay,
    ShapDependenceDisplay,
    ShapTransformer,
    TreeExplainer,
    cross_val_explain,
    explain,
)
from skshapgpu.batches import BatchExplainer
from skshapgpu.batches.schema_explainer import SchemaExplainer

pytest.importorskip("pandas")

import pandas as pd
from helpers import cudf_stand_in as cudf

FAMILIES = ["sklearn", "xgboost", "lightgbm"]


@pytest.fixture(autouse=True)
def calls(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    cudf.install(monkeypatch)
    return install(monkeypatch)


def on_host(model: Any, X: Any, **options: Any) -> Any:
    """Explain rows on the host with the algorithm of the stand-ins."""
    return TreeExplainer(model, device="cpu", algorithm="quadrature", **options).explain(X)


def without_number(error: Exception) -> str:
    """Return a message without the number that it names, which need not be the column's first invalid one."""
    return re.sub(r"(holds|contains the number) [-\d.]+", r"\1 it", str(error))


def assert_as_on_the_host(model: Any, X: Any, **options: Any) -> Any:
    """Check that a copy of X on the GPU has the values, or the error, of X on the host."""
    passed_rows = cudf.DataFrame.of(X) if isinstance(X, pd.DataFrame) else Array(X)
    explainer = TreeExplainer(model, algorithm="quadrature", **options)
    try:
        expected = on_host(model, X, **options)
    except (TypeError, ValueError) as error:
        with pytest.raises(type(error)) as caught:
            explainer.explain(passed_rows)
        assert without_number(caught.value) == without_number(error)
        return None
    explanation = explainer.explain(passed_rows)
    assert type(explanation.values) is Array and explanation.device == "cuda:0"
    assert explanation.values.dtype == expected.values.dtype
    np.testing.assert_array_equal(explanation.values.get(), expected.values)
    assert explanation.feature_names == expected.feature_names and explanation.data is passed_rows
    assert explanation.additivity_error == expected.additivity_error
    return explanation


# Arrays


@pytest.mark.parametrize("kind", CODES)
@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "int16", "uint64", "uint8", "bool"])
def test_codes(kind: str, dtype: str) -> None:
    model, rows = code_models(kind)
    if dtype in ("float64", "float32"):
        rows = numbers_of_categories(rows)
    explanation = assert_as_on_the_host(model, rows.astype(dtype))
    if explanation is not None:
        assert np.ptp(explanation.values.get(), axis=0).max() > 0 or dtype == "bool"
    assert (explanation is None) == (kind == "catboost" and dtype.startswith("float"))


@pytest.mark.parametrize("missing", [0.0, 2.0, -1.0])
@pytest.mark.parametrize("recoded", [False, True])
def test_numbers_that_mean_missing(missing: float, recoded: bool) -> None:
    """In columns of numbers, the number means missing as it is; in categories, before they are recoded."""
    xgboost = library("xgboost")
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.integers(-1, 4, 200).astype(float), "c": rng.integers(0, 5, 200)})
    y = np.where(X["a"] == missing, 3.0, X["a"]) + np.array([5.0, 0, 2, 7, 1])[X["c"]]
    X["c"] = pd.Categorical(X["c"], [4, 2, 0, 1, 3]) if recoded else X["c"]
    options = {"enable_categorical": True, "feature_types": None if recoded else ["q", "c"]}
    model = xgboost.XGBRegressor(n_estimators=6, max_depth=3, missing=missing, n_jobs=1, **options).fit(X, y)
    if recoded:
        assert_as_on_the_host(model, X)
    assert_as_on_the_host(model, np.column_stack([X["a"], X["c"].astype(float)]))
    assert_as_on_the_host(model, np.column_stack([X["a"], X["c"]]).astype(np.int32))
    plain = xgboost.XGBRegressor(n_estimators=6, max_depth=3, missing=missing, n_jobs=1)
    assert_as_on_the_host(plain.fit(X.astype(float), y), X.astype({"c": "category"}))


@pytest.mark.parametrize("index", [0, 1])
def test_codes_stay_on_their_gpu(index: int) -> None:
    model, rows = code_models("xgboost")
    explanation = TreeExplainer(model).explain(Array(rows, index))
    assert explanation.device == f"cuda:{index}" and explanation.values.device.id == index
    with pytest.raises(ValueError, match=rf"^X is on cuda:{index}, but device is 'cuda:{1 - index}'$"):
        TreeExplainer(model, device=f"cuda:{1 - index}").explain(Array(rows, index))


def test_strided_codes_and_no_rows() -> None:
    model, rows = code_models("sklearn")
    spread = np.zeros((2 * len(rows), 3 * rows.shape[1]))
    spread[::2, ::3] = rows
    expected = on_host(model, rows).values
    np.testing.assert_array_equal(TreeExplainer(model).shap_values(Array(spread)[::2, ::3]).get(), expected)
    assert TreeExplainer(model).shap_values(Array(rows[:0])).shape == (0, rows.shape[1])


@pytest.mark.parametrize("kind", CODES)
def test_interactions_of_codes(kind: str) -> None:
    model, rows = code_models(kind)
    expected = TreeExplainer(model, device="cpu").explain_interactions(rows, interactions="occurring")
    explanation = TreeExplainer(model).explain_interactions(Array(rows), interactions="occurring")
    np.testing.assert_array_equal(explanation.values.get(), expected.values)
    np.testing.assert_array_equal(explanation.interactions, expected.interactions)


def test_values_that_the_library_refuses() -> None:
    model, rows = code_models("sklearn")
    rows = rows.astype(np.float64)
    rows[7, 1] = np.inf
    assert assert_as_on_the_host(model, rows) is None
    model, rows = code_models("xgboost")
    rows = rows.astype(np.float64)
    for value, feature in ((np.inf, 0), (np.inf, 1), (1e39, 1)):
        bad = rows.copy()
        bad[7, feature] = value
        with pytest.raises(ValueError, match=f"which the model does not accept: row 7, column x{feature}$"):
            TreeExplainer(model).explain(Array(bad))
        with pytest.raises(ValueError, match=f"which the model does not accept: row 7, column {feature}$"):
            explain(model, bad, device="cpu")


def test_target_statistics_are_computed_on_the_host() -> None:
    catboost = library("catboost")
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 30, (300, 3))
    options = {"verbose": 0, "allow_writing_files": False, "one_hot_max_size": 2}
    model = catboost.CatBoostRegressor(iterations=4, cat_features=[1], **options).fit(rows, rows[:, 1] % 3)
    with pytest.raises(TypeError, match=r"computed from categories on the host, .*: copy X to the host$"):
        explain(model, Array(rows))


# Data frames


def holes(X: pd.DataFrame) -> pd.DataFrame:
    return X.assign(color=X["color"].where(np.arange(len(X)) % 4 > 0))


CHANGES: dict[str, Any] = {
    "none": lambda X: X,
    "missing": holes,
    "in another order": lambda X: X.assign(
        color=X["color"].cat.reorder_categories(list(X["color"].cat.categories)[::-1])
    ),
    "unknown": lambda X: X.assign(color=X["color"].cat.rename_categories({"coral": "cyan"})),
    "unused": lambda X: X.assign(color=X["color"].cat.add_categories(["unused"])),
    "text": lambda X: holes(X).assign(color=lambda X: X["color"].astype(object)),
    "numbers": lambda X: X.assign(color=X["color"].cat.codes),
    "categories of numbers": lambda X: X.assign(color=X["color"].cat.codes.astype("category")),
    "columns in another order": lambda X: X[["color", "size", "weight"]],
    "other names": lambda X: X.rename(columns={"size": "length"}),
    "too few columns": lambda X: X[["size", "color"]],
    "positions as names": lambda X: X.set_axis([0, 1, 2], axis=1),
    "single precision": lambda X: X.astype({"size": "float32", "weight": "float32"}),
    "no rows": lambda X: X[:0],
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("change", CHANGES)
def test_frames_with_categories(family: str, change: str) -> None:
    X, y = frame_with_categories()
    assert_as_on_the_host(with_categories(family, X, y), CHANGES[change](X))


@pytest.mark.parametrize("family", ["xgboost", "lightgbm"])
def test_frames_of_models_that_take_codes(family: str) -> None:
    X, y = frame_with_categories()
    numbers = X.assign(color=X["color"].cat.codes.astype(float))
    if family == "xgboost":
        model = library(family).XGBRegressor(n_estimators=5, feature_types=["q", "c", "q"], n_jobs=1)
        model.set_params(enable_categorical=True).fit(numbers.to_numpy(), y)
    else:
        options = {"verbose": -1, "min_child_samples": 5, "n_jobs": 1}
        model = library(family).LGBMRegressor(n_estimators=5, **options)
        model.fit(numbers.to_numpy(), y, categorical_feature=[1])
    for container in (numbers, X, holes(X), X.assign(color=X["color"].astype(object))):
        assert_as_on_the_host(model, container)


def test_text_has_a_type_of_its_own_in_recent_releases(monkeypatch: pytest.MonkeyPatch) -> None:
    if parse_version(pd.__version__) < parse_version("2.3"):
        pytest.skip("pandas has a type of strings and NaN since 2.3")
    old = cudf.Series.dtype.fget

    def dtype(series: Any) -> Any:
        return pd.StringDtype(na_value=np.nan) if old(series) == np.dtype(object) else old(series)

    X, y = frame_with_categories()
    monkeypatch.setattr(cudf.Series, "dtype", property(dtype))
    for family in FAMILIES:
        assert assert_as_on_the_host(with_categories(family, X, y), CHANGES["text"](X)) is not None


def test_numbers_of_frames() -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {
            "byte": rng.integers(0, 9, 200).astype(np.int8),
            "long": rng.integers(-(2**40), 2**40, 200),
            "flag": rng.random(200) < 0.5,
            "single": rng.normal(size=200).astype(np.float32),
            "double": rng.normal(size=200) * 1e9,
            "label": pd.Categorical(rng.choice([1.5, 4.0, 7.25], 200)),
        },
        index=[f"row {i}" for i in range(200)],
    )
    y = X["byte"] + 3.0 * X["flag"] + X["double"] / 1e9 + X["label"].astype(float) + X["long"] / 2**40
    for model in (
        RandomForestRegressor(6, max_depth=5, random_state=0),
        HistGradientBoostingRegressor(max_iter=5),
    ):
        model.fit(X, y)
        result = assert_as_on_the_host(model, X)
        assert result.row_labels.tolist() == X.index.tolist()
        part = result[3:7]
        pd.testing.assert_frame_equal(part.data.to_pandas(), X[3:7])
        assert part.to_frame().index.tolist() == X.index[3:7].tolist()
    nulls = {"byte": pd.array([1, None] * 100, "Int8"), "flag": pd.array([None, True] * 100, "boolean")}
    passed_rows = X.assign(**nulls, double=X["double"].where(X["flag"]))
    assert_as_on_the_host(model, passed_rows)
    assert_as_on_the_host(model, passed_rows.assign(long=pd.array([2**40, None] * 100, "Int64")))
    refusing = GradientBoostingRegressor(n_estimators=3).fit(X.drop(columns="label"), y)
    with pytest.raises(ValueError, match=r"contains NaN, .*: row 0, column flag$"):
        explain(refusing, cudf.DataFrame.of(passed_rows.drop(columns="label")))
    single = X[["single"]].assign(other=X["single"] ** 2)
    assert_as_on_the_host(RandomForestRegressor(6, max_depth=5, random_state=0).fit(single, y), single)


def test_columns_that_are_no_numbers() -> None:
    X = pd.DataFrame({"a": np.arange(20.0), "b": np.arange(20) % 3})
    model = RandomForestRegressor(3, max_depth=3, random_state=0).fit(X, X["a"] * X["b"])
    for change in ({"b": "x"}, {"b": pd.Categorical(["x"] * 20)}):
        with pytest.raises(
            ValueError, match=r"^could not convert string to float: column b is 'x', where the"
        ):
            explain(model, cudf.DataFrame.of(X.assign(**change)))
    frame = cudf.DataFrame.of(X)
    for dtype, message in (
        (np.dtype("M8[ns]"), "column b holds dates or time spans"),
        (Decimal128Dtype(), "column b has the type decimal, which is not read from a GPU"),
    ):
        frame._series[1] = type("Series", (), {"dtype": dtype})()
        with pytest.raises(TypeError, match=message):
            explain(model, frame)


class Decimal128Dtype:
    kind = "O"

    def __str__(self) -> str:
        return "decimal"


@pytest.mark.parametrize("value", [2**53 + 2**29, 2**60 + 2**36 + 1, -(2**60) - 2**36 - 1, 2**63 - 1])
@pytest.mark.parametrize("dtype", ["int64", "Int64", "uint64"])
def test_integers_that_may_be_rounded_twice(value: int, dtype: str) -> None:
    X = pd.DataFrame({"a": np.arange(20.0), "b": np.arange(20)})
    model = RandomForestRegressor(3, max_depth=3, random_state=0).fit(X, X["a"] * X["b"])
    b = np.arange(20).astype(object)
    b[11] = value % 2**64 if dtype == "uint64" else value
    assert_as_on_the_host(model, X.assign(b=pd.array(b, dtype.replace("I", "i"))))
    if dtype == "Int64" and value != 2**63 - 1:  # which has one rounding
        b[3] = None
        with pytest.raises(ValueError, match="whether it is rounded up or down"):
            explain(model, cudf.DataFrame.of(X.assign(b=pd.array(b, "Int64"))))


@pytest.mark.parametrize(
    "options", [{"columns": "used"}, {"feature_groups": {"both": ["size", "color"], "w": ["weight"]}}]
)
def test_columns_and_groups_of_frames(options: dict[str, Any]) -> None:
    X, y = frame_with_categories()
    X = X.assign(unused=1.0)
    model = with_categories("lightgbm", X, y)
    passed_rows, expected = cudf.DataFrame.of(X), on_host(model, X, **options)
    explanation = TreeExplainer(model, **options).explain(passed_rows)
    np.testing.assert_array_equal(explanation.values.get(), expected.values)
    assert explanation.feature_names == expected.feature_names
    if "columns" in options:
        assert list(explanation.data.columns) == ["size", "color", "weight"]


def test_what_follows_a_frame() -> None:
    X, y = frame_with_categories()
    X.index = X.index + 100
    model = with_categories("xgboost", X, y)
    passed_rows, expected = cudf.DataFrame.of(X), on_host(model, X)
    explanation = explain(model, passed_rows)
    pd.testing.assert_frame_equal(explanation.to_frame(), expected.to_frame())
    assert explanation.row_labels.equals(X.index)
    library("matplotlib").use("agg")
    for display in (ShapBeeswarmDisplay, ShapDependenceDisplay):
        argument = ("color",) if display is ShapDependenceDisplay else ()
        display.from_explanation(explanation, *argument).plot()
    transformer = ShapTransformer.from_fitted(model)
    np.testing.assert_array_equal(transformer.transform(passed_rows).get(), expected.values)
    with pytest.raises(ValueError, match="must be in the same order"):
        transformer.transform(cudf.DataFrame.of(X[["weight", "size", "color"]]))
    with pytest.raises(TypeError, match="data is on a GPU: copy it to the host"):
        TreeExplainer(model, passed_rows)
    with pytest.raises(TypeError, match="X is on a GPU"):
        cross_val_explain(model, passed_rows, y)


# Pipelines


ROWS = np.random.default_rng(0).normal(size=(120, 4))
TARGET = ROWS[:, 0] * ROWS[:, 2] + ROWS[:, 3]


def doubled(X: Any) -> Any:
    return X * 2


def test_steps_that_stay_on_the_gpu() -> None:
    forest = RandomForestRegressor(5, max_depth=4, random_state=0)
    steps = FunctionTransformer(doubled), FunctionTransformer(lambda X: X[:, [3, 2, 1, 0]])
    model = make_pipeline(*steps, forest).fit(ROWS, TARGET)
    given = Array(ROWS)
    explanation, expected = explain(model, given), on_host(model, ROWS)
    assert type(explanation.values) is Array and explanation.device == "cuda:0"
    np.testing.assert_array_equal(explanation.values.get(), expected.values)
    assert explanation.feature_names == expected.feature_names
    np.testing.assert_array_equal(explanation.data.get(), expected.data)
    transformer = ShapTransformer.from_fitted(model)
    np.testing.assert_array_equal(transformer.transform(given).get(), expected.values)
    assert type(explain(model, Array(ROWS.astype(np.float32))).values.get()[0, 0]) is np.float32
    with pytest.raises(ValueError, match=r"^X has 3 features, but the model expects 4$"):
        explain(make_pipeline(steps[0], model[-1]), Array(ROWS[:, :3]))
    with pytest.raises(ValueError, match=r"^X is on cuda:0, but device is 'cuda:1'$"):
        explain(model, given, device="cuda:1")


def test_groups_by_input_behind_steps() -> None:
    steps = FunctionTransformer(feature_names_out="one-to-one")
    model = make_pipeline(steps, RandomForestRegressor(5, max_depth=4, random_state=0)).fit(ROWS, TARGET)
    given = Array(ROWS)
    explanation, expected = (
        explain(model, given, feature_groups="input"),
        on_host(model, ROWS, feature_groups="input"),
    )
    np.testing.assert_array_equal(explanation.values.get(), expected.values)
    np.testing.assert_array_equal(explanation.data.get(), ROWS)
    summed = explain(model, given).sum_by("input")
    np.testing.assert_array_equal(summed.data.get(), ROWS)


def test_categories_behind_steps() -> None:
    model, rows = code_models("xgboost")
    pipeline = make_pipeline(FunctionTransformer(lambda X: X[:, [3, 2, 1, 0]]), model)
    expected = on_host(pipeline, rows[:, [3, 2, 1, 0]])
    explanation = explain(pipeline, Array(rows)[:, [3, 2, 1, 0]])
    np.testing.assert_array_equal(explanation.values.get(), expected.values)
    X, y = frame_with_categories()
    X.index = X.index + 100
    model = with_categories("sklearn", X, y)
    pipeline = make_pipeline(FunctionTransformer(lambda X: X), model)
    explanation = explain(pipeline, cudf.DataFrame.of(X))
    np.testing.assert_array_equal(explanation.values.get(), on_host(pipeline, X).values)
    assert explanation.row_labels.equals(X.index)
    with pytest.raises(ValueError, match="must be in the same order"):
        explain(pipeline, cudf.DataFrame.of(X[["weight", "size", "color"]]))


def test_steps_on_the_host_are_named() -> None:
    forest = RandomForestRegressor(5, max_depth=4, random_state=0)
    refusing = make_pipeline(FunctionTransformer(doubled), StandardScaler(), forest).fit(ROWS, TARGET)
    message = r"the step StandardScaler of the pipeline failed there: TypeError: .*copy X to the host$"
    with pytest.raises(TypeError, match=message):
        explain(refusing, Array(ROWS))
    copying = FunctionTransformer(lambda X: X.get() if isinstance(X, Array) else X)
    model = make_pipeline(copying, forest).fit(ROWS, TARGET)
    message = (
        r"the step FunctionTransformer of the pipeline returns a ndarray on the host: copy X to the host"
    )
    with pytest.raises(TypeError, match=message):
        explain(model, Array(ROWS))
    for error in (ValueError, RuntimeError, MemoryError):
        failing = make_pipeline(FunctionTransformer(Failing(error)), forest).fit(ROWS, TARGET)
        text = (
            "it broke" if error is MemoryError else r"FunctionTransformer .* failed there: .*Error: it broke"
        )
        with pytest.raises(error, match=text):
            explain(failing, Array(ROWS))
    assert not CudaPlan.calls


class Failing:
    """A function that fails on a GPU."""

    def __init__(self, error: type[Exception]) -> None:
        self.error = error

    def __call__(self, X: Any) -> Any:
        if isinstance(X, Array):
            raise self.error("it broke")
        return X


def test_chunks_of_workers_have_categories() -> None:
    model, rows = code_models("xgboost")
    pytest.importorskip("pyarrow")
    explainer = SchemaExplainer(BatchExplainer(model)._arguments, None)
    np.testing.assert_array_equal(explainer.values(Array(rows)).get(), on_host(model, rows).values)
