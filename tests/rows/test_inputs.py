"""inputs.py: every kind of X becomes the same chunks, and what no model takes is refused by name."""

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
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor

from skshapgpu import TreeExplainer
from skshapgpu.inputs import Rows, read, select, to_array
from skshapgpu.schema import Column, InputSchema

#: Rows that float16 and every integer type hold exactly.
SMALL = np.array([[0, 1, 2], [3, 4, 5], [6, 7, 8], [120, 0, 1]])


def chunk(X: Any, schema: InputSchema | None = None, x_dtype: str = "float64") -> np.ndarray:
    """All rows of X, put together from chunks of two."""
    rows = read(X, schema or InputSchema(3), x_dtype)
    parts = [rows.chunk(start, min(start + 2, rows.n_rows)) for start in range(0, rows.n_rows, 2)]
    return np.concatenate(parts) if parts else rows.chunk(0, 0)


class Codes:
    """Encoder that keeps what it was given."""

    def __init__(self) -> None:
        self.columns: list[Column] = []

    def encode(self, column: Column) -> np.ndarray:
        self.columns.append(column)
        return np.arange(len(column.values), dtype=np.float64)


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


# Data frames

FRAMES = ["pandas", "polars", "pyarrow"]


def frame(package: str, columns: dict[str, Any]) -> Any:
    module = pytest.importorskip(package)
    return module.table(columns) if package == "pyarrow" else module.DataFrame(columns)


@pytest.mark.parametrize("package", FRAMES)
def test_frame_of_mixed_numbers(package: str) -> None:
    X = frame(
        package,
        {"a": np.array([1.5, 2.5, np.nan]), "b": np.array([1, 2, 3]), "c": np.array([True, False, True])},
    )
    for x_dtype in ("float32", "float64"):
        block = chunk(X, x_dtype=x_dtype)
        assert block.dtype == x_dtype
        np.testing.assert_array_equal(block, [[1.5, 1, 1], [2.5, 2, 0], [np.nan, 3, 1]])
    assert read(X, InputSchema(3), "float32").names == ("a", "b", "c")


@pytest.mark.parametrize("package", FRAMES)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_frame_of_one_float_dtype(package: str, dtype: str) -> None:
    X = frame(package, {name: SMALL[:, i].astype(dtype) for i, name in enumerate("abc")})
    assert read(X, InputSchema(3), "float64").dtype == dtype
    np.testing.assert_array_equal(chunk(X), SMALL)


@pytest.mark.parametrize("package", FRAMES)
def test_frame_without_rows(package: str) -> None:
    X = frame(package, {name: np.empty(0) for name in "abc"})
    assert chunk(X).shape == (0, 3)


def test_pandas_block_is_not_copied() -> None:
    pd = pytest.importorskip("pandas")
    X = pd.DataFrame(SMALL.astype(np.float64), columns=list("abc"))
    assert np.shares_memory(read(X, InputSchema(3), "float32").chunk(0, 2), X["b"].to_numpy())


def test_pandas_columns_of_several_blocks_are_converted_by_chunk() -> None:
    pd = pytest.importorskip("pandas")
    n_rows = 300_000
    X = pd.concat([pd.Series(np.zeros(n_rows), name=name) for name in "abc"], axis=1)
    tracemalloc.start()
    read(X, InputSchema(3), "float64").chunk(0, 10)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200_000


@pytest.mark.parametrize(
    "dtype",
    [
        "Int64",
        "UInt8",
        "Float32",
        "Float64",
        "boolean",
        "int64[pyarrow]",
        "double[pyarrow]",
        "float[pyarrow]",
        "bool[pyarrow]",
    ],
)
def test_pandas_nullable_and_arrow_dtypes(dtype: str) -> None:
    pd = pytest.importorskip("pandas")
    if "pyarrow" in dtype:
        pytest.importorskip("pyarrow")
    X = pd.DataFrame({name: pd.array([1, None, 0], dtype=dtype) for name in "abc"})
    block = chunk(X, x_dtype="float32")
    np.testing.assert_array_equal(block, np.tile([[1], [np.nan], [0]], 3))
    with pytest.raises(ValueError, match=r"NaN.*row 1, column a"):
        chunk(X, InputSchema(3, allow_nan=False))
    single = dtype in ("Float32", "float[pyarrow]")
    assert read(X, InputSchema(3), "float32").dtype == ("f4" if single else "f8")


