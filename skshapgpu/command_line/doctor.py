"""``skshapgpu doctor``: report on the installation and whether it works."""

from __future__ import annotations

import argparse
import os
from importlib import import_module
from typing import Any

import numpy as np
from joblib import effective_n_jobs

from .. import reference
from .._common.devices import cuda_info
from .._common.digits import counted
from .._versions import version_of, versions
from ..adapters.ensemble import Ensemble, Tree
from ..adapters.schema import AdaptedModel, InputSchema
from ..explainer import TreeExplainer
from .answers import Answer, aligned, bytes_text

#: Extras of this package: the main module of each, its distribution, and its purpose.
EXTRAS = {
    "xgboost": ("xgboost", "xgboost", "to train models; its model files are read without it"),
    "lightgbm": ("lightgbm", "lightgbm", "to train models; its model files are read without it"),
    "catboost": ("catboost", "catboost", "to train models, and to read .cbm files"),
    "treelite": ("treelite", "treelite", "for treelite.Model objects"),
    "arrow": ("pyarrow", "pyarrow", "to read and write files of Parquet, Arrow and CSV"),
    "skops": ("skops", "skops", "to read pipelines that skops saved"),
    "gpu": ("cupy", "cupy-cuda13x", "for arrays that stay on a GPU; computing there does not need it"),
    "plot": ("matplotlib", "matplotlib", "for displays"),
    "progress": ("tqdm", "tqdm", "for progress bars"),
    "dask": ("dask", "dask", "for explain_dask"),
    "spark": ("pyspark", "pyspark", "for explain_spark"),
    "ray": ("ray", "ray", "for explain_ray"),
    "mlflow": ("mlflow", "mlflow", "to log, register and serve explainers with MLflow"),
}

#: Maximum error of a value, relative to the sum of the largest leaves, as in the additivity check.
_TOLERANCES = {"single": 2.0**-18, "double": 2.0**-40}


def run(args: argparse.Namespace) -> Answer:
    """Run all checks. The exit code is 1 if something does not work that should."""
    cuda = cuda_info()
    devices = ["cpu", *(f"cuda:{i}" for i in range(len(cuda["devices"])))]
    tests = [self_test(device) for device in devices]
    extras = [_extra(name) for name in EXTRAS]
    works = all(test["works"] for test in tests) and all(extra["works"] for extra in extras)
    facts = {
        "works": works,
        "versions": versions(),
        "processors": os.cpu_count(),
        "threads": effective_n_jobs(-1),
        "threads_in_python": effective_n_jobs(None),
        "cuda": cuda,
        "self_tests": tests,
        "extras": extras,
    }
    return Answer(facts, _text(facts), 0 if works else 1)


def self_test(device: str) -> dict[str, Any]:
    """Compare values and interactions of a small ensemble with their definition.

    Return a dict of ``device``, ``works`` and ``error``, which describes the failure or is None.
    """
    error = None
    try:
        _compare(device)
    except Exception as problem:  # whatever the error is, it is the result of the test
        error = f"{type(problem).__name__}: {problem}"
    return {"device": device, "works": error is None, "error": error}


def _compare(device: Any) -> None:
    ensemble = _ensemble()
    model: Any = AdaptedModel(ensemble, InputSchema(ensemble.n_features), "self-test")
    X = np.random.default_rng(0).normal(size=(200, ensemble.n_features))
    X[::7, 0] = np.nan
    expected, base_value, _ = reference.path_dependent(ensemble, X)
    pairs = reference.path_dependent(ensemble, X, index="SII").values
    largest = np.abs(ensemble.value).sum()
    precision: Any
    for precision, tolerance in _TOLERANCES.items():
        explainer = TreeExplainer(model, device=device, precision=precision)
        for quantity, computed, correct in (
            ("base value", explainer.expected_value, base_value[0]),
            ("SHAP values", explainer.shap_values(X), expected[:, 0]),
            ("interactions", explainer.shap_interaction_values(X), pairs[:, 0]),
        ):
            error = float(np.max(np.abs(computed - correct)))
            if not error <= tolerance * largest:
                raise RuntimeError(f"{quantity} in {precision} precision are wrong by {error:.3g}")


def _ensemble() -> Ensemble:
    """Return two trees of three features, one of which repeats on a path."""
    first = Tree(
        left=[1, 3, 5, -1, -1, -1, -1],
        right=[2, 4, 6, -1, -1, -1, -1],
        feature=[0, 1, 2, 0, 0, 0, 0],
        threshold=[0.25, -0.5, 0.75, 0, 0, 0, 0],
        missing_left=[True, False, True, False, False, False, False],
        cover=[100, 60, 40, 20, 40, 30, 10],
        value=[0, 0, 0, 1.5, -2.0, 0.25, 3.0],
    )
    second = Tree(
        left=[1, -1, 3, -1, -1],
        right=[2, -1, 4, -1, -1],
        feature=[1, 0, 1, 0, 0],
        threshold=[-1.0, 0, 0.5, 0, 0],
        missing_left=[False] * 5,
        cover=[100, 15, 85, 45, 40],
        value=[0, -1.0, 0, 0.5, 2.0],
    )
    return Ensemble.from_trees([first, second], n_features=3, intercept=0.5, x_dtype="float64")


def _extra(name: str) -> dict[str, Any]:
    """Return facts about an extra: whether it is installed and can be imported."""
    module, package, purpose = EXTRAS[name]
    facts: dict[str, Any] = {"extra": name, "package": package, "version": None, "works": True, "error": None}
    facts["purpose"] = purpose
    installed = version_of(module, package)
    if installed is None:
        return facts | {"install": f"pip install {package}"}
    try:
        imported = import_module(module)
    except Exception as error:  # importing may raise anything, for instance if a system library is missing
        return facts | {"works": False, "error": f"{type(error).__name__}: {error}"}
    facts["version"] = getattr(imported, "__version__", None) or installed
    return facts


def _text(facts: dict[str, Any]) -> str:
    cuda = facts["cuda"]
    installed = facts["versions"]
    lines = [(name, value) for name, value in installed.items() if value != "not installed"]
    threads = f"{facts['threads']} of {counted(facts['processors'], 'processor')} for commands and n_jobs=-1"
    lines.append(("threads", f"{threads}, {facts['threads_in_python']} for calls in Python without n_jobs"))
    for i, device in enumerate(cuda["devices"]):
        lines.append((f"cuda:{i}", f"{device['name']}, {bytes_text(device['memory'])}"))
    if not cuda["available"]:
        lines.append(("GPU", f"none: {cuda['reason']}"))
    lines.append(("", ""))
    for test in facts["self_tests"]:
        outcome = "values are right" if test["works"] else f"FAILED: {test['error']}"
        lines.append((f"test on {test['device']}", outcome))
    lines.append(("", ""))
    for extra in facts["extras"]:
        if not extra["works"]:
            outcome = f"FAILED: {extra['error']}"
        elif "install" in extra:
            outcome = f"missing, {extra['purpose']}: {extra['install']}"
        else:
            outcome = f"{extra['version']}, {extra['purpose']}"
        lines.append((extra["extra"], outcome))
    end = "everything works" if facts["works"] else "something does not work that should: see FAILED"
    return f"{aligned(lines)}\n\n{end}"
