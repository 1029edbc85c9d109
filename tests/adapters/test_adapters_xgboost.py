"""XGBoost models: their margins equal XGBoost's own on the hardest rows."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from helpers.checks import assert_margin, hard_rows
from helpers.xgboost_models import (
    RTOL,
    VERSION,
    category_data,
    check_booster,
    check_input,
    check_wrapper,
    data,
    document,
    train,
)

from skshapgpu._rows import inputs
from skshapgpu.adapters import adapt
from skshapgpu.adapters.ensemble import Ensemble

xgb = pytest.importorskip("xgboost")


def trees_of(booster: Any) -> dict[str, Any]:
    """Return the part of the document that holds the trees."""
    booster = document(booster)["gradient_booster"]
    return booster.get("gbtree", booster)["model"]


def base_value(ensemble: Ensemble) -> np.ndarray:
    """Compute the expected margin by its definition: leaves weighted by cover fractions on the paths."""
    total = ensemble.intercept.copy()
    for start, output in zip(ensemble.tree_offsets, ensemble.tree_output):
        stack = [(start, 1.0)]
        while stack:
            node, share = stack.pop()
            if ensemble.left[node] < 0:
                total[slice(None) if output < 0 else output] += share * ensemble.value[node].squeeze()
                continue
            children = start + np.array([ensemble.left[node], ensemble.right[node]])
            cover = ensemble.cover[children]
            cover = cover / cover.sum() if cover.sum() > 0 else np.array([0.5, 0.5])
            stack += zip(children, share * cover)
    return total


# ---- objectives -------------------------------------------------------------------------------------


_, Y = data()
POSITIVE = np.exp(Y / 2)
BINARY = (Y > 0.5).astype(float)
CLASSES = np.digitize(Y, [-1.5, 0.2]).astype(float)
COUNTS = np.floor(POSITIVE)
GROUPS = {"group": [50] * 6}
BOUNDS = {"label_lower_bound": POSITIVE, "label_upper_bound": np.where(BINARY > 0, np.inf, POSITIVE)}

OBJECTIVES: dict[str, tuple[dict[str, Any], np.ndarray | None, dict[str, Any]]] = {
    "reg:squarederror": ({}, Y + 10, {}),
    "reg:squaredlogerror": ({}, POSITIVE, {}),
    "reg:logistic": ({}, BINARY * 0.8 + 0.1, {}),
    "reg:pseudohubererror": ({}, Y, {}),
    "reg:absoluteerror": ({}, Y + 10, {}),
    "reg:quantileerror": ({"quantile_alpha": [0.1, 0.5, 0.9]}, Y + 10, {}),
    "reg:expectileerror": ({"expectile_alpha": 0.7}, Y + 10, {}),
    "reg:gamma": ({}, POSITIVE, {}),
    "reg:tweedie": ({"tweedie_variance_power": 1.3}, COUNTS, {}),
    "count:poisson": ({}, COUNTS, {}),
    "binary:logistic": ({"scale_pos_weight": 3}, BINARY, {}),
    "binary:logitraw": ({}, BINARY, {}),
    "binary:hinge": ({}, BINARY, {}),
    "multi:softmax": ({"num_class": 3}, CLASSES, {}),
    "multi:softprob": ({"num_class": 3}, CLASSES, {}),
    "rank:pairwise": ({}, CLASSES, GROUPS),
    "rank:ndcg": ({}, CLASSES, GROUPS),
    "rank:map": ({}, BINARY, GROUPS),
    "survival:cox": ({}, np.where(BINARY > 0, POSITIVE, -POSITIVE), {}),
    "survival:aft": ({"aft_loss_distribution": "logistic"}, None, BOUNDS),
}


@pytest.mark.parametrize("base_score", [None, 0.3])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_objective(objective, base_score):
    params, label, options = OBJECTIVES[objective]
    params = {"objective": objective} | params | ({} if base_score is None else {"base_score": base_score})
    try:
        booster = train(params, label, 8, **options)
    except xgb.core.XGBoostError as error:
        if "Unknown objective" in str(error):
            pytest.skip(f"XGBoost {xgb.__version__} has no {objective}")
        raise
    ensemble = check_booster(booster)
    assert ensemble.n_outputs == (3 if objective.startswith("multi") or "quantile" in objective else 1)
    assert ensemble.n_leaves > 3 * ensemble.n_trees
    # XGBoost's own bias term is the only public number that depends on covers and intercept.
    X = xgb.DMatrix(data()[0][:1])
    bias = booster.predict(X, pred_contribs=True).reshape(ensemble.n_outputs, -1)[:, -1]
    np.testing.assert_allclose(base_value(ensemble), bias, rtol=2e-5, atol=2e-5)


@pytest.mark.skipif(VERSION < (3, 1), reason="base_score is a vector since XGBoost 3.1")
def test_base_score_of_each_output():
    label = np.stack([Y, Y * 2 + 50, -Y - 100], axis=1)
    booster = train({}, label)
    written = np.array(json.loads(document(booster)["learner_model_param"]["base_score"]))
    ensemble = check_booster(booster)
    np.testing.assert_allclose(ensemble.intercept, written, rtol=1e-6)
    assert np.ptp(ensemble.intercept) > 100
    ensemble = check_booster(train({"objective": "multi:softprob", "num_class": 3}, CLASSES))
    assert np.ptp(ensemble.intercept) > 0.1


@pytest.mark.parametrize("wrapped", [False, True])
def test_custom_objective(wrapped):
    def squared(prediction, target):
        target = target.get_label() if hasattr(target, "get_label") else target
        return 2 * (prediction - target), np.full(len(target), 2.0)

    if wrapped:
        model = xgb.XGBRegressor(
            n_estimators=8, max_depth=3, n_jobs=1, objective=lambda y, prediction: squared(prediction, y)
        )
        assert check_wrapper(model.fit(data()[0], Y)).binary is None
    else:
        check_booster(train({}, Y, obj=squared))


def test_base_margin_is_not_part_of_the_model():
    X, y = data()
    booster = train({"base_score": 0.7}, y, base_margin=np.arange(300.0))
    ensemble = check_booster(booster)
    margin = booster.predict(xgb.DMatrix(X, base_margin=np.full(300, 5.0)), output_margin=True)
    assert_margin(ensemble, X, margin - 5.0 + ensemble.intercept, RTOL)


# ---- boosters and trees -----------------------------------------------------------------------------


@pytest.mark.parametrize("classes", [0, 3])
def test_dart(classes):
    params = {"booster": "dart", "rate_drop": 0.5, "one_drop": 1}
    if classes:
        booster = train(params | {"objective": "multi:softprob", "num_class": 3}, CLASSES)
    else:
        booster = train(params | {"normalize_type": "forest"}, Y)
    model = document(booster)["gradient_booster"]
    weights = model["weight_drop"] if "weight_drop" in model else model["model"]["weight_drop"]
    assert np.ptp(weights) > 0.1
    check_booster(booster)
    if not classes:
        check_booster(booster[3:7])


@pytest.mark.parametrize("parallel", [1, 4])
def test_multiclass_trees_by_their_output(parallel):
    """With several trees per class in a round, the output of tree i is not i modulo the number of classes."""
    booster = train(
        {"objective": "multi:softprob", "num_class": 3, "num_parallel_tree": parallel, "subsample": 0.6},
        CLASSES,
        4,
    )
    ensemble = check_booster(booster)
    assert ensemble.n_trees == 12 * parallel
    assert ensemble.tree_output[:parallel].tolist() == [0] * parallel


def test_targets_and_slices():
    label = np.stack([Y, Y**2], axis=1)
    booster = train({}, label)
    check_booster(booster)
    part = check_booster(booster[4:9])
    assert part.n_trees == 10


def test_leaves_with_several_outputs():
    label = np.stack([Y, Y**2, -Y], axis=1)
    booster = train({"multi_strategy": "multi_output_tree"}, label)
    ensemble = check_booster(booster)
    assert ensemble.value.shape == (ensemble.n_nodes, 3)
    assert adapt(booster).has_cover == (VERSION >= (3, 2)) == (ensemble.cover[0] > 0)
    continued = train({"multi_strategy": "one_output_per_tree"}, label, 2, xgb_model=booster)
    mixed = check_booster(continued)
    assert mixed.n_trees == ensemble.n_trees + 6
    params = {"multi_strategy": "multi_output_tree", "objective": "multi:softprob", "num_class": 3}
    assert check_booster(train(params | {"num_parallel_tree": 2}, CLASSES, 1)).n_trees == 2
    if VERSION >= (3, 4):
        params = {"multi_strategy": "multi_output_tree", "booster": "dart", "rate_drop": 0.5, "one_drop": 1}
        check_booster(train(params, label, 5))


def test_pruned_trees_keep_no_unreachable_node():
    booster = train({"tree_method": "exact", "gamma": 3.0, "max_depth": 6}, Y)
    trees = trees_of(booster)["trees"]
    assert sum(int(tree["tree_param"]["num_deleted"]) for tree in trees) > 10
    ensemble = check_booster(booster)
    assert ensemble.n_nodes == 2 * ensemble.n_leaves - ensemble.n_trees
    assert ensemble.n_nodes < sum(len(tree["left_children"]) for tree in trees)


def test_pruned_categories():
    """A node that becomes a leaf keeps its categories in the document."""
    X, y = category_data()
    types = {"feature_types": ["c", "c", "float"], "enable_categorical": True}
    grown = train({"max_depth": 5}, y, 3, X=X, **types)
    pruned = train(
        {"process_type": "update", "updater": "prune", "gamma": 30.0}, y, 3, X=X, xgb_model=grown, **types
    )
    trees = trees_of(pruned)["trees"]
    assert any(tree["left_children"][node] == -1 for tree in trees for node in tree["categories_nodes"])
    ensemble = adapt(pruned).ensemble
    leaf = ensemble.left < 0
    assert (ensemble.category_set[leaf] == -1).all()
    assert (ensemble.category_set[~leaf] >= 0).any()
    rows = hard_rows(ensemble, inf=False)
    assert_margin(ensemble, rows, pruned.predict(xgb.DMatrix(rows, **types), output_margin=True), RTOL)


@pytest.mark.parametrize("refresh_leaf", [0, 1])
def test_refreshed_trees(refresh_leaf):
    """Rows without weight lead to zero covers; float32 sums of children and parents may differ."""
    X, y = data(seed=1)
    params = {"process_type": "update", "updater": "refresh", "refresh_leaf": refresh_leaf}
    refreshed = train(params, y, X=X, weight=np.arange(300) < 20, xgb_model=train({}, Y))
    ensemble = check_booster(refreshed)
    assert (ensemble.cover == 0).any()
    assert np.isfinite(base_value(ensemble)).all()


def test_one_leaf():
    ensemble = check_booster(train({"gamma": 1e9}, Y, 3))
    assert ensemble.n_nodes == ensemble.n_leaves == 3


@pytest.mark.parametrize("classes", [0, 3])
def test_no_trees(classes):
    params = {"objective": "multi:softprob", "num_class": 3} if classes else {}
    booster = train(params, CLASSES, 0)
    ensemble = adapt(booster).ensemble
    X = data()[0]
    assert_margin(ensemble, X, booster.predict(xgb.DMatrix(X), output_margin=True), RTOL)
    assert ensemble.n_trees == 0


def test_many_trees():
    booster = train({"max_depth": 2, "eta": 0.02}, Y + 1000, 1000)
    assert check_booster(booster).n_trees == 1000


def test_covers_are_those_of_the_dump():
    pytest.importorskip("pandas")
    booster = train({"objective": "binary:logistic"}, BINARY)
    cover = booster.trees_to_dataframe().sort_values(["Tree", "Node"])["Cover"]
    np.testing.assert_allclose(adapt(booster).ensemble.cover, cover, rtol=1e-6)


def test_float64_rows_are_rounded_first():
    """A float64 next to a threshold is rounded to it, and then does not go left."""
    booster = train({}, Y)
    ensemble = adapt(booster).ensemble
    X = hard_rows(ensemble, inf=False, nan=False).astype(np.float64)
    X *= 1 + np.random.default_rng(0).choice([-1e-9, 0, 1e-9], X.shape)
    assert_margin(ensemble, X, booster.predict(xgb.DMatrix(X), output_margin=True), RTOL)


# ---- wrappers ---------------------------------------------------------------------------------------


def test_regressors():
    X, y = data()
    for model in (
        xgb.XGBRegressor(n_estimators=10, n_jobs=1),
        xgb.XGBRFRegressor(n_estimators=10, max_depth=4, n_jobs=1),
        xgb.XGBRegressor(n_estimators=10, booster="dart", rate_drop=0.5, n_jobs=1),
    ):
        adapted = check_wrapper(model.fit(X, y))
        assert adapted.family == "xgboost"
        assert adapted.ensemble.n_trees == 10
        assert (adapted.output_names, adapted.binary, adapted.class_names) == (None, None, None)
        assert adapted.schema.feature_names is None
        assert adapted.schema.n_features == 5


@pytest.mark.parametrize("forest", [False, True])
def test_classifiers(forest):
    X, _ = data()
    cls = xgb.XGBRFClassifier if forest else xgb.XGBClassifier
    model = cls(n_estimators=10, max_depth=3, n_jobs=1).fit(X, BINARY.astype(int))
    adapted = check_wrapper(model)
    assert (adapted.output_names, adapted.binary, adapted.class_names) == (None, "margin", (0, 1))
    model = cls(n_estimators=10, max_depth=3, n_jobs=1).fit(X, CLASSES.astype(int))
    adapted = check_wrapper(model)
    assert (adapted.output_names, adapted.binary, adapted.class_names) == ((0, 1, 2), None, None)


def test_class_names_are_those_of_the_classifier():
    class Named(xgb.XGBClassifier):
        classes_ = np.array(["no", "yes", "maybe"])

    class NamedPair(xgb.XGBClassifier):
        classes_ = np.array(["no", "yes"])

    X, _ = data()
    model = xgb.XGBClassifier(n_estimators=2, n_jobs=1).fit(X, BINARY.astype(int))
    model.__class__ = NamedPair  # XGBoost's own fit takes no other labels than 0 to n - 1
    assert adapt(model).class_names == ("no", "yes")
    model = xgb.XGBClassifier(n_estimators=2, n_jobs=1).fit(X, CLASSES.astype(int))
    model.__class__ = Named
    assert adapt(model).output_names == ("no", "yes", "maybe")


def test_several_labels_are_no_classes():
    X, _ = data()
    label = np.stack([BINARY, 1 - BINARY], axis=1).astype(int)
    adapted = check_wrapper(xgb.XGBClassifier(n_estimators=5, n_jobs=1).fit(X, label))
    assert adapted.ensemble.n_outputs == 2
    assert (adapted.output_names, adapted.binary, adapted.class_names) == (None, None, None)


def test_names_of_a_booster():
    adapted = adapt(train({"objective": "binary:logistic"}, BINARY, 2, feature_names=list("abcde")))
    assert adapted.schema.feature_names == tuple("abcde")
    assert (adapted.output_names, adapted.binary, adapted.class_names) == (None, "margin", (0, 1))
    adapted = adapt(train({"objective": "multi:softmax", "num_class": 3}, CLASSES, 2))
    assert (adapted.output_names, adapted.binary, adapted.class_names) == ((0, 1, 2), None, None)
    assert adapt(train({"objective": "reg:logistic"}, BINARY, 2)).binary is None


def test_ranker():
    X, _ = data()
    model = xgb.XGBRanker(n_estimators=8, n_jobs=1).fit(X, CLASSES, group=GROUPS["group"])
    assert check_wrapper(model).binary is None


@pytest.mark.parametrize("booster", ["gbtree", "dart"])
def test_early_stopping_as_each_predict_does(booster):
    X, y = data()
    noise = np.random.default_rng(0).normal(size=300)
    model = xgb.XGBRegressor(n_estimators=30, early_stopping_rounds=5, booster=booster, n_jobs=1)
    model.fit(X, y, eval_set=[(X, y * 0.3 + noise)], verbose=False)
    n_rounds = model.get_booster().num_boosted_rounds()
    assert model.best_iteration + 1 < n_rounds
    assert check_wrapper(model).ensemble.n_trees == model.best_iteration + 1
    assert check_booster(model.get_booster()).n_trees == n_rounds


@pytest.mark.skipif(VERSION < (2, 1), reason="XGBoost 2.0 loads no wrapper beside scikit-learn 1.6")
def test_loaded_wrapper(tmp_path):
    X, _ = data()
    model = xgb.XGBClassifier(n_estimators=5, n_jobs=1).fit(X, CLASSES.astype(int))
    model.save_model(tmp_path / "model.json")
    loaded = xgb.XGBClassifier()
    loaded.load_model(tmp_path / "model.json")
    assert check_wrapper(loaded).output_names == (0, 1, 2)


# ---- missing values ---------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", [-999, 0.1, 0])
def test_missing_of_the_wrapper(missing):
    X, y = data()
    X = np.where(np.isnan(X), missing, X.astype(np.float64).round(1))
    model = xgb.XGBRegressor(n_estimators=10, missing=missing, n_jobs=1).fit(X, y)
    assert adapt(model).schema.missing_value == float(np.float32(missing))
    probe = X.copy()
    probe[::3] = np.nan
    probe[1::3, 2] = missing
    check_input(model, probe)
    check_input(model, probe.astype(np.float32))
    as_number = xgb.XGBRegressor(n_estimators=10, n_jobs=1).fit(np.where(X == missing, np.nan, X), y)
    assert np.ptp(as_number.predict(probe) - model.predict(probe)) > 0.01


@pytest.mark.parametrize("wrapped", [False, True])
def test_absent_entries_of_a_sparse_matrix_are_missing(wrapped):
    X, y = data()
    X = np.nan_to_num(X)
    X[:, 1] = np.where(X[:, 1] > 0, X[:, 1], 0)
    sparse = sp.csr_matrix(X)
    explicit = sp.csr_matrix((X.ravel(), np.tile(np.arange(5), 300), np.arange(301) * 5), X.shape)
    model = xgb.XGBRegressor(n_estimators=10, n_jobs=1).fit(sparse, y)
    assert explicit.nnz > sparse.nnz
    assert np.abs(model.predict(sparse) - model.predict(explicit)).max() > 0.01
    if wrapped:
        check_input(model, sparse)
        check_input(model, explicit)
        return
    adapted = adapt(model.get_booster())
    for matrix in (sparse, explicit):
        rows = inputs.read(matrix, adapted.schema, "float32").chunk(0, 300)
        assert_margin(adapted.ensemble, rows, model.get_booster().predict(xgb.DMatrix(matrix)), RTOL)


def test_infinity_is_refused():
    X, y = data()
    booster = train({}, y)
    X[3, 1] = np.inf
    with pytest.raises(xgb.core.XGBoostError, match="inf"):
        booster.predict(xgb.DMatrix(X))
    with pytest.raises(ValueError, match="infinity"):
        inputs.read(X, adapt(booster).schema, "float32").chunk(0, 300)


@pytest.mark.parametrize("base_score", [1e-12, 1e-7, 1e-6, 0.999, 0.99999, 1 - 1e-6, 1 - 1e-7])
def test_extreme_base_scores_have_the_margin_of_float32(base_score):
    """XGBoost computes log(1 / p - 1) in float32, in which 1 / p - 1 has one digit for p = 1 - 1e-6."""
    X, y = np.zeros((40, 1)), np.arange(40) % 2
    model = xgb.XGBClassifier(n_estimators=1, base_score=base_score, learning_rate=0.0).fit(X, y)
    expected = model.predict(X[:1], output_margin=True)
    np.testing.assert_allclose(adapt(model).ensemble.intercept, expected, rtol=2**-23)
