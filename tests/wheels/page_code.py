"""Run the code of a page as a reader would paste it, and compare what it shows with the page.

A Python block of a page may be followed by a block ```` ```text ````: what a reader sees after it, which is
what the block prints and the value of its last line. Only the standard library is imported, so that the
pages can be tried in an environment that has nothing but the package.
"""

from __future__ import annotations

import ast
import contextlib
import io
import re
from typing import Any

#: A Python block, and the output that is shown directly below it, if any.
BLOCK = re.compile(r"^```python\n(.*?)^```$(?:\n+```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)

#: Code in a comment at the top of a page, which runs before its blocks.
SETUP = re.compile(r"\A<!-- setup:\n(.*?)^-->$", re.MULTILINE | re.DOTALL)

#: Parts of an output that differ between machines and runs: the device with its seconds, and rounding.
VARYING = re.compile(r"\bon [^\n]*? in \S+ s|(?<=at most )\S+")


def blocks(page: str) -> list[tuple[str, str | None]]:
    """Return the code of each Python block of a page, and the output that the page shows for it."""
    return [(match[1], match[2]) for match in BLOCK.finditer(page)]


def output(code: str, namespace: dict[str, Any]) -> str:
    """Run a block, and return what it prints, and the value of its last line as an interpreter shows it."""
    tree = ast.parse(code)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, code, "exec"), namespace)
        value = None if last is None else eval(compile(ast.Expression(last.value), code, "eval"), namespace)
        if value is not None:
            print(repr(value))
    return printed.getvalue()


def comparable(text: str) -> str:
    """Return an output without what differs between runs, and without spaces at the ends of lines."""
    return "\n".join(line.rstrip() for line in VARYING.sub("...", text).strip().splitlines())


def run(page: str, namespace: dict[str, Any]) -> int:
    """Run the setup and the blocks of a page in order; return how many outputs were compared.

    Raise ``AssertionError`` if a block shows something else than the page says.
    """
    compared = 0
    if setup := SETUP.search(page):
        exec(compile(setup[1], "setup", "exec"), namespace)
    for code, shown in blocks(page):
        result = output(code, namespace)
        if shown is not None:
            message = f"{code}\nshows\n{result}\nand not\n{shown}"
            assert comparable(result) == comparable(shown), message
            compared += 1
    return compared
