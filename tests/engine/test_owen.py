"""Owen values against their definition, with and without background data, by walks and by lookups."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers.ensemble_model import EnsembleModel
from helpers.ensembles import leaf_scale, random_chain, random_ensemble, random_rows
from helpers.plans import NEVER_TABLES
from numpy.testing import assert_allclose

from skshapgpu import TreeExplainer, _core, explain, reference
from skshapgpu._common.algorithms import OWEN_VALUES
from skshapgpu.adapters import adapt
from skshapgpu.adapters.ensemble import Ensemble, attributes_of

#: Largest errors, relative to the largest leaf.
TOLERANCES = {"double": 1e-10, "single": 5e-6}


def drawn(seed: int, n_rows: int = 9) -> tuple[Ensemble, np.ndarray, np.ndarray]:
    """Draw trees, rows and the group of each feature."""
    rng = np.random.default_rng(seed)
    n_features = int(rng.integers(3, 10))
    ensemble = random_ensemble(
        rng,
        n_features=n_features,
        n_used=int(rng.integers(2, n_features + 1)),
        n_outputs=int(rng.integers(1, 4)),
        vector=bool(rng.integers(2)),
        categorical=bool(rng.integers(2)),
        zero_missing=bool(rng.integers(2)),
    )
    groups = rng.integers(0, rng.integers(2, n_features), n_features)
    return ensemble, random_rows(rng, ensemble, n_rows), np.unique(groups, return_inverse=True)[1]


def named(groups: np.ndarray) -> dict[str, list[int]]:
    return {f"group {g}": np.flatnonzero(groups == g).tolist() for g in np.unique(groups).tolist()}


def by_output(values: np.ndarray) -> np.ndarray:
    """Return values as the reference has them: [row][output][feature]."""
    return values[:, np.newaxis] if values.ndim == 2 else values.swapaxes(1, 2)


def sums(values: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Add up the values of each group, in the order of their first features."""
    order = sorted(np.unique(groups).tolist(), key=groups.tolist().index)
    return np.stack([values[..., groups == g].sum(axis=-1) for g in order], axis=-1)


@pytest.mark.parametrize("precision", ["double", "single"])
def test_random_trees(precision: str) -> None:
    n_apart = 0
    for seed in range(300):
        ensemble, rows, groups = drawn(seed)
        tolerance = TOLERANCES[precision] * leaf_scale(ensemble)[:, np.newaxis]
        options: dict[str, Any] = {"feature_groups": named(groups), "precision": precision}
        explainer = TreeExplainer(EnsembleModel(ensemble), **options)
        values = by_output(explainer.explain(rows, index="OV").values)
        expected = reference.path_dependent(ensemble, rows, index="OV", player_groups=groups).values
        assert (np.abs(values - expected) <= tolerance).all()
        of_groups = by_output(explainer.explain(rows).values)
        assert (np.abs(sums(values, groups) - of_groups) <= 4 * tolerance).all()
        shapley = reference.path_dependent(ensemble, rows).values
        n_apart += bool((np.abs(shapley - expected) > 1e-3 * leaf_scale(ensemble)[:, np.newaxis]).any())
        against = TreeExplainer(EnsembleModel(ensemble), rows[4:], **options)
        values = by_output(against.explain(rows[:4], index="OV").values)
        expected = reference.interventional(
            ensemble, rows[:4], rows[4:], index="OV", player_groups=groups
        ).values
        assert (np.abs(values - expected) <= tolerance).all()
    assert n_apart > 80


@pytest.mark.parametrize("interventional", [False, True])
def test_groups_of_one_feature_and_one_group_of_all_have_shapley_values(interventional: bool) -> None:
    for seed in range(30):
        ensemble, rows, groups = drawn(seed + 1000)
        data = rows[5:] if interventional else None
        tolerance = 1e-10 * leaf_scale(ensemble)[:, np.newaxis]
        expected = by_output(explain(EnsembleModel(ensemble), rows, data=data, precision="double").values)
        for apart in (np.arange(len(groups)), np.zeros(len(groups), int)):
            explanation = explain(
                EnsembleModel(ensemble),
                rows,
                data=data,
                precision="double",
                feature_groups=named(apart),
                index="OV",
            )
            assert (np.abs(by_output(explanation.values) - expected) <= tolerance).all()


