"""The table of the oldest supported versions, which docs/spec0.py writes."""

from __future__ import annotations

import sys
import tomllib
from datetime import date
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(not (ROOT / "docs" / "spec0.py").exists(), reason="not a checkout")


@pytest.fixture
def spec0(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module of the script."""
    monkeypatch.syspath_prepend(ROOT / "docs")
    import spec0

    yield spec0
    del sys.modules["spec0"]


def test_the_page_has_the_table_of_these_lower_bounds(spec0: Any) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    text = (ROOT / "docs" / "policies.md").read_text()
    assert spec0.page(text, project) == text
    assert text.count(spec0.table(project)) == 1


def test_dates(spec0: Any) -> None:
    project = {
        "requires-python": ">=3.12",
        "dependencies": ["numpy>=2.0", "scipy>=1.12.1", "scikit-learn>=1.7"],
    }
    rows = [line.strip("| ").split(" | ") for line in spec0.table(project).splitlines()[2:]]
    # Three years after the release of Python 3.12, two years after the first of the others' minor versions.
    assert rows == [
        ["Python", "3.12", "2023-10-02", "2026-10-02"],
        ["NumPy", "2.0", "2024-06-16", "2026-06-16"],
        ["SciPy", "1.12", "2024-01-20", "2026-01-20"],
        ["scikit-learn", "1.7", "2025-06-05", "2027-06-05"],
    ]
    assert spec0.later(date(2024, 2, 29), 2) == date(2026, 2, 28)


def test_a_bound_without_a_date(spec0: Any) -> None:
    project = {
        "requires-python": ">=3.99",
        "dependencies": ["numpy>=2.0", "scipy>=1.12", "scikit-learn>=1.7"],
    }
    with pytest.raises(KeyError, match=r"Python 3\.99 was released"):
        spec0.table(project)
    with pytest.raises(ValueError, match="no comments"):
        spec0.page("a page", project)