def test_pandas_objects() -> None:
    pd = pytest.importorskip("pandas")
    X = pd.DataFrame(
        {"a": [1, None, pd.NA], "b": [True, 2.5, Decimal(3)], "c": [np.float32(1), np.int8(2), np.bool_(1)]},
        dtype=object,
    )
    np.testing.assert_array_equal(chunk(X), [[1, 1, 1], [np.nan, 2.5, 2], [np.nan, 3, 1]])


def test_pandas_sparse_columns() -> None:
    pd = pytest.importorskip("pandas")
    X = pd.DataFrame({name: pd.arrays.SparseArray(SMALL[:, i].astype(float)) for i, name in enumerate("abc")})
    np.testing.assert_array_equal(chunk(X), SMALL)


def test_polars_nulls() -> None:
    pl = pytest.importorskip("polars")
    X = pl.DataFrame({"a": [1, None, 3], "b": [True, None, False], "c": [0.5, None, np.nan]})
    np.testing.assert_array_equal(chunk(X), [[1, 1, 0.5], [np.nan] * 3, [3, 0, np.nan]])


def test_arrow_nulls_and_chunks() -> None:
    pa = pytest.importorskip("pyarrow")
    parts = [
        pa.table(
            {"a": pa.array([1, None]), "b": pa.array([True, None]), "c": pa.array([0.5, 1.5], pa.float32())}
        )
    ] * 2
    expected = [[1, 1, 0.5], [np.nan, np.nan, 1.5]] * 2
    np.testing.assert_array_equal(chunk(pa.concat_tables(parts)), expected)
    np.testing.assert_array_equal(chunk(parts[0].to_batches()[0]), expected[:2])


def categorical(package: str, labels: list[str | None]) -> Any:
    """A frame with the numeric columns n, m around a categorical column c."""
    numbers = np.arange(float(len(labels)))
    if package == "pandas":
        pd = pytest.importorskip("pandas")
        return pd.DataFrame(
            {"n": numbers, "c": pd.Categorical(labels, categories=["z", "x", "y"]), "m": numbers}
        )
    if package == "polars":
        pl = pytest.importorskip("polars")
        return pl.DataFrame(
            {"n": numbers, "c": pl.Series(labels, dtype=pl.Enum(["z", "x", "y"])), "m": numbers}
        )
    pa = pytest.importorskip("pyarrow")
    codes = pa.array(
        [None if label is None else ["z", "x", "y"].index(label) for label in labels], pa.int32()
    )
    encoded = pa.DictionaryArray.from_arrays(codes, pa.array(["z", "x", "y"]))
    return pa.table({"n": numbers, "c": encoded, "m": numbers})


@pytest.mark.parametrize("package", ["pandas", "polars", "pyarrow"])
def test_categorical_columns_reach_the_encoder(package: str) -> None:
    labels = ["x", None, "z", "y", "x"]
    codes = Codes()
    block = chunk(categorical(package, labels), InputSchema(3, encoders={1: codes}))
    np.testing.assert_array_equal(block, [[0, 0, 0], [1, 1, 1], [2, 0, 2], [3, 1, 3], [4, 0, 4]])
    assert [column.name for column in codes.columns] == ["c"] * 3
    assert all(column.package == package for column in codes.columns)
    np.testing.assert_array_equal(
        np.concatenate([column.codes for column in codes.columns]), [1, -1, 0, 2, 1]
    )
    values = np.concatenate([column.values for column in codes.columns]).tolist()
    assert [value if isinstance(value, str) else None for value in values] == labels


