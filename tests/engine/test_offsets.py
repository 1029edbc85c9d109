"""Leaves with a large common offset, as in forests with a target far from zero, lose no digits.

SHAP values and interactions are differences of leaves. The reference is ``reference.py``, which computes the
definition, for trees from whose leaves the first leaf of the tree was subtracted; this subtraction is exact
if the offset is large. The core subtracts another offset.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers.ensembles import random_ensemble, random_rows
from helpers.instruction_sets import each_set, run_again
from sklearn.ensemble import (
    ExtraTreesRegressor,
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.tree import DecisionTreeRegressor

from skshapgpu import TreeExplainer, _core, reference
from skshapgpu._engine.additivity import allowed_gap
from skshapgpu.adapters import _REGISTERED, adapt
from skshapgpu.adapters.ensemble import Ensemble, Tree
from skshapgpu.adapters.schema import AdaptedModel, InputSchema

#: Tolerance relative to the largest value of an output; see docs/exactness.md.
TOLERANCE = {"single": 3e-6, "double": 1e-13}


class EnsembleModel:
    """Model that wraps a given ensemble."""

    def __init__(self, ensemble: Ensemble) -> None:
        self.ensemble = ensemble


@pytest.fixture(autouse=True)
def given_is_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    def adapt_given(model: EnsembleModel) -> AdaptedModel:
        schema = InputSchema(model.ensemble.n_features)
        return AdaptedModel(model.ensemble, schema, family="given", squared_error=True)

    monkeypatch.setitem(_REGISTERED, f"{EnsembleModel.__module__}.{EnsembleModel.__qualname__}", adapt_given)


def first_leaves(ensemble: Ensemble) -> np.ndarray:
    """Return, for each node, the value of the first leaf of the node's tree."""
    leaves = np.flatnonzero(ensemble.left < 0)
    first = leaves[np.searchsorted(leaves, ensemble.tree_offsets[:-1])]
    return np.repeat(ensemble.value[first], np.diff(ensemble.tree_offsets), axis=0)


def shifted(ensemble: Ensemble, by_tree: np.ndarray) -> Ensemble:
    """Add an offset to all leaves of each tree of an ensemble."""
    offset = np.repeat(by_tree, np.diff(ensemble.tree_offsets))[:, np.newaxis]
    return replace(ensemble, value=np.where(ensemble.left[:, np.newaxis] < 0, ensemble.value + offset, 0.0))


def without_offsets(ensemble: Ensemble) -> Ensemble:
    value = np.where(ensemble.left[:, np.newaxis] < 0, ensemble.value - first_leaves(ensemble), 0.0)
    return replace(ensemble, value=value, intercept=np.zeros(ensemble.n_outputs))


def assert_close(actual: np.ndarray, expected: np.ndarray, precision: str) -> None:
    """Compare ``actual``, in the shapes of explainers, with ``expected``, which has the outputs in axis 1."""
    actual = actual[:, np.newaxis] if actual.ndim < expected.ndim else np.moveaxis(actual, -1, 1)
    axes = (0, *range(2, expected.ndim))
    largest = np.abs(expected).max(axis=axes, keepdims=True)
    assert (largest > 0).all()
    assert (np.abs(actual - expected) <= TOLERANCE[precision] * largest).all(), (
        np.abs(actual - expected).max(axis=axes) / largest.ravel()
    )


def check_values(model: Any, exact: Ensemble, X: np.ndarray, precision: str = "single") -> None:
    expected = reference.path_dependent(exact, X).values
    for algorithm in ("quadrature", "fast_v2"):
        explainer = TreeExplainer(model, algorithm=algorithm, precision=precision)
        assert_close(explainer.shap_values(X), expected, precision)
    for algorithm in ("treeshap", "fast_v1"):
        explainer = TreeExplainer(model, algorithm=algorithm, precision=precision, device="cpu")
        assert_close(explainer.shap_values(X), expected, precision)


