"""Files of results: one for each benchmark and kind of device, with the latest run of each model.

A file holds the name of its benchmark and the runs, each with its date, commit, machine and versions. A new
run replaces earlier results of the same models; the replaced results are in the history of git.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

#: Fields that distinguish the cases of a benchmark.
CASE = ("name", "encoding", "rows", "processes", "devices")


def case(model: dict[str, Any]) -> str:
    """Return a key of the case that a result belongs to."""
    if "name" in model:
        return model["name"]
    return json.dumps([model.get(field) for field in CASE])


def add_run(path: Path, report: dict[str, Any]) -> None:
    """Write a run to its file, in place of earlier results of its models; call it again with more models."""
    report = dict(report)
    benchmark = report.pop("benchmark")
    runs = json.loads(path.read_text())["runs"] if path.exists() else []
    measured = {case(model) for model in report["models"]}
    earlier_runs = []
    for run in runs:
        models = [model for model in run["models"] if case(model) not in measured]
        if models and run["date"] != report["date"]:
            earlier_runs.append(run | {"models": models})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"benchmark": benchmark, "runs": [*earlier_runs, report]}, indent=1) + "\n")
