"""The examples of the gallery, and the examples of installed cluster engines, run unchanged."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import ROOT

EXAMPLES = sorted(
    path for kind in ("plot", "distributed") for path in (ROOT / "examples").glob(f"{kind}_*.py")
)

#: Half a minute on an idle machine; tests share theirs.
SECONDS = 120


def imported(path: Path) -> set[str]:
    """Return the top-level packages that a file imports."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return {name.partition(".")[0] for name in names}


def test_stories_are_listed_in_their_order() -> None:
    listed, in_order = (
        re.findall(r"plot_\w+\.py", (ROOT / path).read_text())
        for path in ("examples/README.rst", "docs/stories.py")
    )
    assert listed == in_order
    assert len({path.name for path in EXAMPLES} & set(listed)) >= 8


def test_figures_have_a_layout() -> None:
    """Without a layout engine, labels of neighbouring axes share their room."""
    for path in sorted((ROOT / "examples").glob("*.py")):
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.Call) and ast.unparse(call.func) in ("plt.subplots", "plt.figure"):
                assert "layout='constrained'" in ast.unparse(call), f"{path.name}, line {call.lineno}"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(path: Path, tmp_path: Path) -> None:
    for name in sorted(imported(path)):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"needs {name}")
        if name == "pyspark" and not (shutil.which("java") or os.environ.get("JAVA_HOME")):
            pytest.skip("needs Java")
    environment = os.environ | {
        "MPLBACKEND": "Agg",
        "PYTHONPATH": os.pathsep.join(sys.path),
        "SKSHAPGPU_DEVICE": "cpu",  # some compute what GPUs do not
    }
    start = os.times()
    run = subprocess.run(
        [sys.executable, str(path)], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    end = os.times()  # of the processor, as the machine may do other things
    assert end.children_user + end.children_system - start.children_user - start.children_system < SECONDS


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_has_a_title_and_says_what_it_is(path: Path) -> None:
    title, line, *rest = (ast.get_docstring(ast.parse(path.read_text())) or "\n").split("\n")
    assert title
    assert line == "=" * len(title)
    assert "".join(rest).strip()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_has_a_picture(path: Path) -> None:
    text = path.read_text()
    n_pictures = text.count("plt.show()")
    number = re.search(r"^# sphinx_gallery_thumbnail_number = (\d+)$", text, re.MULTILINE)
    other = re.search(r"^# sphinx_gallery_thumbnail_path = '(.+)'$", text, re.MULTILINE)
    if other is None:
        assert 1 <= int(number[1] if number else 1) <= n_pictures
    else:  # the site does not run it
        assert (ROOT / "docs" / other[1]).is_file()
        assert f".. image:: /{other[1]}" in text
