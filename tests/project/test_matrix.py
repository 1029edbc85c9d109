"""The rows of ``./dev test --matrix``: their tests exist, and one row has the oldest versions."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
pytestmark = pytest.mark.skipif(not (ROOT / "pyproject.toml").exists(), reason="not a checkout")


def rows() -> list[list[str]]:
    """Return the fields of each row, and of each line that names tests."""
    lines = (TESTS / "matrix.txt").read_text().splitlines()
    return [
        [field.strip() for field in line.split("|")] for line in lines if line and not line.startswith("#")
    ]


def test_the_named_tests_exist() -> None:
    named = {name for first, *rest in rows() if first == "tests" for name in rest[0].split()}
    assert len(named) > 20
    files = {path.stem.removeprefix("test_") for path in TESTS.rglob("test_*.py")}
    assert named - {"all"} <= files


def test_each_supported_python_has_a_row() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pythons = set(re.findall(r"Python :: (3\.\d+)", " ".join(project["classifiers"])))
    assert pythons == {python for first, python, *_ in rows() if first != "tests"}


def test_the_oldest_versions() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (row,) = (row for row in rows() if row[0] == "oldest")
    assert row == ["oldest", project["requires-python"].removeprefix(">="), "lower bounds"]
