"""The rules of prose: the problems that they find, and correct text."""

from __future__ import annotations

from pathlib import Path

import pytest
from project import prose

PYTHON = '''"""What this module is for."""

#: Of numbers only.
LIMIT = 3


class Reader:
    """Reads a file."""

    @property
    def size(self):
        """Number of bytes."""

    def __len__(self):
        """Number of rows."""

    def rows(self):
        """The rows of the file."""

    def columns(self):
        """Columns of the file."""

    def sorted(self):
        """Sorted names."""

    def part(self):
        """Name of a part."""


def find():
    """Find a lookup table.

    The text goes on: what comes behind the first line is free. A look-up takes a while.
    """


def name():
    """Name the parts."""


def check():
    """Cross-validate, or process, a model."""


def test_reader():
    """The reader reads."""


class Writer:
    """Trees that are written."""
'''

CPP = """// The same for rows.
int f(int x);

// Whether it is that which was asked for.
bool g(const Plan& plan, int x);

// Whether rows come first.
bool rows_first = true;

// Adds the values of a tile, of
// What follows is not an opening.
void h() {
  // Of course, this is no riddle.
}
"""


def test_problems_of_python(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(PYTHON)
    problems = prose.problems(path)
    lines = PYTHON.splitlines()
    assert [lines[line - 1].strip() for line, _ in problems] == [
        '"""What this module is for."""',
        "#: Of numbers only.",
        '"""Reads a file."""',
        '"""The rows of the file."""',
        '"""Columns of the file."""',
        '"""Sorted names."""',
        '"""Name of a part."""',
        "The text goes on: what comes behind the first line is free. A look-up takes a while.",
    ]
    assert [problem.split(":")[0] for _, problem in problems] == [
        "a docstring opens with a riddle",
        "a comment opens with a riddle",
        "the docstring of a class opens with a verb",
        *["the docstring of a function opens with no verb in the imperative"] * 4,
        "'look-up'",
    ]


def test_problems_of_cpp(tmp_path: Path) -> None:
    path = tmp_path / "rows.cuh"
    path.write_text(CPP)
    assert [line for line, _ in prose.problems(path)] == [1, 4]


def test_problems_are_printed_with_their_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "csrc" / "cpu"
    folder.mkdir(parents=True)
    (folder / "rows.cpp").write_text(CPP)
    monkeypatch.setattr(prose, "ROOT", tmp_path)
    assert prose.main() == 1
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 and lines[0].startswith("csrc/cpu/rows.cpp:1: a comment opens with a riddle")
    (folder / "rows.cpp").write_text("int x;\n")
    assert prose.main() == 0


def test_the_lists_do_not_contradict_each_other() -> None:
    assert not prose.NO_VERBS & prose.VERBS
    assert not prose.NO_VERBS & prose.VERBS_ALL_THE_SAME
