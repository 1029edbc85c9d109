"""Rows reach the first step of a pipeline as in explain, whatever the source and the batch size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.compose import make_column_transformer
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler, TargetEncoder

from skshapgpu import TreeExplainer, explain, explain_batches
from skshapgpu.batches import BatchExplainer

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")
import pyarrow.dataset  # noqa: E402
import pyarrow.feather  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402

N = 60
RNG = np.random.default_rng(0)
CODES = RNG.integers(0, 3, N)
#: Values are missing only in the first rows, so that most batches have no missing value.
GAPS = np.arange(N) < 9


def gaps(values: Any, dtype: Any) -> Any:
    return pd.array([None if gap else value for value, gap in zip(values, GAPS)], dtype=dtype)


#: A column of each dtype that Arrow and pandas both have.
X = pd.DataFrame(
    {
        "float": RNG.normal(size=N).round(3),
        "float with gaps": np.where(GAPS, np.nan, RNG.normal(size=N).round(1)),
        "int": CODES,
        "uint8": CODES.astype(np.uint8),
        "bool": CODES > 1,
        "Int64": gaps(CODES, "Int64"),
        "Int64 whole": pd.array(CODES, "Int64"),
        "boolean": gaps(CODES > 1, "boolean"),
        "Float32": gaps(CODES / 2, "Float32"),
        "arrow int": gaps(CODES.tolist(), pd.ArrowDtype(pa.int32())),
        "arrow bool": gaps((CODES > 1).tolist(), pd.ArrowDtype(pa.bool_())),
        "objects": np.array([None if gap else bool(code) for code, gap in zip(CODES, GAPS)], object),
        "decimals": np.array([Decimal(f"{code}.50") for code in CODES], object),
        "strings": np.array(["x", "y", "z"])[CODES],
        "string": gaps(np.array(["x", "y", "z"])[CODES].tolist(), "string"),
        "category": pd.Categorical(np.array(["x", "y", "z"])[CODES], ["z", "unused", "y", "x"]),
        "ordered": pd.Categorical(np.array(["x", "y", "z"])[CODES], ["z", "y", "x"], ordered=True),
        "day": pd.Timestamp("2026-01-01") + pd.to_timedelta(CODES, "D"),
    }
)
#: Columns that pandas.read_csv reads as the other columns are.
PLAIN = ["float", "float with gaps", "int", "bool", "objects", "strings"]
#: Columns that only pandas has.
FOREIGN = pd.DataFrame(
    {
        "mixed": np.array([1, "a", 2.5], object)[CODES],
        "interval": pd.cut(CODES, 3),
        "sparse": pd.arrays.SparseArray(CODES.astype(float)),
        "complex category": pd.Categorical([(int(code), 0) for code in CODES]),
    }
)
ALL = pd.concat([X, FOREIGN], axis=1)
Y = 3.0 * CODES + X["float"].to_numpy() + 20 * GAPS


class Seen(TransformerMixin, BaseEstimator):
    """Step that records the frames that it receives, and converts their values to numbers."""

    def fit(self, X: Any, y: Any = None) -> Seen:
        return self

    def transform(self, X: Any) -> Any:
        FRAMES.append(X)
        columns = {}
        for name, series in X.items():
            codes = series.cat.codes if str(series.dtype) == "category" else 0
            lengths = series.astype(object).map(lambda value: len(repr(value)))
            columns[name] = lengths + 10.0 * codes + 100 * len(str(series.dtype))
        return pd.DataFrame(columns)


FRAMES: list[Any] = []


def of_columns(step: Any) -> Callable[[Any], Any]:
    """Return a function that makes a first step, which applies a step to all columns but one."""
    return lambda X: make_column_transformer(
        (step, [name for name in X if name != "float"]), sparse_threshold=0
    )


def texts(X: Any) -> Any:
    """Return columns of strings that depend on the dtypes, but not on other rows (pandas 2's strings do)."""
    return pd.DataFrame({name: [str(value) for value in X[name].array] for name in X if name != "float"})


STEPS: dict[str, Callable[[Any], Any]] = {
    "one-hot": of_columns(OneHotEncoder(handle_unknown="ignore")),
    "target": of_columns(TargetEncoder(target_type="continuous", random_state=0)),
    "texts": lambda X: make_pipeline(FunctionTransformer(texts), OneHotEncoder(handle_unknown="ignore")),
    "hand-written": lambda X: Seen(),
}


def fitted(step: str, X: Any) -> Any:
    model = ExtraTreesRegressor(4, max_features=4, random_state=0)
    return make_pipeline(STEPS[step](X), model).fit(X, Y)


@cache
def explainer_of(step: str, names: tuple[str, ...]) -> TreeExplainer:
    return TreeExplainer(fitted(step, ALL[list(names)]))


def parquet(frame: Any, folder: Path) -> tuple[Any, Any]:
    frame.to_parquet(folder / "rows.parquet", row_group_size=17)
    return folder / "rows.parquet", pd.read_parquet(folder / "rows.parquet")


def feather(frame: Any, folder: Path) -> tuple[Any, Any]:
    pyarrow.feather.write_feather(frame, str(folder / "rows.feather"), chunksize=13)
    return folder / "rows.feather", pd.read_feather(folder / "rows.feather")


def csv(frame: Any, folder: Path) -> tuple[Any, Any]:
    frame[PLAIN].to_csv(folder / "rows.csv", index=False)
    return folder / "rows.csv", pd.read_csv(folder / "rows.csv")


def files(frame: Any, folder: Path) -> tuple[Any, Any]:
    """Write two files: only the first has missing values; the second has its columns in another order."""
    paths = [folder / "a.parquet", folder / "b.parquet"]
    frame.iloc[:25].to_parquet(paths[0])
    frame.iloc[25:, ::-1].to_parquet(paths[1])
    all_rows = pd.concat(
        [pd.read_parquet(paths[0]), pd.read_parquet(paths[1])[frame.columns]], ignore_index=True
    )
    all_rows["objects"] = all_rows["objects"].astype(object)
    return paths, all_rows


def table(frame: Any, folder: Path) -> tuple[Any, Any]:
    all_rows = pa.Table.from_pandas(frame)
    return all_rows, all_rows.to_pandas()


def batches(frame: Any, folder: Path) -> tuple[Any, Any]:
    all_rows = pa.Table.from_pandas(frame)
    return iter(all_rows.to_batches(max_chunksize=17)), all_rows.to_pandas()


def frames(frame: Any, folder: Path) -> tuple[Any, Any]:
    return (frame.iloc[start : start + 17] for start in range(0, N, 17)), frame


def dataset(frame: Any, folder: Path) -> tuple[Any, Any]:
    path, all_rows = parquet(frame, folder)
    return pyarrow.dataset.dataset(path), all_rows


SOURCES: dict[str, Callable[[Any, Path], tuple[Any, Any]]] = {
    "frame": lambda frame, folder: (frame, frame),
    **{
        function.__name__: function
        for function in (parquet, feather, csv, files, table, batches, frames, dataset)
    },
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("source", SOURCES)
def test_first_steps_see_what_they_see_in_explain(source: str, step: str, tmp_path: Path) -> None:
    used = X[PLAIN] if source == "csv" else ALL if source in ("frame", "frames") else X
    if step in ("target", "one-hot"):  # which do not accept some of them in explain, either
        used = used.drop(columns=["mixed", "interval", "complex category", "day", "string"], errors="ignore")
    explainer = explainer_of(step, tuple(used))
    for size in (13, N) if step == "hand-written" else (13,):
        rows, whole = SOURCES[source](used, tmp_path)
        expected = explainer.explain(whole).values
        FRAMES.clear()
        explain_batches(explainer, rows, tmp_path / f"{size}.npy", batch_size=size)
        np.testing.assert_allclose(np.load(tmp_path / f"{size}.npy"), expected, rtol=0, atol=1e-12)
        if step == "hand-written":
            del FRAMES[:2]  # some rows of the first batch, together and alone
            assert len(FRAMES[0]) == size
            seen = pd.concat([frame.reset_index(drop=True) for frame in FRAMES], ignore_index=True)
            pd.testing.assert_frame_equal(seen, whole.reset_index(drop=True))
            for name in ("category", "ordered") if "category" in whole else ():
                assert all(list(f[name].cat.categories) == list(whole[name].cat.categories) for f in FRAMES)


def test_integers_and_booleans_with_nulls(tmp_path: Path) -> None:
    """Integers are floats, and booleans objects, in all batches if any row of the file has a null."""
    columns = {
        "a": RNG.normal(size=N),
        "k": pa.array([*CODES[:40].tolist(), *[None] * 20], pa.int64()),
        "b": pa.array([None, *(CODES > 1).tolist()[1:]]),
        "c": pa.array(["u", "v"] * 30).dictionary_encode(),
    }
    rows, model = pa.table(columns), None
    pq.write_table(rows, tmp_path / "statistics.parquet", row_group_size=20)
    pq.write_table(rows, tmp_path / "none.parquet", row_group_size=20, write_statistics=False)
    pyarrow.feather.write_feather(rows, str(tmp_path / "rows.feather"), chunksize=20)
    for name in ("statistics.parquet", "none.parquet", "rows.feather"):
        all_rows = pd.read_feather(tmp_path / name) if "feather" in name else pd.read_parquet(tmp_path / name)
        model = model or fitted("texts", all_rows)
        for size in (20, N):
            out = tmp_path / f"{name}-{size}.npy"
            explain_batches(model, tmp_path / name, out, batch_size=size)
            np.testing.assert_allclose(np.load(out), explain(model, all_rows).values, rtol=0, atol=1e-12)
    all_rows = rows.to_pandas()
    assert (all_rows["k"].dtype, all_rows["b"].dtype) == (np.float64, object)
    # The nulls of a stream are not known beforehand, so a later null cannot change the type of a column.
    with pytest.raises(ValueError, match=r"column 'k' is int64 and has missing values.*Cast it to float64"):
        explain_batches(model, iter(rows.to_batches(20)), tmp_path / "stream.npy", batch_size=20)
    with pytest.raises(ValueError, match=r"column 'k' is int64 and has missing values.*Cast it to float64"):
        BatchExplainer(model)(rows.slice(20, 40).to_batches()[0])
    cast = rows.set_column(1, "k", rows["k"].cast(pa.float64())).set_column(
        2, "b", rows["b"].cast(pa.float64())
    )
    explain_batches(model, iter(cast.to_batches(20)), tmp_path / "cast.npy", batch_size=7)
    np.testing.assert_allclose(
        np.load(tmp_path / "cast.npy"), explain(model, cast.to_pandas()).values, atol=1e-12
    )
    # A schema that pandas wrote says that the column had floats.
    told = rows.replace_schema_metadata(pa.Schema.from_pandas(all_rows).metadata)
    table = pa.Table.from_batches([BatchExplainer(model)(batch) for batch in told.to_batches(20)])
    np.testing.assert_allclose(
        table.to_pandas().to_numpy(), explain(model, all_rows).values, rtol=0, atol=1e-12
    )


def test_dictionaries_that_differ(tmp_path: Path) -> None:
    """Categories in another order never get the codes of the first file."""
    parts = [pd.DataFrame({"k": pd.Categorical(list("aabbc") * 4, list(order))}) for order in ("abc", "cba")]
    paths = [tmp_path / "0.parquet", tmp_path / "1.parquet"]
    for part, path in zip(parts, paths):
        part.to_parquet(path)
    texts = np.tile(list("aabbc"), 8)
    plain = pd.DataFrame({"k": texts})
    by_value = make_pipeline(OneHotEncoder(sparse_output=False), ExtraTreesRegressor(3, random_state=0))
    by_value.fit(plain, texts == "b")
    by_code = make_pipeline(
        FunctionTransformer(lambda X: X.assign(k=X["k"].cat.codes)), ExtraTreesRegressor(3, random_state=0)
    ).fit(parts[0], parts[0]["k"].cat.codes)
    for size in (7, 40):
        explain_batches(by_value, paths, tmp_path / f"{size}.npy", batch_size=size)
        np.testing.assert_array_equal(np.load(tmp_path / f"{size}.npy"), explain(by_value, plain).values)
        with pytest.raises(ValueError, match=r"a step .* does not transform them by their values alone"):
            explain_batches(by_code, paths, tmp_path / f"{size}-codes.npy", batch_size=size)
    for items in (iter(parts), iter([pa.Table.from_pandas(part) for part in parts])):
        with pytest.raises(
            ValueError, match="column 'k' has other categories in item 1 of the source than in"
        ):
            explain_batches(by_code, items, tmp_path / "items.npy", batch_size=7)
    for part, path in zip(parts, paths):  # each alone
        explain_batches(by_code, path, tmp_path / f"{path.stem}.npy", batch_size=7)
        np.testing.assert_array_equal(np.load(tmp_path / f"{path.stem}.npy"), explain(by_code, part).values)


def test_categories_of_arrow_are_compared_with_lightgbm(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """LightGBM itself reads no categories of Arrow, and says so in the standard error."""
    lightgbm = pytest.importorskip("lightgbm")
    rng = np.random.default_rng(1)
    X = pd.DataFrame({"k": pd.Categorical(rng.choice(list("abc"), 300)), "x": rng.normal(size=300)})
    X.loc[::7, "k"] = None
    model = lightgbm.LGBMRegressor(n_estimators=5, verbose=-1).fit(X, 3 * (X["k"] == "b") + X["x"])
    X.to_parquet(tmp_path / "rows.parquet")
    explanation = explain(model, pq.read_table(tmp_path / "rows.parquet"))
    assert explanation.checked_against == "model"
    result = explain_batches(model, tmp_path / "rows.parquet", tmp_path / "values.npy")
    assert (result.checked_against, result.check_note) == ("model", None)
    np.testing.assert_allclose(
        np.load(tmp_path / "values.npy").sum(axis=1) + result.base_values,
        model.predict(X),
        rtol=0,
        atol=1e-6 * np.abs(explanation.values).max(),
    )
    resumed = explain_batches(model, tmp_path / "rows.parquet", tmp_path / "values.npy")
    assert (resumed.n_resumed, resumed.checked_against, resumed.check_note) == (300, None, None)
    assert "Fatal" not in "".join(capfd.readouterr())


@pytest.mark.parametrize("values", ["abc", [True, False], [3, 1, 2]], ids=["text", "booleans", "numbers"])
def test_steps_that_see_more_of_categories_than_values(values: Any, tmp_path: Path) -> None:
    """All files have one dtype, but codes depend on the file."""
    values = list(values)
    parts = []
    for order in (values, values[::-1]):
        cells = [values[i] if i >= 0 else None for i in np.resize([0, 1, -1, len(values) - 1, 1], 20)]
        parts.append(pd.DataFrame({"k": pd.Categorical(cells, order), "x": np.arange(20.0)}))
        parts[-1].to_feather(tmp_path / f"{len(parts)}.feather")  # Parquet has categories of text only
    paths = [tmp_path / "1.feather", tmp_path / "2.feather"]

    def dtypes(frame: Any) -> Any:
        category = str(frame["k"].dtype) == "category"
        return frame.assign(k=0.0, x=frame["x"] if category else -100.0)

    def codes(frame: Any) -> Any:
        category = str(frame["k"].dtype) == "category"
        return frame.assign(k=frame["k"].cat.codes if category else frame["k"].astype(str).str.len())

    forest = ExtraTreesRegressor(5, random_state=0)
    all_rows = pd.concat(parts, ignore_index=True)
    target = (all_rows["k"].isna() + 2 * (all_rows["k"] == values[0])).astype(float)
    by_code = make_pipeline(FunctionTransformer(codes), forest).fit(parts[0], target[:20])
    for size in (3, 40):
        with pytest.raises(ValueError, match="column 'k' has other categories in some files than in others"):
            explain_batches(by_code, paths, tmp_path / "codes.npy", batch_size=size)
    by_dtype = make_pipeline(FunctionTransformer(dtypes), clone(forest)).fit(all_rows, target)
    explain_batches(by_dtype, paths, tmp_path / "dtypes.npy", batch_size=7)
    np.testing.assert_array_equal(np.load(tmp_path / "dtypes.npy"), explain(by_dtype, all_rows).values)
    encoder = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), ["k"]), remainder="passthrough"
    )
    for number, rows in enumerate([parts[0], all_rows]):
        by_value = make_pipeline(encoder, clone(forest)).fit(rows, target[: len(rows)])
        out = tmp_path / f"{number}.npy"
        explain_batches(by_value, paths, out, batch_size=7)
        np.testing.assert_array_equal(np.load(out), explain(by_value, all_rows).values)


