"""Files of the repository from which pages of the site are made, for the links to edit them."""

import inspect
import pydoc
from pathlib import Path

import skshapgpu

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = Path(skshapgpu.__file__).parent

#: Pages that show files outside of docs.
SHOWN = {
    "auto_examples/index": "examples/README.rst",
    "benchmarking": "benchmarks/README.md",
    "changelog": "CHANGELOG.md",
    "contributing": "CONTRIBUTING.md",
}


def source_of(page: str) -> str | None:
    """Return the path of the file to edit for a page, relative to the root; None for the search."""
    if page in SHOWN:
        return SHOWN[page]
    folder, _, name = page.rpartition("/")
    if folder == "auto_examples":
        return f"examples/{name}.py"
    if folder == "generated":
        return _source_of_object(name)
    names = (f"docs/{page}{suffix}" for suffix in (".md", ".rst"))
    return next((name for name in names if (ROOT / name).exists()), None)


def _source_of_object(name: str) -> str | None:
    """Return the path of the file that defines a public class, function or module."""
    try:
        path = inspect.getsourcefile(inspect.unwrap(pydoc.locate(name)))
    except TypeError:  # a constant
        return None
    return f"skshapgpu/{Path(path).relative_to(PACKAGE).as_posix()}"
