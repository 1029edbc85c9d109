"""Batches with columns="used": output columns, files, arrays and resumed runs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from helpers.families import forest

from skshapgpu import TreeExplainer, explain, explain_batches
from skshapgpu.batches import BatchExplainer

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")
pq = pytest.importorskip("pyarrow.parquet")

RNG = np.random.default_rng(0)
ROWS = pd.DataFrame(RNG.normal(size=(150, 30)), columns=[f"c{i}" for i in range(30)])
MODEL = forest().fit(ROWS, ROWS["c7"] * 2 + ROWS["c20"] * ROWS["c21"])
EXPECTED = explain(MODEL, ROWS, columns="used")
NAMES = list(EXPECTED.feature_names)


def test_the_model_uses_some_columns() -> None:
    assert 3 < len(NAMES) < 25


@pytest.mark.parametrize("kind", ["parquet", "csv", "arrow", "table", "frames"])
def test_sources(kind: str, tmp_path: Path) -> None:
    shuffled = ROWS.assign(id=range(150))[["id", *ROWS.columns[::-1]]]  # columns are found by name
    source: Any = tmp_path / f"rows.{kind}"
    if kind == "parquet":
        shuffled.to_parquet(source)
    elif kind == "csv":
        shuffled.to_csv(source, index=False)
    elif kind == "arrow":
        with pa.ipc.new_file(source, pa.Table.from_pandas(shuffled).schema) as file:
            file.write_table(pa.Table.from_pandas(shuffled))
    else:
        table = pa.Table.from_pandas(shuffled)
        source = table if kind == "table" else (shuffled.iloc[i : i + 60] for i in range(0, 150, 60))
    result = explain_batches(
        MODEL, source, tmp_path / "out.parquet", keep=["id"], columns="used", batch_size=64
    )
    assert list(result.feature_names) == NAMES
    written = pq.read_table(tmp_path / "out.parquet")
    assert written.column_names == ["id", *NAMES]
    np.testing.assert_array_equal(written.select(NAMES).to_pandas().to_numpy(), EXPECTED.values)


@pytest.mark.parametrize("as_sparse", [False, True])
def test_arrays(as_sparse: bool, tmp_path: Path) -> None:
    array = ROWS.to_numpy() * (ROWS.to_numpy() > 1)
    expected = explain(MODEL, pd.DataFrame(array, columns=ROWS.columns), columns="used").values
    explain_batches(
        MODEL,
        sp.csr_array(array) if as_sparse else array,
        tmp_path / "out.npy",
        columns="used",
        batch_size=40,
    )
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), expected)


def test_strongest_features_and_pairs() -> None:
    batch = pa.RecordBatch.from_pandas(ROWS)
    for options in ({}, {"interactions": "occurring"}):
        every = BatchExplainer(MODEL, reasons=3, **options)(batch)
        assert BatchExplainer(MODEL, reasons=3, columns="used", **options)(batch).equals(every)
    wide = BatchExplainer(MODEL, reasons=99, columns="used")(batch)
    assert len(wide.column_names) == 3 * len(NAMES)


def test_another_set_of_columns_does_not_resume_a_run(tmp_path: Path) -> None:
    out = tmp_path / "out.npy"
    explain_batches(MODEL, ROWS.to_numpy(), out, columns="used")
    first = np.load(out)
    again = explain_batches(MODEL, ROWS.to_numpy(), out, if_exists="overwrite")
    assert again.n_resumed == 0 and np.load(out).shape == (150, 30) != first.shape


def test_an_explainer_brings_its_columns(tmp_path: Path) -> None:
    explainer = TreeExplainer(MODEL, columns="used")
    assert BatchExplainer(explainer)(pa.RecordBatch.from_pandas(ROWS)).column_names == NAMES
    explainer.save(tmp_path / "explainer")
    saved = BatchExplainer(str(tmp_path / "explainer"))
    assert saved(pa.RecordBatch.from_pandas(ROWS)).column_names == NAMES


@pytest.mark.parametrize("repeats", [False, True])
def test_time_of_many_columns(repeats: bool, tmp_path: Path) -> None:
    """Names are counted once, not once for each name."""
    names = [f"c{i}" for i in range(20_000)]
    names[-1] = names[-2] if repeats else names[-1]
    table = pa.Table.from_arrays([pa.array([1.0])] * len(names), names=names)
    model = forest().fit(ROWS.to_numpy(), ROWS["c7"])
    start = time.process_time()
    with pytest.raises(ValueError, match="several columns 'c19998'" if repeats else "are 20000 columns"):
        explain_batches(model, table, tmp_path / "out.npy")
    assert time.process_time() - start < 3  # usually 0.2; 6 if each name is searched for among all
