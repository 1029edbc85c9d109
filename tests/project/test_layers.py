"""Permitted imports of each module, and the cost of importing the package."""

from __future__ import annotations

import ast
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import ROOT

import skshapgpu

PACKAGE = Path(skshapgpu.__file__).parent

#: A room is a folder or a module directly inside the package. For each room: the rooms from which it may
#: import, at the head of a module or inside a function.
MAY_IMPORT = {
    "__init__": {
        "_common",
        "_dependence",
        "_drift",
        "_engine",
        "_estimators",
        "_explanations",
        "_shap",
        "_versions",
        "adapters",
        "batches",
        "displays",
        "errors",
        "explainer",
    },
    "__main__": {"command_line"},
    "_common": {"_cuda"},
    "_dependence": {"_common", "_core", "_engine", "_rows", "adapters", "explainer"},
    "_drift": {"_common", "_explanations", "_files", "_rows", "batches"},
    "_engine": {"_common", "_core", "_rows", "adapters", "errors"},
    "_estimators": {
        "_common",
        "_engine",
        "_explanations",
        "_rows",
        "_versions",
        "adapters",
        "errors",
        "explainer",
    },
    "_explainer": {"_common", "_engine", "_explanations", "_files", "_rows", "adapters", "errors"},
    "_explanations": {"_common", "_rows"},
    "_files": {"_common", "_rows", "_versions", "adapters"},
    "_rows": {"_common", "_core", "adapters", "errors"},
    "_shap": {"adapters", "errors", "explainer"},
    "_versions": {"_core", "adapters"},
    "adapters": {"_common", "_core", "errors"},
    "batches": {
        "_common",
        "_core",
        "_engine",
        "_explanations",
        "_files",
        "_rows",
        "_versions",
        "explainer",
    },
    "command_line": {
        "_common",
        "_drift",
        "_engine",
        "_files",
        "_versions",
        "adapters",
        "batches",
        "errors",
        "explainer",
        "reference",
    },
    "displays": {"_common", "_drift", "_explanations", "_rows", "explainer"},
    "distributed": {"_common", "batches"},
    "errors": set(),
    "explainer": {"_common", "_engine", "_explainer", "_explanations", "_files", "_rows", "adapters"},
    "mlflow": {"_explanations", "_files", "_versions", "batches", "explainer"},
    "reference": {"_common", "adapters"},
    "shap_backend": {"_common", "_shap"},
}

#: The folders of the core that each folder may include from.
MAY_INCLUDE = {
    "base": set(),
    "plan": {"base"},
    "simd": {"base", "plan"},
    "rows": {"base", "plan", "simd"},
    "tables": {"base", "plan", "rows", "simd"},
    "background": {"base", "plan", "rows", "simd", "tables"},
    "dependence": {"base", "plan", "rows", "simd"},
    "intervals": {"base", "plan", "rows", "simd", "tables"},
    "lanes": {"base", "plan", "rows", "simd"},
    "cells": {"base", "plan", "rows", "simd"},
    "baselines": {"base", "cpu", "plan", "rows", "simd", "tables"},
    "cpu": {"base", "cells", "intervals", "lanes", "plan", "rows", "simd", "tables"},
    "cuda/program": {"base", "plan"},
    "cuda": {"background", "base", "cuda/program", "plan"},
    "cuda/baselines": {"cuda", "cuda/program", "plan"},
    "python": {
        "background",
        "base",
        "cells",
        "cpu",
        "cuda",
        "cuda/baselines",
        "cuda/program",
        "dependence",
        "intervals",
        "lanes",
        "plan",
        "rows",
        "simd",
        "tables",
    },
}

#: Libraries that a module may import at its head; all others wait for the object that needs them.
AT_THE_HEAD = {"numpy", "scipy", "sklearn", "joblib"}

#: Modules imported only for the library that they support.
FOR_A_LIBRARY = {"shap_backend": {"shap"}}

OPTIONAL = {
    "xgboost",
    "lightgbm",
    "catboost",
    "treelite",
    "ngboost",
    "sksurv",
    "quantile_forest",
    "pandas",
    "polars",
    "pyarrow",
    "fsspec",
    "cupy",
    "torch",
    "shap",
    "matplotlib",
    "tqdm",
    "dask",
    "pyspark",
    "ray",
    "mlflow",
    "skops",
    "skshapgpu._cuda",
}

MODULES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))


def layer(path: Path) -> str:
    return path.parts[0].removesuffix(".py")


