"""The indices beside the SHAP interaction values: of other orders, arguments, and against shapiq."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from ensembles import ensemble_options, leaf_scale, random_ensemble, random_rows
from hypothesis import given
from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor

from skshapgpu import TreeExplainer, _core
from skshapgpu.ensemble import Ensemble
from skshapgpu.reference import path_dependent_banzhaf

X, Y = load_diabetes(return_X_y=True)
N_ROWS = 12

#: Largest error of each precision, relative to the leaves.
TOLERANCE = {"single": 5e-6, "double": 1e-10}


def attributes(ensemble: Ensemble) -> dict[str, Any]:
    return {f.name: getattr(ensemble, f.name) for f in fields(ensemble)}


def values_of(plan: _core.Plan, ensemble: Ensemble, rows: np.ndarray) -> np.ndarray:
    values = np.full((len(rows), ensemble.n_outputs, ensemble.n_features), np.nan)
    plan.explain(rows, values, None, 1)
    return values


@given(options=ensemble_options())
def test_values_of_order_one(options: dict) -> None:
    """Their walk is another one than that of the interactions: of fused subtrees."""
    ensemble = random_ensemble(**options)
    rows = random_rows(options["seed"], ensemble, 70)
    expected = path_dependent_banzhaf(ensemble, rows)
    unit = leaf_scale(ensemble)[:, np.newaxis]
    for precision, tolerance in TOLERANCE.items():
        shapley, taylor, banzhaf = (
            values_of(_core.Plan(attributes(ensemble), precision, 1, index), ensemble, rows)
            for index in ("sii", "stii", "bii")
        )
        assert (np.abs(banzhaf - expected) <= tolerance * unit).all()
        assert (taylor == shapley).all()


def test_banzhaf_values_need_one_node() -> None:
    ensemble = random_ensemble(0, n_features=9, n_trees=6, max_leaves=60, shapes=("random", "chain"))
    assert _core.Plan(attributes(ensemble), "double", 2, "bii").info()["trees_by_nodes"] == {1: 6}
    assert max(_core.Plan(attributes(ensemble), "double", 2, "stii").info()["trees_by_nodes"]) > 1


def test_refused() -> None:
    ensemble = attributes(random_ensemble(0))
    for order in (0, 3, -1):
        with pytest.raises(ValueError, match=f"order must be 1 or 2, not {order}"):
            _core.Plan(ensemble, "double", order)
    with pytest.raises(ValueError, match="index must be 'sii', 'stii' or 'bii', not 'fsii'"):
        _core.Plan(ensemble, "double", 2, "fsii")
    for wrong in ({"order": "2"}, {"order": 1.5}, {"index": None}, {"index": 1}):
        with pytest.raises(TypeError):
            _core.Plan(ensemble, "double", **wrong)


# shapiq: its indices are whole, ours of pairs are halves.


@pytest.fixture(params=["forest", "xgboost"])
def model(request: pytest.FixtureRequest) -> Any:
    if request.param == "forest":
        return RandomForestRegressor(5, max_depth=6, random_state=0).fit(X, Y)
    xgboost = pytest.importorskip("xgboost")
    # shapiq adds a base score to the leaves in single precision, which 0 is spared.
    return xgboost.XGBRegressor(n_estimators=8, max_depth=5, base_score=0, n_jobs=1).fit(X, Y)


def of_shapiq(model: Any, index: str, order: int) -> list[Any]:
    """Interactions of the first rows up to an order; those of Shapley-Taylor from the Moebius ones."""
    shapiq = pytest.importorskip("shapiq")
    from shapiq.game_theory.moebius_converter import MoebiusConverter

    rows = X[:N_ROWS].astype(np.float32)
    if index != "STII":
        explainer = shapiq.TreeExplainer(model, index=index, max_order=order)
        return [explainer.explain(row) for row in rows]
    explainer = shapiq.TreeExplainer(model, index="Moebius", max_order=model.max_depth)
    return [MoebiusConverter(explainer.explain(row))("STII", order) for row in rows]


def of_plan(model: Any, index: str, order: int) -> tuple[np.ndarray, ...]:
    """Values and matrices of the first rows."""
    ensemble = TreeExplainer(model, device="cpu")._adapted.ensemble
    plan = _core.Plan(attributes(ensemble), "double", order, index)
    rows = X[:N_ROWS].astype(np.float32)
    values, matrices = np.empty((N_ROWS, 1, 10)), np.empty((N_ROWS, 1, 10, 10))
    plan.explain(rows, values, None, 1, matrices)
    return values[:, 0], matrices[:, 0]


def assert_close(found: list[float], expected: list[float]) -> None:
    assert len(found) > 100
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10 * np.abs(Y).max())


@pytest.mark.parametrize("index", ["sii", "stii", "bii"])
def test_pairs_of_shapiq(model: Any, index: str) -> None:
    _, matrices = of_plan(model, index, 2)
    found, expected = [], []
    for matrix, theirs in zip(matrices, of_shapiq(model, index.upper(), 2)):
        for i in range(10):
            found += [2 * matrix[i, j] for j in range(i)]
            expected += [theirs[j, i] for j in range(i)]
            if index == "stii":
                found.append(matrix[i, i])
                expected.append(theirs[(i,)])
    assert_close(found, expected)


@pytest.mark.parametrize("index, theirs", [("sii", "SV"), ("stii", "SV"), ("bii", "BV")])
def test_values_of_shapiq(model: Any, index: str, theirs: str) -> None:
    values, _ = of_plan(model, index, 2)
    expected = [row[(i,)] for row in of_shapiq(model, theirs, 1) for i in range(10)]
    assert_close(list(values.ravel()), expected)
