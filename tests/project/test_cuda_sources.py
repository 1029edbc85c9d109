"""Mistakes in CUDA sources that no compiler reports.

An error of the CUDA runtime that stays behind is reported by a later call. In a template, nvcc drops the
names of fields in an assigned list, ``args = {.n_rows = n}``, so that the numbers go to the first fields.
nvcc puts the number of its process into the names of kernels in an unnamed namespace, so that two builds of
one commit differ. CMake keeps its own choice of a GPU, which a second configuration took for a given one.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "csrc" / "cuda"

#: A call whose result is dropped: a statement of its own, also after a brace or a condition.
DROPPED = re.compile(r"(?:^\s*|[;{}]\s*|\)\s+|\?\s*|:\s+)(cuda[A-Z]\w*)\(", re.MULTILINE)

#: Calls whose error a later one reports: launches end with cudaGetLastError, which clears the error.
CLEARED = {"cudaGetLastError"}

#: A list with names of fields that is assigned.
ASSIGNED = re.compile(r"^\s*[\w.\[\]>-]+ = \{\s*\.", re.MULTILINE)

#: An unnamed namespace, up to its end.
UNNAMED = re.compile(r"^namespace \{.*?^\}  // namespace$", re.MULTILINE | re.DOTALL)


def dropped_results(code: str) -> list[str]:
    """Return the names of the functions whose results are dropped."""
    statements = re.sub(r"(check|ignore)\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)", "", code)
    return [name for name in DROPPED.findall(statements) if name not in CLEARED]


def test_results_of_cuda_are_checked_or_ignored() -> None:
    if not SOURCES.exists():
        pytest.skip("needs the sources")
    files = [path for path in SOURCES.rglob("*") if path.suffix in {".cu", ".cuh", ".h"}]
    dropped = {path.name: dropped_results(path.read_text()) for path in files}
    assert len(files) > 40 and not {name: names for name, names in dropped.items() if names}


def test_lists_with_names_are_not_assigned() -> None:
    if not SOURCES.exists():
        pytest.skip("needs the sources")
    files = [path for path in SOURCES.rglob("*") if path.suffix in {".cu", ".cuh"}]
    assert not [path.name for path in files if ASSIGNED.search(path.read_text())]
    assert ASSIGNED.search("    args_ = {.stream = stream,") and not ASSIGNED.search(
        "  Args a{.stream = stream,"
    )


def kernels_without_a_namespace(code: str) -> int:
    """Return how many unnamed namespaces of a source have kernels."""
    return sum("__global__" in namespace for namespace in UNNAMED.findall(code))


def test_kernels_have_the_same_names_in_each_build() -> None:
    if not SOURCES.exists():
        pytest.skip("needs the sources")
    files = [path for path in SOURCES.rglob("*") if path.suffix in {".cu", ".cuh"}]
    assert sum("__global__" in path.read_text() for path in files) > 10
    assert not [path.name for path in files if kernels_without_a_namespace(path.read_text())]
    kernel = "__global__ void add();\n"
    assert kernels_without_a_namespace(f"namespace {{\n{kernel}}}  // namespace\n") == 1
    assert kernels_without_a_namespace(f"namespace {{\n}}  // namespace\n{kernel}") == 0


def test_dropped_results_are_found() -> None:
    assert dropped_results("  ~Buffer() { cudaFree(data_); }") == ["cudaFree"]
    assert dropped_results("if (data_) kHost ? cudaFreeHost(data_) : cudaFree(data_);") == [
        "cudaFreeHost",
        "cudaFree",
    ]
    assert dropped_results("for (auto& flight : flights_) cudaStreamSynchronize(flight.stream);") == [
        "cudaStreamSynchronize"
    ]
    assert dropped_results("if (data_) ignore(kHost ? cudaFreeHost(data_) : cudaFree(data_));") == []
    assert dropped_results("if (cudaHostAlloc(&data, n, 0) == cudaSuccess) return data;") == []


def gpus_of_configuration(folder: Path, *options: str) -> str:
    """Configure a build with the GPU module, and return for which GPUs it is."""
    pybind11 = pytest.importorskip("pybind11")
    if not all(map(shutil.which, ("cmake", "ninja", "nvcc"))):
        pytest.skip("needs CMake, ninja and a CUDA toolkit")
    definitions = {
        "SKBUILD_PROJECT_NAME": "skshapgpu",
        "SKBUILD_PROJECT_VERSION": "0",
        "SKSHAPGPU_CUDA": "ON",
        "Python_EXECUTABLE": sys.executable,
        "pybind11_DIR": pybind11.get_cmake_dir(),
    }
    given = [f"-D{name}={value}" for name, value in definitions.items()]
    result = subprocess.run(
        ["cmake", "-G", "Ninja", "-S", ROOT, "-B", folder, *given, *options],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return re.findall("GPU module for (.*); SKSHAPGPU", result.stdout)[0]


def test_second_configuration_is_for_the_same_gpus(tmp_path: Path) -> None:
    if not SOURCES.exists():
        pytest.skip("needs the sources")
    first = gpus_of_configuration(tmp_path)
    assert gpus_of_configuration(tmp_path) == first and {"75-real", "90-real"} < set(first.split(";"))
    assert gpus_of_configuration(tmp_path, "-DCMAKE_CUDA_ARCHITECTURES=90-real") == "90-real"
    assert gpus_of_configuration(tmp_path) == "90-real"
