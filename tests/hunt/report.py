"""Findings of the checks of a case."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np


class NotDrawnError(Exception):
    """The library itself cannot fit or predict a case, so there is nothing to test."""


@dataclass
class Report:
    """Findings of the checks of a case."""

    findings: list[str] = field(default_factory=list)
    checks: Counter[str] = field(default_factory=Counter)
    refusals: list[str] = field(default_factory=list)
    not_drawn: str = ""

    def close(self, check: str, got: Any, right: Any, allowed: Any) -> None:
        """Compare numbers; ``allowed`` broadcasts along the last axis, the outputs."""
        self.checks[check] += 1
        got, right = np.asarray(got, np.float64), np.asarray(right, np.float64)
        if got.shape != right.shape:
            self.findings.append(f"{check}: shape {got.shape}, not {right.shape}")
            return
        if not got.size:
            return
        error = np.abs(got - right)
        same = (got == right) | (np.isnan(got) & np.isnan(right))
        excess = np.where(same, 0.0, error / np.broadcast_to(np.maximum(allowed, 5e-324), got.shape))
        excess = np.where(np.isnan(excess), np.inf, excess)
        if excess.max() > 1:
            at = tuple(int(i) for i in np.unravel_index(np.argmax(excess), excess.shape))
            limit = np.broadcast_to(allowed, got.shape)[at]
            self.findings.append(
                f"{check}: {got[at]!r} at {at}, but {right[at]!r} is right: off by {error[at]:.3g}, "
                f"allowed {limit:.3g}; largest {np.abs(right).max():.6g}; {np.mean(excess > 1):.0%} are off"
            )

    def equal(self, check: str, got: Any, right: Any) -> None:
        """Compare to the bit."""
        self.checks[check] += 1
        if not np.array_equal(got, right, equal_nan=np.asarray(right).dtype.kind == "f"):
            self.findings.append(f"{check}: {_short(got)} is not {_short(right)}")

    def true(self, check: str, holds: bool, note: str = "") -> None:
        self.checks[check] += 1
        if not holds:
            self.findings.append(f"{check}: {note}" if note else check)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 300 else text[:300] + "..."
