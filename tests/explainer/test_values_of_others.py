"""Models for which the SHAP values of the model's own library, or of shap, are known to differ from ours.

Assertions about other packages' values are limited to the releases in which they were measured, so that no
test fails when a bug is fixed.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from helpers.cases import CASES, LIGHTGBM, N_CODES, N_ROWS, data, version
from helpers.ensembles import exact_shap, leaf_scale
from helpers.own_values import (
    NOT_OWN,
    catboost_values,
    definition,
    fitted,
    lightgbm_values,
    shap_values,
    xgboost_values,
)

from skshapgpu import TreeExplainer, reference
from skshapgpu.adapters import adapt

pytestmark = [
    pytest.mark.filterwarnings("ignore:::lightgbm"),
    pytest.mark.filterwarnings("ignore:::shap"),
    pytest.mark.filterwarnings("ignore:.*(deprecated|manually specified)::xgboost"),
    pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning:helpers.checks"),
]


MEASURED = {"shap": ("0.51.0", "0.54.1"), "xgboost": ("3.2.0", "3.4.1"), "catboost": ("1.2.10",)}


def measured(module: Any) -> bool:
    return module.__version__ in MEASURED[module.__name__]


def gap(values: np.ndarray, margin: np.ndarray) -> float:
    """Return how far the values of each row, with the base value as last column, are from the prediction."""
    return float(np.abs(values.sum(axis=1) - margin).max())


def xgboost_loaded(document: dict[str, Any]) -> Any:
    booster = pytest.importorskip("xgboost").Booster({"nthread": 1})
    booster.load_model(bytearray(json.dumps(document).encode()))
    return booster


def xgboost_chain(share: float, n_features: int = 20) -> Any:
    """Build a tree: a chain of splits x < 0.5 on all features, with ``share`` of each cover on the left."""
    xgb = pytest.importorskip("xgboost")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, n_features))
    booster = xgb.train({"max_depth": 1, "nthread": 1, "base_score": 0.25}, xgb.DMatrix(X, X[:, 0]), 1)
    document = json.loads(booster.save_raw("json"))
    n_nodes = 2 * n_features + 1
    level = np.arange(n_features)
    inner = np.maximum(2 * level - 1, 0)  # XGBoost expects a right child next to the left one
    left, right = np.full((2, n_nodes), -1)
    parent, feature = np.full(n_nodes, 2**31 - 1), np.zeros(n_nodes, int)
    cover, value = np.full(n_nodes, 1e6), rng.normal(size=n_nodes)
    left[inner], right[inner], feature[inner] = 2 * level + 1, 2 * level + 2, level
    parent[left[inner]] = parent[right[inner]] = inner
    cover[left[inner]] *= share ** (level + 1.0)
    cover[right[inner]] *= share**level * (1 - share)
    value[inner] = 0.5  # the threshold
    tree = document["learner"]["gradient_booster"]["model"]["trees"][0]
    tree["tree_param"]["num_nodes"] = str(n_nodes)
    tree |= {
        "left_children": left.tolist(),
        "right_children": right.tolist(),
        "parents": parent.tolist(),
        "split_indices": feature.tolist(),
        "split_conditions": value.tolist(),
        "base_weights": value.tolist(),
        "sum_hessian": cover.tolist(),
        "loss_changes": [0.0] * n_nodes,
        "default_left": [0] * n_nodes,
        "split_type": [0] * n_nodes,
    }
    return xgboost_loaded(document)


@pytest.mark.parametrize("share", [0.02, 0.5, 0.97])
def test_xgboost_deep_chain_with_skewed_covers(share: float) -> None:
    """dmlc/xgboost#12179 and #12192: from 3.3 on, XGBoost uses 8 quadrature points for any depth."""
    xgb = pytest.importorskip("xgboost")
    booster = xgboost_chain(share)
    X = np.random.default_rng(1).uniform(0, 0.52, (8, 20))
    X[0] = 0.0
    margin = booster.predict(xgb.DMatrix(X), output_margin=True)
    ensemble = adapt(booster).ensemble
    expected = np.array([exact_shap(ensemble, x)[0] for x in X])
    scale = leaf_scale(ensemble)[0]
    for precision, tolerance in (("double", 1e-12), ("single", 1e-6)):
        explainer = TreeExplainer(booster, precision=precision)
        values = explainer.shap_values(X)
        assert np.abs(values - expected).max() <= tolerance * scale
        # The margin itself is a float32.
        np.testing.assert_allclose(explainer.expected_value + values.sum(axis=1), margin, atol=1e-6 * scale)
    own = booster.predict(xgb.DMatrix(X), pred_contribs=True)
    # Until 3.2, XGBoost unwinds paths in float32, which loses digits if the cover fractions are large.
    unwinds = version(xgb) < (3, 3)
    if share in ((0.02, 0.5) if unwinds else (0.97,)):
        np.testing.assert_allclose(own[:, :-1], expected, atol=1e-6 * scale)
    elif share in (0.02, 0.97) and measured(xgb):
        assert gap(own, margin) > 1e-4