@pytest.mark.parametrize("algorithm", ["auto", "quadrature"])
def test_tables_and_walks_agree(algorithm: str) -> None:
    """For many rows, trees of several heights have tables by intervals, whose entries walks fill."""
    from sklearn.ensemble import GradientBoostingRegressor

    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 6)).round(1)
    y = 100 + X[:, 0] * X[:, 1] + 3 * (X[:, 2] > 0) * X[:, 4] + X[:, 5] ** 2
    model = GradientBoostingRegressor(n_estimators=40, max_depth=6, random_state=0).fit(X, y)
    groups = {"a": [0, 4, 2], "b": [1, 5]}
    for data in (None, X[:50]):
        explainer = TreeExplainer(model, data, feature_groups=groups, precision="double", algorithm=algorithm)
        many, few = explainer.explain(X, index="OV"), explainer.explain(X[:200], index="OV")
        assert_allclose(many.values[:200], few.values, rtol=0, atol=1e-11)
        assert many.additivity_error is not None and many.additivity_error < 1e-10
        assert_allclose(
            many.values[:, [0, 2, 4]].sum(axis=1), explainer.explain(X).values[:, 0], rtol=0, atol=1e-10
        )


@pytest.mark.parametrize(("precision", "tolerance"), [("double", 1e-10), ("single", 5e-6)])
@pytest.mark.parametrize("n_outputs", [1, 2])
def test_large_groups_among_many_others(precision: str, tolerance: float, n_outputs: int) -> None:
    """These paths need more quadrature nodes than a walk on a GPU has."""
    from sklearn.tree import DecisionTreeRegressor

    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 11)).round(1)
    y = np.column_stack([X @ rng.normal(size=11) + X[:, i] * X[:, i + 1] for i in range(n_outputs)])
    model = DecisionTreeRegressor(splitter="random", random_state=0)
    model.fit(X, y[:, 0] if n_outputs == 1 else y)
    groups = np.array([0, 1, 0, 2, 0, 3, 0, 4, 0, 5, 0])
    explainer = TreeExplainer(model, feature_groups=named(groups), precision=precision)
    values = by_output(explainer.explain(X[:20], index="OV").values)
    ensemble = adapt(model).ensemble
    expected = reference.path_dependent(
        ensemble, X[:20].astype(ensemble.x_dtype), index="OV", player_groups=groups
    ).values
    assert (np.abs(values - expected) <= tolerance * leaf_scale(ensemble)[:, np.newaxis]).all()
    n_nodes = [group["n_nodes"] for group in explainer._compiled.of(OWEN_VALUES).plan().info()["groups"]]
    assert max(n_nodes) > 8


