"""Plans of calls for interactions, triples, Banzhaf values and groups: sizes, refusals, estimated times."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_diabetes, load_iris
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier, RandomForestRegressor

from skshapgpu import TreeExplainer
from skshapgpu._common import memory
from skshapgpu._common.algorithms import SHAP_VALUES, Kind
from skshapgpu._engine.background_plans import TiledPlan
from skshapgpu._engine.call_plans import estimate
from skshapgpu._engine.execution import plan_on_cpu

X, Y = load_diabetes(return_X_y=True)
IRIS, SPECIES = load_iris(return_X_y=True)

FOREST = RandomForestRegressor(5, max_depth=4, random_state=0).fit(X, Y)
CLASSES = RandomForestClassifier(3, max_depth=4, random_state=0).fit(IRIS, SPECIES)

REQUESTS = [
    {"interactions": "matrices"},
    {"interactions": "occurring", "index": "STII"},
    {"interactions": 3, "index": "BII"},
    {"interactions": [(0, 2), (1, 3)]},
    {"interactions": "occurring", "order": 3},
    {"interactions": 2, "order": 3, "index": "BII"},
]


def explainer_of(model: Any, *data: Any, **options: Any) -> TreeExplainer:
    return TreeExplainer(model, *data, **{"device": "cpu", "n_jobs": 1, **options})


def values_of(explainer: TreeExplainer, rows: Any, request: dict[str, Any]) -> list[np.ndarray]:
    """Make the call that a plan describes, and return its results."""
    if request["interactions"] == "matrices":
        return [explainer.shap_interaction_values(rows)]
    explanation = explainer.explain_interactions(rows, **request)
    return [array for array in (explanation.values, explanation.single_values) if array is not None]


@pytest.mark.parametrize("model, rows", [(FOREST, X), (CLASSES, IRIS)], ids=["one output", "classes"])
@pytest.mark.parametrize("request_", REQUESTS, ids=str)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_sizes_are_those_of_the_results(model: Any, rows: Any, request_: Any, dtype: str) -> None:
    explainer, rows = explainer_of(model), rows.astype(dtype)
    n_bytes = sum(array.nbytes for array in values_of(explainer, rows, request_))
    plan = explainer.plan(len(rows), dtype=dtype, **request_)
    assert plan.result_bytes == n_bytes <= plan.peak_bytes and plan.device == "cpu"
    is_matrices = request_.get("interactions") == "matrices"
    assert plan.seconds > 0
    assert plan.result.endswith("SHAP interaction values" if is_matrices else " interactions")
    assert f"of {plan.result}, at most" in str(plan) and "not estimated" not in str(plan)


@pytest.mark.parametrize("request_", REQUESTS, ids=str)
def test_calls_are_refused_as_plans_say(request_: Any) -> None:
    enough = explainer_of(FOREST, memory_limit="1GB").plan(len(X), **request_)
    outcomes = set()
    for limit in np.linspace(enough.result_bytes // 2, 1.5 * enough.peak_bytes, 12).astype(int):
        explainer = explainer_of(FOREST, memory_limit=int(limit))
        refusal = explainer.plan(len(X), **request_).refusal
        outcomes.add(refusal is None)
        if refusal is None:
            values_of(explainer, X, request_)
        else:
            with pytest.raises(MemoryError) as raised:
                values_of(explainer, X, request_)
            assert str(raised.value) == refusal
    assert outcomes == {True, False}


def test_more_work_takes_more_time() -> None:
    explainer = explainer_of(FOREST, algorithm="quadrature")
    values, pairs, triples = (
        explainer.plan(10_000, **request).seconds
        for request in ({}, {"interactions": "matrices"}, {"interactions": "occurring", "order": 3})
    )
    assert values < pairs < triples
    assert explainer.plan(10_000, index="BV").seconds < values
    assert explainer.plan(10_000, interactions="occurring", index="BII").seconds < pairs
    assert explainer.plan(20_000, interactions="matrices").seconds > 1.5 * pairs
    few = explainer_of(FOREST, memory_limit=150_000).plan(1000, interactions=3)  # two passes
    assert few.seconds > 1.5 * explainer.plan(1000, interactions=3).seconds


def test_groups_and_background_data() -> None:
    explainer = explainer_of(FOREST, feature_groups={"s": [4, 5, 6, 7, 8, 9]})
    grouped = explainer.plan(100, interactions="matrices")
    assert grouped.result_bytes == 100 * 5 * 5 * 8 and grouped.seconds > 0
    explainer = explainer_of(FOREST, X[:50])
    plan = explainer.plan(1000, interactions="matrices")
    assert plan.seconds > 0 and plan.tree_groups == ()  # tables are made for each tile
    plan = explainer.plan(1000, index="BV")
    assert plan.result == "Banzhaf values" and plan.seconds > 0
    assert {group.algorithm for group in plan.tree_groups} == {"tables"}


def test_probabilities_of_several_classes() -> None:
    """The time grows with the rows and background rows; 64 and 384 background rows are whole blocks."""
    model = HistGradientBoostingClassifier(max_iter=5).fit(X[:, :3], np.digitize(Y, [100, 200]))
    few, many = (explainer_of(model, X[:n, :3], model_output="probability") for n in (64, 384))
    plan = few.plan(100)
    assert plan.seconds > 0 and plan.tree_groups == () and "not estimated" not in str(plan)
    assert 1.5 * plan.seconds < few.plan(200).seconds < 2.5 * plan.seconds
    assert 3 * plan.seconds < many.plan(100).seconds < 6 * plan.seconds


def test_algorithms_for_comparison_take_longer() -> None:
    fast = explainer_of(FOREST, algorithm="quadrature").plan(10_000)
    for algorithm in ("fast_v1", "treeshap"):
        plan = explainer_of(FOREST, algorithm=algorithm).plan(10_000)
        assert plan.seconds > 5 * fast.seconds and plan.tree_groups == ()
        assert "not estimated" not in str(plan)


def test_background_tables_that_are_too_large_for_gpus() -> None:
    deep = RandomForestRegressor(10, max_depth=8, random_state=0).fit(X, Y)
    limited = explainer_of(deep, X[:3], memory_limit=10_000)
    assert limited._compiled.of(Kind(2, "SII")).pair_tables is None
    assert limited.plan(1, interactions="occurring").seconds > 0


def test_what_is_not_estimated_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    explainer = explainer_of(FOREST, X[:3])
    monkeypatch.setattr(TiledPlan, "pair_tables_within", lambda *_: None)
    plan = explainer.plan(10, interactions="occurring")
    assert plan.seconds is None and "too many patterns" in str(plan.no_seconds_reason)
    assert "\ntime not estimated: the background data have too many patterns" in str(plan)


def test_probabilities_and_losses() -> None:
    """The time is proportional to the rows and to the background rows, which are whole blocks here."""
    model = HistGradientBoostingClassifier(max_iter=5).fit(X, Y > 150)
    for model_output in ("probability", "log_loss"):
        few, many = (explainer_of(model, X[:n], model_output=model_output) for n in (64, 320))
        plan = few.plan(10_000)
        assert plan.seconds > 0 and plan.no_seconds_reason is None
        assert plan.tree_groups == ()  # trees are not walked
        assert 1.5 * plan.seconds < few.plan(20_000).seconds < 2.5 * plan.seconds
        assert 2 * plan.seconds < many.plan(10_000).seconds < 5 * plan.seconds


def test_interactions_on_gpus_take_longer_than_values() -> None:
    compiled = explainer_of(FOREST)._compiled
    on_gpu = plan_on_cpu(compiled.of(SHAP_VALUES), 1000)._replace(indices=(0,))
    assert estimate(compiled, SHAP_VALUES, 1000, on_gpu) == (on_gpu.seconds, None)
    few, many = (estimate(compiled, Kind(2, "SII"), n_rows, on_gpu)[0] for n_rows in (1000, 100_000))
    assert on_gpu.seconds + 1e-4 < few < on_gpu.seconds + 2e-3
    assert many - few > 99_000 * 55 * 4e-10  # all pairs of ten columns are transferred


@pytest.mark.parametrize(
    "options, request_, message",
    [
        ({}, {"index": "SII"}, "index must be one of 'SV', 'BV'"),
        ({}, {"interactions": "all"}, "not 'all': matrices are arrays"),
        ({}, {"interactions": "all", "order": 3}, "a number or a list of triples, not 'all'"),
        ({}, {"interactions": [(0, 11)]}, "feature 11 is out of range"),
        ({"data": X[:9]}, {"interactions": 3, "order": 3}, "path-dependent only"),
        ({"algorithm": "treeshap"}, {"interactions": "occurring"}, "computes SHAP values only"),
    ],
)
def test_requests_are_refused_as_by_calls(options: Any, request_: Any, message: str) -> None:
    explainer = explainer_of(FOREST, **options)
    with pytest.raises(ValueError, match=message):
        explainer.plan(10, **request_)
    call = explainer.explain_interactions if "interactions" in request_ else explainer.explain
    with pytest.raises(ValueError, match=message):
        call(X, **request_)


def test_plans_of_matrices() -> None:
    explainer = explainer_of(FOREST)
    with pytest.raises(ValueError, match=r"plans shap_interaction_values.*not index='BII' and order=2"):
        explainer.plan(10, interactions="matrices", index="BII")
    with pytest.raises(ValueError, match=r"plans shap_interaction_values.*not index='SII' and order=3"):
        explainer.plan(10, interactions="matrices", order=3)
    only = "computes SHAP values only, not SHAP interaction values of pairs"
    for call in (
        partial(explainer_of(FOREST, algorithm="treeshap").plan, 10, interactions="matrices"),
        partial(explainer_of(FOREST, algorithm="treeshap").shap_interaction_values, X),
    ):
        with pytest.raises(ValueError, match=only):
            call()


PROGRAM = """
import numpy as np
from sklearn.ensemble import RandomForestRegressor
from skshapgpu import TreeExplainer

