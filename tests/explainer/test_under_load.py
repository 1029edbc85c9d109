"""Forked processes, signals, full disks, lack of memory and interpreter shutdown in the middle of work."""

from __future__ import annotations

import contextlib
import importlib
import json
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from ctypes.util import find_library
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import TESTS
from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor

from skshapgpu import TreeExplainer
from skshapgpu._engine.kind_plans import KindPlan

X, Y = load_diabetes(return_X_y=True)

#: First lines of the programs that are interrupted or run out of memory; they do not import the tests.
PREAMBLE = """
import os, resource, signal, sys, threading, time
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor
from skshapgpu import TreeExplainer

X, Y = load_diabetes(return_X_y=True)
model = RandomForestRegressor(30, random_state=0, n_jobs=1).fit(X, Y)
"""


@pytest.fixture(scope="module")
def explainer() -> TreeExplainer:
    model = RandomForestRegressor(20, max_depth=7, random_state=0).fit(X, Y)
    return TreeExplainer(model, device="cpu", n_jobs=2)


def program(
    code: str, *arguments: Any, timeout: float = 60, preloaded: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; return its output and exit status."""
    return subprocess.run(
        [sys.executable, "-c", PREAMBLE + code, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        env=os.environ | ({"LD_PRELOAD": preloaded} if preloaded else {}),
    )


# Other processes


@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_explainers_in_other_processes(explainer: TreeExplainer, method: str) -> None:
    """The parent has used its threads already."""
    expected = explainer.shap_values(X)
    if method == "spawn" and not hasattr(sys.modules["__main__"], "__file__"):
        pytest.skip("a program without a file cannot be spawned")
    parts = np.array_split(X, 4)
    with multiprocessing.get_context(method).Pool(2) as pool:
        result = pool.map_async(explainer.shap_values, parts).get(120)
    np.testing.assert_array_equal(np.concatenate(result), expected)


def test_a_child_of_a_fork_and_its_parent_go_on(explainer: TreeExplainer) -> None:
    expected = explainer.shap_values(X)
    pid = os.fork()
    if not pid:
        same = (explainer.shap_values(X) == expected).all()
        os._exit(0 if same else 1)
    np.testing.assert_array_equal(explainer.shap_values(X), expected)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_fork_while_another_thread_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child lacks the thread that would end the compilation, and used to wait for it for ever."""
    model = RandomForestRegressor(5, max_depth=4, random_state=0).fit(X, Y)
    explainer = TreeExplainer(model, device="cpu")
    expected = TreeExplainer(model, device="cpu").shap_interaction_values(X[:5])
    begun, forked = threading.Event(), threading.Event()
    original = KindPlan._compile

    def slow(self: KindPlan, *args: Any) -> Any:
        begun.set()
        assert forked.wait(60)
        return original(self, *args)

    monkeypatch.setattr(KindPlan, "_compile", slow)
    thread = threading.Thread(target=explainer.shap_interaction_values, args=(X[:5],))
    thread.start()
    assert begun.wait(60)
    pid = os.fork()
    if not pid:
        signal.alarm(60)
        monkeypatch.undo()
        same = (explainer.shap_interaction_values(X[:5]) == expected).all()
        os._exit(0 if same else 1)
    forked.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


# Ctrl-C


@pytest.mark.parametrize(
    "work",
    [
        "explainer.shap_values(many)",
        "explainer.explain_interactions(many, interactions=3)",
        "against.shap_values(many)",
        "explainer.save(path)",
        "TreeExplainer.load(path, device='cpu').shap_values(many)",
    ],
)
def test_ctrl_c(work: str, tmp_path: Path) -> None:
    """The interrupt ends the work at once and leaves only complete files."""
    path = tmp_path / "file"
    code = f"""
path = sys.argv[1]
many = np.tile(X, (2000, 1))
explainer = TreeExplainer(model, device="cpu", n_jobs=2, algorithm="quadrature")
against = TreeExplainer(model, X[:200], device="cpu", n_jobs=2)
explainer.save(path)
explainer.shap_values(X)
signal.signal(signal.SIGINT, signal.default_int_handler)  # a parent may have had it ignored
print("ready", flush=True)
while True:
    {work}
"""
    running = subprocess.Popen(
        [sys.executable, "-c", PREAMBLE + code, str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert running.stdout is not None and running.stdout.readline() == "ready\n"
        time.sleep(0.7)
        for _ in range(3):  # Python drops an interrupt that arrives while it finalizes an object
            start = time.monotonic()
            running.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                _, errors = running.communicate(timeout=15)
                break
        seconds = time.monotonic() - start
    finally:
        running.kill()
    # Notes may follow it: a decoder adds one.
    assert "KeyboardInterrupt" in errors.splitlines() and running.returncode == -signal.SIGINT
    assert seconds < 5
    assert os.listdir(tmp_path) == ["file"]
    TreeExplainer.load(path, device="cpu")


#: Compilations of several seconds.
COMPILATIONS = {
    "background": "_core.background_plan(trees, 'single', X, weights, 'SII', 2**28)",
    "background pairs": "_core.BackgroundPairsPlan(trees, 'single', X, weights, 'SII', 2**28)",
}


@pytest.mark.parametrize("compilation", COMPILATIONS)
def test_ctrl_c_while_compiling(compilation: str) -> None:
    """The core asks for interrupts while it compiles, as it does in calls."""
    code = f"""
import signal, sys
import numpy as np
sys.path.insert(0, {str(TESTS)!r})
from helpers.ensembles import random_ensemble
from skshapgpu import _core
from skshapgpu.adapters.ensemble import attributes_of
trees = attributes_of(random_ensemble(0, n_trees=300, n_features=12, max_leaves=100))
X = np.random.default_rng(0).normal(size=(600_000, 12)).astype(np.float32)
weights = np.full(len(X), 1 / len(X))
signal.signal(signal.SIGINT, signal.default_int_handler)
print("ready", flush=True)
{COMPILATIONS[compilation]}
"""
    running = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert running.stdout is not None and running.stdout.readline() == "ready\n"
        time.sleep(0.5)
        start = time.monotonic()
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=30)
        seconds = time.monotonic() - start
    finally:
        running.kill()
    assert "KeyboardInterrupt" in errors.splitlines() and running.returncode == -signal.SIGINT
    assert seconds < 3  # other tests run beside it; on an idle machine, it takes a tenth of a second


# Too little memory, a full disk


@pytest.mark.parametrize("other_runtime", [False, True])
def test_too_little_memory_in_the_middle(other_runtime: bool) -> None:
    """A failed allocation raises an error, and the explainer works once there is memory again.

    Only the calling thread works: if there is no memory for the thread-local data of another thread, the C++
    runtime terminates the process. There are no tables, because with tables NumPy may run out of memory for
    the buffers of an iterator, which also terminates the process.
    """
    code = """
explainer = TreeExplainer(model, algorithm="quadrature", device="cpu", n_jobs=1)
rows = np.tile(X, (40, 1))
expected = explainer.shap_values(rows)
interactions = explainer.shap_interaction_values(X)
n_errors = 0
for room in np.linspace(0, 32, 9):
    in_use = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (in_use + int(room * 2**20), resource.RLIM_INFINITY))
    for work in (
        lambda: explainer.shap_values(rows),
        lambda: explainer.shap_interaction_values(X),
        lambda: TreeExplainer(model, X, device="cpu", n_jobs=1).shap_values(X),
        lambda: TreeExplainer(model, algorithm="fast_v2", device="cpu"),
    ):
        try:
            work()
        except (MemoryError, RuntimeError, ValueError) as error:
            n_errors += 1
            kinds = type(error).__name__, str(error)
            assert isinstance(error, MemoryError) or "thread" in str(error) or "fast_v2" in str(error), kinds
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert (explainer.shap_values(X) == expected[: len(X)]).all()
assert (explainer.shap_interaction_values(X) == interactions).all()
print(n_errors)
"""
    # Programs may have a C++ runtime for the whole process, as Debian's Python 3.14 has; wheels have theirs.
    preloaded = find_library("stdc++") if other_runtime else None
    if other_runtime and (preloaded is None or "LD_PRELOAD" in os.environ):
        pytest.skip("no other C++ runtime can be loaded first")
    ended = program(code, timeout=300, preloaded=preloaded)
    assert ended.returncode == 0, ended.stderr
    assert int(ended.stdout) > 3


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits the address space in this way")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_too_little_memory_for_a_thread() -> None:
    """A thread whose stack fits, but not its own variables, used to end the process with status 127."""
    code = """
from skshapgpu import _core
from skshapgpu.adapters import adapt
from skshapgpu.adapters.ensemble import attributes_of
model = RandomForestRegressor(30, max_depth=6, random_state=0, n_jobs=1).fit(X, Y)
plan = _core.Plan(attributes_of(adapt(model).ensemble), "single")
rows = np.tile(X, (40, 1)).astype(np.float32)
values = np.empty((len(rows), 1, rows.shape[1]), np.float32)
plan.explain(rows, values, None, 1)
values = np.empty_like(values)
stack = resource.getrlimit(resource.RLIMIT_STACK)[0]
failed = []
for room in range(stack - 2**16, stack + 2**20, 4096):
    if not (child := os.fork()):
        in_use = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (in_use + room, resource.RLIM_INFINITY))
        try:
            plan.explain(rows, values, None, 2)
        except (MemoryError, RuntimeError):
            pass
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        failed.append(room - stack)
print(failed)
"""
    ended = program(code, timeout=120)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "[]\n"


def test_a_full_disk(tmp_path: Path) -> None:
    """A file size limit simulates a full disk: only the previous file remains."""
    code = """
path = sys.argv[1]
explainer = TreeExplainer(model, device="cpu")
explainer.save(path)
size = os.path.getsize(path)
n_errors = 0
for limit in np.linspace(0, size * 1.1, 12).astype(int):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        explainer.save(path)
    except OSError:
        n_errors += 1
    assert os.listdir(os.path.dirname(path)) == ["file"], os.listdir(os.path.dirname(path))
    assert os.path.getsize(path) == size
assert n_errors == 10, n_errors
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
values = TreeExplainer.load(path, device="cpu").shap_values(X)
assert (values == explainer.shap_values(X)).all()
"""
    ended = program(code, tmp_path / "file")
    assert ended.returncode == 0, ended.stderr


# The end of the interpreter


@pytest.mark.parametrize("end", ["pass", "sys.exit(0)", "raise SystemExit"])
def test_the_interpreter_ends_while_threads_explain(end: str) -> None:
    """The threads are daemons, which Python may stop anywhere."""
    code = f"""
explainer = TreeExplainer(model, device="cpu", n_jobs=2)
rows = np.tile(X, (20, 1))

def work():
    while True:
        explainer.shap_values(rows)
        TreeExplainer(model, X[:50], device="cpu", n_jobs=2).shap_values(X)

for _ in range(4):
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.5)
{end}
"""
    for _ in range(2):
        ended = program(code)
        assert (ended.returncode, ended.stdout) == (0, ""), ended.stderr


@pytest.mark.parametrize(
    "library, name, options",
    [
        ("sklearn.ensemble", "RandomForestRegressor", {"n_estimators": 3}),
        ("sklearn.ensemble", "HistGradientBoostingRegressor", {"max_iter": 3}),
        ("xgboost", "XGBRegressor", {"n_estimators": 3}),
        ("lightgbm", "LGBMRegressor", {"n_estimators": 3, "verbose": -1}),
        ("catboost", "CatBoostRegressor", {"n_estimators": 3, "verbose": 0, "allow_writing_files": False}),
    ],
)
def test_explaining_calls_nothing_that_aborts_in_daemon_threads(
    library: str, name: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """``np.unique`` without options does, in NumPy 2.3 and later, but too rarely to test it as it happens."""
    model = getattr(pytest.importorskip(library), name)(**options)
    model.fit(X, Y)
    sizes, unique = [], np.unique

    def counting(numbers: Any, *args: Any, **options: Any) -> Any:
        assert options.get("return_index") or options.get("return_inverse") or options.get("return_counts")
        sizes.append(np.size(numbers))
        return unique(numbers, *args, **options)

    monkeypatch.setattr(np, "unique", counting)
    for background in ((), (X[:50],)):
        explainer = TreeExplainer(model, *background, device="cpu")
        assert explainer(X[:40]).values.shape == (40, X.shape[1])
        assert explainer.shap_interaction_values(X[:5]).shape == (5, X.shape[1], X.shape[1])
    assert sizes


# All of it together


@pytest.fixture
def ten_seconds() -> Iterator[Any]:
    soak = importlib.import_module("soak")
    yield soak.soak(10)


def test_ten_seconds_of_the_soak(ten_seconds: Any) -> None:
    """``./dev soak`` runs for ten minutes; see there."""
    soak = importlib.import_module("soak")
    grown, allowed = soak.growth(ten_seconds)
    assert ten_seconds[-1].rows > 1000
    # In ten seconds, the threads still spend some time on their first work of each kind.
    assert grown < 2 * allowed
    assert json.dumps(soak.report(ten_seconds))
    assert pickle.dumps(ten_seconds)
