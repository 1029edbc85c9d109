"""Files of benchmark results: there is one for each benchmark and kind of device, and a page names it."""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
import runpy
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks/results"
pytestmark = pytest.mark.skipif(not RESULTS.exists(), reason="source distributions lack results")
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


def test_the_picture_and_tables_of_progress_are_current() -> None:
    progress = runpy.run_path(str(ROOT / "docs/progress.py"))
    page = (ROOT / "docs/measurements.md").read_text()
    assert (ROOT / "docs/progress.svg").read_text() == progress["drawing"](), "run python docs/progress.py"
    assert page == progress["with_results"](page), "run python docs/progress.py"


def test_the_chart_of_the_first_page_is_current(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    drawing = runpy.run_path(str(ROOT / "docs/speed.py"))["drawing"]()
    assert (ROOT / "docs/images/speed.svg").read_text() == drawing, "run python docs/speed.py"


def test_the_chart_of_the_first_page_names_devices_and_our_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    speed = runpy.run_path(str(ROOT / "docs/speed.py"))
    chart = (ROOT / "docs/images/speed.svg").read_text()
    for panel in speed["PANELS"]:
        device, seconds, bars = speed["figures"](panel)
        runs = json.loads((RESULTS / f"{panel.name}.json").read_text())["runs"]
        (run,) = (run for run in runs if panel.model in [model["name"] for model in run["models"]])
        cpu = run["machine"]["cpu"].partition(" Processor")[0].replace("(R)", "")
        assert (run["gpu"]["devices"][0]["name"] if panel.on_gpu else cpu) in device
        assert f">{device}<" in chart and f">{panel.title}<" in chart
        for label, ratio in bars:
            assert ratio > 1 and f">{label}<" in chart and f">{ratio:,.0f}<" in chart
        assert f">1 ({speed['_time'](seconds)})<" in chart
    assert chart.count(">skshapgpu<") == len(speed["PANELS"])
    times = {panel.name: speed["figures"](panel)[1] for panel in speed["PANELS"]}
    (model,) = (
        model
        for run in json.loads((RESULTS / "values.json").read_text())["runs"]
        for model in run["models"]
        if model["name"] == "cal_housing-med"
    )
    assert times["values"] == 10_000 / model["systems"]["ours"]["rows_per_second"]["median"]


CHARTS = [ROOT / "docs/images/speed.svg", *sorted((ROOT / "docs/images/benchmarks").glob("*.svg"))]


@pytest.mark.parametrize("path", CHARTS, ids=lambda path: path.stem)
def test_charts_are_legible_on_a_telephone(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    svg = importlib.import_module("svg")
    chart = path.read_text()
    width, _ = map(float, re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', chart).groups())  # type: ignore[union-attr]
    pattern = (
        r'<text x="([\d.]+)" y="[\d.]+" text-anchor="(\w+)" font-size="(\d+)"[^>]* fill="([^"]+)">([^<]+)<'
    )
    texts = re.findall(pattern, chart)
    assert len(texts) == chart.count("<text ")
    for x, anchor, size, fill, content in texts:
        assert int(size) * 360 / width >= 9, "390 px are less the margins of the page"
        length = 0.62 * int(size) * len(content)  # 0.62: mean width of a letter of DejaVu Sans, a wide font
        left = float(x) - length * {"start": 0, "middle": 0.5, "end": 1}[anchor]
        assert left >= -8 and left + length <= width + 8, content
        assert f'[fill="{fill}"]{{fill:{svg.DARK[fill]}}}' in chart, "letters are light on dark pages"


def test_the_charts_of_the_pages_are_current_and_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    charts = runpy.run_path(str(ROOT / "docs/charts.py"))
    drawn = {f"{name}.svg": draw() for name, draw in charts["CHARTS"].items()}
    folder = ROOT / "docs/images/benchmarks"
    assert {path.name: path.read_text() for path in folder.iterdir()} == drawn, "run python docs/charts.py"
    shown = {name for page in PAGES for name in re.findall(r"images/benchmarks/([\w.]+)", page.read_text())}
    assert shown == set(drawn)


def test_the_charts_have_the_numbers_of_the_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    svg = importlib.import_module("svg")
    axis = svg.Axis("times", 1, 100, (1, 10, 100))
    chart = svg.dots("title", "note", axis, [("a < b", {"x": 1.0, "y": 10.0})], ["x", "y"])
    ticks = re.findall(r'<line x1="([\d.]+)" y1="74"', chart)
    drawn_at = re.findall(r'cx="([\d.]+)"|translate\(([\d.]+) ', chart)[2:]  # after those of the legend
    assert [first or second for first, second in drawn_at] == ticks[:2]
    assert "a &lt; b" in chart
    linear = svg.Axis("", 0, 4, (), logarithmic=False)
    assert [linear.part(number) for number in (0, 1, 4)] == [0, 0.25, 1]
    assert [axis.part(number) for number in (1, 10, 100)] == [0, 0.5, 1]


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


def test_ratios_of_progress_are_of_times_of_the_same_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    summary = importlib.import_module("progress").summarize(
        {
            "this in_call": [1.0, 2.0, 3.0],
            "this before": [0.5, 1.0, 2.0],
            "other in_call": [3.0, 6.0, 6.0],
            "other before": [2.0, 4.0, 8.0],
            "predict": [1.0, 1.0, 1.0],
            "xgboost": [100.0, 200.0, 300.0],
        }
    )
    medians = {
        name: {case: spread["median"] for case, spread in summary[name].items()}
        for name in ("speed_over_other", "explain_over_predict", "speed_over_xgboost")
    }
    assert medians == {
        "speed_over_other": {"in_call": 3.0, "before": 4.0},
        "explain_over_predict": {"in_call": 2.0, "before": 1.0},
        "speed_over_xgboost": {"in_call": 100.0, "before": 200.0},
    }
    assert summary["rows_per_second"]["this in_call"]["median"] == 0.5


def test_rows_of_progress_are_distinct(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    module = importlib.import_module("progress_models")
    X = np.random.default_rng(0).integers(3, size=(500, 4)).astype(np.float32)
    rows = X[module.distinct_rows(X)]
    assert len(np.unique(X, axis=0)) == 81
    assert len(np.unique(rows, axis=0)) == len(rows) == 81


def test_bits_are_those_of_the_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If another core is imported, a checkout may be compared with itself."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.setenv(name, "1")  # which the script sets, too
    compute = runpy.run_path(str(ROOT / "benchmarks/same_bits.py"))["compute"]
    with pytest.raises(SystemExit, match="has no compiled core"):
        compute(tmp_path, tmp_path / "models", tmp_path / "results", "cpu", "*")
