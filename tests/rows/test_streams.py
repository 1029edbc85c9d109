"""X as an object that only offers its rows as a stream of Arrow, once: read as a table of PyArrow is."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn
from helpers.families import library, regressor
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.fixes import parse_version

from skshapgpu import (
    ShapTransformer,
    TreeExplainer,
    cross_val_explain,
    explain,
    explain_batches,
    explain_interactions,
    partial_dependence,
    shap_importance,
)

_RNG = np.random.default_rng(0)
X = _RNG.normal(50, 9, size=(90, 3))
Y = 3 * X[:, 0] - X[:, 1] + 0.1 * X[:, 0] * X[:, 2]
NAMES = ["a", "b", "c"]


class Relation:
    """A lazy table, as DuckDB and Ibis have them. Its rows can be computed only once."""

    def __init__(self, table: Any, failure: Exception | None = None) -> None:
        self._table, self._failure = table, failure

    @property
    def columns(self) -> list[str]:
        return list(self._table.column_names)

    def __getitem__(self, name: str) -> Any:
        raise TypeError("a relation is indexed by the names of its columns")

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        if self._failure is not None:
            raise self._failure
        assert self._table is not None, "the rows are read twice"
        table, self._table = self._table, None
        return table.__arrow_c_stream__(requested_schema)


def numbers(values: np.ndarray = X) -> Any:
    return library("pyarrow").table({name: values[:, i] for i, name in enumerate(NAMES)})


def relation(values: np.ndarray = X) -> Relation:
    return Relation(numbers(values))


def forest() -> RandomForestRegressor:
    return RandomForestRegressor(4, random_state=0).fit(library("pandas").DataFrame(X, columns=NAMES), Y)


def test_explanations_read_a_stream_once_and_compare_it_with_the_model() -> None:
    model = forest()
    for make in (explain, explain_interactions):
        result, expected = make(model, relation()), make(model, numbers())
        np.testing.assert_array_equal(result.values, expected.values)
        assert result.checked_against == "model"
        assert result.data.equals(numbers())
    total = explain(model, relation(), precision="double")
    # the sums of 4 trees of targets around 400, in float64: rounding is below 1e-12
    np.testing.assert_allclose(
        total.base_values + total.values.sum(axis=1), model.predict(numbers()), atol=1e-9
    )
    explainer = TreeExplainer(model, relation(X[:40]))
    assert explainer.expected_value == TreeExplainer(model, numbers(X[:40])).expected_value
    np.testing.assert_array_equal(explainer.shap_values(relation()), explainer.shap_values(numbers()))
    matrices = TreeExplainer(model).shap_interaction_values(relation())
    np.testing.assert_array_equal(matrices, TreeExplainer(model).shap_interaction_values(numbers()))


def test_names_of_a_stream_must_be_those_of_training() -> None:
    model = forest()
    with pytest.raises(ValueError, match="must be in the same order"):
        explain(model, Relation(numbers().select(["b", "a", "c"])))
    with pytest.raises(ValueError, match="yet now missing:\n- a"):
        explain(model, Relation(numbers().rename_columns(["A", "b", "c"])))


def test_steps_of_a_pipeline_and_other_functions_read_a_stream() -> None:
    model = make_pipeline(StandardScaler(), RandomForestRegressor(4, random_state=0)).fit(numbers(), Y)
    explanation = explain(model, relation())
    np.testing.assert_array_equal(explanation.values, explain(model, numbers()).values)
    assert explanation.checked_against == "model"
    np.testing.assert_array_equal(
        partial_dependence(model, relation(), ["b"]).average,
        partial_dependence(model, numbers(), ["b"]).average,
    )
    if parse_version(sklearn.__version__) < parse_version("1.7"):
        return  # which selects no rows of PyArrow tables
    options: dict[str, Any] = {"cv": 3}
    results = [
        cross_val_explain(model, rows, Y, **options)["explanation"] for rows in (relation(), numbers())
    ]
    np.testing.assert_array_equal(results[0].values, results[1].values)
    importances = [shap_importance(model, rows, Y)["importances_mean"] for rows in (relation(), numbers())]
    np.testing.assert_array_equal(*importances)


@pytest.mark.parametrize("cv", [None, 3])
def test_transformers_read_a_stream(cv: int | None) -> None:
    transformer = ShapTransformer(RandomForestRegressor(4, random_state=0), cv=cv)
    values = transformer.fit_transform(relation(), Y)
    np.testing.assert_array_equal(values, transformer.fit_transform(numbers(), Y))
    assert list(transformer.fit(relation(), Y).get_feature_names_out()) == NAMES
    np.testing.assert_array_equal(transformer.transform(relation()), transformer.transform(numbers()))
    np.testing.assert_array_equal(transformer.predict(relation()), transformer.predict(numbers()))


def typed_columns() -> Any:
    """Return a table of chunks with unlike dictionaries, with nulls, and of several dtypes."""
    arrow = library("pyarrow")
    colors = [["red", "blue", None], ["blue", "green", "red"]]
    chunks = [arrow.array(part).dictionary_encode() for part in colors * 10]
    return arrow.table(
        {
            "color": arrow.chunked_array(chunks),
            "size": arrow.array([1, None, 3, 4, 5, 6] * 10, arrow.int16()),
            "flag": arrow.array([True, False, None, True, True, False] * 10),
            "part": arrow.array(np.arange(60) / 7, arrow.float32()),
        }
    )


def test_nulls_and_dtypes_of_a_stream() -> None:
    table = typed_columns().select(["size", "flag", "part"])
    frame = table.to_pandas().astype(float)
    y = 9 * frame["size"].isna() + frame["flag"].fillna(-2) * frame["part"]
    model = HistGradientBoostingRegressor(max_iter=5, min_samples_leaf=2).fit(frame, y)
    explanation = explain(model, Relation(table))
    np.testing.assert_array_equal(explanation.values, explain(model, frame).values)
    assert np.abs(explanation.values).max(axis=0).min() > 0.1


@pytest.mark.parametrize("family", ["xgboost", "lightgbm"])
def test_categories_of_a_stream(family: str) -> None:
    frame = typed_columns().to_pandas().assign(flag=1.0)
    options = {"enable_categorical": True} if family == "xgboost" else {"min_child_samples": 2}
    y = frame["color"].cat.codes * 10.0 + frame["part"]
    model = regressor(family, **options).fit(frame, y)
    table = library("pyarrow").Table.from_pandas(frame)
    explanation = explain(model, Relation(table))
    np.testing.assert_array_equal(explanation.values, explain(model, table).values)
    assert np.abs(explanation.values[:, 0]).max() > 1


def test_a_reader_of_record_batches_is_read() -> None:
    reader = numbers().to_reader(max_chunksize=17)
    np.testing.assert_array_equal(explain(forest(), reader).values, explain(forest(), numbers()).values)


def test_batches_of_a_stream(tmp_path: Path) -> None:
    parquet = library("pyarrow.parquet")
    model = forest()
    explain_batches(model, relation(), tmp_path / "values.parquet", batch_size=32)
    table = parquet.read_table(tmp_path / "values.parquet")
    values = np.column_stack([table[name] for name in table.column_names[:3]])
    np.testing.assert_array_equal(values, explain(model, numbers()).values)
    with pytest.raises(ValueError, match=r"source is a test_streams.Relation, which cannot be read"):
        explain_batches(model, Relation(None, RuntimeError("lost")), tmp_path / "lost.parquet")


def test_errors_name_the_object_and_say_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    model, arrow = forest(), library("pyarrow")
    with pytest.raises(ValueError, match=r"X is a test_streams.Relation, which cannot be read: OSError"):
        explain(model, Relation(None, OSError("lost")))
    with pytest.raises(ValueError, match=r"data is a test_streams.Relation, which cannot"):
        TreeExplainer(model, Relation(None, OSError("lost")))
    with pytest.raises(ValueError, match="ChunkedArray, which is a single column: pass a table"):
        explain(model, arrow.chunked_array([X[:, 0]]))
    dates = library("pandas").date_range("2020-01-01", periods=len(X))
    with pytest.raises(TypeError, match="column c holds dates"):
        explain(model, Relation(numbers().set_column(2, "c", arrow.array(dates))))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(
        ImportError, match=r"X is a test_streams.Relation, which is read by PyArrow: pip install"
    ):
        explain(model, Relation(None))


def duckdb_relation(values: np.ndarray) -> Any:
    arrow_table = numbers(values)
    return library("duckdb").connect().from_arrow(arrow_table)


def ibis_table(values: np.ndarray) -> Any:
    library("duckdb")
    return library("ibis").memtable(numbers(values))


@pytest.mark.parametrize("make", [duckdb_relation, ibis_table])
def test_tables_of_libraries(make: Callable[[np.ndarray], Any]) -> None:
    model, rows = forest(), make(X)
    for _ in range(2):  # these compute their rows anew each time
        explanation = explain(model, rows)
        np.testing.assert_array_equal(explanation.values, explain(model, numbers()).values)
    assert explanation.checked_against == "model"
    assert explanation.feature_names == tuple(NAMES)
    expected = TreeExplainer(model, numbers()).shap_values(numbers())
    np.testing.assert_array_equal(TreeExplainer(model, rows).shap_values(rows), expected)
