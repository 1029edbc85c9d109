"""Check that type checkers report each mistake in ``tests/typed/mistakes.py``, and none in correct scripts.

The correct scripts are ``tests/typed/correct.py`` and the examples. The checkers are mypy, with all its
checks, and pyright, as basedpyright, whose package has the program inside. Pyright runs twice. By default,
it guesses types from the code of libraries that declare none, such as scikit-learn. It then reports correct
calls of these libraries in the examples, so it checks the examples without guesses.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tests" / "typed"
SCRIPT, CORRECT = FOLDER / "mistakes.py", FOLDER / "correct.py"
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))

#: File, line and message of an error.
Error = tuple[str, int, str]


def marked_lines() -> set[int]:
    """Return the numbers of the lines of the script that say that they have a mistake."""
    lines = SCRIPT.read_text(encoding="utf-8").splitlines()
    return {number for number, line in enumerate(lines, 1) if "# mistake" in line}


def output_of(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout


def errors_of_mypy() -> list[Error]:
    """Return the errors that mypy reports in the scripts and in the examples."""
    scripts = map(str, (SCRIPT, CORRECT, *EXAMPLES))
    command = (sys.executable, "-m", "mypy", "--no-error-summary", "--config-file", str(FOLDER / "mypy.ini"))
    output = output_of(*command, *scripts)
    errors = re.findall(r"^([^:\n]+):(\d+): error: (.*)$", output, re.MULTILINE)
    return [(file, int(number), message) for file, number, message in errors]


def errors_of_pyright(project: str) -> list[Error]:
    """Return the errors that pyright reports in the files of a project, a JSON file in ``tests/typed``."""
    program = Path(sys.executable).with_name("basedpyright")
    output = output_of(
        str(program), "--outputjson", "--pythonpath", sys.executable, "--project", str(FOLDER / project)
    )
    return [
        (
            str(Path(error["file"]).relative_to(ROOT)),
            error["range"]["start"]["line"] + 1,
            error["message"].partition("\n")[0],
        )
        for error in json.loads(output)["generalDiagnostics"]
    ]


def agrees(checker: str, errors: list[Error]) -> bool:
    """Return whether a checker reports the mistakes and nothing else; print any difference."""
    script, expected = str(SCRIPT.relative_to(ROOT)), marked_lines()
    reported = {number for file, number, _ in errors if file == script}
    for number in sorted(expected - reported):
        print(f"{script}:{number}: {checker} does not report this mistake")
    unexpected = [error for error in errors if error[0] != script or error[1] not in expected]
    for file, number, message in unexpected:
        print(f"{file}:{number}: {checker}: {message}")
    if unexpected or expected != reported or not expected:
        return False
    print(f"{checker} reports all {len(expected)} mistakes of {script}, and none in correct scripts")
    return True


def main() -> None:
    """Run all checkers."""
    results = [
        agrees("mypy", errors_of_mypy()),
        agrees("pyright", errors_of_pyright("pyrightconfig.json")),
        agrees("pyright without guesses", errors_of_pyright("no_guesses.json")),
    ]
    if not all(results):
        sys.exit(1)


if __name__ == "__main__":
    main()
