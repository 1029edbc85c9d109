"""Every XGBoost model is read so that its margin, on the hardest rows, is XGBoost's own."""

from __future__ import annotations

import json
import pickle
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from helpers.checks import assert_margin, hard_rows
from helpers.ubjson import dumps
from sklearn.exceptions import NotFittedError

from skshapgpu import inputs
from skshapgpu.adapters import adapt
from skshapgpu.ensemble import Ensemble
from skshapgpu.errors import UnsupportedModelError
from skshapgpu.schema import AdaptedModel, Column

xgb = pytest.importorskip("xgboost")

VERSION = tuple(int(part) for part in xgb.__version__.split(".")[:2])
#: XGBoost adds its trees up in float32.
RTOL = 1e-5

keeps_categories = pytest.mark.skipif(VERSION < (3, 1), reason="XGBoost keeps categories since 3.1")


def data(n_rows: int = 300, n_features: int = 5, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """X with missing values and ties, and a target that needs interactions."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, n_features)).round(2)
    y = X[:, 0] + np.where(X[:, 1] > 0, X[:, 2], -X[:, 3]) + rng.normal(size=n_rows) * 0.1
    X[rng.random(X.shape) < 0.1] = np.nan
    return X.astype(np.float32), y


def train(
    params: dict[str, Any], label: np.ndarray, n_rounds: int = 12, X: np.ndarray | None = None, **options: Any
) -> Any:
    """A booster; ``options`` named as those of ``xgb.train`` go there, the others to the matrix."""
    params = {"max_depth": 4, "eta": 0.3, "tree_method": "hist", "nthread": 1, "seed": 0} | params
    training = {key: options.pop(key) for key in ("obj", "xgb_model") if key in options}
    matrix = xgb.DMatrix(data()[0] if X is None else X, label, **options)
    return xgb.train(params, matrix, n_rounds, **training)


def document(booster: Any) -> dict[str, Any]:
    return json.loads(booster.save_raw("json"))["learner"]


def forest(booster: Any) -> dict[str, Any]:
    booster = document(booster)["gradient_booster"]
    return booster.get("gbtree", booster)["model"]


def check_booster(booster: Any) -> Ensemble:
    """The margin of a booster of numeric features on 2,000 hard rows."""
    ensemble = adapt(booster).ensemble
    X = hard_rows(ensemble, inf=False)
    names = booster.feature_names
    expected = booster.predict(xgb.DMatrix(X, feature_names=names), output_margin=True)
    assert_margin(ensemble, X, expected, RTOL)
    return ensemble


def check_wrapper(model: Any) -> AdaptedModel:
    adapted = adapt(model)
    X = hard_rows(adapted.ensemble, inf=False)
    assert_margin(adapted.ensemble, X, model.predict(X, output_margin=True), RTOL)
    return adapted


def check_input(model: Any, X: Any) -> None:
    """As :func:`check_wrapper`, from X as a user passes it."""
    adapted = adapt(model)
    rows = inputs.read(X, adapted.schema, adapted.ensemble.x_dtype)
    encoded = rows.chunk(0, rows.n_rows)
    assert_margin(adapted.ensemble, encoded, model.predict(X, output_margin=True), RTOL)


def base_value(ensemble: Ensemble) -> np.ndarray:
    """Expected margin, by the definition: each leaf weighed by the shares of cover on its path."""
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
    # XGBoost's own bias term, the only public number in which covers and intercept both stand.
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
    """With several trees per class in a round, the output of tree i is not i modulo the classes."""
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
    if VERSION < (3, 2):
        with pytest.raises(UnsupportedModelError, match=r"multi_output_tree.*sum_hessian"):
            adapt(booster)
        return
    ensemble = check_booster(booster)
    assert ensemble.value.shape == (ensemble.n_nodes, 3)
    assert ensemble.cover[0] > 0
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
    trees = forest(booster)["trees"]
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
    trees = forest(pruned)["trees"]
    assert any(tree["left_children"][node] == -1 for tree in trees for node in tree["categories_nodes"])
    ensemble = adapt(pruned).ensemble
    leaf = ensemble.left < 0
    assert (ensemble.category_set[leaf] == -1).all()
    assert (ensemble.category_set[~leaf] >= 0).any()
    rows = hard_rows(ensemble, inf=False)
    assert_margin(ensemble, rows, pruned.predict(xgb.DMatrix(rows, **types), output_margin=True), RTOL)


@pytest.mark.parametrize("refresh_leaf", [0, 1])
def test_refreshed_trees(refresh_leaf):
    """Rows without weight leave zero covers; float32 sums of children and parents need not agree."""
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
    """A float64 next to a threshold rounds onto it, and then does not go left."""
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


# ---- categories -------------------------------------------------------------------------------------


def category_data() -> tuple[np.ndarray, np.ndarray]:
    """A column of 5 codes, one of 40, and a number."""
    rng = np.random.default_rng(0)
    X = np.stack([rng.integers(5, size=400), rng.integers(40, size=400), rng.normal(size=400)], axis=1)
    y = (X[:, 0] % 2) * 2 + np.sin(X[:, 1] * 3) * 3 + X[:, 2]
    X[rng.random(X.shape) < 0.1] = np.nan
    return X, y


@pytest.mark.parametrize("max_cat_to_onehot", [1, 100])
def test_category_codes(max_cat_to_onehot):
    X, y = category_data()
    model = xgb.XGBRegressor(
        n_estimators=8,
        max_depth=4,
        enable_categorical=True,
        tree_method="hist",
        feature_types=["c", "c", "q"],
        max_cat_to_onehot=max_cat_to_onehot,
        n_jobs=1,
    )
    adapted = adapt(model.fit(X, y))
    ensemble = adapted.ensemble
    assert set(adapted.schema.encoders) == {0, 1}
    assert not ensemble.category_listed_left.any()
    listed = set(ensemble.category_values.tolist())
    assert max(listed) > 32 and (0 in listed or max_cat_to_onehot == 100)
    hard = hard_rows(ensemble, inf=False)
    assert_margin(ensemble, hard, model.predict(hard, output_margin=True), RTOL)
    odd = hard[:500].astype(np.float64)
    rng = np.random.default_rng(1)
    codes = [-0.5, -0.0, -1, -7.9, 0.9, 3.7, 3.9999999, 38.5, 40, 63.5, 64, 255, 2.0**24, 2.0**40, 1e30]
    odd[:, :2] = rng.choice(codes, (len(odd), 2))
    check_input(model, odd)
    check_input(model, sp.csr_matrix(odd))


def test_categories_of_every_output():
    X, y = category_data()
    types = {"feature_types": ["c", "c", "float"], "enable_categorical": True}
    booster = train(
        {"objective": "multi:softprob", "num_class": 3, "num_parallel_tree": 2, "gamma": 1.0},
        np.digitize(y, [-1, 2]),
        3,
        X=X,
        **types,
    )
    ensemble = adapt(booster).ensemble
    rows = hard_rows(ensemble, inf=False)
    matrix = xgb.DMatrix(rows, **types)
    assert_margin(ensemble, rows, booster.predict(matrix, output_margin=True), RTOL)


def frame_model(pd: Any, colours: tuple[str, ...] = ("red", "a", "blue", "", "z")) -> tuple[Any, Any]:
    """A model of string, integer and numeric columns; the codes are not in alphabetical order."""
    codes, y = category_data()
    sizes = [30, 10, 20, 7, 5]
    small = np.nan_to_num(codes[:, 1] % 5, nan=-1).astype(int)
    frame = pd.DataFrame(
        {
            "colour": pd.Categorical.from_codes(np.nan_to_num(codes[:, 0], nan=-1).astype(int), colours),
            "size": pd.Categorical.from_codes(small, sizes),
            "x": codes[:, 2],
        }
    )
    model = xgb.XGBRegressor(
        n_estimators=10, max_depth=4, enable_categorical=True, tree_method="hist", n_jobs=1
    )
    return model.fit(frame, y + small), frame


def test_categories_of_a_frame():
    pd = pytest.importorskip("pandas")
    model, frame = frame_model(pd)
    adapted = adapt(model)
    assert adapted.schema.feature_names == ("colour", "size", "x")
    assert set(adapted.schema.encoders) == {0, 1}
    assert len(adapted.ensemble.category_values) > 0
    check_input(model, frame)
    # From 3.1 on reordered categories are matched by value; before, their codes count as they stand.
    reordered = frame.copy()
    for name in ("colour", "size"):
        # A list, as XGBoost before 3.4 misreads integer categories that are a reversed view.
        reordered[name] = frame[name].cat.reorder_categories(frame[name].cat.categories.tolist()[::-1])
    same = np.array_equal(model.predict(reordered), model.predict(frame))
    assert same == (VERSION >= (3, 1))
    check_input(model, reordered)
    fewer = frame[frame["colour"].isin(["z", "blue"])].copy()
    fewer["colour"] = fewer["colour"].cat.remove_unused_categories()
    check_input(model, fewer)
    codes = np.stack([frame["colour"].cat.codes, frame["size"].cat.codes, frame["x"]], axis=1)
    check_input(model, codes)


def test_categories_survive_a_pickle():
    pd = pytest.importorskip("pandas")
    model, frame = frame_model(pd)
    adapted = adapt(model)
    again = pickle.loads(pickle.dumps(adapted))
    for one in (adapted, again):
        rows = inputs.read(frame, one.schema, "float32").chunk(0, len(frame))
        assert_margin(one.ensemble, rows, model.predict(frame), RTOL)


@pytest.mark.parametrize("missing", [0, 1, -1])
def test_missing_is_compared_with_the_codes_of_a_frame(missing):
    pd = pytest.importorskip("pandas")
    labels = np.tile(["p", "q", "r"], 20)
    frame = pd.DataFrame({"c": pd.Categorical(labels)})
    model = xgb.XGBRegressor(
        n_estimators=5, missing=missing, enable_categorical=True, tree_method="hist", n_jobs=1
    )
    model.fit(frame, (labels == "q") * 2.0 + (labels == "r"))
    adapted = adapt(model)
    for order in ("pqr", "rpq", "qrp"):
        column = pd.Categorical(labels, categories=list(order))
        codes = adapted.schema.encoders[0].encode(
            Column("c", np.asarray(column), column.codes.astype(np.int64), package="pandas")
        )
        expected = model.predict(pd.DataFrame({"c": column}))
        assert_margin(adapted.ensemble, codes[:, None], expected, RTOL)


@keeps_categories
def test_unseen_category_is_refused():
    pd = pytest.importorskip("pandas")
    model, frame = frame_model(pd)
    for name, value in (("colour", "green"), ("size", 99)):
        unseen = frame.copy()
        unseen[name] = frame[name].cat.add_categories([value])
        unseen.loc[7, name] = value
        if VERSION >= (3, 3):  # until then XGBoost notices only those beyond the last one it knows
            with pytest.raises(xgb.core.XGBoostError, match="not in the training set"):
                model.predict(unseen)
        with pytest.raises(ValueError, match=f"'{name}'.*{value}.*training set"):
            check_input(model, unseen)


def test_categories_beyond_ascii():
    """Up to 3.3 XGBoost cuts them at the wrong bytes: here "é" swallows "b", and "b" would be code 2."""
    pd = pytest.importorskip("pandas")
    model, frame = frame_model(pd, ("é", "b", "c", "dd", "e"))
    if (3, 1) <= VERSION < (3, 4):
        with pytest.raises(ValueError, match=r"'colour'.*garbles"):
            check_input(model, frame)
    else:
        check_input(model, frame)
    codes = np.stack([frame["colour"].cat.codes, frame["size"].cat.codes, frame["x"]], axis=1)
    check_input(model, codes)


@keeps_categories
def test_column_that_is_not_categorical_any_more_is_refused():
    pd = pytest.importorskip("pandas")
    model, frame = frame_model(pd)
    as_codes = frame.assign(colour=frame["colour"].cat.codes)
    with pytest.raises(xgb.core.XGBoostError):
        model.predict(as_codes)
    with pytest.raises(ValueError, match="'colour' was categorical"):
        check_input(model, as_codes)


def test_text_without_categories_is_refused():
    pd = pytest.importorskip("pandas")
    model, frame = frame_model(pd)
    with pytest.raises(ValueError):
        model.predict(frame.assign(colour=frame["colour"].astype(str)))
    with pytest.raises(ValueError, match="colour"):
        check_input(model, frame.assign(colour=frame["colour"].astype(str)))
    with pytest.raises(ValueError, match=r"colour.*codes"):
        check_input(model, np.array([["red", 10, 0.5]], object))


def test_frame_for_a_model_of_codes():
    pd = pytest.importorskip("pandas")
    X, y = category_data()
    model = xgb.XGBRegressor(
        n_estimators=10, enable_categorical=True, feature_types=["c", "c", "q"], tree_method="hist", n_jobs=1
    ).fit(X, y)
    frame = pd.DataFrame(X)
    frame[0] = pd.Categorical.from_codes(np.nan_to_num(X[:, 0], nan=-1).astype(int), list("vwxyz")[::-1])
    check_input(model, frame)


# ---- what is refused --------------------------------------------------------------------------------


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
    """A booster that writes an edited document; XGBoost itself can crash on loading such."""

    learner: dict[str, Any]
    version: list[int]

    def save_raw(self, raw_format: str = "ubj") -> bytearray:
        assert raw_format == "ubj"
        return bytearray(dumps({"learner": self.learner, "version": self.version}))


DTYPES = {
    **dict.fromkeys(["left_children", "right_children", "split_indices"], np.int32),
    **dict.fromkeys(["categories", "categories_nodes"], np.int32),
    **dict.fromkeys(["default_left", "split_type"], np.uint8),
    **dict.fromkeys(["categories_segments", "categories_sizes"], np.int64),
    **dict.fromkeys(["sum_hessian", "split_conditions"], np.float32),
}


def edited(params: dict[str, Any] | None = None) -> tuple[Edited, dict[str, Any]]:
    """A booster of two trees, and the first of them to change."""
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
    model.version = list(VERSION)
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
    tree["split_conditions"][0] = np.nan  # XGBoost 2.1 leaves the threshold of a categorical split so
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
        ("sum_hessian", 1, -1.0),
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


def test_edited_cycle_in_a_pruned_tree_is_refused():
    model, tree = edited()
    tree["left_children"][2] = tree["right_children"][2] = -1  # as pruning leaves it
    tree["split_conditions"][2] = 0.0
    assert adapt(model).ensemble.n_nodes < 14
    tree["right_children"][1] = 0
    with pytest.raises(ValueError, match="cycle"):
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
    model.learner["gradient_booster"]["model"] |= {"trees": [], "tree_info": [], "iteration_indptr": [0]}
    assert adapt(model).ensemble.n_trees == 0
    model.learner["learner_model_param"]["num_class"] = str(2**31 - 1)
    with pytest.raises(ValueError, match="outputs"):
        adapt(model)


@pytest.mark.parametrize("n_estimators", [2, 3])
def test_training_that_diverged(n_estimators):
    X = np.random.default_rng(0).normal(size=(200, 4)).astype(np.float32)
    params = {"max_depth": 2, "learning_rate": 100, "objective": "reg:gamma", "base_score": 1.0}
    model = xgb.XGBRegressor(n_estimators=n_estimators, **params).fit(X, np.exp(X[:, 0]))
    assert np.isnan(model.predict(X)).all()
    with pytest.raises(UnsupportedModelError, match="training diverged: tree 1 of this model"):
        adapt(model)


@pytest.mark.parametrize(
    "objective, base_score",
    [("binary:logistic", "1E0"), ("binary:logistic", "[0E0]"), ("count:poisson", "0E0")],
)
def test_infinite_start(objective, base_score):
    """What XGBoost estimates of labels that are all alike."""
    model, _ = edited()
    model.learner["objective"]["name"] = objective
    model.learner["learner_model_param"]["base_score"] = base_score
    with pytest.raises(UnsupportedModelError, match=r"margin is infinite.*all labels are of one class"):
        adapt(model)


def test_impossible_best_iteration():
    X, y = data()
    model = xgb.XGBRegressor(n_estimators=3, n_jobs=1).fit(X, y)
    model.get_booster().set_attr(best_iteration="100")
    with pytest.raises(ValueError, match="best_iteration is 100"):
        adapt(model)