@pytest.mark.parametrize("weight", ["zeros", "uneven"])
def test_xgboost_refreshed_trees(weight: str) -> None:
    """dmlc/xgboost#8199: covers from other rows than the training data, many of them zero."""
    xgb = pytest.importorskip("xgboost")
    X, y = data()
    grown = xgb.train({"max_depth": 4, "nthread": 1}, xgb.DMatrix(X, y), 6)
    weights = {"zeros": np.arange(N_ROWS) < 20, "uneven": np.random.default_rng(0).uniform(1e-3, 1e3, N_ROWS)}
    other = xgb.DMatrix(X[::-1].copy(), y, weight=weights[weight])
    update = {"process_type": "update", "updater": "refresh", "max_depth": 4, "nthread": 1}
    booster = xgb.train(update, other, 6, xgb_model=grown)
    margin = booster.predict(xgb.DMatrix(X), output_margin=True)
    ensemble = adapt(booster).ensemble
    assert (ensemble.cover == 0).any() == (weight == "zeros")
    expected, base_value, _ = reference.path_dependent(ensemble, X)
    explainer = TreeExplainer(booster, precision="double")
    values = explainer.shap_values(X)
    np.testing.assert_allclose(values, expected[:, 0], atol=1e-10)
    assert explainer.expected_value == pytest.approx(base_value[0], abs=1e-10)
    np.testing.assert_allclose(explainer.expected_value + values.sum(axis=1), margin, rtol=1e-5, atol=1e-5)
    # XGBoost 3.2 stops at zero covers: "Unique path 2 must have zero weight".
    if weight == "uneven" or version(xgb) >= (3, 3):
        own = booster.predict(xgb.DMatrix(X), pred_contribs=True)
        np.testing.assert_allclose(values, own[:, :-1], rtol=1e-6, atol=1e-6)


def test_xgboost_covers_that_do_not_add_up() -> None:
    """Only the ratio of two children matters: multiplying covers level by level changes nothing."""
    xgb = pytest.importorskip("xgboost")
    X, y = data(nan=True)
    booster = xgb.train({"max_depth": 4, "nthread": 1}, xgb.DMatrix(X, y), 6)
    document = json.loads(booster.save_raw("json"))
    for tree in document["learner"]["gradient_booster"]["model"]["trees"]:
        pending = [(0, 1.0)]
        while pending:
            node, factor = pending.pop()
            tree["sum_hessian"][node] *= factor
            if tree["left_children"][node] >= 0:
                pending += [(tree[side][node], factor * 4) for side in ("left_children", "right_children")]
    edited = xgboost_loaded(document)
    expected, ours = (TreeExplainer(b, precision="double") for b in (booster, edited))
    values = ours.shap_values(X)
    np.testing.assert_array_equal(values, expected.shap_values(X))
    assert ours.expected_value == expected.expected_value
    margin = edited.predict(xgb.DMatrix(X), output_margin=True)
    np.testing.assert_allclose(ours.expected_value + values.sum(axis=1), margin, rtol=1e-5)
    if measured(xgb):  # a child's share is its cover over that of its parent, and four times too large here
        own = edited.predict(xgb.DMatrix(X), pred_contribs=True)
        assert np.abs(own[:, :-1] - values).max() > 1


