"""Run of shap's own tests of tree explainers under the patch; shap's tests are not in this repository.

To run them, set SHAP_SOURCE to the folder of an unpacked source distribution of the installed release of
shap, from ``pip download --no-deps --no-binary :all: shap==VERSION``. Some of the tests download data.
"""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

SOURCE = os.environ.get("SHAP_SOURCE", "")

#: Tests whose outcome the patch changes, and why.
DIFFERENCES: dict[str, str] = {}

#: Ends the process, without the patch as well, with shap 0.54.1.
CRASHES = "tests/explainers/test_tree.py::test_overflow_tree_path_dependent"

pytestmark = pytest.mark.skipif(not SOURCE, reason="SHAP_SOURCE names no folder with the source of shap")


def outcomes(folder: Path, *options: str) -> dict[str, str]:
    """Run the tests in a process; return "passed", "failed" or "skipped" by name."""
    report = folder / f"report{len(options)}.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junit-xml={report}"]
    command += [f"--deselect={CRASHES}", *options, "tests/explainers/test_tree.py"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
    done = subprocess.run(command, cwd=SOURCE, env=environment, capture_output=True, text=True, check=False)
    assert report.exists(), done.stdout[-2000:] + done.stderr[-2000:]
    result = {}
    for case in ET.parse(report).iter("testcase"):
        states = {"error": "failed", "failure": "failed", "skipped": "skipped"}
        state = [states[child.tag] for child in case if child.tag in states]
        result[f"{case.get('classname')}.{case.get('name')}"] = state[0] if state else "passed"
    return result


def test_the_tests_of_shap_have_the_same_outcomes(tmp_path: Path) -> None:
    (tmp_path / "patched_shap.py").write_text("import skshapgpu\n\nskshapgpu.patch_shap()\n")
    expected = outcomes(tmp_path)
    assert sum(state == "passed" for state in expected.values()) > 50
    result = outcomes(tmp_path, "-p", "patched_shap")
    assert result.keys() == expected.keys()
    assert {name for name in expected if result[name] != expected[name]} == set(DIFFERENCES)
