"""The pool of threads: equal bits for any number of threads, forks, nested calls, interrupts, idling."""

from __future__ import annotations

import os
import time
from functools import cache
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from helpers.ensembles import full_tree, random_ensemble, random_rows, random_weights
from helpers.kernels import interrupted, once, run, same_bits
from helpers.plans import with_intervals

from skshapgpu import _core
from skshapgpu.adapters.ensemble import Ensemble, attributes_of

pytestmark = once

THREADS = (2, 3, 5, 16)
N_ROWS = (1, 63, 64, 65, 1000)
#: Kinds that take longer.
DEAR, FEW_THREADS, FEW_ROWS = ("treeshap", "pairs", "triples"), (3, 16), (1, 65)


@cache
def large(vector: bool = False) -> Ensemble:
    """Draw a model so large that one row pays for several threads, and a block of rows for 16."""
    return random_ensemble(
        1,
        n_trees=40,
        n_features=12,
        n_outputs=3,
        vector=vector,
        shapes=("balanced", "random"),
        max_leaves=800,
        categorical=True,
        zero_missing=True,
    )


def plans(ensemble: Ensemble, precision: str) -> dict[str, Any]:
    """Compile a plan of every kind; those against background data are for fewer rows."""
    attributes, background = attributes_of(ensemble), random_rows(2, ensemble, 5)
    weights = random_weights(3, 5)
    against_background = _core.background_plan(attributes, precision, background, weights, "SII", 2**22)
    return {
        "values": _core.Plan(attributes, precision),
        "treeshap": _core.Plan(attributes, precision, method="treeshap"),
        "Banzhaf": _core.Plan(attributes, precision, index="BII"),
        "pairs": _core.Plan(attributes, precision, 2, "STII"),
        "triples": _core.Plan(attributes, precision, 3),
        "background": against_background,
        "background by intervals": with_intervals(against_background),
    }


def results(plan: Any, ensemble: Ensemble, X: np.ndarray, n_threads: int, dtype: str) -> list[np.ndarray]:
    """Compute everything that a plan computes, into arrays that hold NaN."""
    shape = len(X), ensemble.n_outputs
    values, margin = np.full((*shape, ensemble.n_features), np.nan, dtype), np.full(shape, np.nan)
    parts = {}
    if len(plan.pairs):
        parts["pairs"] = np.full((*shape, len(plan.pairs)), np.nan, dtype)
        parts["matrices"] = np.full((*shape, ensemble.n_features, ensemble.n_features), np.nan, dtype)
    if len(plan.triples):
        parts["triples"] = np.full((*shape, len(plan.triples)), np.nan, dtype)
    gaps = plan.explain(X, values, margin, n_threads, base_value=plan.base_value, **parts)
    result = [values, margin, gaps, *parts.values()]
    assert not any(np.isnan(each).any() for each in result)
    return result


@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize(("precision", "dtype"), [("single", "float32"), ("double", "float64")])
def test_bits_do_not_depend_on_threads(vector: bool, precision: str, dtype: str) -> None:
    ensemble = large(vector)
    X = random_rows(4, ensemble, max(N_ROWS))
    for kind, plan in plans(ensemble, precision).items():
        for n_rows in FEW_ROWS if kind in DEAR else N_ROWS:
            expected = results(plan, ensemble, X[:n_rows], 1, dtype)
            assert len(np.unique(expected[1])) >= n_rows
            for n_threads in FEW_THREADS if kind in DEAR else THREADS:
                result = results(plan, ensemble, X[:n_rows], n_threads, dtype)
                for one, other in zip(expected, result, strict=True):
                    assert same_bits(one, other), (kind, n_rows, n_threads)


@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize("precision", ["single", "double"])
def test_plans_do_not_depend_on_the_threads_that_compile_them(vector: bool, precision: str) -> None:
    ensemble = large(vector)
    assert ensemble.n_leaves > 2 * 4096  # enough for several threads
    X = random_rows(4, ensemble, 70)
    attributes = attributes_of(ensemble)
    background, weights = random_rows(2, ensemble, 5), random_weights(3, 5)
    kinds: list[tuple[dict[str, Any], bool]] = [
        ({}, False),
        ({"index": "BII"}, False),
        ({"method": "treeshap"}, False),
        ({"order": 2}, False),
        ({}, True),
    ]
    for options, is_background in kinds:
        result = []
        for n_threads in (1, 2, 5):
            if is_background:
                plan = _core.background_plan(
                    attributes, precision, background, weights, "SII", 2**22, n_threads
                )
            else:
                plan = _core.Plan(attributes, precision, n_threads=n_threads, **options)
            info = plan.info() | {"table_seconds": 0.0}
            result.append((info, results(plan, ensemble, X, 1, "float64")))
        assert result[0][0]["n_chunks"] >= 5
        for info, values in result[1:]:
            assert info == result[0][0], options
            for one, other in zip(result[0][1], values, strict=True):
                assert same_bits(one, other), options


def test_rows_beyond_the_memory_of_a_grid() -> None:
    """The sums of all chunks for all rows would take more memory than two threads may use for sums."""
    ensemble = random_ensemble(5, n_trees=400, n_features=100, n_outputs=4, vector=True, max_leaves=30)
    plan = _core.Plan(attributes_of(ensemble), "double")
    info = plan.info()
    n_rows, a_block = 700, info["n_chunks"] * 60 * 4 * 64 * 8  # most of the chunks use more than 60 features
    assert info["shared_bytes_per_thread"] == 4 << 20
    assert n_rows / 64 * a_block > 2 * info["shared_bytes_per_thread"]
    X = random_rows(5, ensemble, n_rows)
    expected = results(plan, ensemble, X, 1, "float64")
    for n_threads in (2, 3):
        for one, other in zip(expected, results(plan, ensemble, X, n_threads, "float64"), strict=True):
            assert same_bits(one, other)


