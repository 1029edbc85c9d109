"""What a bug report needs to say about the machine."""

from __future__ import annotations

import platform
import sys
from importlib.metadata import PackageNotFoundError, version

__version__ = "0.1.0"

_PACKAGES = (
    "skshapgpu",
    "numpy",
    "scipy",
    "scikit-learn",
    "xgboost",
    "lightgbm",
    "catboost",
    "treelite",
    "ngboost",
    "scikit-survival",
    "quantile-forest",
    "shap",
    "pandas",
    "polars",
    "pyarrow",
    "joblib",
)


def versions() -> dict[str, str]:
    """Versions of Python, skshapgpu and the libraries it works with, and the kernels in use, by name."""
    from . import _core

    facts = {"python": sys.version.split()[0], "platform": platform.platform()}
    for package in _PACKAGES:
        try:
            facts[package] = version(package)
        except PackageNotFoundError:
            facts[package] = "not installed"
    facts["instruction set"] = f"{_core.instruction_set()} of {', '.join(_core.instruction_sets())}"
    return facts


def show_versions() -> None:
    """Print the versions of Python, skshapgpu and the libraries it works with, and the kernels in use."""
    for name, value in versions().items():
        print(f"{name:>16}: {value}")
