"""Rows of iris for explain_batches, in tables and files, and the expected content of the outputs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier

import skshapgpu

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("pandas")
for _name in ("csv", "dataset", "feather"):
    pytest.importorskip(f"pyarrow.{_name}")

IRIS, SPECIES = load_iris(return_X_y=True, as_frame=True)
ROWS = IRIS.assign(id=np.arange(150)[::-1], name=[f"r{i}" for i in range(150)])
TABLE = pa.Table.from_pandas(ROWS, preserve_index=False)
MODEL = RandomForestClassifier(3, max_depth=3, random_state=0).fit(IRIS, SPECIES)
KEPT = ["name", "id"]

#: Environment of processes that must find this package.
ALONE = os.environ | {"PYTHONPATH": str(Path(skshapgpu.__file__).parents[1]), "OPENBLAS_NUM_THREADS": "1"}


def content(path: Path) -> Any:
    """Return the content of an output: a table or an array."""
    if path.suffix == ".npy":
        return np.load(path)
    if path.suffix == ".arrow":
        return pa.feather.read_table(path)
    if path.suffix == ".parquet":
        return pq.read_table(path)
    kind = "feather" if next(path.glob("part-*")).suffix == ".arrow" else "parquet"
    return pa.dataset.dataset(path, format=kind).to_table()


def same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    return a.schema.equals(b.schema, check_metadata=True) and a.equals(b)


def check(path: Path, values: np.ndarray, kept: list[str] = KEPT) -> None:
    table = content(path)
    if isinstance(table, np.ndarray):
        np.testing.assert_array_equal(table, values)
        return
    assert table.column_names[: len(kept)] == kept
    for name in kept:
        assert table.column(name).to_pylist() == TABLE.column(name).to_pylist()
    columns = table.columns[len(kept) :]
    assert {str(column.type) for column in columns} == {"float" if values.dtype.char == "f" else "double"}
    np.testing.assert_array_equal(np.column_stack(columns), values.reshape(len(values), len(columns)))


def parquet_folder(folder: Path) -> Path:
    """Write files of 60, 0 and 90 rows in row groups of 25, and a file that does not belong to the data."""
    (folder / "deep").mkdir(parents=True)
    pq.write_table(TABLE.slice(0, 60), folder / "a.parquet", row_group_size=25)
    pq.write_table(TABLE.slice(0, 0), folder / "b.parquet")
    pq.write_table(TABLE.slice(60), folder / "deep" / "c.parquet", row_group_size=25)
    (folder / "_SUCCESS").write_text("")
    (folder / ".hidden").mkdir()
    (folder / ".hidden" / "d.parquet").write_text("nothing")
    return folder


def files(folder: Path, kind: str) -> Any:
    folder.mkdir(exist_ok=True)
    path = folder / f"rows.{kind}"
    if kind == "parquet":
        pq.write_table(TABLE, path, row_group_size=40)
    elif kind == "arrow":
        with pa.ipc.new_file(path, TABLE.schema) as writer:
            writer.write_table(TABLE, max_chunksize=33)
    elif kind == "csv":
        pa.csv.write_csv(TABLE, path)
    elif kind == "tsv.gz":
        ROWS.to_csv(path, sep="\t", index=False)
    elif kind == "folder":
        return parquet_folder(folder / "rows")
    elif kind == "list":
        parquet_folder(folder / "rows")
        return [folder / "rows" / "a.parquet", str(folder / "rows" / "deep" / "c.parquet")]
    elif kind == "dataset":
        return pa.dataset.dataset(parquet_folder(folder / "rows"))
    return path


ARRAY = IRIS.to_numpy()
