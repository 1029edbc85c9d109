"""inputs.py: equal chunks from every kind of X, and errors with the reason for unsupported input."""

from __future__ import annotations

import datetime
import tracemalloc
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from helpers.chunks import FRAMES, SMALL, Codes, chunk, frame
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor

from skshapgpu import TreeExplainer, explain
from skshapgpu._rows.inputs import HostRows, read
from skshapgpu._rows.tables import select, to_array
from skshapgpu.adapters.schema import InputSchema

# Arrays


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("shape_of", ["C", "F", "strided", "reversed", "transposed", "read-only"])
def test_float_arrays_are_not_copied(dtype: str, shape_of: str) -> None:
    base = np.zeros((8, 6), dtype)
    base[::2, ::2] = SMALL
    X = {
        "C": np.ascontiguousarray(base[::2, ::2]),
        "F": np.asfortranarray(base[::2, ::2]),
        "strided": base[::2, ::2],
        "reversed": base[::2, ::2][::-1, ::-1],
        "transposed": base[::2, ::2].T.copy().T,
        "read-only": base[::2, ::2].copy(),
    }[shape_of]
    X.flags.writeable = shape_of != "read-only"
    rows = read(X, InputSchema(3), "float32")
    block = rows.chunk(1, 3)
    assert np.shares_memory(block, X)
    assert block.strides == X.strides
    assert rows.dtype == dtype
    np.testing.assert_array_equal(block, X[1:3])


def test_memory_mapped_file_is_not_copied(tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", SMALL.astype(np.float32))
    X = np.load(tmp_path / "X.npy", mmap_mode="r")
    block = read(X, InputSchema(3), "float64").chunk(0, 4)
    assert np.shares_memory(block, X)
    np.testing.assert_array_equal(block, SMALL)


@pytest.mark.parametrize(
    "dtype", ["f2", "g", "?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", ">f4", ">f8", ">i4"]
)
@pytest.mark.parametrize("x_dtype", ["float32", "float64"])
def test_other_dtypes_are_converted(dtype: str, x_dtype: str) -> None:
    X = SMALL.astype(dtype)
    block = chunk(X, x_dtype=x_dtype)
    assert block.dtype == x_dtype and block.dtype.isnative
    np.testing.assert_array_equal(block, SMALL != 0 if dtype == "?" else SMALL)


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        ("f4", "f4"),
        (">f4", "f4"),
        ("f8", "f8"),
        ("f2", "f8"),
        ("g", "f8"),
        ("i4", "f8"),
        ("?", "f8"),
        ("O", "f8"),
    ],
)
def test_result_dtype_follows_x(dtype: str, expected: str) -> None:
    assert read(SMALL.astype(dtype), InputSchema(3), "float32").dtype == np.dtype(expected)


def test_unaligned_array_is_copied() -> None:
    packed = np.zeros(4, np.dtype([("flag", "u1"), ("x", "f8", 3)], align=False))
    packed["x"] = SMALL
    assert not packed["x"].flags.aligned
    block = chunk(packed["x"])
    assert block.flags.aligned
    np.testing.assert_array_equal(block, SMALL)


def test_equal_but_not_identical_dtype_reaches_the_core() -> None:
    X = np.random.default_rng(0).random((20, 3))
    model = RandomForestRegressor(3, random_state=0).fit(X, X[:, 0])
    explainer = TreeExplainer(model)
    tagged = X.astype(np.dtype("f8", metadata={"from": "elsewhere"}))
    assert tagged.dtype is not np.dtype("f8")
    np.testing.assert_array_equal(explainer.shap_values(tagged), explainer.shap_values(X))


@pytest.mark.parametrize(
    "X",
    [
        SMALL.tolist(),
        tuple(map(tuple, SMALL.tolist())),
        [np.array(row) for row in SMALL],
        SMALL.astype(object),
        [[Decimal(v) for v in row] for row in SMALL.tolist()],
        [[Fraction(v) for v in row] for row in SMALL.tolist()],
        np.asmatrix(SMALL),
    ],
    ids=["lists", "tuples", "list of arrays", "objects", "decimals", "fractions", "matrix"],
)
def test_sequences_and_objects(X: Any) -> None:
    np.testing.assert_array_equal(chunk(X), SMALL)


def test_array_protocol() -> None:
    class Wrapped:
        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
            return SMALL.astype(np.float64)

    np.testing.assert_array_equal(chunk(Wrapped()), SMALL)


