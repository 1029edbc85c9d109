"""BatchExplainer: record batches of contributions from Arrow record batches."""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_diabetes, load_iris
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestClassifier, RandomForestRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from skshapgpu import ShapInteractionTransformer, ShapTransformer, TreeExplainer
from skshapgpu._explanations.reasons import largest
from skshapgpu.batches.record_batches import BatchExplainer

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")

IRIS, SPECIES = load_iris(return_X_y=True, as_frame=True)
DIABETES, PROGRESSION = load_diabetes(return_X_y=True, as_frame=True)


@pytest.fixture(scope="module")
def multiclass() -> RandomForestClassifier:
    return RandomForestClassifier(4, max_depth=4, random_state=0).fit(IRIS, SPECIES)


@pytest.fixture(scope="module")
def regression() -> RandomForestRegressor:
    return RandomForestRegressor(4, max_depth=5, random_state=0).fit(DIABETES, PROGRESSION)


def batch_of(frame: Any, **columns: Any) -> Any:
    return pa.RecordBatch.from_pandas(frame.assign(**columns), preserve_index=False)


def values_of(batch: Any, n_kept: int = 0) -> np.ndarray:
    return np.column_stack([column.to_numpy() for column in batch.columns[n_kept:]])


def test_columns_are_those_of_the_transformer(multiclass: Any) -> None:
    batch = batch_of(IRIS, id=np.arange(150), species=SPECIES.astype(str))
    explainer = BatchExplainer(multiclass, keep=["species", "id"])
    transformer = ShapTransformer.from_fitted(multiclass)
    result = explainer(batch)
    assert result.schema.names == ["species", "id", *transformer.get_feature_names_out()]
    assert result.schema.equals(explainer.output_schema(batch.schema), check_metadata=True)
    np.testing.assert_array_equal(values_of(result, 2), transformer.transform(IRIS))
    assert result.column("id").equals(batch.column("id"))
    assert result.column("species").equals(batch.column("species"))


def test_interactions_are_those_of_the_transformer(multiclass: Any) -> None:
    for pairs in ("occurring", [(0, 2), ("sepal width (cm)", "petal width (cm)")]):
        transformer = ShapInteractionTransformer.from_fitted(multiclass, interactions=pairs, index="BII")
        result = BatchExplainer(multiclass, interactions=pairs, index="BII")(batch_of(IRIS))
        assert result.schema.names == list(transformer.get_feature_names_out())
        np.testing.assert_array_equal(values_of(result), transformer.transform(IRIS))


def test_metadata_hold_base_values(multiclass: Any) -> None:
    explainer = BatchExplainer(multiclass, precision="double", index="BV")
    about = json.loads(explainer.output_schema(batch_of(IRIS).schema).metadata[b"skshapgpu"])
    assert about["base_values"] == explainer.base_values.tolist()
    assert about["output_names"] == [0, 1, 2] and about["feature_names"] == list(IRIS.columns)
    assert (about["index"], about["precision"]) == ("BV", "double")


#: Beginnings of the names of the columns of each rank.
TOP = ("feature", "value", "shap")


def test_top(multiclass: Any, regression: Any) -> None:
    result = BatchExplainer(regression, reasons=3, keep=["id"], prefix="p_")(
        batch_of(DIABETES, id=np.arange(442))
    )
    assert result.schema.names == ["id"] + [f"p_{kind}_{i}" for i in (1, 2, 3) for kind in TOP]
    values = TreeExplainer(regression).shap_values(DIABETES)
    frame = result.to_pandas()
    rows = np.arange(len(values))
    left = np.abs(values)
    for rank in (1, 2, 3):
        places = DIABETES.columns.get_indexer(frame[f"p_feature_{rank}"])
        np.testing.assert_array_equal(values[rows, places], frame[f"p_shap_{rank}"])
        np.testing.assert_array_equal(left.max(axis=1), left[rows, places])
        left[rows, places] = -1
    result = BatchExplainer(multiclass, reasons=99)(batch_of(IRIS))  # more than there are
    assert result.schema.names[:9] == [f"{kind}_1__{c}" for kind in TOP for c in (0, 1, 2)]
    assert result.num_columns == 4 * 9
    third = TreeExplainer(multiclass).shap_values(IRIS)[:, :, 2]
    np.testing.assert_array_equal(result.column("shap_1__2"), third[np.arange(150), np.abs(third).argmax(1)])
    names = BatchExplainer(multiclass, interactions="occurring", reasons=1)(batch_of(IRIS)).schema.names
    assert names == [f"{kind}_1__{c}" for kind in ("pair", "interaction") for c in (0, 1, 2)]


