"""The LightGBM adapter: margins equal ``predict``, on rows at the edge of every comparison."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from helpers.checks import assert_margin
from helpers.lightgbm_models import (
    CATEGORICAL,
    MISSING,
    N_ROWS,
    QUIET,
    RF,
    RTOL,
    ZERO,
    base_values,
    categorical_data,
    check,
    data,
    edited,
    reload,
    train,
    without_sizes,
)
from sklearn.exceptions import NotFittedError

from skshapgpu.adapters import adapt
from skshapgpu.adapters.lightgbm import read_text
from skshapgpu.errors import UnsupportedModelError

lgb = pytest.importorskip("lightgbm")

pytestmark = pytest.mark.filterwarnings("ignore:::lightgbm")


# Boosting and objectives ---------------------------------------------------------------------------


BOOSTINGS = {
    "gbdt": {},
    "dart": {"boosting": "dart", "drop_rate": 0.5, "skip_drop": 0.0},
    "rf": RF,
    "goss": {"data_sample_strategy": "goss"},
}
OBJECTIVES = [
    "regression",
    "regression_l1",
    "huber",
    "fair",
    "quantile",
    "mape",
    "poisson",
    "gamma",
    "tweedie",
    "binary",
    "cross_entropy",
    "cross_entropy_lambda",
    "multiclass",
    "multiclassova",
    "lambdarank",
    "rank_xendcg",
]


@pytest.mark.parametrize("boosting", BOOSTINGS)
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_objectives(objective, boosting):
    X, y = data()
    params = BOOSTINGS[boosting] | {"objective": objective}
    group = None
    if objective in ("poisson", "gamma", "tweedie", "mape"):
        y = np.exp(y)
    elif objective in ("binary", "cross_entropy", "cross_entropy_lambda"):
        y = y > 0.5
    elif objective.startswith("multiclass"):
        y = np.digitize(y, [0.0, 1.0])
        params["num_class"] = 3
    elif objective in ("lambdarank", "rank_xendcg"):
        y, group = np.digitize(y, [0.0, 1.0]), [30] * (N_ROWS // 30)
    model = train(X, y, group=group, **params)
    adapted = check(model, rf=boosting == "rf")
    assert adapted.family == "lightgbm"
    assert adapted.ensemble.n_outputs == (3 if objective.startswith("multiclass") else 1)
    assert adapted.ensemble.x_dtype == "float64"
    assert adapted.binary == ("margin" if objective == "binary" else None)


LINKS = {
    "regression": lambda z: z,
    "poisson": np.exp,
    "binary": lambda z: 1 / (1 + np.exp(-z)),
    "multiclass": lambda z: np.exp(z) / np.exp(z).sum(axis=1, keepdims=True),
}


@pytest.mark.parametrize("boosting", ["gbdt", "rf"])
@pytest.mark.parametrize("objective", LINKS)
def test_link_of_the_margin_is_predict(objective, boosting):
    """The link applies to the average of a random forest's trees, and to the sum of other models' trees."""
    X, y = data(1)
    y = {"poisson": np.exp(y), "binary": y > 0.5, "multiclass": np.digitize(y, [0.0, 1.0])}.get(objective, y)
    classes = {"num_class": 3} if objective == "multiclass" else {}
    model = train(X, y, objective=objective, **classes, **BOOSTINGS[boosting])
    margin = adapt(model).ensemble.margin(X)
    expected = model.predict(X)
    np.testing.assert_allclose(LINKS[objective](margin).reshape(expected.shape), expected, rtol=1e-9)


def test_random_forest_margin_is_the_average_while_raw_score_and_contributions_are_the_sum():
    X, y = data()
    model = train(X, y, 7, objective="regression", **RF)
    adapted = adapt(model)
    assert_margin(adapted.ensemble, X, model.predict(X), RTOL)
    assert np.abs(adapted.ensemble.margin(X)[:, 0] - model.predict(X, raw_score=True)).max() > 1.0
    base = model.predict(X[:1], pred_contrib=True)[0, -1] / 7
    np.testing.assert_allclose(base_values(adapted.ensemble), [base], rtol=1e-12)


@pytest.mark.parametrize("n_classes", [1, 3])
def test_custom_objective(n_classes):
    X, y = data()
    y = np.digitize(y, [0.0, 1.0]) if n_classes > 1 else y

    def objective(margin, dataset):
        label = dataset.get_label()
        if n_classes == 1:
            return margin - label, np.ones(len(label))
        onehot = np.arange(n_classes) == label[:, np.newaxis]
        return margin.reshape(len(label), -1, order="A") - onehot, np.ones((len(label), n_classes))

    model = train(X, y, objective=objective, num_class=n_classes)
    adapted = check(model)
    assert adapted.ensemble.n_outputs == n_classes
    assert adapted.binary is None
    assert_margin(adapted.ensemble, X, model.predict(X), RTOL)


def test_init_score_is_not_in_the_model():
    X, y = data()
    model = train(X, y, objective="regression", learning_rate=1.0, init_score=np.full(N_ROWS, 100.0))
    adapted = check(model)
    assert np.abs(adapted.ensemble.margin(X)[:, 0] - (y - 100.0)).max() < 10.0


TRAINING = {
    "monotone": {"monotone_constraints": [1, -1, 0, 0], "monotone_constraints_method": "intermediate"},
    "interaction": {"interaction_constraints": [[0, 1], [2, 3]]},
    "extra trees": {"extra_trees": True, "min_data_in_leaf": 1, "min_data_in_bin": 1, "num_leaves": 40},
    "smooth": {"path_smooth": 5.0},
    "few bins": {"max_bin": 3},
    "sampled": {"bagging_freq": 1, "bagging_fraction": 0.4, "feature_fraction": 0.5},
    "deep": {"num_leaves": 60, "min_data_in_leaf": 1, "max_depth": -1},
    "sqrt": {"reg_sqrt": True},
}


@pytest.mark.parametrize("name", TRAINING)
def test_training_parameters(name):
    X, y = data(2)
    check(train(X, y, objective="regression", **TRAINING[name]))


# Which trees -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 3])
def test_early_stopping_reads_the_trees_that_predict_uses(n_classes):
    X, y = data()
    y = np.digitize(y + np.random.default_rng(5).normal(size=N_ROWS), [0.5] if n_classes == 2 else [0.0, 1.0])
    objective = {"objective": "binary"} if n_classes == 2 else {"objective": "multiclass", "num_class": 3}
    trees_of_an_iteration = 1 if n_classes == 2 else 3
    stop = lgb.early_stopping(3, verbose=False)

    train_set = lgb.Dataset(X[:400], y[:400])
    valid_set = lgb.Dataset(X[400:], y[400:], reference=train_set)
    # Without keep_training_booster LightGBM drops the later trees itself.
    model = lgb.train(
        QUIET | objective | {"learning_rate": 0.5},
        train_set,
        100,
        callbacks=[stop],
        valid_sets=[valid_set],
        keep_training_booster=True,
    )
    n_trees = model.best_iteration * trees_of_an_iteration
    assert 0 < n_trees < model.num_trees()
    assert check(model).ensemble.n_trees == n_trees

    wrapper = lgb.LGBMClassifier(n_estimators=100, learning_rate=0.5, verbose=-1, n_jobs=1)
    wrapper.fit(X[:400], y[:400], eval_set=[(X[400:], y[400:])], callbacks=[stop])
    assert check(wrapper).ensemble.n_trees == wrapper.best_iteration_ * trees_of_an_iteration < 100


def test_trees_from_a_later_start():
    X, y = data()
    model = train(X, y, 9, objective="regression")
    part = lgb.Booster(model_str=model.model_to_string(start_iteration=3, num_iteration=4))
    adapted = check(part)
    assert adapted.ensemble.n_trees == 4
    assert_margin(adapted.ensemble, X, model.predict(X, start_iteration=3, num_iteration=4), RTOL)


def test_continued_refitted_and_edited_models():
    X, y = data()
    first = train(X, y, 3, objective="regression")
    second = lgb.train(QUIET | {"objective": "regression"}, lgb.Dataset(X[::-1], y), 3, init_model=first)
    assert check(second).ensemble.n_trees == 6
    check(first.refit(X, -y))
    before = adapt(first).ensemble.margin(X)
    first.set_leaf_output(0, 0, 17.0)
    check(first)
    assert np.abs(adapt(first).ensemble.margin(X) - before).max() > 10.0


def test_model_from_file(tmp_path):
    X, y = data()
    model = train(X, y, objective="regression")
    model.save_model(tmp_path / "model.txt")
    loaded = lgb.Booster(model_file=tmp_path / "model.txt")
    assert_margin(adapt(loaded).ensemble, X, model.predict(X), RTOL)


@pytest.mark.parametrize("params", [{}, RF], ids=["gbdt", "rf"])
def test_single_leaf_trees(params):
    """The text of such trees omits all arrays of splits and, in LightGBM 4.0, also the count."""
    X, y = data()
    model = train(X, y + 5.0, 3, objective="regression", min_data_in_leaf=N_ROWS, **params)
    ensemble = adapt(model).ensemble
    assert ensemble.n_nodes == ensemble.n_trees > 0
    assert_margin(ensemble, X, model.predict(X), RTOL)


def test_single_leaf_trees_among_others():
    """A class without rows gets one leaf in every iteration."""
    X, y = data()
    model = train(X, y > 0.5, objective="multiclass", num_class=3)
    sizes = np.diff(check(model).ensemble.tree_offsets)
    assert (sizes[2::3] == 1).all() and (sizes[0::3] > 1).all()


def test_model_without_trees():
    X, y = data()
    booster = lgb.Booster(QUIET | {"objective": "regression"}, lgb.Dataset(X, y))
    ensemble = adapt(booster).ensemble
    assert ensemble.n_trees == 0
    assert ensemble.margin(X[:3]).tolist() == [[0.0]] * 3


# Missing values --------------------------------------------------------------------------------------


@pytest.mark.parametrize("nan", [False, True])
@pytest.mark.parametrize("name", MISSING)
def test_missing_settings(name, nan):
    X, y = data(3, nan=nan)
    y = y + 2.0 * (X[:, 1] == 0) - np.isnan(X[:, 0])
    adapted = check(train(X, y, 12, objective="regression", num_leaves=25, **MISSING[name]), n_rows=4000)
    assert adapted.ensemble.zero_missing.any() == (name == "zero_as_missing")
    assert adapted.schema.sparse_zero_missing is False


def test_zeros_at_their_edge():
    """predict() treats every x of magnitude up to the float32 1e-35 as 0.0, even if a threshold is there."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=N_ROWS)
    x[: N_ROWS // 3] = 0.0
    edge = np.array([0.0, 1e-36, 1e-35, np.nextafter(ZERO, 0), ZERO, np.nextafter(ZERO, 1), 1.0])
    edge = np.concatenate([edge, -edge, [np.nan]])[:, np.newaxis]
    thresholds = []
    for sign in (-1, 1):
        for params in MISSING.values():
            model = train(x[:, np.newaxis], (sign * x > 0) * 1.0, 2, objective="regression", **params)
            lines = model.model_to_string().split("\n")
            thresholds += [line for line in lines if line.startswith("threshold=")]
            assert_margin(adapt(model).ensemble, edge, model.predict(edge), RTOL)
    assert any(f"={ZERO}" in line for line in thresholds)
    assert any(f"={-ZERO}" in line for line in thresholds)


def test_thresholds_between_zeros():
    X, y = data()
    model = train(X, y, 1, objective="regression")
    edge = np.array([0.0, 1e-36, -1e-36, ZERO, -ZERO, 2 * ZERO, -2 * ZERO, np.nan])
    rows = np.tile(edge[:, np.newaxis], 4)
    for threshold in (0.0, -0.0, 1e-37, -1e-37, 5e-324):
        changed = reload(edited(model, "threshold", 0, 0, threshold))
        assert_margin(adapt(changed).ensemble, rows, changed.predict(rows), RTOL)


def test_zeros_missing_in_some_nodes_only():
    """Training never produces such mixtures; they are rejected if zero and NaN would part."""
    X, y = data(3, nan=True)
    model = train(X, y, 2, objective="regression", zero_as_missing=True, num_leaves=4)
    ensemble = adapt(model).ensemble
    threshold = ensemble.threshold[0]
    default_left, missing_nan = 2, 8
    agreeing = missing_nan + default_left * bool(threshold >= 0)
    opposite = missing_nan + default_left * bool(threshold < 0)
    feature = ensemble.feature[0]
    assert np.count_nonzero((ensemble.feature == feature) & (ensemble.left >= 0)) > 1
    check(reload(edited(model, "decision_type", 0, 0, agreeing)))
    check(reload(edited(model, "decision_type", 0, 0, 0)))
    with pytest.raises(UnsupportedModelError, match=f"zeros of feature {feature}"):
        adapt(reload(edited(model, "decision_type", 0, 0, opposite)))


def test_infinite_training_values():
    X, y = data(4)
    X[::7, 0], X[1::7, 0] = np.inf, -np.inf
    y[::7], y[1::7] = 5.0, -5.0
    model = train(X, y, objective="regression")
    ensemble = adapt(model).ensemble
    thresholds = ensemble.threshold[(ensemble.feature == 0) & (ensemble.left >= 0)]
    assert np.abs(thresholds).max() > 1e100
    rows = np.tile(X, (3, 1))
    edge = np.concatenate([thresholds, np.nextafter(thresholds, np.inf), [np.inf, -np.inf, np.nan]])
    rows[:, 0] = np.resize(edge, len(rows))
    assert_margin(ensemble, rows, model.predict(rows), RTOL)


def test_sparse_absent_is_zero():
    X, y = data(5)
    for params in MISSING.values():
        model = train(sp.csr_matrix(X), y, objective="regression", **params)
        assert_margin(adapt(model).ensemble, X, model.predict(sp.csr_matrix(X)), RTOL)


# Covers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "params",
    [{}, BOOSTINGS["dart"], {"bagging_freq": 1, "bagging_fraction": 0.5}],
    ids=["gbdt", "dart", "bagging"],
)
@pytest.mark.parametrize("n_classes", [1, 3])
def test_covers_are_counts_whatever_the_weights(n_classes, params):
    X, y = data(6, nan=True)
    objective = {"objective": "regression"}
    if n_classes == 3:
        y, objective = np.digitize(y, [0.0, 1.0]), {"objective": "multiclass", "num_class": 3}
    weight = np.random.default_rng(0).uniform(0.1, 10.0, N_ROWS)
    model = train(X, y, weight=weight, **objective, **params)
    ensemble = check(model).ensemble
    bias = model.predict(X[:1], pred_contrib=True).reshape(n_classes, -1)[:, -1]
    np.testing.assert_allclose(base_values(ensemble), bias, rtol=1e-10)
    if "bagging_freq" not in params:
        assert (ensemble.cover[ensemble.tree_offsets[:-1]] == N_ROWS).all()


