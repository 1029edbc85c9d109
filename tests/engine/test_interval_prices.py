"""Prices of tables by intervals, which depend on the instruction set."""

from __future__ import annotations

import pytest
from helpers.kernels import once, run
from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor

from skshapgpu import TreeExplainer, _core
from skshapgpu._engine.costs import trees as costs
from skshapgpu._engine.costs.trees import TreeGroup

X, Y = load_diabetes(return_X_y=True)


@once
def test_prices_depend_on_the_instruction_set(monkeypatch: pytest.MonkeyPatch) -> None:
    group = TreeGroup("quadrature", 3, 100, 10_000, 10_000, 0, 0, 0)
    seconds, prices = [], []
    for name in ("avx512", "avx2", "baseline"):
        monkeypatch.setattr(costs, "instruction_set", lambda name=name: name)
        prices.append(costs.table_prices("single"))
        seconds.append(costs.cpu_seconds([group], 2**20, 1) - costs.cpu_seconds([], 2**20, 1))
        # The layout has the same price for a walk as the estimate of a call.
        walk = group.n_leaves * (prices[-1]["leaf"] + group.n_nodes * prices[-1]["leaf_node"])
        assert seconds[-1] == pytest.approx(2**20 * walk)
    assert seconds[0] < seconds[1] < seconds[2]
    for name in ("leaf", "leaf_node", "table", "lookup", "doubling"):
        assert prices[0][name] < prices[1][name] < prices[2][name]
    for name in ("small_bytes", "unit_node", "entry", "byte", "least_leaves"):
        assert prices[0][name] == prices[1][name] == prices[2][name]


@once
def test_every_instruction_set_has_prices(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in {"avx512", "avx2", "neon", "baseline", *_core.instruction_sets()}:
        monkeypatch.setattr(costs, "instruction_set", lambda name=name: name)
        assert all(price > 0 for price in costs.table_prices("double").values())


@once
@pytest.mark.parametrize("name", _core.instruction_sets())
def test_the_instruction_set_is_that_of_the_kernels(name: str) -> None:
    program = "from skshapgpu._engine.costs import trees as costs; print(costs.instruction_set())"
    assert run(["-c", program], SKSHAPGPU_ISA=name).stdout.strip() == name


@once
def test_slower_kernels_have_tables_for_smaller_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """Walks become slower by a larger factor than lookups."""
    forest = RandomForestRegressor(20, max_depth=6, random_state=0).fit(X, Y)

    def least_rows(name: str) -> int:
        monkeypatch.setattr(costs, "instruction_set", lambda: name)
        explainer = TreeExplainer(forest, device="cpu", n_jobs=1)
        return next(n for n in range(1024, 10**6, 1024) if explainer.plan(n).table_bytes)

    assert least_rows("baseline") < least_rows("avx512")
