"""Version information for bug reports."""

from __future__ import annotations

import platform
import sys
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from importlib.util import find_spec

__version__ = "0.1.0"

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
    """Return the versions of Python, skshapgpu and the libraries it works with, and the kernels in use."""
    from . import _core
    from .adapters import FAMILIES

    families = {package: family.distribution for package, family in FAMILIES.items()}
    facts = {"python": sys.version.split()[0], "platform": platform.platform(), "skshapgpu": __version__}
    for module, distribution in (_PACKAGES | families).items():
        facts[distribution] = version_of(module, distribution) or "not installed"
    facts["instruction set"] = f"{_core.instruction_set()} of {', '.join(_core.instruction_sets())}"
    return facts


def version_of(module: str, distribution: str) -> str | None:
    """Return the version of a module's distribution, with its name unless it is the usual distribution.

    A module may come from other distributions, such as ``xgboost-cpu`` or ``cupy-cuda12x``. The module is not
    imported; return None if it is not installed.
    """
    spec = find_spec(module)
    if spec is None or spec.origin is None:  # a mere folder of this name is not a module
        return None
    try:
        return version(distribution)
    except PackageNotFoundError:
        others = packages_distributions().get(module)
    return f"{version(others[0])} ({others[0]})" if others else "of unknown version"


def show_versions() -> None:
    """Print the versions of Python, skshapgpu and the libraries it works with, and the kernels in use."""
    for name, value in versions().items():
        print(f"{name:>16}: {value}")
