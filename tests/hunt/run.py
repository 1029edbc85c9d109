"""One seed, from the draw to its report."""

from __future__ import annotations

import contextlib
import io
import shutil
import tempfile
import time
import traceback
import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from skshapgpu import UnsupportedModelError

from . import many, wrappers
from .case import Case
from .draws import Draw, draw
from .modes import MODES
from .modes_batches import batches
from .modes_dependence import DEPENDENCE
from .modes_further import FURTHER
from .modes_groups import GROUPED
from .modes_links import LINKS
from .modes_mlflow import FLAVOR
from .modes_patched import PATCHED
from .modes_responses import RESPONSES
from .modes_typed import TYPED
from .modes_views import VIEWS
from .modes_workflow import WORKFLOW
from .refusals import FAILED_STEP, LOST_DIGITS, NO_COLUMN, NO_GPU_MEMORY, TOO_LARGE, refusal
from .report import NotDrawnError, Report

ALL_MODES = {
    **MODES,
    **LINKS,
    **WORKFLOW,
    **VIEWS,
    **GROUPED,
    **DEPENDENCE,
    **RESPONSES,
    **FURTHER,
    **PATCHED,
    **FLAVOR,
    "batches": batches,
}

#: Modes that build a model of their own from the draw.
OWN_CASES = TYPED

NAMED = (UnsupportedModelError, ValueError, TypeError)


@dataclass
class Result:
    """The outcome of a seed."""

    seed: int
    description: str = ""
    dimensions: dict[str, str] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)
    checks: dict[str, int] = field(default_factory=dict)
    refusals: list[str] = field(default_factory=list)
    not_drawn: str = ""
    seconds: float = 0.0


def run(seed: int, fixed: dict[str, Any] | None = None) -> Result:
    """Run the case of a seed; its errors are recorded, not raised."""
    start = time.perf_counter()
    drawn = draw(seed, **(fixed or {}))
    result = Result(seed, str(drawn), drawn.dimensions())
    wrappers.FOLDER = tempfile.mkdtemp(prefix="hunt-")
    report = Report()
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            with many.lanes(drawn):
                _carry_out(drawn, report)
    except NotDrawnError as error:
        report.not_drawn = str(error)
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{place.filename.rpartition('/')[2]}:{place.lineno}"
        text = f"raised at {where}: {type(error).__name__}: {error}"
        report.findings.append(text if len(text) < 600 else text[:600] + "...")
    finally:
        shutil.rmtree(wrappers.FOLDER, ignore_errors=True)
    result.findings = report.findings
    result.checks = dict(report.checks)
    result.refusals = report.refusals
    result.not_drawn = report.not_drawn
    result.seconds = time.perf_counter() - start
    return result


def _carry_out(drawn: Draw, report: Report) -> None:
    accepted = True
    try:
        if drawn.mode in OWN_CASES:
            OWN_CASES[drawn.mode](drawn, report)
            return
        case = Case(drawn)
        accepted = case.accepted
        ALL_MODES[drawn.mode](case, report)
    except NAMED as error:
        reason = refusal(drawn, accepted, str(error))
        if reason is None:
            raise
        if reason == NO_COLUMN and accepted:
            margins = case.library("predict", lambda: case.contrasts)
            if np.ptp(margins, axis=0).any():
                raise
        if reason == TOO_LARGE and case.magnitude.max() < 1e10:
            raise
        report.refusals.append(reason)
    except (RuntimeError, MemoryError) as error:
        reason = refusal(drawn, True, str(error))
        if reason not in (LOST_DIGITS, NO_GPU_MEMORY, FAILED_STEP):
            raise
        report.refusals.append(reason)
