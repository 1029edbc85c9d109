"""Settings of a test run: hypothesis profiles, the import path, and the last line on skipped devices."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest
from hypothesis import settings

# Tests import `checks` and `ensembles` from this directory, however pytest was started.
if (here := str(Path(__file__).parent)) not in sys.path:
    sys.path.insert(0, here)

# In CI a failure must not depend on luck; elsewhere every run tries new examples.
settings.register_profile("skshapgpu", deadline=None, print_blob=True, derandomize="CI" in os.environ)
settings.load_profile("skshapgpu")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if importlib.util.find_spec("skshapgpu._cuda") is None:
        terminalreporter.write_line("GPU: no device, GPU tests skipped")
