"""Options of an explainer that say how to compute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .._common import devices, memory
from .._common.checks import require_bool, require_count, require_n_jobs, require_one_of
from .._common.devices import Devices
from . import algorithms
from .algorithms import Algorithm


@dataclass(frozen=True)
class Options:
    """Options of ``TreeExplainer`` that say how to compute, parsed and checked."""

    algorithm: Algorithm
    devices: Devices
    precision: str
    n_jobs: int | None
    memory_limit: int | None
    expected_rows: int | None
    check_additivity: bool

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"algorithm": self.algorithm.name}  # the entry of the table is part of the code

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state | {"algorithm": algorithms.named(state["algorithm"])})

    @classmethod
    def parse(
        cls,
        *,
        algorithm: Any,
        device: Any,
        precision: Any,
        n_jobs: int | None,
        memory_limit: int | str | None,
        check_additivity: bool,
        interventional: bool,
        expected_rows: int | None = None,
    ) -> Options:
        """Parse and check the options; ``interventional`` says whether there is background data.

        Raises
        ------
        ValueError, TypeError
            An option has an invalid value, or options contradict each other.
        RuntimeError
            The requested GPU is not available.
        """
        require_one_of("algorithm", algorithm, algorithms.NAMES)
        entry, option = algorithms.named(algorithm), f"algorithm={algorithm!r}"
        require_one_of("precision", precision, entry.precisions)
        if interventional and not entry.interventional:
            raise ValueError(f"{option} computes no interventional SHAP values: use 'auto'")
        if "cuda" not in entry.devices:
            devices.require_cpu(device, option)
        require_n_jobs(n_jobs)
        require_bool("check_additivity", check_additivity)
        require_count("expected_rows", expected_rows, also=(None,))
        expected_rows = None if expected_rows is None else int(expected_rows)
        limit, requested = memory.parse_bytes(memory_limit), Devices.parse(device)
        if "cpu" not in entry.devices:
            requested = requested.insist(option)
        return cls(entry, requested, precision, n_jobs, limit, expected_rows, bool(check_additivity))
