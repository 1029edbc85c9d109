"""Numbers and categories of X are read as by the model's own ``predict`` in any container, or rejected."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn
from helpers.families import (
    assert_adds_up,
    frame_with_categories,
    library,
    library_with_categories,
    raw_prediction,
    with_categories,
)
from sklearn.ensemble import (
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    IsolationForest,
    RandomForestRegressor,
)
from sklearn.tree import DecisionTreeRegressor
from sklearn.utils.fixes import parse_version

from skshapgpu import TreeExplainer, explain
from skshapgpu._rows.inputs import read
from skshapgpu.adapters import adapt

NAMES = ["a", "b", "c"]


def steps(power: int) -> tuple[list[int], list[int]]:
    """Return float32 numbers from 2^power on, and integers around the midpoints between neighbours."""
    start, gap = 2**power, int(np.spacing(np.float32(2.0**power)))
    grid = [start + i * gap for i in range(32)]
    blur = max(1, int(np.spacing(2.0**power)) // 2)
    near = [gap // 2 + side * offset for offset in (0, 1, blur - 1, blur + 1) for side in (-1, 1)]
    return grid, [number + offset for number in grid[:-1] for offset in near]


@pytest.fixture(scope="module")
def integers() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Training rows with all float32 numbers of some ranges, targets, and int64 rows."""
    rng = np.random.default_rng(0)
    grids, rows = zip(*(steps(power) for power in (30, 53, 61)), strict=True)
    X = np.column_stack([rng.permutation(4 * grid) for grid in grids]).astype(np.float64)
    tests = np.column_stack([rng.permutation(numbers) for numbers in rows]).astype(np.int64)
    direct, through = tests.astype(np.float32), tests.astype(np.float64).astype(np.float32)
    assert (direct != through).mean() > 0.05
    return X, rng.normal(size=len(X)), tests


def grown(family: str) -> Any:
    """Fit a regressor of trees so deep that each training row has a leaf of its own."""
    if family == "forest":
        return RandomForestRegressor(3, random_state=0)
    if family == "boosting":
        return GradientBoostingRegressor(n_estimators=5, max_depth=8, random_state=0)
    if family == "hist":
        return HistGradientBoostingRegressor(max_iter=5, max_leaf_nodes=None, min_samples_leaf=1)
    if family == "xgboost":
        return library(family).XGBRegressor(n_estimators=5, max_depth=8, tree_method="exact", n_jobs=1)
    if family == "lightgbm":
        options = {"min_child_samples": 1, "min_data_in_bin": 1, "max_bin": 999, "n_jobs": 1, "verbose": -1}
        return library(family).LGBMRegressor(n_estimators=5, num_leaves=99, **options)
    return library(family).CatBoostRegressor(
        iterations=5, depth=8, verbose=False, allow_writing_files=False, thread_count=1
    )


def nullable(X: Any, dtype: str) -> Any:
    frame = X.astype("Int64")
    return frame.mask(np.arange(frame.size).reshape(frame.shape) % 7 == 0).astype(dtype)


def with_nulls(X: Any) -> Any:
    pl = library("polars")
    return pl.DataFrame({name: [None, *X[name].tolist()[1:]] for name in X})


ARRAYS: dict[str, Callable[[np.ndarray], Any]] = {
    "int64": np.asarray,
    "uint64": lambda X: X.astype(np.uint64),
    "longdouble": lambda X: X.astype(np.longdouble),
    "list": np.ndarray.tolist,
    "csr": sp.csr_matrix,
    "coo": sp.coo_matrix,
}
FRAMES: dict[str, Callable[[Any], Any]] = {
    "int64": lambda X: X,
    "a float64 column": lambda X: X.assign(a=X["a"].astype(float)),
    "a float32 column": lambda X: X.assign(a=X["a"].astype(np.float32)),
    "a uint64 column": lambda X: X.assign(a=X["a"].astype(np.uint64)),
    "Int64": lambda X: X.astype("Int64"),
    "Int64 with NA": lambda X: nullable(X, "Int64"),
    "Arrow-backed": lambda X: nullable(X, "int64[pyarrow]"),
    "sparse": lambda X: X.astype("Sparse[int64]"),
    "polars": lambda X: library("polars").DataFrame(X.to_dict("list")),
    "polars with nulls": with_nulls,
    "pyarrow": lambda X: library("pyarrow").table(X.to_dict("list")),
    "pyarrow with nulls": lambda X: with_nulls(X).to_arrow(),
}