def test_no_rows() -> None:
    for X in (np.empty((0, 3)), np.empty((0, 3), int), np.empty((0, 3), object), sp.csr_array((0, 3))):
        assert chunk(X).shape == (0, 3)


def test_objects_with_none() -> None:
    X = SMALL.astype(object)
    X[1, 2] = None
    assert np.isnan(chunk(X)[1, 2])
    with pytest.raises(ValueError, match="contains NaN, which the model does not accept: row 1, column 2"):
        chunk(X, InputSchema(3, allow_nan=False))


# Values


@pytest.mark.parametrize("x_dtype", ["float32", "float64"])
@pytest.mark.parametrize("allow_nan", [True, False])
@pytest.mark.parametrize("allow_inf", [True, False])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_missing_and_infinite_values(x_dtype: str, allow_nan: bool, allow_inf: bool, value: float) -> None:
    X = SMALL.astype(np.float64)
    X[3, 1] = value
    schema = InputSchema(3, allow_nan=allow_nan, allow_inf=allow_inf)
    if allow_nan if np.isnan(value) else allow_inf:
        np.testing.assert_array_equal(chunk(X, schema, x_dtype), X)
        return
    with pytest.raises(
        ValueError, match=f"contains {'NaN' if np.isnan(value) else 'infinity'}.*row 3, column 1"
    ):
        chunk(X, schema, x_dtype)


@pytest.mark.parametrize("dtype", ["f8", "g", "O"])
@pytest.mark.parametrize("sign", [1, -1])
def test_overflow_of_float32_counts_as_infinite(dtype: str, sign: int) -> None:
    largest = float(np.finfo(np.float32).max)
    rounds_down = np.nextafter(largest + 2.0**103, 0.0)
    X = np.zeros((2, 3))
    X[1, 0] = sign * rounds_down
    schema = InputSchema(3, allow_inf=False)
    assert np.float32(chunk(X.astype(dtype), schema, "float32")[1, 0]) == sign * np.float32(largest)
    X[1, 0] = sign * (largest + 2.0**103)
    with pytest.raises(ValueError, match=r"too large for float32.*row 1, column 0"):
        chunk(X.astype(dtype), schema, "float32")
    np.testing.assert_array_equal(chunk(X.astype(dtype), schema, "float64"), X)


def test_no_warning_while_checking(recwarn: pytest.WarningsRecorder) -> None:
    X = np.full((3, 3), np.nan)
    chunk(X, InputSchema(3, allow_inf=False), "float32")
    chunk(np.full((3, 3), 1e300), x_dtype="float32")
    chunk(np.full((3, 3), 1e300, np.longdouble), x_dtype="float32")
    assert not recwarn.list


@pytest.mark.parametrize(
    "X",
    [
        np.array([[1.0, -999.0, np.nan]]),
        np.array([[1, -999, 0]]),
        [[1, -999, None]],
        sp.csr_array([[1.0, -999.0, 3.0]]),
    ],
    ids=["floats", "ints", "objects", "sparse"],
)
def test_missing_value(X: Any) -> None:
    block = chunk(X, InputSchema(3, missing_value=-999.0), "float32")
    assert np.isnan(block[0, 1]) and block[0, 0] == 1
    dense = X.toarray() if sp.issparse(X) else np.array(X, np.float64)
    assert dense[0, 1] == -999, "X itself must not change"


def test_missing_value_is_compared_in_the_precision_of_the_model() -> None:
    X = np.array([[0.1, 0.1000000001, 0.2]])
    np.testing.assert_array_equal(
        np.isnan(chunk(X, InputSchema(3, missing_value=0.1), "float32")), [[1, 1, 0]]
    )
    np.testing.assert_array_equal(
        np.isnan(chunk(X, InputSchema(3, missing_value=0.1), "float64")), [[1, 0, 0]]
    )


def test_missing_value_is_no_matter_of_encoded_columns() -> None:
    codes = chunk(SMALL, InputSchema(3, missing_value=0.0, encoders={1: Codes()}))[:, 1]
    np.testing.assert_array_equal(codes, [0, 1, 0, 1])


