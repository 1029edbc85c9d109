"""The chosen instruction set is the best one of the processor, as NumPy sees it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from skshapgpu import _core

try:
    from numpy._core._multiarray_umath import __cpu_features__ as processor_has
except ImportError:  # NumPy 1
    from numpy.core._multiarray_umath import __cpu_features__ as processor_has

#: The instructions that the kernels of each set need, by NumPy's names; the best set is first.
NEEDED = {
    "avx512": ("AVX512F", "AVX512BW", "AVX512DQ", "AVX512VL", "AVX2", "FMA3"),
    "avx2": ("AVX2", "FMA3"),
    "neon": ("NEON", "NEON_VFPV4"),
    "baseline": (),
}


def test_all_sets_of_the_processor_are_available_and_the_best_is_chosen() -> None:
    expected = [name for name, needed in NEEDED.items() if all(processor_has.get(x) for x in needed)]
    assert _core.instruction_sets() == expected
    assert _core.instruction_set() == (os.environ.get("SKSHAPGPU_ISA") or expected[0])


@pytest.mark.parametrize("name", _core.instruction_sets())
def test_the_set_that_is_asked_for(name: str) -> None:
    assert run(name).stdout.strip() == name


def test_a_set_that_is_not_available() -> None:
    result = run("sse9")
    assert result.returncode == 1
    assert "SKSHAPGPU_ISA=sse9 is not available here; choose one of: " in result.stderr
    assert result.stderr.rstrip().endswith("baseline")


@pytest.mark.skipif(sys.platform != "linux", reason="the build checks objects on Linux")
@pytest.mark.parametrize("is_shared", [False, True])
def test_the_build_refuses_functions_that_the_linker_may_use_for_every_processor(
    is_shared: bool, tmp_path: Path
) -> None:
    script = Path(__file__).parents[2] / "csrc" / "simd" / "weak_functions.cmake"
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    cmake, compiler, nm = (shutil.which(name, path=programs) for name in ("cmake", "c++", "nm"))
    if not (script.exists() and cmake and compiler and nm):
        pytest.skip("needs the sources, a compiler and CMake")
    source, unit = tmp_path / "kernels.cpp", tmp_path / "kernels.o"
    function = "template <class T> [[gnu::noinline]] T twice(T x) { return x + x; }"
    definition = function if is_shared else f"namespace {{ {function} }}"
    source.write_text(definition + "float four(float x) { return twice(x); }")
    subprocess.run([compiler, "-O3", "-c", source, "-o", unit], check=True)
    result = subprocess.run(
        [cmake, f"-DNM={nm}", f"-DOBJECTS={unit}", "-P", script], capture_output=True, text=True
    )
    assert (result.returncode != 0) == is_shared, result.stderr
    assert ("twice" in result.stderr) == is_shared


def run(name: str) -> subprocess.CompletedProcess[str]:
    """Return what a process prints in which ``SKSHAPGPU_ISA`` names an instruction set."""
    code = "from skshapgpu import _core; print(_core.instruction_set())"
    environment = os.environ | {"SKSHAPGPU_ISA": name}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
