"""Each block of docs/recipes.md by itself: its values are right, wherever its libraries are installed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import ROOT

PAGE = ROOT / "docs" / "recipes.md"
SETUP = re.compile(r"\A<!-- setup:\n(.*?)^-->$", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)

if not PAGE.exists():
    pytest.skip("not a checkout", allow_module_level=True)


def recipes() -> dict[str, list[str]]:
    """Return the blocks of each section, by its title."""
    sections = PAGE.read_text().split("\n## ")[1:]
    return {section.partition("\n")[0]: BLOCK.findall(section) for section in sections}


def libraries(code: str) -> set[str]:
    return set(re.findall(r"^(?:from|import) (\w+)", code, re.MULTILINE))


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run a block of a section after the setup, in an empty folder, and return its names."""
    pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SKSHAPGPU_DEVICE", "cpu")

    def names(title: str, number: int = 0) -> dict[str, Any]:
        code = recipes()[title][number]
        for library in sorted(libraries(code)):
            pytest.importorskip(library)
        setup = SETUP.search(PAGE.read_text())
        assert setup is not None
        found: dict[str, Any] = {"__name__": "__main__"}
        exec(compile(setup[1], "setup", "exec"), found)
        exec(compile(code, f"{title}:\n{code}", "exec"), found)
        return found

    return names


def expected(found: dict[str, Any]) -> Any:
    """Compute the SHAP values of all rows from the model itself."""
    from skshapgpu import explain

    values = explain(found["model"], found["X"]).to_frame()
    assert np.ptp(values.to_numpy(), axis=0).max() > 1
    return values


def assert_by_id(explained: Any, found: dict[str, Any]) -> None:
    """Compare a pandas frame with a column id."""
    values = explained.set_index("id").sort_index()
    wanted = expected(found)
    assert list(values) == list(wanted)
    np.testing.assert_array_equal(values.index, found["rows"]["id"])
    np.testing.assert_array_equal(values, wanted)


def test_fastapi(run: Any) -> None:
    pytest.importorskip("httpx")
    found = run("FastAPI")
    from fastapi.testclient import TestClient

    from skshapgpu import explain

    X = found["X"].head(3).iloc[:, ::-1]
    client = TestClient(found["app"])
    answer = client.post("/reasons", json=X.to_dict("records"))
    assert answer.status_code == 200
    wanted = explain(found["model"], found["X"].head(3)).reasons(3)
    assert [(r["row"], r["feature"], r["shap_value"]) for r in answer.json()] == [
        (r["row"], r["feature"], r["shap_value"]) for r in wanted
    ]
    with_gap = client.post("/reasons", json=[{**X.iloc[0].to_dict(), "bmi": None}])
    assert with_gap.status_code == 200 and with_gap.json() != answer.json()[:3]


def test_polars(run: Any) -> None:
    found = run("polars")
    assert_by_id(found["explained"].to_pandas(), found)


def test_duckdb(run: Any) -> None:
    found = run("DuckDB")
    assert_by_id(found["explained"], found)
    names = found["names"]
    gap = found["rows"].head(2).copy()
    gap.loc[0, "bmi"] = None
    query = f"SELECT unnest(shap_of(struct_pack({', '.join(names)}))) FROM gap"
    values = found["connection"].sql(query).df()
    assert gap.isna().sum().sum() == 1 and values.notna().all().all()
    from skshapgpu import explain

    np.testing.assert_array_equal(values, explain(found["model"], gap[list(names)]).to_frame())


def test_arrow(run: Any) -> None:
    found = run("Arrow")
    table = found["explained"].flatten()
    assert_by_id(
        table.rename_columns([name.removeprefix("shap.") for name in table.column_names]).to_pandas(), found
    )


@pytest.mark.parametrize("number", [0, 1])
def test_skops(run: Any, number: int) -> None:
    found = run("skops", number)
    if number == 0:
        skops = pytest.importorskip("skops.io")
        assert skops.get_untrusted_types(file="transformer.skops") == sorted(found["TRUSTED"])
        np.testing.assert_array_equal(found["explained"], expected(found))
        return
    from skshapgpu import explain

    np.testing.assert_array_equal(found["explained"], explain(found["pipeline"], found["X"]).values)


def test_interactive_plots(run: Any) -> None:
    found = run("Interactive plots")
    drawn = np.concatenate([np.asarray(trace.x, float) for trace in found["figure"].data if len(trace.x) > 1])
    np.testing.assert_allclose(np.sort(drawn), np.sort(expected(found).to_numpy().ravel()), rtol=1e-12)
    for name in ("beeswarm", "waterfall", "bmi"):
        assert "bmi" in Path(f"{name}.html").read_text()


def test_every_block_is_tested() -> None:
    assert {title: len(blocks) for title, blocks in recipes().items()} == {
        "FastAPI": 1,
        "polars": 1,
        "DuckDB": 1,
        "Arrow": 1,
        "skops": 2,
        "Interactive plots": 1,
    }
