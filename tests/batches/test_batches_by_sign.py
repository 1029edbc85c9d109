"""The strongest features of each sign in batches equal Explanation.reasons, with values as strings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.families import forest, frame_with_categories, with_categories
from sklearn.datasets import load_iris

from skshapgpu import explain, explain_batches
from skshapgpu.batches import BatchExplainer

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


def text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return str(int(value)) if value == int(value) else repr(value)


def as_columns(
    records: list[dict[str, Any]], n_rows: int, n: int, outputs: Any = None
) -> dict[str, list[Any]]:
    """Return the columns of the output; row labels are positions."""
    result: dict[str, list[Any]] = {}
    for reason in ("for", "against"):
        for rank in range(1, n + 1):
            for kind in ("", "value_", "shap_"):
                for output in outputs or [None]:
                    suffix = "" if output is None else f"__{output}"
                    result[f"{reason}_{kind}{rank}{suffix}"] = [None] * n_rows
    for record in records:
        suffix = f"__{record['output']}" if outputs else ""
        reason, rank = record["reason"], record["rank"]
        result[f"{reason}_{rank}{suffix}"][record["row"]] = record["feature"]
        result[f"{reason}_value_{rank}{suffix}"][record["row"]] = text(record["value"])
        result[f"{reason}_shap_{rank}{suffix}"][record["row"]] = record["shap_value"]
    return result


def test_batches_have_the_reasons(tmp_path: Path) -> None:
    frame, y = frame_with_categories()
    frame["weight"] = np.round(frame["weight"] * 2) / 2  # some are whole numbers
    model = with_categories("sklearn", frame, y)
    frame.astype({"color": str}).to_parquet(tmp_path / "rows.parquet")
    explain_batches(
        model, tmp_path / "rows.parquet", tmp_path / "reasons.parquet", batch_size=64, reasons=2, by_sign=True
    )
    table = pq.read_table(tmp_path / "reasons.parquet").to_pydict()
    expected = as_columns(explain(model, frame).reasons(2, by_sign=True), len(frame), 2)
    assert list(table) == list(expected)
    for name, column in expected.items():
        if "shap" in name:
            assert [v is None for v in table[name]] == [v is None for v in column]
            got, want = ([np.nan if v is None else v for v in values] for values in (table[name], column))
            np.testing.assert_allclose(got, want, rtol=1e-12)
        else:
            assert table[name] == column
    assert None in expected["against_2"] and "amber" in table["for_value_1"]
    assert "missing" not in table["for_value_1"] and "1" in table["for_value_1"] + table["for_value_2"]


def test_several_outputs_banzhaf_and_kept_columns() -> None:
    X, y = load_iris(return_X_y=True, as_frame=True)
    model = forest().fit(X, np.c_[y, -y])
    batch = pa.RecordBatch.from_pandas(X.assign(id=range(150)), preserve_index=False)
    explainer = BatchExplainer(model, reasons=1, by_sign=True, keep=["id"], features=list(X), prefix="p_")
    result = explainer(batch)
    assert result.column_names[:5] == [
        "id",
        "p_for_1__0",
        "p_for_1__1",
        "p_for_value_1__0",
        "p_for_value_1__1",
    ]
    expected = as_columns(explain(model, X).reasons(1, by_sign=True), 150, 1, [0, 1])
    assert {name.removeprefix("p_") for name in result.column_names[1:]} == set(expected)
    assert result.column("p_against_1__1").to_pylist() == expected["against_1__1"]
    assert result.column("p_for_value_1__0").to_pylist() == expected["for_value_1__0"]
    assert result.schema.equals(explainer.output_schema(batch.schema))
    banzhaf = BatchExplainer(model, reasons=1, by_sign=True, index="BV", features=list(X))(batch)
    assert "for_banzhaf_1__0" in banzhaf.column_names
    assert BatchExplainer(model, reasons=9, by_sign=True)(batch.select(list(X)).slice(0, 0)).num_rows == 0


@pytest.mark.parametrize(
    "options, error, message",
    [
        ({"by_sign": True}, ValueError, "give reasons="),
        ({"by_sign": True, "reasons": 2, "interactions": "occurring"}, ValueError, "not interactions="),
        ({"by_sign": 1, "reasons": 2}, TypeError, "by_sign must be a bool"),
    ],
)
def test_refusals(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        BatchExplainer(forest(), **options)
