"""Tables of values of probabilities and losses: the number of terms, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers.ensembles import full_tree, random_chain, random_ensemble, random_rows
from helpers.plans import least_table_bytes

from skshapgpu import _core
from skshapgpu.adapters.ensemble import Ensemble, attributes_of


def plan_of(ensemble: Ensemble, background: np.ndarray, link: str, precision: str, scale: float = 1.0) -> Any:
    weights = np.full(len(background), 1 / len(background))
    return _core.RescaledPlan(attributes_of(ensemble), precision, background, weights, link, scale)


def tables_of(plan: Any, ensemble: Ensemble, background: np.ndarray, table_bytes: int = 2**28) -> Any:
    return _core.RescaledTables(plan, attributes_of(ensemble), background, table_bytes)


def full_ensemble(n_features: int) -> Ensemble:
    """Build 30 trees with different thresholds, so that most rows have different margins."""
    rng = np.random.default_rng(3)
    trees = [full_tree(rng, 4, n_features) for _ in range(30)]
    return Ensemble.from_trees(trees, n_features=n_features, intercept=[0.5])


@pytest.mark.parametrize("precision, most", [("single", 30), ("double", 45)])
def test_the_number_of_terms_depends_on_the_spread_of_margins(precision: str, most: int) -> None:
    ensemble = full_ensemble(6)
    background = np.random.default_rng(3).random((1500, 6))
    for link in ("logistic", "log_loss"):
        terms = []
        for scale in (1e-3, 0.1, 1.0, 10.0):
            plan = plan_of(ensemble, background, link, precision, scale)
            terms += tables_of(plan, ensemble, background).n_terms
        assert terms == sorted(terms) and terms[0] <= 4 and most // 3 < terms[-1] <= most
    squared = plan_of(ensemble, background, "squared_error", precision)
    assert tables_of(squared, ensemble, background).n_terms == [2]


def test_terms_of_few_background_rows_and_several_outputs() -> None:
    ensemble = random_ensemble(5, n_trees=6, n_outputs=3)
    rows = random_rows(5, ensemble, 3)
    for n in (1, 3):
        plan = plan_of(ensemble, rows[:n], "logistic", "double")
        distinct = [len(np.unique(margins)) for margins in plan.background_margin.T]
        assert tables_of(plan, ensemble, rows[:n]).n_terms == distinct


def test_a_saturated_link_has_one_term() -> None:
    """The slope is 0 at all margins."""
    ensemble, background = full_ensemble(6), np.random.default_rng(3).random((200, 6))
    ensemble = replace(ensemble, intercept=np.array([1e4]))
    for precision in ("single", "double"):
        plan = plan_of(ensemble, background, "logistic", precision)
        assert plan.table_costs(2**28) and tables_of(plan, ensemble, background).n_terms == [1]
        values = np.full((5, 1, 6), np.nan)
        plan.explain(background[:5], values, None, 1)
        np.testing.assert_array_equal(values, 0)


def test_slopes_whose_squares_underflow() -> None:
    """Far from 0, the slope of the logistic function decays like exp(-margin), so the terms stay the same."""
    ensemble, background = full_ensemble(6), np.random.default_rng(3).random((200, 6))
    for precision in ("single", "double"):
        terms = []
        for intercept in (100.0, 500.0, 650.0):
            shifted = replace(ensemble, intercept=np.array([intercept]))
            plan = plan_of(shifted, background, "logistic", precision)
            terms += tables_of(plan, shifted, background).n_terms
        assert terms[0] > 1 and terms == terms[:1] * 3


def test_leaves_without_a_table() -> None:
    """Leaves on long paths, and leaves whose tables do not fit, have patterns instead."""
    chain = random_chain(0, 13, 13)
    rows = np.random.default_rng(0).random((50, 13))
    plan = plan_of(chain, rows, "logistic", "single")
    costs = plan.table_costs(2**28)
    assert costs is not None and costs["n_patterns"] == 2 * len(rows)  # the two leaves at the end
    tables_of(plan, chain, rows)
    ensemble = full_ensemble(13)
    plan = plan_of(ensemble, rows, "logistic", "single")
    costs = plan.table_costs(2**28)
    assert costs is not None and costs["n_patterns"] == 0
    least = least_table_bytes(plan)
    fewer = plan.table_costs(least)
    assert fewer is not None and fewer["n_patterns"] > 0
    assert fewer["table_bytes"] <= least < costs["table_bytes"]
    tables_of(plan, ensemble, rows, least)


def test_what_is_refused() -> None:
    rows = np.random.default_rng(0).normal(size=(2000, 13))
    ensemble = full_ensemble(13)
    plan = plan_of(ensemble, rows, "logistic", "single")
    assert plan.table_costs(1000) is None
    with pytest.raises(
        _core.TableMemoryError, match=r"tables of all trees need \d+ bytes, but may take 1000"
    ):
        tables_of(plan, ensemble, rows, 1000)
    with pytest.raises(ValueError, match="not those of the plan"):
        tables_of(plan, ensemble, rows[1:])
    with pytest.raises(ValueError, match="background must be that of the plan"):
        tables_of(plan, ensemble, rows[:, 1:])
    many = np.random.default_rng(0).random((9000, 13))
    wide = plan_of(ensemble, many, "logistic", "double", 1e6)
    assert len(np.unique(wide.background_margin)) > 4096
    assert wide.table_costs(2**28) is None
    with pytest.raises(ValueError, match="margins of the background rows are spread too widely"):
        tables_of(wide, ensemble, many)