def test_items_with_other_dtypes(tmp_path: Path) -> None:
    """An item of an iterator has the dtypes of the first item, fits into them, or is rejected."""
    all_rows, gaps = pd.DataFrame({"k": CODES[:20]}), pd.DataFrame({"k": [1.0, np.nan] * 10})
    model = fitted("texts", X[["int"]].rename(columns={"int": "k"}))
    for make in (lambda frame: frame, pa.Table.from_pandas):
        with pytest.raises(
            ValueError, match=r"column 'k' is (float64|double) in item 1 .* int64 in the first item"
        ):
            explain_batches(model, iter([make(all_rows), make(gaps)]), tmp_path / "out.npy")
        out = tmp_path / f"{make is not pa.Table.from_pandas}.npy"
        explain_batches(model, iter([make(gaps), make(all_rows)]), out, batch_size=3)
        expected = explain(model, pd.concat([gaps, all_rows], ignore_index=True)).values
        np.testing.assert_array_equal(np.load(out), expected)


def test_categories_that_arrow_cannot_combine_are_refused(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    rows = np.random.default_rng(0).normal(size=(40, 2))
    model = ExtraTreesRegressor(3, random_state=0).fit(rows, rows[:, 0])
    frames = [
        pd.DataFrame(rows, columns=["a", "b"]).assign(size=pd.cut(rows[:, 0], n_intervals))
        for n_intervals in (3, 4)
    ]
    with pytest.raises(TypeError, match=r"Arrow cannot combine all of them.*'size'.*Convert"):
        explain_batches(model, iter(frames), tmp_path / "values.parquet", features=["a", "b"], keep=["size"])
    texts = [frame.assign(size=frame["size"].astype(str).astype("category")) for frame in frames]
    explain_batches(model, iter(texts), tmp_path / "values.parquet", features=["a", "b"], keep=["size"])
    kept = pd.read_parquet(tmp_path / "values.parquet")["size"]
    assert kept.astype(str).tolist() == [text for frame in texts for text in frame["size"]]


def test_files_of_different_extension_dtypes_are_refused(tmp_path: Path) -> None:
    paths = [tmp_path / "0.parquet", tmp_path / "1.parquet"]
    pd.DataFrame({"k": CODES}).to_parquet(paths[0])
    pd.DataFrame({"k": pd.array(CODES, "Int64")}).to_parquet(paths[1])
    model = fitted("texts", pd.read_parquet(paths[0]))
    with pytest.raises(
        ValueError, match=r"pandas wrote column 'k' as Int64 to '.*1.parquet', but as a NumPy dtype"
    ):
        explain_batches(model, paths, tmp_path / "out.npy")


def test_files_of_decimals_with_other_digits_are_refused(tmp_path: Path) -> None:
    """After a cast to one scale, 1.5 would be 1.50 to a step that looks at the digits."""
    paths = [tmp_path / "0.parquet", tmp_path / "1.parquet"]
    for path, digits in zip(paths, ("1.5", "1.25")):
        pq.write_table(pa.table({"k": pa.array([Decimal(digits), Decimal(1)] * 30)}), path)
    model = fitted("texts", pd.read_parquet(paths[0]))
    with pytest.raises(ValueError, match=r"column 'k' is decimal128\(3, 2\) in .*1.parquet"):
        explain_batches(model, paths, tmp_path / "out.npy")
    explain_batches(model, paths[0], tmp_path / "out.npy")
    expected = explain(model, pd.read_parquet(paths[0])).values
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), expected)


