"""The compiled kernels on the CPU and on a GPU, ways to call them, and checks that hold for every call."""

from __future__ import annotations

import _thread
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from helpers.ensembles import leaf_scale
from skshapgpu import TreeExplainer, reference
from skshapgpu.adapters.ensemble import Ensemble, attributes_of

#: In units of the sum of the output's absolute leaf values.
TOLERANCE = {"single": 2e-6, "double": 1e-10}
ISA = os.environ.get("SKSHAPGPU_ISA")

once = pytest.mark.skipif(ISA is not None, reason="SKSHAPGPU_ISA restricts this run to one instruction set")
both_precisions = pytest.mark.parametrize("precision", ["single", "double"])


@contextmanager
def interrupted(seconds: float, most_seconds: float = 5) -> Iterator[None]:
    """Interrupt a block of code after some seconds, and require that KeyboardInterrupt ends it in time."""
    ended = threading.Event()

    def interrupt() -> None:
        for _ in range(3):  # Python drops an interrupt that arrives while it finalizes an object
            _thread.interrupt_main()
            if ended.wait(1.4):
                break

    timer = threading.Timer(seconds, interrupt)
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # may be ignored
    timer.start()
    begin = time.perf_counter()
    try:
        with pytest.raises(KeyboardInterrupt):
            yield
        assert time.perf_counter() - begin < most_seconds
    finally:
        ended.set()
        timer.join()
        signal.signal(signal.SIGINT, handler)


class CudaPlan:
    """``Plan`` whose ``explain`` runs on the first GPU."""

    def __init__(self, attributes: dict[str, Any], precision: str) -> None:
        from skshapgpu import _core, _cuda

        self.plan = _core.Plan(attributes, precision)
        self.cuda = _cuda.CudaPlan(self.plan, 0)
        self.info = self.plan.info

    @property
    def base_value(self) -> np.ndarray:
        return self.plan.base_value

    def explain(self, X: np.ndarray, values: np.ndarray, margin: np.ndarray | None, n_threads: int) -> None:
        if not isinstance(margin, np.ndarray) or margin.ndim != 2:
            self.cuda.explain(X, values, margin, None, 0)
            return
        gap = np.full(margin.shape[1], np.nan)
        self.cuda.explain(X, values, margin, gap, 0)
        expected = np.abs(values.sum(axis=2, dtype=np.float64) + self.base_value - margin)
        expected = expected.max(axis=0, initial=0)
        tolerance = 1e-13 * (1 + np.abs(values).sum(axis=2, dtype=np.float64).max(axis=0, initial=0))
        assert_within(gap, expected, tolerance + 1e-13 * np.abs(self.base_value), "gap")


def explain(
    plan: Any, ensemble: Ensemble, X: np.ndarray, *, dtype: str = "float64", n_threads: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """Compute values and margin into arrays that are filled with NaN before the call."""
    values = np.full((len(X), ensemble.n_outputs, ensemble.n_features), np.nan, dtype)
    margin = np.full((len(X), ensemble.n_outputs), np.nan)
    plan.explain(X, values, margin, n_threads)
    return values, margin


def splits_on(ensemble: Ensemble) -> np.ndarray:
    """Return, for each output and feature, whether some tree of the output splits on the feature."""
    used = np.zeros((ensemble.n_outputs, ensemble.n_features), bool)
    for start, stop, output in zip(ensemble.tree_offsets, ensemble.tree_offsets[1:], ensemble.tree_output):
        features = ensemble.feature[start:stop][ensemble.left[start:stop] >= 0]
        used[slice(None) if output < 0 else output, features] = True
    return used


def assert_within(got: np.ndarray, expected: np.ndarray, tolerance: np.ndarray, name: str) -> None:
    wrong = ~(np.abs(got - expected) <= tolerance)  # so that an unwritten NaN fails
    if wrong.any():
        worst = tuple(int(i) for i in np.argwhere(wrong)[0])
        limit = np.broadcast_to(tolerance, wrong.shape)[worst]
        raise AssertionError(
            f"{name}{worst}: {got[worst]!r} instead of {expected[worst]!r}, "
            f"tolerance {limit:.3g}; {wrong.sum()} of {wrong.size} are wrong"
        )


def assert_consistent(
    ensemble: Ensemble, X: np.ndarray, plan: Any, precision: str, values: np.ndarray, margin: np.ndarray
) -> None:
    """Check the margin, additivity and zeros of unused features, for which no reference values are needed."""
    largest = np.abs(ensemble.intercept) + leaf_scale(ensemble)
    expected = ensemble.margin(X)
    assert_within(margin, expected, 1e-9 * np.abs(expected) + 1e-14 * largest, "margin")
    total = values.sum(axis=2, dtype=np.float64) + plan.base_value
    bound = TOLERANCE[precision] if values.dtype == np.float64 else TOLERANCE["single"]
    assert_within(total, expected, bound * leaf_scale(ensemble) + 1e-14 * largest, "sum of values")
    assert (values[:, ~splits_on(ensemble)] == 0).all()


def assert_exact(
    core: ModuleType, ensemble: Ensemble, X: np.ndarray, precision: str, dtype: str = "float64"
) -> None:
    """Check all results at once against the definition."""
    plan = core.Plan(attributes_of(ensemble), precision)
    values, margin = explain(plan, ensemble, X, dtype=dtype)
    assert_consistent(ensemble, X, plan, precision, values, margin)
    expected, base, _ = reference.path_dependent(ensemble, X)
    scale = leaf_scale(ensemble)
    base_value = plan.base_value
    assert base_value.dtype == np.float64 and base_value.shape == (ensemble.n_outputs,)
    assert_within(base_value, base, 1e-12 * (scale + np.abs(ensemble.intercept)), "base_value")
    tolerance = TOLERANCE[precision] * scale[:, np.newaxis]
    if dtype == "float32":
        tolerance = tolerance + np.finfo(np.float32).eps * np.abs(expected)
    assert_within(values, expected, tolerance, "values")


def same_bits(array: np.ndarray, other: np.ndarray) -> bool:
    return array.dtype == other.dtype and array.shape == other.shape and array.tobytes() == other.tobytes()


def assert_values(
    plan: Any, ensemble: Ensemble, rows: np.ndarray, expected: np.ndarray, precision: str
) -> None:
    """Compare values of a plan with the expected ones, and margins with the ensemble's."""
    scale = leaf_scale(ensemble)
    rounding = 1e-14 * (np.abs(ensemble.intercept) + scale)
    values, margin = explain(plan, ensemble, rows)
    assert (np.abs(values - expected) <= TOLERANCE[precision] * scale[:, np.newaxis]).all()
    assert (np.abs(margin - ensemble.margin(rows)) <= 1e-12 * scale + rounding).all()


def assert_layouts_do_not_matter(plan: Any, ensemble: Ensemble, rows: np.ndarray, dtype: str) -> None:
    """Compare the bits of values for rows in several layouts of memory."""
    values, _ = explain(plan, ensemble, rows, dtype=dtype)
    for other in (np.asfortranarray(rows), np.repeat(rows, 2, axis=0)[::2], rows[::-1][::-1]):
        assert same_bits(explain(plan, ensemble, other, dtype=dtype)[0], values)


def algorithms_of(explainer: TreeExplainer, n_rows: int) -> set[str]:
    """Return the names of the algorithms with which a call explains its trees."""
    return {group.algorithm for group in explainer.plan(n_rows).tree_groups}


def run(arguments: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        env=os.environ | environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
