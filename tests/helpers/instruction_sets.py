"""Tests that run again with the other instruction sets, each in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from helpers import ROOT
from skshapgpu import _core

#: Limit on the drawn examples of a test. All sets are compiled from the same source, and the fastest set is
#: tested with all examples.
EXAMPLES = 25

each_set = pytest.mark.parametrize("isa", ["avx512", "avx2", "neon", "baseline"])


def run_again(isa: str, *files: str, select: str = "") -> None:
    """Require that tests pass with another instruction set; ``select`` is passed to ``pytest -k``."""
    if isa not in _core.instruction_sets():
        pytest.skip(f"this processor has no {isa}")
    if isa == _core.instruction_set():
        pytest.skip(f"this very run uses {isa}")
    if "SKSHAPGPU_ISA" in os.environ:
        pytest.skip("SKSHAPGPU_ISA restricts this run to one instruction set")
    paths = [str(ROOT / "tests"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {
        "SKSHAPGPU_ISA": isa,
        "SKSHAPGPU_EXAMPLES": str(EXAMPLES),
        "PYTHONPATH": os.pathsep.join(paths),
    }
    options = ["-q", "-x", "-p", "no:cacheprovider", "-p", "helpers.fewer_examples", "-k", select]
    result = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *files],
        env=os.environ | environment,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout[-8000:]
