"""Options of an explainer, parsed and checked once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .._common import algorithms, devices, memory
from .._common.algorithms import Algorithm
from .._common.checks import require_bool, require_count, require_n_jobs, require_one_of
from .._common.devices import Devices
from .._common.groups import require_groups
from .._rows.background import require_perturbation
from .links import read_times, require_model_output


@dataclass(frozen=True, eq=False)
class Options:
    """Options of ``TreeExplainer`` that all calls use, parsed and checked."""

    model_output: str
    times: np.ndarray | None
    outputs: str
    columns: str
    #: Whether values are interventional. If they are not, covers are counted from ``data``, if any.
    interventional: bool
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
        data: Any = None,
        feature_perturbation: Any = "auto",
        data_weight: Any = None,
        cover: Any = "auto",
        model_output: Any = "raw",
        times: Any = None,
        algorithm: Any = "auto",
        device: Any = "auto",
        precision: Any = "single",
        outputs: Any = "auto",
        columns: Any = "all",
        feature_groups: Any = None,
        n_jobs: int | None = None,
        memory_limit: int | str | None = None,
        expected_rows: int | None = None,
        check_additivity: bool = True,
    ) -> Options:
        """Parse and check the options of ``TreeExplainer``, as far as this is possible without the model.

        Raise ``ValueError`` or ``TypeError`` if an option has an invalid value, or options contradict each
        other. Raise ``RuntimeError`` if the requested GPU is not available.
        """
        require_one_of("outputs", outputs, ("auto", "all"))
        require_one_of("columns", columns, ("all", "used"))
        if feature_groups is not None:
            require_groups("feature_groups", feature_groups, "column")
        require_perturbation(feature_perturbation, data, data_weight, cover)
        interventional = data is not None and feature_perturbation != "tree_path_dependent"
        parsed_times = read_times(times)
        require_model_output(model_output, times, interventional, device)
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
        limit, requested = memory.parse_bytes(memory_limit), Devices.parse(device)
        if "cpu" not in entry.devices:
            requested = requested.insist(option)
        return cls(
            model_output=model_output,
            times=parsed_times,
            outputs=outputs,
            columns=columns,
            interventional=interventional,
            algorithm=entry,
            devices=requested,
            precision=precision,
            n_jobs=n_jobs,
            memory_limit=limit,
            expected_rows=None if expected_rows is None else int(expected_rows),
            check_additivity=bool(check_additivity),
        )
