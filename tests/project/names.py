"""Find names in the package that say how a thing came, not what it is.

``python tests/project/names.py`` prints ``file:line: problem`` for each, and ``./dev check`` runs it.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]

#: Names that fit anything, so that they say nothing.
EMPTY = frozenset("each found given held here known there whole".split())

#: Names that say only whose the thing is: "of_rows" may be labels, counts or positions.
WHOSE = re.compile(r"_?of_\w+")

Problem = tuple[int, str]


def names(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of each variable, parameter, attribute, function and class of a module."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.lineno, node.name


def problems(text: str) -> list[Problem]:
    """Return the line and the description of each problem of a module, in the order of the lines."""
    return sorted(
        (line, f"{name!r} does not say what it is: write a noun that does")
        for line, name in set(names(text))
        if name.strip("_") in EMPTY or WHOSE.fullmatch(name)
    )


def main() -> int:
    """Print all problems of the package; return the exit status of the program."""
    status = 0
    for path in sorted((ROOT / "skshapgpu").rglob("*.py")):
        for line, problem in problems(path.read_text()):
            print(f"{path.relative_to(ROOT)}:{line}: {problem}")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
