"""Print passages of prose, drawn at random from docstrings, comments and pages, for an editor to read.

python tests/project/passages.py --count 10 --seed 0

With ``--functions``, print functions from the largest modules of the package instead, to judge their names.
"""

from __future__ import annotations

import argparse
import ast
import random
import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import prose

#: Shorter passages say too little to be judged.
LEAST_WORDS = 12

#: How many modules functions are drawn from, and how many statements they have at least.
LARGEST_MODULES, LEAST_STATEMENTS = 20, 4

Passage = tuple[str, int, str]


def passages(path: Path) -> Iterator[Passage]:
    """Yield the kind, the line and the text of each passage of a file."""
    text = path.read_text()
    if path.suffix in prose.CODE:
        yield from _comments(text, "//")
    elif path.suffix in (".py", ".pyi"):
        yield from _comments(text, "#")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                for part in re.split(r"\n\n", ast.get_docstring(node) or ""):
                    part = re.sub(r"^[A-Z][\w ]+\n-+\n", "", part)  # the heading of a section
                    if not part.startswith((">>>", "...")):
                        yield "docstring", node.body[0].lineno, part
    else:
        # Lines of code become empty, so that the other lines keep their numbers.
        text = re.sub(r"^```.*?^```$", lambda code: "\n" * code[0].count("\n"), text, flags=re.M | re.S)
        line = 1
        for part in text.split("\n\n"):
            if not part.lstrip("\n").startswith(("#", "|", "<", "..")):
                yield "page", line + len(part) - len(part.lstrip("\n")), part.strip("\n")
            line += part.count("\n") + 2


def _comments(text: str, mark: str) -> Iterator[Passage]:
    """Yield each block of comments that have lines of their own."""
    lines = enumerate(text.splitlines(), 1)
    for is_comment, block in groupby(lines, key=lambda line: line[1].lstrip().startswith(mark)):
        if is_comment:
            numbered = list(block)
            yield (
                "comment",
                numbered[0][0],
                "\n".join(line.strip().lstrip(f"{mark}: ") for _, line in numbered),
            )


def functions() -> list[str]:
    """Return the source of each function of several statements in the largest modules of the package."""
    modules = sorted((prose.ROOT / "skshapgpu").rglob("*.py"), key=lambda path: -path.stat().st_size)
    sources = []
    for path in modules[:LARGEST_MODULES]:
        text = path.read_text()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef) and len(node.body) >= LEAST_STATEMENTS:
                source = ast.get_source_segment(text, node)
                sources.append(f"--- {path.relative_to(prose.ROOT)}:{node.lineno}\n{source}\n")
    return sources


def main() -> None:
    """Print the passages."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--functions", action="store_true", help="print functions instead")
    arguments = parser.parse_args()
    if arguments.functions:
        print("\n".join(random.Random(arguments.seed).sample(functions(), arguments.count)))
        return
    drawable = [
        (path.relative_to(prose.ROOT), *passage)
        for path in prose.files()
        for passage in passages(path)
        if len(passage[2].split()) >= LEAST_WORDS
    ]
    for path, kind, line, text in random.Random(arguments.seed).sample(drawable, arguments.count):
        print(f"--- {path}:{line} ({kind})\n{text}\n")


if __name__ == "__main__":
    main()