@pytest.mark.parametrize("family", ["forest", "boosting", "hist", "xgboost", "lightgbm", "catboost"])
@pytest.mark.parametrize("of_frame", [False, True], ids=["arrays", "frames"])
def test_long_integers_are_rounded_as_predict_does_or_refused(
    family: str, of_frame: bool, integers: Any
) -> None:
    X, y, rows = integers
    if family == "catboost" and not of_frame and library(family).__version__ == "1.2":
        pytest.skip("CatBoost 1.2.0 rounds long integers in another way, so explanations raise an error")
    if of_frame:
        pd = pytest.importorskip("pandas")
        model = grown(family).fit(pd.DataFrame(X, columns=NAMES), y)
        containers = {name: make(pd.DataFrame(rows, columns=NAMES)) for name, make in FRAMES.items()}
    else:
        model = grown(family).fit(X, y)
        containers = {name: make(rows) for name, make in ARRAYS.items()}
    if not reads_dictionaries(family):  # and rounds integers of other frames than those of pandas
        others = ("polars", "pyarrow")
        containers = {name: given for name, given in containers.items() if not name.startswith(others)}
    explainer = TreeExplainer(model)
    same, refused = [], []
    for name, given in containers.items():
        try:
            values = explainer.shap_values(given).sum(axis=1) + explainer.expected_value
        except ValueError as error:
            if family == "hist" and name in ("csr", "coo"):
                assert "X is sparse, which predict does not take" in str(error)
                continue
            if "NaN" not in str(error):  # which GradientBoosting refuses
                assert "reads as float32" in str(error) and "as an array" in str(error)
            refused.append(name)
            continue
        try:
            expected = raw_prediction(model, given)
        except Exception:  # each library has its own: it does not accept the container
            continue
        assert np.ptp(expected) > 1
        np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-4, err_msg=f"{family}, {name}")
        same.append(name)
    if family in ("hist", "lightgbm"):  # they read float64, for which there is only one conversion
        assert not refused and len(same) >= 3
    elif not of_frame:
        assert {"int64", "uint64"} <= set(same) and {"longdouble", "list", "csr", "coo"} == set(refused)
    else:
        assert not same


def test_integers_that_round_in_one_way_are_taken(integers: Any) -> None:
    """Nearly all integers round in one way, even beyond 2^53, and even midpoints between float32 numbers."""
    pd = pytest.importorskip("pandas")
    X, y, rows = integers
    direct, through = rows.astype(np.float32), rows.astype(np.float64).astype(np.float32)
    rows = rows[(direct == through).all(axis=1)]
    middle = rows[:, 2] % 2**38 == 2**37
    assert middle.any() and len(rows) > 50
    model = grown("forest").fit(pd.DataFrame(X, columns=NAMES), y)
    for make in ("int64", "a float64 column", "polars", "pyarrow"):
        assert_adds_up(model, FRAMES[make](pd.DataFrame(rows, columns=NAMES)))


# Categories


def dictionary(labels: list[Any], values: list[Any]) -> Any:
    arrow = library("pyarrow")
    indices = arrow.array([None if label is None else values.index(label) for label in labels], arrow.int32())
    return arrow.DictionaryArray.from_arrays(indices, arrow.array(values))


def table(X: Any, column: Any) -> Any:
    """Return the frame as a table of PyArrow with another column of colours."""
    columns = {name: library("pyarrow").array(X[name], from_pandas=True) for name in X}
    return library("pyarrow").table(columns | {"color": column})


