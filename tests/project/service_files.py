"""Check the files that services read: workflows, issue forms, the site's settings, citation, metadata.

``python tests/project/service_files.py`` prints the findings of each tool, and ``./dev check`` runs it. No
tool uses a network: the schemas are part of ``check-jsonschema``.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

#: Schemas of ``check-jsonschema``, and the files that must match them.
SCHEMAS = {
    "vendor.github-workflows": ".github/workflows/*.yml",
    "custom.github-workflows-require-timeout": ".github/workflows/*.yml",
    "vendor.dependabot": ".github/dependabot.yml",
    "vendor.github-issue-forms": ".github/ISSUE_TEMPLATE/[!c]*.yml",
    "vendor.github-issue-config": ".github/ISSUE_TEMPLATE/config.yml",
    "vendor.readthedocs": ".readthedocs.yaml",
    "vendor.citation-file-format": "CITATION.cff",
}

#: Tools that know more than a schema says, with their arguments.
TOOLS = (
    ("zizmor", "--offline", "--no-progress", "--quiet", "--persona=pedantic", ".github"),
    ("jactionlint", "--shellcheck=", "--pyflakes="),  # the same findings, whatever else is installed
    ("validate-pyproject", "pyproject.toml"),
)


def commands() -> list[tuple[str, ...]]:
    """Return the command of each check."""
    schemas = [
        ("check-jsonschema", "--builtin-schema", schema, *files(pattern))
        for schema, pattern in SCHEMAS.items()
    ]
    return [*schemas, *TOOLS]


def files(pattern: str) -> list[str]:
    """Return the files, relative to the root, that a pattern selects; at least one."""
    paths = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob(pattern))
    if not paths:
        raise FileNotFoundError(f"there is no {pattern}")
    return paths


def findings() -> list[str]:
    """Return the output of each check that fails, behind its command."""
    lines = []
    for command in commands():
        run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if run.returncode != 0:
            lines.append(f"{' '.join(command)}\n{run.stdout}{run.stderr}")
    return lines


def main() -> int:
    """Print all findings; return the exit status of the program."""
    lines = findings()
    print(*lines, sep="\n", end="")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
