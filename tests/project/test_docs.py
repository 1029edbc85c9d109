"""The code of docstrings, of the README and of the pages runs as it is written, and they name what there is.

A page may have a comment with code that runs before its own: ``<!-- setup: ... -->``. Blocks that begin with
```` ```python skip ```` show what depends on the reader's data, and are not run.
"""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]

SETUP = re.compile(r"\A<!-- setup:\n(.*?)^-->$", re.MULTILINE | re.DOTALL)
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def page_id(path: Path) -> str:
    return path.stem


@pytest.fixture
def somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A working directory of its own, figures that nobody sees, and a CPU, as some of the code needs one."""
    pytest.importorskip("pandas")
    pytest.importorskip("matplotlib").use("Agg")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SKSHAPGPU_DEVICE", "cpu")
    yield
    importlib.import_module("matplotlib.pyplot").close("all")


def with_examples() -> list[str]:
    files = sorted((ROOT / "skshapgpu").rglob("*.py"))
    return [".".join(p.relative_to(ROOT).with_suffix("").parts) for p in files if ">>> " in p.read_text()]


@pytest.mark.parametrize("name", with_examples())
def test_code_of_docstrings(name: str, somewhere: None) -> None:
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.origin is not None
    if ">>> import pyarrow" in Path(spec.origin).read_text():
        pytest.importorskip("pyarrow")
    options = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    result = doctest.testmod(importlib.import_module(name), optionflags=options)
    assert result.attempted
    assert not result.failed


@pytest.mark.parametrize("path", [path for path in PAGES if PYTHON.search(path.read_text())], ids=page_id)
def test_code_of_pages(path: Path, somewhere: None) -> None:
    text = path.read_text()
    setup = SETUP.search(text)
    blocks = [setup[1]] if setup else []
    blocks += PYTHON.findall(text)
    for library in ("xgboost", "lightgbm", "catboost", "shap", "pyarrow", "dask"):
        if re.search(rf"\b(from|import) {library}\b", "".join(blocks)):
            pytest.importorskip(library)
    namespace = {"__name__": "__main__"}
    for block in blocks:
        exec(compile(block, f"{path.name}:\n{block}", "exec"), namespace)


@pytest.mark.parametrize("path", PAGES, ids=page_id)
def test_links_of_pages(path: Path) -> None:
    for link in LINK.findall(CODE.sub("", path.read_text())):
        if not link.startswith(("http", "#")):
            assert (path.parent / link.partition("#")[0]).exists(), link


@pytest.mark.parametrize("path", PAGES, ids=page_id)
def test_commands_of_pages(path: Path) -> None:
    known = re.findall(r"^  (\w+)(?: \|.*)?\)$", (ROOT / "dev").read_text(), re.MULTILINE)
    assert "test" in known
    for command in re.findall(r"(?<!\w)\./dev (\w+)", path.read_text()):
        assert command in known