def test_integers_of_csv_that_exceed_64_bits_are_refused(tmp_path: Path) -> None:
    path, message = tmp_path / "rows.csv", r"column 'k' of .* has integers that no 64-bit type holds together"
    for values in (
        ["9223372036854775808", "-1"],
        ["18446744073709551616", "1"],
        ["-9223372036854775809", "1"],
    ):
        path.write_text("k\n" + "\n".join(values * 30) + "\n")
        model = fitted("texts", pd.read_csv(path))
        with pytest.raises(ValueError, match=message):
            explain_batches(model, path, tmp_path / "out.npy")
    path.write_text("k\n" + "\n".join(["9223372036854775808", "1"] * 30) + "\n")
    model = fitted("texts", pd.read_csv(path))
    explain_batches(model, path, tmp_path / "out.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), explain(model, pd.read_csv(path)).values)


def test_what_pandas_cannot_read_back_is_refused(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": X["float"], "k": pd.cut(CODES, 3)})
    model = fitted("hand-written", frame)
    pyarrow.feather.write_feather(frame, str(tmp_path / "rows.feather"))
    with pytest.raises(ValueError, match=r"rows.feather' cannot be read"):  # nor can pandas
        explain_batches(model, tmp_path / "rows.feather", tmp_path / "out.npy")
    with pytest.raises(ValueError, match=r"column 'k' has categories of type .*interval"):
        BatchExplainer(model)(pa.RecordBatch.from_pandas(frame))
    histograms = HistGradientBoostingRegressor(max_iter=3, categorical_features="from_dtype")
    histograms.fit(frame, frame["a"])
    with pytest.raises(ValueError, match=r"column 'k' has categories of type .*interval"):
        BatchExplainer(histograms)(pa.RecordBatch.from_pandas(frame))
    lists = pa.table({"a": X["float"], "k": pa.array([[1, None], [2]] * 30)})
    with pytest.raises(ValueError, match="column 'k' has lists of int64 with missing values"):
        explain_batches(model, lists, tmp_path / "out.npy")
    with pytest.raises(
        ValueError, match="the columns of the data frame to keep cannot be converted to Arrow"
    ):
        explain_batches(model, frame.assign(s=FOREIGN["sparse"]), tmp_path / "out.parquet", keep=["s"])


def test_frames_without_steps_are_sliced(tmp_path: Path) -> None:
    frame = pd.DataFrame({"s": FOREIGN["sparse"], "b": X["boolean"], "f": X["Float32"]})
    model = HistGradientBoostingRegressor(max_iter=9, min_samples_leaf=3).fit(frame.astype(float), Y)
    explain_batches(model, frame.set_index(np.arange(N) * 3), tmp_path / "out.npy", batch_size=7)
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), TreeExplainer(model).shap_values(frame))
    items = [frame[:9], frame[9:]]  # which become tables of Arrow, that has no sparse columns
    explain_batches(model, iter(items), tmp_path / "items.npy", batch_size=7)
    np.testing.assert_array_equal(np.load(tmp_path / "items.npy"), TreeExplainer(model).shap_values(frame))
    single = X[["float", "int"]].astype(np.float32)
    forest = ExtraTreesRegressor(4, random_state=0).fit(single, Y)
    explain_batches(forest, single, tmp_path / "single.npy", batch_size=7)
    assert np.load(tmp_path / "single.npy").dtype == np.float32


