"""The promises of SECURITY.md: each has tests, which exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]

#: A test as SECURITY.md names it.
_TEST = re.compile(r"`([a-z_/]+/test_\w+\.py)::(test_\w+)`")


def test_each_promise_has_tests() -> None:
    rows = [line for line in (ROOT / "SECURITY.md").read_text().splitlines() if line.startswith("| **")]
    assert len(rows) >= 7
    for row in rows:
        promise, tests = row.strip("|").split("|")
        named = _TEST.findall(tests)
        assert named and _TEST.sub("", tests).strip(" ,") == "", promise
        for path, name in named:
            assert f"def {name}(" in (ROOT / "tests" / path).read_text(), f"{path} has no {name}"
