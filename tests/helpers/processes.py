"""Python in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys


def run_python(code: str, **environment: str) -> str:
    """What a fresh interpreter prints."""
    run = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | environment, capture_output=True, text=True, check=True
    )
    return run.stdout
