"""The strongest features in batches: names, feature values as strings, and SHAP values, in every sink."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.batches import content, same
from helpers.families import forest, frame_with_categories, with_categories

from skshapgpu import TreeExplainer, explain, explain_batches
from skshapgpu.batches import BatchExplainer

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

N = 3


def text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return str(int(value)) if value == int(value) else repr(value)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any, Path]:
    """Return a model with categories, a frame with missing values, and a file of its rows."""
    frame, y = frame_with_categories()
    frame["weight"] = np.round(frame["weight"] * 2) / 2  # some are whole numbers
    frame.loc[frame.index[::5], "weight"] = np.nan
    path = tmp_path_factory.mktemp("rows") / "rows.parquet"
    frame.astype({"color": str}).to_parquet(path)
    return with_categories("sklearn", frame, y), frame, path


@pytest.mark.parametrize("sink", ["top.parquet", "top.arrow", "folder"])
def test_every_sink_has_the_feature_values(source: Any, sink: str, tmp_path: Path) -> None:
    model, frame, path = source
    result = explain_batches(model, path, tmp_path / sink, batch_size=64, reasons=N)
    table = content(result.path).to_pydict()
    assert list(table) == [f"{kind}_{rank}" for rank in (1, 2, 3) for kind in ("feature", "value", "shap")]
    seen = set()
    for record in explain(model, frame).reasons(N):
        row, rank = record["row"], record["rank"]
        assert table[f"feature_{rank}"][row] == record["feature"]
        assert table[f"value_{rank}"][row] == text(record["value"])
        assert table[f"shap_{rank}"][row] == pytest.approx(record["shap_value"], rel=1e-12)
        seen.add(type(record["value"]))
    assert seen == {str, float, type(None)} and "1" in table["value_1"] + table["value_2"]


@pytest.mark.parametrize("sink", ["top.parquet", "top.arrow", "folder"])
def test_resumed_runs_write_the_same_and_other_settings_are_refused(
    source: Any, sink: str, tmp_path: Path
) -> None:
    model, _, path = source
    (tmp_path / "whole").mkdir()
    whole = explain_batches(model, path, tmp_path / "whole" / sink, batch_size=50, reasons=N)

    def stop(done: int, total: int | None) -> None:
        if done >= 100:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        explain_batches(model, path, tmp_path / sink, batch_size=50, reasons=N, progress=stop)
    for other, message in (
        ({"reasons": 2}, "options.reasons was 3 and is 2"),
        ({"reasons": N, "by_sign": True}, "options.by_sign was false and is true"),
        ({}, "options.reasons was 3 and is null"),
    ):
        with pytest.raises(ValueError, match=f"unfinished output of another call: {message}"):
            explain_batches(model, path, tmp_path / sink, batch_size=50, **other)
    result = explain_batches(model, path, tmp_path / sink, batch_size=50, reasons=N)
    assert result.n_resumed >= 50
    assert same(content(result.path), content(whole.path))


def test_an_output_with_other_columns_is_not_resumed(
    source: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from skshapgpu.batches.strongest import Strongest

    model, _, path = source

    def stop(done: int, total: int | None) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as before, pytest.raises(KeyboardInterrupt):
        before.setattr(Strongest, "_has_data", False)  # as if a version without feature values had begun
        explain_batches(model, path, tmp_path / "folder", batch_size=50, reasons=N, progress=stop)
    with pytest.raises(ValueError, match=r"columns\.number was 6 and is 9"):
        explain_batches(model, path, tmp_path / "folder", batch_size=50, reasons=N)


def test_numbers_are_as_short_as_their_type_allows() -> None:
    values = [0.1, -2.0, 16777217.0, 123456789012.0, 1e22, 1e-7, -0.5, 3.0]
    X = np.column_stack([np.resize(values, 80), np.arange(80.0)])
    for dtype, third in ((np.float64, "16777217"), (np.float32, "16777216")):
        model = forest().fit(X.astype(dtype), X[:, 0] * 1e-22 + (X[:, 0] > 0) + (X[:, 0] > 1))
        batch = pa.RecordBatch.from_arrays(list(X.T.astype(dtype)), names=["a", "b"])
        result = BatchExplainer(model, features=["a", "b"], reasons=2)(batch).to_pydict()
        of_a = [result[f"value_{1 + (result['feature_1'][row] != 'a')}"][row] for row in range(8)]
        assert of_a[:3] == ["0.1", "-2", third] and of_a[6:] == ["-0.5", "3"]
        assert [dtype(number) for number in of_a] == [dtype(value) for value in values]


def test_groups_have_values_of_columns_and_pairs_none_at_all() -> None:
    frame, y = frame_with_categories()
    numbers = frame[["weight"]].assign(b=np.arange(len(frame)) % 7, c=np.arange(len(frame)) % 3).fillna(0.0)
    model = forest().fit(numbers, y)
    batch = pa.RecordBatch.from_pandas(numbers, preserve_index=False)
    explainer = TreeExplainer(model, feature_groups={"bc": ["b", "c"]})
    result = BatchExplainer(explainer, reasons=2)(batch).to_pydict()
    assert set(result["feature_1"]) == {"bc", "weight"}
    for rank in (1, 2):
        for row, (feature, value) in enumerate(zip(result[f"feature_{rank}"], result[f"value_{rank}"])):
            weight, b, c = numbers.iloc[row]
            assert value == f"b={b:g}, c={c:g}" if feature == "bc" else float(value) == weight
    pairs = BatchExplainer(model, reasons=2, interactions="occurring")(batch)
    assert pairs.column_names == ["pair_1", "interaction_1", "pair_2", "interaction_2"]
