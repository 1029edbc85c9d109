"""URLs on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.command_line import NAMES, X, Y, frame
from helpers.stores import Store
from sklearn.ensemble import RandomForestRegressor

from skshapgpu import TreeExplainer
from skshapgpu.command_line import main

pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")
pq = pytest.importorskip("pyarrow.parquet")


@pytest.fixture(scope="module")
def forest() -> Any:
    return RandomForestRegressor(5, max_depth=4, random_state=0).fit(frame(), Y)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    """Function that runs a command with --json, and returns the exit code and the output."""

    def call(*args: Any) -> tuple[int, Any]:
        code = main([*map(str, args), "--json"])
        return code, json.loads(capsys.readouterr().out)

    return call


@pytest.fixture
def data(url_store: Store, tmp_path: Path) -> str:
    frame().assign(id=range(len(X))).to_parquet(tmp_path / "data.parquet")
    return url_store.copy(tmp_path / "data.parquet", "data.parquet")


def test_explainers_and_values(url_store: Store, data: str, forest: Any, run: Any, tmp_path: Path) -> None:
    explainer = url_store.place("explainer.npz")
    TreeExplainer(forest).save(explainer)
    code, info = run("info", explainer)
    assert code == 0 and info["file"] == explainer and info["n_trees"] == 5
    assert info["file_bytes"] == len(url_store.read("explainer.npz"))
    outputs = [url_store.place(name) for name in ("a.parquet", "b/", "c.csv")]
    for output in outputs:
        code, table = run("explain", explainer, data, "-o", output, "--keep", "id")
        assert code == 0 and (table["output"], table["n_rows"]) == (output, len(X))
    assert run("explain", explainer, data, "-o", outputs[0], "--keep", "id")[1]["n_resumed"] == len(X)
    table = pq.read_table(url_store.fetch("a.parquet", tmp_path / "a.parquet"))
    np.testing.assert_array_equal(
        np.column_stack(table.select(list(NAMES)).columns), TreeExplainer(forest).shap_values(X)
    )
    code, drift = run("compare", outputs[0], outputs[1], "--fail-below", "1")
    assert code == 0 and drift["ndcg"] == 1
    code, error = run("compare", outputs[0], outputs[2])
    assert code == 1 and f"'{outputs[2]}' is no Parquet or Arrow output" in error["error"]


def test_models(url_store: Store, data: str, run: Any, tmp_path: Path) -> None:
    xgboost = pytest.importorskip("xgboost")
    model = xgboost.XGBRegressor(n_estimators=5, max_depth=3).fit(frame(), Y)
    model.save_model(tmp_path / "model.ubj")
    url = url_store.copy(tmp_path / "model.ubj", "model.ubj")
    code, info = run("info", url)
    assert code == 0 and (info["family"], info["n_trees"], info["file"]) == ("xgboost", 5, url)
    saved = url_store.place("saved.npz")
    code, output = run("save", url, "-o", saved, "--background", data, "--background-rows", 20, "--seed", 1)
    assert code == 0 and output["file_bytes"] == len(url_store.read("saved.npz"))
    out = tmp_path / "out.npy"
    assert run("explain", saved, data, "-o", out)[0] == 0
    np.testing.assert_array_equal(np.load(out), TreeExplainer.load(saved).shap_values(frame()))
    assert run("explain", url, data, "-o", url_store.place("top.parquet"), "--interactions", "3")[0] == 0


def test_files_of_skops(url_store: Store, data: str, forest: Any, run: Any, tmp_path: Path) -> None:
    skops = pytest.importorskip("skops.io")
    skops.dump(forest, tmp_path / "model.skops")
    url = url_store.copy(tmp_path / "model.skops", "model.skops")
    code, error = run("info", url)
    if code:
        assert f"MODEL: '{url}' cannot be loaded" in error["error"]
    code, info = run("info", url, "--trust", "sklearn.tree._tree.Tree")
    assert code == 0 and info["n_trees"] == 5
    out = url_store.place("out.npy")
    assert run("explain", url, data, "-o", out, "--trust", "sklearn.tree._tree.Tree")[0] == 0


def test_errors(url_store: Store, data: str, forest: Any, run: Any, capsys: Any) -> None:
    explainer = url_store.place("explainer.npz")
    TreeExplainer(forest).save(explainer)
    nowhere, pickled = url_store.place("datta.parquet"), url_store.write("model.pkl", b"\x80abc")
    url_store.write("folder/file", b"")
    for command, message in (
        (["info", nowhere], f"MODEL: there is no file '{nowhere}'"),
        (["info", pickled], f"MODEL: '{pickled}' is a pickle"),
        (["info", data], f"MODEL: '{data}' is a Parquet file"),
        (["info", url_store.place("folder")], "is a folder; expected a model file"),
        (["explain", explainer, nowhere, "-o", "out"], f"DATA: there is no file '{nowhere}'"),
        (["explain", explainer, data, "-o", url_store.place("out.txt")], "has none of the extensions of"),
        (["explain", explainer, data, "-o", data], f"'{data}' exists, and is no output of"),
        (["explain", explainer, data, "-o", "out", "--keep", "ident"], f"DATA: '{data}': there is no column"),
        (["save", explainer, "-o", data], f"'{data}' exists, and is not a file that skshapgpu"),
        (["save", explainer, "-o", url_store.place("folder")], "is a folder; expected the name of a file"),
        (["compare", data, nowhere], f"CURRENT: there is no file '{nowhere}'"),
        (["info", "nonsense://a/b"], "can open nonsense:// URLs"),
    ):
        code, output = run(*command)
        assert code == 1 and message in output["error"], output
        assert "did you mean" not in output["error"] or "column" in output["error"]
