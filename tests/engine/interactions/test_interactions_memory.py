"""Memory of interactions: chunks, limits, and results that are too large."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers.checks import peak_of
from helpers.interactions import (
    DIABETES,
    on_cpu,
)
from sklearn.ensemble import RandomForestRegressor

from skshapgpu import TreeExplainer
from skshapgpu._common import memory


@pytest.fixture(scope="module")
def wide() -> tuple[TreeExplainer, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.random((3000, 60))
    y = X @ rng.random(60) + X[:, 3] * X[:, 7]
    model = RandomForestRegressor(30, max_depth=6, max_features=0.3, random_state=0).fit(X[:500], y[:500])
    return on_cpu(model), X


@pytest.mark.parametrize("pairs", [20, [(3, 7), (0, 1)]])
def test_chosen_pairs_take_chunks_and_their_own_size(
    wide: Any, pairs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    explainer, X = wide
    n_pairs = len(explainer.occurring_interactions())
    assert n_pairs > 1000
    expected = explainer.explain_interactions(X, interactions=pairs)
    monkeypatch.setattr(memory, "CHUNK_BYTES", 1 << 20)
    everything = len(X) * n_pairs * 8
    assert everything > 20 * (1 << 20)
    peak = peak_of(lambda: explainer.explain_interactions(X, interactions=pairs))
    assert peak < expected.values.nbytes + 2 * (1 << 20)
    listed = explainer.explain_interactions(X, interactions=pairs)
    np.testing.assert_array_equal(listed.values, expected.values)
    np.testing.assert_array_equal(listed.interactions, expected.interactions)


@pytest.mark.parametrize("pairs", ["matrices", "occurring", 20, [(3, 7)]])
@pytest.mark.parametrize("kind", ["array", "ints"])
def test_memory_limit_bounds_everything_that_is_allocated(wide: Any, pairs: Any, kind: str) -> None:
    explainer, X = wide
    rows = X[:400] if kind == "array" else (10 * X[:400]).astype(int)

    def values(explainer: TreeExplainer, rows: np.ndarray) -> np.ndarray:
        if pairs == "matrices":
            return explainer.shap_interaction_values(rows)
        return explainer.explain_interactions(rows, interactions=pairs).values

    expected = values(explainer, rows)
    plan = explainer._compiled.of(next(k for k, _ in explainer._compiled.table_sizes if k.order == 2)).plan()
    result = expected.nbytes + (rows.nbytes if pairs == "occurring" else 0)
    scratch = plan.info()["scratch_bytes_per_thread"]
    limit = result + scratch + 200_000
    tight = copy.copy(explainer._compiled.options)
    limited = pickle.loads(pickle.dumps(explainer))
    limited._compiled.options = replace(tight, memory_limit=limit)
    values(limited, rows[:1])  # compiles
    assert peak_of(lambda: values(limited, rows)) < limit
    np.testing.assert_array_equal(values(limited, rows), expected)
    too_little = pickle.loads(pickle.dumps(explainer))
    too_little._compiled.options = replace(tight, memory_limit=result + scratch)
    with pytest.raises(MemoryError, match=r"raise memory_limit, explain fewer rows, or ask for fewer pairs"):
        values(too_little, rows)


def test_wide_data_never_takes_a_matrix() -> None:
    n_features = 8000
    rng = np.random.default_rng(0)
    X = rng.random((200, n_features), np.float32)
    model = RandomForestRegressor(5, max_features=0.05, random_state=0).fit(X, X[:, :50].sum(axis=1))
    explainer = on_cpu(model)
    n_pairs = len(explainer.occurring_interactions())
    for pairs in ("occurring", 10):
        explanation = explainer.explain_interactions(X[:20], interactions=pairs)
        peak = peak_of(lambda: explainer.explain_interactions(X[:20], interactions=pairs))  # noqa: B023
        assert peak < 30 * 4 * (4 * n_features + 6 * n_pairs) < 4 * n_features**2
        assert explanation.additivity_error is not None
    with pytest.raises(MemoryError, match=r"explain_interactions\(X\), with a number or a list of pairs"):
        on_cpu(model, memory_limit="1GB").shap_interaction_values(X)


def test_a_result_beyond_the_machine_is_refused_by_name(
    regressor: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from skshapgpu._engine import runs

    def full(self: Any, *shape: int) -> np.ndarray:
        raise MemoryError("Unable to allocate")

    monkeypatch.setattr(runs.HostRun, "empty", full)
    with pytest.raises(
        MemoryError,
        match=r"442 rows need 353,600 bytes for their SHAP interaction.*explain_interactions\(X\)",
    ):
        on_cpu(regressor).shap_interaction_values(DIABETES)
    with pytest.raises(MemoryError, match=r"442 rows need 123,760 bytes for their Shapley interactions"):
        on_cpu(regressor).explain_interactions(DIABETES)
