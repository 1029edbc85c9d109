"""What a bug report needs to say about the machine."""

from __future__ import annotations

import platform
import sys
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from importlib.util import find_spec

__version__ = "0.1.0"

#: Modules that are imported, and the distributions that usually bring them.
_PACKAGES = {
    "numpy": "numpy",
    "scipy": "scipy",
    "sklearn": "scikit-learn",
    "xgboost": "xgboost",
    "lightgbm": "lightgbm",
    "catboost": "catboost",
    "treelite": "treelite",
    "ngboost": "ngboost",
    "sksurv": "scikit-survival",
    "quantile_forest": "quantile-forest",
    "shap": "shap",
    "pandas": "pandas",
    "polars": "polars",
    "pyarrow": "pyarrow",
    "cupy": "cupy",
    "torch": "torch",
    "joblib": "joblib",
}


def versions() -> dict[str, str]:
    """Versions of Python, skshapgpu and the libraries it works with, and the kernels in use, by name."""
    from . import _core

    facts = {"python": sys.version.split()[0], "platform": platform.platform(), "skshapgpu": __version__}
    for module, distribution in _PACKAGES.items():
        facts[distribution] = version_of(module, distribution) or "not installed"
    facts["instruction set"] = f"{_core.instruction_set()} of {', '.join(_core.instruction_sets())}"
    return facts


def version_of(module: str, distribution: str) -> str | None:
    """Return the version of what brings a module, with its name unless it is the usual distribution.

    Several distributions may bring a module, as ``xgboost-cpu`` and ``cupy-cuda12x`` do. None: there is no
    such module. It is not imported.
    """
    spec = find_spec(module)
    if spec is None or spec.origin is None:  # a folder of this name is no module
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