# Wrappers --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("boosting", ["gbdt", "dart", "rf"])
def test_wrappers(boosting):
    X, y = data()
    params = dict(n_estimators=6, boosting_type=boosting, verbose=-1, n_jobs=1)
    if boosting == "rf":
        params |= dict(subsample=0.6, subsample_freq=1)
    rf = boosting == "rf"
    adapted = check(lgb.LGBMRegressor(**params).fit(X, y), rf=rf)
    assert (adapted.binary, adapted.class_names, adapted.output_names) == (None, None, None)

    labels = np.array(["no", "yes"])[(y > 0.5).astype(int)]
    adapted = check(lgb.LGBMClassifier(**params).fit(X, labels), rf=rf)
    assert (adapted.binary, adapted.class_names, adapted.output_names) == ("margin", ("no", "yes"), None)

    labels = np.array(["c", "a", "b"])[np.digitize(y, [0.0, 1.0])]
    for objective in ("multiclass", "multiclassova"):
        adapted = check(lgb.LGBMClassifier(objective=objective, **params).fit(X, labels), rf=rf)
        assert (adapted.binary, adapted.class_names, adapted.output_names) == (None, None, ("a", "b", "c"))


def test_classifiers_with_other_objectives():
    """The margin of the negative class is minus the margin only if the link is symmetric."""
    X, y = data()

    def logistic(label, margin):
        p = 1 / (1 + np.exp(-margin))
        return p - label, p * (1 - p)

    for objective, binary in ((logistic, "margin"), ("regression", None)):
        model = lgb.LGBMClassifier(n_estimators=4, objective=objective, verbose=-1, n_jobs=1).fit(X, y > 0.5)
        adapted = check(model)
        assert (adapted.binary, adapted.class_names) == (binary, binary and (False, True))