COLORS = ["amber", "blue", "coral", "denim", "ebony", "fern"]


@pytest.mark.parametrize("kind", ["dictionary", "other order", "unused", "two chunks"])
def test_nulls_in_a_dictionary_of_arrow_are_refused_by_hist_gradient_boosting(kind: str) -> None:
    """The model's ``predict`` reads nulls as the last category, like NumPy's view of the table."""
    if parse_version(sklearn.__version__) < parse_version("1.7"):
        pytest.skip("scikit-learn selects columns of PyArrow tables since 1.7")
    X, y = frame_with_categories()
    model = with_categories("sklearn", X, y)
    labels = X["color"].tolist()
    holes = [None if i % 5 == 0 else label for i, label in enumerate(labels)]

    def column(labels: list[str | None]) -> Any:
        if kind == "two chunks":
            halves = [dictionary(labels[:50], COLORS), dictionary(labels[50:], COLORS[::-1])]
            return library("pyarrow").chunked_array(halves)
        return dictionary(
            labels, {"other order": COLORS[::-1], "unused": [*COLORS, "zinc"]}.get(kind, COLORS)
        )

    assert_adds_up(model, table(X, column(labels)))
    with pytest.raises(ValueError, match=r"'color' is a dictionary of PyArrow with nulls.*to_pandas\(\)"):
        explain(model, table(X, column(holes)))
    assert_adds_up(model, table(X, column(holes)).to_pandas())
    assert_adds_up(model, table(X, library("pyarrow").array(holes)))


def reads_dictionaries(family: str) -> bool:
    """Return whether the library's ``predict`` reads the dictionaries of a table of PyArrow."""
    return family != "lightgbm" or parse_version(library(family).__version__) >= parse_version("4.7")


def test_dictionaries_of_chunks_may_have_nulls() -> None:
    X, y = frame_with_categories()
    labels = [None if i % 5 == 0 else label for i, label in enumerate(X["color"].tolist())]
    chunks = library("pyarrow").chunked_array(
        [dictionary(labels[:50], [*COLORS, None]), dictionary(labels[50:], COLORS)]
    )
    frame = X.assign(color=library("pandas").Categorical(labels, categories=COLORS))
    for family in filter(reads_dictionaries, ("xgboost", "lightgbm")):
        library_with_categories(family)
        model = with_categories(family, X, y)
        assert_adds_up(model, table(X, chunks), raw_prediction(model, frame))


@pytest.mark.parametrize("family", ["sklearn", "xgboost", "lightgbm"])
def test_categories_beyond_float64_beside_missing_ones(family: str) -> None:
    """Columns such as hashed identifiers; three of the categories are equal when rounded to float64."""
    library_with_categories(family)
    X, y = frame_with_categories()
    pd = library("pandas")
    numbers = [2**53, 2**53 + 1, -(2**62) - 1, 2**62 + 2, 2**53 + 3, 7]
    X["color"] = X["color"].cat.rename_categories(numbers)
    X.loc[::7, "color"] = None
    model = with_categories(family, X, y)
    assert_adds_up(model, X)
    assert_adds_up(model, X[:7], raw_prediction(model, X)[:7])
    if family != "sklearn" and reads_dictionaries(family):  # scikit-learn rejects nulls in dictionaries
        arrow = table(X, dictionary([None if pd.isna(v) else v for v in X["color"]], numbers))
        assert_adds_up(model, arrow, raw_prediction(model, X))


def test_texts_are_no_numbers_for_hist_gradient_boosting() -> None:
    """Categories that were numbers in training are unknown if they are strings, as for the model itself."""
    X, y = frame_with_categories()
    numbers = X["color"].cat.codes.astype(np.float64)
    model = with_categories("sklearn", X.assign(color=numbers.astype("category")), y)
    assert_adds_up(model, X.assign(color=numbers.astype(str).astype("category")))


