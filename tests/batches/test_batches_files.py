"""explain_batches with files or items that differ: each is explained as if it were alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, OrdinalEncoder

from skshapgpu import TreeExplainer, explain_batches
from skshapgpu.batches import BatchExplainer

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")
pq = pytest.importorskip("pyarrow.parquet")
ds = pytest.importorskip("pyarrow.dataset")

#: Numbers that float32 cannot hold, so close together that narrowing a column changes values.
RNG = np.random.default_rng(0)
X = pd.DataFrame(
    {"a": 1e6 + RNG.integers(0, 9, 200) / 64, "b": RNG.integers(-9, 9, 200) * 1.0, "c": RNG.random(200)}
)
Y = 200 + 150 * (X["a"] % 1) + 10 * X["b"] * X["c"]
MODEL = HistGradientBoostingRegressor(max_iter=8, min_samples_leaf=4).fit(X, Y)
EXPLAINER = TreeExplainer(MODEL)


def narrow(frame: Any) -> Any:
    return frame.astype(np.float32)


def write(frame: Any, path: Path) -> Path:
    if path.suffix == ".parquet":
        frame.to_parquet(path, index=False)
    elif path.suffix == ".arrow":
        table = pa.Table.from_pandas(frame, preserve_index=False)
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table, max_chunksize=33)
    else:
        frame.to_csv(path, index=False)
    return path


def values_in(path: Path, n_kept: int = 0) -> np.ndarray:
    return np.column_stack(pq.read_table(path).columns[n_kept:])


def as_files(frames: list[Any], folder: Path, suffix: str) -> list[Path]:
    return [write(frame, folder / f"{i}{suffix}") for i, frame in enumerate(frames)]


def test_narrowing_shows_in_this_data() -> None:
    assert np.abs(EXPLAINER.shap_values(narrow(X)) - EXPLAINER.shap_values(X)).max() > 1


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".csv"])
def test_each_file_is_explained_as_if_it_were_alone(suffix: str, tmp_path: Path) -> None:
    """Files differ in float widths and column order, or have extra, integer or empty columns."""
    frames = [
        narrow(X),
        X[["c", "b", "a"]].assign(further="x"),
        X.assign(b=X["b"].astype(np.int8)),
        X.assign(b=X["b"].astype(np.int64)),
        X.assign(b=None),
        X.assign(c=np.where(X["c"] > 0.5, X["c"], np.nan)),
    ]
    paths = as_files(frames, tmp_path, suffix)
    want = [EXPLAINER.shap_values(frame[["a", "b", "c"]].astype({"b": float})) for frame in frames[1:]]
    read = pd.read_csv if suffix == ".csv" else narrow
    first = EXPLAINER.shap_values(read(paths[0]) if suffix == ".csv" else frames[0])
    result = explain_batches(EXPLAINER, paths, tmp_path / "out.parquet", batch_size=77)
    values = values_in(result.path)
    assert values.dtype == np.float64 and result.n_rows == 1200
    np.testing.assert_array_equal(values[200:], np.concatenate(want))
    # Values of float32 rows are float32 when they are explained alone.
    np.testing.assert_array_equal(values[:200].astype(first.dtype), first)


def test_the_type_of_the_output_is_that_of_all_files(tmp_path: Path) -> None:
    for i, (frames, dtype) in enumerate(
        [([narrow(X), narrow(X)], np.float32), ([narrow(X), X], np.float64), ([X, narrow(X)], np.float64)]
    ):
        (tmp_path / str(i)).mkdir()
        paths = as_files(frames, tmp_path / str(i), ".parquet")
        assert np.load(explain_batches(MODEL, paths, tmp_path / f"{i}.npy").path).dtype == dtype


WRONG: dict[str, tuple[Callable[[Any], Any], str]] = {
    "missing": (
        lambda frame: frame.drop(columns="b"),
        "does not have the columns of .*: there is no 'b'; give",
    ),
    "renamed": (lambda frame: frame.rename(columns={"b": "B"}), "there is no 'b', but it has 'B'"),
    "text": (lambda frame: frame.assign(b="x"), "'b'"),
    "bool": (lambda frame: frame.assign(b=frame["b"] > 0), "column 'b' is bool in .*, but double in"),
    "date": (lambda frame: frame.assign(b=pd.Timestamp("2020-01-01").as_unit("us")), "'b'"),
}


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".csv"])
@pytest.mark.parametrize("name", WRONG)
def test_files_that_lack_a_column_or_have_another_kind_of_it(name: str, suffix: str, tmp_path: Path) -> None:
    change, message = WRONG[name]
    paths = as_files([X, X, change(X)], tmp_path, suffix)
    for source in (paths, tmp_path):
        with pytest.raises(ValueError, match=f"(?s){message}") as raised:
            explain_batches(EXPLAINER, source, tmp_path.parent / f"{tmp_path.name}-out", batch_size=50)
        assert f"2{suffix}" in str(raised.value)
    assert not (tmp_path.parent / f"{tmp_path.name}-out").exists()  # nothing was begun


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("form", ["pandas", "arrow", "polars"])
def test_items_that_lack_a_column_or_have_another_kind_of_it(name: str, form: str, tmp_path: Path) -> None:
    if form == "polars":
        pl = pytest.importorskip("polars")
    make = {
        "pandas": lambda frame: frame,
        "arrow": lambda frame: pa.Table.from_pandas(frame),
        "polars": lambda frame: pl.DataFrame({name: frame[name].to_numpy() for name in frame}),
    }[form]
    change, message = WRONG[name]
    if form == "polars" and name == "text":
        message = "column 'b' is (large_string|string|string_view) in item 2"
    with pytest.raises(ValueError, match=f"(?s){message}") as raised:
        explain_batches(EXPLAINER, map(make, [X, X, change(X)]), tmp_path / "out")
    assert "item 2 of the source" in str(raised.value)


def test_items_are_explained_as_if_they_were_alone(tmp_path: Path) -> None:
    """The first item determines the type of the output; rows keep their own type."""
    frames = [
        narrow(X),
        X[["c", "a", "b"]],
        X.assign(b=X["b"].astype(int)),
        X.assign(b=np.nan),
        X.assign(b=None),
    ]
    for first, dtype in ((0, np.float32), (1, np.float64)):
        given = frames[first:]
        result = explain_batches(EXPLAINER, iter(given), tmp_path / f"{first}.parquet", batch_size=77)
        values = values_in(result.path)
        want = [EXPLAINER.shap_values(frame[["a", "b", "c"]].astype({"b": float})) for frame in given[1:]]
        assert values.dtype == dtype
        np.testing.assert_array_equal(values[200:], np.concatenate(want).astype(dtype))
        np.testing.assert_array_equal(values[:200], EXPLAINER.shap_values(given[0][["a", "b", "c"]]))


@pytest.mark.parametrize("kind", ["array", "sparse", "frame", "frame of an array"])
def test_an_iterator_may_fill_the_same_item_again(kind: str, tmp_path: Path) -> None:
    """Rows are read ahead while other rows are explained, and batches are made of several items."""
    rows = X.to_numpy()

    def items() -> Iterator[Any]:
        buffer = np.ones((10, rows.shape[1]), order="F")
        item: Any = buffer
        if kind == "sparse":
            item = sp.csr_matrix(buffer)
        elif kind != "array":
            item = pd.DataFrame(buffer, columns=X.columns, copy=kind == "frame")
        for start in range(0, len(rows), 10):
            if kind == "sparse":
                item.data[:] = rows[start : start + 10].ravel()
            elif kind == "frame":
                item.iloc[:, :] = rows[start : start + 10]
            else:
                buffer[:] = rows[start : start + 10]
            yield item

    explainer = EXPLAINER
    if kind == "sparse":  # which histograms do not take
        explainer = TreeExplainer(RandomForestRegressor(3, random_state=0).fit(X.to_numpy(), Y))
    result = explain_batches(explainer, items(), tmp_path / "out.npy", batch_size=25)
    assert result.n_rows == len(rows)
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), explainer.shap_values(X.to_numpy()))


def test_items_of_arrays(tmp_path: Path) -> None:
    array = X.to_numpy()
    values = np.load(
        explain_batches(
            EXPLAINER, iter([array.astype(np.float32), array]), tmp_path / "a.npy", batch_size=77
        ).path
    )
    np.testing.assert_array_equal(values[200:], EXPLAINER.shap_values(array).astype(np.float32))
    for wrong in (array[:, :2], array.astype(int)):
        with pytest.raises(ValueError, match=r"item 1 of the source has \d columns of"):
            explain_batches(EXPLAINER, iter([array, wrong]), tmp_path / "out", if_exists="overwrite")


def test_kept_columns_lose_no_digits(tmp_path: Path) -> None:
    def with_id(kind: str, *ids: Any) -> Any:
        return X[:2].assign(id=np.array(ids, kind))

    frames = [with_id("int32", 1, 2), with_id("int64", 2**53 + 1, 3)]
    paths = as_files(frames, tmp_path, ".parquet")
    result = explain_batches(EXPLAINER, paths, tmp_path / "out.parquet", keep=["id"])
    assert pq.read_table(result.path).column("id").to_pylist() == [1, 2, 2**53 + 1, 3]
    with pytest.raises(ValueError, match="item 1 of the source: column 'id' is int64, but must become int32"):
        explain_batches(EXPLAINER, iter(frames), tmp_path / "o1", keep=["id"])
    with pytest.raises(
        ValueError, match=r"column 'id' of item 1 of the source is double.*float.*cannot hold"
    ):
        frames = [with_id("float32", 1, 2), with_id("float64", 0.1, 2)]
        explain_batches(EXPLAINER, iter(frames), tmp_path / "o2", keep=["id"])
    paths = as_files([with_id("float64", 1, 2), with_id("int64", 2**53 + 1, 3)], tmp_path, ".parquet")
    frames = [with_id("float64", 1, 2), with_id("float32", np.nan, 3), with_id("float32", 0.5, 4)]
    tables = [
        pa.Table.from_pandas(frame).set_column(3, "id", pa.array(frame["id"].to_numpy())) for frame in frames
    ]
    table = pq.read_table(explain_batches(EXPLAINER, iter(tables), tmp_path / "o4", keep=["id"]).path)
    np.testing.assert_array_equal(table.column("id"), [1, 2, np.nan, 3, 0.5, 4])
    table = pq.read_table(explain_batches(EXPLAINER, iter(tables[::-1]), tmp_path / "o5", keep=["id"]).path)
    np.testing.assert_array_equal(table.column("id"), [0.5, 4, np.nan, 3, 1, 2])
    with pytest.raises(ValueError, match=r"1\.parquet': column 'id' is int64, but must become double"):
        explain_batches(EXPLAINER, paths, tmp_path / "o3", keep=["id"])


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_further_columns_matter_to_a_model_without_names(suffix: str, tmp_path: Path) -> None:
    model = RandomForestRegressor(3, random_state=0).fit(X.to_numpy(), Y)
    frames = [X.assign(id=1), X[["c", "b", "a"]].assign(id=2)]
    paths = as_files(frames, tmp_path, suffix)
    values = values_in(explain_batches(model, paths, tmp_path / "out", keep=["id"]).path, 1)
    np.testing.assert_array_equal(values, np.tile(TreeExplainer(model).shap_values(X.to_numpy()), (2, 1)))
    write(X.assign(id=1, new=2), paths[1])
    with pytest.raises(ValueError, match="'new' is additional, and the model knows no names"):
        explain_batches(model, paths, tmp_path / "o2", keep=["id"])
    with pytest.raises(ValueError, match=r"item 1 of the source .*'new' is additional"):
        explain_batches(model, iter([frames[0], X.assign(id=1, new=2)]), tmp_path / "o3", keep=["id"])
    values = values_in(explain_batches(model, paths, tmp_path / "o4", features=["a", "b", "c"]).path)
    np.testing.assert_array_equal(values, np.tile(TreeExplainer(model).shap_values(X.to_numpy()), (2, 1)))


def test_datasets_of_the_user(tmp_path: Path) -> None:
    """A dataset has the schema of its first file; pyarrow would cast other files to it and add nulls."""
    (tmp_path / "in").mkdir()
    paths = as_files([narrow(X), X], tmp_path / "in", ".parquet")
    with pytest.raises(
        ValueError, match=r"column 'a' is double in .*1\.parquet', but float in the dataset's schema"
    ):
        explain_batches(EXPLAINER, ds.dataset(tmp_path / "in"), tmp_path / "out")
    write(X.drop(columns="b"), paths[1])
    with pytest.raises(
        ValueError, match=r"1\.parquet' does not have the columns of the dataset's schema: .*'b'"
    ):
        explain_batches(EXPLAINER, ds.dataset(tmp_path / "in"), tmp_path / "out")
    write(X, paths[1])
    all_rows = ds.dataset(tmp_path / "in", schema=pa.schema([(name, pa.float64()) for name in X]))
    values = values_in(
        explain_batches(EXPLAINER, all_rows.filter(ds.field("c") > 0.5), tmp_path / "out").path
    )
    chosen = pd.concat([narrow(X).astype(float), X])
    np.testing.assert_array_equal(values, EXPLAINER.shap_values(chosen[chosen["c"] > 0.5]))
    write(X.drop(columns="b"), paths[1])
    all_rows = ds.dataset(tmp_path / "in", schema=all_rows.schema)  # without what it knows of the files
    with pytest.raises(
        ValueError, match=r"1\.parquet' does not have the columns of the dataset's schema: .*'b'"
    ):
        explain_batches(EXPLAINER, all_rows.filter(ds.field("c") > 0.5), tmp_path / "o1")
    table = ds.dataset(pa.Table.from_pandas(X))
    np.testing.assert_array_equal(
        values_in(explain_batches(EXPLAINER, table, tmp_path / "o2").path), EXPLAINER.shap_values(X)
    )
    text = as_files([X.assign(b=X["b"].astype(int)), X.assign(b=X["b"] + 0.5)], tmp_path, ".csv")
    with pytest.raises(ValueError, match=r"the dataset cannot be read: .* pass their paths"):
        explain_batches(EXPLAINER, ds.dataset(text, format="csv"), tmp_path / "o3")


def test_columns_of_folders_names(tmp_path: Path) -> None:
    for suffix in (".parquet", ".csv"):
        root = tmp_path / suffix[1:]
        for b, part in ((1, X[:60]), (-2, X[60:])):
            (root / f"b={b}").mkdir(parents=True)
            write(part.drop(columns="b"), root / f"b={b}" / f"rows{suffix}")
        want = EXPLAINER.shap_values(
            X.assign(b=np.repeat([-2.0, 1.0], [140, 60]))
            .iloc[np.r_[60:200, :60]]
            .assign(b=np.repeat([-2.0, 1.0], [140, 60]))
        )
        values = values_in(
            explain_batches(EXPLAINER, root, tmp_path / f"out{suffix[1:]}", batch_size=77).path
        )
        np.testing.assert_array_equal(values, want)
        write(X[:5], root / "b=1" / f"rows{suffix}")
        with pytest.raises(ValueError, match=r"column 'b' is in .* and in the name of its folder"):
            explain_batches(EXPLAINER, root, tmp_path / "o2")
        write(X[:5].drop(columns="b"), root / f"rows{suffix}")
        write(X[:5].drop(columns="b"), root / "b=1" / f"rows{suffix}")
        with pytest.raises(ValueError, match="there is no 'b'"):
            explain_batches(EXPLAINER, root, tmp_path / "o2")


def test_files_are_read_in_the_order_of_their_paths(tmp_path: Path) -> None:
    (tmp_path / "in" / "a").mkdir(parents=True)
    for i, name in enumerate(["a/z", "a-b", "b", "c"]):
        write(X[:3].assign(id=i), tmp_path / "in" / f"{name}.parquet")
    table = pq.read_table(explain_batches(EXPLAINER, tmp_path / "in", tmp_path / "out", keep=["id"]).path)
    order = [
        path.relative_to(tmp_path / "in").as_posix() for path in sorted((tmp_path / "in").rglob("*.parquet"))
    ]
    ids = [["a/z", "a-b", "b", "c"].index(name.removesuffix(".parquet")) for name in order]
    assert table.column("id").to_pylist()[::3] == ids
    with pytest.raises(ValueError, match=r"no file .*\*\.parquet'; to use a pattern, pass sorted\(glob"):
        explain_batches(EXPLAINER, tmp_path / "in" / "*.parquet", tmp_path / "out")


def test_a_file_that_is_changed_while_it_is_read(tmp_path: Path) -> None:
    paths = as_files([X, X], tmp_path, ".parquet")

    def change(done: int, n_rows: int | None) -> None:
        write(X.assign(b=X["b"] + 1), paths[1])

    with pytest.raises(ValueError, match=r"1\.parquet' was changed while it was read"):
        explain_batches(EXPLAINER, paths, tmp_path / "out", batch_size=20, progress=change)
    with pytest.raises(ValueError, match=r"source\.(bytes|files) was"):
        explain_batches(EXPLAINER, paths, tmp_path / "out", batch_size=20)


def categories(values: Any, names: list[str]) -> Any:
    return pd.Categorical(values, categories=names)


def test_categories_of_files_are_matched_by_value(tmp_path: Path) -> None:
    """Items have dictionaries of different orders and sizes, or plain text."""
    city = np.array(["x", "y", "z"])[np.arange(200) % 3]
    frame = X.assign(b=categories(city, ["x", "y", "z"]))
    model = HistGradientBoostingRegressor(max_iter=5, categorical_features="from_dtype").fit(
        frame, Y + 50 * (city == "y")
    )
    want = TreeExplainer(model).shap_values(frame)
    assert np.abs(want[:, 1]).max() > 5
    frames = [
        frame,
        X.assign(b=categories(city, ["z", "unused", "x", "y"])),
        X.assign(b=city),
        X.assign(b=categories(city, ["y", "z", "x"])),
    ]
    paths = as_files(frames, tmp_path, ".parquet")
    for i, source in enumerate((paths, iter(frames))):
        values = values_in(explain_batches(model, source, tmp_path / f"out{i}", batch_size=77).path)
        np.testing.assert_array_equal(values, np.tile(want, (4, 1)))
    with pytest.raises(ValueError, match=r"column 'b' is double in .*, but large_string in"):
        explain_batches(model, [*paths, write(X, tmp_path / "last.parquet")], tmp_path / "o2")


def test_codes_that_come_with_a_later_item_are_refused(tmp_path: Path) -> None:
    xgboost = pytest.importorskip("xgboost")
    codes = np.arange(200) % 3
    data = xgboost.DMatrix(np.column_stack([X["a"], codes]), Y + 50 * codes, feature_types=["q", "c"])
    model = xgboost.train({"max_depth": 3}, data, 5)
    first = pa.table({"a": X["a"][:5], "code": pa.nulls(5)})
    later = pa.table({"a": X["a"], "code": pa.array(list("xyz" * 67)[:200]).dictionary_encode()})
    with pytest.raises(ValueError, match="takes the codes of categories as they are"):
        explain_batches(model, iter([first, later]), tmp_path / "out")


def test_steps_may_encode_the_categories_of_a_model_that_takes_codes(tmp_path: Path) -> None:
    """LightGBM trained on an array of codes uses a frame's codes, which a batch would invent."""
    pandas = pytest.importorskip("pandas")
    lightgbm = pytest.importorskip("lightgbm")
    rng = np.random.default_rng(0)
    colors = rng.choice(["red", "green", "blue"], 300)
    frame = pandas.DataFrame(
        {"color": categories(colors, ["red", "green", "blue"]), "x": rng.normal(size=300)}
    )
    y = np.where(colors == "red", 3.0, 0.0) + frame["x"]
    model = lightgbm.LGBMRegressor(n_estimators=10, verbose=-1)
    encoded = make_pipeline(
        make_column_transformer((OrdinalEncoder(), ["color"]), remainder="passthrough"), model
    ).fit(frame, y, lgbmregressor__categorical_feature=[0])
    for file in (write(frame, tmp_path / "codes.parquet"), write(frame.iloc[::-1], tmp_path / "b.parquet")):
        sums = values_in(explain_batches(encoded, file, file.with_suffix(".out.parquet")).paths[0])
        expected = TreeExplainer(encoded).shap_values(pandas.read_parquet(file))
        np.testing.assert_array_equal(sums, expected)
    assert np.abs(expected[:, 0]).max() > 1

    # The steps pass the categories to a model that takes the frame's codes: the codes of the whole file.
    codes = frame.assign(color=frame["color"].cat.codes).to_numpy()
    model.fit(codes, y, categorical_feature=[0])
    through = make_pipeline(FunctionTransformer().fit(frame), model)
    assert TreeExplainer(through)._reader.schema.takes_codes
    result = explain_batches(through, tmp_path / "codes.parquet", tmp_path / "codes.npy", batch_size=70)
    margins = through.predict(pandas.read_parquet(tmp_path / "codes.parquet"))
    sums = np.load(result.path).sum(axis=1) + result.base_values
    np.testing.assert_allclose(sums, margins, atol=1e-5)  # single precision
    with pytest.raises(ValueError, match="takes the codes of categories as they are, but column 'color'"):
        BatchExplainer(through)(pa.RecordBatch.from_pandas(frame))  # a batch need not have all categories


