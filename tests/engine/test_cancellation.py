"""Trees whose leaves cancel are explained in double precision, or refused, and all others as before."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.cases import CASES
from helpers.ensembles import random_ensemble
from helpers.families import FAMILIES, classifier, library, regressor
from sklearn.base import clone
from sklearn.ensemble import (
    ExtraTreesRegressor,
    GradientBoostingRegressor,
    IsolationForest,
    RandomForestClassifier,
    RandomForestRegressor,
    VotingRegressor,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from skshapgpu import ShapTransformer, TreeExplainer, UnsupportedModelError, explain, partial_dependence
from skshapgpu._engine import cancellation
from skshapgpu.adapters import AdaptedModel, Ensemble, InputSchema, Tree

R = np.random.default_rng(5)
X = R.normal(size=(160, 4))
Y = X[:, 0] * X[:, 1]


def sum_that_cancels(weight: float) -> tuple[Any, Any]:
    """Return a sum of models in which two cancel, and the third model, whose predictions the sum has."""
    catboost = library("catboost")
    options = {"iterations": 10, "depth": 4, "verbose": 0, "allow_writing_files": False, "thread_count": 1}
    a, b = (catboost.CatBoostRegressor(random_seed=seed, **options).fit(X, Y) for seed in (0, 3))
    return catboost.sum_models([a, a, b], weights=[weight, -weight, 1.0]), b


def stump(feature: int, left: float, right: float, cover: float = 0.5) -> Tree:
    """Return a tree whose left child has this fraction of the cover."""
    return Tree(
        left=[1, -1, -1],
        right=[2, -1, -1],
        feature=[feature, 0, 0],
        threshold=[0.0] * 3,
        missing_left=[True] * 3,
        cover=[100.0, 100 * cover, 100 - 100 * cover],
        value=[0.0, left, right],
    )


def adapted(*trees: Tree, intercept: float = 0.0) -> AdaptedModel:
    ensemble = Ensemble.from_trees(trees, n_features=4, intercept=intercept, x_dtype="float64")
    return AdaptedModel(ensemble, InputSchema(4), family="trees")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"data": X[:30]},
        {"algorithm": "treeshap", "device": "cpu"},
        {"feature_groups": {"g": [0, 1]}},
    ],
)
def test_sums_of_models_that_cancel_add_up(options: dict[str, Any]) -> None:
    model, same = sum_that_cancels(1e8)
    right = same.predict(X)
    explainer = TreeExplainer(model, **options)
    assert explainer.precision == "double"
    for rows in (X, X.astype(np.float32).astype(np.float64)):
        explanation = explainer.explain(rows)
        total = explanation.base_values + explanation.values.sum(axis=1)
        np.testing.assert_allclose(total, same.predict(rows), atol=1e-6)
    assert explanation.precision == "double"
    single = explainer.explain(X.astype(np.float32))
    assert single.values.dtype == np.float32
    total = single.base_values + single.values.sum(axis=1, dtype=np.float64)
    np.testing.assert_allclose(total, same.predict(X.astype(np.float32)), atol=1e-5)
    np.testing.assert_allclose(
        explainer.shap_values(X), TreeExplainer(same, **options).shap_values(X), atol=1e-5
    )
    for size in (1, 7):  # of any rows, in any order
        rows = R.choice(len(X), size, replace=False)
        np.testing.assert_allclose(
            explainer.shap_values(X[rows]).sum(axis=1) + explainer.expected_value, right[rows], atol=1e-6
        )
        assert explainer.precision == "double"


def test_models_of_columns_and_of_scaled_columns_cancel() -> None:
    """Rows that are drawn from the thresholds of such models must be rows that the scaler could give."""
    forest = RandomForestRegressor(5, max_depth=4, random_state=0)
    members = [("a", forest), ("b", make_pipeline(StandardScaler(), forest)), ("c", clone(forest))]
    model = VotingRegressor(members, weights=[1e9, -1e9, 1.0]).fit(X, Y)
    right = model.estimators_[2].predict(X)
    np.testing.assert_array_equal(model.estimators_[0].predict(X), model.estimators_[1].predict(X))
    for options in ({}, {"data": X[:30]}):
        explainer = TreeExplainer(model, **options)
        assert explainer.precision == "double"
        total = explainer.shap_values(X).sum(axis=1) + explainer.expected_value
        np.testing.assert_allclose(total, right, atol=1e-4)


def test_other_results_of_sums_that_cancel() -> None:
    model, same = sum_that_cancels(1e8)
    groups = {"g": [0, 1]}
    ours, theirs = (
        TreeExplainer(model, feature_groups=groups),
        TreeExplainer(same, feature_groups=groups, precision="double"),
    )
    for index in ("BV", "OV"):
        np.testing.assert_allclose(
            ours.explain(X, index=index).values, theirs.explain(X, index=index).values, atol=1e-5
        )
    ours, theirs = TreeExplainer(model), TreeExplainer(same, precision="double")
    np.testing.assert_allclose(ours.shap_interaction_values(X), theirs.shap_interaction_values(X), atol=1e-5)
    for index in ("STII", "BII"):
        pairs = [(0, 1), (1, 3)]
        np.testing.assert_allclose(
            ours.explain_interactions(X, interactions=pairs, index=index).values,
            theirs.explain_interactions(X, interactions=pairs, index=index).values,
            atol=1e-5,
        )
    transformer = ShapTransformer.from_fitted(model)
    assert transformer.explainer_.precision == "double"
    np.testing.assert_array_equal(transformer.transform(X), ours.shap_values(X))


def test_all_trees_are_copies_that_cancel() -> None:
    forest = RandomForestRegressor(5, max_depth=4, random_state=0)
    members = [
        ("a", forest),
        ("b", make_pipeline(StandardScaler(), forest)),
        ("c", DecisionTreeRegressor(min_samples_leaf=len(X))),
    ]
    model = VotingRegressor(members, weights=[1e9, -1e9, 1.0]).fit(X, Y + 10)
    explainer = TreeExplainer(model)
    assert explainer.precision == "double"
    np.testing.assert_allclose(explainer.shap_values(X), 0, atol=1e-4)


@pytest.mark.parametrize("size", [0.1, 3.3e9])
def test_a_sum_that_is_constant(size: float) -> None:
    """Rounding errors would look like values of a feature, small compared with the margin."""
    trees = [stump(i, sign * size, -sign * size) for i in range(3) for sign in (1, -1)]
    explainer = TreeExplainer(adapted(*trees, intercept=-9e6))
    assert explainer.precision == "double"
    for index in ("SV", "BV"):
        np.testing.assert_allclose(explainer.explain(X, index=index).values, 0, atol=1e-14 * size)


def test_equal_trees_of_the_columns_of_a_group_are_not_refused() -> None:
    trees = [stump(0, -1.0, 1.0), stump(1, 1.0, -1.0)]
    rows = R.normal(size=(20, 4))
    values = TreeExplainer(adapted(*trees), feature_groups={"g": [0, 1]}).explain(rows).values
    margin = np.where(rows[:, 0] <= 0, -1.0, 1.0) + np.where(rows[:, 1] <= 0, 1.0, -1.0)
    np.testing.assert_allclose(values[:, 0], margin, atol=1e-12)


def test_a_group_of_the_only_column() -> None:
    model = DecisionTreeRegressor(max_depth=2, random_state=0).fit(X[:, :1], Y)  # leaves have the feature -2
    explainer = TreeExplainer(model, feature_groups={"g": [0]})
    values = explainer.shap_values(X[:, :1])
    np.testing.assert_allclose(values[:, 0] + explainer.expected_value, model.predict(X[:, :1]), atol=1e-6)


@pytest.mark.parametrize("tables", [False, True])
def test_explainers_that_are_stored_keep_the_precision(tables: bool, tmp_path: Path) -> None:
    model, _ = sum_that_cancels(1e8)
    explainer = TreeExplainer(model)
    explainer.save(tmp_path / "explainer.npz", tables=tables)
    for again in (TreeExplainer.load(tmp_path / "explainer.npz"), pickle.loads(pickle.dumps(explainer))):
        assert again.precision == "double"
        np.testing.assert_array_equal(again.shap_values(X), explainer.shap_values(X))
    model.save_model(str(tmp_path / "model.json"), format="json")
    assert TreeExplainer(str(tmp_path / "model.json")).precision == "double"


#: Rows whose first two columns cancel in half of the margins, as those of rows drawn from thresholds do not.
CANCELLING = np.where(R.random((60, 4)) < 0.5, -1.0, 1.0)
CANCELLING[:30, 1] = CANCELLING[:30, 0]


def classifier_that_cancels(size: float) -> AdaptedModel:
    """Return a classifier with leaves of this size; margins are 1 or -1 if the first columns are equal."""
    parts = [0.3 * size, 0.7 * size]  # which float32 does not hold
    cancel = [stump(0, size, -size), *(stump(1, -part, part) for part in parts)]
    return replace(adapted(*cancel, stump(2, -1.0, 1.0)), binary="margin", link="logistic")


def test_probabilities_of_margins_that_cancel_add_up() -> None:
    explainer = TreeExplainer(classifier_that_cancels(1e13), CANCELLING[:5], model_output="probability")
    assert explainer.precision == "double"
    explanation = explainer.explain(CANCELLING[:30])
    total = explanation.base_values + explanation.values.sum(axis=1)
    np.testing.assert_allclose(total, 1 / (1 + np.exp(-CANCELLING[:30, 2])), atol=0.01)
    assert np.abs(explanation.values).max() > 1e12  # the values of the first two columns


def test_functions_of_margins_that_double_precision_does_not_resolve_are_refused() -> None:
    model = classifier_that_cancels(1e16)
    assert TreeExplainer(model, CANCELLING[:5]).shap_values(CANCELLING).any()
    with pytest.raises(UnsupportedModelError, match=r"so large, up to .* changes the probability completely"):
        TreeExplainer(model, CANCELLING[:5], model_output="probability")


def test_trees_that_double_precision_does_not_resolve_are_refused() -> None:
    model, _ = sum_that_cancels(1e16)
    for make in (TreeExplainer, lambda model: explain(model, X), ShapTransformer.from_fitted):
        with pytest.raises(UnsupportedModelError, match=r"the trees cancel: .*margins .* differ by .* only"):
            make(model)
    with pytest.raises(UnsupportedModelError, match="the trees cancel"):
        TreeExplainer(model, precision="double")
    with pytest.raises(UnsupportedModelError, match="the trees cancel"):  # and nothing is left
        TreeExplainer(adapted(*[stump(0, 0.1 * 1e8, 1e8), stump(0, -0.1 * 1e8, -1e8)], intercept=1e-12))


def test_a_huge_leaf_of_few_rows() -> None:
    xgboost = library("xgboost")
    model = xgboost.XGBRegressor(n_estimators=10, max_depth=3, n_jobs=1).fit(X, Y)
    document = json.loads(model.get_booster().save_raw("json"))
    tree = document["learner"]["gradient_booster"]["model"]["trees"][3]
    leaf = int(np.flatnonzero(np.array(tree["left_children"]) == -1)[0])
    tree["base_weights"][leaf] = tree["split_conditions"][leaf] = 1e8
    booster = xgboost.Booster(model_file=bytearray(json.dumps(document).encode()))
    margin = booster.predict(xgboost.DMatrix(X), output_margin=True).astype(np.float64)
    usual = margin < 1e7
    assert 0 < np.count_nonzero(~usual) < 80
    explainer = TreeExplainer(booster)
    assert explainer.precision == "double"
    values = explainer.shap_values(X)
    total = explainer.expected_value + values.sum(axis=1)
    np.testing.assert_allclose(total[usual], margin[usual], atol=1e-5)
    # In float32, the values of usual rows cannot add up to their margins.
    assert np.abs(values.astype(np.float32).sum(axis=1, dtype=np.float64) - values.sum(axis=1)).max() > 0.1
    with pytest.raises(RuntimeError, match="additivity check failed"):
        explainer.shap_values(X.astype(np.float32))


def test_boosting_that_undoes_its_first_trees() -> None:
    """The first trees overshoot, as with a target far from zero, and later trees correct them."""
    trees = [stump(0, 1e7, 3e7, 0.3), stump(1, 0.25, -0.5), stump(0, -1e7, -3e7, 0.3), stump(2, 1.5, -1.0)]
    explainer = TreeExplainer(adapted(*trees, intercept=1e6))
    assert explainer.precision == "double"
    values = explainer.shap_values(X)
    np.testing.assert_allclose(
        values[:, [1, 2]], np.where(X[:, [1, 2]] <= 0, [0.375, 1.25], [-0.375, -1.25]), atol=1e-7
    )
    np.testing.assert_allclose(values[:, [0, 3]], 0, atol=1e-7)


def ordinary_models() -> dict[str, Any]:
    far, rare = 1e6 + Y, np.where(np.arange(160) < 2, 2, (X[:, 0] > 1).astype(int))
    sparse = np.where(R.random((160, 30)) < 0.05, 1.0, 0.0)
    models = {
        "forest": RandomForestRegressor(20, random_state=0).fit(X, far),
        "several targets": RandomForestRegressor(9, random_state=0).fit(X, np.column_stack([far, 1e-9 * Y])),
        "rare class": RandomForestClassifier(9, max_features=1, random_state=0).fit(X, rare),
        "one tree, two classes": DecisionTreeClassifier(max_depth=2).fit(X, rare > 0),
        "sparse": ExtraTreesRegressor(9, random_state=0).fit(sparse, sparse @ R.normal(size=30)),
        "boosting": GradientBoostingRegressor(n_estimators=200, random_state=0).fit(X, far),
        "without an initial value": GradientBoostingRegressor(n_estimators=200, init="zero").fit(X, far),
        "isolation forest": IsolationForest(n_estimators=20, random_state=0).fit(X),
        "noise": GradientBoostingRegressor(n_estimators=300, random_state=0).fit(X, R.normal(size=160)),
        "constant": RandomForestRegressor(3).fit(X, np.full(160, 7.0)),
        "huge": RandomForestRegressor(9, random_state=0).fit(X, 1e30 * Y),
        "tiny": RandomForestRegressor(9, random_state=0).fit(X, 1e-30 * Y),
    }
    for family in FAMILIES:
        models |= {
            f"{family}, far from zero": regressor(family).fit(X, far),
            f"{family}, classes": classifier(family).fit(X, rare),
        }
    return models


def test_ordinary_models_are_explained_in_single_precision() -> None:
    for name, model in ordinary_models().items():
        explainer = TreeExplainer(model)
        assert explainer.precision == "single", name
        assert TreeExplainer(model, precision="double").precision == "double"


@pytest.mark.parametrize("name", [name for name in CASES if "linear" not in name])
def test_models_of_all_kinds_are_explained_in_single_precision(name: str) -> None:
    model, X = CASES[name]()
    del X
    try:
        explainer = TreeExplainer(model)
    except UnsupportedModelError as error:
        assert "cancel" not in str(error)
        pytest.skip("without covers")
    assert explainer.precision == "single"


@pytest.mark.parametrize("seed", range(12))
def test_margins_of_drawn_rows_are_those_of_the_ensemble(seed: int) -> None:
    """A second implementation of the walk, for many trees at once."""
    ensemble = random_ensemble(
        seed, n_trees=9, n_outputs=1 + seed % 3, vector=seed % 2 == 0, categorical=seed % 4 > 1
    )
    rows, column = cancellation._rows(ensemble)
    whole = np.zeros((len(rows), ensemble.n_features))
    inner = ensemble.left >= 0
    whole[:, ensemble.feature[inner]] = rows[:, column[inner]]
    assert np.isnan(whole).any() and len(np.unique(whole[:, ensemble.feature[inner][0]])) > 2
    margin, spread = cancellation._margins(ensemble)
    np.testing.assert_allclose(margin, ensemble.margin(whole), rtol=1e-12, atol=1e-12)
    assert (spread[np.ptp(margin, axis=0) > 1e-9] > 0).all()


def test_partial_dependence_refuses_trees_that_cancel() -> None:
    model, same = sum_that_cancels(1e16)
    with pytest.raises(UnsupportedModelError, match="the trees cancel"):
        partial_dependence(model, X, 0)
    assert np.isfinite(partial_dependence(same, X, 0)["average"]).all()


def test_half_ranges_are_those_of_the_leaves() -> None:
    one = Ensemble.from_trees([stump(0, -1.0, 4.0), stump(1, 2.0, 2.5)], n_features=4, intercept=9.0)
    np.testing.assert_allclose(cancellation.half_ranges(one), [2.75])
    several = [replace(stump(0, 0, 0), value=[[0.0] * 3, [-1.0, 0.0, 1.0], [0.0, 5.0, 10.0]])] * 2
    ensemble = Ensemble.from_trees(several, n_features=4, intercept=np.zeros(3))
    np.testing.assert_allclose(cancellation.half_ranges(ensemble), [1.0, 5.0, 9.0])
    outputs = [replace(stump(0, -1.0, 4.0), output=1), replace(stump(0, 0.0, 6.0), output=0)]
    ensemble = Ensemble.from_trees(outputs, n_features=4, intercept=np.zeros(2))
    np.testing.assert_allclose(cancellation.half_ranges(ensemble), [3.0, 2.5])


@pytest.mark.parametrize("seed", range(2))
def test_rows_with_far_larger_leaves_than_others(seed: int) -> None:
    """The values of three outliers are 10,000 times as large, and float32 cannot store them as exactly."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(400, 6)).astype(np.float32)
    targets = rows.sum(axis=1, dtype=np.float64)
    targets[:3] = 1e7, -3e6, 4e5
    model = GradientBoostingRegressor(n_estimators=5, max_depth=6, learning_rate=1.0, random_state=seed)
    explanation = explain(model.fit(rows, targets), rows, device="cpu")
    assert explanation.values.dtype == np.float32 and explanation.checked_against == "model"
    sums = explanation.values.sum(axis=1, dtype=np.float64) + explanation.base_values
    errors = np.abs(sums - model.predict(rows))
    assert errors[:3].max() > 0.02 and errors[3:].max() < 0.05
    assert (errors[:3] < 1e-6 * np.abs(targets[:3])).all()