# Sparse matrices


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "lil", "dok", "bsr"])
@pytest.mark.parametrize("kind", ["matrix", "array"])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i8", "?"])
def test_sparse(form: str, kind: str, dtype: str) -> None:
    X = getattr(sp, f"{form}_{kind}")(SMALL.astype(dtype))
    np.testing.assert_array_equal(chunk(X), SMALL.astype(dtype))
    assert read(X, InputSchema(3), "float32").dtype == ("f4" if dtype == "f4" else "f8")


def test_sparse_entries_not_stored_may_be_missing() -> None:
    X = sp.csr_array((np.array([1.0, 0.0, 5.0]), np.array([0, 2, 1]), np.array([0, 2, 3])), shape=(2, 3))
    np.testing.assert_array_equal(chunk(X), [[1, 0, 0], [0, 5, 0]])
    np.testing.assert_array_equal(
        chunk(X, InputSchema(3, sparse_zero_missing=True)), [[1, np.nan, 0], [np.nan, 5, np.nan]]
    )


def test_sparse_duplicates_are_summed_and_x_is_left_alone() -> None:
    X = sp.csr_array((np.array([1.0, 2.0, 4.0]), np.array([2, 2, 0]), np.array([0, 3, 3])), shape=(2, 3))
    np.testing.assert_array_equal(chunk(X), [[4, 0, 3], [0, 0, 0]])
    np.testing.assert_array_equal(X.data, [1, 2, 4])


@pytest.mark.parametrize("form", [sp.csr_array, sp.csc_array, sp.csr_matrix])
@pytest.mark.parametrize("family", ["xgboost", "lightgbm"])
def test_repeated_entries_that_the_library_does_not_add_up_are_refused(family: str, form: Any) -> None:
    rng = np.random.default_rng(0)
    dense = rng.normal(size=(60, 3))
    y = dense @ [1.0, 2.0, 3.0]
    library = pytest.importorskip(family)
    options = {"n_estimators": 3, **({"verbose": -1, "min_child_samples": 2} if family == "lightgbm" else {})}
    model = (library.LGBMRegressor if family == "lightgbm" else library.XGBRegressor)(**options).fit(dense, y)
    columns, rows = np.tile(np.arange(3), 120), np.repeat(np.arange(60), 6)
    major, minor = (columns, rows) if form is sp.csc_array else (rows, columns)
    order = np.lexsort((minor, major))
    stored = (dense / 2)[rows[order], columns[order]]
    bounds = np.searchsorted(major[order], np.arange(len(np.unique(major)) + 1))
    X = form((stored, minor[order], bounds), shape=dense.shape)
    assert X.nnz == 2 * dense.size
    with pytest.raises(ValueError, match=r"stores some entries more than once.* X\.sum_duplicates\(\)"):
        explain(model, X)
    with pytest.raises(ValueError, match="more than once"):
        TreeExplainer(model, X)
    X.sum_duplicates()
    np.testing.assert_array_equal(explain(model, X).values, explain(model, sp.csr_array(dense)).values)
    shuffled = sp.csr_array(dense)
    shuffled.indices[:3], shuffled.data[:3] = shuffled.indices[[2, 1, 0]], shuffled.data[[2, 1, 0]]
    shuffled.has_sorted_indices = shuffled.has_canonical_format = False
    np.testing.assert_array_equal(explain(model, shuffled).values, explain(model, X).values)


def test_sparse_is_checked_and_encoded_like_dense() -> None:
    X = sp.csr_array(SMALL.astype(np.float64))
    X[1, 1] = np.nan
    with pytest.raises(ValueError, match=r"NaN.*row 1, column 1"):
        chunk(X, InputSchema(3, allow_nan=False))
    codes = Codes()
    block = chunk(X, InputSchema(3, encoders={1: codes}))
    np.testing.assert_array_equal(block[:, 1], [0, 1, 0, 1])
    np.testing.assert_array_equal(np.concatenate([c.values for c in codes.columns]), [1, np.nan, 7, 0])