def test_columns_of_the_null_type_are_missing(tmp_path: Path) -> None:
    table = pa.Table.from_pandas(X.drop(columns="b")).append_column("b", pa.nulls(200))
    pq.write_table(table, tmp_path / "rows.parquet")
    want = EXPLAINER.shap_values(X.assign(b=np.nan))
    assert np.abs(want - EXPLAINER.shap_values(X)).max() > 1
    sources = (tmp_path / "rows.parquet", table, iter([table]), ds.dataset(table))
    for i, source in enumerate(sources):
        result = explain_batches(EXPLAINER, source, tmp_path / f"{i}", keep=["b"], prefix="shap_")
        np.testing.assert_array_equal(values_in(result.path, 1), want)
    forest = make_pipeline(
        make_column_transformer(("passthrough", ["a", "b", "c"])), RandomForestRegressor(3, random_state=0)
    ).fit(X, Y)
    values = values_in(explain_batches(forest, table, tmp_path / "steps").path)
    np.testing.assert_array_equal(values, TreeExplainer(forest).shap_values(X.assign(b=np.nan)))


def test_objects_of_a_frame_keep_their_kind_of_missing(tmp_path: Path) -> None:
    """For OneHotEncoder, None and NaN are different categories."""
    for missing in (np.nan, None):
        values = np.array(["x", "y", missing, "z"], object)[np.arange(200) % 4]
        frame = X.assign(b=pd.Series(values, dtype=object))
        steps = make_column_transformer(
            (OneHotEncoder(handle_unknown="ignore"), ["b"]), remainder="passthrough"
        )
        model = make_pipeline(steps, RandomForestRegressor(5, random_state=0))
        model.fit(frame, Y + 50 * pd.isna(frame["b"]))
        want = TreeExplainer(model).shap_values(frame)
        items = iter([frame[:2], frame[2:]])
        for i, source in enumerate((frame, items)):
            result = values_in(explain_batches(model, source, tmp_path / f"{missing}{i}", batch_size=77).path)
            np.testing.assert_array_equal(result, want)


