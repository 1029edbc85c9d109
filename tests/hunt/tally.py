"""Counts of cases and checks by dimension, as a table and as JSON."""

from __future__ import annotations

import platform
from collections import Counter, defaultdict
from importlib import metadata
from typing import Any

from .run import Result

LIBRARIES = [
    "skshapgpu",
    "numpy",
    "scipy",
    "scikit-learn",
    "xgboost",
    "lightgbm",
    "catboost",
    "pandas",
    "polars",
    "pyarrow",
    "cupy-cuda13x",
    "torch",
]


def versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


class Tally:
    """Totals over many results."""

    def __init__(self) -> None:
        self.cases = self.n_checks = 0
        self.seconds = 0.0
        self.findings: list[dict[str, Any]] = []
        self.checks: Counter[str] = Counter()
        self.refusals: Counter[str] = Counter()
        self.not_drawn: Counter[str] = Counter()
        #: For each dimension and choice: cases, checks, findings.
        self.by_dimension: dict[str, dict[str, list[int]]] = defaultdict(
            lambda: defaultdict(lambda: [0, 0, 0])
        )

    def add(self, result: Result) -> None:
        self.cases += 1
        self.seconds += result.seconds
        self.checks.update(result.checks)
        self.refusals.update(result.refusals)
        if result.not_drawn:
            self.not_drawn[result.not_drawn[:60]] += 1
        n = sum(result.checks.values())
        self.n_checks += n
        for name, choice in result.dimensions.items():
            counts = self.by_dimension[name][choice]
            counts[0] += 1
            counts[1] += n
            counts[2] += bool(result.findings)
        if result.findings:
            self.findings.append(
                {"seed": result.seed, "findings": result.findings, "description": result.description}
            )

    def document(self) -> dict[str, Any]:
        return {
            "versions": versions(),
            "cases": self.cases,
            "checks": self.n_checks,
            "case_seconds": round(self.seconds, 1),
            "findings": self.findings,
            "by_check": dict(self.checks.most_common()),
            "refusals": dict(self.refusals.most_common()),
            "not_drawn": dict(self.not_drawn.most_common()),
            "by_dimension": {
                name: {
                    choice: dict(zip(("cases", "checks", "findings"), c))
                    for choice, c in sorted(choices.items())
                }
                for name, choices in self.by_dimension.items()
            },
        }

    def table(self) -> str:
        lines = ["", f"{'dimension':18} {'choice':26} {'cases':>7} {'checks':>8} {'found':>6}"]
        for name, choices in self.by_dimension.items():
            for choice, counts in sorted(choices.items()):
                lines.append(f"{name:18} {choice:26} {counts[0]:7} {counts[1]:8} {counts[2]:6}")
                name = ""
        for title, counter in (
            ("checks", self.checks),
            ("refused by the package", self.refusals),
            ("refused by the libraries", self.not_drawn),
        ):
            lines += ["", title] + [f"{n:8} {text}" for text, n in counter.most_common()]
        lines.append("")
        lines.append(" ".join(f"{name} {version}" for name, version in versions().items()))
        lines.append(
            f"{self.cases} cases, {self.n_checks} checks, {len(self.findings)} cases with findings, "
            f"{self.seconds / max(self.cases, 1):.2f} s each"
        )
        return "\n".join(lines)
