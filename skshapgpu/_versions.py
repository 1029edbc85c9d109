"""Version information for bug reports."""

from __future__ import annotations

import platform
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from importlib.util import find_spec
from pathlib import Path


def _own_version() -> str:
    """Return the version in the ``pyproject.toml`` of a checkout, or else of the installed package.

    In a checkout, another version, or an older state of the checkout, may be installed.
    """
    project = Path(__file__).parents[1] / "pyproject.toml"
    if project.is_file():
        content = tomllib.loads(project.read_text(encoding="utf-8")).get("project", {})
        if content.get("name") == "skshapgpu":
            return str(content["version"])
    try:
        return version("skshapgpu")
    except PackageNotFoundError:  # a copy of the folder
        return "unknown"


__version__ = _own_version()

#: Import names of packages, besides the model libraries, and the distributions that usually provide them.
_PACKAGES = {
    "numpy": "numpy",
    "scipy": "scipy",
    "joblib": "joblib",
    "shap": "shap",
    "pandas": "pandas",
    "polars": "polars",
    "pyarrow": "pyarrow",
    "cupy": "cupy",
    "torch": "torch",
}


def versions() -> dict[str, str]:
    """Return the versions of Python, skshapgpu and the libraries it works with, and the instruction set."""
    from . import _core
    from .adapters import FAMILIES

    families = {package: family.distribution for package, family in FAMILIES.items()}
    facts = {"python": sys.version.split()[0], "platform": platform.platform(), "skshapgpu": __version__}
    for module, distribution in (_PACKAGES | families).items():
        facts[distribution] = version_of(module, distribution) or "not installed"
    facts["instruction set"] = f"{_core.instruction_set()} of {', '.join(_core.instruction_sets())}"
    return facts


def version_of(module: str, distribution: str) -> str | None:
    """Return the version of a module's distribution, or None if the module is not installed.

    A module may come from another distribution than usual, such as ``xgboost-cpu`` or ``cupy-cuda12x``. Then
    the result includes the name of the distribution. The module is not imported.
    """
    spec = find_spec(module)
    if spec is None or spec.origin is None:  # a folder of this name, without code, is not a module
        return None
    try:
        return version(distribution)
    except PackageNotFoundError:
        others = packages_distributions().get(module)
    return f"{version(others[0])} ({others[0]})" if others else "of unknown version"


def show_versions() -> None:
    """Print the versions of Python, skshapgpu and the libraries it works with, and the instruction set."""
    for name, value in versions().items():
        print(f"{name:>16}: {value}")
