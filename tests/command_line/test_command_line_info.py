"""``skshapgpu info``: categorical columns of each family, and estimates of calls that are impossible."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.families import library
from sklearn.ensemble import HistGradientBoostingRegressor

from skshapgpu import TreeExplainer
from skshapgpu._common import memory
from skshapgpu._engine import execution
from skshapgpu.command_line import info as command_info
from skshapgpu.command_line import main

N_ROWS = 400


@pytest.fixture
def info(capsys: pytest.CaptureFixture[str]) -> Any:
    """Function that returns the command's JSON for a file, and the printed line of categorical columns."""

    def call(path: Path) -> tuple[dict[str, Any], str]:
        assert main(["info", str(path), "--json"]) == 0
        facts = json.loads(capsys.readouterr().out)
        assert main(["info", str(path)]) == 0
        lines = capsys.readouterr().out.splitlines()
        return facts, next(line for line in lines if line.startswith("categorical")).split(maxsplit=1)[1]

    return call


def mixed_frame(n_categorical: int = 3, n_unused: int = 1) -> tuple[Any, np.ndarray]:
    """Draw numbers between categories c0, c1, ..., on which y depends, and uninformative last categories."""
    pd = pytest.importorskip("pandas")
    rng, columns, y = np.random.default_rng(0), {}, np.zeros(N_ROWS)
    for i in range(n_categorical):
        columns[f"n{i}"] = rng.normal(size=N_ROWS)
        codes = rng.integers(0, 4, N_ROWS)
        columns[f"c{i}"] = pd.Categorical.from_codes(codes, list("wxyz"))
        y += np.array([0.0, 5.0, -3.0, 9.0])[codes] + columns[f"n{i}"]
    for i in range(n_unused):
        columns[f"unused{i}"] = pd.Categorical(["a"] * N_ROWS)
    return pd.DataFrame(columns), y


def test_lightgbm_columns_of_a_data_frame(info: Any, tmp_path: Path) -> None:
    """LightGBM stores the number of categorical columns; only the splits show which ones they are."""
    lightgbm = library("lightgbm")
    X, y = mixed_frame(8, n_unused=2)
    model = lightgbm.LGBMRegressor(n_estimators=60, min_child_samples=5, verbose=-1).fit(X, y)
    path, saved = tmp_path / "model.txt", tmp_path / "saved"
    model.booster_.save_model(path)
    TreeExplainer(model).save(saved)
    for file in (path, saved):
        facts, line = info(file)
        assert facts["n_categorical"] == 10
        assert facts["categorical_features"] == [f"c{i}" for i in range(8)]
        assert line == f"10: {', '.join(f'c{i}' for i in range(8))}; no split asks for the others"


def test_lightgbm_columns_of_an_array(info: Any, tmp_path: Path) -> None:
    lightgbm = library("lightgbm")
    X, y = mixed_frame(2, n_unused=0)
    codes = X.apply(lambda column: column.cat.codes if column.dtype == "category" else column).to_numpy(float)
    options = {"n_estimators": 20, "min_child_samples": 5, "verbose": -1, "cat_l2": 0, "cat_smooth": 0}
    lightgbm.LGBMRegressor(**options).fit(codes, y, categorical_feature=[1, 3]).booster_.save_model(
        tmp_path / "model.txt"
    )
    facts, line = info(tmp_path / "model.txt")
    assert (facts["n_categorical"], facts["categorical_features"], line) == (2, [1, 3], "2: 1, 3")


def test_xgboost(info: Any, tmp_path: Path) -> None:
    xgboost = library("xgboost")
    X, y = mixed_frame()
    model = xgboost.XGBRegressor(n_estimators=10, max_depth=4, enable_categorical=True).fit(X, y)
    model.save_model(tmp_path / "model.ubj")
    facts, line = info(tmp_path / "model.ubj")
    assert facts["categorical_features"] == ["c0", "c1", "c2", "unused0"]
    assert line == "4: c0, c1, c2, unused0"


def test_catboost(info: Any, tmp_path: Path) -> None:
    catboost = library("catboost")
    X, y = mixed_frame()
    X = X.astype({name: str for name in X if name[0] in "cu"})
    options = {"iterations": 20, "verbose": 0, "allow_writing_files": False, "thread_count": 1}
    model = catboost.CatBoostRegressor(**options).fit(X, y, cat_features=["c0", "c1", "c2", "unused0"])
    model.save_model(str(tmp_path / "model.cbm"))
    facts, line = info(tmp_path / "model.cbm")
    assert facts["categorical_features"][:3] == ["c0", "c1", "c2"]
    assert line.startswith("4: c0, c1, c2")


def test_histograms(info: Any, tmp_path: Path) -> None:
    X, y = mixed_frame()
    model = HistGradientBoostingRegressor(max_iter=5, categorical_features="from_dtype").fit(X, y)
    TreeExplainer(model).save(tmp_path / "saved")
    facts, line = info(tmp_path / "saved")
    assert facts["categorical_features"] == ["c0", "c1", "c2", "unused0"]
    assert line == "4: c0, c1, c2, unused0"


def test_numbers_alone(info: Any, tmp_path: Path) -> None:
    X, y = mixed_frame()
    model = HistGradientBoostingRegressor(max_iter=5).fit(X[["n0", "n1"]], y)
    TreeExplainer(model).save(tmp_path / "saved")
    facts, line = info(tmp_path / "saved")
    assert (facts["n_categorical"], facts["categorical_features"], line) == (0, [], "none")


@pytest.mark.usefixtures("on_cpu")
def test_rows_that_no_call_can_take(
    info: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    X, y = mixed_frame()
    model = HistGradientBoostingRegressor(max_iter=5).fit(X[["n0", "n1"]], y)
    TreeExplainer(model).save(tmp_path / "saved")
    estimate = info(tmp_path / "saved")[0]["estimate"]
    assert estimate["refusal"] is None
    assert estimate["peak_bytes"] > estimate["result_bytes"] == 16 * estimate["n_rows"]
    monkeypatch.setattr(memory, "machine_bytes", lambda: 1000)
    assert "the machine has 1,000 bytes" in info(tmp_path / "saved")[0]["estimate"]["refusal"]
    assert main(["info", str(tmp_path / "saved")]) == 0
    assert "refused in one call: the machine has 1,000 bytes" in capsys.readouterr().out


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("n_processors", [1, 3])
def test_the_time_is_that_of_the_threads_that_are_named(
    info: Any,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    n_processors: int,
) -> None:
    monkeypatch.setattr(command_info, "effective_n_jobs", lambda n_jobs: n_processors)
    monkeypatch.setattr(execution, "effective_n_jobs", lambda n_jobs: 1 if n_jobs is None else n_processors)
    X, y = mixed_frame()
    model = HistGradientBoostingRegressor(max_iter=50).fit(X[["n0", "n1"]], y)
    TreeExplainer(model).save(tmp_path / "saved")
    estimate = info(tmp_path / "saved")[0]["estimate"]
    assert estimate["threads"] == n_processors
    n_rows = estimate["n_rows"]
    assert estimate["seconds"] == TreeExplainer(model, n_jobs=-1).plan(n_rows).seconds
    alone = TreeExplainer(model).plan(n_rows).seconds
    assert alone is not None and (estimate["seconds"] < 0.6 * alone) == (n_processors == 3)
    assert main(["info", str(tmp_path / "saved")]) == 0
    threads = "1 thread" if n_processors == 1 else "3 threads"
    assert f" s on cpu with {threads}\n" in capsys.readouterr().out
