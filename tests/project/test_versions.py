"""Versions of packages whose distributions have other names, and a package without its compiled core."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

import skshapgpu
from skshapgpu._versions import version_of, versions
from skshapgpu.adapters import FAMILIES

PACKAGE = Path(skshapgpu.__file__).parent


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Function that installs a module into a temporary folder, under a distribution of another name."""
    monkeypatch.syspath_prepend(tmp_path)

    def install(module: str, distribution: str | None) -> None:
        (tmp_path / module).mkdir()
        (tmp_path / module / "__init__.py").write_text("raise AssertionError('no version needs an import')")
        if distribution is not None:
            metadata = tmp_path / f"{distribution.replace('-', '_')}-7.8.9.dist-info"
            metadata.mkdir()
            (metadata / "METADATA").write_text(
                f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 7.8.9\n"
            )
            (metadata / "top_level.txt").write_text(f"{module}\n")

    return install


@pytest.mark.parametrize(
    ("module", "usual", "installed"),
    [("made_boost", "made-boost", "made-boost-cpu"), ("made_cupy", "made-cupy", "made-cupy-cuda12x")],
)
def test_distributions_of_other_names(site: Any, module: str, usual: str, installed: str) -> None:
    assert version_of(module, usual) is None
    site(module, installed)
    assert version_of(module, usual) == f"7.8.9 ({installed})"
    assert version_of(module, installed) == "7.8.9"


def test_modules_without_metadata(site: Any, tmp_path: Path) -> None:
    site("made_alone", None)
    assert version_of("made_alone", "made-alone") == "of unknown version"
    (tmp_path / "made_folder").mkdir()
    assert version_of("made_folder", "made-folder") is None


def test_versions() -> None:
    libraries = versions()
    assert libraries["skshapgpu"] == skshapgpu.__version__
    assert libraries["scikit-learn"] == version("scikit-learn") and libraries["numpy"] == version("numpy")
    assert {family.distribution for family in FAMILIES.values()} < set(libraries)
    assert {"xgboost", "lightgbm", "catboost", "shap", "cupy"} <= set(libraries)


def test_cpu_build_of_xgboost(site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """xgboost-cpu installs the module xgboost, and there is no distribution of that name."""
    site("xgboost", "xgboost-cpu")

    def of_others(distribution: str) -> str:
        if distribution == "xgboost":
            raise skshapgpu._versions.PackageNotFoundError(distribution)
        return version(distribution)

    monkeypatch.setattr("skshapgpu._versions.version", of_others)
    assert versions()["xgboost"] == "7.8.9 (xgboost-cpu)"


def run_in(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Run code as in a checkout: the folder is first on the path, without an installation's finders."""
    finders = "sys.meta_path[:] = [f for f in sys.meta_path if isinstance(f, type)]"
    # By hand, as PYTHONSAFEPATH may leave the current folder out.
    program = f"import sys; sys.path.insert(0, {str(folder)!r}); {finders}\n{code}"
    return subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True)


@pytest.fixture(scope="module")
def not_built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package as in a checkout, without the compiled core."""
    folder = tmp_path_factory.mktemp("checkout")
    shutil.copytree(
        PACKAGE, folder / "skshapgpu", ignore=shutil.ignore_patterns("*.so", "*.pyd", "__pycache__")
    )
    return folder


@pytest.mark.parametrize(
    "code",
    [
        "import skshapgpu",
        "from skshapgpu import TreeExplainer",
        "import skshapgpu.command_line",
        "import runpy; runpy.run_module('skshapgpu', run_name='__main__')",
    ],
)
def test_a_package_without_its_core_says_what_to_do(not_built: Path, code: str) -> None:
    run = run_in(not_built, code)
    line = run.stderr.splitlines()[-1]
    assert run.returncode == 1
    assert line.startswith(
        f"ImportError: skshapgpu in {str(not_built / 'skshapgpu')!r} has not been compiled: "
    )
    assert "pip install -e ." in line and "another folder" in line


def test_a_package_with_its_core_is_imported(not_built: Path, tmp_path: Path) -> None:
    shutil.copytree(not_built / "skshapgpu", tmp_path / "skshapgpu")
    core = (
        skshapgpu._core.__file__
        if hasattr(skshapgpu, "_core")
        else __import__("skshapgpu._core")._core.__file__
    )
    shutil.copy(core, tmp_path / "skshapgpu")
    run = run_in(tmp_path, "import skshapgpu; skshapgpu.show_versions(); print(skshapgpu.__file__)")
    assert run.returncode == 0, run.stderr
    assert "instruction set" in run.stdout and run.stdout.splitlines()[-1].startswith(str(tmp_path))
