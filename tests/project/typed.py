"""Check that mypy reports each mistake in ``tests/typed/mistakes.py``, and nothing in the examples."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "tests" / "typed" / "mistakes.py"
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def marked_lines() -> set[int]:
    """Return the numbers of the lines of the script that say that they have a mistake."""
    lines = SCRIPT.read_text(encoding="utf-8").splitlines()
    return {number for number, line in enumerate(lines, 1) if "# mistake" in line}


def errors_of_mypy() -> list[tuple[str, int, str]]:
    """Return the file, line and message of each error that mypy reports in the script and in the examples."""
    command = [sys.executable, "-m", "mypy", "--no-error-summary", str(SCRIPT), *map(str, EXAMPLES)]
    output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout
    errors = re.findall(r"^([^:\n]+):(\d+): error: (.*)$", output, re.MULTILINE)
    return [(file, int(number), message) for file, number, message in errors]


def main() -> None:
    script = str(SCRIPT.relative_to(ROOT))
    expected, errors = marked_lines(), errors_of_mypy()
    reported = {number for file, number, _ in errors if file == script}
    for number in sorted(expected - reported):
        print(f"{script}:{number}: mypy does not report this mistake")
    unexpected = [error for error in errors if error[0] != script or error[1] not in expected]
    for file, number, message in unexpected:
        print(f"{file}:{number}: {message}")
    if unexpected or expected != reported or not expected:
        sys.exit(1)
    print(f"mypy reports all {len(expected)} mistakes of {SCRIPT.name}, and none in {len(EXAMPLES)} examples")


if __name__ == "__main__":
    main()
