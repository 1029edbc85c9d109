"""The XGBoost adapter: models that it refuses to explain, and edited documents."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.ubjson import dumps
from helpers.xgboost_models import VERSION, category_data, data, document, train
from sklearn.exceptions import NotFittedError

from skshapgpu.adapters import adapt
from skshapgpu.errors import UnsupportedModelError

xgb = pytest.importorskip("xgboost")


def test_refused():
    X, y = data()
    X = np.nan_to_num(X)
    with pytest.raises(UnsupportedModelError, match="gblinear"):
        adapt(xgb.XGBRegressor(booster="gblinear", n_estimators=2, n_jobs=1).fit(X, y))
    with pytest.raises(NotFittedError):
        adapt(xgb.XGBRegressor())
    with pytest.raises(NotFittedError):
        adapt(xgb.Booster())
    with pytest.raises(UnsupportedModelError, match="DMatrix"):
        adapt(xgb.DMatrix(X))


class Edited(xgb.Booster):
    """Booster that writes an edited document; XGBoost itself can crash when loading one."""

    learner: dict[str, Any]
    version: list[int]

    def save_raw(self, raw_format: str = "ubj") -> bytearray:
        assert raw_format == "ubj"
        return bytearray(dumps({"learner": self.learner, "version": self.version}))


DTYPES = {
    **dict.fromkeys(["left_children", "right_children", "parents", "split_indices"], np.int32),
    **dict.fromkeys(["categories", "categories_nodes"], np.int32),
    **dict.fromkeys(["default_left", "split_type"], np.uint8),
    **dict.fromkeys(["categories_segments", "categories_sizes"], np.int64),
    **dict.fromkeys(["base_weights", "loss_changes", "sum_hessian", "split_conditions"], np.float32),
}


def edited(params: dict[str, Any] | None = None) -> tuple[Edited, dict[str, Any]]:
    """Return a booster of two trees, and its first tree, which a test may change."""
    X, y = category_data()
    booster = train(
        {"max_depth": 2} | (params or {}),
        y,
        2,
        X=X,
        feature_types=["c", "c", "float"],
        enable_categorical=True,
    )
    model = Edited()
    model.learner = document(booster)
    model.version = [*VERSION, 0]
    trees = model.learner["gradient_booster"]["model"]["trees"]
    for tree in trees:
        for name in DTYPES.keys() & tree.keys():
            tree[name] = np.array(tree[name], DTYPES[name])
    assert len(trees[0]["left_children"]) == 7
    assert len(trees[0]["categories_nodes"]) > 0
    return model, trees[0]


def test_edited_document_is_read():
    model, tree = edited()
    assert tree["split_type"][0] == 1
    tree["split_conditions"][0] = np.nan  # as in XGBoost 2.1, for categorical splits
    assert adapt(model).ensemble.n_trees == 2


@pytest.mark.parametrize(
    ("name", "node", "value"),
    [
        ("left_children", 1, 7),
        ("left_children", 1, 2**31 - 1),  # outside the tree
        ("left_children", 1, -2),
        ("left_children", 1, -(2**31)),
        ("right_children", 1, 99),
        ("right_children", 1, -1),
        ("right_children", 1, -7),
        ("left_children", 1, 0),
        ("right_children", 2, 1),
        ("left_children", 2, 2),  # cycles and second parents
        ("left_children", 0, 0),
        ("right_children", 0, 1),
        ("split_indices", 0, 3),
        ("split_indices", 0, -1),
        ("categories_segments", 0, -1),
        ("categories_segments", 0, 2**40),
        ("categories_sizes", 0, -1),
        ("categories_sizes", 0, 2**40),
        ("categories_nodes", 0, 9999),
        ("categories", 0, -5),
    ],
)
def test_edited_tree_is_refused(name, node, value):
    model, tree = edited()
    tree[name][node] = value
    with pytest.raises(ValueError):
        adapt(model)


@pytest.mark.parametrize(
    "name, node, value",
    [("sum_hessian", 3, np.nan), ("sum_hessian", 0, np.inf), ("split_conditions", 6, np.inf)],
)
def test_numbers_that_are_not_finite_are_refused(name, node, value):
    model, tree = edited()
    tree[name][node] = value
    with pytest.raises(UnsupportedModelError, match="training diverged: tree 0"):
        adapt(model)


@pytest.mark.parametrize("n_estimators", [2, 3])
def test_training_that_diverged(n_estimators):
    X = np.random.default_rng(0).normal(size=(200, 4)).astype(np.float32)
    params = {"max_depth": 2, "learning_rate": 100, "objective": "reg:gamma", "base_score": 1.0}
    model = xgb.XGBRegressor(n_estimators=n_estimators, **params).fit(X, np.exp(X[:, 0]))
    assert np.isnan(model.predict(X)).all()
    with pytest.raises(UnsupportedModelError, match="training diverged: tree 1 of this model"):
        adapt(model)


def test_edited_cycle_in_a_pruned_tree_is_refused():
    model, tree = edited()
    tree["left_children"][2] = tree["right_children"][2] = -1  # as left by pruning
    tree["split_conditions"][2] = 0.0
    assert adapt(model).ensemble.n_nodes < 14
    tree["right_children"][1] = 0
    tree["parents"][0] = 1
    with pytest.raises(ValueError, match="parents has a number that is no node of the tree"):
        adapt(model)


@pytest.mark.parametrize(
    ("section", "name", "value"),
    [
        ("learner_model_param", "num_class", str(2**31 - 1)),
        ("learner_model_param", "num_target", str(2**40)),
        ("learner_model_param", "num_feature", "0"),
        ("learner_model_param", "num_feature", "-3"),
        ("learner_model_param", "base_score", "[0.5,0.5,0.5]"),
        ("learner_model_param", "base_score", "__import__('os')"),
        ("learner_model_param", "base_score", "NaN"),
        ("gradient_booster", "weight_drop", [1.0]),
    ],
)
def test_edited_model_is_refused(section, name, value):
    model, _ = edited()
    model.learner[section][name] = value
    with pytest.raises(ValueError):
        adapt(model)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tree_info", [0, 1]),
        ("tree_info", [0, -1]),
        ("tree_info", [0]),
        ("iteration_indptr", [0, 1, 200]),
        ("iteration_indptr", [0, 1, -1]),
    ],
)
def test_edited_forest_is_refused(name, value):
    model, _ = edited()
    model.learner["gradient_booster"]["model"][name] = value
    with pytest.raises(ValueError):
        adapt(model)


def test_absurd_number_of_classes_without_trees():
    model, _ = edited()
    forest = model.learner["gradient_booster"]["model"]
    forest |= {"trees": [], "tree_info": [], "iteration_indptr": [0]}
    forest["gbtree_model_param"]["num_trees"] = "0"
    assert adapt(model).ensemble.n_trees == 0
    model.learner["learner_model_param"]["num_class"] = str(2**31 - 1)
    with pytest.raises(ValueError, match="outputs"):
        adapt(model)


@pytest.mark.parametrize(
    "objective, base_score",
    [
        ("binary:logistic", "1E0"),
        ("binary:logistic", "0E0"),
        ("count:poisson", "[0E0]"),
    ],  # before and since 3.1
)
def test_infinite_start(objective, base_score):
    """XGBoost's estimate from labels that are all equal."""
    model, _ = edited()
    model.learner["objective"]["name"] = objective
    model.learner["learner_model_param"]["base_score"] = base_score
    with pytest.raises(UnsupportedModelError, match=r"margin is infinite.*all labels are of one class"):
        adapt(model)


@pytest.mark.parametrize("label", [0, 1])
def test_labels_of_one_class(label):
    """Since 3.1, XGBoost keeps a probability away from 0 and 1, so that its margin is finite."""
    X, y = data()
    model = xgb.XGBRegressor(n_estimators=2, objective="binary:logistic").fit(X, np.full(len(y), label))
    expected = model.predict(X, output_margin=True)
    if not np.isfinite(expected).all():
        pytest.skip("XGBoost before 3.1")
    np.testing.assert_allclose(adapt(model).ensemble.margin(X)[:, 0], expected, rtol=1e-6)


def test_impossible_best_iteration():
    X, y = data()
    model = xgb.XGBRegressor(n_estimators=3, n_jobs=1).fit(X, y)
    model.get_booster().set_attr(best_iteration="100")
    with pytest.raises(ValueError, match="best_iteration is 100"):
        adapt(model)