@pytest.mark.parametrize("n", [1, 3, 12, 13, 20])
def test_largest_takes_the_first_of_equals(n: int) -> None:
    values = np.random.default_rng(0).integers(-4, 5, (50, 20)).astype(np.float32)
    assert (np.diff(np.sort(np.abs(values))) == 0).any()
    np.testing.assert_array_equal(
        largest(values, n), np.argsort(-np.abs(values), axis=1, kind="stable")[:, :n]
    )


@pytest.mark.parametrize("kind", ["float32", "float64", "mixed", "whole", "half"])
def test_types_and_nulls(regression: Any, kind: str) -> None:
    """Values and their type are the same as for the data frame, whatever the column types are."""
    model = HistGradientBoostingRegressor(max_iter=5).fit(DIABETES * 1000, PROGRESSION)
    frame = (DIABETES * 1000).round(0)
    types = {
        "mixed": ["int64", "float32", "bool", "uint8", "float64"],
        "whole": ["int32"],
        "half": ["float16"],
    }
    for i, name in enumerate(frame.columns):
        kinds = types.get(kind, [kind])
        frame[name] = frame[name].abs().clip(0, 200).astype(kinds[i % len(kinds)])
    batch = pa.RecordBatch.from_pandas(frame)
    gaps = np.arange(442) % 7 == 3
    columns = [pa.array(column.to_numpy(zero_copy_only=False), mask=gaps) for column in batch.columns]
    batch = pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
    assert batch.column(0).null_count == gaps.sum()
    want = TreeExplainer(model).shap_values(pa.Table.from_batches([batch]))
    nullable = batch.to_pandas(types_mapper=pd.ArrowDtype)
    np.testing.assert_array_equal(want, TreeExplainer(model).shap_values(nullable))
    result = BatchExplainer(model)(batch)
    assert {str(column.type) for column in result.columns} == {"float" if kind == "float32" else "double"}
    np.testing.assert_array_equal(values_of(result), want)
    single = BatchExplainer(model, dtype="float32")(batch)
    np.testing.assert_array_equal(values_of(single), want.astype(np.float32))
    for dtype in ("float32", "float64"):  # in one block, as an array
        assert values_of(BatchExplainer(model, dtype=dtype)(batch)).dtype == dtype


def test_arrays_and_tables_give_the_same(regression: Any) -> None:
    for dtype in (np.float32, np.float64):
        frame = DIABETES.astype(dtype)
        want = TreeExplainer(regression).shap_values(frame)
        np.testing.assert_array_equal(values_of(BatchExplainer(regression)(batch_of(frame))), want)


def test_pipeline_with_texts() -> None:
    frame = DIABETES.assign(city=np.array(["a", "b", "c"])[np.arange(442) % 3])
    steps = make_column_transformer((OneHotEncoder(), ["city"]), (StandardScaler(), ["age", "bmi"]))
    model = make_pipeline(steps, RandomForestRegressor(4, max_depth=5, random_state=0))
    model.fit(frame, PROGRESSION)
    batch = batch_of(frame, id=np.arange(442))
    result = BatchExplainer(model, keep=["id", "city"])(batch)
    transformer = ShapTransformer.from_fitted(model)
    assert result.schema.names[2:] == list(transformer.get_feature_names_out())
    np.testing.assert_array_equal(values_of(result, 2), transformer.transform(frame))
    empty = BatchExplainer(model, keep=["id"])(batch.slice(0, 0))
    assert empty.num_rows == 0 and empty.schema.names[1:] == result.schema.names[2:]