def test_sparse_is_never_densified_as_a_whole() -> None:
    rng = np.random.default_rng(0)
    n_rows, n_features = 4000, 1000
    X = sp.random(n_rows, n_features, density=0.01, random_state=rng, format="csr")
    y = np.asarray(X[:, :5].sum(axis=1)).ravel()
    model = RandomForestRegressor(3, max_depth=3, random_state=0).fit(X[:200, :], y[:200])
    limit = n_rows * n_features * 8 + 8_000_000
    explainer = TreeExplainer(model, memory_limit=limit)
    tracemalloc.start()
    values = explainer.shap_values(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert values.nbytes == n_rows * n_features * 8
    assert peak < limit, "densely, X is another 16 MB"
    np.testing.assert_array_equal(values[:50], TreeExplainer(model).shap_values(X[:50].toarray()))


# Refusals


@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        (np.zeros(3), ValueError, "Expected 2D array, got 1D array instead. Reshape your data"),
        (np.zeros((2, 3, 1)), ValueError, "Expected 2D array, got 3D"),
        (5.0, ValueError, "Expected 2D array, got scalar"),
        ([[1, 2, 3], [4, 5]], ValueError, "rows may differ in length"),
        ({"a": 1, "b": 2, "c": 3}, ValueError, r"mapping: pass a data frame, of one row by pd.DataFrame"),
        (np.zeros((2, 4)), ValueError, "X has 4 features, but the model expects 3"),
        (np.zeros((2, 3), complex), ValueError, "Complex data not supported"),
        (sp.csr_array(np.zeros((2, 3), complex)), ValueError, "Complex data not supported"),
        ([[1, 2, 3j]], ValueError, "Complex data not supported"),
        (np.array([[1, 2, 3j]], object), TypeError, "row 0 of column 2 holds a complex"),
        (np.zeros((2, 3), "M8[s]"), TypeError, "dates or time spans"),
        (np.zeros((2, 3), "m8[s]"), TypeError, "dates or time spans"),
        (np.array([[1, 2, datetime.date(2000, 1, 1)]], object), TypeError, "row 0 of column 2 holds a date"),
        (
            np.array([[1, 2, np.datetime64("2000")]], object),
            TypeError,
            "row 0 of column 2 holds a datetime64",
        ),
        (np.array([[1, 2, {}]], object), TypeError, "row 0 of column 2 holds a dict"),
        (np.array([["1", "2", "3"]]), ValueError, "could not convert string to float: X holds text"),
        (np.array([[1, 2, 3], [1, "7", 3]], object), ValueError, "row 1 of column 1 is '7'"),
        (np.array([[1, b"2", 3]], object), ValueError, "row 0 of column 1 is b'2'"),
        (np.ma.masked_array(np.zeros((2, 3))), TypeError, "masked array"),
        (np.zeros(3, [("a", "f8")])[:, None], TypeError, "values that are not numbers"),
    ],
)
def test_refused(X: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        chunk(X)


def test_settings_of_numpy_for_errors_do_not_matter() -> None:
    """Rounding subnormal numbers to float32 is no error, even if NumPy is set to raise errors."""
    tiny = SMALL * 1e-310
    for X in (sp.csr_array(tiny), tiny.astype(object), tiny.astype("g")):
        with np.errstate(all="raise"):
            block = read(X, InputSchema(3), "float32").chunk(0, 4)
        np.testing.assert_array_equal(block, np.zeros(SMALL.shape))
    model = RandomForestRegressor(2, random_state=0).fit(SMALL, SMALL[:, 0])
    with np.errstate(all="raise"):
        explainer = TreeExplainer(model, data=tiny)
    assert explainer.expected_value == pytest.approx(model.predict(tiny).mean())


def test_one_dimensional_sparse_array_is_refused() -> None:
    X = sp.coo_array(np.zeros(3))
    if X.ndim == 2:
        pytest.skip("this SciPy has no one-dimensional sparse arrays")
    with pytest.raises(ValueError, match="1D sparse array"):
        chunk(X)


def test_row_in_the_message_counts_from_the_start_of_x() -> None:
    X = SMALL.astype(object)
    X[3, 1] = "text"
    with pytest.raises(ValueError, match="row 3 of column 1 is 'text'"):
        chunk(X)


def test_refused_in_frames() -> None:
    pd = pytest.importorskip("pandas")
    good = pd.DataFrame(SMALL.astype(float), columns=list("abc"))
    for bad, error, message in [
        (pd.Series([1j] * 4), ValueError, "Complex data not supported: column b"),
        (pd.date_range("2000", periods=4), TypeError, "column b holds dates"),
        (pd.date_range("2000", periods=4, tz="UTC"), TypeError, "column b holds dates"),
        (pd.timedelta_range("1D", periods=4), TypeError, "column b holds dates"),
        (pd.period_range("2000", periods=4), TypeError, "row 0 of column b holds a Period"),
        (["p", "q", "r", "s"], ValueError, "row 0 of column b is 'p'"),
        (pd.Categorical(["p", "q", "r", "s"]), ValueError, "row 0 of column b is 'p'"),
    ]:
        with pytest.raises(error, match=message):
            chunk(good.assign(b=bad))
    for one in (good["a"], good.iloc[0]):
        with pytest.raises(ValueError, match=r"series of pandas.* frame\.loc\[\[label\]\]"):
            chunk(one)


def test_refused_in_polars_and_arrow() -> None:
    pl, pa = pytest.importorskip("polars"), pytest.importorskip("pyarrow")
    when = [datetime.datetime(2000, 1, 1)]
    for module in (pl.DataFrame, pa.table):
        with pytest.raises(TypeError, match="column b holds dates"):
            chunk(module({"a": [1.0], "b": when, "c": [1.0]}))
        with pytest.raises(ValueError, match="row 0 of column b is 'p'"):
            chunk(module({"a": [1.0], "b": ["p"], "c": [1.0]}))
    pairs = pl.Series([[1.0, 2.0]], dtype=pl.Array(pl.Float64, 2))
    for several in (pl.Series([{"d": 1, "e": 2}]), pairs, pl.Series([[1, 2]])):
        with pytest.raises(TypeError, match="column b holds"):
            chunk(pl.DataFrame({"a": [1.0], "b": several, "c": [1.0]}))
    with pytest.raises(TypeError, match=r"LazyFrame: convert it"):
        chunk(pl.DataFrame({"a": [1.0]}).lazy())
    with pytest.raises(ValueError, match="series of polars"):
        chunk(pl.Series("a", [1.0]))


def test_unknown_frames_are_not_stripped_of_their_names() -> None:
    class Foreign:
        columns = ("a", "b", "c")

        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
            return SMALL.astype(np.float64)

    with pytest.raises(TypeError, match=r"Foreign: convert it to a data frame of pandas"):
        chunk(Foreign())


# Selection


def same(a: Any, b: np.ndarray) -> None:
    np.testing.assert_array_equal(to_array(a).astype(float), b)


@pytest.mark.parametrize("package", [*FRAMES, "array", "csr"])
def test_select(package: str) -> None:
    columns = {name: SMALL[:, i].astype(float) for i, name in enumerate("abc")}
    X = (
        {"array": SMALL, "csr": sp.csr_array(SMALL)}[package]
        if package in ("array", "csr")
        else frame(package, columns)
    )
    same(X, SMALL)
    same(select(X, slice(1, 3)), SMALL[1:3])
    same(select(X, np.array([2, 0])), SMALL[[2, 0]])
    same(select(X, slice(None), np.array([2, 1])), SMALL[:, [2, 1]])
    same(select(X, np.array([3, 1]), np.array([0])), SMALL[[3, 1]][:, [0]])


# Through a model


@pytest.mark.parametrize(
    "model",
    [RandomForestRegressor(5, random_state=0), HistGradientBoostingRegressor(max_iter=5)],
    ids=["float32 family", "float64 family"],
)
def test_every_kind_gives_the_same_values(model: Any) -> None:
    pd, pl, pa = map(pytest.importorskip, ("pandas", "polars", "pyarrow"))
    rng = np.random.default_rng(1)
    X = rng.integers(-8, 8, (60, 3)) / 4.0  # exact in float16
    explainer = TreeExplainer(model.fit(X, X @ [1.0, -2.0, 0.5] + rng.random(60)))
    expected = explainer.shap_values(X)
    assert np.abs(expected).max() > 0.5
    table = {name: X[:, i] for i, name in enumerate("abc")}
    for other in (
        np.asfortranarray(X),
        X.astype("f2"),
        X.astype("g"),
        X.astype(object),
        X.tolist(),
        *([] if isinstance(model, HistGradientBoostingRegressor) else [sp.csc_matrix(X), sp.csr_array(X)]),
        pd.DataFrame(table),
        pl.DataFrame(table),
        pa.table(table),
        pd.DataFrame(table).convert_dtypes(dtype_backend="pyarrow"),
        pd.DataFrame(table, dtype="Float64"),
    ):
        np.testing.assert_array_equal(explainer.shap_values(other), expected)
    if isinstance(model, HistGradientBoostingRegressor):
        with pytest.raises(ValueError, match="X is sparse, which predict does not take"):
            explainer.shap_values(sp.csr_array(X))
    single = explainer.shap_values(X.astype("f4"))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, expected, atol=1e-6)