def test_polars_categorical_column_without_enum() -> None:
    pl = pytest.importorskip("polars")
    codes = Codes()
    X = pl.DataFrame({"c": pl.Series(["b", "a", None, "b"], dtype=pl.Categorical)})
    chunk(X, InputSchema(1, encoders={0: codes}))
    values = np.concatenate([column.values for column in codes.columns])
    assert values.tolist() == ["b", "a", None, "b"]
    assert all(column.is_text and column.codes is None for column in codes.columns)


def test_arrow_backed_dictionaries_of_pandas_have_values_only() -> None:
    pd, pa = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    for labels in (["b", "a", None, "b"], [7, 3, None, 7]):
        encoded = pa.array(labels).dictionary_encode()
        codes = Codes()
        X = pd.DataFrame({"c": pd.Series(encoded, dtype=pd.ArrowDtype(encoded.type))})
        chunk(X, InputSchema(1, encoders={0: codes}))
        values = [value for column in codes.columns for value in column.values.tolist()]
        assert [None if value != value else value for value in values] == labels
        assert all(column.is_text == isinstance(labels[0], str) for column in codes.columns)
        assert all(column.codes is None for column in codes.columns)


@pytest.mark.parametrize(
    "X", [np.array([["p", 1.0, 2]] * 3, object), [["p", 1.0, 2]] * 3], ids=["array", "list"]
)
def test_text_of_an_array_reaches_the_encoder(X: Any) -> None:
    codes = Codes()
    X = np.array(X, object)
    block = chunk(X, InputSchema(3, encoders={0: codes}))
    np.testing.assert_array_equal(block, [[0, 1, 2], [1, 1, 2], [0, 1, 2]])
    assert codes.columns[0].values.tolist() == ["p", "p"]
    assert codes.columns[0].codes is None and codes.columns[0].package is None


def test_pandas_categories_that_are_numbers_need_no_encoder() -> None:
    pd = pytest.importorskip("pandas")
    X = pd.DataFrame({"a": pd.Categorical([30, 10, None]), "b": [0.0, 1, 2], "c": [0, 1, 2]})
    np.testing.assert_array_equal(chunk(X)[:, 0], [30, 10, np.nan])


# Names


NAMED = InputSchema(3, feature_names=("a", "b", "c"))


@pytest.mark.parametrize("package", FRAMES)
def test_names_must_match(package: str) -> None:
    columns = {name: np.zeros(2) for name in "abc"}
    chunk(frame(package, columns), NAMED)
    with pytest.raises(ValueError, match="must be in the same order"):
        chunk(frame(package, {name: columns[name] for name in "acb"}), NAMED)
    with pytest.raises(ValueError, match=r"unseen at fit time:\n- d\n.*now missing:\n- b") as error:
        chunk(frame(package, {name: np.zeros(2) for name in "adc"}), NAMED)
    assert "- a" not in str(error.value)


def test_long_lists_of_names_are_cut() -> None:
    pd = pytest.importorskip("pandas")
    schema = InputSchema(9, feature_names=tuple("abcdefghi"))
    with pytest.raises(ValueError, match=r"- p\n- q\n- r\n- s\n- t\n- \.\.\.\n"):
        read(pd.DataFrame(np.zeros((1, 9)), columns=list("pqrstuvwx")), schema, "float64")


def test_arrays_have_no_names() -> None:
    for X in (SMALL, SMALL.tolist(), sp.csr_array(SMALL)):
        assert read(X, NAMED, "float64").names is None
    with pytest.raises(ValueError, match="column b"):
        chunk([[1, np.inf, 2]], InputSchema(3, allow_inf=False, feature_names=("a", "b", "c")))


