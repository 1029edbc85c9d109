"""Settings of a test run: hypothesis profiles, devices, and a last line on skipped tests."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import settings

from skshapgpu import cuda_info

# Failed assertions in the helpers should show their values, too.
pytest.register_assert_rewrite("helpers")

# Otherwise, the libraries' threads of all test processes wait for each other, on a large machine for hours.
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
    # Otherwise "auto" would choose the device by the amount of work, and a test could compare values of two
    # devices digit by digit.
    os.environ["SKSHAPGPU_DEVICE"] = config.getoption("--device")


def pytest_collectstart(collector: pytest.Collector) -> None:
    if isinstance(collector, pytest.Module):
        seed_models()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    seed_models()


def seed_models() -> None:
    """Let scikit-learn's models without a ``random_state`` draw the same numbers in every run."""
    np.random.seed(0)  # noqa: NPY002 - their generator is the global one


@pytest.fixture(scope="session")
def gpu() -> None:
    """Request for a GPU: the test is skipped on machines without one."""
    info = cuda_info()
    if not info["available"]:
        pytest.skip(f"no GPU: {info['reason']}")


@pytest.fixture(autouse=True)
def no_figures_left() -> Iterator[None]:
    """Close all figures after each test: a test may ask for the first figure of its code by number."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


@pytest.fixture
def rng() -> np.random.Generator:
    """A random generator for each test, so that its numbers do not depend on the tests that ran before."""
    return np.random.default_rng(0)


@pytest.fixture
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Request for the CPU: explainers without a ``device`` compute on it, for work that no GPU does."""
    monkeypatch.setenv("SKSHAPGPU_DEVICE", "cpu")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    info = cuda_info()
    if info["available"]:
        names = ", ".join(device["name"] for device in info["devices"])
        terminalreporter.write_line(f"GPU: {names}")
    else:
        terminalreporter.write_line(f"GPU: no device ({info['reason']}), GPU tests skipped")