def test_rows_say_what_a_chunk_allocates() -> None:
    X = np.zeros((5000, 200))
    assert read(X, InputSchema(200), "float64").row_bytes == 0
    for other in (X.astype(int), sp.csr_array(np.ones((5000, 200))), X.astype(object)):
        rows: HostRows = read(other, InputSchema(200, missing_value=-1.0), "float64")
        tracemalloc.start()
        rows.chunk(0, 5000)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert 0.5 * peak < 5000 * rows.row_bytes < 2 * peak
        assert peak < 1.1 * 5000 * rows.row_bytes


def test_rows_say_what_a_packed_chunk_allocates() -> None:
    X = sp.csr_array(sp.random(5000, 200, density=0.04, random_state=0))
    rows = read(X, InputSchema(200), "float64", np.arange(0, 200, 4))
    assert rows.packed_row_bytes < rows.row_bytes
    tracemalloc.start()
    rows.chunk(0, 5000, packed=True)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 0.5 * peak < 5000 * rows.packed_row_bytes < 2 * peak
    assert peak < 1.1 * 5000 * rows.packed_row_bytes


@pytest.mark.parametrize(
    "schema",
    [
        InputSchema(90),
        InputSchema(90, sparse_zero_missing=True),
        InputSchema(90, missing_value=0.0),
        InputSchema(90, missing_value=2.0, sparse_zero_missing=True),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "bool"])
