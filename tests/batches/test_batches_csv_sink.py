"""The .csv sink: pandas.read_csv and the source of CSV read what it writes."""

from __future__ import annotations

import datetime
import decimal
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.batches import IRIS, KEPT, TABLE

from skshapgpu import explain_batches
from skshapgpu.batches.source import SelectedColumns
from skshapgpu.batches.sources import open_source

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_values_are_read_back_to_the_bit(
    dtype: Any, tmp_path: Path, explainer: Any, values: np.ndarray
) -> None:
    result = explain_batches(
        explainer, TABLE, tmp_path / "out.csv", keep=KEPT, batch_size=40, dtype=dtype, format="csv"
    )
    assert result.paths == (tmp_path / "out.csv",) and result.n_rows == 150
    want = values.reshape(150, -1).astype(dtype)
    frame = pd.read_csv(result.path, dtype=str)
    assert frame.columns[:2].tolist() == KEPT
    for name in KEPT:
        assert frame[name].tolist() == [str(value) for value in TABLE.column(name).to_pylist()]
    np.testing.assert_array_equal(frame.iloc[:, 2:].map(float).to_numpy().astype(dtype), want)
    source = open_source(result.path)
    source.settle(SelectedColumns(tuple(source.schema.names[2:]), tuple(KEPT)))
    table = pa.Table.from_batches(source.read(source.schema.names, 0, 1000))
    np.testing.assert_array_equal(np.column_stack(table.columns[2:]).astype(dtype), want)
    text = result.path.read_text()
    shortest = np.format_float_positional(want[0][want[0] != 0][0], unique=True, trim="-")
    assert f",{shortest}," in text.splitlines()[1] + ","
    assert explain_batches(explainer, TABLE, result.path, keep=KEPT, batch_size=40, dtype=dtype).n_resumed


def test_kept_columns(tmp_path: Path, explainer: Any) -> None:
    texts = ['a "quoted", text', "two\nlines", "", None, "NA", "007", " ä "]
    columns = {
        "text": texts,
        "category": pa.array(texts).dictionary_encode(),
        "number": [1, None, 2**53 + 1, -5, 0, 7, 8],
        "real": [0.1, None, 1e300, 5e-324, -0.0, 1 / 3, 2.0],
        "yes": [True, False, None, True, True, True, False],
        "day": [datetime.date(2026, 1, i + 1) for i in range(7)],
        "time": [datetime.datetime(2026, 1, 1, 12, i) for i in range(7)],
        "money": [decimal.Decimal("1.50")] * 7,
        "nothing": pa.nulls(7),
    }
    rows = pa.table({**columns, **{name: TABLE.column(name).slice(0, 7) for name in IRIS}})
    result = explain_batches(explainer, rows, tmp_path / "out.csv", keep=list(columns), batch_size=3)
    text = Path(result.path).read_text(encoding="utf-8")
    assert text.splitlines()[0].startswith('"text","category","number","real","yes","day","time","money"')
    raw = pd.read_csv(io.StringIO(text), dtype=str, keep_default_na=False)
    for name in ("text", "category"):
        assert raw[name].tolist() == [value or "" for value in texts]
    assert raw["number"].tolist() == ["1", "", "9007199254740993", "-5", "0", "7", "8"]
    assert [float(value) for value in raw["real"] if value] == [v for v in columns["real"] if v is not None]
    assert raw["yes"].tolist() == ["true", "false", "", "true", "true", "true", "false"]
    assert raw["day"][0] == "2026-01-01" and raw["time"][1].startswith("2026-01-01 12:01:00")
    assert raw["money"][0] == "1.50" and set(raw["nothing"]) == {""}
    assert '"007"' in text and '"NA"' in text  # strings are quoted, but readers may ignore the quotes


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.int8()),
        pa.struct([("x", pa.int8())]),
        pa.binary(),
        pa.large_binary(),
        pa.binary(3),
        pa.map_(pa.string(), pa.int8()),
        pa.month_day_nano_interval(),
    ],
    ids=str,
)
def test_types_that_csv_cannot_hold(kind: Any, tmp_path: Path, explainer: Any) -> None:
    rows = TABLE.append_column("wrong", pa.nulls(150, kind))
    with pytest.raises(ValueError, match=r"a CSV file cannot hold the column 'wrong' of .*: leave it out"):
        explain_batches(explainer, rows, tmp_path / "out.csv", keep=["id", "wrong"])
    assert not list(tmp_path.iterdir())


def test_top_and_resuming(tmp_path: Path, explainer: Any) -> None:
    def stop(done: int, n_rows: int | None) -> None:
        if done >= 80:
            raise KeyboardInterrupt

    call: dict[str, Any] = {"keep": ["id"], "reasons": 2, "batch_size": 40}
    with pytest.raises(KeyboardInterrupt):
        explain_batches(explainer, TABLE, tmp_path / "out.csv", progress=stop, **call)
    assert not (tmp_path / "out.csv").exists()
    assert explain_batches(explainer, TABLE, tmp_path / "out.csv", **call).n_resumed >= 80
    explain_batches(explainer, TABLE, tmp_path / "whole.csv", **call)
    assert (tmp_path / "out.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()
    frame = pd.read_csv(tmp_path / "out.csv")
    assert len(frame) == 150 and frame.columns[1] == "feature_1__0"


def test_what_others_wrote_is_not_touched(tmp_path: Path, explainer: Any) -> None:
    (tmp_path / "out.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="is no output of explain_batches"):
        explain_batches(explainer, TABLE, tmp_path / "out.csv", if_exists="overwrite")
    with pytest.raises(ValueError, match=r"give sink= the name of a file, 'NAME\.npy' or 'NAME\.csv'"):
        explain_batches(explainer, TABLE, tmp_path / "folder", format="csv")