def test_large_models_have_enough_chunks_for_many_threads() -> None:
    assert large().n_leaves > 30 * 512
    assert _core.Plan(attributes_of(large()), "single").info()["n_chunks"] >= 24
    # Adding up the sums of a chunk takes longer than walking it, unless it has many leaves for each sum.
    for n_features, is_split in [(5, True), (500, False)]:
        ensemble = random_ensemble(
            6, n_trees=60, n_features=n_features, shapes=("balanced", "random"), max_leaves=60
        )
        info = _core.Plan(attributes_of(ensemble), "single").info()
        assert max(group["n_leaves"] for group in info["groups"]) > 512
        assert (info["n_chunks"] > len(info["groups"])) == is_split


# Other threads and processes


def test_nested_in_threads_of_joblib() -> None:
    ensemble = large()
    X = random_rows(6, ensemble, 300)
    plan = _core.Plan(attributes_of(ensemble), "single")
    expected = results(plan, ensemble, X, 1, "float32")[0]
    starts = [11 * i % 200 for i in range(40)]
    result = joblib.Parallel(4, backend="threading")(
        joblib.delayed(results)(plan, ensemble, X[i : i + 1 + i % 90], 1 + i % 4, "float32") for i in starts
    )
    for i, (values, *_) in zip(starts, result):
        assert same_bits(values, expected[i : i + 1 + i % 90])


PREAMBLE = """
import os, signal, sys, threading
import numpy as np
from test_threads import attributes_of, large, random_rows, results, same_bits
from skshapgpu import _core
ensemble = large()
plan = _core.Plan(attributes_of(ensemble), "single")
X = random_rows(7, ensemble, 130)
def explain(n_threads=4):
    return results(plan, ensemble, X, n_threads, "float32")[0]
expected = explain(1)
assert same_bits(explain(), expected)
def end(child):
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == 0, status
"""


def run_here(code: str) -> None:
    """Run a program that may import this file, in a process that is killed if it hangs."""
    folder = str(Path(__file__).parent)
    lines = f"import sys\nsys.path[:0] = [{folder!r}, {str(Path(folder).parent)!r}]\n"
    result = run(["-W", "ignore", "-c", lines + PREAMBLE + code])
    assert result.returncode == 0, f"exit status {result.returncode}: {result.stdout}"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="has no fork")
def test_forks_while_the_pool_exists_and_works() -> None:
    """A child forks again, and forks happen in the middle of other threads' calls."""
    run_here("""
stop = threading.Event()
def work():
    while not stop.is_set():
        assert same_bits(explain(), expected)
threads = [threading.Thread(target=work) for _ in range(2)]
for busy in (False, True):
    if busy:
        for thread in threads:
            thread.start()
    for i in range(10):
        child = os.fork()
        if not child:
            signal.alarm(60)
            same = same_bits(explain(), expected)
            if i == 0:
                grandchild = os.fork()
                if not grandchild:
                    signal.alarm(60)
                    os._exit(0 if same_bits(explain(3), expected) else 1)
                end(grandchild)
            os._exit(0 if same else 1)
        assert same_bits(explain(), expected)
        end(child)
stop.set()
for thread in threads:
    thread.join()
""")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="has no fork")
def test_fork_in_the_middle_of_a_call() -> None:
    """If a signal handler forks, the child lacks the threads that had begun parts of the call."""
    run_here("""
rows = np.tile(X, (60, 1))
child = None
def fork(*_):
    global child
    child = os.fork()
    if not child:
        signal.alarm(60)
signal.signal(signal.SIGALRM, fork)
while child is None:
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        values = results(plan, ensemble, rows, 4, "float32")[0]
    except RuntimeError as error:
        os._exit(0 if child == 0 and "forked" in str(error) else 1)
    if child == 0:  # the call had ended before
        os._exit(0)
    assert same_bits(values[:130], expected)
signal.setitimer(signal.ITIMER_REAL, 0)
end(child)
""")


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="reads /proc")
def test_threads_stay_and_leave_signals_to_others() -> None:
    run_here("""
def blocked(task):
    with open(f"/proc/self/task/{task}/status") as lines:
        return int(next(line for line in lines if line.startswith("SigBlk")).split()[1], 16)
before = set(os.listdir("/proc/self/task"))
for _ in range(5):
    explain()
assert set(os.listdir("/proc/self/task")) == before
bit = 1 << (signal.SIGINT - 1)
pool = [task for task in before if blocked(task) & bit]
assert len(pool) >= 3 and str(os.getpid()) not in pool
""")


# Interruption, rest


def test_ctrl_c_with_few_rows() -> None:
    """The interrupt must end a job of minutes on a single block of rows."""
    tree = full_tree(np.random.default_rng(8), 10, 40)
    ensemble = Ensemble.from_trees([tree] * 300, n_features=40, intercept=0)
    plan = _core.Plan(attributes_of(ensemble), "double", 3)
    X = np.random.default_rng(8).random((64, 40), np.float32)
    values = np.empty((64, 1, 40))
    with interrupted(0.2):
        while True:
            plan.explain(X, values, None, 3)
    few = _core.Plan(attributes_of(large()), "double")
    rows = random_rows(9, large(), 10)
    expected = results(few, large(), rows, 1, "float64")
    assert same_bits(results(few, large(), rows, 3, "float64")[0], expected[0])


def test_idle_threads_take_no_time() -> None:
    ensemble = large()
    plan, X = _core.Plan(attributes_of(ensemble), "single"), random_rows(10, ensemble, 5)
    results(plan, ensemble, X, 8, "float32")
    begin = time.process_time()
    time.sleep(0.5)
    assert time.process_time() - begin < 0.05