def status(name):
    with open("/proc/self/status") as file:
        return next(1024 * int(line.split()[1]) for line in file if line.startswith(name + ":"))

X = np.random.default_rng(0).random((30_000, 20))
forest = RandomForestRegressor(20, max_depth=4, random_state=0).fit(X[:500], X[:500, :8].sum(axis=1))
explainer = TreeExplainer(forest, device="cpu")
def call(rows, interactions):
    if interactions == "matrices":
        return explainer.shap_interaction_values(rows)
    return explainer.explain_interactions(rows, interactions=interactions)

for interactions in ("matrices", "occurring", 5):
    call(X[:2000], interactions)
    plan = explainer.plan(len(X), interactions=interactions)
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the peak is that of now
    before = status("VmRSS")
    call(X, interactions)
    print(plan.peak_bytes, plan.result_bytes, status("VmHWM") - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="peaks are read from /proc")
def test_peaks_are_those_of_the_process() -> None:
    """Calls use at least the result's memory, at most the predicted and 3 MB that threads keep."""
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "262144", "MALLOC_TRIM_THRESHOLD_": "262144"}
    environment |= {memory.KEPT_VARIABLE: "0"}
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=environment, timeout=300
    )
    assert not run.stderr, run.stderr
    for line in run.stdout.splitlines():
        predicted, result, measured = map(int, line.split())
        assert result * 0.95 < measured < predicted * 1.2 + 3e6, line
    assert run.stdout.count("\n") == 3


def test_a_single_thing_is_in_the_singular() -> None:
    stump = RandomForestRegressor(1, max_depth=1, random_state=0).fit(X, Y)
    text = str(explainer_of(stump, algorithm="quadrature").plan(1))
    assert text.startswith("1 row on cpu") and "\n1 tree, 2 leaves, 1 quadrature node: " in text
