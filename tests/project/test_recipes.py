"""Each block of docs/recipes.md, run alone, computes right values if its libraries are installed."""

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
    """Run a block of a section after the setup, in an empty folder, and return its variables."""
    pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SKSHAPGPU_DEVICE", "cpu")

    def names(title: str) -> dict[str, Any]:
        (code,) = recipes()[title]
        for library in sorted(libraries(code)):
            pytest.importorskip(library)
        setup = SETUP.search(PAGE.read_text())
        assert setup is not None
        variables: dict[str, Any] = {"__name__": "__main__"}
        exec(compile(setup[1], "setup", "exec"), variables)
        exec(compile(code, f"{title}:\n{code}", "exec"), variables)
        return variables

    return names


def expected(variables: dict[str, Any]) -> Any:
    """Compute the SHAP values of all rows from the model itself."""
    from skshapgpu import explain

    values = explain(variables["model"], variables["X"]).to_frame()
    assert np.ptp(values.to_numpy(), axis=0).max() > 1
    return values


def assert_by_id(explained: Any, variables: dict[str, Any]) -> None:
    """Compare a pandas frame with a column id."""
    values = explained.set_index("id").sort_index()
    wanted = expected(variables)
    assert list(values) == list(wanted)
    np.testing.assert_array_equal(values.index, variables["rows"]["id"])
    np.testing.assert_array_equal(values, wanted)


def test_fastapi(run: Any) -> None:
    pytest.importorskip("httpx")
    variables = run("FastAPI")
    from fastapi.testclient import TestClient

    from skshapgpu import explain

    X = variables["X"].head(3).iloc[:, ::-1]
    client = TestClient(variables["app"])
    answer = client.post("/reasons", json=X.to_dict("records"))
    assert answer.status_code == 200
    wanted = explain(variables["model"], variables["X"].head(3)).reasons(3)
    assert [(r["row"], r["feature"], r["shap_value"]) for r in answer.json()] == [
        (r["row"], r["feature"], r["shap_value"]) for r in wanted
    ]
    with_gap = client.post("/reasons", json=[{**X.iloc[0].to_dict(), "bmi": None}])
    assert with_gap.status_code == 200 and with_gap.json() != answer.json()[:3]
    unknown = client.post("/reasons", json=X.rename(columns={"bmi": "b m i"}).to_dict("records"))
    assert unknown.status_code == 422 and "['b m i']" in unknown.json()["detail"]


def test_polars(run: Any) -> None:
    variables = run("polars")
    assert_by_id(variables["explained"].to_pandas(), variables)


def test_duckdb(run: Any) -> None:
    variables = run("DuckDB")
    assert_by_id(variables["explained"], variables)
    names = variables["names"]
    gap = variables["rows"].head(2).copy()
    gap.loc[0, "bmi"] = None
    query = f"SELECT unnest(shap_of(struct_pack({', '.join(names)}))) FROM gap"
    values = variables["connection"].sql(query).df()
    assert gap.isna().sum().sum() == 1 and values.notna().all().all()
    from skshapgpu import explain

    np.testing.assert_array_equal(values, explain(variables["model"], gap[list(names)]).to_frame())


def test_skops(run: Any) -> None:
    pytest.importorskip("skops", "0.15")  # earlier releases trust fewer types, as the page says
    variables = run("skops")
    skops = pytest.importorskip("skops.io")
    assert skops.get_untrusted_types(file="transformer.skops") == sorted(variables["TRUSTED"])
    np.testing.assert_array_equal(variables["explained"], expected(variables))


def test_interactive_plots(run: Any) -> None:
    variables = run("Interactive plots")
    drawn = np.concatenate(
        [np.asarray(trace.x, float) for trace in variables["figure"].data if len(trace.x) > 1]
    )
    np.testing.assert_allclose(np.sort(drawn), np.sort(expected(variables).to_numpy().ravel()), rtol=1e-12)
    for name in ("beeswarm", "waterfall", "bmi"):
        assert "bmi" in Path(f"{name}.html").read_text()


def test_every_block_is_tested() -> None:
    assert {title: len(blocks) for title, blocks in recipes().items()} == {
        "FastAPI": 1,
        "polars": 1,
        "DuckDB": 1,
        "skops": 1,
        "Interactive plots": 1,
    }
