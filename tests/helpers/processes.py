"""Python code run in a separate process."""

from __future__ import annotations

import os
import subprocess
import sys


def run_python(code: str, **environment: str) -> str:
    """Run code in a fresh interpreter; return its output."""
    run = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | environment, capture_output=True, text=True, check=True
    )
    return run.stdout