def check_many_rows(model: Any, exact: Ensemble, X: np.ndarray, precision: str = "single") -> None:
    """Check enough rows for "auto" to build tables."""
    expected = reference.path_dependent(exact, X).values
    explainer = TreeExplainer(model, precision=precision, device="cpu")
    n_copies = 400_000 // len(X)
    groups = explainer.plan(n_copies * len(X)).tree_groups
    by_tables = sum(group.n_leaves for group in groups if group.algorithm == "tables")
    assert by_tables > sum(group.n_leaves for group in groups) / 2
    assert_close(explainer.shap_values(np.tile(X, (n_copies, 1)))[: len(X)], expected, precision)


def check_interactions(model: Any, exact: Ensemble, X: np.ndarray, precision: str = "single") -> None:
    explainer = TreeExplainer(model, precision=precision)
    for index in ("SII", "STII", "BII"):
        expected = reference.path_dependent(exact, X, index=index).values
        assert_close(explainer.explain_interactions(X, index=index).matrices(), expected, precision)


def check_background(model: Any, exact: Ensemble, X: np.ndarray, precision: str = "single") -> None:
    background = X[::3]
    expected = reference.interventional(exact, X, background).values
    explainer = TreeExplainer(model, background, precision=precision)
    assert_close(explainer.shap_values(X), expected, precision)
    explainer = TreeExplainer(model, background, precision=precision, device="cpu")
    expected = reference.interventional(exact, X, background, index="SII").values
    assert_close(explainer.shap_interaction_values(X), expected, precision)


CHECKS = [check_values, check_many_rows, check_interactions, check_background]


@pytest.mark.parametrize("offset", [1e3, 1e6, 1e9, 1e12])
@pytest.mark.parametrize("check", CHECKS)
def test_ensembles(check: Callable[..., None], offset: float) -> None:
    """The offsets have either sign and differ between trees."""
    rng = np.random.default_rng(7)
    for vector in (False, True):
        ensemble = random_ensemble(
            rng, n_trees=12, n_features=6, n_outputs=2, vector=vector, shapes=("random", "oblivious")
        )
        ensemble = shifted(ensemble, offset * rng.normal(size=ensemble.n_trees))
        X = random_rows(rng, ensemble, 30)
        precisions = ("single", "double") if check is check_values else ("single",)
        for precision in precisions:
            check(EnsembleModel(ensemble), without_offsets(ensemble), X, precision)


def models() -> dict[str, tuple[Callable[[], Any], float]]:
    """Return regressors of all families, and by how many standard deviations a target may be off zero.

    XGBoost, LightGBM and CatBoost hold targets as float32, and scikit-learn computes splits from squares of
    targets.
    """
    made: dict[str, tuple[Callable[[], Any], float]] = {
        "tree": (lambda: DecisionTreeRegressor(max_depth=5, random_state=0), 1e6),
        "forest": (lambda: RandomForestRegressor(20, max_depth=5, random_state=0), 1e6),
        "extra trees": (lambda: ExtraTreesRegressor(20, max_depth=5, random_state=0), 1e6),
        "gradient boosting": (lambda: GradientBoostingRegressor(n_estimators=20, random_state=0), 1e12),
        "gradient boosting from zero": (
            lambda: GradientBoostingRegressor(n_estimators=20, init="zero", random_state=0),
            1e6,
        ),
        "histograms": (lambda: HistGradientBoostingRegressor(max_iter=20, max_leaf_nodes=8), 1e12),
    }
    try:
        from xgboost import XGBRegressor

        options: dict[str, Any] = {"n_estimators": 20, "max_depth": 4, "n_jobs": 1}
        made["xgboost"] = lambda: XGBRegressor(**options), 1e6
        made["xgboost from zero"] = lambda: XGBRegressor(**options, base_score=0.0), 1e3
    except ImportError:
        pass
    try:
        from lightgbm import LGBMRegressor

        light: dict[str, Any] = {"n_estimators": 20, "num_leaves": 12, "verbose": -1, "n_jobs": 1}
        made["lightgbm"] = lambda: LGBMRegressor(**light), 1e6
        made["lightgbm forest"] = (
            lambda: LGBMRegressor(**light, boosting_type="rf", subsample=0.7, subsample_freq=1),
            1e6,
        )
        made["lightgbm from zero"] = lambda: LGBMRegressor(**light, boost_from_average=False), 1e6
    except ImportError:
        pass
    try:
        from catboost import CatBoostRegressor

        cat: dict[str, Any] = {"iterations": 20, "depth": 4, "verbose": False, "thread_count": 1}
        cat["allow_writing_files"] = False
        made["catboost"] = lambda: CatBoostRegressor(**cat), 1e6
        made["catboost from zero"] = lambda: CatBoostRegressor(**cat, boost_from_average=False), 1e6
    except ImportError:
        pass
    return made


