"""The rows of ``./dev test --matrix``: their tests exist, and one row has all lower bounds of the project."""

from __future__ import annotations

import re
import subprocess
import sys
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


@pytest.mark.skipif(sys.platform != "linux", reason="./dev runs on Linux")
def test_the_oldest_versions_are_the_lower_bounds() -> None:
    tables = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project, extras = tables["project"], tables["project"]["optional-dependencies"]
    covered = [
        *tables["build-system"]["requires"],
        *project["dependencies"],
        *tables["dependency-groups"]["test"],
    ]
    covered += [line for name, extra in extras.items() if name not in {"all", "gpu"} for line in extra]
    assert len(covered) > 20 and all(requirement.count(">=") == 1 for requirement in covered)
    cmake = f"cmake{tables['tool']['scikit-build']['cmake']['version']}"
    expected = {requirement.replace(">=", "==") for requirement in [*covered, cmake]}
    script = "source ./dev help >&2; build_requirements oldest; lower_bounds"
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"  # the functions call the first Python
    command = ["/bin/bash", "-c", script, "./dev"]
    output = subprocess.run(
        command, cwd=ROOT, env={"PATH": path}, check=True, stdout=subprocess.PIPE, text=True
    )
    assert set(output.stdout.splitlines()) == expected