def test_column_numbers_are_no_names_unless_the_model_knows_them() -> None:
    pd = pytest.importorskip("pandas")
    X = pd.DataFrame(SMALL)
    np.testing.assert_array_equal(chunk(X, NAMED), SMALL)
    numbered = InputSchema(3, feature_names=("0", "1", "2"))
    np.testing.assert_array_equal(chunk(X, numbered), SMALL)
    with pytest.raises(ValueError, match="same order"):
        chunk(X[[2, 1, 0]], numbered)
    with pytest.raises(ValueError, match="unseen"):
        chunk(X.rename(columns={0: "a"}), NAMED)


def test_duplicate_names_are_refused() -> None:
    pd = pytest.importorskip("pandas")
    for schema in (NAMED, InputSchema(3)):
        with pytest.raises(ValueError, match=r"several columns of the same name:\n- b"):
            chunk(pd.DataFrame(SMALL, columns=["a", "b", "b"]), schema)


def test_row_labels_are_kept() -> None:
    pd = pytest.importorskip("pandas")
    X = pd.DataFrame(SMALL, index=list("wxyz"))
    assert read(X, InputSchema(3), "float64").index is X.index
    assert read(SMALL, InputSchema(3), "float64").index is None


def test_subclass_of_a_pandas_frame_keeps_its_names() -> None:
    pd = pytest.importorskip("pandas")

    class Special(pd.DataFrame):
        pass

    with pytest.raises(ValueError, match="same order"):
        chunk(Special(SMALL, columns=list("acb")), NAMED)


# What is refused


@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        (np.zeros(3), ValueError, "Expected 2D array, got 1D array instead. Reshape your data"),
        (np.zeros((2, 3, 1)), ValueError, "Expected 2D array, got 3D"),
        (5.0, ValueError, "Expected 2D array, got scalar"),
        ([[1, 2, 3], [4, 5]], ValueError, "rows may differ in length"),
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
        (np.zeros(3, [("a", "f8")])[:, None], TypeError, "values that are no numbers"),
    ],
)
def test_refused(X: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        chunk(X)


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
    with pytest.raises(ValueError, match="1D"):
        chunk(good["a"])


def test_refused_in_polars_and_arrow() -> None:
    pl, pa = pytest.importorskip("polars"), pytest.importorskip("pyarrow")
    when = [datetime.datetime(2000, 1, 1)]
    for module in (pl.DataFrame, pa.table):
        with pytest.raises(TypeError, match="column b holds dates"):
            chunk(module({"a": [1.0], "b": when, "c": [1.0]}))
        with pytest.raises(ValueError, match="row 0 of column b is 'p'"):
            chunk(module({"a": [1.0], "b": ["p"], "c": [1.0]}))
    with pytest.raises(TypeError, match=r"LazyFrame: convert it"):
        chunk(pl.DataFrame({"a": [1.0]}).lazy())


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
        sp.csc_matrix(X),
        sp.csr_array(X),
        pd.DataFrame(table),
        pl.DataFrame(table),
        pa.table(table),
        pd.DataFrame(table).convert_dtypes(dtype_backend="pyarrow"),
        pd.DataFrame(table, dtype="Float64"),
    ):
        np.testing.assert_array_equal(explainer.shap_values(other), expected)
    single = explainer.shap_values(X.astype("f4"))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, expected, atol=1e-6)


def test_rows_say_what_a_chunk_allocates() -> None:
    X = np.zeros((5000, 200))
    assert read(X, InputSchema(200), "float64").row_bytes == 0
    for other in (X.astype(int), sp.csr_array(np.ones((5000, 200))), X.astype(object)):
        rows: Rows = read(other, InputSchema(200, missing_value=-1.0), "float64")
        tracemalloc.start()
        rows.chunk(0, 5000)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert 0.5 * peak < 5000 * rows.row_bytes < 2 * peak
        assert peak < 1.1 * 5000 * rows.row_bytes
