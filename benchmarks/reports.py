"""Reports of the benchmarks: results with the machine, versions and commit on which they were measured."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import gpu
import store

from skshapgpu import _core

HERE = Path(__file__).resolve().parent

PACKAGES = (
    "skshapgpu",
    "numpy",
    "scikit-learn",
    "xgboost",
    "lightgbm",
    "catboost",
    "shap",
    "shap-cuda",
    "shapiq",
    "woodelf_explainer",
    "treelite",
    "fasttreeshap",
    "explainerdashboard",
    "shapash",
    "powershap",
    "cupy",
    "pyarrow",
    "dask",
    "pyspark",
    "ray",
    "BorutaShap",
    "probatus",
)

CPU_FLAGS = (
    "avx2",
    "fma",
    "bmi2",
    "avx512f",
    "avx512bw",
    "avx512dq",
    "avx512vl",
    "avx512_vnni",
    "avx512_vbmi",
    "amx_tile",
    "asimd",
    "sve",
)


def start_report(benchmark: str, arguments: argparse.Namespace) -> dict[str, Any]:
    report = {"benchmark": benchmark, **conditions(arguments)}
    if benchmark == "latency" or benchmark.endswith("-cuda"):
        report["gpu"] = gpu.conditions()
    report |= {"models": [], "left_out": {}}
    if arguments.output is None and not arguments.quick:
        arguments.output = HERE / "results" / f"{benchmark}.json"
    return report


def write(report: dict[str, Any], arguments: argparse.Namespace) -> None:
    """Store the results so far."""
    report["versions"] = versions()  # again: versions of carried packages are known once they are imported
    report["load_average_after"] = os.getloadavg()
    if arguments.output is not None:
        store.add_run(arguments.output, report)


def conditions(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the machine, versions, commit and options of this run."""
    cpu = {}
    if os.path.exists("/proc/cpuinfo"):
        lines = Path("/proc/cpuinfo").read_text().partition("\n\n")[0].splitlines()
        cpu = {key.strip(): text.strip() for key, _, text in (line.partition(":") for line in lines)}
    flags = (cpu.get("flags") or cpu.get("Features") or "").split()
    names = "command device train_device rows backgrounds starts repeats rounds isa seconds full quick"
    options = {name: getattr(arguments, name) for name in names.split() if hasattr(arguments, name)}
    return {
        "date": datetime.now().astimezone().isoformat(timespec="seconds"),
        "commit": commit(),
        "machine": {
            "cpu": cpu.get("model name") or platform.processor() or platform.machine(),
            "flags": [flag for flag in CPU_FLAGS if flag in flags],
            "cores": os.cpu_count(),
            "platform": platform.platform(),
            "instruction_sets": _core.instruction_sets(),
        },
        "load_average_before": os.getloadavg(),
        "versions": versions(),
        "options": {**options, "data": "given" if getattr(arguments, "data", None) else "generated"},
    }


def commit(checkout: Path = HERE) -> str | None:
    describe = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        return (
            subprocess.run(describe, cwd=checkout, capture_output=True, text=True, check=False).stdout.strip()
            or None
        )
    except OSError:  # no git
        return None


def versions() -> dict[str, str | None]:
    return {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}}


def version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:  # not installed, or found on the path
        return getattr(sys.modules.get(package), "__version__", None)
