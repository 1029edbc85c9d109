"""CatBoost's CTRs: values and interactions of their players by the definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.catboost_ctrs import encoded, fit, own_values, rows, shares, unseen

from skshapgpu import TreeExplainer, reference
from skshapgpu.adapters import adapt
from skshapgpu.adapters.schema import AdaptedModel


@pytest.fixture(scope="module")
def small() -> Any:
    """A model with few enough players for the definition."""
    model = fit(iterations=30, depth=4)
    adapted = adapt(model)
    assert len(adapted.shared) >= 3 and adapted.ensemble.n_players <= 12
    assert adapted.ensemble.n_features > adapted.ensemble.n_players
    return model


PRECISIONS = [("double", 1e-11), ("single", 2e-6)]


@pytest.mark.parametrize("precision, tolerance", PRECISIONS)
def test_definition(small: Any, precision: str, tolerance: float) -> None:
    X = unseen(rows(1)).head(15)
    adapted, explainer = adapt(small), TreeExplainer(small, precision=precision)
    S, E = shares(adapted), encoded(adapted, X)
    expected, base, _ = reference.path_dependent(adapted.ensemble, E)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(explainer.shap_values(X), expected[:, 0] @ S, rtol=0, atol=tolerance * scale)
    assert explainer.expected_value == pytest.approx(base[0], rel=1e-12)
    banzhaf = reference.path_dependent(adapted.ensemble, E, index="BV").values[:, 0] @ S
    values = explainer.explain(X, index="BV").values
    np.testing.assert_allclose(values, banzhaf, rtol=0, atol=tolerance * scale)
    for index in ("SII", "STII"):
        expected = S.T @ reference.path_dependent(adapted.ensemble, E, index=index).values[:, 0] @ S
        assert_interactions(explainer, X, index, expected, tolerance * scale)
        np.testing.assert_allclose(
            expected.sum(axis=2), explainer.shap_values(X), rtol=0, atol=8 * tolerance * scale
        )
    assert_interactions(explainer, X, "BII", banzhaf_matrices(adapted, E, banzhaf), tolerance * scale)


@pytest.mark.parametrize("precision, tolerance", PRECISIONS)
@pytest.mark.parametrize("options", [{}, {"memory_limit": "8MB"}], ids=str)
def test_definition_with_background(
    small: Any, precision: str, tolerance: float, options: dict[str, Any]
) -> None:
    X, data = unseen(rows(1)).head(4), unseen(rows(2)).iloc[:5]
    adapted = adapt(small)
    explainer = TreeExplainer(small, data, precision=precision, **options)
    S, E, B = shares(adapted), encoded(adapted, X), encoded(adapted, data)
    expected, base, _ = reference.interventional(adapted.ensemble, E, B)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(explainer.shap_values(X), expected[:, 0] @ S, rtol=0, atol=tolerance * scale)
    assert explainer.expected_value == pytest.approx(base[0], rel=1e-9)
    banzhaf = reference.interventional(adapted.ensemble, E, B, index="BV").values[:, 0] @ S
    values = explainer.explain(X, index="BV").values
    np.testing.assert_allclose(values, banzhaf, rtol=0, atol=tolerance * scale)
    for index in ("SII", "STII"):
        expected = S.T @ reference.interventional(adapted.ensemble, E, B, index=index).values[:, 0] @ S
        assert_interactions(explainer, X, index, expected, tolerance * scale)


def banzhaf_matrices(adapted: AdaptedModel, E: np.ndarray, banzhaf: np.ndarray) -> np.ndarray:
    """Compute the shared indices of pairs of players, with Banzhaf values on the diagonal."""
    S = shares(adapted)
    player_values = reference.path_dependent(adapted.ensemble, E, index="BII").values[:, 0]
    np.einsum("rpp->rp", player_values)[...] = 0
    matrices = S.T @ player_values @ S
    np.einsum("raa->ra", matrices)[...] = banzhaf
    return matrices


def assert_interactions(
    explainer: TreeExplainer, X: Any, index: str, expected: np.ndarray, allowed: float
) -> None:
    occurring = explainer.explain_interactions(X, index=index)
    matrices = occurring.matrices()
    np.testing.assert_allclose(matrices, expected, rtol=0, atol=8 * allowed)
    assert (matrices == matrices.swapaxes(1, 2)).all()
    if index == "SII":
        direct = explainer.shap_interaction_values(X)
        np.testing.assert_allclose(direct, expected, rtol=0, atol=8 * allowed)
        assert (direct == direct.swapaxes(1, 2)).all()
    first, second = occurring.interactions.T
    np.testing.assert_allclose(occurring.values, 2 * expected[:, first, second], rtol=0, atol=8 * allowed)
    others = np.ones(expected.shape[1:], bool)
    others[first, second] = others[second, first] = False
    np.fill_diagonal(others, False)
    assert (np.abs(expected[:, others]) <= 8 * allowed).all()
    np.testing.assert_array_equal(occurring.interactions, explainer.occurring_interactions())
    listed = [("letter", "colour"), (1, 5), ("number", "letter")]
    positions = np.array([(4, 0), (1, 5), (2, 4)])
    values = explainer.explain_interactions(X, interactions=listed, index=index).values
    np.testing.assert_array_equal(values, 2 * matrices[:, positions[:, 0], positions[:, 1]])
    strongest = explainer.explain_interactions(X, interactions=3, index=index)
    mean = np.abs(occurring.values).mean(axis=0)
    np.testing.assert_allclose(np.sort(strongest.strength)[::-1], np.sort(mean)[::-1][:3], rtol=1e-6)


def test_interactions_of_several_outputs() -> None:
    model, X = fit("classes"), unseen(rows(1)).head(50)
    explainer = TreeExplainer(model, precision="double")
    matrices = explainer.shap_interaction_values(X)
    assert matrices.shape == (50, 6, 6, 3)
    np.testing.assert_allclose(matrices.sum(axis=2), explainer.shap_values(X), rtol=0, atol=1e-12)


def test_both_classes() -> None:
    model, X = fit("binary"), unseen(rows(1)).head(50)
    both = TreeExplainer(model, outputs="all", precision="double").shap_values(X)
    np.testing.assert_allclose(both[..., 1], own_values(model, X), rtol=0, atol=1e-12)
    np.testing.assert_array_equal(both[..., 0], -both[..., 1])


def test_probability() -> None:
    model, X, data = fit("binary"), unseen(rows(1)).head(20), rows(2).head(10)
    explanation = TreeExplainer(model, data, model_output="probability", precision="double").explain(X)
    total = explanation.base_values + explanation.values.sum(axis=1)
    np.testing.assert_allclose(total, model.predict_proba(X)[:, 1], rtol=0, atol=1e-10)


def test_triples_are_refused(on_cpu: None) -> None:
    explainer = TreeExplainer(fit())
    with pytest.raises(ValueError, match=r"share contributions.*order=2"):
        explainer.explain_interactions(rows(1).head(2), interactions="occurring", order=3)
    with pytest.raises(ValueError, match="share contributions"):
        explainer.occurring_interactions(order=3)


def test_triples_of_ctrs_of_single_columns(on_cpu: None) -> None:
    model = fit(max_ctr_complexity=1)
    assert not adapt(model).shared
    explanation = TreeExplainer(model).explain_interactions(
        rows(1).head(4), interactions="occurring", order=3
    )
    assert np.abs(explanation.values).max() > 0
