"""Which module may import which, and what importing the package costs."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import skshapgpu

PACKAGE = Path(skshapgpu.__file__).parent

#: What each module may import from the package, whenever: at its head or inside a function.
MAY_IMPORT = {
    "__init__": {
        "_versions",
        "adapters",
        "batches",
        "costs",
        "devices",
        "displays",
        "errors",
        "explainer",
        "explanation",
        "importance",
        "interaction_explanation",
        "model_selection",
        "selection",
        "transformers",
    },
    "__main__": {"command_line"},
    "_versions": {"_core"},
    "adapters": {"ensemble", "errors", "schema"},
    "algorithms": set(),
    "background": {"devices", "errors", "inputs"},
    "batches": {
        "_core",
        "_versions",
        "arrow",
        "errors",
        "fingerprint",
        "progress",
        "record_batches",
        "storage",
        "tables",
    },
    "callbacks": set(),
    "columns": {"tables"},
    "command_line": {
        "_versions",
        "adapters",
        "algorithms",
        "batches",
        "devices",
        "digits",
        "ensemble",
        "errors",
        "explainer",
        "reference",
        "saving",
        "schema",
        "storage",
    },
    "costs": {"digits"},
    "cross_fit": {"splits"},
    "devices": {"_cuda"},
    "digits": set(),
    "displays": {
        "columns",
        "digits",
        "explainer",
        "explanation",
        "gpu_arrays",
        "interaction_explanation",
        "tables",
    },
    "distributed": {"batch_arguments", "devices", "record_batches"},
    "ensemble": set(),
    "errors": set(),
    "explainer": {
        "adapters",
        "algorithms",
        "background",
        "costs",
        "errors",
        "explanation",
        "inputs",
        "interaction_explanation",
        "interactions",
        "model_output",
        "pipelines",
        "progress",
        "rows",
        "runner",
        "runs",
        "saving",
        "sharing",
    },
    "explanation": {"columns", "digits", "gpu_arrays", "origins", "tables"},
    "fingerprint": {"explainer", "saving"},
    "frames": {"arrow", "real_numbers"},
    "gpu_arrays": {"devices"},
    "importance": {
        "errors",
        "explainer",
        "explanation",
        "gpu_arrays",
        "model_selection",
        "origins",
        "out_of_fold",
        "tables",
    },
    "inputs": {"containers", "devices", "schema"},
    "interaction_explanation": {"devices", "explanation", "inputs"},
    "interactions": {"algorithms", "devices", "interaction_explanation", "runs"},
    "memory": set(),
    "model_output": {"algorithms", "devices", "errors", "schema"},
    "model_selection": {
        "adapters",
        "errors",
        "explainer",
        "origins",
        "out_of_fold",
        "pipelines",
        "scoring",
        "splits",
        "tables",
        "transformer_base",
    },
    "origins": {"pipelines", "tables"},
    "out_of_fold": {"explanation", "gpu_arrays", "origins", "tables"},
    "pipelines": {"adapters", "errors"},
    "progress": set(),
    "real_numbers": set(),
    "record_batches": {
        "arrow",
        "batch_arguments",
        "errors",
        "explainer",
        "explanation",
        "interaction_explanation",
        "tables",
    },
    "reference": {"ensemble"},
    "rows": set(),
    "runner": {
        "_core",
        "algorithms",
        "background",
        "costs",
        "devices",
        "ensemble",
        "errors",
        "memory",
        "model_output",
        "sharing",
    },
    "runs": {"algorithms", "costs", "devices", "inputs", "memory", "progress", "runner", "sharing"},
    "saving": {"_versions", "adapters", "background", "ensemble", "schema", "storage"},
    "schema": {"ensemble", "errors"},
    "scoring": {"pipelines"},
    "selection": {"importance", "origins", "tables"},
    "shap_backend": {"adapters", "devices", "explainer"},
    "sharing": set(),
    "splits": {"tables"},
    "storage": set(),
    "transformer_base": {
        "_versions",
        "algorithms",
        "callbacks",
        "cross_fit",
        "devices",
        "explainer",
        "inputs",
        "origins",
    },
    "transformers": {
        "background",
        "explainer",
        "explanation",
        "interaction_explanation",
        "interactions",
        "model_output",
        "origins",
        "progress",
        "tables",
        "transformer_base",
    },
}

#: Libraries that a module may import at its head; everything else waits for the object that needs it.
AT_THE_HEAD = {"numpy", "scipy", "sklearn", "joblib"}

#: Modules that only the library imports that they are for.
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
    "cupy",
    "torch",
    "shap",
    "matplotlib",
    "tqdm",
    "dask",
    "pyspark",
    "ray",
    "skshapgpu._core",
    "skshapgpu._cuda",
}

MODULES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))


def layer(path: Path) -> str:
    return path.parts[0].removesuffix(".py")


def imports(path: Path) -> list[tuple[str, str, bool]]:
    """(first part of the name, the same within the package or "", at the head) of each import of a file."""
    tree = ast.parse((PACKAGE / path).read_text())
    found = []
    for node in ast.walk(tree):
        at_head = node in tree.body
        if isinstance(node, ast.Import):
            found += [(alias.name.partition(".")[0], "", at_head) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            assert node.module is not None
            found.append((node.module.partition(".")[0], "", at_head))
        elif isinstance(node, ast.ImportFrom):
            folder = (PACKAGE / path).parents[node.level - 1].relative_to(PACKAGE)
            for alias in node.names:
                target = [*folder.parts, *(node.module or alias.name).split(".")]
                found.append(("skshapgpu", target[0], at_head))
    return found


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_module_imports_only_its_layers(path: Path) -> None:
    inside = {target for _, target, _ in imports(path) if target}
    assert inside - {layer(path)} <= MAY_IMPORT[layer(path)]


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
    """Libraries, other than those that scikit-learn itself imports, that ``code`` brings in, and its time.

    In a fresh process; the core counts as a library. The time is that of importing scikit-learn's base times
    this number: seconds would depend on what else the machine does.
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
    assert dir(skshapgpu) == skshapgpu.__all__


def test_explaining_one_library_imports_no_other() -> None:
    modules, _ = modules_after("""
import numpy as np
from sklearn.tree import DecisionTreeRegressor
import skshapgpu
X = np.arange(12.0).reshape(6, 2)
skshapgpu.explain(DecisionTreeRegressor().fit(X, X[:, 0]), X)
""")
    assert modules == {"skshapgpu._core"}


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
    assert lines["instruction set"].split()[0] in ("avx512", "avx2", "baseline")