@pytest.mark.parametrize("unit", ["s", "us", "ns"])
@pytest.mark.parametrize("kind", ["datetime64", "timedelta64"])
def test_categories_of_time_in_hist_gradient_boosting(kind: str, unit: str) -> None:
    """A missing time is missing, not a category; units may differ from the units in training."""
    one = np.ones(1, f"{kind}[s]")
    if hash(one[0]) != hash(one.astype(f"{kind}[{unit}]")[0]):
        pytest.skip("equal times of two units have different hashes, so the model itself finds no category")
    X, y = frame_with_categories()
    times = library("pandas").Index(np.arange(6).astype(f"{kind}[s]"))
    X["color"] = X["color"].cat.rename_categories(times)
    X.loc[::4, "color"] = None
    model = with_categories("sklearn", X, y)
    others = X["color"].astype(f"{kind}[{unit}]").where(X.index != 6, times[-1] + (times[1] - times[0]))
    asked = X.assign(color=others.astype("category"))
    assert asked["color"].cat.categories.dtype == f"{kind}[{unit}]"
    assert_adds_up(model, asked)


TEXTS: dict[str, Callable[[Any], Any]] = {
    "str": lambda X: X.assign(color=X["color"].astype("str")),
    "object": lambda X: X.assign(color=X["color"].astype(object)),
    "string": lambda X: X.assign(color=X["color"].astype("string")),
    "Arrow-backed": lambda X: X.assign(color=X["color"].astype("string[pyarrow]")),
    "ArrowDtype": lambda X: X.assign(
        color=library("pandas").array(
            X["color"].tolist(), dtype=library("pandas").ArrowDtype(library("pyarrow").string())
        )
    ),
    "ArrowDtype dictionary": lambda X: X.assign(
        color=library("pandas").array(
            dictionary(X["color"].tolist(), COLORS[::-1]),
            dtype=library("pandas").ArrowDtype(dictionary([], COLORS).type),
        )
    ),
    "polars": lambda X: library("polars").DataFrame(table(X, TEXTS["pyarrow"](X)["color"])),
    "polars Categorical": lambda X: TEXTS["polars"](X).with_columns(
        library("polars").col("color").cast(library("polars").Categorical)
    ),
    "pyarrow": lambda X: table(X, library("pyarrow").array(X["color"].astype(object), from_pandas=True)),
}


@pytest.mark.parametrize("family", ["sklearn", "catboost"])
def test_lists_of_text_and_numbers(family: str) -> None:
    """NumPy would make text of the numbers."""
    library(family)
    X, y = frame_with_categories()
    rows = X.astype(object).to_numpy().tolist()
    if family == "sklearn":
        model = with_categories(family, X, y)
    else:
        model = library(family).CatBoostRegressor(iterations=10, verbose=0, cat_features=[1])
        model.fit(rows, y)
    assert_adds_up(model, rows)
    assert_adds_up(model, tuple(map(tuple, rows)), raw_prediction(model, rows))
    assert explain(model, rows).data.tolist() == rows
    rows[3][0] = "text"
    with pytest.raises(ValueError, match=r"row 3 of column .* is 'text'"):
        explain(model, rows)


@pytest.mark.parametrize("family", ["sklearn", "xgboost", "lightgbm"])
@pytest.mark.parametrize("kind", TEXTS)
def test_text_is_the_category_that_it_names(family: str, kind: str) -> None:
    """Values equal the values of a frame with a categorical column, as on the command line."""
    library_with_categories(family)
    X, y = frame_with_categories()
    model = with_categories(family, X, y)
    X = X.iloc[::-1].reset_index(drop=True)
    assert_adds_up(model, TEXTS[kind](X), raw_prediction(model, X))
    adapted = adapt(model)
    rows = read(TEXTS[kind](X), adapted.schema, adapted.ensemble.x_dtype)
    chunks = np.concatenate([rows.chunk(start, start + 10) for start in range(0, 150, 10)])
    np.testing.assert_array_equal(chunks, read(X, adapted.schema, adapted.ensemble.x_dtype).chunk(0, 150))


