"""The page that ``./dev demo`` writes: its table, pictures and code, and which files it may replace."""

from __future__ import annotations

import base64
import html
import importlib.util
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from helpers import ROOT
from helpers.displays import assert_readable

LIBRARIES = ("scikit-learn", "XGBoost", "LightGBM", "CatBoost")


@pytest.fixture
def demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    for name in ("matplotlib", "pandas", "xgboost", "lightgbm", "catboost"):
        pytest.importorskip(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SKSHAPGPU_DEVICE", "cpu")
    spec = importlib.util.spec_from_file_location("demo", ROOT / "examples/demo.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "demo", module)
    spec.loader.exec_module(module)
    return module


def test_the_page_holds_all_that_it_shows(
    demo: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    demo.main()
    assert str(tmp_path / "demo.html") in capsys.readouterr().out
    page = (tmp_path / "demo.html").read_text()

    assert not re.search(r"https?:|<script|<link|@import|url\(", page)
    sources = re.findall(r'src="([^"]*)"', page)
    assert len(sources) == 1 + len(LIBRARIES) + len(demo.MORE)
    for source in sources:
        kind, _, data = source.partition(",")
        assert kind == "data:image/png;base64"
        assert base64.b64decode(data, validate=True).startswith(b"\x89PNG")

    rows = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", page)]
    table = {row[0]: row for row in rows if row}
    assert tuple(table) == LIBRARIES
    commands, *codes = re.findall(r"<pre>(.*?)</pre>", page, re.DOTALL)
    assert commands == "./dev demo"
    for library, code in zip(LIBRARIES, codes, strict=True):
        namespace: dict[str, Any] = {}
        exec(html.unescape(code), namespace)  # as a reader would run it
        explanation = namespace["explanation"]
        _, _, n_rows, n_features, ours, theirs, times, error, top = table[library]
        assert float(ours) > 0
        if find_spec("shap") is None:
            assert theirs == times == ""
        else:  # the table rounds times to two and three digits, and the ratio to an integer
            expected = float(theirs.replace(",", "")) / float(ours)
            assert float(times.replace(",", "")) == pytest.approx(expected, rel=0.06, abs=1)
        assert explanation.values.shape[:2] == (int(n_rows), int(n_features))
        assert 0 < float(error) < 1e-5
        importance = explanation.importance().reshape(int(n_features), -1).sum(axis=1)
        names = [explanation.feature_names[i] for i in importance.argsort()[::-1][:3]]
        assert top == ", ".join(names)

    text = html.unescape(page)
    for name in ("ShapBeeswarmDisplay", "ShapWaterfallDisplay", "ShapInteractionDisplay"):
        assert f"{name}.from_" in text
    paths = re.findall(r"<code>(docs/\w+\.md|examples)</code>", page.partition("What to do next")[2])
    assert len(paths) == 4 and all((ROOT / path).exists() for path in paths)


def test_bars_are_those_of_the_displays(demo: ModuleType) -> None:
    results = [demo.explained(*case) for case in demo.CASES]
    figure = demo.overview(results)
    assert_readable(figure)
    for result, ax in zip(results, figure.axes, strict=True):
        assert [label.get_text() for label in ax.get_yticklabels()][:8] == result.strongest(8)[0]
        gap = ax.title.get_window_extent().y0 - ax.get_window_extent().y1
        assert gap > 0.5 * ax.title.get_fontsize(), "the title is not glued to the axes"


def test_a_file_that_is_not_a_page_of_the_demo_is_kept(
    demo: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "explained", lambda *case: pytest.fail("work was done before the check"))
    path = tmp_path / "demo.html"
    path.write_text("<h1>my own page</h1>")
    with pytest.raises(SystemExit, match="not a page of this demo"):
        demo.main()
    assert path.read_text() == "<h1>my own page</h1>"
    path.write_text(demo.page([], ""))
    demo.require_ours(path)
    path.unlink()
    demo.require_ours(path)
    path.mkdir()
    with pytest.raises(SystemExit, match="not a page of this demo"):
        demo.require_ours(path)


def test_git_ignores_what_the_demo_writes(demo: ModuleType) -> None:
    assert {demo.PAGE, demo.PICTURE} <= set((ROOT / ".gitignore").read_text().splitlines())
