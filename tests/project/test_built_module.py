"""The compiled module and its metadata: options of the linker, and the list of what is linked in."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from importlib import metadata

import pytest

from skshapgpu import _core


def readelf(option: str) -> str:
    command = ["readelf", option, "--wide", str(_core.__file__)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.skipif(sys.platform != "linux" or shutil.which("readelf") is None, reason="needs readelf")
def test_addresses_and_the_stack_are_protected() -> None:
    if "__asan_init" in (symbols := readelf("--dyn-syms")):
        pytest.skip("sanitizers check the stack in their own way")
    assert "__stack_chk_fail" in symbols
    assert "GNU_RELRO" in readelf("--segments")
    assert "NOW" in readelf("--dynamic")


def test_what_is_linked_in_is_listed() -> None:
    distribution = metadata.distribution("skshapgpu")
    files = {file.name: file for file in distribution.files or []}
    listed = json.loads(files["sbom.cdx.json"].read_text())
    assert listed["metadata"]["component"]["version"] == distribution.version
    versions = {component["name"]: component.get("version") for component in listed["components"]}
    assert versions.keys() == {"pybind11", "CUDA runtime"}
    assert all(part.isdigit() for part in versions["pybind11"].split("."))
    assert "Redistribution" in files["pybind11.txt"].read_text()
    assert "NVIDIA" in files["cuda_runtime.txt"].read_text()