@pytest.mark.parametrize("kind", ["object", "polars", "pyarrow"])
@pytest.mark.parametrize("family", ["xgboost", "lightgbm"])
def test_text_may_be_missing_or_unknown(family: str, kind: str) -> None:
    library_with_categories(family)
    X, y = frame_with_categories()
    model = with_categories(family, X, y)
    X["color"] = X["color"].where(np.arange(len(X)) % 3 > 0)
    X.loc[:99, "color"] = None  # whole chunks of rows
    holes = X["color"].astype(object).where(X["color"].notna(), None)
    assert_adds_up(model, TEXTS[kind](X.assign(color=holes)), raw_prediction(model, X))
    X["color"] = X["color"].cat.add_categories("zinc").fillna("zinc")
    if family == "lightgbm":
        assert_adds_up(model, TEXTS[kind](X), raw_prediction(model, X))
    else:
        with pytest.raises(ValueError, match="'zinc', which was not in the training set"):
            explain(model, TEXTS[kind](X))


def test_text_stands_for_no_code_and_no_number() -> None:
    pd, lightgbm, xgboost = library("pandas"), library("lightgbm"), library("xgboost")
    X, y = frame_with_categories()
    codes = X.assign(color=X["color"].cat.codes).to_numpy(float)
    options: dict[str, Any] = {"n_estimators": 3, "verbose": -1, "min_child_samples": 5}
    of_codes = lightgbm.LGBMRegressor(**options).fit(codes, y, categorical_feature=[1])
    of_names = xgboost.XGBRegressor(n_estimators=3, feature_types=["q", "c", "q"], enable_categorical=True)
    for model in (of_codes, of_names.fit(codes, y)):
        for kind in ("object", "polars Categorical", "ArrowDtype dictionary"):
            with pytest.raises(
                ValueError, match="takes the codes of categories as they are, but column 'color'"
            ):
                explain(model, TEXTS[kind](X))
    with pytest.raises(ValueError, match="'color' is categorical, but the model was trained on numbers"):
        explain(of_codes, table(X, dictionary(X["color"].tolist(), COLORS)))
    numbers = X.assign(color=pd.Categorical(X["color"].cat.codes.astype(int)))
    arrow = library("pyarrow")
    with pytest.raises(ValueError, match="'color' is a dictionary of PyArrow of int"):
        explain(of_names, table(X, arrow.array(numbers["color"].astype(int)).dictionary_encode()))
    model = lightgbm.LGBMRegressor(**options).fit(numbers, y)
    with pytest.raises(ValueError, match="is text, but its categories in training were numbers such as 0"):
        explain(model, numbers.assign(color=[str(code) for code in numbers["color"]]))


def test_arrow_backed_columns_of_catboost() -> None:
    """CatBoost's ``predict`` accepts text and integers of any pandas type."""
    X, y = frame_with_categories()
    X["color"], X["number"] = X["color"].astype(object), X["color"].cat.codes.astype(int)
    catboost = library("catboost")
    options = {"iterations": 9, "verbose": False, "allow_writing_files": False, "one_hot_max_size": 10}
    model = catboost.CatBoostRegressor(**options).fit(X, y, cat_features=["color", "number"])
    expected = raw_prediction(model, X)
    for kind in ("Int64", "UInt8", "int64[pyarrow]"):
        for text in ("ArrowDtype", "ArrowDtype dictionary"):
            passed_rows = TEXTS[text](X.astype({"number": kind}))
            np.testing.assert_array_equal(raw_prediction(model, passed_rows), expected)
            assert_adds_up(model, passed_rows, expected)


# Names


