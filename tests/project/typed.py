"""Check that mypy reports each mistake in ``tests/typed/mistakes.py``, and nothing else there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "tests" / "typed" / "mistakes.py"


def marked() -> set[int]:
    """Return the numbers of the lines that say that they have a mistake."""
    lines = SCRIPT.read_text(encoding="utf-8").splitlines()
    return {number for number, line in enumerate(lines, 1) if "# mistake" in line}


def reported() -> dict[int, str]:
    """Return what mypy reports, by the number of the line."""
    command = [sys.executable, "-m", "mypy", "--no-error-summary", str(SCRIPT)]
    output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout
    errors = re.findall(rf"^{re.escape(str(SCRIPT.relative_to(ROOT)))}:(\d+): error: (.*)$", output, re.M)
    return {int(number): message for number, message in errors}


def main() -> None:
    expected, errors = marked(), reported()
    for number in sorted(expected - errors.keys()):
        print(f"{SCRIPT.name}:{number}: mypy does not report this mistake")
    for number in sorted(errors.keys() - expected):
        print(f"{SCRIPT.name}:{number}: {errors[number]}")
    if expected != errors.keys() or not expected:
        sys.exit(1)
    print(f"mypy reports all {len(expected)} mistakes of {SCRIPT.name}")


if __name__ == "__main__":
    main()
