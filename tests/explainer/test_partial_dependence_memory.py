"""Resident memory of `partial_dependence` with a `memory_limit`, measured from outside."""

from __future__ import annotations

import os

import pytest
from helpers.processes import run_python

pytestmark = pytest.mark.skipif(
    not os.access("/proc/self/clear_refs", os.W_OK), reason="only Linux reports the peak of the memory"
)

#: Each call is repeated until it fits: a MemoryError raises the limit by a quarter. A smaller call is made
#: before, so that neither what the first call imports nor the threads that it starts count. The line of a
#: call has its limit, its peak, and how often it failed. The pages of libraries' code do not count: the
#: kernel maps more or fewer of them, depending on what it holds in its cache.
SCRIPT = """
import ctypes
import os
import sys
import numpy as np
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier, RandomForestRegressor
from skshapgpu import TreeExplainer, partial_dependence

def resident(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(name))

def measure(name, model, X, features=0, **options):
    sys.stdout.flush()
    if child := os.fork():
        os.waitpid(child, 0)
        return
    model = TreeExplainer(model)
    partial_dependence(model, X[:5000], features, **options)
    limit, n_failed = 3 * 2**20, 0
    while True:
        ctypes.CDLL(None).malloc_trim(0)
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
        before = resident("RssAnon")
        try:
            result = partial_dependence(model, X, features, memory_limit=limit, **options)
            break
        except MemoryError as error:
            assert "memory_limit" in str(error)
            limit, n_failed = limit * 5 // 4, n_failed + 1
    peak = resident("VmHWM") - resident("RssFile")
    print(name, limit, peak - before, n_failed, sep="\t")
    sys.stdout.flush()
    os._exit(0)

rng = np.random.default_rng(0)
X = rng.normal(size=(60_000, 10))
y = X[:, 0] * X[:, 1] + X[:, 2]
few = slice(3000)
forest = RandomForestRegressor(20, max_depth=12, random_state=0).fit(X[few], y[few])
classes = RandomForestClassifier(5, max_depth=8, random_state=0).fit(X[few], np.digitize(y[few], [-1, 1]))
binary = GradientBoostingClassifier(n_estimators=10, random_state=0).fit(X[few], y[few] > 0)
large = RandomForestRegressor(20, random_state=0).fit(X[:30_000], y[:30_000])
measure("average", forest, X)
measure("average of two", forest, X, (0, 1))
measure("average of a large forest", large, X)
measure("integers", forest, (9 * X).astype(np.int64))
measure("columns", forest, np.asfortranarray(X))
measure("probability", binary, X, model_output="probability")
measure("fine grid", classes, X, (0, 1), grid_resolution=200)
measure("individual", forest, X, kind="individual")
measure("individual classes", classes, X[:20_000], kind="individual")
measure("both", forest, X, kind="both")
measure("both centered", forest, X, kind="both", centered=True)
measure("both probability", binary, X, kind="both", model_output="probability")
"""


def test_calls_stay_below_their_limit() -> None:
    lines = [line.split("\t") for line in run_python(SCRIPT, OMP_NUM_THREADS="1").splitlines()]
    assert len(lines) == 12
    too_much = {name: (int(limit), int(peak)) for name, limit, peak, _ in lines if int(peak) > int(limit)}
    assert not too_much
    failed = {name for name, _, _, n_failed in lines if int(n_failed)}
    assert {"individual", "both", "both probability", "fine grid"} <= failed