@pytest.mark.parametrize("name", ["xgboost dart", "xgboost dart, three classes"])
def test_xgboost_dart_weighs_its_trees(name: str) -> None:
    """dmlc/xgboost#5036, shap#1921: shap's own reader of the trees ignores the weights."""
    shap = pytest.importorskip("shap")
    case = fitted(name)
    values, base_value = case.explain("double")
    assert np.abs(values - xgboost_values(case.model, case.X)).max() <= 1e-6
    np.testing.assert_allclose(base_value + values.sum(axis=1), case.margin, atol=1e-5)
    if measured(shap) and base_value.shape == (1,):
        with_background = shap.TreeExplainer(case.model, case.X[:20])
        assert np.abs(with_background.model.predict(case.X) - case.margin[:, 0]).max() > 0.1


@pytest.mark.parametrize("name", [name for name in NOT_OWN if name.startswith("lightgbm")])
def test_lightgbm_forest_is_an_average(name: str) -> None:
    """LightGBM#6217: raw_score and pred_contrib are sums over the trees, ``predict`` is their average."""
    case = fitted(name)
    n_iterations = LIGHTGBM["n_estimators"]
    values, base_value = case.explain("double")
    own = lightgbm_values(case.model, case.X)
    # 1 if some release averages by itself.
    factor = case.model.predict(case.X, raw_score=True).reshape(case.margin.shape) / case.margin
    assert np.allclose(factor, n_iterations) or np.allclose(factor, 1.0)
    np.testing.assert_allclose(values, own / factor.mean(), atol=1e-12)
    if values.shape[2] == 1:
        total = base_value + values.sum(axis=1)[:, 0]
        np.testing.assert_allclose(total, case.model.predict(case.X), atol=1e-12)


def test_lightgbm_code_zero_and_codes_beyond_31() -> None:
    """shap#1644 and #5079: a mask of 32 bits, the first of which has no meaning."""
    case = fitted("lightgbm codes")
    X = np.repeat(case.X[:3], N_CODES + 1, axis=0)
    X[:, :2] = np.tile(np.arange(N_CODES + 1), 3)[:, np.newaxis]  # the last one is unseen
    explainer = TreeExplainer(case.model, precision="double")
    values = explainer.shap_values(X)
    expected = reference.path_dependent(case.adapted.ensemble, X).values
    np.testing.assert_allclose(values, expected[:, 0], atol=1e-10)
    np.testing.assert_allclose(values, lightgbm_values(case.model, X)[..., 0], atol=1e-12)
    of_code = values[:, 1].reshape(3, -1)
    for code in (0, *range(32, N_CODES)):
        assert (of_code[:, code] != of_code[:, N_CODES]).any(), code


@pytest.mark.parametrize("name", [name for name in CASES if "Depthwise" in name or "Lossguide" in name])
def test_catboost_leaves_at_different_depths(name: str) -> None:
    """catboost#1703: CatBoost's own values do not add up, ours do; the tests above check ours exactly."""
    cb = pytest.importorskip("catboost")
    case = fitted(name)
    ensemble = case.adapted.ensemble
    leaves = [
        np.count_nonzero(ensemble.left[start:stop] < 0)
        for start, stop in zip(ensemble.tree_offsets, ensemble.tree_offsets[1:])
    ]
    assert any(n & (n - 1) for n in leaves)
    values, base_value = case.explain("double")
    np.testing.assert_allclose(base_value + values.sum(axis=1), case.margin, atol=1e-10)
    if measured(cb):
        own = catboost_values(case.model, case.X)
        assert np.abs(own.sum(axis=1) + base_value - case.margin).max() > 0.1