def test_ranker():
    X, y = data()
    model = lgb.LGBMRanker(n_estimators=5, verbose=-1, n_jobs=1)
    model.fit(X, np.digitize(y, [0.0, 1.0]), group=[20] * (N_ROWS // 20))
    adapted = check(model)
    assert (adapted.ensemble.n_outputs, adapted.binary) == (1, None)


def test_native_multiclass_booster_has_all_outputs():
    X, y = data()
    wrapper = lgb.LGBMClassifier(n_estimators=4, verbose=-1, n_jobs=1).fit(X, np.digitize(y, [0.0, 1.0]))
    adapted = check(wrapper.booster_)
    assert (adapted.ensemble.n_outputs, adapted.output_names) == (3, None)


def test_unsupported_models():
    X, y = data()
    for wrapper in (lgb.LGBMClassifier(), lgb.LGBMRegressor(), lgb.LGBMRanker()):
        with pytest.raises(NotFittedError):
            adapt(wrapper)
    with pytest.raises(UnsupportedModelError, match="CVBooster"):
        adapt(lgb.CVBooster())
    with pytest.raises(UnsupportedModelError, match="Dataset"):
        adapt(lgb.Dataset(X, y))


# Damaged models --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "index", "value", "message"),
    [
        ("left_child", 0, 50, "left_child outside the tree"),
        ("right_child", 1, -50, "right_child outside the tree"),
        ("left_child", 1, 0, "not reached exactly once"),
        ("right_child", 2, -1, "not reached exactly once"),
        ("split_feature", 0, 4, r"feature outside 0\.\.3"),
        ("split_feature", 0, -1, r"feature outside 0\.\.3"),
        ("threshold", 0, "nan", "NaN threshold"),
        ("decision_type", 0, 12, "unknown decision_type"),
        ("decision_type", 0, 1, "unknown category set"),
        ("leaf_value", 0, "nan", "non-finite value"),
        ("leaf_value", 0, "inf", "non-finite value"),
        ("leaf_count", 0, -5, "negative or non-finite cover"),
    ],
)
def test_edited_models_are_refused(field, index, value, message):
    X, y = data()
    model = train(X, y, 3, objective="regression")
    # Do not use a Booster: LightGBM itself writes out of bounds if a feature does not exist.
    text = edited(model, field, 1, index, value)
    with pytest.raises(ValueError, match=message):
        read_text(text)


def test_cycle_is_refused():
    X, y = data()
    model = train(X, y, 1, objective="regression", num_leaves=6)
    ensemble = adapt(model).ensemble
    parent = next(i for i in range(1, 5) if 0 < ensemble.left[i] < 5 or 0 < ensemble.right[i] < 5)
    side = "left_child" if 0 < ensemble.left[parent] < 5 else "right_child"
    child = int(getattr(ensemble, side[:-6])[parent])
    grandparent = next(i for i in range(5) if parent in (ensemble.left[i], ensemble.right[i]))
    grandside = "left_child" if ensemble.left[grandparent] == parent else "right_child"
    # The parent and the child point at each other; the leaf that the child loses takes the parent's place.
    leaf = int(ensemble.left[child]) - 5
    assert leaf >= 0
    changed = reload(edited(model, "left_child", 0, child, parent))
    changed = reload(edited(changed, grandside, 0, grandparent, ~leaf))
    with pytest.raises(ValueError, match="cycle"):
        adapt(changed)


def test_damaged_text_is_refused():
    X, y = categorical_data(40)
    text = train(X, y, 3, categorical=[1], objective="regression", **CATEGORICAL).model_to_string()
    assert read_text(text).ensemble.n_trees == 3
    for position in np.linspace(0, text.index("\nend of trees"), 60).astype(int):
        with pytest.raises(ValueError, match="truncated"):
            read_text(text[:position])
    with pytest.raises(ValueError, match="more or fewer trees"):
        read_text(text[: text.index("Tree=2")] + text[text.index("end of trees") :])
    text = without_sizes(text)
    assert read_text(text).ensemble.n_trees == 3
    for field in (
        "num_leaves",
        "num_cat",
        "leaf_value",
        "leaf_count",
        "cat_boundaries",
        "cat_threshold",
        "max_feature_idx",
        "num_tree_per_iteration",
    ):
        with pytest.raises(ValueError, match="LightGBM model text"):
            read_text(text.replace(f"\n{field}=", "\nshrinkage="))
    with pytest.raises(ValueError, match="do not rise"):
        read_text(text.replace("cat_boundaries=0", "cat_boundaries=1"))
    with pytest.raises(ValueError, match="names 3 of 2"):
        read_text(text.replace("feature_names=", "feature_names=more "))


def test_no_warnings():
    X, y = categorical_data(40)
    model = train(X, y, 3, categorical=[1], objective="regression", **CATEGORICAL)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        adapt(model)