def test_a_vectorizer_takes_one_column_of_texts(tmp_path: Path) -> None:
    texts = np.array(["good day", "bad day", "good good night", "night"], object)[np.arange(120) % 4]
    model = make_pipeline(CountVectorizer(), RandomForestRegressor(5, random_state=0))
    model.fit(texts, 5.0 * (np.arange(120) % 4))
    frame = pd.DataFrame({"id": np.arange(120), "text": texts})
    want = TreeExplainer(model).explain(frame["text"])
    np.testing.assert_allclose(  # sums of float32 rounding errors
        want.values.sum(axis=1) + want.base_values, model.predict(frame["text"]), atol=1e-5
    )
    sources = {
        "frame": frame,
        "frames": iter([frame[:50], frame[50:]]),
        "parquet": write(frame, tmp_path / "rows.parquet"),
        "csv": write(frame, tmp_path / "rows.csv"),
    }
    for name, source in sources.items():
        result = explain_batches(model, source, tmp_path / name, keep=["id"], batch_size=32)
        np.testing.assert_array_equal(values_in(result.path, 1), want.values)
    result = explain_batches(model, texts.reshape(-1, 1), tmp_path / "array.npy", batch_size=32)
    np.testing.assert_array_equal(np.load(result.path), want.values)
    with pytest.raises(ValueError, match="takes 1 features, but there are 2 columns: id, text"):
        explain_batches(model, frame, tmp_path / "two")
    with pytest.raises(ValueError, match="takes one column of strings, but there are 2"):
        explain_batches(model, np.column_stack([texts, texts]), tmp_path / "two.npy")
    with pytest.raises(ValueError, match=r"np\.nan is an invalid document"):
        explain_batches(model, pa.table({"text": ["good", None]}), tmp_path / "none")
