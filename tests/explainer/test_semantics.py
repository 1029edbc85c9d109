"""Tests for entries of the table in docs/semantics.md that have no others: constraints, large models."""

from __future__ import annotations

import ast
import re
from typing import Any

import numpy as np
import pytest
from helpers import ROOT, TESTS
from helpers.ensemble_model import EnsembleModel
from helpers.families import FAMILIES, library, regressor

from skshapgpu import TreeExplainer, reference
from skshapgpu.adapters.ensemble import Ensemble, Tree

PAGE = ROOT / "docs" / "semantics.md"


def rows_of_the_table() -> list[list[str]]:
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_each_test_that_the_table_names_exists() -> None:
    named = re.findall(r"`(test_\w+\.py)::(test_\w+)`", PAGE.read_text())
    assert len(named) > 80
    defined = {
        path.name: {
            node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)
        }
        for path in TESTS.rglob("test_*.py")
    }
    assert not [(file, name) for file, name in named if name not in defined.get(file, ())]


def test_each_row_of_the_table_names_a_test() -> None:
    rows = [row for row in rows_of_the_table() if not set(row[0]) <= set("-: ") and row[-1] != "test"]
    assert len(rows) > 60
    assert not [row for row in rows if "`test_" not in row[-1]]
    families = {family for row in rows if len(row) == 4 for family in row[1].split(", ")}
    assert {"scikit-learn", "XGBoost", "LightGBM", "CatBoost", "ONNX", "Spark ML", "all"} == families


# Constraints


def constrained(family: str) -> Any:
    """Return a model in which only features 0 and 1, and features 2 and 3, may share a path."""
    groups = [[0, 1], [2, 3]]
    if family == "sklearn":
        return regressor(family, interaction_cst=groups)
    name = "interaction_constraints"
    return regressor(family, **{name: str(groups) if family == "xgboost" else groups})


@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "catboost"])
def test_interaction_constraints(family: str) -> None:
    """Features that must not interact have no interactions, and features that may interact have some."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4))
    y = (
        X[:, 0] * X[:, 1]
        + X[:, 2] * X[:, 3]
        + X[:, 1] * X[:, 2] / 2
        + X[:, 0] * X[:, 3] / 2
        + X[:, 2]
        + X[:, 1]
    )
    explainer = TreeExplainer(constrained(family).fit(X, y), device="cpu")
    assert explainer.occurring_interactions().tolist() == [[0, 1], [2, 3]]
    values = explainer.shap_interaction_values(X)
    allowed = np.array([[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 1], [0, 0, 1, 1]], bool)
    assert not values[:, ~allowed].any()
    assert (np.abs(values[:, 0, 1]).max() > 0.01) and (np.abs(values[:, 2, 3]).max() > 0.01)


@pytest.mark.parametrize("family", FAMILIES)
def test_monotone_constraints(family: str) -> None:
    """The margin rises with the feature; in a model of it alone, so does the interventional value."""
    name = {"sklearn": "monotonic_cst", "catboost": "monotone_constraints"}.get(
        family, "monotone_constraints"
    )
    rng = np.random.default_rng(1)
    X = rng.normal(size=(300, 2))
    y = X[:, 0] + np.sin(3 * X[:, 0]) + X[:, 1] ** 2
    model = regressor(family, **{name: (1, 0) if family == "xgboost" else [1, 0]}).fit(X, y)
    grid = np.column_stack([np.linspace(-3, 3, 200), np.full(200, 0.3)])
    values = TreeExplainer(model, X[:50], device="cpu", precision="double").shap_values(grid)
    assert np.diff(values[:, 0]).min() > -1e-9 and np.ptp(values[:, 0]) > 0.5


def test_sample_weights_of_xgboost() -> None:
    """Covers are Hessians, which are weights for a squared error, so base values are weighted means."""
    library("xgboost")
    rng = np.random.default_rng(2)
    X, weight = rng.normal(size=(200, 3)), rng.uniform(0.1, 5, 200)
    y = X[:, 0] + rng.normal(size=200)
    model = regressor("xgboost", min_child_weight=0).fit(X, y, sample_weight=weight)
    explainer = TreeExplainer(model, device="cpu")
    expected = np.average(model.predict(X), weights=weight)
    assert abs(explainer.expected_value - expected) < 1e-5
    assert abs(explainer.expected_value - model.predict(X).mean()) > 1e-3


# Size


def stumps(n_trees: int, n_features: int) -> tuple[Ensemble, np.ndarray]:
    """Build trees of one split, with covers 1 on the left and 3 on the right; return the leaves, too."""
    rng = np.random.default_rng(3)
    feature, leaves = rng.integers(n_features, size=n_trees), rng.normal(size=(n_trees, 2))
    value = np.column_stack([np.zeros(n_trees), leaves]).reshape(-1, 1)
    ensemble = Ensemble(
        n_features=n_features,
        tree_offsets=3 * np.arange(n_trees + 1),
        tree_output=np.zeros(n_trees, int),
        left=np.tile([1, -1, -1], n_trees),
        right=np.tile([2, -1, -1], n_trees),
        feature=np.repeat(feature, 3),
        threshold=np.repeat(rng.normal(size=n_trees), 3),
        missing_left=np.zeros(3 * n_trees, bool),
        cover=np.tile([4.0, 1.0, 3.0], n_trees),
        value=value,
        intercept=[0.5],
        x_dtype="float64",
    )
    return ensemble, leaves


@pytest.mark.parametrize("algorithm", ["auto", "quadrature", "fast_v2"])
def test_a_hundred_thousand_trees(algorithm: str) -> None:
    """Each tree has one split, so a SHAP value is a sum of differences between a leaf and its tree's mean."""
    ensemble, leaves = stumps(100_000, 50)
    X = np.random.default_rng(4).normal(size=(3, 50))
    feature, threshold = ensemble.feature[::3], ensemble.threshold[::3]
    reached = np.where(X[:, feature] <= threshold, leaves[:, 0], leaves[:, 1])
    mean = leaves @ [0.25, 0.75]
    expected = np.array([np.bincount(feature, row, 50) for row in reached - mean])
    explainer = TreeExplainer(EnsembleModel(ensemble), device="cpu", algorithm=algorithm)
    assert abs(explainer.expected_value - 0.5 - mean.sum()) < 1e-8
    np.testing.assert_allclose(explainer.shap_values(X), expected, rtol=0, atol=1e-3)
    double = TreeExplainer(EnsembleModel(ensemble), device="cpu", algorithm=algorithm, precision="double")
    np.testing.assert_allclose(double.shap_values(X), expected, rtol=0, atol=1e-8)