@pytest.mark.parametrize("package", ["pandas", "polars", "pyarrow"])
def test_missing_columns_are_named(package: str) -> None:
    pd = library("pandas")
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(30, 3)), columns=["age", "capital-gain", "capital-loss"])
    model = RandomForestRegressor(2, random_state=0).fit(X, X["age"])
    convert = {
        "pandas": lambda X: X,
        "polars": library("polars").from_pandas,
        "pyarrow": library("pyarrow").table,
    }
    for container in (X.drop(columns="capital-gain"), X.rename(columns={"age": "Age"}), X.assign(extra=1.0)):
        with pytest.raises(ValueError) as theirs:
            model.predict(container)
        with pytest.raises(ValueError) as ours:
            explain(model, convert[package](container))
        assert str(ours.value).strip() == str(theirs.value).strip()


@pytest.mark.parametrize(
    "model",
    [IsolationForest(random_state=0), RandomForestRegressor(5, random_state=0), DecisionTreeRegressor()],
    ids=lambda model: type(model).__name__,
)
def test_nan_in_a_sparse_matrix_is_refused_by_trees_of_scikit_learn(model: Any) -> None:
    """An isolation forest sends such NaN to the right, unlike NaN in an array; other models reject it."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    X[::4, 0] = np.nan
    model.fit(X, X[:, 1])
    sparse = sp.csr_array(X)
    if isinstance(model, IsolationForest):
        assert not np.allclose(model.score_samples(sparse), model.score_samples(X))
    else:
        with pytest.raises(ValueError, match="NaN"):
            model.predict(sparse)
    with pytest.raises(ValueError, match="NaN, which the model does not accept in a sparse matrix: row 0"):
        explain(model, sparse)
    finite = np.flatnonzero(np.isfinite(X[:, 0]))
    expected = explain(model, X[finite]).values
    np.testing.assert_array_equal(explain(model, sparse[finite]).values, expected)
    assert np.isfinite(explain(model, X).values).all()
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X).astype(pandas.SparseDtype(float, 0.0))  # scikit-learn makes a matrix of it
    with pytest.raises(ValueError, match="NaN, which the model does not accept in a sparse matrix: row 0"):
        explain(model, frame)
    frame[1] = frame[1].sparse.to_dense()
    np.testing.assert_array_equal(explain(model, frame).values, explain(model, X).values)


def test_catboost_with_infinite_borders_says_what_to_do(tmp_path: Path) -> None:
    catboost = pytest.importorskip("catboost")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 2))
    X[:20, 0] = -np.inf
    model = catboost.CatBoostRegressor(iterations=5, verbose=False, allow_writing_files=False)
    model.fit(X, np.where(X[:, 0] < -9, 5.0, X[:, 1]))
    model.save_model(str(tmp_path / "model.cbm"))
    for given in (model, tmp_path / "model.cbm"):
        with pytest.raises(ValueError, match="train without infinities"):
            explain(given, X)


@pytest.mark.parametrize("family", ["sklearn", "lightgbm"])
@pytest.mark.parametrize("dtype", [">f8", ">f4", ">i8", "<f8", "O"])
def test_arrays_of_objects_and_of_another_byte_order(family: str, dtype: str) -> None:
    """LightGBM rounds such numbers to float32, even from 64 bits; its wrapper converts objects to float64."""
    rng = np.random.default_rng(0)
    X = 2.0**24 + np.round(8 * rng.normal(size=(200, 3)))
    assert (X.astype(np.float32) != X).mean() > 0.2
    model = HistGradientBoostingRegressor(max_iter=5, min_samples_leaf=5)
    if family == "lightgbm":
        model = library(family).LGBMRegressor(n_estimators=5, min_child_samples=5, verbose=-1)
    model.fit(X, X[:, 0] - 2.0**24 + np.where(X[:, 1] > 2.0**24, 5.0, 0.0))
    assert_adds_up(model, X.astype(dtype), model.predict(X.astype(dtype)))
    if family == "lightgbm":
        assert_adds_up(model.booster_, X.astype(dtype), model.booster_.predict(X.astype(dtype)))