class ByName(TransformerMixin, BaseEstimator):
    """Step without the attributes of scikit-learn, which finds a column by its name."""

    def fit(self, X: Any, y: Any = None) -> ByName:
        self.n_features_in_ = X.shape[1]
        return self

    def transform(self, X: Any) -> Any:
        return X.assign(ratio=X["a"] / X["b"]) if hasattr(X, "columns") else X[:, ::-1]


@pytest.mark.parametrize("step", [ByName(), FeatureUnion([("a", ByName()), ("b", FunctionTransformer())])])
def test_hand_written_steps_get_names(step: Any, tmp_path: Path) -> None:
    rows = pd.DataFrame({"a": CODES + 1.0, "b": np.arange(N) % 4 + 1.0})
    model = make_pipeline(step, ExtraTreesRegressor(3, random_state=0)).fit(rows, rows["a"] / rows["b"])
    expected = explain(model, rows).values
    rows.to_parquet(tmp_path / "rows.parquet")
    for number, source in enumerate([rows, tmp_path / "rows.parquet"]):
        explain_batches(model, source, tmp_path / f"{number}.npy", batch_size=7)
        np.testing.assert_array_equal(np.load(tmp_path / f"{number}.npy"), expected)
    batch = pa.RecordBatch.from_pandas(rows)
    np.testing.assert_array_equal(BatchExplainer(model)(batch).to_pandas(), expected)