def test_packed_rows_are_the_tested_columns_of_all_rows(schema: InputSchema, dtype: str) -> None:
    rng = np.random.default_rng(0)
    X = sp.csr_array((rng.integers(0, 4, (50, 90)) * (rng.random((50, 90)) < 0.08)).astype(dtype))
    X.data[::9] = 0  # stored zeros
    tested = np.array([0, 3, 40, 41, 70, 89])
    rows = read(X, schema, "float32", tested)
    for start, stop in ((0, 50), (7, 30), (5, 5)):
        packed, whole = rows.chunk(start, stop, packed=True), rows.chunk(start, stop)
        assert whole.shape == (stop - start, 90) and packed.shape == (stop - start, 6)
        assert packed.dtype == whole.dtype == np.float32
        np.testing.assert_array_equal(packed, whole[:, tested])
    assert len(np.unique(rows.chunk(0, 50, packed=True))) > 1


@pytest.mark.parametrize(("value", "what"), [(np.nan, "NaN"), (np.inf, "infinity"), (1e39, "too large")])
@pytest.mark.parametrize("column", [1, 2])
def test_packed_rows_reject_what_all_rows_reject(value: float, what: str, column: int) -> None:
    X = np.eye(60)
    X[4, column] = value
    schema = InputSchema(60, allow_nan=False, allow_inf=False)
    rows = read(sp.csr_array(X), schema, "float32", np.array([0, 2, 5]))
    assert rows.chunk(5, 60, packed=True).shape == (55, 3)
    with pytest.raises(ValueError, match=what) as whole:
        rows.chunk(1, 60)
    with pytest.raises(ValueError, match=f"row 4, column {column}") as packed:
        rows.chunk(1, 60, packed=True)
    assert str(packed.value) == str(whole.value)


def test_rows_are_packed_only_where_this_saves_memory() -> None:
    X, tested = sp.csr_array(np.eye(60)), np.array([0, 1])
    assert read(X, InputSchema(60), "float64", tested).chunk(0, 4, packed=True).shape == (4, 2)
    encoded = InputSchema(60, encoders={1: Codes()})
    assert read(X, encoded, "float64", tested).chunk(0, 4, packed=True).shape == (4, 60)
    for dense in (sp.csr_array(np.ones((60, 60))), np.eye(60)):
        assert read(dense, InputSchema(60), "float64", tested).chunk(0, 4, packed=True).shape == (4, 60)


def test_integers_that_round_twice_are_rejected_in_packed_rows_too() -> None:
    X = np.zeros((3, 60), np.int64)
    X[1, 2] = 2**60 + 2**36 + 1
    rows = read(sp.csr_array(X), InputSchema(60), "float32", np.array([0]))
    with pytest.raises(ValueError, match="float32"):
        rows.chunk(0, 3, packed=True)