MODELS = models()


@pytest.mark.parametrize(
    ("name", "offset"),
    [(name, c) for name, (_, most) in MODELS.items() for c in (0.0, 1e3, 1e6, 1e9, 1e12) if c <= most],
)
def test_families(name: str, offset: float) -> None:
    make, _ = MODELS[name]
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 5))
    y = 10 * X[:, 0] + 5 * X[:, 1] * X[:, 2] + rng.normal(size=300)
    model = make().fit(X, offset * y.std() + y)
    assert np.ptp(model.predict(X)) > y.std()
    exact = without_offsets(adapt(model).ensemble)
    for check in (check_values, check_interactions, check_background):
        check(model, exact, X[:24].astype(exact.x_dtype))


@pytest.mark.parametrize("offset", [1e9, 1e12])
def test_forests_moved_after_training(offset: float) -> None:
    rng = np.random.default_rng(2)
    X = rng.normal(size=(200, 5))
    model = RandomForestRegressor(20, max_depth=3, random_state=0).fit(X, X[:, 0] + X[:, 1] * X[:, 2])
    near = model.predict(X)
    for tree in model.estimators_:
        tree.tree_.value[...] += offset
    # The library adds up 20 trees, rounding each time, before it divides by 20.
    np.testing.assert_allclose(model.predict(X) - offset, near, rtol=0, atol=20 * 2.0**-53 * offset)
    exact = without_offsets(adapt(model).ensemble)
    for check in CHECKS:
        check(model, exact, X[:24].astype(exact.x_dtype))


def test_forest_of_two_targets_with_unlike_offsets() -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(200, 4))
    y = np.stack([1e9 + X[:, 0] + X[:, 1], 1e-6 * X[:, 2] * X[:, 3] - 1e-2], axis=1)
    model = RandomForestRegressor(10, max_depth=5, random_state=0).fit(X, y)
    exact = without_offsets(adapt(model).ensemble)
    for check in CHECKS[:1] + CHECKS[2:]:
        check(model, exact, X[:24].astype(exact.x_dtype))


def test_squared_errors_of_far_targets() -> None:
    """Losses are differences of margins and labels, which share the offset."""
    rng = np.random.default_rng(3)
    ensemble = random_ensemble(rng, n_trees=6, n_features=4, shapes=("random",))
    by_tree = np.full(6, 1e8)
    X, far = random_rows(rng, ensemble, 20), shifted(ensemble, by_tree)
    near = without_offsets(far)
    labels = near.margin(X)[:, 0] + rng.normal(size=20)
    offset = (far.margin(X[:1]) - near.margin(X[:1]))[0, 0]
    expected, base, _ = reference.rescaled(
        near, X, X[::2], lambda m, y: (m - y) ** 2, lambda m, y: 2 * (m - y), labels=labels
    )
    explainer = TreeExplainer(EnsembleModel(far), X[::2], model_output="log_loss", device="cpu")
    explanation = explainer.explain(X, labels + offset)
    # The offset takes 30 of the 53 bits of labels and margins.
    largest = np.abs(expected).max()
    assert np.abs(explanation.values - expected[:, 0]).max() <= 3e-6 * largest
    assert np.abs(explanation.base_values - base[:, 0]).max() <= 3e-6 * largest
    assert explanation.additivity_error is not None and explanation.additivity_error < 1e-5 * largest


@pytest.mark.parametrize("offset", [0.0, 1e9])
def test_the_additivity_bound_is_that_of_the_centered_leaves(offset: float) -> None:
    rng = np.random.default_rng(5)
    ensemble = shifted(random_ensemble(rng, n_trees=8, shapes=("random",)), np.full(8, offset))
    explainer = TreeExplainer(EnsembleModel(ensemble))
    allowed = allowed_gap(explainer._compiled, np.float64)[0]
    spread = np.ptp(ensemble.margin(random_rows(rng, ensemble, 500)))
    # A leaf differs from its tree's mean by at most the spread of the tree's leaves: for these trees at most
    # 8 times the spread of the sum.
    assert 0 < allowed <= 2.0**-18 * 8 * spread + 20 * 2.0**-52 * offset * 8


