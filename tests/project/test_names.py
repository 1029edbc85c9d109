"""The rule of names: what it finds, and names that it accepts."""

from __future__ import annotations

from pathlib import Path

import pytest
from project import names

MODULE = '''
"""Module."""

def of_rows(given, *, whole=None):
    found, self.known = 1, 2
    for each in given:
        print([here for here in each])
    of_columns: int = 3

class Agreement:
    @classmethod
    def of(cls, held):
        return held
'''


def test_names_that_say_nothing_are_found() -> None:
    assert [(line, problem.partition(" ")[0]) for line, problem in names.problems(MODULE)] == [
        (4, "'given'"),
        (4, "'of_rows'"),
        (4, "'whole'"),
        (5, "'found'"),
        (5, "'known'"),
        (6, "'each'"),
        (7, "'here'"),
        (8, "'of_columns'"),
        (12, "'held'"),
    ]


@pytest.mark.parametrize("name", ["rows", "known_names", "foundation", "of", "n_given", "profile_of_rows"])
def test_other_names_are_accepted(name: str) -> None:
    assert names.problems(f"{name} = 1\n") == []


def test_the_program_prints_the_problems_of_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    package = tmp_path / "skshapgpu"
    package.mkdir()
    (package / "module.py").write_text("found = 1\n")
    monkeypatch.setattr(names, "ROOT", tmp_path)
    assert names.main() == 1
    assert capsys.readouterr().out.startswith("skshapgpu/module.py:1: 'found' does not say")
    (package / "module.py").write_text("count = 1\n")
    assert names.main() == 0