@pytest.mark.parametrize(("precision", "tolerance"), [("double", 1e-10), ("single", 5e-6)])
@pytest.mark.parametrize("n_outputs", [1, 2])
@pytest.mark.parametrize("sizes", [(3, 3, 1), (3, 3, 3), (5, 1, 1, 1), (7, 2, 1), (9, 1), (11, 1)])
def test_groups_of_an_odd_number_of_features(
    sizes: tuple[int, ...], n_outputs: int, precision: str, tolerance: float
) -> None:
    """The walks take one quadrature node less than paths with all features of the groups would need."""
    from sklearn.ensemble import RandomForestRegressor

    rng = np.random.default_rng(sum(sizes))
    n_features = sum(sizes)
    X = rng.normal(size=(700, n_features)).round(1)
    y = 100 + np.column_stack([X @ rng.normal(size=n_features) + X[:, 0] * X[:, i] for i in range(n_outputs)])
    model = RandomForestRegressor(3, max_features=1, random_state=0).fit(X, y[:, 0] if n_outputs == 1 else y)
    groups = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    explainer = TreeExplainer(model, feature_groups=named(groups), precision=precision)
    values = by_output(explainer.explain(X[:10], index="OV").values)
    ensemble = adapt(model).ensemble
    expected = reference.path_dependent(
        ensemble, X[:10].astype(ensemble.x_dtype), index="OV", player_groups=groups
    ).values
    assert (np.abs(values - expected) <= tolerance * leaf_scale(ensemble)[:, np.newaxis]).all()
    n_nodes = [group["n_nodes"] for group in explainer._compiled.of(OWEN_VALUES).plan().info()["groups"]]
    of_groups = (len(sizes) + 1) // 2
    assert max(n_nodes) == of_groups * max(n // 2 if n <= 9 else (n + 1) // 2 for n in sizes)


def test_leaves_without_tables_go_through_patterns() -> None:
    n_patterns = 0
    for seed in range(100):
        ensemble, rows, groups = drawn(seed + 2000)
        with np.errstate(over="ignore"):
            rows = rows.astype(ensemble.x_dtype)
        background, weights = rows[4:], np.full(len(rows) - 4, 1 / (len(rows) - 4))
        plan = _core.background_plan(
            attributes_of(ensemble), "double", background, weights, "SII", 0, groups=groups.tolist()
        )
        n_patterns += plan.info()["n_patterns"]
        values = np.empty((4, ensemble.n_outputs, ensemble.n_features), rows.dtype)
        plan.explain(rows[:4], values, None, 1)
        expected = reference.interventional(
            ensemble, rows[:4], background, index="OV", player_groups=groups
        ).values
        tolerance = 1e-10 if rows.dtype == np.float64 else 2e-7  # values are float32, as rows are
        assert (np.abs(values - expected) <= tolerance * leaf_scale(ensemble)[:, np.newaxis]).all()
    assert n_patterns > 1000


def test_plans_refuse_wrong_groups_and_need_a_layout() -> None:
    ensemble, rows, _ = drawn(0)
    for groups in ([0], [-1] * ensemble.n_features, [99] * ensemble.n_features):
        with pytest.raises(ValueError, match="groups must have a number"):
            _core.owen_plan(attributes_of(ensemble), "double", groups)
    plan = _core.owen_plan(attributes_of(ensemble), "double", [0] * ensemble.n_features)
    values = np.empty((9, ensemble.n_outputs, ensemble.n_features))
    with pytest.raises(ValueError, match="make one of it by interval_plan"):
        plan.explain(rows.astype(np.float64), values, None, 1)


def test_paths_that_need_too_many_nodes_are_refused() -> None:
    from sklearn.tree import DecisionTreeRegressor

    X = np.eye(130)
    model = DecisionTreeRegressor().fit(X, 2.0 ** np.arange(130))
    assert model.get_depth() == 129
    with pytest.raises(ValueError, match="129 different features and groups, too many for Owen values: use"):
        explain(model, X, feature_groups={"half": list(range(0, 130, 2))}, index="OV")
    few = {"few": [0, 1, 128, 129]}
    values = explain(model, X[-5:], feature_groups=few, index="OV", precision="double")
    of_groups = explain(model, X[-5:], feature_groups=few, precision="double")
    sums = values.values[:, [0, 1, 128, 129]].sum(axis=1)
    assert_allclose(sums, of_groups.values[:, of_groups.feature_names.index("few")], rtol=1e-9)


def test_other_groups() -> None:
    """The reference computes Owen values of trees whose players are already groups."""
    ensemble, rows, groups = drawn(3)
    values = reference.path_dependent(ensemble, rows, index="OV", player_groups=groups).values
    order = np.unique(groups, return_index=True)[1]
    game = replace(ensemble, player=np.argsort(np.argsort(order))[groups])
    expected = reference.path_dependent(game, rows).values
    assert_allclose(sums(values, groups), expected, rtol=0, atol=1e-10 * np.abs(values).max())


@pytest.mark.parametrize(
    ("n_features", "group_size", "single", "double"),
    [
        (16, 1, True, True),
        (17, 1, False, False),  # groups on a path
        (8, 8, True, True),
        (9, 9, False, False),  # features of a group
        (20, 2, True, True),
        (24, 2, False, False),  # 12 + 24 bits
        (12, 8, True, True),
        (16, 8, True, False),  # bytes of tables
        (24, 8, False, False),
    ],
)
def test_limits_of_trees_that_gpus_explain_leaf_by_leaf(
    n_features: int, group_size: int, single: bool, double: bool
) -> None:
    attributes = attributes_of(random_chain(0, n_features, n_features))
    groups = (np.arange(n_features) // group_size).tolist()
    for precision, expected in (("single", single), ("double", double)):
        assert _core.has_owen_leaves(_core.owen_plan(attributes, precision, groups)) == expected


def test_plans_for_gpus_explain_no_rows_on_the_cpu() -> None:
    ensemble, rows, groups = drawn(3)
    plan = _core.owen_plan(attributes_of(ensemble), "single", groups.tolist())
    layout = _core.IntervalLayout(plan, 1, 1.0, NEVER_TABLES, on_gpu=True)
    unwalked = _core.interval_plan(plan, layout, unwalked=True)
    values = np.empty((len(rows), ensemble.n_outputs, ensemble.n_features))
    for refused in (plan, unwalked):
        with pytest.raises(ValueError, match="no walks"):
            refused.explain(rows, values, None, 1)
    ordinary = _core.Plan(attributes_of(ensemble), "single")
    layout = _core.IntervalLayout(ordinary, 1, 1.0, NEVER_TABLES)
    with pytest.raises(ValueError, match="Owen values"):
        _core.interval_plan(ordinary, layout, unwalked=True)
