"""Sums by the columns of X in batches, for pipelines that make dummies of these columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.batches import content
from sklearn.compose import make_column_transformer
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from skshapgpu import explain, explain_batches, explain_interactions
from skshapgpu.batches import BatchExplainer

pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")

_random = np.random.default_rng(7)
FRAME = pd.DataFrame(
    {
        "id": np.arange(120)[::-1],
        "size": _random.normal(size=120),
        "color": _random.choice(["red", "green", "blue"], 120),
        "place": _random.choice(["a_b", "b"], 120),
    }
)
X = FRAME.drop(columns="id")
TARGET = 9 + X["size"] * (X["color"] == "red") + 4 * (X["place"] == "b") * (X["color"] == "blue")
BATCH = pa.RecordBatch.from_pandas(FRAME)


def pipeline(model: Any, y: Any) -> Any:
    steps = make_column_transformer(
        (OneHotEncoder(), ["place", "color"]), (StandardScaler(), ["size"]), remainder="drop"
    )
    return make_pipeline(steps, model).fit(X, y)


REGRESSOR = pipeline(RandomForestRegressor(4, max_depth=5, random_state=0), TARGET)
CLASSES = (TARGET > 8.5).astype(int) + (TARGET > 10)
CLASSIFIER = pipeline(RandomForestClassifier(4, max_depth=5, random_state=0), CLASSES)


def test_values_are_sums_and_reasons_are_columns_of_x(tmp_path: Path) -> None:
    FRAME.to_parquet(tmp_path / "rows.parquet")
    expected = explain(REGRESSOR, X).sum_by("input")
    for sink in ("values.parquet", "values.npy"):
        keep = ["id"] if sink.endswith("parquet") else []
        result = explain_batches(
            REGRESSOR, tmp_path / "rows.parquet", tmp_path / sink, sum_by="input", keep=keep, batch_size=50
        )
        assert result.feature_names == ("place", "color", "size")
        table = content(result.path)
        if keep:
            assert table.column_names == ["id", "place", "color", "size"]
            table = np.column_stack(table.columns[1:])
        np.testing.assert_array_equal(table, expected.values)
    np.testing.assert_allclose(result.base_values + table.sum(axis=1), REGRESSOR.predict(X), rtol=1e-5)
    reasons = BatchExplainer(REGRESSOR, sum_by="input", reasons=2)(BATCH).to_pydict()
    for record in expected.reasons(2):
        row, rank = record["row"], record["rank"]
        assert reasons[f"feature_{rank}"][row] == record["feature"]
        shown = reasons[f"value_{rank}"][row]
        assert shown == record["value"] if record["feature"] != "size" else float(shown) == X["size"][row]
    assert {"red", "b"} < set(reasons["value_1"] + reasons["value_2"])  # not 0 or 1 of the dummies


@pytest.mark.parametrize("model", [REGRESSOR, CLASSIFIER], ids=["one output", "classes"])
@pytest.mark.parametrize("index", ["SII", "BII"])
def test_interactions_are_sums(model: Any, index: str) -> None:
    expected = explain_interactions(model, X, interactions="occurring", index=index).sum_by("input")
    explainer = BatchExplainer(model, sum_by="input", interactions="occurring", index=index)
    result = explainer(BATCH)
    assert result.schema.equals(explainer.output_schema(BATCH.schema))
    assert result.column_names == list(expected.to_frame().columns)
    np.testing.assert_array_equal(np.column_stack(result.columns), expected.to_frame())
    listed = BatchExplainer(model, sum_by="input", interactions=[("size", "color")], index=index)(BATCH)
    assert listed.column_names[0].startswith("size x color")
    of_pair = expected[:, ["color x size"]].to_frame()
    np.testing.assert_array_equal(np.column_stack(listed.columns), of_pair)


def test_pairs_that_do_not_interact_are_zero_and_top_names_columns() -> None:
    flat = pipeline(RandomForestRegressor(4, max_depth=1, random_state=0), TARGET)
    result = BatchExplainer(flat, sum_by="input", interactions=[("size", "place")])(BATCH)
    assert result.to_pydict() == {"size x place": [0.0] * 120}
    top = BatchExplainer(REGRESSOR, sum_by="input", interactions="occurring", reasons=1)(BATCH)
    assert set(top.to_pydict()["pair_1"]) <= {"place x color", "place x size", "color x size"}


def test_models_without_steps_and_refusals() -> None:
    numbers = X[["size"]].assign(other=np.arange(120.0))
    model = RandomForestRegressor(3, max_depth=3, random_state=0).fit(numbers, TARGET)
    batch = pa.RecordBatch.from_pandas(numbers)
    assert BatchExplainer(model, sum_by="input")(batch).equals(BatchExplainer(model)(batch))
    mixing = make_pipeline(PCA(2), RandomForestRegressor(3, random_state=0)).fit(numbers, TARGET)
    with pytest.raises(ValueError, match=r"PCA mixes columns, .* by name instead, with feature_groups"):
        BatchExplainer(mixing, sum_by="input")
    with pytest.raises(ValueError, match="sum_by must be 'input' or None"):
        BatchExplainer(model, sum_by="inputs")
