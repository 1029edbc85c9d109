"""Interactions of models of every family against their definition, through the public API.

They run on the device of the test run, see ``--device``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.ensembles import leaf_scale
from helpers.models import MODELS, as_trees_see_them, outputs_second

from skshapgpu import TreeExplainer, reference

#: Largest error of each precision, relative to the leaves.
TOLERANCE = {"single": 5e-6, "double": 1e-10}


@pytest.fixture(scope="module", params=MODELS)
def case(request: pytest.FixtureRequest) -> tuple[Any, np.ndarray]:
    model, rows = MODELS[request.param]()
    return model, rows[:12]


@pytest.mark.parametrize("precision", TOLERANCE)
@pytest.mark.parametrize("index", ["SII", "STII", "BII"])
def test_pairs(case: tuple[Any, np.ndarray], index: Any, precision: str) -> None:
    model, rows = case
    ensemble, encoded = as_trees_see_them(model, rows)
    expected = reference.path_dependent(ensemble, encoded, index=index).values
    explainer = TreeExplainer(model, precision=precision)
    allowed = TOLERANCE[precision] * leaf_scale(ensemble)
    explanation = explainer.explain_interactions(rows, index=index)
    matrices = outputs_second(explanation.matrices(), 3)
    assert (np.abs(matrices - expected) <= allowed[:, np.newaxis, np.newaxis]).all()
    assert (matrices == matrices.swapaxes(2, 3)).all()
    first, second = explanation.interactions.T
    all_values = outputs_second(explanation.values, 2)
    assert (np.abs(all_values - 2 * expected[..., first, second]) <= 2 * allowed[:, np.newaxis]).all()
    if index == "SII":
        direct = outputs_second(explainer.shap_interaction_values(rows), 3)
        assert (np.abs(direct - expected) <= allowed[:, np.newaxis, np.newaxis]).all()
        assert (direct == direct.swapaxes(2, 3)).all()
        assert (np.abs(matrices - direct) <= 1e-12 * leaf_scale(ensemble).max()).all()


def test_sums(case: tuple[Any, np.ndarray]) -> None:
    model, rows = case
    ensemble, encoded = as_trees_see_them(model, rows)
    explainer = TreeExplainer(model, precision="double")
    shapley = reference.path_dependent(ensemble, encoded).values
    allowed = TOLERANCE["double"] * leaf_scale(ensemble)
    for index in ("SII", "STII"):
        matrices = outputs_second(explainer.explain_interactions(rows, index=index).matrices(), 3)
        assert (np.abs(matrices.sum(axis=3) - shapley) <= allowed[:, np.newaxis]).all()
        margin = matrices.sum(axis=(2, 3)) + explainer.expected_value
        assert (np.abs(margin - ensemble.margin(encoded)) <= 10 * allowed).all()


def test_banzhaf_values(case: tuple[Any, np.ndarray]) -> None:
    model, rows = case
    ensemble, encoded = as_trees_see_them(model, rows)
    expected = reference.path_dependent(ensemble, encoded, index="BV").values
    for precision, tolerance in TOLERANCE.items():
        values = outputs_second(TreeExplainer(model, precision=precision).explain(rows, index="BV").values, 2)
        assert (np.abs(values - expected) <= tolerance * leaf_scale(ensemble)[:, np.newaxis]).all()


def test_triples(case: tuple[Any, np.ndarray]) -> None:
    model, rows = case
    ensemble, encoded = as_trees_see_them(model, rows)
    values, _, triples = reference.path_dependent(ensemble, encoded[:4], index="SII", order=3)
    expected = dict(zip(map(tuple, triples.tolist()), np.moveaxis(values, -1, 0)))
    explainer = TreeExplainer(model, device="cpu", precision="double")
    explanation = explainer.explain_interactions(rows[:4], order=3, interactions="occurring")
    allowed = TOLERANCE["double"] * leaf_scale(ensemble)
    result = np.moveaxis(outputs_second(explanation.values, 2), -1, 0)
    for features, ours in zip(map(tuple, explanation.interactions.tolist()), result):
        assert (np.abs(ours - expected.pop(features)) <= allowed).all()
    assert all((np.abs(others) <= allowed).all() for others in expected.values())