def test_pipeline_fitted_on_an_array() -> None:
    model = make_pipeline(StandardScaler(), RandomForestRegressor(4, max_depth=5, random_state=0))
    model.fit(DIABETES.to_numpy(), PROGRESSION)
    frame = DIABETES.assign(sex=(DIABETES["sex"] > 0).astype(int))
    result = BatchExplainer(model)(batch_of(frame))
    np.testing.assert_array_equal(values_of(result), TreeExplainer(model).shap_values(frame.to_numpy()))


@pytest.mark.parametrize("as_text", [False, True])
def test_categories(as_text: bool) -> None:
    """Categories are matched by value, not by a batch's dictionary; columns of strings are categories."""
    lightgbm = pytest.importorskip("lightgbm")
    city = pd.Categorical(np.array(["x", "y", "z"])[np.arange(442) % 3])
    frame = DIABETES.assign(city=city)
    target = PROGRESSION + 50 * (np.arange(442) % 3)
    for model in (
        lightgbm.LGBMRegressor(n_estimators=5, verbose=-1).fit(frame, target),
        HistGradientBoostingRegressor(max_iter=5, categorical_features="from_dtype").fit(frame, target),
    ):
        want = TreeExplainer(model).shap_values(frame)
        assert np.abs(want[:, -1]).max() > 1
        passed_rows = frame.astype({"city": str}) if as_text else frame
        explainer = BatchExplainer(model)
        np.testing.assert_array_equal(values_of(explainer(batch_of(passed_rows))), want)
        some = batch_of(passed_rows.iloc[1:2].assign(city=passed_rows["city"].iloc[1:2].astype("category")))
        np.testing.assert_array_equal(values_of(explainer(some)), want[1:2])


def test_codes_that_a_batch_does_not_tell_are_refused() -> None:
    xgboost = pytest.importorskip("xgboost")
    codes = np.arange(442) % 3
    data = xgboost.DMatrix(
        np.column_stack([DIABETES["bmi"], codes]), PROGRESSION + 50 * codes, feature_types=["q", "c"]
    )
    model = xgboost.train({"max_depth": 3}, data, 5)
    frame = pd.DataFrame({"bmi": DIABETES["bmi"], "code": pd.Categorical(codes)})
    with pytest.raises(ValueError, match="takes the codes of categories as they are"):
        BatchExplainer(model)(batch_of(frame))
    values = BatchExplainer(model)(batch_of(frame.astype({"code": int})))
    want = TreeExplainer(model).shap_values(frame.astype({"code": int}).to_numpy())
    np.testing.assert_array_equal(values_of(values), want)


def test_columns_are_chosen_by_name_or_all_that_are_not_kept(regression: Any) -> None:
    want = TreeExplainer(regression).shap_values(DIABETES)
    shuffled = DIABETES[DIABETES.columns[::-1]].assign(id=1, text="t")
    np.testing.assert_array_equal(values_of(BatchExplainer(regression)(batch_of(shuffled))), want)
    nameless = RandomForestRegressor(4, max_depth=5, random_state=0).fit(DIABETES.to_numpy(), PROGRESSION)
    batch = batch_of(DIABETES, id=1)
    result = BatchExplainer(nameless, keep=["id"])(batch)
    np.testing.assert_array_equal(values_of(result, 1), want)
    assert result.schema.names == ["id", *DIABETES.columns]
    with pytest.raises(ValueError, match="takes 10 features, but there are 11 columns"):
        BatchExplainer(nameless)(batch)
    result = BatchExplainer(nameless, features=list(DIABETES.columns))(batch)
    np.testing.assert_array_equal(values_of(result), want)
    with pytest.raises(ValueError, match=r"unseen at fit time:\n- id\n"):
        BatchExplainer(regression)(batch_of(DIABETES.drop(columns="bmi"), id=1))
    with pytest.raises(ValueError, match="same order"):
        BatchExplainer(regression, features=DIABETES.columns[::-1].tolist())(batch)
    with pytest.raises(ValueError, match="no column 'nope'"):
        BatchExplainer(regression, keep=["nope"]).output_schema(batch.schema)
    twice = pa.RecordBatch.from_arrays([*batch.columns, batch.column(0)], names=[*batch.schema.names, "age"])
    with pytest.raises(ValueError, match="several columns 'age'"):
        BatchExplainer(regression)(twice)


