"""inputs.py: data frames, their dtypes and categories, and the names of columns."""

from __future__ import annotations

import tracemalloc
import warnings
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from helpers.chunks import FRAMES, SMALL, Codes, chunk, frame
from sklearn.ensemble import RandomForestRegressor

from skshapgpu import explain
from skshapgpu._rows.inputs import read
from skshapgpu.adapters.schema import InputSchema

# Data frames


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
    """Build a frame with the numeric columns n, m around a categorical column c."""
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
    with pytest.raises(
        ValueError, match=r"must be in the same order.*\nColumn 1 is 'c', but in fit it was 'b'"
    ):
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


@pytest.mark.parametrize("labels", [[2, 0, 1], ["c", "a", "b"]], ids=["integers", "strings"])
def test_data_and_x_have_the_same_order_of_columns(labels: list[Any]) -> None:
    """A model without names of columns cannot tell; scikit-learn keeps strings only."""
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(80, 3)), columns=labels)
    y = 5 * X[labels[0]] + X[labels[1]]
    model = RandomForestRegressor(5, random_state=0).fit(X.to_numpy(), y)
    other = X[sorted(labels)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # about strings that the model does not have
        right = explain(model, X, data=X[:9])
        np.testing.assert_array_equal(right.values, explain(model, X.to_numpy(), data=X[:9]).values)
        for data, rows in ((other[:9], X), (X[:9], other)):
            for options in ({}, {"feature_perturbation": "tree_path_dependent"}):
                with pytest.raises(ValueError, match="same in another order: column 0 is "):
                    explain(model, rows, data=data, **options)
        renamed = X.set_axis(["x", "y", "z"], axis=1)
        np.testing.assert_array_equal(right.values, explain(model, renamed, data=X[:9]).values)


def test_duplicate_names_are_refused() -> None:
    pd = pytest.importorskip("pandas")
    for schema in (NAMED, InputSchema(3)):
        with pytest.raises(ValueError, match=r"several columns of the same name:\n- b"):
            chunk(pd.DataFrame(SMALL, columns=["a", "b", "b"]), schema)


def test_row_labels_are_kept() -> None:
    pd = pytest.importorskip("pandas")
    X = pd.DataFrame(SMALL, index=list("wxyz"))
    assert read(X, InputSchema(3), "float64").row_labels is X.index
    assert read(SMALL, InputSchema(3), "float64").row_labels is None


def test_subclass_of_a_pandas_frame_keeps_its_names() -> None:
    pd = pytest.importorskip("pandas")

    class Special(pd.DataFrame):
        pass

    with pytest.raises(ValueError, match="same order"):
        chunk(Special(SMALL, columns=list("acb")), NAMED)
