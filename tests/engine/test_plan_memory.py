"""Memory of a call: predicted by ``TreeExplainer.plan``, bounded by errors, and measured in a process."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_diabetes, load_iris
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

from skshapgpu import TreeExplainer
from skshapgpu._common import memory
from skshapgpu._common.memory import Need

X, Y = load_diabetes(return_X_y=True)


@pytest.fixture(scope="module")
def forest() -> RandomForestRegressor:
    return RandomForestRegressor(5, max_depth=4, random_state=0).fit(X, Y)


def explainer_of(model: Any, **options: Any) -> TreeExplainer:
    return TreeExplainer(model, **{"device": "cpu", "n_jobs": 1, **options})


# Refusals


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_call_is_refused_as_the_plan_says(forest: RandomForestRegressor, dtype: str) -> None:
    """A call fails below the same limit as the plan, with the same message; float32 takes half the memory."""
    rows = X.astype(dtype)
    enough = explainer_of(forest, memory_limit="1GB").plan(len(X), dtype=dtype)
    assert enough.refusal is None and enough.result_bytes == rows.nbytes
    outcomes = set()
    for limit in np.linspace(enough.result_bytes // 2, 2 * enough.peak_bytes, 40).astype(int):
        explainer = explainer_of(forest, memory_limit=int(limit))
        refusal = explainer.plan(len(X), dtype=dtype).refusal
        outcomes.add(refusal is None)
        if refusal is None:
            assert explainer.shap_values(rows).shape == X.shape
        else:
            with pytest.raises(MemoryError) as raised:
                explainer.shap_values(rows)
            assert str(raised.value) == refusal
    assert outcomes == {True, False}


def test_results_larger_than_the_machine(
    forest: RandomForestRegressor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "machine_bytes", lambda: X.nbytes - 1)
    explainer = explainer_of(forest)
    plan = explainer.plan(len(X))
    assert plan.refusal == (
        f"the machine has {X.nbytes - 1:,} bytes, but 442 rows need {X.nbytes:,} for their SHAP values "
        "(10 features, 1 output); explain fewer rows"
    )
    assert f"refused: {plan.refusal}" in str(plan)
    with pytest.raises(MemoryError) as raised:
        explainer.explain(X)
    assert str(raised.value) == plan.refusal
    assert explainer.plan(len(X), dtype="float32").refusal is None
    assert explainer.explain(X.astype(np.float32)).shape == X.shape
    with pytest.raises(MemoryError, match="explain fewer rows, or ask for fewer pairs"):
        explainer.explain_interactions(X)


def test_results_larger_than_any_machine(forest: RandomForestRegressor) -> None:
    plan = explainer_of(forest).plan(3 * 10**12)
    assert plan.result_bytes == 240 * 10**12
    assert plan.refusal is not None and "240,000,000,000,000" in plan.refusal and plan.seconds > 0


def test_a_machine_that_does_not_tell(forest: RandomForestRegressor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "machine_bytes", lambda: None)
    assert explainer_of(forest).plan(3 * 10**12).refusal is None
    assert memory.table_bytes(None, requested=True) == memory.TABLE_BYTES


def test_peaks_and_chunks() -> None:
    need = Need(
        n_rows=100, result_row=80, work_row=16, tables=1000, fixed=500, what="values", advice="or give up"
    )
    least = 100 * 80 + 1000 + 500 + 16
    assert need.rows_at_once(least) == 1 and need.peak(1) == least
    assert need.rows_at_once(least + 3 * 16 + 15) == 4 and need.peak(4) == least + 3 * 16
    assert need.peak(10**6) == 8000 + 1000 + 500 + 1600
    with pytest.raises(
        MemoryError, match="of which tables take 1,000, but 100 rows need 8,000 for their values"
    ):
        need.rows_at_once(least - 1)
    with pytest.raises(MemoryError, match="raise memory_limit, or give up"):
        need.rows_at_once(1501)
    with pytest.raises(MemoryError, match=r"raise memory_limit above 1,500, which any call needs$"):
        need.rows_at_once(1500)
    with pytest.raises(MemoryError, match=r"^the machine has 7,999 bytes, .*; give up"):
        need.rows_at_once(None, 7999)
    assert need.rows_at_once(None, 8000) == memory.CHUNK_BYTES // 16


@pytest.mark.parametrize("dtype", ["float16", None, np.float32])
def test_dtypes_that_values_do_not_have(forest: RandomForestRegressor, dtype: Any) -> None:
    with pytest.raises(ValueError, match="dtype must be one of 'float64', 'float32'"):
        explainer_of(forest).plan(10, dtype=dtype)


def test_several_outputs() -> None:
    features, classes = load_iris(return_X_y=True)
    model = RandomForestClassifier(3, random_state=0).fit(features, classes)
    assert (
        explainer_of(model).plan(1000).result_bytes
        == explainer_of(model).shap_values(np.resize(features, (1000, 4))).nbytes
    )


# Peak memory of a process

PROGRAM = """
import numpy as np
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from skshapgpu import TreeExplainer

def status(name):
    with open("/proc/self/status") as file:
        return next(1024 * int(line.split()[1]) for line in file if line.startswith(name + ":"))

rows = np.random.default_rng(0).random((60_000, 40), np.float32)
y = rows[:500, 0] + rows[:500, 1]
forest = RandomForestRegressor(5, max_depth=3, random_state=0).fit(rows[:500], y)
classes = RandomForestClassifier(3, max_depth=3, random_state=0).fit(rows[:500], np.digitize(y, [0.8, 1.2]))
for model, dtype, options in (
    (forest, "float64", {}),
    (forest, "float32", {}),
    (forest, "float64", {"n_jobs": 2, "precision": "double"}),
    (classes, "float64", {}),
    (forest, "float64", {"memory_limit": 21_000_000}),
):
    X = rows.astype(dtype)
    explainer = TreeExplainer(model, device="cpu", **options)
    explainer.explain(X[:2000])
    plan = explainer.plan(len(X), dtype=dtype)
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the peak is that of now
    before = status("VmRSS")
    explainer.explain(X)
    print(plan.peak_bytes, plan.result_bytes, status("VmHWM") - before, options.get("memory_limit", 10**12))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="peaks are read from /proc")
def test_peaks_are_those_of_the_process() -> None:
    """Prediction and measurement agree within a fifth, plus 3 MB that allocators and threads keep."""
    # glibc keeps freed memory, unless it was mapped in one piece, and the package keeps the memory of
    # results.
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "262144", "MALLOC_TRIM_THRESHOLD_": "262144"}
    environment |= {memory.KEPT_VARIABLE: "0"}
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True
    )
    cases = [tuple(map(int, line.split())) for line in run.stdout.splitlines()]
    assert [result for _, result, *_ in cases] == [19_200_000, 9_600_000, 19_200_000, 57_600_000, 19_200_000]
    for peak, result, measured, limit in cases:
        assert result < peak <= limit and result - 3e6 < measured < limit + 3e6
        assert peak / 1.2 - 3e6 < measured < 1.2 * peak + 3e6