def test_a_kept_feature_needs_a_prefix(regression: Any) -> None:
    with pytest.raises(ValueError, match=r"two columns 'age'.*prefix="):
        BatchExplainer(regression, keep=["age"]).output_schema(batch_of(DIABETES).schema)
    result = BatchExplainer(regression, keep=["age"], prefix="shap_")(batch_of(DIABETES))
    assert result.schema.names[:3] == ["age", "shap_age", "shap_sex"]
    np.testing.assert_array_equal(result.column("age"), DIABETES["age"])


def test_a_row_is_independent_of_its_batch(multiclass: Any) -> None:
    explainer, batch = BatchExplainer(multiclass, algorithm="quadrature"), batch_of(IRIS)
    full_result = explainer(batch)
    for start, size in ((0, 0), (0, 1), (17, 40), (149, 1)):
        assert explainer(batch.slice(start, size)).equals(full_result.slice(start, size))


def test_pickles(multiclass: Any) -> None:
    explainer = BatchExplainer(multiclass, keep=["id"], reasons=2)
    batch = batch_of(IRIS, id=np.arange(150))
    expected = explainer(batch)
    again = pickle.loads(pickle.dumps(explainer))
    assert again(batch).equals(expected) and again.keep == ("id",)


def test_models_by_path(tmp_path: Path, regression: Any) -> None:
    want = BatchExplainer(regression)(batch_of(DIABETES))
    explainer = TreeExplainer(regression)
    explainer.save(tmp_path / "explainer.model")
    assert BatchExplainer(tmp_path / "explainer.model", n_jobs=2)(batch_of(DIABETES)).equals(want)
    assert BatchExplainer(explainer).explainer is explainer
    with pytest.raises(TypeError, match="pass n_jobs when you create it"):
        BatchExplainer(explainer, n_jobs=2)
    with pytest.raises(ValueError, match="nowhere"):
        BatchExplainer(str(tmp_path / "nowhere"))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"reasons": 0}, ValueError, "reasons must be at least 1"),
        ({"reasons": "2"}, TypeError, "reasons must be an int or None"),
        ({"keep": "id"}, TypeError, "keep must be a sequence of names"),
        ({"keep": ["a", "a"]}, ValueError, "'a' twice"),
        ({"features": [0, 1]}, TypeError, "features must be a sequence of names"),
        ({"prefix": 1}, TypeError, "prefix"),
        ({"dtype": "float16"}, ValueError, "dtype"),
        ({"index": "SII"}, ValueError, "index"),
        ({"interactions": True, "index": "SV"}, ValueError, "index"),
        ({"interactions": 5}, ValueError, "depend on all rows"),
        ({"interactions": "all"}, ValueError, "not 'all': matrices are arrays"),
        ({"interactions": True}, TypeError, "interactions must be 'occurring', a number or a list"),
        ({"model_output": "log_loss"}, ValueError, "needs labels"),
        ({"nope": 1}, TypeError, "nope"),
    ],
)
def test_wrong_arguments(regression: Any, arguments: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        BatchExplainer(regression, **arguments)


def test_wrong_values_name_the_column(regression: Any) -> None:
    for name, values, error, message in (
        ("age", ["text"] * 442, ValueError, "could not convert string to float"),
        ("bmi", pd.date_range("2020", periods=442), TypeError, "column bmi holds dates"),
        ("bmi", [np.inf] * 442, ValueError, "row 0, column bmi"),
    ):
        with pytest.raises(error, match=message):
            BatchExplainer(regression)(batch_of(DIABETES, **{name: values}))


def test_pyarrow_is_asked_for(regression: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"pip install pyarrow"):
        BatchExplainer(regression)


def test_only_arrow_batches_are_explained(regression: RandomForestRegressor) -> None:
    explain_batch = BatchExplainer(regression)
    right = explain_batch(pa.RecordBatch.from_pandas(DIABETES, preserve_index=False))
    assert explain_batch(pa.Table.from_pandas(DIABETES, preserve_index=False)).equals(right)
    for rows, name in ((DIABETES, "a DataFrame"), (PROGRESSION, "a Series"), ({}, "a dict")):
        with pytest.raises(TypeError, match=f"batch must be a pyarrow RecordBatch or Table, not {name}"):
            explain_batch(rows)