def test_steps_fitted_on_arrays_get_arrays(tmp_path: Path) -> None:
    array = X[["float", "int"]].to_numpy()
    for step in (StandardScaler(), FunctionTransformer(lambda X: X[:, ::-1] * 2)):
        model = make_pipeline(step, ExtraTreesRegressor(3, random_state=0)).fit(array, Y)
        X[["float", "int"]].to_parquet(tmp_path / "rows.parquet")
        explain_batches(model, tmp_path / "rows.parquet", out := tmp_path / f"{type(step).__name__}.npy")
        np.testing.assert_array_equal(np.load(out), explain(model, array).values)


def test_integers_with_nulls_become_floats_in_arrays() -> None:
    array = np.column_stack([X["float"], np.where(GAPS, np.nan, CODES)])
    model = make_pipeline(SimpleImputer(), ExtraTreesRegressor(3, random_state=0)).fit(array, Y)
    batch = pa.RecordBatch.from_arrays([pa.array(X["float"]), pa.array(CODES, mask=GAPS)], names=["a", "k"])
    for rows in (slice(0, N), slice(5, 20), slice(30, N)):
        result = BatchExplainer(model)(batch.slice(rows.start, rows.stop - rows.start))
        np.testing.assert_array_equal(result.to_pandas(), explain(model, array[rows]).values)


