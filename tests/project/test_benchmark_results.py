"""Files of benchmark results: one for each benchmark and kind of device, each named on a page."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks/results"
PAGES = [ROOT / "README.md", ROOT / "benchmarks/README.md", *sorted((ROOT / "docs").glob("*.md"))]

#: Assembled by hand, in forms of their own.
BY_HAND = {"gpu-tuning", "several-gpus"}


@pytest.fixture
def store() -> ModuleType:
    spec = importlib.util.spec_from_file_location("store", ROOT / "benchmarks/store.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_pages_name_each_file_and_no_other() -> None:
    named = {name for page in PAGES for name in re.findall(r"results/([\w.-]+\.json)", page.read_text())}
    assert named == {path.name for path in RESULTS.iterdir()}


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_file_is_that_of_its_benchmark(path: Path) -> None:
    assert not re.search(r"\d{4}|again|new|old", path.stem)
    content = json.loads(path.read_text())
    if path.stem not in BY_HAND:
        assert content["benchmark"] == path.stem
        for run in content["runs"]:
            assert run["commit"] and run["machine"] and run["versions"] and run["models"]


def test_a_run_takes_the_place_of_earlier_results_of_its_models(tmp_path: Path, store: ModuleType) -> None:
    path = tmp_path / "results" / "values.json"

    def write(date: str, **seconds: int) -> None:
        models = [{"name": name, "seconds": value} for name, value in seconds.items()]
        store.add_run(path, {"benchmark": "values", "date": date, "models": models})

    def stored() -> list[tuple[str, dict[str, int]]]:
        content = json.loads(path.read_text())
        assert content["benchmark"] == "values"
        return [(run["date"], {m["name"]: m["seconds"] for m in run["models"]}) for run in content["runs"]]

    write("1", a=1, b=1)
    write("2")
    write("2", b=2)  # the same run, with its results so far
    assert stored() == [("1", {"a": 1}), ("2", {"b": 2})]
    write("2", b=2, a=2)
    write("3", c=3)
    assert stored() == [("2", {"b": 2, "a": 2}), ("3", {"c": 3})]


def test_cases_without_names_are_told_by_their_sizes(store: ModuleType) -> None:
    sizes = [{"rows": 10}, {"rows": 20}, {"rows": 20, "processes": 2}, {"encoding": "ordinal", "rows": 10}]
    assert len({store.case(size) for size in sizes}) == 4
    assert store.case({"rows": 10, "seconds": 1.0}) == store.case({"rows": 10, "seconds": 2.0})