def random_tree(rng: np.random.Generator, n_outputs: int | None, output: int = 0) -> Tree:
    value = np.zeros((7, n_outputs or 1))
    value[3:] = rng.normal(size=(4, n_outputs or 1))
    return Tree(
        left=[1, 3, 5, -1, -1, -1, -1],
        right=[2, 4, 6, -1, -1, -1, -1],
        feature=rng.integers(4, size=7),
        threshold=rng.normal(size=7),
        missing_left=rng.random(7) < 0.5,
        cover=rng.integers(1, 9, size=7),
        value=value if n_outputs else value[:, 0],
        output=output,
    )


@pytest.mark.parametrize("vector", [False, True])
def test_a_thousand_classes(vector: bool) -> None:
    """One tree for each class, or leaves that hold all classes."""
    rng = np.random.default_rng(5)
    trees = [random_tree(rng, 1000 if vector else None, i) for i in range(3 if vector else 1000)]
    ensemble = Ensemble.from_trees(trees, n_features=4, intercept=rng.normal(size=1000))
    X = rng.normal(size=(5, 4))
    X[1, 2] = np.nan
    expected, base_value, _ = reference.path_dependent(ensemble, X)
    explainer = TreeExplainer(EnsembleModel(ensemble), device="cpu", precision="double")
    values = explainer.shap_values(X)
    assert values.shape == (5, 4, 1000)
    np.testing.assert_allclose(values, expected.transpose(0, 2, 1), rtol=0, atol=1e-10)
    np.testing.assert_allclose(explainer.expected_value, base_value, rtol=0, atol=1e-10)
    against = TreeExplainer(EnsembleModel(ensemble), X, device="cpu", precision="double").explain(X)
    total = against.base_values + against.values.sum(axis=1)
    np.testing.assert_allclose(total, ensemble.margin(X), rtol=0, atol=1e-10)


@pytest.mark.parametrize("options", [{}, {"data": True}])
def test_ten_thousand_features(options: dict[str, Any]) -> None:
    """Each feature has one stump, which determines the feature's SHAP value."""
    ensemble, leaves = stumps(10_000, 10_000)
    places = np.random.default_rng(6).permutation(10_000)
    ensemble = Ensemble(**{**vars(ensemble), "feature": np.repeat(places, 3)})
    X = np.random.default_rng(7).normal(size=(3, 10_000))
    reached = np.where(X[:, places] <= ensemble.threshold[::3], leaves[:, 0], leaves[:, 1])
    mean = reached.mean(axis=0) if options else leaves @ [0.25, 0.75]
    expected = np.empty_like(X)
    expected[:, places] = reached - mean
    explainer = TreeExplainer(
        EnsembleModel(ensemble), X if options else None, device="cpu", precision="double"
    )
    np.testing.assert_allclose(explainer.shap_values(X), expected, rtol=0, atol=1e-10)