def test_rows_that_a_step_drops_or_moves(tmp_path: Path) -> None:
    rows = pd.DataFrame(RNG.normal(size=(N, 3)), columns=list("abc"), index=RNG.permutation(N))
    holes = rows.copy()
    holes.iloc[[3, 25], 1] = np.nan

    def model_of(function: Callable[[Any], Any]) -> Any:
        forest = ExtraTreesRegressor(3, random_state=0).fit(rows, rows["a"])
        return make_pipeline(FunctionTransformer(function), forest)

    calls: list[Callable[[Any, Any], Any]] = [
        explain,
        lambda model, X: explain_batches(model, X, tmp_path / "out.npy"),
        lambda model, X: BatchExplainer(model)(pa.RecordBatch.from_pandas(X, preserve_index=False)),
        lambda model, X: TreeExplainer(model, X),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=r"step FunctionTransformer .* returns 58 rows for the 60 rows"):
            call(model_of(lambda X: X.dropna()), holes)
        for moved in (
            lambda X: X.sort_values("a"),
            lambda X: X.iloc[::-1],
            lambda X: X.iloc[np.arange(N) // 2],
        ):
            with pytest.raises(
                ValueError, match=r"step FunctionTransformer .* in another order, or some of them"
            ):
                call(model_of(moved), rows)
        call(model_of(lambda X: X.reset_index(drop=True)), rows)
        (tmp_path / "out.npy").unlink(missing_ok=True)
    with pytest.raises(ValueError, match="returns 120 rows for the 60 rows"):
        explain(model_of(lambda X: np.repeat(X, 2, axis=0)), rows.to_numpy())


def test_a_step_that_looks_at_the_index(tmp_path: Path) -> None:
    """Frames have the index that explain passes, and a level that is kept stays in it."""
    rows = X[["float", "int"]].set_index(pd.Index(np.arange(N) * 2, name="id"))
    step = FunctionTransformer(lambda X: X.assign(id=X.index))
    model = make_pipeline(step, ExtraTreesRegressor(3, random_state=0)).fit(rows, Y)

    def items() -> Iterator[Any]:
        for start in range(0, N, 11):
            yield rows.iloc[start : start + 11]

    for number, source in enumerate([rows, items()]):
        out = tmp_path / f"{number}.parquet"
        explain_batches(model, source, out, keep=["id"], batch_size=7, prefix="shap_")
        written = pq.read_table(out).to_pandas()
        assert written.pop("id").tolist() == rows.index.tolist()
        np.testing.assert_array_equal(written, explain(model, rows).values)


def test_rows_of_mlflow() -> None:
    """MLflow passes data frames without categories, so the categories come from the example."""
    from skshapgpu.mlflow._scoring import Scorer, without_categories

    rows = X[["boolean", "Int64", "category"]].assign(whole=CODES)
    for step in ("texts", "hand-written"):
        explainer = TreeExplainer(fitted(step, rows))
        example, categorical = without_categories(rows)
        assert categorical == {"category": {"categories": ["z", "unused", "y", "x"], "ordered": False}}
        expected = explainer.explain(rows).values
        for part in (slice(0, N), slice(20, 23)):
            predictions = Scorer(explainer, categorical).predict(example.iloc[part])
            np.testing.assert_allclose(predictions, expected[part], rtol=0, atol=1e-12)
            assert predictions.index.equals(rows.index[part])
    other = example.assign(category=["w", "x"] * 30)
    assert Scorer(explainer, categorical).frame(other)["category"].cat.categories.tolist() == [
        *"z",
        "unused",
        *"yxw",
    ]
    array = rows[["Int64", "whole"]].to_numpy(float, na_value=-1)
    flipped = make_pipeline(FunctionTransformer(lambda X: X[:, ::-1]), ExtraTreesRegressor(3, random_state=0))
    explainer = TreeExplainer(flipped.fit(array, Y))
    np.testing.assert_array_equal(Scorer(explainer).predict(array), explainer.explain(array).values)