@pytest.mark.parametrize("name", ["catboost scale and bias", "catboost scale and bias, MultiRMSE"])
def test_catboost_scale_and_bias(name: str) -> None:
    """catboost#2389: CatBoost refuses one output with a scale, and forgets the scale of several."""
    cb = pytest.importorskip("catboost")
    case = fitted(name)
    values, base_value = case.explain("double")
    np.testing.assert_allclose(base_value + values.sum(axis=1), case.margin, atol=1e-10)
    scale, bias = case.model.get_scale_and_bias()
    one = case.model.copy()
    one.set_scale_and_bias(1.0, np.zeros_like(bias).tolist() if np.ndim(bias) else 0.0)
    np.testing.assert_allclose(values, scale * catboost_values(one, case.X), atol=1e-12)
    if measured(cb) and not np.ndim(bias):
        with pytest.raises(cb.CatBoostError, match="Scale"):
            catboost_values(case.model, case.X)


@pytest.mark.parametrize("name", ["sklearn histograms, codes", "sklearn histograms, codes, three classes"])
def test_histograms_of_categories(name: str) -> None:
    """shap#3436: shap compares the codes of a category as if they were numbers."""
    shap = pytest.importorskip("shap")
    case = fitted(name)
    values, base_value = case.explain("double")
    np.testing.assert_allclose(values, definition(name)[0], atol=1e-10)
    np.testing.assert_allclose(base_value + values.sum(axis=1), case.margin, atol=1e-10)
    if measured(shap):
        other, _ = shap_values(case.model, case.X)
        assert np.abs(other.sum(axis=1) + base_value - case.margin).max() > 0.1


def test_exponential_loss_starts_at_half_the_log_odds() -> None:
    """shap starts from the log-odds: its values are right, its base value is not."""
    shap = pytest.importorskip("shap")
    case = fitted("sklearn boosting, exponential loss")
    values, base_value = case.explain("double")
    other, other_base = shap_values(case.model, case.X)
    np.testing.assert_allclose(values, other, atol=1e-12)
    np.testing.assert_allclose(base_value + values.sum(axis=1), case.margin, atol=1e-10)
    if measured(shap):
        assert np.abs(other_base - base_value).max() > 0.1


def test_boosting_of_three_classes_is_the_sum_of_its_trees() -> None:
    """shap rejects this model; its values for the single trees add up to ours."""
    shap = pytest.importorskip("shap")
    case = fitted("sklearn boosting, three classes")
    values, _ = case.explain("double")
    for k, trees in enumerate(case.model.estimators_.T):
        total = sum(shap.TreeExplainer(tree).shap_values(case.X) for tree in trees)
        np.testing.assert_allclose(values[..., k], case.model.learning_rate * total, atol=1e-12)
    if measured(shap):
        with pytest.raises(Exception, match="only supported for binary"):
            shap.TreeExplainer(case.model)


@pytest.mark.parametrize(
    "name",
    [
        "sklearn bagging",
        "sklearn bagging, several targets",
        "sklearn bagging, three classes, subsets of features",
    ],
)
def test_bagging_is_the_mean_of_its_trees(name: str) -> None:
    """shap rejects this model; its values for the single trees, column by column, add up to ours."""
    pytest.importorskip("shap")
    case = fitted(name)
    values, _ = case.explain("double")
    total = np.zeros(values.shape)
    for tree, columns in zip(case.model.estimators_, case.model.estimators_features_):
        total[:, columns] += shap_values(tree, case.X[:, columns])[0]
    np.testing.assert_allclose(values, total / len(case.model.estimators_), atol=1e-12)
