"""The benchmark of planted changes on few rows, and the figures on docs/drift.md."""

from __future__ import annotations

import importlib.util
import json
import re
from types import ModuleType

import pytest
from helpers import ROOT

#: Rows of the table in docs/drift.md, by the cases of the benchmark.
ROWS = {
    "unchanged": "unchanged",
    "shifted": "a feature shifted",
    "swapped": "two columns swapped",
    "effect": "a model retrained after",
    "retrained": "a model retrained on other rows",
}


@pytest.fixture(scope="module")
def changes() -> ModuleType:
    path = ROOT / "benchmarks/drift.py"
    if not path.exists():
        pytest.skip("not a checkout")
    spec = importlib.util.spec_from_file_location("changes", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("case", ROWS)
def test_planted_changes_are_found(case: str, changes: ModuleType) -> None:
    result = changes.measure(case, 2, 1_000)
    planted = len(changes.CASES[case]) > 0
    assert result["alarms_of_distance"] == result["changes_with_the_largest_distance"] == 2 * planted
    if case != "retrained":
        assert result["alarms_of_psi"] == 2 * planted


def test_figures_are_those_of_the_results() -> None:
    if not (ROOT / "benchmarks/results").exists():  # the source distribution has none
        pytest.skip("not a checkout")
    page = (ROOT / "docs/drift.md").read_text()
    (run,) = json.loads((ROOT / "benchmarks/results/drift.json").read_text())["runs"]
    results = {model["name"]: model for model in run["models"]}
    assert set(results) == set(ROWS)
    for case, begin in ROWS.items():
        shown = re.search(rf"^\| {begin}.*?\|(.*)\|$", page, re.MULTILINE)
        assert shown is not None
        measures = ("ndcg", "psi", "distance")
        expected = [f"{results[case][f'alarms_of_{measure}']} of 20" for measure in measures]
        assert [cell.strip() for cell in shown[1].split("|")] == expected
        assert results[case]["seeds"] == 20 and results[case]["rows"] == 5_000
    planted = [model for name, model in results.items() if name not in ("unchanged", "retrained")]
    assert sum(model["changes_with_the_largest_distance"] for model in planted) == 60