def imports(path: Path) -> list[tuple[str, str, bool]]:
    """Return each import of a file: top-level name, name inside the package or "", whether at the head."""
    tree = ast.parse((PACKAGE / path).read_text())
    pairs = []
    for node in ast.walk(tree):
        at_head = node in tree.body
        if isinstance(node, ast.Import):
            pairs += [(alias.name.partition(".")[0], "", at_head) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            assert node.module is not None
            pairs.append((node.module.partition(".")[0], "", at_head))
        elif isinstance(node, ast.ImportFrom):
            folder = (PACKAGE / path).parents[node.level - 1].relative_to(PACKAGE)
            for alias in node.names:
                target = [*folder.parts, *(node.module or alias.name).split(".")]
                pairs.append(("skshapgpu", target[0], at_head))
    return pairs


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_module_imports_only_its_layers(path: Path) -> None:
    inside = {target for _, target, _ in imports(path) if target}
    assert inside - {layer(path)} <= MAY_IMPORT[layer(path)]


@pytest.mark.parametrize("allowed", [MAY_IMPORT, MAY_INCLUDE], ids=["package", "core"])
def test_no_room_uses_a_room_above_it(allowed: dict[str, set[str]]) -> None:
    below: set[str] = {"_core", "_cuda"}
    while rooms := {room for room, used in allowed.items() if room not in below and used <= below}:
        below |= rooms
    assert set(allowed) <= below, f"these use each other: {sorted(set(allowed) - below)}"


def test_the_core_includes_only_its_layers() -> None:
    csrc = ROOT / "csrc"
    if not csrc.exists():
        pytest.skip("not a checkout")
    files = [path for path in csrc.rglob("*") if path.suffix in {".h", ".cpp", ".cu", ".cuh"}]
    assert {path.parent.relative_to(csrc).as_posix() for path in files} == set(MAY_INCLUDE)
    for path in files:
        room = path.parent.relative_to(csrc).as_posix()
        for included in re.findall(r'^#include "(.+)"$', path.read_text(), re.MULTILINE):
            assert (csrc / included).is_file(), f"{path.relative_to(csrc)} includes {included}"
            target = included.rpartition("/")[0]
            assert target in {room} | MAY_INCLUDE[room], f"{path.relative_to(csrc)} includes {included}"


def test_the_picture_of_the_rooms_is_current() -> None:
    script = ROOT / "docs" / "rooms.py"
    if not script.exists():
        pytest.skip("not a checkout")
    if not Path(skshapgpu.__file__).is_relative_to(ROOT / "skshapgpu"):
        pytest.skip("the way of X is recorded in the checkout, and an installed package is imported")
    rooms = runpy.run_path(str(script))
    numbers = re.compile(r'^<text .*font-size="10".*\n', re.MULTILINE)  # the way of X, which is recorded
    shown = (ROOT / "docs" / "rooms.svg").read_text()
    assert len(numbers.findall(shown)) > 3
    assert numbers.sub("", shown) == numbers.sub("", rooms["drawing"]()), "run python docs/rooms.py"


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_module_names_the_package_relatively(path: Path) -> None:
    assert not [name for name, target, _ in imports(path) if name == "skshapgpu" and not target]


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_module_imports_no_optional_library_at_its_head(path: Path) -> None:
    heads = {name for name, target, at_head in imports(path) if at_head and not target}
    assert heads - set(sys.stdlib_module_names) <= AT_THE_HEAD | FOR_A_LIBRARY.get(layer(path), set())


def test_the_table_of_layers_is_complete() -> None:
    assert {layer(path) for path in MODULES} == set(MAY_IMPORT)


def modules_after(code: str) -> tuple[set[str], float]:
    """Return the libraries that ``code`` imports, other than scikit-learn's own imports, and its time.

    It runs in a fresh process. The time is relative to the time to import
    scikit-learn's base, as seconds depend on the machine's load.
    """
    program = f"""
import sys, time
begin = time.process_time()
import sklearn.base
before, start = set(sys.modules), time.process_time()
{code}
time = (time.process_time() - start) / (start - begin)
print(*sorted({OPTIONAL!r} & (set(sys.modules) - before)), time)
"""
    environment = {name: value for name, value in os.environ.items() if name != "SKSHAPGPU_DEVICE"}
    run = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    *modules, time = run.stdout.split()
    return set(modules), float(time)


def test_import_is_light() -> None:
    names = "TreeExplainer, ShapTransformer, ShapBarDisplay, cross_val_explain, shap_importance"
    modules, time = modules_after(f"from skshapgpu import {names}")
    assert modules == set()
    assert time < 0.5


def test_names_are_imported_when_they_are_used() -> None:
    program = "import sys, skshapgpu; print(*{'numpy', 'sklearn'} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout == "\n"
    with pytest.raises(AttributeError, match="module 'skshapgpu' has no attribute 'explian'"):
        getattr(skshapgpu, "explian")  # noqa: B009
    assert dir(skshapgpu) == sorted([*skshapgpu.__all__, *skshapgpu._PUBLIC_MODULES])


@pytest.mark.parametrize("name", skshapgpu._PUBLIC_MODULES)
def test_public_modules_are_imported_when_they_are_used(name: str) -> None:
    program = f"import skshapgpu; print(skshapgpu.{name}.__name__)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout == f"skshapgpu.{name}\n"


def test_explaining_one_library_imports_no_other() -> None:
    modules, _ = modules_after("""
import numpy as np
from sklearn.tree import DecisionTreeRegressor
import skshapgpu
X = np.arange(12.0).reshape(6, 2)
skshapgpu.explain(DecisionTreeRegressor().fit(X, X[:, 0]), X)
""")
    assert modules == set()


def test_public_names() -> None:
    assert sorted(skshapgpu.__all__) == skshapgpu.__all__
    for name in skshapgpu.__all__:
        assert getattr(skshapgpu, name).__doc__


def test_version_is_that_of_the_project() -> None:
    project = PACKAGE.parent / "pyproject.toml"
    if not project.exists():
        pytest.skip("not a checkout")
    assert f'\nversion = "{skshapgpu.__version__}"\n' in project.read_text()


def test_show_versions(capsys: pytest.CaptureFixture[str]) -> None:
    skshapgpu.show_versions()
    lines = dict(line.strip().split(": ", 1) for line in capsys.readouterr().out.splitlines())
    import sklearn

    assert lines["scikit-learn"] == sklearn.__version__
    assert lines["instruction set"].split()[0] in ("avx512", "avx2", "neon", "baseline")
