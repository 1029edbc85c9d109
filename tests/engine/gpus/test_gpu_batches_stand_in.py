"""Batches that several GPUs explain, with stand-ins for ``_cuda``, which compute with the CPU's plans."""

from __future__ import annotations

import threading
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.gpu_stand_in import CudaError, CudaPlan, install
from sklearn.datasets import load_diabetes
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor

from skshapgpu import TreeExplainer, explain_batches
from skshapgpu._common import interrupts

X, Y = load_diabetes(return_X_y=True)


@pytest.fixture(autouse=True)
def calls(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Two GPUs and CuPy; the calls of the plans on them."""
    return install(monkeypatch)


@pytest.fixture(scope="module")
def regressor() -> RandomForestRegressor:
    return RandomForestRegressor(6, max_depth=4, random_state=0).fit(X, Y)


@pytest.mark.parametrize(
    ("batch_size", "names", "whole"),
    [
        (40, ["cuda:0", "cuda:1"], True),
        (40, ["cuda:1"], True),
        (150, ["cuda:0", "cuda:1"], False),
    ],
    ids=["entire batches", "one GPU", "few batches"],
)
def test_batches_of_several_gpus(
    batch_size: int,
    names: list[str],
    whole: bool,
    tmp_path: Path,
    regressor: Any,
    calls: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # On a busy machine, one stand-in would take every batch before the other's thread has started. The main
    # thread explains the first batch before any of them.
    explain, waiting, all_started = CudaPlan.explain, set(names), threading.Barrier(len(names))

    def explain_once_all_have_started(plan: CudaPlan, *arguments: Any, **parts: Any) -> None:
        is_first = whole and threading.current_thread() is threading.main_thread()
        if not is_first and (name := f"cuda:{plan.device}") in waiting:
            waiting.remove(name)
            all_started.wait(60)
        explain(plan, *arguments, **parts)

    monkeypatch.setattr(CudaPlan, "explain", explain_once_all_have_started)
    pa, feather = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.feather")
    columns = [f"x{i}" for i in range(X.shape[1])]
    table = pa.table(dict(zip(columns, X.T)) | {"id": np.arange(len(X))})
    explainer = TreeExplainer(regressor, device=names)
    told: list[int] = []
    result = explain_batches(
        explainer,
        table,
        tmp_path / "values.arrow",
        features=columns,
        keep=["id"],
        batch_size=batch_size,
        progress=lambda done, total: told.append(done),
    )
    assert result.n_rows == len(X) == told[-1] and told == sorted(told)
    actual = feather.read_table(result.path)
    assert actual.column("id").to_pylist() == list(range(len(X)))
    expected = TreeExplainer(regressor, device="cpu").shap_values(X)
    np.testing.assert_array_equal(np.column_stack(actual.columns[1:]), expected)
    assert {f"cuda:{call['device']}" for call in calls} == set(names)
    sizes = {call["n_rows"] for call in calls}
    assert sizes == ({40, len(X) % 40} if whole else {75, len(X) % 150 // 2})


@pytest.mark.parametrize("device", ["cuda", ["cuda:0", "cuda:1"]])
def test_predict_does_not_warn_of_rows_in_batches(tmp_path: Path, device: Any) -> None:
    """Batches of a file with names are arrays without names, to which ``predict`` is compared."""
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame(X).add_prefix("x")
    frame.to_parquet(tmp_path / "rows.parquet")
    model = HistGradientBoostingRegressor(max_iter=3).fit(frame, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        explain_batches(model, tmp_path / "rows.parquet", tmp_path / "out", batch_size=40, device=device)
    values = pd.read_parquet(tmp_path / "out").to_numpy()
    np.testing.assert_array_equal(values, TreeExplainer(model, device="cpu").shap_values(frame))


def test_an_error_in_a_batch_on_a_gpu(tmp_path: Path, regressor: Any) -> None:
    pytest.importorskip("pyarrow")
    rows = X.copy()
    rows[217, 3] = np.inf
    explainer = TreeExplainer(regressor, device=["cuda:0", "cuda:1"])
    with pytest.raises(ValueError, match=r"in rows 200 to 239 of the source, .* row 17, column 3"):
        explain_batches(explainer, rows, tmp_path / "out", batch_size=40)
    assert len(list((tmp_path / "out").glob("part-*"))) == 5
    assert explain_batches(
        explainer, X, tmp_path / "out", batch_size=40, if_exists="overwrite"
    ).n_rows == len(X)


def test_an_error_of_one_gpu_ends_the_call_on_the_other(
    regressor: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    explainer = TreeExplainer(regressor, device=["cuda:0", "cuda:1"])
    ended = []

    def explain(plan: CudaPlan, X: np.ndarray, *arguments: Any, **parts: Any) -> None:
        if plan.device:
            raise CudaError("the second GPU failed")
        try:
            while True:
                interrupts.check()
                time.sleep(0.001)
        except interrupts.Stopped:
            ended.append(plan.device)
            raise

    monkeypatch.setattr(CudaPlan, "explain", explain)
    with pytest.raises(CudaError, match="the second GPU failed"):
        explainer.shap_values(X)
    assert ended == [0]
