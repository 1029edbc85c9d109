"""Write the table of the oldest supported versions into policies.md: ``python docs/spec0.py``.

The versions are the lower bounds of pyproject.toml. SPEC 0 asks for a version of Python for three years after
its release, and for a minor version of a core project for two.
"""

import re
import tomllib
from datetime import date
from pathlib import Path

DOCS = Path(__file__).parent
PAGE = DOCS / "policies.md"
START, END = "<!-- python docs/spec0.py writes this table -->\n\n", "\n<!-- end of the table -->"

#: Days on which versions were released, and years for which SPEC 0 asks for them. Add a version that becomes
#: a lower bound of pyproject.toml.
RELEASED = {
    "Python": ({"3.11": date(2022, 10, 24), "3.12": date(2023, 10, 2), "3.13": date(2024, 10, 7)}, 3),
    "NumPy": ({"1.26": date(2023, 9, 16), "2.0": date(2024, 6, 16)}, 2),
    "SciPy": ({"1.11": date(2023, 6, 25), "1.12": date(2024, 1, 20)}, 2),
    "scikit-learn": ({"1.6": date(2024, 12, 9), "1.7": date(2025, 6, 5)}, 2),
}


def lower_bounds(project):
    """Return the oldest minor version of each project of `RELEASED` that the table ``project`` allows."""
    requirements = [f"Python{project['requires-python']}", *project["dependencies"]]
    bounds = dict(
        re.fullmatch(r"([\w-]+)>=(\d+\.\d+)(?:\.\d+)?", requirement).groups() for requirement in requirements
    )
    return {name: bounds[name if name == "Python" else name.lower()] for name in RELEASED}


def later(day, years):
    """Return the same day some years later; the 28th of February if that year has no 29th."""
    try:
        return day.replace(year=day.year + years)
    except ValueError:
        return day.replace(year=day.year + years, day=28)


def table(project):
    """Return the lines of the table."""
    lines = ["| | oldest supported | released | SPEC 0 asks for it until |", "| --- | --- | --- | --- |"]
    for name, version in lower_bounds(project).items():
        released, years = RELEASED[name]
        if version not in released:
            raise KeyError(f"add the day on which {name} {version} was released to RELEASED of docs/spec0.py")
        day = released[version]
        lines.append(f"| {name} | {version} | {day} | {later(day, years)} |")
    return "\n".join(lines) + "\n"


def page(text, project):
    """Return the text of the page with the table."""
    before, start, rest = text.partition(START)
    _, end, after = rest.partition(END)
    if not start or not end:
        raise ValueError(f"{PAGE.name} has no comments around the table")
    return before + start + table(project) + end + after


if __name__ == "__main__":
    metadata = tomllib.loads((DOCS.parent / "pyproject.toml").read_text())["project"]
    PAGE.write_text(page(PAGE.read_text(), metadata))
