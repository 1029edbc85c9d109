"""The core that the tests of the kernels call: on the CPU, and on a GPU if there is one."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from helpers.kernels import ISA, CudaPlan


@pytest.fixture(scope="session", params=["cpu", "cuda"])
def core(request: pytest.FixtureRequest) -> Any:
    """The core's module, or an object with the same functions that computes on a GPU."""
    from skshapgpu import _core

    if request.param == "cpu":
        return _core
    if ISA is not None:
        pytest.skip("SKSHAPGPU_ISA restricts this run to one instruction set")
    request.getfixturevalue("gpu")
    return SimpleNamespace(Plan=CudaPlan)


@pytest.fixture(scope="session")
def cpu_core() -> ModuleType:
    from skshapgpu import _core

    return _core
