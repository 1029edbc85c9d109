"""Settings of a test run: hypothesis profiles, devices, and a last line on skipped ones."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

from skshapgpu import cuda_info

# So that failures of what tests share show their values, too.
pytest.register_assert_rewrite("helpers")

# Else the libraries' threads of all processes of the run wait for each other, on a large machine for hours.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# In CI a failure must not depend on luck; elsewhere every run tries new examples.
settings.register_profile("skshapgpu", deadline=None, print_blob=True, derandomize="CI" in os.environ)
settings.load_profile("skshapgpu")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--device",
        default="cpu",
        help="where explainers compute that are not told where: sets SKSHAPGPU_DEVICE for the run",
    )


def pytest_configure(config: pytest.Config) -> None:
    # Without it "auto" would choose by the work, and a test could compare digits of two devices.
    os.environ["SKSHAPGPU_DEVICE"] = config.getoption("--device")


@pytest.fixture(scope="session")
def gpu() -> None:
    """Asks for a GPU: the test is skipped where there is none."""
    info = cuda_info()
    if not info["available"]:
        pytest.skip(f"no GPU: {info['reason']}")


@pytest.fixture
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Explainers that are not told where compute on the CPU, for what there is nowhere else."""
    monkeypatch.setenv("SKSHAPGPU_DEVICE", "cpu")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    info = cuda_info()
    if info["available"]:
        names = ", ".join(device["name"] for device in info["devices"])
        terminalreporter.write_line(f"GPU: {names}")
    else:
        terminalreporter.write_line(f"GPU: no device ({info['reason']}), GPU tests skipped")
