"""Check what a release needs (docs/releasing.md), without changing anything.

``./dev release --dry-run`` prints a line for each item and exits with 1 if one failed. ``--full`` also runs
the steps that take minutes or hours. The release workflow passes ``--tag``: the tag must then belong to the
version, and the changelog must have a date. ``./dev release --rehearse`` is rehearsal.py.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import service_files

ROOT = Path(__file__).parents[2]

#: Commands that the dry run only names, unless ``--full`` is given.
LONG_STEPS = (("check",), ("test", "-n", "2"), ("docs",), ("wheel",))

#: Host names of package and image indexes. Only the settings of the repository have their addresses, so the
#: pattern itself contains none of the names.
REGISTRY = re.compile(
    r"\b(?:[\w-]+\.)*(?:pypi|pythonhosted|anaconda|prefix|ghcr|quay|docker|npmjs|crates|download\.nvidia)"
    r"\.(?:org|com|dev|io)\b"
)

#: Version numbers in these files are records, or are invented for a test.
RECORDS = ("CHANGELOG.md", "benchmarks/results/", "tests/")


class Failure(Exception):
    """An item that is not in order."""


class Note(Exception):
    """An item that is acceptable in a dry run, but not in a release."""


def version_of_project() -> str:
    """Return the version in ``pyproject.toml``."""
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])


def tree(tag: str | None) -> str:
    """Compare the working tree with the last commit."""
    changed = len(_git("status", "--porcelain").splitlines())
    if changed:
        raise Note(f"not clean: {changed} files or folders differ from the last commit")
    return "clean"


def version(tag: str | None) -> str:
    """Check that the version can be released, and that it has no tag, or the tag that was passed."""
    version_found = version_of_project()
    if not re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", version_found):
        raise Failure(f"{version_found} is not a version that can be released")
    if tag is not None and tag != f"v{version_found}":
        raise Failure(f"the tag is {tag}, and the version {version_found}")
    if tag is None and _git("tag", "--list", f"v{version_found}"):
        raise Failure(f"{version_found} has a tag already: raise the version in pyproject.toml")
    return f"{version_found}, {'as the tag says' if tag else 'which has no tag yet'}"


def one_place(tag: str | None) -> str:
    """Check that only ``pyproject.toml`` has the version."""
    places = list(_places_of_version(version_of_project()))
    if len(places) != 1 or not places[0].startswith("pyproject.toml:"):
        raise Failure(f"the version stands in {', '.join(places)}; only pyproject.toml should have it")
    return places[0]


def _places_of_version(version: str) -> Iterator[str]:
    pattern = re.compile(rf"(?<![\w.]){re.escape(version)}(?!\w|\.\d)")
    for name, text in _texts():
        if not name.startswith(RECORDS):
            for number, line in enumerate(text.splitlines(), 1):
                if pattern.search(line):
                    yield f"{name}:{number}"


def changelog(tag: str | None) -> str:
    """Check the first section of the changelog."""
    result = version_of_project()
    sections = re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)[1:]
    heading, _, content = sections[0].partition("\n") if sections else ("", "", "")
    match = re.fullmatch(rf"\[{re.escape(result)}\] - (\d{{4}}-\d\d-\d\d|unreleased)", heading)
    if match is None:
        raise Failure(f"the first section is {heading!r}; it should be '[{result}] - ' and a date")
    if not re.search(r"^- ", content, re.MULTILINE):
        raise Failure(f"the section of {result} is empty")
    if match[1] == "unreleased":
        raise (Note if tag is None else Failure)(f"the section of {result} has no date yet")
    return f"section {heading!r}"


def files(tag: str | None) -> str:
    """Run the checks of ``service_files.py``."""
    findings = service_files.findings()
    if findings:
        raise Failure("\n".join(findings))
    return f"{len(service_files.commands())} checks of workflows, forms, citation and metadata pass"


def registries(tag: str | None) -> str:
    """Check that no file names the host of an index."""
    results = [
        f"{name}:{number}: {match[0]}"
        for name, text in _texts()
        for number, line in enumerate(text.splitlines(), 1)
        if (match := REGISTRY.search(line))
    ]
    if results:
        raise Failure(f"addresses of indexes belong into variables of the repository: {', '.join(results)}")
    return "no file names the host of one"


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


def _texts() -> Iterator[tuple[str, str]]:
    """Yield the names and contents of all text files of the repository."""
    for name in _git("ls-files", "-z", "--cached", "--others", "--exclude-standard").strip("\0").split("\0"):
        if (ROOT / name).is_file():
            data = (ROOT / name).read_bytes()
            if b"\0" not in data:
                yield name, data.decode("utf-8", "replace")


ITEMS: dict[str, Callable[[str | None], str]] = {
    "working tree": tree,
    "version": version,
    "place of the version": one_place,
    "changelog": changelog,
    "files of services": files,
    "package indexes": registries,
}


def main() -> int:
    """Print a line for each item; return the exit status of the program."""
    parser = argparse.ArgumentParser(prog="./dev release", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--dry-run",
        action="store_true",
        required=True,
        help="required: a release is made by publishing a tag, see docs/releasing.md",
    )
    parser.add_argument("--full", action="store_true", help="also run the long steps")
    parser.add_argument("--tag", help="the tag that is being released, such as v1.2.3")
    arguments = parser.parse_args()
    failed = False
    for name, item in ITEMS.items():
        try:
            print(f"ok      {name}: {item(arguments.tag)}", flush=True)
        except Note as note:
            print(f"note    {name}: {note}", flush=True)
        except Failure as failure:
            failed = True
            print(f"FAILED  {name}: {failure}", flush=True)
    for step in LONG_STEPS:
        command = f"./dev {' '.join(step)}"
        if not arguments.full:
            print(f"not run {command} (--full runs it)", flush=True)
        elif subprocess.run([ROOT / "dev", *step], cwd=ROOT).returncode == 0:
            print(f"ok      {command}", flush=True)
        else:
            failed = True
            print(f"FAILED  {command}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