def stump(left: Any, right: Any, output: int = 0) -> Tree:
    """Build a stump in which a quarter of the rows goes left."""
    value = np.array([np.zeros_like(left), left, right])
    return Tree([1, -1, -1], [2, -1, -1], [0] * 3, [0.0] * 3, [False] * 3, [4, 1, 3], value, output)


@pytest.mark.parametrize(
    ("trees", "intercept", "constant", "magnitude"),
    [
        # Expected values are (8 - 3 * 4) / 4 = -1, (1 + 3 * 5) / 4 = 4 and (-4 + 3 * 4) / 4 = 2.
        ([stump(8.0, -4.0)], [2.0], [1.0], [9.0]),
        ([stump(8.0, -4.0), stump(1.0, 5.0, 1), stump(-4.0, 4.0, 1)], [2, 3], [1, 9], [9, 3 + 6]),
        ([stump([8.0, 1.0], [-4.0, 5.0]), stump([1.0, 1.0], [5.0, 1.0])], [2, 3], [5, 8], [9 + 3, 3 + 0]),
        ([], [-2.0], [-2.0], [0.0]),
    ],
)
def test_constant_and_magnitude(trees: Any, intercept: Any, constant: Any, magnitude: Any) -> None:
    ensemble = Ensemble.from_trees(trees, n_features=1, intercept=intercept)
    for precision in ("single", "double"):
        plan = _core.Plan(vars(ensemble), precision)
        np.testing.assert_array_equal(plan.constant, constant)
        np.testing.assert_array_equal(plan.base_value, constant)
        np.testing.assert_array_equal(plan.leaf_magnitude, magnitude)


def test_an_intercept_that_the_leaves_take_back() -> None:
    """Boosting starts at 0.3 for targets near 1e-5: base value and leaves are far below a tree's mean."""
    rng = np.random.default_rng(11)
    ensemble = random_ensemble(rng, n_trees=1, n_features=3, shapes=("random",), max_leaves=9)
    value = np.where(
        ensemble.left[:, np.newaxis] < 0, -0.3 + 1e-5 * rng.normal(size=ensemble.value.shape), 0.0
    )
    ensemble = replace(ensemble, value=value, intercept=np.array([0.3]))
    X = random_rows(rng, ensemble, 200)
    explanation = TreeExplainer(EnsembleModel(ensemble), precision="double").explain(X)
    assert explanation.additivity_error is not None and explanation.additivity_error < 1e-5 * 2.0**-48
    expected, base, _ = reference.path_dependent(without_offsets(ensemble), X)
    assert_close(explanation.values, expected, "double")
    assert abs(explanation.base_values - (base[0] + first_leaves(ensemble)[0, 0] + 0.3)) < 2.0**-53
    assert np.abs(explanation.values).max() > 1e-6


def test_leaves_that_would_overflow_keep_their_offset() -> None:
    ensemble = Ensemble.from_trees([stump(-1.7e308, 1.7e308)], n_features=1, intercept=2.0)
    plan = _core.Plan(vars(ensemble), "double")
    np.testing.assert_array_equal(plan.constant, [2.0])
    np.testing.assert_array_equal(plan.leaf_magnitude, [1.7e308])
    values, margin = np.empty((2, 1, 1)), np.empty((2, 1))
    plan.explain(np.array([[-1.0], [1.0]]), values, margin, 1)
    # The value of a row is its leaf minus the expected value, 0.85e308; the value of the left leaf exceeds
    # float64.
    np.testing.assert_allclose(values[:, 0, 0], [-np.inf, 0.85e308], rtol=1e-15)
    np.testing.assert_array_equal(margin, [[-1.7e308], [1.7e308]])


@each_set
def test_other_instruction_sets(isa: str) -> None:
    run_again(isa, __file__, select="test_ensembles")
