"""The command line as a function, and files to run it on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers.command_line import NAMES, X, Y, frame
from sklearn.ensemble import RandomForestRegressor

from skshapgpu import TreeExplainer
from skshapgpu.command_line import main


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    """Function that runs the command line and returns the exit code and the output."""

    def call(*args: Any) -> tuple[int, str, str]:
        code = main([str(arg) for arg in args])
        return code, *capsys.readouterr()

    return call


@pytest.fixture
def fails(run: Any) -> Any:
    """Function that runs a command that must fail and returns its single line on stderr."""

    def call(*args: Any, exit_code: int = 1) -> str:
        code, out, err = run(*args)
        assert code == exit_code and not out
        *usage, line = err.splitlines()
        assert line.startswith("skshapgpu: error: ") and bool(usage) == (exit_code == 2)
        assert "Traceback" not in err
        return line.removeprefix("skshapgpu: error: ")

    return call


@pytest.fixture(scope="module")
def forest() -> Any:
    pytest.importorskip("pandas")
    return RandomForestRegressor(5, max_depth=4, random_state=0).fit(frame(), Y)


@pytest.fixture
def saved(forest: Any, tmp_path: Path) -> Path:
    path = tmp_path / "explainer.npz"
    TreeExplainer(forest).save(path)
    return path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Rows in a file with one column that is no feature, and with the features in another order."""
    pytest.importorskip("pyarrow")
    frame().assign(id=range(len(X)))[["id", *NAMES[::-1]]].to_parquet(tmp_path / "data.parquet")
    return tmp_path / "data.parquet"
